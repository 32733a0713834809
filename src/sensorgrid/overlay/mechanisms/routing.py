"""Finds who can feed a cell: any broker is asked, and passes the question on towards the owner (multires, Algorithm 2).

Every broker on the way answers for what it can feed itself, so a replica answers before the owner is reached. Which
broker is asked next is the choice of `overlay/ways.py`. Over the map, a broker knows its own regions and those that
touch them; that is enough, since of the regions that touch a box, one lies nearer to any point outside it.

Differs from Algorithm 2: a cell is cut where a known region lies inside it, and each part goes its own way, so
that no part is nearest to two brokers at once; the target is chosen anew for each part; longitude wraps.
"""

from sensorgrid.model.ids import PeerId, is_broker
from sensorgrid.overlay.boards import Boards, Lookup, Provided, RegionsBoard
from sensorgrid.overlay.events import RosterChanged
from sensorgrid.overlay.faces import Placement
from sensorgrid.overlay.geography import box_of, points_of, view_of
from sensorgrid.overlay.kernel import BrokerKernel, Inbox
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import Ask, Find, Found, Located
from sensorgrid.overlay.ways import WayToOwner

HOPS_MAX = 64
ASKED_MAX = 16_384
"""cells that one question of a client may name; of the others nobody is said to have them"""


class Routing(Mechanism):
    """The mechanism."""

    def __init__(
        self,
        kernel: BrokerKernel,
        boards: Boards,
        regions: RegionsBoard,
        lookups: Inbox[Lookup],
        located: Inbox[Provided],
        placement: Placement | None,
        way: WayToOwner,
        forwards: bool,
        asks_owners: bool,
    ) -> None:
        self.kernel = kernel
        self.outlets = boards.outlets
        self.hearsay = boards.hearsay
        self.regions = regions
        self.lookups = lookups
        """from streams"""
        self.located = located
        """for streams"""
        self.placement = placement
        """who says which broker feeds a newcomer; None: this one does"""
        self.way = way
        self.forwards = forwards
        """whether brokers that carry a cell are named as its providers, while they have room"""
        self.asks_owners = asks_owners
        """whether the owner alone says who feeds a stream; otherwise the first broker on the way that has it does"""
        self.listens = {RosterChanged: self.changed}
        self.handlers = {
            Ask: self.asked,
            Find: self.find,
            Found: self.found,
        }

    def changed(self, event: RosterChanged) -> None:
        """Learn where the regions are: own ones and those that touch them."""
        me, board = self.kernel.me, self.regions
        board.boxes, board.neighbours = {}, {}
        near = view_of(me, event.roster.regions, self.kernel.grid)
        for region in near:
            boxes = board.boxes.setdefault(region.attribute, {})
            boxes.setdefault(region.owner, []).append(box_of(self.kernel.grid, region.cell))
        for attribute, boxes in board.boxes.items():
            board.neighbours[attribute] = tuple(sorted(peer for peer in boxes if peer != me))
        linked = self.way.changed(event.roster, near)
        known = {peer for peers in board.neighbours.values() for peer in peers}
        board.peers = tuple(sorted(known.union(event.roster.links_of(me), linked) - {me}))

    def asked(self, peer: PeerId, message: Ask) -> None:
        """A client asks."""
        cells = tuple(dict.fromkeys(message.cells))
        known = 0 <= message.attribute < len(self.kernel.grid.attributes)
        taken = cells[:ASKED_MAX] if known else ()
        if rest := cells[len(taken) :]:
            nobody = tuple((cell, None) for cell in rest)
            self.kernel.send(peer, Located(message.request, message.attribute, nobody))
        if taken:
            self._route(peer, message.request, message.attribute, taken, message.owner, ())

    def find(self, peer: PeerId, message: Find) -> None:
        """A broker passes a question on."""
        self._route(
            message.asker, message.request, message.attribute, message.cells, message.owner, message.trail
        )

    def found(self, peer: PeerId, message: Found) -> None:
        """An answer comes back along the trail."""
        self._answer(message.asker, message.request, message.attribute, message.items, message.trail)

    def settle(self) -> bool:
        """Locate pieces of this broker's own."""
        busy = bool(self.lookups)
        while self.lookups:
            pieces, owner = self.lookups.take()
            for piece in pieces:
                self._route(self.kernel.me, 0, piece.attribute, (piece.cell,), owner, (), own=True)
        return busy

    def _route(
        self,
        asker: PeerId,
        request: int,
        attribute: int,
        cells: tuple[int, ...],
        owner: bool,
        trail: tuple[PeerId, ...],
        own: bool = False,
    ) -> None:
        """Answer for what this broker can feed, pass the rest on, and name the cells that no broker can be asked
        for."""
        kernel = self.kernel
        answers: list[tuple[int, PeerId | None]] = []
        onward: dict[PeerId, list[int]] = {}
        stack = list(cells[::-1])
        while stack:
            cell = stack.pop()
            if cell.bit_length() > kernel.digits + 1:
                answers.append((cell, None))
                continue
            supply = self.outlets.supply_for(attribute, cell)
            if supply is not None and (supply.owned or not (owner or own or self.asks_owners)):
                if owner or not self.forwards or is_broker(asker):
                    answers.append((cell, kernel.me if owner else self._placed(asker, attribute, cell)))
                    continue
                fed = self._providers(attribute, cell, supply.owned)
                answers += [(part, peer) for part, peer in fed if peer is not None]
                rest = [part for part, peer in fed if peer is None]
                if not rest:
                    continue
                cell = rest[0]
                stack += rest[:0:-1]
            here_too = not (own or owner or self.asks_owners)
            if here_too and self.outlets.has_below(attribute, cell) and supply is None:
                here, missing = self.outlets.available(attribute, cell)
                answers += [(part, kernel.me) for part in here]
                stack += missing[::-1]
                continue
            if self.way.splits(attribute, cell):
                stack += [cell << 1 | 1, cell << 1]
                continue
            hop = self.way.next_hop(attribute, cell, trail) if len(trail) < HOPS_MAX else None
            if hop is None:
                answers.append((cell, None))
            else:
                onward.setdefault(hop, []).append(cell)
        for hop, parts in onward.items():
            question = Find(asker, request, attribute, tuple(parts), owner, (*trail, kernel.me))
            kernel.send(hop, question)
        if answers:
            self._answer(asker, request, attribute, tuple(answers), trail)

    def _placed(self, asker: PeerId, attribute: int, cell: int) -> PeerId:
        """The broker that feeds a cell of this one to a new receiver; only the cell's owner is asked for it again."""
        placement = self.placement
        return self.kernel.me if placement is None else placement.place(asker, attribute, cell)

    def _providers(self, attribute: int, cell: int, owned: bool) -> list[tuple[int, PeerId | None]]:
        """The providers of the parts of a cell that is here: brokers that carry them, while they have room.

        A replica keeps what it has room for. A cell for which no carrier has room stays with the owner, which will
        make room; a replica passes such a cell on towards the owner (None).
        """
        kernel = self.kernel
        size = points_of(kernel.grid, cell)
        if not owned and self.outlets.free >= size:
            return [(cell, kernel.me)]
        mine = kernel.me if owned else None
        carriers = self.hearsay.carriers_of(attribute, cell)
        if carriers:
            free = self.hearsay.free_of
            room, peer = max((free.get(c, (0, 0))[1], c) for c in carriers)
            return [(cell, peer if room >= size else mine)]
        if cell not in self.hearsay.carried_cells(attribute).above:
            return [(cell, mine)]
        fed = [
            *self._providers(attribute, cell << 1, owned),
            *self._providers(attribute, cell << 1 | 1, owned),
        ]
        return [(cell, mine)] if all(peer == mine for _, peer in fed) else fed

    def _answer(
        self,
        asker: PeerId,
        request: int,
        attribute: int,
        items: tuple[tuple[int, PeerId | None], ...],
        trail: tuple[PeerId, ...],
    ) -> None:
        kernel = self.kernel
        if trail:
            kernel.send(trail[-1], Found(asker, request, attribute, items, trail[:-1]))
        elif asker == kernel.me:
            for cell, provider in items:
                self.located.put((attribute, cell, provider))
        elif asker in kernel.links.up:
            kernel.send(asker, Located(request, attribute, items))

    def leftovers(self) -> dict[str, object]:
        """Questions without an answer here."""
        return {"lookups": len(self.lookups), "located": len(self.located)}
