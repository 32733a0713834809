"""How alike values are at a distance, and how far an observation can be trusted."""

import numpy as np

from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, Parameters

_NOISE_MIN = 1e-3
"""of the sill: two sensors at one place must not make a system singular"""
_FAR = 800.0
"""lengths beyond which nothing is alike, no neighbour at all (inf) among them: inf times 0 would be nan"""


def correlation(distance: Floats, length: float, shape: str) -> Floats:
    """1 at no distance, falling to 0: exp(-d/l), or Matérn's with smoothness 3/2."""
    if shape == "matern":
        scaled = np.minimum(distance * (np.sqrt(3.0) / length), _FAR)
        found: Floats = np.exp(-scaled) * (1.0 + scaled)
        return found
    return np.exp(distance * (-1.0 / length))


def own_variance(parameters: Parameters) -> float:
    """Variance of one observation, not older than usual, about the truth."""
    return max(parameters.noise, _NOISE_MIN * parameters.sill) ** 2


def noise_variance(observations: Observations, parameters: Parameters) -> Floats:
    """(n,) variance of each observation about the truth at the end of the tick: older and suspect ones are worse."""
    found = own_variance(parameters) + parameters.drift**2 * hours_beyond(
        observations.age_s, parameters.age_s
    )
    return found if observations.doubt is None else found * observations.doubt**2


def hours_beyond(age_s: Floats, usual_s: float) -> Floats:
    """(n,) hours by which observations are older than usual."""
    return np.maximum(age_s - usual_s, 0.0) / 3600.0


def unlikeness(distance: Floats, parameters: Parameters) -> Floats:
    """Variance of the difference of the truth at two places: twice the semivariogram."""
    return 2.0 * parameters.sill**2 * (1.0 - correlation(distance, parameters.length, parameters.shape))
