"""What an attribute is like: before any measurement (`prior`), and as hold-outs show it (`calibrate`, `fit`).

A hold-out takes one observation away and estimates it from others. With the nearest others left out too, it
stands for a grid point in a gap: grid points are farther from sensors than sensors are from each other, and
an error that is right between crowded sensors is too small out there. Hold-outs of all ticks are pooled, so that
a dozen stations with a week of data say as much as a thousand at one moment.

What predicts the hold-outs best, value and error together, is taken: first the transform, then the covariance, then
the priors of the slopes with covariates. Last, the errors that these promise are compared with the residuals, and
corrected by what they turn out to follow (`kernels.errors`). Sensors in crowds count less: the grid is even, the
sensors are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.spatial import cKDTree

from sensorgrid.pipeline.gridding.kernels import CHEAP, DEFAULT
from sensorgrid.pipeline.gridding.kernels.covariance import hours_beyond, own_variance
from sensorgrid.pipeline.gridding.kernels.errors import signs
from sensorgrid.pipeline.gridding.kernels.interface import (
    Family,
    Floats,
    Observations,
    Parameters,
    Transform,
    columns_of,
)
from sensorgrid.pipeline.gridding.kernels.inverse_distance import InverseDistance
from sensorgrid.pipeline.gridding.kernels.kriging import Kriging, estimate
from sensorgrid.pipeline.gridding.kernels.neighbourhood import Indices, Neighbours
from sensorgrid.pipeline.gridding.kernels.transforms import (
    backward,
    forward,
    log_slope,
    published,
    transformed,
    unit_at,
    without_wall,
)
from sensorgrid.pipeline.gridding.neighbours import reject_outliers
from sensorgrid.pipeline.ingest.attributes import KNOWN

TARGETS = 900
"""observations that are held out, over all ticks"""
TICKS_MIN = 12
"""ticks that a fit should see, if there are so many"""
SKIPS = (0, 2, 8)
"""nearest others left out with it: stations' own distances, and those of grid points in gaps"""
STATIONS_FEW = 12
"""with fewer, inverse distance is better than kriging"""
HOLD_OUTS_MIN = 10
"""fewer say nothing"""

_NEIGHBOURS = Kriging().neighbours
_DEGREES = 5.0
"""of freedom of Student's t, as which residuals are scored: fronts are not outliers, but no Gauss either"""
_ONE_SIGMA = 0.6827
_SHARE_OF_SPREAD = 0.7
_MANY = 400.0
"""observations in a tick above which a choice of the covariance's shape is safe"""
_CLEARLY = 0.01
"""of the score, by which another transform must beat the identity"""
_TRANSFORM_TARGETS = 300
_SLOPES = (0.25, 0.5, 1.0, 2.0)
"""spreads of the slope that are tried, in usual slopes"""
_SPREADS = (0.1, 0.3, 1.0)
"""the same of further covariates, in what values differ by where the covariate does"""
_SLOPE_GAIN = 0.003
"""of the score, by which a covariate must help"""
_CORRECTION = 0.5
"""how large a correction of errors is expected to be, one standard deviation of a coefficient"""
_ROUNDING = 1e-9
"""of the largest value: equal numbers scatter by less, and no sensor resolves it"""
_FEW = 20.0
"""a covariance that was itself estimated makes errors look too small: from so many values by √2"""
_EVENNESS = 1.0
"""power of a station's distance to its neighbours that it counts with: 2 would be the grid's view, 0 the stations'"""
_TAIL, _TAIL_OF_T, _TAIL_MAX = 0.95, 4.0, 10.0
"""a quantile of residuals, from how many usual ones on it is a long tail, and how much of that is believed"""
_WORSE = 1.01
"""how much worse than inverse distance's kriging's hold-outs may be; unless that is certain, the former is taken"""
_USUAL = 3.0
"""usual errors at which an error is cut for that comparison"""
_CERTAIN = 2.0
"""standard errors within which a figure may lie"""


_FAMILY_OF: dict[Transform, Family] = {"identity": "any", "log": "positive", "bounded": "bounded"}


@dataclass(frozen=True, slots=True)
class Calibration:
    """Parameters, the kernel that suits them, and what both rest on."""

    parameters: Parameters
    kernel: str
    """the one that was asked for, or a simpler one if the hold-outs say so"""
    stations: int
    """in a usual tick"""
    readings: int
    """that were looked at"""
    why: str
    """for people"""


def prior(attribute: str, transform: Transform | None = None, usual: float | None = None) -> Parameters:
    """Parameters from general knowledge; an unknown attribute is expected about 0 with a spread of 1.

    `transform` goes before the one that suits the attribute; `usual` is a usual value of an unknown one.

    Examples
    --------
    >>> prior("air_temperature").spread
    15.0
    """
    known = KNOWN.get(attribute)
    if known is None:
        raw = Parameters(mean=0.0, spread=1.0, length=5e5, noise=0.1, drift=0.1, sill=_SHARE_OF_SPREAD)
        if transform != "log":
            return raw
        offset = _round_power(usual) if usual is not None and usual > 0 else 1.0
        return expressed(raw, replace(raw, transform="log", offset=offset))
    lowest, highest = known.physical
    raw = Parameters(
        known.mean, known.spread, known.length, known.noise, known.drift,
        sill=_SHARE_OF_SPREAD * known.spread, lowest=lowest, highest=highest, family=known.family,
    )  # fmt: skip
    usually: dict[str, Transform] = {"any": "identity", "positive": "log", "bounded": "bounded"}
    kind = transform or usually[known.family]
    if kind == "identity":
        return raw
    return expressed(
        raw, replace(raw, transform=kind, offset=_round_power(known.mean) if kind == "log" else 0.2)
    )


def expressed(raw: Parameters, space: Parameters) -> Parameters:
    """Parameters in an attribute's own unit, as they are after the transform of `space`; scales to first order."""
    unit = unit_at(raw.mean, space)
    return replace(
        space, mean=float(forward(np.array([raw.mean]), space)[0]), spread=unit * raw.spread,
        noise=unit * raw.noise, drift=unit * raw.drift, sill=unit * raw.sill,
    )  # fmt: skip


def fit(ticks: Sequence[Observations], start: Parameters) -> Parameters:
    """Parameters from observations alone; `start` where there are none. See `calibrate`."""
    return calibrate(ticks, start).parameters


def calibrate(
    ticks: Sequence[Observations],
    start: Parameters,
    kernel: str = DEFAULT,
    transform: Transform | None = None,
    tick_s: float = 3600.0,
) -> Calibration:
    """Fit parameters to observations, and see whether `kernel` suits them; `transform` forbids all others.

    `tick_s` is the time between two ticks: one sensor alone can only be known by how its readings change.

    The drift is not fitted: it stays what `start` says. The cost does not grow with the number of observations:
    hold-outs are a fixed number, taken at even steps.
    """
    ticks = _some([tick for tick in ticks if len(tick)])
    readings = sum(map(len, ticks))
    if not readings:
        return Calibration(start, kernel, 0, 0, "priors: no measurement in the ticks that were looked at")
    stations = int(np.median([len(tick) for tick in ticks]))
    usual_s = float(np.median(np.concatenate([tick.age_s for tick in ticks])))
    start = replace(start, age_s=max(usual_s, 0.0))
    counted = f"{readings:,} values of {stations:,} stations in {len(ticks)} ticks"
    few = kernel == DEFAULT and stations < STATIONS_FEW
    usable = [tick for tick in ticks if len(tick) >= 2]
    if sum(map(len, usable)) < HOLD_OUTS_MIN:
        found = _level(ticks, start, tick_s)
        return Calibration(
            found, CHEAP if few else kernel, stations, readings,
            f"mean and spread of {counted}; the rest are priors: too few values for hold-outs",
        )  # fmt: skip
    space, kept = _choose_transform(usable, start, transform)
    begin = _rough(_inside(kept, space), space)
    # The tail of rough parameters says more about these than about the readings.
    middle = _fitted(_inside(kept, space), replace(begin, tail=1.0), TARGETS // 2)
    kept = [tick.without(reject_outliers(tick, middle)) for tick in usable]
    kept = [tick for tick in kept if len(tick) >= 2] or usable
    found = _fitted(_inside(kept, space), middle, TARGETS)
    found, (worse, at_worst) = _corrected(kept, found)
    why = f"{describe(found)}, fitted to {counted}"
    if few:
        why += f"; {CHEAP}: fewer than {STATIONS_FEW} stations"
    elif kernel == DEFAULT and at_worst > _WORSE:
        why += (
            f"; {CHEAP}: {DEFAULT} has {worse:.2f} times its errors at hold-outs, and may have {at_worst:.2f}"
        )
        few = True
    return Calibration(found, CHEAP if few else kernel, stations, readings, why)


def overridden(
    found: Parameters,
    mean: float | None = None,
    spread: float | None = None,
    length: float | None = None,
    noise: float | None = None,
) -> Parameters:
    """Parameters with what an operator knows better; in the attribute's own unit, `length` in metres."""
    if mean is not None:
        found = replace(found, mean=float(forward(np.array([mean]), found)[0]))
    unit = unit_at(float(backward(np.array([found.mean]), found)[0]), found)
    if spread is not None:
        found = replace(found, spread=unit * spread, sill=found.sill * unit * spread / found.spread)
    if length is not None:
        found = replace(found, length=length)
    return found if noise is None else replace(found, noise=unit * noise)


def describe(p: Parameters) -> str:
    """The transform, for people."""
    if p.transform == "log":
        shown = (
            f"log(value + {p.offset:.3g})" if not p.lowest else f"log(value - {p.lowest:g} + {p.offset:.3g})"
        )
    elif p.transform == "bounded":
        shown = f"bounded between {p.lowest or 0.0:g} and {1.0 if p.highest is None else p.highest:g}"
    else:
        shown = "values as they are"
    if p.slope_spread > 0:
        shown += f", following the elevation by {p.slope:.3g} ± {p.slope_spread:.2g} per metre"
    for name, spread in zip(p.covariates, p.slope_spreads, strict=False):
        if spread > 0:
            shown += f", following {name} by 0 ± {spread:.2g} per unit"
    return shown


def smooth(old: Parameters, new: Parameters, weight: float) -> Parameters:
    """`old` moved towards `new` by `weight`: 0 keeps the old, 1 takes the new.

    Scales are averaged by their logarithm. What cannot be averaged, the shape and the transform, is the new one's as
    soon as it weighs half or more; between two transforms there is nothing to average at all.
    """
    if (old.transform, old.offset) != (new.transform, new.offset):
        return new if weight >= 0.5 else old

    def scale(a: float, b: float) -> float:
        return float(a * (b / a) ** weight) if a > 0 and b > 0 else level(a, b)

    def level(a: float, b: float) -> float:
        return (1 - weight) * a + weight * b

    def levels(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(level(x, y) for x, y in zip(a, b, strict=True))

    newer = new if weight >= 0.5 else old
    alike = old.covariates == new.covariates and len(old.slopes) == len(new.slopes)
    return replace(
        newer,
        mean=level(old.mean, new.mean),
        spread=scale(old.spread, new.spread),
        length=scale(old.length, new.length),
        noise=scale(old.noise, new.noise),
        drift=scale(old.drift, new.drift),
        sill=scale(old.sill, new.sill),
        errors=levels(old.errors, new.errors),
        errors_plain=levels(old.errors_plain, new.errors_plain),
        slope=level(old.slope, new.slope),
        slope_spread=level(old.slope_spread, new.slope_spread),
        slopes=levels(old.slopes, new.slopes) if alike else newer.slopes,
        slope_spreads=levels(old.slope_spreads, new.slope_spreads) if alike else newer.slope_spreads,
        age_s=level(old.age_s, new.age_s),
        tail=level(old.tail, new.tail),
    )


def _some(ticks: list[Observations]) -> list[Observations]:
    """As many ticks as the hold-outs need, at even steps, the last one among them."""
    if not ticks:
        return ticks
    usual = float(np.median([len(tick) for tick in ticks]))
    wanted = max(TICKS_MIN, ceil(TARGETS / usual))
    if len(ticks) <= wanted:
        return ticks
    return [ticks[i] for i in np.linspace(0, len(ticks) - 1, wanted).round().astype(int).tolist()]


def _inside(ticks: Sequence[Observations], p: Parameters) -> list[Observations]:
    return [transformed(tick, p) for tick in ticks]


def _level(ticks: Sequence[Observations], start: Parameters, tick_s: float) -> Parameters:
    """Mean and spread from data, and how fast values change, if one sensor says so; all else is the prior's."""
    space = start if start.family != "unknown" else replace(start, transform="identity", offset=0.0)
    inside = _inside(ticks, space)
    values = np.concatenate([tick.values for tick in inside])
    spread = _scatter(values) if len(values) > 2 else 0.0
    if spread <= 0.0:  # nothing is known of the variation: that of the prior, or of the value's own size
        size = abs(float(values[0])) if start.family == "unknown" else 0.0
        spread = max(start.spread, 0.1 * size)
    share = spread / start.spread
    noise, drift = start.noise * share, start.drift * share
    if all(len(tick) == 1 for tick in ticks) and len(values) > 3:
        # A change from tick to tick is two errors of observation and a way of the truth: half of it each.
        change = float(np.quantile(np.abs(np.diff(values)), _ONE_SIGMA))
        if change > _ROUNDING * float(np.abs(values).max()):
            noise, drift = change / 2.0, change / np.sqrt(2.0 * tick_s / 3600.0)
    return replace(
        space, mean=float(np.mean(values)), spread=spread, sill=start.sill * share, noise=noise, drift=drift
    )  # fmt: skip


def _scatter(values: Floats) -> float:
    """Standard deviation; 0 if it is what rounding makes of equal values."""
    found = float(np.std(values))
    return found if found > _ROUNDING * float(np.abs(values).max()) else 0.0


# Transforms.


def _choose_transform(
    ticks: list[Observations], start: Parameters, wanted: Transform | None
) -> tuple[Parameters, list[Observations]]:
    """The space that predicts hold-outs best, and the observations that are no faults in the kindest one."""
    values = np.concatenate([tick.values for tick in ticks])
    spaces = _spaces(values, start if wanted is None else replace(start, family=_FAMILY_OF[wanted]))
    if start.family == "unknown":  # that it is to be a logarithm does not say that nothing is below zero
        spaces = [without_wall(replace(space, family="unknown"), values) for space in spaces]
    spaces = [space for space in spaces if wanted in (None, space.transform)] or spaces
    kindest = spaces[-1]
    rough = _rough(_inside(ticks, kindest), kindest)
    kept = [tick.without(reject_outliers(tick, rough)) for tick in ticks]
    kept = [tick for tick in kept if len(tick) >= 2] or ticks
    if len(spaces) == 1:
        return spaces[0], kept
    scores = [_space_score(kept, space) for space in spaces]
    best = int(np.argmin(scores))
    return spaces[best if scores[best] < scores[0] - _CLEARLY else 0], kept


def _spaces(values: Floats, start: Parameters) -> list[Parameters]:
    """Transforms to try, the identity first, the strongest but one last: parameters that only say the transform."""
    lowest, highest, family = start.lowest, start.highest, start.family
    if family == "unknown" and float(values.min()) >= 0.0:
        family = "positive"
        # Values that come close to zero show that there is a wall.
        usual = float(np.median(values[values > 0])) if (values > 0).any() else 0.0
        lowest = 0.0 if float(np.quantile(values, 0.01)) <= 0.1 * usual else None
    plain = replace(start, transform="identity", offset=0.0, lowest=lowest, highest=highest)
    if family == "bounded":
        return [plain, *(replace(plain, transform="bounded", offset=edge) for edge in (0.05, 0.2))]
    above = values - (lowest or 0.0)
    if family != "positive" or not (above > 0).any():
        return [plain]
    usual = float(np.median(above[above > 0]))
    low = 0.0 if lowest is None else lowest
    return [
        plain,
        *(replace(plain, transform="log", lowest=low, offset=_round_power(c * usual)) for c in (0.3, 1.0)),
    ]


def _round_power(value: float) -> float:
    """The nearest power of two: a median that wanders does not change the transform from fit to fit."""
    return float(2.0 ** round(log2(value)))


def _space_score(ticks: list[Observations], space: Parameters) -> float:
    """Mean negative log density of the held-out values themselves: that of the space, and its Jacobian."""
    inside = _inside(ticks, space)
    rough = _rough(inside, space)
    pool = _hold_outs(inside, _TRANSFORM_TARGETS)
    scale = _scale(pool, rough)
    if scale.spread <= 0.0:
        return np.inf
    _, _, scored = _search(pool, "exponential", _spacing(ticks), scale)
    weight = pool.weight / pool.weight.sum()
    raw = np.concatenate([tick.values for tick in ticks])[pool.target]
    return scored.score - float((weight * log_slope(raw, space)).sum())


# Hold-outs.


@dataclass(frozen=True, slots=True)
class _Pool:
    """Observations of all ticks, some of which are held out, each with the others that are to predict it."""

    all: Observations
    """transformed"""
    target: npt.NDArray[np.int64]
    """(h,) which are held out"""
    neighbours: Neighbours
    """of these, among the same tick's"""
    near: Indices
    """(h, 8) the nearest of them, for kernels that use no more"""
    weight: Floats
    """(h,) by the area that the observation stands for"""
    skipped: npt.NDArray[np.int64]
    """(h,) how many of the nearest others were left out with it"""

    @property
    def points(self) -> Floats:
        return self.all.positions[self.target]

    @property
    def covariate(self) -> Floats | None:
        return None if self.all.covariate is None else self.all.covariate[self.target]


@dataclass(frozen=True, slots=True)
class _Scale:
    """What a covariance of sill 1 is measured in."""

    mean: float
    spread: float
    """of the prior"""
    sill: float
    """a first guess, in which the spread and the drift are counted"""
    drift: float
    age_s: float
    """beyond which the drift counts"""
    slope: float = 0.0
    slope_spread: float = 0.0
    slopes: tuple[float, ...] = ()
    """of further covariates"""
    slope_spreads: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Scored:
    """How well a covariance predicts the hold-outs."""

    scores: Floats
    """(h,) negative logarithm of the predictive density"""
    score: float
    """and its mean"""
    sill: float
    """that fits best"""
    residual: Floats
    """(h,) held-out value less its estimate"""
    total: Floats
    """(h,) variance of the residual, for a sill of 1"""


def _hold_outs(ticks: list[Observations], targets: int) -> _Pool:
    parts: list[tuple[npt.NDArray[np.generic], ...]] = []
    before, each = 0, max(targets // len(ticks), 1)
    for tick in ticks:
        tree, count = cKDTree(tick.positions), len(tick)
        chosen, weight = _even(_area(tree), min(each, count))
        skips = [skip for skip in SKIPS if skip <= (count - 1) / 3]
        asked = min(_NEIGHBOURS + max(skips) + 2, count)
        distance, index = tree.query(tick.positions[chosen], k=np.arange(1, asked + 1))
        order = np.argsort(index == chosen[:, None], axis=1, kind="stable")[:, :-1]
        distance, index = (np.take_along_axis(a, order, axis=1) for a in (distance, index))
        for skip in skips:
            others = np.full((len(chosen), _NEIGHBOURS), -1 - before)
            found = index[:, skip : skip + _NEIGHBOURS]
            others[:, : found.shape[1]] = found
            reach = np.full(len(chosen), np.inf)
            if index.shape[1] > skip + _NEIGHBOURS:
                reach = distance[:, skip + _NEIGHBOURS]
            parts.append((
                chosen + before, np.sort(others + before, axis=1), reach, others[:, :8] + before, weight,
                np.full(len(chosen), skip),
            ))  # fmt: skip
        before += count
    target, index, reach, near, weight, skipped = (np.concatenate(a) for a in zip(*parts, strict=True))
    heights = [tick.covariate for tick in ticks]
    everything = Observations(
        np.concatenate([tick.positions for tick in ticks]),
        np.concatenate([tick.values for tick in ticks]),
        np.concatenate([tick.age_s for tick in ticks]),
        None if any(h is None for h in heights) else np.concatenate([h for h in heights if h is not None]),
    )
    return _Pool(
        everything, target.astype(np.int64), Neighbours(index.astype(np.int32), reach.astype(np.float64)),
        near.astype(np.int32), weight.astype(np.float64), skipped.astype(np.int64),
    )  # fmt: skip


def _area(tree: cKDTree) -> Floats:
    """(n,) a measure of the area that each observation stands for; none for more than a fiftieth of all."""
    reach = tree.query(tree.data, k=[min(5, tree.n)])[0][:, 0]
    area = reach**_EVENNESS
    area = np.minimum(area, 0.02 * area.sum())
    return area if area.any() else np.ones(tree.n)


def _even(area: Floats, count: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Observations at even steps of area rather than of number, and how often each was met."""
    reached = np.cumsum(area)
    steps = (np.arange(count) + 0.5) * (reached[-1] / count)
    met = np.minimum(np.searchsorted(reached, steps), len(area) - 1)
    chosen, times = np.unique(met, return_counts=True)
    return chosen, times.astype(np.float64)


def _spacing(ticks: Sequence[Observations]) -> float:
    """A usual distance between neighbours; with most sensors in one place, any distance that is not 0."""
    distances = [
        cKDTree(tick.positions).query(tick.positions, k=[min(4, len(tick))])[0][:, 0] for tick in ticks
    ]
    found = float(np.median(np.concatenate(distances)))
    return found or float(max(d.max() for d in distances)) or 1.0


# The covariance.


def _rough(ticks: list[Observations], start: Parameters) -> Parameters:
    """Enough for a first neighbour check: scales from medians, which 2 % of faults do not move."""
    values = np.concatenate([tick.values for tick in ticks])
    middle = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - middle)))
    if spread <= _ROUNDING * float(np.abs(values).max()):  # more than half are equal: rain
        spread = _scatter(values) or start.spread
    length = 8.0 * _spacing(ticks)
    pool = _hold_outs(ticks, _TRANSFORM_TARGETS)
    rough = replace(start, mean=middle, spread=3 * spread, length=length, sill=spread, noise=0.2 * spread,
                    shape="exponential", errors=(0.0,) * 5, errors_plain=(0.0,) * 5, slope=0.0,
                    slope_spread=0.0, slopes=(), slope_spreads=())  # fmt: skip
    scored = _score(pool, "exponential", length, 0.2, _scale(pool, rough))
    typical = np.abs(scored.residual) / np.sqrt(scored.total)
    sill = _quantile(typical, pool.weight, _ONE_SIGMA)
    sill = sill if sill > 0.0 else spread
    return replace(rough, sill=sill, noise=0.2 * sill, tail=_tail(typical, pool.weight))


def _scale(pool: _Pool, start: Parameters) -> _Scale:
    return _Scale(
        start.mean, start.spread, start.sill, start.drift, start.age_s, start.slope, start.slope_spread,
        start.slopes, start.slope_spreads,
    )  # fmt: skip


def _score(pool: _Pool, shape: str, length: float, noise: float, scale: _Scale) -> _Scored:
    """Predict all hold-outs with a sill of 1, then see which sill would have suited."""
    hours = hours_beyond(pool.all.age_s, scale.age_s)
    own = noise**2 + (scale.drift / scale.sill) ** 2 * hours
    unit = Parameters(
        scale.mean, scale.spread / scale.sill, length, noise, 0.0,
        shape="matern" if shape == "matern" else "exponential", slope=scale.slope,
        slope_spread=scale.slope_spread / scale.sill, slopes=scale.slopes,
        slope_spreads=tuple(spread / scale.sill for spread in scale.slope_spreads),
    )  # fmt: skip
    mu, variance, _ = estimate(pool.all, pool.neighbours, pool.points, unit, pool.covariate, own)
    residual, total = pool.all.values[pool.target] - mu, variance + own[pool.target]
    weight = pool.weight / pool.weight.sum()
    square = residual**2 / total
    sill_square = float((weight * square).sum())
    for _ in range(8):  # Student's t by reweighting
        if sill_square <= 0.0:
            break
        sill_square = float((weight * square * (_DEGREES + 1) / (_DEGREES + square / sill_square)).sum())
    if sill_square <= 0.0:  # all values are equal
        return _Scored(np.zeros(len(residual)), 0.0, 0.0, residual, total)
    scores = 0.5 * np.log(total * sill_square)
    scores += 0.5 * (_DEGREES + 1) * np.log1p(square / (sill_square * _DEGREES))
    return _Scored(scores, float((weight * scores).sum()), float(np.sqrt(sill_square)), residual, total)


def _clearly_better(new: _Scored, old: _Scored, pool: _Pool, observations: float) -> bool:
    """Whether the mean gain is more than its standard error; with few observations, several of these.

    A sensor is held out once per skip, and once per tick if it reports in several: not independently. What it says
    from tick to tick counts as one voice, or places that are odd all day would outvote the others. And the gain must
    not be one of stated errors alone: values that are farther off are no better for being honest about it.
    """
    share = pool.weight / pool.weight.sum()
    if float((share * new.residual**2).sum()) > float((share * old.residual**2).sum()):
        return False
    gain = old.scores - new.scores
    mean = float((share * gain).sum())
    voice = np.column_stack([pool.points, pool.skipped])
    error = _voices_error(share * (gain - mean), voice) * np.sqrt(len(SKIPS))
    return bool(mean > error * max(1.0, _MANY / observations))


def _voices_error(parts: Floats, voice: Floats) -> float:
    """Standard error of a sum of parts with mean 0, those of one voice (a row) counted as one."""
    number = np.unique(voice, axis=0, return_inverse=True)[1]
    return float(np.sqrt((np.bincount(number.ravel(), weights=parts) ** 2).sum()))


def _fitted(ticks: list[Observations], start: Parameters, targets: int) -> Parameters:
    pool = _hold_outs(ticks, targets)
    values = pool.all.values
    spread = _scatter(values)
    if spread <= 0.0:
        return replace(start, mean=float(values[0]))
    spacing, mean = _spacing(ticks), float(np.mean(values))
    scale = _Scale(mean, spread, start.sill, start.drift, start.age_s)
    shape: Literal["exponential", "matern"] = "exponential"
    length, noise, scored = _search(pool, shape, spacing, scale)
    if scored.sill <= 0.0:
        return replace(start, mean=mean, spread=spread)
    sloped = _slope(pool, length, noise, scored, scale)
    if sloped is not None:
        scale = sloped
        length, noise, scored = _search(pool, shape, spacing, scale)
    further = _further_slopes(pool, length, noise, scored, scale, len(values) / len(ticks))
    if any(further.slope_spreads):
        length, noise, scored = _search(pool, shape, spacing, further)
    scale = further
    smoother = _search(pool, "matern", spacing, scale)
    # The exponential does not overshoot beyond the last sensor: it stays unless the other is clearly better.
    if _clearly_better(smoother[2], scored, pool, len(values) / len(ticks)):
        shape, (length, noise, scored) = "matern", smoother
    # The sill of Student's t is not yet one standard error; noise and sill alike take what is missing.
    typical = np.abs(scored.residual) / np.sqrt(scored.total)
    sill = _quantile(typical, pool.weight, _ONE_SIGMA) or scored.sill
    return replace(
        start, mean=mean, spread=spread, length=length, noise=noise * sill, shape=shape, sill=sill,
        slope=scale.slope, slope_spread=scale.slope_spread, slopes=scale.slopes,
        slope_spreads=scale.slope_spreads, tail=max(_tail(typical, pool.weight), start.tail),
    )  # fmt: skip


def _tail(typical: Floats, weight: Floats) -> float:
    """How much farther out the outer residuals lie than those of Student's t: a few faults do not move this."""
    usual, outer = (_quantile(typical, weight, share) for share in (_ONE_SIGMA, _TAIL))
    return float(np.clip(outer / (_TAIL_OF_T * usual), 1.0, _TAIL_MAX)) if usual > 0.0 else _TAIL_MAX


def _slope(pool: _Pool, length: float, noise: float, plain: _Scored, scale: _Scale) -> _Scale | None:
    """The scale with the prior of the slope that predicts best; None if the elevation does not help."""
    found = _apart(pool, 0)
    if found is None:
        return None
    apart, rest, weight = found
    slope, even = 0.0, weight
    for _ in range(8):  # by reweighting, so that a few places do not decide
        slope = float((weight * apart * rest).sum() / (weight * apart * apart).sum())
        miss = np.abs(rest - slope * apart)
        usual = _quantile(miss, even, _ONE_SIGMA) or 1.0
        weight = even / (1.0 + (miss / usual) ** 2 / _DEGREES)
    if slope == 0.0:
        return None
    tried = [replace(scale, slope=slope, slope_spread=share * abs(slope)) for share in _SLOPES]
    return _best(pool, length, noise, plain, tried)[0]


def _further_slopes(
    pool: _Pool, length: float, noise: float, scored: _Scored, scale: _Scale, observations: float
) -> _Scale:
    """The scale with further covariates that clearly help, one after the other.

    What values follow the elevation by is known in general; what they follow the distance to the coast by differs from
    coast to coast and from season to season. So their slopes are expected to be 0, give or take what predicts best.
    """
    count = 0 if pool.all.covariate is None else columns_of(pool.all.covariate).shape[1] - 1
    scale = replace(scale, slopes=(0.0,) * count, slope_spreads=(0.0,) * count)
    for column in range(count):
        found = _apart(pool, column + 1)
        if found is None:
            continue
        apart, rest, weight = found
        usual = np.sqrt(float((weight * rest**2).sum()) / float((weight * apart**2).sum()))
        before, after = scale.slope_spreads[:column], scale.slope_spreads[column + 1 :]
        tried = [
            replace(scale, slope_spreads=(*before, float(share * usual), *after))
            for share in _SPREADS
            if usual
        ]
        better, its = _best(pool, length, noise, scored, tried)
        if better is not None and its is not None and _clearly_better(its, scored, pool, observations):
            scale, scored = better, its
    return scale


def _best(
    pool: _Pool, length: float, noise: float, plain: _Scored, tried: list[_Scale]
) -> tuple[_Scale | None, _Scored | None]:
    """Of several scales the one that predicts best, and how well; None if none is worth it."""
    scored = [_score(pool, "exponential", length, noise, found) for found in tried]
    if not scored:
        return None, None
    best = int(np.argmin([one.score for one in scored]))
    return (tried[best], scored[best]) if scored[best].score < plain.score - _SLOPE_GAIN else (None, None)


def _apart(pool: _Pool, column: int) -> tuple[Floats, Floats, Floats] | None:
    """By how much hold-outs differ from their neighbours in a covariate and in value, and their weight."""
    if pool.all.covariate is None:
        return None
    covariate, index = columns_of(pool.all.covariate)[:, column], pool.neighbours.index
    height = np.where(index >= 0, covariate[index], np.nan)
    known = np.isfinite(height)
    counted = np.maximum(known.sum(axis=1), 1)
    apart = covariate[pool.target] - np.where(known, height, 0.0).sum(axis=1) / counted
    around = np.where(known, pool.all.values[index], 0.0).sum(axis=1) / counted
    rest = pool.all.values[pool.target] - around
    use = np.isfinite(apart) & (known.sum(axis=1) >= 3)
    if not use.any() or not (apart[use] ** 2).any():
        return None
    return apart[use], rest[use], pool.weight[use]


def _search(pool: _Pool, shape: str, spacing: float, scale: _Scale) -> tuple[float, float, _Scored]:
    """Length, noise (of a sill of 1) and score: a coarse lattice, then steps that are halved when none helps."""
    tried: dict[tuple[float, float], _Scored] = {}

    def score(at: tuple[float, float]) -> float:
        if at not in tried:
            tried[at] = _score(pool, shape, spacing * 2.0 ** at[0], 2.0 ** at[1], scale)
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


# The errors.


def _corrected(ticks: list[Observations], found: Parameters) -> tuple[Parameters, tuple[float, float]]:
    """With the corrections of stated errors; and kriging's RMSE of hold-outs against inverse distance's (`_worse`)."""
    inside = _inside(ticks, found)
    pool = _hold_outs(inside, TARGETS)
    held = pool.all.values[pool.target]
    hours = hours_beyond(pool.all.age_s[pool.target], found.age_s)
    own = own_variance(found) + found.drift**2 * hours
    mu, variance, unrest = estimate(pool.all, pool.neighbours, pool.points, found, pool.covariate)
    errors = _coefficients(mu, variance, own, unrest, held - mu, pool.weight, len(pool.all), found)
    found = replace(found, errors=errors)

    raw = replace(pool.all, values=np.concatenate([tick.values for tick in ticks]))
    mixed, variance_plain = InverseDistance().mixture(raw, pool.near, pool.points, found)
    level = forward(mixed, found)
    even = np.ones(len(level))
    plain = _coefficients(level, variance_plain, own, even, held - level, pool.weight, len(pool.all), found)
    found = replace(found, errors_plain=plain)

    truth = raw.values[pool.target]
    values = published(mu, np.sqrt(variance), np.sqrt(variance + own), found).values
    direct, weight = pool.skipped == 0, pool.weight
    miss, miss_plain = (((v - truth) ** 2)[direct] for v in (values, mixed))
    return found, _worse(miss, miss_plain, weight[direct], pool.points[direct])


def _worse(miss: Floats, miss_plain: Floats, weight: Floats, voice: Floats) -> tuple[float, float]:
    """The ratio of two RMSE, from squared errors, and what it may be, as far as the stations tell.

    A few odd stations make most of an RMSE, and make it uncertain. What it may be is therefore told by errors that
    are cut at `_USUAL` usual ones, and by the scatter from station to station.
    """
    ratio, _ = _ratio(weight * miss, weight * miss_plain, voice)
    most = _USUAL**2 * _quantile(np.r_[miss, miss_plain], np.r_[weight, weight], _ONE_SIGMA)
    cut, unsure = _ratio(weight * np.minimum(miss, most), weight * np.minimum(miss_plain, most), voice)
    return ratio, max(ratio, cut + _CERTAIN * unsure)


def _ratio(miss: Floats, miss_plain: Floats, voice: Floats) -> tuple[float, float]:
    """The root of a ratio of sums, and its standard error as voices scatter."""
    total, plain = float(miss.sum()), float(miss_plain.sum())
    if not (total > 0.0 and plain > 0.0):
        return 1.0, 0.0
    ratio = np.sqrt(total / plain)
    return float(ratio), _voices_error(miss - ratio**2 * miss_plain, voice) / (2.0 * ratio * plain)


def _coefficients(
    mu: Floats,
    variance: Floats,
    own: Floats,
    unrest: Floats,
    residual: Floats,
    weight: Floats,
    readings: int,
    p: Parameters,
) -> tuple[float, ...]:
    """What the error follows: the best Student's t, held near zero, the constant from the 68 % quantile."""
    told = signs(mu, variance, own, unrest, p)
    base = np.maximum(variance + own, 1e-300)
    square = residual**2 / base
    if not np.median(square) > 0.0:  # more than half are met exactly: no scatter to learn from
        return (0.0, 0.0, 0.0, 0.0, 0.0)
    share = weight / weight.sum()
    certain = len(residual) / len(SKIPS) * _CORRECTION**2

    def loss(e: Floats) -> tuple[float, Floats]:
        exponent = np.clip(told @ e, -50.0, 50.0)
        ratio = square * np.exp(-exponent) / _DEGREES
        value = 0.5 * exponent + 0.5 * (_DEGREES + 1) * np.log1p(ratio)
        slope = 0.5 - 0.5 * (_DEGREES + 1) * ratio / (1.0 + ratio)
        held = np.r_[0.0, e[1:]] / certain
        return float((share * value).sum() + 0.5 * (held * e).sum()), told.T @ (share * slope) + held

    found = minimize(loss, np.zeros(told.shape[1]), jac=True, method="BFGS").x
    found[0] = 0.0
    typical = np.abs(residual) / np.sqrt(base * np.exp(told @ found))
    factor = _quantile(typical, weight, _ONE_SIGMA)
    found[0] = 2.0 * np.log(np.clip(factor, 0.05, 20.0)) + np.log1p(_FEW / readings)
    return tuple(float(e) for e in found)


def _quantile(values: Floats, weight: Floats, share: float) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    return float(values[order][min(np.searchsorted(reached, share * reached[-1]), len(values) - 1)])
