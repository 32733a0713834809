"""Batches: checking boxes, sorting entries, and filling pages in one pass."""

import numpy as np
import numpy.typing as npt

from sensorgrid.index.cover import CORNER_BITS, LENGTH_BITS, Boxes, CoverTables, Places, clip, points_in
from sensorgrid.index.gbd_tree.pages import ALLOCATED, ENTRIES, FILL, FREED, LISTED, Pages, describe
from sensorgrid.index.jit import jit

Ints = npt.NDArray[np.int64]


@jit
def first_bad(boxes: Boxes, owners: Ints, limits: Ints, columns: int, rows: int, wraps: bool) -> int:
    """The first box that is not on the grid, or whose owner or limits cannot be right; or -1."""
    for i in range(len(boxes)):
        x0, x1, y0, y1 = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        x_end = x0 + columns if wraps else columns
        row = i if len(limits) > 1 else 0
        if not (0 <= x0 < x1 <= x_end and x0 < columns and 0 <= y0 < y1 <= rows and owners[i] >= 0):
            return i
        if limits[row, 0] < 1 or limits[row, 1] < 1 or limits[row, 2] < 1:
            return i
    return -1


@jit
def rises(values: Ints) -> bool:
    """Whether each value is larger than the one before."""
    for i in range(1, len(values)):
        if values[i] <= values[i - 1]:
            return False
    return True


@jit
def sort_by(keys: Ints, sources: Places) -> tuple[Ints, Places]:
    """Both arrays in the order of the keys; equal keys stay in order of their sources, which must rise."""
    size = len(keys)
    if size < 2:
        return keys, sources
    source_bits = 1
    while sources[size - 1] >> source_bits:
        source_bits += 1
    differ, highest = np.int64(0), np.int64(0)
    for i in range(size):
        differ |= keys[i] ^ keys[0]
        highest |= keys[i]
    if highest >> (63 - source_bits):
        order = np.argsort(keys, kind="mergesort")
        return keys[order], sources[order]
    # Key and source fit one word: radix sort, of only those digits in which keys differ.
    words, others = np.empty(size, np.int64), np.empty(size, np.int64)
    for i in range(size):
        words[i] = keys[i] << source_bits | sources[i]
    differ <<= source_bits
    digit_bits = 11 if size > 4096 else 8
    mask = (1 << digit_bits) - 1
    starts = np.empty(mask + 1, np.int64)
    shift = source_bits
    while shift < 63 and differ >> shift:
        if differ >> shift & 1 == 0:
            shift += 1
            continue
        starts[:] = 0
        for i in range(size):
            starts[words[i] >> shift & mask] += 1
        total = 0
        for digit in range(mask + 1):
            count = starts[digit]
            starts[digit] = total
            total += count
        for i in range(size):
            digit = words[i] >> shift & mask
            place = starts[digit]
            starts[digit] = place + 1
            others[place] = words[i]
        words, others = others, words
        shift += digit_bits
    for i in range(size):
        keys[i], sources[i] = words[i] >> source_bits, words[i] & (1 << source_bits) - 1
    return keys, sources


@jit
def _finish(pages: Pages, size: int, columns: int) -> None:
    """Directory and counters of freshly filled pages."""
    count = (size + FILL - 1) // FILL
    for page in range(count):
        pages.listed[page] = page
        pages.fill[page] = min(FILL, size - page * FILL)
        pages.sums[page] = pages.points[page, : pages.fill[page]].sum()
        describe(pages, page, columns)
    pages.state[LISTED], pages.state[ALLOCATED] = count, count
    pages.state[FREED], pages.state[ENTRIES] = 0, size


@jit
def fill_from_boxes(
    pages: Pages, keys: Ints, sources: Places, boxes: Boxes, owners: Ints, limits: Ints, tables: CoverTables
) -> None:
    """Fill empty pages with the sorted covers of many boxes."""
    page_keys, page_owners, page_boxes, page_points = pages.keys, pages.owners, pages.boxes, pages.points
    shifts, columns, kx, ky = tables.shifts, tables.columns, tables.bits[0], tables.bits[1]
    for at in range(len(keys)):
        page, place = at // FILL, at % FILL
        key, source = keys[at], sources[at]
        i, length = source >> 2, key >> CORNER_BITS & (1 << LENGTH_BITS) - 1
        shift_x, shift_y = shifts[length, 0], shifts[length, 1]
        x0, x1, y0, y1 = clip(
            boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3], source, shift_x, shift_y, columns
        )
        row = i if len(limits) > 1 else 0
        points = points_in(x0, x1, y0, y1, limits[row, 0], limits[row, 1], kx, ky, columns)
        page_keys[page, place], page_owners[page, place] = key, owners[i]
        page_boxes[page, 0, place], page_boxes[page, 1, place] = x0, x1
        page_boxes[page, 2, place], page_boxes[page, 3, place] = y0, y1
        page_points[page, place] = points * limits[row, 2]
    _finish(pages, len(keys), columns)


@jit
def fill_from_entries(
    pages: Pages, keys: Ints, order: Places, owners: Ints, boxes: Boxes, points: Ints, columns: int
) -> None:
    """Fill empty pages with sorted entries; `order` says where the rest of each entry is."""
    page_keys, page_owners, page_boxes, page_points = pages.keys, pages.owners, pages.boxes, pages.points
    for at in range(len(keys)):
        page, place, source = at // FILL, at % FILL, order[at]
        page_keys[page, place], page_owners[page, place] = keys[at], owners[source]
        for side in range(4):
            page_boxes[page, side, place] = boxes[source, side]
        page_points[page, place] = points[source]
    _finish(pages, len(keys), columns)


@jit
def clip_all(
    keys: Ints, sources: Places, boxes: Boxes, limits: Ints, tables: CoverTables
) -> tuple[Boxes, Ints]:
    """Clipped boxes and points of the covers of many boxes."""
    clipped, points = np.empty((len(sources), 4), np.int32), np.empty(len(sources), np.int64)
    shifts, columns, kx, ky = tables.shifts, tables.columns, tables.bits[0], tables.bits[1]
    for at in range(len(sources)):
        i, length = sources[at] >> 2, keys[at] >> CORNER_BITS & (1 << LENGTH_BITS) - 1
        x0, x1, y0, y1 = clip(
            boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3],
            sources[at], shifts[length, 0], shifts[length, 1], columns,
        )  # fmt: skip
        row = i if len(limits) > 1 else 0
        clipped[at, 0], clipped[at, 1], clipped[at, 2], clipped[at, 3] = x0, x1, y0, y1
        points[at] = (
            points_in(x0, x1, y0, y1, limits[row, 0], limits[row, 1], kx, ky, columns) * limits[row, 2]
        )
    return clipped, points


@jit
def without(
    keys: Ints, owners: Ints, boxes: Boxes, gone_keys: Ints, gone_owners: Ints, gone_boxes: Boxes
) -> Ints:
    """Of sorted entries, the places of those that are not among the sorted others."""
    kept = np.empty(len(keys), np.int64)
    count, j = 0, 0
    for i in range(len(keys)):
        if (
            j < len(gone_keys)
            and keys[i] == gone_keys[j]
            and owners[i] == gone_owners[j]
            and (boxes[i] == gone_boxes[j]).all()
        ):
            j += 1
        else:
            kept[count] = i
            count += 1
    return kept[:count]
