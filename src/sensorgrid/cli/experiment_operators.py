"""The table of `sensorgrid experiment operators`."""

from collections.abc import Iterable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from sensorgrid.experiments.claims import interval

Row = dict[str, Any]

COLUMNS = {
    "peak": "peak", "over_threshold": "over 500", "mean": "mean", "p95": "p95", "orders": "orders",
    "lookups_mean_hops": "hops",
}  # fmt: skip
NOTES = (
    "messages per second in and out of a node, when 20 subscriptions run; ±: 95 % over the seeds. balanced: whether"
    " operators move away from nodes above 500 messages; over 500: nodes; p95: exceeded by one node of twenty; orders:"
    " to move a step, to halve its messages, to take over sensors; hops: of lookups along links by prefix"
)


def show(console: Console, rows: list[Row]) -> None:
    """Means over the seeds."""
    cases: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = row["nodes"], row["areas"], row["pub_rate"], row["filter"], row["balanced"]
        cases.setdefault((*key, row["system"]), []).append(row)
    before: tuple[Any, ...] = ()
    table = Table()
    for case, mine in cases.items():
        if case[:2] != before[:2]:
            if before:
                console.print(table)
            table = Table(
                title=f"Nodes: {case[0]}; areas: {case[1]}",
                title_justify="left",
                box=SIMPLE_HEAD,
                padding=(0, 1, 0, 0),
            )
            for name in ("rate", "filter", "balanced", "system"):
                table.add_column(name, no_wrap=True)
            for name in COLUMNS.values():
                table.add_column(name, justify="right", no_wrap=True)
        elif case[:5] != before[:5]:
            table.add_section()
        same = case[:5] == before[:5]
        told = ("", "", "") if same else (str(case[2]), f"{case[3]:g}", "yes" if case[4] else "no")
        table.add_row(*told, case[5], *(_shown(row[name] for row in mine) for name in COLUMNS))
        before = case
    if before:
        console.print(table)
    console.print(NOTES, style="dim")


def _shown(values: Iterable[float]) -> str:
    found = interval(values)
    assert found is not None
    digits = 1 if found.mean < 10 and found.mean != int(found.mean) else 0
    half = f" ±{found.half:.{digits}f}" if found.half else ""
    return f"{found.mean:,.{digits}f}{half}"
