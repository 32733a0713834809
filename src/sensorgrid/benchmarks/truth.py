"""Fields whose truth is known everywhere, and positions where real stations stand.

Both come from the project's data folder (`../shared/data` beside the project, or where SENSORGRID_DATA
points). Sampling a real field at real station positions, gridding the samples and comparing with the field
is the only way to score a grid between the stations. The sources disagree about everything: which way
latitude runs, where longitude begins, how a missing value is written; here all of that is made one.
"""

import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sensorgrid.model.errors import SensorGridError

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

VARIABLE = "SENSORGRID_DATA"
_BESIDE = Path(__file__).parents[3].parent / "shared" / "data"


class TruthError(SensorGridError, FileNotFoundError):
    """Data that a benchmark needs and that is not here."""


@dataclass(frozen=True, slots=True)
class Truth:
    """One field on a regular grid of longitudes and latitudes, at one or several times."""

    name: str
    """data set, variable and level"""
    longitude: Floats
    """(x,) ascending, degrees east; a global field closes: the first meridian is repeated at the end"""
    latitude: Floats
    """(y,) ascending, degrees"""
    values: Floats
    """(t, y, x), NaN where the source has nothing"""

    def at(self, longitude: Floats, latitude: Floats, time: int) -> Floats:
        """Bilinear between the four grid points around; NaN outside and where one of the four is missing."""
        x = (longitude - self.longitude[0]) % 360.0
        column = x / (self.longitude[1] - self.longitude[0])
        row = (latitude - self.latitude[0]) / (self.latitude[1] - self.latitude[0])
        height, width = self.values.shape[1:]
        inside = (column >= 0) & (column <= width - 1) & (row >= 0) & (row <= height - 1)
        column, row = np.where(inside, column, 0.0), np.where(inside, row, 0.0)
        left = np.minimum(column.astype(np.int64), width - 2)
        low = np.minimum(row.astype(np.int64), height - 2)
        right, up, field = column - left, row - low, self.values[time]
        below = field[low, left] * (1 - right) + field[low, left + 1] * right
        above = field[low + 1, left] * (1 - right) + field[low + 1, left + 1] * right
        return np.where(inside, below * (1 - up) + above * up, np.nan)

    def grid_points(self) -> tuple[Floats, Floats]:
        """Longitude and latitude of every grid point, (y, x) each; the closing meridian is left out."""
        closes = self.longitude[-1] - self.longitude[0] > 359.999
        columns = self.longitude[:-1] if closes else self.longitude
        east, north = np.meshgrid(columns, self.latitude)
        return east, north


def data_folder(folder: Path | None = None, holds: str = "truth-grids") -> Path:
    """Where the data lies: the argument, else SENSORGRID_DATA, else beside the project."""
    found = folder or Path(os.environ.get(VARIABLE) or _BESIDE)
    if not (found / holds).is_dir():
        raise TruthError(
            f"data folder {found}: found no folder {holds}, expected one there, where"
            f" {VARIABLE} points, or --data"
        )
    return found


@cache
def truths(folder: Path) -> dict[str, Truth]:
    """Every field, by name."""
    grids = folder / "truth-grids"
    found: list[Truth] = []
    for file, dataset, variables, level in (
        ("era5_t2m_uk_2019-03_first.nc", "era5-uk", ("t2m",), None),
        ("era5_t_z_global_3deg_2017-01.nc", "era5", ("t", "z"), "isobaricInhPa"),
        ("GFS_global.nc", "gfs", ("Temperature_isobaric", "Geopotential_height_isobaric"), "isobaric6"),
        (
            "gfs_output.nc", "gfs-america",
            ("temp", "precip_water", "heights_500", "heights_300", "vort_500", "winds_300"), None,
        ),
        ("Tstorm.cdf", "nmc-storm", ("t",), None),
        ("Pstorm.cdf", "nmc-storm", ("p",), None),
        ("Ustorm.cdf", "nmc-storm", ("u",), None),
        ("Vstorm.cdf", "nmc-storm", ("v",), None),
        ("coads_climatology_monthly.nc", "coads", ("SST", "AIRT", "UWND", "VWND"), None),
    ):  # fmt: skip
        found += _from_netcdf(grids / file, dataset, variables, level)
    found += _from_wind_table(grids / "windvectors_europe.csv")
    return {truth.name: truth for truth in found}


def _from_netcdf(path: Path, dataset: str, variables: tuple[str, ...], level: str | None) -> list[Truth]:
    import xarray

    if find_spec("netCDF4") is None:  # xarray would name every package that could read it
        raise TruthError("netCDF4: found no such package, expected `pip install sensorgrid[bench]`")
    if not path.exists():
        raise TruthError(f"truth grid {path.name}: found no file in {path.parent}, expected it there")
    found = []
    with xarray.open_dataset(path, decode_times=False) as source:
        for variable in variables:
            array = source[variable]
            if "number" in array.dims:  # the control run of an ensemble
                array = array.isel(number=0)
            if level is None:
                found.append(_truth(f"{dataset} {variable}", array))
                continue
            for i, height in enumerate(source[level].values):
                name = f"{dataset} {variable.split('_')[0].lower()}{height:g}"
                found.append(_truth(name, array.isel({level: i})))
    return found


def _truth(name: str, array: Any) -> Truth:
    """The array with latitude and longitude ascending, and closed if it goes around the earth."""
    *_, north, east = array.dims
    array = array.sortby(north)
    longitude = np.asarray(array[east].values, np.float64)
    latitude = np.asarray(array[north].values, np.float64)
    values = np.asarray(array.values, np.float64)
    step = longitude[1] - longitude[0]
    if abs(step * len(longitude) - 360.0) < 0.5 * step:
        longitude = np.append(longitude, longitude[0] + 360.0)
        values = np.concatenate([values, values[:, :, :1]], axis=2)
    return Truth(name, longitude, latitude, values)


def _from_wind_table(path: Path) -> list[Truth]:
    """Speed and both components: a direction cannot be interpolated."""
    import pandas as pd

    if not path.exists():
        raise TruthError(f"truth grid {path.name}: found no file in {path.parent}, expected it there")
    table = pd.read_csv(path)
    turned = np.radians(table["dir"])
    table["u"], table["v"] = -table["speed"] * np.sin(turned), -table["speed"] * np.cos(turned)
    found = []
    for variable in ("speed", "u", "v"):
        field = table.pivot(index="latitude", columns="longitude", values=variable)
        longitude, latitude = field.columns.to_numpy(np.float64), field.index.to_numpy(np.float64)
        found.append(Truth(f"wind-europe {variable}", longitude, latitude, field.to_numpy(np.float64)[None]))
    return found


@cache
def stations(folder: Path, network: str) -> Floats:
    """(n, 2) longitude and latitude of a network's stations: each place once, sorted, impossible ones left out."""
    import pandas as pd

    if network == "sao":
        found = pd.read_csv(folder / "sao-1995-03-18" / "reports.csv.gz", usecols=["lon", "lat"])
    elif network == "metar":
        found = pd.read_csv(
            folder / "metar-global-2022-10" / "metars.csv.gz", usecols=["longitude", "latitude"]
        )
    elif network == "buoys":
        found = pd.read_csv(folder / "buoys-2013-05" / "stations.csv")
    elif network == "asos":
        found = pd.read_csv(folder / "asos-us-1993-03-12" / "obs.csv.gz", usecols=["lon", "lat"])
    elif network == "airnow":
        found = pd.read_csv(folder / "airnow-nw-megafires-2015" / "monitors.csv")
    elif network == "norway":
        files = sorted((folder / "norway-qc-demo").glob("ta_*.txt"))
        found = pd.concat([pd.read_csv(file, sep=";") for file in files])
    elif network == "wmo":
        found = _station_list(folder / "metar-raw-bulletins" / "stations.txt.gz")
    else:
        raise TruthError(f"network {network!r}: found no such network, expected one of {', '.join(NETWORKS)}")
    found = found.rename(columns={"longitude": "lon", "latitude": "lat"})[["lon", "lat"]]
    places = found.dropna().to_numpy(np.float64)
    possible = (np.abs(places[:, 0]) <= 180) & (np.abs(places[:, 1]) < 90) & (places != 0).any(axis=1)
    unique: Floats = np.unique(np.round(places[possible], 4), axis=0)
    return unique


NETWORKS = ("sao", "metar", "buoys", "asos", "airnow", "norway", "wmo")


def _station_list(path: Path) -> Any:
    """NCAR's fixed-width list: degrees and minutes with a letter for the hemisphere."""
    import pandas as pd

    text = pd.read_csv(path, sep="\0", header=None, names=["line"], encoding="latin-1", engine="python")[
        "line"
    ]
    found = text.str.extract(r"(\d\d) (\d\d)([NS]) +(\d{2,3}) (\d\d)([EW])").dropna()
    north = found[0].astype(float) + found[1].astype(float) / 60
    east = found[3].astype(float) + found[4].astype(float) / 60
    return pd.DataFrame(
        {"lon": east.where(found[5] == "E", -east), "lat": north.where(found[2] == "N", -north)}
    )
