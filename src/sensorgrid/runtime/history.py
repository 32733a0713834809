"""The tail of the lake: what a gateway reads once when it starts (rule 8 of the design's section on interest).

The lake is plain Parquet (see docs/pipeline.md): ``tiles/attribute=NAME/day=DATE/*.parquet``, one row per (tick,
region, revision). Readers need none of the pipeline's code, and brokers do not import it.
"""

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from sensorgrid.model.block import Values

Tick = tuple[int, int, Values | None, float | None]
"""tick, revision, values [row, column], silence: see `sensorgrid.model.block.Slab`"""
_TRIES = 3
"""compaction replaces files while they are read: then the folder is listed again"""


def read_tail(
    lake: str, attribute: str, regions: Sequence[str], ticks: int
) -> dict[str, dict[str, list[Tick]]]:
    """The last `ticks` ticks of regions, in order, each in its newest revision, by column (values, error), region.

    A lake that is not there yet is empty.
    """
    for _ in range(_TRIES - 1):
        try:
            return _read_tail(lake, attribute, regions, ticks)
        except FileNotFoundError:
            continue
    return _read_tail(lake, attribute, regions, ticks)


def _read_tail(
    lake: str, attribute: str, regions: Sequence[str], ticks: int
) -> dict[str, dict[str, list[Tick]]]:
    files, root = open_lake(lake)
    newest: dict[tuple[str, int], tuple[int, Any]] = {}
    last = -(1 << 62)
    for day in _days(files, f"{root}/tiles/attribute={attribute}"):
        table = pa.concat_tables(_read(files, path, regions) for path in day)
        if not len(table):
            continue
        ends = pc.min_max(table["tick"]).as_py()
        last = max(last, ends["max"])
        table = table.filter(pc.field("tick") > last - ticks)
        for row in table.to_batches():
            _note(row, newest)
        if ends["min"] <= last - ticks:  # days rise with ticks: those before hold nothing of the tail
            break
    found: dict[str, dict[str, list[Tick]]] = {c: {r: [] for r in regions} for c in ("values", "error")}
    for (region, tick), (revision, row) in sorted(newest.items(), key=lambda item: item[0]):
        if tick > last - ticks:
            for column in found:
                found[column][region].append((tick, revision, row[column], row["silent_s"]))
    return found


def open_lake(lake: str) -> tuple[pafs.FileSystem, str]:
    """A lake by path or URI: its file system, and where it lies in it."""
    if "://" in lake or lake.startswith("file:"):
        found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(lake)
        return found
    return pafs.LocalFileSystem(), lake.rstrip("/")


def _days(files: pafs.FileSystem, folder: str) -> Iterable[list[str]]:
    """The files of each day, the newest day first."""
    days = files.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    for day in sorted((d.path for d in days if d.type == pafs.FileType.Directory), reverse=True):
        paths = [
            i.path for i in files.get_file_info(pafs.FileSelector(day, allow_not_found=True)) if i.is_file
        ]
        paths = [
            p for p in paths if p.endswith(".parquet") and not PurePosixPath(p).name.startswith((".", "_"))
        ]
        if paths:
            yield sorted(paths)


def _read(files: pafs.FileSystem, path: str, regions: Sequence[str]) -> pa.Table:
    columns = ["tick", "region", "revision", "width", "height", "values", "error"]
    with files.open_input_file(path) as file:
        # Files of earlier releases do not say what their grids rest on.
        later = [("observed_points", pa.int32()), ("newest_age", pa.float32())]
        known = pq.read_schema(file).names
        table = pq.read_table(file, columns=[*columns, *(name for name, _ in later if name in known)])
    for name, kind in later:
        column = table[name].cast(kind) if name in known else pa.nulls(len(table), kind)
        at = table.schema.get_field_index(name)
        table = table.append_column(name, column) if at < 0 else table.set_column(at, name, column)
    return table.filter(pc.field("region").isin(list(regions)))


def _note(rows: pa.RecordBatch, newest: dict[tuple[str, int], tuple[int, Any]]) -> None:
    names = rows["region"].to_pylist()
    for at, (region, tick, revision, width, height) in enumerate(
        zip(names, *(rows[c].to_pylist() for c in ("tick", "revision", "width", "height")), strict=True)
    ):
        known = newest.get((region, tick))
        if known is not None and known[0] >= revision:
            continue
        observed, newest_s = rows["observed_points"][at].as_py(), rows["newest_age"][at].as_py()
        row: dict[str, Any] = {"silent_s": None}
        if observed == 0:
            row["silent_s"] = float("inf") if newest_s is None else newest_s
        for column in ("values", "error"):
            flat = rows[column][at].values.to_numpy(zero_copy_only=False)
            row[column] = np.array(flat, np.float32).reshape(height, width)
        newest[region, tick] = (revision, row)
