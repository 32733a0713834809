"""Inverse distance weighting: cheap, robust, and blind to crowds of sensors in one direction.

The error is a closed form that costs no more than the value. An estimate that mixes neighbours with weights
w_i errs by the mixture of their own errors e_i, which come from the field (the truth differs between the two
places) and from the observation. Errors of the field share one end, the point, so two of them correlate by
about a half: variance = ½ (1 + Σ w_i²) Σ w_i var(e_i). Those of the observations are independent.

Values are mixed as they are, without the attribute's transform: a mixture is never outside its parts. Errors are
computed after the transform, like those of all kernels.
"""

from dataclasses import dataclass

import numpy as np

from sensorgrid.pipeline.gridding.kernels.covariance import noise_variance, own_variance, unlikeness
from sensorgrid.pipeline.gridding.kernels.errors import stated
from sensorgrid.pipeline.gridding.kernels.interface import Field, Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.neighbourhood import Indices, chunks, neighbours_of, separation
from sensorgrid.pipeline.gridding.kernels.transforms import around, forward, unknown

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

    def __call__(
        self,
        observations: Observations,
        points: Floats,
        parameters: Parameters,
        covariate: Floats | None = None,
    ) -> Field:
        """Estimate all points; see `interface.Kernel`."""
        if not len(observations):
            return unknown(len(points), parameters)
        values, variance = self.estimate(observations, points, parameters)
        mu = forward(values, parameters)
        own = np.full(len(points), own_variance(parameters))
        error, reading = stated(mu, variance, own, np.ones(len(points)), parameters, parameters.errors_plain)
        return around(values, error, reading, parameters)

    def estimate(
        self, observations: Observations, points: Floats, parameters: Parameters
    ) -> tuple[Floats, Floats]:
        """Values as they are, and their variance after the transform, before any correction."""
        index = neighbours_of(observations.positions, points, self.neighbours).index
        return self.mixture(observations, index, points, parameters)

    def mixture(
        self, observations: Observations, index: Indices, points: Floats, parameters: Parameters
    ) -> tuple[Floats, Floats]:
        """The same from given neighbours (m, k); -1 for none."""
        values, variance = np.empty(len(points)), np.empty(len(points))
        noise = noise_variance(observations, parameters)
        for part in chunks(len(points)):
            near = index[part]
            distance = separation(observations.positions[near], points[part, None, :])
            distance[near < 0] = np.inf
            weights = self._weights(distance)
            values[part] = (weights * observations.values[near]).sum(axis=1)
            squares = weights * weights
            field = (weights * unlikeness(distance, parameters)).sum(axis=1)
            field *= 0.5 * (1.0 + squares.sum(axis=1))
            variance[part] = field + (squares * noise[near]).sum(axis=1)
        return values, variance

    def _weights(self, distance: Floats) -> Floats:
        """Observations on top of the point share all the weight; no distance is divided by zero."""
        reach = np.where(np.isinf(distance), 0.0, distance).max(axis=1, keepdims=True)
        reach = np.maximum(reach, np.finfo(np.float64).tiny)
        share = np.maximum(distance / reach, _NEAR)
        weights: Floats = share**-self.power
        weights /= weights.sum(axis=1, keepdims=True)
        return weights
