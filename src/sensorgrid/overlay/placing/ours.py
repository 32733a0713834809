"""Our placement: partial results at the edges, merged on the way, each computed once.

- A stream is named by what it means: an expression and an area. Equal ones of different subscriptions are one.
- Edges filter and compute the partial result of their own sensors, so that what leaves an edge is small.
- An area that lies at up to eight edges has one joint. A larger one merges its four quarters of the map, each a stream
  of its own. Whole cells have the same name in every area that holds them.
- A joint runs at the least loaded of its inputs' nodes and of the first 16 nodes in the paper's order of search that
  stay below nine tenths of the limit with it; then 64, then all. The joint of the whole area is the root, and serves
  the subscriber.
- An overloaded node gives a joint away by the same rule. If it has none that helps, another node takes over the sensors
  of a part of its region, and sends it their partial results.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from zlib import crc32

from sensorgrid.index.zorder import Range
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.placing.demand import Costs, OperatorDemand, PlacingOrder, SensorPlaces, middle_of
from sensorgrid.overlay.placing.line import IdLine, Ranges, joined, within, without
from sensorgrid.overlay.placing.transfers import Name, Step, Transfers

FAN_IN = 8
"""edges of one joint; above, it merges quarters"""
ASKED: tuple[int | None, ...] = (16, 64, None)
"""so many nodes are asked, then so many, then all"""
ROOM = Fraction(9, 10)
"""share of the limit that new joints leave free of nodes"""


@dataclass(frozen=True, slots=True, order=True)
class JointName:
    """Partial results of an expression over an area, whoever computes them."""

    expression: str
    area: Ranges


@dataclass(frozen=True, slots=True, order=True)
class PartName:
    """The part of a stream that one node computes of its own sensors, where others have some of the region's."""

    expression: str
    area: Ranges
    node: PeerId


@dataclass(frozen=True, slots=True, order=True)
class ResultName:
    """What depends on several streams of a subscription."""

    demand: str


def quarters(area: Ranges, digits: int) -> list[Ranges]:
    """An area by quarters of the smallest square cell of the map around it; none if it is one leaf.

    >>> quarters(((0, 4), (6, 9)), 4)
    [((0, 4),), ((6, 8),), ((8, 9),)]
    """
    first, last = area[0][0], area[-1][1] - 1
    bits = (first ^ last).bit_length()
    bits += (digits - bits) & 1  # squares have an even number of digits
    if not bits:
        return []
    width = 1 << bits - 2 if bits > 1 else 1
    base = first >> bits << bits
    found = (within(area, start, start + width) for start in range(base, base + (1 << bits), width))
    return [part for part in found if part]


def least_loaded(
    inputs: Iterable[PeerId], search: Iterator[PeerId], load_with: Callable[[PeerId], int], room: int
) -> tuple[PeerId, list[PeerId]]:
    """Which node takes a step, and who was asked; where nobody has room, the node on which it leaves least load."""
    loads = {node: load_with(node) for node in inputs}
    before = 0
    for count in ASKED:
        loads |= {node: load_with(node) for node in islice(search, None if count is None else count - before)}
        fit = [node for node, load in loads.items() if load <= room]
        if fit:
            return min(fit, key=loads.__getitem__), list(loads)
        before = count or 0
    return min(loads, key=loads.__getitem__), list(loads)


class OurPlacement:
    """Streams of partial results, shared by all subscriptions."""

    def __init__(self, line: IdLine, sensors: SensorPlaces, costs: Costs, balanced: bool = True) -> None:
        self.line, self.sensors, self.costs, self.balanced = line, sensors, costs, balanced
        self.transfers = Transfers(line.nodes)
        self.lookups: list[tuple[PeerId, PeerId]] = []
        self._room = int(costs.limit * ROOM)
        self._held: dict[PeerId, dict[PeerId, Ranges]] = {}
        """by owner of a region, itself first: who has the sensors of which part of it"""
        for node in line.nodes:
            self._held[node] = {node: line.region(node)}
            self.transfers.sense(node, sensors.count(line.region(node)) * costs.publish)

    def add(self, demand: OperatorDemand) -> None:
        """Only what does not run yet begins."""
        streams = tuple(dict.fromkeys(self._stream(term.expression, term.area) for term in demand.terms))
        name: Name = streams[0]
        if len(streams) > 1:
            name = ResultName(demand.name)
            self._joint(name, streams, self._home(JointName(demand.name, demand.terms[0].area)))
        self.lookups.append((self.line.owner(demand.place), self.transfers.steps[name].host))
        self.transfers.deliver(name, 1)

    def remove(self, demand: OperatorDemand) -> None:
        """What nobody else wants ends."""
        name: Name = ResultName(demand.name)
        if name not in self.transfers.steps:
            name = JointName(demand.terms[0].expression, demand.terms[0].area)
        self.transfers.deliver(name, -1)
        self.transfers.release(name)

    def balance(self) -> list[PlacingOrder]:
        """Overloaded nodes one after the other, the most loaded first, until nothing helps any more."""
        orders: list[PlacingOrder] = []
        stuck: set[PeerId] = set()
        load = self.transfers.load
        while self.balanced:
            over = [node for node in load if load[node] > self.costs.limit and node not in stuck]
            if not over:
                break
            node = max(over, key=lambda n: (load[n], -n))
            order = self._give_joint(node) or self._give_sensors(node)
            if order is None:
                stuck.add(node)
            else:
                orders.append(order)
        return orders

    # -- streams

    def _stream(self, expression: str, area: Ranges) -> JointName:
        """The stream of an area, begun if it does not run."""
        name = JointName(expression, area)
        if name in self.transfers.steps:
            return name
        by_node: dict[PeerId, list[Range]] = {}
        for node, part in self.line.pieces(area):
            by_node.setdefault(node, []).append(part)
        if len(by_node) == 1:
            self._edge(name, next(iter(by_node)))
            return name
        parts = (
            [joined(found) for found in by_node.values()]
            if len(by_node) <= FAN_IN
            else quarters(area, self.line.digits)
        )
        self._joint(name, tuple(self._stream(expression, part) for part in parts), self._home(name))
        return name

    def _joint(self, name: Name, inputs: tuple[Name, ...], home: PeerId) -> None:
        """A merge, at home, or at a node with room."""
        transfers = self.transfers
        rate = self.costs.merge.rate(transfers.steps[source].rate for source in inputs)
        transfers.put(name, Step(home, rate, inputs))
        if self.balanced:
            transfers.move(name, self._host(name, home))
        host = transfers.steps[name].host
        self.lookups += [(host, source) for source in transfers.hosts_of(inputs)]

    def _host(self, name: Name, home: PeerId) -> PeerId:
        transfers = self.transfers
        candidates = (home, *transfers.hosts_of(transfers.steps[name].inputs))
        found, asked = least_loaded(
            candidates, self.line.search(home), lambda node: transfers.load_if(name, node), self._room
        )
        self.lookups += [(home, node) for node in asked]
        return found

    def _home(self, name: JointName) -> PeerId:
        """Where it is found by default: a place inside the area that depends on the name."""
        first, last = name.area[0][0], name.area[-1][1]
        # Spelled out: what a class is called must not move anything.
        meaning = f"StreamName(expression={name.expression!r}, area={name.area!r})"
        return self.line.owner(first + crc32(meaning.encode()) % (last - first))

    def _partial(self, area: Ranges) -> int:
        return self.costs.results(self.costs.passing(self.sensors.count(area)))

    def _edge(self, name: JointName, owner: PeerId) -> None:
        """The partial result of an area in one region."""
        self.transfers.put(name, Step(owner, self._partial(name.area)))
        self._spread(name, owner)

    def _spread(self, name: JointName, owner: PeerId) -> None:
        """Each node that has some of the sensors computes their part; the owner of the region merges the parts."""
        held = self._held[owner]
        parts = []
        for node, region in held.items() if len(held) > 1 else ():
            area = joined(part for start, stop in name.area for part in within(region, start, stop))
            if area:
                part = PartName(name.expression, area, node)
                if part not in self.transfers.steps:
                    self.transfers.put(part, Step(node, self._partial(area)))
                parts.append(part)
        before = self.transfers.steps[name].inputs
        self.transfers.rewire(name, tuple(parts))
        for gone in before:
            self.transfers.release(gone)

    # -- relief

    def _give_joint(self, node: PeerId) -> PlacingOrder | None:
        """A joint to a node with room: the smallest that is enough, else the largest."""
        transfers = self.transfers
        excess = transfers.load[node] - self.costs.limit
        weights = {
            name: transfers.load[node] - transfers.load_left(name)
            for name in transfers.at[node]
            if isinstance(name, ResultName) or (isinstance(name, JointName) and self._is_joint(name))
        }
        enough = [name for name, weight in weights.items() if weight >= excess]
        others = [name for name, weight in weights.items() if 0 < weight < excess]
        enough.sort(key=lambda name: (weights[name], repr(name)))
        others.sort(key=lambda name: (-weights[name], repr(name)))
        for name in (*enough, *others):
            target = self._host(name, node)
            if target != node and transfers.load_if(name, target) <= self._room:
                transfers.move(name, target)
                return PlacingOrder("move", name, node, target)
        return None

    def _is_joint(self, name: JointName) -> bool:
        return len({node for node, _ in self.line.pieces(name.area)}) > 1

    def _give_sensors(self, node: PeerId) -> PlacingOrder | None:
        """Half of the sensors of a region to a node with room, or half of that: a replica of that part."""
        transfers, end = self.transfers, 1 << self.line.digits
        mine = [(self.sensors.count(held[node]), owner) for owner, held in self._held.items() if node in held]
        held = self._held[max(mine)[1]]
        owner = next(iter(held))
        streams = [
            name for name in transfers.at[owner] if isinstance(name, JointName) and not self._is_joint(name)
        ]
        given = held[node]
        while (middle := middle_of(self.sensors, given)) is not None:
            given = within(given, middle, end)
            target = self._taker(node, given, streams)
            if target is None:
                continue
            messages = self.sensors.count(given) * self.costs.publish
            held[node] = without(held[node], middle, end)
            held[target] = joined((*held.get(target, ()), *given))
            transfers.sense(node, -messages)
            transfers.sense(target, messages)
            for name in streams:
                self._spread(name, owner)
            return PlacingOrder("region", given, node, target)
        return None

    def _taker(self, node: PeerId, given: Ranges, streams: list[JointName]) -> PeerId | None:
        """Who has room for the sensors of an area, and for their part of some streams."""
        load = self.transfers.load
        if len(load) == 1:
            return None
        more = self.sensors.count(given) * self.costs.publish
        more += sum(
            self._partial(tuple(p for a, b in name.area for p in within(given, a, b))) for name in streams
        )
        target, asked = least_loaded((), self.line.search(node), lambda other: load[other] + more, self._room)
        self.lookups += [(node, other) for other in asked]
        return target if load[target] + more <= self._room else None
