"""Files as a source: CSV, JSON lines and Parquet, compressed or not, all at once or as they arrive.

Spark's own readers are not made for files from strangers: one poisoned file stops the stream for good, a line
of 100 MB is held whole in memory, columns in another order are read wrong without a word. So Spark only lists
the files here (its `binaryFile` source, without the content) and remembers which ones are done; a reader of
our own opens each one and hands out its lines in bounded pieces, as rows of `RECORD`:

- a line longer than `RAW_BYTES_MAX` is a dead letter with its length and its beginning, never held whole;
- a header that lacks a needed column makes one dead letter of the file; other orders are put right;
- a file that breaks off (truncated, damaged) gives the rows before the fault and one dead letter.

Files in our own layout (format "measurements") are the fast way for large amounts: Spark reads them itself.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sensorgrid.pipeline.ingest import parse
from sensorgrid.pipeline.schema import LETTER_BYTES_MAX, MEASUREMENT, RAW_BYTES_MAX, RECORD
from sensorgrid.pipeline.sources.blocks import decompressed, open_path
from sensorgrid.pipeline.sources.declaration import Mapping
from sensorgrid.pipeline.sources.stations import Stations, locate

FILES_MAX = 100
"""Files of one micro-batch."""
ROWS_PER_BATCH = 10_000
_ARROW = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("topic", pa.string()),
        pa.field("text", pa.string()),
        pa.field("reason", pa.string()),
    ]
)


def read_files(
    session: SparkSession,
    path: str,
    mapping: Mapping,
    *,
    source: str,
    streaming: bool,
    max_files_per_trigger: int = FILES_MAX,
    stations: Stations | None = None,
) -> DataFrame:
    """Measurements from all files below a path, or from those that arrive there.

    Files must be complete when they get their name (write elsewhere, then rename); names that start with a
    dot or an underscore are left alone.

    Parameters
    ----------
    path
        A file, a folder (with its subfolders) or a pattern, on any file system that Spark and pyarrow know.
    mapping
        What the records mean. With format "measurements" the files have our own columns; see
        `read_measurements`.
    source
        The source's name in the configuration.
    streaming
        Whether to go on with files that arrive later.
    max_files_per_trigger
        Files of one micro-batch.
    stations
        Positions, other names and calibrations, if the feed needs them.
    """
    if mapping.format == "measurements":
        native = read_measurements(
            session, path, source=source, streaming=streaming, max_files_per_trigger=max_files_per_trigger
        )
        return native if stations is None else locate(native, stations)
    records = read_records(
        session,
        path,
        mapping,
        source=source,
        streaming=streaming,
        max_files_per_trigger=max_files_per_trigger,
    )
    return parse(records, mapping, stations)


def read_records(
    session: SparkSession,
    path: str,
    mapping: Mapping,
    *,
    source: str,
    streaming: bool,
    max_files_per_trigger: int = FILES_MAX,
) -> DataFrame:
    """Rows of `RECORD` from all files below a path: the first half of `read_files`."""
    files = _list(session, path, streaming, max_files_per_trigger)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in batch.column("path").to_pylist():
                yield from records_of(name, mapping, source)

    return files.mapInArrow(read, RECORD)


def read_measurements(
    session: SparkSession,
    path: str,
    *,
    source: str,
    streaming: bool,
    max_files_per_trigger: int = FILES_MAX,
) -> DataFrame:
    """Rows of `MEASUREMENT` from Parquet files that have these columns, read by Spark without Python in
    between.

    The columns sensor, attribute, event_time and value are needed, the others are null where they are absent.
    Spark passes over a file that it cannot read; so that it does not vanish without a word, each file's
    footer is looked at besides, and one that is no Parquet, or lacks a column, or has a wrong type, is a dead
    letter. What this cannot see is damage in the middle of a file with a sound footer: the rows after it are
    lost silently.
    """
    reader: Any = session.readStream if streaming else session.read
    if streaming:
        reader = reader.option("maxFilesPerTrigger", max_files_per_trigger)
    rows = (
        reader.schema(MEASUREMENT)
        .option("recursiveFileLookup", "true")
        .option("ignoreCorruptFiles", "true")
        .parquet(path)
    )
    made = {"source": F.coalesce("source", F.lit(source))}
    rows = rows.select(*[made.get(f.name, F.col(f.name)).alias(f.name) for f in MEASUREMENT.fields])

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            faults = [(name, footer_fault(name)) for name in batch.column("path").to_pylist()]
            yield _batch([Letter(name, None, fault) for name, fault in faults if fault], source)

    letters = _list(session, path, streaming, max_files_per_trigger).mapInArrow(check, RECORD)
    dead = {"source": F.col("source"), "raw": F.col("topic"), "reason": F.col("reason")}
    fields = [dead.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in MEASUREMENT.fields]
    both: DataFrame = rows.unionByName(letters.select(*fields))
    return both


@dataclass(frozen=True, slots=True)
class Letter:
    """One row of `RECORD` to be, without its source."""

    topic: str
    text: str | None
    reason: str | None = None


def records_of(path: str, mapping: Mapping, source: str) -> Iterator[pa.RecordBatch]:
    """One file as rows of `RECORD`, in pieces; whatever is wrong with it is said in its rows, not raised."""
    rows = _parquet_rows(path) if mapping.format == "parquet" else _text_rows(path, mapping)
    try:
        for piece in rows:
            yield _batch(piece, source)
    except Exception as fault:  # whatever the file made a library do, the stream goes on
        yield _batch([Letter(path, None, f"file cannot be read further: {_said(fault)}")], source)


def footer_fault(path: str) -> str | None:
    """Why a file cannot be Parquet in our layout, from its footer alone."""
    try:
        with open_path(path) as stream, pq.ParquetFile(stream) as file:
            schema = file.schema_arrow
    except Exception as fault:
        return f"file cannot be read: {_said(fault)}"
    checks = {
        "sensor": pa.types.is_string, "attribute": pa.types.is_string, "event_time": pa.types.is_timestamp,
        "value": pa.types.is_floating,
    }  # fmt: skip
    for name, fits in checks.items():
        if name not in schema.names:
            return f"file: found columns {', '.join(schema.names)[:200]}, expected {name}"
        kind = schema.field(name).type
        if not (fits(kind) or (name in ("sensor", "attribute") and _is_text(kind))):
            return f"file: found column {name} of type {kind}, expected that of our layout"
    return None


@dataclass(frozen=True, slots=True)
class Oversized:
    """A line that was too long to keep."""

    head: bytes
    length: int


@dataclass(frozen=True, slots=True)
class Broken:
    """The end of a file that breaks off: what there is of its last line, and why."""

    rest: bytes
    fault: Exception


def lines_of(
    blocks: Iterable[bytes], longest: int = RAW_BYTES_MAX
) -> Iterator[list[bytes] | Oversized | Broken]:
    """Lines from blocks of bytes, many at a time; at most one block and one line are in memory."""
    carry, over, blocks = b"", None, iter(blocks)
    while True:
        try:
            block = next(blocks, None)
        except Exception as fault:  # the half line before the fault could look like a whole one
            yield Broken(carry if over is None else over.head, fault)
            return
        if block is None:
            break
        if over is not None:
            end = block.find(b"\n")
            over = Oversized(over.head, over.length + (len(block) if end < 0 else end))
            if end < 0:
                continue
            yield over
            block, over = block[end + 1 :], None
        *whole, carry = (carry + block).split(b"\n")
        start = 0
        for place, line in enumerate(whole):
            if len(line) > longest:
                yield whole[start:place]
                yield Oversized(line[:LETTER_BYTES_MAX], len(line))
                start = place + 1
        yield whole[start:]
        if len(carry) > longest:
            carry, over = b"", Oversized(carry[:LETTER_BYTES_MAX], len(carry))
    if over is not None:
        yield over
    elif carry:
        yield [carry] if len(carry) <= longest else Oversized(carry[:LETTER_BYTES_MAX], len(carry))


def _list(session: SparkSession, path: str, streaming: bool, max_files_per_trigger: int) -> DataFrame:
    """The paths of files; Spark prunes the content away."""
    reader: Any = session.readStream if streaming else session.read
    if streaming:
        shape = "path string, modificationTime timestamp, length long, content binary"
        reader = reader.schema(shape).option("maxFilesPerTrigger", max_files_per_trigger)
    files: DataFrame = reader.format("binaryFile").option("recursiveFileLookup", "true").load(path)
    return files.select("path")


def _text_rows(path: str, mapping: Mapping) -> Iterator[list[Letter]]:
    with open_path(path) as stream:
        order: list[int] | None = None
        headed = mapping.format == "csv" and mapping.header
        first = True
        for piece in lines_of(decompressed(stream)):
            if isinstance(piece, Oversized):
                reason = f"record of {piece.length} bytes, expected at most {RAW_BYTES_MAX}"
                yield [Letter(path, _shown(piece.head), reason)]
                if headed:  # the header itself: nothing after it can be understood
                    return
                continue
            if isinstance(piece, Broken):
                yield [Letter(path, _shown(piece.rest), f"file breaks off: {_said(piece.fault)}")]
                return
            lines = [line.rstrip(b"\r") for line in piece]
            if first and lines:
                lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
                first = False
            lines = [line for line in lines if line.strip()]
            if headed and lines:
                order, fault = _order(lines.pop(0), mapping)
                if fault:
                    yield [Letter(path, None, fault)]
                    return
                headed = False
            if lines:
                yield _decoded(path, lines, mapping, order)


def _decoded(path: str, lines: list[bytes], mapping: Mapping, order: list[int] | None) -> list[Letter]:
    try:
        texts = b"\n".join(lines).decode(mapping.encoding).split("\n")
        if order is None:
            return [Letter(path, text) for text in texts]
        return [_reordered(path, text, mapping, order) for text in texts]
    except UnicodeDecodeError:
        if len(lines) > 1:  # one line spoils the piece: take them one by one
            return [row for line in lines for row in _decoded(path, [line], mapping, order)]
        return [Letter(path, _shown(lines[0][:LETTER_BYTES_MAX]), f"record is not {mapping.encoding}")]


def _order(header: bytes, mapping: Mapping) -> tuple[list[int] | None, str | None]:
    """Where each of the mapping's columns stands in this file (None: as usual), or why it cannot be read."""
    text = header[:RAW_BYTES_MAX].decode(mapping.encoding, "replace")
    names = [name.strip() for name in next(csv.reader([text], **_dialect(mapping)), [])]
    if tuple(names) == mapping.columns:
        return None, None
    for column in mapping.used_columns:
        if names.count(column) != 1:
            found = f"{names.count(column)} times {column!r} in {', '.join(names)[:200]!r}"
            return None, f"header: found {found}, expected once"
    # The width of the file stands last, to tell a line that is too short or too long.
    places = [names.index(column) if column in names else -1 for column in mapping.columns]
    return [*places, len(names)], None


def _reordered(path: str, text: str, mapping: Mapping, order: list[int]) -> Letter:
    """A line with its columns in the mapping's order."""
    *places, width = order
    fields = next(csv.reader([text], **_dialect(mapping)), [])
    if len(fields) != width:
        return Letter(path, text[:LETTER_BYTES_MAX], f"record is not a line of {width} fields")
    line = io.StringIO()
    csv.writer(line, lineterminator="", **_dialect(mapping)).writerow(
        [fields[place] if place >= 0 else "" for place in places]
    )
    return Letter(path, line.getvalue())


def _dialect(mapping: Mapping) -> dict[str, Any]:
    return {"delimiter": mapping.delimiter, "quotechar": mapping.quote, "strict": False}


def _parquet_rows(path: str) -> Iterator[list[Letter]]:
    """The rows of a Parquet file as JSON texts."""
    with open_path(path) as stream, pq.ParquetFile(stream) as file:
        for batch in file.iter_batches(batch_size=ROWS_PER_BATCH):
            rows = []
            for row in batch.to_pylist():
                text = json.dumps(row, default=_plain, ensure_ascii=False)
                size = len(text.encode("utf-8", "replace"))
                if size > RAW_BYTES_MAX:
                    reason = f"record of {size} bytes, expected at most {RAW_BYTES_MAX}"
                    rows.append(Letter(path, _shown(text[:LETTER_BYTES_MAX].encode()), reason))
                else:
                    rows.append(Letter(path, text))
            yield rows


def _plain(value: Any) -> str:
    """What JSON does not know as text: times in ISO, everything else as it prints."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _batch(rows: list[Letter], source: str) -> pa.RecordBatch:
    columns = [
        [source] * len(rows),
        [row.topic for row in rows],
        [row.text for row in rows],
        [row.reason for row in rows],
    ]
    return pa.record_batch([pa.array(column, pa.string()) for column in columns], schema=_ARROW)


def _shown(head: bytes) -> str:
    return head[:LETTER_BYTES_MAX].decode("utf-8", "replace")


def _said(fault: Exception) -> str:
    return f"{type(fault).__name__}: {str(fault)[:300]}"


def _is_text(kind: pa.DataType) -> bool:
    dictionary = pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type)
    return bool(pa.types.is_large_string(kind) or dictionary)
