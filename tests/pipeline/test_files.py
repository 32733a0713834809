"""Files from strangers: whatever is wrong with one, its good rows come out, the rest is said, the stream goes on."""

import bz2
import gzip
import io
import json
import random
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

from sensorgrid.pipeline.schema import LETTER_BYTES_MAX, MEASUREMENT, RAW_BYTES_MAX
from sensorgrid.pipeline.sources.blocks import BLOCK_BYTES, decompressed
from sensorgrid.pipeline.sources.files import (
    BrokenEnd,
    Oversized,
    lines_of,
    measurements_of,
    read_files,
    records_of,
)
from sensorgrid.pipeline.sources.mapping import Mapping, mapping_of, read_mapping

FEED: dict[str, Any] = {
    "format": "csv",
    "columns": ["id", "when", "t", "note"],
    "sensor": {"columns": ["id"]},
    "time": {"column": "when"},
    "values": {"air_temperature": {"column": "t", "unit": "degC"}},
}
WHEN = "2024-05-01T12:00:00Z"
HEADER = "id,when,t,note\n"


def feed(**changes: Any) -> Mapping:
    return mapping_of(FEED | changes, name="feed.toml")


def lines(*values: object) -> str:
    return "".join(f"a,{WHEN},{value},\n" for value in values)


def letters(path: Path, mapping: Mapping | None = None) -> list[tuple[str | None, str | None]]:
    """Text and reason of each record of a file, read without Spark."""
    batches = records_of(str(path), mapping or feed(), "s")
    return [(row["text"], row["reason"]) for batch in batches for row in batch.to_pylist()]


def read(spark: SparkSession, path: Path, mapping: Mapping | None = None) -> list[Row]:
    frame = read_files(spark, str(path), mapping or feed(), source="s", streaming=False)
    return sorted(frame.collect(), key=lambda r: (r.reason is not None, r.value is None, r.value or 0))


def as_pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("seed", range(30))
def test_lines_are_those_of_python_whatever_the_blocks(seed: int) -> None:
    chance = random.Random(seed)
    data = bytes(chance.choice(b"ab\n") for _ in range(chance.randrange(400)))

    found: list[bytes] = []
    long = []
    for piece in lines_of(as_pieces(data, chance.randrange(1, 40)), longest=20):
        if isinstance(piece, Oversized):
            long.append((piece.head, piece.length))
        elif isinstance(piece, list):
            found += piece

    expected = data.split(b"\n")
    expected = expected[:-1] if expected[-1] == b"" else expected
    assert found == [line for line in expected if len(line) <= 20]
    assert [length for _, length in long] == [len(line) for line in expected if len(line) > 20]
    for (head, _), line in zip(long, [line for line in expected if len(line) > 20], strict=True):
        assert line.startswith(head)


def test_a_fault_ends_the_lines_and_gives_up_the_half_line_before_it() -> None:
    def blocks() -> Iterator[bytes]:
        yield b"one\ntw"
        raise OSError("gone")

    *good, last = lines_of(blocks())

    assert good == [[b"one"]]
    assert isinstance(last, BrokenEnd)
    assert (last.rest, str(last.fault)) == (b"tw", "gone")


def zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


COMPRESS = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "zstd": zstd}


@pytest.mark.parametrize("kind", COMPRESS)
def test_every_compression_gives_the_same_bytes(kind: str) -> None:
    data = random.Random(1).randbytes(BLOCK_BYTES) + b"0" * 3_000_000  # badly and very well compressible

    blocks = list(decompressed(io.BytesIO(COMPRESS[kind](data))))

    assert b"".join(blocks) == data
    assert max(map(len, blocks)) <= BLOCK_BYTES


@pytest.mark.parametrize("kind", ["gzip", "bzip2"])
def test_files_put_together_by_cat_are_read_to_the_end(kind: str) -> None:
    compress = COMPRESS[kind]
    data = compress(b"one\n") + compress(b"two\n" * 200_000) + compress(b"three\n") + b"\0" * 512

    assert b"".join(decompressed(io.BytesIO(data))) == b"one\n" + b"two\n" * 200_000 + b"three\n"


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "zstd"])
def test_a_truncated_file_gives_its_rows_and_one_dead_letter(tmp_path: Path, kind: str) -> None:
    values = [random.Random(i).random() for i in range(60_000)]
    whole = COMPRESS[kind]((HEADER + lines(*values)).encode())
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(whole[: len(whole) * 2 // 3])

    *good, (_, reason) = letters(path)

    assert reason is not None
    assert reason.startswith("file breaks off: ")
    assert [text for text, _ in good] == lines(*values).split("\n")[: len(good)]
    assert len(good) > len(values) // 3


def test_a_line_of_100_megabytes_is_one_dead_letter_and_never_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write((HEADER + lines(1)).encode())
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + lines(2).encode())

    tracemalloc.start()
    rows = letters(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [reason for _, reason in rows] == [
        None, f"record of {100 << 20} bytes, expected at most {RAW_BYTES_MAX}", None,
    ]  # fmt: skip
    assert len(rows[1][0] or "") == LETTER_BYTES_MAX
    assert peak < 16 << 20


def test_a_file_of_garbage_is_dead_letters(tmp_path: Path) -> None:
    path = tmp_path / "noise.csv"
    path.write_bytes(random.Random(3).randbytes(200_000))
    with_header = letters(path)
    without = letters(path, feed(header=False))

    assert {(reason or "")[:29] for _, reason in with_header} == {"header: found 0 times 'id' in"}
    assert len(without) > 500
    assert len(with_header) == len(without) - 1  # every line counts, but for the header
    assert sum(reason is not None for _, reason in without) > 0.9 * len(without)  # not UTF-8


def test_columns_in_another_order_are_put_right(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_bytes(
        f'\ufeff t ,extra,when,id\r\n21.5,"x,1",{WHEN},"a,b"\r\n\r\n1,2\r\n1,2\r3,4\n{"x" * 200_000},,,\n'.encode()
    )

    rows = letters(path)

    assert rows[0] == (f'"a,b",{WHEN},21.5,', None)
    assert [reason for _, reason in rows[1:]] == ["record is not a line of 4 fields"] * 3


@pytest.mark.parametrize(
    ("header", "found"),
    [("id,when,note", "0 times 't'"), ("id,t,when,t,note", "2 times 't'"), ("x" * 9000, "0 times")],
)
def test_a_header_that_lacks_or_repeats_a_needed_column_makes_a_dead_letter_of_each_line(
    tmp_path: Path, header: str, found: str
) -> None:
    path = tmp_path / "header.csv"
    path.write_text(f"{header}\n{lines(1, 2, 3)}")

    rows = letters(path)

    assert [text for text, _ in rows] == lines(1, 2, 3).splitlines()
    assert len({reason for _, reason in rows}) == 1
    reason = rows[0][1]
    assert reason is not None
    assert reason.startswith(f"header: found {found}")
    assert len(reason) < 400


def test_a_header_that_cannot_be_used_and_no_line_after_it_is_one_dead_letter(tmp_path: Path) -> None:
    path = tmp_path / "header.csv"
    path.write_text("who,what\n")

    ((text, reason),) = letters(path)

    assert text == "who,what"
    assert (reason or "").startswith("header: found 0 times 'id'")


def test_a_column_that_may_be_absent_is_missing_where_a_file_leaves_it_out(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text(f"id,when\na,{WHEN}\n")
    twice = tmp_path / "twice.csv"
    twice.write_text(f"id,when,t,t\na,{WHEN},1,2\n")
    mapping = feed(optional=["t"])

    assert letters(path, mapping) == [(f"a,{WHEN},,", None)]
    ((_, needed),) = letters(path)
    assert (needed or "").startswith("header: found 0 times 't'")
    ((_, double),) = letters(twice, mapping)
    assert (double or "").startswith("header: found 2 times 't'")


def test_lines_that_are_not_of_the_encoding_are_dead_letters_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    path.write_bytes((HEADER + lines(1)).encode() + "a,x,2,Zürich\n".encode("latin-1") + lines(3).encode())

    assert [reason for _, reason in letters(path)] == [None, "record is not utf-8", None]
    assert [text for text, _ in letters(path, feed(encoding="latin-1"))][1] == "a,x,2,Zürich"


def test_empty_files_and_files_that_are_gone_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    (tmp_path / "header.csv").write_text(HEADER)

    assert letters(tmp_path / "empty.csv") == []
    assert letters(tmp_path / "header.csv") == []
    ((_, reason),) = letters(tmp_path / "gone.csv")
    assert reason is not None
    assert reason.startswith("file cannot be read further: FileNotFoundError")


def test_a_folder_of_good_and_bad_files_adds_up(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a folder with blanks % and ü" / "deep"
    folder.mkdir(parents=True)
    (folder / "good.csv").write_text(HEADER + lines(1, 2, "x"))
    (folder / "good.csv.gz").write_bytes(gzip.compress((HEADER + lines(3, "")).encode()))
    (folder / "header.csv").write_text("who,what\n1,2\n3,4\n")
    (folder / "noise.csv").write_bytes(b"\x00\xff" * 100)
    (folder / ".hidden.csv").write_text(HEADER + lines(99))
    (folder / "_part.csv").write_text(HEADER + lines(99))

    rows = read(spark, tmp_path)

    assert [r.value for r in rows] == [1.0, 2.0, 3.0, *[None] * 5]
    assert sum(r.reason is not None for r in rows) == 4  # x, two lines under a wrong header, and noise
    assert {r.source for r in rows} == {"s"}


def test_a_file_that_is_deleted_before_its_turn_does_not_stop_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "1.csv").write_text(HEADER + lines(1))
    (tmp_path / "2.csv").write_text(HEADER + lines(2))
    frame = read_files(spark, str(tmp_path), feed(), source="s", streaming=False)

    (tmp_path / "1.csv").unlink()

    assert [row.value for row in frame.collect()] == [2.0]


def test_spark_does_not_load_the_content_of_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text(HEADER + lines(1))
    spark.conf.set("spark.sql.sources.binaryFile.maxLength", "1")  # would refuse to

    try:
        rows = read(spark, tmp_path)
    finally:
        spark.conf.unset("spark.sql.sources.binaryFile.maxLength")

    assert [r.value for r in rows] == [1.0]


def test_a_stream_goes_on_after_poisoned_files_and_reads_each_file_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, out, checkpoint = (tmp_path / name for name in ("in", "out", "checkpoint"))
    folder.mkdir()

    def run() -> None:
        frame = read_files(spark, str(folder), feed(), source="s", streaming=True, max_files_per_trigger=1)
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert query.exception() is None

    (folder / "1.csv").write_text(HEADER + lines(1, 2))
    (folder / "2.csv.gz").write_bytes(gzip.compress((HEADER + lines(*range(9999))).encode())[:50])
    run()
    (folder / "3.csv").write_text(HEADER + lines(3))
    run()

    rows = spark.read.parquet(str(out)).collect()
    values = sorted(r.value for r in rows if r.reason is None)
    assert [v for v in (1.0, 2.0, 3.0) if values.count(v) >= 1] == [1.0, 2.0, 3.0]
    assert values.count(3.0) <= 2  # the cut file may have reached it as well
    assert sum(r.reason is not None for r in rows) == 1


def test_json_lines_and_parquet_say_the_same(spark: SparkSession, tmp_path: Path) -> None:
    objects = [
        {"id": "a", "when": WHEN, "in": {"t": 1.5}},
        {"id": "b", "when": WHEN, "in": {"t": float("nan")}},
        {"id": None, "when": WHEN, "in": {"t": 2.0}},
    ]
    (tmp_path / "x.json").write_text("".join(json.dumps(o) + "\n" for o in objects))
    table = pa.Table.from_pylist(objects)
    moment = pa.array([datetime(2024, 5, 1, 12, tzinfo=UTC)] * 3, pa.timestamp("us", tz="UTC"))
    pq.write_table(table.set_column(1, "when", moment), tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"PAR1 nonsense PAR1")
    made = {"columns": [], "values": {"air_temperature": {"column": "in.t", "unit": "degC"}}}

    as_json = read(spark, tmp_path / "x.json", feed(format="json", **made))
    as_parquet = read(spark, tmp_path / "*.parquet", feed(format="parquet", **made))

    def essence(rows: list[Row]) -> list[Any]:
        return [(r.sensor, r.event_time, r.value, r.reason) for r in rows]

    assert essence(as_json) == essence(as_parquet)[:3]
    assert [r.value for r in as_json] == [1.5, None, None]
    assert as_parquet[3].reason.startswith("file cannot be read further: ArrowInvalid")


def measurements(path: Path, values: list[float], **changes: pa.Array | None) -> None:
    count = len(values)
    moment = datetime(2024, 5, 1, tzinfo=UTC)
    columns: dict[str, Any] = {
        "sensor": pa.array(["a"] * count),
        "attribute": pa.array(["air_temperature"] * count),
        "longitude": pa.array([1.0] * count),
        "latitude": pa.array([2.0] * count),
        "event_time": pa.array([moment] * count, pa.timestamp("us", tz="UTC")),
        "value": pa.array(values),
    } | changes
    pq.write_table(pa.table({k: v for k, v in columns.items() if v is not None}), path)


def test_our_own_layout_is_read_as_it_is_and_bad_files_are_named(spark: SparkSession, tmp_path: Path) -> None:
    measurements(tmp_path / "good.parquet", [280.0, 281.0])
    measurements(tmp_path / "text.parquet", [1.0], value=pa.array(["warm"]))
    measurements(tmp_path / "nested.parquet", [1.0], sensor=pa.array([["a"]]))
    measurements(tmp_path / "lacking.parquet", [1.0], sensor=None)
    measurements(tmp_path / "null.parquet", [1.0, 2.0], sensor=pa.array(["a", None]))
    (tmp_path / "noise.parquet").write_bytes(random.Random(1).randbytes(1000))
    whole = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-20])

    frame = read_files(spark, str(tmp_path), read_mapping("measurements"), source="s", streaming=False)
    rows = frame.collect()

    assert [(f.name, f.dataType) for f in frame.schema] == [(f.name, f.dataType) for f in MEASUREMENT]
    good = [r for r in rows if r.reason is None]
    assert sorted(r.value for r in good) == [1.0, 280.0, 281.0]
    assert {(r.source, r.unit, r.raw) for r in good} == {("s", None, None)}
    assert [r.reason for r in rows if r.reason and r.raw is None] == ["sensor missing"]
    bad = {Path(r.raw).name: r.reason for r in rows if r.raw}
    assert sorted(bad) == [f"{n}.parquet" for n in ("cut", "lacking", "nested", "noise", "text")]
    assert bad["lacking.parquet"].endswith("expected sensor once")
    assert "warm" in bad["text.parquet"]


def test_kinds_of_numbers_times_and_texts_that_others_write_are_accepted(tmp_path: Path) -> None:
    moment = datetime(2024, 5, 1)
    changes: list[dict[str, pa.Array]] = [
        {"value": pa.array([1], kind)} for kind in (pa.int8(), pa.int64(), pa.uint16(), pa.float32())
    ]
    for unit in ("s", "ms", "us", "ns"):
        changes += [{"event_time": pa.array([moment], pa.timestamp(unit, tz=zone))} for zone in (None, "UTC")]
    changes += [
        {"sensor": pa.array(["a"]).dictionary_encode()},
        {"sensor": pa.array(["a"], pa.large_string())},
    ]
    changes += [{"reason": pa.array(["earlier"])}, {"source": pa.array(["elsewhere"])}]

    for change in changes:
        measurements(tmp_path / "x.parquet", [1.0], **change)
        (batch,) = measurements_of(str(tmp_path / "x.parquet"), "s")
        (row,) = batch.to_pylist()

        assert (row["sensor"], row["value"]) == ("a", 1.0), change
        assert row["event_time"] == moment.replace(tzinfo=UTC), change
        assert row["reason"] == ("earlier" if "reason" in change else None)
        assert row["source"] == ("elsewhere" if "source" in change else "s")


def test_rows_before_damage_in_the_middle_of_a_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    count = 200_000
    moments = pa.array([datetime(2024, 5, 1, tzinfo=UTC)] * count, pa.timestamp("us", tz="UTC"))
    names = pa.array(["a"] * count)
    values = pa.array([random.Random(n).random() for n in range(count)])
    table = pa.table({"sensor": names, "attribute": names, "event_time": moments, "value": values})
    pq.write_table(table, path, row_group_size=50_000, compression="snappy", use_dictionary=False)
    place = pq.ParquetFile(path).metadata.row_group(2).column(3).data_page_offset
    data = bytearray(path.read_bytes())
    data[place : place + 2000] = bytes(2000)
    path.write_bytes(data)

    batches = list(measurements_of(str(path), "s"))

    good = [batch for batch in batches if batch["reason"][0].as_py() is None]
    lost = [row for batch in batches[len(good) :] for row in batch["reason"].to_pylist()]
    assert sum(map(len, good)) == 100_000
    assert len(lost) == 100_000  # the file counts its rows
    assert all(reason.startswith("file cannot be read further: ") for reason in lost)


def zigzag(number: int) -> bytes:
    """A whole number as Thrift's compact protocol writes it."""
    left, out = 2 * number, bytearray()
    while left > 127:
        out.append(left % 128 + 128)
        left //= 128
    return bytes([*out, left])


def test_a_forged_footer_makes_no_more_letters_than_the_file_has_bits(tmp_path: Path) -> None:
    path = tmp_path / "forged.parquet"
    rows = {"sensor": ["a"] * 4, "attribute": ["t"] * 4, "event_time": [0] * 4, "value": [1.0] * 4}
    pq.write_table(pa.table(rows), path, compression="none")
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    body, foot = bytearray(data[: -8 - size]), data[-8 - size : -8]
    body[4:40] = b"\xff" * 36  # the first page cannot be read
    honest = b"\x16" + zigzag(4) + b"\x19"  # the number of rows, and the list of row groups after it
    foot = foot.replace(honest, b"\x16" + zigzag(10**12) + b"\x19", 1)
    path.write_bytes(bytes(body) + foot + len(foot).to_bytes(4, "little") + b"PAR1")
    assert pq.ParquetFile(path).metadata.num_rows == 10**12

    lost = sum(len(batch) for batch in measurements_of(str(path), "s"))

    assert lost == 8 * path.stat().st_size
