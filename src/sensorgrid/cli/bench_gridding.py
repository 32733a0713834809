"""`sensorgrid bench gridding`: the skill of the grids as tables."""

from typing import Any

from rich.console import Console
from rich.table import Table

from sensorgrid.benchmarks.gridding import PEERS, summary
from sensorgrid.pipeline.gridding.kernels import CHEAP, DEFAULT

Row = dict[str, Any]


def show_gridding(console: Console, rows: list[Row]) -> None:
    """One line per set, then what is asked and whether it holds."""
    sets: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        sets.setdefault((row["truth"], row["stations"], row["seed"]), {})[row["kernel"]] = row
    table = Table(
        title=f"{DEFAULT}: RMSE against others, and how honest its errors are", title_justify="left"
    )
    table.add_column("field")
    table.add_column("stations")
    for name in (
        "observed",
        *(f"/ {peer}" for peer in PEERS),
        "within 1σ",
        "low",
        "mid",
        "high",
        "ms a tile",
    ):
        table.add_column(name, justify="right")
    for (truth, stations, _), found in sets.items():
        mine = found[DEFAULT]
        ratios = (mine["rmse"] / found[peer]["rmse"] for peer in PEERS)
        shares = (mine[f"within_{part}"] for part in ("one_error", "low", "mid", "high"))
        seconds = f"{mine['seconds_per_tile'] * 1e3:.0f} ({found[CHEAP]['seconds_per_tile'] * 1e3:.0f})"
        table.add_row(
            truth,
            stations,
            f"{mine['observations']:,}",
            *(f"{ratio:.2f}" for ratio in ratios),
            *(f"{share:.0%}" for share in shares),
            seconds,
        )
    console.print(table)
    console.print(f"ms a tile: 64 × 64 points, {CHEAP} in brackets. The same check for all.", style="dim")
    verdict = Table(title="what is asked", title_justify="left")
    verdict.add_column("figure")
    for name in ("found", "expected", "holds"):
        verdict.add_column(name, justify="right")
    for figure in summary(rows):
        holds = "yes" if figure["holds"] else "[bold]no[/bold]"
        verdict.add_row(figure["figure"], f"{figure['found']:.3g}", figure["expected"], holds)
    console.print(verdict)
