"""Where a broker is asked for sensors: one reader of the lake, off the loop, and a bounded number of questions.

Nothing is read before somebody asks. After that, an answer is at most `FRESH_S` behind the lake: if the last look at it
is older, or the broker owns other regions than then, the registry looks again first.
"""

import asyncio
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from typing import Any

from sensorgrid.links import wire
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.roster import Roster
from sensorgrid.runtime.registry import Registry, SensorTable

FRESH_S = 2.0
"""an answer is no further behind the lake"""
ASKERS_MAX = 64
"""questions at once; others hear that there are too many"""
ATTRIBUTE = 0
"""of the grid: the owner of its region has the sensors there"""


def cells_of(roster: Roster, broker: PeerId) -> tuple[int, ...]:
    """The cells whose sensors a broker holds."""
    return tuple(r.cell for r in roster.by_owner.get(broker, ()) if r.attribute == ATTRIBUTE)


class SensorDesk:
    """Answers questions for sensors, one at a time for each who asks."""

    def __init__(self, lake: str, grid: Grid, log: Callable[..., None]) -> None:
        self._registry = Registry(lake, grid)
        self._log = log
        self._askers: set[Hashable] = set()
        self._turn = asyncio.Lock()
        self._table: SensorTable | None = None
        self._cells: tuple[int, ...] = ()
        self._read_at = 0.0

    def take(self, asker: Hashable) -> bool:
        """Whether a question is looked into; not a second one before the first has its answer."""
        if asker in self._askers:
            return False
        self._askers.add(asker)
        return True

    def release(self, asker: Hashable) -> None:
        """Its answer has gone out."""
        self._askers.discard(asker)

    async def answer(self, message: bytes, me: PeerId, roster: Roster) -> wire.Sensors:
        """The sensors of this broker's regions that were asked for."""

        def sorry(reason: str) -> wire.Sensors:
            return wire.Sensors(me, roster.version, error=reason)

        try:
            asked = wire.decode_ask_sensors(message)
        except wire.WireError as error:
            return sorry(str(error))
        if len(self._askers) > ASKERS_MAX:
            return sorry(
                f"found {len(self._askers)} others that ask, expected at most {ASKERS_MAX}; try again"
            )
        try:
            table = await self._fresh(cells_of(roster, me))
        except Exception as error:  # whatever may be wrong with a file
            self._log("sensors not read", reason=str(error))
            return sorry(f"the lake cannot be read: {error}")
        try:
            return await asyncio.to_thread(_told, table, asked, me, roster.version)
        except Exception as error:  # a question of a stranger ends no connection
            self._log("question for sensors not answered", reason=str(error))
            return sorry(f"the question cannot be answered: {error}")

    async def _fresh(self, cells: tuple[int, ...]) -> SensorTable:
        loop = asyncio.get_running_loop()
        async with self._turn:
            if self._table is None or cells != self._cells or loop.time() - self._read_at > FRESH_S:
                begin = loop.time()
                before = self._table
                self._table, self._cells = await asyncio.to_thread(self._registry.read, cells), cells
                self._read_at = loop.time()
                if self._table is not before:
                    took_s = round(loop.time() - begin, 3)
                    self._log("sensors read", sensors=len(self._table), regions=len(cells), took_s=took_s)
            return self._table


def _told(table: SensorTable, asked: wire.AskSensors, me: PeerId, version: int) -> wire.Sensors:
    found = table.find(asked, int(datetime.now(UTC).timestamp() * 1e6))
    told: Any = table.told(found)
    return wire.Sensors(
        me, version, told, found.left_off, found.matched, len(table), table.newest_us, table.attributes
    )
