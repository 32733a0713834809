"""The whole product under random kills: `sensorgrid up` with Spark, brokers and clients, each killed with SIGKILL.

Every client must have every tick exactly once, bit-equal to a batch gridding of the same raw records, and when all
is told to stop, no process is left.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from chaos_client import QUERIES
from sensorgrid.configuration.network import read_network
from sensorgrid.demo.checks import fields_of
from sensorgrid.demo.stage import DemoStage, write_configuration
from sensorgrid.model.grid import Grid
from sensorgrid.model.names import ERROR
from sensorgrid.model.query import Query
from sensorgrid.model.resolution import count_points
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import read_settings
from servers import wait_for

NAME = "air_temperature"
Values = npt.NDArray[np.generic]
STAGE = DemoStage(shape=(64, 32), stations=400, brokers=4, late=0.0, copies=0.0)
"""nothing comes late, so nothing is revised: what a client gets first is what the batch makes"""
COMMAND = (sys.executable, "-m", "sensorgrid")
CLIENT = (sys.executable, str(Path(__file__).parents[1] / "chaos_client.py"))
AFTER_S = 240.0
"""within which everybody must have everything after the last kill, however slow the machine"""


class Clients:
    """Client processes that are started again whenever they are gone."""

    def __init__(self, folder: Path, first: int, urls: list[str]) -> None:
        self.folders = [folder / f"client-{n}" for n in range(len(QUERIES))]
        self.first = first
        self.urls = urls
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.log = (folder / "clients.log").open("ab")

    def keep(self) -> None:
        """Start those that do not run."""
        for number, folder in enumerate(self.folders):
            process = self.processes.get(number)
            if process is None or process.poll() is not None:
                folder.mkdir(exist_ok=True)
                command = (*CLIENT, str(folder), str(self.first), str(number), *self.urls)
                self.processes[number] = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def ticks(self, number: int) -> list[int]:
        return sorted(int(path.stem) for path in self.folders[number].glob("*.npy"))

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(20)
        self.log.close()


@contextmanager
def grid_up(folder: Path) -> Iterator[tuple[Path, Path, subprocess.Popen[bytes]]]:
    """`sensorgrid up` on a small synthetic earth; configuration, status file, process."""
    config, status = write_configuration(STAGE, folder), folder / "status.json"
    settings = read_settings(config)
    Lake(settings.lake).create().save_plan(STAGE.plan(settings, time.time()))
    with (folder / "up.log").open("ab") as log:
        up = subprocess.Popen((*COMMAND, "up", str(config), "--status", str(status)), stdout=log, stderr=log)
    try:
        wait_for(lambda: Lake(settings.lake).has_tiles(), "the first grid, see up.log", 180)
        yield config, status, up
    finally:
        up.send_signal(signal.SIGTERM)
        try:
            up.wait(120)
        except subprocess.TimeoutExpired:
            up.kill()
            raise


def pids(status: Path) -> dict[str, int]:
    """Of the parts that run."""
    parts = json.loads(status.read_text())["parts"]
    return {part["name"]: part["pid"] for part in parts if part["pid"]}


@pytest.mark.parametrize("usual", [3, pytest.param(20, marks=pytest.mark.long)])
def test_random_kills_lose_nothing_and_double_nothing(
    usual: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills, rng = (
        request.config.getoption("--chaos") or usual,
        Random(request.config.getoption("--chaos-seed")),
    )
    killed: list[str] = []
    with ExitStack() as stack:
        config, status, up = stack.enter_context(grid_up(tmp_path))
        network = read_network(config)
        first = _now(config) + 1
        clients = Clients(tmp_path, first, [address.url for address in network.addresses.values()])
        stack.callback(clients.stop)
        clients.keep()
        for target in targets(kills, rng):
            time.sleep(rng.uniform(0.5, 2.5))  # a kill comes when it comes
            clients.keep()
            if target.startswith("client"):
                clients.processes[int(target[-1])].kill()
                killed.append(target)
            elif (pid := pids(status).get(target)) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(target)
        last = _now(config) + 1

        def everybody_has_everything() -> bool:
            clients.keep()
            return all(set(range(first, last + 1)) <= set(clients.ticks(n)) for n in range(len(QUERIES)))

        wait_for(everybody_has_everything, f"all ticks to {last} after {killed}", AFTER_S)
        members = [up.pid, *pids(status).values()]
        clients.stop()

    assert len(killed) >= kills // 2, "parts that were just starting could not be killed"
    assert up.returncode == 0
    wait_for(lambda: not any(map(_lives, members)), "the last process to end")
    compare(tmp_path, config, first, last)


def compare(folder: Path, config: Path, first: int, last: int) -> None:
    """Every client has every tick once, bit-equal to a batch of the same raw records."""
    network = read_network(config)
    assert not list(folder.glob("client-*/*.again")), "ticks that came twice"
    again = [
        sys.executable,
        "-m",
        "sensorgrid.demo.again",
        str(config),
        str(folder / "again"),
        str(first),
        str(last),
    ]
    done = subprocess.run(again, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    truth = fields_of(Lake(str(folder / "again")), network.grid, first, last)
    for number, query in enumerate(QUERIES):
        rows, columns = places(query, network.grid)
        for tick in range(first, last + 1):
            got = np.load(folder / f"client-{number}" / f"{tick}.npy")
            for part, name in enumerate((NAME, NAME + ERROR)):
                expected = truth[tick, name][np.ix_(rows, columns)]
                differs = np.argwhere(got[part].view(np.uint32) != expected.view(np.uint32))
                assert not len(differs), _report(number, tick, name, got[part], expected, differs)


def targets(kills: int, rng: Random) -> list[str]:
    """Whom to kill: brokers mostly, clients, and of many a few times the pipeline, which takes long to come back."""
    chosen = [f"broker {rng.randrange(4)}" for _ in range(round(kills * 11 / 20))]
    chosen += [f"client {rng.randrange(len(QUERIES))}" for _ in range(round(kills * 6 / 20))]
    chosen += ["pipeline"] * (kills - len(chosen))
    rng.shuffle(chosen)
    return chosen


def places(query: Query, grid: Grid) -> tuple[list[int], list[int]]:
    """Rows and columns that a query asks for, in the order of its field."""
    box, limits, bits = query.box(grid), query.limits(grid), grid.resolution_bits
    columns = [x for x in range(box.x0, box.x1) if count_points(x, x + 1, limits[0], bits[0])]
    rows = [y for y in range(box.y0, box.y1) if count_points(y, y + 1, limits[1], bits[1])]
    return rows, [x % grid.shape[0] for x in columns]


def _report(number: int, tick: int, name: str, got: Values, expected: Values, differs: Values) -> str:
    """Where and by how much a field is not what the batch has made."""
    low, high = differs.min(axis=0), differs.max(axis=0)
    most = float(np.nanmax(np.abs(got - expected)))
    return (
        f"client {number}, tick {tick}, {name}: {len(differs)} of {got.size} points differ, "
        f"rows and columns {low} to {high}, by at most {most}"
    )


def _now(config: Path) -> int:
    return int(time.time() // read_settings(config).grid.tick)


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False
