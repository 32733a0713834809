"""From a configuration's sources to networks that can be verified: the readings of some ticks, on the driver."""

from collections.abc import Callable
from datetime import datetime
from math import ceil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sensorgrid.pipeline.gridding.book import Domain
from sensorgrid.pipeline.gridding.groups import Group, groups_of
from sensorgrid.pipeline.gridding.measurements import Measurements, sensor_number
from sensorgrid.pipeline.ingest import inlet
from sensorgrid.pipeline.plan import Plan
from sensorgrid.pipeline.settings import PipelineSettings
from sensorgrid.pipeline.verification.network import StationNetwork, VerificationError, evenly, network_of

FULL_ENOUGH = 0.5
"""of the readings that a good tick has: ticks with fewer are not chosen while there are others"""


def networks(
    session: SparkSession,
    settings: PipelineSettings,
    *,
    attribute: str | None = None,
    first: datetime | None = None,
    until: datetime | None = None,
    ticks: int = 24,
    say: Callable[[str], None] = lambda text: None,
) -> list[StationNetwork]:
    """A network for each group of attributes that somebody reports, at ticks spread over the time asked for."""
    grid = settings.grid.grid()
    wanted = _groups(grid.attributes, attribute)
    say("reading the sources")
    flagged = inlet.flagged(session, settings, grid, streaming=False).where("flag = 1")
    if first is not None:
        flagged = flagged.where(F.col("event_time") >= F.lit(first))
    if until is not None:
        flagged = flagged.where(F.col("event_time") < F.lit(until))
    tick_us = round(grid.tick * 1e6)
    numbered = flagged.withColumn("tick", F.floor(F.unix_micros("event_time") / tick_us))
    timing, limits = settings.timing_of(grid), settings.series_limits(grid)
    counts = numbered.groupBy("attribute", "tick").count().toArrow()
    found = []
    for group in wanted:
        chosen = _ticks(counts, group, ticks)
        if not chosen:
            continue
        say(f"reading {group.name}: {len(chosen)} ticks")
        bounds = tuple(limits[name] for name in group.inputs)
        domain = Domain(grid, group, timing, bounds, Plan(grid, 0, halos=()), 0)
        before = ceil(domain.context_s / grid.tick)
        rows = _rows(numbered, group, sorted({c - b for c in chosen for b in range(before + 1)}))
        heights = None
        if settings.gridding.elevation is not None:  # as the grids themselves, which know the ground then
            heights = dict(zip(rows.sensor.tolist(), rows.elevation.tolist(), strict=True))
        found.append(network_of(group.name, rows, group, grid, bounds, timing.max_age_s, chosen, heights))
    if not found:
        span = f" from {first or 'the beginning'} until {until or 'the end'}"
        what = attribute or " or ".join(grid.attributes)
        raise VerificationError(f"sources: found no good measurement of {what}{span}, expected some")
    return found


def _groups(attributes: tuple[str, ...], wanted: str | None) -> list[Group]:
    every = groups_of(attributes)
    if wanted is None:
        return list(every)
    found = [g for g in every if wanted in (g.name, *g.inputs, *g.outputs)]
    if not found:
        raise VerificationError(f"--attribute: found {wanted!r}, expected one of {', '.join(attributes)}")
    return found


def _ticks(counts: pa.Table, group: Group, ticks: int) -> list[int]:
    """Ticks with about as many readings as good ones have, evenly over time."""
    mine = counts.filter(pc.is_in(counts["attribute"], pa.array(group.inputs)))
    if not len(mine):
        return []
    numbers, where = np.unique(mine["tick"].to_numpy(), return_inverse=True)
    readings = np.bincount(where, weights=mine["count"].to_numpy())
    full = numbers[readings >= FULL_ENOUGH * np.quantile(readings, 0.9)]
    return [int(tick) for tick in evenly(full.tolist(), ticks)]


def _rows(numbered: DataFrame, group: Group, ticks: list[int]) -> Measurements:
    rows = numbered.where(F.col("attribute").isin(list(group.inputs))).where(F.col("tick").isin(ticks))
    table = rows.select(
        "sensor", "attribute", "longitude", "latitude", F.unix_micros("event_time").alias("time_us"), "value",
        "elevation",
    ).toArrow()  # fmt: skip
    names, who = np.unique(table["sensor"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    numbers = np.array([sensor_number(name) for name in names.tolist()], np.uint64)
    return Measurements(
        numbers[who],
        table["time_us"].to_numpy(),
        table["longitude"].to_numpy(),
        table["latitude"].to_numpy(),
        table["value"].to_numpy(),
        pc.index_in(table["attribute"], pa.array(group.inputs)).to_numpy().astype(np.uint8),
        np.ones(len(table), np.uint8),
        pc.fill_null(table["elevation"], float("nan")).to_numpy().astype(np.float32),
    )
