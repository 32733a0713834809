"""Connections: kept with neighbours, proved alive, closed when idle.

A half-open connection accepts everything and delivers nothing; only silence gives it away. So each side says
something from time to time, and a connection without a word for three such times counts as broken.
"""

from collections.abc import Callable
from typing import Any

from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.messages import Alive
from sensorgrid.overlay.state import State

SILENCES = 3
"""intervals without a word after which a connection is broken"""


class Liveness:
    """The mechanism."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.handlers: dict[type, Callable[[PeerId, Any], None]] = {Alive: self.alive}
        self.broken: list[PeerId] = []
        """connections that this broker gives up: the broker tells the other mechanisms"""
        self._due: Instant | None = None

    def alive(self, peer: PeerId, message: Alive) -> None:
        """Hearing it was all."""

    def settle(self) -> bool:
        """Dial neighbours that are not connected; the one with the smaller number dials."""
        state = self.state
        if self._due is None and (state.links.up or state.peers):
            self._due = state.now + self._interval()
        return False

    def assigned(self) -> None:
        """New neighbours: dial them."""
        self._dial()

    def peer_down(self, peer: PeerId) -> None:
        """Dialled again at the next beat."""

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
            elif peer not in state.peers and self._idle(peer) and state.now - heard > state.settings.idle_s:
                state.links.close(peer)
            elif alive_s is not None:
                state.send(peer, Alive())

    def _dial(self) -> None:
        for peer in self.state.peers:
            if self.state.me < peer and peer not in self.state.links.up:
                self.state.send(peer, Alive())

    def _idle(self, peer: PeerId) -> bool:
        state = self.state
        return (
            not state.intake.uses(peer)
            and peer not in state.outlets.entries
            and all(key[0] != peer for key in state.reservations)
        )

    def _interval(self) -> float:
        alive_s = self.state.settings.alive_s
        return self.state.settings.idle_s if alive_s is None else alive_s
