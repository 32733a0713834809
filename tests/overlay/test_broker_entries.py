"""What a receiver has from a broker alone: granted, counted, clipped, masked, ended."""

import numpy as np
import pytest

from hands import ANNA, BEN, EVERYTHING, LoneBroker, cell, nan_share, points, sent, ticks, values
from sensorgrid.model.block import points_of
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.events import Published
from sensorgrid.overlay.messages import Clip, Feed, Grant, Refuse, Want

# -- entries (rule 2)


def test_a_wanted_cell_is_granted_and_fed_from_its_tick_on() -> None:
    """Rules 2 and 6."""
    broker = LoneBroker()
    for tick in range(5):
        broker.publish(tick)

    effects = broker.want(ANNA, "000", start=3)
    effects += broker.publish(5)

    assert sent(effects, Grant) == [Grant(1, (cell("000"),), (PeerId(0),), 1)]
    assert ticks(sent(effects, Feed, ANNA)) == [3, 4, 5]
    got = {(x, y): v for f in sent(effects, Feed)[2:] for x, y, v in points_of(f.slabs or ())}
    assert got == {(x, y): float(values(cell("000"), 5)[y, x]) for x in range(4) for y in range(8)}


def test_a_known_entry_again_is_a_no_op_that_only_repeats_the_grant() -> None:
    """Rule 2: the same generation again is a no-op."""
    broker = LoneBroker()
    broker.publish(0)
    broker.want(ANNA, "000")
    used = broker.boards.outlets.used

    effects = broker.want(ANNA, "000")

    assert effects[0:] == [e for e in effects if sent([e], Grant)]
    assert sent(effects, Grant) == [Grant(1, (cell("000"),), (PeerId(0),), 1)]
    assert broker.boards.outlets.used == used == 64
    assert ticks(sent(broker.log, Feed)) == [0]


def test_asking_again_is_a_new_generation_with_its_own_ticks() -> None:
    """Rule 2."""
    broker = LoneBroker()
    broker.publish(0)
    broker.want(ANNA, "000")

    effects = broker.want(ANNA, "000", start=1, generation=2)
    effects += broker.publish(1)

    assert [(f.generation, f.tick) for f in sent(effects, Feed)] == [(1, 1), (2, 1)]
    assert broker.boards.outlets.used == 128
    broker.leave(ANNA, "000", generation=1)
    assert broker.boards.outlets.used == 64


@pytest.mark.parametrize("claim", [0, 1, 63, 65, 512, -64])
def test_a_claim_of_the_wrong_size_is_refused(claim: int) -> None:
    """A budget cannot rest on what others claim."""
    broker = LoneBroker()

    effects = broker.want(ANNA, "000", claim=claim)

    (refusal,) = sent(effects, Refuse)
    assert refusal.reason == f"{claim} points claimed, 64 counted"
    assert broker.boards.outlets.used == 0
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
    assert broker.boards.outlets.entries == {}


def test_a_client_gets_what_its_clip_wants_and_no_more() -> None:
    broker = LoneBroker()
    clip = Clip((1, 4, 2, 16), (1, 2, 2))
    broker.want(ANNA, "000", clip=clip)

    (feed,) = sent(broker.publish(0), Feed)

    assert {(x, y) for x, y, _ in points_of(feed.slabs or ())} == {(2, y) for y in range(2, 8)}
    assert broker.boards.outlets.used == points(cell("000"), clip) == 12


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
    assert broker.boards.outlets.used == 64


def test_a_broken_connection_ends_all_entries_on_it() -> None:
    broker = LoneBroker(owns=("000", "001"))
    broker.want(ANNA, "000")
    broker.want(ANNA, "001", generation=2)

    broker.down(ANNA)

    assert broker.boards.outlets.used == 0
    assert broker.publish(0) == []


def test_a_new_connection_replaces_the_old_one_with_all_that_was_said_on_it() -> None:
    """Entries are scoped to one connection."""
    broker = LoneBroker()
    broker.want(ANNA, "000")

    broker.up(ANNA)

    assert broker.boards.outlets.used == 0


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
    assert broker.kernel.counters.masked_points == sum(np.isnan(v) for v in shown.values()) > 0


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

    assert broker.kernel.counters.masked_points == 0


def test_masked_values_are_counted_once_per_client_also_in_what_is_replayed() -> None:
    broker = LoneBroker()
    clip = Clip((0, 16, 0, 16), (2, 2, 2), 1e9)
    broker.publish(0)
    for peer in (ANNA, BEN):
        broker.want(peer, "000", clip=clip)
    broker.publish(1)

    assert broker.kernel.counters.masked_points == 4 * 32
