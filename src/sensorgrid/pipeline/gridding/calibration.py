"""What an attribute is like: before any measurement (`prior`), and as hold-outs show it (`fit`).

A hold-out takes one observation away and estimates it from others. With the nearest others left out too, it
stands for a grid point in a gap: grid points are farther from sensors than sensors are from each other, and
an error that is right between crowded sensors is too small out there. The covariance that predicts the
hold-outs best, value and error together, is taken; what then remains of the stated errors' dishonesty is
corrected by one factor. Sensors in crowds count less: the grid is even, the sensors are not.

The noise of the observation is part of every residual, not of the error of the grid, and is taken out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from sensorgrid.pipeline.gridding.kernels.covariance import correlation
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.kriging import corrected, plain, solve
from sensorgrid.pipeline.gridding.kernels.neighbourhood import separation
from sensorgrid.pipeline.gridding.neighbours import reject_outliers
from sensorgrid.pipeline.ingest.attributes import KNOWN

OBSERVATIONS_MIN = 20
"""fewer in a tick say nothing"""
TARGETS = 300
"""observations that are held out, over all ticks"""
SKIPS = (0, 2, 8)
"""nearest others left out with it: stations' own distances, and those of grid points in gaps"""

_NEIGHBOURS = 16
_DEGREES = 5.0
"""of freedom of Student's t, as which residuals are scored: fronts are not outliers, but no Gauss either"""
_ONE_SIGMA = 0.6827
_SHARE_OF_SPREAD = 0.7
_MANY = 400.0
"""observations in a tick above which a choice of the covariance's shape is safe"""
_TRUST = 40.0
"""hold-outs that the correction of the errors must rest on to count half"""
_LOCAL = 0.5
"""fitting it to each field gains nothing over this"""
_FEW = 20.0
"""a covariance that was itself estimated makes errors look too small: at this number of observations by √2"""


def prior(attribute: str) -> Parameters:
    """Parameters from general knowledge; an unknown attribute is expected about 0 with a spread of 1.

    Examples
    --------
    >>> prior("air_temperature").spread
    15.0
    """
    known = KNOWN.get(attribute)
    if known is None:
        return Parameters(mean=0.0, spread=1.0, length=5e5, noise=0.1, drift=0.1, sill=_SHARE_OF_SPREAD)
    return Parameters(
        mean=float(known.mean),
        spread=float(known.spread),
        length=float(known.length),
        noise=float(known.noise),
        drift=float(known.drift),
        sill=_SHARE_OF_SPREAD * float(known.spread),
    )


def fit(ticks: Sequence[Observations], start: Parameters) -> Parameters:
    """Parameters from observations alone; `start` where there are too few.

    The drift is not fitted: it stays what `start` says. The cost does not grow with the number of observations:
    hold-outs are a fixed number, taken at even steps.
    """
    ticks = [tick for tick in ticks if len(tick) >= OBSERVATIONS_MIN]
    if not ticks:
        return start
    rough = _rough(ticks, start)
    ticks = [tick.without(reject_outliers(tick, rough)) for tick in ticks]
    if min(len(tick) for tick in ticks) < OBSERVATIONS_MIN:
        return start
    first = _fitted(ticks, rough, TARGETS // 2)
    ticks = [tick.without(reject_outliers(tick, first)) for tick in ticks]
    if min(len(tick) for tick in ticks) < OBSERVATIONS_MIN:
        return start
    return _fitted(ticks, first, TARGETS)


def smooth(old: Parameters, new: Parameters, weight: float) -> Parameters:
    """`old` moved towards `new` by `weight`: 0 keeps the old, 1 takes the new.

    Scales are averaged by their logarithm. The shape is the new one's as soon as it weighs half or more.
    """

    def scale(a: float, b: float) -> float:
        return float(a * (b / a) ** weight) if a > 0 and b > 0 else level(a, b)

    def level(a: float, b: float) -> float:
        return (1 - weight) * a + weight * b

    return Parameters(
        mean=level(old.mean, new.mean),
        spread=scale(old.spread, new.spread),
        length=scale(old.length, new.length),
        noise=scale(old.noise, new.noise),
        drift=scale(old.drift, new.drift),
        shape=new.shape if weight >= 0.5 else old.shape,
        sill=scale(old.sill, new.sill),
        error_scale=scale(old.error_scale, new.error_scale),
        local=level(old.local, new.local),
    )


@dataclass(frozen=True, slots=True)
class _HoldOuts:
    """Observations with the others that are to predict them."""

    between: Floats
    """(h, k, k) distances among the others"""
    towards: Floats
    """(h, k) distances to the held-out one"""
    others: Floats
    """(h, k) values"""
    others_hours: Floats
    """(h, k) age"""
    value: Floats
    """(h,) held out"""
    hours: Floats
    """(h,) age"""
    weight: Floats
    """(h,) by the area that the observation stands for"""


@dataclass(frozen=True, slots=True)
class _Scored:
    """How well a covariance of sill 1 predicts the hold-outs."""

    scores: Floats
    """(h,) negative logarithm of the predictive density"""
    score: float
    """and its mean"""
    sill: float
    """that fits best"""
    residual: Floats
    """(h,) held-out value less its estimate"""
    variance: Floats
    """(h,) of the estimate, for a sill of 1"""
    noise: Floats
    """(h,) variance of the held-out observation, for a sill of 1"""
    unrest: Floats
    """(h,) among the others"""


def _rough(ticks: list[Observations], start: Parameters) -> Parameters:
    """Enough for a first neighbour check: scales from medians, which 2 % of faults do not move."""
    values = np.concatenate([tick.values for tick in ticks])
    middle = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - middle)))
    if spread <= 0.0:  # more than half are equal: rain
        spread = float(np.std(values)) or start.spread
    length = 8.0 * _spacing(ticks)
    held = _hold_outs(ticks, TARGETS // 2)
    rough = replace(start, mean=middle, spread=3 * spread, length=length, sill=spread, noise=0.2 * spread,
                    shape="exponential", error_scale=1.0, local=0.0)  # fmt: skip
    scored = _score(held, "exponential", length, 0.2, (start.drift / spread) ** 2)
    typical = np.abs(scored.residual) / np.sqrt(scored.variance + scored.noise)
    sill = _quantile(typical, held.weight, _ONE_SIGMA)
    sill = sill if sill > 0.0 else spread
    return replace(rough, sill=sill, noise=0.2 * sill)


def _spacing(ticks: list[Observations]) -> float:
    """A usual distance between neighbours; with most sensors in one place, any distance that is not 0."""
    distances = [cKDTree(tick.positions).query(tick.positions, k=[4])[0][:, 0] for tick in ticks]
    found = float(np.median(np.concatenate(distances)))
    return found or float(max(d.max() for d in distances)) or 1.0


def _hold_outs(ticks: list[Observations], targets: int) -> _HoldOuts:
    parts: list[tuple[Floats, ...]] = []
    count = min(_NEIGHBOURS, min(len(tick) for tick in ticks) - 1 - SKIPS[1])
    for tick in ticks:
        tree = cKDTree(tick.positions)
        chosen, weight = _even(_area(tree), max(targets // len(ticks), 1))
        skips = [skip for skip in SKIPS if skip <= (len(tick) - count) / 3]
        index = tree.query(tick.positions[chosen], k=np.arange(1, count + max(skips) + 2))[1]
        order = np.argsort(index == chosen[:, None], axis=1, kind="stable")[:, :-1]
        index = np.take_along_axis(index, order, axis=1)
        for skip in skips:
            others = np.sort(index[:, skip : skip + count], axis=1)
            places = tick.positions[others]
            parts.append((
                separation(places[:, :, None], places[:, None, :]),
                separation(places, tick.positions[chosen][:, None, :]),
                tick.values[others],
                np.maximum(tick.age_s[others], 0.0) / 3600.0,
                tick.values[chosen],
                np.maximum(tick.age_s[chosen], 0.0) / 3600.0,
                weight,
            ))  # fmt: skip
    return _HoldOuts(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _area(tree: cKDTree) -> Floats:
    """(n,) a measure of the area that each observation stands for; none for more than a fiftieth of all."""
    reach = tree.query(tree.data, k=[min(5, tree.n)])[0][:, 0]
    area = reach**2
    area = np.minimum(area, 0.02 * area.sum())
    return area if area.any() else np.ones(tree.n)


def _even(area: Floats, count: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Observations at even steps of area rather than of number, and how often each was met."""
    reached = np.cumsum(area)
    steps = (np.arange(count) + 0.5) * (reached[-1] / count)
    met = np.minimum(np.searchsorted(reached, steps), len(area) - 1)
    chosen, times = np.unique(met, return_counts=True)
    return chosen, times.astype(np.float64)


def _score(held: _HoldOuts, shape: str, length: float, noise: float, drift_square: float) -> _Scored:
    """Predict all hold-outs with a sill of 1, then see which sill would have suited."""
    unit = Parameters(mean=0.0, spread=1e3, length=length, noise=noise, drift=0.0)
    between = correlation(held.between, length, shape)
    systems = solve(between, noise**2 + drift_square * held.others_hours, held.others, unit)
    towards = correlation(held.towards, length, shape)
    values, variance = plain(systems, np.arange(len(held.value)), towards, unit)
    residual, own = held.value - values, noise**2 + drift_square * held.hours
    total, weight = variance + own, held.weight / held.weight.sum()
    square = residual**2 / total
    sill_square = float((weight * square).sum())
    for _ in range(8):  # Student's t by reweighting
        if sill_square <= 0.0:
            break
        sill_square = float((weight * square * (_DEGREES + 1) / (_DEGREES + square / sill_square)).sum())
    if sill_square <= 0.0:  # all values are equal
        return _Scored(np.zeros(len(residual)), 0.0, 0.0, residual, variance, own, systems.unrest)
    scores = 0.5 * np.log(total * sill_square)
    scores += 0.5 * (_DEGREES + 1) * np.log1p(square / (sill_square * _DEGREES))
    score = float((weight * scores).sum())
    return _Scored(scores, score, float(np.sqrt(sill_square)), residual, variance, own, systems.unrest)


def _clearly_better(new: Floats, old: Floats, weight: Floats, observations: float) -> bool:
    """Whether the mean gain is more than its standard error; with few observations, several of these.

    A sensor is held out once per skip, and once per tick if it reports in several: not independently.
    """
    share = weight / weight.sum()
    gain = old - new
    mean = float((share * gain).sum())
    error = np.sqrt((share**2 * (gain - mean) ** 2).sum() * len(SKIPS))
    return bool(mean > error * max(1.0, _MANY / observations))


def _fitted(ticks: list[Observations], start: Parameters, targets: int) -> Parameters:
    held = _hold_outs(ticks, targets)
    values = np.concatenate([tick.values for tick in ticks])
    spread = float(np.std(values))
    if spread <= 0.0:
        return replace(start, mean=float(values[0]))
    spacing, drift_square = _spacing(ticks), (start.drift / start.sill) ** 2
    shape: Literal["exponential", "matern"] = "exponential"
    length, noise, scored = _search(held, shape, spacing, drift_square)
    if scored.sill <= 0.0:
        return replace(start, mean=float(np.mean(values)), spread=spread)
    smoother = _search(held, "matern", spacing, drift_square)
    # The exponential does not overshoot beyond the last sensor: it stays unless the other is clearly better.
    if _clearly_better(smoother[2].scores, scored.scores, held.weight, len(values) / len(ticks)):
        shape, (length, noise, scored) = "matern", smoother
    # The sill of Student's t is not yet one standard error; noise and sill alike take what is missing.
    typical = np.abs(scored.residual) / np.sqrt(scored.variance + scored.noise)
    sill = _quantile(typical, held.weight, _ONE_SIGMA) or scored.sill
    found = Parameters(
        mean=float(np.mean(values)), spread=spread, length=length, noise=noise * sill,
        drift=start.drift, shape=shape, sill=sill, local=_LOCAL,
    )  # fmt: skip
    return _honest(found, scored, held.weight, len(values) / len(ticks))


def _search(held: _HoldOuts, shape: str, spacing: float, drift_square: float) -> tuple[float, float, _Scored]:
    """Length, noise (of a sill of 1) and score: a coarse lattice, then steps that are halved when none helps."""
    tried: dict[tuple[float, float], _Scored] = {}

    def score(at: tuple[float, float]) -> float:
        if at not in tried:
            tried[at] = _score(held, shape, spacing * 2.0 ** at[0], 2.0 ** at[1], drift_square)
        return tried[at].score

    at = min(((a, b) for a in (0.0, 2.0, 4.0) for b in (-4.5, -3.0, -1.0)), key=score)
    step = 1.0
    while step >= 0.25:
        around = [(at[0] + step, at[1]), (at[0] - step, at[1]), (at[0], at[1] + step), (at[0], at[1] - step)]
        around = [(a, b) for a, b in around if -2.0 <= a <= 6.0 and -6.0 <= b <= 2.0]
        better = min(around, key=score)
        if score(better) < score(at) - 1e-9:
            at = better
        else:
            step /= 2.0
    return spacing * 2.0 ** at[0], 2.0 ** at[1], tried[at]


def _honest(found: Parameters, scored: _Scored, weight: Floats, count: float) -> Parameters:
    """With the correction after which 68 % of the residuals lie within one error, noise included."""
    own = scored.noise * found.sill**2
    variance = corrected(scored.variance * found.sill**2, scored.unrest / found.sill**2, found)
    # |r| <= sqrt(s² v + n) means s >= sqrt((r² - n) / v): the factor is a quantile.
    factor = np.sqrt(np.maximum(scored.residual**2 - own, 0.0) / np.maximum(variance, 1e-300))
    needed = np.clip(_quantile(factor, weight, _ONE_SIGMA), 0.4, 2.5)
    # Where the noise is large beside the error, a residual says little about the error.
    told = float(((variance / (variance + own)) ** 2).sum())
    scale = needed ** (told / (told + _TRUST))
    return replace(found, error_scale=float(scale * np.sqrt(1.0 + _FEW / count)))


def _quantile(values: Floats, weight: Floats, share: float) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    return float(values[order][min(np.searchsorted(reached, share * reached[-1]), len(values) - 1)])
