"""Measurements as columns, and the checks of a sensor against its own past: conflict, step, rate, spike, flat line.

A spike is known as one only when the next value has come. So a row has a moment from which it is bad, and the grid
of an earlier tick does not know about it.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from sensorgrid.benchmarks.plain.world import Floats, Ints

Bools = npt.NDArray[np.bool_]

STEP, RATE, SPIKE, TOLERANCE = 12.0, 15.0, 8.0, 1.0
"""kelvin; the rate is per hour"""
FLAT_S = 1800.0
"""a value that has not changed for so long is stuck"""
MAX_AGE_S = 1200.0
"""a value lasts so long, and a longer gap breaks a series"""
ALWAYS, NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max
TESTS = ("", "conflict", "flat_line", "step", "rate", "spike", "neighbour")
CONFLICT, FLAT, STEPPED, TOO_FAST, SPIKED, NEIGHBOUR = range(1, 7)

_NOISES = 6.0
"""two good reports shortly after each other differ by no more than this many times their usual error"""


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Measurements, as columns of equal length."""

    sensor: npt.NDArray[np.uint64]
    """a hash of its name"""
    time_us: Ints
    """event time, microseconds since 1970"""
    x: Floats
    y: Floats
    value: Floats
    code: npt.NDArray[np.uint8]
    """which attribute: there is one, so 0"""
    home: npt.NDArray[np.uint8]
    """1 in the region and chunk itself, 0 in its halo or before it"""

    def __len__(self) -> int:
        return len(self.sensor)

    def take(self, which: Any) -> "PlainRows":
        """Some of the rows."""
        return PlainRows(*(getattr(self, f.name)[which] for f in fields(self)))

    def distinct(self) -> tuple["PlainRows", int]:
        """By sensor, time and value, without exact repeats; and how many repeats were at home."""
        order = np.lexsort((self.y, self.x, 1 - self.home, self.value, self.time_us, self.code, self.sensor))
        rows = self.take(order)
        repeats = np.zeros(len(rows), bool)
        if len(rows) > 1:
            repeats[1:] = (
                (rows.sensor[1:] == rows.sensor[:-1])
                & (rows.code[1:] == rows.code[:-1])
                & (rows.time_us[1:] == rows.time_us[:-1])
                & (rows.value[1:] == rows.value[:-1])
            )
        return rows.take(~repeats), int(rows.home[repeats].sum())


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """PlainRows, each with the moment from which it is bad, and the test that it failed."""

    rows: PlainRows
    bad_from_us: Ints
    test: npt.NDArray[np.uint8]


def check(rows: PlainRows) -> CheckedRows:
    """Check rows (see `PlainRows.distinct`) against their own past."""
    losers = _conflicts(rows)
    kept = np.flatnonzero(~losers)
    chain = _Series.of(rows.take(kept))
    test, bad_from = np.zeros(len(rows), np.uint8), np.full(len(rows), NEVER)
    test[losers], bad_from[losers] = CONFLICT, ALWAYS
    for number, failed in (
        (TOO_FAST, chain.jumps(RATE * chain.hours_since_previous + _NOISES * TOLERANCE)),
        (STEPPED, chain.jumps(np.full(len(kept), STEP))),
        (FLAT, chain.rows.time_us - chain.since_us >= FLAT_S * 1e6),
    ):
        test[kept[failed]], bad_from[kept[failed]] = number, ALWAYS
    sharp = chain.spikes() & (bad_from[kept] == NEVER)
    test[kept[sharp]], bad_from[kept[sharp]] = SPIKED, chain.next_us[sharp]
    return CheckedRows(rows, bad_from, test)


def _conflicts(rows: PlainRows) -> Bools:
    """PlainRows that contradict another of the same sensor and moment.

    If all values of the moment agree within the tolerance, the lower median stays; if they do not, none does.
    """
    losers = np.zeros(len(rows), bool)
    if len(rows) < 2:
        return losers
    same = (
        (rows.sensor[1:] == rows.sensor[:-1])
        & (rows.code[1:] == rows.code[:-1])
        & (rows.time_us[1:] == rows.time_us[:-1])
    )
    if not same.any():
        return losers
    starts = np.flatnonzero(np.r_[True, ~same])
    stops = np.r_[starts[1:], len(rows)]
    several = stops - starts > 1
    for start, stop in zip(starts[several], stops[several], strict=True):
        losers[start:stop] = True
        if rows.value[stop - 1] - rows.value[start] <= TOLERANCE:
            losers[(start + stop - 1) // 2] = False
    return losers


@dataclass(frozen=True, slots=True)
class _Series:
    """Each row beside its neighbours in its series; neighbours across a gap do not count."""

    rows: PlainRows
    has_previous: Bools
    previous_us: Ints
    previous: Floats
    has_second: Bools
    second: Floats
    has_next: Bools
    next_us: Ints
    following: Floats
    since_us: Ints

    @classmethod
    def of(cls, rows: PlainRows) -> "_Series":
        n, gap_us = len(rows), round(MAX_AGE_S * 1e6)
        new = np.ones(n, bool)
        new[1:] = (rows.sensor[1:] != rows.sensor[:-1]) | (rows.code[1:] != rows.code[:-1])
        at = np.arange(n)
        previous_us, previous = np.full(n, NEVER), np.zeros(n)
        second_us, second = np.full(n, NEVER), np.zeros(n)
        has_previous, has_second = ~new, np.zeros(n, bool)
        later = at[has_previous]
        previous_us[later], previous[later] = rows.time_us[later - 1], rows.value[later - 1]
        has_second[1:] = has_previous[1:] & has_previous[:-1]
        third = at[has_second]
        second_us[third], second[third] = rows.time_us[third - 2], rows.value[third - 2]
        has_previous &= (
            np.where(has_previous, rows.time_us - np.where(has_previous, previous_us, 0), 0) <= gap_us
        )
        has_second &= has_previous
        has_second &= np.where(has_second, previous_us - np.where(has_second, second_us, 0), 0) <= gap_us
        next_us, following, has_next = np.full(n, NEVER), np.zeros(n), np.zeros(n, bool)
        if n > 1:
            has_next[:-1] = ~new[1:] & has_previous[1:]
            next_us[:-1], following[:-1] = rows.time_us[1:], rows.value[1:]
        since_us = _since(rows, has_previous & (previous == rows.value), new)
        return cls(
            rows, has_previous, previous_us, previous, has_second, second, has_next, next_us, following, since_us
        )  # fmt: skip

    @property
    def hours_since_previous(self) -> Floats:
        before = np.where(self.has_previous, self.previous_us, self.rows.time_us)
        return (self.rows.time_us - before) / 3.6e9

    def jumps(self, limit: Floats) -> Bools:
        """PlainRows that differ from both rows before by more than the limit.

        Both, so that the first good value after a faulty one is not taken for a step.
        """
        from_previous = np.abs(self.rows.value - self.previous) > limit
        from_second = np.abs(self.rows.value - self.second) > limit
        return self.has_previous & from_previous & (~self.has_second | from_second)

    def spikes(self) -> Bools:
        """PlainRows that leave the mean of their neighbours by more than the limit, while these agree."""
        middle = (self.previous + self.following) / 2
        return (
            self.has_previous
            & self.has_next
            & (np.abs(self.rows.value - middle) > SPIKE)
            & (np.abs(self.previous - self.following) <= SPIKE)
        )


def _since(rows: PlainRows, unchanged: Bools, new: Bools) -> Ints:
    """Since when each row's value has not changed."""
    if not len(rows):
        return np.empty(0, np.int64)
    begins = np.maximum.accumulate(np.where(unchanged & ~new, 0, np.arange(len(rows))))
    return rows.time_us[begins]
