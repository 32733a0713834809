"""One broker alone and its regions: the lake is read first, owners change, nobody's stream breaks (rule 8)."""

from hands import ANNA, LoneBroker, cell, sent, ticks, values
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.events import Recall, Recalled
from sensorgrid.overlay.messages import Feed, Grant, Leave, Refuse


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


def test_a_lost_region_sends_its_receivers_to_the_heir() -> None:
    """Rule 8, the other side."""
    broker = LoneBroker()
    broker.want(ANNA, "000")

    effects = broker.assign({"000": 4, "001": 0}, epoch=2)

    (refusal,) = sent(effects, Refuse)
    assert (refusal.cells, refusal.reason, refusal.elsewhere) == ((cell("000"),), "another owner", (4,))
    assert broker.boards.outlets.used == 0
    assert broker.publish(0) == []


def test_a_gained_region_keeps_its_receivers_and_goes_on_from_the_lake() -> None:
    """Rule 8: a takeover discards the relay's ring; entries go on when the lake was read."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA, start=0)
    broker.supply(1, "001", range(3), generation)

    effects = broker.assign({"000": 0, "001": 0}, epoch=2, recall=False)
    stale = broker.supply(1, "001", (3,), generation)
    tail = tuple((tick, 0, values(cell("001"), tick)) for tick in range(5))
    after = broker.feed(Recalled(0, cell("001"), 2, tail))

    assert sent(effects, Leave, 1) == [Leave(generation, (cell("001"),))]
    assert sent(effects, Grant, ANNA) == [Grant(1, (cell("001"),), None)], "the path is unknown for a while"
    assert stale == []
    assert sent(after, Grant, ANNA) == [Grant(1, (cell("001"),), (PeerId(0),))]
    assert ticks(sent(after, Feed, ANNA)) == [3, 4]
    assert broker.boards.intake.sources == {}


def test_a_region_gained_inside_a_cell_that_is_being_fetched_whole_replaces_it() -> None:
    """Supplies never overlap: blocks of both would carry the same points."""
    broker = LoneBroker(owns=("000",), others={"010": 1, "011": 1})
    broker.up(1)
    broker.want(ANNA, "01", via=1)

    effects = broker.assign({"000": 0, "010": 0, "011": 1}, epoch=2)

    assert [r.cells for r in sent(effects, Refuse, ANNA)] == [(cell("01"),)]
    assert broker.boards.outlets.supplies[0].keys() == {cell("000"), cell("010")}
