"""Every `sensorgrid pipeline` on a page runs, and so does what a page does with the lake."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from pages import playing
from pages.playing import Typed, Workshop, lines_of
from pages.reading import ROOT, Block, markdown
from servers import mosquitto

pytestmark = pytest.mark.long

GRID = """
lake = "lake"
[grid]
shape = [64, 32]
tick = "30min"
region_digits = 2
attributes = ["air_temperature"]
[[sources]]
kind = "synthetic"
[sources.options]
stations = 100
tick = 1800
attributes = "air_temperature"
"""
PAST = GRID + 'start = "2022-10-22T00:00:00Z"\nuntil = "2022-10-22T01:00:00Z"\n'
"""for what reads files, or what takes their place"""
MQTT = GRID.partition("[[sources]]")[0] + '[[sources]]\nkind = "mqtt"\ntopics = ["city/#"]\n'


def told(*names: str) -> list[object]:
    return [pytest.param(line, id=str(line)) for line in lines_of(*names)]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """With a lake for all who only look at it."""
    return Workshop(tmp_path_factory.mktemp("past"), PAST)


@pytest.fixture(scope="module")
def filled(shop: Workshop) -> Workshop:
    """All backfills of the pages have run, in their order."""
    for line in lines_of("pipeline", "backfill"):
        said = shop.run(line)
        assert re.search(r"grids published *│ +[\d,]+", said), f"{line}:\n{said}"
    return shop


def test_every_backfill_grids_what_there_is(filled: Workshop) -> None:
    assert (filled.folder / "lake" / "tiles").is_dir()
    assert (filled.folder / "lakes" / "earth" / "tiles").is_dir()


@pytest.mark.parametrize("line", told("pipeline", "status"))
def test_status_tells_what_the_lake_holds(line: Typed, filled: Workshop) -> None:
    assert re.search(r"air_temp\S* *│ +[1-9]", filled.run(line))


@pytest.mark.parametrize("line", told("operator", "explain"))
def test_an_operator_is_explained(line: Typed, filled: Workshop) -> None:
    assert re.search(r"bytes per tick leave the regions, against [\d,]+", filled.run(line))


@pytest.mark.parametrize("line", told("operator", "backfill"))
def test_an_operator_is_calculated_over_the_lake(line: Typed, filled: Workshop) -> None:
    assert re.search(r"\d\d:\d\d:\d\d │ +[-\d.e]+ │", filled.run(line))

    (out,) = re.findall(r"--out (\S+)", line.text)
    assert (filled.folder / out).read_text().startswith('"tick","time","value"')


@pytest.mark.parametrize("line", told("pipeline", "map"))
def test_a_map_is_drawn(line: Typed, filled: Workshop) -> None:
    filled.run(line)

    (out,) = re.findall(r"--out (\S+)", line.text) or ["map.png"]
    assert (filled.folder / out).stat().st_size > 10_000


@pytest.mark.parametrize("line", told("pipeline", "export"))
def test_the_lake_is_written_to_a_file(line: Typed, filled: Workshop) -> None:
    filled.run(line)

    (out,) = re.findall(r"--out (\S+)", line.text)
    with xr.open_dataset(filled.folder / out) as data:
        assert "air_temperature_number_of_observations" in data


@pytest.mark.parametrize("line", told("pipeline", "verify"))
def test_stations_are_left_out_and_compared(line: Typed, shop: Workshop) -> None:
    said = shop.run(line)

    assert re.search(r"air temp.*│ kriging *│ +[1-9]", said)
    for out in re.findall(r"--(?:page|json) (\S+)", line.text):
        assert (shop.folder / out).stat().st_size > 1000


@pytest.mark.parametrize("line", told("pipeline", "tidy"))
def test_the_lake_is_tidied(line: Typed, filled: Workshop) -> None:
    assert "files fewer" in filled.run(line)


@pytest.mark.parametrize("line", told("pipeline", "replay"))
def test_the_past_is_sent_through_the_stream(line: Typed, shop: Workshop) -> None:
    assert re.search(r"grids published *│ +[1-9]", shop.run(line))


@pytest.mark.parametrize("line", told("pipeline", "run"))
def test_the_stream_runs_until_it_is_told_to_stop(line: Typed, tmp_path: Path) -> None:
    shop = Workshop(tmp_path, GRID.replace("30min", "10s").replace("1800", "10"))
    file = next(word for word in shop.typed(line).split() if word.endswith(".toml"))
    if 'kind = "mqtt"' in (tmp_path / file).read_text():
        if playing.needed_programs("mosquitto"):
            pytest.skip("mosquitto is not installed")
        with mosquitto(tmp_path, shop.mqtt), shop.started(line, "a tick takes about"):
            pass
    else:
        with shop.started(line, r"batch \d+: [1-9][\d,]* in"):
            pass


@pytest.mark.parametrize("line", told("pipeline", "land"))
def test_messages_are_received_without_spark(line: Typed, tmp_path: Path) -> None:
    if playing.needed_programs("mosquitto"):
        pytest.skip("mosquitto is not installed")
    shop = Workshop(tmp_path, MQTT)
    with mosquitto(tmp_path, shop.mqtt), shop.started(line, rf"receiving city/# from \S+:{shop.mqtt}"):
        pass


# What a page does with a lake, and its three files


def blocks(language: str) -> Iterator[Block]:
    yield from (
        block for block in markdown(ROOT / "docs" / "pipeline.md").blocks if block.language == language
    )


def test_the_lake_is_read_with_python_as_the_page_does_it(
    filled: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(filled.folder)
    names: dict[str, object] = {}

    for block in blocks("python"):
        exec(compile(block.text, str(block.place), "exec"), names)

    data, field = names["data"], names["field"]
    assert isinstance(data, xr.Dataset)
    assert (data["air_temperature_lower_bound"] < data["air_temperature"]).all()
    assert isinstance(field, np.ndarray)
    assert ((field[:32, :64] > 200) & (field[:32, :64] < 330)).all(), "a whole tick, in kelvin"
    assert not field[32:].any()  # the page's grid is larger


def test_the_lake_is_read_with_sql_as_the_page_does_it(
    filled: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    (block,) = blocks("sql")
    monkeypatch.chdir(filled.folder)

    rows = duckdb.sql(block.text).fetchall()

    assert len(rows) >= 8, "two ticks of four regions"
    assert all(revision >= 0 for *_, revision in rows)


def test_your_own_csv_is_gridded_with_the_three_files_of_the_page(tmp_path: Path) -> None:
    (block,) = (block for block in blocks("toml") if "# mine.toml" in block.text)
    shop = Workshop(tmp_path)
    parts = re.split(r"^# (\S+\.toml)$", block.text, flags=re.M)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        (tmp_path / name).write_text(text)
    rows = [f"s{n},2026-07-01 1{n % 3}:10,{4.2 + n / 4},{50.1 + n / 5},{18 + n}" for n in range(12)]
    (tmp_path / "readings.csv").write_text(
        "\n".join(["station,when,lon,lat,temp", *rows, "s1,2026-07-01 10:40,5,51,-999"])
    )
    (line,) = {
        line
        for line in lines_of("pipeline", "backfill")
        if line.text == "sensorgrid pipeline backfill grid.toml"
    }

    said = shop.run(line)

    assert re.search(r"raw *│ +13 ", said), said
    assert re.search(r"used *│ +12 ", said), said
    from sensorgrid.pipeline.lake.folder import Lake

    tiles = Lake(str(tmp_path / "lake")).tiles(attribute="air_temperature")
    first = min(tiles["tick"].to_pylist()) * 3600
    assert first == 1782892800, "ten o'clock in Amsterdam is eight o'clock UTC"
