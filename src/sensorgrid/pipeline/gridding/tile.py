"""One region at one tick: from checked measurements to values and errors for every point.

A pure function of the measurements around the region, the tick and the recipe. The stream calls it when a tick
is due, the backfill for every tick of its chunk; there is no other way to a grid.

Each sensor contributes its last good value, if that is not older than `max_age_s`; kernels let its error grow
with its age. Where none is within reach, the configuration says what stands there (see `coverage`).
Observations that their neighbours contradict are left out; suspect ones are used with a larger error.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.coverage import Evidence, Gaps, covered
from sensorgrid.pipeline.gridding.groups import DIRECTION, EASTWARD, NORTHWARD, SPEED, WIND, Group
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, Parameters, metres
from sensorgrid.pipeline.gridding.kernels.transforms import shown, without_wall
from sensorgrid.pipeline.gridding.measurements import Measurements
from sensorgrid.pipeline.gridding.neighbours import Verdicts, judge
from sensorgrid.pipeline.gridding.regions import points_in_metres
from sensorgrid.pipeline.gridding.series import NEIGHBOUR, SUSPECT, UNPAIRED, Checked, Ints, refused


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a group of attributes is gridded."""

    kernel: str
    """a kernel's name"""
    parameters: tuple[Parameters, ...]
    """one for each attribute that is published"""


class Covariates(Protocol):
    """Further covariates, by name; NaN where one is not known."""

    def at_points(self, region: int, names: tuple[str, ...]) -> Floats:
        """(m, c) at a region's points, row by row."""
        ...

    def at_places(self, positions: Floats, names: tuple[str, ...]) -> Floats:
        """(n, c) at places, in metres."""
        ...


@dataclass(frozen=True, slots=True)
class Tile:
    """The grid of one attribute, region and tick, with its errors and what it was made of."""

    attribute: str
    values: npt.NDArray[np.float32]
    """row by row as in an array ``[y, x]``; NaN only where nothing is within reach and gaps are to be seen"""
    error: npt.NDArray[np.float32]
    """standard error of the field, > 0: half of the interval from `lower` to `upper`; NaN as the values"""
    lower: npt.NDArray[np.float32]
    """the truth lies between `lower` and `upper` in 68 of 100 cases"""
    upper: npt.NDArray[np.float32]
    sensors: int
    """that contributed, halo included"""
    kernel: str
    observations: npt.NDArray[np.uint8]
    """of each point: how many are within its reach"""
    age_s: npt.NDArray[np.float32]
    """of each point: age of the newest observation that it rests on; NaN if there is none"""
    noise: float = 0.0
    """error of one observation, after the transform"""
    transform: str = ""
    """what values went through, for people; empty: nothing, and `lower` and `upper` say no more than the error"""
    gaps: Gaps = "prior"
    """what stands where nothing is within reach"""

    @property
    def digest(self) -> bytes:
        """Equal for equal grids: says whether a revision would change anything."""
        parts = (self.values, self.error, self.observations, self.age_s)
        return blake2b(b"".join(part.tobytes() for part in parts), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class RegionGrid:
    """Everything that comes out of one region and tick."""

    tiles: tuple[Tile, ...]
    rows: Measurements
    """the measurements of this very tick and region"""
    test: npt.NDArray[np.uint8]
    """for each of them the test that it failed, 0 if it was good; SUSPECT if it was used with a larger error"""

    @property
    def flagged(self) -> int:
        """How many of them were not used."""
        return int(np.count_nonzero(refused(self.test)))

    @property
    def suspect(self) -> int:
        """How many of them were used with a larger error."""
        return int(np.count_nonzero(self.test == SUSPECT))

    @property
    def rows_digest(self) -> bytes:
        """Equal for equal measurements and verdicts."""
        return blake2b(self.rows.encode() + self.test.tobytes(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Vectors:
    """At most one observation per sensor: where, when, one column of values per output, and from which rows."""

    at: Ints
    """a row with position and time of the observation"""
    values: tuple[Floats, ...]
    rows: tuple[Ints, ...]
    """the rows that it was made of, one column per part"""
    unpaired: Ints
    """rows that lack the other part"""

    def observations(self, rows: Measurements, grid: Grid, end_us: int) -> list[Observations]:
        """As kernels want them, one for each output, at the end of a tick."""
        positions = metres(rows.x[self.at], rows.y[self.at], grid.coordinates)
        age_s = (end_us - rows.time_us[self.at]) / 1e6
        heights = rows.elevation[self.at].astype(np.float64)
        known = heights if np.isfinite(heights).any() else None
        return [Observations(positions, values, age_s, known) for values in self.values]


@dataclass(frozen=True, slots=True)
class RegionEvidence:
    """What is known around a region at a tick: evidence for each output, and the verdicts on all rows."""

    each: tuple[Evidence, ...]
    test: npt.NDArray[np.uint8]
    """for each row the test that it failed, as far as that is known at the tick"""


def grid_region(
    checked: Checked,
    group: Group,
    grid: Grid,
    region: int,
    tick: int,
    max_age_s: float,
    recipe: Recipe,
    heights: Floats | None = None,
    gaps: tuple[Gaps, ...] = (),
    hold_ticks: int = 0,
    earlier: Callable[[int], RegionEvidence] | None = None,
    now: RegionEvidence | None = None,
    covariates: Covariates | None = None,
) -> RegionGrid:
    """Grid one region at one tick from the measurements around it; `heights` are those of its points, if known.

    `gaps` says for each output what stands where nothing is within reach, `prior` if it is left out. To hold values,
    `earlier` tells what was known at an earlier tick, up to `hold_ticks` before; `now` is that of this tick, if known.
    """
    now = now or evidence_around(checked, group, grid, tick, max_age_s, recipe, covariates)
    tick_us = round(grid.tick * 1e6)
    end_us = (tick + 1) * tick_us
    points, tiles = points_in_metres(grid, region), []

    def follows(p: Parameters) -> Floats | None:
        """What values at the points follow: elevation, and further covariates if these parameters have any."""
        if covariates is None or not any(p.slope_spreads):
            return heights
        return beside(heights, covariates.at_points(region, p.covariates))

    for n, (attribute, evidence) in enumerate(zip(group.outputs, now.each, strict=True)):
        mode = gaps[n] if gaps else "prior"

        def before(back: int, n: int = n) -> Evidence:
            assert earlier is not None
            return earlier(tick - back).each[n]

        made = covered(
            evidence, points, follows, mode, None if earlier is None else before, hold_ticks, grid.tick
        )
        values, error, lower, upper = (
            a.astype(np.float32) for a in (made.values, made.error, made.lower, made.upper)
        )
        tiles.append(
            Tile(
                attribute, values, error, lower, upper, len(evidence.observations), recipe.kernel,
                made.coverage.observations, made.coverage.age_s, evidence.parameters.noise,
                shown(evidence.parameters), mode,
            )
        )  # fmt: skip
    rows = checked.rows
    own = (rows.home == 1) & (rows.time_us >= end_us - tick_us) & (rows.time_us < end_us)
    return RegionGrid(tuple(tiles), rows.take(own), now.test[own])


def evidence_around(
    checked: Checked,
    group: Group,
    grid: Grid,
    tick: int,
    max_age_s: float,
    recipe: Recipe,
    covariates: Covariates | None = None,
) -> RegionEvidence:
    """The observations that a tick is gridded from, and the verdicts of series and neighbours."""
    end_us = (tick + 1) * round(grid.tick * 1e6)
    rows, test = checked.rows, np.where(checked.bad_at(end_us), checked.test, 0).astype(np.uint8)
    usable = (test == 0) & (rows.time_us < end_us) & (rows.time_us >= end_us - round(max_age_s * 1e6))
    usable &= np.isfinite(rows.value)
    found = last_vectors(rows, np.flatnonzero(usable), group)
    test[found.unpaired] = UNPAIRED
    every = [
        _with_covariates(one, p, covariates)
        for one, p in zip(found.observations(rows, grid, end_us), recipe.parameters, strict=True)
    ]
    every_parameters = [
        without_wall(p, observations.values) for p, observations in zip(recipe.parameters, every, strict=True)
    ]
    verdicts = Verdicts(np.zeros(len(found.at), bool), np.zeros(len(found.at), bool))
    for observations, parameters in zip(every, every_parameters, strict=True):
        one = judge(observations, parameters)
        bad = verdicts.bad | one.bad
        verdicts = Verdicts(bad, (verdicts.suspect | one.suspect) & ~bad)
    for part in found.rows:
        test[part[verdicts.bad & (part >= 0)]] = NEIGHBOUR
        test[part[verdicts.suspect & (part >= 0)]] = SUSPECT
    each = tuple(
        Evidence(verdicts.used(observations), parameters, recipe.kernel)
        for observations, parameters in zip(every, every_parameters, strict=True)
    )
    return RegionEvidence(each, test)


def _with_covariates(one: Observations, p: Parameters, covariates: Covariates | None) -> Observations:
    if covariates is None or not any(p.slope_spreads):
        return one
    return replace(one, covariate=beside(one.covariate, covariates.at_places(one.positions, p.covariates)))


def beside(heights: Floats | None, more: Floats) -> Floats:
    """Elevations, if they are known, and further covariates as columns."""
    return np.column_stack([np.full(len(more), np.nan) if heights is None else heights, more])


def last_vectors(rows: Measurements, good: Ints, group: Group) -> Vectors:
    """Of rows in canonical order, the last of each sensor among the good ones; as components, if it is wind."""
    if group.name == WIND:
        return _wind(rows, good)
    at = _last_of_each(rows.sensor, good)
    return Vectors(at, (rows.value[at],), (at,), unpaired=at[:0])


def _wind(rows: Measurements, good: Ints) -> Vectors:
    """Speed and direction, or both components, of the same sensor and moment; others are unpaired.

    A calm has no direction and needs none. A wind without a direction (variable) is not a vector.
    """
    speed, direction, east, north = (
        good[rows.code[good] == code] for code in (SPEED, DIRECTION, EASTWARD, NORTHWARD)
    )
    calm = speed[rows.value[speed] == 0]
    blowing, its_direction = _pairs(rows, speed[rows.value[speed] > 0], direction)
    _, calm_direction = _pairs(rows, calm, direction)
    easts, norths = _pairs(rows, east, north)
    alone = np.setdiff1d(good, np.concatenate([calm, calm_direction, blowing, its_direction, easts, norths]))
    towards = np.radians(rows.value[its_direction])
    at = np.concatenate([blowing, calm, easts])
    zero, none = np.zeros(len(calm)), np.full(len(calm), -1)
    u = np.concatenate([-rows.value[blowing] * np.sin(towards), zero, rows.value[easts]])
    v = np.concatenate([-rows.value[blowing] * np.cos(towards), zero, rows.value[norths]])
    other = np.concatenate([its_direction, none, norths])
    order = np.lexsort((at, rows.time_us[at], rows.sensor[at]))
    last = order[_last_of_each(rows.sensor[at][order], np.arange(len(at)))]
    return Vectors(at[last], (u[last], v[last]), (at[last], other[last]), unpaired=alone)


def _last_of_each(sensor: npt.NDArray[np.uint64], which: Ints) -> Ints:
    """Of the chosen rows, ordered by sensor and time, the last one of each sensor."""
    chosen = sensor[which]
    return which[np.r_[chosen[1:] != chosen[:-1], True]] if len(which) else which


def _pairs(rows: Measurements, first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """Rows of `first` and `second` that have sensor and time in common."""
    if not len(first) or not len(second):
        return first[:0], second[:0]
    both = np.concatenate([first, second])
    order = np.lexsort((np.arange(len(both)) >= len(first), rows.time_us[both], rows.sensor[both]))
    a, b = both[order[:-1]], both[order[1:]]
    same = (
        (rows.sensor[a] == rows.sensor[b])
        & (rows.time_us[a] == rows.time_us[b])
        & (order[:-1] < len(first))
        & (order[1:] >= len(first))
    )
    return a[same], b[same]
