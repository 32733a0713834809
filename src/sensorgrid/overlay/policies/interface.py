"""What a replication policy sees, and what it may say.

A policy is asked when a request finds no room: which cell should which other broker feed? It sees what the broker
knows and decides nothing else: offers, reservations, redirects and their failures are the mechanism's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sensorgrid.index.codes import contains, prefixes
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.geography import box_of, distance, middle_of, points_of
from sensorgrid.overlay.loads import Load, Sums
from sensorgrid.overlay.messages import Path


@dataclass(frozen=True, slots=True)
class Proposal:
    """Let `target` take a stream of `cell` and feed this broker's clients there."""

    attribute: int
    cell: int
    target: PeerId
    points: int | None = None
    """points per period that should move; None: all that clients have in the cell"""
    whole: bool = False
    """all of it or nothing"""
    cuts: bool = False
    """clients' entries that are larger than the cell are cut; otherwise they stay"""
    passes: bool = False
    """the cell is a supply of this broker which it gives up: all its receivers go, brokers too, and the target
    takes the cell from this broker's provider"""
    ahead: bool = False
    """it need not pay yet: load is expected there"""


@dataclass(frozen=True, slots=True)
class Holding:
    """A supply, as a policy sees it."""

    path: Path | None
    """from the owner to this broker, itself included"""
    owed: int
    """points per period of all its receivers"""
    owned: bool
    """whether this broker is the owner"""


@dataclass(frozen=True, slots=True)
class View:
    """What a broker knows when it has to decide."""

    me: PeerId
    now: Instant
    grid: Grid
    depth: int
    """longest cell"""
    need: int
    """points per period for which there is no room; 0: the policy is asked what it foresees"""
    budget: int
    """points per period that this broker can send"""
    room: int
    """points per period that are free here, or will be when redirected receivers have left"""
    whole: Sums
    """clients' entries at exactly a cell"""
    parts: Sums
    """by finest cell: all clients' entries, cut"""
    holdings: dict[int, dict[int, Holding]]
    """by attribute and supplied cell"""
    carriers: dict[int, dict[int, tuple[PeerId, ...]]]
    """by attribute and cell: other brokers that have it, as far as known"""
    neighbours: Mapping[int, tuple[PeerId, ...]]
    """by attribute"""
    boxes: Mapping[int, Mapping[PeerId, Sequence[Box]]]
    """by attribute and broker: where its regions lie, as far as known"""
    free: dict[PeerId, int]
    """points per period, as last heard"""
    declined: frozenset[tuple[int, int, PeerId]] = field(default_factory=frozenset)
    """(attribute, cell, target) that failed lately"""

    def size(self, cell: int) -> int:
        """Points per period of a stream of the cell."""
        return points_of(self.grid, cell)

    def loads(self, attribute: int) -> dict[int, Load]:
        """For every cell that this broker has: clients' entries that lie in it altogether."""
        found: dict[int, Load] = {}
        for cell, load in self.whole.get(attribute, {}).items():
            supply = self.supply(attribute, cell)
            if supply is None:
                continue
            for code in prefixes(cell, supply.bit_length() - 1):
                total = found.setdefault(code, Load())
                total.points += load.points
                total.receivers += load.receivers
        return found

    def supply(self, attribute: int, cell: int) -> int | None:
        """The supply of which a cell is part."""
        holdings = self.holdings.get(attribute, {})
        return next((code for code in prefixes(cell) if code in holdings), None)

    def path(self, attribute: int, cell: int) -> Path:
        """How a cell comes here; empty if that is not known."""
        supply = self.supply(attribute, cell)
        return () if supply is None else self.holdings[attribute][supply].path or ()

    def has(self, attribute: int, cell: int) -> tuple[PeerId, ...]:
        """Other brokers that have a cell, as far as known."""
        carriers = self.carriers.get(attribute, {})
        found = {peer: None for code in prefixes(cell) for peer in carriers.get(code, ())}
        return tuple(found)

    def overlaps(self, attribute: int, cell: int, peer: PeerId) -> bool:
        """Whether a broker is known to have part of a cell, but not all of it."""
        return any(
            peer in peers and code != cell and contains(cell, code)
            for code, peers in self.carriers.get(attribute, {}).items()
        )

    def distance(self, attribute: int, peer: PeerId, cell: int) -> float:
        """From a broker's regions to the middle of a cell."""
        boxes = self.boxes.get(attribute, {}).get(peer)
        return distance(self.grid, boxes, *middle_of(box_of(self.grid, cell))) if boxes else float("inf")


class Policy(Protocol):
    """Decides which broker is offered which cell. One instance serves one broker and may keep state."""

    name: str
    """as experiments call it"""
    gossips: bool
    """whether it wants to know the free budget of all brokers, not only of those next to its own"""
    forwards: bool
    """whether requests for a cell that others carry are sent to them while they have room"""
    patient: bool
    """whether requests for which it finds nothing wait a while, since others may be making room"""
    foresees: float | None
    """above this share of its budget the broker asks `foresee` from time to time; None: never"""

    def propose(self, view: View) -> Proposal | None:
        """The next delegation, or None if there is none worth making."""

    def foresee(self, view: View) -> Proposal | None:
        """A delegation before any request has to wait, or None."""


class Reactive:
    """A policy that waits until there is no room."""

    foresees: float | None = None
    patient = False

    def foresee(self, view: View) -> Proposal | None:
        """Nothing."""
        return None


class Never(Reactive):
    """No replication at all."""

    name = "never"
    gossips = False
    forwards = False

    def propose(self, view: View) -> Proposal | None:
        """Nothing."""
        return None
