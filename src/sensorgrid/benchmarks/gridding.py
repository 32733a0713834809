"""How good the grids are: real fields, sampled where real stations stand, gridded, compared with the field.

A *set* is a field at one time and a network of stations. The field is sampled at the stations (bilinear),
noise is added (5, 10 or 20 % of the field's standard deviation, by turns) and 2 % of the readings are made
faulty: half are off by 4 to 12 standard deviations, half are the reading of some other station. Parameters
are fitted on nothing but such observations: those of the tick and of up to two earlier ones. One neighbour
check, with these parameters, serves all kernels.

Stations: at most one per cell of the field's own grid; none where the field is missing. Scored are the
field's grid points that are not missing, thinned towards the poles so that every area counts the same, and
not farther from a station than twice the distance which isolated stations (the 95th percentile) have to
their nearest. That keeps the gaps between stations in and the empty oceans beyond out, for all kernels alike.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from sensorgrid.benchmarks.truth import Truth, data_folder, stations, truths
from sensorgrid.pipeline.gridding.calibration import fit, prior
from sensorgrid.pipeline.gridding.kernels import CHEAP, DEFAULT, kernel_by_name
from sensorgrid.pipeline.gridding.kernels.interface import Field, Floats, Observations, Parameters, metres
from sensorgrid.pipeline.gridding.neighbours import reject_outliers

Row = dict[str, Any]

FAULTY = 0.02
"""share of readings that are wrong"""
NOISES = (0.05, 0.1, 0.2)
"""of the field's standard deviation, by turns"""
TICKS = 3
"""on which parameters are fitted: the one that is gridded, and earlier ones"""
STATIONS_MIN = 40
"""fewer make no set"""
TILE = 64
"""points along a side of the tile on which kernels are timed"""
PEERS = ("nearest", "inverse_distance")
"""whom the default has to beat"""
TIMED = (*PEERS, DEFAULT)
"""kernels that every set is gridded with"""

RMSE_SHARE_MIN, RMSE_LOSS_MAX, RMSE_MEAN_MAX = 0.85, 1.05, 0.90
WITHIN, WITHIN_SET, WITHIN_SETS_MIN = (0.60, 0.76), (0.55, 0.80), 0.85
COST_MAX = 20.0

_AMERICA = ("asos", "sao", "metar")
NETWORKS_OF: dict[str, tuple[str, ...]] = {
    "era5-uk": ("metar", "wmo"),
    "era5": ("metar", "wmo", "sao"),
    "gfs": ("metar", "norway", "wmo"),
    "gfs-america": (*_AMERICA, "airnow"),
    "nmc-storm": _AMERICA,
    "coads": ("metar", "wmo", "buoys"),
    "wind-europe": ("metar", "wmo"),
}
"""networks that stand in the area of each data set, the one for quick runs first"""


@dataclass(frozen=True, slots=True)
class GriddingCase:
    """One set: a field at a time, a network, a level of noise."""

    truth: Truth
    """what is to be found"""
    network: str
    """which stations observe it"""
    time: int
    """index of the field's time"""
    noise: float
    """of an observation, as a share of the field's standard deviation"""


@dataclass(frozen=True, slots=True)
class Sample:
    """What is known of a set, and what is to be estimated."""

    ticks: list[Observations]
    """what stations reported, faults and all; the last is the one to grid"""
    points: Floats
    """(m, 3) grid points in metres"""
    wanted: Floats
    """(m,) the truth there"""
    faulty: npt.NDArray[np.bool_]
    """(n,) which observations of the last tick were spoilt"""
    tile: Floats
    """(4096, 3) a tile to time kernels on"""


def run(
    quick: bool = False,
    seed: int = 1,
    report: Callable[[str], None] = print,
    folder: Path | None = None,
) -> list[Row]:
    """All rows of one seed: each set with each kernel; `report` hears what is being measured."""
    rows: list[Row] = []
    for number, case in enumerate(cases(data_folder(folder), quick, seed)):
        rng = np.random.default_rng([seed, number])
        drawn = sample(case, data_folder(folder), rng, points_max=1500 if quick else 6000)
        if drawn is None:
            continue
        report(f"{case.truth.name}, {case.network}: {len(drawn.ticks[-1])} stations")
        rows += _rows(case, drawn, seed, rounds=3 if quick else 5)
    return rows


def summary(rows: list[Row]) -> list[Row]:
    """What the rows amount to: one entry per figure, with what was found, what is asked, and whether it holds.

    Pooled shares count every grid point of every set once; thirds of the stated error are thirds within
    each set, because a kelvin and a pascal cannot be put in order.
    """
    sets: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        sets.setdefault((row["truth"], row["stations"], row["seed"]), {})[row["kernel"]] = row
    mine = [found[DEFAULT] for found in sets.values()]
    ratios = {peer: np.array([f[DEFAULT]["rmse"] / f[peer]["rmse"] for f in sets.values()]) for peer in PEERS}
    worst = np.max(list(ratios.values()), axis=0)
    mean = float(np.exp(np.log(ratios[CHEAP]).mean()))
    fields = len({row["truth"] for row in mine})
    figures = [
        _figure("fields", fields, "at least 10", fields >= 10),
        _figure("sets", len(mine), "at least 20", len(mine) >= 20),
        _figure("sets where kriging beats both", float((worst < 1).mean()), f"at least {RMSE_SHARE_MIN}",
                (worst < 1).mean() >= RMSE_SHARE_MIN),
        _figure("worst RMSE against the better peer", float(worst.max()), f"at most {RMSE_LOSS_MAX}",
                worst.max() <= RMSE_LOSS_MAX),
        _figure("mean RMSE against inverse distance", mean, f"at most {RMSE_MEAN_MAX}", mean <= RMSE_MEAN_MAX),
    ]  # fmt: skip
    weights = [row["points"] for row in mine]
    low, high = WITHIN
    for name in ("within_one_error", "within_low", "within_mid", "within_high"):
        share = float(np.average([row[name] for row in mine], weights=weights))
        figures.append(_figure(f"pooled {name}", share, f"{low} to {high}", low <= share <= high))
    honest = np.mean([WITHIN_SET[0] <= row["within_one_error"] <= WITHIN_SET[1] for row in mine])
    asked = f"at least {WITHIN_SETS_MIN}"
    figures.append(_figure("sets with honest errors", float(honest), asked, honest >= WITHIN_SETS_MIN))
    costs = [f[DEFAULT]["seconds_per_tile"] / f[CHEAP]["seconds_per_tile"] for f in sets.values()]
    cost = float(np.median(costs))
    figures.append(
        _figure("cost of a tile against inverse distance", cost, f"at most {COST_MAX:g}", cost <= COST_MAX)
    )
    return figures


def _figure(name: str, found: float, expected: str, holds: Any) -> Row:
    return {"figure": name, "found": found, "expected": expected, "holds": bool(holds)}


def cases(folder: Path, quick: bool, seed: int) -> list[GriddingCase]:
    """Every field with its networks; a quick run takes one network for each field."""
    found: list[GriddingCase] = []
    for number, truth in enumerate(truths(folder).values()):
        networks = NETWORKS_OF[truth.name.split(" ")[0]]
        if quick:
            networks = (networks[number % len(networks)],)
        for network in networks:
            rng = np.random.default_rng([seed, len(found)])
            moment = int(rng.choice(np.flatnonzero(np.isfinite(truth.values).any(axis=(1, 2)))))
            found.append(GriddingCase(truth, network, moment, NOISES[len(found) % len(NOISES)]))
    return found


def sample(case: GriddingCase, folder: Path, rng: np.random.Generator, points_max: int) -> Sample | None:
    """Draw one set; None if fewer than `STATIONS_MIN` stations stand in the field."""
    truth = case.truth
    places = rng.permutation(stations(folder, case.network))
    places = places[np.isfinite(truth.at(places[:, 0], places[:, 1], case.time))]
    step_x, step_y = truth.longitude[1] - truth.longitude[0], truth.latitude[1] - truth.latitude[0]
    cell = np.floor(np.stack([(places[:, 0] % 360) / step_x, (places[:, 1] + 90) / step_y], axis=-1))
    places = places[np.sort(np.unique(cell, axis=0, return_index=True)[1])]
    if len(places) < STATIONS_MIN:
        return None
    positions = metres(places[:, 0], places[:, 1], "geographic")
    ticks = []
    for moment in range(max(case.time - TICKS + 1, 0), case.time + 1):
        true = truth.at(places[:, 0], places[:, 1], moment)
        known = np.isfinite(true)
        if known.sum() >= STATIONS_MIN:
            observed, faulty = _observe(true[known], case.noise, rng)
            ticks.append(Observations(positions[known], observed, np.zeros(len(observed))))
    points, wanted = _scored_points(truth, case.time, positions, rng, points_max)
    return Sample(ticks, points, wanted, faulty, _tile(truth))


def _observe(true: Floats, noise: float, rng: np.random.Generator) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """With noise, and a few readings that are wrong."""
    deviation = float(np.std(true))
    observed = true + rng.normal(0.0, noise * deviation, len(true))
    faulty = np.zeros(len(true), np.bool_)
    chosen = rng.choice(len(true), max(round(FAULTY * len(true)), 1), replace=False)
    faulty[chosen] = True
    off, swapped = chosen[::2], chosen[1::2]
    observed[off] += rng.choice([-1.0, 1.0], len(off)) * rng.uniform(4.0, 12.0, len(off)) * deviation
    observed[swapped] = observed[rng.integers(len(true), size=len(swapped))]
    return observed, faulty


def _scored_points(
    truth: Truth, moment: int, positions: Floats, rng: np.random.Generator, points_max: int
) -> tuple[Floats, Floats]:
    east, north = truth.grid_points()
    wanted = truth.values[moment, :, : east.shape[1]]
    known = np.isfinite(wanted) & (rng.random(east.shape) < np.cos(np.radians(north)))
    points, wanted = metres(east[known], north[known], "geographic"), wanted[known]
    tree = cKDTree(positions)
    isolated = float(np.quantile(tree.query(positions, k=[2])[0], 0.95))
    near = np.flatnonzero(tree.query(points)[0] <= 2.0 * isolated)
    if len(near) > points_max:
        near = np.sort(rng.choice(near, points_max, replace=False))
    return points[near], wanted[near]


def _tile(truth: Truth) -> Floats:
    """64 × 64 points in the middle of the field, at its own resolution or finer."""
    axes = []
    for axis in (truth.longitude, truth.latitude):
        half = min((TILE - 1) * (axis[1] - axis[0]), axis[-1] - axis[0]) / 2
        axes.append(np.linspace((axis[0] + axis[-1]) / 2 - half, (axis[0] + axis[-1]) / 2 + half, TILE))
    east, north = np.meshgrid(*axes)
    return metres(east.ravel(), north.ravel(), "geographic")


def _rows(case: GriddingCase, drawn: Sample, seed: int, rounds: int) -> list[Row]:
    began = time.perf_counter()
    parameters = fit(drawn.ticks, prior(""))
    fit_seconds = time.perf_counter() - began
    tick = drawn.ticks[-1]
    rejected = reject_outliers(tick, parameters)
    kept = Observations(tick.positions[~rejected], tick.values[~rejected], tick.age_s[~rejected])
    seconds = _seconds_per_tile(kept, drawn.tile, parameters, rounds)
    rows = []
    for name in TIMED:
        field = kernel_by_name(name)(kept, drawn.points, parameters)
        rows.append(
            {
                "truth": case.truth.name,
                "stations": case.network,
                "kernel": name,
                **_skill(field, drawn.wanted),
                "seconds_per_tile": seconds[name],
                "seed": seed,
                "time": case.time,
                "noise": case.noise,
                "observations": len(tick),
                "points": len(drawn.points),
                "faulty": int(drawn.faulty.sum()),
                "faulty_rejected": int((rejected & drawn.faulty).sum()),
                "good_rejected": int((rejected & ~drawn.faulty).sum()),
                "seconds_to_fit": fit_seconds,
            }
        )
    return rows


def _skill(field: Field, wanted: Floats) -> Row:
    """Errors of the estimate, and how often the stated error covers them: overall and by its thirds."""
    miss = np.abs(field.values - wanted)
    within = miss <= field.error
    low, mid, high = np.array_split(np.argsort(field.error, kind="stable"), 3)
    return {
        "rmse": float(np.sqrt(np.mean(miss**2))),
        "mae": float(np.mean(miss)),
        "within_one_error": float(within.mean()),
        "within_low": float(within[low].mean()),
        "within_mid": float(within[mid].mean()),
        "within_high": float(within[high].mean()),
    }


def _seconds_per_tile(
    observations: Observations, tile: Floats, parameters: Parameters, rounds: int
) -> dict[str, float]:
    """Median over rounds in which the kernels take turns, after one to warm up.

    Of the processor's time: what else runs on the machine does not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in TIMED}
    for turn in range(rounds + 1):
        for name in seconds:
            began = time.process_time()
            kernel_by_name(name)(observations, tile, parameters)
            if turn:
                seconds[name].append(time.process_time() - began)
    return {name: float(np.median(found)) for name, found in seconds.items()}
