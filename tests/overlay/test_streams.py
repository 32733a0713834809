"""One broker alone, its peers played by hand: what it feeds, what it refuses, what it keeps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hands import (
    EVERYTHING,
    GRID,
    REGION,
    LoneBroker,
    cell,
    client,
    closed,
    dialled,
    nan_share,
    points,
    sent,
    values,
)
from nonsense import anything
from sensorgrid.model.block import points_of
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay import messages
from sensorgrid.overlay.codec import CodecError, decode, encode
from sensorgrid.overlay.events import Advised, Published, Recall, Recalled
from sensorgrid.overlay.messages import (
    NO_ROOM,
    Alive,
    Answer,
    Ask,
    Clip,
    Feed,
    Find,
    Found,
    Grant,
    Leave,
    Located,
    Moving,
    Offer,
    Redirect,
    Refuse,
    Want,
)
from sensorgrid.overlay.policies.interface import Proposal, Reactive, View

ANNA, BEN, CARL, DORA = (client(n) for n in range(4))


class Once(Reactive):
    """A policy that makes one proposal."""

    name = "once"
    gossips = False
    forwards = False

    def __init__(self, *proposals: Proposal) -> None:
        self.left = list(proposals)

    def propose(self, view: View) -> Proposal | None:
        return self.left.pop(0) if self.left else None


def ticks(feeds: list[Feed]) -> list[int]:
    return [f.tick for f in feeds]


# -- entries (rule 2)


def test_a_wanted_cell_is_granted_and_fed_from_its_tick_on() -> None:
    """Rules 2 and 6."""
    broker = LoneBroker()
    for tick in range(5):
        broker.publish(tick)

    effects = broker.want(ANNA, "000", start=3)
    effects += broker.publish(5)

    assert sent(effects, Grant) == [Grant(1, (cell("000"),), (PeerId(0),))]
    assert ticks(sent(effects, Feed, ANNA)) == [3, 4, 5]
    got = {(x, y): v for f in sent(effects, Feed)[2:] for x, y, v in points_of(f.slabs or ())}
    assert got == {(x, y): float(values(cell("000"), 5)[y, x]) for x in range(4) for y in range(8)}


def test_a_known_entry_again_is_a_no_op_that_only_repeats_the_grant() -> None:
    """Rule 2: the same generation again is a no-op."""
    broker = LoneBroker()
    broker.publish(0)
    broker.want(ANNA, "000")
    used = broker.state.outlets.used

    effects = broker.want(ANNA, "000")

    assert effects[0:] == [e for e in effects if sent([e], Grant)]
    assert sent(effects, Grant) == [Grant(1, (cell("000"),), (PeerId(0),))]
    assert broker.state.outlets.used == used == 64
    assert ticks(sent(broker.log, Feed)) == [0]


def test_asking_again_is_a_new_generation_with_its_own_ticks() -> None:
    """Rule 2."""
    broker = LoneBroker()
    broker.publish(0)
    broker.want(ANNA, "000")

    effects = broker.want(ANNA, "000", start=1, generation=2)
    effects += broker.publish(1)

    assert [(f.generation, f.tick) for f in sent(effects, Feed)] == [(1, 1), (2, 1)]
    assert broker.state.outlets.used == 128
    broker.leave(ANNA, "000", generation=1)
    assert broker.state.outlets.used == 64


@pytest.mark.parametrize("claim", [0, 1, 63, 65, 512, -64])
def test_a_claim_of_the_wrong_size_is_refused(claim: int) -> None:
    """A budget cannot rest on what others claim."""
    broker = LoneBroker()

    effects = broker.want(ANNA, "000", claim=claim)

    (refusal,) = sent(effects, Refuse)
    assert refusal.reason == f"{claim} points claimed, 64 counted"
    assert broker.state.outlets.used == 0
    assert broker.publish(0) == []


@pytest.mark.parametrize(
    ("code", "clip"),
    [
        (cell("0000000000"), EVERYTHING), (cell("000"), Clip((5, 5, 0, 16), (2, 2, 2))),
        (cell("000"), Clip((-1, 4, 0, 16), (2, 2, 2))), (cell("000"), Clip((0, 4, 0, 99), (2, 2, 2))),
        (cell("000"), Clip((0, 16, 0, 16), (0, 2, 2))), (cell("000"), Clip((0, 16, 0, 16), (2, -1, 2))),
        (1 << 43, None), (1 << 43, EVERYTHING), (cell("0" * 40), EVERYTHING),
        (cell("000"), Clip((8, 16, 0, 16), (2, 2, 2))),
    ],
)  # fmt: skip
def test_what_cannot_be_fed_is_refused_and_hurts_nobody(code: int, clip: Clip | None) -> None:
    broker = LoneBroker()
    broker.up(ANNA)

    effects = broker.say(ANNA, Want(1, 0, ((code, 64, 0),), clip))

    assert [r.cells for r in sent(effects, Refuse)] == [(code,)]
    assert broker.state.outlets.entries == {}


def test_a_client_gets_what_its_clip_wants_and_no_more() -> None:
    broker = LoneBroker()
    clip = Clip((1, 4, 2, 16), (1, 2, 2))
    broker.want(ANNA, "000", clip=clip)

    (feed,) = sent(broker.publish(0), Feed)

    assert {(x, y) for x, y, _ in points_of(feed.slabs or ())} == {(2, y) for y in range(2, 8)}
    assert broker.state.outlets.used == points(cell("000"), clip) == 12


def test_receivers_of_the_same_part_are_sent_the_same_slabs() -> None:
    """The hot path: each distinct part is cut once."""
    broker = LoneBroker()
    broker.want(ANNA, "000")
    broker.want(BEN, "000")

    first, second = sent(broker.publish(0), Feed)

    assert first.slabs is second.slabs


def test_leaving_ends_an_entry_and_only_it() -> None:
    broker = LoneBroker()
    broker.want(ANNA, "000")
    broker.want(BEN, "000")

    broker.leave(ANNA, "000")
    broker.leave(ANNA, "000")
    broker.leave(BEN, "000", generation=7)

    assert [f.tick for f in sent(broker.publish(0), Feed, ANNA)] == []
    assert len(sent(broker.log, Feed, BEN)) == 1
    assert broker.state.outlets.used == 64


def test_a_broken_connection_ends_all_entries_on_it() -> None:
    broker = LoneBroker(owns=("000", "001"))
    broker.want(ANNA, "000")
    broker.want(ANNA, "001", generation=2)

    broker.down(ANNA)

    assert broker.state.outlets.used == 0
    assert broker.publish(0) == []


def test_a_new_connection_replaces_the_old_one_with_all_that_was_said_on_it() -> None:
    """Entries are scoped to one connection."""
    broker = LoneBroker()
    broker.want(ANNA, "000")

    broker.up(ANNA)

    assert broker.state.outlets.used == 0


def test_an_entry_with_an_end_gets_nothing_from_the_end_on() -> None:
    broker = LoneBroker()
    broker.publish(0)
    broker.publish(1)
    broker.want(ANNA, "000", start=0, until=3)

    for tick in (2, 3, 4):
        broker.publish(tick)
    broker.publish(3, revision=1)
    broker.publish(2, revision=1)

    assert ticks(sent(broker.log, Feed)) == [0, 1, 2, 2]


def test_what_an_entry_missed_is_replayed_up_to_its_end_and_not_further() -> None:
    broker = LoneBroker()
    for tick in range(4, 10):
        broker.publish(tick)

    effects = broker.want(ANNA, "000", start=5, until=7)
    effects += broker.want(BEN, "000", start=0, until=2)

    assert ticks(sent(effects, Feed, ANNA)) == [5, 6]
    assert [(f.tick, f.until, f.slabs) for f in sent(effects, Feed, BEN)] == [(0, 2, None)]


# -- in tick order (rule 6)


def test_a_tick_that_the_pipeline_left_out_is_a_gap_by_its_owner() -> None:
    """Rule 6: a gap is a block without values."""
    broker = LoneBroker()
    broker.want(ANNA, "000")

    broker.publish(0)
    effects = broker.publish(3)

    assert [(f.tick, f.until, f.slabs is None) for f in sent(effects, Feed)] == [(1, 3, True), (3, 0, False)]


def test_an_owner_names_what_it_lacks_as_one_gap() -> None:
    """Rules 6 and 7: only the owner may make a gap."""
    broker = LoneBroker()
    broker.publish(20)
    broker.publish(21)

    effects = broker.want(ANNA, "000", start=5)

    found = [(f.tick, f.until, f.slabs is None) for f in sent(effects, Feed)]
    assert found == [(5, 20, True), (20, 0, False), (21, 0, False)]


def test_an_owner_with_an_empty_lake_names_all_before_its_first_tick_as_a_gap() -> None:
    """Rule 6: whoever asked from an earlier tick on would otherwise wait for it for ever."""
    broker = LoneBroker()
    broker.want(ANNA, "000", start=3)
    broker.want(BEN, "000", start=9)
    broker.want(CARL, "000", start=0, until=4)

    effects = broker.publish(7) + broker.publish(8)

    assert [(f.tick, f.until) for f in sent(effects, Feed, ANNA)] == [(3, 7), (7, 0), (8, 0)]
    assert sent(effects, Feed, BEN) == []
    assert [(f.tick, f.until) for f in sent(effects, Feed, CARL)] == [(0, 4)]


def test_a_relay_makes_no_gap() -> None:
    """Rule 6: it waits for the tick that is missing."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA, start=2)
    broker.supply(1, "001", (0, 1, 2), generation)

    effects = broker.supply(1, "001", (4, 5), generation)

    assert effects == []
    assert ticks(sent(broker.supply(1, "001", (3,), generation), Feed, ANNA)) == [3]


def test_a_query_for_the_future_is_fed_when_its_time_comes() -> None:
    broker = LoneBroker()
    broker.want(ANNA, "000", start=2)

    for tick in range(4):
        broker.publish(tick)

    assert ticks(sent(broker.log, Feed)) == [2, 3]


# -- revisions (rule 7)


def test_a_new_entry_first_gets_the_revised_ticks_just_before_its_own() -> None:
    """Rule 7: [from - lateness, from), only those that were revised."""
    broker = LoneBroker(lateness_ticks=4)
    for tick in range(10):
        broker.publish(tick)
    for tick in (2, 5, 7, 9):
        broker.publish(tick, revision=1)

    effects = broker.want(ANNA, "000", start=8)

    assert [(f.tick, f.revision) for f in sent(effects, Feed)] == [(5, 1), (7, 1), (8, 0), (9, 1)]


def test_a_revision_goes_to_those_who_had_the_tick_and_counts_once() -> None:
    """Rule 7; publishing is at least once. Whoever starts later gets revisions too: a relay's receivers may lag."""
    broker = LoneBroker()
    broker.want(ANNA, "000")
    broker.want(BEN, "000", start=5)
    broker.publish(0)

    for revision in (1, 1, 0, 2, 1):
        broker.publish(0, revision)

    assert [(f.tick, f.revision) for f in sent(broker.log, Feed, ANNA)] == [(0, 0), (0, 1), (0, 2)]
    assert [(f.tick, f.revision) for f in sent(broker.log, Feed, BEN)] == [(0, 1), (0, 2)]


def test_a_relay_asked_for_older_ticks_than_it_has_refuses() -> None:
    """Rule 7: it never rewinds a shared stream; the receiver asks the owner."""
    broker = LoneBroker(others={"001": 1}, slack_ticks=2)
    generation = broker.relays("001", provider=1, receiver=ANNA, start=10)
    broker.supply(1, "001", (8,), generation)

    early = broker.want(BEN, "001", start=7)
    slack = broker.want(CARL, "001", start=8)

    assert [r.reason for r in sent(early, Refuse)] == ["too old"]
    assert sent(early, Want) == []
    assert len(sent(slack, Grant)) == 1


def test_an_entry_that_waited_until_its_ticks_had_left_the_ring_is_refused() -> None:
    """Rules 6 and 7: a relay cannot name a gap; without a word the receiver would wait for ever."""
    broker = LoneBroker(others={"001": 1}, ring_ticks=12)
    generation = broker.relays("001", provider=1, receiver=ANNA)
    broker.say(1, Grant(generation, (cell("001"),), None))
    broker.want(BEN, "001", start=0)
    broker.supply(1, "001", range(20), generation)

    effects = broker.say(1, Grant(generation, (cell("001"),), (PeerId(1),)))

    assert [r.reason for r in sent(effects, Refuse, BEN)] == ["too old"]
    assert sent(effects, Grant, BEN) == []
    assert len(sent(effects, Grant, ANNA)) == 1


def test_a_relay_starts_a_little_earlier_for_receivers_that_lag() -> None:
    """Rule 7: slack."""
    broker = LoneBroker(others={"001": 1}, slack_ticks=2)
    broker.up(1)

    (want,) = sent(broker.want(ANNA, "001", start=10, via=1), Want)

    assert want.items == ((cell("001"), 64, 8),)
    assert want.clip is None, "brokers take whole cells"


def test_for_a_client_that_stays_a_relay_fetches_older_ticks_from_the_owner() -> None:
    """Rule 7: such a client cannot ask the owner itself; the shared stream goes on."""
    broker = LoneBroker(others={"001": 1}, slack_ticks=2)
    generation = broker.relays("001", provider=1, receiver=ANNA, start=10)
    broker.supply(1, "001", range(8, 12), generation)

    asked = broker.want(BEN, "001", start=5, stays=True)
    (found,) = sent(asked, Find)
    asked += broker.say(1, Found(PeerId(0), 0, 0, ((cell("001"), PeerId(1)),), ()))
    (want,) = sent(asked, Want)
    broker.say(1, Grant(want.generation, (cell("001"),), (PeerId(1),)))
    effects = broker.supply(1, "001", range(5, 8), want.generation)

    assert (found.cells, found.owner) == ((cell("001"),), True)
    assert want.items == ((cell("001"), 64, 5),)
    assert want.until == 8
    assert ticks(sent(effects, Feed, BEN)) == list(range(5, 12))
    assert sent(effects, Leave, 1) == [Leave(want.generation, (cell("001"),))]
    assert ticks(sent(broker.log, Feed, ANNA)) == [10, 11]


def test_the_ring_is_bounded() -> None:
    """Rule 7: longer than the lateness, and no longer than set."""
    broker = LoneBroker(ring_ticks=12)
    for tick in range(100):
        broker.publish(tick)

    supply = broker.state.outlets.supplies[0][cell("000")]
    assert sorted(supply.ring) == list(range(88, 100))
    effects = broker.want(ANNA, "000", start=50)
    assert [(f.tick, f.until) for f in sent(effects, Feed)][:2] == [(50, 88), (88, 0)]


def test_a_revision_of_a_tick_that_the_ring_no_longer_holds_is_dropped() -> None:
    """Rule 7."""
    broker = LoneBroker(ring_ticks=12)
    broker.want(ANNA, "000")
    for tick in range(30):
        broker.publish(tick)

    assert broker.publish(5, revision=1) == []


# -- the owner and the lake (rule 8)


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
    assert broker.state.outlets.used == 0
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
    assert broker.state.intake.sources == {}


def test_a_region_gained_inside_a_cell_that_is_being_fetched_whole_replaces_it() -> None:
    """Supplies never overlap: blocks of both would carry the same points."""
    broker = LoneBroker(owns=("000",), others={"010": 1, "011": 1})
    broker.up(1)
    broker.want(ANNA, "01", via=1)

    effects = broker.assign({"000": 0, "010": 0, "011": 1}, epoch=2)

    assert [r.cells for r in sent(effects, Refuse, ANNA)] == [(cell("01"),)]
    assert broker.state.outlets.supplies[0].keys() == {cell("000"), cell("010")}


# -- supplies


def test_a_supply_goes_with_its_last_entry() -> None:
    """Interest flows up: a relay that nobody needs ends its own stream."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA)
    broker.want(BEN, "001")

    first = broker.leave(ANNA, "001")
    last = broker.down(BEN)

    assert sent(first, Leave) == []
    assert sent(last, Leave, 1) == [Leave(generation, (cell("001"),))]
    assert broker.state.outlets.supplies[0].keys() == {cell("000")}
    assert broker.state.intake.sources == {}


def test_receivers_of_a_relay_share_one_stream() -> None:
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA)

    effects = broker.want(BEN, "0010", start=0)
    effects += broker.supply(1, "001", (0,), generation)

    assert sent(effects, Want) == []
    assert [f.cell for f in sent(effects, Feed)] == [cell("001"), cell("0010")]
    assert sent(effects, Grant) == [Grant(1, (cell("0010"),), (PeerId(1), PeerId(0)))]


def test_via_is_used_only_if_there_is_no_provider_yet() -> None:
    """Rule 5."""
    broker = LoneBroker(others={"001": 1})
    broker.relays("001", provider=1, receiver=ANNA)

    effects = broker.want(BEN, "001", via=3)

    assert (sent(effects, Want), dialled(effects)) == ([], [])


def test_without_via_a_provider_is_looked_for() -> None:
    broker = LoneBroker(others={"001": 1})
    broker.up(1)

    effects = broker.want(ANNA, "001")
    (question,) = sent(effects, Find, 1)
    effects = broker.say(1, Found(PeerId(0), 0, 0, ((cell("001"), PeerId(1)),), ()))

    assert question.cells == (cell("001"),)
    assert [w.items for w in sent(effects, Want, 1)] == [((cell("001"), 64, 0),)]


def test_an_entry_waits_for_the_path_of_its_supply() -> None:
    """Rule 3: it is accepted when the stream is known to come."""
    broker = LoneBroker(others={"001": 1})
    broker.up(1)

    effects = broker.want(ANNA, "001", via=1)
    (want,) = sent(effects, Want)
    granted = broker.say(1, Grant(want.generation, (cell("001"),), (PeerId(1),)))

    assert sent(effects, Grant) == []
    assert sent(granted, Grant) == [Grant(1, (cell("001"),), (PeerId(1), PeerId(0)))]


def test_a_new_path_is_told_to_all_receivers_unknown_included() -> None:
    """Rule 3."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA)

    unknown = broker.say(1, Grant(generation, (cell("001"),), None))
    known = broker.say(1, Grant(generation, (cell("001"),), (PeerId(2), PeerId(1))))

    assert [g.path for g in sent(unknown, Grant)] == [None]
    assert [g.path for g in sent(known, Grant)] == [(2, 1, 0)]


def test_a_broker_in_its_own_path_leaves_and_says_that_the_path_is_unknown() -> None:
    """Rule 3: at once, and for the owner."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=3, receiver=ANNA)

    effects = broker.say(3, Grant(generation, (cell("001"),), (PeerId(1), PeerId(0), PeerId(3))))

    assert sent(effects, Leave, 3) == [Leave(generation, (cell("001"),))]
    assert [g.path for g in sent(effects, Grant, ANNA)] == [None]
    assert [q.owner for q in sent(effects + broker.up(1), Find, 1)] == [True]


def test_if_nobody_feeds_a_supply_its_receivers_are_refused_with_the_reason() -> None:
    broker = LoneBroker(others={"001": 1})
    broker.up(1)
    broker.want(ANNA, "001")

    effects = broker.say(1, Found(PeerId(0), 0, 0, ((cell("001"), None),), ()))

    assert [r.reason for r in sent(effects, Refuse, ANNA)] == ["no provider: nobody within reach has it"]
    assert broker.state.outlets.supplies[0].keys() == {cell("000")}


def test_a_cell_that_is_here_in_parts_is_refused_with_the_parts() -> None:
    """Rule 1: entries hang on one supply."""
    broker = LoneBroker(owns=("000",))

    (refusal,) = sent(broker.want(ANNA, "0"), Refuse)

    assert refusal.reason == "cut"
    assert sorted(refusal.parts) == sorted([cell("000"), cell("001"), cell("01")])


def test_a_cell_with_a_border_through_it_is_cut_where_the_owners_meet() -> None:
    """A relay asked for more than one owner has lets its receivers ask for the parts."""
    broker = LoneBroker(owns=(), others={"010": 1, "011": 2})
    broker.up(1)
    broker.want(ANNA, "01", via=1)
    broker.want(3, "01", via=1)
    (want,) = sent(broker.log, Want)
    refused = broker.say(1, Refuse(want.generation, (cell("01"),), "cut", (), (cell("010"), cell("011"))))
    refused += broker.up(2) if PeerId(2) in dialled(refused) else []

    effects = broker.say(1, Found(PeerId(0), 0, 0, ((cell("010"), PeerId(1)),), ()))

    assert [(r.reason, r.parts) for r in sent(effects, Refuse, ANNA)] == [("cut", (cell("010"), cell("011")))]
    assert [(r.reason, r.parts) for r in sent(effects, Refuse, 3)] == [("several owners", ())]
    assert broker.state.outlets.supplies.get(0, {}) == {}


def test_a_relay_follows_a_redirect_with_make_before_break() -> None:
    """Rules 4 and 5: its receivers notice only the path."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA)
    broker.supply(1, "001", (0, 1), generation)
    broker.up(2)

    (want,) = sent(broker.say(1, Redirect(generation, ((cell("001"), cell("001")),), PeerId(2))), Want, 2)
    broker.supply(1, "001", (2,), generation)
    switch = broker.say(2, Grant(want.generation, (cell("001"),), (PeerId(1), PeerId(2))))
    switch += broker.supply(2, "001", (2,), want.generation)
    after = broker.supply(2, "001", (3,), want.generation)

    assert (want.via, want.items[0][2]) == (1, 2)
    assert sent(switch, Leave, 1) == [Leave(generation, (cell("001"),))]
    assert [g.path for g in sent(switch, Grant, ANNA)] == [(1, 2, 0)]
    assert ticks(sent(broker.log, Feed, ANNA)) == [0, 1, 2, 3]
    assert ticks(sent(after, Feed, ANNA)) == [3]


# -- budgets (rule 10)


def test_the_budget_is_never_exceeded_and_what_does_not_fit_waits_then_is_refused() -> None:
    """Rule 10: the refusal names brokers that carry the cell."""
    broker = LoneBroker(budget=2 * REGION, wait_s=0.5, policy=Once())
    broker.want(3, "000")
    broker.want(ANNA, "000")

    waiting = broker.want(BEN, "000")
    refused = broker.wait(0.6)

    assert sent(waiting, Grant) == []
    assert [(r.reason, r.elsewhere) for r in sent(refused, Refuse, BEN)] == [(NO_ROOM, (3,))]
    assert broker.state.outlets.used == 2 * REGION
    assert broker.state.waiting == {}


def test_a_refusal_by_a_relay_names_where_its_own_stream_comes_from() -> None:
    """Rule 10: a full relay in front of an owner with room must not shut its receivers out."""
    broker = LoneBroker(owns=("000",), others={"001": 1}, budget=REGION)
    broker.relays("001", provider=1, receiver=ANNA)

    broker.want(BEN, "001")
    effects = broker.wait(0.6)

    assert [(r.reason, r.elsewhere) for r in sent(broker.log + effects, Refuse, BEN)][:1] == [(NO_ROOM, (1,))]


class Holding(Reactive):
    """A policy that has always something better to do, so that requests wait."""

    name = "holding"
    gossips = False
    forwards = False

    def propose(self, view: View) -> Proposal | None:
        return Proposal(0, cell("000"), PeerId(7))


def test_a_request_that_waits_is_let_in_when_room_is_freed() -> None:
    """Rule 10."""
    broker = LoneBroker(budget=REGION, policy=Holding(), others={"001": 7})
    broker.up(7)
    broker.want(ANNA, "000")
    waiting = broker.want(BEN, "000")

    effects = broker.leave(ANNA, "000")

    assert sent(waiting, Refuse) + sent(waiting, Grant) == []
    assert [g.generation for g in sent(effects, Grant, BEN)] == [1]
    assert broker.state.waiting == {}


def test_a_request_that_is_withdrawn_while_it_waits_is_forgotten() -> None:
    """Rule 9."""
    for withdraw in ("leave", "hang up"):
        broker = LoneBroker(budget=REGION, policy=Holding(), others={"001": 7})
        broker.up(7)
        broker.want(ANNA, "000")
        broker.want(BEN, "000")

        if withdraw == "leave":
            broker.leave(BEN, "000")
        else:
            broker.down(BEN)
        effects = broker.leave(ANNA, "000")

        assert (broker.state.waiting, sent(effects, Grant)) == ({}, [])
        assert broker.state.outlets.entries == {}


def test_waiting_requests_are_bounded() -> None:
    """Limits on everything."""
    broker = LoneBroker(budget=REGION, policy=Holding(), others={"001": 7}, waiting_max=2)
    broker.up(7)
    broker.want(ANNA, "000")

    refusals = [len(sent(broker.want(client(n), "000"), Refuse)) for n in range(1, 5)]

    assert refusals == [0, 0, 1, 1]


def test_a_brokers_request_takes_the_slot_of_a_client_which_moves_to_it() -> None:
    """Rule 10: at its budget, and only then."""
    broker = LoneBroker(budget=2 * REGION)
    broker.want(ANNA, "000")

    roomy = broker.want(3, "000")
    tight = broker.want(4, "000")

    assert sent(roomy, Refuse) == []
    assert [(r.cells, r.reason, r.elsewhere) for r in sent(tight, Refuse)] == [
        ((cell("000"),), "moved", (4,))
    ]
    assert len(sent(tight, Grant, 4)) == 1
    assert broker.state.counters.evictions == 1
    assert broker.state.outlets.used == 2 * REGION


def test_a_client_never_evicts_anybody() -> None:
    """Rule 10: a *broker's* request."""
    broker = LoneBroker(budget=REGION)
    broker.want(ANNA, "000")

    effects = broker.want(BEN, "000")

    assert sent(effects, Refuse, ANNA) == []
    assert broker.state.counters.evictions == 0


def test_nobody_is_evicted_who_could_not_move_to_the_asking_broker() -> None:
    """Rule 10: one client *of that cell*."""
    broker = LoneBroker(owns=("000", "001"), budget=2 * REGION)
    broker.want(ANNA, "001")
    broker.want(BEN, "001")

    effects = broker.want(3, "000")

    assert [(r.reason) for r in sent(effects, Refuse, 3)] == [NO_ROOM]
    assert sent(effects, Refuse, ANNA) + sent(effects, Refuse, BEN) == []


def test_as_few_as_possible_are_evicted_and_none_if_it_does_not_help() -> None:
    """Rule 10: eviction makes room or does not happen."""
    broker = LoneBroker(owns=("000", "001"), budget=2 * REGION)
    broker.want(BEN, "001")
    broker.want(ANNA, "0000")
    broker.want(CARL, "00010")

    effects = broker.want(3, "000")

    assert broker.state.counters.evictions == 2
    assert {e.peer for by in broker.state.outlets.entries.values() for e in by.values()} == {3, BEN}
    assert sent(effects, Refuse, BEN) == []
    again = broker.want(4, "000")
    assert sent(again, Refuse, 3) == [], "a broker keeps its slot"
    assert [(r.reason, r.elsewhere) for r in sent(again, Refuse, 4)] == [(NO_ROOM, (3,))]


def test_nobody_is_evicted_if_that_would_not_make_enough_room() -> None:
    """Rule 10: a refusal, and nobody loses anything."""
    broker = LoneBroker(owns=("000", "001"), budget=REGION + REGION // 2 + REGION // 4)
    broker.want(BEN, "001")
    broker.want(ANNA, "0000")

    effects = broker.want(3, "000")

    assert [r.reason for r in sent(effects, Refuse, 3)] == [NO_ROOM]
    assert sent(effects, Refuse, ANNA) == []
    assert broker.state.counters.evictions == 0


def test_a_relay_whose_only_receiver_is_evicted_goes_on_for_the_broker_that_came() -> None:
    """Rule 10: the stream is the same, so it must not end in between."""
    broker = LoneBroker(owns=(), others={"001": 1}, budget=REGION)
    generation = broker.relays("001", provider=1, receiver=ANNA)

    effects = broker.want(3, "001")
    feeds = broker.supply(1, "001", (0,), generation)

    assert [(r.reason, r.elsewhere) for r in sent(effects, Refuse, ANNA)] == [("moved", (3,))]
    assert sent(effects, Leave, 1) + sent(effects, Want, 1) == []
    assert ticks(sent(feeds, Feed, 3)) == [0]


def test_a_client_that_stays_is_never_evicted() -> None:
    """It has nowhere to go."""
    broker = LoneBroker(budget=REGION)
    broker.want(ANNA, "000", stays=True)

    effects = broker.want(3, "000")

    assert sent(effects, Refuse, ANNA) == []
    assert [r.reason for r in sent(effects, Refuse, 3)] == [NO_ROOM]


def test_a_client_that_stays_is_never_redirected() -> None:
    """Neither on advice, nor to make room, nor handed back."""
    broker = LoneBroker(owns=("000",), others={"001": 1}, age_min_s=10)
    broker.up(5)
    for peer in (ANNA, BEN, CARL):
        broker.want(peer, "000", stays=True)
    generation = broker.relays("001", provider=1, receiver=DORA)
    broker.leave(DORA, "001")
    effects = broker.want(DORA, "001", generation=2, via=1, stays=True)
    (want,) = sent(effects, Want, 1)
    broker.say(1, Grant(want.generation, (cell("001"),), (PeerId(1),)))

    broker.feed(Advised(0, cell("000"), PeerId(5)))
    broker.wait(60)

    assert generation < want.generation
    assert sent(broker.log, Offer) == []
    assert sent(broker.log, Redirect) == []


@hypothesis_settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from(["000", "0000", "00010", "001"]), st.integers(0, 5)),
        max_size=40,
    )
)
def test_whatever_is_wanted_and_left_the_budget_holds(steps: list[tuple[int, str, int]]) -> None:
    """Rule 10, checked by the invariants after every event."""
    broker = LoneBroker(owns=("000", "001"), budget=3 * REGION)
    for number, (who, digits, what) in enumerate(steps):
        peer = who + 1 if who < 4 else client(who)
        if what == 0 and PeerId(peer) in broker.state.links.up:
            broker.down(peer)
        elif what == 1:
            broker.up(peer)
        elif what == 2:
            broker.wait(0.3)
        else:
            broker.want(peer, digits, generation=number, stays=what == 3)
        assert broker.state.outlets.used <= 3 * REGION


# -- reservations and delegation (rules 5 and 11)


def test_an_offer_reserves_what_is_free_and_no_more() -> None:
    """Rule 5: agreement is a reservation of budget, never an interest."""
    broker = LoneBroker(others={"001": 1}, budget=3 * REGION)
    broker.up(1)
    broker.want(ANNA, "000")

    (answer,) = sent(broker.say(1, Offer(7, 0, cell("001"), 5 * REGION)), Answer)

    assert answer == Answer(7, 2 * REGION)
    assert broker.state.outlets.free == 0
    assert broker.state.outlets.supplies[0].keys() == {cell("000")}
    assert broker.state.intake.sources == {}


def test_an_offer_that_comes_twice_reserves_once() -> None:
    """Rule 10."""
    broker = LoneBroker(others={"001": 1}, budget=3 * REGION)
    broker.up(1)

    broker.say(1, Offer(7, 0, cell("001"), 2 * REGION))
    broker.say(1, Offer(7, 0, cell("001"), REGION))

    assert broker.state.outlets.reserved == REGION
    broker.wait(6)
    assert broker.state.outlets.reserved == 0


def test_a_reservation_is_for_those_who_come_from_the_one_who_asked() -> None:
    """Rule 5."""
    broker = LoneBroker(others={"001": 1}, budget=REGION)
    broker.up(1, ANNA, BEN)
    broker.say(1, Offer(7, 0, cell("001"), REGION))

    stranger = broker.want(ANNA, "001")
    welcome = broker.want(BEN, "0010", via=1)

    assert [r.reason for r in sent(stranger + broker.wait(0.6), Refuse, ANNA)] == [NO_ROOM]
    assert [w.items for w in sent(welcome, Want, 1)] == [((cell("001"), 64, 0),)], (
        "the delegated cell is taken whole"
    )
    assert (broker.state.outlets.reserved, broker.state.outlets.used) == (REGION // 2, REGION // 2)


def test_a_delegated_cell_takes_the_place_of_its_parts() -> None:
    """Supplies are disjoint: who had a part goes on from the whole, where it was."""
    broker = LoneBroker(others={"001": 1}, budget=4 * REGION)
    old = broker.relays("0010", provider=1, receiver=ANNA)
    broker.supply(1, "0010", (0, 1), old)
    broker.say(1, Offer(7, 0, cell("001"), 2 * REGION))

    effects = broker.want(BEN, "0011", start=2, via=1)
    (want,) = sent(effects, Want, 1)
    granted = broker.say(1, Grant(want.generation, (cell("001"),), (PeerId(1),)))
    broker.supply(1, "001", range(4), want.generation)

    assert want.items == ((cell("001"), 64, 0),)
    assert sent(effects, Leave, 1) == [Leave(old, (cell("0010"),))]
    assert [g.path for g in sent(effects, Grant, ANNA)] == [None]
    assert [g.path for g in sent(granted, Grant, ANNA)] == [(1, 0)]
    assert ticks(sent(broker.log, Feed, ANNA)) == [0, 1, 2, 3]
    assert ticks(sent(broker.log, Feed, BEN)) == [2, 3]


def test_a_reservation_expires() -> None:
    """Rule 5."""
    broker = LoneBroker(others={"001": 1}, budget=REGION, reservation_s=5)
    broker.up(1)
    broker.say(1, Offer(7, 0, cell("001"), REGION))

    broker.wait(4.9)
    before = broker.state.outlets.free
    broker.wait(0.2)

    assert (before, broker.state.outlets.free) == (0, REGION)
    assert broker.state.reservations == {}


def test_a_reservation_ends_with_its_connection_and_with_what_moves() -> None:
    """Rule 9."""
    broker = LoneBroker(others={"001": 1}, budget=4 * REGION)
    broker.up(1, 2)
    broker.say(1, Offer(7, 0, cell("001"), 2 * REGION))
    broker.say(2, Offer(7, 0, cell("001"), 2 * REGION))

    broker.say(1, Moving(7, REGION))
    broker.down(2)
    smaller = broker.state.outlets.reserved
    broker.say(1, Moving(7, 0))

    assert (smaller, broker.state.outlets.reserved) == (REGION, 0)
    assert broker.state.reservations == {}


def test_a_delegation_offers_then_redirects_those_who_fit() -> None:
    """Rule 11: at least two receivers per decision."""
    broker = LoneBroker(budget=3 * REGION)
    broker.up(5)
    for peer in (ANNA, BEN, CARL):
        broker.want(peer, "000")

    (offer,) = sent(broker.feed(Advised(0, cell("000"), PeerId(5))), Offer, 5)
    effects = broker.say(5, Answer(offer.number, 2 * REGION))

    assert offer.load == 3 * REGION
    assert sent(effects, Moving) == [Moving(offer.number, 2 * REGION)]
    assert [(r.items, r.to) for r in sent(effects, Redirect)] == [(((cell("000"), cell("000")),), 5)] * 2


def test_a_delegation_that_would_move_only_one_is_not_made() -> None:
    """Rule 11: otherwise they play ping-pong."""
    broker = LoneBroker(budget=3 * REGION)
    broker.up(5)
    for peer in (ANNA, BEN, CARL):
        broker.want(peer, "000")

    (offer,) = sent(broker.feed(Advised(0, cell("000"), PeerId(5))), Offer, 5)
    effects = broker.say(5, Answer(offer.number, 2 * REGION - 1))

    assert sent(effects, Redirect) == []
    assert sent(effects, Moving) == [Moving(offer.number, 0)]


def test_a_delegation_of_a_part_cuts_the_entry_where_the_receiver_cuts_its_piece() -> None:
    """Rules 1 and 5: the parts keep the generation and the next tick; one of them goes."""
    part = cell("0001")
    broker = LoneBroker(
        budget=2 * REGION, others={"001": 5}, policy=Once(Proposal(0, part, PeerId(5), cuts=True))
    )
    broker.up(5)
    for peer in (ANNA, BEN):
        broker.want(peer, "000")
    broker.publish(0)

    (offer,) = sent(broker.want(CARL, "0000"), Offer)
    effects = broker.say(5, Answer(offer.number, REGION))
    feeds = sent(broker.publish(1), Feed, ANNA)

    assert (offer.cell, offer.load) == (part, REGION)
    assert [(r.generation, r.items, r.to) for r in sent(effects, Redirect, ANNA)] == [
        (1, ((cell("000"), part),), 5)
    ]
    assert sorted((f.generation, f.cell, f.tick) for f in feeds) == [(1, cell("0000"), 1), (1, part, 1)]
    assert sum(e.size for e in broker.state.outlets.entries[ANNA].values()) == REGION
    broker.leave(ANNA, "0001")
    broker.leave(BEN, "0001")
    assert [g.cells for g in sent(broker.log, Grant, CARL)] == [(cell("0000"),)], "there is room now"


def test_those_who_leave_by_the_old_name_leave_all_parts() -> None:
    """Rule 2: an entry by name, or the parts that it was cut into."""
    part = cell("0001")
    broker = LoneBroker(
        budget=2 * REGION, others={"001": 5}, policy=Once(Proposal(0, part, PeerId(5), cuts=True))
    )
    broker.up(5)
    for peer in (ANNA, BEN):
        broker.want(peer, "000")
    (offer,) = sent(broker.want(CARL, "0000"), Offer)
    broker.say(5, Answer(offer.number, REGION))

    broker.leave(ANNA, "000")

    assert ANNA not in broker.state.outlets.entries


def test_a_declined_redirect_is_not_proposed_again_soon() -> None:
    """Rule 11: back off."""
    policy = Seeing()
    broker = LoneBroker(budget=2 * REGION, others={"001": 5}, policy=policy, wait_s=2)
    broker.up(5)
    broker.want(ANNA, "000")
    broker.want(BEN, "000")

    (offer,) = sent(broker.want(CARL, "000"), Offer)
    broker.say(5, Answer(offer.number, 0))

    assert policy.declined[-1] == frozenset({(0, cell("000"), 5)})
    assert len(sent(broker.log, Offer)) == 1
    broker.wait(40)
    broker.want(DORA, "000")
    assert frozenset() in policy.declined[2:]


class Seeing(Reactive):
    """A policy that writes down what was declined, and respects it."""

    name = "seeing"
    gossips = False
    forwards = False

    def __init__(self) -> None:
        self.declined: list[frozenset[tuple[int, int, PeerId]]] = []

    def propose(self, view: View) -> Proposal | None:
        self.declined.append(view.declined)
        return None if view.declined else Proposal(0, cell("000"), PeerId(5))


def test_a_relay_hands_its_only_receiver_back_after_a_minimum_age() -> None:
    """Rule 11."""
    broker = LoneBroker(others={"001": 1}, age_min_s=10)
    broker.relays("001", provider=1, receiver=ANNA)
    broker.want(BEN, "001")

    young = broker.wait(9)
    broker.leave(BEN, "001")
    (offer,) = sent(broker.wait(1.2), Offer, 1)
    old = broker.say(1, Answer(offer.number, offer.load))

    assert sent(young, Offer) == sent(young, Redirect) == []
    assert [(r.items, r.to) for r in sent(old, Redirect, ANNA)] == [(((cell("001"), cell("001")),), 1)]


def test_every_relay_has_an_age_of_its_own() -> None:
    """Rule 11: that another one is old does not make it old."""
    broker = LoneBroker(others={"001": 1, "010": 2}, age_min_s=10)
    broker.relays("001", provider=1, receiver=ANNA)
    broker.wait(9)
    broker.relays("010", provider=2, receiver=BEN)

    first = broker.wait(9)
    later = broker.wait(12)

    assert (len(sent(first, Offer, 1)), len(sent(first, Offer, 2))) == (1, 0)
    assert len(sent(later, Offer, 2)) >= 1


def test_a_receiver_that_does_not_go_is_handed_back_less_and_less_often() -> None:
    """Rule 11: back off."""
    broker = LoneBroker(others={"001": 1}, age_min_s=10)
    broker.relays("001", provider=1, receiver=ANNA)

    counts = [len(sent(broker.wait(100), Offer)) for _ in range(3)]

    assert counts[0] > counts[-1]
    assert sum(counts) < 10


def test_an_answer_that_nobody_waits_for_gives_the_reservation_back() -> None:
    """Rule 9."""
    broker = LoneBroker()
    broker.up(5)

    assert sent(broker.say(5, Answer(3, 100)), Moving) == [Moving(3, 0)]


def test_those_who_did_not_go_count_again_after_a_while() -> None:
    """Rule 9: nothing of a delegation stays."""
    broker = LoneBroker(budget=3 * REGION, reservation_s=5)
    broker.up(5)
    broker.want(ANNA, "000")
    broker.want(BEN, "000")
    (offer,) = sent(broker.feed(Advised(0, cell("000"), PeerId(5))), Offer)
    broker.say(5, Answer(offer.number, 2 * REGION))
    leaving = broker.state.outlets.leaving

    broker.wait(5.1)

    assert (leaving, broker.state.outlets.leaving) == (2 * REGION, 0)


# -- value ranges


def test_values_outside_a_range_are_blank_for_that_client_and_counted() -> None:
    broker = LoneBroker()
    truth = values(cell("000"), 0)
    low, high = float(np.quantile(truth, 0.25)), float(np.quantile(truth, 0.75))
    broker.want(ANNA, "000", clip=Clip((0, 16, 0, 16), (2, 2, 2), low, high))
    broker.want(BEN, "000")

    anna, ben = sent(broker.publish(0), Feed)

    shown = {(x, y): v for x, y, v in points_of(anna.slabs or ())}
    assert len(shown) == 32
    for (x, y), value in shown.items():
        assert value == truth[y, x] if low <= truth[y, x] <= high else np.isnan(value)
    assert nan_share(ben) == 0
    assert broker.state.counters.masked_points == sum(np.isnan(v) for v in shown.values()) > 0


def test_a_range_open_on_one_side_masks_the_other() -> None:
    for clip, share in (
        (Clip((0, 16, 0, 16), (2, 2, 2), None, 1e9), 0.0),
        (Clip((0, 16, 0, 16), (2, 2, 2), 1e9), 1.0),
    ):
        broker = LoneBroker()
        broker.want(ANNA, "000", clip=clip)

        (feed,) = sent(broker.publish(0), Feed)

        assert nan_share(feed) == share


def test_blanks_of_the_lake_are_not_counted_as_masked() -> None:
    broker = LoneBroker()
    broker.want(ANNA, "000", clip=Clip((0, 16, 0, 16), (2, 2, 2), -1e9, 1e9))

    broker.feed(Published(0, cell("000"), 0, 0, 1, np.full((8, 4), np.nan)))

    assert broker.state.counters.masked_points == 0


def test_masked_values_are_counted_once_per_client_also_in_what_is_replayed() -> None:
    broker = LoneBroker()
    clip = Clip((0, 16, 0, 16), (2, 2, 2), 1e9)
    broker.publish(0)
    for peer in (ANNA, BEN):
        broker.want(peer, "000", clip=clip)
    broker.publish(1)

    assert broker.state.counters.masked_points == 4 * 32


# -- connections


def test_a_half_open_connection_is_found_by_silence() -> None:
    """Half-open links are found by keepalives."""
    broker = LoneBroker(alive_s=5.0)
    broker.want(ANNA, "000")
    broker.want(BEN, "000")

    for _ in range(5):
        broker.wait(4)
        broker.say(BEN, Alive())

    assert closed(broker.log) == [ANNA]
    assert {e.peer for by in broker.state.outlets.entries.values() for e in by.values()} == {BEN}
    assert len(sent(broker.log, Alive, BEN)) >= 3, "it says itself that it lives"


def test_a_provider_that_falls_silent_is_given_up_and_looked_for_elsewhere() -> None:
    broker = LoneBroker(others={"001": 1}, alive_s=5.0)
    broker.up(1)
    broker.relays("001", provider=3, receiver=ANNA)
    for _ in range(5):
        broker.wait(4)
        broker.say(ANNA, Alive())
        broker.say(1, Alive())

    assert 3 in closed(broker.log)
    assert [q.owner for q in sent(broker.log, Find)][:1] == [True]


def test_an_idle_connection_is_closed_and_one_in_use_is_not() -> None:
    broker = LoneBroker(idle_s=30, alive_s=5)
    broker.want(ANNA, "000")
    broker.up(BEN)

    for _ in range(12):
        broker.wait(4)
        broker.say(ANNA, Alive())
        if PeerId(BEN) in broker.state.links.up:
            broker.say(BEN, Alive())

    assert closed(broker.log) == [BEN]


def test_a_word_on_a_connection_that_is_not_there_is_not_heard() -> None:
    broker = LoneBroker()

    assert broker.say(ANNA, Want(1, 0, ((cell("000"), 64, 0),), EVERYTHING)) == []
    assert broker.state.outlets.entries == {}


# -- routing


def test_a_question_is_answered_by_who_has_the_cell_and_passed_on_otherwise() -> None:
    broker = LoneBroker(others={"001": 1, "010": 2})
    broker.up(ANNA, 1, 2)

    effects = broker.say(ANNA, Ask(4, 0, (cell("0001"), cell("001"), cell("010"))))

    assert sent(effects, Located) == [Located(4, 0, ((cell("0001"), PeerId(0)),))]
    assert [(f.cells, f.trail) for f in sent(effects, Find, 1)] == [((cell("001"),), (0,))]
    assert [(f.cells, f.trail) for f in sent(effects, Find, 2)] == [((cell("010"),), (0,))]


def test_a_question_is_cut_where_regions_meet() -> None:
    """No part is nearest to two brokers at once."""
    broker = LoneBroker(others={"001": 1, "010": 2, "011": 2})
    broker.up(ANNA, 1, 2)

    effects = broker.say(ANNA, Ask(4, 0, (cell("0"),)))

    assert [m.items for m in sent(effects, Located)] == [((cell("000"), PeerId(0)),)]
    assert [f.cells for f in sent(effects, Find, 1)] == [(cell("001"),)]
    assert [f.cells for f in sent(effects, Find, 2)] == [(cell("010"), cell("011"))]


def test_an_answer_goes_back_along_the_trail() -> None:
    broker = LoneBroker(others={"001": 1})
    broker.up(ANNA, 1, 2)
    items = ((cell("001"), PeerId(1)),)

    home = broker.say(1, Found(ANNA, 4, 0, items, ()))
    onward = broker.say(1, Found(BEN, 4, 0, items, (PeerId(2),)))

    assert sent(home, Located, ANNA) == [Located(4, 0, items)]
    assert sent(onward, Found, 2) == [Found(BEN, 4, 0, items, ())]


@pytest.mark.parametrize("code", [cell("0" * 10), cell("1" * 42)])
def test_a_question_for_a_cell_that_the_grid_has_not_hurts_nobody(code: int) -> None:
    broker = LoneBroker(others={"001": 1})
    broker.up(ANNA)

    effects = broker.say(ANNA, Ask(4, 0, (code,)))

    assert [i for m in sent(effects, Located) for i in m.items] == [(code, None)]


# -- whatever is said


@hypothesis_settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from([1, 2, 3, ANNA, BEN]), anything), max_size=12))
def test_whatever_peers_say_a_broker_neither_fails_nor_breaks_its_rules(
    said: list[tuple[int, messages.Any]],
) -> None:
    """Errors are split by blame: nonsense from a peer is the peer's, and must not take a broker down."""
    broker = LoneBroker(owns=("000", "001"), others={"010": 1, "011": 2}, budget=3 * REGION)
    broker.up(1, 2, 3, ANNA, BEN)
    broker.want(ANNA, "000")
    broker.relays("010", provider=1, receiver=BEN)

    for number, (peer, message) in enumerate(said):
        try:
            broker.say(peer, decode(encode(message)))
        except CodecError:
            continue
        if number % 3 == 2:
            broker.wait(1.0)
        broker.publish(number)

    for peer in (1, 2, 3, ANNA, BEN):
        broker.down(peer)
    broker.wait(60)
    assert broker.state.outlets.used == broker.state.outlets.reserved == 0
    assert (broker.state.intake.sources, broker.state.waiting) == ({}, {})
    assert GRID.points_per_period == 8 * REGION
