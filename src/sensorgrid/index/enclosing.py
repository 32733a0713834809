"""The one cell that encloses a box, and the key by which an index sorts it.

`decompose` cuts a query finely, for streams. To *find* queries again, one entry per query is enough: the
smallest cell that encloses its box, as in multires, section 4.1. By itself that degenerates for a box across
a main split, which ends up in ε however small it is. So the key by which entries are sorted says more:

    in-order number of the cell | size of the box | place of its lower corner

* The *in-order number* of a cell with leaves [start, stop) is start + stop: the middle of its interval,
  doubled. Everything below the cell lies in (2 start, 2 stop), so a subtree is one run of entries, and no
  cell above it falls into that run; the lowest set bit tells the length, so no bits are spent on that.
* Among the entries of one cell, those of like size that begin close together are stored close together, as
  the *size* (in octaves below the cell's) and the *corner* (its next digits in Z-order) say. So pages of
  entries have tight bounds, wherever a box happens to cross a split.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import Fragment
from sensorgrid.index.jit import jit
from sensorgrid.index.layout import X, Y, layout_of
from sensorgrid.model.box import Box
from sensorgrid.model.grid import ORDER_2D, Grid
from sensorgrid.model.resolution import count_points

CORNER_BITS = 12
SIZE_BITS = 3
DETAIL_BITS = SIZE_BITS + CORNER_BITS

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.int8]
Boxes = npt.NDArray[np.int32]
"""[i, (x0, x1, y0, y1)]"""


class KeyTables(NamedTuple):
    """What the compiled code must know of a grid, in the order of its arguments."""

    spread_x: Ints
    """[block]: see Layout"""
    spread_y: Ints
    """[block]: see Layout"""
    corner_x: Ints
    """[block]: the digits of a block's x in Z-order, x and y in turn and nothing between them"""
    corner_y: Ints
    """[block]: likewise for y"""
    spatial: Bytes
    """[length]: spatial digits of a cell that are still to come below it"""
    depth_x: Bytes
    """[exclusive or of two blocks]: depth to which they share a cell, as far as x is concerned"""
    depth_y: Bytes
    """[exclusive or of two blocks]: likewise for y"""
    size_shifts: Bytes
    """[length]: binary logarithm of the longer side of a cell, in points"""
    logarithms: Bytes
    """[points]: binary logarithm, rounded up"""
    digits: int
    """of a leaf"""
    columns: int
    """of the grid"""
    kx: int
    """resolution bits along x"""
    ky: int
    """resolution bits along y"""


@lru_cache(maxsize=64)
def key_tables(grid: Grid) -> KeyTables:
    """The tables of a grid, made once."""
    layout = layout_of(grid)
    spatial = layout.spatial_digits
    depths = []
    for axis, blocks in ((X, len(layout.spread_x)), (Y, len(layout.spread_y))):
        total = layout.axis_digits[axis]
        # Blocks that differ in the n-th digit of the axis part there: that many digits fit before it.
        shared = total - np.ceil(np.log2(np.arange(1, blocks + 1))).astype(np.int64)
        longest = np.searchsorted(layout.counts[: spatial + 1, axis], shared, side="right") - 1
        depths.append(longest.astype(np.int8))
    sides = [layout.widths[:, axis] << grid.resolution_bits[axis] for axis in (X, Y)]
    longer = np.log2(np.maximum(*sides)).astype(np.int8)
    points = np.arange(max(grid.shape) + 1)
    logarithms = np.ceil(np.log2(np.maximum(points, 1))).astype(np.int8)
    alone = layout_of(replace(grid, order=ORDER_2D, region_digits=0))
    return KeyTables(
        spread_x=layout.spread_x,
        spread_y=layout.spread_y,
        corner_x=alone.spread_x,
        corner_y=alone.spread_y,
        spatial=(layout.counts[-1, :2].sum() - layout.counts[:, :2].sum(axis=1)).astype(np.int8),
        depth_x=depths[0],
        depth_y=depths[1],
        size_shifts=longer,
        logarithms=logarithms,
        digits=layout.digits,
        columns=grid.shape[0],
        kx=grid.resolution_bits[0],
        ky=grid.resolution_bits[1],
    )


def enclosing(box: Box, limits: tuple[int, int, int], grid: Grid) -> Fragment:
    """The smallest purely spatial cell that encloses a box, with the box as what is wanted of it."""
    layout, tables, bits = layout_of(grid), key_tables(grid), grid.resolution_bits
    x, y = box.x0 >> bits[0], box.y0 >> bits[1]
    depth = 0
    if box.x1 <= grid.shape[0]:
        depth_x = tables.depth_x[x ^ (box.x1 - 1) >> bits[0]]
        depth = int(min(depth_x, tables.depth_y[y ^ (box.y1 - 1) >> bits[1]]))
    leaf = int(layout.spread_x[x] | layout.spread_y[y])
    columns = sum(count_points(part.x0, part.x1, limits[0], bits[0]) for part in grid.plain_boxes(box))
    points = columns * count_points(box.y0, box.y1, limits[1], bits[1]) * limits[2]
    return Fragment(Cell.of_interval(leaf, depth, layout.digits), box, limits, points)


@jit
def key_of(
    start: int, length: int, side: int, corner: int, digits: int, spatial: Bytes, size_shifts: Bytes,
    logarithms: Bytes,
) -> int:  # fmt: skip
    """The key of an entry; `side` is the longer one of its box, `corner` the Z-order of its lower corner."""
    number = start << 1 | 1 << (digits - length)
    size = min(max(size_shifts[length] - logarithms[side], 0), (1 << SIZE_BITS) - 1)
    below = spatial[length]
    corner &= (1 << below) - 1
    corner = corner >> (below - CORNER_BITS) if below >= CORNER_BITS else corner << (CORNER_BITS - below)
    return int(number << DETAIL_BITS | size << CORNER_BITS | corner)


@jit
def box_keys(
    boxes: Boxes, spread_x: Ints, spread_y: Ints, corner_x: Ints, corner_y: Ints, spatial: Bytes,
    depth_x: Bytes, depth_y: Bytes, size_shifts: Bytes, logarithms: Bytes, digits: int, columns: int, kx: int,
    ky: int,
) -> Ints:  # fmt: skip
    """The keys of many boxes, each under the cell that encloses it; takes the fields of `KeyTables`."""
    keys = np.empty(len(boxes), np.int64)
    for i in range(len(boxes)):
        x0, x1, y0, y1 = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        x, y = x0 >> kx, y0 >> ky
        length = 0
        if x1 <= columns:  # a box across the date line lies in both halves of the grid
            length = min(depth_x[x ^ (x1 - 1) >> kx], depth_y[y ^ (y1 - 1) >> ky])
        below = digits - length
        start = (spread_x[x] | spread_y[y]) >> below << below
        corner = corner_x[x] | corner_y[y]
        keys[i] = key_of(
            start, length, max(x1 - x0, y1 - y0), corner, digits, spatial, size_shifts, logarithms
        )
    return keys


@jit
def fragment_keys(
    starts: Ints, lengths: Ints, boxes: Boxes, spread_x: Ints, spread_y: Ints, corner_x: Ints, corner_y: Ints,
    spatial: Bytes, depth_x: Bytes, depth_y: Bytes, size_shifts: Bytes, logarithms: Bytes, digits: int,
    columns: int, kx: int, ky: int,
) -> Ints:  # fmt: skip
    """The keys of boxes under given cells; takes the fields of `KeyTables`."""
    keys = np.empty(len(boxes), np.int64)
    for i in range(len(boxes)):
        side = max(boxes[i, 1] - boxes[i, 0], boxes[i, 3] - boxes[i, 2])
        corner = corner_x[boxes[i, 0] >> kx] | corner_y[boxes[i, 2] >> ky]
        keys[i] = key_of(starts[i], lengths[i], side, corner, digits, spatial, size_shifts, logarithms)
    return keys


@jit
def points_in(
    x0: int, x1: int, y0: int, y1: int, limit_x: int, limit_y: int, kx: int, ky: int, columns: int
) -> int:
    """Points of a box in one tick, with ranks below the limits."""
    if limit_x >> kx and limit_y >> ky:
        return (x1 - x0) * (y1 - y0)
    return _coarse_points(x0, x1, y0, y1, limit_x, limit_y, kx, ky, columns)


@jit
def _coarse_points(
    x0: int, x1: int, y0: int, y1: int, limit_x: int, limit_y: int, kx: int, ky: int, columns: int
) -> int:
    beyond = 0
    if x1 > columns:
        beyond = _axis_points(0, x1 - columns, limit_x, kx)
        x1 = columns
    return (beyond + _axis_points(x0, x1, limit_x, kx)) * _axis_points(y0, y1, limit_y, ky)


@jit
def _axis_points(start: int, stop: int, limit: int, bits: int) -> int:
    """`sensorgrid.model.resolution.count_points`, compiled."""
    points, rank = 0, 0
    for run in range(bits, -1, -1):
        if limit >> run & 1:
            digits = bits - run
            offset = 0
            for digit in range(digits):
                offset |= (rank >> (run + digit) & 1) << (digits - 1 - digit)
            stride = 1 << digits
            first = start + ((offset - start) & (stride - 1))
            if first < stop:
                points += ((stop - first - 1) >> digits) + 1
            rank += 1 << run
    return points
