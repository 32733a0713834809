"""Decides whether a request can be met, and who makes room for it. Nothing here has side effects.

`mechanisms/streams.py` acts on the answers: it feeds, evicts, keeps waiting or refuses. The decisions stand apart from
it so that the rules for a full broker (rules 2, 7 and 10) can be read without the life cycle of a stream around them.
"""

from dataclasses import dataclass

from sensorgrid.index.codes import contains, prefixes
from sensorgrid.index.decompose import points_in
from sensorgrid.model.box import Box
from sensorgrid.model.errors import GridError
from sensorgrid.model.ids import PeerId, is_broker
from sensorgrid.overlay.boards import WaitingRequest
from sensorgrid.overlay.faces import HearsayFace, OutletsFace
from sensorgrid.overlay.geography import points_of
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.messages import Want
from sensorgrid.overlay.outlets import Entry, Reservation, Supply

ELSEWHERE_MAX = 4
"""carriers that a refusal names"""


@dataclass(frozen=True, slots=True)
class Room:
    """What it takes to let a request in."""

    yields: tuple[Entry, ...] = ()
    """entries that have to leave"""
    to: tuple[PeerId, ...] = ()
    """where they are sent"""


def too_old(supply: Supply, start: int) -> bool:
    """A relay never rewinds a shared stream (rule 7); an owner names what it lacks as a gap."""
    return not supply.owned and supply.start is not None and start < supply.start


class Admission:
    """The decisions of one broker."""

    def __init__(self, kernel: BrokerKernel, outlets: OutletsFace, hearsay: HearsayFace) -> None:
        self.kernel = kernel
        self.outlets = outlets
        self.hearsay = hearsay

    def sensible(self, peer: PeerId, want: Want, again: bool) -> bool:
        """A known attribute, and cells that overlap neither each other nor others of their generation.

        `again` says that the generation may have been heard of before.
        """
        cells = {cell for cell, _, _ in want.items}
        if not 0 <= want.attribute < len(self.kernel.grid.attributes):
            return False
        if len(cells) != len(want.items) or min(cells, default=1) < 1:
            return False
        if again:
            cells |= {cell for g, cell in self.outlets.entries.get(peer, ()) if g == want.generation}
        if len(cells) == 1:
            return True
        return not any(above in cells for cell in sorted(cells) for above in prefixes(cell >> 1))

    def sizes(self, want: Want) -> list[int]:
        """Points of the entries, counted here: a budget must not depend on what others claim."""
        grid = self.kernel.grid
        cells = [item[0] for item in want.items]
        if any(not 0 < cell.bit_length() <= self.kernel.digits + 1 for cell in cells):
            return [0] * len(cells)
        if want.clip is None:
            return [points_of(grid, cell) for cell in cells]
        try:
            return points_in(Box(*want.clip.box), want.clip.limits, cells, grid)
        except GridError:  # a box that the grid has not
            return [0] * len(cells)

    def owns_below(self, attribute: int, cell: int) -> bool:
        """Whether a region of this broker lies in a cell."""
        supplies = self.outlets.supplies.get(attribute, {}).values()
        return any(supply.owned and contains(cell, supply.cell) for supply in supplies)

    def reservation_for(self, want: Want, cell: int) -> Reservation | None:
        """The promise that a receiver of a cell was sent here with, the largest if there are several."""
        if want.via is None:
            return None
        matching = [
            reservation
            for reservation in self.outlets.reservations.values()
            if reservation.peer == want.via
            and reservation.attribute == want.attribute
            and contains(reservation.cell, cell)
        ]
        return max(matching, key=lambda r: r.left, default=None)

    def room_for(self, request: WaitingRequest, reservation: Reservation | None) -> Room | None:
        """How the request fits, if it does; a broker's may take the slots of receivers that move to it (rule 10)."""
        outlets = self.outlets
        free = outlets.free + (0 if reservation is None else min(reservation.left, request.size))
        missing = request.size - free
        if missing <= 0:
            return Room()
        if reservation is not None and reservation.provider == self.kernel.me:
            # A relay hands its receivers back, and its own stream of the cell is no longer needed.
            victims = outlets.streams_to(reservation.peer, reservation.attribute, reservation.cell)
            return Room(tuple(victims)) if sum(entry.size for entry in victims) >= missing else None
        if is_broker(request.peer) and (victims := self._victims(request, missing)):
            return Room(tuple(victims), (request.peer,))
        return None

    def _victims(self, request: WaitingRequest, missing: int) -> list[Entry]:
        """Receivers of the cell that can take it from the asking broker instead: first those already on their way
        there, then the relay that sent the broker here, then the largest clients. Other brokers keep their slots: two
        brokers that want the same cell would evict each other for ever.
        """
        attribute, peer, via = request.want.attribute, request.peer, request.want.via
        inside = [
            e
            for e in self.outlets.inside(attribute, request.cell)
            if e.peer != peer and not e.stays and (not e.of_broker or e.going == peer or e.peer == via)
        ]
        inside.sort(key=lambda e: (e.going != peer, e.peer != via, -e.size, e.peer, e.generation, e.cell))
        chosen, freed = [], 0
        for entry in inside:
            if freed >= missing:
                break
            chosen.append(entry)
            freed += entry.size
        return chosen if freed >= missing else []

    def elsewhere(self, request: WaitingRequest) -> tuple[PeerId, ...]:
        """Brokers that carry the cell: those known to take it, most room first, then those on the path by which it
        comes.

        Without the second kind a full relay in front of an owner with room would shut its receivers out.
        """
        free, attribute = self.hearsay.free_of, request.want.attribute
        carriers = sorted(
            self.hearsay.carriers_of(attribute, request.cell),
            key=lambda peer: (-free.get(peer, (0, 0))[1], peer),
        )
        supply = self.outlets.supply_for(attribute, request.cell)
        path = () if supply is None or supply.path is None else supply.path[-2::-1]
        named = dict.fromkeys((*carriers[:ELSEWHERE_MAX], *path))
        return tuple(peer for peer in named if peer != request.peer)
