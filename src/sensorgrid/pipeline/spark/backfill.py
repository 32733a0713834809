"""The backfill: the same stages over what lies in files, as one batch job.

Time is cut into chunks of ticks. A chunk of a region holds its own measurements and, as context, those shortly
before it, as far back as they can matter (`Domain.context_s`). So every chunk is gridded alone and in parallel,
and comes out as the stream would have published it in the end, bit for bit.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sensorgrid.pipeline.gridding.book import Issue
from sensorgrid.pipeline.gridding.groups import groups_of
from sensorgrid.pipeline.gridding.measurements import Measurements, decode, deduplicate
from sensorgrid.pipeline.gridding.moves import bad_rows, moves
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.gridding.series import Past
from sensorgrid.pipeline.gridding.tile import RegionEvidence
from sensorgrid.pipeline.lake.ledger import Ledger
from sensorgrid.pipeline.plan import Plan
from sensorgrid.pipeline.spark.packing import ASIDE, CLOCK, LEDGER, ROWS, Chunks
from sensorgrid.pipeline.spark.stages import BLOCK, OUT, OUT_DDL, Job, moved_of, outputs_of, pack

CHUNK_TICKS = 24
"""ticks of a chunk, if the context is not longer"""


@dataclass(frozen=True, slots=True)
class Span:
    """Which ticks to make."""

    first: int
    last: int


def chunks_for(job: Job, plan: Plan) -> Chunks:
    """Chunks long enough for the longest context."""
    context_s = max(job.domain(g.name, plan).context_s for g in groups_of(job.grid.attributes))
    return Chunks(max(CHUNK_TICKS, ceil(context_s / job.grid.tick)), ceil(context_s * 1e6))


def grids(flagged: DataFrame, job: Job, plan: Plan, span: Span) -> DataFrame:
    """Flagged measurements to blocks, letters and ledgers, for all ticks of the span and all regions."""
    chunks = chunks_for(job, plan)
    packs = pack(flagged, job, chunks).unionByName(_every_chunk(flagged, job, chunks, span))
    together = packs.groupBy("group", "region", "chunk").agg(
        F.collect_list("kind").alias("kinds"), F.collect_list("payload").alias("payloads")
    )

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _grid_batches(batches, job, chunks, span)

    return together.mapInArrow(work, OUT_DDL)


def _every_chunk(flagged: DataFrame, job: Job, chunks: Chunks, span: Span) -> DataFrame:
    """An empty pack for every group, region and chunk: a region without a sensor has grids as well."""
    names = [g.name for g in groups_of(job.grid.attributes)]
    session = flagged.sparkSession
    numbers = range(span.first // chunks.ticks, span.last // chunks.ticks + 1)
    return (
        session.range(len(names) * len(Regions(job.grid)) * len(numbers))
        .select(
            F.element_at(F.array(*map(F.lit, names)), (F.col("id") % len(names) + 1).cast("int")).alias("group"),
            (F.floor(F.col("id") / len(names)) % len(Regions(job.grid))).cast("int").alias("region"),
            (F.floor(F.col("id") / len(names) / len(Regions(job.grid))) + numbers[0]).alias("chunk"),
            F.lit(CLOCK).alias("kind"),
            F.lit(b"").alias("payload"),
        )
    )  # fmt: skip


def _grid_batches(
    batches: Iterator[pa.RecordBatch], job: Job, chunks: Chunks, span: Span
) -> Iterator[pa.RecordBatch]:
    plan, waiting = job.plan(), []
    for batch in batches:
        columns = [batch[name].to_pylist() for name in ("group", "region", "chunk", "kinds", "payloads")]
        for group, region, chunk, kinds, payloads in zip(*columns, strict=True):
            if group == ASIDE:
                waiting += list(zip(kinds, payloads, strict=True))
            else:
                packs = [decode(p) for k, p in zip(kinds, payloads, strict=True) if k == ROWS]
                for output in grid_chunk(packs, group, region, chunk, job, plan, chunks, span):
                    waiting.append(output)
                    if len(waiting) >= 64:
                        yield _batch(waiting)
                        waiting = []
    if waiting:
        yield _batch(waiting)


def grid_chunk(
    packs: list[Measurements],
    group: str,
    region: int,
    chunk: int,
    job: Job,
    plan: Plan,
    chunks: Chunks,
    span: Span,
) -> Iterator[tuple[str, bytes]]:
    """All ticks of one group, region and chunk, and their ledger."""
    domain, regions, ledger = job.domain(group, plan), Regions(job.grid), Ledger()
    rows, duplicates = deduplicate(packs)
    ledger.add(used=int(rows.home.sum()), duplicate=duplicates)
    checked = domain.check(rows, Past.nothing())
    first = max(span.first, chunk * chunks.ticks)
    last = min(span.last, (chunk + 1) * chunks.ticks - 1)
    seen: dict[int, RegionEvidence] = {}
    for tick in range(first, last + 1):
        made = domain.grid_at(checked, region, tick, seen)
        found = moves(b"", bad_rows(made.rows, made.test))
        issue = Issue(tick, made, (0,) * len(made.tiles), made.flagged, made.suspect, found)
        for payload in outputs_of(issue, domain.group, regions, region, ledger):
            yield BLOCK, payload
        yield from moved_of(issue, domain.group, job.grid)
    yield LEDGER, json.dumps(ledger.to_dict()).encode()


def _batch(rows: list[tuple[str, bytes]]) -> pa.RecordBatch:
    kinds, payloads = zip(*rows, strict=True)
    return pa.record_batch([pa.array(kinds), pa.array(payloads, pa.binary())], schema=OUT)
