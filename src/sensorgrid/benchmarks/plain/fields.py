"""From observations of one tick to a grid: the neighbour check, and inverse distance with a closed-form error.

The neighbour check compares each observation with what kriging makes of its nearest others. A verdict must stand
whichever one of the neighbours is left out, and in each round only the worst of a neighbourhood goes.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from sensorgrid.benchmarks.plain.series import Bools
from sensorgrid.benchmarks.plain.world import Floats, Ints

MEAN, SPREAD, SILL, LENGTH_M, NOISE, DRIFT = 288.0, 15.0, 10.5, 600_000.0, 1.0, 1.0
"""priors of air temperature in kelvin: what to expect, its error, the field's own spread, the distance over which
values are alike, the error of a fresh observation, how far the truth wanders in an hour"""
NEIGHBOURS = 8
"""observations that each point depends on"""
ROUNDS = 4
CANDIDATES = 16
"""nearest others among which the neighbours are found that have not been rejected"""
USED = 8
TOLERANCE = 5.0
"""expected errors by which an observation may differ"""
AGREEMENT = 4.0
"""errors of observation by which it may differ from each of its neighbours without being looked at"""
OBSERVATIONS_MIN = 5

_CHUNK = 4096
_IGNORED = 1e6
"""times the sill: a noise that takes away all weight"""
_TIES = 8
_SAME = 1e-9
_NEAR = 1e-9
"""of the distance to the farthest neighbour: closer is the same place"""


@dataclass(frozen=True, slots=True)
class PlainObservations:
    """At most one for each sensor: where in metres, what in kelvin, how old at the end of the tick."""

    positions: Floats
    values: Floats
    age_s: Floats

    def __len__(self) -> int:
        return len(self.values)

    def without(self, rejected: Bools) -> "PlainObservations":
        """The others."""
        return PlainObservations(self.positions[~rejected], self.values[~rejected], self.age_s[~rejected])

    @property
    def noise(self) -> Floats:
        """Variance of each about the truth at the end of the tick: older is worse."""
        return max(NOISE, 1e-3 * SILL) ** 2 + DRIFT**2 * (np.maximum(self.age_s, 0.0) / 3600.0)


def interpolate(observations: PlainObservations, points: Floats) -> tuple[Floats, Floats]:
    """A value and an error for every point."""
    values, error = np.full(len(points), MEAN), np.full(len(points), SPREAD)
    if len(observations):
        tree, noise = cKDTree(observations.positions), observations.noise
        index = _nearest(tree, points, NEIGHBOURS)
        distance = _separation(observations.positions[index], points[:, None, :])
        reach = np.maximum(distance.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        weights: Floats = np.maximum(distance / reach, _NEAR) ** -2.0
        weights /= weights.sum(axis=1, keepdims=True)
        values = (weights * observations.values[index]).sum(axis=1)
        squares = weights * weights
        field = (weights * (2.0 * SILL**2 * (1.0 - np.exp(distance * (-1.0 / LENGTH_M))))).sum(axis=1)
        field *= 0.5 * (1.0 + squares.sum(axis=1))
        error = _bounded(field + (squares * noise[index]).sum(axis=1))
    return values, error


def reject_outliers(observations: PlainObservations) -> Bools:
    """True for observations that their neighbours contradict."""
    count = len(observations)
    rejected = np.zeros(count, np.bool_)
    if count < OBSERVATIONS_MIN:
        return rejected
    tree, noise = cKDTree(observations.positions), observations.noise
    used = _others(tree, np.arange(count), min(USED, count - 1))
    badness = np.zeros(count)
    heard = np.flatnonzero(~_agreeing(observations.values, used, noise))
    for _ in range(ROUNDS):
        badness[heard] = _confirmed_badness(observations, noise, heard, used[heard])
        suspects = np.flatnonzero(badness > TOLERANCE)
        if not len(suspects):
            break
        nearby = _others(tree, suspects, min(CANDIDATES, count - 1))
        worst = suspects[badness[suspects] >= badness[nearby].max(axis=1)]
        rejected[worst], badness[worst] = True, 0.0
        noise[worst] = (_IGNORED * SILL) ** 2
        # Only whose own neighbours have gone is heard again: for all others nothing has changed.
        heard = np.flatnonzero(rejected[used].any(axis=1) & ~rejected)
        if not len(heard):
            break
        used[heard] = _unrejected(_others(tree, heard, min(CANDIDATES, count - 1)), rejected)
    return rejected


def _bounded(variance: Floats) -> Floats:
    """A variance as a stated error: above 0, and never above what is known without any observation."""
    error = np.sqrt(np.maximum(variance, 0.0))
    return np.clip(error, 1e-6 * min(SPREAD, max(SILL, NOISE)), SPREAD)


def _nearest(tree: cKDTree, points: Floats, count: int) -> Ints:
    """Indices of the nearest observations of each point, ascending; of equally far ones the earlier."""
    count = min(count, tree.n)
    asked = min(count + 1, tree.n)
    distance, index = tree.query(points, k=np.arange(1, asked + 1))
    if asked > count:
        tied = np.flatnonzero(distance[:, count] - distance[:, count - 1] <= _SAME * distance[:, count])
        index = index[:, :count]
        if len(tied):
            index[tied] = _earliest(tree, points[tied], count)
    return np.sort(index, axis=1).astype(np.int64)


def _earliest(tree: cKDTree, points: Floats, count: int) -> Ints:
    """Among observations that are equally far, those that come first."""
    asked = min(count + _TIES, tree.n)
    distance, index = tree.query(points, k=np.arange(1, asked + 1))
    edge = distance[:, count - 1 : count]
    rank = np.where(distance < edge * (1 - _SAME), 0, np.where(distance <= edge * (1 + _SAME), 1, 2))
    order = np.lexsort((index, rank), axis=1)[:, :count]
    return np.take_along_axis(index, order, axis=1)


def _separation(a: Floats, b: Floats) -> Floats:
    """Distances between positions, over the last axis."""
    square = np.zeros(np.broadcast_shapes(a.shape, b.shape)[:-1])
    for axis in range(a.shape[-1]):
        difference = a[..., axis] - b[..., axis]
        difference *= difference
        square += difference
    return np.sqrt(square, out=square)


def _covariance(distance: Floats) -> Floats:
    found = np.exp(distance * (-1.0 / LENGTH_M))
    found *= SILL**2
    return found


def _agreeing(values: Floats, used: Ints, noise: Floats) -> Bools:
    """Those that differ from none of their neighbours by more than errors of observation explain."""
    agree: Bools = np.abs(values[used] - values[:, None]).max(axis=1) <= AGREEMENT * np.sqrt(noise)
    return agree


def _others(tree: cKDTree, which: Ints, count: int) -> Ints:
    """The nearest others of some observations, nearest first."""
    index = tree.query(tree.data[which], k=np.arange(1, count + 2))[1]
    itself = index == which[:, None]
    # Where several stand at one place, an observation need not be its own first neighbour, or be found at all.
    order = np.argsort(itself, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(index, order, axis=1).astype(np.int64)


def _unrejected(others: Ints, rejected: Bools) -> Ints:
    """The nearest that have not been rejected; where too few are left, rejected ones fill the places."""
    order = np.argsort(rejected[others], axis=1, kind="stable")[:, : min(USED, others.shape[1])]
    return np.take_along_axis(others, order, axis=1)


def _confirmed_badness(observations: PlainObservations, noise: Floats, targets: Ints, used: Ints) -> Floats:
    """Expected errors between each target and its estimate; that of the kindest leave-out if above tolerance."""
    badness = np.empty(len(targets))
    for start in range(0, len(targets), _CHUNK):
        part = slice(start, start + _CHUNK)
        badness[part] = _badness(observations, noise, targets[part], used[part])
    suspects = np.flatnonzero(badness > TOLERANCE)
    kept = used.shape[1] - 1
    for start in range(0, len(suspects), _CHUNK // USED):
        some = suspects[start : start + _CHUNK // USED]
        without = np.array([[j for j in range(kept + 1) if j != i] for i in range(kept + 1)])
        fewer = used[some][:, without].reshape(-1, kept)
        again = _badness(observations, noise, np.repeat(targets[some], kept + 1), fewer)
        badness[some] = np.minimum(badness[some], again.reshape(-1, kept + 1).min(axis=1))
    return badness


def _badness(observations: PlainObservations, noise: Floats, targets: Ints, used: Ints) -> Floats:
    """By how many expected errors each target differs from ordinary kriging from its neighbours."""
    places, count = observations.positions[used], used.shape[1]
    system = _covariance(_separation(places[:, :, None], places[:, None, :]))
    diagonal = np.arange(count)
    system[:, diagonal, diagonal] += noise[used]
    inverse: Floats = np.linalg.inv(system).astype(np.float64, copy=False)
    row_sums = inverse.sum(axis=2)
    # The local mean is not quite unknown: it is drawn from (mean, spread).
    precision = row_sums.sum(axis=1) + 1.0 / SPREAD**2
    deviation = observations.values[used] - MEAN
    mean = (row_sums * deviation).sum(axis=1) / precision
    deviation -= mean[:, None]
    dual = (inverse * deviation[:, None, :]).sum(axis=2)
    towards = _covariance(_separation(places, observations.positions[targets][:, None, :]))
    expected = MEAN + mean + (towards * dual).sum(axis=1)
    weights = np.matmul(inverse, towards[:, :, None])[:, :, 0]
    missing = 1.0 - (row_sums * towards).sum(axis=1)
    variance = np.maximum(SILL**2 - (weights * towards).sum(axis=1) + missing**2 / precision, 0.0)
    found: Floats = np.abs(observations.values[targets] - expected) / np.sqrt(variance + noise[targets])
    return found
