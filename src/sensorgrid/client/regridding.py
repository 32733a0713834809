"""Fields on a model's own grid: interpolated to the points of a given Dataset or DataArray.

The points may be a rectangle of longitudes and latitudes or, as on curvilinear grids, have two of each. Longitudes
may be of either convention. Points at the border, up to one spacing beyond the field, take the value at the
border; what lies further out is NaN.
"""

from typing import Any, Literal

import numpy as np
import xarray as xr

from sensorgrid.client.fields import Field, replaced
from sensorgrid.model.errors import QueryError
from sensorgrid.model.foreign import coordinate_of
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query

Method = Literal["linear", "nearest"]


def widened(query: Query, grid: Grid) -> Query:
    """A query for one more point on each side, so that all of its area lies between points."""
    if query.bbox is None:
        return query
    west, south, east, north = query.bbox
    limits, bits = query.limits(grid), grid.resolution_bits
    dx, dy = (
        step * (1 << b) / (1 << limit.bit_length() - 1)
        for step, limit, b in zip(grid.spacing, limits, bits, strict=False)
    )
    low, bottom, high, top = grid.extent
    south, north = max(bottom, south - dy), min(top, north + dy)
    if grid.wraps:
        width = (east - west if east >= west else east - west + 360) + 2 * dx
        west, east = (low, high) if width >= 360 else (west - dx, west - dx + width)
    else:
        west, east = max(low, west - dx), min(high, east + dx)
    return replaced(query, bbox=(west, south, east, north))


class Onto:
    """The points of a model, and how fields get there."""

    def __init__(self, data: Any, grid: Grid, method: Method = "linear") -> None:
        if method not in ("linear", "nearest"):
            raise QueryError(f"method: found {method!r}, expected 'linear' or 'nearest'")
        self.grid, self.method = grid, method
        self.x, self.y = coordinate_of(data, "x"), coordinate_of(data, "y")

    def __call__(self, field: Field) -> Field:
        """A field at the model's points, under the model's names for its axes."""
        x_name, y_name = ("longitude", "latitude") if self.grid.coordinates == "lonlat" else ("x", "y")
        if self.grid.wraps:
            field = _closed(field, x_name)
        xs, ys = np.asarray(field[x_name].values), np.asarray(field[y_name].values)
        x, y = self.x.astype(float), self.y.astype(float)
        if self.grid.coordinates == "lonlat":
            middle = (xs[0] + xs[-1]) / 2
            x = x.copy(data=middle - 180 + (np.asarray(x.values) - middle + 180) % 360)
        x, y = _snapped(x, xs), _snapped(y, ys)
        errors = [name for name in field.coords if str(name).endswith("_standard_error")]
        data = field.to_dataset() if isinstance(field, xr.DataArray) else field
        names = list(data.data_vars)
        flat = data.reset_coords(errors).rename({x_name: "_x", y_name: "_y"})
        target = {"_x": _bare(x, self.x), "_y": _bare(y, self.y)}
        moved = flat.interp(target, method=self.method).drop_vars(["_x", "_y"], errors="ignore")
        moved = moved.assign_coords({self.x.name: self.x, self.y.name: self.y})
        for name in (*names, *errors):
            moved[name].attrs = flat[name].attrs
        moved = moved.set_coords(errors).transpose(*dict.fromkeys((*self.y.dims, *self.x.dims)))
        return moved[names[0]] if isinstance(field, xr.DataArray) else moved


def _closed(field: Field, name: str) -> Field:
    """A field around the earth with its first column again after its last, and the other way round."""
    x = np.asarray(field[name].values)
    if len(x) < 2 or x[-1] - x[0] + 1.5 * (x[1] - x[0]) < 360:
        return field
    first = field.isel({name: slice(0, 1)}).assign_coords({name: x[:1] + 360})
    last = field.isel({name: slice(-1, None)}).assign_coords({name: x[-1:] - 360})
    several: list[Any] = [last, field, first]
    closed: Field = xr.concat(
        several, dim=name, coords="minimal", compat="override", join="override", combine_attrs="override"
    )
    return closed


def _snapped(points: Any, axis: Any) -> Any:
    """Points up to one spacing beyond an axis, at its end: a coarse resolution does not begin at the border."""
    slack = abs(axis[1] - axis[0]) * 1.001 if len(axis) > 1 else 0.0
    low, high = float(axis[0]), float(axis[-1])
    values = np.asarray(points.values)
    near = (values >= low - slack) & (values <= high + slack)
    return points.copy(data=np.where(near, np.clip(values, low, high), values))


def _bare(values: Any, coordinate: Any) -> xr.DataArray:
    """Where to go, without coordinates of its own: targets may go to and fro."""
    return xr.DataArray(np.asarray(values.values), dims=coordinate.dims)
