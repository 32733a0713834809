"""Heights of a grid from files: means where the file is finer, interpolation where it is coarser, clear refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from pyspark.sql import SparkSession

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.gridding.kernels.interface import metres
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import settings_of
from sensorgrid.pipeline.terrain import (
    TerrainError,
    heights_of,
    keep,
    read_covariate,
    read_covariates,
    read_terrain,
)

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


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of the library that writes it
def test_a_geotiff_is_read_like_any_other_file(tmp_path: Path) -> None:
    pytest.importorskip("rioxarray", reason="GeoTIFF needs rioxarray: pip install 'sensorgrid[geotiff]'")
    lon, lat = np.arange(3, 13, 0.125), np.arange(49, 43, -0.125)
    data = xr.DataArray(slope(lon, lat).astype("f4"), {"y": lat, "x": lon}, ("y", "x"))
    data.rio.write_crs("EPSG:4326").rio.to_raster(tmp_path / "dem.tif")

    assert read_terrain(tmp_path / "dem.tif", ALPS) == pytest.approx(expected(ALPS), abs=3)


@pytest.mark.parametrize("first", [-180.0, 0.0])
def test_a_file_that_has_the_date_line_twice_has_no_seam_there(tmp_path: Path, first: float) -> None:
    lon, lat = np.arange(first, first + 361.0, 10.0), np.arange(-90.0, 91.0, 10.0)
    values = np.sin(np.radians(lon))[None, :] * np.ones((len(lat), 1))

    found = read_terrain(written(tmp_path, lon, lat, values), EARTH)

    centres = -180 + (np.arange(64) + 0.5) * 360 / 64
    assert found[0] == pytest.approx(np.sin(np.radians(centres)), abs=0.02)


def test_a_point_at_the_western_border_is_between_two_columns_of_a_coarse_file(tmp_path: Path) -> None:
    lon, lat = np.arange(0.0, 360.0, 3.0), np.arange(40.0, 53.0, 3.0)

    found = read_terrain(written(tmp_path, lon, lat), ALPS)

    assert found == pytest.approx(expected(ALPS), abs=3)


def test_a_hole_in_the_file_is_no_reason_to_take_its_border_for_the_grid_s(tmp_path: Path) -> None:
    lat = np.arange(43, 49, 0.125)
    holed = np.r_[np.arange(3, 5, 0.125), np.arange(9, 13, 0.125)]
    with pytest.raises(
        TerrainError, match=r"found a hole in its longitudes from 4\.875 to 9, expected a file"
    ):
        read_terrain(written(tmp_path, holed, lat), ALPS)
    short = np.r_[6.0, np.arange(9, 13, 0.125)]
    with pytest.raises(TerrainError, match=r"found a hole|expected 4 to 12"):
        read_terrain(written(tmp_path, short, lat), ALPS)


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


# through the pipeline


def mountains(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
    """Ridges that no network of stations resolves."""
    return 1500 + 1200 * np.sin(9 * lon) * np.cos(11 * lat)


def truth(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
    return 288 + 0.5 * (lon - 8) - 0.0065 * mountains(lon, lat)


MAPPING = """
format = "csv"
columns = ["sensor", "attribute", "longitude", "latitude", "time", "value", "unit", "elevation"]

[sensor]
columns = ["sensor"]

[position]
longitude = "longitude"
latitude = "latitude"
elevation = "elevation"

[time]
column = "time"

[record]
value = "value"
attribute = "attribute"
unit = "unit"
"""


def prepare(folder: Path) -> None:
    """Two hours of 250 stations in the Alps that say how high they stand, and a file of heights."""
    rng = np.random.default_rng(3)
    lon, lat = rng.uniform(4.2, 11.8, 250), rng.uniform(44.2, 47.8, 250)
    lines = ["sensor,attribute,longitude,latitude,time,value,unit,elevation"]
    for minute in range(0, 120, 10):
        values = truth(lon, lat) + rng.normal(0, 0.3, 250)
        lines += [
            f"S{n},air_temperature,{lon[n]:.5f},{lat[n]:.5f},2026-03-01T{minute // 60:02d}:{minute % 60:02d}:30Z,"
            f"{values[n]:.3f},K,{mountains(lon[n], lat[n]):.1f}"
            for n in range(250)
        ]
    (folder / "reports.csv").write_text("\n".join(lines) + "\n")
    (folder / "alps.toml").write_text(MAPPING)
    fine_lon, fine_lat = np.arange(3.9, 12.1, 0.02), np.arange(43.9, 48.1, 0.02)
    written(folder, fine_lon, fine_lat, mountains(fine_lon[None, :], fine_lat[:, None]))


def rmse_of_backfill(spark: SparkSession, folder: Path, gridding: dict[str, Any]) -> tuple[float, str]:
    """Of the last tick's grid against the truth; and what was noted."""
    content: dict[str, Any] = {
        "lake": f"lake{len(gridding)}",
        "grid": {
            "extent": [4, 44, 12, 48], "shape": [64, 32], "tick": 600, "resolution_bits": 1, "region_digits": 2,
            "attributes": ["air_temperature"],
        },
        "gridding": gridding,
        "sources": [{"kind": "files", "path": "reports.csv", "mapping": "alps.toml"}],
    }  # fmt: skip
    settings = settings_of(content, "alps", folder)
    outcome = jobs.backfill(spark, settings)
    regions = Regions(settings.grid.grid())
    tiles = (
        Lake(settings.lake)
        .tiles(attribute="air_temperature", columns=["tick", "region", "values"])
        .to_pylist()
    )
    last = max(tile["tick"] for tile in tiles)
    off = [
        np.array(tile["values"]) - truth(*regions.points(regions.number(tile["region"])))
        for tile in tiles
        if tile["tick"] == last
    ]
    return float(np.sqrt(np.mean(np.concatenate(off) ** 2))), " ".join(outcome.notes)


def test_grids_follow_the_ground_where_sensors_and_grid_have_heights(
    spark: SparkSession, tmp_path: Path
) -> None:
    prepare(tmp_path)

    flat, _ = rmse_of_backfill(spark, tmp_path, {})
    following, notes = rmse_of_backfill(spark, tmp_path, {"elevation": "dem.nc"})

    assert following < flat / 2
    assert "following the elevation" in notes
    assert heights_of(str(tmp_path / "lake1"), settings_grid(), 0) is not None
    assert heights_of(str(tmp_path / "lake0"), settings_grid(), 0) is None


def test_grids_follow_another_covariate_that_sensors_need_not_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    prepare(tmp_path)
    rng = np.random.default_rng(1)
    lon, lat = np.arange(3.9, 12.1, 0.05), np.arange(43.9, 48.1, 0.05)
    noise = {"nonsense": (("lat", "lon"), rng.normal(size=(len(lat), len(lon))))}
    xr.Dataset(noise, {"lat": lat, "lon": lon}).to_netcdf(tmp_path / "noise.nc")

    flat, _ = rmse_of_backfill(spark, tmp_path, {})
    following, notes = rmse_of_backfill(
        spark, tmp_path, {"covariates": {"nonsense": "noise.nc", "ridge": "dem.nc"}}
    )

    assert following < 0.75 * flat
    assert "following ridge by 0 ±" in notes
    assert "following nonsense" not in notes


def test_a_covariate_is_interpolated_at_sensors_and_unknown_where_the_file_is_silent(tmp_path: Path) -> None:
    lon, lat = np.arange(3.5, 12.5, 0.125), np.arange(43.5, 48.5, 0.125)
    values = slope(lon, lat)
    values[:, lon > 10] = np.nan
    path = written(tmp_path, lon, lat, values, "coast")
    rng = np.random.default_rng(2)
    x, y = rng.uniform(4.2, 11.8, 100), rng.uniform(44.2, 47.8, 100)

    whole = read_covariate(path, ALPS, "coast")
    found = read_covariates((("coast", str(path)),), ALPS)
    assert found is not None
    there = found.at_places(metres(x, y, "lonlat"), ("coast", "unheard_of"))

    known = x < 9.8
    assert there[known, 0] == pytest.approx(100 * x[known] + 10 * y[known], rel=1e-4)
    assert np.isnan(there[x > 10.2, 0]).all()
    assert np.isnan(there[:, 1]).all()
    regions = Regions(ALPS)
    for number in range(len(regions)):
        at = found.at_points(number, ("coast",))[:, 0]
        assert np.array_equal(at, heights_like(whole, regions, number), equal_nan=True)


def heights_like(whole: np.ndarray, regions: Regions, number: int) -> np.ndarray:
    box = regions.boxes[number]
    return whole[box.y0 : box.y1, box.x0 : box.x1].ravel().astype(np.float64)


def test_a_covariate_around_the_earth_has_no_seam(tmp_path: Path) -> None:
    lon, lat = np.arange(-178.0, 180.0, 4.0), np.arange(-88.0, 90.0, 4.0)
    path = written(tmp_path, lon, lat, np.cos(np.radians(lon))[None, :] + 0 * lat[:, None], "season")
    found = read_covariates((("season", str(path)),), EARTH)
    assert found is not None

    beside = found.at_places(metres([179.9, -179.9, 180.1], [10.0, 10.0, 10.0], "lonlat"), ("season",))[:, 0]

    assert beside == pytest.approx([-1.0] * 3, abs=0.01)


def settings_grid() -> Grid:
    return Grid(
        extent=(4, 44, 12, 48), shape=(64, 32), tick=600, resolution_bits=1, region_digits=2,
        attributes=("air_temperature",),
    )  # fmt: skip


def test_a_file_of_heights_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake")).create()
    keep(lake, np.zeros(ALPS.shape[::-1], np.float32))
    before = heights_of(lake.root, ALPS, 0)

    keep(lake, np.full(ALPS.shape[::-1], 900, np.float32))

    after = heights_of(lake.root, ALPS, 0)
    assert before is not None
    assert after is not None
    assert (before.max(), after.min()) == (0.0, 900.0)
