"""How grids reach the brokers: each region's gateway is found, told, and heard.

A publisher dials any broker, which tells it who owns which region; then it dials the owners and sends each block as
two publishes, the values and their standard error, which travel as attributes of their own. A gateway answers each
with an `Ack`. Sending does not wait for answers, regions do not wait for each other, and whatever a gateway has not
acknowledged within the patience is given back to the caller. Sending the same block again is always safe.

Everything lives in one thread per process with a loop of its own, so connections stay open from one micro-batch to
the next in Spark's workers, which are reused, and pings are answered while a worker has nothing to do.
"""

import asyncio
import os
import ssl
import threading
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

import sensorgrid
from sensorgrid.configuration.network import ERROR
from sensorgrid.index.cell import Cell
from sensorgrid.links.link import CLOSE_S, Link, LinkError, dial
from sensorgrid.links.wire import (
    PUBLISHER,
    VERSIONS,
    Hello,
    Publish,
    RefusedError,
    Sorry,
    Welcome,
    WireError,
    decode_ack,
    decode_greeting,
    encode_greeting,
    encode_publish,
    grid_from,
)
from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.delivery.publish import Delivery
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake.tiles import Block, Identity

WINDOW_BYTES = 8 << 20
"""that may be on their way to one gateway without an answer"""
_T = TypeVar("_T")
_Name = tuple[int, int, int, int]
"""attribute, cell, tick, revision: what an `Ack` names"""


class Parcel(Protocol):
    """What is handed over: a `Block`, or only what a gateway needs of one."""

    @property
    def identity(self) -> Identity:
        """What tells it from all others."""

    @property
    def values(self) -> npt.NDArray[np.float32]:
        """Row by row."""

    @property
    def error(self) -> npt.NDArray[np.float32]:
        """One standard deviation each."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where and how to enter the network of brokers. Pickled into tasks."""

    urls: tuple[str, ...]
    """of brokers; one that answers is enough"""
    ca_file: str | None = None
    """of their certificates, if the system's do not do"""
    patience_s: float = 2.0
    """how long a task waits for answers"""
    grid: str | None = None
    """fingerprint of the grid that is published, for brokers to compare; None: they are believed"""

    def tls(self, url: str) -> ssl.SSLContext | None:
        """What an encrypted connection needs."""
        if not url.startswith("wss:"):
            return None
        return ssl.create_default_context(cafile=self.ca_file)


@dataclass(frozen=True)
class GatewaySink:
    """Hands blocks to the gateways of their regions; see `sensorgrid.pipeline.delivery.publish.Sink`."""

    entrance: Entrance

    def publish(self, blocks: Sequence[Block], behind: frozenset[str] = frozenset()) -> Delivery:
        """Hand over, and wait a little for the answers."""
        if not blocks:
            return Delivery()
        if all(block.identity.region in behind for block in blocks):  # nobody has to be asked
            return Delivery(waiting=[block.identity for block in blocks])
        return gateways_at(self.entrance).publish(blocks, behind)


@dataclass(frozen=True, slots=True)
class Directory:
    """Who owns what, as a broker told it."""

    attributes: dict[str, int]
    """number by name"""
    urls: dict[int, str]
    """by number of broker"""
    owners: dict[tuple[int, int], tuple[int, int]]
    """(owner, epoch) by attribute and cell"""
    shape: tuple[int, int]
    """rows and columns of a region"""

    @classmethod
    def of(cls, welcome: Welcome) -> "Directory":
        """What a broker's first words say."""
        grid = grid_from(welcome.grid)
        width, height = Regions(grid).region_shape
        return cls(
            {name: number for number, name in enumerate(grid.attributes)},
            {int(broker): url for broker, url in welcome.brokers.items()},
            {(a, cell): (owner, epoch) for a, cell, owner, epoch in welcome.regions},
            (height, width),
        )

    def owner(self, identity: Identity) -> int | None:
        """The gateway of a block; None if the network knows none."""
        found = self.owners.get((self.attributes.get(identity.attribute, -1), cell_of(identity.region)))
        return None if found is None else found[0]

    def owners_of(self, regions: Iterable[str]) -> set[int]:
        """The gateways that have something to do with regions."""
        cells = {cell_of(region) for region in regions}
        return {owner for (_, cell), (owner, _) in self.owners.items() if cell in cells}

    def publishes(self, parcel: Parcel) -> list[tuple[Publish, npt.NDArray[np.float32]]]:
        """A block as its gateway wants it: values, and errors where the network carries them."""
        attribute, tick, region, revision = parcel.identity
        cell, found = cell_of(region), []
        for name, values in ((attribute, parcel.values), (attribute + ERROR, parcel.error)):
            number = self.attributes.get(name)
            if number is None or (number, cell) not in self.owners:
                continue
            epoch = self.owners[number, cell][1]
            found.append((Publish(number, cell, tick, revision, epoch, self.shape), values))
        return found

    def fault(self, parcel: Parcel) -> str:
        """Why a block cannot be published here at all; empty if it can."""
        attribute, _, region, _ = parcel.identity
        if attribute not in self.attributes:
            return f"attribute {attribute!r}: found none of this name in the network, expected one"
        if self.owner(parcel.identity) is None:
            return f"region {region!r}: found no owner in the network, expected one"
        points = self.shape[0] * self.shape[1]
        for name, values in (("values", parcel.values), ("error", parcel.error)):
            if len(values) != points:
                return f"{name} of region {region!r}: found {len(values)} points, expected {points}"
        return ""


def cell_of(region: str) -> int:
    """The code of a region's cell: 0b1_0110 for "0110"."""
    return Cell.parse(region).code


class Line:
    """One open connection to a broker; a `Handler` of links."""

    def __init__(self, url: str) -> None:
        self.url = url
        loop = asyncio.get_running_loop()
        self.welcome: asyncio.Future[Welcome] = loop.create_future()
        self.down = ""
        """why it is gone; empty while it is open"""
        self.gone = asyncio.Event()
        self._link: Link | None = None
        self._asked: dict[_Name, asyncio.Future[str]] = {}
        self._sizes: dict[_Name, int] = {}
        self._room = asyncio.Event()
        self._unanswered = 0

    def opened(self, link: Link) -> None:
        """See `Handler`."""
        self._link = link

    def received(self, message: bytes) -> None:
        """See `Handler`."""
        try:
            if not self.welcome.done():
                self._greeted(message)
                return
            ack = decode_ack(message)
        except SensorGridError as error:
            self.close(str(error))
            return
        name = (ack.attribute, ack.cell, ack.tick, ack.revision)
        answer = self._asked.pop(name, None)
        self._free(name)
        if answer is not None and not answer.done():
            answer.set_result(ack.error)

    def _greeted(self, message: bytes) -> None:
        greeting = decode_greeting(message)
        if isinstance(greeting, Welcome):
            self.welcome.set_result(greeting)
        elif isinstance(greeting, Sorry):
            self.welcome.set_exception(RefusedError(f"broker {self.url}: {greeting.reason}"))
        else:
            raise WireError(f"broker {self.url}: found {greeting!r}, expected an answer")

    def closed(self, reason: str) -> None:
        """See `Handler`."""
        self.down = self.down or reason or "closed"
        if not self.welcome.done():
            self.welcome.set_exception(LinkError(f"gateway {self.url}: {self.down}"))
        for answer in self._asked.values():
            answer.cancel()
        self._asked.clear()
        self._room.set()
        self.gone.set()

    def say(self, hello: Hello) -> None:
        """The first words."""
        if self._link is not None:
            self._link.send(encode_greeting(hello))

    async def send(self, publish: Publish, values: npt.NDArray[np.float32]) -> "asyncio.Future[str]":
        """Send one, as soon as there is room; what comes back tells when and how it was answered, or is cancelled
        with the connection."""
        while self._unanswered >= WINDOW_BYTES and not self.down:
            self._room.clear()
            await self._room.wait()
        name = (publish.attribute, publish.cell, publish.tick, publish.revision)
        answer = self._asked.get(name)
        if answer is not None:
            return answer
        answer = asyncio.get_running_loop().create_future()
        if self.down or self._link is None:
            answer.cancel()
            return answer
        self._asked[name] = answer
        message = encode_publish(publish, values.reshape(publish.shape or (0, 0)))
        self._sizes[name] = len(message)
        self._unanswered += len(message)
        self._link.send(message)
        return answer

    def _free(self, name: _Name) -> None:
        self._unanswered -= self._sizes.pop(name, 0)
        self._room.set()

    def close(self, why: str = "no longer needed") -> None:
        """Be done with it; `closed` follows."""
        self.down = self.down or why
        if self._link is not None:
            self._link.close(1000, why[:100])
        else:
            self.gone.set()


async def greet(entrance: Entrance, url: str) -> Welcome:
    """What a broker says to a publisher, who leaves again."""
    exchange = Exchange(entrance)
    try:
        line = await exchange._dial(url)
        return line.welcome.result()
    finally:
        await exchange.close()


class Exchange:
    """The open connections of a process; used inside its loop only."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._lines: dict[str, Line] = {}
        self._dialling: dict[str, asyncio.Task[Line]] = {}
        self._opened: list[Line] = []
        self.directory: Directory | None = None

    async def learn(self) -> Directory:
        """Ask brokers, one after the other, who owns what; the first that answers is believed."""
        faults = []
        known = self.directory.urls.values() if self.directory else ()
        for url in dict.fromkeys((*self._entrance.urls, *known)):
            try:
                line = await self._dial(url)
                self.directory = Directory.of(line.welcome.result())
            except (SensorGridError, OSError) as error:
                faults.append(str(error))
                continue
            if url not in self._lines or self._lines[url].down:
                self._lines[url] = line
            else:  # the one there is may be in use
                line.close()
            return self.directory
        raise LinkError(f"brokers: found none that answers ({'; '.join(faults)}), expected one")

    async def deliver(
        self, directory: Directory, owner: int, parcels: Sequence[Parcel], patience_s: float
    ) -> tuple[Delivery, list[Parcel], str]:
        """Send blocks of one gateway in order; also gives those that wait, and why.

        The directory is the one that named the owner; ours may be a newer one by now.
        """
        answers = []
        line: Line | None = None
        fault = ""
        try:
            async with asyncio.timeout(patience_s):
                line = await self._line(directory.urls[owner])
                for parcel in parcels:
                    sent = [await line.send(publish, v) for publish, v in directory.publishes(parcel)]
                    answers.append((parcel, sent))
                flat = [answer for _, sent in answers for answer in sent]
                if flat:
                    await asyncio.wait(flat)
        except TimeoutError:
            fault = f"gateway {directory.urls[owner]}: found no answer within {patience_s:g} s, expected one"
            if line is not None:
                line.close("no answer")  # what waits in it would come twice, and late
        except (SensorGridError, OSError) as error:
            fault = str(error)
        delivery, left = Delivery(), []
        told = {parcel.identity: [_result(a) for a in sent] for parcel, sent in answers}
        for parcel in parcels:
            results = told.get(parcel.identity) or [
                None
            ]  # of which nothing was sent, nothing was acknowledged
            if any(result is None for result in results):
                delivery.waiting.append(parcel.identity)
                left.append(parcel)
            elif any(results):
                delivery.refused.append((parcel.identity, "; ".join(sorted({r for r in results if r}))))
            else:
                delivery.acknowledged += 1
        if left and not fault:
            fault = f"gateway {directory.urls[owner]}: {(line and line.down) or 'not sent'}"
        return delivery, left, fault

    async def _line(self, url: str) -> Line:
        """An open connection, that there is or that is made; however many ask, it is made once."""
        line = self._lines.get(url)
        if line is not None and not line.down:
            return line
        task = self._dialling.get(url)
        if task is None:
            task = asyncio.create_task(self._dial(url))
            self._dialling[url] = task
            task.add_done_callback(lambda done: self._dialled(url, done))
        return await asyncio.shield(task)

    def _dialled(self, url: str, task: "asyncio.Task[Line]") -> None:
        self._dialling.pop(url, None)
        if not task.cancelled() and task.exception() is None:
            self._lines[url] = task.result()

    async def _dial(self, url: str) -> Line:
        line, entrance = Line(url), self._entrance
        timeout_s = max(1.0, entrance.patience_s)
        await dial(url, line, tls=entrance.tls(url), timeout_s=timeout_s)
        self._opened = [one for one in self._opened if not one.gone.is_set()] + [line]
        software = f"sensorgrid {sensorgrid.__version__} pipeline"
        line.say(Hello(versions=VERSIONS, role=PUBLISHER, grid=entrance.grid, software=software))
        try:
            async with asyncio.timeout(timeout_s):
                await line.welcome
        except TimeoutError:
            line.close("no greeting")
            raise LinkError(f"broker {url}: found no greeting, expected one in {timeout_s:g} s") from None
        except SensorGridError:
            line.close("refused")
            raise
        return line

    async def close(self) -> None:
        """Be done with all of them."""
        for task in list(self._dialling.values()):
            task.cancel()
        for line in self._opened:
            line.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S + 1):
                await asyncio.gather(*(line.gone.wait() for line in self._opened))


def _result(answer: "asyncio.Future[str]") -> str | None:
    """Empty: taken; a text: refused; None: not known."""
    return answer.result() if answer.done() and not answer.cancelled() else None


async def publish_once(
    exchange: Exchange,
    directory: Directory,
    parcels: Sequence[Parcel],
    behind: frozenset[str],
    patience_s: float,
) -> Delivery:
    """Hand over blocks to all their gateways at once; those of gateways that are behind are given back."""
    found = Delivery()
    busy = directory.owners_of(behind)
    by_owner: dict[int, list[Parcel]] = {}
    for parcel in parcels:
        owner = directory.owner(parcel.identity)
        if fault := directory.fault(parcel):
            found.refused.append((parcel.identity, fault))
        elif owner is None or owner in busy:
            found.waiting.append(parcel.identity)
        else:
            by_owner.setdefault(owner, []).append(parcel)
    results = await asyncio.gather(
        *(
            exchange.deliver(directory, owner, _in_order(mine), patience_s)
            for owner, mine in sorted(by_owner.items())
        )
    )
    for delivery, _, _ in results:
        found.add(delivery)
    return found


def _in_order(parcels: Iterable[Parcel]) -> list[Parcel]:
    """As a gateway wants them: ticks in order, or it would name a gap."""
    return sorted(parcels, key=lambda p: (p.identity.tick, p.identity.revision, p.identity))


class Gateways:
    """The blocking face, with a thread of its own behind it."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._loop = asyncio.new_event_loop()
        self._exchange: Exchange | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateways", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections, and the thread."""
        if self._exchange is not None:
            self._do(self._exchange.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def publish(self, parcels: Sequence[Parcel], behind: frozenset[str] = frozenset()) -> Delivery:
        """Hand over blocks and wait for the answers, no longer than the patience."""
        return self._do(self._publish(parcels, behind))

    async def _publish(self, parcels: Sequence[Parcel], behind: frozenset[str]) -> Delivery:
        if self._exchange is None:
            self._exchange = Exchange(self._entrance)
        exchange, patience_s = self._exchange, self._entrance.patience_s
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        try:
            async with asyncio.timeout(patience_s):
                directory = exchange.directory or await exchange.learn()
        except (SensorGridError, OSError, TimeoutError):
            return Delivery(waiting=[parcel.identity for parcel in parcels])
        found = await publish_once(exchange, directory, parcels, behind, deadline - loop.time())
        return await again_if_moved(exchange, directory, parcels, found, patience_s)

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def again_if_moved(
    exchange: Exchange, before: Directory, parcels: Sequence[Parcel], found: Delivery, patience_s: float
) -> Delivery:
    """Try refused ones once more where their owner has changed meanwhile: the one who refused was the wrong one.

    `before` is the directory by which they were sent; the exchange may have learnt since, for somebody else.
    """
    if not found.refused:
        return found
    try:
        async with asyncio.timeout(patience_s):
            now = await exchange.learn()
    except (SensorGridError, OSError, TimeoutError):
        return found
    refused = dict(found.refused)
    moved = [p for p in parcels if p.identity in refused and _moved(p, before, now)]
    if moved:
        gone = {p.identity for p in moved}
        found.refused = [(i, reason) for i, reason in found.refused if i not in gone]
        found.add(await publish_once(exchange, now, moved, frozenset(), patience_s))
    return found


def _moved(parcel: Parcel, before: Directory, now: Directory) -> bool:
    """Whether somebody else is to be asked now, or the same one in other words."""
    return [p for p, _ in before.publishes(parcel)] != [p for p, _ in now.publishes(parcel)] or before.owner(
        parcel.identity
    ) != now.owner(parcel.identity)


_open: dict[tuple[int, Entrance], Gateways] = {}
_lock = threading.Lock()


def gateways_at(entrance: Entrance) -> Gateways:
    """The connections of this process; a fork makes its own."""
    with _lock:
        key = (os.getpid(), entrance)
        if key not in _open:
            _open[key] = Gateways(entrance)
        return _open[key]
