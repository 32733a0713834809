"""Optimal interpolation by MET Norway's `gridpp`, if it is installed: a second opinion on kriging.

The background is a constant, `mean`, with variance `spread`²; the observations correct it. `gridpp` computes
in single precision, on latitudes and longitudes or on a plane, so positions go back to what they were. Its
second-order autoregressive structure function, (1 + d/h) exp(-d/h), is Matérn's with smoothness 3/2.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.gridding.kernels.covariance import noise_variance, own_variance
from sensorgrid.pipeline.gridding.kernels.errors import stated
from sensorgrid.pipeline.gridding.kernels.interface import Field, Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.neighbourhood import chunks
from sensorgrid.pipeline.gridding.kernels.transforms import published, transformed, unknown

_POINTS = 8192
"""at once"""


class MissingPackageError(SensorGridError, ImportError):
    """A kernel whose package is not installed."""


@dataclass(frozen=True, slots=True)
class Optimal:
    """Optimal interpolation from the nearest observations."""

    neighbours: int = 20
    """observations that each point depends on"""
    name: str = "optimal"
    """as the configuration spells it"""

    def __call__(
        self,
        observations: Observations,
        points: Floats,
        parameters: Parameters,
        covariate: Floats | None = None,
    ) -> Field:
        """Estimate all points; see `interface.Kernel`."""
        gridpp = _gridpp()
        if not len(observations):
            return unknown(len(points), parameters)
        mu, variance = np.empty(len(points)), np.empty(len(points))
        inside = transformed(observations, parameters)
        for part in chunks(len(points), _POINTS):
            mu[part], variance[part] = self._analysis(gridpp, inside, points[part], parameters)
        own = np.full(len(points), own_variance(parameters))
        error, reading = stated(mu, variance, own, np.ones(len(points)), parameters, parameters.errors_plain)
        return published(mu, error, reading, parameters)

    def _analysis(
        self, gridpp: Any, observations: Observations, points: Floats, parameters: Parameters
    ) -> tuple[Floats, Floats]:
        # Single precision: count in spreads from the mean, or pressures lose their last digits.
        unit = parameters.spread
        scaled = (observations.values - parameters.mean) / unit
        noise = noise_variance(observations, parameters) / unit**2
        shape = "matern" if parameters.shape == "matern" else "exponential"
        # The exponential's tail is the longer one: at the same length values stay alike for longer.
        length = parameters.length / np.sqrt(3.0) if shape == "matern" else parameters.length / 2.0
        place = observations.positions
        found, variance = gridpp.optimal_interpolation_full(
            _points(gridpp, points),
            np.zeros(len(points), np.float32),
            np.ones(len(points), np.float32),
            _points(gridpp, place),
            scaled.astype(np.float32),
            np.maximum(noise, 1e-6).astype(np.float32),
            np.zeros(len(place), np.float32),
            np.ones(len(place), np.float32),
            gridpp.SoarStructure(float(length)),
            self.neighbours,
        )
        values = parameters.mean + unit * np.nan_to_num(np.asarray(found, np.float64))
        return values, unit**2 * np.nan_to_num(np.asarray(variance, np.float64), nan=1.0)


def _points(gridpp: Any, positions: Floats) -> Any:
    """Positions as `gridpp` wants them: degrees on the earth, metres on a plane."""
    empty = np.zeros(len(positions), np.float32)
    if positions.shape[1] == 2:
        x, y = positions.T.astype(np.float32)
        return gridpp.Points(y, x, empty, empty, gridpp.Cartesian)
    latitude = np.degrees(np.arctan2(positions[:, 2], np.hypot(positions[:, 0], positions[:, 1])))
    longitude = np.degrees(np.arctan2(positions[:, 1], positions[:, 0]))
    return gridpp.Points(
        latitude.astype(np.float32), longitude.astype(np.float32), empty, empty, gridpp.Geodetic
    )


def _gridpp() -> Any:
    try:
        import gridpp
    except ImportError:
        raise MissingPackageError(
            "kernel optimal: found no package gridpp, expected `pip install sensorgrid[gridpp]`"
        ) from None
    return gridpp
