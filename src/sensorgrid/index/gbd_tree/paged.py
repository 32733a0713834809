"""The fast GBD-tree: sorted entries in pages, searched and changed by compiled code."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import Fragment, Fragments, restrict_to
from sensorgrid.index.enclosing import DETAIL_BITS, Boxes, box_keys, fragment_keys, key_tables
from sensorgrid.index.gbd_tree import build, lookup, pages, runs
from sensorgrid.index.gbd_tree.checks import (
    check_fragments,
    check_limits,
    check_owner,
    check_rows,
    full_limits,
)
from sensorgrid.index.gbd_tree.interface import Hits, IndexEntry
from sensorgrid.index.gbd_tree.pages import ENTRIES, FILL, PAGE
from sensorgrid.index.layout import layout_of
from sensorgrid.model.box import Box
from sensorgrid.model.errors import DuplicateEntryError, MissingEntryError, SensorGridError
from sensorgrid.model.grid import Grid

Ints = npt.NDArray[np.int64]
Columns = tuple[Ints, Ints, Boxes, Ints]
"""Entries: keys, owners, boxes [i, (x0, x1, y0, y1)], points."""

REBUILD_SHARE = 8
"""A batch of more than 1/8 of the stored entries is merged in one pass, a smaller one entry by entry."""
SPARE_FACTOR = 3
"""After removals, pages with room for more than three times the entries are given back."""

_FIRST = np.zeros(1, np.int64)
"""The order of a single entry."""
_NONE = np.empty(0, np.int64)


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
        self._columns, self._rows = grid.shape
        self._wraps = grid.wraps
        self._layout = layout_of(grid)
        self._tables = key_tables(grid)
        self._bits = np.array(grid.resolution_bits, dtype=np.int64)
        self._full_row = full_limits(grid)
        self._full: tuple[int, int, int] = tuple(self._full_row[0].tolist())
        self._use(pages.empty_pages(1))

    def __len__(self) -> int:
        return int(self._pages.state[ENTRIES])

    def __iter__(self) -> Iterator[IndexEntry]:
        return iter(self.under(Cell(1)))

    def __repr__(self) -> str:
        nx, ny = self.grid.shape
        return f"<PagedTree of {len(self):,} entries on {nx} × {ny} points>"

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
        """Store many boxes [i, (x0, x1, y0, y1)], each for its owner and under the cell that encloses it."""
        boxes, owners, limits = check_rows(self.grid, self._full_row, boxes, owners, limits)
        keys = box_keys(boxes, *self._tables)
        if len(self):
            points = build.box_points(boxes, limits, *self._tables[-3:])
            self._insert((keys, owners, boxes, points))
        else:  # in one pass, points included
            entries = keys, owners, boxes, _NONE
            self._rebuild(entries, self._order(entries, DuplicateEntryError), limits)

    def remove_boxes(self, boxes: Boxes, owners: Ints) -> None:
        """Remove many boxes again."""
        boxes, owners, _ = check_rows(self.grid, self._full_row, boxes, owners, None)
        self._remove((box_keys(boxes, *self._tables), owners, boxes, owners))

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

    def under(self, cell: Cell) -> list[IndexEntry]:
        """Everything at and below a cell."""
        keys, owners, boxes, points = runs.entries_between(self._pages, *self._run(cell))
        starts, lengths = runs.cells_of(keys, self._layout.digits)
        order = np.lexsort((*boxes.T[::-1], owners, lengths, starts))
        columns = (column[order].tolist() for column in (starts, lengths, owners, boxes, points))
        digits = self._layout.digits
        return [
            IndexEntry(Cell.of_interval(start, length, digits), owner, Box(*box), wanted)
            for start, length, owner, box, wanted in zip(*columns, strict=True)
        ]

    def overlaps(self, box: Box, limits: tuple[int, int, int] | None = None) -> Ints:
        """Owners of all entries that overlap a box, at ranks below the limits; sorted, each once."""
        x0, x1, y0, y1 = box.x0, box.x1, box.y0, box.y1
        if (
            x0 >= self._columns
            or x1 > (x0 + self._columns if self._wraps else self._columns)
            or y1 > self._rows
        ):
            self.grid.check_box(box)  # which says why not
        if limits is not None:
            check_limits(self._full, limits)
        return lookup.overlaps_one(*self._view, x0, x1, y0, y1, *(limits or self._full))

    def overlaps_many(self, boxes: Boxes, limits: Ints | None = None) -> Hits:
        """The same for many boxes [i, (x0, x1, y0, y1)]."""
        boxes, _, rows = check_rows(self.grid, self._full_row, boxes, np.zeros(len(boxes), np.int64), limits)
        return Hits(*lookup.overlaps_many(*self._view, boxes, rows))

    def serve(self, fragments: Fragments) -> tuple[list[Fragment], list[Fragment]]:
        """The parts of a query that are available here, and those that are missing."""
        check_fragments(self.grid, fragments)
        columns = runs.serve(self._pages, fragments.starts, fragments.lengths, self._layout.digits)
        starts, lengths, available = columns
        return (
            list(restrict_to(fragments, starts[available], lengths[available])),
            list(restrict_to(fragments, starts[~available], lengths[~available])),
        )

    def _use(self, stored: pages.Pages) -> None:
        """Go on with other pages; the view of them is what every lookup reads."""
        self._pages = stored
        self._view = lookup.LookupArrays(
            keys=stored.keys,
            owners=stored.owners,
            boxes=stored.boxes,
            fill=stored.fill,
            listed=stored.listed,
            bounds=stored.bounds,
            group_bounds=stored.group_bounds,
            state=stored.state,
            bits=self._bits,
            axes=self._layout.axes_array,
            widths=self._layout.widths,
        )

    def _insert(self, entries: Columns) -> None:
        order = self._order(entries, DuplicateEntryError)
        if not len(self):
            self._rebuild(entries, order)
            return
        entries = _take(entries, order)
        if len(order) * REBUILD_SHARE > len(self):
            self._merge(entries)
            return
        done = 0
        while True:
            done, bad = pages.insert_each(self._pages, *entries, done, self.grid.shape[0])
            if bad >= 0:
                raise DuplicateEntryError(
                    f"{self._name(entries, bad)}: found it stored, expected a new entry"
                )
            if done == len(order):
                return
            self._use(pages.grown(self._pages))

    def _merge(self, entries: Columns) -> None:
        """Build anew from what is stored and sorted new entries."""
        stored = self._everything()
        order, bad = build.merge(*stored[:3], *entries[:3])
        if bad >= 0:
            raise DuplicateEntryError(f"{self._name(entries, bad)}: found it stored, expected a new entry")
        (keys, owners, boxes, points), (more_keys, more_owners, more_boxes, more_points) = stored, entries
        together = (
            np.concatenate((keys, more_keys)),
            np.concatenate((owners, more_owners)),
            np.concatenate((boxes, more_boxes)),
            np.concatenate((points, more_points)),
        )
        self._rebuild(together, order)

    def _remove(self, entries: Columns) -> None:
        entries = _take(entries, self._order(entries, MissingEntryError))
        many = len(entries[0]) * REBUILD_SHARE > len(self)
        bad = pages.remove_each(self._pages, *entries[:3], self.grid.shape[0], many)
        if bad >= 0:
            raise MissingEntryError(f"{self._name(entries, bad)}: found nothing, expected a stored entry")
        if many:
            stored = self._everything()
            self._rebuild(stored, build.without(*stored[:3], *entries[:3]))
        elif len(self._pages.fill) * PAGE > SPARE_FACTOR * len(self) + PAGE:
            self._rebuild(self._everything(), np.arange(len(self)))

    def _order(self, entries: Columns, error: type[SensorGridError]) -> Ints:
        """The order that sorts entries by key, owner and box; none may be there twice."""
        keys, owners, boxes, _ = entries
        if len(keys) == 1:
            return _FIRST
        if build.rises(owners):  # each owner once: nothing can repeat, and equal keys are in order already
            return build.order_of(keys)
        order, bad = build.order_entries(keys, owners, boxes)
        if bad >= 0:
            raise error(f"{self._name(entries, bad)}: found it twice, expected it once")
        return order

    def _everything(self) -> Columns:
        return runs.entries_between(self._pages, *self._run(Cell(1)))

    def _rebuild(self, entries: Columns, order: Ints, limits: Ints | None = None) -> None:
        """Fill new pages with entries in the given order; with limits, their points are yet to be counted."""
        room = pages.empty_pages(-(-len(order) // FILL) + 1)
        keys, owners, boxes, points = entries
        rows = self._full_row if limits is None else limits
        build.fill_pages(room, keys, order, owners, boxes, points, rows, *self._tables[-3:])
        self._use(room)

    def _entries(self, fragments: Fragments, owner: int) -> Columns:
        check_fragments(self.grid, fragments)
        owners = np.full(len(fragments), check_owner(owner), dtype=np.int64)
        boxes = fragments.boxes.astype(np.int32)
        keys = fragment_keys(fragments.starts, fragments.lengths, boxes, *self._tables)
        return keys, owners, boxes, fragments.points

    def _name(self, entries: Columns, i: int) -> str:
        keys, owners, boxes, _ = entries
        return f"cell {self._cell(int(keys[i]))}, owner {owners[i]}, box {boxes[i].tolist()}"

    def _cell(self, key: int) -> Cell:
        return Cell.of_interval(*pages.cell_of(key, self._layout.digits), self._layout.digits)

    def _run(self, cell: Cell) -> tuple[int, int]:
        """The keys of a cell and of everything below: [low, high)."""
        start, stop = cell.interval(self._layout.digits)
        # A cell above may have its middle at 2 start: the run begins behind it.
        return (2 * start + 1) << DETAIL_BITS, 2 * stop << DETAIL_BITS


def _take(entries: Columns, order: Ints) -> Columns:
    if order is _FIRST:
        return entries
    keys, owners, boxes, points = entries
    return keys[order], owners[order], boxes[order], points[order]
