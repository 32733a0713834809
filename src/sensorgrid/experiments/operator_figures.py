"""Figures 8 to 13 of the operators paper, section IV, and a summary of the four systems, from the table alone."""

from pathlib import Path
from typing import Any, NamedTuple

from sensorgrid.experiments.claims import interval
from sensorgrid.experiments.figures import check

Row = dict[str, Any]

COLOURS = {"paper": "#4477aa", "ours": "#228833", "dsm": "#aa3377", "dsm-calc": "#ccbb44"}
NAMES = {"paper": "the paper's", "ours": "ours", "dsm": "DSM", "dsm-calc": "DSM with calculation"}
THRESHOLD = 500


class Panel(NamedTuple):
    """One of the paper's figures."""

    number: int
    pub_rate: int
    filter: float
    balanced: bool
    baseline: str


PANELS = (
    Panel(8, 1, 0.5, False, "dsm"), Panel(9, 3, 0.5, False, "dsm"), Panel(10, 3, 0.5, True, "dsm"),
    Panel(11, 3, 0.25, True, "dsm"), Panel(12, 3, 0.5, True, "dsm-calc"), Panel(13, 4, 0.5, True, "dsm-calc"),
)  # fmt: skip


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """The distributions, and the most loaded node and the mean at the highest rate."""
    check(folder)
    made = [_distributions(rows, folder)] if any(_of(rows, panel, "paper") for panel in PANELS) else []
    return [*made, _summary(rows, folder)]


def _of(rows: list[Row], panel: Panel, system: str) -> list[Row]:
    wanted = "disjoint", "id-space", panel.pub_rate, panel.filter, panel.balanced, system
    names = "areas", "nodes", "pub_rate", "filter", "balanced", "system"
    return [row for row in rows if tuple(row[name] for name in names) == wanted]


def _distributions(rows: list[Row], folder: Path) -> Path:
    """Figures 8 to 13: nodes in the order of their load; a band from the least to the most of all seeds."""
    from matplotlib.figure import Figure

    panels = [panel for panel in PANELS if _of(rows, panel, "paper")]
    figure = Figure(figsize=(10.2, 3.0 * -(-len(panels) // 3) + 0.7), layout="constrained")
    axes = figure.subplots(-(-len(panels) // 3), 3, sharex=True, sharey=True, squeeze=False)
    shown: dict[str, Any] = {}
    for axis, panel in zip(axes.flat, panels, strict=False):
        for system in (panel.baseline, "paper", "ours"):
            curves = [row["curve"] for row in _of(rows, panel, system)]
            if not curves:
                continue
            at = [100 * k / (len(curves[0]) - 1) for k in range(len(curves[0]))]
            columns = list(zip(*curves, strict=True))
            means = [sum(column) / len(column) for column in columns]
            (drawn,) = axis.plot(at, means, color=COLOURS[system], lw=1.6)
            shown[system] = drawn
            axis.fill_between(
                at,
                [min(c) for c in columns],
                [max(c) for c in columns],
                color=COLOURS[system],
                alpha=0.2,
                lw=0,
            )
        axis.axhline(THRESHOLD, color="black", lw=0.8, ls="--")
        balanced = "with balancing" if panel.balanced else "no balancing"
        calculates = ", DSM calculates" if panel.baseline == "dsm-calc" else ""
        axis.set_title(
            f"Figure {panel.number}: rate {panel.pub_rate}, filter {panel.filter:g}\n{balanced}{calculates}",
            fontsize=9,
        )
        axis.set_yscale("symlog", linthresh=100, linscale=0.6)
        axis.set_ylim(0, 12_000)
        axis.set_yticks([0, 50, 100, 200, 500, 1000, 2000, 5000, 10_000])
        axis.set_yticklabels(["0", "50", "100", "200", "500", "1,000", "2,000", "5,000", "10,000"])
        axis.minorticks_off()
        axis.set_xlim(-1, 100)
        _plain(axis)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for row in axes:
        row[0].set_ylabel("messages per second and node", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("nodes with more load, %", fontsize=9)
    order = [name for name in NAMES if name in shown]
    figure.legend(
        [shown[name] for name in order], [NAMES[name] for name in order], loc="outside lower center", ncols=4,
        frameon=False, fontsize=9,
    )  # fmt: skip
    path = folder / "operators-distributions.png"
    figure.savefig(path, dpi=110)
    return path


def _summary(rows: list[Row], folder: Path) -> Path:
    """Most loaded node and mean, with balancing, at the highest rate, by areas and placement of nodes."""
    from matplotlib.figure import Figure

    rate = max(row["pub_rate"] for row in rows)
    rows = [r for r in rows if r["pub_rate"] == rate and r["filter"] == 0.5 and r["balanced"]]
    places = list(dict.fromkeys((row["nodes"], row["areas"]) for row in rows))
    systems = [name for name in NAMES if any(row["system"] == name for row in rows)]
    figure = Figure(figsize=(2.5 * len(places) + 0.8, 3.4), layout="constrained")
    axes = figure.subplots(1, len(places), sharey=True, squeeze=False)[0]
    for axis, place in zip(axes, places, strict=True):
        for at, system in enumerate(systems):
            mine = [r for r in rows if (r["nodes"], r["areas"]) == place and r["system"] == system]
            for name, marker, filled in (("peak", "o", COLOURS[system]), ("mean", "D", "white")):
                found = interval(row[name] for row in mine)
                if found is None:
                    continue
                axis.errorbar(
                    at,
                    found.mean,
                    yerr=found.half,
                    fmt=marker,
                    ms=6,
                    color=COLOURS[system],
                    mfc=filled,
                    capsize=3,
                )
                axis.annotate(
                    f"{found.mean:,.0f}",
                    (at, found.mean),
                    xytext=(6, 3),
                    textcoords="offset points",
                    fontsize=8,
                )
        axis.axhline(THRESHOLD, color="black", lw=0.8, ls="--", zorder=0)
        axis.set_xticks(range(len(systems)), systems, fontsize=8)
        axis.set_xlim(-0.5, len(systems) - 0.2)
        axis.set_title(f"nodes: {place[0]}\nareas: {place[1]}", fontsize=9)
        axis.set_yscale("log")
        axis.set_ylim(100, 30_000)
        ticks = [100, 200, 500, 1000, 2000, 5000, 10_000, 20_000]
        axis.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()
        _plain(axis)
    axes[0].set_ylabel(f"messages per second and node at rate {rate}\n● most loaded node, ◇ mean", fontsize=9)
    path = folder / "operators-peaks.png"
    figure.savefig(path, dpi=110)
    return path


def _plain(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
