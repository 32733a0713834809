"""Packs: what a partition of flagged rows becomes before the shuffle, tried without Spark."""

import json
import math
import struct
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.measurements import Measurements, concatenate, decode, deduplicate, empty
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.plan import HaloEntry, Plan
from sensorgrid.pipeline.spark.packing import LEDGER, LETTER, LETTERS, ROWS, SENSOR, SENSORS, pack_batches
from sensorgrid.pipeline.spark.stages import from_bytes, sum_up

GRID = Grid(attributes=("air_temperature",))
PLAN = Plan(GRID, 0, halos=(HaloEntry(-(1 << 40), "air_temperature", (1.0,) * 256, "test"),))


def row(**changes: Any) -> dict[str, Any]:
    usual = {
        "sensor": "a", "attribute": "air_temperature", "longitude": 10.0, "latitude": 50.0, "elevation": None,
        "event_time": datetime(2024, 5, 1, tzinfo=UTC), "value": 290.0, "flag": 1, "unit": "K",
    }  # fmt: skip
    return usual | changes


def packed(*rows: dict[str, Any]) -> list[tuple[str, bytes]]:
    table = pa.Table.from_pylist(list(rows), schema=LETTER)
    made = list(pack_batches(table.to_batches(), PLAN))
    return [(r["kind"], r["payload"]) for batch in made for r in batch.to_pylist()]


def columns(n: int, **changes: Any) -> Measurements:
    usual = {
        "sensor": np.arange(n, dtype=np.uint64), "time_us": np.arange(n), "x": np.zeros(n), "y": np.zeros(n),
        "value": np.ones(n), "code": np.zeros(n, np.uint8), "home": np.ones(n, np.uint8),
    }  # fmt: skip
    return Measurements(**usual | changes)


def test_elevations_travel_in_packs_and_to_the_list_of_sensors() -> None:
    found = packed(row(sensor="a", elevation=1234.5), row(sensor="b"))

    rows = concatenate([decode(payload) for kind, payload in found if kind == ROWS]).canonical()
    known = dict(zip(rows.sensor.tolist(), rows.elevation.tolist(), strict=True))
    _, sensors = sum_up(found)
    by_name = {s["sensor"]: s for s in sensors.to_pylist()}
    assert (by_name["a"]["elevation"], by_name["b"]["elevation"]) == (1234.5, None)
    assert known[by_name["a"]["number"]] == 1234.5
    assert math.isnan(known[by_name["b"]["number"]])


def test_columns_without_elevations_have_none_and_keep_those_they_have() -> None:
    nothing, something = columns(3), columns(2, elevation=np.array([5, np.nan], np.float32))

    both = concatenate([nothing, something])
    again = decode(both.encode())

    assert np.isnan(nothing.elevation).all()
    assert len(empty().elevation) == 0
    assert np.array_equal(again.elevation, np.array([np.nan] * 3 + [5, np.nan], np.float32), equal_nan=True)
    assert np.array_equal(again.take(slice(3, 4)).elevation, [5])


def test_packs_of_a_checkpoint_from_before_there_were_elevations_are_read() -> None:
    rows = columns(4, value=np.array([1.0, 2.0, 3.0, 4.0]))
    data = bytearray(rows.encode()[: -4 * len(rows)])  # the last column is the elevation
    data[0] = 1

    found = decode(bytes(data))

    assert struct.unpack_from("<B", rows.encode())[0] == 2
    assert np.array_equal(found.value, rows.value)
    assert np.isnan(found.elevation).all()


def test_a_repeat_without_elevation_does_not_lose_the_one_that_is_known_in_any_order() -> None:
    one = columns(1, elevation=np.array([70], np.float32))
    other = columns(1)

    for order in ([one, other], [other, one]):
        rows, repeats = deduplicate(order)

        assert (repeats, rows.elevation.tolist()) == (1, [70.0])


def test_what_the_grid_does_not_carry_is_ignored_and_not_flagged_and_every_letter_has_a_reason() -> None:
    found = packed(
        row(),
        row(flag=4, test="attribute", attribute="air_pressure_at_mean_sea_level", value=None),
        row(flag=9, test="missing", value=None),
        row(flag=4, test="position", longitude=None),
        row(flag=4, test="dead_letter", reason="record is empty"),
    )

    (counts,) = [json.loads(payload) for kind, payload in found if kind == LEDGER]
    (letters,) = [from_bytes(payload) for kind, payload in found if kind == LETTERS]
    assert (counts["raw"], counts["ignored"], counts["flagged"], counts["dead_letter"]) == (5, 1, 2, 1)
    assert letters["test"].to_pylist() == ["position", "dead_letter"]
    assert letters["reason"].to_pylist() == [
        "position: found none, expected one in the record or in a station table", "record is empty",
    ]  # fmt: skip


def test_a_lake_from_before_there_were_elevations_can_be_read_and_joined(tmp_path: Any) -> None:
    lake = Lake(str(tmp_path / "lake")).create()
    (sensors,) = [from_bytes(payload) for kind, payload in packed(row(elevation=9.0)) if kind == SENSORS]
    letters = pa.Table.from_pylist([row(flag=4, test="position", reason="x")], schema=LETTER)
    day = pa.array(["2024-05-01"])
    for number, drop in enumerate((["elevation"], [])):
        lake.write("sensors", sensors.drop_columns(drop), (), "fill", number, 0)
        lake.write(
            "letters", letters.drop_columns(drop).append_column("day", day), ("day",), "fill", number, 0
        )

    for _ in range(2):
        assert lake.sensors()["elevation"].to_pylist() == [9.0], (
            "one row, with the elevation that became known"
        )
        assert lake.sensors().schema.names == SENSOR.names
        assert lake.letters()["elevation"].to_pylist() == [None, None]
        lake.compact()
