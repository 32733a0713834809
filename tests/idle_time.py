"""An event loop whose time passes only while nothing happens.

A test with real sockets asks two things of the clock. Whatever needs an answer shall not run out of time because the
machine is busy; whatever waits for time to pass shall not keep the test waiting. Here time stands still while any
message is on its way or any thread works, however long that takes, and runs some twenty times faster while everybody
waits for a timer. So no deadline of a broker or a client depends on how busy the machine is, and sleeping is cheap.

Only for tests whose sockets all belong to this loop: processes and other loops keep the real time.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

IDLE_S = 0.005
"""real time without any event after which everybody waits; loopback delivers at once"""
LEAP_S = 0.1
"""at most so much time passes then"""
TURN_S = 1e-5
"""and so much with every turn of the loop: time that stood quite still would make a timer wait for endless traffic"""
THREAD_S = 0.05


class IdleTime(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._jobs = 0
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Seconds; see above how they pass."""
        return self._now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> "asyncio.Future[Any]":
        """See asyncio. Time stands still until it is done."""
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(lambda _: self._done())
        return future

    def _done(self) -> None:
        self._jobs -= 1


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: IdleTime) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events; for time as well, unless somebody works."""
        loop = self._loop
        loop._now += TURN_S
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(THREAD_S if loop._jobs else min(timeout, IDLE_S))
        if not found and not loop._jobs:
            loop._now += min(timeout, LEAP_S)
        return found


def run_in_idle_time(work: Coroutine[Any, Any, None], deadline_s: float) -> None:
    """Run an asynchronous test to its end."""
    with asyncio.Runner(loop_factory=IdleTime) as runner:
        runner.run(asyncio.wait_for(work, deadline_s))
