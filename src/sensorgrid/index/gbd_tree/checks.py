"""What both trees refuse, before anything is changed: nothing is rounded, reshaped or cut off."""

from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from sensorgrid.index.decompose import Fragments
from sensorgrid.index.enclosing import Boxes
from sensorgrid.index.jit import jit
from sensorgrid.model.errors import GridError
from sensorgrid.model.grid import Grid

Ints = npt.NDArray[np.int64]


def check_owner(owner: Any) -> int:
    """An owner is a whole number >= 0."""
    if not isinstance(owner, SupportsIndex) or owner.__index__() < 0:
        raise GridError(f"owner: found {owner!r}, expected a whole number >= 0")
    return owner.__index__()


def check_fragments(grid: Grid, fragments: Fragments) -> None:
    """Fragments belong to one grid."""
    if fragments.grid is not grid and fragments.grid != grid:
        raise GridError("fragments: found those of another grid, expected the tree's own")


def full_limits(grid: Grid) -> Ints:
    """All ranks along x, y and t, as one row."""
    return np.array([[1 << bits for bits in grid.resolution_bits]], dtype=np.int64)


def check_limits(full: tuple[int, ...], limits: tuple[int, ...]) -> None:
    """Limits are numbers of ranks along x, y and t."""
    if len(limits) != 3 or not all(1 <= limit <= most for limit, most in zip(limits, full, strict=False)):
        raise GridError(f"limits: found {limits}, expected three whole numbers from 1 to {full}")


def check_rows(grid: Grid, full: Ints, boxes: Any, owners: Any, limits: Any) -> tuple[Boxes, Ints, Ints]:
    """Boxes, owners and limits as compiled code wants them; the row of `full_limits` stands for all."""
    boxes, owners = _whole("boxes", boxes, (-1, 4), np.int32), _whole("owners", owners, (-1,), np.int64)
    rows = full if limits is None else _whole("limits", limits, (-1, 3), np.int64)
    if not len(boxes) == len(owners) == (len(boxes) if limits is None else len(rows)):
        raise GridError(
            f"boxes: found {len(boxes)} with {len(owners)} owners and {len(rows)} limits,"
            " expected as many of each"
        )
    bad = _first_bad(boxes, owners, rows, full[0], grid.shape[0], grid.shape[1], grid.wraps)
    if bad >= 0:
        raise GridError(
            f"box {bad}: found {boxes[bad].tolist()}, owner {owners[bad]},"
            f" limits {rows[bad % len(rows)].tolist()}, expected 0 <= x0 < x1 and 0 <= y0 < y1 on the"
            f" grid of {grid.shape} points, owner >= 0,"
            f" limits from 1 to {full[0].tolist()}"
        )
    return boxes, owners, rows


def _whole(name: str, values: Any, shape: tuple[int, ...], dtype: type[np.signedinteger[Any]]) -> Any:
    """An array of whole numbers of the given shape and type, or a refusal."""
    array = np.asarray(values)
    if (
        array.dtype == dtype
        and array.ndim == len(shape)
        and array.shape[1:] == shape[1:]
        and array.flags.c_contiguous
    ):
        return array
    if array.size == 0:
        return np.empty((0, *shape[1:]), dtype)
    if array.ndim != len(shape) or array.shape[1:] != shape[1:]:
        expected = f"(n, {shape[1]})" if len(shape) > 1 else "(n,)"
        raise GridError(f"{name}: found an array of shape {array.shape}, expected {expected}")
    if array.dtype.kind not in "iu":
        raise GridError(f"{name}: found numbers of type {array.dtype}, expected whole numbers")
    if not np.can_cast(array.dtype, dtype):
        low, high, bounds = int(array.min()), int(array.max()), np.iinfo(dtype)
        if low < bounds.min or high > bounds.max:
            raise GridError(f"{name}: found {low} to {high}, expected {bounds.min} to {bounds.max}")
    return np.ascontiguousarray(array, dtype=dtype)


@jit
def _first_bad(
    boxes: Boxes, owners: Ints, limits: Ints, full: Ints, columns: int, rows: int, wraps: bool
) -> int:
    """The first box that is not on the grid, or whose owner or limits cannot be right; or -1."""
    for i in range(len(boxes)):
        x0, x1, y0, y1 = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        x_end = x0 + columns if wraps else columns
        if not (0 <= x0 < x1 <= x_end and x0 < columns and 0 <= y0 < y1 <= rows and owners[i] >= 0):
            return i
        if len(limits) > 1 or i == 0:
            for axis in range(3):
                if not 1 <= limits[i, axis] <= full[axis]:
                    return i
    return -1
