"""A driver that can be told to die: after a batch is written and published, and before Spark commits it."""

import os
import signal
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame

from sensorgrid.pipeline import jobs, stream
from sensorgrid.pipeline.session import start_session
from sensorgrid.pipeline.settings import read_settings


def main(config: str, seconds: float, die_after: int) -> None:
    """Run for some seconds; with `die_after` > 0, kill the whole process group in that many batches' report."""
    settings = read_settings(config)
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
    outcome = jobs.run(session, settings, threading.Event(), seconds=seconds)
    print("unbalanced", outcome.unbalanced, flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
