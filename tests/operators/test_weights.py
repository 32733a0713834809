"""Areas on points: against every point cut by hand, and sums that are exact."""

import random
from fractions import Fraction
from math import fsum
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.operators import exact
from sensorgrid.operators.areas import AreaError, area_from_bbox, area_from_geojson
from sensorgrid.operators.weights import clip, row_weights

GRID = Grid(shape=(32, 16), resolution_bits=2)
PLANE = Grid(extent=(0, 0, 3200, 1600), shape=(32, 16), resolution_bits=2, coordinates="planar")


def polygon(*corners: tuple[float, float], hole: Any = None) -> Any:
    rings = [[*corners, corners[0]], *([] if hole is None else [[*hole, hole[0]]])]
    return area_from_geojson({"type": "Polygon", "coordinates": rings})


def by_hand(area: Any, grid: Grid) -> Any:
    """Every point of the grid cut by the area, one by one."""
    (dx, dy), (west, south) = grid.spacing, grid.extent[:2]
    found = np.zeros((grid.shape[1], grid.shape[0]))
    turns = [0] if grid.coordinates == "planar" else [-360, 0, 360]
    shapes = [shapely.transform(area.shape, lambda c, t=t: c + np.array([t, 0])) for t in turns]
    for y in range(grid.shape[1]):
        for x in range(grid.shape[0]):
            cell = shapely.box(west + x * dx, south + y * dy, west + (x + 1) * dx, south + (y + 1) * dy)
            part = sum(shapely.intersection(shape, cell).area for shape in shapes) / cell.area
            found[y, x] = min(1.0, np.rint(part * 128) / 128) * row_weights(grid)[y]
    return found


AREAS = {
    "box": area_from_bbox((-13.3, 10.2, 47.1, 61)),
    "box across the date line": area_from_bbox((150, -40, -160, 20)),
    "triangle": polygon((0, 0), (60, 10), (20, 55)),
    "across the date line": polygon((160, -20), (215, -25), (190, 40)),
    "with a hole": polygon(
        (-90, -60), (80, -60), (80, 60), (-90, 60), hole=[(-20, -20), (20, -20), (20, 20), (-20, 20)]
    ),
    "thin": polygon((-170, 3), (170, 4), (170, 5), (-170, 4)),
    "beyond the grid": polygon((-10, 60), (30, 60), (30, 100), (-10, 100)),
    "everything": area_from_bbox((-180, -90, 180, 90)),
}


@pytest.mark.parametrize("name", AREAS)
def test_every_point_has_its_share(name: str) -> None:
    weights = clip(AREAS[name], GRID)
    assert weights is not None
    found = np.zeros(32 * 16)
    points, weight = weights.indices()
    found[points] = weight

    expected = by_hand(AREAS[name], GRID)

    assert len(np.unique(points)) == len(points)
    assert np.array_equal(found.reshape(16, 32), expected)
    assert weights.total == fsum(expected.ravel())
    assert weights.points == np.count_nonzero(expected)


def test_a_plane_has_no_cosine() -> None:
    weights = clip(polygon((100, 100), (1500, 150), (800, 900)), PLANE)
    assert weights is not None

    assert weights.total == pytest.approx(
        shapely.area(polygon((100, 100), (1500, 150), (800, 900)).shape) / 1e4, rel=0.01
    )


@pytest.mark.parametrize("name", AREAS)
def test_parts_of_an_area_are_those_of_the_whole(name: str) -> None:
    weights = clip(AREAS[name], GRID)
    assert weights is not None
    boxes = [Box(x, x + 8, y, y + 4) for x in range(0, 32, 8) for y in range(0, 16, 4)]

    parts = [part for box in boxes if (part := weights.within(box)) is not None]

    assert sum(part.total for part in parts) == weights.total
    assert sum(part.points for part in parts) == weights.points
    assert {part.digest for part in parts if part.is_whole} <= {"whole"}
    whole = [part for part in parts if part.is_whole]
    assert len(whole) == 16 if name == "everything" else len(whole) < 16


def test_one_area_has_one_value_however_it_is_written() -> None:
    ring = [[0, 20], [0, 0], [10, 0], [10, 20], [0, 20]]
    same = [
        area_from_bbox((0, 0, 10, 20)),
        polygon((0, 0), (10, 0), (10, 20), (0, 20)),
        polygon((10, 20), (10, 0), (0, 0), (0, 20)),
        area_from_geojson({"type": "Feature", "geometry": {"type": "MultiPolygon", "coordinates": [[ring]]}}),
    ]  # fmt: skip

    assert len(set(same)) == 1
    assert len({area.digest for area in same}) == 1
    assert same[1].rectangle == (0, 0, 10, 20)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"type": "Point", "coordinates": [1, 2]}, "found Point, expected a polygon"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}, "expected rings of four corners"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, float("nan")], [1, 0], [0, 0]]]}, "not finite"),
        ({"type": "Polygon", "coordinates": [["a", "b"]]}, "no pairs of numbers"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [2, 2], [0, 0]]]}, "found"),
        ({"type": "FeatureCollection", "features": []}, "found 0 corners"),
        (None, "found no geometry"),
    ],
)
def test_what_is_no_area_is_refused(found: Any, said: str) -> None:
    with pytest.raises(AreaError, match=said):
        area_from_geojson(found)


_values = st.floats(-(2.0**59), 2.0**59, width=32, allow_nan=False)


@given(numbers=st.lists(_values, min_size=1, max_size=60), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_sums_are_exact_in_any_order_and_rounded_once(numbers: list[float], seed: int) -> None:
    values = np.array(numbers) * row_weights(GRID)[5]
    parts = np.zeros((len(values), exact.SLICES))
    for place, cut in exact.slices(values):
        parts[:, place] = cut
    order = random.Random(seed).sample(range(len(values)), len(values))

    forwards, backwards = parts.sum(axis=0), np.add.reduce(parts[order], axis=0)

    unit = Fraction(2) ** exact.LOWEST
    expected = sum((round(Fraction(v) / unit) * unit for v in values.tolist()), Fraction(0))
    assert forwards.tobytes() == backwards.tobytes()
    assert exact.totals(forwards[None])[0] == float(expected)
    assert Fraction(exact.whole(forwards[None])[0]) * Fraction(2) ** exact.WHOLE_UNIT == expected
