"""Figures of the relays paper, section 5, from the tables and nothing else."""

from pathlib import Path
from typing import Any

from sensorgrid.experiments.claims import interval
from sensorgrid.experiments.figures import check

Row = dict[str, Any]

COLOURS = {
    "OFF": "#999999", "DIRECT": "#ddaa33", "CTD": "#66ccee", "CTS": "#4477aa", "FFS": "#ccbb44", "CTP": "#aa3377",
    "TREE": "#228833",
}  # fmt: skip


def draw(rows: list[Row], ramp: list[Row], folder: Path) -> list[Path]:
    """Traffic against the bound, delay by capacity, and the ramp."""
    check(folder)
    made = [_traffic(rows, folder), _delays(rows, folder)]
    if ramp:
        made.append(_ramp(ramp, folder))
    return made


def _places(rows: list[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((r["topology"], r["placement"]) for r in rows))[:6]


def _strategies(rows: list[Row]) -> list[str]:
    return [s for s in COLOURS if any(r["strategy"] == s for r in rows)]


def _title(place: tuple[str, str]) -> str:
    return f"brokers: {place[1]}" if place[0] == "internet" else place[0]


def _plain(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)


def _traffic(rows: list[Row], folder: Path) -> Path:
    """Counted traffic as a multiple of the least that is possible."""
    from matplotlib.figure import Figure

    places, strategies = _places(rows), _strategies(rows)
    figure = Figure(figsize=(3.0 * len(places) + 0.6, 3.2), layout="constrained")
    axes = figure.subplots(1, len(places), sharey=True, squeeze=False)[0]
    for axis, place in zip(axes, places, strict=True):
        mine = [r for r in rows if (r["topology"], r["placement"]) == place]
        for i, strategy in enumerate(strategies):
            found = interval(r["bound_ratio"] or 0.0 for r in mine if r["strategy"] == strategy)
            if found is None:
                continue
            axis.bar(i, found.mean, yerr=found.half, color=COLOURS[strategy], width=0.7, capsize=2)
            axis.annotate(
                f"{found.mean:.2f}", (i, found.mean + (found.half or 0)), ha="center", va="bottom", fontsize=8,
                xytext=(0, 2), textcoords="offset points",
            )  # fmt: skip
        axis.axhline(1.0, color="black", lw=0.8, ls="--")
        axis.margins(y=0.12)
        axis.set_xticks(range(len(strategies)), strategies, rotation=45)
        axis.set_title(_title(place), fontsize=10)
        _plain(axis)
    axes[0].set_ylabel("traffic on core and gateway links,\nmultiple of the bound", fontsize=9)
    path = folder / "relays-traffic.png"
    figure.savefig(path, dpi=110)
    return path


def _delays(rows: list[Row], folder: Path) -> Path:
    """User-perceived delay by the capacity of the uplinks (figure 4)."""
    from matplotlib.figure import Figure

    places, strategies = _places(rows), _strategies(rows)
    figure = Figure(figsize=(3.0 * len(places) + 0.6, 3.4), layout="constrained")
    axes = figure.subplots(1, len(places), sharey=True, squeeze=False)[0]
    for axis, place in zip(axes, places, strict=True):
        mine = [r for r in rows if (r["topology"], r["placement"]) == place]
        for strategy in strategies:
            runs = [r["delays"] for r in mine if r["strategy"] == strategy]
            if not runs:
                continue
            capacities = [d["capacity_bps"] / 1e9 for d in runs[0]]
            means = [sum(run[i]["mean_s"] for run in runs) / len(runs) for i in range(len(capacities))]
            axis.plot(capacities, means, marker="o", ms=3, lw=1.4, color=COLOURS[strategy], label=strategy)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(capacities, [f"{c:g}" for c in capacities])
        axis.invert_xaxis()
        axis.set_title(_title(place), fontsize=10)
        axis.set_xlabel("uplink of a broker, Gbit/s", fontsize=9)
        _plain(axis)
    axes[0].set_ylabel("mean delay until a tick is complete, s", fontsize=9)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=7, frameon=False, fontsize=9)
    path = folder / "relays-delay.png"
    figure.savefig(path, dpi=110)
    return path


def _ramp(rows: list[Row], folder: Path) -> Path:
    """Load that grows, at a gateway with bandwidth for half of it unmerged (figure 5)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, 3.4), layout="constrained")
    axis = figure.subplots()
    for strategy in _strategies(rows):
        mine = [r for r in rows if r["strategy"] == strategy]
        times = sorted({r["time_s"] for r in mine})
        means = []
        for time in times:
            found = [r["delay_mean_s"] for r in mine if r["time_s"] == time]
            means.append(sum(found) / len(found))
        axis.plot(times, means, lw=1.4, color=COLOURS[strategy], label=strategy)
    axis.set_yscale("log")
    axis.set_xlabel("time, s; queries are added until 300 s", fontsize=9)
    axis.set_ylabel("mean delay, s", fontsize=9)
    _plain(axis)
    axis.legend(frameon=False, fontsize=9, ncols=2)
    path = folder / "relays-ramp.png"
    figure.savefig(path, dpi=110)
    return path
