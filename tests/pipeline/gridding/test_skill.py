"""The skill of the default kernel on real fields; the whole of it is `sensorgrid bench gridding`."""

import numpy as np
import pytest

pytest.importorskip("xarray", reason="xarray is not installed: pip install sensorgrid[bench]")

from sensorgrid.benchmarks.gridding import _rows as rows_of
from sensorgrid.benchmarks.gridding import cases, sample, summary
from sensorgrid.benchmarks.truth import NETWORKS, Truth, TruthError, data_folder, stations, truths

try:
    FOLDER = data_folder()
except TruthError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    wanted = {"era5 z500", "gfs-america winds_300", "nmc-storm p", "coads SST", "wind-europe v"}
    found = []
    for number, case in enumerate(cases(FOLDER, quick=True, seed=5)):
        if case.truth.name in wanted:
            drawn = sample(case, FOLDER, np.random.default_rng([5, number]), points_max=800)
            assert drawn is not None
            found += rows_of(case, drawn, seed=5, rounds=1)
    return found


def test_kriging_beats_the_peers_on_five_real_fields(rows: list[dict[str, object]]) -> None:
    figures = {figure["figure"]: figure for figure in summary(rows)}

    assert figures["sets"]["found"] == 5
    assert figures["sets where kriging beats both"]["holds"]
    assert figures["mean RMSE against inverse distance"]["holds"]


def test_its_errors_are_honest(rows: list[dict[str, object]]) -> None:
    for figure in summary(rows):
        if figure["figure"].startswith("pooled"):
            assert 0.55 < figure["found"] < 0.82, figure


def test_rows_have_the_fields_that_readers_rely_on(rows: list[dict[str, object]]) -> None:
    fields = (
        "truth stations kernel rmse mae within_one_error within_low within_mid within_high seconds_per_tile"
    )

    assert all(set(fields.split()) <= set(row) for row in rows)


def test_a_summary_tells_when_a_figure_does_not_hold(rows: list[dict[str, object]]) -> None:
    spoilt = [row | {"rmse": row["rmse"] * 3} if row["kernel"] == "kriging" else row for row in rows]  # type: ignore[operator]

    held = {figure["figure"]: figure["holds"] for figure in summary(spoilt)}

    assert not held["sets where kriging beats both"]
    assert not held["worst RMSE against the better peer"]
    assert not held["mean RMSE against inverse distance"]


def test_every_field_is_sampled_to_its_own_grid_values() -> None:
    found = truths(FOLDER)

    assert len(found) >= 20
    for truth in found.values():
        east, north = truth.grid_points()
        time = int(np.flatnonzero(np.isfinite(truth.values).any(axis=(1, 2)))[0])
        sampled = truth.at(east[1:-1].ravel() + 1e-9, north[1:-1].ravel() + 1e-9, time)
        wanted = truth.values[time, 1:-1, : east.shape[1]].ravel()
        both = np.isfinite(sampled) & np.isfinite(wanted)
        assert both.sum() > 0.3 * len(wanted)
        np.testing.assert_allclose(sampled[both], wanted[both], rtol=1e-4, atol=1e-4 * np.nanstd(wanted))


def test_bilinear_is_exact_on_a_plane_across_the_closing_meridian() -> None:
    east, north = np.arange(0.0, 361.0, 90.0), np.array([-10.0, 0.0, 10.0])
    truth = Truth("plane", east, north, np.tile(north[:, None], (1, 5))[None] * 2.0)

    found = truth.at(np.array([-45.0, 359.0, 10.0, 5.0]), np.array([5.0, -2.5, 10.0, 11.0]), 0)

    np.testing.assert_allclose(found, [10.0, -5.0, 20.0, np.nan])


def test_stations_are_places_on_earth_each_once() -> None:
    for network in NETWORKS:
        places = stations(FOLDER, network)
        assert len(places) > 50
        assert len(np.unique(places, axis=0)) == len(places)
        assert (np.abs(places) <= [180, 90]).all()
