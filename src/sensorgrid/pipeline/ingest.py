"""From records to measurements: one text in, one row per value out, by native columns only.

Nothing is lost on the way. A record that cannot be read as a whole (not a record of this feed, no sensor, no
time) becomes one row with a reason; otherwise each of its values becomes a row, and a value that is no number
is a row with a reason of its own. A wide record of n value columns therefore yields n rows or one, a long
record yields one. Missing values (blank, sentinels, NaN) are rows without value and without reason.

Spark parses the text: `from_csv` and `from_json` into texts only, then casts that give null instead of
stopping the stream. Some inputs would still stop it, or be cut silently, and are caught before: lines with
more fields than the CSV parser allows, two JSON objects in one record.
"""

import json
from collections.abc import Mapping as Dictionary
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from sensorgrid.pipeline.attributes import KNOWN, Attribute
from sensorgrid.pipeline.schema import LETTER_BYTES_MAX, MEASUREMENT
from sensorgrid.pipeline.sources.declaration import Condition, Long, Mapping, Sentinel, Value, path_of
from sensorgrid.pipeline.sources.stations import Stations, locate
from sensorgrid.pipeline.units import UNITS, canonical_of

FIELDS_MAX = 20_000
"""Spark's CSV parser fails, and the stream with it, at 20,480 fields in a line."""
SEPARATOR = "/"
"""Between the columns that make a sensor's name."""
_SHOWN = 60  # characters of a faulty text in a reason
_BAD = "__unreadable__"
_OTHERS = ""  # attributes that are not known
_BLANKS = " \t\r\n"
_YEAR_10000_S = 253_402_300_800
_OPERATORS = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}
_NAIVE_TIME = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?$"


def parse(records: DataFrame, mapping: Mapping, stations: Stations | None = None) -> DataFrame:
    """Measurements from the records of one feed, for batches and streams alike.

    Parameters
    ----------
    records
        Rows of `RECORD`: from files, MQTT, NATS or Kafka.
    mapping
        What the records mean.
    stations
        Positions, other names and calibrations, if the feed needs them.

    Returns
    -------
    DataFrame
        Rows of `MEASUREMENT`, values in the units of the feed (see `canonical`).
    """
    split = records.select(
        "source",
        "text",
        F.coalesce(F.col("reason"), _shape_fault(mapping), _topic_fault(mapping)).alias("fault"),
        _topic_parts(mapping).alias("parts"),
    )
    fields = split.select(
        "source",
        letter(F.col("text")).alias("raw"),
        "fault",
        "parts",
        F.when(F.col("fault").isNull(), _fields(mapping)).alias("fields"),
    )
    # One projection per step, so that Spark computes each text and number once: written into each other, the
    # expressions grow beyond what Java compiles, and all is twenty times slower.
    texts = fields.select("source", "raw", _read_fault(mapping).alias("fault"), *_texts(mapping))
    numbers = texts.select("*", *_numbers(mapping))
    typed = numbers.select("source", "raw", *_typed(mapping))
    dead = F.array(_item())
    rows = typed.select(
        "*", F.explode(F.when(F.col("fault").isNull(), F.col("items")).otherwise(dead)).alias("row")
    )
    flat = rows.select("source", "raw", "sensor", "longitude", "latitude", "event_time", "fault", "row.*")
    valued = flat.select("*", _number(mapping, F.col("text")).alias("number"))
    judged = valued.select(
        "*", (F.col("void") | _is_missing(F.col("text"), F.col("number"), mapping.missing)).alias("missing")
    )
    measurements = judged.select(
        "sensor",
        "attribute",
        "longitude",
        "latitude",
        "event_time",
        F.when(
            ~F.col("missing") & F.col("fault").isNull() & F.col("lack").isNull() & _is_finite(),
            F.col("number") * F.col("scale") / F.col("divisor") + F.col("offset"),
        ).alias("value"),
        "unit",
        "source",
        "raw",
        F.coalesce(F.col("fault"), F.when(~F.col("missing"), _value_fault())).alias("reason"),
    )
    return measurements if stations is None else locate(measurements, stations)


def canonical(measurements: DataFrame, attributes: Dictionary[str, Attribute] = KNOWN) -> DataFrame:
    """Values in the canonical units of their attributes; a unit that does not fit makes a dead letter.

    A row without a unit is taken to be in canonical units already: only our own Parquet files may leave it
    out, `parse` makes a dead letter of a record that says no unit. An attribute that is not in `attributes`
    gets the canonical unit that its own unit leads to.
    """
    table: dict[str, Any] = {
        known.name: {"unit": known.unit, "units": _conversions(known.unit)} for known in attributes.values()
    }
    bases = {spelling: canonical_of(spelling) for spellings in UNITS.values() for spelling in spellings}
    others = {spelling: _conversions(base)[spelling] for spelling, base in bases.items() if base}
    table[_OTHERS] = {"unit": None, "units": others}
    entries = constant(
        table, "map<string,struct<unit:string,units:map<string,struct<s:double,o:double,u:string>>>>"
    )
    rule = F.coalesce(
        F.try_element_at(entries, F.col("attribute")), F.try_element_at(entries, F.lit(_OTHERS))
    )
    ruled = measurements.select("*", rule.alias("rule"))
    converted = ruled.select(
        *MEASUREMENT.fieldNames(),
        F.col("rule.unit").alias("implied"),
        F.try_element_at(F.col("rule.units"), F.trim("unit")).alias("by"),
    )
    unit, value = F.col("unit"), F.col("value")
    strange = unit.isNotNull() & value.isNotNull() & F.col("by").isNull()
    expected = F.concat(F.lit("one that converts to "), F.col("implied"))
    fault = F.concat(
        F.lit("unit of "),
        F.coalesce(F.col("attribute"), F.lit("the value")),
        F.lit(": found "),
        _shown(unit),
        F.lit(", expected "),
        F.coalesce(expected, F.lit("a known unit")),
    )
    scaled = F.when(unit.isNull(), value).otherwise(value * F.col("by.s") + F.col("by.o"))
    made = {
        "value": F.when(F.col("reason").isNull(), scaled),
        "unit": F.when(unit.isNull(), F.col("implied")).otherwise(F.coalesce(F.col("by.u"), unit)),
        "reason": F.coalesce(F.col("reason"), F.when(strange, fault)),
    }
    return converted.select(*[made.get(f.name, F.col(f.name)).alias(f.name) for f in MEASUREMENT.fields])


def constant(value: object, kind: str) -> Column:
    """A nested constant; Spark folds it once.

    Built from columns of constants it would take seconds: each is a call to Java.
    """
    return F.from_json(F.lit(json.dumps(value)), kind)


def letter(text: Column) -> Column:
    """So much of a record as is kept for people: at most `LETTER_BYTES_MAX` bytes."""
    cut = F.make_valid_utf8(F.substring(text.cast("binary"), 1, LETTER_BYTES_MAX).cast("string"))
    return F.when(F.octet_length(text) <= LETTER_BYTES_MAX, text).otherwise(cut)


def _shape_fault(mapping: Mapping) -> Column:
    """Why a text is not even tried."""
    text = F.col("text")
    empty = F.when(F.coalesce(F.btrim(text, F.lit(_BLANKS)), F.lit("")) == "", F.lit("record is empty"))
    if mapping.format == "csv":
        fields = F.length(text) - F.length(F.replace(text, F.lit(mapping.delimiter), F.lit(""))) + 1
        many = (F.length(text) > FIELDS_MAX) & (fields > FIELDS_MAX)
        expected = F.lit(f" fields in a line, expected {len(mapping.columns)}")
        return F.coalesce(empty, F.when(many, F.concat(F.lit("found "), fields.cast("string"), expected)))
    bare = F.btrim(text, F.lit(_BLANKS))
    whole = bare.startswith("{") & bare.endswith("}")
    return F.coalesce(
        empty,
        F.when(~whole, F.lit("record is not a JSON object")),
        # `from_json` reads the first object and says nothing about the second.
        F.when(text.rlike(r"\}\s*\{"), F.lit("record holds more than one JSON object")),
    )


def _topic_fault(mapping: Mapping) -> Column:
    if mapping.topic is None:
        return F.lit(None).cast("string")
    topic = F.coalesce("topic", F.lit(""))
    strange = F.concat(F.lit("topic "), _shown(topic), F.lit(f" does not match {mapping.topic}"))
    return F.when(~topic.rlike(mapping.topic_regex), strange)


def _topic_parts(mapping: Mapping) -> Column:
    groups = range(1, len(mapping.topic_parts) + 1)
    none = F.lit(None).cast("array<string>")
    parts = [F.regexp_extract("topic", mapping.topic_regex, group) for group in groups]
    return F.array(*parts) if parts else none


def _fields(mapping: Mapping) -> Column:
    """The record as a struct of texts, with the whole text in `_BAD` if its shape is wrong."""
    bad = StructField(_BAD, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    if mapping.format == "csv":
        # Columns go by their place: Spark would not tell "T" from "t".
        names = [StructField(f"c{place}", StringType()) for place in range(len(mapping.columns))]
        shape = {
            "sep": mapping.delimiter, "quote": mapping.quote, "escape": mapping.quote, "maxCharsPerColumn":
            "-1",
        }  # fmt: skip
        return F.from_csv("text", StructType([*names, bad]).simpleString(), options | shape)
    paths = [path_of(column) for column in mapping.used_columns]
    inner = _type_at(paths)
    assert isinstance(inner, StructType)
    return F.from_json("text", StructType([*inner.fields, bad]), options)


def _type_at(paths: list[tuple[str, ...]]) -> DataType:
    """The type of a JSON value from the paths that lead on from it; every leaf is a text."""
    if paths == [()] * len(paths):
        return StringType()
    children: dict[str, list[tuple[str, ...]]] = {}
    for step, *rest in paths:
        children.setdefault(step, []).append(tuple(rest))
    if all(step.isdigit() for step in children):
        return ArrayType(_type_at([path for rest in children.values() for path in rest]))
    return StructType([StructField(step, _type_at(rest)) for step, rest in children.items()])


def _texts(mapping: Mapping) -> list[Column]:
    """Each column that is used, trimmed; what is not there is blank."""
    # JSON's NaN arrives in quotes.
    blanks = F.lit(_BLANKS if mapping.format == "csv" else _BLANKS + '"')
    made = []
    for column in dict.fromkeys(column for _, column in mapping.uses()):
        if column.startswith("{"):
            found = F.get("parts", F.lit(mapping.topic_parts.index(column[1:-1])))
        elif mapping.format == "csv":
            found = F.col("fields").getField(f"c{mapping.columns.index(column)}")
        else:
            found = F.col("fields")
            for step in path_of(column):
                found = F.get(found, F.lit(int(step))) if step.isdigit() else found.getField(step)
        made.append(F.coalesce(F.btrim(found, blanks), F.lit("")).alias(_place(mapping, column, "t")))
    return made


def _place(mapping: Mapping, column: str, kind: str) -> str:
    """A name for a column of the record that no character in it can disturb."""
    used = list(dict.fromkeys(column for _, column in mapping.uses()))
    return f"{kind}{used.index(column)}"


def _text(mapping: Mapping, column: str) -> Column:
    return F.col(_place(mapping, column, "t"))


def _numbers(mapping: Mapping) -> list[Column]:
    """Numbers that are needed besides the values: position and conditions."""
    columns = [column for column in (mapping.longitude, mapping.latitude) if column]
    columns += [condition.column for rule in mapping.rules for condition in rule.where]
    columns += [value.column for value in mapping.values if value.missing]
    columns += [mapping.long.value] if mapping.long else []
    return [
        _number(mapping, _text(mapping, column)).alias(_place(mapping, column, "n"))
        for column in dict.fromkeys(columns)
    ]


def _number(mapping: Mapping, text: Column) -> Column:
    """The number that a text is, or null; 1e999 is infinite."""
    plain = F.replace(text, F.lit(","), F.lit(".")) if mapping.decimal == "," else text
    # Java also takes "1d", "2f" and "0x1p3" for numbers; "Infinity", "NaN" and "null" fall to the same test.
    return F.when(~plain.rlike("[a-df-zA-DF-Z]"), plain.try_cast("double"))


def _is_missing(text: Column, number: Column, sentinels: tuple[Sentinel, ...]) -> Column:
    """Whether a text says that there is no value; never null."""
    words = ["", *[mark for mark in sentinels if isinstance(mark, str)]]
    numbers = [mark for mark in sentinels if not isinstance(mark, str)]
    missing = text.isin(*words) | F.lower(text).isin("nan", "null", "none")
    if numbers:
        missing = missing | F.coalesce(number.isin(*numbers), F.lit(False))
    return missing


def _read_fault(mapping: Mapping) -> Column:
    """Why a record could not be taken apart."""
    unreadable = f"record is not a line of {len(mapping.columns)} fields"
    if mapping.format != "csv":
        unreadable = "record is not JSON of the expected shape"
    bad = F.col("fields").isNull() | F.col("fields").getField(_BAD).isNotNull()
    return F.coalesce(F.col("fault"), F.when(bad, F.lit(unreadable)))


def _typed(mapping: Mapping) -> list[Column]:
    """Sensor, position, time, values, and why the record as a whole cannot be used."""
    assert mapping.time is not None
    parts = [_text(mapping, column) for column in mapping.sensor]
    sensor = F.when(reduce(and_, [part != "" for part in parts]), F.concat_ws(SEPARATOR, *parts))
    moment = _time(mapping)
    place = [_coordinate(mapping, column) for column in (mapping.longitude, mapping.latitude)]
    time_fault = F.concat(
        F.lit("time "),
        _shown(_text(mapping, mapping.time.column)),
        F.lit(f" of {mapping.time.column}, expected {mapping.time.format}"),
    )
    fault = F.coalesce(
        F.col("fault"),
        F.when(sensor.isNull(), F.lit(f"sensor missing in {', '.join(mapping.sensor)}")),
        F.when(moment.isNull(), time_fault),
        *[reason for _, reason in place],
    )
    items = [_wide_item(mapping, value) for value in mapping.values]
    if mapping.long is not None:
        items = [_long_item(mapping, mapping.long)]
    return [
        sensor.alias("sensor"),
        place[0][0].alias("longitude"),
        place[1][0].alias("latitude"),
        moment.alias("event_time"),
        fault.alias("fault"),
        F.array(*items).alias("items"),
    ]


_ITEM: dict[str, tuple[str, Any]] = {
    "attribute": ("string", None),
    "text": ("string", ""),  # of the value
    "column": ("string", None),  # of the value, for the reason
    "unit": ("string", None),
    "scale": ("double", 1.0),
    # 60.6 and not 60.6000000000001: a tenth is no binary fraction, but a division by ten is rounded
    # correctly.
    "divisor": ("double", 1.0),
    "offset": ("double", 0.0),
    "void": ("boolean", False),  # a rule or a sentinel of this value alone says that it is missing
    "lack": ("string", None),  # what the record does not say about the value
}


def _item(**given: Any) -> Column:
    """One value of a record on its way."""
    made = []
    for name, (kind, default) in _ITEM.items():
        value = given.get(name, default)
        made.append((value if isinstance(value, Column) else F.lit(value)).cast(kind).alias(name))
    return F.struct(*made)


def _wide_item(mapping: Mapping, value: Value) -> Column:
    text = _text(mapping, value.column)
    voids = [_holds(mapping, rule.where) for rule in mapping.rules if rule.missing == value.attribute]
    if value.missing:
        voids.append(_is_missing(text, F.col(_place(mapping, value.column, "n")), value.missing))
    inverse = round(1 / value.scale) if value.scale else 1
    exact = inverse > 1 and 1 / inverse == value.scale
    return _item(
        attribute=value.attribute,
        text=text,
        column=value.column,
        unit=value.unit,
        scale=1.0 if exact else value.scale,
        divisor=float(inverse) if exact else 1.0,
        offset=value.offset,
        void=reduce(or_, voids) if voids else False,
    )


def _long_item(mapping: Mapping, long: Long) -> Column:
    attribute: Column = F.lit(long.fixed)
    if long.attribute is not None:
        name = _text(mapping, long.attribute)
        attribute = F.when(name != "", name)
        if long.names:
            names = constant(dict(long.names), "map<string,string>")
            attribute = F.coalesce(F.try_element_at(names, name), attribute)
    unit = F.lit(long.default_unit)
    if long.unit is not None:
        unit = F.coalesce(F.when(_text(mapping, long.unit) != "", _text(mapping, long.unit)), unit)
    text = _text(mapping, long.value)
    voids = [_is_missing(text, F.col(_place(mapping, long.value, "n")), long.missing)]
    for rule in mapping.rules:
        same = F.coalesce(attribute == rule.missing, F.lit(False))
        voids.append(same & _holds(mapping, rule.where))
    lack = F.coalesce(
        F.when(attribute.isNull(), F.lit(f"attribute missing in {long.attribute}")),
        F.when(unit.isNull(), F.lit(f"unit missing in {long.unit}")),
    )
    return _item(
        attribute=attribute,
        text=text,
        column=long.value,
        unit=unit,
        void=reduce(or_, voids),
        lack=lack,
    )


def _value_fault() -> Column:
    """Why a value that is there cannot be used."""
    strange = F.concat(
        F.lit("value "), _shown(F.col("text")), F.lit(" of "), F.col("column"), F.lit(" is not a number")
    )
    return F.coalesce(F.col("lack"), F.when(~_is_finite(), strange))


def _is_finite() -> Column:
    return F.coalesce(F.abs("number") < float("inf"), F.lit(False))


def _coordinate(mapping: Mapping, column: str | None) -> tuple[Column, Column]:
    """A coordinate, null if missing, and why it cannot be read."""
    if column is None:
        return F.lit(None).cast("double"), F.lit(None).cast("string")
    text, number = _text(mapping, column), F.col(_place(mapping, column, "n"))
    missing = _is_missing(text, number, mapping.missing)
    fault = F.concat(F.lit("position "), _shown(text), F.lit(f" of {column} is not a number"))
    return F.when(~missing, number), F.when(~missing & number.isNull(), fault)


def _holds(mapping: Mapping, where: tuple[Condition, ...]) -> Column:
    """Whether all conditions hold; a comparison with nothing does not."""
    tests = []
    for condition in where:
        kind = "t" if isinstance(condition.operand, str) else "n"
        found = F.col(_place(mapping, condition.column, kind))
        tests.append(
            F.coalesce(_OPERATORS[condition.operator](found, F.lit(condition.operand)), F.lit(False))
        )
    return reduce(and_, tests)


def _time(mapping: Mapping) -> Column:
    """The moment, in UTC, or null."""
    assert mapping.time is not None
    text, form, zone = _text(mapping, mapping.time.column), mapping.time.format, mapping.time.zone
    if form in ("epoch_s", "epoch_ms"):
        seconds = text.try_cast("double") / (1000.0 if form == "epoch_ms" else 1.0)
        possible = F.abs(seconds) < _YEAR_10000_S
        return F.when(possible, F.timestamp_micros(F.round(seconds * 1e6).try_cast("bigint")))
    if form == "iso":
        # A cast also takes "2022" for a time, and "12:00" for today's noon.
        moment = F.when(text.rlike(r"^\d{4}-\d\d-\d\d"), text.try_cast("timestamp"))
        if zone == "UTC":
            return moment
        return F.when(text.rlike(_NAIVE_TIME), F.to_utc_timestamp(moment, zone)).otherwise(moment)
    moment = F.try_to_timestamp(text, F.lit(form))
    return moment if zone == "UTC" else F.to_utc_timestamp(moment, zone)


def _shown(text: Column) -> Column:
    return F.concat(F.lit("'"), F.substring(text, 1, _SHOWN), F.lit("'"))


def _conversions(base: str) -> dict[str, dict[str, Any]]:
    """Each spelling that leads to a canonical unit: scale, offset and that unit."""
    spellings = UNITS.get(base, {})
    return {name: {"s": s, "o": o, "u": base} for name, (s, o) in {base: (1.0, 0.0), **spellings}.items()}
