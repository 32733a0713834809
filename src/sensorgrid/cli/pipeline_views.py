"""What `sensorgrid pipeline` shows: a line while it works, and what a lake holds."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.delivery.waiting import Counts, WaitingFolder
from sensorgrid.pipeline.ingest.reasons import top_kinds
from sensorgrid.pipeline.jobs import Report
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.lake.ledger import ENDS, Ledger

NOT_FLAGGED = ("dead_letter", "attribute")
"""tests that have a count of their own"""
REASONS = 12
"""so many kinds of refusal are listed"""


def line_of(report: Report) -> str:
    """One line for a micro-batch: what it had, and everything so far."""
    batch, total = report.ledger, report.total
    newest = f"{report.newest:%Y-%m-%d %H:%M}" if report.newest else "none yet"
    wrong = "" if batch.balanced else "  THE COUNTS DO NOT ADD UP"
    return (
        f"batch {report.batch}: {batch.raw:,} in {report.seconds:.1f} s, {batch.blocks} grids, newest tick {newest}"
        f" | in this run {total.raw:,} raw = {total.used:,} used + {total.flagged:,} flagged"
        f" + {total.ignored:,} ignored + {total.duplicate:,} duplicate + {total.late:,} late"
        f" + {total.dead_letter:,} dead{wrong}"
    )


def lake_facts(lake: Lake, grid: Grid, waiting: WaitingFolder | None = None) -> dict[str, Any]:
    """What a lake holds, as plain values, and what gateways have of it."""
    tiles = lake.tiles(columns=["attribute", "tick", "region", "revision"])
    ends = pc.min_max(tiles["tick"]).as_py() if len(tiles) else {"min": 0, "max": 0}
    unobserved = lake.unobserved_ticks(ends["min"], ends["max"])
    plan = lake.plan()
    per_attribute = []
    for name in sorted(set(tiles["attribute"].to_pylist())):
        mine = tiles.filter(pc.equal(tiles["attribute"], name))
        first, last = (pc.min(mine["tick"]).as_py(), pc.max(mine["tick"]).as_py())
        per_attribute.append(
            {
                "attribute": name,
                "ticks": pc.count_distinct(mine["tick"]).as_py(),
                "first": f"{grid.time_of(first):%Y-%m-%d %H:%M}",
                "last": f"{grid.time_of(last):%Y-%m-%d %H:%M}",
                "grids": len(mine),
                "revised": pc.sum(pc.greater(mine["revision"], 0)).as_py(),
                "unobserved": unobserved.get(name, (None, 0))[0],
            }
        )
    totals, letters = lake.totals(), lake.letters()
    return {
        "lake": lake.root,
        "counts": totals.to_dict(),
        "gateways": None if waiting is None else gateway_facts(totals, waiting.counts()),
        "attributes": per_attribute,
        "sensors": len(lake.sensors()),
        "refused": _refused(letters),
        "reasons": _reasons(letters),
        "parameters": [] if plan is None else plan.notes(),
    }


def gateway_facts(total: Ledger, brought: Counts) -> dict[str, Any]:
    """What became of grids that were handed out; the counts add up."""
    handed_out = total.acknowledged + total.refused + total.handed
    facts = {
        "handed_out": handed_out,
        "acknowledged": total.acknowledged + brought.acknowledged,
        "waiting": brought.waiting,
        "refused": total.refused + brought.refused,
    }
    balanced = handed_out == facts["acknowledged"] + facts["waiting"] + facts["refused"]
    return facts | {"by_courier": brought.acknowledged, "regions": brought.regions, "balanced": balanced}


def _refused(letters: pa.Table) -> list[dict[str, Any]]:
    if not len(letters):
        return []
    counted = letters.group_by(["test", "attribute"]).aggregate([("flag", "count")]).to_pylist()
    rows = [{"test": r["test"], "attribute": r["attribute"], "number": r["flag_count"]} for r in counted]
    return sorted(rows, key=lambda row: -row["number"])


def _reasons(letters: pa.Table) -> list[tuple[str, int]]:
    counted = letters.group_by("reason").aggregate([("flag", "count")]) if len(letters) else letters
    reasons = zip(counted["reason"].to_pylist(), counted.columns[-1].to_pylist(), strict=True)
    return top_kinds((str(reason or "no reason"), number) for reason, number in reasons)


def show_lake(console: Console, facts: dict[str, Any]) -> None:
    """The facts as tables."""
    table = Table(title=f"lake {facts['lake']}", title_justify="left")
    for name in ("attribute", "ticks", "first", "last", "grids", "revised"):
        left = name in ("attribute", "first", "last")
        table.add_column(
            name,
            justify="left" if left else "right",
            no_wrap=name in ("first", "last"),
            overflow="fold" if name == "attribute" else "ellipsis",  # long names go on in the next line
        )
    for row in facts["attributes"]:
        shown = (value for name, value in row.items() if name != "unobserved")  # a line below says it
        table.add_row(*(f"{v:,}" if isinstance(v, int) else str(v) for v in shown))
    console.print(table)
    for row in facts["attributes"]:
        if row["unobserved"]:
            console.print(
                f"{row['attribute']}: {row['unobserved']:,} of {row['ticks']:,} ticks without a single observation",
                style="yellow", highlight=False, soft_wrap=True,
            )  # fmt: skip
    for note in facts["parameters"]:
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    counts = facts["counts"]
    console.print(
        f"{facts['sensors']:,} sensors; in all runs: "
        + ", ".join(f"{counts[n]:,} {n.replace('_', ' ')}" for n in ("raw", *ENDS))
        + f"; {counts['suspect']:,} of those used are suspect",
        highlight=False,
        soft_wrap=True,
    )
    if facts["gateways"] is not None:
        show_gateways(console, facts["gateways"])
    if counts["tests"]:
        tests = sorted(counts["tests"].items(), key=lambda item: -item[1])
        console.print(
            "flagged: "
            + ", ".join(f"{number:,} {test}" for test, number in tests if test not in NOT_FLAGGED),
            highlight=False,
            soft_wrap=True,
        )
    if facts["refused"]:
        refused = Table(title="refused, with their reasons in letters/", title_justify="left")
        refused.add_column("test")
        refused.add_column("attribute")
        refused.add_column("number", justify="right")
        for row in facts["refused"][:REASONS]:
            refused.add_row(str(row["test"]), str(row["attribute"] or ""), f"{row['number']:,}")
        console.print(refused)
        for reason, number in facts["reasons"]:
            console.print(f"{number:,} × {reason}", highlight=False, soft_wrap=True)


def show_gateways(console: Console, facts: dict[str, Any]) -> None:
    """What gateways have taken, and whom something waits for."""
    wrong = "" if facts["balanced"] else "  THE COUNTS DO NOT ADD UP (while it runs, look again)"
    console.print(
        f"gateways: {facts['handed_out']:,} grids = {facts['acknowledged']:,} acknowledged"
        f" ({facts['by_courier']:,} by the courier) + {facts['waiting']:,} waiting"
        f" + {facts['refused']:,} refused{wrong}",
        highlight=False,
        soft_wrap=True,
    )
    if facts["regions"]:
        behind = ", ".join(f"{region} ({number:,})" for region, number in sorted(facts["regions"].items()))
        console.print(f"behind: regions {behind}", highlight=False, soft_wrap=True)
