"""Mean, sum and count.

The error of a mean is the mean of the errors times a damping that depends on the area and on how far errors are
alike (`sensorgrid.operators.correlation`); over the ticks of a window errors are taken as alike, so that a long window
claims no more than it should.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sensorgrid.operators import exact
from sensorgrid.operators.layer import Layer, Meeting
from sensorgrid.operators.numbers import Floats, Numbers
from sensorgrid.operators.partials.interface import HEAD, Terrain, numbers_of

_VALUES = slice(HEAD, HEAD + exact.SLICES)
_ERRORS = slice(HEAD + exact.SLICES, HEAD + 2 * exact.SLICES)


@dataclass(frozen=True, slots=True)
class Count:
    """How many points have a value."""

    width: int = HEAD

    def partials(self, meeting: Meeting, layer: Layer) -> Floats:
        """The head says it all."""
        return meeting.head(layer)

    def merge(self, stack: Floats) -> Floats:
        """Counts add up."""
        return np.asarray(stack.sum(axis=0))

    def finish(self, merged: Floats, terrain: Terrain) -> Numbers:
        """A count is known even if it is 0."""
        told = numbers_of(merged, terrain, merged[:, 0], np.zeros(len(merged)))
        nothing = np.zeros(len(merged), np.int8)
        return Numbers(merged[:, 0], np.zeros(len(merged)), told.points, told.coverage, nothing)


@dataclass(frozen=True, slots=True)
class Total:
    """Weighted mean, or sum."""

    function: Literal["mean", "sum"]
    width: int = HEAD + 2 * exact.SLICES

    def partials(self, meeting: Meeting, layer: Layer) -> Floats:
        """Exact sums of values and of errors, each times its weight."""
        found = np.zeros((len(meeting), self.width))
        found[:, :HEAD] = meeting.head(layer)
        found[:, _VALUES] = meeting.exact_sums(layer, "value", lambda: layer.values)
        found[:, _ERRORS] = error_sums(meeting, layer)
        return found

    def merge(self, stack: Floats) -> Floats:
        """Slices add up, exactly."""
        return np.asarray(stack.sum(axis=0))

    def finish(self, merged: Floats, terrain: Terrain) -> Numbers:
        """Rounded once."""
        value, error = exact.totals(merged[:, _VALUES]), exact.totals(merged[:, _ERRORS]) * terrain.damping
        if self.function == "mean":
            with np.errstate(invalid="ignore", divide="ignore"):
                value, error = value / merged[:, 1], error / merged[:, 1]
        return numbers_of(merged, terrain, value, error)


def error_sums(meeting: Meeting, layer: Layer) -> Floats:
    """[area, slice]: the sum of weights times errors; NaN if nobody states them."""
    stated = layer.errors
    if stated is None:
        return np.full((len(meeting), exact.SLICES), np.nan)
    return meeting.exact_sums(layer, "error", lambda: stated)
