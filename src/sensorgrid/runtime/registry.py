"""The sensor registry of a broker: which sensors stand in its regions, what they report, who is silent or faulty.

The paper has each broker manage the sensors of its part of the ID space (section III-A). Ours does so without a word
to anybody: the pipeline writes what it hears to the lake (``sensors/``, ``reports/``; see docs/sensors.md), and the
owner of a region reads from there what concerns it. A sensor belongs to the broker that owns the region around it, for
the grid's first attribute. So a broker that takes a region over, or starts again, has the registry of its regions as
soon as somebody asks, and nothing has to be handed over.

A `Registry` is read in a thread. The `SensorTable` that it makes is never changed, so lookups need no lock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from sensorgrid.index.gbd_tree import PagedTree
from sensorgrid.links.wire import AskSensors, SensorCounts, SensorRow
from sensorgrid.model.area import inside, points_around
from sensorgrid.model.grid import Bbox, Grid
from sensorgrid.overlay.geography import box_of
from sensorgrid.runtime.history import open_lake

ROWS_MAX = 5_000
"""sensors in one answer"""
DAYS = 3
"""whose reports count: the newest day that the lake knows, and those before it"""
NEVER = np.iinfo(np.int64).min
_TRIES = 3
"""compaction replaces files while they are read: then the folder is listed again"""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_SENSOR = pa.schema(
    [
        ("number", pa.uint64()),
        ("sensor", pa.string()),
        ("group", pa.string()),
        ("longitude", pa.float64()),
        ("latitude", pa.float64()),
        ("elevation", pa.float64()),
    ]
)
_COUNTS = ("passed", "refused", "moved")
_REPORT = pa.schema(
    [
        ("writer", pa.string()),
        ("number", pa.uint64()),
        ("attribute", pa.string()),
        ("day", pa.int32()),
        *((name, pa.int64()) for name in _COUNTS),
        ("last", pa.timestamp("us", tz="UTC")),
        ("sensor", pa.string()),
        ("longitude", pa.float64()),
        ("latitude", pa.float64()),
        ("elevation", pa.float64()),
    ]
)
_KEYS = ["writer", "number", "attribute", "day"]
_PLACE = ["sensor", "longitude", "latitude", "elevation"]


@dataclass(frozen=True)
class FoundSensors:
    """What a lookup found."""

    rows: Ints
    """in the table, those of this page"""
    silent: Bools
    """of each: whether it is, as far as was asked"""
    flagged: Bools
    matched: int
    """all that fit, on this page, before it and after"""
    left_off: int
    """of these, after this page"""


@dataclass(frozen=True)
class SensorTable:
    """Sensors in the order of their numbers, and their series: a sensor and an attribute that it measures."""

    grid: Grid
    numbers: npt.NDArray[np.uint64]
    """ascending"""
    names: pa.Array
    x: Floats
    y: Floats
    elevation: Floats
    """NaN where nobody says it"""
    attributes: tuple[str, ...]
    """that somebody measures"""
    starts: Ints
    """the series of sensor i are those from starts[i] up to starts[i + 1]"""
    attribute: npt.NDArray[np.int16]
    """of each series"""
    reports: Ints
    flagged: Ints
    last_us: Ints
    """NEVER where no report is known"""
    _by_attribute: dict[str | None, tuple[Bools, Ints, Floats]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def tree(self) -> PagedTree:
        """The rows, under the grid's points that they stand at."""
        tree = PagedTree(self.grid)
        ix, iy = self.grid.indices_of(self.x, self.y)
        boxes = np.stack([ix, ix + 1, iy, iy + 1], axis=1)
        if len(self):
            tree.insert_boxes(boxes, np.arange(len(self), dtype=np.int64))
        return tree

    @property
    def newest_us(self) -> int | None:
        """When anything was last heard."""
        newest = int(self.last_us.max()) if len(self.last_us) else NEVER
        return None if newest == NEVER else newest

    @property
    def nbytes(self) -> int:
        """Memory of the columns and the tree."""
        arrays = (
            self.numbers, self.x, self.y, self.elevation, self.starts, self.attribute, self.reports,
            self.flagged, self.last_us,
        )  # fmt: skip
        return sum(array.nbytes for array in arrays) + int(self.names.nbytes) + self.tree.nbytes

    def within(self, bbox: Bbox) -> Ints:
        """The sensors in a box, its borders included, by the tree."""
        box = points_around(self.grid, bbox)
        if box is None or not len(self):
            return np.empty(0, np.int64)
        rows = self.tree.overlaps(box)
        return rows[inside(self.grid, bbox, self.x[rows], self.y[rows])]

    def find(self, asked: AskSensors, now_us: int) -> FoundSensors:
        """The sensors that were asked for, a page of them."""
        rows = np.arange(len(self)) if asked.bbox is None else self.within(asked.bbox)
        has, last_us, share = self._facts(asked.attribute)
        rows = rows[has[rows]]
        silent, flagged = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
        if asked.silent_s is not None:
            silent = last_us[rows] < (now_us if asked.at_us is None else asked.at_us) - asked.silent_s * 1e6
        if asked.flagged is not None:
            flagged = share[rows] >= asked.flagged
        if asked.silent_s is not None or asked.flagged is not None:
            some = silent | flagged
            rows, silent, flagged = rows[some], silent[some], flagged[some]
        first = 0
        if asked.after is not None:
            first = int(np.searchsorted(self.numbers[rows], np.uint64(asked.after), side="right"))
        page = slice(first, first + max(0, min(asked.limit, ROWS_MAX)))
        shown = rows[page]
        return FoundSensors(shown, silent[page], flagged[page], len(rows), len(rows) - first - len(shown))

    def _facts(self, attribute: str | None) -> tuple[Bools, Ints, Floats]:
        """Of each sensor: whether it measures this, when it last did, the share flagged; the worst of all if None."""
        if attribute is not None and attribute not in self.attributes:
            return self._made(attribute)  # not kept: strangers make names up
        if attribute not in self._by_attribute:
            self._by_attribute[attribute] = self._made(attribute)
        return self._by_attribute[attribute]

    def _made(self, attribute: str | None) -> tuple[Bools, Ints, Floats]:
        which = np.arange(len(self.attribute))
        if attribute is not None:
            number = self.attributes.index(attribute) if attribute in self.attributes else -1
            which = np.flatnonzero(self.attribute == number)
        sensor = np.repeat(np.arange(len(self)), np.diff(self.starts))[which]
        has, last_us, share = np.zeros(len(self), bool), np.full(len(self), NEVER), np.zeros(len(self))
        has[sensor] = True
        np.maximum.at(last_us, sensor, self.last_us[which])
        np.maximum.at(share, sensor, _share(self.reports[which], self.flagged[which]))
        return has if attribute is not None else np.ones(len(self), bool), last_us, share

    def told(self, found: FoundSensors) -> tuple[SensorRow, ...]:
        """Sensors as they travel."""
        names = self.names.take(pa.array(found.rows)).to_pylist()
        made = []
        for at, name, silent, flagged in zip(
            found.rows.tolist(), names, found.silent.tolist(), found.flagged.tolist(), strict=True
        ):
            series = tuple(
                SensorCounts(
                    self.attributes[self.attribute[n]], int(self.reports[n]), int(self.flagged[n]),
                    None if self.last_us[n] == NEVER else int(self.last_us[n]),
                )
                for n in range(self.starts[at], self.starts[at + 1])
            )  # fmt: skip
            height = float(self.elevation[at])
            made.append(
                SensorRow(
                    int(self.numbers[at]), name or "", float(self.x[at]), float(self.y[at]),
                    None if np.isnan(height) else height, series, silent, flagged,
                )
            )  # fmt: skip
        return tuple(made)


def _share(reports: Ints, flagged: Ints) -> Floats:
    share: Floats = np.clip(flagged, 0, None) / np.maximum(reports, 1)
    return np.minimum(share, 1.0)


class Registry:
    """The sensors of some regions, read from the lake; not for several threads at once."""

    def __init__(self, lake: str, grid: Grid) -> None:
        self._lake, self._grid = lake, grid
        self._cells: tuple[int, ...] | None = None
        self._files: dict[str, set[str]] = {}
        self._sensors, self._reports = _SENSOR.empty_table(), _REPORT.empty_table()
        self._newest_day = 0
        self._table: SensorTable | None = None

    def read(self, cells: Iterable[int]) -> SensorTable:
        """The sensors in these cells, as the lake knows them now. What was read before is not read again."""
        wanted = tuple(sorted(cells))
        for _ in range(_TRIES - 1):
            try:
                return self._read(wanted)
            except FileNotFoundError:
                self._cells = None
        return self._read(wanted)

    def _read(self, cells: tuple[int, ...]) -> SensorTable:
        files, root = open_lake(self._lake)
        listed = {kind: _listed(files, f"{root}/{kind}") for kind in ("sensors", "reports")}
        anew = cells != self._cells or any(known - listed[kind] for kind, known in self._files.items())
        if anew:
            self._sensors, self._reports = _SENSOR.empty_table(), _REPORT.empty_table()
            self._cells, self._files, self._table = None, {kind: set() for kind in listed}, None
            self._newest_day = 0
        fresh = {kind: sorted(listed[kind] - self._files[kind]) for kind in listed}
        if self._table is not None and not any(fresh.values()):
            return self._table
        grounds = _Grounds.of(self._grid, cells)
        self._add_sensors(_read_files(files, fresh["sensors"], _SENSOR), grounds)
        self._add_reports(_read_files(files, fresh["reports"], _REPORT), grounds)
        table = _table_of(self._grid, self._sensors, self._reports, self._newest_day)
        before = self._table
        if before is not None and "tree" in before.__dict__ and np.array_equal(before.numbers, table.numbers):
            table.__dict__["tree"] = before.tree  # the same sensors stand where they stood
        self._cells, self._files, self._table = cells, listed, table
        return table

    def _add_sensors(self, table: pa.Table, grounds: "_Grounds") -> None:
        together = pa.concat_tables([self._sensors, table.filter(pa.array(grounds.hold(table)))])
        keys = ["number", "group"]
        once = together.group_by(keys, use_threads=False).aggregate([(name, "first") for name in _PLACE])
        named = once.rename_columns([name.removesuffix("_first") for name in once.column_names])
        self._sensors = named.select(_SENSOR.names).cast(_SENSOR)

    def _add_reports(self, table: pa.Table, grounds: "_Grounds") -> None:
        """Only of sensors here: of known ones, and of those of which no measurement ever passed."""
        # Of all sensors: which days count does not depend on who owns what.
        self._newest_day = max(self._newest_day, pc.max(table["day"]).as_py() or 0)
        ours = np.isin(table["number"].to_numpy(), self._sensors["number"].to_numpy())
        ours |= grounds.hold(table)
        together = pa.concat_tables([self._reports, table.filter(pa.array(ours))])
        sums = [*((name, "sum") for name in _COUNTS), ("last", "max"), *((name, "first") for name in _PLACE)]
        once = together.group_by(_KEYS, use_threads=False).aggregate(sums)
        columns = [*_KEYS, *(f"{name}_{how}" for name, how in sums)]
        self._reports = once.select(columns).rename_columns(_REPORT.names).cast(_REPORT)


@dataclass(frozen=True)
class _Grounds:
    """The cells of a broker as a raster: which positions lie in one of them."""

    grid: Grid
    step: tuple[int, int]
    """points of a square of the raster along x and y"""
    raster: Bools

    @classmethod
    def of(cls, grid: Grid, cells: Sequence[int]) -> "_Grounds":
        boxes = [box_of(grid, cell) for cell in cells]
        width = min((box.x1 - box.x0 for box in boxes), default=grid.shape[0])
        height = min((box.y1 - box.y0 for box in boxes), default=grid.shape[1])
        raster = np.zeros((-(-grid.shape[0] // width), -(-grid.shape[1] // height)), bool)
        for box in boxes:  # cells are halves of halves: each is a whole number of squares
            raster[box.x0 // width : -(-box.x1 // width), box.y0 // height : -(-box.y1 // height)] = True
        return cls(grid, (width, height), raster)

    def hold(self, table: pa.Table) -> Bools:
        """For each row whether its position is known, on the grid and in a cell."""
        x, y = (pc.fill_null(table[name], float("nan")).to_numpy() for name in ("longitude", "latitude"))
        west, south, east, north = self.grid.extent
        found = (x >= west) & (x <= east) & (y >= south) & (y <= north)
        at = np.flatnonzero(found)
        if len(at):
            ix, iy = self.grid.indices_of(x[at], y[at])
            found[at] = self.raster[ix // self.step[0], iy // self.step[1]]
        return np.asarray(found, bool)


def _listed(files: pafs.FileSystem, folder: str) -> set[str]:
    found = files.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    paths = (info.path for info in found if info.is_file)
    return {p for p in paths if p.endswith(".parquet") and not PurePosixPath(p).name.startswith((".", "_"))}


def _read_files(files: pafs.FileSystem, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
    tables = [schema.empty_table()]
    for path in paths:
        with files.open_input_file(path) as file:
            table = pq.read_table(file)
        for column in schema:
            if column.name not in table.column_names:  # written before there was this column
                table = table.append_column(column.name, pa.nulls(len(table), column.type))
        tables.append(table.select(schema.names).cast(schema))
    return pa.concat_tables(tables)


def _table_of(grid: Grid, sensors: pa.Table, reports: pa.Table, newest_day: int) -> SensorTable:
    """Columns for lookups, from what the lake says of sensors that are all ours."""
    named = reports.filter(pc.is_valid(reports["sensor"]))
    places = pa.concat_tables([t.select(["number", *_PLACE]) for t in (sensors, named)])
    numbers, first = np.unique(places["number"].to_numpy(), return_index=True)
    places = places.take(pa.array(first))
    series = _series(sensors, reports, newest_day)
    sensor = np.searchsorted(numbers, series["number"].to_numpy())
    attribute = series["attribute"].combine_chunks().dictionary_encode()
    names = attribute.dictionary.to_pylist()
    rank = np.argsort(np.argsort(names)) if names else np.empty(0, np.int64)
    codes = rank[attribute.indices.to_numpy()].astype(np.int16)
    order = np.lexsort((codes, sensor))
    last = series["last"].cast(pa.int64()).fill_null(NEVER).to_numpy()
    return SensorTable(
        grid,
        numbers.astype(np.uint64),
        places["sensor"].combine_chunks(),
        places["longitude"].to_numpy(),
        places["latitude"].to_numpy(),
        pc.fill_null(places["elevation"], float("nan")).to_numpy(),
        tuple(sorted(names)),
        np.searchsorted(sensor[order], np.arange(len(numbers) + 1)),
        codes[order],
        series["reports"].to_numpy()[order],
        series["flagged"].to_numpy()[order],
        last[order],
    )


def _series(sensors: pa.Table, reports: pa.Table, newest_day: int) -> pa.Table:
    """One row for each sensor and attribute: reports, flagged ones, the last.

    The rows of a writer add up. Of several writers that tell of one day, the one that heard most counts: a backfill
    reads again what a stream has read.
    """
    old = pc.less(reports["day"], newest_day - DAYS + 1)
    counts = pa.table(
        {
            "number": reports["number"],
            "attribute": reports["attribute"],
            "day": reports["day"],
            "reports": pc.if_else(old, 0, pc.add(reports["passed"], reports["refused"])),
            "flagged": pc.if_else(old, 0, pc.add(reports["moved"], reports["refused"])),
            "last": reports["last"],
        }
    )
    daily = counts.group_by(["number", "attribute", "day"], use_threads=False).aggregate(
        [("reports", "max"), ("flagged", "max"), ("last", "max")]
    )
    daily = daily.rename_columns(["number", "attribute", "day", "reports", "flagged", "last"])
    known = daily.group_by(["number", "attribute"], use_threads=False).aggregate(
        [("reports", "sum"), ("flagged", "sum"), ("last", "max")]
    )
    known = known.rename_columns(["number", "attribute", "reports", "flagged", "last"])
    # A lake from before there were reports knows only who has spoken of what.
    heard = np.isin(sensors["number"].to_numpy(), known["number"].to_numpy())
    others = sensors.filter(pa.array(~heard))
    unknown = pa.table(
        {
            "number": others["number"],
            "attribute": others["group"],
            "reports": pa.array(np.zeros(len(others), np.int64)),
            "flagged": pa.array(np.zeros(len(others), np.int64)),
            "last": pa.nulls(len(others), pa.timestamp("us", tz="UTC")),
        }
    )
    return pa.concat_tables([known, unknown.cast(known.schema)])
