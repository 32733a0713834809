"""Where a stream stands, in a small file that survives the client's own death.

The file names the next tick that the consumer needs. A tick counts as processed when the consumer asks for the one
after it; then the file is replaced, in one step. So across a crash every tick is given at least once: only the tick
that was being processed comes again. A consumer that writes its result and the tick's number in one atomic step gets
exactly once, by skipping the number that it has already.

The file belongs to one query on one grid, and is refused for any other.
"""

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sensorgrid.client.errors import GridMismatch, QueryMismatch, ResumeError
from sensorgrid.links.wire import fingerprint
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query

FORMAT = 1


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a stream goes on."""

    next: int
    """the tick that the consumer needs next, at the earliest"""
    until: int | None
    """tick after the last of the stream"""


def query_to(query: Query) -> dict[str, Any]:
    """A query as plain values."""
    return {
        "attributes": list(query.attributes),
        "bbox": None if query.bbox is None else list(query.bbox),
        "resolution": list(query.resolution),
        "spacing": None if query.spacing is None else list(query.spacing),
        "every_s": None if query.every is None else query.every.total_seconds(),
        "start": None if query.start is None else query.start.isoformat(),
        "duration_s": None if query.duration is None else query.duration.total_seconds(),
        "where": [[name, repr(low), repr(high)] for name, low, high in query.where],
    }


class ResumeFile:
    """The file of one stream."""

    def __init__(self, path: str | os.PathLike[str], query: Query, grid: Grid) -> None:
        self.path = Path(path)
        self.query, self.grid = query, grid
        if not self.path.parent.is_dir():
            raise ResumeError(
                f"resume: found no folder {self.path.parent}, expected one for {self.path.name}"
            )

    def read(self) -> ResumePoint | None:
        """Where the stream stands; None: it has not begun."""
        try:
            content = json.loads(self.path.read_text())
            point = ResumePoint(int(content["next"]), content["until"])
            found = (content["format"], content["grid"], content["query"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise ResumeError(
                f"resume {self.path}: found no resume file ({type(error).__name__}: {error}), expected one, or no file"
            ) from None
        if found[0] != FORMAT:
            raise ResumeError(f"resume {self.path}: found format {found[0]}, expected {FORMAT}")
        if found[1] != fingerprint(self.grid):
            raise GridMismatch(
                f"resume {self.path}: found the place of a stream on grid {found[1]}, expected"
                f" {fingerprint(self.grid)}; remove the file to begin anew"
            )
        if found[2] != query_to(self.query):
            differs = [k for k, v in query_to(self.query).items() if found[2].get(k) != v]
            raise QueryMismatch(
                f"resume {self.path}: found the place of another query (other {', '.join(differs)}), expected"
                " this one's; remove the file to begin anew, or name another"
            )
        return point

    def write(self, point: ResumePoint) -> None:
        """Replace the file, in one step."""
        content = {
            "format": FORMAT,
            "next": point.next,
            "time": self.grid.time_of(point.next).isoformat(),
            "until": point.until,
            "grid": fingerprint(self.grid),
            "query": query_to(self.query),
        }
        write_whole(self.path, (json.dumps(content, indent=1) + "\n").encode())


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step: it has its old content or the new, whatever happens."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise ResumeError(
            f"resume {path}: found that it cannot be written ({error}), expected a file"
        ) from None
