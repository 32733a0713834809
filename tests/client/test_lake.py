"""The lake as labelled arrays: every point with its bounds, its observations and their age."""

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr

import sensorgrid
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.measurements import empty
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.lake.tiles import Basis, Block, Identity, table_of

GRID = Grid(
    shape=(8, 8), tick=3600, resolution_bits=1, region_digits=2, attributes=("air_temperature", "glow")
)
FIRST = GRID.tick_at(datetime(2026, 3, 1, tzinfo=UTC))
REGIONS = ("00", "01", "10", "11")
T = "air_temperature"


def block(
    tick: int, region: str, value: float, *, revision: int = 0, seen: int = 3, attribute: str = T
) -> Block:
    values = np.full(16, value, np.float32)
    lopsided = attribute != T
    age_s = np.full(16, 600.0 if seen else np.nan, np.float32)
    basis = Basis(
        np.full(16, seen, np.uint8), age_s, values - 1 if lopsided else None, values + 9 if lopsided else None, "prior",
        0.25, "log(value + 3)" if lopsided else "",
    )  # fmt: skip
    identity = Identity(attribute, tick, region, revision)
    inputs = (attribute,)
    none = np.empty(0, np.uint8)
    return Block(identity, values, np.full(16, 2, np.float32), seen, "kriging", empty(), none, inputs, basis)


def write(lake: Lake, batch: int, *blocks: Block) -> None:
    lake.write("tiles", table_of(blocks, GRID), ("attribute", "day"), "fillx", batch, 0)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path / "lake")).create()
    lake.write_text("plan.json", json.dumps({"format": 2, "grid": asdict(GRID)}))
    first = [block(FIRST, region, 280.0 + n) for n, region in enumerate(REGIONS)]
    silent = [block(FIRST + 1, region, 288.0, seen=0) for region in REGIONS]
    write(lake, 0, *first, *silent, *(block(FIRST, region, 5.0, attribute="glow") for region in REGIONS))
    write(lake, 1, block(FIRST, "11", 270.0, revision=1))
    return lake


def test_every_point_has_its_bounds_its_observations_and_their_age(lake: Lake) -> None:
    data = sensorgrid.read_lake(lake.root)

    assert data[T].shape == (2, 8, 8)
    assert sorted(np.unique(data[T].values[0])) == [270.0, 280.0, 281.0, 282.0]
    beside = data[T].attrs["ancillary_variables"].split()
    assert set(beside) == {
        f"{T}_{n}" for n in ("standard_error", "lower_bound", "upper_bound", "number_of_observations", "age")
    }
    assert set(beside) <= set(data.data_vars)
    np.testing.assert_array_equal(data[f"{T}_lower_bound"], data[T] - 2)
    np.testing.assert_array_equal(data[f"{T}_upper_bound"], data[T] + 2)
    np.testing.assert_array_equal(data["glow_upper_bound"][0], data["glow"][0] + 9)
    assert data[f"{T}_number_of_observations"].attrs["standard_name"] == f"{T} number_of_observations"
    assert np.unique(data[f"{T}_number_of_observations"].values[0]).tolist() == [3]
    assert np.unique(data[f"{T}_age"].values[0]).tolist() == [600.0]
    assert data["glow"].attrs["observation_noise"] == 0.25
    assert data["glow"].attrs["observation_noise_after"] == "log(value + 3)"
    assert "of the field" in data[f"{T}_standard_error"].attrs["comment"]


def test_a_tick_without_a_single_observation_is_told_apart(lake: Lake) -> None:
    data = sensorgrid.read_lake(lake.root, T)

    assert (data[f"{T}_number_of_observations"].values[1] == 0).all()
    assert np.isnan(data[f"{T}_age"].values[1]).all()
    assert data[T].attrs["ticks_without_observations"] == 1
    assert data[T].attrs["gaps"] == "prior"
    assert lake.unobserved_ticks(FIRST, FIRST + 1) == {T: (1, 2), "glow": (0, 1)}
    assert lake.unobserved_ticks(FIRST, FIRST) == {T: (0, 1), "glow": (0, 1)}


def test_a_tick_with_one_observed_region_is_not_without_observations(lake: Lake) -> None:
    write(lake, 2, block(FIRST + 1, "10", 285.0, revision=1, seen=1))

    assert lake.unobserved_ticks(FIRST, FIRST + 1)[T] == (0, 2)
    assert sensorgrid.read_lake(lake.root, T)[T].attrs["ticks_without_observations"] == 0


def test_files_of_an_earlier_release_are_read_with_what_they_have(lake: Lake, tmp_path: Path) -> None:
    for path in Path(lake.root).glob("tiles/attribute=air_temperature/*/fillx-0000000000*"):
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.select(table.column_names[: table.column_names.index("lower")]), path)

    data, grids = sensorgrid.read_lake(lake.root, T), lake.tiles(attribute=T)

    assert (data[f"{T}_number_of_observations"].values == -1).any()
    np.testing.assert_array_equal(data[f"{T}_lower_bound"], data[T] - 2)
    assert grids["observed_points"].null_count == 7
    assert lake.unobserved_ticks(FIRST, FIRST + 1) == {T: (0, 1), "glow": (0, 1)}
    found = lake.grids_of([Identity(T, FIRST + 1, "00", 0)], GRID, "fillx", 0)
    assert [silent_s for *_, silent_s in found.values()] == [None]


def test_what_travels_through_spark_and_to_couriers_keeps_all_of_it(lake: Lake) -> None:
    for one in (block(FIRST, "00", 5.0, attribute="glow"), block(FIRST, "00", 5.0, seen=0)):
        again = Block.decode(one.encode())

        assert again.encode() == one.encode()
        assert again.silent_s == one.silent_s == (None if one.sensors else float("inf"))
    bare = replace(block(FIRST, "00", 5.0), basis=None)
    assert Block.decode(bare.encode()).silent_s is None
    said = bare.encode()
    size = int.from_bytes(said[:4], "little")
    before = json.dumps(json.loads(said[4 : 4 + size])[:9]).encode()
    older = len(before).to_bytes(4, "little") + before + said[4 + size :]
    assert Block.decode(older).encode() == said, "as releases before wrote it"
    found = lake.grids_of([Identity(T, FIRST + t, "00", 0) for t in (0, 1)], GRID, "fillx", 0)
    assert [silent_s for *_, silent_s in found.values()] == [None, float("inf")]


def test_a_lake_without_the_attribute_or_the_time_says_so(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(sensorgrid.ExportError, match="found no grid of 'rain', expected one"):
        sensorgrid.read_lake(lake.root, "rain")
    with pytest.raises(sensorgrid.ExportError, match="found no tick from 2030"):
        sensorgrid.read_lake(lake.root, T, start=datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(sensorgrid.ExportError, match=r"found no plan\.json"):
        sensorgrid.read_lake(tmp_path)


@pytest.mark.parametrize(
    "plan",
    ["[1]", "{}", '{"grid": null}', '{"grid": [1]}', '{"grid": {"order": 3}}', '{"grid": {"shape": [3, 3]}}'],
)
def test_a_plan_that_tells_no_grid_is_named(lake: Lake, plan: str) -> None:
    lake.write_text("plan.json", plan)

    with pytest.raises(sensorgrid.ExportError, match=r"plan\.json: found no grid"):
        sensorgrid.read_lake(lake.root)


def test_a_plan_of_a_later_release_may_say_more(lake: Lake) -> None:
    before = sensorgrid.read_lake(lake.root)
    lake.write_text("plan.json", json.dumps({"format": 2, "grid": asdict(GRID) | {"height_m": [1, 2]}}))

    xr.testing.assert_identical(sensorgrid.read_lake(lake.root), before)


def spoil(lake: Lake, column: str, value: object, kind: pa.DataType | None = None) -> Path:
    """One file of the lake, with another value in the last row of a column."""
    path = sorted(Path(lake.root).glob(f"tiles/attribute={T}/*/fillx-0000000000*"))[0]
    table = pq.read_table(path, partitioning=None)
    at, field = table.column_names.index(column), table.schema.field(column)
    values = [*table[column].to_pylist()[:-1], value] if kind is None else [value] * len(table)
    pq.write_table(table.set_column(at, column, pa.array(values, kind or field.type)), path)
    return path


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("values", [1.0], "too few or too many numbers of values, expected one for each point"),
        ("age", [], "too few or too many numbers of age"),
        ("x0", 7, "a tile outside the grid, expected one on the grid of 8 × 8 points"),
        ("y0", -4, "a tile outside the grid"),
        ("height", 0, "a tile outside the grid"),
        ("width", None, "no width, expected one"),
        ("region", None, "no region, expected one"),
        ("tick", 1 << 60, "a tick too far away, expected one from"),
        ("tick", -(1 << 60), "a tick too far away"),
    ],
)
def test_a_row_that_cannot_be_right_is_named(lake: Lake, column: str, value: object, text: str) -> None:
    path = spoil(lake, column, value)

    with pytest.raises(sensorgrid.ExportError) as error:
        sensorgrid.read_lake(lake.root, T)

    said = str(error.value)
    assert str(path) in said
    assert f"found {text}" in said
    assert all(word in said for word in ("tick", "region", "revision"))


@pytest.mark.parametrize("content", [b"", b"no parquet at all", b"PAR1 cut PAR1", None])
def test_a_file_that_cannot_be_read_is_named(lake: Lake, content: bytes | None) -> None:
    path = spoil(lake, "width", "wide", pa.string())
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(sensorgrid.ExportError) as error:
        sensorgrid.read_lake(lake.root, T)

    assert str(error.value).startswith(f"{path}: found ")
    assert str(error.value).endswith(", expected tiles of a lake")


def test_the_data_set_survives_netcdf(lake: Lake, tmp_path: Path) -> None:
    data = sensorgrid.read_lake(lake.root)

    data.to_netcdf(tmp_path / "x.nc")

    with xr.open_dataset(tmp_path / "x.nc") as again:
        xr.testing.assert_identical(again.load(), data)
