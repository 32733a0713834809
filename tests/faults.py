"""Schedules of faults as tests: which seeds, and what a failure says."""

import pytest

from sensorgrid.simulator.schedules import Outcome, play

CHUNK = 10
"""schedules per test: small enough that a failure is near, large enough that pytest is not the cost"""
WATCHED = 5
"""schedules that are checked after every event"""


def chunks(config: pytest.Config, file: int, files: int) -> list[range]:
    """The seeds of one of the files that share them."""
    if config.getoption("--schedule") is not None:
        seed = config.getoption("--schedule")
        return [range(seed, seed + 1)] if file == 0 else []
    count = config.getoption("--schedules")
    return [range(start, min(start + CHUNK, count)) for start in range(file * CHUNK, count, files * CHUNK)]


def play_all(seeds: range, watch: bool = False, relayed: bool = False) -> list[Outcome]:
    """Play schedules."""
    return [play(seed, watch=watch, relayed=relayed) for seed in seeds]


def failures(
    outcomes: list[Outcome], repeat: str = "pytest tests/simulator/test_schedules.py --schedule"
) -> str:
    """What went wrong, by seed, and the one command that repeats it; empty if all is well."""
    return "\n".join(
        f"schedule {outcome.seed}: {', '.join(outcome.faults)}\n  "
        + "\n  ".join(outcome.problems[:10])
        + f"\nrepeat: {repeat} {outcome.seed}"
        for outcome in outcomes
        if outcome.problems
    )
