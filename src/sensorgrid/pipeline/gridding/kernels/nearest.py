"""The value of the nearest observation: what every other kernel has to beat."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from sensorgrid.pipeline.gridding.kernels.covariance import bounded, noise_variance, unlikeness
from sensorgrid.pipeline.gridding.kernels.interface import Field, Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.neighbourhood import CHUNK, nearest_indices, separation


@dataclass(frozen=True, slots=True)
class Nearest:
    """One neighbour; the error is that of the difference between two places, and of the observation."""

    neighbours: int = 1
    """observations that each point depends on; no other number makes sense"""
    name: str = "nearest"
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
                index = nearest_indices(tree, points[part], 1)[:, 0]
                distance = separation(observations.positions[index], points[part])
                values[part] = observations.values[index]
                error[part] = bounded(unlikeness(distance, parameters) + noise[index], parameters)
        return Field(values, error)
