"""Operators over labelled arrays, in one process."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorgrid.model.box import Box
from sensorgrid.model.foreign import coordinate_of, is_degrees
from sensorgrid.model.grid import Grid
from sensorgrid.model.names import ERROR
from sensorgrid.operators.areas import Area
from sensorgrid.operators.batch import FieldParts, PlanBatch
from sensorgrid.operators.errors import ExpressionError
from sensorgrid.operators.numbers import REASONS, Numbers
from sensorgrid.operators.plan import Operator, OperatorPlan, compile

if TYPE_CHECKING:
    import xarray as xr

_CLOSE = 1e-6


def evaluate(
    operator: Operator | str,
    data: "xr.Dataset | xr.DataArray",
    areas: Mapping[str, Area] | None = None,
    grid: Grid | None = None,
    regions: Sequence[Box] | None = None,
    lengths_m: Mapping[str, float] | None = None,
) -> "xr.DataArray":
    """An operator over a data set, as `sensorgrid.read_lake` and exports give it.

    Parameters
    ----------
    operator
        The operator, or its value alone.
    data
        Attributes along time, latitude and longitude (or y and x); standard errors and numbers of observations beside
        them are taken if they are there.
    areas
        Areas that the operator may name.
    grid
        The grid that the data are on, or a part of; found from the data if they are a whole one.
    regions
        Parts of the grid that report together: each counts as covered if any of its points rests on an observation.
        If left out, every point counts for itself.
    lengths_m
        See `compile`.

    Returns
    -------
    The value at each tick, with `error`, `points`, `coverage` and `reason` as coordinates.
    """
    fields = Fields(data, grid, regions)
    plan = compile(operator, fields.grid, areas, lengths_m)
    return labelled(plan, fields.ticks, results(plan, fields))


def results(plan: OperatorPlan, fields: "Fields") -> Numbers:
    """The results at all ticks of some fields, from the first on."""
    batch, found = PlanBatch([plan]), []
    for tick in fields.ticks:
        batch.take(tick, batch.boxes[0], fields.at(tick, plan.attributes))
        found.append(batch.results(tick))
        batch.forget(tick - plan.window + 1)
    parts = [(n.value, n.error, n.points, n.coverage, n.reason) for n in found]
    return Numbers(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def labelled(plan: OperatorPlan, ticks: Sequence[int], found: Numbers) -> "xr.DataArray":
    """Results as a labelled array along time."""
    import xarray as xr

    times = np.array([plan.grid.time_of(t).replace(tzinfo=None) for t in ticks], "datetime64[ns]")
    attrs = {"long_name": plan.name} | ({"units": plan.unit} if plan.unit else {})
    beside = {
        "error": (found.error, {"long_name": "standard error"} | ({"units": plan.unit} if plan.unit else {})),
        "points": (found.points.astype(np.int64), {"long_name": "points of the grid that were used"}),
        "coverage": (found.coverage, {"long_name": "share of the area that reported", "units": "1"}),
        "reason": (np.array([REASONS[r] for r in found.reason]), {"long_name": "why there is no value"}),
        "tick": (np.array(ticks, np.int64), {"long_name": "number of the tick"}),
    }
    coords: dict[str, Any] = {"time": times} | {k: ("time", v, a) for k, (v, a) in beside.items()}
    return xr.DataArray(found.value, coords=coords, dims=("time",), name="operator", attrs=attrs)


class Fields:
    """Labelled arrays as fields of a grid."""

    def __init__(self, data: Any, grid: Grid | None, regions: Sequence[Box] | None = None) -> None:
        self._data = data.to_dataset(name=data.name or "data") if hasattr(data, "to_dataset") else data
        x, y = (coordinate_of(self._data, axis) for axis in ("x", "y"))
        self._dims = (y.dims[0], x.dims[0])
        self._regions = regions
        xs, ys = np.asarray(x.values, float), np.asarray(y.values, float)
        self._names = dict(self._attributes())
        self.grid = grid or self._found(xs, ys)
        columns = self.grid.indices_of(xs, np.full(len(xs), self.grid.extent[1]))[0]
        rows = self.grid.indices_of(np.full(len(ys), self.grid.extent[0]), ys)[1]
        self._where = np.ix_(rows, columns)
        self.ticks, self._steps = self._times()

    def _attributes(self) -> Iterator[tuple[str, str]]:
        """Standard name, or else name, of each variable on the grid."""
        for name, variable in self._data.data_vars.items():
            if set(self._dims) <= set(variable.dims):
                yield str(variable.attrs.get("standard_name", name)), str(name)

    def _found(self, xs: Any, ys: Any) -> Grid:
        """The grid that the data are."""
        steps = [np.diff(axis) for axis in (xs, ys)]
        if any(not len(s) or np.abs(s - s[0]).max() > _CLOSE * abs(s[0]) for s in steps):
            raise ExpressionError("data: found axes that are not even, expected a grid; grid= says which")
        if any(n & (n - 1) for n in (len(xs), len(ys))):
            raise ExpressionError(
                f"data: found {len(xs)} × {len(ys)} points, expected a whole grid, or grid= to say of which they are"
            )
        dx, dy = abs(steps[0][0]), abs(steps[1][0])
        extent = (xs.min() - dx / 2, ys.min() - dy / 2, xs.max() + dx / 2, ys.max() + dy / 2)
        degrees = is_degrees(self._data, "x")
        names = tuple(n for n in self._names if not n.endswith(ERROR) and "number_of_observations" not in n)
        return Grid(
            extent=tuple(round(float(e), 9) for e in extent),  # type: ignore[arg-type]
            shape=(len(xs), len(ys)), resolution_bits=(0, 0, 0), region_digits=0, tick=self._tick(), attributes=names,
            coordinates="lonlat" if degrees else "planar",
        )  # fmt: skip

    def _tick(self) -> float:
        times = np.atleast_1d(self._data["time"].values).astype("datetime64[us]").astype(np.int64)
        return float(np.diff(np.sort(times)).min()) / 1e6 if len(times) > 1 else 600.0

    def _times(self) -> tuple[list[int], dict[int, int]]:
        times = np.atleast_1d(self._data["time"].values).astype("datetime64[us]")
        moments = [t.astype(datetime).replace(tzinfo=UTC) for t in times]
        ticks = [self.grid.tick_at(moment) for moment in moments]
        steps = {tick: step for step, tick in enumerate(ticks)}
        return sorted(steps), steps

    def at(self, tick: int, attributes: Sequence[str]) -> dict[str, FieldParts]:
        """Values, errors and what was observed, of some attributes at a tick."""
        found: dict[str, FieldParts] = {}
        for name in attributes:
            values = self._array(name, tick, np.float32)
            if values is None:
                continue
            errors = self._array(name + ERROR, tick, np.float32)
            if errors is None:
                errors = self._array(f"{name}_standard_error", tick, np.float32)
            found[name] = (values, errors, self._observed(name, tick))
        return found

    def _observed(self, name: str, tick: int) -> Any:
        seen = self._array(f"{name} number_of_observations", tick, np.float32)
        if seen is None:
            seen = self._array(f"{name}_number_of_observations", tick, np.float32)
        if seen is None:
            return None
        observed = seen != 0  # -1 and NaN: nobody says it
        for box in self._regions or ():
            part = np.s_[box.y0 : box.y1, box.x0 : box.x1]
            observed[part] = observed[part].any()
        return observed

    def _array(self, name: str, tick: int, kind: Any) -> Any:
        """A variable at a tick on the whole grid; None if there is none."""
        variable = self._names.get(name)
        if variable is None or tick not in self._steps:
            return None
        array = self._data[variable]
        if "time" in array.dims:
            array = array.isel(time=self._steps[tick])
        values = np.asarray(array.transpose(*self._dims).values, kind)
        whole = np.full((self.grid.shape[1], self.grid.shape[0]), np.nan, kind)
        whole[self._where] = values
        return whole
