"""Small networks for tests: hosts of real brokers on loopback in one loop, clients over the driver, a publisher."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from idle_time import run_in_idle_time
from sensorgrid.configuration.network import Network, network_of
from sensorgrid.links import wire
from sensorgrid.links.driver import Driver, Peer, Tap, greet
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import BROKERS_MAX, PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay.codec import encode
from sensorgrid.overlay.events import Cancelled, Deliver, Effect, Reply, Send, Spread, Submitted
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.roster import Terms
from sensorgrid.overlay.session import Session
from sensorgrid.runtime.host import Host
from servers import PATIENCE_S, free_port

HELLO = wire.Hello(wire.VERSIONS, wire.CLIENT)
GRID = {"shape": [64, 32], "resolution_bits": 2, "region_digits": 2, "tick": 1.0}


async def until(condition: Callable[[], Any], what: str, deadline_s: float = PATIENCE_S) -> Any:
    """What the condition gives, as soon as it gives anything."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not (got := condition()):
        assert loop.time() < end, f"waited {deadline_s} s for {what}"
        await asyncio.sleep(0.01)
    return got


def network(folder: Path, brokers: int = 4, grid: dict[str, Any] | None = None, **options: Any) -> Network:
    """Brokers on free ports."""
    tables = [{"id": n, "url": f"ws://127.0.0.1:{free_port()}"} for n in range(brokers)]
    content = {"lake": "lake", "grid": GRID | (grid or {}), "network": {"brokers": tables} | options}
    return network_of(content, "test", folder)


def patient(network: Network) -> Network:
    """The same with brokers and clients that wait long for each other: what is slow is not taken for broken."""
    slow = replace(network.settings, patience_s=PATIENCE_S, path_patience_s=PATIENCE_S, alive_s=PATIENCE_S)
    return replace(network, settings=slow, roster=replace(network.roster, terms=Terms.of(network.grid, slow)))


def truth(grid: Grid, attribute: int, tick: int) -> np.ndarray:
    """Values of the whole grid that differ from point to point, tick to tick, attribute to attribute."""
    y, x = np.indices((grid.shape[1], grid.shape[0]))
    return (x + 100.0 * y + 10_000.0 * (tick % 97) + attribute / 4).astype(np.float32)


class Client:
    """A session over the driver that notes what it gets."""

    def __init__(self, welcome: wire.Welcome, roams: bool = True) -> None:
        self.grid = wire.grid_from(welcome.grid)
        roster = wire.roster_of(welcome)
        others = tuple(n for n in roster.by_id if n != welcome.id)
        entries = (PeerId(welcome.id), *(others if roams else ()))
        settings = roster.terms.settings()
        self.session = Session(PeerId(BROKERS_MAX), self.grid, settings, entries, Random(1), roams, roster)
        self.driver = Driver(
            self.session,
            hello=lambda: HELLO,
            address_of=lambda peer: (self.session.roster or roster).url_of(peer),
            on_effect=self._effect,
        )
        self.ticks: dict[tuple[QueryId, int], dict[int, np.ndarray]] = {}
        """by query and attribute: tick, values with blanks where nothing came"""
        self.doubled = 0
        self.silent_s: dict[int, set[float | None]] = {}
        """by tick, what its blocks say of observations"""
        self.gaps: list[tuple[int, int]] = []
        self.replies: list[Reply] = []

    @classmethod
    async def at(cls, url: str, roams: bool = True, hello: wire.Hello = HELLO) -> "Client":
        """Connected to a broker."""
        welcome, peer = await greet(url, hello, timeout_s=PATIENCE_S)
        client = cls(welcome, roams)
        client.driver.adopt(PeerId(welcome.id), peer)
        return client

    def pose(self, ask: Query, start: int = 0, query: int = 1, until: int | None = None) -> None:
        """Submit a query."""
        self.driver.feed(Submitted(QueryId(query), ask, start, until))

    def cancel(self, query: int = 1) -> None:
        """End it."""
        self.driver.feed(Cancelled(QueryId(query)))

    @property
    def status(self) -> str:
        """What was heard last."""
        return self.replies[-1].status if self.replies else "pending"

    def _effect(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            self.replies.append(effect)
        elif isinstance(effect, Deliver):
            if effect.slabs is None:
                self.gaps.append((effect.tick, effect.until))
                return
            ticks = self.ticks.setdefault((effect.query, effect.attribute), {})
            if effect.slabs:
                blank = np.full((self.grid.shape[1], self.grid.shape[0]), np.nan, np.float32)
                field = ticks.setdefault(effect.tick, blank)
            for slab in effect.slabs:
                at = (slice(*slab.y), slice(*slab.x))
                self.silent_s.setdefault(effect.tick, set()).add(slab.silent_s)
                self.doubled += int((~np.isnan(field[at])).sum())
                field[at] = slab.values

    def has(self, ask: Query, tick: int, attribute: int = 0, query: int = 1) -> bool:
        """Whether a tick is complete."""
        field = self.ticks.get((QueryId(query), attribute), {}).get(tick)
        return field is not None and int((~np.isnan(field)).sum()) == ask.size(self.grid).points_per_tick

    def is_true(self, tick: int, attribute: int = 0, query: int = 1) -> bool:
        """Whether all that came of a tick is right."""
        field = self.ticks[QueryId(query), attribute][tick]
        right = truth(self.grid, attribute, tick)
        return bool((np.isnan(field) | (field == right)).all())


class Net:
    """Hosts in this loop, and a publisher."""

    def __init__(
        self,
        network: Network,
        taps: dict[PeerId, Tap] | None = None,
        truth: Callable[[Grid, int, int], np.ndarray] = truth,
        **options: Any,
    ) -> None:
        self.network = network
        self.options = options
        """of all hosts"""
        self.lives: dict[int, int] = {}
        self.taps = taps or {}
        self.truth = truth
        self.hosts: dict[PeerId, Host] = {}
        self.clients: list[Client] = []
        self.acks: list[wire.Ack] = []
        self.tick = 0
        self._publishers: dict[PeerId, Peer] = {}

    async def __aenter__(self) -> "Net":
        for number in self.network.addresses:
            await self.start(number)
        return self

    async def hang_up(self) -> None:
        """Clients and publishers leave."""
        for client in self.clients:
            await client.driver.stop()
        for peer in self._publishers.values():
            peer.close()
            await peer.ended.wait()

    async def __aexit__(self, *error: object) -> None:
        await self.hang_up()
        for host in self.hosts.values():
            host.listener.close()
            await host.driver.stop()
            await host.listener.wait_closed()
            assert not host.driver.failed.done(), host.driver.failed.exception()

    async def start(self, number: int) -> Host:
        """One more broker."""
        life = self.lives[number] = self.lives.get(number, -1) + 1
        host = self.hosts[PeerId(number)] = Host(
            self.network, PeerId(number), tap=self.taps.get(PeerId(number)), incarnation=life, **self.options
        )
        await host.start()
        return host

    async def crash(self, number: int) -> None:
        """A broker is gone, without a word to anybody but the end of its connections."""
        host = self.hosts.pop(PeerId(number))
        host.listener.close()
        await host.driver.stop(1006, "")
        await host.listener.wait_closed()
        publisher = self._publishers.pop(PeerId(number), None)
        if publisher is not None:
            await publisher.ended.wait()

    def url(self, number: int) -> str:
        """Where a broker listens."""
        return self.network.addresses[PeerId(number)].url

    async def client(self, at: int = 0, roams: bool = True) -> Client:
        """A client of a broker."""
        client = await Client.at(self.url(at), roams)
        self.clients.append(client)
        return client

    async def publish(self, ticks: int = 1, silent_s: float | None = None) -> None:
        """The next ticks of all regions, taken by their gateways when this returns."""
        for _ in range(ticks):
            expected = len(self.acks)
            for region in self.network.regions:
                if region.owner in self.hosts:
                    peer = await self._publisher(region.owner)
                    box = box_of(self.network.grid, region.cell)
                    whole = self.truth(self.network.grid, region.attribute, self.tick)
                    values = whole[box.y0 : box.y1, box.x0 : box.x1]
                    block = wire.Publish(
                        region.attribute,
                        region.cell,
                        self.tick,
                        0,
                        region.epoch,
                        (values.shape[0], values.shape[1]),
                        silent_s,
                    )
                    assert peer.link is not None
                    peer.link.send(wire.encode_publish(block, values))
                    expected += 1
            await until(lambda n=expected: len(self.acks) >= n, "acknowledgements")
            self.tick += 1

    def _told(self, message: bytes) -> None:
        told = wire.decode_told(message)
        if isinstance(told, wire.Ack):
            self.acks.append(told)

    async def _publisher(self, owner: PeerId) -> Peer:
        known = self._publishers.get(owner)
        if known is None or known.gone is not None:
            hello = wire.Hello(wire.VERSIONS, wire.PUBLISHER)
            _, known = await greet(self.network.addresses[owner].url, hello, timeout_s=PATIENCE_S)
            known.serve(self._told, lambda reason: None)
            self._publishers[owner] = known
        return known


def write_lake(net: Net, lake: Path, ticks: int) -> None:
    """As the pipeline would."""
    grid = net.network.grid
    rows = []
    for region in net.network.regions:
        if region.attribute == 0:
            box = box_of(grid, region.cell)
            for tick in range(ticks):
                both = [truth(grid, a, tick)[box.y0 : box.y1, box.x0 : box.x1].ravel() for a in (0, 1)]
                rows.append(
                    {
                        "tick": tick, "region": format(region.cell, "b")[1:], "revision": 0,
                        "width": box.x1 - box.x0, "height": box.y1 - box.y0,
                        "values": both[0], "error": both[1],
                    }
                )  # fmt: skip
    folder = lake / "tiles" / "attribute=air_temperature" / "day=1970-01-01"
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / ".part"
    pq.write_table(pa.Table.from_pylist(rows), part)
    part.rename(folder / "stream-0000000000-00000.parquet")


Work = Callable[[], Coroutine[Any, Any, None]]


def run(work: Work, deadline_s: float = 2 * PATIENCE_S) -> None:
    """An asynchronous test, all of whose sockets are its own: no time passes while anything happens."""
    run_in_idle_time(work(), deadline_s)


def run_in_real_time(work: Work, deadline_s: float = 10 * PATIENCE_S) -> None:
    """An asynchronous test with other processes; each of its steps has a deadline of its own."""
    asyncio.run(asyncio.wait_for(work(), deadline_s))


def plain(effect: Effect) -> bytes:
    """An effect as something that can be compared: arrays cannot."""
    if isinstance(effect, Send):
        return b"%d " % effect.peer + encode(effect.message)
    if isinstance(effect, Spread):
        return b"".join(plain(Send(*each)) for each in effect.plan.sends(effect.tick, effect.slab))
    return repr(effect).encode()
