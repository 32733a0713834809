"""Real feeds, as dirty as they were published: pandas counts what must come out."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.ingest.parsing import canonical
from sensorgrid.pipeline.ingest.quality import flag
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import settings_of
from sensorgrid.pipeline.sources.files import read_files
from sensorgrid.pipeline.sources.mapping import read_mapping
from sensorgrid.pipeline.sources.stations import learn, locate, read_stations

DATA = Path(__file__).parents[3] / "shared" / "data"
SAO = DATA / "sao-1995-03-18" / "reports.csv.gz"
METAR = DATA / "metar-global-2022-10" / "metars.csv.gz"
BUOYS = DATA / "buoys-2013-05" / "obs.csv.gz"
AIRNOW = DATA / "airnow-nw-megafires-2015" / "hourly_pm25.csv.gz"
ASOS = DATA / "asos-us-1993-03-12" / "obs.csv.gz"
EARTH = Grid(attributes=tuple(KNOWN))
PM25 = "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real data are not beside the project")


def read(spark: SparkSession, name: str, path: Path, stations: Path | None = None) -> DataFrame:
    mapping = read_mapping(name)
    table = None if stations is None else read_stations(stations, mapping.stations, mapping.aliases)
    return read_files(spark, str(path), mapping, source=name, streaming=False, stations=table)


def pandas_of(frame: DataFrame) -> pd.DataFrame:
    table = frame.toArrow()
    return table.to_pandas()


def counts(rows: pd.DataFrame) -> dict[tuple[int, str | None], int]:
    grouped = rows.groupby(["flag", rows["test"].fillna("")]).size()
    return {(int(flag), test or None): int(n) for (flag, test), n in grouped.items()}


def raw(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


@pytest.fixture(scope="module")
def sao(spark: SparkSession) -> pd.DataFrame:
    rows = read(spark, "sao", SAO)
    placed = locate(rows, learn(rows, read_mapping("sao").aliases))
    return pandas_of(flag(canonical(placed), EARTH))


@pytest.fixture(scope="module")
def metar(spark: SparkSession) -> pd.DataFrame:
    return pandas_of(flag(canonical(read(spark, "metar", METAR)), EARTH))


def test_every_report_of_sao_is_there_with_all_its_values(sao: pd.DataFrame) -> None:
    source = raw(SAO)

    assert len(sao) == len(source) * 5 == 47_468 * 5
    assert sum(counts(sao).values()) == len(sao)
    assert sao["reason"].notna().sum() == 0
    assert sao.groupby("attribute").size().eq(len(source)).all()
    for name, column in (("air_temperature", "T"), ("wind_speed", "SPD")):
        values = sao.loc[sao["attribute"] == name, "value"]
        assert values.notna().sum() == (source[column] != -9999).sum()


def test_the_faults_of_the_decoder_are_flagged(sao: pd.DataFrame) -> None:
    hot = sao[(sao["attribute"] == "air_temperature") & (sao["value"] > 273.15 + 60)]
    lost = sao[sao["sensor"] == "WUY"]
    turned = sao[(sao["attribute"] == "wind_from_direction") & ((sao["value"] > 360) | (sao["value"] < 0))]
    pressure = sao[(sao["attribute"] == "air_pressure_at_mean_sea_level") & (sao["value"] == 0)]

    assert hot["value"].max() == pytest.approx(406 + 273.15)
    assert (hot["flag"] >= 3).all()
    assert set(hot[hot["value"] > 400]["flag"]) == {4}
    assert (lost["longitude"] == -790.2).all()
    assert set(lost["test"]) == {"position", "missing"}
    assert set(turned["flag"]) == {4}
    assert set(pressure["flag"]) == {4}
    assert len(hot) > 0
    assert len(lost) > 0
    assert len(pressure) > 0


def test_phoenix_is_one_sensor_under_both_its_names(sao: pd.DataFrame) -> None:
    source = raw(SAO)
    names = source["id"].astype(str)
    known = set(names[source["lat"] != -9999])
    aliases = {
        name for name in set(names) - known if len(name) == 4 and name[0] in "KC" and name[1:] in known
    }

    assert "KPHX" in set(names)
    assert len(aliases) > 200
    assert not aliases & set(sao["sensor"])
    assert (sao["sensor"] == "PHX").sum() == 5 * names.isin(["PHX", "KPHX"]).sum()
    assert sao.loc[sao["sensor"] == "PHX", ["longitude", "latitude"]].drop_duplicates().shape == (1, 2)
    without = source[(source["lat"] == -9999) & ~names.isin(aliases)]
    assert sao["longitude"].isna().sum() == 5 * len(without)


def test_variable_and_calm_winds_of_metar_have_no_direction(metar: pd.DataFrame) -> None:
    source = raw(METAR)
    rows = metar[metar["attribute"] == "wind_from_direction"].reset_index(drop=True)

    assert len(metar) == len(source) * 5 == 33_721 * 5
    assert metar["reason"].notna().sum() == 0
    zero = source["wind_dir_degrees"] == 0
    assert zero.sum() > 5000
    assert rows["value"].notna().sum() == (source["wind_dir_degrees"].notna() & ~zero).sum()
    assert (rows["value"] == 360).sum() == (source["wind_dir_degrees"] == 360).sum() > 500
    speeds = metar[metar["attribute"] == "wind_speed"]["value"]
    assert speeds.notna().sum() == source["wind_speed_kt"].notna().sum()


def test_metar_without_position_is_flagged_and_the_rest_agrees_with_pandas(metar: pd.DataFrame) -> None:
    source = raw(METAR)
    rows = metar[metar["attribute"] == "air_temperature"]

    nowhere = source["latitude"].isna()
    assert (rows["test"] == "position").sum() == (nowhere & source["temp_c"].notna()).sum()
    assert rows["value"].sum() == pytest.approx((source["temp_c"] + 273.15).sum())
    assert set(rows["event_time"].dt.tz_localize(None)) == set(
        pd.to_datetime(source["observation_time"]).dt.tz_localize(None)
    )


def test_tenths_of_the_buoys_come_out_as_sensible_weather(spark: SparkSession) -> None:
    source = raw(BUOYS)
    placed = set(raw(BUOYS.with_name("stations.csv")).dropna(subset=["lat"])["station"])
    rows = flag(canonical(read(spark, "buoy", BUOYS, BUOYS.with_name("stations.csv"))), EARTH)

    found = {
        row.attribute: row
        for row in rows.groupBy("attribute")
        .agg(
            F.count("*").alias("rows"), F.count("value").alias("values"), F.mean("value").alias("mean"),
            F.min("value").alias("low"), F.max("value").alias("high"),
            F.count_if(F.expr("flag = 9")).alias("missing"), F.count_if(F.expr("test = 'position'")).alias("nowhere"),
            F.count_if(F.expr("reason is not null")).alias("dead"),
        )
        .collect()
    }  # fmt: skip

    assert sum(row.rows for row in found.values()) == len(source) * 7 == 201_362 * 7
    fahrenheit = {"scale": 1 / 18, "offset": 459.67 / 1.8}
    for name, column, scale, offset in (
        ("air_temperature", "air_temp", *fahrenheit.values()),
        ("sea_surface_temperature", "water_temp", *fahrenheit.values()),
        ("air_pressure_at_mean_sea_level", "pressure", 10, 0),
        ("wind_speed", "wind_speed", 0.1 * 1852 / 3600, 0),
        ("sea_surface_wave_significant_height", "wave_height", 0.01, 0),
    ):
        values = source.loc[source[column] != 9999, column] * scale + offset
        row = found[name]
        assert (row.rows, row.values, row.dead) == (len(source), len(values), 0)
        assert (row.low, row.mean, row.high) == pytest.approx((values.min(), values.mean(), values.max()))
        assert row.missing == len(source) - len(values)
        assert row.nowhere == (~source.loc[values.index, "station"].isin(placed)).sum()
        low, high = KNOWN[name].usual
        assert low <= row.low <= row.high <= high


def test_smoke_of_the_megafires_is_all_there(spark: SparkSession) -> None:
    source = raw(AIRNOW)

    rows = pandas_of(flag(canonical(read(spark, "airnow", AIRNOW, AIRNOW.with_name("monitors.csv"))), EARTH))

    assert len(rows) == len(source) == 119_903
    assert set(rows["attribute"]) == {PM25}
    assert rows["longitude"].notna().all()
    assert rows["value"].sum() == pytest.approx(source["pm25"].sum() * 1e-9)


def test_american_units_and_padded_fields_of_asos_are_understood(spark: SparkSession) -> None:
    source = raw(ASOS)

    rows = pandas_of(canonical(read(spark, "asos", ASOS)))

    assert len(rows) == len(source) * 7
    assert rows["reason"].isna().all()
    humid = rows[rows["attribute"] == "relative_humidity"]["value"]
    assert humid.sum() == pytest.approx(source["relh"].sum() / 100)
    assert rows["event_time"].min() == pd.Timestamp("1993-03-12 06:00", tz=rows["event_time"].dt.tz)


# From real files to grids: what `sensorgrid pipeline backfill` does.

SETS = {
    "sao": ("sao-1995-03-18/reports.csv.gz", None, 47_468 * 5, (-130, 20, -60, 60), "1995-03-18T12:00Z"),
    "metar": ("metar-global-2022-10/metars.csv.gz", None, 33_721 * 5, (-180, -90, 180, 90), "2022-10-22T22:00Z"),
    "buoy": (
        "buoys-2013-05/obs.csv.gz", "buoys-2013-05/stations.csv", 201_362 * 7, (-180, -90, 180, 90),
        "2013-05-04T12:00Z",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param("sao", marks=pytest.mark.long), "metar", pytest.param("buoy", marks=pytest.mark.long)],
)
def test_a_backfill_of_real_reports_adds_up_and_looks_like_weather(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    file, stations, raw, extent, moment = SETS[name]
    source = {"kind": "files", "path": str(DATA / file), "mapping": name, "learn_stations": name == "sao"}
    if stations is not None:
        source["stations"] = str(DATA / stations)
    content = {
        "grid": {
            "extent": extent, "shape": [64, 32], "tick": 3600, "resolution_bits": 1, "region_digits": 2,
            "attributes": ["air_temperature", "eastward_wind", "northward_wind"],
        },
        "timing": {"max_age": "3h"},
        "gridding": {"kernel": "inverse_distance"},
        "sources": [source],
    }  # fmt: skip
    settings = settings_of(content, name, tmp_path)
    first = datetime.fromisoformat(moment)

    outcome = jobs.backfill(spark, settings, first=first, until=first + timedelta(hours=3))

    total, lake = outcome.total, Lake(settings.lake)
    assert total.raw == raw
    assert total.balanced
    tiles = lake.tiles(attribute="air_temperature")
    assert len(tiles) == 3 * 4
    values = pc.list_flatten(tiles["values"]).to_numpy()
    assert np.isfinite(values).all()
    assert 220 < values.min() < 275 < 285 < values.max() < 325
    assert values.std() > 3
    wind = pc.list_flatten(lake.tiles(attribute="eastward_wind")["values"]).to_numpy()
    assert 0.5 < np.abs(wind).mean() < 12
    if name == "sao":
        names = set(lake.sensors()["sensor"].to_pylist())
        assert "PHX" in names
        assert "KPHX" not in names
        letters = lake.letters().to_pylist()
        assert any(r["test"] == "range" and r["value"] > 670 for r in letters)  # 406 °C
        assert any(r["sensor"] == "WUY" and r["test"] == "position" for r in letters)
        assert total.duplicate > 9_000
        assert total.tests["conflict"] > 0


def test_norwegian_stations_without_a_name_have_time_and_place_from_file_name_and_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "norway.toml").write_text(
        """
        format = "csv"
        delimiter = ";"
        columns = ["lon", "lat", "elev", "value"]
        topic = "ta_{stamp}Z.txt"
        [sensor]
        columns = ["lon", "lat"]
        [position]
        longitude = "lon"
        latitude = "lat"
        elevation = "elev"
        [time]
        column = "{stamp}"
        format = "yyyyMMdd'T'HH"
        [values.air_temperature]
        column = "value"
        unit = "degC"
        """
    )
    files = sorted((DATA / "norway-qc-demo").glob("ta_*.txt"))

    mapping = read_mapping(tmp_path / "norway.toml")
    frame = read_files(spark, str(DATA / "norway-qc-demo" / "ta_*.txt"), mapping, source="n", streaming=False)
    rows = pandas_of(frame)

    source = pd.concat([pd.read_csv(path, sep=";") for path in files])
    assert len(rows) == len(source)
    assert rows["reason"].isna().all()
    assert rows["elevation"].sum() == pytest.approx(source["elev"].sum())
    assert set(rows["event_time"].dt.strftime("%Y%m%dT%HZ")) == {path.stem[3:] for path in files}


def test_elevations_of_metar_stations_come_with_them(metar: pd.DataFrame) -> None:
    source = raw(METAR)

    rows = metar[metar["attribute"] == "air_temperature"]
    assert rows["elevation"].notna().sum() == source["elevation_m"].notna().sum()
    assert rows["elevation"].sum() == pytest.approx(source["elevation_m"].sum())
