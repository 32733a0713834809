"""The synthetic earth as a Spark source: `spark.read.format("sensorgrid_synthetic")`, or `readStream`.

Rows are `MEASUREMENT`. An offset is a time of arrival in milliseconds of the earth's own clock, and what
arrives between two offsets is a pure function of the options, so a batch that Spark replays is the same, to
the last bit on the same kind of processor. The offset also carries the moment at which the query first
started. A query that was down for an hour thus finds an hour of reports waiting, as it would with a broker,
in batches of at most about `limit` rows.

Options (texts, as all options of Spark are):

========== =========================================================================================
seed        whole number; another seed, another world (1)
stations    how many stations (1000)
attributes  CF standard names with commas between (all that the earth knows)
tick        seconds between two reports of a station (600)
start       ISO 8601 time with a zone, or ``now`` (now): the earth's clock when the query first starts
until       ISO 8601 time or ``now``: where to stop; a batch needs it, a stream runs on without
speed       seconds of the earth's clock per real second (1), or ``max``: no clock, full batches at once
limit       rows of a micro-batch, about (500000)
partitions  parallel readers; each has its share of the stations (2)
lateness    seconds of lateness that the pipeline allows (3600)
delay       seconds that a prompt report is on its way at most (20)
late        a factor on the rates of reports that come late or too late (1)
copies      a factor on the rates of reports that come twice, up to 90 seconds later (1)
spread      part of a tick over which reports lie; 1 is all of it (a fifth, in whole seconds)
pace        seconds of weather per second of the earth's clock (1)
shift       seconds, whole ticks, by which everything happens later (0): the same world at any time of day
faults      a factor on the usual rates of faults (1); 0 is a perfect world
noise       a factor on the errors of measurement (1)
sea         part of the stations that are ships and buoys (0.1)
========== =========================================================================================

Spark gives a Python worker ten seconds to start and call back. On a machine under load the start of a query
can fail over that; nothing has been read by then, and whoever starts queries should simply start it again.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, inf, isfinite
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.schema import MEASUREMENT
from sensorgrid.pipeline.sources.synthetic_earth import Earth, Rates
from sensorgrid.pipeline.sources.synthetic_weather import ATTRIBUTES

FORMAT = "sensorgrid_synthetic"
BATCH_ROWS = 50_000
"""Rows of an Arrow batch, about."""


class SyntheticOptionError(SensorGridError, ValueError):
    """An option of the synthetic source that cannot be right."""


@dataclass(frozen=True, slots=True)
class SyntheticSettings:
    """The source's options, read and checked. Made on the driver; pickled to the workers."""

    earth: Earth
    """the world to report from"""
    start_ms: int | None
    """where its clock starts; None is the moment of the first start"""
    until_ms: int | None
    """where it stops; None is never"""
    until_now: bool
    """whether it stops at the moment of the start instead"""
    speed: float
    """seconds of its clock per real second; infinite for no clock"""
    limit_rows: int
    """rows of a micro-batch, about"""
    partitions: int
    """parallel readers"""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SyntheticSettings":
        """Read the options of a source; unknown ones are left to others (Spark adds some of its own)."""
        given = {key.lower(): text for key, text in options.items()}
        names = tuple(
            n.strip() for n in given.get("attributes", ",".join(ATTRIBUTES)).split(",") if n.strip()
        )
        factor = _number(given, "faults", 1, 0)
        rates = Rates(**{rate.name: min(0.5, factor * getattr(Rates(), rate.name)) for rate in fields(Rates)})
        late = _number(given, "late", 1, 0)
        rates = replace(rates, late=min(0.5, late * rates.late), too_late=min(0.5, late * rates.too_late))
        copies = _number(given, "copies", 1, 0)
        rates = replace(
            rates,
            duplicate=min(0.5, copies * rates.duplicate),
            conflict=min(0.5, copies * rates.conflict),
        )
        until = given.get("until")
        speed = inf if given.get("speed") == "max" else _number(given, "speed", 1, 1e-9)
        return cls(
            earth=Earth(
                seed=_whole(given, "seed", 1, -(2**62)),
                station_count=_whole(given, "stations", 1000, 1),
                attributes=names,
                tick_s=_number(given, "tick", 600, 1e-3),
                lateness_s=_number(given, "lateness", 3600, 0),
                noise=_number(given, "noise", 1, 0),
                delay_s=_number(given, "delay", 20, 0),
                spread=_number(given, "spread", 0, 0) if "spread" in given else None,
                pace=_number(given, "pace", 1, 0),
                shift_s=_number(given, "shift", 0, -inf),
                sea=_number(given, "sea", 0.1, 0),
                rates=rates,
            ),
            start_ms=None if given.get("start", "now") == "now" else _time_ms("start", given["start"]),
            until_ms=None if until in (None, "now") else _time_ms("until", str(until)),
            until_now=until == "now",
            speed=speed,
            limit_rows=_whole(given, "limit", 500_000, 1),
            partitions=_whole(given, "partitions", 2, 1),
        )

    def shares(self, start_ms: int, end_ms: int) -> list["ReportPartition"]:
        """Cut a slice of time into the parts of parallel readers: by stations, so that all are alike."""
        if start_ms >= end_ms:
            return []
        count = self.earth.station_count
        parts = min(self.partitions, count)
        borders = [count * i // parts for i in range(parts + 1)]
        return [ReportPartition(start_ms, end_ms, a, b) for a, b in pairwise(borders)]


class ReportPartition(InputPartition):
    """What one task reads: the reports of some stations that arrive in [start, end). Pickled to a worker."""

    def __init__(self, start_ms: int, end_ms: int, first: int, last: int) -> None:
        self.start_ms, self.end_ms, self.first, self.last = start_ms, end_ms, first, last

    def read(self, earth: Earth) -> Iterator[pa.RecordBatch]:
        """The rows in Arrow batches of bounded size, in the order of arrival."""
        rate = earth.rows_per_second * (self.last - self.first) / earth.station_count
        step_ms = max(1, int(1000 * BATCH_ROWS / rate))
        for at_ms in range(self.start_ms, self.end_ms, step_ms):
            end_ms = min(at_ms + step_ms, self.end_ms)
            table = earth.reports(at_ms / 1000, end_ms / 1000, (self.first, self.last))
            yield from table.combine_chunks().to_batches()


class SyntheticDataSource(DataSource):
    """The source that `spark.dataSource.register` takes. Spark makes one per query, on the driver."""

    @classmethod
    def name(cls) -> str:
        """What `format` is called with."""
        return FORMAT

    def schema(self) -> StructType:
        """`MEASUREMENT`, whatever the options."""
        return MEASUREMENT

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`; called once per query, on the driver."""
        return SyntheticReader(SyntheticSettings.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`; called on the driver, and once more in each worker."""
        return SyntheticStreamReader(SyntheticSettings.of(self.options))


class SyntheticReader(DataSourceReader):
    """Reads what arrives in [start, until). `partitions` runs once, on the driver; `read` in the workers."""

    def __init__(self, settings: SyntheticSettings) -> None:
        self._settings = settings

    def partitions(self) -> list[ReportPartition]:
        """One share per parallel reader."""
        settings, now_ms = self._settings, _now_ms()
        start_ms = now_ms if settings.start_ms is None else settings.start_ms
        until_ms = now_ms if settings.until_now else settings.until_ms
        if until_ms is None or until_ms <= start_ms:
            found = "no time" if until_ms is None else f"{_iso(until_ms)} with start {_iso(start_ms)}"
            raise SyntheticOptionError(
                f"until: found {found}, expected a time after start: a batch has an end"
            )
        return settings.shares(start_ms, until_ms)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one share."""
        assert isinstance(partition, ReportPartition)
        return partition.read(self._settings.earth)


class SyntheticStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Delivers by arrival, along a clock that the offsets carry.

    Offsets are planned in one Python process on the driver, for each micro-batch; `read` runs in the workers,
    on a copy. The only state is the moment at which a query with `availableNow` began, for the driver alone.
    """

    def __init__(self, settings: SyntheticSettings) -> None:
        self._settings = settings
        self._stop_real_ms: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The beginning, called for a query without a checkpoint."""
        now_ms = _now_ms()
        start_ms = now_ms if self._settings.start_ms is None else self._settings.start_ms
        until_ms = now_ms if self._settings.until_now else self._settings.until_ms
        offset = {"arrival_ms": start_ms, "start_ms": start_ms, "began_ms": now_ms}
        # An end at "now" is the first start's now, for ever: the offset remembers it.
        return offset if until_ms is None else offset | {"until_ms": until_ms}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The bound that the option `limit` asks for."""
        return ReadMaxRows(self._settings.limit_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop the clock: what arrives from here on belongs to the next run."""
        self._stop_real_ms = _now_ms()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """How far the clock has come since, or how far a batch may go."""
        speed, until_ms = self._settings.speed, start.get("until_ms")
        if isfinite(speed):
            real_ms = (self._stop_real_ms or _now_ms()) - start["began_ms"]
            end_ms = start["start_ms"] + int(real_ms * speed)
        elif until_ms is None and (self._stop_real_ms or isinstance(limit, ReadAllAvailable)):
            raise SyntheticOptionError(
                "until: found no time, expected one: all of an endless stream at top speed"
            )
        else:
            end_ms = 2**62
        if isinstance(limit, ReadMaxRows):
            step_ms = ceil(1000 * limit.max_rows / self._settings.earth.rows_per_second)
            end_ms = min(end_ms, start["arrival_ms"] + step_ms)
        if until_ms is not None:
            end_ms = min(end_ms, until_ms)
        return start | {"arrival_ms": max(end_ms, start["arrival_ms"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[ReportPartition]:
        """One share per parallel reader."""
        begin_ms = start["arrival_ms"]
        if begin_ms == start["start_ms"]:
            # Spark asks for the initial offset once to find an end, and again to read: what arrived between is ours.
            begin_ms = end["start_ms"]
        return self._settings.shares(begin_ms, end["arrival_ms"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one share."""
        assert isinstance(partition, ReportPartition)
        return partition.read(self._settings.earth)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def _time_ms(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise SyntheticOptionError(
            f"{name}: found {text!r}, expected 'now' or a time with a zone, such as 2026-07-01T00:00:00Z"
        )
    return round(moment.timestamp() * 1000)


def _number(given: Mapping[str, Any], name: str, default: float, least: float) -> float:
    try:
        number = float(given.get(name, default))
    except ValueError:
        number = -inf
    if not (isfinite(number) and number >= least):
        raise SyntheticOptionError(f"{name}: found {given.get(name)!r}, expected a number >= {least:g}")
    return number


def _whole(given: Mapping[str, Any], name: str, default: int, least: int) -> int:
    try:
        number = int(given.get(name, default))
    except ValueError:
        number = least - 1
    if number < least:
        raise SyntheticOptionError(f"{name}: found {given.get(name)!r}, expected a whole number >= {least}")
    return number
