"""Operators over the lake as a Spark job, against one process over labelled arrays: the same bits."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from operator_lakes import REGIONS, make_lake
from operator_worlds import AREAS, GRID, TICKS, conditions, numbers
from sensorgrid.client.lake import read_lake
from sensorgrid.operators import local
from sensorgrid.operators.errors import ExpressionError
from sensorgrid.operators.plan import Operator, OperatorPlan, compile
from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import settings_of
from sensorgrid.pipeline.sources.synthetic_earth import Earth
from sensorgrid.pipeline.spark import operators


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
    work = operators._BackfillWork(json.dumps(plan.to_dict()), GRID, TICKS[0], TICKS[-1], 1000)
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
    rng, plane = np.random.default_rng(1), replace(GRID, extent=(0, 0, 1e6, 1e6), coordinates="planar")
    x, y = rng.uniform(0, 1e6, (2, 400))
    entry = SimpleNamespace(
        group="air_temperature", recipe=SimpleNamespace(parameters=(SimpleNamespace(length=600e3),))
    )
    table = pa.table({"group": ["air_temperature"] * 400, "longitude": x, "latitude": y})
    known = SimpleNamespace(plan=lambda: SimpleNamespace(recipes=[entry]), sensors=lambda: table)

    found = operators.lengths_of(known, plane)  # type: ignore[arg-type]

    assert operators.spacing_of(plane, x, y) == pytest.approx(np.sqrt(1e12 / 400), rel=0.15)
    assert operators.spacing_of(plane, x / 2, y) > 1.5 * np.sqrt(1e12 / 400)  # type: ignore[operator]
    assert found["air_temperature"] == pytest.approx(1 / (1 / 600e3 + 1 / 35e3), rel=0.15)


@pytest.mark.long
@pytest.mark.parametrize("attribute", ["air_temperature", "air_pressure_at_mean_sea_level"])
def test_stated_errors_of_means_are_honest_about_a_synthetic_earth(
    spark: SparkSession, tmp_path: Path, attribute: str
) -> None:
    """Means over 60 boxes at 4 ticks, against the truth: about two thirds of them lie within one stated error."""
    content = {
        "grid": {"shape": [128, 64], "tick": 1800, "region_digits": 2, "attributes": [attribute]},
        "sources": [
            {
                "kind": "synthetic",
                "options": {
                    "seed": 11, "stations": 1200, "tick": 1800, "attributes": attribute,
                    "start": "2026-03-01T00:00:00Z", "until": "2026-03-01T04:00:00Z",
                },
            }
        ],
    }  # fmt: skip
    configuration = settings_of(content, "test", tmp_path)
    jobs.backfill(spark, configuration)
    lake, grid = Lake(configuration.lake), configuration.grid.grid()
    world = local.Fields(read_lake(lake.root), grid, Regions(grid).boxes)
    lengths, rng = operators.lengths_of(lake, grid), np.random.default_rng(1)
    x = grid.extent[0] + (np.arange(128) + 0.5) * grid.spacing[0]
    y = grid.extent[1] + (np.arange(64) + 0.5) * grid.spacing[1]
    earth = Earth(seed=11, station_count=1200, tick_s=1800.0, attributes=(attribute,))
    apart, independent = [], []
    for _ in range(60):
        wide, high = rng.uniform(8, 60, 2)
        west, south = rng.uniform(-180, 180 - wide), rng.uniform(-60, 70 - high)
        plan = compile(
            f"mean({attribute}, BBOX({west}, {south}, {west + wide}, {south + high}))",
            grid,
            lengths_m=lengths,
        )
        points, weight = plan.terms[0].whole.indices()
        found = local.results(plan, world)
        for number, tick in list(enumerate(world.ticks))[4:]:
            true = earth.truth(attribute, x[None, :], y[:, None], (tick + 1) * 1800.0).ravel()[points]
            off = found.value[number] - (true * weight).sum() / weight.sum()
            apart.append(off / found.error[number])
            errors = world.at(tick, (attribute,))[attribute][1].ravel()[points]
            independent.append(off / np.sqrt(((weight * errors) ** 2).sum()) * weight.sum())

    within = float(np.mean(np.abs(apart) < 1))
    print(
        f"{attribute}: {within:.0%} within one error; {np.mean(np.abs(independent) < 1):.0%} if independent"
    )
    print(f"root mean square of errors over stated ones: {np.sqrt(np.mean(np.square(apart))):.2f}")
    assert 0.45 < within < 0.95
    assert np.mean(np.abs(independent) < 1) < within - 0.15
