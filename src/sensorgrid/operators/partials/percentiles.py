"""Percentiles: the least value below which, it included, at least the wanted share of the area lies.

In a small area every point has a place of its own in the partial, and the answer is exact. In a large one, values are
counted in fixed bins as wide as the attribute is precise, and the answer is the middle of a bin. Both merge in any
order; randomised sketches would give two answers for the same data.
"""

from dataclasses import dataclass

import numpy as np

from sensorgrid.operators import exact
from sensorgrid.operators.layer import Layer, Meeting
from sensorgrid.operators.numbers import BEYOND, FINE, Floats, Numbers, checked
from sensorgrid.operators.partials.interface import HEAD, Terrain, numbers_of
from sensorgrid.operators.partials.totals import error_sums
from sensorgrid.operators.weights import Ints, Weights

SMALL = 512
"""points of an area up to which percentiles are exact"""
BINS: dict[str, tuple[float, float, int]] = {
    "air_temperature": (173.15, 0.25, 680),
    "dew_point_temperature": (153.15, 0.25, 680),
    "air_pressure_at_mean_sea_level": (80_000.0, 50.0, 640),
    "relative_humidity": (0.0, 0.0025, 460),
    "wind_speed": (0.0, 0.2, 600),
    "eastward_wind": (-120.0, 0.4, 600),
    "northward_wind": (-120.0, 0.4, 600),
    "precipitation_amount": (0.0, 0.5, 1000),
    "sea_surface_temperature": (268.15, 0.1, 500),
    "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air": (0.0, 1e-9, 1000),
    "sea_surface_wave_significant_height": (0.0, 0.05, 700),
}
"""of each attribute: where the first bin begins, how wide each is, how many there are"""
_ERRORS = slice(HEAD, HEAD + exact.SLICES)
_COUNTS = HEAD + exact.SLICES


@dataclass(frozen=True, slots=True)
class BinnedPercentile:
    """By counting weights in bins, of which the first and the last are for all that lies beyond."""

    share: float
    low: float
    step: float
    bins: int

    @property
    def width(self) -> int:
        """Head, errors, bins."""
        return _COUNTS + self.bins + 2

    def partials(self, meeting: Meeting, layer: Layer) -> Floats:
        """Weights in bins."""
        count = self.bins + 3  # the last is for points without a value
        which, points, weight = meeting.inside
        place = self._bin_of(layer).ravel()[points]
        place += which * count
        counted = np.bincount(place, weight, len(meeting) * count).reshape(len(meeting), count)
        return np.concatenate([meeting.head(layer), error_sums(meeting, layer), counted[:, :-1]], axis=1)

    def _bin_of(self, layer: Layer) -> Ints:
        """The bin of each point."""
        bins = np.clip(np.floor((layer.values - self.low) / self.step), -1, self.bins).astype(np.int64) + 1
        return bins if layer.is_full else np.where(layer.there, bins, self.bins + 2)

    def merge(self, stack: Floats) -> Floats:
        """Weights are multiples of 2^-25: they add up exactly."""
        return np.asarray(stack.sum(axis=0))

    def finish(self, merged: Floats, terrain: Terrain) -> Numbers:
        """The bin in which the share is reached; its error grows by that of the bin."""
        until = np.cumsum(merged[:, _COUNTS:], axis=1)
        reached = np.argmax(until >= _wanted(self.share, until[:, -1])[:, None], axis=1)
        value = self.low + (reached - 0.5) * self.step
        with np.errstate(invalid="ignore", divide="ignore"):
            stated = exact.totals(merged[:, _ERRORS]) / merged[:, 1]
        error = np.hypot(stated, self.step / np.sqrt(12))
        told = numbers_of(merged, terrain, value, error)
        beyond = (reached == 0) | (reached == self.bins + 1)
        reason = np.where(beyond & (told.reason == FINE), np.int8(BEYOND), told.reason)
        return checked(told.value, told.error, told.points, told.coverage, reason)


@dataclass(frozen=True, eq=False)
class ExactPercentile:
    """By keeping every value of a small area."""

    share: float
    area: Weights
    """on the whole grid"""
    columns: int
    """points of the grid along x"""

    @property
    def width(self) -> int:
        """Head, errors, values."""
        return _COUNTS + self.area.points

    def _places(self, weights: Weights) -> tuple[Ints, Ints]:
        """Points of a region that the area meets, and their places in the partial."""
        points, _ = weights.indices()
        wide = weights.box.x1 - weights.box.x0
        y, x = np.divmod(points, wide)
        whole = (y + weights.box.y0) * self.columns + x + weights.box.x0
        return points, np.searchsorted(self.area.indices()[0], whole)

    def partials(self, meeting: Meeting, layer: Layer) -> Floats:
        """Values in their places; NaN elsewhere."""
        found = np.full((len(meeting), self.width), np.nan)
        found[:, :HEAD] = meeting.head(layer)
        found[:, _ERRORS] = error_sums(meeting, layer)
        values = np.where(layer.there, layer.values, np.nan).ravel()
        for row, weights in enumerate(meeting.weights):
            points, places = self._places(weights)
            found[row, _COUNTS + places] = values[points]
        return found

    def merge(self, stack: Floats) -> Floats:
        """Every value comes from one partial."""
        head = stack[:, :, :_COUNTS].sum(axis=0)
        return np.concatenate([head, np.fmax.reduce(stack[:, :, _COUNTS:], axis=0)], axis=1)

    def finish(self, merged: Floats, terrain: Terrain) -> Numbers:
        """The value at which the share is reached."""
        weight = self.area.indices()[1]
        values = merged[:, _COUNTS:]
        order = np.argsort(values, axis=1, kind="stable")  # NaN last
        sorted_values = np.take_along_axis(values, order, axis=1)
        counted = np.where(np.isnan(sorted_values), 0.0, weight[order])
        until = np.cumsum(counted, axis=1)
        reached = np.argmax(until >= _wanted(self.share, until[:, -1])[:, None], axis=1)
        value = np.take_along_axis(sorted_values, reached[:, None], axis=1)[:, 0]
        with np.errstate(invalid="ignore", divide="ignore"):
            error = exact.totals(merged[:, _ERRORS]) / merged[:, 1]
        return numbers_of(merged, terrain, value, error)


def _wanted(share: float, total: Floats) -> Floats:
    """The weight to be reached; more than nothing, so that the share 0 is the least value."""
    return np.maximum(share * total, 2.0**-26)
