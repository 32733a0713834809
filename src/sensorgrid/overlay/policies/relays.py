"""Which broker should relay streams to a receiver: the strategies of the relays paper, section 4.

Each is asked by a broker that feeds others: "which of my neighbours should relay to the receiver `dst`?" The answer is
the receiver itself if no neighbour is better. Brokers on the stream's own path are never candidates. That alone does
not exclude circles, since two decisions may cross; the paths of the streams do (rule 3).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.ids import PeerId

UNKNOWN = float("inf")
SAME_S = 1e-6
"""ways that differ by less are equally long"""


class RelayError(SensorGridError, ValueError):
    """A strategy that does not exist."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a broker knows of the network when it chooses a relay for one receiver."""

    dst: PeerId
    near: tuple[PeerId, ...]
    """candidates, the nearest first: the neighbourhood without those on the stream's path"""
    here: Callable[[PeerId], float]
    """delay from this broker to another"""
    there: Callable[[PeerId], float]
    """delay from a candidate to the receiver, as it measured last"""
    same_s: float = SAME_S
    """ways that differ by less are equally long"""

    def closer(self) -> list[PeerId]:
        """Candidates that are closer to the receiver than this broker."""
        direct = self.here(self.dst)
        return [n for n in self.near if self.there(n) < direct]


Strategy: TypeAlias = Callable[[Sight], PeerId]


def closest_to_destination(sight: Sight) -> PeerId:
    """The neighbour nearest to the receiver: short ways, and many different relays."""
    return min(sight.closer(), key=lambda n: (sight.there(n), sight.here(n), n), default=sight.dst)


def closest_to_source(sight: Sight) -> PeerId:
    """The first neighbour, from here, that is closer to the receiver: many hops."""
    return next(iter(sight.closer()), sight.dst)


def farthest_from_source(sight: Sight) -> PeerId:
    """The farthest neighbour, from here, that is closer to the receiver."""
    return max(sight.closer(), key=lambda n: (sight.here(n), -n), default=sight.dst)


def closest_to_path(sight: Sight) -> PeerId:
    """Algorithm 1: the neighbour with the shortest way over it, of those not farther from the receiver.

    As printed: equal delays pass, and the way is not compared with the direct one. Ties: the nearest, then the
    smallest number.
    """
    direct = sight.here(sight.dst)
    relay, shortest = sight.dst, UNKNOWN
    for n in sight.near:
        if sight.there(n) > direct:
            continue
        way = sight.there(n) + sight.here(n)
        if way < shortest - sight.same_s:
            relay, shortest = n, way
    return relay


STRATEGIES: dict[str, Strategy] = {
    "CTD": closest_to_destination,
    "CTS": closest_to_source,
    "FFS": farthest_from_source,
    "CTP": closest_to_path,
}
DIRECT, TREE = "DIRECT", "TREE"
NAMES = (DIRECT, *STRATEGIES, TREE)
"""DIRECT has no relays but the broker next to the client, which takes each stream from the owner itself"""


@dataclass(frozen=True, slots=True)
class Relays:
    """How a broker relays; a profile."""

    strategy: str = TREE
    """one of `NAMES`"""
    k: int = 16
    """size of the neighbourhood"""
    delta: int = 0
    """points per period: streams that share less are not split for it (Δ)"""
    measure_s: float = 30.0
    """how often delays are measured"""
    review_s: float = 1.0
    """how often relays are reconsidered, if something has changed"""
    optimise_s: float = 60.0
    """how often a tree may be optimised as a whole"""
    hysteresis: float = 0.02
    """a change must save this share of what it changes"""
    same_s: float = SAME_S
    """ways that differ by less are equally long to CTP: by default rounding alone, as printed"""
    added_s: float | None = None
    """how much later than by the shortest way a receiver of a tree may get its data; None: however much"""

    def __post_init__(self) -> None:
        if self.strategy not in NAMES:
            raise RelayError(f"relay strategy: found {self.strategy!r}, expected one of {', '.join(NAMES)}")
        for name in ("k", "measure_s", "review_s", "optimise_s"):
            if not getattr(self, name) > 0:
                raise RelayError(f"{name}: found {getattr(self, name)}, expected a positive number")
        for name in ("delta", "hysteresis", "added_s"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise RelayError(f"{name}: found {value}, expected 0 or more")
