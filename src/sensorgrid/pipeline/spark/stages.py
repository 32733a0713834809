"""What the stream and the backfill have in common: the context of a task, packing, and writing.

Everything here runs in Spark's Python workers. Functions are pickled with a `Job`, which is small: the plan, which
grows and changes, is read from the lake when a task begins.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.delivery.publish import Delivery, Sink
from sensorgrid.pipeline.delivery.waiting import WaitingFolder
from sensorgrid.pipeline.gridding.book import Domain, Issue, Timing
from sensorgrid.pipeline.gridding.coverage import Gaps
from sensorgrid.pipeline.gridding.groups import Group, group_named
from sensorgrid.pipeline.gridding.kernels.interface import Floats
from sensorgrid.pipeline.gridding.measurements import Measurements
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.gridding.series import SUSPECT, TESTS, SeriesLimits
from sensorgrid.pipeline.lake import reports
from sensorgrid.pipeline.lake.folder import Lake, LakeError
from sensorgrid.pipeline.lake.ledger import Ledger
from sensorgrid.pipeline.lake.tiles import Block, Identity, blocks_of, table_of
from sensorgrid.pipeline.plan import Plan
from sensorgrid.pipeline.schema import FLAGGED
from sensorgrid.pipeline.spark.packing import (
    LEDGER,
    LETTER,
    LETTERS,
    PACK_DDL,
    REPORTS,
    SENSOR,
    SENSORS,
    Chunks,
    pack_batches,
    to_bytes,
)
from sensorgrid.pipeline.spark.workers import freeze_once
from sensorgrid.pipeline.terrain import covariates_of, heights_of

BLOCK = "block"
WAITING = "waiting"
OUT_DDL = "kind string, payload binary"
OUT = pa.schema([("kind", pa.string()), ("payload", pa.binary())])


@dataclass(frozen=True, slots=True)
class Job:
    """What a task needs to know; pickled into every one."""

    grid: Grid
    timing: Timing
    limits: dict[str, SeriesLimits]
    """by attribute"""
    lake: Lake
    sink: Sink
    writer: str
    """who writes: part of the files' names, so that a batch which is tried again replaces its own files only"""
    resolve: bool = False
    """whether blocks may be in the lake already: the same is not written again, another one is a revision"""
    waiting: WaitingFolder | None = None
    """where to keep what the sink could not hand over, for the courier"""
    behind: frozenset[str] = frozenset()
    """regions whose older blocks the courier still has"""
    elevated: bool = False
    """whether the lake has heights of the ground, and grids follow them"""
    covariates: bool = False
    """whether it has further covariates"""
    gaps: Mapping[str, Gaps] = field(default_factory=dict)
    """by attribute: what stands where nothing is within reach; `prior` where it is not named"""

    def plan(self) -> Plan:
        """The lake's plan as it is now."""
        plan = self.lake.plan()
        if plan is None:
            raise LakeError(f"lake {self.lake.root}: found no plan.json, expected one before any task runs")
        return plan

    def domain(self, group: str, plan: Plan) -> Domain:
        """What all regions of a group have in common."""
        found = group_named(group)
        limits = tuple(self.limits[name] for name in found.inputs)
        covariates = covariates_of(self.lake.root, self.grid) if self.covariates else None
        gaps = tuple(self.gaps.get(name, "prior") for name in found.outputs)
        start = plan.start_tick
        return Domain(self.grid, found, self.timing, limits, plan, start, self.heights, covariates, gaps)

    def heights(self, region: int) -> Floats | None:
        """Of the points of a region, if grids follow the ground."""
        return heights_of(self.lake.root, self.grid, region) if self.elevated else None


def pack(flagged: DataFrame, job: Job, chunks: Chunks | None = None) -> DataFrame:
    """FLAGGED rows to packs, one row per group and region (and chunk) in each partition."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from pack_batches(batches, job.plan(), chunks)
        freeze_once()

    return _slim(flagged).mapInArrow(work, PACK_DDL)


def _slim(flagged: DataFrame) -> DataFrame:
    """Texts that only letters need stay behind in the JVM for rows that passed."""
    passed = F.col("flag") == 1

    def unless_passed(name: str) -> Column:
        return F.when(~passed, F.col(name)).alias(name)

    return flagged.select(
        *(unless_passed(f.name) if f.name in _LETTER_ONLY else F.col(f.name) for f in FLAGGED.fields)
    )


_LETTER_ONLY = {"unit", "source", "raw", "reason", "test"}


def outputs_of(issue: Issue, group: Group, regions: Regions, region: int, ledger: Ledger) -> Iterator[bytes]:
    """The blocks of an issue, ready to travel; what turned out bad moves in the ledger."""
    tests = np.bincount(issue.grid.test, minlength=len(TESTS))
    tests[SUSPECT] = 0  # they are used
    ledger.suspect += issue.suspect
    if issue.flagged:
        ledger.move(_tests(tests, issue.flagged), issue.flagged)
    for block in blocks_of(issue, group, regions, region):
        yield block.encode()


def moved_of(issue: Issue, group: Group, grid: Grid) -> Iterator[tuple[str, bytes]]:
    """What an issue has found out about single sensors, if anything."""
    if len(issue.moves):
        day = issue.tick * round(grid.tick * 1e6) // reports.DAY_US
        yield REPORTS, to_bytes(reports.moved(issue.moves, group, day))


def _tests(counts: "np.ndarray[tuple[int], np.dtype[np.int64]]", changed: int) -> dict[str, int]:
    """By test; on a re-issue only the sum is known to have changed, and is booked under one name."""
    if int(counts[1:].sum()) == changed:
        return {TESTS[n]: int(c) for n, c in enumerate(counts) if n and c}
    return {"revised": changed}


def late_letters(rows: Measurements, group: Group, lateness_s: float) -> bytes:
    """Measurements that came too late, named by their number (see the lake's sensors)."""
    n = len(rows)
    attributes = [group.inputs[code] for code in rows.code.tolist()]
    table = pa.table(
        [
            pa.array([f"#{s:016x}" for s in rows.sensor.tolist()], pa.string()),
            pa.array(attributes, pa.string()),
            pa.array(rows.x),
            pa.array(rows.y),
            pa.array(rows.elevation.astype(np.float64), from_pandas=True),
            pa.array(rows.time_us).cast(pa.timestamp("us", tz="UTC")),
            pa.array(rows.value),
            *(pa.nulls(n, pa.string()) for _ in range(3)),
            pa.array([f"arrived more than {lateness_s:g} s after its tick was published"] * n, pa.string()),
            pa.array([2] * n, pa.int8()),
            pa.array(["late"] * n, pa.string()),
        ],
        schema=LETTER,
    )
    return to_bytes(table)


def refusal_letters(refused: Sequence[tuple[Identity, str]], grid: Grid) -> pa.Table:
    """Grids that a gateway will never take, as letters with their day."""
    identities, n = [identity for identity, _ in refused], len(refused)
    table = pa.table(
        [
            pa.nulls(n, pa.string()),
            pa.array([i.attribute for i in identities], pa.string()),
            *(pa.nulls(n, pa.float64()) for _ in range(3)),
            pa.array([grid.time_of(i.tick) for i in identities], pa.timestamp("us", tz="UTC")),
            pa.nulls(n, pa.float64()),
            pa.nulls(n, pa.string()),
            pa.array(["gateway"] * n, pa.string()),
            pa.array([json.dumps(i) for i in identities], pa.string()),
            pa.array([reason for _, reason in refused], pa.string()),
            pa.array([4] * n, pa.int8()),
            pa.array(["gateway"] * n, pa.string()),
        ],
        schema=LETTER,
    )
    return table.append_column("day", pc.strftime(table["event_time"], "%Y-%m-%d"))


def write_outputs(outputs: DataFrame, job: Job, batch: int) -> list[tuple[str, bytes]]:
    """Write what the gridding stage made, lake first, then sink; returns ledgers and sensors, which are small.

    One Spark job: each task writes its own files and tells its own gateways, nothing large meets the driver.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        yield from write_task(batches, job, batch, context.partitionId() if context else 0)
        freeze_once()

    found = outputs.mapInArrow(work, OUT_DDL).toArrow()
    return list(zip(found["kind"].to_pylist(), found["payload"].to_pylist(), strict=True))


LETTERS_MAX = 20_000
"""letters in memory at once, and in one file: some 80 MB at most"""
BLOCKS_TOGETHER = 2_000
"""blocks in memory at once, and in one file"""


def write_task(
    batches: Iterator[pa.RecordBatch], job: Job, batch: int, task: int
) -> Iterator[pa.RecordBatch]:
    """One task's share of `write_outputs`."""
    blocks: list[Block] = []
    letters: list[pa.Table] = []
    written: list[int] = []
    ledger, delivery, part = Ledger(), Delivery(), 0

    def flush() -> None:
        nonlocal part
        fresh, known = unknown_blocks(blocks, job) if job.resolve else (blocks, [])
        job.sink.publish(known)  # a backfill that was cut short may have written them without telling
        if fresh:
            table = table_of(fresh, job.grid)
            # Several files of one task: their number goes where the task's number has room.
            job.lake.write("tiles", table, ("attribute", "day"), job.writer, batch, task + 100_000 * part)
            # What this very task has given back is behind as well: nothing later may pass it.
            delivery.add(job.sink.publish(fresh, job.behind | {i.region for i in delivery.waiting}))
            ledger.blocks += len(fresh)
            ledger.unobserved += sum(block.silent_s is not None for block in fresh)
            ledger.newest = max(ledger.newest, *(b.identity.tick for b in fresh))
            part += 1
        blocks.clear()

    def write_letters() -> None:
        if letters:
            table = pa.concat_tables(letters)
            year = pc.fill_null(pc.year(table["event_time"]), 0)
            near = pc.and_(pc.greater_equal(year, 1900), pc.less(year, 2100))
            # Dates beyond are mistakes, not folders.
            day = pc.strftime(table["event_time"], "%Y-%m-%d")
            day = pc.if_else(near, day, datetime.now(UTC).date().isoformat())
            name = task + 100_000 * len(written)
            job.lake.write("letters", table.append_column("day", day), ("day",), job.writer, batch, name)
            written.append(len(table))
            letters.clear()

    for rows in batches:
        for kind, payload in zip(rows["kind"].to_pylist(), rows["payload"].to_pylist(), strict=True):
            if kind == BLOCK:
                blocks.append(Block.decode(payload))
                if len(blocks) >= BLOCKS_TOGETHER:
                    flush()
            elif kind == LETTERS:
                letters.append(from_bytes(payload))
                if sum(map(len, letters)) >= LETTERS_MAX:
                    write_letters()
            elif kind == LEDGER:  # one row for all regions of a task: each row costs Spark a batch of its own
                ledger.merge(Ledger.from_dict(json.loads(payload)))
            else:
                yield _row(kind, payload)
    flush()
    if delivery.refused:
        letters.append(refusal_letters(delivery.refused, job.grid).drop_columns(["day"]))
    write_letters()
    ledger.add(
        acknowledged=delivery.acknowledged, refused=len(delivery.refused), handed=len(delivery.waiting)
    )
    if delivery.waiting:
        yield _row(WAITING, json.dumps(delivery.waiting).encode())
    yield _row(LEDGER, json.dumps(ledger.to_dict()).encode())


def unknown_blocks(blocks: list[Block], job: Job) -> tuple[list[Block], list[Block]]:
    """Blocks that the lake does not have, and those that it has.

    The former are new, or came out otherwise than what is there and are its next revision.
    """
    found: list[Block] = []
    known_already: list[Block] = []
    for attribute in sorted({b.identity.attribute for b in blocks}):
        mine = [b for b in blocks if b.identity.attribute == attribute]
        ticks = [b.identity.tick for b in mine]
        columns = ["tick", "region", "revision", "values", "error"]
        regions = sorted({b.identity.region for b in mine})
        known = job.lake.tiles(
            attribute=attribute, ticks=(min(ticks), max(ticks)), regions=regions, columns=columns
        )
        values, error = (_rows_of(known[name]) for name in ("values", "error"))
        places = zip(known["tick"].to_pylist(), known["region"].to_pylist(), strict=True)
        place = {key: n for n, key in enumerate(places)}
        revisions = known["revision"].to_pylist()
        for block in mine:
            at = place.get((block.identity.tick, block.identity.region))
            if at is None:
                found.append(block)
            elif not (_same(values[at], block.values) and _same(error[at], block.error)):
                found.append(replace(block, identity=block.identity._replace(revision=revisions[at] + 1)))
            else:
                known_already.append(replace(block, identity=block.identity._replace(revision=revisions[at])))
    return found, known_already


def _same(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> bool:
    """Whether two grids are equal, gaps included."""
    return bool(np.array_equal(a, b, equal_nan=True))


def _rows_of(lists: pa.ChunkedArray) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    whole = lists.combine_chunks()
    flat, offsets = whole.values.to_numpy(), whole.offsets.to_numpy()
    return [flat[a:b] for a, b in pairwise(offsets)]


def from_bytes(data: bytes) -> pa.Table:
    """A table that `to_bytes` wrote."""
    return pa.ipc.open_stream(data).read_all()


def _row(kind: str, payload: bytes) -> pa.RecordBatch:
    return pa.record_batch([[kind], [payload]], schema=OUT)


def sum_up(found: list[tuple[str, bytes]]) -> tuple[Ledger, pa.Table]:
    """The ledger of a batch, and the sensors that spoke in it, once each."""
    ledger, sensors = Ledger(), [SENSOR.empty_table()]
    for kind, payload in found:
        if kind == LEDGER:
            ledger.merge(Ledger.from_dict(json.loads(payload)))
        elif kind == SENSORS:
            sensors.append(from_bytes(payload))
    table = pa.concat_tables(sensors)
    once = table.group_by(["number", "group"], use_threads=False).aggregate(
        [("sensor", "first"), ("longitude", "first"), ("latitude", "first"), ("elevation", "first")]
    )
    columns = ["number", "sensor_first", "group", "longitude_first", "latitude_first", "elevation_first"]
    return ledger, once.select(columns).rename_columns(SENSOR.names).cast(SENSOR)


def write_reports(lake: Lake, found: list[tuple[str, bytes]], writer: str, batch: int) -> None:
    """Keep what a batch has heard of each sensor."""
    reports.write(lake, [from_bytes(payload) for kind, payload in found if kind == REPORTS], writer, batch)


def unacknowledged(found: list[tuple[str, bytes]]) -> list[Identity]:
    """Blocks of a batch that no gateway has acknowledged."""
    return [Identity(*i) for kind, payload in found if kind == WAITING for i in json.loads(payload)]


Heard = dict[tuple[int, str], bool]
"""who has spoken of what, and whether the elevation is known"""


def unheard(sensors: pa.Table, known: Heard) -> pa.Table:
    """Sensors that have not spoken before, or whose elevation was not known; they are known from now on."""
    columns = (sensors[name].to_pylist() for name in ("number", "group", "elevation"))
    rows = [((number, group), height is not None) for number, group, height in zip(*columns, strict=True)]
    fresh = [key not in known or (placed and not known[key]) for key, placed in rows]
    for key, placed in rows:
        known[key] = placed or known.get(key, False)
    return sensors.filter(pa.array(fresh, pa.bool_()))


def known_sensors(lake: Lake) -> Heard:
    """Who has spoken of what."""
    table = lake.sensors()
    columns = (table[name].to_pylist() for name in ("number", "group", "elevation"))
    return {(number, group): height is not None for number, group, height in zip(*columns, strict=True)}
