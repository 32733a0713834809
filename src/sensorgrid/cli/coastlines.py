"""Coastlines for maps, shipped with the package: Natural Earth 1:50m (public domain), simplified to about 2 km.

`coastlines.npz` holds hundredths of degrees: `points` as whole numbers, and where each line starts. `made_from` makes
it from a GeoJSON file of land polygons::

    python -c "from sensorgrid.cli.coastlines import *; save(made_from('land-50m.geojson.gz'), 'coastlines.npz')"
"""

import gzip
import json
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

Line = npt.NDArray[np.float64]
"""[n, 2], degrees"""
STEP = 0.01
TOLERANCE = 0.02


def read() -> list[Line]:
    """The shipped coastlines, longitudes in −180..180."""
    with (
        resources.files("sensorgrid.cli").joinpath("coastlines.npz").open("rb") as file,
        np.load(file) as found,
    ):
        points, starts = found["points"] * STEP, found["starts"]
    return np.split(points, starts[1:])


def read_csv(path: Path) -> list[Line]:
    """Coastlines of a CSV file with ring number, longitude, latitude."""
    ring, lon, lat = np.genfromtxt(path, delimiter=",", skip_header=1, unpack=True)
    # A new ring, or a jump across the date line, is no coast.
    breaks = np.flatnonzero((np.diff(ring) != 0) | (np.abs(np.diff(lon)) > 180)) + 1
    return np.split(np.stack([lon, lat], axis=1), breaks)


def inside(lines: list[Line], extent: tuple[float, float, float, float]) -> list[Line]:
    """Those lines, turned around the earth as often as needed, that reach into an extent."""
    west, south, east, north = extent
    found = []
    for turn in (-360.0, 0.0, 360.0):
        for line in lines:
            moved = line + np.array([turn, 0.0])
            low, high = moved.min(axis=0), moved.max(axis=0)
            if low[0] <= east and high[0] >= west and low[1] <= north and high[1] >= south:
                found.append(moved)
    return found


def made_from(geojson: str | Path) -> list[Line]:
    """Coastlines of land polygons; edges of the map itself (the date line, the pole) are no coast."""
    data = Path(geojson).read_bytes()
    content = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    lines = []
    for feature in content["features"]:
        shape = feature["geometry"]
        polygons = shape["coordinates"] if shape["type"] == "MultiPolygon" else [shape["coordinates"]]
        for ring in (np.array(ring, float) for polygon in polygons for ring in polygon):
            edge = (np.abs(ring[:, 0]) > 179.99) | (ring[:, 1] < -89.5)
            jump = np.abs(np.diff(ring[:, 0])) > 180
            along = np.flatnonzero((edge[1:] & edge[:-1]) | jump) + 1
            lines += [simplified(part, TOLERANCE) for part in np.split(ring, along) if len(part) > 1]
    return [line for line in lines if np.ptp(line, axis=0).max() > TOLERANCE]


def save(lines: list[Line], path: str | Path) -> None:
    """Write lines as `read` expects them."""
    points = np.round(np.concatenate(lines) / STEP).astype(np.int16)
    starts = np.cumsum([0, *(len(line) for line in lines[:-1])]).astype(np.int32)
    np.savez_compressed(path, points=points, starts=starts)


def simplified(line: Line, tolerance: float) -> Line:
    """As few points of a line as keep it within a distance (Douglas and Peucker, 1973)."""
    keep = np.zeros(len(line), bool)
    keep[[0, -1]] = True
    waiting = [(0, len(line) - 1)]
    while waiting:
        first, last = waiting.pop()
        if last - first < 2:
            continue
        between, way = line[first + 1 : last] - line[first], line[last] - line[first]
        length = float(np.hypot(*way))
        if length == 0:
            off = np.hypot(between[:, 0], between[:, 1])
        else:
            off = np.abs(between[:, 0] * way[1] - between[:, 1] * way[0]) / length
        worst = int(off.argmax())
        if off[worst] > tolerance:
            middle = first + 1 + worst
            keep[middle] = True
            waiting += [(first, middle), (middle, last)]
    kept: Line = line[keep]
    return kept
