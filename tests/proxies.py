"""A wire that can be cut: a TCP proxy in a thread. While it is cut nothing passes and nobody is told."""

import selectors
import socket
import threading
from types import TracebackType

from servers import PATIENCE_S


class Wire:
    """From a port of its own to another port on loopback."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.cut = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Wire":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = True
        self._thread.join(PATIENCE_S)
        for end in [*self._pairs, self._listener]:
            end.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._stopped:
            for key, _ in self._selector.select(0.05):
                if self.cut:
                    self._stopped or threading.Event().wait(0.02)
                    break
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._pass_on(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self.to), PATIENCE_S)
        except OSError:
            near.close()
            return
        for a, b in ((near, far), (far, near)):
            self._pairs[a] = b
            self._selector.register(a, selectors.EVENT_READ)

    def _pass_on(self, end: socket.socket) -> None:
        other = self._pairs.get(end)
        if other is None:
            return
        try:
            data = end.recv(1 << 16)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        for one in (end, other):
            self._pairs.pop(one, None)
            self._selector.unregister(one)
            one.close()
