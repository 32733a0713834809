"""From the variance that a covariance promises to an error that holds.

A covariance knows one sill and one noise for all places and levels. The error of the next reading follows what
hold-outs show it to follow beside the promised variance:

    s² = (variance + noise²) exp(e0 + e1 log unrest + e2 level + e3 level² + e4 (noise share - 1/2))

*Unrest* is the scatter of a point's own neighbours against what the covariance expects, *level* the estimate's
distance from the mean in spreads, *noise share* the noise's part in the variance. The error of the field is the
part of s² that is not the noise of the reading: s² variance / (variance + noise²).
"""

import numpy as np

from sensorgrid.pipeline.gridding.kernels.interface import Floats, Parameters

UNREST = (0.1, 10.0)
"""bounds of what the scatter of a few neighbours may say"""
LEVEL = 3.0
"""bound of the level, in spreads"""
_EXPONENT = 3.0
"""bound of the correction's logarithm, however odd the place is"""


def signs(mu: Floats, variance: Floats, own: Floats, unrest: Floats, p: Parameters) -> Floats:
    """(m, 5) what the error follows, the constant first."""
    found = np.empty((len(mu), 5))
    level = np.clip((mu - p.mean) / p.spread, -LEVEL, LEVEL)
    found[:, 0] = 1.0
    found[:, 1] = np.log(np.clip(unrest, *UNREST))
    found[:, 2] = level
    found[:, 3] = level * level
    found[:, 4] = own / (variance + own) - 0.5
    return found


def reading_variance(
    mu: Floats, variance: Floats, own: Floats, unrest: Floats, p: Parameters, coefficients: tuple[float, ...]
) -> Floats:
    """(m,) variance of the next reading; `own` is that of the reading alone."""
    found = signs(mu, variance, own, unrest, p)
    exponent = np.zeros(len(mu))
    for n, coefficient in enumerate(coefficients):  # no matrix product: its order of sums is the library's
        exponent += coefficient * found[:, n]
    return np.asarray((variance + own) * np.exp(np.clip(exponent, -_EXPONENT, _EXPONENT)), np.float64)


def stated(
    mu: Floats, variance: Floats, own: Floats, unrest: Floats, p: Parameters, coefficients: tuple[float, ...]
) -> tuple[Floats, Floats]:
    """Standard errors of the field and of the next reading, transformed: above 0, bounded by what is known anyway."""
    whole = reading_variance(mu, variance, own, unrest, p, coefficients)
    field = whole * variance / (variance + own)
    least = 1e-6 * min(p.spread, max(p.sill, p.noise))
    error = np.clip(np.sqrt(field), max(least, np.finfo(np.float64).tiny), p.spread)
    reading = np.minimum(np.sqrt(whole), np.sqrt(p.spread**2 + own))
    return error, np.maximum(reading, error)
