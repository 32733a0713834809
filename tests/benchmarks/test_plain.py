"""The plain program against its rules, written down a second time: one row, one sensor, one point after the other."""

import ast
from collections import defaultdict
from hashlib import blake2b
from itertools import pairwise
from math import asin, cos, degrees, exp, radians, sin, sqrt
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from sensorgrid.benchmarks.plain import program

FIRST, TICKS, TICK_S = 2_933_333, 5, 600
RADIUS_M = 6_371_008.8
SENSORS = 160
PLAIN = Path(program.__file__).parent


class Report(NamedTuple):
    """One row of the input."""

    sensor: str
    x: float
    y: float
    at_us: int
    value: float


def reports_of(seed: int) -> list[Report]:
    """A smooth field with what goes wrong: spikes, steps, stuck sensors, repeats, conflicts, nonsense, silence."""
    chance, rows = Random(seed), []
    for number in range(SENSORS):
        x, y = chance.uniform(-180, 180), degrees(asin(chance.uniform(-0.99, 0.99)))
        if number % 2:  # a crowd: here neighbours know each other
            x, y = chance.uniform(-20, 20), chance.uniform(30, 60)
        kind = chance.choice(["good"] * 6 + ["stuck", "spiky", "lying", "lying", "steps", "rare"])
        level = 288 - 25 * sin(radians(y)) ** 2 + 4 * sin(radians(3 * x))
        level += chance.uniform(5, 30) * (kind == "lying")
        height = chance.uniform(4, 20)
        for tick in range(TICKS):
            if kind == "rare" and chance.random() < 0.7:
                continue
            value = level if kind == "stuck" else level + chance.gauss(0, 0.7)
            value += 20 * (kind == "steps" and tick >= 3)
            value += height * (kind == "spiky" and tick % 3 == 1)
            value = 9999.0 if chance.random() < 0.02 else value
            at_us = (FIRST + tick) * TICK_S * 1_000_000 + chance.randrange(TICK_S * 1_000_000)
            report = Report(f"S{number:03d}", x, y, at_us, value)
            rows.append(report)
            if chance.random() < 0.05:
                rows.append(report)
            if chance.random() < 0.03:
                rows.append(report._replace(value=value + chance.choice([0.5, 5.0])))
    chance.shuffle(rows)
    return rows


def write(rows: list[Report], folder: Path) -> None:
    folder.mkdir()
    for number in range(2):
        part = rows[number::2]
        table = pa.table(
            {
                "sensor": [r.sensor for r in part],
                "longitude": [r.x for r in part],
                "latitude": [r.y for r in part],
                "event_time": pa.array([r.at_us for r in part]).cast(pa.timestamp("us", tz="UTC")),
                "value": [r.value for r in part],
            }
        )
        pq.write_table(table, folder / f"{number}.parquet")


# the rules


def number_of(report: Report) -> int:
    return int.from_bytes(blake2b(report.sensor.encode(), digest_size=8).digest(), "little")


def place_of(x: float, y: float) -> tuple[float, float, float]:
    x, y = radians(x), radians(y)
    return RADIUS_M * cos(y) * cos(x), RADIUS_M * cos(y) * sin(x), RADIUS_M * sin(y)


def distance(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return sqrt(sum((p - q) ** 2 for p, q in zip(a, b, strict=True)))


def verdicts(series: list[Report]) -> dict[Report, float]:
    """From when on each report of one sensor is bad, by its own past; not in it if never."""
    bad: dict[Report, float] = {}
    by_time: dict[int, list[Report]] = defaultdict(list)
    for report in sorted(series, key=lambda r: (r.at_us, r.value)):
        by_time[report.at_us].append(report)
    chain = []
    for same in by_time.values():
        agree = same[-1].value - same[0].value <= 1.0
        stays = same[(len(same) - 1) // 2] if agree else None
        bad |= {report: -1.0 for report in same if report is not stays}
        chain += [] if stays is None else [stays]
    parts: list[list[Report]] = []
    for report in chain:
        if parts and report.at_us - parts[-1][-1].at_us <= 1200e6:
            parts[-1].append(report)
        else:
            parts.append([report])
    for part in parts:
        for n, report in enumerate(part):
            before = part[max(0, n - 2) : n]
            if before:
                hours = (report.at_us - before[-1].at_us) / 3.6e9
                for limit in (12.0, 15.0 * hours + 6.0):
                    if all(abs(report.value - other.value) > limit for other in before):
                        bad[report] = -1.0
            since = report.at_us
            for earlier, later in reversed(list(pairwise(part[: n + 1]))):
                if earlier.value != later.value:
                    break
                since = earlier.at_us
            if report.at_us - since >= 1800e6:
                bad[report] = -1.0
            if 0 < n < len(part) - 1 and report not in bad:
                first, last = part[n - 1].value, part[n + 1].value
                if abs(report.value - (first + last) / 2) > 8 >= abs(first - last):
                    bad[report] = part[n + 1].at_us
    return bad


def noise_of(report: Report, end_us: int) -> float:
    return 1.0 + (end_us - report.at_us) / 3.6e9


def surprise(report: Report, others: list[Report], noise: dict[Report, float]) -> float:
    """By how many expected errors a report differs from kriging, its mean drawn from (288 K, 15 K)."""
    where = [place_of(r.x, r.y) for r in (report, *others)]
    alike = np.array([[10.5**2 * exp(-distance(a, b) / 6e5) + 15.0**2 for a in where] for b in where])
    system = alike[1:, 1:] + np.diag([noise[r] for r in others])
    weights = np.linalg.solve(system, alike[0, 1:])
    expected = 288.0 + float(weights @ np.array([r.value - 288.0 for r in others]))
    variance = max(0.0, float(alike[0, 0] - weights @ alike[0, 1:]))
    return abs(report.value - expected) / sqrt(variance + noise[report])


def refused(reports: list[Report], end_us: int) -> set[Report]:
    """What neighbours contradict: judged without the kindest of eight, worst first, in four rounds."""
    noise = {r: noise_of(r, end_us) for r in reports}
    where = {r: place_of(r.x, r.y) for r in reports}
    near = {
        r: sorted((o for o in reports if o is not r), key=lambda o: distance(where[r], where[o]))[:16]
        for r in reports
    }
    gone: set[Report] = set()
    badness = dict.fromkeys(reports, 0.0)
    used = {r: near[r][:8] for r in reports}
    heard = [r for r in reports if max(abs(r.value - o.value) for o in used[r]) > 4 * sqrt(noise[r])]
    for _ in range(4):
        for r in heard:
            badness[r] = surprise(r, used[r], noise)
            if badness[r] > 5:
                kinder = ([o for o in used[r] if o is not left] for left in used[r])
                badness[r] = min(badness[r], *(surprise(r, some, noise) for some in kinder))
        worst = [r for r in reports if 5 < badness[r] >= max(badness[o] for o in near[r])]
        if not worst:
            break
        for r in worst:
            badness[r], noise[r] = 0.0, (1e6 * 10.5) ** 2
        gone |= set(worst)
        heard = [r for r in reports if r not in gone and any(o in gone for o in used[r])]
        for r in heard:
            used[r] = sorted(near[r], key=lambda o: o in gone)[:8]
    return gone


def estimate(point: tuple[float, ...], reports: list[Report], end_us: int) -> tuple[float, float]:
    """Inverse distance squared from the eight nearest, and its error."""
    near = sorted((distance(point, place_of(r.x, r.y)), r) for r in reports)[:8]
    weights = [1 / d**2 for d, _ in near]
    weights = [w / sum(weights) for w in weights]
    value = sum(w * r.value for w, (_, r) in zip(weights, near, strict=True))
    field = sum(w * 2 * 10.5**2 * (1 - exp(-d / 6e5)) for w, (d, _) in zip(weights, near, strict=True))
    field *= (1 + sum(w * w for w in weights)) / 2
    noise = sum(w * w * noise_of(r, end_us) for w, (_, r) in zip(weights, near, strict=True))
    return value, min(15.0, sqrt(field + noise))


@pytest.mark.parametrize("seed", [1, 2])
def test_the_plain_program_does_what_its_rules_say(tmp_path: Path, seed: int) -> None:
    rows = reports_of(seed)
    write(rows, tmp_path / "in")
    places = {(r.x, r.y) for r in rows}
    x, y = (np.array(column) for column in zip(*sorted(places), strict=True))
    distinct = sorted({r for r in rows if 188.15 <= r.value <= 328.15})
    series: dict[str, list[Report]] = defaultdict(list)
    for report in distinct:
        series[report.sensor].append(report)
    bad = {r: since for one in series.values() for r, since in verdicts(one).items()}

    counts = program.run(tmp_path / "in", tmp_path / "out", FIRST, TICKS, x, y)

    tiles = ds.dataset(tmp_path / "out" / "tiles", partitioning="hive").to_table().to_pylist()
    assert sorted((t["tick"], t["region"]) for t in tiles) == [
        (FIRST + tick, f"{region:04b}") for tick in range(TICKS) for region in range(16)
    ]
    flagged, chance = 0, Random(seed)
    for tick in range(FIRST, FIRST + TICKS):
        end_us = (tick + 1) * TICK_S * 1_000_000
        good = [r for r in distinct if bad.get(r, 1e30) >= end_us and end_us - 1200e6 <= r.at_us < end_us]
        last = {r.sensor: r for r in sorted(good, key=lambda r: r.at_us)}
        gone = refused(list(last.values()), end_us)
        kept = [r for r in last.values() if r not in gone]
        mine = [t for t in tiles if t["tick"] == tick]
        wrong = {r for r in distinct if end_us - TICK_S * 1e6 <= r.at_us < end_us}
        wrong &= {r for r, since in bad.items() if since < end_us} | gone
        found = {(o["sensor"], o["value"]) for t in mine for o in t["observations"] if o["flag"] == 3}
        assert found == {(number_of(r), r.value) for r in wrong}
        flagged += len(wrong)
        for tile in mine:
            for at in chance.sample(range(512), 6):
                column, row = tile["x0"] + at % 32, tile["y0"] + at // 32
                point = place_of(-180 + (column + 0.5) * 2.8125, -90 + (row + 0.5) * 2.8125)
                value, error = estimate(point, kept, end_us)
                assert tile["values"][at] == pytest.approx(value, abs=1e-3)
                assert tile["error"][at] == pytest.approx(error, rel=1e-5)
    limits = sum(not 188.15 <= r.value <= 328.15 for r in rows)
    assert counts.flagged == limits + flagged
    assert counts.duplicate == len(rows) - limits - len(distinct)
    assert counts.used == len(distinct) - flagged
    assert counts.blocks == 16 * TICKS
    assert flagged > 20


def test_the_plain_program_imports_nothing_that_could_change_under_it() -> None:
    imported = {
        node.module or ""
        for path in sorted(PLAIN.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
    }

    ours = {name for name in imported if name.startswith("sensorgrid")}
    assert ours
    assert all(name.startswith("sensorgrid.benchmarks.plain.") for name in ours)
