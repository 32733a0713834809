"""Links by prefixes of IDs, against their definition in plain words (operators paper, III-A and Figure 3)."""

from random import Random
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay import prefixes
from sensorgrid.overlay.placement import Draft
from sensorgrid.overlay.prefixes import BESIDE, EACH, LINKS_MAX, PrefixLinks
from sensorgrid.overlay.roster import Member, Region, Roster, Terms
from sensorgrid.overlay.settings import Settings

DIGITS = 12


@st.composite
def spread(draw: st.DrawFn) -> dict[PeerId, int]:
    """Brokers at places: evenly, or most of them in a few small cells."""
    size = draw(st.integers(1, 60))
    crowded = draw(st.booleans())
    bits = draw(st.integers(1, 4))
    corners = draw(st.lists(st.integers(0, (1 << DIGITS) - 1), min_size=1, max_size=3))
    anywhere = st.integers(0, (1 << DIGITS) - 1)
    near = st.builds(lambda c, low: c >> bits << bits | low, st.sampled_from(corners), st.integers(0, 15))
    places = draw(
        st.lists(near if crowded else anywhere, min_size=1, max_size=size, unique=True).map(
            lambda found: [place & (1 << DIGITS) - 1 for place in found]
        )
    )
    return {PeerId(number): place for number, place in enumerate(dict.fromkeys(places))}


def digits_of(place: int) -> list[int]:
    return [place >> shift & 3 for shift in range(DIGITS - 2, -1, -2)]


def by_definition(places: dict[PeerId, int]) -> dict[PeerId, set[PeerId]]:
    """All links, from the words of the module's docstring, everybody compared with everybody."""
    order = sorted(places, key=lambda broker: places[broker])
    wishes: dict[PeerId, list[PeerId]] = {broker: [] for broker in places}
    for index, broker in enumerate(order):
        for step in range(1, BESIDE + 1):
            for other in (order[(index + step) % len(order)], order[(index - step) % len(order)]):
                if other != broker:
                    wishes[broker].append(other)
    for level in range(DIGITS // 2):
        low = (1 << DIGITS - 2 * level - 2) - 1
        cells: dict[tuple[int, ...], list[PeerId]] = {}
        for broker in order:
            cells.setdefault(tuple(digits_of(places[broker])[: level + 1]), []).append(broker)
        for cell, brokers in cells.items():
            for pattern in range(4):
                others = cells.get((*cell[:-1], pattern), []) if pattern != cell[-1] else []
                if not others:
                    continue
                for mirrored in (False, True)[: 2 if low else 1]:

                    def apart(a: PeerId, b: PeerId, low: int = low, mirrored: bool = mirrored) -> int:
                        there = low - (places[a] & low) if mirrored else places[a] & low
                        return abs(there - (places[b] & low))

                    def chosen(broker: PeerId, mine: list[PeerId], theirs: list[PeerId]) -> list[PeerId]:
                        def first(of: PeerId, among: list[PeerId]) -> PeerId:
                            return min(among, key=lambda b: (apart(of, b), places[b]))

                        found = [b for b in theirs if b == first(broker, theirs) or broker == first(b, mine)]
                        return sorted(found, key=lambda b: (apart(broker, b), places[b]))[:EACH]

                    for broker in brokers:
                        wishes[broker] += [
                            other
                            for other in chosen(broker, brokers, others)
                            if broker in chosen(other, others, brokers)
                        ]
    kept = {broker: list(dict.fromkeys(wished))[:LINKS_MAX] for broker, wished in wishes.items()}
    return {broker: {o for o in kept[broker] if broker in kept[o]} for broker in places}


@given(spread())
@settings(deadline=None)
def test_links_are_what_their_definition_says(places: dict[PeerId, int]) -> None:
    links = PrefixLinks(places, DIGITS)

    assert {broker: set(links.of(broker)) for broker in places} == by_definition(places)


@given(spread(), st.integers(5, 8))
@settings(deadline=None)
def test_links_have_two_ends_are_few_and_lead_everywhere(places: dict[PeerId, int], most: int) -> None:
    usual, prefixes.LINKS_MAX = prefixes.LINKS_MAX, most  # so few that there is not room for all
    try:
        links = PrefixLinks(places, DIGITS)

        for broker in places:
            assert len(links.of(broker)) <= most
            assert broker not in links.of(broker)
            assert all(broker in links.of(other) for other in links.of(broker))
        for me in places:
            for to in places:
                way = links.way(me, to)
                assert len(way) <= len(places)
                assert [me, *way][-1] == to
    finally:
        prefixes.LINKS_MAX = usual


def roster_of(members: list[Member]) -> Roster:
    terms = Terms.of(Grid(), Settings(budget=1, depth=DIGITS))
    return Roster(1, terms, tuple(members), (Region(0, 1, members[0].id, 1),))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, (1 << DIGITS) - 1)), max_size=40))
@settings(deadline=None)
def test_tables_after_any_history_equal_a_fresh_build(history: list[tuple[bool, int, int]]) -> None:
    roster = roster_of([Member(PeerId(99), place=77)])
    for comes, number, place in history:
        draft = Draft(roster)
        if comes:
            draft.join(Member(PeerId(number), place=place, relay=number % 7 == 6))
        else:
            draft.remove({PeerId(number)})
        roster = draft.done() or roster
        PrefixLinks.of_roster(roster).of(PeerId(99))

    fresh = roster_of(sorted(roster.members, key=lambda member: member.place))

    after, anew = PrefixLinks.of_roster(roster), PrefixLinks.of_roster(fresh)
    assert {b: after.of(b) for b in roster.by_id} == {b: anew.of(b) for b in roster.by_id}


def test_one_that_wants_no_regions_finds_everybody_and_is_nobodys_link() -> None:
    members = [Member(PeerId(n), place=n << 6) for n in range(40)]
    roster = roster_of([*members, Member(PeerId(50), relay=True), Member(PeerId(51), relay=True)])
    links = PrefixLinks.of_roster(roster)

    assert all(links.way(PeerId(50), m.id)[-1] == m.id for m in members)
    assert not any(PeerId(50) in links.of(m.id) for m in members)
    assert links.of(PeerId(50)) != links.of(PeerId(51))
    assert links.next_hop(PeerId(0), PeerId(50)) is None


@given(spread(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_around_links_that_are_down_a_word_still_arrives(places: dict[PeerId, int], rng: Random) -> None:
    """As long as the two beside each broker are there."""
    links = PrefixLinks(places, DIGITS)
    order = sorted(places, key=lambda broker: places[broker])
    for me in order[:10]:
        to, at, hops = rng.choice(order), me, 0
        while at != to:
            beside = links.of(at)[: 2 * BESIDE]
            up = {*beside, *(link for link in links.of(at) if rng.random() < 0.3)}
            hop = links.next_hop(at, to, up)
            assert hop in up
            at, hops = hop, hops + 1
            assert hops <= len(places)


def test_an_odd_number_of_digits_leaves_half_a_digit_at_the_end() -> None:
    places = {PeerId(n): n for n in range(8)}
    links = PrefixLinks(places, 3)

    assert all(links.way(a, b)[-1] == b for a in places for b in places if a != b)


@pytest.mark.parametrize("seed", range(3))
def test_a_word_takes_few_hops_among_500(seed: int) -> None:
    rng = Random(seed)
    places = dict(enumerate(rng.sample(range(1 << 20), 500)))
    links = PrefixLinks({PeerId(n): place for n, place in places.items()}, 20)

    hops = [len(links.way(PeerId(rng.randrange(500)), PeerId(rng.randrange(500)))) for _ in range(1000)]

    assert mean(hops) <= 3.2
    assert max(len(links.of(PeerId(n))) for n in places) <= LINKS_MAX
