"""The client for programs without an event loop. It wraps the asynchronous client, which runs in its own thread.

Nothing is decided here: every call is handed to the loop and waited for. Ctrl-C and timeouts end the waiting, not the
connection. Timeouts expire inside the loop, so no tick is lost between being taken and being handed over.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import queue
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from sensorgrid.client.connection import BUFFER, After, AsyncClient, Urls, aconnect
from sensorgrid.client.errors import ClientError, ConnectionLost, TimedOut
from sensorgrid.client.explanation import Explanation
from sensorgrid.client.exports import joined, table_of
from sensorgrid.client.fields import Field
from sensorgrid.client.regridding import Method
from sensorgrid.client.results import AsyncResults
from sensorgrid.client.sensors import SensorList
from sensorgrid.client.streams import AsyncStream
from sensorgrid.client.times import AsyncTimeField, Moment
from sensorgrid.links.link import ANSWER_S
from sensorgrid.model.grid import Bbox, Grid
from sensorgrid.model.query import Query
from sensorgrid.operators.areas import Area
from sensorgrid.operators.plan import Operator

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

T = TypeVar("T")
STOP_S = 10.0
"""how long closing may take"""


def connect(
    url: Urls | None = None,
    *,
    roams: bool = True,
    tls: ssl.SSLContext | str | os.PathLike[str] | None = None,
    timeout_s: float = ANSWER_S,
) -> "Client":
    """Connect to a network of brokers; see `aconnect` for the parameters.

    Examples
    --------
    ::

        with sensorgrid.connect("ws://localhost:7400") as grid:
            for field in grid.stream(sensorgrid.Query("air_temperature", bbox=(-10, 35, 30, 60))):
                print(field.time.item(), field.mean().item())
    """
    thread = _LoopThread()
    try:
        client = thread.run(aconnect(url, roams=roams, tls=tls, timeout_s=timeout_s))
    except BaseException:
        thread.stop()
        raise
    return Client(thread, client)


class Client:
    """A connection; made by `connect`. May be used from several threads."""

    def __init__(self, thread: "_LoopThread", client: AsyncClient) -> None:
        self._thread = thread
        self._client = client

    @property
    def grid(self) -> Grid:
        """What the network carries."""
        return self._client.grid

    @property
    def attributes(self) -> tuple[str, ...]:
        """The same, by CF standard name."""
        return self._client.attributes

    @property
    def url(self) -> str:
        """Of the broker that answered."""
        return self._client.url

    @property
    def closed(self) -> bool:
        """Whether it can be used no longer."""
        return self._client.closed or self._thread.stopped

    @overload
    def stream(
        self,
        query: Query,
        *,
        after: After = None,
        resume: str | os.PathLike[str] | None = None,
        errors: bool = True,
        revisions: bool = False,
        onto: Any = None,
        method: Method = "linear",
        buffer: int = BUFFER,
    ) -> "Stream": ...
    @overload
    def stream(self, query: Operator, *, after: After = None, revisions: bool = False) -> "Results": ...
    def stream(
        self,
        query: Query | Operator,
        *,
        after: After = None,
        resume: str | os.PathLike[str] | None = None,
        errors: bool = True,
        revisions: bool = False,
        onto: Any = None,
        method: Method = "linear",
        buffer: int = BUFFER,
    ) -> "Stream | Results":
        """The fields of a query, or the results of an operator, one per tick; see `AsyncClient.stream`."""
        if isinstance(query, Operator):
            return self.watch(query, after=after, revisions=revisions)
        stream = self._thread.call(
            lambda: self._client.stream(
                query, after=after, resume=resume, errors=errors, revisions=revisions, onto=onto, method=method,
                buffer=buffer,
            )
        )  # fmt: skip
        return Stream(self._thread, stream)

    def watch(
        self,
        operator: Operator | str,
        *,
        after: After = None,
        areas: Mapping[str, Area] | None = None,
        revisions: bool = False,
        inactive: bool = False,
    ) -> "Results":
        """The results of an operator, one per tick; see `AsyncClient.watch`."""
        results = self._thread.call(
            lambda: self._client.watch(
                operator, after=after, areas=areas, revisions=revisions, inactive=inactive
            )
        )
        return Results(self._thread, results)

    def latest(
        self,
        query: Query,
        *,
        errors: bool = True,
        timeout_s: float = 30.0,
        onto: Any = None,
        method: Method = "linear",
    ) -> Field:
        """The newest field of a query that the network has; see `AsyncClient.latest`."""
        return self._thread.run(
            self._client.latest(query, errors=errors, timeout_s=timeout_s, onto=onto, method=method)
        )

    def field(
        self, query: Query, *, errors: bool = True, onto: Any = None, method: Method = "linear"
    ) -> "TimeField":
        """The fields of a query by their time; see `AsyncClient.field`."""
        made = self._thread.call(lambda: self._client.field(query, errors=errors, onto=onto, method=method))
        return TimeField(self._thread, made)

    def explain(self, query: Query, *, errors: bool = True) -> Explanation:
        """What a query will cost before it runs."""
        return self._thread.call(lambda: self._client.explain(query, errors=errors))

    def sensors(self, bbox: Bbox | None = None, **options: Any) -> SensorList:
        """The sensors behind the grids; see `AsyncClient.sensors`."""
        return self._thread.run(self._client.sensors(bbox, **options))

    def export(
        self,
        query: Query,
        path: str | os.PathLike[str],
        *,
        on_field: "Callable[[Field, Stream], object] | None" = None,
        on_stream: "Callable[[Stream], object] | None" = None,
        **options: Any,
    ) -> Path:
        """Write the fields of a query to a file, by the end of its name; see `AsyncClient.export`.

        `on_field` and `on_stream` are called in the thread that called this, so they may use the connection.
        """
        errands = _Errands()

        async def begun(stream: AsyncStream) -> None:
            if on_stream is not None:
                await errands.ask(lambda: on_stream(Stream(self._thread, stream)))

        async def written(field: Field, stream: AsyncStream) -> None:
            if on_field is not None:
                await errands.ask(lambda: on_field(field, Stream(self._thread, stream)))

        work = self._client.export(query, path, on_field=written, on_stream=begun, **options)
        return self._thread.run(work, errands=errands)

    def to_netcdf(self, query: Query, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write the fields of a query to a NetCDF file with an unlimited time; see `AsyncClient.export`."""
        return self.export(query, path, kind="netcdf", **options)

    def to_zarr(self, query: Query, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write the fields of a query to a Zarr store, a chunk per tick; see `AsyncClient.export`."""
        return self.export(query, path, kind="zarr", **options)

    def to_parquet(self, query: Query, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write the fields of a query to a Parquet file, a row per point and tick; see `AsyncClient.export`."""
        return self.export(query, path, kind="parquet", **options)

    def to_pandas(self, query: Query, ticks: int | None = None, **options: Any) -> "pd.DataFrame":
        """The next `ticks` fields of a query (all, if it has an end) as a table: a row per point and tick.

        Options are those of `stream`.
        """
        with self.stream(query, **options) as stream:
            return stream.to_pandas(ticks)

    def close(self) -> None:
        """End all streams and close the connection."""
        if not self._thread.stopped:
            try:
                self._thread.run(asyncio.wait_for(self._client.aclose(), STOP_S))
            finally:
                self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._client).replace("AsyncClient", "Client")


class Stream:
    """Fields of one query, tick by tick; made by `Client.stream`."""

    def __init__(self, thread: "_LoopThread", stream: AsyncStream) -> None:
        self._thread = thread
        self._stream = stream

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Field:
        """The next field; asking for it says that the one before has been processed."""
        field = self.next()
        if field is None:
            raise StopIteration
        return field

    def next(self, timeout_s: float | None = None) -> Field | None:
        """The next field, None after the last; `TimedOut` if it does not come in time, and can be asked again."""
        return self._thread.run(_next_or_none(self._stream, timeout_s), self._put_back)

    def _put_back(self, field: Field | None) -> None:
        if field is not None:
            self._stream.put_back()

    def commit(self) -> None:
        """Say that the field given last has been processed, without asking for another one yet."""
        self._thread.run(self._stream.commit())

    def close(self) -> None:
        """End the stream; the network forgets the query."""
        if not self._thread.stopped:
            self._thread.call(self._stream.close)

    @property
    def query(self) -> Query:
        """As it was asked."""
        return self._stream.query

    @property
    def status(self) -> str:
        """pending, running, suspended, paused, refused or ended."""
        return self._stream.status

    @property
    def reason(self) -> str:
        """Why it is suspended or was refused."""
        return self._stream.reason

    @property
    def tick(self) -> int | None:
        """Of the field that was given last."""
        return self._stream.tick

    @property
    def missing_points(self) -> int:
        """Points of all fields so far that the network had no value for."""
        return self._stream.missing_points

    @property
    def doubled_points(self) -> int:
        """Points that came twice and were left out the second time; a fault of the network."""
        return self._stream.doubled_points

    @property
    def waiting(self) -> int:
        """Ticks that are here and have not been taken."""
        return self._stream.waiting

    @property
    def pauses(self) -> int:
        """How often the consumer was so slow that the buffer filled up."""
        return self._stream.pauses

    def take(self, ticks: int | None = None) -> list[Field]:
        """The next `ticks` fields; all, of a query with an end."""
        return self._thread.run(self._stream.take(ticks))

    def to_pandas(self, ticks: int | None = None) -> "pd.DataFrame":
        """The same as a tidy table: a row per point and tick."""
        return table_of(self.take(ticks))

    def to_xarray(self, ticks: int | None = None) -> Field:
        """The same as one field, along time."""
        return joined(self.take(ticks))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Results:
    """Results of one operator, tick by tick; made by `Client.watch`."""

    def __init__(self, thread: "_LoopThread", results: AsyncResults) -> None:
        self._thread = thread
        self._results = results

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> "xr.DataArray":
        """The next result."""
        found = self._thread.run(_next_or_none(self._results, None))
        if found is None:
            raise StopIteration
        return found

    def next(self, timeout_s: float | None = None) -> "xr.DataArray | None":
        """The next result, None after the last; `TimedOut` if it does not come in time, and can be asked again."""
        return self._thread.run(_next_or_none(self._results, timeout_s))

    def take(self, ticks: int) -> "list[xr.DataArray]":
        """The next results."""
        return self._thread.run(self._results.take(ticks))

    @property
    def status(self) -> str:
        """pending, running, refused or ended."""
        return self._results.status

    @property
    def dropped(self) -> int:
        """Results that were dropped because too many waited."""
        return self._results.dropped

    def close(self) -> None:
        """End it; the network forgets the operator."""
        if not self._thread.stopped:
            self._thread.call(self._results.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TimeField:
    """The fields of a query by time; made by `Client.field`."""

    def __init__(self, thread: "_LoopThread", field: AsyncTimeField) -> None:
        self._thread = thread
        self._field = field

    def at(self, time: Moment, timeout_s: float | None = None) -> Field:
        """The field that is valid at a time; blocks until it is there. See `AsyncTimeField.at`."""
        return self._thread.run(self._field.at(time, timeout_s))

    def close(self) -> None:
        """End it."""
        if not self._thread.stopped:
            self._thread.run(self._field.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@overload
async def _next_or_none(stream: AsyncStream, timeout_s: float | None) -> Field | None: ...
@overload
async def _next_or_none(stream: AsyncResults, timeout_s: float | None) -> "xr.DataArray | None": ...
async def _next_or_none(stream: AsyncStream | AsyncResults, timeout_s: float | None) -> Field | None:
    try:
        async with asyncio.timeout(timeout_s):
            return await stream.__anext__()
    except StopAsyncIteration:  # a future cannot carry it
        return None
    except TimeoutError:
        raise TimedOut(f"stream: found no tick within {timeout_s:g} s, expected one") from None


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.stopped = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="sensorgrid client", daemon=True)
        self._thread.start()

    def run(
        self,
        work: Coroutine[Any, Any, T],
        undo: Callable[[T], None] | None = None,
        errands: "_Errands | None" = None,
    ) -> T:
        """Do something in the loop and wait for it.

        If the waiting ends early (Ctrl-C), so does the work; if it was done by then, `undo` is called in the loop with
        the result that the caller will not get. Meanwhile, `errands` of the work are done here.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise ClientError("client: found a call from the thread of its own loop, expected another thread")
        if self.stopped:
            work.close()
            raise ConnectionLost("connection: found it closed here, expected it to be open")
        started: list[asyncio.Task[T]] = []
        future = asyncio.run_coroutine_threadsafe(_noted(work, started), self._loop)
        try:
            if errands is not None:
                errands.do_until(future)
            return future.result()
        except concurrent.futures.CancelledError:
            raise ConnectionLost("connection: found it closed here, expected it to be open") from None
        except BaseException as error:
            if not (future.done() and future.exception() is error) and not self.stopped:
                with contextlib.suppress(concurrent.futures.CancelledError):
                    asyncio.run_coroutine_threadsafe(_abandon(started, undo), self._loop).result()
            raise

    def call(self, work: Callable[[], T]) -> T:
        """Call a function in the loop and wait for its result."""

        async def once() -> T:
            return work()

        return self.run(once())

    def stop(self) -> None:
        """End the loop and what still runs in it."""
        if not self.stopped:
            self.stopped = True
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(STOP_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_S)
            self._loop.close()


class _Errands:
    """What work in the loop wants to be done in the thread that waits for it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], object], concurrent.futures.Future[None]] | None]
        self._queue = queue.SimpleQueue()

    async def ask(self, errand: Callable[[], object]) -> None:
        """For the work: have it done."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._queue.put((errand, done))
        await asyncio.wrap_future(done)

    def do_until(self, work: "concurrent.futures.Future[Any]") -> None:
        """For the waiting thread: do what comes, until the work is done."""
        work.add_done_callback(lambda _: self._queue.put(None))
        while (item := self._queue.get()) is not None:
            errand, done = item
            if done.set_running_or_notify_cancel():
                try:
                    errand()
                except Exception as error:
                    done.set_exception(error)
                else:
                    done.set_result(None)


async def _noted(work: Coroutine[Any, Any, T], started: "list[asyncio.Task[T]]") -> T:
    task = asyncio.current_task()
    assert task is not None
    started.append(task)
    return await work


async def _abandon(started: "list[asyncio.Task[T]]", undo: Callable[[T], None] | None) -> None:
    """End work whose caller no longer waits; it began before this, because the loop keeps the order."""
    (task,) = started
    task.cancel()
    await asyncio.wait([task])
    if undo is not None and not task.cancelled() and task.exception() is None:
        undo(task.result())


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()
