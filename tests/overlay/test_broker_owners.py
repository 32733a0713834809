"""One broker alone and its regions: the lake is read first, owners change, nobody's stream breaks (rule 8)."""

from dataclasses import replace

from hands import ANNA, BEN, LoneBroker, cell, points, sent, ticks, values
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.events import Learned, Recall, Recalled, Send
from sensorgrid.overlay.messages import Feed, Grant, Holds, Leave, Redirect, Refuse, Told, Want, Why


def test_publishing_twice_counts_once() -> None:
    """Rule 8: delivery from the pipeline is at least once."""
    broker = LoneBroker()
    broker.want(ANNA, "000")

    for tick in (0, 0, 1, 0, 1, 2):
        broker.publish(tick)

    assert ticks(sent(broker.log, Feed)) == [0, 1, 2]


def test_an_older_epoch_is_ignored() -> None:
    """Rule 8: publishes carry the owner's epoch."""
    broker = LoneBroker()
    broker.want(ANNA, "000")
    broker.assign({"000": 0}, epoch=3)

    assert broker.publish(0, epoch=2) == []
    assert ticks(sent(broker.publish(0, epoch=3), Feed)) == [0]


def test_an_owner_feeds_nobody_before_it_has_read_the_lake() -> None:
    """Rule 8: on start a gateway reads the lake's tail once."""
    broker = LoneBroker(owns=())
    effects = broker.assign({"000": 0}, recall=False)
    effects += broker.want(ANNA, "000", start=1)
    effects += broker.publish(3)
    before = list(effects)

    tail = tuple((tick, 0, values(cell("000"), tick)) for tick in range(3))
    after = broker.feed(Recalled(0, cell("000"), 1, tail))
    again = broker.feed(Recalled(0, cell("000"), 1, tail))

    assert [e for e in before if isinstance(e, Recall)] == [Recall(0, cell("000"), 1)]
    assert sent(before, Grant) + sent(before, Feed) == []
    assert len(sent(after, Grant)) == 1
    assert ticks(sent(after, Feed)) == [1, 2, 3], "what was published meanwhile is not lost"
    assert again == []


def test_a_lake_that_is_read_twice_does_not_undo_what_was_published_since() -> None:
    """Rule 8: once."""
    broker = LoneBroker(owns=())
    broker.assign({"000": 0}, recall=False)
    tail = tuple((tick, 0, values(cell("000"), tick)) for tick in range(3))
    broker.feed(Recalled(0, cell("000"), 1, tail))
    broker.publish(2, revision=1)

    broker.feed(Recalled(0, cell("000"), 1, tail))
    effects = broker.want(ANNA, "000", start=2)

    assert [(f.tick, f.revision) for f in sent(effects, Feed)] == [(2, 1)]


def test_the_lake_of_an_older_epoch_is_not_read() -> None:
    """Rule 8."""
    broker = LoneBroker(owns=())
    broker.assign({"000": 0}, epoch=1, recall=False)
    broker.assign({"000": 0}, epoch=2, recall=False)
    broker.want(ANNA, "000")

    assert broker.feed(Recalled(0, cell("000"), 1, ())) == []
    assert len(sent(broker.feed(Recalled(0, cell("000"), 2, ())), Grant)) == 1


def test_revisions_from_the_lake_are_replayed() -> None:
    """Rules 7 and 8: the takeover replays by rule 7."""
    broker = LoneBroker(owns=())
    broker.assign({"000": 0}, recall=False)
    broker.want(ANNA, "000", start=3)

    tail = tuple((tick, int(tick == 1), values(cell("000"), tick)) for tick in range(4))
    effects = broker.feed(Recalled(0, cell("000"), 1, tail))

    assert [(f.tick, f.revision) for f in sent(effects, Feed)] == [(1, 1), (3, 0)]


def test_a_lost_region_is_taken_from_the_heir_until_its_receivers_have_gone_there() -> None:
    """Hand-over, the old owner: make before break."""
    broker = LoneBroker()
    broker.want(ANNA, "000")
    broker.publish(0)

    effects = broker.assign({"000": 4, "001": 0}, epoch=2)
    late = broker.publish(1)
    effects += broker.up(4)
    (want,) = sent(effects, Want, 4)
    after = broker.say(4, Grant(want.generation, (cell("000"),), (PeerId(4),), 2))
    fed = broker.supply(4, "000", (1,), want.generation)
    left = broker.leave(ANNA, "000")

    told = [e.message for e in effects if isinstance(e, Send) and e.peer == 4]
    assert isinstance(told[0], Told), "the heir hears of the roster before anything is asked of it"
    assert want.items == ((cell("000"), points(cell("000")), 1),)
    assert sent(effects, Refuse) == []
    assert late == [], "what is published under the old epoch is not taken"
    assert [(g.path, g.epoch) for g in sent(after, Grant, ANNA)] == [((4, 0), 2)]
    assert [(r.items, r.to) for r in sent(after, Redirect, ANNA)] == [(((cell("000"), cell("000")),), 4)]
    assert [(f.tick, f.epoch) for f in sent(fed, Feed, ANNA)] == [(1, 2)]
    assert [m.cells for m in sent(left, Leave, 4)] == [(cell("000"),)]
    assert broker.boards.outlets.used == 0


def test_a_lost_region_that_was_never_read_sends_its_receivers_to_the_heir() -> None:
    """There is nothing to go on with."""
    broker = LoneBroker(owns=())
    broker.assign({"000": 0}, recall=False)
    broker.want(ANNA, "000")

    effects = broker.assign({"000": 4, "001": 0}, epoch=2)

    (refusal,) = sent(effects, Refuse)
    assert (refusal.cells, refusal.code, refusal.elsewhere) == ((cell("000"),), Why.OWNER, (4,))
    assert broker.boards.outlets.used == 0


def test_a_gained_region_goes_on_with_the_ring_of_the_relay_that_it_was() -> None:
    """Hand-over, the heir: receivers notice nothing but another path; the lake brings what the old owner did not."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA, start=0)
    broker.supply(1, "001", range(3), generation)

    effects = broker.assign({"000": 0, "001": 0}, epoch=2, recall=False)
    stale = broker.supply(1, "001", (3,), generation)
    follows = broker.publish(3, digits="001", epoch=2)
    jumps = broker.publish(5, digits="001", epoch=2)
    tail = tuple((tick, int(tick == 2), values(cell("001"), tick, int(tick == 2))) for tick in range(5))
    after = broker.feed(Recalled(0, cell("001"), 2, tail))

    assert sent(effects, Leave, 1) == [Leave(generation, (cell("001"),))]
    assert sent(effects, Grant, ANNA) == [Grant(1, (cell("001"),), (PeerId(0),), 2)]
    assert stale == []
    assert ticks(sent(follows, Feed, ANNA)) == [3], "what follows on the ring does not wait for the lake"
    assert jumps == [], "what does not, might be a gap or not"
    assert [(f.tick, f.revision) for f in sent(after, Feed, ANNA)] == [(2, 1), (4, 0), (5, 0)]
    assert all(f.slabs is not None for f in sent(after, Feed, ANNA))
    assert broker.boards.intake.feeds == {}


def test_a_receiver_of_older_ticks_than_the_ring_waits_for_the_lake() -> None:
    """A relay's ring begins where its first receiver did; the owner has what the lake has."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA, start=6)
    broker.supply(1, "001", range(4, 7), generation)
    broker.assign({"000": 0, "001": 0}, epoch=2, recall=False)

    early = broker.want(BEN, "001", start=2)
    tail = tuple((tick, 0, values(cell("001"), tick)) for tick in range(7))
    after = broker.feed(Recalled(0, cell("001"), 2, tail))

    assert sent(early, Grant, BEN) + sent(early, Refuse, BEN) == []
    assert ticks(sent(after, Feed, BEN)) == [2, 3, 4, 5, 6]
    assert sent(after, Feed, ANNA) == []


def test_an_heir_takes_its_region_from_the_end_of_the_lake_on_and_for_nobody() -> None:
    """Hand-over, before it: the heir is a relay first."""
    broker = LoneBroker(owns=("001",), others={"000": 4})
    broker.up(4)
    held = broker.boards.roster.current

    effects = broker.feed(Learned(held.promised(0, cell("000"), PeerId(0))))
    tail = tuple((tick, 0, values(cell("000"), tick)) for tick in range(3))
    effects = broker.feed(Recalled(0, cell("000"), 1, tail))
    (want,) = sent(effects, Want, 4)
    broker.say(4, Grant(want.generation, (cell("000"),), (PeerId(4),), 1))
    broker.supply(4, "000", (3,), want.generation)
    held = broker.boards.roster.current
    owns = broker.feed(Learned(held.handed_over(0, cell("000"), PeerId(0))))
    asked = broker.want(ANNA, "000", start=2)

    assert [item[2] for item in want.items] == [3]
    assert sent(owns, Leave, 4) == [Leave(want.generation, (cell("000"),))]
    assert Recall(0, cell("000"), 2) in owns
    assert [(g.path, g.epoch) for g in sent(asked, Grant, ANNA)] == [((0,), 2)]
    assert ticks(sent(asked, Feed, ANNA)) == [2, 3]


def test_an_heir_that_is_one_no_longer_lets_go() -> None:
    broker = LoneBroker(owns=("001",), others={"000": 4})
    broker.up(4)
    broker.feed(Learned(broker.boards.roster.current.promised(0, cell("000"), PeerId(0))))
    (want,) = sent(broker.feed(Recalled(0, cell("000"), 1, ())), Want, 4)

    effects = broker.feed(Learned(broker.boards.roster.current.promised(0, cell("000"), None)))

    assert sent(effects, Leave, 4) == [Leave(want.generation, (cell("000"),))]
    assert broker.boards.outlets.supplies[0].keys() == {cell("001")}


def test_an_owner_that_hears_of_a_higher_epoch_asks_around_and_goes_on_until_a_roster_says_otherwise() -> (
    None
):
    """A publisher may be ahead, or wrong: its word alone ends nothing."""
    broker = LoneBroker(others={"001": 1})
    broker.up(1)
    broker.want(ANNA, "000")

    ahead = broker.publish(0, epoch=3)
    own = broker.publish(0, epoch=1)
    assert ticks(sent(own, Feed, ANNA)) == [0]
    roster = replace(broker.boards.roster.current.handed_over(0, cell("000"), PeerId(1)), version=7)
    broker.say(1, Told.of(roster))
    late = broker.publish(1, epoch=1)

    assert [m.version for m in sent(ahead, Holds, 1)] == [1]
    assert sent(ahead + late, Feed) == []
    assert broker.boards.roster.current == roster


def test_what_was_taken_while_the_lake_was_read_counts_also_in_the_next_epoch() -> None:
    """It was acknowledged: nobody would bring it again."""
    broker = LoneBroker(owns=(), others={"001": 1})
    broker.assign({"000": 0, "001": 1}, recall=False)
    broker.publish(5, epoch=1)
    broker.assign({"000": 0, "001": 1}, epoch=2, recall=False)

    broker.feed(Recalled(0, cell("000"), 2, ()))

    assert broker.boards.outlets.supplies[0][cell("000")].ring.keys() >= {5}


def test_a_region_gained_inside_a_cell_that_is_being_fetched_whole_replaces_it() -> None:
    """Supplies never overlap: blocks of both would carry the same points."""
    broker = LoneBroker(owns=("000",), others={"010": 1, "011": 1})
    broker.up(1)
    broker.want(ANNA, "01", via=1)

    effects = broker.assign({"000": 0, "010": 0, "011": 1}, epoch=2)

    assert [r.cells for r in sent(effects, Refuse, ANNA)] == [(cell("01"),)]
    assert broker.boards.outlets.supplies[0].keys() == {cell("000"), cell("010")}
