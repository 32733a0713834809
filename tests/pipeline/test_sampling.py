"""What becomes of the first records of a source, before anything runs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sensorgrid.cli.doctor_machine import Finding
from sensorgrid.cli.doctor_records import check_records, elevation_unused, findings_of
from sensorgrid.pipeline.ingest.inlet import InletError, check_sources, flagged, nothing_good
from sensorgrid.pipeline.ingest.sampling import Sampled, sample
from sensorgrid.pipeline.settings import PipelineSettings, settings_of
from sensorgrid.pipeline.spark import session

MAPPING = """
format = "csv"
columns = ["id", "when", "t", "p", "z"]
[sensor]
columns = ["id"]
[time]
column = "when"
[values.air_temperature]
column = "t"
unit = "degC"
[values.air_pressure_at_mean_sea_level]
column = "p"
unit = "hPa"
"""
WHEN = "2024-05-01T12:00:00Z"


def settings(folder: Path, **source: Any) -> PipelineSettings:
    (folder / "mine.toml").write_text(MAPPING)
    usual = {
        "kind": "files",
        "name": "mine",
        "path": "in",
        "mapping": "mine.toml",
        "stations": "stations.csv",
    }
    grid = {
        "shape": [32, 16],
        "tick": 600,
        "resolution_bits": 1,
        "region_digits": 2,
        "attributes": ["air_temperature"],
    }
    made = {key: value for key, value in (usual | source).items() if value is not None}
    return settings_of({"grid": grid, "sources": [made]}, "grid.toml", folder)


def filled(folder: Path, *lines: str) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "a.csv").write_text("id,when,t,p,z\n" + "".join(f"{line}\n" for line in lines))
    (folder / "in" / "_half.csv").write_text("nothing to look at\n")
    (folder / "stations.csv").write_text("id,longitude,latitude,elevation\na,1,2,700\nb,3,4,\n")


def sampled(spark: SparkSession, found: PipelineSettings, number: int = 100) -> Sampled:
    return sample(spark, found, found.sources[0], found.grid.grid(), number, patience_s=0.5)


def test_a_sample_says_what_became_of_each_record(spark: SparkSession, tmp_path: Path) -> None:
    filled(
        tmp_path,
        f"a,{WHEN},20,1013,", f"b,{WHEN},warm,1013,", f"c,{WHEN},21,,", f"a,{WHEN},900,,", f"a,{WHEN},,,", "a,,1,2,",
    )  # fmt: skip

    found = sampled(spark, settings(tmp_path))

    assert (found.records, found.origin, found.nothing) == (6, "a.csv", "")
    assert found.measurements == {"air_pressure_at_mean_sea_level": (5, 0), "air_temperature": (5, 1)}
    assert (
        found.tests
        == {"attribute": 4, "dead_letter": 3, "position": 1, "range": 1, "missing": 1} | found.tests
    )
    assert sum(found.tests.values()) == 10
    assert any("of t is not a number" in reason and n == 1 for reason, n in found.reasons)
    assert any("of when, expected iso" in reason and "…" not in reason for reason, _ in found.reasons)
    assert (found.sensors, found.unplaced, found.elevated) == (3, ["c"], 1)


def test_no_more_records_are_looked_at_than_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, *[f"a,{WHEN},{n},1," for n in range(50)])
    (tmp_path / "in" / "b.csv").write_text("id,when,t,p,z\n" + f"a,{WHEN},3,1,\n" * 10)

    few, all_of_them = (sampled(spark, settings(tmp_path), number) for number in (7, 100))

    assert (few.records, all_of_them.records) == (7, 60)


def test_a_folder_that_is_empty_or_not_there_yet_is_said(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "stations.csv").write_text("id,longitude,latitude\n")

    assert sampled(spark, settings(tmp_path)).nothing == f"nothing at {tmp_path}/in yet"


def test_a_source_that_can_give_no_position_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(
        InletError, match=r"source mine: found no position, neither in the mapping mine.toml nor"
    ):
        check_sources(settings(tmp_path, stations=None))
    filled(tmp_path)
    check_sources(settings(tmp_path))


def test_where_nothing_is_good_counts_and_reasons_are_told(spark: SparkSession, tmp_path: Path) -> None:
    filled(
        tmp_path,
        f"c,{WHEN},20,1013,",
        f"d,{WHEN},20,1013,",
        f"a,{WHEN},x1,1013,",
        f"a,{WHEN},x22,1013,",
        "e,,,,",
    )
    found = settings(tmp_path)

    text = nothing_good(flagged(spark, found, found.grid.grid(), streaming=False))

    first, *reasons = text.splitlines()
    assert first.startswith("found no good measurement among 9 (")
    assert {"4 attribute", "3 dead_letter", "2 position"} == set(
        first[first.index("(") + 1 : first.index(")")].split(", ")
    )
    assert "  2 × value 'x1' of t is not a number" in reasons
    assert any(line.startswith("  2 × position: no position") for line in reasons)


# in the doctor's words


def said(found: Sampled) -> list[tuple[str, str]]:
    return [(f.status, f.found) for f in findings_of("records mine", found, ("air_temperature",))]


def test_the_doctor_fails_a_source_without_a_good_measurement_and_names_sensors_without_a_place() -> None:
    bad = Sampled(
        "mine", "a.csv", records=7, measurements={"air_temperature": (7, 0)}, tests={"position": 7}, sensors=7,
        unplaced=[f"s{n}" for n in range(7)], reasons=[("position: none", 7)],
    )  # fmt: skip

    found = said(bad)

    assert found[0] == ("fail", "7 of a.csv: 7 measurements of 7 sensors, 0 good")
    assert ("warn", "refused: 7 position") in found
    assert ("warn", "7 × position: none") in found
    assert found[-1] == ("warn", "7 of 7 sensors without a position: s0, s1, s2, s3, s4, …")


def test_missing_values_and_what_the_grid_does_not_carry_are_no_warning() -> None:
    measured = {"air_temperature": (5, 4), "wind_speed": (5, 0)}
    good = Sampled("m", "x", "", 5, measured, {"attribute": 5, "missing": 1}, sensors=5)

    found = said(good)

    assert {status for status, _ in found} == {"ok"}
    assert ("ok", "5 ignored, the grid does not carry them: wind_speed") in found
    assert ("ok", "air_temperature: 5, 4 good") in found


@pytest.mark.parametrize(
    ("gridding", "attributes", "warned"),
    [
        ({"elevation": None}, ("air_temperature",), True),
        ({"elevation": "dem.nc"}, ("air_temperature",), False),
        ({"elevation": None}, ("eastward_wind",), False),
        ({}, ("air_temperature",), False),
    ],
)
def test_heights_that_nobody_uses_are_told(
    gridding: dict[str, Any], attributes: tuple[str, ...], warned: bool
) -> None:
    found: list[Finding] = list(elevation_unused(SimpleNamespace(**gridding), attributes, 12))

    assert [f.found for f in found] == ["heights of 12 sensors, but none of the grid"] * warned


def test_a_synthetic_earth_is_said_to_have_no_records_without_starting_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "start_session", never)
    source = {"kind": "synthetic", "path": None, "mapping": None, "stations": None}

    (found,) = check_records(settings(tmp_path, **source), 100)

    assert (found.status, found.subject) == ("ok", "records mine")
    assert found.found == "the synthetic earth has no records to parse"


def test_landed_messages_are_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    from sensorgrid.pipeline.sources.landing_files import LandingWriter, envelope

    writer = LandingWriter(tmp_path / "land", "x")
    record = {"sensor": "a", "attribute": "air_temperature", "longitude": 1, "latitude": 2, "time": WHEN}
    texts = [json.dumps(record | {"value": 20, "unit": "degC"}).encode(), b"{}", b"\xff"]
    writer.write([*(envelope("t", text, 0.0) for text in texts), b"no envelope\n"], 1e9)
    source = {
        "kind": "mqtt",
        "topics": ["#"],
        "landing": "land",
        "path": None,
        "mapping": None,
        "stations": None,
    }

    found = sampled(spark, settings(tmp_path, **source, port=9))

    assert (found.records, found.good, found.tests) == (4, 1, {"dead_letter": 3})


def test_a_server_that_does_not_answer_is_said(spark: SparkSession, tmp_path: Path) -> None:
    source = {
        "kind": "mqtt",
        "topics": ["#"],
        "landing": "land",
        "path": None,
        "mapping": None,
        "stations": None,
    }
    other = {"kind": "nats", "stream": "s", "servers": "nats://127.0.0.1:9", "path": None, "stations": None}

    mqtt = sampled(spark, settings(tmp_path, **source, host="127.0.0.1", port=9))
    nats = sampled(spark, settings(tmp_path, **other, mapping="plain_json"))

    assert mqtt.nothing.startswith("nothing landed yet, and 127.0.0.1:9 cannot be asked: ")
    assert nats.nothing.startswith("nats://127.0.0.1:9 cannot be asked: ")
