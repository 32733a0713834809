"""Mappings: what is shipped can be read, and what is wrong is said with file and key."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.sources.declaration import SHIPPED, path_of
from sensorgrid.pipeline.sources.mapping import COMPASS, MappingError, mapping_of, read_mapping
from sensorgrid.pipeline.sources.stations import stations_of

WIDE = """
format = "csv"
columns = ["id", "when", "x", "y", "t", "w"]
[sensor]
columns = ["id"]
[position]
longitude = "x"
latitude = "y"
[time]
column = "when"
[values.air_temperature]
column = "t"
unit = "degC"
[values.wind_speed]
column = "w"
unit = "kt"
"""


def changed(changes: dict[str, Any], text: str = WIDE) -> dict[str, Any]:
    """The content of a mapping with some keys set (dotted) or removed (None)."""
    content = tomllib.loads(text)
    for dotted, value in changes.items():
        *tables, key = dotted.split(".")
        table = content
        for name in tables:
            table = table.setdefault(name, {})
        if value is None:
            del table[key]
        else:
            table[key] = value
    return content


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_mapping_can_be_read_by_its_bare_name(path: Path) -> None:
    mapping = read_mapping(path.stem)

    assert mapping == read_mapping(path)
    assert all(value.attribute in KNOWN for value in mapping.values)


def test_the_station_table_that_a_mapping_names_is_found_beside_it() -> None:
    stations = stations_of(read_mapping("city"))

    assert stations is not None
    assert stations.names()["townhall"] == "rathaus"
    assert stations_of(read_mapping("metar")) is None


@pytest.mark.parametrize(
    ("changes", "key", "expected"),
    [
        ({"format": "xml"}, "format", "one of csv, json, parquet, metar, bufr, measurements"),
        ({"format": None}, "format", "a text"),
        ({"colums": ["id"]}, "colums", "one of the keys sensor, "),
        ({"delimiter": "::"}, "delimiter", "one character"),
        ({"delimiter": '"'}, "delimiter", "neither quote"),
        ({"decimal": ";"}, "decimal", "'.' or ','"),
        ({"encoding": "utf-16"}, "encoding", "utf-8"),
        ({"header": "yes"}, "header", "true or false"),
        ({"columns": ["id", "id"]}, "columns", "each name once"),
        ({"columns": []}, "columns", "names of all columns"),
        ({"columns": [1, 2]}, "columns", "texts"),
        ({"sensor.columns": []}, "sensor.columns", "one or more"),
        ({"sensor.columns": ["ID"]}, "sensor.columns", "one of the columns id, when"),
        ({"sensor.columns": ["{device}"]}, "sensor.columns", "a part of the topic None"),
        ({"position.latitude": None}, "position", "both coordinates or none"),
        ({"time": None}, "time.column", "column of the time"),
        ({"time.format": "HH:mm"}, "time.format", "a pattern with year and day"),
        ({"time.zone": "Mars/Olympus"}, "time.zone", "a zone such as UTC"),
        ({"values.air_temperature.unit": "hPa"}, "values.air_temperature.unit", "converts to 'K'"),
        ({"values.air_temperature.unit": None}, "values.air_temperature.unit", "a text"),
        ({"values.air_temperature.scale": "0.1"}, "values.air_temperature.scale", "a number"),
        ({"values.air_temperature.scale": True}, "values.air_temperature.scale", "a number"),
        ({"values.air_temperature.misssing": [1]}, "values.air_temperature.misssing", "one of the keys"),
        ({"values.air_temperature.missing": 9999}, "values.air_temperature.missing", "a list"),
        ({"values.my_thing": {"column": "t", "unit": "furlong"}}, "values.my_thing.unit", "a known unit"),
        ({"values": {}}, "values and record", "one of them"),
        ({"record.value": "t", "record.fixed_attribute": "x", "record.default_unit": "K"}, "values and record", "one"),
        ({"topic": "a/b"}, "topic", "at least one part in braces"),
        ({"rules": [{"missing": "rain", "where": {"t": {"eq": 0}}}]}, "rules[0].missing", "one of air_temp"),
        ({"rules": [{"missing": "wind_speed", "where": {}}]}, "rules[0].where", "at least one"),
        ({"rules": [{"missing": "wind_speed", "where": {"t": {"is": 0}}}]}, "rules[0].where", "eq, ne"),
        ({"rules": [{"missing": "wind_speed", "where": {"t": {"lt": "a"}}}]}, "rules[0].where", "a number for lt"),
        ({"rules": [{"missing": "wind_speed", "where": {"q": {"eq": 0}}}]}, "rules[0].where", "one of the columns"),
        ({"sensor.aliases": [{"pattern": "(", "to": "a"}]}, "aliases[0].pattern", "a regular expression"),
        ({"sensor.aliases": [{"pattern": "K(.*)", "to": "$2"}]}, "aliases[0].to", "groups up to $1"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_file_key_and_expectation(
    changes: dict[str, Any], key: str, expected: str
) -> None:
    with pytest.raises(MappingError) as error:
        mapping_of(changed(changes), name="feed.toml")

    message = str(error.value)
    assert message.startswith(f"feed.toml: {key}")
    assert ": found " in message
    assert expected in message.split("expected", 1)[1]
    assert isinstance(error.value, SensorGridError)


def test_the_unchanged_mapping_of_these_tests_is_right() -> None:
    assert mapping_of(changed({}), name="feed.toml").used_columns == ("id", "when", "x", "y", "t", "w")


def test_a_mapping_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(MappingError, match=r"found 'nonsense', expected one of .*metar.*, or a path"):
        read_mapping("nonsense")
    with pytest.raises(MappingError, match=r"x.toml: found No such file"):
        read_mapping(tmp_path / "x.toml")


def test_text_that_is_no_toml_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("format = \n")

    with pytest.raises(MappingError, match=r"broken.toml: found .*line 1.*, expected TOML"):
        read_mapping(path)


def test_paths_may_quote_keys_with_dots() -> None:
    assert path_of('Datastream."@iot.id"') == ("Datastream", "@iot.id")
    assert path_of("location.coordinates.0") == ("location", "coordinates", "0")
    for wrong in ("", "a..b", ".a", 'a."b'):
        with pytest.raises(ValueError):  # noqa: PT011 - the mapping says it in full
            path_of(wrong)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("a.b", "a", "none leads through another"), ("T", "t", "differ in more than capitals")],
)
def test_json_paths_that_spark_could_not_tell_apart_are_refused(
    first: str, second: str, expected: str
) -> None:
    content = changed({"format": "json", "columns": None, "sensor.columns": [first, second]})
    content["values"]["air_temperature"]["column"] = "q"

    with pytest.raises(MappingError, match=expected):
        mapping_of(content, name="feed.toml")


def test_a_long_record_needs_attribute_and_unit_from_somewhere() -> None:
    base = changed({"values": None, "record": {"value": "t"}})

    with pytest.raises(
        MappingError, match=r"record.attribute and record.fixed_attribute: found .*one of them"
    ):
        mapping_of(base, name="feed.toml")
    base["record"]["fixed_attribute"] = "air_temperature"
    with pytest.raises(MappingError, match=r"record.unit: found None, expected the column of the unit"):
        mapping_of(base, name="feed.toml")
    base["record"]["default_unit"] = "hPa"
    with pytest.raises(MappingError, match=r"record.default_unit: found 'hPa'"):
        mapping_of(base, name="feed.toml")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"optional": ["id"]}, r"optional: found 'id', expected one of"),
        ({"optional": ["when"]}, r"optional: found 'when', expected one of"),
        ({"optional": ["nothing"]}, r"optional: found 'nothing', expected one of"),
        (
            {"optional": ["t"], "header": False},
            r"optional: found \['t'\], expected none: only CSV with a header",
        ),
        (
            {"position.elevation_unit": "hPa"},
            r"position.elevation_unit: found 'hPa', expected a unit of length",
        ),
        ({"time.column": []}, r"time.column: found None, expected the column of the time"),
        (
            {"values.air_temperature.lookup": "sea"},
            r"lookup: found 'sea', expected one of compass, or a table",
        ),
        ({"values.air_temperature.lookup": {"a": "b"}}, r"lookup.a: found 'b', expected a number"),
        ({"lookups.mine": {"a": "b"}}, r"lookups.mine.a: found 'b', expected a number"),
    ],
)
def test_what_may_be_absent_and_what_texts_stand_for_is_checked(
    change: dict[str, Any], expected: str
) -> None:
    with pytest.raises(MappingError, match=expected):
        mapping_of(changed(change), name="feed.toml")


def test_the_compass_has_sixteen_points_and_north_is_not_0() -> None:
    table = dict(COMPASS["compass"])

    assert len(table) == 16
    assert (table["N"], table["E"], table["SSW"], table["NNW"]) == (360.0, 90.0, 202.5, 337.5)
