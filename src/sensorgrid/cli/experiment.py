"""`sensorgrid experiment`: a paper's evaluation as a command."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from sensorgrid.cli import arguments
from sensorgrid.cli.output import result_of, write

app = typer.Typer(help="The papers' evaluations: table, figures, bounds.", no_args_is_help=True)
console = Console()
errors = Console(stderr=True)

Row = dict[str, Any]
T = TypeVar("T")
FAULT_SEEDS = "1-1000"
SAY_S = 10.0
"""how often a sweep says how far it is where there is no terminal for a bar"""
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write the table here; - writes it instead."),
]


@app.callback()
def _experiments() -> None:
    """The papers' evaluations: table, figures, bounds."""


@app.command("multires")
def multires_command(
    json_file: JsonFile = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The large hot spot, 2 and 4 dimensions, depths 8 and 10.")
    ] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of queries and worlds.")] = "1",
    hotspot: Annotated[str | None, typer.Option(help="Some of large, small, single, with commas.")] = None,
    dims: Annotated[
        str | None, typer.Option(help="Some of 2, 3, 4, 5 indexed dimensions, with commas.")
    ] = None,
    depth: Annotated[str | None, typer.Option(help="Some of the index depths 4 to 12, with commas.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="Some of paper, literal, ours-local, ours, with commas.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="FOLDER", help="Draw figures 4 to 11 there.")
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(
            "--spark", metavar="MASTER", help="Spread the runs over Spark: local[2], spark://…, sc://…"
        ),
    ] = None,
) -> None:
    """How much load 16 brokers serve before the first refusal, and what replication costs (multires, section 5).

    The full sweep has 540 runs a seed, bounds included; the options narrow it.

    Example: sensorgrid experiment multires --quick --json multires.json
    """
    from dataclasses import replace

    from sensorgrid.experiments import multires
    from sensorgrid.experiments.figures import check, draw

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    plan = multires.QUICK if quick else multires.FULL
    narrowed: dict[str, Any] = {
        "hotspots": _list("--hotspot", hotspot, str),
        "dims": _list("--dims", dims, int),
        "depths": _list("--depth", depth, int),
        "policies": _list("--policy", policy, str),
    }
    plan = replace(plan, **{name: values for name, values in narrowed.items() if values})
    cases = plan.cases(chosen)
    if figures is not None:
        check(figures)

    def title(case: multires.MultiresCase) -> str:
        return f"{case.hotspot}, {case.dims} dimensions, depth {case.depth}, {case.policy}, seed {case.seed}"

    rows = multires.joined(_swept(cases, spark, title))
    args = {"quick": quick, "seeds": seeds, "spark": spark} | {k: list(v) for k, v in narrowed.items() if v}
    if write(target, result_of("experiment multires", args=args, rows=rows)):
        _show(rows)
    if figures is not None:
        for path in draw(rows, figures):
            errors.print(f"wrote {path}", style="dim")


@app.command("faults")
def faults_command(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="A hundred schedules; 30 with --open.")] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="One schedule each.")] = FAULT_SEEDS,
    spark: Annotated[
        str | None, typer.Option("--spark", metavar="MASTER", help="Spread the schedules over Spark.")
    ] = None,
    relays: Annotated[
        bool,
        typer.Option("--relays", help="Brokers relay by a strategy at random; delays change, clients move."),
    ] = False,
    is_open: Annotated[
        bool,
        typer.Option(
            "--open",
            help="An open network: brokers join, leave, die for good, flap, lose the store.",
        ),
    ] = False,
    operators: Annotated[
        bool, typer.Option("--operators", help="Besides, clients watch results of operators.")
    ] = False,
) -> None:
    """Attack small worlds with random faults and check that every query ends as it should.

    Connections break or go half-open, brokers crash, pause, are cut off, regions change owner, queries come and go.
    In the end every query must have got exactly its points, or be suspended for lack of budget. Exit code 1 if not.
    In an open network, besides, each region has one owner at a time, is never long without a living one, and in the
    end those who live are members. Watchers of operators must have every tick, in order, and in the end bit for bit
    what one process calculates.

    Example: sensorgrid experiment faults --seeds 1-10000
    """
    from sensorgrid.experiments import faults

    if relays and is_open:
        raise arguments.ArgumentError("faults: found --relays and --open, expected one of them")

    few = "1-30" if is_open else "1-100"
    seeds = few if quick and seeds == FAULT_SEEDS else seeds
    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    _check_master(spark)
    cases = faults.cases(chosen[0], chosen[-1], relays, is_open, operators)

    def told(portion: Row) -> None:
        for row in portion["schedules"]:
            if row["problems"]:  # at once: a long run may be stopped before its end
                said = f"seed {row['seed']}: {row['problems'][0]}"
                errors.print(said, style="red", highlight=False, markup=False)
                option = " --relays" if relays else " --open" if is_open else ""
                option += " --operators" if operators else ""
                again = f"sensorgrid experiment faults{option} --seeds {row['seed']}"
                errors.print(f"  again: {again}", highlight=False)

    def title(case: faults.FaultsCase) -> str:
        return f"seeds {case.first} to {case.last}"

    rows = faults.rows_of(_swept(cases, spark, title, told))
    found = faults.summary(rows)
    args = {"quick": quick, "seeds": seeds, "relays": relays, "open": is_open, "operators": operators}
    if write(target, result_of("experiment faults", args=args, summary=found, rows=rows)):
        wrong = len(found["failed"])
        verdict = f"{wrong:,} do not end as they should" if wrong else "all end as they should"
        console.print(f"{found['schedules']:,} schedules: {verdict}", highlight=False)
        struck = ", ".join(f"{kind} {number:,}" for kind, number in found["faults"].items())
        for what, value in (
            ("faults", struck),
            ("struck while streams ran over two brokers or more", f"{found['two_levels_share']:.1%}"),
            ("queries served to the end", f"{found['served']:,}"),
            ("suspended in the end for lack of bandwidth", f"{found['suspended']:,}"),
            ("refused when they were posed", f"{found['refused']:,}"),
            ("circles of crossed redirects, dissolved", f"{found['circles_left']:,}"),
        ):
            console.print(f"  {what}: {value}", highlight=False)
    if found["failed"]:
        raise typer.Exit(1)


@app.command("relays")
def relays_command(
    json_file: JsonFile = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="32 brokers, 240 clients, four minutes; all placements and strategies."),
    ] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of networks and queries.")] = "1",
    topology: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:NAME]",
            help="Real networks instead of a generated internet: all of a file, or one.",
        ),
    ] = None,
    latency: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Measured round trips between cities, for the delays of --topology."
        ),
    ] = None,
    placement: Annotated[str | None, typer.Option(help="Some of core, edge, full, with commas.")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="Some of OFF, DIRECT, CTD, CTS, FFS, CTP, TREE, with commas.")
    ] = None,
    k: Annotated[str | None, typer.Option("--k", help="Sizes of the neighbourhood, with commas.")] = None,
    delta: Annotated[
        str | None, typer.Option("--delta", help="Δ: streams that share fewer points are not split for it.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Simulated; 20 in the paper.")] = None,
    brokers: Annotated[int | None, typer.Option(help="48 in the paper.")] = None,
    clients: Annotated[int | None, typer.Option(help="577 in the paper.")] = None,
    systems: Annotated[int | None, typer.Option(help="Autonomous systems; 7 in the paper.")] = None,
    added: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="How much later than by the shortest way TREE may feed anybody."
        ),
    ] = None,
    same: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Ways that differ by less are equally long to CTP."),
    ] = None,
    hops: Annotated[
        bool,
        typer.Option(
            "--hops/--no-hops", help="Whether brokers can know the links between them; else TREE uses delays."
        ),
    ] = True,
    cells: Annotated[
        str | None,
        typer.Option(
            help="How queries are cut: usual (TREE into atoms, the others as little as possible), atoms, fewest."
        ),
    ] = None,
    ramp: Annotated[
        bool, typer.Option("--ramp/--no-ramp", help="Also the load that grows (figure 5).")
    ] = True,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures",
            metavar="FOLDER",
            help="Draw traffic, delays and the ramp there (needs sensorgrid\\[plot]).",
        ),
    ] = None,
    spark: Annotated[
        str | None, typer.Option("--spark", metavar="MASTER", help="Spread the runs over Spark.")
    ] = None,
) -> None:
    """How much traffic relay strategies save, against the least that is possible (relays, section 5).

    One seed of the paper's size has 21 runs, 7 ramps and 3 bounds; the options narrow it.

    Example: sensorgrid experiment relays --quick --json relays.json
    """
    from dataclasses import replace

    from sensorgrid.cli.experiment_relays import show, topologies_of
    from sensorgrid.experiments import relay_figures, relays
    from sensorgrid.experiments.figures import check

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    narrowed: dict[str, Any] = {
        "topologies": topologies_of(topology),
        "placements": _list("--placement", placement, str),
        "strategies": _list("--strategy", strategy, str),
        "ks": _list("--k", k, int),
        "deltas": _list("--delta", delta, int),
        "minutes": minutes,
        "brokers": brokers,
        "clients": clients,
        "systems": systems,
        "latency": None if latency is None else str(latency),
        "added_s": added,
        "same_s": same,
        "hops": hops,
        "cells": cells,
        "ramp": ramp,
    }
    plan = relays.QUICK if quick else relays.FULL
    plan = replace(plan, **{name: value for name, value in narrowed.items() if value not in ((), None)})
    cases = plan.cases(chosen)
    if figures is not None:
        check(figures)
    rows, steps = relays.joined(_swept(cases, spark, lambda case: case.title))
    args = {"quick": quick, "seeds": seeds, "spark": spark} | {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in narrowed.items()
        if value not in ((), None)
    }
    if write(target, result_of("experiment relays", args=args, rows=rows, ramp=steps)):
        show(console, rows, steps)
    if figures is not None:
        for path in relay_figures.draw(rows, steps, figures):
            errors.print(f"wrote {path}", style="dim")


@app.command("moving")
def moving_command(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="One storm.")] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of the queries.")] = "1",
    storms: Annotated[int, typer.Option(min=1, help="So many storms of at most five days.")] = 10,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder with storm-tracks; else SENSORGRID_DATA, ../shared/data."),
    ] = None,
    spark: Annotated[
        str | None, typer.Option("--spark", metavar="MASTER", help="Spread the runs over Spark.")
    ] = None,
) -> None:
    """Clients follow real storms: a policy that anticipates against one that reacts (multires, section 6).

    Example: sensorgrid experiment moving --quick
    """
    from sensorgrid.benchmarks.truth import data_folder
    from sensorgrid.experiments import moving

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    _check_master(spark)
    path = data_folder(data, "storm-tracks") / "storm-tracks" / "ibtracs_wmo.csv.gz"
    cases = moving.cases(1 if quick else storms, chosen, path)
    found = _swept(cases, spark, lambda case: f"storm {case.track + 1}, {case.policy}")
    rows = sorted(found, key=lambda r: (r["track"], r["seed"], r["policy"]))
    args = {"quick": quick, "seeds": seeds, "storms": storms, "spark": spark}
    if write(target, result_of("experiment moving", args=args, rows=rows)):
        table = Table(title="Clients that follow a storm", title_justify="left")
        for name in ("storm", "policy"):
            table.add_column(name)
        for name in ("queries", "refused", "wait p95", "p99", "replication", "moves"):
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(
                row["storm"], row["policy"], f"{row['queries']:,}", f"{row['refused_share']:.1%}",
                f"{row['wait_p95_s'] * 1e3:.0f} ms", f"{row['wait_p99_s'] * 1e3:.0f} ms",
                f"{row['replication']:.3f}", f"{row['delegations']:,}",
            )  # fmt: skip
        console.print(table)


@app.command("membership")
def membership_command(
    json_file: JsonFile = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Networks of 8 and 50 brokers, and a few minutes of streams.")
    ] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of places and changes.")] = "1",
    kind: Annotated[
        str | None, typer.Option(help="Some of lookup, churn, rest, with commas; all without.")
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(help="How many brokers look each other up, with commas.")
    ] = None,
    spark: Annotated[
        str | None, typer.Option("--spark", metavar="MASTER", help="Spread the runs over Spark.")
    ] = None,
) -> None:
    """Brokers that come and go: hops and links of lookups, streams under churn, networks at rest (operators, III-A).

    Example: sensorgrid experiment membership --quick --json membership.json
    """
    from dataclasses import replace

    from sensorgrid.cli.experiment_membership import show
    from sensorgrid.experiments import membership

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    plan = membership.QUICK if quick else membership.FULL
    sizes, kinds = _list("--brokers", brokers, int), _some("--kind", kind, membership.KINDS)
    if any(not 2 <= size <= membership.BROKERS_MAX for size in sizes):
        raise arguments.ArgumentError(
            f"--brokers: found {brokers}, expected numbers from 2 to {membership.BROKERS_MAX:,}"
        )
    plan = replace(plan, sizes=sizes) if sizes else plan
    cases = [case for case in plan.cases(chosen) if not kinds or case.kind in kinds]
    rows = membership.joined(_swept(cases, spark, lambda case: case.title))
    narrowed = {"brokers": list(sizes), "kind": list(kinds)}
    args = {"quick": quick, "seeds": seeds, "spark": spark} | {k: v for k, v in narrowed.items() if v}
    if write(target, result_of("experiment membership", args=args, rows=rows)):
        show(console, rows)


@app.command("operators")
def operators_command(
    json_file: JsonFile = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Filters that let half of the readings pass only.")
    ] = False,
    seeds: Annotated[str, typer.Option(metavar="A[-B]", help="Of areas and subscribers.")] = "1",
    system: Annotated[
        str | None, typer.Option(help="Some of paper, ours, dsm, dsm-calc, with commas; all without.")
    ] = None,
    areas: Annotated[
        str | None, typer.Option(help="Some of disjoint, overlapping, with commas; all without.")
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Some of id-space, geographic, with commas; all without.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Messages of a sensor per second, with commas; 1, 3 and 4 without.")
    ] = None,
    merge: Annotated[
        str,
        typer.Option(
            help="What a merge of partial results sends: one message a tick (tick), or all it gets (keep)."
        ),
    ] = "tick",
    expressions: Annotated[
        int, typer.Option(min=1, max=20, help="Subscriptions calculate so many different things, by turns.")
    ] = 1,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures", metavar="FOLDER", help="Draw figures 8 to 13 there (needs sensorgrid\\[plot])."
        ),
    ] = None,
    spark: Annotated[
        str | None, typer.Option("--spark", metavar="MASTER", help="Spread the runs over Spark.")
    ] = None,
) -> None:
    """Load of nodes that filter and calculate on the way, placed and moved by four systems (operators, IV).

    One seed has 192 runs; the options narrow it.

    Example: sensorgrid experiment operators --quick --json operators.json
    """
    from dataclasses import replace

    from sensorgrid.cli.experiment_operators import show
    from sensorgrid.experiments import operator_figures, operators
    from sensorgrid.experiments.figures import check

    target, chosen = arguments.read_target(json_file), arguments.read_seeds(seeds)
    narrowed: dict[str, Any] = {
        "systems": _some("--system", system, operators.SYSTEMS),
        "areas": _some("--areas", areas, operators.AREAS),
        "nodes": _some("--nodes", nodes, operators.NODES),
        "rates": _list("--rate", rate, int),
        "merge": _some("--merge", merge, operators.MERGES)[0],
        "expressions": expressions,
    }
    if any(not 1 <= each <= operators.RATE_MAX for each in narrowed["rates"]):
        raise arguments.ArgumentError(
            f"--rate: found {rate}, expected numbers from 1 to {operators.RATE_MAX}"
        )
    plan = operators.QUICK if quick else operators.FULL
    plan = replace(plan, **{name: value for name, value in narrowed.items() if value})
    cases = plan.cases(chosen)
    if figures is not None:
        check(figures)
    rows = operators.sorted_rows(_swept(cases, spark, lambda case: case.title))
    args = {"quick": quick, "seeds": seeds, "spark": spark} | {
        name: list(value) if isinstance(value, tuple) else value for name, value in narrowed.items() if value
    }
    if write(target, result_of("experiment operators", args=args, rows=rows)):
        show(console, rows)
    if figures is not None:
        for path in operator_figures.draw(rows, figures):
            errors.print(f"wrote {path}", style="dim")


def _swept(
    cases: Sequence[Any],
    spark: str | None,
    title: Callable[[Any], str],
    told: Callable[[Row], None] = lambda _: None,
) -> list[Row]:
    """Play all cases, with a bar that names the one that has ended last; `told` hears of each at once."""
    from sensorgrid.experiments.sweep import sweep

    _check_master(spark)
    ended, said_s = 0, time.monotonic()
    with _progress() as progress, on_sigterm():
        task = progress.add_task("the first run compiles, which takes a while", total=len(cases))

        def done(count: int, case: Any, row: Row) -> None:
            nonlocal ended, said_s
            ended = count
            told(row)
            progress.update(task, completed=count, description=title(case))
            if not errors.is_terminal and time.monotonic() - said_s > SAY_S:
                said_s = time.monotonic()
                errors.print(f"{count} of {len(cases)} runs, last {title(case)}", highlight=False)

        try:
            return sweep(cases, spark, done)
        except (KeyboardInterrupt, SystemExit):
            errors.print(f"stopped after {ended} of {len(cases)} runs; nothing was written", highlight=False)
            raise


@contextmanager
def on_sigterm() -> Iterator[None]:
    """SIGTERM ends long work as Ctrl-C does: in good order, with the code that shells expect."""

    def stop(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_master(spark: str | None) -> None:
    known = ("local", "spark://", "yarn", "k8s://", "sc://")
    if spark is not None and not spark.startswith(known):
        raise arguments.ArgumentError(
            f"--spark: found {spark!r}, expected local[N], spark://…, yarn, k8s://… or sc://…"
        )


def _list(name: str, text: str | None, convert: Callable[[str], T]) -> tuple[T, ...]:
    try:
        return () if text is None else tuple(convert(part.strip()) for part in text.split(","))
    except ValueError:
        raise arguments.ArgumentError(f"{name}: found {text!r}, expected whole numbers with commas") from None


def _some(name: str, text: str | None, known: Sequence[str]) -> tuple[str, ...]:
    """Names with commas, each of which is known."""
    found = _list(name, text, str)
    for each in found:
        if each not in known:
            raise arguments.ArgumentError(f"{name}: found {each!r}, expected some of {', '.join(known)}")
    return found


def _progress() -> Progress:
    return Progress(
        TextColumn("[progress.description]{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
        TimeElapsedColumn(), console=errors, transient=True,
    )  # fmt: skip


def _show(rows: list[Row]) -> None:
    from sensorgrid.experiments import claims

    table = Table(
        title="Load served until the first refusal, and what it cost", title_justify="left", box=SIMPLE_HEAD
    )
    table.add_column("case", no_wrap=True)
    table.add_column("policy", no_wrap=True)
    for name in ("load", "/bound", "copies", "share", "conn.", "msgs"):
        table.add_column(name, justify="right", no_wrap=True)
    before = ""
    for row in claims.against_bounds(rows):
        case = f"{row['hotspot']} {row['dims']}D {row['depth']:>2}"
        if before and case != before:
            table.add_section()
        table.add_row(
            "" if case == before else case, row["policy"], f"{row['load']:.2f}", f"{row['load_ratio']:.1%}",
            _ratio(row["replication_ratio"]), f"{row['replication_share']:.2%}", f"{row['connections']:.1f}",
            f"{row['messages']:,.0f}",
        )  # fmt: skip
        before = case
    console.print(table)
    console.print(
        "case: hot spot, dimensions, depth; load in worlds, at most 25; /bound: of the most that is possible;"
        " copies: replication at load 20, as a multiple of the least that is possible; share: replication of all"
        " outgoing bandwidth; conn.: streams between brokers, per broker; msgs: of brokers about moves",
        style="dim",
    )
    savings = claims.savings(rows)
    if savings:
        table = Table(
            title="Replication saved at equal load, 4 dimensions against 2",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        for name in ("hot spot", "depth", "policy"):
            table.add_column(name, no_wrap=True)
        table.add_column("saved", justify="right", min_width=40)
        for row in savings:
            half = "" if row["half"] is None else f" ± {row['half']:.1%}"
            table.add_row(row["hotspot"], str(row["depth"]), row["policy"], f"{row['saving']:.1%}{half}")
        console.print(table)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
