"""Batches: sorting and merging entries, and filling pages in one pass."""

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
def _compare(owners: Ints, boxes: Boxes, i: int, other_owners: Ints, other_boxes: Boxes, j: int) -> int:
    """-1, 0 or 1: how two entries with the same key compare."""
    if owners[i] != other_owners[j]:
        return -1 if owners[i] < other_owners[j] else 1
    for side in range(4):
        if boxes[i, side] != other_boxes[j, side]:
            return -1 if boxes[i, side] < other_boxes[j, side] else 1
    return 0


@jit
def order_entries(keys: Ints, owners: Ints, boxes: Boxes) -> Ints:
    """The order that sorts entries by key, owner and box."""
    order = order_of(keys)
    start = 0
    for i in range(1, len(order) + 1):
        if i < len(order) and keys[order[i]] == keys[order[start]]:
            continue
        if i - start > 32:  # by owner first; what is left to do is then next to nothing
            run = order[start:i].copy()
            order[start:i] = run[np.argsort(owners[run], kind="mergesort")]
        for j in range(start + 1, i):
            entry, place = order[j], j
            while place > start and _compare(owners, boxes, order[place - 1], owners, boxes, entry) > 0:
                order[place] = order[place - 1]
                place -= 1
            order[place] = entry
        start = i
    return order


@jit
def first_repeat(keys: Ints, owners: Ints, boxes: Boxes, order: Ints) -> int:
    """The first of the entries, in order, that equals the one before it; or -1."""
    for i in range(1, len(order)):
        a, b = order[i - 1], order[i]
        if keys[a] == keys[b] and _compare(owners, boxes, a, owners, boxes, b) == 0:
            return int(b)
    return -1


@jit
def merge(
    keys: Ints, owners: Ints, boxes: Boxes, new_keys: Ints, new_owners: Ints, new_boxes: Boxes
) -> tuple[Ints, int]:
    """The order that merges two sorted lists, numbered on; and the first new entry that is stored, or -1."""
    size, new_size = len(keys), len(new_keys)
    order = np.empty(size + new_size, np.int64)
    i, j = 0, 0
    for place in range(size + new_size):
        take_new = i == size
        if i < size and j < new_size:
            take_new = new_keys[j] < keys[i]
            if new_keys[j] == keys[i]:
                order_of_both = _compare(owners, boxes, i, new_owners, new_boxes, j)
                if order_of_both == 0:
                    return order, j
                take_new = order_of_both > 0
        if take_new:
            order[place] = size + j
            j += 1
        else:
            order[place] = i
            i += 1
    return order, -1


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
