"""`sensorgrid bench`: benchmarks as commands."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]


def show_index(console: Console, rows: list[Row]) -> None:
    """The index benchmark as a table of ratios."""
    from sensorgrid.benchmarks import index  # imports the compiler, for which no other command should wait

    by_case: dict[tuple[str, int], dict[tuple[str, str], Row]] = defaultdict(dict)
    for row in rows:
        if row["stored"]:
            by_case[row["distribution"], row["stored"]][row["impl"], row["operation"]] = row
    times = {
        (r["distribution"], r["stored"], r["mode"], r["operation"]): r["ratio"] for r in index.ratios(rows)
    }
    for mode, what in (("batch", "many per call"), ("single", "one per call")):
        table = Table(title=f"times as fast as rtree (libspatialindex), {what}", title_justify="left")
        table.add_column("boxes")
        for name in ("stored", "insert", "lookup", "remove", "per hit", "bytes", "rtree's"):
            table.add_column(name, justify="right")
        for (distribution, stored), found in by_case.items():
            lookup = found[f"sensorgrid-{mode}", "lookup"]
            per_hit = f"{lookup['seconds_per_hit'] * 1e9:.1f} ns" if mode == "batch" else ""
            ratios = (times[distribution, stored, mode, name] for name in ("insert", "lookup", "remove"))
            table.add_row(
                distribution,
                f"{stored:,}",
                *(f"{ratio:,.1f}" for ratio in ratios),
                per_hit,
                f"{lookup['bytes_per_query']:.0f}",
                f"{found['rtree-batch', 'lookup']['bytes_per_query']:.0f}",
            )
        console.print(table)
    console.print("Same boxes, same hits. Bytes are per stored query. rtree removes one by one.", style="dim")
    harder = Table(title="batch insert where it is harder, against rtree's bulk load", title_justify="left")
    harder.add_column("boxes")
    for name in ("stored", "owners shuffled", "owners up to 2^62", "second half"):
        harder.add_column(name, justify="right")
    for distribution, stored in by_case:
        ratios = (
            times[distribution, stored, f"batch-{kind}", "insert"]
            for kind in ("shuffled", "sparse", "second")
        )
        harder.add_row(distribution, f"{stored:,}", *(f"{value:.1f}" for value in ratios))
    console.print(harder)
    for row in rows:
        if row["operation"] == "decompose":
            console.print(
                f"decompose at depth {row['depth']}: half of the hot spot's queries under"
                f" {row['seconds_p50'] * 1e6:.0f} µs, 95 % under {row['seconds_p95'] * 1e6:.0f} µs;"
                f" {row['share_under_1_ms']:.1%} under 1 ms"
            )
        if row["operation"] == "slices":
            console.print(f"cell.slices: {1e6 / row['per_second']:.1f} µs")
        if row["operation"] == "carrier":
            way = "by prefixes in a table" if row["impl"].startswith("prefixes") else "by the tree"
            console.print(
                f"which of {row['cells']:,} carried cells contains this one, {way}: {1e6 / row['per_second']:.2f} µs"
            )


def show_asked(console: Console, title: str, lines: Iterable[tuple[str, str, str]]) -> None:
    """What is asked, what was found, whether it holds."""
    table = Table(title=title, title_justify="left")
    for name in ("asked", "found", "holds"):
        table.add_column(name)
    for line in lines:
        table.add_row(*line)
    console.print(table)
