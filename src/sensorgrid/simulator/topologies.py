"""Real networks as underlays: topologies with the places of their nodes, and latencies measured between cities.

The files are those of topohub (Internet Topology Zoo, SNDlib, CAIDA): lists of networks, gzipped JSON. They know
lengths and no delays: a link takes its length at 200 km/ms and 0.05 ms in the router, unless round-trip times
that WonderNetwork measured between cities say better.
"""

import csv
import gzip
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from sensorgrid.simulator.underlay import Underlay, UnderlayError, routed

ABSTRACT = frozenset(
    ["atlanta", "di-yuan", "france", "giul39", "newyork", "norway", "pioro40", "sun", "ta1", "ta2", "zib54"]
)
"""Networks of SNDlib drawn on some plane: their places are no longitudes and latitudes, their lengths no km."""

SPEED_KM_PER_S = 200e3
"""of light in fibre"""
LIGHT_KM_PER_S = 299_792.458
"""of light in vacuum: what is faster is wrong"""
ROUTER_S = 0.00005
ABSTRACT_S = 0.001
"""of a link whose length is unknown"""
NEAR_KM = 100.0
"""from a node to the city whose latencies it takes"""
EARTH_RADIUS_KM = 6371.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node or a measuring server is."""

    name: str
    lon: float
    """degrees east"""
    lat: float
    """degrees north"""


@dataclass(frozen=True, slots=True)
class Topology:
    """A network as its file has it."""

    name: str
    kind: str
    """the collection: topozoo, sndlib, caida"""
    nodes: tuple[Place, ...]
    links: tuple[tuple[int, int, float], ...]
    """two nodes, by their position in `nodes`, and km"""

    @property
    def abstract(self) -> bool:
        """Whether places and lengths mean nothing."""
        return self.kind == "sndlib" and self.name in ABSTRACT


@dataclass(frozen=True, slots=True, eq=False)
class Latency:
    """Round-trip times between cities."""

    cities: tuple[Place, ...]
    rtt_s: NDArray[np.float64]
    """the shorter of both directions; NaN where none was measured, or only such as light could not make"""


class _TopologyNode(msgspec.Struct, frozen=True):
    id: str
    name: str
    lon: float
    lat: float


class _Edge(msgspec.Struct, frozen=True):
    s: str
    t: str
    km: float


class _Network(msgspec.Struct, frozen=True):
    name: str
    kind: str
    nodes: list[_TopologyNode]
    edges: list[_Edge]


def read_topologies(path: Path) -> dict[str, Topology]:
    """The networks of a file, gzipped or not, by name, in its order."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnderlayError(
            f"{path}: found {error.strerror}, expected a file of networks; see docs/relays-results.md"
        ) from None
    try:
        plain = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        networks = msgspec.json.decode(plain, type=list[_Network])
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise UnderlayError(
            f"{path.name}: found {error}, expected a list of networks with name, kind, nodes and edges"
        ) from None
    found: dict[str, Topology] = {}
    for network in networks:
        if network.name in found:
            raise UnderlayError(f"{path.name}: found the network {network.name!r} twice, expected once")
        found[network.name] = _topology(network, f"{path.name}, network {network.name!r}")
    return found


def _topology(network: _Network, where: str) -> Topology:
    numbers = {node.id: number for number, node in enumerate(network.nodes)}
    if not numbers:
        raise UnderlayError(f"{where}: found no nodes, expected one or more")
    if len(numbers) < len(network.nodes):
        raise UnderlayError(f"{where}: found a node's id twice, expected each once")
    for edge in network.edges:
        for end in (edge.s, edge.t):
            if end not in numbers:
                raise UnderlayError(f"{where}: found an edge of {end!r}, expected the id of a node")
        if not edge.km >= 0:
            raise UnderlayError(f"{where}, edge {edge.s}-{edge.t}: found {edge.km} km, expected 0 or more")
    topology = Topology(
        network.name,
        network.kind,
        tuple(Place(node.name, node.lon, node.lat) for node in network.nodes),
        tuple((numbers[edge.s], numbers[edge.t], edge.km) for edge in network.edges),
    )
    if not topology.abstract:
        for place in topology.nodes:
            _check(place, where)
    return topology


def read_latency(folder: Path) -> Latency:
    """The cities of `servers.csv` and the least round-trip times between them of `rtt_ms.csv.gz`.

    The least of several pings, since what a simulation adds to it is queueing. Pairs with a server that the list
    does not have are left out, as are those faster than light for their places: there the place is wrong.
    """
    places = _read_cities(folder / "servers.csv")
    cities = tuple(places.values())
    rtt_s = _read_rtt(folder / "rtt_ms.csv.gz", {number: i for i, number in enumerate(places)})
    rtt_s[rtt_s < 2 * _distances_km(cities, cities) / LIGHT_KM_PER_S] = np.nan
    rtt_s = np.fmin(rtt_s, rtt_s.T)
    rtt_s.setflags(write=False)
    return Latency(cities, rtt_s)


def _read_cities(path: Path) -> dict[str, Place]:
    places: dict[str, Place] = {}
    for where, row in _rows(path):
        try:
            number, place = row["id"], Place(row["name"], float(row["lon"]), float(row["lat"]))
        except (KeyError, TypeError, ValueError):
            raise UnderlayError(f"{where}: found {row}, expected id, name, lat, lon") from None
        if number in places:
            raise UnderlayError(f"{where}: found the id {number} twice, expected once")
        places[number] = _check(place, where)
    return places


def _read_rtt(path: Path, numbers: dict[str, int]) -> NDArray[np.float64]:
    rtt_s = np.full((len(numbers), len(numbers)), np.nan)
    for where, row in _rows(path):
        try:
            a, b, least_s = row["source"], row["destination"], float(row["min"]) / 1000
        except (KeyError, TypeError, ValueError):
            raise UnderlayError(f"{where}: found {row}, expected source, destination, min") from None
        if not 0 <= least_s < math.inf:
            raise UnderlayError(f"{where}: found a round trip of {row['min']} ms, expected 0 or more")
        if a in numbers and b in numbers:
            rtt_s[numbers[a], numbers[b]] = least_s
    return rtt_s


def _rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Where a row stands, for messages, and the row."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", newline="", encoding="utf-8") as file:
            for line, row in enumerate(csv.DictReader(file), start=2):
                yield f"{path.name}, line {line}", row
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise UnderlayError(f"{path.name}: found {error}, expected a table of text") from None


def real(topology: Topology, latency: Latency | None = None) -> Underlay:
    """A real network as an underlay: each node is a router.

    With latencies, a link between two nodes that are near two different measured cities takes half the round-trip
    time of these. Of a network in several parts the largest stays, and the name says so.
    """
    nodes = len(topology.nodes)
    ends = np.array([link[:2] for link in topology.links], dtype=np.int64).reshape(-1, 2)
    graph = csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(nodes, nodes))
    parts, part = connected_components(graph, directed=False)
    kept = np.flatnonzero(part == np.bincount(part).argmax())
    name = topology.name
    if parts > 1:
        name = f"{name} (largest of {parts} parts, {len(kept)} of {nodes} nodes)"
    numbers = {int(node): number for number, node in enumerate(kept)}
    links = [
        (numbers[a], numbers[b], delay_s)
        for (a, b, _), delay_s in zip(topology.links, _delays_s(topology, latency), strict=True)
        if a in numbers
    ]
    return routed(name, ["node"] * len(kept), links)


def _delays_s(topology: Topology, latency: Latency | None) -> list[float]:
    """Of each link."""
    if topology.abstract:
        return [ABSTRACT_S] * len(topology.links)
    lengths = [km / SPEED_KM_PER_S + ROUTER_S for _, _, km in topology.links]
    if latency is None or not latency.cities:
        return lengths
    distances_km = _distances_km(topology.nodes, latency.cities)
    near = np.where(distances_km.min(axis=1) <= NEAR_KM, distances_km.argmin(axis=1), -1)
    delays = []
    for (a, b, _), length_s in zip(topology.links, lengths, strict=True):
        known = near[a] >= 0 and near[b] >= 0 and near[a] != near[b]
        measured_s = float(latency.rtt_s[near[a], near[b]]) / 2 if known else math.nan
        delays.append(length_s if math.isnan(measured_s) else measured_s)
    return delays


def _check(place: Place, where: str) -> Place:
    if not (-180 <= place.lon <= 180 and -90 <= place.lat <= 90):
        raise UnderlayError(
            f"{where}: found {place.name!r} at lon {place.lon}, lat {place.lat}, expected degrees"
        )
    return place


def _distances_km(some: tuple[Place, ...], others: tuple[Place, ...]) -> NDArray[np.float64]:
    """Great-circle distances, rows by columns."""
    lon_a, lat_a = np.radians([[p.lon for p in some], [p.lat for p in some]])[:, :, None]
    lon_b, lat_b = np.radians([[p.lon for p in others], [p.lat for p in others]])[:, None, :]
    half = np.sin((lat_a - lat_b) / 2) ** 2 + np.cos(lat_a) * np.cos(lat_b) * np.sin((lon_a - lon_b) / 2) ** 2
    distances: NDArray[np.float64] = 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(half, 1)))
    return distances
