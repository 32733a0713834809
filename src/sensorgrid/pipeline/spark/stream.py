"""The stream: packs and the beat of a clock go in, grids come out when their time has come.

State lies with Spark, one book per group and region (`sensorgrid.pipeline.gridding.book`): the rows of open ticks
in a map state, the rest in a value state. The clock is a stream of its own (`sensorgrid.pipeline.sources.clock`): a
beat reaches every region when a tick falls due, also where no sensor speaks. Offsets of the clock are in the
checkpoint like those of every source, so a batch that is tried again sees the same time, makes the same grids,
and replaces the files of the first try. After an outage the clock catches up, and so do the grids.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from sensorgrid.pipeline.gridding.book import Book, State
from sensorgrid.pipeline.gridding.groups import groups_of
from sensorgrid.pipeline.gridding.measurements import decode
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake.ledger import Ledger
from sensorgrid.pipeline.sources import clock
from sensorgrid.pipeline.spark.packing import ASIDE, CLOCK, FRESH, LEDGER, LETTERS, ROWS
from sensorgrid.pipeline.spark.remembering import remembered
from sensorgrid.pipeline.spark.stages import (
    BLOCK,
    OUT_DDL,
    Heard,
    Job,
    known_sensors,
    late_letters,
    moved_of,
    outputs_of,
    pack,
    sum_up,
    unacknowledged,
    unheard,
    write_outputs,
    write_reports,
)
from sensorgrid.pipeline.spark.workers import freeze_once

_BYTES = StructType([StructField("data", BinaryType())])
_TICK = StructType([StructField("tick", LongType())])


def wall_clock(session: SparkSession, job: Job) -> DataFrame:
    """The time, in microseconds, whenever a tick falls due, and half a tick later."""
    session.dataSource.register(clock.ClockSource)
    tick_us, settle_us = round(job.grid.tick * 1e6), round(job.timing.settle_s * 1e6)
    source = session.readStream.format(clock.FORMAT)
    return source.option("tick_us", tick_us).option("settle_us", settle_us).load()


def beats(now: DataFrame, job: Job) -> DataFrame:
    """A row for every group and region at each of these times."""
    names = [g.name for g in groups_of(job.grid.attributes)]
    last = len(names) * len(Regions(job.grid)) - 1
    group = F.element_at(F.array(*map(F.lit, names)), (F.col("key") % len(names) + 1).cast("int"))
    kind = F.when(F.col("fresh"), F.lit(FRESH)).otherwise(F.lit(CLOCK))
    return now.select(F.explode(F.sequence(F.lit(0), F.lit(last))).alias("key"), "now", "fresh").select(
        group.alias("group"),
        F.floor(F.col("key") / len(names)).cast("int").alias("region"),
        F.col("now").cast("bigint").alias("chunk"),  # for a beat, the place of the chunk holds the time
        kind.alias("kind"),
        F.lit(None).cast("binary").alias("payload"),
    )


class _Rows:
    """A book's rows in Spark's state."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, tick: int) -> bytes | None:
        found = self._state.getValue((tick,))
        return None if found is None else bytes(found[0])

    def put(self, tick: int, data: bytes) -> None:
        self._state.updateValue((tick,), (data,))

    def remove(self, tick: int) -> None:
        self._state.removeKey((tick,))


class GridProcessor(StatefulProcessor):
    """Calls the books. Spark makes one per task and micro-batch, in a Python worker; it must pickle."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once per task: states are opened, the plan is read."""
        self._state = handle.getValueState("book", _BYTES)
        self._rows = handle.getMapState("rows", _TICK, _BYTES)
        self._plan = self._job.plan()
        self._regions = Regions(self._job.grid)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Called once per key that has input in this micro-batch."""
        group, region = str(key[0]), int(key[1])
        if group == ASIDE:
            for row in rows:
                yield Row(kind=row.kind, payload=row.payload)
            return
        now_us, fresh, parts = None, True, []
        for row in rows:
            kind = row.kind
            if kind == ROWS:
                parts.append(decode(row.payload))
            elif kind in (CLOCK, FRESH):
                now_us = max(int(row.chunk), now_us or 0)
                fresh = fresh and kind == FRESH
        for kind, payload in self._turn(group, region, parts, now_us, fresh):
            yield Row(kind=kind, payload=payload)

    def _turn(
        self, group: str, region: int, parts: list[Any], now_us: int | None, fresh: bool
    ) -> Iterator[tuple[str, bytes]]:
        known = self._state.get()
        domain = self._job.domain(group, self._plan)
        book = Book(domain, region, _Rows(self._rows), State.decode(known[0]) if known else None)
        if known is None and "hold" in domain.gaps:
            first = domain.start_tick - domain.timing.reach(domain.grid)
            before = remembered(self._job.lake, self._plan, first).get((group, region))
            if before is not None:
                book.receive([before])
        ledger = Ledger()
        if parts:
            received = book.receive(parts)
            ledger.add(used=received.used, duplicate=received.duplicate, late=len(received.late))
            if len(received.late):
                yield LETTERS, late_letters(received.late, domain.group, domain.timing.lateness_s)
        if now_us is not None:
            for issue in book.publish(now_us) if fresh else book.advance(now_us):
                for payload in outputs_of(issue, domain.group, self._regions, region, ledger):
                    yield BLOCK, payload
                yield from moved_of(issue, domain.group, domain.grid)
        self._state.update((book.state.encode(),))
        if ledger != Ledger():
            yield LEDGER, json.dumps(ledger.to_dict()).encode()

    def close(self) -> None:
        """Called once per task, at its end."""
        freeze_once()


def grids(flagged: DataFrame, now: DataFrame, job: Job) -> DataFrame:
    """Flagged measurements and the time to blocks, letters and ledgers: the whole stateful part."""
    # Spark asks the sources of a union for news in their order (up to four of them): what has arrived when a tick
    # falls due is then in the same micro-batch. The other way round, a busy machine could make revisions of it.
    both = beats(now, job).unionByName(pack(flagged, job))
    return both.groupBy("group", "region").transformWithState(
        statefulProcessor=GridProcessor(job), outputStructType=OUT_DDL, outputMode="Append", timeMode="none"
    )


class BatchWriter:
    """Writes each micro-batch: called by Spark with its number, again with the same one after a crash.

    Through Spark Connect it is pickled and called on the server, so it can tell nobody in this process; what it
    has to say is in the ledger's files (see `Lake.ledger`), which it writes last.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._known: Heard | None = None

    def __call__(self, outputs: DataFrame, batch: int) -> None:
        """Write blocks and letters in parallel, then the sensors and the ledger."""
        begin, lake, job = time.monotonic(), self._job.lake, self._job
        if self._known is None:
            lake.drop_from(job.writer, batch)
            self._known = known_sensors(lake)
        if job.waiting is not None:
            job = replace(job, behind=job.waiting.behind())
        found = write_outputs(outputs, job, batch)
        ledger, sensors = sum_up(found)
        if job.waiting is not None:  # before Spark commits the batch, after which nobody else would remember
            job.waiting.add(batch, unacknowledged(found))
        fresh = unheard(sensors, self._known)
        if len(fresh):
            lake.write("sensors", fresh, (), job.writer, batch, 0)
        write_reports(lake, found, job.writer, batch)
        seconds = round(time.monotonic() - begin, 3)
        lake.write_ledger(job.writer, batch, {"batch": batch, "seconds": seconds} | ledger.to_dict())
