"""Smoke in a city: particles leave where the air is worst, and go with the wind.

mosquitto -p 1883
python examples/urban_sensors.py
sensorgrid up examples/urban.toml
python examples/urban.py --ticks 20
"""

import argparse
import sys

import numpy as np
import xarray as xr

import sensorgrid

EAST, NORTH = "eastward_wind", "northward_wind"
DUST = "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air"
SMOKE = 30e-9
"""kilograms in a cubic metre: less is just a city"""
EACH_TICK = 500
"""particles that are let go"""
MIXING = 10.0
"""of turbulent air, square metres in a second"""


def worst_of(field: xr.Dataset) -> xr.DataArray:
    """The dirtiest point."""
    return field[DUST].isel(field[DUST].argmax(...))


def carried(
    particles: np.ndarray, field: xr.Dataset, seconds: float, random: np.random.Generator
) -> np.ndarray:
    """Positions (n, 2) after some seconds of turbulence and of the field's wind, taken between its points."""
    x, y = (xr.DataArray(axis, dims="particle") for axis in particles.T)
    here = field[[EAST, NORTH]].interp(x=x, y=y, kwargs={"fill_value": None})
    wind = np.stack([here[EAST], here[NORTH]], axis=1)
    return particles + wind * seconds + random.normal(0, np.sqrt(2 * MIXING * seconds), particles.shape)


def inside(particles: np.ndarray, extent: tuple[float, float, float, float]) -> np.ndarray:
    """Those that have not left the city."""
    west, south, east, north = extent
    x, y = particles.T
    return particles[(x >= west) & (x < east) & (y >= south) & (y < north)]


def watch(grid: sensorgrid.Client, ticks: int) -> None:
    """Wait for smoke, then say where it goes."""
    random, particles = np.random.default_rng(1), np.empty((0, 2))
    with grid.stream(sensorgrid.Query((EAST, NORTH, DUST)), errors=False) as stream:
        for field in stream:
            if "missing_points" in field.attrs:
                continue  # from before the first grid
            worst = worst_of(field)
            amount = f"{field.time.values:.19}Z  worst {worst.item() * 1e9:3.0f} µg/m³"
            if worst < SMOKE:
                print(f"{amount}, no smoke", flush=True)
                continue
            source = np.array([worst.x, worst.y], float)
            if len(particles):
                particles = inside(carried(particles, field, grid.grid.tick, random), grid.grid.extent)
            particles = np.concatenate([particles, np.tile(source, (EACH_TICK, 1))])
            wind = float(field[EAST].mean()), float(field[NORTH].mean())
            centre, wide = particles.mean(axis=0), np.hypot(*particles.std(axis=0))
            print(
                f"{amount} at {source[0]:.0f} m, {source[1]:.0f} m  wind {wind[0]:.1f} {wind[1]:.1f} m/s"
                f"  plume of {len(particles)} around {centre[0]:.0f} m, {centre[1]:.0f} m, {wide:.0f} m wide",
                flush=True,
            )
            ticks -= 1
            if not ticks:
                break


def main() -> None:
    """The command."""
    options = argparse.ArgumentParser(description="Carry smoke through a city.")
    options.add_argument("--url", help="of a broker; SENSORGRID_URL or ws://localhost:7400 if left out")
    options.add_argument("--ticks", type=int, default=20, help="for how long there is smoke (20)")
    chosen = options.parse_args()
    with sensorgrid.connect(chosen.url) as grid:
        watch(grid, chosen.ticks)


if __name__ == "__main__":
    try:
        main()
    except sensorgrid.SensorGridError as error:
        sys.exit(f"urban: {error}")
