"""Links by prefixes of IDs: from any broker to any other in a few hops (operators paper, III-A and Figure 3).

Places on the line of IDs are read as digits of two bits. A broker is linked

- to two neighbours on either side of it in the order of IDs, around the ends of the line;
- for each digit of its place, to brokers whose digits before it are the same and whose digit is one of the three other
  patterns: to those at the like place in there, and to those at the mirrored one, so that the digits behind differ.

Every link has two ends that both know it. Brokers are spread unevenly, so of the many that would choose the same
broker only the nearest get it: at most `EACH` for each pattern and kind of place, and at most `LINKS_MAX` in all.

A word for a broker goes to the link that shares the most digits with it, of several to the one nearest to it on the
line. It always arrives: towards it there is a neighbour on the line that shares no fewer digits, and is nearer.

All of it is a pure function of who is there: whatever came and went before makes no difference. Differs from the
paper, which links a broker to one broker per pattern and says nothing of how many are linked to that one.
"""

from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.roster import Roster

LINKS_MAX = 64
"""links of a broker"""
BESIDE = 2
"""neighbours in the order of IDs, on either side"""
EACH = 2
"""links of a broker to one pattern at the like place, and as many at the mirrored one"""

Span = tuple[int, int]
"""brokers of a cell: a range of all brokers in the order of IDs"""


class PrefixLinks:
    """Who is linked with whom; tables are worked out when they are asked for.

    Examples
    --------
    >>> links = PrefixLinks({PeerId(n): 4 * n for n in range(256)}, digits=10)
    >>> links.of(PeerId(0))[:6]
    (1, 255, 2, 254, 64, 127)
    >>> links.next_hop(PeerId(0), PeerId(150)), links.way(PeerId(0), PeerId(150))
    (128, [128, 144, 151, 150])
    """

    def __init__(self, places: Mapping[PeerId, int], digits: int) -> None:
        odd = digits & 1  # half a digit at the end is a whole one with a zero
        self._bits = digits + odd
        self._place = {broker: place << odd for broker, place in places.items()}
        by_place = {self._place[broker]: broker for broker in sorted(places, reverse=True)}
        self._line = sorted(by_place)
        """places of those on the line"""
        self._who = [by_place[place] for place in self._line]
        self._at = {broker: index for index, broker in enumerate(self._who)}
        self._wished: dict[int, dict[int, None]] = {}
        self._links: dict[PeerId, tuple[PeerId, ...]] = {}

    @classmethod
    def of_roster(cls, roster: Roster) -> "PrefixLinks":
        """Of its members; those who want no regions are not on the line, if anybody else is."""
        members = [m for m in roster.members if not m.relay] or list(roster.members)
        return _known(tuple((member.id, member.place) for member in members), roster.terms.depth)

    def of(self, broker: PeerId) -> tuple[PeerId, ...]:
        """The links of a broker; one that is not on the line has two into it that only itself counts."""
        found = self._links.get(broker)
        if found is None:
            at = self._at.get(broker)
            if at is None:
                count = len(self._who)
                found = tuple(self._who[(broker + step) % count] for step in range(min(2, count)))
            else:
                found = tuple(self._who[other] for other in self._kept(at) if at in self._kept(other))
            self._links[broker] = found
        return found

    def next_hop(self, me: PeerId, to: PeerId, up: Container[PeerId] | None = None) -> PeerId | None:
        """Where a broker sends a word for another one; None if that is itself, or not on the line.

        Given links that are `up`, it takes one of these, if any leads on.
        """
        if me == to or to not in self._at:
            return None
        target = self._place[to]

        def far(broker: PeerId) -> tuple[int, int]:
            return _far(self._place[broker], target)

        links = self.of(me)
        if up is not None:
            on = [link for link in links if link in up and (me not in self._at or far(link) < far(me))]
            links = tuple(on) or links
        return min(links, key=far)

    def way(self, me: PeerId, to: PeerId) -> list[PeerId]:
        """All hops of a word."""
        found: list[PeerId] = []
        hop = self.next_hop(me, to)
        while hop is not None:
            found.append(hop)
            hop = self.next_hop(hop, to)
        return found

    # -- by indices of the line

    def _kept(self, at: int) -> dict[int, None]:
        """The first of those that it would link to: neighbours, then what shares few digits, then more."""
        found = self._wished.get(at)
        if found is None:
            found = {}
            for other in self._wishes(at):
                found[other] = None
                if len(found) == LINKS_MAX:
                    break
            self._wished[at] = found
        return found

    def _wishes(self, at: int) -> Iterator[int]:
        count, line = len(self._line), self._line
        for step in range(1, min(BESIDE, count - 1) + 1):
            yield (at + step) % count
            yield (at - step) % count
        place, span = line[at], (0, count)
        for shift in range(self._bits - 2, -2, -2):
            if span[1] - span[0] < 2:
                return
            digit, below = place >> shift & 3, (1 << shift) - 1
            spans = self._split(span, place >> shift + 2 << shift + 2, shift)
            mine = spans[digit]
            for pattern in range(4):
                theirs = spans[pattern]
                if pattern == digit or theirs[0] == theirs[1]:
                    continue
                alike = (digit ^ pattern) << shift
                for image in (alike, alike ^ below) if below else (alike,):
                    for other in self._nearest(at, mine, theirs, image):
                        if at in self._nearest(other, theirs, mine, image):
                            yield other
            span = mine

    def _split(self, span: Span, base: int, shift: int) -> list[Span]:
        """The brokers of a cell by their next digit."""
        inner = [bisect_left(self._line, base + (digit << shift), *span) for digit in (1, 2, 3)]
        cuts = (span[0], *inner, span[1])
        return [(cuts[digit], cuts[digit + 1]) for digit in range(4)]

    def _nearest(self, at: int, mine: Span, theirs: Span, image: int) -> list[int]:
        """Of another cell: the broker nearest to a broker's image in there, and those to whose image it is nearest.

        At most `EACH`, the nearest. The latter stand around its image without another between them, so that no more
        than `EACH` on either side need be looked at.
        """
        line = self._line
        there = line[at] ^ image
        index = bisect_left(line, there, *theirs)
        found = []
        own = self._closest(there, index, theirs)
        for other in range(max(index - EACH, theirs[0]), min(index + EACH, theirs[1])):
            here = line[other] ^ image
            if other == own or self._closest(here, bisect_left(line, here, *mine), mine) == at:
                found.append((abs(line[other] - there), other))
        return [other for _, other in sorted(found)[:EACH]]

    def _closest(self, place: int, index: int, span: Span) -> int:
        """Of those before and after a place, the nearer; the first if both are."""
        line = self._line
        if index == span[0]:
            return index
        if index == span[1] or place - line[index - 1] <= line[index] - place:
            return index - 1
        return index


@lru_cache(maxsize=4)
def _known(places: tuple[tuple[PeerId, int], ...], digits: int) -> PrefixLinks:
    """Worked out once where many brokers of a process hold the same roster, and where only regions change."""
    return PrefixLinks(dict(places), digits)


def _far(place: int, target: int) -> tuple[int, int]:
    """Digits from the first that differs on; then how far on the line."""
    return ((place ^ target).bit_length() + 1) // 2, abs(place - target)
