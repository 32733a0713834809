"""A program: a live stream without a sensor, whose micro-batches hold beats of the clock and nothing else.

`bench pipeline` runs it in a process of its own, with the code of this checkout and with that of another one on
Python's path. So it uses nothing but what checkouts of the pipeline have in common since commit 2533b99. It prints
one line of JSON: how many micro-batches were counted, and what one of them cost (median of seconds, mean of CPU
seconds).
"""

import json
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

TICK_S = 2
"""a beat, and so a micro-batch, each second"""
WARM_UP = 8
"""micro-batches that are not counted: Java is still compiling"""


def main(counted: int, limit_s: float) -> dict[str, Any]:
    """The cost of some micro-batches of an empty stream; fewer, if they take too long."""
    from sensorgrid.pipeline import jobs
    from sensorgrid.pipeline.settings import settings_of
    from sensorgrid.pipeline.spark.session import start_session

    place = Path(tempfile.mkdtemp(prefix="sensorgrid-empty-"))
    (place / "in").mkdir()
    content: dict[str, Any] = {
        "lake": str(place / "lake"),
        "grid": {
            "shape": [128, 64], "tick": TICK_S, "resolution_bits": 2, "region_digits": 4,
            "attributes": ["air_temperature"],
        },
        "timing": {"settle": 0.2, "lateness": 2 * TICK_S, "max_age": 4 * TICK_S},
        "gridding": {"kernel": "inverse_distance", "calibrate": False},
        "spark": {"trigger": 0},
        "sources": [{"kind": "files", "path": str(place / "in"), "mapping": "measurements"}],
    }  # fmt: skip
    session = start_session("local[2]", name="empty", log=place / "spark.log")
    stop, times, used = threading.Event(), {}, {}

    def watch() -> None:
        while not stop.wait(0.1):
            for query in session.streams.active:
                for done in query.recentProgress:
                    spent = done["durationMs"]
                    if "addBatch" in spent and done["batchId"] not in times:
                        times[done["batchId"]] = spent["triggerExecution"] / 1000
                        used[len(times)] = _cpu_s()
            if len(times) >= WARM_UP + counted:
                stop.set()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        jobs.run(session, settings_of(content, "bench", place), stop, seconds=limit_s)
    finally:
        stop.set()
        watcher.join()
        session.stop()
        shutil.rmtree(place, ignore_errors=True)
    late = [times[number] for number in sorted(times)][WARM_UP:]
    if len(late) < 2:
        raise SystemExit(
            f"empty stream: found {len(times)} micro-batches in {limit_s:g} s, expected {counted}"
        )
    cpu_s = (used[WARM_UP + len(late)] - used[WARM_UP]) / len(late)
    return {
        "micro_batches": len(late),
        "seconds_p50": round(median(late), 4),
        "cpu_seconds": round(cpu_s, 4),
    }


def _cpu_s() -> float:
    """Processor time of this process and all below it so far."""
    import psutil

    me, used = psutil.Process(), 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
            used += times.user + times.system
        except psutil.Error:
            continue
    return used


if __name__ == "__main__":
    begin = time.monotonic()
    found = main(int(sys.argv[1]), float(sys.argv[2]))
    print(json.dumps(found | {"took_s": round(time.monotonic() - begin, 1)}))
