"""The asynchronous client against real brokers on loopback."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import sensorgrid
from nets import Net, network, run, truth, until
from sensorgrid import Query
from sensorgrid.client import connection
from sensorgrid.client.connection import AsyncClient
from sensorgrid.client.fields import Field
from sensorgrid.links import wire
from sensorgrid.links.driver import Peer, greet
from sensorgrid.model.block import Slab
from sensorgrid.model.errors import QueryError, UnknownAttributeError
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.events import Published
from sensorgrid.overlay.messages import Feed
from servers import PATIENCE_S, Stopped

T, W = "air_temperature", "wind_speed"
GRID = {"attributes": [T, W]}
BOX = Query(T, bbox=(-45, -45, 45, 45))


def check(net: Net, field: Field, tick: int, name: str = T) -> None:
    """A field has the published values at its own coordinates, and the error beside them."""
    grid = net.network.grid
    array = field[name] if name in getattr(field, "data_vars", ()) else field
    ix, iy = grid.indices_of(*np.meshgrid(array.longitude.values, array.latitude.values))
    place = grid.attributes.index(name)
    assert array.tick == tick
    assert array.time.values == np.datetime64(grid.time_of(tick).replace(tzinfo=None))
    assert np.array_equal(array.values, truth(grid, place, tick)[iy, ix])
    beside = f"{name}_standard_error"
    if beside in array.coords:
        error = truth(grid, grid.attributes.index(name + " standard_error"), tick)[iy, ix]
        assert np.array_equal(array[beside].values, error)


async def some(stream: object, count: int) -> list[Field]:
    return [await asyncio.wait_for(stream.__anext__(), PATIENCE_S) for _ in range(count)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("roams", [True, False])
def test_a_stream_gives_labelled_fields_tick_by_tick(tmp_path: Path, roams: bool) -> None:
    async def story() -> None:
        async with (
            Net(network(tmp_path, grid=GRID)) as net,
            await sensorgrid.aconnect(net.url(1), roams=roams) as grid,
        ):
            stream = grid.stream(BOX, after=-1)
            await net.publish(3)
            fields = await some(stream, 3)

            for tick, field in enumerate(fields):
                check(net, field, tick)
            assert fields[0].dims == ("latitude", "longitude")
            assert fields[0].name == T
            assert fields[0].attrs["units"] == "K"
            assert fields[0].attrs["ancillary_variables"] == "air_temperature_standard_error"
            assert (stream.doubled_points, stream.missing_points, stream.status) == (0, 0, "running")

    run(story)


def test_several_attributes_give_a_dataset_and_errors_can_be_left_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            both = grid.stream(Query((W, T), (160, -45, -160, 45), (0.75, 0.5, 1)), after=-1, errors=False)
            await net.publish(1)
            (field,) = await some(both, 1)

            assert list(field.data_vars) == [W, T]
            assert set(field.coords) == {"latitude", "longitude", "time", "tick"}
            check(net, field, 0, W)
            check(net, field, 0, T)
            assert (np.diff(field.longitude) > 0).all()
            assert field.longitude.values[-1] > 180

    run(story)


def test_a_query_for_half_of_the_ticks_and_one_with_an_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            half = grid.stream(Query(T, BOX.bbox, (1, 1, 0.5)), after=-1)
            ends = grid.stream(Query(T, BOX.bbox, start="1970-01-01T00:00:01Z", duration=3))
            await net.publish(6)

            assert [int(f.tick) for f in await some(half, 3)] == [0, 2, 4]
            assert [int(f.tick) async for f in ends] == [1, 2, 3]
            assert ends.status == "ended"

    run(story)


def test_overlapping_queries_cross_the_link_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            points = [0]

            def tap(now: float, event: object, effects: object) -> None:
                messages = getattr(event, "messages", (getattr(event, "message", None),))
                for message in messages:
                    if isinstance(message, Feed):
                        points[0] += sum(slab.points for slab in message.slabs or ())

            grid.driver.tap = tap
            one = Query(T, (-90, -45, 90, 45))
            other = Query(T, (-45, -60, 135, 30), (0.5, 0.5, 1))
            streams = [grid.stream(query, after=-1, errors=False) for query in (one, other, one)]
            shared = grid.explain(other, errors=False).shared_points_per_tick
            await net.publish(2)
            for stream in streams:
                for tick, field in enumerate(await some(stream, 2)):
                    check(net, field, tick)

            alone = [query.size(grid.grid).points_per_tick for query in (one, other)]
            masks = np.zeros((2, 32, 64), bool)
            for mask, query in zip(masks, (one, other), strict=True):
                assembly = streams[(one, other).index(query)].demand.assembly
                mask[np.ix_(assembly.y.indices, assembly.x.indices)] = True
            assert points[0] == 2 * masks.any(axis=0).sum() < 2 * sum(alone)
            assert shared == alone[1]  # all of it runs already

    run(story)


def test_the_newest_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "datetime", Stopped)

    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            net.tick = Stopped.TICK - 3
            await net.publish(3)

            field = await grid.latest(BOX)

            check(net, field, net.tick - 1)
            assert grid.sharing.demands == {}

    run(story)


def test_the_newest_field_is_one_with_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "datetime", Stopped)

    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            net.tick = Stopped.TICK - 3
            await net.publish(2)
            for region in net.network.regions:
                lacking = Published(region.attribute, region.cell, net.tick, 0, region.epoch, None)
                net.hosts[region.owner].driver.feed(lacking)

            check(net, await grid.latest(BOX), net.tick - 1)

    run(story)


def test_the_newest_field_of_a_silent_network_times_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            with pytest.raises(sensorgrid.TimedOut, match="found no tick since"):
                await grid.latest(BOX, timeout_s=2.0)
            assert grid.sharing.demands == {}

    run(story)


def test_a_field_at_a_time_waits_until_it_is_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            fields = grid.field(Query(T, BOX.bbox, (1, 1, 0.5)))
            early = asyncio.create_task(fields.at("1970-01-01T00:00:03.5Z"))
            await asyncio.sleep(0.3)
            assert not early.done()
            await net.publish(6)

            check(net, await early, 2)
            first = fields._stream
            check(net, await fields.at(np.datetime64("1970-01-01T00:00:05")), 4)
            assert fields._stream is first  # going forward costs one stream
            check(net, await fields.at(np.datetime64("1970-01-01T00:00:03")), 2)  # still at hand
            assert fields._stream is first
            check(net, await fields.at(np.datetime64("1970-01-01T00:00:01")), 0)  # back again
            with pytest.raises(sensorgrid.TimedOut, match="found none within"):
                await fields.at("1970-01-01T00:05Z", timeout_s=0.2)
            with pytest.raises(QueryError, match="without a time zone"):
                await fields.at("1970-01-01T00:05")

    run(story)


def test_a_slow_consumer_loses_nothing_and_memory_stays_bounded(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            stream = grid.stream(BOX, after=-1, buffer=3)
            other = grid.stream(Query(T, (0, 0, 90, 60)), after=-1)
            for _ in range(12):
                await net.publish(1)
                await asyncio.sleep(0.01)
            await until(lambda: stream.status == "paused", "a pause")
            assert stream.waiting == 3
            quick = await some(other, 12)

            slow = await some(stream, 12)

            assert [int(f.tick) for f in slow] == [int(f.tick) for f in quick] == list(range(12))
            assert stream.pauses >= 2
            assert (stream.doubled_points, stream.missing_points) == (0, 0)

    run(story)


def test_revisions_that_do_not_fit_are_given_before_the_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            query = Query(T, BOX.bbox, start="1970-01-01T00:00:00Z", duration=5)
            stream = grid.stream(query, errors=False, revisions=True, buffer=1)
            await net.publish(5)
            ticks = [int(f.tick) for f in await some(stream, 4)]
            assembly = stream.demand.assembly
            await until(lambda: assembly.ended, "the last tick")
            whole = Slab((0, 32, 1), (0, 64, 1), truth(net.network.grid, 0, 90))
            for tick in range(5):
                assembly.add(0, tick, 1, [whole])
            stream.update()

            ticks += [int(f.tick) async for f in stream]

            assert ticks == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]

    run(story)


def test_what_the_network_no_longer_has_comes_as_a_gap_with_its_name(tmp_path: Path) -> None:
    async def story() -> None:
        options = {"ring_ticks": 8}
        async with (
            Net(network(tmp_path, grid=GRID, **options)) as net,
            await sensorgrid.aconnect(net.url(0)) as grid,
        ):
            await net.publish(12)
            fields = await some(grid.stream(BOX, after=-1, errors=False), 12)

            assert [int(f.tick) for f in fields] == list(range(12))
            blank = [bool(np.isnan(f.values).all()) for f in fields]
            assert blank == [True] * 4 + [False] * 8
            assert fields[0].attrs["missing_points"] == fields[0].size
            assert "-45" in fields[0].attrs["gaps"]
            assert "gaps" not in fields[-1].attrs

    run(story)


def test_the_client_goes_on_when_its_broker_dies_and_comes_back_when_all_do(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            Net(network(tmp_path, 3, grid=GRID)) as net,
            await sensorgrid.aconnect([net.url(2), net.url(0)]) as grid,
        ):
            stream = grid.stream(BOX, after=-1)
            await net.publish(2)
            await some(stream, 2)
            owner = {r.owner for r in net.network.regions}
            for number in owner:
                await net.crash(number)
            await until(lambda: stream.status == "suspended", "suspension")
            for number in owner:
                await net.start(number)
            await net.publish(2)

            fields = await some(stream, 2)

            for tick, field in zip((2, 3), fields, strict=True):
                check(net, field, tick)

    run(story)


def test_a_network_that_comes_back_with_another_grid_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            stream = grid.stream(BOX, after=-1)
            await net.publish(1)
            await some(stream, 1)
            await net.crash(0)
            other = network(tmp_path, 1, grid=GRID | {"tick": 2.0})
            there = replace(other.roster, members=net.network.roster.members)
            net.network = replace(other, roster=there, listens=net.network.listens)
            await net.start(0)

            with pytest.raises(sensorgrid.GridMismatch, match="connect again"):
                await some(stream, 1)
            with pytest.raises(sensorgrid.ConnectionLost, match="grid"):
                grid.stream(BOX)

    run(story)


def test_a_stream_goes_on_from_its_resume_file_after_its_own_death(tmp_path: Path) -> None:
    async def story() -> None:
        place = tmp_path / "place.json"
        async with Net(network(tmp_path, grid=GRID)) as net:
            async with await sensorgrid.aconnect(net.url(0)) as grid:
                stream = grid.stream(BOX, after=-1, resume=place)
                await net.publish(4)
                await some(stream, 3)  # 0 and 1 are processed, 2 was being processed
                assert '"next": 2' in place.read_text()

            async with await sensorgrid.aconnect(net.url(1)) as grid:
                again = grid.stream(BOX, after=-1, resume=place)
                assert [int(f.tick) for f in await some(again, 2)] == [2, 3]
                await again.commit()
                assert '"next": 4' in place.read_text()
                with pytest.raises(sensorgrid.QueryMismatch, match="other bbox"):
                    grid.stream(Query(T, (0, 0, 45, 45)), resume=place)
        other = network(tmp_path, grid=GRID | {"tick": 2.0})
        async with Net(other) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            with pytest.raises(sensorgrid.GridMismatch, match="remove the file"):
                grid.stream(BOX, resume=place)

    run(story)


def test_a_query_without_room_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def story() -> None:
        options = {"budget": 2000, "policy": "never"}
        async with (
            Net(network(tmp_path, 1, grid=GRID, **options)) as net,
            await sensorgrid.aconnect(net.url(0)) as grid,
        ):
            small = grid.stream(Query(T, (0, 0, 45, 45)), after=-1)
            with pytest.raises(sensorgrid.QueryRefused, match="no bandwidth left") as refusal:
                await anext(grid.stream(Query((T, W)), after=-1))
            await net.publish(1)

            check(net, (await some(small, 1))[0], 0)
            assert refusal.value.reason == "no bandwidth left"

    run(story)


def test_mistakes_are_told_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            with pytest.raises(UnknownAttributeError, match="expected one of air_temperature, wind_speed"):
                grid.stream(Query("rain"))
            with pytest.raises(QueryError, match="buffer: found 0"):
                grid.stream(BOX, buffer=0)
            with pytest.raises(sensorgrid.ResumeError, match="found no folder"):
                grid.stream(BOX, resume=tmp_path / "no" / "place")
            with pytest.raises(QueryError, match="method"):
                grid.stream(BOX, onto=BOX, method="cubic")  # type: ignore[arg-type]
        with pytest.raises(sensorgrid.ConnectionLost, match="closed here"):
            grid.stream(BOX)

    run(story)


def test_nobody_there_is_an_error_that_names_all_who_were_tried() -> None:
    async def story() -> None:
        with pytest.raises(sensorgrid.NotConnected, match=r"127.0.0.1:1.*127.0.0.1:2"):
            await sensorgrid.aconnect("ws://127.0.0.1:1, ws://127.0.0.1:2")
        with pytest.raises(sensorgrid.NotConnected, match="url: found 'http://x'"):
            await sensorgrid.aconnect("http://x")

    run(story)


def test_closing_leaves_nothing_at_the_brokers_and_wakes_those_who_wait(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net:
            grid = await sensorgrid.aconnect(net.url(0))
            stream = grid.stream(BOX, after=-1)
            waiting = asyncio.create_task(anext(stream))
            await until(lambda: stream.status == "running", "admission")
            await grid.aclose()

            with pytest.raises(sensorgrid.ConnectionLost):
                await waiting

            def entries() -> int:
                return sum(
                    len(e) for h in net.hosts.values() for e in h.broker.boards.outlets.entries.values()
                )

            await until(lambda: entries() == 0, "no entry at any broker")

    run(story)


def test_a_client_that_has_given_up_still_closes_its_connections(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net:
            grid = await sensorgrid.aconnect(net.url(0))
            stream = grid.stream(BOX, after=-1)
            await until(lambda: stream.status == "running", "admission")
            grid._give_up(sensorgrid.GridMismatch("another grid"))
            assert grid.closed

            await grid.aclose()

            assert (grid.driver.peers, grid.sharing.demands) == ({}, {})
            with pytest.raises(sensorgrid.GridMismatch, match="another grid"):
                await anext(stream)
            with pytest.raises(sensorgrid.ConnectionLost, match="another grid"):
                grid.stream(BOX)

    run(story)


def test_breaking_out_of_a_stream_and_closing_it_ends_the_query(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            await net.publish(3)
            async with grid.stream(BOX, after=-1) as stream:
                async for field in stream:
                    if field.tick == 1:
                        break

            assert isinstance(grid, AsyncClient)
            assert grid.sharing.demands == {}
            assert grid._streams == {}
            assert PeerId(0) in grid.brokers

    run(story)


def test_streams_that_have_ended_are_forgotten_whatever_else_happens(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            ends, slow = grid.stream(BOX), grid.stream(BOX)
            over = grid.stream(Query(T, start="1970-01-01T00:00:00Z", duration=3), after=5)
            slow.update = lambda: grid.sharing.pause(slow.demand)  # type: ignore[method-assign]
            grid.sharing.touched[slow.demand] = None

            ends.close()

            assert [f async for f in over] == []
            assert list(grid._streams.values()) == [slow]

    run(story)


def test_a_broker_whose_grid_is_not_understood_is_left_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net:
            greeted: list[Peer] = []

            async def strange(url: str, *args: Any, **options: Any) -> tuple[wire.Welcome, Peer]:
                welcome, peer = await greet(url, *args, **options)
                greeted.append(peer)
                if url == net.url(0):
                    welcome = msgspec.structs.replace(welcome, grid=welcome.grid | {"colour": "red"})
                return welcome, peer

            monkeypatch.setattr("sensorgrid.client.connection.greet", strange)
            async with await sensorgrid.aconnect([net.url(0), net.url(1)]) as grid:
                assert grid.url == net.url(1)
                await until(lambda: greeted[0].gone is not None, "the end of the first connection")
            with pytest.raises(sensorgrid.NotConnected, match=r"grid: found .*colour"):
                await sensorgrid.aconnect(net.url(0))
            await until(lambda: greeted[-1].gone is not None, "the end of the connection")

    run(story)
