"""What brokers and clients say to each other, as frozen values.

Interest flows up, data flows down. An *entry* is one cell that a receiver has from a provider, named by the
*generation* of the statement that asked for it and the cell, and scoped to one connection: the same generation
again is a no-op, asking again is a new generation, and what carries an old one is dropped. When an entry is cut
by a partial redirect, its parts keep the generation, so both sides name them alike without another word.

Cells are codes (see `sensorgrid.index.cell`), attributes are places in the grid's list.

A message says of itself, as facts of its class, who may say it to a broker (`said_by`), whether a connection is opened
to say it (`dials`), and from which version of the wire on it is understood (`since`, and `added` for single fields).
Everything else that needs a list of messages derives it from `known`.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

from msgspec import Meta, Struct

from sensorgrid.model.block import Slab
from sensorgrid.model.grid import BITS_MAX
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.roster import Code as Code
from sensorgrid.overlay.roster import Count as Count
from sensorgrid.overlay.roster import Member, Region, Roster, Terms, Version

VERSION = 4
"""of what is said here; a peer that speaks an older one is told only what that one has"""
SILENCE = 3
"""the first version in which blocks say that they rest on no observation"""


class Why(StrEnum):
    """Why something is not, or no longer, fed: for programs."""

    NO_ROOM = "no room"
    """more budget would have prevented it"""
    UNHEARD = "unheard"
    """no broker answered, which may only mean that a question was lost"""
    TOO_OLD = "too old"
    CUT = "cut"
    MOVED = "moved"
    STOPS = "stops"
    OWNER = "owner"
    """another broker owns it"""
    NOBODY = "nobody"
    SENSELESS = "senseless"
    BROKEN = "broken"
    OTHER = "other"
    """what the other side says is not known here"""


class Reason(NamedTuple):
    """Why, for programs and for people."""

    why: Why
    text: str


NO_ROOM = Reason(Why.NO_ROOM, "no bandwidth left")
TOO_OLD = Reason(Why.TOO_OLD, "too old")
CUT = Reason(Why.CUT, "cut")
SEVERAL_OWNERS = Reason(Why.CUT, "several owners")
MOVED = Reason(Why.MOVED, "moved")
STOPS = Reason(Why.STOPS, "the broker stops")
ANOTHER_OWNER = Reason(Why.OWNER, "another owner")
NOBODY = Reason(Why.NOBODY, "nobody within reach has it")
NOBODY_ANSWERS = Reason(Why.UNHEARD, "nobody answers")
NO_ANSWER = Reason(Why.UNHEARD, "no answer")
SENSELESS = Reason(Why.SENSELESS, "not a wish that can be met")
BROKEN = Reason(Why.BROKEN, "the connection broke")

Rank: TypeAlias = Annotated[int, Meta(ge=1, le=1 << BITS_MAX)]

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
    """Who may send a message to a broker; from other senders it is ignored."""

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
    since: ClassVar[int] = 1
    """the first version of the wire that has it; it is not said to a peer that speaks an older one"""
    added: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """fields that came later, always at the end, and with which version"""

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
    """I can dial no other broker: do not redirect me"""
    held: tuple[tuple[Code, int, int], ...] = ()
    """(cell, tick, revision) of earlier ticks that I hold in a revision other than 0; -1: as a gap"""
    added = MappingProxyType({"held": 2})


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
    epoch: Count = 0
    """of the owner that the path begins with; 0: not known, as the path"""
    added = MappingProxyType({"epoch": 2})


class Refuse(Message, frozen=True):
    """You are refused, or no longer fed."""

    said_by = ANYONE
    dials = False

    generation: int
    cells: tuple[Code, ...]
    reason: str
    elsewhere: tuple[PeerId, ...] = ()
    """brokers that carry the cells"""
    parts: tuple[Code, ...] = ()
    """the first cell as this broker could feed it: ask for these instead"""
    code: str = ""
    """the reason for programs, see `Why`"""
    added = MappingProxyType({"code": 2})

    @property
    def said(self) -> Reason:
        """Why; a peer of an older version says it to people only."""
        if not self.code:
            return Reason(_OLD_WORDS.get(self.reason, Why.OTHER), self.reason)
        return Reason(Why(self.code) if self.code in _WHYS else Why.OTHER, self.reason)


_WHYS = frozenset(Why)
_OLD_WORDS = {
    said: reason.why
    for reason in (NO_ROOM, NOBODY_ANSWERS, NO_ANSWER)
    for said in (reason.text, f"no provider: {reason.text}")
}
"""texts of version 1 that stand for a code"""


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
    """None: a gap, which only the owner can make; from version 3 on they say whether they rest on observations"""
    until: int = 0
    """for a gap: tick after its last, if it is longer than one"""
    epoch: Count = 0
    """of the owner that it comes from; 0: not known"""
    added = MappingProxyType({"epoch": 2})


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
    """Back along the trail: parts of the cells and their providers; None: no provider within reach."""

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
    provider: PeerId | None = None
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
    """What I see has changed: for brokers that should know before they next ask."""

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
    """(attribute, cell, new provider, and the provider from which that one takes it if it does not have it)"""


# -- membership


class Holds(Message, frozen=True):
    """This is the roster that I hold: tell me if yours is newer."""

    said_by = ANYONE
    dials = False
    since = 2

    version: Count
    """0: none"""
    digest: str
    """of its content"""


class Told(Message, frozen=True, gc=True):
    """A roster."""

    said_by = BROKERS
    dials = True
    since = 2

    version: Version
    terms: Terms
    members: tuple[Member, ...]
    regions: tuple[Region, ...]

    @classmethod
    def of(cls, roster: Roster) -> "Told":
        """To tell it."""
        return cls(roster.version, roster.terms, roster.members, roster.regions)

    def roster(self) -> Roster:
        """What was told."""
        return Roster(self.version, self.terms, self.members, self.regions)


# -- connections


class Alive(Message, frozen=True):
    """Nothing else to say: the connection works."""

    said_by = ANYONE
    dials = True

    keep: bool = False
    """I want it open also when nothing flows: we are neighbours"""
