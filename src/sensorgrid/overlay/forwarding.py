"""How a tick of a supply is cut for its receivers: compiled from control state, used for every block.

Receivers that want the same part of the same cell share one row. A block is looked up once, each row is cut
once, and the same slabs go to all its entries. Rows are compiled when the first block needs them.

Most receivers of a supply go in step: each has had all ticks and wants one rectangle of the next. They make one
`SendPlan`, compiled when a receiver joins or leaves and carried out tick after tick (the effect `Spread`). One `Send`
for each of thousands of receivers would cost more than the sending itself.
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
"""with fewer receivers a plan costs more than it saves"""


class ReceiverGroup:
    """Receivers that get the very same message: a rectangle of every tick."""

    __slots__ = ("cell", "epoch", "generation", "peers", "x", "y")

    def __init__(
        self, cell: int, generation: int, wanted: Wanted, peers: tuple[PeerId, ...], epoch: int
    ) -> None:
        self.cell = cell
        self.generation = generation
        self.epoch = epoch
        self.y = wanted.y
        """rows"""
        self.x = wanted.x
        """columns"""
        self.peers = peers

    def feed(self, tick: int, slab: Slab) -> Feed:
        """What each of them is sent."""
        slabs = cut((slab,), (Wanted(self.y, self.x, 0, 1),), tick)
        return Feed(self.generation, self.cell, tick, 0, slabs, 0, self.epoch)


class SendPlan:
    """All receivers of a supply, compiled; never changed once it is made."""

    __slots__ = ("groups", "memo", "points", "receivers", "x", "y")

    def __init__(self, y: Progression, x: Progression, groups: tuple[ReceiverGroup, ...]) -> None:
        self.y = y
        """rows of the blocks that it is made for"""
        self.x = x
        """their columns"""
        self.groups = groups
        self.receivers = sum(len(group.peers) for group in groups)
        self.points = sum(len(range(*s.y)) * len(range(*s.x)) * len(s.peers) for s in groups)
        """values sent to all of them in total"""
        self.memo: Any = None
        """for the driver that carries it out"""

    def sends(self, tick: int, slab: Slab) -> Iterator[tuple[PeerId, Feed]]:
        """Each receiver with its message."""
        for group in self.groups:
            feed = group.feed(tick, slab)
            for peer in group.peers:
                yield peer, feed


class Row:
    """Receivers that want the same part of the same cell."""

    __slots__ = ("cell", "clip", "entries", "straight", "wanted")

    def __init__(self, cell: int, clip: Clip | None) -> None:
        self.cell = cell
        self.clip = clip
        self.entries: list[Entry] = []
        self.wanted: tuple[Wanted, ...] | None = None
        """compiled when first needed"""
        self.straight: bool | None = None
        """whether that is one rectangle of every block, whatever its tick and values; None: not known yet"""

    def compiled(self, grid: Grid) -> tuple[Wanted, ...]:
        """What they want, as strided rectangles."""
        if self.wanted is None:
            self.wanted = wanted_of(grid, self.cell, self.clip)
        return self.wanted

    def is_straight(self, grid: Grid, slab: Slab) -> bool:
        """See `straight`."""
        wanted, clip = self.compiled(grid), self.clip
        if len(wanted) != 1 or wanted[0].stride != 1:
            return False
        if clip is not None and (clip.low is not None or clip.high is not None):
            return False
        return (meet(wanted[0].y, slab.y), meet(wanted[0].x, slab.x)) == (wanted[0].y, wanted[0].x)

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

    __slots__ = ("_epoch", "_like", "_plan", "rows", "stale")

    def __init__(self) -> None:
        self.rows: dict[tuple[int, Clip | None], Row] = {}
        self.stale = True
        """whether other entries go in step than those in the plan"""
        self._plan: SendPlan | None = None
        self._epoch = 0
        """of the owner when the plan was made"""
        self._like: tuple[Progression, Progression] = ((0, 0, 1), (0, 0, 1))
        """rows and columns of the blocks that the plan is for"""

    def add(self, entry: "Entry") -> None:
        """Another receiver."""
        key = (entry.cell, entry.clip)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(*key)
        row.entries.append(entry)
        entry.in_step = False

    def remove(self, entry: "Entry") -> None:
        """One receiver less."""
        key = (entry.cell, entry.clip)
        row = self.rows[key]
        row.entries.remove(entry)
        if not row.entries:
            del self.rows[key]
        self.stale |= entry.in_step

    def blocks_like(self, grid: Grid, slab: Slab) -> None:
        """Work out which rows are one rectangle of every block like this."""
        if self._like != (slab.y, slab.x):
            self._like = (slab.y, slab.x)
            self.stale = True
            for row in self.rows.values():
                row.straight = None
        for row in self.rows.values():
            if row.straight is None:
                row.straight = row.is_straight(grid, slab)

    def plan(self, epoch: int) -> SendPlan:
        """For the entries that go in step."""
        if self._plan is None or self.stale or epoch != self._epoch:
            self._epoch = epoch
            groups: list[ReceiverGroup] = []
            for row in self.rows.values():
                peers: dict[int, list[PeerId]] = {}
                for entry in row.entries:
                    if entry.in_step:
                        peers.setdefault(entry.generation, []).append(entry.peer)
                if peers:
                    assert row.wanted is not None, f"{row.cell:b} is not compiled"
                    groups += [
                        ReceiverGroup(row.cell, g, row.wanted[0], tuple(p), epoch) for g, p in peers.items()
                    ]
            self._plan = SendPlan(*self._like, tuple(groups))
            self.stale = False
        return self._plan


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
