"""What clients ask for in simulations: hot spots that stand, swell or follow a storm (multires, section 5).

The paper draws the lower and upper bounds of its queries from a Zipf distribution around a hot spot, "so most
queries cover a small area around the hot spot, while few still cover larger areas", and the resolutions from
a uniform one. It prints neither exponents nor units: those here are ours. A bound lies d blocks from the
centre, d = 1 to 32 with a probability proportional to d^-exponent, less a uniform part of a block, so that
bounds do not fall on the borders of cells.

All randomness comes from the `random.Random` handed in, all order from lists: one seed, one sequence.
"""

import csv
import gzip
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from random import Random

from sensorgrid.model.box import Box
from sensorgrid.model.errors import GridError, QueryError, SensorGridError
from sensorgrid.model.grid import ORDER_2D, ORDER_3D, ORDER_4D, ORDER_5D, Grid
from sensorgrid.model.query import Query

ORDERS = {2: ORDER_2D, 3: ORDER_3D, 4: ORDER_4D, 5: ORDER_5D}
"""The order of dimensions by their number, as the paper's figures name them."""

DISTANCE_MAX = 32
"""The farthest bound, in blocks: on the paper's grid the way from the centre to the border."""


class TrackError(SensorGridError, ValueError):
    """A file of storm tracks that cannot be read."""


@dataclass(frozen=True, slots=True)
class HotSpot:
    """Where the interest of clients gathers, and how closely."""

    name: str
    """as in tables"""
    centre: tuple[float, float]
    """x and y as fractions of the area"""
    exponent: float
    """of the Zipf distribution of distances: the larger, the smaller the hot spot"""


HOT_SPOTS = {
    spot.name: spot
    for spot in (
        HotSpot("large", (1 / 2, 1 / 2), 1.0),
        HotSpot("small", (1 / 2, 1 / 2), 1.5),
        # Not in the paper: its centre of the area is a corner of four brokers; this is the middle of one.
        HotSpot("single", (3 / 8, 3 / 8), 1.5),
    )
}
"""The paper's large and small hot spot, and one inside a single broker. It gives no exponents; these are ours."""


def paper_grid(dims: int) -> Grid:
    """The world of the paper's evaluation: a square for 4 × 4 brokers, whose regions are the cells of 4 digits.

    >>> paper_grid(4).order
    ('x', 'y', 'res_xy', 'res_t')
    """
    if dims not in ORDERS:
        raise GridError(f"dims: found {dims}, expected one of {', '.join(map(str, ORDERS))}")
    return Grid(
        extent=(0, 0, 1024, 1024),
        shape=(1024, 1024),
        tick=1,
        resolution_bits=(4, 4, 4),
        coordinates="planar",
        attributes=("air_temperature",),
        order=ORDERS[dims],
        region_digits=4,
    )


def queries(spot: HotSpot, grid: Grid, rng: Random) -> Iterator[Query]:
    """Queries around a hot spot, without end.

    >>> first = next(queries(HOT_SPOTS["small"], paper_grid(4), Random(1)))
    >>> first.bbox
    (509.0, 487.0, 588.0, 548.0)
    """
    clients = _Clients(grid, spot.exponent, rng)
    x, y = (round(part * points) for part, points in zip(spot.centre, grid.shape, strict=True))
    while True:
        yield clients.ask(x, y)


def flood(
    grid: Grid,
    rng: Random,
    *,
    centre: tuple[float, float] = (3 / 8, 3 / 8),
    box_fraction: float = 1 / 32,
    resolution: tuple[float, float, float] | None = None,
) -> Iterator[Query]:
    """Many clients on one small region, without end: an attack, or a disaster (multires, section 4.5).

    All ask for the same box, `box_fraction` of each axis wide around `centre` (fractions of the area), at
    random resolutions, or all at the one given.
    """
    if not 0 < box_fraction <= 1:
        raise QueryError(f"box_fraction: found {box_fraction}, expected a number in (0, 1]")
    clients = _Clients(grid, 0.0, rng)
    sides = [max(round(box_fraction * points / 2), 1) for points in grid.shape]
    x, y = (round(part * points) for part, points in zip(centre, grid.shape, strict=True))
    box = clients.box((x - sides[0], x + sides[0]), (y - sides[1], y + sides[1]))
    bbox = grid.bbox_of(box)
    while True:
        yield Query(grid.attributes[0], bbox, resolution or clients.resolution())


@dataclass(frozen=True, slots=True)
class Track:
    """The way of a storm: a place at each of its hours."""

    name: str
    """the source's identifier"""
    basin: str
    """where it began: NA (North Atlantic), WP, EP, NI, SI, SP, SA"""
    start: datetime
    """the first report"""
    hours: tuple[float, ...]
    """of each report, since the first"""
    lon: tuple[float, ...]
    """degrees east; they run on past 180, so that no step jumps around the earth"""
    lat: tuple[float, ...]
    """degrees north"""

    def at(self, hours: float) -> tuple[float, float]:
        """Longitude and latitude so many hours after the start, on a straight line between two reports."""
        if not 0 <= hours <= self.hours[-1]:
            raise TrackError(
                f"track {self.name}: found hour {hours:g}, expected within 0 and {self.hours[-1]:g}"
            )
        after = min(bisect_right(self.hours, hours), len(self.hours) - 1)
        before = max(after - 1, 0)
        span = self.hours[after] - self.hours[before]
        part = (hours - self.hours[before]) / span if span else 0.0
        return (
            self.lon[before] + part * (self.lon[after] - self.lon[before]),
            self.lat[before] + part * (self.lat[after] - self.lat[before]),
        )


def storm_tracks(path: Path | str) -> list[Track]:
    """The tracks of an IBTrACS table (CSV, gzip or plain), in the order of the file.

    Read with the csv module, to which the basin NA is a name and not a missing value.
    """
    path = Path(path)
    reports: dict[str, list[tuple[datetime, float, float, str]]] = {}
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        for line, row in enumerate(csv.DictReader(file), start=2):
            try:
                time = datetime.fromisoformat(row["time"]).replace(tzinfo=UTC)
                report = time, float(row["lon"]), float(row["lat"]), row["basin"]
                reports.setdefault(row["track_id"], []).append(report)
            except (KeyError, TypeError, ValueError):
                raise TrackError(
                    f"{path.name}, line {line}: found {row}, expected track_id, basin, time, lon, lat"
                ) from None
    return [_track(name, rows) for name, rows in reports.items()]


def _track(name: str, rows: list[tuple[datetime, float, float, str]]) -> Track:
    rows = sorted(rows)
    start, lon, _, basin = rows[0]
    lons = []
    for row in rows:
        lon += (row[1] - lon + 180) % 360 - 180  # the short way round, whichever side of 180 it is written
        lons.append(lon)
    hours = tuple((row[0] - start).total_seconds() / 3600 for row in rows)
    return Track(name, basin, start, hours, tuple(lons), tuple(row[2] for row in rows))


def moving(
    track: Track,
    grid: Grid,
    rng: Random,
    *,
    per_step: int = 10,
    step_h: float = 1.0,
    exponent: float = HOT_SPOTS["small"].exponent,
) -> Iterator[tuple[float, Query]]:
    """Hours since the start, and a query around where the storm is then; so many per step, to its end.

    While the storm is off the grid, there are no queries.
    """
    if grid.coordinates != "lonlat":
        raise GridError(f"coordinates: found {grid.coordinates!r}, expected 'lonlat' for a storm's track")
    if per_step < 1 or not step_h > 0:
        raise QueryError(f"moving: found per_step {per_step}, step_h {step_h}, expected both more than 0")
    clients = _Clients(grid, exponent, rng)
    west, south, east, north = grid.extent
    dx, dy = grid.spacing
    for step in range(int(track.hours[-1] / step_h) + 1):
        lon, lat = track.at(step * step_h)
        if not west <= lon < east:
            lon = west + (lon - west) % 360
        if lon < east and south <= lat <= north:
            for _ in range(per_step):
                yield step * step_h, clients.ask(int((lon - west) / dx), int((lat - south) / dy))


class _Clients:
    """Draws queries around a point of a grid."""

    def __init__(self, grid: Grid, exponent: float, rng: Random) -> None:
        self._grid = grid
        self._random = rng.random
        self._weights = list(accumulate(d**-exponent for d in range(1, DISTANCE_MAX + 1)))
        self._blocks = 1 << grid.resolution_bits[0], 1 << grid.resolution_bits[1]

    def ask(self, x: int, y: int) -> Query:
        """A query whose four bounds lie at independent distances from the point (x, y)."""
        block_x, block_y = self._blocks
        box = self.box(
            (x - self._distance(block_x), x + self._distance(block_x)),
            (y - self._distance(block_y), y + self._distance(block_y)),
        )
        return Query(self._grid.attributes[0], self._grid.bbox_of(box), self.resolution())

    def resolution(self) -> tuple[float, float, float]:
        """Spatial and temporal resolution, each uniform in (0, 1]."""
        return *alternate(1 - self._random()), 1 - self._random()

    def box(self, x: tuple[int, int], y: tuple[int, int]) -> Box:
        """The box between such bounds, clipped at the world's border (a world that is round has none in x)."""
        (nx, ny), (block_x, block_y) = self._grid.shape, self._blocks
        y0, y1 = _between(*y, ny, block_y)
        if not self._grid.wraps:
            return Box(*_between(*x, nx, block_x), y0, y1)
        if x[1] - x[0] >= nx:
            return Box(0, nx, y0, y1)
        x0 = x[0] % nx
        return Box(x0, _holding(x0, x0 + x[1] - x[0], block_x), y0, y1)

    def _distance(self, block: int) -> int:
        """Points from the centre to a bound: at least one."""
        weights = self._weights
        blocks = bisect_right(weights, self._random() * weights[-1], hi=DISTANCE_MAX - 1) + 1
        return blocks * block - int(self._random() * block)


def _between(low: int, high: int, points: int, block: int) -> tuple[int, int]:
    """Bounds inside an axis that hold a point of rank 0."""
    low = min(max(low, 0), points - block)
    return low, _holding(low, min(high, points), block)


def _holding(low: int, high: int, block: int) -> int:
    """The upper bound, raised so far that a block's first point is inside.

    It is the one point that every resolution asks for: a box without one might hold nothing at all.
    """
    return max(high, (low + block - 1) // block * block + 1)


def alternate(resolution: float) -> tuple[float, float]:
    """One spatial resolution as a pair (x, y) of the same size, nested like the digits of `res_xy`.

    The digits of `res_xy` belong to x and y in turn, so each halving of the resolution is taken by x, then by
    y, then by x again: what a coarser query asks for is part of what a finer one does.

    >>> [alternate(r) for r in (1, 3/4, 1/2, 3/8, 1/4, 1/8)]
    [(1.0, 1.0), (0.75, 1.0), (0.5, 1.0), (0.5, 0.75), (0.5, 0.5), (0.25, 0.5)]
    """
    if not 0 < resolution <= 1:
        raise QueryError(f"resolution: found {resolution}, expected a number in (0, 1]")
    part, exponent = math.frexp(resolution)
    part, halvings = (1.0, 1 - exponent) if part == 0.5 else (part, -exponent)
    x, y = math.ldexp(1.0, -((halvings + 1) // 2)), math.ldexp(1.0, -(halvings // 2))
    return (x, y * part) if halvings % 2 else (x * part, y)
