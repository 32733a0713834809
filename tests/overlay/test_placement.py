"""Who is responsible for what, and what a roster becomes when brokers come and go: against counting by hand."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.placement import (
    Draft,
    _parted,
    balanced,
    free_place,
    place_between,
    responsible,
    ring,
)
from sensorgrid.overlay.roster import Member, Region, Roster, Terms
from sensorgrid.overlay.settings import Settings

GRID = Grid(
    shape=(16, 16), region_digits=3, attributes=("air_temperature", "relative_humidity"), resolution_bits=1
)
TERMS = Terms.of(GRID, Settings(budget=1, depth=5))
PLACES = 1 << 5


def founded(places: list[int]) -> Roster:
    """A roster in which everybody owns what it is responsible for."""
    members = tuple(Member(PeerId(n), place=place) for n, place in enumerate(places))
    regions = tuple(Region(a, 8 + n, PeerId(0), 1) for a in range(2) for n in range(8))
    roster = Roster(1, TERMS, members, regions)
    owner = responsible(roster)
    owned = tuple(Region(r.attribute, r.cell, owner[r.attribute, r.cell], 1) for r in regions)
    return Roster(1, TERMS, members, owned)


def by_hand(places: dict[int, int], cell: int) -> int:
    """Walk down the line from the region's first ID, around the start, to the first place."""
    at = (cell - 8) << 2
    holder = {place: broker for broker, place in places.items()}
    while at not in holder:
        at = (at - 1) % PLACES
    return holder[at]


some_places = st.lists(st.integers(0, PLACES - 1), min_size=1, max_size=8, unique=True)


@given(some_places)
def test_a_region_belongs_to_the_last_place_before_its_first_id(places: list[int]) -> None:
    roster = founded(places)

    for (_, cell), owner in responsible(roster).items():
        assert owner == by_hand(dict(enumerate(places)), cell)
    assert [roster.by_id[peer].place for peer in ring(roster)] == sorted(places)
    assert roster.fault(GRID) == ""


@given(some_places, st.integers(0, PLACES - 1))
def test_a_newcomer_takes_from_one_broker_and_only_what_lies_behind_it(places: list[int], place: int) -> None:
    before = founded(places)
    draft = Draft(before)

    draft.join(Member(PeerId(99), place=place))
    draft.inherit(PeerId(99))
    after = draft.done()

    assert after is not None
    assert after.fault(GRID, before) == ""
    assert len({m.place for m in after.members}) == len(places) + 1
    taken = [r for r in after.regions if r.heir == 99]
    assert len({r.owner for r in taken}) <= 1
    assert {r.cell for r in taken} == {c for (_, c), o in responsible(after).items() if o == 99}
    assert [(r.owner, r.epoch) for r in after.regions] == [(r.owner, r.epoch) for r in before.regions]


@given(some_places.filter(lambda places: len(places) > 1), st.data())
def test_the_regions_of_those_who_are_gone_go_to_their_predecessors_and_no_others_move(
    places: list[int], data: st.DataObject
) -> None:
    before = founded(places)
    gone = data.draw(st.sets(st.integers(0, len(places) - 1), min_size=1, max_size=len(places) - 1))
    draft = Draft(before)

    draft.remove({PeerId(n) for n in gone})
    after = draft.done()

    assert after is not None
    assert after.fault(GRID, before) == ""
    left = {n: place for n, place in enumerate(places) if n not in gone}
    for old, new in zip(before.regions, after.regions, strict=True):
        assert new.owner == by_hand(left, new.cell)
        assert new.epoch == old.epoch + (old.owner in gone)


@given(some_places, st.integers(0, PLACES - 1))
def test_a_free_place_is_free_and_the_next_one(places: list[int], place: int) -> None:
    found = free_place(founded(places), place)

    if len(places) < PLACES:
        assert found not in places
        assert all((place + n) % PLACES in places for n in range((found - place) % PLACES))


@given(some_places.filter(lambda places: len(places) < 8))
def test_a_newcomer_goes_where_most_regions_are_and_takes_about_half(places: list[int]) -> None:
    before = founded(places)
    most = max(len({r.cell for r in regions}) for regions in before.by_owner.values())
    draft = Draft(before)

    draft.join(Member(PeerId(99), place=place_between(before)))
    draft.inherit(PeerId(99))
    after = draft.done()

    assert after is not None
    taken = {r.cell for r in after.regions if r.heir == 99}
    if most > 1:
        assert 1 <= len(taken) <= -(-most // 2)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9), st.integers(1, 5))
def test_runs_are_as_even_as_can_be(loads: list[float], parts: int) -> None:
    starts = _parted(loads, parts)

    def heaviest(cuts: tuple[int, ...]) -> float:
        ends = [0, *cuts, len(loads)]
        return max(sum(loads[a:b]) for a, b in pairwise(ends))

    best = min(
        heaviest(cuts)
        for number in range(parts)
        for cuts in combinations(range(1, len(loads)), min(number, len(loads) - 1))
    )
    assert len(starts) == parts
    assert heaviest(tuple(s for s in starts[1:] if s < len(loads))) <= best * (1 + 1e-9) + 1e-9


@given(some_places, st.lists(st.floats(0, 100), min_size=16, max_size=16))
def test_load_moves_only_if_it_is_uneven_and_never_to_make_it_worse(
    places: list[int], loads: list[float]
) -> None:
    roster = founded(places)
    load = dict(zip(roster.by_cell, loads, strict=True))

    def heaviest(owner: dict[tuple[int, int], PeerId]) -> float:
        held: dict[PeerId, float] = {}
        for key, who in owner.items():
            held[who] = held.get(who, 0.0) + load[key]
        return max(held.values())

    before = heaviest(responsible(roster))
    moves = balanced(roster, load)

    draft = Draft(roster)
    draft.move(moves)
    after = draft.done()
    if after is None:
        assert not moves
        return
    assert before > 1.25 * sum(loads) / len(places)
    assert len({m.place for m in after.members}) == len(places)
    assert heaviest(responsible(after)) <= before + 1e-9
