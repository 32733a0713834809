"""Files of landed messages: how they get their names, become durable, are read and expire.

A landing file is text, one JSON object a line: ``{"topic", "payload", "encoding", "received_at"}``. The
payload is the message's own text, or base64 of its bytes where they are no UTF-8 (``"encoding": "base64"``).
A file is written under a hidden name and renamed when it is safe on disk: whoever lists the directory, Spark
above all, sees whole files only. Names begin with the time and sort by it; they never repeat.
"""

import base64
import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sensorgrid.model.errors import SensorGridError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUFFIX = ".jsonl"
_PARTIAL = ".part"
_NO_ENVELOPE = "landed line: found no envelope, expected JSON with topic and payload"
_NO_TEXT = "payload: found bytes that are not UTF-8, kept as base64, expected text"
_STAMP = "%Y%m%dT%H%M%S.%fZ"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


class LandingFileError(SensorGridError, ValueError):
    """A landing directory that cannot be used as asked."""


def envelope(topic: str | None, payload: bytes, received_s: float) -> bytes:
    """One message as a line of a landing file."""
    try:
        text, encoding = payload.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(payload).decode(), "base64"
    received = (_EPOCH + timedelta(seconds=received_s)).isoformat(timespec="milliseconds")
    fields = {"topic": topic, "payload": text, "encoding": encoding, "received_at": received}
    # JSON escapes line ends inside texts, so a line stays a line.
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class LandingWriter:
    """Writes files into a landing directory for one client; made once per process."""

    def __init__(self, directory: Path, client_id: str) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._client = hashlib.sha256(client_id.encode()).hexdigest()[:8]
        self._process = secrets.token_hex(4)
        stamps = [_stamp_of(path.name) for path in directory.glob(f"*{SUFFIX}")]
        # A clock that was set back must not sort new files before old ones.
        self._last = max((stamp for stamp in stamps if stamp is not None), default=_EPOCH)

    @property
    def lock_path(self) -> Path:
        """A file to lock, so that no second process of the same client clears this one's unfinished files."""
        return self._directory / f".{self._client}.lock"

    def clear(self) -> None:
        """Remove unfinished files of this client: nobody was told that their messages are safe."""
        for leftover in self._directory.glob(f".*-{self._client}-*{_PARTIAL}"):
            leftover.unlink(missing_ok=True)

    def write(self, lines: Iterable[bytes], now_s: float) -> Path:
        """Lines become a file of which every byte, and the name itself, is on disk when this returns."""
        self._last = max(_EPOCH + timedelta(seconds=now_s), self._last + _TICK)
        name = f"{self._last.strftime(_STAMP)}-{self._client}-{self._process}{SUFFIX}"
        partial, final = self._directory / f".{name}{_PARTIAL}", self._directory / name
        try:
            with partial.open("xb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            os.rename(partial, final)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        self._sync_directory()
        return final

    def _sync_directory(self) -> None:
        handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def landing_files(directory: Path) -> list[Path]:
    """The finished files, oldest first."""
    return sorted(path for path in directory.glob(f"*{SUFFIX}") if _stamp_of(path.name) is not None)


def rows_of_lines(lines: Iterable[bytes]) -> list[tuple[str | None, str | None, str | None]]:
    """Lines of a landing file as topic, text and reason: what `read_landing` makes of a few."""
    found: list[tuple[str | None, str | None, str | None]] = []
    for line in lines:
        try:
            fields = json.loads(line)
            topic, text, encoding = fields.get("topic"), fields["payload"], fields.get("encoding")
        except (ValueError, KeyError, AttributeError):
            found.append((None, line.decode("utf-8", "replace"), _NO_ENVELOPE))
            continue
        found.append((topic, text, _NO_TEXT if encoding == "base64" else None))
    return found


def expire_landing(
    directory: Path,
    older_than_s: float,
    *,
    processed_before_s: float | None = None,
    now_s: float | None = None,
) -> int:
    """Delete files that were landed longer ago than `older_than_s`; gives their number.

    With `processed_before_s` (seconds since 1970) only those from before that time: what a reader has not
    finished stays, however old. The time is the one in the name; copies and backups may change a file's own.
    """
    if not older_than_s >= 0:
        raise LandingFileError(f"older_than_s: found {older_than_s}, expected a number of seconds >= 0")
    border_s = (time.time() if now_s is None else now_s) - older_than_s
    if processed_before_s is not None:
        border_s = min(border_s, processed_before_s)
    border = _EPOCH + timedelta(seconds=border_s)
    gone = 0
    for path in landing_files(directory):
        stamp = _stamp_of(path.name)
        if stamp is None or stamp >= border:
            break
        path.unlink(missing_ok=True)
        gone += 1
    return gone


def read_landing(
    session: "SparkSession",
    directory: str | Path,
    *,
    source: str,
    streaming: bool,
    max_files_per_trigger: int = 1000,
    max_file_age: str = "30d",
) -> "DataFrame":
    """Landed messages as `RECORD` rows: topic and text of each, or a reason why there is none.

    Called once per query, on the driver; also through Spark Connect. Spark's own file source does the
    reading: its checkpoint knows which files are done. It forgets files older than `max_file_age` (counted
    back from the newest one) and skips those it has never seen, so a query must not be down for longer than
    that.
    """
    from pyspark.sql import functions as f

    from sensorgrid.pipeline.schema import LETTER_BYTES_MAX, RAW_BYTES_MAX, RECORD

    reader = session.readStream if streaming else session.read
    reader = reader.option("pathGlobFilter", f"*{SUFFIX}").option("lineSep", "\n")
    if streaming:
        reader = reader.option("maxFilesPerTrigger", max_files_per_trigger).option("maxFileAge", max_file_age)
    lines = reader.text(str(directory)).select("value", f.col("_metadata.file_path").alias("file"))
    fields = f.from_json("value", "topic string, payload string, encoding string")
    parts = lines.select("value", "file", fields.alias("e"))
    readable = f.col("e.payload").isNotNull()
    text = f.when(readable, f.col("e.payload")).otherwise(f.col("value"))
    size = f.octet_length(text)
    reason = (
        f.when(~readable, f.lit(_NO_ENVELOPE))
        .when(
            f.col("e.encoding") == "base64",
            f.lit(_NO_TEXT),
        )
        .when(
            size > RAW_BYTES_MAX,
            f.concat(f.lit("payload: found "), size, f.lit(f" bytes, expected at most {RAW_BYTES_MAX}")),
        )
    )
    kept = f.when(size > RAW_BYTES_MAX, f.substring(text, 1, LETTER_BYTES_MAX)).otherwise(text)
    rows = parts.select(
        f.lit(source).alias("source"),
        f.coalesce(f.when(readable, f.col("e.topic")), f.col("file")).alias("topic"),
        kept.alias("text"),
        reason.alias("reason"),
    )
    return rows.to(RECORD)


def _stamp_of(name: str) -> datetime | None:
    """The time in a file's name; None if it is not one of ours."""
    try:
        return datetime.strptime(name.split("-", 1)[0], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None
