"""The three jobs: run (as it arrives), backfill (what lies there), replay (the past, as if it arrived).

Wiring only: the logic is in the stages. A job is given a configuration and a session, reports as it goes, and
can be asked to stop.
"""

import fcntl
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline import planning, terrain
from sensorgrid.pipeline.delivery.courier import Courier
from sensorgrid.pipeline.delivery.gateway import GatewaySink
from sensorgrid.pipeline.delivery.publish import NoSink
from sensorgrid.pipeline.delivery.waiting import WaitingFolder, committed_batch
from sensorgrid.pipeline.gridding.groups import groups_of
from sensorgrid.pipeline.ingest import inlet
from sensorgrid.pipeline.lake.folder import Folder, Lake
from sensorgrid.pipeline.lake.housekeeping import Housekeeping
from sensorgrid.pipeline.lake.ledger import Ledger
from sensorgrid.pipeline.plan import Plan, PlanError
from sensorgrid.pipeline.settings import PipelineSettings
from sensorgrid.pipeline.spark import backfill as fill
from sensorgrid.pipeline.spark import stream
from sensorgrid.pipeline.spark.stages import Job, known_sensors, sum_up, unheard, write_outputs, write_reports

CHECKPOINT_FORMAT = 3
"""1: the clock was Spark's `rate` source; 2: the clock came after the other sources"""
STOP_S = 30.0
"""how long a micro-batch may go on when the job is asked to stop"""
COURIER_S = 60.0
"""how long a job that ends by itself waits for gateways"""
STARTS = 3
"""how often the start of a stream is tried: a Python worker has ten seconds to call back, and a busy machine
can miss that"""


class JobError(SensorGridError, RuntimeError):
    """A job that cannot start, or whose counts do not add up."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a job tells while it works."""

    batch: int
    ledger: Ledger
    """of this batch"""
    total: Ledger
    """of all batches since the job started"""
    newest: datetime | None
    """the newest tick that was published, if it is known"""
    seconds: float
    """that the batch took"""


@dataclass(slots=True)
class JobOutcome:
    """What a job has done."""

    total: Ledger = field(default_factory=Ledger)
    batches: int = 0
    unbalanced: list[int] = field(default_factory=list)
    """batches whose counts did not add up; must be empty"""
    notes: list[str] = field(default_factory=list)
    """what people should know: halos, kernels, parameters"""
    seconds: float = 0.0
    first: datetime | None = None
    """the first tick"""
    last: datetime | None = None
    """the last tick"""
    unobserved: dict[str, tuple[int, int]] = field(default_factory=dict)
    """by attribute: ticks that rest on not a single observation, and all ticks"""


Listener = Callable[[Report], None]
Say = Callable[[str], None]


def _quiet(_: Any) -> None:
    pass


def job_of(settings: PipelineSettings, writer: str, lake: Lake | None = None) -> Job:
    """What tasks need to know, from the configuration."""
    grid = settings.grid.grid()
    return Job(
        grid=grid,
        timing=settings.timing_of(grid),
        limits=settings.series_limits(grid),
        lake=lake or Lake(settings.lake),
        sink=settings.sink_of(),
        writer=writer,
        waiting=WaitingFolder(settings.waiting_of(), writer) if settings.entrance_of() else None,
        elevated=settings.gridding.elevation is not None,
        covariates=bool(settings.gridding.covariates),
        gaps={name: settings.gridding.gaps_of(name) for name in grid.attributes},
    )


def _keep_terrain(settings: PipelineSettings, job: Job, say: Say) -> None:
    """Heights of the ground and covariates, from the files that the configuration names to the lake, for tasks."""
    if settings.gridding.elevation is not None:
        say(f"reading heights of the ground from {settings.gridding.elevation}")
        terrain.keep(job.lake, terrain.read_terrain(settings.gridding.elevation, job.grid))
    for name, path in settings.gridding.covariates.items():
        say(f"reading {name} from {path}")
        terrain.keep(job.lake, terrain.read_covariate(path, job.grid, name), terrain.covariate_file(name))


# backfill


def backfill(
    session: SparkSession,
    settings: PipelineSettings,
    *,
    first: datetime | None = None,
    until: datetime | None = None,
    say: Say = _quiet,
) -> JobOutcome:
    """Grid what lies in the sources, all ticks from `first` on and before `until`, or all that have data."""
    begin = time.monotonic()
    job = job_of(settings, f"fill{uuid4().hex[:12]}")
    if isinstance(job.sink, GatewaySink):  # brokers read the past from the lake; the present is the stream's
        job = replace(job, sink=NoSink(), waiting=None)
    grid = job.grid
    say("reading the sources")
    flagged = inlet.flagged(session, settings, grid, streaming=False)
    job.lake.create()
    _keep_terrain(settings, job, say)
    seen = planning.look(flagged, grid)
    if seen is None and (first is None or until is None):
        raise JobError(f"backfill: {inlet.nothing_good(flagged)}")
    span = _span(grid, seen, first, until)
    if job.lake.streamed():
        span = _before_stream(job, span)
    plan = _fitting(job.lake.plan(), settings, grid)
    if plan is None:
        say("fitting halos and parameters")
        rows = (
            planning.sample(flagged, grid, span.first, span.last)
            if seen is not None and settings.gridding.calibrate
            else None
        )
        positions = seen.positions if seen is not None else _known(settings, grid)
        plan = planning.first_plan(grid, settings.gridding, span.first, positions, rows)
    job.lake.save_plan(plan)
    outcome = JobOutcome(notes=plan.notes(), first=grid.time_of(span.first), last=grid.time_of(span.last))
    ticks = span.last - span.first + 1
    say(f"gridding {ticks:,} ticks of {len(grid.attributes)} attributes")
    job = replace(job, resolve=job.lake.has_tiles())
    write_backfill(flagged, job, plan, span, outcome)
    outcome.unobserved = job.lake.unobserved_ticks(span.first, span.last)
    outcome.seconds = time.monotonic() - begin
    return outcome


def write_backfill(flagged: DataFrame, job: Job, plan: Plan, span: fill.Span, outcome: JobOutcome) -> None:
    """Grid and write all ticks of a span: one Spark job."""
    found = write_outputs(fill.grids(flagged, job, plan, span), job, 0)
    ledger, sensors = sum_up(found)
    fresh = unheard(sensors, known_sensors(job.lake))
    if len(fresh):
        job.lake.write("sensors", fresh, (), job.writer, 0, 0)
    write_reports(job.lake, found, job.writer, 0)
    job.lake.write_ledger(job.writer, 0, {"batch": 0} | ledger.to_dict())
    outcome.total, outcome.batches = ledger, 1
    if not ledger.balanced:
        outcome.unbalanced.append(0)


def _span(
    grid: Grid, seen: planning.DataSurvey | None, first: datetime | None, until: datetime | None
) -> fill.Span:
    tick_us = round(grid.tick * 1e6)
    low = grid.tick_from(first) if first is not None else seen.first_us // tick_us if seen else 0
    high = grid.tick_from(until) - 1 if until is not None else seen.last_us // tick_us if seen else 0
    if high < low:
        raise JobError(f"backfill: found no tick from {first} until {until}, expected --from before --until")
    return fill.Span(int(low), int(high))


# run


class TimedRows(Protocol):
    """Rows and a time of their own, instead of the sources and the wall clock."""

    start_us: int
    """the time at which it begins"""

    def open(
        self, session: SparkSession, settings: PipelineSettings, grid: Grid
    ) -> tuple[DataFrame, DataFrame]:
        """Streams of flagged measurements, and of times in microseconds."""
        ...

    def turn(self, newest: datetime | None) -> bool:
        """Called a few times a second with the newest tick published; True when all is done."""
        ...


def run(
    session: SparkSession,
    settings: PipelineSettings,
    stop: threading.Event,
    *,
    seconds: float | None = None,
    feed: TimedRows | None = None,
    listen: Listener = _quiet,
    say: Say = _quiet,
    plan: Plan | None = None,
) -> JobOutcome:
    """Grid what arrives, until asked to stop or for some seconds; a feed brings its own time, and an end."""
    with _only_one(settings.checkpoint_of()):
        return _run(session, settings, stop, seconds, feed, listen, say, plan)


@contextmanager
def _only_one(folder: str) -> Iterator[None]:
    """Refuse a second run over the same checkpoint or list of what waits, on a file system with locks."""
    if "://" in folder:
        yield
        return
    Path(folder).parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JobError(f"{folder}: found another run that uses it, expected none") from None
        yield


def _run(
    session: SparkSession,
    settings: PipelineSettings,
    stop: threading.Event,
    seconds: float | None,
    feed: TimedRows | None,
    listen: Listener,
    say: Say,
    plan: Plan | None,
) -> JobOutcome:
    outcome = JobOutcome()
    now_us = feed.start_us if feed is not None else time.time_ns() // 1000
    job = _prepare(settings, now_us, say, outcome, plan)
    if feed is None:
        flagged = inlet.flagged(session, settings, job.grid, streaming=True)
        now = stream.wall_clock(session, job)
    else:
        flagged, now = feed.open(session, settings, job.grid)
    with _courier(job, settings, say) as courier:
        outcome = _watch(flagged, now, job, settings, stop, seconds, feed, listen, say, outcome, courier)
        if feed is not None and job.waiting is not None:
            outcome.notes += see_off(job.waiting, stop, say)
    if outcome.first is not None and outcome.last is not None:
        first, last = job.grid.tick_at(outcome.first), job.grid.tick_at(outcome.last)
        outcome.unobserved = job.lake.unobserved_ticks(first, last)
    return outcome


def see_off(
    waiting: WaitingFolder, stop: threading.Event, say: Say, patience_s: float = COURIER_S
) -> list[str]:
    """Let the courier bring what gateways have not taken yet, as nobody will later; notes of what they never took."""
    deadline = time.monotonic() + patience_s
    while waiting.names() and time.monotonic() < deadline and not stop.is_set():
        stop.wait(0.2)
    left = waiting.counts().waiting
    if not left:
        return []
    note = f"brokers: found {left:,} grids that none has taken, expected none; do they run? (sensorgrid up)"
    say(note)
    return [note]


@contextmanager
def _courier(job: Job, settings: PipelineSettings, say: Say) -> Iterator[Courier | None]:
    """A courier for what gateways have not acknowledged, in earlier runs and in this one."""
    if not isinstance(job.sink, GatewaySink) or job.waiting is None:
        yield None
        return
    with _only_one(job.waiting.root):
        _forget_uncommitted(job.waiting, settings.checkpoint_of())
        with Courier(job.waiting, job.lake, job.grid, job.sink.entrance, say) as courier:
            yield courier


def _forget_uncommitted(waiting: WaitingFolder, checkpoint: str) -> None:
    """Drop what waits of batches that Spark will try again; refuse a checkpoint that has forgotten its commits."""
    committed = committed_batch(checkpoint)
    later = [name.batch for name in waiting.names() if name.writer == waiting.writer and name.batch > 0]
    if committed < 0 and later:
        raise JobError(
            f"checkpoint {checkpoint}: found no commits, though blocks of its batch {max(later)} wait in"
            f" {waiting.root}; expected its commits/ folder, or a new checkpoint"
        )
    waiting.forget_after(committed)


def _watch(
    flagged: DataFrame,
    now: DataFrame,
    job: Job,
    settings: PipelineSettings,
    stop: threading.Event,
    seconds: float | None,
    feed: TimedRows | None,
    listen: Listener,
    say: Say,
    outcome: JobOutcome,
    courier: Courier | None = None,
) -> JobOutcome:
    """Start the stream and see it to its end."""
    heard = _Ears(job, outcome, listen)
    query = _start(flagged, now, job, settings, say, stop)
    begin = time.monotonic()
    housekeeping = Housekeeping(settings, job, say)
    try:
        while not stop.is_set() and query.isActive:
            heard.turn()
            if courier is not None and courier.fault:
                raise JobError(f"courier: found it dead ({courier.fault}), expected it to run")
            if feed is not None and feed.turn(outcome.last):
                break
            if seconds is not None and time.monotonic() - begin >= seconds:
                break
            housekeeping.turn(outcome.last)
            stop.wait(0.2)
        fault = query.exception()
    finally:
        _end(query, heard)
    heard.turn()
    outcome.seconds = time.monotonic() - begin
    if fault is not None:
        raise JobError(f"stream: {_first_line(fault)}") from fault
    return outcome


def _prepare(
    settings: PipelineSettings, now_us: int, say: Say, outcome: JobOutcome, given: Plan | None
) -> Job:
    """Lake, plan and checkpoint, made or found to fit each other."""
    checkpoint = settings.checkpoint_of()
    identity = _read_checkpoint(checkpoint)
    lake = Lake(settings.lake).create()
    job = job_of(settings, f"stream{identity['id'] if identity else uuid4().hex[:12]}", lake)
    grid, plan = job.grid, _fitting(lake.plan(), settings, job.grid)
    if identity is None:
        start = max(planning.first_tick(grid, job.timing, now_us), lake.newest_tick() + 1)
        plan = plan or given
        if plan is None:
            plan = planning.first_plan(grid, settings.gridding, start, _known(settings, grid))
        plan = replace(plan, start_tick=start)
    elif plan is None:
        raise JobError(
            f"checkpoint {checkpoint}: found one, but no plan in the lake {lake.root}; expected both or neither"
        )
    _keep_terrain(settings, job, say)
    lake.save_plan(plan)  # before the checkpoint, which is nothing without it
    if identity is None:
        text = json.dumps({"format": CHECKPOINT_FORMAT, "id": job.writer.removeprefix("stream")})
        Folder(checkpoint).write_text("sensorgrid.json", text)
    outcome.notes += plan.notes()
    outcome.first = grid.time_of(plan.start_tick)
    for note in plan.notes():
        say(note)
    return job


def _read_checkpoint(root: str) -> dict[str, Any] | None:
    text = Folder(root).read_text("sensorgrid.json")
    if text is None:
        if not Folder(root).is_empty():
            raise JobError(
                f"checkpoint {root}: found files that are not ours, expected an empty or new folder"
            )
        return None
    found: dict[str, Any] = json.loads(text)
    if found.get("format") != CHECKPOINT_FORMAT:
        raise JobError(
            f"checkpoint {root}: found format {found.get('format')}, expected {CHECKPOINT_FORMAT}; start with a new"
            " checkpoint, and fill the gap with `sensorgrid pipeline backfill`"
        )
    return found


def _start(
    flagged: DataFrame,
    now: DataFrame,
    job: Job,
    settings: PipelineSettings,
    say: Say,
    stop: threading.Event,
) -> Any:
    """Start the query; again, if a Python worker did not call back in time."""
    for attempt in range(1, STARTS + 1):
        query = (
            stream.grids(flagged, now, job)
            .writeStream.foreachBatch(stream.BatchWriter(job))
            .option("checkpointLocation", settings.checkpoint_of())
            .trigger(processingTime=f"{settings.trigger_of(job.grid):g} seconds")
            .start()
        )
        deadline = time.monotonic() + 60
        while (
            query.isActive
            and query.lastProgress is None
            and time.monotonic() < deadline
            and not stop.is_set()
        ):
            stop.wait(0.1)
        if query.isActive or attempt == STARTS or not _is_slow_start(query.exception()):
            return query
        say("a Python worker did not start in time; trying again")
    raise AssertionError("the loop returns")


def _is_slow_start(fault: Exception | None) -> bool:
    text = str(fault)
    return "connect back" in text or "Python worker failed" in text or "timed out" in text.lower()


def _end(query: Any, heard: "_Ears") -> None:
    """Stop after the micro-batch that is running, if it does not take too long; cutting one short is safe, too."""
    heard.turn()
    done, deadline = heard.batches, time.monotonic() + STOP_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.02)
        heard.turn()
        if heard.batches > done:
            break
    query.stop()


def _first_line(fault: BaseException) -> str:
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    ours = [line for line in lines if "sensorgrid." in line and "Error" in line]
    return (ours or lines or ["unknown fault"])[-1 if ours else 0]


class _Ears:
    """Hears of finished batches by their ledgers in the lake: that works wherever they were written."""

    def __init__(self, job: Job, outcome: JobOutcome, listen: Listener) -> None:
        self._job, self._outcome, self._listen = job, outcome, listen
        self._next = job.lake.last_batch(job.writer) + 1

    @property
    def batches(self) -> int:
        """How many batches there have been, from the very beginning."""
        return self._next

    def turn(self) -> None:
        """Take in what is new."""
        outcome = self._outcome
        while (counts := self._job.lake.ledger(self._job.writer, self._next)) is not None:
            ledger = Ledger.from_dict(counts)
            outcome.total.merge(ledger)
            outcome.batches += 1
            if not ledger.balanced:
                outcome.unbalanced.append(self._next)
            if ledger.blocks:
                outcome.last = self._job.grid.time_of(outcome.total.newest)
            self._listen(Report(self._next, ledger, outcome.total, outcome.last, counts["seconds"]))
            self._next += 1


# replay


def replay(
    session: SparkSession,
    settings: PipelineSettings,
    stop: threading.Event,
    *,
    speed: float = 60.0,
    first: datetime | None = None,
    until: datetime | None = None,
    listen: Listener = _quiet,
    say: Say = _quiet,
) -> JobOutcome:
    """Feed what lies in the sources to the stream as if it arrived now, `speed` times as fast as it was.

    The grids go to a lake of their own, beside the configuration's (``lake.replay``), made anew each time.
    """
    from sensorgrid.pipeline.spark.replay import Replayed

    settings = replay_settings(settings)
    grid = settings.grid.grid()
    say("reading the sources")
    rows = inlet.measurements(session, settings, streaming=False)
    flagged = inlet.check(rows, settings, grid)
    seen = planning.look(flagged, grid)
    if seen is None and (first is None or until is None):
        raise JobError(f"replay: {inlet.nothing_good(flagged)}")
    span = _span(grid, seen, first, until)
    plan = None
    if seen is not None:
        sample = (
            planning.sample(flagged, grid, span.first, span.last) if settings.gridding.calibrate else None
        )
        plan = planning.first_plan(grid, settings.gridding, span.first, seen.positions, sample)
    folder = Path(settings.checkpoint_of() + ".arriving")
    for old in (settings.lake, settings.checkpoint_of(), settings.waiting_of(), folder):
        shutil.rmtree(old, ignore_errors=True)
    feed = Replayed(folder, grid, settings.timing_of(grid), span.first, span.last, speed)
    try:
        feed.prepare(rows)
        return run(session, settings, stop, feed=feed, listen=listen, say=say, plan=plan)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(settings.checkpoint_of(), ignore_errors=True)


def replay_settings(settings: PipelineSettings) -> PipelineSettings:
    """The configuration of a replay: the same, with a lake of its own; brokers see it only if the file says so."""
    if "://" in settings.lake:
        raise JobError(f"replay: found the lake {settings.lake}, expected a folder")
    sink = settings.sink if settings.sink.kind else settings.sink.model_copy(update={"kind": "none"})
    lake = settings.lake.rstrip("/") + ".replay"
    return settings.model_copy(update={"lake": lake, "checkpoint": None, "sink": sink})


def _fitting(plan: Plan | None, settings: PipelineSettings, grid: Grid) -> Plan | None:
    """The lake's plan if it is for this grid; attributes may be added, and keep their history."""
    if plan is None or plan.grid == grid:
        return plan
    before, now = ({k: v for k, v in asdict(g).items() if k != "attributes"} for g in (plan.grid, grid))
    if before != now:
        other = {k: v for k, v in before.items() if v != now[k]}
        raise PlanError(
            f"lake {settings.lake}: found a plan for another grid ({other}), expected"
            f" { ({k: now[k] for k in other}) }; another grid needs another lake"
        )
    known = {e.group for e in plan.recipes}
    plan = replace(plan, grid=grid)
    fresh = planning.first_plan(grid, settings.gridding, plan.start_tick, _known(settings, grid))
    for group in groups_of(grid.attributes):
        if group.name not in known:
            (entry,) = (e for e in fresh.recipes if e.group == group.name)
            plan = plan.with_recipe(entry).with_halos(*fresh.halos_of(group.name))
    return plan


def _known(settings: PipelineSettings, grid: Grid) -> planning.Positions:
    return planning.for_all_groups(grid, *inlet.known_positions(settings))


def _before_stream(job: Job, span: fill.Span) -> fill.Span:
    """Only ticks that the lake's stream has closed, or never had: it alone publishes the others."""
    late = -(-round(job.timing.lateness_s * 1e6) // round(job.grid.tick * 1e6))
    last = job.lake.newest_tick() - late - 1
    if last < span.first:
        raise JobError(
            f"backfill: found ticks from {job.grid.time_of(span.first).isoformat()} on, expected some before"
            f" {job.grid.time_of(last).isoformat()}: later ones are still the stream's"
        )
    return fill.Span(span.first, min(span.last, last))
