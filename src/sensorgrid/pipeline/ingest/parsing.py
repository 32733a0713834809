"""From records to measurements: one text in, one row per value out, by native columns only.

Nothing is lost on the way. A record that cannot be read as a whole (not a record of this feed, no sensor, no
time) becomes one row with a reason; otherwise each of its values becomes a row, and a value that is no number
is a row with a reason of its own. A wide record of n value columns therefore yields n rows or one, a long
record yields one. Missing values (blank, sentinels, NaN) are rows without value and without reason.
"""

import json
from collections.abc import Mapping as Dictionary
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sensorgrid.model.units import UNITS, canonical_of, conversion
from sensorgrid.pipeline.ingest.attributes import KNOWN, Attribute
from sensorgrid.pipeline.ingest.fields import (
    fields_of,
    is_missing,
    name_of,
    number_columns,
    number_in,
    read_fault,
    shape_fault,
    shown,
    text_columns,
    text_of,
    time_of,
    time_text,
    topic_fault,
    topic_parts,
)
from sensorgrid.pipeline.schema import LETTER_BYTES_MAX, MEASUREMENT
from sensorgrid.pipeline.sources.declaration import Condition, Long, Mapping, Value
from sensorgrid.pipeline.sources.stations import Stations, locate

SEPARATOR = "/"
"""Between the columns that make a sensor's name."""
_OTHERS = ""  # attributes that are not known
_OPERATORS = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}


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
        F.coalesce(F.col("reason"), shape_fault(mapping), topic_fault(mapping)).alias("fault"),
        topic_parts(mapping).alias("parts"),
    )
    fields = split.select(
        "source",
        letter(F.col("text")).alias("raw"),
        "fault",
        "parts",
        F.when(F.col("fault").isNull(), fields_of(mapping)).alias("fields"),
    )
    # One projection per step, so that Spark computes each text and number once: written into each other, the
    # expressions grow beyond what Java compiles, and all is several times slower.
    textual = fields.select("source", "raw", read_fault(mapping).alias("fault"), *text_columns(mapping))
    numeric = textual.select("*", *number_columns(mapping))
    typed = numeric.select("source", "raw", *_typed(mapping))
    dead = F.array(_item())
    rows = typed.select(
        "*", F.explode(F.when(F.col("fault").isNull(), F.col("items")).otherwise(dead)).alias("row")
    )
    flat = rows.select(
        "source", "raw", "sensor", "longitude", "latitude", "elevation", "event_time", "fault", "row.*"
    )
    valued = flat.select("*", number_in(mapping, F.col("text")).alias("number"))
    judged = valued.select(
        "*", (F.col("void") | is_missing(F.col("text"), F.col("number"), mapping.missing)).alias("missing")
    )
    measurements = judged.select(
        "sensor",
        "attribute",
        "longitude",
        "latitude",
        "elevation",
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
        shown(unit),
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


def _typed(mapping: Mapping) -> list[Column]:
    """Sensor, position, time, values, and why the record as a whole cannot be used."""
    assert mapping.time is not None
    parts = [text_of(mapping, column) for column in mapping.sensor]
    sensor = F.when(reduce(and_, [part != "" for part in parts]), F.concat_ws(SEPARATOR, *parts))
    moment = time_of(mapping)
    place = [_coordinate(mapping, column) for column in (mapping.longitude, mapping.latitude)]
    time_fault = F.concat(
        F.lit("time "),
        shown(time_text(mapping)),
        F.lit(f" of {', '.join(mapping.time.columns)}, expected {mapping.time.format}"),
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
        _elevation(mapping).alias("elevation"),
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
    text = text_of(mapping, value.column)
    voids = [_holds(mapping, rule.where) for rule in mapping.rules if rule.missing == value.attribute]
    if value.missing:
        voids.append(is_missing(text, F.col(name_of(mapping, value.column, "n")), value.missing))
    inverse = round(1 / value.scale) if value.scale else 1
    exact = inverse > 1 and 1 / inverse == value.scale
    return _item(
        attribute=value.attribute,
        text=_looked_up(text, value.lookup),
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
        name = text_of(mapping, long.attribute)
        attribute = F.when(name != "", name)
        if long.names:
            names = constant(dict(long.names), "map<string,string>")
            attribute = F.coalesce(F.try_element_at(names, name), attribute)
    unit = F.lit(long.default_unit)
    if long.unit is not None:
        unit = F.coalesce(F.when(text_of(mapping, long.unit) != "", text_of(mapping, long.unit)), unit)
    text = text_of(mapping, long.value)
    voids = [is_missing(text, F.col(name_of(mapping, long.value, "n")), long.missing)]
    for rule in mapping.rules:
        same = F.coalesce(attribute == rule.missing, F.lit(False))
        voids.append(same & _holds(mapping, rule.where))
    lack = F.coalesce(
        F.when(attribute.isNull(), F.lit(f"attribute missing in {long.attribute}")),
        F.when(unit.isNull(), F.lit(f"unit missing in {long.unit}")),
    )
    return _item(
        attribute=attribute,
        text=_looked_up(text, long.lookup),
        column=long.value,
        unit=unit,
        void=reduce(or_, voids),
        lack=lack,
    )


def _value_fault() -> Column:
    """Why a value that is there cannot be used."""
    strange = F.concat(
        F.lit("value "), shown(F.col("text")), F.lit(" of "), F.col("column"), F.lit(" is not a number")
    )
    return F.coalesce(F.col("lack"), F.when(~_is_finite(), strange))


def _is_finite() -> Column:
    return F.coalesce(F.abs("number") < float("inf"), F.lit(False))


def _coordinate(mapping: Mapping, column: str | None) -> tuple[Column, Column]:
    """A coordinate, null if missing, and why it cannot be read."""
    if column is None:
        return F.lit(None).cast("double"), F.lit(None).cast("string")
    text, number = text_of(mapping, column), F.col(name_of(mapping, column, "n"))
    missing = is_missing(text, number, mapping.missing)
    fault = F.concat(F.lit("position "), shown(text), F.lit(f" of {column} is not a number"))
    return F.when(~missing, number), F.when(~missing & number.isNull(), fault)


def _elevation(mapping: Mapping) -> Column:
    """Metres above the sea; null where nothing readable stands: a measurement is good without it."""
    scale, offset = conversion(mapping.elevation_unit, "m") or (1.0, 0.0)
    number, _ = _coordinate(mapping, mapping.elevation)
    return F.when(F.abs(number) < float("inf"), number * scale + offset)


def _looked_up(text: Column, lookup: tuple[tuple[str, float], ...]) -> Column:
    """The number that a text stands for, as a text; the text itself where it stands for none."""
    if not lookup:
        return text
    table = constant({name: repr(number) for name, number in lookup}, "map<string,string>")
    return F.coalesce(F.try_element_at(table, text), text)


def _holds(mapping: Mapping, where: tuple[Condition, ...]) -> Column:
    """Whether all conditions hold; a comparison with nothing does not."""
    tests = []
    for condition in where:
        kind = "t" if isinstance(condition.operand, str) else "n"
        found = F.col(name_of(mapping, condition.column, kind))
        tests.append(
            F.coalesce(_OPERATORS[condition.operator](found, F.lit(condition.operand)), F.lit(False))
        )
    return reduce(and_, tests)


def _conversions(base: str) -> dict[str, dict[str, Any]]:
    """Each spelling that leads to a canonical unit: scale, offset and that unit."""
    spellings = UNITS.get(base, {})
    return {name: {"s": s, "o": o, "u": base} for name, (s, o) in {base: (1.0, 0.0), **spellings}.items()}
