"""`sensorgrid experiment relays`: what relay strategies save, as tables."""

from statistics import mean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from sensorgrid.experiments.claims import interval

Row = dict[str, Any]


def topologies_of(text: str | None) -> tuple[str, ...]:
    """The networks that `--topology` names: FILE, all in it, or FILE:NAME."""
    from sensorgrid.cli.arguments import ArgumentError
    from sensorgrid.experiments.relay_stage import split_topology
    from sensorgrid.experiments.relays import topologies_in

    if text is None:
        return ()
    file, name = split_topology(text)
    known = topologies_in(file)  # says so if there is no such file
    if not known:
        raise ArgumentError(f"--topology: found no network in {file}, expected one or more")
    wanted = tuple(t for t in known if not name or split_topology(t)[1] == name)
    if not wanted:
        some = ", ".join(split_topology(t)[1] for t in known[:5])
        raise ArgumentError(f"--topology: found no {name!r} in {file}, expected one of its networks: {some}…")
    return wanted


def show(console: Console, rows: list[Row], ramp: list[Row]) -> None:
    """Means over the seeds, strategy by strategy."""
    table = Table(
        title="Traffic and delay by relay strategy",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("place", no_wrap=True)
    table.add_column("strategy", no_wrap=True)
    for name in ("saved", "/bound", "stretch", "delay", "changes", "streams"):
        table.add_column(name, justify="right", no_wrap=True)

    def key(row: Row) -> tuple[Any, ...]:
        return row["topology"], row["placement"], row["k"], row["delta"]

    before: Any = None
    cases: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        cases.setdefault((*key(row), row["strategy"]), []).append(row)
    for case, mine in cases.items():
        place = case[0] if case[0] != "internet" else case[1]
        if before is not None and place != before:
            table.add_section()
        name = mine[0]["strategy"]
        if name not in ("OFF", "DIRECT", "TREE"):
            name = f"{name} {case[2]}" + (f" Δ{case[3]}" if case[3] else "")
        saved = interval(r["reduction"] for r in mine)
        assert saved is not None
        ratios = [r["bound_ratio"] for r in mine if r["bound_ratio"] is not None]
        ratio = f"{mean(ratios):.3f}" if ratios else "-"
        half = f" ±{saved.half:.0%}" if saved.half else ""
        table.add_row(
            place if place != before else "", name, f"{saved.mean:.1%}{half}", ratio,
            f"{mean(r['stretch'] for r in mine):.2f}",
            _seconds(mean(r["delay_mean_s"] for r in mine)),
            f"{mean(r['tree_changes_per_event'] for r in mine):.2f}", f"{mean(r['fragments'] for r in mine):.1f}",
        )  # fmt: skip
        before = place
    console.print(table)
    console.print(
        "place: brokers at core and gateway routers, at edge routers, or at any (full); DIRECT: over the broker next to"
        " the client; CTD, CTS: relay closest to destination, to source; FFS: farthest from source; CTP: closest to"
        " path; TREE: ours. saved: of the traffic between core and gateway routers without relays (OFF), over the whole"
        " run; /bound: traffic as a multiple of the least that is possible, at four instants once the load is up;"
        " stretch: links on the way over those of the direct way; delay: until a tick is complete at the client's line,"
        " uplinks of 1 Gbit/s; changes: of provider, per query posed or ended; streams: between brokers, per query",
        style="dim",
    )
    refused = sum(r["refused"] for r in rows)
    if refused:
        console.print(
            f"{refused:,} queries were refused or suspended: the traffic of their strategies is too low"
        )
    if ramp:
        last = max(r["time_s"] for r in ramp)
        table = Table(
            title="A gateway with bandwidth for half of its queries unmerged",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        table.add_column("strategy")
        times = [t for t in (60.0, 120.0, 180.0, 240.0, 300.0, last) if any(r["time_s"] == t for r in ramp)]
        for time in times:
            table.add_column(f"{time:.0f} s", justify="right")
        for strategy in dict.fromkeys(r["strategy"] for r in ramp):
            cells = [
                _seconds(
                    mean(r["delay_mean_s"] for r in ramp if r["strategy"] == strategy and r["time_s"] == t)
                )
                for t in times
            ]
            table.add_row(strategy, *cells)
        console.print(table)


def _seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s" if value < 100 else f"{value:.0f} s"
