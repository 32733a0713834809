"""The book of one region: which measurements it has, which ticks it has published, what may still change.

This is the stateful part of the stream, without Spark: measurements and the time come in, grids and counts go
out. It keeps the rows of each open tick, publishes a tick `settle_s` after its end by the clock that it is told,
takes late measurements for another `lateness_s` and re-issues what they change with the next revision, and then
closes the tick: what comes later is counted and named, not used.

Revisions wait for a turn of the clock. So a tick has at most one revision more than ticks fit into the lateness,
however many late measurements drip in. The stream calls `publish` when a tick falls due and `advance` half a tick
later, so that revisions, which are most of the work, never delay a new tick.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.coverage import Gaps
from sensorgrid.pipeline.gridding.groups import Group
from sensorgrid.pipeline.gridding.kernels.interface import Floats
from sensorgrid.pipeline.gridding.measurements import Measurements, concatenate, decode, deduplicate, split_by
from sensorgrid.pipeline.gridding.moves import NO_MOVES, Moves, bad_rows, moves
from sensorgrid.pipeline.gridding.series import (
    Checked,
    Past,
    SeriesLimits,
    Surroundings,
    check_series,
    fold,
)
from sensorgrid.pipeline.gridding.tile import (
    Covariates,
    Recipe,
    RegionEvidence,
    RegionGrid,
    evidence_around,
    grid_region,
)


@dataclass(frozen=True, slots=True)
class Timing:
    """When a tick is published, how long it may change, how long a value lasts."""

    settle_s: float
    """a tick is published so long after its end"""
    lateness_s: float
    """and may change for so long after that"""
    max_age_s: float
    """a sensor's last value is used for so long"""
    hold_s: float = 0.0
    """and a grid stands for so long after that where nothing else is within reach, if gaps are held"""

    def due(self, grid: Grid, now_us: int) -> int:
        """The newest tick that must have been published by `now`."""
        return int((now_us - round(self.settle_s * 1e6)) // _tick_us(grid)) - 1

    def closed(self, grid: Grid, now_us: int) -> int:
        """The newest tick that cannot change any more."""
        return self.due(grid, now_us - round(self.lateness_s * 1e6))

    def reach(self, grid: Grid) -> int:
        """For how many ticks after its own a measurement can matter."""
        return ceil(round((self.max_age_s + self.hold_s) * 1e6) / _tick_us(grid))


class Recipes(Protocol):
    """Knows how a group is gridded at a tick; the plan of a lake is one."""

    def recipe(self, group: Group, tick: int) -> Recipe:
        """The recipe that is valid at `tick`."""
        ...


@dataclass(frozen=True, slots=True)
class Domain:
    """What all regions of a group have in common."""

    grid: Grid
    group: Group
    timing: Timing
    limits: tuple[SeriesLimits, ...]
    """one for each input of the group"""
    recipes: Recipes
    start_tick: int
    """the first tick to publish"""
    heights: Callable[[int], Floats | None] = lambda region: None
    """of the points of a region, if they are known"""
    covariates: Covariates | None = None
    """further ones that grids may follow"""
    gaps: tuple[Gaps, ...] = ()
    """for each output of the group what stands where nothing is within reach; `prior` if left out"""

    def check(self, rows: Measurements, past: Past) -> Checked:
        """Check rows against their own past, and fast changes against their neighbours'."""
        around = Surroundings(self.grid.coordinates, self.grid.tick)
        return check_series(rows, self.limits, self.timing.max_age_s, past, around)

    def grid_at(
        self, checked: Checked, region: int, tick: int, seen: dict[int, RegionEvidence] | None = None
    ) -> RegionGrid:
        """One region at one tick; `seen` remembers what was known at which tick, if gaps are held."""
        recipe, timing = self.recipes.recipe(self.group, tick), self.timing
        if "hold" not in self.gaps:
            return grid_region(
                checked, self.group, self.grid, region, tick, timing.max_age_s, recipe, self.heights(region),
                self.gaps, covariates=self.covariates,
            )  # fmt: skip
        known = {} if seen is None else seen

        def at(when: int) -> RegionEvidence:
            if when not in known:
                known[when] = evidence_around(
                    checked, self.group, self.grid, when, timing.max_age_s, self.recipes.recipe(self.group, when),
                    self.covariates,
                )  # fmt: skip
            return known[when]

        hold_ticks = round(timing.hold_s * 1e6) // _tick_us(self.grid)
        for old in [when for when in known if when < tick - hold_ticks]:
            del known[old]
        return grid_region(
            checked, self.group, self.grid, region, tick, timing.max_age_s, recipe, self.heights(region),
            self.gaps, hold_ticks, at, at(tick), self.covariates,
        )  # fmt: skip

    @property
    def context_s(self) -> float:
        """How much of the past decides what a tick looks like: the backfill must have it at hand."""
        # A verdict looks at two rows before, each within a gap, or at all rows within the time of a flat line.
        # Sensors that may have seen the same change are asked from the tick before on, and from their row before that.
        longest = max(limit.flat_s for limit in self.limits)
        held_s = self.timing.hold_s if "hold" in self.gaps else 0.0
        return held_s + max(
            3 * self.timing.max_age_s, 2 * self.timing.max_age_s + max(longest, 2 * self.grid.tick)
        )


class Rows(Protocol):
    """Where a book keeps the rows of its open ticks; in the stream, Spark's state."""

    def get(self, tick: int) -> bytes | None:
        """The rows of a tick, if there are any."""
        ...

    def put(self, tick: int, data: bytes) -> None:
        """Keep the rows of a tick."""
        ...

    def remove(self, tick: int) -> None:
        """Forget them."""
        ...


@dataclass(slots=True)
class OpenTick:
    """What is known of a tick that has been published and is still open."""

    revisions: tuple[int, ...]
    """of each tile"""
    digests: tuple[str, ...]
    flagged: int
    """measurements of the tick that were found bad by then"""
    suspect: int = 0
    """and those that were used with a larger error"""
    bad: bytes = b""
    """who measured them (see `moves`)"""


@dataclass(slots=True)
class State:
    """What a book remembers between two turns, beside the rows."""

    next_tick: int
    closed: int
    """this tick and all before it cannot change any more"""
    folded: int
    """rows of this tick and all before it are only in `past`"""
    ticks: list[int] = field(default_factory=list)
    """open ticks that have rows"""
    published: dict[int, OpenTick] = field(default_factory=dict)
    dirty: list[int] = field(default_factory=list)
    """published ticks that a late measurement may have changed"""
    past: Past = field(default_factory=Past.nothing)

    def encode(self) -> bytes:
        """As bytes."""
        head = {
            "next": self.next_tick, "closed": self.closed, "folded": self.folded, "ticks": self.ticks,
            "published": [
                (t, p.revisions, p.digests, p.flagged, p.suspect, b64encode(p.bad).decode())
                for t, p in self.published.items()
            ],
            "dirty": self.dirty,
        }  # fmt: skip
        text = json.dumps(head, separators=(",", ":")).encode()
        return len(text).to_bytes(4, "little") + text + self.past.encode()

    @classmethod
    def decode(cls, data: bytes) -> "State":
        """Read what `encode` wrote."""
        size = int.from_bytes(data[:4], "little")
        head = json.loads(data[4 : 4 + size])
        # States that were written before suspects were counted, or bad ones named, lack what comes last.
        published = {
            t: OpenTick(tuple(r), tuple(d), f, rest[0] if rest else 0, b64decode("".join(rest[1:])))
            for t, r, d, f, *rest in head["published"]
        }
        past = Past.decode(data[4 + size :])
        return cls(
            head["next"], head["closed"], head["folded"], head["ticks"], published, head["dirty"], past
        )


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What became of measurements that arrived; only those at home are counted."""

    used: int
    duplicate: int
    late: Measurements
    """those that came too late, to be named"""


@dataclass(frozen=True, slots=True)
class Issue:
    """A tick that is published or re-issued."""

    tick: int
    grid: RegionGrid
    revisions: tuple[int | None, ...]
    """of each tile; None where it has not changed since the last issue and need not be sent"""
    flagged: int
    """measurements that turned out bad since the last issue: so many fewer are used"""
    suspect: int = 0
    """measurements that turned out suspect since then, and are used all the same"""
    moves: Moves = NO_MOVES
    """the same by sensor"""


class Book:
    """The book of one region and group of attributes."""

    def __init__(self, domain: Domain, region: int, rows: Rows, state: State | None = None) -> None:
        self._domain = domain
        self._region = region
        self._rows = rows
        reach = domain.timing.reach(domain.grid)
        before = domain.start_tick - reach - 1
        self.state = state or State(domain.start_tick, closed=before, folded=before)

    def receive(self, parts: list[Measurements]) -> Arrivals:
        """Take measurements, from home and halo; exact repeats of known ones are dropped and counted."""
        state, domain = self.state, self._domain
        rows = concatenate(parts)
        ticks = rows.time_us // _tick_us(domain.grid)
        is_late = ticks <= state.closed
        late = rows.take(is_late & (rows.home == 1))
        used = 0
        for tick, arrived in split_by(ticks[~is_late], rows.take(~is_late)):
            known = self._rows.get(tick) if tick in state.ticks else None
            before = decode(known) if known is not None else None
            merged, _ = deduplicate([arrived] if before is None else [before, arrived])
            used += int(merged.home.sum()) - (0 if before is None else int(before.home.sum()))
            data = merged.encode()
            if data != known:
                self._rows.put(tick, data)
                self._touch(tick)
        return Arrivals(used, int(rows.home.sum()) - used - len(late), late)

    def _touch(self, tick: int) -> None:
        state = self.state
        if tick not in state.ticks:
            state.ticks = sorted([*state.ticks, tick])
        # All later ticks: verdicts on later rows of the series may change. What has not is not issued again.
        state.dirty = sorted({t for t in state.published if t >= tick}.union(state.dirty))

    def publish(self, now_us: int) -> Iterator[Issue]:
        """Publish what is due, and leave everything else to the next `advance`: others wait for this."""
        state, due = self.state, self._domain.timing.due(self._domain.grid, now_us)
        if state.next_tick > due:
            return
        checked = self._checked()
        seen: dict[int, RegionEvidence] = {}
        for tick in range(state.next_tick, due + 1):
            issue = self._issue(checked, tick, seen)
            if issue is not None:
                yield issue
        state.next_tick = due + 1

    def advance(self, now_us: int) -> Iterator[Issue]:
        """Publish what is due, re-issue what has changed, close what cannot change any more."""
        state, domain = self.state, self._domain
        due = domain.timing.due(domain.grid, now_us)
        wanted = [*state.dirty, *range(state.next_tick, due + 1)]
        if wanted:
            checked = self._checked()
            seen: dict[int, RegionEvidence] = {}
            for tick in wanted:
                issue = self._issue(checked, tick, seen)
                if issue is not None:
                    yield issue
        state.dirty = []
        state.next_tick = max(state.next_tick, due + 1)
        self._close(domain.timing.closed(domain.grid, now_us))

    def _checked(self) -> Checked:
        parts = [decode(data) for t in self.state.ticks if (data := self._rows.get(t)) is not None]
        return self._domain.check(concatenate(parts).canonical(), self.state.past)

    def _issue(self, checked: Checked, tick: int, seen: dict[int, RegionEvidence]) -> Issue | None:
        made = self._domain.grid_at(checked, self._region, tick, seen)
        # The first tile carries the measurements (see `tiles`), so it is issued again if these have changed.
        digests = tuple(
            tile.digest.hex() + (made.rows_digest.hex() if n == 0 else "")
            for n, tile in enumerate(made.tiles)
        )
        flagged, suspect, bad = made.flagged, made.suspect, bad_rows(made.rows, made.test)
        before = self.state.published.get(tick)
        if before is None:
            revisions: tuple[int | None, ...] = (0,) * len(digests)
            self.state.published[tick] = OpenTick((0,) * len(digests), digests, flagged, suspect, bad)
            return Issue(tick, made, revisions, flagged, suspect, moves(b"", bad))
        if digests == before.digests and flagged == before.flagged:
            return None
        changed = [a != b for a, b in zip(digests, before.digests, strict=True)]
        latest = tuple(r + c for r, c in zip(before.revisions, changed, strict=True))
        self.state.published[tick] = OpenTick(latest, digests, flagged, suspect, bad)
        revisions = tuple(r if c else None for r, c in zip(latest, changed, strict=True))
        changes = moves(before.bad, bad)
        return Issue(tick, made, revisions, flagged - before.flagged, suspect - before.suspect, changes)

    def _close(self, closed: int) -> None:
        state, domain = self.state, self._domain
        if closed <= state.closed:
            return
        state.closed = closed
        state.published = {t: p for t, p in state.published.items() if t > closed}
        folded = closed - domain.timing.reach(domain.grid)
        forgotten = [t for t in state.ticks if t <= folded]
        if forgotten:
            parts = [decode(data) for t in forgotten if (data := self._rows.get(t)) is not None]
            rows = concatenate(parts).canonical()
            state.past = fold(rows, domain.limits, domain.timing.max_age_s, state.past)
            for tick in forgotten:
                self._rows.remove(tick)
            state.ticks = [t for t in state.ticks if t > folded]
        state.folded = max(state.folded, folded)


def _tick_us(grid: Grid) -> int:
    return round(grid.tick * 1e6)
