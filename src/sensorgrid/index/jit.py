"""Numba's compiler behind a typed door, with a cache that is never out of date.

Compiling takes far longer than most commands, so the machine code is kept. Numba's own cache looks only at the file of
each function and misses changes in what that function calls. Ours lies in the user's cache directory (or in
NUMBA_CACHE_DIR), in a folder named after the content of all modules here: another version has another folder.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.core.config

F = TypeVar("F", bound=Callable[..., Any])

_FOLDERS_KEPT = 3

_config: Any = numba.core.config  # its settings are made at run time


def jit(function: F) -> F:
    """Compile on first call, keep the signature for the type checker."""
    if _FOLDER is None:  # nowhere to write: compile anew in every process
        return cast(F, numba.njit(function))
    before = _config.CACHE_DIR
    _config.CACHE_DIR = _FOLDER
    try:
        return cast(F, numba.njit(cache=True)(function))
    finally:
        _config.CACHE_DIR = before


def _folder() -> str | None:
    """The folder for this version of the code, if one can be made; of others only the latest few are kept."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    try:
        home = Path(_config.CACHE_DIR or _user_cache()) / "sensorgrid" / "compiled"
        folder = home / digest.hexdigest()[:16]
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)  # another process may be as far as this one
            for old in sorted(home.iterdir(), key=_used, reverse=True)[_FOLDERS_KEPT:]:
                shutil.rmtree(old, ignore_errors=True)
        os.utime(folder)  # in use
        return str(folder) if os.access(folder, os.W_OK) else None
    except (OSError, RuntimeError):  # read-only, or a user without a home
        return None


def _used(folder: Path) -> float:
    """When a folder was last in use; one that somebody else has just removed: never."""
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


_FOLDER = _folder()
