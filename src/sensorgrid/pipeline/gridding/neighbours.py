"""The neighbour check: an observation that its neighbours cannot explain is left out of the grid.

Each observation is compared with what kriging makes of its nearest others. Two rules keep one bad sensor
from taking its good neighbours along:

- The verdict must stand whichever one of the neighbours is left out. A good sensor beside a bad one is
  acquitted when the bad one is the one left out.
- In each round only the worst of a neighbourhood goes; the others are heard again without it.

How far a verdict reaches: in each of `ROUNDS` rounds it depends on the state of the `CANDIDATES` nearest
observations and on how bad these are, which depends on theirs. So an observation can matter to another only
if it is at most `REACH` steps away, each step to one of the `CANDIDATES` nearest. Nothing is taken from all
observations at once: no mean, no scale. A region that holds a halo of that reach comes to the verdicts of
the whole.
"""

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from sensorgrid.pipeline.gridding.kernels.covariance import noise_variance
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.kriging import corrected, covariance, plain, solve
from sensorgrid.pipeline.gridding.kernels.neighbourhood import separation

Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

ROUNDS = 4
"""how often the rest is heard again without the worst"""
CANDIDATES = 16
"""nearest others among which the neighbours are found that have not been rejected"""
USED = 8
"""of these, how many the estimate is made from"""
REACH = 2 * ROUNDS
"""steps from neighbour to neighbour after which an observation cannot matter any more"""
TOLERANCE = 5.0
"""expected errors by which an observation may differ"""
AGREEMENT = 4.0
"""errors of observation by which it may differ from each of its neighbours without being looked at"""
OBSERVATIONS_MIN = 5
"""with fewer nobody can say who is wrong"""

_CHUNK = 4096
_IGNORED = 1e6
"""times the sill: a noise that takes away all weight"""


def reject_outliers(observations: Observations, parameters: Parameters) -> Bools:
    """(n,) True for observations that their neighbours contradict.

    Examples
    --------
    >>> positions = np.stack(np.meshgrid(np.arange(4.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    >>> values = positions.sum(axis=1)
    >>> values[5] = 40.0
    >>> parameters = Parameters(mean=3, spread=5, length=3, noise=0.5, drift=0, sill=2)
    >>> np.flatnonzero(reject_outliers(Observations(positions, values, np.zeros(16)), parameters))
    array([5])
    """
    count = len(observations)
    rejected = np.zeros(count, np.bool_)
    if count < OBSERVATIONS_MIN:
        return rejected
    tree = cKDTree(observations.positions)
    noise = noise_variance(observations, parameters)
    everyone = np.arange(count)
    used = _others(tree, everyone, min(USED, count - 1))
    badness = np.zeros(count)
    heard = np.flatnonzero(~_agreeing(observations.values, used, noise))
    for _ in range(ROUNDS):
        badness[heard] = _confirmed_badness(observations, noise, heard, used[heard], parameters)
        suspects = np.flatnonzero(badness > TOLERANCE)
        if not len(suspects):
            break
        nearby = _others(tree, suspects, min(CANDIDATES, count - 1))
        worst = suspects[badness[suspects] >= badness[nearby].max(axis=1)]
        rejected[worst], badness[worst] = True, 0.0
        noise[worst] = (_IGNORED * parameters.sill) ** 2
        # Only whose own neighbours have gone is heard again: for all others nothing has changed.
        heard = np.flatnonzero(rejected[used].any(axis=1) & ~rejected)
        if not len(heard):
            break
        used[heard] = _unrejected(_others(tree, heard, min(CANDIDATES, count - 1)), rejected)
    return rejected


def _agreeing(values: Floats, used: Indices, noise: Floats) -> Bools:
    """Those that differ from none of their neighbours by more than errors of observation explain.

    Nothing made of these neighbours contradicts them. Most observations are such, and cost no further thought.
    """
    farthest = np.abs(values[used] - values[:, None]).max(axis=1)
    agree: Bools = farthest <= AGREEMENT * np.sqrt(noise)
    return agree


def _others(tree: cKDTree, which: Indices, count: int) -> Indices:
    """(w, count) nearest others of some observations, nearest first."""
    index = tree.query(tree.data[which], k=np.arange(1, count + 2))[1]
    itself = index == which[:, None]
    # Where several stand at one place, an observation need not be its own first neighbour, or be found at all.
    order = np.argsort(itself, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(index, order, axis=1).astype(np.int64)


def _unrejected(others: Indices, rejected: Bools) -> Indices:
    """The nearest that have not been rejected; where too few are left, rejected ones fill the places."""
    order = np.argsort(rejected[others], axis=1, kind="stable")[:, : min(USED, others.shape[1])]
    return np.take_along_axis(others, order, axis=1)


def _confirmed_badness(
    observations: Observations, noise: Floats, targets: Indices, used: Indices, parameters: Parameters
) -> Floats:
    """Expected errors between each target and its estimate; that of the kindest leave-out if above tolerance."""
    badness = np.empty(len(targets))
    for start in range(0, len(targets), _CHUNK):
        part = slice(start, start + _CHUNK)
        badness[part] = _badness(observations, noise, targets[part], used[part], parameters)
    suspects = np.flatnonzero(badness > TOLERANCE)
    kept = used.shape[1] - 1
    for start in range(0, len(suspects), _CHUNK // USED):
        some = suspects[start : start + _CHUNK // USED]
        without = np.array([[j for j in range(kept + 1) if j != i] for i in range(kept + 1)])
        fewer = used[some][:, without].reshape(-1, kept)
        again = _badness(observations, noise, np.repeat(targets[some], kept + 1), fewer, parameters)
        badness[some] = np.minimum(badness[some], again.reshape(-1, kept + 1).min(axis=1))
    return badness


def _badness(
    observations: Observations, noise: Floats, targets: Indices, used: Indices, parameters: Parameters
) -> Floats:
    places = observations.positions[used]
    between = covariance(separation(places[:, :, None], places[:, None, :]), parameters)
    systems = solve(between, noise[used], observations.values[used], parameters)
    towards = covariance(separation(places, observations.positions[targets][:, None, :]), parameters)
    expected, variance = plain(systems, np.arange(len(targets)), towards, parameters)
    # Calm neighbours narrow what is expected; restless ones do not widen it, or two bad ones would cover up
    # for each other.
    variance = corrected(variance, np.minimum(systems.unrest, 1.0), parameters)
    found: Floats = np.abs(observations.values[targets] - expected) / np.sqrt(variance + noise[targets])
    return found
