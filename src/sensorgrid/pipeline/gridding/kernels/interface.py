"""What a kernel is: observations and points in, a value and its error for every point out.

A kernel is a pure function of its arguments, bit for bit: the stream and the backfill call it in different
processes and orders and must agree. It is called inside Spark's Python workers, once per region and tick.

Observations and fields are in the attribute's own unit. `Parameters` describe the attribute after its
transform (see `transforms`): mean, spread, sill, noise, drift and slope count in transformed units.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

EARTH_RADIUS_M = 6_371_008.8

Family = Literal["any", "positive", "bounded", "unknown"]
Transform = Literal["identity", "log", "bounded"]


@dataclass(frozen=True, slots=True)
class Observations:
    """What is known about one attribute at one tick, at most one observation per sensor."""

    positions: Floats
    """(n, d) in metres: on the earth d = 3, a point on the sphere; on a plane d = 2 (see `metres`)"""
    values: Floats
    """(n,)"""
    age_s: Floats
    """(n,) how old each value is at the end of the tick"""
    covariate: Floats | None = None
    """(n,) something known of every place that values follow: elevation in metres; NaN where it is not known; or
    (n, 1 + c): elevation first, then the covariates that `Parameters.covariates` names"""
    doubt: Floats | None = None
    """(n,) by how much the usual error of each is multiplied; None: no observation is suspect"""

    def __len__(self) -> int:
        return len(self.values)

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.integer]) -> "Observations":
        """Some of them."""
        return Observations(
            self.positions[which],
            self.values[which],
            self.age_s[which],
            None if self.covariate is None else self.covariate[which],
            None if self.doubt is None else self.doubt[which],
        )

    def without(self, rejected: npt.NDArray[np.bool_]) -> "Observations":
        """The others."""
        return self.take(~rejected)


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a kernel needs to know about an attribute; fitted (see `calibration`), or priors."""

    mean: float
    """the value to expect where nothing is known, transformed"""
    spread: float
    """and its error, one standard deviation; no stated error is ever larger"""
    length: float
    """distance over which values are alike, in metres"""
    noise: float
    """error of one observation that is not older than usual, one standard deviation"""
    drift: float
    """how far the truth wanders in an hour, one standard deviation: variance grows by drift² per hour beyond `age_s`"""
    shape: Literal["exponential", "matern"] = "exponential"
    """family of the covariance"""
    sill: float = 1.0
    """standard deviation of the field about its local mean"""
    errors: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0)
    """how the stated error of kriging follows what it depends on (see `errors`)"""
    errors_plain: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0)
    """the same of kernels that do not krige"""
    transform: Transform = "identity"
    """what values go through before anything is computed"""
    offset: float = 0.0
    """of the transform: log(value - lowest + offset), in the attribute's unit; if bounded, a part of the range"""
    lowest: float | None = None
    """no value of the field is smaller"""
    highest: float | None = None
    """or larger"""
    family: Family = "unknown"
    """which transforms may be tried"""
    slope: float = 0.0
    """change of values per unit of the covariate (elevation: per metre)"""
    slope_spread: float = 0.0
    """and how much it varies from place to place; 0: the covariate is not used"""
    covariates: tuple[str, ...] = ()
    """further covariates, by name"""
    slopes: tuple[float, ...] = ()
    """change of values per unit of each"""
    slope_spreads: tuple[float, ...] = ()
    """and how much that varies from place to place; 0: it is not used"""
    age_s: float = 0.0
    """usual age of an observation at the end of a tick: what that does is part of the noise"""
    tail: float = 1.0
    """how much farther than usual good readings may lie from what their neighbours say: thresholds grow by it"""

    def __post_init__(self) -> None:
        # A whole number would make arrays of whole numbers, and errors of 0 and 1.
        for name in ("mean", "spread", "length", "noise", "drift", "sill"):
            if hasattr(self, name):
                object.__setattr__(self, name, float(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class Field:
    """A value and an error for every point; never NaN."""

    values: Floats
    """(m,) what to expect; within the attribute's physical range"""
    error: Floats
    """(m,) standard error of the *field*, > 0: half of the interval that holds the truth in 68 of 100 cases"""
    lower: Floats
    """(m,) the lower end of that interval, which is lopsided if the attribute is"""
    upper: Floats
    """(m,) its upper end"""
    reading_lower: Floats
    """(m,) the same interval for the next reading of a sensor there: the error of the reading comes on top"""
    reading_upper: Floats

    @property
    def reading_error(self) -> Floats:
        """(m,) standard error of the next reading there: half of its interval."""
        return np.asarray((self.reading_upper - self.reading_lower) / 2.0, np.float64)


class Kernel(Protocol):
    """A way to interpolate."""

    @property
    def name(self) -> str:
        """As the configuration and the lake spell it."""
        ...

    @property
    def neighbours(self) -> int:
        """How many of the nearest observations a point depends on: the halo must hold one more."""
        ...

    def __call__(
        self,
        observations: Observations,
        points: Floats,
        parameters: Parameters,
        covariate: Floats | None = None,
    ) -> Field:
        """Estimate all `points` (m, d), in metres like the observations' positions.

        `covariate` (m,) or (m, 1 + c) is that of the points; a kernel that cannot use one ignores it. Without any
        observation the result is what `parameters` say of mean and spread.
        """
        ...


def columns_of(covariate: Floats) -> Floats:
    """Covariates as columns: one alone is the elevation."""
    return covariate[:, None] if covariate.ndim == 1 else covariate


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
