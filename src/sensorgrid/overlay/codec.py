"""Messages as bytes: a msgpack header, then raw little-endian values.

The header says what the values are; values are neither copied into it nor parsed. A frame begins with the length
of its header. Decoding trusts nothing: what is not a message of ours is a `CodecError`.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, TypeVar, Union

import msgspec
import numpy as np

from sensorgrid.model.block import Progression, Slab
from sensorgrid.model.errors import SensorGridError
from sensorgrid.overlay import messages
from sensorgrid.overlay.messages import Feed, Message

VERSION = 1
"""of the frames; the first byte of each"""
PACKED = 0x80
"""in the first byte: the values are compressed"""
_PREFIX = struct.Struct("<BI")
_ANY_TICK, _OTHER_TICK = 0x5A17_9C3E_60D1_B48F, 0x25E8_63C1_9F2E_4B70
"""ticks that take eight different bytes each: where two heads made with them differ is the place of the tick"""
_Tick = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]


M = TypeVar("M", bound=Message)


class CodecError(SensorGridError, ValueError):
    """Bytes that are not a message."""


class _FeedHeader(msgspec.Struct, frozen=True, array_like=True, tag="Feed"):
    generation: int
    cell: messages.Code
    tick: _Tick
    revision: int
    slabs: tuple[tuple[tuple[int, int, int], tuple[int, int, int], str], ...] | None
    until: int
    epoch: messages.Count = 0


class _SilentHeader(_FeedHeader, frozen=True, array_like=True, tag="Feed"):
    """The same of a block that rests on no observation; others are not a byte longer for it."""

    silent_s: Annotated[float, msgspec.Meta(ge=0)] | None = None


_encoder = msgspec.msgpack.Encoder()
_TYPES = ("<f4", "<f8")


@lru_cache(maxsize=1)
def _decoder(kinds: int) -> "msgspec.msgpack.Decoder[_SilentHeader | Message]":
    """Decodes all known messages; `kinds` is their number, so that a new decoder is made when another is defined."""
    plain = [kind for kind in messages.known.values() if kind is not Feed]
    return msgspec.msgpack.Decoder(Union[(_SilentHeader, *plain)])


def encode(message: Message) -> bytes:
    """A message as one frame.

    >>> decode(encode(messages.Leave(3, (5, 6))))
    Leave(generation=3, cells=(5, 6))
    """
    if type(message) is Feed and message.slabs:
        return head_of(message) + body_of(message.slabs)
    return head_of(message)


def as_of(message: M, version: int) -> M:
    """A message as an older version of the wire has it: without the fields that came later.

    >>> as_of(messages.Grant(3, (5,), None, 7), 1)
    Grant(generation=3, cells=(5,), path=None, epoch=0)
    """
    later = [name for name, since in message.added.items() if since > version]
    fields = {field.name: field.default for field in msgspec.structs.fields(message)} if later else {}
    changed = {name: fields[name] for name in later}
    if version < messages.SILENCE and isinstance(message, Feed) and message.slabs:
        changed |= _without_silence(message.slabs)
    return msgspec.structs.replace(message, **changed) if changed else message


def _without_silence(slabs: tuple[Slab, ...]) -> dict[str, tuple[Slab, ...]]:
    """What changes of a block for peers that have never heard of observations: most often nothing."""
    if slabs[0].silent_s is None:
        return {}
    return {"slabs": tuple(Slab(s.y, s.x, s.values) for s in slabs)}


def head_of(message: Message, packed: bool = False) -> bytes:
    """A frame without its values: all of it for most messages.

    The head names the receiver's entry; the values after it are the same for all who want the same.
    """
    if type(message) is not Feed:
        header = _encoder.encode(message)
        return _PREFIX.pack(VERSION, len(header)) + header
    slabs = message.slabs
    described = None if slabs is None else tuple((s.y, s.x, _type(s.values)) for s in slabs)
    said = (
        message.generation,
        message.cell,
        message.tick,
        message.revision,
        described,
        message.until,
        message.epoch,
    )
    # All slabs of an entry are cut from one block, so one silence is that of all.
    silent_s = slabs[0].silent_s if slabs else None
    header = _encoder.encode(_FeedHeader(*said) if silent_s is None else _SilentHeader(*said, silent_s))
    return _PREFIX.pack(VERSION | PACKED if packed else VERSION, len(header)) + header


def mould_of(generation: int, cell: int, y: Progression, x: Progression, epoch: int = 0) -> tuple[bytes, int]:
    """The head of a block for whatever tick, and where its eight bytes stand, the highest first.

    Of one slab of revision 0 with four bytes a value; otherwise the head that `head_of` makes, in more bytes.

    >>> mould, at = mould_of(1, 5, (0, 2, 1), (0, 2, 1))
    >>> head = mould[:at] + (77).to_bytes(8) + mould[at + 8 :]
    >>> decode(head + bytes(16)).tick
    77
    """
    header, other = (
        _encoder.encode(_FeedHeader(generation, cell, tick, 0, ((y, x, "<f4"),), 0, epoch))
        for tick in (_ANY_TICK, _OTHER_TICK)
    )
    at = next(place for place, (a, b) in enumerate(zip(header, other, strict=True)) if a != b)
    return _PREFIX.pack(VERSION, len(header)) + header, _PREFIX.size + at


def body_of(slabs: tuple[Slab, ...]) -> bytes:
    """Values as they travel."""
    return b"".join(np.ascontiguousarray(s.values, dtype=_type(s.values)).tobytes() for s in slabs)


def decode(frame: bytes) -> Message:
    """The one message in a frame; values are views into it."""
    found = decode_all(frame)
    if len(found) != 1:
        raise CodecError(f"frame: found {len(found)} messages, expected one")
    return found[0]


def decode_all(frame: bytes, unpack: Callable[[bytes, int], bytes] | None = None) -> list[Message]:
    """The messages in a frame: several may follow each other, but what comes after values is values.

    `unpack` inflates values that the sender has compressed, if they give exactly so many bytes.
    """
    found: list[Message] = []
    decoder = _decoder(len(messages.known))
    at, end = 0, len(frame)
    while at < end:
        if end - at < _PREFIX.size:
            raise CodecError(f"frame: found {end - at} bytes, expected at least {_PREFIX.size}")
        version, length = _PREFIX.unpack_from(frame, at)
        if version & ~PACKED != VERSION or (version & PACKED and unpack is None):
            raise CodecError(f"frame: found version {version}, expected {VERSION}")
        start = at + _PREFIX.size
        at = start + length
        try:
            header = decoder.decode(memoryview(frame)[start:at])
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise CodecError(f"frame: found no message ({error}), expected one") from None
        if not isinstance(header, _SilentHeader):
            found.append(header)
            continue
        slabs: tuple[Slab, ...] | None = None if header.slabs is None else ()
        if header.slabs:
            if version & PACKED and unpack is not None:
                packed = unpack(frame[at:], _size(header.slabs))
                slabs = _slabs(packed, 0, header.slabs, header.silent_s)
            else:
                slabs = _slabs(frame, at, header.slabs, header.silent_s)
            at = end
        found.append(
            Feed(
                header.generation,
                header.cell,
                header.tick,
                header.revision,
                slabs,
                header.until,
                header.epoch,
            )
        )
    if not found:
        raise CodecError(f"frame: found {len(frame)} bytes, expected at least {_PREFIX.size}")
    return found


def _size(described: tuple[tuple[tuple[int, int, int], tuple[int, int, int], str], ...]) -> int:
    """Bytes of values that a header announces; nothing that could not be."""
    size = 0
    for y, x, kind in described:
        if kind not in _TYPES or min(y[2], x[2]) < 1:
            raise CodecError(
                f"slab: found {kind} with strides {y[2]}, {x[2]}, expected one of {_TYPES}, at least 1"
            )
        size += len(range(*y)) * len(range(*x)) * int(kind[2])
    return size


def _slabs(
    frame: bytes,
    start: int,
    described: tuple[tuple[tuple[int, int, int], tuple[int, int, int], str], ...],
    silent_s: float | None,
) -> tuple[Slab, ...]:
    found = []
    for y, x, kind in described:
        if kind not in _TYPES or min(y[2], x[2]) < 1:
            raise CodecError(
                f"slab: found {kind} with strides {y[2]}, {x[2]}, expected one of {_TYPES}, at least 1"
            )
        rows, columns = (max(0, -((first - stop) // step)) for first, stop, step in (y, x))
        size = rows * columns * np.dtype(kind).itemsize
        if not 0 < size <= len(frame) - start:
            raise CodecError(
                f"slab: found {len(frame) - start} bytes of values, expected {size}, more than 0"
            )
        values = np.frombuffer(frame, dtype=kind, count=rows * columns, offset=start).reshape(rows, columns)
        found.append(Slab(y, x, values, silent_s))
        start += size
    if start != len(frame):
        raise CodecError(f"frame: found {len(frame) - start} bytes after the values, expected none")
    return tuple(found)


def _type(values: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> str:
    return "<f8" if values.dtype.itemsize == 8 else "<f4"
