"""``[areas]``: parts of the grid by name, and GeoJSON files of them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import model_validator

from sensorgrid.configuration.base import SettingsError, Strict
from sensorgrid.operators.areas import Area, AreaError, area_from_bbox, area_from_geojson
from sensorgrid.operators.meaning import is_duration

FILES = (".geojson", ".json")
"""how the names of files end that expressions can name"""


class AreaSettings(Strict):
    """``[areas.NAME]``: a part of the grid that expressions can name; one of the keys."""

    bbox: tuple[float, float, float, float] | None = None
    """west, south, east, north; with west > east it crosses the date line"""
    polygon: tuple[tuple[float, float], ...] | None = None
    """corners x, y; the last is joined with the first"""
    file: str | None = None
    """polygons in GeoJSON"""

    @model_validator(mode="after")
    def _one(self) -> "AreaSettings":
        given = [name for name in ("bbox", "polygon", "file") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"found {' and '.join(given) or 'nothing'}, expected one of bbox, polygon, file")
        return self

    def area(self) -> Area:
        """The area."""
        if self.bbox is not None:
            return area_from_bbox(self.bbox)
        if self.polygon is not None:
            ring = [*self.polygon, *self.polygon[:1]]
            return area_from_geojson({"type": "Polygon", "coordinates": [ring]})
        return read_area(str(self.file))


class AreaBook(Mapping[str, Area]):
    """Areas by name, read when they are asked for; a name that ends in .geojson or .json is a file."""

    def __init__(self, named: Mapping[str, AreaSettings]) -> None:
        self._named = named
        self._read: dict[str, Area] = {}

    def __getitem__(self, name: str) -> Area:
        if name not in self._read:
            if name in self._named:
                self._read[name] = self._named[name].area()
            elif name.endswith(FILES):
                self._read[name] = read_area(name)
            else:
                raise KeyError(name)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)


def read_area(path: str) -> Area:
    """The polygons of a GeoJSON file."""
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise AreaError(f"area {path}: found no file ({error}), expected GeoJSON") from None
    except ValueError as error:
        raise AreaError(f"area {path}: found no JSON ({error}), expected GeoJSON") from None
    try:
        return area_from_geojson(found)
    except (AreaError, KeyError, TypeError, AttributeError) as error:
        raise AreaError(f"area {path}: {error}") from None


def check_names(named: Mapping[str, AreaSettings], subject: str) -> None:
    """Refuse names that an expression would read as something else."""
    for name in named:
        if is_duration(name) or name.endswith(FILES):
            raise SettingsError(
                f"{subject}: areas.{name}: found a name that looks like a time or a file, expected another one"
            )
