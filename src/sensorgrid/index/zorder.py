"""Leaf IDs as a line: ranges of cells and boxes, and who owns which part of it.

Reading a leaf's digits as a number puts all leaves on a line, in Z-order. A cell is a range of that line, a
box a few ranges. Owners (brokers, and later the nodes of the operators paper) have IDs on the same line: each
owns the IDs from its own up to the next larger one; those below the smallest belong to the last, which wraps
around. Differs from the operators paper, where IDs below the smallest node belong to nobody.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import decompose_box
from sensorgrid.index.layout import layout_of
from sensorgrid.model.box import Box
from sensorgrid.model.errors import CellError
from sensorgrid.model.grid import Grid

Range = tuple[int, int]
"""[start, stop) of leaf IDs"""


def cell_of_range(start: int, stop: int, digits: int) -> Cell:
    """The one cell with exactly these leaves: the inverse of `Cell.interval`."""
    cells = cells_of_range(start, stop, digits)
    if len(cells) != 1:
        raise CellError(f"range [{start}, {stop}): found {len(cells)} cells, expected exactly one")
    return cells[0]


def cells_of_range(start: int, stop: int, digits: int) -> list[Cell]:
    """The fewest cells that make up a range of leaves.

    >>> [str(cell) for cell in cells_of_range(3, 8, digits=3)]
    ['011', '1']
    """
    if not 0 <= start < stop <= 1 << digits:
        raise CellError(f"range [{start}, {stop}): expected 0 <= start < stop <= {1 << digits}")
    cells = []
    while start < stop:
        aligned = (start & -start).bit_length() - 1 if start else digits
        below = min(aligned, (stop - start).bit_length() - 1)
        cells.append(Cell.of_interval(start, digits - below, digits))
        start += 1 << below
    return cells


def ranges_of_box(box: Box, grid: Grid, depth: int | None = None) -> list[Range]:
    """The leaves of a box, as sorted disjoint ranges that do not even adjoin.

    They may hold more leaves of the blocks that the box cuts, and with a smaller depth, fewer ranges, also
    leaves of blocks around it: never fewer than those of the box.
    """
    x, y, t = (1 << bits for bits in grid.resolution_bits)
    fragments = decompose_box(box, (x, y, t), grid, depth)
    stops = fragments.starts + np.left_shift(1, layout_of(grid).digits - fragments.lengths)
    ranges: list[Range] = []
    for start, stop in zip(fragments.starts.tolist(), stops.tolist(), strict=True):
        if ranges and ranges[-1][1] == start:
            ranges[-1] = ranges[-1][0], stop
        else:
            ranges.append((start, stop))
    return ranges


@dataclass(frozen=True, slots=True, init=False)
class Owners:
    """Who owns which leaf IDs.

    Examples
    --------
    >>> owners = Owners([2, 5, 11], digits=4)
    >>> owners.of(4), owners.of(5), owners.of(1)
    (2, 5, 11)
    >>> owners.next(11), owners.previous(2), owners.ranges(11)
    (2, 11, [(0, 2), (11, 16)])
    """

    ids: tuple[int, ...]
    """sorted, each once"""
    digits: int
    """of a leaf ID"""

    def __init__(self, ids: Iterable[int], digits: int) -> None:
        given = sorted(ids)
        if not given or len(set(given)) < len(given) or not 0 <= given[0] <= given[-1] < 1 << digits:
            raise CellError(
                f"owners: found IDs {given}, expected one or more, distinct, in [0, {1 << digits})"
            )
        object.__setattr__(self, "ids", tuple(given))
        object.__setattr__(self, "digits", digits)

    def of(self, leaf: int) -> int:
        """The owner of a leaf ID: the largest ID that is not above it, or the last owner."""
        return self.ids[bisect_right(self.ids, leaf) - 1]

    def next(self, leaf: int) -> int:
        """The first owner above an ID, around the end of the line."""
        return self.ids[bisect_right(self.ids, leaf) % len(self.ids)]

    def previous(self, leaf: int) -> int:
        """The last owner below an ID, around the start of the line."""
        return self.ids[bisect_left(self.ids, leaf) - 1]

    def ranges(self, owner: int) -> list[Range]:
        """What an owner owns: one range, or two for the last one."""
        at = bisect_left(self.ids, owner)
        if at == len(self.ids) or self.ids[at] != owner:
            raise CellError(f"owner {owner}: found no such owner, expected one of {list(self.ids)}")
        if at + 1 < len(self.ids):
            return [(owner, self.ids[at + 1])]
        first, end = self.ids[0], 1 << self.digits
        return [(0, first), (owner, end)] if first else [(owner, end)]

    def split(self, start: int, stop: int) -> Iterator[tuple[int, Range]]:
        """A range of leaves, cut where the owner changes."""
        while start < stop:
            at = bisect_right(self.ids, start)
            end = min(stop, self.ids[at]) if at < len(self.ids) else stop
            yield self.ids[at - 1], (start, end)
            start = end
