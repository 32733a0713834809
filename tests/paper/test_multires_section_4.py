"""Claims of the multires paper (Benzing et al., COMSWARE 2011), section 4, one test each."""

import numpy as np
import pytest

from oracles import permutation
from sensorgrid import Box, Grid, Query
from sensorgrid.index.cell import Cell, parse_cells
from sensorgrid.index.decompose import decompose, decompose_box
from sensorgrid.index.enclosing import enclosing
from sensorgrid.index.gbd_tree import PagedTree, ReferenceTree
from sensorgrid.index.layout import layout_of
from sensorgrid.model.grid import ORDER_2D, ORDER_4D
from sensorgrid.model.resolution import reverse_bits, strides_of

T = "air_temperature"


def test_4_1_epsilon_covers_all_data() -> None:
    """An empty DZ expression represents the whole space managed by the system."""
    grid = Grid(shape=(64, 32), resolution_bits=2)

    assert [str(f.cell) for f in decompose(Query(T), grid)] == ["ε"]
    assert Cell(1).size(grid) == 64 * 32 * 4


def test_4_1_the_first_digit_halves_x_the_second_y() -> None:
    """Located entirely in the lower half of dimension 1: a 0 is appended; then dimension 2."""
    grid = Grid(shape=(64, 32), resolution_bits=2, order=ORDER_2D)

    assert str(enclosing(Box(40, 44, 0, 4), (4, 4, 4), grid).cell).startswith("10")
    assert str(enclosing(Box(0, 4, 20, 24), (4, 4, 4), grid).cell).startswith("01")


def test_4_1_a_query_across_the_main_split_has_no_digit() -> None:
    """The expression ends when the region can no longer be assigned to a single half."""
    grid = Grid(shape=(64, 32), resolution_bits=2, order=ORDER_2D)

    assert str(enclosing(Box(31, 33, 0, 4), (4, 4, 4), grid).cell) == "ε"


def test_4_1_containment_is_digit_by_digit_with_asterisks() -> None:
    """For each position, the character of dz(q1) is * or identical to that of dz(q2)."""
    inside, outside = Cell.parse("01110"), Cell.parse("01100")

    assert any(cell.contains(inside) for cell in parse_cells("01*1"))
    assert not any(cell.contains(outside) for cell in parse_cells("01*1"))


def test_4_2_1_one_quarter_of_the_spatial_resolution_is_every_fourth_point() -> None:
    """Constraining to one quarter of the dimension, only every fourth data point is delivered."""
    grid = Grid(shape=(64, 64), resolution_bits=2, order=ORDER_4D, region_digits=0)
    quarter = Query(T, resolution=(0.5, 0.5, 1))

    assert quarter.size(grid).points_per_tick == 64 * 64 // 4
    for fragment in decompose(quarter, grid):
        (slices,) = fragment.slices(grid)
        assert (slices.x.step, slices.y.step) == (2, 2)


def test_4_2_1_the_two_lowest_quarters_combine_to_half() -> None:
    """A client may later request the second lowest quarter and combine both to half of the resolution."""
    (first,), (second,), (half,) = strides_of(0, 1, 2), strides_of(1, 2, 2), strides_of(0, 2, 2)
    ticks = np.arange(16)

    combined = np.concatenate([ticks[first.slice(0, 16)], ticks[second.slice(0, 16)]])

    assert sorted(combined) == ticks[half.slice(0, 16)].tolist()


def test_4_2_2_figure_3() -> None:
    """The permutation of the indices between 0 and 7 is (0, 4, 2, 6, 1, 5, 3, 7)."""
    assert [reverse_bits(position, 3) for position in range(8)] == [0, 4, 2, 6, 1, 5, 3, 7]


@pytest.mark.parametrize("bits", range(1, 9))
def test_4_2_2_lemma_1(bits: int) -> None:
    """The binary representation of the index equals that of the permuted position, in reverse order."""
    assert permutation(1 << bits) == [reverse_bits(position, bits) for position in range(1 << bits)]


def test_4_2_2_a_contiguous_block_does_not_limit_the_boundaries() -> None:
    """Selecting any contiguous block of the reordered data does not limit the bounds of the region."""
    for low in range(16):
        for high in range(low + 1, 17):
            offsets = [o for s in strides_of(low, high, 4) for o in range(16) if o % s.stride == s.offset]

            # n points that follow each other in the new order leave no stretch of 32/n points empty.
            stretch = 1 << (5 - (high - low).bit_length() + 1)
            if stretch <= 16:
                assert {o // stretch for o in offsets} == set(range(16 // stretch))


def test_4_2_the_number_of_cells_is_independent_of_the_maximum_resolution() -> None:
    """The number of queries remains independent of the maximum resolution provided by the system."""
    query = Query(T, bbox=(0, 0, 90, 45), resolution=(1, 1, 1))
    counts = {
        len(decompose(query, Grid(shape=(256 << k, 128 << k), resolution_bits=(4 + k, 4 + k, 4)), 12))
        for k in range(4)
    }

    assert len(counts) == 1


def test_4_3_1_subregions_are_found_below_the_query() -> None:
    """In case the entire query region is not available, the tree is traversed further down."""
    grid = Grid(shape=(64, 32), resolution_bits=2, order=ORDER_2D)
    tree = ReferenceTree(grid)
    tree.insert(decompose_box(Box(0, 32, 0, 16), (4, 4, 4), grid), 1)

    available, missing = tree.serve(decompose(Query(T), grid))

    assert [str(f.cell) for f in available] == ["00"]
    assert [str(f.cell) for f in missing] == ["01", "1"]


def test_4_4_1_the_size_of_a_subtree_is_updated_with_each_query() -> None:
    """In each node, the total query size of the subtree is updated when a query is added or removed."""
    grid = Grid(shape=(64, 32), resolution_bits=2, order=ORDER_2D)
    tree, region = PagedTree(grid), Cell.parse("0000")
    fragments = [decompose_box(Box(0, n, 0, 4), (4, 4, 4), grid) for n in (4, 8, 12)]

    for owner, query in enumerate(fragments):
        tree.insert(query, owner)
    load = tree.size(region) / region.size(grid)
    tree.remove(fragments[2], 2)

    assert load == (4 + 8 + 12) * 4 / (16 * 8)
    assert tree.size(region) / region.size(grid) == (4 + 8) * 4 / (16 * 8)


def test_4_5_1_an_expression_is_a_single_integer() -> None:
    """Since DZ expressions are binary strings, they can be stored as a single integer."""
    assert Cell.parse("0101").code == 0b10101
    assert Cell.parse("").code == 1
    assert layout_of(Grid()).digits < 64
