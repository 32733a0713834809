"""One fold: fit, check and estimate with the stations that are heard, for the places of those that are left out.

Everything that is learnt is learnt from the stations that are heard: parameters, verdicts, weights. A method sees
where and when a left-out reading was made, never the reading. The functions called here are those that make the
grids; nothing is computed in a way of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.spatial import cKDTree

from sensorgrid.pipeline.gridding.kernels import DEFAULT
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, metres
from sensorgrid.pipeline.verification.engine import Estimate, Learnt, estimate, learn, listen
from sensorgrid.pipeline.verification.folds import split
from sensorgrid.pipeline.verification.network import (
    Bools,
    Ints,
    StationNetwork,
    evenly,
    physical_range,
    ticks_needed,
)

LATTICE = 20
"""points along a side of the lattice on which values outside the physical range are looked for"""


class Method(Protocol):
    """A way to estimate left-out readings."""

    @property
    def name(self) -> str:
        """As rows spell it."""
        ...

    def __call__(self, heard: Observations, there: Observations, learnt: Learnt) -> Estimate:
        """Estimate what would be read `there` (places and ages; the values are NaN)."""
        ...


@dataclass(frozen=True, slots=True)
class KernelMethod:
    """A kernel of the grids, by its name."""

    name: str

    def __call__(self, heard: Observations, there: Observations, learnt: Learnt) -> Estimate:
        """See `Method`."""
        return estimate(self.name, heard, there, learnt)


@dataclass(frozen=True, slots=True)
class OurMethod:
    """What a grid would be made with: the default kernel, or a simpler one if the fit says so."""

    name: str = DEFAULT

    def __call__(self, heard: Observations, there: Observations, learnt: Learnt) -> Estimate:
        """See `Method`."""
        return estimate(learnt.kernel, heard, there, learnt)


@dataclass(frozen=True, slots=True)
class FoldEstimates:
    """All left-out readings of one attribute and method in one fold, with what was said about them."""

    reading: Floats
    """(m,)"""
    values: Floats
    lower: Floats
    upper: Floats
    distance: Floats
    """(m,) to the nearest station that was used, metres"""
    station: Ints
    end_us: Ints
    """(m,) end of the tick"""


@dataclass(frozen=True, slots=True)
class Heard:
    """What the neighbour check did with the readings that were heard, in one fold."""

    reading: Floats
    refused: Bools
    station: Ints
    end_us: Ints


@dataclass(frozen=True, slots=True)
class Trial:
    """One fold of one attribute."""

    told: dict[str, FoldEstimates]
    """by method"""
    heard: Heard
    learnt: Learnt
    outside: dict[str, tuple[int, int]]
    """by method: values outside the physical range, and values looked at, on a lattice over the stations"""


def run_fold(
    network: StationNetwork,
    left_out: Bools,
    methods: Sequence[Method],
    lattice: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> list[Trial]:
    """One trial for each attribute of the network."""
    training, testing = split(network, left_out)
    learnt = fitted(training)
    count = len(network.attributes)
    told: list[dict[str, list[FoldEstimates]]] = [{m.name: [] for m in methods} for _ in range(count)]
    heard: list[list[Heard]] = [[] for _ in range(count)]
    outside = [{m.name: (0, 0) for m in methods} for _ in range(count)]
    for done, (known, wanted) in enumerate(zip(training.moments, testing.moments, strict=True)):
        say(f"tick {done + 1} of {len(network.moments)}")
        refused, every = listen(known.outputs, learnt)
        station = wanted.station[wanted.fresh]
        for number in range(count):
            values = known.outputs[number].values
            heard[number].append(Heard(values, refused, known.station, _always(known.end_us, len(values))))
            good = every[number]
            if not len(station) or not len(good):
                continue
            asked = wanted.outputs[number].without(~wanted.fresh)
            there, end_us = blind(asked), _always(wanted.end_us, len(asked))
            distance = cKDTree(good.positions).query(there.positions)[0]
            for method in methods:
                said = method(good, there, learnt[number])
                told[number][method.name].append(
                    FoldEstimates(
                        asked.values, said.values, said.lower, said.upper, distance, station, end_us
                    )
                )
                if lattice:
                    found = _outside(method, good, network, number, learnt[number])
                    before = outside[number][method.name]
                    outside[number][method.name] = (before[0] + found[0], before[1] + found[1])
    return [
        Trial(
            {name: pooled_told(parts) for name, parts in told[number].items()},
            pooled_heard(heard[number]),
            learnt[number],
            outside[number],
        )
        for number in range(count)
    ]


def pooled_told(parts: Sequence[FoldEstimates]) -> FoldEstimates:
    """All of them together."""
    none = np.empty(0)
    every = [FoldEstimates(none, none, none, none, none, _always(0, 0), _always(0, 0)), *parts]
    return FoldEstimates(
        *(np.concatenate([getattr(part, name) for part in every]) for name in FoldEstimates.__slots__)
    )


def pooled_heard(parts: Sequence[Heard]) -> Heard:
    """All of them together."""
    every = [Heard(np.empty(0), np.empty(0, np.bool_), _always(0, 0), _always(0, 0)), *parts]
    return Heard(*(np.concatenate([getattr(part, name) for part in every]) for name in Heard.__slots__))


def fitted(training: StationNetwork) -> tuple[Learnt, ...]:
    """What these stations alone suggest, for each attribute."""
    heard = [moment for moment in training.moments if len(moment.station)]
    usual = int(np.median([len(moment.station) for moment in heard])) if heard else 0
    chosen = evenly(heard, ticks_needed(usual))
    return tuple(
        learn([moment.outputs[number] for moment in chosen], name)
        for number, name in enumerate(training.attributes)
    )


def blind(observations: Observations) -> Observations:
    """The same places and ages without the values: what a method may know of a left-out reading."""
    return replace(observations, values=np.full(len(observations), np.nan))


def _outside(
    method: Method, good: Observations, network: StationNetwork, number: int, learnt: Learnt
) -> tuple[int, int]:
    """Values of a lattice over the stations that are physically impossible, and how many there are."""
    low, high = physical_range(network.attributes[number])
    x = np.linspace(network.longitude.min(), network.longitude.max(), LATTICE)
    y = np.linspace(network.latitude.min(), network.latitude.max(), LATTICE)
    columns, rows = np.meshgrid(x, y)
    points = metres(columns.ravel(), rows.ravel(), network.coordinates)
    there = Observations(points, np.full(len(points), np.nan), np.zeros(len(points)))
    values = method(good, there, learnt).values
    return int(((values < low) | (values > high)).sum()), len(values)


def _always(number: int, count: int) -> Ints:
    return np.full(count, number, np.int64)
