"""Simulator and runtime agree: the same script gives the same deliveries and the same final state in both worlds,
and what a broker did over sockets it does again when the recorded events are replayed into another one.
"""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from nets import Client, Net, network, plain, run, truth, until, write_lake
from sensorgrid.configuration.network import Network
from sensorgrid.links.driver import Tap
from sensorgrid.model.ids import Instant, PeerId, QueryId, is_broker
from sensorgrid.model.query import Query
from sensorgrid.overlay.broker import Broker
from sensorgrid.overlay.events import Deliver, Event
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.invariants import broken
from sensorgrid.runtime.host import POLICIES
from sensorgrid.simulator.world import World

NAME = "air_temperature"
WORLD = Query(NAME)
COARSE = Query(NAME, resolution=(1 / 2, 1 / 2, 1 / 2))
EAST = Query(NAME, bbox=(20, -60, 120, 40))
DATE_LINE = Query(NAME, bbox=(150, -30, -150, 30), resolution=(1 / 2, 1, 1))

Step = tuple[Any, ...]
SCRIPTS: dict[str, list[Step]] = {
    "one client, one broker's own region": [("pose", 0, EAST, 0, False), ("tick", 4)],
    "clients that stay share what overlaps": [
        ("pose", 0, WORLD, 0, False), ("pose", 1, COARSE, 0, False), ("tick", 3),
        ("pose", 2, EAST, 1, False), ("tick", 3), ("cancel", 0), ("tick", 2),
    ],
    "clients that roam, and leave": [
        ("pose", 0, DATE_LINE, 3, True), ("tick", 2), ("pose", 1, WORLD, 2, True), ("tick", 2),
        ("cancel", 1), ("cancel", 0), ("tick", 1),
    ],
    "a broker dies and comes back": [
        ("pose", 0, WORLD, 0, False), ("pose", 1, EAST, 1, True), ("tick", 3), ("crash", 3), ("restart", 3),
        ("tick", 3),
    ],
}  # fmt: skip

State = dict[int, tuple[list[Any], list[Any]]]
Got = dict[int, dict[int, bytes]]


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_the_same_script_ends_alike_in_both_worlds(tmp_path: Path, script: list[Step]) -> None:
    plan = network(tmp_path, policy="never", alive=1.0)
    real: list[tuple[Got, State]] = []

    async def story() -> None:
        async with Net(plan) as net:
            real.append(await play_over_sockets(net, script))

    run(story)
    simulated = play_in_the_simulator(plan, script)

    assert real[0][0] == simulated[0], "deliveries"
    assert real[0][1] == simulated[1], "final state of the brokers"
    assert any(real[0][0].values()), "the script delivers nothing"


@pytest.mark.parametrize("policy", ["ours", "paper"])
def test_recorded_events_replayed_into_another_broker_give_the_same_effects(
    tmp_path: Path, policy: str
) -> None:
    plan = network(tmp_path, policy=policy, alive=0.5, budget=20_000)
    records: dict[PeerId, list[tuple[Instant, Event, list[bytes]]]] = {n: [] for n in plan.addresses}

    def recorder(number: PeerId) -> Tap:
        return lambda now, event, effects: records[number].append((now, event, list(map(plain, effects))))

    async def story() -> None:
        async with Net(plan, {number: recorder(number) for number in plan.addresses}) as net:
            for step in range(6):
                client = await net.client(at=step % 4, roams=step % 2 == 0)
                client.pose((WORLD, COARSE, EAST, DATE_LINE)[step % 4], start=net.tick)
                await net.publish()
            await net.publish(2)
            net.clients[0].cancel()
            await net.clients.pop(1).driver.stop()
            await net.publish(1)
            await asyncio.sleep(1.2)  # timers: at least two keepalives

    run(story)

    for number, record in records.items():
        assert len(record) > 20
        twin = Broker(number, plan.grid, plan.settings, POLICIES[policy](), Random(f"broker {number}"))
        for now, event, effects in record:
            assert list(map(plain, twin.handle(event, now))) == effects
        assert broken(twin.boards) == []


# -- one script, two worlds


async def play_over_sockets(net: Net, script: list[Step]) -> tuple[Got, State]:
    clients: dict[int, Client] = {}
    asked: dict[int, Query] = {}

    async def settled() -> None:
        def complete() -> bool:
            return all(_complete(net.network, ask, clients[n].ticks.get((QueryId(1), 0), {}), first[n], net.tick)
                       for n, ask in asked.items())  # fmt: skip

        await until(complete, "every tick at every client")

    first: dict[int, int] = {}
    for step in script:
        match step:
            case ("pose", n, ask, at, roams):
                client = clients[n] = await net.client(at, roams)
                asked[n], first[n] = ask, net.tick
                client.pose(ask, start=net.tick)
                await until(lambda c=client: c.status == "admitted", "admission")
            case ("tick", count):
                await net.publish(count)
                await settled()
            case ("cancel", n):
                clients[n].cancel()
                del asked[n]
                await asyncio.sleep(0.2)
            case ("crash", n):
                write_lake(net, Path(net.network.lake), net.tick)
                await net.crash(n)
            case ("restart", n):
                await net.start(n)
                await until(lambda: all(c.status == "admitted" or c.status == "resumed" for c in clients.values()),
                            "all queries fed", 30)  # fmt: skip
                await until(lambda: _all_fed(clients.values()), "all pieces fed")
    state = {int(n): state_of(host.broker) for n, host in net.hosts.items()}
    assert all(c.doubled == 0 and not c.gaps for c in clients.values())
    return {n: _bytes(c.ticks.get((QueryId(1), 0), {})) for n, c in clients.items()}, state


def _all_fed(clients: Any) -> bool:
    return all(
        p.feed is not None and p.feed.path is not None
        for c in clients
        for q in c.session.queries.values()
        for p in q.pieces
    )


def play_in_the_simulator(plan: Network, script: list[Step]) -> tuple[Got, State]:
    world = World(plan.grid, seed=1)
    for number in plan.addresses:
        world.add_broker(number, plan.settings, POLICIES[plan.options.policy])
    world.assign(list(plan.regions))
    clients: dict[int, PeerId] = {}
    got: dict[PeerId, dict[int, np.ndarray]] = {}

    def note(who: PeerId, block: Deliver) -> None:
        assert block.slabs is not None
        for slab in block.slabs:
            blank = np.full((plan.grid.shape[1], plan.grid.shape[0]), np.nan, np.float32)
            field = got.setdefault(who, {}).setdefault(block.tick, blank)
            at = (slice(*slab.y), slice(*slab.x))
            assert np.isnan(field[at]).all()
            field[at] = slab.values

    world.on_deliver = note
    world.run(1.0)
    tick = 0
    for step in script:
        match step:
            case ("pose", n, ask, at, roams):
                others = tuple(p for p in plan.addresses if p != at)
                entries = (PeerId(at), *(others if roams else ()))
                clients[n] = world.add_client(plan.settings, entries, roams)
                world.submit(clients[n], QueryId(1), ask, tick)
                world.run(world.now + 1)
            case ("tick", count):
                for _ in range(count):
                    for region in plan.regions:
                        box = box_of(plan.grid, region.cell)
                        values = truth(plan.grid, region.attribute, tick)[box.y0 : box.y1, box.x0 : box.x1]
                        world.publish(region.attribute, region.cell, tick, 0, values)
                    world.run(world.now + 0.5)
                    tick += 1
            case ("cancel", n):
                world.cancel(clients[n], QueryId(1))
                world.run(world.now + 1)
            case ("crash", n):
                world.crash(PeerId(n))
            case ("restart", n):
                world.restart(PeerId(n))
                world.run(world.now + 20)
    state = {}
    for number in plan.addresses:
        broker = world.nodes[number].actor
        assert isinstance(broker, Broker)
        state[int(number)] = state_of(broker)
    return {n: _bytes(got.get(peer, {})) for n, peer in clients.items()}, state


def state_of(broker: Broker) -> tuple[list[Any], list[Any]]:
    """Who is fed with what, and where it comes from; not how connections and generations were counted."""
    assert broken(broker.boards) == []
    outlets = broker.boards.outlets
    entries = sorted(
        (int(e.peer) if is_broker(e.peer) else -1, e.attribute, e.cell, repr(e.clip), e.next, e.granted)
        for by_key in outlets.entries.values()
        for e in by_key.values()
    )
    supplies = sorted(
        (s.attribute, s.cell, s.owned, s.path, s.head)
        for by_cell in outlets.supplies.values()
        for s in by_cell.values()
    )
    return entries, supplies


def _bytes(ticks: dict[int, np.ndarray]) -> dict[int, bytes]:
    return {tick: field.tobytes() for tick, field in ticks.items()}


def _complete(plan: Network, ask: Query, ticks: dict[int, np.ndarray], first: int, end: int) -> bool:
    limit, period = ask.limits(plan.grid)[2], 1 << plan.grid.resolution_bits[2]
    wanted = [t for t in range(first, end) if _rank(t % period, period) < limit]
    points = ask.size(plan.grid).points_per_tick
    return all(t in ticks and int((~np.isnan(ticks[t])).sum()) == points for t in wanted)


def _rank(place: int, period: int) -> int:
    """Of a tick within its period: bits reversed, as for columns and rows."""
    bits = period.bit_length() - 1
    return int(format(place, f"0{bits}b")[::-1], 2) if bits else 0
