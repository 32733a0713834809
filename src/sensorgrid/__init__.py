"""Gap-free grids from raw sensor measurements, streamed at any area and resolution."""

from sensorgrid.model.box import Box
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query, QuerySize

__version__ = "0.3.0"
__all__ = ["Box", "Grid", "Query", "QuerySize", "SensorGridError", "__version__"]
