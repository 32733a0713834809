"""A driver for a cluster: backfill and replay on a given master, and where the executors found our code."""

import json
import sys
import threading
from typing import Any

from pyspark.sql import functions as F

from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.settings import PipelineSettings, TimingSettings, read_settings
from sensorgrid.pipeline.spark.session import start_session


def where(_: object) -> str:
    """Where a task finds our code."""
    import sensorgrid.pipeline.gridding.book as book

    return str(book.__file__)


def run_live(session: Any, settings: PipelineSettings, urls: list[str]) -> jobs.JobOutcome:
    """By the wall clock and with gateways, until a few ticks are published and nothing waits any more."""
    changes = {
        "lake": settings.lake + ".live",
        "grid": settings.grid.model_copy(update={"tick": 4.0}),
        "timing": TimingSettings(settle=1, lateness=8, max_age=40),
        "sink": settings.sink.model_copy(update={"kind": "gateway", "urls": tuple(urls)}),
    }
    settings, stop = settings.model_copy(update=changes), threading.Event()

    def listen(report: jobs.Report) -> None:
        if report.total.blocks >= 12:
            stop.set()

    return jobs.run(session, settings, stop, seconds=900, listen=listen)


def main(config: str, master: str, urls: list[str]) -> None:
    """Print the outcome of all jobs as JSON."""
    settings = read_settings(config)
    conf = {"spark.executor.memory": "700m", "spark.executor.cores": "1", "spark.sql.shuffle.partitions": "2"}
    session = start_session(master, conf=conf, driver_memory="1g")
    found = session.range(4).select(F.udf(where)("id").alias("file")).distinct().collect()
    filled = jobs.backfill(session, settings.model_copy(update={"lake": settings.lake + ".filled"}))
    streamed = jobs.replay(session, settings, threading.Event(), speed=float("inf"))
    live = run_live(session, settings, urls) if urls else None
    result = {
        "code": [row.file for row in found],
        "filled": filled.total.to_dict() | {"unbalanced": filled.unbalanced},
        "streamed": streamed.total.to_dict() | {"unbalanced": streamed.unbalanced},
        "live": live.total.to_dict() | {"unbalanced": live.unbalanced} if live else None,
    }
    print("RESULT " + json.dumps(result), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
