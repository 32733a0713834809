"""What a client asks for: attributes, a box, a resolution, a time.

A query is a value that knows no grid; `box`, `limits` and `size` say what it means on a given one. What
cannot be right on any grid is refused when the query is made, what cannot be right on this grid when it meets
the grid.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from math import isfinite
from numbers import Real
from typing import Any

from sensorgrid.model.box import Box
from sensorgrid.model.errors import QueryError
from sensorgrid.model.foreign import coordinate_of, is_degrees, span_of, standard_names
from sensorgrid.model.grid import Bbox, Grid
from sensorgrid.model.resolution import count_points, limit_of


@dataclass(frozen=True, slots=True)
class QuerySize:
    """What a query costs, exactly; value ranges (`where`) can only make it cheaper."""

    points_per_tick: int
    """values in one delivered tick, over all attributes"""
    bytes_per_tick: int
    """their bytes, headers not counted"""
    bytes_per_second: float
    """the mean over all ticks, of which a temporal resolution below 1 delivers only some"""


@dataclass(frozen=True, slots=True, init=False)
class Query:
    """A continuous query for gridded data.

    Parameters
    ----------
    attribute
        A CF standard name, or several of them.
    bbox
        West, south, east, north; None for the whole grid. West > east crosses the date line. The east and
        north borders are not part of the box; a box without width asks for the one column (or row) that
        holds the coordinate.
    resolution
        The part of the points and ticks that is wanted, as one number for all axes or as (x, y, t), each in
        (0, 1]. 1/4 is every fourth point. It is rounded up to a multiple of 2^-bits of the grid.
    start
        The first moment of interest: a datetime with a time zone, or ISO 8601 text. None means now.
    duration
        How long, as a timedelta or in seconds. None means until cancelled.
    where
        Value ranges by attribute, (low, high) inclusive, None for an open side.
    spacing
        Instead of `resolution` along x and y: how far apart points may be, in the grid's coordinates, as one
        number or as (x, y). The grid's coarsest resolution that meets it is taken; where the grid itself is
        wider, every point.
    every
        Instead of `resolution` in time: how far apart ticks may be, as seconds, a timedelta, or text such as
        "10min" or "1h". Likewise the coarsest that meets it, or every tick.

    Examples
    --------
    >>> query = Query("air_temperature", bbox=(-10, 35, 30, 60), resolution=(1/4, 1/4, 1/2))
    >>> query.size(Grid(tick=600)).points_per_tick
    8094
    >>> Query("air_temperature", spacing=(0.5, 0.5), every="1h").effective_resolution(Grid(tick=600))
    (0.25, 0.25, 0.25)
    """

    attributes: tuple[str, ...]
    """names, each once"""
    bbox: Bbox | None
    """west, south, east, north; None: the whole grid"""
    resolution: tuple[float, float, float]
    """as asked, along x, y, t"""
    start: datetime | None
    """None: now"""
    duration: timedelta | None
    """None: until cancelled"""
    where: tuple[tuple[str, float, float], ...]
    """(attribute, low, high), by attribute"""
    spacing: tuple[float, float] | None
    """how far apart points may be along x, y; None: `resolution` says"""
    every: timedelta | None
    """how far apart ticks may be; None: `resolution` says"""

    def __init__(
        self,
        attribute: str | tuple[str, ...] | list[str],
        bbox: Bbox | None = None,
        resolution: float | tuple[float, float, float] = 1.0,
        start: datetime | str | None = None,
        duration: timedelta | float | None = None,
        where: Mapping[str, tuple[float | None, float | None]] | None = None,
        spacing: float | tuple[float, float] | None = None,
        every: timedelta | float | str | None = None,
    ) -> None:
        set_field = object.__setattr__
        names = _names(attribute)
        set_field(self, "attributes", names)
        set_field(self, "bbox", None if bbox is None else _bbox(bbox))
        set_field(self, "resolution", _resolution(resolution))
        set_field(self, "spacing", None if spacing is None else _spacing(spacing))
        set_field(self, "every", None if every is None else length_of_time(every))
        self._check_once()
        set_field(self, "start", _start(start))
        set_field(self, "duration", _duration(duration))
        set_field(self, "where", _where(where or {}, names))

    def limits(self, grid: Grid) -> tuple[int, int, int]:
        """How many of the 2^bits ranks along x, y and t the query asks for, rounded up."""
        bits = grid.resolution_bits
        x, y, t = (limit_of(r, b) for r, b in zip(self.resolution, bits, strict=True))
        if self.spacing is not None:
            x, y = (
                _coarsest(Fraction(wide) / Fraction(step), b)
                for wide, step, b in zip(self.spacing, grid.spacing, bits, strict=False)
            )
        if self.every is not None:
            microseconds = self.every // timedelta(microseconds=1)
            t = _coarsest(Fraction(microseconds, 1_000_000) / Fraction(str(grid.tick)), bits[2])
        return x, y, t

    @classmethod
    def like(
        cls,
        data: Any,
        attribute: str | tuple[str, ...] | list[str] | None = None,
        start: datetime | str | None = None,
        duration: timedelta | float | None = None,
        every: timedelta | float | str | None = None,
    ) -> "Query":
        """A query for the area and about the spacing of a model's own grid.

        Parameters
        ----------
        data
            An xarray Dataset or DataArray with longitudes and latitudes (or x and y), of one or two dimensions.
            They are known by standard_name, axis or units, or else by their names.
        attribute
            What is wanted; left out, the standard names (or else names) of the data.
        start, duration, every
            As for any query.

        The box goes half a spacing beyond the outermost points, so that it holds the areas of all of them.
        """
        names = standard_names(data) if attribute is None else attribute
        (west, east, dx), (south, north, dy) = (span_of(coordinate_of(data, axis), axis) for axis in "xy")
        if is_degrees(data, "y"):
            south, north = max(south, -90.0), min(north, 90.0)
            east = min(east, west + 360)
        return cls(names, (west, south, east, north), 1.0, start, duration, spacing=(dx, dy), every=every)

    def _check_once(self) -> None:
        x, y, t = self.resolution
        if self.spacing is not None and (x, y) != (1, 1):
            raise QueryError(f"spacing: found it beside resolution {self.resolution}, expected one of them")
        if self.every is not None and (t != 1 or (self.spacing is None and (x, y) == (t, t) != (1, 1))):
            raise QueryError(f"every: found it beside resolution {self.resolution}, expected one of them")

    def effective_resolution(self, grid: Grid) -> tuple[float, float, float]:
        """The resolution that the query gets: at least what it asked for."""
        (x, y, t), (bx, by, bt) = self.limits(grid), grid.resolution_bits
        return x / 2**bx, y / 2**by, t / 2**bt

    def box(self, grid: Grid) -> Box:
        """The points of the grid inside the bounding box, at full resolution.

        A query that holds not a single point at its own resolution is refused, as it could never be answered.
        """
        grid.check_attributes(self.attributes)
        box = grid.box_of(grid.extent if self.bbox is None else self.bbox)
        columns, rows = self._axis_points(grid, box)
        for axis, found in enumerate((columns, rows)):
            if not found:
                widest_gap = (1 << grid.resolution_bits[axis] + 1) >> self.limits(grid)[axis].bit_length()
                raise QueryError(
                    f"bbox {self.bbox}: found no point along {'xy'[axis]} at resolution"
                    f" {self.effective_resolution(grid)[axis]:g}, expected a finer resolution (1 takes every"
                    f" point) or a box at least {widest_gap} points wide"
                )
        return box

    def size(self, grid: Grid) -> QuerySize:
        """Points per tick and bytes per second on a grid, exactly."""
        columns, rows = self._axis_points(grid, self.box(grid))
        points = columns * rows * len(self.attributes)
        share = Fraction(self.limits(grid)[2], 1 << grid.resolution_bits[2])
        size = points * grid.value_bytes
        return QuerySize(points, size, float(size * share / Fraction(str(grid.tick))))

    def points(self, grid: Grid) -> tuple[int, int]:
        """Columns and rows of one delivered tick."""
        return self._axis_points(grid, self.box(grid))

    def ticks(self, grid: Grid, now: datetime) -> tuple[int, int | None]:
        """First tick, and the tick after the last: None if the query runs until cancelled."""
        start = now if self.start is None else self.start
        first = grid.tick_from(start)
        stop = None if self.duration is None else grid.tick_from(start + self.duration)
        if stop == first:
            raise QueryError(
                f"duration: found no tick in {self.duration} from {start.isoformat()}, expected at least one;"
                f" the next is at {grid.time_of(first).isoformat()}"
            )
        return first, stop

    def _axis_points(self, grid: Grid, box: Box) -> tuple[int, int]:
        (limit_x, limit_y, _), (bits_x, bits_y, _) = self.limits(grid), grid.resolution_bits
        columns = sum(count_points(b.x0, b.x1, limit_x, bits_x) for b in grid.plain_boxes(box))
        return columns, count_points(box.y0, box.y1, limit_y, bits_y)


def _names(attribute: Any) -> tuple[str, ...]:
    is_list = isinstance(attribute, Iterable) and not isinstance(attribute, str)
    names = tuple(attribute) if is_list else (attribute,)
    if not names or not all(isinstance(n, str) and n.strip() for n in names):
        raise QueryError(f"attribute: found {attribute!r}, expected one or more names")
    if len(set(names)) < len(names):
        raise QueryError(f"attribute: found {', '.join(names)}, expected each name once")
    return names


def _bbox(bbox: Any) -> Bbox:
    try:
        west, south, east, north = (float(v) for v in (() if isinstance(bbox, str) else bbox))
    except (TypeError, ValueError):
        raise QueryError(f"bbox: found {bbox!r}, expected four numbers west, south, east, north") from None
    if not all(map(isfinite, (west, south, east, north))):
        raise QueryError(f"bbox: found {bbox!r}, expected finite numbers west, south, east, north")
    if south > north:
        raise QueryError(f"bbox: found south {south:g} > north {north:g}, expected south <= north")
    return west, south, east, north


def _resolution(resolution: Any) -> tuple[float, float, float]:
    parts = tuple(resolution) if isinstance(resolution, Iterable) else (resolution,) * 3
    if len(parts) != 3 or not all(isinstance(r, Real) and not isinstance(r, bool) for r in parts):
        raise QueryError(f"resolution: found {resolution!r}, expected a number or three (x, y, t)")
    for axis, part in zip("xyt", parts, strict=True):
        try:
            limit_of(float(part), 0)
        except ValueError as error:
            raise QueryError(f"resolution {axis}: {error}") from None
    x, y, t = (float(r) for r in parts)
    return x, y, t


def _spacing(spacing: Any) -> tuple[float, float]:
    parts = (
        tuple(spacing) if isinstance(spacing, Iterable) and not isinstance(spacing, str) else (spacing,) * 2
    )
    numbers = all(isinstance(p, Real) and not isinstance(p, bool) for p in parts)
    if len(parts) != 2 or not numbers or not all(isfinite(p) and p > 0 for p in parts):
        raise QueryError(f"spacing: found {spacing!r}, expected one or two numbers (x, y), more than 0")
    return float(parts[0]), float(parts[1])


_UNITS_S = {
    "ms": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600,
    "d": 86400, "day": 86400,
}  # fmt: skip


def length_of_time(every: Any, name: str = "every") -> timedelta:
    """Text such as 10min is how people who write models say it."""
    if isinstance(every, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)?\s*([a-z]+)\s*", every.lower())
        unit = None if found is None else _UNITS_S.get(found[2], _UNITS_S.get(found[2].removesuffix("s")))
        if found is None or unit is None:
            raise QueryError(f"{name}: found {every!r}, expected a length of time such as '10min' or '1h'")
        every = float(found[1] or 1) * unit
    if isinstance(every, Real) and not isinstance(every, bool) and 0 < float(every) < 1e12:
        every = timedelta(seconds=float(every))
    if not isinstance(every, timedelta) or every <= timedelta(0):
        raise QueryError(f"{name}: found {every!r}, expected a timedelta, seconds or text such as '10min'")
    return every


def _coarsest(gap: Fraction, bits: int) -> int:
    """The fewest ranks of 2^bits whose points are at most `gap` points apart; all, if none are.

    Uneven resolutions do not help: their widest gap is that of the power of two below.
    """
    stride = max(1, int(gap + Fraction(1, 1_000_000)))  # 0.25 degrees are three of 0.0833
    return max(1, (1 << bits) >> (stride.bit_length() - 1))


def _start(start: datetime | str | None) -> datetime | None:
    if isinstance(start, str):
        try:
            start = datetime.fromisoformat(start)
        except ValueError:
            raise QueryError(f"start: found {start!r}, expected ISO 8601 such as 2026-03-01T12:00Z") from None
    if start is not None and not isinstance(start, datetime):
        raise QueryError(f"start: found {start!r}, expected a datetime, ISO 8601 text or None")
    if start is not None and start.tzinfo is None:
        raise QueryError(
            f"start: found {start.isoformat()} without a time zone, expected one as in 2026-03-01T12:00Z"
        )
    return start


def _duration(duration: Any) -> timedelta | None:
    if duration is None:
        return None
    if isinstance(duration, Real) and isfinite(duration):
        try:
            duration = timedelta(seconds=float(duration))
        except OverflowError:
            raise QueryError(f"duration: found {duration} s, expected less than a billion days") from None
    if not isinstance(duration, timedelta) or duration <= timedelta(0):
        raise QueryError(f"duration: found {duration!r}, expected a timedelta or seconds, more than 0")
    return duration


def _where(
    where: Mapping[str, tuple[float | None, float | None]], names: tuple[str, ...]
) -> tuple[tuple[str, float, float], ...]:
    ranges = []
    for name in sorted(where, key=str):
        if name not in names:
            raise QueryError(f"where: found {name!r}, expected one of the query's own: {', '.join(names)}")
        try:
            low, high = tuple(where[name]) if not isinstance(where[name], str) else (name, name)
            low = float("-inf") if low is None else float(low)
            high = float("inf") if high is None else float(high)
        except (TypeError, ValueError):
            raise QueryError(f"where {name}: found {where[name]!r}, expected (low, high)") from None
        if not low <= high:
            raise QueryError(f"where {name}: found ({low:g}, {high:g}), expected low <= high")
        ranges.append((name, low, high))
    return tuple(ranges)
