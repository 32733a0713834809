"""The broker: events in, effects out. It knows no message's meaning and no mechanism's name.

Each mechanism brings its handlers of messages and events. After every event the mechanisms settle in turn until none
has work left for another, and what they have to say goes out.
"""

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.assembly import Plug, assemble
from sensorgrid.overlay.derived import Formula
from sensorgrid.overlay.events import (
    TAPS,
    Batch,
    Broken,
    BrokerEvent,
    Disconnect,
    Effect,
    Event,
    LocalEvent,
    PeerDown,
    PeerUp,
    Received,
    Unused,
)
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import ANYONE, Message
from sensorgrid.overlay.policies.interface import Policy
from sensorgrid.overlay.policies.relays import Relays
from sensorgrid.overlay.settings import Settings

Kind = TypeVar("Kind", bound=Mechanism)


class Broker:
    """One broker, in whatever world; `others` are mechanisms besides the usual ones.

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
        others: tuple[Plug, ...] = (),
        incarnation: int = 0,
        formulas: Callable[[str], Formula] | None = None,
    ) -> None:
        self.me = me
        self.kernel = BrokerKernel(me, grid, settings, rng, incarnation)
        self.boards, self.mechanisms = assemble(self.kernel, policy, relays, others, formulas)
        self._handlers: dict[type, Callable[[PeerId, Any], None]] = {}
        self._listeners: dict[type, list[Callable[[Any], None]]] = {}
        for mechanism in self.mechanisms:
            twice = self._handlers.keys() & mechanism.handlers.keys()
            assert not twice, f"{mechanism} handles {twice}, as another mechanism does"
            self._handlers.update(mechanism.handlers)
            for kind, listener in mechanism.listens.items():
                self._listeners.setdefault(kind, []).append(listener)
        self.kernel.tapped = any(tap in self._listeners for tap in TAPS)
        self._in_a_row = {kind for m in self.mechanisms if m.in_a_row for kind in m.handlers}
        self._settles = [m.settle for m in self.mechanisms if type(m).settle is not Mechanism.settle]
        self._finishes = [m.finish for m in self.mechanisms if type(m).finish is not Mechanism.finish]
        self._wakeups = [
            m.next_wakeup for m in self.mechanisms if type(m).next_wakeup is not Mechanism.next_wakeup
        ]

    def mechanism(self, kind: type[Kind]) -> Kind | None:
        """The mechanism of a kind, if the broker has one."""
        return next((m for m in self.mechanisms if isinstance(m, kind)), None)

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
        elif isinstance(event, BrokerEvent):
            self._happened(event)
        else:
            raise TypeError(f"broker {self.me}: found {type(event).__name__}, expected a broker's event")
        self._settle()
        effects = kernel.effects[:]
        kernel.effects.clear()
        return effects

    def next_wakeup(self) -> Instant | None:
        """When `Woke` is due, if nothing else happens."""
        soonest: Instant | None = None
        for next_wakeup in self._wakeups:
            due = next_wakeup()
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    def _batch(self, event: Batch, now: Instant) -> None:
        """Some messages can be handled in a row; others need the work before them to be finished first."""
        for message in event.messages:
            if event.peer not in self.kernel.links.up:
                break
            if type(message) not in self._in_a_row:
                self._settle()
            self.kernel.links.up[event.peer] = now
            self._heard(event.peer, message)

    def _heard(self, peer: PeerId, message: Message) -> None:
        if is_broker(peer) or message.said_by is ANYONE:
            self._handlers.get(type(message), _ignore)(peer, message)

    def _happened(self, event: Event | LocalEvent) -> None:
        """The kernel handles connections; mechanisms that listen hear the rest."""
        kernel = self.kernel
        match event:
            case PeerUp(peer, version):
                if peer in kernel.links.up:
                    self._tell(PeerDown(peer))
                kernel.links.opened(peer, kernel.now, version)
            case PeerDown(peer):
                kernel.links.closed(peer)
            case Broken(peer):
                kernel.links.closed(peer)
                kernel.effects.append(Disconnect(peer))
                event = PeerDown(peer)
            case Unused(peer):
                kernel.links.close(peer)
        self._tell(event)

    def _tell(self, event: Event | LocalEvent) -> None:
        for listener in self._listeners.get(type(event), ()):
            listener(event)

    def _settle(self) -> None:
        happened = self.kernel.happened
        while True:
            while happened:
                self._happened(happened.take())
            busy = False
            for settle in self._settles:
                busy |= settle()
            if not busy and not happened:
                break
        for finish in self._finishes:
            finish()


def _ignore(peer: PeerId, message: Message) -> None:
    """Messages that are never sent to a broker."""
