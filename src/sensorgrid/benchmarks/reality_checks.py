"""How good the neighbour check is: faults put into real readings, real extremes, and what titanlib makes of both.

*Injected*: of the fresh readings of each tick, 2 % (one at least) are moved by 6 to 12 stated errors of the next
reading there, up or down, in the attribute's transform, as far as the limits of the climate allow. What is fitted is
fitted to readings with the faults in them. *Good* are all others, the real faults among them.

*Extremes*: readings in the top percent of the set which another sensor within 50 km (in a laboratory: within twice
the usual distance of neighbours) and an hour corroborates by reading in the top five percent.

titanlib gets the same readings in the same transform. Its checks are run with several thresholds, which gives pairs
of recall and rate of refusals; its recall at our rate lies on the line between them.

*Labelled*: the motes of wsn-labelled-2010, whose faults were introduced by people. Four motes are too few for any
neighbour check; what catches them is the check of each series against its own past.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from sensorgrid.benchmarks.reality import FULL, LARGE, OURS, QUICK, STATIONS_MIN, Row, drawn_from
from sensorgrid.benchmarks.reality_peers import degrees
from sensorgrid.benchmarks.reality_sets import FEEDS, limits_of, table_of
from sensorgrid.benchmarks.truth import data_folder
from sensorgrid.pipeline.gridding.kernels.interface import Floats
from sensorgrid.pipeline.gridding.measurements import Measurements, deduplicate
from sensorgrid.pipeline.gridding.series import Past, check_series
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.verification.engine import Learnt, bent, estimate, learn, listen, straightened
from sensorgrid.pipeline.verification.network import Bools, Moment, StationNetwork

FAULTY = 0.02
ERRORS = (6.0, 12.0)
"""by how many stated errors a fault is off"""
TOP, TOP_WITNESS = 0.99, 0.95
NEAR_M = 50_000.0
STATIONS_MAX = 1000
"""of a large network, those nearest to one of them are taken: titanlib looks at many pairs"""
SCT = (2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0)
BUDDY = (1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
_COUNTRY_M, _DEGREE_M = 10_000.0, 111_195.0
LABELLED = "wsn-labelled-2010"


@dataclass(frozen=True, slots=True)
class Spoilt:
    """A network with faults in it."""

    network: StationNetwork
    faulty: tuple[Bools, ...]
    """for each moment, which observations are wrong"""


def run(
    quick: bool = False, seed: int = 1, report: Callable[[str], None] = print, folder: Path | None = None
) -> tuple[list[Row], list[str]]:
    """A row for each set and check; and why titanlib is not among them, if it is not."""
    effort, place = QUICK if quick else FULL, data_folder(folder, FEEDS[0].name)
    left_out = [] if find_spec("titanlib") else [
        "titanlib: found no package titanlib, expected `pip install 'sensorgrid[bench]'`"
    ]  # fmt: skip
    rows: list[Row] = []
    for feed in FEEDS:
        table = table_of(feed, place)
        for attribute in list(feed.attributes)[: effort.attributes]:
            drawn = drawn_from(feed, table, attribute, effort)
            if len(drawn) < STATIONS_MIN or len(drawn.attributes) > 1:
                continue
            report(f"{drawn.name}: faults")
            rows += set_rows(_crowd(drawn, seed), feed.name, seed, titan=not left_out)
    if (place / LABELLED).is_dir():
        rows += labelled(place / LABELLED, seed)
    else:
        left_out.append(f"{LABELLED}: found no such folder in {place}, expected the labelled readings there")
    return rows, left_out


def _crowd(drawn: StationNetwork, seed: int) -> StationNetwork:
    if len(drawn) < LARGE:
        return drawn
    positions = drawn.positions
    middle = positions[np.random.default_rng(seed).integers(len(drawn))]
    return drawn.only(cKDTree(positions).query(middle, k=STATIONS_MAX)[1], drawn.name)


def set_rows(drawn: StationNetwork, name: str, seed: int, titan: bool) -> list[Row]:
    """Ours, and titanlib's three, on one network of one attribute."""
    clean = learn([m.outputs[0] for m in drawn.moments], drawn.attributes[0])
    spoilt = spoil(drawn, clean, seed)
    learnt = learn([m.outputs[0] for m in spoilt.network.moments], drawn.attributes[0])
    refused = [listen(m.outputs, [learnt])[0] for m in spoilt.network.moments]
    untouched = [listen(m.outputs, [clean])[0] for m in drawn.moments]
    extremes = list(corroborated(drawn))
    used = sum(int((~r[e]).sum()) for r, e in zip(untouched, extremes, strict=True))
    counts = _counts(spoilt, refused)
    ours: Row = {"set": name, "attribute": drawn.attributes[0], "kind": "injected", "seed": seed, **counts}
    ours |= {
        "check": OURS,
        "extremes": int(sum(e.sum() for e in extremes)),
        "extremes_used": used,
        "threshold": None,
    }
    ours |= {"recall_at_our_rate": ours["recall"]}
    if not titan:
        return [ours]
    rows = [ours]
    for check, thresholds in (
        ("titanlib sct", SCT),
        ("titanlib buddy", BUDDY),
        ("titanlib isolation", (1.0,)),
    ):
        rows.append(ours | _titan_row(check, thresholds, drawn, spoilt, clean, extremes, counts["rate"]))
    return rows


def spoil(drawn: StationNetwork, clean: Learnt, seed: int) -> Spoilt:
    """Put faults into fresh readings: each is off by six stated errors or more from what the others would say."""
    rng = np.random.default_rng([seed, len(drawn)])
    known = KNOWN.get(drawn.attributes[0])
    low, high = known.usual if known else (-np.inf, np.inf)
    moments, faulty = [], []
    for moment in drawn.moments:
        output = moment.outputs[0]
        fresh = np.flatnonzero(moment.fresh)
        chosen = np.zeros(len(output), np.bool_)
        if len(fresh) > 5:
            chosen[rng.choice(fresh, max(round(FAULTY * len(fresh)), 1), replace=False)] = True
        values = output.values.copy()
        there = output.without(~chosen)
        if len(there):
            said = estimate(clean.kernel, listen([output.without(chosen)], [clean])[1][0], there, clean)
            lower, upper = straightened(said.lower, clean), straightened(said.upper, clean)
            middle, error = (lower + upper) / 2, np.maximum((upper - lower) / 2, 1e-12)
            off = rng.uniform(*ERRORS, len(there)) * error * rng.choice([-1.0, 1.0], len(there))
            found, other = bent(middle + off, clean), bent(middle - off, clean)
            found = np.where(_possible(found, middle, error, low, high, clean), found, other)
            good = _possible(found, middle, error, low, high, clean)
            values[chosen] = np.where(good, found, values[chosen])
            chosen[np.flatnonzero(chosen)[~good]] = False
        moments.append(replace(moment, outputs=(replace(output, values=values),)))
        faulty.append(chosen)
    return Spoilt(replace(drawn, moments=tuple(moments)), tuple(faulty))


def _possible(
    values: Floats, middle: Floats, error: Floats, low: float, high: float, learnt: Learnt
) -> Bools:
    """Within the climate, and still six errors off after what the physical range has cut away."""
    off = np.abs(straightened(values, learnt) - middle) >= (ERRORS[0] - 1e-6) * error
    found: Bools = (values >= low) & (values <= high) & off
    return found


def _counts(spoilt: Spoilt, refused: Sequence[Bools]) -> Row:
    fresh = [m.fresh for m in spoilt.network.moments]
    faults = sum(int(f.sum()) for f in spoilt.faulty)
    caught = sum(int((r & f).sum()) for r, f in zip(refused, spoilt.faulty, strict=True))
    good = sum(int((~f & n).sum()) for f, n in zip(spoilt.faulty, fresh, strict=True))
    wrong = sum(int((r & ~f & n).sum()) for r, f, n in zip(refused, spoilt.faulty, fresh, strict=True))
    return {
        "faults": faults, "caught": caught, "recall": caught / faults if faults else 1.0,
        "good": good, "refused_good": wrong, "rate": wrong / good if good else 0.0,
    }  # fmt: skip


def corroborated(drawn: StationNetwork) -> Iterator[Bools]:
    """For each moment, fresh readings in the top percent that another station nearby backs within an hour."""
    values = np.concatenate([m.outputs[0].values[m.fresh] for m in drawn.moments])
    top, witness = np.quantile(values, [TOP, TOP_WITNESS])
    positions = drawn.positions
    near = NEAR_M
    if drawn.coordinates == "planar":
        near = 2 * float(np.median(cKDTree(positions).query(positions, k=[2])[0]))
    for moment in drawn.moments:
        output = moment.outputs[0]
        backed = np.zeros(len(output), np.bool_)
        beside = [m for m in drawn.moments if abs(m.end_us - moment.end_us) <= 3_600_000_000]
        for at in np.flatnonzero(moment.fresh & (output.values >= top)):
            backed[at] = any(
                _backs(m, moment.station[at], output.positions[at], near, float(witness)) for m in beside
            )
        yield backed


def _backs(moment: Moment, station: int, place: Floats, near: float, witness: float) -> bool:
    output = moment.outputs[0]
    close = np.linalg.norm(output.positions - place, axis=1) <= near
    return bool((close & moment.fresh & (moment.station != station) & (output.values >= witness)).any())


# titanlib


def _titan_row(
    check: str, thresholds: Sequence[float], drawn: StationNetwork, spoilt: Spoilt, learnt: Learnt,
    extremes: Sequence[Bools], our_rate: float,
) -> Row:  # fmt: skip
    """Its recall at our rate, by the line through all thresholds; the rest is of the threshold nearest to that rate."""
    curve = []
    for threshold in thresholds:
        refused = [_titan(check, m, threshold, drawn, learnt) for m in spoilt.network.moments]
        curve.append(_counts(spoilt, refused) | {"threshold": threshold})
    rates, recalls = (np.array([point[name] for point in curve]) for name in ("rate", "recall"))
    nearest = curve[int(np.argmin(np.abs(rates - our_rate)))]
    refused = [_titan(check, m, nearest["threshold"], drawn, learnt) for m in drawn.moments]
    used = sum(int((~r[e]).sum()) for r, e in zip(refused, extremes, strict=True))
    return nearest | {
        "check": check, "extremes_used": used,
        "recall_at_our_rate": recall_at(our_rate, rates, recalls),
        "curve": [[point["threshold"], point["rate"], point["recall"]] for point in curve],
    }  # fmt: skip


def recall_at(rate: float, rates: Floats, recalls: Floats) -> float:
    """The recall on the line through a check's thresholds, which never falls as more is refused.

    Examples
    --------
    >>> recall_at(0.0, np.array([0.0, 0.0, 0.2]), np.array([0.1, 0.5, 0.9]))
    0.5
    >>> recall_at(0.1, np.array([0.0, 0.0, 0.2]), np.array([0.1, 0.5, 0.9]))
    0.7
    """
    order = np.lexsort((recalls, rates))
    best = np.maximum.accumulate(recalls[order])
    unique, last = np.unique(rates[order][::-1], return_index=True)
    return round(float(np.interp(rate, unique, best[len(best) - 1 - last])), 12)


def _titan(check: str, moment: Moment, threshold: float, drawn: StationNetwork, learnt: Learnt) -> Bools:
    import titanlib

    output = moment.outputs[0]
    x, y = degrees(output.positions)
    usual = float(np.median(cKDTree(output.positions).query(output.positions, k=[min(6, len(x))])[0])) or 1.0
    height = np.zeros(len(x)) if drawn.elevation is None else np.nan_to_num(drawn.elevation[moment.station])
    if drawn.coordinates == "planar":
        # As large as a country and beside the equator: titanlib's consistency test passes everything on a plane.
        scale = _COUNTRY_M / usual / _DEGREE_M
        x, y, usual = (x - x.mean()) * scale, (y - y.mean()) * scale, _COUNTRY_M
    points = titanlib.Points(y, x, height, np.zeros(len(x)))
    # Single precision: kilograms of dust in a cubic metre, squared, would be nothing.
    values = straightened(output.values, learnt)
    values = (values - values.mean()) / (float(np.std(values)) or 1.0)
    count = len(x)
    if check == "titanlib sct":
        limit = np.full(count, threshold)
        found = titanlib.sct(
            points, values, 5, 50, 2 * usual, 6 * usual, 4, 20, 200.0, usual / 2, 400.0, limit, limit,
            np.full(count, 0.5),
        )[0]  # fmt: skip
    elif check == "titanlib buddy":
        found = titanlib.buddy_check(
            points, values, np.full(count, 2 * usual), np.full(count, 5), threshold, 0.0, 0.0, 0.1, 4
        )
    else:
        found = titanlib.isolation_check(points, 3, 4 * usual)
    return np.asarray(found).astype(np.bool_)


# faults that people introduced


def labelled(folder: Path, seed: int) -> list[Row]:
    """The motes whose faults are labelled: caught by the checks of a series, or not."""
    import pandas as pd

    table = pd.read_csv(folder / "readings.csv.gz")
    rows = []
    for name, column, scale, offset in (
        ("air_temperature", "temperature", 1.0, 273.15),
        ("relative_humidity", "humidity", 0.01, 0.0),
    ):
        count = len(table)
        made = Measurements(
            table["mote_id"].to_numpy(np.uint64), table["reading"].to_numpy(np.int64) * 5_000_000,
            table["mote_id"].to_numpy(np.float64), np.zeros(count),
            table[column].to_numpy(np.float64) * scale + offset, np.zeros(count, np.uint8), np.ones(count, np.uint8),
        )  # fmt: skip
        ordered, _ = deduplicate([made])
        checked = check_series(ordered, (limits_of(name),), 600.0, Past.nothing())
        event = dict(zip(zip(table["mote_id"], table["reading"], strict=True), table["label"], strict=True))
        wrong = np.array(
            [
                event[int(m), int(t // 5_000_000)]
                for m, t in zip(ordered.sensor, ordered.time_us, strict=True)
            ],
            bool,
        )
        bad = checked.test > 0
        faults, good = int(wrong.sum()), int((~wrong).sum())
        rows.append(
            {
                "set": LABELLED, "attribute": name, "kind": "labelled", "seed": seed, "check": f"{OURS} series",
                "faults": faults, "caught": int((bad & wrong).sum()), "recall": float(bad[wrong].mean()),
                "good": good, "refused_good": int((bad & ~wrong).sum()), "rate": float(bad[~wrong].mean()),
                "extremes": 0, "extremes_used": 0, "threshold": None, "recall_at_our_rate": float(bad[wrong].mean()),
            }
        )  # fmt: skip
    return rows
