"""The asynchronous client: one connection to a network of brokers, many queries.

It greets one broker, learns from it the grid and where the others are, and then drives a `Session` of the overlay, as
a host drives a broker (`sensorgrid.links.driver`). If its broker dies, it goes on with the others, and keeps trying.
Everything here runs in the thread of one event loop; `sensorgrid.client.sync` wraps it for programs without a loop.
"""

import asyncio
import inspect
import os
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self, overload

import msgspec
import numpy as np

from sensorgrid import __version__
from sensorgrid.client.assembly import Assembly, Tick
from sensorgrid.client.errors import ClientError, GridMismatch, NotConnected, TimedOut
from sensorgrid.client.explanation import Explanation, explain
from sensorgrid.client.exports import open_export
from sensorgrid.client.fields import Field, Labels, with_errors
from sensorgrid.client.regridding import Method, Onto, widened
from sensorgrid.client.results import AsyncResults
from sensorgrid.client.resume import ResumeFile
from sensorgrid.client.sensors import LIMIT, TIMEOUT_S, SensorList, ask_owners, question
from sensorgrid.client.sharing import Demand, Sharing
from sensorgrid.client.streams import AsyncStream, lost
from sensorgrid.client.times import AsyncTimeField, moment_of
from sensorgrid.links import wire
from sensorgrid.links.driver import Driver, Peer, greet
from sensorgrid.links.link import ANSWER_S
from sensorgrid.links.packing import can_pack
from sensorgrid.model.errors import QueryError, SensorGridError
from sensorgrid.model.grid import Bbox, Grid
from sensorgrid.model.ids import BROKERS_MAX, PeerId, QueryId
from sensorgrid.model.names import ERROR
from sensorgrid.model.query import Query
from sensorgrid.operators.areas import Area
from sensorgrid.operators.plan import Operator, compile
from sensorgrid.overlay.derived import StreamName
from sensorgrid.overlay.events import Calculated, Cancelled, Effect, Reply, Watched
from sensorgrid.overlay.formulas import ResultFormula
from sensorgrid.overlay.roster import Roster, Summary
from sensorgrid.overlay.session import Session

URL = "ws://localhost:7400"
"""of a network that was started without saying where"""
BUFFER = 16
CELLS_ROAMING_MAX = 4
"""cells of a query that is fetched from the gateways themselves: they send exactly its points, whatever the cell, and
cut a stream in parts where they want to move one"""
RESULTS = 1 << 40
"""numbers of operators begin here, those of queries at 0"""
QUIET_S = 0.3
"""the newest tick is here when nothing has come for so long"""

Tls = ssl.SSLContext | str | os.PathLike[str] | None
Urls = str | Sequence[str]
After = int | datetime | str | np.datetime64 | None


async def aconnect(
    url: Urls | None = None,
    *,
    roams: bool = True,
    tls: Tls = None,
    timeout_s: float = ANSWER_S,
) -> "AsyncClient":
    """Connect to a network of brokers.

    Parameters
    ----------
    url
        Of any broker, such as ``ws://10.0.0.5:7400``, or several of them: the first that answers is taken. Left out,
        the environment variable SENSORGRID_URL, or else ws://localhost:7400.
    roams
        Whether brokers other than the first may be dialled. False for a client behind a firewall: its broker takes
        all streams for it.
    tls
        For ``wss://``: a context, or the file of a certificate authority. Left out, the system's.
    timeout_s
        How long each broker may take to answer.

    Raises
    ------
    NotConnected
        If no broker answers, with the reason for each, or the file of the certificate authority is none.
    """
    urls = urls_of(url)
    context = context_of(tls)
    hello = wire.Hello(
        wire.VERSIONS,
        wire.CLIENT,
        compress=(wire.LZ4,) if can_pack() else (),
        software=f"sensorgrid {__version__}",
    )
    faults = []
    for address in urls:
        try:
            welcome, peer = await greet(address, hello, tls=context, timeout_s=timeout_s)
            try:
                return AsyncClient(address, welcome, peer, hello, context, roams)
            except BaseException:  # it told of a grid that nobody here knows
                peer.close()
                raise
        except (SensorGridError, OSError, ValueError) as error:
            faults.append(f"{address}: {error}")
    raise NotConnected(f"network: found no broker that answers, expected one at {'; '.join(faults)}")


class AsyncClient:
    """A connection; made by `aconnect`.

    Examples
    --------
    ::

        async with await sensorgrid.aconnect("ws://localhost:7400") as grid:
            async for field in grid.stream(sensorgrid.Query("air_temperature", spacing=0.25)):
                print(field.mean().item())
    """

    def __init__(
        self,
        url: str,
        welcome: wire.Welcome,
        peer: Peer,
        hello: wire.Hello,
        tls: ssl.SSLContext | None,
        roams: bool,
    ) -> None:
        self.url = url
        """of the broker that answered"""
        self.carried: Grid = wire.grid_from(welcome.grid)
        """the grid as it travels: with standard errors as attributes"""
        plain = tuple(name for name in self.carried.attributes if not name.endswith(ERROR))
        self.grid: Grid = replace(self.carried, attributes=plain or self.carried.attributes)
        """what the network carries"""
        roster = wire.roster_of(welcome)
        known = roster.terms.settings()
        cells_max = min(known.cells_max, CELLS_ROAMING_MAX) if roams else known.cells_max
        self.settings = replace(known, cells_max=cells_max)
        first = PeerId(welcome.id)
        self._first = first
        self.session = Session(
            PeerId(BROKERS_MAX),
            self.carried,
            self.settings,
            (first, *(number for number in roster.by_id if number != first)),
            Random(),
            roams,
            roster,
        )
        self.sharing = Sharing(self.carried, self.settings.depth, self.settings.cells_max)
        self._streams: dict[Demand, AsyncStream] = {}
        self._results: dict[QueryId, AsyncResults] = {}
        self._watched = 0
        self._pumping = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = ""
        """why it can be used no longer"""
        self._stopped = False
        self._loop = asyncio.get_running_loop()
        self._tls = tls
        self.driver = Driver(
            self.session,
            hello=lambda: msgspec.structs.replace(hello, grid=self.roster.terms.grid, roster=self._summary()),
            address_of=self._address_of,
            on_effect=self._effect,
            tls=tls,
        )
        self.driver.on_unreachable = self._unreachable
        self.driver.failed.add_done_callback(self._failed)
        self.driver.adopt(first, peer)

    # -- the network

    @property
    def roster(self) -> Roster:
        """The brokers and who owns what, by the newest roster that a broker told."""
        assert self.session.roster is not None
        return self.session.roster

    @property
    def brokers(self) -> dict[PeerId, str]:
        """Where the brokers are, by number; the first as it was reached from here."""
        return {m.id: self._address_of(m.id) or "" for m in self.roster.members} | {self._first: self.url}

    def _address_of(self, broker: PeerId) -> str | None:
        return self.url if broker == self._first else self.roster.url_of(broker)

    def _summary(self) -> Summary:
        """The terms that we hold, for brokers to compare; owners are for the brokers to agree on."""
        return Summary(0, self.roster.terms, "", "")

    # -- what users do

    @property
    def attributes(self) -> tuple[str, ...]:
        """What the network carries, by CF standard name."""
        return self.grid.attributes

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
    ) -> AsyncStream: ...
    @overload
    def stream(self, query: Operator, *, after: After = None, revisions: bool = False) -> AsyncResults: ...
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
    ) -> AsyncStream | AsyncResults:
        """The fields of a query, one per tick, from now or the query's start on; or the results of an operator.

        Parameters
        ----------
        query
            What is wanted. Of an operator only `after` and `revisions` matter; see `watch`.
        after
            Begin with the first tick after this one (a number, or a moment): for a model that restarts.
        resume
            A file that keeps the place, also across this program's own death; see `sensorgrid.client.resume`. If it
            exists, the stream goes on from there, whatever `after` and the query's start say.
        errors
            Whether to bring the standard error of each value, as a coordinate beside it. False saves half the bytes.
        revisions
            Whether a tick that was given is given again when late data change it, with ``attrs["revision"]``.
        onto, method
            A Dataset or DataArray on whose points the fields are wanted, and how: "linear" or "nearest".
        buffer
            Ticks that may wait for the consumer, before the network is told to wait.
        """
        self._check_open()
        if isinstance(query, Operator):
            return self.watch(query, after=after, revisions=revisions)
        query.box(self.grid)  # an unknown name is told with the names that people may ask for
        if buffer < 1:
            raise QueryError(f"buffer: found {buffer}, expected at least one tick")
        target = None if onto is None else Onto(onto, self.grid, method)
        first, until = query.ticks(self.grid, datetime.now(UTC))
        if after is not None:
            first = self._tick_after(after)
        file = None if resume is None else ResumeFile(resume, query, self.grid)
        point = None if file is None else file.read()
        if point is not None:
            first, until = point.next, point.until
        wanted = query if onto is None else widened(query, self.grid)
        return self._open(query, wanted, first, until, errors, revisions, target, buffer, file)

    def watch(
        self,
        operator: Operator | str,
        *,
        after: After = None,
        areas: Mapping[str, Area] | None = None,
        revisions: bool = False,
        inactive: bool = False,
    ) -> AsyncResults:
        """The results of an operator, one per tick, from now on; the network calculates them.

        Parameters
        ----------
        operator
            What is calculated, or its value alone, as text.
        after
            Begin with the first tick after this one (a number, or a moment).
        areas
            Areas that the operator names.
        revisions
            Whether a result that was given is given again when late data change it, with ``attrs["revision"]``.
        inactive
            Whether to give ticks at which the operator's `when` does not hold, as results without a value.
        """
        self._check_open()
        plan = compile(operator, self.carried, areas)
        formula = ResultFormula(plan)
        first = self.grid.tick_at(datetime.now(UTC)) if after is None else self._tick_after(after)
        number = QueryId(RESULTS + self._watched)
        self._watched += 1

        def end() -> None:
            if self._results.pop(number, None) is not None and not self._closed:
                self.driver.feed(Cancelled(number))

        results = self._results[number] = AsyncResults(plan, self.grid, end, revisions, inactive)
        self.driver.feed(Watched(number, StreamName(formula.digest, 1), formula.text, first))
        return results

    async def latest(
        self,
        query: Query,
        *,
        errors: bool = True,
        timeout_s: float = 30.0,
        onto: Any = None,
        method: Method = "linear",
    ) -> Field:
        """The newest field of a query that the network has; waits for the next one if it has none.

        The query's start and duration do not matter. Raises `TimedOut` if nothing comes in time.
        """
        deadline = self._loop.time() + timeout_s
        now = self.grid.tick_at(datetime.now(UTC))
        stride = 1 << self.grid.resolution_bits[2]
        ring = self.settings.ring_ticks
        for back in sorted({min(2, ring - 1), min(2 + stride, ring - 1), ring - 1}):
            stream = self._latest_stream(query, max(0, now - back), errors, onto, method)
            try:
                tick = await self._newest(stream, deadline, wait=back == ring - 1)
                if tick is not None:
                    return stream.field_of(tick)
            finally:
                stream.close()
        raise TimedOut(
            f"query for {', '.join(query.attributes)}: found no tick since"
            f" {self.grid.time_of(max(0, now - ring + 1)).isoformat()} within {timeout_s:g} s, expected one; if the"
            " network replays the past, stream from a start"
        )

    def field(
        self, query: Query, *, errors: bool = True, onto: Any = None, method: Method = "linear"
    ) -> AsyncTimeField:
        """The fields of a query by their time: ``await grid.field(query).at(time)`` waits until it is there."""
        query.box(self.grid)
        return AsyncTimeField(self, query, errors, onto, method)

    async def export(
        self,
        query: Query,
        path: str | os.PathLike[str],
        *,
        kind: str | None = None,
        ticks: int | None = None,
        on_field: Callable[[Field, AsyncStream], Awaitable[None] | None] | None = None,
        on_stream: Callable[[AsyncStream], Awaitable[None] | None] | None = None,
        **options: Any,
    ) -> Path:
        """Write the fields of a query to a file, tick by tick, until the query or `ticks` ends it.

        A file that exists is continued after its last tick. While it grows it is called ``NAME.part``; see
        `sensorgrid.client.exports`.

        Parameters
        ----------
        path, kind
            Where to, and "netcdf", "zarr" or "parquet"; left out, by the end of the name.
        ticks
            How many; left out, until the query ends or this is cancelled, which finishes the file as well.
        on_field, on_stream
            Called with every field after it has been written, and the stream; with the stream when it begins: for
            progress. What they return is awaited, if it can be.
        options
            Those of `stream`.
        """
        export = open_export(path, kind, query, self.grid)
        if export.next is not None:
            options["after"] = export.next - 1
        with export:
            async with self.stream(query, **options) as stream:
                if on_stream is not None:
                    await _finished(on_stream(stream))
                while ticks is None or export.written < ticks:
                    try:
                        field = await anext(stream)
                    except StopAsyncIteration:
                        break
                    await _to_its_end(asyncio.to_thread(export.append, field))
                    if on_field is not None:
                        await _finished(on_field(field, stream))
                await stream.commit()
        return export.path

    def explain(self, query: Query, *, errors: bool = True) -> Explanation:
        """What a query will cost before it runs: points, bytes, cells, and what this connection has already."""
        query.box(self.grid)
        return explain(query, self.carried, self.settings, self.sharing, errors)

    async def sensors(
        self,
        bbox: Bbox | None = None,
        *,
        attribute: str | None = None,
        silent: timedelta | float | str | None = None,
        flagged: float | None = None,
        at: Any = None,
        limit: int = LIMIT,
        timeout_s: float = TIMEOUT_S,
    ) -> SensorList:
        """The sensors behind the grids, as the brokers that own their regions know them.

        Parameters
        ----------
        bbox
            West, south, east, north, borders included; left out, everywhere.
        attribute
            That they measure; left out, any.
        silent
            Only those that have not reported for longer, such as "1h", or that `flagged` asks for.
        flagged
            Only those with at least this share of reports found bad, 0 to 1, or that `silent` asks for.
        at
            The moment at which silence is judged; left out, now.
        limit
            How many are brought at most.
        timeout_s
            How long each broker may take. One that does not answer is in the result's `missing`.
        """
        self._check_open()
        asked = question(bbox, attribute=attribute, silent=silent, flagged=flagged, at=at)
        if limit < 1:
            raise QueryError(f"limit: found {limit}, expected one sensor or more")
        return await ask_owners(
            asked, self.carried, self.roster, {self._first: self.url}, limit=limit, tls=self._tls,
            timeout_s=timeout_s,
        )  # fmt: skip

    async def aclose(self) -> None:
        """End all streams and close the connection."""
        if not self._stopped:
            self._stopped = True
            self._closed = self._closed or "closed here"
            for results in list(self._results.values()):
                results.fail(lost("closed here"))
            for stream in list(self._streams.values()):
                stream.fail(lost("closed here"))
                self.sharing.end(stream.demand)
            self._pump()
            if self._timer is not None:
                self._timer.cancel()
            await asyncio.sleep(0)  # the brokers are told before the connections close
            await self.driver.stop(1000, "done")
            if not self.driver.failed.done():
                self.driver.failed.cancel()

    @property
    def closed(self) -> bool:
        """Whether it can be used no longer."""
        return bool(self._closed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._streams)} streams"
        nx, ny = self.grid.shape
        return f"<{type(self).__name__} {self.url}: {nx} × {ny} points, {len(self.brokers)} brokers, {state}>"

    # -- inside

    def _open(
        self,
        query: Query,
        wanted: Query,
        first: int,
        until: int | None,
        errors: bool,
        revisions: bool,
        onto: Onto | None,
        buffer: int,
        file: ResumeFile | None,
    ) -> AsyncStream:
        self._check_open()
        full = with_errors(wanted, self.carried) if errors else wanted
        assembly = Assembly(
            self.carried,
            full,
            first,
            until,
            revisions,
            self.settings.lateness_ticks,
            self.settings.ring_ticks,
        )
        demand = Demand(full, assembly)
        labels = Labels(self.carried, full, assembly, query.attributes)
        stream = AsyncStream(self.sharing, self._pump, query, demand, labels, buffer, onto, file)
        if not assembly.ended:
            self._streams[demand] = stream
            self.sharing.pose(demand)
        self._pump()
        return stream

    def _latest_stream(
        self, query: Query, first: int, errors: bool, onto: Any, method: Method
    ) -> AsyncStream:
        query.box(self.grid)
        target = None if onto is None else Onto(onto, self.grid, method)
        wanted = query if onto is None else widened(query, self.grid)
        return self._open(
            query, wanted, first, None, errors, False, target, 2 * self.settings.ring_ticks, None
        )

    async def _newest(self, stream: AsyncStream, deadline: float, wait: bool) -> Tick | None:
        """The last tick with values when nothing more has come for a while."""
        found: Tick | None = None
        quiet_s = QUIET_S
        while True:
            left = deadline - self._loop.time()
            patient = found is None and (wait or stream.status != "running")
            try:
                async with asyncio.timeout(max(0.0, left if patient else min(left, quiet_s))):
                    tick = await stream.next_tick()
            except TimeoutError:
                if found is None and not wait and left > quiet_s and stream.status != "running":
                    continue
                return found
            if tick is None:
                return found
            if tick.missing < stream.demand.assembly.points:
                found = tick

    def _tick_after(self, after: int | datetime | str | np.datetime64) -> int:
        if isinstance(after, int | np.integer) and not isinstance(after, bool):
            return int(after) + 1
        return self.grid.tick_at(moment_of(after, "after")) + 1

    def _check_open(self) -> None:
        if self._closed:
            raise lost(self._closed)

    def _effect(self, effect: Effect) -> None:
        if isinstance(effect, Calculated | Reply) and (results := self._results.get(effect.query)):
            results.handle(effect)
            return
        self.sharing.now = self._loop.time()
        self.sharing.handle(effect)
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump_soon)

    def _pump_soon(self) -> None:
        self._pumping = False
        self._pump()

    def _pump(self) -> None:
        """What demands want goes to the session, what they got to the streams; until nothing is left to do."""
        sharing = self.sharing
        sharing.now = self._loop.time()
        while sharing.events or sharing.touched:
            events, sharing.events = sharing.events, []
            for event in events:
                self.driver.feed(event)
            touched, sharing.touched = sharing.touched, {}
            for demand in touched:
                stream = self._streams.get(demand)
                if stream is not None:
                    stream.update()
                if demand not in sharing.demands:
                    self._streams.pop(demand, None)
        self._arm()

    def _arm(self) -> None:
        due = self.sharing.next_wakeup()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None and not self._closed:
            self._timer = self._loop.call_at(due, self._woke)

    def _woke(self) -> None:
        self.sharing.woke(self._loop.time())
        self._pump()

    def _unreachable(self, peer: PeerId, error: SensorGridError | OSError) -> None:
        # A broker that was restarted with another grid, or with other settings of streams.
        changed = (wire.NoConnection.GRID, wire.NoConnection.SETTINGS)
        if isinstance(error, wire.RefusedError) and error.code in changed:
            self._give_up(GridMismatch(f"broker {peer} at {self.brokers.get(peer)}: {error}; connect again"))

    def _failed(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._give_up(ClientError(f"client: found a fault of its own ({type(error).__name__}: {error})"))

    def _give_up(self, error: ClientError) -> None:
        for results in list(self._results.values()):
            results.fail(error)
        for stream in list(self._streams.values()):
            stream.fail(error)
        self._closed = self._closed or str(error)


async def _finished(result: Awaitable[None] | None) -> None:
    if inspect.isawaitable(result):
        await result


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Work that must not be left half done: a caller that cancels waits for its end."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def context_of(tls: Tls) -> ssl.SSLContext | None:
    """What connections trust: a context as it is, or one that trusts the certificate authority of a file."""
    if not isinstance(tls, str | os.PathLike):
        return tls
    try:
        return ssl.create_default_context(cafile=tls)
    except ssl.SSLError:
        found = "a file without a certificate"
    except OSError as error:
        found = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
    raise NotConnected(
        f"certificate authority {os.fspath(tls)!r}: found {found}, expected a file with its certificate (PEM)"
    )


def urls_of(url: Urls | None) -> list[str]:
    """Where to connect: as given, or by the environment, or the usual place."""
    given = os.environ.get("SENSORGRID_URL", URL) if url is None else url
    urls = [part.strip() for part in given.split(",")] if isinstance(given, str) else list(given)
    for address in urls:
        if not isinstance(address, str) or not address.startswith(("ws://", "wss://")):
            raise NotConnected(f"url: found {address!r}, expected one such as ws://10.0.0.5:7400")
    if not urls:
        raise NotConnected("url: found none, expected one or more")
    return urls
