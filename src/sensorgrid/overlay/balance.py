"""Evens out load between brokers that are next to each other on the line of IDs.

Whoever has much more to send than the broker before or after it gives that one some of its regions, by moving the
border between their ranges. It waits for some time before it does so, and for a hand-over to end, and it moves a
border only if the heavier of the two gets lighter by a good part. So regions move rarely, and no more than needed.
"""

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.boards import Boards
from sensorgrid.overlay.geography import first_of
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.placement import ring
from sensorgrid.overlay.roster import Roster

UNEVEN = 2.0
"""times the load of the broker beside it, from which on a broker gives something away"""
WORTH = 0.1
"""of its budget: a smaller difference is not worth a hand-over"""
GAIN = 0.8
"""of the larger load is what the larger load may be afterwards"""
STEADY = 30
"""beats for which it must have been so"""


class Balance:
    """What one broker knows of its own load and of that beside it."""

    def __init__(self, kernel: BrokerKernel, boards: Boards) -> None:
        self.kernel = kernel
        self.boards = boards
        self._beats = 0
        """beats in a row at which there was something to move"""

    def changed(self) -> None:
        """The roster has changed: look anew."""
        self._beats = 0

    def beat(self, roster: Roster) -> None:
        """One beat."""
        self._beats = self._beats + 1 if self._move(roster) else 0

    def moves(self, roster: Roster) -> dict[PeerId, int]:
        """New places, of this broker or the one after it, if it is time for that."""
        return self._move(roster) if self._beats >= STEADY else {}

    def _move(self, roster: Roster) -> dict[PeerId, int]:
        me, digits = self.kernel.me, roster.terms.depth
        if any(r.heir is not None for r in roster.regions) or any(
            m.accused or m.leaving for m in roster.members
        ):
            return {}
        owners = [peer for peer in ring(roster) if not roster.by_id[peer].relay]
        if me not in owners or len(owners) < 2:
            return {}
        loads = self._loads(roster)
        place = roster.by_id[me].place
        line = sorted(loads, key=lambda first: (first - place) % (1 << digits))
        mine = sum(loads.values())
        at = owners.index(me)
        best, found = GAIN * mine, dict[PeerId, int]()
        for beside in dict.fromkeys((owners[(at + 1) % len(owners)], owners[at - 1])):
            theirs = self._load_of(roster, beside)
            if (
                theirs is None
                or mine < UNEVEN * theirs
                or mine - theirs < WORTH * self.kernel.settings.budget
            ):
                continue
            after = beside == owners[(at + 1) % len(owners)]
            given = 0.0
            # The next one gets the end of the range, the one before gets its beginning; some region always stays.
            for border in reversed(range(1, len(line))) if after else range(1, len(line)):
                given += loads[line[border if after else border - 1]]
                heavier = max(mine - given, theirs + given)
                if heavier < best:
                    best, found = heavier, {beside if after else me: line[border]}
        return found

    def _loads(self, roster: Roster) -> dict[int, float]:
        """What goes out of this broker's own regions, by their first ID."""
        loads: dict[int, float] = {}
        for region in roster.by_owner.get(self.kernel.me, ()):
            first = first_of(region.cell, roster.terms.depth)
            supply = self.boards.outlets.supplies.get(region.attribute, {}).get(region.cell)
            loads[first] = loads.get(first, 0.0) + (0 if supply is None else supply.owed)
        return loads

    def _load_of(self, roster: Roster, peer: PeerId) -> float | None:
        """What a broker says that it sends; None: it has not said."""
        known, capacity = self.boards.hearsay.free_of.get(peer), roster.by_id[peer].capacity
        return None if known is None or not capacity else max(0.0, float(capacity - known[1]))
