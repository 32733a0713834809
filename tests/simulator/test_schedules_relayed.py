"""Random faults against brokers that relay: strategies at random, delays that change, clients that move."""

import pytest

from faults import failures, parameters, play_all
from sensorgrid.simulator.schedules import RELAY_FAULTS, ROSTER_FAULTS, ScheduleOutcome

QUICK, ALL = 40, 60
WATCHED, WATCHED_ALL = 1, 4
REPEAT = "sensorgrid experiment faults --relays --seeds"

played: list[ScheduleOutcome] = []


@pytest.mark.parametrize("seeds", parameters(range(1, ALL + 1), QUICK))
def test_every_query_gets_its_points_and_nothing_is_left_behind(seeds: range) -> None:
    outcomes = play_all(seeds, relayed=True)

    assert not failures(outcomes, REPEAT), failures(outcomes, REPEAT)
    played.extend(outcomes)


@pytest.mark.parametrize("seeds", parameters(range(ALL + 1, ALL + 1 + WATCHED_ALL), WATCHED, 1))
def test_the_rules_hold_after_every_event(seeds: range) -> None:
    outcomes = play_all(seeds, watch=True, relayed=True)

    assert not failures(outcomes, REPEAT), failures(outcomes, REPEAT)


def test_faults_of_all_kinds_strike_while_streams_are_relayed() -> None:
    if len(played) < QUICK:
        pytest.skip("the schedules were not played here")
    levels = [level for outcome in played for level in outcome.levels]

    assert {fault for outcome in played for fault in outcome.faults} == {*RELAY_FAULTS, *ROSTER_FAULTS}
    assert sum(level >= 2 for level in levels) >= len(levels) / 2
    assert sum(outcome.circles for outcome in played) > 0
    assert sum(outcome.served for outcome in played) > 5 * len(played)
