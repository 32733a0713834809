"""DSM-Pub/Sub, the baseline of the paper's evaluation (operators, II and IV): domain space mapping over the same IDs.

A binary tree over the nodes: half of them are leaves, and each leaf has the sensors of two nodes. Leaves filter what
subscribers want and send it straight to the node of the subscriber, the root. With calculation, leaves also calculate,
and the root merges. An overloaded leaf gives half of its area to a node that is added for it. Nothing relieves a root.
"""

from dataclasses import dataclass

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.placing.demand import Costs, OperatorDemand, PlacingOrder, SensorPlaces, middle_of
from sensorgrid.overlay.placing.line import IdLine, Ranges, joined, within, without
from sensorgrid.overlay.placing.transfers import Step, Transfers


@dataclass(frozen=True, slots=True, order=True)
class LeafName:
    """What a leaf does for one term of a subscription."""

    demand: str
    term: int
    node: PeerId
    area: Ranges


class DomainSpacePlacement:
    """Leaves and roots."""

    def __init__(
        self,
        line: IdLine,
        sensors: SensorPlaces,
        costs: Costs,
        balanced: bool = True,
        calculates: bool = False,
    ) -> None:
        self.line, self.sensors, self.costs = line, sensors, costs
        self.balanced, self.calculates = balanced, calculates
        self.transfers = Transfers(line.nodes)
        self.lookups: list[tuple[PeerId, PeerId]] = []
        self.added = 0
        """nodes that had to be added"""
        self._regions: dict[PeerId, Ranges] = {}
        """of leaves"""
        nodes = line.nodes
        for first, second in zip(nodes[::2], [*nodes[1::2], None], strict=False):
            both = (first,) if second is None else (first, second)
            self._regions[first] = joined(part for node in both for part in line.region(node))
            self.transfers.sense(first, sensors.count(self._regions[first]) * costs.publish)

    def add(self, demand: OperatorDemand) -> None:
        """Leaves send to the root."""
        root = self.line.owner(demand.place)
        leaves = []
        for number, term in enumerate(demand.terms):
            for node, region in self._regions.items():
                area = tuple(part for start, stop in term.area for part in within(region, start, stop))
                if area:
                    leaves.append(self._leaf(LeafName(demand.name, number, node, area)))
                    self.lookups.append((root, node))
        self.transfers.put(demand.name, Step(root, 0, tuple(leaves), delivered=1))
        self._rate(demand.name)

    def remove(self, demand: OperatorDemand) -> None:
        """Its root and leaves end."""
        self.transfers.deliver(demand.name, -1)
        self.transfers.release(demand.name)

    def balance(self) -> list[PlacingOrder]:
        """Overloaded leaves are halved, where that can help."""
        orders: list[PlacingOrder] = []
        transfers, limit = self.transfers, self.costs.limit
        waiting = [node for node in transfers.load if transfers.load[node] > limit] if self.balanced else []
        while waiting:
            node = waiting.pop()
            while transfers.load[node] > limit > self._as_root(node) and (order := self._divide(node)):
                orders.append(order)
                waiting.append(order.target)
        return orders

    def _leaf(self, name: LeafName) -> LeafName:
        passing = self.costs.passing(self.sensors.count(name.area))
        self.transfers.put(name, Step(name.node, self.costs.results(passing) if self.calculates else passing))
        return name

    def _rate(self, root: str) -> None:
        rates = [self.transfers.steps[source].rate for source in self.transfers.steps[root].inputs]
        self.transfers.rerate(root, self.costs.merge.rate(rates) if self.calculates else sum(rates))

    def _as_root(self, node: PeerId) -> int:
        steps = self.transfers.steps
        roots = [steps[name] for name in self.transfers.at[node] if isinstance(name, str)]
        received = sum(steps[n].rate for root in roots for n in root.inputs if steps[n].host != node)
        return received + sum(root.rate for root in roots)

    def _divide(self, node: PeerId) -> PlacingOrder | None:
        """Half of a leaf's area to a node that is added."""
        region = self._regions.get(node, ())
        middle = middle_of(self.sensors, region)
        if middle is None:
            return None
        new = PeerId(max(self.transfers.load) + 1)
        self.added += 1
        self.transfers.enter(new)
        end = 1 << self.line.digits
        given = within(region, middle, end)
        self._regions[node], self._regions[new] = without(region, middle, end), given
        messages = self.sensors.count(given) * self.costs.publish
        self.transfers.sense(node, -messages)
        self.transfers.sense(new, messages)
        for name in [name for name in self.transfers.at[node] if isinstance(name, LeafName)]:
            halves = [
                LeafName(name.demand, name.term, host, area)
                for host, area in (
                    (node, without(name.area, middle, end)),
                    (new, within(name.area, middle, end)),
                )
                if area
            ]
            if halves == [name]:
                continue
            for half in halves:
                self._leaf(half)
            inputs = self.transfers.steps[name.demand].inputs
            self.transfers.rewire(name.demand, (*(n for n in inputs if n != name), *halves))
            self.transfers.drop(name)
            self._rate(name.demand)
        return PlacingOrder("region", given, node, new)
