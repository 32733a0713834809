"""Batches: checking boxes, sorting entries, and filling pages in one pass."""

import numpy as np
import numpy.typing as npt

from sensorgrid.index.enclosing import Boxes, points_in
from sensorgrid.index.gbd_tree.pages import (
    ALLOCATED,
    ENTRIES,
    FILL,
    FREED,
    LISTED,
    Pages,
    describe,
    describe_groups,
)
from sensorgrid.index.jit import jit

Ints = npt.NDArray[np.int64]


@jit
def first_bad(
    boxes: Boxes, owners: Ints, limits: Ints, full: Ints, columns: int, rows: int, wraps: bool
) -> int:
    """The first box that is not on the grid, or whose owner or limits cannot be right; or -1."""
    for i in range(len(boxes)):
        x0, x1, y0, y1 = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        x_end = x0 + columns if wraps else columns
        if not (0 <= x0 < x1 <= x_end and x0 < columns and 0 <= y0 < y1 <= rows and owners[i] >= 0):
            return i
        if len(limits) > 1 or i == 0:
            for axis in range(3):
                if not 1 <= limits[i, axis] <= full[axis]:
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
def box_points(boxes: Boxes, limits: Ints, columns: int, kx: int, ky: int) -> Ints:
    """Wanted points of many boxes in one period; `limits` has a row per box, or one for all."""
    points = np.empty(len(boxes), np.int64)
    for i in range(len(boxes)):
        row = i if len(limits) > 1 else 0
        points[i] = limits[row, 2] * points_in(
            boxes[i, 0],
            boxes[i, 1],
            boxes[i, 2],
            boxes[i, 3],
            limits[row, 0],
            limits[row, 1],
            kx,
            ky,
            columns,
        )
    return points


@jit
def order_of(keys: Ints) -> Ints:
    """The order that sorts the keys; equal keys stay as they are."""
    size = len(keys)
    place_bits = 1
    while size >> place_bits:
        place_bits += 1
    differ, highest = np.int64(0), np.int64(0)
    for i in range(size):
        differ |= keys[i] ^ keys[0]
        highest |= keys[i]
    if highest >> (63 - place_bits):
        return np.argsort(keys, kind="mergesort")
    # Key and place fit one word: radix sort, of only those digits in which keys differ.
    words, others = np.empty(size, np.int64), np.empty(size, np.int64)
    for i in range(size):
        words[i] = keys[i] << place_bits | i
    differ <<= place_bits
    digit_bits = 11 if size > 4096 else 8
    mask = (1 << digit_bits) - 1
    starts = np.empty(mask + 1, np.int64)
    shift = place_bits
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
        words[i] &= (1 << place_bits) - 1
    return words


@jit
def fill_pages(
    pages: Pages, keys: Ints, order: Ints, owners: Ints, boxes: Boxes, points: Ints, columns: int
) -> None:
    """Fill empty pages with entries in the given order."""
    # Locals: compiled code counts references when it takes an array out of a tuple.
    page_keys, page_owners, page_boxes, page_points = pages.keys, pages.owners, pages.boxes, pages.points
    size = len(order)
    count = (size + FILL - 1) // FILL
    for page in range(count):
        fill = min(FILL, size - page * FILL)
        total = 0
        for place in range(fill):
            i = order[page * FILL + place]
            page_keys[page, place], page_owners[page, place] = keys[i], owners[i]
            page_boxes[page, 0, place], page_boxes[page, 1, place] = boxes[i, 0], boxes[i, 1]
            page_boxes[page, 2, place], page_boxes[page, 3, place] = boxes[i, 2], boxes[i, 3]
            page_points[page, place] = points[i]
            total += points[i]
        pages.listed[page], pages.fill[page], pages.sums[page] = page, fill, total
        describe(pages, page, columns)
    pages.state[LISTED], pages.state[ALLOCATED] = count, count
    pages.state[FREED], pages.state[ENTRIES] = 0, size
    describe_groups(pages, 0, count - 1)


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
