"""How far away other brokers are: measured, smoothed, exchanged (relays, section 4, "Neighborhood Maintenance").

A broker pings the brokers that it knows. The `k` nearest are its neighbourhood. It measures them and its providers
every period, and the others in turn, a few each period, to notice when one has come nearer. An answer also contains
the other broker's own measurements, each with its age. So a broker knows the distances of its neighbours as well (the
two-hop view).

A measurement that differs much from the smoothed one is repeated at once: if the second confirms it, the network has
changed and the new value holds at once. Smoothing alone would take many periods to follow.
"""

from heapq import nsmallest

from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.boards import Asked, Boards, Distances, Measured, ToldDistance
from sensorgrid.overlay.events import PeerDown, RosterChanged, Routed, Woke
from sensorgrid.overlay.kernel import BrokerKernel, Notebook
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import Ping, Pong, Shifted

View = dict[PeerId, ToldDistance]

GAIN = 0.25
"""weight of a new measurement"""
CHANGED = 1.5
"""a measurement that differs by this factor is repeated"""
NOISE_S = 0.0005
"""smaller differences are ignored"""
TURNS = 8
"""periods in which all brokers outside the neighbourhood are measured once"""
FIRST_MAX = 64
"""brokers that are measured for the first time in one period"""
KNOWN_MAX = 4096
"""brokers that are remembered, besides those of the assignment"""
SHIFTS_MAX = 65_536
"""changed pairs that may wait to be looked at; trees learn of further changes in their usual period"""
MISSES_MAX = 3
"""a broker known only from others is forgotten after so many unanswered questions"""


def _other(delay_s: float, usual_s: float) -> bool:
    """Whether a delay differs from the usual one by more than noise."""
    return abs(delay_s - usual_s) > NOISE_S and not usual_s / CHANGED < delay_s < usual_s * CHANGED


def _sound(peer: PeerId, delay_s: float, hops: int | None) -> bool:
    """Whether a peer's measurement is plausible."""
    return is_broker(peer) and delay_s >= 0 and (hops is None or hops >= 0)


def _differ(before: View, after: View) -> bool:
    """Whether a view differs from the one before by more than noise."""
    if before.keys() != after.keys():
        return True
    return any(
        seen.hops != before[peer].hops or _other(seen.delay_s, before[peer].delay_s)
        for peer, seen in after.items()
    )


class Neighbourhood(Mechanism):
    """The mechanism."""

    def __init__(
        self,
        kernel: BrokerKernel,
        boards: Boards,
        distances: Distances,
        shifts: Notebook[tuple[PeerId, PeerId]] | None,
        k: int,
        measure_s: float,
    ) -> None:
        self.kernel = kernel
        self.outlets = boards.outlets
        self.distances = distances
        self.shifts = shifts
        """pairs of brokers whose first has measured a new delay, for mechanisms that listen"""
        self.k = k
        self.measure_s = measure_s
        self.listens = {
            RosterChanged: self.changed,
            Routed: self.routed,
            PeerDown: self.peer_down,
            Woke: self.woke,
        }
        self.handlers = {
            Ping: self.pinged,
            Pong: self.ponged,
            Shifted: self.shifted,
        }
        self.known: dict[PeerId, int] = {}
        """brokers known from others, with the number of questions unanswered since their last answer"""
        self._members: frozenset[PeerId] = frozenset()
        """those of the roster, which are never forgotten"""
        self._asked = distances.awaited
        self._due: Instant | None = None
        self._stale = False
        """whether the neighbourhood has to be chosen anew"""
        self._turns: dict[PeerId, Instant] = {}
        """when each of the known was asked last"""
        self._noted: dict[PeerId, float] = {}
        """own measurements when they last counted as changed: a slow drift shows by its distance from these"""
        self._looks: dict[PeerId, View] = {}
        """the same for the views of other brokers"""

    # -- others measure

    def pinged(self, peer: PeerId, message: Ping) -> None:
        """Answer, and remember the broker that asked."""
        self.kernel.send(peer, Pong(message.at, tuple(self._view())))
        self._learn(peer)

    def _view(self) -> list[tuple[PeerId, float, int | None, float]]:
        now, hops = self.kernel.now, self.distances.hops
        return [(p, m.delay_s, hops.get(p), now - m.at) for p, m in self.distances.delays.items()]

    # -- this broker measures

    def changed(self, event: RosterChanged) -> None:
        """All brokers of the roster are candidates."""
        peers = tuple(event.roster.by_id)
        self._members = frozenset(peers)
        for peer in peers:
            self._learn(peer)
        self._first()
        if self._due is None:
            # Not all at once, or the answers queue behind each other.
            self._due = self.kernel.now + self.measure_s * (0.5 + 0.5 * self.kernel.rng.random())

    def _learn(self, peer: PeerId) -> None:
        if (
            peer != self.kernel.me
            and is_broker(peer)
            and (peer in self._members or len(self.known) < KNOWN_MAX)
        ):
            self.known.setdefault(peer, 0)

    def _first(self) -> None:
        new = [
            p for p, misses in self.known.items()
            if not misses and p not in self.distances.delays and p not in self._asked
        ]  # fmt: skip
        for peer in new[:FIRST_MAX]:
            self._ping(peer)

    def _ping(self, peer: PeerId, again: float | None = None, once_more: bool = False) -> None:
        self._asked[peer] = Asked(self.kernel.now, again, peer not in self.kernel.links.up, once_more)
        self._turns[peer] = self.kernel.now
        self.kernel.send(peer, Ping(self.kernel.now))

    def ponged(self, peer: PeerId, message: Pong) -> None:
        """An answer to the latest question."""
        asked = self._asked.get(peer)
        if asked is None or asked.at != message.at:
            return
        del self._asked[peer]
        if peer in self.known:
            self.known[peer] = 0
        if asked.dialled:
            self._ping(peer, asked.again, asked.once_more)  # now it is open
        else:
            self._measured(peer, (self.kernel.now - message.at) / 2, asked.again)
        now, seen = self.kernel.now, {}
        for other, delay_s, hops, age_s in message.view[:KNOWN_MAX]:
            if _sound(other, delay_s, hops):
                seen[other] = ToldDistance(delay_s, hops, now - max(0.0, age_s))
        self._sees(peer, seen)

    def shifted(self, peer: PeerId, message: Shifted) -> None:
        """A broker whose view is known has changed its view."""
        if peer not in self.distances.views:
            return
        seen = dict(self.distances.views[peer])
        for other, delay_s, hops in message.items[:KNOWN_MAX]:
            before = seen.get(other)
            if delay_s is None:
                changed = seen.pop(other, None) is not None
            elif _sound(other, delay_s, hops) and (before is not None or len(seen) < KNOWN_MAX):
                seen[other] = ToldDistance(delay_s, hops, self.kernel.now)
                changed = before is None or before.hops != hops or _other(delay_s, before.delay_s)
            else:
                changed = False
            if changed:
                self._shift(peer, other)
        self._sees(peer, seen)

    def routed(self, event: Routed) -> None:
        """The world tells how many links lie between."""
        peer, hops = event.peer, event.hops
        if self.distances.hops.get(peer) != hops:
            self.distances.hops[peer] = hops
            self.distances.sights += 1
            self._shift(self.kernel.me, peer)

    def _shift(self, peer: PeerId, other: PeerId) -> None:
        if self.shifts is not None and len(self.shifts) < SHIFTS_MAX:
            self.shifts.note((peer, other))

    def _sees(self, peer: PeerId, seen: View) -> None:
        self.distances.views[peer] = seen
        if _differ(self._looks.get(peer, {}), seen):
            self._looks[peer] = seen
            self.distances.sights += 1
        for other in seen:
            self._learn(other)

    def _measured(self, peer: PeerId, delay_s: float, doubted: float | None) -> None:
        kernel, distances = self.kernel, self.distances
        before = distances.delays.get(peer)
        if before is None:
            distances.delays[peer] = Measured(delay_s, kernel.now)
            self._noted[peer] = delay_s
            distances.sights += 1
            self._stale = True
            return
        usual = before.delay_s
        if _other(delay_s, usual):
            if doubted is None:
                self._ping(peer, delay_s)
                return
            if _other(delay_s, doubted):
                return  # two odd ones that do not agree say nothing
            usual = delay_s
        smooth = usual + GAIN * (delay_s - usual)
        distances.delays[peer] = Measured(smooth, kernel.now)
        self._stale = True
        if _other(smooth, self._noted[peer]):
            self._noted[peer] = smooth
            distances.sights += 1
            self._shift(kernel.me, peer)

    def _gone(self, peer: PeerId) -> None:
        """A broker that stops answering leaves the neighbourhood until it answers again; it is still asked in its
        turn. One known only from others is forgotten."""
        distances = self.distances
        self._asked.pop(peer, None)
        if peer in self.known:
            self.known[peer] += 1
            if self.known[peer] >= MISSES_MAX and peer not in self._members:
                del self.known[peer]
                self._turns.pop(peer, None)
                distances.hops.pop(peer, None)
        distances.views.pop(peer, None)
        self._looks.pop(peer, None)
        self._noted.pop(peer, None)
        if distances.delays.pop(peer, None) is not None:
            distances.sights += 1
            self._shift(self.kernel.me, peer)
            self._stale = True

    def _providers(self) -> list[PeerId]:
        """The providers of this broker: a link in use is measured every period, however far it reaches."""
        supplies = (s for cells in self.outlets.supplies.values() for s in cells.values())
        fed_by = {s.path[-2] for s in supplies if s.path is not None and not s.owned}
        return sorted(fed_by & self.known.keys())

    # -- time

    def settle(self) -> bool:
        """Choose the neighbourhood."""
        if self._stale:
            self._stale = False
            delays = self.distances.delays
            self.distances.near = tuple(nsmallest(self.k, delays, key=lambda p: (delays[p].delay_s, p)))
        return False

    def peer_down(self, event: PeerDown) -> None:
        """Ask once more if a question was open, since the other side may have closed an idle connection; then give
        up."""
        peer = event.peer
        asked = self._asked.get(peer)
        if asked is None:
            return
        if asked.once_more:
            self._gone(peer)
        else:  # perhaps it was only idle for the other side
            self._ping(peer, asked.again, once_more=True)

    def next_wakeup(self) -> Instant | None:
        """The next period."""
        return self._due

    def woke(self, event: Woke) -> None:
        """Measure the neighbours, and some of the others."""
        now = self.kernel.now
        if self._due is None or self._due > now:
            return
        self._due = now + self.measure_s
        for peer in list(self._asked):
            self._gone(peer)
        self.settle()
        for peer in dict.fromkeys((*self.distances.near, *self._providers())):
            self._ping(peer)
        others = [p for p in self.known if p not in self._asked]
        count = max(1, -(-len(self.known) // TURNS))
        for peer in nsmallest(count, others, key=lambda p: self._turns.get(p, 0.0)):
            self._ping(peer)
        self._first()
