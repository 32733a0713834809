"""What brokers and clients say to each other, as frozen values.

Interest flows up, data flows down. An *entry* is one cell that a receiver has from a provider, named by the
*generation* of the statement that asked for it and the cell, and scoped to one connection: the same generation
again is a no-op, asking again is a new generation, and what carries an old one is dropped. When an entry is cut
by a partial redirect, its parts keep the generation, so both sides name them alike without another word.

Cells are codes (see `sensorgrid.index.cell`), attributes are places in the grid's list.

A message says two things about itself, as facts of its class: who may say it to a broker (`said_by`), and whether a
connection is opened to say it (`dials`). Everything else that needs a list of messages derives it from `known`.
"""

from enum import Enum
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeAlias

from msgspec import Meta, Struct

from sensorgrid.model.block import Slab
from sensorgrid.model.grid import BITS_MAX, DIGITS_MAX
from sensorgrid.model.ids import PeerId

NO_ROOM = "no bandwidth left"
"""the reason of a refusal that more budget would have prevented"""

Code: TypeAlias = Annotated[int, Meta(ge=1, le=(2 << DIGITS_MAX) - 1)]
"""a cell; checked when a message is decoded"""

Rank: TypeAlias = Annotated[int, Meta(ge=1, le=1 << BITS_MAX)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]

Path: TypeAlias = tuple[PeerId, ...]
"""brokers that a stream passes, the owner first, the provider last"""


class Clip(Struct, frozen=True, array_like=True, gc=False):
    """What a client wants of its cells; brokers take whole cells and have none."""

    box: tuple[int, int, int, int]
    """columns [x0, x1), rows [y0, y1)"""
    limits: tuple[Rank, Rank, Rank]
    """ranks below these, along x, y, t"""
    low: float | None = None
    """values below are masked"""
    high: float | None = None
    """values above are masked"""


class Speaker(Enum):
    """Who may say a message to a broker; from anybody else it is ignored."""

    ANYONE = "anyone"
    BROKERS = "brokers"


ANYONE, BROKERS = Speaker.ANYONE, Speaker.BROKERS

_known: "dict[str, type[Message]]" = {}
known = MappingProxyType(_known)
"""all messages by name, which is their tag on the wire; grows as modules that define some are imported"""


class Message(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of all messages. Each states `said_by` and `dials` in its own body."""

    said_by: ClassVar[Speaker]
    dials: ClassVar[bool]
    """whether it is worth opening a connection for; otherwise it is dropped where none is open or being opened"""

    def __init_subclass__(cls, **options: Any) -> None:
        """Learn of a message, if it says what a message has to say of itself."""
        super().__init_subclass__(**options)
        if not isinstance(cls.__dict__.get("said_by"), Speaker):
            raise TypeError(f"message {cls.__name__}: found no speaker, expected said_by = ANYONE or BROKERS")
        if not isinstance(cls.__dict__.get("dials"), bool):
            raise TypeError(
                f"message {cls.__name__}: found no word on dialling, expected dials = True or False"
            )
        if _known.setdefault(cls.__name__, cls) is not cls:
            raise TypeError(f"message {cls.__name__}: found a second one, expected a name of its own")


# -- streams: receiver to provider


class Want(Message, frozen=True):
    """Feed me these cells from these ticks on."""

    said_by = ANYONE
    dials = True

    generation: int
    """of all its entries"""
    attribute: int
    items: tuple[tuple[Code, int, int], ...]
    """(cell, points per period, first tick wanted)"""
    clip: Clip | None = None
    """a client's; None asks for whole cells"""
    until: int | None = None
    """tick after the last"""
    via: PeerId | None = None
    """who sent me here: your provider, if you have none yet"""
    stays: bool = False
    """I can dial nobody else: do not redirect me"""


class Leave(Message, frozen=True):
    """Feed me no longer: these entries, and what they were cut into."""

    said_by = ANYONE
    dials = False

    generation: int
    cells: tuple[Code, ...]


# -- streams: provider to receiver


class Grant(Message, frozen=True):
    """You are fed; this is the path of the stream. Said again whenever the path changes."""

    said_by = ANYONE
    dials = False

    generation: int
    cells: tuple[Code, ...]
    path: Path | None
    """None: unknown at present"""


class Refuse(Message, frozen=True):
    """You are not, or no longer, fed."""

    said_by = ANYONE
    dials = False

    generation: int
    cells: tuple[Code, ...]
    reason: str
    elsewhere: tuple[PeerId, ...] = ()
    """brokers that carry the cells"""
    parts: tuple[Code, ...] = ()
    """the first cell as this broker could feed it: ask for these instead"""


class Redirect(Message, frozen=True):
    """Take this part of an entry from another broker."""

    said_by = ANYONE
    dials = False

    generation: int
    items: tuple[tuple[Code, Code], ...]
    """(cell of the entry, the part of it)"""
    to: PeerId


class Feed(Message, frozen=True, gc=True):
    """One tick of one entry: every tick comes, in order, also those without a point of the cell."""

    said_by = ANYONE
    dials = False

    generation: int
    cell: Code
    tick: int
    revision: int
    slabs: tuple[Slab, ...] | None
    """None: a gap, which only the owner can make"""
    until: int = 0
    """for a gap: tick after its last, if it is longer than one"""


# -- routing


class Ask(Message, frozen=True):
    """Client to broker: who can feed me these cells?"""

    said_by = ANYONE
    dials = False

    request: int
    attribute: int
    cells: tuple[Code, ...]
    owner: bool = False
    """only the owner will do"""


class Find(Message, frozen=True):
    """Broker to broker: the same, passed on (Algorithm 2)."""

    said_by = BROKERS
    dials = True

    asker: PeerId
    request: int
    attribute: int
    cells: tuple[Code, ...]
    owner: bool
    trail: Path
    """brokers it has passed, the first one first"""


class Found(Message, frozen=True):
    """Back along the trail: parts of the cells and who feeds them; None: nobody within reach."""

    said_by = BROKERS
    dials = True

    asker: PeerId
    request: int
    attribute: int
    items: tuple[tuple[Code, PeerId | None], ...]
    trail: Path
    """brokers it still has to pass"""


class Located(Message, frozen=True):
    """Broker to client: the same, at the end of the trail."""

    said_by = ANYONE
    dials = False

    request: int
    attribute: int
    items: tuple[tuple[Code, PeerId | None], ...]


# -- replication


class Offer(Message, frozen=True):
    """Will you take a stream of this cell from me and feed so much of my load?"""

    said_by = BROKERS
    dials = True

    number: int
    attribute: int
    cell: Code
    load: Count
    """points per period that would move"""
    source: PeerId | None = None
    """take it from there: my own stream of it will end"""


class Answer(Message, frozen=True):
    """So much is reserved for you, for a while; 0: no."""

    said_by = BROKERS
    dials = False

    number: int
    load: Count


class Moving(Message, frozen=True):
    """So much will come; the rest of the reservation is yours again."""

    said_by = BROKERS
    dials = False

    number: int
    load: Count


class News(Message, frozen=True):
    """Free budgets that I know of, and who carries what."""

    said_by = BROKERS
    dials = False

    items: tuple[tuple[PeerId, int, int, tuple[tuple[int, Code], ...]], ...]
    """(broker, version, free points per period, (attribute, cell) that it takes from others)"""


# -- neighbourhood


class Ping(Message, frozen=True):
    """How far are you, and what do you see?"""

    said_by = BROKERS
    dials = True

    at: float
    """when it was asked, by the asker's clock"""


class Pong(Message, frozen=True):
    """So far."""

    said_by = BROKERS
    dials = False

    at: float
    """as it was asked"""
    view: tuple[tuple[PeerId, float, int | None, float], ...] = ()
    """(broker, delay one way in seconds, routers' links between if known, age of the measurement in seconds)"""


class Shifted(Message, frozen=True):
    """What I see has changed: to those who should not wait until they ask."""

    said_by = BROKERS
    dials = True

    items: tuple[tuple[PeerId, float | None, int | None], ...]
    """(broker, delay one way in seconds or None if it does not answer, routers' links between if known)"""


# -- trees: between the owner of a cell and those who take it


class Joined(Message, frozen=True):
    """I take these cells of yours from there; None: no longer."""

    said_by = BROKERS
    dials = True

    items: tuple[tuple[int, Code, PeerId | None], ...]
    """(attribute, cell, provider)"""


class Steer(Message, frozen=True):
    """Take these cells of mine from elsewhere."""

    said_by = BROKERS
    dials = True

    items: tuple[tuple[int, Code, PeerId, PeerId], ...]
    """(attribute, cell, new provider, where that one takes it from if it has it not)"""


class Alive(Message, frozen=True):
    """Nothing else to say: the connection works."""

    said_by = ANYONE
    dials = True

    keep: bool = False
    """I want it open also when nothing flows: we are neighbours"""
