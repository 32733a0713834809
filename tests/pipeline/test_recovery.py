"""kill -9 of the driver, again and again: every tick and region once per revision, and the counts add up.

The quick form, with one kill at the worst moment, is in `test_gateway_stream.py`.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakes import check_grids, check_ledgers
from sensorgrid.pipeline.delivery.publish import LoopbackSink
from sensorgrid.pipeline.settings import read_settings
from servers import still_runs, wait_for

ENDLESS = 1_000_000
"""more grids than any run makes"""
DEADLINE_S = 600.0
"""for a driver to start and do its work, however busy the machine"""
PROGRAM = Path(__file__).parent / "recovery_program.py"
CONFIG = """
[grid]
shape = [64, 32]
tick = 4
resolution_bits = 1
region_digits = 2
attributes = ["air_temperature", "eastward_wind", "northward_wind"]
[timing]
settle = 1
lateness = 8
max_age = 24
[gridding]
kernel = "inverse_distance"
calibrate = false
[spark]
trigger = 0.5
[sink]
kind = "loopback"
[[sources]]
kind = "synthetic"
[sources.options]
stations = 200
tick = 4
lateness = 8
attributes = "air_temperature,wind_speed,wind_from_direction"
"""


@contextlib.contextmanager
def driver(config: Path, blocks: int, die_after: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """A driver with its Java and Python workers in a process group of its own, killed in the end."""
    with printed(config).open("w") as out:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(config), str(blocks), str(die_after)],
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def printed(config: Path) -> Path:
    """What the last driver said."""
    return config.with_suffix(".out")


@pytest.mark.long
def test_after_kill_9_every_tick_and_region_is_there_once_per_revision(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = tmp_path / "grid.toml"
    config.write_text(CONFIG)
    kills = request.config.getoption("--kills")
    rng = random.Random(kills)

    for number in range(kills):
        if number % 2 == 0:  # written and published, not committed
            with driver(config, ENDLESS, die_after=rng.randint(1, 3)) as process:
                assert process.wait(DEADLINE_S) == -signal.SIGKILL, printed(config).read_text()
        else:
            with driver(config, ENDLESS) as process:
                begun = "the first batch"
                wait_for(lambda: "\nbatch" in "\n" + printed(config).read_text(), begun, DEADLINE_S)
                assert still_runs(process, after_s=rng.uniform(0, 3))  # a random moment is the point here
    with driver(config, 24) as last:
        assert last.wait(DEADLINE_S) == 0, printed(config).read_text()

    check_lake(config)


def check_lake(config: Path) -> None:
    settings = read_settings(config)
    identities = check_grids(settings)
    published = Counter(block.identity for block in LoopbackSink(settings.sink.folder).blocks())
    assert set(published) == set(identities)
    check_ledgers(settings)
