"""The `sensorgrid` command."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sensorgrid import __version__
from sensorgrid.cli import arguments, bench, explain
from sensorgrid.model.errors import SensorGridError

app = typer.Typer(
    help="Gap-free grids from raw sensor measurements, streamed at any area and resolution.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
bench_app = typer.Typer(help="Benchmarks, as ratios in one run.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")

console = Console()
errors = Console(stderr=True)

JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the result here.")]


def run() -> None:
    """The entry point: a user's mistake is a line on standard error and exit code 2, never a traceback."""
    try:
        app()
    except SensorGridError as error:
        errors.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("stopped", style="yellow")
        sys.exit(130)


def _version(asked: bool) -> None:
    if asked:
        console.print(f"sensorgrid {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command("explain")
def explain_command(
    attribute: Annotated[
        str, typer.Option(help="CF standard name, or several with commas.")
    ] = "air_temperature",
    bbox: Annotated[str, typer.Option(metavar="W,S,E,N", help="The box; without it, the whole grid.")] = "",
    resolution: Annotated[
        str, typer.Option(metavar="X[,Y,T]", help="Part of the points and ticks: 1/4 is every fourth.")
    ] = "1",
    start: Annotated[str, typer.Option("--from", help="First moment, ISO 8601 with zone.")] = "",
    until: Annotated[str, typer.Option("--until", help="End, ISO 8601 with zone.")] = "",
    depth: Annotated[int, typer.Option(min=0, help="Longest cell, in digits.")] = 20,
    shape: Annotated[str, typer.Option(help="Points of the grid along x and y.")] = "4096x2048",
    extent: Annotated[
        str, typer.Option(metavar="W,S,E,N", help="Extent of the grid; the earth if left out.")
    ] = "",
    tick: Annotated[float, typer.Option(help="Seconds between two values of a point.")] = 600.0,
    resolution_bits: Annotated[str, typer.Option(help="Digits of resolution, one number or x,y,t.")] = "4",
    dimensions: Annotated[str, typer.Option(help="Indexed dimensions: 2, 3, 4 or 5.")] = "5",
    region_digits: Annotated[int, typer.Option(min=0, help="Leading spatial digits.")] = 8,
    json_file: JsonFile = None,
) -> None:
    """Say what a query will cost before it runs: points, bytes, cells, slices.

    Example: sensorgrid explain --bbox -10,35,30,60 --resolution 1/4,1/4,1/2
    """
    grid = arguments.read_grid(extent, shape, tick, resolution_bits, dimensions, region_digits)
    query = arguments.read_query(attribute, bbox, resolution, start, until)
    with errors.status("cutting the query into cells (the first time, compiling takes a few seconds)"):
        facts = explain.explanation(query, grid, depth)
    explain.show(console, query, grid, facts)
    _write(json_file, facts)


@bench_app.command("index")
def bench_index(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smallest sizes, under a minute.")] = False,
    seed: Annotated[int, typer.Option(help="Of the random boxes.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of which the median counts.")] = 5,
) -> None:
    """Insert, look up and remove up to a million queries: this index against an R-tree.

    Example: sensorgrid bench index --quick --json index.json
    """
    from sensorgrid.benchmarks import index

    plan = index.QUICK if quick else index.FULL
    with errors.status("compiling") as status:
        rows = list(index.run(plan, seed, rounds, status.update))
    bench.show_index(console, rows)
    _write(
        json_file,
        {
            "command": "bench index",
            "version": __version__,
            "args": {"quick": quick, "seed": seed, "rounds": rounds},
            "rows": rows,
        },
    )


def _write(path: Path | None, result: dict[str, Any]) -> None:
    """Write a result; a folder that is not there is the user's mistake, not ours to make."""
    if path is None:
        return
    try:
        path.write_text(json.dumps(result, indent=1) + "\n")
    except OSError as error:
        raise arguments.ArgumentError(
            f"--json: found {path}, expected a file that can be written ({error.strerror})"
        ) from None
    errors.print(f"wrote {path}", style="dim")
