"""Local ordinary kriging: the default.

Each point is estimated from its nearest observations, weighted by what their covariances say: a crowd of
sensors in one corner counts as one, an old value counts less, and the variance of the estimate comes with it.
The unknown local mean is not quite unknown: it is drawn from (mean, spread). With many neighbours that is
ordinary kriging; with few or far ones the estimate goes back to the mean by itself. In matrices: the
covariance of the observations is K + spread² 11'.

Neighbouring grid points mostly have the same neighbours, so systems are inverted once per set of neighbours,
not once per point: most of the speed.

Two corrections make the stated error honest. `local`: the field is calm here and restless there, while the
covariance knows one sill for all; the scatter of a point's own neighbours, measured in their covariance,
tells. `error_scale`: what `calibration` found when it compared residuals of hold-outs with their errors.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from sensorgrid.pipeline.gridding.kernels.covariance import bounded, correlation, noise_variance
from sensorgrid.pipeline.gridding.kernels.interface import Field, Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.neighbourhood import CHUNK, nearest_indices, separation

_UNREST = (0.1, 10.0)
"""bounds of what the scatter of a few neighbours may do to the variance"""


@dataclass(frozen=True, slots=True)
class Kriging:
    """Ordinary kriging from the nearest observations."""

    neighbours: int = 20
    """observations that each point depends on"""
    name: str = "kriging"
    """as the configuration spells it"""

    def __call__(self, observations: Observations, points: Floats, parameters: Parameters) -> Field:
        """Estimate all points; see `interface.Kernel`."""
        values = np.full(len(points), parameters.mean)
        error = np.full(len(points), parameters.spread)
        if len(observations):
            tree = cKDTree(observations.positions)
            noise = noise_variance(observations, parameters)
            for start in range(0, len(points), CHUNK):
                part = slice(start, start + CHUNK)
                values[part], error[part] = self._chunk(tree, observations, noise, points[part], parameters)
        return Field(values, error)

    def _chunk(
        self, tree: cKDTree, observations: Observations, noise: Floats, points: Floats, parameters: Parameters
    ) -> tuple[Floats, Floats]:
        index = nearest_indices(tree, points, self.neighbours)
        sets, member = np.unique(index, axis=0, return_inverse=True)
        places = observations.positions[sets]
        between = covariance(separation(places[:, :, None], places[:, None, :]), parameters)
        systems = solve(between, noise[sets], observations.values[sets], parameters)
        member = member.reshape(-1)
        towards = covariance(separation(places[member], points[:, None, :]), parameters)
        return estimate(systems, member, towards, parameters)


def covariance(distance: Floats, parameters: Parameters) -> Floats:
    """Covariance of the truth at two places."""
    found = correlation(distance, parameters.length, parameters.shape)
    found *= parameters.sill**2
    return found


@dataclass(frozen=True, slots=True)
class Systems:
    """Kriging systems of some sets of neighbours, solved as far as the point does not matter."""

    inverse: Floats
    """(g, k, k) of the covariance of the observations"""
    row_sums: Floats
    """(g, k) of the inverse"""
    precision: Floats
    """(g,) of the local mean, that of the prior included"""
    mean: Floats
    """(g,) the local mean"""
    dual: Floats
    """(g, k) inverse times deviations from the local mean: estimates are products with it"""
    unrest: Floats
    """(g,) scatter of the neighbours relative to what the covariance expects"""


def solve(between: Floats, noise: Floats, values: Floats, parameters: Parameters) -> Systems:
    """Solve for sets of neighbours: covariance (g, k, k) of the truth, noise (g, k), values (g, k)."""
    count = values.shape[1]
    system = between.copy()
    diagonal = np.arange(count)
    system[:, diagonal, diagonal] += noise
    inverse: Floats = np.linalg.inv(system).astype(np.float64, copy=False)
    row_sums = inverse.sum(axis=2)
    precision = row_sums.sum(axis=1) + 1.0 / parameters.spread**2
    deviation = values - parameters.mean
    mean = (row_sums * deviation).sum(axis=1) / precision
    deviation -= mean[:, None]
    dual = (inverse * deviation[:, None, :]).sum(axis=2)
    scatter = (deviation * dual).sum(axis=1) + mean**2 / parameters.spread**2
    return Systems(inverse, row_sums, precision, parameters.mean + mean, dual, scatter / count)


def estimate(
    systems: Systems, member: np.ndarray, towards: Floats, parameters: Parameters
) -> tuple[Floats, Floats]:
    """Value and error of points: which system each uses (m,), its covariances with the neighbours (m, k)."""
    values, variance = plain(systems, member, towards, parameters)
    return values, bounded(corrected(variance, systems.unrest[member], parameters), parameters)


def plain(
    systems: Systems, member: np.ndarray, towards: Floats, parameters: Parameters
) -> tuple[Floats, Floats]:
    """Value and kriging variance, before any correction."""
    values = systems.mean[member] + (towards * systems.dual[member]).sum(axis=1)
    weights = np.matmul(systems.inverse[member], towards[:, :, None])[:, :, 0]
    explained = (weights * towards).sum(axis=1)
    missing = 1.0 - (systems.row_sums[member] * towards).sum(axis=1)
    variance = parameters.sill**2 - explained + missing**2 / systems.precision[member]
    return values, np.maximum(variance, 0.0)


def corrected(variance: Floats, unrest: Floats, parameters: Parameters) -> Floats:
    """The variance, scaled by what hold-outs found and by the unrest of the neighbours."""
    if parameters.local:
        variance = variance * (1.0 - parameters.local + parameters.local * np.clip(unrest, *_UNREST))
    return variance * parameters.error_scale**2
