"""How a tick of a supply is cut for its receivers: compiled from control state, used for every block.

Receivers that want the same part of the same cell share one row. A block is looked up once, each row is cut
once, and the same slabs go to all its entries. Rows are compiled when the first block needs them.
"""

from typing import TYPE_CHECKING

import numpy as np

from sensorgrid.index.cell import Cell, CellSlices
from sensorgrid.index.decompose import Fragment
from sensorgrid.model.block import Slab, Wanted, cut, masked
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.overlay.messages import Clip

if TYPE_CHECKING:
    from sensorgrid.overlay.outlets import Entry


class Row:
    """Receivers that want the same part of the same cell."""

    __slots__ = ("cell", "clip", "entries", "wanted")

    def __init__(self, cell: int, clip: Clip | None) -> None:
        self.cell = cell
        self.clip = clip
        self.entries: list[Entry] = []
        self.wanted: tuple[Wanted, ...] | None = None
        """compiled when first needed"""

    def part(
        self, grid: Grid, slabs: tuple[Slab, ...] | None, tick: int
    ) -> tuple[tuple[Slab, ...] | None, int]:
        """Their part of a tick, and how many of its points a value range masked."""
        if slabs is None:
            return None, 0
        if self.wanted is None:
            self.wanted = wanted_of(grid, self.cell, self.clip)
        part = cut(slabs, self.wanted, tick)
        clip = self.clip
        if clip is None or (clip.low is None and clip.high is None):
            return part, 0
        low = float("-inf") if clip.low is None else clip.low
        high = float("inf") if clip.high is None else clip.high
        shown = masked(part, low, high)
        return shown, _blanks(shown) - _blanks(part)


class Table:
    """Rows by cell and clip."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[tuple[int, Clip | None], Row] = {}

    def add(self, entry: "Entry") -> None:
        """Another receiver."""
        key = (entry.cell, entry.clip)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(*key)
        row.entries.append(entry)

    def remove(self, entry: "Entry") -> None:
        """One receiver less."""
        key = (entry.cell, entry.clip)
        row = self.rows[key]
        row.entries.remove(entry)
        if not row.entries:
            del self.rows[key]


def wanted_of(grid: Grid, cell: int, clip: Clip | None) -> tuple[Wanted, ...]:
    """What a receiver wants of a cell, as strided rectangles."""
    if clip is None:
        slices: tuple[CellSlices, ...] = (Cell(cell).slices(grid),)
    else:
        slices = Fragment(Cell(cell), Box(*clip.box), clip.limits, 0).slices(grid)
    return tuple(
        Wanted((s.y.start, s.y.stop, s.y.step), (s.x.start, s.x.stop, s.x.step), *s.ticks) for s in slices
    )


def _blanks(slabs: tuple[Slab, ...]) -> int:
    return sum(int(np.isnan(slab.values).sum()) for slab in slabs)
