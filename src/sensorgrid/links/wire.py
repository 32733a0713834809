"""The first words on a connection, and how the pipeline hands over its grids.

Who dials says `Hello`: which versions it speaks and what it is. The other side answers with `Welcome`, in the
newest version that both speak, or with `Sorry` and the reason. These four are maps, so that a newer peer may say
more than an older one understands. After that a broker and its receivers speak `sensorgrid.overlay.codec`, a
publisher sends `Publish` and hears `Ack` for each, and an observer hears `Status`, a map too, whenever it says
anything.
"""

import hashlib
import struct
from typing import Any

import msgspec
import numpy as np

from sensorgrid.model.block import Values
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.overlay.settings import Settings

VERSIONS = (1,)
"""of the wire, that are spoken here; the newest last"""
BROKER, CLIENT, PUBLISHER, OBSERVER = "broker", "client", "publisher", "observer"
LZ4 = "lz4"
_HEAD = struct.Struct("<I")


class WireError(SensorGridError, ValueError):
    """The other side does not speak our language."""


class RefusedError(SensorGridError, ConnectionError):
    """The other side does not want us; says why, and `code` says it for programs."""

    def __init__(self, reason: str, code: str = "refused") -> None:
        super().__init__(reason)
        self.code = code


class Hello(msgspec.Struct, frozen=True, tag="Hello"):
    """Who dials introduces itself."""

    versions: tuple[int, ...]
    """that it speaks"""
    role: str
    """broker, client, publisher or observer"""
    id: int | None = None
    """a broker's number"""
    grid: str | None = None
    """fingerprint of the grid that it knows; None: it wants to be told"""
    compress: tuple[str, ...] = ()
    """that it can inflate"""
    software: str = ""
    """for people who read logs"""


class Welcome(msgspec.Struct, frozen=True, tag="Welcome"):
    """The connection is open."""

    version: int
    """that both speak"""
    id: int
    """of the broker that was dialled"""
    grid: dict[str, Any]
    """see `grid_from`"""
    settings: dict[str, Any]
    """what both sides of a stream must agree on; see `settings_from`"""
    brokers: dict[str, str]
    """url by number"""
    regions: list[tuple[int, int, int, int]] = []
    """for publishers: (attribute, cell, owner, epoch)"""
    compress: str = ""
    """how values are compressed on this connection"""
    software: str = ""


class Sorry(msgspec.Struct, frozen=True, tag="Sorry"):
    """No connection."""

    reason: str
    """for people"""
    code: str = "refused"
    """for programs: version, grid, crossed, full, stopping, refused"""
    versions: tuple[int, ...] = VERSIONS


class Publish(msgspec.Struct, frozen=True, tag="Publish", array_like=True):
    """One tick of a region; its values follow."""

    attribute: int
    cell: int
    tick: int
    revision: int
    epoch: int
    shape: tuple[int, int] | None
    """rows, columns; None: the pipeline has nothing for this tick"""


class Ack(msgspec.Struct, frozen=True, tag="Ack", array_like=True):
    """A `Publish` was taken, or known already; with an error it was not and never will be."""

    attribute: int
    cell: int
    tick: int
    revision: int
    error: str = ""


class Stream(msgspec.Struct, frozen=True):
    """What a broker has of a cell and gives to others."""

    attribute: int
    cell: int
    path: tuple[int, ...] | None
    """brokers from the owner to this one; None: not known at present"""
    receivers: int
    """how many entries it feeds"""
    brokers: tuple[int, ...]
    """those of them that are brokers"""
    points: int
    """values per period of all of them"""


class Status(msgspec.Struct, frozen=True, tag="Status"):
    """What a broker says of itself to those who only look."""

    id: int
    software: str
    up_s: float
    """since it started"""
    clients: int
    peers: tuple[int, ...]
    """brokers that it is connected with"""
    published: int
    """blocks taken from the pipeline"""
    values_bytes: dict[str, int]
    """of values sent to each broker since it started"""
    sent_bytes: dict[str, int]
    """of all messages to each broker, values and words, without the frames around them"""
    clients_bytes: int
    """of values sent to clients"""
    streams: tuple[Stream, ...]
    """what it has and gives"""
    messages: dict[str, int]
    """sent, by kind"""


_encoder = msgspec.msgpack.Encoder()
_greeting: msgspec.msgpack.Decoder[Hello | Welcome | Sorry] = msgspec.msgpack.Decoder(Hello | Welcome | Sorry)
_publish = msgspec.msgpack.Decoder(Publish)
_ack = msgspec.msgpack.Decoder(Ack)
_status = msgspec.msgpack.Decoder(Status)


def encode_greeting(greeting: Hello | Welcome | Sorry) -> bytes:
    """The first message of a side."""
    return _encoder.encode(greeting)


def decode_greeting(message: bytes) -> Hello | Welcome | Sorry:
    """What the other side said first."""
    try:
        return _greeting.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"first message: found no greeting ({error}), expected one of Sensorgrid") from None


def decode_hello(message: bytes) -> Hello:
    """The first message of somebody who dials."""
    greeting = decode_greeting(message)
    if not isinstance(greeting, Hello):
        raise WireError(f"first message: found {type(greeting).__name__}, expected Hello")
    return greeting


def encode_publish(publish: Publish, values: Values | None) -> bytes:
    """A block on its way to its gateway."""
    head = _encoder.encode(publish)
    body = b"" if values is None else np.ascontiguousarray(values, "<f4").tobytes()
    return _HEAD.pack(len(head)) + head + body


def decode_publish(message: bytes) -> tuple[Publish, Values | None]:
    """A block that the pipeline hands over; its values are a view into the message."""
    try:
        (size,) = _HEAD.unpack_from(message)
        publish = _publish.decode(message[_HEAD.size : _HEAD.size + size])
        if publish.shape is None:
            return publish, None
        values = np.frombuffer(message, "<f4", offset=_HEAD.size + size)
        return publish, values.reshape(publish.shape)
    except (msgspec.DecodeError, ValueError, struct.error) as error:
        raise WireError(f"message of a publisher: found no block ({error}), expected one") from None


def encode_ack(ack: Ack) -> bytes:
    """The answer to a block."""
    return _encoder.encode(ack)


def decode_ack(message: bytes) -> Ack:
    """The answer of a gateway."""
    try:
        return _ack.decode(message)
    except (msgspec.DecodeError, ValueError) as error:
        raise WireError(f"message of a gateway: found no answer ({error}), expected one") from None


def encode_status(status: Status) -> bytes:
    """The answer to an observer."""
    return _encoder.encode(status)


def decode_status(message: bytes) -> Status:
    """What a broker says of itself."""
    try:
        return _status.decode(message)
    except (msgspec.DecodeError, ValueError) as error:
        raise WireError(f"message of a broker: found no status ({error}), expected one") from None


def grid_to(grid: Grid) -> dict[str, Any]:
    """A grid as plain values."""
    return {name: getattr(grid, name) for name in _GRID}


def grid_from(plain: dict[str, Any]) -> Grid:
    """The grid that the other side described; what we do not know of it is an error, as it may matter."""
    if set(plain) != set(_GRID):
        raise WireError(f"grid: found {', '.join(sorted(plain))}, expected {', '.join(sorted(_GRID))}")
    return Grid(**plain)


def fingerprint(grid: Grid) -> str:
    """The same for the same grid, in every process."""
    return hashlib.sha256(_encoder.encode(grid_to(grid))).hexdigest()[:16]


def settings_to(settings: Settings) -> dict[str, Any]:
    """What a receiver must know of its provider's settings."""
    return {name: getattr(settings, name) for name in _SETTINGS}


def settings_from(plain: dict[str, Any]) -> Settings:
    """Settings of a client, as its brokers have them."""
    return Settings(budget=1, **{name: plain[name] for name in _SETTINGS if name in plain})


_GRID = (
    "extent", "shape", "tick", "resolution_bits", "coordinates", "attributes", "order", "region_digits",
    "value_bytes",
)  # fmt: skip
_SETTINGS = ("depth", "cells_max", "ring_ticks", "lateness_ticks", "slack_ticks", "alive_s", "backoff_max_s")
