"""A stream in the terminal: a small live map, its colour scale, the course of the mean, and how it stands."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.color import Color
from rich.console import Group, RenderableType
from rich.measure import Measurement
from rich.panel import Panel
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from sensorgrid.model.names import long_name

COLUMNS_MAX, ROWS_MAX = 100, 24
"""of the map, in characters; a character holds two points, one above the other"""
SPARKS = "▁▂▃▄▅▆▇█"
COURSE_MAX = 400
"""means that are kept"""
_ANCHORS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""dark to light in even steps, also for people who cannot see red"""
SHADES = 64

Values = npt.NDArray[np.floating[Any]]


@dataclass(slots=True)
class Reading:
    """What there is to say about one attribute at one tick."""

    name: str
    unit: str
    mean: float
    low: float
    high: float
    error: float | None
    """mean standard error"""


@dataclass(slots=True)
class Snapshot:
    """One tick, as it is shown and written down."""

    tick: int
    time: datetime
    delay_s: float
    """between the tick's time and its arrival here"""
    points: int
    missing: int
    revision: int
    readings: list[Reading]


def snapshot(field: Any, delay_s: float, time: datetime) -> Snapshot:
    """What there is to say about a field."""
    arrays = list(field.data_vars.values()) if hasattr(field, "data_vars") else [field]
    readings = []
    for array in arrays:
        values = np.asarray(array.values, np.float64)
        known = values[np.isfinite(values)]
        mean, low, high = (known.mean(), known.min(), known.max()) if known.size else (np.nan,) * 3
        beside = f"{array.name}_standard_error"
        errors = (
            np.asarray(array[beside].values, np.float64) if beside in array.coords else np.array([np.nan])
        )
        error = float(np.nanmean(errors)) if np.isfinite(errors).any() else None
        unit = str(array.attrs.get("units", ""))
        readings.append(Reading(str(array.name), unit, float(mean), float(low), float(high), error))
    points = sum(int(array.size) for array in arrays)
    attrs = field.attrs
    return Snapshot(
        int(field["tick"]), time, delay_s, points, int(attrs.get("missing_points", 0)), int(attrs.get("revision", 0)),
        readings,
    )  # fmt: skip


def row(shot: Snapshot) -> dict[str, Any]:
    """The same as plain values, for JSON."""
    return {
        "tick": shot.tick,
        "time": shot.time.isoformat(),
        "delay_s": round(shot.delay_s, 3),
        "points": shot.points,
        "missing_points": shot.missing,
        "revision": shot.revision,
        "attributes": {
            r.name: {
                "mean": _plain(r.mean),
                "min": _plain(r.low),
                "max": _plain(r.high),
                "mean_standard_error": _plain(r.error),
                "units": r.unit,
            }
            for r in shot.readings
        },
    }


def line(shot: Snapshot) -> str:
    """The same as a line, for logs and pipes."""
    parts = [f"{shot.time:%Y-%m-%dT%H:%M:%S}Z", f"tick {shot.tick}"]
    for reading in shot.readings:
        shift, unit = shown_unit(reading.unit)
        error = "" if reading.error is None else f" ± {reading.error:.3g}"
        mean, low, high = (_number(v + shift) for v in (reading.mean, reading.low, reading.high))
        parts.append(f"{reading.name} {mean}{error} {unit} ({low} to {high})".replace("  ", " "))
    parts.append(f"{shot.points:,} points" + (f", {shot.missing:,} missing" if shot.missing else ""))
    if shot.revision:
        parts.append(f"revision {shot.revision}")
    parts.append(f"{span(shot.delay_s)} old")
    return "  ".join(parts)


class LiveView:
    """What a live display shows, tick after tick."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.status = "waiting for the first tick"
        self.note = ""
        """what else happens, such as a file that is written"""
        self._field: Any = None
        self._shot: Snapshot | None = None
        self._course: deque[float] = deque(maxlen=COURSE_MAX)
        self._range: tuple[float, float] | None = None
        self._ticks = 0

    def show(self, field: Any, shot: Snapshot) -> None:
        """The newest field."""
        self._field = next(iter(field.data_vars.values())) if hasattr(field, "data_vars") else field
        self._shot = shot
        self._ticks += 1
        self._course.append(shot.readings[0].mean)
        values = np.asarray(self._field.values)
        if np.isfinite(values).any():
            low, high = (float(v) for v in np.nanpercentile(values, [1, 99]))
            if self._range is not None:  # a scale that moves slowly can be read
                low, high = 0.8 * self._range[0] + 0.2 * low, 0.8 * self._range[1] + 0.2 * high
            self._range = (low, high)

    def __rich__(self) -> RenderableType:
        if self._shot is None or self._field is None:
            return Panel(Text(self.status, "dim"), expand=False)
        shot, reading = self._shot, self._shot.readings[0]
        title = Text.assemble((long_name(reading.name), "bold"), f"  {shot.time:%Y-%m-%d %H:%M:%S} UTC")
        low, high = self._range or (0.0, 1.0)
        picture = FieldPicture(np.asarray(self._field.values), _extent(self._field), low, high, *self._room())
        columns = max(picture.columns, 40)
        parts: list[RenderableType] = [picture, _scale(low, high, reading.unit, columns), Text("")]
        parts.append(self._facts(shot, columns))
        if self.note:
            parts.append(Text(self.note, "dim"))
        state = self.status
        style = "green" if state == "running" else "yellow"
        return Panel(
            Group(*parts), title=title, title_align="left", subtitle=Text(state, style), expand=False
        )

    def _room(self) -> tuple[int, int]:
        # What is around the map: borders, scale, a line for each attribute, the course, two more.
        around = 8 + (len(self._shot.readings) if self._shot else 1) + bool(self.note)
        return min(self.width - 4, COLUMNS_MAX), max(4, min(self.height - around, ROWS_MAX))

    def _facts(self, shot: Snapshot, columns: int) -> Table:
        table = Table.grid(padding=(0, 1))
        table.add_column(style="dim")
        table.add_column(overflow="fold")
        for reading in shot.readings:
            shift, unit = shown_unit(reading.unit)
            error = "" if reading.error is None else f" ± {reading.error:.3g}"
            mean, low, high = (_number(v + shift) for v in (reading.mean, reading.low, reading.high))
            name = "mean" if len(shot.readings) == 1 else _short(reading.name)
            table.add_row(name, Text.assemble((f"{mean}{error} {unit}", "bold"), f"   {low} to {high}"))
        table.add_row("course", Text(sparkline(list(self._course), max(10, columns - 8)), "cyan"))
        missing = f", {shot.missing:,} missing" if shot.missing else ""
        revision = f", revision {shot.revision}" if shot.revision else ""
        table.add_row("tick", f"{shot.tick}{revision}, {span(shot.delay_s)} old, {self._ticks:,} so far")
        table.add_row(
            "points", Text.assemble(f"{shot.points:,}", (missing, "bold red"), f"   {_area(self._field)}")
        )
        return table


class FieldPicture:
    """A field as half blocks: two points per character, north up; unknown points stay empty."""

    def __init__(
        self, values: Values, extent: tuple[float, float], low: float, high: float, columns: int, rows: int
    ) -> None:
        wide, tall = extent
        self.columns = max(1, min(columns, round(2 * rows * wide / tall)))
        lines = max(1, min(rows, round(self.columns * tall / wide / 2)))
        self._shades = _shades(_resampled(values[::-1], 2 * lines, self.columns), low, high)

    def __rich_measure__(self, console: Any, options: Any) -> Measurement:
        return Measurement(self.columns, self.columns)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Segment]:
        for upper, lower in zip(self._shades[::2], self._shades[1::2], strict=True):
            for above, below in zip(upper, lower, strict=True):
                yield _block(int(above), int(below))
            yield Segment.line()


def sparkline(values: list[float], width: int) -> str:
    """The last values as bars.

    >>> sparkline([1, 2, 3, float("nan"), 8], 10)
    '▁▂▃ █'
    """
    last = values[-width:]
    known = [v for v in last if np.isfinite(v)]
    if not known:
        return ""
    low, high = min(known), max(known)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return "".join(SPARKS[3] if np.isfinite(v) else " " for v in last)
    steps = (round((v - low) / (high - low) * (len(SPARKS) - 1)) if np.isfinite(v) else -1 for v in last)
    return "".join(SPARKS[step] if step >= 0 else " " for step in steps)


def shown_unit(unit: str) -> tuple[float, str]:
    """Temperatures as people read them: what to add, and the unit."""
    return (-273.15, "°C") if unit == "K" else (0.0, "" if unit == "1" else unit)


def span(seconds: float) -> str:
    """A length of time, short.

    >>> span(3.14159), span(754), span(200_000)
    ('3.1 s', '12.6 min', '2.31 days')
    """
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.2g} s" if abs(seconds) < 100 else f"{seconds:.0f} s"


def _resampled(values: Values, rows: int, columns: int) -> Values:
    """Means where there are too many points, repetition where there are too few."""
    for axis, size in ((0, rows), (1, columns)):
        count = values.shape[axis]
        if count <= size:
            values = np.take(values, np.arange(size) * count // size, axis=axis)
            continue
        starts = np.arange(size) * count // size
        known = np.isfinite(values)
        total = np.add.reduceat(np.where(known, values, 0.0), starts, axis=axis)
        number = np.add.reduceat(known.astype(np.float64), starts, axis=axis)
        values = np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)
    return values


def _shades(values: Values, low: float, high: float) -> npt.NDArray[np.int64]:
    """Which shade each value has; -1: none."""
    share = (values - low) / (high - low) if high > low else np.where(np.isfinite(values), 0.5, np.nan)
    shade = np.clip(np.nan_to_num(share) * SHADES, 0, SHADES - 1).astype(np.int64)
    return np.where(np.isfinite(share), shade, -1)


def _ramp() -> list[Color]:
    at = np.linspace(0, len(_ANCHORS) - 1, SHADES)
    channels = [np.interp(at, range(len(_ANCHORS)), [a[c] for a in _ANCHORS]) for c in range(3)]
    return [Color.from_rgb(*(round(float(c[i])) for c in channels)) for i in range(SHADES)]


_RAMP = _ramp()
_BLOCKS: dict[tuple[int, int], Segment] = {}


def _block(above: int, below: int) -> Segment:
    known = _BLOCKS.get((above, below))
    if known is None:
        if above < 0 and below < 0:
            known = Segment("·", Style(dim=True))
        elif above < 0:
            known = Segment("▄", Style(color=_RAMP[below]))
        else:
            known = Segment("▀", Style(color=_RAMP[above], bgcolor=_RAMP[below] if below >= 0 else None))
        _BLOCKS[above, below] = known
    return known


def _scale(low: float, high: float, unit: str, columns: int) -> Text:
    shift, name = shown_unit(unit)
    left, right = f"{_number(low + shift)} ", f" {_number(high + shift)} {name}".rstrip()
    width = max(8, columns - len(left) - len(right))
    bar = Text(left)
    for place in range(width):
        bar.append("█", Style(color=_RAMP[place * SHADES // width]))
    return bar.append(right)


def _extent(field: Any) -> tuple[float, float]:
    """How wide and how tall, for the shape of the picture."""
    tall, wide = (np.asarray(field[dim].values) for dim in field.dims)
    # Away from the equator a degree of longitude is shorter.
    narrow = max(0.4, float(np.cos(np.deg2rad(tall.mean())))) if field.dims[0] == "latitude" else 1.0
    return narrow * _width(wide), _width(tall)


def _area(field: Any) -> str:
    """Which part of the world it is."""
    ys, xs = (np.asarray(field[dim].values) for dim in field.dims)
    unit = "°" if "latitude" in field.dims else ""
    return f"{xs[0]:.4g}{unit} to {xs[-1]:.4g}{unit}, {ys[0]:.4g}{unit} to {ys[-1]:.4g}{unit}"


def _width(axis: Values) -> float:
    size = len(axis)
    return max(abs(float(axis[-1] - axis[0])) * size / (size - 1), 1e-9) if size > 1 else 1.0


def _short(name: str) -> str:
    words = name.split("_")
    return name if len(name) <= 24 else "_".join(word[:4] for word in words)[:24]


def _number(value: float) -> str:
    return "–" if not np.isfinite(value) else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _plain(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.7g}")
