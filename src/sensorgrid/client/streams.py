"""One stream: whole ticks from the network to one consumer, at the consumer's pace.

Between network and consumer stands a buffer of `buffer` ticks. When it is full, the stream wants nothing for the time
being; when half of it has been taken, it asks again from the next tick that it needs. So a slow consumer neither fills
memory nor loses ticks, as long as the network keeps them; a tick that it no longer keeps comes as a named gap.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from sensorgrid.client.assembly import Assembly, Tick
from sensorgrid.client.errors import ClientError, ConnectionLost, QueryRefused
from sensorgrid.client.fields import Field, Labels
from sensorgrid.client.regridding import Onto
from sensorgrid.client.resume import ResumeFile, ResumePoint
from sensorgrid.client.sharing import Demand, Sharing
from sensorgrid.model.query import Query

SETTLE_S = 0.1
"""revisions of a tick that come within this are given together"""


class AsyncStream:
    """Fields of one query, tick by tick; made by `AsyncClient.stream`.

    Examples
    --------
    ::

        async for field in grid.stream(query):
            await model.step(field)
    """

    def __init__(
        self,
        sharing: Sharing,
        pump: Callable[[], None],
        query: Query,
        demand: Demand,
        labels: Labels,
        buffer: int,
        onto: Onto | None,
        resume: ResumeFile | None,
    ) -> None:
        self.query = query
        """as it was asked"""
        self.tick: int | None = None
        """of the field that was given last"""
        self.given = 0
        """fields so far"""
        self.missing_points = 0
        """points of them that the network had no value for"""
        self.pauses = 0
        """how often the consumer was so slow that the buffer filled up"""
        self.demand = demand
        self._sharing = sharing
        self._pump = pump
        self._labels = labels
        self._buffer = buffer
        self._onto = onto
        self._resume = resume
        self._ticks: deque[Tick] = deque()
        self._arrived = asyncio.Event()
        self._error: ClientError | None = None
        self._closed = False
        self._settling: asyncio.TimerHandle | None = None
        self._last: Tick | None = None
        self._before: int | None = None
        """the tick before `tick`"""

    # -- for the consumer

    @property
    def status(self) -> str:
        """pending, running, suspended, paused, refused or ended."""
        return self.demand.status

    @property
    def reason(self) -> str:
        """Why it is suspended or was refused."""
        return self.demand.reason

    @property
    def doubled_points(self) -> int:
        """Points that came twice and were left out the second time; a fault of the network."""
        return self.demand.assembly.doubled

    @property
    def waiting(self) -> int:
        """Ticks that are here and have not been taken."""
        return len(self._ticks)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Field:
        """The next field; asking for it says that the one before has been processed."""
        await self.commit()
        tick = await self.next_tick()
        if tick is None:
            raise StopAsyncIteration
        self._last = tick
        return self.field_of(tick)

    def field_of(self, tick: Tick) -> Field:
        """A tick, labelled."""
        field = self._labels.field(tick)
        return field if self._onto is None else self._onto(field)

    async def next_tick(self) -> Tick | None:
        """The next tick as plain arrays; None after the last."""
        while not self._ticks:
            if self.demand.assembly.revised and self._settling is None:  # there was no room for all
                self._give_revised()
                continue
            if self._error is not None:
                raise self._error
            if self._closed or self._is_over:
                await self.aclose()
                return None
            self._arrived.clear()
            await self._arrived.wait()
        tick = self._ticks.popleft()
        if self.demand.status == "paused" and len(self._ticks) <= self._buffer // 2:
            self._sharing.pose(self.demand)
            self._pump()
        self._before, self.tick = self.tick, tick.tick
        self.given += 1
        self.missing_points += tick.missing
        return tick

    def put_back(self) -> None:
        """The field given last has not reached its consumer: it is the next one again."""
        if self._last is not None and not self._closed:
            self._ticks.appendleft(self._last)
            self.tick = self._before
            self.given -= 1
            self.missing_points -= self._last.missing
            self._last = None

    async def take(self, ticks: int | None = None) -> list[Field]:
        """The next `ticks` fields; all, of a query with an end."""
        found: list[Field] = []
        while ticks is None or len(found) < ticks:
            try:
                found.append(await self.__anext__())
            except StopAsyncIteration:
                break
        return found

    async def commit(self) -> None:
        """Say that the field given last has been processed, without asking for another one yet."""
        if self._last is not None and self._resume is not None and not self._last.again:
            point = ResumePoint(self._last.tick + 1, self.demand.assembly.until)
            await asyncio.to_thread(self._resume.write, point)
        self._last = None

    async def aclose(self) -> None:
        """End the stream; the network forgets the query."""
        self.close()

    def close(self) -> None:
        """The same, from the thread of the loop."""
        if not self._closed:
            self._closed = True
            self._ticks.clear()
            if self._settling is not None:
                self._settling.cancel()
            self._sharing.end(self.demand)
            self._pump()
            self._arrived.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # -- for the connection

    def update(self) -> None:
        """Take what is whole."""
        if self._closed:
            return
        assembly, demand = self.demand.assembly, self.demand
        while len(self._ticks) < self._buffer and (tick := assembly.take()) is not None:
            self._ticks.append(tick)
        if demand.status == "refused":
            names = ", ".join(self.query.attributes)
            self._error = QueryRefused(
                f"query for {names}: found that the network refuses it ({demand.reason}), expected to be admitted",
                demand.reason,
            )
        elif len(self._ticks) >= self._buffer and not assembly.ended and demand.status != "paused":
            self.pauses += 1
            self._sharing.pause(demand)
        elif assembly.full:
            self._sharing.overrun(demand)
        if assembly.revised and self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._give_revised)
        if self._ticks or self._error is not None or self._is_over:
            self._arrived.set()

    def fail(self, error: ClientError) -> None:
        """Nothing more will come."""
        if self._error is None and not self._closed:
            self._error = error
            self._arrived.set()

    @property
    def _is_over(self) -> bool:
        return self.demand.assembly.ended and self._settling is None and not self.demand.assembly.revised

    def _give_revised(self) -> None:
        self._settling = None
        assembly: Assembly = self.demand.assembly
        while len(self._ticks) < 2 * self._buffer and (tick := assembly.take_revised()) is not None:
            self._ticks.append(tick)
        self._arrived.set()


def lost(reason: str) -> ConnectionLost:
    """The error of a stream whose connection is gone."""
    return ConnectionLost(f"connection: found it closed ({reason}), expected it to be open")
