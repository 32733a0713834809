"""What clients take from a broker and could take from another: sums per cell, updated entry by entry.

Two sums. `whole` counts an entry at exactly its cell, which is what the paper's load(r) needs: queries that lie in a
region altogether. `parts` spreads each entry over the finest cells that may be delegated, since an entry that is
larger than a delegated cell can be cut. How an entry spreads is computed on demand, once per entry.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sensorgrid.index.codes import contains, prefixes
from sensorgrid.index.decompose import points_in
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid

if TYPE_CHECKING:
    from sensorgrid.overlay.outlets import Entry

FINER_MAX = 6
"""digits by which a delegated cell may be longer than the supply it is part of: an entry has at most 64 parts"""


@dataclass(slots=True)
class Load:
    """What clients have in a cell."""

    points: int = 0
    """per period"""
    receivers: int = 0


Sums = dict[int, dict[int, Load]]
"""by attribute and cell"""


class Loads:
    """Of one broker: clients' entries that are fed and stay where they are."""

    def __init__(self, grid: Grid, depth: int) -> None:
        self.grid = grid
        self.depth = depth
        self._whole: Sums = {}
        self._parts: Sums = {}
        # Entries that the sums lack: most come and go without anybody asking.
        self._not_in_whole: dict[Entry, None] = {}
        self._not_in_parts: dict[Entry, None] = {}

    def add(self, entry: "Entry") -> None:
        """Count an entry."""
        self._not_in_whole[entry] = self._not_in_parts[entry] = None

    def remove(self, entry: "Entry") -> None:
        """Stop counting it."""
        if entry in self._not_in_whole:
            del self._not_in_whole[entry]
        else:
            _change(self._whole, entry.attribute, {entry.cell: entry.size}, -1)
        if entry in self._not_in_parts:
            del self._not_in_parts[entry]
        else:
            _change(self._parts, entry.attribute, self._spread(entry), -1)

    def whole(self) -> Sums:
        """By attribute and cell: entries at exactly this cell."""
        for entry in self._not_in_whole:
            _change(self._whole, entry.attribute, {entry.cell: entry.size}, 1)
        self._not_in_whole.clear()
        return self._whole

    def parts(self) -> Sums:
        """By attribute and finest cell: all entries; a larger entry counts by its points in the cell."""
        for entry in self._not_in_parts:
            _change(self._parts, entry.attribute, self._spread(entry), 1)
        self._not_in_parts.clear()
        return self._parts

    def share(self, entry: "Entry", cell: int) -> int:
        """Points of an entry in a cell."""
        if entry.cell.bit_length() >= cell.bit_length():
            return entry.size
        spread = self._spread(entry)
        if cell in spread:
            return spread[cell]
        return sum(points for part, points in spread.items() if contains(cell, part))

    def _spread(self, entry: "Entry") -> dict[int, int]:
        if entry.spread is None:
            assert entry.supply is not None
            assert entry.clip is not None
            digits = min(self.depth, entry.supply.cell.bit_length() - 1 + FINER_MAX)
            entry.spread = self._spread_over(entry, digits)
        return entry.spread

    def _spread_over(self, entry: "Entry", digits: int) -> dict[int, int]:
        finer = digits - (entry.cell.bit_length() - 1)
        if finer <= 0:
            return {entry.cell >> -finer: entry.size}
        cells = list(range(entry.cell << finer, entry.cell + 1 << finer))
        assert entry.clip is not None
        counts = points_in(Box(*entry.clip.box), entry.clip.limits, cells, self.grid)
        return {cell: points for cell, points in zip(cells, counts, strict=True) if points}


def summed(sums: dict[int, Load], shortest: int = 1) -> dict[int, Load]:
    """The same for every cell that contains one of them, of at least so many digits."""
    found: dict[int, Load] = {}
    for cell, load in sums.items():
        for code in prefixes(cell, shortest):
            total = found.get(code)
            if total is None:
                total = found[code] = Load()
            total.points += load.points
            total.receivers += load.receivers
    return found


def _change(sums: Sums, attribute: int, items: dict[int, int], sign: int) -> None:
    mine = sums.setdefault(attribute, {})
    for cell, points in items.items():
        load = mine.get(cell)
        if load is None:
            load = mine[cell] = Load()
        load.points += sign * points
        load.receivers += sign
        if not load.receivers:
            del mine[cell]
