"""Inverse distance weighting: cheap, robust, and blind to crowds of sensors in one direction.

The error is a closed form that costs no more than the value. An estimate that mixes neighbours with weights
w_i errs by the mixture of their own errors e_i, which come from the field (the truth differs between the two
places) and from the observation. Errors of the field share one end, the point, so two of them correlate by
about a half: variance = ½ (1 + Σ w_i²) Σ w_i var(e_i). Those of the observations are independent.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from sensorgrid.pipeline.gridding.kernels.covariance import bounded, noise_variance, unlikeness
from sensorgrid.pipeline.gridding.kernels.interface import Field, Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.neighbourhood import CHUNK, nearest_indices, separation

_NEAR = 1e-9
"""of the distance to the farthest neighbour: closer is the same place"""


@dataclass(frozen=True, slots=True)
class InverseDistance:
    """Weights fall with a power of the distance."""

    neighbours: int = 8
    """observations that each point depends on"""
    power: float = 2.0
    """of the distance"""
    name: str = "inverse_distance"
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
                index = nearest_indices(tree, points[part], self.neighbours)
                distance = separation(observations.positions[index], points[part, None, :])
                weights = self._weights(distance)
                values[part] = (weights * observations.values[index]).sum(axis=1)
                squares = weights * weights
                field = (weights * unlikeness(distance, parameters)).sum(axis=1)
                field *= 0.5 * (1.0 + squares.sum(axis=1))
                error[part] = bounded(field + (squares * noise[index]).sum(axis=1), parameters)
        return Field(values, error)

    def _weights(self, distance: Floats) -> Floats:
        """Observations on top of the point share all the weight; no distance is divided by zero."""
        reach = np.maximum(distance.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        share = np.maximum(distance / reach, _NEAR)
        weights: Floats = share**-self.power
        weights /= weights.sum(axis=1, keepdims=True)
        return weights
