"""What a machine must have: Python, Java, libraries, memory, open files, a clock that is right."""

import ctypes
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

Status = Literal["ok", "warn", "fail"]
LIBRARIES = {
    "pyspark": ("4.3", "4.4"),
    "pandas": ("2.2", "3"),  # Spark 4.3 does not know pandas 3
    "pyarrow": ("18", None),
    "numpy": ("2.0", None),
    "scipy": ("1.13", None),
    "picows": ("2.3", None),
    "msgspec": ("0.18", None),
}
"""oldest, and the first that is too new"""
MEMORY_BYTES = 4 << 30
"""a driver with Java and two Python workers, and a few brokers"""
FILES_BESIDE = 200
"""open files of a broker beside its clients"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor."""

    status: Status
    subject: str
    found: str
    expected: str = ""


def check(clients: int) -> Iterator[Finding]:
    """Look at this machine."""
    yield _python()
    yield _java()
    for name, (oldest, end) in LIBRARIES.items():
        yield _library(name, oldest, end)
    yield _memory()
    yield _open_files(clients)
    yield _clock()


def _python() -> Finding:
    status: Status = "ok" if sys.version_info >= (3, 11) else "fail"
    return Finding(status, "Python", f"{platform.python_version()} at {sys.executable}", "3.11 or newer")


def _java() -> Finding:
    from sensorgrid.pipeline.spark.java import OLDEST, JavaError, java_home

    expected = f"{OLDEST} or newer"
    try:
        home = java_home()
        done = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (JavaError, OSError, subprocess.SubprocessError) as error:
        return Finding("fail", "Java", str(error), expected)
    found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    return Finding("ok", "Java", f"{found[1] if found else '?'} at {home}", expected)


def _library(name: str, oldest: str, end: str | None) -> Finding:
    expected = f"{oldest} or newer" + (f", older than {end}" if end else "")
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding("fail", name, "not installed", expected)
    fits = _numbers(oldest) <= _numbers(found) and (end is None or _numbers(found) < _numbers(end))
    return Finding("ok" if fits else "fail", name, found, expected)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)[:3]]


def _memory() -> Finding:
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _cgroup_limit()
    what = "memory" if limit is None or limit >= found else "memory (limit of the container)"
    found = found if limit is None else min(found, limit)
    status: Status = "ok" if found >= MEMORY_BYTES else "warn"
    return Finding(
        status,
        what,
        f"{found / (1 << 30):.1f} GB",
        f"{MEMORY_BYTES >> 30} GB or more for pipeline and brokers",
    )


def _cgroup_limit() -> int | None:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _open_files(clients: int) -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = clients + FILES_BESIDE
    found = f"{soft:,} (may be raised to {hard:,})" if soft < hard else f"{soft:,}"
    status: Status = "ok" if soft >= needed else "warn"
    return Finding(
        status, "open files", found, f"{needed:,} or more for {clients:,} clients of a broker (ulimit -n)"
    )


def _clock() -> Finding:
    """Whether the kernel believes that its clock is right."""
    expected = "a clock that is kept right (NTP): ticks are published by it"
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) != 8:
        return Finding("ok", "clock", "not checked on this system", expected)
    timex = (ctypes.c_ubyte * 512)()
    state = ctypes.CDLL(None).adjtimex(timex)
    error_us = int.from_bytes(bytes(timex)[24:32], sys.byteorder, signed=True)
    unsynchronised = bool(int.from_bytes(bytes(timex)[40:44], sys.byteorder) & 0x40)
    if state < 0:
        return Finding("warn", "clock", "the kernel does not say whether it is kept right", expected)
    if state == 5 or unsynchronised:
        return Finding("warn", "clock", "nobody keeps it right, says the kernel", expected)
    return Finding("ok", "clock", f"kept right, to {error_us / 1e6:.3f} s", expected)
