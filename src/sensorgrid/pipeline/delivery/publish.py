"""Where published grids go beside the lake: a small interface, and a sink for tests and single machines.

Delivery is at least once: a batch that is tried again hands out the same blocks again. A sink keeps each identity
(attribute, tick, region, revision) once. Sinks are called inside Spark's Python workers, after the lake has the
blocks, once per task with all blocks of that task; they are pickled on the way, so they open connections late. A
sink does not wait long: what it could not hand over it gives back, and the courier
(`sensorgrid.pipeline.delivery.courier`) sees to it.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from sensorgrid.pipeline.lake.tiles import Block, Identity


@dataclass(slots=True)
class Delivery:
    """What became of blocks that were handed over."""

    acknowledged: int = 0
    """taken, or known already"""
    refused: list[tuple[Identity, str]] = field(default_factory=list)
    """never will be taken, with the reason"""
    waiting: list[Identity] = field(default_factory=list)
    """not acknowledged so far"""
    stale: list[Identity] = field(default_factory=list)
    """those of them that came to a broker which does not own their region, or under an old epoch"""

    def add(self, other: "Delivery") -> None:
        """Count others, too."""
        self.acknowledged += other.acknowledged
        self.refused += other.refused
        self.waiting += other.waiting
        self.stale += other.stale


class Sink(Protocol):
    """Takes published grids."""

    def publish(self, blocks: Sequence[Block], behind: frozenset[str] = frozenset()) -> Delivery:
        """Take blocks. Blocks that are known are dropped without a word, those of regions that are `behind` given
        back: older ones of theirs are still on their way."""
        ...


@dataclass(frozen=True, slots=True)
class NoSink:
    """The lake is enough."""

    def publish(self, blocks: Sequence[Block], behind: frozenset[str] = frozenset()) -> Delivery:
        """Take them and do nothing."""
        return Delivery()


@dataclass(frozen=True, slots=True)
class LoopbackSink:
    """Keeps each block as a file in a folder: what a gateway does, on one machine and for tests.

    Creating a file that must not exist is the test for "seen before", so it holds across processes and crashes.
    """

    folder: str

    def publish(self, blocks: Sequence[Block], behind: frozenset[str] = frozenset()) -> Delivery:
        """Keep blocks that are new."""
        for block in blocks:
            target = self._path(block.identity)
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.{uuid4().hex}")
            part.write_bytes(block.encode())
            with suppress(FileExistsError):
                os.link(part, target)
            part.unlink()
        return Delivery(len(blocks))

    def blocks(self) -> Iterator[Block]:
        """Everything that was taken, in the order of identities."""
        for path in sorted(Path(self.folder).glob("*/*/*.block")):
            if not path.name.startswith("."):
                yield Block.decode(path.read_bytes())

    def _path(self, identity: Identity) -> Path:
        attribute, tick, region, revision = identity
        return Path(self.folder, attribute, str(tick), f"{region}-{revision}.block")
