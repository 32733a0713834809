"""A client's side of derived streams: it asks the nearest broker, and the next one if that is gone.

The broker passes the stream on from its home, so a client knows nothing of the tree behind it.
"""

from typing import Protocol

from sensorgrid.model.ids import Instant, PeerId, QueryId
from sensorgrid.overlay.derived import HELD_MAX, Derive, Derived, Relinquish, StreamName, Underived
from sensorgrid.overlay.events import Calculated, Effect, Reply, Watched
from sensorgrid.overlay.kernel import Links
from sensorgrid.overlay.messages import Why
from sensorgrid.overlay.roster import Roster
from sensorgrid.overlay.settings import Settings


class WatchingClient(Protocol):
    """The client, as far as it matters here."""

    now: Instant
    settings: Settings
    effects: list[Effect]
    links: Links
    brokers: tuple[PeerId, ...]


class Watch:
    """One stream that a client watches."""

    __slots__ = ("attempts", "due", "first", "heard", "held", "name", "provider", "query", "text")

    def __init__(self, query: QueryId, name: StreamName, text: str, first: int) -> None:
        self.query = query
        self.name = name
        self.text = text
        self.first = first
        self.provider: PeerId | None = None
        self.held: dict[int, int] = {}
        """weight of the ticks that came, the newest ones"""
        self.heard = False
        """whether a tick has come"""
        self.attempts = 0
        self.due: Instant | None = None
        """when it is asked for again"""


class Watching:
    """All streams that a client watches."""

    def __init__(self, client: WatchingClient) -> None:
        self.client = client
        self.watches: dict[QueryId, Watch] = {}
        self._named: dict[StreamName, dict[QueryId, Watch]] = {}
        """the same by stream"""

    def uses(self, peer: PeerId) -> bool:
        """Whether a stream is taken from a peer."""
        return any(watch.provider == peer for watch in self.watches.values())

    def watch(self, event: Watched) -> None:
        """Begin."""
        watch = self.watches[event.query] = Watch(event.query, event.name, event.text, event.first)
        self._named.setdefault(event.name, {})[event.query] = watch
        self._ask(watch)

    def end(self, query: QueryId) -> bool:
        """Watch a stream no longer; whether it was watched."""
        if query not in self.watches:
            return False
        watch = self._forget(query)
        others = self._named.get(watch.name, {}).values()
        if watch.provider is not None and all(other.provider != watch.provider for other in others):
            self.client.links.send(watch.provider, Relinquish(watch.name))
        return True

    def _forget(self, query: QueryId) -> Watch:
        watch = self.watches.pop(query)
        same = self._named[watch.name]
        del same[query]
        if not same:
            del self._named[watch.name]
        return watch

    def came(self, peer: PeerId, message: Derived) -> None:
        """A tick."""
        for watch in self._named.get(message.name, {}).values():
            if watch.provider != peer or message.tick < watch.first:
                continue
            watch.attempts = 0
            if not watch.heard:
                watch.heard = True
                self.client.effects.append(Reply(watch.query, "admitted"))
            if message.weight > watch.held.get(message.tick, -1):
                watch.held[message.tick] = message.weight
                while len(watch.held) > HELD_MAX:
                    del watch.held[min(watch.held)]
                revision = message.weight - message.blocks
                self.client.effects.append(Calculated(watch.query, message.tick, revision, message.numbers))

    def refused(self, peer: PeerId, message: Underived) -> None:
        """A broker does not give a stream."""
        for watch in list(self._named.get(message.name, {}).values()):
            if watch.provider == peer:
                if message.code == Why.SENSELESS:
                    self._forget(watch.query)
                    self.client.effects.append(Reply(watch.query, "refused", message.reason, Why.SENSELESS))
                else:
                    self._later(watch)

    def peer_down(self, peer: PeerId) -> None:
        """A connection broke, or could not be made."""
        for watch in self.watches.values():
            if watch.provider == peer:
                self._later(watch)

    def succeeded(self, roster: Roster) -> None:
        """Brokers that are no members any more are left."""
        for watch in self.watches.values():
            if watch.provider is not None and watch.provider not in roster.by_id:
                self.client.links.send(watch.provider, Relinquish(watch.name))
                self._later(watch)

    def woke(self) -> None:
        """Ask again for what is due."""
        for watch in self.watches.values():
            if watch.due is not None and watch.due <= self.client.now:
                watch.due = None
                self._ask(watch)

    def next_wakeup(self) -> Instant | None:
        """When something is asked for again."""
        return min((watch.due for watch in self.watches.values() if watch.due is not None), default=None)

    def _ask(self, watch: Watch) -> None:
        brokers = self.client.brokers
        watch.provider = brokers[watch.attempts % len(brokers)]
        held = tuple(sorted(watch.held.items()))
        self.client.links.send(watch.provider, Derive(watch.name, watch.text, watch.first, held))

    def _later(self, watch: Watch) -> None:
        """Another broker, at once; after all of them were tried in vain, later and later."""
        settings, brokers = self.client.settings, self.client.brokers
        watch.attempts = min(watch.attempts + 1, 1_000)
        rounds = watch.attempts // max(1, len(brokers))
        wait = settings.backoff_s * (2 ** min(rounds, 10) if rounds else 0.1)
        watch.provider = None
        watch.due = self.client.now + min(wait, settings.backoff_max_s)
