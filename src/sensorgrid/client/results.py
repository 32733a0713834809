"""Results of an operator, tick by tick, as labelled numbers.

The network calculates; what arrives is one number per tick, with its standard error, the number of points it was made
of, and its coverage: the share of the area that rests on observations.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
import xarray as xr

from sensorgrid.client.errors import ClientError, QueryRefused
from sensorgrid.model.grid import Grid
from sensorgrid.operators.numbers import INACTIVE, NOT_DUE, REASONS, Number
from sensorgrid.operators.plan import OperatorPlan
from sensorgrid.overlay.events import Calculated, Reply
from sensorgrid.overlay.formulas import number_of

WAITING_MAX = 65_536
"""results that may wait for the consumer; beyond them the oldest are dropped, and counted"""
_NOTHING = Number(float("nan"), float("nan"), 0, 0.0, "no data")


class AsyncResults:
    """Results of one operator; made by `AsyncClient.stream`.

    Examples
    --------
    ::

        async for result in grid.stream(sensorgrid.Operator("mean(air_temperature)")):
            print(result.item(), result.coverage.item())
    """

    def __init__(
        self, plan: OperatorPlan, grid: Grid, end: Callable[[], None], revisions: bool, inactive: bool
    ) -> None:
        self.plan = plan
        self.tick: int | None = None
        """of the result that was given last"""
        self.given = 0
        """results so far"""
        self.dropped = 0
        """results that were dropped because too many waited"""
        self.status = "pending"
        """pending, running, refused or ended"""
        self.reason = ""
        """why it was refused"""
        self._grid = grid
        self._end = end
        self._revisions = revisions
        self._inactive = inactive
        self._newest: int | None = None
        self._waiting: deque[Calculated] = deque()
        self._arrived = asyncio.Event()
        self._error: ClientError | None = None

    # -- for the consumer

    @property
    def waiting(self) -> int:
        """Results that are here and have not been taken."""
        return len(self._waiting)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> xr.DataArray:
        """The next result."""
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if self.status == "ended":
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        event = self._waiting.popleft()
        self.tick = event.tick
        self.given += 1
        return labelled(self.plan, self._grid, event)

    async def take(self, ticks: int) -> list[xr.DataArray]:
        """The next results."""
        found = []
        async for result in self:
            found.append(result)
            if len(found) == ticks:
                break
        return found

    async def aclose(self) -> None:
        """End it; the network forgets the operator."""
        self.close()

    def close(self) -> None:
        """The same, from the thread of the loop."""
        if self.status not in ("ended", "refused"):
            self.status = "ended"
            self._waiting.clear()
            self._end()
            self._arrived.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # -- for the connection

    def handle(self, effect: Calculated | Reply) -> None:
        """What the network says."""
        if isinstance(effect, Reply):
            if effect.status == "refused":
                self.status, self.reason = "refused", effect.reason
                self.fail(
                    QueryRefused(
                        f"operator {self.plan.name!r}: found that the network refuses it ({effect.reason}), expected"
                        " to be admitted",
                        effect.reason,
                    )
                )
            elif effect.status == "admitted":
                self.status = "running"
            return
        again = self._newest is not None and effect.tick <= self._newest
        self._newest = max(effect.tick, effect.tick if self._newest is None else self._newest)
        if (again and not self._revisions) or self._is_hidden(effect):
            return
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(effect)
        self._arrived.set()

    def fail(self, error: ClientError) -> None:
        """Nothing more will come."""
        if self._error is None and self.status != "ended":
            self._error = error
            self._arrived.set()

    def _is_hidden(self, event: Calculated) -> bool:
        result = number_of(event.numbers) or _NOTHING
        return result.reason == REASONS[NOT_DUE] or (
            result.reason == REASONS[INACTIVE] and not self._inactive
        )


def labelled(plan: OperatorPlan, grid: Grid, event: Calculated) -> xr.DataArray:
    """A result as a scalar with its facts as coordinates."""
    result = number_of(event.numbers) or _NOTHING
    moment = np.datetime64(grid.time_of(event.tick).replace(tzinfo=None), "ns")
    attrs = {"long_name": plan.name, "units": plan.unit or "1", "revision": event.revision}
    if result.reason:
        attrs["missing_because"] = result.reason
    return xr.DataArray(
        result.value,
        name="result",
        coords={
            "time": xr.Variable((), moment, {"standard_name": "time", "long_name": "time", "axis": "T"}),
            "tick": xr.Variable((), event.tick, {"long_name": "number of the tick"}),
            "standard_error": xr.Variable((), result.error, {"long_name": "standard error of the result"}),
            "points": xr.Variable((), result.points, {"long_name": "points of the grid that it was made of"}),
            "coverage": xr.Variable(
                (), result.coverage, {"long_name": "share of the area that rests on observations"}
            ),
        },
        attrs=attrs,
    )
