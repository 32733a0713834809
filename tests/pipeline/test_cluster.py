"""The same job on a standalone master with two workers, and through Spark Connect, on loopback."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
import pytest

from gateways import Network, network
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import read_settings
from sensorgrid.pipeline.sources.synthetic_earth import Earth
from sensorgrid.pipeline.spark.java import java_home
from servers import Process, free_port, running, wait_for

PROGRAM = Path(__file__).parent / "cluster_program.py"
SPARK_HOME = Path(pyspark.__file__).parent
START_S = 1_700_000_100 // 300 * 300
GRID = Grid(shape=(64, 32), tick=4.0, resolution_bits=1, region_digits=2, attributes=("air_temperature",))
CONFIG = """
[grid]
shape = [64, 32]
tick = 300
resolution_bits = 1
region_digits = 2
attributes = ["air_temperature"]
[timing]
settle = 30
lateness = 600
max_age = 900
[gridding]
calibrate = false
halo = 3e6
[spark]
trigger = 0
[[sources]]
kind = "files"
path = "reports"
mapping = "measurements"
"""


def spark_process(
    name: str, *arguments: str, folder: Path, port: int | None = None
) -> AbstractContextManager[Process]:
    """A process of Spark, from when on it listens, if it is given a port."""
    environment = os.environ | {
        "JAVA_HOME": str(java_home()), "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder), "SPARK_LOG_DIR": str(folder),
    }  # fmt: skip
    command = (str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments)
    return running(*command, log=folder / f"{name}.log", port=port, env=environment, cwd=folder)


def workers_alive(web_port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/json/", timeout=2) as answer:
            return int(json.load(answer)["aliveworkers"])
    except OSError:
        return 0


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone cluster with two workers of one core each."""
    folder, port, web = tmp_path_factory.mktemp("cluster"), free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        place = ("--host", "127.0.0.1")
        ports = ("--port", str(port), "--webui-port", str(web))
        stack.enter_context(spark_process("master.Master", *place, *ports, folder=folder, port=web))
        for _ in range(2):
            size = ("--cores", "1", "--memory", "900m", "--webui-port", "0")
            stack.enter_context(spark_process("worker.Worker", *place, *size, url, folder=folder))
        wait_for(lambda: workers_alive(web) == 2, "two workers")
        yield url


@pytest.fixture(scope="module")
def connect(master: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Connect server whose Spark is that cluster."""
    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    conf = {
        "spark.connect.grpc.binding.port": str(port), "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
        "spark.executor.memory": "700m", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder), "spark.sql.artifact.isolation.enabled": "true",
    }  # fmt: skip
    options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    command = ("--master", master, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer")
    with spark_process("SparkSubmit", *command, *options, "spark-internal", folder=folder, port=port):
        yield f"sc://127.0.0.1:{port}"


def run_job(folder: Path, master: str, urls: tuple[str, ...] = ()) -> dict[str, Any]:
    config = folder / "grid.toml"
    config.write_text(CONFIG)
    (folder / "reports").mkdir()
    earth = Earth(seed=3, station_count=150, tick_s=300.0, lateness_s=600.0, attributes=("air_temperature",))
    for step in range(4):
        table = earth.reports(START_S + step * 300, START_S + (step + 1) * 300)
        pq.write_table(table, folder / "reports" / f"{step}.parquet")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(config), master, *urls],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return result


def counts(result: dict[str, Any]) -> list[tuple[int, bool, list[int]]]:
    """Of backfill and replay: raw rows, whether they add up, and batches in which they do not."""
    found = (result["filled"], result["streamed"])
    return [(job["raw"], job["balanced"], job["unbalanced"]) for job in found]


def sent(folder: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in (folder / "reports").glob("*.parquet"))


def grids(folder: Path) -> tuple[pa.Table, pa.Table]:
    """What backfill and replay have published, up to the last tick of the backfill."""
    lake = read_settings(folder / "grid.toml").lake
    columns = ["attribute", "tick", "region", "values", "error"]
    filled, streamed = (Lake(root).tiles(columns=columns) for root in (f"{lake}.filled", f"{lake}.replay"))
    return filled, streamed.filter(pc.less_equal(streamed["tick"], pc.max(filled["tick"])))


@pytest.fixture
def brokers() -> Iterator[Network]:
    """One that takes grids, and one that is away."""
    with network(GRID, 2) as found:
        found.brokers[1].stop()
        yield found


def check_live(result: dict[str, Any], brokers: Network) -> None:
    """Tasks on executors reached the gateway that is there; what the other one missed is on the driver's list."""
    live = result["live"]
    assert live["unbalanced"] == []
    assert live["blocks"] == live["acknowledged"] + live["handed"] >= 12
    assert live["acknowledged"] == live["handed"] == len(brokers.names()) == len(set(brokers.names()))
    assert {name[2] for name in brokers.names()} == {"00", "10"}


@pytest.mark.long
def test_a_standalone_cluster_runs_the_job_with_the_code_that_was_sent_to_it(
    tmp_path: Path, master: str, brokers: Network
) -> None:
    result = run_job(tmp_path, master, brokers.urls)

    assert all(".zip" in file for file in result["code"]), result["code"]
    assert counts(result) == [(sent(tmp_path), True, [])] * 2
    filled, streamed = grids(tmp_path)
    assert len(filled) > 0
    assert streamed.equals(filled)
    check_live(result, brokers)


@pytest.mark.long
def test_spark_connect_runs_the_job(tmp_path: Path, connect: str, brokers: Network) -> None:
    result = run_job(tmp_path, connect, brokers.urls)

    assert counts(result) == [(sent(tmp_path), True, [])] * 2
    filled, streamed = grids(tmp_path)
    assert len(filled) > 0
    assert streamed.equals(filled)
    check_live(result, brokers)
