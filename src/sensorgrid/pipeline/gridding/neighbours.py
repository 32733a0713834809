"""The neighbour check: an observation that its neighbours cannot explain is left out of the grid.

Each observation is compared with what kriging makes of its nearest others, after the attribute's transform: in the
logarithm a plume is a hill, and its readings are no outliers. Two rules keep one bad sensor from taking its good
neighbours along:

- The verdict must stand whichever one of the nearest is left out. A good sensor beside a bad one is acquitted
  when the bad one is the one left out. But without the one that holds it most, an estimate is also less certain, and
  a fault has an alibi: so the kindest leave-out counts `KINDEST` times, and the second kindest as it is.
- In each round only the worst of a neighbourhood goes; the others are heard again without it.

A verdict has three steps. What differs by more than `DOUBTFUL` expected errors is *suspect* (QARTOD 3): it is used,
with an error that is `DOUBT` times the usual one. Beyond `TOLERANCE` it is *bad* (4) and left out, unless another
sensor nearby says the same: then there is something, and it is suspect. Beyond `HOPELESS` no witness helps.

How far a verdict reaches: in each of `ROUNDS` rounds it depends on the state of the `CANDIDATES` nearest
observations and on how bad these are, which depends on theirs. So an observation can matter to another only
if it is at most `REACH` steps away, each step to one of the `CANDIDATES` nearest. Nothing is taken from all
observations at once: no mean, no scale. A region that holds a halo of that reach comes to the verdicts of
the whole.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sensorgrid.pipeline.gridding.kernels.covariance import noise_variance
from sensorgrid.pipeline.gridding.kernels.errors import reading_variance
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.kriging import estimate
from sensorgrid.pipeline.gridding.kernels.neighbourhood import CHUNK, Neighbours, chunks, others_of
from sensorgrid.pipeline.gridding.kernels.transforms import transformed

Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

ROUNDS = 4
"""how often the rest is heard again without the worst"""
CANDIDATES = 16
"""nearest others among which the neighbours are found that have not been rejected"""
USED = 12
"""of these, how many the estimate is made from"""
LEFT_OUT = 8
"""of these, how many are left out in turn: the nearest"""
REACH = 2 * ROUNDS
"""steps from neighbour to neighbour after which an observation cannot matter any more"""
KINDEST = 1.5
"""by how much the badness of the kindest leave-out counts, at most as much as that of the second kindest"""
TOLERANCE = 4.7
"""expected errors by which an observation may differ, times the attribute's `tail`; the leave-outs make six of them
look like five"""
DOUBTFUL = 3.8
"""and by which it may differ without being suspect"""
DOUBT = 3.0
"""by how much the error of a suspect observation is multiplied"""
AGREEMENT = 4.0
"""errors of observation by which it may differ from each of its neighbours without being looked at"""
UNREST_MAX = 1.5
"""restless neighbours widen what is expected by no more, or two bad ones would cover up for each other"""
WITNESSES = 2
"""nearest others that can speak for an observation that is bad"""
LIKE = 0.1
"""of what the observation differs by: a witness is so near to it"""
HOPELESS = 12.0
"""expected errors beyond which nobody can speak for it: two broken sensors may say the same"""
OBSERVATIONS_MIN = 5
"""with fewer nobody can say who is wrong"""

_IGNORED = 1e6
"""times the sill: a noise that takes away all weight"""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the neighbours say of each observation."""

    bad: Bools
    """(n,) contradicted: not to be used"""
    suspect: Bools
    """(n,) doubtful: to be used with a larger error; never bad as well"""

    def used(self, observations: Observations) -> Observations:
        """The observations that are not bad, the suspect ones with their larger error."""
        doubt = np.where(self.suspect, DOUBT, 1.0) if self.suspect.any() else None
        marked = Observations(
            observations.positions, observations.values, observations.age_s, observations.covariate, doubt
        )
        return marked.without(self.bad)


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
    return judge(observations, parameters).bad


def judge(observations: Observations, parameters: Parameters) -> Verdicts:
    """Compare each observation with its neighbours."""
    count = len(observations)
    rejected, suspect = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    if count < OBSERVATIONS_MIN:
        return Verdicts(rejected, suspect)
    inside = transformed(observations, parameters)
    noise = noise_variance(observations, parameters)
    nearby = others_of(observations.positions, CANDIDATES).index.astype(np.int64)
    used = nearby[:, :USED].copy()
    badness, departure, hopeless = np.zeros(count), np.zeros(count), np.zeros(count, np.bool_)
    heard = np.flatnonzero(~_agreeing(inside.values, used, noise))
    for _ in range(ROUNDS):
        badness[heard], departure[heard] = _confirmed(inside, noise, heard, used[heard], parameters)
        suspects = np.flatnonzero(badness > TOLERANCE)
        if not len(suspects):
            break
        worst = suspects[badness[suspects] >= badness[nearby[suspects]].max(axis=1)]
        hopeless[worst] = badness[worst] > HOPELESS
        rejected[worst], badness[worst] = True, 0.0
        noise[worst] = (_IGNORED * parameters.sill) ** 2
        # Only whose own neighbours have gone is heard again: for all others nothing has changed.
        heard = np.flatnonzero(rejected[used].any(axis=1) & ~rejected)
        if not len(heard):
            break
        used[heard] = _unrejected(nearby[heard], rejected)
    bad = np.flatnonzero(rejected & ~hopeless)
    if len(bad):
        witnesses = nearby[bad, :WITNESSES]
        apart = np.abs(inside.values[witnesses] - inside.values[bad][:, None])
        agree = apart <= LIKE * np.abs(departure[bad])[:, None]
        suspect[bad[agree.any(axis=1)]] = True
        suspect[witnesses[agree]] |= (rejected & ~hopeless)[witnesses[agree]]  # each speaks for the other
        rejected &= ~suspect
    suspect |= (badness > DOUBTFUL) & ~rejected
    return Verdicts(rejected, suspect)


def _agreeing(values: Floats, used: Indices, noise: Floats) -> Bools:
    """Those that differ from none of their neighbours by more than errors of observation explain.

    Nothing made of these neighbours contradicts them. Most observations are such, and cost no further thought.
    """
    farthest = np.abs(values[used] - values[:, None]).max(axis=1)
    agree: Bools = farthest <= AGREEMENT * np.sqrt(noise)
    return agree


def _unrejected(others: Indices, rejected: Bools) -> Indices:
    """The nearest that have not been rejected; where too few are left, rejected ones fill the places."""
    order = np.argsort(rejected[others], axis=1, kind="stable")[:, : min(USED, others.shape[1])]
    return np.take_along_axis(others, order, axis=1)


def _confirmed(
    observations: Observations, noise: Floats, targets: Indices, used: Indices, parameters: Parameters
) -> tuple[Floats, Floats]:
    """Expected errors between each target and its estimate, those of the kindest leave-outs if above doubt; and the
    difference itself."""
    badness, departure = _badness(observations, noise, targets, used, parameters)
    doubtful = np.flatnonzero(badness > DOUBTFUL)
    width = used.shape[1]
    turns = min(LEFT_OUT, width)
    without = np.array([[j for j in range(width) if j != i] for i in range(turns)])
    for part in chunks(len(doubtful), CHUNK // turns):
        some = doubtful[part]
        fewer = used[some][:, without].reshape(-1, width - 1)
        again, _ = _badness(observations, noise, np.repeat(targets[some], turns), fewer, parameters)
        again = np.sort(again.reshape(-1, turns), axis=1)
        kind = np.minimum(KINDEST * again[:, 0], again[:, min(1, turns - 1)])
        badness[some] = np.minimum(badness[some], kind)
    return badness, departure


def _badness(
    observations: Observations, noise: Floats, targets: Indices, used: Indices, parameters: Parameters
) -> tuple[Floats, Floats]:
    near = Neighbours(np.sort(used, axis=1).astype(np.int32), np.full(len(targets), np.inf))
    places = observations.positions[targets]
    heights = None if observations.covariate is None else observations.covariate[targets]
    mu, variance, unrest = estimate(observations, near, places, parameters, heights, noise)
    unrest = np.minimum(unrest, UNREST_MAX)
    expected = reading_variance(mu, variance, noise[targets], unrest, parameters, parameters.errors)
    departure = observations.values[targets] - mu
    return np.abs(departure) / (parameters.tail * np.sqrt(expected)), departure
