"""The store of rosters: a file for each version, beside the lake, each of which is written once and never again.

Of two that write the same version one succeeds: the store, a folder or an object store, creates only what is absent.
That alone puts all versions in one order, without a coordinator.
"""

import asyncio
import contextlib
import re
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore, ObjectStore, from_url

from sensorgrid.model.errors import SensorGridError
from sensorgrid.overlay.roster import Member, Region, Roster, Terms

FOLDER = "roster"
VERSIONS = re.compile(r"\d{13}\.json")
"""names of its files"""
ANSWER_S = 5.0
"""how long the store may take"""


class StoreError(SensorGridError, RuntimeError):
    """A store that cannot be reached, or holds something else."""


class _Written(msgspec.Struct):
    """A roster as it stands in the store, for people too."""

    version: int
    terms: Terms
    members: tuple[Member, ...]
    regions: tuple[Region, ...]


class RosterStore:
    """Of one network; `lake` is the folder or URI of its lake.

    Examples
    --------
    >>> import tempfile
    >>> from sensorgrid.model.grid import Grid
    >>> from sensorgrid.model.ids import PeerId
    >>> from sensorgrid.overlay.settings import Settings
    >>> first = Roster(1, Terms.of(Grid(), Settings(budget=1)), (Member(PeerId(0)),), ())
    >>> with tempfile.TemporaryDirectory() as lake:
    ...     store = RosterStore(lake, founds=True)
    ...     store.newest(), store.write(first), store.write(first), store.newest() == first
    (None, True, False, True)
    """

    def __init__(self, lake: str, founds: bool = False) -> None:
        self.place = f"{lake.rstrip('/')}/{FOLDER}"
        self.founds = founds
        """whether a folder that is not there may be made: else a machine that does not see the lake would found a
        network of its own"""
        self._store: ObjectStore | None = None
        self._known: Roster | None = None
        self._worker: Thread | None = None

    def write(self, roster: Roster) -> bool:
        """Whether this is the one that is written under its version."""
        content = msgspec.json.encode(
            _Written(roster.version, roster.terms, roster.members, roster.regions), order="deterministic"
        )
        try:
            obstore.put(self._opened(), _name(roster.version), content, mode="create")
        except AlreadyExistsError:
            return False
        except Exception as error:  # of as many kinds as there are stores
            raise StoreError(f"{self.place}: found {_first(error)}, expected to write there") from error
        return True

    def newest(self) -> Roster | None:
        """The newest version; None if there is none."""
        try:
            store = self._opened()
            offset = None if self._known is None else _name(self._known.version)
            names = [found["path"] for several in obstore.list(store, offset=offset) for found in several]
            # Whatever else people put there is not ours.
            newest = max((name for name in names if VERSIONS.fullmatch(name)), default=None)
            content = None if newest is None else bytes(obstore.get(store, newest).bytes())
        except FileNotFoundError:
            return self._known
        except Exception as error:
            raise StoreError(f"{self.place}: found {_first(error)}, expected rosters") from error
        if newest is not None and content is not None:
            self._known = self._read(newest, content)
        return self._known

    def _read(self, name: str, content: bytes) -> Roster:
        """A file of the store."""
        try:
            written = msgspec.json.decode(content, type=_Written)
            if _name(written.version) != name:
                raise ValueError(f"version {written.version}")
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"{self.place}/{name}: found no roster of this version ({_first(error)}), expected one; if a crash has"
                " torn it, remove it: the version before it counts then"
            ) from error
        return Roster(written.version, written.terms, written.members, written.regions)

    async def settle(self, proposed: Roster | None) -> Roster | None:
        """Write a roster, if its version is free, and read the newest, off the loop.

        A thread of its own does it, and never more than one: a disk that hangs must not take the threads that others
        need, nor keep the process from ending.
        """
        if self._worker is not None and self._worker.is_alive():
            raise StoreError(f"{self.place}: found no answer to the question before, expected one")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Roster | None] = loop.create_future()

        def tell(found: Roster | None, error: StoreError | None) -> None:
            if not answer.done():
                answer.set_result(found) if error is None else answer.set_exception(error)

        def work() -> None:
            found, fault = None, None
            try:
                if proposed is not None:
                    self.write(proposed)
                found = self.newest()
            except StoreError as error:
                fault = error
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(tell, found, fault)

        self._worker = Thread(target=work, daemon=True, name="rosters")
        self._worker.start()
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            raise StoreError(f"{self.place}: found no answer within {ANSWER_S:g} s, expected one") from None

    def _opened(self) -> ObjectStore:
        if self._store is None:
            self._store = opened(self.place, self.founds)
        return self._store


def opened(place: str, make: bool) -> ObjectStore:
    """A folder, which is made if it may be, or a place in an object store."""
    if "://" in place:
        return from_url(place)
    folder = Path(place).absolute()
    if not make and not folder.is_dir():
        raise FileNotFoundError(f"no folder {place}")
    return LocalStore(prefix=folder, mkdir=make)


def _name(version: int) -> str:
    return f"{version:013}.json"


def _first(error: Any) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
