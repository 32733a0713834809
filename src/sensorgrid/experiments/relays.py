"""The evaluation of the relays paper, section 5: how much traffic a strategy saves, and what it does to delays.

Every run drives the product's own brokers and clients in the simulator, over an underlay of routers and links; data
are accounted as flows, entry by entry (`relay_measures.py`). Strategies differ in how brokers are set up and in
nothing else: OFF lets each client have its stream from the gateway itself, DIRECT over the broker next to it, the
others over relays.
"""

import resource
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from sensorgrid.experiments.multires import ExperimentError
from sensorgrid.experiments.relay_measures import CAPACITIES_BPS, Measures
from sensorgrid.experiments.relay_stage import ANY, BY_DELAY, BY_LINKS, RelayStage, Setting, split_topology
from sensorgrid.model.ids import BROKERS_MAX, PeerId, QueryId
from sensorgrid.overlay.policies.interface import Never
from sensorgrid.overlay.policies.relays import NAMES, SAME_S, TREE, Relays
from sensorgrid.overlay.policies.relays import STRATEGIES as RELAYING
from sensorgrid.overlay.roster import Region
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator.audience import Visit, ramp
from sensorgrid.simulator.checkers import brokers_of
from sensorgrid.simulator.topologies import read_topologies
from sensorgrid.simulator.underlay import PLACEMENTS
from sensorgrid.simulator.world import World

Row = dict[str, Any]

STRATEGIES = ("OFF", *NAMES)
LOCAL = tuple(RELAYING)
"""strategies that depend on the neighbourhood and on Δ"""
SAMPLE_S = 5.0
"""how often flows are looked at"""
LOOK_S = 30.0
"""how often every stream's way is looked at"""
CELLS = ("usual", "atoms", "fewest")
"""usual: TREE gets the smallest cells that queries can tell apart, the others the fewest that make up a query"""
BOUND = "bound"
"""the strategy that nobody can follow"""
RAMP_S, RAMP_END_S = 300.0, 360.0
SERVED = (ANY, BY_DELAY, BY_LINKS)
BOUND_TIMES = 4
"""instants at which traffic is compared with the bound"""


@dataclass(frozen=True, slots=True)
class RelaysCase:
    """One run, with strategy "bound" what no run can beat, or with `ramp` a load that grows."""

    setting: dict[str, Any]
    strategy: str
    k: int = 16
    delta: int = 0
    ramp: bool = False
    added_s: float | None = None
    """bound on the delay that a tree may add"""
    same_s: float = SAME_S
    """ways that differ by less are equally long"""
    hops: bool = True
    """whether brokers can know how many links lie between them"""
    cells: str = "usual"
    """how queries are cut: one of `CELLS`"""

    def play(self) -> Row:
        """The case as a row, or the ramp's rows."""
        setting = Setting(**self.setting)
        if self.ramp:
            return {"ramp": list(self._ramp(setting)), **self._names()}
        stage = _stage(setting)
        if self.strategy == BOUND:
            times = bound_times(stage)
            return self._names() | {
                "bounds": {served: sum(stage.bound_at(t, served) for t in times) for served in SERVED}
            }
        begin = time.process_time()
        row = self._names() | self._run(stage).play()
        spent = {"processor_s": time.process_time() - begin, "memory_gib": _memory_gib()}
        return row | spent

    def _run(self, stage: RelayStage) -> "Run":
        return Run(stage, self.strategy, self.k, self.delta, self.added_s, self.same_s, self.hops, self.cells)

    def _ramp(self, setting: Setting) -> Iterator[Row]:
        """Section 5, figure 5: one gateway, queries added over five minutes, bandwidth for half of them unmerged."""
        stage = RelayStage(setting, owners=1)
        visits = ramp(stage.grid, stage.clients, RAMP_S, RAMP_END_S + 1, setting.seed, len(stage.clients))
        run = self._run(stage)
        run.measures.capacity_bps = 0.5 * sum(stage.bps(v.points) for v in visits)
        for at in run.steps(visits, RAMP_END_S):
            if at % 10 == 0:
                yield {
                    "strategy": self.strategy,
                    "time_s": at,
                    "delay_mean_s": run.measures.delay_now_s(),
                    "queries": sum(v.at_s <= at for v in visits),
                }

    @property
    def title(self) -> str:
        """What it is, for people who wait for it."""
        names = self._names()
        what = "ramp, " if self.ramp else ""
        return f"{what}{names['topology']}, {names['placement']}, {self.strategy}, seed {names['seed']}"

    def _names(self) -> Row:
        setting = Setting(**self.setting)
        return {
            "topology": split_topology(setting.topology)[1] or setting.topology,
            "placement": setting.placement,
            "strategy": self.strategy,
            "k": self.k,
            "delta": self.delta,
            "seed": setting.seed,
        }


def _memory_gib() -> float:
    """The most that this process, in which cases may have been played before, has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@lru_cache(maxsize=2)
def _stage(setting: Setting) -> RelayStage:
    return RelayStage(setting)


def bound_times(stage: RelayStage) -> list[float]:
    """Spread over the time after the load has built up."""
    first = 0.25 * stage.until_s
    times = np.linspace(first, stage.until_s, BOUND_TIMES + 1)[1:]
    return [float(t // SAMPLE_S * SAMPLE_S) for t in times]


class Run:
    """One strategy on one stage."""

    def __init__(
        self,
        stage: RelayStage,
        strategy: str,
        k: int,
        delta: int,
        added_s: float | None = None,
        same_s: float = SAME_S,
        hops: bool = True,
        cells: str = "usual",
    ) -> None:
        self.stage = stage
        self.strategy = strategy
        self.atoms = strategy == TREE if cells == "usual" else cells == "atoms"
        self.relays = None
        self.served = BY_LINKS if strategy == TREE and hops else BY_DELAY
        """which broker a client is given; OFF does without"""
        if strategy in NAMES:
            self.relays = Relays(strategy, k=k, delta=delta, added_s=added_s, same_s=same_s)
        self.settings = Settings(
            budget=1 << 40, depth=12, alive_s=None, idle_s=60.0, news_s=5.0, reservation_s=5.0, age_min_s=10.0,
        )  # fmt: skip
        self.world = World(stage.grid, stage.setting.seed, delay_s=stage.delay_s)
        self.world.hops = stage.hops if hops else None
        for number in range(len(stage.brokers)):
            self.world.add_broker(PeerId(number), self.settings, Never, self.relays)
        self.world.assign([Region(0, cell, owner, 1) for cell, owner in stage.owners.items()])
        for number in range(len(stage.clients)):
            # Who knows how many links lie between, as TREE does, chooses the broker next to the client by them.
            target = stage.target_of(number, by_links=self.served == BY_LINKS)
            self.world.add_client(self.settings, (target,), roams=strategy == "OFF")
        self.measures = Measures(self.world, stage)

    def play(self) -> Row:
        """From the first measurement of a delay to the end."""
        for _ in self.steps(self.stage.visits, self.stage.until_s):
            pass
        return self._row()

    def steps(self, visits: list[Visit], until_s: float) -> Iterable[float]:
        """Let queries come and go, and stop after every sample."""
        world = self.world
        for number, visit in enumerate(visits):
            world.after(visit.at_s, partial(self._pose, QueryId(number), visit))
            if visit.until_s < until_s:
                world.after(visit.until_s, partial(self._end, QueryId(number), visit))
        at = SAMPLE_S
        while at <= until_s:
            world.run(until=at)
            self.measures.sample(SAMPLE_S, ways=at % LOOK_S == 0)
            yield at
            at += SAMPLE_S

    def _client(self, visit: Visit) -> PeerId:
        return PeerId(BROKERS_MAX + visit.client)

    def _pose(self, query: QueryId, visit: Visit) -> None:
        cells = visit.cells if self.atoms else None
        self.world.submit(self._client(visit), query, visit.ask, cells=cells)

    def _end(self, query: QueryId, visit: Visit) -> None:
        self.world.cancel(self._client(visit), query)

    def _row(self) -> Row:
        world, stage, found = self.world, self.stage, self.measures
        brokers = brokers_of(world)
        ends = [v for v in stage.visits if v.until_s < stage.until_s]
        events = len(stage.visits) + len(ends)
        switches = sum(b.boards.intake.switches for b in brokers.values())
        messages = sum(
            count
            for b in brokers.values()
            for kind, count in b.kernel.counters.messages.items()
            if kind != "Feed"
        )
        at = {moment: counted for moment, counted, _ in found.history}
        refused = sum(
            world.status(self._client(v), QueryId(n)) in ("refused", "suspended")
            for n, v in enumerate(stage.visits)
        )
        return {
            "traffic_counted": found.mean(1),
            "traffic_all": found.mean(2),
            "stretch": found.stretch,
            "similarity": found.similarity,
            "delay_mean_s": found.delay_mean_s,
            "delay_p95_s": found.delay_p95_s,
            "delays": [asdict(d) for d in found.delays()],
            "tree_changes_per_event": switches / max(events, 1),
            "points_moved_per_event": sum(b.boards.intake.points_moved for b in brokers.values())
            / max(events, 1),
            "messages": messages,
            "fragments": found.fragments,
            "queries": len(stage.visits),
            "refused": refused,
            "double_feeds": found.double_feeds,
            "relays": found.relays,
            "at_bound_times": sum(at[t] for t in bound_times(stage)),
            "served": None if self.strategy == "OFF" else self.served,
        }


@dataclass(frozen=True, slots=True)
class RelaysSweep:
    """Which runs an experiment has."""

    topologies: tuple[str, ...] = ("internet",)
    placements: tuple[str, ...] = ("core", "edge", "full")
    strategies: tuple[str, ...] = STRATEGIES
    ks: tuple[int, ...] = (16,)
    deltas: tuple[int, ...] = (0,)
    brokers: int = 48
    clients: int = 577
    minutes: float = 20.0
    systems: int = 7
    latency: str = ""
    added_s: float | None = None
    same_s: float = SAME_S
    hops: bool = True
    cells: str = "usual"
    ramp: bool = True

    def __post_init__(self) -> None:
        for name, found, known in (
            ("placement", self.placements, tuple(PLACEMENTS)),
            ("strategy", self.strategies, STRATEGIES),
            ("--cells", (self.cells,), CELLS),
        ):
            for value in found:
                if value not in known:
                    raise ExperimentError(f"{name}: found {value!r}, expected some of {', '.join(known)}")
        for option, numbers, least, most in (
            ("--k", self.ks, 1, 10_000),
            ("--delta", self.deltas, 0, 1 << 40),
            ("--brokers", (self.brokers,), 1, 10_000),
            ("--clients", (self.clients,), 1, 1_000_000),
            ("--systems", (self.systems,), 3, 1_000),
            ("--minutes", (self.minutes,), 0.5, 600),
        ):
            for number in numbers:
                if not least <= number <= most:
                    raise ExperimentError(f"{option}: found {number}, expected {least} to {most}")

    def cases(self, seeds: Iterable[int]) -> list[RelaysCase]:
        """All runs, and the bounds that they are compared with; OFF is always among them."""
        found = []
        for seed in seeds:
            for topology in self.topologies:
                # Real networks have no levels: a broker stands anywhere.
                placements = self.placements if topology == "internet" else ("full",)
                for placement in placements:
                    setting = asdict(
                        Setting(
                            topology,
                            placement,
                            self.brokers,
                            self.clients,
                            self.minutes,
                            seed,
                            self.systems,
                            self.latency,
                        )
                    )
                    found.append(RelaysCase(setting, BOUND))
                    found += [
                        self._case(setting, strategy, k, delta)
                        for strategy in ("OFF", *(s for s in self.strategies if s != "OFF"))
                        for k in (self.ks if strategy in LOCAL else self.ks[:1])
                        for delta in (self.deltas if strategy in LOCAL else self.deltas[:1])
                    ]
                    if self.ramp and topology == self.topologies[0] and placement == placements[0]:
                        found += [
                            self._case(setting, s, self.ks[0], self.deltas[0], ramp=True)
                            for s in self.strategies
                        ]
        return found

    def _case(self, setting: Row, strategy: str, k: int, delta: int, ramp: bool = False) -> RelaysCase:
        return RelaysCase(setting, strategy, k, delta, ramp, self.added_s, self.same_s, self.hops, self.cells)


FULL = RelaysSweep()
QUICK = RelaysSweep(brokers=32, clients=240, minutes=4.0)


def joined(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Rows of runs, each compared with OFF and with the bound; and the ramp's rows."""
    found = list(rows)
    ramps = [
        step | {name: row[name] for name in ("topology", "placement", "seed")}
        for row in found
        if "ramp" in row
        for step in row["ramp"]
    ]
    runs = [row for row in found if "ramp" not in row]
    bounds = {_place(r): r["bounds"] for r in runs if r["strategy"] == BOUND}
    off = {_place(r): r["traffic_counted"] for r in runs if r["strategy"] == "OFF"}
    table = []
    for row in runs:
        if row["strategy"] == BOUND:
            continue
        row = dict(row)
        row["reduction"] = 1 - row["traffic_counted"] / off[_place(row)] if off[_place(row)] else 0.0
        bound = bounds[_place(row)]
        row["bound_ratio"] = _ratio(row.pop("at_bound_times"), bound[ANY])
        served = row.pop("served")
        row["target_ratio"] = None if served is None else _ratio(bound[served], bound[ANY])
        table.append(row)
    table.sort(
        key=lambda r: (_place(r), STRATEGIES.index(r["strategy"]), r["k"], r["delta"]),
    )
    ramps.sort(key=lambda r: (r["seed"], STRATEGIES.index(r["strategy"]), r["time_s"]))
    return table, ramps


def _ratio(found: float, bound: float) -> float | None:
    """None: something where nothing is needed."""
    if not bound:
        return None if found else 1.0
    return found / bound


def _place(row: Row) -> tuple[str, str, int]:
    return row["topology"], row["placement"], row["seed"]


def topologies_in(file: Path) -> list[str]:
    """All networks of a file, as `Setting.topology` names them."""
    return [f"{file}:{name}" for name in sorted(read_topologies(file))]


__all__ = [
    "CAPACITIES_BPS",
    "FULL",
    "QUICK",
    "STRATEGIES",
    "RelaysCase",
    "RelaysSweep",
    "Run",
    "joined",
    "topologies_in",
]
