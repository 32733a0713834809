"""Rows of benchmarks and experiments that have no test of their own, at sizes that take no time."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from contracts import FAULTS, MOVING, OVERLAY, PIPELINE, SUMMED
from errands import dies, fails, works
from sensorgrid.benchmarks import BenchmarkError, overlay, pipeline
from sensorgrid.experiments import faults, moving
from sensorgrid.pipeline.schema import MEASUREMENT
from sensorgrid.pipeline.spark.replay import CLOCK
from sensorgrid.simulator.workloads import Track

TINY = pipeline.PipelineSize(40, 6, (80,))


def quiet(text: str) -> None:
    pass


def test_the_reference_of_the_pipeline_grids_every_tick_of_every_region(tmp_path: Path) -> None:
    pipeline.write_measurements(tmp_path / "in", TINY, seed=1)

    row = pipeline._reference_row(tmp_path, TINY)

    assert set(row) == PIPELINE
    assert (row["mode"], row["measurements"], row["blocks"]) == ("reference", 240, 16 * 6)
    assert row["used"] + row["flagged"] + row["duplicate"] == 240
    assert row["peak_rss_bytes"] > 10 << 20


def test_a_stream_is_fed_all_measurements_in_order_with_the_time_behind_them(tmp_path: Path) -> None:
    pipeline.write_measurements(tmp_path / "in", TINY, seed=1)
    feed = pipeline.TimedFiles(tmp_path / "arriving", TINY, micro_batch=80)

    feed.write(tmp_path / "in")

    files = sorted((tmp_path / "arriving").iterdir(), key=lambda path: path.stat().st_mtime)
    tables = [pq.read_table(path) for path in files]
    rows = [[name for name in table["attribute"].to_pylist() if name != CLOCK] for table in tables]
    times = [table["event_time"].to_pylist()[-1] for table in tables]
    assert [len(some) for some in rows[:3]] == [80, 80, 80]
    assert sum(map(len, rows)) == TINY.measurements
    assert all(table["attribute"].to_pylist()[-1] == CLOCK for table in tables)
    assert times == sorted(times)
    assert set(MEASUREMENT.fieldNames()) <= set(tables[0].column_names)
    assert not feed.turn(None)
    assert feed.turn(datetime.fromtimestamp(pipeline.START_S + 5 * pipeline.TICK_S, UTC))
    assert not feed.turn(datetime.fromtimestamp(pipeline.START_S + 4 * pipeline.TICK_S, UTC))


def test_work_in_a_process_of_its_own_tells_how_far_it_is() -> None:
    heard: list[str] = []

    assert pipeline._told(heard.append, works, 21) == 42
    assert heard == ["half way"]


@pytest.mark.parametrize(("work", "said"), [(fails, "ValueError: no room"), (dies, "ended with code 7")])
def test_work_that_fails_in_a_process_of_its_own_is_an_error_and_not_a_wait(work: object, said: str) -> None:
    with pytest.raises(BenchmarkError, match=said):
        pipeline._told(quiet, work)  # type: ignore[arg-type]


def test_overlay_rows_have_the_fields_that_readers_rely_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "ROUNDS", 1)

    rows = overlay.run(50, 50, 1, quiet)

    assert all(set(row) >= OVERLAY for row in rows)
    assert [row["operation"] for row in rows] == ["live", "subscribe+cancel", "subscribe+cancel"]
    assert rows[0]["peak_bytes"] >= rows[0]["peak_bytes_before"] > 0
    assert next(held for _, _, held in overlay.summary(rows)) == "not with --quick"


@pytest.mark.parametrize("relayed", [False, True])
def test_fault_rows_have_the_fields_that_readers_rely_on(relayed: bool) -> None:
    rows = faults.rows_of([case.play() for case in faults.cases(1, 2, relayed)])

    assert [row["seed"] for row in rows] == [1, 2]
    assert all(set(row) >= FAULTS for row in rows)
    assert set(faults.summary(rows)) >= SUMMED
    json.dumps(rows)


def test_rows_of_moving_hot_spots_have_the_fields_that_readers_rely_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    track = Track("S", "NA", datetime(2020, 9, 1, tzinfo=UTC), (0.0, 2.0), (-60.0, -58.0), (20.0, 21.0))
    monkeypatch.setattr(moving, "storm_tracks", lambda path: [track])

    rows = [case.play() for case in moving.cases(1, range(1, 2), Path("tracks"))]

    assert [row["policy"] for row in rows] == ["ours", "anticipate"]
    assert all(set(row) == MOVING for row in rows)
    assert all(row["queries"] == 3 * moving.PER_STEP and row["refused"] == 0 for row in rows)
    with pytest.raises(moving.ExperimentError, match="storms: found 2, expected at most the 1"):
        moving.cases(2, range(1, 2), Path("tracks"))
