"""`sensorgrid query`: a stream to the terminal or to a file."""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from sensorgrid.cli import arguments
from sensorgrid.cli.options import Authority, BoxText, Connect
from sensorgrid.cli.output import result_of, write
from sensorgrid.model.errors import QueryError
from sensorgrid.model.query import Query

if TYPE_CHECKING:
    from sensorgrid.client.connection import AsyncClient
    from sensorgrid.client.fields import Field
    from sensorgrid.client.streams import AsyncStream

REFRESH_S = 0.25
SILENCE_S = 30.0
"""so long nothing is said where no tick comes, or two ticks' time if that is longer"""

console = Console()
errors = Console(stderr=True)


def query(
    connect: Connect = None,
    attribute: Annotated[
        str | None, typer.Option(metavar="NAME[,NAME]", help="What to stream; left out, the grid's first.")
    ] = None,
    bbox: BoxText = None,
    resolution: Annotated[
        str | None,
        typer.Option(
            metavar="X[,Y,T]",
            help="Part of the points and ticks: 1/4 is every fourth; one number is for all three.",
        ),
    ] = None,
    spacing: Annotated[
        str | None, typer.Option(metavar="X[,Y]", help="Instead: how far apart points may be.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Instead: how far apart ticks may be, such as 10min.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="First moment, ISO 8601 with zone; else now.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="End, ISO 8601 with zone; else Ctrl-C.")
    ] = None,
    ticks: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write to FILE.nc, .zarr or .parquet; one that exists is continued."
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the place in this file, and go on from there.")
    ] = None,
    with_errors: Annotated[
        bool, typer.Option("--errors/--no-errors", help="With the standard error of each value.")
    ] = True,
    roam: Annotated[
        bool,
        typer.Option(
            "--roam/--no-roam", help="Whether other brokers may be dialled (not behind a firewall)."
        ),
    ] = True,
    ca: Authority = None,
    plain: Annotated[bool, typer.Option("--plain", help="A line per tick, also on a terminal.")] = False,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE", help="Also write what was shown here, at the end; - writes only that."
        ),
    ] = None,
) -> None:
    """Stream a query to the terminal or to a file, until it ends or Ctrl-C.

    Example: sensorgrid query --connect ws://localhost:7400 --attribute air_temperature --bbox -10,35,30,60
    --out europe.nc
    """  # fmt: skip
    target = arguments.read_target(json_file)
    if out is not None:
        from sensorgrid.client.exports import check_path

        check_path(out)
        if resume is not None:
            raise QueryError(
                "--resume: found it beside --out, expected one of them: the file keeps its own place"
            )
    options = {
        "attribute": attribute, "bbox": bbox, "resolution": resolution, "spacing": spacing, "every": every,
        "from": start, "until": until, "ticks": ticks, "out": None if out is None else str(out), "errors": with_errors,
    }  # fmt: skip
    shape = _Asked(attribute, bbox, resolution, spacing, every, start, until)
    shape.query(attribute or "anything")  # mistakes are told before anybody is dialled
    silent = str(target) == "-"
    show = _Silence() if silent else _Screen() if console.is_terminal and not plain else _Lines()
    show.keeps = target is not None
    work = _Work(shape, ticks, out, resume, with_errors, show)
    code = asyncio.run(work.run(connect, roam, ca))
    write(target, result_of("query", args=options, rows=show.rows))
    if not silent:
        errors.print(work.summary(), style="yellow" if code else "dim", highlight=False, soft_wrap=True)
    if code:
        raise typer.Exit(code)


class _Asked:
    """The query that the options describe; its attribute may have to wait for the network."""

    def __init__(self, *options: str | None) -> None:
        self.attribute, self.bbox, self.resolution, self.spacing, self.every, self.start, self.until = options
        if self.start is None and self.until is not None:
            self.start = datetime.now(UTC).isoformat()
        if self.resolution is not None and (self.spacing or self.every):
            raise QueryError("--resolution: found it beside --spacing or --every, expected one of them")

    def query(self, attribute: str) -> Query:
        """For these attributes."""
        plain = arguments.read_query(attribute, self.bbox, self.resolution or "1", self.start, self.until)
        apart: Any = None
        if self.spacing is not None:
            apart = arguments.numbers("--spacing", self.spacing, "one or two numbers such as 0.25", (1, 2))
            apart = apart * 2 if len(apart) == 1 else apart
        return Query(
            plain.attributes, plain.bbox, plain.resolution, plain.start, plain.duration, spacing=apart, every=self.every
        )  # fmt: skip


class _Show:
    """What becomes visible of a stream."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.keeps = False
        """whether rows are wanted at the end: a stream may be endless"""

    def __enter__(self) -> "_Show":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def field(self, field: "Field", shot: Any) -> None:
        """A tick."""
        from sensorgrid.cli.query_view import row

        if self.keeps:
            self.rows.append(row(shot))

    def waits(self, url: str, apart_s: float) -> None:
        """A broker has answered and the query can be; the first tick may be a while away."""

    def state(self, status: str, reason: str, note: str) -> None:
        """Where the stream stands."""


class _Silence(_Show):
    """Only what is written down at the end."""


class _Lines(_Show):
    """A line per tick; trouble on standard error, and so is a long silence."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._last = ""
        self._clock = clock
        self._heard_s = clock()
        self._apart_s = self._patience_s = 0.0

    def field(self, field: "Field", shot: Any) -> None:
        from sensorgrid.cli.query_view import line

        super().field(field, shot)
        self._heard_s, self._patience_s = self._clock(), self._first_patience_s()
        print(line(shot), flush=True)

    def waits(self, url: str, apart_s: float) -> None:
        from sensorgrid.cli.query_view import span

        text = f"connected to {url}; the query has a tick every {span(apart_s)}, waiting for the first"
        print(text, file=sys.stderr, flush=True)
        self._heard_s, self._apart_s = self._clock(), apart_s
        self._patience_s = self._first_patience_s()

    def state(self, status: str, reason: str, note: str) -> None:
        text = f"{status}: {reason}" if reason else status
        if text != self._last and (status == "suspended" or self._last.startswith("suspended")):
            print(text, file=sys.stderr, flush=True)
        self._last = text
        self._say_if_silent(status)

    def _first_patience_s(self) -> float:
        return max(SILENCE_S, 2 * self._apart_s)

    def _say_if_silent(self, status: str) -> None:
        """Say that nothing comes; again when it has lasted twice as long."""
        from sensorgrid.cli.query_view import span

        silent_s = self._clock() - self._heard_s
        if self._patience_s and silent_s >= self._patience_s and status not in ("suspended", "ended"):
            text = f"no tick for {span(silent_s)}; does the pipeline run? `sensorgrid doctor` looks"
            print(text, file=sys.stderr, flush=True)
            self._patience_s *= 2


class _Screen(_Show):
    """A live map."""

    def __init__(self) -> None:
        from sensorgrid.cli.query_view import LiveView

        super().__init__()
        self._view = LiveView(console.width, console.height)
        self._live = Live(self._view, console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> "_Show":
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.refresh()
        self._live.__exit__(None, None, None)

    def field(self, field: "Field", shot: Any) -> None:
        super().field(field, shot)
        self._view.show(field, shot)

    def state(self, status: str, reason: str, note: str) -> None:
        self._view.width, self._view.height = console.width, console.height
        self._view.status = f"{status}: {reason}" if reason else status
        self._view.note = note
        self._live.refresh()


class _Work:
    """One run of the command."""

    def __init__(
        self,
        asked: _Asked,
        ticks: int | None,
        out: Path | None,
        resume: Path | None,
        errors: bool,
        show: _Show,
    ) -> None:
        self.asked, self.ticks, self.out, self.resume, self.errors = asked, ticks, out, resume, errors
        self.show = show
        self.given = 0
        self._stream: AsyncStream | None = None
        self._stopped = 0

    async def run(self, connect: str | None, roam: bool, ca: Path | None) -> int:
        """The exit code: that of the signal that ended it, or 0."""
        from sensorgrid.client.connection import aconnect

        task = asyncio.current_task()
        assert task is not None
        stop = self._stopper(task)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, stop, number)
        try:
            with contextlib.nullcontext() if isinstance(self.show, _Lines) else errors.status("connecting"):
                client = await aconnect(connect, roams=roam, tls=ca)
            async with client:
                await self._work(client)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            return 128 + self._stopped
        return 0

    def summary(self) -> str:
        """What there is to say at the end."""
        where = (
            ""
            if self.out is None
            else f"; {self.out} is whole"
            if self.out.exists()
            else "; nothing was written"
        )
        stopped = "stopped after " if self._stopped else ""
        return f"{stopped}{self.given:,} tick{'' if self.given == 1 else 's'}{where}"

    def _stopper(self, task: "asyncio.Task[Any]") -> Callable[[int], None]:
        def stop(number: int) -> None:
            self._stopped = number
            task.cancel()

        return stop

    async def _work(self, client: "AsyncClient") -> None:
        query = self.asked.query(self.asked.attribute or client.attributes[0])
        with self.show:
            refreshing = asyncio.create_task(self._refresh())
            try:
                if self.out is not None:
                    self._stream = None
                    await client.export(
                        query, self.out, ticks=self.ticks, on_field=self._field_of(client), errors=self.errors,
                        on_stream=self._begun_at(client, query),
                    )  # fmt: skip
                else:
                    await self._watch(client, query)
            finally:
                refreshing.cancel()
                self._state()

    async def _watch(self, client: "AsyncClient", query: Query) -> None:
        shown = self._field_of(client)
        async with client.stream(query, errors=self.errors, resume=self.resume) as stream:
            self._begun_at(client, query)(stream)
            async for field in stream:
                shown(field, stream)
                if self.ticks is not None and self.given >= self.ticks:
                    break
            await stream.commit()

    def _begun_at(self, client: "AsyncClient", query: Query) -> "Callable[[AsyncStream], None]":
        def begun(stream: "AsyncStream") -> None:
            self._stream = stream
            grid = client.grid
            wanted = query.limits(grid)[2] / (1 << grid.resolution_bits[2])
            self.show.waits(client.url, grid.tick / wanted)

        return begun

    def _field_of(self, client: "AsyncClient") -> "Callable[[Field, AsyncStream], None]":
        from sensorgrid.cli.query_view import snapshot

        def shown(field: "Field", stream: "AsyncStream") -> None:
            self.given += 1
            time = client.grid.time_of(int(field["tick"]))
            since_end_s = (datetime.now(UTC) - time).total_seconds() - client.grid.tick
            self.show.field(field, snapshot(field, since_end_s, time))
            self._state()

        return shown

    def _state(self) -> None:
        if self._stream is not None:
            note = ""
            if self.out is not None and self._stream.status != "ended":
                note = f"writing {self.out}.part: {self.given:,} ticks; Ctrl-C finishes the file"
            self.show.state(self._stream.status, self._stream.reason, note)

    async def _refresh(self) -> None:
        while True:
            self._state()
            await asyncio.sleep(REFRESH_S)
