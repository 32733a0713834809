"""Hands that are so far away: a lone broker whose peers answer its pings in time, and say what they see."""

from heapq import heappop, heappush
from typing import Any

from hands import LoneBroker
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.events import Connect, Effect, Event, Routed, Send
from sensorgrid.overlay.mechanisms.neighbourhood import Neighbourhood
from sensorgrid.overlay.messages import Ping, Pong
from sensorgrid.overlay.policies.relays import Relays

View = dict[int, float]


class Surveyor(LoneBroker):
    """Broker 0 with relays; the brokers in `far` are open to it and answer, others have to be played."""

    def __init__(
        self,
        far: View,
        relays: Relays,
        views: dict[int, View] | None = None,
        links: dict[tuple[int, int], int] | None = None,
        **more: Any,
    ) -> None:
        self.far = dict(far)
        """delay one way in seconds; who is not in it is silent"""
        self.views = views or {}
        """what each of them sees"""
        self.links = links or {}
        """links of routers between two brokers, where the world can tell"""
        self.pongs: list[tuple[float, int, Pong]] = []
        """answers on their way, the next first"""
        self._ready = False
        super().__init__(relays=relays, brokers=tuple(far), **more)
        for (one, other), count in self.links.items():
            if one == 0:
                self.feed(Routed(PeerId(other), count))

    def feed(self, event: Event) -> list[Effect]:
        """One event; pings that follow from it will be answered."""
        if not self._ready:  # before anything else, connections are open
            self._ready = True
            self.up(*self.far)
        effects = super().feed(event)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Ping) and effect.peer in self.far:
                way = self.far[effect.peer]
                answer = self.pong(effect.peer, effect.message)
                heappush(self.pongs, (self.now + 2 * way, effect.peer, answer))
        return effects

    def pong(self, peer: int, ping: Ping) -> Pong:
        """How a peer answers."""
        view = tuple(
            (PeerId(other), delay_s, self.links.get((peer, other)), 1.0)
            for other, delay_s in self.views.get(peer, {}).items()
        )
        return Pong(ping.at, view)

    def wait(self, seconds: float) -> list[Effect]:
        """Time passes; answers come when they do."""
        until, found = self.now + seconds, []
        while True:
            wake = self.actor.next_wakeup()
            step = until if wake is None else min(until, max(wake, self.now))
            if self.pongs and self.pongs[0][0] <= step:
                when, peer, pong = heappop(self.pongs)
                self.now = max(self.now, when)
                found += self.say(peer, pong)
                continue
            found += super().wait(step - self.now)
            self.now = step
            if step == until and not (self.pongs and self.pongs[0][0] <= until):
                return found

    def period(self) -> list[Effect]:
        """Until the neighbours are measured again; their answers are still to come."""
        due = self.mechanism(Neighbourhood).next_wakeup()
        assert due is not None
        return self.wait(due - self.now)

    def delay(self, peer: int) -> float | None:
        """What it believes."""
        measured = self.boards.distances.delays.get(PeerId(peer))
        return None if measured is None else measured.delay_s


def pinged(effects: list[Effect]) -> list[int]:
    """Who is measured, in order; those who must be dialled first included."""
    return [
        e.peer
        for e in effects
        if isinstance(e, Connect) or (isinstance(e, Send) and isinstance(e.message, Ping))
    ]
