import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import boxes_on, small_grids
from sensorgrid.index.cell import Cell
from sensorgrid.index.layout import layout_of
from sensorgrid.index.zorder import Owners, cell_of_range, cells_of_range, ranges_of_box
from sensorgrid.model.errors import CellError


@given(st.text("01", max_size=8))
def test_a_cell_is_a_range_and_the_range_is_the_cell(text: str) -> None:
    cell = Cell.parse(text)

    assert cell_of_range(*cell.interval(8), 8) == cell


@given(st.data())
def test_a_range_is_a_few_cells(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 255))
    stop = data.draw(st.integers(start + 1, 256))

    cells = cells_of_range(start, stop, 8)

    assert [leaf for cell in cells for leaf in range(*cell.interval(8))] == list(range(start, stop))
    assert not any(cell.length and cell.sibling in cells for cell in cells)


@pytest.mark.parametrize(("start", "stop"), [(3, 3), (5, 4), (-1, 3), (0, 257)])
def test_a_range_off_the_line_is_refused(start: int, stop: int) -> None:
    with pytest.raises(CellError, match="expected 0 <= start < stop <= 256"):
        cells_of_range(start, stop, 8)


def test_a_range_of_several_cells_is_not_one() -> None:
    with pytest.raises(CellError, match="found 2 cells, expected exactly one"):
        cell_of_range(0, 3, 8)


@given(st.data())
def test_the_ranges_of_a_box_hold_its_leaves_and_none_of_blocks_that_it_does_not_touch(
    data: st.DataObject,
) -> None:
    grid = data.draw(small_grids())
    box = data.draw(boxes_on(grid))
    nx = grid.shape[0]
    leaves = {
        Cell.of_point(grid, x % nx, y, t).interval(layout_of(grid).digits)[0]
        for x in range(box.x0, box.x1)
        for y in range(box.y0, box.y1)
        for t in range(1 << grid.resolution_bits[2])
    }

    exact, rough = ranges_of_box(box, grid), ranges_of_box(box, grid, depth=3)

    for ranges in (exact, rough):
        edges = np.array(ranges).ravel()
        assert (np.diff(edges) > 0).all()
        assert leaves <= {leaf for start, stop in ranges for leaf in range(start, stop)}
    assert len(rough) <= 8
    touched = {
        Cell.of_point(grid, x % nx, y).box(grid) for x in range(box.x0, box.x1) for y in range(box.y0, box.y1)
    }
    digits = layout_of(grid).digits
    for start, stop in exact:
        assert {Cell.of_interval(leaf, digits, digits).box(grid) for leaf in range(start, stop)} <= touched


@given(st.sets(st.integers(0, 63), min_size=1), st.integers(0, 63))
def test_an_id_belongs_to_the_owner_before_it_and_the_first_ones_to_the_last(
    ids: set[int], leaf: int
) -> None:
    owners = Owners(ids, digits=6)
    before = [i for i in ids if i <= leaf]

    assert owners.of(leaf) == (max(before) if before else max(ids))
    assert owners.next(leaf) == min((i for i in ids if i > leaf), default=min(ids))
    assert owners.previous(leaf) == max((i for i in ids if i < leaf), default=max(ids))
    owned = [i for start, stop in owners.ranges(owners.of(leaf)) for i in range(start, stop)]
    assert leaf in owned
    assert owned == [i for i in range(64) if owners.of(i) == owners.of(leaf)]


@given(st.sets(st.integers(0, 63), min_size=1), st.data())
def test_a_range_is_cut_where_the_owner_changes(ids: set[int], data: st.DataObject) -> None:
    owners = Owners(ids, digits=6)
    start = data.draw(st.integers(0, 63))
    stop = data.draw(st.integers(start + 1, 64))

    parts = list(owners.split(start, stop))

    assert [(owner, i) for owner, (a, b) in parts for i in range(a, b)] == [
        (owners.of(i), i) for i in range(start, stop)
    ]


@pytest.mark.parametrize("ids", [[], [1, 1], [-1], [64]])
def test_owners_that_cannot_be_are_refused(ids: list[int]) -> None:
    with pytest.raises(CellError, match="expected one or more, distinct"):
        Owners(ids, digits=6)


def test_a_stranger_owns_nothing() -> None:
    with pytest.raises(CellError, match="found no such owner"):
        Owners([1, 2], digits=6).ranges(3)
