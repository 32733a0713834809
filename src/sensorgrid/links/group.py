"""One message to many links, in a loop of machine code.

Per link, Python's part of a send costs as much as the kernel's: at 16 KB, two microseconds each. A group joins the
frame once and hands it to the sockets of all its links in one compiled loop. It touches only sockets for which
nothing waits, as `READY` says; what a socket does not take at once, and links with TLS, go the usual way, so order
is kept and nothing is lost.
"""

from collections.abc import Iterable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

NEVER = -1
"""in `READY`: not to be written to from here"""

_FLAGS = 0x4000 | 0x40
"""MSG_NOSIGNAL, MSG_DONTWAIT"""
_types: Any = numba.types
_send = _types.ExternalFunction("send", _types.intp(_types.int32, _types.uintp, _types.uintp, _types.int32))


class Slots:
    """Which sockets may be written to at once: a number per link, its descriptor or `NEVER`."""

    def __init__(self) -> None:
        self.ready: npt.NDArray[np.int32] = np.full(64, NEVER, np.int32)
        self._free = list(range(63, -1, -1))

    def take(self) -> int:
        """A slot for a new link, not ready yet."""
        if not self._free:
            size = len(self.ready)
            self.ready = np.concatenate((self.ready, np.full(size, NEVER, np.int32)))
            self._free = list(range(2 * size - 1, size - 1, -1))
        return self._free.pop()

    def give(self, slot: int) -> None:
        """A link is gone."""
        self.ready[slot] = NEVER
        self._free.append(slot)
