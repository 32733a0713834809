"""Which streams to one relay become one (relays, section 4, "Merging Algorithm", Algorithm 2)."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hands import cell
from sensorgrid.index.codes import contains
from sensorgrid.overlay.policies.merging import merge, merge_streams

DIGITS = 5
POINTS = 64

Streams = list[tuple[str, int]]


def size(code: int) -> int:
    """Points of a cell in a grid of 64."""
    return POINTS >> (code.bit_length() - 1)


def merged(streams: dict[str, str], delta: int = 0, digits: int = DIGITS) -> tuple[set[str], set[str]]:
    """Regions, and parts as "name:cell", of one stream for each name, in digits."""
    regions, served = merge([(name, cell(at)) for name, at in streams.items()], size, delta, digits)
    return {bin(n)[3:] for n in regions}, {f"{name}:{bin(part)[3:]}" for name, part in served}


def leaves(code: int) -> set[int]:
    """The finest cells of a cell."""
    down = DIGITS + 1 - code.bit_length()
    return set(range(code << down, code + 1 << down))


codes = st.integers(0, DIGITS).flatmap(lambda n: st.integers(1 << n, (2 << n) - 1))
several = st.lists(st.tuples(st.sampled_from("abcd"), codes), max_size=12, unique=True)
deltas = st.integers(0, 40)


# -- the print's three cases


def test_where_two_meet_their_region_is_streamed_once_for_them_and_all_below() -> None:
    """Algorithm 2: getQueries(n, relay) >= 2."""
    regions, served = merged({"a": "01", "b": "01", "c": "0110", "d": "10"})

    assert regions == {"01"}
    assert served == {"a:01", "b:01", "c:0110"}


def test_a_lone_one_with_more_below_it_is_split_so_that_the_parts_meet() -> None:
    """Algorithm 2: size(n, relay) > R_n + Δ."""
    regions, served = merged({"a": "0", "b": "011"})

    assert regions == {"011"}
    assert served == {"a:011", "b:011"}


def test_where_none_is_both_halves_are_looked_at() -> None:
    """Algorithm 2: getQueries(n, relay) == 0."""
    regions, served = merged({"a": "000", "b": "000", "c": "11", "d": "11"})

    assert regions == {"000", "11"}
    assert served == {"a:000", "b:000", "c:11", "d:11"}


def test_a_split_stream_meets_each_of_those_below_it() -> None:
    regions, served = merged({"a": "", "b": "00", "c": "111"})

    assert regions == {"00", "111"}
    assert served == {"a:00", "b:00", "a:111", "c:111"}


def test_a_region_is_not_looked_into_again() -> None:
    """Differs from the print: the second `if` is an `else if`, which would recurse twice into the same children."""
    streams = [("a", cell("0")), ("b", cell("0")), ("c", cell("00")), ("d", cell("00"))]

    regions, served = merge(streams, size, 0, DIGITS)

    assert regions == [cell("0")]
    assert Counter(served) == Counter(streams)


# -- what is not merged


def test_streams_that_share_nothing_are_not_merged() -> None:
    assert merged({"a": "00", "b": "01", "c": "1"}) == (set(), set())


def test_one_alone_is_not_merged() -> None:
    assert merged({"a": "0"}) == (set(), set())
    assert merged({}) == (set(), set())


def test_what_is_shared_by_no_more_than_delta_stays_whole() -> None:
    """Δ "limits extreme fragmentation": `b` has 8 points, and so much is not enough."""
    shared = {"a": "0", "b": "011"}

    assert merged(shared, delta=7) == ({"011"}, {"a:011", "b:011"})
    assert merged(shared, delta=8) == (set(), set())


def test_below_a_node_without_a_stream_twice_delta_has_to_lie() -> None:
    """Algorithm 2: size(n, relay) > 2Δ: two streams of 8 points."""
    equal = {"a": "011", "b": "011"}

    assert merged(equal, delta=7) == ({"011"}, {"a:011", "b:011"})
    assert merged(equal, delta=8) == (set(), set())


def test_it_stops_at_the_leaves() -> None:
    """Not in the print: cells of `digits` digits are not cut."""
    regions, served = merged({"a": "0", "b": "01"}, digits=1)

    assert (regions, served) == (set(), set())
    assert merged({"a": "0", "b": "01"}, digits=2) == ({"01"}, {"a:01", "b:01"})


# -- for all streams


@given(several, deltas)
def test_it_finds_what_the_print_finds(streams: Streams, delta: int) -> None:
    regions, served = merge(streams, size, delta, DIGITS)

    printed = merge_streams(streams, size, delta, DIGITS)

    assert sorted(regions) == sorted(printed[0])
    assert Counter(served) == Counter(printed[1])


@given(several, deltas)
def test_regions_are_disjoint_and_serve_parts_of_streams_inside_them(streams: Streams, delta: int) -> None:
    regions, served = merge(streams, size, delta, DIGITS)

    assert not any(contains(a, b) for a in regions for b in regions if a != b)
    assert len(set(regions)) == len(regions)
    for name, part in served:
        assert sum(contains(region, part) for region in regions) == 1
        assert any(contains(whole, part) for other, whole in streams if other == name)
    for region in regions:
        assert sum(part == region for _, part in served) >= 2


@given(several)
def test_without_delta_exactly_the_points_that_two_streams_share_are_merged(streams: Streams) -> None:
    """An oracle that knows no tree: count the streams of each of the finest cells."""
    counts = Counter(leaf for _, code in streams for leaf in leaves(code))

    regions, _ = merge(streams, size, 0, DIGITS)

    assert {leaf for region in regions for leaf in leaves(region)} == {c for c, n in counts.items() if n > 1}


@given(several)
def test_a_region_saves_all_that_is_served_from_it_but_one(streams: Streams) -> None:
    """Without Δ: in each of a region's finest cells, all streams that hold it are served by the region."""
    regions, served = merge(streams, size, 0, DIGITS)

    for region in regions:
        for leaf in leaves(region):
            held = Counter(name for name, code in streams if leaf in leaves(code))
            assert Counter(name for name, part in served if leaf in leaves(part)) == held


@given(several, deltas)
def test_more_delta_merges_no_more_points(streams: Streams, delta: int) -> None:
    less, _ = merge(streams, size, delta + 1, DIGITS)

    more, _ = merge(streams, size, delta, DIGITS)

    assert sum(map(size, less)) <= sum(map(size, more))
