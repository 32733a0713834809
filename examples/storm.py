"""The Storm of the Century, from a file: the low over the Rio Grande on the morning of 12 March 1993.

sensorgrid up examples/storm.toml --no-pipeline
python examples/storm.py
sensorgrid pipeline replay examples/storm.toml
"""

import argparse
import sys

import numpy as np

import sensorgrid

PRESSURE, EAST, NORTH = "air_pressure_at_mean_sea_level", "eastward_wind", "northward_wind"
STATES = (-125, 25, -67, 49)


def main() -> None:
    """The command."""
    options = argparse.ArgumentParser(description="Look for the deepest low of every hour.")
    options.add_argument("--url", help="of a broker; SENSORGRID_URL or ws://localhost:7400 if left out")
    options.add_argument("--hours", type=int, default=11, help="from 06 UTC on (11)")
    chosen = options.parse_args()
    query = sensorgrid.Query(
        (PRESSURE, EAST, NORTH), bbox=STATES, start="1993-03-12T06:00Z", duration=chosen.hours * 3600
    )
    with sensorgrid.connect(chosen.url) as grid:
        for field in grid.stream(query):
            if "missing_points" in field.attrs:
                print(f"{field.time.values:.16}Z  was not sent to the brokers")
                continue
            pressure, speed = field[PRESSURE], np.hypot(field[EAST], field[NORTH])
            low, strong = pressure.isel(pressure.argmin(...)), speed.isel(speed.argmax(...))
            error = float(low[f"{PRESSURE}_standard_error"])
            print(
                f"{field.time.values:.16}Z  {low.item() / 100:6.1f} ± {error / 100:.1f} hPa at {low.latitude:.2f}°N"
                f" {-low.longitude:.2f}°W  {strong.item():4.1f} m/s at {strong.latitude:.2f}°N"
                f" {-strong.longitude:.2f}°W",
                flush=True,
            )


if __name__ == "__main__":
    try:
        main()
    except sensorgrid.SensorGridError as error:
        sys.exit(f"storm: {error}")
