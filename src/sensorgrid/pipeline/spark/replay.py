"""The past as a stream: measurements of files handed out tick by tick, with a clock that goes with them.

The rows are cut into ticks beforehand, as files in a waiting folder. When a tick's turn has come, its files move
to the folder that the stream reads, followed by one more that holds the time: a row whose attribute is "clock".
Data and clock are one source, so no race between them is possible, and a replay gives the same grids every time.
"""

import os
import shutil
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.book import Timing
from sensorgrid.pipeline.ingest import inlet
from sensorgrid.pipeline.schema import MEASUREMENT, MEASUREMENT_ARROW
from sensorgrid.pipeline.settings import PipelineSettings

CLOCK = "clock"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Replayed:
    """What lies in files, as `sensorgrid.pipeline.jobs.TimedRows`."""

    folder: Path
    """for files under way; removed in the end"""
    grid: Grid
    timing: Timing
    first: int
    """first tick"""
    last: int
    """last tick"""
    speed: float
    """seconds per second; infinite for as fast as it goes"""
    _step: int = field(init=False)
    _begun: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._step = self.first
        self.start_us = self.first * self._tick_us

    @property
    def _tick_us(self) -> int:
        return round(self.grid.tick * 1e6)

    @property
    def _final_step(self) -> int:
        """After this step everything is published and closed."""
        rest = self.timing.settle_s + self.timing.lateness_s
        return self.last + 1 + -(-round(rest * 1e6) // self._tick_us)

    def prepare(self, rows: DataFrame) -> None:
        """Cut all rows into ticks; what has no time, or none in between, comes with the first tick."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "arriving").mkdir(parents=True)
        tick = F.floor(F.unix_micros("event_time") / self._tick_us)
        step = F.when(tick.between(self.first, self.last), tick).otherwise(self.first)
        cut = rows.select(*MEASUREMENT.fieldNames(), step.alias("step"))
        cut.repartition(2, "step").write.partitionBy("step").parquet(f"file://{self.folder}/waiting")

    def open(
        self, session: SparkSession, settings: PipelineSettings, grid: Grid
    ) -> tuple[DataFrame, DataFrame]:
        """Streams of flagged measurements, and of times."""
        return open_arriving(session, settings, grid, f"file://{self.folder}/arriving")

    def turn(self, newest: datetime | None) -> bool:
        """Hand out what is due; done when the last tick that can be published has been."""
        if self._begun is None:
            self._begun = time.monotonic()
        passed = (time.monotonic() - self._begun) * self.speed / self.grid.tick
        while self._step <= self._final_step and passed >= self._step - self.first:
            self._hand_out(self._step)
            self._step += 1
        if newest is None or self._step <= self._final_step:
            return False
        return self.grid.tick_at(newest) >= self.timing.due(self.grid, (self._final_step + 1) * self._tick_us)

    def _hand_out(self, step: int) -> None:
        arriving = self.folder / "arriving"
        for number, path in enumerate(sorted((self.folder / "waiting" / f"step={step}").glob("*.parquet"))):
            os.utime(path)  # the stream reads files in the order of their times
            path.rename(arriving / f"{step:012d}-{number:04d}.parquet")
        now = _EPOCH + timedelta(microseconds=(step + 1) * self._tick_us)
        row = dict.fromkeys(MEASUREMENT_ARROW.names) | {"attribute": CLOCK, "event_time": now}
        hidden = arriving / f".{step:012d}"
        pq.write_table(pa.Table.from_pylist([row], schema=MEASUREMENT_ARROW), hidden)
        hidden.rename(arriving / f"{step:012d}-clock.parquet")


def open_arriving(
    session: SparkSession, settings: PipelineSettings, grid: Grid, folder: str, **options: int
) -> tuple[DataFrame, DataFrame]:
    """Streams of flagged measurements, and of times, from files that hold both; options are those of Spark's reader."""
    rows = session.readStream.schema(MEASUREMENT).options(**options).parquet(folder)
    is_clock = F.coalesce(F.col("attribute") == CLOCK, F.lit(False))
    now = rows.where(is_clock).select(F.unix_micros("event_time").alias("now"), F.lit(False).alias("fresh"))
    return inlet.check(rows.where(~is_clock), settings, grid), now
