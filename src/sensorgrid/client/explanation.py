"""What a query will cost, before it runs."""

from dataclasses import dataclass

from sensorgrid.client.fields import with_errors
from sensorgrid.client.sharing import Sharing
from sensorgrid.index.decompose import decompose_box_within
from sensorgrid.index.layout import layout_of
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query
from sensorgrid.overlay.settings import Settings


@dataclass(frozen=True, slots=True)
class Explanation:
    """Points and bytes are those of values; headers add little."""

    points_per_tick: int
    """values in one tick, standard errors included"""
    bytes_per_tick: int
    bytes_per_second: float
    """the mean over all ticks"""
    shared_points_per_tick: int
    """of them, those that other queries of this connection bring already"""
    shape: tuple[int, int]
    """rows and columns of a field"""
    resolution: tuple[float, float, float]
    """along x, y, t: at least what was asked for"""
    cells: int
    """that it is cut into, for each attribute"""
    padding: float
    """share of the cells' points that the query does not want; they travel between brokers only"""
    standard_errors: bool

    def __str__(self) -> str:
        rows, columns = self.shape
        lines = [
            f"{rows} × {columns} points, {self.points_per_tick:,} values per tick"
            + (" with standard errors" if self.standard_errors else ""),
            f"{self.bytes_per_tick:,} bytes per tick, {self.bytes_per_second:,.1f} per second",
            f"resolution {', '.join(f'{r:g}' for r in self.resolution)} along x, y, t",
            f"{self.cells:,} cells per attribute, padding {self.padding:.1%}",
            f"{self.shared_points_per_tick:,} values per tick come already for other queries of this connection",
        ]
        return "\n".join(lines)


def explain(query: Query, grid: Grid, settings: Settings, sharing: Sharing, errors: bool) -> Explanation:
    """Count what a query asks for, and what of it comes already."""
    full = with_errors(query, grid) if errors else query
    size = full.size(grid)
    depth = min(settings.depth, layout_of(grid).digits)
    fragments = decompose_box_within(full.box(grid), full.limits(grid), grid, depth, settings.cells_max)
    columns, rows = full.points(grid)
    return Explanation(
        size.points_per_tick,
        size.bytes_per_tick,
        size.bytes_per_second,
        sharing.shared(full),
        (rows, columns),
        full.effective_resolution(grid),
        len(fragments),
        fragments.padding,
        len(full.attributes) > len(query.attributes),
    )
