"""What a grid rests on: counts and ages against brute force, and what stands where nothing is within reach."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.book import Domain, Issue, Timing
from sensorgrid.pipeline.gridding.coverage import ALIKE, Evidence, aged, covered, reach_m
from sensorgrid.pipeline.gridding.groups import Group, group_named
from sensorgrid.pipeline.gridding.kernels import KERNELS
from sensorgrid.pipeline.gridding.kernels.covariance import correlation
from sensorgrid.pipeline.gridding.kernels.interface import Observations, Parameters
from sensorgrid.pipeline.gridding.measurements import Measurements
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.gridding.series import NEIGHBOUR, SUSPECT, Past, SeriesLimits
from sensorgrid.pipeline.gridding.tile import Recipe, Tile
from sensorgrid.pipeline.lake.ledger import Ledger
from sensorgrid.pipeline.lake.tiles import Block, table_of
from sensorgrid.pipeline.spark.stages import outputs_of

GRID = Grid(
    extent=(0, 0, 1600, 1600), coordinates="planar", shape=(16, 16), tick=60, resolution_bits=1, region_digits=0,
    attributes=("air_temperature",),
)  # fmt: skip
PARAMETERS = Parameters(mean=10, spread=20, length=100, noise=0.5, drift=4, sill=3)
SKEWED = replace(
    PARAMETERS, mean=2, spread=1, sill=0.7, noise=0.1, drift=0.5, transform="log", offset=1.0, lowest=0.0,
    family="positive",
)  # fmt: skip
LIMITS = SeriesLimits(step=1e9, rate=1e9, spike=1e9, flat_s=0, tolerance=0.2)
KERNELS_HERE = ("nearest", "inverse_distance", "kriging")


def evidence_of(count: int, kernel: str, seed: int, parameters: Parameters = PARAMETERS) -> Evidence:
    rng = np.random.default_rng(seed)
    positions = rng.uniform(0, 1600, (count, 2))
    return Evidence(
        Observations(positions, rng.normal(10, 3, count), rng.uniform(0, 600, count)), parameters, kernel
    )


POINTS = np.stack(np.meshgrid(np.arange(50.0, 1600, 100), np.arange(50.0, 1600, 100)), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize("shape", ["exponential", "matern"])
def test_the_reach_is_where_the_correlation_has_fallen_to_a_twentieth(shape: str) -> None:
    parameters = replace(PARAMETERS, shape=shape)

    at = correlation(np.array([reach_m(parameters)]), parameters.length, shape)

    np.testing.assert_allclose(at, ALIKE, rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS_HERE)
@given(st.integers(0, 60), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_counts_and_ages_are_those_of_brute_force(kernel: str, count: int, seed: int) -> None:
    evidence = evidence_of(count, kernel, seed)

    found = evidence.coverage(POINTS)

    reach, used = 3.0 * np.log(20) / 3.0 * PARAMETERS.length, KERNELS[kernel].neighbours
    for n, point in enumerate(POINTS):
        distance = np.hypot(*(evidence.observations.positions - point).T)
        near = np.argsort(distance)[:used]
        within = near[distance[near] <= reach]
        assert found.observations[n] == len(within)
        if len(within):
            assert found.age_s[n] == np.float32(evidence.observations.age_s[within].min())
        else:
            assert np.isnan(found.age_s[n])


@pytest.mark.parametrize("kernel", KERNELS_HERE)
def test_nan_takes_away_what_rests_on_nothing_and_nothing_else(kernel: str) -> None:
    evidence = evidence_of(12, kernel, 3)

    known, blank = (covered(evidence, POINTS, gaps=gaps) for gaps in ("prior", "nan"))

    empty = known.coverage.observations == 0
    assert 20 < empty.sum() < 236
    for name in ("values", "error", "lower", "upper"):
        mine, all_ = getattr(blank, name), getattr(known, name)
        assert np.isnan(mine[empty]).all()
        assert np.isfinite(all_).all()
        np.testing.assert_array_equal(mine[~empty], all_[~empty])


@pytest.mark.parametrize("parameters", [PARAMETERS, SKEWED], ids=["plain", "skewed"])
def test_what_is_held_stays_while_its_error_grows_up_to_what_is_known_beforehand(
    parameters: Parameters,
) -> None:
    evidence = evidence_of(12, "kriging", 3, parameters)
    evidence = replace(
        evidence, observations=replace(evidence.observations, values=np.abs(evidence.observations.values))
    )
    field = evidence.field(POINTS, None)

    later = [aged(field, parameters, seconds) for seconds in (0, 60, 3600, 1e9)]

    for one in later:
        np.testing.assert_array_equal(one.values, field.values)
        assert (one.lower <= one.values).all()
        assert (one.upper >= one.values).all()
    np.testing.assert_allclose(later[0].error, field.error, rtol=1e-9)
    grown = [one.upper - one.lower for one in later]
    assert (grown[1] >= grown[0] - 1e-9).all()
    assert (grown[2] > grown[1])[field.error < 0.9 * field.error.max()].all()
    if parameters is PARAMETERS:
        np.testing.assert_allclose(later[3].error, parameters.spread)
        expected = np.minimum(np.hypot(field.error, parameters.drift), parameters.spread)
        np.testing.assert_allclose(later[2].error, expected)


@dataclass(frozen=True)
class Always:
    """One recipe for ever."""

    recipe_: Recipe

    def recipe(self, group: Group, tick: int) -> Recipe:
        return self.recipe_


def domain_of(
    gaps: str, hold_s: float = 300.0, kernel: str = "kriging", p: Parameters = PARAMETERS
) -> Domain:
    timing = Timing(settle_s=30, lateness_s=120, max_age_s=120, hold_s=hold_s if gaps == "hold" else 0.0)
    return Domain(
        GRID, group_named("air_temperature"), timing, (LIMITS,), Always(Recipe(kernel, (p,))), 0, gaps=(gaps,)
    )


def rows_of(entries: list[tuple[int, int, float]]) -> Measurements:
    """(sensor, second, value); sensors stand on a diagonal."""
    sensor, second, value = (np.array(c, np.float64) for c in zip(*entries, strict=True))
    at = 50 + 200 * sensor
    return Measurements(
        sensor.astype(np.uint64), (second * 1e6).astype(np.int64), at, at, value, np.zeros(len(at), np.uint8),
        np.ones(len(at), np.uint8),
    ).canonical()  # fmt: skip


def tiles(domain: Domain, rows: Measurements, ticks: int) -> list[Tile]:
    checked = domain.check(rows, Past.nothing())
    return [domain.grid_at(checked, 0, tick).tiles[0] for tick in range(ticks)]


@pytest.mark.parametrize("parameters", [PARAMETERS, SKEWED], ids=["plain", "skewed"])
@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.integers(0, 599), st.sampled_from([8.0, 9.0, 11.0])),
        min_size=1,
        max_size=12,
        unique_by=lambda e: e[:2],
    )
)
@settings(max_examples=40, deadline=None)
def test_a_gap_holds_what_the_grid_said_when_an_observation_was_last_within_reach(
    parameters: Parameters, entries
) -> None:
    rows, ticks, hold_ticks = rows_of(entries), 16, 5
    plain = tiles(domain_of("prior", p=parameters), rows, ticks)

    held = tiles(domain_of("hold", p=parameters), rows, ticks)

    for tick, (mine, prior) in enumerate(zip(held, plain, strict=True)):
        np.testing.assert_array_equal(mine.observations, prior.observations)
        for point in range(len(POINTS)):
            last = next(
                (b for b in range(hold_ticks + 1) if b <= tick and plain[tick - b].observations[point]), None
            )
            if last is None:
                assert mine.values[point] == prior.values[point]
                assert np.isnan(mine.age_s[point])
                continue
            then = plain[tick - last]
            assert mine.values[point] == then.values[point]
            assert mine.age_s[point] == then.age_s[point] + np.float32(60 * last)
            assert mine.error[point] >= then.error[point] * (1 - 1e-6)
            if not last:
                assert mine.error[point] == then.error[point]


def test_a_tick_without_any_observation_is_what_was_known_beforehand_and_says_so() -> None:
    tile = tiles(domain_of("prior"), rows_of([(1, 3000, 9.0)]), 1)[0]

    assert (tile.sensors, int(tile.observations.sum()), tile.gaps) == (0, 0, "prior")
    assert np.isnan(tile.age_s).all()
    assert (tile.values == 10).all()


def test_a_digest_tells_grids_apart_that_differ_only_in_what_they_rest_on() -> None:
    one = tiles(domain_of("prior"), rows_of([(1, 30, 9.0)]), 1)[0]

    assert one.digest != replace(one, age_s=one.age_s + 1).digest
    assert one.digest != replace(one, observations=one.observations + 1).digest


def lattice(odd: float) -> Measurements:
    """Sensors on a lattice that agree, and one in the middle that says something else."""
    x, y = (a.ravel() for a in np.meshgrid(np.arange(50.0, 1600, 150), np.arange(50.0, 1600, 150)))
    n = len(x)
    value = 10 + 0.3 * np.sin(np.arange(n))
    value[n // 2] = odd
    return Measurements(
        np.arange(n, dtype=np.uint64), np.full(n, 30_000_000), x, y, value, np.zeros(n, np.uint8),
        np.ones(n, np.uint8),
    )  # fmt: skip


def test_what_neighbours_doubt_is_used_flagged_and_counted_and_what_they_contradict_is_not() -> None:
    smooth = replace(PARAMETERS, length=2000)
    domain, regions = domain_of("prior", p=smooth), Regions(GRID)
    seen = {}
    for odd in np.arange(10.0, 40.0, 0.25):
        rows = lattice(float(odd))
        made = domain.grid_at(domain.check(rows, Past.nothing()), 0, 0)
        seen.setdefault(int(made.test[len(rows) // 2]), (made, rows))
    assert list(seen) == [0, SUSPECT, NEIGHBOUR], "first good, then suspect, then bad"

    for test, (made, rows) in seen.items():
        bad, doubtful = int(test == NEIGHBOUR), int(test == SUSPECT)
        assert (made.flagged, made.suspect) == (bad, doubtful)
        assert made.tiles[0].sensors == len(rows) - bad
        ledger = Ledger(raw=len(rows), used=len(rows))
        issue = Issue(0, made, (0,), made.flagged, made.suspect)
        (block,) = map(Block.decode, outputs_of(issue, group_named("air_temperature"), regions, 0, ledger))
        (row,) = table_of([block], GRID).to_pylist()
        assert (ledger.used, ledger.flagged, ledger.suspect) == (len(rows) - bad, bad, doubtful)
        assert ledger.balanced
        assert dict(ledger.tests) == ({"neighbour": 1} if bad else {})
        assert (row["used"], row["flagged"]) == (len(rows) - bad, bad)
        odd = row["observations"][len(rows) // 2]
        assert (odd["flag"], odd["test"]) == {
            0: (1, None),
            SUSPECT: (3, "suspect"),
            NEIGHBOUR: (4, "neighbour"),
        }[test]
