"""How much each point of a grid counts for an area: cosine of latitude times the share of the point that lies inside.

The cosine is a multiple of 2^-18 and the share one of 2^-7. So they are the same on every machine, their sums are
exact, and so are the products of values of 32 bits that sums are made of. An area is kept as rectangles of points that
lie wholly inside, whose weight is that of their row, and single points at its border. A polygon is cut by halving boxes
until each is inside, outside or one point, so the work grows with the border and not with the area.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely

from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.operators.areas import Area

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ROW_UNIT = 2.0**-18
"""cosines are multiples of this"""
SHARE_UNIT = 2.0**-7
"""and shares of this"""
WEIGHT_UNIT = -25
"""so that weights are multiples of 2 to the power of this"""


@lru_cache(maxsize=64)
def row_weights(grid: Grid) -> Floats:
    """The weight of a point that lies wholly inside, for each row of the grid."""
    if grid.coordinates == "planar":
        return np.ones(grid.shape[1])
    latitude = grid.extent[1] + (np.arange(grid.shape[1]) + 0.5) * grid.spacing[1]
    return np.asarray(np.maximum(1.0, np.rint(np.cos(np.radians(latitude)) / ROW_UNIT)) * ROW_UNIT)


@dataclass(frozen=True, eq=False)
class Weights:
    """The points of a box that an area meets, and how much each counts."""

    box: Box
    """the box, which a region is, or the whole grid"""
    rows: Floats
    """weight of a point that lies wholly inside, for each row of the box"""
    whole: Ints
    """[n, 4]: rectangles x0, x1, y0, y1 of points wholly inside, counted from the corner of the box, none twice"""
    border: Ints
    """[m]: points at the border of the area, row by row through the box, rising"""
    share: Floats
    """[m]: the part of each that lies inside, between 0 and 1"""

    @cached_property
    def border_weight(self) -> Floats:
        """[m]: weights of points at the border."""
        return self.share * self.rows[self.border // (self.box.x1 - self.box.x0)]

    @cached_property
    def points(self) -> int:
        """How many points the area meets."""
        x0, x1, y0, y1 = self.whole.T
        return int(((x1 - x0) * (y1 - y0)).sum()) + len(self.border)

    @cached_property
    def total(self) -> float:
        """The sum of all weights; exact."""
        x0, x1, y0, y1 = self.whole.T
        until = np.concatenate([[0.0], np.cumsum(self.rows)])
        return float(((x1 - x0) * (until[y1] - until[y0])).sum() + self.border_weight.sum())

    @property
    def is_whole(self) -> bool:
        """Whether every point of the box lies wholly inside."""
        return not len(self.border) and self.points == self.box.points

    @cached_property
    def runs(self) -> Ints:
        """[n, 3]: row, first and last + 1 column of points wholly inside, in order, the longest there are."""
        x0, x1, y0, y1 = self.whole.T
        heights = y1 - y0
        which = np.repeat(np.arange(len(heights)), heights)
        row = np.arange(len(which)) - np.repeat(np.cumsum(heights) - heights, heights) + y0[which]
        order = np.lexsort((x0[which], row))
        row, begin, end = row[order], x0[which][order], x1[which][order]
        fresh = np.r_[True, (row[1:] != row[:-1]) | (begin[1:] != end[:-1])][: len(row)]
        first = np.flatnonzero(fresh)
        last = np.r_[first[1:], len(row)][: len(first)] - 1
        return np.stack([row[first], begin[first], end[last]], axis=1)

    @cached_property
    def digest(self) -> str:
        """A name for these weights: the same for every area that covers the box whole."""
        if self.is_whole:
            return "whole"
        found = hashlib.blake2b(digest_size=16)
        for part in (self.runs, self.border, self.share):
            found.update(len(part).to_bytes(8, "little") + np.ascontiguousarray(part).tobytes())
        return found.hexdigest()

    def indices(self) -> tuple[Ints, Floats]:
        """Every point, row by row through the box, and its weight."""
        width = self.box.x1 - self.box.x0
        row, begin, end = self.runs.T
        lengths = end - begin
        which = np.repeat(np.arange(len(lengths)), lengths)
        inside = np.arange(len(which)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        points = np.concatenate([row[which] * width + begin[which] + inside, self.border])
        weights = np.concatenate([self.rows[row[which]], self.border_weight])
        order = np.argsort(points, kind="stable")
        return points[order], weights[order]

    def within(self, box: Box) -> "Weights | None":
        """What lies in a smaller box; None if nothing does."""
        width = self.box.x1 - self.box.x0
        dx, dy = box.x0 - self.box.x0, box.y0 - self.box.y0
        columns, lines = box.x1 - box.x0, box.y1 - box.y0
        cut = np.clip(self.whole - np.array([dx, dx, dy, dy]), 0, np.array([columns, columns, lines, lines]))
        cut = cut[(cut[:, 0] < cut[:, 1]) & (cut[:, 2] < cut[:, 3])]
        y, x = np.divmod(self.border, width)
        x, y = x - dx, y - dy
        mine = (x >= 0) & (x < columns) & (y >= 0) & (y < lines)
        if not len(cut) and not mine.any():
            return None
        border = y[mine] * columns + x[mine]
        return Weights(box, self.rows[dy : dy + lines], cut, border, self.share[mine])


@lru_cache(maxsize=1 << 14)
def clip(area: Area | None, grid: Grid) -> Weights | None:
    """An area on the whole grid; None if it meets no point."""
    nx, ny = grid.shape
    box = Box(0, nx, 0, ny)
    rows = row_weights(grid)
    if area is None:
        return Weights(box, rows, np.array([[0, nx, 0, ny]]), np.empty(0, np.int64), np.empty(0))
    rectangle = area.rectangle
    found = _rectangle(rectangle, grid) if rectangle is not None else _polygon(area.shape, grid)
    if found is None:
        return None
    whole, border, part = found
    share = np.rint(part / SHARE_UNIT) * SHARE_UNIT
    full = share >= 1
    if full.any():
        y, x = np.divmod(border[full], nx)
        whole = np.concatenate([whole, np.stack([x, x + 1, y, y + 1], axis=1)])
    some = ~full & (share > 0)
    order = np.argsort(border[some], kind="stable")
    if not len(whole) and not some.any():
        return None
    return Weights(box, rows, whole, border[some][order], share[some][order])


_FULL = 1 - 1e-9
"""a point inside but for rounding"""
Clipped = tuple[Ints, Ints, Floats]
"""rectangles wholly inside, points at the border, their parts inside"""


def _rectangle(bbox: tuple[float, float, float, float], grid: Grid) -> Clipped | None:
    west, south, east, north = bbox
    turns = (-720.0, -360.0, 0.0, 360.0, 720.0) if grid.coordinates == "lonlat" else (0.0,)
    along = sum((_overlap(west + t, east + t, grid, 0) for t in turns), np.zeros(grid.shape[0]))
    up = _overlap(south, north, grid, 1)
    along = np.minimum(along, 1.0)
    columns, lines = np.flatnonzero(along > 0), np.flatnonzero(up > 0)
    if not len(columns) or not len(lines):
        return None
    full_x, full_y = np.flatnonzero(along >= _FULL), np.flatnonzero(up >= _FULL)
    whole = [[x[0], x[-1] + 1, y[0], y[-1] + 1] for x in _stretches(full_x) for y in _stretches(full_y)]
    part_x, part_y = np.setdiff1d(columns, full_x), np.setdiff1d(lines, full_y)
    pairs = [(part_x, lines), (full_x, part_y)]
    border = np.concatenate([(y[:, None] * grid.shape[0] + x[None, :]).ravel() for x, y in pairs])
    part = np.concatenate([(up[y][:, None] * along[x][None, :]).ravel() for x, y in pairs])
    return np.array(whole, np.int64).reshape(-1, 4), border.astype(np.int64), part


def _overlap(low: float, high: float, grid: Grid, axis: int) -> Floats:
    """The part of each column (or row) between two borders."""
    step, count = grid.spacing[axis], grid.shape[axis]
    edges = np.arange(count + 1)
    begin, end = (low - grid.extent[axis]) / step, (high - grid.extent[axis]) / step
    return np.asarray(np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0.0, 1.0))


def _stretches(numbers: Ints) -> list[Ints]:
    return [part for part in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1) if len(part)]


def _polygon(shape: Any, grid: Grid) -> Clipped | None:
    shape = _on_grid(shape, grid)
    if shape.is_empty:
        return None
    shapely.prepare(shape)
    (dx, dy), (west, south), (nx, ny) = grid.spacing, grid.extent[:2], grid.shape
    size = max(nx, ny)
    x, y = np.zeros(1, np.int64), np.zeros(1, np.int64)
    whole = []
    while len(x):
        boxes = shapely.box(
            west + x * dx, south + y * dy,
            west + np.minimum(x + size, nx) * dx, south + np.minimum(y + size, ny) * dy,
        )  # fmt: skip
        inside = shapely.covers(shape, boxes)
        whole.append(_squares(x[inside], y[inside], size, nx, ny))
        met = ~inside & shapely.intersects(shape, boxes)
        x, y, boxes = x[met], y[met], boxes[met]
        if size == 1:
            part = shapely.area(shapely.intersection(shape, boxes)) / (dx * dy)
            return np.concatenate(whole), y * nx + x, part
        size //= 2
        x = np.concatenate([x, x + size, x, x + size])
        y = np.concatenate([y, y, y + size, y + size])
        there = (x < nx) & (y < ny)
        x, y = x[there], y[there]
    return np.concatenate(whole), np.empty(0, np.int64), np.empty(0)


def _squares(x: Ints, y: Ints, size: int, nx: int, ny: int) -> Ints:
    return np.stack([x, np.minimum(x + size, nx), y, np.minimum(y + size, ny)], axis=1)


def _on_grid(shape: Any, grid: Grid) -> Any:
    """The part of a geometry on the grid, whatever turn around the earth it was drawn on."""
    extent = shapely.box(*grid.extent)
    if grid.coordinates == "planar":
        return shapely.intersection(shape, extent)
    turns = [
        shapely.transform(shape, lambda c, t=t: c + np.array([t, 0.0]))
        for t in (-720.0, -360.0, 0.0, 360.0, 720.0)
    ]
    return shapely.union_all([shapely.intersection(turn, extent) for turn in turns])
