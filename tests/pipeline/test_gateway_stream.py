"""The whole way from Spark to gateways that come and go, and a pipeline that is killed between lake and answer."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gateways import ANSWERS, REFUSES, SILENT, Network, network
from lakes import check_grids, check_ledgers
from sensorgrid.cli.pipeline_views import gateway_facts
from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.delivery.waiting import WaitingFolder
from sensorgrid.pipeline.lake.folder import STREAM, Lake
from sensorgrid.pipeline.settings import PipelineSettings, read_settings
from servers import wait_for

ENDLESS = 1_000_000
"""more grids than any run makes"""
PROGRAM = Path(__file__).parent / "recovery_program.py"
CONFIG = """
[grid]
shape = [64, 32]
tick = 3
resolution_bits = 1
region_digits = 2
attributes = ["air_temperature", "eastward_wind", "northward_wind"]
[timing]
settle = 0.5
lateness = 6
max_age = 18
[gridding]
kernel = "inverse_distance"
calibrate = false
[spark]
trigger = 0.2
[sink]
kind = "gateway"
urls = {urls}
patience = 1
[[sources]]
kind = "synthetic"
[sources.options]
stations = 100
tick = 3
lateness = 6
attributes = "air_temperature,wind_speed,wind_from_direction"
"""


def configure(folder: Path, brokers: Network) -> Path:
    config = folder / "grid.toml"
    config.write_text(CONFIG.format(urls=json.dumps(brokers.urls)))
    return config


def grid_of(folder: Path) -> Any:
    config = folder / "first.toml"
    config.write_text(CONFIG.format(urls='["ws://127.0.0.1:1"]'))
    return read_settings(config).grid.grid()


def facts_of(settings: PipelineSettings) -> dict[str, Any]:
    counts = WaitingFolder(settings.waiting_of(), STREAM).counts()
    return gateway_facts(Lake(settings.lake).totals(), counts)


def in_lake(settings: PipelineSettings) -> list[tuple[str, int, str, int]]:
    columns = ["attribute", "tick", "region", "revision"]
    rows = Lake(settings.lake).tiles(columns=columns, latest=False).to_pylist()
    return [(r["attribute"], r["tick"], r["region"], r["revision"]) for r in rows]


def check_all_arrived(settings: PipelineSettings, brokers: Network) -> None:
    """Each grid of the lake is with its gateway, once, with its error; the counts say so."""
    expected = Counter(in_lake(settings))
    assert set(expected.values()) == {1}
    assert Counter(brokers.names()) == expected
    assert Counter(brokers.names(error=True)) == expected
    facts = facts_of(settings)
    assert facts["balanced"], facts
    assert (facts["waiting"], facts["refused"]) == (0, 0)
    assert facts["handed_out"] == facts["acknowledged"] == len(expected)


def first_ticks(brokers: Network, region: str) -> list[int]:
    """Ticks of a region in the order in which their first revision came."""
    wanted = ("air_temperature", region, 0)
    return [tick for name, tick, where, rev in brokers.names() if (name, where, rev) == wanted]


def test_a_gateway_that_falls_silent_and_dies_holds_up_nobody_and_misses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    with network(grid_of(tmp_path), 2) as brokers:
        settings = read_settings(configure(tmp_path, brokers))
        ill = brokers.brokers[1]
        stop, said = threading.Event(), list[str]()
        run: list[jobs.JobOutcome] = []

        def work() -> None:
            run.append(jobs.run(spark, settings, stop, seconds=900, say=said.append))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            wait_for(lambda: len(set(first_ticks(brokers, "01"))) >= 1, "a tick at the second broker")
            ill.mood = SILENT
            wait_for(lambda: ill.ignored > 0, "blocks that are not answered")
            begin = len(first_ticks(brokers, "00"))
            wait_for(lambda: len(first_ticks(brokers, "00")) >= begin + 2, "the first broker to go on")
            ill.stop()
            begin = len(first_ticks(brokers, "00"))
            wait_for(lambda: len(first_ticks(brokers, "00")) >= begin + 2, "the first broker to go on")
            ill.mood = ANSWERS
            ill.start()
            waiting = WaitingFolder(settings.waiting_of(), STREAM)
            wait_for(lambda: not waiting.behind(), "the courier to have caught up")
            direct = ill.greeted
            begin = len(ill.taken)
            wait_for(lambda: len(ill.taken) > begin + 12, "blocks without the courier")
        finally:
            stop.set()
            thread.join(300)
        bring_the_rest(spark, settings)

        check_all_arrived(settings, brokers)
        assert direct >= 1
        ticks = first_ticks(brokers, "01")
        assert ticks == sorted(ticks), "in tick order, also through the courier"
        assert facts_of(settings)["by_courier"] > 0
        assert any("trying on" in line for line in said)
        assert run[0].total.blocks == run[0].total.acknowledged + run[0].total.handed


def bring_the_rest(spark: SparkSession, settings: PipelineSettings) -> None:
    """What a busy gateway did not take while the pipeline stopped is brought by the courier of the next run."""
    waiting, stop = WaitingFolder(settings.waiting_of(), STREAM), threading.Event()

    def listen(report: jobs.Report) -> None:
        if not waiting.behind():
            stop.set()

    while waiting.behind():
        stop.clear()
        jobs.run(spark, settings, stop, seconds=900, listen=listen)


def program(config: Path, blocks: int, die_after: int = 0, **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(config), str(blocks), str(die_after)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env=os.environ | settings,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=600)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.long
def test_after_kill_9_between_lake_and_answer_every_gateway_gets_everything(tmp_path: Path) -> None:
    with network(grid_of(tmp_path), 2) as brokers:
        config = configure(tmp_path, brokers)
        settings, ill = read_settings(config), brokers.brokers[1]
        waiting = WaitingFolder(settings.waiting_of(), STREAM)
        ill.mood = SILENT

        first = program(
            config, ENDLESS, die_after=3
        )  # dies after the batch is written, before Spark commits it
        finish(first)
        assert first.returncode == -signal.SIGKILL
        second = program(config, ENDLESS)
        wait_for(lambda: len(waiting.names()) >= 6, "more and more to wait")
        os.killpg(second.pid, signal.SIGKILL)  # at any moment
        second.communicate()
        assert waiting.behind() == {"01", "11"}
        assert ill.taken == []
        ill.mood = ANSWERS
        last = program(
            config, 24, SENSORGRID_SINK__PATIENCE="300"
        )  # nothing is left to the next run's courier
        output = finish(last)

        assert last.returncode == 0, output
        assert not waiting.behind(), output
        check_all_arrived(settings, brokers)
        check_grids(settings)
        check_ledgers(settings)


def test_grids_that_a_gateway_refuses_are_letters_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENSORGRID_SINK__PATIENCE", "300")  # all are answered, however busy the machine
    with network(grid_of(tmp_path), 2) as brokers:
        settings = read_settings(configure(tmp_path, brokers))
        brokers.brokers[1].mood = REFUSES
        stop = threading.Event()

        def listen(report: jobs.Report) -> None:
            if report.total.blocks >= 24:
                stop.set()

        outcome = jobs.run(spark, settings, stop, seconds=900, listen=listen)

        total = outcome.total
        assert total.refused == total.acknowledged > 0
        assert total.blocks == total.acknowledged + total.refused
        letters = Lake(settings.lake).letters().to_pylist()
        gateway = [row for row in letters if row["test"] == "gateway"]
        assert len(gateway) == total.refused
        assert {row["reason"] for row in gateway} == {"found an old epoch, expected a newer one"}
        assert facts_of(settings)["balanced"]
