"""A query as a set of cells, exactly.

`decompose` gives a prefix-free set of fragments: a cell, and the part of it that the query wants. They are
disjoint and their union is the query. A greater depth sheds more padding (points of the cells that the query
does not want) and makes more fragments: at most 2^depth.

Differs from multires, section 4.1: one enclosing cell per query degenerates to ε for a query across a main
split; a set does not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from sensorgrid.index.cell import Cell, CellSlices
from sensorgrid.index.descent import count_in, descend
from sensorgrid.index.descent import restrict as cut
from sensorgrid.index.layout import RT, RX, RY, X, Y, layout_of
from sensorgrid.model.box import Box
from sensorgrid.model.errors import CellError
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query
from sensorgrid.model.resolution import strides_of

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fragment:
    """The part of a cell that a query wants."""

    cell: Cell
    """what travels between brokers"""
    box: Box
    """only the points of the cell inside this box are wanted"""
    limits: tuple[int, int, int]
    """only the points of lower rank along x, y, t are wanted"""
    points: int
    """wanted points in one period of 2^t-bits ticks"""

    def slices(self, grid: Grid) -> tuple[CellSlices, ...]:
        """The wanted points as disjoint strided slices.

        Mostly one; more where the depth cut a resolution short, or on both sides of the date line.
        """
        starts, lengths = self.cell.geometry(grid)
        kx, ky, kt = grid.resolution_bits
        left, right = starts[X] << kx, starts[X] + lengths[X] << kx
        lower, upper = starts[Y] << ky, starts[Y] + lengths[Y] << ky
        strides = [
            strides_of(starts[axis], min(starts[axis] + lengths[axis], limit), bits)
            for axis, limit, bits in zip((RX, RY, RT), self.limits, (kx, ky, kt), strict=True)
        ]
        return tuple(
            CellSlices(sy.slice(y0, y1), sx.slice(x0, x1), (st.offset, st.stride))
            for box in grid.plain_boxes(self.box)
            for x0, x1 in [(max(box.x0, left), min(box.x1, right))]
            for y0, y1 in [(max(box.y0, lower), min(box.y1, upper))]
            for sx in strides[0]
            for sy in strides[1]
            for st in strides[2]
            if sx.count(x0, x1) and sy.count(y0, y1)
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fragments:
    """Fragments as columns, in the order of a depth-first walk; iterating makes `Fragment` values."""

    grid: Grid
    """the grid whose cells they are"""
    box: Box
    """of the query"""
    limits: tuple[int, int, int]
    """of the query, along x, y, t"""
    starts: Ints
    """first leaf ID of each cell"""
    lengths: Ints
    """digits of each cell"""
    boxes: Ints
    """[fragment, (x0, x1, y0, y1)]: clipped box"""
    points: Ints
    """wanted points in one period"""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, i: int) -> Fragment:
        digits = layout_of(self.grid).digits
        cell = Cell.of_interval(int(self.starts[i]), int(self.lengths[i]), digits)
        return Fragment(cell, Box(*(int(v) for v in self.boxes[i])), self.limits, int(self.points[i]))

    def __iter__(self) -> Iterator[Fragment]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Fragments)
            and (self.grid, self.box, self.limits) == (other.grid, other.box, other.limits)
            and np.array_equal(self.starts, other.starts)
            and np.array_equal(self.lengths, other.lengths)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        wanted = int(self.points.sum())
        return f"<Fragments: {len(self)} cells, {wanted} points wanted, padding {self.padding:.1%}>"

    @property
    def cells(self) -> list[Cell]:
        """The cells alone."""
        digits = layout_of(self.grid).digits
        pairs = zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
        return [Cell.of_interval(start, length, digits) for start, length in pairs]

    @property
    def codes(self) -> list[int]:
        """The codes of the cells alone."""
        codes = np.left_shift(1, self.lengths) | self.starts >> (layout_of(self.grid).digits - self.lengths)
        return [int(code) for code in codes]

    @property
    def padded(self) -> Ints:
        """Points of each whole cell in one period: what travels between brokers."""
        return np.right_shift(self.grid.points_per_period, self.lengths)

    @property
    def padding(self) -> float:
        """The share of the cells' points that nobody asked for."""
        return 1 - int(self.points.sum()) / int(self.padded.sum()) if len(self) else 0.0


def decompose(query: Query, grid: Grid, depth: int | None = None) -> Fragments:
    """The cells of a query, at most `depth` digits long (as long as the grid has them, if None).

    >>> from sensorgrid.index.cell import format_cells
    >>> query = Query("air_temperature", bbox=(0, 0, 90, 45), resolution=(0.5, 1, 1))
    >>> format_cells(decompose(query, Grid(region_digits=4)).cells)    # digits: x y x y, x y res_x
    ['1100**0']
    """
    return decompose_box(query.box(grid), query.limits(grid), grid, depth)


def decompose_box(box: Box, limits: tuple[int, int, int], grid: Grid, depth: int | None = None) -> Fragments:
    """The same for a box by index and the number of ranks along x, y and t."""
    grid.check_box(box)
    layout = layout_of(grid)
    depth = layout.digits if depth is None else depth
    if not isinstance(depth, SupportsIndex) or depth < 0:
        raise CellError(f"depth: found {depth}, expected a whole number >= 0")
    ranges = _ranges(box, limits, grid)
    return Fragments(grid, box, limits, *descend(*ranges, layout.axes_array, layout.counts, depth))


def decompose_box_within(
    box: Box, limits: tuple[int, int, int], grid: Grid, depth: int, cells_max: int
) -> Fragments:
    """As deep as `depth` allows without more than `cells_max` cells; at least as deep as regions are.

    Each cell is a stream with messages of its own. Cells may hold more than the box, values sent to a client never do.
    """
    found = decompose_box(box, limits, grid, depth)
    if len(found.codes) <= cells_max:
        return found
    low, high = (
        min(grid.region_digits, depth),
        depth,
    )  # cells at `high` are too many; they grow with the depth
    found = decompose_box(box, limits, grid, low)
    while high - low > 1:
        middle = (low + high) // 2
        finer = decompose_box(box, limits, grid, middle)
        if len(finer.codes) <= cells_max:
            low, found = middle, finer
        else:
            high = middle
    return found


def whole_cells(cells: Sequence[Cell], grid: Grid) -> Fragments:
    """Disjoint cells, all points of each: what a broker has.

    >>> whole_cells([Cell.parse("00"), Cell.parse("1")], Grid(shape=(64, 32))).padding
    0.0
    """
    kx, ky, kt = grid.resolution_bits
    everything = decompose_box(Box(0, grid.shape[0], 0, grid.shape[1]), (1 << kx, 1 << ky, 1 << kt), grid, 0)
    return restrict(everything, sorted(cells))


def prepare(grid: Grid) -> None:
    """Compile what the functions here need, or load it: some seconds, once, before anybody waits for an answer."""
    box = Box(0, 1, 0, 1)
    decompose_box(box, (1, 1, 1), grid, 1)
    points_in(box, (1, 1, 1), [1], grid)


def restrict(fragments: Fragments, cells: Sequence[Cell]) -> Fragments:
    """The parts of a query in the given, disjoint cells; those without a point of it are left out.

    >>> world = decompose(Query("air_temperature"), Grid())
    >>> [(str(f.cell), f.box) for f in restrict(world, [Cell.parse("00")])]
    [('00', Box(x0=0, x1=2048, y0=0, y1=1024))]
    """
    digits = layout_of(fragments.grid).digits
    starts = np.array([cell.interval(digits)[0] for cell in cells], dtype=np.int64)
    lengths = np.array([cell.length for cell in cells], dtype=np.int64)
    return restrict_to(fragments, starts, lengths)


def restrict_to(fragments: Fragments, starts: Ints, lengths: Ints) -> Fragments:
    """The same for cells given by first leaf ID and length."""
    grid, box, limits = fragments.grid, fragments.box, fragments.limits
    layout = layout_of(grid)
    ranges = _ranges(box, limits, grid)
    return Fragments(grid, box, limits, *cut(starts, lengths, *ranges, layout.axes_array, layout.counts))


def points_in(box: Box, limits: tuple[int, int, int], cells: Sequence[int], grid: Grid) -> list[int]:
    """How many points of a query lie in each of the given cells (codes), in one period.

    >>> points_in(Box(0, 8, 0, 8), (16, 16, 16), [0b1, 0b11], Grid(shape=(64, 32)))
    [1024, 0]
    """
    grid.check_box(box)
    layout, columns = layout_of(grid), grid.shape[0]
    counts = count_in(
        np.array(cells, dtype=np.int64), box.x0, min(box.x1, columns), max(box.x1 - columns, 0), box.y0, box.y1,
        *limits, *grid.resolution_bits, layout.axes_array, layout.counts,
    )  # fmt: skip
    found: list[int] = counts.tolist()
    return found


def _ranges(box: Box, limits: tuple[int, int, int], grid: Grid) -> tuple[Ints, Ints, Ints, Ints]:
    """A query as the compiled code wants it: ranges of columns and rows, limits, bits."""
    return (
        np.array([(part.x0, part.x1) for part in grid.plain_boxes(box)], dtype=np.int64),
        np.array([(box.y0, box.y1)], dtype=np.int64),
        np.array(limits, dtype=np.int64),
        np.array(grid.resolution_bits, dtype=np.int64),
    )
