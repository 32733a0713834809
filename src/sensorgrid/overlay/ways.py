"""Which broker is asked next for a cell that is not here: over the map, or along links by prefixes of IDs.

*Over the map* (multires, Algorithm 2) a question goes to the neighbour nearest to the cell. A broker needs to know its
own regions and those that touch them, no more, and many brokers see the question on its way. The way grows with the
root of the number of brokers.

*By prefix* (operators, III-A) it goes towards the owner that the roster names: straight there while there are so few
brokers that all can be linked (`LINKS_MAX`), else along the links of `prefixes.py`, which are kept open. The way grows
with the logarithm.
"""

from typing import Protocol

from sensorgrid.index.codes import prefixes
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.boards import RegionsBoard
from sensorgrid.overlay.geography import box_of, distance, middle_of
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.prefixes import LINKS_MAX, PrefixLinks
from sensorgrid.overlay.roster import Region, Roster

MIDDLES_MAX = 65_536
"""middles of cells that are remembered"""
HOPS_KNOWN_MAX = 65_536
"""next hops that are remembered"""


class WayToOwner(Protocol):
    """How routing finds the next hop."""

    def changed(self, roster: Roster, near: tuple[Region, ...]) -> tuple[PeerId, ...]:
        """Learn a newer roster, and the regions here and beside; brokers to which a connection is kept for this."""

    def splits(self, attribute: int, cell: int) -> bool:
        """Whether a known region lies inside the cell, smaller than it."""

    def next_hop(self, attribute: int, cell: int, trail: tuple[PeerId, ...]) -> PeerId | None:
        """Who is asked next, by a broker that does not have the cell; None: nobody."""


class OverTheMap:
    """Greedily to the neighbour nearest to the middle of the cell."""

    def __init__(self, kernel: BrokerKernel, board: RegionsBoard) -> None:
        self.kernel = kernel
        self.board = board
        self._middles: dict[int, tuple[float, float]] = {}
        self._above: dict[int, set[int]] = {}
        self._hops: dict[tuple[int, int], PeerId | None] = {}
        """where a cell is sent on to, until regions change"""

    def changed(self, roster: Roster, near: tuple[Region, ...]) -> tuple[PeerId, ...]:
        """Regions here and beside; they are on the board already."""
        self._above = _above(near)
        self._hops.clear()
        return ()

    def splits(self, attribute: int, cell: int) -> bool:
        """Whether a known region lies inside the cell, smaller than it."""
        return cell in self._above.get(attribute, ())

    def next_hop(self, attribute: int, cell: int, trail: tuple[PeerId, ...]) -> PeerId | None:
        """The neighbour nearest to the middle of the cell, if it is nearer than this broker."""
        if (attribute, cell) in self._hops:
            return self._hops[attribute, cell]
        kernel, board = self.kernel, self.board
        boxes = board.boxes.get(attribute, {})
        mine = boxes.get(kernel.me)
        x, y = self._middle(cell)
        best = distance(kernel.grid, mine, x, y) if mine else float("inf")
        target: PeerId | None = None
        for peer in board.neighbours.get(attribute, ()):
            far = distance(kernel.grid, boxes[peer], x, y)
            if far < best:
                best, target = far, peer
        if target is None and not mine:  # a relay without a region: any neighbour knows more
            return next((peer for peer in board.peers if peer not in trail), None)
        if len(self._hops) >= HOPS_KNOWN_MAX:
            self._hops.clear()
        self._hops[attribute, cell] = target
        return target

    def _middle(self, cell: int) -> tuple[float, float]:
        """The middle of a cell, worked out once."""
        found = self._middles.get(cell)
        if found is None:
            if len(self._middles) >= MIDDLES_MAX:
                self._middles.clear()
            found = self._middles[cell] = middle_of(box_of(self.kernel.grid, cell))
        return found


class ByPrefix:
    """Towards the owner that the roster names."""

    def __init__(self, kernel: BrokerKernel) -> None:
        self.kernel = kernel
        self._roster: Roster | None = None
        self._links: PrefixLinks | None = None
        """None: so few brokers that each asks the owner itself"""
        self._above: dict[int, set[int]] = {}

    def changed(self, roster: Roster, near: tuple[Region, ...]) -> tuple[PeerId, ...]:
        """All regions; the links of this broker."""
        self._roster, self._above = roster, _above(roster.regions)
        self._links = PrefixLinks.of_roster(roster) if len(roster.members) > LINKS_MAX + 1 else None
        return () if self._links is None else self._links.of(self.kernel.me)

    def splits(self, attribute: int, cell: int) -> bool:
        """Whether a region lies inside the cell, smaller than it."""
        return cell in self._above.get(attribute, ())

    def next_hop(self, attribute: int, cell: int, trail: tuple[PeerId, ...]) -> PeerId | None:
        """The link that leads to the owner."""
        region = None if self._roster is None else self._roster.region(attribute, cell)
        # Nobody is asked twice: brokers may hold different rosters for a while.
        if region is None or region.owner == self.kernel.me or region.owner in trail:
            return None
        hop = None
        if self._links is not None:
            hop = self._links.next_hop(self.kernel.me, region.owner, self.kernel.links.up)
        return region.owner if hop is None or hop in trail else hop


def _above(regions: tuple[Region, ...]) -> dict[int, set[int]]:
    """By attribute: cells in which a region lies, smaller than they are."""
    found: dict[int, set[int]] = {}
    for region in regions:
        found.setdefault(region.attribute, set()).update(prefixes(region.cell >> 1))
    return found
