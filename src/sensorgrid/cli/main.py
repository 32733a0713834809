"""The `sensorgrid` command."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sensorgrid import __version__
from sensorgrid.cli import (
    arguments,
    bench,
    bench_all,
    broker,
    demo,
    doctor,
    experiment,
    explain,
    network,
    operator,
    operator_live,
    pipeline,
    query,
    reference,
    sensors,
    status,
    up,
)
from sensorgrid.cli.options import BoxText
from sensorgrid.cli.output import result_of, write
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import ATTRIBUTES

app = typer.Typer(
    help="Gap-free grids from raw sensor measurements, streamed at any area and resolution.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(help="Benchmarks, as ratios in one run.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")
bench_app.command("all")(bench_all.bench_all)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(network.app, name="network")
app.add_typer(operator.app, name="operator")
operator.app.command("watch")(operator_live.watch)
operator.app.command("add")(operator_live.add)
operator.app.command("list")(operator_live.list_)
operator.app.command("remove")(operator_live.remove)
app.add_typer(experiment.app, name="experiment")
app.command("up")(up.up)
app.command("broker")(broker.broker)
app.command("query")(query.query)
app.command("doctor")(doctor.doctor)
app.command("status")(status.status)
app.command("sensors")(sensors.sensors)
app.command("demo")(demo.demo)
app.command("reference")(reference.reference)

console = Console()
errors = Console(stderr=True)

JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Also write the result here; - writes it instead of the tables."
    ),
]


def run() -> None:
    """The entry point: a user's mistake is a line on standard error and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without × and ≡ shows ? instead
    try:
        app()
    except SensorGridError as error:
        errors.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        errors.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
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
        str | None,
        typer.Option(
            help=f"One of the grid's, or several with commas: {', '.join(ATTRIBUTES)}; without it, its first one."
        ),
    ] = None,
    bbox: BoxText = None,
    resolution: Annotated[
        str,
        typer.Option(
            metavar="X[,Y,T]",
            help="Part of the points and ticks: 1/4 is every fourth; one number is for all three.",
        ),
    ] = "1",
    start: Annotated[str | None, typer.Option("--from", help="First moment, ISO 8601 with zone.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="End, ISO 8601 with zone.")] = None,
    depth: Annotated[int, typer.Option(min=0, help="Longest cell, in digits.")] = 20,
    grid_file: Annotated[
        Path | None,
        typer.Option(
            "--grid", metavar="FILE", help="A grid's file, such as grid.toml, instead of the options below."
        ),
    ] = None,
    shape: Annotated[str, typer.Option(help="Points of the grid along x and y.")] = "4096x2048",
    extent: Annotated[
        str | None, typer.Option(metavar="W,S,E,N", help="Extent of the grid; the earth if left out.")
    ] = None,
    coordinates: Annotated[str, typer.Option(help="lonlat (degrees) or planar (any plane).")] = "lonlat",
    tick: Annotated[float, typer.Option(help="Seconds between two values of a point.")] = 600.0,
    resolution_bits: Annotated[str, typer.Option(help="Digits of resolution, one number or x,y,t.")] = "4",
    dimensions: Annotated[str, typer.Option(help="Indexed dimensions: 2, 3, 4 or 5.")] = "5",
    region_digits: Annotated[int, typer.Option(min=0, help="Leading spatial digits.")] = 8,
    url: Annotated[
        str | None,
        typer.Option(
            "--connect",
            metavar="URL",
            help="Of a broker that runs, such as ws://localhost:7400: its grid, and what of the query flows already.",
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Say what a query will cost before it runs: points, bytes, cells, slices.

    With --connect, also which live queries overlap it, and which share of it the broker has already.

    Example: sensorgrid explain --bbox -10,35,30,60 --resolution 1/4,1/4,1/2
    """
    target = arguments.read_target(json_file)
    if url is not None and grid_file is not None:
        raise arguments.ArgumentError(
            f"--grid: found {grid_file} beside --connect, expected one of them: a broker tells its grid"
        )
    seen = None
    if url is not None:
        seen = explain.seen_at(url)
        grid = seen.grid
    elif grid_file is None:
        grid = arguments.read_grid(
            extent, coordinates, shape, tick, resolution_bits, dimensions, region_digits
        )
    else:
        from sensorgrid.pipeline.settings import read_settings

        grid = read_settings(grid_file).grid.grid()
    query = arguments.read_query(attribute or grid.attributes[0], bbox, resolution, start, until)
    with errors.status("cutting the query into cells (the first time, compiling takes a few seconds)"):
        facts = explain.explanation(query, grid, depth)
        if seen is not None:
            facts["live"] = explain.beside_others(query, seen)
    if write(target, result_of("explain", **facts)):
        if grid_file is None and seen is None:
            note = "a grid as the options say: --grid FILE or --connect URL takes yours"
            console.print(note, style="yellow", highlight=False)
        explain.show(console, query, grid, facts)


@bench_app.command("index")
def bench_index(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="The smallest size only.")] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of the random boxes.")] = "1",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of which the median counts.")] = 5,
) -> None:
    """Insert, look up and remove up to a million queries: this index against an R-tree.

    Example: sensorgrid bench index --quick --json index.json
    """
    from sensorgrid.benchmarks import index
    from sensorgrid.benchmarks.machine import machine

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    plan = index.QUICK if quick else index.FULL
    with errors.status("compiling") as status:
        rows = [row | {"seed": s} for s in chosen for row in index.run(plan, s, rounds, status.update)]
    args = {"quick": quick, "seeds": seeds, "rounds": rounds}
    used = machine("numpy", "numba", "rtree")
    if write(target, result_of("bench index", args=args, machine=used, rows=rows)):
        for s in chosen:
            bench.show_index(console, [row for row in rows if row["seed"] == s])


@bench_app.command("pipeline")
def bench_pipeline(
    json_file: JsonFile = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The smallest size only, and no empty micro-batches.")
    ] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of the measurements.")] = "1",
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Another checkout: compares what an empty micro-batch costs in both."
        ),
    ] = None,
) -> None:
    """Spark, as a batch and as a stream, against the same work in one process; up to ten million measurements.

    Example: sensorgrid bench pipeline --quick --json pipeline.json
    """
    from sensorgrid.benchmarks import pipeline, pipeline_empty
    from sensorgrid.benchmarks.machine import machine
    from sensorgrid.cli.bench_pipeline import show_empty, show_pipeline

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    if against is not None:
        pipeline_empty.source_of(against)  # a wrong folder is said before minutes have passed
    sizes = pipeline.QUICK if quick else pipeline.FULL
    with errors.status("starting Spark") as status:
        rows = [row | {"seed": s} for s in chosen for row in pipeline.run(sizes, s, status.update)]
        empty = [] if quick else pipeline_empty.run(against, status.update)
    args = {"quick": quick, "seeds": seeds, "against": str(against) if against else None}
    used = machine("numpy", "scipy", "pyspark", "pandas")
    if write(target, result_of("bench pipeline", args=args, machine=used, rows=rows, empty=empty)):
        show_pipeline(console, rows)
        if empty:
            show_empty(console, empty)


@bench_app.command("gridding")
def bench_gridding(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sets and points.")] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of noise and faults.")] = "1",
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Folder with truth-grids and stations; else SENSORGRID_DATA, ../shared/data."
        ),
    ] = None,
) -> None:
    """Real fields, sampled at real stations with noise and faults, gridded, and compared with the field.

    Example: sensorgrid bench gridding --quick --json gridding.json
    """
    from sensorgrid.benchmarks import gridding
    from sensorgrid.benchmarks.machine import machine
    from sensorgrid.cli.bench_gridding import show_gridding

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    with errors.status("reading the fields") as status:
        rows = [row | {"seed": s} for s in chosen for row in gridding.run(quick, s, status.update, data)]
    args, used = {"quick": quick, "seeds": seeds}, machine("numpy", "scipy")
    found = result_of("bench gridding", args=args, machine=used, summary=gridding.summary(rows), rows=rows)
    if write(target, found):
        show_gridding(console, rows)


@bench_app.command("reality")
def bench_reality(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer attributes, ticks and folds.")] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of folds and faults.")] = "1",
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Folder with the station networks; else SENSORGRID_DATA, ../shared/data."
        ),
    ] = None,
) -> None:
    """Real station networks: stations left out and estimated, faults put in and looked for.

    Against nearest, inverse distance, gridpp and PyKrige; the check against titanlib. Packages that are not
    installed are left out, with the reason.

    Example: sensorgrid bench reality --quick --json reality.json
    """
    from sensorgrid.benchmarks import reality, reality_checks
    from sensorgrid.benchmarks.machine import machine
    from sensorgrid.cli.bench_reality import show_reality

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    rows: list[dict[str, object]] = []
    checks: list[dict[str, object]] = []
    left_out: list[str] = []
    with errors.status("reading the networks") as status:
        for seed in chosen:
            found, missing = reality.run(quick, seed, status.update, data)
            checked, lacking = reality_checks.run(quick, seed, status.update, data)
            rows, checks = rows + found, checks + checked
            left_out = list(dict.fromkeys([*left_out, *missing, *lacking]))
    summary = reality.summary(rows, checks)
    args, used = {"quick": quick, "seeds": seeds}, machine("numpy", "scipy")
    result = result_of(
        "bench reality", args=args, machine=used, summary=summary, rows=rows, checks=checks, left_out=left_out
    )
    if write(target, result):
        show_reality(console, rows, checks, summary, left_out)


@bench_app.command("overlay")
def bench_overlay(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer queries.")] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of the queries.")] = "1",
) -> None:
    """Brokers and clients in the simulator: queries that come and go, and the memory of those that stay.

    Example: sensorgrid bench overlay --quick --json overlay.json
    """
    from sensorgrid.benchmarks import overlay
    from sensorgrid.benchmarks.machine import machine

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    live, turns = (overlay.QUICK, overlay.TURNS_QUICK) if quick else (overlay.FULL, overlay.TURNS_FULL)
    with errors.status("compiling") as status:
        rows = [row | {"seed": s} for s in chosen for row in overlay.run(live, turns, s, status.update)]
    args, used = {"quick": quick, "seeds": seeds}, machine("numpy", "numba", "msgspec")
    if write(target, result_of("bench overlay", args=args, machine=used, rows=rows)):
        bench.show_asked(console, "Queries in the simulator", overlay.summary(rows))


@bench_app.command("sensors")
def bench_sensors(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sensors and lookups.")] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of the sensors.")] = "1",
) -> None:
    """The registry of sensors: a million on 16 brokers, looked up by box, against a scan of the whole table.

    Example: sensorgrid bench sensors --quick --json sensors.json
    """
    from sensorgrid.benchmarks import sensors as registry
    from sensorgrid.benchmarks.machine import machine

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    count, lookups = (
        (registry.SENSORS_QUICK, registry.LOOKUPS_QUICK)
        if quick
        else (registry.SENSORS_FULL, registry.LOOKUPS_FULL)
    )
    with errors.status("compiling") as status:
        rows = [row | {"seed": s} for s in chosen for row in registry.run(count, lookups, s, status.update)]
    args, used = {"quick": quick, "seeds": seeds}, machine("numpy", "numba", "pyarrow")
    if write(target, result_of("bench sensors", args=args, machine=used, rows=rows)):
        bench.show_asked(console, "The registry of sensors", registry.summary(rows))


@bench_app.command("operators")
def bench_operators(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the operators.")] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of areas and fields.")] = "1",
) -> None:
    """10,000 operators over one grid, against a loop of xarray expressions and one NumPy program per function.

    Example: sensorgrid bench operators --quick --json operators.json
    """
    from sensorgrid.benchmarks import operators
    from sensorgrid.benchmarks.machine import machine

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    count = operators.OPERATORS_QUICK if quick else operators.OPERATORS_FULL
    with errors.status("compiling operators") as status:
        rows = [row | {"seed": s} for s in chosen for row in operators.run(count, s, status.update)]
    args, used = {"quick": quick, "seeds": seeds}, machine("numpy", "scipy", "xarray", "shapely", "cql2")
    summary = operators.ratios(rows)
    if write(target, result_of("bench operators", args=args, machine=used, summary=summary, rows=rows)):
        for s in chosen:
            mine = [row for row in rows if row["seed"] == s]
            bench.show_asked(console, "Operators, processor time per tick", operators.summary(mine))


@bench_app.command("fanout")
def bench_fanout(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer clients, small blocks.")] = False,
    flood: Annotated[
        bool,
        typer.Option("--flood", help="2,000 clients at a fixed rate instead, one of which reads nothing."),
    ] = False,
    seeds: Annotated[str, typer.Option(metavar="A", help="Of the boxes.")] = "1",
) -> None:
    """One block to up to 1,000 clients: a broker against a loop in C, mosquitto and nats-server.

    Needs a C compiler and OpenSSL; servers that are not installed are left out.

    Example: sensorgrid bench fanout --quick --json fanout.json
    """
    from sensorgrid.benchmarks import fanout
    from sensorgrid.benchmarks.machine import machine
    from sensorgrid.cli.bench_fanout import show_fanout, show_flood

    target, seed = arguments.read_target(json_file), arguments.read_seeds(seeds)[0]
    notes: list[str] = []
    with errors.status("compiling") as status:
        if flood:
            rows = fanout.flood(fanout.FLOOD_QUICK if quick else fanout.FLOOD, seed, status.update)
        else:
            rows, notes = fanout.run(fanout.QUICK if quick else fanout.FULL, seed, status.update)
    args = {"quick": quick, "flood": flood, "seeds": seeds}
    result: dict[str, object] = {"command": "bench fanout", "version": __version__, "args": args}
    result |= {"machine": machine("numpy", "numba", "picows"), "rows": rows, "left_out": notes}
    if not flood:
        result["summary"] = list(fanout.ratios(rows))
    if write(target, result):
        if flood:
            show_flood(console, rows)
        else:
            show_fanout(console, rows, notes)
