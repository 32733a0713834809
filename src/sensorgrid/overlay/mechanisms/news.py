"""Free budgets and carried cells, told to neighbours, and with gossip passed on to all brokers.

A broker tells its free budget when it has changed noticeably since it was last told, and the cells that it takes from
others when they change, at most once per interval. It tells its neighbours and the brokers that it exchanges streams
with: the provider of a replica needs to know whether the replica has room. Each statement carries its broker's
version, so news that arrives several times is passed on once.
"""

from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.boards import Boards, Cells, Hearsay
from sensorgrid.overlay.events import PeerDown, PeerUp, Woke
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import News

INCARNATION_BITS = 20
"""of a version that count what was told in one life of a broker"""


class NewsExchange(Mechanism):
    """The mechanism."""

    def __init__(
        self, kernel: BrokerKernel, boards: Boards, hearsay: Hearsay, gossips: bool, carried: bool
    ) -> None:
        self.kernel = kernel
        self.boards = boards
        self.hearsay = hearsay
        self.gossips = gossips
        self.carried = carried
        """whether it tells what it carries"""
        self.listens = {PeerUp: self.peer_up, PeerDown: self.peer_down, Woke: self.woke}
        self.handlers = {News: self.heard}
        # A broker that has crashed and begins anew must still be believed.
        self._version = kernel.incarnation << INCARNATION_BITS
        self._told: tuple[int, Cells] | None = None
        self._pending: dict[PeerId, None] = {}
        """brokers whose news have to be passed on"""
        self._due: Instant | None = None

    def heard(self, peer: PeerId, message: News) -> None:
        """Keep what is newer; clients have no say in this."""
        me, hearsay = self.kernel.me, self.hearsay
        if not is_broker(peer):
            return
        for broker, version, free, cells in message.items:
            known = hearsay.free_of.get(broker)
            if broker == me or (known is not None and known[0] >= version):
                continue
            hearsay.free_of[broker] = (version, free)
            hearsay.carries(broker, cells)
            if self.gossips:
                self._pending[broker] = None

    def corrected(self, peer: PeerId, free: int) -> None:
        """A broker has said what it has free, in an answer: that is more recent than its news, and is not passed
        on."""
        version = self.hearsay.free_of.get(peer, (0, 0))[0]
        self.hearsay.free_of[peer] = (version, free)

    def settle(self) -> bool:
        """Plan to tell what has changed."""
        kernel = self.kernel
        if self._due is None and (self._pending or self._changed()):
            self._due = kernel.now + kernel.settings.news_s
        return False

    def _changed(self) -> bool:
        if self._told is None:
            return True
        free, cells = self._told
        outlets, settings = self.boards.outlets, self.kernel.settings
        return abs(outlets.free - free) > settings.news_change * settings.budget or cells != self._cells()

    def _cells(self) -> Cells:
        return self.boards.outlets.taken() if self.carried else ()

    def _item(self) -> tuple[PeerId, int, int, Cells]:
        self._version += 1
        return (self.kernel.me, self._version, self.boards.outlets.free, self._cells())

    def peer_up(self, event: PeerUp) -> None:
        """A newcomer hears everything."""
        if is_broker(event.peer):
            self.kernel.send(event.peer, News((self._item(), *self._known(event.peer))))

    def _known(self, peer: PeerId) -> list[tuple[PeerId, int, int, Cells]]:
        if not self.gossips:
            return []
        carried = self.hearsay.carried
        return [(b, v, f, carried.get(b, ())) for b, (v, f) in self.hearsay.free_of.items() if b != peer]

    def peer_down(self, event: PeerDown) -> None:
        """Forget what is known of a broker that is gone or cannot be dialled, above all that it has room. Newer news
        of it is accepted from any peer, so an outage of this broker itself heals without further work.
        """
        self.hearsay.free_of.pop(event.peer, None)
        self.hearsay.carries(event.peer, ())
        self._pending.pop(event.peer, None)

    def next_wakeup(self) -> Instant | None:
        """When it is time to tell."""
        return self._due

    def woke(self, event: Woke) -> None:
        """Tell those next to this broker."""
        kernel = self.kernel
        if self._due is None or self._due > kernel.now:
            return
        self._due = None
        free_of, carried = self.hearsay.free_of, self.hearsay.carried
        items = [(b, *free_of[b], carried.get(b, ())) for b in self._pending if b in free_of]
        self._pending.clear()
        if self._changed():
            item = self._item()
            self._told = item[2:]
            items.append(item)
        if not items:
            return
        message = News(tuple(items))
        partners = (p for p in (*self.boards.intake.feeds, *self.boards.outlets.entries) if is_broker(p))
        for peer in dict.fromkeys((*self.boards.regions.peers, *partners)):
            if peer in kernel.links.up:
                kernel.send(peer, message)
