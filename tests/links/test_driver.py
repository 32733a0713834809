"""The driver: what waits is bounded, what belongs together goes together, who comes back is served."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nets import HELLO, Client, Net, network, run, until
from sensorgrid.links import driver as drivers
from sensorgrid.links import wire
from sensorgrid.links.driver import Driver, Peer, greet
from sensorgrid.links.link import Link, LinkError, dial, listen
from sensorgrid.model.ids import BROKERS_MAX, PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay import messages
from sensorgrid.overlay.codec import decode_all, encode
from sensorgrid.overlay.events import Connect, Effect, Event, PeerDown, PeerUp, Received, Send, Woke
from servers import PATIENCE_S, free_port

WORLD = Query("air_temperature")
ME, OTHER = PeerId(BROKERS_MAX), PeerId(7)


class Recorder:
    """An actor that notes events and does what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.wakeup: float | None = None

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.events.append(event)
        effects, self.effects = self.effects, []
        if isinstance(event, Woke):
            self.wakeup = None
        return effects

    def next_wakeup(self) -> float | None:
        return self.wakeup


class Server:
    """A broker of one line: greets everybody, notes what it hears."""

    def __init__(self, number: int = OTHER) -> None:
        self.number = number
        self.heard: list[bytes] = []
        self.peers: list[Peer] = []

    async def start(self, port: int = 0) -> "Server":
        self.listener = await listen("127.0.0.1", port, self._enter)
        self.url = f"ws://127.0.0.1:{self.listener.port}"
        return self

    def _enter(self) -> Peer:
        peer = Peer()
        self.peers.append(peer)
        peer.greeting.add_done_callback(lambda _: self._greeted(peer))
        return peer

    def _greeted(self, peer: Peer) -> None:
        if peer.greeting.exception() is None and peer.link is not None:
            peer.link.send(wire.encode_greeting(wire.Welcome(wire.VERSIONS[-1], self.number, {})))
            peer.serve(self.heard.append, lambda reason: None)


def driver_of(actor: Recorder, url: str | None) -> Driver:
    return Driver(actor, hello=lambda: HELLO, address_of=lambda peer: url, on_effect=lambda effect: None)


def test_small_messages_of_one_turn_travel_together_and_in_order() -> None:
    async def story() -> None:
        server, actor = await Server().start(), Recorder()
        driver = driver_of(actor, server.url)
        actor.effects = [Connect(OTHER)]
        driver.feed(Woke())
        await until(lambda: PeerUp(OTHER) in actor.events, "the connection")
        actor.effects = [Send(OTHER, messages.Leave(n, (n + 1,))) for n in range(5)]
        driver.feed(Woke())
        await until(lambda: server.heard, "a message")

        (together,) = server.heard

        assert [m.generation for m in decode_all(together)] == [0, 1, 2, 3, 4]  # type: ignore[union-attr]
        await driver.stop()
        server.listener.close()

    run(story)


def test_a_peer_that_is_just_being_started_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    async def noted(url: str, *args: Any, **options: Any) -> tuple[wire.Welcome, Peer]:
        tries.append(url)
        return await greet(url, *args, **options)

    monkeypatch.setattr(drivers, "greet", noted)

    async def story() -> None:
        port, actor = free_port(), Recorder()
        driver = driver_of(actor, f"ws://127.0.0.1:{port}")
        actor.effects = [Connect(OTHER)]
        driver.feed(Woke())
        await until(lambda: len(tries) == 2, "a try in vain")
        late = await Server().start(port)
        await until(lambda: PeerUp(OTHER) in actor.events, "the connection")

        assert PeerDown(OTHER) not in actor.events
        await driver.stop()
        late.listener.close()

    run(story)


@pytest.mark.parametrize("url", [None, "ws://127.0.0.1:9"])
def test_a_peer_that_cannot_be_reached_is_down(url: str | None) -> None:
    async def story() -> None:
        actor = Recorder()
        driver = driver_of(actor, url)
        actor.effects = [Connect(OTHER)]
        driver.feed(Woke())
        await until(lambda: PeerDown(OTHER) in actor.events, "the bad news")

        assert not driver.dialling
        assert not driver.failed.done()

    run(story)


def test_another_broker_at_the_address_is_not_taken_for_the_right_one() -> None:
    async def story() -> None:
        server, actor = await Server(number=8).start(), Recorder()
        driver = driver_of(actor, server.url)
        actor.effects = [Connect(OTHER)]
        driver.feed(Woke())
        await until(lambda: PeerDown(OTHER) in actor.events, "the bad news")

        assert PeerUp(OTHER) not in actor.events
        server.listener.close()

    run(story)


def test_a_bug_of_the_actor_ends_the_driver_and_not_the_loop() -> None:
    async def story() -> None:
        actor = Recorder()
        driver = driver_of(actor, None)

        def bug(event: Event, now: float) -> list[Effect]:
            raise ZeroDivisionError

        actor.handle = bug  # type: ignore[method-assign]
        driver.feed(Woke())

        assert isinstance(driver.failed.exception(), ZeroDivisionError)
        driver.feed(Woke())  # nothing more happens

    run(story)


def test_the_timer_rings_when_asked() -> None:
    async def story() -> None:
        actor = Recorder()
        driver = driver_of(actor, None)
        due = actor.wakeup = driver.loop.time() + 0.05
        driver.feed(PeerDown(OTHER))

        await until(lambda: Woke() in actor.events, "the timer")

        assert driver.loop.time() >= due

    run(story)


def test_a_greeting_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_last(url: str, *args: Any, **options: Any) -> Link:
        return await dial(url, *args, **(options | {"timeout_s": PATIENCE_S}))

    monkeypatch.setattr(drivers, "dial", at_last)  # only the greeting is short of time

    async def story() -> None:
        silent = await listen("127.0.0.1", 0, Peer)

        with pytest.raises(LinkError, match=r"found no greeting, expected one within 0\.1 s"):
            await greet(f"ws://127.0.0.1:{silent.port}", HELLO, timeout_s=0.1)

        silent.close()

    run(story)


def test_messages_that_come_before_the_actor_is_ready_are_not_lost() -> None:
    async def story() -> None:
        server, actor = await Server().start(), Recorder()
        _, peer = await greet(server.url, HELLO)
        await until(lambda: server.peers[0].on_message, "the greeting")
        link = server.peers[0].link
        assert link is not None
        for n in range(3):
            link.send(encode(messages.Leave(n, (1,))))
        await until(lambda: len(peer._backlog) == 3, "messages that nobody waits for yet")
        driver = driver_of(actor, None)
        driver.adopt(OTHER, peer)
        await until(lambda: len(actor.events) == 4, "three messages")

        assert actor.events[0] == PeerUp(OTHER)
        got = [e.message.generation for e in actor.events if isinstance(e, Received)]  # type: ignore[union-attr]
        assert got == [0, 1, 2]
        await driver.stop()
        server.listener.close()

    run(story)


def test_a_reader_that_stands_still_is_disconnected_and_harms_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        large = {"shape": [512, 256], "resolution_bits": 2}
        async with Net(network(tmp_path, 1, large, waiting_bytes=1 << 20)) as net:
            good = await net.client()
            good.pose(WORLD)
            stuck = await Client.at(net.url(0))
            stuck.pose(WORLD)
            await net.publish()
            await until(lambda: stuck.has(WORLD, 0), "its first tick")
            link = stuck.driver.peers[PeerId(0)].link
            link._under.pause_reading()  # type: ignore[union-attr]
            host = net.hosts[PeerId(0)]

            for _ in range(60):
                await net.publish()
                waiting = [p.link.waiting for p in host.driver.peers.values() if p.link is not None]
                assert max(waiting) < 4 << 20
                if len(host.driver.peers) == 1:
                    break
            last = net.tick - 1
            await until(lambda: good.has(WORLD, last), "the last tick for the other")

            assert len(host.driver.peers) == 1
            assert (good.doubled, good.gaps) == (0, [])
            assert all(good.has(WORLD, t) for t in range(net.tick))
            link._under.resume_reading()  # type: ignore[union-attr]
            await until(lambda: stuck.has(WORLD, last), "what it missed, as it reads again")
            assert (stuck.doubled, stuck.gaps) == (0, [])
            await stuck.driver.stop()

    run(story)


def test_queries_of_one_client_are_told_apart(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            client = await net.client()
            east = Query("air_temperature", bbox=(0, 0, 90, 45))
            client.pose(WORLD, query=1)
            client.pose(east, query=2)
            await net.publish()
            await until(lambda: client.has(WORLD, 0) and client.has(east, 0, query=2), "both")

            client.cancel(1)
            await net.publish()
            await until(lambda: client.has(east, 1, query=2), "the other goes on")

            assert 1 not in client.ticks[QueryId(1), 0]

    run(story)


def test_a_dial_of_something_else_fails_in_words() -> None:
    async def story() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example ESMTP\r\n")
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        with pytest.raises(LinkError, match=f"link to ws://127.0.0.1:{port}"):
            await dial(f"ws://127.0.0.1:{port}", Peer())

        server.close()

    run(story)
