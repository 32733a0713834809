"""Links: whole messages in order, on both loops, with and without TLS; nonsense and silence end one link only."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trustme
import uvloop

from nets import until
from sensorgrid.links import link as links
from sensorgrid.links.link import Link, LinkError, Listener, dial, listen
from servers import PATIENCE_S

UPGRADE = (
    "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: {}\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)
BINARY, TEXT, CONTINUATION, CLOSE, PING, PONG = 2, 1, 0, 8, 9, 10


class Ear:
    """A handler that notes everything."""

    def __init__(self) -> None:
        self.link: Link
        self.opens = 0
        self.heard: list[bytes] = []
        self.ends: list[str] = []

    def opened(self, link: Link) -> None:
        self.link = link
        self.opens += 1

    def received(self, message: bytes) -> None:
        assert type(message) is bytes
        self.heard.append(message)

    def closed(self, reason: str) -> None:
        self.ends.append(reason)


class Stage:
    """A listener with its ears, and certificates if there is TLS."""

    def __init__(self, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None) -> None:
        self.server_tls, self.client_tls = tls or (None, None)
        self.ears: list[Ear] = []
        self.listener: Listener

    async def start(self, **options: Any) -> None:
        def enter() -> Ear:
            self.ears.append(Ear())
            return self.ears[-1]

        self.listener = await listen("127.0.0.1", 0, enter, tls=self.server_tls, **options)

    @property
    def url(self) -> str:
        return f"{'ws' if self.client_tls is None else 'wss'}://127.0.0.1:{self.listener.port}"

    async def pair(self) -> tuple[Ear, Ear]:
        """A link, as the dialling and as the accepting side see it."""
        ear, before = Ear(), len(self.ears)
        await dial(self.url, ear, tls=self.client_tls)
        await until(lambda: len(self.ears) > before and self.ears[-1].opens, "the other side")
        return ear, self.ears[-1]

    async def raw(self, connection: str = "Upgrade") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client of bare hands, upgraded."""
        reader, writer = await self.bare()
        writer.write(UPGRADE.format(connection).encode())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    async def bare(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.listener.port, ssl=self.client_tls, limit=1 << 16
        )

    async def stop(self) -> None:
        self.listener.close()
        await self.listener.wait_closed()


Story = Callable[[Stage], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture(scope="module")
def certificates() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


@pytest.fixture(params=["asyncio", "asyncio, TLS", "uvloop", "uvloop, TLS"])
def play(request: pytest.FixtureRequest) -> Play:
    kind = request.param
    stage = Stage(request.getfixturevalue("certificates") if "TLS" in kind else None)

    def run(story: Story, **options: Any) -> None:
        async def whole() -> None:
            await stage.start(**options)
            try:
                await story(stage)
            finally:
                await stage.stop()

        factory = uvloop.new_event_loop if "uvloop" in kind else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(whole(), PATIENCE_S))

    return run


def frame(kind: int, payload: bytes, first: int = 0x80, mask: bytes | None = b"\x01\x02\x03\x04") -> bytes:
    """A frame as a client sends it."""
    size = len(payload)
    masked = 0 if mask is None else 0x80
    length = (
        bytes((size | masked,))
        if size < 126
        else bytes((126 | masked,)) + struct.pack(">H", size)
        if size < 1 << 16
        else bytes((127 | masked,)) + struct.pack(">Q", size)
    )
    if mask is not None:
        payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    return bytes((first | kind,)) + length + (mask or b"") + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, size = await reader.readexactly(2)
    if size == 126:
        (size,) = struct.unpack(">H", await reader.readexactly(2))
    elif size == 127:
        (size,) = struct.unpack(">Q", await reader.readexactly(8))
    assert first & 0x80
    return first & 15, await reader.readexactly(size)


async def read_close(reader: asyncio.StreamReader) -> int:
    kind, payload = await asyncio.wait_for(read_frame(reader), PATIENCE_S)
    assert kind == CLOSE
    return int.from_bytes(payload[:2])


# -- messages


def test_messages_arrive_whole_and_in_order_both_ways(play: Play) -> None:
    sizes = (0, 1, 125, 126, 127, 65_535, 65_536, 300_000, 5_000_000, 3)
    messages = [bytes([n]) * size for n, size in enumerate(sizes)]

    async def story(stage: Stage) -> None:
        here, there = await stage.pair()
        for message in messages:
            here.link.send(message)
            there.link.send(message[: len(message) // 2], message[len(message) // 2 :])
        await until(lambda: len(here.heard) == len(there.heard) == len(sizes), "all messages")

        assert here.heard == there.heard == messages
        assert here.link.waiting == there.link.waiting == 0

    play(story)


def test_one_body_goes_to_many_links_behind_different_heads(play: Play) -> None:
    body = bytes(range(256)) * 1000

    async def story(stage: Stage) -> None:
        pairs = [await stage.pair() for _ in range(10)]
        for number, (_, there) in enumerate(pairs):
            there.link.send(b"head %d " % number, memoryview(body))
        await until(lambda: all(here.heard for here, _ in pairs), "all messages")

        assert [here.heard for here, _ in pairs] == [[b"head %d " % n + body] for n in range(10)]

    play(story)


def test_what_a_slow_reader_does_not_take_waits_and_arrives_in_order(play: Play) -> None:
    body, count = bytes(100_000), 200

    async def story(stage: Stage) -> None:
        reader, writer = await stage.raw()
        await until(lambda: stage.ears and stage.ears[0].opens, "the link")
        there = stage.ears[0].link
        for number in range(count):
            there.send(b"%05d" % number, body)
        waiting = there.waiting

        assert count * len(body) > waiting > 4_000_000
        for number in range(count):
            assert await read_frame(reader) == (BINARY, b"%05d" % number + body)
        await until(lambda: there.waiting == 0, "an empty link")
        writer.close()

    play(story)


def test_a_message_in_several_frames_is_one_message(play: Play) -> None:
    async def story(stage: Stage) -> None:
        _, writer = await stage.raw("keep-alive, Upgrade")
        writer.write(
            frame(BINARY, b"one", first=0) + frame(PING, b"") + frame(CONTINUATION, b" two", first=0)
        )
        writer.write(frame(CONTINUATION, b" three") + frame(BINARY, b"four"))
        await until(lambda: stage.ears and len(stage.ears[0].heard) == 2, "two messages")

        assert stage.ears[0].heard == [b"one two three", b"four"]
        writer.close()

    play(story)


def test_a_ping_is_answered(play: Play) -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.raw()
        writer.write(frame(PING, b"are you there"))

        assert await read_frame(reader) == (PONG, b"are you there")
        writer.close()

    play(story)


# -- nonsense


@pytest.mark.parametrize(
    ("nonsense", "code"),
    [
        (frame(TEXT, b"hello"), 1003),
        (frame(BINARY, bytes(10_001)), 1009),
        (frame(BINARY, bytes(6000), first=0) + frame(CONTINUATION, bytes(6000)), 1009),
        (frame(BINARY, b"hello", mask=None), 1002),
        (frame(BINARY, b"hello", first=0xC0), 1002),
        (frame(CONTINUATION, b"hello"), 1002),
        (frame(BINARY, b"hello", first=0) + frame(BINARY, b"hello"), 1002),
        (frame(3, b"hello"), 1002),
        (frame(PING, bytes(126)), 1002),
    ],
    ids=["text", "too long", "too long in parts", "not masked", "reserved bits", "no beginning", "no end",
         "unknown kind", "long ping"],
)  # fmt: skip
def test_nonsense_is_refused_with_its_code_and_others_go_on(play: Play, nonsense: bytes, code: int) -> None:
    async def story(stage: Stage) -> None:
        here, there = await stage.pair()
        reader, writer = await stage.raw()
        writer.write(nonsense)

        assert await read_close(reader) == code
        writer.write(frame(CLOSE, struct.pack(">H", code)))
        await until(lambda: stage.ears[1].ends, "the end")
        assert stage.ears[1].heard == []
        assert str(code) in stage.ears[1].ends[0]
        here.link.send(b"still here")
        await until(lambda: there.heard, "the other link")
        writer.close()

    play(story, message_bytes_max=10_000)


@pytest.mark.parametrize(
    "request_", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /favicon.ico HTTP/1.1\r\nHost: x\r\n\r\n",
                 b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", b"GET / HTTP/1.0\r\n\r\n", b"hello\r\n\r\n"],
)  # fmt: skip
def test_who_speaks_no_websocket_reads_why(play: Play, request_: bytes) -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.bare()
        writer.write(request_)
        head, _, text = (await asyncio.wait_for(reader.read(), PATIENCE_S)).partition(b"\r\n\r\n")

        assert head.startswith(b"HTTP/1.1 4")
        assert len(text) > 10
        assert stage.ears == []
        writer.close()
        await stage.pair()

    play(story)


def test_who_says_nothing_is_cut_off(play: Play) -> None:
    async def story(stage: Stage) -> None:
        for _ in range(2):  # the listener goes on
            # On a busy machine it may be cut off before TLS is agreed on, or with a reset.
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                reader, writer = await stage.bare()
                with contextlib.closing(writer):
                    assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""

    play(story, timeout_s=0.3)


def test_who_says_nothing_keeps_nobody_from_coming(play: Play) -> None:
    async def story(stage: Stage) -> None:
        _, writer = await stage.bare()
        await stage.pair()
        writer.close()

    play(story)


def test_bytes_of_nobody_end_only_their_connection(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        here, there = await stage.pair()
        for junk in (
            b"\x16\x03\x01" + bytes(300),
            b"\xff" * 20_000,
            b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", stage.listener.port)
            writer.write(junk)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):  # it may be cut off while there is more to read
                await asyncio.wait_for(reader.read(), PATIENCE_S)
            writer.close()
        here.link.send(b"still here")
        await until(lambda: there.heard, "the other link")

    play(story)

    assert [r.getMessage() for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")] == []


# -- ends


def test_a_close_is_told_to_both_with_code_and_reason(play: Play) -> None:
    async def story(stage: Stage) -> None:
        for code, dialler_closes in ((1000, True), (4001, True), (1013, False)):
            here, there = await stage.pair()
            first, second = (here, there) if dialler_closes else (there, here)
            first.link.send(b"last words")
            first.link.close(code, "enough")
            first.link.close(1011, "again")
            first.link.send(b"never said")
            await until(lambda a=here, b=there: a.ends and b.ends, "both ends")

            assert second.heard == [b"last words"]
            assert first.ends == [f"closed here: {code} enough"]
            assert second.ends == [f"closed by the peer: {code} enough"]

    play(story)


def test_a_peer_that_vanishes_is_a_lost_connection(play: Play) -> None:
    async def story(stage: Stage) -> None:
        _, writer = await stage.raw()
        writer.transport.abort()
        await until(lambda: stage.ears and stage.ears[0].ends, "the end")

        assert stage.ears[0].ends == ["connection lost"]
        stage.ears[0].link.send(b"to nobody")
        assert stage.ears[0].link.waiting == 0

    play(story)


def test_a_peer_that_reads_no_more_is_cut_off_some_time_after_the_close(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "CLOSE_S", 0.3)

    async def story(stage: Stage) -> None:
        _, writer = await stage.raw()
        await until(lambda: stage.ears and stage.ears[0].opens, "the link")
        ear = stage.ears[0]
        ear.link.send(bytes(30_000_000))
        ear.link.close(1013, "too slow")

        await until(lambda: ear.ends, "the end")
        assert ear.ends == ["closed here: 1013 too slow"]
        writer.transport.abort()

    play(story)


def test_a_listener_that_closes_tells_its_links(play: Play) -> None:
    async def story(stage: Stage) -> None:
        pairs = [await stage.pair() for _ in range(3)]
        stage.listener.close()
        await stage.listener.wait_closed()
        await until(lambda: all(here.ends for here, _ in pairs), "all ends")

        assert {reason for here, _ in pairs for reason in here.ends} == {
            "closed by the peer: 1001 the server stops"
        }
        with pytest.raises(LinkError):
            await dial(stage.url, Ear(), tls=stage.client_tls)

    play(story)


def test_a_handler_that_fails_ends_its_link_and_is_told_to_the_loop(play: Play) -> None:
    async def story(stage: Stage) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        here, there = await stage.pair()
        there.received = lambda message: 1 / 0  # type: ignore[assignment,method-assign]
        here.link.send(b"hello")
        await until(lambda: here.ends and there.ends, "both ends")

        assert here.ends == ["closed by the peer: 1011 internal error"]
        assert [type(context["exception"]) for context in told] == [ZeroDivisionError]

    play(story)


# -- dialling


def test_dialling_where_nobody_answers_says_so(play: Play) -> None:
    async def story(stage: Stage) -> None:
        scheme = stage.url.split(":")[0]
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            closed = silent.getsockname()[1]
            with pytest.raises(LinkError, match=str(closed)):
                await dial(f"{scheme}://127.0.0.1:{closed}", Ear(), tls=stage.client_tls)
            silent.listen()
            with pytest.raises(LinkError, match=r"within 0\.3 s"):
                await dial(f"{scheme}://127.0.0.1:{closed}", Ear(), tls=stage.client_tls, timeout_s=0.3)

    play(story)


def test_dialling_somebody_who_speaks_otherwise_says_so(play: Play) -> None:
    async def story(stage: Stage) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            await writer.drain()
            writer.close()

        other = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=stage.server_tls)
        port = other.sockets[0].getsockname()[1]
        with pytest.raises(LinkError, match="200"):
            await dial(f"{stage.url.split(':')[0]}://127.0.0.1:{port}", Ear(), tls=stage.client_tls)
        other.close()

    play(story)


def test_a_certificate_that_nobody_vouches_for_is_refused(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async def story() -> None:
        listener = await listen("127.0.0.1", 0, Ear, tls=certificates[0])
        with pytest.raises(LinkError, match="certificate"):
            await dial(f"wss://127.0.0.1:{listener.port}", Ear())
        with pytest.raises(LinkError, match="expected wss"):
            await dial(f"ws://127.0.0.1:{listener.port}", Ear(), tls=certificates[1])
        listener.close()

    asyncio.run(story())
