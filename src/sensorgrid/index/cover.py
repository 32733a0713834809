"""A few cells per box, for storing many queries: the covers of an index.

`decompose` cuts a query finely, for streams. To *find* queries again, few and somewhat larger cells are
better: each stored cell costs memory and time, and an exact test of the clipped box sorts out the rest. A
box is covered at the greatest depth whose cells are still `SLACK` times as wide and as high as the box, so
that it meets at most two of them along each axis: about 1.3 cells on average where boxes lie anywhere.

An index sorts its entries by a *key*: (start of the cell's leaf interval, its length, corner). The first two
walk the tree of cells depth first, so that a subtree is one run of entries. The corner says in which
sixteenth of the cell's columns and rows the clipped box begins, in Z-order: entries of one cell that lie
close together are stored close together.

Here are the compiled form, for a million boxes at once, and the plain one.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import Fragments, decompose_box, restrict
from sensorgrid.index.jit import jit
from sensorgrid.index.layout import X, Y, layout_of
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid

SLACK = 4

LENGTH_BITS = 6
CORNER_BITS = 8
KEY_BITS = LENGTH_BITS + CORNER_BITS

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]
Boxes = npt.NDArray[np.int32]


class CoverTables(NamedTuple):
    """What the compiled code must know of a grid."""

    spread_x: Ints
    """[block]: see Layout"""
    spread_y: Ints
    """[block]: see Layout"""
    shifts: Ints
    """[length, axis]: binary logarithm of a cell's columns and rows"""
    depth_x: npt.NDArray[np.int8]
    """[columns of a box]: greatest depth with cells wide enough"""
    depth_y: npt.NDArray[np.int8]
    """[rows of a box]: greatest depth with cells high enough"""
    bits: Ints
    """resolution bits along x, y, t"""
    columns: int
    """of the grid"""


@lru_cache(maxsize=64)
def cover_tables(grid: Grid) -> CoverTables:
    """The tables of a grid, made once."""
    layout = layout_of(grid)
    sides = [layout.widths[:, axis] << grid.resolution_bits[axis] for axis in (X, Y)]
    depths = []
    for side, points in zip(sides, grid.shape, strict=True):
        needed = np.minimum(SLACK * np.arange(points + 1), points)
        # `side` falls with the length: count the lengths of purely spatial cells that are wide enough.
        spatial = side[: layout.spatial_digits + 1]
        depths.append((np.searchsorted(-spatial, -needed, side="right") - 1).astype(np.int8))
    shifts = np.stack([np.log2(side).astype(np.int64) for side in sides], axis=1)
    bits = np.array(grid.resolution_bits, dtype=np.int64)
    return CoverTables(layout.spread_x, layout.spread_y, shifts, depths[0], depths[1], bits, grid.shape[0])


def cover(box: Box, limits: tuple[int, int, int], grid: Grid) -> Fragments:
    """The cover of one box: the cells of its cover depth that hold a point of it."""
    tables = cover_tables(grid)
    depth = int(min(tables.depth_x[box.x1 - box.x0], tables.depth_y[box.y1 - box.y0]))
    cells = [Cell(1)]
    for _ in range(depth):
        cells = [half for cell in cells for half in cell.children if _meets(half.box(grid), box, grid)]
    return restrict(decompose_box(box, limits, grid, depth=0), cells)


def _meets(cell: Box, box: Box, grid: Grid) -> bool:
    return any(
        part.x0 < cell.x1 and cell.x0 < part.x1 and part.y0 < cell.y1 and cell.y0 < part.y1
        for part in grid.plain_boxes(box)
    )


@jit
def key_of(start: int, length: int, x0: int, y0: int, shift_x: int, shift_y: int) -> int:
    """The preorder key of an entry: where its cell starts, how long it is, where in it the box begins."""
    x, y = x0 & (1 << shift_x) - 1, y0 & (1 << shift_y) - 1
    x = x >> (shift_x - 4) if shift_x >= 4 else x << (4 - shift_x)
    y = y >> (shift_y - 4) if shift_y >= 4 else y << (4 - shift_y)
    x, y = (x | x << 2) & 0x33, (y | y << 2) & 0x33
    x, y = (x | x << 1) & 0x55, (y | y << 1) & 0x55
    return start << KEY_BITS | length << CORNER_BITS | x << 1 | y


@jit
def cover_keys(boxes: Boxes, limits: Ints, tables: CoverTables) -> tuple[Ints, Places]:
    """The keys of the cells of all covers, and where each comes from.

    A cell comes from 4 × box + 2 × right + upper: at most two columns and two rows of cells. `limits` has a
    row per box, or one for all. A cell in which the query has no point at its resolution is left out.
    """
    # Locals, here and below: compiled code counts references each time it takes an array out of a tuple.
    spread_x, spread_y, shifts = tables.spread_x, tables.spread_y, tables.shifts
    depth_x, depth_y, columns = tables.depth_x, tables.depth_y, tables.columns
    kx, ky = tables.bits[0], tables.bits[1]
    size = len(boxes)
    keys, sources = np.empty(4 * size + 4, np.int64), np.empty(4 * size + 4, np.int32)
    count = 0
    for i in range(size):
        x0, x1, y0, y1 = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        depth = min(depth_x[x1 - x0], depth_y[y1 - y0])
        shift_x, shift_y = shifts[depth, 0], shifts[depth, 1]
        cells = columns >> shift_x
        left, right, lower, upper = x0 >> shift_x, (x1 - 1) >> shift_x, y0 >> shift_y, (y1 - 1) >> shift_y
        two_wide, two_high = right != left and cells > 1, upper != lower
        left_digits = spread_x[left << (shift_x - kx)]
        right_digits = spread_x[(right & (cells - 1)) << (shift_x - kx)]
        lower_digits, upper_digits = spread_y[lower << (shift_y - ky)], spread_y[upper << (shift_y - ky)]
        before = count
        # Without branches, as chance decides them: write all four, keep those that the box meets. In the
        # right and upper cells the box begins at their edge.
        keys[count] = key_of(left_digits | lower_digits, depth, x0, y0, shift_x, shift_y)
        sources[count] = i << 2
        count += 1
        keys[count] = key_of(left_digits | upper_digits, depth, x0, 0, shift_x, shift_y)
        sources[count] = i << 2 | 1
        count += two_high
        keys[count] = key_of(right_digits | lower_digits, depth, 0, y0, shift_x, shift_y)
        sources[count] = i << 2 | 2
        count += two_wide
        keys[count] = key_of(right_digits | upper_digits, depth, 0, 0, shift_x, shift_y)
        sources[count] = i << 2 | 3
        count += two_wide & two_high
        row = i if len(limits) > 1 else 0
        limit_x, limit_y = limits[row, 0], limits[row, 1]
        if limit_x >> kx == 0 or limit_y >> ky == 0:
            kept = before
            for entry in range(before, count):
                a, b, c, d = clip(x0, x1, y0, y1, sources[entry], shift_x, shift_y, columns)
                if points_in(a, b, c, d, limit_x, limit_y, kx, ky, columns):
                    keys[kept], sources[kept] = keys[entry], sources[entry]
                    kept += 1
            count = kept
    return keys[:count], sources[:count]


@jit
def clip(
    x0: int, x1: int, y0: int, y1: int, source: int, shift_x: int, shift_y: int, columns: int
) -> tuple[int, int, int, int]:
    """The part of a box in the cell that `source` names."""
    cell_y = (y0 >> shift_y) + (source & 1)
    y0, y1 = max(y0, cell_y << shift_y), min(y1, (cell_y + 1) << shift_y)
    cells = columns >> shift_x
    if cells > 1:
        cell_x = (x0 >> shift_x) + (source >> 1 & 1)
        x0, x1 = max(x0, cell_x << shift_x), min(x1, (cell_x + 1) << shift_x)
        if cell_x == cells:  # past the date line
            x0, x1 = x0 - columns, x1 - columns
    return x0, x1, y0, y1


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
    if limit >> bits:
        return stop - start
    points, rank = 0, 0
    for run in range(bits - 1, -1, -1):
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
