"""The evaluation of multires, section 5: how much load, at what cost, until the first query is refused.

Sixteen brokers own a sixteenth of the area each and have bandwidth for 25 times their region. Queries gather around
a hot spot and are posed one after another, each to a broker at random, until one is refused. Every run drives the
product's own brokers and clients in the simulator; data are accounted as flows.

Loads are in worlds: the bandwidth of the whole area at full resolution is 1, so at most 25 can be served.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from math import isfinite
from random import Random
from typing import Any

from sensorgrid.experiments.bounds import Method, load_bound, replication_bound
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay.policies.interface import Policy
from sensorgrid.overlay.policies.ours import Ours
from sensorgrid.overlay.policies.paper import Literal, Paper
from sensorgrid.overlay.session import Session
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator.checkers import brokers_of, levels
from sensorgrid.simulator.workloads import HOT_SPOTS, paper_grid, queries
from sensorgrid.simulator.world import World

Row = dict[str, Any]

BROKERS = 16
FOLD = 25
"""bandwidth of a broker, in regions"""
POLICIES = ("paper", "literal", "ours-local", "ours")
MARKS = (5, 10, 15, 20)
"""loads at which replication is noted"""
FLOW_DEPTH_MAX = 8
"""deeper, the flow bound takes long and says the same as the knapsack"""
PATIENCE_S = 30.0
"""simulated seconds after which a query without an answer counts as refused"""
MOVES = ("Offer", "Answer", "Moving", "Redirect", "Want", "Leave")
"""messages of brokers that establish, change and end replicas"""


class ExperimentError(SensorGridError, ValueError):
    """An experiment that cannot be run."""


@dataclass(frozen=True, slots=True)
class MultiresCase:
    """One run, or with policy "bound" what no run can beat."""

    hotspot: str
    dims: int
    depth: int
    policy: str
    seed: int

    def play(self) -> Row:
        """The case as a row."""
        return asdict(self) | (_bounds(self) if self.policy == "bound" else _run(self))


def policy_of(name: str) -> Policy:
    """The policy that a table calls so."""
    made: dict[str, Policy] = {
        "paper": Paper(),
        "literal": Literal(),
        "ours-local": Ours(False),
        "ours": Ours(True),
    }
    if name not in made:
        raise ExperimentError(f"policy: found {name!r}, expected one of {', '.join(made)}")
    return made[name]


@dataclass(frozen=True, slots=True)
class MultiresSweep:
    """Which runs an experiment has."""

    hotspots: tuple[str, ...] = ("large", "small", "single")
    dims: tuple[int, ...] = (2, 3, 4, 5)
    depths: tuple[int, ...] = tuple(range(4, 13))
    policies: tuple[str, ...] = POLICIES

    def __post_init__(self) -> None:
        for name, found, known in (
            ("hot spot", self.hotspots, tuple(HOT_SPOTS)),
            ("dimensions", self.dims, (2, 3, 4, 5)),
            ("depth", self.depths, tuple(range(4, 13))),
            ("policy", self.policies, POLICIES),
        ):
            for value in found:
                if value not in known:
                    raise ExperimentError(
                        f"{name}: found {value!r}, expected some of {', '.join(map(str, known))}"
                    )

    def cases(self, seeds: Iterable[int]) -> list[MultiresCase]:
        """All runs, the longest first, and the bounds that they are compared with."""
        return [
            MultiresCase(hotspot, dims, depth, policy, seed)
            for seed in seeds
            for depth in sorted(self.depths, reverse=True)
            for hotspot in sorted(self.hotspots, key=lambda name: name == "large")
            for dims in sorted(self.dims, reverse=True)
            for policy in ("bound", *self.policies)
        ]


FULL = MultiresSweep()
QUICK = MultiresSweep(hotspots=("large",), dims=(2, 4), depths=(8, 10))


def joined(rows: Iterable[Row]) -> list[Row]:
    """Rows of runs, each with its bounds: the table."""
    found = list(rows)
    bounds = {(r["hotspot"], r["dims"], r["depth"], r["seed"]): r for r in found if r["policy"] == "bound"}
    table = []
    for row in found:
        if row["policy"] != "bound":
            bound = bounds[row["hotspot"], row["dims"], row["depth"], row["seed"]]
            table.append(row | {k: v for k, v in bound.items() if "bound" in k})
    order = {name: i for i, name in enumerate((*HOT_SPOTS, *POLICIES))}
    return sorted(
        table, key=lambda r: (order[r["hotspot"]], r["dims"], r["depth"], order[r["policy"]], r["seed"])
    )


def _questions(case: MultiresCase, grid: Grid) -> Iterator[Query]:
    return queries(HOT_SPOTS[case.hotspot], grid, Random(f"{case.hotspot} {case.seed}"))


def _bounds(case: MultiresCase) -> Row:
    grid = paper_grid(case.dims)
    method: Method = "flow" if case.depth <= FLOW_DEPTH_MAX else "knapsack"
    row: Row = {"load_bound": load_bound(_questions(case, grid), grid, case.depth, FOLD, method)}
    for mark in (15, 20):
        least = replication_bound(_questions(case, grid), grid, case.depth, mark, FOLD, method)
        row[f"replication_bound_at_{mark}"] = least if isfinite(least) else None
    return row


def build(grid: Grid, depth: int, policy: str, seed: int) -> World:
    """Sixteen brokers that know their neighbours."""
    world = World(grid, seed)
    world.add_brokers(BROKERS, settings_of(grid, depth), lambda: policy_of(policy))
    world.run(3.0)
    return world


def settings_of(grid: Grid, depth: int) -> Settings:
    """Brokers as in section 5; connections never break here, so nobody asks whether they live."""
    return Settings(budget=FOLD * grid.points_per_period // BROKERS, depth=depth, alive_s=None, idle_s=1e9)


def _run(case: MultiresCase) -> Row:
    grid = paper_grid(case.dims)
    world = build(grid, case.depth, case.policy, case.seed)
    settings, rng = settings_of(grid, case.depth), Random(f"entries {case.seed}")
    # One client program per broker poses the queries of all users there: connections are not what is measured.
    clients = [world.add_client(settings, (PeerId(number),)) for number in range(BROKERS)]
    total, load, posed = grid.points_per_period, 0, 0
    row: Row = {f"{what}_at_{mark}": None for mark in MARKS for what in ("replication", "connections")}
    for number, ask in enumerate(_questions(case, grid)):
        client, query = clients[rng.randrange(BROKERS)], QueryId(number)
        world.submit(client, query, ask)
        world.run(world.now + PATIENCE_S, stop=lambda c=client, q=query: (c, q) in world.replies)  # type: ignore[misc]
        if world.status(client, query) != "admitted":
            break
        session = world.nodes[client].actor
        assert isinstance(session, Session)
        load += sum(piece.points for piece in session.queries[query].pieces)
        posed += 1
        for mark in MARKS:
            if load >= mark * total and row[f"replication_at_{mark}"] is None:
                row[f"replication_at_{mark}"] = replication(world) / total
                row[f"connections_at_{mark}"] = connections(world) / BROKERS
    spent = replication(world)
    kinds = [broker.kernel.counters.messages for broker in brokers_of(world).values()]
    return row | {
        "load": load / total,
        "replication_share": spent / (spent + load),
        "connections_per_broker": connections(world) / BROKERS,
        "messages": sum(by.get(kind, 0) for by in kinds for kind in MOVES),
        "news": sum(by.get("News", 0) for by in kinds),
        "queries": posed,
        "delegations": sum(b.kernel.counters.delegations for b in brokers_of(world).values()),
        "levels": levels(world),
    }


def replication(world: World) -> int:
    """Points per period that brokers send to brokers."""
    return sum(entry.size for entry in _between_brokers(world))


def connections(world: World) -> int:
    """Streams between brokers."""
    return sum(1 for _ in _between_brokers(world))


def _between_brokers(world: World) -> Iterator[Any]:
    brokers = brokers_of(world)
    return chain.from_iterable(
        entries.values()
        for broker in brokers.values()
        for peer, entries in broker.boards.outlets.entries.items()
        if peer in brokers
    )
