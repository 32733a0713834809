"""Quality control of single measurements: every row gets a flag and the test that set it; none is dropped.

Flags are QARTOD's: 1 pass, 2 not evaluated, 3 suspect, 4 fail, 9 missing. The checks here look at one row
alone; those that need a series or neighbours come with the gridding and can only lower a flag. A row gets the
first verdict that applies, in this order:

===========  ====  ====================================================================================
test         flag
===========  ====  ====================================================================================
dead_letter  4     it was not readable (it has a reason)
time         4     no time, or one before there were such instruments
future       4     later than now, with a tolerance: it must never reach a stage that keeps state by time
missing      9     no value
attribute    4     the grid does not carry it
position     4     none, or one that is not on the earth
outside      4     on the earth, but off the grid
range        4     no instrument reads a true value outside the gross limits
range        3     outside the usual limits of the climate
===========  ====  ====================================================================================

Time comes before missing: a row without a value and of the year 2099 would move a watermark as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.attributes import KNOWN, Attribute
from sensorgrid.pipeline.schema import FLAGGED

PASS, NOT_EVALUATED, SUSPECT, FAIL, MISSING = 1, 2, 3, 4, 9
"""QARTOD's flags."""
LONGITUDE_MAX = 360.0
"""Both −180..180 and 0..360 are in use, and tracks that cross a border go on counting."""


class LimitsError(SensorGridError, ValueError):
    """Limits that cannot be right."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings of the checks.

    Examples
    --------
    >>> Limits(usual={"air_temperature": (253.15, 313.15)}).usual_of("air_temperature")
    (253.15, 313.15)
    """

    gross: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """per attribute, instead of what `attributes` knows, in canonical units"""
    usual: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """likewise"""
    future_s: float = 600.0
    """clocks of sensors may be ahead by so much"""
    earliest: datetime = datetime(1900, 1, 1, tzinfo=UTC)
    """older times are faults"""
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: KNOWN)
    """what is known about each attribute"""

    def __post_init__(self) -> None:
        for kind, table in (("gross", self.gross), ("usual", self.usual)):
            for name, limits in table.items():
                if len(limits) != 2 or not limits[0] <= limits[1]:
                    raise LimitsError(f"limits {kind} of {name}: found {limits}, expected low <= high")
        if not self.future_s >= 0:
            raise LimitsError(f"future_s: found {self.future_s}, expected seconds >= 0")
        if self.earliest.tzinfo is None:
            raise LimitsError(f"earliest: found {self.earliest.isoformat()}, expected a time with its zone")

    def gross_of(self, attribute: str) -> tuple[float, float] | None:
        """Limits outside of which a value fails; None where nothing is known."""
        known = self.attributes.get(attribute)
        return self.gross.get(attribute, known.gross if known else None)

    def usual_of(self, attribute: str) -> tuple[float, float] | None:
        """Limits outside of which a value is suspect; None where nothing is known."""
        known = self.attributes.get(attribute)
        return self.usual.get(attribute, known.usual if known else None)


def flag(
    measurements: DataFrame, grid: Grid, limits: Limits | None = None, now: Column | None = None
) -> DataFrame:
    """Measurements with flag and test; longitudes in the grid's own range.

    Parameters
    ----------
    measurements
        Rows of `MEASUREMENT` in canonical units.
    grid
        Where, and for which attributes.
    limits
        Settings that differ from the usual.
    now
        The present, for tests and for data of the past; the time of the (micro-)batch if left out.

    Returns
    -------
    DataFrame
        Rows of `FLAGGED`, as many as came in.
    """
    limits = limits or Limits()
    now = F.current_timestamp() if now is None else now
    checks = [
        (F.col("reason").isNotNull(), FAIL, "dead_letter"),
        (time_fails(limits), FAIL, "time"),
        (in_future(now, limits), FAIL, "future"),
        (is_missing(), MISSING, "missing"),
        (attribute_fails(grid), FAIL, "attribute"),
        (position_fails(grid), FAIL, "position"),
        (is_outside(grid), FAIL, "outside"),
        (exceeds(grid, limits, "gross"), FAIL, "range"),
        (exceeds(grid, limits, "usual"), SUSPECT, "range"),
    ]
    verdict, test = F.lit(PASS), F.lit(None).cast("string")
    for failed, value, name in reversed(checks):
        failed = F.coalesce(failed, F.lit(False))
        verdict = F.when(failed, F.lit(value)).otherwise(verdict)
        test = F.when(failed, F.lit(name)).otherwise(test)
    made = {
        "longitude": folded(grid),
        "flag": F.coalesce(verdict.cast("tinyint"), F.lit(FAIL).cast("tinyint")),
        "test": test,
    }
    return measurements.select(*[made.get(f.name, F.col(f.name)).alias(f.name) for f in FLAGGED.fields])


def is_missing() -> Column:
    """No value, or not a number."""
    return F.col("value").isNull() | F.isnan("value")


def time_fails(limits: Limits) -> Column:
    """No time, or one too early to be true."""
    return F.col("event_time").isNull() | (F.col("event_time") < F.lit(limits.earliest))


def in_future(now: Column, limits: Limits) -> Column:
    """Later than the tolerance allows."""
    return F.col("event_time") > now + F.lit(timedelta(seconds=limits.future_s))


def attribute_fails(grid: Grid) -> Column:
    """Not carried by the grid."""
    return F.coalesce(~F.col("attribute").isin(*grid.attributes), F.lit(True))


def position_fails(grid: Grid) -> Column:
    """No position, or one that cannot be: not finite, or not on the earth."""
    x, y = F.col("longitude"), F.col("latitude")
    # NaN is larger than any number in Spark, so these comparisons refuse it.
    if grid.coordinates == "lonlat":
        possible = (F.abs(x) <= LONGITUDE_MAX) & (F.abs(y) <= 90)
    else:
        possible = (F.abs(x) < float("inf")) & (F.abs(y) < float("inf"))
    return ~F.coalesce(possible, F.lit(False))


def is_outside(grid: Grid) -> Column:
    """Off the grid; its own borders belong to it."""
    west, south, east, north = grid.extent
    return ~(folded(grid).between(west, east) & F.col("latitude").between(south, north))


def exceeds(grid: Grid, limits: Limits, kind: str) -> Column:
    """Outside the gross or usual limits of its attribute."""
    of = limits.gross_of if kind == "gross" else limits.usual_of
    value, outside = F.col("value"), []
    for name in grid.attributes:
        bounds = of(name)
        if bounds is not None:
            low, high = (float(bound) for bound in bounds)
            outside.append((F.col("attribute") == name) & ((value < low) | (value > high)))
    return reduce(or_, outside, F.lit(False))


def folded(grid: Grid) -> Column:
    """The longitude in the range of the grid, if it is possible at all: as `Grid.indices_of` does it."""
    x = F.col("longitude")
    if grid.coordinates == "planar":
        return x
    west, _, east, _ = grid.extent
    turned = F.lit(west) + F.pmod(x - F.lit(west), F.lit(360.0))
    return F.when(x.between(west, east) | (F.abs(x) > LONGITUDE_MAX), x).otherwise(turned)
