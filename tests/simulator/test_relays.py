"""Relays in a whole world with data: streams that share a way, and what happens when the network changes.

Brokers stand on a line, ten milliseconds apart, unless said otherwise; clients stay with the broker next to them.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from hands import GRID, box_query, settings
from sensorgrid.model.ids import BROKERS_MAX, PeerId, QueryId
from sensorgrid.overlay.assembly import Plug
from sensorgrid.overlay.broker import Broker
from sensorgrid.overlay.mechanisms.liveness import Liveness
from sensorgrid.overlay.mechanisms.neighbourhood import Neighbourhood
from sensorgrid.overlay.messages import Feed
from sensorgrid.overlay.policies.interface import Never, Policy
from sensorgrid.overlay.policies.relays import NAMES, TREE, Relays
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator.checkers import brokers_of, circles, conservation, leftovers
from sensorgrid.simulator.flows import flows
from sensorgrid.simulator.world import World
from worlds import SmallWorld

MEASURE_S = 5.0
REGION = box_query(0, 0, 4, 8)
"""all of region 000, which broker 0 owns"""


class Line(SmallWorld):
    """Brokers that relay."""

    def __init__(self, strategy: str, brokers: int = 5, hops: bool = False, **changes: Any) -> None:
        self.relays = Relays(
            strategy,
            k=changes.pop("k", 8),
            measure_s=MEASURE_S,
            review_s=0.5,
            optimise_s=MEASURE_S,
            added_s=changes.pop("added_s", None),
        )
        self.far: dict[tuple[int, int], float] = {}
        super().__init__(
            {"000": 0, "001": 1}, brokers, delay_s=self.distance, age_min_s=2.0, reservation_s=3.0, **changes
        )
        if hops:
            self.hops = lambda a, b: abs(a - b)
            self.rerouted()
        self.pass_(3)  # all are measured

    def add_broker(
        self,
        me: PeerId,
        settings: Settings,
        policy: Callable[[], Policy],
        relays: Relays | None = None,
        others: tuple[Plug, ...] = (),
    ) -> Broker:
        return World.add_broker(self, me, settings, policy, self.relays, others)

    def distance(self, a: PeerId, b: PeerId) -> float:
        """Clients stand beside their brokers."""
        if a >= BROKERS_MAX or b >= BROKERS_MAX:
            return 0.001
        return self.far.get((min(a, b), max(a, b)), 0.01 * abs(a - b))

    def between(self) -> dict[tuple[int, int], int]:
        """Points per period that brokers send each other."""
        return {pair: n for pair, n in flows(self).items() if max(pair) < BROKERS_MAX}


@pytest.mark.parametrize("strategy", [s for s in NAMES if s != "DIRECT"])
def test_every_broker_gets_every_value_once_and_the_owner_sends_it_once(strategy: str) -> None:
    world = Line(
        strategy, k=2 if strategy == "CTD" else 8
    )  # its receivers are their own best relays otherwise
    clients = [world.pose(REGION, at=at, roams=False) for at in (2, 3, 4, 4)]
    world.tick(8, 1.0)

    sent = world.between()

    received: dict[int, int] = {}
    for (_, to), points in sent.items():
        received[to] = received.get(to, 0) + points
    assert {to: received[to] for to in (2, 3, 4)} == {2: 64, 3: 64, 4: 64}
    assert set(received.values()) == {64}
    assert sum(points for (a, _), points in sent.items() if a == 0) == 64, "nothing leaves the owner twice"
    assert all(world.heard(c) == ["admitted"] and world.got_all(c, REGION) for c in clients)
    assert list(circles(world)) == []
    assert list(conservation(world)) == []


def test_direct_brings_clients_of_one_broker_together_and_no_others() -> None:
    world = Line("DIRECT")
    clients = [world.pose(REGION, at=at, roams=False) for at in (2, 3, 4, 4)]
    world.tick(4, 1.0)

    assert world.between() == {(0, 2): 64, (0, 3): 64, (0, 4): 64}
    assert all(world.got_all(c, REGION) for c in clients)


@pytest.mark.parametrize("hops", [False, True])
def test_in_a_tree_a_newcomer_hangs_on_the_nearest(hops: bool) -> None:
    world = Line(TREE, hops=hops)
    for at in (4, 2, 3):
        world.pose(REGION, at=at, roams=False)
        world.tick(1, 1.0)
    world.tick(8, 1.0)

    assert world.between() == {(0, 2): 64, (2, 3): 64, (3, 4): 64}
    assert sum(b.boards.intake.switches for b in brokers_of(world).values()) <= 3


def test_a_broker_that_wants_nothing_itself_relays_where_ways_part() -> None:
    """A star: 1 is the middle, between the owner and 2, 3, 4."""
    world = Line(TREE)
    for a in (2, 3, 4):
        for b in (0, 2, 3, 4):
            if a != b:
                world.far[min(a, b), max(a, b)] = 0.04 if 0 in (a, b) else 0.02
        world.far[1, a] = 0.01
    world.far[0, 1] = 0.03
    world.rerouted()
    world.pass_(3 * MEASURE_S)
    for at in (2, 3, 4):
        world.pose(REGION, at=at, roams=False)
    world.tick(10, 1.0)

    assert world.between() == {(0, 1): 64, (1, 2): 64, (1, 3): 64, (1, 4): 64}


def test_nobody_gets_data_later_than_he_may() -> None:
    """A bound on added delay: on the line there is none, so a crooked one."""
    slow, bounded = Line(TREE), Line(TREE, added_s=0.0)
    for world in (slow, bounded):
        for at in (2, 3):
            world.far[at, 4] = 0.005
        world.far[0, 4] = 0.024
        world.rerouted()
        world.pass_(3 * MEASURE_S)
        for at in (2, 4):
            world.pose(REGION, at=at, roams=False)
            world.tick(2, 1.0)
        world.tick(8, 1.0)

    assert slow.path(4, "000") == (0, 2, 4)
    assert bounded.path(4, "000") == (0, 4)


@pytest.mark.parametrize("strategy", ["CTP", TREE])
def test_a_relay_that_dies_is_replaced_within_a_measurement_period_and_nothing_is_lost(strategy: str) -> None:
    world = Line(strategy, alive_s=1.0)
    clients = [world.pose(REGION, at=at, roams=False) for at in (3, 4)]
    world.pose(REGION, at=2, roams=False)
    world.tick(8, 1.0)
    relay = next(b for (a, b) in world.between() if a == 0)

    world.crash(PeerId(relay))
    world.tick(int(MEASURE_S), 1.0)

    left = [c for c, at in zip(clients, (3, 4), strict=True) if at != relay]
    assert all(world.got_all(c, REGION) for c in left)
    assert all(pair != relay for pairs in world.between() for pair in pairs)
    assert list(circles(world)) == []


def test_while_nothing_happens_nobody_is_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections without streams are closed by either side at any time, also while a ping is on its way."""
    rng, gone, opened = Random(1), [], []
    monkeypatch.setattr(Liveness, "_interval", lambda _: 5 * rng.uniform(0.9, 1.1))
    forget, dial = Neighbourhood._gone, Neighbourhood._ping
    monkeypatch.setattr(Neighbourhood, "_gone", lambda self, p: (gone.append(p), forget(self, p)))

    def ping(self: Neighbourhood, peer: PeerId, *more: Any, **named: Any) -> None:
        opened.extend([peer] if peer in self.distances.near and peer not in self.kernel.links.up else [])
        dial(self, peer, *more, **named)

    monkeypatch.setattr(Neighbourhood, "_ping", ping)

    world = Line(TREE, brokers=16, k=3, alive_s=5.0, idle_s=8.0)
    world.pass_(1800)

    assert gone == []
    assert len(opened) < 200, "neighbours stay connected"
    assert all(len(b.boards.distances.delays) == 15 for b in brokers_of(world).values())


@pytest.mark.parametrize("after", range(8, 15))
def test_when_a_way_becomes_longer_streams_follow_within_a_measurement_period(after: int) -> None:
    """Whenever it happens: just before or just after it was measured, or the tree was looked at."""
    world = Line(TREE)
    clients = [world.pose(REGION, at=at, roams=False) for at in (2, 3)]
    world.tick(after, 1.0)
    before = world.between()

    world.far[2, 3] = 0.08  # it was 0.01; from 0 it is 0.03
    world.rerouted()
    world.tick(int(MEASURE_S) + 3, 1.0)  # until it is measured; then to hear of it, look, and go there

    assert before == {(0, 2): 64, (2, 3): 64}
    assert (2, 3) not in world.between()
    assert all(world.got_all(c, REGION) for c in clients)


@pytest.mark.parametrize("strategy", ["DIRECT", "CTP", TREE])
def test_a_client_that_moves_goes_on_where_it_was(strategy: str) -> None:
    world = Line(strategy)
    mover, other = (world.pose(REGION, at=at, roams=False) for at in (2, 4))
    world.tick(6, 1.0)

    world.move(mover, (PeerId(4),))
    world.tick(6, 1.0)

    assert world.heard(mover) == ["admitted"]
    assert world.got_all(mover, REGION)
    assert world.got_all(other, REGION)
    if strategy != TREE:  # there a relay on the way costs nothing, and others may meet at it
        assert not any(2 in pair for pair in world.between()), "nobody is left at 2"


@pytest.mark.parametrize("strategy", NAMES)
def test_when_all_have_left_nothing_is_left(strategy: str) -> None:
    world = Line(strategy, idle_s=2.0)
    asks = [REGION, box_query(0, 0, 2, 8), box_query(0, 0, 8, 8), box_query(0, 0, 4, 4)]
    clients = [world.pose(ask, at=1 + n % 4, roams=False) for n, ask in enumerate(2 * asks)]
    world.tick(8, 1.0)
    served = [world.got_all(c, ask) for c, ask in zip(clients, 2 * asks, strict=True)]

    for client in clients:
        world.cancel(client, QueryId(1))
    world.pass_(8 * MEASURE_S)

    assert all(served)
    assert list(leftovers(world)) == []
    assert world.between() == {}


def test_a_relay_with_one_receiver_left_is_dissolved_when_it_is_old_enough() -> None:
    world = Line("CTS")
    first, second = (world.pose(REGION, at=at, roams=False) for at in (3, 4))
    world.tick(6, 1.0)
    relayed = world.path(4, "000")

    world.cancel(first, QueryId(1))
    world.tick(8, 1.0)

    assert relayed is not None
    assert len(relayed) > 2
    assert world.path(4, "000") == (0, 4)
    assert world.got_all(second, REGION)


def test_a_large_stream_is_split_so_that_its_part_can_be_merged() -> None:
    """Relays, Algorithm 2: one query alone at a node, another below it, both over the same relay."""
    world = Line("CTP")
    large = world.pose(REGION, at=3, roams=False)
    small_ask = box_query(0, 0, 2, 8)
    small = world.pose(small_ask, at=4, roams=False)
    world.tick(10, 1.0)

    sent = world.between()

    assert world.got_all(large, REGION)
    assert world.got_all(small, small_ask)
    assert sum(n for (a, _), n in sent.items() if a == 0) == 64, "nothing leaves the owner twice"
    assert list(conservation(world)) == []


def test_flows_of_relayed_streams_are_what_is_sent() -> None:
    world = Line("CTP")
    for at in (2, 3, 4, 4, 1):
        world.pose(REGION if at != 3 else box_query(0, 0, 2, 8), at=at, roams=False)
    world.tick(12, 1.0)
    sent: dict[tuple[PeerId, PeerId], int] = {}

    def count(a: PeerId, b: PeerId, message: Any) -> None:
        if isinstance(message, Feed) and message.slabs:
            sent[a, b] = sent.get((a, b), 0) + sum(slab.points for slab in message.slabs)

    expected = flows(world)
    world.on_send = count
    world.tick(1 << GRID.resolution_bits[2])

    assert sent == expected


def test_a_schedule_with_relays_is_the_same_whatever_the_hash_seed() -> None:
    code = (
        "from sensorgrid.simulator.schedules import play;"
        "print([play(seed, trace=True, relayed=True).digest for seed in (3, 4, 5)])"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(digests) == 1


def test_the_budget_holds_with_relays_too() -> None:
    """A full relay refuses; who was redirected there stays where he is."""
    world = Line(TREE, budgets={2: 64})
    clients = [world.pose(REGION, at=at, roams=False) for at in (2, 3, 4)]
    world.tick(12, 1.0)

    assert all(b.boards.outlets.used <= b.boards.outlets.budget for b in brokers_of(world).values())
    assert all(world.got_all(c, REGION) for c in clients)
    assert settings().budget > 64
    assert Never().name == "never"
