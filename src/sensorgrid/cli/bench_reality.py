"""`sensorgrid bench reality`: how true the grids are on real readings, as tables."""

from typing import Any

from rich.console import Console
from rich.table import Table

from sensorgrid.pipeline.gridding.kernels import CHEAP, DEFAULT

Row = dict[str, Any]


def show_reality(
    console: Console, rows: list[Row], checks: list[Row], summary: list[Row], left_out: list[str]
) -> None:
    """One line per set, one per check, then what is asked and whether it holds."""
    console.print(_sets(rows))
    console.print(
        f"/ …: RMSE of {DEFAULT} against the others after the same checks. Levels: fifths of the estimate."
        " Thirds: of the distance to the nearest station used. Refused: of all readings heard, and of the top percent.",
        style="dim",
    )
    if checks:
        console.print(_checks(checks))
    verdict = Table(title="what is asked", title_justify="left")
    verdict.add_column("figure")
    for name in ("found", "expected", "holds"):
        verdict.add_column(name, justify="right")
    verdict.add_column("where")
    for figure in summary:
        holds = "yes" if figure["holds"] else "[bold]no[/bold]"
        verdict.add_row(
            figure["figure"], f"{figure['found']:.3g}", figure["expected"], holds, figure["where"]
        )
    console.print(verdict)
    for reason in left_out:
        console.print(f"left out: {reason}", style="yellow", highlight=False)


def _sets(rows: list[Row]) -> Table:
    cases: dict[tuple[Any, ...], dict[str, Row]] = {}
    for number, row in enumerate(rows):
        # Small networks are drawn several times: each draw begins with a row of the default.
        if row["kernel"] == DEFAULT:
            key = (number, row["set"], row["kind"], short(row["attribute"]))
            cases[key] = {}
        cases[key][row["kernel"]] = row
    table = Table(title="left-out stations", title_justify="left")
    for name in ("set", "attribute"):
        table.add_column(name)
    others = ("nearest", CHEAP, "optimal", "pykrige")
    for name in (
        "stations", "readings", *(f"/ {o}" for o in others), "within 1σ", "by level", "by third", "refused",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for (_, name, kind, attribute), found in cases.items():
        mine = found[DEFAULT]
        ratios = [f"{mine['rmse'] / found[o]['rmse']:.2f}" if _there(found, o) else "" for o in others]
        table.add_row(
            name if kind == "set" else f"{name}, {kind}",
            attribute,
            f"{mine['stations']:,}",
            f"{mine['readings']:,}",
            *ratios,
            f"{mine['within_one']:.0%}",
            " ".join(f"{100 * x:.0f}" for x in mine["within_by_level"]),
            " ".join(f"{100 * x:.0f}" for x in mine["within_by_distance"]),
            f"{mine['refused']:.1%} {mine['refused_by_level'][-1]:.0%}",
        )
    return table


def _there(found: dict[str, Row], name: str) -> bool:
    return name in found and found[name]["rmse"] > 0


def _checks(checks: list[Row]) -> Table:
    table = Table(title="faults and extremes", title_justify="left")
    for name in ("set", "attribute", "check"):
        table.add_column(name)
    for name in ("faults", "caught", "good refused", "caught at our rate", "extremes used"):
        table.add_column(name, justify="right")
    for row in checks:
        table.add_row(
            row["set"],
            short(row["attribute"]),
            row["check"],
            f"{row['faults']:,}",
            f"{row['recall']:.0%}",
            f"{row['rate']:.2%}",
            f"{row['recall_at_our_rate']:.0%}",
            f"{row['extremes_used']:,} of {row['extremes']:,}" if row["extremes"] else "",
        )
    return table


def short(attribute: str) -> str:
    """An attribute's name as people say it."""
    known = {"mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air": "PM2.5"}
    return known.get(attribute, attribute.replace("_", " "))
