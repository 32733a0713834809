"""Checks of a sensor against its own past: conflict, step, rate of change, spike, flat line.

Flags follow QARTOD; a check that cannot be evaluated (no neighbour in time) lets a value pass. A row's
flag depends only on rows nearby in its own series: at most two before, one after, and for the flat line those
as far back as `flat_s`, never across a gap longer than `gap_s`. So it does not matter how much more of the
past is at hand, and the stream, which forgets (see `Past`), flags exactly as the backfill, which sees all.

A fast change that several sensors share is an event and no fault: a step, a rate or a spike counts only if fewer than
`WITNESSES` of the `NEAREST` other sensors went the same way in the same tick and the one before (`_shared`). Rows of
these two ticks decide, and nothing later, so a verdict that a grid was made with stays. Being stuck is not a change:
when a logger freezes, all its sensors are flat at once.

A value can become suspect later: a spike is known as one only when the next value has come. A row therefore
has a moment from which it is bad, and the grid of an earlier tick does not know about it.
"""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from sensorgrid.pipeline.gridding.kernels.interface import metres
from sensorgrid.pipeline.gridding.measurements import Measurements

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ALWAYS = np.iinfo(np.int64).min
NEVER = np.iinfo(np.int64).max

TESTS = ("", "conflict", "flat_line", "step", "rate", "spike", "neighbour", "unpaired", "suspect")
"""names of the tests by number; 0 is none"""
CONFLICT, FLAT, STEP, RATE, SPIKE, NEIGHBOUR, UNPAIRED, SUSPECT = range(1, 9)
"""all but SUSPECT are reasons not to use a measurement; that one is used, with a larger error"""
FLAGS = (1, 3, 3, 3, 3, 3, 4, 3, 3)
"""QARTOD's flag of each test: pass, suspect, fail"""


_NOISES = 6.0
"""Two good reports shortly after each other differ by no more than this many times their usual error."""
NEAREST = 5
"""other sensors that are asked whether they saw a change, too"""
WITNESSES = 2
"""of them that must have"""
SHARE = 0.5
"""of the change that a witness must have seen"""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What it takes to tell which sensors are near, and which readings belong together."""

    coordinates: str
    """of the grid"""
    tick_s: float


def refused(test: npt.NDArray[np.uint8]) -> Bools:
    """Which measurements are not used, by the tests that they failed."""
    found: Bools = (test != 0) & (test != SUSPECT)
    return found


@dataclass(frozen=True, slots=True)
class SeriesLimits:
    """Limits of one attribute; the units are canonical, rates per hour."""

    step: float
    """a larger difference from both values before is a step"""
    rate: float
    """faster changes are suspect, per hour"""
    spike: float
    """a larger distance from the mean of the values before and after is a spike"""
    flat_s: float
    """a value that has not changed for so long is stuck; 0 switches the check off"""
    tolerance: float
    """usual error of a report: values of one moment that differ by no more are one value, rounded twice"""


@dataclass(frozen=True, slots=True)
class Past:
    """What the stream remembers of each series whose rows it has forgotten: enough for every check."""

    sensor: npt.NDArray[np.uint64]
    code: npt.NDArray[np.uint8]
    time_us: Ints
    """of the last row"""
    value: npt.NDArray[np.float64]
    before_us: Ints
    """of the row before it; NEVER if there is none"""
    before: npt.NDArray[np.float64]
    since_us: Ints
    """since when the last value has not changed"""

    def __len__(self) -> int:
        return len(self.sensor)

    def encode(self) -> bytes:
        """As bytes."""
        return b"".join(
            [
                len(self).to_bytes(4, "little"),
                *(np.ascontiguousarray(getattr(self, f.name)).tobytes() for f in fields(self)),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> "Past":
        """Read what `encode` wrote."""
        n, at, columns = int.from_bytes(data[:4], "little"), 4, []
        for kind in ("<u8", "u1", "<i8", "<f8", "<i8", "<f8", "<i8"):
            columns.append(np.frombuffer(data, kind, n, at))
            at += columns[-1].nbytes
        return cls(*columns)

    @classmethod
    def nothing(cls) -> "Past":
        """Of a stream that has just begun."""
        return cls(*(np.empty(0, k) for k in ("u8", "u1", "i8", "f8", "i8", "f8", "i8")))


@dataclass(frozen=True, slots=True)
class Checked:
    """Measurements in canonical order without repeats, each with the moment from which it is bad."""

    rows: Measurements
    bad_from_us: Ints
    """ALWAYS, NEVER, or the moment of the measurement that showed it"""
    test: npt.NDArray[np.uint8]
    """the test that failed, an index into TESTS"""

    def bad_at(self, moment_us: int) -> Bools:
        """Which rows are known to be bad just before a moment."""
        return self.bad_from_us < moment_us


def check_series(
    rows: Measurements,
    limits: tuple[SeriesLimits, ...],
    gap_s: float,
    past: Past,
    around: Surroundings | None = None,
) -> Checked:
    """Check rows (canonical, without exact repeats); `limits` has an entry per code.

    Without `around` sensors are on their own: no other one can say that it saw the same.
    """
    losers = _conflicts(rows, np.array([limit.tolerance for limit in limits]))
    kept = np.flatnonzero(~losers)
    chain = _Chain.of(rows.take(kept), past, round(gap_s * 1e6))
    by_code = np.array([[s.step, s.rate, s.spike, s.flat_s, s.tolerance] for s in limits]).T
    step, rate, spike, flat_s, tolerance = by_code[:, rows.code[kept]]

    fast = chain.jumps(rate * chain.hours_since_previous + _NOISES * tolerance)
    stepped, sharp = chain.jumps(step), chain.spikes(spike)
    alone = np.ones(len(kept), np.bool_)
    changed = np.flatnonzero(fast | stepped | sharp)
    if around is not None and len(changed):
        alone[changed] = ~_shared(chain, changed, around)
    test = np.zeros(len(rows), np.uint8)
    bad_from = np.full(len(rows), NEVER)
    test[losers], bad_from[losers] = CONFLICT, ALWAYS
    for number, failed in (
        (RATE, fast & alone),
        (STEP, stepped & alone),
        (FLAT, (flat_s > 0) & (chain.rows.time_us - chain.since_us >= flat_s * 1e6)),
    ):
        test[kept[failed]], bad_from[kept[failed]] = number, ALWAYS
    sharp &= alone & (bad_from[kept] == NEVER)
    test[kept[sharp]], bad_from[kept[sharp]] = SPIKE, chain.next_us[sharp]
    return Checked(rows, bad_from, test)


def fold(rows: Measurements, limits: tuple[SeriesLimits, ...], gap_s: float, past: Past) -> Past:
    """The past after `rows` (canonical, without repeats), which may then be forgotten.

    Series that have been silent for longer than the gap are forgotten, too.
    """
    losers = _conflicts(rows, np.array([limit.tolerance for limit in limits]))
    chain = _Chain.of(rows.take(~losers), past, round(gap_s * 1e6))
    last = chain.is_last
    now = Past(
        chain.rows.sensor[last],
        chain.rows.code[last],
        chain.rows.time_us[last],
        chain.rows.value[last],
        np.where(chain.has_previous, chain.previous_us, NEVER)[last],
        chain.previous[last],
        chain.since_us[last],
    )
    unheard = ~np.isin(_series(past.sensor, past.code), _series(now.sensor, now.code))
    both = [np.concatenate([getattr(now, f.name), getattr(past, f.name)[unheard]]) for f in fields(Past)]
    merged = Past(*both)
    order = np.lexsort((merged.code, merged.sensor))
    newest = int(rows.time_us.max()) if len(rows) else NEVER
    order = order[merged.time_us[order] >= newest - gap_s * 1e6] if len(rows) else order
    return Past(*(getattr(merged, f.name)[order] for f in fields(Past)))


def _conflicts(rows: Measurements, tolerance: npt.NDArray[np.float64]) -> Bools:
    """Rows that contradict another of the same series and moment.

    If all values of the moment agree within the tolerance, the lower median stays. If they do not, nobody can
    tell which one is right, and none does: the sensor's value before it is used instead, as an older one.
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
        if rows.value[stop - 1] - rows.value[start] <= tolerance[rows.code[start]]:
            losers[(start + stop - 1) // 2] = False
    return losers


def _series(sensor: npt.NDArray[np.uint64], code: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """One number per series; codes are fewer than four."""
    turned: npt.NDArray[np.uint64] = (sensor << np.uint64(2)) | (sensor >> np.uint64(62))
    return np.bitwise_xor(turned, code.astype(np.uint64))


@dataclass(frozen=True, slots=True)
class _Chain:
    """Each row beside its neighbours in its series; neighbours across a gap do not count."""

    rows: Measurements
    has_previous: Bools
    previous_us: Ints
    previous: npt.NDArray[np.float64]
    has_second: Bools
    second: npt.NDArray[np.float64]
    has_next: Bools
    next_us: Ints
    following: npt.NDArray[np.float64]
    since_us: Ints
    is_last: Bools

    @classmethod
    def of(cls, rows: Measurements, past: Past, gap_us: int) -> "_Chain":
        n = len(rows)
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
        first = at[new]
        known, where = _find(past, rows, first)
        head, where = first[known], where[known]
        has_previous[head] = True
        previous_us[head], previous[head] = past.time_us[where], past.value[where]
        has_second[head] = past.before_us[where] != NEVER
        second_us[head], second[head] = past.before_us[where], past.before[where]
        # The second row of a series whose past is known has its last row as the one before the previous.
        follow = head[(head + 1 < n) & ~np.r_[new, True][head + 1]] + 1
        has_second[follow] = True
        second_us[follow], second[follow] = previous_us[follow - 1], previous[follow - 1]

        has_previous &= (
            np.where(has_previous, rows.time_us - np.where(has_previous, previous_us, 0), 0) <= gap_us
        )
        has_second &= has_previous
        has_second &= np.where(has_second, previous_us - np.where(has_second, second_us, 0), 0) <= gap_us
        next_us, following, has_next = np.full(n, NEVER), np.zeros(n), np.zeros(n, bool)
        if n > 1:
            has_next[:-1] = ~new[1:] & has_previous[1:]
            next_us[:-1], following[:-1] = rows.time_us[1:], rows.value[1:]
        since_us = _since(rows, has_previous & (previous == rows.value), new, past, head, where)
        is_last = np.r_[new[1:], True] if n else new
        return cls(
            rows, has_previous, previous_us, previous, has_second, second, has_next, next_us, following,
            since_us, is_last,
        )  # fmt: skip

    @property
    def hours_since_previous(self) -> npt.NDArray[np.float64]:
        before = np.where(self.has_previous, self.previous_us, self.rows.time_us)
        return (self.rows.time_us - before) / 3.6e9

    def jumps(self, limit: npt.NDArray[np.float64]) -> Bools:
        """Rows that differ from both rows before by more than the limit.

        Both, so that the first good value after a faulty one is not taken for a step.
        """
        from_previous = np.abs(self.rows.value - self.previous) > limit
        from_second = np.abs(self.rows.value - self.second) > limit
        return self.has_previous & from_previous & (~self.has_second | from_second)

    def spikes(self, limit: npt.NDArray[np.float64]) -> Bools:
        """Rows that leave the mean of their neighbours by more than the limit, while these agree."""
        middle = (self.previous + self.following) / 2
        return (
            self.has_previous
            & self.has_next
            & (np.abs(self.rows.value - middle) > limit)
            & (np.abs(self.previous - self.following) <= limit)
        )


def _shared(chain: _Chain, changed: Ints, around: Surroundings) -> Bools:
    """For rows that have changed fast, whether enough of the nearest others went the same way."""
    tick = chain.rows.time_us // round(around.tick_s * 1e6)
    found = np.zeros(len(changed), np.bool_)
    for now in np.unique(tick[changed]):
        near = (tick == now) | (tick == now - 1)
        for code in np.unique(chain.rows.code[changed[tick[changed] == now]]):
            which = np.flatnonzero((tick[changed] == now) & (chain.rows.code[changed] == code))
            found[which] = _witnessed(
                chain, changed[which], np.flatnonzero(near & (chain.rows.code == code)), around
            )
    return found


def _witnessed(chain: _Chain, changed: Ints, near: Ints, around: Surroundings) -> Bools:
    """The same for rows of one tick and code; `near` are all rows of that code which may bear witness."""
    rows = chain.rows
    starts = np.flatnonzero(np.r_[True, rows.sensor[near][1:] != rows.sensor[near][:-1]])
    if len(starts) <= WITNESSES:
        return np.zeros(len(changed), np.bool_)
    first, sensor = near[starts], rows.sensor[near[starts]]
    before = np.where(chain.has_previous[first], chain.previous[first], rows.value[first])
    rise = np.maximum.reduceat(rows.value[near], starts) - before
    fall = before - np.minimum.reduceat(rows.value[near], starts)
    places = metres(rows.x[first], rows.y[first], around.coordinates)
    asked = min(NEAREST + 1, len(starts))
    _, others = cKDTree(places).query(
        metres(rows.x[changed], rows.y[changed], around.coordinates), k=np.arange(1, asked + 1)
    )
    change = rows.value[changed] - chain.previous[changed]
    seen = np.where(change[:, None] > 0, rise[others], fall[others]) >= SHARE * np.abs(change)[:, None]
    seen &= sensor[others] != rows.sensor[changed][:, None]
    witnessed: Bools = seen.sum(axis=1) >= WITNESSES
    return witnessed


def _find(past: Past, rows: Measurements, first: Ints) -> tuple[Bools, Ints]:
    """Which series heads have a past, and where."""
    if not len(past) or not len(first):
        return np.zeros(len(first), bool), np.zeros(len(first), np.int64)
    keys = _series(past.sensor, past.code)
    order = np.argsort(keys, kind="stable")
    wanted = _series(rows.sensor[first], rows.code[first])
    where = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
    return keys[where] == wanted, where


def _since(rows: Measurements, unchanged: Bools, new: Bools, past: Past, head: Ints, where: Ints) -> Ints:
    """Since when each row's value has not changed."""
    n = len(rows)
    if not n:
        return np.empty(0, np.int64)
    begins = np.where(unchanged & ~new, 0, np.arange(n))
    begins = np.maximum.accumulate(begins)
    start_us = rows.time_us.copy()
    goes_on = unchanged[head]
    start_us[head[goes_on]] = past.since_us[where[goes_on]]
    return start_us[begins]
