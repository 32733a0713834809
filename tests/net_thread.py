"""A small network in a thread of its own, for what blocks: the synchronous client, the command line."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

from nets import Net, network, patient, truth
from servers import PATIENCE_S


class NetThread:
    """Real brokers on loopback and their publisher, to be called from any thread."""

    def __init__(self, folder: Path, brokers: int = 2, truth: Any = truth, **options: Any) -> None:
        self.net: Net = Net(patient(network(folder, brokers, **options)), truth=truth)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "NetThread":
        self._thread.start()
        self.run(self.net.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.net.__aexit__())
        self.run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in its loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * PATIENCE_S)

    def publish(self, ticks: int = 1) -> None:
        """The next ticks of all regions."""
        self.run(self.net.publish(ticks))

    def publish_soon(self, pause_s: float, ticks: int) -> "Future[None]":
        """A tick every so often, from now on; done after the last one."""

        async def slowly() -> None:
            for _ in range(ticks):
                await asyncio.sleep(pause_s)
                await self.net.publish(1)

        return asyncio.run_coroutine_threadsafe(slowly(), self._loop)

    def url(self, number: int = 0) -> str:
        """Where a broker listens."""
        return self.net.url(number)


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
