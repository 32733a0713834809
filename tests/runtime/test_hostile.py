"""Peers who mean harm, or are merely broken: the broker stays up, its memory bounded, and everybody else is served."""

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nets import HELLO, Net, network, run, until, write_lake
from sensorgrid.links import wire
from sensorgrid.links.driver import Peer, greet
from sensorgrid.links.link import dial
from sensorgrid.links.packing import can_pack, pack, unpack
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import Query
from sensorgrid.overlay import messages
from sensorgrid.overlay.codec import CodecError, decode, decode_all, encode, mould_of
from sensorgrid.overlay.mechanisms.routing import ASKED_MAX
from sensorgrid.overlay.messages import Clip, Want
from sensorgrid.runtime import history

WORLD = Query("air_temperature")


@pytest.mark.parametrize("generation", [0x5A17_9C3E_60D1_B48F, 0x25E8_63C1_9F2E_4B70, 1, (1 << 63) - 1])
def test_no_generation_is_taken_for_the_place_of_the_tick(generation: int) -> None:
    mould, at = mould_of(generation, 5, (0, 2, 1), (0, 2, 1))

    found = decode(mould[:at] + (77).to_bytes(8) + mould[at + 8 :] + bytes(16))

    assert isinstance(found, messages.Feed)
    assert (found.generation, found.cell, found.tick) == (generation, 5, 77)


def test_many_odd_wishes_of_one_client_do_not_stop_a_broker(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1)) as net:
            _, peer = await greet(net.url(0), HELLO)
            heard: list[bytes] = []
            peer.serve(heard.append, lambda reason: None)
            clip = Clip((0, 32, 0, 16), (4, 4, 4))
            assert peer.link is not None
            for generation in (*range(1, 9), 0x5A17_9C3E_60D1_B48F):
                peer.link.send(encode(Want(generation, 0, ((4, 2048, 0),), clip)))
            await net.publish(2)
            await until(lambda: len(heard) >= 9, "what was asked for")

            assert not net.hosts[PeerId(0)].driver.failed.done()
            peer.close()
            await peer.ended.wait()

    run(story)


@pytest.mark.parametrize(
    ("tick", "revision"), [(1 << 53, 0), (-5, 0), ((1 << 64) - 1, 0), (1, 1 << 15), (1, -1)]
)
def test_ticks_and_revisions_that_cannot_be_are_refused(tmp_path: Path, tick: int, revision: int) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1)) as net:
            client = await net.client()
            client.pose(WORLD)
            _, peer = await greet(net.url(0), wire.Hello(wire.VERSIONS, wire.PUBLISHER))
            answers: list[wire.Ack] = []
            peer.serve(lambda m: answers.append(wire.decode_told(m)), lambda reason: None)
            assert peer.link is not None
            block = wire.Publish(0, 4, tick, revision, 1, (16, 32))
            peer.link.send(wire.encode_publish(block, np.zeros((16, 32), np.float32)))
            await until(lambda: answers, "an answer")
            await net.publish()
            await until(lambda: client.has(WORLD, 0), "a tick as it should be")

            assert "expected a tick up to" in answers[0].error
            peer.close()
            await peer.ended.wait()

    run(story)


def test_a_client_that_asks_and_does_not_read_is_disconnected(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1, waiting_bytes=1 << 17)) as net:
            _, peer = await greet(net.url(0), HELLO)
            ends: list[str] = []
            peer.serve(lambda message: None, ends.append)
            assert peer.link is not None
            peer.link._under.pause_reading()  # type: ignore[attr-defined]
            driver = net.hosts[PeerId(0)].driver
            question = encode(messages.Ask(1, 0, tuple(range(1 << 12, 1 << 13))))
            for _ in range(3000):
                peer.link.send(question)
                await asyncio.sleep(0)
                if not driver.peers:
                    break
            await until(lambda: not driver.peers, "the end of the connection")
            peer.link._under.resume_reading()  # type: ignore[attr-defined]
            await until(lambda: ends, "the news of it")

            assert net.hosts[PeerId(0)].clients == 0

    run(story)


NESTED = b"\x91" * 100_000 + b"\xc0"
"""a list in a list in a list"""


def nested_hello() -> bytes:
    """A greeting with a field more, which nobody reads, and which has no end."""
    greeting = msgspec.msgpack.decode(wire.encode_greeting(HELLO))
    head = msgspec.msgpack.encode(greeting | {"more": None})
    return head[:-1] + NESTED


@pytest.mark.parametrize(
    "first", [nested_hello(), NESTED, b"", b"\xff" * 9], ids=["field", "list", "empty", "odd"]
)
def test_a_greeting_without_end_closes_its_connection_and_nothing_else(tmp_path: Path, first: bytes) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1)) as net:
            peer = Peer()
            await dial(net.url(0), peer)
            assert peer.link is not None
            peer.link.send(first)
            await until(lambda: peer.gone is not None, "the end of the connection")

            client = await net.client()
            client.pose(WORLD)
            await net.publish()
            await until(lambda: client.has(WORLD, 0), "a tick for somebody else")
            assert not net.hosts[PeerId(0)].driver.failed.done()

    run(story)


@pytest.mark.parametrize(
    "asked",
    [
        wire.ASK_SENSORS + b"\x81\xa4more" + NESTED,
        wire.encode_ask_sensors(wire.AskSensors(bbox=(0.0, 10.0, 20.0, 0.0))),
        wire.encode_ask_sensors(wire.AskSensors(bbox=(-1e308, -1e308, 1e308, 1e308))),
    ],
    ids=["without end", "south above north", "beyond everything"],
)
def test_an_odd_question_for_sensors_is_answered_or_ends_its_connection(tmp_path: Path, asked: bytes) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1)) as net:
            _, peer = await greet(net.url(0), wire.Hello(wire.VERSIONS, wire.OBSERVER))
            heard: list[bytes] = []
            peer.serve(heard.append, lambda reason: None)
            assert peer.link is not None
            peer.link.send(asked)
            await until(lambda: heard or peer.gone is not None, "an answer, or the end")

            assert not net.hosts[PeerId(0)].driver.failed.done()
            peer.close()
            await peer.ended.wait()

    run(story)


def test_a_message_without_end_closes_its_connection_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1)) as net:
            _, peer = await greet(net.url(0), HELLO)
            peer.serve(lambda message: None, lambda reason: None)
            assert peer.link is not None
            body = b"\x95\xa5Leave\x01\x90" + NESTED + b"\xc0"
            peer.link.send(b"\x01" + len(body).to_bytes(4, "little") + body)
            await until(lambda: peer.gone is not None, "the end of the connection")

            assert not net.hosts[PeerId(0)].driver.failed.done()

    run(story)


def test_a_question_for_a_million_cells_is_answered_for_some_of_them(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1)) as net:
            _, peer = await greet(net.url(0), HELLO)
            heard: list[messages.Message] = []
            peer.serve(lambda frame: heard.extend(decode_all(frame)), lambda reason: None)
            assert peer.link is not None
            cells = (*[1] * 100_000, *range(2, ASKED_MAX + 1_000))
            peer.link.send(encode(messages.Ask(1, 0, cells)))
            await until(lambda: len(heard) >= 2, "two answers")

            found = [item for message in heard for item in message.items]  # type: ignore[attr-defined]
            assert len(found) < 4 * ASKED_MAX
            assert {cell for cell, _ in found} >= set(range(ASKED_MAX + 1, ASKED_MAX + 1_000))
            peer.close()
            await peer.ended.wait()

    run(story)


def test_clients_that_are_no_longer_needed_are_not_counted(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1)) as net:
            host = net.hosts[PeerId(0)]
            client = await net.client()
            assert host.clients == 1

            host.driver._disconnect(next(iter(host.driver.peers)))

            assert host.clients == 0
            await until(lambda: not client.driver.peers, "the client's notice")

    run(story)


@pytest.mark.skipif(not can_pack(), reason="blosc2 is not installed")
def test_a_small_message_cannot_make_us_allocate_much() -> None:
    bomb = pack(bytes(64 << 20))

    with pytest.raises(CodecError, match="expected 4096"):
        unpack(bomb, 4096)


def test_the_tail_of_a_lake_with_a_hole_is_read_from_the_last_days_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    original = history._read

    def noted(files: object, path: str, regions: list[str]) -> pa.Table:
        opened.append(path)
        return original(files, path, regions)

    monkeypatch.setattr(history, "_read", noted)
    for day in range(5):
        folder = tmp_path / "tiles" / "attribute=a" / f"day=2026-01-0{day + 1}"
        folder.mkdir(parents=True)
        rows = [
            {"tick": t, "region": "0", "revision": 0, "width": 1, "height": 1, "values": [t], "error": [0.0]}
            for t in range(10 * day, 10 * day + 10)
            if t != 47
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / "x.parquet")

    tail = history.read_tail(str(tmp_path), "a", ["0"], 8)

    assert [tick for tick, *_ in tail["values"]["0"]] == [42, 43, 44, 45, 46, 48, 49]
    assert len(opened) == 1


def test_a_lake_of_another_grid_is_not_fed_to_anybody(tmp_path: Path) -> None:
    async def story() -> None:
        small = Net(network(tmp_path, 1, {"shape": [32, 16]}))
        write_lake(small, tmp_path / "lake", 3)
        async with Net(network(tmp_path, 1)) as net:
            net.tick = 3
            client = await net.client()
            client.pose(WORLD, start=3)
            await net.publish()
            await until(lambda: client.has(WORLD, 3), "a tick")

            assert client.is_true(3)

    run(story)
