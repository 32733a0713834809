"""The algebra of cells on their bare codes, for the places where a `Cell` per operation would cost too much.

A code is a cell's digits behind a sentinel bit (`sensorgrid.index.cell`); 1 is the whole grid.
"""

from collections.abc import Iterator


def contains(outer: int, inner: int) -> bool:
    """Whether every point of `inner` is in `outer`: a prefix test.

    >>> contains(0b10, 0b101), contains(0b101, 0b10)
    (True, False)
    """
    surplus = inner.bit_length() - outer.bit_length()
    return surplus >= 0 and inner >> surplus == outer


def prefixes(code: int, shortest: int = 0) -> Iterator[int]:
    """All cells that contain it, itself first, down to `shortest` digits."""
    while code > 0 and code.bit_length() > shortest:
        yield code
        code >>= 1


def beside(outer: int, inner: int) -> list[int]:
    """What is left of `outer` without `inner`, as the fewest cells, largest first.

    >>> [bin(code) for code in beside(0b10, 0b1011)]
    ['0b100', '0b1010']
    """
    assert contains(outer, inner), f"{bin(inner)} is not in {bin(outer)}"
    return [code ^ 1 for code in prefixes(inner, outer.bit_length())][::-1]
