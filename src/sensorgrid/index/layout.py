"""Which digit of a cell halves what.

A cell is a string of binary digits. Each digit halves one axis: the blocks along x or y, the ranks (see
`sensorgrid.model.resolution`) along x, y or t. The grid's `order` says in which sequence (multires, sections
4.1 and 4.2.1); the layout is that sequence, written out once per grid. Nothing below this module knows the
papers' two, three, four or five dimensions apart.

Differs from the paper: `res_xy` is one dimension for two axes, so its digits alternate between them (half is
every other column, a quarter every other column and row), and a cell stays a strided slice.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sensorgrid.model.grid import Grid

X, Y, RX, RY, RT = range(5)
"""The axes that a digit can halve: blocks along x, y; ranks along x, y, t."""

_AXES = {"x": (X,), "y": (Y,), "res_xy": (RX, RY), "res_x": (RX,), "res_y": (RY,), "res_t": (RT,)}


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The digits of a grid's cells, as tables for Python and for compiled code."""

    axes: tuple[int, ...]
    """the axis that each digit halves"""
    axis_digits: tuple[int, int, int, int, int]
    """how many digits each axis has in the grid, whether the order uses them or not"""
    places: tuple[tuple[int, int], ...]
    """for each digit, its axis and how many blocks or ranks a 1 there moves the start"""
    width_rows: tuple[tuple[int, int, int, int, int], ...]
    """`widths` as plain numbers"""
    axes_array: npt.NDArray[np.int64]
    """the same for compiled code"""
    counts: npt.NDArray[np.int64]
    """[length, axis]: digits of the axis among the first `length`"""
    widths: npt.NDArray[np.int64]
    """[length, axis]: blocks or ranks of a cell of that length"""
    spread_x: npt.NDArray[np.int64]
    """[block]: the digits of a block's x at their places in a leaf ID"""
    spread_y: npt.NDArray[np.int64]
    """[block]: likewise for y"""
    spatial_digits: int
    """so many leading digits are spatial"""

    @property
    def digits(self) -> int:
        """Digits of a leaf, the smallest cell."""
        return len(self.axes)


def layout_of(grid: Grid) -> Layout:
    """The layout of a grid, made once."""
    global _latest
    if _latest is None or _latest[0] is not grid:  # hashing a grid takes longer than what layouts are for
        _latest = grid, _make_layout(grid)
    return _latest[1]


_latest: tuple[Grid, Layout] | None = None


@lru_cache(maxsize=64)
def _make_layout(grid: Grid) -> Layout:
    total = (*grid.axis_digits, *grid.resolution_bits)
    axes = tuple(_sequence(grid, list(total)))
    counts = np.zeros((len(axes) + 1, 5), dtype=np.int64)
    for place, axis in enumerate(axes):
        counts[place + 1] = counts[place]
        counts[place + 1, axis] += 1
    widths = 1 << (np.array(total, dtype=np.int64) - counts)
    width_rows = tuple((int(a), int(b), int(c), int(d), int(e)) for a, b, c, d, e in widths)
    leading = next((i for i, axis in enumerate(axes) if axis > Y), len(axes))
    return Layout(
        axes=axes,
        places=tuple((axis, width_rows[place + 1][axis]) for place, axis in enumerate(axes)),
        width_rows=width_rows,
        axes_array=np.array(axes, dtype=np.int64),
        axis_digits=total,
        counts=counts,
        widths=widths,
        spread_x=_spread(axes, X, total[X]),
        spread_y=_spread(axes, Y, total[Y]),
        spatial_digits=leading,
    )


def _sequence(grid: Grid, left: list[int]) -> list[int]:
    """The axes, digit by digit: the regions' spatial digits first, then all dimensions round robin."""
    axes: list[int] = []

    def take(candidates: list[int]) -> None:
        for axis in candidates:
            if left[axis]:
                left[axis] -= 1
                axes.append(axis)
                candidates.append(candidates.pop(candidates.index(axis)))
                return

    region = [X, Y]
    while len(axes) < grid.region_digits and (left[X] or left[Y]):
        take(region)
    dimensions = [list(_AXES[name]) for name in grid.order]
    while any(left[axis] for dimension in dimensions for axis in dimension):
        for dimension in dimensions:
            take(dimension)
    return axes


def _spread(axes: tuple[int, ...], axis: int, digits: int) -> npt.NDArray[np.int64]:
    """For each block of an axis, its binary digits at the places that the axis has in a leaf ID."""
    blocks = np.arange(1 << digits, dtype=np.int64)
    places = [len(axes) - 1 - place for place, a in enumerate(axes) if a == axis]
    table = np.zeros(1 << digits, dtype=np.int64)
    for i, place in enumerate(places):
        table |= (blocks >> (digits - 1 - i) & 1) << place
    return table
