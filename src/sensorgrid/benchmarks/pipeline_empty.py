"""What an empty micro-batch costs, in this checkout and in another one, in alternation.

One commit cannot check out another: whoever wants to compare gives the folder of a second checkout. Both run the same
program (`empty_stream`) with their own package on Python's path, in the same environment.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import sensorgrid
from sensorgrid.benchmarks import BenchmarkError

Row = dict[str, Any]

PROGRAM = Path(__file__).with_name("empty_stream.py")
MICRO_BATCHES = 30
"""that are counted in a round"""
ROUNDS = 3
LIMIT_S = 300.0
"""for one round of one checkout"""


def source_of(checkout: Path) -> Path:
    """Where a checkout has the package."""
    source = checkout / "src"
    if not (source / "sensorgrid" / "pipeline" / "jobs.py").is_file():
        raise BenchmarkError(
            f"--against {checkout}: found no src/sensorgrid/pipeline/jobs.py, expected a checkout of the project"
        )
    return source


def run(against: Path | None, report: Callable[[str], None], rounds: int = ROUNDS) -> list[Row]:
    """Rows of both checkouts, round by round; without another one a single round of this one."""
    places = {"this": Path(sensorgrid.__file__).parents[1]}
    if against is not None:
        places["other"] = source_of(against)
    rows = []
    for number in range(rounds if against is not None else 1):
        for code, source in places.items():
            report(f"empty micro-batches: round {number + 1}, {code} checkout")
            rows.append(
                {"code": code, "round": number, **_play(source), "load": round(os.getloadavg()[0], 1)}
            )
    return rows


def ratio(rows: list[Row]) -> float | None:
    """Seconds of this checkout against those of the other one, the median of all rounds; None without another."""
    by_round: dict[int, dict[str, float]] = {}
    for row in rows:
        by_round.setdefault(row["round"], {})[row["code"]] = row["seconds_p50"]
    ratios = [one["this"] / one["other"] for one in by_round.values() if len(one) == 2]
    return median(ratios) if ratios else None


def _play(source: Path) -> Row:
    # -P: the program's own folder has modules with the names of others.
    words = [sys.executable, "-P", str(PROGRAM), str(MICRO_BATCHES), str(LIMIT_S)]
    done = subprocess.run(
        words, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise BenchmarkError(f"empty stream of {source}: found {last}, expected a row")
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row
