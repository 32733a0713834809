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
    differ, highest = 0, 0
    for i in range(size):
        differ |= keys[i] ^ keys[0]
        highest |= keys[i]
    digit_bits = 11 if size > 4096 else 8
    if highest >> (63 - place_bits):
        return _radix_sort(keys.copy(), np.arange(size), differ, 0, digit_bits)[1]
    # Key and place fit one word, and half of the moving can be saved.
    words = np.empty(size, np.int64)
    for i in range(size):
        words[i] = keys[i] << place_bits | i
    words = _radix_sort(words, words[:0], differ << place_bits, place_bits, digit_bits)[0]
    for i in range(size):
        words[i] &= (1 << place_bits) - 1
    return words


@jit
def _radix_sort(words: Ints, places: Ints, differ: int, shift: int, digit_bits: int) -> tuple[Ints, Ints]:
    """Words sorted by their digits from `shift` on, and places with them if there are any.

    Both are used up. Digits in which no two words differ are left out.
    """
    size, mask = len(words), (1 << digit_bits) - 1
    source, target = words, np.empty(size, np.int64)
    source_places, target_places = places, np.empty(len(places), np.int64)
    starts = np.empty(mask + 1, np.int64)
    while shift < 63 and differ >> shift:
        if differ >> shift & 1 == 0:
            shift += 1
            continue
        starts[:] = 0
        for i in range(size):
            starts[source[i] >> shift & mask] += 1
        total = 0
        for digit in range(mask + 1):
            count = starts[digit]
            starts[digit] = total
            total += count
        if len(places):
            for i in range(size):
                digit = source[i] >> shift & mask
                place = starts[digit]
                starts[digit] = place + 1
                target[place], target_places[place] = source[i], source_places[i]
        else:
            for i in range(size):
                digit = source[i] >> shift & mask
                place = starts[digit]
                starts[digit] = place + 1
                target[place] = source[i]
        source, target = target, source
        source_places, target_places = target_places, source_places
        shift += digit_bits
    return source, source_places


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
def order_entries(keys: Ints, owners: Ints, boxes: Boxes) -> tuple[Ints, int]:
    """The order that sorts entries by key, owner and box; and the first entry that repeats another, or -1."""
    by_owner = order_of(owners)
    order = by_owner[order_of(keys[by_owner])]
    sorted_keys, sorted_owners = keys[order], owners[order]
    for i in range(1, len(order)):
        # What remains are boxes of one owner with the same key: rare.
        place, entry = i, order[i]
        while (
            place
            and sorted_keys[place - 1] == sorted_keys[i]
            and sorted_owners[place - 1] == sorted_owners[i]
        ):
            comparison = _compare(owners, boxes, order[place - 1], owners, boxes, entry)
            if comparison == 0:
                return order, int(entry)
            if comparison < 0:
                break
            order[place] = order[place - 1]
            place -= 1
        order[place] = entry
    return order, -1


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
    pages: Pages, keys: Ints, order: Ints, owners: Ints, boxes: Boxes, points: Ints, limits: Ints,
    columns: int, kx: int, ky: int,
) -> None:  # fmt: skip
    """Fill empty pages with entries in the given order; where no points are given, they are counted here."""
    # Locals: compiled code counts references when it takes an array out of a tuple.
    page_keys, page_owners, page_boxes, page_points = pages.keys, pages.owners, pages.boxes, pages.points
    size = len(order)
    count = (size + FILL - 1) // FILL
    for page in range(count):
        fill = min(FILL, size - page * FILL)
        total = 0
        for place in range(fill):
            i = order[page * FILL + place]
            x0, x1, y0, y1 = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
            if len(points):
                wanted = points[i]
            else:
                row = i if len(limits) > 1 else 0
                wanted = (
                    points_in(x0, x1, y0, y1, limits[row, 0], limits[row, 1], kx, ky, columns)
                    * limits[row, 2]
                )
            page_keys[page, place], page_owners[page, place] = keys[i], owners[i]
            page_boxes[page, 0, place], page_boxes[page, 1, place] = x0, x1
            page_boxes[page, 2, place], page_boxes[page, 3, place] = y0, y1
            page_points[page, place] = wanted
            total += wanted
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
