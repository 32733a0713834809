"""Who only looks: an observer sees what a broker has, gives and has sent, and takes no part."""

from pathlib import Path

import pytest

from nets import Net, network, run, until
from sensorgrid.links import wire
from sensorgrid.links.observer import Observer
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import Query

EVERYWHERE = Query("air_temperature")


def test_an_observer_sees_clients_streams_and_bytes(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            client = await net.client(at=1, roams=False)
            client.pose(EVERYWHERE)
            await until(lambda: client.status == "admitted", "admission")
            await net.publish(3)
            await until(lambda: all(client.has(EVERYWHERE, t) for t in range(3)), "three ticks")
            found = {}
            for number, address in net.network.addresses.items():
                observer = Observer(address.url)
                found[number] = await observer.ask()
                observer.close()

            target = found[PeerId(1)]
            points = net.network.grid.shape[0] * net.network.grid.shape[1]
            assert target.clients == 1
            assert target.clients_bytes == 3 * 4 * points
            assert any(stream.path is not None and len(stream.path) > 1 for stream in target.streams)
            owned = sum(1 for r in net.network.regions if r.owner == 1 and r.attribute == 0)
            share = owned / sum(1 for r in net.network.regions if r.attribute == 0)
            assert sum(sum(s.values_bytes.values()) for s in found.values()) == 3 * 4 * points * (1 - share)
            for status in found.values():
                assert all(status.sent_bytes[peer] >= count for peer, count in status.values_bytes.items())

    run(story)


def test_an_observer_is_no_client(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            observer = Observer(net.network.addresses[PeerId(0)].url)

            first, second = await observer.ask(), await observer.ask()

            assert (first.clients, second.clients, second.streams) == (0, 0, ())
            assert second.up_s >= first.up_s
            observer.close()

    run(story)


def test_nobody_there_is_none() -> None:
    async def story() -> None:
        assert await Observer("ws://127.0.0.1:9", timeout_s=1).status() is None

    run(story)


def test_a_status_that_is_none_is_told() -> None:
    with pytest.raises(wire.WireError, match="found no status"):
        wire.decode_status(b"nonsense")
