"""Questions about the run of entries that a cell and everything below it form."""

import numpy as np
import numpy.typing as npt

from sensorgrid.index.enclosing import DETAIL_BITS, Boxes
from sensorgrid.index.gbd_tree.pages import LISTED, Pages, cell_of, find_key
from sensorgrid.index.jit import jit

Ints = npt.NDArray[np.int64]


@jit
def entries_between(pages: Pages, low: int, high: int) -> tuple[Ints, Ints, Boxes, Ints]:
    """Keys, owners, boxes and points of the entries with low <= key < high, in order."""
    first, first_place = find_key(pages, low)
    last, last_place = find_key(pages, high)
    size = 0
    if pages.state[LISTED]:
        size = last_place - first_place
        for position in range(first, last):
            size += pages.fill[pages.listed[position]]
    keys, owners = np.empty(size, np.int64), np.empty(size, np.int64)
    boxes, points = np.empty((size, 4), np.int32), np.empty(size, np.int64)
    position, place = first, first_place
    for i in range(size):
        while place == pages.fill[pages.listed[position]]:
            position, place = position + 1, 0
        page = pages.listed[position]
        keys[i], owners[i] = pages.keys[page, place], pages.owners[page, place]
        points[i] = pages.points[page, place]
        for side in range(4):
            boxes[i, side] = pages.boxes[page, side, place]
        place += 1
    return keys, owners, boxes, points


@jit
def cells_of(keys: Ints, digits: int) -> tuple[Ints, Ints]:
    """Starts and lengths of the cells of many entries."""
    starts, lengths = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        starts[i], lengths[i] = cell_of(keys[i], digits)
    return starts, lengths


@jit
def sums_between(pages: Pages, low: int, high: int) -> tuple[int, int]:
    """How many entries with low <= key < high, and their points: whole pages by their sums."""
    if pages.state[LISTED] == 0:
        return 0, 0
    first, first_place = find_key(pages, low)
    last, last_place = find_key(pages, high)
    count, points = last_place - first_place, 0
    for i in range(last_place):
        points += pages.points[pages.listed[last], i]
    for i in range(first_place):
        points -= pages.points[pages.listed[first], i]
    for position in range(first, last):
        count += pages.fill[pages.listed[position]]
        points += pages.sums[pages.listed[position]]
    return count, points


@jit
def _key_from(pages: Pages, key: int) -> int:
    """The first stored key that is not below `key`, or -1."""
    if pages.state[LISTED] == 0:
        return -1
    position, place = find_key(pages, key)
    if place == pages.fill[pages.listed[position]]:
        position, place = position + 1, 0
        if position == pages.state[LISTED]:
            return -1
    return int(pages.keys[pages.listed[position], place])


@jit
def _is_stored(pages: Pages, start: int, length: int, digits: int) -> bool:
    """Whether a cell has an entry."""
    below = digits - length
    number = start >> below << below << 1 | 1 << below
    return _key_from(pages, number << DETAIL_BITS) >> DETAIL_BITS == number


@jit
def covering_length(pages: Pages, start: int, length: int, digits: int) -> int:
    """Length of the nearest cell with an entry that contains the given one; or -1."""
    for up in range(length, -1, -1):
        if _is_stored(pages, start, up, digits):
            return up
    return -1


@jit
def _append_gap(found: Ints, size: int, start: int, stop: int, digits: int) -> tuple[Ints, int]:
    """Append the largest cells that fill [start, stop) of the leaf IDs, as missing."""
    while start < stop:
        width = start & -start if start else 1 << digits
        while width > stop - start:
            width >>= 1
        length = digits
        while 1 << (digits - length) < width:
            length -= 1
        if size == len(found):
            larger = np.empty((2 * size, 3), np.int64)
            larger[:size] = found
            found = larger
        found[size, 0], found[size, 1], found[size, 2] = start, length, 0
        size += 1
        start += width
    return found, size


@jit
def serve(pages: Pages, starts: Ints, lengths: Ints, digits: int) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Algorithm 1 on sorted entries: cells (start, length), and whether each is available.

    What the recursion finds node by node is here a walk over the topmost stored cells below each cell of the
    query, with the gaps between them filled by the largest cells that fit.
    """
    found = np.empty((4 * len(starts) + 4, 3), np.int64)
    size = 0
    for i in range(len(starts)):
        start, stop = starts[i], starts[i] + (1 << (digits - lengths[i]))
        if covering_length(pages, start, lengths[i], digits) >= 0:
            found, size = _append_gap(found, size, start, stop, digits)
            found[size - 1, 2] = 1
            continue
        while start < stop:
            key = _key_from(pages, (2 * start + 1) << DETAIL_BITS)
            if key < 0 or key >> (DETAIL_BITS + 1) >= stop:
                found, size = _append_gap(found, size, start, stop, digits)
                break
            # The first entry in order lies in the first stored cell; the topmost one around it counts.
            at, length = cell_of(key, digits)
            for shorter in range(lengths[i] + 1, length):
                if _is_stored(pages, at, shorter, digits):
                    length = shorter
                    break
            at = at >> (digits - length) << (digits - length)
            found, size = _append_gap(found, size, start, at, digits)
            start = at + (1 << (digits - length))
            found, size = _append_gap(found, size, at, start, digits)
            found[size - 1, 2] = 1
    return found[:size, 0].copy(), found[:size, 1].copy(), found[:size, 2] == 1
