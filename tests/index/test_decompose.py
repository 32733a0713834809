import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import ORDERS, boxes_on, limits_on, query_mask, slices_mask, small_grids
from sensorgrid import Box, Grid, Query
from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import Fragments, decompose, decompose_box, decompose_box_within, restrict
from sensorgrid.index.layout import layout_of
from sensorgrid.model.errors import CellError

T = "air_temperature"


def delivered(grid: Grid, fragments: Fragments) -> np.ndarray:
    """[tick, y, x]: how often each point is delivered."""
    times = np.zeros((1 << grid.resolution_bits[2], grid.shape[1], grid.shape[0]), dtype=int)
    for fragment in fragments:
        for slices in fragment.slices(grid):
            times += slices_mask(grid, slices)
    return times


def check(grid: Grid, box: Box, limits: tuple[int, int, int], depth: int) -> None:
    fragments = decompose_box(box, limits, grid, depth)

    # Exactly once each point of the query, and no other.
    assert np.array_equal(delivered(grid, fragments), query_mask(grid, box, limits).astype(int))
    cells = fragments.cells
    assert cells == sorted(cells)
    assert not any(a.intersects(b) for a, b in pairwise(cells))
    assert all(cell.length <= depth for cell in cells)
    assert len(cells) <= 1 << depth
    for fragment in fragments:
        inside = slices_mask(grid, fragment.cell.slices(grid))
        wanted = query_mask(grid, fragment.box, limits) & inside
        assert fragment.points == wanted.sum() > 0
    assert fragments.padded.tolist() == [cell.size(grid) for cell in cells]


@settings(max_examples=300)
@given(st.data())
def test_fragments_are_the_query_exactly(data: st.DataObject) -> None:
    grid = data.draw(small_grids())

    check(grid, data.draw(boxes_on(grid)), data.draw(limits_on(grid)), data.draw(st.integers(0, 12)))


@settings(max_examples=100)
@given(st.data())
def test_no_two_siblings_could_be_one_cell(data: st.DataObject) -> None:
    """A split that sheds nothing is undone: two whole siblings never stand where their parent would do."""
    grid = data.draw(small_grids())
    box, limits = data.draw(boxes_on(grid)), data.draw(limits_on(grid))

    cells = set(decompose_box(box, limits, grid, data.draw(st.integers(0, 10))).cells)

    assert not any(cell.length and cell.sibling in cells for cell in cells)


@settings(max_examples=100)
@given(st.data())
def test_a_cell_whose_other_half_is_empty_is_halved(data: st.DataObject) -> None:
    """Shedding an empty half costs no cell, so no fragment keeps one that the depth could shed."""
    grid = data.draw(small_grids())
    box, limits, depth = data.draw(boxes_on(grid)), data.draw(limits_on(grid)), data.draw(st.integers(0, 12))

    fragments = decompose_box(box, limits, grid, depth)

    for fragment in fragments:
        if fragment.cell.length < min(depth, layout_of(grid).digits):
            assert len(restrict(fragments, fragment.cell.children)) == 2


@settings(max_examples=100)
@given(st.data())
def test_more_depth_never_carries_more(data: st.DataObject) -> None:
    grid = data.draw(small_grids())
    box, limits = data.draw(boxes_on(grid)), data.draw(limits_on(grid))

    padded = [
        int(decompose_box(box, limits, grid, d).padded.sum()) for d in range(layout_of(grid).digits + 1)
    ]

    assert padded == sorted(padded, reverse=True)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("resolution", [1, 1 / 2, 0.3, 1 / 4])
@pytest.mark.parametrize(
    "bbox",
    [
        (-180, -90, 180, 90),  # the whole world
        (170, -20, -170, 20),  # across the date line
        (10, -90, 5, 90),  # nearly all around, ends in one block
        (-180, 80, 180, 90),  # a pole
        (-180, -90, -170, -80),  # a corner
        (13.4, 52.5, 13.4, 52.5),  # one point
    ],
)
def test_the_places_where_things_go_wrong(
    order: tuple[str, ...], resolution: float, bbox: tuple[float, float, float, float]
) -> None:
    grid = Grid(shape=(64, 32), resolution_bits=2, order=order, region_digits=2)  # type: ignore[arg-type]
    limits = Query(T, resolution=resolution).limits(grid)
    box = grid.box_of(bbox)

    for depth in (0, 1, 4, 8, layout_of(grid).digits):
        check(grid, box, limits, depth)


def test_a_full_depth_leaves_no_padding_but_at_the_borders_of_blocks() -> None:
    grid = Grid(shape=(64, 32), resolution_bits=2)
    aligned = Box(8, 24, 4, 16)

    assert decompose_box(aligned, (4, 4, 4), grid).padding == 0
    assert decompose_box(aligned, (1, 2, 3), grid).padding == 0
    assert decompose_box(Box(9, 24, 4, 16), (4, 4, 4), grid).padding > 0


def test_a_query_is_its_box_and_limits() -> None:
    grid = Grid(shape=(64, 32), resolution_bits=2)
    query = Query(T, (-10, 35, 30, 60), (0.5, 1, 0.25))

    fragments = decompose(query, grid, 10)

    assert int(fragments.points.sum()) == query.size(grid).points_per_tick * query.limits(grid)[2]
    assert fragments.limits == (2, 4, 1)


@pytest.mark.parametrize("depth", [-1, 2.5])
def test_a_depth_that_cannot_be_is_refused(depth: int) -> None:
    with pytest.raises(CellError, match=f"depth: found {depth}"):
        decompose(Query(T), Grid(), depth)


def test_fragments_are_values_that_travel() -> None:
    fragments = decompose(Query(T, (-10, 35, 30, 60)), Grid(), 12)

    assert pickle.loads(pickle.dumps(fragments)) == fragments
    assert fragments != decompose(Query(T, (-10, 35, 30, 60)), Grid(), 6)
    assert repr(fragments).startswith(f"<Fragments: {len(fragments)} cells")


@settings(max_examples=200)
@given(st.data())
def test_a_query_cut_at_cells_is_what_it_wants_of_each(data: st.DataObject) -> None:
    grid = data.draw(small_grids())
    box, limits = data.draw(boxes_on(grid)), data.draw(limits_on(grid))
    length = data.draw(st.integers(0, min(layout_of(grid).digits, 5)))
    cells = [Cell(code) for code in range(1 << length, 2 << length)]

    parts = restrict(decompose_box(box, limits, grid), cells)

    assert np.array_equal(delivered(grid, parts), query_mask(grid, box, limits).astype(int))
    assert all(fragment.points > 0 for fragment in parts)


@settings(max_examples=50)
@given(st.data())
def test_resolutions_nest(data: st.DataObject) -> None:
    """Idea 3 of the papers' reading: what a coarse query needs, a finer one needs as well."""
    grid = data.draw(small_grids())
    box, fine = data.draw(boxes_on(grid)), data.draw(limits_on(grid))
    x, y, t = (data.draw(st.integers(1, limit)) for limit in fine)

    coarse_mask, fine_mask = (
        delivered(grid, decompose_box(box, limits, grid)) for limits in ((x, y, t), fine)
    )

    assert (coarse_mask <= fine_mask).all()


@settings(max_examples=100)
@given(st.data())
def test_a_number_of_cells_can_be_kept_to(data: st.DataObject) -> None:
    grid = data.draw(small_grids())
    box, limits = data.draw(boxes_on(grid)), data.draw(limits_on(grid))
    depth, cells_max = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 40))

    found = decompose_box_within(box, limits, grid, depth, cells_max)

    by_depth = [decompose_box(box, limits, grid, d) for d in range(depth + 1)]
    few = [f for d, f in enumerate(by_depth) if d <= grid.region_digits or len(f.codes) <= cells_max]
    assert found.cells == few[-1].cells
