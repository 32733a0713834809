"""What "a part r of the points of an axis" means, exactly.

An axis is cut into blocks of 2^bits points. Inside a block, points are ranked by their bit-reversed offset
(multires, section 4.2.2): rank 0 is offset 0, rank 1 is offset m/2, ranks 2 and 3 are m/4 and 3m/4, and so
on. A resolution r = limit / 2^bits asks for the points of rank < limit. Two things follow, and everything
else in Sensorgrid leans on them:

* **resolutions nest**: a finer query asks for all ranks of a coarser one, and more;
* **an aligned run of ranks is a stride**: the ranks [j * 2^(bits-p), (j+1) * 2^(bits-p)) are the offsets
  congruent to one number modulo 2^p. So no permutation is ever carried out: it is all `start:stop:stride`.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isfinite


@dataclass(frozen=True, slots=True)
class Stride:
    """The indices congruent to `offset` modulo `stride`."""

    offset: int
    stride: int

    def count(self, start: int, stop: int) -> int:
        """How many of them lie in [start, stop)."""
        first = start + (self.offset - start) % self.stride
        return max(0, -((first - stop) // self.stride))

    def slice(self, start: int, stop: int) -> slice:
        """Those in [start, stop) as a slice, whose start is the first of them."""
        return slice(start + (self.offset - start) % self.stride, stop, self.stride)


def reverse_bits(value: int, bits: int) -> int:
    """`value` with its `bits` binary digits in reverse order: offset to rank and back."""
    result = 0
    for _ in range(bits):
        result = result << 1 | value & 1
        value >>= 1
    return result


def limit_of(resolution: float | Fraction, bits: int) -> int:
    """The number of ranks, of 2^bits, that a resolution in (0, 1] asks for: rounded up.

    >>> limit_of(0.3, 4)
    5
    """
    if not (isfinite(resolution) and 0 < resolution <= 1):
        raise ValueError(f"found {resolution}, expected a number in (0, 1]")
    if type(resolution) is float:  # a power of two times a float is exact
        return ceil(resolution * (1 << bits))
    return ceil(Fraction(resolution) * (1 << bits))


def strides_of(low: int, limit: int, bits: int) -> tuple[Stride, ...]:
    """The ranks [low, limit) of an axis as disjoint strides, coarsest first for low = 0.

    >>> strides_of(0, 4, 4)           # a quarter is every fourth point
    (Stride(offset=0, stride=4),)
    >>> strides_of(0, 5, 4)           # 5/16: every fourth, and one in sixteen more
    (Stride(offset=0, stride=4), Stride(offset=2, stride=16))
    """
    strides = []
    while low < limit:
        # The largest aligned run of ranks that starts at `low` and does not pass `limit`.
        run = min((low & -low).bit_length() - 1 if low else bits, (limit - low).bit_length() - 1)
        digits = bits - run
        strides.append(Stride(reverse_bits(low >> run, digits), 1 << digits))
        low += 1 << run
    return tuple(strides)


def count_points(start: int, stop: int, limit: int, bits: int) -> int:
    """How many indices of [start, stop) have a rank below `limit`."""
    return sum(stride.count(start, stop) for stride in strides_of(0, limit, bits))
