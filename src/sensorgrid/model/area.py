"""Positions in a bounding box, and the points of a grid around it.

`Grid.box_of` gives the *points* inside a box. Here is what positions need that are no points: sensors.
"""

import numpy as np
import numpy.typing as npt

from sensorgrid.model.box import Box
from sensorgrid.model.grid import Bbox, Grid

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def points_around(grid: Grid, bbox: Bbox) -> Box | None:
    """Points of a grid whose areas together hold a bounding box; None if it lies beside the grid."""
    west, south, east, north = bbox
    (left, bottom, right, top), (dx, dy), (nx, ny) = grid.extent, grid.spacing, grid.shape
    if north < bottom or south > top:
        return None
    y0, y1 = (min(max(int((y - bottom) // dy), 0), ny - 1) for y in (south, north))
    if grid.coordinates == "planar":
        if east < left or west > right:
            return None
        x0, x1 = (min(max(int((x - left) // dx), 0), nx - 1) for x in (west, east))
        return Box(x0, x1 + 1, y0, y1 + 1)
    begin, width = (west - left) % 360.0, _width(west, east)
    if grid.wraps:
        x0 = min(int(begin // dx), nx - 1)
        x1 = int((begin + width) // dx)
        return Box(0, nx, y0, y1 + 1) if x1 - x0 + 1 >= nx else Box(x0, x1 + 1, y0, y1 + 1)
    parts = [(max(start, 0.0), min(start + width, right - left)) for start in (begin, begin - 360.0)]
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
    else:
        along = np.mod(x - west, 360.0) <= _width(west, east)
    found: Bools = along & (y >= south) & (y <= north)
    return found


def _width(west: float, east: float) -> float:
    return 360.0 if east - west >= 360.0 else (east - west) % 360.0
