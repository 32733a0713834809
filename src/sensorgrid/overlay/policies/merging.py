"""Which streams to one relay become one: Algorithm 2 of the relays paper, repaired.

Streams are whole cells, kept where the index has them. From the top down: where two or more meet at a node, its
region goes to the relay once, for them and for all below; where one is alone but more lie below it, it is split, so
that the parts can meet; where none is, look further down. Δ (`delta`) keeps what is shared by little whole.

Differs from the print: the second `if` is an `else if` (it would recurse twice into the same children), it stops at
leaves, and R_n means the size of the region.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)

Merged = tuple[list[int], list[tuple[Name, int]]]
"""regions to stream to the relay, and which part of which stream they serve"""


def merge_streams(
    streams: Iterable[tuple[Name, int]], size: Callable[[int], int], delta: int, digits: int
) -> Merged[Name]:
    """As printed: recursive, each node looks at all streams. The measure of `merge`.

    Parameters
    ----------
    streams
        Name and cell of each stream that could pass the relay.
    size
        Points of a cell.
    delta
        Δ.
    digits
        Of the longest cell.
    """
    regions: list[int] = []
    served: list[tuple[Name, int]] = []

    def visit(n: int, mine: list[tuple[Name, int]]) -> None:
        below = [(name, cell) for name, cell in mine if _within(n, cell)]
        here = [(name, cell) for name, cell in below if cell == n]
        total = sum(size(cell) for _, cell in below)
        leaf = n.bit_length() - 1 >= digits
        if not here:
            if total > 2 * delta and not leaf:
                visit(n << 1, below)
                visit(n << 1 | 1, below)
        elif len(here) >= 2:
            regions.append(n)
            served.extend(below)
        elif total > size(n) + delta and not leaf:
            name = here[0][0]
            pushed = [(name, n << 1), (name, n << 1 | 1), *(q for q in below if q[1] != n)]
            visit(n << 1, pushed)
            visit(n << 1 | 1, pushed)

    visit(1, list(streams))
    return regions, served


def merge(
    streams: Iterable[tuple[Name, int]], size: Callable[[int], int], delta: int, digits: int
) -> Merged[Name]:
    """The same, from sizes that are summed up once, and only where streams are."""
    at: dict[int, list[Name]] = {}
    total: dict[int, int] = {}
    for name, cell in streams:
        at.setdefault(cell, []).append(name)
        points, code = size(cell), cell
        while code:
            total[code] = total.get(code, 0) + points
            code >>= 1
    regions: list[int] = []
    served: list[tuple[Name, int]] = []
    stack: list[tuple[int, Name | None]] = [(1, None)] if at else []
    while stack:
        n, pushed = stack.pop()
        here = at.get(n, [])
        points = total.get(n, 0)
        if pushed is not None:
            here, points = [pushed, *here], points + size(n)
        if len(here) >= 2:
            regions.append(n)
            served += [(name, n) for name in here]
            served += _below(at, total, n)
            continue
        if n.bit_length() - 1 >= digits:
            continue
        children = (n << 1 | 1, n << 1)
        if not here and points > 2 * delta:
            stack += [(child, None) for child in children if child in total]
        elif here and points > size(n) + delta:
            stack += [(child, here[0]) for child in children if child in total]
    return regions, served


def _below(at: dict[int, list[Name]], total: dict[int, int], n: int) -> list[tuple[Name, int]]:
    found: list[tuple[Name, int]] = []
    stack = [n << 1 | 1, n << 1]
    while stack:
        code = stack.pop()
        if code in total:
            found += [(name, code) for name in at.get(code, ())]
            stack += [code << 1 | 1, code << 1]
    return found


def _within(n: int, cell: int) -> bool:
    down = cell.bit_length() - n.bit_length()
    return down >= 0 and cell >> down == n
