"""A driver for a cluster: backfill and replay on a given master, and where the executors found our code."""

import json
import sys
import threading

from pyspark.sql import functions as F

from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.session import start_session
from sensorgrid.pipeline.settings import read_settings


def where(_: object) -> str:
    """Where a task finds our code."""
    import sensorgrid.pipeline.gridding.book as book

    return str(book.__file__)


def main(config: str, master: str) -> None:
    """Print the outcome of both jobs as JSON."""
    settings = read_settings(config)
    conf = {"spark.executor.memory": "700m", "spark.executor.cores": "1", "spark.sql.shuffle.partitions": "2"}
    session = start_session(master, conf=conf, driver_memory="1g")
    found = session.range(4).select(F.udf(where)("id").alias("file")).distinct().collect()
    filled = jobs.backfill(session, settings.model_copy(update={"lake": settings.lake + ".filled"}))
    streamed = jobs.replay(session, settings, threading.Event(), speed=float("inf"))
    result = {
        "code": [row.file for row in found],
        "filled": filled.total.to_dict() | {"unbalanced": filled.unbalanced},
        "streamed": streamed.total.to_dict() | {"unbalanced": streamed.unbalanced},
    }
    print("RESULT " + json.dumps(result), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
