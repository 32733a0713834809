"""Real station networks as they reported, from the project's data folder.

Each set is read with pandas in the units of the project's mappings, checked by the project's gross and usual limits
and against each sensor's own past, and cut into ticks. What a feed does with missing values, duplicates and
impossible positions is in its README; here each of these is one line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sensorgrid.benchmarks.truth import TruthError
from sensorgrid.model.grid import Grid
from sensorgrid.model.units import conversion
from sensorgrid.pipeline.gridding.groups import WIND, groups_of
from sensorgrid.pipeline.gridding.measurements import Measurements
from sensorgrid.pipeline.gridding.series import SeriesLimits
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.verification.network import StationNetwork, evenly, network_of

PM25 = "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air"
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Dataset:
    """One folder of the data, and how to read it."""

    name: str
    """the folder"""
    read: Callable[[Path], Any]
    """a table with sensor, time (UTC), x, y, elevation if known, and a column per attribute"""
    attributes: dict[str, str]
    """which of them are verified, and the unit that the table has them in"""
    tick_s: float = HOUR_S
    coordinates: str = "lonlat"
    busiest: bool = False
    """take the ticks with the highest readings instead of ticks at even steps"""
    max_age_s: float = 3 * HOUR_S


def _airnow(folder: Path) -> Any:
    import pandas as pd

    table = pd.read_csv(folder / "hourly_pm25.csv.gz")
    places = pd.read_csv(folder / "monitors.csv").set_index("deviceDeploymentID")
    placed = places.loc[table["deviceDeploymentID"]]
    return pd.DataFrame(
        {
            "sensor": table["deviceDeploymentID"],
            "time": pd.to_datetime(table["time"], utc=True),
            "x": placed["longitude"].to_numpy(),
            "y": placed["latitude"].to_numpy(),
            "elevation": placed["elevation"].to_numpy(),
            PM25: table["pm25"],
        }
    )


def _metar(folder: Path) -> Any:
    import pandas as pd

    columns = {
        "station_id": "sensor", "observation_time": "time", "longitude": "x", "latitude": "y",
        "elevation_m": "elevation", "temp_c": "air_temperature", "dewpoint_c": "dew_point_temperature",
        "wind_dir_degrees": "wind_from_direction", "wind_speed_kt": "wind_speed",
        "sea_level_pressure_mb": "air_pressure_at_mean_sea_level",
    }  # fmt: skip
    table = pd.read_csv(folder / "metars.csv.gz", usecols=list(columns), low_memory=False)
    table = table.rename(columns=columns)
    table["time"] = pd.to_datetime(table["time"], utc=True)
    table.loc[table["wind_from_direction"] == 0, "wind_from_direction"] = np.nan
    return table


def _asos(folder: Path) -> Any:
    import pandas as pd

    columns = {
        "station": "sensor", "valid": "time", "lon": "x", "lat": "y", "tmpf": "air_temperature",
        "dwpf": "dew_point_temperature", "relh": "relative_humidity", "drct": "wind_from_direction",
        "sknt": "wind_speed", "mslp": "air_pressure_at_mean_sea_level",
    }  # fmt: skip
    table = pd.read_csv(folder / "obs.csv.gz", usecols=list(columns), skipinitialspace=True)
    table = table.rename(columns=columns)
    table["time"] = pd.to_datetime(table["time"], utc=True)
    table.loc[table["wind_from_direction"] == 0, "wind_from_direction"] = np.nan
    return table


def _sao(folder: Path) -> Any:
    import pandas as pd

    columns = {
        "id": "sensor", "time": "time", "lon": "x", "lat": "y", "elev": "elevation", "T": "air_temperature",
        "TD": "dew_point_temperature", "PSL": "air_pressure_at_mean_sea_level", "SPD": "wind_speed",
        "DIR": "wind_from_direction",
    }  # fmt: skip
    table = pd.read_csv(folder / "reports.csv.gz", usecols=list(columns)).rename(columns=columns)
    table["time"] = pd.to_datetime(table["time"], format="%Y %m %d %H:%M UTC", utc=True)
    table = table.replace(-9999.0, np.nan)
    table.loc[table["wind_from_direction"] == 0, "wind_from_direction"] = np.nan
    return table


def _buoys(folder: Path) -> Any:
    import pandas as pd

    table = pd.read_csv(folder / "obs.csv.gz").replace(9999, np.nan)
    places = pd.read_csv(folder / "stations.csv").dropna(subset=["lat", "lon"]).set_index("station")
    table = table[table["station"].isin(places.index)]
    placed = places.loc[table["station"]]
    found = {
        "sensor": table["station"],
        "time": pd.to_datetime(table["time"], utc=True),
        "x": placed["lon"].to_numpy(),
        "y": placed["lat"].to_numpy(),
        "air_temperature": table["air_temp"] / 10,
        "sea_surface_temperature": table["water_temp"] / 10,
        "air_pressure_at_mean_sea_level": table["pressure"] / 10,
        "wind_speed": table["wind_speed"] / 10,
        "wind_from_direction": table["wind_dir"],
        "sea_surface_wave_significant_height": table["wave_height"] / 100,
    }
    return pd.DataFrame(found)


def _beijing(folder: Path) -> Any:
    import pandas as pd

    table = pd.read_csv(folder / "hourly.csv.gz")
    places = pd.read_csv(folder / "stations.csv").set_index("station").loc[table["station"]]
    found = {
        "sensor": table["station"],
        "time": pd.to_datetime(table["time_local"], utc=True),
        "x": places["lon"].to_numpy(),
        "y": places["lat"].to_numpy(),
        PM25: table["PM2.5"],
        "mass_concentration_of_nitrogen_dioxide_in_air": table["NO2"],
    }
    return pd.DataFrame(found)


def _intel(folder: Path) -> Any:
    import pandas as pd

    # The files do not say which motes their rows are: the first 50 of 54 is a guess, right for most.
    places = np.loadtxt(folder / "mote_locs.txt")[:50]
    parts = []
    for name, columns in (("Train", 144), ("Test", 96)):
        first = pd.Timestamp("2004-03-01", tz="UTC") + pd.Timedelta(days=0 if name == "Train" else 3)
        warm = np.loadtxt(folder / f"intelTemperature{name}.csv", delimiter=",")
        wet = np.loadtxt(folder / f"intelHumidity{name}.csv", delimiter=",")
        moments = first + pd.to_timedelta(30 * np.arange(columns), unit="min")
        parts.append(
            pd.DataFrame(
                {
                    "sensor": np.repeat(places[:, 0].astype(int), columns).astype(str),
                    "time": np.tile(moments, len(places)),
                    "x": np.repeat(places[:, 1], columns),
                    "y": np.repeat(places[:, 2], columns),
                    "air_temperature": warm.ravel(),
                    "relative_humidity": wet.ravel(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _norway(folder: Path) -> Any:
    import pandas as pd

    parts = []
    for file in sorted(folder.glob("ta_*.txt")):
        part = pd.read_csv(file, sep=";").rename(
            columns={"lon": "x", "lat": "y", "elev": "elevation", "value": "air_temperature"}
        )
        part["time"] = pd.Timestamp(file.stem[3:].replace("Z", "00"), tz="UTC")
        part["sensor"] = part["x"].astype(str) + "," + part["y"].astype(str)
        parts.append(part.drop_duplicates("sensor"))
    return pd.concat(parts, ignore_index=True)


_WEATHER = {
    "air_temperature": "degC",
    "dew_point_temperature": "degC",
    "air_pressure_at_mean_sea_level": "hPa",
}
FEEDS = (
    Dataset("airnow-nw-megafires-2015", _airnow, {PM25: "ug/m3"}, busiest=True),
    Dataset("metar-global-2022-10", _metar, _WEATHER | {WIND: "kt"}),
    Dataset("asos-us-1993-03-12", _asos,
         {"air_temperature": "degF", "dew_point_temperature": "degF", "relative_humidity": "%",
          "air_pressure_at_mean_sea_level": "hPa", WIND: "kt"}),
    Dataset("sao-1995-03-18", _sao, _WEATHER | {WIND: "m s-1"}),
    Dataset("buoys-2013-05", _buoys,
         {"air_temperature": "degF", "sea_surface_temperature": "degF", "air_pressure_at_mean_sea_level": "hPa",
          "sea_surface_wave_significant_height": "m", WIND: "kt"}),
    Dataset("intel-lab-30min", _intel, {"air_temperature": "degC", "relative_humidity": "%"}, tick_s=1800.0,
         coordinates="planar"),
    Dataset("norway-qc-demo", _norway, {"air_temperature": "degC"}),
)  # fmt: skip
"""networks of at least 30 stations"""
SMALL = Dataset(
    "beijing-prsa",
    _beijing,
    {PM25: "ug/m3", "mass_concentration_of_nitrogen_dioxide_in_air": "ug/m3"},
)
"""twelve stations: only for small networks"""


def table_of(feed: Dataset, folder: Path) -> Any:
    """The feed's table, read once; rows without a possible position are left out."""
    return _table(feed.name, folder)


@cache
def _table(name: str, folder: Path) -> Any:
    (feed,) = (f for f in (*FEEDS, SMALL) if f.name == name)
    place = folder / feed.name
    if not place.is_dir():
        raise TruthError(f"data folder {folder}: found no folder {feed.name}, expected the readings there")
    table = feed.read(place)
    table = table[np.isfinite(table["x"]) & np.isfinite(table["y"])]
    if feed.coordinates != "planar":
        table = table[(table["x"].abs() <= 180) & (table["y"].abs() < 90) & (table["x"] != 0)]
    return table


def network(
    feed: Dataset,
    table: Any,
    attribute: str,
    ticks: int,
    window: tuple[int, int] | None = None,
) -> StationNetwork:
    """One attribute (or the wind) of a feed, at so many ticks; `window` is a first and last tick."""
    import pandas as pd

    grid = grid_of(feed, table, attribute)
    (group,) = groups_of(grid.attributes)
    inputs = [name for name in group.inputs if name in table.columns]
    unit = feed.attributes[attribute]
    time_us = table["time"].astype("datetime64[us, UTC]").astype("int64").to_numpy()
    numbers, _ = pd.factorize(table["sensor"])
    parts = []
    for name in inputs:
        values = table[name].to_numpy(np.float64)
        values = _canonical(name, values, "degree" if name == "wind_from_direction" else unit)
        parts.append((values, np.full(len(values), group.inputs.index(name), np.uint8)))
    value, code = (np.concatenate(column) for column in zip(*parts, strict=True))
    again = len(parts)
    good = np.isfinite(value)
    rows = Measurements(
        np.tile(numbers, again).astype(np.uint64)[good],
        np.tile(time_us, again)[good],
        np.tile(table["x"].to_numpy(np.float64), again)[good],
        np.tile(table["y"].to_numpy(np.float64), again)[good],
        value[good],
        code[good],
        np.ones(int(good.sum()), np.uint8),
    )
    chosen = _ticks(feed, rows, grid, ticks, window)
    heights = None
    if "elevation" in table.columns:
        height = table["elevation"].to_numpy(np.float64)
        first = np.unique(numbers, return_index=True)[1]
        heights = {int(numbers[i]): float(height[i]) for i in first}
    limits = tuple(limits_of(name) for name in group.inputs)
    label = f"{feed.name} {attribute}"
    return network_of(label, rows, group, grid, limits, feed.max_age_s, chosen, heights)


def grid_of(feed: Dataset, table: Any, attribute: str) -> Grid:
    """A grid that spans the feed: only its coordinates, its tick and its attribute matter."""
    names = ("eastward_wind", "northward_wind") if attribute == WIND else (attribute,)
    if feed.coordinates == "planar":
        extent = (
            float(table["x"].min()),
            float(table["y"].min()),
            float(table["x"].max()) + 1,
            float(table["y"].max()) + 1,
        )
        return Grid(extent=extent, coordinates="planar", shape=(64, 64), tick=feed.tick_s, attributes=names,
                    resolution_bits=(1, 1, 1), region_digits=0)  # fmt: skip
    return Grid(tick=feed.tick_s, attributes=names)


def _canonical(name: str, values: Any, unit: str) -> Any:
    """In the canonical unit, without what the limits of the climate refuse."""
    known = KNOWN.get(name)
    if known is None:
        return values
    found = conversion(unit, known.unit)
    assert found is not None, (name, unit)
    values = values * found[0] + found[1]
    low, high = known.usual
    return np.where((values >= low) & (values <= high), values, np.nan)


def limits_of(name: str) -> SeriesLimits:
    """The usual limits of a series; none for an attribute that nobody knows."""
    known = KNOWN.get(name)
    if known is None:
        return SeriesLimits(step=np.inf, rate=np.inf, spike=np.inf, flat_s=0.0, tolerance=0.0)
    return SeriesLimits(known.step, known.rate, known.spike, known.flat_s, known.noise)


def _ticks(
    feed: Dataset, rows: Measurements, grid: Grid, count: int, window: tuple[int, int] | None
) -> Sequence[int]:
    """Ticks that have about as many readings as usual, at even steps or where readings are highest."""
    tick = rows.time_us // round(grid.tick * 1e6)
    numbers, readings = np.unique(tick, return_counts=True)
    if window is not None:
        inside = (numbers >= window[0]) & (numbers <= window[1])
        numbers, readings = numbers[inside], readings[inside]
    full = numbers[readings >= 0.5 * np.quantile(readings, 0.9)] if len(numbers) else numbers
    if not feed.busiest or len(full) <= count:
        return evenly(full.tolist(), count)
    high = {int(n): float(np.quantile(rows.value[tick == n], 0.99)) for n in full}
    return sorted(sorted(high, key=lambda n: -high[n])[:count])
