"""Mean of a direction in degrees, as of a vector: 350 and 10 give 0 and not 180.

Its error is not stated. Sines and cosines are multiples of 2^-30, so that they are the same on every machine and their
product with a weight is exact.
"""

from dataclasses import dataclass

import numpy as np

from sensorgrid.operators import exact
from sensorgrid.operators.layer import Layer, Meeting
from sensorgrid.operators.numbers import FINE, NO_DIRECTION, Floats, Numbers, checked
from sensorgrid.operators.partials.interface import HEAD, Terrain, numbers_of

_UNIT = 2.0**-30
_EAST = slice(HEAD, HEAD + exact.SLICES)
_NORTH = slice(HEAD + exact.SLICES, HEAD + 2 * exact.SLICES)


@dataclass(frozen=True, slots=True)
class Direction:
    """Mean of unit vectors."""

    width: int = HEAD + 2 * exact.SLICES

    def partials(self, meeting: Meeting, layer: Layer) -> Floats:
        """Exact sums of sines and cosines."""
        angle = np.radians(layer.values)
        sine, cosine = (
            np.where(layer.there, np.rint(f(angle) / _UNIT) * _UNIT, 0.0) for f in (np.sin, np.cos)
        )
        found = np.zeros((len(meeting), self.width))
        found[:, :HEAD] = meeting.head(layer)
        found[:, _EAST] = meeting.exact_sums(layer, "sine", lambda: sine)
        found[:, _NORTH] = meeting.exact_sums(layer, "cosine", lambda: cosine)
        return found

    def merge(self, stack: Floats) -> Floats:
        """Slices add up, exactly."""
        return np.asarray(stack.sum(axis=0))

    def finish(self, merged: Floats, terrain: Terrain) -> Numbers:
        """The direction of the sum."""
        told = numbers_of(merged, terrain, np.zeros(len(merged)), np.full(len(merged), np.nan))
        return direction_of(exact.totals(merged[:, _EAST]), exact.totals(merged[:, _NORTH]), told)


def direction_of(east: Floats, north: Floats, told: Numbers) -> Numbers:
    """Degrees clockwise from north of vectors, in [0, 360); none of a vector without length."""
    degrees = np.mod(np.degrees(np.arctan2(east, north)), 360.0)
    degrees = np.where(degrees >= 360.0, 0.0, degrees)
    nowhere = (told.reason == FINE) & (east == 0) & (north == 0)
    reason = np.where(nowhere, np.int8(NO_DIRECTION), told.reason)
    return checked(degrees, np.full(len(east), np.nan), told.points, told.coverage, reason)
