"""Processes on loopback for tests: started, waited for until they listen, ended by their id."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
MOSQUITTO, NATS = (shutil.which(name, path=_PATH) for name in ("mosquitto", "nats-server"))
needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
needs_nats = pytest.mark.skipif(NATS is None, reason="nats-server is not installed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background has SIGINT ignored, and every process would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

Process = subprocess.Popen[bytes]
PATIENCE_S = 180.0
"""for anything that should happen soon: only what is broken reaches it, however busy the machine"""


# Port 0 would give one that the kernel may give to any outgoing connection a moment later, or while a server is
# restarted; a dial of such a port, while nobody listens, may even reach itself. So: below the kernel's own range.
_PORTS = range(20_000, 30_000, 8)
_TURN = Path(tempfile.gettempdir()) / f"sensorgrid-test-ports-{os.getuid()}"
"""counts the ports given by all test processes of this machine, so that none is given twice within a thousand"""


def free_port() -> int:
    """A port on which nobody listens, and which is nobody else's for long; so are the seven that follow."""
    with _TURN.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        turn = int(file.read() or 0)
        while not all(_is_free(_PORTS[turn % len(_PORTS)] + n) for n in range(_PORTS.step)):
            turn += 1
        file.truncate(0)
        file.write(str(turn + 1))
    return _PORTS[turn % len(_PORTS)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
    except OSError:
        return False
    return True


def wait_for(condition: Callable[[], Any], what: str, deadline_s: float = PATIENCE_S) -> Any:
    """What the condition gives, as soon as it gives anything."""
    end = time.monotonic() + deadline_s
    while not (got := condition()):
        assert time.monotonic() < end, f"waited {deadline_s} s for {what}"
        time.sleep(0.02)
    return got


class Stopped(datetime):
    """A clock that stands, in the place of `datetime`: the newest tick stays the newest, however long a test takes."""

    TICK = 3600
    """on a grid with a tick per second; long before any real clock, so that brokers take it"""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.fromtimestamp(cls.TICK, tz)


def still_runs(process: subprocess.Popen[Any], after_s: float) -> bool:
    """Let a process run for a while; whether it has not ended."""
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        return True
    return False


@contextmanager
def running(*command: str, log: Path, port: int | None = None, **options: Any) -> Iterator[Process]:
    """A process; if it is a server, from when on it listens."""
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, **options)
    try:
        if port is not None:
            up = f"{command[0]} to listen on port {port}, see {log}"
            wait_for(lambda: listens(port) or process.poll() is not None, up)
            assert process.poll() is None, f"{command[0]} ended at once:\n{log.read_text()[-4000:]}"
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def mosquitto(folder: Path, port: int, *lines: str) -> AbstractContextManager[Process]:
    """An MQTT server that keeps its messages in a folder; `lines` are more of its configuration."""
    store, config = folder / "store", folder / "mosquitto.conf"
    store.mkdir(exist_ok=True)
    settings = [f"listener {port} 127.0.0.1", "allow_anonymous true", "persistence true", "user root"]
    settings += [f"persistence_location {store}/", "max_queued_messages 0", *lines]
    config.write_text("\n".join(settings) + "\n")
    return running(str(MOSQUITTO), "-c", str(config), log=folder / "mosquitto.log", port=port)


@contextmanager
def nats_server(folder: Path, *arguments: str) -> Iterator[str]:
    """The address of a NATS server that keeps its streams in a folder."""
    port = free_port()
    command = (str(NATS), "-a", "127.0.0.1", "-p", str(port), "-sd", str(folder), *arguments)
    with running(*command, log=folder / "nats.log", port=port):
        yield f"nats://127.0.0.1:{port}"
