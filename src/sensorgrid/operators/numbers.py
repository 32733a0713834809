"""Results, one by one and many at once: a value with its error, its points and its coverage, or why there is none."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

REASONS = (
    "",
    "not due: every says which ticks are",
    "inactive: when does not hold",
    "no data",
    "no value in the area",
    "beyond the bins of a percentile",
    "no direction: vectors cancel out",
    "not a number",
    "division by zero",
)
"""why there is no value; a later one hides an earlier one, so that the order of inputs does not matter"""
FINE, NOT_DUE, INACTIVE, NO_DATA, EMPTY, BEYOND, NO_DIRECTION, NOT_A_NUMBER, DIVISION = range(len(REASONS))


class Number(NamedTuple):
    """One result. Without a value, `reason` says why, and the value is NaN."""

    value: float
    error: float
    """standard error; NaN if it is not stated"""
    points: int
    """points of the grid that it was made of"""
    coverage: float
    """share of the area, by weight, that rests on observations"""
    reason: str = ""
    """why there is no value; empty if there is one"""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Many results side by side."""

    value: Floats
    error: Floats
    points: Floats
    coverage: Floats
    reason: npt.NDArray[np.int8]
    """place in `REASONS`"""

    def __len__(self) -> int:
        return len(self.value)

    def take(self, which: npt.NDArray[np.int64]) -> "Numbers":
        """Some of them, in an order."""
        return Numbers(
            self.value[which], self.error[which], self.points[which], self.coverage[which], self.reason[which]
        )

    def at(self, place: int) -> Number:
        """One of them."""
        return Number(
            float(self.value[place]), float(self.error[place]), int(self.points[place]),
            float(self.coverage[place]), REASONS[self.reason[place]],
        )  # fmt: skip


def columns_of(numbers: Numbers) -> tuple[Any, ...]:
    """Value, error, points, coverage and reason."""
    return numbers.value, numbers.error, numbers.points, numbers.coverage, numbers.reason


def chosen(where: npt.NDArray[np.bool_], one: Numbers, other: Numbers) -> Numbers:
    """Those of the one where it is said, else those of the other."""
    value, error, points, coverage, reason = (
        np.where(where, a, b) for a, b in zip(columns_of(one), columns_of(other), strict=True)
    )
    return Numbers(value, error, points, coverage, reason)


def missing(count: int, reason: int) -> Numbers:
    """Results that are not there, all for one reason."""
    nothing, none = np.full(count, np.nan), np.zeros(count)
    return Numbers(nothing, nothing, none, none, np.full(count, reason, np.int8))


def checked(
    value: Floats, error: Floats, points: Floats, coverage: Floats, reason: npt.NDArray[np.int8]
) -> Numbers:
    """Results without values that are no numbers; a later reason hides an earlier one."""
    reason = np.where((reason == FINE) & ~np.isfinite(value), np.int8(NOT_A_NUMBER), reason)
    bad = reason != FINE
    if bad.any():
        value, error = np.where(bad, np.nan, value), np.where(bad, np.nan, error)
    return Numbers(value, error, points, coverage, reason.astype(np.int8))
