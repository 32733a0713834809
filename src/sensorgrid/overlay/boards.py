"""Boards: what a broker knows, one board for each mechanism that finds something out.

Each board has exactly one writing mechanism, named in its docstring; all others get its read-only face (`faces.py`),
through `Boards`. Two more boards stand in files of their own: `Outlets` and `Intake`, both written by streams.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sensorgrid.index.codes import prefixes
from sensorgrid.model.box import Box
from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.faces import (
    DistancesFace,
    HearsayFace,
    IntakeFace,
    OutletsFace,
    RegionsFace,
    RequestsFace,
    RosterFace,
    StreamNodesFace,
)
from sensorgrid.overlay.intake import Piece
from sensorgrid.overlay.messages import Want
from sensorgrid.overlay.roster import Roster


@dataclass(frozen=True, slots=True)
class Boards:
    """All of a broker's boards, to read."""

    roster: RosterFace
    regions: RegionsFace
    distances: DistancesFace
    hearsay: HearsayFace
    outlets: OutletsFace
    requests: RequestsFace
    intake: IntakeFace
    nodes: StreamNodesFace


# -- membership's


class HeldRoster:
    """The roster that this broker holds. Written by membership."""

    def __init__(self) -> None:
        self.current: Roster | None = None
        """None: it has not been told one yet"""


# -- routing's


class RegionsBoard:
    """Where the regions of brokers lie, own ones and adjacent ones. Written by routing."""

    def __init__(self) -> None:
        self.neighbours: dict[int, tuple[PeerId, ...]] = {}
        """by attribute: owners of adjacent regions"""
        self.boxes: dict[int, dict[PeerId, list[Box]]] = {}
        """by attribute and broker: where its regions lie"""
        self.peers: tuple[PeerId, ...] = ()
        """all neighbours"""


# -- the neighbourhood's


@dataclass(frozen=True, slots=True)
class Measured:
    """How far a broker is."""

    delay_s: float
    """one way, smoothed"""
    at: Instant
    """when it was last measured"""


class ToldDistance(NamedTuple):
    """How far a broker is from another one, as that one says."""

    delay_s: float
    """one way"""
    hops: int | None
    """links of routers between, where the world can tell"""
    at: Instant
    """when it was measured"""


@dataclass(slots=True)
class Asked:
    """A ping without an answer."""

    at: Instant
    again: float | None = None
    """what the measurement before said, if it was doubted"""
    dialled: bool = False
    """whether the connection had to be opened first, which takes time as well"""
    once_more: bool = False
    """whether the connection closed before the answer came, so that the question was repeated"""


class Distances:
    """How far brokers are from each other. Written by the neighbourhood; empty where distances are not measured."""

    def __init__(self, me: PeerId) -> None:
        self._me = me
        self.delays: dict[PeerId, Measured] = {}
        """to other brokers, one way"""
        self.near: tuple[PeerId, ...] = ()
        """the neighbourhood, the nearest first"""
        self.awaited: dict[PeerId, Asked] = {}
        """brokers whose answer to a ping is awaited"""
        self.views: dict[PeerId, dict[PeerId, ToldDistance]] = {}
        """what other brokers have measured"""
        self.hops: dict[PeerId, int] = {}
        """links of routers between this broker and others, where the world can tell"""
        self.sights = 0
        """grows with every noticeable change of what is known about distances"""

    def delay_between(self, a: PeerId, b: PeerId) -> float:
        """The latest measurement by either end: half a round trip is the same from both. Infinite if unknown."""
        if a == b:
            return 0.0
        one, other = self._measured(a, b), self._measured(b, a)
        if other is None or (one is not None and one.at > other.at):
            one, other = other, one
        return other.delay_s if other is not None else float("inf")

    def _measured(self, a: PeerId, b: PeerId) -> Measured | ToldDistance | None:
        if a == self._me:
            return self.delays.get(b)
        view = self.views.get(a)
        return None if view is None else view.get(b)


# -- news'

Cells = tuple[tuple[int, int], ...]
"""(attribute, cell)"""


@dataclass(frozen=True, slots=True)
class Carried:
    """Cells of one attribute that other brokers are known to take from a provider."""

    version: tuple[int, int]
    carriers: dict[int, tuple[PeerId, ...]]
    """who, by cell"""
    above: frozenset[int]
    """cells that hold one of them, larger than it"""


class Hearsay:
    """What other brokers have free and carry, as last heard. Written by news."""

    def __init__(self, me: PeerId, outlets: OutletsFace) -> None:
        self._me = me
        self._outlets = outlets
        self.free_of: dict[PeerId, tuple[int, int]] = {}
        """(version, free budget) of brokers"""
        self.carried: dict[PeerId, Cells] = {}
        """what each takes from others"""
        self._carriers: dict[int, dict[int, dict[PeerId, None]]] = {}
        """the same by attribute and cell"""
        self._version = 0
        """grows with every change of `_carriers`"""
        self._merged: dict[int, Carried] = {}

    def carries(self, broker: PeerId, cells: Cells) -> None:
        """A broker says what it takes from others."""
        carriers, before = self._carriers, self.carried.get(broker, ())
        cells = tuple(dict.fromkeys(cells))
        if cells == before:
            return
        self._version += 1
        for attribute, cell in before:
            of = carriers[attribute]
            del of[cell][broker]
            if not of[cell]:
                del of[cell]
        for attribute, cell in cells:
            carriers.setdefault(attribute, {}).setdefault(cell, {})[broker] = None
        self.carried[broker] = cells

    def carriers_of(self, attribute: int, cell: int) -> tuple[PeerId, ...]:
        """Other brokers that take a cell: those that take it from here, and those that last said so."""
        known = self.carried_cells(attribute).carriers
        if not known:
            return ()
        return tuple(dict.fromkeys(peer for code in prefixes(cell) for peer in known.get(code, ())))

    def carried_cells(self, attribute: int) -> Carried:
        """Which cells other brokers take; computed again when that changes."""
        version = (self._version, self._outlets.fed_version)
        known = self._merged.get(attribute)
        if known is None or known.version != version:
            merged: dict[int, dict[PeerId, None]] = {}
            for cells in (self._outlets.fed.get(attribute, {}), self._carriers.get(attribute, {})):
                for cell, peers in cells.items():
                    merged.setdefault(cell, {}).update(dict.fromkeys(p for p in peers if p != self._me))
            carriers = {cell: tuple(peers) for cell, peers in merged.items() if peers}
            above = frozenset(code for cell in carriers for code in prefixes(cell >> 1))
            known = self._merged[attribute] = Carried(version, carriers, above)
        return known


# -- streams'


@dataclass(slots=True)
class WaitingRequest:
    """A request for which there is no room yet."""

    peer: PeerId
    want: Want
    cell: int
    size: int
    start: int
    due: Instant


class Requests(dict[tuple[PeerId, int, int], WaitingRequest]):
    """Requests without room, by receiver, generation and cell, the oldest first. Written by streams."""


# -- between routing and streams

Lookup: TypeAlias = tuple[list[Piece], bool]
"""pieces to be located, and whether only the owner will do"""
Provided: TypeAlias = tuple[int, int, PeerId | None]
"""(attribute, cell, provider); None: no provider within reach"""
