"""Brokers that come and go: what it costs to find each other, to be many, and to change (operators, III-A).

Three kinds of runs, each a row:

- *lookup*: links by prefix among so many brokers, without a network: hops of a word from anybody to anybody, links of
  a broker, links that open or close when one broker comes or goes.
- *churn*: an open network in which streams run and a broker comes or goes now and then (`membership_stage.py`).
- *rest*: an open network in which nothing happens, and then all brokers start again at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, sqrt
from random import Random
from statistics import mean
from typing import Any

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.prefixes import PrefixLinks

Row = dict[str, Any]

KINDS = ("lookup", "churn", "rest")
DIGITS = 20
"""of a place on the line of IDs"""
BROKERS_MAX = 20_000
"""so many look each other up at most"""
PLACEMENTS = ("ids", "grid", "towns")
"""places at random on the line of IDs; on a regular grid on the map; most of them in a dozen towns"""
TOWNS = 12
FIELDS = (
    "kind", "brokers", "placement", "way", "churn_s", "seed", "hops_mean", "hops_max", "links_mean", "links_max",
    "messages_per_change", "ticks", "late_ticks", "missing_ticks", "suspended", "bytes_moved_share", "takeover_s",
    "takeover_silent_s", "deaths",
    "changes", "roster_versions", "rest_bytes_per_s", "restart_versions", "back_s", "lookup_s", "connections_max",
)  # fmt: skip
"""of every row; null where a kind of run does not measure it"""


@dataclass(frozen=True, slots=True)
class MembershipCase:
    """One run."""

    kind: str
    brokers: int
    seed: int
    placement: str = "grid"
    churn_s: float | None = None
    seconds: float = 0.0
    """simulated, of churn"""
    changes: int = 0
    """brokers that come, and as many that go, of lookups"""
    deaths: bool = False
    """whether brokers also die, of churn"""
    back_s: float = 4.0
    """within which all brokers are back that stopped at once, of networks at rest"""
    way: str = "prefix"
    """how owners are found: over the map, or by prefix"""

    @property
    def title(self) -> str:
        """For a bar."""
        every = "" if self.churn_s is None else f", a change every {self.churn_s:g} s"
        dying = ", some die" if self.deaths else ""
        return f"{self.kind}, {self.brokers} brokers, {self.placement}{every}{dying}, seed {self.seed}"

    def play(self) -> Row:
        """One row."""
        from sensorgrid.experiments import membership_stage

        found = {"lookup": lookup, "churn": membership_stage.churn, "rest": membership_stage.rest}[self.kind](
            self
        )
        told = {
            "kind": self.kind, "brokers": self.brokers, "placement": self.placement, "way": self.way,
            "churn_s": self.churn_s, "seed": self.seed, "deaths": self.deaths if self.kind == "churn" else None,
            "back_s": self.back_s if self.kind == "rest" else None,
        }  # fmt: skip
        return dict.fromkeys(FIELDS) | told | found


@dataclass(frozen=True, slots=True)
class MembershipPlan:
    """Which runs."""

    sizes: tuple[int, ...] = (50, 500, 5000)
    placements: tuple[str, ...] = PLACEMENTS
    churn: tuple[tuple[float, float], ...] = ((10.0, 600.0), (60.0, 900.0), (600.0, 2400.0))
    """seconds between changes, and how long"""
    streaming: int = 8
    """brokers of a network with streams"""
    resting: tuple[int, ...] = (50, 500)
    """brokers of networks at rest"""
    changes: int = 3

    def cases(self, seeds: Iterable[int]) -> list[MembershipCase]:
        """All runs, the longest first."""
        seeds = tuple(seeds)
        found = [
            MembershipCase("rest", count, seed, way=way)
            for seed in seeds
            for count in self.resting[::-1]
            for way in ("prefix", "map")
        ]
        found += [MembershipCase("rest", self.resting[0], seed, back_s=10.0) for seed in seeds]
        found += [
            MembershipCase(
                "lookup", count, seed, placement, changes=self.changes if count > 1000 else 4 * self.changes
            )
            for seed in seeds
            for count in self.sizes[::-1]
            for placement in self.placements
        ]
        found += [
            MembershipCase("churn", self.streaming, seed, churn_s=churn_s, seconds=seconds, deaths=deaths)
            for seed in seeds
            for churn_s, seconds in self.churn
            for deaths in (False, True)
        ]
        return found


FULL = MembershipPlan()
QUICK = MembershipPlan(
    churn=((10.0, 120.0), (60.0, 180.0)), resting=(50,), changes=1, placements=("ids", "grid")
)


def joined(rows: list[Row]) -> list[Row]:
    """In an order that people can read."""

    def key(row: Row) -> tuple[Any, ...]:
        often = (row["churn_s"] or 0.0, row["deaths"] or False, row["back_s"] or 0.0)
        return KINDS.index(row["kind"]), row["brokers"], row["placement"], *often, row["way"], row["seed"]

    return sorted(rows, key=key)


def lookup(case: MembershipCase) -> Row:
    """Words from anybody to anybody, and links that change when somebody comes or goes."""
    rng = Random(f"lookup {case.brokers} {case.placement} {case.seed}")
    places = {PeerId(n): place for n, place in enumerate(places_of(case.placement, case.brokers, rng))}
    links = PrefixLinks(places, DIGITS)
    table = {broker: set(links.of(broker)) for broker in places}
    brokers = list(places)
    hops = [
        len(links.way(a, b)) for a, b in ((rng.choice(brokers), rng.choice(brokers)) for _ in range(4000))
    ]
    changed: list[int] = []
    for _ in range(case.changes):
        gone = rng.choice(list(places))
        changed.append(_opened_and_closed(table, {b: p for b, p in places.items() if b != gone}))
        free = next(p for p in iter(lambda: rng.randrange(1 << DIGITS), -1) if p not in places.values())
        changed.append(_opened_and_closed(table, places | {PeerId(case.brokers): free}))
    counts = [len(some) for some in table.values()]
    return {
        "hops_mean": mean(hops),
        "hops_max": max(hops),
        "links_mean": mean(counts),
        "links_max": max(counts),
        "messages_per_change": mean(changed) if changed else None,
    }


def _opened_and_closed(table: dict[PeerId, set[PeerId]], places: dict[PeerId, int]) -> int:
    """Links that differ after a change: a word each, from one end to the other."""
    after = PrefixLinks(places, DIGITS)
    new = {(a, b) for a in places for b in after.of(a) if a < b}
    old = {(a, b) for a, some in table.items() for b in some if a < b}
    return len(new ^ old)


def places_of(placement: str, count: int, rng: Random) -> list[int]:
    """Where brokers are, on the line of IDs; no two at one place."""
    if placement == "ids":
        return rng.sample(range(1 << DIGITS), count)
    found: dict[int, None] = {}
    if placement == "grid":
        columns = ceil(sqrt(2 * count))  # the earth is twice as wide as high
        rows = ceil(count / columns)
        for number in range(count):
            found[_z((number % columns + 0.5) / columns, (number // columns + 0.5) / rows)] = None
        return list(found)
    towns = [(rng.random(), rng.random(), rng.uniform(0.005, 0.05)) for _ in range(TOWNS)]
    while len(found) < count:
        x, y, size = rng.choice(towns)
        found[_z(rng.gauss(x, size) % 1.0, min(max(rng.gauss(y, size), 0.0), 0.999))] = None
    return list(found)


def _z(x: float, y: float) -> int:
    """Z-order of a place on the map, from 0 to 1 both ways."""
    half = DIGITS // 2
    column, row = int(x * (1 << half)), int(y * (1 << half))
    return sum((column >> bit & 1) << 2 * bit + 1 | (row >> bit & 1) << 2 * bit for bit in range(half))
