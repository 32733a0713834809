"""`sensorgrid up` with real brokers: they are kept running, and nothing is left when it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from servers import free_port, listens, wait_for

CONFIG = """
[grid]
shape = [32, 16]
tick = 5
resolution_bits = 1
region_digits = 2
[network]
[[network.brokers]]
id = 0
url = "ws://127.0.0.1:{first}"
[[network.brokers]]
id = 7
url = "ws://127.0.0.1:{second}"
"""


@contextmanager
def running_up(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, list[int]]]:
    ports = [free_port(), free_port()]
    (folder / "grid.toml").write_text(CONFIG.format(first=ports[0], second=ports[1]))
    log = folder / "log"
    command = [sys.executable, "-m", "sensorgrid", "up", str(folder / "grid.toml"), *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield process, log, ports
    finally:
        process.kill()
        process.wait()


def pids(status: Path) -> dict[str, Any]:
    if not status.exists():
        return {}
    return {part["name"]: part["pid"] for part in json.loads(status.read_text())["parts"] if part["pid"]}


def test_brokers_are_kept_running_and_stop_in_order(tmp_path: Path) -> None:
    status = tmp_path / "status.json"
    with running_up(tmp_path, "--no-pipeline", "--status", str(status)) as (process, log, ports):
        wait_for(lambda: all(map(listens, ports)), f"both brokers to listen, see {log}")
        wait_for(lambda: "connect: ws://" in log.read_text(), "where to connect")
        before = pids(status)

        os.kill(before["broker 7"], signal.SIGKILL)

        wait_for(lambda: pids(status).get("broker 7", before["broker 7"]) != before["broker 7"], "a new one")
        wait_for(lambda: listens(ports[1]), "it to listen")
        assert pids(status)["broker 0"] == before["broker 0"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0
        text = log.read_text()
        assert "broker 7 │ ended by SIGKILL; again in 0.5 s" in text
        assert f"sensorgrid query --connect ws://127.0.0.1:{ports[0]} --attribute air_temperature" in text
        assert not any(map(listens, ports))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--brokers", "1"], "--brokers: found 1, expected some of 0, 7"),
        (["--brokers", "none", "--no-pipeline"], "found nothing to run"),
    ],
)
def test_mistakes_are_told_before_anything_runs(tmp_path: Path, arguments: list[str], told: str) -> None:
    with running_up(tmp_path, *arguments) as (process, log, _):
        assert process.wait(180) == 2
        assert told in log.read_text()


def test_a_port_that_is_in_use_is_told_before_anything_starts(tmp_path: Path) -> None:
    with running_up(tmp_path, "--no-pipeline") as (_, log, ports):
        wait_for(lambda: all(map(listens, ports)), f"both brokers to listen, see {log}")

        command = [sys.executable, "-m", "sensorgrid", "up", str(tmp_path / "grid.toml"), "--no-pipeline"]
        second = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert second.returncode == 2
    said = " ".join(second.stderr.split())
    assert f"broker 0: found that 127.0.0.1:{ports[0]} is in use, expected a free port" in said
    assert "Traceback" not in said
