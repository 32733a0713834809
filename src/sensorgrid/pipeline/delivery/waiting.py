"""What gateways have not acknowledged yet, on disk beside the lake: nothing of it is lost with a process.

::

    lake.waiting/
      0110/stream5f2a-0000000012.json   identities of batch 12 and region 0110, in order
      done.json                         counts of what the courier has brought, by stream, batch and region
      unreadable-0110-stream5f2a-….json a damaged one, kept for people to look at

A micro-batch leaves a file for each region that its tasks could not hand over, before Spark commits it; the courier
takes identities out again. The folders alone say which regions are behind. Values are not here, they are in the lake;
the list is the lake's as well, so that a new checkpoint finds what an earlier stream has left.

Two processes may be at work, as micro-batches are written elsewhere through Spark Connect: they only add files, the
courier only changes what is there, and removes the folder of a region when it is empty. Files of batches that were
never committed are removed at the start, as Spark tries these batches again and all their blocks are handed out again
(`forget_after`).
"""

import json
import os
import random
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

import pyarrow.fs as pafs

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.lake.folder import STREAM, Folder
from sensorgrid.pipeline.lake.tiles import Identity

_DONE = "done.json"
_ASIDE = "unreadable"
_TRIES = 100
_NO_TICK = -(1 << 62)
_BEFORE = "before"
_KEPT = 8
"""newest batches whose counts are kept apart, as they may be tried again"""


class WaitingError(SensorGridError, ValueError):
    """A bundle that cannot be read, or not be kept."""


class Name(NamedTuple):
    """Of a bundle."""

    writer: str
    """the stream; a new checkpoint makes a new one"""
    batch: int
    region: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """Blocks of one batch and region that wait, in the order in which they were published."""

    writer: str
    batch: int
    region: str
    identities: tuple[Identity, ...]
    refused: tuple[tuple[Identity, str], ...] = ()
    """of this bundle, by the gateway, so far"""
    acknowledged: int = 0
    """of this bundle, so far"""

    @property
    def name(self) -> Name:
        """What tells it from the others."""
        return Name(self.writer, self.batch, self.region)


@dataclass(slots=True)
class Counts:
    """What has become of blocks that were handed to the courier."""

    waiting: int = 0
    acknowledged: int = 0
    refused: int = 0
    regions: dict[str, int] = field(default_factory=dict)
    """waiting, by region"""


@dataclass(frozen=True)
class WaitingFolder(Folder):
    """The folder; pickles."""

    writer: str
    """the stream that adds to it; bundles of earlier ones are still brought"""

    # those who hand over

    def add(self, batch: int, identities: Iterable[Identity]) -> None:
        """Keep what a batch could not hand over; again with the same batch, it replaces what it kept."""
        by_region: dict[str, list[Identity]] = {}
        for identity in identities:
            by_region.setdefault(identity.region, []).append(identity)
        for region, mine in sorted(by_region.items()):
            self._write(Bundle(self.writer, batch, region, tuple(sorted(mine, key=_place))))

    def behind(self) -> frozenset[str]:
        """Regions of which something waits, or of which the courier has not yet seen that nothing does.

        Lists as many folders as there are such regions, however much waits in them.
        """
        files, root = self._fs()
        # Elsewhere a folder cannot be removed on the condition that it is empty: files alone count there.
        local = isinstance(files, pafs.LocalFileSystem)
        selector = pafs.FileSelector(root, allow_not_found=True, recursive=not local)
        infos = files.get_file_info(selector)
        if local:
            return frozenset(i.base_name for i in infos if i.type == pafs.FileType.Directory)
        paths = (PurePosixPath(i.path) for i in infos if i.type == pafs.FileType.File)
        return frozenset(path.parent.name for path in paths if path.name.startswith(STREAM))

    # the courier

    def names(self) -> list[Name]:
        """Of all bundles, region by region."""
        return [name for region in sorted(self.behind()) for name in self.names_of(region)]

    def names_of(self, region: str) -> list[Name]:
        """Of the bundles of a region, oldest first."""
        selector = pafs.FileSelector(self.path(region), allow_not_found=True)
        found = (info.base_name for info in self._fs()[0].get_file_info(selector))
        parts = (n.removesuffix(".json").split("-") for n in found if n.startswith(STREAM))
        names = sorted(Name(writer, int(batch), region) for writer, batch in parts)
        first: dict[str, Name] = {}
        for name in names:
            first.setdefault(name.writer, name)
        # Names of streams are random: of several, their blocks tell which was first. Ours is the last one.
        begin = {writer: self._first_tick(name) if len(first) > 1 else 0 for writer, name in first.items()}
        return sorted(names, key=lambda name: (name.writer == self.writer, begin[name.writer], name))

    def _first_tick(self, name: Name) -> int:
        """Of a bundle; one that cannot be read may be the oldest."""
        with suppress(WaitingError):
            bundle = self.read(name)
            if bundle is not None and bundle.identities:
                return min(identity.tick for identity in bundle.identities)
        return _NO_TICK

    def leave(self, region: str) -> None:
        """Remove the folder of a region if nothing is in it."""
        if isinstance(self._fs()[0], pafs.LocalFileSystem):
            with suppress(OSError):  # it is not empty, or not there
                os.rmdir(self.path(region))

    def read(self, name: Name) -> Bundle | None:
        """A bundle, if there is one."""
        try:
            text = self.read_text(_file(name))
            if text is None:
                return None
            found = json.loads(text)
            return Bundle(
                *name,
                tuple(Identity(*i) for i in found["identities"]),
                tuple((Identity(*i), reason) for i, reason in found["refused"]),
                found["acknowledged"],
            )
        except (ValueError, TypeError, KeyError) as error:
            raise WaitingError(f"bundle {_file(name)}: found {error}, expected a list of blocks") from error

    def restore(self, name: Name, identities: Iterable[Identity]) -> Bundle:
        """Put blocks in the place of a bundle that cannot be read; that one is kept aside."""
        bundle = Bundle(*name, tuple(sorted(identities, key=_place)))
        with suppress(FileNotFoundError):
            self._fs()[0].copy_file(
                self.path(_file(name)), self.path(f"{_ASIDE}-{_file(name).replace('/', '-')}")
            )
        self.settle(bundle)
        return bundle

    def settle(self, bundle: Bundle) -> None:
        """Keep what is left of a bundle; one of which nothing is left goes, and is counted."""
        if bundle.identities:
            self._write(bundle)
            return
        # Counted first: whoever reads counts passes over bundles that are counted already.
        done = self._done()
        done[_key(bundle.name)] = [bundle.acknowledged, len(bundle.refused)]
        self._write_done(done)
        self._delete(bundle.name)

    def forget_after(self, batch: int) -> None:
        """Drop everything of later batches: they were not committed and will be tried again."""
        for name in self.names():
            if name.writer == self.writer and name.batch > batch:
                self._delete(name)
        done = self._done()
        kept = {k: v for k, v in done.items() if not k.startswith(self.writer) or _batch(k) <= batch}
        if kept != done:
            self._write_done(kept)

    def counts(self) -> Counts:
        """How many wait, and what became of the others; reads every bundle."""
        found, done = Counts(), self._done()
        found.acknowledged = sum(acknowledged for acknowledged, _ in done.values())
        found.refused = sum(refused for _, refused in done.values())
        for name in self.names():
            bundle = None
            with suppress(WaitingError):  # the courier will see to it, and count it then
                bundle = None if _key(name) in done else self.read(name)
            if bundle is not None:
                found.waiting += len(bundle.identities)
                found.acknowledged += bundle.acknowledged
                found.refused += len(bundle.refused)
                found.regions[name.region] = found.regions.get(name.region, 0) + len(bundle.identities)
        return found

    # files

    def _write(self, bundle: Bundle) -> None:
        content = {
            "identities": bundle.identities,
            "refused": bundle.refused,
            "acknowledged": bundle.acknowledged,
        }
        for _ in range(_TRIES):
            # The courier leaves a region's folder when it is empty, perhaps just now: then there is no folder to
            # write to, or one that was there goes while it is looked at, which Arrow takes for a file.
            with suppress(FileNotFoundError, FileExistsError):
                self.write_text(_file(bundle.name), json.dumps(content))
                return
            time.sleep(random.uniform(0.0, 0.002))  # not in step with whoever removes it
        raise WaitingError(f"bundle {_file(bundle.name)}: found no folder to keep it in, expected one")

    def _delete(self, name: Name) -> None:
        with suppress(FileNotFoundError):
            self._fs()[0].delete_file(self.path(_file(name)))

    def _done(self) -> dict[str, list[int]]:
        """Counts only: if they cannot be read they begin anew, and what waits is brought all the same."""
        try:
            found = json.loads(self.read_text(_DONE) or "{}")
            return {str(key): [int(taken), int(refused)] for key, (taken, refused) in found.items()}
        except (ValueError, TypeError, AttributeError):
            return {}

    def _write_done(self, done: dict[str, list[int]]) -> None:
        """Counts of batches that will never be tried again are added up."""
        mine = [_batch(key) for key in done if key.startswith(self.writer)]
        sums, apart, newest = [0, 0], {}, max(mine, default=-1)
        for key, counts in done.items():
            if key.startswith(self.writer) and _batch(key) > newest - _KEPT:
                apart[key] = counts
            else:
                sums = [a + b for a, b in zip(sums, counts, strict=True)]
        self.write_text(_DONE, json.dumps({_BEFORE: sums} | apart))


def _place(identity: Identity) -> tuple[int, int, str]:
    """The order in which a gateway wants the blocks of a region."""
    return identity.tick, identity.revision, identity.attribute


def _file(name: Name) -> str:
    return f"{name.region}/{name.writer}-{name.batch:010d}.json"


def _key(name: Name) -> str:
    return f"{name.writer}-{name.batch}-{name.region}"


def _batch(key: str) -> int:
    return int(key.split("-")[1])


def committed_batch(checkpoint: str) -> int:
    """The newest batch that Spark has committed; -1 if there is none."""
    folder = Folder(checkpoint)
    selector = pafs.FileSelector(folder.path("commits"), allow_not_found=True)
    names = (PurePosixPath(info.path).name for info in folder._fs()[0].get_file_info(selector))
    return max((int(name) for name in names if name.isdigit()), default=-1)
