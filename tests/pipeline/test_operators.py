"""Operators over the lake as a Spark job, against one process over labelled arrays: the same bits."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from operator_worlds import AREAS, GRID, TICKS, conditions, fields, numbers
from sensorgrid.client.lake import read_lake
from sensorgrid.operators import local
from sensorgrid.operators.errors import ExpressionError
from sensorgrid.operators.plan import Operator, OperatorPlan, compile
from sensorgrid.pipeline.gridding.measurements import empty
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.lake.tiles import Basis, Block, Identity, table_of
from sensorgrid.pipeline.plan import HaloEntry, Plan
from sensorgrid.pipeline.spark import operators

REGIONS = Regions(GRID)


def make_lake(folder: Path, seed: int = 5) -> Lake:
    """A lake with holes, a region that never came, one without observations, and older revisions that are wrong."""
    lake, blocks = Lake(str(folder)).create(), []
    lake.save_plan(Plan(GRID, TICKS[0], (HaloEntry(TICKS[0], "air_temperature", (1.0,) * 8, ""),)))
    for tick, attributes in fields(seed, holes=0.1).items():
        for name, (values, errors, _) in attributes.items():
            for number, box in enumerate(REGIONS.boxes):
                if (tick, number) == (TICKS[2], 1):
                    continue
                part = np.s_[box.y0 : box.y1, box.x0 : box.x1]
                seen = np.full(64, number != 3, np.uint8)
                basis = Basis(seen, np.where(seen, 1, np.nan).astype(np.float32), None, None, "prior")
                for revision in range(1 + (number == 2)):
                    wrong = 50 if number == 2 and not revision else 0
                    identity = Identity(name, tick, REGIONS.name(number), revision)
                    found = (values[part] + wrong).ravel()
                    blocks.append(
                        Block(
                            identity,
                            found,
                            errors[part].ravel(),
                            1,
                            "k",
                            empty(),
                            np.empty(0, np.uint8),
                            (),
                            basis,
                        )
                    )
    lake.write("tiles", table_of(blocks, GRID), ("attribute", "day"), "fill", 0, 0)
    return lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return make_lake(tmp_path_factory.mktemp("operators") / "lake")


@pytest.fixture(scope="module")
def data(lake: Lake) -> Any:
    return read_lake(lake.root)


def expected(plan: OperatorPlan, data: Any) -> list[tuple[Any, ...]]:
    found = local.results(plan, local.Fields(data, GRID, REGIONS.boxes))
    return [found.at(n)[:5] for n in range(len(found)) if plan.is_due(TICKS[n])]


def as_bits(rows: Any) -> list[tuple[Any, ...]]:
    return [tuple(np.float64(v).tobytes() if isinstance(v, float) else v for v in row) for row in rows]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    names = ("value", "error", "points", "coverage", "reason")
    return [tuple(float("nan") if r[n] is None else r[n] for n in names) for r in table.to_pylist()]


def in_spark(value: Any, when: Any = None, every: Any = None) -> OperatorPlan:
    return compile(Operator(value, when, every=every), GRID, AREAS)


@pytest.mark.parametrize(
    "plan",
    [
        in_spark("mean(air_temperature, 'B', '30min') - min(air_temperature, 'A') * 1"),
        in_spark("percentile(air_temperature, 0.9, 'A')", "hold(max(precipitation_amount) > 3, 2)", "20min"),
    ],
    ids=["window", "condition"],
)
def test_spark_gives_the_bits_of_one_process(
    spark: SparkSession, lake: Lake, data: Any, plan: OperatorPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "CHUNK_TICKS", 3)  # windows reach across chunks

    table = operators.backfill(spark, lake, plan, TICKS[0], TICKS[-1])

    assert table.schema == operators.RESULT
    assert as_bits(rows_of(table)) == as_bits(expected(plan, data))
    assert len({row[0] for row in rows_of(table)}) > 2


@given(value=st.one_of(numbers, conditions), when=st.none() | conditions)
@settings(max_examples=25, phases=(Phase.explicit, Phase.generate))
def test_what_tasks_do_gives_the_bits_of_one_process(
    lake: Lake, data: Any, value: str, when: str | None
) -> None:
    """The same, on random expressions, of the functions that Spark calls."""
    try:
        plan = in_spark(value, when)
    except ExpressionError as error:
        assume("no attribute" not in str(error) and "division by 0" not in str(error))
        raise
    work = operators._Work(json.dumps(plan.to_dict()), GRID, TICKS[0], TICKS[-1], 1000)
    tiles = lake.tiles(latest=False)
    tiles = tiles.filter(pa.compute.is_in(tiles["attribute"], pa.array(plan.attributes)))
    partials = [operators.partials_of(batch, work) for batch in tiles.to_batches(max_chunksize=37)]
    rows = [row for batch in partials for row in batch.to_pylist()]

    found = operators.results_of(TICKS[0] // 1000, rows[::-1], work)

    table = operators._table(plan, work, found)
    assert as_bits(rows_of(table)) == as_bits(expected(plan, data))


def test_results_are_labelled_in_one_process(data: Any) -> None:
    found = local.evaluate("mean(air_temperature, 'A')", data, AREAS)

    assert found.attrs == {"long_name": "mean(air_temperature, 'A')", "units": "K"}
    assert found.sizes == {"time": len(TICKS)}
    assert set(found.coords) == {"time", "error", "points", "coverage", "reason", "tick"}
    assert (found.coverage < 1).all()
    assert found.time.values[0] == np.datetime64(GRID.time_of(TICKS[0]).replace(tzinfo=None))


def test_a_part_of_the_data_lowers_the_coverage(data: Any) -> None:
    half = data.isel(longitude=slice(0, 16))

    with pytest.raises(ExpressionError, match="found 15 × 16 points, expected a whole grid"):
        local.evaluate("mean(air_temperature)", data.isel(longitude=slice(0, 15)))
    whole, part = (local.evaluate("count(air_temperature)", d, grid=GRID) for d in (data, half))

    assert (part.coverage < whole.coverage).all()
    assert (part < whole).all()


def test_lengths_of_errors_follow_the_fit_and_the_sensors() -> None:
    parameters = SimpleNamespace(length=600e3)
    entry = SimpleNamespace(group="air_temperature", recipe=SimpleNamespace(parameters=(parameters,)))
    known = SimpleNamespace(
        plan=lambda: SimpleNamespace(recipes=[entry]),
        sensors=lambda: {"group": pa.chunked_array([["air_temperature"] * 400])},
    )

    found = operators.lengths_of(known, GRID)  # type: ignore[arg-type]

    assert 60e3 < found["air_temperature"] < 200e3
