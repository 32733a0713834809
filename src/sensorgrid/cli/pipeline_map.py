"""A tick of the lake as a picture: values, stated errors, and where the sensors are."""

from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.lake.folder import Lake


class MapError(SensorGridError, ValueError):
    """A map that cannot be drawn."""


def draw(
    lake: Lake, grid: Grid, attribute: str | None, at: datetime | None, out: Path, coast: Path | None = None
) -> None:
    """Draw the newest revision of one tick."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MapError("map: found no matplotlib, expected it: pip install 'sensorgrid[plot]'") from None
    name = attribute or lake_attribute(lake)
    values, error, sensors, tick = field_of(lake, grid, name, at)
    west, south, east, north = grid.extent
    wide = (east - west) / (north - south)
    figure = Figure(figsize=(11, 2.2 + 2 * 11 / max(wide, 0.8)), layout="constrained")
    unit = KNOWN[name].unit if name in KNOWN else ""
    shift, shown = (-273.15, "°C") if unit == "K" else (0.0, unit)
    low, high = np.percentile(values + shift, [1, 99])
    pictures = (
        (values + shift, "turbo", low, high, f"{name.replace('_', ' ')} [{shown}]"),
        (
            error,
            "magma",
            0.0,
            float(np.percentile(error, 99)),
            f"stated error, one standard deviation [{unit}]",
        ),
    )
    for axes, (picture, colours, bottom, top, title) in zip(
        figure.subplots(2, 1, sharex=True, sharey=True), pictures, strict=True
    ):
        image = axes.imshow(
            picture, origin="lower", extent=(west, east, south, north), cmap=colours, vmin=bottom, vmax=top,
            aspect="equal" if grid.coordinates == "planar" else "auto", interpolation="nearest",
        )  # fmt: skip
        if coast is not None:
            _draw_coast(axes, coast)
        axes.set_title(title, loc="left", fontsize=11)
        figure.colorbar(image, ax=axes, fraction=0.03, pad=0.01)
    if len(sensors):
        axes.plot(sensors[:, 0], sensors[:, 1], ".", color="#40e0d0", markersize=1.5, alpha=0.7)
        axes.set_xlabel(f"dots: {len(sensors):,} sensors of this tick", loc="left")
    figure.suptitle(f"{grid.time_of(tick):%Y-%m-%d %H:%M} UTC", x=0.01, ha="left", fontsize=13)
    figure.savefig(out, dpi=110)


def _draw_coast(axes: object, file: Path) -> None:
    ring, lon, lat = np.genfromtxt(file, delimiter=",", skip_header=1, unpack=True)
    # A new ring, or a jump across the date line, is no coast.
    breaks = np.flatnonzero((np.diff(ring) != 0) | (np.abs(np.diff(lon)) > 180)) + 1
    axes.plot(np.insert(lon, breaks, np.nan), np.insert(lat, breaks, np.nan), "k-", lw=0.4)  # type: ignore[attr-defined]


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
    for row in lake.tiles(attribute=attribute, ticks=(tick, tick)).to_pylist():
        where = np.s_[row["y0"] : row["y0"] + row["height"], row["x0"] : row["x0"] + row["width"]]
        values[where] = np.reshape(row["values"], (row["height"], row["width"]))
        error[where] = np.reshape(row["error"], (row["height"], row["width"]))
        sensors += [(o["longitude"], o["latitude"]) for o in row["observations"] if o["flag"] == 1]
    return values, error, np.array(sensors, np.float64).reshape(-1, 2), tick
