"""The receiving side of `bench fanout`: a small C program, the same for all servers, compiled when it is needed.

It opens all connections, greets on each as the plan says, publishes blocks over the first one, and notes when each
connection has each block. See `fanout_peer.c` for the plan's format.
"""

import json
import shutil
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from sensorgrid.model.errors import SensorGridError


class PeerError(SensorGridError, RuntimeError):
    """A server or the receiving side did not do its part."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a connection says before it listens."""

    stages: tuple[tuple[int, bytes], ...]
    """(messages to hear before, bytes to say)"""
    per_block: int = 1
    """messages that make a block; 0: it stalls once it has greeted"""


def compile_peer(folder: Path) -> Path | None:
    """The program, or None where no C compiler or no OpenSSL is."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    program = folder / "fanout_peer"
    with as_file(files("sensorgrid.benchmarks") / "fanout_peer.c") as source:
        command = [compiler, "-O2", "-o", str(program), str(source), "-lssl", "-lcrypto"]
        done = subprocess.run(command, capture_output=True, check=False)
    return program if done.returncode == 0 else None


def write_plan(
    path: Path, publisher: Greeting, clients: Iterable[Greeting], heads: Iterable[bytes], tail: bytes
) -> None:
    """A plan for the program; blocks differ in their heads only."""
    said = [publisher, *clients]
    made = list(heads)
    with path.open("wb") as file:
        file.write(_u32(len(said)))
        for greeting in said:
            file.write(_u32(greeting.per_block) + _u32(len(greeting.stages)))
            for after, text in greeting.stages:
                file.write(_u32(after) + _u32(len(text)) + text)
        file.write(_u32(len(made)) + _u32(len(tail)) + tail)
        for head in made:
            file.write(_u32(len(head)) + head)


class ReceivingSide:
    """A running receiving side with all its connections."""

    def __init__(self, program: Path, port: int, protocol: str, tls: bool, least: int, plan: Path) -> None:
        command = [program, "receive", "127.0.0.1", port, protocol, int(tls), least, plan]
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self) -> None:
        """Until all have greeted."""
        self._line()

    def publish(self, count: int, interval_s: float = 0.0) -> dict[str, Any]:
        """Publish the next blocks; what arrived, how long it took, and the delays."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"publish {count} {interval_s * 1e6:.0f}\n")
        self._process.stdin.flush()
        return self._line()

    def stop(self) -> None:
        """Close all connections."""
        self._process.kill()
        self._process.communicate()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"receiving side: {self._process.stderr.read().strip()}")
        found: dict[str, Any] = json.loads(line)
        return found


def _u32(number: int) -> bytes:
    return struct.pack("<I", number)
