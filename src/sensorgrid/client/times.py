"""Fields by their time, for programs with their own clock.

A field is valid from its tick until the next tick of the query. Asking for a time that has not come waits for it.
"""

import asyncio
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorgrid.client.errors import TimedOut, TooLate
from sensorgrid.client.fields import Field
from sensorgrid.client.regridding import Method
from sensorgrid.client.streams import AsyncStream
from sensorgrid.model.errors import QueryError
from sensorgrid.model.query import Query
from sensorgrid.model.resolution import strides_of

if TYPE_CHECKING:
    from sensorgrid.client.connection import AsyncClient

KEPT = 8
"""fields that stay at hand"""

Moment = datetime | str | np.datetime64


def moment_of(time: Any, name: str = "time") -> datetime:
    """A moment as people and models have it; numbers of NumPy and pandas are UTC, as is their custom."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            raise QueryError(f"{name}: found {time!r}, expected ISO 8601 such as 2026-03-01T12:00Z") from None
        if time.tzinfo is None:
            raise QueryError(f"{name}: found {time.isoformat()} without a time zone, expected one, such as Z")
    elif hasattr(time, "to_pydatetime"):
        time = time.to_pydatetime(warn=False)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    elif hasattr(time, "values") or isinstance(time, np.datetime64):
        value = np.asarray(getattr(time, "values", time)).astype("datetime64[us]").item()
        time = value.replace(tzinfo=UTC) if isinstance(value, datetime) else None
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise QueryError(f"{name}: found {time!r}, expected a moment with a time zone")
    return time


class AsyncTimeField:
    """The fields of a query by time; made by `AsyncClient.field`."""

    def __init__(self, client: "AsyncClient", query: Query, errors: bool, onto: Any, method: Method) -> None:
        self.query = query
        self._client = client
        self._options: dict[str, Any] = {"errors": errors, "onto": onto, "method": method}
        self._stream: AsyncStream | None = None
        self._kept: OrderedDict[int, Field] = OrderedDict()
        self._lock = asyncio.Lock()

    async def at(self, time: Moment, timeout_s: float | None = None) -> Field:
        """The field that is valid at a time: that of the last tick of the query which is not after it.

        Waits for it, at most `timeout_s` seconds (`TimedOut`). Times that go forward cost one stream; going back
        further than the last few fields opens a new one.
        """
        grid = self._client.grid
        tick = self._tick(grid.tick_at(moment_of(time)))
        if self.query.start is not None or self.query.duration is not None:
            first, until = self.query.ticks(grid, self.query.start or datetime.now(UTC))
            if tick < first or (until is not None and tick >= until):
                raise TooLate(
                    f"time: found {grid.time_of(tick).isoformat()}, expected one within the query, from"
                    f" {grid.time_of(first).isoformat()} on"
                )
        async with self._lock:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._get(tick)
            except TimeoutError:
                raise TimedOut(
                    f"field at {grid.time_of(tick).isoformat()}: found none within {timeout_s} s, expected it"
                ) from None

    async def aclose(self) -> None:
        """End it."""
        if self._stream is not None:
            await self._stream.aclose()
            self._stream = None

    async def _get(self, tick: int) -> Field:
        if tick in self._kept:
            return self._kept[tick]
        stream = self._stream
        if stream is not None:
            passed = stream.tick is not None and tick <= stream.tick
            far = tick > stream.demand.assembly.next + KEPT  # not worth to fetch all that lies between
            stream = None if passed or far else stream
        if stream is None:
            await self.aclose()
            stream = self._stream = self._client.stream(self.query, after=tick - 1, **self._options)
        while (found := await stream.next_tick()) is not None:
            if found.tick >= tick:
                self._kept[found.tick] = field = stream.field_of(found)
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
                return field
        raise TooLate(f"field of tick {tick}: found the end of the query, expected it to go on")

    def _tick(self, tick: int) -> int:
        """The last tick of the query's own, up to this one."""
        grid = self._client.grid
        limit, bits = self.query.limits(grid)[2], grid.resolution_bits[2]
        return max(tick - (tick - stride.offset) % stride.stride for stride in strides_of(0, limit, bits))
