"""The courier: brings blocks to gateways that were not there, were slow or fell silent when they were published.

It runs in a thread beside the stream, on the driver's machine. It takes identities from `WaitingFolder`, values from
the lake, and tries until a gateway has acknowledged or refused them: regions in parallel, each in the order of its
batches and ticks, each gateway with a back-off of its own. In memory are the blocks of a few sendings per gateway,
however long it was away. It can be killed at any moment: what it has not crossed out it brings again, and a gateway
takes each block once.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

import numpy as np
import numpy.typing as npt

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.delivery.gateway import BlockLike, Entrance, Exchange, again_if_moved
from sensorgrid.pipeline.delivery.publish import Delivery
from sensorgrid.pipeline.delivery.waiting import Bundle, Name, WaitingError, WaitingFolder
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake.folder import STREAM, Lake
from sensorgrid.pipeline.lake.tiles import Identity
from sensorgrid.pipeline.spark.stages import refusal_letters

LOOK_S = 0.2
"""between two looks for new work"""
PATIENCE_S = 10.0
"""for one sending; a slow gateway is not a dead one"""
RETRY_S = (0.2, 15.0)
"""shortest and longest pause before a gateway is tried again"""
MISSING_S = 60.0
"""how long the lake may lack blocks of a region, as a batch may be about to be written again"""
SENDING_BYTES = 4 << 20
"""of values in one sending"""
SENDINGS = 2
"""at once to one gateway"""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Read:
    """A block as far as the lake was asked for it; a `BlockLike`."""

    identity: Identity
    values: npt.NDArray[np.float32]
    error: npt.NDArray[np.float32]
    silent_s: float | None = None


class Gateway:
    """What is known of a gateway's health, or of something else that may be out of reach."""

    def __init__(self) -> None:
        self.sendings = asyncio.Semaphore(SENDINGS)
        self.fault = ""
        self._pause_s = RETRY_S[0]
        self._again_at = 0.0

    def failed(self, fault: str) -> bool:
        """Leave it alone for a while; whether that is news."""
        news, self.fault = not self.fault, fault
        now = time.monotonic()
        if now >= self._again_at:  # otherwise another sending has just found out
            self._again_at = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, RETRY_S[1])
        return news

    def worked(self) -> bool:
        """It answers; whether that is news."""
        news, self.fault = bool(self.fault), ""
        self._pause_s, self._again_at = RETRY_S[0], 0.0
        return news

    async def ready(self) -> None:
        """When it is time to try."""
        while (left := self._again_at - time.monotonic()) > 0:
            await asyncio.sleep(left)


class Courier:
    """Runs from `__enter__` to `__exit__`."""

    def __init__(self, waiting: WaitingFolder, lake: Lake, grid: Grid, entrance: Entrance, say: Say) -> None:
        self._waiting, self._lake, self._grid = waiting, lake, grid
        self._entrance, self._say = entrance, say
        self._points = int(np.prod(Regions(grid).region_shape))
        self._gateways: dict[int, Gateway] = {}
        self._health: dict[str, Gateway] = {}
        """of what regions are read from"""
        self._missing: dict[tuple[str, str], float] = {}
        """since when the lake has lacked blocks of a stream and region"""
        self._book = asyncio.Lock()
        self.fault = ""
        """why it has ended although nobody asked it to; empty if it has not"""
        self._loop = asyncio.new_event_loop()
        self._work: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)

    def __enter__(self) -> "Courier":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended, and its loop with it
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(timeout=30)

    def _cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def _run(self) -> None:
        self._work = self._loop.create_task(self._main())
        try:
            self._loop.run_until_complete(self._work)
        except asyncio.CancelledError:
            pass
        except Exception as error:  # whoever started us must know: regions would stay behind for ever
            self.fault = f"{type(error).__name__}: {error}"
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _main(self) -> None:
        exchange = Exchange(replace(self._entrance, patience_s=PATIENCE_S / 2))
        routes: dict[str, asyncio.Task[None]] = {}
        away = Gateway()  # the network as a whole: nobody to ask who owns what
        folder = Gateway()  # the list of what waits, which may be out of reach as well
        try:
            while True:
                await folder.ready()
                try:
                    await self._look(exchange, routes, away)
                    folder.worked()
                except (SensorGridError, OSError) as error:
                    if folder.failed(str(error)):
                        self._say(f"courier: {error}; trying on")
                await asyncio.sleep(LOOK_S)
        finally:
            for task in routes.values():
                task.cancel()
            await asyncio.gather(*routes.values(), return_exceptions=True)
            await exchange.close()

    async def _look(self, exchange: Exchange, routes: dict[str, asyncio.Task[None]], away: Gateway) -> None:
        """See to it that each region that is behind is served."""
        regions = sorted(await asyncio.to_thread(self._waiting.behind))
        if regions and exchange.directory is None:
            await self._learn(exchange, away)
            return
        for region in regions:
            if region not in routes or routes[region].done():
                routes[region] = asyncio.create_task(self._serve(exchange, region))

    async def _learn(self, exchange: Exchange, away: Gateway) -> None:
        await away.ready()
        try:
            await exchange.learn()
            away.worked()
        except (SensorGridError, OSError) as error:
            if away.failed(str(error)):
                self._say(f"courier: {error}; trying on")

    async def _serve(self, exchange: Exchange, region: str) -> None:
        """Bring all bundles of a region, oldest first."""
        health = self._health.setdefault(region, Gateway())
        await health.ready()
        try:
            for name in await asyncio.to_thread(self._waiting.names_of, region):
                bundle = await self._open(name)
                while bundle is not None and bundle.identities:
                    bundle = await self._bring(exchange, bundle)
            await asyncio.to_thread(self._waiting.leave, region)
            health.worked()
        except Exception as error:  # the lake, or the folder, in any state whatever; not a gateway
            if health.failed(str(error)):
                self._say(f"courier: region {region}: {error}; trying on")

    async def _open(self, name: Name) -> Bundle | None:
        """A bundle; one that cannot be read is made again of all blocks that the lake has of its batch."""
        try:
            return await asyncio.to_thread(self._waiting.read, name)
        except WaitingError as error:
            identities = await asyncio.to_thread(
                self._lake.identities_of, name.writer, name.batch, name.region
            )
            self._say(
                f"courier: {error}; set aside, {len(identities)} blocks of its batch are brought instead"
            )
            async with self._book:
                return await asyncio.to_thread(self._waiting.restore, name, identities)

    async def _bring(self, exchange: Exchange, bundle: Bundle) -> Bundle:
        """One sending; what is left of the bundle."""
        assert exchange.directory is not None, "learnt before any region is served"
        owner = exchange.directory.owner(bundle.identities[0])
        gateway = self._gateways.setdefault(-1 if owner is None else owner, Gateway())
        await gateway.ready()
        async with gateway.sendings:
            some = bundle.identities[: max(1, SENDING_BYTES // (8 * self._points))]
            blocks = await asyncio.to_thread(self._read, some, bundle.name)
            delivery = self._given_up(some, blocks, bundle.name)
            fault = await self._send(exchange, blocks, delivery)
        if fault:
            if gateway.failed(fault):
                self._say(f"courier: {fault}; its blocks wait, trying on")
            with contextlib.suppress(SensorGridError, OSError, TimeoutError):  # somebody else may own it now
                async with asyncio.timeout(PATIENCE_S):
                    await exchange.learn()
        elif gateway.worked():
            self._say(f"courier: the gateway of region {bundle.region} answers again")
        if delivery.waiting and not fault and not blocks:
            await asyncio.sleep(1.0)  # the lake does not have them yet
        async with self._book:
            return await asyncio.to_thread(self._settle, bundle, some, delivery)

    async def _send(self, exchange: Exchange, blocks: Sequence[BlockLike], delivery: Delivery) -> str:
        """Send blocks of one region, which nearly always have one owner; says what went wrong."""
        faults: list[str] = []
        directory = exchange.directory
        assert directory is not None
        by_owner: dict[int, list[BlockLike]] = {}
        for block in blocks:
            owner = directory.owner(block.identity)
            if owner is None or directory.fault(block):
                delivery.refused.append((block.identity, directory.fault(block)))
            else:
                by_owner.setdefault(owner, []).append(block)
        for owner, mine in by_owner.items():
            found, _, fault = await exchange.deliver(directory, owner, mine, PATIENCE_S)
            delivery.add(await again_if_moved(exchange, directory, mine, found, PATIENCE_S))
            faults += [fault] if fault else []
        return "; ".join(faults)

    def _read(self, identities: Sequence[Identity], name: Name) -> list[Read]:
        """Values from the lake, in the same order; those that it does not have are left out."""
        found = self._lake.grids_of(identities, self._grid, name.writer, name.batch)
        return [Read(i, *found[i]) for i in identities if i in found]

    def _given_up(self, asked: Sequence[Identity], found: Sequence[Read], name: Name) -> Delivery:
        """What the lake lacks waits, until blocks of this region have been lacking for too long.

        After an outage longer than the lake's memory that is one wait, and not one for each batch.
        """
        there, key, now = {read.identity for read in found}, (name.writer, name.region), time.monotonic()
        lacking = [identity for identity in asked if identity not in there]
        if not lacking:
            self._missing.pop(key, None)
        elif now - self._missing.setdefault(key, now) >= MISSING_S:
            return Delivery(refused=[(i, "the lake does not have it any more") for i in lacking])
        return Delivery(waiting=lacking)

    def _settle(self, bundle: Bundle, tried: Sequence[Identity], delivery: Delivery) -> Bundle:
        """Cross out what was acknowledged or refused."""
        open_ = set(delivery.waiting) | (set(bundle.identities) - set(tried))
        left = replace(
            bundle,
            identities=tuple(i for i in bundle.identities if i in open_),
            refused=(*bundle.refused, *delivery.refused),
            acknowledged=bundle.acknowledged + delivery.acknowledged,
        )
        if delivery.refused:
            table = refusal_letters(left.refused, self._grid)
            task = Regions(self._grid).number(bundle.region)
            writer = bundle.writer.replace(STREAM, "courier", 1)
            self._lake.write("letters", table, ("day",), writer, bundle.batch, task)
            for line in _reasons(delivery.refused):
                self._say(f"courier: {line}")
        if left != bundle:
            self._waiting.settle(left)
        return left


def _reasons(refused: Sequence[tuple[Identity, str]]) -> Iterator[str]:
    """Each reason once."""
    for reason in dict.fromkeys(reason for _, reason in refused):
        mine = [identity for identity, r in refused if r == reason]
        yield f"refused {len(mine)} blocks, first {tuple(mine[0])}: {reason}"
