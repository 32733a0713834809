"""The functions that make the grids, as the verification calls them: fit, check, estimate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sensorgrid.pipeline.gridding import calibration, neighbours
from sensorgrid.pipeline.gridding.calibration import prior
from sensorgrid.pipeline.gridding.kernels import DEFAULT, kernel_by_name
from sensorgrid.pipeline.gridding.kernels.covariance import noise_variance
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, Parameters
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
    calibrate: Any = getattr(calibration, "calibrate", None)
    if calibrate is None:
        return Learnt(calibration.fit(ticks, prior(attribute)), kernel, "")
    found = calibrate(ticks, prior(attribute), kernel)
    return Learnt(found.parameters, found.kernel, found.why)


def listen(
    outputs: Sequence[Observations], learnt: Sequence[Learnt]
) -> tuple[Bools, tuple[Observations, ...]]:
    """Which observations the neighbour check refuses (one bad component condemns a vector), and those to use."""
    judge: Any = getattr(neighbours, "judge", None)
    if judge is None:
        refused = np.zeros(len(outputs[0]), np.bool_)
        for output, known in zip(outputs, learnt, strict=True):
            refused |= neighbours.reject_outliers(output, known.parameters)
        return refused, tuple(output.without(refused) for output in outputs)
    verdicts = [judge(output, known.parameters) for output, known in zip(outputs, learnt, strict=True)]
    refused = np.logical_or.reduce([verdict.bad for verdict in verdicts])
    used = []
    for output, verdict in zip(outputs, verdicts, strict=True):
        marked = type(verdict)(refused, verdict.suspect & ~refused)
        used.append(marked.used(output))
    return refused, tuple(used)


def estimate(kernel: str, heard: Observations, there: Observations, learnt: Learnt) -> Estimate:
    """What a kernel says about the next reading at some places."""
    interpolate: Any = kernel_by_name(kernel)
    if not hasattr(there, "covariate"):
        field = interpolate(heard, there.positions, learnt.parameters)
        error = np.sqrt(field.error**2 + noise_variance(there, learnt.parameters))
        return Estimate(field.values, field.values - error, field.values + error)
    field = interpolate(heard, there.positions, learnt.parameters, there.covariate)
    return Estimate(field.values, field.reading_lower, field.reading_upper)


def straightened(values: Floats, learnt: Learnt) -> Floats:
    """Values after the attribute's transform, where errors are even."""
    try:
        from sensorgrid.pipeline.gridding.kernels.transforms import forward  # type: ignore[import-not-found]
    except ImportError:
        return values
    found: Floats = forward(values, learnt.parameters)
    return found


def bent(values: Floats, learnt: Learnt) -> Floats:
    """The way back."""
    try:
        from sensorgrid.pipeline.gridding.kernels.transforms import backward
    except ImportError:
        return values
    found: Floats = backward(values, learnt.parameters)
    return found
