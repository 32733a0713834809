"""Options of the test command, and what `--long` means.

The plain command takes minutes: what is long (fault sweeps, many kills, a Spark cluster, the whole demo, the examples,
every benchmark) is marked `long` and left out, and a quick form of each stays. `pytest --long` runs everything,
`pytest --long -m long` only what the plain command leaves out; `.ci/run` does the one after the other.
"""

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# Compiling on first use makes the first example slow, whatever it is. The examples are the same in every run
# (`derandomize`): a test that fails does so for everybody, not once in fifty runs. `--hypothesis-seed N` searches on.
settings.register_profile(
    "sensorgrid", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("searching", settings.get_profile("sensorgrid"), derandomize=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run what takes long (marked long)")
    parser.addoption("--kills", type=int, help="how often the recovery test kills the driver (2; long: 6)")
    parser.addoption("--schedules", type=int, default=60, help="how many schedules of faults are played (60)")
    parser.addoption(
        "--schedule", type=int, help="play this schedule of faults alone, checked after every event"
    )
    parser.addoption("--chaos", type=int, help="how many processes the chaos test kills (4; long: 20)")
    parser.addoption("--chaos-seed", type=int, default=1, help="which ones, and when (1)")
    parser.addoption("--golden", action="store_true", help="write the golden conversations anew")


def pytest_configure(config: pytest.Config) -> None:
    searching = config.getoption("--hypothesis-seed", default=None) is not None
    settings.load_profile("searching" if searching else "sensorgrid")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is long, unless it is asked for: deselected, so that a skip always means something missing."""
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long") is not None]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item.get_closest_marker("long") is None]
