"""Where the relays experiment is played: the network, who hangs on it, who owns what, and who asks when.

All strategies of one setting share a stage, and so does the bound: what no strategy can beat on it.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sensorgrid.experiments.multires import ExperimentError
from sensorgrid.experiments.steiner import dual_ascents
from sensorgrid.model.ids import BROKERS_MAX, PeerId
from sensorgrid.overlay.geography import points_of
from sensorgrid.simulator.audience import Visit, bits_per_point, lattice, visits
from sensorgrid.simulator.internet import internet
from sensorgrid.simulator.topologies import read_latency, read_topologies, real
from sensorgrid.simulator.underlay import Access, Underlay, place_brokers, place_clients

Floats = npt.NDArray[np.float64]

SETTLING_S = 1.0
"""that a query may take from being posed to its first stream"""
ANY, BY_DELAY, BY_LINKS = "any", "by_delay", "by_links"
"""which broker may serve a client: any, the one with the lowest delay, of those with the fewest links"""
_FAR = 1e6
"""links to a broker that may not serve a client: more than any tree has"""
OWNERS = 16
"""brokers that own a region each"""


@dataclass(frozen=True, slots=True)
class Setting:
    """The network and the audience of a run."""

    topology: str = "internet"
    """"internet": generated; else FILE:NAME, a network of a file"""
    placement: str = "core"
    brokers: int = 48
    clients: int = 577
    minutes: float = 20.0
    seed: int = 1
    systems: int = 7
    """autonomous systems of a generated internet; two in seven are transit"""
    latency: str = ""
    """folder with measured round trips, for delays of a real network's links; "": by their length"""


class RelayStage:
    """One setting, built."""

    def __init__(self, setting: Setting, owners: int = OWNERS) -> None:
        self.setting = setting
        self.underlay = underlay_of(setting)
        count = setting.brokers
        if setting.topology != "internet":  # in a small network not more than one at each router
            count = min(count, len(self.underlay.kinds))
        self.brokers = place_brokers(self.underlay, count, setting.placement, setting.seed)
        self.clients = place_clients(self.underlay, setting.clients, setting.seed)
        self.grid = lattice()
        self.until_s = 60 * setting.minutes
        self.visits = visits(self.grid, self.clients, self.until_s, setting.seed)
        self.owners = {owners + i: PeerId(i % count) for i in range(owners)}
        self.routers = np.array([a.router for a in (*self.brokers, *self.clients)])
        """of brokers, then of clients"""
        self._bits = bits_per_point(self.grid) / (1 << self.grid.resolution_bits[2])
        rows, columns = self.routers[: len(self.brokers)], self.routers[len(self.brokers) :]
        accesses = np.array([a.delay_s for a in self.brokers])
        delays = self.underlay.delay_s[np.ix_(rows, columns)] + accesses[:, None]
        self._targets = delays.argmin(axis=0)
        self._fewest = (self.underlay.hops[np.ix_(rows, columns)] + delays / (1 + delays.max())).argmin(
            axis=0
        )

    def owner_of(self, cell: int) -> PeerId:
        """Of the region in which a cell lies."""
        digits = len(self.owners).bit_length() - 1
        return self.owners[cell >> (cell.bit_length() - 1 - digits)]

    def access(self, peer: PeerId) -> Access:
        """How a broker or client hangs on the network."""
        return self.clients[peer - BROKERS_MAX] if peer >= BROKERS_MAX else self.brokers[peer]

    def router(self, peer: PeerId) -> int:
        """On which router."""
        return self.access(peer).router

    def delay_s(self, a: PeerId, b: PeerId) -> float:
        """One way: the route and both accesses."""
        one, other = self.access(a), self.access(b)
        return float(self.underlay.delay_s[one.router, other.router]) + one.delay_s + other.delay_s

    def hops(self, a: PeerId, b: PeerId) -> int:
        """Links of routers between two."""
        return int(self.underlay.hops[self.router(a), self.router(b)])

    def target_of(self, client: int, by_links: bool = False) -> PeerId:
        """The broker with the lowest delay to a client, or of those with the fewest links to it."""
        return PeerId(int((self._fewest if by_links else self._targets)[client]))

    def bps(self, points: float) -> float:
        """The bandwidth of so many points per period."""
        return points * self._bits

    def bound_at(self, time_s: float, served: str = ANY) -> float:
        """Points per period times counted links that any distribution of what is asked for then must cost.

        For each atom a Steiner tree from its owner in which only brokers may duplicate, bounded from below by dual
        ascent; the leaves are the clients, each served by whichever broker is best, or by one that is given.
        """
        # Who asked a moment ago has no stream yet, and nobody has to carry it.
        live = [v for v in self.visits if v.at_s + SETTLING_S <= time_s < v.until_s]
        routers = sorted({self.clients[v.client].router for v in live})
        at = {router: i for i, router in enumerate(routers)}
        wanting: dict[int, Floats] = {}
        for visit in live:
            place = at[self.clients[visit.client].router]
            for cell in visit.cells:
                if cell not in wanting:
                    wanting[cell] = np.zeros(len(routers))
                wanting[cell][place] += 1
        if not wanting:
            return 0.0
        mine = self.routers[: len(self.brokers)]
        counted = self.underlay.counted.astype(np.float64)
        cost, legs = counted[np.ix_(mine, mine)], counted[np.ix_(mine, np.array(routers))]
        if served != ANY:
            chosen = {
                self.clients[v.client].router: self.target_of(v.client, served == BY_LINKS) for v in live
            }
            others = np.arange(len(mine))[:, None] != np.array([chosen[router] for router in routers])
            legs = legs + _FAR * others
        # Atoms that the same clients want cost the same: work each out once.
        groups: dict[tuple[PeerId, bytes], int] = {}
        for cell, row in wanting.items():
            key = (self.owner_of(cell), row.tobytes())
            groups[key] = groups.get(key, 0) + points_of(self.grid, cell)
        roots = np.array([owner for owner, _ in groups], dtype=np.int64)
        rows = np.array([np.frombuffer(row) for _, row in groups])
        return float((dual_ascents(cost, roots, legs, rows) * np.array(list(groups.values()))).sum())


def split_topology(text: str) -> tuple[Path, str]:
    """File and name of a network; names may have colons, and files too."""
    parts = text.split(":")
    for count in range(len(parts), 0, -1):
        path = Path(":".join(parts[:count]))
        if path.is_file():
            return path, ":".join(parts[count:])
    return Path(text), ""


def underlay_of(setting: Setting) -> Underlay:
    """The network of a setting."""
    if setting.topology == "internet":
        return internet(setting.seed, setting.systems, max(2, 2 * setting.systems // 7))
    file, name = split_topology(setting.topology)
    known = read_topologies(file)
    if name not in known:
        some = ", ".join(sorted(known)[:5])
        raise ExperimentError(
            f"topology: found {name!r}, expected one of the {len(known)} in {file}: {some}…"
        )
    return real(known[name], read_latency(Path(setting.latency)) if setting.latency else None)


__all__ = ["OWNERS", "RelayStage", "Setting", "Visit", "split_topology", "underlay_of"]
