"""`sensorgrid demo`: the main job end to end on one machine, with a verdict."""

import asyncio
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sensorgrid.cli import arguments

if TYPE_CHECKING:
    from sensorgrid.demo.checks import Result
    from sensorgrid.demo.show import Show

console = Console()
errors = Console(stderr=True)
FRAME_S = 0.25


def demo(
    seconds: Annotated[
        float, typer.Option("--seconds", min=0, max=600, help="How long it streams; a few ticks at least.")
    ] = 60.0,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write the result here; - writes only that."),
    ] = None,
    report: Annotated[Path, typer.Option("--report", metavar="FILE", help="Where the report goes.")] = Path(
        "sensorgrid-demo.html"
    ),
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Keep configuration, lake and logs here; otherwise they are removed."),
    ] = None,
) -> None:
    """Show it: sensors, Spark, eight brokers, two dozen clients, one broker killed; then a verdict and a report.

    The exit code is 0 only if the checks hold. Ctrl-C stops it and leaves nothing behind.

    Example: sensorgrid demo --seconds 30 --json demo.json
    """
    from sensorgrid.cli.output import write
    from sensorgrid.demo.show import DemoError, Show
    from sensorgrid.demo.stage import DemoStage

    target = arguments.read_target(json_file)
    if not report.parent.is_dir():
        raise DemoError(f"--report: found no folder {report.parent}, expected one")
    with _place(folder) as place:
        result = asyncio.run(_run(Show(DemoStage(), place, seconds), report))
        if result is None:
            raise KeyboardInterrupt
    if write(target, result.to_dict()):
        _summary(result)
    errors.print(f"report: {report}", style="dim", highlight=False, soft_wrap=True)
    if folder is not None:
        errors.print(f"kept: {folder}", style="dim", highlight=False, soft_wrap=True)
    if not result.holds:
        raise typer.Exit(1)


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """A folder for all that the demo writes: a temporary one, or one that is new or empty."""
    from sensorgrid.demo.show import DemoError

    if folder is None:
        with tempfile.TemporaryDirectory(prefix="sensorgrid-demo-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise DemoError(f"--folder: found files in {folder}, expected an empty or new folder")
    yield folder.resolve()


async def _run(show: "Show", report: Path) -> "Result | None":
    """None if it was stopped: asyncio would otherwise print the exception of a task that is never awaited."""
    from sensorgrid.demo.report import render
    from sensorgrid.demo.telling import story_of

    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    assert me is not None
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        me.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        with _watch(show):
            drawing = asyncio.create_task(_draw(show))
            try:
                await show.play()
                truth = await show.look_again()
                result = show.judge(truth)
                report.write_text(render(story_of(show, result, truth)))
                return result
            finally:
                drawing.cancel()
                await asyncio.gather(drawing, return_exceptions=True)
    except asyncio.CancelledError:
        if stopped:
            return None
        raise


_live: list[Live] = []


@contextmanager
def _watch(show: "Show") -> Iterator[None]:
    """A live view where somebody watches."""
    if not errors.is_terminal:
        yield
        return
    with Live(_Frame(show), console=errors, screen=True, auto_refresh=False) as live:
        _live.append(live)
        try:
            yield
        finally:
            _live.clear()


class _Frame:
    """The view, drawn for whatever size the terminal has."""

    def __init__(self, show: "Show") -> None:
        self._show = show

    def __rich_console__(self, console: Console, options: Any) -> Iterator[Any]:
        from sensorgrid.demo.view import draw

        yield draw(self._show.scene, options.max_width, console.height)


async def _draw(show: "Show") -> None:
    """Refresh the view; where nobody watches, write a line for each event and stage."""
    told, stage = 0, ""
    while True:
        show.scene.clock_s = time.time() - show.began_s
        if _live:
            _live[0].refresh()
        else:
            scene = show.scene
            if scene.stage != stage:
                stage = scene.stage
                errors.print(f"        {stage} …", style="dim", highlight=False, soft_wrap=True)
            for at, text, style in scene.events[told:]:
                errors.print(f"{at:6.1f} s {text}", style=style, highlight=False, soft_wrap=True)
            told = len(scene.events)
        await asyncio.sleep(FRAME_S)


def _summary(result: "Result") -> None:
    table = Table(title="The demo", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_column()
    for check in result.checks:
        mark = (
            Text("✓", "green")
            if check.holds
            else Text("✗", "bold red")
            if check.counts
            else Text("!", "yellow")
        )
        table.add_row(mark, check.name, check.found)
    console.print(table)
    if result.saving is not None and result.delay_p50_s is not None:
        console.print(
            f"{result.saving:.0%} of the values between brokers saved by sharing; median delay"
            f" {result.delay_p50_s:.2f} s from the last measurement of a tick to the client",
            highlight=False,
        )
