"""The first words on a connection, and how the pipeline hands over its grids.

The side that dials says `Hello`: which versions it speaks and what it is. The other side answers with `Welcome`, in
the newest version that both speak, or with `Sorry` and the reason. Both say which roster they hold; if the rosters
contradict each other, the connection ends. Greetings are maps, so that a newer peer may say more than an older one
understands.

After that a broker and its receivers speak `sensorgrid.overlay.codec`. A publisher sends `Publish` and hears `Ack` for
each, and `Newer` when the roster changes. An observer hears `Status`, a map too, whenever it says anything,
`Receivers` if it asks for them, and `Sensors` if it asks for those with `AskSensors`.
"""

import dataclasses
import struct
from enum import StrEnum
from math import isfinite
from typing import Annotated, Any

import msgspec
import numpy as np

from sensorgrid.model.block import Values
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.messages import VERSION
from sensorgrid.overlay.roster import GRID, SHARED, Member, Region, Roster, Summary, Terms, Version
from sensorgrid.overlay.roster import fingerprint as fingerprint
from sensorgrid.overlay.settings import Settings

VERSIONS = (1, 2, 3, VERSION)
"""of the wire, that are spoken here; the newest last"""
BROKER, CLIENT, PUBLISHER, OBSERVER = "broker", "client", "publisher", "observer"
NEWCOMER = "newcomer"
"""who wants to be a broker of an open network, and asks what it is like"""
LZ4 = "lz4"
_HEAD = struct.Struct("<I")
NOT_READ = (msgspec.DecodeError, ValueError, RecursionError)
"""what bytes of strangers can make a decoder raise: nonsense, text that is none, nesting without end"""


class WireError(SensorGridError, ValueError):
    """The other side does not speak our language."""


class NoConnection(StrEnum):
    """Why there is no connection, for programs."""

    VERSION = "version"
    GRID = "grid"
    SETTINGS = "settings"
    BROKERS = "brokers"
    REGIONS = "regions"
    CROSSED = "crossed"
    UNKNOWN = "unknown"
    """the broker that was dialled does not find the caller in its roster, and the caller holds a newer one: try again
    soon"""
    FULL = "full"
    STOPPING = "stopping"
    REFUSED = "refused"


class Refusal(StrEnum):
    """Why a block was not taken, for programs."""

    STALE = "stale"
    """the roster of one side is old: find out who owns the region, and try again"""
    WRONG = "wrong"
    """for ever"""


class RefusedError(SensorGridError, ConnectionError):
    """The other side does not want us; says why, and `code` says it for programs."""

    def __init__(self, reason: str, code: str = NoConnection.REFUSED, roster: "Newer | None" = None) -> None:
        super().__init__(reason)
        self.code = code
        self.roster = roster
        """newer than ours: it may say why"""


class Hello(msgspec.Struct, frozen=True, tag="Hello"):
    """The side that dials introduces itself."""

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
    roster: Summary | None = None
    """what it holds; None: it wants to be told, or speaks version 1"""


class Welcome(msgspec.Struct, frozen=True, tag="Welcome"):
    """The connection is open."""

    version: int
    """that both speak"""
    id: int
    """of the broker that was dialled"""
    grid: dict[str, Any]
    """see `grid_from`"""
    settings: dict[str, Any] = {}
    """in version 1: what both sides of a stream must agree on"""
    brokers: dict[str, str] = {}
    """in version 1: url by number"""
    regions: list[tuple[int, int, int, int]] = []
    """in version 1, for publishers: (attribute, cell, owner, epoch)"""
    compress: str = ""
    """how values are compressed on this connection"""
    software: str = ""
    roster: "Newer | None" = None
    """from version 2 on"""
    network: dict[str, Any] = {}
    """for newcomers: where the lake is, and the options that all brokers share"""


class Sorry(msgspec.Struct, frozen=True, tag="Sorry"):
    """No connection."""

    reason: str
    """for people"""
    code: str = NoConnection.REFUSED.value
    """for programs, see `NoConnection`"""
    versions: tuple[int, ...] = VERSIONS
    roster: "Newer | None" = None
    """from version 2 on, for a broker that holds an older roster: the newer one may not name it any more"""


class Newer(msgspec.Struct, frozen=True, tag="Newer", array_like=True):
    """A roster, in a `Welcome` or a `Sorry`, or to a publisher that is connected."""

    version: Version
    terms: Terms
    members: tuple[Member, ...]
    regions: tuple[Region, ...]


class Publish(msgspec.Struct, frozen=True, tag="Publish", array_like=True):
    """One tick of a region; its values follow."""

    attribute: int
    cell: int
    tick: int
    revision: int
    epoch: int
    shape: tuple[int, int] | None
    """rows, columns; None: the pipeline has nothing for this tick"""
    silent_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """from version 3 on: None if the values rest on observations; see `sensorgrid.model.block.Slab`"""


class Ack(msgspec.Struct, frozen=True, tag="Ack", array_like=True):
    """A `Publish` was taken, or known already; with an error it was not."""

    attribute: int
    cell: int
    tick: int
    revision: int
    error: str = ""
    """for people"""
    code: str = ""
    """for programs, see `Refusal`"""


class SupplyStatus(msgspec.Struct, frozen=True):
    """A supply of a broker, and its receivers."""

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
    """What a broker says of itself to an observer."""

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
    streams: tuple[SupplyStatus, ...]
    """its supplies that have receivers"""
    messages: dict[str, int]
    """sent, by kind"""
    roster: int = 0
    """version that it holds; 0: it is of an older release"""


ASK_RECEIVERS = b"receivers"
"""what an observer says to hear `Receivers`"""


class Receiver(msgspec.Struct, frozen=True, array_like=True):
    """What a client has from a broker for one box."""

    client: int
    attribute: int
    box: tuple[int, int, int, int]
    """columns [x0, x1), rows [y0, y1)"""
    limits: tuple[int, int, int]
    """ranks below these, along x, y, t"""
    cells: int
    """of the box that come from this broker"""
    points: int
    """values per period in them"""


class Receivers(msgspec.Struct, frozen=True, tag="Receivers"):
    """Who is fed by a broker, and with what."""

    id: int
    """of the broker"""
    receivers: tuple[Receiver, ...]
    left_off: int
    """how many more there are"""


ASK_SENSORS = b"sensors"
"""how an observer begins to ask for `Sensors`; an `AskSensors` follows"""
SENSORS_MAX = 1 << 16
"""that may be asked for at once; a broker may tell fewer"""


class AskSensors(msgspec.Struct, frozen=True):
    """Which sensors an observer wants to hear of: silent or flagged ones, if either is asked for, else all."""

    bbox: tuple[float, float, float, float] | None = None
    """west, south, east, north, borders included; None: everywhere"""
    attribute: str | None = None
    """that they measure; None: any, and then the worst of a sensor's counts"""
    silent_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """without a report for longer"""
    flagged: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """with at least this share of reports that were found bad"""
    at_us: int | None = None
    """the moment that silence is judged at, in microseconds since 1970; None: now"""
    limit: Annotated[int, msgspec.Meta(ge=0, le=SENSORS_MAX)] = SENSORS_MAX
    after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """only those with a larger number: how to go on after a page"""


class SensorCounts(msgspec.Struct, frozen=True, array_like=True):
    """What a sensor reports of one attribute."""

    attribute: str
    reports: int
    """in the last days"""
    flagged: int
    """of these"""
    last_us: int | None
    """of the last one; None: not known"""


class SensorRow(msgspec.Struct, frozen=True, array_like=True):
    """One sensor."""

    number: int
    name: str
    x: float
    y: float
    elevation: float | None
    series: tuple[SensorCounts, ...]
    silent: bool
    """as far as was asked"""
    flagged: bool


class Sensors(msgspec.Struct, frozen=True, tag="Sensors"):
    """Sensors in the regions of a broker, by ascending number."""

    id: int
    """of the broker"""
    roster: int
    """version that it holds"""
    sensors: tuple[SensorRow, ...] = ()
    left_off: int = 0
    """how many more there are after these"""
    matched: int = 0
    """how many fit, whatever the limit"""
    held: int = 0
    """how many it knows in all its regions"""
    newest_us: int | None = None
    """when any of them was last heard"""
    attributes: tuple[str, ...] = ()
    """that they measure"""
    error: str = ""
    """why there is no answer, for people"""


_encoder = msgspec.msgpack.Encoder()
_greeting: msgspec.msgpack.Decoder[Hello | Welcome | Sorry] = msgspec.msgpack.Decoder(Hello | Welcome | Sorry)
_publish = msgspec.msgpack.Decoder(Publish)
_told: msgspec.msgpack.Decoder[Ack | Newer] = msgspec.msgpack.Decoder(Ack | Newer)
_status = msgspec.msgpack.Decoder(Status)
_receivers = msgspec.msgpack.Decoder(Receivers)
_ask_sensors = msgspec.msgpack.Decoder(AskSensors)
_sensors = msgspec.msgpack.Decoder(Sensors)


def encode_greeting(greeting: Hello | Welcome | Sorry) -> bytes:
    """The first message of a side."""
    return _encoder.encode(greeting)


def decode_greeting(message: bytes) -> Hello | Welcome | Sorry:
    """What the other side said first."""
    try:
        return _greeting.decode(message)
    except NOT_READ as error:
        raise WireError(f"first message: found no greeting ({error}), expected one of Sensorgrid") from None


def decode_hello(message: bytes) -> Hello:
    """The first message of a peer that dials."""
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
    except (*NOT_READ, struct.error) as error:
        raise WireError(f"message of a publisher: found no block ({error}), expected one") from None


def encode_told(told: Ack | Newer) -> bytes:
    """What a publisher hears."""
    return _encoder.encode(told)


def decode_told(message: bytes) -> Ack | Newer:
    """What a gateway says: its answer to a block, or a newer roster."""
    try:
        return _told.decode(message)
    except NOT_READ as error:
        raise WireError(f"message of a gateway: found no answer ({error}), expected one") from None


def encode_status(status: Status) -> bytes:
    """The answer to an observer."""
    return _encoder.encode(status)


def encode_receivers(receivers: Receivers) -> bytes:
    """An answer to an observer that asked for them."""
    return _encoder.encode(receivers)


def decode_receivers(message: bytes) -> Receivers:
    """Who a broker feeds; one of an older version answers with its status."""
    try:
        return _receivers.decode(message)
    except NOT_READ as error:
        raise WireError(
            f"message of a broker: found no receivers ({error}), expected them; it may run an older version"
        ) from None


def encode_ask_sensors(asked: AskSensors) -> bytes:
    """What an observer says."""
    return ASK_SENSORS + _encoder.encode(asked)


def decode_ask_sensors(message: bytes) -> AskSensors:
    """What an observer asks for."""
    try:
        asked = _ask_sensors.decode(message[len(ASK_SENSORS) :])
    except NOT_READ as error:
        raise WireError(
            f"message of an observer: found no question for sensors ({error}), expected one"
        ) from None
    if asked.bbox is not None and not (
        all(isfinite(number) for number in asked.bbox) and asked.bbox[1] <= asked.bbox[3]
    ):
        raise WireError(
            f"bbox: found {asked.bbox}, expected four finite numbers west, south, east, north, south first"
        )
    return asked


def encode_sensors(sensors: Sensors) -> bytes:
    """An answer to an observer that asked for them."""
    return _encoder.encode(sensors)


def decode_sensors(message: bytes) -> Sensors:
    """The sensors that a broker tells; one of an older version answers with its status."""
    try:
        return _sensors.decode(message)
    except NOT_READ as error:
        raise WireError(
            f"message of a broker: found no sensors ({error}), expected them; it may run an older version"
        ) from None


def decode_status(message: bytes) -> Status:
    """What a broker says of itself."""
    try:
        return _status.decode(message)
    except NOT_READ as error:
        raise WireError(f"message of a broker: found no status ({error}), expected one") from None


def grid_to(grid: Grid) -> dict[str, Any]:
    """A grid as plain values."""
    return {name: getattr(grid, name) for name in GRID}


def grid_from(plain: dict[str, Any]) -> Grid:
    """The grid that the other side described; an unknown property is an error, because it may matter."""
    if set(plain) != set(GRID):
        raise WireError(f"grid: found {', '.join(sorted(plain))}, expected {', '.join(sorted(GRID))}")
    return Grid(**plain)


def newer_of(roster: Roster) -> Newer:
    """To tell a roster."""
    return Newer(roster.version, roster.terms, roster.members, roster.regions)


def roster_from(newer: Newer) -> Roster:
    """What was told."""
    return Roster(newer.version, newer.terms, newer.members, newer.regions)


def welcome_of(
    roster: Roster, grid: Grid, version: int, me: int, role: str, compress: str = "", software: str = ""
) -> Welcome:
    """The answer to a peer that speaks a version."""
    if version >= 2:
        return Welcome(
            version, me, grid_to(grid), compress=compress, software=software, roster=newer_of(roster)
        )
    return Welcome(
        version, me, grid_to(grid), {name: getattr(roster.terms, name) for name in SHARED},
        {str(member.id): member.url for member in roster.members},
        [(r.attribute, r.cell, r.owner, r.epoch) for r in roster.regions] if role == PUBLISHER else [],
        compress, software,
    )  # fmt: skip


def roster_of(welcome: Welcome) -> Roster:
    """The roster that a broker holds; one that speaks version 1 tells part of it."""
    if welcome.roster is not None:
        return roster_from(welcome.roster)
    settings = {name: welcome.settings.get(name, _USUAL[name]) for name in SHARED}
    members = tuple(Member(PeerId(int(number)), url) for number, url in welcome.brokers.items())
    regions = tuple(Region(a, cell, PeerId(owner), epoch) for a, cell, owner, epoch in welcome.regions)
    return Roster(1, Terms(fingerprint(grid_from(welcome.grid)), **settings), members, regions)


_USUAL = {field.name: field.default for field in dataclasses.fields(Settings)}
