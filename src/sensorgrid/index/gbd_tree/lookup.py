"""Finding what overlaps a box.

The directory knows the bounds of every page and of every group of pages. What is out of reach is skipped, all
entries of a page inside the box are taken, and only the pages on the border are read entry by entry.

An entry overlaps a box (and ranks below some limits) if the part of its cell inside its own clipped box meets
the box, and its cell has such ranks. Strides are left aside: two boxes that meet only between the points of a
coarse stride count as overlapping.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sensorgrid.index.enclosing import Boxes
from sensorgrid.index.gbd_tree.pages import GROUP, LISTED, PAGE, cell_of
from sensorgrid.index.jit import jit
from sensorgrid.index.layout import RT, RX, X

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

# A de Bruijn sequence: the top six bits of (sequence << n) differ for every n, and so tell n.
_SEQUENCE = 0x03F79D71B4CB0A89
_BIT_NUMBERS = np.zeros(64, np.int64)
_BIT_NUMBERS[[(_SEQUENCE << n & 2**64 - 1) >> 58 for n in range(64)]] = np.arange(64)


class LookupArrays(NamedTuple):
    """The arrays that a lookup reads, of the pages and of the grid's layout."""

    keys: Ints
    """see Pages, as the next ones"""
    owners: Ints
    boxes: Boxes
    fill: Ints
    listed: Ints
    bounds: Boxes
    group_bounds: Boxes
    state: Ints
    bits: Ints
    """resolution bits of the grid"""
    axes: Ints
    """see Layout, as the next one"""
    widths: Ints


@jit
def _place(key: int, axis: int, axes: Ints, widths: Ints) -> tuple[int, int]:
    """First block or rank of a cell on an axis, and how many."""
    start, length = cell_of(key, len(axes))
    place = 0
    for i in range(length):
        if axes[i] == axis and start >> (len(axes) - 1 - i) & 1:
            place += widths[i + 1, axis]
    return place, widths[length, axis]


@jit
def _really(
    key: int, left: int, right: int, box: Boxes, limits: Ints, bits: Ints, axes: Ints, widths: Ints
) -> bool:
    """The rare second test: a clipped box across the date line, or a coarser lookup in an index of ranks."""
    for axis in range(RX, RT + 1):
        if _place(key, axis, axes, widths)[0] >= limits[axis - RX]:
            return False
    columns = widths[0, X] << bits[0]
    if right <= columns:
        return True
    block, blocks = _place(key, X, axes, widths)
    low, high = max(block << bits[0], box[0]), min((block + blocks) << bits[0], box[1])
    return bool(max(low, left) < high or low < min(high, right - columns))


@jit
def _room(values: Ints, count: int, needed: int, expected: int) -> Ints:
    """The array itself if it has room for `needed` values, or a copy with room for what is expected."""
    if needed <= len(values):
        return values
    larger = np.empty(max(2 * len(values), needed, expected), np.int64)
    larger[:count] = values[:count]
    return larger


@jit
def _meets(bounds: Boxes, i: int, box: Boxes) -> bool:
    return bool(
        bounds[i, 0] < box[1] and bounds[i, 1] > box[0] and bounds[i, 2] < box[3] and bounds[i, 3] > box[2]
    )


@jit
def _inside(bounds: Boxes, i: int, box: Boxes) -> bool:
    return bool(
        bounds[i, 0] >= box[0]
        and bounds[i, 1] <= box[1]
        and bounds[i, 2] >= box[2]
        and bounds[i, 3] <= box[3]
    )


@jit
def _scan(boxes: Boxes, fill: int, box: Boxes, columns: int, hits: Ints, count: int) -> int:
    """Append the places of a page's entries whose boxes meet the box."""
    x0, x1, y0, y1 = box[0], box[1], box[2], box[3]
    for i in range(fill):
        # Without branches: which entries overlap cannot be foreseen.
        meets = (boxes[0, i] < x1) & (boxes[1, i] > x0) | (x0 < boxes[1, i] - columns)
        meets &= (boxes[2, i] < y1) & (boxes[3, i] > y0)
        hits[count] = i
        count += meets
    return count


@jit
def _collect(box: Boxes, limits: Ints, view: LookupArrays, hits: Ints, count: int) -> tuple[Ints, int]:
    """Append the owners of all entries that overlap a box on one side of the date line; some repeat."""
    # Locals: compiled code counts references when it takes an array out of a tuple.
    keys, owners, boxes, fills, listed = view.keys, view.owners, view.boxes, view.fill, view.listed
    bounds, group_bounds, state = view.bounds, view.group_bounds, view.state
    bits, axes, widths = view.bits, view.axes, view.widths
    columns = widths[0, X] << bits[0]
    coarse = False
    for axis in range(RX, RT + 1):
        # An order without that axis has no cell that the limit could exclude.
        coarse |= limits[axis - RX] < widths[0, axis] and widths[len(axes), axis] < widths[0, axis]
    for group in range((state[LISTED] + GROUP - 1) // GROUP):
        if not _meets(group_bounds, group, box):
            continue
        for position in range(group * GROUP, min((group + 1) * GROUP, state[LISTED])):
            if not _meets(bounds, position, box):
                continue
            page = listed[position]
            fill = fills[page]
            hits = _room(hits, count, count + PAGE, 0)
            if not coarse and _inside(bounds, position, box):
                for i in range(fill):
                    hits[count + i] = owners[page, i]
                count += fill
                continue
            start = count
            count = _scan(boxes[page], fill, box, columns, hits, count)
            if coarse or bounds[position, 1] > columns:
                kept = start
                for place in range(start, count):
                    i = hits[place]
                    left, right = boxes[page, 0, i], boxes[page, 1, i]
                    if _really(keys[page, i], left, right, box, limits, bits, axes, widths):
                        hits[kept] = i
                        kept += 1
                count = kept
            for place in range(start, count):
                hits[place] = owners[page, hits[place]]
    return hits, count


@jit
def _radix_sort(values: Ints, count: int, low: int) -> None:
    """Sort the first `count` values in place; `low` is the smallest."""
    if count < 512:
        values[:count].sort()
        return
    differ = np.int64(0)
    for i in range(count):
        differ |= values[i] - low
    source, target = values[:count].copy(), np.empty(count, np.int64)
    starts = np.empty(2048, np.int64)
    shift = 0
    while shift < 63 and differ >> shift:
        starts[:] = 0
        for i in range(count):
            starts[(source[i] - low) >> shift & 2047] += 1
        total = 0
        for digit in range(2048):
            number = starts[digit]
            starts[digit] = total
            total += number
        for i in range(count):
            digit = (source[i] - low) >> shift & 2047
            target[starts[digit]] = source[i]
            starts[digit] += 1
        source, target = target, source
        shift += 11
    values[:count] = source


@jit
def _sort_unique(hits: Ints, count: int, marks: Words) -> tuple[int, Words]:
    """Sort the first `count` owners in place and drop repeats; `marks` is all zero before and after."""
    if count < 2:
        return count, marks
    low, high = hits[0], hits[0]
    for i in range(count):
        low, high = min(low, hits[i]), max(high, hits[i])
    words = ((high - low) >> 6) + 1
    kept = 0
    if count <= 16:
        for i in range(1, count):
            value, j = hits[i], i
            while j and hits[j - 1] > value:
                hits[j] = hits[j - 1]
                j -= 1
            hits[j] = value
    elif words > 64 * count:
        _radix_sort(hits, count, low)
    if count <= 16 or words > 64 * count:
        for i in range(count):
            if i == 0 or hits[i] != hits[i - 1]:
                hits[kept] = hits[i]
                kept += 1
        return kept, marks
    # Many, close together: a bit for each, then the bits in order.
    if words > len(marks):
        marks = np.zeros(2 * words, np.uint64)
    one, sequence, shift = np.uint64(1), np.uint64(_SEQUENCE), np.uint64(58)
    for i in range(count):
        owner = hits[i] - low
        marks[owner >> 6] |= one << np.uint64(owner & 63)
    for word in range(words):
        bits = marks[word]
        marks[word] = 0
        base = low + (word << 6)
        while bits:
            lowest = bits & (~bits + one)
            hits[kept] = base + _BIT_NUMBERS[(lowest * sequence) >> shift]
            kept += 1
            bits ^= lowest
    return kept, marks


@jit
def _lookup(
    box: Boxes, limits: Ints, view: LookupArrays, hits: Ints, marks: Words
) -> tuple[Ints, int, Words]:
    """The owners of all entries that overlap a box, sorted and each once: the first `count` of hits."""
    columns = view.widths[0, X] << view.bits[0]
    end = box[1]
    box[1] = min(end, columns)
    hits, count = _collect(box, limits, view, hits, 0)
    if end > columns:
        box[0], box[1] = 0, end - columns
        hits, count = _collect(box, limits, view, hits, count)
    count, marks = _sort_unique(hits, count, marks)
    return hits, count, marks


# The two entries take the fields of a view one by one: handing over a tuple takes longer than a small lookup.


@jit
def overlaps_one(
    keys: Ints, owners: Ints, boxes: Boxes, fill: Ints, listed: Ints, bounds: Boxes, group_bounds: Boxes,
    state: Ints, bits: Ints, axes: Ints, widths: Ints,
    x0: int, x1: int, y0: int, y1: int, limit_x: int, limit_y: int, limit_t: int,
) -> Ints:  # fmt: skip
    """The owners of all entries that overlap a box, at ranks below the limits."""
    view = LookupArrays(keys, owners, boxes, fill, listed, bounds, group_bounds, state, bits, axes, widths)
    box, limits = np.array([x0, x1, y0, y1], np.int32), np.array([limit_x, limit_y, limit_t], np.int64)
    hits, count, _ = _lookup(box, limits, view, np.empty(2 * PAGE, np.int64), np.zeros(64, np.uint64))
    return hits[:count]


@jit
def overlaps_many(
    keys: Ints, owners: Ints, boxes: Boxes, fill: Ints, listed: Ints, bounds: Boxes, group_bounds: Boxes,
    state: Ints, bits: Ints, axes: Ints, widths: Ints,
    asked: Boxes, limits: Ints,
) -> tuple[Ints, Ints]:  # fmt: skip
    """For each box the owners of all entries that overlap it, end to end; and how many for each."""
    view = LookupArrays(keys, owners, boxes, fill, listed, bounds, group_bounds, state, bits, axes, widths)
    size, total = len(asked), 0
    counts, found = np.empty(size, np.int64), np.empty(4 * PAGE, np.int64)
    hits, marks = np.empty(4 * PAGE, np.int64), np.zeros(64, np.uint64)
    for i in range(size):
        row = limits[i if len(limits) > 1 else 0]
        hits, count, marks = _lookup(asked[i].copy(), row, view, hits, marks)
        # Lookups to come will find about as much as those so far: a page of memory touched is dear.
        found = _room(found, total, total + count, (total + count) // (i + 1) * size * 9 // 8)
        found[total : total + count] = hits[:count]
        counts[i] = count
        total += count
    return found[:total], counts
