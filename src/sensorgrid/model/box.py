"""A box of grid points, by index."""

from dataclasses import dataclass


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

    @property
    def points(self) -> int:
        """All points of the box, at full resolution."""
        return (self.x1 - self.x0) * (self.y1 - self.y0)
