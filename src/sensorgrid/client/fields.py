"""A tick as a labelled array: CF names and units, the error beside the value, where it is and when.

One attribute gives a `DataArray`, several a `Dataset`. The standard error of an attribute travels as an attribute of
its own; here it becomes the coordinate ``<name>_standard_error``, which CF calls an ancillary variable.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import xarray as xr

from sensorgrid.client.assembly import Assembly, Tick
from sensorgrid.model.grid import Grid
from sensorgrid.model.names import ERROR, UNITS, long_name
from sensorgrid.model.query import Query

MEANING = (
    "of the field, not of the next reading: half of the interval that holds the truth in 68 of 100 cases"
)
"""what a standard error is"""
GAPS_NAMED = 8
"""so many gaps of a tick are named one by one"""

Field: TypeAlias = xr.DataArray | xr.Dataset


def with_errors(query: Query, grid: Grid) -> Query:
    """The same query, and the standard errors that the grid has for it."""
    names = query.attributes
    errors = (name + ERROR for name in names)
    more = tuple(name for name in errors if name in grid.attributes and name not in names)
    return replaced(query, attributes=(*names, *more))


def replaced(query: Query, **changes: Any) -> Query:
    """A query with some of its parts changed."""
    parts: dict[str, Any] = {
        "attributes": query.attributes, "bbox": query.bbox, "resolution": query.resolution, "start": query.start,
        "duration": query.duration, "where": {name: (low, high) for name, low, high in query.where},
        "spacing": query.spacing, "every": query.every,
    } | changes  # fmt: skip
    return Query(parts.pop("attributes"), **parts)


class Labels:
    """What all ticks of a query have in common."""

    def __init__(self, grid: Grid, query: Query, assembly: Assembly, asked: tuple[str, ...]) -> None:
        self.grid = grid
        self.names = tuple(name for name in query.attributes if name in asked)
        self._places = {name: place for place, name in enumerate(query.attributes)}
        dx, dy = grid.spacing
        west, south = grid.extent[:2]
        x = west + (assembly.x.indices + 0.5) * dx
        y = south + (assembly.y.indices + 0.5) * dy
        if grid.coordinates == "lonlat":
            # Longitudes go on from the border that was asked for: 170 to 190, not 170 to -170.
            asked_west = grid.extent[0] if query.bbox is None else query.bbox[0]
            x = x + 360 * np.ceil((asked_west - x[0]) / 360 - 1e-9 - dx / 720)
        self.dims, attrs = axes(grid)
        self.coords = xr.Coordinates(
            {
                self.dims[0]: xr.Variable(self.dims[0], y, attrs[0]),
                self.dims[1]: xr.Variable(self.dims[1], x, attrs[1]),
            }
        )

    def field(self, tick: Tick) -> Field:
        """One tick, labelled."""
        moment = np.datetime64(self.grid.time_of(tick.tick).replace(tzinfo=None), "ns")
        coords = {
            "time": xr.Variable((), moment, {"standard_name": "time", "long_name": "time", "axis": "T"}),
            "tick": xr.Variable((), tick.tick, {"long_name": "number of the tick"}),
        }
        facts = self._facts(tick)
        variables = {}
        for name in self.names:
            error = name + ERROR
            attrs = describe(name) | facts | self._silence(tick, (name,))
            if error in self._places and error not in self.names:
                beside = variable_name(error)
                coords[beside] = xr.Variable(self.dims, tick.values[self._places[error]], describe(error))
                attrs["ancillary_variables"] = beside
            variables[variable_name(name)] = xr.Variable(self.dims, tick.values[self._places[name]], attrs)
        if len(variables) > 1:
            title = {"Conventions": "CF-1.11", **facts, **self._silence(tick, self.names)}
            return xr.Dataset(variables, coords=self.coords.assign(coords), attrs=title)
        ((name, variable),) = variables.items()
        return xr.DataArray(variable, coords=self.coords.assign(coords), name=name)

    def _facts(self, tick: Tick) -> dict[str, Any]:
        facts: dict[str, Any] = {"revision": tick.revision}
        if tick.missing:
            facts["missing_points"] = tick.missing
            facts["gaps"] = "; ".join(self._boxes(tick.gaps))
        return facts

    def _silence(self, tick: Tick, names: tuple[str, ...]) -> dict[str, Any]:
        """How many points rest on no observation, if any, and what they are."""
        if tick.silent_s is None:
            return {}
        silent_s = tick.silent_s[[self._places[name] for name in names]]
        counted = int(np.count_nonzero(~np.isnan(silent_s)))
        if not counted:
            return {}
        held_s = silent_s[np.isfinite(silent_s)]
        kinds = ["known beforehand"] if np.isinf(silent_s).any() else []
        if len(held_s):
            kinds.append(f"held since the last observation, up to {held_s.max():g} s before")
        where = "all points" if counted == silent_s.size else "some points"
        return {"unobserved_points": counted, "unobserved": f"{where}: {', '.join(kinds)}"}

    def _boxes(self, gaps: Iterable[tuple[int, int, int, int]]) -> list[str]:
        """Where there are no values, as W,S,E,N."""
        (dx, dy), (west, south) = self.grid.spacing, self.grid.extent[:2]
        found = list(
            dict.fromkeys(
                f"{west + x0 * dx:g},{south + y0 * dy:g},{west + x1 * dx:g},{south + y1 * dy:g}"
                for x0, x1, y0, y1 in gaps
            )
        )
        more = len(found) - GAPS_NAMED
        return found if more <= 0 else [*found[:GAPS_NAMED], f"and {more} more"]


def variable_name(attribute: str) -> str:
    """A name that NetCDF allows.

    >>> variable_name("air_temperature standard_error")
    'air_temperature_standard_error'
    """
    return attribute.replace(" ", "_")


def describe(attribute: str) -> dict[str, Any]:
    """What CF wants to know of an attribute."""
    unit = UNITS.get(attribute.removesuffix(ERROR))
    attrs = {"standard_name": attribute, "long_name": long_name(attribute)}
    if attribute.endswith(ERROR):
        attrs["comment"] = MEANING
    if unit is None:  # not a name of CF as far as we know
        del attrs["standard_name"]
    else:
        attrs["units"] = unit
    return attrs


def axes(grid: Grid) -> tuple[tuple[str, str], tuple[dict[str, str], dict[str, str]]]:
    """Names of rows and columns, and what CF wants to know of each."""
    if grid.coordinates == "lonlat":
        return ("latitude", "longitude"), (
            {"standard_name": "latitude", "long_name": "latitude", "units": "degrees_north", "axis": "Y"},
            {"standard_name": "longitude", "long_name": "longitude", "units": "degrees_east", "axis": "X"},
        )
    return ("y", "x"), ({"long_name": "y", "axis": "Y"}, {"long_name": "x", "axis": "X"})
