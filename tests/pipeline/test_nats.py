"""The NATS source against a real nats-server: sequence numbers as offsets, ranges that read alike twice."""

import asyncio
import base64
import pickle
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import nats
import pyarrow as pa
import pytest
from nats.js import JetStreamContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sensorgrid.pipeline.schema import RAW_BYTES_MAX, RECORD
from sensorgrid.pipeline.sources.nats import (
    FORMAT,
    NatsDataSource,
    NatsReader,
    NatsSettings,
    NatsSourceError,
    NatsStreamReader,
    first_messages,
    read_range,
)
from servers import free_port, nats_server, needs_nats, wait_for

Work = Callable[[JetStreamContext], Coroutine[Any, Any, Any]]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with nats_server(tmp_path_factory.mktemp("jetstream"), "-js") as where:
        yield where


def on(url: str, work: Work, **login: str) -> Any:
    async def run() -> Any:
        client = await nats.connect(url, **login)
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(run())


def publish(url: str, *messages: tuple[str, bytes]) -> None:
    async def work(stream: JetStreamContext) -> None:
        for subject, data in messages:
            await stream.publish(subject, data)

    on(url, work)


@pytest.fixture
def name(url: str, request: pytest.FixtureRequest) -> str:
    """A stream of the test's own, on subjects that start with its name."""
    stream = f"s{abs(hash(request.node.name)) % 10**8}"

    async def work(context: JetStreamContext) -> None:
        await context.add_stream(name=stream, subjects=[f"{stream}.>"])

    on(url, work)
    return stream


def rows(batches: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def fill(url: str, name: str, count: int) -> None:
    publish(url, *((f"{name}.{'ab'[n % 2]}.t", str(n).encode()) for n in range(1, count + 1)))


@needs_nats
def test_a_range_is_read_whole_in_order_and_the_same_twice(url: str, name: str) -> None:
    fill(url, name, 1200)
    settings = NatsSettings(name, (url,), source="here")

    first, second = (rows(read_range(settings, 100, 1100)) for _ in range(2))

    assert first == second
    assert [row[2] for row in first] == [str(n) for n in range(101, 1101)]
    assert first[0] == ("here", f"{name}.b.t", "101", None)


@needs_nats
def test_ranges_side_by_side_give_every_message_once(url: str, name: str) -> None:
    fill(url, name, 50)
    settings = NatsSettings(name, (url,))

    parts = [rows(read_range(settings, a, b)) for a, b in ((0, 7), (7, 8), (8, 49), (49, 50), (50, 50))]

    assert [row[2] for part in parts for row in part] == [str(n) for n in range(1, 51)]


@needs_nats
def test_a_filter_chooses_subjects(url: str, name: str) -> None:
    fill(url, name, 40)

    some = rows(read_range(NatsSettings(name, (url,), subject=f"{name}.a.*"), 0, 31))
    none = rows(read_range(NatsSettings(name, (url,), subject=f"{name}.c.>"), 0, 40))

    assert [row[2] for row in some] == [str(n) for n in range(2, 32, 2)]
    assert none == []


@needs_nats
def test_messages_that_are_gone_are_counted(url: str, name: str) -> None:
    fill(url, name, 20)

    async def work(stream: JetStreamContext) -> None:
        await stream.purge_stream(name, seq=4)  # up to, not including
        for number in (8, 9, 10, 15, 20):
            await stream.delete_msg(name, number)

    on(url, work)
    gone = {1: "messages 1 to 3 are", 8: "messages 8 to 10 are", 15: "message 15 is", 20: "message 20 is"}

    everything = rows(read_range(NatsSettings(name, (url,)), 0, 20))
    filtered = rows(read_range(NatsSettings(name, (url,), subject=f"{name}.a.t"), 0, 20))

    for got in (everything, filtered):
        reasons = [row[3] for row in got if row[3]]
        assert reasons == [f"{which} gone from the stream (retention)" for which in gone.values()]
        assert all(row[1] is None and row[2] is None for row in got if row[3])
    assert [int(row[2]) for row in everything if row[2]] == [4, 5, 6, 7, 11, 12, 13, 14, 16, 17, 18, 19]
    assert [int(row[2]) for row in filtered if row[2]] == [4, 6, 12, 14, 16, 18]
    assert len(rows(read_range(NatsSettings(name, (url,)), 7, 10))) == 1


@needs_nats
def test_payloads_that_are_no_text_have_a_reason(url: str, name: str) -> None:
    publish(url, (f"{name}.x", b"\xff\x00"), (f"{name}.x", b""), (f"{name}.x", "ü\n".encode()))

    got = rows(read_range(NatsSettings(name, (url,)), 0, 3))

    assert got[0][2:] == (
        base64.b64encode(b"\xff\x00").decode(),
        "payload: found bytes that are not UTF-8, kept as base64, expected text",
    )
    assert [row[2:] for row in got[1:]] == [("", None), ("ü\n", None)]


@needs_nats
def test_a_batch_is_bounded_and_cut_into_ranges(url: str, name: str) -> None:
    fill(url, name, 30)
    reader = NatsStreamReader(NatsSettings(name, (url,), max_messages=12, partitions=3))
    start = reader.initialOffset()

    end = reader.latestOffset(start, reader.getDefaultReadLimit())

    assert (start["sequence"], end["sequence"]) == (0, 12)
    assert reader.latestOffset(start, ReadAllAvailable())["sequence"] == 30
    assert reader.partitions(end, end) == []
    wide = reader.partitions(start, start | {"sequence": 3100})
    assert [(part.after, part.last) for part in pickle.loads(pickle.dumps(wide))] == [
        (0, 1033), (1033, 2066), (2066, 3100),
    ]  # fmt: skip


@needs_nats
@pytest.mark.parametrize(("start", "sequence"), [("earliest", 2), ("latest", 5), ("4", 3)])
def test_a_new_query_starts_where_it_is_told(url: str, name: str, start: str, sequence: int) -> None:
    fill(url, name, 5)
    on(url, lambda stream: stream.purge_stream(name, seq=3))

    assert NatsStreamReader(NatsSettings(name, (url,), start=start)).initialOffset()["sequence"] == sequence


@needs_nats
def test_a_stream_that_was_made_anew_does_not_pass_for_the_old_one(url: str, name: str) -> None:
    fill(url, name, 5)
    reader = NatsStreamReader(NatsSettings(name, (url,)))
    offset = reader.initialOffset()

    async def renew(stream: JetStreamContext) -> None:
        await stream.delete_stream(name)
        await stream.add_stream(name=name, subjects=[f"{name}.>"])

    on(url, renew)

    with pytest.raises(
        NatsSourceError, match=f"stream '{name}': found one made at .*, expected .* checkpoint"
    ):
        reader.latestOffset(offset, ReadMaxRows(10))


@needs_nats
def test_what_cannot_be_used_is_named(url: str, name: str) -> None:
    async def queue(stream: JetStreamContext) -> None:
        await stream.add_stream(name=f"{name}q", subjects=[f"{name}q"], retention="workqueue")

    on(url, queue)

    with pytest.raises(
        NatsSourceError, match=f"stream 'other': found .*{name}.* on the server, expected it to"
    ):
        NatsReader(NatsSettings("other", (url,))).partitions()
    with pytest.raises(
        NatsSourceError, match=f"stream '{name}q': found retention 'workqueue', expected 'limits'"
    ):
        NatsReader(NatsSettings(f"{name}q", (url,))).partitions()
    nowhere = f"nats://127.0.0.1:{free_port()}"
    with pytest.raises(NatsSourceError, match=f"servers {nowhere}: found .*, expected a NATS server"):
        NatsReader(NatsSettings(name, (nowhere,), timeout_s=2)).partitions()


@needs_nats
def test_a_login_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_TEST_USER", "anna")
    monkeypatch.setenv("NATS_TEST_PASSWORD", "secret")
    login = {"user_env": "NATS_TEST_USER", "password_env": "NATS_TEST_PASSWORD"}

    with nats_server(tmp_path, "-js", "--user", "anna", "--pass", "secret") as where:
        on(where, lambda s: s.add_stream(name="s", subjects=["s"]), user="anna", password="secret")
        start = NatsStreamReader(NatsSettings("s", (where,), **login)).initialOffset()

        with pytest.raises(NatsSourceError, match="expected a NATS server that lets us in"):
            NatsStreamReader(NatsSettings("s", (where,))).initialOffset()
    assert start["sequence"] == 0


@needs_nats
def test_a_server_without_jetstream_is_named(tmp_path: Path) -> None:
    with (
        nats_server(tmp_path) as where,
        pytest.raises(NatsSourceError, match=f"servers {where}: found no JetStream"),
    ):
        NatsReader(NatsSettings("s", (where,), timeout_s=2)).partitions()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "stream: found '', expected a stream's name"),
        ({"stream": "a.b"}, "stream: found 'a.b', expected a stream's name"),
        (
            {"stream": "s", "start": "soon"},
            "start: found 'soon', expected 'earliest', 'latest' or a sequence",
        ),
        ({"stream": "s", "max_messages": "many"}, "max_messages: found 'many', expected a number > 0"),
        ({"stream": "s", "partitions": "0"}, "partitions: found 0, expected a number > 0"),
        (
            {"stream": "s", "servers": "nats://me:pw@host"},
            "servers: found a user or password in nats://…@host",
        ),
    ],
)
def test_options_that_cannot_be_right_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(NatsSourceError, match=message) as refused:
        NatsSettings.of(options)

    assert "pw" not in str(refused.value)


def test_a_secret_that_is_not_in_the_environment_is_missed() -> None:
    with pytest.raises(NatsSourceError, match="environment variable NOT_THERE_AT_ALL: found nothing"):
        NatsStreamReader(NatsSettings("s", token_env="NOT_THERE_AT_ALL")).initialOffset()


@needs_nats
def test_a_query_that_is_stopped_and_started_again_sees_each_message_once(
    spark: SparkSession, url: str, name: str, tmp_path: Path
) -> None:
    spark.dataSource.register(NatsDataSource)
    options = {"servers": url, "stream": name, "subject": f"{name}.a.t", "max_messages": "500", "source": "n"}

    def start(**trigger: Any) -> Any:
        frame = spark.readStream.format(FORMAT).options(**options).load()
        assert frame.schema == RECORD
        sink = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return sink.trigger(**trigger).start(str(tmp_path / "out"))

    fill(url, name, 1300)
    query = start(processingTime="0 seconds")
    wait_for(
        lambda: not query.isActive or (query.lastProgress is not None and query.lastProgress["batchId"] >= 1),
        "two batches",
    )
    assert query.exception() is None
    query.stop()
    fill(url, name, 700)
    start(availableNow=True).awaitTermination(60)

    got = spark.read.parquet(str(tmp_path / "out")).collect()
    wanted = sorted([str(n) for n in range(2, 1301, 2)] + [str(n) for n in range(2, 701, 2)])
    assert sorted(row["text"] for row in got) == wanted
    assert {(row["source"], row["topic"], row["reason"]) for row in got} == {("n", f"{name}.a.t", None)}


@needs_nats
def test_spark_reads_what_the_stream_holds(spark: SparkSession, url: str, name: str) -> None:
    spark.dataSource.register(NatsDataSource)
    fill(url, name, 30)

    frame = spark.read.format(FORMAT).options(servers=url, stream=name, start="11").load()

    assert sorted(int(row["text"]) for row in frame.collect()) == list(range(11, 31))


def test_long_messages_are_cut() -> None:
    from sensorgrid.pipeline.sources import nats as module

    row = module._row(NatsSettings("s"), "t", b"x" * (RAW_BYTES_MAX + 1))

    assert row[2] == "x" * 4096
    assert row[3] == f"payload: found {RAW_BYTES_MAX + 1} bytes, expected at most {RAW_BYTES_MAX}"


@needs_nats
def test_the_first_messages_of_a_stream_are_a_few(url: str, name: str) -> None:
    settings = NatsSettings(name, servers=(url,))

    assert len(first_messages(settings, 5)) == 0
    fill(url, name, 9)
    assert first_messages(settings, 5)["text"].to_pylist() == ["1", "2", "3", "4", "5"]
    assert len(first_messages(settings, 50)) == 9
