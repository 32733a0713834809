"""`sensorgrid pipeline`: the data pipeline alone, for a laptop or one machine of several."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sensorgrid.cli import arguments

app = typer.Typer(
    help="From raw measurements to gap-free grids, on Spark.", no_args_is_help=True, rich_markup_mode="rich"
)
console = Console()
errors = Console(stderr=True)

Config = Annotated[Path, typer.Argument(metavar="GRID.TOML", help="The configuration; see docs/pipeline.md.")]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark's master, instead of the file's: local[2], spark://…, sc://…."),
]
From = Annotated[str | None, typer.Option("--from", help="First moment, ISO 8601 with zone.")]
Until = Annotated[str | None, typer.Option("--until", help="End, ISO 8601 with zone.")]
LakePath = Annotated[Path | None, typer.Option("--lake", help="Another lake than the configuration's.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write the counts here; - writes only them."),
]


@app.command("run")
def run_command(
    config: Config,
    master: Master = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="Stop after so long; without it, when asked to.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Grid what arrives, tick by tick, until Ctrl-C or SIGTERM; start it again and it goes on where it was.

    Example: sensorgrid pipeline run grid.toml
    """
    from sensorgrid.pipeline import jobs
    from sensorgrid.pipeline.sources.receiving import landing_daemons

    target, settings = arguments.read_target(json_file), _settings(config, master)
    with session_of(settings) as session, landing_daemons(settings, _say), _live() as listen:
        stop = _stop_on_signals()  # after Spark has started, which has a handler of its own
        outcome = jobs.run(session, settings, stop, seconds=seconds, listen=listen, say=_say)
    _finish("pipeline run", outcome, settings, target)


@app.command("backfill")
def backfill_command(
    config: Config, start: From = None, until: Until = None, master: Master = None, json_file: JsonFile = None
) -> None:
    """Grid what lies in the sources' files, as one batch; grids that are in the lake already are left alone.

    Example: sensorgrid pipeline backfill grid.toml --from 2022-10-22T00:00Z --until 2022-10-23T00:00Z
    """
    from sensorgrid.pipeline import jobs

    target, settings = arguments.read_target(json_file), _settings(config, master)
    first, end = _moment("--from", start), _moment("--until", until)
    with session_of(settings) as session, errors.status("starting") as status:
        _tell_unplaced(session, settings)

        def say(text: str) -> None:
            status.update(text)

        outcome = jobs.backfill(session, settings, first=first, until=end, say=say)
    for note in outcome.notes:
        _say(note)
    _finish("pipeline backfill", outcome, settings, target)


@app.command("replay")
def replay_command(
    config: Config,
    speed: Annotated[
        float, typer.Option("--speed", min=0.001, help="Seconds of the past per second; inf is possible.")
    ] = 600.0,
    start: From = None,
    until: Until = None,
    master: Master = None,
    json_file: JsonFile = None,
) -> None:
    """Send what lies in the sources' files through the stream, as if it arrived now.

    The grids go to a lake of their own, beside the configuration's; status and map show it with --lake.

    Example: sensorgrid pipeline replay grid.toml --speed 3600
    """
    from sensorgrid.pipeline import jobs

    target, settings = arguments.read_target(json_file), _settings(config, master)
    first, end = _moment("--from", start), _moment("--until", until)
    with session_of(settings) as session, _live() as listen:
        _tell_unplaced(session, settings)
        stop = _stop_on_signals()
        outcome = jobs.replay(
            session, settings, stop, speed=speed, first=first, until=end, listen=listen, say=_say
        )
    _finish("pipeline replay", outcome, jobs.replay_settings(settings), target)


@app.command("land")
def land_command(config: Config) -> None:
    """Receive the configuration's MQTT topics into landing files, until Ctrl-C or SIGTERM; Spark is not needed.

    Example: sensorgrid pipeline land grid.toml
    """
    from sensorgrid.pipeline.settings import read_settings
    from sensorgrid.pipeline.sources.receiving import land_all

    settings = read_settings(config)
    land_all(settings, _stop_on_signals(), _say)


@app.command("tidy")
def tidy_command(config: Config) -> None:
    """Join the lake's small files and remove what the configuration does not keep; safe while it runs.

    Example: sensorgrid pipeline tidy grid.toml
    """
    from sensorgrid.pipeline.lake.housekeeping import tidy
    from sensorgrid.pipeline.settings import read_settings

    for what, number in tidy(read_settings(config)).items():
        console.print(f"{what.replace('_', ' ')}: {number:,} files fewer", highlight=False)


@app.command("verify")
def verify_command(
    config: Config,
    leave_out: Annotated[
        str, typer.Option("--leave-out", metavar="SHARE", help="Share of the stations left out at a time.")
    ] = "10%",
    attribute: Annotated[
        str | None, typer.Option("--attribute", help="One of the grid's; all of them if left out.")
    ] = None,
    start: From = None,
    until: Until = None,
    ticks: Annotated[
        int, typer.Option("--ticks", min=2, help="Ticks compared, spread over the time asked for.")
    ] = 24,
    folds: Annotated[
        int | None, typer.Option("--folds", min=1, help="Stop after so many folds; all if left out.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of which stations go together.")] = 1,
    page: Annotated[
        Path | None,
        typer.Option("--page", metavar="FILE", help="Also write maps and plots, as one HTML file."),
    ] = None,
    master: Master = None,
    json_file: JsonFile = None,
) -> None:
    """Leave out stations, estimate them from the others, compare: how true are the grids of your own data?

    Nearest and inverse distance get the same readings after the same checks. The lake is not touched.

    Example: sensorgrid pipeline verify grid.toml --leave-out 10% --page verify.html
    """
    from sensorgrid.cli import pipeline_verify
    from sensorgrid.cli.output import result_of, write
    from sensorgrid.pipeline.spark.readings import networks
    from sensorgrid.pipeline.verification.folds import folds_for
    from sensorgrid.pipeline.verification.verify import verify

    target, place = arguments.read_target(json_file), arguments.read_target(page, "--page")
    share, first, end = (
        pipeline_verify.read_share(leave_out),
        _moment("--from", start),
        _moment("--until", until),
    )
    settings = _settings(config, master)
    with session_of(settings) as session, errors.status("reading the sources") as status:
        drawn = networks(
            session, settings, attribute=attribute, first=first, until=end, ticks=ticks, say=status.update
        )
    with errors.status("leaving out stations") as status:
        found = [
            one
            for network in drawn
            for one in verify(network, folds_for(share), seed, folds_run=folds, say=status.update)
        ]
    rows = [row for one in found for row in one.rows]
    args = {
        "config": config.name, "leave_out": share, "attribute": attribute, "from": start, "until": until,
        "ticks": ticks, "folds": folds, "seed": seed,
    }  # fmt: skip
    if place is not None:
        pipeline_verify.write_page(place, config, share, found)
        errors.print(f"wrote {place}", style="dim")
    if write(target, result_of("pipeline verify", args=args, rows=rows)):
        pipeline_verify.show(console, rows)


@app.command("status")
def status_command(config: Config, place: LakePath = None, json_file: JsonFile = None) -> None:
    """What the lake holds: ticks, grids, counts, and the reasons of what was refused.

    Example: sensorgrid pipeline status grid.toml
    """
    from sensorgrid.cli import pipeline_views
    from sensorgrid.cli.output import write
    from sensorgrid.pipeline.delivery.waiting import WaitingFolder
    from sensorgrid.pipeline.lake.folder import STREAM, Lake
    from sensorgrid.pipeline.settings import read_settings

    settings = read_settings(config)
    lake = Lake(str(place or settings.lake)).check()
    waiting = WaitingFolder(settings.waiting_of(), STREAM) if settings.entrance_of() and not place else None
    facts = pipeline_views.lake_facts(lake, settings.grid.grid(), waiting)
    if write(arguments.read_target(json_file), {"command": "pipeline status"} | facts):
        pipeline_views.show_lake(console, facts)


@app.command("map")
def map_command(
    config: Config,
    attribute: Annotated[
        str | None,
        typer.Option(help="Which one, or wind: its speed, with arrows; the first of the grid if left out."),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="Moment, ISO 8601 with zone; the newest tick.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="A PNG, PDF or SVG file.")] = Path("map.png"),
    place: LakePath = None,
    coast: Annotated[
        Path | None,
        typer.Option(
            "--coast", help="Other coastlines than ours: CSV with ring number, longitude, latitude."
        ),
    ] = None,
) -> None:
    """Draw a tick of the lake as a map: values, stated errors, sensors, coastlines, wind as arrows.

    Example: sensorgrid pipeline map grid.toml --attribute air_temperature --out map.png
    """
    from sensorgrid.cli import pipeline_map
    from sensorgrid.pipeline.lake.folder import Lake
    from sensorgrid.pipeline.settings import read_settings

    settings = read_settings(config)
    lake, grid = Lake(str(place or settings.lake)).check(), settings.grid.grid()
    pipeline_map.draw(lake, grid, attribute, _moment("--at", at), out, coast)
    errors.print(f"wrote {out}", style="dim")


@app.command("export")
def export_command(
    config: Config,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="A NetCDF file (.nc) or a Zarr store (.zarr).")
    ],
    attribute: Annotated[
        str | None, typer.Option("--attribute", help="One or several, with commas; all if left out.")
    ] = None,
    start: From = None,
    until: Until = None,
    place: LakePath = None,
) -> None:
    """Write grids of the lake to a file, with all that is known of every point: bounds, observations, ages.

    Example: sensorgrid pipeline export grid.toml --attribute air_temperature --out temperature.nc
    """
    from sensorgrid.client.exports import check_path, kind_of
    from sensorgrid.client.lake import read_lake
    from sensorgrid.pipeline.settings import read_settings

    settings = read_settings(config)
    check_path(out)
    if kind_of(out) == "parquet":
        raise typer.BadParameter(
            f"found {out.name}, expected .nc or .zarr: the lake is Parquet already", param_hint="--out"
        )
    names = None if attribute is None else [name.strip() for name in attribute.split(",")]
    data = read_lake(place or settings.lake, names, _moment("--from", start), _moment("--until", until))
    if kind_of(out) == "zarr":
        data.to_zarr(out, mode="w")
    else:
        data.to_netcdf(out, encoding={str(name): {"zlib": True, "complevel": 1} for name in data.data_vars})
    errors.print(f"wrote {out}: {data.sizes['time']:,} ticks", style="dim")


def _settings(config: Path, master: str | None) -> Any:
    from sensorgrid.pipeline.ingest.inlet import check_sources
    from sensorgrid.pipeline.settings import read_settings

    settings = read_settings(config)
    check_sources(settings)  # a mistake in a mapping shall not wait for Spark
    if master is None:
        return settings
    return settings.model_copy(update={"spark": settings.spark.model_copy(update={"master": master})})


def _moment(name: str, text: str | None) -> datetime | None:
    return None if text is None else arguments.moment(name, text)


@contextmanager
def session_of(settings: Any) -> Iterator[Any]:
    """A Spark session for the time of a job; what Spark itself says goes to a file beside the lake."""
    from sensorgrid.pipeline.spark.session import start_session

    spark = settings.spark
    log = Path(f"{settings.lake.rstrip('/')}.spark.log") if "://" not in settings.lake else None
    with errors.status("starting Spark"):
        session = start_session(
            spark.master,
            name="sensorgrid pipeline",
            conf=spark.conf,
            driver_memory=spark.driver_memory,
            log=log,
        )
    try:
        yield session
    finally:
        session.stop()


def _tell_unplaced(session: Any, settings: Any) -> None:
    """Say which sensors have no position, by a look at the first records of each folder that needs a table."""
    from sensorgrid.pipeline.ingest.inlet import name_of
    from sensorgrid.pipeline.ingest.sampling import sample
    from sensorgrid.pipeline.sources.mapping import read_mapping

    for source in settings.sources:
        if source.kind != "files" or (
            source.stations is None and read_mapping(source.mapping).stations.table is None
        ):
            continue
        found = sample(session, settings, source, settings.grid.grid())
        if found.unplaced:
            names = ", ".join(found.unplaced[:5]) + (", …" if len(found.unplaced) > 5 else "")
            _say(
                f"source {name_of(source)}: found {len(found.unplaced):,} of {found.sensors:,} sensors in the first"
                f" {found.records:,} records without a position ({names}), expected a line for each in its table"
            )


def _stop_on_signals() -> threading.Event:
    """An event that Ctrl-C and SIGTERM set; the second time, the process goes at once."""
    stop = threading.Event()

    def asked(number: int, _: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        errors.print("stopping after this micro-batch; once more to stop at once", style="yellow")
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, asked)
    return stop


@contextmanager
def _live() -> Iterator[Any]:
    """A listener that keeps one line of counts up to date, or writes a line per batch where nobody watches."""
    from sensorgrid.cli.pipeline_views import line_of

    if not errors.is_terminal:
        yield lambda report: errors.print(line_of(report), highlight=False, soft_wrap=True)
        return
    with errors.status("waiting for the first micro-batch") as status:
        yield lambda report: status.update(line_of(report))


def _say(text: str) -> None:
    errors.print(text, style="dim", highlight=False, soft_wrap=True)


def _finish(command: str, outcome: Any, settings: Any, target: Path | None) -> None:
    from sensorgrid.cli.output import result_of, write

    facts = {
        **outcome.total.to_dict(),
        "batches": outcome.batches,
        "unbalanced": outcome.unbalanced,
        "seconds": round(outcome.seconds, 3),
        "first": outcome.first.isoformat() if outcome.first else None,
        "last": outcome.last.isoformat() if outcome.last else None,
        "lake": settings.lake,
        "notes": outcome.notes,
        "unobserved_ticks": {name: count for name, (count, _) in outcome.unobserved.items()},
    }
    if write(target, result_of(command, **facts)):
        console.print(_summary(outcome))
        console.print(f"lake: {settings.lake}", style="dim", highlight=False, soft_wrap=True)
        for name, (count, ticks) in outcome.unobserved.items():
            if count:
                errors.print(
                    f"{name}: {count:,} of {ticks:,} ticks without a single observation;"
                    f" gaps = {settings.gridding.gaps_of(name)!r} says what stands there",
                    style="yellow", highlight=False, soft_wrap=True,
                )  # fmt: skip
    if outcome.unbalanced:
        errors.print(
            f"error: the counts of batches {outcome.unbalanced[:5]} do not add up, expected raw = used + flagged"
            " + ignored + duplicate + late + dead letter",
            style="red",
        )
        sys.exit(1)


def _summary(outcome: Any) -> Table:
    from sensorgrid.cli.pipeline_views import NOT_FLAGGED
    from sensorgrid.pipeline.lake.ledger import ENDS

    total = outcome.total
    table = Table(
        title=f"{outcome.batches:,} {'batch' if outcome.batches == 1 else 'batches'} in {outcome.seconds:.1f} s",
        title_justify="left",
    )
    table.add_column("measurements")
    table.add_column("", justify="right")
    table.add_column("of raw", justify="right")
    for name in ("raw", *ENDS):
        value = getattr(total, name)
        share = f"{value / total.raw:.1%}" if total.raw else ""
        table.add_row(name.replace("_", " "), f"{value:,}", share)
    table.add_section()
    for test, value in sorted(total.tests.items(), key=lambda item: -item[1]):
        if value and test not in NOT_FLAGGED:
            table.add_row(f"  {test}", f"{value:,}", f"{value / total.raw:.1%}" if total.raw else "")
    table.add_section()
    table.add_row("suspect, used all the same", f"{total.suspect:,}", "")
    table.add_row("grids published", f"{total.blocks:,}", "")
    table.add_row("without an observation", f"{total.unobserved:,}", "")
    if outcome.first and outcome.last:
        table.add_row("ticks", f"{outcome.first:%Y-%m-%d %H:%M} to", f"{outcome.last:%Y-%m-%d %H:%M}")
    return table
