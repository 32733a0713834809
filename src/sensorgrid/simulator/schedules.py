"""Random schedules of faults: a small world under pressure, attacked, healed, and then looked at.

A schedule is its seed. Brokers with tight budgets, clients with overlapping queries, operators who move load about at
random (so that redirects cross and streams run over several levels); then connections break or go half-open, brokers
crash, pause, are cut off, regions change owner or are handed over to an heir, rosters spread from broker to broker,
queries come and go, ticks are revised. In some worlds part of the brokers and clients speak an older version of the
wire. In the end all is healed, and every query must have got exactly its points, or be suspended for lack of budget;
and once all clients have left, nothing may be left behind.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np

from sensorgrid.model.block import Values
from sensorgrid.model.grid import ORDER_5D, Grid
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay.broker import Broker
from sensorgrid.overlay.events import Advised
from sensorgrid.overlay.forwarding import wanted_of
from sensorgrid.overlay.messages import VERSION
from sensorgrid.overlay.policies.interface import Policy
from sensorgrid.overlay.policies.ours import Ours
from sensorgrid.overlay.policies.paper import Paper
from sensorgrid.overlay.policies.relays import NAMES, TREE, Relays
from sensorgrid.overlay.roster import Region
from sensorgrid.overlay.settings import SILENCES, Settings
from sensorgrid.simulator import checkers
from sensorgrid.simulator.calculations import Calculations
from sensorgrid.simulator.world import World

TICK_S = 3.0
FAULTS_FROM_S, HEALED_S, END_S, GONE_S = 14.0, 30.0, 62.0, 92.0
FAULTS = (
    "break", "half-open", "deaf", "crash", "silent crash", "pause", "partition", "owner", "client", "cancel",
)  # fmt: skip
ALIVE_S, PATIENCE_S = 2.0, 1.2
FOUND_S = HEALED_S + SILENCES * ALIVE_S + PATIENCE_S
"""by then every broken connection has been found by its silence, and every earlier question has been answered"""
EVENTS_MAX = 400_000
RELAY_FAULTS = (*FAULTS, "slow", "move")
ROSTER_FAULTS = ("hand-over", "hand-over", "roster")
MIXED = 0.25
"""share of worlds in which not all speak the newest version of the wire"""
MEASURE_S = 3.0
"""how often brokers that relay measure delays"""


@dataclass(slots=True)
class ScheduleOutcome:
    """What became of one schedule."""

    seed: int
    problems: list[str]
    """none: all properties hold"""
    levels: list[int]
    """of live delegation when each fault struck"""
    faults: list[str]
    served: int
    circles: int
    """how often crossed redirects made a circle, which was then left"""
    suspended: int
    refused: int
    events: int
    digest: str


class Schedule:
    """One seed, played."""

    end_s, gone_s = END_S, GONE_S
    """when everything must have healed, and when everybody must have left"""
    roaming = 0.85
    """share of clients that can dial any broker, where brokers do not relay"""
    by_hand = True
    """whether operators change the roster"""

    def __init__(
        self,
        seed: int,
        watch: bool = False,
        trace: bool = False,
        relayed: bool = False,
        calculates: bool = False,
    ) -> None:
        self.seed = seed
        self.watch = watch
        self.relayed = relayed
        """whether brokers relay, and most clients stay with the broker next to them"""
        self.faults_known: tuple[str, ...] = RELAY_FAULTS if relayed else FAULTS
        self.slow: dict[PeerId, float] = {}
        """brokers whose connections take so many times as long"""
        self.rng = Random(f"relays {seed}" if relayed else f"schedule {seed}")
        self.chance = Random(f"rosters {seed} {relayed}")
        """of rosters and versions, so that the rest is what it was before there were any"""
        self.mixed = self.chance.random() < MIXED and not calculates
        rng = self.rng
        wraps = rng.random() < 0.5
        self.grid = Grid(
            extent=(-180, -90, 180, 90) if wraps else (0, 0, 16, 16),
            coordinates="lonlat" if wraps else "planar",
            shape=(16, 16),
            tick=TICK_S,
            resolution_bits=(1, 1, 1),
            order=ORDER_5D,
            region_digits=3,
            attributes=("air_temperature", "wind_speed")[: rng.choice((1, 1, 2))],
        )
        self.world = World(self.grid, seed, delay_s=self._delay, trace=trace)
        self.deliveries = checkers.Deliveries(self.world)
        self.brokers = [PeerId(i) for i in range(rng.randint(4, 7))]
        self.hot = rng.randrange(8, 16)
        """the region that most want"""
        self.clients: dict[PeerId, dict[QueryId, Query]] = {}
        self.gone: set[PeerId] = set()
        self.ticks = 0
        self.published: dict[tuple[int, int, int], int] = {}
        self.levels: list[int] = []
        self.faults: list[str] = []
        self.problems: list[str] = []
        self.calculations = Calculations(self) if calculates else None
        """clients who watch results of operators"""

    def _delay(self, a: PeerId, b: PeerId) -> float:
        factor = max(self.slow.get(a, 1.0), self.slow.get(b, 1.0))
        return factor * (0.005 + 0.04 * Random(f"{self.seed} {min(a, b)} {max(a, b)}").random())

    def play(self) -> ScheduleOutcome:
        """From the first broker to the last client."""
        self._build()
        world, rng = self.world, self.rng
        for _ in range(rng.randint(6, 10)):
            world.after(rng.uniform(2.0, 10.0), self._join)
        for _ in range(rng.randint(10, 16)):
            world.after(rng.uniform(6.0, HEALED_S), self._advise)
        for _ in range(rng.randint(1, 4)):
            world.after(rng.uniform(FAULTS_FROM_S, HEALED_S - 4), self._strike)
        for _ in range(rng.randint(0, 3)):
            world.after(rng.uniform(4.0, HEALED_S), self._join)
        for _ in range(self.chance.choice((0, 1, 1, 2)) if self.by_hand else 0):
            kind = self.chance.choice(ROSTER_FAULTS)
            world.after(self.chance.uniform(8.0, HEALED_S - 6), partial(self._change_roster, kind))
        world.after(HEALED_S, self._heal)
        self._run(self.end_s)
        self._look()
        self._leave()
        self._run(self.gone_s)
        self.problems += checkers.rules(world)
        self.problems += checkers.leftovers(world)
        self.problems += self.deliveries.wrong[:5]
        statuses = [world.status(c, q) for c, queries in self.clients.items() for q in queries]
        return ScheduleOutcome(
            self.seed,
            self.problems,
            self.levels,
            self.faults,
            self.served,
            sum(broker.boards.intake.circles for broker in checkers.brokers_of(world).values()),
            self.suspended,
            sum(s == "refused" for s in statuses),
            world.events,
            world.digest if world._digest is not None else "",
        )

    # -- the world

    def _build(self) -> None:
        rng, world = self.rng, self.world
        region_points = self.grid.points_per_period >> 3
        policies: tuple[Callable[[], Policy], ...] = (Paper, lambda: Ours(True), lambda: Ours(False))
        policy = rng.choice(policies)
        relays = self._relays() if self.relayed else None
        least, most = (3.0, 12.0) if self.relayed else (1.5, 4.0)
        for peer in self.brokers:
            settings = self._settings(int(region_points * rng.uniform(least, most)))
            version = 1 if self.mixed and self.chance.random() < 0.5 else VERSION
            world.add_broker(peer, settings, policy, relays, version=version)
        if self.relayed and rng.random() < 0.5:
            world.hops = lambda a, b: 1 + int(self._delay(a, b) * 100)
        owners = self.brokers[: max(3, len(self.brokers) - rng.choice((0, 0, 1)))]
        regions = [
            Region(attribute, cell, rng.choice(owners), 1)
            for attribute in range(len(self.grid.attributes))
            for cell in range(8, 16)
        ]
        world.assign(regions)
        world.after(0.5, self._tick)
        self.served = self.suspended = 0

    def _relays(self) -> Relays:
        rng = self.rng
        return Relays(
            rng.choice((*NAMES, TREE)), k=rng.randint(2, 6), delta=rng.choice((0, 0, 8)), measure_s=MEASURE_S,
            review_s=0.5, optimise_s=4.0, added_s=rng.choice((None, None, 0.05)),
        )  # fmt: skip

    def _settings(self, budget: int) -> Settings:
        return Settings(
            budget=budget, depth=9, ring_ticks=60, lateness_ticks=6, slack_ticks=2, patience_s=PATIENCE_S,
            path_patience_s=2.5, wait_s=0.8, reservation_s=2.5, age_min_s=3.0, backoff_s=0.5, backoff_max_s=4.0,
            alive_s=ALIVE_S, news_s=0.5, news_change=0.02, idle_s=4.0,
        )  # fmt: skip

    def _tick(self) -> None:
        """The pipeline publishes the next tick of every region, and now and then revises an earlier one."""
        world, rng = self.world, self.rng
        for attribute, cell in world.regions:
            self._publish(attribute, cell, self.ticks, 0)
            if self.ticks > 2 and rng.random() < 0.15:
                tick = self.ticks - rng.randint(1, 2)
                revision = self.published[attribute, cell, tick] + 1
                self._publish(attribute, cell, tick, revision)
        self.ticks += 1
        if world.now + TICK_S < self.end_s - 6:
            world.after(TICK_S, self._tick)

    def _publish(self, attribute: int, cell: int, tick: int, revision: int) -> None:
        self.published[attribute, cell, tick] = revision
        box = wanted_of(self.grid, cell, None)[0]
        truth = checkers.truth_of(attribute, tick, revision, self.grid)
        values = np.ascontiguousarray(truth[slice(*box.y), slice(*box.x)])
        delay = 0.0 if revision == 0 else self.rng.uniform(0, TICK_S)
        self.world.after(delay, lambda: self._write(attribute, cell, tick, revision, values))

    def _write(self, attribute: int, cell: int, tick: int, revision: int, values: Values) -> None:
        held = self.world.lake.get((attribute, cell), {}).get(tick)
        if held is None or held[0] < revision:
            self.world.publish(attribute, cell, tick, revision, values)

    # -- clients

    def _join(self) -> None:
        """A client comes with one or two queries, mostly around the hot region."""
        rng, world = self.rng, self.world
        order = list(self.brokers)
        rng.shuffle(order)
        roams = rng.random() < (0.2 if self.relayed else self.roaming)
        version = 1 if self.mixed and self.chance.random() < 0.5 else VERSION
        client = world.add_client(self._settings(1), tuple(order), roams, version)
        self.clients[client] = {}
        for number in range(rng.choice((1, 1, 2))):
            ask = self._ask()
            start = max(0, self.ticks - rng.choice((0, 0, 0, 3))) + rng.choice((0, 0, 2))
            self.clients[client][QueryId(number)] = ask
            self.deliveries.expect(client, QueryId(number), ask, start)
            world.submit(client, QueryId(number), ask, start)

    def _ask(self) -> Query:
        rng, grid = self.rng, self.grid
        box = wanted_of(grid, self.hot, None)[0]
        (y0, y1, _), (x0, x1, _) = box.y, box.x
        if rng.random() < 0.3:
            x0, x1 = sorted(rng.sample(range(17), 2))
            y0, y1 = sorted(rng.sample(range(17), 2))
        else:
            x0, x1 = x0 - rng.randint(0, 2), x1 + rng.randint(0, 2)
            y0, y1 = max(0, y0 - rng.randint(0, 2)), min(16, y1 + rng.randint(0, 2))
            if not grid.wraps:
                x0, x1 = max(0, x0), min(16, x1)
        dx, dy = grid.spacing
        west, south = grid.extent[0], grid.extent[1]
        names = grid.attributes[: rng.randint(1, len(grid.attributes))]
        resolution = tuple(rng.choice((0.5, 1.0)) for _ in range(3))
        while True:
            query = Query(
                names, bbox=(west + x0 * dx, south + y0 * dy, west + x1 * dx, south + y1 * dy),
                resolution=(resolution[0], resolution[1], resolution[2]),
            )  # fmt: skip
            try:
                query.box(grid)
                return query
            except ValueError:
                resolution = (1.0, 1.0, 1.0)

    def _advise(self) -> None:
        """An operator moves load about."""
        rng = self.rng
        brokers = checkers.brokers_of(self.world)
        busy = [p for p, b in brokers.items() if b.boards.outlets.entries]
        if len(brokers) < 2 or not busy:
            return
        if rng.random() < 0.4 and self._cross(brokers):
            return
        peer = rng.choice(busy)
        outlets = brokers[peer].boards.outlets
        attribute = rng.choice([a for a, at in outlets.at.items() if at] or [0])
        cells = list(outlets.at.get(attribute, ())) or [8]
        cell = rng.choice(cells) >> rng.choice((0, 0, 1, 2))
        while cell.bit_length() <= 3:
            cell = cell << 1 | 1
        target = rng.choice([p for p in self.brokers if p != peer])
        self.world.feed(peer, Advised(attribute, cell, target))

    def _cross(self, brokers: dict[PeerId, Broker]) -> bool:
        """Send two brokers that have a cell from the same provider to each other: a circle, if both go."""
        found = [
            (peer, attribute, cell, list(takers))
            for peer, broker in brokers.items()
            for attribute, by in broker.boards.outlets.fed.items()
            for cell, takers in by.items()
            if len(takers) > 1
        ]
        if not found:
            return False
        peer, attribute, cell, takers = self.rng.choice(found)
        one, other = self.rng.sample(takers, 2)
        self.world.feed(peer, Advised(attribute, cell, one))
        again = Advised(attribute, cell, other)
        self.world.after(self.rng.uniform(0.02, 0.15), lambda: self.world.feed(peer, again))
        return True

    # -- faults

    def _strike(self) -> None:
        kind = self.rng.choice(self.faults_known)
        self.levels.append(checkers.levels(self.world))
        self.faults.append(kind)
        rng, world = self.rng, self.world
        victim = self._victim()
        pairs = sorted(pair for pair in world.connections if victim in pair) or sorted(world.connections)
        if kind in ("break", "half-open", "deaf") and pairs:
            a, b = rng.choice(pairs)
            world.break_link(a, b, {"break": (a, b), "half-open": (), "deaf": (a,)}[kind])
        elif kind in ("crash", "silent crash"):
            world.crash(victim, heard=kind == "crash")
            world.after(rng.uniform(0.2, 8.0), lambda: world.restart(victim))
        elif kind == "pause":
            world.pause(victim)
            world.after(rng.uniform(0.5, 8.0), lambda: world.resume(victim))
        elif kind == "partition":
            world.partition({victim, *rng.sample(self.brokers, 1)})
            world.after(rng.uniform(0.5, 8.0), world.heal)
        elif kind == "owner":
            self._change_owner()
        elif kind == "client" and self.clients:
            client = rng.choice(sorted(self.clients))
            self.gone.add(client)
            world.crash(client, heard=rng.random() < 0.5)
        elif kind == "slow":
            self.slow[victim] = 1.0 if victim in self.slow else rng.uniform(2.0, 4.0)
            world.rerouted()
        elif kind == "move" and self.clients:
            order = list(self.brokers)
            rng.shuffle(order)
            world.move(rng.choice(sorted(self.clients)), tuple(order))
        elif kind == "cancel" and self.clients:
            client = rng.choice(sorted(self.clients))
            for query in list(self.clients[client]):
                world.cancel(client, query)
                del self.clients[client][query]

    def _victim(self) -> PeerId:
        """Mostly a broker that relays: there faults hurt."""
        relays = [
            p
            for p, b in checkers.brokers_of(self.world).items()
            if any(s.piece is not None for by in b.boards.outlets.supplies.values() for s in by.values())
        ]
        return self.rng.choice(relays if relays and self.rng.random() < 0.7 else self.brokers)

    def _change_owner(self) -> None:
        """A region changes owner; brokers hear of it one after the other."""
        world, rng = self.world, self.rng
        changed = rng.choice(sorted(world.regions))
        regions = []
        for key, region in sorted(world.regions.items()):
            if key == changed or (key[1] == self.hot and rng.random() < 0.5):
                heir = rng.choice(self.brokers)
                regions.append(Region(*key, heir, region.epoch + 1))
            else:
                regions.append(region)
        world.assign(regions, spread_s=1.0)

    def _change_roster(self, kind: str) -> None:
        """A region is promised to an heir, and is its own some time later; or only its epoch rises."""
        world, chance = self.world, self.chance
        self.faults.append(kind)
        key = (0, self.hot) if chance.random() < 0.5 else chance.choice(sorted(world.regions))
        if kind == "roster":
            self._hand_over(key, world.regions[key].owner)
            return
        heir = chance.choice(self.brokers)
        before = world.regions[key]
        self._assign(Region(*key, before.owner, before.epoch, heir))
        world.after(chance.uniform(0.2, 5.0), lambda: self._hand_over(key, heir))

    def _hand_over(self, key: tuple[int, int], owner: PeerId) -> None:
        self._assign(Region(*key, owner, self.world.regions[key].epoch + 1))

    def _assign(self, region: Region) -> None:
        """A new roster with one region changed; some brokers are told, the others hear of it from them."""
        world, chance = self.world, self.chance
        key = (region.attribute, region.cell)
        regions = [region if at == key else other for at, other in world.regions.items()]
        some = chance.sample(self.brokers, chance.randint(1, len(self.brokers)))
        world.assign(regions, spread_s=1.0, told=self.brokers if self.mixed else some)

    def _heal(self) -> None:
        world = self.world
        world.heal()
        for peer in self.brokers:
            world.restart(peer)
            if world.nodes[peer].paused:
                world.resume(peer)

    # -- the end

    def _run(self, until: float) -> None:
        if not self.watch:
            self.world.run(until, EVENTS_MAX)
            return
        found: list[str] = []

        def look() -> bool:
            found.extend(checkers.rules(self.world))
            return bool(found)

        self.world.run(until, EVENTS_MAX, look)
        if found:
            self.problems += [f"at {self.world.now:.3f} s: {what}" for what in found]

    def _look(self) -> None:
        """Everything has healed: check what each client and broker holds."""
        world = self.world
        if self.calculations is not None:
            self.problems += list(self.calculations.problems())[:5]
        self.problems += checkers.rules(world)
        self.problems += checkers.rosters(world)
        self.problems += self._lasting(checkers.circles)
        self.problems += self._lasting(checkers.conservation)
        for client, queries in self.clients.items():
            if client in self.gone:
                continue
            for query, ask in queries.items():
                self.suspended += world.status(client, query) == "suspended"
                self.problems += checkers.unserved(world, client, query, FAULTS_FROM_S, FOUND_S)
                if world.status(client, query) in ("admitted", "resumed"):
                    self.served += 1
                    self.problems += list(self.deliveries.missing(client, query, ask, self.ticks))[:3]

    def _lasting(self, check: Callable[[World], Iterator[str]]) -> list[str]:
        """What is still wrong two seconds later: suspended queries that try again move things about."""
        found = dict.fromkeys(check(self.world))
        if found:
            self._run(self.world.now + 2.0)
            kinds = {_without_numbers(what) for what in found}
            found = {what: None for what in check(self.world) if _without_numbers(what) in kinds}
        return list(found)

    def _leave(self) -> None:
        if self.calculations is not None:
            self.calculations.leave()
        for client, queries in self.clients.items():
            if client not in self.gone:
                for query in queries:
                    self.world.cancel(client, query)


def _without_numbers(what: str) -> str:
    """A problem that moves on by a generation is still there."""
    return re.sub(r"generation \d+", "", what)


def play(
    seed: int, watch: bool = False, trace: bool = False, relayed: bool = False, calculates: bool = False
) -> ScheduleOutcome:
    """Play one schedule. Watching checks every broker's rules after every event, and takes long."""
    return Schedule(seed, watch, trace, relayed, calculates).play()
