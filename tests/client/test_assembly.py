"""Whole ticks from pieces, against an array that holds the whole grid."""

import random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oracles import Mask, query_mask
from sensorgrid.client.assembly import Assembly, Tick
from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import Fragment, decompose_box
from sensorgrid.model.block import Slab, cut
from sensorgrid.model.box import Box
from sensorgrid.model.errors import QueryError
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query
from sensorgrid.overlay.forwarding import wanted_of
from sensorgrid.overlay.messages import Clip
from sensorgrid.simulator.checkers import truth_of

EARTH = Grid(shape=(64, 32), tick=60, resolution_bits=(3, 2, 2), region_digits=2, value_bytes=8)
PLANE = Grid(
    extent=(0, 0, 16, 16), coordinates="planar", shape=(16, 16), tick=1, resolution_bits=(2, 2, 1), region_digits=2,
    value_bytes=8,
)  # fmt: skip
A, B = EARTH.attributes[:2]
RESOLUTIONS = st.integers(1, 8).map(lambda n: n / 8)


@st.composite
def queries(draw: st.DrawFn) -> tuple[Grid, Query]:
    grid = draw(st.sampled_from([EARTH, PLANE]))
    west, south = grid.extent[:2]
    x = st.integers(0, grid.shape[0]).map(lambda n: west + n * grid.spacing[0])
    y = st.integers(0, grid.shape[1]).map(lambda n: south + n * grid.spacing[1])
    w, e, s, n = draw(x), draw(x), *sorted((draw(y), draw(y)))
    if not grid.wraps:
        w, e = sorted((w, e))
    resolution = draw(st.tuples(RESOLUTIONS, RESOLUTIONS, RESOLUTIONS))
    query = Query(draw(st.sampled_from([(A,), (A, B)])), (w, s, e, n), resolution)
    try:
        query.box(grid)
    except QueryError:
        assume(False)
    return grid, query


def mask_of(query: Query, grid: Grid) -> Mask:
    return query_mask(grid, query.box(grid), query.limits(grid))


def pieces_of(grid: Grid, query: Query, depth: int) -> list[int]:
    return decompose_box(query.box(grid), query.limits(grid), grid, depth).codes


def block(
    grid: Grid, query: Query, attribute: int, cell: int, tick: int, revision: int = 0
) -> tuple[Slab, ...]:
    """What a broker sends of a piece."""
    ny, nx = grid.shape[1], grid.shape[0]
    whole = Slab((0, ny, 1), (0, nx, 1), truth_of(attribute, tick, revision, grid))
    return cut([whole], wanted_of(grid, cell, clip_of(grid, query)), tick)


def clip_of(grid: Grid, query: Query) -> Clip:
    box = query.box(grid)
    return Clip((box.x0, box.x1, box.y0, box.y1), query.limits(grid))


def expected(assembly: Assembly, tick: int, revision: int = 0) -> np.ndarray:
    """The oracle: the wanted rows and columns of the whole array, by the mask of the model's own tests."""
    grid, query = assembly.grid, assembly.query
    columns = assembly.x.indices % grid.shape[0]
    fields = []
    for name in query.attributes:
        truth = truth_of(grid.attributes.index(name), tick, revision, grid)
        fields.append(truth[np.ix_(assembly.y.indices, columns)])
    return np.stack(fields)


def drain(assembly: Assembly) -> list[Tick]:
    found = []
    while (tick := assembly.take()) is not None:
        found.append(tick)
    return found


@given(queries(), st.integers(0, 6), st.randoms(use_true_random=False), st.integers(0, 9))
def test_whole_ticks_come_in_order_with_exactly_the_asked_points(
    asked: tuple[Grid, Query], depth: int, rng: random.Random, start: int
) -> None:
    grid, query = asked
    assembly = Assembly(grid, query, start, start + 8)
    places = [grid.attributes.index(name) for name in query.attributes]
    streams = [
        [(a, cell, t) for t in range(start, start + 8)]
        for a in places
        for cell in pieces_of(grid, query, depth)
    ]
    got: list[Tick] = []
    while streams:
        stream = rng.choice(streams)
        attribute, cell, tick = stream.pop(0)
        assembly.add(attribute, tick, 0, block(grid, query, attribute, cell, tick))
        streams = [s for s in streams if s]
        got += drain(assembly)

    mask = mask_of(query, grid)
    period = 1 << grid.resolution_bits[2]
    ticks = [t for t in range(start, start + 8) if mask[t % period].any()]
    assert [t.tick for t in got] == ticks
    for tick in got:
        assert np.array_equal(tick.values, expected(assembly, tick.tick))
        assert (tick.missing, tick.revision, tick.gaps) == (0, 0, ())
        assert tick.values[0].size == mask[tick.tick % period].sum()
    assert assembly.doubled == 0
    assert assembly.ended or not ticks or assembly.next >= start + 8


@given(queries())
def test_rows_and_columns_are_those_of_the_mask(asked: tuple[Grid, Query]) -> None:
    grid, query = asked
    mask = mask_of(query, grid)
    assembly = Assembly(grid, query, 0)

    seen = np.zeros_like(mask[0])
    seen[np.ix_(assembly.y.indices, assembly.x.indices % grid.shape[0])] = True

    assert np.array_equal(seen, mask.any(axis=0))
    assert (np.diff(assembly.x.indices) > 0).all()
    assert len(set(assembly.x.indices % grid.shape[0])) == len(assembly.x)


@given(queries(), st.integers(1, 9), st.randoms(use_true_random=False))
def test_gaps_are_counted_and_named_and_data_replace_them(
    asked: tuple[Grid, Query], depth: int, rng: random.Random
) -> None:
    grid, query = asked
    box, limits = query.box(grid), query.limits(grid)
    assembly = Assembly(grid, query, 0, 8)
    cells = pieces_of(grid, query, depth)
    lost = {
        (a, cell)
        for a in map(grid.attributes.index, query.attributes)
        for cell in cells
        if rng.random() < 0.4
    }
    found_again = {key for key in sorted(lost) if rng.random() < 0.3}
    events = []
    for attribute in map(grid.attributes.index, query.attributes):
        for cell in cells:
            if (attribute, cell) in lost:
                events.append((rng.random(), attribute, cell, None))
                if (attribute, cell) in found_again:
                    events += [(1 + rng.random(), attribute, cell, t) for t in range(8)]
            else:
                events += [(rng.random() + (2 if lost else 0), attribute, cell, t) for t in range(8)]
    got: list[Tick] = []
    for when, attribute, cell, tick in sorted(events, key=lambda e: e[0]):
        if tick is None:
            assembly.add_gap(attribute, box, limits, cell, 0, 8)
        else:
            assembly.add(attribute, tick, 0, block(grid, query, attribute, cell, tick))
        if when > 2:  # not 2, to which 1 + random() may be rounded: all gaps and what replaces them have come
            got += drain(assembly)
    got += drain(assembly)

    period = 1 << grid.resolution_bits[2]
    assert [t.tick for t in got] == [t for t in range(8) if mask_of(query, grid)[t % period].any()]
    for tick in got:
        blanks = np.isnan(tick.values)
        assert tick.missing == blanks.sum()
        assert bool(tick.gaps) == bool(tick.missing)
        assert np.array_equal(tick.values[~blanks], expected(assembly, tick.tick)[~blanks])
        away = sum(
            slab.points for a, cell in lost - found_again for slab in block(grid, query, a, cell, tick.tick)
        )
        assert tick.missing == away
    assert assembly.doubled == 0


def test_a_gap_of_a_piece_that_has_points_on_some_ticks_only_leaves_the_others_alone() -> None:
    query = Query(A, (0, 0, 45, 45))
    box, limits = query.box(EARTH), query.limits(EARTH)
    cells = pieces_of(EARTH, query, 9)
    even = [c for c in cells if Fragment(Cell(c), box, limits, 0).slices(EARTH)[0].ticks == (0, 2)]
    assembly = Assembly(EARTH, query, 0)
    assert 0 < len(even) < len(cells)

    for cell in even:
        assembly.add_gap(0, box, limits, cell, 0, 4)
    first = assembly.take()
    second = assembly.take()
    for cell in cells:
        if cell not in even:
            assembly.add(0, 1, 0, block(EARTH, query, 0, cell, 1))
    third = assembly.take()

    assert first is not None
    assert (first.tick, first.missing) == (0, assembly.points)
    assert second is None
    assert third is not None
    assert (third.tick, third.missing) == (1, 0)


def test_a_long_gap_takes_no_memory_and_every_tick_of_it_is_given() -> None:
    query = Query(A, resolution=(1, 1, 0.5))
    assembly = Assembly(EARTH, query, 0)
    assembly.add_gap(0, query.box(EARTH), query.limits(EARTH), 1, 0, 10_000_000)

    ticks = [assembly.take() for _ in range(5)]

    assert [t.tick for t in ticks if t is not None] == [0, 2, 4, 6, 8]
    assert all(t is not None and t.missing == 64 * 32 and np.isnan(t.values).all() for t in ticks)
    assert len(assembly._partial) == 0


def test_points_that_come_twice_are_counted_and_the_first_stay() -> None:
    query = Query(A, (0, 0, 45, 45))
    assembly = Assembly(EARTH, query, 0)
    slabs = block(EARTH, query, 0, 1, 0)
    other = tuple(Slab(s.y, s.x, s.values + 1) for s in slabs)
    half = Slab((16, 24, 1), (32, 36, 1), slabs[0].values[:, :4])

    assembly.add(0, 0, 0, [half])
    assembly.add(0, 0, 0, other)

    (tick,) = drain(assembly)
    assert assembly.doubled == half.points
    assert np.array_equal(tick.values[0][:, :4], half.values)
    assert np.array_equal(tick.values[0][:, 4:], other[0].values[:, 4:])


def test_a_higher_revision_replaces_a_lower_one_before_the_tick_is_given_and_not_the_other_way_round() -> (
    None
):
    query = Query(A, (0, 0, 45, 45))
    first, second = Query(A, (0, 0, 22.5, 45)), Query(A, (22.5, 0, 45, 45))
    for order in ((0, 1), (1, 0)):
        assembly = Assembly(EARTH, query, 0)
        for revision in order:
            assembly.add(0, 0, revision, block(EARTH, first, 0, 1, 0, revision))
        assembly.add(0, 0, 0, block(EARTH, second, 0, 1, 0))

        (tick,) = drain(assembly)

        assert np.array_equal(tick.values[0][:, :4], expected(assembly, 0, 1)[0][:, :4])
        assert np.array_equal(tick.values[0][:, 4:], expected(assembly, 0, 0)[0][:, 4:])
        assert tick.revision == 1
        assert assembly.doubled == 0


def test_a_tick_that_was_given_is_given_again_only_if_that_was_asked_for() -> None:
    query = Query(A, (0, 0, 45, 45))
    for revisions in (False, True):
        assembly = Assembly(EARTH, query, 0, revisions=revisions, lateness=3)
        for tick in range(5):
            assembly.add(0, tick, 0, block(EARTH, query, 0, 1, tick))
        given_before = drain(assembly)
        part = Query(A, (0, 0, 22.5, 45))
        for tick in (0, 3):  # 0 is later than the lateness
            assembly.add(0, tick, 1, block(EARTH, part, 0, 1, tick, 1))
        assembly.add(0, 4, 0, block(EARTH, query, 0, 1, 4))

        again = []
        while (tick := assembly.take_revised()) is not None:
            again.append(tick)

        assert len(given_before) == 5
        assert [(t.tick, t.revision, t.again) for t in again] == ([(3, 1, True)] if revisions else [])
        for tick in again:
            assert np.array_equal(tick.values[0][:, :4], expected(assembly, 3, 1)[0][:, :4])
            assert np.array_equal(tick.values[0][:, 4:], expected(assembly, 3, 0)[0][:, 4:])
        assert np.array_equal(given_before[3].values, expected(assembly, 3))  # what was given stays as it was


def test_an_assembly_is_full_when_one_part_lags_behind_and_starts_again_from_its_next_tick() -> None:
    query = Query(A, (0, 0, 45, 45))
    assembly = Assembly(EARTH, query, 0, ahead_max=4)
    part = Query(A, (0, 0, 22.5, 45))
    for tick in range(5):
        assert not assembly.full
        assembly.add(0, tick, 0, block(EARTH, part, 0, 1, tick))

    assert assembly.full
    assembly.reset()
    assert not assembly.full
    assembly.add(0, 0, 0, block(EARTH, query, 0, 1, 0))
    assert [t.tick for t in drain(assembly)] == [0]
    assert assembly.doubled == 0


def test_columns_go_on_across_the_date_line_and_around_the_earth_begin_where_the_query_says() -> None:
    across = Assembly(EARTH, Query(A, (170, -90, -170, 90)), 0)
    around = Assembly(EARTH, Query(A, (0, -90, 360, 90), 0.5), 0)

    assert across.x.indices.tolist() == [62, 63, 64, 65]
    assert around.x.indices.tolist() == list(range(32, 96, 2))


def test_what_is_outside_a_value_range_is_blank() -> None:
    query = Query(A, (0, 0, 45, 45), where={A: (1070, None)})
    assembly = Assembly(EARTH, query, 0)
    assembly.add(0, 0, 0, block(EARTH, query, 0, 1, 0))

    (tick,) = drain(assembly)

    truth = expected(assembly, 0)
    assert np.array_equal(np.isnan(tick.values), truth < 1070)
    assert tick.missing == 0


@pytest.mark.parametrize("wanted", [Box(0, 8, 0, 8), Box(3, 5, 1, 2)])
def test_what_is_more_than_was_asked_for_is_left_out(wanted: Box) -> None:
    query = Query(A, PLANE.bbox_of(wanted))
    assembly = Assembly(PLANE, query, 0)
    whole = Slab((0, 16, 1), (0, 16, 1), truth_of(0, 0, 0, PLANE))

    assembly.add(0, 0, 0, [whole])
    assembly.add(5, 0, 0, [whole])

    (tick,) = drain(assembly)
    assert np.array_equal(tick.values[0], whole.values[wanted.y0 : wanted.y1, wanted.x0 : wanted.x1])


@pytest.mark.parametrize("revision", [32_765, 32_766, 1 << 31])
def test_a_revision_beyond_all_measure_is_the_highest_there_is(revision: int) -> None:
    query = Query(A)
    assembly = Assembly(EARTH, query, 0, revisions=True)
    assembly.add(0, 0, 1, block(EARTH, query, 0, 1, 0, 1))
    drain(assembly)

    assembly.add(0, 0, revision, block(EARTH, query, 0, 1, 0, 2))
    assembly.add(0, 0, revision + 1, block(EARTH, query, 0, 1, 0, 3))

    tick = assembly.take_revised()
    assert tick is not None
    assert tick.revision == 32_765
    assert np.array_equal(tick.values, expected(assembly, 0, 2))


def test_what_rests_on_no_observation_is_known_point_by_point_and_cleared_by_a_revision() -> None:
    query = Query(A, None, 1)
    assembly = Assembly(PLANE, query, 0, revisions=True)
    west, east = (
        Slab((0, 16, 1), x, np.zeros((16, 8)), silent_s)
        for x, silent_s in (((0, 8, 1), float("inf")), ((8, 16, 1), None))
    )
    assembly.add(0, 0, 0, [west, east])
    first = assembly.take()
    assembly.add(0, 0, 2, [Slab((0, 16, 1), (0, 4, 1), np.ones((16, 4)))])
    assembly.add(0, 0, 1, [Slab((0, 16, 1), (0, 12, 1), np.ones((16, 12)), 60.0)])
    again = assembly.take_revised()

    assert first is not None
    assert again is not None
    assert first.silent_s is not None
    assert np.isinf(first.silent_s[0, :, :8]).all()
    assert np.isnan(first.silent_s[0, :, 8:]).all()
    assert again.silent_s is not None
    assert np.isnan(again.silent_s[0, :, :4]).all()
    assert (again.silent_s[0, :, 4:12] == 60).all()
    assert np.isnan(again.silent_s[0, :, 12:]).all()


def test_a_tick_that_rests_on_observations_alone_carries_nothing_about_it() -> None:
    assembly = Assembly(PLANE, Query(A, None, 1), 0)
    assembly.add(0, 0, 0, [Slab((0, 16, 1), (0, 16, 1), np.zeros((16, 16)))])

    tick = assembly.take()

    assert tick is not None
    assert tick.silent_s is None
