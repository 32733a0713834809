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
    parser.addoption(
        "--kills", type=int, default=4, help="how often the long recovery test kills the driver (4)"
    )
    parser.addoption("--schedules", type=int, help="how many schedules of faults are played (120; long: 200)")
    parser.addoption(
        "--schedule", type=int, help="play this schedule of faults alone, checked after every event"
    )
    parser.addoption("--chaos", type=int, help="how many processes the chaos test kills (3; long: 20)")
    parser.addoption("--chaos-seed", type=int, default=1, help="which ones, and when (1)")
    parser.addoption("--golden", action="store_true", help="write the golden conversations anew")


def pytest_configure(config: pytest.Config) -> None:
    searching = config.getoption("--hypothesis-seed", default=None) is not None
    settings.load_profile("searching" if searching else "sensorgrid")


WAITING = ("test_demo.py", "test_gateway_stream.py", "test_chaos.py", "test_recovery.py", "test_cluster.py")
"""files that mostly wait for processes which they start: they go first, so that no worker is left alone with one"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is long, unless it is asked for: deselected, so that a skip always means something missing."""
    items.sort(key=lambda item: WAITING.index(item.path.name) if item.path.name in WAITING else len(WAITING))
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long") is not None]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item.get_closest_marker("long") is None]
