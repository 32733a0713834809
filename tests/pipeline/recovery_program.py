"""A driver that can be told to die: after a batch is written and published, and before Spark commits it."""

import os
import signal
import sys
import threading
from pathlib import Path

from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.session import start_session
from sensorgrid.pipeline.settings import read_settings


def main(config: str, seconds: float, die_after: int) -> None:
    """Run for some seconds; with `die_after` > 0, kill the whole process group in that many batches' report."""
    settings = read_settings(config)
    session = start_session("local[2]", log=Path(config).with_suffix(".log"), driver_memory="1g")
    seen = 0

    def listen(report: jobs.Report) -> None:
        nonlocal seen
        seen += 1
        print(f"batch {report.batch} {report.ledger.to_dict()}", flush=True)
        if seen == die_after:
            os.killpg(0, signal.SIGKILL)

    outcome = jobs.run(session, settings, threading.Event(), seconds=seconds, listen=listen)
    print("unbalanced", outcome.unbalanced, flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
