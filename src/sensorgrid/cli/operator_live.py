"""`sensorgrid operator watch | add | list | remove`: results from a running network, and operators with names."""

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sensorgrid.cli import arguments
from sensorgrid.cli.operator import Config, Every, JsonFile, UntilHolds, Value, When
from sensorgrid.cli.output import result_of, write

if TYPE_CHECKING:
    import xarray as xr

    from sensorgrid.operators.areas import Area
    from sensorgrid.operators.plan import Operator

console = Console()
errors = Console(stderr=True)

Where = Annotated[
    str,
    typer.Argument(
        metavar="URL|GRID.TOML", help="A broker that runs, or the file of its grid, with [areas]."
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, dots, dashes, underscores.")]


def watch(
    where: Where,
    value: Annotated[
        str, typer.Argument(metavar="EXPRESSION|NAME", help="What to calculate, or the name of an operator.")
    ],
    when: When = None,
    until_holds: UntilHolds = None,
    every: Every = None,
    ticks: Annotated[int | None, typer.Option(min=1, help="Stop after so many results.")] = None,
    revisions: Annotated[
        bool, typer.Option("--revisions", help="Show a tick again when late data change it.")
    ] = False,
    inactive: Annotated[
        bool, typer.Option("--inactive", help="Also show ticks at which --when does not hold.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Show results as the network calculates them, a line per tick, until Ctrl-C.

    Example: sensorgrid operator watch ws://localhost:7400 "mean(air_temperature)"
    """
    target = arguments.read_target(json_file)
    urls, areas, named = _network(where, value)
    operator = named or _operator(value, when, until_holds, every)
    rows: list[dict[str, Any]] = []
    silent = str(target) == "-"

    def shown(result: "xr.DataArray") -> None:
        rows.append(row_of(result))
        if not silent:
            console.print(line_of(rows[-1]), highlight=False, soft_wrap=True)

    work = _watched(urls, operator, areas, ticks, revisions, inactive, shown, quiet=silent)
    stopped = asyncio.run(work)
    write(target, result_of("operator watch", operator=operator.name, rows=rows))
    if stopped:
        if not silent:
            errors.print(f"stopped after {len(rows):,} results", style="dim", highlight=False)
        raise typer.Exit(128 + stopped)


def add(
    config: Config,
    name: Name,
    value: Value,
    when: When = None,
    until_holds: UntilHolds = None,
    every: Every = None,
) -> None:
    """Give an operator a name, under which anybody who sees the lake can watch it.

    Example: sensorgrid operator add grid.toml warmth "mean(air_temperature)"
    """
    from sensorgrid.operators.plan import compile
    from sensorgrid.pipeline.settings import read_settings
    from sensorgrid.runtime.operators import OperatorBook

    settings = read_settings(config)
    operator = _operator(value, when, until_holds, every, name)
    compile(operator, settings.grid.grid(), settings.areas_of())
    OperatorBook(settings.lake).add(operator)
    console.print(f"operator {name} is known; sensorgrid operator watch {config} {name}", highlight=False)


def list_(config: Config, json_file: JsonFile = None) -> None:
    """Show the operators that have names.

    Example: sensorgrid operator list grid.toml
    """
    from sensorgrid.pipeline.settings import read_settings
    from sensorgrid.runtime.operators import OperatorBook

    target = arguments.read_target(json_file)
    known = OperatorBook(read_settings(config).lake).all()
    rows = [
        {
            "name": name, "value": o.value, "when": o.when, "until": o.until,
            "every_s": None if o.every is None else o.every.total_seconds(),  # type: ignore[union-attr]
        }
        for name, o in known.items()
    ]  # fmt: skip
    if not write(target, result_of("operator list", rows=rows)):
        return
    if not rows:
        console.print("no operator has a name yet: sensorgrid operator add", highlight=False)
        return
    table = Table()
    for title in ("name", "value", "when", "until", "every"):
        table.add_column(title)
    for name, o in known.items():
        table.add_row(name, o.value, o.when or "", o.until or "", "" if o.every is None else str(o.every))
    console.print(table)


def remove(config: Config, name: Name) -> None:
    """Forget an operator; those who watch it go on.

    Example: sensorgrid operator remove grid.toml warmth
    """
    from sensorgrid.pipeline.settings import read_settings
    from sensorgrid.runtime.operators import OperatorBook

    OperatorBook(read_settings(config).lake).remove(name)
    console.print(f"operator {name} is forgotten", highlight=False)


def row_of(result: "xr.DataArray") -> dict[str, Any]:
    """A result as plain values."""
    value, error = float(result), float(result.standard_error)
    return {
        "time": str(result.time.values.astype("datetime64[ms]")) + "Z", "tick": int(result.tick),
        "revision": int(result.attrs["revision"]), "value": None if value != value else value,
        "error": None if error != error else error, "points": int(result.points),
        "coverage": float(result.coverage), "unit": result.attrs["units"],
        "reason": result.attrs.get("missing_because", ""),
    }  # fmt: skip


def line_of(row: dict[str, Any]) -> str:
    """A result on one line."""
    unit = "" if row["unit"] == "1" else f" {row['unit']}"
    if row["value"] is None:
        said = f"no value: {row['reason']}"
    else:
        error = "" if row["error"] is None else f" ± {row['error']:.2g}"
        said = f"{row['value']:.6g}{error}{unit}, {row['points']:,} points, {row['coverage']:.0%} covered"
    again = f", revision {row['revision']}" if row["revision"] > 0 else ""
    lacks = ", incomplete" if row["revision"] < 0 else ""
    return f"{row['time'][:19].replace('T', ' ')}  {said}{again}{lacks}"


def _operator(
    value: str, when: str | None, until: str | None, every: str | None, name: str | None = None
) -> "Operator":
    from sensorgrid.operators.plan import Operator

    return Operator(value, when, until, every, name)


def _network(where: str, value: str) -> "tuple[list[str] | str, dict[str, Area] | Any, Operator | None]":
    """Where brokers are, which areas there are, and the operator of this name, if there is one."""
    if where.startswith(("ws://", "wss://")):
        return where, {}, None
    from sensorgrid.cli.network import roster_of_file
    from sensorgrid.pipeline.settings import read_settings
    from sensorgrid.runtime.operators import OperatorBook

    settings = read_settings(Path(where))
    _, roster = roster_of_file(where)
    named = OperatorBook(settings.lake).get(value)
    return [member.url for member in roster.members], settings.areas_of(), named


async def _watched(
    urls: list[str] | str,
    operator: "Operator",
    areas: Any,
    ticks: int | None,
    revisions: bool,
    inactive: bool,
    shown: Any,
    quiet: bool,
) -> int:
    """Show results until there were enough; the number of the signal that ended it before."""
    from sensorgrid.client.connection import aconnect

    stop, signals = asyncio.Event(), list[int]()
    loop = asyncio.get_running_loop()

    def told(number: int) -> None:
        signals.append(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told, number)
    async with await aconnect(urls) as grid:
        results = grid.watch(operator, areas=areas, revisions=revisions, inactive=inactive)
        if not quiet:
            errors.print(
                f"watching at {grid.url}; a result every {grid.grid.tick:g} s, Ctrl-C ends", style="dim"
            )
        ended = asyncio.ensure_future(stop.wait())
        try:
            given = 0
            while ticks is None or given < ticks:
                following = asyncio.ensure_future(anext(results))
                await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await following
                    break
                shown(following.result())
                given += 1
        finally:
            ended.cancel()
            results.close()
    return signals[0] if signals else 0
