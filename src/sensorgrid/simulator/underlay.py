"""The network below the overlay: routers, links, routes, and which broker or client is attached to which router.

Section 5 of the GSGM paper measures traffic on the links of routers, not between brokers, so the simulator has
to know which links a message crosses. Here they are worked out once, for every pair of routers; `internet` draws
a network like the paper's, `topologies` reads real ones.

A route is the way of the lowest delay; of equals that of the fewest links; of equals that whose routers have the
lowest numbers, compared from the start. So what follows the first link of a route is a route too, as with
routers that forward by destination alone. Delays are whole nanoseconds inside: equal ways are equal exactly.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from sensorgrid.model.errors import SensorGridError

KINDS = ("core", "gateway", "edge", "node")
"""Of routers: the three levels of an autonomous system, and those of real topologies, which have no levels."""

COUNTED = ("core", "gateway", "node")
"""Links between routers of these kinds count, as the paper "measured the data transmitted by core and gateway
routers only", since links to brokers are dedicated and those to clients cannot be optimised: so the links to edge
routers, which serve clients, do not. Of real topologies all links count."""

PLACEMENTS = {"core": COUNTED, "edge": ("edge", "node"), "full": KINDS}
"""Where brokers stand, by the paper's names of placements: the kinds of their routers."""

LINES_BPS = ((6e6, 0.5e6), (16e6, 1e6), (50e6, 10e6))
"""Down and up: the asymmetric DSL of clients, each as frequent as the others. The paper gives no rates."""

ROUTERS_MAX = 5_000
"""The matrices of routes take 20 bytes per pair of routers."""

_T = TypeVar("_T", bound=np.generic)


class UnderlayError(SensorGridError, ValueError):
    """A network that cannot exist, a place that is not in it, or a file of one that cannot be read."""


@dataclass(frozen=True, slots=True, eq=False)
class Underlay:
    """Routers, links and routes. Nothing in it changes; `routed` makes one.

    Links to brokers and clients are no part of it: those "are dedicated", these "cannot be optimized".
    """

    name: str
    """as in tables"""
    kinds: tuple[str, ...]
    """of each router: "core", "gateway", "edge"; or "node" in real topologies"""
    systems: tuple[int, ...]
    """the autonomous system of each router"""
    arcs: NDArray[np.int64]
    """from and to, one row per link and direction, in the order of these numbers"""
    arc_delay_s: NDArray[np.float64]
    """of each arc; the same in both directions"""
    arc_counted: NDArray[np.bool_]
    """whether it joins core or gateway routers (or any of a real topology)"""
    delay_s: NDArray[np.float64]
    """of the route from row to column, links to clients and brokers not included"""
    hops: NDArray[np.int16]
    """arcs of the route from row to column"""
    counted: NDArray[np.int16]
    """counted arcs of the route from row to column"""
    _first: NDArray[np.int32] = field(repr=False)
    """the first arc of the route from row to column; -1 on the diagonal"""
    _paths: dict[tuple[int, int], NDArray[np.int64]] = field(default_factory=dict, repr=False)
    """routes that were asked for before"""

    def path(self, a: int, b: int) -> NDArray[np.int64]:
        """The arcs of the route from router a to router b, in this order; none if they are the same."""
        known = self._paths.get((a, b))
        if known is not None:
            return known
        for router in (a, b):
            if not 0 <= router < len(self.kinds):
                raise UnderlayError(f"router: found {router}, expected 0 to {len(self.kinds) - 1}")
        way = []
        at = a
        while at != b:
            way.append(int(self._first[at, b]))
            at = int(self.arcs[way[-1], 1])
        path = _fixed(np.array(way, dtype=np.int64))
        self._paths[a, b] = path
        return path

    def changed(self, arc: int, factor: float) -> "Underlay":
        """The same network with the delay of one link multiplied, in both directions, and its new routes."""
        if not 0 <= arc < len(self.arcs):
            raise UnderlayError(f"arc: found {arc}, expected 0 to {len(self.arcs) - 1}")
        if not 0 < factor < float("inf"):
            raise UnderlayError(f"factor: found {factor}, expected a number above 0")
        ends = self.arcs[arc]
        both = (self.arcs == ends).all(axis=1) | (self.arcs == ends[::-1]).all(axis=1)
        delay_s = np.where(both, self.arc_delay_s * factor, self.arc_delay_s)
        return _with_routes(self.name, self.kinds, self.systems, self.arcs, delay_s)


@dataclass(frozen=True, slots=True)
class Access:
    """How a client or a broker hangs on its router."""

    router: int
    """its number in the underlay"""
    delay_s: float
    """of its link, each way"""
    down_bps: float
    """bits per second from the router"""
    up_bps: float
    """bits per second to the router"""


def routed(
    name: str,
    kinds: Sequence[str],
    links: Iterable[tuple[int, int, float]],
    systems: Sequence[int] | None = None,
) -> Underlay:
    """The network of these links (router, router, delay in seconds), with its routes.

    Links of a router with itself are dropped, and of several between the same two routers all but the fastest.

    >>> ring = routed("ring", ["core", "core", "edge"], [(0, 1, 0.004), (1, 2, 0.001), (2, 0, 0.002)])
    >>> ring.arcs[ring.path(0, 1)].tolist(), float(ring.delay_s[0, 1]), int(ring.counted[0, 1])
    ([[0, 2], [2, 1]], 0.003, 0)
    """
    for kind in kinds:
        if kind not in KINDS:
            raise UnderlayError(f"kind of a router: found {kind!r}, expected one of {', '.join(KINDS)}")
    if not 0 < len(kinds) <= ROUTERS_MAX:
        raise UnderlayError(f"{name}: found {len(kinds)} routers, expected 1 to {ROUTERS_MAX}")
    if systems is None:
        systems = [0] * len(kinds)
    if len(systems) != len(kinds):
        raise UnderlayError(
            f"{name}: found {len(systems)} systems, expected one for each of {len(kinds)} routers"
        )
    delays: dict[tuple[int, int], float] = {}
    for a, b, delay_s in links:
        if not (0 <= a < len(kinds) and 0 <= b < len(kinds)):
            raise UnderlayError(f"{name}: found a link {a}-{b}, expected routers 0 to {len(kinds) - 1}")
        if not 0 <= delay_s < float("inf"):
            raise UnderlayError(f"{name}, link {a}-{b}: found a delay of {delay_s} s, expected 0 or more")
        if a != b:
            delays[a, b] = delays[b, a] = min(delay_s, delays.get((a, b), delay_s))
    order = sorted(delays)
    arcs = np.array(order, dtype=np.int64).reshape(-1, 2)
    return _with_routes(name, tuple(kinds), tuple(systems), arcs, np.array([delays[arc] for arc in order]))


def place_brokers(
    underlay: Underlay, count: int, placement: str, seed: int, rate_bps: float = 1e9
) -> tuple[Access, ...]:
    """Brokers on random routers, as many as wanted; two share a router only where there are too few.

    The paper's placements: "core" is on core and gateway routers, "edge" on edge routers, "full" on any. Real
    topologies have one kind of router, so there all three are alike.
    """
    if placement not in PLACEMENTS:
        raise UnderlayError(f"placement: found {placement!r}, expected one of {', '.join(PLACEMENTS)}")
    rng = Random(f"brokers {placement} {seed}")
    routers = _deal(underlay, count, PLACEMENTS[placement], rng)
    return tuple(Access(router, 0.0001, rate_bps, rate_bps) for router in routers)


def place_clients(underlay: Underlay, count: int = 577, seed: int = 0) -> tuple[Access, ...]:
    """Clients on all edge routers (all nodes of real topologies) in equal numbers, by DSL lines of random rates.

    Their access delays are uniform in 5 to 20 ms.
    """
    rng = Random(f"clients {seed}")
    routers = _deal(underlay, count, PLACEMENTS["edge"], rng)
    return tuple(Access(router, rng.uniform(0.005, 0.020), *rng.choice(LINES_BPS)) for router in routers)


def _deal(underlay: Underlay, count: int, kinds: Sequence[str], rng: Random) -> list[int]:
    """Random routers of these kinds: none comes again before all others have come as often."""
    routers = [router for router, kind in enumerate(underlay.kinds) if kind in kinds]
    if count < 0:
        raise UnderlayError(f"count: found {count}, expected 0 or more")
    if not routers:
        raise UnderlayError(f"{underlay.name}: found no router of the kinds {', '.join(kinds)}, expected one")
    dealt: list[int] = []
    while len(dealt) < count:
        dealt += rng.sample(routers, min(len(routers), count - len(dealt)))
    return dealt


def _with_routes(
    name: str,
    kinds: tuple[str, ...],
    systems: tuple[int, ...],
    arcs: NDArray[np.int64],
    arc_delay_s: NDArray[np.float64],
) -> Underlay:
    """Every route of a network whose arcs are sorted and go both ways."""
    routers = len(kinds)
    total_s, total_s_max = float(arc_delay_s.sum()), 2**53 / 1e9 / routers - 1
    if not total_s < total_s_max:
        raise UnderlayError(f"{name}: found delays of {total_s:g} s in all, expected below {total_s_max:g}")
    arc_ns = np.rint(arc_delay_s * 1e9).astype(np.int64)
    # One whole number orders routes by delay, then by links, of which they have fewer than there are routers.
    # The sums stay below 2^53, so they are exact in Dijkstra's floats, and equal ways come out equal.
    weights = arc_ns * routers + 1
    graph = csr_array((weights.astype(float), (arcs[:, 0], arcs[:, 1])), shape=(routers, routers))
    found = dijkstra(graph)
    if np.isinf(found).any():
        reached = int(np.isfinite(found[0]).sum())
        raise UnderlayError(f"{name}: found {reached} routers reached from router 0, expected all {routers}")
    distance = found.astype(np.int64)
    delay_ns, hops = np.divmod(distance, routers)
    first = np.full((routers, routers), -1, dtype=np.int32)
    for arc in reversed(range(len(arcs))):  # backwards: the lowest next router is written last, and stays
        a, b = arcs[arc]
        first[a, distance[b] + weights[arc] == distance[a]] = arc
    counts = np.array([kind in COUNTED for kind in kinds])
    arc_counted = counts[arcs[:, 0]] & counts[arcs[:, 1]]
    return Underlay(
        name=name,
        kinds=kinds,
        systems=systems,
        arcs=_fixed(arcs),
        arc_delay_s=_fixed(arc_ns / 1e9),
        arc_counted=_fixed(arc_counted),
        delay_s=_fixed(delay_ns / 1e9),
        hops=_fixed(hops.astype(np.int16)),
        counted=_fixed(_sums(arc_counted, arcs, first, hops)),
        _first=_fixed(first),
    )


def _sums(
    of: NDArray[np.bool_], arcs: NDArray[np.int64], first: NDArray[np.int32], hops: NDArray[np.int64]
) -> NDArray[np.int16]:
    """How many arcs of each route have the property: of its first, and of the route from there."""
    sums = np.zeros(first.shape, dtype=np.int16)
    for length in range(1, int(hops.max()) + 1):
        a, b = np.nonzero(hops == length)
        arc = first[a, b]
        sums[a, b] = of[arc] + sums[arcs[arc, 1], b]
    return sums


def _fixed(array: NDArray[_T]) -> NDArray[_T]:
    array.setflags(write=False)
    return array
