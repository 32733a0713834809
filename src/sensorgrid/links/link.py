"""One WebSocket connection, as brokers and clients use it: whole binary messages, in order, none lost.

`picows` speaks the protocol. A message is a head and a body: a server writes a frame's header and the head as one
small buffer and the body as it is, in one system call and without a copy, so the same body can go to thousands of
links. What the kernel does not take at once waits in the link, by reference if the body is `bytes`, and `waiting` says
how much that is; a link never refuses a message, its user decides how much may wait. A client's frames are masked (RFC
6455, section 5.3), hence copied: bulk data flows from the side that was dialled.

For one message to many links at once see `sensorgrid.links.fan`.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import urlsplit

import picows

from sensorgrid.links.fan import AVAILABLE, NEVER, SLOTS, frame_header, prepare
from sensorgrid.model.errors import SensorGridError

MESSAGE_BYTES_MAX = 64 << 20
ANSWER_S = 20.0
"""how long either side may take to open a connection; on a busy machine, a process may have to wait for seconds"""
CLOSE_S = 5.0
"""how long a peer may take to answer a close; a slow one may have much to read before it"""
SEND_BIO_BYTES = 4 * (16 * 1024 + 64)
"""encrypted bytes per system call: four records; more only costs memory per connection"""
RECEIVE_BIO_BYTES = 2 * (16 * 1024 + 64)

_HINT = b"This is a port of Sensorgrid for its own clients, over WebSocket; a browser finds nothing here.\n"
_quiet = logging.getLogger("sensorgrid.links.frames")
_quiet.setLevel(logging.CRITICAL)  # reasons reach the handler; a peer's nonsense is not worth a line each


class LinkError(SensorGridError, ConnectionError):
    """A connection that cannot be made."""


class Handler(Protocol):
    """The user of a link. Called by the loop, one call at a time: `opened`, then `received` often, then `closed`."""

    def opened(self, link: "Link") -> None:
        """The connection is there; may send at once."""

    def received(self, message: bytes) -> None:
        """One whole binary message, which is the callee's. Not called after `close`."""

    def closed(self, reason: str) -> None:
        """The connection is gone, whichever side ended it. The last call."""


class Link(Protocol):
    """One end of a connection."""

    remote: str
    """address and port of the other end"""

    def send(self, head: bytes, body: bytes | memoryview = b"") -> None:
        """Send one message, head and body in one. After `close` or the loss of the connection, does nothing."""

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye, after all that was sent; `closed` follows, at the latest after `CLOSE_S`."""

    @property
    def waiting(self) -> int:
        """Bytes that the kernel has not taken yet."""


class Listener:
    """A port that accepts links."""

    def __init__(self) -> None:
        self._server: asyncio.AbstractServer | None = None
        self._ends: dict[End, None] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self.port = 0
        """the one bound, also if any was asked for"""

    def close(self, code: int = 1001, reason: str = "the server stops") -> None:
        """Accept no more, and close what is open."""
        if self._server is not None:
            self._server.close()
        for end in list(self._ends):
            end.close(code, reason)

    async def wait_closed(self) -> None:
        """Until the last link is gone."""
        await self._empty.wait()

    def _enter(self, end: "End") -> None:
        self._ends[end] = None
        self._empty.clear()

    def _leave(self, end: "End") -> None:
        self._ends.pop(end, None)
        if not self._ends:
            self._empty.set()


async def dial(
    url: str,
    handler: Handler,
    *,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = ANSWER_S,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
) -> Link:
    """Open a link; `handler.opened` was called when this returns.

    Raises
    ------
    LinkError
        If no server answers in time, or the answer is not that of a WebSocket server.
    """
    if urlsplit(url).scheme == "ws" and tls is not None:
        raise LinkError(f"link to {url}: found ws:, expected wss:, as certificates are given")
    end = End(handler, message_bytes_max, None)
    try:
        async with asyncio.timeout(timeout_s):
            await picows.ws_connect(
                lambda: end,
                url,
                ssl_context=tls,
                websocket_handshake_timeout=timeout_s,
                max_frame_size=message_bytes_max,
                max_redirects=0,
                logger_name=_quiet,
            )
    except TimeoutError:
        raise LinkError(f"link to {url}: found no answer, expected one within {timeout_s:g} s") from None
    except ConnectionRefusedError as error:
        raise LinkError(f"link to {url}: found nobody who listens there, expected a broker") from error
    except (OSError, ValueError, picows.WSError) as error:
        raise LinkError(f"link to {url}: {_first_line(error)}") from error
    if not end.remote:  # the upgrade was never answered
        raise LinkError(f"link to {url}: found a closed connection, expected an answer")
    return end


async def listen(
    host: str,
    port: int,
    handler_for: Callable[[], Handler],
    *,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = ANSWER_S,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
) -> Listener:
    """Accept links; each gets its handler. A client has `timeout_s` for TLS, and again for the upgrade."""
    listener = Listener()
    prepare()
    if tls is not None:
        _hush_handshakes(asyncio.get_running_loop())

    def entrance(
        request: picows.WSUpgradeRequest,
    ) -> picows.WSListener | picows.WSUpgradeResponseWithListener:
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return _upgrade_required()
        # Browsers may add "keep-alive" to "Upgrade"; RFC 6455, section 4.2.1 asks for the token only.
        asked = request.headers.get("Connection", "").lower().split(",")
        if "upgrade" in (token.strip() for token in asked):
            request.headers["Connection"] = "upgrade"
        return End(handler_for(), message_bytes_max, listener)

    secure: dict[str, Any] = (
        {
            "ssl": tls,
            "ssl_handshake_timeout": timeout_s,
            "ssl_shutdown_timeout": timeout_s,
            "ssl_outgoing_bio_size": SEND_BIO_BYTES,
            "ssl_incoming_bio_size": RECEIVE_BIO_BYTES,
        }
        if tls is not None
        else {}
    )
    server = await picows.ws_create_server(
        entrance,
        host,
        port,
        websocket_handshake_timeout=timeout_s,
        max_frame_size=message_bytes_max,
        logger_name=_quiet,
        backlog=4096,
        **secure,
    )
    listener._server = server
    listener.port = server.sockets[0].getsockname()[1]
    return listener


class End(picows.WSListener):
    """Either end of a connection, between picows and a handler."""

    def __init__(self, handler: Handler, message_bytes_max: int, listener: Listener | None) -> None:
        self.remote = ""
        self.open = False
        self._handler = handler
        self._message_bytes_max = message_bytes_max
        self._listener = listener
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._reason = ""
        self._deadline: asyncio.TimerHandle | None = None
        self.accepted = listener is not None
        """whether the other side dialled: then frames are not masked"""
        self.place: int | None = None
        """its slot, if frames may be written to its socket directly; see `sensorgrid.links.fan`"""
        self._descriptor = NEVER
        self.waits = False
        """whether anything waits"""

    # -- Link

    def send(self, head: bytes, body: bytes | memoryview = b"") -> None:
        """See `Link`."""
        if not self.open:
            return
        size = len(head) + (len(body) if type(body) is bytes else memoryview(body).nbytes)
        if self._listener is None:
            self._transport.send(picows.WSMsgType.BINARY, b"".join((head, body)))
        else:
            self._write((_header(size) + head, body))

    def send_frame(self, frame: bytes | memoryview) -> None:
        """Send what is a frame already, or the rest of one that was begun; only if `accepted`."""
        if self.open:
            self._under.write(frame)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """See `Link`."""
        if not self.open:
            return
        self._end()
        self._reason = self._reason or f"closed here: {code} {reason}".strip()
        said = reason.encode()[:120].decode(errors="ignore")
        self._say_goodbye(code, said)

    @property
    def waiting(self) -> int:
        """See `Link`."""
        return int(self._under.get_write_buffer_size())

    # -- picows.WSListener

    def on_ws_connected(self, transport: picows.WSTransport) -> None:
        """The upgrade is done."""
        self._transport = transport
        self._under = transport.underlying_transport
        self._write = self._under.writelines
        address = self._under.get_extra_info("peername") or ("", 0)
        self.remote = f"{address[0]}:{address[1]}"
        self.open = True
        # At zero, picows says whenever something begins to wait, and when nothing waits any more.
        self._under.set_write_buffer_limits(high=0)
        if self._listener is not None:
            self._listener._enter(self)
            if not transport.is_secure and AVAILABLE:
                self.place = SLOTS.take()
                self._descriptor = self._under.get_extra_info("socket").fileno()
                SLOTS.ready[self.place] = self._descriptor
        self._handler.opened(self)

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        """A frame; pings are answered by picows."""
        kind = frame.msg_type
        if kind == picows.WSMsgType.CLOSE:
            self._farewell(frame)
        elif transport.is_close_frame_sent:  # picows found nonsense, and would go on to deliver it
            self._end()
        elif not self.open or kind == picows.WSMsgType.PONG:
            pass
        elif frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.close(1002, "found reserved bits, expected none: no extension was agreed")
        elif kind == picows.WSMsgType.BINARY and frame.fin and not self._parts:
            self._deliver(frame.get_payload_as_bytes())
        elif kind == picows.WSMsgType.TEXT:
            self.close(1003, "found a text message, expected binary ones")
        else:
            self._collect(kind, frame)

    def on_ws_disconnected(self, transport: picows.WSTransport) -> None:
        """The connection is gone."""
        self._end()
        if self.place is not None:
            SLOTS.give(self.place)
            self.place = None
        if self._deadline is not None:
            self._deadline.cancel()
        if self._listener is not None:
            self._listener._leave(self)
        self._handler.closed(self._reason or _blame(transport))

    def pause_writing(self) -> None:
        """Something waits."""
        self.waits = True
        if self.place is not None:
            SLOTS.ready[self.place] = NEVER

    def resume_writing(self) -> None:
        """Nothing waits any more."""
        self.waits = False
        if self.place is not None and self.open:
            SLOTS.ready[self.place] = self._descriptor

    # -- details

    def _end(self) -> None:
        self.open = False
        if self.place is not None:
            SLOTS.ready[self.place] = NEVER

    def _collect(self, kind: picows.WSMsgType, frame: picows.WSFrame) -> None:
        """A message in several frames."""
        if (kind == picows.WSMsgType.CONTINUATION) != bool(self._parts):
            self.close(1002, "found a frame out of order")
            return
        self._parts_bytes += frame.payload_size
        if self._parts_bytes > self._message_bytes_max:
            self.close(1009, f"found more than {self._message_bytes_max} bytes, expected at most that")
            return
        self._parts.append(frame.get_payload_as_bytes())
        if frame.fin:
            message = b"".join(self._parts)
            self._parts, self._parts_bytes = [], 0
            self._deliver(message)

    def _deliver(self, message: bytes) -> None:
        try:
            self._handler.received(message)
        except Exception as error:  # picows would end the link, too, but tell nobody why
            report = {"message": f"handler of the link to {self.remote} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(report)
            self.close(1011, "internal error")

    def _farewell(self, frame: picows.WSFrame) -> None:
        if self.open:
            self._end()
            said = frame.get_payload_as_bytes()
            code = int.from_bytes(said[:2]) or 1005  # none was given
            self._reason = f"closed by the peer: {code} {said[2:].decode(errors='replace')}".strip()
            self._say_goodbye(1000 if code == 1005 else code, "")
        self._transport.disconnect()

    def _say_goodbye(self, code: int, reason: str) -> None:
        say: Any = self._transport.send_close  # takes any number, whatever its stub says
        say(code, reason)
        self._deadline = asyncio.get_running_loop().call_later(CLOSE_S, self._transport.disconnect, False)


_header = lru_cache(1024)(frame_header)


def _hush_handshakes(loop: asyncio.AbstractEventLoop) -> None:
    """A peer that does not speak TLS, or leaves during the handshake, is not an error here and gets no traceback."""
    before: Any = loop.get_exception_handler()
    if getattr(before, "hushes", False):
        return

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("message") == "SSL handshake failed":
            return
        if before is None:
            loop.default_exception_handler(context)
        else:
            before(loop, context)

    report.hushes = True  # type: ignore[attr-defined]
    loop.set_exception_handler(report)


def _upgrade_required() -> picows.WSUpgradeResponseWithListener:
    fields = {"Upgrade": "websocket", "Content-Type": "text/plain; charset=utf-8"}
    answer = picows.WSUpgradeResponse.create_error_response(426, _HINT, fields)
    return picows.WSUpgradeResponseWithListener(answer, None)


def _blame(transport: picows.WSTransport) -> str:
    """Why a connection ended although neither side closed it."""
    handshake: Any = transport.close_handshake
    if handshake is not None and handshake.sent is not None:  # picows found nonsense
        return f"closed here: {int(handshake.sent.code)} {handshake.sent.reason or ''}".strip()
    return "connection lost"


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
