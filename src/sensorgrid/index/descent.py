"""The compiled walk that turns a box and its ranks into cells.

The walk goes down from ε, drops halves that hold no point of the query, and keeps the largest cells that
splitting would not improve. All quantities are integers; a cell is (start of its leaf interval, length), its
place the first block along x and y and the first rank along x, y and t.

Points are counted exactly and in constant time: only the first and last block of a range can be cut, so one
table each, "how many offsets of the cut block have a rank below r", answers every count. And as a query is a
product of one set per axis, a half is empty exactly if the axis that was halved has no point left in it.
"""

import numpy as np
import numpy.typing as npt

from sensorgrid.index.jit import jit
from sensorgrid.index.layout import RT, RX, RY, X, Y

Ints = npt.NDArray[np.int64]

# A profile's columns: first and last block, then the two tables of counts by rank.
_FIRST, _LAST, _TABLES = 0, 1, 2
# A place on the stack: what to do, the cell, its place on the five axes, and the state before it was split.
_KIND, _START, _LENGTH, _PLACE, _FOUND, _LEAVES = 0, 1, 2, 3, 8, 9
_ENTER, _LEAVE = 0, 1


@jit
def _profiles(ranges: Ints, bits: int) -> Ints:
    """For each range of indices a row: first block, last block, counts in the first, counts in the last."""
    block = 1 << bits
    profiles = np.zeros((len(ranges), _TABLES + 2 * (block + 1)), dtype=np.int64)
    for row in range(len(ranges)):
        start, stop = ranges[row, 0], ranges[row, 1]
        first, last = start >> bits, (stop - 1) >> bits
        profiles[row, _FIRST], profiles[row, _LAST] = first, last
        in_first, in_last = _TABLES + 1, _TABLES + 1 + block + 1
        for offset in range(block):
            rank = 0
            for digit in range(bits):
                rank |= (offset >> digit & 1) << (bits - 1 - digit)
            if start <= (first << bits) + offset < stop:
                profiles[row, in_first + rank] += 1
            if (last << bits) + offset < stop:
                profiles[row, in_last + rank] += 1
        for rank in range(block):
            profiles[row, in_first + rank] += profiles[row, in_first + rank - 1]
            profiles[row, in_last + rank] += profiles[row, in_last + rank - 1]
    return profiles


@jit
def _count(profiles: Ints, row: int, bits: int, block: int, blocks: int, rank: int, high: int) -> int:
    """Indices of a range that lie in `blocks` blocks from `block` on and have a rank in [rank, high)."""
    first, last = profiles[row, _FIRST], profiles[row, _LAST]
    low_block, high_block = max(block, first), min(block + blocks - 1, last)
    if high <= rank or low_block > high_block:
        return 0
    whole = high_block - low_block + 1
    points = 0
    if low_block == first:
        whole -= 1
        points += profiles[row, _TABLES + high] - profiles[row, _TABLES + rank]
    if high_block == last and last != first:
        whole -= 1
        table = _TABLES + 1 + (1 << bits)
        points += profiles[row, table + high] - profiles[row, table + rank]
    return int(points + whole * (high - rank))


@jit
def _is_cut(profiles: Ints, block: int, blocks: int) -> bool:
    """Whether some of the blocks are not touched by the ranges at all."""
    if len(profiles) == 2 and profiles[0, _FIRST] <= profiles[1, _LAST] + 1:
        return False  # the two sides of the date line meet: every block is touched
    for row in range(len(profiles)):
        if profiles[row, _FIRST] <= block and block + blocks - 1 <= profiles[row, _LAST]:
            return False
    return True


@jit
def descend(
    x_ranges: Ints,
    y_range: Ints,
    limits: Ints,
    bits: Ints,
    axes: Ints,
    counts: Ints,
    widths: Ints,
    depth: int,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Starts, lengths, boxes [x0, x1, y0, y1] and points of the fragments of a query, in preorder.

    `x_ranges` has one row, or two for a box across the date line: the eastern end of the grid, then the
    western one. A fragment that holds a part of both keeps the box uncut, counted on past the last column.
    `widths` is [length, axis]: how many blocks or ranks a cell of that length has.
    """
    digits = len(axes)
    depth = min(depth, digits)
    columns, rows = _profiles(x_ranges, bits[0]), _profiles(y_range, bits[1])
    stack = np.zeros((2 * digits + 4, 10), dtype=np.int64)
    across = 0
    for row in range(len(columns)):
        across += _count(columns, row, bits[0], 0, widths[0, X], 0, limits[0])
    # A box between the points of a coarse resolution holds nothing at all.
    top = 1 if across and _count(rows, 0, bits[1], 0, widths[0, Y], 0, limits[1]) else 0
    found = np.empty((64, 7), dtype=np.int64)  # start, length, place
    size, leaves = 0, 0
    while top:
        top -= 1
        start, length = stack[top, _START], stack[top, _LENGTH]
        x, y = stack[top, _PLACE + X], stack[top, _PLACE + Y]
        rx, ry, rt = stack[top, _PLACE + RX], stack[top, _PLACE + RY], stack[top, _PLACE + RT]
        emit = False
        if stack[top, _KIND] == _LEAVE:
            # Splitting that dropped nothing is undone: fewer cells, the same points.
            if leaves - stack[top, _LEAVES] < 1 << (digits - length):
                continue
            size, leaves = stack[top, _FOUND], stack[top, _LEAVES]
            emit = True
        keep = 0
        if not emit and length < depth:
            # Which halves hold points of the query?
            axis = axes[length]
            for half in range(2):
                step = half * widths[length + 1, axis]
                if axis in (X, RX):
                    block, rank = (x + step, rx) if axis == X else (x, rx + step)
                    high = min(rank + widths[length + 1, RX], limits[0])
                    for row in range(len(columns)):
                        if _count(columns, row, bits[0], block, widths[length + 1, X], rank, high):
                            keep |= 1 << half
                elif axis in (Y, RY):
                    block, rank = (y + step, ry) if axis == Y else (y, ry + step)
                    high = min(rank + widths[length + 1, RY], limits[1])
                    if _count(rows, 0, bits[1], block, widths[length + 1, Y], rank, high):
                        keep |= 1 << half
                elif rt + step < limits[2]:
                    keep |= 1 << half
        if keep == 3:
            # Both do: split only where that can shed a block or a rank further down.
            emit = not (
                (rx + widths[length, RX] > limits[0] and counts[depth, RX] > counts[length, RX])
                or (ry + widths[length, RY] > limits[1] and counts[depth, RY] > counts[length, RY])
                or (rt + widths[length, RT] > limits[2] and counts[depth, RT] > counts[length, RT])
                or (counts[depth, X] > counts[length, X] and _is_cut(columns, x, widths[length, X]))
                or (counts[depth, Y] > counts[length, Y] and _is_cut(rows, y, widths[length, Y]))
            )
        if emit or length == depth:
            if size == len(found):
                grown = np.empty((2 * size, 7), dtype=np.int64)
                grown[:size] = found
                found = grown
            found[size, 0], found[size, 1] = start, length
            found[size, 2], found[size, 3] = x, y
            found[size, 4], found[size, 5], found[size, 6] = rx, ry, rt
            size += 1
            leaves += 1 << (digits - length)
            continue
        if keep == 3:
            stack[top, _KIND], stack[top, _FOUND], stack[top, _LEAVES] = _LEAVE, size, leaves
            top += 1
        for half in (1, 0):
            if keep >> half & 1:
                stack[top, _KIND] = _ENTER
                stack[top, _START] = start + (half << (digits - length - 1))
                stack[top, _LENGTH] = length + 1
                stack[top, _PLACE + X], stack[top, _PLACE + Y] = x, y
                stack[top, _PLACE + RX], stack[top, _PLACE + RY], stack[top, _PLACE + RT] = rx, ry, rt
                stack[top, _PLACE + axes[length]] += half * widths[length + 1, axes[length]]
                top += 1
    return _measure(found[:size], x_ranges, y_range, limits, bits, widths, columns, rows)


@jit
def restrict(
    starts: Ints,
    lengths: Ints,
    x_ranges: Ints,
    y_range: Ints,
    limits: Ints,
    bits: Ints,
    axes: Ints,
    widths: Ints,
) -> tuple[Ints, Ints, Ints, Ints]:
    """The same columns for the parts of a query in given cells; cells without a point of it are left out."""
    columns, rows = _profiles(x_ranges, bits[0]), _profiles(y_range, bits[1])
    cells = np.zeros((len(starts), 7), dtype=np.int64)
    for i in range(len(starts)):
        cells[i, 0], cells[i, 1] = starts[i], lengths[i]
        for digit in range(lengths[i]):
            if starts[i] >> (len(axes) - 1 - digit) & 1:
                cells[i, 2 + axes[digit]] += widths[digit + 1, axes[digit]]
    starts, lengths, boxes, points = _measure(cells, x_ranges, y_range, limits, bits, widths, columns, rows)
    kept = 0
    for i in range(len(starts)):
        if points[i] > 0:
            starts[kept], lengths[kept], points[kept] = starts[i], lengths[i], points[i]
            boxes[kept] = boxes[i]
            kept += 1
    return starts[:kept], lengths[:kept], boxes[:kept], points[:kept]


@jit
def _measure(
    found: Ints,
    x_ranges: Ints,
    y_range: Ints,
    limits: Ints,
    bits: Ints,
    widths: Ints,
    columns: Ints,
    rows: Ints,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Clipped boxes and exact points of the cells found."""
    size = len(found)
    starts, lengths = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    boxes, points = np.empty((size, 4), dtype=np.int64), np.empty(size, dtype=np.int64)
    for i in range(size):
        starts[i], lengths[i] = found[i, 0], found[i, 1]
        length, x, y, rx, ry, rt = lengths[i], found[i, 2], found[i, 3], found[i, 4], found[i, 5], found[i, 6]
        high = min(rx + widths[length, RX], limits[0])
        across, parts = 0, 0
        for row in range(len(columns)):
            part = _count(columns, row, bits[0], x, widths[length, X], rx, high)
            across += part
            # By place, not by points: the clipped box must not depend on the resolution.
            if x_ranges[row, 0] < (x + widths[length, X]) << bits[0] and x_ranges[row, 1] > x << bits[0]:
                parts |= 1 << row
        high = min(ry + widths[length, RY], limits[1])
        down = _count(rows, 0, bits[1], y, widths[length, Y], ry, high)
        points[i] = across * down * max(min(rt + widths[length, RT], limits[2]) - rt, 0)
        if parts == 3:
            boxes[i, 0], boxes[i, 1] = x_ranges[0, 0], x_ranges[1, 1] + (widths[0, X] << bits[0])
        else:
            row = parts >> 1
            boxes[i, 0] = max(x_ranges[row, 0], x << bits[0])
            boxes[i, 1] = min(x_ranges[row, 1], (x + widths[length, X]) << bits[0])
        boxes[i, 2] = max(y_range[0, 0], y << bits[1])
        boxes[i, 3] = min(y_range[0, 1], (y + widths[length, Y]) << bits[1])
    return starts, lengths, boxes, points
