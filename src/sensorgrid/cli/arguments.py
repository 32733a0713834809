"""Reading what people type: boxes, resolutions, shapes, time spans."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sensorgrid.model.errors import QueryError, SensorGridError
from sensorgrid.model.grid import ORDER_2D, ORDER_3D, ORDER_4D, ORDER_5D, Bbox, Dimension, Grid
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


def read_grid(
    extent: str | None, coordinates: str, shape: str, tick: float, bits: str, order: str, region_digits: int
) -> Grid:
    """The grid that the options describe."""
    width, _, height = shape.partition("x")
    if not (shape.isascii() and width.isdigit() and height.isdigit()):
        raise ArgumentError(f"--shape: found {shape!r}, expected points along x and y such as 4096x2048")
    if order not in ORDERS:
        raise ArgumentError(f"--dimensions: found {order!r}, expected one of {', '.join(ORDERS)}")
    if coordinates == "planar" and extent is None:
        raise ArgumentError("--coordinates planar: found no --extent, expected one such as 0,0,12800,6400")
    per_axis = numbers("--resolution-bits", bits, "one or three whole numbers such as 4 or 4,4,6", (1, 3))
    if not all(b.is_integer() for b in per_axis):
        raise ArgumentError(f"--resolution-bits: found {bits!r}, expected whole numbers")
    box: Any = (
        (-180, -90, 180, 90) if extent is None else numbers("--extent", extent, "four numbers W,S,E,N", (4,))
    )
    kind: Any = coordinates
    x, y, t = (int(b) for b in (per_axis if len(per_axis) == 3 else per_axis * 3))
    return Grid(
        extent=box,
        coordinates=kind,
        shape=(int(width), int(height)),
        tick=tick,
        resolution_bits=(x, y, t),
        order=ORDERS[order],
        region_digits=region_digits,
    )


def read_bbox(text: str | None) -> Bbox | None:
    """Four numbers; whether they are a box is for the one to say who takes them."""
    if text is None:
        return None
    west, south, east, north = numbers("--bbox", text, "four numbers W,S,E,N such as -10,35,30,60", (4,))
    return west, south, east, north


def read_query(
    attribute: str, bbox: str | None, resolution: str, start: str | None, until: str | None
) -> Query:
    """The query that the options describe."""
    box: Any = read_bbox(bbox)
    parts = numbers("--resolution", resolution, "one number, or three X,Y,T such as 1/4,1/4,1/2", (1, 3))
    wanted: Any = parts[0] if len(parts) == 1 else parts
    begins = None if start is None else moment("--from", start)
    return Query(
        tuple(name.strip() for name in attribute.split(",")),
        bbox=box,
        resolution=wanted,
        start=begins,
        duration=None if until is None else _duration(begins, moment("--until", until)),
    )


def moment(name: str, text: str) -> datetime:
    """A moment with its time zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ArgumentError(
            f"{name}: found {text!r}, expected ISO 8601 with a time zone, such as 2026-03-01T12:00Z"
        )
    return found


def _duration(begins: datetime | None, ends: datetime) -> timedelta:
    if begins is None:
        raise ArgumentError("--until: found no --from, expected both, or neither")
    if ends <= begins:
        raise QueryError(
            f"--until: found {ends.isoformat()}, expected a moment after --from {begins.isoformat()}"
        )
    return ends - begins


def read_seeds(text: str) -> range:
    """One seed, or all from A to B."""
    first, dash, last = text.partition("-")
    if not (text.isascii() and first.isdigit() and (last.isdigit() if dash else not last)):
        raise ArgumentError(f"--seeds: found {text!r}, expected A or A-B, such as 1 or 1-5")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise ArgumentError(f"--seeds: found {text!r}, expected A <= B")
    return seeds


def read_target(path: Path | None, option: str = "--json") -> Path | None:
    """Where to write a result, checked before the work and not after it."""
    if path is None or str(path) == "-":
        return path
    if (
        path.is_dir()
        or not path.parent.is_dir()
        or not os.access(path if path.exists() else path.parent, os.W_OK)
    ):
        raise ArgumentError(f"{option}: found {str(path)!r}, expected a file in a folder that can be written")
    return path
