"""Sums that have the same bits in any order.

A number is cut into slices of 20 bits at fixed places: slice j is a multiple of 2^(20 j - 88). Slices of one place, and
multiples of 2^-7 of them, add without rounding as long as there are at most 2^27. So sums of slices can be made, split,
taken apart by differences of running sums, and merged in any order; `totals` rounds once, at the end. Cutting by adding
and taking away 1.5 · 2^52 units costs three passes over an array for each place that is in use.
"""

from collections.abc import Iterator
from math import frexp, fsum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SLICES = 9
"""float64s of an exact sum"""
BITS = 20
LOWEST = -88
"""exponent of the lowest unit; what lies below is rounded off, alike everywhere"""
LARGEST = 2.0**60
"""numbers beyond are no measurements"""
ADDENDS_MAX = 1 << 27


def slices(numbers: Floats) -> Iterator[tuple[int, Floats]]:
    """The places in use, and the slice of each number there."""
    rest = np.asarray(numbers, np.float64)
    largest = float(np.max(np.abs(rest), initial=0.0))
    if not largest:
        return
    top = min(SLICES - 1, max(0, -(-(frexp(largest)[1] - LOWEST - BITS + 1) // BITS)))
    for place in range(top, -1, -1):
        magic = 1.5 * 2.0 ** (52 + LOWEST + BITS * place)
        cut = rest + magic
        cut -= magic
        yield place, cut
        rest = rest - cut
        if not rest.any():
            return


def totals(summed: Floats) -> Floats:
    """The exact sum of each row, rounded once."""
    return np.array([fsum(row) for row in summed.tolist()], np.float64)


WHOLE_UNIT = LOWEST - 7
"""slices of points at a border are multiples of 2^-7 of a unit"""


def whole(summed: Floats) -> list[int]:
    """The exact sum of each row, not rounded, in units of 2^`WHOLE_UNIT`."""
    units = np.ldexp(summed, -(WHOLE_UNIT + BITS * np.arange(SLICES))).astype(np.int64)
    return [sum(part << (BITS * place) for place, part in enumerate(row) if part) for row in units.tolist()]
