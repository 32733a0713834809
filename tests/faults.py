"""Schedules of faults as tests: which seeds, and what a failure says."""

import pytest
from _pytest.mark.structures import ParameterSet

from sensorgrid.simulator.schedules import ScheduleOutcome, play

CHUNK = 10
"""schedules per test: small enough that a failure is near, large enough that pytest is not the cost"""
QUICK, ALL = 120, 200
"""schedules that every run plays, and those that `--long` plays"""
WATCHED, WATCHED_ALL = 2, 5
"""schedules that are checked after every event"""


def parameters(seeds: range, quick: int, chunk: int = CHUNK) -> list[ParameterSet]:
    """Seeds in chunks, of which the first `quick` are played in every run and the others with `--long`."""
    chunks = [seeds[start : start + chunk] for start in range(0, len(seeds), chunk)]
    return [
        pytest.param(
            part, id=f"{part[0]}-{part[-1]}", marks=[pytest.mark.long] if number * chunk >= quick else []
        )
        for number, part in enumerate(chunks)
    ]


def chunks(config: pytest.Config, file: int, files: int) -> list[ParameterSet]:
    """The seeds of one of the files that share them."""
    if config.getoption("--schedule") is not None:
        seed = config.getoption("--schedule")
        return parameters(range(seed, seed + 1), 1) if file == 0 else []
    asked = config.getoption("--schedules")
    return parameters(range(asked or ALL), asked or QUICK)[file::files]


def play_all(seeds: range, watch: bool = False, relayed: bool = False) -> list[ScheduleOutcome]:
    """Play schedules."""
    return [play(seed, watch=watch, relayed=relayed) for seed in seeds]


def failures(
    outcomes: list[ScheduleOutcome], repeat: str = "pytest tests/simulator/test_schedules.py --schedule"
) -> str:
    """What went wrong, by seed, and the one command that repeats it; empty if all is well."""
    return "\n".join(
        f"schedule {outcome.seed}: {', '.join(outcome.faults)}\n  "
        + "\n  ".join(outcome.problems[:10])
        + f"\nrepeat: {repeat} {outcome.seed}"
        for outcome in outcomes
        if outcome.problems
    )
