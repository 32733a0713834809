"""What a lake needs now and then: parameters fitted again, small files joined, old ones removed.

A running stream does it between its batches (`Housekeeping`), people do it by command (`tidy`).
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline import planning
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import MqttSource, PipelineSettings
from sensorgrid.pipeline.sources.landing_files import expire_landing
from sensorgrid.pipeline.spark.stages import Job


class Housekeeping:
    """What a running stream does now and then."""

    def __init__(self, settings: PipelineSettings, job: Job, say: Callable[[str], None]) -> None:
        self._settings, self._job, self._say = settings, job, say
        self._tidied = time.monotonic()
        self._fitted: int | None = None
        self._seen: datetime | None = None

    def turn(self, last: datetime | None) -> None:
        """Do what is due; `last` is the newest tick that was published."""
        if time.monotonic() - self._tidied >= self._settings.retention.compact_every:
            self._tidied = time.monotonic()
            try:
                tidy(self._settings)
            except (OSError, SensorGridError) as error:  # the grids go on, whatever is wrong with old files
                self._say(f"housekeeping: {error}")
        elif last is not None and last != self._seen:
            self._seen = last
            self._fit(self._job.grid.tick_at(last))

    def _fit(self, newest: int) -> None:
        gridding, plan = self._settings.gridding, self._job.plan()
        every = max(1, round(gridding.calibrate_every / self._job.grid.tick))
        # Soon after the start, then after twice the time, until the usual time has come: few data make poor fits.
        due = plan.start_tick + 3
        if self._fitted is not None:
            due = self._fitted + min(every, max(3, self._fitted - plan.start_tick))
        if newest < due:
            return
        self._fitted = newest
        # Rows may be ahead by what clocks are allowed; a minute is for the fit and for whoever writes it down.
        ahead_s = 60 + self._job.timing.settle_s + self._settings.quality.future
        fresh = planning.refreshed(plan, self._job.lake, gridding, newest, ahead_s)
        if fresh != plan:
            self._job.lake.save_plan(fresh)
            for note in dict.fromkeys(n for n in fresh.notes() if n not in plan.notes()):
                self._say(note)


def tidy(settings: PipelineSettings) -> dict[str, int]:
    """Join small files and remove what the configuration does not keep; says how many files went."""
    lake, kept = Lake(settings.lake).check(), settings.retention
    gone = {"joined": lake.compact(), "half_written": lake.sweep()}
    for kind, keep_s in (("tiles", kept.tiles), ("letters", kept.letters)):
        if keep_s is not None:
            gone[kind] = lake.expire((datetime.now(UTC) - timedelta(seconds=keep_s)).date(), (kind,))
    if kept.landing is not None:
        folders = [Path(s.landing) for s in settings.sources if isinstance(s, MqttSource) and s.landing]
        read_s = lake.written_s() - 3600  # what came before has been read: the stream has gone on since
        gone["landing"] = sum(
            expire_landing(folder, kept.landing, processed_before_s=read_s)
            for folder in folders
            if folder.is_dir()
        )
    return gone
