"""How alike values are at a distance, and how far an observation can be trusted."""

import numpy as np

from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, Parameters

_NOISE_MIN = 1e-3
"""of the sill: two sensors at one place must not make a system singular"""


def correlation(distance: Floats, length: float, shape: str) -> Floats:
    """1 at no distance, falling to 0: exp(-d/l), or Matérn's with smoothness 3/2."""
    if shape == "matern":
        scaled = distance * (np.sqrt(3.0) / length)
        found: Floats = np.exp(-scaled) * (1.0 + scaled)
        return found
    return np.exp(distance * (-1.0 / length))


def noise_variance(observations: Observations, parameters: Parameters) -> Floats:
    """(n,) variance of each observation about the truth at the end of the tick: older is worse."""
    fresh = max(parameters.noise, _NOISE_MIN * parameters.sill) ** 2
    hours = np.maximum(observations.age_s, 0.0) / 3600.0
    return fresh + parameters.drift**2 * hours


def unlikeness(distance: Floats, parameters: Parameters) -> Floats:
    """Variance of the difference of the truth at two places: twice the semivariogram."""
    return 2.0 * parameters.sill**2 * (1.0 - correlation(distance, parameters.length, parameters.shape))


def bounded(variance: Floats, parameters: Parameters) -> Floats:
    """A variance as a stated error: above 0, and never above what is known without any observation."""
    error = np.sqrt(np.maximum(variance, 0.0))
    least = 1e-6 * min(parameters.spread, max(parameters.sill, parameters.noise))
    return np.clip(error, max(least, np.finfo(np.float64).tiny), parameters.spread)
