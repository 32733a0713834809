"""What happens to a broker or a client, and what it does about it.

Both worlds, the simulator and the runtime, feed one event, apply the effects in order, and re-arm one timer.
Nothing in the overlay knows which world it is in.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from msgspec import Struct

from sensorgrid.model.block import Slab, Values
from sensorgrid.model.ids import Instant, PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay.derived import StreamName
from sensorgrid.overlay.forwarding import SendPlan
from sensorgrid.overlay.messages import VERSION, Message, Why
from sensorgrid.overlay.roster import Member, Roster

# -- events


@dataclass(frozen=True, slots=True)
class PeerUp:
    """A connection is open. If there was one with this peer, it is gone with all that was said on it."""

    peer: PeerId
    version: int = VERSION
    """of the wire, that both ends speak"""


@dataclass(frozen=True, slots=True)
class PeerDown:
    """A connection broke, or could not be made."""

    peer: PeerId


class Received(
    Struct, frozen=True, gc=False
):  # one per message: made five times as fast as a frozen dataclass
    """A message, in the order in which the peer sent them."""

    peer: PeerId
    message: Message


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one peer that came together, in the order in which it sent them: several times `Received`, but
    what follows from them is done once."""

    peer: PeerId
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Woke:
    """The time that was asked for has come."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A roster from outside: from a file, a greeting or an operator. It is adopted if it is newer."""

    roster: Roster


@dataclass(frozen=True, slots=True)
class Routed:
    """How many links of routers lie between this broker and a peer, where the world can tell."""

    peer: PeerId
    hops: int


@dataclass(frozen=True, slots=True)
class Published:
    """One tick of a region, from the pipeline to its gateway. May come more than once."""

    attribute: int
    cell: int
    tick: int
    revision: int
    epoch: int
    values: Values | None
    """the region's box [row, column]; None: the pipeline has nothing for this tick"""
    silent_s: float | None = None
    """None: they rest on observations; see `sensorgrid.model.block.Slab`"""


@dataclass(frozen=True, slots=True)
class Recalled:
    """The tail of the lake for a region, asked for by `Recall`."""

    attribute: int
    cell: int
    epoch: int
    ticks: tuple[tuple[int, int, Values | None], ...]
    """(tick, revision, values), in order, each tick once"""
    silent_s: tuple[tuple[int, float], ...] = ()
    """(tick, silence) of those that rest on no observation; see `sensorgrid.model.block.Slab`"""


@dataclass(frozen=True, slots=True)
class Advised:
    """An operator wants receivers of a cell to be fed by another broker."""

    attribute: int
    cell: int
    target: PeerId


@dataclass(frozen=True, slots=True)
class Outdated:
    """A peer names a higher epoch or version than this broker knows: the roster here may be old."""


@dataclass(frozen=True, slots=True)
class Joining:
    """This broker shall be a member of an open network, and again whenever it finds that it is none."""

    member: Member


@dataclass(frozen=True, slots=True)
class Leaving:
    """This broker shall hand over what it owns, and be no member then; `Left` says that it is none."""


@dataclass(frozen=True, slots=True)
class Ruled:
    """The store of rosters has answered `Propose` or `Inquire`; what it holds came as `Learned` before."""

    reached: bool
    """False: nobody can say what became of it"""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The broker's process is about to end, in good order."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A user poses a query. `start` and `until` are ticks."""

    query: QueryId
    ask: Query
    start: int
    until: int | None = None
    cells: tuple[int, ...] | None = None
    """only its points in these disjoint cells; None: all of it"""


@dataclass(frozen=True, slots=True)
class Watched:
    """A user wants a derived stream, from a tick on."""

    query: QueryId
    name: StreamName
    text: str
    """of the formula"""
    first: int


@dataclass(frozen=True, slots=True)
class Refined:
    """A user changes a running query; the streams that both versions need go on."""

    query: QueryId
    ask: Query


@dataclass(frozen=True, slots=True)
class Moved:
    """A client has moved: other brokers are near now."""

    brokers: tuple[PeerId, ...]
    """the nearest first"""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A user cancels a query."""

    query: QueryId


ClientEvent: TypeAlias = Submitted | Watched | Refined | Moved | Cancelled
"""what happens to clients only"""

BrokerEvent: TypeAlias = (
    PeerUp
    | PeerDown
    | Received
    | Batch
    | Woke
    | Learned
    | Joining
    | Leaving
    | Ruled
    | Outdated
    | Published
    | Recalled
    | Advised
    | Routed
    | Stopping
)
"""what happens to brokers; the first six to clients as well"""

Event: TypeAlias = BrokerEvent | ClientEvent

# -- events inside a broker: a mechanism reports them to the kernel, and all that listen hear of them


@dataclass(frozen=True, slots=True)
class Broken:
    """A connection no longer works, though neither end closed it. It is given up, and `PeerDown` follows."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Unused:
    """An unused connection is closed; the peer is well."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class RosterChanged:
    """This broker holds a newer roster."""

    before: Roster | None
    roster: Roster


@dataclass(frozen=True, slots=True, eq=False)
class TickComplete:
    """A supply has its next tick in full, in whichever revision arrived first."""

    attribute: int
    cell: int
    tick: int
    slabs: tuple[Slab, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TickRevised:
    """A supply has better values for a tick that it had already, or that was missing."""

    attribute: int
    cell: int
    tick: int
    revision: int
    slabs: tuple[Slab, ...]


@dataclass(frozen=True, slots=True)
class TicksMissing:
    """The owner has nothing for these ticks of a supply; they may still come, as revisions."""

    attribute: int
    cell: int
    first: int
    until: int
    """the tick after the last"""


TAPS = (TickComplete, TickRevised, TicksMissing)
"""what can be tapped from the supplies of a broker, its own regions and what it relays"""

LocalEvent: TypeAlias = Broken | Unused | RosterChanged | Outdated | TickComplete | TickRevised | TicksMissing

# -- effects


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection; `PeerUp` or `PeerDown` follows."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close a connection; no event follows here."""

    peer: PeerId


class Send(Struct, frozen=True, gc=False):
    """Send a message on the open connection."""

    peer: PeerId
    message: Message


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Send many receivers their parts of one block: as many times `Send` as the plan has receivers."""

    plan: SendPlan
    tick: int
    slab: Slab
    """the block, of revision 0"""


@dataclass(frozen=True, slots=True)
class Recall:
    """Read the tail of the lake for a region; `Recalled` follows."""

    attribute: int
    cell: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """A newer roster is held here from now on; tells those that are not peers, such as publishers."""

    roster: Roster


@dataclass(frozen=True, slots=True)
class Propose:
    """Write a roster to the store, if there is none of its version; `Learned` and `Ruled` follow."""

    roster: Roster


@dataclass(frozen=True, slots=True)
class Inquire:
    """Read the newest roster of the store; `Learned` and `Ruled` follow."""


@dataclass(frozen=True, slots=True)
class Left:
    """This broker is no member any more, as it wished."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Values for the user: what a piece of the query holds at a tick; None says that there are none, up to `until`."""

    query: QueryId
    attribute: int
    cell: int
    tick: int
    revision: int
    slabs: tuple[Slab, ...] | None
    until: int = 0
    """of a gap: the tick after its last"""


@dataclass(frozen=True, slots=True)
class Calculated:
    """A tick of a derived stream, for the user; better versions of it may follow."""

    query: QueryId
    tick: int
    revision: int
    """0: complete, and nothing was revised; less: something is missing"""
    numbers: bytes
    """float64, little-endian; empty if nothing is known at all"""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a query: admitted, refused, suspended, resumed, finished; with the reason."""

    query: QueryId
    status: str
    reason: str = ""
    """for people"""
    why: Why | None = None
    """for programs"""


Effect: TypeAlias = (
    Connect
    | Disconnect
    | Send
    | Spread
    | Recall
    | Adopted
    | Propose
    | Inquire
    | Left
    | Deliver
    | Calculated
    | Reply
)


# -- and who lives by them


class Actor(Protocol):
    """A broker or a client without I/O."""

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """One event."""

    def next_wakeup(self) -> Instant | None:
        """When it wants to be woken."""
