"""Regions and halos: who is at home where, who is heard where, and that no seam shows."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorgrid.model.errors import GridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.groups import group_named
from sensorgrid.pipeline.gridding.kernels.interface import Parameters, metres
from sensorgrid.pipeline.gridding.measurements import Measurements, deduplicate
from sensorgrid.pipeline.gridding.regions import Halos, Regions
from sensorgrid.pipeline.gridding.series import Past, SeriesLimits, check_series
from sensorgrid.pipeline.gridding.tile import Recipe, grid_region

EARTH = Grid(shape=(64, 32), resolution_bits=1, region_digits=4, attributes=("air_temperature",))
CITY = Grid(
    extent=(0, 0, 6400, 3200), coordinates="planar", shape=(64, 32), resolution_bits=1, region_digits=4,
    attributes=("air_temperature",),
)  # fmt: skip
grids = pytest.mark.parametrize("grid", [EARTH, CITY], ids=["earth", "city"])


def scattered(grid: Grid, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    west, south, east, north = grid.extent
    rng = np.random.default_rng(seed)
    return rng.uniform(west, east, count), rng.uniform(south, north, count)


@grids
def test_every_point_has_one_region_and_it_is_the_one_that_lists_it(grid: Grid) -> None:
    regions = Regions(grid)
    seen = np.zeros(grid.shape[::-1], int)

    for number, box in enumerate(regions.boxes):
        seen[box.y0 : box.y1, box.x0 : box.x1] += 1
        x, y = regions.points(number)
        assert np.all(regions.of(x, y) == number)
        assert regions.number(regions.name(number)) == number

    assert np.all(seen == 1)


@grids
@given(st.integers(0, 10_000), st.floats(1, 4e6))
@settings(max_examples=25, deadline=None)
def test_a_halo_holds_at_least_all_sensors_within_its_width(grid: Grid, seed: int, width: float) -> None:
    regions = Regions(grid)
    width = width if grid is EARTH else width / 2000
    x, y = scattered(grid, 60, seed)

    row, region = Halos(regions, (width,) * len(regions)).spread(x, y)

    pairs = set(zip(row.tolist(), region.tolist(), strict=True))
    assert len(pairs) == len(row)
    at = metres(x, y, grid.coordinates)
    for number in range(len(regions)):
        points = metres(*regions.points(number), grid.coordinates)
        near = np.linalg.norm(at[:, None] - points[None], axis=2).min(axis=1) <= width
        home = regions.of(x, y) == number
        assert {(int(i), number) for i in np.flatnonzero(near | home)} <= pairs


def test_halos_are_wide_where_sensors_are_few() -> None:
    regions = Regions(CITY)
    x, y = np.r_[np.linspace(0, 3000, 400), 6300], np.r_[np.tile(np.linspace(0, 3100, 20), 20), 100]

    widths = regions.halos_for(x, y, neighbours=8)

    dense, empty = (
        regions.of(np.array([1500.0]), np.array([1500.0])),
        regions.of(np.array([6000.0]), np.array([3000.0])),
    )
    assert widths[empty] > 3 * widths[dense]


@grids
@pytest.mark.parametrize("kernel", ["nearest", "inverse_distance", "kriging"])
def test_no_seam_shows_where_the_halo_suffices(grid: Grid, kernel: str) -> None:
    """Regions put together equal one region for the whole world, outliers and the date line included."""
    x, y = scattered(grid, 700, seed=3)
    rng = np.random.default_rng(4)
    value = 280 + 10 * np.sin(x / (grid.extent[2] - grid.extent[0]) * 2 * np.pi) + rng.normal(0, 0.5, len(x))
    value[::50] += 40
    rows, _ = deduplicate([measurements(x, y, value)])
    scale = 1e6 if grid is EARTH else 600.0
    parameters = Parameters(mean=280, spread=15, length=scale, noise=0.5, drift=0.5, sill=5)
    whole = gridded(rows, replace(grid, region_digits=0), 0, kernel, parameters)
    regions = Regions(grid)
    halos = Halos(regions, tuple(regions.halos_for(x, y, neighbours=20)))

    row, region = halos.spread(rows.x, rows.y)

    assert len(row) < 12 * len(rows), "halos that hold everything prove nothing"
    for number, box in enumerate(regions.boxes):
        part = gridded(rows.take(row[region == number]), grid, number, kernel, parameters)
        for mine, all_ in zip(part, whole, strict=True):
            expected = all_.reshape(grid.shape[::-1])[box.y0 : box.y1, box.x0 : box.x1].ravel()
            np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-3)


def measurements(x: np.ndarray, y: np.ndarray, value: np.ndarray) -> Measurements:
    n = len(x)
    return Measurements(
        np.arange(n, dtype=np.uint64),
        np.full(n, 30_000_000),
        x,
        y,
        value,
        np.zeros(n, np.uint8),
        np.ones(n, np.uint8),
    )


def gridded(
    rows: Measurements, grid: Grid, region: int, kernel: str, parameters: Parameters
) -> tuple[np.ndarray, np.ndarray]:
    limits = (SeriesLimits(12, 15, 8, 0, 1),)
    checked = check_series(rows, limits, 3600, Past.nothing())
    made = grid_region(
        checked, group_named("air_temperature"), grid, region, 0, 3600, Recipe(kernel, (parameters,))
    )
    (tile,) = made.tiles
    return tile.values, tile.error


def test_more_regions_than_the_grid_has_blocks_are_refused() -> None:
    with pytest.raises(GridError, match="region_digits: found 16"):
        Regions(Grid(shape=(64, 32), resolution_bits=4, region_digits=16))
