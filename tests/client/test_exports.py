"""Files that grow by a tick at a time, whole or marked, and go on where they ended."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sensorgrid
from sensorgrid import Query
from sensorgrid.client import exports
from sensorgrid.client.assembly import Assembly, Tick
from sensorgrid.client.exports import Export, joined, kind_of, open_export, table_of
from sensorgrid.client.fields import Field, Labels, with_errors
from sensorgrid.configuration.network import with_errors as carried
from sensorgrid.model.grid import Grid

GRID = carried(Grid(shape=(64, 32), tick=0.5, resolution_bits=(2, 2, 2), region_digits=2))
ASK = Query(("air_temperature", "wind_speed"), (-45, 0, 45, 45), 0.5)
KINDS = [".nc", ".zarr", ".parquet"]


def field(tick: int, ask: Query = ASK, revision: int = 0, missing: int = 0, errors: bool = True) -> Field:
    full = with_errors(ask, GRID) if errors else ask
    assembly = Assembly(GRID, full, 0)
    values = (
        np.arange(assembly.points, dtype=np.float32).reshape(assembly.shape) + 1000 * tick + 0.25 * revision
    )
    labels = Labels(GRID, full, assembly, ask.attributes)
    return labels.field(Tick(tick, values, revision, missing, ((0, 4, 0, 4),) if missing else ()))


def read(path: Path) -> xr.Dataset:
    if path.suffix == ".nc":
        with xr.open_dataset(path) as data:
            return data.load()
    if path.suffix == ".zarr":
        with xr.open_zarr(path, consolidated=True) as data:
            return data.load()
    import pandas as pd

    table = pd.read_parquet(path)
    table["time"] = table["time"].dt.tz_localize(None)
    data = table.set_index(["time", "latitude", "longitude"]).to_xarray()
    return data.assign(tick=("time", data.tick.values[:, 0, 0]))


def check(path: Path, ticks: list[int], revisions: dict[int, int] | None = None) -> xr.Dataset:
    data = read(path)
    assert data.tick.values.tolist() == ticks
    for place, tick in enumerate(ticks):
        expected = field(tick, revision=(revisions or {}).get(tick, 0))
        got = data.isel(time=place)
        assert got.time.values == expected.time.values
        for name in ("air_temperature", "wind_speed", "air_temperature_standard_error"):
            assert np.array_equal(got[name].values, expected[name].values), name
    assert np.array_equal(data.latitude, expected.latitude)
    assert np.array_equal(data.longitude, expected.longitude)
    return data


@pytest.mark.parametrize("ending", KINDS)
def test_a_file_gets_its_name_when_it_is_whole_and_goes_on_without_a_repeat(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"out{ending}"
    with open_export(path, None, ASK, GRID) as export:
        assert export.next is None
        for tick in (0, 1, 3):
            export.append(field(tick))
            assert not path.exists()
            assert export.part.exists()
    check(path, [0, 1, 3])

    with open_export(path, None, ASK, GRID) as export:
        assert export.next == 4
        assert not path.exists()
        export.append(field(4))

    check(path, [0, 1, 3, 4])
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", KINDS)
def test_what_a_death_left_behind_is_continued(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out{ending}"
    dead = open_export(path, None, ASK, GRID)
    dead.append(field(0))
    dead.append(field(1))
    if ending == ".nc":
        dead._writer.file.close()  # type: ignore[union-attr]
    del dead

    with open_export(path, None, ASK, GRID) as export:
        assert export.next == 2
        export.append(field(2))

    check(path, [0, 1, 2])


def test_a_tick_of_zarr_that_was_not_written_to_its_end_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"
    dead = open_export(path, None, ASK, GRID)
    dead.append(field(0))
    temperature = dead._writer.group["air_temperature"]  # type: ignore[union-attr]
    temperature.resize((2, *temperature.shape[1:]))

    with open_export(path, None, ASK, GRID) as export:
        assert export.next == 1
    check(path, [0])
    with open_export(path, None, ASK, GRID) as export:
        export.append(field(1))

    check(path, [0, 1])


@pytest.mark.parametrize("ending", KINDS)
def test_a_revised_tick_replaces_the_one_before(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out{ending}"
    with open_export(path, None, ASK, GRID) as export:
        for tick in (0, 1):
            export.append(field(tick))
        export.append(field(0, revision=1))
    check(path, [0, 1], {0: 1})

    with open_export(path, None, ASK, GRID) as export:
        export.append(field(1, revision=2))
        assert export.next == 2

    data = read(path)
    assert sorted(data.tick.values.tolist()) == [0, 1]
    later = data.isel(time=int(np.flatnonzero(data.tick.values == 1)[0]))
    assert np.array_equal(later.wind_speed.values, field(1, revision=2).wind_speed.values)


@pytest.mark.parametrize("ending", KINDS)
def test_a_file_of_another_query_grid_or_program_is_refused_and_stays_as_it_is(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"out{ending}"
    with open_export(path, None, ASK, GRID) as export:
        export.append(field(0))

    other = Query(ASK.attributes, (-45, 0, 45, 50), 0.5)
    with pytest.raises(sensorgrid.QueryMismatch, match="other bbox"):
        open_export(path, None, other, GRID)
    with pytest.raises(sensorgrid.GridMismatch, match="found a file of grid"):
        open_export(
            path, None, ASK, carried(Grid(shape=(64, 32), resolution_bits=(2, 2, 2), region_digits=2))
        )
    with (
        open_export(path, None, ASK, GRID) as export,
        pytest.raises(sensorgrid.ExportError, match=r"expected|found"),
    ):
        export.append(field(1, Query(ASK.attributes, (-45, 0, 30, 45), 0.5)))
    with (
        open_export(path, None, ASK, GRID) as export,
        pytest.raises(sensorgrid.ExportError, match="air_temperature_standard_error"),
    ):
        export.append(field(1, errors=False))

    check(path, [0])


@pytest.mark.parametrize("ending", KINDS)
def test_rubbish_is_not_continued(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out{ending}"
    path.write_text("rubbish")

    with pytest.raises(sensorgrid.ExportError, match="cannot be continued"):
        open_export(path, None, ASK, GRID)

    assert path.read_text() == "rubbish"


@pytest.mark.parametrize("step", ["mkdir", "replace", "rmtree"])
def test_a_death_between_two_steps_of_parquet_leaves_what_can_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "out.parquet"
    with open_export(path, None, ASK, GRID) as export:
        export.append(field(0))
    replace = os.replace

    def dies(source: Path, target: Path | None = None, **options: Any) -> None:
        if step == "replace" and target != path:
            replace(source, target)  # type: ignore[arg-type]
        else:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if step == "mkdir":  # the folder is there, the file is not in it yet
            patch.setattr("os.replace", dies)
            with pytest.raises(KeyboardInterrupt):
                open_export(path, None, ASK, GRID)
        else:
            export = open_export(path, None, ASK, GRID)
            patch.setattr("os.replace" if step == "replace" else "shutil.rmtree", dies)
            with pytest.raises(KeyboardInterrupt):
                export.close()

    with open_export(path, None, ASK, GRID) as export:
        assert export.next == 1
        export.append(field(1))

    check(path, [0, 1])
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", KINDS)
def test_a_tick_that_cannot_be_written_leaves_a_part_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    path = tmp_path / f"out{ending}"
    export = open_export(path, None, ASK, GRID)
    export.append(field(0))

    with monkeypatch.context() as patch:
        no_room(patch, export, ending)
        with pytest.raises(sensorgrid.ExportError, match="No space left"), export:
            export.append(field(1))
    assert not path.exists()
    assert export.part.exists()

    with open_export(path, None, ASK, GRID) as export:
        assert export.next == 1
    check(path, [0])
    with open_export(path, None, ASK, GRID) as export:
        export.append(field(1))
    data = check(path, [0, 1])
    assert data.sizes["time"] == 2
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def no_room(patch: pytest.MonkeyPatch, export: Export, ending: str) -> None:
    """The disk is full in the middle of the next tick."""
    full = OSError(28, "No space left on device")

    def fails(*args: Any) -> None:
        raise full

    writer: Any = export._writer
    if ending == ".parquet":
        patch.setattr("os.fsync", fails)
        return

    class Half:
        """Takes all but the tick's number."""

        def __init__(self, real: Any) -> None:
            self.real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        def __getitem__(self, name: str) -> Any:
            return fails() if name == "tick" else self.real[name]

    name = "file" if ending == ".nc" else "group"
    patch.setattr(writer, name, Half(getattr(writer, name)))


def test_nothing_written_leaves_nothing(tmp_path: Path) -> None:
    for ending in KINDS:
        with open_export(tmp_path / f"out{ending}", None, ASK, GRID):
            pass

    assert list(tmp_path.iterdir()) == []


def test_netcdf_is_cf(tmp_path: Path) -> None:
    netcdf = pytest.importorskip("netCDF4")
    path = tmp_path / "out.nc"
    with open_export(path, None, ASK, GRID) as export:
        export.append(field(0))
        export.append(field(1, missing=7))

    with netcdf.Dataset(path) as file:
        assert file.Conventions == "CF-1.11"
        assert file.dimensions["time"].isunlimited()
        temperature = file["air_temperature"]
        assert temperature.dimensions == ("time", "latitude", "longitude")
        assert temperature.chunking()[0] == 1
        assert (temperature.standard_name, temperature.units) == ("air_temperature", "K")
        assert temperature.ancillary_variables == "air_temperature_standard_error"
        error = file["air_temperature_standard_error"]
        assert (error.standard_name, error.units) == ("air_temperature standard_error", "K")
        assert (file["time"].units, file["time"].axis) == ("seconds since 1970-01-01T00:00:00Z", "T")
        assert (file["latitude"].units, file["latitude"].axis) == ("degrees_north", "Y")
        assert (file["longitude"].units, file["longitude"].standard_name) == ("degrees_east", "longitude")
        assert file["missing_points"][:].tolist() == [0, 7]


def test_a_field_alone_goes_to_netcdf_and_back(tmp_path: Path) -> None:
    one = field(5, Query("air_temperature", ASK.bbox))

    one.to_netcdf(tmp_path / "field.nc")

    with xr.open_dataarray(tmp_path / "field.nc") as back:
        assert np.array_equal(back.values, one.values)
        assert back.time.values == one.time.values


def test_a_missing_library_is_named_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, ending in (("netCDF4", ".nc"), ("zarr", ".zarr")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(sensorgrid.ExportError, match=r"pip install 'sensorgrid\[export\]'"):
            open_export(tmp_path / f"out{ending}", None, ASK, GRID)


def test_an_ending_that_nobody_knows_is_refused() -> None:
    assert kind_of("a.NC") == "netcdf"
    with pytest.raises(sensorgrid.ExportError, match=r"expected one of .nc"):
        kind_of("a.csv")


def test_tables_are_tidy_and_fields_join_along_time() -> None:
    table = table_of([field(0), field(1)])
    whole = joined([field(0), field(1)])

    assert list(table.columns[:4]) == ["time", "tick", "latitude", "longitude"]
    assert set(table.columns[4:]) == {
        "air_temperature", "wind_speed", "air_temperature_standard_error", "wind_speed_standard_error",
    }  # fmt: skip
    assert len(table) == 2 * field(0).wind_speed.size
    assert str(table["time"].dt.tz) == "UTC"
    assert table["tick"].tolist() == [0] * (len(table) // 2) + [1] * (len(table) // 2)
    assert whole.wind_speed.dims == ("time", "latitude", "longitude")
    assert whole.tick.values.tolist() == [0, 1]


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_a_file_says_which_ticks_rest_on_no_observation(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out{ending}"
    fields = [field(0), field(1)]
    fields[1].attrs |= {"unobserved_points": 12, "unobserved": "some points: known beforehand"}
    fields[1]["air_temperature"].attrs["unobserved_points"] = 12

    with open_export(path, None, ASK, GRID) as export:
        for one in fields:
            export.append(one)

    data = read(path)
    assert data["unobserved_points"].values.tolist() == [0, 12]
    assert "unobserved_points" not in data["air_temperature"].attrs


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_a_file_of_an_earlier_release_is_continued_without_what_it_lacks(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"out{ending}"
    older = exports.dataset_of
    with monkeypatch.context() as before:
        before.setattr(exports, "dataset_of", lambda one: older(one).drop_vars("unobserved_points"))
        before.setattr(exports, "_LATER", ())
        with open_export(path, None, ASK, GRID) as export:
            export.append(field(0))

    with open_export(path, None, ASK, GRID) as export:
        export.append(field(1))

    assert "unobserved_points" not in check(path, [0, 1])
