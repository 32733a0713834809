"""How true the grids are on real readings: every station network of the data folder, stations left out by folds.

Calls what `sensorgrid pipeline verify` calls, with two more opinions: gridpp and PyKrige on the same readings after
the same checks. Small networks (three sensors for a day, twelve for a week, one) are cut out of the large ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from sensorgrid.benchmarks.reality_peers import peers
from sensorgrid.benchmarks.reality_sets import FEEDS, PM25, SMALL, Dataset, network, table_of
from sensorgrid.benchmarks.truth import data_folder
from sensorgrid.pipeline.gridding.kernels import DEFAULT
from sensorgrid.pipeline.verification.engine import estimate, learn
from sensorgrid.pipeline.verification.network import StationNetwork
from sensorgrid.pipeline.verification.scores import BIN_MIN, rows_of
from sensorgrid.pipeline.verification.trial import FoldEstimates, Heard, Method, Trial, blind
from sensorgrid.pipeline.verification.verify import METHODS, verify

Row = dict[str, Any]
Say = Callable[[str], None]

STATIONS_MIN = 30
"""fewer make a small network"""
LARGE = 1500
"""stations from which on a network is run in fewer folds and ticks"""

OURS = "sensorgrid"
"""our check, in rows of checks"""

RATIO_MEAN_MAX, RATIO_HIGH_MAX, RATIO_MAX, RATIO_PEER_MAX = 0.95, 0.90, 1.02, 1.02
WITHIN, WITHIN_SETS_MIN = (0.60, 0.76), 0.90
WITHIN_BIN, WITHIN_BINS_MIN = (0.55, 0.80), 0.85
SMALL_WITHIN = (0.55, 0.80)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    ticks: int
    """of a usual set"""
    ticks_busiest: int
    """of a set whose worst hours are taken"""
    ticks_large: int
    """of a set of many stations"""
    folds: int
    """that are run, of ten"""
    folds_large: int
    """the same for a set of many stations"""
    small: int
    """networks of each small kind, out of every feed that lasts long enough"""
    small_feeds: bool
    """whether large networks are cut, too, or only the city of twelve stations"""
    attributes: int
    """of a feed"""


FULL = Effort(
    ticks=8, ticks_busiest=60, ticks_large=3, folds=5, folds_large=2, small=4, small_feeds=True, attributes=9
)
QUICK = Effort(
    ticks=2, ticks_busiest=6, ticks_large=1, folds=2, folds_large=1, small=1, small_feeds=False, attributes=1
)
FOLDS = 10


def run(
    quick: bool = False, seed: int = 1, report: Say = print, folder: Path | None = None
) -> tuple[list[Row], list[str]]:
    """All rows of one seed: each set with each method; and why some methods are not among them."""
    effort, place = QUICK if quick else FULL, data_folder(folder, FEEDS[0].name)
    methods, left_out = peers()
    rows: list[Row] = []
    for feed in FEEDS:
        report(f"reading {feed.name}")
        table = table_of(feed, place)
        for attribute in list(feed.attributes)[: effort.attributes]:
            drawn = drawn_from(feed, table, attribute, effort)
            if len(drawn) < STATIONS_MIN:
                continue
            folds = effort.folds_large if len(drawn) >= LARGE else effort.folds
            rows += _rows(drawn, feed.name, "set", methods, FOLDS, folds, seed, report)
        if effort.small_feeds:
            rows += _small(feed, table, effort, seed, report)
    report(f"reading {SMALL.name}")
    rows += _small(SMALL, table_of(SMALL, place), effort, seed, report)
    return rows, list(left_out)


def drawn_from(feed: Dataset, table: Any, attribute: str, effort: Effort) -> StationNetwork:
    """One attribute of a feed, at as many ticks as the effort allows."""
    stations = table["sensor"].nunique()
    ticks = effort.ticks_large if stations >= LARGE else effort.ticks
    return network(feed, table, attribute, effort.ticks_busiest if feed.busiest else ticks)


def _rows(
    drawn: StationNetwork,
    name: str,
    kind: str,
    methods: tuple[Method, ...],
    folds: int,
    folds_run: int | None,
    seed: int,
    report: Say,
) -> list[Row]:
    rows: list[Row] = []
    for found in verify(drawn, folds, seed, methods, folds_run, report):
        chosen = sorted({learnt.kernel for learnt in found.learnt})
        more = {
            "set": name, "kind": kind, "seed": seed, "ticks": len(drawn.moments),
            "elevation": drawn.elevation is not None, "chosen": chosen, "why": found.learnt[0].why,
        }  # fmt: skip
        rows += [more | row for row in found.rows]
    return rows


# small networks


def _small(feed: Dataset, table: Any, effort: Effort, seed: int, report: Say) -> list[Row]:
    """Three sensors for a day, twelve for a week, and one, cut out of a feed whose readings last that long."""
    day = round(86400 / feed.tick_s)
    tick = (
        table["time"].astype("datetime64[us, UTC]").astype("int64") // round(feed.tick_s * 1e6)
    ).to_numpy()
    first, last = int(tick.min()), int(tick.max())
    rows: list[Row] = []
    attribute = next(iter(feed.attributes))
    if len(np.unique(tick)) < day:
        return rows
    rng = np.random.default_rng([seed, len(table)])
    for kind, sensors, ticks in (
        ("three sensors", 3, day),
        ("twelve sensors", 12, 7 * day),
        ("one sensor", 1, day),
    ):
        if last - first < ticks:
            continue
        for _ in range(effort.small):
            begin = int(rng.integers(first, last - ticks + 1))
            whole = network(feed, table, attribute, ticks, (begin, begin + ticks - 1))
            cut = _cluster(whole, sensors, rng)
            if cut is None:
                continue
            if sensors == 1:
                rows += _alone(cut, feed.name, seed)
            else:
                rows += _rows(cut, feed.name, kind, METHODS, sensors, None, seed, report)
    return rows


def _cluster(whole: StationNetwork, count: int, rng: np.random.Generator) -> StationNetwork | None:
    """Some station and those nearest to it, all of which report most of the time; None if there are not enough."""
    heard = np.zeros(len(whole), int)
    for moment in whole.moments:
        heard[np.unique(moment.station[moment.fresh])] += 1
    lively = np.flatnonzero(heard >= 0.7 * len(whole.moments))
    if len(lively) < count or len(whole.moments) < 2:
        return None
    places = whole.positions[lively]
    near = cKDTree(places).query(places[rng.integers(len(lively))], k=np.arange(1, count + 1))[1]
    return whole.only(lively[near], whole.name)


def _alone(cut: StationNetwork, name: str, seed: int) -> list[Row]:
    """One sensor: what it says next, from what it said before; fitted to the first half, scored in the second."""
    half = len(cut.moments) // 2
    number = 0
    learnt = learn([m.outputs[number] for m in cut.moments[:half]], cut.attributes[number])
    told: dict[str, list[Any]] = {method.name: [] for method in METHODS}
    for before, after in zip(cut.moments[half:-1], cut.moments[half + 1 :], strict=True):
        if not (before.fresh.any() and after.fresh.any()):
            continue
        old, new = before.outputs[number], after.outputs[number]
        old = replace(old, age_s=old.age_s + (after.end_us - before.end_us) / 1e6)
        for method in METHODS:
            kernel = learnt.kernel if method.name == DEFAULT else method.name
            said = estimate(kernel, old, blind(new), learnt)
            told[method.name].append(
                (new.values, said.values, said.lower, said.upper, np.zeros(len(new)), after.station,
                 np.full(len(new), after.end_us))
            )  # fmt: skip
    if not told[DEFAULT]:
        return []
    pooled = {
        n: FoldEstimates(*(np.concatenate(c) for c in zip(*parts, strict=True))) for n, parts in told.items()
    }
    values = np.concatenate([m.outputs[number].values for m in cut.moments])
    none = np.zeros(len(values), np.bool_)
    heard = Heard(values, none, np.zeros(len(values), np.int64), np.zeros(len(values), np.int64))
    trial = Trial(pooled, heard, learnt, dict.fromkeys(pooled, (0, 0)))
    more = {
        "set": name, "kind": "one sensor", "seed": seed, "ticks": len(cut.moments), "elevation": False,
        "chosen": [learnt.kernel], "why": learnt.why,
    }  # fmt: skip
    return [more | row for row in rows_of(cut.attributes[number], [trial], 1)]


# what the rows amount to


def summary(rows: list[Row], checks: list[Row]) -> list[Row]:
    """One entry per figure, with what was found, what is asked, and whether it holds."""
    sets = _by_set(rows)
    mine = [found[DEFAULT] for found in sets.values()]
    ratios = np.array([row["ratio_to_idw"] for row in mine])
    high = np.array([row["ratio_to_idw"] for row in mine if row["elevation"]])
    figures = [
        _figure("mean RMSE against inverse distance", _geometric(ratios), at_most=RATIO_MEAN_MAX),
        _figure(
            "mean RMSE against inverse distance, with elevation", _geometric(high), at_most=RATIO_HIGH_MAX
        ),
        _figure("worst RMSE against inverse distance", ratios.max(), at_most=RATIO_MAX, where=_worst(mine)),
    ]
    against = {
        _name(found[DEFAULT]): found[DEFAULT]["rmse"]
        / min(r["rmse"] for n, r in found.items() if n != DEFAULT)
        for found in sets.values()
    }
    worst = max(against, key=lambda name: against[name])
    figures.append(
        _figure("worst RMSE against the best peer", against[worst], at_most=RATIO_PEER_MAX, where=worst)
    )
    weights = [row["readings"] for row in mine]
    share = float(np.average([row["within_one"] for row in mine], weights=weights))
    figures.append(_figure("pooled within_one", share, *WITHIN))
    honest = [WITHIN[0] <= row["within_one"] <= WITHIN[1] for row in mine]
    figures.append(_figure("sets with honest errors", np.mean(honest), WITHIN_SETS_MIN))
    for name, what in (("within_by_level", "levels"), ("within_by_distance", "distances")):
        bins = [x for row in mine if row["readings"] >= BIN_MIN * len(row[name]) for x in row[name]]
        good = [WITHIN_BIN[0] <= x <= WITHIN_BIN[1] for x in bins]
        figures.append(_figure(f"honest bins by {what}", np.mean(good) if good else 0.0, WITHIN_BINS_MIN))
    impossible = max(row["negative_share"] for row in rows if row["kernel"] == DEFAULT)
    figures.append(_figure("values outside the physical range", impossible, at_most=0.0))
    for kind in ("three sensors", "twelve sensors", "one sensor"):
        small = [row for row in rows if row["kind"] == kind and row["kernel"] == DEFAULT]
        if small:
            count = [row["readings"] for row in small]
            share = float(np.average([row["within_one"] for row in small], weights=count))
            figures.append(_figure(f"{kind}: pooled within_one", share, *SMALL_WITHIN))
            ratio = _geometric(np.array([row["ratio_to_idw"] for row in small]))
            figures.append(_figure(f"{kind}: mean RMSE against inverse distance", ratio, at_most=RATIO_MAX))
    return figures + _checks_summary(checks)


def _checks_summary(checks: list[Row]) -> list[Row]:
    ours = [row for row in checks if row["check"] == OURS and row["kind"] == "injected"]
    if not ours:
        return []
    figures = []

    def pooled(part: str, whole: str, rows: list[Row]) -> float:
        total = sum(row[whole] for row in rows)
        return sum(row[part] for row in rows) / total if total else 1.0

    recall = pooled("caught", "faults", ours)
    figures.append(_figure("injected faults caught", recall, 0.95))
    figures.append(_figure("good readings refused", pooled("refused_good", "good", ours), at_most=0.005))
    figures.append(_figure("corroborated extremes used", pooled("extremes_used", "extremes", ours), 0.98))
    theirs = [row for row in checks if row["check"] == "titanlib sct" and row["kind"] == "injected"]
    if theirs:
        other = sum(row["recall_at_our_rate"] * row["faults"] for row in theirs) / sum(
            r["faults"] for r in theirs
        )
        figures.append(_figure("recall less titanlib's at the same rate of refusals", recall - other, 0.0))
    return figures


def _by_set(rows: list[Row]) -> dict[tuple[Any, ...], dict[str, Row]]:
    sets: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if row["kind"] == "set":
            sets.setdefault((row["set"], row["attribute"], row["seed"]), {})[row["kernel"]] = row
    return sets


def _figure(
    name: str, found: Any, at_least: float | None = None, at_most: float | None = None, where: str = ""
) -> Row:
    value = float(found)
    holds = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
    if at_least is not None and at_most is not None:
        expected = f"{at_least} to {at_most}"
    else:
        expected = f"at least {at_least}" if at_most is None else f"at most {at_most}"
    return {"figure": name, "found": value, "expected": expected, "holds": bool(holds), "where": where}


def _geometric(ratios: Any) -> float:
    return float(np.exp(np.log(ratios).mean())) if len(ratios) else 1.0


def _name(row: Row) -> str:
    return f"{row['set']} {row['attribute'] if row['attribute'] != PM25 else 'pm2p5'}"


def _worst(rows: list[Row]) -> str:
    return _name(max(rows, key=lambda row: row["ratio_to_idw"]))
