"""Ctrl-C while Spark starts: nothing stays behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from pyspark import SparkConf

from sensorgrid.pipeline.spark import session

DEADLINE_S = 120.0


def test_an_interrupt_is_told_at_once_and_java_is_awaited_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    told, closed = threading.Event(), threading.Event()
    java = SimpleNamespace(proc=SimpleNamespace(stdin=SimpleNamespace(close=closed.set)))

    def launch(**_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        assert told.wait(DEADLINE_S)
        return java

    monkeypatch.setattr(session, "launch_gateway", launch)

    with pytest.raises(KeyboardInterrupt):
        session._gateway(SparkConf(loadDefaults=False), None)

    assert not closed.is_set()
    told.set()
    assert closed.wait(DEADLINE_S), "the input of a Java that nobody wants is closed"


def test_what_goes_wrong_while_java_starts_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(**_: Any) -> Any:
        raise RuntimeError("no Java today")

    monkeypatch.setattr(session, "launch_gateway", launch)

    with pytest.raises(RuntimeError, match="no Java today"):
        session._gateway(SparkConf(loadDefaults=False), None)


@pytest.mark.long
def test_java_ends_after_ctrl_c_while_it_starts(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\n"
        "from sensorgrid.pipeline.spark.session import start_session\n"
        f"start_session('local[1]', log=Path({str(tmp_path / 'log')!r}), driver_memory='512m')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], start_new_session=True, stderr=subprocess.DEVNULL
    ) as python:
        java = _until(lambda: _java_of(python.pid))
        python.send_signal(signal.SIGINT)
        python.wait(DEADLINE_S)

    try:
        assert python.returncode != 0
        java.wait(DEADLINE_S)
    finally:
        if java.is_running():
            java.kill()


def _java_of(parent: int) -> psutil.Process | None:
    for child in psutil.Process(parent).children():
        try:
            if "_PYSPARK_DRIVER_CONN_INFO_PATH" in child.environ():
                return child
        except psutil.Error:  # it has just begun, or ended
            continue
    return None


def _until(found: Any) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if (one := found()) is not None:
            return one
        time.sleep(0.01)
    raise AssertionError("nothing came in time")
