"""Which broker relays: the strategies of the relays paper, section 4, "Relay Selection"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.policies.relays import NAMES, STRATEGIES, RelayError, Relays, Sight

INF = float("inf")
DST = 9


def sight(here: dict[int, float], there: dict[int, float], direct: float) -> Sight:
    """A map: delays from here to the candidates, from these to the receiver, and the direct one."""
    near = tuple(PeerId(n) for n in sorted(here, key=lambda n: (here[n], n)))
    mine = {**here, DST: direct}
    return Sight(
        PeerId(DST),
        near,
        lambda peer: mine.get(peer, INF),
        lambda n: 0.0 if n == DST else there.get(n, INF),
    )


def choose(name: str, here: dict[int, float], there: dict[int, float], direct: float) -> int:
    """What a strategy chooses on a map."""
    return STRATEGIES[name](sight(here, there, direct))


LINE = ({1: 2.0, 2: 5.0, 3: 8.0, 4: 3.0}, {1: 8.0, 2: 5.5, 3: 3.0, 4: 13.0}, 10.0)
"""1 and 2 lie on the way to a receiver that is 10 away, 3 a little beside it, nearer to it; 4 lies behind"""


# -- by the paper's words, on a line


def test_closest_to_destination_takes_the_relay_topologically_closest_to_the_receiver() -> None:
    assert choose("CTD", *LINE) == 3


def test_closest_to_source_takes_the_first_neighbour_that_is_closer_to_the_receiver() -> None:
    """ "First, the neighbors are sorted by increasing distance to the originating broker"."""
    assert choose("CTS", *LINE) == 1


def test_farthest_from_source_takes_the_last_of_them() -> None:
    here, there, direct = LINE

    assert choose("FFS", here, there, direct) == 3
    assert choose("FFS", {**here, 1: 9.0}, there, direct) == 1


def test_closest_to_path_takes_the_shortest_way_over_a_neighbour() -> None:
    """Algorithm 1: 1 is 2 + 8, 2 is 5 + 5.5, 3 is 8 + 3, and 4 is not closer."""
    assert choose("CTP", *LINE) == 1


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_receiver_itself_is_chosen_if_nobody_is_closer_to_it(name: str) -> None:
    """ "If no suitable relay broker is found in the local neighborhood, the target broker is selected as relay"."""
    assert choose(name, {1: 1.0, 2: 2.0}, {1: 4.0, 2: 5.0}, 3.0) == DST
    assert choose(name, {}, {}, 3.0) == DST


@pytest.mark.parametrize("name", STRATEGIES)
def test_who_does_not_know_the_receiver_does_not_relay_to_it(name: str) -> None:
    assert choose(name, {1: 1.0}, {}, 3.0) == DST
    assert choose(name, {1: 1.0}, {}, INF) == DST


def test_closest_to_path_lets_equal_delays_pass_and_the_others_do_not() -> None:
    """As printed: `getDelay(n, dst) > getDelay(this, dst)` is skipped, so what is equally far is not."""
    chosen = {name: choose(name, {1: 1.0}, {1: 3.0}, 3.0) for name in STRATEGIES}

    assert chosen == {"CTD": DST, "CTS": DST, "FFS": DST, "CTP": 1}


def test_closest_to_path_never_compares_with_the_direct_way() -> None:
    """As printed: a detour of three times the direct way is taken if it is the shortest over a neighbour."""
    assert choose("CTP", {1: 6.0}, {1: 3.0}, 3.0) == 1


# -- ties


def test_of_two_equally_close_to_the_receiver_the_nearer_one_relays_then_the_smaller() -> None:
    assert choose("CTD", {1: 3.0, 2: 2.0}, {1: 1.0, 2: 1.0}, 5.0) == 2
    assert choose("CTD", {2: 2.0, 1: 2.0}, {1: 1.0, 2: 1.0}, 5.0) == 1


def test_of_two_equally_far_the_smaller_relays() -> None:
    assert choose("CTS", {2: 2.0, 1: 2.0}, {1: 1.0, 2: 1.0}, 5.0) == 1
    assert choose("FFS", {2: 2.0, 1: 2.0}, {1: 1.0, 2: 1.0}, 5.0) == 1


def test_of_two_ways_of_the_same_length_the_one_over_the_nearer_is_taken_then_the_smaller() -> None:
    assert choose("CTP", {1: 3.0, 2: 2.0}, {1: 1.0, 2: 2.0}, 5.0) == 2
    assert choose("CTP", {2: 2.0, 1: 2.0}, {1: 2.0, 2: 2.0}, 5.0) == 1


# -- for all maps

delays = st.one_of(st.integers(0, 6).map(float), st.just(INF))
tables = st.dictionaries(st.integers(0, 9), delays, max_size=8)


def brute(name: str, here: dict[int, float], there: dict[int, float], direct: float) -> int:
    """All candidates that the paper allows, ranked by all that counts, the best first."""
    far = {n: 0.0 if n == DST else there.get(n, INF) for n in here}
    closer = [n for n in here if far[n] < direct]
    ranks = {
        "CTD": [(far[n], here[n], n) for n in closer],
        "CTS": [(here[n], n) for n in closer],
        "FFS": [(-here[n], n) for n in closer],
        "CTP": [(here[n] + far[n], here[n], n) for n in here if far[n] <= direct and here[n] + far[n] < INF],
    }[name]
    return min(ranks)[-1] if ranks else DST  # type: ignore[return-value]


@pytest.mark.parametrize("name", STRATEGIES)
@given(tables, tables, delays)
def test_every_strategy_chooses_what_trying_all_neighbours_would(
    name: str, here: dict[int, float], there: dict[int, float], direct: float
) -> None:
    if DST in here:
        here[DST] = direct

    assert choose(name, here, there, direct) == brute(name, here, there, direct)


# -- the profile


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_can_be_chosen_by_its_name(name: str) -> None:
    assert Relays(name).strategy == name


def test_a_strategy_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(RelayError, match=r"relay strategy: found 'CTX', expected one of DIRECT, CTD, .*TREE"):
        Relays("CTX")


@pytest.mark.parametrize("name", ["k", "measure_s", "review_s", "optimise_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_numbers_that_must_be_positive_are(name: str, value: float) -> None:
    with pytest.raises(RelayError, match=rf"{name}: found {value}, expected a positive number"):
        Relays(**{name: value})


@pytest.mark.parametrize("name", ["delta", "hysteresis", "added_s"])
@pytest.mark.parametrize("value", [-1, -0.5, float("nan")])
def test_numbers_that_must_not_be_negative_are_not(name: str, value: float) -> None:
    with pytest.raises(RelayError, match=rf"{name}: found {value}, expected 0 or more"):
        Relays(**{name: value})


def test_a_relay_error_is_one_of_ours_and_a_value_error() -> None:
    assert issubclass(RelayError, SensorGridError)
    assert issubclass(RelayError, ValueError)
