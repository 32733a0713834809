"""The paper's placement: three-step trees, and operators that move away from overloaded joints (operators, III-B).

*Initial placement* (Figure 5). The node of the subscriber's place is the root. Each range of IDs of the area gets a
joint: the first node above the range that is not overloaded. Filters run at the edges, calculations at the joints. What
depends on several calculations runs where all of them are, else at the root.

*Reallocation* (Figures 6 and 7). An overloaded joint hands a calculation over to the first node in the order of
`IdLine.search` that stays within the limit with it. A calculation that fits nowhere is cut in two by cell first.

*Root rule*. An overloaded root has the joint that sends most to it send half as much. It is used only where that can
help: where the node is within the limit without what it does as a root.

The paper has no rule for overloaded edges. It asks candidates one by one; whoever is asked here knows what is needed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sensorgrid.index.zorder import Range
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.placing.demand import Costs, OperatorDemand, PlacingOrder, SensorPlaces
from sensorgrid.overlay.placing.line import IdLine, roundest
from sensorgrid.overlay.placing.transfers import Step, Transfers


@dataclass(frozen=True, slots=True, order=True)
class FilterName:
    """A filter at an edge, for one joint."""

    demand: str
    term: int
    node: PeerId
    part: Range


@dataclass(frozen=True, slots=True, order=True)
class CalculationName:
    """A calculation at a joint, over a range of IDs."""

    demand: str
    term: int
    part: Range


@dataclass(frozen=True, slots=True, order=True)
class DependentName:
    """What depends on all calculations of a subscription."""

    demand: str


@dataclass(frozen=True, slots=True, order=True)
class RootName:
    """What hands results to the subscriber."""

    demand: str


class PaperPlacement:
    """Transfer trees as the paper builds and reallocates them."""

    def __init__(self, line: IdLine, sensors: SensorPlaces, costs: Costs, balanced: bool = True) -> None:
        self.line, self.sensors, self.costs, self.balanced = line, sensors, costs, balanced
        self.transfers = Transfers(line.nodes)
        self.lookups: list[tuple[PeerId, PeerId]] = []
        self._root: dict[str, PeerId] = {}
        self._halved: dict[CalculationName, int] = {}
        """calculations that were told to give half as much, and how often"""
        self._calculations: dict[str, dict[CalculationName, None]] = {}
        """by subscription"""
        self._left: set[tuple[CalculationName, PeerId]] = set()
        """what has gone from which node, so that it does not come back before something begins or ends"""
        for node in line.nodes:
            self.transfers.sense(node, sensors.count(line.region(node)) * costs.publish)

    def add(self, demand: OperatorDemand) -> None:
        """Filters at the edges, calculations at joints, the rest at the root."""
        self._left.clear()
        root = self._root[demand.name] = self.line.owner(demand.place)
        found = self._calculations[demand.name] = {}
        for number, term in enumerate(demand.terms):
            for part in term.area:
                joint = self._first_joint(part)
                self.lookups.append((root, joint))
                name = CalculationName(demand.name, number, part)
                self._begin(name, joint)
                found[name] = None
        dependent, last = DependentName(demand.name), RootName(demand.name)
        self.transfers.put(dependent, Step(root, 0, tuple(found)))
        self.transfers.put(last, Step(root, 0, (dependent,), delivered=1))
        self._settle(demand.name)

    def remove(self, demand: OperatorDemand) -> None:
        """All of its steps end."""
        self._left.clear()
        self.transfers.deliver(RootName(demand.name), -1)
        self.transfers.release(RootName(demand.name))
        for name in self._calculations.pop(demand.name):
            self._halved.pop(name, None)
        del self._root[demand.name]

    def balance(self) -> list[PlacingOrder]:
        """Overloaded nodes one after the other, the most loaded first, until no rule applies any more."""
        orders: list[PlacingOrder] = []
        stuck: set[PeerId] = set()
        load = self.transfers.load
        while self.balanced:
            over = [node for node in load if load[node] > self.costs.limit and node not in stuck]
            if not over:
                break
            node = max(over, key=lambda n: (load[n], -n))
            order = self._hand_over(node) or self._halve(node)
            if order is None:
                stuck.add(node)
            else:
                orders.append(order)
                stuck.clear()  # it may have made room for others
        return orders

    @property
    def results_kept(self) -> float:
        """Share of the results of calculations that the root rule has left."""
        steps = self.transfers.steps
        names = [name for found in self._calculations.values() for name in found]
        whole = sum(self.costs.results(sum(steps[s].rate for s in steps[name].inputs)) for name in names)
        return sum(steps[name].rate for name in names) / whole if whole else 1.0

    # -- initial placement

    def _first_joint(self, part: Range) -> PeerId:
        """The first node above a range; with balancing, the first that is not overloaded."""
        load = self.transfers.load
        above = list(self.line.from_id(part[1]))
        fit = (node for node in above if load[node] < self.costs.limit)
        return next(fit, above[0]) if self.balanced else above[0]

    def _begin(self, name: CalculationName, joint: PeerId) -> None:
        """A calculation, with filters at all edges of its range."""
        filters = []
        for node, part in self.line.pieces((name.part,)):
            source = FilterName(name.demand, name.term, node, part)
            self.transfers.put(source, Step(node, self.costs.passing(self.sensors.count((part,)))))
            self.lookups.append((joint, node))
            filters.append(source)
        self.transfers.put(name, Step(joint, 0, tuple(filters)))
        self._rate(name)

    def _rate(self, name: CalculationName) -> None:
        given = sum(self.transfers.steps[source].rate for source in self.transfers.steps[name].inputs)
        self.transfers.rerate(name, self.costs.results(given) >> self._halved.get(name, 0))

    def _settle(self, demand: str) -> None:
        """What depends on several calculations runs where all of them are, or at the root (Figure 7)."""
        transfers, calculations = self.transfers, tuple(self._calculations[demand])
        dependent, last = DependentName(demand), RootName(demand)
        hosts = transfers.hosts_of(calculations)
        transfers.rewire(dependent, calculations)
        transfers.move(dependent, hosts[0] if len(hosts) == 1 else self._root[demand])
        rate = self.costs.merge.rate(transfers.steps[name].rate for name in calculations)
        transfers.rerate(dependent, rate)
        transfers.rerate(last, rate)

    # -- reallocation

    def _hand_over(self, node: PeerId) -> PlacingOrder | None:
        """One calculation to another node."""
        tried: set[CalculationName] = set()
        while True:
            name = self._chosen(node, tried)
            if name is None:
                return None
            target = self._taker(node, name)
            if target is not None:
                self.transfers.move(name, target)
                self._left.add((name, node))
                self._settle(name.demand)
                for source in self.transfers.steps[name].inputs:
                    self.lookups.append((target, self.transfers.steps[source].host))
                return PlacingOrder("move", name, node, target)
            if not self._cut(name):
                tried.add(name)

    def _chosen(self, node: PeerId, tried: Iterable[CalculationName]) -> CalculationName | None:
        """The smallest that is enough, else the largest."""
        transfers = self.transfers
        weights = {
            name: transfers.load[node] - transfers.load_left(name)
            for name in transfers.at[node]
            if isinstance(name, CalculationName) and name not in tried
        }
        weights = {name: weight for name, weight in weights.items() if weight > 0}
        excess = transfers.load[node] - self.costs.limit
        enough = {name: weight for name, weight in weights.items() if weight >= excess}
        if enough:
            return min(enough, key=lambda name: (enough[name], name))
        return max(weights, key=lambda name: (weights[name], name), default=None)

    def _taker(self, node: PeerId, name: CalculationName) -> PeerId | None:
        """The first in the order of search that stays within the limit."""
        transfers, limit = self.transfers, self.costs.limit
        step = transfers.steps[name]
        local: dict[PeerId, int] = {}
        for source in step.inputs:
            given = transfers.steps[source]
            local[given.host] = local.get(given.host, 0) + given.rate
        received = sum(local.values())
        if received - max(local.values(), default=0) > limit:
            return None  # fits nowhere, whatever part of it is already there
        for candidate in self.line.search(node):
            if (name, candidate) in self._left:
                continue
            self.lookups.append((node, candidate))
            at_least = transfers.load[candidate] + received - 2 * local.get(candidate, 0) - step.rate
            if at_least <= limit and transfers.load_if(name, candidate) <= limit:
                return candidate
        return None

    def _cut(self, name: CalculationName) -> bool:
        """Two calculations of one, by cell; both stay where it was."""
        start, stop = name.part
        if len(self.line.pieces((name.part,))) < 2:
            return False
        middle = roundest(start + 1, stop)
        joint = self.transfers.steps[name].host
        halves = [CalculationName(name.demand, name.term, part) for part in ((start, middle), (middle, stop))]
        found, halved = self._calculations[name.demand], self._halved.pop(name, 0)
        del found[name]
        known = len(self.lookups)
        sources = self.transfers.steps[name].inputs
        self.transfers.rewire(DependentName(name.demand), tuple(found))
        self.transfers.drop(name)
        for source in sources:
            self.transfers.drop(source)
        for half in halves:
            if halved:
                self._halved[half] = halved
            self._begin(half, joint)
            found[half] = None
        del self.lookups[known:]  # all of them are known to the joint
        self._settle(name.demand)
        return True

    # -- the root rule

    def _halve(self, node: PeerId) -> PlacingOrder | None:
        """The joint that sends most to this root sends half as much."""
        transfers = self.transfers
        at_root = [name for name in transfers.at[node] if isinstance(name, RootName)]
        if (
            transfers.load[node] - sum(self._as_root(node, name.demand) for name in at_root)
            >= self.costs.limit
        ):
            return None
        sent = {
            name: transfers.steps[name].rate
            for root in at_root
            for name in self._calculations[root.demand]
            if transfers.steps[name].host != node
        }
        most = max(sent, key=lambda name: (sent[name], name), default=None)
        if most is None or sent[most] < 2:
            return None
        self._halved[most] = self._halved.get(most, 0) + 1
        self._rate(most)
        self._settle(most.demand)
        return PlacingOrder("halve", most, transfers.steps[most].host, transfers.steps[most].host)

    def _as_root(self, node: PeerId, demand: str) -> int:
        """Messages of a node as the root of a subscription."""
        steps = self.transfers.steps
        dependent, last = steps[DependentName(demand)], steps[RootName(demand)]
        received: Iterator[int] = iter((dependent.rate,) if dependent.host != node else ())
        if dependent.host == node:
            received = (steps[source].rate for source in dependent.inputs if steps[source].host != node)
        return sum(received) + last.rate
