"""Bare codes against `Cell`, and counts against points, one by one."""

from hypothesis import given
from hypothesis import strategies as st

from oracles import boxes_on, limits_on, query_mask, slices_mask, small_grids
from sensorgrid.index.cell import Cell
from sensorgrid.index.codes import beside, contains, prefixes
from sensorgrid.index.decompose import decompose_box, points_in
from sensorgrid.index.layout import layout_of

codes = st.integers(1, (1 << 10) - 1)


@st.composite
def nested(draw: st.DrawFn) -> tuple[int, int]:
    """A cell and one inside it."""
    outer = draw(codes)
    digits = draw(st.integers(0, 6))
    return outer, outer << digits | draw(st.integers(0, (1 << digits) - 1))


@given(codes, codes)
def test_codes_contain_each_other_as_their_cells_do(a: int, b: int) -> None:
    assert contains(a, b) == Cell(a).contains(Cell(b))


@given(nested())
def test_a_cell_contains_what_begins_with_it(pair: tuple[int, int]) -> None:
    outer, inner = pair

    assert contains(outer, inner)
    assert contains(inner, outer) == (inner == outer)


@given(codes, st.integers(0, 11))
def test_prefixes_are_the_ancestors(code: int, shortest: int) -> None:
    assert list(prefixes(code)) == [cell.code for cell in Cell(code).ancestors]
    assert list(prefixes(code, shortest)) == [
        cell.code for cell in Cell(code).ancestors if cell.length >= shortest
    ]


@given(nested())
def test_a_cell_and_what_lies_beside_it_make_up_the_larger_one(pair: tuple[int, int]) -> None:
    outer, inner = pair

    rest = beside(outer, inner)

    leaves = sorted(
        leaf for code in (inner, *rest) for leaf in range(*Cell(code).interval(Cell(inner).length))
    )
    assert leaves == list(range(*Cell(outer).interval(Cell(inner).length)))
    assert [Cell(code).length for code in rest] == sorted({Cell(code).length for code in rest})


@given(st.data())
def test_points_in_cells_are_counted_as_one_by_one(data: st.DataObject) -> None:
    grid = data.draw(small_grids())
    box, limits = data.draw(boxes_on(grid)), data.draw(limits_on(grid))
    digits = layout_of(grid).digits
    cells = data.draw(st.lists(st.integers(1, (1 << digits + 1) - 1), min_size=1, max_size=6))

    found = points_in(box, limits, cells, grid)

    wanted = query_mask(grid, box, limits)
    assert found == [int((wanted & slices_mask(grid, Cell(code).slices(grid))).sum()) for code in cells]


@given(st.data())
def test_points_in_the_cells_of_a_query_are_those_that_decompose_says(data: st.DataObject) -> None:
    grid = data.draw(small_grids())
    box, limits = data.draw(boxes_on(grid)), data.draw(limits_on(grid))
    fragments = decompose_box(box, limits, grid, data.draw(st.integers(0, 6)))

    assert points_in(box, limits, [cell.code for cell in fragments.cells], grid) == fragments.points.tolist()
