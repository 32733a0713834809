"""Random schedules of faults, half of them; the others are in `test_schedules_more.py`, so that two workers share.

``--schedules N`` plays N in all, ``--schedule SEED`` one alone, with the rules checked after every event.
"""

import pytest

from faults import ALL, WATCHED, WATCHED_ALL, chunks, failures, parameters, play_all
from sensorgrid.simulator.schedules import FAULTS, ROSTER_FAULTS, ScheduleOutcome

played: list[ScheduleOutcome] = []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        metafunc.parametrize("seeds", chunks(metafunc.config, 0, 2))
    if "watched" in metafunc.fixturenames:
        first = metafunc.config.getoption("--schedules") or ALL
        metafunc.parametrize("watched", parameters(range(first, first + WATCHED_ALL), WATCHED, 1))


def test_every_query_gets_its_points_and_nothing_is_left_behind(
    seeds: range, request: pytest.FixtureRequest
) -> None:
    outcomes = play_all(seeds, watch=request.config.getoption("--schedule") is not None)

    assert not failures(outcomes), failures(outcomes)
    played.extend(outcomes)


def test_the_rules_hold_after_every_event(watched: range, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--schedule") is not None:
        pytest.skip("one schedule alone is played")

    outcomes = play_all(watched, watch=True)

    assert not failures(outcomes), failures(outcomes)


def test_half_of_the_faults_strike_while_two_levels_of_delegation_are_live() -> None:
    """Otherwise the schedules would attack a world in which little can go wrong."""
    levels = [level for outcome in played for level in outcome.levels]
    if len(levels) < 100:
        pytest.skip("too few schedules were played here to tell")

    assert sum(level >= 2 for level in levels) >= len(levels) / 2
    assert {fault for outcome in played for fault in outcome.faults} == {*FAULTS, *ROSTER_FAULTS}
    assert sum(outcome.circles for outcome in played) > 0
    assert sum(outcome.served for outcome in played) > 3 * len(played)
    assert sum(outcome.suspended for outcome in played) > 0
