"""What of a query flows already: against counting points one by one, and in a network that runs."""

import asyncio
import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from nets import Net, network, run, until
from sensorgrid.cli.main import app
from sensorgrid.client.live import Survey, judge, survey
from sensorgrid.index.cell import Cell
from sensorgrid.links import wire
from sensorgrid.links.link import LinkError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import Query
from sensorgrid.model.resolution import reverse_bits
from sensorgrid.overlay.roster import Member, Region, Roster, Terms
from sensorgrid.overlay.settings import Settings

GRID = Grid(
    shape=(16, 8),
    resolution_bits=(1, 1, 1),
    region_digits=2,
    attributes=("air_temperature", "relative_humidity"),
)
OWNERS = (0, 1, 1, 2)
REGIONS = tuple(
    Region(attribute, Cell.parse(name).code, PeerId(owner), 1)
    for attribute in range(2)
    for name, owner in zip(("00", "01", "10", "11"), OWNERS, strict=True)
)
ROSTER = Roster(3, Terms.of(GRID, Settings(budget=1)), tuple(Member(PeerId(n)) for n in range(3)), REGIONS)


def status(streams: tuple[wire.SupplyStatus, ...] = (), broker: int = 0) -> wire.Status:
    return wire.Status(broker, "", 0.0, 0, (), 0, {}, {}, 0, streams, {})


def points(box: tuple[int, int, int, int], limits: tuple[int, int, int]) -> set[tuple[int, int, int]]:
    """All points of one period that a box at these ranks wants."""
    x0, x1, y0, y1 = box
    return {
        (x % 16, y, t)
        for x, y, t in product(range(x0, x1), range(y0, y1), range(2))
        if reverse_bits(x % 2, 1) < limits[0]
        and reverse_bits(y % 2, 1) < limits[1]
        and reverse_bits(t, 1) < limits[2]
    }


boxes = st.builds(
    lambda x0, w, y0, h: (x0, x0 + w, y0, min(y0 + h, 8)),
    st.integers(0, 15), st.integers(1, 16), st.integers(0, 7), st.integers(1, 8),
)  # fmt: skip
limits = st.tuples(*[st.integers(1, 2)] * 3)
resolutions = st.sampled_from([0.5, 1.0])


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 1), boxes, limits), max_size=6), st.data())
def test_overlaps_are_those_of_counting_points_one_by_one(
    rows: list[tuple[int, tuple[int, int, int, int], tuple[int, int, int]]], data: st.DataObject
) -> None:
    west, south = data.draw(st.integers(-180, 90)), data.draw(st.integers(-90, 0))
    asked = data.draw(st.tuples(resolutions, resolutions, resolutions))
    query = Query("air_temperature", bbox=(west, south, west + 80, south + 70), resolution=asked)
    box, least = query.box(GRID), query.limits(GRID)
    mine = points((box.x0, box.x1, box.y0, box.y1), least)
    told = [
        wire.Receivers(n % 3, (wire.Receiver(n, attribute, theirs, ranks, 1, 7),), 0)
        for n, (attribute, theirs, ranks) in enumerate(rows)
    ]

    live = judge(query, Survey(GRID, ROSTER, status(), tuple(told)))

    expected = {
        n: len(mine & points(theirs, ranks)) / 2
        for n, (attribute, theirs, ranks) in enumerate(rows)
        if attribute == 0 and mine & points(theirs, ranks)
    }
    assert {one.client: one.shared_per_tick for one in live.overlapping} == expected
    assert live.running == len(rows)
    assert live.points_per_tick == len(mine) / 2


@settings(max_examples=60)
@given(
    st.sets(st.text("01", min_size=2, max_size=6).map(lambda digits: Cell.parse(digits)), max_size=4),
    st.data(),
)
def test_what_a_broker_lacks_is_what_neither_its_regions_nor_its_streams_hold(
    cells: set[Cell], data: st.DataObject
) -> None:
    west, south = data.draw(st.integers(-180, 90)), data.draw(st.integers(-90, 0))
    query = Query("air_temperature", bbox=(west, south, west + 80, south + 70))
    box = query.box(GRID)
    mine = points((box.x0, box.x1, box.y0, box.y1), query.limits(GRID))
    streams = tuple(wire.SupplyStatus(0, cell.code, (1, 0), 1, (), 1) for cell in cells)

    live = judge(query, Survey(GRID, ROSTER, status(streams), ()))

    here = {p for p in mine if any(cell.contains(Cell.of_point(GRID, *p)) for cell in cells)}
    owned = {p: r.owner for p in mine for r in REGIONS[:4] if Cell(r.cell).contains(Cell.of_point(GRID, *p))}
    lacking = [owner for p, owner in owned.items() if p not in here and owner != 0]
    expected = {owner: lacking.count(owner) / len(mine) for owner in sorted(set(lacking))}
    assert live.from_owners == pytest.approx(expected)
    assert live.here == pytest.approx(1 - len(lacking) / len(mine))


def test_a_box_that_several_brokers_feed_is_one() -> None:
    row = wire.Receiver(9, 0, (0, 16, 0, 8), (2, 2, 2), 2, 64)
    told = [wire.Receivers(broker, (row,), 3) for broker in (1, 2)]

    live = judge(Query("air_temperature"), Survey(GRID, ROSTER, status(), tuple(told)))

    (one,) = live.overlapping
    assert (one.brokers, one.points_per_tick, live.running, live.left_off) == ((1, 2), 64.0, 1, 6)


def test_a_running_network_says_who_wants_the_same(tmp_path: Path) -> None:
    quarter = Query("air_temperature", bbox=(-180, -90, 0, 90))

    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            client = await net.client(at=1, roams=False)
            client.pose(quarter)
            await until(lambda: client.status == "admitted", "admission")

            seen = await survey(net.network.addresses[PeerId(1)].url)
            grid, live = seen.grid, judge(Query("air_temperature"), seen)

            assert grid == net.network.grid
            (one,) = live.overlapping
            assert one.shared_per_tick == quarter.size(grid).points_per_tick
            assert one.brokers == (1,)
            assert (live.broker, live.silent, live.left_off) == (1, {}, 0)
            alone = judge(Query("air_temperature"), await survey(net.network.addresses[PeerId(0)].url))
            assert live.here > alone.here  # broker 1 takes half of the earth for its client already
            assert live.here + sum(live.from_owners.values()) == pytest.approx(1.0)

            await net.crash(2)
            fewer = await survey(net.network.addresses[PeerId(1)].url)
            assert list(fewer.silent) == [net.network.addresses[PeerId(2)].url]

    run(story)


def test_nobody_there_is_an_error_for_people() -> None:
    async def story() -> None:
        with pytest.raises(LinkError, match=r"ws://127\.0\.0\.1:9"):
            await survey("ws://127.0.0.1:9", timeout_s=2)

    run(story)


def test_the_command_tells_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            client = await net.client(at=1, roams=False)
            client.pose(Query("air_temperature", bbox=(-180, -90, 0, 90)))
            await until(lambda: client.status == "admitted", "admission")
            url = net.network.addresses[PeerId(1)].url

            told = await asyncio.to_thread(
                CliRunner().invoke, app, ["explain", "--connect", url, "--json", "-"]
            )
            shown = await asyncio.to_thread(CliRunner().invoke, app, ["explain", "--connect", url])

            live = json.loads(told.stdout)["live"]
            assert live["overlapping"][0]["shared_per_tick"] == live["points_per_tick"] / 2
            assert "1 boxes of clients run, 1 overlap the query" in shown.stdout
            assert "50.0% of the query" in shown.stdout

    run(story)
