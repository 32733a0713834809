"""The book of a region: whatever the order of arrival, the stream ends where the backfill ends."""

import itertools
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.book import Book, Domain, Issue, State, Timing
from sensorgrid.pipeline.gridding.coverage import Gaps
from sensorgrid.pipeline.gridding.groups import DIRECTION, SPEED, Group, group_named
from sensorgrid.pipeline.gridding.kernels.interface import Parameters
from sensorgrid.pipeline.gridding.measurements import Measurements, deduplicate
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.gridding.series import Past, SeriesLimits
from sensorgrid.pipeline.gridding.tile import Recipe, RegionGrid
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.lake.tiles import blocks_of, table_of
from sensorgrid.pipeline.plan import HaloEntry, Plan
from sensorgrid.pipeline.spark.remembering import remembered

TICK = 60
GRID = Grid(
    extent=(0, 0, 1600, 1600), coordinates="planar", shape=(16, 16), tick=TICK, resolution_bits=1, region_digits=2,
    attributes=("air_temperature",),
)  # fmt: skip
TIMING = Timing(settle_s=30, lateness_s=120, max_age_s=180)
LIMITS = SeriesLimits(step=8, rate=1e6, spike=6, flat_s=300, tolerance=0.2)
PARAMETERS = Parameters(mean=10, spread=20, length=500, noise=0.5, drift=4, sill=3)


@dataclass
class Memory:
    """Rows in a dictionary."""

    kept: dict[int, bytes] = field(default_factory=dict)

    def get(self, tick: int) -> bytes | None:
        return self.kept.get(tick)

    def put(self, tick: int, data: bytes) -> None:
        self.kept[tick] = data

    def remove(self, tick: int) -> None:
        del self.kept[tick]


@dataclass(frozen=True)
class Always:
    """One recipe for ever."""

    kernel: str = "inverse_distance"
    parameters: Parameters = PARAMETERS

    def recipe(self, group: Group, tick: int) -> Recipe:
        return Recipe(self.kernel, (self.parameters,) * len(group.outputs))


def domain_of(name: str = "air_temperature", timing: Timing = TIMING, start: int = 0) -> Domain:
    group = group_named(name)
    return Domain(GRID, group, timing, (LIMITS,) * len(group.inputs), Always(), start)


def with_gaps(gaps: Gaps, hold_s: float = 200.0) -> Domain:
    """The same, with sensors that reach a quarter of the region, so that there are gaps."""
    near, hold_s = Always(parameters=replace(PARAMETERS, length=80)), hold_s if gaps == "hold" else 0.0
    return replace(domain_of(timing=replace(TIMING, hold_s=hold_s)), gaps=(gaps,), recipes=near)


def rows_of(entries: list[tuple[int, float, float]], code: int = 0) -> Measurements:
    """(sensor, second, value); sensor n stands on the diagonal, those up to 7 at home in region 0."""
    sensor, second, value = (
        np.array(c, np.float64) for c in (zip(*entries, strict=True) if entries else ((),) * 3)
    )
    return Measurements(
        sensor.astype(np.uint64), np.round(second * 1e6).astype(np.int64), 50 + 100 * sensor, 50 + 100 * sensor,
        value, np.full(len(sensor), code, np.uint8), (sensor < 8).astype(np.uint8),
    )  # fmt: skip


def advance(book: Book, second: float) -> list[Issue]:
    """Let the time pass, and let the state go through its bytes as it does in Spark."""
    issues = list(book.advance(round(second * 1e6)))
    book.state = State.decode(book.state.encode())
    return issues


def turn(book: Book, second: float) -> list[Issue]:
    """What the clock of a stream does: publish when a tick falls due, revise half a tick later."""
    if (second - TIMING.settle_s) % TICK == 0:
        return list(book.publish(round(second * 1e6)))
    return advance(book, second) if (second - TIMING.settle_s) % TICK == TICK // 2 else []


entries = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 599), st.sampled_from([9.0, 9.1, 10.0, 11.5, 14.0, 30.0])),
    max_size=60,
)


@pytest.mark.parametrize("gaps", ["prior", "nan", "hold"])
@given(entries, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_last_revisions_are_what_the_backfill_makes_bit_for_bit(gaps: Gaps, found, random) -> None:
    domain = with_gaps(gaps)
    book, arrived = Book(domain, 0, Memory()), []
    # Each row arrives at its own time, up to the lateness after its tick: in time for the last look.
    waiting = sorted(((s + random.uniform(0, 149), (n, s, v)) for n, s, v in found), key=lambda pair: pair[0])
    final: dict[int, RegionGrid] = {}
    revisions: dict[int, list[int | None]] = {}
    used = duplicate = moved = 0
    for second in range(10, 900, 10):
        batch = [row for at, row in waiting if second - 10 <= at < second]
        if batch:
            received = book.receive([rows_of(batch)])
            assert not len(received.late)
            used, duplicate = used + received.used, duplicate + received.duplicate
            arrived += batch
        # The clock beats when a tick falls due, as in the stream.
        for issue in turn(book, second):
            final[issue.tick] = issue.grid
            moved += issue.flagged
            revisions.setdefault(issue.tick, []).append(issue.revisions[0])

    rows, repeats = deduplicate([rows_of(found)])
    checked = domain.check(rows, Past.nothing())
    assert sorted(final) == list(range(14))
    flagged = 0
    for tick, grid in final.items():
        expected = domain.grid_at(checked, 0, tick)
        assert [t.digest for t in grid.tiles] == [t.digest for t in expected.tiles], tick
        assert grid.rows.encode() == expected.rows.encode()
        assert grid.test.tolist() == expected.test.tolist()
        flagged += expected.flagged
    assert moved == flagged
    assert duplicate == repeats
    assert used == int(rows.home.sum())
    assert used + duplicate == sum(1 for n, _, _ in found if n < 8)
    for issued in revisions.values():
        numbers = [r for r in issued if r is not None]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) <= 2 + TIMING.lateness_s / TICK


@pytest.mark.parametrize("gaps", ["prior", "hold"])
@pytest.mark.parametrize("flat_s", [0, 300])
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 1800), st.sampled_from([9.0, 10.0, 14.0, 18.0, 30.0])),
        max_size=40,
    ),
    st.integers(1, 25),
)
# The first good value after a faulty one is told by the value before that, almost three ages back.
@example([(1, 135, 10.0), (1, 310, 30.0), (1, 485, 10.0)], 10)
@settings(max_examples=60, deadline=None)
def test_the_context_of_a_chunk_holds_all_that_matters_to_its_ticks(
    flat_s: int, gaps: Gaps, found, first: int
) -> None:
    domain = replace(with_gaps(gaps), limits=(replace(LIMITS, flat_s=flat_s),))
    rows, _ = deduplicate([rows_of(found)])
    begin_us = first * TICK * 1_000_000
    context = rows.take(rows.time_us >= begin_us - round(domain.context_s * 1e6))

    whole, part = (domain.check(r, Past.nothing()) for r in (rows, context))

    for tick in range(first, first + 3):
        expected, got = (domain.grid_at(checked, 0, tick) for checked in (whole, part))
        assert [t.digest for t in got.tiles] == [t.digest for t in expected.tiles]


@given(entries)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stream_with_a_new_checkpoint_holds_what_the_old_one_would_have_held(
    tmp_path_factory, found
) -> None:
    """The lake has all measurements of the ticks that were published: those of home and of the halo."""
    domain, regions, later = with_gaps("hold"), Regions(GRID), 12
    lake = Lake(str(tmp_path_factory.mktemp("lake") / "lake")).create()
    halo = HaloEntry(-1000, "air_temperature", (5000.0,) * len(regions), "wide enough for all")
    plan = Plan(GRID, later, (halo,))
    rows, _ = deduplicate([rows_of(found)])
    homes = regions.of(rows.x, rows.y)
    blocks = []
    for region in range(len(regions)):
        checked = domain.check(rows.with_home((homes == region).astype(np.uint8)), Past.nothing())
        for tick in range(later):
            issue = Issue(tick, domain.grid_at(checked, region, tick), (0,), 0)
            blocks += list(blocks_of(issue, domain.group, regions, region))
    lake.write("tiles", table_of(blocks, GRID), ("attribute", "day"), "streamx", 0, 0)

    first = later - domain.timing.reach(GRID)
    seed = remembered(lake, plan, first).get(("air_temperature", 0))
    book = Book(replace(domain, start_tick=later), 0, Memory())
    if seed is not None:
        assert not len(book.receive([seed]).late)
    issues = [
        issue for tick in (later, later + 1) for issue in advance(book, (tick + 1) * TICK + TIMING.settle_s)
    ]

    rows = rows.with_home((homes == 0).astype(np.uint8))
    whole = domain.check(rows.take(rows.time_us >= first * TICK * 1_000_000), Past.nothing())
    assert [issue.tick for issue in issues] == [later, later + 1]
    for issue in issues:
        (expected,) = domain.grid_at(whole, 0, issue.tick).tiles
        (tile,) = issue.grid.tiles
        np.testing.assert_array_equal(tile.values, expected.values)
        np.testing.assert_array_equal(tile.age_s, expected.age_s)


def test_a_tick_is_published_by_the_clock_and_not_by_the_next_event() -> None:
    book = Book(domain_of(), 0, Memory())
    book.receive([rows_of([(1, 5, 10.0), (1, 500, 11.0)])])

    assert advance(book, TICK + TIMING.settle_s - 1) == []
    assert [i.tick for i in advance(book, TICK + TIMING.settle_s)] == [0]


def test_a_feed_that_falls_silent_still_yields_grids_with_growing_error() -> None:
    timing = replace(TIMING, max_age_s=12 * TICK)
    book = Book(domain_of(timing=timing), 0, Memory())
    book.receive([rows_of([(n, 50, 10.0 + n / 10) for n in range(8)])])

    issues = [issue for tick in range(12) for issue in advance(book, (tick + 1) * TICK + timing.settle_s)]

    errors = [float(issue.grid.tiles[0].error.mean()) for issue in issues]
    assert [issue.tick for issue in issues] == list(range(12))
    assert all(later > earlier for earlier, later in itertools.pairwise(errors)), errors
    assert max(errors) <= PARAMETERS.spread * 1.001


def test_a_region_without_any_sensor_has_grids_of_what_was_known_beforehand() -> None:
    book = Book(domain_of(), 0, Memory())

    (issue,) = advance(book, TICK + TIMING.settle_s)

    (tile,) = issue.grid.tiles
    assert np.all(tile.values == PARAMETERS.mean)
    assert np.all(tile.error == PARAMETERS.spread)


def test_a_value_older_than_its_age_allows_is_not_used() -> None:
    book = Book(domain_of(), 0, Memory())
    book.receive([rows_of([(1, 10, 17.0)])])

    issues = [advance(book, (tick + 1) * TICK + TIMING.settle_s)[-1] for tick in range(6)]

    assert [i.grid.tiles[0].sensors for i in issues] == [1, 1, 1, 0, 0, 0]


def test_late_data_reissue_a_region_and_what_comes_later_still_is_counted_and_named() -> None:
    book = Book(domain_of(), 0, Memory())
    book.receive([rows_of([(1, 5, 10.0)])])
    (first,) = advance(book, TICK + TIMING.settle_s)
    book.receive([rows_of([(2, 6, 12.0)])])

    again = advance(book, 2 * TICK + TIMING.settle_s)
    advance(book, TICK + TIMING.settle_s + TIMING.lateness_s)
    received = book.receive([rows_of([(3, 7, 12.0), (9, 7, 12.0)])])

    assert first.revisions == (0,)
    assert [(i.tick, i.revisions) for i in again] == [(0, (1,)), (1, (0,))]
    assert (received.used, received.duplicate, received.late.sensor.tolist()) == (0, 0, [3])


def test_a_new_tick_does_not_wait_for_revisions_which_come_with_the_next_advance() -> None:
    book = Book(domain_of(), 0, Memory())
    book.receive([rows_of([(1, 5, 10.0)])])
    advance(book, TICK + TIMING.settle_s)
    book.receive([rows_of([(2, 6, 12.0)])])

    fresh = list(book.publish(round((2 * TICK + TIMING.settle_s) * 1e6)))
    again = list(book.publish(round((2 * TICK + TIMING.settle_s) * 1e6)))
    revised = advance(book, 2.5 * TICK + TIMING.settle_s)

    assert [(i.tick, i.revisions) for i in fresh] == [(1, (0,))]
    assert again == []
    assert [(i.tick, i.revisions) for i in revised] == [(0, (1,))]


def test_a_repeat_of_late_data_changes_nothing_and_is_not_reissued() -> None:
    book = Book(domain_of(), 0, Memory())
    book.receive([rows_of([(1, 5, 10.0)])])
    advance(book, TICK + TIMING.settle_s)

    received = book.receive([rows_of([(1, 5, 10.0)])])

    assert received.duplicate == 1
    assert [i.tick for i in advance(book, 2 * TICK + TIMING.settle_s)] == [1]


def test_memory_is_bounded_however_long_the_stream_runs() -> None:
    memory = Memory()
    book = Book(domain_of(), 0, memory)
    sizes = []
    for tick in range(60):
        book.receive([rows_of([(n, tick * TICK + 5, 10.0 + tick % 3) for n in range(8)])])
        advance(book, (tick + 1) * TICK + TIMING.settle_s)
        sizes.append(sum(map(len, memory.kept.values())) + len(book.state.encode()))

    assert max(sizes[30:]) <= max(sizes[10:30]) * 1.01
    assert len(memory.kept) <= 1 + (TIMING.lateness_s + TIMING.max_age_s + TIMING.settle_s) / TICK


def wind_of(pairs: list[tuple[int, float, float | None]]) -> RegionGrid:
    """The grid of one tick from (sensor, speed, direction or None)."""
    speeds = rows_of([(n, 30, s) for n, s, _ in pairs], SPEED)
    directions = rows_of([(n, 30, d) for n, _, d in pairs if d is not None], DIRECTION)
    domain = domain_of("wind")
    rows, _ = deduplicate([speeds, directions])
    return domain.grid_at(domain.check(rows, Past.nothing()), 0, 0)


def test_the_wind_between_350_and_10_degrees_comes_from_the_north() -> None:
    grid = wind_of([(0, 10.0, 350.0), (7, 10.0, 10.0)])

    u, v = (tile.values.reshape(8, 8) for tile in grid.tiles)
    assert [t.attribute for t in grid.tiles] == ["eastward_wind", "northward_wind"]
    assert np.all(v < -9.8)
    assert abs(u.mean()) < 0.05
    assert np.all(np.hypot(u, v) > 9.8)


def test_a_calm_needs_no_direction_and_a_variable_wind_is_no_vector() -> None:
    grid = wind_of([(0, 0.0, None), (1, 3.0, None), (2, 5.0, 270.0), (3, 0.0, 0.0)])

    assert grid.tiles[0].sensors == 3
    assert np.count_nonzero(grid.test) == 1
    assert grid.tiles[0].values.min() >= -0.01


@pytest.mark.parametrize("kernel", ["nearest", "inverse_distance", "kriging"])
@given(entries)
@settings(max_examples=30, deadline=None)
def test_no_grid_has_a_nan_and_every_error_is_positive(kernel: str, found) -> None:
    domain = replace(domain_of(), recipes=Always(kernel))
    rows, _ = deduplicate([rows_of(found)])
    checked = domain.check(rows, Past.nothing())

    for tick in (0, 3, 12):
        (tile,) = domain.grid_at(checked, 0, tick).tiles
        assert np.isfinite(tile.values).all()
        assert (tile.error > 0).all()
