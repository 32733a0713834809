"""Which brokers there are and who owns what: one frozen value with a version, held by every broker and client.

A roster names the brokers, the owner of every region, and the terms on which both ends of a stream must agree. A newer
version replaces an older one, whichever peer tells it (`mechanisms/membership.py`). Two rosters of one version with
different content contradict each other, as do two with different terms. Peers whose rosters contradict each other
refuse to talk, and say where they differ.

Epochs fence: a region's epoch rises whenever it gets another owner. Publishes, grants and blocks carry it, so an owner
that has been replaced without its knowledge is refused, hears of the newer roster, and steps down.
"""

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from sensorgrid.index.codes import prefixes
from sensorgrid.index.zorder import Owners
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import DIGITS_MAX, Grid
from sensorgrid.model.ids import BROKERS_MAX, PeerId
from sensorgrid.overlay.settings import Settings

VERSION_MAX = 1 << 40
"""versions are below this"""
DEPTH_MAX = 62
"""digits of a cell, whose code is then still one of 64 bits"""
STEP_MAX = 1 << 32
"""by which a version may exceed the one that it replaces, so that no single message uses up all numbers"""

Code: TypeAlias = Annotated[int, Meta(ge=1, le=(2 << DIGITS_MAX) - 1)]
"""a cell; checked when a message is decoded, as are the others"""
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Version: TypeAlias = Annotated[int, Meta(ge=0, le=VERSION_MAX - 1)]
BrokerId: TypeAlias = Annotated[PeerId, Meta(ge=0, le=BROKERS_MAX - 1)]

_encoder = msgspec.msgpack.Encoder()
GRID = (
    "extent", "shape", "tick", "resolution_bits", "coordinates", "attributes", "order", "region_digits",
    "value_bytes",
)  # fmt: skip
"""what makes up a grid, as it is described to others"""


class RosterError(SensorGridError, ValueError):
    """A roster that cannot be taken."""


class Differs(StrEnum):
    """Where two rosters contradict each other."""

    GRID = "grid"
    SETTINGS = "settings"
    BROKERS = "brokers"
    REGIONS = "regions"


class Difference(NamedTuple):
    """A contradiction."""

    code: Differs
    """for programs"""
    text: str
    """for people"""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A broker of the roster."""

    id: BrokerId
    url: str = ""
    """where others dial it; empty in worlds without addresses"""
    place: Count = 0
    """in the space of IDs: it is responsible from here up to the next larger place"""
    capacity: Count = 0
    """points per period that it may send"""
    relay: bool = False
    """it wants no regions"""
    leaving: bool = False
    """it is about to go, and hands its regions over first"""
    accused: bool = False
    """somebody does not hear it: it is removed unless somebody does"""


class Region(msgspec.Struct, frozen=True, array_like=True):
    """Who owns a region."""

    attribute: Count
    cell: Code
    """a spatial cell"""
    owner: BrokerId
    epoch: Version
    """grows with every change of owner"""
    heir: BrokerId | None = None
    """takes the region as a relay already, to own it in a later version"""


class Terms(msgspec.Struct, frozen=True, array_like=True):
    """What both ends of a stream must agree on; the same in all versions of a roster."""

    grid: str
    """fingerprint"""
    depth: int
    cells_max: int
    ring_ticks: int
    lateness_ticks: int
    slack_ticks: int
    alive_s: float | None
    backoff_max_s: float

    @classmethod
    def of(cls, grid: Grid, settings: Settings) -> "Terms":
        """Of a broker with these settings."""
        return cls(fingerprint(grid), **{name: getattr(settings, name) for name in SHARED})

    def settings(self, budget: int = 1) -> Settings:
        """Settings of a client, as its brokers have them."""
        return Settings(budget=budget, **{name: getattr(self, name) for name in SHARED})

    def difference(self, other: "Terms") -> Difference | None:
        """Where another end's terms differ from these."""
        if other.grid != self.grid:
            text = f"grid: found {other.grid}, expected {self.grid}: both sides need the same [grid]"
            return Difference(Differs.GRID, text)
        for name in SHARED:
            found, expected = getattr(other, name), getattr(self, name)
            if found != expected:
                text = f"{name}: found {found}, expected {expected}: both sides need the same [network]"
                return Difference(Differs.SETTINGS, text)
        return None


SHARED = tuple(name for name in Terms.__struct_fields__ if name != "grid")
"""settings that are terms"""


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """A roster in a few words: enough to tell whether two contradict each other, and where."""

    version: int
    terms: Terms
    brokers: str
    """digest"""
    regions: str
    """digest"""

    def difference(self, other: "Summary") -> Difference | None:
        """Where another's roster contradicts this one; rosters of different versions only need the same terms."""
        found = self.terms.difference(other.terms)
        if found is not None or self.version != other.version:
            return found
        for code, mine, theirs in (
            (Differs.BROKERS, self.brokers, other.brokers),
            (Differs.REGIONS, self.regions, other.regions),
        ):
            if mine != theirs:
                text = (
                    f"{code} of roster {self.version}: found {theirs}, expected {mine}: both sides need the same"
                    " [network], or a changed one needs a larger network.version"
                )
                return Difference(code, text)
        return None


@dataclass(frozen=True)
class Roster:
    """Of a network; `terms` never change while it runs.

    Examples
    --------
    >>> terms = Terms.of(Grid(), Settings(budget=1))
    >>> roster = Roster(1, terms, (Member(PeerId(0)), Member(PeerId(1))), (Region(0, 0b10, PeerId(0), 1),))
    >>> later = roster.handed_over(0, 0b10, PeerId(1))
    >>> later.version, later.region(0, 0b10)
    (2, Region(attribute=0, cell=2, owner=1, epoch=2, heir=None))
    """

    version: int
    terms: Terms
    members: tuple[Member, ...]
    regions: tuple[Region, ...]

    def __post_init__(self) -> None:
        if self.version < 1:
            raise RosterError(f"roster: found version {self.version}, expected 1 or more")
        if self.version >= VERSION_MAX:
            raise RosterError(f"roster: found version {self.version}, expected one below {VERSION_MAX}")

    # -- who and what

    @cached_property
    def by_id(self) -> dict[PeerId, Member]:
        """The brokers."""
        return {member.id: member for member in self.members}

    @cached_property
    def by_cell(self) -> dict[tuple[int, int], Region]:
        """The regions, by attribute and cell."""
        return {(region.attribute, region.cell): region for region in self.regions}

    @cached_property
    def cells(self) -> frozenset[tuple[int, int]]:
        """(attribute, cell) of all regions: the same in all rosters of a network, whoever owns them."""
        return frozenset(self.by_cell)

    @cached_property
    def line(self) -> tuple[dict[int, PeerId], Owners | None]:
        """Who stays, by place, and the line of IDs that they share; None if nobody has a place of its own."""
        members = [m for m in self.members if not m.leaving] or list(self.members)
        by_place = {m.place: m.id for m in sorted(members, key=lambda m: -m.id)}
        return by_place, Owners(by_place, self.terms.depth) if len(by_place) > 1 else None

    @cached_property
    def by_owner(self) -> dict[PeerId, tuple[Region, ...]]:
        """Each owner's regions."""
        found: dict[PeerId, list[Region]] = {}
        for region in self.regions:
            found.setdefault(region.owner, []).append(region)
        return {owner: tuple(regions) for owner, regions in found.items()}

    @cached_property
    def by_heir(self) -> dict[PeerId, tuple[Region, ...]]:
        """What each heir is to get."""
        found: dict[PeerId, list[Region]] = {}
        for region in self.regions:
            if region.heir is not None and region.heir != region.owner:
                found.setdefault(region.heir, []).append(region)
        return {heir: tuple(regions) for heir, regions in found.items()}

    def url_of(self, broker: PeerId) -> str | None:
        """Where a broker is dialled; None if the roster does not say."""
        member = self.by_id.get(broker)
        return member.url if member is not None and member.url else None

    def region(self, attribute: int, cell: int) -> Region | None:
        """The region in which a cell lies; None if it lies in none, or in several."""
        for code in prefixes(cell):
            found = self.by_cell.get((attribute, code))
            if found is not None:
                return found
        return None

    def links_of(self, broker: PeerId) -> tuple[PeerId, ...]:
        """Brokers that one without a region talks to first."""
        owners = sorted(self.by_owner)
        if not owners or broker in self.by_owner:
            return ()
        return tuple(owners[(broker + step) % len(owners)] for step in range(min(2, len(owners))))

    # -- versions

    @cached_property
    def summary(self) -> Summary:
        """In short, for peers that may hold another one."""
        # Without addresses: a broker may be reached in different ways from different sides.
        members = [(m.id, m.place, m.capacity, *_marks(m)) for m in self.members]
        return Summary(self.version, self.terms, _digest(members), _digest(self.regions))

    @cached_property
    def digest(self) -> str:
        """Of its content."""
        return self.summary.brokers + self.summary.regions

    def newer_than(self, other: "Roster | None") -> bool:
        """Whether it replaces another one."""
        return other is None or self.version > other.version

    def fault(self, grid: Grid, before: "Roster | None" = None) -> str:
        """Why it cannot replace an older roster; empty if it can."""
        return self._malformed(grid) or ("" if before is None else self._breaks(grid, before))

    def _malformed(self, grid: Grid) -> str:
        name = f"roster {self.version}"
        if len(self.by_id) < len(self.members):
            return f"{name}: found a broker twice, expected each once"
        if len(self.by_cell) < len(self.regions):
            return f"{name}: found a region twice, expected each once"
        if not 0 <= self.terms.depth <= DEPTH_MAX:
            return f"{name}: found cells of {self.terms.depth} digits, expected 0 to {DEPTH_MAX}"
        for member in self.members:
            if not 0 <= member.place < 1 << self.terms.depth:
                return (
                    f"{name}: broker {member.id}: found the place {member.place}, expected one below"
                    f" {1 << self.terms.depth}"
                )
        for region in self.regions:
            where = f"{name}: region {region.cell:b} of attribute {region.attribute}"
            if not (0 <= region.attribute < len(grid.attributes)):
                return f"{where}: expected an attribute below {len(grid.attributes)}"
            if not (1 <= region.cell < 2 << grid.region_digits):
                return f"{where}: expected a cell of at most {grid.region_digits} digits"
            if any((region.attribute, code) in self.by_cell for code in prefixes(region.cell >> 1)):
                return f"{where}: found another one that contains it, expected regions that do not overlap"
            for broker in (region.owner, region.heir):
                if broker is not None and broker not in self.by_id:
                    return f"{where}: found broker {broker}, expected one of the roster"
        return ""

    def _breaks(self, grid: Grid, before: "Roster") -> str:
        name = f"roster {self.version}"
        if self.version > before.version + STEP_MAX:
            return f"{name}: expected a version up to {before.version + STEP_MAX}"
        if before.is_whole(grid) and not self.is_whole(grid):
            return f"{name}: found {len(self.regions)} regions, expected all as in roster {before.version}"
        for region in self.regions:
            old = before.by_cell.get((region.attribute, region.cell))
            least = 0 if old is None else old.epoch + (old.owner != region.owner)
            if not (least <= region.epoch <= least + STEP_MAX):
                where = f"{name}: region {region.cell:b} of attribute {region.attribute}"
                return f"{where}: found epoch {region.epoch}, expected {least} to {least + STEP_MAX}"
        return ""

    def is_whole(self, grid: Grid) -> bool:
        """Whether each region of each attribute has an owner, as in every network that a file describes."""
        count = 1 << grid.region_digits
        wanted = {(a, cell) for a in range(len(grid.attributes)) for cell in range(count, 2 * count)}
        return self.by_cell.keys() == wanted

    def handed_over(self, attribute: int, cell: int, owner: PeerId) -> "Roster":
        """The next version, in which a region has another owner."""
        return self.next(
            regions=tuple(
                Region(r.attribute, r.cell, owner, r.epoch + 1)
                if (r.attribute, r.cell) == (attribute, cell)
                else r
                for r in self.regions
            )
        )

    def promised(self, attribute: int, cell: int, heir: PeerId | None) -> "Roster":
        """The next version, in which a region has an heir, or none any more."""
        return self.next(
            regions=tuple(
                msgspec.structs.replace(r, heir=heir) if (r.attribute, r.cell) == (attribute, cell) else r
                for r in self.regions
            )
        )

    def next(self, **changes: Any) -> "Roster":
        """The next version, with these changes."""
        return replace(self, version=self.version + 1, **changes)


def fingerprint(grid: Grid) -> str:
    """The same for the same grid, in every process."""
    return hashlib.sha256(_encoder.encode({name: getattr(grid, name) for name in GRID})).hexdigest()[:16]


def _marks(member: Member) -> tuple[bool, ...]:
    """What only rosters that change by themselves have; left out if there is none, as in older versions."""
    marks = (member.relay, member.leaving, member.accused)
    return marks if any(marks) else ()


def _digest(content: object) -> str:
    return hashlib.sha256(_encoder.encode(content)).hexdigest()[:16]
