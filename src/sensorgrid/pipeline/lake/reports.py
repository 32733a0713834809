"""What each sensor has reported: how many measurements a day, how many of them were bad, and when the last one came.

The lake's `reports/` holds one small file per batch. The rows of a writer add up, so a batch that is tried again
replaces its own file and nothing is counted twice. Brokers read the folder and are the *sensor registry* with it
(`sensorgrid.runtime.registry`); they need none of this code.

Counted is what arrived, when it arrives:

passed   measurements that quality control let pass, repeats included
refused  measurements out of their attribute's range
moved    passed ones that the gridding found bad later (fewer, if negative), in the batch that found it

So `passed + refused` are the reports and `refused + moved` the flagged ones. What has no value, no time or no place on
the grid says nothing about its sensor and is not counted; it lies in the letters.

Counts are kept by day and for `DAYS` days. What is older leaves only the time of the last report.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sensorgrid.pipeline.gridding.groups import Group
from sensorgrid.pipeline.gridding.measurements import Measurements, sensor_number
from sensorgrid.pipeline.gridding.moves import Moves
from sensorgrid.pipeline.gridding.series import Ints

if TYPE_CHECKING:
    from sensorgrid.pipeline.lake.folder import Lake

FOLDER = "reports"
DAYS = 3
"""whose counts are kept: the newest day that the folder knows, and those before it"""
DAY_US = 86_400_000_000
_COUNTS = ("passed", "refused", "moved")
_PLACE = ("sensor", "longitude", "latitude", "elevation")
REPORT = pa.schema(
    [
        ("writer", pa.string()),
        ("number", pa.uint64()),
        ("attribute", pa.string()),  # that was measured
        ("day", pa.int32()),  # since 1970, of the measurement
        *((name, pa.int64()) for name in _COUNTS),
        ("last", pa.timestamp("us", tz="UTC")),
        # Only where a measurement was refused: of all other sensors, `sensors/` knows name and place.
        ("sensor", pa.string()),
        ("longitude", pa.float64()),
        ("latitude", pa.float64()),
        ("elevation", pa.float64()),
    ]
)
_KEYS = ["writer", "number", "attribute", "day"]


def arrived(rows: Measurements, group: Ints, groups: Sequence[Group], refused: pa.Table) -> pa.Table:
    """What a partition of a batch says of its sensors: rows that passed, each of a group, and refused ones."""
    found = [_refused(refused, [name for g in groups for name in g.inputs])]
    kind = group * 256 + rows.code  # codes of a group are few
    for number, each in enumerate(groups):
        for code, attribute in enumerate(each.inputs):
            mine = np.flatnonzero(kind == number * 256 + code)
            if len(mine):
                found.append(_passed(rows.sensor[mine], rows.time_us[mine], attribute))
    return pa.concat_tables(found)


def _passed(sensor: "np.ndarray[tuple[int], np.dtype[np.uint64]]", time_us: Ints, attribute: str) -> pa.Table:
    day = time_us // DAY_US
    one_day = int(day.min()) == int(day.max())
    order = np.argsort(sensor, kind="stable") if one_day else np.lexsort((day, sensor))
    sensor, day, time_us = sensor[order], day[order], time_us[order]
    starts = np.flatnonzero(np.r_[True, (sensor[1:] != sensor[:-1]) | (day[1:] != day[:-1])])
    counts = np.diff(np.r_[starts, len(sensor)])
    return _table(
        number=sensor[starts],
        attribute=pa.repeat(attribute, len(starts)),
        day=day[starts].astype(np.int32),
        passed=counts,
        last=np.maximum.reduceat(time_us, starts),
    )


def _refused(refused: pa.Table, attributes: list[str]) -> pa.Table:
    """Of refused rows those that say something of their sensor: a value that cannot be right."""
    says = pc.and_(
        pc.equal(refused["test"], "range"), pc.is_in(refused["attribute"], value_set=pa.array(attributes))
    )
    some = refused.filter(pc.and_(says, pc.is_valid(refused["sensor"])))
    time_us = some["event_time"].cast(pa.timestamp("us", tz="UTC"))
    table = pa.table(
        {
            "sensor": some["sensor"].cast(pa.string()),
            "attribute": some["attribute"].cast(pa.string()),
            "day": pa.array(time_us.cast(pa.int64()).to_numpy() // DAY_US, pa.int32()),
            "last": time_us,
            **{name: some[name] for name in ("longitude", "latitude", "elevation")},
        }
    )
    once = table.group_by(["sensor", "attribute", "day"], use_threads=False).aggregate(
        [("last", "count"), ("last", "max"), *((name, "first") for name in _PLACE[1:])]
    )
    return _table(
        number=np.array([sensor_number(name) for name in once["sensor"].to_pylist()], np.uint64),
        attribute=once["attribute"],
        day=once["day"],
        refused=once["last_count"],
        last=once["last_max"],
        sensor=once["sensor"],
        **{name: once[f"{name}_first"] for name in _PLACE[1:]},
    )


def moved(found: Moves, group: Group, day: int) -> pa.Table:
    """Measurements of a tick on that day that turned out bad, or good after all."""
    names = pa.DictionaryArray.from_arrays(pa.array(found.code.astype(np.int32)), list(group.inputs))
    return _table(
        number=found.sensor,
        attribute=names.cast(pa.string()),
        day=np.full(len(found), day, np.int32),
        moved=found.change,
    )


def _table(**columns: object) -> pa.Table:
    """Rows of `REPORT`: counts that are left out are 0, everything else unknown."""
    size = len(columns["number"])  # type: ignore[arg-type]
    made = []
    for field in REPORT:
        given = columns.get(field.name)
        if given is None:
            given = np.zeros(size, np.int64) if field.name in _COUNTS else pa.nulls(size, field.type)
        if isinstance(given, np.ndarray):
            given = pa.array(given)
        made.append(given.cast(field.type))  # type: ignore[attr-defined]
    return pa.table(made, schema=REPORT)


def add_up(table: pa.Table) -> pa.Table:
    """One row for each writer, sensor, attribute and day."""
    sums = [*((name, "sum") for name in _COUNTS), ("last", "max"), *((name, "first") for name in _PLACE)]
    once = table.group_by(_KEYS, use_threads=False).aggregate(sums)
    return once.select([*_KEYS, *(f"{name}_{how}" for name, how in sums)]).rename_columns(REPORT.names)


def write(lake: "Lake", tables: Sequence[pa.Table], writer: str, batch: int) -> None:
    """Keep what a batch says of its sensors, if it says anything."""
    table = pa.concat_tables([REPORT.empty_table(), *tables])
    if len(table):
        table = table.set_column(0, "writer", pa.repeat(writer, len(table)))
        lake.write(FOLDER, add_up(table).cast(REPORT), (), writer, batch, 0)


def read(lake: "Lake") -> pa.Table:
    """Everything that the lake keeps, added up, days beyond the last `DAYS` without counts."""
    return shortened(_read(lake, lake._files(FOLDER)))


def _read(lake: "Lake", paths: Sequence[str]) -> pa.Table:
    files = lake._fs()[0]
    tables = [pq.read_table(path, filesystem=files, schema=REPORT, partitioning=None) for path in paths]
    return pa.concat_tables([REPORT.empty_table(), *tables])


def shortened(table: pa.Table) -> pa.Table:
    """Rows added up, those of days before the last `DAYS` as one without counts and day."""
    if not len(table):
        return table
    oldest = pc.max(table["day"]).as_py() - DAYS + 1
    old = pc.less(table["day"], oldest)
    for name in _COUNTS:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pc.if_else(old, 0, table[name]))
    day = pc.if_else(old, pa.scalar(0, pa.int32()), table["day"])
    return add_up(table.set_column(REPORT.get_field_index("day"), "day", day)).cast(REPORT)


def join(lake: "Lake", paths: Sequence[str]) -> str:
    """Several files as one that says the same, under a name that readers ignore yet; returns its final name.

    Its day 0 rows add nothing to any count.
    """
    name = f"joined-{uuid4().hex}.parquet"
    files = lake._fs()[0]
    with files.open_output_stream(lake.path(FOLDER, f".{name}")) as out:
        pq.write_table(shortened(_read(lake, paths)), out, compression="zstd")
    return name
