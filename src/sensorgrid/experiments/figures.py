"""Figures 4 to 11 of multires, section 5, from the table and nothing else."""

from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any

from sensorgrid.experiments.claims import interval
from sensorgrid.model.errors import SensorGridError

Row = dict[str, Any]

FIGURES = (
    ("connections_per_broker", "connections per broker", (4, 5)),
    ("messages", "messages", (6, 7)),
    ("replication_share", "replication, share of all outgoing bandwidth", (8, 9)),
    ("load", "load served, in worlds", (10, 11)),
)
"""column, what it is, the paper's figures for the large and the small hot spot"""
COLOURS = {2: "#4477aa", 3: "#ccbb44", 4: "#aa3377", 5: "#228833"}
STYLES = {"paper": "-", "literal": ":", "ours-local": "--", "ours": "-"}


class FigureError(SensorGridError, RuntimeError):
    """A figure that cannot be drawn."""


def check(folder: Path) -> None:
    """Refuse before the work what could not be drawn after it."""
    if find_spec("matplotlib") is None:
        raise FigureError("figures: found no matplotlib, expected it: pip install 'sensorgrid[plot]'")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise FigureError(f"figures: found {str(folder)!r}, expected a folder, or a place for one") from None


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """One picture per figure pair: hot spots side by side, one line per dimensions, one row per policy."""
    check(folder)
    from matplotlib.figure import Figure

    hotspots = [h for h in ("large", "small", "single") if any(r["hotspot"] == h for r in rows)]
    policies = [p for p in STYLES if any(r["policy"] == p for r in rows)]
    made = []
    for column, label, numbers in FIGURES:
        figure = Figure(figsize=(3.4 * len(hotspots) + 0.6, 2.3 * len(policies) + 0.9), layout="constrained")
        axes = figure.subplots(len(policies), len(hotspots), sharex=True, sharey=True, squeeze=False)
        for i, policy in enumerate(policies):
            for j, hotspot in enumerate(hotspots):
                axis = axes[i][j]
                chosen = [r for r in rows if r["policy"] == policy and r["hotspot"] == hotspot]
                _lines(axis, chosen, column)
                if i == 0:
                    axis.set_title(f"{hotspot} hot spot", fontsize=10)
                if j == 0:
                    axis.set_ylabel(policy, fontsize=10)
                if i == len(policies) - 1:
                    axis.set_xlabel("index depth")
        title = f"{label}\n(multires, figures {numbers[0]} and {numbers[1]})"
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
        handles, names = axes[-1][-1].get_legend_handles_labels()
        figure.legend(
            handles, names, loc="outside lower center", ncols=5, frameon=False, fontsize=9, columnspacing=1.2
        )
        path = folder / f"multires-{column.replace('_', '-')}.png"
        figure.savefig(path, dpi=110)
        made.append(path)
    return made


def _lines(axis: Any, rows: list[Row], column: str) -> None:
    for dims in sorted({r["dims"] for r in rows}):
        mine = [r for r in rows if r["dims"] == dims]
        depths = sorted({r["depth"] for r in mine})
        found = [interval(r[column] for r in mine if r["depth"] == depth) for depth in depths]
        means = [f.mean for f in found if f is not None]
        halves = [f.half or 0.0 for f in found if f is not None]
        axis.errorbar(
            depths, means, yerr=halves if any(halves) else None, color=COLOURS[dims], marker="o", ms=3, lw=1.4,
            capsize=2, label=f"{dims}D",
        )  # fmt: skip
    if column == "load":
        for dims in sorted({r["dims"] for r in rows}):
            mine = [r for r in rows if r["dims"] == dims]
            depths = sorted({r["depth"] for r in mine})
            axis.plot(
                depths, [mean(r["load_bound"] for r in mine if r["depth"] == depth) for depth in depths],
                color=COLOURS[dims], lw=0.8, ls="--", label="bound" if dims == max(r["dims"] for r in rows) else None,
            )  # fmt: skip
        axis.set_ylim(0, 26)
    else:
        axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
    axis.set_xticks(sorted({r["depth"] for r in rows}))
