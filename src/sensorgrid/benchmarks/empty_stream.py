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
    stop = threading.Event()
    queries: list[Any] = []
    used: list[float] = []

    def heard(_: object) -> None:
        # Spark's own times are read at the end: looking them up costs as much as a micro-batch.
        queries[:] = queries or session.streams.active
        used.append(_cpu_s() if len(used) in (WARM_UP, WARM_UP + counted) else 0.0)
        if len(used) > WARM_UP + counted:
            stop.set()

    try:
        jobs.run(session, settings_of(content, "bench", place), stop, seconds=limit_s, listen=heard)
        spent = [done["durationMs"] for query in queries for done in query.recentProgress]
    finally:
        session.stop()
        shutil.rmtree(place, ignore_errors=True)
    late = [one["triggerExecution"] / 1000 for one in spent if "addBatch" in one][WARM_UP:][:counted]
    if len(late) < counted or not stop.is_set():
        raise SystemExit(
            f"empty stream: found {len(used)} micro-batches in {limit_s:g} s, expected {counted}"
        )
    return {
        "micro_batches": len(late),
        "seconds_p50": round(median(late), 4),
        "cpu_seconds": round((used[WARM_UP + counted] - used[WARM_UP]) / counted, 4),
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
