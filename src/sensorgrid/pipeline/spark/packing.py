"""Pack before the shuffle: flagged rows of a partition become one binary row per group and region.

Runs inside Spark's Python workers, on Arrow batches. A measurement goes to its own region and to those whose
halo it touches; only the copy at home counts. Rows that quality control has refused travel as *letters*, with
everything that is known about them; the counts travel as a *ledger* row, and the names of sensors as *sensors*.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.groups import groups_of
from sensorgrid.pipeline.gridding.measurements import Measurements, sensor_number, split_by
from sensorgrid.pipeline.gridding.regions import Regions, halos_of
from sensorgrid.pipeline.gridding.series import Ints
from sensorgrid.pipeline.ingest.reasons import explained
from sensorgrid.pipeline.lake import reports
from sensorgrid.pipeline.plan import Plan
from sensorgrid.pipeline.schema import MEASUREMENT_ARROW

PACK = pa.schema(
    [
        ("group", pa.string()),
        ("region", pa.int32()),
        ("chunk", pa.int64()),
        ("kind", pa.string()),
        ("payload", pa.binary()),
    ]
)
PACK_DDL = "`group` string, region int, chunk bigint, kind string, payload binary"
ROWS, LEDGER, LETTERS, SENSORS, CLOCK = "rows", "ledger", "letters", "sensors", "clock"
REPORTS = "reports"
"""what was heard of each sensor (see `sensorgrid.pipeline.lake.reports`)"""
FRESH = "fresh"
"""a beat that only publishes; CLOCK also revises"""
ASIDE = ""
"""the group of everything that is no measurement"""
BUFFER_ROWS = 500_000
"""rows that are packed together: more means fewer packs, and some 500 bytes of memory each"""
SPREAD = 64
"""keys over which what is no measurement is spread, so that no task gets all of it"""
LETTERS_TOGETHER = 10_000
"""letters in one pack: with their raw records some 40 MB at most"""
LETTER = pa.schema([*MEASUREMENT_ARROW, ("flag", pa.int8()), ("test", pa.string())])
SENSOR = pa.schema(
    [
        ("number", pa.uint64()),
        ("sensor", pa.string()),
        ("group", pa.string()),
        ("longitude", pa.float64()),
        ("latitude", pa.float64()),
        ("elevation", pa.float64()),
    ]
)
_numbers: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Chunks:
    """How the backfill cuts time: a group of packs holds a chunk of ticks and the context before it."""

    ticks: int
    context_us: int
    """not longer than a chunk"""


def pack_batches(
    batches: Iterable[pa.RecordBatch], plan: Plan, chunks: Chunks | None = None
) -> Iterator[pa.RecordBatch]:
    """Pack the rows of one partition; without `chunks`, all ticks of a region go into one pack."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(len(b) for b in waiting) >= BUFFER_ROWS:
            yield from _pack(pa.Table.from_batches(waiting), plan, chunks)
            waiting = []
    if any(len(b) for b in waiting):
        yield from _pack(pa.Table.from_batches(waiting), plan, chunks)


def _pack(table: pa.Table, plan: Plan, chunks: Chunks | None) -> Iterator[pa.RecordBatch]:
    good = pc.equal(table["flag"], 1)
    refused = table.filter(pc.invert(good))
    passed = table.filter(good)
    yield from _aside(table, refused)
    rows, group = _measurements(passed, plan.grid)
    heard = reports.arrived(rows, group, groups_of(plan.grid.attributes), refused)
    if len(heard):
        yield _one(REPORTS, to_bytes(heard))
    if not len(passed):
        return
    names = [g.name for g in groups_of(plan.grid.attributes)]
    yield _one(SENSORS, to_bytes(_sensors(passed, rows, group, names)))
    for keys, part, label in _spread(rows, group, plan, chunks):
        order = np.argsort(keys, kind="stable")
        ordered, part = keys[order], part.take(order)
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        stops = np.r_[starts[1:], len(ordered)]
        labels = [label(int(ordered[start])) for start in starts]
        yield pa.record_batch(
            [
                pa.array([names[g] for g, _, _ in labels]),
                pa.array([r for _, r, _ in labels], pa.int32()),
                pa.array([c for _, _, c in labels], pa.int64()),
                pa.array([ROWS] * len(labels)),
                pa.array(
                    [part.take(slice(a, b)).encode() for a, b in zip(starts, stops, strict=True)], pa.binary()
                ),
            ],
            schema=PACK,
        )


def _spread(
    rows: Measurements, group: Ints, plan: Plan, chunks: Chunks | None
) -> Iterator[tuple[Ints, Measurements, "_Label"]]:
    """Rows once for each region, and each chunk, that wants them, with a sortable key."""
    tick = rows.time_us // round(plan.grid.tick * 1e6)
    regions = Regions(plan.grid)
    for number, its in enumerate(groups_of(plan.grid.attributes)):
        entries = plan.halos_of(its.name)
        ends = [h.from_tick for h in entries[1:]]
        for entry, low, high in zip(entries, [None, *ends], [*ends, None], strict=True):
            valid = group == number
            if low is not None:
                valid &= tick >= low
            if high is not None:
                valid &= tick < high
            chosen = np.flatnonzero(valid)
            if not len(chosen):
                continue
            halos = halos_of(plan.grid, entry.width_m)
            index, region = halos.spread(rows.x[chosen], rows.y[chosen])
            at = chosen[index]
            home = (regions.of(rows.x[chosen], rows.y[chosen])[index] == region).astype(np.uint8)
            part = rows.take(at).with_home(home)
            key = group[at] * len(regions) + region
            if chunks is None:
                yield key, part, _label(len(regions), 0, 1)
            else:
                yield from _by_chunk(key, part, tick[at], chunks, plan.grid, len(regions))


def by_region(rows: Measurements, group: Ints, plan: Plan) -> Iterator[tuple[str, int, Measurements]]:
    """Rows for each group and region that wants them, halos included; `group` counts those of the grid."""
    names = [its.name for its in groups_of(plan.grid.attributes)]
    for keys, part, label in _spread(rows, group, plan, None):
        for key, mine in split_by(keys, part):
            number, region, _ = label(key)
            yield names[number], region, mine


_Label = Callable[[int], tuple[int, int, int]]


def _label(regions: int, first: int, span: int) -> _Label:
    """Takes a key apart again: group, region, chunk."""

    def apart(key: int) -> tuple[int, int, int]:
        rest, chunk = divmod(key, span)
        return rest // regions, rest % regions, first + chunk

    return apart


def _by_chunk(
    key: Ints,
    part: Measurements,
    tick: Ints,
    chunks: Chunks,
    grid: Grid,
    regions: int,
) -> Iterator[tuple[Ints, Measurements, _Label]]:
    """Each row in its chunk, and, not at home, in the next one if that needs it as context."""
    chunk = tick // chunks.ticks
    first, span = int(chunk.min()), int(chunk.max() - chunk.min()) + 2
    next_us = (chunk + 1) * chunks.ticks * round(grid.tick * 1e6)
    again = np.flatnonzero(next_us - part.time_us <= chunks.context_us)
    both = np.r_[np.arange(len(part)), again]
    shifted = np.r_[chunk, chunk[again] + 1]
    home = np.r_[part.home, np.zeros(len(again), np.uint8)]
    yield key[both] * span + (shifted - first), part.take(both).with_home(home), _label(regions, first, span)


def _measurements(table: pa.Table, grid: Grid) -> tuple[Measurements, Ints]:
    """Columns of numbers: sensors by their number, attributes by group and code."""
    groups = groups_of(grid.attributes)
    place = {name: (g, c) for g, group in enumerate(groups) for c, name in enumerate(group.inputs)}
    attribute = table["attribute"].combine_chunks().dictionary_encode()
    places = np.array([place[name] for name in attribute.dictionary.to_pylist()]).reshape(-1, 2)
    codes = attribute.indices.to_numpy()
    rows = Measurements(
        _sensor_numbers(table["sensor"]),
        table["event_time"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy(),
        table["longitude"].to_numpy(),
        table["latitude"].to_numpy(),
        table["value"].to_numpy(),
        places[codes, 1].astype(np.uint8),
        np.ones(len(table), np.uint8),
        pc.fill_null(table["elevation"], float("nan")).to_numpy().astype(np.float32),
    )
    return rows, places[codes, 0].astype(np.int64)


def _sensor_numbers(names: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    encoded = names.combine_chunks().dictionary_encode()
    unique = encoded.dictionary.to_pylist()
    if len(_numbers) > 1_000_000:
        _numbers.clear()
    for name in unique:
        if name not in _numbers:
            _numbers[name] = sensor_number(name)
    numbers: npt.NDArray[np.uint64] = np.array([_numbers[name] for name in unique], np.uint64)
    found: npt.NDArray[np.uint64] = numbers[encoded.indices.to_numpy()]
    return found


def _sensors(table: pa.Table, rows: Measurements, group: Ints, names: list[str]) -> pa.Table:
    """Who has spoken of what, and from where, once each."""
    found = []
    for number, name in enumerate(names):
        mine = np.flatnonzero(group == number)
        numbers, first = np.unique(rows.sensor[mine], return_index=True)
        at = mine[first]
        columns = [pa.array(numbers), table["sensor"].take(pa.array(at)), pa.repeat(name, len(at))]
        elevation = pa.array(rows.elevation[at].astype(np.float64), from_pandas=True)
        found.append(
            pa.table([*columns, pa.array(rows.x[at]), pa.array(rows.y[at]), elevation], schema=SENSOR)
        )
    return pa.concat_tables(found)


def _aside(table: pa.Table, refused: pa.Table) -> Iterator[pa.RecordBatch]:
    """The counts of all rows, and every refused row that says anything."""
    test = pc.fill_null(refused["test"], "")
    dead, ignored = (pc.sum(pc.equal(test, name)).as_py() or 0 for name in ("dead_letter", "attribute"))
    tests = pc.value_counts(test).to_pylist() if len(refused) else []
    counts = {
        "raw": len(table),
        "dead_letter": dead,
        "ignored": ignored,
        "flagged": len(refused) - dead - ignored,
        "tests": {t["values"]: t["counts"] for t in tests},
    }
    yield _one(LEDGER, json.dumps(counts).encode())
    # A value that is missing, or that the grid does not want, is counted; there is nothing to look into.
    dull = pc.or_(pc.equal(refused["flag"], 9), pc.equal(test, "attribute"))
    letters = refused.filter(pc.invert(dull))
    for start in range(0, len(letters), LETTERS_TOGETHER):
        part = explained(letters.slice(start, LETTERS_TOGETHER)).select(LETTER.names).cast(LETTER)
        yield _one(LETTERS, to_bytes(part))


def _one(kind: str, payload: bytes) -> pa.RecordBatch:
    # A salt instead of one key for all: the backfill collects the rows of a key in one place.
    salt = int.from_bytes(blake2b(payload, digest_size=3).digest(), "little")
    region = pa.array([salt % SPREAD], pa.int32())
    return pa.record_batch([[ASIDE], region, [salt], [kind], [payload]], schema=PACK)


def to_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
