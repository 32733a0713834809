"""Operators against real brokers on loopback: what the network calculates is what NumPy says."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

import sensorgrid
from net_thread import NetThread
from nets import Net, network, run, truth, until
from sensorgrid import Operator
from sensorgrid.client.results import AsyncResults
from sensorgrid.model.errors import SensorGridError
from servers import PATIENCE_S

T, W = "air_temperature", "wind_speed"
GRID = {"attributes": [T, W]}


async def some(results: AsyncResults, count: int) -> list[object]:
    return [await asyncio.wait_for(anext(results), PATIENCE_S) for _ in range(count)]


def mean_of(net: Net, tick: int, rows: slice = slice(None), columns: slice = slice(None)) -> float:
    grid = net.network.grid
    south, north = grid.extent[1], grid.extent[3]
    latitude = south + (np.arange(grid.shape[1]) + 0.5) * (north - south) / grid.shape[1]
    values = truth(grid, 0, tick)[rows, columns].astype(float)
    weights = np.broadcast_to(np.cos(np.radians(latitude))[rows, None], values.shape)
    return float((values * weights).sum() / weights.sum())


@pytest.mark.parametrize("at", range(4))
def test_a_mean_over_regions_of_four_brokers_arrives_as_one_number(tmp_path: Path, at: int) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(at)) as grid:
            results = grid.watch(Operator(f"mean({T})", name="warmth"), after=-1)
            await net.publish(3)
            found = await some(results, 3)

            for tick, result in enumerate(found):
                assert result.item() == pytest.approx(mean_of(net, tick), rel=1e-6)
                assert (result.tick.item(), result.points.item(), result.coverage.item()) == (
                    tick,
                    64 * 32,
                    1.0,
                )
                assert np.isfinite(result.standard_error.item())
                assert result.attrs["units"] == "K"
                assert result.attrs["revision"] == 0
            assert results.status == "running"

    run(story)


def test_an_area_and_a_condition_are_judged_in_the_network(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(2)) as grid:
            quarter = grid.stream(Operator(f"mean({T}, BBOX(0, 0, 180, 90))"), after=-1)
            late = grid.watch(Operator(f"max({T})", when=f"min({T}) > 15000"), after=-1)
            await net.publish(4)

            found = await some(quarter, 4)
            assert [r.item() for r in found] == pytest.approx(
                [mean_of(net, tick, slice(16, 32), slice(32, 64)) for tick in range(4)], rel=1e-6
            )
            assert [r.tick.item() for r in await some(late, 2)] == [2, 3]

    run(story)


def test_a_watcher_that_leaves_leaves_nothing_behind(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(1)) as grid:
            results = [grid.watch(f"mean({T}) + {n}", after=-1) for n in range(5)]
            await net.publish(1)
            for one in results:
                await some(one, 1)
                one.close()

            await until(
                lambda: not any(host.broker.boards.nodes for host in net.hosts.values()), "an empty network"
            )

    run(story)


def test_a_broker_that_crashes_and_comes_back_is_missed_by_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            results = grid.watch(f"mean({T})", after=-1, revisions=True)
            await net.publish(2)
            await some(results, 2)

            await net.crash(2)
            await net.start(2)
            await net.publish(2)

            whole = {}
            while not {2, 3} <= {tick for tick, revision in whole.items() if revision == 0}:
                (result,) = await some(results, 1)
                whole[result.tick.item()] = result.attrs["revision"]
                if result.attrs["revision"] == 0:
                    assert result.item() == pytest.approx(mean_of(net, result.tick.item()), rel=1e-6)

    run(story)


def test_a_mistake_is_told_with_its_place_before_anything_is_asked(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 1, grid=GRID)) as net, await sensorgrid.aconnect(net.url(0)) as grid:
            with pytest.raises(SensorGridError, match="expected air_temperature, perhaps"):
                grid.watch("mean(air_temprature)")

    run(story)


def test_programs_without_a_loop_get_the_same(tmp_path: Path) -> None:
    with NetThread(tmp_path, grid=GRID) as net, sensorgrid.connect(net.url(1)) as grid:
        with grid.stream(Operator(f"mean({T})"), after=-1) as results:
            net.publish(2)
            found = results.take(2)

        assert [r.item() for r in found] == pytest.approx([mean_of(net.net, t) for t in range(2)], rel=1e-6)
        assert results.status == "ended"
