"""What is counted of each sensor: stream and backfill come to the same, without Spark between their stages."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sensorgrid.pipeline import jobs, planning
from sensorgrid.pipeline.gridding.book import Book, State
from sensorgrid.pipeline.gridding.measurements import Measurements, decode, sensor_number
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake import reports
from sensorgrid.pipeline.settings import settings_of
from sensorgrid.pipeline.sources.synthetic_earth import Earth
from sensorgrid.pipeline.spark import backfill
from sensorgrid.pipeline.spark.packing import ASIDE, LETTER, REPORTS, ROWS, pack_batches
from sensorgrid.pipeline.spark.stages import from_bytes, moved_of

MIDNIGHT_S = 1_700_006_400
START_S = MIDNIGHT_S - 900
TICKS, TICK_S = 6, 300
EARTH = Earth(
    seed=5, station_count=60, tick_s=300.0, lateness_s=600.0,
    attributes=("air_temperature", "wind_speed", "wind_from_direction"),
)  # fmt: skip
CONTENT: dict[str, Any] = {
    "lake": "lake",
    "grid": {
        "shape": [16, 8], "tick": TICK_S, "resolution_bits": 1, "region_digits": 1,
        "attributes": ["air_temperature", "eastward_wind", "northward_wind"],
    },
    "timing": {"settle": 30, "lateness": 1200, "max_age": 1500},
    "gridding": {"calibrate": False, "halo": 3e6, "kernel": "inverse_distance"},
    "sources": [{"kind": "files", "name": "earth", "path": "reports", "mapping": "measurements"}],
}  # fmt: skip


def arriving(step: int) -> pa.Table:
    """Flagged rows as quality control leaves them: every eleventh out of range, unless it has no value at all."""
    table = EARTH.reports(START_S + step * TICK_S, START_S + (step + 1) * TICK_S)
    time_us = table["event_time"].cast(pa.int64()).to_numpy()
    first, last = START_S * 10**6, (START_S + TICKS * TICK_S) * 10**6
    table = table.filter(
        pa.array((time_us >= first) & (time_us < last) & pc.is_valid(table["value"]).to_numpy())
    )
    x, y, value = (pc.fill_null(table[n], np.nan).to_numpy() for n in ("longitude", "latitude", "value"))
    table = table.filter(pa.array((np.abs(x) < 180) & (np.abs(y) < 90) & np.isfinite(value)))
    columns = {f.name: pa.nulls(len(table), f.type) for f in LETTER}
    columns |= {name: table[name] for name in table.column_names if name in columns}
    bad = np.arange(len(table)) % 11 == 0
    columns["flag"] = pa.array(np.where(bad, 4, 1), pa.int8())
    columns["test"] = pa.array(np.where(bad, "range", None), pa.string())
    return pa.table(columns).cast(LETTER)


def summed(tables: list[pa.Table]) -> dict[tuple[int, str, int], tuple[int, int, int, Any]]:
    whole = reports.add_up(pa.concat_tables(tables))
    return {
        (r["number"], r["attribute"], r["day"]): (r["passed"], r["refused"], r["moved"], r["last"])
        for r in whole.to_pylist()
        if r["passed"] or r["refused"] or r["moved"]
    }


class Kept(dict[int, bytes]):
    """A book's rows."""

    def put(self, tick: int, data: bytes) -> None:
        self[tick] = data

    def remove(self, tick: int) -> None:
        del self[tick]


def packed(table: pa.Table, plan: Any, chunks: Any = None) -> list[dict[str, Any]]:
    return [row for batch in pack_batches(table.to_batches(), plan, chunks) for row in batch.to_pylist()]


def test_stream_and_backfill_count_the_same_and_what_the_last_grids_say(tmp_path: Path) -> None:
    settings = settings_of(CONTENT, "test", tmp_path)
    job, grid = jobs.job_of(settings, "stream1"), settings.grid.grid()
    nowhere = planning.for_all_groups(grid, np.empty(0), np.empty(0))
    plan = planning.first_plan(grid, settings.gridding, START_S // TICK_S, nowhere)
    steps = [arriving(step) for step in range(TICKS + 4)]

    streamed: list[pa.Table] = []
    states: dict[tuple[str, int], bytes] = {}
    kept: dict[tuple[str, int], Kept] = defaultdict(Kept)
    verdicts: dict[tuple[str, int, int], Counter[tuple[int, str]]] = {}
    groups = [g.name for g in planning.groups_of(grid.attributes)]
    for step in range(TICKS + 8):
        parts: dict[tuple[str, int], list[Measurements]] = defaultdict(list)
        for row in packed(steps[step], plan) if step < len(steps) else ():
            if row["kind"] == REPORTS:
                assert row["group"] == ASIDE
                streamed.append(from_bytes(row["payload"]))
            elif row["kind"] == ROWS:
                parts[row["group"], row["region"]].append(decode(row["payload"]))
        now_us = (START_S + (step + 1) * TICK_S + 30) * 10**6
        for key in ((group, region) for group in groups for region in range(len(Regions(grid)))):
            domain = job.domain(key[0], plan)
            state = State.decode(states[key]) if key in states else None
            book = Book(domain, key[1], kept[key], state)
            assert not len(book.receive(parts[key]).late)
            for issue in [*book.publish(now_us), *book.advance(now_us)]:
                streamed += [from_bytes(p) for _, p in moved_of(issue, domain.group, grid)]
                bad = np.flatnonzero(issue.grid.test)
                rows = issue.grid.rows
                verdicts[key[0], key[1], issue.tick] = Counter(
                    (int(rows.sensor[n]), domain.group.inputs[rows.code[n]]) for n in bad
                )
            states[key] = book.state.encode()

    filled: list[pa.Table] = []
    chunks = backfill.chunks_for(job, plan)
    grouped: dict[tuple[str, int, int], list[Measurements]] = defaultdict(list)
    for row in packed(pa.concat_tables(steps), plan, chunks):
        if row["kind"] == REPORTS:
            filled.append(from_bytes(row["payload"]))
        elif row["kind"] == ROWS:
            grouped[row["group"], row["region"], row["chunk"]].append(decode(row["payload"]))
    span = backfill.Span(START_S // TICK_S, START_S // TICK_S + TICKS - 1)
    for (group, region, chunk), packs in grouped.items():
        for kind, payload in backfill.grid_chunk(packs, group, region, chunk, job, plan, chunks, span):
            if kind == REPORTS:
                filled.append(from_bytes(payload))

    assert summed(streamed) == summed(filled)
    assert len({day for _, _, day in summed(filled)}) == 2, "before and after midnight"
    bad_by_sensor: Counter[tuple[int, str]] = sum(verdicts.values(), Counter())
    moved: Counter[tuple[int, str]] = Counter()
    heard: Counter[tuple[int, str]] = Counter()
    for (number, attribute, _), (passed, refused, change, _) in summed(streamed).items():
        moved[number, attribute] += change
        heard[number, attribute] += passed + refused
    assert +moved == bad_by_sensor
    assert len(bad_by_sensor) > 3
    raw = pa.concat_tables(steps)
    names = zip(raw["sensor"].to_pylist(), raw["attribute"].to_pylist(), strict=True)
    assert heard == Counter((sensor_number(name), attribute) for name, attribute in names)
    assert any(len(tick) for key, tick in verdicts.items()), "something was flagged at all"
