"""The first records of each source, parsed and checked as a run would do it: what becomes of them, before a run.

Records are fetched here, in this process: from the first files of a folder, from landed messages, or from a server
within a bounded time. Then they go through the very stages of a run. Nothing is written, no session at a server is
touched, nothing is acknowledged.
"""

import glob
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.ingest.inlet import check, name_of, stations_for
from sensorgrid.pipeline.ingest.parsing import canonical, parse
from sensorgrid.pipeline.ingest.reasons import HINTS, top_kinds
from sensorgrid.pipeline.schema import RECORD_ARROW
from sensorgrid.pipeline.settings import (
    AnySource,
    FileSource,
    KafkaSource,
    MqttSource,
    NatsSource,
    PipelineSettings,
    SyntheticSource,
)
from sensorgrid.pipeline.sources.declaration import Mapping
from sensorgrid.pipeline.sources.files import measurements_of, records_of
from sensorgrid.pipeline.sources.landing_files import landing_files
from sensorgrid.pipeline.sources.mapping import read_mapping
from sensorgrid.pipeline.sources.stations import learn, locate

RECORDS = 100
"""so many records are looked at"""
PATIENCE_S = 5.0
"""so long is waited for messages"""


@dataclass(slots=True)
class Sampled:
    """What became of the first records of a source."""

    source: str
    origin: str = ""
    """where they came from"""
    nothing: str = ""
    """why there is none, if there is none"""
    records: int = 0
    measurements: dict[str, tuple[int, int]] = field(default_factory=dict)
    """for each attribute: how many, and how many of them are good"""
    tests: dict[str, int] = field(default_factory=dict)
    """refused ones, by test"""
    reasons: list[tuple[str, int]] = field(default_factory=list)
    """their most frequent reasons"""
    sensors: int = 0
    unplaced: list[str] = field(default_factory=list)
    """sensors without a position"""
    elevated: int = 0
    """sensors of which the elevation is known"""

    @property
    def good(self) -> int:
        """Measurements that a run would use, as far as single rows tell."""
        return sum(good for _, good in self.measurements.values())


def sample(
    session: SparkSession | None,
    settings: PipelineSettings,
    source: AnySource,
    grid: Grid,
    number: int = RECORDS,
    patience_s: float = PATIENCE_S,
) -> Sampled:
    """Parse and check the first records of a source; without a session, say only why there are none."""
    name = name_of(source)
    if isinstance(source, SyntheticSource):
        return Sampled(name, nothing="the synthetic earth has no records to parse")
    if isinstance(source, KafkaSource):
        return Sampled(name, nothing="records of Kafka are not looked at")
    mapping = read_mapping(source.mapping)
    origin, found = _fetch(source, mapping, number, patience_s)
    if found is None or not len(found):
        return Sampled(name, origin, nothing=origin)
    stations = stations_for(source, mapping)
    assert session is not None, "records need Spark"
    frame = session.createDataFrame(found)
    if mapping.format == "measurements":
        rows = frame if stations is None else locate(frame, stations)
    else:
        rows = parse(frame, mapping, stations)
    if isinstance(source, FileSource) and source.learn_stations:
        rows = locate(rows, learn(rows, mapping.aliases))
    flagged = check(canonical(rows), settings, grid).toArrow()
    return summed_up(Sampled(name, origin, records=len(found)), flagged)


def summed_up(sampled: Sampled, flagged: pa.Table) -> Sampled:
    """Count what became of flagged rows."""
    good = pc.equal(flagged["flag"], 1).to_pylist()
    attributes = flagged["attribute"].to_pylist()
    every, used = (
        Counter(attributes),
        Counter(a for a, is_good in zip(attributes, good, strict=True) if is_good),
    )
    sampled.measurements = {name: (every[name], used[name]) for name in sorted(n for n in every if n)}
    tests = [test for test in flagged["test"].to_pylist() if test]
    sampled.tests = dict(Counter(tests).most_common())
    said = zip(flagged["reason"].to_pylist(), flagged["test"].to_pylist(), strict=True)
    counted = Counter(
        reason or f"{test}: {HINTS.get(test, '')}" for reason, test in said if test and test in _TOLD
    )
    sampled.reasons = top_kinds(counted.items())
    columns = [
        flagged[name].to_pylist() for name in ("sensor", "longitude", "latitude", "elevation", "reason")
    ]
    placed: dict[str, tuple[bool, bool]] = {}
    for sensor, x, y, z, reason in zip(*columns, strict=True):
        if sensor is not None and reason is None:
            before = placed.get(sensor, (False, False))
            placed[sensor] = (before[0] or None not in (x, y), before[1] or z is not None)
    sampled.sensors = len(placed)
    sampled.unplaced = sorted(sensor for sensor, (somewhere, _) in placed.items() if not somewhere)
    sampled.elevated = sum(high for _, high in placed.values())
    return sampled


_TOLD = {"dead_letter", "time", "future", "position", "outside", "range"}


def _fetch(source: Any, mapping: Mapping, number: int, patience_s: float) -> tuple[str, pa.Table | None]:
    """Where records came from, and the records; or why there is none."""
    if isinstance(source, FileSource):
        return _of_files(source, mapping, number)
    if isinstance(source, MqttSource):
        return _of_mqtt(source, number, patience_s)
    assert isinstance(source, NatsSource)
    return _of_nats(source, number, patience_s)


def _of_files(source: FileSource, mapping: Mapping, number: int) -> tuple[str, pa.Table | None]:
    if "://" in source.path:
        return f"{source.path}: files of other file systems are not looked at", None
    batches: list[pa.RecordBatch] = []
    first = ""
    for path in _paths(source.path):
        first = first or Path(path).name
        name = name_of(source)
        rows = (
            measurements_of(path, name)
            if mapping.format == "measurements"
            else records_of(path, mapping, name)
        )
        for batch in rows:
            batches.append(batch.slice(0, number - sum(map(len, batches))))
            if sum(map(len, batches)) >= number:
                break
        if sum(map(len, batches)) >= number:
            break
    if not batches:
        return f"nothing at {source.path} yet", None
    return first, pa.Table.from_batches(batches)


def _paths(path: str) -> Iterator[str]:
    """Files in the order of their names, as Spark would find them: hidden ones are left out."""
    for place in sorted(glob.glob(path)):
        if os.path.isfile(place):
            yield place
            continue
        for folder, folders, names in os.walk(place):
            folders[:] = sorted(f for f in folders if f[0] not in "._")
            yield from (os.path.join(folder, name) for name in sorted(names) if name[0] not in "._")


def _of_mqtt(source: MqttSource, number: int, patience_s: float) -> tuple[str, pa.Table | None]:
    from sensorgrid.pipeline.sources.landing import LandingError, listen
    from sensorgrid.pipeline.sources.landing_files import rows_of_lines
    from sensorgrid.pipeline.sources.receiving import landing_settings

    folder = Path(source.landing or "landing")
    rows: list[tuple[str | None, str | None, str | None]] = []
    for path in reversed(landing_files(folder) if folder.is_dir() else []):
        rows += rows_of_lines(path.read_bytes().splitlines()[: number - len(rows)])
        if len(rows) >= number:
            break
    origin = f"messages landed in {folder}"
    if not rows:
        try:
            heard = listen(landing_settings(source), number, patience_s)
        except (OSError, LandingError) as error:
            return f"nothing landed yet, and {source.host}:{source.port} cannot be asked: {error}", None
        if not heard:
            return f"no message within {patience_s:g} s from {source.host}:{source.port}", None
        rows, origin = rows_of_lines(heard), f"messages from {source.host}:{source.port}"
    name = name_of(source)
    columns = zip(*[(name, topic, text, reason) for topic, text, reason in rows], strict=True)
    return origin, pa.table([pa.array(c, pa.string()) for c in columns], schema=RECORD_ARROW)


def _of_nats(source: NatsSource, number: int, patience_s: float) -> tuple[str, pa.Table | None]:
    from sensorgrid.pipeline.sources.nats import NatsSettings, NatsSourceError, first_messages

    options: dict[str, str] = {"timeout": f"{patience_s:g}"} | source.options
    options |= {"servers": source.servers, "stream": source.stream, "source": name_of(source)}
    if source.subject:
        options["subject"] = source.subject
    try:
        found = first_messages(NatsSettings.of(options), number)
    except (OSError, NatsSourceError) as error:
        return f"{source.servers} cannot be asked: {error}", None
    if not len(found):
        return f"stream {source.stream} is empty", None
    return f"stream {source.stream}", found
