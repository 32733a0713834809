"""Maps of the lake: units that people use, wind as arrows, coasts where they belong."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from sensorgrid.cli import coastlines, pipeline_map
from sensorgrid.cli.pipeline_map import MapError, draw, picture_of
from sensorgrid.model.grid import Grid
from sensorgrid.model.units import CUSTOMARY
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.lake.folder import Lake

PM = "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air"
WIND = ("eastward_wind", "northward_wind")
NAMES = ("air_temperature", "air_pressure_at_mean_sea_level", PM, *WIND)
GRID = Grid(extent=(4, 50, 8, 53), shape=(32, 32), region_digits=2, attributes=NAMES)
VALUES = {
    "air_temperature": (293.15, 2.0), "air_pressure_at_mean_sea_level": (101325.0, 50.0), PM: (12e-9, 3e-9),
    "eastward_wind": (3.0, 1.0), "northward_wind": (-4.0, 2.0),
}  # fmt: skip
NOWHERE = Lake("nowhere")


@pytest.fixture(autouse=True)
def _fields(monkeypatch: pytest.MonkeyPatch) -> None:
    def field_of(_: Lake, grid: Grid, name: str, at: Any) -> tuple[Any, ...]:
        value, error = VALUES[name]
        field = np.full(grid.shape[::-1], value, np.float32)
        return field, np.full_like(field, error), np.array([[5.0, 51.0], [5.0, 51.0], [6.0, 52.0]]), 5

    monkeypatch.setattr(pipeline_map, "field_of", field_of)


@pytest.mark.parametrize(
    ("name", "unit", "value", "error"),
    [
        ("air_temperature", "°C", 20.0, 2.0),
        ("air_pressure_at_mean_sea_level", "hPa", 1013.25, 0.5),
        (PM, "µg m⁻³", 12.0, 3.0),
        ("northward_wind", "m s⁻¹", -4.0, 2.0),
        ("wind", "m s⁻¹", 5.0, np.hypot(3 * 1, 4 * 2) / 5),
    ],
)
def test_values_and_errors_come_in_the_unit_that_people_use(
    name: str, unit: str, value: float, error: float
) -> None:
    found = picture_of(NOWHERE, GRID, name, None)

    assert found.unit == unit
    assert found.values[0, 0] == pytest.approx(value, rel=1e-4)
    assert found.error[0, 0] == pytest.approx(error, rel=1e-4)


def test_every_canonical_unit_has_a_customary_one() -> None:
    assert {attribute.unit for attribute in KNOWN.values()} <= set(CUSTOMARY)


def test_wind_has_arrows_that_point_where_it_blows_and_nothing_else_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Any, Any]] = []
    quiver = Axes.quiver
    monkeypatch.setattr(
        Axes,
        "quiver",
        lambda self, x, y, u, v, **rest: (drawn.append((u, v)), quiver(self, x, y, u, v, **rest))[1],
    )

    for name in ("air_temperature", "wind", "eastward_wind"):
        draw(NOWHERE, GRID, name, None, tmp_path / f"{name}.png")

    assert len(drawn) == 2
    for u, v in drawn:
        assert np.allclose(u, 3)
        assert np.allclose(v, -4)
    assert all((tmp_path / f"{name}.png").stat().st_size > 10_000 for name in ("air_temperature", "wind"))


def test_wind_of_a_grid_that_has_none_is_a_mistake() -> None:
    with pytest.raises(MapError, match="--attribute: found wind, expected one of air_temperature"):
        picture_of(NOWHERE, Grid(attributes=("air_temperature",)), "wind", None)


def test_the_shipped_coastlines_are_small_and_pass_where_coasts_are() -> None:
    lines = coastlines.read()
    points = np.concatenate(lines)

    assert Path(coastlines.__file__).with_name("coastlines.npz").stat().st_size < 300_000
    assert np.abs(points[:, 0]).max() <= 180
    # Hook of Holland, Cape Town, Key West's mainland
    for place in ((4.1, 52.0), (18.4, -33.9), (-80.4, 25.2)):
        assert np.hypot(*(points - place).T).min() < 0.2
    edges = [line for line in lines for a, b in pairwise(line) if abs(a[0]) == abs(b[0]) == 180]
    assert not edges
    # nowhere near a coast: Kansas, the middle of the Pacific
    for place in ((-98.0, 38.5), (-140.0, 30.0)):
        assert np.hypot(*(points - place).T).min() > 5


def test_coasts_are_turned_to_where_the_grid_counts_its_longitudes() -> None:
    line = np.array([[-170.0, 0.0], [-169.0, 1.0]])

    assert coastlines.inside([line], (0, -10, 100, 10)) == []
    (moved,) = coastlines.inside([line], (180, -10, 360, 10))
    assert moved[0].tolist() == [190.0, 0.0]


def test_a_simplified_line_stays_within_its_tolerance() -> None:
    t = np.linspace(0, 6, 500)
    line = np.stack([t, np.sin(t)], axis=1)

    few = coastlines.simplified(line, 0.01)

    assert len(few) < 60
    assert few[0].tolist() == line[0].tolist()
    assert few[-1].tolist() == line[-1].tolist()
    assert np.abs(np.interp(t, few[:, 0], few[:, 1]) - line[:, 1]).max() < 0.02


def test_lines_come_back_as_they_were_saved(tmp_path: Path) -> None:
    lines = [np.array([[1.0, 2.0], [3.25, -4.5]]), np.array([[170.0, 80.0], [171.0, 81.0], [172.0, 80.0]])]
    coastlines.save(lines, tmp_path / "x.npz")

    with np.load(tmp_path / "x.npz") as found:
        again = np.split(found["points"] * coastlines.STEP, found["starts"][1:])

    assert all(np.allclose(a, b) for a, b in zip(lines, again, strict=True))
