"""Our replication: region and target are chosen together, by replica bytes per byte moved.

The paper takes the densest region first and then whoever is free. But a replica costs its size once and moves as
much as the target can take; a dense leaf for a target that is nearly full is a poor bargain, and a region that the
target has already costs nothing. So every pair is scored by what it costs per byte moved, and the cheapest wins.
Targets need not lie farther out: paths exclude circles, and the nearest corner with room may lie across the origin.

With `gossips` targets are all brokers whose free bandwidth is known; without, the neighbours.
"""

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.policies.interface import Proposal, View


class Ours:
    """The cheapest pair."""

    gossips: bool

    def __init__(self, gossips: bool) -> None:
        self.gossips = gossips
        self.name = "ours" if gossips else "ours-local"

    def propose(self, view: View) -> Proposal | None:
        """The pair with the least replica per byte moved."""
        best: tuple[tuple[float, int, int, int], Proposal] | None = None
        for attribute, loads in view.loads.items():
            targets = self._targets(view, attribute)
            for cell, load in loads.items():
                if load.receivers < 1:
                    continue
                size = view.size(cell)
                feeders = view.path(attribute, cell) or ()
                for peer, free in targets:
                    if peer in feeders or (attribute, cell, peer) in view.declined:
                        continue
                    cost = 0 if view.carries(attribute, cell, peer) else size
                    moved = min(load.points, free)
                    if moved <= cost or (cost and load.receivers < 2):
                        continue
                    score = (cost / moved, -moved, cell, peer)
                    if best is None or score < best[0]:
                        best = score, Proposal(attribute, cell, peer)
        return None if best is None else best[1]

    def _targets(self, view: View, attribute: int) -> list[tuple[PeerId, int]]:
        known = view.free if self.gossips else view.neighbours.get(attribute, ())
        return [
            (peer, view.free.get(peer, 0)) for peer in known if peer != view.me and view.free.get(peer, 0) > 0
        ]
