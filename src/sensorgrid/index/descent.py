"""The compiled walk that turns a box and its ranks into cells.

The walk goes down from ε, drops halves that hold no point of the query, and stops where no split within the
depth would shed anything. A query is a product of three sets, along x, y and t, and so is a cell. So the walk
looks up everything it must know of a cell in three small tries, one per axis, each over the digits of that
axis alone. Their nodes are made when the walk first comes by: a few hundred for thousands of cells.

Points are counted exactly and in constant time: only the first and last block of a range can be cut, so one
table each, "how many offsets of the cut block have a rank below r", answers every count.
"""

import numpy as np
import numpy.typing as npt

from sensorgrid.index.jit import jit
from sensorgrid.index.layout import RX

Ints = npt.NDArray[np.int64]

# A profile's columns: first and last block, then the two tables of counts by rank.
_FIRST, _LAST, _TABLES = 0, 1, 2
# A trie node: the axis (0 x, 1 y, 2 t); its first block and rank, and the digits spent on each; its halves;
# whether a further split can shed something; the points of the query in it, and the range in which they lie.
_AXIS, _BLOCK, _RANK, _BLOCK_DIGITS, _RANK_DIGITS = 0, 1, 2, 3, 4
_HALVES, _USEFUL, _POINTS, _LOW, _HIGH = 5, 7, 8, 9, 10
_UNKNOWN, _EMPTY = -1, -2
# A cell, on the stack and among those found: its start and length, its nodes in the three tries.
_START, _LENGTH, _NODES = 0, 1, 2


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
def _is_cut(profiles: Ints, block: int, blocks: int, finest: int) -> bool:
    """Whether, of the cells of `finest` blocks that lie in these blocks, one is not touched by the ranges."""
    if len(profiles) == 2 and profiles[0, _FIRST] // finest <= profiles[1, _LAST] // finest + 1:
        return False  # the two sides of the date line meet: everything is touched
    for row in range(len(profiles)):
        first, last = (
            profiles[row, _FIRST] // finest * finest,
            profiles[row, _LAST] // finest * finest + finest,
        )
        if first <= block and block + blocks <= last:
            return False
    return True


@jit
def _measure(
    trie: Ints, node: int, ranges: Ints, profiles: Ints, limit: int, bits: int, digits: Ints, last: Ints
) -> None:
    """Fill in what a node holds of the query; `last` is what the depth leaves of `digits`."""
    axis = trie[node, _AXIS]
    block, rank = trie[node, _BLOCK], trie[node, _RANK]
    ranks = 1 << (bits - trie[node, _RANK_DIGITS])
    high = min(rank + ranks, limit)
    trie[node, _HALVES], trie[node, _HALVES + 1] = _UNKNOWN, _UNKNOWN
    # A split can shed ranks if, in steps that the depth allows, some lie wholly above the limit.
    finest = 1 << (bits - last[RX + axis])
    useful = rank + ranks > (limit + finest - 1) & -finest
    if axis == 2:  # time has ranks only
        trie[node, _POINTS], trie[node, _USEFUL] = max(high - rank, 0), useful
        return
    blocks = 1 << (digits[axis] - trie[node, _BLOCK_DIGITS])
    start, stop = block << bits, (block + blocks) << bits
    points, met = 0, 0
    for row in range(len(ranges)):
        points += _count(profiles, row, bits, block, blocks, rank, high)
        # By place, not by points: the clipped box must not depend on the resolution.
        if ranges[row, 0] < stop and ranges[row, 1] > start:
            trie[node, _LOW], trie[node, _HIGH] = max(ranges[row, 0], start), min(ranges[row, 1], stop)
            met += 1
    if met == 2:  # both sides of the date line: the box stays whole, counted on past the last column
        trie[node, _LOW], trie[node, _HIGH] = ranges[0, 0], ranges[1, 1] + (1 << (digits[axis] + bits))
    useful |= _is_cut(profiles, block, blocks, 1 << (digits[axis] - last[axis]))
    trie[node, _POINTS], trie[node, _USEFUL] = points, useful


@jit
def _roots(
    x_ranges: Ints,
    y_range: Ints,
    columns: Ints,
    rows: Ints,
    limits: Ints,
    bits: Ints,
    digits: Ints,
    last: Ints,
) -> Ints:
    """Tries of one node each, along x, y and t, in one table."""
    trie = np.zeros((64, 11), dtype=np.int64)
    for axis in range(3):
        trie[axis, _AXIS] = axis
        if axis == 0:
            _measure(trie, axis, x_ranges, columns, limits[axis], bits[axis], digits, last)
        else:
            _measure(trie, axis, y_range, rows, limits[axis], bits[axis], digits, last)
    return trie


@jit
def _half(
    trie: Ints, size: int, node: int, half: int, is_rank: bool, x_ranges: Ints, y_range: Ints, columns: Ints,
    rows: Ints, limits: Ints, bits: Ints, digits: Ints, last: Ints,
) -> tuple[Ints, int]:  # fmt: skip
    """Make a half of a node, if it holds a point of the query; gives back the table and its size."""
    if size == len(trie):
        grown = np.empty((2 * size, trie.shape[1]), np.int64)
        grown[:size] = trie
        trie = grown
    axis = trie[node, _AXIS]
    for column in range(_HALVES):
        trie[size, column] = trie[node, column]
    if is_rank:
        trie[size, _RANK_DIGITS] += 1
        trie[size, _RANK] += half << (bits[axis] - trie[size, _RANK_DIGITS])
    else:
        trie[size, _BLOCK_DIGITS] += 1
        trie[size, _BLOCK] += half << (digits[axis] - trie[size, _BLOCK_DIGITS])
    if axis == 0:
        _measure(trie, size, x_ranges, columns, limits[axis], bits[axis], digits, last)
    else:
        _measure(trie, size, y_range, rows, limits[axis], bits[axis], digits, last)
    if trie[size, _POINTS] == 0:
        trie[node, _HALVES + half] = _EMPTY
        return trie, size
    trie[node, _HALVES + half] = size
    return trie, size + 1


@jit
def descend(
    x_ranges: Ints, y_range: Ints, limits: Ints, bits: Ints, axes: Ints, counts: Ints, depth: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """Starts, lengths, boxes [x0, x1, y0, y1] and points of the fragments of a query, in preorder.

    `x_ranges` has one row, or two for a box across the date line: the eastern end of the grid, then the
    western one. A fragment that holds a part of both keeps the box uncut, counted on past the last column.
    """
    leaf = len(axes)
    depth = min(depth, leaf)
    columns, rows = _profiles(x_ranges, bits[0]), _profiles(y_range, bits[1])
    digits, last = counts[leaf], counts[depth]
    trie, nodes = _roots(x_ranges, y_range, columns, rows, limits, bits, digits, last), 3
    stack = np.zeros((leaf + 2, 5), dtype=np.int64)
    stack[0, _NODES + 1], stack[0, _NODES + 2] = 1, 2
    # A box between the points of a coarse resolution holds nothing at all.
    top = 1 if trie[0, _POINTS] and trie[1, _POINTS] else 0
    found, size = np.empty((256, 5), dtype=np.int64), 0
    while top:
        top -= 1
        start, length = stack[top, _START], stack[top, _LENGTH]
        x, y, t = stack[top, _NODES], stack[top, _NODES + 1], stack[top, _NODES + 2]
        axis, low, high = 0, _UNKNOWN, _UNKNOWN
        emit = length == depth
        if not emit:
            axis = axes[length] if axes[length] < RX else axes[length] - RX
            node = stack[top, _NODES + axis]
            for half in range(2):
                if trie[node, _HALVES + half] == _UNKNOWN:
                    trie, nodes = _half(
                        trie, nodes, node, half, axes[length] >= RX, x_ranges, y_range, columns, rows, limits,
                        bits, digits, last,
                    )  # fmt: skip
            low, high = trie[node, _HALVES], trie[node, _HALVES + 1]
            # Split where that sheds something further down, or where one half is empty, which is free.
            useful = trie[x, _USEFUL] | trie[y, _USEFUL] | trie[t, _USEFUL]
            emit = low >= 0 and high >= 0 and not useful
        if emit:
            if size == len(found):
                grown = np.empty((4 * size, 5), dtype=np.int64)
                grown[:size] = found
                found = grown
            found[size, _START], found[size, _LENGTH] = start, length
            found[size, _NODES], found[size, _NODES + 1], found[size, _NODES + 2] = x, y, t
            size += 1
            continue
        for half in range(1, -1, -1):
            child = high if half else low
            if child >= 0:
                stack[top, _START], stack[top, _LENGTH] = start + (half << (leaf - length - 1)), length + 1
                stack[top, _NODES], stack[top, _NODES + 1], stack[top, _NODES + 2] = x, y, t
                stack[top, _NODES + axis] = child
                top += 1
    return _columns(found[:size], trie)


@jit
def restrict(
    starts: Ints,
    lengths: Ints,
    x_ranges: Ints,
    y_range: Ints,
    limits: Ints,
    bits: Ints,
    axes: Ints,
    counts: Ints,
) -> tuple[Ints, Ints, Ints, Ints]:
    """The same columns for the parts of a query in given cells; cells without a point of it are left out."""
    columns, rows = _profiles(x_ranges, bits[0]), _profiles(y_range, bits[1])
    digits = counts[len(axes)]
    trie = _roots(x_ranges, y_range, columns, rows, limits, bits, digits, digits)
    nodes = 3
    found = np.empty((len(starts), 5), dtype=np.int64)
    size = 0
    for i in range(len(starts)):
        found[size, _START], found[size, _LENGTH] = starts[i], lengths[i]
        found[size, _NODES], found[size, _NODES + 1], found[size, _NODES + 2] = 0, 1, 2
        holds = trie[0, _POINTS] > 0 and trie[1, _POINTS] > 0
        for digit in range(lengths[i]):
            if not holds:
                break
            half = starts[i] >> (len(axes) - 1 - digit) & 1
            is_rank = axes[digit] >= RX
            axis = axes[digit] - RX if is_rank else axes[digit]
            node = found[size, _NODES + axis]
            if trie[node, _HALVES + half] == _UNKNOWN:
                trie, nodes = _half(
                    trie, nodes, node, half, is_rank, x_ranges, y_range, columns, rows, limits, bits, digits,
                    digits,
                )  # fmt: skip
            found[size, _NODES + axis] = trie[node, _HALVES + half]
            holds = found[size, _NODES + axis] >= 0
        size += holds
    return _columns(found[:size], trie)


@jit
def count_in(
    codes: Ints, x0: int, x1: int, x_over: int, y0: int, y1: int, limit_x: int, limit_y: int, limit_t: int,
    bits_x: int, bits_y: int, bits_t: int, axes: Ints, counts: Ints,
) -> Ints:  # fmt: skip
    """Points of a query in each of the given cells (codes), without a trie: for a few cells that is faster.

    Columns are [x0, x1) and, beyond the date line, [0, x_over).
    """
    found = np.zeros(len(codes), dtype=np.int64)
    start = np.zeros(RX + 3, dtype=np.int64)
    for i in range(len(codes)):
        code, length = codes[i], 0
        while code >> (length + 1):
            length += 1
        if length > len(axes):
            continue
        start[:] = 0
        for digit in range(length):
            start[axes[digit]] = start[axes[digit]] << 1 | (code >> (length - 1 - digit) & 1)
        points = _on_axis(
            x0, x1, start[0], counts[len(axes), 0] - counts[length, 0], start[RX], bits_x - counts[length, RX],
            limit_x, bits_x,
        ) + _on_axis(
            0, x_over, start[0], counts[len(axes), 0] - counts[length, 0], start[RX], bits_x - counts[length, RX],
            limit_x, bits_x,
        )  # fmt: skip
        if points:
            points *= _on_axis(
                y0, y1, start[1], counts[len(axes), 1] - counts[length, 1], start[RX + 1],
                bits_y - counts[length, RX + 1], limit_y, bits_y,
            )  # fmt: skip
        if points:
            left = bits_t - counts[length, RX + 2]
            low = start[RX + 2] << left
            points *= max(min(low + (1 << left), limit_t) - low, 0)
        found[i] = points
    return found


@jit
def _on_axis(
    low: int, high: int, block: int, block_digits: int, rank: int, rank_digits: int, limit: int, bits: int
) -> int:
    """Indices in [low, high) that lie in a cell's blocks and have one of its ranks below the limit."""
    shift = block_digits + bits
    low, high = max(low, block << shift), min(high, block + 1 << shift)
    first = rank << rank_digits
    last = min(rank + 1 << rank_digits, limit)
    if low >= high or first >= last:
        return 0
    return int(_below(high, first, last, bits) - _below(low, first, last, bits))


@jit
def _below(index: int, first: int, last: int, bits: int) -> int:
    """Indices below `index` with a rank in [first, last)."""
    points = (index >> bits) * (last - first)
    for offset in range(index & (1 << bits) - 1):
        rank = 0
        for digit in range(bits):
            rank |= (offset >> digit & 1) << (bits - 1 - digit)
        points += first <= rank < last
    return int(points)


@jit
def _columns(found: Ints, trie: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Starts, lengths, clipped boxes and points of the cells found."""
    size = len(found)
    starts, lengths = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    boxes, points = np.empty((size, 4), dtype=np.int64), np.empty(size, dtype=np.int64)
    for i in range(size):
        starts[i], lengths[i] = found[i, _START], found[i, _LENGTH]
        x, y, t = found[i, _NODES], found[i, _NODES + 1], found[i, _NODES + 2]
        boxes[i, 0], boxes[i, 1] = trie[x, _LOW], trie[x, _HIGH]
        boxes[i, 2], boxes[i, 3] = trie[y, _LOW], trie[y, _HIGH]
        points[i] = trie[x, _POINTS] * trie[y, _POINTS] * trie[t, _POINTS]
    return starts, lengths, boxes, points
