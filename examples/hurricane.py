"""A hurricane: the coarse world finds it, a fine box follows it.

    sensorgrid up examples/weather.toml
    python examples/hurricane.py --ticks 10 --plot hurricane.png

Stations are too far apart to see the eye, so the storm is found by its winds: where the air turns fastest.
"""

import argparse
import sys
from collections.abc import Iterable

import numpy as np
import xarray as xr

import sensorgrid

PRESSURE, EAST, NORTH = "air_pressure_at_mean_sea_level", "eastward_wind", "northward_wind"
METRES = np.radians(6_371_000)
"""in a degree of latitude"""
STORM = 1e-5
"""a turn, per second"""
Place = tuple[float, float]
"""longitude, latitude"""


def complete(field: xr.Dataset) -> bool:
    """Whether nothing is missing; of the time before the first grid, everything is."""
    return "missing_points" not in field.attrs


def spin(wind: xr.Dataset) -> xr.DataArray:
    """How fast the air turns the way that cyclones do (vorticity), per second."""
    shear = wind[NORTH].differentiate("longitude") / np.cos(np.radians(wind.latitude))
    turning = (shear - wind[EAST].differentiate("latitude")) / METRES
    return (turning * np.sign(wind.latitude)).where(abs(wind.latitude) > 4, 0)


def find(world: Iterable[xr.Dataset]) -> tuple[xr.Dataset, Place]:
    """The first field in which the air turns fast enough for a storm, and where it does."""
    for wind in filter(complete, world):
        turning = spin(wind)
        best = turning.isel(turning.argmax(...))
        place = float(best.longitude), float(best.latitude)
        if best > STORM:
            print(f"{label(wind, place)}  found among {wind[EAST].size} points of the tropics", flush=True)
            return wind, place
        print(
            f"{label(wind, place)}  no storm, the fastest turn is {best.item():.1e} in a second", flush=True
        )
    raise AssertionError("a query without an end has none")


def middle(wind: xr.Dataset) -> Place:
    """The middle of the turning air, between the points of the grid."""
    smooth = spin(wind).rolling(latitude=3, longitude=3, center=True, min_periods=1).mean()
    weight = (smooth - 0.3 * smooth.max()).clip(min=0)
    x, y = (float((weight * wind[axis]).sum() / weight.sum()) for axis in ("longitude", "latitude"))
    return (x + 180) % 360 - 180, y


def around(place: Place, half: float = 8) -> tuple[float, float, float, float]:
    """A box; across the date line its west is greater than its east, which is fine."""
    west, east = ((place[0] + side + 180) % 360 - 180 for side in (-half, half))
    return west, place[1] - half, east, place[1] + half


def label(field: xr.Dataset, place: Place) -> str:
    """When and where, as sailors write it."""
    x, y = place
    return f"{field.time.values:.19}Z  {abs(y):4.1f}°{'NS'[y < 0]} {abs(x):5.1f}°{'EW'[x < 0]}"


def follow(grid: sensorgrid.Client, ticks: int) -> tuple[xr.Dataset, list[Place]]:
    """Find the storm, follow it, say where it is; the last field, and the track."""
    tropics = sensorgrid.Query((EAST, NORTH), bbox=(-180, -26, 180, 26), spacing=6)
    with grid.stream(tropics, errors=False) as world:
        seen, centre = find(world)
    tick, track = int(seen.tick) - 1, []
    while len(track) < ticks:
        aim, note = centre, "new box"
        query = sensorgrid.Query((PRESSURE, EAST, NORTH), bbox=around(aim))
        with grid.stream(query, after=tick, errors=False) as box:  # goes on where the last one ended
            for field in filter(complete, box):
                tick, centre = int(field.tick), middle(field)
                track.append(centre)
                lowest = float(field[PRESSURE].min()) / 100
                speed = float(np.hypot(field[EAST], field[NORTH]).max())
                size = f"{field[PRESSURE].size} points"
                print(
                    f"{label(field, centre)}  {lowest:6.1f} hPa  {speed:4.1f} m/s  {size}  {note}", flush=True
                )
                note = ""
                if len(track) == ticks or np.hypot(centre[0] - aim[0], centre[1] - aim[1]) > 1:
                    break
    return field, track


def draw(field: xr.Dataset, track: list[Place], target: str) -> None:
    """Pressure, wind and track as a picture."""
    import matplotlib.pyplot as plt  # pip install 'sensorgrid[plot]'

    (field[PRESSURE] / 100).plot(cmap="viridis", cbar_kwargs={"label": "hPa"})
    plt.quiver(field.longitude, field.latitude, field[EAST], field[NORTH], color="white")
    plt.plot(*np.transpose(track), "r.-")
    plt.savefig(target)


def main() -> None:
    """The command."""
    options = argparse.ArgumentParser(description="Follow the strongest tropical storm.")
    options.add_argument("--url", help="of a broker; SENSORGRID_URL or ws://localhost:7400 if left out")
    options.add_argument("--ticks", type=int, default=30, help="for how long (30)")
    options.add_argument("--plot", metavar="FILE", help="draw the storm in the end")
    chosen = options.parse_args()
    with sensorgrid.connect(chosen.url) as grid:
        field, track = follow(grid, chosen.ticks)
    if chosen.plot:
        draw(field, track, chosen.plot)


if __name__ == "__main__":
    try:
        main()
    except sensorgrid.SensorGridError as error:
        sys.exit(f"hurricane: {error}")
