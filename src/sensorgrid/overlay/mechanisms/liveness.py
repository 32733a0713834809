"""Connections: kept with neighbours, proved alive, closed when idle.

A half-open connection accepts everything and delivers nothing; only silence gives it away. So each side says
something from time to time, and a connection without a word for three such times counts as broken.
"""

from collections.abc import Callable
from typing import Any

from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.messages import Alive
from sensorgrid.overlay.settings import SILENCES
from sensorgrid.overlay.state import State


class Liveness:
    """The mechanism."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.handlers: dict[type, Callable[[PeerId, Any], None]] = {Alive: self.alive}
        self.broken: list[PeerId] = []
        """connections that this broker gives up: the broker tells the other mechanisms"""
        self.unused: list[PeerId] = []
        """connections that nobody needs; the peer is well"""
        self._due: Instant | None = None
        self.kept: dict[PeerId, None] = {}
        """peers that want their connection to stay open"""
        self._quiet: dict[PeerId, Instant] = {}
        """connections without a stream, and since when"""

    def alive(self, peer: PeerId, message: Alive) -> None:
        """Hearing it was all, but for whether the peer wants to keep the connection."""
        if message.keep:
            self.kept[peer] = None
        else:
            self.kept.pop(peer, None)

    def settle(self) -> bool:
        """Keep the beat going."""
        state = self.state
        if self._due is None and (state.links.up or state.peers):
            self._due = state.now + self._interval()
        return False

    def assigned(self) -> None:
        """New neighbours: dial them."""
        self._dial()

    def peer_down(self, peer: PeerId) -> None:
        """Dialled again at the next beat."""
        self._quiet.pop(peer, None)
        self.kept.pop(peer, None)

    def next_wakeup(self) -> Instant | None:
        """The next beat."""
        return self._due

    def woke(self) -> None:
        """One beat."""
        state = self.state
        if self._due is None or self._due > state.now:
            return
        self._due = None
        self._dial()
        alive_s = state.settings.alive_s
        for peer, heard in list(state.links.up.items()):
            if alive_s is not None and state.now - heard > SILENCES * alive_s:
                self.broken.append(peer)
                continue
            if self._wanted(peer) or peer in self.kept or not self._idle(peer):
                self._quiet.pop(peer, None)
            elif state.now - self._quiet.setdefault(peer, state.now) > state.settings.idle_s:
                self.unused.append(peer)
                continue
            if alive_s is not None:
                state.send(peer, Alive(self._wanted(peer)))

    def _dial(self) -> None:
        for peer in self.state.peers:
            if self.state.me < peer and peer not in self.state.links.up:
                self.state.send(peer, Alive(True))

    def _wanted(self, peer: PeerId) -> bool:
        """Whether a connection is kept though nothing flows: to neighbours on the map, and to those measured often."""
        return peer in self.state.peers or peer in self.state.near

    def _idle(self, peer: PeerId) -> bool:
        state = self.state
        return (
            not state.intake.uses(peer)
            and peer not in state.asked
            and peer not in state.outlets.entries
            and all(key[0] != peer for key in state.reservations)
            and all(key[0] != peer for key in state.waiting)
        )

    def _interval(self) -> float:
        alive_s = self.state.settings.alive_s
        return self.state.settings.idle_s if alive_s is None else alive_s
