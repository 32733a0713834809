"""What is true by brute force: every point of a small grid, one by one, with none of the code under test."""

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from sensorgrid.index.cell import CellSlices
from sensorgrid.model.box import Box
from sensorgrid.model.grid import ORDER_2D, ORDER_3D, ORDER_4D, ORDER_5D, Grid

Mask = npt.NDArray[np.bool_]
ORDERS = (ORDER_2D, ORDER_3D, ORDER_4D, ORDER_5D)


def permutation(size: int) -> list[int]:
    """The permuted order of a block's indices, by the recursion of multires, section 4.2.2."""
    intervals = [list(range(size))]
    while len(intervals[0]) > 1:
        intervals = [half for interval in intervals for half in (interval[0::2], interval[1::2])]
    return [interval[0] for interval in intervals]


def ranks(size: int) -> list[int]:
    """Of each offset in a block, its place in the permuted order."""
    order = permutation(size)
    return [order.index(offset) for offset in range(size)]


def query_mask(grid: Grid, box: Box, limits: tuple[int, int, int]) -> Mask:
    """[tick, y, x]: the points of a query, in one period of ticks."""
    kx, ky, kt = grid.resolution_bits
    nx, ny = grid.shape
    rank_x, rank_y, rank_t = (np.array(ranks(1 << bits)) for bits in (kx, ky, kt))
    x = np.zeros(nx, dtype=bool)
    x[np.arange(box.x0, box.x1) % nx] = True
    x &= rank_x[np.arange(nx) % (1 << kx)] < limits[0]
    y = (np.arange(ny) >= box.y0) & (np.arange(ny) < box.y1) & (rank_y[np.arange(ny) % (1 << ky)] < limits[1])
    t = rank_t < limits[2]
    return t[:, None, None] & y[None, :, None] & x[None, None, :]


def slices_mask(grid: Grid, slices: CellSlices) -> Mask:
    """[tick, y, x]: the points of a strided slice, in one period of ticks."""
    mask = np.zeros((1 << grid.resolution_bits[2], grid.shape[1], grid.shape[0]), dtype=bool)
    offset, stride = slices.ticks
    mask[offset::stride, slices.y, slices.x] = True
    return mask


def leaf_digits(grid: Grid, ix: int, iy: int, tick: int) -> str:
    """The digits of the leaf that holds a point, by the papers' rules and nothing else."""
    kx, ky, kt = grid.resolution_bits
    bx, by = grid.shape[0].bit_length() - 1 - kx, grid.shape[1].bit_length() - 1 - ky

    def digits(value: int, count: int) -> list[str]:
        return list(format(value, "b").zfill(count)) if count else []

    left: dict[str, list[str]] = {
        "x": digits(ix >> kx, bx),
        "y": digits(iy >> ky, by),
        "res_x": digits(ranks(1 << kx)[ix % (1 << kx)], kx),
        "res_y": digits(ranks(1 << ky)[iy % (1 << ky)], ky),
        "res_t": digits(ranks(1 << kt)[tick % (1 << kt)], kt),
    }
    left["res_xy"] = _alternate(left["res_x"], left["res_y"])
    result: list[str] = _alternate(left["x"], left["y"])[: grid.region_digits]
    for name in ("x", "y"):
        taken = sum(1 for axis in _alternate(["x"] * bx, ["y"] * by)[: grid.region_digits] if axis == name)
        left[name] = left[name][taken:]
    while any(left[name] for name in grid.order):
        result += [left[name].pop(0) for name in grid.order if left[name]]
    return "".join(result)


def _alternate(first: list[str], second: list[str]) -> list[str]:
    first, second, result = list(first), list(second), []
    while first or second:
        if first:
            result.append(first.pop(0))
        if second:
            result.append(second.pop(0))
    return result


@st.composite
def small_grids(draw: Any) -> Grid:
    """Grids of some hundred points, of every shape and order."""
    bits = (draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    width, height = draw(st.integers(bits[0] + 1, 5)), draw(st.integers(bits[1], 4))
    return Grid(
        shape=(1 << width, 1 << height),
        resolution_bits=bits,
        order=draw(st.sampled_from(ORDERS)),
        region_digits=draw(st.integers(0, 5)),
    )


@st.composite
def boxes_on(draw: Any, grid: Grid) -> Box:
    """Boxes on a grid, also across the date line and all around the earth."""
    nx, ny = grid.shape
    if draw(st.integers(0, 5)) == 5:
        return Box(0, nx, 0, ny)
    x0 = draw(st.integers(0, nx - 1))
    y0 = draw(st.integers(0, ny - 1))
    return Box(x0, draw(st.integers(x0 + 1, x0 + nx)), y0, draw(st.integers(y0 + 1, ny)))


@st.composite
def limits_on(draw: Any, grid: Grid) -> tuple[int, int, int]:
    """Resolutions, as numbers of ranks."""
    x, y, t = (draw(st.integers(1, 1 << bits)) for bits in grid.resolution_bits)
    return x, y, t
