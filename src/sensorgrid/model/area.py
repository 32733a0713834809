"""Positions in a bounding box, and the points of a grid around it.

`Grid.box_of` gives the *points* inside a box. Here is what positions need that are no points: sensors.
"""

import numpy as np
import numpy.typing as npt

from sensorgrid.model.box import Box
from sensorgrid.model.errors import QueryError
from sensorgrid.model.grid import Bbox, Grid

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


_SLACK = 1e-9
"""degrees by which the points around a box reach further than the box: turns around the earth are rounded"""
_FAR = 720.0
"""degrees: longitudes beyond are first turned back"""


def check_bbox(grid: Grid, bbox: Bbox) -> None:
    """Refuse a box that cannot be meant on this grid; one beside it, or partly, is a good question.

    Raises
    ------
    QueryError
        If longitudes are turns away, or west lies east of east on a plane.
    """
    west, _, east, _ = bbox
    if grid.coordinates == "planar" and west > east:
        raise QueryError(f"bbox: found west {west:g} > east {east:g}, expected west <= east on a plane")
    if grid.coordinates == "lonlat" and max(abs(west), abs(east)) > _FAR:
        raise QueryError(f"bbox: found longitudes {west:g} and {east:g}, expected them in [-720, 720]")


def points_around(grid: Grid, bbox: Bbox) -> Box | None:
    """Points of a grid whose areas together hold a bounding box; None if it lies beside the grid, or holds nothing.

    Any four finite numbers may be asked for: a box may come from a stranger.

    Examples
    --------
    >>> points_around(Grid(shape=(8, 4), resolution_bits=1), (170, -10, -170, 10))
    Box(x0=7, x1=9, y0=1, y1=3)
    """
    west, south, east, north = bbox
    (left, bottom, right, top), (dx, dy), (nx, ny) = grid.extent, grid.spacing, grid.shape
    if north < bottom or south > top or south > north:
        return None
    y0, y1 = (min(int((min(max(y, bottom), top) - bottom) // dy), ny - 1) for y in (south, north))
    if grid.coordinates == "planar":
        if east < left or west > right or west > east:
            return None
        x0, x1 = (min(int((min(max(x, left), right) - left) // dx), nx - 1) for x in (west, east))
        return Box(x0, x1 + 1, y0, y1 + 1)
    west, east = _turned(west, east)
    width = (360.0 if east - west >= 360.0 else (east - west) % 360.0) + 2 * _SLACK
    begin = (west - left) % 360.0 - _SLACK
    if grid.wraps:
        first, last = int(begin // dx), int((begin + width) // dx)
        x0 = first % nx
        return (
            Box(0, nx, y0, y1 + 1) if last - first + 1 >= nx else Box(x0, x0 + last - first + 1, y0, y1 + 1)
        )
    parts = [(max(at, 0.0), min(at + width, right - left)) for at in (begin, begin - 360.0)]
    parts = [(low, high) for low, high in parts if low <= high]
    if not parts:
        return None
    x0, x1 = (min(int(x // dx), nx - 1) for x in (min(p[0] for p in parts), max(p[1] for p in parts)))
    return Box(x0, x1 + 1, y0, y1 + 1)


def inside(grid: Grid, bbox: Bbox, x: Floats, y: Floats) -> Bools:
    """Which positions lie in a bounding box, its borders included; with west > east it crosses the date line."""
    west, south, east, north = bbox
    if grid.coordinates == "planar":
        along: Bools = (x >= west) & (x <= east)
    elif east - west >= 360.0:
        along = np.ones(len(x), bool)
    else:
        west, east = _turned(west, east)
        if west > east:
            west -= 360.0 * np.ceil((west - east) / 360.0)
        turns = (360.0 * turn for turn in range(-3, 4))
        along = np.any([(x >= west + turn) & (x <= east + turn) for turn in turns], axis=0)
    found: Bools = along & (y >= south) & (y <= north)
    return found


def _turned(west: float, east: float) -> tuple[float, float]:
    """The same meridians in numbers whose difference can be told: that of large ones is rounded, or overflows."""
    if east - west >= 360.0:
        return -180.0, 180.0
    return (west % 360.0, east % 360.0) if max(abs(west), abs(east)) > _FAR else (west, east)
