"""How fast brokers and clients turn over queries, and how much memory live ones take.

The worlds are the simulator's, the brokers and clients the product's. Two workloads: queries anywhere (boxes of 1/512
to 1/16 of an axis, 64 brokers), and the paper's small hot spot (16 brokers, every query at the corner of four). One
process, one core; times are processor time.
"""

import resource
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from time import process_time
from typing import Any

import numpy as np

from sensorgrid.benchmarks.workloads import boxes
from sensorgrid.model.errors import QueryError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay.policies.ours import Ours
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator.checkers import brokers_of, leftovers
from sensorgrid.simulator.workloads import HOT_SPOTS, paper_grid, queries
from sensorgrid.simulator.world import World

Row = dict[str, Any]

BROKERS = 64
DEPTH = 10
FULL, QUICK = 100_000, 5_000
"""live queries"""
TURNS_FULL, TURNS_QUICK = 6_000, 1_500
"""queries that come and go"""
ROUNDS = 3


def run(live: int, turns: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """The memory first, as what a process has had it keeps."""
    say(f"{live:,} live queries on {BROKERS} brokers")
    before = _memory()
    world, clients = _world(_everywhere_grid(), BROKERS, DEPTH, seed)
    spent = process_time()
    _fill(world, clients, _everywhere(world.grid, live, seed), say)
    seconds = process_time() - spent
    pieces = sum(len(by) for b in brokers_of(world).values() for by in b.boards.outlets.entries.values())
    rows: list[Row] = [
        {
            "operation": "live",
            "workload": "everywhere",
            "brokers": BROKERS,
            "queries": live,
            "entries": pieces,
            "peak_bytes": _memory(),
            "peak_bytes_before": before,
            "per_second": live / seconds,
        }
    ]
    del world, clients
    for workload in ("everywhere", "hot spot"):
        say(f"queries that come and go, {workload}")
        rates = []
        for _ in range(ROUNDS):
            made = _everywhere_grid() if workload == "everywhere" else paper_grid(4)
            brokers = BROKERS if workload == "everywhere" else 16
            world, clients = _world(made, brokers, DEPTH if brokers == BROKERS else 8, seed)
            asked = (
                _everywhere(made, turns, seed)
                if workload == "everywhere"
                else list(islice(queries(HOT_SPOTS["small"], made, Random(seed)), turns))
            )
            rates.append(_turn_over(world, clients, asked))
        rows.append(
            {
                "operation": "subscribe+cancel",
                "workload": workload,
                "brokers": brokers,
                "queries": turns,
                "per_second": sorted(rates)[len(rates) // 2],
            }
        )
    return rows


def _everywhere_grid() -> Grid:
    return Grid(
        extent=(0, 0, 4096, 4096), coordinates="planar", shape=(4096, 4096), region_digits=6, tick=1.0,
        attributes=("air_temperature",),
    )  # fmt: skip


def _everywhere(grid: Grid, count: int, seed: int) -> list[Query]:
    rng = np.random.default_rng(seed)
    drawn = count + count // 100 + 10
    found = boxes("uniform", drawn, grid, rng)
    resolution = rng.uniform(0.1, 1.0, (drawn, 3))
    asked = (
        Query("air_temperature", (x0, y0, x1, y1), (float(r[0]), float(r[1]), float(r[2])))
        for (x0, x1, y0, y1), r in zip(found.tolist(), resolution, strict=True)
    )
    return [query for query in asked if _holds_a_point(query, grid)][:count]


def _holds_a_point(query: Query, grid: Grid) -> bool:
    """A narrow box at the border may lie between the points of a coarse resolution."""
    try:
        query.box(grid)
    except QueryError:
        return False
    return True


def _world(grid: Grid, brokers: int, depth: int, seed: int) -> tuple[World, list[PeerId]]:
    world = World(grid, seed)
    settings = Settings(budget=1 << 60, depth=depth, alive_s=None, idle_s=1e9)
    world.add_brokers(brokers, settings, lambda: Ours(True))
    world.run(3.0)
    return world, [world.add_client(settings, (PeerId(number),)) for number in range(brokers)]


def _fill(world: World, clients: list[PeerId], asked: list[Query], say: Callable[[str], None]) -> None:
    rng = Random(1)
    for number, ask in enumerate(asked):
        world.submit(rng.choice(clients), QueryId(number), ask)
        if number % 500 == 499:
            world.run(world.now + 1.0)
            say(f"{number + 1:,} live queries on {BROKERS} brokers")
    world.run(world.now + 1.0)
    refused = sum(heard[-1].status != "admitted" for heard in world.replies.values())
    assert not refused, f"{refused} queries were not admitted"


def _turn_over(world: World, clients: list[PeerId], asked: list[Query]) -> float:
    """Queries per second that are posed, admitted, cancelled and forgotten; some are always on their way."""
    rng = Random(1)
    spent = process_time()
    live: list[tuple[PeerId, QueryId]] = []
    for number, ask in enumerate(asked):
        client = rng.choice(clients)
        world.submit(client, QueryId(number), ask)
        live.append((client, QueryId(number)))
        if len(live) == 50:
            world.run(world.now + 0.5)
            for who, query in live:
                assert world.status(who, query) == "admitted", world.replies.get((who, query))
                world.cancel(who, query)
            live.clear()
            world.run(world.now + 0.5)
    seconds = process_time() - spent
    world.run(world.now + 5.0)
    left = [what for what in leftovers(world) if "connections" not in what]
    assert not left, left[:3]
    return len(asked) / seconds


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def summary(rows: list[Row]) -> Iterator[tuple[str, str, str]]:
    """What is asked, what was found, whether it holds."""
    for row in rows:
        if row["operation"] == "live":
            found = (
                f"{row['peak_bytes'] / (1 << 30):.2f} GiB for {row['queries']:,} ({row['entries']:,} entries)"
            )
            held = "yes" if row["peak_bytes"] < 2 << 30 else "no"
            yield (
                "100,000 live queries in less than 2 GiB",
                found,
                held if row["queries"] >= FULL else "not with --quick",
            )
        else:
            found = f"{row['per_second']:,.0f} per second, {row['workload']}, {row['brokers']} brokers"
            yield "subscribe + cancel, 2,000 per second", found, "yes" if row["per_second"] >= 2000 else "no"
