"""A small internet like that of the GSGM paper's evaluation (section 5), which ReaSE drew.

The paper: "seven autonomous systems, two of which are set up as transit domains ... up to three core routers on
the top level which are fully connected. The second level consists of up to three gateway routers per core which
are connected to the edge routers on the third level." What it does not say is chosen here:

- A transit system has three cores, a stub one to three; a core has one to three gateways; a gateway one to four
  edge routers. That makes 48 core and gateway routers on average, as many as the paper has brokers.
- One gateway in four has a second uplink to another core of its system, if there is one.
- Transit systems are linked each with each, a stub with one or two of them: always from core to core, where
  these are closest.
- Places lie on a square of 4,000 km. Cores stray up to 600 km from the middle of a transit system, 150 km from
  that of a stub; gateways 50 km from their core, edge routers 15 km from their gateway, on either axis.
- A link takes its length at 200 km/ms and 0.1 ms in the router.

Routes go by delay alone: nothing forbids that a stub with two transit systems lies on a way between others, as
it does for 2 % of all pairs of routers over a hundred seeds.
"""

import math
from random import Random

from sensorgrid.simulator.underlay import Underlay, UnderlayError, routed

SIDE_KM = 4000.0
SPEED_KM_PER_S = 200e3
"""of light in fibre"""
ROUTER_S = 0.0001

_Place = tuple[float, float]


def internet(seed: int, systems: int = 7, transit: int = 2) -> Underlay:
    """An internet of so many autonomous systems, of which the first are transit systems; same seed, same network.

    >>> net = internet(1)
    >>> [net.kinds.count(kind) for kind in ("core", "gateway", "edge")]
    [17, 31, 69]
    """
    if not 1 <= transit <= systems:
        raise UnderlayError(f"transit: found {transit}, expected 1 to {systems}, the number of systems")
    drawing = _Drawing(Random(f"internet {seed}"))
    cores = [drawing.system(number, number < transit) for number in range(systems)]
    for number in range(transit):
        for other in range(number):
            drawing.link_closest(cores[number], cores[other])
    for number in range(transit, systems):
        for other in drawing.some_of(range(transit), 1, 2):
            drawing.link_closest(cores[number], cores[other])
    return routed(f"internet {seed}", drawing.kinds, drawing.links, drawing.systems)


class _Drawing:
    """A network on its way: routers are numbered as they are drawn."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._places: list[_Place] = []
        self.kinds: list[str] = []
        self.systems: list[int] = []
        self.links: list[tuple[int, int, float]] = []

    def system(self, number: int, transit: bool) -> list[int]:
        """One autonomous system; returns its cores."""
        rng = self._rng
        middle = rng.uniform(0, SIDE_KM), rng.uniform(0, SIDE_KM)
        stray_km = 600.0 if transit else 150.0
        count = 3 if transit else rng.randint(1, 3)
        cores = [self._router("core", number, middle, stray_km) for _ in range(count)]
        for i, core in enumerate(cores):
            for other in cores[:i]:
                self._link(core, other)
        for core in cores:
            for _ in range(rng.randint(1, 3)):
                gateway = self._router("gateway", number, self._places[core], 50.0)
                self._link(gateway, core)
                if len(cores) > 1 and rng.random() < 1 / 4:
                    self._link(gateway, rng.choice([other for other in cores if other != core]))
                for _ in range(rng.randint(1, 4)):
                    self._link(self._router("edge", number, self._places[gateway], 15.0), gateway)
        return cores

    def link_closest(self, some: list[int], others: list[int]) -> None:
        """One link between two systems, where their cores are closest."""
        self._link(*min(((a, b) for a in some for b in others), key=lambda ends: (self._km(*ends), ends)))

    def some_of(self, all_of: range, least: int, most: int) -> list[int]:
        """From least to most of these numbers, in order; all, if there are fewer."""
        return sorted(self._rng.sample(all_of, min(self._rng.randint(least, most), len(all_of))))

    def _router(self, kind: str, system: int, near: _Place, stray_km: float) -> int:
        x, y = (min(max(axis + self._rng.uniform(-stray_km, stray_km), 0.0), SIDE_KM) for axis in near)
        self._places.append((x, y))
        self.kinds.append(kind)
        self.systems.append(system)
        return len(self.kinds) - 1

    def _link(self, a: int, b: int) -> None:
        self.links.append((a, b, self._km(a, b) / SPEED_KM_PER_S + ROUTER_S))

    def _km(self, a: int, b: int) -> float:
        return math.dist(self._places[a], self._places[b])
