"""`sensorgrid pipeline verify`: how true a user's own grids are, as tables and as a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from sensorgrid.cli.arguments import ArgumentError
from sensorgrid.cli.bench_reality import short
from sensorgrid.pipeline.verification.scores import REFUSED_AT

Row = dict[str, Any]


def read_share(text: str) -> float:
    """A share of the stations: 10%, or 0.1."""
    number, percent = (text[:-1], 100.0) if text.endswith("%") else (text, 1.0)
    try:
        share = float(number) / percent
    except ValueError:
        share = float("nan")
    if not 0.0 < share <= 0.5:
        raise ArgumentError(f"--leave-out: found {text!r}, expected a share such as 10%, at most 50%")
    return share


def show(console: Console, rows: Sequence[Row]) -> None:
    """One line per attribute and kernel; then honesty and refusals by level."""
    table = Table(title="left-out stations", title_justify="left")
    table.add_column("attribute")
    table.add_column("kernel")
    for name in ("readings", "RMSE", "MAE", "bias", "/ idw"):
        table.add_column(name, justify="right")
    honest = Table(title="share within one stated error of the next reading", title_justify="left")
    honest.add_column("attribute")
    honest.add_column("kernel")
    for name in ("all", "by level", "by distance"):
        honest.add_column(name, justify="right")
    for row in rows:
        names = short(row["attribute"]), row["kernel"].replace("_", " ")
        errors = (f"{row[name]:.3g}" for name in ("rmse", "mae", "bias"))
        table.add_row(*names, f"{row['readings']:,}", *errors, f"{row['ratio_to_idw']:.3f}")
        honest.add_row(
            *names,
            f"{row['within_one']:.0%}",
            " ".join(f"{100 * x:3.0f}" for x in row["within_by_level"]),
            " ".join(f"{100 * x:3.0f}" for x in row["within_by_distance"]),
        )
    console.print(table)
    console.print("Canonical units. / idw: RMSE against inverse distance, with the same checks.", style="dim")
    console.print(honest)
    console.print(
        "68 % would be perfect. Levels: fifths of the estimate. Distance: thirds, to the nearest station used.",
        style="dim",
    )
    refused = Table(title="refused by the neighbour check, by level of the reading", title_justify="left")
    refused.add_column("attribute")
    for name in ("all", "lower half", *(f"to {share:.0%}" for share in REFUSED_AT[1:]), "top percent"):
        refused.add_column(name, justify="right")
    for name, row in {row["attribute"]: row for row in rows}.items():
        refused.add_row(
            short(name), f"{row['refused']:.2%}", *(f"{share:.2%}" for share in row["refused_by_level"])
        )
    console.print(refused)


def write_page(path: Path, config: Path, share: float, found: Sequence[Any]) -> None:
    """The page, with what was compared and how."""
    from sensorgrid.pipeline.verification.page import page

    moments = found[0].network.moments
    facts = [
        f"{config.name}: {share:.0%} of the stations were left out at a time, {found[0].folds} times, each with all its"
        f" readings. Parameters, checks and estimates came from the other stations alone; {len(moments)} ticks were"
        f" compared, of {found[0].network.tick_s:g} s each.",
        "An error is that of the next reading at a place: of the field there and of one observation together.",
    ]
    path.write_text(page(f"How true are the grids of {config.name}?", facts, found), encoding="utf-8")
