"""The pipeline against one process: the same measurements, checks and grids, with and without Spark.

The reference is what a good engineer writes first: pandas reads the files, NumPy checks and grids, pyarrow writes.
It calls the same functions for quality control and gridding, so what is compared is the way there. Spark is
measured as a batch (`backfill`) and as a stream fed with micro-batches of a given size, from the start of the
query to the last grid, in a session that has warmed up. Times are wall clock, CPU and memory those of all
processes together: the driver, Java, and Python workers. Each size has processes of its own.
"""

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from sensorgrid.benchmarks import BenchmarkError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.gridding.groups import group_named
from sensorgrid.pipeline.gridding.measurements import Measurements, sensor_number
from sensorgrid.pipeline.gridding.regions import Regions, halos_of
from sensorgrid.pipeline.ingest import inlet
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.plan import Plan
from sensorgrid.pipeline.planning import first_plan, for_all_groups
from sensorgrid.pipeline.schema import MEASUREMENT, MEASUREMENT_ARROW
from sensorgrid.pipeline.settings import PipelineSettings, settings_of
from sensorgrid.pipeline.spark import backfill
from sensorgrid.pipeline.spark.packing import Chunks
from sensorgrid.pipeline.spark.replay import CLOCK, open_arriving
from sensorgrid.pipeline.spark.session import start_session
from sensorgrid.pipeline.spark.stages import write_task

Row = dict[str, Any]
Report = Callable[[str], None]

TICK_S = 600
START_S = 1_760_000_400 // TICK_S * TICK_S
ATTRIBUTE = "air_temperature"
MICRO_BATCH = 40_000
STOP_S = 60.0
"""how long Spark may take to end"""


@dataclass(frozen=True, slots=True)
class PipelineSize:
    """One amount of measurements, and the micro-batches to send it in."""

    sensors: int
    ticks: int
    micro_batches: tuple[int, ...]
    """measurements each"""

    @property
    def measurements(self) -> int:
        """In all."""
        return self.sensors * self.ticks


QUICK = (PipelineSize(5_000, 30, (40_000,)),)
FULL = (
    PipelineSize(5_000, 50, (40_000, 125_000)),
    PipelineSize(10_000, 250, (40_000, 250_000, 1_000_000)),
    PipelineSize(10_000, 1_000, (250_000,)),
)
WARM_UP = PipelineSize(1_000, 20, (10_000,))


def run(sizes: tuple[PipelineSize, ...], seed: int, report: Report) -> list[Row]:
    """All modes at all sizes; rows as the command writes them."""
    _psutil()  # says what is missing before a minute has passed
    rows: list[Row] = []
    folder = Path(tempfile.mkdtemp(prefix="sensorgrid-bench-"))
    try:
        for number, size in enumerate(sizes):
            place = folder / str(number)
            report(f"{size.measurements:,} measurements: writing them")
            _elsewhere(write_measurements, place / "in", size, seed)
            report(f"{size.measurements:,} measurements: one process")
            rows.append(_elsewhere(_reference_row, place, size))
            rows += _told(report, _spark_size, place, size, seed, rows[-1]["seconds"])
            shutil.rmtree(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def _spark_size(report: Report, place: Path, size: PipelineSize, seed: int, reference_s: float) -> list[Row]:
    """One size in a session of its own: Java keeps the memory that it once took, and would show a larger size's."""
    report(f"{size.measurements:,} measurements: starting Spark")
    session = start_session("local[2]", name="bench pipeline", log=place / "spark.log")
    report(f"{size.measurements:,} measurements: warming up")
    _elsewhere(write_measurements, place / "warm" / "in", WARM_UP, seed)
    _spark_rows(session, place / "warm", WARM_UP, 1.0, lambda _: None)
    rows = _spark_rows(session, place, size, reference_s, report)
    session.stop()
    return rows


def _told(report: Report, work: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a fresh process, and pass on what it reports; its first argument is whom to tell."""
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(there, work, *args))
    process.start()
    there.close()
    try:
        while True:
            kind, told = here.recv()
            if kind == "done":
                return told
            if kind == "fault":
                raise BenchmarkError(f"bench pipeline: {told}")
            report(told)
    except EOFError:
        process.join()
        raise BenchmarkError(
            f"bench pipeline: found a process that ended with code {process.exitcode}, expected its rows"
        ) from None
    finally:
        here.close()
        process.join(STOP_S)
        if process.is_alive():
            process.kill()


def _tell(there: Connection, work: Callable[..., Any], *args: Any) -> None:
    try:
        there.send(("done", work(lambda text: there.send(("said", text)), *args)))
    except Exception as error:
        there.send(("fault", f"{type(error).__name__}: {error}"))


def _psutil() -> Any:
    try:
        import psutil
    except ImportError:
        raise BenchmarkError(
            "psutil: found no such package, expected `pip install sensorgrid[bench]`"
        ) from None
    return psutil


def _elsewhere(work: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a fresh process: the memory that it takes must not show in what is measured next."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *args).result()


def _reference_row(place: Path, size: PipelineSize) -> Row:
    with _Watch() as watch:
        counts = reference(place / "in", settings_for(place, "reference"), size)
    return _row("reference", size, watch, watch.seconds) | counts


def _spark_rows(
    session: SparkSession, place: Path, size: PipelineSize, reference_s: float, report: Report
) -> list[Row]:
    rows = []
    settings = settings_for(place, "batch")
    plan = plan_for(settings, size)
    Lake(settings.lake).create().save_plan(plan)
    report(f"{size.measurements:,} measurements: Spark, batch")
    with _Watch() as watch:
        outcome = _batch(session, settings, plan, size)
    rows.append(_row("batch", size, watch, reference_s) | _counts(outcome))
    for micro_batch in size.micro_batches:
        report(f"{size.measurements:,} measurements: Spark, stream of micro-batches of {micro_batch:,}")
        name = f"stream-{micro_batch}"
        settings = settings_for(place, name)
        feed = TimedFiles(place / name / "arriving", size, micro_batch)
        _elsewhere(feed.write, place / "in")
        times: list[float] = []
        with _Watch() as watch:
            outcome = jobs.run(
                session, settings, threading.Event(), feed=feed, plan=plan,
                listen=_timer(times),
            )  # fmt: skip
        extra = {
            "micro_batch": micro_batch,
            "micro_batch_seconds_p50": float(np.median(times)),
            "micro_batch_seconds_p95": float(np.percentile(times, 95)),
        }
        rows.append(_row("stream", size, watch, reference_s) | extra | _counts(outcome))
    return rows


def _timer(times: list[float]) -> jobs.Listener:
    """Notes how long micro-batches with measurements take."""

    def heard(done: jobs.Report) -> None:
        if done.ledger.raw:
            times.append(done.seconds)

    return heard


def _row(mode: str, size: PipelineSize, watch: "_Watch", reference_s: float) -> Row:
    return {
        "mode": mode,
        "measurements": size.measurements,
        "regions": 16,
        "ticks": size.ticks,
        "seconds": round(watch.seconds, 3),
        "per_second": round(size.measurements / watch.seconds),
        "cpu_seconds": round(watch.cpu_s, 3),
        "peak_rss_bytes": watch.peak_bytes,
        "reference_seconds": round(reference_s, 3),
    }


def _counts(outcome: jobs.JobOutcome) -> Row:
    total = outcome.total
    return {
        "used": total.used,
        "flagged": total.flagged,
        "duplicate": total.duplicate,
        "blocks": total.blocks,
        "balanced": total.balanced and not outcome.unbalanced,
    }


# the work


def settings_for(place: Path, name: str) -> PipelineSettings:
    """The same configuration for all modes; each has its own lake."""
    content: dict[str, Any] = {
        "lake": str(place / name / "lake"),
        "grid": {
            "shape": [128, 64], "tick": TICK_S, "resolution_bits": 2, "region_digits": 4, "attributes": [ATTRIBUTE],
        },
        "timing": {"settle": 1, "lateness": TICK_S, "max_age": 2 * TICK_S},
        "gridding": {"kernel": "inverse_distance", "calibrate": False},
        "quality": {"attributes": {ATTRIBUTE: {"flat": 3 * TICK_S}}},
        "spark": {"trigger": 0},
        "sources": [{"kind": "files", "path": str(place / "in"), "mapping": "measurements"}],
    }  # fmt: skip
    (place / name).mkdir(parents=True, exist_ok=True)
    return settings_of(content, "bench", place)


def plan_for(settings: PipelineSettings, size: PipelineSize) -> Plan:
    """One plan for all modes: halos from the sensors' positions, parameters from priors."""
    x, y = _positions(size.sensors)
    grid = settings.grid.grid()
    return first_plan(grid, settings.gridding, START_S // TICK_S, for_all_groups(grid, x, y))


def _positions(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(count)
    return rng.uniform(-180, 180, count), np.degrees(np.arcsin(rng.uniform(-0.99, 0.99, count)))


def write_measurements(folder: Path, size: PipelineSize, seed: int) -> None:
    """Parquet files of a few ticks each: noise, 2 % faults, 1 % repeats, some impossible values."""
    folder.mkdir(parents=True)
    x, y = _positions(size.sensors)
    names = pa.array([f"B{n:06d}" for n in range(size.sensors)])
    rng = np.random.default_rng(seed)
    per_file = max(1, MICRO_BATCH // size.sensors)
    for first in range(0, size.ticks, per_file):
        parts = [_tick(x, y, names, tick, rng) for tick in range(first, min(first + per_file, size.ticks))]
        pq.write_table(pa.concat_tables(parts), folder / f"{first:06d}.parquet")


def _tick(x: Any, y: Any, names: pa.Array, tick: int, rng: np.random.Generator) -> pa.Table:
    count = len(x)
    time_us = ((START_S + tick * TICK_S) * 1_000_000 + rng.integers(0, TICK_S * 1_000_000, count)).astype(
        np.int64
    )
    value = 288 - 25 * np.sin(np.radians(y)) ** 2 + 4 * np.sin(np.radians(x * 3) + tick / 20)
    value = value + rng.normal(0, 0.7, count)
    faulty = rng.random(count)
    value = np.where(faulty < 0.01, value + 40, np.where(faulty < 0.02, 9999.0, value))
    repeated = rng.random(count) < 0.01
    which = np.where(repeated, np.roll(np.arange(count), 1), np.arange(count))
    table = pa.table(
        {
            "sensor": names,
            "attribute": pa.array([ATTRIBUTE] * count),
            "longitude": x,
            "latitude": y,
            "event_time": pa.array(time_us).cast(pa.timestamp("us", tz="UTC")),
            "value": value,
            "unit": pa.array(["K"] * count),
        }
    )
    return table.take(pa.array(which))


def _batch(
    session: SparkSession, settings: PipelineSettings, plan: Plan, size: PipelineSize
) -> jobs.JobOutcome:
    job = jobs.job_of(settings, "fill")
    flagged = inlet.flagged(session, settings, job.grid, streaming=False)
    first = START_S // TICK_S
    outcome = jobs.JobOutcome()
    jobs.write_backfill(flagged, job, plan, backfill.Span(first, first + size.ticks - 1), outcome)
    return outcome


def reference(folder: Path, settings: PipelineSettings, size: PipelineSize) -> Row:
    """The same in one process: pandas reads, NumPy checks and grids, pyarrow writes."""
    job, plan = jobs.job_of(settings, "fill"), plan_for(settings, size)
    job.lake.create().save_plan(plan)
    grid, known = job.grid, KNOWN[ATTRIBUTE]
    chunks = backfill.chunks_for(job, plan)
    first = START_S // TICK_S
    span = backfill.Span(first, first + size.ticks - 1)
    frame = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))], ignore_index=True)
    good = frame["value"].between(*known.gross) & frame["value"].between(*known.usual)
    good &= frame["longitude"].between(-180, 180) & frame["latitude"].between(-90, 90)
    good &= frame["event_time"] <= pd.Timestamp.now("UTC")
    flagged, frame = int((~good).sum()), frame[good]
    codes, names = pd.factorize(frame["sensor"])
    rows = Measurements(
        np.array([sensor_number(name) for name in names], np.uint64)[codes],
        frame["event_time"].dt.tz_localize(None).to_numpy("datetime64[us]").astype(np.int64),
        frame["longitude"].to_numpy(),
        frame["latitude"].to_numpy(),
        frame["value"].to_numpy(),
        np.zeros(len(frame), np.uint8),
        np.ones(len(frame), np.uint8),
    )
    del frame, codes
    blocks = written = duplicate = moved = 0
    for region, chunk, part in _groups(rows, grid, plan, chunks, span):
        made = list(
            backfill.grid_chunk([part], group_named(ATTRIBUTE).name, region, chunk, job, plan, chunks, span)
        )
        payloads = [payload for kind, payload in made if kind == "block"]
        batch = pa.record_batch([["block"] * len(payloads), payloads], names=["kind", "payload"])
        list(write_task(iter([batch]), job, written, region))
        blocks, written = blocks + len(payloads), written + 1
        duplicate += sum(_counted(p, "duplicate") for k, p in made if k == "ledger")
        moved += sum(_counted(p, "moved") for k, p in made if k == "ledger")
    used = len(rows) - duplicate - moved
    return {
        "used": used,
        "flagged": flagged + moved,
        "duplicate": duplicate,
        "blocks": blocks,
        "balanced": True,
    }


def _counted(payload: bytes, name: str) -> int:
    return int(json.loads(payload)[name])


def _groups(
    rows: Measurements, grid: Grid, plan: Plan, chunks: Chunks, span: backfill.Span
) -> Iterator[tuple[int, int, Measurements]]:
    """Measurements of each region and chunk, halo and context included; regions without any, too."""
    regions = Regions(grid)
    tick_us = TICK_S * 1_000_000
    for chunk in range(span.first // chunks.ticks, span.last // chunks.ticks + 1):
        low, high = chunk * chunks.ticks * tick_us, (chunk + 1) * chunks.ticks * tick_us
        part = rows.take((rows.time_us >= low - chunks.context_us) & (rows.time_us < high))
        index, region = halos_of(grid, plan.halo(ATTRIBUTE, span.first).width_m).spread(part.x, part.y)
        own = part.time_us >= low
        home = ((regions.of(part.x, part.y)[index] == region) & own[index]).astype(np.uint8)
        order = np.argsort(region, kind="stable")
        edges = np.searchsorted(region[order], np.arange(len(regions) + 1))
        for number in range(len(regions)):
            at = order[edges[number] : edges[number + 1]]
            yield number, chunk, part.take(index[at]).with_home(home[at])


@dataclass
class TimedFiles:
    """One file per micro-batch, its time in its last row, as `sensorgrid.pipeline.jobs.TimedRows`."""

    folder: Path
    size: PipelineSize
    micro_batch: int
    start_us: int = field(init=False, default=START_S * 1_000_000)

    def write(self, source: Path) -> None:
        """Cut the measurements into micro-batches."""
        self.folder.mkdir(parents=True)
        per_file = max(1, self.micro_batch // self.size.sensors)
        table = pq.read_table(source)
        tick = table["event_time"].cast(pa.int64()).to_numpy() // (TICK_S * 1_000_000) - START_S // TICK_S
        empty = MEASUREMENT.fieldNames()
        for number, first in enumerate(range(0, self.size.ticks + 3, per_file)):
            part = table.filter(pa.array((tick >= first) & (tick < first + per_file)))
            now_us = (START_S + (first + per_file) * TICK_S + 2) * 1_000_000
            beat = dict.fromkeys(part.column_names) | {"attribute": CLOCK, "event_time": now_us}
            part = pa.concat_tables([part, pa.Table.from_pylist([beat], schema=part.schema)])
            for name in set(empty) - set(part.column_names):
                part = part.append_column(name, pa.nulls(len(part), MEASUREMENT_ARROW.field(name).type))
            path = self.folder / f"{number:06d}.parquet"
            pq.write_table(part, path)
            os.utime(path, (number, number))  # files are read in this order

    def open(
        self, session: SparkSession, settings: PipelineSettings, grid: Grid
    ) -> tuple[DataFrame, DataFrame]:
        """Streams of flagged measurements, and of times."""
        return open_arriving(session, settings, grid, f"file://{self.folder}", maxFilesPerTrigger=1)

    def turn(self, newest: datetime | None) -> bool:
        """Done when the last tick has been published."""
        return newest is not None and newest.timestamp() >= START_S + (self.size.ticks - 1) * TICK_S


class _Watch:
    """Seconds, CPU seconds and peak memory of this process and all below it, as long as the block runs."""

    def __init__(self) -> None:
        self.seconds = self.cpu_s = 0.0
        self.peak_bytes = 0
        self._used: dict[int, float] = {}
        self._stop = threading.Event()

    def __enter__(self) -> "_Watch":
        self._before = self._look()
        self._used = {}
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._begin = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._begin
        self._stop.set()
        self._thread.join()
        self._used |= self._look()
        self.cpu_s = sum(used - self._before.get(pid, 0.0) for pid, used in self._used.items())

    def _work(self) -> None:
        while not self._stop.wait(0.1):
            self._used |= self._look()

    def _look(self) -> dict[int, float]:
        psutil = _psutil()
        me = psutil.Process()
        used, memory = {}, 0
        for process in [me, *me.children(recursive=True)]:
            try:
                if process.name() == "java" and process.parent() != me and process.ppid() in used:
                    continue  # Java about to start a tool: a moment in which its memory shows twice
                times = process.cpu_times()
                used[process.pid] = times.user + times.system
                memory += process.memory_info().rss
            except psutil.Error:
                continue
        self.peak_bytes = max(self.peak_bytes, memory)
        return used
