"""Where sensors stand, under which other names they report, how they are calibrated, and since when.

Many feeds leave the position out, or carry it only in some reports. A station table supplies it, by broadcast
joins that can never make two measurements of one: the table is checked when it is read, and two entries that
both claim the same sensor at the same time are refused with their line numbers.

The table (CSV) has the columns id, longitude, latitude (or x, y) and optionally

=============  ============================================================================================
elevation      metres above the sea
aliases        other names, separated by semicolons; the measurement is renamed to the id
attribute      the entry's calibration is for this attribute only
scale, offset  calibration, ``value * scale + offset``, in the unit of the feed
valid_from     first moment of the entry (ISO, UTC unless it says otherwise); blank: always
valid_to       first moment after it; blank: for ever
=============  ============================================================================================

A measurement that carries a position or an elevation keeps it: the table fills gaps.
"""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.schema import MEASUREMENT
from sensorgrid.pipeline.sources.declaration import Alias, Mapping, StationColumns

_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, tzinfo=UTC)
_SAME_PLACE = 0.05
"""Two ids of one station agree to this many degrees (decoders round to hundredths)."""


class StationError(SensorGridError, ValueError):
    """A station table that cannot be right."""


@dataclass(frozen=True, slots=True)
class Station:
    """One entry of a station table."""

    id: str
    """the canonical name of the sensor"""
    longitude: float | None = None
    """or x; None if the position is not known"""
    latitude: float | None = None
    """or y"""
    aliases: tuple[str, ...] = ()
    """other names"""
    attribute: str | None = None
    """the calibration is for this attribute only"""
    scale: float = 1.0
    """calibration: factor"""
    offset: float = 0.0
    """calibration: added after the factor"""
    valid_from: datetime = _FIRST
    """first moment of the entry"""
    valid_to: datetime = _LAST
    """first moment after the entry"""
    line: int = 0
    """where it was read, for messages"""
    elevation: float | None = None
    """metres above the sea; None if it is not known"""


Place = tuple[str, datetime, datetime, float | None, float | None, float | None]
"""id, from, to, x, y, elevation"""


@dataclass(frozen=True, slots=True)
class Stations:
    """A checked station table.

    Parameters
    ----------
    entries
        The table's lines.
    rules
        Patterns of other names, used for names that no entry has (see `Alias`).
    subject
        The file, for messages.
    """

    entries: tuple[Station, ...]
    rules: tuple[Alias, ...] = ()
    subject: str = "stations"

    def __post_init__(self) -> None:
        for entry in self.entries:
            if entry.valid_from >= entry.valid_to:
                found = f"{entry.valid_from.isoformat()} .. {entry.valid_to.isoformat()}"
                raise StationError(
                    f"{self._at(entry)}: validity: found {found}, expected valid_from < valid_to"
                )
            if (entry.longitude is None) != (entry.latitude is None):
                found = f"({entry.longitude}, {entry.latitude})"
                raise StationError(
                    f"{self._at(entry)}: position: found {found}, expected both coordinates or none"
                )
        self.names()
        self.positions()
        self.calibrations()

    def names(self) -> dict[str, str]:
        """Every name and the id that it stands for."""
        names = {entry.id: entry.id for entry in self.entries}
        for entry in self.entries:
            for alias in entry.aliases:
                if names.setdefault(alias, entry.id) != entry.id:
                    raise StationError(
                        f"{self._at(entry)}: aliases: found {alias!r}, also a name of {names[alias]!r},"
                        " expected one station for each name"
                    )
        places = self._places()
        for name in [entry.id for entry in self.entries]:
            for rule in self.rules:
                target = _rewritten(rule, name)
                if (
                    target in places
                    and target != name
                    and names[target] == target
                    and _near(places, name, target)
                ):
                    names[name] = target
                    break
        return names

    def positions(self) -> list["Place"]:
        """id, from, to, x, y, elevation: at most one position for an id at any time."""
        made: list[Place] = []
        for entries in self._by_id().values():
            said = (e for e in entries if e.longitude is not None or e.elevation is not None)
            placed = sorted(said, key=lambda e: e.valid_from)
            merged: list[tuple[Station, datetime]] = []
            for entry in placed:
                if merged and entry.valid_from <= merged[-1][1]:
                    last, until = merged[-1]
                    if _same_place(last, entry):
                        known = entry.elevation if last.elevation is None else last.elevation
                        merged[-1] = replace(last, elevation=known), max(until, entry.valid_to)
                        continue
                    if entry.valid_from < until:
                        raise self._overlap("positions", last, entry)
                merged.append((entry, entry.valid_to))
            made += [(e.id, e.valid_from, until, e.longitude, e.latitude, e.elevation) for e, until in merged]
        return made

    def calibrations(self) -> list[tuple[str, str | None, datetime, datetime, float, float]]:
        """id, attribute, from, to, scale, offset: at most one for an id, attribute and time."""
        made = []
        for entries in self._by_id().values():
            tuned = sorted(
                (e for e in entries if (e.scale, e.offset) != (1.0, 0.0)), key=lambda e: e.valid_from
            )
            for place, entry in enumerate(tuned):
                for other in tuned[:place]:
                    apart = (
                        None not in (entry.attribute, other.attribute) and entry.attribute != other.attribute
                    )
                    if not apart and entry.valid_from < other.valid_to:
                        raise self._overlap("calibrations", other, entry)
            made += [(e.id, e.attribute, e.valid_from, e.valid_to, e.scale, e.offset) for e in tuned]
        return made

    def _by_id(self) -> dict[str, list[Station]]:
        groups: dict[str, list[Station]] = {}
        for entry in self.entries:
            groups.setdefault(entry.id, []).append(entry)
        return groups

    def _places(self) -> dict[str, tuple[float | None, float | None]]:
        return {entry.id: (entry.longitude, entry.latitude) for entry in self.entries}

    def _at(self, entry: Station) -> str:
        return (
            f"{self.subject}: line {entry.line}: station {entry.id!r}"
            if entry.line
            else f"station {entry.id!r}"
        )

    def _overlap(self, what: str, first: Station, second: Station) -> StationError:
        found = (
            f"lines {first.line} and {second.line} for the same time"
            if second.line
            else "two for the same time"
        )
        return StationError(
            f"{self._at(second)}: {what}: found {found} (from {second.valid_from.date()}), expected one at"
            " any time (valid_from, valid_to)"
        )


def read_stations(
    path: str | Path, columns: StationColumns | None = None, rules: Iterable[Alias] = ()
) -> Stations:
    """Read a station table.

    Parameters
    ----------
    path
        A CSV file with a header.
    columns
        Names of its columns, where they differ from ours (see `Mapping.stations`).
    rules
        Patterns of other names (see `Mapping.aliases`).
    """
    columns = columns or StationColumns()
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, delimiter=columns.delimiter, restkey="", restval="")
            header = reader.fieldnames or []
            names = {"id": columns.id, "longitude": columns.longitude, "latitude": columns.latitude}
            given = columns.elevation != StationColumns().elevation  # by name: then it must be there
            if names["longitude"] not in header and {"x", "y"} <= set(header):
                names |= {"longitude": "x", "latitude": "y"}
            for name in [*names.values(), *[columns.elevation] * given]:
                if name not in header:
                    raise StationError(
                        f"{path}: columns: found {', '.join(header)}, expected {name!r} among them"
                    )
            names["elevation"] = columns.elevation
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StationError(f"{path}: found {error}, expected a station table in CSV") from None
    entries = tuple(_station(str(path), line, row, names) for line, row in rows)
    return Stations(entries, tuple(rules), str(path))


def stations_of(mapping: Mapping) -> Stations | None:
    """The station table that a mapping names itself, if it does."""
    table = mapping.station_table()
    return None if table is None else read_stations(table, mapping.stations, mapping.aliases)


def learn(
    measurements: DataFrame,
    rules: Iterable[Alias] = (),
    *,
    coordinates: Literal["lonlat", "planar"] = "lonlat",
    tolerance: float = 0.01,
) -> Stations:
    """A station table from a batch of measurements of which some carry the position.

    Each sensor gets its most frequent position: reports are counted in squares of `tolerance` (degrees, or
    the plane's unit), and the median of the fullest square is taken, so that neither a wandering receiver nor
    a few reports from elsewhere matter. Positions that cannot be are left out.
    """
    x, y = F.col("longitude"), F.col("latitude")
    possible = F.abs(x) < float("inf")
    possible = possible & (F.abs(y) < float("inf"))
    if coordinates == "lonlat":
        possible = (F.abs(x) <= 360) & (F.abs(y) <= 90)
    squares = (
        measurements.where(F.col("reason").isNull() & F.col("sensor").isNotNull() & possible)
        .groupBy("sensor", F.round(x / tolerance).alias("column"), F.round(y / tolerance).alias("row"))
        .agg(F.count("*").alias("reports"), F.median(x).alias("x"), F.median(y).alias("y"))
    )
    # The square's own place breaks ties, so that the table does not depend on the order of the rows.
    fullest = squares.groupBy("sensor").agg(F.max(F.struct("reports", "column", "row", "x", "y")).alias("at"))
    found = fullest.select("sensor", F.col("at.x").alias("x"), F.col("at.y").alias("y")).orderBy("sensor")
    entries = tuple(Station(row.sensor, row.x, row.y) for row in found.collect())
    return Stations(entries, tuple(rules), "learned stations")


def locate(measurements: DataFrame, stations: Stations) -> DataFrame:
    """Measurements under their canonical names, placed and calibrated by the table; as many as before."""
    session = measurements.sparkSession
    named = _renamed(measurements, stations, session)
    placed = _placed(named, stations, session)
    return _calibrated(placed, stations, session).select(*MEASUREMENT.fieldNames())


def _renamed(measurements: DataFrame, stations: Stations, session: SparkSession) -> DataFrame:
    names = stations.names()
    if not names or (all(name == id for name, id in names.items()) and not stations.rules):
        return measurements
    candidates = [F.col("sensor")]
    for rule in stations.rules:
        hit = F.col("sensor").rlike(rule.pattern)
        candidates.append(F.when(hit, F.regexp_replace("sensor", rule.pattern, rule.to)))
    table = _frame(session, {"name": pa.string(), "id": pa.string()}, list(names.items()))
    made = measurements
    for place, candidate in enumerate(candidates):
        lookup = F.broadcast(
            table.select(F.col("name").alias(f"name_{place}"), F.col("id").alias(f"id_{place}"))
        )
        made = made.join(lookup, candidate == F.col(f"name_{place}"), how="left")
    found = [F.col(f"id_{place}") for place in range(len(candidates))]
    sensor = F.coalesce(*found, F.col("sensor")).alias("sensor")
    return made.select(*[sensor if f.name == "sensor" else F.col(f.name) for f in MEASUREMENT.fields])


def _placed(measurements: DataFrame, stations: Stations, session: SparkSession) -> DataFrame:
    rows = stations.positions()
    if not rows:
        return measurements
    moment = pa.timestamp("us", tz="UTC")
    types = {"id": pa.string(), "since": moment, "until": moment} | dict.fromkeys("xyz", pa.float64())
    table = F.broadcast(_frame(session, types, rows))
    here = (F.col("sensor") == F.col("id")) & _valid()
    joined = measurements.join(table, here, how="left")
    bare = F.col("longitude").isNull() | F.col("latitude").isNull()
    made = {
        # Half a position is none: the table gives both coordinates or neither.
        "longitude": F.when(bare & F.col("x").isNotNull(), F.col("x")).otherwise(F.col("longitude")),
        "latitude": F.when(bare & F.col("x").isNotNull(), F.col("y")).otherwise(F.col("latitude")),
        "elevation": F.coalesce(F.col("elevation"), F.col("z")),
    }
    return joined.select(*[made.get(f.name, F.col(f.name)).alias(f.name) for f in MEASUREMENT.fields])


def _calibrated(measurements: DataFrame, stations: Stations, session: SparkSession) -> DataFrame:
    rows = stations.calibrations()
    if not rows:
        return measurements
    moment = pa.timestamp("us", tz="UTC")
    types = {
        "id": pa.string(), "of": pa.string(), "since": moment, "until": moment, "scale": pa.float64(),
        "offset": pa.float64(),
    }  # fmt: skip
    table = F.broadcast(_frame(session, types, rows))
    same = F.col("of").isNull() | (F.col("of") == F.col("attribute"))
    joined = measurements.join(table, (F.col("sensor") == F.col("id")) & same & _valid(), how="left")
    tuned = F.col("value") * F.col("scale") + F.col("offset")
    value = F.when(F.col("scale").isNotNull(), tuned).otherwise(F.col("value")).alias("value")
    return joined.select(*[value if f.name == "value" else F.col(f.name) for f in MEASUREMENT.fields])


def _valid() -> Any:
    return (F.col("event_time") >= F.col("since")) & (F.col("event_time") < F.col("until"))


def _frame(session: SparkSession, types: dict[str, Any], rows: list[Any]) -> DataFrame:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types.values(), strict=True)]
    return session.createDataFrame(pa.table(arrays, names=list(types)))


def _station(path: str, line: int, row: dict[str, str], names: dict[str, str]) -> Station:
    def text(key: str) -> str:
        return (row.get(names.get(key, key)) or "").strip()

    def number(key: str, default: float | None) -> float | None:
        try:
            return float(text(key)) if text(key) else default
        except ValueError:
            raise StationError(
                f"{path}: line {line}: {key}: found {text(key)!r}, expected a number"
            ) from None

    def moment(key: str, default: datetime) -> datetime:
        try:
            found = datetime.fromisoformat(text(key)) if text(key) else default
        except ValueError:
            raise StationError(
                f"{path}: line {line}: {key}: found {text(key)!r}, expected an ISO time"
            ) from None
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    if not text("id"):
        raise StationError(f"{path}: line {line}: id: found nothing, expected the station's name")
    scale, offset = number("scale", 1.0), number("offset", 0.0)
    assert scale is not None
    assert offset is not None
    return Station(
        text("id"),
        number("longitude", None),
        number("latitude", None),
        tuple(name.strip() for name in text("aliases").split(";") if name.strip()),
        text("attribute") or None,
        scale,
        offset,
        moment("valid_from", _FIRST),
        moment("valid_to", _LAST),
        line,
        number("elevation", None),
    )


def _same_place(one: Station, other: Station) -> bool:
    """Whether two entries say the same place, and do not contradict each other about its height."""
    heights = {one.elevation, other.elevation} - {None}
    return (one.longitude, one.latitude) == (other.longitude, other.latitude) and len(heights) < 2


def _rewritten(rule: Alias, name: str) -> str | None:
    """What a rule makes of a name; Java's ``$1`` is Python's ``\\1``."""
    if not re.search(rule.pattern, name):
        return None
    return re.sub(rule.pattern, re.sub(r"\$(\d)", r"\\\1", rule.to), name)


def _near(places: dict[str, tuple[float | None, float | None]], one: str, other: str) -> bool:
    """Whether two ids can be the same station: one of them has no position, or both stand together."""
    (x1, y1), (x2, y2) = places[one], places[other]
    if x1 is None or x2 is None or y1 is None or y2 is None:
        return True
    return abs(x1 - x2) <= _SAME_PLACE and abs(y1 - y2) <= _SAME_PLACE
