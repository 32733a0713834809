"""The lake as labelled arrays: what was published, with everything that is known about it.

Streams carry values and errors, and say which blocks rest on no observation. The lake has more of every point: the
ends of an interval that is lopsided, how many observations are within reach, and how old the newest of them is.
Nothing but Parquet and `plan.json` is read, so this needs neither brokers nor the pipeline.
"""

import glob
import json
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sensorgrid.client.errors import ExportError
from sensorgrid.client.fields import axes, describe, variable_name
from sensorgrid.model.grid import Grid
from sensorgrid.model.names import ERROR, long_name

_POINTS = ("values", "error", "lower", "upper", "number_of_observations", "age")
_FACTS = ("tick", "region", "revision", "x0", "y0", "width", "height")
"""columns that say of what a row is"""
_FILE = "__filename"
"""of each row, as pyarrow tells it"""
_TIMES = (datetime(1678, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC))
"""that xarray's nanoseconds can tell"""
_SAID = {"gaps": "gaps", "noise": "observation_noise", "transform": "observation_noise_after"}
"""columns that say something of all points, and the attributes that they become"""
_BOUND = "end of the interval that holds the truth in 68 of 100 cases"


def read_lake(
    lake: str | Path,
    attributes: str | Iterable[str] | None = None,
    start: datetime | None = None,
    until: datetime | None = None,
) -> xr.Dataset:
    """Grids of a lake, the newest revision of each, as one data set along time.

    Beside an attribute stand, as CF's ancillary variables: its standard error, the lower and upper end of its interval,
    the number of observations within reach of each point, and the age of the newest of them.

    Parameters
    ----------
    lake
        The folder.
    attributes
        One or several; all that the lake has, if left out.
    start, until
        The first moment, and the one after the last; all ticks, if left out.

    Raises
    ------
    ExportError
        If there is no such lake, attribute or time, or a file of it cannot be read.
    """
    grid, tables = grid_of(lake), {}
    for name in [attributes] if isinstance(attributes, str) else list(attributes or grid.attributes):
        tables[name] = _table(Path(lake), grid, name, start, until)
    ticks = sorted({tick for table in tables.values() for tick in table["tick"].to_pylist()})
    if not ticks:
        raise ExportError(f"lake {lake}: found no tick from {start} until {until}, expected one")
    return _dataset(grid, ticks, tables)


def _table(root: Path, grid: Grid, name: str, start: datetime | None, until: datetime | None) -> Any:
    """Rows of an attribute by tick, region and revision."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    files = f"tiles/attribute={glob.escape(str(name))}/day=*/[!.]*.parquet"
    paths = [str(path) for path in sorted(root.glob(files))]
    if name not in grid.attributes or not paths:
        raise ExportError(f"lake {root}: found no grid of {name!r}, expected one")
    whole, number = pa.int32(), pa.list_(pa.float32())
    schema = pa.schema(
        [
            ("tick", pa.int64()), ("region", pa.string()), ("revision", whole), ("x0", whole), ("y0", whole),
            ("width", whole), ("height", whole), *((column, number) for column in _POINTS[:4]),
            ("number_of_observations", pa.list_(pa.uint8())), ("age", number), ("gaps", pa.string()),
            ("noise", pa.float32()), ("transform", pa.string()),
        ]
    )  # fmt: skip
    condition = pc.scalar(True)
    if start is not None:
        condition &= pc.field("tick") >= grid.tick_from(start)
    if until is not None:
        condition &= pc.field("tick") < grid.tick_from(until)

    def read(some: list[str]) -> Any:
        # Files of earlier releases lack some columns, which are null then.
        return ds.dataset(some, schema=schema).to_table(filter=condition, columns=[*schema.names, _FILE])

    try:
        table = read(paths)
    except (pa.ArrowException, OSError) as error:
        for path in paths:
            try:
                read([path])
            except (pa.ArrowException, OSError) as fault:
                raise _unread(path, fault) from None
        raise _unread(f"lake {root}", error) from None
    _check(grid, table)
    return table.sort_by([(column, "ascending") for column in ("tick", "region", "revision")])


def _unread(subject: str, error: Exception) -> ExportError:
    found = str(error).partition("\n")[0] or type(error).__name__
    return ExportError(f"{subject}: found {found}, expected tiles of a lake")


def _check(grid: Grid, table: Any) -> None:
    """Refuse rows that cannot be of this grid."""
    import pyarrow.compute as pc

    for column in _FACTS:
        _refuse(table, table[column].is_null(), f"no {column}", "one")
    x, y, width, height, tick = (
        table[c].to_numpy().astype(np.int64) for c in ("x0", "y0", "width", "height", "tick")
    )
    first, last = (grid.tick_from(moment) for moment in _TIMES)
    _refuse(table, (tick < first) | (tick >= last), "a tick too far away", f"one from {first} to {last - 1}")
    on = (x >= 0) & (y >= 0) & (width > 0) & (height > 0)
    on &= (x + width <= grid.shape[0]) & (y + height <= grid.shape[1])
    expected = f"one on the grid of {grid.shape[0]} × {grid.shape[1]} points"
    _refuse(table, ~on, "a tile outside the grid", expected)
    for column in _POINTS:
        counts = pc.list_value_length(table[column])
        wrong = table[column].is_valid().to_numpy() & (counts.fill_null(0).to_numpy() != width * height)
        _refuse(table, wrong, f"too few or too many numbers of {column}", "one for each point of the tile")


def _refuse(table: Any, wrong: Any, found: str, expected: str) -> None:
    at = np.flatnonzero(np.asarray(wrong))
    if len(at):
        row = {name: table[name][int(at[0])].as_py() for name in (_FILE, "tick", "region", "revision")}
        subject = f"tick {row['tick']}, region {row['region']}, revision {row['revision']}"
        raise ExportError(f"{row[_FILE]}: {subject}: found {found}, expected {expected}")


def grid_of(lake: str | Path) -> Grid:
    """The grid of a lake."""
    path = Path(lake) / "plan.json"
    try:
        plan: Any = json.loads(path.read_text())
    except (OSError, ValueError):
        raise ExportError(f"lake {lake}: found no plan.json, expected a lake") from None
    found: Any = plan.get("grid") if isinstance(plan, dict) else None
    if not isinstance(found, dict):
        raise ExportError(f"{path}: found no grid, expected the plan of a lake")
    known = [field.name for field in fields(Grid) if field.name in found]  # a later release may say more
    try:
        plain: dict[str, Any] = {
            k: tuple(found[k]) if isinstance(found[k], list) else found[k] for k in known
        }
        return Grid(**plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise ExportError(f"{path}: found no grid ({error}), expected the plan of a lake") from None


def _dataset(grid: Grid, ticks: list[int], tables: dict[str, Any]) -> xr.Dataset:
    dims, attrs = axes(grid)
    dx, dy = grid.spacing
    times = np.array([grid.time_of(tick).replace(tzinfo=None) for tick in ticks], "datetime64[ns]")
    coords: dict[str, Any] = {
        "time": ("time", times, {"standard_name": "time", "long_name": "time", "axis": "T"}),
        dims[0]: (dims[0], grid.extent[1] + (np.arange(grid.shape[1]) + 0.5) * dy, attrs[0]),
        dims[1]: (dims[1], grid.extent[0] + (np.arange(grid.shape[0]) + 0.5) * dx, attrs[1]),
        "tick": ("time", np.array(ticks, np.int64), {"long_name": "number of the tick"}),
    }
    variables: dict[str, Any] = {}
    for name, table in tables.items():
        variables |= _variables(grid, ticks, name, table, ("time", *dims))
    return xr.Dataset(variables, coords=coords, attrs={"Conventions": "CF-1.11"})


def _variables(
    grid: Grid, ticks: list[int], name: str, table: Any, dims: tuple[str, str, str]
) -> dict[str, Any]:
    """An attribute and all that stands beside it."""
    arrays = _arrays(grid, ticks, table)
    variable, own = variable_name(name), describe(name)
    unit = {"units": own["units"]} if "units" in own else {}
    counts = {"standard_name": f"{own['standard_name']} number_of_observations"} if unit else {}
    beside: dict[str, tuple[str, dict[str, Any]]] = {
        variable_name(name + ERROR): ("error", describe(name + ERROR)),
        f"{variable}_lower_bound": ("lower", _words("lower bound", name, _BOUND) | unit),
        f"{variable}_upper_bound": ("upper", _words("upper bound", name, _BOUND) | unit),
        f"{variable}_number_of_observations": (
            "number_of_observations",
            _words("number of observations", name, "within reach of the point; -1: nobody says it")
            | {"units": "1"} | counts,
        ),
        f"{variable}_age": (
            "age", _words("age of the newest observation", name, "that the value rests on") | {"units": "s"}
        ),
    }  # fmt: skip
    attrs = own | {"ancillary_variables": " ".join(beside)}
    for column, attribute in _SAID.items():
        said = [v for v in table[column].to_pylist() if v]
        if said:
            attrs[attribute] = said[-1]
    seen = arrays["number_of_observations"]
    attrs["ticks_without_observations"] = int((seen == 0).all(axis=(1, 2)).sum())
    return {variable: (dims, arrays["values"], attrs)} | {
        key: (dims, arrays[column], words) for key, (column, words) in beside.items()
    }


def _arrays(grid: Grid, ticks: list[int], table: Any) -> dict[str, Any]:
    """Columns of points as [time, row, column]."""
    shape, place = (len(ticks), grid.shape[1], grid.shape[0]), {tick: n for n, tick in enumerate(ticks)}
    arrays: dict[str, Any] = {column: np.full(shape, np.nan, np.float32) for column in _POINTS}
    arrays["number_of_observations"] = np.full(shape, -1, np.int16)
    corners = zip(*(table[c].to_pylist() for c in ("tick", "x0", "y0", "width", "height")), strict=True)
    for at, (tick, x, y, width, height) in enumerate(corners):  # revisions rise: the last one stays
        where = np.s_[place[tick], y : y + height, x : x + width]
        for column in _POINTS:
            cell = table[column][at]
            if cell.is_valid:
                arrays[column][where] = cell.values.to_numpy(zero_copy_only=False).reshape(height, width)
            elif column in ("lower", "upper"):
                half = arrays["error"][where] * (-1 if column == "lower" else 1)
                arrays[column][where] = arrays["values"][where] + half
    return arrays


def _words(what: str, name: str, comment: str) -> dict[str, Any]:
    return {"long_name": f"{what} of {long_name(name)}", "comment": comment}
