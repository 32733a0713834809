"""What a run of the relays experiment is judged by, read off the brokers' own state.

Traffic: points per period of every entry that is fed, times the links that it crosses. *Counted* are the links
between core and gateway routers, as in the paper: those to brokers are dedicated, those to clients cannot be
optimised. *All* are all links of routers and both accesses.

Delay of a query: from the tick to the moment when the last of its pieces is at the client's line, over the brokers that
its streams pass. On each leg: propagation, and transmission and queueing at the sending broker's uplink. All blocks of
a tick are due at once and go out in any order, so the last of n blocks of a query has n / (n + 1) of all that the
broker sends in the tick before it, its own among it; what a broker cannot send in a tick is left for the next, and
grows without end if it owes more than it can send. The client's own line is the same for all strategies and left out.
"""

from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from sensorgrid.experiments.relay_stage import RelayStage
from sensorgrid.model.ids import BROKERS_MAX, PeerId
from sensorgrid.overlay.messages import Path
from sensorgrid.simulator.checkers import brokers_of, sessions_of
from sensorgrid.simulator.world import World

Floats = npt.NDArray[np.float64]

CAPACITY_BPS = 1e9
"""of a broker's uplink, unless said otherwise"""
CAPACITIES_BPS = (4e9, 2e9, 1e9, 0.5e9)
"""at which delays are told"""
TICK_S = 1.0
PAIRS_MAX = 200
"""of merged streams whose ways are compared at one look"""


@dataclass(frozen=True, slots=True)
class Delay:
    """User-perceived delay at one capacity of the uplinks."""

    capacity_bps: float
    mean_s: float
    p95_s: float


class Measures:
    """Of one run, sample by sample."""

    def __init__(self, world: World, stage: RelayStage) -> None:
        self.world = world
        self.stage = stage
        self.capacity_bps = CAPACITY_BPS
        self.history: list[tuple[float, float, float]] = []
        """(time, counted, all)"""
        self.double_feeds = 0.0
        """points per period that receivers get twice while they switch, on average"""
        self.relays = 0.0
        """brokers that pass on what they take, on average: (broker, cell) with a receiving broker"""
        self._owed: Floats = np.zeros(len(stage.brokers))
        self._backlog: dict[float, Floats] = {}
        self._found: dict[float, list[float]] = {}
        self._stretch = [0.0, 0.0]
        self._similar: list[float] = []
        self._fragments: list[float] = []

    # -- every sample

    def sample(self, elapsed_s: float, ways: bool) -> None:
        """Look at flows; and at every stream's way if asked to."""
        flows = self.flows()
        stage = self.stage
        if not flows:
            self.history.append((self.world.now, 0.0, 0.0))
            return
        pairs = np.array(list(flows), dtype=np.int64)
        places = np.where(pairs >= BROKERS_MAX, pairs - BROKERS_MAX + len(stage.brokers), pairs)
        points = np.array(list(flows.values()), dtype=np.float64)
        a, b = stage.routers[places[:, 0]], stage.routers[places[:, 1]]
        counted = float((points * stage.underlay.counted[a, b]).sum())
        every = float((points * (stage.underlay.hops[a, b] + 2)).sum())
        self.history.append((self.world.now, counted, every))
        owed = np.bincount(places[:, 0], points, minlength=len(stage.brokers))
        self._owed = (stage.bps(1.0) * owed).astype(np.float64)
        for capacity in {self.capacity_bps, *CAPACITIES_BPS}:
            before = self._backlog.get(capacity, np.zeros(len(stage.brokers)))
            self._backlog[capacity] = np.maximum(0.0, before + (self._owed - capacity) * elapsed_s)
        if ways:
            self._look()

    def flows(self) -> dict[tuple[PeerId, PeerId], int]:
        """Points per period by (from, to), of all entries that are fed."""
        found: dict[tuple[PeerId, PeerId], int] = {}
        for peer, broker in brokers_of(self.world).items():
            for receiver, entries in broker.boards.outlets.entries.items():
                points = sum(entry.size for entry in entries.values() if entry.granted)
                if points:
                    found[peer, receiver] = points
        return found

    def link_traffic(self) -> Floats:
        """Points per period on every directed link of routers, now."""
        stage = self.stage
        found = np.zeros(len(stage.underlay.arcs))
        for (a, b), points in self.flows().items():
            found[stage.underlay.path(stage.router(a), stage.router(b))] += points
        return found

    def mean(self, column: int) -> float:
        """Of counted (1) or all (2) traffic."""
        return float(np.mean([row[column] for row in self.history]))

    # -- every look

    def _bursts(self, capacity: float) -> tuple[Floats, Floats]:
        """At each broker's uplink: how long it sends what is due at a tick, and what is left from ticks before."""
        backlog = self._backlog.get(capacity, np.zeros(len(self._owed)))
        return TICK_S * np.minimum(1.0, self._owed / capacity), backlog / capacity

    def _look(self) -> None:
        self._ways()
        self._broker_streams()

    def _ways(self) -> None:
        """Delays and stretch of all queries that are served."""
        stage = self.stage
        waits = {c: self._bursts(c) for c in {self.capacity_bps, *CAPACITIES_BPS}}
        for client, session in sessions_of(self.world).items():
            for standing in session.queries.values():
                if not standing.admitted:
                    continue
                worst = dict.fromkeys(waits, 0.0)
                together: dict[Path, list[int]] = {}
                for piece in standing.pieces:
                    if piece.path is not None:
                        together.setdefault(piece.path, []).append(piece.points)
                for path, points in together.items():
                    legs = list(pairwise((*path, client)))
                    far = sum(stage.delay_s(a, b) for a, b in legs)
                    last = len(points) / (len(points) + 1)
                    for capacity, (burst, left) in waits.items():
                        delay = far + sum(last * float(burst[a]) + float(left[a]) for a, _ in legs)
                        worst[capacity] = max(worst[capacity], delay)
                    direct = stage.hops(path[0], client)
                    if direct:
                        self._stretch[0] += sum(points) * sum(stage.hops(a, b) for a, b in legs) / direct
                        self._stretch[1] += sum(points)
                for capacity, delay in worst.items():
                    self._found.setdefault(capacity, []).append(delay)

    def _broker_streams(self) -> None:
        """Fragments, relays, double feeds, and how similar the ways of merged streams are."""
        brokers = brokers_of(self.world)
        entries = relays = 0
        double = 0
        merged: list[tuple[PeerId, PeerId, PeerId]] = []
        for peer, broker in brokers.items():
            outlets = broker.boards.outlets
            for supplies in outlets.supplies.values():
                for supply in supplies.values():
                    takers = sorted({e.peer for e in supply.entries.values() if e.of_broker and e.granted})
                    entries += sum(e.of_broker for e in supply.entries.values())
                    if supply.piece is None:
                        continue
                    if supply.piece.feed is not None and supply.piece.trial is not None:
                        double += supply.piece.points if supply.piece.trial.path is not None else 0
                    relays += bool(takers)
                    if supply.piece.feed is not None:
                        served = (
                            (*takers, peer)
                            if any(not e.of_broker for e in supply.entries.values())
                            else takers
                        )
                        merged += [(supply.piece.feed.peer, a, b) for a, b in combinations(served, 2)]
        live = sum(len(s.queries) for s in sessions_of(self.world).values())
        self._fragments.append(entries / max(live, 1))
        looks = len(self._fragments)
        self.relays += (relays - self.relays) / looks
        self.double_feeds += (double - self.double_feeds) / looks
        step = max(1, len(merged) // PAIRS_MAX)
        self._similar += [self._similarity(*pair) for pair in merged[::step]]

    def _similarity(self, source: PeerId, a: PeerId, b: PeerId) -> float:
        """Of the direct ways to two receivers of a merged stream: links in common (section 4, sim)."""
        stage = self.stage
        one = stage.underlay.path(stage.router(source), stage.router(a))
        other = stage.underlay.path(stage.router(source), stage.router(b))
        if not len(one) + len(other):
            return 1.0
        return 2 * len(np.intersect1d(one, other)) / (len(one) + len(other))

    # -- results

    def delay_now_s(self) -> float:
        """The mean over the queries that are served now."""
        before = self._found
        self._found = {}
        self._ways()
        now = self._found.get(self.capacity_bps, [])
        self._found = before
        return float(np.mean(now)) if now else 0.0

    def delays(self) -> list[Delay]:
        """At all capacities."""
        found = []
        for capacity in CAPACITIES_BPS:
            values = self._found.get(capacity) or [0.0]
            found.append(Delay(capacity, float(np.mean(values)), float(np.percentile(values, 95))))
        return found

    @property
    def delay_mean_s(self) -> float:
        """At the usual capacity."""
        return float(np.mean(self._found.get(self.capacity_bps) or [0.0]))

    @property
    def delay_p95_s(self) -> float:
        """At the usual capacity."""
        return float(np.percentile(self._found.get(self.capacity_bps) or [0.0], 95))

    @property
    def stretch(self) -> float:
        """Links that data cross on their way, over those of the direct way; mean over points."""
        return self._stretch[0] / self._stretch[1] if self._stretch[1] else 1.0

    @property
    def similarity(self) -> float:
        """Mean over pairs of receivers of a merged stream."""
        return float(np.mean(self._similar)) if self._similar else 0.0

    @property
    def fragments(self) -> float:
        """Streams between brokers per query that is served."""
        return float(np.mean(self._fragments)) if self._fragments else 0.0
