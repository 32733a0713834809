"""Where a grid rests on observations, and what stands in its place where it does not.

An observation is *within reach* of a point if it is one of those that the point is estimated from, and so near that
the attribute is still alike there: its correlation is `ALIKE` or more. Farther out it says hardly anything about the
place, whatever the kernel makes of it. Every point says how many observations are within its reach and how old the
newest one is. A point without any is a *gap*, and the configuration says what stands there:

- `prior`: the estimate all the same, which goes back to mean and spread; the default.
- `nan`: nothing.
- `hold`: what the grid said when an observation was last within reach, for `hold_s` at most; its error grows by the
  drift.

All of it is a pure function of the measurements around a region: `hold` grids the tick again at which the point was
last within reach. So the stream and the backfill agree, a late measurement changes what was held because of it, and
nothing has to be remembered beside the measurements.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sensorgrid.pipeline.gridding.kernels import compiled, kernel_by_name
from sensorgrid.pipeline.gridding.kernels.interface import Field, Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.neighbourhood import neighbours_of
from sensorgrid.pipeline.gridding.kernels.transforms import backward, forward

Gaps = Literal["prior", "nan", "hold"]

ALIKE = 0.05
"""correlation from which on an observation is within reach: the practical range of geostatistics"""
_RANGE = {"exponential": 2.995732273553991, "matern": 2.7388714566919146}
"""distance at which the correlation has fallen to that, in lengths"""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What each point of a region rests on."""

    observations: npt.NDArray[np.uint8]
    """(m,) within reach, of those that the point is estimated from"""
    age_s: npt.NDArray[np.float32]
    """(m,) of the newest of them; NaN where there is none"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one attribute around a region at a tick: observations that passed, and how to grid them."""

    observations: Observations
    parameters: Parameters
    kernel: str

    def field(self, points: Floats, heights: Floats | None) -> Field:
        """The grid at these points."""
        return kernel_by_name(self.kernel)(self.observations, points, self.parameters, heights)

    def coverage(self, points: Floats) -> Coverage:
        """What it rests on there."""
        within, newest_s = np.zeros(len(points), np.uint8), np.full(len(points), np.nan, np.float32)
        if len(self.observations):
            positions = self.observations.positions
            near = neighbours_of(positions, points, kernel_by_name(self.kernel).neighbours)
            compiled.cover(
                np.ascontiguousarray(positions, np.float64),
                np.ascontiguousarray(self.observations.age_s, np.float64),
                near.index,
                np.ascontiguousarray(points, np.float64),
                reach_m(self.parameters),
                within,
                newest_s,
            )
        return Coverage(within, newest_s)


@dataclass(frozen=True, slots=True)
class Covered:
    """A grid and what it rests on, gaps treated as the configuration wants it."""

    values: Floats
    error: Floats
    lower: Floats
    upper: Floats
    coverage: Coverage
    """of held points: no observation, and the age of the newest that the held value rests on"""


def reach_m(parameters: Parameters) -> float:
    """How far an observation reaches, in metres.

    Examples
    --------
    >>> round(reach_m(Parameters(mean=0, spread=1, length=1000, noise=0.1, drift=0)))
    2996
    """
    return _RANGE[parameters.shape] * parameters.length


def covered(
    evidence: Evidence,
    points: Floats,
    follows: Callable[[Parameters], Floats | None] = lambda _: None,
    gaps: Gaps = "prior",
    earlier: Callable[[int], Evidence] | None = None,
    hold_ticks: int = 0,
    tick_s: float = 0.0,
) -> Covered:
    """Grid points from what is known; `earlier` tells what was known so many ticks before.

    `follows` gives the covariates at the points that parameters have.
    """
    field, coverage = evidence.field(points, follows(evidence.parameters)), evidence.coverage(points)
    values, error, lower, upper = field.values, field.error, field.lower, field.upper
    empty = coverage.observations == 0
    if gaps == "prior" or not empty.any():
        return Covered(values, error, lower, upper, coverage)
    columns = values, error, lower, upper = tuple(np.array(a) for a in (values, error, lower, upper))
    if gaps == "nan":
        for column in columns:
            column[empty] = np.nan
        return Covered(values, error, lower, upper, coverage)
    age_s, open_ = coverage.age_s.copy(), np.flatnonzero(empty)
    for back in range(1, hold_ticks + 1):
        if earlier is None or not len(open_):
            break
        before = earlier(back)
        if not len(before.observations):
            continue
        then = before.coverage(points)  # of all points: their neighbours are remembered
        found = then.observations[open_] > 0
        at = open_[found]
        if len(at):
            there = follows(before.parameters)
            held = before.field(points[at], None if there is None else there[at])
            held = aged(held, before.parameters, back * tick_s)
            values[at], error[at], lower[at], upper[at] = held.values, held.error, held.lower, held.upper
            age_s[at] = then.age_s[at] + np.float32(back * tick_s)
            open_ = open_[~found]
    return Covered(values, error, lower, upper, Coverage(coverage.observations, age_s))


def aged(field: Field, p: Parameters, seconds: float) -> Field:
    """The same values some time later: the error has grown by the drift, up to what is known beforehand."""
    grown = p.drift * np.sqrt(seconds / 3600.0)

    def wider(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
        low, high = forward(lower, p), forward(upper, p)
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        half = np.maximum(np.minimum(np.hypot(half, grown), p.spread), half)
        return (
            np.minimum(backward(middle - half, p), field.values),
            np.maximum(backward(middle + half, p), field.values),
        )

    lower, upper = wider(field.lower, field.upper)
    error = np.maximum((upper - lower) / 2.0, field.error)
    return Field(field.values, error, lower, upper, *wider(field.reading_lower, field.reading_upper))
