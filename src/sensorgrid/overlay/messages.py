"""What brokers and clients say to each other, as frozen values.

Interest flows up, data flows down. An *entry* is one cell that a receiver has from a provider, named by the
*generation* of the statement that asked for it and the cell, and scoped to one connection: the same generation
again is a no-op, asking again is a new generation, and what carries an old one is dropped. When an entry is cut
by a partial redirect, its parts keep the generation, so both sides name them alike without another word.

Cells are codes (see `sensorgrid.index.cell`), attributes are places in the grid's list.
"""

from typing import Annotated, TypeAlias

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


class Message(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of all messages."""


# -- streams: receiver to provider


class Want(Message, frozen=True):
    """Feed me these cells from these ticks on."""

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

    generation: int
    cells: tuple[Code, ...]


# -- streams: provider to receiver


class Grant(Message, frozen=True):
    """You are fed; this is the path of the stream. Said again whenever the path changes."""

    generation: int
    cells: tuple[Code, ...]
    path: Path | None
    """None: unknown at present"""


class Refuse(Message, frozen=True):
    """You are not, or no longer, fed."""

    generation: int
    cells: tuple[Code, ...]
    reason: str
    elsewhere: tuple[PeerId, ...] = ()
    """brokers that carry the cells"""
    parts: tuple[Code, ...] = ()
    """the first cell as this broker could feed it: ask for these instead"""


class Redirect(Message, frozen=True):
    """Take this part of an entry from another broker."""

    generation: int
    items: tuple[tuple[Code, Code], ...]
    """(cell of the entry, the part of it)"""
    to: PeerId


class Feed(Message, frozen=True, gc=True):
    """One tick of one entry: every tick comes, in order, also those without a point of the cell."""

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

    request: int
    attribute: int
    cells: tuple[Code, ...]
    owner: bool = False
    """only the owner will do"""


class Find(Message, frozen=True):
    """Broker to broker: the same, passed on (Algorithm 2)."""

    asker: PeerId
    request: int
    attribute: int
    cells: tuple[Code, ...]
    owner: bool
    trail: Path
    """brokers it has passed, the first one first"""


class Found(Message, frozen=True):
    """Back along the trail: parts of the cells and who feeds them; None: nobody within reach."""

    asker: PeerId
    request: int
    attribute: int
    items: tuple[tuple[Code, PeerId | None], ...]
    trail: Path
    """brokers it still has to pass"""


class Located(Message, frozen=True):
    """Broker to client: the same, at the end of the trail."""

    request: int
    attribute: int
    items: tuple[tuple[Code, PeerId | None], ...]


# -- replication


class Offer(Message, frozen=True):
    """Will you take a stream of this cell from me and feed so much of my load?"""

    number: int
    attribute: int
    cell: Code
    load: Count
    """points per period that would move"""
    source: PeerId | None = None
    """take it from there: my own stream of it will end"""


class Answer(Message, frozen=True):
    """So much is reserved for you, for a while; 0: no."""

    number: int
    load: Count


class Moving(Message, frozen=True):
    """So much will come; the rest of the reservation is yours again."""

    number: int
    load: Count


class News(Message, frozen=True):
    """Free budgets that I know of, and who carries what."""

    items: tuple[tuple[PeerId, int, int, tuple[tuple[int, Code], ...]], ...]
    """(broker, version, free points per period, (attribute, cell) that it takes from others)"""


# -- neighbourhood


class Ping(Message, frozen=True):
    """How far are you, and what do you see?"""

    at: float
    """when it was asked, by the asker's clock"""


class Pong(Message, frozen=True):
    """So far."""

    at: float
    """as it was asked"""
    view: tuple[tuple[PeerId, float, int | None, float], ...] = ()
    """(broker, delay one way in seconds, routers' links between if known, age of the measurement in seconds)"""


class Shifted(Message, frozen=True):
    """What I see has changed: to those who should not wait until they ask."""

    items: tuple[tuple[PeerId, float | None, int | None], ...]
    """(broker, delay one way in seconds or None if it does not answer, routers' links between if known)"""


# -- trees: between the owner of a cell and those who take it


class Joined(Message, frozen=True):
    """I take these cells of yours from there; None: no longer."""

    items: tuple[tuple[int, Code, PeerId | None], ...]
    """(attribute, cell, provider)"""


class Steer(Message, frozen=True):
    """Take these cells of mine from elsewhere."""

    items: tuple[tuple[int, Code, PeerId, PeerId], ...]
    """(attribute, cell, new provider, where that one takes it from if it has it not)"""


class Alive(Message, frozen=True):
    """Nothing else to say: the connection works."""

    keep: bool = False
    """I want it open also when nothing flows: we are neighbours"""


Any: TypeAlias = (
    Want
    | Leave
    | Grant
    | Refuse
    | Redirect
    | Feed
    | Ask
    | Find
    | Found
    | Located
    | Offer
    | Answer
    | Moving
    | News
    | Ping
    | Pong
    | Shifted
    | Joined
    | Steer
    | Alive
)
