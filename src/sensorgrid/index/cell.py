"""Cells: binary prefixes, and the strided slices that they are.

A cell (the multires paper's DZ expression) is a string of binary digits, kept as one integer with a leading
sentinel bit: ``01`` is 0b101. A shorter cell contains all longer ones that begin with it; ε, the empty one,
is the whole grid. What a digit halves is the grid's business (`sensorgrid.index.layout`); that halving ranks
comes out as a stride is section 4.2.2's bit reversal (`sensorgrid.model.resolution`).

The paper's ``*`` is notation for input and output only: ``01*1`` stands for the two cells 0101 and 0111.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sensorgrid.index.layout import RT, RX, RY, X, Y, layout_of
from sensorgrid.model.box import Box
from sensorgrid.model.errors import CellError
from sensorgrid.model.grid import DIGITS_MAX, Grid
from sensorgrid.model.resolution import Stride, reverse_bits

STARS_MAX = 16


class CellSlices(NamedTuple):
    """A strided part of an array ``values[y, x]`` on every `ticks[1]`-th tick."""

    y: slice
    """rows"""
    x: slice
    """columns"""
    ticks: tuple[int, int]
    """(offset, stride): the ticks congruent to offset modulo stride"""


class Geometry(NamedTuple):
    """Where a cell lies: blocks and ranks, each from a start on."""

    starts: tuple[int, int, int, int, int]
    """first block along x and y, first rank along x, y, t"""
    lengths: tuple[int, int, int, int, int]
    """how many of each"""


@dataclass(frozen=True, slots=True, repr=False)
class Cell:
    """A binary prefix, ordered like a depth-first walk of the tree of cells.

    Examples
    --------
    >>> cell = Cell.parse("01")
    >>> cell.contains(Cell.parse("0110")), str(cell.parent), [str(c) for c in cell.children]
    (True, '0', ['010', '011'])
    >>> cell.interval(digits=4)
    (4, 8)
    """

    code: int
    """the digits behind a sentinel bit"""

    def __post_init__(self) -> None:
        if self.code < 1:
            raise CellError(f"cell: found code {self.code}, expected a sentinel bit and digits, at least 1")

    @classmethod
    def parse(cls, text: str) -> "Cell":
        """Read one cell; "" and "ε" are the whole grid."""
        digits = "" if text == "ε" else text
        for position, digit in enumerate(digits):
            if digit not in "01":
                raise CellError(f"cell {text!r}: digit {digit} at position {position}, expected 0 or 1")
        if len(digits) > DIGITS_MAX:
            raise CellError(f"cell {text!r}: found {len(digits)} digits, expected at most {DIGITS_MAX}")
        return cls(int("1" + digits, 2))

    @classmethod
    def of_interval(cls, start: int, length: int, digits: int) -> "Cell":
        """The cell of `length` digits whose leaves, of `digits` digits, start at ID `start`."""
        return cls(1 << length | start >> (digits - length))

    @classmethod
    def of_point(cls, grid: Grid, ix: int, iy: int, tick: int = 0) -> "Cell":
        """The smallest cell that holds a point at a tick: the way from index to cell."""
        nx, ny = grid.shape
        if not (0 <= ix < nx and 0 <= iy < ny):
            raise CellError(f"point: found ({ix}, {iy}), expected within (0, 0) and ({nx - 1}, {ny - 1})")
        layout, bits = layout_of(grid), grid.resolution_bits
        offsets = (ix & (1 << bits[0]) - 1, iy & (1 << bits[1]) - 1, tick & (1 << bits[2]) - 1)
        ranks = (reverse_bits(o, b) for o, b in zip(offsets, bits, strict=True))
        values = [ix >> bits[0], iy >> bits[1], *ranks]
        left = list(layout.axis_digits)
        code = 1
        for axis in layout.axes:
            left[axis] -= 1
            code = code << 1 | values[axis] >> left[axis] & 1
        return cls(code)

    @property
    def length(self) -> int:
        """Number of digits: the depth of the cell in the tree."""
        return self.code.bit_length() - 1

    @property
    def parent(self) -> "Cell":
        """The cell one digit shorter."""
        if self.code == 1:
            raise CellError("cell ε: found the whole grid, expected a cell with a parent")
        return Cell(self.code >> 1)

    @property
    def children(self) -> tuple["Cell", "Cell"]:
        """Its two halves."""
        return Cell(self.code << 1), Cell(self.code << 1 | 1)

    @property
    def sibling(self) -> "Cell":
        """The other half of its parent."""
        if self.code == 1:
            raise CellError("cell ε: found the whole grid, expected a cell with a sibling")
        return Cell(self.code ^ 1)

    @property
    def ancestors(self) -> Iterator["Cell"]:
        """All cells that contain it, itself first, ε last."""
        return (Cell(self.code >> up) for up in range(self.length + 1))

    def contains(self, other: "Cell") -> bool:
        """Whether every point of `other` is in this cell: a prefix test."""
        surplus = other.length - self.length
        return surplus >= 0 and other.code >> surplus == self.code

    def intersects(self, other: "Cell") -> bool:
        """Whether they share a point, which means that one contains the other."""
        return self.contains(other) or other.contains(self)

    def interval(self, digits: int) -> tuple[int, int]:
        """[start, stop) of the IDs of its leaves, in a tree `digits` deep."""
        if digits < self.length:
            raise CellError(f"cell {self}: found {self.length} digits, expected at most {digits}")
        start = (self.code ^ 1 << self.length) << (digits - self.length)
        return start, start + (1 << digits - self.length)

    def size(self, grid: Grid) -> int:
        """Points of the cell in one period of 2^t-bits ticks."""
        self._check(grid)
        return grid.points_per_period >> self.length

    def geometry(self, grid: Grid) -> Geometry:
        """First block or rank on each axis, and how many."""
        self._check(grid)
        layout = layout_of(grid)
        starts = [0] * 5
        code, length = self.code, self.length
        for place in layout.places[:length]:
            # (axis, digits of the axis that follow): only digits that are 1 move the start.
            length -= 1
            if code >> length & 1:
                starts[place[0]] += place[1]
        return Geometry(tuple(starts), layout.width_rows[self.length])  # type: ignore[arg-type]

    def box(self, grid: Grid) -> Box:
        """The box in which its points lie, strides left aside."""
        starts, lengths = self.geometry(grid)
        bits = grid.resolution_bits
        return Box(
            starts[X] << bits[0],
            starts[X] + lengths[X] << bits[0],
            starts[Y] << bits[1],
            starts[Y] + lengths[Y] << bits[1],
        )

    def slices(self, grid: Grid) -> CellSlices:
        """The cell as a strided slice ``values[s.y, s.x]`` on the ticks of `s.ticks`.

        >>> Cell.parse("01").slices(Grid(shape=(64, 32), resolution_bits=2, region_digits=2))
        CellSlices(y=slice(16, 32, 1), x=slice(0, 32, 1), ticks=(0, 1))
        """
        starts, lengths = self.geometry(grid)
        kx, ky, kt = grid.resolution_bits
        x = _stride(starts[RX], lengths[RX], kx).slice(starts[X] << kx, starts[X] + lengths[X] << kx)
        y = _stride(starts[RY], lengths[RY], ky).slice(starts[Y] << ky, starts[Y] + lengths[Y] << ky)
        t = _stride(starts[RT], lengths[RT], kt)
        return CellSlices(y, x, (t.offset, t.stride))

    def __str__(self) -> str:
        return bin(self.code)[3:] or "ε"

    def __repr__(self) -> str:
        return f"Cell.parse({str(self)!r})"

    def __lt__(self, other: "Cell") -> bool:
        width = max(self.length, other.length)
        mine, theirs = self.interval(width)[0], other.interval(width)[0]
        return (mine, self.length) < (theirs, other.length)

    def _check(self, grid: Grid) -> None:
        digits = layout_of(grid).digits
        if self.length > digits:
            raise CellError(f"cell {self}: found {self.length} digits, expected at most the grid's {digits}")


def _stride(start: int, length: int, bits: int) -> Stride:
    """An aligned run of ranks as a stride."""
    digits = bits - length.bit_length() + 1
    return Stride(reverse_bits(start >> (bits - digits), digits), 1 << digits)


def parse_cells(text: str) -> tuple[Cell, ...]:
    """Read a pattern: each ``*`` stands for 0 and for 1.

    >>> [str(cell) for cell in parse_cells("01*1")]
    ['0101', '0111']
    """
    if text.count("*") > STARS_MAX:
        raise CellError(f"cell {text!r}: found {text.count('*')} stars, expected at most {STARS_MAX}")
    patterns = [text]
    for _ in range(text.count("*")):
        patterns = [p.replace("*", digit, 1) for p in patterns for digit in "01"]
    return tuple(Cell.parse(p) for p in patterns)


def format_cells(cells: Iterable[Cell]) -> list[str]:
    """Write disjoint cells as patterns, halves joined by ``*``: the inverse of `parse_cells`.

    >>> format_cells(parse_cells("01*1"))
    ['01*1']
    """
    patterns = {str(cell) if cell.length else "" for cell in cells}
    for position in range(max(map(len, patterns), default=0)):
        for pattern in sorted(p for p in patterns if len(p) > position and p[position] == "0"):
            other = pattern[:position] + "1" + pattern[position + 1 :]
            if other in patterns:
                patterns -= {pattern, other}
                patterns.add(pattern[:position] + "*" + pattern[position + 1 :])
    return sorted(p or "ε" for p in patterns)
