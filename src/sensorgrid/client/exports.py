"""Streams to files: NetCDF, Zarr and Parquet, one tick after the other, and tables of pandas.

While a file is being written it is called ``NAME.part``; it gets its final name when the stream ends, unless the
program died or a tick could not be written, as on a full disk. So a file with its final name is complete. Opening an
export again continues after the last tick that was written, without repeating one, also from a ``.part`` that a crash
left behind. A file belongs to one query on one grid, and is refused for any other; the query's time does not matter.

A tick is written so that it counts only when all of it is there: its number is written last (Zarr, NetCDF), or its
file appears in one step (Parquet).
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import xarray as xr

from sensorgrid.client.errors import ExportError, GridMismatch, QueryMismatch, ResumeError
from sensorgrid.client.fields import Field
from sensorgrid.client.resume import query_to, write_whole
from sensorgrid.links.wire import fingerprint
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query

if TYPE_CHECKING:
    import pandas as pd

KINDS = {".nc": "netcdf", ".nc4": "netcdf", ".zarr": "zarr", ".parquet": "parquet", ".pq": "parquet"}
_JOINING: Any = {"coords": "different", "compat": "equals", "join": "exact", "combine_attrs": "override"}
EPOCH = "seconds since 1970-01-01T00:00:00Z"
NO_TICK = -(1 << 62)
"""in place of a tick that was not written to its end"""
OWNER = "sensorgrid"
"""the attribute that says whose file it is"""


def kind_of(path: str | os.PathLike[str]) -> str:
    """What a file is to be, by the end of its name."""
    kind = KINDS.get(Path(path).suffix.lower())
    if kind is None:
        raise ExportError(f"{os.fspath(path)}: found no known ending, expected one of {', '.join(KINDS)}")
    return kind


def check_path(path: Path) -> None:
    """Refuse what cannot be written, before the work."""
    for name in _NEEDS[kind_of(path)]:
        _need(name)
    check_folder(path)


def check_folder(path: Path) -> None:
    """Refuse a file whose folder does not exist or cannot be written to."""
    if not path.parent.is_dir():
        raise ExportError(f"{path}: found no folder {path.parent}, expected one")
    try:
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ExportError(
            f"{path}: found {error.strerror} in {path.parent}, expected a folder to write to"
        ) from error


def open_export(path: str | os.PathLike[str], kind: str | None, query: Query, grid: Grid) -> "Export":
    """Begin a file, or go on with it."""
    return Export(Path(path), kind or kind_of(path), query, grid)


def dataset_of(field: Field) -> xr.Dataset:
    """A field as files have it: along time, the errors as variables like all others."""
    data = field.to_dataset() if isinstance(field, xr.DataArray) else field
    beside = [name for name in data.coords if str(name).endswith("_standard_error")]
    names = [*data.data_vars, *beside]
    data = data.reset_coords(beside).drop_vars("tick").expand_dims("time")
    for name in names:
        attrs = data[name].attrs
        data[name].attrs = {k: v for k, v in attrs.items() if k not in ("revision", "missing_points", "gaps")}
    attrs = field.attrs
    data = data.assign(
        tick=("time", [int(field["tick"])], {"long_name": "number of the tick"}),
        revision=(
            "time",
            np.array([attrs.get("revision", 0)], np.int32),
            {"long_name": "revision of the tick"},
        ),
        missing_points=(
            "time",
            np.array([attrs.get("missing_points", 0)], np.int64),
            {"long_name": "points of the tick for which the network had no value"},
        ),
    )
    data.attrs = {"Conventions": "CF-1.11"}
    return data


def table_of(fields: Iterable[Field]) -> "pd.DataFrame":
    """Fields as a tidy table: a row per point and tick."""
    import pandas as pd

    tables = [_table(field) for field in fields]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def joined(fields: list[Field]) -> Field:
    """Fields as one, along time."""
    if not fields:
        raise ExportError("fields: found none, expected one or more")
    if isinstance(fields[0], xr.DataArray):
        arrays = [field for field in fields if isinstance(field, xr.DataArray)]
        return xr.concat(arrays, dim="time", **_JOINING)
    sets = [field for field in fields if isinstance(field, xr.Dataset)]
    return xr.concat(sets, dim="time", **_JOINING)


def _table(field: Field) -> "pd.DataFrame":
    name = field.name if isinstance(field, xr.DataArray) else None
    table = field.to_dataframe().reset_index()
    last = [str(v) for v in field.data_vars] if isinstance(field, xr.Dataset) else [str(name)]
    last += [str(c) for c in field.coords if str(c).endswith("_standard_error")]
    first = ["time", "tick"]
    table["time"] = table["time"].dt.tz_localize("UTC")
    return table[[*first, *(c for c in table.columns if c not in (*first, *last)), *last]]


class _Writer(Protocol):
    """One format."""

    ticks: list[int]
    """that are there, in the order in which they are"""
    owner: str
    """whose file it is"""

    def append(self, data: xr.Dataset, field: Field) -> None:
        """One more tick, or one that is there, revised."""

    def finish(self, target: Path) -> None:
        """Give it its own name."""

    def leave(self) -> None:
        """Leave it as it is, to be continued."""


class Export:
    """A file that grows by a tick at a time. Use it in a ``with``; leaving it finishes the file."""

    def __init__(self, path: Path, kind: str, query: Query, grid: Grid) -> None:
        if kind not in _WRITERS:
            raise ExportError(f"{path}: found format {kind!r}, expected one of {', '.join(_WRITERS)}")
        check_folder(path)
        self.path = path
        self.part = path.with_name(path.name + ".part")
        self.written = 0
        """ticks, since it was opened"""
        self.owner = json.dumps(
            {
                "grid": fingerprint(grid),
                **{k: v for k, v in query_to(query).items() if k not in ("start", "duration_s")},
            }
        )
        for name in _NEEDS[kind]:
            _need(name)
        self._kind = kind
        self._writer: _Writer | None = None
        self._half = False
        """a tick was not written to its end"""
        if kind == "parquet":
            _tidy_parquet(path, self.part)
        if self.part.exists() and path.exists():
            raise ExportError(
                f"{path}: found {self.part.name} beside it, which is newer and not finished, expected one of them"
            )
        if path.exists() or self.part.exists():
            self._go_on()

    @property
    def next(self) -> int | None:
        """The tick after the last one; None: there is none."""
        return max(self._writer.ticks) + 1 if self._writer is not None and self._writer.ticks else None

    def append(self, field: Field) -> None:
        """Write one tick."""
        data = dataset_of(field)
        before, self._half = self._half, True
        try:
            if self._writer is None:
                self._writer = _WRITERS[self._kind](self.part, self.owner, data)
            self._writer.append(data, field)
        except ExportError:  # found before anything was written
            self._half = before
            raise
        except (OSError, RuntimeError, ResumeError) as error:  # the HDF library has only RuntimeError
            raise ExportError(
                f"{self.part}: found that it cannot be written ({error}), expected room"
            ) from error
        self._half = False
        self.written += 1

    def close(self) -> None:
        """Finish the file: from now on it has its own name, unless its last tick could not be written."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            if self._half:
                writer.leave()
            else:
                writer.finish(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _go_on(self) -> None:
        whole = self.path.exists()
        found = self.path if whole else self.part
        try:
            owner = _OWNERS[self._kind](found)
            _check_owner(owner, self.owner, found)
            if whole:
                self._move_aside()
            self._writer = _WRITERS[self._kind](self.part, self.owner, None)
        except ExportError:
            raise
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ExportError(
                f"{found}: found that it cannot be continued ({type(error).__name__}: {error}), expected a file of"
                " Sensorgrid; remove it or name another"
            ) from None

    def _move_aside(self) -> None:
        if self._kind == "parquet":
            self.part.mkdir()
            os.replace(self.path, self.part / _BEFORE)
        else:
            os.replace(self.path, self.part)


def _check_owner(found: str, expected: str, path: Path) -> None:
    theirs, ours = json.loads(found), json.loads(expected)
    if theirs["grid"] != ours["grid"]:
        raise _GridExportError(f"{path}: found a file of grid {theirs['grid']}, expected {ours['grid']}")
    differs = [name for name in ours if theirs.get(name) != ours[name]]
    if differs:
        raise _QueryExportError(
            f"{path}: found a file of another query (other {', '.join(differs)}), expected this one's"
        )


class _GridExportError(ExportError, GridMismatch):
    pass


class _QueryExportError(ExportError, QueryMismatch):
    pass


def _need(name: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise ExportError(
            f"{name}: found no such library, expected it: pip install 'sensorgrid[export]'"
        ) from None


def _same_points(data: xr.Dataset, fixed: dict[str, Any], along: Iterable[str], path: Path) -> None:
    """A file holds one set of variables and points; others would be written over the wrong ones."""
    found, expected = {*fixed, *along}, {str(name) for name in data.variables}
    if found != expected:
        raise ExportError(
            f"{path}: found {', '.join(sorted(found - expected)) or 'no'} beside the common variables, expected"
            f" {', '.join(sorted(expected - found)) or 'no others'}, as in the stream"
        )
    for name, known in fixed.items():
        if not np.array_equal(np.asarray(data[name].values), known):
            raise ExportError(f"{path}: found other points along {name}, expected those of the stream")


# -- NetCDF


class _NetCdf:
    """Variables along an unlimited time; a tick's number is written last."""

    def __init__(self, part: Path, owner: str, first: xr.Dataset | None) -> None:
        netcdf: Any = _need("netCDF4")
        self.part, self.owner = part, owner
        self.file = netcdf.Dataset(part, "w" if first is not None else "a", format="NETCDF4")
        if first is not None:
            self._define(first)
        self.file.set_auto_mask(False)
        found = np.asarray(self.file["tick"][:])
        self.ticks = [int(tick) for tick in found if tick != NO_TICK]
        variables = self.file.variables.items()
        self._along = [name for name, variable in variables if "time" in variable.dimensions]
        self._fixed = {name: np.asarray(v[:]) for name, v in variables if name not in self._along}

    def _define(self, data: xr.Dataset) -> None:
        file = self.file
        file.setncatts({**data.attrs, OWNER: self.owner})
        for dim, size in data.sizes.items():
            file.createDimension(dim, None if dim == "time" else size)
        for name, variable in data.variables.items():
            dims = variable.dims
            if name == "time":
                made = file.createVariable("time", "f8", dims)
                made.setncatts(
                    {"standard_name": "time", "long_name": "time", "units": EPOCH, "calendar": "standard"}
                )
                made.axis = "T"
                continue
            along, spatial = "time" in dims, len(dims) > 1
            chunks = tuple(1 if d == "time" else data.sizes[d] for d in dims) if along and spatial else None
            fill = NO_TICK if name == "tick" else np.nan if along and spatial else None
            packing: dict[str, Any] = {"zlib": True, "complevel": 1, "chunksizes": chunks} if chunks else {}
            made = file.createVariable(name, variable.dtype, dims, fill_value=fill, **packing)
            made.setncatts({k: v for k, v in variable.attrs.items() if k != "_FillValue"})
            if spatial and along:
                aux = [str(c) for c in data.coords if c not in data.dims and data[c].dims != ("time",)]
                if aux:
                    made.coordinates = " ".join(aux)
            if not along:
                made[...] = variable.values

    def append(self, data: xr.Dataset, field: Field) -> None:
        _same_points(data, self._fixed, self._along, self.part)
        tick = int(data["tick"].item())
        at = self.ticks.index(tick) if tick in self.ticks else len(self.ticks)
        for name, variable in data.variables.items():
            if "time" not in variable.dims or name in ("tick", "time"):
                continue
            self.file[name][at] = variable.values[0]
        self.file["time"][at] = data["time"].values.astype("datetime64[ns]").astype(np.int64)[0] / 1e9
        self.file["tick"][at] = tick
        self.file.sync()
        if at == len(self.ticks):
            self.ticks.append(tick)

    def finish(self, target: Path) -> None:
        whole = self.part
        if len(self.file.dimensions["time"]) > len(self.ticks):
            whole = self._shortened()
        self.file.close()
        if whole != self.part:
            os.replace(whole, self.part)
        os.replace(self.part, target)

    def leave(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # what could not be written still cannot
            self.file.close()

    def _shortened(self) -> Path:
        """A copy without the tick that was not written to its end: a time that has grown stays as long."""
        netcdf: Any = _need("netCDF4")
        path, old = self.part.with_name(self.part.name + ".new"), self.file
        with netcdf.Dataset(path, "w", format="NETCDF4") as new:
            new.setncatts({name: old.getncattr(name) for name in old.ncattrs()})
            for name, dim in old.dimensions.items():
                new.createDimension(name, None if dim.isunlimited() else len(dim))
            for name, known in old.variables.items():
                attrs = {key: known.getncattr(key) for key in known.ncattrs()}
                chunks = None if known.chunking() == "contiguous" else known.chunking()
                made = new.createVariable(
                    name, known.dtype, known.dimensions, fill_value=attrs.pop("_FillValue", None), chunksizes=chunks,
                    zlib=known.filters()["zlib"], complevel=1,
                )  # fmt: skip
                made.set_auto_mask(False)
                made.setncatts(attrs)
                for at in range(len(self.ticks)) if name in self._along else (...,):
                    made[at] = known[at]
        return path


def _netcdf_owner(path: Path) -> str:
    netcdf: Any = _need("netCDF4")
    with netcdf.Dataset(path) as file:
        return str(file.getncattr(OWNER)) if OWNER in file.ncattrs() else _no_owner(path)


# -- Zarr


class _Zarr:
    """One chunk per tick and variable; a tick's number is written last."""

    def __init__(self, part: Path, owner: str, first: xr.Dataset | None) -> None:
        zarr: Any = _need("zarr")
        self.part, self.owner = part, owner
        if first is not None:
            self._define(first)
        self.group = zarr.open_group(str(part), mode="r+", use_consolidated=False)
        found = np.asarray(self.group["tick"][:])
        self.ticks = [int(tick) for tick in found if tick != NO_TICK]
        self._along = [name for name, array in self.group.arrays() if _dims(array)[:1] == ("time",)]
        self._fixed = {
            name: np.asarray(array[...]) for name, array in self.group.arrays() if name not in self._along
        }

    def _define(self, data: xr.Dataset) -> None:
        empty = data.isel(time=slice(0, 0))
        encoding: dict[Any, Any] = {}
        for name, variable in data.variables.items():
            if "time" in variable.dims:
                encoding[name] = {"chunks": tuple(1 if d == "time" else data.sizes[d] for d in variable.dims)}
        for name in ("tick", "revision", "missing_points"):
            encoding[name]["chunks"] = (1024,)
        encoding["tick"]["_FillValue"] = NO_TICK
        encoding["time"] = {"chunks": (1024,), "units": EPOCH.replace("T00:00:00Z", ""), "dtype": "float64"}
        empty.attrs[OWNER] = self.owner
        making = self.part.with_name(self.part.name + ".new")
        shutil.rmtree(making, ignore_errors=True)
        empty.to_zarr(making, mode="w", encoding=encoding, consolidated=False, zarr_format=2)
        os.replace(making, self.part)

    def append(self, data: xr.Dataset, field: Field) -> None:
        _same_points(data, self._fixed, self._along, self.part)
        tick = int(data["tick"].item())
        at = self.ticks.index(tick) if tick in self.ticks else len(self.ticks)
        order = [name for name in self._along if name != "tick"]
        for name in (*order, "tick"):
            array = self.group[name]
            if array.shape[0] <= at:
                array.resize((at + 1, *array.shape[1:]))
            values = data[name].values[0]
            if name == "time":
                values = values.astype("datetime64[ns]").astype(np.int64) / 1e9
            array[at] = values
        if at == len(self.ticks):
            self.ticks.append(tick)

    def finish(self, target: Path) -> None:
        zarr: Any = _need("zarr")
        for name in self._along:
            array = self.group[name]
            array.resize((len(self.ticks), *array.shape[1:]))
        zarr.consolidate_metadata(str(self.part), zarr_format=2)
        os.replace(self.part, target)

    def leave(self) -> None:
        pass


def _dims(array: Any) -> tuple[str, ...]:
    return tuple(array.attrs.get("_ARRAY_DIMENSIONS", ()))


def _zarr_owner(path: Path) -> str:
    zarr: Any = _need("zarr")
    group = zarr.open_group(str(path), mode="r", use_consolidated=False)
    return str(group.attrs[OWNER]) if OWNER in group.attrs else _no_owner(path)


# -- Parquet

_BEFORE = "before.parquet"
_WHOLE = "whole"


class _Parquet:
    """A folder with a file per tick; in the end one file with a row group per tick."""

    def __init__(self, part: Path, owner: str, first: xr.Dataset | None) -> None:
        self.part, self.owner = part, owner
        parquet: Any = _need("pyarrow.parquet")
        part.mkdir(exist_ok=True)
        self.ticks: list[int] = []
        self._schema: Any = None
        self._rows = 0
        before = part / _BEFORE
        if before.exists():
            with parquet.ParquetFile(before) as file:
                for group in range(file.metadata.num_row_groups):
                    self.ticks.append(int(file.read_row_group(group, columns=["tick"])["tick"][0].as_py()))
        self.ticks += [int(f.stem) for f in sorted(part.glob("*.parquet")) if f.name != _BEFORE]

    def append(self, data: xr.Dataset, field: Field) -> None:
        arrow: Any = _need("pyarrow")
        parquet: Any = _need("pyarrow.parquet")
        table = arrow.Table.from_pandas(_table(field), preserve_index=False)
        table = table.replace_schema_metadata({OWNER: self.owner})
        if self._schema is None and self.ticks:
            known = parquet.ParquetFile(next(iter(self.part.glob("*.parquet"))))
            self._schema, self._rows = known.schema_arrow, known.metadata.row_group(0).num_rows
            known.close()
        if self._schema is not None and not (table.schema.equals(self._schema) and len(table) == self._rows):
            raise ExportError(
                f"{self.part}: found {', '.join(self._schema.names)} of {self._rows} points, expected those of the"
                f" stream: {', '.join(table.schema.names)} of {len(table)}"
            )
        sink = arrow.BufferOutputStream()
        parquet.write_table(table, sink)
        tick = int(data["tick"].item())
        write_whole(self.part / f"{tick:020d}.parquet", sink.getvalue().to_pybytes())
        if tick not in self.ticks:
            self.ticks.append(tick)

    def finish(self, target: Path) -> None:
        parquet: Any = _need("pyarrow.parquet")
        before = self.part / _BEFORE
        files = [f for f in sorted(self.part.glob("*.parquet")) if f.name != _BEFORE]
        whole = self.part / _WHOLE
        writer: Any = None
        try:
            own = {int(f.stem) for f in files}
            for source in ([before] if before.exists() else []) + files:
                with parquet.ParquetFile(source) as file:
                    for group in range(file.metadata.num_row_groups):
                        table = file.read_row_group(group)
                        if source == before and int(table["tick"][0].as_py()) in own:
                            continue  # revised since
                        writer = writer or parquet.ParquetWriter(whole, table.schema)
                        writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            shutil.rmtree(self.part)
            return
        done = _done(self.part)
        os.replace(self.part, done)  # from here on the file is whole, whenever it gets its name
        os.replace(done / _WHOLE, target)
        shutil.rmtree(done)

    def leave(self) -> None:
        pass


def _done(part: Path) -> Path:
    return part.with_name(part.name + ".done")


def _tidy_parquet(path: Path, part: Path) -> None:
    """Finish what a crash interrupted between two steps: a complete file without its final name, a folder without a
    tick."""
    done = _done(part)
    if (done / _WHOLE).exists() and not path.exists():
        os.replace(done / _WHOLE, path)
    if done.is_dir() and not (done / _WHOLE).exists():
        shutil.rmtree(done)
    if part.is_dir() and all(file.name.startswith(".") for file in part.iterdir()):
        shutil.rmtree(part)


def _parquet_owner(path: Path) -> str:
    parquet: Any = _need("pyarrow.parquet")
    found = path if path.is_file() else next(iter(sorted(path.glob("*.parquet"))), None)
    if found is None:
        return _no_owner(path)
    metadata = parquet.read_schema(found).metadata or {}
    owner = metadata.get(OWNER.encode())
    return str(owner.decode()) if owner is not None else _no_owner(path)


def _no_owner(path: Path) -> str:
    raise ExportError(f"{path}: found a file of another program, expected one of Sensorgrid, or none")


_WRITERS: dict[str, Any] = {"netcdf": _NetCdf, "zarr": _Zarr, "parquet": _Parquet}
_OWNERS: dict[str, Any] = {"netcdf": _netcdf_owner, "zarr": _zarr_owner, "parquet": _parquet_owner}
_NEEDS = {"netcdf": ("netCDF4",), "zarr": ("zarr",), "parquet": ("pyarrow.parquet",)}
