"""A broker as a server: whom it admits, what it takes from the pipeline and the lake, and how it stops.

A broker's decisions are made in `sensorgrid.overlay`, and `sensorgrid.links.driver` handles its connections. The rest
is here: admission of connections, publishers, the tail of the lake, and a clean stop.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from random import Random
from typing import Any

import msgspec

from sensorgrid.configuration.network import Network
from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import prepare
from sensorgrid.links import wire
from sensorgrid.links.driver import Driver, Peer, Tap, greet
from sensorgrid.links.link import ANSWER_S, Listener, listen
from sensorgrid.links.packing import can_pack
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.ids import BROKERS_MAX, PeerId, is_broker
from sensorgrid.model.names import ERROR
from sensorgrid.overlay.broker import Broker
from sensorgrid.overlay.events import (
    Adopted,
    Effect,
    Inquire,
    Joining,
    Learned,
    Leaving,
    Left,
    Outdated,
    Propose,
    Published,
    Recall,
    Recalled,
    Ruled,
    Stopping,
)
from sensorgrid.overlay.formulas import FormulaReader
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.mechanisms.streams import EARLY_MAX
from sensorgrid.overlay.messages import Clip
from sensorgrid.overlay.policies.interface import Never, Policy
from sensorgrid.overlay.policies.ours import Ours
from sensorgrid.overlay.policies.paper import Paper
from sensorgrid.overlay.policies.relays import Relays
from sensorgrid.overlay.roster import Region, Roster, RosterError
from sensorgrid.runtime.history import Tick, read_tail
from sensorgrid.runtime.rosters import RosterStore, StoreError
from sensorgrid.runtime.sensors import SensorDesk

LEAVE_S = 30.0
"""how long a broker that goes waits for its heirs"""
DRAIN_S = 5.0
"""how long a stop waits for what was sent to be read"""
CLIENTS_MAX = 20_000
ANSWERS_BYTES_MAX = 4 << 20
"""that may wait for a publisher or an observer"""
RECEIVERS_MAX = 20_000
"""boxes of clients in one answer to an observer"""
REVISIONS_MAX = 1 << 14
LAKE_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)
"""between tries to read the lake; after the last, its ticks are gaps"""
POLICIES: dict[str, Callable[[], Policy]] = {
    "ours": lambda: Ours(True),
    "ours-local": lambda: Ours(False),
    "paper": Paper,
    "never": Never,
}

Log = Callable[..., None]
"""called with an event and its fields"""


def silent(event: str, **fields: Any) -> None:
    """A log that goes nowhere."""


class Host:
    """One broker, listening."""

    def __init__(
        self,
        network: Network,
        me: PeerId,
        *,
        software: str = "",
        log: Log = silent,
        tap: Tap | None = None,
        versions: tuple[int, ...] = wire.VERSIONS,
        incarnation: int | None = None,
        joins: bool = False,
    ) -> None:
        self.network = network
        self.me = me
        self.log = log
        self.tap = tap
        """sees all that happens to the broker"""
        relays = network.options.relays
        self.broker = Broker(
            me,
            network.grid,
            network.settings,
            POLICIES[network.options.policy](),
            Random(f"broker {me}"),
            None if relays == "none" else Relays(relays.upper()),
            # By the calendar: the clock that drives the broker begins anew when its machine does.
            incarnation=int(datetime.now(UTC).timestamp() * 1000) if incarnation is None else incarnation,
            formulas=FormulaReader(network.grid),
        )
        self.versions = versions
        """of the wire, that it speaks"""
        offered = (wire.LZ4,) if network.options.compress == wire.LZ4 and can_pack() else ()
        self._hello = wire.Hello(versions, wire.BROKER, me, network.roster.terms.grid, offered, software)
        self.store = (
            RosterStore(network.lake, founds=not joins) if network.settings.beat_s is not None else None
        )
        """of an open network"""
        self._joins = joins
        """whether it is a newcomer: then the network exists, and so does its store"""
        self._url = self._url_before = ""
        """where others dial it, and where they did in an earlier life of it"""
        self._unreached: tuple[bool, str] | None = None
        """whether it could not be written or read, and why; None: the store is there"""
        self.left = asyncio.Event()
        """this broker has left the network, as it wished"""
        self.sensors = SensorDesk(network.lake, network.grid, log)
        """the registry of the sensors in its regions"""
        self.published = 0
        """blocks taken from the pipeline"""
        self.stopping = False
        self._software = software
        self._missed: set[PeerId] = set()
        self._number = BROKERS_MAX
        self._publishers: dict[Peer, None] = {}
        self._recalls: list[Recall] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.driver: Driver
        self.listener: Listener

    @property
    def roster(self) -> Roster:
        """The newest that this broker knows."""
        return self.broker.boards.roster.current or self.network.roster

    def learn(self, roster: Roster) -> None:
        """Hold a newer roster, and spread it."""
        if difference := self.roster.terms.difference(roster.terms):
            raise RosterError(
                f"roster {roster.version}: {difference.text}; it cannot change while brokers run"
            )
        if roster.version == self.roster.version and (
            difference := self.roster.summary.difference(roster.summary)
        ):
            raise RosterError(difference.text)
        if roster.version < self.roster.version:
            raise RosterError(
                f"roster: found version {roster.version}, expected one above {self.roster.version}, which is held"
            )
        if fault := roster.fault(self.network.grid, self.roster):
            raise RosterError(fault)
        self.driver.feed(Learned(roster))

    def hello(self) -> wire.Hello:
        """Our first words."""
        summary = self.roster.summary if self.versions[-1] >= 2 else None
        return msgspec.structs.replace(self._hello, roster=summary)

    async def start(self) -> None:
        """Listen, read the lake, and be a broker."""
        network, address = self.network, self.network.addresses[self.me]
        if fault := network.roster.fault(network.grid):
            raise RosterError(fault)
        myself = network.roster.by_id[self.me]
        if self.store is not None:
            network = self.network = replace(network, roster=await self._stored(self.store, network.roster))
            self._url = myself.url
            await self._check_name(network.roster)
        tls = network.options.tls
        self.driver = Driver(
            self.broker,
            hello=self.hello,
            address_of=lambda peer: self.roster.url_of(peer),
            on_effect=self._effect,
            tls=None if tls is None else client_tls(tls.ca_file),
            waiting_bytes_max=network.options.waiting_bytes,
        )
        self._began = self.driver.loop.time()
        self.driver.on_closed = self._closed
        self.driver.on_unreachable = self._unreachable
        self.driver.tap = self.tap
        server = None if tls is None else server_tls(tls.cert_file, tls.key_file)
        # Compiled now, before anyone waits: otherwise the first request would hold up all greetings.
        prepare(network.grid)
        self.listener = await listen(address.host, address.port, self._enter, tls=server)
        ways = {"policy": network.options.policy, "relays": network.options.relays}
        mine = len(network.roster.by_owner.get(self.me, ()))
        self.log("listening", broker=self.me, url=address.url, regions=mine, **ways)
        if self.store is not None:
            self.driver.feed(
                Joining(myself)
            )  # first: so marks of an earlier life are known for what they are
        self.driver.feed(Learned(network.roster))

    async def _check_name(self, roster: Roster) -> None:
        """Give up if another broker has this number; one that nobody hears any more was this one, elsewhere."""
        fault = self._other_of_my_name(roster)
        if fault and self._joins:
            raise NameTakenError(fault)
        if fault:
            url = roster.by_id[self.me].url
            tls = self.network.options.tls
            try:
                hello = wire.Hello(self.versions, wire.OBSERVER)
                welcome, peer = await greet(
                    url, hello, tls=None if tls is None else client_tls(tls.ca_file), timeout_s=ANSWER_S
                )
            except (SensorGridError, OSError, TimeoutError):
                self.log("moved", broker=self.me, before=url, now=self._url)
                self._url_before = url
                return
            peer.close()
            if welcome.id == self.me:
                raise NameTakenError(fault)
            self._url_before = url

    async def _stored(self, store: RosterStore, first: Roster) -> Roster:
        """The newest roster of an open network; the file is its first one."""
        found = await store.settle(None)
        if self._joins and (found is None or found.version < first.version):
            what = "no roster" if found is None else f"roster {found.version}"
            raise RosterError(
                f"{store.place}: found {what}, expected that of the network, {first.version} or later: --lake says"
                " where this machine sees the lake"
            )
        if found is None:
            found = await store.settle(first if first.version == 1 else replace(first, version=1)) or first
        if difference := first.terms.difference(found.terms):
            raise RosterError(f"{store.place}: {difference.text}; it cannot change while a network exists")
        return found

    async def leave(self) -> None:
        """Hand over what this broker owns and be no member any more, if others are left and it can be done in time."""
        if self.store is None:
            return
        self.log("leaving", broker=self.me)
        self.driver.feed(Leaving())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                while not self.left.is_set() and not self._is_last():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.2):
                            await self.left.wait()
        self.log("left" if self.left.is_set() else "not left", broker=self.me, roster=self.roster.version)

    def _is_last(self) -> bool:
        """Whether all others go, too, or own no regions, or none are left: nobody is there to take over."""
        others = [member for member in self.roster.members if member.id != self.me]
        mine = self.roster.by_id.get(self.me)
        return (mine is None or not mine.relay) and all(m.leaving or m.relay for m in others)

    async def stop(self) -> None:
        """Redirect receivers, let them read what was sent, and close."""
        if self.stopping:
            return
        self.stopping = True
        self.driver.feed(Stopping())
        await asyncio.sleep(0)  # what was said goes out at the end of this turn of the loop
        deadline = self.driver.loop.time() + DRAIN_S
        while self.driver.loop.time() < deadline and any(
            peer.link is not None and peer.link.waiting for peer in self.driver.peers.values()
        ):
            await asyncio.sleep(0.02)
        for task in self._tasks:
            task.cancel()
        await self.driver.stop()
        self.listener.close()
        await self.listener.wait_closed()
        self.log("stopped", broker=self.me)

    @property
    def clients(self) -> int:
        """How many are connected."""
        return sum(not is_broker(peer) for peer in self.driver.peers)

    # -- the door

    def _enter(self) -> Peer:
        peer = Peer()
        self._spawn(self._alone(peer, self._welcome(peer)))
        return peer

    async def _alone(self, peer: Peer, work: Coroutine[Any, Any, None]) -> None:
        """Work for one stranger, whose fault closes its connection and nothing else."""
        try:
            await work
        except Exception as error:
            self.log(
                "closed",
                remote=peer.link.remote if peer.link else "",
                reason=f"{type(error).__name__}: {error}",
            )
            peer.close(1011, "a fault of the broker")

    async def _welcome(self, peer: Peer) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                hello = wire.decode_hello(await peer.greeting)
            sorry = self._refusal(hello)
            if sorry is not None and self._is_behind(hello):
                sorry = msgspec.structs.replace(sorry, roster=wire.newer_of(self.roster))
        except TimeoutError:
            sorry = wire.Sorry(f"found no greeting, expected one within {ANSWER_S:g} s")
        except wire.WireError as error:
            sorry = wire.Sorry(str(error), wire.NoConnection.VERSION)
        except ConnectionError:
            return
        if sorry is not None:
            self.log("refused", remote=peer.link.remote if peer.link else "", reason=sorry.reason)
            self._send(peer, sorry)
            peer.close(1008, sorry.reason)
            return
        self._admit(peer, hello)

    def _refusal(self, hello: wire.Hello) -> wire.Sorry | None:
        if not set(hello.versions) & set(self.versions):
            return wire.Sorry(
                f"wire: found versions {_list(hello.versions)}, expected one of {_list(self.versions)};"
                f" broker {self.me} runs {self._software or 'another release'}",
                wire.NoConnection.VERSION,
            )
        terms = self.roster.terms
        if hello.grid is not None and hello.grid != terms.grid:
            return wire.Sorry(
                f"grid: found {hello.grid}, expected {terms.grid}: both sides need the same [grid]",
                wire.NoConnection.GRID,
            )
        if hello.roster is not None and (difference := self.roster.summary.difference(hello.roster)):
            return wire.Sorry(difference.text, wire.NoConnection(difference.code.value))
        if self.stopping:
            return wire.Sorry(f"broker {self.me} stops", wire.NoConnection.STOPPING)
        if hello.role == wire.BROKER:
            if hello.id is None or hello.id == self.me or PeerId(hello.id) not in self.roster.by_id:
                text = f"broker {hello.id}: expected another one of [network]"
                if hello.roster is None or hello.roster.version <= self.roster.version:
                    return wire.Sorry(text)
                # It may be new in a newer roster. This broker learns that roster only from brokers that it knows.
                self.driver.feed(Outdated())
                return wire.Sorry(f"{text} as in roster {self.roster.version}", wire.NoConnection.UNKNOWN)
            if self.me < hello.id and PeerId(hello.id) in self.driver.dialling:
                return wire.Sorry(
                    "we dialled each other: the smaller number's connection counts", wire.NoConnection.CROSSED
                )
        elif hello.role == wire.CLIENT:
            if self.clients >= CLIENTS_MAX:
                return wire.Sorry(
                    f"broker {self.me}: found {self.clients} clients, expected fewer", wire.NoConnection.FULL
                )
        elif hello.role == wire.NEWCOMER and self.store is None:
            return wire.Sorry(
                f"broker {self.me}: found a newcomer, expected none: the roster is a file; [network] open = true lets"
                " it change by itself"
            )
        elif hello.role not in (wire.PUBLISHER, wire.OBSERVER, wire.NEWCOMER):
            return wire.Sorry(
                f"role: found {hello.role!r}, expected broker, client, publisher, observer or newcomer"
            )
        return None

    def _is_behind(self, hello: wire.Hello) -> bool:
        """Whether a broker holds an older roster: it may own a region that was given to another meanwhile."""
        theirs, mine = hello.roster, self.roster
        return (
            hello.role == wire.BROKER
            and max(hello.versions, default=0) >= 2
            and theirs is not None
            and theirs.version < mine.version
            and theirs.terms == mine.terms
        )

    def _admit(self, peer: Peer, hello: wire.Hello) -> None:
        compress = wire.LZ4 if wire.LZ4 in hello.compress and wire.LZ4 in self._hello.compress else ""
        peer.packs = bool(compress) and hello.role in (wire.BROKER, wire.CLIENT)
        peer.version = max(set(hello.versions) & set(self.versions))
        welcome = wire.welcome_of(
            self.roster, self.network.grid, peer.version, self.me, hello.role, compress, self._software
        )
        if hello.role == wire.NEWCOMER:
            welcome = msgspec.structs.replace(welcome, network=self._told_to_newcomers())
        self._send(peer, welcome)
        if hello.role == wire.PUBLISHER:
            self._publishers[peer] = None
            peer.serve(
                lambda message: self._publish(peer, message), lambda reason: self._publisher_gone(peer)
            )
        elif hello.role in (wire.OBSERVER, wire.NEWCOMER):
            peer.serve(lambda asked: self._observed(peer, asked), lambda _: None)
        elif hello.role == wire.BROKER:
            assert hello.id is not None
            self.driver.adopt(PeerId(hello.id), peer)
        else:
            self._number += 1
            self.driver.adopt(PeerId(self._number), peer)

    def _told_to_newcomers(self) -> dict[str, Any]:
        """What a broker needs to know of the network that it wants to join, besides grid and roster."""
        options = self.network.options.model_dump(exclude={"brokers", "host", "port", "version", "tls"})
        return {"lake": self.network.lake, "options": options}

    def _send(self, peer: Peer, greeting: wire.Welcome | wire.Sorry) -> None:
        if peer.link is not None:
            peer.link.send(wire.encode_greeting(greeting))

    def _closed(self, peer: PeerId, reason: str) -> None:
        if is_broker(peer):
            self._missed.discard(peer)
            self.log("link down", peer=peer, reason=reason)

    def _unreachable(self, peer: PeerId, error: SensorGridError | OSError) -> None:
        if peer not in self._missed:  # said once, until it is there again
            self._missed.add(peer)
            code = {"code": str(error.code)} if isinstance(error, wire.RefusedError) else {}
            self.log("cannot reach", peer=peer, reason=str(error), **code)

    # -- the pipeline

    def _publish(self, peer: Peer, message: bytes) -> None:
        try:
            block, values = wire.decode_publish(message)
        except wire.WireError as error:
            peer.close(1007, str(error))
            return
        region = self.roster.by_cell.get((block.attribute, block.cell))
        fault, code = "", wire.Refusal.WRONG
        if region is None:
            where = f"region {Cell(block.cell)} of attribute {block.attribute}"
            fault, code = (
                f"{where}: found none in roster {self.roster.version}, expected one",
                wire.Refusal.STALE,
            )
        elif region.owner != self.me or region.epoch != block.epoch:
            fault, code = self._stale(region, block.epoch), wire.Refusal.STALE
            if region.owner == self.me and block.epoch > region.epoch:  # so that it finds out
                self.driver.feed(_published(block, values))
        elif values is not None and values.shape != (shape := self._shape(block.cell)):
            fault = f"region {Cell(block.cell)}: found {values.shape} values, expected {shape}"
        elif not (0 <= block.tick <= self._tick_max() and 0 <= block.revision < REVISIONS_MAX):
            # What lies far ahead would make all that follows too old, and nobody could take it back.
            fault = (
                f"tick {block.tick}, revision {block.revision}: expected a tick up to {self._tick_max()}, a ring"
                f" ahead of this clock, and a revision below {REVISIONS_MAX}"
            )
        elif self.stopping or self.driver.failed.done():
            return  # not taken: somebody else, or this broker after its start, will be asked again
        elif self._is_full(block):
            return  # the broker would drop it; without an answer it is brought again
        else:
            self.published += 1
            self.driver.feed(_published(block, values))
        ack = wire.Ack(
            block.attribute, block.cell, block.tick, block.revision, fault, code.value if fault else ""
        )
        self._answer(peer, wire.encode_told(ack))

    def _stale(self, region: Region, epoch: int) -> str:
        return (
            f"region {Cell(region.cell)} of attribute {region.attribute}: found broker {self.me} and epoch {epoch},"
            f" expected broker {region.owner} and epoch {region.epoch} as in roster {self.roster.version}"
        )

    def _shape(self, cell: int) -> tuple[int, int]:
        box = box_of(self.network.grid, cell)
        return (box.y1 - box.y0, box.x1 - box.x0)

    def _tick_max(self) -> int:
        return self.network.grid.tick_at(datetime.now(UTC)) + self.network.settings.ring_ticks

    def _answer(self, peer: Peer, message: bytes) -> None:
        """Send to a publisher or observer, as long as it keeps reading."""
        if peer.link is not None:
            if peer.link.waiting > ANSWERS_BYTES_MAX:
                peer.close(1013, "reads too slowly")
            else:
                peer.link.send(message)

    def _is_full(self, block: wire.Publish) -> bool:
        """Whether the lake is being read for a region, and no more blocks can be kept until that is done."""
        supply = self.broker.boards.outlets.supplies.get(block.attribute, {}).get(block.cell)
        return supply is not None and supply.reading and len(supply.early) >= EARLY_MAX

    def _publisher_gone(self, peer: Peer) -> None:
        self._publishers.pop(peer, None)

    # -- those who look

    def status(self) -> wire.Status:
        """What an operator may want to know."""
        driver, broker = self.driver, self.broker
        streams = [
            wire.SupplyStatus(
                attribute=supply.attribute,
                cell=supply.cell,
                path=(self.me,) if supply.owned else None if supply.path is None else tuple(supply.path),
                receivers=len(supply.entries),
                brokers=tuple(sorted({e.peer for e in supply.entries.values() if is_broker(e.peer)})),
                points=supply.owed,
            )
            for supplies in broker.boards.outlets.supplies.values()
            for supply in supplies.values()
            if supply.entries
        ]
        return wire.Status(
            id=self.me,
            software=self._software,
            up_s=driver.loop.time() - self._began,
            clients=self.clients,
            peers=tuple(sorted(peer for peer in driver.peers if is_broker(peer))),
            published=self.published,
            values_bytes={str(peer): count for peer, count in driver.values_bytes.items()},
            sent_bytes={str(peer): count for peer, count in driver.sent_bytes.items()},
            clients_bytes=driver.clients_bytes,
            streams=tuple(streams),
            messages=dict(broker.kernel.counters.messages),
            roster=self.roster.version,
        )

    def receivers(self) -> wire.Receivers:
        """Who is fed, and with what: for each client the boxes that it wants."""
        boxes: dict[tuple[int, int, Clip], list[int]] = {}
        for supplies in self.broker.boards.outlets.supplies.values():
            for supply in supplies.values():
                for entry in supply.entries.values():
                    if entry.clip is not None:
                        found = boxes.setdefault((entry.peer, entry.attribute, entry.clip), [0, 0])
                        found[0] += 1
                        found[1] += entry.size
        shown = [
            wire.Receiver(client, attribute, clip.box, clip.limits, cells, points)
            for (client, attribute, clip), (cells, points) in islice(boxes.items(), RECEIVERS_MAX)
        ]
        return wire.Receivers(self.me, tuple(shown), len(boxes) - len(shown))

    def _observed(self, peer: Peer, asked: bytes) -> None:
        if peer.link is not None and not peer.link.waiting:  # else it has not even read the last one
            if asked == wire.ASK_RECEIVERS:
                self._answer(peer, wire.encode_receivers(self.receivers()))
            elif asked.startswith(wire.ASK_SENSORS):
                self._asked_for_sensors(peer, asked)
            else:
                self._answer(peer, wire.encode_status(self.status()))

    def _asked_for_sensors(self, peer: Peer, asked: bytes) -> None:
        if self.sensors.take(peer):
            self._spawn(self._alone(peer, self._tell_sensors(peer, asked)))

    async def _tell_sensors(self, peer: Peer, asked: bytes) -> None:
        try:
            told = await self.sensors.answer(asked, self.me, self.roster)
            self._answer(peer, wire.encode_sensors(told))
        finally:
            self.sensors.release(peer)

    # -- the lake

    def _effect(self, effect: Effect) -> None:
        if isinstance(effect, Adopted):
            roster = effect.roster
            if (fault := self._other_of_my_name(roster)) and not self.driver.failed.done():
                self.driver.failed.set_exception(NameTakenError(fault))
            mine = len(roster.by_owner.get(self.me, ()))
            self.log("roster", version=roster.version, brokers=len(roster.members), regions=mine)
            for publisher in [p for p in self._publishers if p.version >= 2]:
                self._answer(publisher, wire.encode_told(wire.newer_of(roster)))
        elif isinstance(effect, Propose):
            self._spawn(self._settle(effect.roster))
        elif isinstance(effect, Inquire):
            self._spawn(self._settle(None))
        elif isinstance(effect, Left):
            self.left.set()
        elif isinstance(effect, Recall):
            if not self._recalls:
                self.driver.loop.call_soon(lambda: self._spawn(self._recall()))
            self._recalls.append(effect)

    def _other_of_my_name(self, roster: Roster) -> str:
        """Of two brokers with one number, the one that comes second gives up: why, or nothing."""
        found = roster.by_id.get(self.me)
        if self.store is None or found is None or found.url in (self._url, self._url_before):
            return ""
        return f"broker {self.me}: found another one at {found.url}, expected it at {self._url}; take another --id"

    async def _settle(self, proposed: Roster | None) -> None:
        """Have the store decide, and tell the broker what it holds."""
        assert self.store is not None
        try:
            newest = await self.store.settle(proposed)
        except StoreError as error:
            unreached = (proposed is not None, str(error))
            if unreached != self._unreached:  # said once, until it is another fault, or none
                self._unreached = unreached
                self.log("store not reached", reason=str(error))
            self.driver.feed(Ruled(False))
            return
        if self._unreached is not None and (proposed is not None or not self._unreached[0]):
            self._unreached = None  # a disk that is full can be read, so reading proves nothing about writing
        if newest is not None:
            if newest.newer_than(self.roster) and (fault := newest.fault(self.network.grid, self.roster)):
                self.log("roster not taken", reason=f"{self.store.place}: {fault}")
            self.driver.feed(Learned(newest))
        self.driver.feed(Ruled(True))

    async def _recall(self) -> None:
        """Read what several regions need in one go per attribute, off the loop."""
        recalls, self._recalls = self._recalls, []
        grid = self.network.grid
        plain = [name for name in grid.attributes if not name.endswith(ERROR)]
        for name in plain:
            both = {grid.attributes.index(name): "values"}
            if name + ERROR in grid.attributes:
                both[grid.attributes.index(name + ERROR)] = "error"
            wanted = [r for r in recalls if r.attribute in both]
            if not wanted:
                continue
            regions = sorted({str(Cell(r.cell)) for r in wanted})
            tail = await self._tail(name, regions)
            for recall in wanted:
                region, shape = str(Cell(recall.cell)), self._shape(recall.cell)
                ticks = tail.get(both[recall.attribute], {}).get(region, [])
                fitting = tuple(t[:3] for t in ticks if t[2] is None or t[2].shape == shape)
                silent = tuple((tick, silent_s) for tick, _, _, silent_s in ticks if silent_s is not None)
                if len(fitting) < len(ticks):
                    self.log("lake of another grid", region=region, ticks=len(ticks) - len(fitting))
                self.driver.feed(Recalled(recall.attribute, recall.cell, recall.epoch, fitting, silent))
        self.log("lake read", regions=len(recalls))

    async def _tail(self, attribute: str, regions: list[str]) -> dict[str, dict[str, list[Tick]]]:
        for pause_s in LAKE_PAUSES_S:
            try:
                return await asyncio.to_thread(
                    read_tail, self.network.lake, attribute, regions, self.network.settings.ring_ticks
                )
            except Exception as error:  # whatever may be wrong with a file
                self.log("lake not read", attribute=attribute, reason=str(error), again_in_s=pause_s)
                await asyncio.sleep(pause_s)
        return {}  # live goes on; ticks before it are named as gaps

    def _spawn(self, work: Any) -> None:
        task = self.driver.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.driver.failed.done():
            self.driver.failed.set_exception(error)


class NameTakenError(RosterError):
    """Another broker has this number."""


def server_tls(cert_file: str, key_file: str) -> ssl.SSLContext:
    """TLS for peers that dial us."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert_file, key_file)
    return context


def client_tls(ca_file: str | None) -> ssl.SSLContext:
    """TLS for peers that we dial."""
    return ssl.create_default_context(cafile=ca_file)


def _published(block: wire.Publish, values: Any) -> Published:
    return Published(
        block.attribute, block.cell, block.tick, block.revision, block.epoch, values, block.silent_s
    )


def _list(versions: tuple[int, ...]) -> str:
    return ", ".join(map(str, versions))
