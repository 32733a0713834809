"""Operators that filter and calculate on the way, placed and moved by four systems (operators, IV: Table I, figures 8
to 13).

A run is a row: 500 nodes and 20,000 sensors at equal intervals, 20 subscriptions that begin one after the other, and
the load of every node when all of them run. What moves is decided by `overlay/placing/`; this module makes the world
and counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from random import Random
from statistics import mean
from typing import Any

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.placing.demand import (
    Costs,
    DemandTerm,
    Merge,
    OperatorDemand,
    PlacementPolicy,
    SensorPlaces,
)
from sensorgrid.overlay.placing.dsm import DomainSpacePlacement
from sensorgrid.overlay.placing.line import IdLine, Ranges
from sensorgrid.overlay.placing.line import joined as area_of
from sensorgrid.overlay.placing.ours import OurPlacement
from sensorgrid.overlay.placing.paper import PaperPlacement
from sensorgrid.overlay.prefixes import PrefixLinks

Row = dict[str, Any]

SYSTEMS = ("paper", "ours", "dsm", "dsm-calc")
AREAS = ("disjoint", "overlapping")
NODES = ("id-space", "geographic")
MERGES = tuple(merge.value for merge in Merge)
RATE_MAX = 100
DIGITS = 20
"""of a place on the line of IDs"""
UNIT = 1000
"""rates are counted in thousandths of a message per second"""
NODES_COUNT, NODES_GRID = 500, (25, 20)
SENSORS_COUNT, SENSORS_GRID = 20_000, (200, 100)
SUBSCRIBERS = 20
THRESHOLD = 500
CALCULATED = Fraction(1, 10)
DISJOINT_DIGITS = 5
"""disjoint areas: 20 of the 32 cells of so many digits"""
LATTICE, SIDE_MAX = 16, 7
"""overlapping areas: boxes on such a lattice, with sides of one up to so many of its squares"""
CURVE = 101
"""points of the curve of loads that a row keeps"""


@dataclass(frozen=True, slots=True)
class OperatorsCase:
    """One run."""

    system: str
    areas: str
    nodes: str
    pub_rate: int
    filter: float
    balanced: bool
    seed: int
    merge: str = "tick"
    """what a merge of partial results gives: see `Merge`"""
    expressions: int = 1
    """subscriptions calculate so many different things, by turns"""

    @property
    def title(self) -> str:
        """For a bar."""
        where = f"{self.system}, {self.areas} areas, {self.nodes}"
        return f"{where}, rate {self.pub_rate}, filter {self.filter:g}, seed {self.seed}"

    def play(self) -> Row:
        """One row."""
        line, sensors, _ = _world(self.nodes)
        policy = self._policy(line, sensors)
        orders: dict[str, int] = {"move": 0, "halve": 0, "region": 0}
        for demand in demands(self.areas, self.expressions, self.seed):
            policy.add(demand)
            for order in policy.balance():
                orders[order.kind] += 1
        hops = [_hops(self.nodes, *pair) for pair in policy.lookups if pair[1] < NODES_COUNT]
        loads = sorted((load / UNIT for load in policy.transfers.load.values()), reverse=True)
        return {
            "system": self.system, "areas": self.areas, "nodes": self.nodes, "pub_rate": self.pub_rate,
            "filter": self.filter, "balanced": self.balanced, "seed": self.seed,
            "peak": loads[0], "over_threshold": sum(load > THRESHOLD for load in loads), "mean": mean(loads),
            "p95": loads[len(loads) // 20], "orders": sum(orders.values()),
            "lookups_mean_hops": sum(hops) / len(hops), "lookups_max_hops": max(hops),
            "merge": self.merge, "expressions": self.expressions, "lookups": len(policy.lookups),
            "halved": orders["halve"], "results_kept": getattr(policy, "results_kept", 1.0),
            "nodes_added": len(loads) - NODES_COUNT, "nodes_idle": loads.count(0),
            "curve": [round(loads[round(k * (len(loads) - 1) / (CURVE - 1))], 1) for k in range(CURVE)],
        }  # fmt: skip

    def _policy(self, line: IdLine, sensors: SensorPlaces) -> PlacementPolicy:
        costs = Costs(
            THRESHOLD * UNIT, self.pub_rate * UNIT, Fraction(str(self.filter)), CALCULATED, Merge(self.merge)
        )
        if self.system == "paper":
            return PaperPlacement(line, sensors, costs, self.balanced)
        if self.system == "ours":
            return OurPlacement(line, sensors, costs, self.balanced)
        return DomainSpacePlacement(line, sensors, costs, self.balanced, self.system == "dsm-calc")


@dataclass(frozen=True, slots=True)
class OperatorsPlan:
    """Which runs."""

    systems: tuple[str, ...] = SYSTEMS
    areas: tuple[str, ...] = AREAS
    nodes: tuple[str, ...] = NODES
    rates: tuple[int, ...] = (1, 3, 4)
    filters: tuple[float, ...] = (0.5, 0.25)
    balanced: tuple[bool, ...] = (False, True)
    merge: str = "tick"
    expressions: int = 1

    def cases(self, seeds: Iterable[int]) -> list[OperatorsCase]:
        """All runs."""
        return [
            OperatorsCase(system, areas, nodes, rate, passed, balanced, seed, self.merge, self.expressions)
            for seed in seeds
            for nodes in self.nodes
            for areas in self.areas
            for rate in self.rates
            for passed in self.filters
            for balanced in self.balanced
            for system in self.systems
        ]


FULL = OperatorsPlan()
QUICK = OperatorsPlan(filters=(0.5,))


def sorted_rows(rows: list[Row]) -> list[Row]:
    """In an order that people can read."""

    def key(row: Row) -> tuple[Any, ...]:
        where = NODES.index(row["nodes"]), AREAS.index(row["areas"])
        return (
            *where,
            row["pub_rate"],
            -row["filter"],
            row["balanced"],
            SYSTEMS.index(row["system"]),
            row["seed"],
        )

    return sorted(rows, key=key)


def demands(areas: str, expressions: int, seed: int) -> list[OperatorDemand]:
    """What subscribers ask for, one after the other; the same for all systems, rates and placements of nodes."""
    rng = Random(f"operators {areas} {seed}")
    if areas == "disjoint":
        width = 1 << DIGITS - DISJOINT_DIGITS
        found: list[Ranges] = [
            ((n * width, (n + 1) * width),) for n in rng.sample(range(1 << DISJOINT_DIGITS), SUBSCRIBERS)
        ]
    else:
        different: dict[Ranges, None] = {}
        while len(different) < SUBSCRIBERS:
            different[_box(rng)] = None
        found = list(different)
    return [
        OperatorDemand(
            f"subscription {n}", rng.randrange(1 << DIGITS), (DemandTerm(f"mean {n % expressions}", area),)
        )
        for n, area in enumerate(found)
    ]


def _box(rng: Random) -> Ranges:
    """A box on the lattice, as ranges of IDs."""
    columns, rows = (rng.randint(1, SIDE_MAX), rng.randint(1, SIDE_MAX))
    left, low = rng.randint(0, LATTICE - columns), rng.randint(0, LATTICE - rows)
    width = (1 << DIGITS) // LATTICE**2
    squares = (
        z_order((left + column + 0.5) / LATTICE, (low + row + 0.5) / LATTICE) // width
        for column in range(columns)
        for row in range(rows)
    )
    return area_of((n * width, (n + 1) * width) for n in squares)


def z_order(x: float, y: float) -> int:
    """ID of a place on the map, from 0 to 1 both ways."""
    half = DIGITS // 2
    column, row = int(x * (1 << half)), int(y * (1 << half))
    return sum((column >> bit & 1) << 2 * bit + 1 | (row >> bit & 1) << 2 * bit for bit in range(half))


def _spread(nodes: str, count: int, grid: tuple[int, int]) -> list[int]:
    """Places at equal intervals, of IDs or on the map."""
    if nodes == "id-space":
        return [(2 * n + 1) * (1 << DIGITS) // (2 * count) for n in range(count)]
    columns, rows = grid
    return sorted(z_order((c + 0.5) / columns, (r + 0.5) / rows) for c in range(columns) for r in range(rows))


@lru_cache(maxsize=len(NODES))
def _world(nodes: str) -> tuple[IdLine, SensorPlaces, PrefixLinks]:
    places = {PeerId(n): place for n, place in enumerate(_spread(nodes, NODES_COUNT, NODES_GRID))}
    sensors = SensorPlaces(tuple(_spread(nodes, SENSORS_COUNT, SENSORS_GRID)))
    return IdLine(places, DIGITS), sensors, PrefixLinks(places, DIGITS)


@lru_cache(maxsize=1 << 18)
def _hops(nodes: str, me: PeerId, to: PeerId) -> int:
    """Of a word from one node to another; what is known of the rest of its way is not looked for again."""
    hop = _world(nodes)[2].next_hop(me, to)
    return 0 if hop is None else 1 + _hops(nodes, hop, to)
