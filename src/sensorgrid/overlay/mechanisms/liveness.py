"""Connections: kept with neighbours, proved alive, closed when idle.

A half-open connection accepts everything and delivers nothing; only silence gives it away. So each side says
something from time to time, and a connection without a word for three such times counts as broken.
"""

from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.boards import Boards
from sensorgrid.overlay.events import Broken, PeerDown, RosterChanged, Unused, Woke
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import Alive
from sensorgrid.overlay.settings import SILENCES


class Liveness(Mechanism):
    """The mechanism."""

    def __init__(self, kernel: BrokerKernel, boards: Boards) -> None:
        self.kernel = kernel
        self.boards = boards
        self.handlers = {Alive: self.alive}
        self.listens = {
            RosterChanged: self.changed,
            PeerDown: self.peer_down,
            Unused: self.peer_down,
            Woke: self.woke,
        }
        self._due: Instant | None = None
        self.kept: dict[PeerId, None] = {}
        """peers that want their connection to stay open"""
        self._quiet: dict[PeerId, Instant] = {}
        """connections without a stream, and since when"""

    def alive(self, peer: PeerId, message: Alive) -> None:
        """Nothing to do but note whether the peer wants to keep the connection."""
        if message.keep:
            self.kept[peer] = None
        else:
            self.kept.pop(peer, None)

    def settle(self) -> bool:
        """Keep the beat going."""
        kernel = self.kernel
        if self._due is None and (kernel.links.up or self.boards.regions.peers):
            self._due = kernel.now + self._interval()
        return False

    def changed(self, event: RosterChanged) -> None:
        """New neighbours: dial them."""
        self._dial()

    def peer_down(self, event: PeerDown | Unused) -> None:
        """Dialled again at the next beat."""
        self._quiet.pop(event.peer, None)
        self.kept.pop(event.peer, None)

    def next_wakeup(self) -> Instant | None:
        """The next beat."""
        return self._due

    def woke(self, event: Woke) -> None:
        """One beat."""
        kernel = self.kernel
        if self._due is None or self._due > kernel.now:
            return
        self._due = None
        self._dial()
        alive_s = kernel.settings.alive_s
        broken: list[PeerId] = []
        unused: list[PeerId] = []
        for peer, heard in list(kernel.links.up.items()):
            if alive_s is not None and kernel.now - heard > SILENCES * alive_s:
                broken.append(peer)
                continue
            if self._wanted(peer) or peer in self.kept or not self._idle(peer):
                self._quiet.pop(peer, None)
            elif kernel.now - self._quiet.setdefault(peer, kernel.now) > kernel.settings.idle_s:
                unused.append(peer)
                continue
            if alive_s is not None:
                kernel.send(peer, Alive(self._wanted(peer)))
        for peer in reversed(broken):
            kernel.happened.put(Broken(peer))
        for peer in reversed(unused):
            kernel.happened.put(Unused(peer))

    def _dial(self) -> None:
        for peer in self.boards.regions.peers:
            if self.kernel.me < peer and peer not in self.kernel.links.up:
                self.kernel.send(peer, Alive(True))

    def _wanted(self, peer: PeerId) -> bool:
        """Whether a connection is kept though nothing flows: to neighbours on the map, and to those measured often."""
        return peer in self.boards.regions.peers or peer in self.boards.distances.near

    def _idle(self, peer: PeerId) -> bool:
        boards = self.boards
        return (
            not boards.intake.uses(peer)
            and not boards.nodes.uses(peer)
            and peer not in boards.distances.awaited
            and peer not in boards.outlets.entries
            and all(key[0] != peer for key in boards.outlets.reservations)
            and all(key[0] != peer for key in boards.requests)
        )

    def _interval(self) -> float:
        alive_s = self.kernel.settings.alive_s
        return self.kernel.settings.idle_s if alive_s is None else alive_s
