"""Reading what people type: boxes, resolutions, shapes, time spans."""

from datetime import datetime, timedelta
from typing import Any

from sensorgrid.model.errors import QueryError, SensorGridError
from sensorgrid.model.grid import ORDER_2D, ORDER_3D, ORDER_4D, ORDER_5D, Dimension, Grid
from sensorgrid.model.query import Query

ORDERS: dict[str, tuple[Dimension, ...]] = {"2": ORDER_2D, "3": ORDER_3D, "4": ORDER_4D, "5": ORDER_5D}


class ArgumentError(SensorGridError, ValueError):
    """An argument that cannot be read."""


def numbers(name: str, text: str, expected: str, counts: tuple[int, ...]) -> tuple[float, ...]:
    """Numbers with commas between them; fractions such as 1/4 are numbers too."""
    try:
        parts = tuple(_number(part) for part in text.split(","))
    except (ValueError, ZeroDivisionError):
        raise ArgumentError(f"{name}: found {text!r}, expected {expected}") from None
    if len(parts) not in counts:
        raise ArgumentError(f"{name}: found {len(parts)} numbers in {text!r}, expected {expected}")
    return parts


def _number(text: str) -> float:
    above, slash, below = text.partition("/")
    return float(above) / float(below) if slash else float(above)


def read_grid(extent: str, shape: str, tick: float, bits: str, order: str, region_digits: int) -> Grid:
    """The grid that the options describe."""
    width, _, height = shape.partition("x")
    if not (width.isdigit() and height.isdigit()):
        raise ArgumentError(f"--shape: found {shape!r}, expected points along x and y such as 4096x2048")
    if order not in ORDERS:
        raise ArgumentError(f"--dimensions: found {order!r}, expected one of {', '.join(ORDERS)}")
    per_axis = numbers("--resolution-bits", bits, "one or three whole numbers such as 4 or 4,4,6", (1, 3))
    if any(b != int(b) for b in per_axis):
        raise ArgumentError(f"--resolution-bits: found {bits!r}, expected whole numbers")
    whole = tuple(int(b) for b in per_axis)
    options: dict[str, Any] = {}
    if extent:
        box = numbers("--extent", extent, "four numbers W,S,E,N", (4,))
        west, south, east, north = box
        on_earth = east - west <= 360 and south >= -90 and north <= 90
        options = {"extent": box, "coordinates": "lonlat" if on_earth else "planar"}
    return Grid(
        shape=(int(width), int(height)),
        tick=tick,
        resolution_bits=(whole[0], whole[-1] if len(whole) == 1 else whole[1], whole[-1]),
        order=ORDERS[order],
        region_digits=region_digits,
        **options,
    )


def read_query(attribute: str, bbox: str, resolution: str, start: str, until: str) -> Query:
    """The query that the options describe."""
    box: Any = numbers("--bbox", bbox, "four numbers W,S,E,N such as -10,35,30,60", (4,)) if bbox else None
    parts = numbers("--resolution", resolution, "one number, or three X,Y,T such as 1/4,1/4,1/2", (1, 3))
    wanted: Any = parts[0] if len(parts) == 1 else parts
    return Query(
        tuple(name.strip() for name in attribute.split(",")),
        bbox=box,
        resolution=wanted,
        start=start or None,
        duration=_duration(start, until),
    )


def _duration(start: str, until: str) -> timedelta | None:
    if not until:
        return None
    if not start:
        raise ArgumentError("--until: found no --from, expected both, or neither")
    begins, ends = (Query("any", start=moment).start for moment in (start, until))
    assert isinstance(begins, datetime)
    assert isinstance(ends, datetime)
    if ends <= begins:
        raise QueryError(f"--until: found {until}, expected a moment after --from {start}")
    return ends - begins
