"""Claims about real readings: stations left out, faults put in. The same seeds give the same figures anywhere."""

from importlib.util import find_spec

from sensorgrid.benchmarks.truth import TruthError, data_folder
from sensorgrid.claims.claim import Claim, Command, FoundFigure, Result, When

FEED = "airnow-nw-megafires-2015"


def _lacks() -> str:
    try:
        data_folder(None, FEED)
    except TruthError:
        return f"needs the data folder ({FEED})"
    return "needs pandas" if not find_spec("pandas") else ""


def _figure(result: Result, name: str) -> FoundFigure | None:
    """None: nothing of the kind was measured, as a package is not installed or a quick run is too small."""
    for row in result["summary"]:
        if row["figure"] == name:
            return FoundFigure(float(row["found"]), f"worst: {row['where']}" if row["where"] else "")
    return None


def _claim(says: str, figure: str, **limits: float | str) -> Claim:
    least, most, unit = limits.get("at_least"), limits.get("at_most"), limits.get("unit", "")
    return Claim(
        says,
        lambda r: _figure(r, figure),
        at_least=None if least is None else float(least),
        at_most=None if most is None else float(most),
        unit=str(unit),
        when=When.FULL_BUT_SHOWN,
        because=str(limits.get("because", "")),
        at_worst=None if (worst := limits.get("at_worst")) is None else float(worst),
    )


_SMALL = tuple(
    claim
    for kind in ("three sensors", "twelve sensors", "one sensor")
    for claim in (
        _claim(
            f"{kind}: 55 to 80 % of the next readings lie within one stated error",
            f"{kind}: pooled within_one",
            at_least=0.55,
            at_most=0.80,
            unit="%",
        ),
        _claim(
            f"{kind}: the RMSE is at most 1.02 times that of inverse distance (geometric mean)",
            f"{kind}: mean RMSE against inverse distance",
            at_most=1.02,
            unit="×",
        ),
    )
)

REALITY = Command(
    "reality",
    "Real readings",
    ("bench", "reality"),
    (
        _claim(
            "at left-out stations the RMSE is at least 5 % below that of inverse distance (geometric mean)",
            "mean RMSE against inverse distance",
            at_most=0.95,
            unit="×",
        ),
        _claim(
            "where elevation is given it is at least 10 % below",
            "mean RMSE against inverse distance, with elevation",
            at_most=0.90,
            unit="×",
        ),
        _claim(
            "on no network is it more than 2 % above",
            "worst RMSE against inverse distance",
            at_most=1.02,
            unit="×",
            because="humidity among fifty motes in one laboratory, and the sea under buoys: 200 and 800 readings",
            at_worst=1.1,
        ),
        _claim(
            "on no network is it more than 2 % above the best of nearest, inverse distance, gridpp and PyKrige",
            "worst RMSE against the best peer",
            at_most=1.02,
            unit="×",
            because="the sea under buoys is smooth along coasts and jumps across currents",
            at_worst=1.2,
        ),
        _claim(
            "60 to 76 % of the left-out readings lie within one stated error of the next reading",
            "pooled within_one",
            at_least=0.60,
            at_most=0.76,
            unit="%",
        ),
        _claim(
            "the same on at least 90 % of the networks",
            "sets with honest errors",
            at_least=0.90,
            unit="%",
        ),
        _claim(
            "55 to 80 % in at least 85 % of the bins by level of the estimate",
            "honest bins by levels",
            at_least=0.85,
            unit="%",
        ),
        _claim(
            "55 to 80 % in at least 85 % of the bins by distance to the nearest station",
            "honest bins by distances",
            at_least=0.85,
            unit="%",
        ),
        _claim(
            "no value lies outside its physical range",
            "values outside the physical range",
            at_most=0.0,
            unit="%",
        ),
        *_SMALL,
        _claim(
            "of faults of more than six errors at least 95 % are caught",
            "injected faults caught",
            at_least=0.95,
            unit="%",
            because="among waves and smoke neighbours differ so much that a fault of six errors has a witness",
            at_worst=0.9,
        ),
        _claim(
            "of good readings at most 0.5 % are refused",
            "good readings refused",
            at_most=0.005,
            unit="%",
        ),
        _claim(
            "of extremes that another sensor corroborates at least 98 % are used",
            "corroborated extremes used",
            at_least=0.98,
            unit="%",
        ),
        _claim(
            "more faults are caught than by titanlib's consistency test at the same rate of refusals",
            "recall less titanlib's at the same rate of refusals",
            at_least=0.0,
            unit="%",
        ),
    ),
    lacks=_lacks,
)
