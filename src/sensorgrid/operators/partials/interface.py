"""What every family of functions offers, and the head that all partials share."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sensorgrid.operators.layer import Layer, Meeting
from sensorgrid.operators.numbers import EMPTY, FINE, Floats, Numbers, checked

HEAD = 3
"""first float64s of every partial: points that have a value, their weight, and the weight of those that rest on
observations; weights are multiples of 2^-25, so that all three are exact"""


@dataclass(frozen=True, slots=True)
class Terrain:
    """What is known of areas before any tick, side by side."""

    total: Floats
    """weight of the whole area, times the ticks of the window"""
    damping: Floats
    """by how much the error of a mean is less than the mean of the errors"""


class Family(Protocol):
    """A function of the values of an area. Called in every process; holds nothing but its parameters, and pickles."""

    @property
    def width(self) -> int:
        """float64s of a partial."""

    def partials(self, meeting: Meeting, layer: Layer) -> Floats:
        """[area, width]: the partials of many areas on one region."""

    def merge(self, stack: Floats) -> Floats:
        """[partial, area, width] to [area, width]."""

    def finish(self, merged: Floats, terrain: Terrain) -> Numbers:
        """The number of each area."""


def numbers_of(merged: Floats, terrain: Terrain, value: Floats, error: Floats, reason: int = FINE) -> Numbers:
    """Numbers with the points and the coverage that the head tells; none where no point has a value."""
    with np.errstate(invalid="ignore", divide="ignore"):
        coverage = merged[:, 2] / terrain.total
    why = np.where(merged[:, 0] > 0, np.int8(reason), np.int8(EMPTY))
    return checked(value, error, merged[:, 0], coverage, why)
