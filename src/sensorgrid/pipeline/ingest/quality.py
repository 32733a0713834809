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
attribute    4     the grid does not carry it: counted as ignored, not as flagged
missing      9     no value
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
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.ingest.attributes import KNOWN, Attribute
from sensorgrid.pipeline.ingest.parsing import constant
from sensorgrid.pipeline.schema import FLAGGED, MEASUREMENT

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
        (in_future(now, limits, measurements.isStreaming), FAIL, "future"),
        (attribute_fails(), FAIL, "attribute"),
        (is_missing(), MISSING, "missing"),
        (position_fails(grid), FAIL, "position"),
        (is_outside(grid), FAIL, "outside"),
        (exceeds("gross") | is_infinite(), FAIL, "range"),
        (exceeds("usual"), SUSPECT, "range"),
    ]
    # In steps, and by the number of the verdict: written into each other, these expressions become one method
    # that is too long for Java to compile, and flagging takes several times as long.
    known = measurements.select(
        *[
            (folded(grid) if f.name == "longitude" else F.col(f.name)).alias(f.name)
            for f in MEASUREMENT.fields
        ],
        bounds(grid, limits).alias("bounds"),
    )
    verdict: Any = F
    for number, (failed, _, _) in enumerate(checks):
        verdict = verdict.when(failed, F.lit(number))
    judged = known.select("*", verdict.otherwise(F.lit(len(checks))).alias("verdict"))
    flags = F.array(*[F.lit(value).cast("tinyint") for _, value, _ in checks], F.lit(PASS).cast("tinyint"))
    tests = F.array(*[F.lit(name) for *_, name in checks], F.lit(None).cast("string"))
    made = {
        "flag": F.coalesce(F.get(flags, F.col("verdict")), F.lit(FAIL).cast("tinyint")),
        "test": F.get(tests, F.col("verdict")),
    }
    return judged.select(*[made.get(f.name, F.col(f.name)).alias(f.name) for f in FLAGGED.fields])


def is_missing() -> Column:
    """No value, or not a number."""
    return F.col("value").isNull() | F.isnan("value")


def is_infinite() -> Column:
    """A number that no instrument reads, also of an attribute of which no limits are known."""
    return F.abs("value") == float("inf")


def time_fails(limits: Limits) -> Column:
    """No time, or one too early to be true."""
    return F.col("event_time").isNull() | (F.col("event_time") < F.lit(limits.earliest))


def in_future(now: Column, limits: Limits, streaming: bool = False) -> Column:
    """Later than the tolerance allows."""
    latest = now + F.lit(timedelta(seconds=limits.future_s))
    if streaming:
        # Spark writes the time of a micro-batch into the Java code that it generates, and so would compile all checks
        # again for each one and never reach code that Java has optimised. It generates none for `zip_with`.
        times = F.array("event_time")
        return F.get(F.zip_with(times, times, lambda time, _: time > latest), 0)
    return F.col("event_time") > latest


def bounds(grid: Grid, limits: Limits) -> Column:
    """The limits of the row's attribute as a struct; null if the grid does not carry the attribute."""
    table: dict[str, dict[str, float]] = {}
    for name in grid.attributes:
        pairs = {"gross": limits.gross_of(name), "usual": limits.usual_of(name)}
        table[name] = {
            f"{kind}_{side}": float(edge)
            for kind, pair in pairs.items()
            for side, edge in zip(
                ("low", "high"), pair or (), strict=False
            )  # no limits: null, never exceeded
        }
    edges = ",".join(f"{kind}_{side}:double" for kind in ("gross", "usual") for side in ("low", "high"))
    return F.try_element_at(constant(table, f"map<string,struct<{edges}>>"), F.col("attribute"))


def attribute_fails() -> Column:
    """Not carried by the grid (see `bounds`)."""
    return F.col("bounds").isNull()


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
    """Off the grid, by the folded longitude; the grid's own borders belong to it."""
    west, south, east, north = grid.extent
    return ~(F.col("longitude").between(west, east) & F.col("latitude").between(south, north))


def exceeds(kind: str) -> Column:
    """Outside the gross or usual limits of its attribute (see `bounds`)."""
    value = F.col("value")
    return (value < F.col(f"bounds.{kind}_low")) | (value > F.col(f"bounds.{kind}_high"))


def folded(grid: Grid) -> Column:
    """The longitude in the range of the grid, if it is possible at all: as `Grid.indices_of` does it."""
    x = F.col("longitude")
    if grid.coordinates == "planar":
        return x
    west, _, east, _ = grid.extent
    turned = F.lit(west) + F.pmod(x - F.lit(west), F.lit(360.0))
    return F.when(x.between(west, east) | (F.abs(x) > LONGITUDE_MAX), x).otherwise(turned)
