"""A tick of the lake as a picture: values, stated errors, where the sensors are, coasts, and wind as arrows."""

from dataclasses import dataclass, replace
from datetime import datetime
from math import cos, radians
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sensorgrid.cli import coastlines
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.units import CUSTOMARY
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.lake.folder import Lake

WIND = ("eastward_wind", "northward_wind")
ARROWS = 28
"""along the longer side of the map"""
COLOURS = {
    "K": "RdYlBu_r",
    "kg m-3": "YlOrRd",
    "kg m-2": "YlGnBu",
    "1": "BrBG",
    "m s-1": "viridis",
    "Pa": "viridis",
}
"""by canonical unit"""
Floats = npt.NDArray[np.floating]


class MapError(SensorGridError, ValueError):
    """A map that cannot be drawn."""


@dataclass(frozen=True, slots=True)
class MapPicture:
    """What a map shows, in the unit that people use."""

    title: str
    unit: str
    colours: str
    values: Floats
    error: Floats
    sensors: npt.NDArray[np.float64]
    """positions, one row each"""
    tick: int
    wind: tuple[Floats, Floats] | None = None
    """eastward and northward, for arrows"""
    gaps: npt.NDArray[np.bool_] | None = None
    """points that no observation is within reach of; None: the lake does not say"""


def draw(
    lake: Lake, grid: Grid, attribute: str | None, at: datetime | None, out: Path, coast: Path | None = None
) -> None:
    """Draw the newest revision of one tick; "wind" is the speed, with arrows."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MapError("map: found no matplotlib, expected it: pip install 'sensorgrid[plot]'") from None
    name = attribute or lake_attribute(lake)
    picture = picture_of(lake, grid, name, at)
    part = WIND[0] if name == "wind" else name
    picture = replace(picture, gaps=gaps_of(lake, grid, part, picture.tick))
    west, south, east, north = grid.extent
    # A degree of longitude is shorter than one of latitude; at high latitudes that would be a narrow strip.
    stretch = 1.0 if grid.coordinates == "planar" else 1 / max(cos(radians((south + north) / 2)), 0.4)
    tall = stretch * (north - south) / (east - west)
    height = min(max(9.0 * tall, 2.5), 11.0)
    beside = tall > 0.8
    size = (2 * height / tall + 3.2, height + 1.1) if beside else (10.6, 2 * height + 1.4)
    figure = Figure(figsize=size, layout="constrained")
    both = figure.subplots(*((1, 2) if beside else (2, 1)), sharex=True, sharey=True)
    low, high = _range(picture)
    top = float(np.nanpercentile(picture.error, 99)) if np.isfinite(picture.error).any() else 1.0
    lines = coastlines.read_csv(coast) if coast is not None else []
    if coast is None and grid.coordinates == "lonlat":
        lines = coastlines.read()
    lines = coastlines.inside(lines, grid.extent) if grid.coordinates == "lonlat" else lines
    panels = (
        (picture.values, picture.colours, low, high, picture.title),
        (picture.error, "Purples", 0.0, top, "stated error, one standard deviation"),
    )
    for axes, (field, colours, bottom, most, title) in zip(both, panels, strict=True):
        image = axes.imshow(
            field, origin="lower", extent=(west, east, south, north), cmap=colours, vmin=bottom, vmax=most,
            aspect=stretch, interpolation="nearest",
        )  # fmt: skip
        for line in lines:
            axes.plot(line[:, 0], line[:, 1], "-", color="#202428", lw=0.6, scalex=False, scaley=False)
        axes.set(xlim=(west, east), ylim=(south, north))
        axes.set_title(f"{title} [{picture.unit}]" if picture.unit else title, loc="left", fontsize=11)
        figure.colorbar(image, ax=axes, fraction=0.035, pad=0.01, extend="both" if axes is both[0] else "max")
        axes.tick_params(labelsize=8)
        if grid.coordinates == "lonlat":
            axes.xaxis.set_major_formatter(_degrees("W", "E"))
            axes.yaxis.set_major_formatter(_degrees("S", "N"))
    for axes in both:
        _draw_gaps(axes, grid, picture.gaps)
    if picture.wind is not None:
        _draw_arrows(both[0], grid, picture.wind)
    if picture.gaps is not None and picture.gaps.any():
        both[0].set_xlabel("veiled: no observation within reach", loc="left", fontsize=9)
    if len(picture.sensors):
        x, y = np.unique(picture.sensors, axis=0).T
        both[1].plot(x, y, ".", color="#c2410c", markersize=_dot(len(x)), mew=0)
        both[1].set_xlabel(
            f"dots: {len(x):,} places of sensors that reported in this tick", loc="left", fontsize=9
        )
    empty = picture.gaps is not None and bool(picture.gaps.all())
    title = f"{grid.time_of(picture.tick):%Y-%m-%d %H:%M} UTC" + (
        ", without a single observation" if empty else ""
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, color="#b91c1c" if empty else "black")
    figure.savefig(out, dpi=110)


def picture_of(lake: Lake, grid: Grid, name: str, at: datetime | None) -> MapPicture:
    """One attribute at one tick, in its customary unit; wind as speed or component, with arrows."""
    blows = name == "wind" or name in WIND
    if blows and set(WIND) <= set(grid.attributes):
        (u, u_error, sensors, tick), (v, v_error, _, _) = (field_of(lake, grid, part, at) for part in WIND)
        wind = (u, v)
        if name == "wind":
            speed = np.hypot(u, v)
            # The error along the wind; where there is none, that of either component.
            along = np.hypot(u * u_error, v * v_error) / np.maximum(speed, 1e-6)
            error = np.where(speed > 0.1, along, np.hypot(u_error, v_error) / np.sqrt(2))
            return MapPicture(
                "wind speed", CUSTOMARY["m s-1"][0], "YlGnBu", speed, error, sensors, tick, wind
            )
        values, error = (u, u_error) if name == WIND[0] else (v, v_error)
        label = CUSTOMARY["m s-1"][0]
        return MapPicture(name.replace("_", " "), label, "RdBu_r", values, error, sensors, tick, wind)
    if name == "wind":
        raise MapError(f"--attribute: found wind, expected one of {', '.join(grid.attributes)}")
    values, error, sensors, tick = field_of(lake, grid, name, at)
    unit = KNOWN[name].unit if name in KNOWN else ""
    label, scale, offset = CUSTOMARY.get(unit, (unit, 1.0, 0.0))
    title = name.removeprefix("mass_concentration_of_").replace("_", " ")
    return MapPicture(
        title, label, COLOURS.get(unit, "viridis"), values * scale + offset, error * scale, sensors, tick
    )


def _range(picture: MapPicture) -> tuple[float, float]:
    """Ends of the colours: nearly all values, and even to both sides where colours part at zero."""
    if not np.isfinite(picture.values).any():
        return 0.0, 1.0
    low, high = (float(edge) for edge in np.nanpercentile(picture.values, [1, 99]))
    if picture.colours == "RdBu_r":
        high = max(abs(low), abs(high))
        low = -high
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _draw_arrows(axes: Any, grid: Grid, wind: tuple[Floats, Floats]) -> None:
    """Arrows at every so many points, each for the mean around it; a calm is a dot."""
    west, south, east, north = grid.extent
    width, height = grid.shape
    step = max(1, max(width, height) // ARROWS)
    rows, columns = height // step, width // step
    u, v = (
        part[: rows * step, : columns * step].reshape(rows, step, columns, step).mean(axis=(1, 3))
        for part in wind
    )
    x = west + (np.arange(columns) + 0.5) * step * (east - west) / width
    y = south + (np.arange(rows) + 0.5) * step * (north - south) / height
    strong = float(np.nanpercentile(np.hypot(u, v), 95)) or 1.0
    # The longest usual arrow reaches a little over the gap to the next one.
    arrows = axes.quiver(
        x, y, u, v, angles="uv", scale=strong * columns * 0.7, scale_units="width", width=0.0016, headwidth=4,
        color="#10151c", minlength=0.5, zorder=3,
    )  # fmt: skip
    typical = float(f"{strong:.1g}")
    axes.quiverkey(
        arrows, 0.86, 1.035, typical, f"{typical:g} m s⁻¹", labelpos="E", fontproperties={"size": 9}
    )


def _draw_gaps(axes: Any, grid: Grid, gaps: npt.NDArray[np.bool_] | None) -> None:
    """A grey veil over points that no observation is within reach of."""
    if gaps is not None and gaps.any():
        west, south, east, north = grid.extent
        veil = np.zeros((*gaps.shape, 4))
        veil[gaps] = (0.5, 0.5, 0.5, 0.45)
        axes.imshow(
            veil, origin="lower", extent=(west, east, south, north), aspect=axes.get_aspect(),
            interpolation="nearest",
        )  # fmt: skip


def _degrees(below: str, above: str) -> Any:
    def text(value: float, _: int) -> str:
        turned = (value + 180) % 360 - 180 if above == "E" and abs(value) > 180 else value
        return f"{abs(turned):g}°{above if turned > 0 else below if turned < 0 else ''}"

    return text


def _dot(sensors: int) -> float:
    return float(np.clip(120 / np.sqrt(sensors), 2.5, 8.0))


def lake_attribute(lake: Lake) -> str:
    """The first attribute that the lake holds."""
    names = sorted(set(lake.tiles(columns=["attribute"])["attribute"].to_pylist()))
    if not names:
        raise MapError(f"lake {lake.root}: found no grid, expected at least one")
    return str(names[0])


def field_of(
    lake: Lake, grid: Grid, attribute: str, at: datetime | None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float64], int]:
    """A whole tick put together: values, errors, positions of the sensors, and which tick."""
    known = lake.tiles(attribute=attribute, columns=["tick"])
    if not len(known):
        raise MapError(f"lake {lake.root}: found no grid of {attribute!r}, expected one")
    ticks = sorted(set(known["tick"].to_pylist()))
    tick = ticks[-1] if at is None else grid.tick_at(at)
    if tick not in ticks:
        raise MapError(
            f"--at: found no tick at {grid.time_of(tick).isoformat()}, expected one from"
            f" {grid.time_of(ticks[0]).isoformat()} to {grid.time_of(ticks[-1]).isoformat()}"
        )
    values = np.full(grid.shape[::-1], np.nan, np.float32)
    error = values.copy()
    sensors = []
    columns = ["x0", "y0", "width", "height", "values", "error", "observations"]
    for row in lake.tiles(attribute=attribute, ticks=(tick, tick), columns=columns).to_pylist():
        where = np.s_[row["y0"] : row["y0"] + row["height"], row["x0"] : row["x0"] + row["width"]]
        values[where] = np.reshape(row["values"], (row["height"], row["width"]))
        error[where] = np.reshape(row["error"], (row["height"], row["width"]))
        used = (o for o in row["observations"] if o["flag"] == 1 or o["test"] == "suspect")
        sensors += [(o["longitude"], o["latitude"]) for o in used]
    return values, error, np.array(sensors, np.float64).reshape(-1, 2), tick


def gaps_of(lake: Lake, grid: Grid, attribute: str, tick: int) -> npt.NDArray[np.bool_] | None:
    """Where no observation is within reach; None if the lake does not say."""
    gaps = np.zeros(grid.shape[::-1], np.bool_)
    columns = ["x0", "y0", "width", "height", "number_of_observations"]
    for row in lake.tiles(attribute=attribute, ticks=(tick, tick), columns=columns).to_pylist():
        if row["number_of_observations"] is None:
            return None
        where = np.s_[row["y0"] : row["y0"] + row["height"], row["x0"] : row["x0"] + row["width"]]
        gaps[where] = np.reshape(row["number_of_observations"], (row["height"], row["width"])) == 0
    return gaps
