"""`sensorgrid operator`: values that are calculated from grids, in the past and ahead of time."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sensorgrid.cli import arguments
from sensorgrid.cli.output import result_of, write

if TYPE_CHECKING:
    from sensorgrid.operators.plan import OperatorPlan

app = typer.Typer(
    help="Values that are calculated from grids: what they mean, and what they were.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
console = Console()
errors = Console(stderr=True)

Config = Annotated[Path, typer.Argument(metavar="GRID.TOML", help="The configuration, with [areas].")]
Value = Annotated[
    str, typer.Argument(metavar="EXPRESSION", help="What to calculate, in CQL2; see docs/operators.md.")
]
When = Annotated[str | None, typer.Option("--when", help="A condition: no value while it does not hold.")]
UntilHolds = Annotated[str | None, typer.Option("--until-holds", help="Values go on until this holds.")]
Every = Annotated[str | None, typer.Option("--every", help="How far apart results are, such as 1h.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write the result here; - writes only it."),
]


@app.command("explain")
def explain_command(
    config: Config,
    value: Value,
    when: When = None,
    until_holds: UntilHolds = None,
    every: Every = None,
    network: Annotated[
        bool, typer.Option("--network", help="Also say which broker would calculate what, and send how much.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Say what an operator means and what it costs: terms, areas, regions, bytes against shipping the fields.

    Example: sensorgrid operator explain grid.toml "mean(air_temperature, BBOX(-10, 35, 30, 60))"
    """
    from sensorgrid.pipeline.settings import read_settings

    target = arguments.read_target(json_file)
    settings = read_settings(config)
    facts = facts_of(_plan(settings, value, when, until_holds, every))
    if network:
        facts["network"] = placement_of(config, settings, value, when, until_holds, every)
    if write(target, result_of("operator explain", **facts)):
        _show_facts(facts)
        if network:
            _show_placement(facts["network"])


@app.command("backfill")
def backfill_command(
    config: Config,
    value: Value,
    when: When = None,
    until_holds: UntilHolds = None,
    every: Every = None,
    start: Annotated[str | None, typer.Option("--from", help="First moment, ISO 8601 with zone.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="End, ISO 8601 with zone.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the results here: .parquet or .csv.")
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", help="Spark's master, instead of the file's.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Calculate an operator over the grids of the lake, as one Spark job.

    Example: sensorgrid operator backfill grid.toml "mean(air_temperature) - 273.15" --out mean.csv
    """
    from sensorgrid.cli import pipeline
    from sensorgrid.pipeline.lake.folder import Lake
    from sensorgrid.pipeline.settings import read_settings
    from sensorgrid.pipeline.spark import operators

    target = arguments.read_target(json_file)
    if out is not None and out.suffix not in (".parquet", ".csv"):
        raise arguments.ArgumentError(
            f"--out: found {str(out)!r}, expected a file that ends in .parquet or .csv"
        )
    settings = read_settings(config)
    if master is not None:
        settings = settings.model_copy(update={"spark": settings.spark.model_copy(update={"master": master})})
    lake = Lake(settings.lake).check()
    grid = settings.grid.grid()
    plan = _plan(settings, value, when, until_holds, every, operators.lengths_of(lake, grid))
    first, last = operators.span_of(lake, plan)
    if start is not None:
        first = grid.tick_from(arguments.moment("--from", start))
    if until is not None:
        last = grid.tick_from(arguments.moment("--until", until)) - 1
    if last < first:
        raise arguments.ArgumentError("--until: found no tick after --from, expected one")
    with pipeline.session_of(settings) as session, errors.status("calculating"):
        table = operators.backfill(session, lake, plan, first, last)
    if out is not None:
        _keep(table, out)
    rows = table.to_pylist()
    facts = {"operator": plan.name, "unit": plan.unit, "digest": plan.digest}
    plain = [row | {"time": row["time"].isoformat()} for row in rows]
    if write(target, result_of("operator backfill", **facts, rows=plain)):
        _show_rows(plan, rows)


def _plan(
    settings: Any,
    value: str,
    when: str | None,
    until: str | None,
    every: str | None,
    lengths_m: dict[str, float] | None = None,
) -> "OperatorPlan":
    from sensorgrid.operators.correlation import LENGTHS_M
    from sensorgrid.operators.plan import Operator, compile

    lengths = LENGTHS_M | (lengths_m or {})
    return compile(Operator(value, when, until, every), settings.grid.grid(), settings.areas_of(), lengths)


def facts_of(plan: "OperatorPlan") -> dict[str, Any]:
    """What an operator means and costs on its grid, before any network is asked."""
    from sensorgrid.pipeline.gridding.regions import Regions

    grid, regions = plan.grid, Regions(plan.grid)
    terms: list[dict[str, Any]] = []
    raw: dict[tuple[str, int], int] = {}
    for term in plan.terms:
        parts = {number: term.weights(box) for number, box in enumerate(regions.boxes)}
        met = [number for number, part in parts.items() if part is not None]
        for number in met:
            points = getattr(parts[number], "points", 0)
            raw[term.attribute, number] = max(raw.get((term.attribute, number), 0), points)
        terms.append(
            {
                "term": f"{term.function}({term.attribute})", "digest": term.digest, "points": term.whole.points,
                "regions": [regions.name(number) for number in met], "partial_bytes": 8 * term.width,
                "bytes_per_tick": 8 * term.width * len(met),
            }
        )  # fmt: skip
    partial_bytes = sum(term["bytes_per_tick"] for term in terms)
    # A field travels with its standard errors, and at best only the points that an area meets do.
    raw_bytes = sum(raw.values()) * grid.value_bytes * 2
    return {
        "operator": plan.name, "digest": plan.digest, "unit": plan.unit, "window_ticks": plan.window,
        "every_ticks": plan.every, "terms": terms, "bytes_per_tick": partial_bytes, "raw_bytes_per_tick": raw_bytes,
        "saving": raw_bytes / partial_bytes,
    }  # fmt: skip


def placement_of(
    config: Path, settings: Any, value: str, when: str | None, until: str | None, every: str | None
) -> dict[str, Any]:
    """Which broker of the newest roster would calculate what, and what goes between them."""
    from sensorgrid.cli.network import roster_of_file
    from sensorgrid.index.cell import Cell
    from sensorgrid.operators.plan import Operator, compile
    from sensorgrid.overlay.forecast import forecast
    from sensorgrid.overlay.formulas import ResultFormula

    grid, roster = roster_of_file(config)
    found = forecast(
        ResultFormula(compile(Operator(value, when, until, every), grid, settings.areas_of())), roster
    )
    streams = [
        {
            "kind": s.kind, "what": s.what, "cell": str(Cell(s.name.cell)), "broker": s.broker, "to": list(s.to),
            "bytes": s.bytes,
        }
        for s in found.streams
    ]  # fmt: skip
    return {
        "roster": roster.version, "streams": streams, "bytes_per_tick": found.bytes,
        "raw_bytes_per_tick": found.raw_bytes,
    }  # fmt: skip


def _show_placement(found: dict[str, Any]) -> None:
    table = Table(title=f"brokers, by roster {found['roster']}", title_justify="left")
    for name in ("stream", "of", "cell", "broker", "sent to", "bytes per tick"):
        table.add_column(name, justify="right" if name.startswith(("broker", "bytes")) else "left")
    for s in found["streams"]:
        to = ", ".join(map(str, s["to"])) or "–"
        table.add_row(s["kind"], s["what"], s["cell"] or "all", str(s["broker"]), to, f"{s['bytes']:,}")
    console.print(table)
    console.print(
        f"{found['bytes_per_tick']:,} bytes per tick between brokers, against {found['raw_bytes_per_tick']:,} of the"
        " values themselves",
        highlight=False,
        soft_wrap=True,
    )


def _show_facts(facts: dict[str, Any]) -> None:
    table = Table(title=escape(facts["operator"]), title_justify="left")
    table.add_column("term")
    for name in ("points", "regions", "bytes of a partial", "bytes per tick"):
        table.add_column(name, justify="right")
    for term in facts["terms"]:
        numbers = (term["points"], len(term["regions"]), term["partial_bytes"], term["bytes_per_tick"])
        table.add_row(term["term"], *(f"{number:,}" for number in numbers))
    console.print(table)
    console.print(
        f"looks at {facts['window_ticks']} ticks; {facts['bytes_per_tick']:,} bytes per tick leave the regions, against"
        f" {facts['raw_bytes_per_tick']:,} of the points of their areas: {facts['saving']:,.1f} times fewer",
        highlight=False,
        soft_wrap=True,
    )


def _show_rows(plan: "OperatorPlan", rows: list[dict[str, Any]]) -> None:
    title = f"{plan.name}{f' ({plan.unit})' if plan.unit else ''}"
    table = Table(title=escape(title), title_justify="left")
    for name in ("time", "value", "error", "points", "coverage", "why not"):
        table.add_column(name, justify="left" if name in ("time", "why not") else "right")
    for row in rows:
        value = "" if row["value"] is None else f"{row['value']:.6g}"
        error = "" if row["error"] is None else f"{row['error']:.3g}"
        when = f"{row['time']:%Y-%m-%d %H:%M:%S}"
        table.add_row(when, value, error, f"{row['points']:,}", f"{row['coverage']:.0%}", row["reason"])
    console.print(table)


def _keep(table: Any, out: Path) -> None:
    if out.suffix == ".csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(table, out)
    else:
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, out)
    errors.print(f"wrote {out}", style="dim")
