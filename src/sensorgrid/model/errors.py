"""Every error that Sensorgrid raises on purpose.

One base class, so that a caller can catch all of them; each child also inherits the builtin that fits, so
that code which knows nothing of Sensorgrid still catches the right thing. A message gives subject, found,
expected: ``resolution x: found 0, expected a number in (0, 1]``.
"""


class SensorGridError(Exception):
    """Base of all errors that Sensorgrid raises on purpose."""

    def __str__(self) -> str:
        # KeyError would print its message in quotes.
        return str(self.args[0]) if self.args else ""


class GridError(SensorGridError, ValueError):
    """A grid that cannot exist, or a position or index that is not on it."""


class QueryError(SensorGridError, ValueError):
    """A query that cannot be right, on any grid or on the given one."""


class UnknownAttributeError(QueryError, KeyError):
    """A query for an attribute that the grid does not carry."""


class CellError(SensorGridError, ValueError):
    """A cell that cannot be read, or that does not exist on the given grid."""


class DuplicateEntryError(SensorGridError, ValueError):
    """An entry (cell, owner, box) that the index already holds."""


class MissingEntryError(SensorGridError, KeyError):
    """An entry (cell, owner, box) that the index does not hold."""
