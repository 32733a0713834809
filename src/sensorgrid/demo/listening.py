"""The demo's clients: each stays at the broker that it dialled, as a client behind a firewall must.

Clients that may dial anybody fetch from the gateways themselves, and nothing flows between brokers. These take
everything from their target broker, so brokers relay to each other, and sharing can be seen.
"""

import time
from collections.abc import Callable
from random import Random

from sensorgrid.configuration.network import Network
from sensorgrid.demo.stage import Guest
from sensorgrid.demo.tally import Mask, Tally
from sensorgrid.links import wire
from sensorgrid.links.driver import Driver
from sensorgrid.model.ids import BROKERS_MAX, PeerId, QueryId
from sensorgrid.overlay.events import Deliver, Effect, Reply, Submitted
from sensorgrid.overlay.session import Session

TRIES, TRY_AGAIN_S = 5, 1.0
_QUERY = QueryId(1)


class DemoClient:
    """One client: a query, its stream, and a tally of it."""

    def __init__(
        self,
        guest: Guest,
        place: int,
        network: Network,
        away: Mask,
        on_tick: Callable[["DemoClient", int], None],
        on_reply: Callable[["DemoClient", str, str], None],
    ) -> None:
        self.guest = guest
        self.place = place
        """in the audience"""
        self.tally = Tally(network.grid, guest.query, away)
        self.state = "waits"
        """what became of its query, in the network's words"""
        self._on_tick, self._on_reply = on_tick, on_reply
        self._start = self._tries = 0
        hello = wire.Hello(wire.VERSIONS, wire.CLIENT, grid=network.roster.terms.grid)
        settings = network.roster.terms.settings()
        session = Session(
            PeerId(BROKERS_MAX),
            network.grid,
            settings,
            (guest.broker,),
            Random(f"client {place}"),
            roams=False,
        )
        self.driver = Driver(
            session,
            hello=lambda: hello,
            address_of=network.roster.url_of,
            on_effect=self._effect,
        )

    def listen(self, start: int) -> None:
        """Pose the query, from a tick on."""
        self._start = start
        self.driver.feed(Submitted(_QUERY, self.guest.query, start))

    async def stop(self) -> None:
        """Hang up."""
        await self.driver.stop()

    def _effect(self, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            if effect.slabs is None:
                self.tally.gaps += 1
            elif self.tally.deliver(
                effect.attribute, effect.tick, effect.revision, effect.slabs, time.time()
            ):
                self._on_tick(self, effect.tick)
        elif isinstance(effect, Reply):
            self.state = effect.status
            self._on_reply(self, effect.status, effect.reason)
            if effect.status == "refused" and not self.tally.delivered and self._tries < TRIES:
                self._tries += 1  # on a busy machine a connection may break while it is being made
                self.driver.loop.call_later(TRY_AGAIN_S, self.listen, self._start)
