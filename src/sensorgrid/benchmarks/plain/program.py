"""The plain program itself: files of measurements in, files of grids and counts out, in one process."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sensorgrid.benchmarks.plain.fields import PlainObservations, interpolate, reject_outliers
from sensorgrid.benchmarks.plain.series import (
    FLAT_S,
    MAX_AGE_S,
    NEIGHBOUR,
    TESTS,
    CheckedRows,
    PlainRows,
    check,
)
from sensorgrid.benchmarks.plain.world import (
    REGION,
    REGIONS,
    Floats,
    PlainHalos,
    corner,
    halos,
    metres,
    name_of,
    points,
    regions_of,
)

ATTRIBUTE = "air_temperature"
TICK_S = 600
TICK_US = TICK_S * 1_000_000
GROSS, USUAL = (173.15, 343.15), (188.15, 328.15)
"""kelvin: outside is a failure, or rarer than the climate of the earth allows"""
CHUNK_TICKS = 24
"""ticks that are gridded together"""
CONTEXT_US = round(max(3 * MAX_AGE_S, 2 * MAX_AGE_S + FLAT_S) * 1e6)
"""how much before a chunk decides what it looks like"""

_OBSERVATION = pa.struct(
    [
        ("sensor", pa.uint64()),
        ("attribute", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("longitude", pa.float64()),
        ("latitude", pa.float64()),
        ("value", pa.float64()),
        ("flag", pa.int8()),
        ("test", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class PlainCounts:
    """What became of the measurements, and how many grids there are."""

    used: int
    flagged: int
    duplicate: int
    blocks: int


@dataclass(frozen=True, slots=True)
class PlainTile:
    """One region at one tick."""

    region: int
    tick: int
    values: npt.NDArray[np.float32]
    error: npt.NDArray[np.float32]
    sensors: int
    """that contributed, halo included"""
    rows: PlainRows
    """the measurements of this very tick and region"""
    test: npt.NDArray[np.uint8]
    """for each of them the test that it failed, 0 if it was good"""


def run(source: Path, target: Path, first: int, ticks: int, x: Floats, y: Floats) -> PlainCounts:
    """Grid all measurements in the files of a folder, for sensors at these positions; write to another folder."""
    rows, flagged = read(source)
    blocks = duplicate = moved = 0
    for number, (region, chunk, part) in enumerate(_groups(rows, PlainHalos(halos(x, y)), first, ticks)):
        distinct, repeats = part.distinct()
        checked = check(distinct)
        begin, end = max(first, chunk * CHUNK_TICKS), min(first + ticks, (chunk + 1) * CHUNK_TICKS)
        tiles = [tile_of(checked, region, tick) for tick in range(begin, end)]
        _write(tiles, target, f"{number:010d}")
        blocks, duplicate = blocks + len(tiles), duplicate + repeats
        moved += sum(int(np.count_nonzero(tile.test)) for tile in tiles)
    return PlainCounts(len(rows) - duplicate - moved, flagged + moved, duplicate, blocks)


def read(folder: Path) -> tuple[PlainRows, int]:
    """Measurements that single-row checks pass, and how many they do not."""
    frame = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))], ignore_index=True)
    good = frame["value"].between(*GROSS) & frame["value"].between(*USUAL)
    good &= frame["longitude"].between(-180, 180) & frame["latitude"].between(-90, 90)
    good &= frame["event_time"] <= pd.Timestamp.now("UTC")
    flagged, frame = int((~good).sum()), frame[good]
    codes, names = pd.factorize(frame["sensor"])
    rows = PlainRows(
        np.array([_number(name) for name in names], np.uint64)[codes],
        frame["event_time"].dt.tz_localize(None).to_numpy("datetime64[us]").astype(np.int64),
        frame["longitude"].to_numpy(),
        frame["latitude"].to_numpy(),
        frame["value"].to_numpy(),
        np.zeros(len(frame), np.uint8),
        np.ones(len(frame), np.uint8),
    )
    return rows, flagged


def tile_of(checked: CheckedRows, region: int, tick: int) -> PlainTile:
    """Grid one region at one tick: each sensor contributes its last good value, if that is not too old."""
    end_us = (tick + 1) * TICK_US
    rows, test = checked.rows, np.where(checked.bad_from_us < end_us, checked.test, 0).astype(np.uint8)
    usable = (test == 0) & (rows.time_us < end_us) & (rows.time_us >= end_us - round(MAX_AGE_S * 1e6))
    good = np.flatnonzero(usable)
    sensor = rows.sensor[good]
    at = good[np.r_[sensor[1:] != sensor[:-1], True]] if len(good) else good
    every = PlainObservations(
        metres(rows.x[at], rows.y[at]), rows.value[at], (end_us - rows.time_us[at]) / 1e6
    )
    rejected = reject_outliers(every)
    test[at[rejected]] = NEIGHBOUR
    kept = every.without(rejected)
    values, error = interpolate(kept, points(region))
    own = (rows.home == 1) & (rows.time_us >= end_us - TICK_US) & (rows.time_us < end_us)
    return PlainTile(
        region, tick, values.astype(np.float32), error.astype(np.float32), len(kept), rows.take(own), test[own]
    )  # fmt: skip


def _number(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def _groups(
    rows: PlainRows, around: PlainHalos, first: int, ticks: int
) -> Iterator[tuple[int, int, PlainRows]]:
    """Measurements of each region and chunk, halo and context included; regions without any, too."""
    for chunk in range(first // CHUNK_TICKS, (first + ticks - 1) // CHUNK_TICKS + 1):
        low, high = chunk * CHUNK_TICKS * TICK_US, (chunk + 1) * CHUNK_TICKS * TICK_US
        part = rows.take((rows.time_us >= low - CONTEXT_US) & (rows.time_us < high))
        index, region = around.spread(part.x, part.y)
        own = part.time_us >= low
        home = ((regions_of(part.x, part.y)[index] == region) & own[index]).astype(np.uint8)
        order = np.argsort(region, kind="stable")
        edges = np.searchsorted(region[order], np.arange(REGIONS + 1))
        for number in range(REGIONS):
            at = order[edges[number] : edges[number + 1]]
            yield number, chunk, replace(part.take(index[at]), home=home[at])


def _write(tiles: list[PlainTile], target: Path, name: str) -> None:
    """One file for each day that the tiles are of; the attribute and the day are in the folder's name."""
    by_day: dict[str, list[PlainTile]] = {}
    for tile in tiles:
        day = datetime.fromtimestamp(tile.tick * TICK_S, UTC).date().isoformat()
        by_day.setdefault(day, []).append(tile)
    for day, some in by_day.items():
        folder = target / "tiles" / f"attribute={ATTRIBUTE}" / f"day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            _table(some),
            folder / f"{name}.parquet",
            compression="zstd",
            compression_level=1,
            use_dictionary=["region", "kernel"],
        )


def _table(tiles: list[PlainTile]) -> pa.Table:
    corners = [corner(tile.region) for tile in tiles]
    flagged = [int(np.count_nonzero(tile.test)) for tile in tiles]
    return pa.table(
        {
            "tick": pa.array([tile.tick for tile in tiles], pa.int64()),
            "time": pa.array([tile.tick * TICK_US for tile in tiles]).cast(pa.timestamp("us", tz="UTC")),
            "region": pa.array([name_of(tile.region) for tile in tiles]),
            "revision": pa.array([0] * len(tiles), pa.int32()),
            "x0": pa.array([x for x, _ in corners], pa.int32()),
            "y0": pa.array([y for _, y in corners], pa.int32()),
            "width": pa.array([REGION[0]] * len(tiles), pa.int32()),
            "height": pa.array([REGION[1]] * len(tiles), pa.int32()),
            "values": _lists([tile.values for tile in tiles]),
            "error": _lists([tile.error for tile in tiles]),
            "sensors": pa.array([tile.sensors for tile in tiles], pa.int32()),
            "used": pa.array([len(t.test) - bad for t, bad in zip(tiles, flagged, strict=True)], pa.int32()),
            "flagged": pa.array(flagged, pa.int32()),
            "kernel": pa.array(["inverse_distance"] * len(tiles)),
            "observations": _observations(tiles),
        }
    )


def _lists(parts: list[npt.NDArray[np.float32]]) -> pa.Array:
    offsets = np.cumsum([0, *(len(p) for p in parts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(parts), pa.float32()))


def _observations(tiles: list[PlainTile]) -> pa.Array:
    """Nested columns, made whole instead of row by row."""
    offsets = pa.array(np.cumsum([0, *(len(tile.rows) for tile in tiles)]).astype(np.int32))
    test = np.concatenate([tile.test for tile in tiles]).astype(np.int32)

    def column(name: str) -> npt.NDArray[np.generic]:
        return np.concatenate([getattr(tile.rows, name) for tile in tiles])

    attribute = pa.DictionaryArray.from_arrays(pa.array(column("code").astype(np.int32)), [ATTRIBUTE])
    nested = pa.StructArray.from_arrays(
        [
            pa.array(column("sensor")),
            attribute.cast(pa.string()),
            pa.array(column("time_us")).cast(pa.timestamp("us", tz="UTC")),
            pa.array(column("x")),
            pa.array(column("y")),
            pa.array(column("value")),
            pa.array(np.where(test > 0, 3, 1).astype(np.int8)),
            pa.DictionaryArray.from_arrays(pa.array(test), [t or None for t in TESTS]).cast(pa.string()),
        ],
        fields=list(_OBSERVATION),
    )
    return pa.ListArray.from_arrays(offsets, nested)
