"""Transforms: a space in which an attribute is nearly Gaussian, and the way back.

Concentrations, rain and waves are positive and skewed: where the level is ten times as high, so is the scatter. A
covariance knows one scatter. In the logarithm the plume of a fire is a hill like any other, its readings are no
outliers, and no estimate is negative. Humidity and cloud cover are squeezed against two walls.

- `identity`: nothing is done.
- `log`: log(value - lowest + offset), with an offset of the order of usual values, so that zero is no abyss.
- `bounded`: log((value - lowest + c) / (highest - value + c)), c some part of the range, the offset: walls that are
  often reached (fog) need a larger one.

The way back: the published value is the mean of what the estimate and its error stand for (the median would be
lower than the mean of the readings), the interval is that of the transformed estimate, one error to each side.
"""

from dataclasses import replace

import numpy as np

from sensorgrid.pipeline.gridding.kernels.interface import Field, Floats, Observations, Parameters

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_VARIANCE_MAX = 1.0
"""of a logarithm, for the mean: beyond, the mean is made of what was never observed"""


def forward(values: Floats, p: Parameters) -> Floats:
    """Values as the parameters count them."""
    if p.transform == "log":
        above = values - _low(p)
        found = np.log(np.maximum(above, 0.0) + p.offset)
        if (
            p.family == "unknown"
        ):  # that nothing was below the wall yet proves little: go on in a straight line
            found = found + np.minimum(above, 0.0) / p.offset
        return np.asarray(found, np.float64)
    if p.transform == "bounded":
        low, high, edge = _walls(p)
        inside = np.clip(values, low, high)
        return np.asarray(np.log((inside - low + edge) / (high - inside + edge)), np.float64)
    return np.asarray(values, np.float64)


def backward(transformed: Floats, p: Parameters) -> Floats:
    """The attribute's own unit again, within its physical range."""
    if p.transform == "log":
        # A number beyond all physics is as good as infinity, and does not overflow.
        values = np.exp(np.minimum(transformed, 300.0)) - p.offset + _low(p)
        if p.family == "unknown":
            below = transformed - np.log(p.offset)
            values = np.where(below < 0.0, _low(p) + p.offset * below, values)
    elif p.transform == "bounded":
        low, high, edge = _walls(p)
        share = 1.0 / (1.0 + np.exp(-np.clip(transformed, -300.0, 300.0)))
        values = low - edge + (high - low + 2 * edge) * share
    else:
        values = transformed
    return np.asarray(np.clip(values, p.lowest, p.highest) if _limited(p) else values, np.float64)


def without_wall(p: Parameters, values: Floats) -> Parameters:
    """Parameters for readings of an unknown attribute that have gone below what was taken for a wall."""
    if p.family != "unknown" or p.lowest is None or not len(values) or float(values.min()) >= p.lowest:
        return p
    return replace(p, lowest=None)


def log_slope(values: Floats, p: Parameters) -> Floats:
    """Logarithm of the transform's derivative: what a density in the transformed space lacks in the other."""
    if p.transform == "log":
        return -np.log(np.maximum(values - _low(p), 0.0) + p.offset)
    if p.transform == "bounded":
        low, high, edge = _walls(p)
        inside = np.clip(values, low, high)
        return np.asarray(
            np.log(high - low + 2 * edge) - np.log(inside - low + edge) - np.log(high - inside + edge),
            np.float64,
        )
    return np.zeros(len(values))


def transformed(observations: Observations, p: Parameters) -> Observations:
    """The same observations, in the space of the parameters."""
    if p.transform == "identity":
        return observations
    return replace(observations, values=forward(observations.values, p))


def published(mu: Floats, error: Floats, reading: Floats, p: Parameters) -> Field:
    """What estimates and their errors, in the transformed space, are in the attribute's own unit."""
    return _field(_expected(mu, reading, p), mu, error, reading, p)


def around(values: Floats, error: Floats, reading: Floats, p: Parameters) -> Field:
    """The same for values that were found without the transform; errors are transformed ones."""
    inside = np.clip(values, p.lowest, p.highest) if _limited(p) else values
    return _field(inside, forward(inside, p), error, reading, p)


def unknown(count: int, p: Parameters) -> Field:
    """What is known where there is no observation at all."""
    mu, error = np.full(count, p.mean), np.full(count, p.spread)
    return published(mu, error, np.hypot(error, p.noise), p)


def unit_at(value: float, p: Parameters) -> float:
    """How much a small step in the attribute's own unit is in the transformed space, at a value."""
    return float(np.exp(log_slope(np.array([value]), p))[0])


def shown(p: Parameters) -> str:
    """The transform, for people; empty if there is none.

    Examples
    --------
    >>> shown(Parameters(0, 1, 1, 1, 0, transform="log", offset=3.0))
    'log(value + 3)'
    """
    if p.transform == "log":
        return (
            f"log(value + {p.offset:.3g})" if not p.lowest else f"log(value - {p.lowest:g} + {p.offset:.3g})"
        )
    if p.transform == "bounded":
        low, high, edge = _walls(p)
        return f"log((value - {low - edge:.3g}) / ({high + edge:.3g} - value))"
    return ""


def _field(values: Floats, mu: Floats, error: Floats, reading: Floats, p: Parameters) -> Field:
    # The mean of a skewed estimate can lie beyond the interval around its middle; an interval holds its value.
    lower, upper = np.minimum(backward(mu - error, p), values), np.maximum(backward(mu + error, p), values)
    least = np.maximum(1e-6 * np.abs(values), np.finfo(np.float32).tiny)
    half = (upper - lower) / 2.0 if p.transform != "identity" else error
    return Field(
        values,
        np.maximum(half, least) if p.transform != "identity" else half,
        lower,
        upper,
        backward(mu - reading, p),
        backward(mu + reading, p),
    )


def _expected(mu: Floats, error: Floats, p: Parameters) -> Floats:
    if p.transform == "identity":
        return backward(mu, p)
    limited = np.minimum(error, np.sqrt(_VARIANCE_MAX))
    total = np.zeros(len(mu))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += weight * backward(mu + node * limited, p)
    return np.asarray(np.clip(total, p.lowest, p.highest) if _limited(p) else total, np.float64)


def _limited(p: Parameters) -> bool:
    return p.lowest is not None or p.highest is not None


def _low(p: Parameters) -> float:
    return 0.0 if p.lowest is None else p.lowest


def _walls(p: Parameters) -> tuple[float, float, float]:
    low, high = _low(p), 1.0 if p.highest is None else p.highest
    return low, high, p.offset * (high - low)
