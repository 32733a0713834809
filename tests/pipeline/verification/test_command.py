"""`sensorgrid pipeline verify` on a user's own files: through the real ingest, to JSON and a page."""

import json

import numpy as np
import pytest
from pyspark.sql import SparkSession

from contracts import TOP, VERIFY, Contract, breaches
from sensorgrid.cli.arguments import ArgumentError
from sensorgrid.cli.pipeline_verify import read_share
from sensorgrid.pipeline.settings import PipelineSettings, settings_of
from sensorgrid.pipeline.spark.readings import networks
from sensorgrid.pipeline.verification.network import VerificationError
from sensorgrid.pipeline.verification.verify import verify

MAPPING = """
format = "csv"
columns = ["id", "time", "lon", "lat", "t"]
[sensor]
columns = ["id"]
[position]
longitude = "lon"
latitude = "lat"
[time]
column = "time"
[values.air_temperature]
column = "t"
unit = "degC"
"""
STATIONS, HOURS = 30, 6


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> PipelineSettings:
    folder = tmp_path_factory.mktemp("own")
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0, 20, STATIONS), rng.uniform(40, 55, STATIONS)
    lines = ["id,time,lon,lat,t"]
    for hour in range(HOURS):
        for number in range(STATIONS):
            value = 10 + 5 * np.sin(x[number] / 5) + rng.normal(0, 0.3)
            lines.append(
                f"s{number},2024-05-01T{hour:02d}:30:00Z,{x[number]:.4f},{y[number]:.4f},{value:.2f}"
            )
    lines.append("s0,2024-05-01T09:30:00Z,1.0,45.0,9999")  # no instrument reads this
    (folder / "own.csv").write_text("\n".join(lines) + "\n")
    (folder / "own.toml").write_text(MAPPING)
    content = {
        "grid": {
            "extent": [0, 40, 20, 55], "shape": [32, 32], "tick": 3600, "resolution_bits": 1, "region_digits": 2,
            "attributes": ["air_temperature", "relative_humidity"],
        },
        "timing": {"max_age": "3h"},
        "sources": [{"kind": "files", "path": str(folder / "own.csv"), "mapping": str(folder / "own.toml")}],
    }  # fmt: skip
    return settings_of(content, "own", folder)


def test_a_network_is_what_the_files_hold_in_canonical_units(
    spark: SparkSession, settings: PipelineSettings
) -> None:
    (network,) = networks(spark, settings, ticks=4)

    assert network.attributes == ("air_temperature",)  # nobody reports humidity
    assert len(network) == STATIONS
    assert len(network.moments) == 4
    for moment in network.moments:
        assert moment.fresh.all()
        assert len(moment.station) == STATIONS
        assert 273 < moment.outputs[0].values.min() <= moment.outputs[0].values.max() < 300


def test_its_rows_keep_the_contract(spark: SparkSession, settings: PipelineSettings) -> None:
    (network,) = networks(spark, settings, ticks=6)

    rows = [row for one in verify(network, 5) for row in one.rows]

    result = {"command": "pipeline verify", "version": "1", "args": {}, "rows": json.loads(json.dumps(rows))}
    contract = Contract(
        "verify", ("pipeline", "verify"), VERIFY, TOP, {"kernel": {"nearest", "inverse_distance"}}
    )
    assert breaches(contract, result) == []
    assert {row["readings"] for row in rows} == {STATIONS * HOURS}


def test_a_time_without_readings_and_a_name_nobody_has_are_told(
    spark: SparkSession, settings: PipelineSettings
) -> None:
    from datetime import UTC, datetime

    with pytest.raises(
        VerificationError, match="no good measurement of air_temperature or relative_humidity"
    ):
        networks(spark, settings, first=datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(VerificationError, match="--attribute: found 'rain', expected one of air_temperature"):
        networks(spark, settings, attribute="rain")


@pytest.mark.parametrize(("text", "share"), [("10%", 0.1), ("0.25", 0.25), ("50%", 0.5)])
def test_a_share_is_a_percentage_or_a_fraction(text: str, share: float) -> None:
    assert read_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["0", "60%", "ten", "", "%", "nan", "-5%"])
def test_a_share_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="--leave-out: found"):
        read_share(text)
