"""The broker: events in, effects out. It knows no message's meaning, only whose it is.

Each mechanism brings a table of handlers. After every event the mechanisms settle in turn until none has work
left for another, and what they have to say goes out.
"""

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.assembly import assemble
from sensorgrid.overlay.events import (
    Advised,
    Assigned,
    Batch,
    Disconnect,
    Effect,
    Event,
    PeerDown,
    PeerUp,
    Published,
    Recalled,
    Received,
    Routed,
    Stopping,
    Woke,
)
from sensorgrid.overlay.kernel import Kernel
from sensorgrid.overlay.mechanisms.liveness import Liveness
from sensorgrid.overlay.mechanisms.neighbourhood import Neighbourhood
from sensorgrid.overlay.mechanisms.news import News
from sensorgrid.overlay.mechanisms.replication import Replication
from sensorgrid.overlay.mechanisms.routing import Routing
from sensorgrid.overlay.mechanisms.streams import Streams
from sensorgrid.overlay.messages import ANYONE, Message
from sensorgrid.overlay.policies.interface import Policy
from sensorgrid.overlay.policies.relays import Relays
from sensorgrid.overlay.settings import Settings

Kind = TypeVar("Kind")


class Broker:
    """One broker, in whatever world.

    Examples
    --------
    >>> from sensorgrid.overlay.events import PeerUp
    >>> from sensorgrid.overlay.policies.interface import Never
    >>> broker = Broker(PeerId(0), Grid(), Settings(budget=1000), Never(), Random(1))
    >>> broker.handle(PeerUp(PeerId(1 << 20)), now=0.0)
    []
    """

    def __init__(
        self,
        me: PeerId,
        grid: Grid,
        settings: Settings,
        policy: Policy,
        rng: Random,
        relays: Relays | None = None,
    ) -> None:
        self.kernel = Kernel(me, grid, settings, rng)
        self.boards, self.mechanisms = assemble(self.kernel, policy, relays)
        self.streams = self._the(Streams)
        self.routing = self._the(Routing)
        self.replication = self._the(Replication)
        self.news = self._the(News)
        self.liveness = self._the(Liveness)
        self.neighbourhood = self.mechanism(Neighbourhood)
        self._handlers: dict[type, Callable[[PeerId, Any], None]] = {}
        for mechanism in self.mechanisms:
            self._handlers.update(mechanism.handlers)

    def mechanism(self, kind: type[Kind]) -> Kind | None:
        """The mechanism of a kind, if the broker has one."""
        return next((m for m in self.mechanisms if isinstance(m, kind)), None)

    def _the(self, kind: type[Kind]) -> Kind:
        found = self.mechanism(kind)
        assert found is not None
        return found

    @property
    def me(self) -> PeerId:
        """Its number."""
        return self.kernel.me

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """One event, and all that follows from it here."""
        kernel = self.kernel
        kernel.now = now
        if type(event) is Received:  # by far the most frequent
            if event.peer in kernel.links.up:
                kernel.links.up[event.peer] = now
                self._heard(event.peer, event.message)
        elif type(event) is Batch:
            self._batch(event, now)
        else:
            self._happened(event, now)
        self._settle()
        effects = kernel.effects[:]
        kernel.effects.clear()
        return effects

    def _batch(self, event: Batch, now: Instant) -> None:
        """Messages about streams follow each other without more ado; others want the work before them done."""
        for message in event.messages:
            if event.peer not in self.kernel.links.up:
                break
            if type(message) not in self.streams.handlers:
                self._settle()
            self.kernel.links.up[event.peer] = now
            self._heard(event.peer, message)

    def _heard(self, peer: PeerId, message: Message) -> None:
        if is_broker(peer) or message.said_by is ANYONE:
            self._handlers.get(type(message), _ignore)(peer, message)

    def _happened(self, event: Event, now: Instant) -> None:
        kernel = self.kernel
        match event:
            case Woke():
                for mechanism in self.mechanisms:
                    mechanism.woke()
            case PeerUp(peer):
                if peer in kernel.links.up:
                    self._down(peer)
                kernel.links.opened(peer, now)
                self.news.peer_up(peer)
            case PeerDown(peer):
                kernel.links.closed(peer)
                self._down(peer)
            case Published():
                self.streams.published(event)
            case Recalled():
                self.streams.recalled(event)
            case Stopping():
                self.streams.stop()
            case Advised():
                self.replication.advised(event)
            case Assigned():
                self.routing.assigned(event)
                self.streams.assigned(event)
                self.liveness.assigned()
                if self.neighbourhood is not None:
                    self.neighbourhood.assigned(event)
            case Routed(peer, hops):
                if self.neighbourhood is not None:
                    self.neighbourhood.routed(peer, hops)
            case _:
                raise TypeError(f"broker {self.me}: found {type(event).__name__}, expected a broker's event")

    def next_wakeup(self) -> Instant | None:
        """When `Woke` is due, if nothing else happens."""
        soonest: Instant | None = None
        for mechanism in self.mechanisms:
            due = mechanism.next_wakeup()
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    def _settle(self) -> None:
        while True:
            while self.liveness.broken:
                peer = self.liveness.broken.pop()
                self.kernel.links.closed(peer)
                self.kernel.effects.append(Disconnect(peer))
                self._down(peer)
            while self.liveness.unused:
                peer = self.liveness.unused.pop()
                self.kernel.links.close(peer)
                self.streams.peer_down(peer)
                self.liveness.peer_down(peer)
            busy = False
            for mechanism in self.mechanisms:
                busy |= mechanism.settle()
            if not busy:
                break
        self.streams.flush()

    def _down(self, peer: PeerId) -> None:
        for mechanism in self.mechanisms:
            mechanism.peer_down(peer)


def _ignore(peer: PeerId, message: Any) -> None:
    """What nobody says to a broker."""
