"""Gateways as a Spark sink for any DataFrame of grids: `df.writeStream.format("sensorgrid")`, or `df.write`.

Rows are (attribute string, tick long, region string, revision int, values array<float>, error array<float>), as the
lake's tiles have them; further columns are ignored. Register the sink first::

    spark.dataSource.register(SensorgridSink)
    tiles.writeStream.format("sensorgrid").option("url", "ws://localhost:7400").start()

Delivery is at least once, and gateways keep (attribute, tick, region, revision) once. Within a task all gateways are
served at once; a region's rows should be in one partition, where they are sent in the order of ticks. `sensorgrid
pipeline` does not come this way: its tasks have the same gateways (`delivery.gateway`) and the lake.

Options (texts, as all options of Spark are):

=========== ==========================================================================================
url          of one or more brokers, with commas between; one that answers tells who owns what
ca_file      certificates to trust, for wss
patience     seconds that a task waits for answers before it tries again, or puts the rest into the spool (2)
spool        folder that all executors see: what a gateway has not taken is kept there, the stream goes on, and
             the next rows of the region bring it along; without it, the task tries on
timeout      seconds after which a task without a spool fails, so that Spark tries the batch again (600)
refused      folder for what a gateway will never take, with the reason; without it, such a batch fails
=========== ==========================================================================================
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.delivery.gateway import BlockLike, Entrance, gateways_at
from sensorgrid.pipeline.delivery.publish import Delivery
from sensorgrid.pipeline.lake.tiles import Identity

FORMAT = "sensorgrid"
COLUMNS = ("attribute", "tick", "region", "revision", "values", "error")
TOGETHER = 256
"""blocks in memory at once, and of a region's spool in one go"""
RETRY_S = (0.2, 5.0)
"""shortest and longest pause between two tries"""


class SinkError(SensorGridError, RuntimeError):
    """Options or rows that cannot be right, or gateways that did not take them."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The sink's options, read and checked. Pickled to the workers."""

    entrance: Entrance
    spool: str | None
    timeout_s: float
    refused: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SinkOptions":
        """Read the options; unknown ones are left to others (Spark adds some of its own)."""
        given = {key.lower(): text for key, text in options.items()}
        urls = tuple(url.strip() for url in given.get("url", "").split(",") if url.strip())
        if not urls or not all(url.startswith(("ws://", "wss://")) for url in urls):
            raise SinkError(f"url: found {given.get('url')!r}, expected one such as ws://localhost:7400")
        patience_s, timeout_s = (_seconds(given, n, d) for n, d in (("patience", 2.0), ("timeout", 600.0)))
        entrance = Entrance(urls, given.get("ca_file"), patience_s)
        return cls(entrance, given.get("spool"), timeout_s, given.get("refused"))


def _seconds(given: Mapping[str, str], name: str, usual: float) -> float:
    try:
        found = float(given.get(name, usual))
    except ValueError:
        found = -1.0
    if not found > 0:
        raise SinkError(f"{name}: found {given.get(name)!r}, expected seconds > 0")
    return found


@dataclass(frozen=True, slots=True)
class GridRow:
    """A row; a `BlockLike`."""

    identity: Identity
    values: npt.NDArray[np.float32]
    error: npt.NDArray[np.float32]
    silent_s: float | None = None


class SensorgridSink(DataSource):
    """The sink that `spark.dataSource.register` takes. Spark makes one per query, on the driver."""

    @classmethod
    def name(cls) -> str:
        """What `format` is called with."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For `df.write`; what gateways have cannot be overwritten, and a higher revision replaces it."""
        return SensorgridWriter(_checked(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """For `df.writeStream`."""
        return SensorgridStreamWriter(_checked(self.options, schema))


def _checked(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    missing = [name for name in COLUMNS if name not in schema.fieldNames()]
    if missing:
        raise SinkError(
            f"columns: found {', '.join(schema.fieldNames())}, expected also {', '.join(missing)}"
        )
    return SinkOptions.of(options)


class SensorgridWriter(DataSourceArrowWriter):
    """Pickled to the workers; `write` runs there, once per partition."""

    def __init__(self, settings: SinkOptions) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Hand over the rows of a partition."""
        hand_over(iterator, self._settings)
        return WriterCommitMessage()


class SensorgridStreamWriter(DataSourceStreamArrowWriter):
    """Pickled to the workers; `write` runs there, once per partition and micro-batch."""

    def __init__(self, settings: SinkOptions) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Hand over the rows of a partition."""
        hand_over(iterator, self._settings)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Everything has been acknowledged, or is in the spool."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to take back: the batch comes again, and is taken once."""


def hand_over(batches: Iterable[pa.RecordBatch], settings: SinkOptions) -> None:
    """Hand over rows, a bounded number at once."""
    for some in _together(batches):
        if settings.spool is None:
            refused = _insist(some, settings)
        else:
            refused = _spooled(some, settings, Spool(Path(settings.spool)))
        if refused and settings.refused is None:
            identity, reason = refused[0]
            raise SinkError(
                f"{tuple(identity)} and {len(refused) - 1} more: refused by the gateway: {reason}"
            )
        if refused and settings.refused is not None:
            _keep_refused(refused, Path(settings.refused))


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[list[GridRow]]:
    found: list[GridRow] = []
    for batch in batches:
        columns = [batch.column(batch.schema.get_field_index(name)) for name in COLUMNS]
        for row in zip(*columns, strict=True):
            *identity, values, error = row
            if not all(part.is_valid for part in row):
                raise SinkError(f"row {[part.as_py() for part in identity]}: found null, expected values")
            numbers = [
                np.asarray(v.values.to_numpy(zero_copy_only=False), np.float32) for v in (values, error)
            ]
            found.append(GridRow(Identity(*(part.as_py() for part in identity)), numbers[0], numbers[1]))
            if len(found) >= TOGETHER:
                yield found
                found = []
    if found:
        yield found


def _insist(grids: Sequence[BlockLike], settings: SinkOptions) -> list[tuple[Identity, str]]:
    """Try until everything is acknowledged or refused."""
    gateways, end = gateways_at(settings.entrance), time.monotonic() + settings.timeout_s
    refused: list[tuple[Identity, str]] = []
    pause_s = RETRY_S[0]
    while True:
        found = gateways.publish(grids)
        refused += found.refused
        if not found.waiting:
            return refused
        if time.monotonic() >= end:
            regions = ", ".join(sorted({identity.region for identity in found.waiting}))
            raise SinkError(
                f"regions {regions}: found no answer to {len(found.waiting)} grids, expected one within"
                f" {settings.timeout_s:g} s"
            )
        left = set(found.waiting)
        grids = [grid for grid in grids if grid.identity in left]
        time.sleep(min(pause_s, max(0.0, end - time.monotonic())))
        pause_s = min(2 * pause_s, RETRY_S[1])


def _spooled(grids: Sequence[GridRow], settings: SinkOptions, spool: "Spool") -> list[tuple[Identity, str]]:
    """Try once, with what waits of the same regions; keep what is not taken."""
    old: list[GridRow] = []
    full: set[str] = set()
    for region in sorted({grid.identity.region for grid in grids}):
        its = spool.of(region)
        old += its
        if len(its) >= TOGETHER:
            full.add(region)
    kept = {grid.identity for grid in old}
    fresh = [grid for grid in grids if grid.identity not in kept and grid.identity.region not in full]
    found: Delivery = gateways_at(settings.entrance).publish([*old, *fresh])
    waiting = set(found.waiting)
    for grid in grids:
        if grid.identity not in kept and (grid.identity in waiting or grid.identity.region in full):
            spool.keep(grid)
    for grid in old:
        if grid.identity not in waiting:
            spool.drop(grid.identity)
    return found.refused


def _keep_refused(refused: Sequence[tuple[Identity, str]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{uuid4().hex}"
    rows: list[dict[str, Any]] = [identity._asdict() | {"reason": reason} for identity, reason in refused]
    fresh.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fresh.rename(folder / f"{uuid4().hex}.jsonl")


@dataclass(frozen=True, slots=True)
class Spool:
    """Grids that no gateway has taken yet: a folder per region, a file each, in the order of names."""

    folder: Path

    def of(self, region: str) -> list[GridRow]:
        """The oldest of a region."""
        found = []
        for path in sorted(self.folder.glob(f"{region}/*.npz"))[:TOGETHER]:
            revision = path.name.split("-")[1]
            with np.load(path) as file:
                identity = Identity(str(file["attribute"]), int(file["tick"]), region, int(revision))
                found.append(GridRow(identity, file["values"], file["error"]))
        return found

    def keep(self, grid: GridRow) -> None:
        """Keep one; it appears whole."""
        path = self._path(grid.identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{uuid4().hex}")
        with fresh.open("wb") as out:
            np.savez(
                out,
                values=grid.values,
                error=grid.error,
                attribute=grid.identity.attribute,
                tick=grid.identity.tick,
            )
        fresh.rename(path)

    def drop(self, identity: Identity) -> None:
        """It has been taken, or never will be."""
        self._path(identity).unlink(missing_ok=True)

    def _path(self, identity: Identity) -> Path:
        name = f"{identity.tick:020d}-{identity.revision:06d}-{identity.attribute}.npz"
        return self.folder / identity.region / name
