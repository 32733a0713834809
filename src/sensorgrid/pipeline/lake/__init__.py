"""The history of the grids as files, what lies in them, and what keeps them in order."""

from sensorgrid.pipeline.lake.folder import Lake

__all__ = ["Lake"]
