"""Drives a broker or a client over real connections: one event in, the effects applied in order, one timer.

This is all that differs between the simulator and the runtime. A `Driver` owns the connections of one actor: it dials
where the actor says `Connect`, turns messages into bytes and bytes into messages, and says `PeerUp` and `PeerDown`.
What the actor does for its user (`Deliver`, `Reply`, `Recall`) is handed to `on_effect`.

Small messages of one turn of the loop go out together. Values that several receivers want are encoded once, and the
same bytes go to every link. A receiver for which more than `waiting_bytes_max` waits is disconnected. It asks again
from the tick that it needs, other receivers notice nothing, and memory stays bounded.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeAlias

from sensorgrid.links import wire
from sensorgrid.links.fan import SLOTS, Fan, fits
from sensorgrid.links.link import ANSWER_S, End, Link, LinkError, dial
from sensorgrid.links.packing import pack, unpack
from sensorgrid.model.block import Slab
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.codec import CodecError, as_of, body_of, decode_all, head_of
from sensorgrid.overlay.events import (
    Actor,
    Batch,
    Connect,
    Disconnect,
    Effect,
    Event,
    Learned,
    PeerDown,
    PeerUp,
    Received,
    Send,
    Spread,
    Woke,
)
from sensorgrid.overlay.forwarding import ReceiverGroup, SendPlan
from sensorgrid.overlay.messages import VERSION, Feed, Message

WAITING_BYTES_MAX = 16 << 20
BACKLOG_MAX = 10_000
"""messages that may come between a greeting and the first turn of the actor"""
DIAL_S = 5.0
"""how long a peer may take to answer before another broker is tried, or this one again"""
RETRY_S = (0.05, 0.1, 0.2, 0.4)
"""pauses between attempts to reach a peer that refuses, for example because it is restarting"""
TOO_SLOW = 1013

Tap: TypeAlias = Callable[[Instant, Event, list[Effect]], None]


class Peer:
    """One connection: a greeting, then messages. Implements `sensorgrid.links.link.Handler`."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.packs = False
        """values are compressed on this connection"""
        self.version = VERSION
        """of the wire, that both ends speak"""
        self.greeting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        """the first message of the other side"""
        self.on_message: Callable[[bytes], None] | None = None
        self.on_closed: Callable[[str], None] | None = None
        self.gone: str | None = None
        """why it is closed"""
        self.ended = asyncio.Event()
        self.number: PeerId | None = None
        """whose it is, once it is in use"""
        self.small: list[bytes] = []
        """messages that go out at the end of this turn"""
        self._backlog: list[bytes] = []

    def opened(self, link: Link) -> None:
        """See `Handler`."""
        self.link = link

    def received(self, message: bytes) -> None:
        """See `Handler`."""
        if not self.greeting.done():
            self.greeting.set_result(message)
        elif self.on_message is not None:
            self.on_message(message)
        elif len(self._backlog) < BACKLOG_MAX:
            self._backlog.append(message)
        else:
            self.close(1008, "found too much, expected to be greeted first")

    def closed(self, reason: str) -> None:
        """See `Handler`."""
        self.gone = reason
        self.ended.set()
        if not self.greeting.done():
            self.greeting.set_exception(LinkError(f"connection: {reason}"))
            self.greeting.exception()  # whoever waited has given up, perhaps: no warning for that
        if self.on_closed is not None:
            self.on_closed(reason)

    def serve(self, on_message: Callable[[bytes], None], on_closed: Callable[[str], None]) -> None:
        """From now on, call these with what arrives, beginning with messages that have already come."""
        self.on_message, self.on_closed = on_message, on_closed
        backlog, self._backlog = self._backlog, []
        for message in backlog:
            on_message(message)
        if self.gone is not None:
            on_closed(self.gone)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """End it."""
        if self.link is not None:
            self.link.close(code, reason)


async def greet(
    url: str, hello: wire.Hello, *, tls: ssl.SSLContext | None = None, timeout_s: float = ANSWER_S
) -> tuple[wire.Welcome, Peer]:
    """Open a connection and introduce ourselves.

    Raises
    ------
    LinkError
        If the peer is not there or does not answer in time.
    RefusedError
        If the other side does not want us.
    WireError
        If it speaks another language.
    """
    peer = Peer()
    await dial(url, peer, tls=tls, timeout_s=timeout_s)
    try:
        assert peer.link is not None
        peer.link.send(wire.encode_greeting(hello))
        async with asyncio.timeout(timeout_s):
            answer = wire.decode_greeting(await peer.greeting)
        if isinstance(answer, wire.Sorry):
            raise wire.RefusedError(answer.reason, answer.code, answer.roster)
        if not isinstance(answer, wire.Welcome) or answer.version not in hello.versions:
            raise wire.WireError(
                f"{url}: found another answer, expected a welcome in one of {hello.versions}"
            )
    except TimeoutError:
        peer.close()
        raise LinkError(f"link to {url}: found no greeting, expected one within {timeout_s:g} s") from None
    except BaseException:
        peer.close()
        raise
    peer.packs = bool(answer.compress)
    peer.version = answer.version
    return answer, peer


class Driver:
    """Connections of one actor, and its clock."""

    def __init__(
        self,
        actor: Actor,
        *,
        hello: Callable[[], wire.Hello],
        address_of: Callable[[PeerId], str | None],
        on_effect: Callable[[Effect], None],
        tls: ssl.SSLContext | None = None,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        self.actor = actor
        self.loop = asyncio.get_running_loop()
        self.peers: dict[PeerId, Peer] = {}
        self.dialling: dict[PeerId, asyncio.Task[None]] = {}
        self.failed: asyncio.Future[None] = self.loop.create_future()
        """set when the actor has a bug: its state cannot be trusted any longer"""
        self.tap: Tap | None = None
        """sees all that happens, for records and tests"""
        self.on_closed: Callable[[PeerId, str], None] | None = None
        """told why a connection ended, for logs"""
        self.on_unreachable: Callable[[PeerId, SensorGridError | OSError], None] | None = None
        """told why one could not be made"""
        self.sent_bytes: dict[PeerId, int] = {}
        """of all messages to each broker"""
        self.values_bytes: dict[PeerId, int] = {}
        """of values to each broker, before compression"""
        self.clients_bytes = 0
        """of values to clients, before compression"""
        self._hello = hello
        self._address_of = address_of
        self._on_effect = on_effect
        self._tls = tls
        self._waiting_bytes_max = waiting_bytes_max
        self._timer: asyncio.TimerHandle | None = None
        self._due: Instant | None = None
        """when the timer rings; uvloop does not tell"""
        self._dirty: list[Peer] = []
        self._stopped = False

    # -- events

    def feed(self, event: Event) -> None:
        """One event, and all that follows from it."""
        if self._stopped or self.failed.done():
            return
        try:
            self._turn(event, self.loop.time())
        except Exception as error:
            self.failed.set_exception(error)

    def _turn(self, event: Event, now: Instant) -> None:
        effects = self.actor.handle(event, now)
        if self.tap is not None:
            self.tap(now, event, effects)
        bodies: dict[int, bytes] = {}  # by identity: the effects keep the slabs alive until we are done
        for effect in effects:
            if type(effect) is Send:
                self._send(effect.peer, effect.message, bodies)
            elif type(effect) is Spread:
                self._spread(effect)
            elif type(effect) is Connect:
                self._connect(effect.peer)
            elif type(effect) is Disconnect:
                self._disconnect(effect.peer)
            else:
                self._on_effect(effect)
        self._arm()

    def adopt(self, peer: PeerId, connection: Peer) -> None:
        """A connection is open and both sides have been introduced."""
        old = self.peers.pop(peer, None)
        if old is not None:
            old.on_closed = None
            old.close(1000, "replaced by a newer connection")
        dialling = self.dialling.pop(peer, None)
        if dialling is not None and dialling is not asyncio.current_task():
            dialling.cancel()
        self.peers[peer] = connection
        connection.number = peer
        self.feed(PeerUp(peer, connection.version))
        connection.serve(
            lambda message: self._received(peer, connection, message),
            lambda reason: self._lost(peer, connection, reason),
        )

    async def stop(self, code: int = 1001, reason: str = "stops") -> None:
        """Close all connections, after what was sent on them; the actor hears nothing any more."""
        self._flush()
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        dials = list(self.dialling.values())
        for task in dials:
            task.cancel()
        await asyncio.gather(*dials, return_exceptions=True)
        peers = list(self.peers.values())
        self.peers.clear()
        for peer in peers:
            peer.on_closed = None
            peer.close(code, reason)
        await asyncio.gather(*(peer.ended.wait() for peer in peers if peer.link is not None))

    def _received(self, peer: PeerId, connection: Peer, message: bytes) -> None:
        if self.peers.get(peer) is not connection:
            return
        try:
            # Values come from brokers only: no other peer can make us decompress anything.
            found = decode_all(message, unpack if connection.packs and is_broker(peer) else None)
        except CodecError as error:
            connection.close(1007, str(error))
            self._lost(peer, connection, str(error))
            return
        self.feed(Received(peer, found[0]) if len(found) == 1 else Batch(peer, tuple(found)))

    def _lost(self, peer: PeerId, connection: Peer, reason: str) -> None:
        if self.peers.get(peer) is connection:
            del self.peers[peer]
            connection.on_closed = None
            if self.on_closed is not None:
                self.on_closed(peer, reason)
            self.feed(PeerDown(peer))

    def _arm(self) -> None:
        due = self.actor.next_wakeup()
        if due == self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = None if due is None else self.loop.call_at(due, self._woke)

    def _woke(self) -> None:
        self._timer = self._due = None
        self.feed(Woke())

    # -- effects

    def _send(self, peer: PeerId, message: Message, bodies: dict[int, bytes]) -> None:
        connection = self.peers.get(peer)
        if connection is None or connection.link is None:
            return
        if connection.version < VERSION:
            if message.since > connection.version:
                return
            message = as_of(message, connection.version)
        if type(message) is not Feed or not message.slabs:
            if not connection.small:
                if not self._dirty:
                    self.loop.call_soon(self._flush)
                self._dirty.append(connection)
            connection.small.append(head_of(message))
            if is_broker(peer):
                self._count(peer, 0, len(connection.small[-1]))
            return
        slabs: tuple[Slab, ...] = message.slabs
        body = bodies.get(id(slabs) + connection.packs)  # addresses are even
        if body is None:
            body = pack(body_of(slabs)) if connection.packs else body_of(slabs)
            bodies[id(slabs) + connection.packs] = body
        head = head_of(message, connection.packs)
        values_bytes = sum(slab.values.nbytes for slab in slabs)
        if is_broker(peer):
            self._count(peer, values_bytes, len(head) + len(body))
        else:
            self.clients_bytes += values_bytes
        if connection.small:
            head = b"".join((*connection.small, head))
            connection.small.clear()
        link = connection.link
        link.send(head, body)
        if link.waiting > self._waiting_bytes_max:
            self.loop.call_soon(self._too_slow, peer, connection)

    def _count(self, broker: PeerId, values_bytes: int, all_bytes: int) -> None:
        self.values_bytes[broker] = self.values_bytes.get(broker, 0) + values_bytes
        self.sent_bytes[broker] = self.sent_bytes.get(broker, 0) + all_bytes

    def _spread(self, effect: Spread) -> None:
        """A block for many: those whose links allow it are served in one go."""
        self._flush()
        plan, tick, slab = effect.plan, effect.tick, effect.slab
        if not fits(slab):
            for group in plan.groups:
                self._send_group(group, group.peers, tick, slab)
            return
        fan: Fan | None = plan.memo
        if fan is None or fan.epoch != SLOTS.epoch:
            fan = plan.memo = Fan(plan, self._places(plan))
        sending = fan.send(tick, slab.values)
        while (rest := sending.step()) is not None:
            self._send_frame(*rest)
        for cut, peers in fan.others:
            frame = cut.frame(tick, slab.values)
            for peer in peers:
                self._send_frame(peer, frame)
        for group, peers in fan.odd:
            self._send_group(group, peers, tick, slab)
        self.clients_bytes += fan.clients_bytes
        for peer, (values_bytes, all_bytes) in fan.brokers.items():
            self._count(peer, values_bytes, all_bytes)

    def _places(self, plan: SendPlan) -> dict[PeerId, int | None]:
        """Receivers to which frames may be sent; those with a slot, even past their links."""
        places: dict[PeerId, int | None] = {}
        for group in plan.groups:
            for peer in group.peers:
                connection = self.peers.get(peer)
                if connection is not None and not connection.packs and connection.version == VERSION:
                    link = connection.link
                    if isinstance(link, End) and link.accepted:
                        places[peer] = link.place
        return places

    def _send_group(self, group: ReceiverGroup, peers: tuple[PeerId, ...], tick: int, slab: Slab) -> None:
        """The same message to several."""
        feed = group.feed(tick, slab)
        bodies: dict[int, bytes] = {}
        for peer in peers:
            self._send(peer, feed, bodies)

    def _send_frame(self, peer: PeerId, frame: bytes | memoryview) -> None:
        connection = self.peers.get(peer)
        if connection is None:
            return
        link = connection.link
        if isinstance(link, End):
            link.send_frame(frame)
            if link.waits and link.waiting > self._waiting_bytes_max:
                self.loop.call_soon(self._too_slow, peer, connection)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            link = connection.link
            if connection.small and link is not None:
                link.send(b"".join(connection.small))
                if link.waiting > self._waiting_bytes_max and connection.number is not None:
                    self.loop.call_soon(self._too_slow, connection.number, connection)
            connection.small.clear()

    def _too_slow(self, peer: PeerId, connection: Peer) -> None:
        if self.peers.get(peer) is connection:
            connection.close(TOO_SLOW, "reads too slowly: ask again from the tick that you need")
            self._lost(peer, connection, "reads too slowly")

    def _disconnect(self, peer: PeerId) -> None:
        task = self.dialling.pop(peer, None)
        if task is not None:
            task.cancel()
        connection = self.peers.pop(peer, None)
        if connection is not None:
            if connection.small and connection.link is not None:
                connection.link.send(b"".join(connection.small))
                connection.small.clear()
            connection.on_closed = None
            connection.close(1000, "no longer needed")

    def _connect(self, peer: PeerId) -> None:
        if peer not in self.dialling:
            task = self.loop.create_task(self._dial(peer))
            self.dialling[peer] = task
            task.add_done_callback(lambda done: self._dialled(peer, done))

    async def _dial(self, peer: PeerId) -> None:
        url = self._address_of(peer)
        if url is None:
            raise LinkError(f"broker {peer}: found no address, expected one")
        for pause_s in (*RETRY_S, None):
            try:
                welcome, connection = await greet(url, self._hello(), tls=self._tls, timeout_s=DIAL_S)
            except (LinkError, wire.RefusedError) as error:
                code = ""
                if isinstance(error, wire.RefusedError):
                    code = error.code
                    if error.roster is not None:
                        self.feed(Learned(wire.roster_from(error.roster)))
                if pause_s is None or code not in ("", wire.NoConnection.CROSSED, wire.NoConnection.UNKNOWN):
                    raise
                await asyncio.sleep(pause_s)
                continue
            if welcome.id != peer:
                connection.close()
                raise LinkError(f"{url}: found broker {welcome.id}, expected {peer}")
            if welcome.roster is not None:
                self.feed(Learned(wire.roster_of(welcome)))
            self.adopt(peer, connection)
            return

    def _dialled(self, peer: PeerId, task: asyncio.Task[None]) -> None:
        if self.dialling.get(peer) is task:
            del self.dialling[peer]
            if not task.cancelled() and (error := task.exception()) is not None:
                if not isinstance(error, SensorGridError | OSError):
                    if not self.failed.done():
                        self.failed.set_exception(error)
                    return
                if self.on_unreachable is not None:
                    self.on_unreachable(peer, error)
                self.feed(PeerDown(peer))
        elif not task.cancelled():
            task.exception()  # seen
