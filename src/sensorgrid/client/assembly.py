"""Pieces in, whole ticks out: every point of a query exactly once, in the order of the ticks.

Pieces come in any order among each other, each in the order of its ticks; they may be cut on the way, so nothing here
knows how many there are. A tick is whole when each of its points has a value or is known to have none (a gap). Values
are copied by strided assignment: for every progression of rows or columns that ever comes, its place in the array is
computed once. Memory is bounded by `ahead_max`: so many ticks may be under way. If a piece lags behind by more, the
assembly is `full`, and its streams have to start again from `next`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import Fragment
from sensorgrid.model.block import Progression, Slab, Values
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query
from sensorgrid.model.resolution import strides_of

MISSING, GAP = 0, 1
"""what `seen` holds of a point; data of revision r are r + 2"""
REVISION_MAX = np.iinfo(np.int16).max - 2
"""that `seen` can hold; later ones of a tick count as this one"""
PLACES_MAX = 65_536
"""progressions whose places are remembered"""

Place = slice | npt.NDArray[np.intp]
Rectangle = tuple[Progression, Progression]
"""rows, columns"""


@dataclass(slots=True)
class Tick:
    """One whole tick of a query."""

    tick: int
    values: npt.NDArray[np.floating]
    """[attribute, row, column]; NaN where there is no value"""
    revision: int
    """the highest of all its points"""
    missing: int
    """points that the network has no value for, over all attributes"""
    gaps: tuple[tuple[int, int, int, int], ...] = ()
    """where: bounding boxes (x0, x1, y0, y1) by index, in the order in which they were heard of"""
    again: bool = False
    """it was given before, with lower revisions"""


class Axis:
    """The indices that a query wants along one axis, and where each goes in its array."""

    def __init__(self, start: int, stop: int, limit: int, bits: int, points: int) -> None:
        self.start, self.points = start, points
        wanted = np.zeros(stop - start, dtype=bool)
        for stride in strides_of(0, limit, bits):  # beyond the date line too: whole blocks make up the axis
            wanted[(stride.offset - start) % stride.stride :: stride.stride] = True
        self.indices: npt.NDArray[np.int64] = np.flatnonzero(wanted) + start
        """ascending; beyond the date line they go on past the number of points"""
        self._place = np.where(wanted, np.cumsum(wanted) - 1, -1)
        self._known: dict[Progression, tuple[Place, Place, int]] = {}

    def __len__(self) -> int:
        return len(self.indices)

    def places(self, part: Progression) -> tuple[Place, Place, int]:
        """Where a progression goes, which of its members do, and how many these are."""
        known = self._known.get(part)
        if known is None:
            if len(self._known) >= PLACES_MAX:
                self._known.clear()
            known = self._known[part] = self._work_out(part)
        return known

    def _work_out(self, part: Progression) -> tuple[Place, Place, int]:
        offsets = (np.arange(*part) - self.start) % self.points
        inside = np.flatnonzero(offsets < len(self._place))
        to = self._place[offsets[inside]]
        inside, to = inside[to >= 0], to[to >= 0]
        return _as_slice(to), _as_slice(inside), len(to)


@dataclass(slots=True)
class _Gap:
    """Rectangles without values on the ticks [first, until)."""

    first: int
    until: int
    rectangles: list[tuple[int, Rectangle, int, int]] = field(default_factory=list)
    """(attribute's place, rectangle, offset and stride of its ticks)"""


class _Partial:
    """A tick under way."""

    __slots__ = ("filled", "gaps", "revision", "seen", "values")

    def __init__(self, shape: tuple[int, int, int], dtype: npt.DTypeLike) -> None:
        self.values = np.full(shape, np.nan, dtype)
        self.seen = np.zeros(shape, np.int16)
        self.filled = 0
        self.revision = 0
        self.gaps: dict[Rectangle, None] = {}


class Assembly:
    """One query's ticks, put together.

    Parameters
    ----------
    grid, query
        What is wanted; where a value range is given, values outside are NaN.
    start, until
        First tick, and tick after the last.
    revisions
        Whether ticks that were given are given again when they are revised; the last `lateness` of them are kept.
    """

    def __init__(
        self,
        grid: Grid,
        query: Query,
        start: int,
        until: int | None = None,
        revisions: bool = False,
        lateness: int = 8,
        ahead_max: int = 64,
    ) -> None:
        self.grid, self.query = grid, query
        box, (limit_x, limit_y, self._limit_t) = query.box(grid), query.limits(grid)
        bits_x, bits_y, self._bits_t = grid.resolution_bits
        first = first_column(grid, query, box)
        self.x = Axis(first, first + box.x1 - box.x0, limit_x, bits_x, grid.shape[0])
        self.y = Axis(box.y0, box.y1, limit_y, bits_y, grid.shape[1])
        self.shape = (len(query.attributes), len(self.y), len(self.x))
        self.dtype = np.float32 if grid.value_bytes <= 4 else np.float64
        self._of = {grid.attributes.index(name): n for n, name in enumerate(query.attributes)}
        self._ranges = {query.attributes.index(name): (low, high) for name, low, high in query.where}
        self._strides = strides_of(0, self._limit_t, self._bits_t)
        self.until = until
        self.ahead_max = ahead_max
        self.next = self._wanted_from(start)
        """the tick that is given next"""
        self.doubled = 0
        """points that came again with the same revision, and should not have"""
        self.repeated = 0
        """the same, where that was to be expected"""
        self.expects_repeats = False
        self._partial: dict[int, _Partial] = {}
        self._gaps: dict[tuple[int, int], _Gap] = {}
        self.lateness = lateness if revisions else 0
        """ticks before the next one whose revisions are wanted"""
        self._given: dict[int, _Partial] = {}
        self._dirty: dict[int, None] = {}

    @property
    def ended(self) -> bool:
        """Whether all ticks have been given."""
        return self.until is not None and self.next >= self.until

    @property
    def full(self) -> bool:
        """Whether more ticks are under way than memory is meant for."""
        return len(self._partial) > self.ahead_max

    @property
    def revised(self) -> bool:
        """Whether a tick that was given has been revised since."""
        return bool(self._dirty)

    @property
    def since(self) -> int:
        """The first tick of which anything still matters: revisions of those that were given and are kept."""
        return min(self._given, default=self.next)

    @property
    def points(self) -> int:
        """Of one tick, over all attributes."""
        return self.shape[0] * self.shape[1] * self.shape[2]

    def keeps(self, tick: int) -> bool:
        """Whether a tick was given, and is given again if it is revised."""
        return tick in self._given

    def at(self, tick: int) -> bool:
        """Whether the query has points at a tick."""
        return any(tick % stride.stride == stride.offset for stride in self._strides)

    def add(self, attribute: int, tick: int, revision: int, slabs: Iterable[Slab]) -> None:
        """Values of some points at a tick; what the query does not want of them is left out."""
        place = self._of.get(attribute)
        if place is None or not self.at(tick) or (self.until is not None and tick >= self.until):
            return
        revision = min(revision, REVISION_MAX)
        late = tick < self.next
        if late and tick not in self._given:
            return
        partial = self._given[tick] if late else self._under_way(tick)
        changed = False
        for slab in slabs:
            changed |= self._put(partial, place, revision, slab, self.expects_repeats or late)
        if late and changed:
            self._dirty[tick] = None

    def add_gap(
        self, attribute: int, box: Box, limits: tuple[int, int, int], cell: int, first: int, until: int
    ) -> None:
        """The ticks [first, until) of a piece (a cell, clipped to a box and limits) have no values."""
        place = self._of.get(attribute)
        if place is None or until <= self.next:
            return
        first = max(first, self.next)
        gap = self._gaps.setdefault((first, until), _Gap(first, until))
        for part in Fragment(Cell(cell), box, limits, 0).slices(self.grid):
            rows: Progression = (part.y.start, part.y.stop, part.y.step)
            columns: Progression = (part.x.start, part.x.stop, part.x.step)
            if self.y.places(rows)[2] and self.x.places(columns)[2]:
                item = (place, (rows, columns), *part.ticks)
                gap.rectangles.append(item)
                for tick, partial in self._partial.items():
                    if first <= tick < until:
                        self._blank(tick, partial, item)

    def take(self) -> Tick | None:
        """The next tick, if it is whole."""
        if self.ended:
            return None
        tick = self.next
        partial = self._partial.get(tick)
        if partial is None and any(g.first <= tick < g.until for g in self._gaps.values()):
            partial = self._under_way(tick)
        if partial is None or partial.filled < self.points:
            return None
        self._partial.pop(tick, None)
        self.next = self._wanted_from(tick + 1)
        for key in [key for key in self._gaps if key[1] <= self.next]:
            del self._gaps[key]
        if self.lateness:
            self._given[tick] = partial
            for old in [t for t in self._given if t <= tick - self.lateness]:
                del self._given[old]
                self._dirty.pop(old, None)
        return self._whole(tick, partial, copy=bool(self.lateness))

    def take_revised(self) -> Tick | None:
        """A tick that was given before and has been revised since."""
        if not self._dirty:
            return None
        tick = min(self._dirty)
        del self._dirty[tick]
        found = self._whole(tick, self._given[tick], copy=True)
        found.again = True
        return found

    def reset(self) -> None:
        """Forget what is under way: it will come again, from `next` on."""
        self._partial.clear()
        self._gaps.clear()

    # -- inside

    def _under_way(self, tick: int) -> _Partial:
        partial = self._partial.get(tick)
        if partial is None:
            partial = self._partial[tick] = _Partial(self.shape, self.dtype)
            for gap in self._gaps.values():
                if gap.first <= tick < gap.until:
                    for item in gap.rectangles:
                        self._blank(tick, partial, item)
        return partial

    def _put(self, partial: _Partial, place: int, revision: int, slab: Slab, repeats: bool) -> bool:
        rows, from_rows, n_rows = self.y.places(slab.y)
        columns, from_columns, n_columns = self.x.places(slab.x)
        if not (n_rows and n_columns):
            return False
        to, of = _cross(rows, columns), _cross(from_rows, from_columns)
        seen, values = partial.seen[place], self._in_range(place, slab.values[of])
        before = seen[to]
        mark: int | npt.NDArray[np.int16] = revision + 2
        highest = int(before.max())
        if highest == MISSING:  # nearly always
            partial.filled += before.size
        else:
            partial.filled += int((before == MISSING).sum())
            stale = before >= mark
            if highest >= mark:
                again = int((before == mark).sum())
                self.repeated += again * repeats
                self.doubled += again * (not repeats)
                if stale.all():
                    return False
                values = np.where(stale, partial.values[place][to], values)
                mark = np.where(stale, before, mark)
        seen[to] = mark
        partial.values[place][to] = values
        partial.revision = max(partial.revision, revision)
        return True

    def _in_range(self, place: int, values: Values) -> Values:
        if place not in self._ranges:
            return values
        low, high = self._ranges[place]
        return np.where((values >= low) & (values <= high), values, np.nan)

    def _blank(self, tick: int, partial: _Partial, item: tuple[int, Rectangle, int, int]) -> None:
        place, (rows, columns), offset, stride = item
        if tick % stride != offset:
            return
        to = _cross(self.y.places(rows)[0], self.x.places(columns)[0])
        before = partial.seen[place][to]
        fresh = before == MISSING
        partial.filled += int(fresh.sum())
        partial.seen[place][to] = np.where(fresh, GAP, before)
        partial.gaps[rows, columns] = None

    def _whole(self, tick: int, partial: _Partial, copy: bool) -> Tick:
        values = partial.values.copy() if copy else partial.values
        missing = int((partial.seen == GAP).sum()) if partial.gaps else 0
        gaps = tuple((x[0], x[1], y[0], y[1]) for y, x in partial.gaps) if missing else ()
        return Tick(tick, values, partial.revision, missing, gaps)

    def _wanted_from(self, tick: int) -> int:
        """The first tick from here on at which the query has points."""
        return tick + min((stride.offset - tick) % stride.stride for stride in self._strides)


def first_column(grid: Grid, query: Query, box: Box) -> int:
    """Where the columns begin: a box around the whole earth begins where the query says, not where the grid does."""
    if not grid.wraps or query.bbox is None or box.x1 - box.x0 < grid.shape[0]:
        return box.x0
    west = grid.extent[0] + (query.bbox[0] - grid.extent[0]) % 360
    return int(np.ceil((west - grid.extent[0]) / grid.spacing[0] - 0.5)) % grid.shape[0]


def _as_slice(places: npt.NDArray[np.intp]) -> Place:
    """Evenly spaced places as a slice: views and strided assignment instead of index arrays."""
    if len(places) == 0:
        return slice(0, 0)
    if len(places) == 1:
        return slice(int(places[0]), int(places[0]) + 1)
    step = int(places[1] - places[0])
    if step > 0 and (np.diff(places) == step).all():
        return slice(int(places[0]), int(places[-1]) + 1, step)
    return places


def _cross(rows: Place, columns: Place) -> tuple[Place, Place]:
    if isinstance(rows, slice) or isinstance(columns, slice):
        return rows, columns
    return np.ix_(rows, columns)  # type: ignore[return-value]
