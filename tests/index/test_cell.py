import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import ORDERS, leaf_digits, slices_mask, small_grids
from sensorgrid import Grid
from sensorgrid.index.cell import Cell, format_cells, parse_cells
from sensorgrid.index.layout import layout_of
from sensorgrid.model.errors import CellError
from sensorgrid.model.grid import Dimension

texts = st.text("01", max_size=12)


@given(texts)
def test_a_cell_prints_as_it_was_read(text: str) -> None:
    assert str(Cell.parse(text)) == (text or "ε")
    assert Cell.parse(str(Cell.parse(text))) == Cell.parse(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0121", "cell '0121': digit 2 at position 2, expected 0 or 1"),
        ("01*1", "digit \\* at position 2"),
        ("0" * 50, "found 50 digits, expected at most 42"),
    ],
)
def test_text_that_is_no_cell_says_why(text: str, complaint: str) -> None:
    with pytest.raises(CellError, match=complaint):
        Cell.parse(text)


def test_a_star_expands_to_both_digits() -> None:
    assert [str(c) for c in parse_cells("01*1")] == ["0101", "0111"]
    assert len(parse_cells("*" * 5)) == 32
    with pytest.raises(CellError, match="expected at most 16"):
        parse_cells("*" * 17)


@given(st.sets(st.text("01", min_size=4, max_size=4)))
def test_patterns_expand_to_the_cells_that_they_were_made_of(cells: set[str]) -> None:
    patterns = format_cells(Cell.parse(c) for c in cells)

    assert sorted(str(c) for p in patterns for c in parse_cells(p)) == sorted(cells)


@given(texts, texts)
def test_containing_is_being_a_prefix(a: str, b: str) -> None:
    assert Cell.parse(a).contains(Cell.parse(b)) == b.startswith(a)
    assert Cell.parse(a).intersects(Cell.parse(b)) == (b.startswith(a) or a.startswith(b))


@given(texts, texts)
def test_cells_meet_exactly_where_their_leaf_intervals_meet(a: str, b: str) -> None:
    (a0, a1), (b0, b1) = Cell.parse(a).interval(12), Cell.parse(b).interval(12)

    assert Cell.parse(a).intersects(Cell.parse(b)) == (max(a0, b0) < min(a1, b1))


@given(st.text("01", min_size=1, max_size=12))
def test_parent_children_and_sibling(text: str) -> None:
    cell = Cell.parse(text)

    assert str(cell.parent) == (text[:-1] or "ε")
    assert cell in cell.parent.children
    assert set(cell.parent.children) == {cell, cell.sibling}
    assert [str(c) for c in cell.ancestors] == [text[:n] or "ε" for n in range(len(text), -1, -1)]


def test_the_whole_grid_has_neither_parent_nor_sibling() -> None:
    with pytest.raises(CellError, match="with a parent"):
        _ = Cell(1).parent
    with pytest.raises(CellError, match="with a sibling"):
        _ = Cell(1).sibling
    with pytest.raises(CellError, match="sentinel"):
        Cell(0)


@given(texts, st.integers(0, 4))
def test_an_interval_gives_the_cell_back(text: str, more: int) -> None:
    cell, digits = Cell.parse(text), len(text) + more
    start, stop = cell.interval(digits)

    assert stop - start == 1 << more
    assert Cell.of_interval(start, cell.length, digits) == cell


@given(st.lists(texts, max_size=20))
def test_cells_sort_depth_first(cells: list[str]) -> None:
    assert [str(c) for c in sorted(Cell.parse(t) for t in cells)] == [t or "ε" for t in sorted(cells)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("region_digits", [0, 3])
def test_every_cell_is_a_strided_slice_of_the_literal_permutation(
    order: tuple[Dimension, ...], region_digits: int
) -> None:
    """Section 4.2.2: by prefix in the permuted order or by stride in the plain one, the same points."""
    grid = Grid(shape=(16, 8), resolution_bits=(2, 1, 2), order=order, region_digits=region_digits)
    digits = layout_of(grid).digits
    leaves = np.array([[[leaf_digits(grid, x, y, t) for x in range(16)] for y in range(8)] for t in range(4)])

    for length in range(digits + 1):
        for code in range(1 << length, 2 << length):
            cell = Cell(code)
            by_prefix = np.char.startswith(leaves, str(cell) if length else "")

            assert np.array_equal(slices_mask(grid, cell.slices(grid)), by_prefix), str(cell)
            assert cell.size(grid) == by_prefix.sum()


@given(small_grids(), st.data())
def test_a_point_leads_to_its_cell_and_back(grid: Grid, data: st.DataObject) -> None:
    ix, iy = (data.draw(st.integers(0, n - 1)) for n in grid.shape)
    tick = data.draw(st.integers(0, 20))

    cell = Cell.of_point(grid, ix, iy, tick)

    assert str(cell) == (leaf_digits(grid, ix, iy, tick) or "ε")
    period = 1 << grid.resolution_bits[2]
    assert slices_mask(grid, cell.slices(grid))[tick % period, iy, ix]


def test_a_cell_of_another_grid_is_refused() -> None:
    grid = Grid(shape=(16, 8), resolution_bits=1)

    with pytest.raises(CellError, match="expected at most the grid's"):
        Cell.parse("0" * 20).slices(grid)
    with pytest.raises(CellError, match="expected within"):
        Cell.of_point(grid, 16, 0)


def test_half_of_res_xy_is_every_other_column_and_a_quarter_every_other_in_both() -> None:
    grid = Grid(shape=(8, 8), resolution_bits=2, order=("x", "y", "res_xy"), region_digits=2)

    half, quarter = Cell.parse("000").slices(grid), Cell.parse("0000").slices(grid)

    assert (half.x.step, half.y.step) == (2, 1)
    assert (quarter.x.step, quarter.y.step) == (2, 2)
