"""The paged form of the tree: sorted entries, in pages of a fixed size.

Entries are sorted by key (`sensorgrid.index.enclosing`), owner and box; all three together are what makes an
entry. A cell and everything below it are one run of entries, so the tree needs no nodes. Pages keep an
insertion or removal local; a directory lists them in order, each with its first entry and the bounds of its
boxes.

All functions here are compiled and work on the arrays of `Pages`; they return a status instead of raising.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sensorgrid.index.enclosing import DETAIL_BITS, Boxes
from sensorgrid.index.jit import jit

Ints = npt.NDArray[np.int64]

PAGE = 64
"""Entries of a page: few enough that reading one through costs no more than a search in it."""
FILL = 60
"""Entries of a page after a bulk build: room for a few more before it splits."""

GROUP = 64
"""Pages of a group, whose common bounds let a lookup skip all of them at once."""

LISTED, ALLOCATED, FREED, ENTRIES = range(4)
"""Places in `Pages.state`: pages in the directory, pages in use or freed, freed pages, entries."""


class Pages(NamedTuple):
    """Entries in pages, and the directory that puts the pages in order."""

    keys: Ints
    """[page, i]: key of the entry"""
    owners: Ints
    """[page, i]: whose entry it is"""
    boxes: Boxes
    """[page, (x0, x1, y0, y1), i]: clipped box"""
    points: Ints
    """[page, i]: wanted points in one period"""
    fill: Ints
    """[page]: entries in use"""
    sums: Ints
    """[page]: their points"""
    listed: Ints
    """[position]: pages in order"""
    first_keys: Ints
    """[position]: key of the first entry of each"""
    first_owners: Ints
    """[position]: and its owner"""
    bounds: Boxes
    """[position, (x0, x1, y0, y1)]: around all boxes of the page; x0 = 0 if one crosses the date line"""
    group_bounds: Boxes
    """[group, (x0, x1, y0, y1)]: around `GROUP` positions each"""
    freed: Ints
    """pages to use again"""
    state: Ints
    """counters"""


def empty_pages(capacity: int) -> Pages:
    """Room for `capacity` pages."""
    return Pages(
        keys=np.empty((capacity, PAGE), np.int64),
        owners=np.empty((capacity, PAGE), np.int64),
        boxes=np.empty((capacity, 4, PAGE), np.int32),
        points=np.empty((capacity, PAGE), np.int64),
        fill=np.zeros(capacity, np.int64),
        sums=np.zeros(capacity, np.int64),
        listed=np.empty(capacity, np.int64),
        first_keys=np.empty(capacity, np.int64),
        first_owners=np.empty(capacity, np.int64),
        bounds=np.empty((capacity, 4), np.int32),
        group_bounds=np.empty((capacity // GROUP + 1, 4), np.int32),
        freed=np.empty(capacity, np.int64),
        state=np.zeros(4, np.int64),
    )


def grown(pages: Pages) -> Pages:
    """The same with room for half as many more."""
    larger = empty_pages(len(pages.fill) * 3 // 2 + 2)
    for name in Pages._fields:
        old = getattr(pages, name)
        getattr(larger, name)[: len(old)] = old
    return larger


@jit
def cell_of(key: int, digits: int) -> tuple[int, int]:
    """Start and length of the cell of an entry."""
    number = key >> DETAIL_BITS
    below = 0
    while not number >> below & 1:
        below += 1
    return number >> (below + 1) << below, digits - below


@jit
def _box_order(boxes: Boxes, place: int, box: Boxes) -> int:
    """-1, 0 or 1: how the box at a place of a page compares with another."""
    for side in range(4):
        if boxes[side, place] != box[side]:
            return -1 if boxes[side, place] < box[side] else 1
    return 0


@jit
def find(pages: Pages, key: int, owner: int, box: Boxes) -> tuple[int, int]:
    """Position and place of the first entry that is not before the given one; it may be past a page's end."""
    # Locals, here and below: compiled code counts references each time it takes an array out of a tuple.
    first_keys, first_owners = pages.first_keys, pages.first_owners
    low, high = 0, pages.state[LISTED]
    if high == 0:
        return 0, 0
    while low < high:  # the first page that starts after the entry
        middle = (low + high) >> 1
        first = first_keys[middle]
        before = first < key or (first == key and first_owners[middle] < owner)
        if first == key and first_owners[middle] == owner:
            before = _box_order(pages.boxes[pages.listed[middle]], 0, box) <= 0
        if before:
            low = middle + 1
        else:
            high = middle
    position = max(low - 1, 0)
    page = pages.listed[position]
    keys, owners = pages.keys[page], pages.owners[page]
    low, high = 0, pages.fill[page]
    while low < high:
        middle = (low + high) >> 1
        found = keys[middle]
        before = found < key or (found == key and owners[middle] < owner)
        if found == key and owners[middle] == owner:
            before = _box_order(pages.boxes[page], middle, box) < 0
        if before:
            low = middle + 1
        else:
            high = middle
    return position, low


@jit
def find_key(pages: Pages, key: int) -> tuple[int, int]:
    """Position and place of the first entry whose key is not below the given one."""
    return find(pages, key, -1, np.zeros(4, np.int32))


@jit
def _first_stored(pages: Pages, keys: Ints, owners: Ints, boxes: Boxes, stored: bool) -> int:
    """The first of the sorted entries that is stored (or is not), or repeats the one before it; or -1."""
    for i in range(len(keys)):
        if i and keys[i] == keys[i - 1] and owners[i] == owners[i - 1] and (boxes[i] == boxes[i - 1]).all():
            return i
        found = False
        if pages.state[LISTED]:
            position, place = find(pages, keys[i], owners[i], boxes[i])
            page = pages.listed[position]
            if place < pages.fill[page]:
                found = pages.keys[page, place] == keys[i] and pages.owners[page, place] == owners[i]
                found = found and _box_order(pages.boxes[page], place, boxes[i]) == 0
        if found == stored:
            return i
    return -1


@jit
def _list_page(pages: Pages, position: int) -> int:
    """Take a page and put it into the directory at `position`."""
    state = pages.state
    if state[FREED]:
        state[FREED] -= 1
        page = pages.freed[state[FREED]]
    else:
        page = state[ALLOCATED]
        state[ALLOCATED] += 1
    for i in range(state[LISTED], position, -1):
        pages.listed[i] = pages.listed[i - 1]
        pages.first_keys[i] = pages.first_keys[i - 1]
        pages.first_owners[i] = pages.first_owners[i - 1]
        pages.bounds[i] = pages.bounds[i - 1]
    pages.listed[position] = page
    pages.fill[page] = 0
    pages.sums[page] = 0
    state[LISTED] += 1
    return int(page)


@jit
def _unlist_page(pages: Pages, position: int) -> None:
    """Take the page at `position` out of the directory."""
    state = pages.state
    pages.freed[state[FREED]] = pages.listed[position]
    state[FREED] += 1
    state[LISTED] -= 1
    for i in range(position, state[LISTED]):
        pages.listed[i] = pages.listed[i + 1]
        pages.first_keys[i] = pages.first_keys[i + 1]
        pages.first_owners[i] = pages.first_owners[i + 1]
        pages.bounds[i] = pages.bounds[i + 1]


@jit
def describe(pages: Pages, position: int, columns: int) -> None:
    """Bring the directory up to date with a page: its first entry and the bounds of its boxes."""
    page = pages.listed[position]
    pages.first_keys[position] = pages.keys[page, 0]
    pages.first_owners[position] = pages.owners[page, 0]
    boxes, fill = pages.boxes[page], pages.fill[page]
    x0, x1, y0, y1 = boxes[0, 0], boxes[1, 0], boxes[2, 0], boxes[3, 0]
    for i in range(fill):
        x0, x1 = min(x0, boxes[0, i]), max(x1, boxes[1, i])
        y0, y1 = min(y0, boxes[2, i]), max(y1, boxes[3, i])
    bounds = pages.bounds[position]
    bounds[0], bounds[1], bounds[2], bounds[3] = 0 if x1 > columns else x0, x1, y0, y1


@jit
def describe_groups(pages: Pages, first: int, last: int) -> None:
    """Bring the bounds of the groups of some positions up to date."""
    bounds, group_bounds, listed = pages.bounds, pages.group_bounds, pages.state[LISTED]
    for group in range(first // GROUP, min(last, listed - 1) // GROUP + 1):
        position = group * GROUP
        x0, x1, y0, y1 = bounds[position, 0], bounds[position, 1], bounds[position, 2], bounds[position, 3]
        for other in range(position, min(position + GROUP, listed)):
            x0, x1 = min(x0, bounds[other, 0]), max(x1, bounds[other, 1])
            y0, y1 = min(y0, bounds[other, 2]), max(y1, bounds[other, 3])
        group_bounds[group, 0], group_bounds[group, 1] = x0, x1
        group_bounds[group, 2], group_bounds[group, 3] = y0, y1


@jit
def _move(pages: Pages, source: int, start: int, target: int) -> None:
    """Append the entries of a page from `start` on to another page."""
    at, stop = pages.fill[target], pages.fill[source]
    end = at + stop - start
    moved = pages.points[source, start:stop].sum()
    pages.keys[target, at:end] = pages.keys[source, start:stop]
    pages.owners[target, at:end] = pages.owners[source, start:stop]
    pages.boxes[target, :, at:end] = pages.boxes[source, :, start:stop]
    pages.points[target, at:end] = pages.points[source, start:stop]
    pages.sums[target] += moved
    pages.sums[source] -= moved
    pages.fill[target], pages.fill[source] = end, start


@jit
def _insert_at(column: Ints, fill: int, place: int, value: int) -> None:
    for i in range(fill, place, -1):
        column[i] = column[i - 1]
    column[place] = value


@jit
def _remove_at(column: Ints, last: int, place: int) -> None:
    for i in range(place, last):
        column[i] = column[i + 1]


@jit
def insert_each(
    pages: Pages, keys: Ints, owners: Ints, boxes: Boxes, points: Ints, start: int, columns: int
) -> tuple[int, int]:
    """Insert sorted entries one by one; how many are done, and the first one that is stored already, or -1.

    If one is stored, nothing is done. It stops where a page must split and none is left; the caller makes
    room and calls again with the `start` reached.
    """
    if start == 0:
        bad = _first_stored(pages, keys, owners, boxes, True)
        if bad >= 0:
            return 0, bad
    for i in range(start, len(keys)):
        position, place = find(pages, keys[i], owners[i], boxes[i])
        page = pages.listed[position] if pages.state[LISTED] else _list_page(pages, 0)
        changed = position
        if pages.fill[page] == PAGE:
            if pages.state[LISTED] == len(pages.fill):
                return i, -1
            other = _list_page(pages, position + 1)
            _move(pages, page, PAGE // 2, other)
            describe(pages, position, columns)
            describe(pages, position + 1, columns)
            changed = pages.state[LISTED] - 1  # all that follow have moved
            if place > PAGE // 2:
                page, place, position = other, place - PAGE // 2, position + 1
        fill = pages.fill[page]
        _insert_at(pages.keys[page], fill, place, keys[i])
        _insert_at(pages.owners[page], fill, place, owners[i])
        _insert_at(pages.points[page], fill, place, points[i])
        for side in range(4):
            _insert_at(pages.boxes[page, side], fill, place, boxes[i, side])
        pages.sums[page] += points[i]
        pages.fill[page] += 1
        pages.state[ENTRIES] += 1
        describe(pages, position, columns)
        describe_groups(pages, max(position - 1, 0), changed)
    return len(keys), -1


@jit
def remove_each(pages: Pages, keys: Ints, owners: Ints, boxes: Boxes, columns: int, only_check: bool) -> int:
    """Remove sorted entries one by one; the first one that is not stored, and nothing done, or -1."""
    bad = _first_stored(pages, keys, owners, boxes, False)
    if bad >= 0 or only_check:
        return bad
    for i in range(len(keys)):
        position, place = find(pages, keys[i], owners[i], boxes[i])
        page = pages.listed[position]
        pages.sums[page] -= pages.points[page, place]
        last = pages.fill[page] - 1
        _remove_at(pages.keys[page], last, place)
        _remove_at(pages.owners[page], last, place)
        _remove_at(pages.points[page], last, place)
        for side in range(4):
            _remove_at(pages.boxes[page, side], last, place)
        pages.fill[page] = last
        pages.state[ENTRIES] -= 1
        changed = position
        if last == 0:
            _unlist_page(pages, position)
            describe_groups(pages, position, pages.state[LISTED] - 1)
            continue
        # Two thin neighbours become one page, so that the number of pages follows the entries down.
        if position + 1 < pages.state[LISTED]:
            following = pages.listed[position + 1]
            if last + pages.fill[following] <= PAGE // 2:
                _move(pages, following, 0, page)
                _unlist_page(pages, position + 1)
                changed = pages.state[LISTED] - 1
        describe(pages, position, columns)
        describe_groups(pages, position, changed)
    return -1
