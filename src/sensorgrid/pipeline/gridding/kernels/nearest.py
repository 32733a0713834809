"""The value of the nearest observation: what every other kernel has to beat."""

from dataclasses import dataclass

import numpy as np

from sensorgrid.pipeline.gridding.kernels.covariance import noise_variance, own_variance, unlikeness
from sensorgrid.pipeline.gridding.kernels.errors import stated
from sensorgrid.pipeline.gridding.kernels.interface import Field, Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.neighbourhood import neighbours_of, separation
from sensorgrid.pipeline.gridding.kernels.transforms import around, forward, unknown


@dataclass(frozen=True, slots=True)
class Nearest:
    """One neighbour; the error is that of the difference between two places, and of the observation."""

    neighbours: int = 1
    """observations that each point depends on; no other number makes sense"""
    name: str = "nearest"
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
        index = neighbours_of(observations.positions, points, 1).index[:, 0]
        distance = separation(observations.positions[index], points)
        values = observations.values[index]
        variance = unlikeness(distance, parameters) + noise_variance(observations, parameters)[index]
        mu, own = forward(values, parameters), np.full(len(points), own_variance(parameters))
        error, reading = stated(mu, variance, own, np.ones(len(points)), parameters, parameters.errors_plain)
        return around(values, error, reading, parameters)
