"""What clients have from a broker and could have from another: sums per cell, kept up to date entry by entry.

Two sums. `whole` counts an entry at exactly its cell, which is what the paper's load(r) needs: queries that lie in
a region altogether. `parts` spreads each entry over the finest cells that may be delegated, since an entry that is
larger than a delegated cell can be cut. How an entry spreads is worked out when somebody asks, once per entry.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sensorgrid.index.codes import prefixes
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
        self.whole: Sums = {}
        """entries at exactly this cell"""
        self._parts: Sums = {}
        self._new: dict[Entry, None] = {}
        """entries that `_parts` lacks"""

    def add(self, entry: "Entry") -> None:
        """Count an entry."""
        _change(self.whole, entry.attribute, ((entry.cell, entry.size),), 1)
        self._new[entry] = None

    def remove(self, entry: "Entry") -> None:
        """Count it no longer."""
        _change(self.whole, entry.attribute, ((entry.cell, entry.size),), -1)
        if entry in self._new:
            del self._new[entry]
        else:
            _change(self._parts, entry.attribute, self._spread(entry), -1)

    def parts(self) -> Sums:
        """By attribute and finest cell: all entries, those that are larger by their share in it."""
        for entry in self._new:
            _change(self._parts, entry.attribute, self._spread(entry), 1)
        self._new.clear()
        return self._parts

    def share(self, entry: "Entry", cell: int) -> int:
        """Points of an entry in a cell."""
        if entry.cell.bit_length() >= cell.bit_length():
            return entry.size
        down = cell.bit_length()
        return sum(
            points
            for part, points in self._spread(entry)
            if part.bit_length() >= down and part >> (part.bit_length() - down) == cell
        )

    def _spread(self, entry: "Entry") -> tuple[tuple[int, int], ...]:
        if entry.spread is None:
            assert entry.supply is not None
            digits = min(self.depth, entry.supply.cell.bit_length() - 1 + FINER_MAX)
            entry.spread = self._spread_over(entry, digits)
        return entry.spread

    def _spread_over(self, entry: "Entry", digits: int) -> tuple[tuple[int, int], ...]:
        finer = digits - (entry.cell.bit_length() - 1)
        if finer <= 0:
            return ((entry.cell >> -finer, entry.size),)
        cells = list(range(entry.cell << finer, entry.cell + 1 << finer))
        assert entry.clip is not None
        counts = points_in(Box(*entry.clip.box), entry.clip.limits, cells, self.grid)
        return tuple((cell, points) for cell, points in zip(cells, counts, strict=True) if points)


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


def _change(sums: Sums, attribute: int, items: tuple[tuple[int, int], ...], sign: int) -> None:
    mine = sums.setdefault(attribute, {})
    for cell, points in items:
        load = mine.get(cell)
        if load is None:
            load = mine[cell] = Load()
        load.points += sign * points
        load.receivers += sign
        if not load.receivers:
            del mine[cell]
