"""The same job on a standalone master with two workers, and through Spark Connect, on loopback."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from sensorgrid.pipeline.java import java_home
from sensorgrid.pipeline.lake import Lake
from sensorgrid.pipeline.settings import read_settings
from sensorgrid.pipeline.sources.synthetic_earth import Earth

PROGRAM = Path(__file__).parent / "cluster_program.py"
SPARK_HOME = Path(pyspark.__file__).parent
START_S = 1_700_000_100 // 300 * 300
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


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(*command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Spark, ended by its id."""
    environment = os.environ | {
        "JAVA_HOME": str(java_home()), "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(log.parent), "SPARK_LOG_DIR": str(log.parent),
    }  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *command], env=environment, stdout=out, stderr=out,
            cwd=log.parent,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until(check: Any, what: str, deadline_s: float = 90) -> None:
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        try:
            if check():
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {deadline_s} s")


def listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def workers_alive(web_port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/json/", timeout=2) as answer:
        return int(json.load(answer)["aliveworkers"])


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone cluster with two workers of one core each."""
    folder, port, web = tmp_path_factory.mktemp("cluster"), free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        place = ("--host", "127.0.0.1")
        stack.enter_context(
            running(
                "org.apache.spark.deploy.master.Master", *place, "--port", str(port), "--webui-port", str(web),
                log=folder / "master.log",
            )
        )  # fmt: skip
        wait_until(lambda: listens(web), "the master")
        for number in range(2):
            stack.enter_context(
                running(
                    "org.apache.spark.deploy.worker.Worker", *place, "--cores", "1", "--memory", "900m",
                    "--webui-port", "0", url, log=folder / f"worker{number}.log",
                )
            )  # fmt: skip
        wait_until(lambda: workers_alive(web) == 2, "two workers")
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
    with running(
        "org.apache.spark.deploy.SparkSubmit", "--master", master, "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer", *options, "spark-internal",
        log=folder / "connect.log",
    ):  # fmt: skip
        wait_until(lambda: listens(port), "the Connect server")
        yield f"sc://127.0.0.1:{port}"


def run_job(folder: Path, master: str) -> dict[str, Any]:
    config = folder / "grid.toml"
    config.write_text(CONFIG)
    (folder / "reports").mkdir()
    earth = Earth(seed=3, station_count=150, tick_s=300.0, lateness_s=600.0, attributes=("air_temperature",))
    for step in range(4):
        table = earth.reports(START_S + step * 300, START_S + (step + 1) * 300)
        pq.write_table(table, folder / "reports" / f"{step}.parquet")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(config), master],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return result


def check(folder: Path, result: dict[str, Any]) -> None:
    raw = sum(pq.read_metadata(path).num_rows for path in (folder / "reports").glob("*.parquet"))
    for job in ("filled", "streamed"):
        assert result[job]["raw"] == raw
        assert result[job]["balanced"]
        assert result[job]["unbalanced"] == []
    lake = read_settings(folder / "grid.toml").lake
    columns = ["attribute", "tick", "region", "values", "error"]
    filled, streamed = (Lake(root).tiles(columns=columns) for root in (f"{lake}.filled", f"{lake}.replay"))
    last = max(filled["tick"].to_pylist())
    assert streamed.filter(streamed["tick"].to_numpy() <= last).equals(filled)


def test_a_standalone_cluster_runs_the_job_with_the_code_that_was_sent_to_it(
    tmp_path: Path, master: str
) -> None:
    result = run_job(tmp_path, master)

    assert all(".zip" in file for file in result["code"]), result["code"]
    check(tmp_path, result)


def test_spark_connect_runs_the_job(tmp_path: Path, connect: str) -> None:
    result = run_job(tmp_path, connect)

    check(tmp_path, result)
