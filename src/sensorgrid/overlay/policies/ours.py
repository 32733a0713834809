"""Our replication: few copies, whole cells, and no new copy while a carrier has room.

At the optimum (`sensorgrid.experiments.bounds`) the densest cells leave their owner whole, each for as few brokers
as can hold it. So, when a request finds no room here:

1. clients of a cell that another broker has already move there, which costs nothing, as long as it has room;
2. a replica that overflows passes a cell on whole: its own stream of it ends, so there are no more copies than
   before;
3. only then a new copy is made: of the finest cell that moves most, to the broker with most room. Larger entries
   are cut for it: what is dense is small, and what is large would drag the thin parts along.

Targets need not lie farther out: paths exclude circles, and the nearest corner with room may lie across the origin.

With `gossips` targets are all brokers whose free bandwidth is known; without, those next to this one.
"""

from collections.abc import Iterator

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.loads import Load, summed
from sensorgrid.overlay.policies.interface import Proposal, View

RESERVE = 0.02
"""share of its budget that a broker tries to keep free, as long as it costs no copy"""

EVEN = 0.5
"""cells go as one if each is at least so dense, compared with the densest: one stream, not two"""

Scored = tuple[tuple[float, ...], Proposal]


class Ours:
    """Carriers first, whole cells next, then the densest."""

    gossips: bool
    forwards = True
    patient = True
    foresees: float | None = 1 - RESERVE

    def __init__(self, gossips: bool) -> None:
        self.gossips = gossips
        self.name = "ours" if gossips else "ours-local"

    def propose(self, view: View) -> Proposal | None:
        """The cheapest move that helps; the largest one if none helps enough, but several together may."""
        if sum(view.free[peer] for peer in self._known(view)) < view.need:
            return None  # to shuffle what little is left would help nobody
        free_moves = list(self._to_carriers(view))
        enough = [m for m in free_moves if m[0][0] >= view.need]
        if enough:
            return max(enough, key=lambda m: m[0][1:])[1]
        passes = list(self._passes(view))
        enough = [m for m in passes if m[0][0] >= view.need]
        if enough:
            return max(enough, key=lambda m: m[0][1:])[1]
        copies = list(self._copies(view))
        best = max(copies, key=lambda m: m[0], default=None)
        if best is not None and best[0][0] >= view.need:
            return best[1]
        every = [*free_moves, *passes, *copies]
        return max(every, key=lambda m: m[0], default=(None, None))[1]

    def foresee(self, view: View) -> Proposal | None:
        """Level with a broker that has much more room, if that needs no new copy.

        Otherwise requests for which no neighbour has room would be refused while there is room two hops away.
        """
        worth = RESERVE * view.budget
        if view.room >= worth:
            return None
        moves = [m for m in (*self._to_carriers(view), *self._passes(view)) if m[0][1] - view.room >= worth]
        return max(moves, key=lambda m: m[0][1:], default=(None, None))[1]

    def _to_carriers(self, view: View) -> Iterator[Scored]:
        """Moves that need no new copy."""
        for attribute, carriers in view.carriers.items():
            loads = summed(view.parts.get(attribute, {}))
            for cell, peers in carriers.items():
                load = loads.get(cell)
                if load is None:
                    continue
                for peer in peers:
                    free = view.free.get(peer, 0)
                    if free <= 0 or (attribute, cell, peer) in view.declined:
                        continue
                    # As much as levels the two, so that neither has to move again soon.
                    moved = min(load.points, free, max(view.need, (free - view.room) // 2))
                    if moved > 0:
                        level = min(view.room + moved, free - moved)
                        yield (
                            (moved, level, free, -cell, -peer),
                            Proposal(attribute, cell, peer, points=moved, cuts=True),
                        )

    def _passes(self, view: View) -> Iterator[Scored]:
        """Replicas that go elsewhere whole."""
        for attribute, holdings in view.holdings.items():
            for cell, held in holdings.items():
                if held.owned or held.path is None or not held.owed:
                    continue
                has = view.has(attribute, cell)
                for peer, free in self._targets(view, attribute):
                    if (
                        peer not in has
                        and free >= held.owed
                        and not view.overlaps(attribute, cell, peer)
                        and (attribute, cell, peer) not in view.declined
                    ):
                        level = min(view.room + held.owed, free - held.owed)
                        score = (held.owed, level, free, -cell, -peer)
                        yield score, Proposal(attribute, cell, peer, passes=True)

    def _copies(self, view: View) -> Iterator[Scored]:
        """New copies, by what they relieve this broker of."""
        for attribute in view.parts:
            targets = self._targets(view, attribute)
            for cell, load in dense_cells(view, attribute).items():
                if load.receivers < 2:
                    continue
                size, has = view.size(cell), view.has(attribute, cell)
                for peer, free in targets:
                    relief = min(load.points, free) - size
                    if (
                        relief > 0
                        and peer not in has
                        and not view.overlaps(attribute, cell, peer)
                        and (attribute, cell, peer) not in view.declined
                    ):
                        yield (relief, free, -cell, -peer), Proposal(attribute, cell, peer, cuts=True)

    def _known(self, view: View) -> set[PeerId]:
        """Brokers that could take something."""
        if self.gossips:
            return view.free.keys() - {view.me}
        near = {peer for peers in view.neighbours.values() for peer in peers}
        near.update(peer for cells in view.carriers.values() for peers in cells.values() for peer in peers)
        return near & view.free.keys()

    def _targets(self, view: View, attribute: int) -> list[tuple[PeerId, int]]:
        known = view.free if self.gossips else view.neighbours.get(attribute, ())
        return [(p, view.free[p]) for p in known if p != view.me and view.free.get(p, 0) > 0]


def dense_cells(view: View, attribute: int) -> dict[int, Load]:
    """Cells that are worth a copy of their own: the finest, and larger ones all of whose parts are about as dense
    as the densest of all."""
    found = dict(view.parts[attribute])
    enough = EVEN * max((load.points / view.size(cell) for cell, load in found.items()), default=0.0)
    level = {cell: load for cell, load in found.items() if load.points >= enough * view.size(cell)}
    while level:
        above: dict[int, Load] = {}
        for cell, low in level.items():
            high = level.get(cell ^ 1)
            if not cell & 1 and high is not None and view.supply(attribute, cell >> 1) is not None:
                above[cell >> 1] = Load(low.points + high.points, max(low.receivers, high.receivers))
        found.update(above)
        level = above
    return found
