"""Many cases over the cores of this machine, or over a Spark cluster.

A case is a small value, a row a small dictionary, and each run is a pure function of its case; so where it is run
makes no difference to the result.
"""

import gc
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from sensorgrid.runtime.supervisor import die_with_parent

Row = dict[str, Any]


class Case(Protocol):
    """A dataclass of plain values that knows how to be played."""

    def play(self) -> Row:
        """One row; called in a process of its own, perhaps on another machine."""


def sweep(cases: Sequence[Any], spark: str | None, done: Callable[[int, Any, Row], None]) -> list[Row]:
    """Play all cases, which are of one class; `done` hears of each as it ends."""
    rows = []
    for case, row in _on_spark(cases, spark) if spark else _on_cores(cases):
        rows.append(row)
        done(len(rows), case, row)
    return rows


def _on_cores(cases: Sequence[Any]) -> Iterator[tuple[Any, Row]]:
    workers = min(os.cpu_count() or 1, len(cases))
    # Not forked: a fork would copy whatever threads the caller runs in a state nobody knows.
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
    )
    processes, ended = pool._processes, SimpleQueue[tuple[Any, Row] | BaseException | None]()

    def work() -> None:
        """All that locks: a signal is raised in the main thread, and would leave a lock behind that is never freed."""
        try:
            waiting = {pool.submit(_play, case): case for case in cases}
            for future in as_completed(waiting):
                ended.put((waiting[future], future.result()))
            ended.put(None)
        except BaseException as error:
            ended.put(error)

    worker = Thread(target=work, daemon=True)
    worker.start()
    try:
        while (found := ended.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
        pool.shutdown()
    except BaseException:  # Ctrl-C among them: a run under way is not waited for
        pool.shutdown(wait=False, cancel_futures=True)
        while worker.is_alive():
            for process in list(processes.values()):
                process.terminate()
            worker.join(0.1)
        raise


def _begin(parent: int) -> None:
    """Ctrl-C is for the process that people see; it ends the others, and if it is killed, they end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)


def _play(case: Case) -> Row:
    gc.set_threshold(
        200_000, 20, 100
    )  # a world is a large heap that lives to the end: looking through it is in vain
    return case.play()


def _on_spark(cases: Sequence[Any], master: str) -> Iterator[tuple[Any, Row]]:
    from sensorgrid.pipeline.spark.session import start_session

    kind = type(cases[0])
    session = start_session(master, name="sensorgrid experiment")
    try:
        tasks = [(number, json.dumps(asdict(case))) for number, case in enumerate(cases)]
        texts = session.createDataFrame(tasks, "number int, task string").repartition(len(cases))

        def play(batches: Iterator[Any]) -> Iterator[Any]:
            """Runs in a Python worker of an executor, once per partition."""
            import pyarrow

            for batch in batches:
                rows = [
                    json.dumps(kind(**json.loads(task)).play()) for task in batch.column("task").to_pylist()
                ]
                yield pyarrow.RecordBatch.from_arrays(
                    [batch.column("number"), pyarrow.array(rows)], ["number", "row"]
                )

        for found in texts.mapInArrow(play, "number int, row string").toLocalIterator():
            yield cases[found["number"]], json.loads(found["row"])
    finally:
        session.stop()
