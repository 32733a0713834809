"""Plans: kernels that are ready in time, parameters for ticks to come, nothing that was used is changed."""

import json
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa
import pytest

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.calibration import prior
from sensorgrid.pipeline.gridding.groups import group_named
from sensorgrid.pipeline.gridding.kernels.transforms import backward
from sensorgrid.pipeline.gridding.measurements import Measurements
from sensorgrid.pipeline.gridding.tile import Recipe
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.lake.tiles import Block, Identity, table_of
from sensorgrid.pipeline.plan import PlanError, RecipeEntry, plan_from_json
from sensorgrid.pipeline.planning import (
    TICKS,
    TICKS_MAX,
    _ticks_with_data,
    choose_kernel,
    first_plan,
    for_all_groups,
    observations_of,
    refreshed,
)
from sensorgrid.pipeline.settings import GriddingSettings
from sensorgrid.pipeline.spark.packing import SENSOR
from sensorgrid.pipeline.spark.stages import known_sensors, unheard

GRID = Grid(shape=(64, 32), tick=600, resolution_bits=1, region_digits=2, attributes=("air_temperature",))
TEMPERATURE = group_named("air_temperature")


def positions(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.uniform(-180, 180, count), rng.uniform(-70, 70, count)


def test_a_kernel_that_would_not_be_ready_in_time_is_replaced_and_it_is_said() -> None:
    settings = GriddingSettings()

    slow, why = choose_kernel(settings, replace(GRID, tick=1e-5), 2000)
    usual, fine = choose_kernel(settings, GRID, 2000)

    assert slow == "inverse_distance"
    assert "inverse_distance instead of kriging: a tick would take about" in why
    assert (usual, fine.startswith("kriging as configured")) == ("kriging", True)


def test_a_plan_comes_back_as_it_went() -> None:
    plan = first_plan(GRID, GriddingSettings(), 100, for_all_groups(GRID, *positions(50)))

    assert plan_from_json(plan.to_json()) == plan
    with pytest.raises(PlanError, match="found format 9, expected 1 or 2"):
        plan_from_json(plan.to_json().replace('"format": 2', '"format": 9'))


def test_an_entry_holds_from_its_tick_on_and_none_is_put_before_it() -> None:
    plan = first_plan(GRID, GriddingSettings(), 100, for_all_groups(GRID, *positions(50)))
    other = Recipe("nearest", (prior("air_temperature"),))

    later = plan.with_recipe(RecipeEntry(120, "air_temperature", other, "because"))

    assert later.recipe(TEMPERATURE, 119) == plan.recipe(TEMPERATURE, 119)
    assert later.recipe(TEMPERATURE, 120) == later.recipe(TEMPERATURE, 10**9) == other
    with pytest.raises(
        PlanError, match="found a recipe for 'air_temperature' from tick 120 on, expected none from 110"
    ):
        later.with_recipe(RecipeEntry(110, "air_temperature", other, "too late"))


def test_a_sample_of_winds_is_the_last_vector_of_each_sensor() -> None:
    minute_us = 60_000_000
    rows = [
        ("a", "wind_speed", 1, 9.0), ("a", "wind_from_direction", 1, 180.0),  # an older one
        ("a", "wind_speed", 4, 2.0), ("a", "wind_from_direction", 4, 270.0),
        ("b", "eastward_wind", 3, -1.0), ("b", "northward_wind", 3, 5.0),
        ("c", "wind_speed", 2, 0.0),  # calm
        ("d", "wind_speed", 2, 3.0), ("d", "wind_from_direction", 3, 90.0),  # not of one moment
    ]  # fmt: skip
    columns = zip(*((s, a, 1.0, 2.0, m * minute_us, v, 0) for s, a, m, v in reversed(rows)), strict=True)
    names = ["sensor", "attribute", "longitude", "latitude", "time_us", "value", "tick"]

    (east,), (north,) = observations_of(pa.table(list(map(list, columns)), names), group_named("wind"), GRID)

    assert east.values.tolist() == pytest.approx([2, -1, 0])
    assert north.values.tolist() == pytest.approx([0, 5, 0])
    assert east.age_s.tolist() == [360, 420, 480]


def test_what_the_lake_has_gathered_changes_coming_ticks_only(tmp_path) -> None:
    x, y = positions(300)
    settings = GriddingSettings()
    plan = first_plan(GRID, settings, 100, for_all_groups(GRID, x[:5], y[:5]))
    lake = Lake(str(tmp_path / "lake")).create()
    rng = np.random.default_rng(2)
    blocks = []
    for tick in range(100, 100 + TICKS):
        value = 280 + 8 * np.sin(np.radians(2 * x)) + rng.normal(0, 0.5, len(x))
        rows = Measurements(
            np.arange(len(x), dtype=np.uint64), np.full(len(x), tick * 600_000_000 + 1), x, y, value,
            np.zeros(len(x), np.uint8), np.ones(len(x), np.uint8),
        )  # fmt: skip
        field = np.zeros(512, np.float32)
        identity = Identity("air_temperature", tick, "00", 0)
        blocks.append(
            Block(
                identity,
                field,
                field + 1,
                300,
                "kriging",
                rows,
                np.zeros(len(x), np.uint8),
                TEMPERATURE.inputs,
            )
        )
    lake.write("tiles", table_of(blocks, GRID), ("attribute", "day"), "streamx", 0, 0)
    numbers, names = np.arange(300, dtype=np.uint64), [f"S{n}" for n in range(300)]
    nothing = pa.nulls(300, pa.float64())
    sensors = pa.table([pa.array(numbers), names, [TEMPERATURE.name] * 300, x, y, nothing], schema=SENSOR)
    lake.write("sensors", sensors, (), "streamx", 0, 0)
    newest = 100 + TICKS - 1

    fresh = refreshed(plan, lake, settings, newest, ahead_s=600)

    assert fresh.recipes[: len(plan.recipes)] == plan.recipes
    assert fresh.halos[: len(plan.halos)] == plan.halos
    assert fresh.recipe(TEMPERATURE, newest + 2) == plan.recipe(TEMPERATURE, newest + 2)
    assert refreshed(fresh, lake, settings, newest, ahead_s=600) == fresh
    fitted = fresh.recipe(TEMPERATURE, newest + 3).parameters[0]
    assert fitted != plan.recipe(TEMPERATURE, newest).parameters[0]
    assert 0 < fitted.noise < 2
    names = TEMPERATURE.name
    assert max(fresh.halo(names, newest + 3).width_m) < max(plan.halo(names, newest).width_m)


def test_ticks_are_sampled_where_there_are_data_and_more_of_them_if_few_speak() -> None:
    ticks = np.array([5, 6, 7, 500, 501, 900])
    sensors = np.array([30, 30, 1, 30, 28, 30])

    assert _ticks_with_data(ticks, sensors) == [5, 6, 500, 501, 900]  # not the one with a single sensor
    assert _ticks_with_data(ticks[:0], sensors[:0]) == []
    assert len(_ticks_with_data(np.arange(1000), np.full(1000, 4000))) == TICKS
    assert len(_ticks_with_data(np.arange(1000), np.full(1000, 30))) == 30
    assert len(_ticks_with_data(np.arange(1000), np.full(1000, 2))) == TICKS_MAX


def sampled(stations: int, ticks: int) -> pa.Table:
    x, y = positions(stations)
    rng = np.random.default_rng(5)
    columns: dict[str, list[object]] = {
        n: [] for n in ("sensor", "longitude", "latitude", "value", "tick", "time_us")
    }
    for tick in range(ticks):
        value = 280 + 8 * np.sin(np.radians(2 * x)) + rng.normal(0, 0.5, stations)
        columns["sensor"] += [f"S{n}" for n in range(stations)]
        columns["longitude"] += x.tolist()
        columns["latitude"] += y.tolist()
        columns["value"] += value.tolist()
        columns["tick"] += [tick] * stations
        columns["time_us"] += [tick * 600_000_000 + 1] * stations
    columns["attribute"] = ["air_temperature"] * (stations * ticks)
    return pa.table(columns)


def test_a_plan_says_what_its_parameters_rest_on_or_why_they_are_priors() -> None:
    known = for_all_groups(GRID, *positions(50))
    nothing = sampled(1, 1).slice(0, 0)

    def why(settings: GriddingSettings, rows: pa.Table | None) -> str:
        (note,) = first_plan(GRID, settings, 100, known, rows).notes()
        return note

    assert "parameters are priors: nothing has been measured yet" in why(GriddingSettings(), None)
    assert "parameters are priors: calibrate = false" in why(
        GriddingSettings(calibrate=False), sampled(50, 2)
    )
    assert "priors: no measurement in the ticks that were looked at" in why(GriddingSettings(), nothing)
    assert "values as they are, fitted to 100 values of 50 stations in 2 ticks" in why(
        GriddingSettings(), sampled(50, 2)
    )
    assert "inverse_distance: fewer than 12 stations" in why(GriddingSettings(), sampled(5, 20))


def test_what_the_configuration_says_of_an_attribute_goes_before_the_data() -> None:
    own = GriddingSettings.model_validate({"air_temperature": {"length": 12345.0, "spread": 3.0}})

    plan = first_plan(GRID, own, 100, for_all_groups(GRID, *positions(50)), sampled(50, 2))

    (parameters,) = plan.recipe(TEMPERATURE, 100).parameters
    assert (parameters.length, parameters.spread) == (12345.0, 3.0)


def test_without_calibration_the_transform_and_the_number_of_stations_still_count() -> None:
    glow = replace(GRID, attributes=("glow",))
    own = GriddingSettings.model_validate(
        {"calibrate": False, "glow": {"transform": "log", "mean": 40.0, "spread": 20.0}}
    )

    few = first_plan(glow, own, 100, for_all_groups(glow, *positions(5)))
    many = first_plan(glow, own, 100, for_all_groups(glow, *positions(50)))

    (parameters,) = few.recipe(group_named("glow"), 100).parameters
    assert (parameters.transform, parameters.offset) == ("log", 32.0)
    assert backward(np.array([parameters.mean]), parameters)[0] == pytest.approx(40.0)
    assert few.recipe(group_named("glow"), 100).kernel == "inverse_distance"
    assert many.recipe(group_named("glow"), 100).kernel == "kriging"
    assert "calibrate = false; inverse_distance: fewer than 12 stations" in few.notes()[0]


def test_a_known_attribute_takes_the_transform_that_it_is_told_without_calibration() -> None:
    rain = replace(GRID, attributes=("precipitation_amount",))
    own = GriddingSettings.model_validate(
        {"calibrate": False, "precipitation_amount": {"transform": "identity"}}
    )

    plan = first_plan(rain, own, 100, for_all_groups(rain, *positions(50)))

    (parameters,) = plan.recipe(group_named("precipitation_amount"), 100).parameters
    assert (parameters.transform, parameters.lowest) == ("identity", 0.0)


def test_a_plan_of_the_first_format_is_read_and_written_as_the_present_one() -> None:
    before = {
        "format": 1,
        "grid": json.loads(json.dumps(asdict(GRID))),
        "start_tick": 7,
        "halos": [{"from_tick": -5, "group": "air_temperature", "width_m": [1.0, 2.0], "why": "as configured"}],
        "recipes": [
            {
                "from_tick": -5, "group": "air_temperature", "why": "kriging as configured",
                "recipe": {
                    "kernel": "kriging",
                    "parameters": [
                        {"mean": 280.0, "spread": 15.0, "length": 4e5, "noise": 1.0, "drift": 0.5, "shape": "matern",
                         "sill": 6.0, "error_scale": 1.5, "local": 0.4}
                    ],
                },
            }
        ],
    }  # fmt: skip

    plan = plan_from_json(json.dumps(before))

    (p,) = plan.recipe(TEMPERATURE, 0).parameters
    assert (p.mean, p.shape, p.transform, p.lowest) == (
        280.0,
        "matern",
        "identity",
        prior("air_temperature").lowest,
    )
    assert p.errors == (2 * np.log(1.5), 0.4, 0.0, 0.0, 0.0)
    assert "of an earlier release" in plan.notes()[0]
    assert plan_from_json(plan.to_json()) == plan
    with pytest.raises(
        PlanError, match="found format 3, expected 1 or 2; a newer sensorgrid may have written it"
    ):
        plan_from_json(json.dumps(before | {"format": 3}))


def test_an_elevation_that_becomes_known_is_kept_for_a_sensor_that_has_spoken_before(tmp_path) -> None:
    lake = Lake(str(tmp_path / "lake")).create()

    def sensors(*heights: float | None) -> pa.Table:
        n = len(heights)
        return pa.table(
            [pa.array(range(n), pa.uint64()), [f"s{k}" for k in range(n)], ["air_temperature"] * n, [1.0] * n,
             [2.0] * n, pa.array(heights, pa.float64())],
            schema=SENSOR,
        )  # fmt: skip

    lake.write("sensors", unheard(sensors(None, 5.0, None), known_sensors(lake)), (), "fillx", 0, 0)
    fresh = unheard(sensors(300.0, 5.0, None), known_sensors(lake))
    lake.write("sensors", fresh, (), "fillx", 1, 0)

    assert fresh["sensor"].to_pylist() == ["s0"]
    found = lake.sensors().sort_by("number")
    assert found["elevation"].to_pylist() == [300.0, 5.0, None]
    assert len(unheard(sensors(300.0, 5.0, None), known_sensors(lake))) == 0
