"""Taking a record apart: from one text to named texts, numbers and a time, by native columns.

Spark parses the text: `from_csv` and `from_json` into texts only, then casts that give null instead of
stopping the stream. Some inputs would still stop it, or be cut silently, and are caught before: lines with
more fields than the CSV parser allows, two JSON objects in one record.

The columns of a record get names of our own: t0, t1, … for its texts and n0, n1, … for numbers.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from sensorgrid.pipeline.sources.declaration import Mapping, Sentinel, path_of

FIELDS_MAX = 20_000
"""Spark's CSV parser fails, and the stream with it, at 20,480 fields in a line."""
_SHOWN = 60  # characters of a faulty text in a reason
_BAD = "__unreadable__"
_BLANKS = " \t\r\n"
_YEAR_10000_S = 253_402_300_800
_NAIVE_TIME = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?$"


def shape_fault(mapping: Mapping) -> Column:
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


def topic_fault(mapping: Mapping) -> Column:
    """Why the topic does not fit the mapping's pattern."""
    if mapping.topic is None:
        return F.lit(None).cast("string")
    topic = F.coalesce("topic", F.lit(""))
    strange = F.concat(F.lit("topic "), shown(topic), F.lit(f" does not match {mapping.topic}"))
    return F.when(~topic.rlike(mapping.topic_regex), strange)


def topic_parts(mapping: Mapping) -> Column:
    """The parts of the topic, in order."""
    groups = range(1, len(mapping.topic_parts) + 1)
    none = F.lit(None).cast("array<string>")
    parts = [F.regexp_extract("topic", mapping.topic_regex, group) for group in groups]
    return F.array(*parts) if parts else none


def fields_of(mapping: Mapping) -> Column:
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


def read_fault(mapping: Mapping) -> Column:
    """Why a record could not be taken apart."""
    unreadable = f"record is not a line of {len(mapping.columns)} fields"
    if mapping.format != "csv":
        unreadable = "record is not JSON of the expected shape"
    bad = F.col("fields").isNull() | F.col("fields").getField(_BAD).isNotNull()
    return F.coalesce(F.col("fault"), F.when(bad, F.lit(unreadable)))


def text_columns(mapping: Mapping) -> list[Column]:
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
        made.append(F.coalesce(F.btrim(found, blanks), F.lit("")).alias(name_of(mapping, column, "t")))
    return made


def text_of(mapping: Mapping, column: str) -> Column:
    """The text of a column, once `text_columns` has made it."""
    return F.col(name_of(mapping, column, "t"))


def number_columns(mapping: Mapping) -> list[Column]:
    """Numbers that are needed besides the values: position and conditions."""
    columns = [column for column in (mapping.longitude, mapping.latitude, mapping.elevation) if column]
    columns += [condition.column for rule in mapping.rules for condition in rule.where]
    columns += [value.column for value in mapping.values if value.missing]
    columns += [mapping.long.value] if mapping.long else []
    return [
        number_in(mapping, text_of(mapping, column)).alias(name_of(mapping, column, "n"))
        for column in dict.fromkeys(columns)
    ]


def number_in(mapping: Mapping, text: Column) -> Column:
    """The number that a text is, or null; 1e999 is infinite."""
    plain = F.replace(text, F.lit(","), F.lit(".")) if mapping.decimal == "," else text
    # Java also takes "1d", "2f" and "0x1p3" for numbers; "Infinity", "NaN" and "null" fall to the same test.
    return F.when(~plain.rlike("[a-df-zA-DF-Z]"), plain.try_cast("double"))


def is_missing(text: Column, number: Column, sentinels: tuple[Sentinel, ...]) -> Column:
    """Whether a text says that there is no value; never null."""
    words = ["", *[mark for mark in sentinels if isinstance(mark, str)]]
    numbers = [mark for mark in sentinels if not isinstance(mark, str)]
    missing = text.isin(*words) | F.lower(text).isin("nan", "null", "none")
    if numbers:
        missing = missing | F.coalesce(number.isin(*numbers), F.lit(False))
    return missing


def time_text(mapping: Mapping) -> Column:
    """What is written about the time, put together."""
    assert mapping.time is not None
    texts = [text_of(mapping, column) for column in mapping.time.columns]
    return texts[0] if len(texts) == 1 else F.btrim(F.concat_ws(" ", *texts))


def time_of(mapping: Mapping) -> Column:
    """The moment, in UTC, or null."""
    assert mapping.time is not None
    text, form, zone = time_text(mapping), mapping.time.format, mapping.time.zone
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


def shown(text: Column) -> Column:
    """A text as it stands in a reason: in quotes, and not too long."""
    return F.concat(F.lit("'"), F.substring(text, 1, _SHOWN), F.lit("'"))


def name_of(mapping: Mapping, column: str, kind: str) -> str:
    """A name for a column of the record that no character in it can disturb."""
    used = list(dict.fromkeys(column for _, column in mapping.uses()))
    return f"{kind}{used.index(column)}"


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
