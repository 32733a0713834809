"""Local ordinary kriging: the default.

Each point is estimated from its nearest observations, weighted by what their covariances say: a crowd of
sensors in one corner counts as one, an old value counts less, and the variance of the estimate comes with it.
The unknown local mean is not quite unknown: it is drawn from (mean, spread). With many neighbours that is
ordinary kriging; with few or far ones the estimate goes back to the mean by itself. If covariates are given for
sensors and points (elevation, the distance to the coast), values follow each with a local slope, drawn from a prior.

The field is continuous in space, and so is its error: an observation that is about to be replaced by another as one
of the nearest loses its weight before (`compiled.krige`).

Everything is computed after the attribute's transform, and errors are corrected by what `calibration` found.
"""

from dataclasses import dataclass

import numpy as np

from sensorgrid.pipeline.gridding.kernels import compiled
from sensorgrid.pipeline.gridding.kernels.covariance import noise_variance, own_variance
from sensorgrid.pipeline.gridding.kernels.errors import stated
from sensorgrid.pipeline.gridding.kernels.interface import Field, Floats, Observations, Parameters, columns_of
from sensorgrid.pipeline.gridding.kernels.neighbourhood import Neighbours, neighbours_of
from sensorgrid.pipeline.gridding.kernels.transforms import published, transformed


@dataclass(frozen=True, slots=True)
class Kriging:
    """Ordinary kriging from the nearest observations."""

    neighbours: int = 24
    """observations that each point depends on; the taper takes the weight of a few, so they count as about 20"""
    name: str = "kriging"
    """as the configuration spells it"""

    def __call__(
        self,
        observations: Observations,
        points: Floats,
        parameters: Parameters,
        covariate: Floats | None = None,
    ) -> Field:
        """Estimate all points; see `interface.Kernel`."""
        found = neighbours_of(observations.positions, points, self.neighbours)
        mu, variance, unrest = estimate(
            transformed(observations, parameters), found, points, parameters, covariate
        )
        own = np.full(len(points), own_variance(parameters))
        error, reading = stated(mu, variance, own, unrest, parameters, parameters.errors)
        return published(mu, error, reading, parameters)


def estimate(
    observations: Observations,
    neighbours: Neighbours,
    points: Floats,
    parameters: Parameters,
    covariate: Floats | None = None,
    noise: Floats | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Value, kriging variance and unrest of points, all transformed, as the observations must be."""
    count = len(points)
    mu, variance, unrest = np.empty(count), np.empty(count), np.empty(count)
    heights, point_heights, slopes, spreads = _drifts(observations, count, parameters, covariate)
    compiled.krige(
        np.ascontiguousarray(observations.positions, np.float64),
        np.ascontiguousarray(observations.values, np.float64),
        noise_variance(observations, parameters) if noise is None else noise,
        heights,
        neighbours.index,
        neighbours.reach,
        np.ascontiguousarray(points, np.float64),
        point_heights,
        model_of(parameters),
        slopes,
        spreads,
        mu,
        variance,
        unrest,
    )
    return mu, variance, unrest


def _drifts(
    observations: Observations, count: int, p: Parameters, covariate: Floats | None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Covariates of observations and points that values follow, and what they follow each of them by."""
    if covariate is None or observations.covariate is None:
        return np.empty((len(observations), 0)), np.empty((count, 0)), np.empty(0), np.empty(0)
    known, asked = columns_of(observations.covariate), columns_of(covariate)
    slopes, spreads = (p.slope, *p.slopes), (p.slope_spread, *p.slope_spreads)
    every = range(min(known.shape[1], asked.shape[1], len(spreads)))
    used = [column for column in every if spreads[column] > 0.0]
    return (
        np.ascontiguousarray(known[:, used], np.float64),
        np.ascontiguousarray(asked[:, used], np.float64),
        np.array([slopes[column] for column in used], np.float64),
        np.array([spreads[column] for column in used], np.float64),
    )


def model_of(p: Parameters) -> Floats:
    """Parameters as `compiled.krige` wants them."""
    matern = 1.0 if p.shape == "matern" else 0.0
    return np.array([p.sill, p.length, matern, p.mean, p.spread])
