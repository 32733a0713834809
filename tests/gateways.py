"""Brokers for tests that only take grids: they speak the real wire over real links, and misbehave when asked to."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sensorgrid.configuration.network import with_errors
from sensorgrid.links.link import Link, Listener, listen
from sensorgrid.links.wire import (
    VERSIONS,
    Ack,
    Hello,
    Publish,
    Sorry,
    Welcome,
    decode_greeting,
    decode_publish,
    encode_greeting,
    encode_told,
    fingerprint,
    grid_to,
)
from sensorgrid.model.grid import Grid
from servers import free_port

ANSWERS, SILENT, REFUSES, MUTE = "answers", "silent", "refuses", "mute"
"""acknowledges; takes without a word; answers with an error; does not even greet"""


class Broker:
    """One of them; its attributes may be changed at any time."""

    def __init__(self, network: "Network", number: int) -> None:
        self.network, self.number, self.port = network, number, free_port()
        self.mood = ANSWERS
        self.version = VERSIONS[-1]
        """of the wire, that it speaks"""
        self.delay_s = 0.0
        self.taken: list[Publish] = []
        """acknowledged, each once, in the order in which they came"""
        self.repeated = 0
        self.ignored = 0
        self.refused: list[Publish] = []
        self.values: dict[Publish, np.ndarray[Any, Any]] = {}
        self.greeted = 0
        self.listener: Listener | None = None
        self.links: list[Link] = []

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def start(self) -> None:
        async def go() -> None:
            self.listener = await listen("127.0.0.1", self.port, lambda: _Talk(self))

        self.network.do(go())

    def stop(self) -> None:
        """Gone, with all connections."""

        async def go() -> None:
            if self.listener is not None:
                self.listener.close()
                await self.listener.wait_closed()

        self.network.do(go())

    def names(self, error: bool = False) -> list[tuple[str, int, str, int]]:
        """Identities of blocks whose values were taken (or errors), in that order."""
        names, digits = self.network.grid.attributes, self.network.grid.region_digits
        found = []
        for p in self.taken:
            if names[p.attribute].endswith(" standard_error") == error:
                attribute = names[p.attribute].removesuffix(" standard_error")
                region = format(p.cell - (1 << digits), f"0{digits}b")
                found.append((attribute, p.tick, region, p.revision))
        return found


class _Talk:
    def __init__(self, broker: Broker) -> None:
        self.broker, self.greeted = broker, False

    def opened(self, link: Link) -> None:
        self.link = link

    def received(self, message: bytes) -> None:
        if self.broker.mood == MUTE:
            return
        if not self.greeted:
            self._greet(message)
            return
        publish, values = decode_publish(message)
        assert values is not None
        broker = self.broker
        if broker.mood == SILENT:
            broker.ignored += 1
            return
        error = "found an old epoch, expected a newer one" if broker.mood == REFUSES else ""
        if publish.epoch != broker.network.epoch:
            error = f"found epoch {publish.epoch}, expected {broker.network.epoch}"
        ack = Ack(publish.attribute, publish.cell, publish.tick, publish.revision, error)
        if error:
            broker.refused.append(publish)
        elif publish in broker.values:
            broker.repeated += 1
        else:
            broker.taken.append(publish)
            broker.values[publish] = np.array(values)
        asyncio.get_running_loop().call_later(broker.delay_s, self.link.send, encode_told(ack))

    def _greet(self, message: bytes) -> None:
        hello, network = decode_greeting(message), self.broker.network
        assert isinstance(hello, Hello)
        assert hello.role == "publisher"
        if hello.grid not in (None, fingerprint(network.grid)):
            self.link.send(encode_greeting(Sorry("found another grid, expected ours", code="grid")))
            return
        self.greeted = True
        self.broker.greeted += 1
        welcome = Welcome(
            version=self.broker.version,
            id=self.broker.number,
            grid=grid_to(network.grid),
            settings={},
            brokers={str(b.number): b.url for b in network.brokers},
            regions=network.regions(),
        )
        self.link.send(encode_greeting(welcome))

    def closed(self, reason: str) -> None:
        pass


class Network:
    """Several brokers in one thread; regions go round among them."""

    def __init__(self, grid: Grid, brokers: int) -> None:
        self.grid = with_errors(grid)
        self.epoch = 1
        self.owner: Callable[[int], int] = lambda cell: cell % brokers
        self._loop = asyncio.new_event_loop()
        self.brokers = [Broker(self, n) for n in range(brokers)]

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(broker.url for broker in self.brokers)

    def regions(self) -> list[tuple[int, int, int, int]]:
        count = 1 << self.grid.region_digits
        return [
            (attribute, cell, self.owner(cell), self.epoch)
            for attribute in range(len(self.grid.attributes))
            for cell in range(count, 2 * count)
        ]

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def names(self, error: bool = False) -> list[tuple[str, int, str, int]]:
        """Identities of all blocks that were taken."""
        return [name for broker in self.brokers for name in broker.names(error)]


@contextmanager
def network(grid: Grid, brokers: int, *, start: bool = True) -> Iterator[Network]:
    """Brokers that listen, until the end of the block."""
    found = Network(grid, brokers)
    thread = threading.Thread(target=found._loop.run_forever, daemon=True)
    thread.start()
    try:
        for broker in found.brokers if start else ():
            broker.start()
        yield found
    finally:
        for broker in found.brokers:
            broker.stop()
        found._loop.call_soon_threadsafe(found._loop.stop)
        thread.join(10)
        found._loop.close()
