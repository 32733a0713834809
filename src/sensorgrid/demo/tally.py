"""Counting what a client receives, point by point: independent of the client's own books.

A tally holds, for every tick and attribute of a query, one array over the whole grid. It sees every delivery as
a client is handed it; what came twice over the wire and was dropped on the way is not seen here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sensorgrid.model.block import Progression, Slab
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query
from sensorgrid.model.resolution import reverse_bits

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class ReceivedTick:
    """One tick of one attribute, as far as it has come."""

    values: npt.NDArray[np.float32]
    """[row, column] of the whole grid; NaN where nothing has come"""
    revision: npt.NDArray[np.int16]
    """the highest that has come; -1: nothing"""


@dataclass(slots=True)
class Tally:
    """What one query has received."""

    grid: Grid
    query: Query
    away: Mask
    """points of regions that the client's target broker does not own, [row, column]"""
    mask: Mask = field(init=False)
    """points that it asks for"""
    points: int = field(init=False)
    """of one tick, over all attributes"""
    received: dict[tuple[int, int], ReceivedTick] = field(default_factory=dict)
    """by tick and attribute"""
    filled: dict[int, int] = field(default_factory=dict)
    """points of each tick that have come, over all attributes"""
    complete_s: dict[int, float] = field(default_factory=dict)
    """when each tick was first complete, in seconds since 1970"""
    delivered: int = 0
    """points that came, revisions included"""
    delivered_away: int = 0
    """those of them that came from regions of other brokers"""
    doubled: int = 0
    """points that came again without a higher revision"""
    uninvited: int = 0
    """points that were not asked for"""
    gaps: int = 0
    """announcements that there is no value"""

    def __post_init__(self) -> None:
        self.mask = wanted_points(self.grid, self.query)
        self.points = int(self.mask.sum()) * len(self.query.attributes)

    def wants(self, tick: int) -> bool:
        """Whether the query asks for anything at a tick."""
        bits = self.grid.resolution_bits[2]
        return reverse_bits(tick % (1 << bits), bits) < self.query.limits(self.grid)[2]

    def deliver(self, attribute: int, tick: int, revision: int, slabs: Iterable[Slab], now_s: float) -> bool:
        """Take values; says whether they complete the tick."""
        expected = self.grid.attributes[attribute] in self.query.attributes and self.wants(tick)
        known = self._of(tick, attribute)
        for slab in slabs:
            where = np.s_[_slice(slab.y), _slice(slab.x)]
            before = known.revision[where]
            asked = self.mask[where] if expected else np.zeros_like(before, np.bool_)
            self.uninvited += int((~asked).sum())
            stale = before >= revision
            self.doubled += int((asked & stale).sum())
            fresh = asked & ~stale
            self.delivered += int(fresh.sum())
            self.delivered_away += int((fresh & self.away[where]).sum())
            self.filled[tick] = self.filled.get(tick, 0) + int((fresh & (before < 0)).sum())
            known.values[where] = np.where(fresh, slab.values, known.values[where])
            known.revision[where] = np.where(fresh, revision, before)
        if self.filled.get(tick, 0) == self.points and tick not in self.complete_s:
            self.complete_s[tick] = now_s
            return True
        return False

    def _of(self, tick: int, attribute: int) -> ReceivedTick:
        known = self.received.get((tick, attribute))
        if known is None:
            shape = self.grid.shape[::-1]
            known = self.received[tick, attribute] = ReceivedTick(
                np.full(shape, np.nan, np.float32), np.full(shape, -1, np.int16)
            )
        return known


def wanted_points(grid: Grid, query: Query) -> Mask:
    """The points that a query asks for, [row, column]: from the definition, point by point, without any cell."""
    box, (limit_x, limit_y, _) = query.box(grid), query.limits(grid)
    bits_x, bits_y, _ = grid.resolution_bits
    columns, rows = np.zeros(grid.shape[0], np.bool_), np.zeros(grid.shape[1], np.bool_)
    for x in range(box.x0, box.x1):
        columns[x % grid.shape[0]] = reverse_bits(x % grid.shape[0] % (1 << bits_x), bits_x) < limit_x
    for y in range(box.y0, box.y1):
        rows[y] = reverse_bits(y % (1 << bits_y), bits_y) < limit_y
    return rows[:, None] & columns[None, :]


def _slice(part: Progression) -> slice:
    return slice(*part)
