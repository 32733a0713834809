"""What a replication policy sees, and what it may say.

A policy is asked when a request finds no room: which cell shall be fed by which other broker? It sees what the
broker knows and decides nothing else: offers, reservations, redirects and their failures are the mechanism's.
"""

from dataclasses import dataclass
from typing import Protocol

from sensorgrid.index.codes import prefixes
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.geography import distance
from sensorgrid.overlay.messages import Path


@dataclass(frozen=True, slots=True)
class Proposal:
    """Let `target` take a stream of `cell` and feed this broker's receivers there."""

    attribute: int
    cell: int
    target: PeerId


@dataclass(slots=True)
class Load:
    """What clients have from this broker in a cell and below it."""

    points: int = 0
    """per period"""
    receivers: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """What a broker knows when it has to decide."""

    me: PeerId
    now: Instant
    grid: Grid
    depth: int
    """longest cell"""
    need: int
    """points per period for which there is no room"""
    loads: dict[int, dict[int, Load]]
    """by attribute and cell, for every cell that holds a client's entry or one below it"""
    exact: dict[int, dict[int, int]]
    """by attribute and cell: points of clients at exactly this cell"""
    paths: dict[int, dict[int, Path | None]]
    """by attribute and supplied cell: how it comes here"""
    carriers: dict[int, dict[PeerId, tuple[int, ...]]]
    """by attribute and broker: cells that it takes from here"""
    neighbours: dict[int, tuple[PeerId, ...]]
    """by attribute"""
    boxes: dict[int, dict[PeerId, list[Box]]]
    """by attribute and broker: where its regions lie, as far as known"""
    free: dict[PeerId, int]
    """points per period, as last heard"""
    declined: frozenset[tuple[int, int, PeerId]]
    """(attribute, cell, target) that failed lately"""
    middles: dict[int, tuple[float, float]]
    """middles of the cells of `loads`"""

    def size(self, cell: int) -> int:
        """Points per period of a stream of the cell."""
        return self.grid.points_per_period >> (cell.bit_length() - 1)

    def path(self, attribute: int, cell: int) -> Path | None:
        """How a cell comes here."""
        paths = self.paths.get(attribute, {})
        for code in prefixes(cell):
            if code in paths:
                return paths[code]
        return None

    def carries(self, attribute: int, cell: int, peer: PeerId) -> bool:
        """Whether a broker takes the cell from here already."""
        return any(
            cell.bit_length() >= held.bit_length() and cell >> (cell.bit_length() - held.bit_length()) == held
            for held in self.carriers.get(attribute, {}).get(peer, ())
        )

    def distance(self, attribute: int, peer: PeerId, cell: int) -> float:
        """From a broker's regions to the middle of a cell."""
        boxes = self.boxes.get(attribute, {}).get(peer)
        x, y = self.middles[cell]
        return distance(self.grid, boxes, x, y) if boxes else float("inf")


class Policy(Protocol):
    """Who is offered what."""

    name: str
    """as experiments call it"""
    gossips: bool
    """whether it wants to know the free budget of all brokers, not only its neighbours'"""

    def propose(self, view: View) -> Proposal | None:
        """The next delegation, or None if there is none worth making."""


class Never:
    """No replication at all."""

    name = "never"
    gossips = False

    def propose(self, view: View) -> Proposal | None:
        """Nothing."""
        return None
