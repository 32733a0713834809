"""The wall clock as a Spark source: a row whenever a tick falls due, and one half a tick later.

The first of the two publishes the tick; the second re-issues what late measurements have changed, when nobody waits
for a new tick. Offsets count half ticks, so a batch that is tried again sees the same times. After an outage the clock
catches up in steps of some hundred ticks, so that no micro-batch has to hold the grids of a whole day. Rows carry the
moment at which they were due, not the one at which Spark looked.

Spark's own `rate` source tells the time in whole seconds, a second late, and gives up if the clock is set back; here
the time then stands still until it is reached again.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

FORMAT = "sensorgrid_clock"
SCHEMA = StructType([StructField("now", LongType()), StructField("fresh", BooleanType())])
"""microseconds since 1970; whether only new ticks are due"""
CATCH_UP_TICKS = 256
"""ticks that fall due in one micro-batch at most: it holds all grids that a region publishes in it"""


@dataclass(frozen=True, slots=True)
class Beats:
    """When ticks fall due. Pickles."""

    tick_us: int
    settle_us: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Beats":
        """Read the options of a source."""
        return cls(int(options["tick_us"]), int(options["settle_us"]))

    def number(self, now_us: int) -> int:
        """The newest beat at a time; even ones publish, odd ones revise."""
        return 2 * (now_us - self.settle_us) // self.tick_us

    def rows(self, after: int, last: int) -> list[tuple[int, bool]]:
        """The beats after one up to another: of many, the newest of each kind say it all."""
        numbers = range(max(after + 1, last - 1), last + 1)
        return [(self.settle_us + number * self.tick_us // 2, number % 2 == 0) for number in numbers]


class ClockSource(DataSource):
    """The source that `spark.dataSource.register` takes. Spark makes one per query, on the driver."""

    @classmethod
    def name(cls) -> str:
        """What `format` is called with."""
        return FORMAT

    def schema(self) -> StructType:
        """A time, and what it is for."""
        return SCHEMA

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        """Called once per query, on the driver."""
        return ClockReader(Beats.of(self.options))


class ClockReader(SimpleDataSourceStreamReader):
    """Reads on the driver only: the few rows go to Java with the offsets, and no worker is asked."""

    def __init__(self, beats: Beats) -> None:
        self._beats = beats

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Now; called for a query without a checkpoint."""
        return {"beat": self._beats.number(_now_us())}

    def read(self, start: dict[str, int]) -> tuple[Iterator[Any], dict[str, int]]:
        """What has fallen due since."""
        newest = min(self._beats.number(_now_us()), start["beat"] + 2 * CATCH_UP_TICKS)
        end = max(start["beat"], newest)
        return iter(self._beats.rows(start["beat"], end)), {"beat": end}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Any]:  # noqa: N802
        """The same once more, for a batch that is tried again."""
        return iter(self._beats.rows(start["beat"], end["beat"]))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to clean up."""


def _now_us() -> int:
    return time.time_ns() // 1000
