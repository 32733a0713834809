"""What a GBD-tree does (multires, sections 4.1 and 4.3): the interface of both implementations.

The tree stores *entries*: a cell, the owner who wants it, the clipped box that he wants of it, and how many
points that is. A broker keeps one tree for what it has (whole cells) and one for what it owes (fragments of
queries). Whatever the history of insertions and removals, all answers depend on the stored set alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import Fragment, Fragments
from sensorgrid.index.enclosing import Boxes
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """What is stored, each at most once: an owner may want several boxes of one cell."""

    cell: Cell
    """where"""
    owner: int
    """for whom: a number >= 0"""
    box: Box
    """the part of the cell that is wanted"""
    points: int
    """wanted points in one period of 2^t-bits ticks"""


@dataclass(frozen=True, slots=True)
class Hits:
    """The answers to many lookups, end to end."""

    owners: Ints
    """of the first lookup, then of the second, ...; each time sorted and without repeats"""
    counts: Ints
    """how many belong to each lookup"""

    def __iter__(self) -> Iterator[Ints]:
        return iter(np.split(self.owners, np.cumsum(self.counts)[:-1]) if len(self.counts) else ())


class GbdTree(Protocol):
    """Entries under a tree of cells."""

    grid: Grid
    """whose cells they are"""

    def __len__(self) -> int:
        """Number of entries."""

    def __iter__(self) -> Iterator[IndexEntry]:
        """All entries, depth first, within a cell by owner and box: the whole state."""

    def insert(self, fragments: Fragments, owner: int) -> None:
        """Store each fragment for the owner; if one is there already, refuse and change nothing."""

    def remove(self, fragments: Fragments, owner: int) -> None:
        """Remove them again; if one is not there, refuse and change nothing."""

    def insert_boxes(self, boxes: Boxes, owners: Ints, limits: Ints | None = None) -> None:
        """Store many boxes, each for its owner and under the one cell that encloses it.

        `boxes` is [i, (x0, x1, y0, y1)], `limits` [i, (x, y, t)]: ranks wanted, all of them if None.
        """

    def remove_boxes(self, boxes: Boxes, owners: Ints) -> None:
        """Remove many boxes again."""

    def count(self, cell: Cell) -> int:
        """Entries at and below a cell."""

    def size(self, cell: Cell) -> int:
        """Points that they want together: the paper's |q| summed over a subtree."""

    def covering(self, cell: Cell) -> Cell | None:
        """The nearest cell with an entry that contains the given one, itself included."""

    def under(self, cell: Cell) -> list[IndexEntry]:
        """Everything at and below a cell."""

    def overlaps(self, box: Box, limits: tuple[int, int, int] | None = None) -> Ints:
        """Owners of all entries that overlap a box, at ranks below the limits; sorted, each once.

        Strides are left aside: boxes that meet only between the points of a coarse stride do overlap.
        """

    def overlaps_many(self, boxes: Boxes, limits: Ints | None = None) -> Hits:
        """The same for many boxes."""

    def serve(self, fragments: Fragments) -> tuple[list[Fragment], list[Fragment]]:
        """The parts of a query that are available here, and those that are missing (Algorithm 1).

        For trees of whole cells: a cell with an entry counts as available, whatever the entry's box.
        """
