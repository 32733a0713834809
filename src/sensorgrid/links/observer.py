"""Looking at a broker: its clients, its streams and what it has sent, without taking part.

>>> import asyncio
>>> asyncio.run(Observer("ws://127.0.0.1:1", timeout_s=1).status()) is None
True
"""

import asyncio
import contextlib
import ssl

from sensorgrid.links import wire
from sensorgrid.links.driver import Peer, greet
from sensorgrid.links.link import ANSWER_S, LinkError


class Observer:
    """One broker, looked at again and again over one connection, which is opened when it is needed."""

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None, timeout_s: float = ANSWER_S) -> None:
        self.url = url
        self._tls = tls
        self._timeout_s = timeout_s
        self.welcome: wire.Welcome | None = None
        """what the broker said when it was last dialled"""
        self._peer: Peer | None = None
        self._answer: asyncio.Future[bytes] | None = None

    async def status(self) -> wire.Status | None:
        """What the broker says now; None if it is not there, or says nothing in time."""
        try:
            return await self.ask()
        except (LinkError, TimeoutError):
            self.close()
            return None

    async def ask(self) -> wire.Status:
        """What the broker says now.

        Raises
        ------
        LinkError, TimeoutError
            If it is not there, goes away or says nothing in time.
        RefusedError, WireError
            If it does not want us, or speaks another language.
        """
        return wire.decode_status(await self._asked(b"status"))

    async def receivers(self) -> wire.Receivers:
        """Who the broker feeds; raises what `ask` raises."""
        return wire.decode_receivers(await self._asked(wire.ASK_RECEIVERS))

    async def sensors(self, asked: wire.AskSensors) -> wire.Sensors:
        """The sensors in the broker's regions that fit; raises what `ask` raises, and `WireError` if it cannot tell."""
        found = wire.decode_sensors(await self._asked(wire.encode_ask_sensors(asked)))
        if found.error:
            raise wire.WireError(f"{self.url}: {found.error}")
        return found

    async def _asked(self, question: bytes) -> bytes:
        async with asyncio.timeout(self._timeout_s):
            if self._peer is None or self._peer.gone is not None:
                hello = wire.Hello(wire.VERSIONS, wire.OBSERVER)
                self.welcome, self._peer = await greet(
                    self.url, hello, tls=self._tls, timeout_s=self._timeout_s
                )
                self._peer.serve(self._heard, self._lost)
            if self._peer.gone is not None or self._peer.link is None:
                raise LinkError(f"{self.url}: found it gone, expected an answer")
            self._answer = asyncio.get_running_loop().create_future()
            self._peer.link.send(question)
            return await self._answer

    def close(self) -> None:
        """Hang up."""
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    async def closed(self) -> None:
        """Hang up, and wait until the connection is gone, so that the loop can end after this."""
        peer = self._peer
        self.close()
        if peer is not None and peer.link is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await peer.ended.wait()

    def _heard(self, message: bytes) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    def _lost(self, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(LinkError(f"{self.url}: found it gone ({reason}), expected an answer"))
