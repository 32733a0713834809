"""Least and largest value, with the stated error of the point where it stands; of equal values the largest error."""

from dataclasses import dataclass

import numpy as np

from sensorgrid.operators.layer import Layer, Meeting, order_of, value_of
from sensorgrid.operators.numbers import Floats, Numbers
from sensorgrid.operators.partials.interface import HEAD, Terrain, numbers_of


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least value, or the largest."""

    lowest: bool
    width: int = HEAD + 2

    def partials(self, meeting: Meeting, layer: Layer) -> Floats:
        """Value and error of the best point; NaN where there is none."""
        return np.concatenate(
            [meeting.head(layer), self._unpacked(meeting.highest(layer, self.lowest))], axis=1
        )

    def merge(self, stack: Floats) -> Floats:
        """The best of all; heads add up."""
        value, error = stack[:, :, HEAD], stack[:, :, HEAD + 1]
        there = ~np.isnan(value)
        signed = np.where(there, -value if self.lowest else value, 0.0)
        stated = error.astype(np.float32).view(np.uint32).astype(np.uint64)
        keys = np.where(there, (order_of(signed) << np.uint64(32)) | stated, np.uint64(0))
        return np.concatenate([stack[:, :, :HEAD].sum(axis=0), self._unpacked(keys.max(axis=0))], axis=1)

    def finish(self, merged: Floats, terrain: Terrain) -> Numbers:
        """As it is."""
        return numbers_of(merged, terrain, merged[:, HEAD], merged[:, HEAD + 1])

    def _unpacked(self, keys: "np.typing.NDArray[np.uint64]") -> Floats:
        value = value_of(keys >> np.uint64(32))
        value = -value + 0.0 if self.lowest else value
        error = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32).astype(np.float64)
        there = keys > 0
        return np.stack([np.where(there, value, np.nan), np.where(there, error, np.nan)], axis=1)
