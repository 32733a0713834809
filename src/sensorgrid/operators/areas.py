"""Areas: polygons in the grid's coordinates, in one canonical form.

Two ways to write an area give one value: rings begin at their least corner and run one way. A polygon may go beyond
180 degrees to cross the date line; a box with west > east does the same.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np
import shapely

from sensorgrid.model.errors import SensorGridError

Corner = tuple[float, float]
Ring = tuple[Corner, ...]
Polygon = tuple[Ring, ...]
CORNERS_MAX = 100_000


class AreaError(SensorGridError, ValueError):
    """An area that cannot be one."""


@dataclass(frozen=True)
class Area:
    """One or more polygons, each an outer ring and its holes."""

    polygons: tuple[Polygon, ...]

    @cached_property
    def digest(self) -> str:
        """A name for what it covers."""
        return hashlib.blake2b(json.dumps(self.polygons).encode(), digest_size=16).hexdigest()

    @cached_property
    def shape(self) -> Any:
        """As a geometry of shapely."""
        return shapely.MultiPolygon([(p[0], p[1:]) for p in self.polygons])

    @property
    def rectangle(self) -> tuple[float, float, float, float] | None:
        """West, south, east, north if it is one, parallel to the axes."""
        if len(self.polygons) != 1 or len(self.polygons[0]) != 1 or len(self.polygons[0][0]) != 5:
            return None
        ring = self.polygons[0][0]
        xs, ys = sorted({x for x, _ in ring}), sorted({y for _, y in ring})
        turns = all((a[0] == b[0]) != (a[1] == b[1]) for a, b in pairwise(ring))
        return (xs[0], ys[0], xs[1], ys[1]) if len(xs) == len(ys) == 2 and turns else None

    def to_geojson(self) -> dict[str, Any]:
        """As a geometry of GeoJSON."""
        return {"type": "MultiPolygon", "coordinates": self.polygons}


def area_from_bbox(bbox: Iterable[Any]) -> Area:
    """The area of a box west, south, east, north; with west > east it crosses the date line."""
    numbers = [float(v) for v in bbox]
    if len(numbers) != 4 or not all(map(isfinite, numbers)):
        raise AreaError(f"box: found {numbers}, expected west, south, east, north")
    west, south, east, north = numbers
    if west > east:
        east += 360.0
    if not (west < east and south < north):
        raise AreaError(f"box: found {numbers}, expected west < east and south < north")
    return _canonical([[[(west, south), (east, south), (east, north), (west, north), (west, south)]]])


def area_from_geojson(found: Mapping[str, Any]) -> Area:
    """The polygons of a geometry, a feature or a collection of GeoJSON."""
    return _canonical(list(_polygons(found)))


def area_from_polygons(polygons: Iterable[Any]) -> Area:
    """The area of rings of corners, as `Area.polygons` has them."""
    return _canonical(list(polygons))


def _polygons(found: Any) -> Iterable[Any]:
    kind = found.get("type") if isinstance(found, Mapping) else None
    if kind == "FeatureCollection":
        for feature in found.get("features", ()):
            yield from _polygons(feature)
    elif kind == "Feature":
        yield from _polygons(found.get("geometry"))
    elif kind == "GeometryCollection":
        for geometry in found.get("geometries", ()):
            yield from _polygons(geometry)
    elif kind == "Polygon":
        yield found["coordinates"]
    elif kind == "MultiPolygon":
        yield from found["coordinates"]
    else:
        raise AreaError(f"area: found {kind or 'no geometry'}, expected a polygon, or several")


def _canonical(polygons: list[Any]) -> Area:
    """Rings checked, begun at their least corner, turned one way."""
    try:
        plain = [[np.asarray(ring, float)[:, :2] for ring in polygon] for polygon in polygons]
    except (TypeError, ValueError, IndexError):
        raise AreaError(
            "area: found coordinates that are no pairs of numbers, expected rings of them"
        ) from None
    corners = sum(len(ring) for polygon in plain for ring in polygon)
    if not plain or corners > CORNERS_MAX:
        raise AreaError(f"area: found {corners:,} corners, expected 1 to {CORNERS_MAX:,}")
    if not all(np.isfinite(ring).all() for polygon in plain for ring in polygon):
        raise AreaError("area: found a corner that is not finite, expected numbers")
    try:
        shapes = [shapely.Polygon(polygon[0], polygon[1:]) for polygon in plain]
        whole = shapely.MultiPolygon(shapes)
    except (ValueError, IndexError, shapely.errors.GEOSException) as error:
        raise AreaError(f"area: found no polygon ({error}), expected rings of four corners or more") from None
    if not whole.is_valid:
        reason = shapely.is_valid_reason(whole)
        if len(shapes) == 1:
            raise AreaError(f"area: found a ring that is not simple ({reason}), expected one that is")
        whole = shapely.union_all(shapes)  # polygons of a collection may overlap
        if not whole.is_valid:
            raise AreaError(f"area: found polygons that are not simple ({reason}), expected such that are")
    if whole.is_empty or not whole.area > 0:
        raise AreaError("area: found none inside its corners, expected some")
    normal = shapely.normalize(shapely.remove_repeated_points(whole))
    parts = [p for p in shapely.get_parts(normal) if p.geom_type == "Polygon"]
    return Area(tuple(tuple(_ring(ring) for ring in (p.exterior, *p.interiors)) for p in parts))


def _ring(ring: Any) -> Ring:
    return tuple((float(x) + 0.0, float(y) + 0.0) for x, y in np.asarray(ring.coords)[:, :2])
