from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import ranks
from sensorgrid.model.resolution import Stride, count_points, limit_of, reverse_bits, strides_of


@pytest.mark.parametrize("bits", range(6))
def test_bit_reversal_is_the_papers_permutation(bits: int) -> None:
    assert [reverse_bits(offset, bits) for offset in range(1 << bits)] == ranks(1 << bits)


@pytest.mark.parametrize(
    ("resolution", "limit"), [(1, 16), (0.5, 8), (0.3, 5), (1 / 16, 1), (1e-9, 1), (0.5000001, 9)]
)
def test_a_resolution_is_rounded_up_to_a_multiple(resolution: float, limit: int) -> None:
    assert limit_of(resolution, 4) == limit


@pytest.mark.parametrize("resolution", [0, -1, 1.01, float("nan"), float("inf")])
def test_a_resolution_outside_zero_to_one_is_refused(resolution: float) -> None:
    with pytest.raises(ValueError, match="expected a number in"):
        limit_of(resolution, 4)


@given(st.data())
def test_strides_are_the_ranks_and_disjoint(data: st.DataObject) -> None:
    bits = data.draw(st.integers(0, 5))
    low = data.draw(st.integers(0, 1 << bits))
    limit = data.draw(st.integers(low, 1 << bits))

    strides = strides_of(low, limit, bits)

    taken = [i for s in strides for i in range(1 << bits) if i % s.stride == s.offset]
    assert sorted(taken) == [o for o, r in enumerate(ranks(1 << bits)) if low <= r < limit]


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 4), st.data())
def test_counts_are_those_of_counting(start: int, length: int, bits: int, data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, 1 << bits))

    counted = sum(ranks(1 << bits)[i % (1 << bits)] < limit for i in range(start, start + length))

    assert count_points(start, start + length, limit, bits) == counted


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 4), st.data())
def test_a_stride_as_a_slice_takes_its_indices(
    start: int, length: int, digits: int, data: st.DataObject
) -> None:
    stride = Stride(data.draw(st.integers(0, (1 << digits) - 1)), 1 << digits)
    stop = start + length

    taken = list(range(200))[stride.slice(start, stop)]

    assert taken == [i for i in range(start, stop) if i % stride.stride == stride.offset]
    assert stride.count(start, stop) == len(taken)


@pytest.mark.parametrize("bits", [3, 4])
def test_a_prefix_keeps_the_largest_gap_at_most_twice_the_smallest(bits: int) -> None:
    for limit in range(1, 1 << bits):
        offsets = [o for o, r in enumerate(ranks(1 << bits)) if r < limit]
        offsets.append((1 << bits) + offsets[0])
        gaps = [b - a for a, b in pairwise(offsets)]

        assert max(gaps) <= 2 * min(gaps)
