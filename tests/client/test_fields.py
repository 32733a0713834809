"""Labels, the model's own grid, and the file that keeps the place."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import sensorgrid
from sensorgrid import Query
from sensorgrid.client.assembly import Assembly, Tick
from sensorgrid.client.fields import Field, Labels, with_errors
from sensorgrid.client.regridding import Onto, widened
from sensorgrid.client.resume import ResumeFile, ResumePoint
from sensorgrid.client.times import moment_of
from sensorgrid.configuration.network import with_errors as carried
from sensorgrid.model.errors import QueryError
from sensorgrid.model.grid import Grid
from sensorgrid.model.names import UNITS
from sensorgrid.pipeline.ingest.attributes import KNOWN

EARTH = carried(Grid(shape=(128, 64), tick=600, resolution_bits=(3, 3, 2), region_digits=2, value_bytes=8))
PLANE = carried(
    Grid(extent=(0, 0, 16, 8), coordinates="planar", shape=(16, 8), tick=1, resolution_bits=2, region_digits=2,
         value_bytes=8, attributes=("glow", "wind_speed"))  # type: ignore[arg-type]
)  # fmt: skip
T = "air_temperature"


def field(query: Query, grid: Grid = EARTH, errors: bool = True) -> Field:
    """A wave along the latitude circle, and the latitude."""
    full = with_errors(query, grid) if errors else query
    assembly = Assembly(grid, full, 0)
    x = grid.extent[0] + (assembly.x.indices + 0.5) * grid.spacing[0]
    y = grid.extent[1] + (assembly.y.indices + 0.5) * grid.spacing[1]
    values = np.broadcast_to(wave(x[None, :], y[:, None]), assembly.shape).copy()
    return Labels(grid, full, assembly, query.attributes).field(Tick(144, values, 2, 0))


def silent(query: Query, silent_s: float, columns: int | None) -> Field:
    """A field whose first columns of the first attribute rest on no observation."""
    full = with_errors(query, EARTH)
    assembly = Assembly(EARTH, full, 0)
    ages = np.full(assembly.shape, np.nan, np.float32)
    ages[0, :, :columns] = silent_s
    labels = Labels(EARTH, full, assembly, query.attributes)
    return labels.field(Tick(144, np.zeros(assembly.shape), 0, 0, silent_s=ages))


def test_a_field_says_how_many_of_its_points_rest_on_no_observation() -> None:
    query = Query((T, "wind_speed"), (0, 0, 90, 45))

    some, all_, held = silent(query, np.inf, 2), silent(Query(T), np.inf, None), silent(query, 7200, None)

    rows = len(some.latitude)
    assert some.attrs["unobserved_points"] == some[T].attrs["unobserved_points"] == 2 * rows
    assert some[T].attrs["unobserved"] == "some points: known beforehand"
    assert "unobserved_points" not in some["wind_speed"].attrs
    assert all_.attrs["unobserved_points"] == all_.size
    assert all_.attrs["unobserved"] == "all points: known beforehand"
    assert held[T].attrs["unobserved"] == "all points: held since the last observation, up to 7200 s before"


def test_the_error_says_whose_it_is() -> None:
    comment = field(Query(T, (0, 0, 90, 45)))[f"{T}_standard_error"].attrs["comment"]

    assert comment.startswith("of the field, not of the next reading")


def wave(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return y + 10 * np.sin(np.deg2rad(x + 30))


def test_units_are_those_of_the_pipeline() -> None:
    assert {name: attribute.unit for name, attribute in KNOWN.items()} == UNITS


def test_a_field_says_what_where_and_when_it_is() -> None:
    found = field(Query(T, (0, 0, 90, 45)))

    assert found.dims == ("latitude", "longitude")
    assert found.attrs == {
        "standard_name": T, "long_name": "air temperature", "units": "K", "revision": 2,
        "ancillary_variables": f"{T}_standard_error",
    }  # fmt: skip
    assert found.time.values == np.datetime64("1970-01-02T00:00:00", "ns")
    assert found.time.dtype == "datetime64[ns]"
    assert found.tick.item() == 144
    error = found[f"{T}_standard_error"]
    assert error.attrs["standard_name"] == f"{T} standard_error"
    assert error.attrs["units"] == "K"
    assert found.latitude.attrs["units"] == "degrees_north"
    assert (found.longitude.attrs["axis"], found.latitude.attrs["axis"]) == ("X", "Y")


@pytest.mark.parametrize(
    ("bbox", "first", "last"),
    [
        ((170, -10, -170, 10), 171.5625, 188.4375),
        ((-190, -10, -170, 10), -188.4375, -171.5625),
        ((0, -90, 360, 90), 1.40625, 358.59375),
        (None, -178.59375, 178.59375),
        ((-180, -90, 180, 90), -178.59375, 178.59375),
        ((200, 0, 210, 10), 201.09375, 209.53125 - 2.8125 + 2.8125),
    ],
)
def test_longitudes_go_on_from_the_border_that_was_asked_for(bbox: object, first: float, last: float) -> None:
    x = field(Query(T, bbox)).longitude.values  # type: ignore[arg-type]

    assert (np.diff(x) > 0).all()
    assert x[0] == pytest.approx(first, abs=1.5)
    assert x[-1] == pytest.approx(last, abs=1.5)
    assert np.allclose(field(Query(T, bbox)).values[0], wave(x, field(Query(T, bbox)).latitude.values[0]))  # type: ignore[arg-type]


def test_a_plane_has_x_and_y_and_names_that_cf_does_not_know_stay_plain() -> None:
    found = field(Query(("glow", "wind_speed")), PLANE)

    assert found.glow.dims == ("y", "x")
    assert found.glow.attrs == {
        "long_name": "glow",
        "revision": 2,
        "ancillary_variables": "glow_standard_error",
    }
    assert found.wind_speed.attrs["units"] == "m s-1"
    assert found.x.values[:2].tolist() == [0.5, 1.5]


def test_gaps_are_named_up_to_a_number() -> None:
    full = Query(T)
    assembly = Assembly(EARTH, full, 0)
    labels = Labels(EARTH, full, assembly, (T,))
    values = np.full(assembly.shape, np.nan)

    few = labels.field(Tick(0, values, 0, 64, ((0, 8, 0, 8),)))
    many = labels.field(Tick(0, values, 0, 64, tuple((n, n + 1, 0, 8) for n in range(20))))

    assert few.attrs["gaps"] == "-180,-90,-157.5,-67.5"
    assert many.attrs["gaps"].endswith("and 12 more")


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize(
    "longitudes", [np.arange(0, 360, 5.0), np.arange(-180, 180, 5.0), np.arange(175, 186, 1.0)]
)
@pytest.mark.parametrize("resolution", [1, 0.5, 0.75])
def test_a_field_comes_to_the_points_of_a_model(
    method: str, longitudes: np.ndarray, resolution: float
) -> None:
    model = xr.Dataset(coords={"lat": np.arange(-60, 61, 3.0), "lon": longitudes})
    query = Query(T, Query.like(model, T).bbox, (resolution, resolution, 1))
    onto = Onto(model, EARTH, method)  # type: ignore[arg-type]

    found = onto(field(widened(query, EARTH)))

    expected = wave(longitudes[None, :], model.lat.values[:, None])
    near = {"linear": 0.2, "nearest": 4.5}[method] / resolution
    assert found.dims == ("lat", "lon")
    assert np.abs(found.values - expected).max() < near
    assert found.attrs["units"] == "K"
    assert found.lon.values.tolist() == longitudes.tolist()
    assert found[f"{T}_standard_error"].dims == ("lat", "lon")
    assert found.tick == 144


def test_a_model_up_to_the_poles_gets_values_everywhere() -> None:
    model = xr.Dataset(coords={"lat": np.linspace(-90, 90, 19), "lon": np.arange(0, 360, 20.0)})

    found = Onto(model, EARTH)(field(widened(Query.like(model, T), EARTH)))

    assert np.isfinite(found.values).all()


def test_a_curvilinear_model_gets_a_dataset_on_its_own_axes() -> None:
    j, i = np.meshgrid(np.arange(8.0), np.arange(9.0), indexing="ij")
    model = xr.Dataset(
        coords={
            "XLONG": (("j", "i"), -5 + i + 0.1 * j, {"units": "degrees_east"}),
            "XLAT": (("j", "i"), 40 + j + 0.05 * i, {"units": "degrees_north"}),
        }
    )
    query = Query.like(model, [T, "wind_speed"])

    found = Onto(model, EARTH)(field(widened(query, EARTH)))

    assert found[T].dims == ("j", "i")
    assert np.allclose(found[T].values, wave(model.XLONG.values, model.XLAT.values), atol=0.05)
    assert "wind_speed_standard_error" in found.coords


def test_what_is_far_outside_stays_empty() -> None:
    model = xr.Dataset(coords={"lat": [10.0, 40.0], "lon": [10.0, 90.0]})

    found = Onto(model, EARTH)(field(Query(T, (0, 0, 20, 20))))

    assert np.isfinite(found.values).tolist() == [[True, False], [False, False]]


def test_a_resume_file_is_whole_and_belongs_to_one_query_on_one_grid(tmp_path: Path) -> None:
    query = Query(
        T, (0, 0, 45, 45), where={T: (0, None)}, every="1h", start="2026-03-01T00:00Z", duration=7200
    )
    path = tmp_path / "place.json"
    file = ResumeFile(path, query, EARTH)
    assert file.read() is None

    file.write(ResumePoint(7, 9))

    assert ResumeFile(path, query, EARTH).read() == ResumePoint(7, 9)
    assert json.loads(path.read_text())["time"] == "1970-01-01T01:10:00+00:00"
    assert [p.name for p in tmp_path.iterdir()] == ["place.json"]
    with pytest.raises(sensorgrid.QueryMismatch, match="other where"):
        ResumeFile(
            path, Query(T, (0, 0, 45, 45), every="1h", start="2026-03-01T00:00Z", duration=7200), EARTH
        ).read()
    with pytest.raises(sensorgrid.GridMismatch):
        ResumeFile(path, query, PLANE).read()
    for rubbish in ("", "{}", "[]", '{"format": 99, "next": 1, "until": null, "grid": "", "query": {}}'):
        path.write_text(rubbish)
        with pytest.raises(sensorgrid.ResumeError, match=r"resume .*found"):
            ResumeFile(path, query, EARTH).read()


def test_a_resume_file_that_cannot_be_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    file = ResumeFile(tmp_path / "place", Query(T), EARTH)

    with pytest.raises(sensorgrid.ResumeError, match="cannot be written"):
        file.write(ResumePoint(1, None))

    assert [p.name for p in tmp_path.iterdir()] == ["place"]


def test_moments_of_all_kinds() -> None:
    import pandas as pd

    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for time in (noon, "2026-03-01T13:00+01:00", np.datetime64("2026-03-01T12:00"), pd.Timestamp("2026-03-01T12:00"),
                 xr.DataArray(np.datetime64("2026-03-01T12:00", "ns"))):  # fmt: skip
        assert moment_of(time) == noon
    for wrong in ("noon", "2026-03-01T12:00", datetime(2026, 3, 1), 7, None, np.datetime64("NaT")):
        with pytest.raises(QueryError, match="time: found"):
            moment_of(wrong)
