"""NATS JetStream as a Spark source: `spark.readStream.format("sensorgrid_nats")`, or `spark.read`.

An offset is a sequence number of the stream; a micro-batch is the messages after one number up to another.
The server keeps no consumer for the query: each task makes its own for its range and leaves it to die, so
Spark's checkpoint alone says what has been read, and a batch that is replayed is the same as long as the
stream still holds its messages. Those that it does not hold any more are not passed over in silence: a
`RECORD` with a reason stands for each run of them. Rows are `RECORD`, with the subject as topic.

Options (texts, as all options of Spark are):

=============== ====================================================================================
servers          URLs with commas between (nats://localhost:4222); no user or password in them
stream           the stream's name; must exist, with retention by limits
subject          filter, such as ``sensors.*.temperature`` or ``sensors.>`` (everything)
source           what `RECORD.source` says (nats)
start            ``earliest`` (default), ``latest``, or the first sequence number; a checkpoint goes first
max_messages     messages of a micro-batch, by sequence numbers (100000); bounds the memory of the tasks
partitions       parallel readers (2)
timeout          seconds to wait for an answer (10)
credentials_env  the environment variable that holds the path of a .creds file
user_env, password_env, token_env   the environment variables that hold these secrets
tls_ca, tls_cert, tls_key           paths of certificates and key; tls_ca (or a tls:// URL) switches TLS on
=============== ====================================================================================

The variables and files must be there on the driver and on every executor. Spark gives a Python worker ten
seconds to start and call back: under load the start of a query can fail over that, and starting it again is
safe.
"""

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar
from urllib.parse import urlsplit

import nats
import nats.errors
import nats.js.errors
import pyarrow as pa
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy, StreamInfo
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.schema import LETTER_BYTES_MAX, RAW_BYTES_MAX, RECORD, RECORD_ARROW

FORMAT = "sensorgrid_nats"
_FETCH = 500
_RETRY_S = 0.2
_PART_LEAST = 1000  # messages that are worth a task of their own
_BATCH_ROWS = 10_000
_Row = tuple[str, str | None, str | None, str | None]
_T = TypeVar("_T")


class NatsSourceError(SensorGridError, RuntimeError):
    """A server, a stream or an option that cannot be used."""


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """The source's options, read and checked; pickled to the workers, so it holds no secret."""

    stream: str
    """the stream's name"""
    servers: tuple[str, ...] = ("nats://localhost:4222",)
    """URLs of the servers"""
    subject: str = ""
    """filter on subjects; empty for all"""
    source: str = "nats"
    """what `RECORD.source` says"""
    start: str = "earliest"
    """earliest, latest, or a sequence number"""
    max_messages: int = 100_000
    """messages of a micro-batch, at most"""
    partitions: int = 2
    """parallel readers"""
    timeout_s: float = 10.0
    """how long to wait for an answer"""
    credentials_env: str | None = None
    """the variable that holds the path of a .creds file"""
    user_env: str | None = None
    """the variable that holds the user's name"""
    password_env: str | None = None
    """the variable that holds the password"""
    token_env: str | None = None
    """the variable that holds a token"""
    tls_ca: str | None = None
    """file of certificates to trust"""
    tls_cert: str | None = None
    """file of our own certificate"""
    tls_key: str | None = None
    """file of its key"""

    def __post_init__(self) -> None:
        if not self.stream or set(self.stream) & set(" .*>/\\\t\r\n"):
            raise NatsSourceError(f"stream: found {self.stream!r}, expected a stream's name")
        for url in self.servers:
            parts = urlsplit(url if "://" in url else f"nats://{url}")
            if parts.username or parts.password:
                where = f"{parts.scheme}://…@{parts.hostname}"
                raise NatsSourceError(
                    f"servers: found a user or password in {where}, expected them in environment variables"
                    " that user_env, password_env or token_env name"
                )
        if self.start not in ("earliest", "latest") and not (self.start.isdigit() and int(self.start) > 0):
            raise NatsSourceError(
                f"start: found {self.start!r}, expected 'earliest', 'latest' or a sequence number"
            )
        for name in ("max_messages", "partitions", "timeout_s"):
            if not getattr(self, name) > 0:
                raise NatsSourceError(f"{name}: found {getattr(self, name)}, expected a number > 0")

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "NatsSettings":
        """Read the options of a source; unknown ones are left to others (Spark adds some of its own)."""
        given: dict[str, Any] = {key.lower(): text for key, text in options.items()}
        if "timeout" in given:
            given["timeout_s"] = given.pop("timeout")
        if "servers" in given:
            given["servers"] = tuple(url.strip() for url in given["servers"].split(",") if url.strip())
        for name, kind in (("max_messages", int), ("partitions", int), ("timeout_s", float)):
            try:
                given[name] = kind(given.get(name, getattr(_DEFAULTS, name)))
            except ValueError:
                raise NatsSourceError(f"{name}: found {given[name]!r}, expected a number > 0") from None
        known = {name: given[name] for name in cls.__slots__ if name in given}
        return cls(**{"stream": ""} | known)

    def ranges(self, after: int, last: int) -> list["Range"]:
        """Cut the messages after one sequence number up to another into the parts of parallel readers."""
        if last <= after:
            return []
        parts = max(1, min(self.partitions, (last - after) // _PART_LEAST))
        borders = [after + (last - after) * i // parts for i in range(parts + 1)]
        return [Range(a, b) for a, b in pairwise(borders)]


_DEFAULTS = NatsSettings("defaults")


class Range(InputPartition):
    """What one task reads: the messages after one sequence number up to another. Pickled to a worker."""

    def __init__(self, after: int, last: int) -> None:
        self.after, self.last = after, last


class NatsDataSource(DataSource):
    """The source that `spark.dataSource.register` takes. Spark makes one per query, on the driver."""

    @classmethod
    def name(cls) -> str:
        """What `format` is called with."""
        return FORMAT

    def schema(self) -> StructType:
        """`RECORD`, whatever the options."""
        return RECORD

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`: what the stream holds now. Called once per query, on the driver."""
        return NatsReader(NatsSettings.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`; called on the driver, and once more in each worker."""
        return NatsStreamReader(NatsSettings.of(self.options))


class NatsReader(DataSourceReader):
    """Reads what the stream holds. `partitions` runs once, on the driver; `read` in the workers."""

    def __init__(self, settings: NatsSettings) -> None:
        self._settings = settings

    def partitions(self) -> list[Range]:
        """One range per parallel reader."""
        info = _run(_stream_info(self._settings))
        return self._settings.ranges(_first_offset(self._settings, info), info.state.last_seq)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        assert isinstance(partition, Range)
        return read_range(self._settings, partition.after, partition.last)


class NatsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are sequence numbers, with the stream's date of birth: a new stream of the name is noticed.

    Offsets are planned in one Python process on the driver, for each micro-batch; `read` runs in the workers,
    on a copy. The only state is where a query with `availableNow` has to stop, for the driver alone.
    """

    def __init__(self, settings: NatsSettings) -> None:
        self._settings = settings
        self._stop_at: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The beginning, called for a query without a checkpoint."""
        info = _run(_stream_info(self._settings))
        after = _first_offset(self._settings, info)
        return {"stream": self._settings.stream, "created": str(info.created), "sequence": after}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The bound that the option `max_messages` asks for."""
        return ReadMaxRows(self._settings.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the end: what comes from here on belongs to the next run."""
        self._stop_at = _run(_stream_info(self._settings)).state.last_seq

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The stream's last message, or the end of a full batch."""
        info, after = _run(_stream_info(self._settings)), start["sequence"]
        if (start["stream"], start["created"]) != (self._settings.stream, str(info.created)):
            raise NatsSourceError(
                f"stream {self._settings.stream!r}: found one made at {info.created}, expected"
                f" {start['stream']!r} made at {start['created']}, which the checkpoint belongs to"
            )
        last: int = info.state.last_seq if self._stop_at is None else self._stop_at
        if isinstance(limit, ReadMaxRows):
            last = min(last, after + limit.max_rows)
        return start | {"sequence": max(last, after)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        """One range per parallel reader."""
        return self._settings.ranges(start["sequence"], end["sequence"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        assert isinstance(partition, Range)
        return read_range(self._settings, partition.after, partition.last)


def read_range(settings: NatsSettings, after: int, last: int) -> Iterator[pa.RecordBatch]:
    """The messages after one sequence number up to another, in order, as `RECORD` rows in Arrow batches.

    Called once per task, in a worker. A range is read to its end before the first batch is handed on:
    `max_messages` bounds what that takes.
    """
    rows = _run(_read(settings, after, last))
    for begin in range(0, len(rows), _BATCH_ROWS):
        columns = zip(*rows[begin : begin + _BATCH_ROWS], strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in columns], schema=RECORD_ARROW)


def first_messages(settings: NatsSettings, number: int) -> pa.Table:
    """The first messages of a stream, a few at most, as `RECORD` rows."""
    info = _run(_stream_info(settings))
    after = _first_offset(settings, info)
    last = min(int(info.state.last_seq), after + number)
    batches = read_range(settings, after, last) if last > after else ()
    return pa.Table.from_batches(batches, schema=RECORD_ARROW)


async def _read(settings: NatsSettings, after: int, last: int) -> list[_Row]:
    found: dict[int, _Row] = {}
    async with _connection(settings) as client:
        stream = client.jetstream(timeout=settings.timeout_s)
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=60.0,
            mem_storage=True,
        )
        filter_ = settings.subject or ">"
        puller = await stream.pull_subscribe(filter_, stream=settings.stream, config=config)
        pending = (await puller.consumer_info()).num_pending or 0
        seen = after
        while pending and seen < last:
            try:
                messages = await puller.fetch(min(_FETCH, pending), timeout=settings.timeout_s)
            except nats.errors.TimeoutError:
                break  # what was announced may have expired meanwhile; the check below decides
            for message in messages:
                seen, pending = message.metadata.sequence.stream, message.metadata.num_pending
                if seen <= last:
                    found[seen] = _row(settings, message.subject, message.data)
        await puller.unsubscribe()
        if seen < last:
            await _check_nothing_follows(settings, client, seen + 1, last)
        gone = await _gone(settings, client, after, last, found)
    for first, final in gone:
        which = f"message {first} is" if first == final else f"messages {first} to {final} are"
        reason = f"{which} gone from the stream (retention)"
        found[first] = (settings.source, None, None, reason)
    return [found[sequence] for sequence in sorted(found)]


async def _check_nothing_follows(settings: NatsSettings, client: Client, first: int, last: int) -> None:
    """Ask the stream's leader: a consumer may have been made on a server that lags behind."""
    manager = client.jsm(timeout=settings.timeout_s)
    try:
        message = await manager.get_msg(settings.stream, first, settings.subject or ">", next=True)
    except nats.js.errors.NotFoundError:
        return
    if message.seq is not None and message.seq <= last:
        raise NatsSourceError(
            f"stream {settings.stream!r}: found nothing before message {message.seq}, expected all up to"
            f" {last}; a server lags behind, reading again will help"
        )


async def _gone(
    settings: NatsSettings, client: Client, after: int, last: int, found: Mapping[int, _Row]
) -> list[tuple[int, int]]:
    """Runs of sequence numbers whose messages the stream does not hold any more.

    With a filter a number that was not delivered may just have another subject, so the stream is asked which
    ones it has deleted; what those were about nobody knows, and all count.
    """
    if len(found) == last - after:
        return []
    if not settings.subject:
        lost = [number for number in range(after + 1, last + 1) if number not in found]
    else:
        request = client.request(
            f"$JS.API.STREAM.INFO.{settings.stream}", b'{"deleted_details": true}', timeout=settings.timeout_s
        )
        state = json.loads((await request).data)["state"]
        early = range(after + 1, min(state["first_seq"], last + 1))
        inside = (number for number in state.get("deleted") or () if after < number <= last)
        lost = sorted({*early, *inside} - found.keys())
    runs: list[tuple[int, int]] = []
    for number in lost:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _row(settings: NatsSettings, subject: str, data: bytes) -> _Row:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = base64.b64encode(data[:LETTER_BYTES_MAX]).decode()
        reason = "payload: found bytes that are not UTF-8, kept as base64, expected text"
        return settings.source, subject, text, reason
    if len(data) > RAW_BYTES_MAX:
        reason = f"payload: found {len(data)} bytes, expected at most {RAW_BYTES_MAX}"
        return settings.source, subject, text[:LETTER_BYTES_MAX], reason
    return settings.source, subject, text, None


def _first_offset(settings: NatsSettings, info: StreamInfo) -> int:
    """The sequence number after which a new query reads."""
    if settings.start == "latest":
        return int(info.state.last_seq)
    if settings.start == "earliest":
        return max(int(info.state.first_seq), 1) - 1
    return int(settings.start) - 1


async def _stream_info(settings: NatsSettings) -> StreamInfo:
    async with _connection(settings) as client:
        manager = client.jsm(timeout=settings.timeout_s)
        try:
            info = await manager.stream_info(settings.stream)
        except nats.js.errors.NotFoundError:
            names = sorted(str(found.config.name) for found in await manager.streams_info())
            raise NatsSourceError(
                f"stream {settings.stream!r}: found {', '.join(names) or 'no stream at all'} on the server,"
                " expected it to exist"
            ) from None
        except (nats.js.errors.ServiceUnavailableError, nats.errors.NoRespondersError):
            raise NatsSourceError(
                f"servers {', '.join(settings.servers)}: found no JetStream, expected it switched on"
            ) from None
    if info.config.retention not in (None, RetentionPolicy.LIMITS):
        raise NatsSourceError(
            f"stream {settings.stream!r}: found retention {RetentionPolicy(info.config.retention).value!r},"
            " expected 'limits': others delete a message that has been read once"
        )
    return info


@asynccontextmanager
async def _connection(settings: NatsSettings) -> AsyncIterator[Client]:
    async def silent(_: Exception) -> None:
        """The exception that ends the attempt says it all; NATS would log it as well."""

    secrets = {
        "user_credentials": _secret(settings.credentials_env),
        "user": _secret(settings.user_env),
        "password": _secret(settings.password_env),
        "token": _secret(settings.token_env),
        "tls": _tls(settings),
    }
    options: dict[str, Any] = {name: value for name, value in secrets.items() if value is not None} | {
        "connect_timeout": max(1, round(settings.timeout_s)),
        "allow_reconnect": False,
        # This counts for the first connection as well, whatever its name says.
        "max_reconnect_attempts": 2,
        "reconnect_time_wait": _RETRY_S,
        "error_cb": silent,
    }
    client, where = Client(), ", ".join(settings.servers)
    try:
        try:
            await client.connect(list(settings.servers), **options)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            cause = client.last_error or error
            found = str(cause) or type(cause).__name__
            raise NatsSourceError(
                f"servers {where}: found {found!r}, expected a NATS server that lets us in"
            ) from error
        yield client
    except nats.errors.Error as error:
        raise NatsSourceError(
            f"stream {settings.stream!r} on {where}: found {str(error)!r}, expected an answer"
        ) from error
    finally:
        await client.close()


def _tls(settings: NatsSettings) -> ssl.SSLContext | None:
    if settings.tls_ca is None and settings.tls_cert is None:
        return None
    context = ssl.create_default_context(cafile=settings.tls_ca)
    if settings.tls_cert is not None:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    return context


def _secret(variable: str | None) -> str | None:
    if variable is None:
        return None
    if variable not in os.environ:
        raise NatsSourceError(f"environment variable {variable}: found nothing, expected a secret for NATS")
    return os.environ[variable]


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run asynchronous work in a loop of its own: Spark calls us from plain threads of plain processes."""
    return asyncio.run(work)
