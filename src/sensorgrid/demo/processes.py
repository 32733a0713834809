"""The demo's processes: pipeline and brokers under a supervisor, the batch by itself; none outlives the demo."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from sensorgrid.model.errors import SensorGridError
from sensorgrid.runtime.supervisor import SupervisedPart, Supervisor

CLI = (sys.executable, "-m", "sensorgrid")
LINES = 6
"""that are told when something goes wrong"""


class ProcessError(SensorGridError, RuntimeError):
    """A process that ended and should not have."""


class Crew:
    """Commands that run under a supervisor, with what each says in a file of its own."""

    def __init__(self, parts: list[SupervisedPart], logs: Path) -> None:
        self._logs = logs
        self._supervisor = Supervisor(parts, self._say, signals=False)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start all."""
        self._task = asyncio.create_task(self._supervisor.run())

    async def stop(self) -> None:
        """Stop all, in order."""
        self._supervisor.stop()
        if self._task is not None:
            await self._task

    def kill(self, name: str) -> None:
        """SIGKILL, as the end of its machine would be."""
        pid = self._supervisor.facts(name)["pid"]
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def restarts(self, name: str) -> int:
        """How often it was started again."""
        found = self._supervisor.facts(name)
        return int(found["restarts"]) + (found["state"] == "waiting" and found["last_exit"] is not None)

    def check(self, name: str) -> None:
        """Complain if a part has died."""
        if self.restarts(name):
            code = self._supervisor.facts(name)["last_exit"]
            raise ProcessError(
                f"{name}: found it ended with {code}, expected it to run:\n{self.last_words(name)}"
            )

    def last_words(self, name: str) -> str:
        """The end of what a part said."""
        return last_lines(self._log(name))

    def _log(self, name: str) -> Path:
        return self._logs / f"{name.replace(' ', '-')}.log"

    def _say(self, name: str, line: str) -> None:
        with self._log(name).open("a") as out:
            out.write(line + "\n")


async def run_once(arguments: list[str], log: Path) -> None:
    """Run a Python module to its end; it is killed, with all that it has started, if nobody waits any more."""
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        code = await process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if code:
        raise ProcessError(f"{arguments[0]}: found it ended with {code}, expected 0:\n{last_lines(log)}")


def last_lines(log: Path) -> str:
    """The end of a log."""
    with suppress(OSError):
        return "\n".join(log.read_text(errors="replace").strip().splitlines()[-LINES:])
    return ""
