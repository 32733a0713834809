"""Grids of other people's programs: where their points lie, by what CF says of them or else by their names.

Whatever looks like an xarray Dataset or DataArray will do; nothing here imports xarray.
"""

from math import isfinite
from typing import Any

import numpy as np

from sensorgrid.model.errors import QueryError

_AXES = {
    "x": (
        ("longitude", "projection_x_coordinate"),
        ("degrees_east", "degree_east"),
        ("longitude", "lon", "x"),
    ),
    "y": (
        ("latitude", "projection_y_coordinate"),
        ("degrees_north", "degree_north"),
        ("latitude", "lat", "y"),
    ),
}


def coordinate_of(data: Any, axis: str) -> Any:
    """A coordinate of foreign data, by what CF says of it or else by its name."""
    standard, units, names = _AXES[axis]
    known = {str(name): data.coords[name] for name in getattr(data, "coords", ())}
    for name, found in known.items():
        attrs = found.attrs
        if attrs.get("standard_name") in standard or attrs.get("units") in units:
            return known[name]
    for name, found in known.items():
        if name.lower() in names or found.attrs.get("axis") == axis.upper():
            return known[name]
    raise QueryError(
        f"data: found coordinates {', '.join(known) or 'none'}, expected one along {axis}, such as"
        f" {names[0]} (standard_name, units, axis or name)"
    )


def is_degrees(data: Any, axis: str) -> bool:
    """Whether a coordinate of foreign data is a longitude or latitude."""
    found = coordinate_of(data, axis)
    attrs = found.attrs
    named = str(getattr(found, "name", "")).lower() in _AXES[axis][2][:2]
    return named or attrs.get("standard_name") == _AXES[axis][0][0] or attrs.get("units") in _AXES[axis][1]


def span_of(coordinate: Any, axis: str) -> tuple[float, float, float]:
    """Borders of a coordinate's areas, and how far its points are apart."""
    values = np.asarray(coordinate.values, dtype=np.float64)
    low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    if not (values.ndim in (1, 2) and isfinite(low) and isfinite(high)):
        raise QueryError(
            f"data: found {values.shape} values along {axis}, expected finite ones on 1 or 2 axes"
        )
    steps = [np.abs(np.diff(values, axis=n)) for n in range(values.ndim) if values.shape[n] > 1]
    # Of a curvilinear grid, the axis along which the coordinate changes most.
    medians = [float(np.median(step)) for step in steps]
    step = max(medians, default=0.0)
    if step <= 0:
        raise QueryError(f"data: found one point along {axis}, expected two or more, to know the spacing")
    return low - step / 2, high + step / 2, step


def standard_names(data: Any) -> tuple[str, ...]:
    """What foreign data hold: standard names, or else names."""
    each = list(data.data_vars.values()) if hasattr(data, "data_vars") else [data]
    names = tuple(
        dict.fromkeys(str(v.attrs.get("standard_name") or v.name) for v in each if v.name is not None)
    )
    if not names:
        raise QueryError("attribute: found no name in the data, expected one, or attribute=")
    return names
