"""A million sensors on 16 brokers: how long a broker takes to hold its share, how much memory, how fast it finds them.

A lake is made as the pipeline writes it. 16 registries in one process read it, each for its own regions, as brokers
do. Lookups of boxes go to the registries whose regions the box touches. The rival is a scan of the whole table, in
turns with them in the same run; both must find the same sensors.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sensorgrid.index.cell import Cell
from sensorgrid.links.wire import AskSensors
from sensorgrid.model.area import inside, points_around
from sensorgrid.model.grid import Grid
from sensorgrid.runtime.registry import Registry, SensorTable

Row = dict[str, Any]

SENSORS_FULL, SENSORS_QUICK = 1_000_000, 100_000
BROKERS = 16
LOOKUPS_FULL, LOOKUPS_QUICK = 400, 100
DEGREES = {"country": 10.0, "town": 0.5}
"""width and height of a box"""
ROUNDS = 3
DAY = 20_000
GRID = Grid(shape=(1024, 512), resolution_bits=(4, 4, 4), region_digits=6)


def run(sensors: int, lookups: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Rows: one for the holding, one for each kind of box."""
    with tempfile.TemporaryDirectory() as folder:
        say(f"writing a lake with {sensors:,} sensors")
        whole = _lake(Path(folder), sensors, seed)
        cells = np.array_split(np.arange(64, 128), BROKERS)
        _compile(Path(folder) / "small", seed)
        tables, seconds = [], []
        for number, mine in enumerate(cells):
            say(f"broker {number} of {BROKERS} reads its sensors")
            begin = perf_counter()
            table = Registry(folder, GRID).read(mine.tolist())
            _ = table.tree
            seconds.append(perf_counter() - begin)
            tables.append(table)
    held = sum(map(len, tables))
    assert held == sensors, f"found {held} sensors, expected {sensors}"
    rows: list[Row] = [
        {
            "operation": "hold",
            "sensors": sensors,
            "brokers": BROKERS,
            "seconds_max": max(seconds),
            "seconds_sum": sum(seconds),
            "bytes_per_sensor": sum(table.nbytes for table in tables) / sensors,
            "sensors_max": max(map(len, tables)),
        }
    ]
    boxes = [[Cell(int(cell)).box(GRID) for cell in mine] for mine in cells]
    for kind, degrees in DEGREES.items():
        say(f"looking up boxes of {degrees:g}°")
        rows.append(_looked_up(kind, degrees, tables, boxes, whole, lookups, seed))
    return rows


def _looked_up(
    kind: str,
    degrees: float,
    tables: list[SensorTable],
    boxes: list[list[Any]],
    whole: pa.Table,
    lookups: int,
    seed: int,
) -> Row:
    rng = np.random.default_rng(seed)
    west, south = rng.uniform(-180, 180 - degrees, lookups), rng.uniform(-90, 90 - degrees, lookups)
    asked = [
        (float(x), float(y), float(x + degrees), float(y + degrees)) for x, y in zip(west, south, strict=True)
    ]
    x, y = whole["longitude"].to_numpy(), whole["latitude"].to_numpy()
    last, bad = whole["last"].to_numpy(), whole["bad"].to_numpy()
    now_us = (DAY + 1) * 86_400_000_000
    ours, rival, hits, owners = [], [], 0, 0
    for turn in range(ROUNDS):
        some = asked[turn::ROUNDS]
        begin = perf_counter()
        found = []
        for bbox in some:
            around = points_around(GRID, bbox)
            assert around is not None
            mine = [n for n, many in enumerate(boxes) if any(_meet(around, box) for box in many)]
            question = AskSensors(bbox, None, 3600.0, 0.5)
            found.append(sum(tables[n].find(question, now_us).matched for n in mine))
            owners += len(mine)
        ours.append((perf_counter() - begin) / len(some))
        begin = perf_counter()
        expected = [
            int(np.count_nonzero(inside(GRID, bbox, x, y) & ((last < now_us - 3.6e9) | (bad >= 0.5))))
            for bbox in some
        ]
        rival.append((perf_counter() - begin) / len(some))
        assert found == expected, "both must find the same sensors"
        hits += sum(found)
    mine_s, theirs_s = sorted(ours)[ROUNDS // 2], sorted(rival)[ROUNDS // 2]
    return {
        "operation": "lookup",
        "sensors": len(whole),
        "brokers": len(tables),
        "box": kind,
        "degrees": degrees,
        "lookups": lookups,
        "hits_mean": hits / lookups,
        "brokers_mean": owners / lookups,
        "per_second": 1 / mine_s,
        "scan_per_second": 1 / theirs_s,
        "ratio": theirs_s / mine_s,
    }


def _meet(a: Any, b: Any) -> bool:
    return bool(a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1)


def _compile(folder: Path, seed: int) -> None:
    """What is compiled once per machine is not part of what is measured."""
    _lake(folder, 200, seed)
    table = Registry(str(folder), GRID).read(range(64, 128))
    table.find(AskSensors((0.0, 0.0, 10.0, 10.0)), 0)


def _lake(folder: Path, sensors: int, seed: int) -> pa.Table:
    """Sensors anywhere, one report an hour; a few are silent, a few often wrong."""
    rng = np.random.default_rng(seed)
    number = rng.permutation(
        np.uint64(2) ** np.uint64(40) + np.arange(sensors, dtype=np.uint64) * np.uint64(977)
    )
    x, y = rng.uniform(-180, 180, sensors), rng.uniform(-90, 90, sensors)
    names = pa.array([f"station-{n:07d}" for n in range(sensors)])
    last = np.int64(DAY + 1) * 86_400_000_000 - rng.integers(0, 3_000_000_000, sensors)
    last[rng.random(sensors) < 0.01] -= 7_200_000_000
    moved = np.where(rng.random(sensors) < 0.005, 14, 0)
    heights = rng.uniform(0, 3000, sensors)
    place = pa.table({"number": number, "sensor": names, "longitude": x, "latitude": y, "elevation": heights})
    attribute = pa.DictionaryArray.from_arrays(pa.array(np.zeros(sensors, np.int32)), ["air_temperature"])
    zeros, nothing = np.zeros(sensors, np.int64), pa.nulls(sensors, pa.float64())
    reports = pa.table(
        {
            "writer": pa.DictionaryArray.from_arrays(pa.array(np.zeros(sensors, np.int32)), ["stream1"]),
            "number": number, "attribute": attribute, "day": np.full(sensors, DAY, np.int32),
            "passed": zeros + 24, "refused": zeros, "moved": moved,
            "last": pa.array(last).cast(pa.timestamp("us", tz="UTC")),
            "sensor": pa.nulls(sensors, pa.string()), "longitude": nothing, "latitude": nothing, "elevation": nothing,
        }
    )  # fmt: skip
    for kind, table in (("sensors", place.append_column("group", attribute)), ("reports", reports)):
        (folder / kind).mkdir(parents=True)
        pq.write_table(table, folder / kind / "joined-1.parquet", compression="zstd")
    return pa.table({"longitude": x, "latitude": y, "last": last, "bad": moved / 24})


def summary(rows: list[Row]) -> list[tuple[str, str, str]]:
    """What is asked, what was found, whether it holds."""
    found = []
    for row in rows:
        if row["operation"] == "hold":
            what = f"{row['sensors']:,} sensors on {row['brokers']} brokers"
            found.append((f"{what}: read, slowest broker", f"{row['seconds_max']:.2f} s", ""))
            found.append((f"{what}: memory per sensor", f"{row['bytes_per_sensor']:.0f} bytes", ""))
        else:
            box = f"boxes of {row['degrees']:g}° ({row['hits_mean']:,.0f} hits)"
            found.append((f"{box}: lookups per second", f"{row['per_second']:,.0f}", ""))
            found.append(
                (
                    f"{box}: times as fast as a scan",
                    f"{row['ratio']:.1f}",
                    "yes" if row["ratio"] >= 1 else "no",
                )
            )
    return found
