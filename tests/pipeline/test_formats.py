"""Formats of weather services: raw METAR bulletins and BUFR, as records and as measurements."""

import gzip
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sensorgrid.pipeline.settings import FileSource
from sensorgrid.pipeline.sources.bulletins import about_of, record_of, reports_of
from sensorgrid.pipeline.sources.files import read_files, records_of
from sensorgrid.pipeline.sources.mapping import read_mapping

pytest.importorskip("metar")
ABOUT = datetime(2019, 7, 1, 12, tzinfo=UTC)
DATA = Path(__file__).parents[3] / "shared" / "data" / "metar-raw-bulletins"
BULLETINS = (
    "\x01\r\r\n455 \r\r\nSAUS70 KWBC 011200\r\r\nMETAR\r\r\n"
    "KIPJ 011150Z AUTO 36005KT 7SM CLR 21/M01 A3002 RMK AO2 70004\r\r\n     T02120212 10225 20196=\r\r\n"
    "KGPH 302355Z AUTO 00000KT 10SM CLR 21/20 A3005 RMK AO2 SLP123=\r\r\n\x03\x01\r\r\n348 \r\r\n"
    "SAUS70 KWBC 011200 RRA\r\r\nMETAR KGPH 302355Z AUTO 00000KT 10SM CLR 21/20 A3005 RMK AO2 SLP123=\r\r\n"
    "TX_OPMET\r\r\nMETAR HLLT NIL=\r\r\n\x03\x01\r\r\nMETAR EDDM 011220Z VRB02KT CAVOK 25/12 Q1018\r\r\n\x03"
)


def rows_of(path: Path, mapping: str = "metar_raw") -> list[dict[str, Any]]:
    return [row for batch in records_of(str(path), read_mapping(mapping), "s") for row in batch.to_pylist()]


def test_a_bulletin_is_its_reports_whatever_its_lines_and_repeats_are_kept() -> None:
    found = list(reports_of(BULLETINS.split("\n"), ABOUT))

    reports = [text for text, _, fault in found if fault is None]
    assert [text.removeprefix("METAR ")[:12] for text in reports] == [
        "KIPJ 011150Z", "KGPH 302355Z", "KGPH 302355Z", "EDDM 011220Z",
    ]  # fmt: skip
    assert reports[0].endswith("RMK AO2 70004 T02120212 10225 20196")
    assert [(text, fault) for text, _, fault in found if fault] == [
        ("TX_OPMET", "record is not a METAR or SPECI report"),
        ("METAR HLLT NIL", "report is NIL: the station has nothing to tell"),
    ]


def test_a_line_of_a_report_that_looks_like_a_number_of_a_bulletin_belongs_to_the_report() -> None:
    text = "\x01\n455\nKIPJ 011150Z AUTO 36005KT 21/20 A3002 RMK\n20196\n58012=\n673\nKGPH 011155Z 00000KT 21/20 A3005="

    found = [report for report, _, _ in reports_of(text.split("\n"), ABOUT)]

    assert found == [
        "KIPJ 011150Z AUTO 36005KT 21/20 A3002 RMK 20196 58012",
        "KGPH 011155Z 00000KT 21/20 A3005",
    ]


def test_cycle_files_say_the_date_between_the_reports() -> None:
    text = "2024/02/29 23:50\nEDDM 292350Z 00000KT CAVOK 05/01 Q1018\n\n2024/03/01 00:20\nEDDM 010020Z NIL\n"

    found = list(reports_of(text.split("\n"), None))

    assert [about for _, about, _ in found] == [
        datetime(2024, 2, 29, 23, 50, tzinfo=UTC),
        datetime(2024, 3, 1, 0, 20, tzinfo=UTC),
    ]


def test_a_report_has_values_in_plain_units_and_a_place() -> None:
    found = json.loads(
        record_of("KIPJ 011150Z AUTO 36005KT 7SM CLR 21/M01 A3002 RMK AO2 SLP160 T02121012", ABOUT)
    )

    assert (found["station"], found["time"]) == ("KIPJ", "2019-07-01T11:50:00+00:00")
    assert found["wind_from_direction_degree"] == 360
    assert found["wind_speed_m_s"] == pytest.approx(5 * 1852 / 3600, rel=1e-3)
    assert (found["temperature_degC"], found["dew_point_degC"]) == (21.2, -1.2)
    assert found["sea_level_pressure_hPa"] == pytest.approx(1016.0)
    place = json.loads(record_of("EDDM 011220Z 00000KT CAVOK 25/12 Q1018", ABOUT))
    assert (place["longitude"], place["latitude"]) == (
        pytest.approx(11.8, abs=0.1),
        pytest.approx(48.35, abs=0.1),
    )
    assert place["elevation_m"] == pytest.approx(450, abs=30)


@pytest.mark.parametrize(
    ("day", "about", "expected"),
    [
        ("302355", ABOUT, "2019-06-30T23:55"),
        ("010005", datetime(2019, 12, 31, 23, tzinfo=UTC), "2020-01-01T00:05"),
        ("312355", datetime(2024, 3, 1, 1, tzinfo=UTC), "2024-03-31T23:55"),
        ("292355", datetime(2024, 3, 1, 1, tzinfo=UTC), "2024-02-29T23:55"),
    ],
)
def test_of_days_with_the_same_number_the_closest_is_meant(day: str, about: datetime, expected: str) -> None:
    found = json.loads(record_of(f"EDDM {day}Z 00000KT CAVOK 25/12 Q1018", about))

    assert found["time"][:16] == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("metar_20190701_1200.txt.gz", datetime(2019, 7, 1, 12, tzinfo=UTC)),
        ("2019-07-01.txt", datetime(2019, 7, 1, tzinfo=UTC)),
        ("20190701T0930.txt", datetime(2019, 7, 1, 9, 30, tzinfo=UTC)),
        ("metar.txt", None),
        ("metar_20191350.txt", None),
    ],
)
def test_the_name_of_a_file_tells_the_time(name: str, expected: datetime | None) -> None:
    assert about_of(f"file:/in/{name}") == expected


def test_a_file_that_does_not_tell_month_and_year_says_so_in_every_letter(tmp_path: Path) -> None:
    (tmp_path / "metar.txt").write_text("EDDM 011220Z 00000KT CAVOK 25/12 Q1018=\n" * 3)

    rows = rows_of(tmp_path / "metar.txt")

    assert len(rows) == 3
    assert all("expected year, month and day in the file's name" in row["reason"] for row in rows)


def test_bulletins_become_measurements_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "metar_20190701_1200.txt.gz"
    path.write_bytes(gzip.compress(BULLETINS.encode("latin-1")))

    rows = read_files(spark, str(path), read_mapping("metar_raw"), source="s", streaming=False).collect()

    assert Counter(r.sensor for r in rows) == {"KIPJ": 5, "KGPH": 10, "EDDM": 5, None: 2}
    winds = {r.sensor: r.value for r in rows if r.attribute == "wind_from_direction"}
    assert winds == {"KIPJ": 360.0, "KGPH": None, "EDDM": None}  # calm, variable
    pressure = [r.value for r in rows if r.attribute == "air_pressure_at_mean_sea_level"]
    assert sorted(pressure, key=str) == [1012.3, 1012.3, None, None]
    assert all(r.reason for r in rows if r.sensor is None)


@pytest.mark.skipif(not DATA.exists(), reason="needs the real bulletins")
def test_every_report_of_an_hour_of_the_world_is_read_or_has_a_reason() -> None:
    rows = rows_of(DATA / "metar_20190701_1200.txt.gz")

    good = [json.loads(row["text"]) for row in rows if row["reason"] is None]
    why = Counter(row["reason"] for row in rows if row["reason"])
    assert len(good) == 18_549
    assert set(why) == {
        "record is not a METAR or SPECI report",
        "report is NIL: the station has nothing to tell",
    }
    assert {record["time"][:10] for record in good} == {"2019-07-01"}
    assert sum(record["temperature_degC"] is not None for record in good) > 17_000


def test_a_file_source_needs_a_mapping_or_a_format_and_not_both() -> None:
    assert FileSource(kind="files", path="x", format="metar").mapping == "metar_raw"
    assert FileSource(kind="files", path="x", format="bufr").mapping == "bufr"
    with pytest.raises(ValueError, match="mapping: found none, expected a shipped one by name"):
        FileSource(kind="files", path="x")
    with pytest.raises(ValueError, match="mapping and format: found both"):
        FileSource(kind="files", path="x", format="metar", mapping="metar")


# BUFR


def message(station: int, temperature: float | None) -> bytes:
    eccodes = pytest.importorskip("eccodes")
    handle = eccodes.codes_bufr_new_from_samples("BUFR4")
    fields: dict[str, Any] = {
        "masterTablesVersionNumber": 31, "dataCategory": 0, "unexpandedDescriptors": 307080, "blockNumber": 10,
        "stationNumber": station, "year": 2024, "month": 5, "day": 1, "hour": 12, "minute": 30, "latitude": 47.5,
        "longitude": 11.25, "heightOfStationGroundAboveMeanSeaLevel": 734.0,
    }  # fmt: skip
    if temperature is not None:
        fields["airTemperature"] = temperature
    for key, value in fields.items():
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set(handle, "pack", 1)
    found: bytes = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return found


def test_bufr_messages_become_measurements_with_place_and_elevation(
    spark: SparkSession, tmp_path: Path
) -> None:
    pytest.importorskip("pdbufr")
    (tmp_path / "synop.bufr").write_bytes(
        b"ISMD01 EDZW 011200\r\r\n" + message(962, 280.15) + b"\r\r\n" + message(3, None)
    )

    rows = read_files(spark, str(tmp_path), read_mapping("bufr"), source="s", streaming=False).collect()

    (warm,) = [r for r in rows if r.value is not None]
    assert len(rows) == 2 * len(read_mapping("bufr").values)
    assert (warm.sensor, warm.attribute, warm.value) == ("10962", "air_temperature", pytest.approx(280.15))
    assert (warm.longitude, warm.latitude, warm.elevation) == (
        pytest.approx(11.25),
        pytest.approx(47.5),
        734.0,
    )
    assert warm.event_time.timestamp() == datetime(2024, 5, 1, 12, 30, tzinfo=UTC).timestamp()
    assert {r.reason for r in rows} == {None}


def test_a_broken_bufr_message_is_one_letter_and_the_others_are_read(tmp_path: Path) -> None:
    pytest.importorskip("pdbufr")
    broken = bytearray(message(7, 281.0))
    broken[-40:] = b"\x00" * 40
    (tmp_path / "x.bufr").write_bytes(
        message(962, 280.15) + bytes(broken) + message(963, 280.25) + message(8, 1.0)[:50]
    )
    (tmp_path / "noise.bufr").write_bytes(b"nothing of the kind")

    rows = rows_of(tmp_path / "x.bufr", "bufr")
    (noise,) = rows_of(tmp_path / "noise.bufr", "bufr")

    good = [json.loads(row["text"])["WMO_station_id"] for row in rows if row["reason"] is None]
    assert good == [10962, 10963]
    assert [row["reason"].split(":")[0] for row in rows if row["reason"]] == [
        f"BUFR message of {len(broken)} bytes cannot be read", "BUFR message of 50 bytes cannot be read",
    ]  # fmt: skip
    assert "found no BUFR message, expected one at least" in noise["reason"]
