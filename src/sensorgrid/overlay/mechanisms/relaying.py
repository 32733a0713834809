"""Relays for streams that share a route, as in the paper: each broker decides for itself (relays, section 4).

A broker that feeds other brokers chooses a relay for each of them by its strategy; streams of the same data to the
same relay are merged (`policies/merging.py`): the receivers are redirected to the relay, which takes one stream from
here. There the same decision is made again, until the receiver itself is the best relay. A receiver whose data already
pass a relay moves there without having to meet another. Double feeds do not arise: a receiver has one provider for
each piece, and leaves the old one when the new one feeds it. A relay with one receiver left hands it back
(`replication.py`, section 4.4.3 of multires).
"""

from sensorgrid.index.codes import prefixes
from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.boards import Boards
from sensorgrid.overlay.declined import Declined
from sensorgrid.overlay.departures import Departures
from sensorgrid.overlay.events import PeerDown, Woke
from sensorgrid.overlay.geography import points_of
from sensorgrid.overlay.kernel import BrokerKernel, Notebook
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.outlets import Entry, Supply
from sensorgrid.overlay.policies.merging import merge
from sensorgrid.overlay.policies.relays import STRATEGIES, UNKNOWN, Relays, Sight
from sensorgrid.overlay.service import Service


class Relaying(Mechanism):
    """The mechanism."""

    def __init__(
        self,
        kernel: BrokerKernel,
        boards: Boards,
        service: Service,
        changed: Notebook[Supply],
        relays: Relays,
    ) -> None:
        self.kernel = kernel
        self.outlets = boards.outlets
        self.distances = boards.distances
        self.relays = relays
        self.strategy = STRATEGIES[relays.strategy]
        self.listens = {PeerDown: self.peer_down, Woke: self.woke}
        self._departures: Departures[PeerId] = Departures(kernel, service, self._stayed)
        self._declined: Declined[tuple[int, int, PeerId]] = Declined()
        """by (attribute, cell, receiver): relays that it did not go to"""
        self._changed = changed
        """supplies whose receivers have changed since they were looked at"""
        self._sights = 0
        self._due: Instant | None = None

    def settle(self) -> bool:
        """Plan to look, soon, at what has changed."""
        if self._sights != self.distances.sights:
            self._sights = self.distances.sights
            for by in self.outlets.supplies.values():
                for supply in by.values():
                    if supply.entries:
                        self._changed.note(supply)
        if self._changed and self._due is None:
            self._due = self.kernel.now + self.relays.review_s
        return False

    def _review(self) -> None:
        changed = self._changed.take()
        chosen: dict[tuple[PeerId, tuple[PeerId, ...]], PeerId] = {}
        for supply in changed:
            if supply.path is not None and len(supply.entries) > 1:
                self._merge(supply, supply.path, chosen)

    def _merge(
        self,
        supply: Supply,
        path: tuple[PeerId, ...],
        chosen: dict[tuple[PeerId, tuple[PeerId, ...]], PeerId],
    ) -> None:
        """Send receivers of a supply over relays."""
        groups: dict[PeerId, list[Entry]] = {}
        streams: dict[PeerId, set[int]] = {}
        for entry in supply.entries.values():
            receiver = entry.peer
            if not entry.of_broker or not is_broker(receiver) or entry.until is not None or not entry.granted:
                continue
            streams.setdefault(receiver, set()).add(entry.cell)
            if entry.going is not None:
                continue
            relay = chosen.get((receiver, path))
            if relay is None:
                relay = chosen[receiver, path] = self._relay(receiver, path)
            if relay != receiver:
                groups.setdefault(relay, []).append(entry)
        for relay, entries in sorted(groups.items()):
            self._send(relay, entries, streams.get(relay, set()))

    def _relay(self, receiver: PeerId, path: tuple[PeerId, ...]) -> PeerId:
        distances = self.distances
        near = tuple(p for p in distances.near if p not in path)
        return self.strategy(
            Sight(
                receiver,
                near,
                self._here,
                lambda n: distances.delay_between(n, receiver),
                self.relays.same_s,
            )
        )

    def _here(self, peer: PeerId) -> float:
        measured = self.distances.delays.get(peer)
        return UNKNOWN if measured is None else measured.delay_s

    def _send(self, relay: PeerId, entries: list[Entry], streams: set[int]) -> None:
        """Receivers whose data already pass the relay, and receivers that meet at it."""
        going: list[tuple[Entry, int]] = []
        rest: list[Entry] = []
        for entry in entries:
            if ((entry.attribute, entry.cell, entry.peer), relay) in self._declined:
                continue
            if any(code in streams for code in prefixes(entry.cell)):
                going.append((entry, entry.cell))
            else:
                rest.append(entry)
        if rest:
            going += self._meeting(relay, rest, streams)
        if going:
            self._departures.send(going, relay, relay)
            self.kernel.counters.delegations += 1

    def _meeting(self, relay: PeerId, rest: list[Entry], streams: set[int]) -> list[tuple[Entry, int]]:
        """Receivers that meet at a region now; those below it follow when the relay has it.

        All at once, a small one might come first, and the relay could not take the region whole.
        """
        named: list[tuple[Entry | int, int]] = [(entry, entry.cell) for entry in rest]
        named += [(cell, cell) for cell in sorted(streams)]
        regions, served = merge(named, self._size, self.relays.delta, self.kernel.digits)
        at = set(regions)
        found: dict[Entry, int] = {}
        for entry, part in served:
            if isinstance(entry, Entry) and part in at and entry not in found:
                declined = ((entry.attribute, part, entry.peer), relay) in self._declined
                if not declined:
                    found[entry] = part
        return list(found.items())

    def _size(self, cell: int) -> int:
        return points_of(self.kernel.grid, cell)

    def _stayed(self, relay: PeerId, entries: list[Entry]) -> None:
        for entry in entries:
            self._declined.note((entry.attribute, entry.cell, entry.peer), relay, self.kernel.now)

    def _forgive(self) -> None:
        """What was declined long enough ago may be tried again."""
        for (attribute, cell, _), _ in self._declined.forgive(self.kernel.now):
            supply = self.outlets.supply_for(attribute, cell)
            if supply is not None and supply.entries:
                self._changed.note(supply)

    def peer_down(self, event: PeerDown) -> None:
        """It can relay to no receiver now."""
        self._departures.peer_down(event.peer)

    def next_wakeup(self) -> Instant | None:
        """When to look again, or when a receiver should have left."""
        forgiven = self._declined.next_wakeup()
        times = [t for t in (self._due, self._departures.next_wakeup(), forgiven) if t is not None]
        return min(times, default=None)

    def woke(self, event: Woke) -> None:
        """Look at what has changed."""
        self._departures.woke()
        self._forgive()
        if self._due is not None and self._due <= self.kernel.now:
            self._due = None
            self._review()
