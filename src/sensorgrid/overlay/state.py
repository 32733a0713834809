"""What the mechanisms of a broker share: they never import each other and meet only here.

A mechanism that needs another's work leaves it in an inbox of the state (`lookups`, `located`, `waiting`); the
broker lets the mechanisms settle in turn until nothing is left to do.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from sensorgrid.index.codes import prefixes
from sensorgrid.index.layout import layout_of
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.events import Connect, Disconnect, Effect, Region, Send
from sensorgrid.overlay.geography import box_of, middle_of
from sensorgrid.overlay.intake import Intake, Piece
from sensorgrid.overlay.messages import Message, Want
from sensorgrid.overlay.outlets import Outlets
from sensorgrid.overlay.settings import Settings

PENDING_MAX = 10_000
"""messages that may wait for a connection to open"""
MIDDLES_MAX = 65_536
"""middles of cells that are remembered"""


class Links:
    """Connections: open, being dialled, or not there; messages wait while one is dialled."""

    def __init__(self, effects: list[Effect]) -> None:
        self.effects = effects
        self.up: dict[PeerId, Instant] = {}
        """open connections, and when a message last came"""
        self.dialling: dict[PeerId, list[Message]] = {}

    def send(self, peer: PeerId, message: Message) -> None:
        """Send, dialling first if need be. What does not fit is lost, as on a broken connection."""
        if peer in self.up:
            self.effects.append(Send(peer, message))
            return
        queue = self.dialling.get(peer)
        if queue is None:
            queue = self.dialling[peer] = []
            self.effects.append(Connect(peer))
        if len(queue) < PENDING_MAX:
            queue.append(message)

    def opened(self, peer: PeerId, now: Instant) -> None:
        """A connection is there."""
        self.up[peer] = now
        for message in self.dialling.pop(peer, ()):
            self.effects.append(Send(peer, message))

    def closed(self, peer: PeerId) -> None:
        """A connection is gone, or could not be made."""
        self.up.pop(peer, None)
        self.dialling.pop(peer, None)

    def close(self, peer: PeerId) -> None:
        """Close one on purpose."""
        if peer in self.up or peer in self.dialling:
            self.closed(peer)
            self.effects.append(Disconnect(peer))


@dataclass(slots=True)
class Waiting:
    """A request for which there is no room yet."""

    peer: PeerId
    want: Want
    cell: int
    size: int
    start: int
    due: Instant


@dataclass(slots=True)
class Reservation:
    """Budget that is promised to receivers on their way here."""

    peer: PeerId
    number: int
    attribute: int
    cell: int
    left: int
    due: Instant
    source: PeerId | None = None
    """who feeds the cell, if not the one who asked"""


@dataclass(frozen=True, slots=True)
class Measured:
    """How far a broker is."""

    delay_s: float
    """one way, smoothed"""
    at: Instant
    """when it was last measured"""


class Seen(NamedTuple):
    """How far a broker is from another one, as that one says."""

    delay_s: float
    """one way"""
    hops: int | None
    """links of routers between, where the world can tell"""
    at: Instant
    """when it was measured"""


@dataclass(slots=True)
class Counters:
    """What a broker has done, for operators and experiments."""

    messages: dict[str, int] = field(default_factory=dict)
    """sent, by kind"""
    masked_points: int = 0
    """values not shown for a value range"""
    sent_points: int = 0
    """values sent in blocks"""
    delegations: int = 0
    """decisions to move load"""
    evictions: int = 0
    """receivers that gave their slot to a broker"""


@dataclass(frozen=True, slots=True)
class Carried:
    """Cells of one attribute that other brokers take from somebody, as far as known."""

    version: tuple[int, int]
    carriers: dict[int, tuple[PeerId, ...]]
    """who, by cell"""
    above: frozenset[int]
    """cells that hold one of them, larger than it"""


class State:
    """All that a broker knows."""

    def __init__(self, me: PeerId, grid: Grid, settings: Settings, rng: Random) -> None:
        self.me = me
        self.grid = grid
        self.settings = settings
        self.rng = rng
        self.now: Instant = 0.0
        self.effects: list[Effect] = []
        self.links = Links(self.effects)
        self.outlets = Outlets(settings.budget, grid, settings.depth)
        self.digits = min(settings.depth, layout_of(grid).digits)
        """of the longest cell that anybody may ask for"""
        self.intake: Intake
        self.regions: dict[int, dict[int, Region]] = {}
        """by attribute and cell: own regions and adjacent ones"""
        self.neighbours: dict[int, tuple[PeerId, ...]] = {}
        """by attribute: owners of adjacent regions"""
        self.boxes: dict[int, dict[PeerId, list[Box]]] = {}
        """by attribute and broker: where its regions lie"""
        self.peers: tuple[PeerId, ...] = ()
        """all neighbours"""
        self.lookups: list[tuple[list[Piece], bool]] = []
        """pieces to be located, and whether only the owner will do: streams to routing"""
        self.located: list[tuple[int, int, PeerId | None]] = []
        """(attribute, cell, provider): routing to streams"""
        self.waiting: dict[tuple[PeerId, int, int], Waiting] = {}
        """requests without room: streams to replication"""
        self.reservations: dict[tuple[PeerId, int], Reservation] = {}
        """by who asked and his number: replication to streams"""
        self.free_of: dict[PeerId, tuple[int, int]] = {}
        """(version, free budget) of brokers, as last heard"""
        self.carried: dict[PeerId, tuple[tuple[int, int], ...]] = {}
        """(attribute, cell) that brokers take from others, as last heard"""
        self.carriers: dict[int, dict[int, dict[PeerId, None]]] = {}
        """the same by attribute and cell"""
        self.carriers_version = 0
        """grows with every change of `carriers`"""
        self._carried: dict[int, Carried] = {}
        self.asks_owners = False
        """whether brokers leave it to the owner to say who feeds a stream; otherwise whoever on the way has it does"""
        self.places: Callable[[PeerId, int, int], PeerId] | None = None
        """who shall feed a cell of this owner to a broker that asks for it first: trees to routing"""
        self.saves: Callable[[PeerId, PeerId], bool] | None = None
        """whether it would save links if a provider fed a receiver without this relay; None: it always would"""
        self.delays: dict[PeerId, Measured] = {}
        """to other brokers, one way: neighbourhood to relays and trees"""
        self.near: tuple[PeerId, ...] = ()
        """the neighbourhood, the nearest first"""
        self.asked: Collection[PeerId] = ()
        """brokers whose answer to a ping is awaited: neighbourhood to liveness"""
        self.views: dict[PeerId, dict[PeerId, Seen]] = {}
        """what other brokers have measured"""
        self.hops: dict[PeerId, int] = {}
        """links of routers between this broker and others, where the world can tell"""
        self.sights = 0
        """grows with every noticeable change of what is known about distances"""
        self.shifts: dict[tuple[PeerId, PeerId], None] | None = None
        """pairs of which the first has measured another delay than before: neighbourhood to trees, if there are any"""
        self.counters = Counters()
        self._middles: dict[int, tuple[float, float]] = {}

    def send(self, peer: PeerId, message: Message) -> None:
        """Send a message, counted by kind. Receivers dial: what answers a peer that is gone is dropped."""
        links = self.links
        if peer not in links.up and peer not in links.dialling and not message.dials:
            return
        kind = type(message).__name__
        counts = self.counters.messages
        counts[kind] = counts.get(kind, 0) + 1
        self.links.send(peer, message)

    def carriers_of(self, attribute: int, cell: int) -> tuple[PeerId, ...]:
        """Other brokers that take a cell from somebody: from here, or as last heard."""
        known = self.carried_cells(attribute).carriers
        if not known:
            return ()
        return tuple(dict.fromkeys(peer for code in prefixes(cell) for peer in known.get(code, ())))

    def carried_cells(self, attribute: int) -> "Carried":
        """Which cells others take from somebody; worked out again when that changes."""
        version = (self.carriers_version, self.outlets.fed_version)
        known = self._carried.get(attribute)
        if known is None or known.version != version:
            merged: dict[int, dict[PeerId, None]] = {}
            for cells in (self.outlets.fed.get(attribute, {}), self.carriers.get(attribute, {})):
                for cell, peers in cells.items():
                    merged.setdefault(cell, {}).update(dict.fromkeys(p for p in peers if p != self.me))
            carriers = {cell: tuple(peers) for cell, peers in merged.items() if peers}
            above = frozenset(code for cell in carriers for code in prefixes(cell >> 1))
            known = self._carried[attribute] = Carried(version, carriers, above)
        return known

    def delay_between(self, a: PeerId, b: PeerId) -> float:
        """As the one who measured last says: half of a round trip is the same from both ends. Unknown is infinite."""
        if a == b:
            return 0.0
        one, other = self._measured(a, b), self._measured(b, a)
        if other is None or (one is not None and one.at > other.at):
            one, other = other, one
        return other.delay_s if other is not None else float("inf")

    def _measured(self, a: PeerId, b: PeerId) -> "Measured | Seen | None":
        if a == self.me:
            return self.delays.get(b)
        view = self.views.get(a)
        return None if view is None else view.get(b)

    def region_of(self, attribute: int, cell: int) -> Region | None:
        """The known region that contains a cell."""
        regions = self.regions.get(attribute, {})
        while cell:
            if (region := regions.get(cell)) is not None:
                return region
            cell >>= 1
        return None

    def middle(self, cell: int) -> tuple[float, float]:
        """The middle of a cell, worked out once."""
        found = self._middles.get(cell)
        if found is None:
            if len(self._middles) >= MIDDLES_MAX:
                self._middles.clear()
            found = self._middles[cell] = middle_of(box_of(self.grid, cell))
        return found
