"""Run, backfill and replay on Spark: the same grids, counts that add up, and no way around the lake's rules."""

import gzip
import json
import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.delivery.waiting import WaitingFolder
from sensorgrid.pipeline.gridding.measurements import sensor_number
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.lake.tiles import Identity
from sensorgrid.pipeline.plan import PlanError
from sensorgrid.pipeline.settings import PipelineSettings, settings_of
from sensorgrid.pipeline.sources.synthetic_earth import Earth
from sensorgrid.pipeline.spark.packing import LEDGER, LETTER, LETTERS, to_bytes
from sensorgrid.pipeline.spark.stages import OUT, write_task
from sensorgrid.runtime.registry import Registry

START_S = 1_700_000_100 // 300 * 300
TICKS = 6
EARTH = Earth(
    seed=5, station_count=250, tick_s=300.0, lateness_s=600.0,
    attributes=("air_temperature", "wind_speed", "wind_from_direction"),
)  # fmt: skip


def settings_for(folder: Path, **changes: Any) -> PipelineSettings:
    content = {
        "grid": {
            "shape": [64, 32], "tick": 300, "resolution_bits": 1, "region_digits": 2,
            "attributes": ["air_temperature", "eastward_wind", "northward_wind"],
        },
        "timing": {"settle": 30, "lateness": 1200, "max_age": 1500},
        # Sensors of temperature reach less far than they stand apart, and what they said before is held.
        "gridding": {
            "calibrate": False, "halo": 3e6, "air_temperature": {"gaps": "hold", "length": 2e5},
        },
        "spark": {"trigger": 0},
        "sources": [
            {"kind": "files", "name": "earth", "path": "reports", "mapping": "measurements"},
            {"kind": "files", "name": "strangers", "path": "strange", "mapping": "plain_json"},
        ],
    }  # fmt: skip
    return settings_of(content | changes, "test", folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of the synthetic earth in files, as they arrived."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "reports").mkdir()
    for step in range(TICKS + 2):
        table = EARTH.reports(START_S + step * 300, START_S + (step + 1) * 300)
        pq.write_table(table, folder / "reports" / f"{step}.parquet")
    (folder / "strange").mkdir()
    (folder / "strange" / "lines.json").write_bytes(b"\n".join(STRANGE) + b"\n")
    (folder / "strange" / "binary.json").write_bytes(bytes(range(128, 256)) * 20)
    (folder / "strange" / "poisoned.json.gz").write_bytes(gzip.compress(STRANGE[0] * 1000)[:-30])
    return folder


GOOD = {"sensor": "X1", "attribute": "air_temperature", "longitude": 10.0, "latitude": 50.0, "unit": "degC"}
WHEN = datetime.fromtimestamp(START_S + 100, UTC).isoformat()
STRANGE = [
    json.dumps(GOOD | {"time": WHEN, "value": 4.5}).encode(),
    b'{"sensor": "X2", "attribute": ',
    b"this is no JSON",
    json.dumps(GOOD | {"time": WHEN, "value": "warm"}).encode(),
    json.dumps(GOOD | {"time": "yesterday", "value": 4.5}).encode(),
    json.dumps(GOOD | {"time": WHEN, "value": 4.5, "unit": "furlong"}).encode(),
    json.dumps(GOOD | {"time": WHEN, "value": 4.5, "longitude": -790.2, "sensor": "X3"}).encode(),
    json.dumps(GOOD | {"time": WHEN, "value": None, "sensor": "X4"}).encode(),
    b'{"x": "' + b"y" * 3_000_000 + b'"}',
]
STRANGE_DEAD = 6 + 1 + 1
"""six lines, the binary file's only line, and the poisoned file, of which no line can be read"""


def raw_rows(world: Path) -> int:
    reports = sum(pq.read_metadata(path).num_rows for path in (world / "reports").glob("*.parquet"))
    return reports + 3 + STRANGE_DEAD


@pytest.fixture(scope="module")
def backfilled(spark: SparkSession, world: Path) -> tuple[PipelineSettings, jobs.JobOutcome]:
    settings = settings_for(world, lake="filled")
    return settings, jobs.backfill(spark, settings)


@pytest.fixture(scope="module")
def replayed(spark: SparkSession, world: Path) -> tuple[PipelineSettings, jobs.JobOutcome]:
    settings = settings_for(world, lake="streamed", sink={"kind": "loopback"})
    outcome = jobs.replay(spark, settings, threading.Event(), speed=float("inf"))
    return jobs.replay_settings(settings), outcome


def test_every_raw_row_of_a_backfill_is_counted_once(world: Path, backfilled: Any) -> None:
    settings, outcome = backfilled

    assert outcome.total.raw == raw_rows(world)
    assert outcome.total.balanced
    assert outcome.unbalanced == []
    assert outcome.total.duplicate > 0
    assert outcome.total.flagged > 0
    assert Lake(settings.lake).totals().raw == raw_rows(world)


def test_all_regions_have_all_ticks(backfilled: Any) -> None:
    settings, outcome = backfilled
    grid = settings.grid.grid()

    tiles = Lake(settings.lake).tiles(columns=["attribute", "tick", "region"])

    ticks = range(grid.tick_at(outcome.first), grid.tick_at(outcome.last) + 1)
    expected = {(a, t, format(r, "02b")) for a in grid.attributes for t in ticks for r in range(4)}
    assert len(ticks) >= TICKS
    assert len(tiles) == len(expected)
    assert {(r["attribute"], r["tick"], r["region"]) for r in tiles.to_pylist()} == expected


def test_no_published_grid_has_a_nan(backfilled: Any) -> None:
    tiles = Lake(backfilled[0].lake).tiles()

    for name in ("values", "error"):
        flat = pc.list_flatten(tiles[name])
        assert pc.all(pc.is_finite(flat)).as_py()
        assert flat.null_count == 0
    assert pc.min(pc.list_flatten(tiles["error"])).as_py() > 0


def test_the_backfill_equals_the_last_revisions_of_the_stream_bit_for_bit(
    backfilled: Any, replayed: Any
) -> None:
    columns = [
        "attribute", "tick", "region", "values", "error", "used", "flagged", "observations", "lower", "upper", "age",
        "number_of_observations", "observed_points", "newest_age", "gaps", "noise", "transform",
    ]  # fmt: skip
    filled = Lake(backfilled[0].lake).tiles(columns=columns)
    streamed = Lake(replayed[0].lake).tiles(columns=columns)

    common = streamed.filter(pc.less_equal(streamed["tick"], pc.max(filled["tick"])))
    assert replayed[1].total.late == 0
    assert len(common) == len(filled) > 0
    assert common.equals(filled)
    held = filled.filter(pc.equal(filled["gaps"], "hold"))
    counts, age_s = (pc.list_flatten(held[name]).to_numpy() for name in ("number_of_observations", "age"))
    assert ((counts == 0) & ~np.isnan(age_s)).any(), "nothing was held, so nothing was tried"


def series_of(settings: PipelineSettings) -> dict[tuple[str, str], tuple[int, int, int]]:
    """What brokers tell of each sensor and attribute: reports, flagged ones, the last."""
    grid = settings.grid.grid()
    table = Registry(settings.lake, grid).read([4, 5, 6, 7])
    names = table.names.to_pylist()
    return {
        (names[at], table.attributes[table.attribute[n]]): (
            int(table.reports[n]), int(table.flagged[n]), int(table.last_us[n]),
        )
        for at in range(len(table))
        for n in range(table.starts[at], table.starts[at + 1])
    }  # fmt: skip


def test_backfill_and_stream_count_the_same_of_each_sensor(
    world: Path, backfilled: Any, replayed: Any
) -> None:
    filled, streamed = series_of(backfilled[0]), series_of(replayed[0])

    assert filled == streamed
    lake = Lake(backfilled[0].lake)
    observations = pa.Table.from_struct_array(
        pc.list_flatten(lake.tiles(columns=["observations"])["observations"].combine_chunks())
    ).to_pylist()
    refused = lake.letters().filter(pc.equal(lake.letters()["test"], "range")).to_pylist()
    bad = Counter(
        (o["sensor"], o["attribute"]) for o in observations if o["test"] not in (None, "", "suspect")
    )
    bad.update((sensor_number(r["sensor"]), r["attribute"]) for r in refused)
    found = {(sensor_number(name), a): flagged for (name, a), (_, flagged, _) in filled.items()}
    assert {key: count for key, count in found.items() if count} == bad
    assert len(bad) > 3
    raw = pa.concat_tables(pq.read_table(path) for path in (world / "reports").glob("*.parquet")).to_pylist()
    wrong = {
        (r["sensor"], r["attribute"], r["event_time"])
        for r in lake.letters().to_pylist()
        if r["test"] != "range"
    }
    heard = Counter(
        (r["sensor"], r["attribute"])
        for r in raw
        if r["value"] is not None and (r["sensor"], r["attribute"], r["event_time"]) not in wrong
    )
    heard["X1", "air_temperature"] += 1
    counted = {key: reports for key, (reports, _, _) in filled.items()}
    assert {key: counted.get(key) for key in heard} == heard


def test_the_stream_counts_every_row_and_publishes_what_the_lake_has(world: Path, replayed: Any) -> None:
    settings, outcome = replayed

    assert outcome.total.raw == raw_rows(world)
    assert outcome.unbalanced == []
    lake = Lake(settings.lake).tiles(columns=["attribute", "tick", "region", "revision"], latest=False)
    published = sorted(b.identity for b in settings.sink_of().blocks())  # type: ignore[attr-defined]
    assert published == sorted(tuple(row.values()) for row in lake.to_pylist())


def test_a_record_of_the_year_2099_is_flagged_and_moves_nothing(backfilled: Any, replayed: Any) -> None:
    for settings, outcome in (backfilled, replayed):
        letters = Lake(settings.lake).letters()
        future = letters.filter(pc.equal(letters["test"], "future"))
        assert len(future) == outcome.total.tests["future"] > 0
        assert outcome.last < datetime(2024, 1, 1, tzinfo=UTC)


def test_what_strangers_send_ends_in_the_letters_with_its_reason_and_stops_nothing(
    backfilled: Any, replayed: Any
) -> None:
    for settings, outcome in (backfilled, replayed):
        letters = Lake(settings.lake).letters()
        dead = letters.filter(pc.equal(letters["test"], "dead_letter"))
        assert outcome.total.dead_letter == len(dead) == STRANGE_DEAD
        reasons = " | ".join(sorted(dead["reason"].to_pylist()))
        for part in ("warm", "furlong", "poisoned.json.gz", "3000009", "yesterday"):
            assert part in reasons
        assert pc.max(pc.binary_length(dead["raw"])).as_py() < 4200


def test_a_second_backfill_finds_everything_there_and_writes_nothing(
    spark: SparkSession, backfilled: Any
) -> None:
    settings, first = backfilled
    before, heard = Lake(settings.lake).tiles(latest=False), series_of(settings)

    again = jobs.backfill(spark, settings)

    assert again.total.blocks == 0
    assert again.total.raw == first.total.raw
    assert Lake(settings.lake).tiles(latest=False).equals(before)
    assert series_of(settings) == heard, "what was counted before is not counted again"


def test_a_backfill_that_comes_out_otherwise_is_the_next_revision(
    spark: SparkSession, world: Path, backfilled: Any
) -> None:
    settings = backfilled[0]
    more = settings_for(
        world, lake="filled", quality={"attributes": {"air_temperature": {"usual": [250.0, 290.0]}}}
    )

    outcome = jobs.backfill(spark, more)

    assert outcome.total.blocks > 0
    tiles = Lake(settings.lake).tiles(columns=["attribute", "tick", "region", "revision"], latest=False)
    revised = tiles.filter(pc.equal(tiles["revision"], 1))
    assert set(revised["attribute"].to_pylist()) == {"air_temperature"}
    assert len(revised) == outcome.total.blocks


def test_another_grid_needs_another_lake_and_an_attribute_more_does_not(
    spark: SparkSession, world: Path, tmp_path: Path
) -> None:
    grid = {"shape": [64, 32], "tick": 300, "resolution_bits": 1, "region_digits": 2}
    few = settings_for(world, lake=str(tmp_path / "lake"), grid=grid | {"attributes": ["air_temperature"]})
    jobs.backfill(spark, few)
    before = Lake(few.lake).tiles(attribute="air_temperature")

    more = settings_for(world, lake=few.lake)
    jobs.backfill(spark, more)

    assert Lake(few.lake).tiles(attribute="air_temperature").equals(before)
    assert len(Lake(few.lake).tiles(attribute="northward_wind")) == len(before)
    other = settings_for(world, lake=few.lake, grid=grid | {"tick": 600})
    with pytest.raises(PlanError, match=r"found a plan for another grid .* expected"):
        jobs.backfill(spark, other)


@pytest.mark.parametrize("when", ["0300-01-01", "2099-01-01", "2100-01-01", "19500-01-01", "NaT"])
def test_a_letter_is_found_again_whatever_its_date(tmp_path: Path, when: str) -> None:
    job = jobs.job_of(settings_for(tmp_path), "fillx")
    time = pa.array([np.datetime64(when, "us")]).cast(pa.timestamp("us", tz="UTC"))
    nothing = pa.table([pa.nulls(1, field.type) for field in LETTER], schema=LETTER)
    letter = nothing.set_column(LETTER.get_field_index("event_time"), LETTER.field("event_time"), time)

    list(write_task(iter([pa.record_batch([[LETTERS], [to_bytes(letter)]], schema=OUT)]), job, 0, 0))

    year = job.lake.letters()["day"][0].as_py().year
    assert year == (2099 if when.startswith("2099") else datetime.now(UTC).year)
    assert job.lake.expire(date(1900, 1, 1)) == 0


def test_a_task_sums_up_what_its_regions_have_counted_in_one_row(tmp_path: Path) -> None:
    job = jobs.job_of(settings_for(tmp_path, lake=str(tmp_path / "lake")), "fill")
    counted = [{"raw": 3, "used": 2, "flagged": 1, "tests": {"spike": 1}}, {"used": 4, "moved": 1}]
    payloads = [json.dumps(one).encode() for one in counted]

    found = list(write_task(iter([pa.record_batch([[LEDGER] * 2, payloads], schema=OUT)]), job, 0, 0))

    (row,) = [row for batch in found for row in batch.to_pylist()]
    ledger = json.loads(row["payload"])
    assert row["kind"] == LEDGER
    assert (ledger["raw"], ledger["used"], ledger["flagged"], ledger["moved"]) == (3, 6, 1, 1)
    assert ledger["tests"] == {"spike": 1}


def test_a_checkpoint_without_its_plan_is_refused(spark: SparkSession, world: Path, tmp_path: Path) -> None:
    settings = settings_for(world, lake=str(tmp_path / "lake"))
    checkpoint = Path(settings.checkpoint_of())
    checkpoint.mkdir()
    (checkpoint / "sensorgrid.json").write_text(json.dumps({"format": jobs.CHECKPOINT_FORMAT, "id": "x"}))

    with pytest.raises(jobs.JobError, match="found one, but no plan"):
        jobs.run(spark, settings, threading.Event(), seconds=1)
    (checkpoint / "sensorgrid.json").write_text(json.dumps({"format": 0, "id": "x"}))
    with pytest.raises(jobs.JobError, match=f"found format 0, expected {jobs.CHECKPOINT_FORMAT};"):
        jobs.run(spark, settings, threading.Event(), seconds=1)


def test_parameters_and_halos_are_fitted_to_the_data_and_written_down(
    spark: SparkSession, world: Path, tmp_path: Path
) -> None:
    settings = settings_for(world, lake=str(tmp_path / "lake"), gridding={"halo": "auto"})

    outcome = jobs.backfill(spark, settings)

    plan = Lake(settings.lake).plan()
    assert plan is not None
    assert any("fitted to" in note for note in outcome.notes)
    assert len(set(plan.halos_of("wind")[0].width_m)) > 1
    assert {e.group for e in plan.recipes} == {"air_temperature", "wind"}


def test_a_replay_ends_when_brokers_have_everything_or_says_what_they_lack(tmp_path: Path) -> None:
    waiting, said = WaitingFolder(str(tmp_path), "stream1"), list[str]()
    waiting.add(0, [Identity("air_temperature", tick, "01", 0) for tick in range(3)])

    notes = jobs.see_off(waiting, threading.Event(), said.append, patience_s=0.1)

    assert notes == said == [
        "brokers: found 3 grids that none has taken, expected none; do they run? (sensorgrid up)"
    ]  # fmt: skip
    (name,) = waiting.names()
    bundle = waiting.read(name)
    assert bundle is not None
    brought = replace(bundle, identities=(), acknowledged=3)
    courier = threading.Timer(0.5, lambda: waiting.settle(brought))
    courier.start()
    assert jobs.see_off(waiting, threading.Event(), said.append, patience_s=60) == []
    courier.join()
