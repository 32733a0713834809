"""What subscribers ask for, what sensors send, and what operators make of it: the values that placement works on."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Protocol

from sensorgrid.index.zorder import Range
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.placing.line import Ranges, roundest
from sensorgrid.overlay.placing.transfers import Name, Transfers


class Merge(Enum):
    """How many messages a merge gives, of partial results of the same expression."""

    TICK = "tick"
    """one for each set of inputs: as many as its busiest input"""
    KEEP = "keep"
    """as many as it gets: the least favourable"""

    def rate(self, rates: Iterable[int]) -> int:
        """Messages given for messages received."""
        return max(rates, default=0) if self is Merge.TICK else sum(rates)


@dataclass(frozen=True, slots=True)
class DemandTerm:
    """One calculation over an area: filtered readings of it, aggregated."""

    expression: str
    """what is calculated of what; equal ones are the same to those who share results"""
    area: Ranges


@dataclass(frozen=True, slots=True)
class OperatorDemand:
    """A subscription; with several terms, its result depends on all of them."""

    name: str
    place: int
    """ID of the place where the subscriber is"""
    terms: tuple[DemandTerm, ...]


@dataclass(frozen=True, slots=True)
class Costs:
    """What operators leave of what they get, and what a node can do."""

    limit: int
    """messages in and out of a node; more is overload"""
    publish: int
    """messages of a sensor"""
    filtered: Fraction
    """share of readings that pass a filter"""
    calculated: Fraction
    """messages of a calculation per message that it gets"""
    merge: Merge = Merge.TICK

    def passing(self, sensors: int) -> int:
        """Messages that filters let pass."""
        return round(sensors * self.publish * self.filtered)

    def results(self, messages: int) -> int:
        """Messages that a calculation gives."""
        return round(messages * self.calculated)


@dataclass(frozen=True, slots=True)
class SensorPlaces:
    """Where they are."""

    places: tuple[int, ...]
    """sorted"""

    def count(self, ranges: Iterable[Range]) -> int:
        """How many are in an area."""
        return sum(bisect_left(self.places, stop) - bisect_left(self.places, start) for start, stop in ranges)

    def inside(self, start: int, stop: int) -> tuple[int, ...]:
        """Those in a range."""
        return self.places[bisect_left(self.places, start) : bisect_left(self.places, stop)]


@dataclass(frozen=True, slots=True)
class PlacingOrder:
    """Something that runs already is told to run otherwise."""

    kind: str
    """move: a step to another node; halve: a step gives half as many messages; region: sensors to another node"""
    name: Name
    source: PeerId
    target: PeerId


class PlacementPolicy(Protocol):
    """Decides where operators run; state, but no I/O, time or chance."""

    transfers: Transfers
    lookups: list[tuple[PeerId, PeerId]]
    """who had to find whom"""

    def add(self, demand: OperatorDemand) -> None:
        """A subscription begins."""

    def remove(self, demand: OperatorDemand) -> None:
        """It ends."""

    def balance(self) -> list[PlacingOrder]:
        """Relieve nodes above the limit, as far as there is a rule for it."""


def middle_of(sensors: SensorPlaces, region: Ranges) -> int | None:
    """Where a region is cut in two with about as many sensors: the roundest ID between a third and two thirds.

    None if it has no two sensors at different places.
    """
    inside = [place for start, stop in region for place in sensors.inside(start, stop)]
    if not inside or inside[0] == inside[-1]:
        return None
    first, last = inside[(len(inside) - 1) // 3], inside[-(-2 * (len(inside) - 1) // 3)]
    if first == last:
        first, last = inside[0], inside[-1]
    return roundest(first + 1, last + 1)
