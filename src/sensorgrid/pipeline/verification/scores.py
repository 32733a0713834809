"""What left-out readings say about a method: errors, honesty, and where both are better or worse.

Honesty is the share of readings that lie within one stated error *of the next reading there*: error of the field
and of the observation together. For a Gaussian it would be 68 %.

Levels are fifths of the *estimate*, thirds are of the distance to the nearest station used. Both can be told before
the reading is known, so a stated error can be held to them. By level of the reading no error can be honest: of the
highest readings most were underestimated, whatever the method. What the check refused is told by level of the
reading, because it has seen it; the levels are finer towards the top, where refusals do harm.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sensorgrid.pipeline.gridding.kernels import CHEAP
from sensorgrid.pipeline.gridding.kernels.interface import Floats
from sensorgrid.pipeline.verification.network import Bools, physical_range
from sensorgrid.pipeline.verification.trial import FoldEstimates, Heard, Trial, pooled_heard, pooled_told

Row = dict[str, Any]

LEVELS = 5
THIRDS = 3
REFUSED_AT = (0.5, 0.8, 0.95, 0.99)
"""between the five levels of the reading: quantiles"""
BIN_MIN = 30
"""readings that a bin needs to count for anything"""


def rows_of(attribute: str, trials: Sequence[Trial], stations: int) -> list[Row]:
    """A row for each method, over all folds of one attribute."""
    heard = pooled_heard([t.heard for t in trials])
    told = {name: pooled_told([t.told[name] for t in trials]) for name in trials[0].told}
    cheap = rmse(told[CHEAP]) if CHEAP in told else np.nan
    rows = []
    for name, found in told.items():
        low, high = physical_range(attribute)
        bad, looked = (sum(t.outside[name][i] for t in trials) for i in (0, 1))
        impossible = int(((found.values < low) | (found.values > high)).sum()) + bad
        rows.append(
            {
                "attribute": attribute,
                "kernel": name,
                "stations": stations,
                "readings": len(found.reading),
                "rmse": rmse(found),
                "mae": _mean(np.abs(found.values - found.reading)),
                "bias": _mean(found.values - found.reading),
                "ratio_to_idw": _ratio(rmse(found), cheap),
                "within_one": _mean(within(found)),
                "within_by_level": by_rank(within(found), found.values, LEVELS),
                "within_by_distance": by_rank(within(found), found.distance, THIRDS),
                "refused_by_level": refused_by_level(heard),
                "refused": _mean(heard.refused),
                "negative_share": _ratio(float(impossible), float(len(found.reading) + looked)),
                "rmse_by_level": [_rms(part) for part in _ranked(found.values - found.reading, found.values, LEVELS)],
                "rmse_by_distance": [
                    _rms(part) for part in _ranked(found.values - found.reading, found.distance, THIRDS)
                ],
                "by_hour": by_hour(found),
                "level_edges": _edges(found.values, np.linspace(0, 1, LEVELS + 1)),
                "distance_edges": _edges(found.distance, np.linspace(0, 1, THIRDS + 1)),
                "reading_edges": _edges(heard.reading, np.array([0, *REFUSED_AT, 1])),
            }
        )  # fmt: skip
    return rows


def rmse(told: FoldEstimates) -> float:
    """Root of the mean square of estimate less reading."""
    return _rms(told.values - told.reading)


def within(told: FoldEstimates) -> Bools:
    """Which readings lie within one stated error."""
    found: Bools = (told.reading >= told.lower) & (told.reading <= told.upper)
    return found


def by_rank(good: Bools, by: Floats, parts: int) -> list[float]:
    """The share of `good` in parts of equal number, by rank.

    Examples
    --------
    >>> by_rank(np.array([True, False, True, True]), np.array([4.0, 1.0, 3.0, 2.0]), 2)
    [0.5, 1.0]
    """
    return [_mean(part) for part in _ranked(good, by, parts)]


def refused_by_level(heard: Heard) -> list[float]:
    """The share refused in five levels of the reading: the lower half, to 80, 95, 99 %, and the top percent."""
    edges = _edges(heard.reading, np.array(REFUSED_AT))
    level = np.searchsorted(edges, heard.reading, side="left")
    return [_mean(heard.refused[level == number]) for number in range(len(REFUSED_AT) + 1)]


def by_hour(told: FoldEstimates) -> list[Row]:
    """Error and honesty for each hour of the day, UTC."""
    hour = (told.end_us - 1) // 3_600_000_000 % 24
    miss, inside = told.values - told.reading, within(told)
    return [
        {
            "hour": int(number),
            "readings": int((hour == number).sum()),
            "rmse": _rms(miss[hour == number]),
            "within_one": _mean(inside[hour == number]),
        }
        for number in np.unique(hour)
    ]


def _ranked(what: Any, by: Floats, parts: int) -> list[Any]:
    return [what[part] for part in np.array_split(np.argsort(by, kind="stable"), parts)]


def _edges(values: Floats, at: Floats) -> list[float]:
    return [float(x) for x in np.quantile(values, at)] if len(values) else [0.0] * len(at)


def _rms(miss: Floats) -> float:
    return float(np.sqrt(np.mean(miss**2))) if len(miss) else 0.0


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else 1.0 if above == below else 0.0
