"""Many operators over one grid, tick by tick, against a loop of xarray expressions and one NumPy program per function.

All three get the same boxes and the same fields, in turns in one process; what counts is processor time. The NumPy
program is what somebody would write who knows all areas beforehand: indices and weights of all points of all areas in
one array, and one `reduceat`. It sums in plain floating point, and gives value and error. The loop of xarray
expressions is timed on some of the operators only, as it would take minutes.
"""

from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from sensorgrid.model.grid import Grid
from sensorgrid.operators.batch import PlanBatch
from sensorgrid.operators.plan import OperatorPlan, compile

Row = dict[str, Any]
Floats = npt.NDArray[np.float64]

OPERATORS_FULL, OPERATORS_QUICK = 10_000, 1_000
GRID = Grid(
    shape=(512, 256), tick=600, resolution_bits=(4, 4, 4), region_digits=4, attributes=("air_temperature",)
)
FUNCTIONS = ("mean", "max", "std", "percentile")
SHARE = 0.9
ROUNDS = 5
LOOPED = 40
"""operators that the loop of xarray expressions is timed on"""
EQUAL = 100
"""operators with equal sub-expressions"""
DEGREES = (20.0, 40.0)
"""least and largest side of an area"""


def run(operators: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Rows: of each function one for each way, and two for operators with equal sub-expressions."""
    rng = np.random.default_rng(seed)
    boxes = _boxes(operators, rng)
    rows: list[Row] = []
    for function in FUNCTIONS:
        say(f"{operators:,} operators: {function}")
        rows += _function(function, boxes, rng, say)
    say(f"{EQUAL} operators with equal sub-expressions")
    return rows + _equal(rng)


def _boxes(count: int, rng: np.random.Generator) -> Floats:
    """West, south, east, north of areas; borders cut through points."""
    wide, high = rng.uniform(*DEGREES, (2, count))
    west, south = rng.uniform(-180, 180 - wide), rng.uniform(-90, 90 - high)
    return np.stack([west, south, west + wide, south + high], axis=1)


def _text(function: str, box: Floats) -> str:
    place = f"BBOX({', '.join(str(v) for v in box.tolist())})"
    return f"{function}(air_temperature, {f'{SHARE}, ' if function == 'percentile' else ''}{place})"


def _field(rng: np.random.Generator) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    size = (GRID.shape[1], GRID.shape[0])
    return rng.normal(285, 8, size).astype(np.float32), rng.uniform(0.5, 2, size).astype(np.float32)


def _function(
    function: str, boxes: Floats, rng: np.random.Generator, say: Callable[[str], None]
) -> list[Row]:
    begin = process_time()
    plans = [compile(_text(function, box), GRID) for box in boxes]
    compiling = process_time() - begin
    ways: dict[str, Callable[[Any, Any], Floats]] = {
        "sensorgrid": _Ours(plans), "numpy": _Vectorised(function, plans), "xarray": _Looped(function, plans[:LOOPED])
    }  # fmt: skip
    values, errors = _field(rng)
    first = {name: way(values, errors) for name, way in ways.items()}  # makes what is made once
    _check(function, first)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        say(f"{function}: tick {number + 1} of {ROUNDS}")
        values, errors = _field(rng)
        for name, way in ways.items():
            begin = process_time()
            way(values, errors)
            seconds[name].append(process_time() - begin)
    scale = {"xarray": len(boxes) / min(LOOPED, len(boxes))}
    return [
        {
            "function": function, "system": name, "operators": len(boxes), "points": list(GRID.shape),
            "cpu_seconds_per_tick": median(found) * scale.get(name, 1.0),
            "ticks_per_second": 1 / (median(found) * scale.get(name, 1.0)),
            "compile_seconds": compiling if name == "sensorgrid" else None,
        }
        for name, found in seconds.items()
    ]  # fmt: skip


class _Ours:
    """Plans side by side."""

    def __init__(self, plans: list[OperatorPlan]) -> None:
        self.batch, self.tick = PlanBatch(plans), 0

    def __call__(self, values: Any, errors: Any) -> Floats:
        self.tick += 1
        self.batch.take(self.tick, self.batch.boxes[0], {"air_temperature": (values, errors, None)})
        found = self.batch.results(self.tick)
        self.batch.forget(self.tick + 1)
        return found.value


class _Vectorised:
    """One NumPy program for all areas."""

    def __init__(self, function: str, plans: list[OperatorPlan]) -> None:
        found = [plan.terms[0].whole.indices() for plan in plans]
        lengths = [len(points) for points, _ in found]
        self.function = function
        self.points, self.weights = (np.concatenate(part) for part in zip(*found, strict=True))
        self.starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        self.total = np.add.reduceat(self.weights, self.starts)
        self.area = np.repeat(np.arange(len(plans)), lengths)

    def __call__(self, values: Any, errors: Any) -> Floats:
        found = values.ravel()[self.points].astype(np.float64)
        if self.function == "max":
            return np.asarray(np.maximum.reduceat(found, self.starts))
        mean = np.add.reduceat(found * self.weights, self.starts) / self.total
        if self.function == "mean":
            np.add.reduceat(errors.ravel()[self.points] * self.weights, self.starts) / self.total
            return np.asarray(mean)
        if self.function == "std":
            apart = (found - mean[self.area]) ** 2
            return np.asarray(np.sqrt(np.add.reduceat(apart * self.weights, self.starts) / self.total))
        order = np.lexsort((found, self.area))
        until = np.cumsum(self.weights[order])
        before = np.concatenate([[0.0], until[self.starts[1:] - 1]])
        return np.asarray(found[order][np.searchsorted(until, before + SHARE * self.total)])


class _Looped:
    """An xarray expression for each area."""

    def __init__(self, function: str, plans: list[OperatorPlan]) -> None:
        self.function = function
        (dx, dy), (west, south), (nx, ny) = GRID.spacing, GRID.extent[:2], GRID.shape
        self.coords = {
            "latitude": south + (np.arange(ny) + 0.5) * dy,
            "longitude": west + (np.arange(nx) + 0.5) * dx,
        }
        self.areas = []
        for plan in plans:
            points, weights = plan.terms[0].whole.indices()
            whole = np.zeros((ny, nx))
            whole.ravel()[points] = weights
            y, x = np.divmod(points, nx)
            place = {"latitude": slice(y.min(), y.max() + 1), "longitude": slice(x.min(), x.max() + 1)}
            field = xr.DataArray(whole, self.coords, ("latitude", "longitude"))
            self.areas.append((place, field.isel(place).copy()))

    def __call__(self, values: Any, errors: Any) -> Floats:
        field, stated = (xr.DataArray(a, self.coords, ("latitude", "longitude")) for a in (values, errors))
        found = []
        for place, weights in self.areas:
            part = field.isel(place)
            weighted = part.weighted(weights)
            if self.function == "mean":
                stated.isel(place).weighted(weights).mean()
                found.append(float(weighted.mean()))
            elif self.function == "max":
                found.append(float(part.max()))
            elif self.function == "std":
                found.append(float(weighted.std()))
            else:
                found.append(float(weighted.quantile(SHARE)))
        return np.array(found)


def _check(function: str, found: dict[str, Floats]) -> None:
    """All ways must find the same, within the width of a bin for percentiles."""
    slack = 0.3 if function == "percentile" else 1e-4
    for name in ("numpy", "xarray"):
        worst = float(np.abs(found["sensorgrid"][: len(found[name])] - found[name]).max())
        assert worst < slack, (
            f"{function}: found {worst} between sensorgrid and {name}, expected less than {slack}"
        )


def _equal(rng: np.random.Generator) -> list[Row]:
    """One operator, and many that share its terms and differ in what they compare them with."""
    shared = "mean(air_temperature, BBOX(-10, 35, 30, 60)) - std(air_temperature, BBOX(-10, 35, 30, 60)) * 2"
    counts = {1: _Ours([compile(f"{shared} > 270", GRID)])}
    counts[EQUAL] = _Ours([compile(f"{shared} > {260 + n / 10}", GRID) for n in range(EQUAL)])
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    for number in range(4 * ROUNDS):
        values, errors = _field(rng)
        for count, way in counts.items():
            begin = process_time()
            way(values, errors)
            if number >= 2:
                seconds[count].append(process_time() - begin)
    return [
        {
            "function": "equal terms", "system": "sensorgrid", "operators": count, "points": list(GRID.shape),
            "cpu_seconds_per_tick": median(found), "ticks_per_second": 1 / median(found), "compile_seconds": None,
        }
        for count, found in seconds.items()
    ]  # fmt: skip


def ratios(rows: list[Row]) -> list[Row]:
    """How many times as fast as a loop, and how many times as slow as one program; and what equal terms cost."""
    by = {(row["function"], row["system"], row["operators"]): row["cpu_seconds_per_tick"] for row in rows}
    found = []
    for function in FUNCTIONS:
        count = next(row["operators"] for row in rows if row["function"] == function)
        ours = by[function, "sensorgrid", count]
        found.append(
            {
                "function": function, "operators": count, "times_xarray": by[function, "xarray", count] / ours,
                "of_numpy": ours / by[function, "numpy", count],
            }
        )  # fmt: skip
    equal = by["equal terms", "sensorgrid", EQUAL] / by["equal terms", "sensorgrid", 1]
    return [*found, {"function": "equal terms", "operators": EQUAL, "of_one": equal}]


def summary(rows: list[Row]) -> list[tuple[str, str, str]]:
    """What is asked, what was found, whether it holds."""
    lines = []
    for row in ratios(rows):
        if "of_one" in row:
            holds = "yes" if row["of_one"] <= 1.2 else "no"
            lines.append(
                (f"{EQUAL} with equal terms, at most 1.2 times one", f"{row['of_one']:.2f} ×", holds)
            )
            continue
        name = f"{row['operators']:,} × {row['function']}"
        holds = "yes" if row["times_xarray"] >= 100 else "no"
        lines.append((f"{name}, at least 100 times xarray", f"{row['times_xarray']:,.0f} ×", holds))
        holds = "yes" if row["of_numpy"] <= 3 else "no"
        lines.append((f"{name}, at most 3 times one NumPy program", f"{row['of_numpy']:.2f} ×", holds))
    return lines
