"""From the configuration's sources to one stream, or batch, of flagged measurements."""

from collections import Counter
from dataclasses import replace
from functools import reduce
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.groups import groups_of
from sensorgrid.pipeline.gridding.kernels.interface import Floats
from sensorgrid.pipeline.ingest.parsing import canonical, parse
from sensorgrid.pipeline.ingest.quality import flag
from sensorgrid.pipeline.ingest.reasons import HINTS, top_kinds
from sensorgrid.pipeline.schema import MEASUREMENT
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
from sensorgrid.pipeline.sources.files import read_files
from sensorgrid.pipeline.sources.kafka import KafkaSettings, read_kafka
from sensorgrid.pipeline.sources.landing_files import read_landing
from sensorgrid.pipeline.sources.mapping import read_mapping
from sensorgrid.pipeline.sources.stations import Stations, learn, locate, read_stations, stations_of
from sensorgrid.pipeline.sources.synthetic import FORMAT as SYNTHETIC
from sensorgrid.pipeline.sources.synthetic import SyntheticDataSource, SyntheticSettings


class InletError(SensorGridError, ValueError):
    """Sources that cannot be read."""


def measurements(session: SparkSession, settings: PipelineSettings, *, streaming: bool) -> DataFrame:
    """All sources of a configuration together, in canonical units."""
    if not settings.sources:
        raise InletError("sources: found none, expected at least one [[sources]] in the configuration")
    parts = [canonical(_open(session, s, streaming)) for s in settings.sources]
    return reduce(DataFrame.unionByName, parts)


def flagged(
    session: SparkSession,
    settings: PipelineSettings,
    grid: Grid,
    *,
    streaming: bool,
    now: Column | None = None,
) -> DataFrame:
    """All sources together, checked row by row."""
    return check(measurements(session, settings, streaming=streaming), settings, grid, now)


def check(rows: DataFrame, settings: PipelineSettings, grid: Grid, now: Column | None = None) -> DataFrame:
    """Measurements with their flags; speed and direction are welcome where wind components are gridded."""
    names = tuple(name for group in groups_of(grid.attributes) for name in group.inputs)
    return flag(rows, replace(grid, attributes=names), settings.limits(), now)


def nothing_good(flagged: DataFrame) -> str:
    """What became of all rows, where none is good: counts by test, and the most frequent reasons."""
    reason: Column = F.col("reason")
    # As far as Spark can: what is left over is taken out by `kind_of`.
    for pattern in ("'[^']*'", r"\d+"):
        reason = F.regexp_replace(reason, pattern, "0")
    refused = flagged.where("flag != 1").groupBy("test", reason.alias("reason"))
    rows = refused.agg(F.count("*").alias("rows"), F.first("reason").alias("example")).collect()
    total = sum(row.rows for row in rows)
    if not total:
        return "found no measurement at all in the sources, expected some, or --from and --until"
    tests: Counter[str] = Counter()
    for row in rows:
        tests[row.test] += row.rows
    counts = ", ".join(f"{number:,} {test}" for test, number in tests.most_common())
    said = [(row.example or f"{row.test}: {HINTS.get(row.test, 'refused')}", row.rows) for row in rows]
    reasons = "".join(f"\n  {number:,} × {kind}" for kind, number in top_kinds(said))
    return (
        f"found no good measurement among {total:,} ({counts}), expected some, or --from and --until{reasons}"
    )


def check_sources(settings: PipelineSettings) -> None:
    """Refuse mappings and station tables that cannot be used, before anything is started."""
    for source in settings.sources:
        if isinstance(source, SyntheticSource):
            continue
        mapping = read_mapping(source.mapping)
        stations = stations_for(source, mapping)
        if mapping.format != "measurements" and mapping.longitude is None and stations is None:
            raise InletError(
                f"source {name_of(source)}: found no position, neither in the mapping {mapping.name} nor in a"
                ' station table, expected [position] in the mapping or stations = "FILE" in the source'
            )


def name_of(source: AnySource) -> str:
    """What a source is called in letters and messages."""
    return source.name or source.kind


def _open(session: SparkSession, source: AnySource, streaming: bool) -> DataFrame:
    if isinstance(source, SyntheticSource):
        session.dataSource.register(SyntheticDataSource)
        reader: Any = session.readStream if streaming else session.read
        return _shaped(reader.format(SYNTHETIC).options(**source.options).load())
    mapping = read_mapping(source.mapping)
    stations = stations_for(source, mapping)
    name = name_of(source)
    if isinstance(source, FileSource):
        read = _files(session, source, mapping, streaming, stations)
        if source.learn_stations and not streaming:
            # Positions and aliases come from the feed itself: one more pass, then everything is joined.
            return locate(read, learn(read, mapping.aliases))
        return read
    if isinstance(source, MqttSource):
        landing = source.landing or "landing"
        Path(landing).mkdir(parents=True, exist_ok=True)
        records = read_landing(
            session, landing, source=name, streaming=streaming, max_files_per_trigger=source.max_files
        )
        return parse(records, mapping, stations)
    if isinstance(source, NatsSource):
        if not streaming:
            raise InletError(
                f"source {name}: found NATS in a backfill, expected files; NATS needs `pipeline run`"
            )
        from sensorgrid.pipeline.sources.nats import NatsDataSource

        session.dataSource.register(NatsDataSource)
        # All that waits is read at once: the clock goes on with the first micro-batch after an outage.
        options = {
            "servers": source.servers,
            "stream": source.stream,
            "source": name,
            "max_messages": "10000000",
        }
        options |= source.options
        if source.subject:
            options["subject"] = source.subject
        return parse(
            session.readStream.format(NatsDataSource.name()).options(**options).load(), mapping, stations
        )
    assert isinstance(source, KafkaSource)
    kafka: Any = {"servers": source.servers, "topics": source.topics} | source.options
    unknown = sorted(set(kafka) - set(KafkaSettings.__dataclass_fields__))
    if unknown:
        known = ", ".join(sorted(set(KafkaSettings.__dataclass_fields__) - {"servers", "topics"}))
        raise InletError(f"source {name}: options: found {', '.join(unknown)}, expected some of {known}")
    return parse(
        read_kafka(session, KafkaSettings(**kafka), source=name, streaming=streaming), mapping, stations
    )


def _files(
    session: SparkSession, source: FileSource, mapping: Mapping, streaming: bool, stations: Stations | None
) -> DataFrame:
    path = Path(source.path)
    if not streaming and "://" not in source.path and not glob(source.path):
        raise InletError(
            f"source {name_of(source)}: path: found nothing at {source.path}, expected a file, a folder or a pattern"
        )
    if streaming and "://" not in source.path and not set(source.path) & set("*?[{") and not path.suffix:
        path.mkdir(parents=True, exist_ok=True)  # a folder to which files will come
    return read_files(
        session, source.path, mapping, source=name_of(source), streaming=streaming,
        max_files_per_trigger=source.max_files, stations=stations,
    )  # fmt: skip


def stations_for(source: Any, mapping: Mapping) -> Stations | None:
    """The station table of a source: its own, or the mapping's."""
    if source.stations is not None:
        return read_stations(source.stations, mapping.stations, mapping.aliases)
    return stations_of(mapping)


def _shaped(rows: DataFrame) -> DataFrame:
    return rows.select(*MEASUREMENT.fieldNames())


def known_positions(settings: PipelineSettings) -> tuple[Floats, Floats]:
    """Where sensors stand, as far as station tables say so before any has spoken."""
    x: list[float] = []
    y: list[float] = []
    for source in settings.sources:
        if isinstance(source, SyntheticSource):
            earth = SyntheticSettings.of({k: str(v) for k, v in source.options.items()}).earth
            _, lon, lat = earth.stations()
            x, y = [*x, *lon.tolist()], [*y, *lat.tolist()]
            continue
        stations = stations_for(source, read_mapping(source.mapping))
        if stations is not None:
            placed = [s for s in stations.entries if s.longitude is not None and s.latitude is not None]
            x += [float(s.longitude) for s in placed if s.longitude is not None]
            y += [float(s.latitude) for s in placed if s.latitude is not None]
    return np.array(x, np.float64), np.array(y, np.float64)
