"""Slabs against sets of points, one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sensorgrid.model.block import Progression, Slab, Wanted, cut, masked, meet, points_of


@st.composite
def progressions(draw: st.DrawFn) -> Progression:
    """At least one number, with a stride that is a power of two, as cells make them."""
    stride = 1 << draw(st.integers(0, 3))
    start = draw(st.integers(0, 20))
    return start, draw(st.integers(start + 1, 30)), stride


@st.composite
def slabs(draw: st.DrawFn) -> Slab:
    y, x = draw(progressions()), draw(progressions())
    values = np.add.outer([1000.0 * row for row in range(*y)], [float(column) for column in range(*x)])
    return Slab(y, x, values)


@st.composite
def wanteds(draw: st.DrawFn) -> Wanted:
    stride = 1 << draw(st.integers(0, 2))
    return Wanted(draw(progressions()), draw(progressions()), draw(st.integers(0, stride - 1)), stride)


@given(progressions(), progressions())
def test_what_two_progressions_share_is_one_progression(a: Progression, b: Progression) -> None:
    both = meet(a, b)

    shared = set(range(*a)) & set(range(*b))
    assert (set() if both is None else set(range(*both))) == shared
    assert (both is None) == (not shared)
    assert both == meet(b, a)
    assert both is None or both[0] in range(*a), "a progression starts with its first number"


@given(st.lists(slabs(), max_size=3), st.lists(wanteds(), max_size=3), st.integers(0, 8))
def test_a_cut_holds_the_wanted_points_with_their_values(
    held: list[Slab], wanted: list[Wanted], tick: int
) -> None:
    found = sorted(points_of(cut(held, wanted, tick)))

    expected = sorted(
        (x, y, value)
        for slab in held
        for x, y, value in points_of([slab])
        for want in wanted
        if tick % want.stride == want.offset and y in range(*want.y) and x in range(*want.x)
    )
    assert found == expected
    assert all(value == 1000 * y + x for x, y, value in found)


@given(slabs(), wanteds())
def test_a_cut_copies_nothing(slab: Slab, want: Wanted) -> None:
    for part in cut([slab], [want], want.offset):
        assert np.shares_memory(part.values, slab.values)
        assert part.points == part.values.size == len(range(*part.y)) * len(range(*part.x)) > 0


@given(wanteds(), st.integers(0, 20))
def test_a_wanted_rectangle_counts_its_points(want: Wanted, tick: int) -> None:
    assert want.points == len({(y, x) for y in range(*want.y) for x in range(*want.x)})
    assert want.at(tick) == (tick in range(want.offset, 100, want.stride))


@given(slabs(), st.floats(-1, 31000), st.floats(-1, 31000))
def test_values_outside_a_range_are_blanked_and_its_bounds_are_inside(
    slab: Slab, low: float, high: float
) -> None:
    before = [value for _, _, value in points_of([slab])]

    (shown,) = masked([slab], low, high)

    after = [value for _, _, value in points_of([shown])]
    for old, new in zip(before, after, strict=True):
        assert new == old if low <= old <= high else np.isnan(new)
    assert (shown.y, shown.x) == (slab.y, slab.x)
    assert [value for _, _, value in points_of([slab])] == before, "what others receive is untouched"


def test_a_range_that_ends_at_a_value_shows_it() -> None:
    slab = Slab((0, 1, 1), (0, 3, 1), np.array([[1.0, 2.0, np.nan]]))

    (shown,) = masked([slab], 1.0, 1.0)

    np.testing.assert_array_equal(shown.values, [[1.0, np.nan, np.nan]])
