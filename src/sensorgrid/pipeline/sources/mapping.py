"""Mappings as TOML files: every key is checked for its name and its type before anything is made of it.

A complete example, with every kind of entry, is any file in `mappings/`.
"""

import tomllib
from collections.abc import Mapping as Dictionary
from pathlib import Path
from typing import Any, cast

from sensorgrid.pipeline.sources.declaration import (
    SHIPPED,
    Alias,
    Condition,
    Long,
    Mapping,
    MappingError,
    Rule,
    Sentinel,
    StationColumns,
    Time,
    Value,
)

__all__ = ["Mapping", "MappingError", "mapping_of", "read_mapping"]


def read_mapping(name_or_path: str | Path) -> Mapping:
    """Read a mapping: a path to a TOML file, or the bare name of one that comes with Sensorgrid.

    Raises
    ------
    MappingError
        If there is no such file, or a key is unknown, missing or of the wrong type.

    Examples
    --------
    >>> read_mapping("metar").sensor
    ('station_id',)
    """
    path = Path(name_or_path)
    if path.suffix != ".toml" and path.parent == Path():
        path = SHIPPED / f"{path.name}.toml"
        if not path.is_file():
            names = ", ".join(sorted(p.stem for p in SHIPPED.glob("*.toml")))
            raise MappingError(
                f"mapping: found {name_or_path!r}, expected one of {names}, or a path to a .toml file"
            )
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise MappingError(f"{path}: found {error.strerror}, expected a mapping in TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MappingError(f"{path}: found {error}, expected TOML") from None
    return mapping_of(content, name=path.name, directory=path.parent)


def mapping_of(content: Dictionary[str, Any], *, name: str, directory: Path | None = None) -> Mapping:
    """A mapping from the content of a TOML file."""
    top = _Table(name, "", content)
    sensor, position, time = (top.table(key) for key in ("sensor", "position", "time"))
    stations = top.table("stations")
    lookups = COMPASS | {key: table.numbers() for key, table in top.table("lookups").each()}
    made = {
        "name": name,
        "directory": directory,
        "format": top.text("format"),
        "columns": top.texts("columns"),
        "optional": top.texts("optional"),
        "header": top.flag("header", True),
        **{key: top.text(key, default) for key, default in _TEXTS.items()},
        "missing": top.sentinels("missing"),
        "topic": top.text("topic", None),
        "sensor": sensor.texts("columns"),
        "aliases": tuple(_alias(entry) for entry in sensor.tables("aliases")),
        "longitude": position.text("longitude", None),
        "latitude": position.text("latitude", None),
        "elevation": position.text("elevation", None),
        "elevation_unit": position.text("elevation_unit", "m"),
        "time": _time(time),
        "values": tuple(_value(key, entry, lookups) for key, entry in top.table("values").each()),
        "long": _long(top.table("record"), lookups),
        "rules": tuple(_rule(entry) for entry in top.tables("rules")),
        "stations": _stations(stations),
    }
    for table in (top, sensor, position):
        table.end()
    return Mapping(**made)


_TEXTS = {"delimiter": ",", "quote": '"', "decimal": ".", "encoding": "utf-8"}


Lookup = tuple[tuple[str, float], ...]
_POINTS = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")
COMPASS: dict[str, Lookup] = {"compass": tuple((name, 22.5 * n or 360.0) for n, name in enumerate(_POINTS))}
"""Lookup tables that every mapping may name. North is 360: feeds write 0 for no wind."""


def _lookup(entry: "_Table", lookups: Dictionary[str, Lookup]) -> Lookup:
    """A table of its own, or the name of one."""
    found = entry.take("lookup", {}, (dict, str), "a table of texts and numbers, or the name of one")
    if isinstance(found, dict):
        return entry.table("lookup").numbers()
    if found not in lookups:
        raise entry.fail("lookup", found, f"one of {', '.join(lookups)}, or a table of texts and numbers")
    return lookups[found]


def _value(attribute: str, entry: "_Table", lookups: Dictionary[str, Lookup]) -> Value:
    made = Value(
        attribute,
        entry.text("column"),
        entry.text("unit"),
        entry.number("scale", 1.0),
        entry.number("offset", 0.0),
        entry.sentinels("missing"),
        _lookup(entry, lookups),
    )
    entry.end()
    return made


def _long(entry: "_Table", lookups: Dictionary[str, Lookup]) -> Long | None:
    if not entry:
        return None
    names = entry.table("names")
    made = Long(
        value=entry.text("value"),
        attribute=entry.text("attribute", None),
        fixed=entry.text("fixed_attribute", None),
        names=tuple((key, names.text(key)) for key in list(names.content)),
        unit=entry.text("unit", None),
        default_unit=entry.text("default_unit", None),
        missing=entry.sentinels("missing"),
        lookup=_lookup(entry, lookups),
    )
    entry.end()
    return made


def _time(entry: "_Table") -> Time | None:
    if not entry:
        return None
    made = Time(entry.texts("column"), entry.text("format", "iso"), entry.text("zone", "UTC"))
    entry.end()
    return made


def _rule(entry: "_Table") -> Rule:
    conditions = []
    for column, comparison in entry.table("where").each():
        conditions += [
            Condition(column, operator, comparison.sentinel(operator))
            for operator in list(comparison.content)
        ]
    made = Rule(entry.text("missing"), tuple(conditions))
    entry.end()
    return made


def _alias(entry: "_Table") -> Alias:
    made = Alias(entry.text("pattern"), entry.text("to"))
    entry.end()
    return made


def _stations(entry: "_Table") -> StationColumns:
    keys = {
        "id": "id",
        "longitude": "longitude",
        "latitude": "latitude",
        "elevation": "elevation",
        "delimiter": ",",
    }
    made = StationColumns(entry.text("table", None), **{key: entry.text(key, at) for key, at in keys.items()})
    entry.end()
    return made


_NOTHING: Any = object()


class _Table:
    """A table of TOML that knows where it stands; what nobody has asked for at the end is a typing error."""

    def __init__(self, file: str, key: str, content: Dictionary[str, Any]) -> None:
        self.file, self.key, self.content = file, key, content
        self.asked: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self.content)

    def fail(self, key: str, found: object, expected: str) -> MappingError:
        return MappingError(f"{self.file}: {self._at(key)}: found {found!r}, expected {expected}")

    def take(self, key: str, default: Any, kinds: type | tuple[type, ...], expected: str) -> Any:
        self.asked[key] = None
        if key not in self.content:
            if default is _NOTHING:
                raise self.fail(key, None, expected)
            return default
        found = self.content[key]
        if not isinstance(found, kinds) or (isinstance(found, bool) and kinds is not bool):
            raise self.fail(key, found, expected)
        return found

    def text(self, key: str, default: str | None = _NOTHING) -> Any:
        return self.take(key, default, str, "a text")

    def flag(self, key: str, default: bool) -> bool:
        return cast(bool, self.take(key, default, bool, "true or false"))

    def number(self, key: str, default: float) -> float:
        return float(self.take(key, default, (int, float), "a number"))

    def texts(self, key: str) -> tuple[str, ...]:
        found = self.take(key, [], (list, str), "a text or a list of texts")
        found = [found] if isinstance(found, str) else found
        if not all(isinstance(entry, str) for entry in found):
            raise self.fail(key, found, "a text or a list of texts")
        return tuple(found)

    def numbers(self) -> tuple[tuple[str, float], ...]:
        """The whole table as texts and numbers."""
        return tuple((key, self.number(key, 0.0)) for key in list(self.content))

    def sentinels(self, key: str) -> tuple[Sentinel, ...]:
        found = self.take(key, [], list, "a list of numbers and texts")
        if not all(isinstance(entry, str | int | float) and not isinstance(entry, bool) for entry in found):
            raise self.fail(key, found, "a list of numbers and texts")
        return tuple(entry if isinstance(entry, str) else float(entry) for entry in found)

    def sentinel(self, key: str) -> Sentinel:
        found = self.take(key, _NOTHING, (str, int, float), "a number or a text")
        return found if isinstance(found, str) else float(found)

    def table(self, key: str) -> "_Table":
        return _Table(self.file, self._at(key), self.take(key, {}, dict, "a table"))

    def tables(self, key: str) -> list["_Table"]:
        found = self.take(key, [], list, "a list of tables")
        if not all(isinstance(entry, dict) for entry in found):
            raise self.fail(key, found, "a list of tables")
        return [_Table(self.file, self._at(f"{key}[{index}]"), entry) for index, entry in enumerate(found)]

    def each(self) -> list[tuple[str, "_Table"]]:
        return [(key, self.table(key)) for key in list(self.content)]

    def end(self) -> None:
        for key in self.content:
            if key not in self.asked:
                raise self.fail(key, key, f"one of the keys {', '.join(self.asked)}")

    def _at(self, key: str) -> str:
        return f"{self.key}.{key}" if self.key else key
