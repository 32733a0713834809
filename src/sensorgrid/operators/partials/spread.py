"""Standard deviation over an area, weighted; its error is not stated.

The squares are summed without rounding and taken from each other as whole numbers, so a field that is the same
everywhere has a spread of exactly 0.
"""

from dataclasses import dataclass

import numpy as np

from sensorgrid.operators import exact
from sensorgrid.operators.layer import Layer, Meeting
from sensorgrid.operators.numbers import Floats, Numbers
from sensorgrid.operators.partials.interface import HEAD, Terrain, numbers_of
from sensorgrid.operators.weights import WEIGHT_UNIT

_VALUES = slice(HEAD, HEAD + exact.SLICES)
_SQUARES = slice(HEAD + exact.SLICES, HEAD + 2 * exact.SLICES)
# Sums are whole numbers of units u, weights of units w: S₂ u W w - S₁² u² over W² w², in units of u².
_SHIFT = WEIGHT_UNIT - exact.WHOLE_UNIT
_SCALE = 2 * (WEIGHT_UNIT - exact.WHOLE_UNIT)


@dataclass(frozen=True, slots=True)
class Deviation:
    """Weighted standard deviation."""

    width: int = HEAD + 2 * exact.SLICES

    def partials(self, meeting: Meeting, layer: Layer) -> Floats:
        """Exact sums of values and squares."""
        squares = layer.values * layer.values  # of 24 bits each: exact
        upper = squares.astype(np.float32).astype(np.float64)
        lower = squares - upper  # and so is each of the two times a weight of 18 bits
        found = np.zeros((len(meeting), self.width))
        found[:, :HEAD] = meeting.head(layer)
        found[:, _VALUES] = meeting.exact_sums(layer, "value", lambda: layer.values)
        found[:, _SQUARES] = meeting.exact_sums(layer, "upper square", lambda: upper)
        found[:, _SQUARES] += meeting.exact_sums(layer, "lower square", lambda: lower)
        return found

    def merge(self, stack: Floats) -> Floats:
        """Slices add up, exactly."""
        return np.asarray(stack.sum(axis=0))

    def finish(self, merged: Floats, terrain: Terrain) -> Numbers:
        """Mean of squares less square of the mean, as whole numbers of any length."""
        weights = np.ldexp(merged[:, 1], -WEIGHT_UNIT).astype(np.int64).tolist()
        values, squares = exact.whole(merged[:, _VALUES]), exact.whole(merged[:, _SQUARES])
        variance = [
            ((square * weight << _SHIFT) - value * value) / (weight * weight << _SCALE) if weight else np.nan
            for weight, value, square in zip(weights, values, squares, strict=True)
        ]
        return numbers_of(merged, terrain, np.sqrt(variance), np.full(len(merged), np.nan))
