"""Numba's compiler behind a typed door.

Compiled code is cached next to the module, or in the user's cache directory where that is read-only. Where
neither can be written we compile anew in every process instead of failing.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compile on first call, keep the signature for the type checker."""
    try:
        return cast(F, numba.njit(cache=True)(function))
    except RuntimeError:  # "cannot cache function: no locator available"
        return cast(F, numba.njit(function))
