import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# Compiling on first use makes the first example slow, whatever it is.
settings.register_profile("sensorgrid", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sensorgrid")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also what takes long: all real data in full")
    parser.addoption("--kills", type=int, default=2, help="how often the recovery test kills the driver (2)")
    parser.addoption(
        "--schedules", type=int, default=200, help="how many schedules of faults are played (200)"
    )
    parser.addoption(
        "--schedule", type=int, help="play this schedule of faults alone, checked after every event"
    )
    parser.addoption("--chaos", type=int, default=20, help="how many processes the chaos test kills (20)")
    parser.addoption("--chaos-seed", type=int, default=1, help="which ones, and when (1)")
    parser.addoption("--golden", action="store_true", help="write the golden conversations anew")
