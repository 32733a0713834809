"""Gap-free grids from raw sensor measurements, streamed at any area and resolution."""

from typing import TYPE_CHECKING, Any

from sensorgrid.model.box import Box
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query, QuerySize

if TYPE_CHECKING:
    from sensorgrid.client.connection import AsyncClient, aconnect
    from sensorgrid.client.errors import (
        ClientError,
        ConnectionLost,
        ExportError,
        GridMismatch,
        NotConnected,
        QueryMismatch,
        QueryRefused,
        ResumeError,
        TimedOut,
        TooLate,
    )
    from sensorgrid.client.lake import read_lake
    from sensorgrid.client.sync import Client, connect
    from sensorgrid.operators.plan import Operator

__version__ = "0.9.0"
__all__ = [
    "AsyncClient",
    "Box",
    "Client",
    "ClientError",
    "ConnectionLost",
    "ExportError",
    "Grid",
    "GridMismatch",
    "NotConnected",
    "Operator",
    "Query",
    "QueryMismatch",
    "QueryRefused",
    "QuerySize",
    "ResumeError",
    "SensorGridError",
    "TimedOut",
    "TooLate",
    "__version__",
    "aconnect",
    "connect",
    "read_lake",
]

_LATER = {
    "aconnect": "client.connection", "AsyncClient": "client.connection",
    "connect": "client.sync", "Client": "client.sync",
    "read_lake": "client.lake", "Operator": "operators.plan",
    **dict.fromkeys(
        (
            "ClientError", "ConnectionLost", "ExportError", "GridMismatch", "NotConnected", "QueryMismatch",
            "QueryRefused", "ResumeError", "TimedOut", "TooLate",
        ),
        "client.errors",
    ),
}  # fmt: skip
"""what needs xarray or shapely, and is imported when first used"""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        import importlib

        found = getattr(importlib.import_module(f"sensorgrid.{_LATER[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'sensorgrid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
