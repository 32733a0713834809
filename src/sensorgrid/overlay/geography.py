"""Where brokers are: regions, distances, and who is whose neighbour (multires, sections 3.1 and 4.3.2)."""

from collections.abc import Iterable

from sensorgrid.index.cell import Cell
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.roster import Region


def box_of(grid: Grid, cell: int) -> Box:
    """Where a cell lies, by index."""
    return Cell(cell).box(grid)


def points_of(grid: Grid, cell: int) -> int:
    """Points of a cell in one period: what a stream of it costs, whatever the values."""
    return grid.points_per_period >> (cell.bit_length() - 1)


def first_of(cell: int, digits: int) -> int:
    """The ID of the first leaf of a cell, in a tree that is so deep: where it stands in the space of IDs."""
    length = cell.bit_length() - 1
    return (cell ^ 1 << length) << max(0, digits - length)


def middle_of(box: Box) -> tuple[float, float]:
    """The middle of its points."""
    return (box.x0 + box.x1 - 1) / 2, (box.y0 + box.y1 - 1) / 2


def distance(grid: Grid, boxes: Iterable[Box], x: float, y: float) -> float:
    """Squared distance in points from the nearest of some boxes to a place, the shorter way around the earth."""
    return min(_distance(grid, box, x, y) for box in boxes)


def _distance(grid: Grid, box: Box, x: float, y: float) -> float:
    west, east = float(box.x0), float(box.x1 - 1)
    dx = max(west - x, x - east, 0.0)
    if grid.wraps and dx:
        around = grid.shape[0]
        dx = min(dx, *(max(west - x - turn, x + turn - east, 0.0) for turn in (around, -around)))
    dy = max(box.y0 - y, y - (box.y1 - 1), 0.0)
    return dx * dx + dy * dy


def touch(grid: Grid, a: Box, b: Box) -> bool:
    """Whether two boxes share a border or a corner, around the earth too."""
    around = grid.shape[0] if grid.wraps else 0
    beside = any(a.x0 <= b.x1 + turn and b.x0 + turn <= a.x1 for turn in {0, around, -around})
    return beside and a.y0 <= b.y1 and b.y0 <= a.y1


def view_of(me: PeerId, regions: Iterable[Region], grid: Grid) -> tuple[Region, ...]:
    """The regions by which one broker routes: its own and those that touch them, for each attribute."""
    known = sorted(regions, key=lambda r: (r.attribute, r.cell))
    boxes = {(r.attribute, r.cell): box_of(grid, r.cell) for r in known}
    mine = [(r.attribute, boxes[r.attribute, r.cell]) for r in known if r.owner == me]
    shown = [
        r
        for r in known
        if r.owner == me
        or any(a == r.attribute and touch(grid, box, boxes[r.attribute, r.cell]) for a, box in mine)
    ]
    for attribute in sorted({r.attribute for r in known} - {a for a, _ in mine}):
        # Of an attribute of which it owns nothing it has no neighbours: two regions somewhere are a way in.
        others = [r for r in known if r.attribute == attribute]
        shown += [others[(me + step) % len(others)] for step in range(min(2, len(others)))]
    return tuple(shown)
