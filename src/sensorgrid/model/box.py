"""A box of grid points, by index."""

from dataclasses import dataclass
from operator import index

from sensorgrid.model.errors import GridError


@dataclass(frozen=True, slots=True, order=True)
class Box:
    """The points [x0, x1) × [y0, y1) of a grid.

    On a grid that closes around the earth a box may cross the date line; then x1 exceeds the number of
    columns, and columns count modulo that number. `Grid.plain_boxes` cuts such a box in two.
    """

    x0: int
    """first column"""
    x1: int
    """column after the last"""
    y0: int
    """first row, from the south"""
    y1: int
    """row after the last"""

    def __post_init__(self) -> None:
        for name in ("x0", "x1", "y0", "y1"):
            value = getattr(self, name)
            if type(value) is not int:  # NumPy's integers are welcome, other numbers are not
                try:
                    object.__setattr__(self, name, index(value))
                except TypeError:
                    raise GridError(f"box: found {name} = {value!r}, expected a whole number") from None
        if not (0 <= self.x0 < self.x1 and 0 <= self.y0 < self.y1):
            found = (self.x0, self.x1, self.y0, self.y1)
            raise GridError(f"box: found {found}, expected 0 <= x0 < x1 and 0 <= y0 < y1")

    @property
    def points(self) -> int:
        """All points of the box, at full resolution."""
        return (self.x1 - self.x0) * (self.y1 - self.y0)
