"""The mean level of a river in its valley, while it rains in the mountains: one number an hour instead of two fields.

python examples/river.py

A small world of its own: rain moves over the mountains, and the river rises in the valley some hours later. The
operator begins when three hours of rain exceed 4 mm an hour on average, and ends when they are below 1 mm.
"""

import argparse

import numpy as np
import xarray as xr

from sensorgrid import Operator
from sensorgrid.operators.areas import area_from_bbox, area_from_geojson
from sensorgrid.operators.local import evaluate

AREAS = {
    "mountains": area_from_geojson(
        {
            "type": "Polygon",
            "coordinates": [[[7.1, 46.2], [9.4, 46.3], [8.9, 47.3], [7.3, 47.1], [7.1, 46.2]]],
        }
    ),
    "valley": area_from_bbox((7.5, 47.5, 8.6, 47.9)),
}
LEVEL = Operator(
    "mean(river_level, 'valley')",
    when="mean(precipitation_amount, 'mountains', '3h') > 4",
    until="mean(precipitation_amount, 'mountains', '3h') < 1",
    name="level of the river while it rains",
)


def world(hours: int, seed: int) -> xr.Dataset:
    """Rain, and a river that follows it by three hours; each with a standard error."""
    rng = np.random.default_rng(seed)
    longitude, latitude = 6 + (np.arange(64) + 0.5) / 16, 46 + (np.arange(32) + 0.5) / 16
    x, y = np.meshgrid(longitude, latitude)
    passed = np.arange(hours)[:, None, None]
    rain = 15 * np.exp(-(((x - 5.5 - 0.25 * passed) / 0.8) ** 2) - ((y - 46.7) / 0.6) ** 2)
    late = np.concatenate([rain[:1].repeat(3, axis=0), rain[:-3]])
    level = 1.2 + 0.15 * late.mean(axis=(1, 2), keepdims=True) + rng.normal(0, 0.02, rain.shape)
    dims, time = ("time", "latitude", "longitude"), np.datetime64("2026-06-01T00:00:00", "ns")
    return xr.Dataset(
        {
            "precipitation_amount": (dims, rain.astype(np.float32)),
            "river_level": (dims, level.astype(np.float32)),
            "river_level_standard_error": (dims, np.full(rain.shape, 0.02, np.float32)),
        },
        {
            "time": time + np.arange(hours) * np.timedelta64(1, "h"),
            "latitude": latitude,
            "longitude": longitude,
        },
    )


def main() -> None:
    """One line an hour."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for hour in evaluate(LEVEL, world(given.hours, given.seed), AREAS):
        when = np.datetime_as_string(hour.time.values, unit="h")
        if np.isnan(hour):
            print(f"{when}  {hour.reason.item()}")
        else:
            print(f"{when}  {float(hour):.2f} ± {float(hour.error):.2f} m  {int(hour.points)} points")


if __name__ == "__main__":
    main()
