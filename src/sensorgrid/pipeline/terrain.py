"""The height of the ground at every point of a grid, and other covariates, from files (NetCDF, Zarr, GeoTIFF).

A job reads the file once, at its start, and keeps the heights of the grid's own points in the lake (`keep`); tasks
read those (`heights_of`), so they need neither the file nor the libraries that read it. A point's height is the mean
over its area where the file is finer than the grid, and is interpolated where it is coarser. Where the file has no
value (the sea, in many files), the height is 0.

Other covariates (the distance to the coast, a share of forest) are kept likewise, one file each (`GridCovariates`).
Sensors get theirs from the same points, by interpolation at their place. Where a file has no value, the covariate is
not known.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow.fs as pafs

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake.folder import Folder

Heights = npt.NDArray[np.float32]
Stamp = tuple[int | None, int]
"""when a file was written, and its size: another one is another file"""
NAMES = ("elevation", "altitude", "height", "orog", "topo", "z", "band_data", "Band1")
"""variables that are taken for the elevation, the first that is there"""
STANDARD = ("surface_altitude", "altitude", "height_above_mean_sea_level", "bedrock_altitude")
"""and by their CF standard names, before all others"""
AXES = (("lon", "longitude", "x"), ("lat", "latitude", "y"))
SAMPLES = 4
"""values of the file that are looked at in each point's area, along each axis, at most"""
HOLE = 4.0
"""usual distances between places of the file, or between points of the grid, that are no hole yet"""
_SAME = 1e-9
FILE = "terrain.npy"


class TerrainError(SensorGridError, ValueError):
    """A file of elevations that cannot be used."""


@dataclass(frozen=True)
class GridCovariates:
    """Further covariates of a grid, by name; see `gridding.tile.Covariates`."""

    grid: Grid
    whole: Callable[[str], Heights | None]
    """a covariate at all points of the grid, ``[y, x]``; None if nobody knows it"""

    def at_points(self, region: int, names: tuple[str, ...]) -> npt.NDArray[np.float64]:
        """(m, c) at a region's points."""
        box = Regions(self.grid).boxes[region]
        part = (slice(box.y0, box.y1), slice(box.x0, box.x1))
        count = (box.y1 - box.y0) * (box.x1 - box.x0)
        return self._columns(names, count, lambda whole: whole[part].ravel())

    def at_places(
        self, positions: npt.NDArray[np.float64], names: tuple[str, ...]
    ) -> npt.NDArray[np.float64]:
        """(n, c) at places, in metres as kernels have them: between the four points around each."""
        x, y = _coordinates(positions)
        west, south, east, _ = self.grid.extent
        dx, dy = self.grid.spacing
        turns = self.grid.coordinates == "lonlat"
        if turns:
            x = west + np.mod(x - west, 360.0)
        columns, rows = self.grid.shape
        round_earth = turns and east - west >= 360.0
        (left, right, across), (below, above, up) = (
            _between((x - west) / dx - 0.5, columns, round_earth),
            _between((y - south) / dy - 0.5, rows, False),
        )

        def interpolated(whole: Heights) -> npt.NDArray[np.float64]:
            low = whole[below, left] * (1 - across) + whole[below, right] * across
            high = whole[above, left] * (1 - across) + whole[above, right] * across
            found = np.asarray(low * (1 - up) + high * up, np.float64)
            nearest = whole[np.where(up < 0.5, below, above), np.where(across < 0.5, left, right)]
            return np.where(np.isfinite(found), found, nearest)

        return self._columns(names, len(x), interpolated)

    def _columns(
        self, names: tuple[str, ...], count: int, of: Callable[[Heights], npt.NDArray[Any]]
    ) -> npt.NDArray[np.float64]:
        found = np.full((count, len(names)), np.nan)
        for column, name in enumerate(names):
            whole = self.whole(name)
            if whole is not None:
                found[:, column] = of(whole)
        return found


def read_covariates(files: tuple[tuple[str, str], ...], grid: Grid) -> GridCovariates | None:
    """From files (name, path), each read once in a process; None if there are none."""
    return GridCovariates(grid, dict(_read(files, grid)).get) if files else None


@lru_cache(maxsize=2)
def _read(files: tuple[tuple[str, str], ...], grid: Grid) -> tuple[tuple[str, Heights], ...]:
    return tuple((name, read_covariate(path, grid, name)) for name, path in files)


def covariates_of(root: str, grid: Grid) -> GridCovariates:
    """Those that a lake keeps, as tasks read them."""

    def whole(name: str) -> Heights | None:
        file = covariate_file(name)
        stamp = _stamp(root, file)
        return None if stamp is None else _checked_shape(root, stamp, grid, file)

    return GridCovariates(grid, whole)


def covariate_file(name: str) -> str:
    """Of a covariate in a lake."""
    return f"covariate-{name}.npy"


def read_covariate(path: str | Path, grid: Grid, name: str) -> Heights:
    """A covariate at all points of a grid, ``[y, x]``, from the variable of that name, or the only one; NaN: unknown.

    Raises
    ------
    TerrainError
        If the file cannot be read, does not say what is what, or does not cover the grid.
    """
    values, across, along = _gathered(_opened(str(path), (name,)), str(path), grid)
    known = np.isfinite(values)
    share = along @ known.astype(np.float64) @ across.T
    total = along @ np.where(known, values, 0.0) @ across.T
    return np.where(share > 0.5, total / np.maximum(share, 0.5), np.nan).astype(np.float32)


def read_terrain(path: str | Path, grid: Grid) -> Heights:
    """Heights of all points of a grid in metres, ``[y, x]``, row 0 in the south; never NaN.

    Raises
    ------
    TerrainError
        If the file cannot be read, does not say what is what, or does not cover the grid.
    """
    values, across, along = _gathered(_opened(str(path)), str(path), grid)
    return np.asarray(along @ np.nan_to_num(values, nan=0.0) @ across.T, np.float32)


def _gathered(field: Any, path: str, grid: Grid) -> tuple[npt.NDArray[np.float64], ...]:
    """Values of a file around a grid, and what each counts for the grid's points along x and y."""
    x, y = (_axis(field, names, path) for names in AXES)
    field = field.squeeze(drop=True).transpose(y, x)
    west, south, east, north = grid.extent
    dx, dy = grid.spacing
    columns = west + np.arange(0.5, grid.shape[0], dtype=np.float64) * dx
    rows = south + np.arange(0.5, grid.shape[1], dtype=np.float64) * dy
    lon, lat = field[x].values.astype(float), field[y].values.astype(float)
    if (
        grid.coordinates == "lonlat"
    ):  # as near to the grid as they can be, also just outside its western border
        far = (west + east) / 2 - 180.0
        lon = far + (lon - far) % 360.0
    low, high = rows[0] - dy / 2, rows[-1] + dy / 2
    at_x, at_y = _chosen(lon, west, east, dx), _chosen(lat, low, high, dy)
    _check_cover(path, lon[at_x], west, east, dx, "longitudes")
    _check_cover(path, lat[at_y], south, north, dy, "latitudes")
    closed = grid.coordinates == "lonlat" and east - west >= 360
    across = _weights(lon[at_x], columns, dx, 360.0 if closed else None)
    along = _weights(lat[at_y], rows, dy, None)
    return field.isel({x: at_x, y: at_y}).values.astype(np.float64), across, along


def _between(
    at: npt.NDArray[np.float64], count: int, turns: bool
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """The points before and after each place along an axis, and how far it is from the one to the other."""
    if not turns:
        at = np.clip(at, 0.0, count - 1)
    before = np.floor(at).astype(np.intp)
    after = before + 1
    if turns:
        return before % count, after % count, at - before
    return before, np.minimum(after, count - 1), at - before


def _coordinates(
    positions: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The way back from `gridding.kernels.interface.metres`."""
    if positions.shape[1] == 2:
        return positions[:, 0], positions[:, 1]
    north = np.degrees(np.arctan2(positions[:, 2], np.hypot(positions[:, 0], positions[:, 1])))
    return np.degrees(np.arctan2(positions[:, 1], positions[:, 0])), north


def keep(folder: Folder, heights: Heights, file: str = FILE) -> None:
    """Keep the heights of a grid in a lake, at once: readers see the old or the new ones."""
    out = io.BytesIO()
    np.save(out, heights)
    files, fresh = folder._fs()[0], folder.path(f".{file}.{uuid4().hex}")
    with files.open_output_stream(fresh) as stream:
        stream.write(out.getvalue())
    files.move(fresh, folder.path(file))


def heights_of(root: str, grid: Grid, region: int) -> npt.NDArray[np.float64] | None:
    """Heights of a region's points, in the order of `points_in_metres`; None if a lake has none. Cached per process."""
    stamp = _stamp(root, FILE)
    return None if stamp is None else _of_region(root, stamp, grid, region)


def _stamp(root: str, file: str) -> Stamp | None:
    folder = Folder(root)
    info = folder._fs()[0].get_file_info(folder.path(file))
    return (info.mtime_ns, info.size) if info.type == pafs.FileType.File else None


@lru_cache(maxsize=256)
def _of_region(root: str, stamp: Stamp, grid: Grid, region: int) -> npt.NDArray[np.float64]:
    whole = _checked_shape(root, stamp, grid, FILE)
    box = Regions(grid).boxes[region]
    return whole[box.y0 : box.y1, box.x0 : box.x1].astype(np.float64).ravel()


def _checked_shape(root: str, stamp: Stamp, grid: Grid, file: str) -> Heights:
    whole = _kept(root, stamp, file)
    if whole.shape != grid.shape[::-1]:
        raise TerrainError(
            f"{root}/{file}: found {whole.shape} points, expected those of the grid {grid.shape[::-1]}"
        )
    return whole


@lru_cache(maxsize=8)
def _kept(root: str, stamp: Stamp, file: str) -> Heights:
    folder = Folder(root)
    with folder._fs()[0].open_input_stream(folder.path(file)) as stream:
        found: Heights = np.load(io.BytesIO(stream.read()))
        return found


def _opened(path: str, names: tuple[str, ...] = NAMES) -> Any:
    """The variable of a file that has one of the names, or else is the only one; elevations by standard name, too."""
    import xarray as xr

    try:
        if path.rstrip("/").endswith(".zarr"):
            data = xr.open_zarr(path, consolidated=False, chunks=None)
        elif path.lower().endswith((".tif", ".tiff")):
            data = xr.open_dataset(path, engine="rasterio")
        else:
            data = xr.open_dataset(path)
    except (OSError, ValueError, ImportError, KeyError) as error:
        said = str(error).strip().splitlines()
        what = "elevations" if names is NAMES else names[0]
        raise TerrainError(
            f"{path}: found {said[0] if said else repr(error)}, expected {what} in NetCDF, Zarr, or"
            " GeoTIFF (which needs rioxarray)"
        ) from None
    flat = [name for name, field in data.data_vars.items() if field.squeeze(drop=True).ndim == 2]
    standard = STANDARD if names is NAMES else names
    known = [name for name in flat if data[name].attrs.get("standard_name") in standard]
    named = [name for name in names if name in flat]
    chosen = [*known, *named, *(flat if len(flat) == 1 else [])]
    if not chosen:
        found = ", ".join(map(str, data.data_vars)) or "no variable"
        raise TerrainError(
            f"{path}: found {found}, expected one with two axes, called {' or '.join(names[:3])}"
        )
    return data[chosen[0]]


def _axis(field: Any, names: tuple[str, ...], path: str) -> str:
    for axis in field.dims:
        if str(axis).lower() in names and field.sizes[axis] > 1:
            return str(axis)
    raise TerrainError(f"{path}: found axes {', '.join(map(str, field.dims))}, expected {' or '.join(names)}")


def _chosen(places: npt.NDArray[np.float64], low: float, high: float, step: float) -> npt.NDArray[np.intp]:
    """Places in order that reach over a range, and no more of them than are worth looking at; each once."""
    order = np.argsort(places, kind="stable")
    # A file around the earth may have the date line twice.
    order = order[np.r_[True, np.diff(places[order]) > _SAME]]
    ordered = places[order]
    apart = float(np.median(np.diff(ordered)))
    inside = (ordered >= low - max(step, apart)) & (ordered <= high + max(step, apart))
    every = max(1, int(step / apart / SAMPLES)) if apart > 0 else 1
    return order[inside][::every]


def _check_cover(
    path: str, places: npt.NDArray[np.float64], low: float, high: float, step: float, what: str
) -> None:
    if len(places) < 2:
        raise TerrainError(
            f"{path}: found no {what} from {low:g} to {high:g}, expected a file that covers the grid"
        )
    apart = np.diff(places)
    usual = float(np.median(apart))
    hole = int(np.argmax(apart))
    if apart[hole] > HOLE * max(step, usual):
        raise TerrainError(
            f"{path}: found a hole in its {what} from {places[hole]:g} to {places[hole + 1]:g}, expected a file that"
            " covers the grid"
        )
    slack = max(step, usual)
    if places[0] > low + slack or places[-1] < high - slack:
        found = f"{places[0]:g} to {places[-1]:g}"
        raise TerrainError(
            f"{path}: found {what} {found}, expected {low:g} to {high:g}: a file that covers the grid"
        )


def _weights(
    places: npt.NDArray[np.float64], points: npt.NDArray[np.float64], step: float, turn: float | None
) -> npt.NDArray[np.float64]:
    """[points, places]: what each place of the file counts for each point of the grid along one axis."""
    weights = np.zeros((len(points), len(places)))
    within = np.abs(places[None, :] - points[:, None]) <= step / 2
    many = within.sum(axis=1) > 1
    weights[many] = within[many] / within[many].sum(axis=1, keepdims=True)
    few = np.flatnonzero(~many)
    known = np.arange(len(places))
    if turn is not None:  # around the earth: the last place is also one before the first
        places, known = np.r_[places[-1] - turn, places, places[0] + turn], np.r_[known[-1], known, known[0]]
    at = np.clip(np.searchsorted(places, points[few]) - 1, 0, len(places) - 2)
    share = np.clip((points[few] - places[at]) / (places[at + 1] - places[at]), 0.0, 1.0)
    np.add.at(weights, (few, known[at]), 1 - share)
    np.add.at(weights, (few, known[at + 1]), share)
    return weights
