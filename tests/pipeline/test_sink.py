"""`format("sensorgrid")`: grids of any DataFrame on their way to gateways, as a batch and as a stream."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gateways import ANSWERS, REFUSES, SILENT, Network, network
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.delivery import sink as sink_module
from sensorgrid.pipeline.delivery.sink import SensorgridSink, SinkError, SinkOptions, hand_over
from servers import wait_for

GRID = Grid(shape=(32, 16), tick=5.0, resolution_bits=1, region_digits=2, attributes=("air_temperature",))
REGIONS = ("00", "01", "10", "11")
SCHEMA = pa.schema(
    [
        ("attribute", pa.string()),
        ("tick", pa.int64()),
        ("region", pa.string()),
        ("revision", pa.int32()),
        ("values", pa.list_(pa.float32())),
        ("error", pa.list_(pa.float32())),
        ("kernel", pa.string()),
    ]
)


def rows(*ticks: int, regions: tuple[str, ...] = REGIONS) -> pa.RecordBatch:
    found: list[dict[str, Any]] = [
        {"attribute": "air_temperature", "tick": tick, "region": region, "revision": 0}
        | {"values": [float(tick)] * 128, "error": [0.5] * 128, "kernel": "nearest"}
        for tick in ticks
        for region in regions
    ]
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)


@pytest.fixture
def brokers() -> Iterator[Network]:
    with network(GRID, 2) as found:
        yield found


def settings(brokers: Network, **options: Any) -> SinkOptions:
    given = {"url": ",".join(brokers.urls), "patience": "2"} | {k: str(v) for k, v in options.items()}
    return SinkOptions.of(given)


def names(*ticks: int, regions: tuple[str, ...] = REGIONS) -> set[tuple[str, int, str, int]]:
    return {("air_temperature", tick, region, 0) for tick in ticks for region in regions}


def test_a_batch_reaches_its_gateways(spark: SparkSession, brokers: Network) -> None:
    spark.dataSource.register(SensorgridSink)
    frame = spark.createDataFrame(pa.Table.from_batches([rows(1, 2, 3)]))

    frame.write.format("sensorgrid").option("url", brokers.urls[0]).mode("append").save()

    assert set(brokers.names()) == set(brokers.names(error=True)) == names(1, 2, 3)
    publish = brokers.brokers[0].taken[0]
    assert brokers.brokers[0].values[publish].tolist() == [[float(publish.tick)] * 16] * 8


def test_a_stream_tries_until_a_gateway_that_was_away_is_back(
    spark: SparkSession, brokers: Network, tmp_path: Path
) -> None:
    spark.dataSource.register(SensorgridSink)
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    brokers.brokers[1].stop()
    frame = spark.readStream.schema(spark.createDataFrame(pa.Table.from_batches([rows(1)])).schema)
    query = (
        frame.parquet(str(arriving))
        .writeStream.format("sensorgrid")
        .option("url", ",".join(brokers.urls))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        pq.write_table(pa.Table.from_batches([rows(1)]), arriving / "1.parquet")
        wait_for(lambda: brokers.brokers[0].names(), "the regions whose gateway is there")
        assert brokers.brokers[1].names() == []
        brokers.brokers[1].start()
        wait_for(lambda: set(brokers.names()) == names(1), "the others")
        pq.write_table(pa.Table.from_batches([rows(2)]), arriving / "2.parquet")
        wait_for(lambda: set(brokers.names()) == names(1, 2), "the next batch")
        assert query.exception() is None
    finally:
        query.stop()


def test_wrong_columns_and_options_are_told_at_the_start(spark: SparkSession) -> None:
    spark.dataSource.register(SensorgridSink)
    frame = spark.createDataFrame(pa.table({"tick": [1], "region": ["00"]}))
    with pytest.raises(PySparkException, match="expected also attribute, revision, values, error"):
        frame.write.format("sensorgrid").option("url", "ws://127.0.0.1:1").mode("append").save()

    with pytest.raises(SinkError, match=r"url: found None, expected one such as ws://localhost:7400"):
        SinkOptions.of({})
    with pytest.raises(SinkError, match="patience: found '-1', expected seconds > 0"):
        SinkOptions.of({"url": "ws://x:1", "patience": "-1"})


def test_after_the_timeout_the_task_fails_and_names_the_regions(brokers: Network) -> None:
    brokers.brokers[1].mood = SILENT

    with pytest.raises(SinkError, match="regions 01, 11: found no answer to 2 grids"):
        hand_over([rows(1)], settings(brokers, timeout=2.5))

    assert set(brokers.names()) == names(1, regions=("00", "10"))


def test_with_a_spool_the_stream_goes_on_and_the_rest_comes_later_in_order(
    brokers: Network, tmp_path: Path
) -> None:
    given, ill = settings(brokers, spool=tmp_path / "spool"), brokers.brokers[1]
    ill.mood = SILENT
    for tick in range(3):
        hand_over([rows(tick)], given)
    assert set(brokers.names()) == names(0, 1, 2, regions=("00", "10"))
    ill.mood = ANSWERS

    hand_over([rows(3)], given)

    assert set(brokers.names()) == names(0, 1, 2, 3)
    assert [name[1] for name in ill.names() if name[2] == "01"] == [0, 1, 2, 3]
    assert list((tmp_path / "spool").glob("*/*")) == []


def test_new_rows_do_not_pass_a_spool_that_is_longer_than_one_go(
    brokers: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "TOGETHER", 4)
    hasty, patient = (settings(brokers, spool=tmp_path / "spool", patience=s) for s in (0.2, 60))
    ill = brokers.brokers[1]
    ill.mood = SILENT
    for tick in range(6):
        hand_over([rows(tick, regions=("01",))], hasty)
    ill.mood = ANSWERS

    for tick in range(6, 10):
        hand_over([rows(tick, regions=("01",))], patient)

    assert [name[1] for name in ill.names()] == list(range(10))


def test_refused_grids_fail_the_batch_or_are_kept_with_their_reason(brokers: Network, tmp_path: Path) -> None:
    brokers.brokers[1].mood = REFUSES

    with pytest.raises(SinkError, match="refused by the gateway: found an old epoch"):
        hand_over([rows(1)], settings(brokers))
    hand_over([rows(1)], settings(brokers, refused=tmp_path / "refused"))

    (file,) = (tmp_path / "refused").glob("*.jsonl")
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["region"], row["reason"]) for row in kept] == [
        ("01", "found an old epoch, expected a newer one"),
        ("11", "found an old epoch, expected a newer one"),
    ]
