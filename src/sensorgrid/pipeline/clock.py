"""The clock of a stream as a Spark source: a row whenever a tick falls due, and nothing in between.

An offset is the number of the newest tick that has fallen due, so the checkpoint knows the time: a batch that is tried
again sees the same one, and after an outage the clock catches up at once. Spark's own `rate` source would do, but it
gives out whole seconds only, which is long where a tick has a few, and it ends the stream when the machine's clock is
set back; this one waits.
"""

import time
from collections.abc import Iterator

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

FORMAT = "sensorgrid_clock"


class Beat(InputPartition):
    """One moment at which a tick fell due."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us


class ClockSource(DataSource):
    """The source that `spark.dataSource.register` takes; its options are `tick_us` and `settle_us`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is called with."""
        return FORMAT

    def schema(self) -> str:
        """Microseconds since 1970."""
        return "now bigint"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`; called on the driver, and once more in each worker."""
        return ClockReader(int(self.options["tick_us"]), int(self.options["settle_us"]))


class ClockReader(DataSourceStreamReader):
    """Offsets are planned in one Python process on the driver, for each micro-batch; `read` runs in the workers."""

    def __init__(self, tick_us: int, settle_us: int) -> None:
        self._tick_us, self._settle_us = tick_us, settle_us

    def due(self, now_us: int) -> int:
        """The newest tick that has fallen due by then."""
        return (now_us - self._settle_us) // self._tick_us - 1

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The beginning, called for a query without a checkpoint."""
        return {"due": self.due(_now_us())}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """All that is due."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """How far time has come; it never goes back."""
        return {"due": max(start["due"], self.due(_now_us()))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Beat]:
        """The last moment that counts is enough: all ticks before it are due as well."""
        if end["due"] <= start["due"]:
            return []
        return [Beat((end["due"] + 1) * self._tick_us + self._settle_us)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """The moment."""
        assert isinstance(partition, Beat)
        yield (partition.now_us,)


def _now_us() -> int:
    return time.time_ns() // 1000
