"""How far other brokers are: measured, smoothed, exchanged (relays, section 4, "Neighborhood Maintenance")."""

import pytest

from distances import Surveyor, pinged
from hands import ANNA, LoneBroker, dialled, sent
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.events import Learned, Routed
from sensorgrid.overlay.mechanisms.neighbourhood import FIRST_MAX, KNOWN_MAX, TURNS, Neighbourhood
from sensorgrid.overlay.messages import Ping, Pong, Shifted
from sensorgrid.overlay.policies.relays import Relays
from sensorgrid.overlay.roster import Member

PERIOD = 30.0
FAR = {1: 0.010, 2: 0.020, 3: 0.030}


def surveyor(far: dict[int, float] = FAR, k: int = 2, **more: object) -> Surveyor:
    """Broker 0 with its distances measured once."""
    broker = Surveyor(far, Relays("CTP", k=k, measure_s=PERIOD), **more)  # type: ignore[arg-type]
    broker.wait(1)
    return broker


def view_of(broker: Surveyor, peer: int) -> dict[int, tuple[float, int | None]]:
    """What a peer sees, as the broker has heard."""
    return {
        other: (seen.delay_s, seen.hops)
        for other, seen in broker.boards.distances.views[PeerId(peer)].items()
    }


# -- measuring


def test_all_brokers_of_the_assignment_are_measured_first() -> None:
    """ "Initially, all the brokers from the information about the region assignment are added"."""
    broker = LoneBroker(others={"001": 4}, brokers=(0, 1, 2), relays=Relays("CTP"))

    assert sorted(dialled(broker.log)) == [1, 2, 4]
    assert len(sent(broker.up(1), Ping, 1)) == 1


def test_without_relays_nobody_is_measured() -> None:
    for relays in (None, Relays("DIRECT")):
        broker = LoneBroker(brokers=(1, 2), relays=relays)
        broker.up(1, 2)

        assert sent(broker.log + broker.wait(100), Ping) == []


def test_the_delay_is_half_of_the_round_trip() -> None:
    broker = surveyor()

    assert [broker.delay(peer) for peer in FAR] == pytest.approx([0.010, 0.020, 0.030])


def test_the_time_to_open_a_connection_is_no_distance() -> None:
    """What was asked while it was being dialled comes too late to measure with: it is asked again."""
    broker = LoneBroker(brokers=(1,), relays=Relays("CTP"))
    broker.now = 0.5
    (first,) = sent(broker.up(1), Ping, 1)
    broker.now = 0.6
    (second,) = sent(broker.say(1, Pong(first.at, ())), Ping, 1)
    early = dict(broker.boards.distances.delays)
    broker.now = 0.7
    broker.say(1, Pong(second.at, ()))

    assert early == {}
    assert broker.boards.distances.delays[1].delay_s == pytest.approx(0.05)


def test_a_later_roster_measures_only_who_is_new() -> None:
    broker = surveyor()

    held = broker.boards.roster.current
    effects = broker.feed(Learned(held.next(members=tuple(Member(PeerId(p)) for p in (0, 1, 2, 3, 8)))))

    assert pinged(effects) == [8]


def test_so_many_are_measured_for_the_first_time_in_one_period() -> None:
    many = dict.fromkeys(range(1, FIRST_MAX + 20), 0.01)

    broker = surveyor(many)
    first = len(broker.boards.distances.delays)
    broker.period()
    broker.wait(1)

    assert (first, len(broker.boards.distances.delays)) == (FIRST_MAX, FIRST_MAX + 19)


# -- the neighbourhood


def test_the_nearest_are_the_neighbourhood_the_nearest_first() -> None:
    broker = surveyor({1: 0.03, 2: 0.01, 3: 0.02, 4: 0.04}, k=3)

    assert broker.boards.distances.near == (2, 3, 1)


def test_of_equally_near_ones_the_smaller_numbers_are() -> None:
    broker = surveyor({5: 0.01, 3: 0.01, 4: 0.01}, k=2)

    assert broker.boards.distances.near == (3, 4)


def test_who_has_come_nearer_is_a_neighbour_soon() -> None:
    """ "To adapt to changing network conditions" the others are measured as well."""
    broker = surveyor()
    broker.far[3] = 0.001

    for _ in range(TURNS):
        broker.period()
    broker.wait(1)

    assert broker.boards.distances.near == (3, 1)


def test_neighbours_are_measured_every_period_and_the_others_in_turn() -> None:
    far = {n: 0.001 * n for n in range(1, 31)}
    broker = surveyor(far, k=4)

    periods = [pinged(broker.period()) for _ in range(TURNS)]
    broker.wait(1)

    assert all(measured[:4] == [1, 2, 3, 4] for measured in periods)
    assert {peer for measured in periods for peer in measured} == set(far)
    assert {len(measured) for measured in periods} == {4 + 4}, "an eighth of all, rounded up"


def test_all_others_have_their_turn_though_the_neighbourhood_changes() -> None:
    far = {n: 0.001 * n for n in range(1, 31)}
    broker = surveyor(far, k=4)

    asked = set()
    for n in range(TURNS):
        broker.far[1 + n % 4], broker.far[5 + n] = 0.1, 0.0005
        asked.update(pinged(broker.period()))
        broker.wait(1)

    assert asked == set(far)


def test_whoever_feeds_this_broker_is_measured_every_period_however_far() -> None:
    broker = surveyor({n: 0.001 * n for n in range(1, 31)}, k=1, others={"001": 30})
    before = [30 in pinged(broker.period()) for _ in range(TURNS - 1)]
    broker.relays("001", provider=30, receiver=ANNA)

    after = [30 in pinged(broker.period()) for _ in range(TURNS - 1)]

    assert sum(before) <= 1
    assert all(after)


# -- changes


def test_small_changes_are_smoothed() -> None:
    broker = surveyor({1: 0.100})
    broker.far[1] = 0.120

    broker.period()
    broker.wait(1)

    assert broker.delay(1) == pytest.approx(0.105)


def test_a_doubled_delay_is_asked_for_twice_and_then_believed_at_once() -> None:
    broker = surveyor({1: 0.100})
    broker.far[1] = 0.200
    before = broker.boards.distances.sights

    effects = broker.period() + broker.wait(0.3)
    doubtful = broker.delay(1)
    effects += broker.wait(1)

    assert len(sent(effects, Ping, 1)) == 2
    assert doubtful == pytest.approx(0.100)
    assert broker.delay(1) == pytest.approx(0.200)
    assert broker.boards.distances.sights > before


def test_a_delay_that_drifts_is_noticed_when_it_has_drifted_far() -> None:
    """No measurement differs much from the one before."""
    broker = surveyor({1: 0.100})
    before = broker.boards.distances.sights

    sights = []
    for _ in range(20):
        broker.far[1] *= 1.08
        broker.period()
        broker.wait(1)
        sights.append(broker.boards.distances.sights - before)

    assert sights[2] == 0
    assert 2 <= sights[-1] <= 4, "once for each half more"


def test_a_view_that_drifts_is_noticed_when_it_has_drifted_far() -> None:
    broker = surveyor(views={1: {2: 0.100}})
    before = broker.boards.distances.sights

    for _ in range(10):
        broker.views[1][2] *= 1.2
        broker.period()
        broker.wait(1)

    assert 3 <= broker.boards.distances.sights - before <= 5


def test_a_halved_delay_is_believed_as_fast() -> None:
    broker = surveyor({1: 0.100})
    broker.far[1] = 0.050

    broker.period()
    broker.wait(1)

    assert broker.delay(1) == pytest.approx(0.050)


def test_one_slow_answer_alone_changes_nothing() -> None:
    broker = surveyor({1: 0.100})
    broker.far[1] = 0.300
    broker.period()
    broker.far[1] = 0.100

    effects = broker.wait(1)

    assert len(sent(effects, Ping, 1)) == 1
    assert broker.delay(1) == pytest.approx(0.100)


def test_differences_of_less_than_noise_are_none_however_large_their_ratio() -> None:
    broker = surveyor({1: 0.0001})
    broker.far[1] = 0.0005

    effects = broker.period() + broker.wait(1)

    assert len(sent(effects, Ping, 1)) == 1
    assert broker.delay(1) == pytest.approx(0.0002)


# -- who does not answer


def test_who_does_not_answer_until_the_next_period_is_gone() -> None:
    broker = surveyor(views={1: {2: 0.015}})
    del broker.far[1]

    broker.period()
    broker.wait(PERIOD - 1)
    waiting = broker.boards.distances.near
    broker.period()

    assert waiting == (1, 2)
    assert (broker.delay(1), broker.boards.distances.near) == (None, (2, 3))
    assert 1 not in broker.boards.distances.views


def test_who_answers_again_is_back() -> None:
    broker = surveyor()
    del broker.far[1]
    broker.period()
    broker.period()
    gone = broker.delay(1)
    broker.far[1] = 0.010

    broker.period()
    broker.wait(1)

    assert gone is None
    assert broker.delay(1) == pytest.approx(0.010)
    assert broker.boards.distances.near == (1, 2)


def test_an_answer_that_comes_after_the_period_measures_nothing() -> None:
    broker = surveyor()
    broker.far[1] = PERIOD
    broker.period()
    broker.far[1] = 0.010
    broker.period()
    broker.wait(1)

    broker.wait(PERIOD)

    assert broker.delay(1) == pytest.approx(0.010)


def test_of_a_connection_that_closes_over_a_question_the_question_is_asked_once_more() -> None:
    """The other side may have closed it because nothing flows; it is well."""
    broker = surveyor()
    del broker.far[1]
    broker.period()

    broker.down(1)
    broker.far[1] = 0.010
    broker.up(1)
    broker.wait(1)

    assert broker.delay(1) == pytest.approx(0.010)
    assert broker.boards.distances.delays[PeerId(1)].at > broker.now - 1


def test_a_connection_that_closes_over_a_question_twice_is_believed_at_once() -> None:
    broker = surveyor()
    del broker.far[1]
    broker.period()

    broker.down(1)
    broker.down(1)

    assert (broker.delay(1), broker.boards.distances.near) == (None, (2, 3))


def test_a_broken_connection_without_a_question_says_nothing() -> None:
    broker = surveyor()

    broker.down(1)

    assert (broker.delay(1), broker.boards.distances.near) == (0.010, (1, 2))


# -- what others see


def test_a_broker_sees_the_network_from_its_neighbours() -> None:
    """ "Each broker can check the network from the point of view of any of the brokers in its neighborhood"."""
    broker = surveyor(views={1: {2: 0.015, 3: 0.025}}, links={(1, 2): 4})

    assert view_of(broker, 1) == {2: (0.015, 4), 3: (0.025, None)}
    assert broker.boards.distances.delay_between(1, 2) == 0.015
    assert broker.boards.distances.delay_between(2, 1) == 0.015, (
        "the other way round, if nothing better is known"
    )
    assert broker.boards.distances.delay_between(2, 3) == float("inf")
    assert (
        broker.boards.distances.delay_between(0, 3)
        == broker.boards.distances.delay_between(3, 0)
        == pytest.approx(0.030)
    )


def test_the_latest_view_replaces_the_one_before() -> None:
    broker = surveyor(views={1: {2: 0.015, 3: 0.025}})
    broker.views[1] = {2: 0.016}

    broker.period()
    broker.wait(1)

    assert view_of(broker, 1) == {2: (0.016, None)}


def test_who_is_seen_by_others_only_is_learnt_and_measured() -> None:
    """ "Brokers in the remote neighborhood that were previously unknown are considered for the local neighborhood"."""
    broker = surveyor(views={1: {7: 0.001, 0: 0.010}})

    effects = broker.period()

    assert 7 in pinged(effects)
    assert 0 not in pinged(effects), "itself"


def test_nonsense_in_a_view_is_left_out() -> None:
    broker = surveyor(views={1: {ANNA: 0.1, 2: -0.5, 3: float("nan"), 7: 0.002}})

    assert view_of(broker, 1) == {7: (0.002, None)}
    assert ANNA not in broker.mechanism(Neighbourhood).known


def test_only_so_many_are_remembered() -> None:
    broker = surveyor(views={1: dict.fromkeys(range(10, KNOWN_MAX + 100), 0.1)})

    assert len(broker.mechanism(Neighbourhood).known) == KNOWN_MAX


# -- others measure


def test_who_asks_is_answered_with_what_was_measured_how_long_ago() -> None:
    """ "n exports its last measurement, however old, with its age"."""
    broker = surveyor({1: 0.010, 2: 0.020})
    broker.now = 5.0

    (pong,) = sent(broker.say(1, Ping(123.0)), Pong, 1)

    assert pong.at == 123.0
    assert [(peer, hops) for peer, _, hops, _ in pong.view] == [(1, None), (2, None)]
    assert [age for *_, age in pong.view] == pytest.approx([5 - 0.020, 5 - 0.040])


def test_links_between_brokers_are_told_where_the_world_can_tell() -> None:
    broker = surveyor({1: 0.010, 2: 0.020})
    broker.feed(Routed(PeerId(2), 7))

    (pong,) = sent(broker.say(1, Ping(1.0)), Pong, 1)

    assert [(peer, hops) for peer, _, hops, _ in pong.view] == [(1, None), (2, 7)]


def test_who_asks_is_learnt_and_measured() -> None:
    broker = surveyor()
    broker.up(9)

    broker.say(9, Ping(1.0))

    assert 9 in pinged(broker.period())


def test_a_client_is_not_answered() -> None:
    broker = surveyor()
    broker.up(ANNA)

    effects = broker.say(ANNA, Ping(1.0)) + broker.say(ANNA, Pong(0.0, ((PeerId(8), 0.1, None, 0.0),)))

    assert effects == []
    assert {ANNA, 8}.isdisjoint(broker.mechanism(Neighbourhood).known)


def test_of_two_that_measured_each_other_the_newer_counts() -> None:
    broker = surveyor(views={1: {2: 0.015}, 2: {1: 0.025}})
    between = [broker.boards.distances.delay_between(PeerId(a), PeerId(b)) for a, b in ((1, 2), (2, 1))]

    broker.now += 1
    broker.say(2, Shifted(((PeerId(1), 0.3, None),)))
    second = [broker.boards.distances.delay_between(PeerId(a), PeerId(b)) for a, b in ((1, 2), (2, 1))]
    broker.now += 1
    broker.say(1, Shifted(((PeerId(2), 0.2, None),)))
    third = [broker.boards.distances.delay_between(PeerId(a), PeerId(b)) for a, b in ((1, 2), (2, 1))]

    assert between == [0.025, 0.025], "what 2 said came last, and is as old"
    assert second == [0.3, 0.3]
    assert third == [0.2, 0.2]


def test_who_sees_something_else_may_say_so_unasked() -> None:
    broker = surveyor(views={1: {2: 0.015, 3: 0.025}})
    before = broker.boards.distances.sights

    broker.say(1, Shifted(((PeerId(2), 0.3, 7), (PeerId(3), None, None), (PeerId(9), 0.1, None))))

    assert view_of(broker, 1) == {2: (0.3, 7), 9: (0.1, None)}
    assert broker.boards.distances.sights == before + 1
    assert 9 in broker.mechanism(Neighbourhood).known


def test_a_shift_that_is_none_is_no_news() -> None:
    broker = Surveyor(FAR, Relays("TREE", measure_s=PERIOD), {1: {2: 0.015}})
    broker.wait(2)
    before = broker.boards.distances.sights

    broker.say(1, Shifted(((PeerId(2), 0.0151, None), (PeerId(3), None, None), (PeerId(3), -1.0, None))))

    assert broker.boards.distances.sights == before
    assert not broker.mechanism(Neighbourhood).shifts


# -- forged


def test_a_shift_of_somebody_whose_view_was_never_asked_for_changes_nothing() -> None:
    broker = surveyor()
    broker.up(9)
    before = (dict(broker.boards.distances.views), broker.boards.distances.sights)

    broker.say(9, Shifted(((PeerId(1), 0.3, None),)))

    assert (broker.boards.distances.views, broker.boards.distances.sights) == before


def test_a_shift_makes_no_sense_with_clients_and_times_before_the_question() -> None:
    broker = surveyor(views={1: {2: 0.015}})

    broker.say(1, Shifted(((ANNA, 0.1, None), (PeerId(3), -0.1, None), (PeerId(2), 0.1, -4))))

    assert view_of(broker, 1) == {2: (0.015, None)}


def test_no_more_is_remembered_of_a_view_than_of_brokers() -> None:
    broker = surveyor(views={1: {2: 0.015}})

    for start in range(10, 3 * KNOWN_MAX, 1000):
        broker.say(1, Shifted(tuple((PeerId(n), 0.1, None) for n in range(start, start + 1000))))

    assert len(broker.boards.distances.views[PeerId(1)]) == KNOWN_MAX


def test_an_answer_that_nobody_asked_for_changes_nothing() -> None:
    broker = surveyor()
    before = (
        dict(broker.boards.distances.delays),
        dict(broker.boards.distances.views),
        broker.boards.distances.sights,
    )

    broker.say(1, Pong(broker.now, ((PeerId(8), 0.1, None, 0.0),)))
    broker.say(2, Pong(0.0, ((PeerId(8), 0.1, None, 0.0),)))

    assert (
        broker.boards.distances.delays,
        broker.boards.distances.views,
        broker.boards.distances.sights,
    ) == before


def test_an_answer_to_another_question_changes_nothing_and_the_right_one_still_counts() -> None:
    broker = surveyor()
    broker.period()

    broker.now += 0.005
    before = broker.boards.distances.delays[1]
    broker.say(1, Pong(broker.now - 0.022, ()))
    forged = broker.boards.distances.delays[1]
    broker.now -= 0.005
    broker.wait(1)

    assert forged == before
    assert broker.boards.distances.delays[1].at == pytest.approx(broker.now - 1 + 0.020)
