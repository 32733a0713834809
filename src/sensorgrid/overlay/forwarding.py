"""How a tick of a supply is cut for its receivers: compiled from control state, used for every block.

Receivers that want the same part of the same cell share one row. A block is looked up once, each row is cut
once, and the same slabs go to all its entries. Rows are compiled when the first block needs them.

Mostly all receivers of a supply go in step: each has had all ticks and wants one rectangle of the next. Then the
whole table is one `Plan`, compiled once and carried out for tick after tick (the effect `Spread`), as what it costs
to say the same to thousands one by one is more than what it costs to send it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorgrid.index.cell import Cell, CellSlices
from sensorgrid.index.decompose import Fragment
from sensorgrid.model.block import Progression, Slab, Wanted, cut, masked, meet
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.messages import Clip, Feed

if TYPE_CHECKING:
    from sensorgrid.overlay.outlets import Entry

PLAN_MIN = 8
"""receivers below which a plan is not worth its making"""


class Share:
    """Receivers that get the very same message: a rectangle of every tick."""

    __slots__ = ("cell", "generation", "peers", "x", "y")

    def __init__(self, cell: int, generation: int, wanted: Wanted, peers: tuple[PeerId, ...]) -> None:
        self.cell = cell
        self.generation = generation
        self.y = wanted.y
        """rows"""
        self.x = wanted.x
        """columns"""
        self.peers = peers

    def feed(self, tick: int, slab: Slab) -> Feed:
        """What each of them is sent."""
        slabs = cut((slab,), (Wanted(self.y, self.x, 0, 1),), tick)
        return Feed(self.generation, self.cell, tick, 0, slabs)


class Plan:
    """All receivers of a supply, compiled; never changed once it is made."""

    __slots__ = ("memo", "points", "receivers", "shares", "x", "y")

    def __init__(self, y: Progression, x: Progression, shares: tuple[Share, ...]) -> None:
        self.y = y
        """rows of the blocks that it is made for"""
        self.x = x
        """their columns"""
        self.shares = shares
        self.receivers = sum(len(share.peers) for share in shares)
        self.points = sum(len(range(*s.y)) * len(range(*s.x)) * len(s.peers) for s in shares)
        """values that all of them get together"""
        self.memo: Any = None
        """of whoever carries it out"""

    def sends(self, tick: int, slab: Slab) -> Iterator[tuple[PeerId, Feed]]:
        """Who is sent what."""
        for share in self.shares:
            feed = share.feed(tick, slab)
            for peer in share.peers:
                yield peer, feed


class Row:
    """Receivers that want the same part of the same cell."""

    __slots__ = ("cell", "clip", "entries", "wanted")

    def __init__(self, cell: int, clip: Clip | None) -> None:
        self.cell = cell
        self.clip = clip
        self.entries: list[Entry] = []
        self.wanted: tuple[Wanted, ...] | None = None
        """compiled when first needed"""

    def compiled(self, grid: Grid) -> tuple[Wanted, ...]:
        """What they want, as strided rectangles."""
        if self.wanted is None:
            self.wanted = wanted_of(grid, self.cell, self.clip)
        return self.wanted

    def part(
        self, grid: Grid, slabs: tuple[Slab, ...] | None, tick: int
    ) -> tuple[tuple[Slab, ...] | None, int]:
        """Their part of a tick, and how many of its points a value range masked."""
        if slabs is None:
            return None, 0
        part = cut(slabs, self.compiled(grid), tick)
        clip = self.clip
        if clip is None or (clip.low is None and clip.high is None):
            return part, 0
        low = float("-inf") if clip.low is None else clip.low
        high = float("inf") if clip.high is None else clip.high
        shown = masked(part, low, high)
        return shown, _blanks(shown) - _blanks(part)


class Table:
    """Rows by cell and clip."""

    __slots__ = ("_plan", "_planned", "rows")

    def __init__(self) -> None:
        self.rows: dict[tuple[int, Clip | None], Row] = {}
        self._plan: Plan | None = None
        self._planned: tuple[Progression, Progression] | None = None
        """rows and columns of the blocks for which `_plan` is the answer; None: not known any more"""

    def add(self, entry: "Entry") -> None:
        """Another receiver."""
        key = (entry.cell, entry.clip)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(*key)
        row.entries.append(entry)
        self._planned = None

    def remove(self, entry: "Entry") -> None:
        """One receiver less."""
        key = (entry.cell, entry.clip)
        row = self.rows[key]
        row.entries.remove(entry)
        if not row.entries:
            del self.rows[key]
        self._planned = None

    def plan(self, grid: Grid, slabs: tuple[Slab, ...]) -> Plan | None:
        """The plan for blocks like this one; None if some receiver wants more than a rectangle of every tick."""
        if len(slabs) != 1:
            return None
        slab = slabs[0]
        if self._planned != (slab.y, slab.x):
            self._planned = (slab.y, slab.x)
            self._plan = self._make(grid, slab)
        return self._plan

    def _make(self, grid: Grid, slab: Slab) -> Plan | None:
        if sum(len(row.entries) for row in self.rows.values()) < PLAN_MIN:
            return None
        shares: list[Share] = []
        for row in self.rows.values():
            wanted = row.compiled(grid)
            clip = row.clip
            if len(wanted) != 1 or wanted[0].stride != 1 or (clip and (clip.low, clip.high) != (None, None)):
                return None
            if (meet(wanted[0].y, slab.y), meet(wanted[0].x, slab.x)) != (wanted[0].y, wanted[0].x):
                return None
            by_generation: dict[int, list[PeerId]] = {}
            for entry in row.entries:
                by_generation.setdefault(entry.generation, []).append(entry.peer)
            shares += [Share(row.cell, g, wanted[0], tuple(peers)) for g, peers in by_generation.items()]
        return Plan(slab.y, slab.x, tuple(shares))


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
