"""The result of a verification as one HTML file: tables, plots and maps inside, nothing to be fetched."""

from collections.abc import Sequence
from html import escape
from io import StringIO
from itertools import pairwise
from typing import Any

import numpy as np

from sensorgrid.pipeline.gridding.kernels import CHEAP, DEFAULT
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.verification.network import VerificationError
from sensorgrid.pipeline.verification.scores import REFUSED_AT, Row, within
from sensorgrid.pipeline.verification.trial import FoldEstimates
from sensorgrid.pipeline.verification.verify import Verified

POINTS_MAX = 4000
"""readings that a scatter plot shows"""
HONEST = (0.60, 0.76)
"""shares within one stated error that we call honest"""

_COLOURS = {DEFAULT: "#1b5e9b", CHEAP: "#d1802f", "nearest": "#8a8a8a"}
_BAND = "#dcebd8"
_UNITS: dict[str, tuple[float, float, str]] = {
    "K": (1, -273.15, "°C"),
    "Pa": (0.01, 0, "hPa"),
    "kg m-3": (1e9, 0, "µg/m³"),
}
"""canonical unit: factor, offset and the customary unit that people read"""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; }
h2 { font-size: 1.2rem; margin-top: 2.6rem; border-top: 1px solid #d9dee3; padding-top: 1.2rem; }
p.note { color: #5b6670; max-width: 46rem; }
table { border-collapse: collapse; margin: .8rem 0 1.2rem; }
th, td { padding: .25rem .8rem .25rem 0; text-align: right; font-variant-numeric: tabular-nums; }
th { font-weight: 600; border-bottom: 1px solid #b8c0c8; }
th:first-child, td:first-child { text-align: left; }
tr.ours td { font-weight: 600; }
figure { margin: 1rem 0; }
svg { max-width: 100%; height: auto; }
figcaption { color: #5b6670; font-size: .9rem; }
.no { color: #b03030; }
.yes { color: #2e7d32; }
"""


def page(title: str, facts: Sequence[str], found: Sequence[Verified]) -> str:
    """The whole page; `facts` are lines that say what was compared and how."""
    parts = [f"<h1>{escape(title)}</h1>", *(f'<p class="note">{escape(fact)}</p>' for fact in facts)]
    for one in found:
        parts += _section(one)
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _section(one: Verified) -> list[str]:
    factor, offset, unit = _unit(one.attribute)
    ours = next(row for row in one.rows if row["kernel"] == DEFAULT)
    ratio, share = ours["ratio_to_idw"], ours["within_one"]
    honest = HONEST[0] <= share <= HONEST[1]
    verdict = (
        f'<p>RMSE is <b class="{"yes" if ratio <= 1 else "no"}">{ratio:.2f} times</b> that of inverse distance;'
        f' <b class="{"yes" if honest else "no"}">{share:.0%}</b> of the left-out readings lie within one stated error'
        f" (68 % would be perfect); {ours['refused']:.2%} of all readings were refused by the neighbour check.</p>"
    )
    parts = [f"<h2>{escape(one.attribute.replace('_', ' '))}</h2>", verdict, _table(one.rows, factor, unit)]
    if one.learnt[0].why:
        parts.append(f'<p class="note">First fold: {escape(one.learnt[0].why)}.</p>')
    parts.append(
        _figure(
            _maps(one, factor, unit),
            "Each left-out station: root mean square error, and share within one error.",
        )
    )
    parts.append(
        _figure(
            _honesty(one, factor, offset, unit),
            "Share of readings within one stated error of the next reading; green is 60 to 76 %.",
        )
    )
    parts.append(
        _figure(
            _errors(one, factor, offset, unit),
            "Left: what was read and what was estimated. Right: error by hour of the day, UTC.",
        )
    )
    parts.append(_refused(ours, factor, offset, unit))
    return parts


def _unit(attribute: str) -> tuple[float, float, str]:
    known = KNOWN.get(attribute)
    if known is None:
        return 1.0, 0.0, ""
    return _UNITS.get(known.unit, (1.0, 0.0, "" if known.unit == "1" else known.unit))


def _table(rows: Sequence[Row], factor: float, unit: str) -> str:
    head = ["kernel", "stations", "readings", f"RMSE {unit}", f"MAE {unit}", f"bias {unit}", "RMSE / inverse distance",
            "within one error", "impossible values"]  # fmt: skip
    lines = ["<table><tr>" + "".join(f"<th>{escape(name)}</th>" for name in head) + "</tr>"]
    for row in rows:
        errors = [f"{factor * row[name]:.3g}" for name in ("rmse", "mae", "bias")]
        shares = [f"{row['within_one']:.1%}", f"{row['negative_share']:.2%}"]
        counts = [f"{row['stations']:,}", f"{row['readings']:,}"]
        cells = [row["kernel"].replace("_", " "), *counts, *errors, f"{row['ratio_to_idw']:.3f}", *shares]
        kind = ' class="ours"' if row["kernel"] == DEFAULT else ""
        lines.append(f"<tr{kind}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return "\n".join([*lines, "</table>"])


def _refused(row: Row, factor: float, offset: float, unit: str) -> str:
    edges = [factor * edge + offset for edge in row["reading_edges"]]
    names = ["lower half", *(f"to {share:.0%}" for share in REFUSED_AT[1:]), "top percent"]
    lines = [
        f"<p>Refused by the neighbour check, by level of the reading ({escape(unit) or 'canonical unit'}):</p>"
    ]
    lines.append("<table><tr><th>level</th><th>from</th><th>to</th><th>refused</th></tr>")
    for name, low, high, share in zip(names, edges[:-1], edges[1:], row["refused_by_level"], strict=True):
        lines.append(f"<tr><td>{name}</td><td>{low:.4g}</td><td>{high:.4g}</td><td>{share:.2%}</td></tr>")
    return "\n".join([*lines, "</table>"])


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


# plots


def _canvas(columns: int, height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise VerificationError(
            "--page: found no matplotlib, expected it: pip install 'sensorgrid[plot]'"
        ) from None
    figure = Figure(figsize=(10.8, height), layout="constrained")
    axes = figure.subplots(1, columns)
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Any) -> str:
    import matplotlib as mpl

    text = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "sensorgrid"}):
        figure.savefig(
            text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    found = text.getvalue()
    return found[found.index("<svg") :]


def _maps(one: Verified, factor: float, unit: str) -> str:
    told = one.told[DEFAULT]
    stations = np.unique(told.station)
    miss, inside = (told.values - told.reading) * factor, within(told)
    rms = np.array([np.sqrt(np.mean(miss[told.station == s] ** 2)) for s in stations])
    share = np.array([inside[told.station == s].mean() for s in stations])
    x, y = one.network.longitude[stations], one.network.latitude[stations]
    figure, axes = _canvas(2, 4.2)
    size = float(np.clip(3000 / max(len(stations), 1), 3, 40))
    top = float(np.quantile(rms, 0.98)) if len(rms) else 1.0
    drawn = (
        (rms, "viridis", 0.0, top or 1.0, f"error {unit}"),
        (share, "RdYlGn", 0.0, 1.0, "within one error"),
    )
    for axis, (values, colours, low, high, label) in zip(axes, drawn, strict=True):
        order = np.argsort(values if colours == "viridis" else -values, kind="stable")
        dots = axis.scatter(
            x[order], y[order], c=values[order], s=size, cmap=colours, vmin=low, vmax=high, lw=0.2, edgecolors="#555",
            rasterized=len(stations) > 600,
        )  # fmt: skip
        figure.colorbar(dots, ax=axis, label=label, fraction=0.04, pad=0.02)
        axis.grid(visible=True, color="#e8ebee", lw=0.6)
        axis.set_axisbelow(True)
        planar = one.network.coordinates == "planar"
        axis.set_aspect(
            "equal" if planar else 1 / max(np.cos(np.radians(float(np.mean(y)))), 0.2), adjustable="datalim"
        )
        axis.set_xlabel("x" if planar else "longitude")
        axis.set_ylabel("y" if planar else "latitude")
    return _svg(figure)


def _honesty(one: Verified, factor: float, offset: float, unit: str) -> str:
    figure, axes = _canvas(2, 3.4)
    ours = next(row for row in one.rows if row["kernel"] == DEFAULT)
    levels = [
        f"{factor * a + offset:.3g} to\n{factor * b + offset:.3g}" for a, b in _pairs(ours["level_edges"])
    ]
    near = [f"{a / 1000:.3g} to\n{b / 1000:.3g}" for a, b in _pairs(ours["distance_edges"])]
    labels = (
        (levels, f"estimate {unit}", "within_by_level"),
        (near, "km to the nearest station used", "within_by_distance"),
    )
    for axis, (ticks, label, key) in zip(axes, labels, strict=True):
        axis.axhspan(*HONEST, color=_BAND, lw=0)
        width = 0.8 / len(one.rows)
        for number, row in enumerate(one.rows):
            at = np.arange(len(ticks)) + (number - (len(one.rows) - 1) / 2) * width
            axis.bar(at, row[key], width * 0.92, color=_colour(row), label=row["kernel"].replace("_", " "))
        axis.set_xticks(range(len(ticks)), ticks, fontsize=8)
        axis.set_ylim(0, 1)
        axis.set_xlabel(label)
        axis.set_ylabel("within one error")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=8, loc="outside upper right", ncols=len(names))
    return _svg(figure)


def _errors(one: Verified, factor: float, offset: float, unit: str) -> str:
    figure, axes = _canvas(2, 3.9)
    told = one.told[DEFAULT]
    chosen = _some(told)
    read, said = (factor * a[chosen] + offset for a in (told.reading, told.values))
    both = np.concatenate([read, said])
    skewed = bool(both.min() >= 0 and np.quantile(both, 0.99) > 8 * max(float(np.median(both)), 1e-300))
    if skewed:  # a plume beside clean air: only a logarithm shows both
        axes[0].set_xscale("symlog", linthresh=max(float(np.median(both)), 1e-300))
        axes[0].set_yscale("symlog", linthresh=max(float(np.median(both)), 1e-300))
    axes[0].plot([both.min(), both.max()], [both.min(), both.max()], color="#999", lw=0.8)
    axes[0].scatter(read, said, s=5, alpha=0.35, color=_COLOURS[DEFAULT], lw=0, rasterized=True)
    axes[0].set_xlabel(f"read {unit}")
    axes[0].set_ylabel(f"estimated {unit}")
    for row in one.rows:
        rmse = np.full(24, np.nan)  # an hour without readings breaks the line
        for hour in row["by_hour"]:
            rmse[hour["hour"]] = factor * hour["rmse"]
        axes[1].plot(
            range(24), rmse, "o-", ms=3, lw=1.2, color=_colour(row), label=row["kernel"].replace("_", " ")
        )
    axes[1].set_ylim(bottom=0)
    axes[1].set_xlim(-0.5, 23.5)
    axes[1].set_xlabel("hour of the day, UTC")
    axes[1].set_ylabel(f"RMSE {unit}")
    axes[1].legend(frameon=False, fontsize=8)
    return _svg(figure)


def _some(told: FoldEstimates) -> Any:
    count = len(told.reading)
    return np.arange(count) if count <= POINTS_MAX else np.linspace(0, count - 1, POINTS_MAX).astype(int)


def _pairs(edges: Sequence[float]) -> list[tuple[float, float]]:
    return list(pairwise(edges))


def _colour(row: Row) -> str:
    return _COLOURS.get(row["kernel"], "#b39ddb")
