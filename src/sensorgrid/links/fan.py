"""One block to many links, in a loop of machine code.

At 16 KB, what Python does per link costs as much as what the kernel does. A `Fan` carries out a plan (see
`sensorgrid.overlay.forwarding`): it cuts the block for each share, puts the frame's header before it, and hands the
frame to the sockets of all receivers of the share, in one compiled loop over all of them.

The loop writes only to sockets of links for which nothing waits and which have no TLS, as `SLOTS` says. Where it may
not write, or the kernel takes less than all, it stops, and the rest goes through the link: order is kept, and
nothing is lost.
"""

import sys
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from sensorgrid.index.jit import jit
from sensorgrid.model.block import Slab
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.codec import body_of, head_of, mould_of
from sensorgrid.overlay.forwarding import Plan, Share
from sensorgrid.overlay.messages import Feed

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

NEVER = -1
"""in a slot: not to be written to from here"""
HEAD_BYTES_MAX = 512

_types: Any = numba.types
_send = _types.ExternalFunction("send", _types.intp(_types.int32, _types.uintp, _types.uintp, _types.int32))
_memcpy = _types.ExternalFunction("memcpy", _types.uintp(_types.uintp, _types.uintp, _types.uintp))
_FLAGS = 0x4000 | 0x40
"""MSG_NOSIGNAL | MSG_DONTWAIT"""
AVAILABLE = sys.platform == "linux" and sys.byteorder == "little"


class Slots:
    """Which sockets may be written to at once: per link a place with its descriptor, or with `NEVER`."""

    def __init__(self) -> None:
        self.ready: npt.NDArray[np.int32] = np.full(64, NEVER, np.int32)
        self.epoch = 0
        """grows whenever a place may come to belong to another link"""
        self._free = list(range(63, -1, -1))

    def take(self) -> int:
        """A place for a new link, not ready yet."""
        if not self._free:
            size = len(self.ready)
            self.ready = np.concatenate((self.ready, np.full(size, NEVER, np.int32)))
            self._free = list(range(2 * size - 1, size - 1, -1))
            self.epoch += 1
        return self._free.pop()

    def give(self, place: int) -> None:
        """A link is gone."""
        self.ready[place] = NEVER
        self.epoch += 1
        self._free.append(place)


SLOTS = Slots()
"""of all links in this process: one loop drives them"""


class Fan:
    """A plan with the links of its receivers."""

    def __init__(self, plan: Plan, places: dict[PeerId, int]) -> None:
        """`places` are the slots of receivers whose links allow this at times; the others are left out."""
        self.epoch = SLOTS.epoch
        self.peers: list[PeerId] = []
        """receivers, share by share"""
        self.others: list[tuple[Share, tuple[PeerId, ...]]] = []
        """what is left out, and for whom"""
        shares: list[Share] = []
        slots: list[int] = []
        starts = [0]
        for share in plan.shares:
            here = [peer for peer in share.peers if peer in places]
            if len(here) < len(share.peers):
                self.others.append((share, tuple(peer for peer in share.peers if peer not in places)))
            if here:
                shares.append(share)
                self.peers += here
                slots += [places[peer] for peer in here]
                starts.append(len(slots))
        self._slots = np.array(slots, np.int64)
        self._starts = np.array(starts, np.int64)
        self._rectangles = np.array([_rectangle(share, plan) for share in shares], np.int64).reshape(-1, 6)
        self._heads: Bytes = np.zeros((len(shares), HEAD_BYTES_MAX), np.uint8)
        self._lengths: Ints = np.zeros((len(shares), 2), np.int64)
        largest = 0
        for number, share in enumerate(shares):
            rows, columns = len(range(*share.y)), len(range(*share.x))
            mould, tick_at = mould_of(share.generation, share.cell, share.y, share.x)
            size = 4 * rows * columns
            head = frame_header(len(mould) + size) + mould
            self._heads[number, : len(head)] = np.frombuffer(head, np.uint8)
            self._lengths[number] = len(head), len(head) - len(mould) + tick_at
            largest = max(largest, len(head) + size)
        self._frame: Bytes = np.zeros(largest, np.uint8)
        self._state: Ints = np.zeros(4, np.int64)

    def fits(self, slab: Slab) -> bool:
        """Whether its values lie in memory as the loop expects them."""
        values = slab.values
        return values.dtype == np.float32 and values.strides[1] == 4 and values.strides[0] > 0

    def send(self, tick: int, slab: Slab) -> "Sending":
        """Begin to send a block."""
        return Sending(self, tick, slab)


class Sending:
    """One block on its way; `step` until it says that all is done."""

    def __init__(self, fan: Fan, tick: int, slab: Slab) -> None:
        self._fan = fan
        self._tick = tick
        self._values = slab.values
        self._shared: tuple[int, bytes] | None = None
        state = fan._state
        state[0] = state[1] = state[3] = 0
        state[2] = -1

    def step(self) -> tuple[PeerId, bytes | memoryview] | None:
        """Send until a link must take over: its peer, and what it has to send first. None: all is sent."""
        fan, values = self._fan, self._values
        state = fan._state
        length = _spread(
            values.ctypes.data,
            values.strides[0],
            self._tick,
            fan._rectangles,
            fan._heads,
            fan._lengths,
            fan._starts,
            fan._slots,
            SLOTS.ready,
            fan._frame,
            state,
        )
        if length == 0:
            return None
        share, receiver, sent = int(state[0]), int(state[1]), int(state[3])
        state[1] = receiver + 1
        peer = fan.peers[receiver]
        if fan._starts[share + 1] - fan._starts[share] == 1:
            return peer, fan._frame[sent:length].tobytes()
        if self._shared is None or self._shared[0] != share:
            self._shared = (share, fan._frame[:length].tobytes())
        return peer, memoryview(self._shared[1])[sent:] if sent else self._shared[1]


def frame_header(size: int) -> bytes:
    """Of a server's frame: final, binary, not masked (RFC 6455, section 5.2)."""
    if size < 126:
        return bytes((0x82, size))
    if size < 1 << 16:
        return b"\x82\x7e" + size.to_bytes(2)
    return b"\x82\x7f" + size.to_bytes(8)


def frame_of(feed: Feed) -> bytes:
    """A block as a server's frame."""
    head, body = head_of(feed), body_of(feed.slabs or ())
    return b"".join((frame_header(len(head) + len(body)), head, body))


def _rectangle(share: Share, plan: Plan) -> tuple[int, int, int, int, int, int]:
    """First row, rows, their stride; first column, columns, their stride; within the block."""
    numbers: list[int] = []
    for part, of in ((share.y, plan.y), (share.x, plan.x)):
        numbers += ((part[0] - of[0]) // of[2], len(range(*part)), part[2] // of[2])
    return tuple(numbers)  # type: ignore[return-value]


@jit
def _spread(
    values: int,
    stride: int,
    tick: int,
    rectangles: Ints,
    heads: Bytes,
    lengths: Ints,
    starts: Ints,
    slots: Ints,
    ready: npt.NDArray[np.int32],
    frame: Bytes,
    state: Ints,
) -> int:
    """Send from share state[0], receiver state[1] on; state[2] is the share whose frame is made.

    0 when all is sent. Else the length of the frame of which receiver state[1] took only state[3] bytes.
    """
    target = frame.ctypes.data
    share, receiver = state[0], state[1]
    while share < rectangles.shape[0]:
        head = lengths[share, 0]
        row, rows, row_step, column, columns, column_step = rectangles[share]
        length: int = head + 4 * rows * columns
        if state[2] != share:
            state[2] = share
            frame[:head] = heads[share, :head]
            at = lengths[share, 1]
            for digit in range(8):
                frame[at + digit] = (tick >> (56 - 8 * digit)) & 255
            to = target + head
            for number in range(rows):
                line = values + (row + number * row_step) * stride + 4 * column
                if column_step == 1:
                    _memcpy(to, line, 4 * columns)
                    to += 4 * columns
                else:
                    for _ in range(columns):
                        _memcpy(to, line, 4)
                        to += 4
                        line += 4 * column_step
        while receiver < starts[share + 1]:
            descriptor = ready[slots[receiver]]
            sent = 0
            if descriptor >= 0:
                sent = _send(descriptor, target, length, _FLAGS)
            if sent != length:
                state[0], state[1], state[3] = share, receiver, max(sent, 0)
                return length
            receiver += 1
        share += 1
    return 0
