"""What a kernel is: observations and points in, a value and its error for every point out.

A kernel is a pure function of its arguments, bit for bit: the stream and the backfill call it in different
processes and orders and must agree. It is called inside Spark's Python workers, once per region and tick.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

EARTH_RADIUS_M = 6_371_008.8


@dataclass(frozen=True, slots=True)
class Observations:
    """What is known about one attribute at one tick, at most one observation per sensor."""

    positions: Floats
    """(n, d) in metres: on the earth d = 3, a point on the sphere; on a plane d = 2 (see `metres`)"""
    values: Floats
    """(n,)"""
    age_s: Floats
    """(n,) how old each value is at the end of the tick"""

    def __len__(self) -> int:
        return len(self.values)

    def without(self, rejected: npt.NDArray[np.bool_]) -> "Observations":
        """The others."""
        return Observations(self.positions[~rejected], self.values[~rejected], self.age_s[~rejected])


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a kernel needs to know about an attribute; fitted (see `calibration`), or priors."""

    mean: float
    """the value to expect where nothing is known"""
    spread: float
    """and its error, one standard deviation; no stated error is ever larger"""
    length: float
    """distance over which values are alike, in metres"""
    noise: float
    """error of one fresh observation, one standard deviation"""
    drift: float
    """how far the truth wanders in an hour, one standard deviation: variance grows by drift² per hour of age"""
    shape: Literal["exponential", "matern"] = "exponential"
    """family of the covariance"""
    sill: float = 1.0
    """standard deviation of the field about its local mean"""
    error_scale: float = 1.0
    """what hold-outs multiply kriging's error by"""
    local: float = 0.0
    """how much the error follows the unrest among a point's own neighbours: 0 not at all, 1 entirely"""

    def __post_init__(self) -> None:
        # A whole number would make arrays of whole numbers, and errors of 0 and 1.
        for name in ("mean", "spread", "length", "noise", "drift", "sill", "local"):
            if hasattr(self, name):
                object.__setattr__(self, name, float(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class Field:
    """A value and an error for every point; never NaN."""

    values: Floats
    """(m,)"""
    error: Floats
    """(m,) one standard deviation, > 0"""


class Kernel(Protocol):
    """A way to interpolate."""

    @property
    def name(self) -> str:
        """As the configuration and the lake spell it."""
        ...

    @property
    def neighbours(self) -> int:
        """How many of the nearest observations a point depends on: the halo must hold them."""
        ...

    def __call__(self, observations: Observations, points: Floats, parameters: Parameters) -> Field:
        """Estimate all `points` (m, d), in metres like the observations' positions.

        Without any observation the result is `parameters.mean` with error `parameters.spread`.
        """
        ...


def metres(longitude: npt.ArrayLike, latitude: npt.ArrayLike, coordinates: str) -> Floats:
    """Positions as points whose straight distance is (nearly) the distance on the ground.

    On the earth: points on a sphere in three dimensions, where neither the date line nor the poles are
    special. The straight line is shorter than the arc by less than 1 % up to 3000 km.
    """
    x, y = np.asarray(longitude, np.float64), np.asarray(latitude, np.float64)
    if coordinates == "planar":
        return np.stack([x, y], axis=-1)
    x, y = np.radians(x), np.radians(y)
    return EARTH_RADIUS_M * np.stack([np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)], axis=-1)
