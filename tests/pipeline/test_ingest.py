"""From records to measurements in canonical units; plain Python computes what must come out."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from sensorgrid.model.units import UNITS, canonical_of, conversion
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.ingest.parsing import canonical, parse
from sensorgrid.pipeline.schema import LETTER_BYTES_MAX, MEASUREMENT, RAW_BYTES_MAX, RECORD
from sensorgrid.pipeline.sources.kafka import KafkaError, KafkaSettings, options_of, read_kafka, records_of
from sensorgrid.pipeline.sources.mapping import Mapping, mapping_of, read_mapping
from sensorgrid.pipeline.sources.stations import stations_of

WIDE: dict[str, Any] = {
    "format": "csv",
    "columns": ["id", "part", "when", "lon", "lat", "t", "T", "dir", "speed"],
    "missing": [-9999, "M"],
    "sensor": {"columns": ["id", "part"]},
    "position": {"longitude": "lon", "latitude": "lat"},
    "time": {"column": "when"},
    "values": {
        "air_temperature": {"column": "t", "unit": "degF", "scale": 0.1, "missing": [9999, "ice"]},
        "dew_point_temperature": {"column": "T", "unit": "degC", "offset": 0.5},
        "wind_from_direction": {"column": "dir", "unit": "degree"},
    },
    "rules": [{"missing": "wind_from_direction", "where": {"dir": {"eq": 0}, "speed": {"gt": 0}}}],
}
WHEN = "2024-05-01T12:00:00Z"


def records(spark: SparkSession, *texts: str | None, topic: str | None = None) -> DataFrame:
    return spark.createDataFrame([("s", topic, text, None) for text in texts], RECORD)


def parsed(spark: SparkSession, mapping: Mapping, *texts: str | None, topic: str | None = None) -> list[Row]:
    frame = parse(records(spark, *texts, topic=topic), mapping)
    assert [(f.name, f.dataType) for f in frame.schema] == [(f.name, f.dataType) for f in MEASUREMENT]
    return frame.collect()


def wide(**changes: Any) -> Mapping:
    return mapping_of(WIDE | changes, name="feed.toml")


def line(**fields: object) -> str:
    usual = {
        "id": "a",
        "part": "1",
        "when": WHEN,
        "lon": 1,
        "lat": 2,
        "t": 500,
        "T": 5,
        "dir": 90,
        "speed": 3,
    }
    return ",".join(str(v) for v in (usual | fields).values())


def test_a_wide_record_becomes_one_row_per_value(spark: SparkSession) -> None:
    rows = parsed(spark, wide(), line())

    assert [(r.attribute, r.value, r.unit) for r in rows] == [
        ("air_temperature", 50.0, "degF"),
        ("dew_point_temperature", 5.5, "degC"),
        ("wind_from_direction", 90.0, "degree"),
    ]
    for row in rows:
        assert (row.sensor, row.longitude, row.latitude, row.source) == ("a/1", 1.0, 2.0, "s")
        assert (row.raw, row.reason) == (line(), None)
        assert row.event_time.timestamp() == datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp()


def test_tenths_come_out_as_the_number_that_was_meant(spark: SparkSession) -> None:
    numbers = range(-400, 1000, 7)

    rows = parsed(spark, wide(), *[line(t=n) for n in numbers])

    found = [r.value for r in rows if r.attribute == "air_temperature"]
    assert found == [float(f"{n / 10:.1f}") for n in numbers]  # exactly: 60.6, not 60.6000000000001


def test_what_stands_for_missing_is_a_row_without_value_or_reason(spark: SparkSession) -> None:
    texts = ["", "  ", "-9999", "-9999.0", "-9.999e3", "M", "9999", "ice", "NaN", "nan", "null"]

    rows = parsed(spark, wide(), *[line(t=text) for text in texts])

    for row, text in zip(rows[::3], texts, strict=True):
        assert (text, row.attribute, row.value, row.reason) == (text, "air_temperature", None, None)


def test_a_sentinel_of_one_value_is_a_number_for_another(spark: SparkSession) -> None:
    rows = parsed(spark, wide(), line(T="9999"), line(T="ice"))

    assert rows[1].value == 9999.5
    assert rows[4].reason == "value 'ice' of T is not a number"


def test_a_text_that_is_no_number_makes_a_dead_letter_of_this_value_only(spark: SparkSession) -> None:
    texts = ["abc", "1d", "2f", "0x1p3", "1,5", "--5", "Infinity", "-inf", "1e999", "9" * 400, "12 13"]

    rows = parsed(spark, wide(), *[line(t=f'"{text}"') for text in texts])

    for row, text in zip(rows[::3], texts, strict=True):
        assert row.reason == f"value '{text[:60]}' of t is not a number"
        assert row.value is None
    assert [r.reason for r in rows[1::3] + rows[2::3]] == [None] * 2 * len(texts)


def test_a_record_without_sensor_time_or_shape_is_one_dead_letter(spark: SparkSession) -> None:
    times = ["", "yesterday", "12:00", "2022", "2024-02-30T00:00:00Z", "+294247-01-01T00:00:00Z"]
    cases = [
        ({"id": ""}, "sensor missing in id, part"),
        ({"part": " "}, "sensor missing in id, part"),
        *[({"when": text}, f"time '{text}' of when, expected iso") for text in times],
        ({"lon": "east"}, "position 'east' of lon is not a number"),
        ({"speed": "3,4"}, "record is not a line of 9 fields"),
        ({"id": '"a'}, "record is not a line of 9 fields"),
    ]

    rows = parsed(spark, wide(), *[line(**fields) for fields, _ in cases])

    for row, (fields, reason) in zip(rows, cases, strict=True):
        assert row.reason == reason
        assert (row.value, row.attribute, row.raw) == (None, None, line(**fields))


@pytest.mark.parametrize("name", ["wide", "plain_json", "sensorthings"])
def test_no_garbage_stops_the_stream_and_each_is_one_dead_letter(spark: SparkSession, name: str) -> None:
    mapping = wide() if name == "wide" else read_mapping(name)
    long = [
        "," * 30_000,
        "," * (RAW_BYTES_MAX - 1),
        '"' * 5000,
        "ä" * 10_000,
        "{" * 10_000,
        "{" + "[" * 9999 + "}",
    ]
    texts = [None, "", "   ", "a", ",", "\x00\x01\x02", "#,#", "\uffff,", *long]

    rows = parsed(spark, mapping, *texts)

    assert len(rows) == len(texts)
    assert all(row.reason for row in rows)
    assert all(len((row.raw or "").encode()) <= LETTER_BYTES_MAX for row in rows)


def test_a_position_may_be_missing(spark: SparkSession) -> None:
    rows = parsed(spark, wide(), line(lon="-9999", lat=""))

    assert [(r.longitude, r.latitude, r.reason) for r in rows] == [(None, None, None)] * 3


def test_a_rule_makes_a_value_missing_only_where_all_its_conditions_hold(spark: SparkSession) -> None:
    cases = [
        ("0", "5", None),
        ("0", "0", 0.0),
        ("360", "5", 360.0),
        ("0", "", 0.0),
        ("0", "x", 0.0),
        ("M", "5", None),
    ]

    rows = parsed(spark, wide(), *[line(dir=direction, speed=speed) for direction, speed, _ in cases])

    assert [(r.value, r.reason) for r in rows[2::3]] == [(expected, None) for *_, expected in cases]


def test_a_record_that_came_with_a_reason_keeps_it(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("s", "f", line(), "too long"), ("s", "f", None, "broken")], RECORD)

    rows = parse(frame, wide()).collect()

    assert [(r.reason, r.value, r.sensor) for r in rows] == [("too long", None, None), ("broken", None, None)]


@pytest.mark.parametrize(
    ("form", "zone", "cases"),
    [
        (
            "iso",
            "UTC",
            {
                "2024-07-01T12:00:00Z": "2024-07-01T12:00:00",
                "2024-07-01 12:00:00": "2024-07-01T12:00:00",
                "2024-07-01T12:00:00.250+02:00": "2024-07-01T10:00:00.250",
                "2024-07-01": "2024-07-01T00:00:00",
            },
        ),
        (
            "iso",
            "Europe/Berlin",
            {
                "2024-07-01T12:00:00": "2024-07-01T10:00:00",
                "2024-01-01T12:00": "2024-01-01T11:00:00",
                "2024-07-01T12:00:00Z": "2024-07-01T12:00:00",
                "2024-07-01T12:00:00+0800": "2024-07-01T04:00:00",
            },
        ),
        (
            "epoch_s",
            "UTC",
            {
                "1719835200": "2024-07-01T12:00:00",
                "1719835200.5": "2024-07-01T12:00:00.500",
                "1719835200500": None,  # milliseconds
                "1e300": None,
                "NaN": None,
                "12:00": None,
            },
        ),
        ("epoch_ms", "UTC", {"1719835200500": "2024-07-01T12:00:00.500"}),
        (
            "yyyy MM dd HH:mm 'UTC'",
            "UTC",
            {"1995 03 18 00:50 UTC": "1995-03-18T00:50:00", "1995 03 18 25:50 UTC": None, "x": None},
        ),
        ("dd.MM.yyyy HH:mm", "+08:00", {"01.11.2015 07:30": "2015-10-31T23:30:00"}),
    ],
    ids=["iso", "iso local", "epoch_s", "epoch_ms", "pattern", "pattern local"],
)
def test_times_of_every_kind_come_out_in_utc(
    spark: SparkSession, form: str, zone: str, cases: dict[str, str | None]
) -> None:
    mapping = wide(time={"column": "when", "format": form, "zone": zone})

    rows = parsed(spark, mapping, *[line(when=text) for text in cases])

    moments = {row.raw.split(",")[2]: row for row in rows}
    for text, expected in cases.items():
        row = moments[text]
        if expected is None:
            assert (row.reason, row.event_time) == (f"time '{text}' of when, expected {form}", None)
        else:
            assert row.event_time.timestamp() == datetime.fromisoformat(expected + "+00:00").timestamp()


def test_plain_json_is_one_measurement_per_object(spark: SparkSession) -> None:
    base = {"sensor": "a1", "attribute": "air_temperature", "longitude": 13.4, "latitude": 52.5, "time": WHEN}

    rows = parsed(
        spark,
        read_mapping("plain_json"),
        json.dumps(base | {"value": 21.5, "unit": "degC"}),
        json.dumps(base | {"value": float("nan"), "unit": "degC"}),
        json.dumps(base | {"value": None, "unit": "degC"}),
        json.dumps(base | {"value": "21.5", "unit": "degC", "more": [1, 2]}),
        json.dumps(base | {"value": True, "unit": "degC"}),
        json.dumps(base | {"value": {"a": 1}, "unit": "degC"}),
        json.dumps(base | {"value": 1}),
        json.dumps({k: v for k, v in base.items() if k != "attribute"} | {"value": 1, "unit": "degC"}),
    )

    assert [(r.value, r.reason) for r in rows] == [
        (21.5, None),
        (None, None),
        (None, None),
        (21.5, None),
        (None, "value 'true' of value is not a number"),
        (None, """value '{"a":1}' of value is not a number"""),
        (None, "unit missing in unit"),
        (None, "attribute missing in attribute"),
    ]
    assert (rows[0].sensor, rows[0].attribute, rows[0].longitude, rows[0].latitude) == (
        "a1", "air_temperature", 13.4, 52.5,
    )  # fmt: skip


def test_json_that_spark_would_cut_or_trip_over_is_a_dead_letter(spark: SparkSession) -> None:
    cases = {
        "[{}, {}]": "record is not a JSON object",
        '{"sensor": "a"} {"sensor": "b"}': "record holds more than one JSON object",
        '{"sensor": "a"} rest': "record is not a JSON object",
        '{"sensor": "a",}': "record is not JSON of the expected shape",
        '{"a":' * 5000 + "1" + "}" * 5000: "record is not JSON of the expected shape",
        "{}": "sensor missing in sensor",
    }

    rows = parsed(spark, read_mapping("plain_json"), *cases)

    assert [row.reason for row in rows] == list(cases.values())


def test_sensorthings_observations_are_read_through_their_paths(spark: SparkSession) -> None:
    observation = {
        "phenomenonTime": WHEN,
        "result": 66.2,
        "Datastream": {
            "@iot.id": 7,
            "Thing": {"@iot.id": "house"},
            "ObservedProperty": {"name": "Air Temperature"},
            "unitOfMeasurement": {"symbol": "°F"},
        },
        "FeatureOfInterest": {"feature": {"type": "Point", "coordinates": [-114.1, 51.0]}},
    }

    (row,) = canonical(
        parse(records(spark, json.dumps(observation, ensure_ascii=False)), read_mapping("sensorthings"))
    ).collect()

    assert (row.sensor, row.attribute, row.unit) == ("house/7", "air_temperature", "K")
    assert (row.longitude, row.latitude) == (-114.1, 51.0)
    assert row.value == pytest.approx((66.2 - 32) / 1.8 + 273.15)


@pytest.mark.parametrize(
    ("pattern", "topic", "sensor"),
    [
        ("sensors/{dev}/{q}", "sensors/a.1/air_temperature", "a.1"),
        ("sensors/{dev}/{q}", "sensors/a1/x/air_temperature", None),
        ("sensors/{dev}/{q}", None, None),
        ("sensors.{dev}.{q}", "sensors.a1.air_temperature", "a1"),
        ("sensors.{dev}.{q}", "sensors.a1.b.air_temperature", None),
        ("{dev}/{q}.csv.gz", "file:/data/a1/air_temperature.csv.gz", "a1"),
    ],
)
def test_parts_of_the_topic_say_sensor_and_attribute(
    spark: SparkSession, pattern: str, topic: str | None, sensor: str | None
) -> None:
    mapping = mapping_of(
        {
            "format": "json", "topic": pattern, "sensor": {"columns": ["{dev}"]}, "time": {"column": "t"},
            "record": {"value": "v", "attribute": "{q}", "default_unit": "degC"},
        },
        name="feed.toml",
    )  # fmt: skip

    (row,) = parsed(spark, mapping, f'{{"t": "{WHEN}", "v": 3}}', topic=topic)

    if sensor is None:
        assert row.reason == f"topic '{topic or ''}' does not match {pattern}"
    else:
        assert (row.sensor, row.attribute, row.value) == (sensor, "air_temperature", 3.0)


def test_the_city_reports_commas_local_time_and_aliases(spark: SparkSession) -> None:
    mapping = read_mapping("city")
    frame = spark.createDataFrame(
        [
            ("c", "city/air/st-03", "01.07.2023 14:00:00;21,5;45;-99,9", None),
            ("c", "city/air/hafen", "31.05.2023 12:00:00;---;45,5;12", None),
            ("c", "city/air/hafen", "01.06.2023 12:00:00;-99,9;45;12", None),
        ],
        RECORD,
    )

    rows = canonical(parse(frame, mapping, stations_of(mapping))).collect()

    assert [r.sensor for r in rows] == ["park"] * 3 + ["hafen"] * 6
    assert rows[0].event_time.timestamp() == datetime(2023, 7, 1, 12, tzinfo=UTC).timestamp()
    assert rows[0].value == pytest.approx(21.5 - 0.4 + 273.15)  # calibrated
    assert rows[1].value == pytest.approx(0.45)
    assert [r.value for r in rows[3::3]] == [None, None]
    assert rows[2].value == pytest.approx(-99.9e-9)  # a sentinel of the temperature alone
    assert [(r.longitude, r.latitude) for r in rows[::3]] == [(2480, 6075), (5230, 1410), (5610, 1380)]


EXPECTED = [
    ("air_temperature", "degC", 20.0, 293.15),
    ("air_temperature", "°C", -40.0, 233.15),
    ("air_temperature", "F", -40.0, 233.15),
    ("air_temperature", "K", 1.0, 1.0),
    ("air_pressure_at_mean_sea_level", "hPa", 1013.25, 101325.0),
    ("air_pressure_at_mean_sea_level", "mbar", 1000.0, 1e5),
    ("air_pressure_at_mean_sea_level", "inHg", 29.92, 101320.76),
    ("air_pressure_at_mean_sea_level", "mmHg", 760.0, 101325.0),
    ("wind_speed", "kt", 10.0, 5.14444),
    ("wind_speed", "knot", 3600 / 1852, 1.0),
    ("wind_speed", "km/h", 36.0, 10.0),
    ("wind_speed", "mph", 10.0, 4.4704),
    ("relative_humidity", "%", 55.0, 0.55),
    ("wind_from_direction", "rad", math.pi, 180.0),
    ("precipitation_amount", "mm", 3.0, 3.0),
    ("precipitation_amount", "inch", 1.0, 25.4),
    ("sea_surface_wave_significant_height", "mm", 1500.0, 1.5),
    ("sea_surface_wave_significant_height", "ft", 10.0, 3.048),
    ("mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air", "ug/m3", 12.0, 1.2e-8),
    ("mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air", "µg/m³", 12.0, 1.2e-8),
    ("mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air", "μg/m³", 12.0, 1.2e-8),
]


def measurements(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    usual = dict.fromkeys(MEASUREMENT.fieldNames()) | {"sensor": "a", "source": "s"}
    return spark.createDataFrame([tuple((usual | row).values()) for row in rows], MEASUREMENT)


def test_units_agree_with_values_from_tables(spark: SparkSession) -> None:
    frame = measurements(spark, *[{"attribute": a, "unit": u, "value": v} for a, u, v, _ in EXPECTED])

    rows = canonical(frame).collect()

    assert [r.value for r in rows] == [pytest.approx(e, rel=1e-5) for *_, e in EXPECTED]
    assert [r.unit for r in rows] == [KNOWN[a].unit for a, *_ in EXPECTED]


def test_every_spelling_of_every_known_attribute_converts_as_the_table_says(spark: SparkSession) -> None:
    cases = [(a.name, unit, a.unit) for a in KNOWN.values() for unit in UNITS[a.unit]]

    rows = canonical(
        measurements(spark, *[{"attribute": a, "unit": u, "value": 7.0} for a, u, _ in cases])
    ).collect()

    for row, (_, unit, base) in zip(rows, cases, strict=True):
        scale, offset = conversion(unit, base) or (math.nan, 0)
        assert (row.value, row.unit, row.reason) == (pytest.approx(7 * scale + offset), base, None)


def test_a_unit_that_does_not_fit_is_a_dead_letter_unless_nothing_was_measured(spark: SparkSession) -> None:
    rows = canonical(
        measurements(
            spark,
            {"attribute": "air_temperature", "unit": "hPa", "value": 1.0},
            {"attribute": "air_temperature", "unit": "grad", "value": None},
            {"attribute": "my_own", "unit": "grad", "value": 1.0},
            {"attribute": "my_own", "unit": "mg/m3", "value": 1.0},
            {"attribute": "air_temperature", "unit": None, "value": 280.0},
            {"attribute": "air_temperature", "unit": "degC", "value": None, "reason": "earlier"},
        )
    ).collect()

    assert [(r.value, r.unit, r.reason) for r in rows] == [
        (None, "hPa", "unit of air_temperature: found 'hPa', expected one that converts to K"),
        (None, "grad", None),
        (None, "grad", "unit of my_own: found 'grad', expected a known unit"),
        (1e-6, "kg m-3", None),
        (280.0, "K", None),
        (None, "K", "earlier"),
    ]


def test_a_spelling_has_one_meaning_without_an_attribute() -> None:
    assert [canonical_of(unit) for unit in ("mm", "cm", "m", "inch")] == ["m"] * 4
    assert all(canonical_of(unit) == unit for unit in UNITS)
    assert canonical_of("kt") == "m s-1"
    assert canonical_of("parsec") is None


def test_kafka_without_its_connector_says_which_package_to_add(spark: SparkSession) -> None:
    with pytest.raises(
        KafkaError, match=r"found no connector.*--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4"
    ):
        read_kafka(spark, KafkaSettings("localhost:9", "a"), source="k")


def test_secrets_of_kafka_come_from_the_environment_only() -> None:
    sasl = {"protocol": "SASL_SSL", "user": "env:U", "password": "env:P"}

    options = options_of(KafkaSettings("h:1", "^a.*", **sasl), {"U": "me", "P": 'x"y'}, streaming=True)

    assert options["subscribePattern"] == "^a.*"
    assert options["kafka.sasl.jaas.config"].endswith('required username="me" password="x\\"y";')
    with pytest.raises(KafkaError, match=r"kafka password: found no environment variable P"):
        options_of(KafkaSettings("h:1", "a", **sasl), {"U": "me"}, streaming=True)
    with pytest.raises(KafkaError, match=r"kafka password: found a value, expected env:NAME") as error:
        KafkaSettings("h:1", "a", **(sasl | {"password": "hunter2"}))
    assert "hunter2" not in str(error.value)
    with pytest.raises(KafkaError, match=r"kafka protocol: found 'TLS'"):
        KafkaSettings("h:1", "a", protocol="TLS")


def test_messages_of_kafka_become_records_or_dead_letters(spark: SparkSession) -> None:
    messages = spark.createDataFrame(
        [(b"\xc3\xa4,1", "t"), (None, "t"), (b"\xff\xfe", "t"), (bytearray(RAW_BYTES_MAX + 1), "t")],
        "value binary, topic string",
    )

    rows = records_of(messages, "k").collect()

    assert [(r.source, r.topic) for r in rows] == [("k", "t")] * 4
    assert [r.reason for r in rows] == [
        None,
        "record is empty",
        "record is not UTF-8",
        f"record of {RAW_BYTES_MAX + 1} bytes, expected at most {RAW_BYTES_MAX}",
    ]
    assert rows[0].text == "ä,1"
    assert len(rows[3].text) == LETTER_BYTES_MAX


def test_texts_of_a_lookup_table_are_numbers_and_others_stay_what_they_are(spark: SparkSession) -> None:
    values: dict[str, Any] = {
        "wind_from_direction": {"column": "dir", "unit": "degree", "lookup": "compass"},
        "air_temperature": {
            "column": "t",
            "unit": "degC",
            "scale": 2,
            "lookup": {"mild": 15.5},
            "missing": ["?"],
        },
    }
    mapping = wide(values=values, rules=[])

    rows = parsed(spark, mapping, line(dir="NNE", t="mild"), line(dir="N", t=7), line(dir="nowhere", t="?"))

    assert [(r.value, r.reason) for r in rows] == [
        (22.5, None), (31.0, None), (360.0, None), (14.0, None),
        (None, "value 'nowhere' of dir is not a number"), (None, None),
    ]  # fmt: skip


def test_a_lookup_table_serves_long_records_and_can_be_shared_by_its_name(spark: SparkSession) -> None:
    content = {
        "format": "json", "sensor": {"columns": ["s"]}, "time": {"column": "at"}, "lookups": {"sea": {"calm": 0.1}},
        "position": {"longitude": "x", "latitude": "y"},
        "record": {"value": "v", "attribute": "a", "default_unit": "m", "lookup": "sea"},
    }  # fmt: skip
    record = {"s": "b", "at": WHEN, "x": 1, "y": 2, "a": "sea_surface_wave_significant_height", "v": "calm"}

    (row,) = parsed(spark, mapping_of(content, name="feed.toml"), json.dumps(record))

    assert (row.value, row.unit, row.reason) == (0.1, "m", None)


def test_the_time_can_stand_in_the_name_of_the_file_and_in_several_columns(spark: SparkSession) -> None:
    content = WIDE | {
        "topic": "{day}.csv",
        "time": {"column": ["{day}", "when"], "format": "yyyyMMdd H:mm", "zone": "+02:00"},
    }
    mapping = mapping_of(content, name="feed.toml")

    rows = parsed(spark, mapping, line(when="9:30"), line(when="noon"), topic="file:/in/20240501.csv")

    assert rows[0].event_time.timestamp() == datetime(2024, 5, 1, 7, 30, tzinfo=UTC).timestamp()
    assert rows[3].reason == "time '20240501 noon' of {day}, when, expected yyyyMMdd H:mm"


def test_the_elevation_of_a_sensor_comes_in_metres_and_may_be_unreadable(spark: SparkSession) -> None:
    position = {"longitude": "lon", "latitude": "lat", "elevation": "speed", "elevation_unit": "ft"}

    rows = parsed(
        spark, wide(position=position), *[line(speed=text) for text in (1000, "", "high", -9999, "1e999")]
    )

    assert [r.elevation for r in rows[::3]] == [pytest.approx(304.8), None, None, None, None]
    assert {r.reason for r in rows} == {None}
