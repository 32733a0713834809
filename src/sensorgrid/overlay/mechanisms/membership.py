"""The roster that this broker holds, and how it spreads: the newest version replaces all others.

A broker learns a roster from outside (`Learned`) or from a peer (`Told`). A newer roster replaces its own. The other
mechanisms hear of it (`RosterChanged`), and the broker passes it on to all connected peers, clients included, and to
its neighbours on the map. A broker that was away hears of it when it connects: both ends say which roster they hold,
and the one that is ahead tells the other. The first version is never mentioned, because every broker starts with it. A
broker refuses to talk to a peer that holds a different roster of the same version or has other terms, or that sends an
invalid roster (`Roster.fault`).
"""

from sensorgrid.model.ids import PeerId, is_broker
from sensorgrid.overlay.boards import HeldRoster
from sensorgrid.overlay.events import Adopted, Broken, Learned, Outdated, PeerUp, RosterChanged
from sensorgrid.overlay.faces import RegionsFace
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import Holds, Told
from sensorgrid.overlay.roster import Roster


class Membership(Mechanism):
    """The mechanism."""

    def __init__(self, kernel: BrokerKernel, held: HeldRoster, regions: RegionsFace) -> None:
        self.kernel = kernel
        self.held = held
        self.regions = regions
        self.listens = {
            Learned: self.learned,
            PeerUp: self.peer_up,
            RosterChanged: self.changed,
            Outdated: self.outdated,
        }
        self.handlers = {Holds: self.holds, Told: self.told}

    def learned(self, event: Learned) -> None:
        """A roster comes from outside."""
        self._adopt(event.roster)

    def told(self, peer: PeerId, message: Told) -> None:
        """A broker tells."""
        if message.version < 1 or self._adopt(message.roster()):
            return
        roster, mine = message.roster(), self.held.current
        if roster.newer_than(mine) and (mine is None or roster.terms == mine.terms):
            self.kernel.happened.put(Broken(peer))  # it has a fault
        else:
            self._compare(peer, roster.version, roster.digest)

    def holds(self, peer: PeerId, message: Holds) -> None:
        """A peer says which roster it holds: send it a newer one, or ask for its own."""
        mine = self.held.current
        if mine is not None and message.version < mine.version:
            self.kernel.send(peer, Told.of(mine))
        elif mine is None or message.version > mine.version:
            if is_broker(peer):
                self._say(peer)
        else:
            self._compare(peer, message.version, message.digest)

    def _compare(self, peer: PeerId, version: int, digest: str) -> None:
        mine = self.held.current
        if mine is not None and version == mine.version and digest != mine.digest:
            self.kernel.happened.put(Broken(peer))

    def _adopt(self, roster: Roster) -> bool:
        before = self.held.current
        if before is not None and (not roster.newer_than(before) or roster.terms != before.terms):
            return False
        if roster.fault(self.kernel.grid, before):
            return False
        self.held.current = roster
        self.kernel.happened.put(RosterChanged(before, roster))
        if before is not None:
            self.kernel.have(Adopted(roster))
            # First of all those who get a region from here: what follows for them rests on it.
            lost = {(r.attribute, r.cell) for r in before.by_owner.get(self.kernel.me, ())}
            heirs = (r.owner for r in roster.regions if (r.attribute, r.cell) in lost)
            known = dict.fromkeys((*heirs, *self.kernel.links.up, *self.regions.peers))
            message = Told.of(roster)
            for peer in known:
                if peer != self.kernel.me:
                    self.kernel.send(peer, message)
        return True

    def changed(self, event: RosterChanged) -> None:
        """Tell the neighbours that the new roster brought."""
        if event.before is not None:
            for peer in self.regions.peers:
                if peer not in self.kernel.links.up and peer not in self.kernel.links.dialling:
                    self.kernel.send(peer, Told.of(event.roster))

    def peer_up(self, event: PeerUp) -> None:
        """Say which roster is held here, unless it is the first version."""
        if self.held.current is not None and self.held.current.version > 1:
            self._say(event.peer)

    def outdated(self, event: Outdated) -> None:
        """Ask the peers: one that holds a newer roster tells it."""
        for peer in self.kernel.links.up:
            if is_broker(peer):
                self._say(peer)

    def _say(self, peer: PeerId) -> None:
        mine = self.held.current
        self.kernel.send(peer, Holds(0, "") if mine is None else Holds(mine.version, mine.digest))
