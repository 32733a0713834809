"""Looking at a broker: its clients, its streams and what it has sent, without taking part.

>>> import asyncio
>>> asyncio.run(Observer("ws://127.0.0.1:1", timeout_s=1).status()) is None
True
"""

import asyncio
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
        async with asyncio.timeout(self._timeout_s):
            if self._peer is None or self._peer.gone is not None:
                hello = wire.Hello(wire.VERSIONS, wire.OBSERVER)
                _, self._peer = await greet(self.url, hello, tls=self._tls, timeout_s=self._timeout_s)
                self._peer.serve(self._heard, self._lost)
            if self._peer.gone is not None or self._peer.link is None:
                raise LinkError(f"{self.url}: found it gone, expected a status")
            self._answer = asyncio.get_running_loop().create_future()
            self._peer.link.send(b"status")
            return wire.decode_status(await self._answer)

    def close(self) -> None:
        """Hang up."""
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    def _heard(self, message: bytes) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    def _lost(self, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(LinkError(f"{self.url}: found it gone ({reason}), expected a status"))
