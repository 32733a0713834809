"""One block to many links, in a loop of machine code.

At 16 KB, what Python does per link costs as much as what the kernel does. A `Fan` carries out a plan (see
`sensorgrid.overlay.forwarding`): it cuts the block for each group, puts the frame's header before it, and hands the
frame to the sockets of all receivers of the group, in one compiled loop over all of them.

The loop writes only to sockets of links for which nothing waits and which have no TLS, as `SLOTS` says. Where it may
not write, or the kernel takes less than all, it stops, and the rest goes through the link: order is kept, and
nothing is lost.
"""

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from sensorgrid.index.jit import jit
from sensorgrid.model.block import Progression, Slab, Values
from sensorgrid.model.ids import PeerId, is_broker
from sensorgrid.overlay.codec import mould_of
from sensorgrid.overlay.forwarding import ReceiverGroup, SendPlan

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

NEVER = -1
"""in a slot: not to be written to from here"""

_types: Any = numba.types
_send = _types.ExternalFunction("send", _types.intp(_types.int32, _types.uintp, _types.uintp, _types.int32))
_sendmsg = _types.ExternalFunction("sendmsg", _types.intp(_types.int32, _types.uintp, _types.int32))
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


class Cut:
    """How the frame of a group is made of a block."""

    __slots__ = ("after", "before", "columns", "head_bytes", "rows", "size", "tick_at")

    def __init__(self, group: ReceiverGroup, plan: SendPlan) -> None:
        self.rows = _within(group.y, plan.y)
        self.columns = _within(group.x, plan.x)
        mould, at = mould_of(group.generation, group.cell, group.y, group.x, group.epoch)
        values_bytes = 4 * len(range(*group.y)) * len(range(*group.x))
        header = frame_header(len(mould) + values_bytes)
        self.before = header + mould[:at]
        """what stands before the tick"""
        self.after = mould[at + 8 :]
        """and after it"""
        self.tick_at = len(self.before)
        self.head_bytes = len(header) + len(mould)
        self.size = self.head_bytes + values_bytes

    def frame(self, tick: int, values: Values) -> bytes:
        """Cut it and put its head before it."""
        part = values[self.rows, self.columns].tobytes()
        return b"".join((self.before, tick.to_bytes(8), self.after, part))


class Fan:
    """A plan with the links of its receivers."""

    def __init__(self, plan: SendPlan, places: Mapping[PeerId, int | None]) -> None:
        """`places` are slots of receivers; None: frames go through its link; left out: not even frames do."""
        self.epoch = SLOTS.epoch
        self.peers: list[PeerId] = []
        """receivers with a slot, group by group"""
        self.others: list[tuple[Cut, tuple[PeerId, ...]]] = []
        """those without, who get the same frame through their links"""
        self.odd: list[tuple[ReceiverGroup, tuple[PeerId, ...]]] = []
        """receivers that were left out"""
        cuts: list[Cut] = []
        slots: list[int] = []
        starts = [0]
        for group in plan.groups:
            cut = Cut(group, plan)
            here = [(peer, place) for peer in group.peers if (place := places.get(peer)) is not None]
            if here:
                cuts.append(cut)
                self.peers += [peer for peer, _ in here]
                slots += [place for _, place in here]
                starts.append(len(slots))
            if len(here) < len(group.peers):
                others = tuple(peer for peer in group.peers if peer in places and places[peer] is None)
                odd = tuple(peer for peer in group.peers if peer not in places)
                if others:
                    self.others.append((cut, others))
                if odd:
                    self.odd.append((group, odd))
        self.brokers: dict[PeerId, tuple[int, int]] = {}
        """brokers among those who get frames: bytes of their values, and of all, in one block"""
        self.clients_bytes = 0
        """of values for all the others"""
        for group in plan.groups:
            values_bytes = 4 * len(range(*group.y)) * len(range(*group.x))
            for peer in group.peers:
                if peer not in places:
                    continue
                if is_broker(peer):
                    values, everything = self.brokers.get(peer, (0, 0))
                    size = values_bytes + len(
                        mould_of(group.generation, group.cell, group.y, group.x, group.epoch)[0]
                    )
                    self.brokers[peer] = (values + values_bytes, everything + size)
                else:
                    self.clients_bytes += values_bytes
        self._slots = np.array(slots, np.int64)
        self._starts = np.array(starts, np.int64)
        numbers = [
            (
                *(c.rows.start, len(range(c.rows.start, c.rows.stop, c.rows.step)), c.rows.step),
                *(
                    c.columns.start,
                    len(range(c.columns.start, c.columns.stop, c.columns.step)),
                    c.columns.step,
                ),
                *(c.head_bytes, c.tick_at),
            )
            for c in cuts
        ]
        self._cuts: Ints = np.array(numbers, np.int64).reshape(-1, 8)
        heads = [c.before + bytes(8) + c.after for c in cuts]
        self._heads: Bytes = np.zeros((len(cuts), max(map(len, heads), default=0)), np.uint8)
        for number, head in enumerate(heads):
            self._heads[number, : len(head)] = np.frombuffer(head, np.uint8)
        self._frame: Bytes = np.zeros(max((c.size for c in cuts), default=0), np.uint8)
        self._pieces: Ints = np.zeros(11, np.int64)
        self._state: Ints = np.zeros(6, np.int64)

    def send(self, tick: int, values: Values) -> "Sending":
        """Begin to send a block to those with a slot."""
        return Sending(self, tick, values)


def fits(slab: Slab) -> bool:
    """Whether values lie in memory as they travel, row by row."""
    values = slab.values
    return values.dtype == np.float32 and values.strides[1] == 4 and values.strides[0] > 0


class Sending:
    """One block on its way; `step` until it says that all is done."""

    def __init__(self, fan: Fan, tick: int, values: Values) -> None:
        self._fan = fan
        self._tick = tick
        self._values = values
        self._shared: tuple[int, bytes] | None = None
        state = fan._state
        state[0] = state[1] = state[3] = 0
        state[2] = -1

    def step(self) -> tuple[PeerId, bytes | memoryview] | None:
        """Send until a link must take over: its peer, and what it has to send first. None: all is sent."""
        fan, values = self._fan, self._values
        if not fan.peers:
            return None
        state = fan._state
        length = _spread(
            values.ctypes.data,
            values.strides[0],
            self._tick,
            fan._cuts,
            fan._heads,
            fan._starts,
            fan._slots,
            SLOTS.ready,
            fan._frame,
            fan._pieces,
            state,
        )
        if length == 0:
            return None
        group, receiver, sent = int(state[0]), int(state[1]), int(state[3])
        state[1] = receiver + 1
        peer = fan.peers[receiver]
        if fan._starts[group + 1] - fan._starts[group] == 1:
            return peer, fan._frame[sent:length].tobytes()
        if self._shared is None or self._shared[0] != group:
            self._shared = (group, fan._frame[:length].tobytes())
        return peer, memoryview(self._shared[1])[sent:] if sent else self._shared[1]


@cache
def prepare() -> None:
    """Compile the loop, or load it from the cache: better before the first client connects than at the first block."""
    numbers, letters = np.zeros((0, 8), np.int64), np.zeros((0, 0), np.uint8)
    _spread(
        0, 4, 0, numbers, letters, np.zeros(1, np.int64), numbers[:, 0].copy(), SLOTS.ready,
        np.zeros(0, np.uint8), np.zeros(11, np.int64), np.zeros(6, np.int64),
    )  # fmt: skip


def frame_header(size: int) -> bytes:
    """Of a server's frame: final, binary, not masked (RFC 6455, section 5.2)."""
    if size < 126:
        return bytes((0x82, size))
    if size < 1 << 16:
        return b"\x82\x7e" + size.to_bytes(2)
    return b"\x82\x7f" + size.to_bytes(8)


def _within(part: Progression, whole: Progression) -> slice:
    """A progression as a slice of another one that contains it."""
    first, step = (part[0] - whole[0]) // whole[2], part[2] // whole[2]
    return slice(first, first + (len(range(*part)) - 1) * step + 1, step)


@jit
def _gather(to: int, block: int, rows: int, step: int, columns: int, column_step: int) -> None:
    """Copy a strided rectangle of four-byte values to one place."""
    for number in range(rows):
        line = block + number * step
        if column_step == 1:
            _memcpy(to, line, 4 * columns)
            to += 4 * columns
        else:
            for _ in range(columns):
                _memcpy(to, line, 4)
                to += 4
                line += 4 * column_step


@jit
def _spread(
    values: int,
    stride: int,
    tick: int,
    cuts: Ints,
    heads: Bytes,
    starts: Ints,
    slots: Ints,
    ready: npt.NDArray[np.int32],
    frame: Bytes,
    pieces: Ints,
    state: Ints,
) -> int:
    """Send from group state[0], receiver state[1] on.

    0 when all is sent. Else the length of the frame of which receiver state[1] took only state[3] bytes.
    """
    target = frame.ctypes.data
    group, receiver = state[0], state[1]
    while group < cuts.shape[0]:
        row, rows, row_step, column, columns, column_step, head, at = cuts[group]
        width = 4 * columns
        length: int = head + rows * width
        block = values + row * stride + 4 * column
        step = row_step * stride
        if state[2] != group:
            state[2] = group
            frame[:head] = heads[group, :head]
            for digit in range(8):
                frame[at + digit] = (tick >> (56 - 8 * digit)) & 255
            state[4] = 0  # the rest is not in the frame
            state[5] = 0  # nor in pieces
            if column_step == 1 and (step == width or rows == 1):
                # All rows lie behind each other: the kernel gathers head and values, without a copy here.
                pieces[2], pieces[3] = pieces.ctypes.data + 56, 2  # what `sendmsg` takes: where they stand,
                pieces[7], pieces[8] = target, head  # address and length of one
                pieces[9], pieces[10] = block, rows * width  # and the other
                state[5] = 1
        while receiver < starts[group + 1]:
            descriptor = ready[slots[receiver]]
            sent = 0
            if state[4] == 0 and (state[5] == 0 or descriptor < 0):
                _gather(target + head, block, rows, step, columns, column_step)
                state[4] = 1
            if descriptor >= 0:
                if state[4] == 1:
                    sent = _send(descriptor, target, length, _FLAGS)
                else:
                    sent = _sendmsg(descriptor, pieces.ctypes.data, _FLAGS)
            if sent != length:
                if state[4] == 0:
                    _gather(target + head, block, rows, step, columns, column_step)
                    state[4] = 1
                state[0], state[1], state[3] = group, receiver, max(sent, 0)
                return length
            receiver += 1
        group += 1
    return 0
