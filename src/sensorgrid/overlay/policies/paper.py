"""The paper's replication (multires, section 4.4), and its algorithm 3 to the letter.

Region: every cell whose load, bytes owed to clients per byte of the cell, exceeds 1 is a candidate; the highest load
first. Node: among the neighbours that lie farther from the cell's origin than this broker and do not feed it the cell,
the one with most free bandwidth. All of the region's queries are relocated, so it agrees only if it can serve them all
("without running into an overload situation"). To relocate as many as fit would fill up the first corner broker, which
has no neighbour farther out, and soon has to refuse queries for its own region. So that is done only when no broker
can serve all of any region: "until no suitable configuration can be found".

Differs from Algorithm 3 as printed, which adds a query list to the clients' set, ignores the load and never takes
a leaf; `Literal` keeps to the print, as a baseline: a region qualifies if queries are stored at exactly this cell
and others below it, and nothing under it is looked at.
"""

from collections.abc import Iterator

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.policies.interface import Proposal, Reactive, View


class Paper(Reactive):
    """Load per size; most free neighbour, away from the origin."""

    name = "paper"
    gossips = False
    forwards = False

    def __init__(self, shortest: int = 0) -> None:
        self.shortest = shortest
        """regions have at least so many digits"""

    def propose(self, view: View) -> Proposal | None:
        """The most loaded region for which there is a neighbour."""
        regions = list(self.regions(view))
        for attribute, cell, load in regions:
            target = self.target(view, attribute, cell, load)
            if target is not None:
                return Proposal(attribute, cell, target, whole=True)
        for attribute, cell, load in regions:
            target = self.target(view, attribute, cell, 1)
            if target is not None and min(load, view.free[target]) > view.size(cell):
                return Proposal(attribute, cell, target)
        return None

    def regions(self, view: View) -> Iterator[tuple[int, int, int]]:
        """Candidates and what clients have in them, the highest load(r) first."""
        found = [
            (-load.points / view.size(cell), attribute, cell, load.points)
            for attribute in view.whole
            for cell, load in view.loads(attribute).items()
            if load.points > view.size(cell) and cell.bit_length() > self.shortest
        ]
        return ((attribute, cell, load) for _, attribute, cell, load in sorted(found))

    def target(self, view: View, attribute: int, cell: int, load: int) -> PeerId | None:
        """Section 4.4.2. "Already provides data" means data of this region: excluding every feeder would
        deadlock corner brokers while others have bandwidth free."""
        here = view.distance(attribute, view.me, cell)
        feeders = view.path(attribute, cell)
        fitting = [
            peer
            for peer in view.neighbours.get(attribute, ())
            if view.free.get(peer, 0) >= load
            and peer not in feeders
            and view.distance(attribute, peer, cell) > here
            and (attribute, cell, peer) not in view.declined
        ]
        return max(fitting, key=lambda peer: (view.free[peer], -peer), default=None)


class Literal(Paper):
    """Algorithm 3 as printed."""

    name = "literal"

    def regions(self, view: View) -> Iterator[tuple[int, int, int]]:
        """Cells with a query list and children, from the root down, nothing below them."""
        for attribute, exact in view.whole.items():
            loads = view.loads(attribute)
            for cell in sorted(exact, key=lambda code: (code.bit_length(), code)):
                covered = any(cell >> up in exact for up in range(1, cell.bit_length()))
                if not covered and any(child in loads for child in (cell << 1, cell << 1 | 1)):
                    yield attribute, cell, loads[cell].points
