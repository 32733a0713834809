"""The GBD-tree as the paper draws it, with nodes and children: readable, the yardstick of the fast one."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import Fragment, Fragments, restrict
from sensorgrid.index.enclosing import Boxes, enclosing
from sensorgrid.index.gbd_tree.checks import (
    check_fragments,
    check_limits,
    check_owner,
    check_rows,
    full_limits,
)
from sensorgrid.index.gbd_tree.interface import Hits, IndexEntry
from sensorgrid.index.layout import RX
from sensorgrid.model.box import Box
from sensorgrid.model.errors import DuplicateEntryError, MissingEntryError, SensorGridError
from sensorgrid.model.grid import Grid

Ints = npt.NDArray[np.int64]


class _Node:
    """A cell with its entries by owner and box, and the totals of its subtree."""

    __slots__ = ("cell", "children", "count", "entries", "size")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.entries: dict[tuple[int, Box], IndexEntry] = {}
        self.children: list[_Node | None] = [None, None]
        self.count = 0
        self.size = 0


class ReferenceTree:
    """A GBD-tree of nodes, which exist only on the way to an entry: the state is that of the stored set."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._root = _Node(Cell(1))

    def __len__(self) -> int:
        return self._root.count

    def __repr__(self) -> str:
        return f"<ReferenceTree of {len(self):,} entries>"

    def __iter__(self) -> Iterator[IndexEntry]:
        return iter(self.under(Cell(1)))

    def insert(self, fragments: Fragments, owner: int) -> None:
        """Store each fragment for the owner."""
        check_fragments(self.grid, fragments)
        self._insert_all([_entry(fragment, check_owner(owner)) for fragment in fragments])

    def remove(self, fragments: Fragments, owner: int) -> None:
        """Remove them again."""
        check_fragments(self.grid, fragments)
        self._remove_all([_entry(fragment, check_owner(owner)) for fragment in fragments])

    def insert_boxes(self, boxes: Boxes, owners: Ints, limits: Ints | None = None) -> None:
        """Store many boxes, each under the cell that encloses it."""
        self._insert_all(self._box_entries(boxes, owners, limits))

    def remove_boxes(self, boxes: Boxes, owners: Ints) -> None:
        """Remove many boxes again."""
        self._remove_all(self._box_entries(boxes, owners, None))

    def count(self, cell: Cell) -> int:
        """Entries at and below a cell."""
        node = self._node(cell)
        return node.count if node else 0

    def size(self, cell: Cell) -> int:
        """Points that they want together."""
        node = self._node(cell)
        return node.size if node else 0

    def covering(self, cell: Cell) -> Cell | None:
        """The nearest cell with an entry that contains the given one."""
        for candidate in cell.ancestors:
            node = self._node(candidate)
            if node and node.entries:
                return candidate
        return None

    def under(self, cell: Cell) -> list[IndexEntry]:
        """Everything at and below a cell."""
        entries: list[IndexEntry] = []
        nodes = [self._node(cell)]
        while nodes:
            node = nodes.pop()
            if node:
                entries += [node.entries[key] for key in sorted(node.entries)]
                nodes += reversed(node.children)
        return entries

    def overlaps(self, box: Box, limits: tuple[int, int, int] | None = None) -> Ints:
        """Owners of all entries that overlap a box: every entry is looked at."""
        self.grid.check_box(box)
        if limits is not None:
            check_limits(tuple(full_limits(self.grid)[0].tolist()), limits)
        wanted = limits or tuple(1 << bits for bits in self.grid.resolution_bits)
        owners = {entry.owner for entry in self if self._meet(entry, box, wanted)}
        return np.array(sorted(owners), dtype=np.int64)

    def overlaps_many(self, boxes: Boxes, limits: Ints | None = None) -> Hits:
        """The same for many boxes."""
        rows = [None] * len(boxes) if limits is None else [(int(x), int(y), int(t)) for x, y, t in limits]
        found = [self.overlaps(_box(b), row) for b, row in zip(boxes, rows, strict=True)]
        counts = np.array([len(owners) for owners in found], dtype=np.int64)
        return Hits(np.concatenate([*found, np.empty(0, np.int64)]), counts)

    def serve(self, fragments: Fragments) -> tuple[list[Fragment], list[Fragment]]:
        """The parts of a query that are available here, and those that are missing."""
        check_fragments(self.grid, fragments)
        available: list[Cell] = []
        missing: list[Cell] = []
        for cell in fragments.cells:
            self._serve(self._root, cell, available, missing)
        return list(restrict(fragments, available)), list(restrict(fragments, missing))

    def _serve(self, node: _Node, cell: Cell, available: list[Cell], missing: list[Cell]) -> None:
        """Algorithm 1, for one cell of a query."""
        level = node.cell.length
        if node.entries:
            available.append(cell)
        elif node.children == [None, None]:
            missing.append(cell)
        else:
            if cell.length > level:  # availability not clear: follow the next digit
                halves = [(cell.code >> (cell.length - level - 1) & 1, cell)]
            else:  # unavailable as a whole: check both halves
                halves = list(enumerate(cell.children))
            for digit, part in halves:
                # Differs from Algorithm 1, line 14: the paper tests lowChild before it descends into upChild.
                child = node.children[digit]
                if child is None:
                    missing.append(part)
                else:
                    self._serve(child, part, available, missing)

    def _node(self, cell: Cell) -> _Node | None:
        cell.size(self.grid)  # refuses a cell that the grid does not have
        node: _Node | None = self._root
        for digit in str(cell) if cell.length else "":
            node = node.children[int(digit)] if node else None
        return node

    def _insert_all(self, entries: list[IndexEntry]) -> None:
        _check_once(entries, DuplicateEntryError)
        for entry in entries:
            if self._stored(entry):
                raise DuplicateEntryError(f"{_name(entry)}: found it stored, expected a new entry")
        for entry in entries:
            self._insert(entry)

    def _remove_all(self, entries: list[IndexEntry]) -> None:
        _check_once(entries, MissingEntryError)
        for entry in entries:
            if not self._stored(entry):
                raise MissingEntryError(f"{_name(entry)}: found nothing, expected a stored entry")
        for entry in entries:
            self._remove(entry)

    def _stored(self, entry: IndexEntry) -> bool:
        node = self._node(entry.cell)
        return node is not None and (entry.owner, entry.box) in node.entries

    def _insert(self, entry: IndexEntry) -> None:
        node = self._root
        for length in range(entry.cell.length + 1):
            if length:
                digit = entry.cell.code >> (entry.cell.length - length) & 1
                child = node.children[digit] or _Node(Cell(node.cell.code << 1 | digit))
                node.children[digit] = child
                node = child
            node.count += 1
            node.size += entry.points
        node.entries[entry.owner, entry.box] = entry

    def _remove(self, entry: IndexEntry) -> None:
        path = [self._root]
        for digit in str(entry.cell) if entry.cell.length else "":
            child = path[-1].children[int(digit)]
            assert child is not None
            path.append(child)
        points = path[-1].entries.pop((entry.owner, entry.box)).points
        for node in path:
            node.count -= 1
            node.size -= points
        for parent, node in reversed(list(pairwise(path))):
            if not node.count:
                parent.children[node.cell.code & 1] = None

    def _meet(self, entry: IndexEntry, box: Box, limits: tuple[int, ...]) -> bool:
        starts, _ = entry.cell.geometry(self.grid)
        cell = entry.cell.box(self.grid)
        return all(starts[RX + axis] < limits[axis] for axis in range(3)) and any(
            max(a.x0, b.x0, cell.x0) < min(a.x1, b.x1, cell.x1)
            and max(a.y0, b.y0, cell.y0) < min(a.y1, b.y1, cell.y1)
            for a in self.grid.plain_boxes(entry.box)
            for b in self.grid.plain_boxes(box)
        )

    def _box_entries(self, boxes: Boxes, owners: Ints, limits: Ints | None) -> list[IndexEntry]:
        boxes, owners, rows = check_rows(self.grid, full_limits(self.grid), boxes, owners, limits)
        entries = []
        for i, row in enumerate(boxes):
            x, y, t = (int(v) for v in rows[0 if limits is None else i])
            entries.append(_entry(enclosing(_box(row), (x, y, t), self.grid), int(owners[i])))
        return entries


def _entry(fragment: Fragment, owner: int) -> IndexEntry:
    return IndexEntry(fragment.cell, owner, fragment.box, fragment.points)


def _check_once(entries: list[IndexEntry], error: type[SensorGridError]) -> None:
    seen = set()
    for entry in entries:
        if (entry.cell, entry.owner, entry.box) in seen:
            raise error(f"{_name(entry)}: found it twice, expected it once")
        seen.add((entry.cell, entry.owner, entry.box))


def _box(row: Boxes) -> Box:
    x0, x1, y0, y1 = (int(v) for v in row)
    return Box(x0, x1, y0, y1)


def _name(entry: IndexEntry) -> str:
    box = [entry.box.x0, entry.box.x1, entry.box.y0, entry.box.y1]
    return f"cell {entry.cell}, owner {entry.owner}, box {box}"
