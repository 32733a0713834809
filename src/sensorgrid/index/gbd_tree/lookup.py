"""Finding what overlaps a box.

The directory knows the bounds of every page. A page out of reach is skipped, all entries of a page inside the
box are taken, and only the pages on the border are read entry by entry.

An entry overlaps a box (and ranks below some limits) if the part of its cell inside its own clipped box meets
the box, and its cell has such ranks. Strides are left aside: two boxes that meet only between the points of a
coarse stride count as overlapping.
"""

import numpy as np
import numpy.typing as npt

from sensorgrid.index.cover import CORNER_BITS, KEY_BITS, LENGTH_BITS, Boxes
from sensorgrid.index.gbd_tree.pages import LISTED, PAGE, Pages
from sensorgrid.index.jit import jit
from sensorgrid.index.layout import RT, RX, X

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

# A de Bruijn sequence: the top six bits of (sequence << n) differ for every n, and so tell n.
_SEQUENCE = 0x03F79D71B4CB0A89
_BIT_NUMBERS = np.zeros(64, np.int64)
_BIT_NUMBERS[[(_SEQUENCE << n & 2**64 - 1) >> 58 for n in range(64)]] = np.arange(64)


@jit
def _place(key: int, axis: int, axes: Ints, widths: Ints) -> tuple[int, int]:
    """First block or rank of a cell on an axis, and how many."""
    start, length = key >> KEY_BITS, key >> CORNER_BITS & (1 << LENGTH_BITS) - 1
    place = 0
    for i in range(length):
        if axes[i] == axis and start >> (len(axes) - 1 - i) & 1:
            place += widths[i + 1, axis]
    return place, widths[length, axis]


@jit
def _really(
    pages: Pages, page: int, i: int, box: Boxes, limits: Ints, bits: Ints, axes: Ints, widths: Ints
) -> bool:
    """The rare second test: a clipped box across the date line, or a coarser lookup in an index of ranks."""
    key = pages.keys[page, i]
    for axis in range(RX, RT + 1):
        if _place(key, axis, axes, widths)[0] >= limits[axis - RX]:
            return False
    columns = widths[0, X] << bits[0]
    if pages.boxes[page, 1, i] <= columns:
        return True
    block, blocks = _place(key, X, axes, widths)
    low, high = max(block << bits[0], box[0]), min((block + blocks) << bits[0], box[1])
    return bool(
        max(low, pages.boxes[page, 0, i]) < high or low < min(high, pages.boxes[page, 1, i] - columns)
    )


@jit
def _room(values: Ints, count: int, needed: int, expected: int) -> Ints:
    """The array itself if it has room for `needed` values, or a copy with room for what is expected."""
    if needed <= len(values):
        return values
    larger = np.empty(max(2 * len(values), needed, expected), np.int64)
    larger[:count] = values[:count]
    return larger


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
def _collect(
    pages: Pages, box: Boxes, limits: Ints, bits: Ints, axes: Ints, widths: Ints, hits: Ints, count: int
) -> tuple[Ints, int]:
    """Append the owners of all entries that overlap a box on one side of the date line; some repeat."""
    # Locals: compiled code counts references each time it takes an array out of a tuple.
    listed, bounds, fills, boxes, owners = pages.listed, pages.bounds, pages.fill, pages.boxes, pages.owners
    columns = widths[0, X] << bits[0]
    coarse = False
    for axis in range(RX, RT + 1):
        # An order without that axis has no cell that the limit could exclude.
        coarse |= limits[axis - RX] < widths[0, axis] and widths[len(axes), axis] < widths[0, axis]
    x0, x1, y0, y1 = box[0], box[1], box[2], box[3]
    for position in range(pages.state[LISTED]):
        left, right, lower, upper = (
            bounds[position, 0], bounds[position, 1], bounds[position, 2], bounds[position, 3],
        )  # fmt: skip
        if left >= x1 or right <= x0 or lower >= y1 or upper <= y0:
            continue
        page = listed[position]
        fill = fills[page]
        hits = _room(hits, count, count + PAGE, 0)
        if not coarse and x0 <= left and right <= x1 and y0 <= lower and upper <= y1:
            for i in range(fill):
                hits[count + i] = owners[page, i]
            count += fill
            continue
        start = count
        count = _scan(boxes[page], fill, box, columns, hits, count)
        if coarse or right > columns:
            kept = start
            for place in range(start, count):
                if _really(pages, page, hits[place], box, limits, bits, axes, widths):
                    hits[kept] = hits[place]
                    kept += 1
            count = kept
        for place in range(start, count):
            hits[place] = owners[page, hits[place]]
    return hits, count


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
        hits[:count].sort()
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
def overlaps(
    pages: Pages, boxes: Boxes, limits: Ints, bits: Ints, axes: Ints, widths: Ints
) -> tuple[Ints, Ints]:
    """For each box the owners of all entries that overlap it, sorted, end to end; and how many for each."""
    size = len(boxes)
    counts = np.empty(size, np.int64)
    hits, marks = np.empty(4 * PAGE, np.int64), np.zeros(64, np.uint64)
    found = np.empty(4 * PAGE, np.int64)
    total = 0
    columns = widths[0, X] << bits[0]
    box = np.empty(4, np.int32)
    for i in range(size):
        box[:] = boxes[i]
        box[1] = min(box[1], columns)
        row = limits[i if len(limits) > 1 else 0]
        hits, count = _collect(pages, box, row, bits, axes, widths, hits, 0)
        if boxes[i, 1] > columns:
            box[0], box[1] = 0, boxes[i, 1] - columns
            hits, count = _collect(pages, box, row, bits, axes, widths, hits, count)
        count, marks = _sort_unique(hits, count, marks)
        # Lookups to come will find about as much as those so far: a page of memory touched is dear.
        found = _room(found, total, total + count, (total + count) // (i + 1) * size * 9 // 8)
        found[total : total + count] = hits[:count]
        counts[i] = count
        total += count
    return found[:total], counts
