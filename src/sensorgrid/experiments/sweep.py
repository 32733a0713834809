"""Many cases over the cores of this machine, or over a Spark cluster.

A case is a small value, a row a small dictionary, and each run is a pure function of its case; so where it is run
makes no difference to the result.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context

from sensorgrid.experiments.multires import Case, Row, play


def sweep(cases: Sequence[Case], spark: str | None, done: Callable[[int, Case], None]) -> list[Row]:
    """Play all cases; `done` hears of each as it ends."""
    rows = []
    for case, row in _on_spark(cases, spark) if spark else _on_cores(cases):
        rows.append(row)
        done(len(rows), case)
    return rows


def _on_cores(cases: Sequence[Case]) -> Iterator[tuple[Case, Row]]:
    workers = min(os.cpu_count() or 1, len(cases))
    # Not forked: a fork would copy whatever threads the caller runs in a state nobody knows.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(play, case): case for case in cases}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _on_spark(cases: Sequence[Case], master: str) -> Iterator[tuple[Case, Row]]:
    from sensorgrid.pipeline.session import start_session

    session = start_session(master, name="sensorgrid experiment")
    try:
        texts = session.createDataFrame([(json.dumps(asdict(case)),) for case in cases], "task string")
        rows = texts.repartition(len(cases)).mapInArrow(_play_arrow, "task string, row string")
        for found in rows.toLocalIterator():
            yield Case(**json.loads(found["task"])), json.loads(found["row"])
    finally:
        session.stop()


def _play_arrow(batches: Iterator[object]) -> Iterator[object]:
    """Runs in a Python worker of an executor, once per partition."""
    import pyarrow

    for batch in batches:
        tasks = batch.column("task").to_pylist()  # type: ignore[attr-defined]
        rows = [json.dumps(play(Case(**json.loads(task)))) for task in tasks]
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array(tasks), pyarrow.array(rows)], ["task", "row"])
