"""Runs commands, each once in a process of its own, and keeps what they wrote in a folder.

What is kept says which code and arguments it is of; a later run with the same folder takes it from there. So a run of
an hour can be stopped and resumed, and a claim can be worded anew without measuring anything again.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import sensorgrid
from sensorgrid.benchmarks.machine import machine
from sensorgrid.claims.claim import Command, Result
from sensorgrid.runtime import guardian
from sensorgrid.runtime.supervisor import die_with_parent

STOP_S = 20.0
"""between being asked to end and being ended"""
POLL_S = 0.2
LINE_MAX = 300
"""characters of an error that are told"""
UNKNOWN = "unknown"
PACKAGE = Path(sensorgrid.__file__).parent
PROGRAM = (sys.executable, "-m", "sensorgrid")
_UNMEASURED = ("claims", "cli/bench_all.py")
"""code that judges and shows what was measured, and measures nothing"""


@dataclass(frozen=True, slots=True)
class MeasuredCode:
    """Which code is measured."""

    commit: str
    """abbreviated, with a plus if files were changed since; "unknown" without a checkout"""
    digest: str
    """of all files that can make a difference to a figure"""
    version: str = sensorgrid.__version__
    files: tuple[tuple[str, str], ...] = ()
    """each of them, with its own digest"""

    def digest_for(self, command: Command) -> str:
        """Of the files that can make a difference to the figures of a command."""
        return (
            _joined([f for f in self.files if f[0].startswith(command.rooms)])
            if command.rooms
            else self.digest
        )


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command ended."""

    command: Command
    result: Result | None = None
    seconds: float | None = None
    date: str = ""
    fault: str = ""
    """why there is no result, or what is wrong with it"""
    lacks: str = ""
    """why it was not run"""
    kept: bool = False
    """whether it is from an earlier run"""


Say = Callable[[str], None]


def run(
    command: Command, quick: bool, folder: Path, code: MeasuredCode, say: Say = lambda _: None
) -> CommandOutcome:
    """A command's result: from the folder if it is there, otherwise by running it; never an exception but Ctrl-C."""
    arguments = command.arguments(quick)
    if arguments is None:
        return CommandOutcome(command)
    place = folder / f"{command.name}{'-quick' if quick else ''}.json"
    try:
        return _run(command, arguments, quick, place, code, say)
    except Exception as error:  # whatever is wrong with this one, the others are measured
        return CommandOutcome(command, fault=f"{type(error).__name__}: {error}")


def _run(
    command: Command, arguments: tuple[str, ...], quick: bool, place: Path, code: MeasuredCode, say: Say
) -> CommandOutcome:
    digest = code.digest_for(command)
    known = kept(place, arguments, digest, code.version)
    if known is not None:
        return CommandOutcome(
            command, known["result"], known["seconds"], known["date"], known["fault"], kept=True
        )
    if reason := command.lacks():
        return CommandOutcome(command, lacks=reason)
    raw, log = place.with_suffix(".raw"), place.with_suffix(".log")
    for path in (place, raw, log):
        if path.is_dir():
            return CommandOutcome(command, fault=f"{path.name}: found a folder, expected a file or nothing")
    raw.unlink(missing_ok=True)
    begin = time.monotonic()
    fault = _play(
        (*arguments, *command.paths(str(place.parent)), "--json", str(raw)), log, command.limit_s, say
    )
    seconds = round(time.monotonic() - begin, 1)
    result, unread = _read(raw)
    if result is None:
        return CommandOutcome(command, seconds=seconds, fault=fault or unread)
    date = datetime.now(UTC).date().isoformat()
    record = {
        "command": list(arguments),
        "quick": quick,
        "commit": code.commit,
        "digest": digest,
        "version": code.version,
        "date": date,
        "machine": machine_here(),
        "seconds": seconds,
        "fault": fault,
        "result": result,
    }
    try:
        place.write_text(json.dumps(record, indent=1) + "\n")
        raw.unlink()
    except OSError as error:  # measured all the same
        fault = fault or f"its result cannot be kept: {error}"
    return CommandOutcome(command, result, seconds, date, fault)


def machine_here() -> dict[str, Any]:
    """What is measured on, with the packages that make a difference to figures."""
    return machine("numpy", "numba", "pyspark")


def kept(place: Path, arguments: Sequence[str], digest: str, version: str) -> dict[str, Any] | None:
    """What an earlier run wrote, if it is of this code, these arguments and this machine, and ended well."""
    try:
        found = json.loads(place.read_text())
        asked = {"command": list(arguments), "digest": digest, "version": version, "fault": ""}
        fits = all(found[name] == value for name, value in asked.items()) and _is_here(found["machine"])
        whole = isinstance(found["result"], dict) and isinstance(found["date"], str) and found["seconds"] >= 0
        return found if fits and whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_here(known: dict[str, Any]) -> bool:
    """Whether a machine is this one, as far as was noted."""
    here = machine_here()
    return machine().keys() <= known.keys() and all(here.get(name) == value for name, value in known.items())


def _read(path: Path) -> tuple[Result | None, str]:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None, "it ended without a word and wrote no result"
    except (OSError, ValueError) as error:
        return None, f"its result cannot be read: {error}"
    if not isinstance(found, dict):
        return None, f"its result: found {type(found).__name__}, expected an object"
    return found, ""


def _play(arguments: Sequence[str], log: Path, limit_s: float, say: Say) -> str:
    """Run `sensorgrid` with these arguments, its output in a file; says what was wrong, if anything."""
    environment = os.environ | {"PYTHONPATH": _path()}
    with log.open("wb") as out, _guarded() as watch:
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # all that it starts is ended with it
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        try:
            watch(f"+{process.pid}")
            begin = time.monotonic()
            while process.poll() is None:
                seconds = time.monotonic() - begin
                if seconds > limit_s:
                    return f"not done after {limit_s:,.0f} s"
                say(f"{seconds:.0f} s")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
        finally:  # also on Ctrl-C
            _end(process)
            watch(f"-{process.pid}")
    if process.returncode == 0:
        return ""
    return f"exit code {process.returncode}: {last_line(log)}"


@contextlib.contextmanager
def _guarded() -> Iterator[Callable[[str], None]]:
    """A guardian that ends the groups it is told of if this process is killed before it says that they are gone."""
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", guardian.__file__],
        stdin=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    pipe = watcher.stdin
    assert pipe is not None

    def tell(line: str) -> None:
        with contextlib.suppress(OSError):  # somebody has killed it: the command runs on unguarded
            pipe.write(f"{line}\n")
            pipe.flush()

    try:
        yield tell
    finally:
        with contextlib.suppress(OSError):
            pipe.close()
        watcher.wait()


def _path() -> str:
    """Where Python finds this very code, whatever folder the command runs in."""
    return os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command and what it left behind."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def last_line(log: Path) -> str:
    """The last thing that a command said."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:LINE_MAX] if said else "it said nothing"


def code_here() -> MeasuredCode:
    """The code that runs: its commit where there is a checkout, and a digest of its files."""
    files = _files(PACKAGE)
    return MeasuredCode(_commit(PACKAGE), _joined(files), files=files)


def _commit(package: Path) -> str:
    root = package.parent.parent
    if not (root / ".git").exists():
        return UNKNOWN
    try:
        commit = _git(root, "rev-parse", "--short=10", "HEAD").strip()
        changed = _git(root, "status", "--porcelain", "--", str(package))
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return commit + ("+" if changed.strip() else "")


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    ).stdout


def _files(package: Path) -> tuple[tuple[str, str], ...]:
    """The files that can make a difference to a figure, by name, with their digests."""
    found = []
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package).as_posix()
        if path.is_file() and "__pycache__" not in path.parts and not name.startswith(_UNMEASURED):
            found.append((name, hashlib.sha256(path.read_bytes()).hexdigest()))
    return tuple(found)


def _joined(files: Iterable[tuple[str, str]]) -> str:
    return hashlib.sha256("\n".join(f"{name} {digest}" for name, digest in files).encode()).hexdigest()[:16]
