"""Derived streams: what is calculated inside the network (operators, III-B).

A derived stream is named by what it means, the digest of a formula, and by a cell. Each of its ticks is a short row of
numbers. The cell says where on the line of IDs it is *at home* (`home_of`); an *edge*, which reads a region, is at home
with the region's owner. Whoever is asked for a stream that is at home elsewhere passes it on from there.

Every tick has a *weight*: the sum over all blocks that it rests on of their revision + 1. A block that is missing, or
has not been heard of, weighs nothing. The weight is a function of the blocks alone, so it is the same whatever the
tree, and whoever calculates. Of two versions of a tick the heavier one is the better one. Its *revision* is the weight
less the number of blocks that it would rest on if none were missing: 0 when it is complete and nothing was revised.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from sensorgrid.model.block import Slab
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.geography import first_of
from sensorgrid.overlay.messages import ANYONE, Code, Count, Message
from sensorgrid.overlay.roster import Roster

TEXT_MAX = 1 << 20
"""characters of a formula"""
NUMBERS_MAX = 4_096
"""in one tick of a derived stream"""
HELD_MAX = 4_096
"""ticks that a receiver can say it has"""

Floats: TypeAlias = npt.NDArray[np.float64]
Text: TypeAlias = Annotated[str, Meta(max_length=TEXT_MAX)]
Digest: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Numbers: TypeAlias = Annotated[bytes, Meta(max_length=8 * NUMBERS_MAX)]


class StreamName(Struct, frozen=True, array_like=True, order=True):
    """Which derived stream."""

    digest: Digest
    """of the formula"""
    cell: Code


class Formula(Protocol):
    """What a derived stream means. Values like any other: equal text, equal meaning."""

    @property
    def digest(self) -> int:
        """Names its meaning."""

    @property
    def text(self) -> str:
        """From which it can be made again."""

    @property
    def window(self) -> int:
        """Ticks that one of its own rests on: 1, or more if it looks back."""

    def inputs(self, cell: int, roster: Roster) -> Sequence[tuple["Formula", int]]:
        """The streams that its tick in a cell is calculated from; none: it is an edge and reads a region."""

    def reads(self, cell: int) -> tuple[int, ...]:
        """Of an edge: the attributes of the region that it reads."""

    def part(self, cell: int, blocks: Sequence[tuple[Slab, ...]]) -> Floats:
        """Of an edge: its tick, from one block for each attribute."""

    def merged(self, tick: int, history: Mapping[int, Sequence[Floats | None]]) -> Floats:
        """Of all others: a tick from those of its inputs, for each tick of the window; None where one is missing."""


class Derive(Message, frozen=True):
    """Send me this stream from a tick on. Said again when the sender's wish changes."""

    said_by = ANYONE
    dials = True
    since = 4

    name: StreamName
    text: Text
    """of the formula"""
    first: int
    """the first tick wanted"""
    held: Annotated[tuple[tuple[int, int], ...], Meta(max_length=HELD_MAX)] = ()
    """(tick, weight) of ticks that I have already"""


class Relinquish(Message, frozen=True):
    """Send me this stream no longer."""

    said_by = ANYONE
    dials = False
    since = 4

    name: StreamName


class Derived(Message, frozen=True):
    """One tick of a stream, in tick order; better versions of earlier ticks come between."""

    said_by = ANYONE
    dials = False
    since = 4

    name: StreamName
    tick: int
    weight: Count
    blocks: Count
    """how many it would rest on if none were missing"""
    numbers: Numbers
    """float64, little-endian; empty if there is nothing at all"""


class Underived(Message, frozen=True):
    """You do not get this stream from me, for this reason."""

    said_by = ANYONE
    dials = False
    since = 4

    name: StreamName
    reason: str
    code: str


def home_of(name: StreamName, roster: Roster) -> PeerId | None:
    """Who is responsible for a stream: its cell's first ID, and from there on as far as its digest says."""
    by_place, owners = roster.line
    if owners is None:
        members = [m.id for m in roster.members if not m.leaving] or [m.id for m in roster.members]
        return sorted(members)[name.digest % len(members)] if members else None
    digits = roster.terms.depth
    width = 1 << max(0, digits - (name.cell.bit_length() - 1))
    return by_place[owners.of(first_of(name.cell, digits) + name.digest % width)]


def blocks_of(formula: Formula, cell: int, roster: Roster) -> int:
    """How many blocks of the grid one tick rests on, if none is missing."""
    inputs = formula.inputs(cell, roster)
    if not inputs:
        return len(formula.reads(cell))
    return formula.window * sum(blocks_of(part, code, roster) for part, code in inputs)


def height_of(formula: Formula, cell: int, roster: Roster) -> int:
    """How many streams lie below this one, one on top of the other."""
    return max((1 + height_of(part, code, roster) for part, code in formula.inputs(cell, roster)), default=0)
