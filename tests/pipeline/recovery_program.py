"""A driver that can be told to die: after a batch is written and published, and before Spark commits it."""

import os
import signal
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame

from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.delivery.waiting import WaitingFolder
from sensorgrid.pipeline.lake.folder import STREAM
from sensorgrid.pipeline.settings import read_settings
from sensorgrid.pipeline.spark import stream
from sensorgrid.pipeline.spark.session import start_session

PATIENCE_S = 900.0
"""for anything: only a broken pipeline reaches it"""


def main(config: str, blocks: int, die_after: int) -> None:
    """Run until so many grids are written and none waits for its gateway.

    With `die_after` > 0, kill the whole process group in that many batches' report.
    """
    settings, stop = read_settings(config), threading.Event()
    waiting = WaitingFolder(settings.waiting_of(), STREAM)
    session = start_session("local[2]", log=Path(config).with_suffix(".log"), driver_memory="1g")
    write, seen = stream.BatchWriter.__call__, 0

    def write_and_die(writer: stream.BatchWriter, outputs: DataFrame, batch: int) -> None:
        nonlocal seen
        write(writer, outputs, batch)
        seen += 1
        print(f"batch {batch}", flush=True)
        if seen == die_after:
            os.killpg(0, signal.SIGKILL)

    stream.BatchWriter.__call__ = write_and_die  # type: ignore[method-assign]

    def listen(report: jobs.Report) -> None:
        if report.total.blocks >= blocks and not waiting.behind():
            stop.set()

    outcome = jobs.run(session, settings, stop, seconds=PATIENCE_S, listen=listen)
    print("unbalanced", outcome.unbalanced, flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
