"""Open networks in the simulator: at rest, started again all at once, and with streams while brokers come and go."""

from dataclasses import replace
from functools import partial
from random import Random
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId, QueryId, is_broker
from sensorgrid.model.query import Query
from sensorgrid.overlay.codec import encode
from sensorgrid.overlay.events import Deliver
from sensorgrid.overlay.forwarding import wanted_of
from sensorgrid.overlay.geography import first_of
from sensorgrid.overlay.messages import Find, Holds, Message, Told
from sensorgrid.overlay.policies.ours import Ours
from sensorgrid.overlay.roster import Region
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator import checkers
from sensorgrid.simulator.world import World

if TYPE_CHECKING:
    from sensorgrid.experiments.membership import MembershipCase

Row = dict[str, Any]

HEADERS_BYTES = 46
"""of a small message on its way: WebSocket frame with its mask, TCP, IP"""
START_S, REST_S = 30.0, 10.0
"""until all have heard all news, from neighbour to neighbour over the map; how long a network at rest is watched"""
AGAIN_S = 20.0
"""how long brokers are watched after all have stopped at once"""
QUESTIONS = 100
"""lookups of clients in a network at rest"""
TICK_S = 2.0
CLIENTS = 12
LATE_S = TICK_S
"""a tick that comes later than this is late by more than one"""
WITH_DEATHS = ("join", "kill", "join", "leave", "join", "silence")
"""a process that dies, which its peers hear at once; a machine that goes dark, which they do not"""
IN_ORDER = ("join", "leave")


def rest(case: "MembershipCase") -> Row:
    """How much is said when nothing happens; how many rosters it takes when all start again; how owners are found."""
    grid = _grid((case.brokers - 1).bit_length())
    settings = _settings(grid, by_prefix=case.way == "prefix")
    world = World(grid, case.seed)
    _populate(world, grid, settings, case.brokers)
    world.run(START_S)
    said = [0]

    def count(me: PeerId, peer: PeerId, message: Message) -> None:
        said[0] += len(encode(message)) + HEADERS_BYTES

    world.on_send = count
    world.run(START_S + REST_S)
    resting = said[0] / REST_S / case.brokers
    asked = _ask_around(world, grid, settings, case)
    version = _version(world)
    for peer in list(checkers.brokers_of(world)):
        world.crash(peer)
        world.after(world.rng.uniform(0.0, case.back_s), partial(_again, world, peer))
    world.run(world.now + AGAIN_S)
    return {"rest_bytes_per_s": resting, "restart_versions": _version(world) - version, **asked}


def _ask_around(world: World, grid: Grid, settings: Settings, case: "MembershipCase") -> Row:
    """Clients ask any broker for a small cell each: how many brokers are asked in turn, and how long it takes."""
    rng, finds = Random(f"questions {case.seed}"), [0]
    count, posed = len(world.regions), {}

    def hear(me: PeerId, peer: PeerId, message: Message) -> None:
        finds[0] += type(message) is Find

    world.on_send = hear
    for number in range(QUESTIONS):
        client = world.add_client(settings, (PeerId(rng.randrange(case.brokers)),))
        box = wanted_of(grid, count + rng.randrange(count), None)[0]
        (dx, dy), (west, south) = grid.spacing, grid.extent[:2]
        ask = Query(
            grid.attributes[0],
            bbox=(west + box.x[0] * dx, south + box.y[0] * dy, west + box.x[1] * dx, south + box.y[1] * dy),
        )
        due = world.now + 0.05 * number
        world.after(0.05 * number, partial(world.submit, client, QueryId(1), ask))
        posed[client] = due
    world.run(world.now + 0.05 * QUESTIONS + 3.0)
    waits = [
        world.admitted[c, QueryId(1)] - due for c, due in posed.items() if (c, QueryId(1)) in world.admitted
    ]
    opened: dict[PeerId, int] = {}
    for pair in world.connections:
        for peer in pair if all(is_broker(p) for p in pair) else ():
            opened[peer] = opened.get(peer, 0) + 1
    for client in posed:
        world.cancel(client, QueryId(1))
    world.run(world.now + 1.0)
    world.on_send = None
    return {
        "hops_mean": finds[0] / QUESTIONS,
        "lookup_s": mean(waits) if len(waits) == QUESTIONS else None,
        "connections_max": max(opened.values(), default=0),
    }


def _again(world: World, peer: PeerId) -> None:
    world.restart(peer)
    roster = world.roster
    member = None if roster is None else roster.by_id.get(peer)
    world.join(peer, 0 if member is None else member.place)


def churn(case: "MembershipCase") -> Row:
    """Streams of clients all over the grid, and a broker that comes, leaves or dies every so often."""
    assert case.churn_s is not None
    return Churned(case).play()


class Churned:
    """One network with streams, played."""

    def __init__(self, case: "MembershipCase") -> None:
        assert case.churn_s is not None
        self.case = case
        self.every_s = case.churn_s
        self.grid = _grid(5)
        self.settings = replace(_settings(self.grid, by_prefix=True), ring_ticks=64, backoff_max_s=4.0)
        self.world = World(self.grid, case.seed)
        self.rng = Random(f"churn {case.churn_s} {case.seed}")
        self.deliveries = checkers.Deliveries(self.world)
        self.asks: dict[PeerId, Query] = {}
        self.published: list[float] = []
        self.late: set[tuple[PeerId, int]] = set()
        self.moved: list[float] = []
        self.kinds = WITH_DEATHS if case.deaths else IN_ORDER
        self.takeovers: dict[str, list[float]] = {"kill": [], "silence": []}
        self.words = 0
        self.changes = 0
        self.alive: list[PeerId] = []
        self._waiting: dict[int, tuple[str, float, int, set[PeerId]]] = {}
        """cells of a broker that died: how, when, the first tick after that, and who has had one since"""

    def play(self) -> Row:
        """From the first tick to the last."""
        world, case = self.world, self.case
        _populate(world, self.grid, self.settings, case.brokers)
        self.alive = list(checkers.brokers_of(world))
        world.on_deliver = self._delivered
        world.on_send = self._said
        world.run(3.0)
        for number in range(CLIENTS):
            self._pose(number)
        world.run(6.0)
        began, owners = _version(world), self._owners()
        world.after(0.0, self._tick)
        world.after(self.every_s / 2, self._change)
        self.ends = world.now + case.seconds
        self.words = 0
        last = owners
        while world.now < self.ends + 40.0:
            world.run(world.now + 1.0)
            for peer in sorted(world.left):
                if world.nodes[peer].actor is not None:
                    world.crash(peer)
            now = self._owners()
            self.moved.append(sum(now[key] != last[key] for key in now) / len(now))
            last = now
        missing = [
            said
            for client, ask in self.asks.items()
            for said in self.deliveries.missing(client, QueryId(1), ask, len(self.published))
        ]
        replies = [reply.status for heard in world.replies.values() for reply in heard]
        return {
            "ticks": CLIENTS * len(self.published),
            "late_ticks": len(self.late),
            "missing_ticks": len(missing) + len(self.deliveries.wrong),
            "suspended": replies.count("suspended"),
            "bytes_moved_share": sum(self.moved) / self.changes if self.changes else None,
            "takeover_s": max(self.takeovers["kill"], default=None),
            "takeover_silent_s": max(self.takeovers["silence"], default=None),
            "changes": self.changes,
            "roster_versions": _version(world) - began,
            "messages_per_change": self.words / self.changes if self.changes else None,
        }

    def _pose(self, number: int) -> None:
        rng, grid = self.rng, self.grid
        order = list(self.alive)
        rng.shuffle(order)
        client = self.world.add_client(self.settings, tuple(order))
        (nx, ny), (dx, dy), (west, south) = grid.shape, grid.spacing, grid.extent[:2]
        x, y = [0, nx], [0, ny]
        if number % 3:
            x, y = sorted(rng.sample(range(nx + 1), 2)), sorted(rng.sample(range(ny + 1), 2))
        ask = Query(
            grid.attributes[0],
            bbox=(west + x[0] * dx, south + y[0] * dy, west + x[1] * dx, south + y[1] * dy),
        )
        self.asks[client] = ask
        self.deliveries.expect(client, QueryId(1), ask, 0)
        self.world.submit(client, QueryId(1), ask, 0)

    def _tick(self) -> None:
        world, tick = self.world, len(self.published)
        self.published.append(world.now)
        truth = checkers.truth_of(0, tick, 0, self.grid)
        for attribute, cell in world.regions:
            box = wanted_of(self.grid, cell, None)[0]
            values = np.ascontiguousarray(truth[slice(*box.y), slice(*box.x)])
            world.publish(attribute, cell, tick, 0, values)
        if world.now + TICK_S < self.ends:
            world.after(TICK_S, self._tick)

    def _change(self) -> None:
        world, rng = self.world, self.rng
        kind = self.kinds[self.changes % len(self.kinds)]
        self.changes += 1
        if kind == "join":
            peer = PeerId(self.case.brokers + self.changes)
            world.add_broker(peer, self.settings, lambda: Ours(True))
            world.join(peer, first_of(32 + rng.randrange(32), self.settings.depth))
            self.alive.append(peer)
        else:
            victim = rng.choice(self.alive)
            self.alive.remove(victim)
            if kind == "leave":
                world.leave(victim)
            else:
                for (_, cell), region in world.regions.items():
                    if region.owner == victim:
                        self._waiting[cell] = kind, world.now, len(self.published), set()
                world.crash(victim, heard=kind == "kill")
        if world.now + self.every_s < self.ends - TICK_S:
            world.after(self.every_s, self._change)

    def _delivered(self, client: PeerId, block: Deliver) -> None:
        self.deliveries.delivered(client, block)
        now = self.world.now
        if now - self.published[block.tick] > LATE_S:
            self.late.add((client, block.tick))
        region = None if self.world.roster is None else self.world.roster.region(block.attribute, block.cell)
        if region is not None and region.cell in self._waiting:
            kind, died, first, fed = self._waiting[region.cell]
            if block.tick >= first and client not in fed:
                fed.add(client)
                self.takeovers[kind].append(now - died)

    def _said(self, me: PeerId, peer: PeerId, message: Message) -> None:
        self.words += type(message) in (Told, Holds)

    def _owners(self) -> dict[tuple[int, int], PeerId]:
        return {key: region.owner for key, region in self.world.regions.items()}


def _grid(digits: int) -> Grid:
    """Of 2^digits regions of 4 × 4 points."""
    return Grid(
        extent=(-180, -90, 180, 90), shape=(4 << (digits + 1) // 2, 4 << digits // 2), tick=TICK_S,
        resolution_bits=(0, 0, 0), region_digits=digits, attributes=("air_temperature",),
    )  # fmt: skip


def _settings(grid: Grid, by_prefix: bool) -> Settings:
    return Settings(
        budget=100 * grid.points_per_period, depth=min(20, grid.region_digits + 4), beat_s=1.0, alive_s=5.0,
        by_prefix=by_prefix,
    )  # fmt: skip


def _populate(world: World, grid: Grid, settings: Settings, count: int) -> None:
    """So many brokers, spread evenly; each owns the regions from its place on."""
    cells = 1 << grid.region_digits
    firsts = [number * cells // count for number in range(count)]
    for number in range(count):
        world.add_broker(PeerId(number), settings, lambda: Ours(True))
    owners = {first: PeerId(number) for number, first in enumerate(firsts)}
    regions, owner = [], PeerId(0)
    for cell in range(cells):
        owner = owners.get(cell, owner)
        regions.append(Region(0, cells + cell, owner, 1))
    world.assign(regions)
    for number in range(count):
        peer = PeerId(number)
        world.after(0.1, partial(world.join, peer, first_of(cells + firsts[number], settings.depth)))


def _version(world: World) -> int:
    return 0 if world.roster is None else world.roster.version
