"""Free budgets, told to neighbours, and with gossip passed on to everybody.

A broker tells its free budget when it has changed by a noticeable share since it was last told, at most once per
interval. Each statement has a version of its broker, so what arrives on many ways is passed on once.
"""

from collections.abc import Callable
from typing import Any

from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.messages import News as NewsMessage
from sensorgrid.overlay.state import State


class News:
    """The mechanism."""

    def __init__(self, state: State, gossips: bool) -> None:
        self.state = state
        self.gossips = gossips
        self.handlers: dict[type, Callable[[PeerId, Any], None]] = {NewsMessage: self.heard}
        self._version = 0
        self._told: int | None = None
        self._pending: dict[PeerId, None] = {}
        """brokers whose news have to be passed on"""
        self._due: Instant | None = None

    def heard(self, peer: PeerId, message: NewsMessage) -> None:
        """Keep what is newer."""
        state = self.state
        for broker, version, free in message.items:
            known = state.free_of.get(broker)
            if broker == state.me or (known is not None and known[0] >= version):
                continue
            state.free_of[broker] = (version, free)
            if self.gossips:
                self._pending[broker] = None

    def settle(self) -> bool:
        """Plan to tell what has changed."""
        state = self.state
        if self._due is None and (self._pending or self._changed()):
            self._due = state.now + state.settings.news_s
        return False

    def _changed(self) -> bool:
        free = self.state.outlets.free
        return (
            self._told is None
            or abs(free - self._told) > self.state.settings.news_change * self.state.settings.budget
        )

    def peer_up(self, peer: PeerId) -> None:
        """A newcomer hears everything."""
        if peer in self.state.peers:
            self._version += 1
            self._told = self.state.outlets.free
            known = [(b, v, f) for b, (v, f) in self.state.free_of.items() if self.gossips and b != peer]
            self.state.send(peer, NewsMessage(((self.state.me, self._version, self._told), *known)))

    def peer_down(self, peer: PeerId) -> None:
        """Of a neighbour that is gone nothing is known, least of all that it has room."""
        self.state.free_of.pop(peer, None)
        self._pending.pop(peer, None)

    def next_wakeup(self) -> Instant | None:
        """When it is time to tell."""
        return self._due

    def woke(self) -> None:
        """Tell the neighbours."""
        state = self.state
        if self._due is None or self._due > state.now:
            return
        self._due = None
        items = [(b, *state.free_of[b]) for b in self._pending if b in state.free_of]
        self._pending.clear()
        if self._changed():
            self._version += 1
            self._told = state.outlets.free
            items.append((state.me, self._version, self._told))
        for peer in state.peers:
            if peer in state.links.up and items:
                state.send(peer, NewsMessage(tuple(items)))
