"""The world as a grid of points: where they lie, when they tick, how their cells are numbered.

A point stands in the middle of its own small area, and the areas tile the extent without gap or overlap.
Areas and boxes are half-open: they own their west and south border, not their east and north one. So every
position belongs to exactly one point, and every point to exactly one of two boxes that share a border. Two
borders need care: the extent's own upper border belongs to the last row (the north pole) or column, and on a
grid that closes around the earth, longitude 180 is longitude -180.

Every tuple of this module is x first (longitude, then latitude); only arrays are indexed ``[y, x]``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil, floor, isfinite
from numbers import Real
from operator import index
from typing import Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from sensorgrid.model.box import Box
from sensorgrid.model.errors import GridError, QueryError, UnknownAttributeError

Bbox = tuple[float, float, float, float]
"""west, south, east, north, in the grid's coordinates"""

Dimension = Literal["x", "y", "res_xy", "res_x", "res_y", "res_t"]

ORDER_2D: tuple[Dimension, ...] = ("x", "y")
"""Space only: the multires paper's baseline."""
ORDER_3D: tuple[Dimension, ...] = ("x", "y", "res_xy")
"""With spatial resolution, one dimension for both axes (multires, section 4.2.1)."""
ORDER_4D: tuple[Dimension, ...] = ("x", "y", "res_xy", "res_t")
"""With spatial and temporal resolution: the multires paper's full index."""
ORDER_5D: tuple[Dimension, ...] = ("x", "y", "res_x", "res_y", "res_t")
"""With a resolution per axis, as the relays paper's query model wants it: the product's order."""

POINTS_MAX = 1 << 22
"""Points along an axis: ten metres on the equator."""
DIGITS_MAX = 42
"""Digits of a cell: index keys, and the points of two million queries for everything, fit 64 bits."""
BITS_MAX = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOSE = 1e-9

ATTRIBUTES = (
    "air_temperature",
    "dew_point_temperature",
    "air_pressure_at_mean_sea_level",
    "relative_humidity",
    "wind_speed",
    "wind_from_direction",
    "eastward_wind",
    "northward_wind",
    "precipitation_amount",
    "sea_surface_temperature",
    "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air",
)
"""The attributes of a grid that names none: CF standard names."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A world of 2^bx × 2^by points with a tick, and the order in which its cells are numbered.

    Parameters
    ----------
    extent
        West, south, east, north of the areas of all points; the whole earth if left out.
    shape
        Points along x and along y, each a power of two.
    tick
        Seconds between two values of a point, or a timedelta. Ticks count from 1970-01-01T00:00Z.
    resolution_bits
        Digits of resolution along x, y and t, or one number for all: with 4 the coarsest query takes every
        16th point and tick, and 16 × 16 points are the smallest block that space is cut into.
    coordinates
        "lonlat" for degrees, "planar" for any plane. A lonlat grid of 360 degrees closes around the earth.
    attributes
        CF standard names of what the grid carries.
    order
        Which dimensions cells are made of, in which order their digits follow each other.
    region_digits
        So many leading digits are spatial, so that the regions of up to 2^n brokers are cells.
    value_bytes
        Bytes of one value on the wire.

    Examples
    --------
    >>> grid = Grid(shape=(4096, 2048), tick=600)
    >>> grid.index_of(13.4, 52.5)                    # Berlin
    (2200, 1621)
    >>> grid.point_at(2200, 1621)
    (13.4033203125, 52.5146484375)
    """

    extent: Bbox = (-180.0, -90.0, 180.0, 90.0)
    """west, south, east, north"""
    shape: tuple[int, int] = (4096, 2048)
    """points along x and along y, each a power of two"""
    tick: float = 600.0
    """seconds between two values of one point"""
    resolution_bits: tuple[int, int, int] = (4, 4, 4)
    """digits of resolution along x, y and t; one number stands for all three"""
    coordinates: Literal["lonlat", "planar"] = "lonlat"
    """degrees on the earth, or any plane"""
    attributes: tuple[str, ...] = ATTRIBUTES
    """what the grid carries, by CF standard name"""
    order: tuple[Dimension, ...] = ORDER_5D
    """dimensions in the order in which their digits follow each other, round robin"""
    region_digits: int = 8
    """so many leading digits are spatial, so that the regions of up to 2^n brokers are cells (4.5.2)"""
    value_bytes: int = 4
    """bytes of one value on the wire"""

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        tick: Any = self.tick.total_seconds() if isinstance(self.tick, timedelta) else self.tick
        if isinstance(tick, bool) or not isinstance(tick, Real):
            raise GridError(f"tick: found {tick!r}, expected a positive number of seconds")
        bits: Any = self.resolution_bits
        names: Any = self.attributes
        set_field(self, "tick", float(tick))
        set_field(self, "extent", _tuple("extent", self.extent, float, "four finite numbers"))
        set_field(self, "shape", _tuple("shape", self.shape, index, "two powers of two"))
        bits = (bits,) * 3 if isinstance(bits, SupportsIndex) else bits
        expected = f"one or three whole numbers in [0, {BITS_MAX}]"
        set_field(self, "resolution_bits", _tuple("resolution_bits", bits, index, expected))
        set_field(self, "attributes", (names,) if isinstance(names, str) else tuple(names))
        set_field(self, "order", tuple(self.order))
        self._check_space()
        self._check_numbering()

    def _check_space(self) -> None:
        extent, shape = self.extent, self.shape
        if len(extent) != 4 or not all(map(isfinite, extent)):
            raise GridError(f"extent: found {extent}, expected four finite numbers west, south, east, north")
        west, south, east, north = extent
        if west >= east or south >= north:
            meant = (min(west, east), min(south, north), max(west, east), max(south, north))
            raise GridError(
                f"extent: found {extent}, expected west < east and south < north: perhaps {meant}"
            )
        if self.coordinates not in ("lonlat", "planar"):
            raise GridError(f"coordinates: found {self.coordinates!r}, expected 'lonlat' or 'planar'")
        if self.coordinates == "lonlat":
            if abs(east - west - 360) < _CLOSE:  # all around, whatever the rounding of its borders
                object.__setattr__(self, "extent", (west, south, west + 360, north))
            elif east - west > 360 or max(abs(west), abs(east)) > 360 or south < -90 or north > 90:
                raise GridError(
                    f"extent: found {extent}, expected longitudes in [-360, 360], at most 360 degrees of"
                    " them, and latitudes in [-90, 90]; other coordinates need coordinates='planar'"
                )
        if len(shape) != 2 or not all(0 < n <= POINTS_MAX and n & (n - 1) == 0 for n in shape):
            raise GridError(
                f"shape: found {shape}, expected two powers of two (points along x, along y), each up to"
                f" {POINTS_MAX}"
            )
        if not (isfinite(self.tick) and self.tick >= 1e-6):
            raise GridError(f"tick: found {self.tick}, expected a positive number of seconds, at least 1e-6")

    def _check_numbering(self) -> None:
        bits, order = self.resolution_bits, self.order
        if len(bits) != 3 or not all(_is_int(b) and 0 <= b <= BITS_MAX for b in bits):
            raise GridError(
                f"resolution_bits: found {bits}, expected one or three whole numbers in [0, {BITS_MAX}]"
            )
        for axis, points, digits in zip("xy", self.shape, bits, strict=False):
            if points < 1 << digits:
                raise GridError(
                    f"shape: found {points} points along {axis}, expected at least one block of"
                    f" 2^{digits} = {1 << digits} points (resolution_bits)"
                )
        if self.wraps and self.shape[0] == 1 << bits[0]:
            raise GridError(
                f"shape: found one block of {self.shape[0]} points around the earth, expected two or more"
                " (larger shape or fewer resolution_bits)"
            )
        if self.axis_digits[0] + self.axis_digits[1] + sum(bits) > DIGITS_MAX:
            raise GridError(
                f"shape: found {self.shape} with {bits} resolution bits, expected at most {DIGITS_MAX} digits"
            )
        allowed = {"x", "y", "res_xy", "res_x", "res_y", "res_t"}
        twice = len(set(order)) < len(order) or ("res_xy" in order and {"res_x", "res_y"} & set(order))
        if not {"x", "y"} <= set(order) <= allowed or twice:
            raise GridError(
                f"order: found {order}, expected x and y, and at most once each of res_xy (or res_x, res_y)"
                " and res_t"
            )
        if not (_is_int(self.region_digits) and self.region_digits >= 0):
            raise GridError(f"region_digits: found {self.region_digits}, expected a whole number >= 0")
        if not (_is_int(self.value_bytes) and self.value_bytes > 0):
            raise GridError(f"value_bytes: found {self.value_bytes}, expected a whole number > 0")
        names = self.attributes
        if not names or not all(isinstance(n, str) and n for n in names) or len(set(names)) < len(names):
            raise GridError(f"attributes: found {names}, expected one or more names, each once")

    @property
    def wraps(self) -> bool:
        """Whether the grid closes around the earth, so that its last column borders on its first."""
        return self.coordinates == "lonlat" and self.extent[2] == self.extent[0] + 360

    @property
    def spacing(self) -> tuple[float, float]:
        """Distance between neighbouring points along x and y."""
        west, south, east, north = self.extent
        return (east - west) / self.shape[0], (north - south) / self.shape[1]

    @property
    def axis_digits(self) -> tuple[int, int]:
        """Spatial digits along x and y: they stop at blocks of 2^bits points."""
        bits = self.resolution_bits
        return self.shape[0].bit_length() - 1 - bits[0], self.shape[1].bit_length() - 1 - bits[1]

    @property
    def points_per_period(self) -> int:
        """Points of the whole grid in 2^t-bits ticks, after which the pattern of ticks repeats."""
        return self.shape[0] * self.shape[1] << self.resolution_bits[2]

    def check_attributes(self, names: tuple[str, ...]) -> None:
        """Refuse names that this grid does not carry."""
        for name in names:
            if name not in self.attributes:
                raise UnknownAttributeError(
                    f"attribute: found {name!r}, expected one of {', '.join(self.attributes)}"
                )

    def point_at(self, ix: int, iy: int) -> tuple[float, float]:
        """Coordinates of the point in column `ix` and row `iy`."""
        nx, ny = self.shape
        ix, iy = index(ix), index(iy)
        if not (0 <= ix < nx and 0 <= iy < ny):
            raise GridError(f"point: found ({ix}, {iy}), expected within (0, 0) and ({nx - 1}, {ny - 1})")
        dx, dy = self.spacing
        return self.extent[0] + (ix + 0.5) * dx, self.extent[1] + (iy + 0.5) * dy

    def index_of(self, x: float, y: float) -> tuple[int, int]:
        """Column and row of the point whose area holds the position (x, y)."""
        ix, iy = self.indices_of(np.array([x]), np.array([y]))
        return int(ix[0]), int(iy[0])

    def indices_of(
        self, x: npt.ArrayLike, y: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Columns and rows of many positions at once; one position off the grid refuses them all."""
        west, south, east, north = self.extent
        xs, ys = np.broadcast_arrays(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
        if self.coordinates == "lonlat":
            # `<= east` and not `<`: on a regional grid the east border belongs to the last column.
            xs = np.where((xs >= west) & (xs <= east), xs, west + np.mod(xs - west, 360.0))
        inside = (xs >= west) & (xs <= east) & (ys >= south) & (ys <= north)
        if not inside.all():
            found = ", ".join(str(axis[~inside].flat[0]) for axis in np.broadcast_arrays(x, y))
            raise GridError(f"position: found ({found}), expected within {self.extent}")
        dx, dy = self.spacing
        ix = np.floor((xs - west) / dx).astype(np.int64)
        iy = np.floor((ys - south) / dy).astype(np.int64)
        ix = ix % self.shape[0] if self.wraps else np.minimum(ix, self.shape[0] - 1)
        return ix, np.minimum(iy, self.shape[1] - 1)

    def box_of(self, bbox: Bbox) -> Box:
        """The points inside a bounding box.

        A box without width (west = east) asks for the column that holds that coordinate, likewise for rows:
        the way to ask for one point. With west > east the box crosses the date line.
        """
        if len(bbox) != 4 or not all(map(isfinite, bbox)):
            raise QueryError(f"bbox: found {bbox}, expected four finite numbers west, south, east, north")
        west, south, east, north = bbox
        if south < self.extent[1] or north > self.extent[3]:
            raise self._outside(bbox)
        x0, x1 = self._columns(west, east, bbox)
        y0, y1 = _edge(south, self.extent[1], self.spacing[1]), _edge(north, self.extent[1], self.spacing[1])
        if west == east:
            x0 = self.index_of(west, self.extent[1])[0]
            x1 = x0 + 1
        if south == north:
            y0 = min(floor((south - self.extent[1]) / self.spacing[1]), self.shape[1] - 1)
            y1 = y0 + 1
        for axis, low, high, spacing in (("x", x0, x1, self.spacing[0]), ("y", y0, y1, self.spacing[1])):
            if low >= high:
                raise QueryError(
                    f"bbox {bbox}: found no grid point along {axis}, expected a width of at least the"
                    f" spacing {spacing:g}, or 0 for the one point at that coordinate"
                )
        return Box(x0, x1, y0, y1)

    def _columns(self, west: float, east: float, bbox: Bbox) -> tuple[int, int]:
        """Columns between two borders.

        Each border alone decides which column comes next, by the same arithmetic on the number that was
        given. So of two boxes that share it, exactly one gets the point on or near it.
        """
        nx, (low, _, high, _), spacing = self.shape[0], self.extent, self.spacing[0]
        if self.coordinates == "planar":
            if west > east:
                raise QueryError(f"bbox: found west {west} > east {east}, expected west <= east on a plane")
            if west < low or east > high:
                raise self._outside(bbox)
            return _edge(west, low, spacing), _edge(east, low, spacing)
        width = east - west if east >= west else east - west + 360
        if max(abs(west), abs(east)) > 720 or not 0 <= width <= 360:
            raise QueryError(
                f"bbox: found {bbox}, expected longitudes in [-720, 720] and at most 360 degrees of them"
            )
        if not self.wraps:
            west, east = (self._longitude(v) for v in (west, east))
            if west > high or east > high or west > east:
                raise self._outside(bbox)
            return _edge(west, low, spacing), _edge(east, low, spacing)
        if width == 360:
            return 0, nx
        x0, x1 = (_edge(self._longitude(v), low, spacing) % nx for v in (west, east))
        # The same column twice: a box too narrow for a point, or one that leaves out too little for one.
        return x0, x1 + nx * (x1 < x0 or (x1 == x0 and width > 180))

    def _longitude(self, x: float) -> float:
        """A longitude in the extent's own range, if it is not there already."""
        west, _, east, _ = self.extent
        return x if west <= x <= east else west + (x - west) % 360

    def _outside(self, bbox: Bbox) -> QueryError:
        return QueryError(f"bbox: found {bbox}, expected a box inside the grid's extent {self.extent}")

    def check_box(self, box: Box) -> None:
        """Refuse a box that is not on this grid."""
        nx, ny = self.shape
        if box.x0 >= nx or box.x1 > (box.x0 + nx if self.wraps else nx) or box.y1 > ny:
            raise GridError(f"{box}: expected a box on the grid of {nx} × {ny} points")

    def plain_boxes(self, box: Box) -> tuple[Box, ...]:
        """The box itself, or its two parts on either side of the date line."""
        nx = self.shape[0]
        if box.x1 <= nx:
            return (box,)
        return Box(box.x0, nx, box.y0, box.y1), Box(0, box.x1 - nx, box.y0, box.y1)

    def bbox_of(self, box: Box) -> Bbox:
        """The bounding box around the areas of a box's points.

        `box_of` gives the box back, but for one around the earth, which then starts at column 0.
        """
        (dx, dy), (west, south) = self.spacing, self.extent[:2]
        around = box.x1 - box.x0 == self.shape[0]
        x0, x1 = (0, self.shape[0]) if around else (box.x0, box.x1 - self.shape[0] * (box.x1 > self.shape[0]))
        return west + x0 * dx, south + box.y0 * dy, west + x1 * dx, south + box.y1 * dy

    def tick_at(self, moment: datetime) -> int:
        """The last tick that is not after `moment`."""
        return floor(_microseconds(moment) / self._tick_us)

    def tick_from(self, moment: datetime) -> int:
        """The first tick that is not before `moment`."""
        return ceil(_microseconds(moment) / self._tick_us)

    def time_of(self, tick: int) -> datetime:
        """When a tick is, to the microsecond."""
        return _EPOCH + timedelta(microseconds=round(tick * self._tick_us))

    @property
    def _tick_us(self) -> Fraction:
        # A tick of 0.1 s means a tenth of a second, not the binary fraction nearest to it.
        return Fraction(str(self.tick)) * 1_000_000


def _microseconds(moment: datetime) -> Fraction:
    if moment.tzinfo is None:
        raise GridError(f"time: found {moment.isoformat()} without a time zone, expected one, such as UTC")
    return Fraction((moment - _EPOCH) // timedelta(microseconds=1))


def _edge(border: float, origin: float, spacing: float) -> int:
    """The first point that is not below a border."""
    return ceil((border - origin) / spacing - 0.5)


def _tuple(name: str, values: Any, convert: Callable[[Any], Any], expected: str) -> tuple[Any, ...]:
    """Values as a tuple of numbers; NumPy's numbers and arrays are welcome."""
    try:
        return tuple(convert(value) for value in values)
    except (TypeError, ValueError):
        raise GridError(f"{name}: found {values!r}, expected {expected}") from None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
