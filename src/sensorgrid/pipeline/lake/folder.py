"""The lake: the history of the grids as plain Parquet files, written once each however often a batch is tried.

::

    lake/
      lake.json                                         format of the lake
      plan.json                                         halos and recipes (`sensorgrid.pipeline.plan`)
      tiles/attribute=air_temperature/day=2026-03-01/   one row per (attribute, tick, region, revision)
      letters/day=2026-03-01/                           what was refused or could not be read, with the reason
      sensors/                                          names and positions of the sensors that have spoken
      reports/                                          what each has reported (`sensorgrid.pipeline.lake.reports`)
      ledger/                                           counts of each batch; they add up

A file's name says which batch and which task wrote it, so a batch that is tried again after a crash replaces its
own files and no others. Files appear whole: they are written under a name that readers ignore (a leading dot)
and then renamed. pandas, DuckDB and Spark read `tiles` as a partitioned data set, without our code.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.lake import reports
from sensorgrid.pipeline.lake.ledger import Ledger
from sensorgrid.pipeline.lake.tiles import Identity
from sensorgrid.pipeline.plan import Plan, plan_from_json

FORMAT = 1
NEIGHBOURS = ("roster", "operators")
"""folders that brokers keep beside the history, and may make before there is a lake"""
STREAM = "stream"
"""files whose writer begins like this belong to batches that may be tried again"""
_MARK = ".parquet"
_ALIKE = ["region", "kernel", "gaps", "transform", "number_of_observations.list.element"]
"""columns of tiles whose values are few"""
Floats = npt.NDArray[np.float32]


class LakeError(SensorGridError, RuntimeError):
    """A lake that is not one, or of another format."""


@dataclass(frozen=True)
class Folder:
    """A folder by path or URI (``s3://…``, ``hdfs://…``); opens nothing until it is used, and pickles."""

    root: str

    def _fs(self) -> tuple[pafs.FileSystem, str]:
        if "://" in self.root or self.root.startswith("file:"):
            found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(self.root)
            return found
        return pafs.LocalFileSystem(), os.path.abspath(self.root)

    def path(self, *parts: str) -> str:
        """A path inside the folder, for its file system."""
        return str(PurePosixPath(self._fs()[1], *parts))

    def is_empty(self) -> bool:
        """Whether nothing is there, or not even the folder."""
        selector = pafs.FileSelector(self.path(), allow_not_found=True)
        return not self._fs()[0].get_file_info(selector)

    def read_text(self, name: str) -> str | None:
        """A small file, if it is there."""
        files = self._fs()[0]
        try:
            with files.open_input_stream(self.path(name)) as file:
                return str(file.read().decode())
        except FileNotFoundError:
            return None

    def write_text(self, name: str, text: str) -> None:
        """A small file, at once: readers see the old or the new one."""
        files = self._fs()[0]
        target = PurePosixPath(self.path(name))
        files.create_dir(str(target.parent), recursive=True)
        fresh = self.path(
            f".{target.name}.{uuid4().hex}"
        )  # at the root: folders inside hold whole files only
        try:
            with files.open_output_stream(fresh) as out:
                out.write(text.encode())
            files.move(fresh, str(target))
        except OSError:
            with suppress(OSError):
                files.delete_file(fresh)
            raise


@dataclass(frozen=True)
class Lake(Folder):
    """A lake at a path or URI."""

    def create(self) -> "Lake":
        """Make the lake if it is not there; refuse one of another format."""
        files = self._fs()[0]
        text = self.read_text("lake.json")
        if text is None:
            files.create_dir(self.path(), recursive=True)
            if not self.is_vacant():
                raise LakeError(
                    f"lake {self.root}: found other files and no lake.json, expected a lake or nothing"
                )
            self.write_text("lake.json", json.dumps({"format": FORMAT, "made_by": "sensorgrid"}) + "\n")
        return self.check()

    def is_vacant(self) -> bool:
        """Whether a lake can be made here: nothing is there but what brokers may have put there first."""
        found = self._fs()[0].get_file_info(pafs.FileSelector(self.path(), allow_not_found=True))
        return all(info.type == pafs.FileType.Directory and info.base_name in NEIGHBOURS for info in found)

    def check(self) -> "Lake":
        """Refuse what is not a lake, or has another format."""
        text = self.read_text("lake.json")
        if text is None:
            raise LakeError(
                f"lake {self.root}: found no lake.json, expected a lake; `sensorgrid pipeline backfill` makes one"
            )
        found = json.loads(text).get("format")
        if found != FORMAT:
            raise LakeError(
                f"lake {self.root}: found format {found}, expected {FORMAT}; a newer sensorgrid may have written it"
            )
        return self

    # the plan

    def plan(self) -> Plan | None:
        """The plan, if one was made."""
        text = self.read_text("plan.json")
        return None if text is None else plan_from_json(text)

    def save_plan(self, plan: Plan) -> None:
        """Keep the plan; running tasks see it when they begin."""
        self.write_text("plan.json", plan.to_json())

    # writing

    def write(
        self, kind: str, table: pa.Table, keys: tuple[str, ...], writer: str, batch: int, task: int
    ) -> None:
        """Write a table, one file for each distinct combination of `keys`, instead of what this task wrote."""
        for values, part in _split(table, keys):
            folder = "/".join([kind, *(f"{k}={v}" for k, v in zip(keys, values, strict=True))])
            self._write_parquet(folder, f"{writer}-{batch:010d}-{task:05d}{_MARK}", part)

    def _write_parquet(self, folder: str, name: str, table: pa.Table) -> None:
        files = self._fs()[0]
        fresh = self.path(folder, f".{name}.{uuid4().hex}")
        files.create_dir(self.path(folder), recursive=True)
        with files.open_output_stream(fresh) as out:
            pq.write_table(
                table,
                out,
                compression="zstd",
                compression_level=1,
                use_dictionary=_ALIKE if "region" in table.column_names else True,
            )
        files.move(fresh, self.path(folder, name))

    def drop_from(self, writer: str, batch: int) -> int:
        """Remove what batches from `batch` on have left: tries that were never committed."""
        dropped = 0
        for path in self._files("tiles", "letters", "sensors", reports.FOLDER, "ledger"):
            found = _batch_of(path, writer)
            if found is not None and found >= batch:
                self._fs()[0].delete_file(path)
                dropped += 1
        return dropped

    def write_ledger(self, writer: str, batch: int, counts: dict[str, Any]) -> None:
        """Keep the counts of a batch."""
        self.write_text(f"ledger/{writer}-{batch:010d}-00000.json", json.dumps(counts) + "\n")

    def ledger(self, writer: str, batch: int) -> dict[str, Any] | None:
        """The counts of one batch, if it has been written."""
        text = self.read_text(f"ledger/{writer}-{batch:010d}-00000.json")
        return None if text is None else json.loads(text)

    def last_batch(self, writer: str) -> int:
        """The newest batch of a writer that has a ledger; -1 if there is none."""
        return max((b for p in self._files("ledger") if (b := _batch_of(p, writer)) is not None), default=-1)

    # reading

    def ledgers(self) -> Iterator[dict[str, Any]]:
        """The counts of every batch."""
        for path in sorted(self._files("ledger", ending=".json")):
            yield from self._lines(path)

    def _lines(self, path: str) -> Iterator[dict[str, Any]]:
        with self._fs()[0].open_input_stream(path) as file:
            for line in file.read().decode().splitlines():
                yield json.loads(line)

    def totals(self) -> Ledger:
        """The counts of all batches together."""
        total = Ledger()
        for counts in self.ledgers():
            total.merge(Ledger.from_dict(counts))
        return total

    def tiles(
        self,
        *,
        attribute: str | None = None,
        ticks: tuple[int, int] | None = None,
        regions: list[str] | None = None,
        columns: list[str] | None = None,
        latest: bool = True,
    ) -> pa.Table:
        """Tiles of an attribute, ticks in [first, last] and regions; the newest revision of each, or all."""
        condition = pc.scalar(True)
        if attribute is not None:
            condition &= pc.field("attribute") == attribute
        if ticks is not None:
            condition &= (pc.field("tick") >= ticks[0]) & (pc.field("tick") <= ticks[1])
        if regions is not None:
            condition &= pc.field("region").isin(regions)
        wanted = None if columns is None else list(dict.fromkeys([*columns, *_IDENTITY]))
        table = self._dataset("tiles").to_table(filter=condition, columns=wanted)
        table = table.sort_by([(name, "ascending") for name in _IDENTITY])
        if latest and len(table):
            last = [
                pc.not_equal(table[n].slice(1), table[n].slice(0, len(table) - 1)) for n in _IDENTITY[:-1]
            ]
            keep = pc.or_(pc.or_(last[0], last[1]), last[2])
            table = table.filter(pa.chunked_array([*keep.chunks, pa.array([True])]))
        return table if columns is None else table.select(columns)

    def grids_of(
        self, identities: Sequence[Identity], grid: Grid, writer: str, batch: int
    ) -> dict[Identity, tuple[Floats, Floats, float | None]]:
        """Values, errors and silence of single tiles, which `writer` wrote in `batch`, or which were joined since."""
        found: dict[Identity, tuple[Floats, Floats, float | None]] = {}
        folders: dict[str, set[Identity]] = {}
        for identity in identities:
            day = grid.time_of(identity.tick).date()
            folders.setdefault(f"tiles/attribute={identity.attribute}/day={day}", set()).add(identity)
        for folder, wanted in folders.items():
            paths = sorted(self._files(folder))
            own = [path for path in paths if _batch_of(path, writer) == batch]
            for some in (own, [path for path in paths if path not in own]):
                if wanted - found.keys():
                    found |= self._grids_in(some, wanted)
        return found

    def identities_of(self, writer: str, batch: int, region: str) -> list[Identity]:
        """What a batch wrote of a region; nothing if its files have been joined with others since."""
        paths = sorted(path for path in self._files("tiles") if _batch_of(path, writer) == batch)
        if not paths:
            return []
        table = self._dataset_of("tiles", paths).to_table(
            filter=pc.field("region") == region, columns=list(_IDENTITY)
        )
        return [Identity(*row.values()) for row in table.to_pylist()]

    def _grids_in(
        self, paths: list[str], wanted: set[Identity]
    ) -> dict[Identity, tuple[Floats, Floats, float | None]]:
        if not paths:
            return {}
        (attribute,) = {identity.attribute for identity in wanted}
        condition = pc.field("tick").isin([i.tick for i in wanted])
        condition &= pc.field("region").isin([i.region for i in wanted])
        schema = pa.schema([column for column in _empty("tiles") if column[0] not in ("attribute", "day")])
        table = ds.dataset(paths, filesystem=self._fs()[0], format="parquet", schema=schema).to_table(
            filter=condition,
            columns=["tick", "region", "revision", "values", "error", "observed_points", "newest_age"],
        )
        found = {}
        for tick, region, revision, values, error, observed, newest in zip(*table.columns, strict=True):
            identity = Identity(attribute, tick.as_py(), region.as_py(), revision.as_py())
            if identity in wanted:
                silent_s = silence(observed.as_py(), newest.as_py())
                found[identity] = (values.values.to_numpy(), error.values.to_numpy(), silent_s)
        return found

    def streamed(self) -> bool:
        """Whether a stream has ever written here."""
        # The newest ledgers of a stream are never joined; what is joined may be of backfills.
        return any(PurePosixPath(p).name.startswith(STREAM) for p in self._files("ledger"))

    def written_s(self) -> float:
        """When a stream last finished a batch, in seconds since 1970; 0 if never."""
        infos = (i for i in self._all("ledger") if PurePosixPath(i.path).name.startswith(STREAM))
        return max((i.mtime.timestamp() for i in infos if i.mtime is not None), default=0.0)

    def has_tiles(self) -> bool:
        """Whether anything has been published."""
        return bool(self._files("tiles"))

    def newest_tick(self) -> int:
        """The newest tick that was published; a tick before all others if none was."""
        ticks: list[int] = self.tiles(columns=["tick"])["tick"].to_pylist()
        return max(self.totals().newest, max(ticks, default=_NO_TICK))

    def unobserved_ticks(self, first: int, last: int) -> dict[str, tuple[int, int]]:
        """For each attribute, of the ticks in [first, last]: how many rest on not a single observation, and how many
        there are. Grids of earlier releases do not say, and do not count."""
        table = self.tiles(ticks=(first, last), columns=["attribute", "tick", "observed_points"])
        table = table.filter(pc.is_valid(table["observed_points"]))
        each = table.group_by(["attribute", "tick"]).aggregate([("observed_points", "max")])
        found: dict[str, tuple[int, int]] = {}
        for name in sorted(set(each["attribute"].to_pylist())):
            mine = each.filter(pc.equal(each["attribute"], name))["observed_points_max"]
            found[name] = (pc.sum(pc.equal(mine, 0)).as_py(), len(mine))
        return found

    def letters(self) -> pa.Table:
        """Everything that was refused or could not be read, with the reason."""
        return self._dataset("letters").to_table()

    def sensors(self) -> pa.Table:
        """Names and positions of the sensors that have spoken, one row for each and each group of attributes.

        A sensor whose elevation became known later has two rows in the files.
        """
        table = self._dataset("sensors").to_table()
        names = table.column_names
        rest = [name for name in names if name not in ("number", "group")]
        once = table.group_by(["number", "group"], use_threads=False).aggregate([(n, "first") for n in rest])
        renamed = {f"{name}_first": name for name in rest}
        return once.rename_columns([renamed.get(n, n) for n in once.column_names]).select(names)

    def _dataset(self, kind: str) -> ds.Dataset:
        paths = sorted(self._files(kind))
        if not paths:
            return ds.dataset(pa.table({n: pa.array([], t) for n, t in _empty(kind)}))
        return self._dataset_of(kind, paths)

    def _dataset_of(self, kind: str, paths: list[str]) -> ds.Dataset:
        files = self._fs()[0]
        partitioning = ds.partitioning(
            pa.schema([("attribute", pa.string()), ("day", pa.date32())][0 if kind == "tiles" else 1 :]),
            flavor="hive",
        )
        # Files that were written before a column was added lack it.
        day = [("day", pa.date32())] if kind == "letters" else []
        schema = pa.schema([*_empty(kind), *day])
        return ds.dataset(
            paths, filesystem=files, format="parquet", partitioning=partitioning if kind != "sensors" else None,
            partition_base_dir=self.path(kind), schema=schema,
        )  # fmt: skip

    # keeping house

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether nobody else is keeping house, on a file system with locks; elsewhere people must see to it."""
        if not isinstance(self._fs()[0], pafs.LocalFileSystem):
            yield True
            return
        with open(self.path("housekeeping.lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True

    def compact(self, *, keep_batches: int = 20, minimum: int = 2) -> int:
        """Join the files of each partition into one; returns how many files became fewer.

        The newest `keep_batches` batches stay as they are, because they may be tried again. What was begun and
        not finished is finished first: readers never see a row twice for longer than a rename takes. Where
        somebody else is at it, nothing is done.
        """
        with self._alone() as alone:
            return self._compact(keep_batches, minimum) if alone else 0

    def _compact(self, keep_batches: int, minimum: int) -> int:
        self._finish_compaction()
        newest: dict[str, int] = {}
        for path in self._files("ledger"):
            found = _written_by(path)
            if found is not None:
                newest[found[0]] = max(newest.get(found[0], -1), found[1])
        fewer = 0
        for kind in ("tiles", "letters", "sensors"):
            by_folder: dict[str, list[str]] = {}
            for path in sorted(self._files(kind)):
                found = _written_by(path)
                if found is None or found[1] <= newest.get(found[0], -1) - keep_batches:
                    by_folder.setdefault(str(PurePosixPath(path).parent), []).append(path)
            for folder, paths in by_folder.items():
                if len(paths) >= minimum:
                    self._join(folder, paths)
                    fewer += len(paths) - 1
        fewer += self._join_reports(newest, keep_batches, minimum)
        return fewer + self._join_ledgers(newest, keep_batches, minimum)

    def _join_reports(self, newest: dict[str, int], keep_batches: int, minimum: int) -> int:
        """Add up what old batches heard of each sensor."""
        paths = [
            path
            for path in sorted(self._files(reports.FOLDER))
            if (found := _written_by(path)) is None or found[1] <= newest.get(found[0], -1) - keep_batches
        ]
        if len(paths) < minimum:
            return 0
        name = reports.join(self, paths)
        self._replace(self.path(reports.FOLDER, f".{name}"), self.path(reports.FOLDER, name), paths)
        return len(paths) - 1

    def _join_ledgers(self, newest: dict[str, int], keep_batches: int, minimum: int) -> int:
        """Add up the ledgers of old batches: one line for those of this turn, and the lines of earlier turns."""
        sums, lines, paths = Ledger(), [], []
        for path in sorted(self._files("ledger")):
            found = _written_by(path)
            if found is not None and found[1] > newest.get(found[0], -1) - keep_batches:
                continue
            paths.append(path)
            for counts in self._lines(path):
                if found is None:
                    lines.append(counts)
                else:
                    sums.merge(Ledger.from_dict(counts))
        if len(paths) < minimum:
            return 0
        text = "".join(json.dumps(line) + "\n" for line in [*lines, sums.to_dict()])
        name = f"joined-{uuid4().hex}.json"
        self.write_text(f"ledger/.{name}", text)
        self._replace(self.path("ledger", f".{name}"), self.path("ledger", name), paths)
        return len(paths) - 1

    def _join(self, folder: str, paths: list[str]) -> None:
        files = self._fs()[0]
        name = f"joined-{uuid4().hex}{_MARK}"
        fresh = f"{folder}/.{name}"
        schema = pa.unify_schemas([pq.read_schema(path, filesystem=files) for path in paths])
        with (
            files.open_output_stream(fresh) as out,
            pq.ParquetWriter(out, schema, compression="zstd") as writer,
        ):
            for path in paths:
                table = pq.read_table(path, filesystem=files, partitioning=None)
                for column in schema.names:
                    if column not in table.column_names:  # written before there was this column
                        table = table.append_column(column, pa.nulls(len(table), schema.field(column).type))
                writer.write_table(table.select(schema.names).cast(schema))
        self._replace(fresh, f"{folder}/{name}", paths)

    def _replace(self, fresh: str, final: str, old: list[str]) -> None:
        """One file instead of several, in a way that the next compaction can finish."""
        self.write_text("compaction.json", json.dumps({"fresh": fresh, "final": final, "old": old}))
        self._finish_compaction()

    def _finish_compaction(self) -> None:
        text = self.read_text("compaction.json")
        if text is None:
            return
        files, intent = self._fs()[0], json.loads(text)
        if files.get_file_info(intent["fresh"]).type == pafs.FileType.File:
            files.move(intent["fresh"], intent["final"])
        there = files.get_file_info(intent["final"]).type == pafs.FileType.File
        for path in intent["old"] if there else ():
            if path != intent["final"] and files.get_file_info(path).type == pafs.FileType.File:
                files.delete_file(path)
        files.delete_file(self.path("compaction.json"))

    def expire(self, before: date, kinds: tuple[str, ...] = ("tiles", "letters")) -> int:
        """Remove whole days before a date; returns how many files went."""
        gone = 0
        for path in self._files(*kinds):
            day = next((p[4:] for p in PurePosixPath(path).parts if p.startswith("day=")), None)
            if day is not None and date.fromisoformat(day) < before:
                self._fs()[0].delete_file(path)
                gone += 1
        return gone

    def sweep(self, older_than: timedelta = timedelta(hours=1)) -> int:
        """Remove files that crashed tasks left half-written."""
        limit, gone = datetime.now(UTC) - older_than, 0
        files = self._fs()[0]
        for info in self._all():
            name = PurePosixPath(info.path).name
            if name.startswith(".") and info.mtime is not None and info.mtime < limit:
                files.delete_file(info.path)
                gone += 1
        return gone

    # files

    def _all(self, *kinds: str) -> Iterator[pafs.FileInfo]:
        files = self._fs()[0]
        for kind in kinds or ("",):
            selector = pafs.FileSelector(self.path(kind), recursive=True, allow_not_found=True)
            yield from (i for i in files.get_file_info(selector) if i.type == pafs.FileType.File)

    def _files(self, *kinds: str, ending: str = "") -> list[str]:
        paths = (info.path for info in self._all(*kinds))
        return [p for p in paths if not PurePosixPath(p).name.startswith(".") and p.endswith(ending)]


def silence(observed: int | None, newest_s: float | None) -> float | None:
    """What two columns of a tile say about it; see `tiles.Basis.silent_s`."""
    if observed is None or observed > 0:
        return None
    return float("inf") if newest_s is None else newest_s


_NO_TICK = -(1 << 62)
_IDENTITY = ("attribute", "tick", "region", "revision")


def _split(table: pa.Table, keys: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], pa.Table]]:
    """The table's parts by the values of some columns, which then are in the folder's name and not in the file."""
    if not keys:
        return [((), table)]
    combined = pc.binary_join_element_wise(*(table[k].cast(pa.string()) for k in keys), "\x1f")
    parts = []
    for value in combined.unique().to_pylist():
        part = table.filter(pc.equal(combined, value)).drop_columns(list(keys))
        parts.append((tuple(value.split("\x1f")), part))
    return parts


def _batch_of(path: str, writer: str) -> int | None:
    """The batch that wrote a file, if `writer` did."""
    found = _written_by(path)
    return found[1] if found is not None and found[0] == writer else None


def _written_by(path: str) -> tuple[str, int] | None:
    """The stream and batch that wrote a file; None for files that are final."""
    parts = PurePosixPath(path).name.split("-")
    return (parts[0], int(parts[1])) if parts[0].startswith(STREAM) else None


def _empty(kind: str) -> list[tuple[str, pa.DataType]]:
    from sensorgrid.pipeline.lake.tiles import TILE
    from sensorgrid.pipeline.spark.packing import LETTER, SENSOR

    schema = {"tiles": TILE, "letters": LETTER, "sensors": SENSOR}[kind]
    return [(f.name, f.type) for f in schema]
