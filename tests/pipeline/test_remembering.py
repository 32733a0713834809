"""A stream with a new checkpoint goes on holding what the lake's measurements say."""

from pathlib import Path
from typing import Any

import numpy as np

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.delivery.publish import NoSink
from sensorgrid.pipeline.gridding.book import Issue, Timing
from sensorgrid.pipeline.gridding.coverage import Gaps
from sensorgrid.pipeline.gridding.kernels.interface import Parameters
from sensorgrid.pipeline.gridding.measurements import Measurements
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.gridding.series import Past, SeriesLimits
from sensorgrid.pipeline.gridding.tile import Recipe
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.lake.tiles import Block, blocks_of, table_of
from sensorgrid.pipeline.plan import HaloEntry, Plan, RecipeEntry
from sensorgrid.pipeline.spark.stages import BLOCK, Job
from sensorgrid.pipeline.spark.stream import GridProcessor

GRID = Grid(
    extent=(0, 0, 1600, 1600), coordinates="planar", shape=(16, 16), tick=60, resolution_bits=1, region_digits=2,
    attributes=("air_temperature",),
)  # fmt: skip
START = 5
NEAR = Parameters(mean=10, spread=20, length=80, noise=0.5, drift=4, sill=3)
PLAN = Plan(
    GRID, START, (HaloEntry(-10, "air_temperature", (5000.0,) * 4, "wide"),),
    (RecipeEntry(-10, "air_temperature", Recipe("kriging", (NEAR,)), "given"),),
)  # fmt: skip
SEEN = Measurements(
    np.array([1], np.uint64), np.array([70_000_000]), np.array([150.0]), np.array([150.0]), np.array([17.0]),
    np.zeros(1, np.uint8), np.ones(1, np.uint8),
)  # fmt: skip


class Value:
    """Spark's state of one value, in memory."""

    def __init__(self) -> None:
        self.kept: Any = None

    def get(self) -> Any:
        return self.kept

    def update(self, kept: Any) -> None:
        self.kept = kept


class Table(dict):  # type: ignore[type-arg]
    """Spark's state of many values, in memory."""

    def getValue(self, key: Any) -> Any:  # noqa: N802
        return self.get(key)

    def updateValue(self, key: Any, kept: Any) -> None:  # noqa: N802
        self[key] = kept

    def removeKey(self, key: Any) -> None:  # noqa: N802
        del self[key]


def first_block(folder: Path, gaps: Gaps) -> tuple[Block, Block]:
    """The last block that the old stream published, and the first one of a stream with a new checkpoint."""
    lake = Lake(str(folder / gaps)).create()
    lake.save_plan(PLAN)
    limits = {"air_temperature": SeriesLimits(1e9, 1e9, 1e9, 0, 0.1)}
    timing = Timing(settle_s=30, lateness_s=120, max_age_s=120, hold_s=600)
    job = Job(GRID, timing, limits, lake, NoSink(), "streamnew", gaps={"air_temperature": gaps})
    domain, regions = job.domain("air_temperature", PLAN), Regions(GRID)
    checked = domain.check(SEEN, Past.nothing())
    old = [
        block
        for tick in range(START)
        for block in blocks_of(
            Issue(tick, domain.grid_at(checked, 0, tick), (0,), 0), domain.group, regions, 0
        )
    ]
    lake.write("tiles", table_of(old, GRID), ("attribute", "day"), "streamold", 0, 0)
    processor = GridProcessor(job)
    processor._state, processor._rows, processor._plan, processor._regions = Value(), Table(), PLAN, regions
    now_us = round(((START + 1) * GRID.tick + timing.settle_s) * 1e6)
    (new,) = [
        Block.decode(payload)
        for kind, payload in processor._turn("air_temperature", 0, [], now_us, True)
        if kind == BLOCK
    ]
    return old[-1], new


def test_a_new_checkpoint_goes_on_holding_what_was_held(tmp_path: Path) -> None:
    last, first = first_block(tmp_path, "hold")

    assert last.identity.tick == START - 1
    assert first.identity.tick == START
    assert last.values.max() > 16
    np.testing.assert_array_equal(first.values, last.values)
    assert first.silent_s == (START + 1) * GRID.tick - 70
    assert last.silent_s == first.silent_s - GRID.tick


def test_without_holding_the_lake_is_not_asked(tmp_path: Path) -> None:
    _, first = first_block(tmp_path, "prior")

    assert (first.values == 10).all()
    assert first.silent_s == float("inf")
