"""The registry of a broker against looking at every sensor: by box, attribute, silence and share of bad reports."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sensorgrid
from net_thread import NetThread
from nets import Net, network, run
from sensorgrid.client.sensors import SensorsError, find_sensors, owners_of, question
from sensorgrid.index.cell import Cell
from sensorgrid.links import wire
from sensorgrid.links.observer import Observer
from sensorgrid.model.area import check_bbox, inside, points_around
from sensorgrid.model.errors import QueryError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.roster import Region
from sensorgrid.pipeline.gridding.measurements import sensor_number
from sensorgrid.pipeline.lake import reports
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.spark.packing import SENSOR
from sensorgrid.runtime import registry as registry_module
from sensorgrid.runtime import sensors as desk
from sensorgrid.runtime.registry import DAYS, Registry, SensorTable

GRID = Grid(shape=(64, 32), resolution_bits=(2, 2, 2), region_digits=2)
CELLS = (4, 5, 6, 7)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
NOW_US = int(NOW.timestamp() * 1e6)
TODAY = NOW_US // reports.DAY_US
ATTRIBUTES = ("air_temperature", "relative_humidity")


@dataclass(frozen=True)
class Known:
    """What the lake is told of one sensor and attribute on one day."""

    name: str
    x: float
    y: float
    attribute: str
    day: int
    passed: int
    refused: int
    moved: int
    last_us: int


def made(seed: int, sensors: int = 60) -> list[Known]:
    """Sensors anywhere, some at borders of regions and at the date line, some with several days."""
    chance, found = Random(seed), []
    for n in range(sensors):
        x = chance.choice([chance.uniform(-180, 180), -180.0, 179.999, 0.0, 90.0])
        y = chance.choice([chance.uniform(-90, 90), 0.0, -90.0, 90.0])
        for attribute in chance.sample(ATTRIBUTES, chance.choice([1, 1, 2])):
            for day in chance.sample(range(TODAY - 4, TODAY + 1), chance.choice([1, 2])):
                passed = chance.randint(0, 20)
                moved = chance.randint(0, passed) if chance.random() < 0.4 else 0
                last = day * reports.DAY_US + chance.randrange(reports.DAY_US)
                refused = chance.choice([0, 0, 3])
                if passed + refused:
                    found.append(Known(f"s{n}", x, y, attribute, day, passed, refused, moved, last))
    return found


def tables(known: list[Known]) -> tuple[pa.Table, pa.Table]:
    """As the pipeline writes them: `sensors` and `reports`."""
    heard = {(k.name, k.attribute): k for k in known if k.passed}
    numbers = [sensor_number(name) for name, _ in heard]
    some = list(heard.values())
    sensors = pa.table(
        [
            numbers, [k.name for k in some], [k.attribute for k in some], [k.x for k in some],
            [k.y for k in some], [float(len(k.name)) for k in some],
        ],
        schema=SENSOR,
    )  # fmt: skip
    rows = [
        {
            "number": sensor_number(k.name), "attribute": k.attribute, "day": k.day, "passed": k.passed,
            "refused": k.refused, "moved": k.moved, "last": EPOCH + timedelta(microseconds=k.last_us),
            **({"sensor": k.name, "longitude": k.x, "latitude": k.y} if k.refused else {}),
        }
        for k in known
    ]  # fmt: skip
    return sensors, pa.Table.from_pylist(rows, schema=reports.REPORT)


def write(root: Path, known: list[Known], batch: int = 0, writer: str = "stream1") -> Lake:
    lake = Lake(str(root))
    sensors, heard = tables(known)
    lake.write("sensors", sensors, (), writer, batch, 0)
    reports.write(lake, [heard], writer, batch)
    lake.write_ledger(writer, batch, {"batch": batch})
    return lake


Facts = dict[str, tuple[float, float, dict[str, tuple[int, int, int]]]]


def truth(known: list[Known], cells: tuple[int, ...] = CELLS, grid: Grid = GRID) -> Facts:
    """Every sensor in some cells: its place, and by attribute reports, flagged ones, the last."""
    newest, found = max(k.day for k in known), Facts()
    for k in known:
        ix, iy = grid.index_of(k.x, k.y)
        if not any(_holds(grid, cell, ix, iy) for cell in cells):
            continue
        _, _, series = found.setdefault(k.name, (k.x, k.y, {}))
        counts = k.day > newest - DAYS
        a, b, last = series.get(k.attribute, (0, 0, 0))
        series[k.attribute] = (
            a + counts * (k.passed + k.refused), b + counts * (k.refused + k.moved), max(last, k.last_us)
        )  # fmt: skip
    return found


def _holds(grid: Grid, cell: int, ix: int, iy: int) -> bool:
    box = Cell(cell).box(grid)
    return box.x0 <= ix < box.x1 and box.y0 <= iy < box.y1


def facts_of(rows: Any) -> Facts:
    return {
        r.name: (r.x, r.y, {s.attribute: (s.reports, s.flagged, s.last_us) for s in r.series}) for r in rows
    }


def everything(table: SensorTable) -> Facts:
    return facts_of(table.told(table.find(wire.AskSensors(), NOW_US)))


@pytest.mark.parametrize("cells", [CELLS, (4,), (5, 6), (7,), (8, 23), ()])
def test_a_broker_holds_the_sensors_of_its_own_regions(tmp_path: Path, cells: tuple[int, ...]) -> None:
    known = made(1)
    write(tmp_path, known)

    table = Registry(str(tmp_path), GRID).read(cells)

    assert everything(table) == truth(known, cells)


def test_each_sensor_has_one_of_all_owners(tmp_path: Path) -> None:
    known = made(2, 200)
    write(tmp_path, known)

    parts = [everything(Registry(str(tmp_path), GRID).read([cell])) for cell in CELLS]

    assert sum(map(len, parts)) == len(truth(known)) == len({k.name for k in known})


longitudes = st.floats(-180, 180) | st.integers(-180, 180).map(float)
boxes = st.tuples(longitudes, st.floats(-90, 90), longitudes, st.floats(-90, 90)).map(
    lambda b: (b[0], min(b[1], b[3]), b[2], max(b[1], b[3]))
)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 5),
    bbox=st.none() | boxes | st.sampled_from([(0.0, 0.0, 90.0, 90.0), (170.0, -90.0, -170.0, 90.0)]),
    attribute=st.sampled_from([None, *ATTRIBUTES, "unheard_of"]),
    silent_h=st.none() | st.integers(1, 80),
    flagged=st.none() | st.sampled_from([0.0, 0.2, 0.5, 1.0]),
)
def test_what_is_found_is_what_looking_at_every_sensor_finds(
    seed: int, bbox: Any, attribute: str | None, silent_h: int | None, flagged: float | None, lakes: Any
) -> None:
    known, table = lakes(seed)
    asked = question(bbox, attribute=attribute, silent=silent_h and f"{silent_h}h", flagged=flagged, at=NOW)

    found = facts_of(table.told(table.find(asked, 0)))

    expected = {}
    for name, (x, y, series) in truth(known).items():
        if bbox is not None and not _within(bbox, x, y):
            continue
        mine = [s for a, s in series.items() if attribute in (None, a)]
        if not mine:
            continue
        is_silent = bool(silent_h) and max(last for *_, last in mine) < NOW_US - silent_h * 3.6e9
        is_flagged = flagged is not None and max(min(b / max(a, 1), 1) for a, b, _ in mine) >= flagged
        if is_silent or is_flagged or not (silent_h or flagged is not None):
            expected[name] = (x, y, series)
    assert found == expected


def _within(bbox: tuple[float, float, float, float], x: float, y: float) -> bool:
    west, south, east, north = bbox
    along = west <= x <= east if west <= east else x >= west or x <= east
    # -180 and 180 are one meridian.
    along = along or (x == -180 and (west <= 180 <= east or (west > east and (west <= 180 or east >= 180))))
    return along and south <= y <= north


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found: dict[int, tuple[list[Known], SensorTable]] = {}

    def lake(seed: int) -> tuple[list[Known], SensorTable]:
        if seed not in found:
            known, folder = made(seed), tmp_path_factory.mktemp("lake")
            write(folder, known)
            found[seed] = known, Registry(str(folder), GRID).read(CELLS)
        return found[seed]

    return lake


GRIDS = [
    GRID,
    Grid(shape=(32, 32), extent=(-10, 35, 30, 60), resolution_bits=(1, 1, 1), region_digits=2),
    Grid(shape=(32, 32), extent=(0, 0, 320, 320), coordinates="planar", resolution_bits=(1, 1, 1)),
]
hostile = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, 10.0, 60.0, 359.0, 721.0, -1e4, 1e300, -1e300, 1e308, -1e308]
)


@settings(max_examples=200, deadline=None)
@given(
    bbox=boxes
    | st.tuples(st.floats(-300, 500), st.floats(-90, 0), st.floats(-300, 500), st.floats(0, 90))
    | st.tuples(hostile, hostile, hostile, hostile),
    x=st.floats(-180, 180),
    y=st.floats(-90, 90),
    grid=st.sampled_from(GRIDS),
)
def test_the_points_around_a_box_hold_every_position_in_it(bbox: Any, x: float, y: float, grid: Grid) -> None:
    west, south, east, north = grid.extent
    x, y = west + (x + 180) / 360 * (east - west), south + (y + 90) / 180 * (north - south)
    if not inside(grid, bbox, np.array([x]), np.array([y]))[0]:
        return

    around = points_around(grid, bbox)

    assert around is not None
    ix, iy = grid.index_of(x, y)
    assert any(b.x0 <= ix < b.x1 and b.y0 <= iy < b.y1 for b in grid.plain_boxes(around))


@settings(max_examples=200, deadline=None)
@given(bbox=st.tuples(hostile, hostile, hostile, hostile), grid=st.sampled_from(GRIDS))
@example(bbox=(1e308, 0.0, -1e308, 10.0), grid=GRID)
@example(bbox=(0.0, -1e308, 10.0, 1e308), grid=GRID)
@example(bbox=(0.0, 60.0, 10.0, 40.0), grid=GRID)
@example(bbox=(-1e308, 0.0, 1e308, 10.0), grid=GRIDS[2])
@example(bbox=(200.0, 0.0, 100.0, 10.0), grid=GRIDS[2])
def test_any_finite_box_can_be_asked_for(bbox: Any, grid: Grid, lakes: Any) -> None:
    _, table = lakes(0)
    ours = (table.x >= grid.extent[0]) & (table.x <= grid.extent[2])
    ours &= (table.y >= grid.extent[1]) & (table.y <= grid.extent[3])
    few = replace(table, grid=grid, x=np.where(ours, table.x, 5.0), y=np.where(ours, table.y, 50.0))

    found = few.find(wire.AskSensors(bbox), NOW_US)

    assert sorted(found.rows) == np.flatnonzero(inside(grid, bbox, few.x, few.y)).tolist()


def test_longitudes_many_turns_away_are_those_of_the_first_turn(lakes: Any) -> None:
    _, table = lakes(0)

    near, far = (table.find(wire.AskSensors((w, -90.0, e, 90.0)), 0) for w, e in ((0, 90), (3600, 3690)))

    assert 0 < near.matched < len(table)
    assert far.rows.tolist() == near.rows.tolist()


def test_names_that_nobody_measures_leave_nothing_behind(lakes: Any) -> None:
    _, table = lakes(0)

    found = [table.find(wire.AskSensors(attribute=f"x{n}"), NOW_US).matched for n in range(100)]

    assert not any(found)
    assert table._by_attribute.keys() <= {None, *table.attributes}
    assert table.find(wire.AskSensors(attribute=ATTRIBUTES[0]), NOW_US).matched > 0
    assert ATTRIBUTES[0] in table._by_attribute, "what is measured is kept"


def test_pages_together_are_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = made(3)
    write(tmp_path, known)
    table = Registry(str(tmp_path), GRID).read(CELLS)
    monkeypatch.setattr(registry_module, "ROWS_MAX", 7)

    names, after, left = [], None, None
    while left != 0:
        page = table.find(wire.AskSensors(after=after), NOW_US)
        rows = table.told(page)
        assert len(rows) <= 7
        names += [row.name for row in rows]
        after, left = rows[-1].number, page.left_off

    assert len(names) == len(set(names)) == page.matched == len(truth(known))


def batches(seed: int) -> Iterator[list[Known]]:
    known = made(seed, 120)
    for start in range(0, len(known), 20):
        yield known[start : start + 20]


def test_looking_again_is_the_same_as_looking_for_the_first_time(tmp_path: Path) -> None:
    known: list[Known] = []
    first = Registry(str(tmp_path), GRID)
    lake = Lake(str(tmp_path)).create()
    for batch, more in enumerate(batches(4)):
        known += more
        write(tmp_path, more, batch)
        if batch == 3:
            assert lake.compact(keep_batches=1) > 0

        table = first.read((4, 6))

        assert everything(table) == truth(known, (4, 6)), batch
        assert table is first.read((4, 6)), "nothing new"
        asked = wire.AskSensors((-180.0, -90.0, 0.0, 90.0))
        fresh = Registry(str(tmp_path), GRID).read((4, 6))
        assert facts_of(table.told(table.find(asked, 0))) == facts_of(fresh.told(fresh.find(asked, 0)))
    assert everything(first.read(CELLS)) == truth(known), "other regions"


def test_housekeeping_changes_no_answer_and_keeps_few_rows(tmp_path: Path) -> None:
    known: list[Known] = []
    lake = Lake(str(tmp_path)).create()
    for batch, more in enumerate(batches(5)):
        known += more
        write(tmp_path, more, batch)
    before = everything(Registry(str(tmp_path), GRID).read(CELLS))

    lake.compact(keep_batches=0)
    lake.compact(keep_batches=0)

    assert everything(Registry(str(tmp_path), GRID).read(CELLS)) == before == truth(known)
    assert len(list((tmp_path / "reports").glob("*.parquet"))) == 1
    days = set(reports.read(lake)["day"].to_pylist())
    assert len(days) == DAYS + 1
    assert 0 in days


def test_a_batch_that_is_tried_again_counts_once(tmp_path: Path) -> None:
    known = made(6)
    write(tmp_path, known, batch=7)
    write(tmp_path, known, batch=7)
    lake = Lake(str(tmp_path))

    once = everything(Registry(str(tmp_path), GRID).read(CELLS))
    lake.drop_from("stream1", 7)

    assert once == truth(known)
    assert everything(Registry(str(tmp_path), GRID).read(CELLS)) == {}


def test_a_backfill_of_what_a_stream_has_counted_adds_nothing(tmp_path: Path) -> None:
    known = made(7)
    write(tmp_path, known)
    write(tmp_path, known, writer="fill1")

    assert everything(Registry(str(tmp_path), GRID).read(CELLS)) == truth(known)


def test_a_lake_from_before_there_were_reports_has_its_sensors(tmp_path: Path) -> None:
    known = [replace(k, refused=0, passed=1) for k in made(8)]
    write(tmp_path, known)
    for path in (tmp_path / "reports").glob("*"):
        path.unlink()

    table = Registry(str(tmp_path), GRID).read(CELLS)

    assert set(everything(table)) == set(truth(known))
    assert table.newest_us is None
    assert table.find(question(silent="1h"), NOW_US).matched == len(table), "nobody knows that they speak"


def test_a_lake_that_is_not_there_is_empty(tmp_path: Path) -> None:
    table = Registry(str(tmp_path / "nowhere"), GRID).read(CELLS)

    assert len(table) == 0
    assert everything(table) == {}
    assert table.find(wire.AskSensors((0.0, 0.0, 1.0, 1.0), "x", 1.0, 0.1), NOW_US).matched == 0


# -- over sockets


def found_by(found: Any) -> Facts:
    return {
        s.id: (
            s.longitude, s.latitude,
            {o.attribute: (o.reports, o.flagged, round(o.last.timestamp() * 1e6)) for o in s.series},
        )
        for s in found
    }  # fmt: skip


def test_clients_find_the_sensors_of_all_brokers_also_after_one_was_killed_and_came_back(
    tmp_path: Path,
) -> None:
    known = made(10)
    write(tmp_path / "lake", known)

    async def work() -> None:
        async with Net(network(tmp_path)) as net:
            whole = await find_sensors([net.url(0)], question())
            assert found_by(whole) == truth(known)
            assert (whole.matched, whole.held, whole.left_off) == (len(whole), len(whole), 0)
            assert {s.broker for s in whole} == {0, 1, 2, 3}
            some = await find_sensors([net.url(2)], question((10, 10, 80, 80), silent="2d", at=NOW))
            limited = await find_sensors([net.url(1)], question(), limit=5)
            assert (len(limited), limited.left_off) == (5, len(whole) - 5)

            await net.crash(1)
            partly = await find_sensors([net.url(0)], question())
            assert list(partly.missing) == [net.url(1)]
            assert set(found_by(partly)) == {s.id for s in whole if s.broker != 1}

            await net.start(1)
            again = await find_sensors([net.url(0)], question())
            assert found_by(again) == found_by(whole)
            assert not again.missing
            assert found_by(
                await find_sensors([net.url(3)], question((10, 10, 80, 80), silent="2d", at=NOW))
            ) == found_by(some)

    run(work)


def test_a_region_that_changes_hands_takes_its_sensors_along(tmp_path: Path) -> None:
    known = made(11)
    write(tmp_path / "lake", known)

    async def work() -> None:
        async with Net(network(tmp_path)) as net:
            before = await find_sensors([net.url(0)], question())
            region = next(r for r in net.network.roster.regions if r.attribute == 0 and r.owner == 2)
            moved = net.network.roster.handed_over(0, region.cell, PeerId(3))
            for host in net.hosts.values():
                host.learn(moved)

            after = await find_sensors([net.url(0)], question())

            assert found_by(after) == found_by(before)
            assert after.roster == moved.version
            assert {s.broker for s in after} == {0, 1, 3}

    run(work)


def test_only_owners_in_the_box_are_asked(tmp_path: Path) -> None:
    made_network = network(tmp_path)
    roster, grid = made_network.roster, made_network.grid

    for bbox in [(-170, -80, -100, -10), (10, 10, 20, 20), (170, 10, -170, 20), (-10, -10, 10, 10)]:
        owners = owners_of(bbox, grid, roster)
        xs, ys = np.meshgrid(np.linspace(-180, 179.9, 181), np.linspace(-90, 90, 91))
        there = inside(grid, bbox, xs.ravel(), ys.ravel())
        ix, iy = grid.indices_of(xs.ravel()[there], ys.ravel()[there])
        expected = {
            region.owner
            for region in roster.regions
            if region.attribute == 0 and any(_holds(grid, region.cell, *p) for p in zip(ix, iy, strict=True))
        }
        assert owners == sorted(expected)


def test_a_broker_that_cannot_read_its_lake_says_so_and_lives(tmp_path: Path) -> None:
    (tmp_path / "lake" / "reports").mkdir(parents=True)
    (tmp_path / "lake" / "reports" / "stream1-0000000000-00000.parquet").write_bytes(b"no parquet")

    async def work() -> None:
        async with Net(network(tmp_path)) as net:
            with pytest.raises(SensorsError, match="the lake cannot be read"):
                await find_sensors([net.url(0)], question())
            assert await Observer(net.url(0)).status() is not None

    run(work)


def test_nonsense_is_answered_with_what_was_expected(tmp_path: Path) -> None:
    async def work() -> None:
        async with Net(network(tmp_path)) as net:
            observer = Observer(net.url(0))
            for said in (
                b"",
                b"\x00",
                msgspec.msgpack.encode({"bbox": [1, 2]}),
                msgspec.msgpack.encode({"limit": -1}),
            ):
                told = wire.decode_sensors(await observer._asked(wire.ASK_SENSORS + said))
                assert "expected" in told.error
            with pytest.raises(wire.WireError, match="finite"):
                await observer.sensors(wire.AskSensors((0.0, 0.0, float("nan"), 1.0)))
            await observer.closed()

    run(work)


def test_a_broker_of_an_older_version_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sensorgrid.runtime.host.Host._asked_for_sensors", _as_before)

    async def work() -> None:
        async with Net(network(tmp_path)) as net:
            with pytest.raises(SensorsError, match="may run an older version"):
                await find_sensors([net.url(0)], question())

    run(work)


def _as_before(host: Any, peer: Any, asked: bytes) -> None:
    host._answer(peer, wire.encode_status(host.status()))


def test_a_question_that_fails_is_answered_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a fault of ours")

    logged: list[str] = []
    monkeypatch.setattr(SensorTable, "find", fail)
    table = desk.SensorDesk(str(tmp_path), GRID, lambda event, **fields: logged.append(event))

    asked = wire.encode_ask_sensors(wire.AskSensors())
    told = asyncio.run(table.answer(asked, PeerId(0), network(tmp_path).roster))

    assert "the question cannot be answered: a fault of ours" in told.error
    assert "question for sensors not answered" in logged


def test_too_many_questions_at_once_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        table = desk.SensorDesk(str(tmp_path), GRID, lambda event, **fields: None)
        roster = network(tmp_path).roster
        for n in range(desk.ASKERS_MAX + 1):
            assert table.take(n)
        assert not table.take(3), "one question at a time"
        told = await table.answer(wire.encode_ask_sensors(wire.AskSensors()), PeerId(0), roster)
        assert "try again" in told.error
        table.release(0)
        told = await table.answer(wire.encode_ask_sensors(wire.AskSensors()), PeerId(0), roster)
        assert not told.error

    asyncio.run(work())


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"bbox": (0, 10, 1, 5)}, "found south 10 > north 5, expected south <= north"),
        ({"bbox": (0, 10, 1)}, "expected four finite numbers"),
        ({"bbox": ("a", 1, 2, 3)}, "expected four finite numbers"),
        ({"bbox": 5}, "bbox: found 5, expected four finite numbers"),
        ({"bbox": (float("nan"), 0, 1, 5)}, "expected four finite numbers"),
        ({"bbox": (0, 0, float("inf"), 5)}, "expected four finite numbers"),
        ({"flagged": 1.5}, "a share from 0 to 1"),
        ({"silent": "soon"}, "silent: found 'soon'"),
        ({"at": "2026-03-10"}, "time zone"),
    ],
)
def test_a_question_that_cannot_be_right_is_refused_before_anybody_is_asked(wrong: Any, text: str) -> None:
    with pytest.raises(QueryError, match=text):
        question(**wrong)


def test_a_box_that_cannot_be_meant_on_this_grid_is_refused() -> None:
    check_bbox(GRID, (-720.0, 0.0, 720.0, 10.0))
    check_bbox(GRID, (170.0, 0.0, -170.0, 10.0))
    check_bbox(GRIDS[2], (1e6, 0.0, 1e6, 10.0))

    with pytest.raises(QueryError, match=r"found longitudes 721 and 0, expected them in \[-720, 720\]"):
        check_bbox(GRID, (721.0, 0.0, 0.0, 10.0))
    with pytest.raises(QueryError, match="found west 5 > east 4, expected west <= east on a plane"):
        check_bbox(GRIDS[2], (5.0, 0.0, 4.0, 10.0))


def test_from_python_and_as_files(tmp_path: Path) -> None:
    known = made(12)
    write(tmp_path / "lake", known)
    with NetThread(tmp_path) as net, sensorgrid.connect(net.url()) as grid:
        found = grid.sensors((-180, -90, 180, 90), attribute="air_temperature", flagged=0.2)

    assert found
    assert all(s.flagged and "air_temperature" in s.attributes for s in found)
    shown = json.loads(json.dumps(found.to_geojson()))
    assert [f["properties"]["id"] for f in shown["features"]] == [s.id for s in found]
    assert shown["features"][0]["geometry"]["coordinates"][:2] == [found[0].longitude, found[0].latitude]
    assert len(found.to_pandas()) == sum(len(s.series) for s in found)


def test_regions_of_other_attributes_do_not_matter(tmp_path: Path) -> None:
    roster = network(tmp_path).roster
    other = replace(roster, regions=(*roster.regions, Region(7, 4, PeerId(3), 1)))

    assert desk.cells_of(other, PeerId(3)) == desk.cells_of(roster, PeerId(3))
