"""One broker over sockets: who may come in, what it says, and how it stops."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nets import HELLO, Client, Net, network, run, until, write_lake
from sensorgrid.links import wire
from sensorgrid.links.driver import Peer, greet
from sensorgrid.links.link import ANSWER_S, LinkError, dial
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import Query
from sensorgrid.overlay.forwarding import PLAN_MIN
from sensorgrid.overlay.invariants import broken
from sensorgrid.overlay.mechanisms import streams
from sensorgrid.runtime import host as host_module
from sensorgrid.runtime.history import read_tail
from servers import PATIENCE_S

EVERYWHERE = Query("air_temperature")
COARSE = Query("air_temperature", bbox=(-90, -45, 90, 45), resolution=(1 / 2, 1 / 2, 1))


@pytest.mark.parametrize("roams", [True, False])
@pytest.mark.parametrize("ask", [EVERYWHERE, COARSE])
def test_a_client_gets_exactly_what_it_asked_for_over_sockets(
    tmp_path: Path, roams: bool, ask: Query
) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            client = await net.client(at=1, roams=roams)
            client.pose(ask)
            await until(lambda: client.status == "admitted", "admission")
            await net.publish(3)
            await until(lambda: all(client.has(ask, t) for t in range(3)), "three ticks")

            assert all(client.is_true(t) for t in range(3))
            assert (client.doubled, client.gaps) == (0, [])

    run(story)


def test_the_standard_error_travels_beside_the_values(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            ask = Query("air_temperature standard_error", bbox=(0, 0, 45, 45))
            client = await net.client()
            client.pose(ask)
            await net.publish()
            await until(lambda: client.has(ask, 0, attribute=1), "a tick of the error")

            assert client.is_true(0, attribute=1)

    run(story)


def test_nothing_is_left_at_the_brokers_after_everybody_has_gone(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            stays, leaves, breaks = [await net.client(at=n, roams=False) for n in (0, 1, 2)]
            for client in (stays, leaves, breaks):
                client.pose(EVERYWHERE)
            await net.publish()
            await until(lambda: all(c.has(EVERYWHERE, 0) for c in (stays, leaves, breaks)), "a tick each")

            stays.cancel()
            leaves.cancel()
            await breaks.driver.stop()

            def entries() -> int:
                return sum(
                    len(e) for h in net.hosts.values() for e in h.broker.boards.outlets.entries.values()
                )

            await until(lambda: entries() == 0, "no entry at any broker")
            for host in net.hosts.values():
                assert broken(host.broker.boards) == []
                supplies = host.broker.boards.outlets.supplies.values()
                assert all(s.owned for by_cell in supplies for s in by_cell.values())

    run(story)


def test_a_broker_that_stops_sends_receivers_to_where_its_streams_come_from(tmp_path: Path) -> None:
    async def story() -> None:
        tables = {"grid": {"region_digits": 1}}
        net = network(tmp_path, 3, **tables)
        async with Net(net) as net_:
            roamer = await net_.client(at=2)
            roamer.pose(EVERYWHERE)
            await net_.publish()
            await until(lambda: roamer.has(EVERYWHERE, 0), "the first tick")

            await net_.hosts.pop(PeerId(2)).stop()
            await net_.publish()
            await until(lambda: roamer.has(EVERYWHERE, 1), "a tick after the stop")

            assert (roamer.doubled, roamer.gaps) == (0, [])

    run(story)


def test_a_block_that_cannot_be_kept_while_the_lake_is_read_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (host_module, streams):
        monkeypatch.setattr(module, "EARLY_MAX", 2)

    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            region = net.network.regions[0]
            host = net.hosts[region.owner]
            supply = host.broker.boards.outlets.supplies[region.attribute][region.cell]
            await until(lambda: supply.path is not None, "the lake to be read")
            answers: list[int] = []
            send = lambda message: answers.append(wire.decode_told(message).tick)  # noqa: E731
            link = SimpleNamespace(send=send, waiting=0)
            peer: Any = SimpleNamespace(link=link)

            def publish(tick: int) -> None:
                shape = host._shape(region.cell)
                block = wire.Publish(region.attribute, region.cell, tick, 0, region.epoch, shape)
                host._publish(peer, wire.encode_publish(block, np.zeros(shape, np.float32)))

            supply.reading = True
            for tick in range(3):
                publish(tick)
            kept = [event.tick for event in supply.early]
            supply.reading = False
            publish(2)

            assert (kept, answers) == ([0, 1], [0, 1, 2])

    run(story)


def test_after_a_crash_the_gateway_reads_the_lake_and_the_stream_goes_on_without_a_gap(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            client = await net.client(at=0, roams=False)
            client.pose(EVERYWHERE)
            await net.publish(2)
            await until(lambda: client.has(EVERYWHERE, 1), "the second tick")
            await net.crash(3)
            write_lake(net, tmp_path / "lake", 4)
            await net.publish(2)  # what broker 3 owns is in the lake only
            await net.start(3)
            await until(lambda: client.has(EVERYWHERE, 3), "a tick that was made during the outage")
            await net.publish(1)
            await until(lambda: client.has(EVERYWHERE, 4), "a tick after it")

            assert all(client.is_true(t) for t in range(5))
            assert (client.doubled, client.gaps) == (0, [])

    run(story)


def test_strangers_are_told_why_they_cannot_come_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            cases = {
                "version": wire.Hello((99,), wire.CLIENT),
                "grid": wire.Hello(wire.VERSIONS, wire.CLIENT, grid="another"),
                "refused": wire.Hello(wire.VERSIONS, wire.BROKER, 77),
            }
            for code, hello in cases.items():
                with pytest.raises(wire.RefusedError, match="expected") as refusal:
                    await greet(net.url(0), hello)
                assert refusal.value.code == code
            with pytest.raises(wire.RefusedError, match="role: found 'tourist'"):
                await greet(net.url(0), wire.Hello(wire.VERSIONS, "tourist"))

    run(story)


def test_what_is_no_greeting_is_answered_with_a_reason(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1)) as net:
            peer = Peer()
            link = await dial(net.url(0), peer)
            link.send(b"\x00nonsense")

            answer = wire.decode_greeting(await asyncio.wait_for(peer.greeting, PATIENCE_S))

            assert isinstance(answer, wire.Sorry)
            assert "expected one of Sensorgrid" in answer.reason

    run(story)


def test_a_newcomer_on_a_busy_machine_may_take_seconds_but_not_for_ever(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1)) as net:
            late, silent = Peer(), Peer()
            link = await dial(net.url(0), late)
            await dial(net.url(0), silent)
            await asyncio.sleep(ANSWER_S / 2)
            link.send(wire.encode_greeting(HELLO))

            assert isinstance(wire.decode_greeting(await late.greeting), wire.Welcome)
            sorry = wire.decode_greeting(await silent.greeting)
            assert isinstance(sorry, wire.Sorry)
            assert sorry.reason == f"found no greeting, expected one within {ANSWER_S:g} s"
            link.close()
            await late.ended.wait()

    run(story)


def test_a_publisher_hears_of_what_cannot_be_taken(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            mine = next(r for r in net.network.regions if r.owner == 0)
            other = next(r for r in net.network.regions if r.owner == 1)
            welcome, peer = await greet(net.url(0), wire.Hello(wire.VERSIONS, wire.PUBLISHER))
            answers: list[wire.Ack] = []
            peer.serve(lambda m: answers.append(wire.decode_told(m)), lambda reason: None)
            assert peer.link is not None
            for region, shape in ((mine, (1, 1)), (other, (16, 32))):
                block = wire.Publish(region.attribute, region.cell, 0, 0, 1, shape)
                peer.link.send(wire.encode_publish(block, np.zeros(shape, np.float32)))
            await until(lambda: len(answers) == 2, "two answers")

            assert "found (1, 1) values, expected (16, 32)" in answers[0].error
            assert "found broker 0 and epoch 1, expected broker 1 and epoch 1" in answers[1].error
            assert [answer.code for answer in answers] == [wire.Refusal.WRONG, wire.Refusal.STALE]
            assert wire.roster_of(welcome) == net.network.roster

    run(story)


def test_garbage_after_the_greeting_ends_the_connection_and_harms_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            good = await net.client()
            good.pose(EVERYWHERE)
            _, bad = await greet(net.url(0), HELLO)
            ends: list[str] = []
            bad.serve(lambda message: None, ends.append)
            assert bad.link is not None
            bad.link.send(b"\x01\xff\xff\xff\xff")
            await until(lambda: ends, "the end of the connection")
            await net.publish()
            await until(lambda: good.has(EVERYWHERE, 0), "a tick for the others")

            assert "1007" in ends[0]

    run(story)


def test_two_brokers_that_dial_each_other_end_with_one_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 2, {"region_digits": 1})) as net:
            # Both want a stream of the other's half at the same moment, before any connection is there.
            clients = [await net.client(at=n, roams=False) for n in (0, 1)]
            for client in clients:
                client.pose(EVERYWHERE)
            await net.publish(3)
            await until(lambda: all(c.has(EVERYWHERE, 2) for c in clients), "all ticks at both")

            a, b = net.hosts[PeerId(0)].driver, net.hosts[PeerId(1)].driver
            assert PeerId(1) in a.peers
            assert PeerId(0) in b.peers
            assert not a.dialling
            assert not b.dialling
            assert all(c.doubled == 0 and not c.gaps for c in clients)

    run(story)


def test_nobody_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(LinkError, match=r"link to ws://127.0.0.1:9"):
            await Client.at("ws://127.0.0.1:9")

    run(story)


def test_compressed_values_are_the_same_values(tmp_path: Path) -> None:
    pytest.importorskip("blosc2")

    async def story() -> None:
        async with Net(network(tmp_path, compress="lz4")) as net:
            hello = wire.Hello(wire.VERSIONS, wire.CLIENT, compress=(wire.LZ4,))
            client = await Client.at(net.url(0), roams=False, hello=hello)
            net.clients.append(client)
            client.pose(EVERYWHERE)
            await net.publish()
            await until(lambda: client.has(EVERYWHERE, 0), "a tick")

            assert client.is_true(0)
            assert all(p.packs for h in net.hosts.values() for p in h.driver.peers.values())

    run(story)


def test_a_block_without_observations_says_so_to_all_but_peers_of_an_older_version(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 2)) as net:
            newer = [await net.client(at=n % 2) for n in range(2 * PLAN_MIN)]
            older = await Client.at(net.url(0), roams=False, hello=wire.Hello((1, 2), wire.CLIENT))
            net.clients.append(older)
            for client in (*newer, older):
                client.pose(EVERYWHERE)
            await net.publish()
            await net.publish(silent_s=float("inf"))
            await net.publish(silent_s=90.0)
            await net.publish()
            for client in (*newer, older):
                await until(lambda c=client: c.has(EVERYWHERE, 3), "all ticks")

            for client in newer:
                assert client.silent_s == {0: {None}, 1: {float("inf")}, 2: {90.0}, 3: {None}}
            assert older.silent_s == {tick: {None} for tick in range(4)}
            assert all(client.is_true(tick) for client in (*newer, older) for tick in range(4))

    run(story)


def test_a_broker_that_reads_the_lake_learns_which_ticks_rest_on_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "tiles" / "attribute=a" / "day=2026-01-01"
    folder.mkdir(parents=True)
    for name, said in (("old", {}), ("new", {"observed_points": 0, "newest_age": None})):
        ticks = (0, 1) if name == "old" else (2, 3)
        rows = [
            {"tick": t, "region": "0", "revision": 0, "width": 1, "height": 1, "values": [t], "error": [0.0]}
            | said
            for t in ticks
        ]
        if said:
            rows[1] |= {"observed_points": 1, "newest_age": 5.0}
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")

    tail = read_tail(str(tmp_path), "a", ["0"], 8)

    for column in ("values", "error"):
        assert [(tick, silent_s) for tick, _, _, silent_s in tail[column]["0"]] == [
            (0, None), (1, None), (2, float("inf")), (3, None),
        ]  # fmt: skip
