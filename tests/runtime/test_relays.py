"""Relays over sockets: the same mechanisms that the simulator measures."""

from pathlib import Path
from random import Random

import pytest

from nets import Net, network, plain, run, until
from sensorgrid.links.driver import Tap
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.ids import BROKERS_MAX, Instant, PeerId
from sensorgrid.model.query import Query
from sensorgrid.overlay.broker import Broker
from sensorgrid.overlay.events import Event
from sensorgrid.overlay.invariants import broken
from sensorgrid.overlay.policies.relays import Relays
from sensorgrid.runtime.host import POLICIES

EUROPE = Query("air_temperature", bbox=(-30, 30, 30, 75))


def streams(net: Net) -> dict[tuple[int, int], int]:
    """Points per period that brokers send each other."""
    return {
        (peer, receiver): sum(entry.size for entry in entries.values() if entry.granted)
        for peer, host in net.hosts.items()
        for receiver, entries in host.broker.boards.outlets.entries.items()
        if receiver < BROKERS_MAX
    }


@pytest.mark.parametrize("relays", ["direct", "ctp", "tree"])
def test_clients_that_stay_get_every_point_once_over_relays(tmp_path: Path, relays: str) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, brokers=5, policy="never", relays=relays, alive=2)) as net:
            await until(
                lambda: all(
                    len(h.broker.boards.distances.delays) == 4 or relays == "direct"
                    for h in net.hosts.values()
                ),
                "all distances",
            )
            clients = [await net.client(at=at, roams=False) for at in (0, 1, 2, 3, 4, 4)]
            for client in clients:
                client.pose(EUROPE, start=net.tick)
            await until(lambda: all(c.status == "admitted" for c in clients), "admission")
            for _ in range(6):
                await net.publish()
                tick = net.tick - 1
                await until(lambda t=tick: all(c.has(EUROPE, t) for c in clients), "a tick everywhere")

            assert all(c.is_true(tick) and c.doubled == 0 for c in clients for tick in range(net.tick))
            received: dict[int, int] = {}
            for (_, to), points in streams(net).items():
                received[to] = received.get(to, 0) + points
            whole = net.network.grid.points_per_period
            assert received, "nothing is relayed"
            assert max(received.values()) <= whole, "no broker takes more than there is"

    run(story)


def test_recorded_events_replayed_into_another_broker_give_the_same_effects(tmp_path: Path) -> None:
    plan = network(tmp_path, policy="never", relays="tree", alive=0.5)
    records: dict[PeerId, list[tuple[Instant, Event, list[bytes]]]] = {n: [] for n in plan.addresses}

    def recorder(number: PeerId) -> Tap:
        return lambda now, event, effects: records[number].append((now, event, list(map(plain, effects))))

    async def story() -> None:
        async with Net(plan, {number: recorder(number) for number in plan.addresses}) as net:
            for step in range(8):
                client = await net.client(at=step % 4, roams=False)
                client.pose(EUROPE, start=net.tick)
                await net.publish()
            net.clients[0].cancel()
            await net.clients.pop(1).driver.stop()
            await net.publish(2)

    run(story)

    for number, record in records.items():
        assert len(record) > 20
        twin = Broker(
            number, plan.grid, plan.settings, POLICIES["never"](), Random(f"broker {number}"), Relays("TREE")
        )
        for now, event, effects in record:
            assert list(map(plain, twin.handle(event, now))) == effects
        assert broken(twin.boards) == []


def test_an_unknown_strategy_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(SensorGridError, match=r"relays.*tree"):
        network(tmp_path, relays="best")
