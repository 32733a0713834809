"""The lake: files that appear whole, batches that replace themselves, readers that need none of our code."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.delivery.publish import LoopbackSink
from sensorgrid.pipeline.gridding.measurements import Measurements, empty
from sensorgrid.pipeline.lake.folder import Lake, LakeError
from sensorgrid.pipeline.lake.ledger import Ledger
from sensorgrid.pipeline.lake.tiles import Block, Identity, table_of
from sensorgrid.pipeline.spark.packing import SENSOR

GRID = Grid(shape=(8, 8), tick=3600, resolution_bits=1, region_digits=2, attributes=("air_temperature",))
DAY = 24
FIRST = GRID.tick_at(datetime(2026, 3, 1, tzinfo=UTC))
REGIONS = ("00", "01", "10", "11")


def block(tick: int, region: str = "00", revision: int = 0, value: float = 280.0) -> Block:
    rows = Measurements(
        np.array([7], np.uint64), np.array([tick * 3_600_000_000]), np.array([1.0]), np.array([2.0]), np.array([value]),
        np.zeros(1, np.uint8), np.ones(1, np.uint8),
    )  # fmt: skip
    values = np.full(16, value, np.float32)
    identity = Identity("air_temperature", tick, region, revision)
    inputs = ("air_temperature",)
    return Block(identity, values, values / 100, 1, "kriging", rows, np.array([6], np.uint8), inputs)


def write(lake: Lake, batch: int, *blocks: Block, writer: str = "streamx", task: int = 0) -> None:
    lake.write("tiles", table_of(blocks, GRID), ("attribute", "day"), writer, batch, task)
    ledger = Ledger(raw=batch, used=batch, blocks=len(blocks), newest=max(b.identity.tick for b in blocks))
    lake.write_ledger(writer, batch, {"batch": batch} | ledger.to_dict())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake")).create()


def test_pandas_duckdb_and_spark_read_the_tiles_as_they_are(lake: Lake, spark: SparkSession) -> None:
    for batch in range(3):
        write(lake, batch, *(block(FIRST + batch * DAY, region) for region in REGIONS))
    folder = lake.path("tiles")

    frame = pd.read_parquet(folder)
    counted = duckdb.sql(
        f"select day, count(*), min(list_min(values)), any_value(observations[1].test)"
        f" from read_parquet('{folder}/**/*.parquet', hive_partitioning = true) group by day order by day"
    ).fetchall()
    rows = spark.read.parquet(folder).where("attribute = 'air_temperature'")

    assert len(frame) == rows.count() == 12
    assert [(str(d)[:10], n, v, t) for d, n, v, t in counted] == [
        (f"2026-03-0{n}", 4, 280.0, "neighbour") for n in (1, 2, 3)
    ]
    assert rows.first().observations[0].sensor == 7
    assert frame["values"].iloc[0].tolist() == [280.0] * 16


def test_a_batch_that_is_tried_again_replaces_its_own_files_and_no_others(lake: Lake) -> None:
    write(lake, 4, block(FIRST), block(FIRST + 1))
    write(lake, 5, block(FIRST + 2, value=1.0), task=0)
    write(lake, 5, block(FIRST + 3), task=1)
    write(lake, 5, block(FIRST + 2), writer="streamy")

    assert lake.drop_from("streamx", 5) == 3
    write(lake, 5, block(FIRST + 2), block(FIRST + 3))

    ticks = lake.tiles(columns=["tick"], latest=False)["tick"].to_pylist()
    assert sorted(ticks) == [FIRST, FIRST + 1, FIRST + 2, FIRST + 2, FIRST + 3]
    assert pc.min(pc.list_flatten(lake.tiles()["values"])).as_py() == 280.0


def test_only_the_newest_revision_is_read_unless_all_are_asked_for(lake: Lake) -> None:
    write(lake, 0, block(FIRST), block(FIRST, "01"))
    write(lake, 1, block(FIRST, revision=1, value=281.0))

    newest, every = lake.tiles(), lake.tiles(latest=False)

    assert [(r["region"], r["revision"], r["values"][0]) for r in newest.to_pylist()] == [
        ("00", 1, 281.0),
        ("01", 0, 280.0),
    ]
    assert len(every) == 3
    assert lake.newest_tick() == FIRST


def test_joining_files_keeps_every_row_and_leaves_batches_that_may_come_again(lake: Lake) -> None:
    for batch in range(30):
        write(lake, batch, block(FIRST + batch % 5, revision=batch))
    before = lake.tiles(latest=False)

    total = lake.totals()

    fewer = lake.compact(keep_batches=20)

    assert fewer == 9 + 9  # tiles and ledgers
    assert lake.tiles(latest=False).equals(before)
    assert lake.totals() == total
    assert lake.last_batch("streamx") == 29
    assert lake.compact(keep_batches=15) == 5 + 5
    assert lake.totals() == total
    assert len(list(lake.ledgers())) == 15 + 2  # a line for each turn
    assert lake.drop_from("streamx", 15) == 15 + 15


def test_joined_ledgers_of_backfills_do_not_pass_for_those_of_a_stream(lake: Lake) -> None:
    for number in range(3):
        write(lake, 0, block(FIRST, revision=number), writer=f"fill{number}")
    lake.compact()
    without = lake.streamed()
    for batch in range(3):
        write(lake, batch, block(FIRST + batch))
    lake.compact(keep_batches=1)

    assert (without, lake.streamed()) == (False, True)


@pytest.mark.parametrize("step", ["before the rename", "after the rename", "after some were removed"])
def test_a_compaction_that_was_cut_short_is_finished_by_the_next_one(
    lake: Lake, step: str, monkeypatch
) -> None:
    for batch in range(4):
        write(lake, batch, block(FIRST, revision=batch))
    before = lake.tiles(latest=False)
    monkeypatch.setattr(Lake, "_finish_compaction", lambda _: None)
    monkeypatch.setattr(Lake, "_join_ledgers", lambda *_: 0)
    lake.compact(keep_batches=0)
    monkeypatch.undo()
    intent = json.loads(Path(lake.path("compaction.json")).read_text())
    if step != "before the rename":
        Path(intent["fresh"]).rename(intent["final"])
    if step == "after some were removed":
        Path(intent["old"][0]).unlink()

    lake.compact(keep_batches=0)

    assert lake.tiles(latest=False).equals(before)
    assert not Path(lake.path("compaction.json")).exists()


def test_old_days_and_half_written_files_go_and_nothing_else(lake: Lake) -> None:
    for day in range(4):
        write(lake, day, block(FIRST + day * DAY))
    half = Path(lake.path("tiles", "attribute=air_temperature", "day=2026-03-04", ".half"))
    half.write_text("x")

    gone = lake.expire(date(2026, 3, 3))

    assert gone == 2
    assert lake.tiles(columns=["tick"])["tick"].to_pylist() == [FIRST + 2 * DAY, FIRST + 3 * DAY]
    assert (lake.sweep(), lake.sweep(timedelta(seconds=-1)), half.exists()) == (0, 1, False)


def test_sweeping_leaves_the_lock_of_whoever_keeps_house(lake: Lake) -> None:
    with lake._alone() as first:
        lake.sweep(timedelta(seconds=-1))
        with lake._alone() as second:
            assert (first, second) == (True, False)


def test_a_lake_of_another_format_or_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.doc").write_text("x")
    newer = Lake(str(tmp_path / "newer")).create()
    Path(newer.path("lake.json")).write_text('{"format": 99}')

    with pytest.raises(LakeError, match=r"found other files and no lake.json, expected a lake or nothing"):
        Lake(str(other)).create()
    with pytest.raises(LakeError, match="found format 99, expected 1"):
        newer.create()
    with pytest.raises(LakeError, match=r"found no lake.json, expected a lake"):
        Lake(str(tmp_path / "none")).check()


def test_a_lake_is_made_where_brokers_have_put_their_folders_first(tmp_path: Path) -> None:
    for name in ("roster", "operators"):
        (tmp_path / "lake" / name).mkdir(parents=True)
        (tmp_path / "lake" / name / "0000000000001.json").write_text("{}")

    lake = Lake(str(tmp_path / "lake")).create()

    assert lake.check() == lake
    assert sorted(p.name for p in (tmp_path / "lake").iterdir()) == ["lake.json", "operators", "roster"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "roster").write_text("a file of somebody else")
    with pytest.raises(LakeError, match="found other files"):
        Lake(str(tmp_path / "other")).create()


def test_a_block_comes_back_as_it_went_and_a_sink_keeps_it_once(tmp_path: Path) -> None:
    sink, one, other = LoopbackSink(str(tmp_path)), block(FIRST), block(FIRST, revision=1)

    taken = [sink.publish(blocks).acknowledged for blocks in ([one], [one, other], [other])]

    assert taken == [1, 2, 1]
    back = list(sink.blocks())
    assert [b.identity for b in back] == [one.identity, other.identity]
    assert back[0].encode() == one.encode()
    assert back[0].inputs == ("air_temperature",)


def test_an_empty_lake_answers_every_question(lake: Lake) -> None:
    assert len(lake.tiles()) == len(lake.letters()) == len(lake.sensors()) == 0
    assert lake.totals() == Ledger()
    assert lake.compact() == 0
    assert len(empty()) == 0


def test_files_from_before_a_column_are_joined_with_later_ones_again_and_again(lake: Lake) -> None:
    def sensor(number: int) -> pa.Table:
        columns = [[number], [f"s{number}"], ["air_temperature"], [1.0], [2.0], [3.0]]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, SENSOR, strict=True)], schema=SENSOR)

    lake.write("sensors", sensor(1).drop_columns(["elevation"]), (), "a", 0, 0)
    lake.write("sensors", sensor(2), (), "a", 1, 0)
    for batch in range(30):
        lake.write_ledger("a", batch, {"batch": batch})
    lake.compact()
    lake.write("sensors", sensor(3).drop_columns(["elevation"]), (), "b", 0, 0)
    for batch in range(30):
        lake.write_ledger("b", batch, {"batch": batch})

    lake.compact()

    found = lake.sensors()
    assert sorted(found["sensor"].to_pylist()) == ["s1", "s2", "s3"]
    assert sorted(found["elevation"].to_pylist(), key=str) == [3.0, None, None]
