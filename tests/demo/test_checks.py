"""The demo's checks can fail: a point dropped, doubled, or with one bit flipped is found."""

import numpy as np
import pytest

from sensorgrid.configuration.network import with_errors
from sensorgrid.demo import checks
from sensorgrid.demo.checks import Outage
from sensorgrid.demo.stage import audience
from sensorgrid.demo.tally import Tally, wanted_points
from sensorgrid.index.decompose import decompose
from sensorgrid.model.block import Slab
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import Query
from sensorgrid.overlay.roster import Region

GRID = with_errors(
    Grid(
        shape=(64, 32),
        tick=4,
        region_digits=2,
        attributes=("air_temperature", "air_pressure_at_mean_sea_level"),
    )
)
QUERY = Query("air_temperature", bbox=(-90, -40, 100, 40), resolution=(1 / 2, 1 / 2, 1 / 2))
FIRST, LAST = 100, 107
OWNERS = checks.owners_of(GRID, [Region(0, 4 + n, PeerId(n), 1) for n in range(4)])


def field_at(tick: int, revision: int = 0) -> np.ndarray:
    return np.random.default_rng([tick, revision]).normal(280, 10, (32, 64)).astype(np.float32)


def truth() -> checks.Fields:
    return {(tick, "air_temperature"): field_at(tick) for tick in range(FIRST, LAST + 1)}


def slabs_of(query: Query, tick: int, values: np.ndarray) -> list[Slab]:
    found = []
    for fragment in decompose(query, GRID, depth=16):
        for part in fragment.slices(GRID):
            offset, stride = part.ticks
            if tick % stride == offset:
                y, x = (p.indices(n) for p, n in zip((part.y, part.x), values.shape, strict=True))
                found.append(Slab(y, x, values[part.y, part.x].copy()))
    return found


def fed(query: Query = QUERY, skip: int | None = None, target: int = 0) -> Tally:
    tally = Tally(GRID, query, target != OWNERS)
    for tick in range(FIRST, LAST + 1):
        if tick != skip:
            for slab in slabs_of(query, tick, field_at(tick)):
                tally.deliver(0, tick, 0, [slab], (tick + 1) * 4 + 1.5)
    return tally


def judged(
    tally: Tally,
    fields: checks.Fields | None = None,
    between: int = 0,
    operator: checks.OperatorFacts | None = None,
) -> checks.Result:
    measured = {tick: (tick + 1) * 4.0 for tick in range(FIRST, LAST + 1)}
    outage = Outage(PeerId(1), (FIRST + 2.5) * 4, (0,))
    return checks.judge(
        [tally],
        truth() if fields is None else fields,
        measured,
        between,
        outage,
        FIRST,
        LAST,
        1,
        None,
        operator,
    )


def test_a_perfect_run_holds() -> None:
    result = judged(fed())

    assert result.holds
    assert (result.missing, result.duplicated, result.wrong) == (0, 0, 0)
    assert result.ticks == 4  # every other one
    assert result.delay_p50_s == pytest.approx(1.5)
    assert result.recovered_s == pytest.approx(3.5)  # tick 102 ended 2 s after the kill, and came 1.5 s later


@pytest.mark.parametrize("fault", [None, "missing", "doubled", "wrong"])
def test_an_operator_must_have_every_result_once_and_right(fault: str | None) -> None:
    counts = {"missing": 0, "doubled": 0, "wrong": 0} | ({} if fault is None else {fault: 1})

    result = judged(fed(), operator=checks.OperatorFacts("mean", 8, bytes=10, raw_bytes=500, **counts))

    assert result.holds == (fault is None)
    assert result.operator_ticks == 8 - counts["missing"]
    assert result.operator_wrong == counts["wrong"]
    assert result.operator_saving == 50


def test_a_tick_that_never_came_is_missed() -> None:
    tally = fed(skip=104)

    result = judged(tally)

    assert not result.holds
    assert result.missing == tally.points


def test_a_single_point_that_never_came_is_missed() -> None:
    tally = Tally(GRID, QUERY, OWNERS != 0)
    for tick in range(FIRST, LAST + 1):
        for slab in slabs_of(QUERY, tick, field_at(tick)):
            if tick == 104 and slab.values.shape[0] > 1:
                slab = Slab((slab.y[0] + slab.y[2], *slab.y[1:]), slab.x, slab.values[1:])
                dropped = slab.values.shape[1]
            tally.deliver(0, tick, 0, [slab], 0.0)

    result = judged(tally)

    assert result.missing >= dropped > 0
    assert not result.holds


def test_a_point_that_came_twice_is_counted() -> None:
    tally = fed()
    slab = slabs_of(QUERY, 104, field_at(104))[0]

    tally.deliver(
        0,
        104,
        0,
        [Slab((slab.y[0], slab.y[0] + 1, 1), (slab.x[0], slab.x[0] + 1, 1), slab.values[:1, :1])],
        0,
    )

    assert judged(tally).duplicated == 1
    assert not judged(tally).holds


def test_a_flipped_bit_is_found() -> None:
    tally = fed()
    received = tally.received[104, 0]
    row, column = np.argwhere(received.revision >= 0)[7]

    received.values.view(np.uint32)[row, column] ^= 1

    assert judged(tally).wrong == 1
    assert not judged(tally).holds


def test_a_value_that_the_batch_does_not_have_is_wrong() -> None:
    fields = truth()
    del fields[104, "air_temperature"]
    tally = fed()

    assert judged(tally, fields).wrong == tally.points


def test_a_point_that_was_not_asked_for_is_wrong() -> None:
    tally = fed()

    tally.deliver(0, 104, 0, [Slab((0, 1, 1), (0, 1, 1), np.zeros((1, 1), np.float32))], 0)

    assert judged(tally).wrong == 1


def test_a_revision_counts_once_and_its_value_is_the_last() -> None:
    tally = fed()
    fields = truth()
    fields[104, "air_temperature"] = field_at(104, 1)
    for slab in slabs_of(QUERY, 104, field_at(104, 1)):
        tally.deliver(0, 104, 1, [slab], 0)

    result = judged(tally, fields)

    assert (result.duplicated, result.wrong) == (0, 0)
    assert tally.delivered == 5 * tally.points
    assert judged(tally).wrong > 0  # against the values before the revision


def test_an_older_revision_after_a_newer_one_is_a_double() -> None:
    tally = Tally(GRID, QUERY, OWNERS != 0)
    for revision in (1, 0):
        tally.deliver(0, 100, revision, slabs_of(QUERY, 100, field_at(100, revision)), 0)

    assert tally.doubled == tally.points


def test_nothing_is_charged_for_regions_that_the_target_owns() -> None:
    tally = fed()
    away = int(((OWNERS != 0) & tally.mask).sum())

    assert checks.bytes_alone(tally) == 4 * 4 * away
    assert sum(checks.bytes_alone(fed(target=n)) for n in range(4)) == 3 * 4 * 4 * tally.points


def test_more_traffic_than_without_sharing_fails() -> None:
    alone = checks.bytes_alone(fed())

    assert judged(fed(), between=alone // 4).saving == pytest.approx(0.75, abs=0.01)
    assert not judged(fed(), between=alone).holds


def test_too_few_ticks_say_why() -> None:
    tally = Tally(GRID, QUERY, OWNERS != 0)

    result = judged(tally)

    assert not result.holds
    assert "--seconds" in result.checks[0].found


def test_a_client_that_does_not_come_back_is_told() -> None:
    tally = fed(skip=102)  # the first tick that ended after the kill

    assert judged(tally).recovered_s is None


def test_a_client_that_wants_nothing_after_the_kill_does_not_count() -> None:
    outage = Outage(PeerId(1), (LAST + 1) * 4 + 1, (0,))

    assert checks.recovered_s([fed()], outage, LAST) == 0


def test_a_client_that_does_not_want_the_tick_that_ran_at_the_kill_waits_for_nothing() -> None:
    outage = Outage(PeerId(1), (FIRST + 1.5) * 4, (0,))  # it wants even ticks

    assert checks.recovered_s([fed(skip=102)], outage, LAST) == 0


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2), (0.99, 4), (0.01, 1)])
def test_percentiles_are_values_that_occurred(share: float, expected: float) -> None:
    assert checks.percentile([4, 1, 3, 2], share) == expected


def test_wanted_points_agree_with_the_decomposition() -> None:
    grid = with_errors(
        Grid(
            shape=(128, 64),
            tick=4,
            region_digits=4,
            attributes=("air_temperature", "air_pressure_at_mean_sea_level"),
        )
    )
    for guest in audience():
        mask = np.zeros((64, 128), np.bool_)
        for fragment in decompose(guest.query, grid, depth=17):
            for part in fragment.slices(grid):
                mask[part.y, part.x] = True

        assert np.array_equal(mask, wanted_points(grid, guest.query)), guest.name
        assert mask.sum() * len(guest.query.attributes) == guest.query.size(grid).points_per_tick


def test_the_audience_is_two_dozen_at_a_few_brokers_and_overlaps() -> None:
    guests = audience()

    assert len(guests) == 24
    assert {g.broker for g in guests} < set(range(8))
    assert any(
        g.query.bbox is not None and g.query.bbox[0] > g.query.bbox[2] for g in guests
    )  # the date line
    assert len({g.query.resolution for g in guests}) >= 4
    assert len({name for g in guests for name in g.query.attributes}) == 3
