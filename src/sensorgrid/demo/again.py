"""The same raw records once more, as one batch, in a process and a lake of their own: what the demo compares with.

The stream's checkpoint says which records it has read, and its letters which of them it refused because they came
after their tick was closed. The batch gets all the others; nothing that the stream has computed goes into it but
the plan (halos and parameters), which is part of the question and not of the answer.

``python -m sensorgrid.demo.again GRID.TOML LAKE FIRST LAST`` makes the ticks FIRST to LAST.
"""

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.delivery.publish import NoSink
from sensorgrid.pipeline.ingest import inlet
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import PipelineSettings, SyntheticSource, read_settings
from sensorgrid.pipeline.spark.backfill import Span
from sensorgrid.pipeline.spark.session import start_session

_KEY = ("attribute", "longitude", "latitude", "event_time", "value")
"""tells records apart, but for exact repeats, of which any may stand for any other"""


def read_times_ms(checkpoint: str) -> tuple[int, int]:
    """From when to when the stream's synthetic source was read: arrivals in [start, end), from its offsets."""
    folder = Path(checkpoint, "offsets")
    newest = max(int(p.name) for p in folder.iterdir() if p.name.isdigit())
    for line in (folder / str(newest)).read_text().splitlines():
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(found, dict) and "arrival_ms" in found:
            return int(found["start_ms"]), int(found["arrival_ms"])
    raise jobs.JobError(f"checkpoint {checkpoint}: found no offset of the synthetic source, expected one")


def grid_again(session: SparkSession, settings: PipelineSettings, target: str, span: Span) -> jobs.JobOutcome:
    """Grid what the stream has read, as a batch, into the lake `target`."""
    stream_lake = Lake(settings.lake)
    plan = stream_lake.plan()
    assert plan is not None, "the stream has made one"
    batch = settings.model_copy(update={"lake": target, "sources": _ended(settings)})
    job = replace(jobs.job_of(batch, "again"), sink=NoSink(), waiting=None)
    job.lake.create()
    job.lake.save_plan(plan)
    rows = inlet.measurements(session, batch, streaming=False)
    rows = _without(rows, session, stream_lake)
    flagged = inlet.check(rows, batch, job.grid)
    outcome = jobs.JobOutcome()
    jobs.write_backfill(flagged, job, plan, span, outcome)
    return outcome


def _ended(settings: PipelineSettings) -> tuple[SyntheticSource, ...]:
    """The sources as a batch: what arrived while the stream read them."""
    start_ms, end_ms = read_times_ms(settings.checkpoint_of())
    times = {"start": _iso(start_ms), "until": _iso(end_ms)}
    return tuple(
        source.model_copy(update={"options": source.options | times})
        for source in settings.sources
        if isinstance(source, SyntheticSource)
    )


def _iso(time_ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).isoformat()


def _without(rows: DataFrame, session: SparkSession, lake: Lake) -> DataFrame:
    """The records without those that the stream refused as late, each as often as it was refused."""
    letters = lake.letters()
    if not len(letters):
        return rows
    late = letters.filter(pc.equal(letters["test"], "late")).select(list(_KEY))
    if not len(late):
        return rows
    each = Window.partitionBy(*_KEY).orderBy(F.lit(0))
    number = F.row_number().over(each)
    refused = session.createDataFrame(late).withColumn("n", number)
    numbered = rows.withColumn("n", number)
    same = [numbered[c].eqNullSafe(refused[c]) for c in (*_KEY, "n")]
    return numbered.join(refused, same, how="left_anti").drop("n")


def main() -> None:
    """See the module."""
    config, target, first, last = sys.argv[1:]
    settings = read_settings(config)
    log = Path(f"{target.rstrip('/')}.spark.log")
    session = start_session(
        settings.spark.master,
        name="sensorgrid demo, again",
        driver_memory=settings.spark.driver_memory,
        log=log,
    )
    try:
        grid_again(session, settings, target, Span(int(first), int(last)))
    finally:
        session.stop()


if __name__ == "__main__":
    main()
