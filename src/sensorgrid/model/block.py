"""What travels: values on strided slices of the grid.

A slab is a strided rectangle of values. Whatever a receiver wants of a cell is a few slabs, and whatever a
provider has of it is a few slabs; the part they share is found axis by axis. Strides are powers of two, so two
progressions either nest or miss each other, and the shared part is again one progression.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.floating]
Progression = tuple[int, int, int]
"""(start, stop, stride) with start inside, as in `range`"""


@dataclass(frozen=True, slots=True, eq=False)
class Slab:
    """Values of the points ``[y, x]`` of two progressions."""

    y: Progression
    """rows"""
    x: Progression
    """columns"""
    values: Values
    """one value per point, [row, column]"""
    silent_s: float | None = None
    """None: they rest on observations. Otherwise none was within reach, and the newest that they rest on is so old;
    infinitely, if they are only what was known beforehand"""

    @property
    def points(self) -> int:
        """How many values it holds."""
        return self.values.size


@dataclass(frozen=True, slots=True)
class Wanted:
    """A strided rectangle on some ticks: what a receiver wants of one cell, or a part of it."""

    y: Progression
    """rows"""
    x: Progression
    """columns"""
    offset: int
    """ticks congruent to this ..."""
    stride: int
    """... modulo this"""

    def at(self, tick: int) -> bool:
        """Whether it holds anything at a tick."""
        return tick % self.stride == self.offset

    @property
    def points(self) -> int:
        """Points at a tick at which it holds any."""
        return len(range(*self.y)) * len(range(*self.x))


def meet(a: Progression, b: Progression) -> Progression | None:
    """The numbers that two progressions with power-of-two strides share.

    >>> meet((0, 16, 2), (4, 12, 4)), meet((0, 16, 2), (1, 16, 4))
    ((4, 12, 4), None)
    """
    coarse, fine = (a, b) if a[2] >= b[2] else (b, a)
    if (coarse[0] - fine[0]) % fine[2]:
        return None
    start, stop, stride = max(a[0], b[0]), min(a[1], b[1]), coarse[2]
    start += (coarse[0] - start) % stride
    return (start, stop, stride) if start < stop else None


def cut(slabs: Iterable[Slab], wanted: Iterable[Wanted], tick: int) -> tuple[Slab, ...]:
    """The wanted part of some slabs at a tick, as views."""
    return tuple(
        Slab(y, x, slab.values[_within(y, slab.y), _within(x, slab.x)], slab.silent_s)
        for want in wanted
        if want.at(tick)
        for slab in slabs
        if (y := meet(want.y, slab.y)) is not None and (x := meet(want.x, slab.x)) is not None
    )


def masked(slabs: Iterable[Slab], low: float, high: float) -> tuple[Slab, ...]:
    """The same slabs with values outside [low, high] blanked."""
    return tuple(
        Slab(s.y, s.x, np.where((s.values >= low) & (s.values <= high), s.values, np.nan), s.silent_s)
        for s in slabs
    )


def points_of(slabs: Iterable[Slab]) -> Iterator[tuple[int, int, float]]:
    """(column, row, value) of every point, for tests and checkers."""
    for slab in slabs:
        for j, row in enumerate(range(*slab.y)):
            for i, column in enumerate(range(*slab.x)):
                yield column, row, float(slab.values[j, i])


def _within(part: Progression, whole: Progression) -> slice:
    first = (part[0] - whole[0]) // whole[2]
    count = len(range(*part))
    step = part[2] // whole[2]
    return slice(first, first + (count - 1) * step + 1, step)
