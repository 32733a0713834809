"""Station tables: positions, names, calibrations and moves, and never a row more or less."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sensorgrid.pipeline.schema import MEASUREMENT
from sensorgrid.pipeline.sources.declaration import Alias, StationColumns
from sensorgrid.pipeline.sources.stations import Station, StationError, Stations, learn, locate, read_stations

START = datetime(2024, 1, 1, tzinfo=UTC)
RULE = Alias("^[KC]([A-Z0-9]{3})$", "$1")


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def measured(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    usual = dict.fromkeys(MEASUREMENT.fieldNames()) | {
        "attribute": "air_temperature", "event_time": START, "value": 1.0, "unit": "K", "source": "s",
    }  # fmt: skip
    return spark.createDataFrame([tuple((usual | row).values()) for row in rows], MEASUREMENT)


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "stations.csv"
    path.write_text(text)
    return path


def test_locating_agrees_with_a_search_through_the_table(spark: SparkSession) -> None:
    chance = random.Random(5)
    entries, calibrated = [], []
    for n in range(40):
        cuts = sorted(chance.sample(range(1, 100), 4))
        entries.append(Station(f"s{n}", n, 1.0, (f"t{n}",), valid_from=day(cuts[0]), valid_to=day(cuts[1])))
        entries.append(Station(f"s{n}", n, 2.0, valid_from=day(cuts[1]), valid_to=day(cuts[2])))
        name = chance.choice(["air_temperature", "wind_speed", None])
        calibrated.append(Station(f"s{n}", None, None, (), name, 2.0, n, day(cuts[0]), day(cuts[3])))
    rows = [
        {
            "sensor": chance.choice("stu") + str(chance.randrange(45)),
            "event_time": day(chance.randrange(100)),
            "attribute": chance.choice(["air_temperature", "wind_speed"]),
            "value": float(n),
        }
        for n in range(2000)
    ]

    found = locate(measured(spark, rows), Stations((*entries, *calibrated))).collect()

    assert len(found) == len(rows)
    for before, after in zip(rows, found, strict=True):
        known = before["sensor"][0] in "st" and int(before["sensor"][1:]) < 40
        sensor = "s" + before["sensor"][1:] if known else before["sensor"]
        here = [e for e in entries if e.id == sensor and e.valid_from <= before["event_time"] < e.valid_to]
        tuned = [
            e for e in calibrated
            if e.id == sensor and e.valid_from <= before["event_time"] < e.valid_to
            and e.attribute in (None, before["attribute"])
        ]  # fmt: skip
        place = (here[0].longitude, here[0].latitude) if here else (None, None)
        value = before["value"] * 2 + tuned[0].offset if tuned else before["value"]
        assert (after.sensor, after.longitude, after.latitude, after.value) == (sensor, *place, value)


def test_a_position_in_the_record_goes_before_the_table_and_half_of_one_is_none(spark: SparkSession) -> None:
    rows = [
        {"sensor": "a", "longitude": 7.0, "latitude": 8.0},
        {"sensor": "a", "longitude": 7.0},
        {"sensor": "b", "longitude": 7.0},
        {"sensor": None},
    ]

    found = locate(measured(spark, rows), Stations((Station("a", 1.0, 2.0),))).collect()

    assert [(r.longitude, r.latitude) for r in found] == [(7, 8), (1, 2), (7, None), (None, None)]


def test_aliases_by_pattern_need_a_station_that_has_the_result(spark: SparkSession) -> None:
    stations = Stations(
        (Station("PHX", 1.0, 2.0), Station("KABC", 3.0, 4.0), Station("ABC", 50.0, 4.0), Station("KSEA", 9.01, 9.0),
         Station("SEA", 9.0, 9.0)),
        (RULE,),
    )  # fmt: skip
    rows = [{"sensor": name} for name in ("KPHX", "PHX", "KXYZ", "CPHX", "KABC", "KSEA", "XPHX")]

    found = locate(measured(spark, rows), stations).collect()

    assert [r.sensor for r in found] == ["PHX", "PHX", "KXYZ", "PHX", "KABC", "SEA", "XPHX"]
    assert [r.longitude for r in found] == [1.0, 1.0, None, 1.0, 3.0, 9.0, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,lon\na,1\n", "columns: found id, lon, expected 'longitude' among them"),
        ("id,longitude,latitude\n,1,2\n", "line 2: id: found nothing"),
        ("id,longitude,latitude\na,east,2\n", "line 2: longitude: found 'east', expected a number"),
        ("id,longitude,latitude\na,1,\n", "line 2: station 'a': position: found (1.0, None)"),
        ("id,longitude,latitude\na,1,2\na,1,3\n", "positions: found lines 2 and 3 for the same time"),
        (
            "id,x,y,valid_from,valid_to\na,1,2,2024-01-01,2024-03-01\na,1,3,2024-02-29,\n",
            "positions: found lines 2 and 3 for the same time (from 2024-02-29)",
        ),
        (
            "id,x,y,valid_from,valid_to\na,1,3,,\na,1,2,2024-01-01,2024-03-01\n",
            "positions: found lines 2 and 3 for the same time",
        ),
        ("id,x,y,valid_from,valid_to\na,1,2,2024-03-01,2024-03-01\n", "expected valid_from < valid_to"),
        ("id,x,y,valid_from\na,1,2,soon\n", "line 2: valid_from: found 'soon', expected an ISO time"),
        (
            "id,x,y,aliases\na,1,2,c;d\nb,1,2,d\n",
            "line 3: station 'b': aliases: found 'd', also a name of 'a'",
        ),
        ("id,x,y,aliases\na,1,2,b\nb,1,2,\n", "line 2: station 'a': aliases: found 'b', also a name of 'b'"),
        (
            "id,x,y,attribute,scale\na,1,2,wind_speed,2\na,1,2,,3\n",
            "calibrations: found lines 2 and 3 for the same time",
        ),
    ],
)
def test_a_table_that_could_give_two_answers_or_none_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(StationError) as error:
        read_stations(table(tmp_path, text))

    assert message in str(error.value)
    assert "stations.csv" in str(error.value)


def test_an_empty_table_changes_nothing(spark: SparkSession) -> None:
    found = locate(measured(spark, [{"sensor": "KPHX"}]), Stations((), (RULE,))).collect()

    assert [(r.sensor, r.longitude) for r in found] == [("KPHX", None)]


def test_a_table_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StationError, match=r"none.csv: found .*No such file.*, expected a station table"):
        read_stations(tmp_path / "none.csv")


def test_entries_that_touch_or_repeat_the_same_position_are_no_overlap(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = table(
        tmp_path,
        "id,x,y,attribute,scale,valid_from,valid_to\n"
        "a,1,2,air_temperature,2,2023-01-01,2024-06-01\n"
        "a,1,2,wind_speed,3,,\n"
        "b,5,6,,,,2024-01-01\n"
        "b,7,8,,,2024-01-01,\n",
    )

    found = locate(measured(spark, [{"sensor": "a"}, {"sensor": "b"}]), read_stations(path)).collect()

    assert [(r.sensor, r.longitude, r.value) for r in found] == [("a", 1.0, 2.0), ("b", 7.0, 1.0)]


def test_columns_of_foreign_tables_are_named_by_the_mapping(tmp_path: Path) -> None:
    path = table(tmp_path, "\ufeffstation;lon;lat\na;1;2\nb;;\n")

    stations = read_stations(path, StationColumns(None, "station", "lon", "lat", ";"))

    assert [(e.id, e.longitude, e.latitude) for e in stations.entries] == [("a", 1, 2), ("b", None, None)]


def test_learning_takes_the_most_frequent_position_and_the_middle_of_it(spark: SparkSession) -> None:
    places = {
        "fixed": [(1.0, 2.0)] * 3,
        "jitter": [(10.001, 20.0), (10.002, 20.001), (10.003, 20.002)],
        "moved": [(5.0, 5.0)] * 2 + [(60.0, 5.0)] * 5,
        "faulty": [(-790.2, 2.0)] * 9 + [(3.0, 91.0)] * 9 + [(3.0, 4.0)],
        "never": [(-790.2, 2.0), (None, None), (float("nan"), 1.0)],
    }
    rows = [{"sensor": name, "longitude": x, "latitude": y} for name in places for x, y in places[name]]
    rows.append({"sensor": "dead", "longitude": 1.0, "latitude": 1.0, "reason": "unreadable"})

    stations = learn(measured(spark, rows), [RULE])

    assert {e.id: (e.longitude, e.latitude) for e in stations.entries} == {
        "fixed": (1.0, 2.0), "jitter": (10.002, 20.001), "moved": (60.0, 5.0), "faulty": (3.0, 4.0),
    }  # fmt: skip
    assert stations.rules == (RULE,)
    planar = learn(
        measured(spark, [{"sensor": "a", "longitude": 3150.0, "latitude": 4820.0}]), coordinates="planar"
    )
    assert [(e.longitude, e.latitude) for e in planar.entries] == [(3150.0, 4820.0)]


def test_elevations_come_from_the_table_where_the_measurement_has_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = "id,longitude,latitude,elevation,valid_from\na,1,2,512.5,\nb,,,30,\nc,5,6,,\nc,5,6,7,2022-01-01\n"
    stations = read_stations(table(tmp_path, text))
    rows = [
        {"sensor": "a"}, {"sensor": "a", "elevation": 3.0}, {"sensor": "b", "longitude": 8.0, "latitude": 9.0},
        {"sensor": "c"}, {"sensor": "d"},
    ]  # fmt: skip

    found = locate(measured(spark, rows), stations).collect()

    assert [(r.longitude, r.latitude, r.elevation) for r in found] == [
        (1.0, 2.0, 512.5), (1.0, 2.0, 3.0), (8.0, 9.0, 30.0), (5.0, 6.0, 7.0), (None, None, None),
    ]  # fmt: skip


def test_a_table_that_contradicts_itself_about_a_height_is_refused(tmp_path: Path) -> None:
    text = "id,longitude,latitude,elevation\na,1,2,100\na,1,2,900\n"

    with pytest.raises(StationError, match="positions: found lines 2 and 3 for the same time"):
        read_stations(table(tmp_path, text))


def test_a_column_of_elevations_that_the_mapping_names_must_be_there(tmp_path: Path) -> None:
    path = table(tmp_path, "id,longitude,latitude,elevation\na,1,2,100\n")

    assert read_stations(path).entries[0].elevation == 100.0
    with pytest.raises(StationError, match=r"expected 'height' among them"):
        read_stations(path, StationColumns(elevation="height"))
