"""Random faults against brokers that relay: strategies at random, delays that change, clients that move."""

import pytest

from faults import CHUNK, failures, play_all
from sensorgrid.simulator.schedules import RELAY_FAULTS, Outcome

SCHEDULES = 60
WATCHED = 4
REPEAT = "sensorgrid experiment faults --relays --seeds"

played: list[Outcome] = []


@pytest.mark.parametrize("first", range(1, SCHEDULES + 1, CHUNK))
def test_every_query_gets_its_points_and_nothing_is_left_behind(first: int) -> None:
    outcomes = play_all(range(first, first + CHUNK), relayed=True)

    assert not failures(outcomes, REPEAT), failures(outcomes, REPEAT)
    played.extend(outcomes)


def test_the_rules_hold_after_every_event() -> None:
    outcomes = play_all(range(SCHEDULES + 1, SCHEDULES + 1 + WATCHED), watch=True, relayed=True)

    assert not failures(outcomes, REPEAT), failures(outcomes, REPEAT)


def test_faults_of_all_kinds_strike_while_streams_are_relayed() -> None:
    if len(played) < SCHEDULES:
        pytest.skip("the schedules were not played here")
    levels = [level for outcome in played for level in outcome.levels]

    assert {fault for outcome in played for fault in outcome.faults} == set(RELAY_FAULTS)
    assert sum(level >= 2 for level in levels) >= len(levels) / 2
    assert sum(outcome.circles for outcome in played) > 0
    assert sum(outcome.served for outcome in played) > 5 * len(played)
