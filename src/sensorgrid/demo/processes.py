"""The demo's processes: the pipeline and the brokers, each started, watched, and gone when the demo is gone."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sensorgrid.model.errors import SensorGridError

STOP_S = 20.0
"""how long a process may take to end after it was asked to"""
RESTART_S = 0.2
"""pause before a process that died is started again"""
_PR_SET_PDEATHSIG = 1


class ProcessError(SensorGridError, RuntimeError):
    """A process that ended and should not have."""


class Process:
    """One command, with what it says in a file."""

    def __init__(self, name: str, arguments: list[str], log: Path, restart: bool = False) -> None:
        self.name = name
        self.log = log
        self.starts = 0
        """how often it was started"""
        self.on_death: Callable[[int], None] | None = None
        """called with the exit code of a process that nobody stopped"""
        self._arguments = arguments
        self._restart = restart
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start it."""
        self.starts += 1
        with self.log.open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                process_group=0,  # Ctrl-C is for the demo, which stops the others in order
                preexec_fn=_die_with_parent,
            )
        self._watch = asyncio.create_task(self._wait(self._process))

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if self._stopping:
            return
        if self.on_death is not None:
            self.on_death(code)
        if self._restart:
            await asyncio.sleep(RESTART_S)
            if not self._stopping:
                await self.start()

    @property
    def code(self) -> int | None:
        """Exit code of the process, if it has ended."""
        return None if self._process is None else self._process.returncode

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    async def stop(self, patience_s: float = STOP_S) -> None:
        """Ask it to end; kill it, with all that it has started, if it does not in time."""
        self._stopping = True
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what is left of its group, such as Spark's workers
        await process.wait()
        if self._watch is not None:
            await asyncio.gather(self._watch, return_exceptions=True)

    def last_words(self, lines: int = 6) -> str:
        """The end of what it said."""
        try:
            return "\n".join(self.log.read_text(errors="replace").strip().splitlines()[-lines:])
        except OSError:
            return ""


def _die_with_parent() -> None:
    """Linux ends this process when the one that started it dies, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
