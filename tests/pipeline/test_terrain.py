"""Heights of a grid from files: means where the file is finer, interpolation where it is coarser, clear refusals."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.terrain import TerrainError, heights_of, keep, read_terrain

ALPS = Grid(extent=(4, 44, 12, 48), shape=(64, 32), resolution_bits=1, region_digits=2)
EARTH = Grid(shape=(64, 32), resolution_bits=1, region_digits=2)


def slope(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
    return 100 * lon[None, :] + 10 * lat[:, None]


def written(
    folder: Path, lon: np.ndarray, lat: np.ndarray, values: np.ndarray | None = None, name: str = "elevation"
) -> Path:
    data = slope(lon, lat) if values is None else values
    path = folder / "dem.nc"
    xr.Dataset({name: (("lat", "lon"), data)}, {"lat": lat, "lon": lon}).to_netcdf(path)
    return path


def expected(grid: Grid) -> np.ndarray:
    (dx, dy), (west, south) = grid.spacing, grid.extent[:2]
    lon, lat = (
        start + (np.arange(n) + 0.5) * d
        for start, n, d in ((west, grid.shape[0], dx), (south, grid.shape[1], dy))
    )
    return slope(lon, lat)


@pytest.mark.parametrize("step", [0.01, 0.125, 0.5])
@pytest.mark.parametrize("down", [False, True])
def test_a_slope_is_a_slope_at_any_resolution_and_order(tmp_path: Path, step: float, down: bool) -> None:
    lon, lat = np.arange(3, 13, step), np.arange(43, 49, step)

    found = read_terrain(written(tmp_path, lon, lat[::-1] if down else lat), ALPS)

    assert found.shape == (32, 64)
    assert found == pytest.approx(expected(ALPS), abs=3)  # of a rise of 12.5 from point to point


def test_a_fine_file_is_averaged_and_not_sampled(tmp_path: Path) -> None:
    lon, lat = np.arange(3.5, 12.5, 0.03125) + 0.015625, np.arange(43.5, 48.5, 0.03125) + 0.015625
    teeth = np.where((np.arange(len(lon)) % 2 == 0)[None, :], 1000.0, 0.0) * np.ones((len(lat), 1))

    found = read_terrain(written(tmp_path, lon, lat, teeth), ALPS)

    assert found == pytest.approx(500.0)


def test_longitudes_of_0_to_360_serve_a_grid_of_both_halves_and_the_date_line_is_no_seam(
    tmp_path: Path,
) -> None:
    lon, lat = np.arange(0.0, 360.0, 10.0), np.arange(-90.0, 91.0, 10.0)
    values = np.sin(np.radians(lon))[None, :] * np.ones((len(lat), 1))

    found = read_terrain(written(tmp_path, lon, lat, values), EARTH)

    centres = -180 + (np.arange(64) + 0.5) * 360 / 64
    assert found[0] == pytest.approx(np.sin(np.radians(centres)), abs=0.02)


def test_what_the_file_does_not_know_is_the_sea(tmp_path: Path) -> None:
    lon, lat = np.arange(3, 13, 0.125), np.arange(43, 49, 0.125)

    found = read_terrain(written(tmp_path, lon, lat, np.full((len(lat), len(lon)), np.nan)), ALPS)

    assert (found == 0).all()


def test_files_that_cannot_be_used_are_refused_with_what_was_found(tmp_path: Path) -> None:
    lon, lat = np.arange(5, 13, 0.125), np.arange(43, 49, 0.125)
    with pytest.raises(
        TerrainError, match=r"found longitudes 5 to 12.*, expected 4 to 12: a file that covers the grid"
    ):
        read_terrain(written(tmp_path, lon, lat), ALPS)
    with pytest.raises(TerrainError, match="found no longitudes from 4 to 12"):
        read_terrain(written(tmp_path, lon + 100, lat), ALPS)
    (tmp_path / "noise.nc").write_bytes(b"nothing")
    for path in (tmp_path / "noise.nc", tmp_path / "absent.nc"):
        with pytest.raises(TerrainError, match="expected elevations in NetCDF, Zarr, or GeoTIFF"):
            read_terrain(path, ALPS)
    two = xr.Dataset({n: (("lat", "lon"), slope(lon, lat)) for n in ("a", "b")}, {"lat": lat, "lon": lon})
    two.to_netcdf(tmp_path / "two.nc")
    with pytest.raises(TerrainError, match="found a, b, expected one with two axes"):
        read_terrain(tmp_path / "two.nc", ALPS)
    odd = xr.Dataset({"z": (("u", "v"), slope(lon, lat))})
    odd.to_netcdf(tmp_path / "odd.nc")
    with pytest.raises(TerrainError, match="found axes u, v, expected lon or longitude or x"):
        read_terrain(tmp_path / "odd.nc", ALPS)


def test_zarr_and_standard_names_are_understood(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    lon, lat = np.arange(3, 13, 0.125), np.arange(43, 49, 0.125)
    data = xr.Dataset(
        {"mask": (("lat", "lon"), np.ones((len(lat), len(lon)))), "h": (("lat", "lon"), slope(lon, lat))},
        {"lat": lat, "lon": lon},
    )
    data["h"].attrs["standard_name"] = "surface_altitude"
    data.to_zarr(tmp_path / "dem.zarr", consolidated=False)

    assert read_terrain(tmp_path / "dem.zarr", ALPS) == pytest.approx(expected(ALPS), abs=3)


def test_a_lake_keeps_the_heights_and_gives_each_region_its_own(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake")).create()
    heights = expected(ALPS).astype(np.float32)

    assert heights_of(str(tmp_path / "other"), ALPS, 0) is None
    keep(lake, heights)

    regions = Regions(ALPS)
    for number in range(len(regions)):
        lon, lat = regions.points(number)
        assert heights_of(lake.root, ALPS, number) == pytest.approx(100 * lon + 10 * lat, rel=1e-5)
    other = Grid(extent=(4, 44, 12, 48), shape=(32, 16), resolution_bits=1, region_digits=2)
    with pytest.raises(TerrainError, match=r"found \(32, 64\) points, expected those of the grid \(16, 32\)"):
        heights_of(lake.root, other, 0)
