"""Standard deviation over an area, weighted; its error is not stated.

The squares are summed without rounding and taken from each other as fractions, so a field that is the same everywhere
has a spread of exactly 0.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np

from sensorgrid.operators import exact
from sensorgrid.operators.layer import Layer, Meeting
from sensorgrid.operators.numbers import Floats, Numbers
from sensorgrid.operators.partials.interface import HEAD, Terrain, numbers_of

_VALUES = slice(HEAD, HEAD + exact.SLICES)
_SQUARES = slice(HEAD + exact.SLICES, HEAD + 2 * exact.SLICES)


@dataclass(frozen=True, slots=True)
class Deviation:
    """Weighted standard deviation."""

    width: int = HEAD + 2 * exact.SLICES

    def partials(self, meeting: Meeting, layer: Layer) -> Floats:
        """Exact sums of values and squares."""
        squares = layer.values * layer.values  # of 24 bits each: exact
        upper = squares.astype(np.float32).astype(
            np.float64
        )  # and so are both halves times a weight of 18 bits
        lower = squares - upper
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
        """Mean of squares less square of the mean."""
        value = np.array([_deviation(row) for row in merged], np.float64)
        return numbers_of(merged, terrain, value, np.full(len(merged), np.nan))


def _deviation(row: Floats) -> float:
    weight = row[1]
    if not weight > 0 or not np.isfinite(row).all():
        return float("nan")
    count = exact.fraction(row[1:2])
    values, squares = exact.fraction(row[_VALUES]), exact.fraction(row[_SQUARES])
    return sqrt(max(Fraction(0), (squares * count - values * values) / (count * count)))
