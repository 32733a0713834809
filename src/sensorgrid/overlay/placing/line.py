"""Nodes on the line of IDs: who has which piece of an area, and in which order nodes are asked (operators, III-B).

The order in which an overloaded node asks others (Figure 6): of the nodes that share the first so many bits of its ID,
those with larger IDs, upwards; then those with smaller ones, downwards; then with one bit less. It begins with all
bits, which only the node itself shares.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from sensorgrid.index.zorder import Owners, Range
from sensorgrid.model.ids import PeerId

Ranges = tuple[Range, ...]
"""an area: sorted, disjoint ranges of IDs that do not even adjoin"""
Piece = tuple[PeerId, Range]
"""a node, and a range of IDs that it owns whole"""


class IdLine:
    """Nodes in the order of their IDs.

    Examples
    --------
    >>> line = IdLine({PeerId(n): place for n, place in enumerate((2, 5, 6, 9, 12))}, digits=4)
    >>> line.owner(7), line.owner(1), line.pieces(((4, 7),))
    (2, 4, [(0, (4, 5)), (1, (5, 6)), (2, (6, 7))])
    >>> list(line.search(PeerId(1))), list(line.from_id(6))
    ([2, 0, 3, 4], [2, 3, 4, 0, 1])
    """

    def __init__(self, places: Mapping[PeerId, int], digits: int) -> None:
        self.digits = digits
        self._owners = Owners(places.values(), digits)
        self._who = {place: node for node, place in places.items()}
        self._place = dict(places)

    @property
    def nodes(self) -> list[PeerId]:
        """All of them, by ID."""
        return [self._who[place] for place in self._owners.ids]

    def owner(self, leaf: int) -> PeerId:
        """Whose an ID is."""
        return self._who[self._owners.of(leaf)]

    def pieces(self, ranges: Iterable[Range]) -> list[Piece]:
        """An area, cut where the owner changes.

        The last node may have two pieces, as the IDs below the first one are its own, too.
        """
        return [
            (self._who[owner], piece)
            for start, stop in ranges
            for owner, piece in self._owners.split(start, stop)
        ]

    def region(self, node: PeerId) -> Ranges:
        """All IDs of a node."""
        return tuple(self._owners.ranges(self._place[node]))

    def from_id(self, leaf: int) -> Iterator[PeerId]:
        """All nodes from an ID on, upwards, around the end of the line."""
        ids = self._owners.ids
        first = bisect_left(ids, leaf)
        for step in range(len(ids)):
            yield self._who[ids[(first + step) % len(ids)]]

    def search(self, me: PeerId) -> Iterator[PeerId]:
        """All other nodes in the order in which one asks them."""
        ids, place = self._owners.ids, self._place[me]
        low = bisect_left(ids, place)
        high = low + 1
        for bits in range(1, self.digits + 1):
            base = place >> bits << bits
            first, last = bisect_left(ids, base), bisect_left(ids, base + (1 << bits))
            for index in (*range(high, last), *range(low - 1, first - 1, -1)):
                yield self._who[ids[index]]
            low, high = first, last


def within(ranges: Iterable[Range], start: int, stop: int) -> Ranges:
    """The part of an area inside a range of IDs.

    >>> within(((0, 4), (6, 9)), 3, 7)
    ((3, 4), (6, 7))
    """
    return tuple((max(a, start), min(b, stop)) for a, b in ranges if a < stop and b > start)


def without(ranges: Iterable[Range], start: int, stop: int) -> Ranges:
    """The part of an area outside a range of IDs.

    >>> without(((0, 4), (6, 9)), 3, 7)
    ((0, 3), (7, 9))
    """
    cut = ((part for part in ((a, min(b, start)), (max(a, stop), b)) if part[0] < part[1]) for a, b in ranges)
    return tuple(part for parts in cut for part in parts)


def joined(ranges: Iterable[Range]) -> Ranges:
    """Disjoint ranges in any order as an area.

    >>> joined([(6, 9), (0, 4), (4, 6)])
    ((0, 9),)
    """
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        else:
            found.append((start, stop))
    return tuple(found)


def roundest(start: int, stop: int) -> int:
    """The ID with most zeros at its end in [start, stop): where a cut leaves the fewest cells on both sides.

    >>> roundest(3, 8), roundest(9, 12), roundest(0, 7)
    (4, 10, 0)
    """
    bits = 0
    while -(-start >> bits + 1) << bits + 1 < stop and bits < stop.bit_length():
        bits += 1
    return -(-start >> bits) << bits
