"""What a foreign record means: a declaration in TOML that turns any feed into measurements.

A mapping says which columns hold sensor, position, time and values, in which units, and what stands for
"missing". It is data, so that a new feed needs no code. Everything is checked when the mapping is made: a
typing error is found at the start and not as a stream of dead letters.

Names of columns are names of the CSV header, or dotted paths into a JSON object (also for Parquet, whose rows
are treated alike): ``Datastream.ObservedProperty.name``; a key that itself contains a dot stands in quotes,
``Datastream."@iot.id"``; a number is a place in an array, ``location.coordinates.0``. A name in braces,
``{device}``, is a part of the topic (see `Mapping.topic`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.units import canonical_of, conversion
from sensorgrid.pipeline.ingest.attributes import KNOWN

FORMATS = ("csv", "json", "parquet", "metar", "bufr", "measurements")
OPERATORS = ("eq", "ne", "lt", "le", "gt", "ge")
SHIPPED = Path(__file__).parent / "mappings"
"""Where the mappings lie that can be named without a path."""

Sentinel = float | str
"""A number (compared as a number) or a text (compared as written) that stands for "missing"."""


class MappingError(SensorGridError, ValueError):
    """A mapping that cannot be right; the message names the file and the key."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value column of a wide record: ``value = number * scale + offset``, in `unit`."""

    attribute: str
    """CF standard name"""
    column: str
    """where the number stands"""
    unit: str
    """unit after scale and offset"""
    scale: float = 1.0
    """for feeds that send tenths as whole numbers"""
    offset: float = 0.0
    """added after scaling"""
    missing: tuple[Sentinel, ...] = ()
    """stands for "no value", before scaling, besides the mapping's own"""
    lookup: tuple[tuple[str, float], ...] = ()
    """texts that stand for numbers, before scaling: ``NNE`` → 22.5; others are read as numbers"""


@dataclass(frozen=True, slots=True)
class Long:
    """A record with one value, whose attribute is said by a column, by the topic, or is always the same."""

    value: str
    """where the number stands"""
    attribute: str | None = None
    """where the attribute's name stands"""
    fixed: str | None = None
    """the attribute of all records"""
    names: tuple[tuple[str, str], ...] = ()
    """names of the feed and their CF names; a name that is not listed stands for itself"""
    unit: str | None = None
    """where the unit stands"""
    default_unit: str | None = None
    """unit of records that name none"""
    missing: tuple[Sentinel, ...] = ()
    """stands for "no value", besides the mapping's own"""
    lookup: tuple[tuple[str, float], ...] = ()
    """texts that stand for numbers"""


@dataclass(frozen=True, slots=True)
class Time:
    """When a record was measured."""

    columns: tuple[str, ...]
    """where the time stands; the texts of several columns are put together with a blank between them"""
    format: str = "iso"
    """iso, epoch_s, epoch_ms, or a pattern of Spark (``yyyy MM dd HH:mm``)"""
    zone: str = "UTC"
    """zone of times that do not write theirs"""


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a column with a number or a text."""

    column: str
    operator: str
    operand: Sentinel


@dataclass(frozen=True, slots=True)
class Rule:
    """An attribute is missing where all conditions hold."""

    missing: str
    """CF standard name"""
    where: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Alias:
    """Names that match are other names of a known sensor: ``^K([A-Z]{3})$`` → ``$1``.

    Used only if no station has the name itself and one has the name that results.
    """

    pattern: str
    to: str


@dataclass(frozen=True, slots=True)
class StationColumns:
    """Names of the columns of the feed's station table; see `sensorgrid.pipeline.sources.stations`."""

    table: str | None = None
    """file of the table, relative to the mapping; left out where the table's place is not known beforehand"""
    id: str = "id"
    """column of the station's name"""
    longitude: str = "longitude"
    """column of the longitude; x is found by itself"""
    latitude: str = "latitude"
    """column of the latitude; y is found by itself"""
    delimiter: str = ","
    """between the fields of the table"""
    elevation: str = "elevation"
    """column of the height in metres above the sea; a table may leave it out"""


@dataclass(frozen=True, slots=True)
class Mapping:
    """How the records of one feed are read.

    The *sensor* may be made of several columns (joined by "/"); sensor, attribute and time are together the
    key by which duplicates are recognised, so a device that is moved needs its deployment in the sensor's
    name.
    """

    name: str
    """for messages"""
    format: Literal["csv", "json", "parquet", "metar", "bufr", "measurements"]
    """json: an object per line; parquet: rows are read as such objects; metar: raw METAR reports; bufr: BUFR messages;
    measurements: Parquet files that already have our own columns, read without any mapping"""
    sensor: tuple[str, ...] = ()
    """columns that make the sensor's name"""
    time: Time | None = None
    values: tuple[Value, ...] = ()
    """wide records: one measurement per entry"""
    long: Long | None = None
    """long records: one measurement"""
    longitude: str | None = None
    """column of the longitude, or of x in metres on a planar grid"""
    latitude: str | None = None
    """column of the latitude, or of y"""
    elevation: str | None = None
    """column of the height above the sea"""
    elevation_unit: str = "m"
    """and its unit"""
    columns: tuple[str, ...] = ()
    """CSV: all columns in their usual order; files with a header may have another order"""
    optional: tuple[str, ...] = ()
    """CSV: columns that a file's header may leave out; what stands there is then missing"""
    header: bool = True
    """CSV: whether each file starts with the names of its columns"""
    delimiter: str = ","
    """CSV: between fields"""
    quote: str = '"'
    """CSV: around fields that contain delimiters"""
    decimal: str = "."
    """in numbers: "." or ","
    """
    encoding: str = "utf-8"
    """CSV and JSON: utf-8, latin-1 or cp1252"""
    missing: tuple[Sentinel, ...] = ()
    """stands for "missing" in every value and in the position"""
    rules: tuple[Rule, ...] = ()
    aliases: tuple[Alias, ...] = ()
    topic: str | None = None
    """pattern of the topic, such as ``sensors/{sensor}/{attribute}``, matched from its end"""
    stations: StationColumns = field(default_factory=StationColumns)
    directory: Path | None = None
    """where the mapping was read from, for relative paths"""

    def __post_init__(self) -> None:
        self._check_choices()
        if self.format == "measurements":
            return
        self._check_presence()
        self._check_columns()
        self._check_optional()
        self._check_time()
        for value in self.values:
            self._check_unit(f"values.{value.attribute}.unit", value.attribute, value.unit)
        self._check_long()
        for index, alias in enumerate(self.aliases):
            _check_alias(f"{self.name}: aliases[{index}]", alias)
        for index, rule in enumerate(self.rules):
            self._check_rule(f"rules[{index}]", rule)

    @property
    def topic_parts(self) -> tuple[str, ...]:
        """Names of the parts of the topic, in order."""
        return tuple(re.findall(r"\{(\w*)\}", self.topic or ""))

    @property
    def topic_regex(self) -> str:
        """The topic's pattern as a regular expression with one group per part, from the end of the topic."""
        pattern = self.topic or ""
        # NATS separates by dots; a file's name or an MQTT topic may contain them inside a part.
        other = "/." if "/" not in pattern and "." in pattern else "/"
        pieces = [re.escape(piece) for piece in re.split(r"\{\w*\}", pattern)]
        return "(?:^|/)" + f"([^{other}]+)".join(pieces) + "$"

    def uses(self) -> Iterator[tuple[str, str]]:
        """Every place that names a column, as (key, column)."""
        for column in self.sensor:
            yield "sensor.columns", column
        if self.time:
            for column in self.time.columns:
                yield "time.column", column
        for key in ("longitude", "latitude", "elevation"):
            at = getattr(self, key)
            if at:
                yield f"position.{key}", at
        for value in self.values:
            yield f"values.{value.attribute}.column", value.column
        if self.long:
            for key in ("value", "attribute", "unit"):
                at = getattr(self.long, key)
                if at:
                    yield f"record.{key}", at
        for index, rule in enumerate(self.rules):
            for condition in rule.where:
                yield f"rules[{index}].where", condition.column

    @property
    def used_columns(self) -> tuple[str, ...]:
        """The columns of the record that are needed, each once; parts of the topic are not among them."""
        return tuple(dict.fromkeys(column for _, column in self.uses() if not column.startswith("{")))

    def station_table(self) -> Path | None:
        """The file of the station table that the mapping names, if it names one."""
        if self.stations.table is None:
            return None
        return (self.directory or Path()) / self.stations.table

    def _fail(self, key: str, found: object, expected: str) -> MappingError:
        return MappingError(f"{self.name}: {key}: found {found!r}, expected {expected}")

    def _check_choices(self) -> None:
        if self.format not in FORMATS:
            raise self._fail("format", self.format, f"one of {', '.join(FORMATS)}")
        for key in ("delimiter", "quote", "decimal"):
            if len(getattr(self, key)) != 1:
                raise self._fail(key, getattr(self, key), "one character")
        if self.delimiter in (self.quote, "\n", "\r"):
            raise self._fail("delimiter", self.delimiter, "a character that is neither quote nor end of line")
        if self.decimal not in ".,":
            raise self._fail("decimal", self.decimal, "'.' or ','")
        if self.encoding not in ("utf-8", "latin-1", "cp1252"):
            raise self._fail("encoding", self.encoding, "one of utf-8, latin-1, cp1252")

    def _check_presence(self) -> None:
        if not self.sensor:
            raise self._fail("sensor.columns", list(self.sensor), "one or more columns")
        if self.time is None or not self.time.columns:
            raise self._fail("time.column", None, "the column of the time")
        if bool(self.values) == (self.long is not None):
            found = "both" if self.values else "neither"
            raise self._fail("values and record", found, "one of them: wide records or long ones")
        if (self.longitude is None) != (self.latitude is None):
            raise self._fail("position", [self.longitude, self.latitude], "both coordinates or none")
        if conversion(self.elevation_unit, "m") is None:
            raise self._fail(
                "position.elevation_unit", self.elevation_unit, "a unit of length such as m or ft"
            )
        if self.format == "csv" and not self.columns:
            raise self._fail("columns", [], "the names of all columns, in order")
        if len(set(self.columns)) < len(self.columns):
            twice = sorted({c for c in self.columns if self.columns.count(c) > 1})
            raise self._fail("columns", twice, "each name once")

    def _check_optional(self) -> None:
        """Only a file with a header can leave a column out, and never the sensor's or the time's."""
        if self.optional and not (self.format == "csv" and self.header):
            expected = "none: only CSV with a header can leave a column out"
            raise self._fail("optional", list(self.optional), expected)
        needed = {*self.sensor, *(self.time.columns if self.time else ())}
        possible = [column for column in self.columns if column not in needed]
        for column in self.optional:
            if column not in possible:
                raise self._fail("optional", column, f"one of {', '.join(possible)}")

    def _check_columns(self) -> None:
        parts = self.topic_parts
        if self.topic is not None and not [part for part in parts if part]:
            raise self._fail("topic", self.topic, "at least one part in braces, such as sensors/{sensor}")
        for key, column in self.uses():
            if column.startswith("{"):
                if column[1:-1] not in parts or not column.endswith("}"):
                    raise self._fail(key, column, f"a part of the topic {self.topic!r}")
            elif self.format == "csv" and column not in self.columns:
                raise self._fail(key, column, f"one of the columns {', '.join(self.columns)}")
            elif self.format != "csv":
                try:
                    path_of(column)
                except ValueError:
                    raise self._fail(key, column, "a dotted path such as location.coordinates.0") from None
        if self.format != "csv":
            folded: dict[tuple[str, ...], str] = {}
            for column in self.used_columns:
                # Spark finds the fields of a struct whatever their capitals.
                other = folded.setdefault(tuple(p.lower() for p in path_of(column)), column)
                if other != column:
                    raise self._fail("columns", [other, column], "names that differ in more than capitals")
            for path, column in folded.items():
                for shorter in range(1, len(path)):
                    if path[:shorter] in folded:
                        found = [folded[path[:shorter]], column]
                        raise self._fail("columns", found, "paths of which none leads through another")

    def _check_time(self) -> None:
        assert self.time is not None
        form, zone = self.time.format, self.time.zone
        letters = re.sub(r"'[^']*'", "", form)
        if form not in ("iso", "epoch_s", "epoch_ms") and not (
            re.search("[yu]", letters) and "d" in letters.lower()
        ):
            raise self._fail("time.format", form, "iso, epoch_s, epoch_ms or a pattern with year and day")
        if not re.fullmatch(r"[+-]\d\d:\d\d", zone):
            try:
                ZoneInfo(zone)
            except (OSError, ValueError, KeyError):
                raise self._fail("time.zone", zone, "a zone such as UTC, Asia/Shanghai or +08:00") from None

    def _check_long(self) -> None:
        if self.long is None:
            return
        if (self.long.attribute is None) == (self.long.fixed is None):
            found = [self.long.attribute, self.long.fixed]
            raise self._fail("record.attribute and record.fixed_attribute", found, "one of them")
        if self.long.unit is None and self.long.default_unit is None:
            raise self._fail("record.unit", None, "the column of the unit, or default_unit")
        if self.long.default_unit is not None and self.long.fixed is not None:
            self._check_unit("record.default_unit", self.long.fixed, self.long.default_unit)

    def _check_unit(self, key: str, attribute: str, unit: str) -> None:
        if attribute in KNOWN:
            canonical = KNOWN[attribute].unit
            if conversion(unit, canonical) is None:
                raise self._fail(key, unit, f"a unit that converts to {canonical!r}")
        elif canonical_of(unit) is None:
            raise self._fail(key, unit, "a known unit")

    def _check_rule(self, key: str, rule: Rule) -> None:
        names = [value.attribute for value in self.values]
        if self.values and rule.missing not in names:
            raise self._fail(f"{key}.missing", rule.missing, f"one of {', '.join(names)}")
        if not rule.where:
            raise self._fail(f"{key}.where", {}, "at least one condition")
        for condition in rule.where:
            if condition.operator not in OPERATORS:
                raise self._fail(f"{key}.where", condition.operator, f"one of {', '.join(OPERATORS)}")
            if isinstance(condition.operand, str) and condition.operator not in ("eq", "ne"):
                raise self._fail(f"{key}.where", condition.operand, f"a number for {condition.operator}")


def path_of(column: str) -> tuple[str, ...]:
    """The steps of a dotted path.

    Examples
    --------
    >>> path_of('Datastream."@iot.id"')
    ('Datastream', '@iot.id')
    """
    steps = re.findall(r'"([^"]+)"|([^."]+)', column)
    if not re.fullmatch(r'(?:"[^"]+"|[^."]+)(?:\.(?:"[^"]+"|[^."]+))*', column):
        raise ValueError(column)
    return tuple(quoted or plain for quoted, plain in steps)


def _check_alias(subject: str, alias: Alias) -> None:
    try:
        groups = re.compile(alias.pattern).groups
    except re.error as error:
        raise MappingError(
            f"{subject}.pattern: found {alias.pattern!r} ({error}), expected a regular expression"
        ) from None
    wanted = [int(digit) for digit in re.findall(r"\$(\d)", alias.to)]
    if any(group > groups for group in wanted):
        raise MappingError(f"{subject}.to: found {alias.to!r}, expected groups up to ${groups}")
