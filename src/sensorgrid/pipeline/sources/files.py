"""Files as a source: CSV, JSON lines and Parquet, compressed or not, all at once or as they arrive.

Spark's own readers are not made for files from strangers: one poisoned file stops the stream for good, a line
of 100 MB is held whole in memory, columns in another order are read wrong without a word. So Spark only lists
the files here (its `binaryFile` source, without the content) and remembers which ones are done; a reader of
our own opens each one and hands out its lines in bounded pieces, as rows of `RECORD`:

- a line longer than `RAW_BYTES_MAX` is a dead letter with its length and its beginning, never held whole;
- a header that lacks a needed column makes a dead letter of each line; other orders are put right;
- a file that breaks off (truncated, damaged) gives the rows before the fault and one dead letter, or as many as
  it says that it holds (Parquet).

Files in our own layout (format "measurements") are the fast way for large amounts: whole columns, no text.
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
from pyspark.sql import functions as F

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.ingest.parsing import parse
from sensorgrid.pipeline.schema import (
    LETTER_BYTES_MAX,
    MEASUREMENT,
    MEASUREMENT_ARROW,
    RAW_BYTES_MAX,
    RECORD,
    RECORD_ARROW,
)
from sensorgrid.pipeline.sources.blocks import decompressed, open_path
from sensorgrid.pipeline.sources.bufr import observations_of
from sensorgrid.pipeline.sources.bulletins import BulletinError, about_of, record_of, reports_of
from sensorgrid.pipeline.sources.declaration import Mapping
from sensorgrid.pipeline.sources.stations import Stations, locate

FILES_MAX = 100
"""Files of one micro-batch."""
ROWS_PER_BATCH = 10_000
"""Rows of Parquet that are texts at once."""
REPORTS_TOGETHER = 500
"""METAR reports that are taken apart before the first is handed on."""
ROWS_PER_PIECE = 50_000
"""Rows of our own layout at once."""


class LayoutError(SensorGridError, ValueError):
    """A file that does not have our layout; only ever seen as the reason of a dead letter."""


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
    """Rows of `MEASUREMENT` from Parquet files that have these columns, as whole columns and without any text.

    The columns sensor, attribute, event_time and value are needed, the others are null where they are absent.
    Numbers of any kind, times of any unit and texts of any encoding are accepted; times without a zone are UTC.

    The files are read by pyarrow and not by Spark. Spark can be told to pass over files that it cannot read, but
    then it does so without a word: times in nanoseconds or whole numbers as values would be enough to lose a
    file, and a nested column still stops the stream. This way was not slower when measured (five million rows, two
    cores), and rows before a fault are kept.
    """
    files = _list(session, path, streaming, max_files_per_trigger)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in batch.column("path").to_pylist():
                yield from measurements_of(name, source)

    rows = files.mapInArrow(read, MEASUREMENT)
    lacks = [
        F.when(F.col(name).isNull(), F.lit(f"{name} missing"))
        for name in ("sensor", "attribute", "event_time")
    ]
    reason = F.coalesce(F.col("reason"), *lacks)
    return rows.select(
        *[(reason if f.name == "reason" else F.col(f.name)).alias(f.name) for f in MEASUREMENT.fields]
    )


@dataclass(frozen=True, slots=True)
class Letter:
    """One row of `RECORD` to be, without its source."""

    topic: str
    text: str | None
    reason: str | None = None


def records_of(path: str, mapping: Mapping, source: str) -> Iterator[pa.RecordBatch]:
    """One file as rows of `RECORD`, in pieces; whatever is wrong with it is said in its rows, not raised."""
    lost = [1]  # rows that the file says it still has
    try:
        for piece in _rows(path, mapping, lost):
            yield _batch(piece, source)
    except Exception as fault:  # whatever the file made a library do, the stream goes on
        letter = Letter(path, None, f"file cannot be read further: {_said(fault)} ({path})")
        for number in _pieces(max(1, lost[0])):
            yield _batch([letter] * number, source)


def _rows(path: str, mapping: Mapping, lost: list[int]) -> Iterator[list[Letter]]:
    if mapping.format == "parquet":
        return _parquet_rows(path, lost)
    if mapping.format == "metar":
        return _metar_rows(path)
    if mapping.format == "bufr":
        return _bufr_rows(path, mapping)
    return _text_rows(path, mapping)


def measurements_of(path: str, source: str) -> Iterator[pa.RecordBatch]:
    """One Parquet file in our own layout; whatever is wrong with it is said in its rows, not raised."""
    expected = read = 0
    try:
        with open_path(path) as stream, pq.ParquetFile(stream) as file:
            found, expected = file.schema_arrow.names, _rows_believed(file, stream)
            for name in ("sensor", "attribute", "event_time", "value"):
                if found.count(name) != 1:
                    raise LayoutError(f"{path}: found columns {', '.join(found)[:200]}, expected {name} once")
            columns = [name for name in MEASUREMENT_ARROW.names if name in found]
            for batch in file.iter_batches(batch_size=ROWS_PER_PIECE, columns=columns):
                yield _measured(batch, source)
                read += len(batch)
    except Exception as fault:  # whatever the file made a library do, the stream goes on
        said = {"source": source, "raw": path, "reason": f"file cannot be read further: {_said(fault)}"}
        for lost in _pieces(max(1, expected - read)):
            columns = [pa.repeat(pa.scalar(said.get(f.name), f.type), lost) for f in MEASUREMENT_ARROW]
            yield pa.RecordBatch.from_arrays(columns, schema=MEASUREMENT_ARROW)


def _rows_believed(file: Any, stream: Any) -> int:
    """What a footer says, but no more than a row for each bit of the file: a forged one must not make more letters."""
    return min(int(file.metadata.num_rows), 8 * int(stream.size()))


def _pieces(rows: int) -> Iterator[int]:
    """So many rows, in pieces that fit into memory."""
    for start in range(0, rows, ROWS_PER_PIECE):
        yield min(ROWS_PER_PIECE, rows - start)


def _measured(batch: pa.RecordBatch, source: str) -> pa.RecordBatch:
    made = []
    for field in MEASUREMENT_ARROW:
        if field.name in batch.schema.names:
            # Not safe: nanoseconds are cut to microseconds.
            made.append(batch.column(field.name).cast(field.type, safe=False))
        elif field.name == "source":
            made.append(pa.array([source] * len(batch), pa.string()))
        else:
            made.append(pa.nulls(len(batch), field.type))
    return pa.RecordBatch.from_arrays(made, schema=MEASUREMENT_ARROW)


@dataclass(frozen=True, slots=True)
class Oversized:
    """A line that was too long to keep."""

    head: bytes
    length: int


@dataclass(frozen=True, slots=True)
class BrokenEnd:
    """The end of a file that breaks off: what there is of its last line, and why."""

    rest: bytes
    fault: Exception


def lines_of(
    blocks: Iterable[bytes], longest: int = RAW_BYTES_MAX
) -> Iterator[list[bytes] | Oversized | BrokenEnd]:
    """Lines from blocks of bytes, many at a time; at most one block and one line are in memory."""
    carry, over, blocks = b"", None, iter(blocks)
    while True:
        try:
            block = next(blocks, None)
        except Exception as fault:  # the half line before the fault could look like a whole one
            yield BrokenEnd(carry if over is None else over.head, fault)
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
        # By default a file whose date is a week older than the newest is passed over without a word.
        reader = reader.option("maxFileAge", "3650d")
    reader = reader.format("binaryFile").option("recursiveFileLookup", "true")
    # Who deletes a file before its turn must not stop the stream.
    files: DataFrame = reader.option("ignoreMissingFiles", "true").load(path)
    return files.select("path")


def _text_rows(path: str, mapping: Mapping) -> Iterator[list[Letter]]:
    with open_path(path) as stream:
        order: list[int] | None = None
        headed = mapping.format == "csv" and mapping.header
        first, poison = True, None
        alone: list[Letter] = []  # a header that cannot be used, and no line after it
        for piece in lines_of(decompressed(stream)):
            if isinstance(piece, Oversized):
                reason = f"record of {piece.length} bytes, expected at most {RAW_BYTES_MAX}"
                yield [Letter(path, _shown(piece.head), reason)]
                if headed:  # the header itself: nothing after it can be understood
                    headed, poison = False, f"header: found {piece.length} bytes, expected names ({path})"
                continue
            if isinstance(piece, BrokenEnd):
                yield [Letter(path, _shown(piece.rest), f"file breaks off: {_said(piece.fault)} ({path})")]
                return
            lines = [line.rstrip(b"\r") for line in piece]
            if first and lines:
                lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
                first = False
            lines = [line for line in lines if line.strip()]
            if headed and lines:
                header = lines.pop(0)
                order, fault = _order(header, mapping)
                headed = False
                if fault:
                    poison, alone = f"{fault} ({path})", [Letter(path, _shown(header), f"{fault} ({path})")]
            if lines and poison:
                alone = []
                yield [Letter(path, _shown(line), poison) for line in lines]
            elif lines:
                yield _decoded(path, lines, mapping, order)
        if alone:
            yield alone


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
    names = [name.strip() for name in _split(text, mapping) or []]
    if tuple(names) == mapping.columns:
        return None, None
    for column in mapping.used_columns:
        if names.count(column) != 1 and not (column in mapping.optional and column not in names):
            found = f"{names.count(column)} times {column!r} in {', '.join(names)[:200]!r}"
            return None, f"header: found {found}, expected once"
    # The width of the file stands last, to tell a line that is too short or too long.
    places = [names.index(column) if column in names else -1 for column in mapping.columns]
    return [*places, len(names)], None


def _reordered(path: str, text: str, mapping: Mapping, order: list[int]) -> Letter:
    """A line with its columns in the mapping's order."""
    *places, width = order
    fields = _split(text, mapping)
    if fields is None or len(fields) != width:
        return Letter(path, text[:LETTER_BYTES_MAX], f"record is not a line of {width} fields")
    line = io.StringIO()
    csv.writer(line, lineterminator="", **_dialect(mapping)).writerow(
        [fields[place] if place >= 0 else "" for place in places]
    )
    return Letter(path, line.getvalue())


def _split(text: str, mapping: Mapping) -> list[str] | None:
    try:
        return next(csv.reader([text], **_dialect(mapping)), [])
    except csv.Error:  # a carriage return inside, a field of more than 128 KB
        return None


def _dialect(mapping: Mapping) -> dict[str, Any]:
    return {"delimiter": mapping.delimiter, "quotechar": mapping.quote, "strict": False}


def _parquet_rows(path: str, lost: list[int]) -> Iterator[list[Letter]]:
    """The rows of a Parquet file as JSON texts; `lost` is kept at the number of rows that are still to come."""
    with open_path(path) as stream, pq.ParquetFile(stream) as file:
        lost[0] = _rows_believed(file, stream)
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
            lost[0] -= len(batch)


def _metar_rows(path: str) -> Iterator[list[Letter]]:
    """The METAR reports of a text as JSON texts."""
    faults: list[Letter] = []

    def lines(stream: Any) -> Iterator[str]:
        for piece in lines_of(decompressed(stream)):
            if isinstance(piece, Oversized):
                reason = f"record of {piece.length} bytes, expected at most {RAW_BYTES_MAX}"
                faults.append(Letter(path, _shown(piece.head), reason))
            elif isinstance(piece, BrokenEnd):
                reason = f"file breaks off: {_said(piece.fault)} ({path})"
                faults.append(Letter(path, _shown(piece.rest), reason))
            else:
                yield from (line.decode("latin-1") for line in piece)

    with open_path(path) as stream:
        rows: list[Letter] = []
        for report, about, fault in reports_of(lines(stream), about_of(path)):
            try:
                row = Letter(path, report, fault) if fault else Letter(path, record_of(report, about))
            except BulletinError as error:
                row = Letter(path, report[:LETTER_BYTES_MAX], str(error))
            rows.append(row)
            if len(rows) >= REPORTS_TOGETHER:
                yield rows
                rows = []
        yield [*rows, *faults]


def _bufr_rows(path: str, mapping: Mapping) -> Iterator[list[Letter]]:
    """The observations of a BUFR file as JSON texts."""
    with open_path(path) as stream:
        for some in observations_of(b"".join(decompressed(stream)), mapping.used_columns):
            yield [Letter(path, text, fault) for text, fault in some]


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
    return pa.record_batch([pa.array(column, pa.string()) for column in columns], schema=RECORD_ARROW)


def _shown(head: bytes) -> str:
    return head[:LETTER_BYTES_MAX].decode("utf-8", "replace")


def _said(fault: Exception) -> str:
    return f"{type(fault).__name__}: {str(fault)[:300]}"
