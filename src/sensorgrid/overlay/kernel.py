"""What all mechanisms of a broker have in common and none of them owns.

The kernel holds the broker's identity, grid and settings, the time, the random numbers, the connections, and the
effects. A mechanism that has work for another leaves it in an `Inbox` or a `Notebook`, which the other reads when it
settles. Shared facts lie on boards (`boards.py`, `outlets.py`), each written by one mechanism.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from sensorgrid.index.layout import layout_of
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.events import Connect, Disconnect, Effect, LocalEvent, Send
from sensorgrid.overlay.messages import VERSION, Message
from sensorgrid.overlay.settings import Settings

PENDING_MAX = 10_000
"""messages that may wait for a connection to open"""

Item = TypeVar("Item")
Note = TypeVar("Note", bound=Hashable)


class Inbox(deque[Item]):
    """Work for one mechanism, which takes it out in the order in which others put it in."""

    def put(self, item: Item) -> None:
        """Leave some."""
        self.append(item)

    def take(self) -> Item:
        """Take out the oldest; for the reader."""
        return self.popleft()


class Notebook(dict[Note, None]):
    """What has changed, for one mechanism to look at: each thing once, in the order of its first change."""

    def note(self, note: Note) -> None:
        """Something has changed."""
        self[note] = None

    def strike(self, note: Note) -> None:
        """Strike a note, if it is there."""
        self.pop(note, None)

    def take(self) -> dict[Note, None]:
        """Take out all notes; for the reader."""
        notes = dict(self)
        self.clear()
        return notes


class Links:
    """Connections: open, being dialled, or not there; messages wait while one is dialled."""

    def __init__(self, effects: list[Effect]) -> None:
        self.effects = effects
        self.up: dict[PeerId, Instant] = {}
        """open connections, and when a message last came"""
        self.versions: dict[PeerId, int] = {}
        """of the wire that is spoken on open connections, where it is not the newest"""
        self.dialling: dict[PeerId, list[Message]] = {}

    def send(self, peer: PeerId, message: Message) -> None:
        """Send, dialling first if need be. What does not fit is lost, as on a broken connection."""
        if peer in self.up:
            if self.understands(peer, message):
                self.effects.append(Send(peer, message))
            return
        queue = self.dialling.get(peer)
        if queue is None:
            queue = self.dialling[peer] = []
            self.effects.append(Connect(peer))
        if len(queue) < PENDING_MAX:
            queue.append(message)

    def understands(self, peer: PeerId, message: Message) -> bool:
        """Whether a peer speaks a version that has this message; unknown while the peer is being dialled."""
        return not self.versions or message.since <= self.versions.get(peer, VERSION)

    def opened(self, peer: PeerId, now: Instant, version: int = VERSION) -> None:
        """A connection is open; both ends speak this version."""
        self.up[peer] = now
        self.versions.pop(peer, None)
        if version < VERSION:
            self.versions[peer] = version
        for message in self.dialling.pop(peer, ()):
            if self.understands(peer, message):
                self.effects.append(Send(peer, message))

    def closed(self, peer: PeerId) -> None:
        """A connection is gone, or could not be made."""
        self.up.pop(peer, None)
        self.versions.pop(peer, None)
        self.dialling.pop(peer, None)

    def close(self, peer: PeerId) -> None:
        """Close one on purpose."""
        if peer in self.up or peer in self.dialling:
            self.closed(peer)
            self.effects.append(Disconnect(peer))


@dataclass(slots=True)
class Counters:
    """What a broker has done, for operators and experiments."""

    messages: dict[str, int] = field(default_factory=dict)
    """sent, by kind"""
    masked_points: int = 0
    """values masked by a value range"""
    delegations: int = 0
    """decisions to move load"""
    evictions: int = 0
    """receivers that gave their slot to a broker"""


class BrokerKernel:
    """Of one broker."""

    def __init__(self, me: PeerId, grid: Grid, settings: Settings, rng: Random, incarnation: int = 0) -> None:
        self.me = me
        self.incarnation = incarnation
        """larger than in any earlier life of this broker, so that others accept what it says after a restart"""
        self.grid = grid
        self.settings = settings
        self.rng = rng
        self.now: Instant = 0.0
        self.effects: list[Effect] = []
        """what follows from the present event, in order"""
        self.links = Links(self.effects)
        self.digits = min(settings.depth, layout_of(grid).digits)
        """digits of the longest cell that a receiver may ask for"""
        self.counters = Counters()
        self.happened: Inbox[LocalEvent] = Inbox()
        """events that mechanisms report; the broker passes them on before it lets mechanisms settle"""
        self.tapped = False
        """whether a mechanism listens to what becomes of supplies"""

    def have(self, effect: Effect) -> None:
        """Have the world do something."""
        self.effects.append(effect)

    def send(self, peer: PeerId, message: Message) -> None:
        """Send a message and count it by kind. Receivers dial, so an answer to a peer that is gone is dropped."""
        links = self.links
        if peer not in links.up and peer not in links.dialling and not message.dials:
            return
        if not links.understands(peer, message):
            return
        kind = type(message).__name__
        counts = self.counters.messages
        counts[kind] = counts.get(kind, 0) + 1
        links.send(peer, message)
