"""Operators over the lake: partials of each tile where it is read, then merged and finished by chunks of ticks.

A tile becomes a few hundred bytes before anything is shuffled. Older revisions are told from the newest when partials
meet, so that fields themselves never move. A chunk holds the ticks before it that its windows look back to.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from scipy.spatial import cKDTree

from sensorgrid.model.grid import Grid
from sensorgrid.operators.batch import PlanBatch
from sensorgrid.operators.correlation import length_of
from sensorgrid.operators.plan import OperatorPlan, plan_from
from sensorgrid.operators.weights import Floats, row_weights
from sensorgrid.pipeline.gridding.groups import groups_of
from sensorgrid.pipeline.gridding.kernels.interface import metres
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake.folder import Lake, LakeError, silence

CHUNK_TICKS = 256
"""ticks of a chunk, if windows are not longer"""
RESULT = pa.schema(
    [
        ("tick", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("value", pa.float64()),
        ("error", pa.float64()),
        ("points", pa.int64()),
        ("coverage", pa.float64()),
        ("reason", pa.string()),
    ]
)
"""what a backfill gives: a row per tick that is due; value and error are null where there is none"""
_TILE_DDL = (
    "tick bigint, region string, revision int, values array<float>, error array<float>, observed_points int,"
    " newest_age float, attribute string"
)
_PARTIAL = pa.schema(
    [
        ("tick", pa.int64()), ("region", pa.string()), ("revision", pa.int32()), ("attribute", pa.string()),
        ("payload", pa.binary()),
    ]
)  # fmt: skip
_PARTIAL_DDL = "tick bigint, region string, revision int, attribute string, payload binary"
_OUT = pa.schema([("tick", pa.int64()), ("payload", pa.binary())])


@dataclass(frozen=True)
class _BackfillWork:
    """What tasks need to know; pickles."""

    plan: str
    """as JSON"""
    grid: Grid
    first: int
    last: int
    chunk: int

    def batch(self) -> PlanBatch:
        """The plan, ready to evaluate; made once per process."""
        return _batch(self.plan, self.grid)


@lru_cache(maxsize=4)
def _batch(plan: str, grid: Grid) -> PlanBatch:
    return PlanBatch([plan_from(json.loads(plan), grid)], Regions(grid).boxes)


def backfill(session: SparkSession, lake: Lake, plan: OperatorPlan, first: int, last: int) -> pa.Table:
    """The results of an operator at the ticks of [first, last], from what is in the lake."""
    chunk = max(CHUNK_TICKS, plan.window)
    work = _BackfillWork(json.dumps(plan.to_dict()), plan.grid, first, last, chunk)
    tiles = _tiles(session, lake, plan, first)
    merged = _together(_partials(tiles, work), work, plan.window)
    rows = [np.frombuffer(row.payload) for row in merged.collect()]
    return _table(plan, work, np.concatenate(rows).reshape(-1, 6) if rows else np.empty((0, 6)))


def span_of(lake: Lake, plan: OperatorPlan) -> tuple[int, int]:
    """The first and last tick of the lake that the plan's attributes have."""
    ticks: list[int] = []
    for name in plan.attributes:
        ticks += lake.tiles(attribute=name, columns=["tick"], latest=False)["tick"].to_pylist()
    if not ticks:
        raise LakeError(f"lake {lake.root}: found no grid of {', '.join(plan.attributes)}, expected some")
    return min(ticks), max(ticks)


def lengths_of(lake: Lake, grid: Grid) -> dict[str, float]:
    """Over which errors of each attribute are alike, from what was fitted and how far apart sensors are."""
    plan = lake.plan()
    if plan is None:
        return {}
    sensors = lake.sensors().to_pandas()
    found: dict[str, float] = {}
    for group in groups_of(grid.attributes):
        entries = [entry for entry in plan.recipes if entry.group == group.name]
        mine = sensors[sensors["group"] == group.name]
        spacing = spacing_of(grid, mine["longitude"].to_numpy(float), mine["latitude"].to_numpy(float))
        parameters = entries[-1].recipe.parameters if entries else ()
        for name, own in zip(group.outputs, parameters, strict=False):
            found[name] = length_of(own.length, spacing)
    return found


def spacing_of(grid: Grid, x: Floats, y: Floats) -> float | None:
    """How far apart sensors are for most of the grid, in metres: twice the mean distance to the nearest one.

    Of sensors that stand anywhere alike this is the root of area over sensors. Where they crowd on land, that root
    would be far too small for the sea.
    """
    there = np.isfinite(x) & np.isfinite(y)
    if not there.any():
        return None
    (dx, dy), (west, south), (nx, ny) = grid.spacing, grid.extent[:2], grid.shape
    columns, rows = np.arange(0, nx, max(1, nx // 64)), np.arange(0, ny, max(1, ny // 32))
    px, py = np.meshgrid(west + (columns + 0.5) * dx, south + (rows + 0.5) * dy)
    tree = cKDTree(metres(x[there], y[there], grid.coordinates))
    distance = tree.query(metres(px.ravel(), py.ravel(), grid.coordinates))[0]
    weight = np.repeat(row_weights(grid)[rows], len(columns))
    return float(2 * (distance * weight).sum() / weight.sum())


def _tiles(session: SparkSession, lake: Lake, plan: OperatorPlan, first: int) -> DataFrame:
    """Tiles that the plan needs; only the columns that it needs are read."""
    root = lake.root if "://" in lake.root else f"file://{lake.path()}"
    regions = Regions(plan.grid)
    met = sorted({regions.name(n) for term in plan.terms for n in term.met(regions.boxes)})
    return (
        session.read.schema(_TILE_DDL + ", day date")
        .parquet(f"{root.rstrip('/')}/tiles")
        .where(F.col("attribute").isin(list(plan.attributes)) & F.col("region").isin(met))
        .where(F.col("tick") >= first - plan.window + 1)
        .select(*_TILE_COLUMNS)
    )


_TILE_COLUMNS = (
    "tick",
    "region",
    "revision",
    "values",
    "error",
    "observed_points",
    "newest_age",
    "attribute",
)


def _partials(tiles: DataFrame, work: _BackfillWork) -> DataFrame:
    """Each tile as the partials of the terms that it meets."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield partials_of(batch, work)

    return tiles.where(F.col("tick") <= work.last).mapInArrow(make, _PARTIAL_DDL)


def partials_of(tiles: pa.RecordBatch, work: Any) -> pa.RecordBatch:
    """Rows of tiles as rows of partials."""
    batch, regions = work.batch(), Regions(work.grid)
    columns = [tiles[name] for name in _TILE_COLUMNS]
    rows = []
    for tick, region, revision, values, error, observed, newest, attribute in zip(*columns, strict=True):
        box = regions.boxes[regions.number(region.as_py())]
        shape = (box.y1 - box.y0, box.x1 - box.x0)
        seen = silence(observed.as_py(), newest.as_py()) is None
        field = (_numbers(values).reshape(shape), _numbers(error).reshape(shape), seen)
        found = list(batch.partials(box, {attribute.as_py(): field}))
        rows.append((tick.as_py(), region.as_py(), revision.as_py(), attribute.as_py(), _packed(found)))
    names = [[row[n] for row in rows] for n in range(5)]
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(names, _PARTIAL, strict=True)], schema=_PARTIAL
    )


def _numbers(cell: Any) -> Any:
    """A list of a row as an array; what is null is not a number."""
    return cell.values.to_numpy(zero_copy_only=False).astype(np.float32)


def _packed(found: list[tuple[int, Any, Any]]) -> bytes:
    """Groups, terms and partials as bytes."""
    parts = []
    for number, which, partials in found:
        head = np.array([number, len(which), partials.shape[1]], np.int64)
        parts += [head.tobytes(), which.astype(np.int64).tobytes(), np.ascontiguousarray(partials).tobytes()]
    return b"".join(parts)


def _unpacked(data: bytes) -> Iterator[tuple[int, Any, Any]]:
    at = 0
    while at < len(data):
        number, count, width = np.frombuffer(data, np.int64, 3, at).tolist()
        which = np.frombuffer(data, np.int64, count, at + 24)
        partials = np.frombuffer(data, np.float64, count * width, at + 24 + 8 * count).reshape(count, width)
        at += 24 + 8 * count + 8 * count * width
        yield number, which, partials


def _together(partials: DataFrame, work: _BackfillWork, window: int) -> DataFrame:
    """Partials of a chunk, with those before it that it looks back to, as results."""
    chunks = F.sequence(
        F.floor(F.col("tick") / work.chunk), F.floor((F.col("tick") + (window - 1)) / work.chunk)
    )
    together = (
        partials.withColumn("chunk", F.explode(chunks))
        .groupBy("chunk")
        .agg(F.collect_list(F.struct("tick", "region", "revision", "attribute", "payload")).alias("rows"))
    )

    def finish(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for chunk, rows in zip(batch["chunk"], batch["rows"], strict=True):
                found = results_of(chunk.as_py(), rows.as_py(), work)
                yield pa.record_batch(
                    [pa.array([chunk.as_py()]), pa.array([found.tobytes()], pa.binary())], schema=_OUT
                )

    return together.mapInArrow(finish, "tick bigint, payload binary")


def results_of(chunk: int, rows: list[dict[str, Any]], work: Any) -> Any:
    """[tick, 6]: tick, value, error, points, coverage, reason of all ticks of a chunk."""
    batch = work.batch()
    newest: dict[tuple[int, str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["tick"], row["region"], row["attribute"])
        if key not in newest or newest[key]["revision"] < row["revision"]:
            newest[key] = row
    batch.forget(1 << 62)
    for key in sorted(newest):
        batch.add(key[0], _unpacked(newest[key]["payload"]))
    found = []
    for tick in range(max(work.first, chunk * work.chunk), min(work.last, (chunk + 1) * work.chunk - 1) + 1):
        if batch.plans[0].is_due(tick):
            n = batch.results(tick)
            found.append((tick, n.value[0], n.error[0], n.points[0], n.coverage[0], n.reason[0]))
    return np.array(found, np.float64).reshape(-1, 6)


def _table(plan: OperatorPlan, work: _BackfillWork, found: Any) -> pa.Table:
    """Results in order, with ticks that no chunk had."""
    from sensorgrid.operators.numbers import NO_DATA, REASONS

    nothing = (np.nan, np.nan, 0.0, 0.0, float(NO_DATA))
    by_tick = {int(row[0]): tuple(row[1:]) for row in found}
    due = [tick for tick in range(work.first, work.last + 1) if plan.is_due(tick)]
    rows = np.array([by_tick.get(tick, nothing) for tick in due], np.float64).reshape(-1, 5)
    value, error, points, coverage, reason = rows.T
    return pa.table(
        [
            pa.array(due, pa.int64()),
            pa.array([plan.grid.time_of(tick) for tick in due], pa.timestamp("us", tz="UTC")),
            pa.array(value, pa.float64(), from_pandas=True),
            pa.array(error, pa.float64(), from_pandas=True),
            pa.array(points.astype(np.int64)),
            pa.array(coverage, pa.float64()),
            pa.array([REASONS[int(r)] for r in reason], pa.string()),
        ],
        schema=RESULT,
    )
