"""Queries as people pose them: boxes anywhere, and boxes around a hot spot."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from sensorgrid.index.enclosing import Boxes
from sensorgrid.model.grid import Grid

Distribution = Literal["uniform", "hotspot"]

SMALLEST, LARGEST = 1 / 512, 1 / 16
ZIPF_EXPONENT = 1.0


def boxes(distribution: Distribution, count: int, grid: Grid, rng: np.random.Generator) -> Boxes:
    """Random boxes [i, (x0, x1, y0, y1)] on a grid."""
    draw = _uniform if distribution == "uniform" else _hotspot
    x, y = (draw(points, count, rng) for points in grid.shape)
    return np.stack([*x, *y], axis=1).astype(np.int32)


def limits(count: int, grid: Grid, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Random resolutions [i, (x, y, t)], uniform as in multires, section 5."""
    full = 1 << np.array(grid.resolution_bits)
    return np.ceil(rng.uniform(0, 1, (count, 3)) * full).astype(np.int64)


def _uniform(points: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Ranges anywhere on an axis, with lengths from 1/512 to 1/16 of it, each octave as likely."""
    length = np.exp(rng.uniform(np.log(SMALLEST), np.log(LARGEST), count)) * points
    middle = rng.uniform(0, points, count)
    return _on_axis(np.floor(middle - length / 2), np.ceil(middle + length / 2), points)


def _hotspot(points: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Ranges whose two ends lie near the middle: distances follow Zipf's law (multires, section 5)."""
    weights = np.cumsum(np.arange(1, points // 2 + 1) ** -ZIPF_EXPONENT)
    distance = np.searchsorted(weights / weights[-1], rng.uniform(0, 1, (2, count))) + 1
    ends = np.sort(points // 2 + distance * rng.choice([-1, 1], (2, count)), axis=0)
    return _on_axis(ends[0], ends[1], points)


def _on_axis(
    low: npt.NDArray[np.floating] | npt.NDArray[np.int64],
    high: npt.NDArray[np.floating] | npt.NDArray[np.int64],
    points: int,
) -> npt.NDArray[np.int64]:
    first = np.clip(low, 0, points - 1)
    return np.stack([first, np.clip(high, first + 1, points)]).astype(np.int64)
