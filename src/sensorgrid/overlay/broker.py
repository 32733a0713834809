"""The broker: events in, effects out. It knows no message's meaning, only whose it is.

Each mechanism brings a table of handlers. After every event the mechanisms settle in turn until none has work
left for another, and what they have to say goes out.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Protocol

from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import Instant, PeerId, is_broker
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
from sensorgrid.overlay.mechanisms.liveness import Liveness
from sensorgrid.overlay.mechanisms.neighbourhood import Neighbourhood
from sensorgrid.overlay.mechanisms.news import News
from sensorgrid.overlay.mechanisms.relaying import Relaying
from sensorgrid.overlay.mechanisms.replication import Replication
from sensorgrid.overlay.mechanisms.routing import Routing
from sensorgrid.overlay.mechanisms.streams import Streams
from sensorgrid.overlay.mechanisms.trees import Trees
from sensorgrid.overlay.messages import ANYONE, Message
from sensorgrid.overlay.policies.interface import Policy
from sensorgrid.overlay.policies.relays import DIRECT, TREE, Relays
from sensorgrid.overlay.settings import Settings
from sensorgrid.overlay.state import State


class Mechanism(Protocol):
    """A part of what a broker does."""

    @property
    def handlers(self) -> Mapping[type, Callable[[PeerId, Any], None]]:
        """Its messages."""

    def settle(self) -> bool:
        """Do what others left for it; whether others may have something to do now."""

    def peer_down(self, peer: PeerId) -> None:
        """A connection is gone."""

    def next_wakeup(self) -> Instant | None:
        """When it has to be woken."""

    def woke(self) -> None:
        """Time has passed."""


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
        self.state = State(me, grid, settings, rng)
        self.streams = Streams(self.state)
        self.routing = Routing(self.state, policy.forwards)
        self.replication = Replication(self.state, policy)
        self.news = News(self.state, policy.gossips, policy.forwards)
        self.liveness = Liveness(self.state)
        self.mechanisms: tuple[Mechanism, ...] = (
            self.streams,
            self.routing,
            self.replication,
            self.news,
            self.liveness,
        )
        self.neighbourhood: Neighbourhood | None = None
        self.trees: Trees | None = None
        self.state.asks_owners = relays is not None
        if relays is not None and relays.strategy != DIRECT:
            self.neighbourhood = Neighbourhood(self.state, relays.k, relays.measure_s)
            if relays.strategy == TREE:
                self.trees = Trees(self.state, relays)
            relaying = self.trees or Relaying(self.state, relays)
            self.mechanisms = (*self.mechanisms, self.neighbourhood, relaying)
        self._handlers: dict[type, Callable[[PeerId, Any], None]] = {}
        for mechanism in self.mechanisms:
            self._handlers.update(mechanism.handlers)

    @property
    def me(self) -> PeerId:
        """Its number."""
        return self.state.me

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """One event, and all that follows from it here."""
        state = self.state
        state.now = state.intake.now = now
        if type(event) is Received:  # by far the most frequent
            if event.peer in state.links.up:
                state.links.up[event.peer] = now
                self._heard(event.peer, event.message)
        elif type(event) is Batch:
            self._batch(event, now)
        else:
            self._happened(event, now)
        self._settle()
        effects = state.effects[:]
        state.effects.clear()
        return effects

    def _batch(self, event: Batch, now: Instant) -> None:
        """Messages about streams follow each other without more ado; others want the work before them done."""
        for message in event.messages:
            if event.peer not in self.state.links.up:
                break
            if type(message) not in self.streams.handlers:
                self._settle()
            self.state.links.up[event.peer] = now
            self._heard(event.peer, message)

    def _heard(self, peer: PeerId, message: Message) -> None:
        if is_broker(peer) or message.said_by is ANYONE:
            self._handlers.get(type(message), _ignore)(peer, message)

    def _happened(self, event: Event, now: Instant) -> None:
        state = self.state
        match event:
            case Woke():
                for mechanism in self.mechanisms:
                    mechanism.woke()
            case PeerUp(peer):
                if peer in state.links.up:
                    self._down(peer)
                state.links.opened(peer, now)
                self.news.peer_up(peer)
            case PeerDown(peer):
                state.links.closed(peer)
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
                self.state.links.closed(peer)
                self.state.effects.append(Disconnect(peer))
                self._down(peer)
            while self.liveness.unused:
                peer = self.liveness.unused.pop()
                self.state.links.close(peer)
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
