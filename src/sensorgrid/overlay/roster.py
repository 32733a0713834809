"""Who is there and who owns what: one frozen value with a version, of which everybody holds a copy.

A roster names the brokers, the owner of every region, and the terms on which both ends of a stream must agree. A newer
version replaces an older one, whoever tells it (`mechanisms/membership.py`). Two rosters of one version with different
content contradict each other, as do two with different terms: who holds them does not talk to the other, and says
where they differ.

Epochs fence: a region's epoch rises whenever it gets another owner. Publishes, grants and blocks carry it, so an owner
that has been replaced without its knowledge is refused, hears of the newer roster, and steps down.
"""

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from sensorgrid.index.codes import prefixes
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.settings import Settings

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

    id: PeerId
    url: str = ""
    """where others dial it; empty in worlds without addresses"""
    place: int = 0
    """in the space of IDs: it is responsible from here up to the next larger place"""
    capacity: int = 0
    """points per period that it may send"""


class Region(msgspec.Struct, frozen=True, array_like=True):
    """Who owns a region."""

    attribute: int
    cell: int
    """a spatial cell"""
    owner: PeerId
    epoch: int
    """grows with every change of owner"""
    heir: PeerId | None = None
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
        """For those who may hold another one."""
        # Without addresses: a broker may be reached in different ways from different sides.
        members = [(member.id, member.place, member.capacity) for member in self.members]
        return Summary(self.version, self.terms, _digest(members), _digest(self.regions))

    @cached_property
    def digest(self) -> str:
        """Of its content."""
        return self.summary.brokers + self.summary.regions

    def newer_than(self, other: "Roster | None") -> bool:
        """Whether it replaces another one."""
        return other is None or self.version > other.version

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


def _digest(content: object) -> str:
    return hashlib.sha256(_encoder.encode(content)).hexdigest()[:16]
