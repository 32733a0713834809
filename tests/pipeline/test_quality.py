"""Flags of single rows: the first verdict that applies, and every row keeps its place."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from sensorgrid.model.errors import GridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.ingest.quality import Limits, LimitsError, flag, in_future
from sensorgrid.pipeline.schema import FLAGGED, MEASUREMENT

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
EARTH = Grid()


def flagged(
    spark: SparkSession, rows: list[dict[str, Any]], grid: Grid = EARTH, limits: Limits | None = None
) -> list[Row]:
    usual = dict.fromkeys(MEASUREMENT.fieldNames()) | {
        "sensor": "a", "attribute": "air_temperature", "longitude": 10.0, "latitude": 50.0, "event_time": NOW,
        "value": 290.0, "unit": "K",
    }  # fmt: skip
    frame = spark.createDataFrame([tuple((usual | row).values()) for row in rows], MEASUREMENT)
    result = flag(frame, grid, limits, F.lit(NOW))
    assert [(f.name, f.dataType) for f in result.schema] == [(f.name, f.dataType) for f in FLAGGED]
    assert not result.schema["flag"].nullable
    return result.collect()


def test_each_fault_has_its_flag_and_its_test(spark: SparkSession) -> None:
    nan, infinite = float("nan"), float("inf")
    second = timedelta(seconds=1)
    cases: list[tuple[dict[str, Any], tuple[int, str | None]]] = [
        ({}, (1, None)),
        ({"reason": "unreadable", "value": None, "event_time": None}, (4, "dead_letter")),
        ({"event_time": None}, (4, "time")),
        ({"event_time": datetime(1899, 12, 31, tzinfo=UTC)}, (4, "time")),
        ({"event_time": datetime(1900, 1, 1, tzinfo=UTC)}, (1, None)),
        ({"event_time": NOW + timedelta(seconds=600)}, (1, None)),
        ({"event_time": NOW + timedelta(seconds=600) + second}, (4, "future")),
        ({"event_time": datetime(2099, 1, 1, tzinfo=UTC), "value": None}, (4, "future")),
        ({"value": None}, (9, "missing")),
        ({"value": nan}, (9, "missing")),
        ({"value": None, "longitude": None}, (9, "missing")),
        ({"attribute": "sea_surface_wave_significant_height"}, (4, "attribute")),
        ({"attribute": "sea_surface_wave_significant_height", "value": None}, (4, "attribute")),
        ({"attribute": None}, (4, "attribute")),
        ({"longitude": None}, (4, "position")),
        ({"latitude": None}, (4, "position")),
        ({"longitude": nan}, (4, "position")),
        ({"latitude": nan}, (4, "position")),
        ({"longitude": -790.2}, (4, "position")),
        ({"longitude": infinite}, (4, "position")),
        ({"latitude": 90.001}, (4, "position")),
        ({"latitude": 90.0}, (1, None)),
        ({"latitude": -90.0, "longitude": -180.0}, (1, None)),
        ({"value": 406 + 273.15}, (4, "range")),
        ({"value": infinite}, (4, "range")),
        ({"value": -infinite}, (4, "range")),
        ({"value": 343.15}, (3, "range")),
        ({"value": 328.15}, (1, None)),
        ({"value": 180.0}, (3, "range")),
        ({"value": 0.0}, (4, "range")),
        ({"attribute": "wind_speed", "value": 0.0}, (1, None)),
        ({"attribute": "wind_from_direction", "value": 999.0}, (4, "range")),
    ]

    rows = flagged(spark, [case for case, _ in cases])

    assert [(case, (r.flag, r.test)) for r, (case, _) in zip(rows, cases, strict=True)] == cases


def test_longitudes_are_folded_into_the_range_of_the_grid(spark: SparkSession) -> None:
    longitudes = [-360.0, -190.0, -180.0, 0.0, 179.5, 180.0, 190.0, 359.5, 360.0]
    grids = [EARTH, Grid(extent=(0, -90, 360, 90)), Grid(extent=(170, -90, 190, 90), shape=(64, 64))]

    for grid in grids:
        rows = flagged(spark, [{"longitude": x} for x in longitudes], grid)

        west, _, east, _ = grid.extent
        for before, row in zip(longitudes, rows, strict=True):
            assert (row.longitude - before) % 360 == 0
            assert west <= row.longitude <= max(east, west + 360)
            assert (row.flag == 1) == (row.longitude <= east)


@pytest.mark.parametrize("coordinates", ["lonlat", "planar"])
def test_a_row_passes_exactly_if_the_grid_has_a_point_for_it(spark: SparkSession, coordinates: Any) -> None:
    grid = Grid(extent=(-20.0, 30.0, 40.0, 70.0), shape=(64, 64), coordinates=coordinates)
    chance = random.Random(7)
    edges = [(-20.0, 30.0), (40.0, 70.0), (40.0001, 50.0), (0.0, 29.9999), (340.0, 40.0), (339.9, 40.0)]
    places = edges + [(chance.uniform(-360, 360), chance.uniform(-90, 90)) for _ in range(300)]

    rows = flagged(spark, [{"longitude": x, "latitude": y} for x, y in places], grid)

    for (x, y), row in zip(places, rows, strict=True):
        try:
            column = grid.indices_of(np.array([x]), np.array([y]))
        except GridError:
            assert (row.flag, row.test) == (4, "outside")
        else:
            assert row.flag == 1
            assert column == grid.indices_of(np.array([row.longitude]), np.array([row.latitude]))


def test_limits_can_be_set_per_attribute(spark: SparkSession) -> None:
    limits = Limits(gross={"air_temperature": (0, 400)}, usual={"wind_speed": (0, 10)}, future_s=0)
    grid = Grid(attributes=("air_temperature", "wind_speed", "my_own"))
    rows = [
        {"value": 399.0},
        {"attribute": "wind_speed", "value": 11.0},
        {"attribute": "my_own", "value": -1e30},
        {"event_time": NOW + timedelta(microseconds=1)},
    ]

    found = [(r.flag, r.test) for r in flagged(spark, rows, grid, limits)]

    assert found == [(3, "range"), (3, "range"), (1, None), (4, "future")]


def test_the_limits_of_every_known_attribute_are_applied(spark: SparkSession) -> None:
    grid = Grid(attributes=tuple(KNOWN))
    rows, expected = [], []
    for name, known in KNOWN.items():
        (low, high), (usual_low, usual_high) = known.gross, known.usual
        wide = high - low
        values = [low - wide, low, usual_low, known.mean, usual_high, high, high + wide]
        for value in values:
            rows.append({"attribute": name, "value": float(value)})
            inside = 1 if usual_low <= value <= usual_high else 3
            expected.append(inside if low <= value <= high else 4)

    assert [r.flag for r in flagged(spark, rows, grid)] == expected


def test_now_is_the_time_of_the_batch_unless_said_otherwise(spark: SparkSession) -> None:
    usual = dict.fromkeys(MEASUREMENT.fieldNames()) | {
        "attribute": "air_temperature", "longitude": 1.0, "latitude": 1.0, "value": 290.0,
    }  # fmt: skip
    moments = [datetime(2024, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)]
    rows = [tuple((usual | {"event_time": moment}).values()) for moment in moments]

    found = flag(spark.createDataFrame(rows, MEASUREMENT), EARTH).collect()

    assert [(r.flag, r.test) for r in found] == [(1, None), (4, "future")]


def test_a_stream_checks_for_the_future_alike_without_its_time_in_generated_code(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    micros = round(NOW.timestamp() * 1e6) + 600_000_000
    time = F.when(F.col("id") != 3, F.timestamp_micros(F.lit(micros - 1) + F.col("id")))
    rows = spark.range(4).select(time.alias("event_time"))
    found, code = [], []

    for streaming in (False, True):
        made = rows.select(in_future(F.lit(NOW), Limits(), streaming).alias("late"))
        found.append([row.late for row in made.collect()])
        made.explain("codegen")
        code.append(capsys.readouterr().out)

    assert found == [[False, False, True, None]] * 2
    # Two micro-batches with the same code share what Java has made of it.
    assert [f"{micros}L" in text for text in code] == [True, False]
    assert "WholeStageCodegen" in code[1]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            {"gross": {"wind_speed": (5, 1)}},
            r"limits gross of wind_speed: found \(5, 1\), expected low <= high",
        ),
        ({"future_s": -1}, "future_s: found -1, expected seconds >= 0"),
        ({"future_s": float("nan")}, "future_s: found nan"),
        (
            {"earliest": datetime(1900, 1, 1)},
            "earliest: found 1900-01-01T00:00:00, expected a time with its zone",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(made: dict[str, Any], message: str) -> None:
    with pytest.raises(LimitsError, match=message):
        Limits(**made)
