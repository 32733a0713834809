"""Free budgets and carried cells, told to those next to a broker, and with gossip passed on to everybody.

A broker tells its free budget when it has changed by a noticeable share since it was last told, and the cells that
it takes from others when they change, at most once per interval. It tells its neighbours and the brokers that it
exchanges streams with: who feeds a replica wants to know whether it has room. Each statement has a version of its
broker, so what arrives on many ways is passed on once.
"""

from collections.abc import Callable
from typing import Any

from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.messages import News as NewsMessage
from sensorgrid.overlay.state import State

Cells = tuple[tuple[int, int], ...]
"""(attribute, cell)"""


class News:
    """The mechanism."""

    def __init__(self, state: State, gossips: bool, carried: bool) -> None:
        self.state = state
        self.gossips = gossips
        self.carried = carried
        """whether it tells what it carries"""
        self.handlers: dict[type, Callable[[PeerId, Any], None]] = {NewsMessage: self.heard}
        self._version = 0
        self._told: tuple[int, Cells] | None = None
        self._pending: dict[PeerId, None] = {}
        """brokers whose news have to be passed on"""
        self._due: Instant | None = None

    def heard(self, peer: PeerId, message: NewsMessage) -> None:
        """Keep what is newer; clients have no say in this."""
        state = self.state
        if not is_broker(peer):
            return
        for broker, version, free, cells in message.items:
            known = state.free_of.get(broker)
            if broker == state.me or (known is not None and known[0] >= version):
                continue
            state.free_of[broker] = (version, free)
            self._carries(broker, cells)
            if self.gossips:
                self._pending[broker] = None

    def _carries(self, broker: PeerId, cells: Cells) -> None:
        carriers, before = self.state.carriers, self.state.carried.get(broker, ())
        cells = tuple(dict.fromkeys(cells))
        if cells == before:
            return
        self.state.carriers_version += 1
        for attribute, cell in before:
            of = carriers[attribute]
            del of[cell][broker]
            if not of[cell]:
                del of[cell]
        for attribute, cell in cells:
            carriers.setdefault(attribute, {}).setdefault(cell, {})[broker] = None
        self.state.carried[broker] = cells

    def settle(self) -> bool:
        """Plan to tell what has changed."""
        state = self.state
        if self._due is None and (self._pending or self._changed()):
            self._due = state.now + state.settings.news_s
        return False

    def _changed(self) -> bool:
        if self._told is None:
            return True
        free, cells = self._told
        outlets, settings = self.state.outlets, self.state.settings
        return abs(outlets.free - free) > settings.news_change * settings.budget or cells != self._cells()

    def _cells(self) -> Cells:
        return self.state.outlets.taken() if self.carried else ()

    def _item(self) -> tuple[PeerId, int, int, Cells]:
        # By the clock, so that a broker that has crashed and begins anew is still believed.
        self._version = max(self._version + 1, int(self.state.now * 1000))
        return (self.state.me, self._version, self.state.outlets.free, self._cells())

    def peer_up(self, peer: PeerId) -> None:
        """A newcomer hears everything."""
        if is_broker(peer):
            self.state.send(peer, NewsMessage((self._item(), *self._known(peer))))

    def _known(self, peer: PeerId) -> list[tuple[PeerId, int, int, Cells]]:
        if not self.gossips:
            return []
        state = self.state
        return [(b, v, f, state.carried.get(b, ())) for b, (v, f) in state.free_of.items() if b != peer]

    def peer_down(self, peer: PeerId) -> None:
        """Of a broker that is gone, or cannot be dialled, nothing is known, least of all that it has room.

        Newer news of it, from whomever, are welcome; so an outage of this broker's own heals by itself.
        """
        self.state.free_of.pop(peer, None)
        self._carries(peer, ())
        self._pending.pop(peer, None)

    def next_wakeup(self) -> Instant | None:
        """When it is time to tell."""
        return self._due

    def woke(self) -> None:
        """Tell those next to this broker."""
        state = self.state
        if self._due is None or self._due > state.now:
            return
        self._due = None
        items = [
            (b, *state.free_of[b], state.carried.get(b, ())) for b in self._pending if b in state.free_of
        ]
        self._pending.clear()
        if self._changed():
            item = self._item()
            self._told = item[2:]
            items.append(item)
        if not items:
            return
        message = NewsMessage(tuple(items))
        partners = (p for p in (*state.intake.sources, *state.outlets.entries) if is_broker(p))
        for peer in dict.fromkeys((*state.peers, *partners)):
            if peer in state.links.up:
                state.send(peer, message)
