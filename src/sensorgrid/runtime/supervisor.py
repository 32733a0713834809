"""Runs commands as processes, and runs them again when they die; stops them in order; leaves none behind.

It knows nothing of what the commands do. Each runs in a session and process group of its own, so that Ctrl-C reaches
only the supervisor and that a child's own children can be ended with it. If the supervisor is killed, even with
SIGKILL, the kernel kills its children (Linux: PR_SET_PDEATHSIG), and a guardian, one tiny process for all of them,
kills their groups (`sensorgrid.runtime.guardian`).
"""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

BACKOFF_S = (0.5, 30.0)
"""shortest and longest pause before a command is run again"""
HEALTHY_S = 60.0
"""after running for so long, a command starts over with the shortest pause"""
LINE_BYTES_MAX = 1 << 16
_PR_SET_PDEATHSIG = 1
_GUARDIAN = Path(__file__).with_name("guardian.py")
Say = Callable[[str, str], None]
"""is told a name and a line"""


@dataclass(frozen=True, slots=True)
class SupervisedPart:
    """A command to keep running."""

    name: str
    """stands before each line of its output"""
    command: tuple[str, ...]
    stage: int = 0
    """parts of the lowest stage are started first and stopped last"""
    grace_s: float = 10.0
    """between being asked to end and being ended"""
    reads_again: bool = False
    """whether it reads its file again on SIGHUP"""
    asks_with: signal.Signals = signal.SIGTERM
    """how it is asked to end"""
    may_end: bool = False
    """whether exit code 0 is its own wish, and it is not run again"""


class _Child:
    """A part and its current process."""

    def __init__(self, part: SupervisedPart) -> None:
        self.part = part
        self.process: Process | None = None
        self.state = "waiting"
        self.restarts = 0
        self.exit: int | None = None
        """how the last process ended"""
        self.since = time.time()
        self.pause_s = BACKOFF_S[0]

    def facts(self) -> dict[str, Any]:
        """For the status."""
        return {
            "name": self.part.name,
            "state": self.state,
            "pid": self.process.pid if self.process is not None and self.state == "running" else None,
            "restarts": self.restarts,
            "last_exit": self.exit,
            "since": round(self.since, 3),
        }


class Supervisor:
    """Runs until `stop` is called, or a signal asks for it."""

    def __init__(
        self, parts: Sequence[SupervisedPart], say: Say, status: Path | None = None, *, signals: bool = True
    ) -> None:
        """Without `signals`, the caller handles signals and calls `stop`."""
        self._children = [_Child(part) for part in parts]
        self._tell = say
        self._status = status
        self._status_failed = False
        self._signals = (signal.SIGINT, signal.SIGTERM) if signals else ()
        self._stopping = asyncio.Event()
        self._guardian: Process | None = None

    def _say(self, name: str, line: str) -> None:
        """Pass a line on; if it cannot be written, the parts run on all the same."""
        with contextlib.suppress(OSError, ValueError):
            self._tell(name, line)

    def facts(self, name: str) -> dict[str, Any]:
        """How a part is: state, pid, restarts, last exit."""
        return next(child.facts() for child in self._children if child.part.name == name)

    def stop(self) -> None:
        """Ask for an orderly end."""
        self._stopping.set()

    async def run(self) -> None:
        """Keep all parts running until asked to stop; then stop the highest stage first."""
        loop = asyncio.get_running_loop()
        for number in self._signals:
            loop.add_signal_handler(number, self.stop)
        if self._signals:
            loop.add_signal_handler(signal.SIGHUP, self._pass_on)
        watch = asyncio.create_task(self._keep_guardian())
        tasks: dict[_Child, asyncio.Task[None]] = {}
        try:
            for child in sorted(self._children, key=lambda c: c.part.stage):
                tasks[child] = asyncio.create_task(self._keep(child))
            await self._stopping.wait()
            for stage in sorted({c.part.stage for c in self._children}, reverse=True):
                mine = [child for child in self._children if child.part.stage == stage]
                await asyncio.gather(*(self._end(child, tasks[child]) for child in mine))
        finally:
            self._stopping.set()
            await asyncio.gather(*(self._end(child, task) for child, task in tasks.items()))
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await self._dismiss_guardian()
            for number in self._signals:
                loop.remove_signal_handler(number)
            if self._signals:
                loop.remove_signal_handler(signal.SIGHUP)

    def _pass_on(self) -> None:
        """SIGHUP: pass it to the parts that read their file again."""
        for child in self._children:
            process = child.process
            if child.part.reads_again and process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGHUP)

    # one part

    async def _keep(self, child: _Child) -> None:
        """Run a part again and again."""
        while not self._stopping.is_set():
            begin = time.monotonic()
            await self._live(child)
            if self._stopping.is_set():
                break
            if child.part.may_end and child.exit == 0:
                self._say(child.part.name, "ended as it wished; not run again")
                break
            if time.monotonic() - begin >= HEALTHY_S:
                child.pause_s = BACKOFF_S[0]
            self._note(child, "waiting")
            self._say(child.part.name, f"{_ended(child.exit)}; again in {child.pause_s:g} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(child.pause_s):
                    await self._stopping.wait()
            child.pause_s = min(2 * child.pause_s, BACKOFF_S[1])
            child.restarts += 1
        self._note(child, "stopped")

    async def _live(self, child: _Child) -> None:
        """One process, from its start to its end."""
        # A pipe of our own: asyncio's would let `wait` last until the last grandchild has closed it.
        ours, theirs = os.pipe()
        output = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(ours, "rb", 0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *child.part.command,
                stdin=DEVNULL,
                stdout=theirs,
                stderr=STDOUT,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        except OSError as error:
            child.exit = 127
            self._say(child.part.name, f"cannot be started: {error}")
            pipe.close()
            return
        finally:
            os.close(theirs)
        child.process = process
        self._watch(f"+{process.pid}")
        self._note(child, "running")
        reading = asyncio.create_task(self._read(child.part.name, output))
        child.exit = await process.wait()
        _kill_group(process.pid, signal.SIGKILL)  # what it has left behind goes, too
        self._watch(f"-{process.pid}")
        await asyncio.wait({reading}, timeout=5)  # somebody in a session of its own may hold the pipe
        reading.cancel()
        pipe.close()

    async def _read(self, name: str, output: asyncio.StreamReader) -> None:
        """Pass on the output, line by line; a line without end is cut."""
        rest = b""
        while chunk := await output.read(LINE_BYTES_MAX):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._say(name, line.decode(errors="replace").rstrip("\r"))
        if rest:
            self._say(name, rest.decode(errors="replace"))

    async def _end(self, child: _Child, task: "asyncio.Task[None]") -> None:
        """Ask a part to end, and end it if it does not."""
        asked = 0.0
        while not task.done():
            process = child.process
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    if not asked:
                        asked = time.monotonic()
                        self._note(child, "stopping")
                        process.send_signal(child.part.asks_with)
                    elif time.monotonic() - asked >= child.part.grace_s:
                        self._say(child.part.name, f"did not end within {child.part.grace_s:g} s; killed")
                        _kill_group(process.pid, signal.SIGKILL)
                        await process.wait()
            await asyncio.wait({task}, timeout=0.1)

    # the guardian

    async def _keep_guardian(self) -> None:
        while True:
            try:
                self._guardian = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", "-S", str(_GUARDIAN), stdin=PIPE, start_new_session=True
                )
            except OSError as error:
                self._say("guardian", f"cannot be started: {error}; again in {BACKOFF_S[1]:g} s")
                await asyncio.sleep(BACKOFF_S[1])
                continue
            for child in self._children:
                if child.process is not None and child.process.returncode is None:
                    self._watch(f"+{child.process.pid}")
            await self._guardian.wait()
            await asyncio.sleep(BACKOFF_S[0])

    def _watch(self, line: str) -> None:
        """Tell the guardian."""
        if self._guardian is not None and self._guardian.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._guardian.stdin.write(f"{line}\n".encode())

    async def _dismiss_guardian(self) -> None:
        guardian = self._guardian
        if guardian is not None and guardian.returncode is None and guardian.stdin is not None:
            guardian.stdin.close()
            await guardian.wait()

    # status

    def _note(self, child: _Child, state: str) -> None:
        child.state, child.since = state, time.time()
        if self._status is not None:
            facts = {"pid": os.getpid(), "parts": [c.facts() for c in self._children]}
            fresh = self._status.with_name(f".{self._status.name}.{os.getpid()}")
            try:
                fresh.write_text(json.dumps(facts) + "\n")
                fresh.replace(self._status)
                self._status_failed = False
            except OSError as error:
                if not self._status_failed:  # said once; watching goes on without it
                    self._say(child.part.name, f"status cannot be written: {error}")
                self._status_failed = True


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _kill_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent(parent: int) -> None:
    """Runs in the child before its command does."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it has died meanwhile; in a container it may well be process 1
            os._exit(1)
