"""The functions that make the grids, as the verification calls them: fit, check, estimate."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sensorgrid.pipeline.gridding.calibration import calibrate, prior
from sensorgrid.pipeline.gridding.kernels import DEFAULT, kernel_by_name
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.transforms import backward, forward
from sensorgrid.pipeline.gridding.neighbours import Verdicts, judge
from sensorgrid.pipeline.verification.network import Bools


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a fit has found."""

    parameters: Parameters
    kernel: str
    """the one to grid with"""
    why: str
    """for people"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a method says about readings that it has not seen."""

    values: Floats
    """(m,)"""
    lower: Floats
    """(m,) one stated error of the next reading below"""
    upper: Floats
    """(m,) and above"""


def learn(ticks: Sequence[Observations], attribute: str, kernel: str = DEFAULT) -> Learnt:
    """Fit to some ticks."""
    found = calibrate(ticks, prior(attribute), kernel)
    return Learnt(found.parameters, found.kernel, found.why)


def listen(
    outputs: Sequence[Observations], learnt: Sequence[Learnt]
) -> tuple[Bools, tuple[Observations, ...]]:
    """Which observations the neighbour check refuses, and those to use; a vector is judged by all its components."""
    none = np.zeros(len(outputs[0]), np.bool_)
    verdicts = Verdicts(none, none)
    for output, known in zip(outputs, learnt, strict=True):
        one = judge(output, known.parameters)
        bad = verdicts.bad | one.bad
        verdicts = Verdicts(bad, (verdicts.suspect | one.suspect) & ~bad)
    return verdicts.bad, tuple(verdicts.used(output) for output in outputs)


def estimate(kernel: str, heard: Observations, there: Observations, learnt: Learnt) -> Estimate:
    """What a kernel says about the next reading at some places."""
    field = kernel_by_name(kernel)(heard, there.positions, learnt.parameters, there.covariate)
    return Estimate(field.values, field.reading_lower, field.reading_upper)


def straightened(values: Floats, learnt: Learnt) -> Floats:
    """Values after the attribute's transform, where errors are even."""
    return forward(values, learnt.parameters)


def bent(values: Floats, learnt: Learnt) -> Floats:
    """The way back."""
    return backward(values, learnt.parameters)
