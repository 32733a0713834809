"""The fast GBD-tree: sorted entries in pages, searched and changed by compiled code."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sensorgrid.index.cell import Cell
from sensorgrid.index.cover import CORNER_BITS, KEY_BITS, LENGTH_BITS, Boxes, cover_keys, cover_tables
from sensorgrid.index.decompose import Fragment, Fragments, restrict_to
from sensorgrid.index.gbd_tree import build, lookup, pages, runs
from sensorgrid.index.gbd_tree.interface import Entry, Hits
from sensorgrid.index.gbd_tree.pages import ENTRIES, FILL
from sensorgrid.index.layout import layout_of
from sensorgrid.model.box import Box
from sensorgrid.model.errors import DuplicateEntryError, GridError, MissingEntryError
from sensorgrid.model.grid import Grid

Ints = npt.NDArray[np.int64]
Columns = tuple[Ints, Ints, Boxes, Ints]
"""Entries: keys, owners, boxes [i, (x0, x1, y0, y1)], points."""

REBUILD_SHARE = 8
"""A batch of more than 1/8 of the stored entries is merged in one pass, a smaller one entry by entry."""


class PagedTree:
    """A GBD-tree for a million queries.

    Examples
    --------
    >>> from sensorgrid import Box, Grid
    >>> tree = PagedTree(Grid())
    >>> tree.insert_boxes(np.array([[0, 100, 0, 100], [50, 300, 50, 80]]), np.array([1, 2]))
    >>> tree.overlaps(Box(60, 70, 60, 70)).tolist(), tree.overlaps(Box(200, 201, 60, 61)).tolist()
    ([1, 2], [2])
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._layout = layout_of(grid)
        self._tables = cover_tables(grid)
        self._bits = np.array(grid.resolution_bits, dtype=np.int64)
        self._full = 1 << self._bits
        self._pages = pages.empty_pages(1)

    def __len__(self) -> int:
        return int(self._pages.state[ENTRIES])

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.under(Cell(1)))

    @property
    def nbytes(self) -> int:
        """Bytes that the tree occupies."""
        return sum(array.nbytes for array in self._pages)

    def insert(self, fragments: Fragments, owner: int) -> None:
        """Store each fragment for the owner."""
        self._insert(self._entries(fragments, owner))

    def remove(self, fragments: Fragments, owner: int) -> None:
        """Remove them again."""
        self._remove(self._entries(fragments, owner))

    def insert_boxes(self, boxes: Boxes, owners: Ints, limits: Ints | None = None) -> None:
        """Store the covers of many boxes."""
        boxes, owners, limits = self._rows(boxes, owners, limits)
        if len(self) or not build.rises(owners):
            self._insert(self._covers(boxes, owners, limits))
            return
        # Into an empty tree, each owner once: sorted by key they are sorted, and nothing can repeat.
        keys, sources = build.sort_by(*cover_keys(boxes, limits, self._tables))
        room = pages.empty_pages(-(-len(keys) // FILL) + 1)
        build.fill_from_boxes(room, keys, sources, boxes, owners, limits, self._tables)
        self._pages = room

    def remove_boxes(self, boxes: Boxes, owners: Ints, limits: Ints | None = None) -> None:
        """Remove the covers of many boxes again."""
        self._remove(self._covers(*self._rows(boxes, owners, limits)))

    def count(self, cell: Cell) -> int:
        """Entries at and below a cell."""
        return int(runs.sums_between(self._pages, *self._run(cell))[0])

    def size(self, cell: Cell) -> int:
        """Points that they want together."""
        return int(runs.sums_between(self._pages, *self._run(cell))[1])

    def covering(self, cell: Cell) -> Cell | None:
        """The nearest cell with an entry that contains the given one."""
        start, _ = cell.interval(self._layout.digits)
        length = runs.covering_length(self._pages, start, cell.length, self._layout.digits)
        return None if length < 0 else Cell(cell.code >> (cell.length - length))

    def under(self, cell: Cell) -> list[Entry]:
        """Everything at and below a cell."""
        keys, owners, boxes, points = runs.entries_between(self._pages, *self._run(cell))
        order = np.lexsort((*boxes.T[::-1], owners, keys >> CORNER_BITS))
        columns = (column[order].tolist() for column in (keys, owners, boxes, points))
        return [Entry(self._cell(k), owner, Box(*box), p) for k, owner, box, p in zip(*columns, strict=True)]

    def overlaps(self, box: Box, limits: tuple[int, int, int] | None = None) -> Ints:
        """Owners of all entries that overlap a box."""
        boxes = np.array([(box.x0, box.x1, box.y0, box.y1)], dtype=np.int32)
        rows = self._full.reshape(1, 3) if limits is None else np.array([limits], dtype=np.int64)
        layout = self._layout
        return lookup.overlaps(self._pages, boxes, rows, self._bits, layout.axes_array, layout.widths)[0]

    def overlaps_many(self, boxes: Boxes, limits: Ints | None = None) -> Hits:
        """The same for many boxes."""
        boxes, _, limits = self._rows(boxes, np.zeros(len(boxes), np.int64), limits)
        layout = self._layout
        return Hits(
            *lookup.overlaps(self._pages, boxes, limits, self._bits, layout.axes_array, layout.widths)
        )

    def serve(self, fragments: Fragments) -> tuple[list[Fragment], list[Fragment]]:
        """The parts of a query that are available here, and those that are missing."""
        columns = runs.serve(self._pages, fragments.starts, fragments.lengths, self._layout.digits)
        starts, lengths, available = columns
        return (
            list(restrict_to(fragments, starts[available], lengths[available])),
            list(restrict_to(fragments, starts[~available], lengths[~available])),
        )

    def _insert(self, entries: Columns) -> None:
        keys, owners, boxes, points = entries = _sorted(entries)
        bad = pages.first_stored(self._pages, keys, owners, boxes, True)
        if bad >= 0:
            raise DuplicateEntryError(f"{self._name(entries, bad)}: found it stored, expected a new entry")
        if len(keys) * REBUILD_SHARE > len(self):
            stored = runs.entries_between(self._pages, *self._run(Cell(1)))
            together = (
                np.concatenate((stored[0], keys)),
                np.concatenate((stored[1], owners)),
                np.concatenate((stored[2], boxes)),
                np.concatenate((stored[3], points)),
            )
            self._rebuild(_sorted(together))
            return
        done = 0
        while True:
            done = pages.insert_each(self._pages, keys, owners, boxes, points, done, self.grid.shape[0])
            if done == len(keys):
                return
            self._pages = pages.grown(self._pages)

    def _remove(self, entries: Columns) -> None:
        keys, owners, boxes, _ = entries = _sorted(entries)
        bad = pages.first_stored(self._pages, keys, owners, boxes, False)
        if bad >= 0:
            raise MissingEntryError(f"{self._name(entries, bad)}: found nothing, expected a stored entry")
        if len(keys) * REBUILD_SHARE <= len(self):
            pages.remove_each(self._pages, keys, owners, boxes, self.grid.shape[0])
            return
        stored = runs.entries_between(self._pages, *self._run(Cell(1)))
        kept = build.without(*stored[:3], keys, owners, boxes)
        self._rebuild((stored[0][kept], stored[1][kept], stored[2][kept], stored[3][kept]))

    def _rebuild(self, entries: Columns) -> None:
        """Fill new pages with sorted entries."""
        order = np.arange(len(entries[0]), dtype=np.int32)
        room = pages.empty_pages(-(-len(order) // FILL) + 1)
        build.fill_from_entries(room, entries[0], order, *entries[1:], self.grid.shape[0])
        self._pages = room

    def _entries(self, fragments: Fragments, owner: int) -> Columns:
        if owner < 0:
            raise GridError(f"owner: found {owner}, expected a number >= 0")
        boxes = fragments.boxes.astype(np.int32)
        keys = pages.keys_of(fragments.starts, fragments.lengths, boxes, self._tables.shifts)
        return keys, np.full(len(fragments), owner, dtype=np.int64), boxes, fragments.points

    def _covers(self, boxes: Boxes, owners: Ints, limits: Ints) -> Columns:
        keys, sources = cover_keys(boxes, limits, self._tables)
        clipped, points = build.clip_all(keys, sources, boxes, limits, self._tables)
        return keys, owners[sources >> 2], clipped, points

    def _name(self, entries: Columns, i: int) -> str:
        keys, owners, boxes, _ = entries
        return f"cell {self._cell(int(keys[i]))}, owner {owners[i]}, box {boxes[i].tolist()}"

    def _rows(self, boxes: Boxes, owners: Ints, limits: Ints | None) -> tuple[Boxes, Ints, Ints]:
        """The columns as the compiled code wants them; refuses boxes that are not on the grid."""
        boxes = np.ascontiguousarray(boxes, dtype=np.int32).reshape(-1, 4)
        owners = np.ascontiguousarray(owners, dtype=np.int64)
        full = self._full.reshape(1, 3)
        rows = full if limits is None else np.ascontiguousarray(limits, np.int64).reshape(-1, 3)
        if not len(boxes) == len(owners) == (len(boxes) if limits is None else len(rows)):
            raise GridError(
                f"boxes: found {len(boxes)} with {len(owners)} owners and {len(rows)} limits,"
                " expected as many of each"
            )
        bad = build.first_bad(boxes, owners, rows, self.grid.shape[0], self.grid.shape[1], self.grid.wraps)
        if bad >= 0:
            raise GridError(
                f"box {bad}: found {boxes[bad].tolist()}, owner {owners[bad]},"
                f" limits {rows[bad % len(rows)].tolist()},"
                f" expected 0 <= x0 < x1 and 0 <= y0 < y1 inside {self.grid.shape}, owner >= 0, limits >= 1"
            )
        return boxes, owners, rows

    def _cell(self, key: int) -> Cell:
        length = key >> CORNER_BITS & (1 << LENGTH_BITS) - 1
        return Cell.of_interval(key >> KEY_BITS, length, self._layout.digits)

    def _run(self, cell: Cell) -> tuple[int, int]:
        """The keys of a cell and of everything below: [low, high)."""
        start, stop = cell.interval(self._layout.digits)
        return start << KEY_BITS | cell.length << CORNER_BITS, stop << KEY_BITS


def _sorted(entries: Columns) -> Columns:
    """Entries by key, owner and box."""
    keys, owners, boxes, points = entries
    if build.rises(keys):
        return entries
    order = np.lexsort((*boxes.T[::-1], owners, keys))
    return keys[order], owners[order], boxes[order], points[order]
