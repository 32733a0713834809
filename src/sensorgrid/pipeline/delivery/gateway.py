"""How grids reach the brokers: each region's gateway is found, told, and heard.

A publisher dials any broker, which tells it who owns which region; then it dials the owners and sends each block as
two publishes, the values and their standard error, which travel as attributes of their own. A gateway answers each
with an `Ack`. Sending does not wait for answers, regions do not wait for each other, and whatever a gateway has not
acknowledged within the patience is given back to the caller. Sending the same block again is always safe.

Who owns what is the brokers' roster. Every greeting tells it, and a broker that learns a newer one says so. A block
that came to a broker which owns its region no longer is sent to the new owner.

Everything lives in one thread per process with a loop of its own, so connections stay open from one micro-batch to
the next in Spark's workers, which are reused, and pings are answered while a worker has nothing to do.
"""

import asyncio
import os
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

import sensorgrid
from sensorgrid.index.cell import Cell
from sensorgrid.links import driver
from sensorgrid.links.driver import Peer
from sensorgrid.links.link import CLOSE_S, LinkError
from sensorgrid.links.wire import (
    PUBLISHER,
    VERSIONS,
    Ack,
    Hello,
    Newer,
    Publish,
    Refusal,
    Welcome,
    decode_told,
    encode_publish,
    grid_from,
    roster_from,
    roster_of,
)
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.model.names import ERROR
from sensorgrid.overlay.messages import SILENCE
from sensorgrid.overlay.roster import Roster
from sensorgrid.pipeline.delivery.publish import Delivery
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake.tiles import Block, Identity

WINDOW_BYTES = 8 << 20
"""that may be on their way to one gateway without an answer"""
_T = TypeVar("_T")
_Name = tuple[int, int, int, int]
"""attribute, cell, tick, revision: what an `Ack` names"""


class BlockLike(Protocol):
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

    @property
    def silent_s(self) -> float | None:
        """None if they rest on observations; see `sensorgrid.model.block.Slab`."""


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
    """The roster as a publisher reads it: by names of attributes and regions."""

    roster: Roster
    attributes: dict[str, int]
    """number by name"""
    shape: tuple[int, int]
    """rows and columns of a region"""

    @classmethod
    def of(cls, roster: Roster, grid: Grid) -> "Directory":
        """Of a network that carries a grid."""
        width, height = Regions(grid).region_shape
        return cls(roster, {name: number for number, name in enumerate(grid.attributes)}, (height, width))

    def url(self, owner: int) -> str:
        """Where a gateway is."""
        return self.roster.url_of(PeerId(owner)) or ""

    def owner(self, identity: Identity) -> int | None:
        """The gateway of a block; None if the network knows none."""
        found = self.roster.by_cell.get(
            (self.attributes.get(identity.attribute, -1), cell_of(identity.region))
        )
        return None if found is None else found.owner

    def owners_of(self, regions: Iterable[str]) -> set[int]:
        """The gateways that have something to do with regions."""
        cells = {cell_of(region) for region in regions}
        return {region.owner for region in self.roster.regions if region.cell in cells}

    def publishes(self, block: BlockLike) -> list[tuple[Publish, npt.NDArray[np.float32]]]:
        """A block as its gateway wants it: values, and errors where the network carries them."""
        attribute, tick, region, revision = block.identity
        cell, found = cell_of(region), []
        for name, values in ((attribute, block.values), (attribute + ERROR, block.error)):
            number = self.attributes.get(name)
            known = None if number is None else self.roster.by_cell.get((number, cell))
            if number is not None and known is not None:
                publish = Publish(number, cell, tick, revision, known.epoch, self.shape, block.silent_s)
                found.append((publish, values))
        return found

    def fault(self, block: BlockLike) -> str:
        """Why a block cannot be published here at all; empty if it can."""
        attribute, _, region, _ = block.identity
        if attribute not in self.attributes:
            return f"attribute {attribute!r}: found none of this name in the network, expected one"
        if self.owner(block.identity) is None:
            return f"region {region!r}: found no owner in the network, expected one"
        points = self.shape[0] * self.shape[1]
        for name, values in (("values", block.values), ("error", block.error)):
            if len(values) != points:
                return f"{name} of region {region!r}: found {len(values)} points, expected {points}"
        return ""


def cell_of(region: str) -> int:
    """The code of a region's cell: 0b1_0110 for "0110"."""
    return Cell.parse(region).code


class Line:
    """One open connection to a broker that has greeted us."""

    def __init__(self, url: str, peer: Peer, newer: Callable[[Roster], None]) -> None:
        self.url = url
        self.down = ""
        """why it is gone; empty while it is open"""
        self.gone = peer.ended
        self._peer = peer
        self._newer = newer
        self._asked: dict[_Name, asyncio.Future[Ack]] = {}
        self._sizes: dict[_Name, int] = {}
        self._room = asyncio.Event()
        self._unanswered = 0
        peer.serve(self._heard, self._closed)

    def _heard(self, message: bytes) -> None:
        try:
            told = decode_told(message)
            if isinstance(told, Newer):
                self._newer(roster_from(told))
                return
        except SensorGridError as error:
            self.close(str(error))
            return
        name = (told.attribute, told.cell, told.tick, told.revision)
        answer = self._asked.pop(name, None)
        self._free(name)
        if answer is not None and not answer.done():
            answer.set_result(told)

    def _closed(self, reason: str) -> None:
        self.down = self.down or reason or "closed"
        for answer in self._asked.values():
            answer.cancel()
        self._asked.clear()
        self._room.set()

    async def send(self, publish: Publish, values: npt.NDArray[np.float32]) -> "asyncio.Future[Ack]":
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
        link = self._peer.link
        if self.down or link is None:
            answer.cancel()
            return answer
        self._asked[name] = answer
        if self._peer.version < SILENCE:
            publish = msgspec.structs.replace(publish, silent_s=None)
        message = encode_publish(publish, values.reshape(publish.shape or (0, 0)))
        self._sizes[name] = len(message)
        self._unanswered += len(message)
        link.send(message)
        return answer

    def _free(self, name: _Name) -> None:
        self._unanswered -= self._sizes.pop(name, 0)
        self._room.set()

    def close(self, why: str = "no longer needed") -> None:
        """Be done with it."""
        self.down = self.down or why
        self._peer.close(1000, why[:100])


async def _greet(entrance: Entrance, url: str) -> tuple[Welcome, Peer]:
    """Introduce ourselves to a broker."""
    software = f"sensorgrid {sensorgrid.__version__} pipeline"
    hello = Hello(versions=VERSIONS, role=PUBLISHER, grid=entrance.grid, software=software)
    timeout_s = max(1.0, entrance.patience_s)
    return await driver.greet(url, hello, tls=entrance.tls(url), timeout_s=timeout_s)


async def greet(entrance: Entrance, url: str) -> Welcome:
    """What a broker says to a publisher, who leaves again."""
    welcome, peer = await _greet(entrance, url)
    peer.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S + 1):
            await peer.ended.wait()
    return welcome


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
        known = [m.url for m in self.directory.roster.members if m.url] if self.directory else []
        for url in dict.fromkeys((*self._entrance.urls, *known)):
            try:
                line = await self._dial(url)
            except (SensorGridError, OSError) as error:
                faults.append(str(error))
                continue
            if url not in self._lines or self._lines[url].down:
                self._lines[url] = line
            else:  # the one there is may be in use
                line.close()
            assert self.directory is not None, "the greeting told it"
            return self.directory
        raise LinkError(f"brokers: found none that answers ({'; '.join(faults)}), expected one")

    async def doubt(self) -> Directory:
        """The same, where gateways have refused what our roster says: are there only older ones by now?

        So it is after all brokers were started anew with a lower version. All are asked, as one that is merely
        behind is not believed: if most answer, the newest roster that they hold counts.
        """
        held = await self.learn()
        known = (m.url for m in held.roster.members if m.url)
        urls = list(dict.fromkeys((*self._entrance.urls, *known)))
        answers = await asyncio.gather(*(greet(self._entrance, url) for url in urls), return_exceptions=True)
        told = [answer for answer in answers if isinstance(answer, Welcome)]
        if 2 * len(told) > len(urls) and self.directory is held:
            newest = max(told, key=lambda welcome: roster_of(welcome).version)
            if roster_of(newest).version < held.roster.version:
                self.directory = Directory.of(roster_of(newest), grid_from(newest.grid))
        assert self.directory is not None
        return self.directory

    def _learnt(self, roster: Roster, grid: Grid | None = None) -> None:
        """A broker told a roster: it counts unless we know a newer one."""
        if grid is not None and (self.directory is None or roster.version >= self.directory.roster.version):
            self.directory = Directory.of(roster, grid)
        elif self.directory is not None and roster.newer_than(self.directory.roster):
            self.directory = replace(self.directory, roster=roster)

    async def deliver(
        self, directory: Directory, owner: int, blocks: Sequence[BlockLike], patience_s: float
    ) -> tuple[Delivery, list[BlockLike], str]:
        """Send blocks of one gateway in order; also gives those that wait, and why.

        The directory is the one that named the owner; ours may be a newer one by now.
        """
        answers = []
        line: Line | None = None
        fault = ""
        try:
            async with asyncio.timeout(patience_s):
                line = await self._line(directory.url(owner))
                for block in blocks:
                    sent = [await line.send(publish, v) for publish, v in directory.publishes(block)]
                    answers.append((block, sent))
                flat = [answer for _, sent in answers for answer in sent]
                if flat:
                    await asyncio.wait(flat)
        except TimeoutError:
            fault = f"gateway {directory.url(owner)}: found no answer within {patience_s:g} s, expected one"
            if line is not None:
                line.close("no answer")  # what waits in it would come twice, and late
        except (SensorGridError, OSError) as error:
            fault = str(error)
        delivery, left = Delivery(), []
        told = {block.identity: [_result(a) for a in sent] for block, sent in answers}
        for block in blocks:
            results = told.get(block.identity) or [
                None
            ]  # of which nothing was sent, nothing was acknowledged
            errors = sorted({r.error for r in results if r is not None and r.error})
            stale = any(r is not None and r.code == Refusal.STALE for r in results)
            if stale or any(result is None for result in results):
                delivery.waiting.append(block.identity)
                left.append(block)
                if stale:
                    delivery.stale.append(block.identity)
                    fault = fault or f"gateway {directory.url(owner)}: {'; '.join(errors)}"
            elif errors:
                delivery.refused.append((block.identity, "; ".join(errors)))
            else:
                delivery.acknowledged += 1
        if left and not fault:
            fault = f"gateway {directory.url(owner)}: {(line and line.down) or 'not sent'}"
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
        welcome, peer = await _greet(self._entrance, url)
        try:
            self._learnt(roster_of(welcome), grid_from(welcome.grid))
        except BaseException:
            peer.close()
            raise
        line = Line(url, peer, self._learnt)
        self._opened = [one for one in self._opened if not one.gone.is_set()] + [line]
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


def _result(answer: "asyncio.Future[Ack]") -> Ack | None:
    """What was answered; None: not known."""
    return answer.result() if answer.done() and not answer.cancelled() else None


async def publish_once(
    exchange: Exchange,
    directory: Directory,
    blocks: Sequence[BlockLike],
    behind: frozenset[str],
    patience_s: float,
) -> Delivery:
    """Hand over blocks to all their gateways at once; those of gateways that are behind are given back."""
    found = Delivery()
    busy = directory.owners_of(behind)
    by_owner: dict[int, list[BlockLike]] = {}
    for block in blocks:
        owner = directory.owner(block.identity)
        if fault := directory.fault(block):
            found.refused.append((block.identity, fault))
        elif owner is None or owner in busy:
            found.waiting.append(block.identity)
        else:
            by_owner.setdefault(owner, []).append(block)
    results = await asyncio.gather(
        *(
            exchange.deliver(directory, owner, _in_order(mine), patience_s)
            for owner, mine in sorted(by_owner.items())
        )
    )
    for delivery, _, _ in results:
        found.add(delivery)
    return found


def _in_order(blocks: Iterable[BlockLike]) -> list[BlockLike]:
    """As a gateway wants them: ticks in order, or it would name a gap."""
    return sorted(blocks, key=lambda p: (p.identity.tick, p.identity.revision, p.identity))


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

    def publish(self, blocks: Sequence[BlockLike], behind: frozenset[str] = frozenset()) -> Delivery:
        """Hand over blocks and wait for the answers, no longer than the patience."""
        return self._do(self._publish(blocks, behind))

    async def _publish(self, blocks: Sequence[BlockLike], behind: frozenset[str]) -> Delivery:
        if self._exchange is None:
            self._exchange = Exchange(self._entrance)
        exchange, patience_s = self._exchange, self._entrance.patience_s
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        try:
            async with asyncio.timeout(patience_s):
                directory = exchange.directory or await exchange.learn()
        except (SensorGridError, OSError, TimeoutError):
            return Delivery(waiting=[block.identity for block in blocks])
        found = await publish_once(exchange, directory, blocks, behind, deadline - loop.time())
        return await again_if_moved(exchange, directory, blocks, found, patience_s)

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def again_if_moved(
    exchange: Exchange, before: Directory, blocks: Sequence[BlockLike], found: Delivery, patience_s: float
) -> Delivery:
    """Send those once more whose owner has changed meanwhile: the one that did not take them was the wrong one.

    `before` is the directory by which they were sent; the exchange may have learnt since, for somebody else.
    """
    if not found.refused and not found.stale:
        return found
    try:
        async with asyncio.timeout(patience_s):
            now = await exchange.learn()
            if found.stale and now.roster == before.roster:
                now = await exchange.doubt()
    except (SensorGridError, OSError, TimeoutError):
        return found
    turned_away = {identity for identity, _ in found.refused} | set(found.stale)
    moved = [p for p in blocks if p.identity in turned_away and _moved(p, before, now)]
    if moved:
        gone = {p.identity for p in moved}
        found.refused = [(i, reason) for i, reason in found.refused if i not in gone]
        found.waiting = [i for i in found.waiting if i not in gone]
        found.stale = [i for i in found.stale if i not in gone]
        found.add(await publish_once(exchange, now, moved, frozenset(), patience_s))
    return found


def _moved(block: BlockLike, before: Directory, now: Directory) -> bool:
    """Whether somebody else is to be asked now, or the same one in other words."""
    return [p for p, _ in before.publishes(block)] != [p for p, _ in now.publishes(block)] or before.owner(
        block.identity
    ) != now.owner(block.identity)


_open: dict[tuple[int, Entrance], Gateways] = {}
_lock = threading.Lock()


def gateways_at(entrance: Entrance) -> Gateways:
    """The connections of this process; a fork makes its own."""
    with _lock:
        key = (os.getpid(), entrance)
        if key not in _open:
            _open[key] = Gateways(entrance)
        return _open[key]
