"""Schedules with operators: whatever strikes, watchers end with every tick, bit for bit as one process has it."""

import pytest

from faults import failures, parameters
from sensorgrid.simulator import churn, schedules

QUICK, ALL, CHUNK = 8, 72, 4


@pytest.mark.parametrize("seeds", parameters(range(ALL), QUICK, CHUNK))
def test_watchers_have_what_one_process_calculates(seeds: range) -> None:
    outcomes = [schedules.play(seed, calculates=True) for seed in seeds]

    assert not (found := failures(outcomes, "sensorgrid experiment faults --operators --seeds")), found


@pytest.mark.parametrize("seeds", parameters(range(ALL), QUICK, CHUNK))
def test_so_they_have_whoever_comes_and_goes(seeds: range) -> None:
    outcomes = [churn.play(seed, calculates=True) for seed in seeds]

    assert not (found := failures(outcomes, "sensorgrid experiment faults --open --operators --seeds")), found
