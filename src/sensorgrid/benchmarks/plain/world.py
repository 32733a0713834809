"""The grid of the benchmark: 128 by 64 points on the earth in 16 regions, each with a halo of sensors around it."""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EARTH_RADIUS_M = 6_371_008.8
SHAPE = (128, 64)
"""points along x and y, from 180° W and 90° S on"""
REGION = (32, 16)
"""points of a region"""
DIGITS = 4
REGIONS = 1 << DIGITS
BINS = 4
"""bins of a region along each axis: a table says which regions' halos a bin touches"""
NEIGHBOURS = 16
"""sensors that must lie within half a halo of every point"""

_LATTICE = 9
"""points along each side of a region that stand for it when distances are measured"""
_STEP = (360.0 / SHAPE[0], 180.0 / SHAPE[1])
_COLUMNS, _ROWS = BINS * SHAPE[0] // REGION[0], BINS * SHAPE[1] // REGION[1]


def metres(longitude: npt.ArrayLike, latitude: npt.ArrayLike) -> Floats:
    """Positions as points on a sphere, whose straight distance is nearly that on the ground."""
    x, y = np.radians(np.asarray(longitude, np.float64)), np.radians(np.asarray(latitude, np.float64))
    return EARTH_RADIUS_M * np.stack([np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)], axis=-1)


def corner(region: int) -> tuple[int, int]:
    """The first point of a region along x and y: its digits halve x and y in turn."""
    x = y = 0
    for digit in range(DIGITS):
        bit = region >> (DIGITS - 1 - digit) & 1
        if digit % 2 == 0:
            x = 2 * x + bit
        else:
            y = 2 * y + bit
    return x * REGION[0], y * REGION[1]


def name_of(region: int) -> str:
    """The region's cell, as text."""
    return format(region, f"0{DIGITS}b")


@lru_cache(maxsize=REGIONS)
def points(region: int) -> Floats:
    """A region's points in metres, made once; row by row as in an array ``[y, x]``."""
    x0, y0 = corner(region)
    x = -180.0 + (np.arange(x0, x0 + REGION[0]) + 0.5) * _STEP[0]
    y = -90.0 + (np.arange(y0, y0 + REGION[1]) + 0.5) * _STEP[1]
    columns, rows = np.meshgrid(x, y)
    return metres(columns.ravel(), rows.ravel())


def regions_of(x: Floats, y: Floats) -> Ints:
    """The region of each position."""
    table = np.zeros((SHAPE[0] // REGION[0], SHAPE[1] // REGION[1]), np.int64)
    for number in range(REGIONS):
        x0, y0 = corner(number)
        table[x0 // REGION[0], y0 // REGION[1]] = number
    ix = np.floor((x + 180.0) / _STEP[0]).astype(np.int64) % SHAPE[0]
    iy = np.minimum(np.floor((y + 90.0) / _STEP[1]).astype(np.int64), SHAPE[1] - 1)
    found: Ints = table[ix // REGION[0], iy // REGION[1]]
    return found


def halos(x: Floats, y: Floats) -> Floats:
    """How wide each region's halo must be, in metres, for sensors at these positions.

    Twice the distance to the 16th sensor from the region's emptiest point: the first half holds all sensors that a
    point depends on, the second those that check them.
    """
    sensors = np.unique(metres(x, y), axis=0)
    lattice = np.concatenate([_lattice(number) for number in range(REGIONS)])
    distance = cKDTree(sensors).query(lattice, k=[min(NEIGHBOURS, len(sensors))])[0].reshape(REGIONS, -1)
    return np.asarray([round(float(w), 1) for w in 2 * distance.max(axis=1)])


class PlainHalos:
    """Which regions want a measurement: its own, and those whose halo it touches."""

    def __init__(self, width_m: Floats) -> None:
        bx, by = np.divmod(np.arange(_COLUMNS * _ROWS), _ROWS)
        x, y = -180.0 + (bx + 0.5) * 360.0 / _COLUMNS, -90.0 + (by + 0.5) * 180.0 / _ROWS
        corner_x, corner_y = -180.0 + bx * 360.0 / _COLUMNS, -90.0 + by * 180.0 / _ROWS
        centres = metres(x, y)
        # The corner nearer to the equator is the farther one.
        slack = np.maximum(
            np.linalg.norm(centres - metres(corner_x, corner_y), axis=1),
            np.linalg.norm(centres - metres(corner_x, 2 * y - corner_y), axis=1),
        )
        own = regions_of(x, y)
        wanted = np.zeros((len(centres), REGIONS), bool)
        for number in range(REGIONS):
            lattice = _lattice(number)
            near = cKDTree(lattice).query(centres)[0] - slack - _lattice_step(lattice) <= width_m[number]
            wanted[:, number] = near | (own == number)
        self._lists = np.nonzero(wanted)[1]
        self._starts = np.r_[0, np.cumsum(wanted.sum(axis=1))]

    def spread(self, x: Floats, y: Floats) -> tuple[Ints, Ints]:
        """Every pair (measurement, region that wants it), as two columns."""
        bx = np.clip(np.floor((x + 180.0) / 360.0 * _COLUMNS).astype(np.int64), 0, _COLUMNS - 1)
        by = np.clip(np.floor((y + 90.0) / 180.0 * _ROWS).astype(np.int64), 0, _ROWS - 1)
        bins = bx * _ROWS + by
        counts = self._starts[bins + 1] - self._starts[bins]
        rows = np.repeat(np.arange(len(x)), counts)
        offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, self._lists[np.repeat(self._starts[bins], counts) + offsets]


def _lattice(region: int) -> Floats:
    """Points spread over a region, its border included."""
    x0, y0 = corner(region)
    x = -180.0 + np.linspace(x0, x0 + REGION[0], _LATTICE) * _STEP[0]
    y = -90.0 + np.linspace(y0, y0 + REGION[1], _LATTICE) * _STEP[1]
    columns, rows = np.meshgrid(x, y)
    return metres(columns.ravel(), rows.ravel())


def _lattice_step(lattice: Floats) -> float:
    """No position of the region is farther than this from a point of its lattice."""
    square = lattice.reshape(_LATTICE, _LATTICE, -1)
    along: list[Any] = [np.linalg.norm(np.diff(square, axis=axis), axis=-1).max() for axis in (0, 1)]
    return float(np.hypot(*along)) / 2
