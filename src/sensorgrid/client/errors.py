"""What can go wrong between a client and its network, by kind."""

from sensorgrid.model.errors import QueryError, SensorGridError


class ClientError(SensorGridError):
    """Base of what a connection can raise."""


class NotConnected(ClientError, ConnectionError):  # noqa: N818
    """No broker could be reached at all."""


class ConnectionLost(ClientError, ConnectionError):  # noqa: N818
    """The connection was closed, here or for good, while a caller waited for data."""


class QueryRefused(ClientError, RuntimeError):  # noqa: N818
    """The network does not take a query; leaves no trace there."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        """as the network said it"""


class GridMismatch(ClientError, ValueError):  # noqa: N818
    """Something belongs to another grid: a resume file, an export, a network that was changed."""


class QueryMismatch(ClientError, ValueError):  # noqa: N818
    """Something belongs to another query: a resume file, an export."""


class TimedOut(ClientError, TimeoutError):  # noqa: N818
    """Nothing came in time."""


class TooLate(ClientError, LookupError):  # noqa: N818
    """A moment that lies outside what the query can give."""


class ResumeError(ClientError, ValueError):
    """A resume file that cannot be read or written."""


class ExportError(ClientError, ValueError):
    """A file that cannot be written, or continued."""


__all__ = [
    "ClientError",
    "ConnectionLost",
    "ExportError",
    "GridMismatch",
    "NotConnected",
    "QueryError",
    "QueryMismatch",
    "QueryRefused",
    "ResumeError",
    "TimedOut",
    "TooLate",
]
