"""Regions: the parts of the world that are gridded independently, each with a halo of its neighbours' sensors.

A region is a spatial cell of the grid (its first `region_digits` digits), so that it is what a broker owns. Its
halo is what lies within a distance: wide enough, a point at the border sees the same sensors as it would in one
big region, and there is no seam. How wide depends on how dense the sensors are; `halos_for` looks at them.

Membership is decided per *bin*, a sixteenth of a region: a table says which regions' halos a bin touches. That
makes it a function of the position alone and a lookup instead of a distance, for millions of measurements.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from sensorgrid.index.cell import Cell
from sensorgrid.index.layout import layout_of
from sensorgrid.model.box import Box
from sensorgrid.model.errors import GridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.kernels.interface import EARTH_RADIUS_M, Floats, metres

BINS = 4
"""bins of a region along each axis"""
_LATTICE = 9
"""points along each side of a region or bin that stand for it when distances are measured"""
REGIONS_MAX = 1 << 14


@dataclass(frozen=True)
class Regions:
    """The regions of a grid; region n is the cell whose digits are n."""

    grid: Grid

    def __post_init__(self) -> None:
        layout = layout_of(self.grid)
        if self.grid.region_digits > layout.spatial_digits or 1 << self.grid.region_digits > REGIONS_MAX:
            raise GridError(
                f"region_digits: found {self.grid.region_digits}, expected at most"
                f" {min(layout.spatial_digits, REGIONS_MAX.bit_length() - 1)} on this grid"
            )

    def __len__(self) -> int:
        return 1 << self.grid.region_digits

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """The points of each region."""
        bx, by = (1 << bits for bits in self.grid.resolution_bits[:2])
        boxes = []
        for number in range(len(self)):
            (x, y, *_), (w, h, *_) = Cell(len(self) | number).geometry(self.grid)
            boxes.append(Box(x * bx, (x + w) * bx, y * by, (y + h) * by))
        return tuple(boxes)

    def name(self, number: int) -> str:
        """The region's cell, as text."""
        digits = self.grid.region_digits
        return format(number, f"0{digits}b") if digits else "ε"

    def number(self, name: str) -> int:
        """The region whose cell is `name`."""
        return Cell.parse(name).code - len(self)

    @cached_property
    def _by_point(self) -> npt.NDArray[np.int64]:
        """[region column, region row] → region."""
        width, height = self.region_shape
        table = np.zeros((self.grid.shape[0] // width, self.grid.shape[1] // height), np.int64)
        for number, box in enumerate(self.boxes):
            table[box.x0 // width, box.y0 // height] = number
        return table

    @property
    def region_shape(self) -> tuple[int, int]:
        """Points of a region along x and y; all are alike."""
        box = self.boxes[0]
        return box.x1 - box.x0, box.y1 - box.y0

    def of(self, x: Floats, y: Floats) -> npt.NDArray[np.int64]:
        """The region of each position, which must lie on the grid."""
        ix, iy = self.grid.indices_of(x, y)
        width, height = self.region_shape
        return self._by_point[ix // width, iy // height]

    def bins_of(self, x: Floats, y: Floats) -> npt.NDArray[np.int64]:
        """The bin of each position, which must lie on the grid."""
        west, south, east, north = self.grid.extent
        columns, rows = self._bin_shape
        if self.grid.coordinates == "lonlat":
            x = np.where((x >= west) & (x <= east), x, west + np.mod(x - west, 360.0))
        bx = np.floor((x - west) / (east - west) * columns).astype(np.int64)
        by = np.floor((y - south) / (north - south) * rows).astype(np.int64)
        return np.clip(bx, 0, columns - 1) * rows + np.clip(by, 0, rows - 1)

    @property
    def _bin_shape(self) -> tuple[int, int]:
        width, height = self.region_shape
        return BINS * self.grid.shape[0] // width, BINS * self.grid.shape[1] // height

    def points(self, number: int) -> tuple[Floats, Floats]:
        """Coordinates x and y of a region's points, row by row as in an array ``[y, x]``."""
        box, (dx, dy) = self.boxes[number], self.grid.spacing
        x = self.grid.extent[0] + (np.arange(box.x0, box.x1) + 0.5) * dx
        y = self.grid.extent[1] + (np.arange(box.y0, box.y1) + 0.5) * dy
        columns, rows = np.meshgrid(x, y)
        return columns.ravel(), rows.ravel()

    def halos_for(self, x: Floats, y: Floats, neighbours: int) -> Floats:
        """How wide each region's halo must be, in metres, for sensors at these positions.

        Twice the distance to the `neighbours`-th sensor from the region's emptiest point: the first half holds
        all sensors that a point depends on, the second those that check them.
        """
        if not len(x):
            return np.full(len(self), self.default_halo())
        sensors = np.unique(metres(x, y, self.grid.coordinates), axis=0)
        count = min(neighbours, len(sensors))
        lattice = np.concatenate([_lattice(self, box) for box in self.boxes])
        distance = cKDTree(sensors).query(lattice, k=[count])[0].reshape(len(self), -1)
        return np.asarray(2 * distance.max(axis=1), np.float64)

    def default_halo(self) -> float:
        """A halo as wide as a region, for sensors that nobody knows yet."""
        west, south, east, north = self.grid.extent
        columns, rows = self._bin_shape
        width, height = (east - west) * BINS / columns, (north - south) * BINS / rows
        if self.grid.coordinates == "planar":
            return float(max(width, height))
        return float(np.radians(max(width, height)) * EARTH_RADIUS_M)


@dataclass(frozen=True)
class Halos:
    """Which regions want a measurement: its own, and those whose halo it touches."""

    regions: Regions
    width_m: tuple[float, ...]
    """of each region, in metres"""

    def __post_init__(self) -> None:
        if len(self.width_m) != len(self.regions):
            raise GridError(
                f"halos: found {len(self.width_m)}, expected one for each of {len(self.regions)} regions"
            )

    @cached_property
    def _table(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Regions of each bin: where its list starts, and the lists."""
        regions = self.regions
        columns, rows = regions._bin_shape
        west, south, east, north = regions.grid.extent
        bx, by = np.divmod(np.arange(columns * rows), rows)
        centre_x = west + (bx + 0.5) * (east - west) / columns
        centre_y = south + (by + 0.5) * (north - south) / rows
        centres = metres(centre_x, centre_y, regions.grid.coordinates)
        corner_x, corner_y = west + bx * (east - west) / columns, south + by * (north - south) / rows
        # The corner nearer to the equator is the farther one; both ways covers the plane as well.
        slack = np.maximum(
            np.linalg.norm(centres - metres(corner_x, corner_y, regions.grid.coordinates), axis=1),
            np.linalg.norm(
                centres - metres(corner_x, 2 * centre_y - corner_y, regions.grid.coordinates), axis=1
            ),
        )
        own = regions.of(centre_x, centre_y)
        wanted = np.zeros((len(centres), len(regions)), bool)
        for number, box in enumerate(regions.boxes):
            lattice = _lattice(regions, box)
            step = _lattice_step(lattice)
            near = cKDTree(lattice).query(centres)[0] - slack - step <= self.width_m[number]
            wanted[:, number] = near | (own == number)
        lists = np.nonzero(wanted)[1]
        starts = np.r_[0, np.cumsum(wanted.sum(axis=1))]
        return starts, lists

    def spread(self, x: Floats, y: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Every pair (measurement, region that wants it), as two columns."""
        starts, lists = self._table
        bins = self.regions.bins_of(x, y)
        counts = starts[bins + 1] - starts[bins]
        rows = np.repeat(np.arange(len(x)), counts)
        offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, lists[np.repeat(starts[bins], counts) + offsets]


@lru_cache(maxsize=8)
def halos_of(grid: Grid, width_m: tuple[float, ...]) -> Halos:
    """Halos with their table, made once per process."""
    return Halos(Regions(grid), width_m)


@lru_cache(maxsize=4096)
def points_in_metres(grid: Grid, number: int) -> Floats:
    """A region's points for a kernel, made once per process."""
    return metres(*_regions(grid).points(number), grid.coordinates)


@lru_cache(maxsize=8)
def _regions(grid: Grid) -> Regions:
    return Regions(grid)


def _lattice(regions: Regions, box: Box) -> Floats:
    """Points spread over a region, its border included."""
    (dx, dy), (west, south) = regions.grid.spacing, regions.grid.extent[:2]
    x = west + np.linspace(box.x0, box.x1, _LATTICE) * dx
    y = south + np.linspace(box.y0, box.y1, _LATTICE) * dy
    columns, rows = np.meshgrid(x, y)
    return metres(columns.ravel(), rows.ravel(), regions.grid.coordinates)


def _lattice_step(lattice: Floats) -> float:
    """No position of the region is farther than this from a point of its lattice."""
    square = lattice.reshape(_LATTICE, _LATTICE, -1)
    along = [np.linalg.norm(np.diff(square, axis=axis), axis=-1).max() for axis in (0, 1)]
    return float(np.hypot(*along)) / 2
