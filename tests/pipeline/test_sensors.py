"""From measurements to the command: a silent, a faulty and a broken sensor, told by brokers that read the lake."""

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from command import call
from net_thread import NetThread
from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.gridding.measurements import Measurements
from sensorgrid.pipeline.gridding.moves import NO_MOVES, bad_rows, moves
from sensorgrid.pipeline.settings import settings_of

GRID = {
    "shape": [64, 32], "tick": 300, "resolution_bits": 1, "region_digits": 2,
    "attributes": ["air_temperature"],
}  # fmt: skip
BEGIN = datetime(2026, 3, 10, 6, tzinfo=UTC)
TICKS = 8
END = BEGIN + timedelta(seconds=300 * TICKS)


def reports() -> pa.Table:
    """One report a tick of sensors all over the earth; three of them are not as they should be."""
    rng, rows = np.random.default_rng(3), []
    for n in range(120):
        x, y = float(rng.uniform(-180, 180)), float(rng.uniform(-60, 60))
        name = {7: "QUIET", 8: "FAULTY", 9: "BROKEN"}.get(n, f"S{n}")
        for tick in range(2 if name == "QUIET" else TICKS):
            value = 285.0 + 0.1 * tick
            if name == "FAULTY":
                value = (285.0, 305.0, 265.0, 320.0, 245.0, 300.0, 270.0, 325.0)[tick]
            elif name == "BROKEN":
                value = 1000.0
            rows.append(
                {
                    "sensor": name, "attribute": "air_temperature", "longitude": x, "latitude": y,
                    "elevation": 100.0 + n, "event_time": BEGIN + timedelta(seconds=300 * tick + 60 + n % 100),
                    "value": value, "unit": "K",
                }
            )  # fmt: skip
    return pa.Table.from_pylist(rows)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a stream of them leaves behind."""
    folder = tmp_path_factory.mktemp("sensors")
    (folder / "reports").mkdir()
    pq.write_table(reports(), folder / "reports" / "all.parquet")
    content: dict[str, Any] = {
        "grid": GRID,
        "lake": "stream",
        "timing": {"settle": 30, "lateness": 600, "max_age": 1500},
        "gridding": {"calibrate": False, "halo": 3e6, "kernel": "inverse_distance"},
        "spark": {"trigger": 0},
        "sources": [{"kind": "files", "name": "earth", "path": "reports", "mapping": "measurements"}],
    }
    settings = settings_of(content, "test", folder)
    jobs.replay(spark, settings, threading.Event(), speed=float("inf"))
    (folder / "lake").symlink_to(jobs.replay_settings(settings).lake)
    return folder


def test_the_command_shows_who_is_silent_and_who_is_wrong_also_after_its_owner_was_killed(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ("sensors", "--silent", "20min", "--flagged", "0.2", "--at", END.isoformat())
    with NetThread(lake, brokers=4, grid=GRID) as net:
        connect = ("--connect", net.url())
        plot = tmp_path / "map.geojson"

        shown = call(monkeypatch, capsys, *ask, *connect, "--geojson", plot)
        told = json.loads(call(monkeypatch, capsys, *ask, *connect, "--json", "-").stdout)
        every = json.loads(call(monkeypatch, capsys, "sensors", *connect, "--json", "-").stdout)
        owner = next(row["broker"] for row in told["rows"] if row["id"] == "QUIET")
        other = ("--connect", net.url((owner + 1) % 4))
        net.run(net.net.crash(owner))
        partly = call(monkeypatch, capsys, *ask, *other)
        net.run(net.net.start(owner))
        again = json.loads(call(monkeypatch, capsys, *ask, *other, "--json", "-").stdout)

    assert shown.returncode == 0, shown.stderr
    rows = {row["id"]: row for row in told["rows"]}
    assert set(rows) == {"QUIET", "FAULTY", "BROKEN"}
    assert {name: (row["silent"], row["flagged"]) for name, row in rows.items()} == {
        "QUIET": (True, False), "FAULTY": (False, True), "BROKEN": (False, True),
    }  # fmt: skip
    shares = {name: row["flagged_share"] for name, row in rows.items()}
    assert shares == {"QUIET": 0.0, "FAULTY": 7 / 8, "BROKEN": 1.0}
    assert rows["QUIET"]["reports"] == 2
    assert rows["BROKEN"]["elevation"] == 109.0
    assert all(name in shown.stdout for name in rows)
    assert {f["properties"]["id"] for f in json.loads(plot.read_text())["features"]} == set(rows)
    assert (every["matched"], every["held"], len(every["rows"])) == (120, 120, 120)
    assert sum(row["reports"] for row in every["rows"]) == len(reports())
    assert partly.returncode == 1
    assert "its sensors are missing" in partly.stdout
    assert "QUIET" not in partly.stdout
    assert again["rows"] == told["rows"]


def rows_of(*sensors: tuple[int, int]) -> Measurements:
    number, code = np.array(sensors or np.empty((0, 2)), np.int64).T
    n, zeros = len(number), np.zeros(len(number))
    return Measurements(
        number.astype(np.uint64),
        np.arange(n),
        zeros,
        zeros,
        zeros,
        code.astype(np.uint8),
        np.ones(n, np.uint8),
    )


def test_moves_are_what_an_issue_has_found_out_since_the_one_before() -> None:
    first = bad_rows(rows_of((1, 0), (1, 0), (2, 1), (3, 0)), np.array([6, 0, 2, 0], np.uint8))
    second = bad_rows(rows_of((1, 0), (1, 0), (2, 1), (3, 0)), np.array([6, 3, 0, 5], np.uint8))

    begun, found = moves(b"", first), moves(first, second)

    def told(m: Any) -> dict[tuple[int, int], int]:
        return dict(zip(zip(m.sensor.tolist(), m.code.tolist(), strict=True), m.change.tolist(), strict=True))

    assert told(begun) == {(1, 0): 1, (2, 1): 1}
    assert told(found) == {(1, 0): 1, (2, 1): -1, (3, 0): 1}
    assert moves(second, second) is NO_MOVES
    assert told(moves(second, b"")) == {(1, 0): -2, (3, 0): -1}
