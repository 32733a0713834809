"""The network below the overlay: routes against brute force, the shape of internets, real topologies."""

import gzip
import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from itertools import pairwise, product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorgrid.model.errors import SensorGridError
from sensorgrid.simulator.internet import SIDE_KM, internet
from sensorgrid.simulator.topologies import (
    ABSTRACT,
    Latency,
    Place,
    Topology,
    read_latency,
    read_topologies,
    real,
)
from sensorgrid.simulator.underlay import (
    LINES_BPS,
    ROUTERS_MAX,
    Underlay,
    UnderlayError,
    place_brokers,
    place_clients,
    routed,
)

DATA = Path(os.environ.get("SENSORGRID_DATA", Path(__file__).parents[3] / "shared" / "data"))
TOPOLOGIES = DATA / "topologies"
LATENCY = DATA / "latency-wondernetwork"

needs_topologies = pytest.mark.skipif(
    not TOPOLOGIES.exists(), reason=f"no topologies at {TOPOLOGIES}; set SENSORGRID_DATA"
)
needs_latency = pytest.mark.skipif(
    not LATENCY.exists(), reason=f"no latencies at {LATENCY}; set SENSORGRID_DATA"
)

Links = list[tuple[int, int, float]]
KINDS = ("core", "gateway", "edge", "node")


def random_links(rng: Random, routers: int, more: int, delays_ms: tuple[int, ...]) -> Links:
    """A random tree and more links, parallel ones and self loops among them."""
    links = [(router, rng.randrange(router), rng.choice(delays_ms) / 1000) for router in range(1, routers)]
    for _ in range(more):
        links += [(rng.randrange(routers), rng.randrange(routers), rng.choice(delays_ms) / 1000)]
    return links


@st.composite
def networks(draw: st.DrawFn) -> Underlay:
    rng = Random(draw(st.integers(0, 2**32)))
    routers, more = draw(st.integers(1, 12)), draw(st.integers(0, 20))
    kinds = [rng.choice(KINDS) for _ in range(routers)]
    return routed("random", kinds, random_links(rng, routers, more, draw(st.sampled_from(DELAYS_MS))))


DELAYS_MS = ((1,), (1, 2), (0, 1, 2, 3), tuple(range(1, 100)))
"""Few different delays make many equal ways."""


def brute_force(net: Underlay) -> dict[tuple[int, int], tuple[int, int, tuple[int, ...]]]:
    """Floyd and Warshall: delay in ns, links and routers of the least way between any two."""
    routers = range(len(net.kinds))
    best: dict[tuple[int, int], tuple[int, int, tuple[int, ...]]] = {(a, a): (0, 0, (a,)) for a in routers}
    for (a, b), delay_s in zip(net.arcs.tolist(), net.arc_delay_s.tolist(), strict=True):
        best[a, b] = (round(delay_s * 1e9), 1, (a, b))
    for k, a, b in product(routers, routers, routers):
        if (a, k) in best and (k, b) in best:
            (delay_1, hops_1, way_1), (delay_2, hops_2, way_2) = best[a, k], best[k, b]
            way = (delay_1 + delay_2, hops_1 + hops_2, way_1 + way_2[1:])
            best[a, b] = min(best.get((a, b), way), way)
    return best


def digest(net: Underlay) -> str:
    """Of all that the network is, and of some placements."""
    text = hashlib.sha256(repr((net.name, net.kinds, net.systems)).encode())
    for array in (net.arcs, net.arc_delay_s, net.arc_counted, net.delay_s, net.hops, net.counted, net._first):
        text.update(np.ascontiguousarray(array).tobytes())
    for placement in ("core", "edge", "full"):
        text.update(repr(place_brokers(net, 48, placement, 1)).encode())
    text.update(repr(place_clients(net, 577, 1)).encode())
    return text.hexdigest()


def routers_on(net: Underlay, a: int, b: int) -> tuple[int, ...]:
    return (a, *(int(net.arcs[arc, 1]) for arc in net.path(a, b)))


# Routes


@pytest.mark.parametrize("delays_ms", DELAYS_MS)
@pytest.mark.parametrize("seed", range(8))
def test_routes_are_those_of_brute_force(seed: int, delays_ms: tuple[int, ...]) -> None:
    rng = Random(f"{seed} {delays_ms}")
    kinds = [rng.choice(KINDS) for _ in range(14)]
    net = routed("random", kinds, random_links(rng, 14, 14, delays_ms))

    expected = brute_force(net)

    for (a, b), (delay_ns, hops, way) in expected.items():
        assert net.delay_s[a, b] == delay_ns / 1e9
        assert net.hops[a, b] == hops
        assert routers_on(net, a, b) == way
        assert net.counted[a, b] == sum("edge" not in (kinds[x], kinds[y]) for x, y in pairwise(way))
    assert len(expected) == 14 * 14


@given(networks())
def test_no_way_is_shorter_than_a_route_and_its_arcs_make_it(net: Underlay) -> None:
    routers = range(len(net.kinds))

    direct = net.delay_s[:, None, :]
    by_another = net.delay_s[:, :, None] + net.delay_s[None, :, :]

    assert (direct <= by_another + 1e-12).all()
    assert np.array_equal(net.delay_s, net.delay_s.T)
    for a, b in product(routers, routers):
        path = net.path(a, b)
        ends = net.arcs[path]
        assert net.hops[a, b] == len(path)
        assert net.counted[a, b] == net.arc_counted[path].sum()
        assert net.delay_s[a, b] == pytest.approx(net.arc_delay_s[path].sum(), abs=1e-12)
        assert [a, *ends[:, 1].tolist()] == [*ends[:, 0].tolist(), b]


@given(networks())
def test_what_follows_the_first_link_of_a_route_is_a_route(net: Underlay) -> None:
    for a, b in product(range(len(net.kinds)), repeat=2):
        way = routers_on(net, a, b)

        assert a == b or way[1:] == routers_on(net, way[1], b)


def test_equal_ways_are_equal_whatever_floats_make_of_their_sums() -> None:
    # 0.1 + 0.2 is more than 0.3 in floats, so that the way of more links or higher numbers might win.
    net = routed("sums", ["core"] * 4, [(0, 1, 0.1), (1, 3, 0.2), (0, 2, 0.15), (2, 3, 0.15), (0, 3, 0.3)])
    longer = routed("sums", ["core"] * 4, [(0, 1, 0.1), (1, 3, 0.2), (0, 2, 0.15), (2, 3, 0.15)])

    assert routers_on(net, 0, 3) == (0, 3)
    assert routers_on(longer, 0, 3) == (0, 1, 3)


def test_an_arc_counts_unless_it_leads_from_or_to_an_edge_router() -> None:
    net = routed("line", ["edge", "gateway", "core", "node"], [(0, 1, 0.1), (1, 2, 0.1), (2, 3, 0.1)])

    counted = {(a, b): flag for (a, b), flag in zip(net.arcs.tolist(), net.arc_counted.tolist(), strict=True)}

    assert counted == {(0, 1): False, (1, 0): False, (1, 2): True, (2, 1): True, (2, 3): True, (3, 2): True}
    assert net.counted[0, 3] == 2
    assert net.counted[3, 0] == 2


def test_self_loops_are_dropped_and_of_parallel_links_the_fastest_stays() -> None:
    net = routed("pair", ["core", "core"], [(0, 1, 0.3), (1, 0, 0.1), (0, 1, 0.2), (1, 1, 0.1)])

    assert net.arcs.tolist() == [[0, 1], [1, 0]]
    assert net.arc_delay_s.tolist() == [0.1, 0.1]


def test_a_single_router_is_a_network() -> None:
    net = routed("one", ["node"], [])

    assert net.delay_s.tolist() == [[0.0]]
    assert net.path(0, 0).tolist() == []


def test_a_network_does_not_change() -> None:
    net = routed("pair", ["core", "core"], [(0, 1, 0.3)])

    for array in (net.arcs, net.arc_delay_s, net.arc_counted, net.delay_s, net.hops, net.counted):
        assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        net.path(0, 1)[0] = 7
    assert net.path(0, 1) is net.path(0, 1)


def test_a_network_goes_to_other_processes() -> None:
    net = internet(3)

    assert digest(pickle.loads(pickle.dumps(net))) == digest(net)


@pytest.mark.parametrize(
    ("kinds", "links", "message"),
    [
        ([], [], f"net: found 0 routers, expected 1 to {ROUTERS_MAX}"),
        (["core"] * (ROUTERS_MAX + 1), [], f"net: found {ROUTERS_MAX + 1} routers, expected 1 to"),
        (["hub"], [], "kind of a router: found 'hub', expected one of core, gateway, edge, node"),
        (["core"] * 2, [(0, 2, 1.0)], "net: found a link 0-2, expected routers 0 to 1"),
        (["core"] * 2, [(-1, 0, 1.0)], "net: found a link -1-0, expected routers 0 to 1"),
        (["core"] * 2, [(0, 1, -1.0)], "net, link 0-1: found a delay of -1.0 s, expected 0 or more"),
        (["core"] * 2, [(0, 1, float("nan"))], "net, link 0-1: found a delay of nan s, expected 0 or more"),
        (["core"] * 2, [(0, 1, 1e9)], "net: found delays of 2e\\+09 s in all, expected below 4.5036e\\+06"),
        (["core"] * 3, [(0, 1, 1.0)], "net: found 2 routers reached from router 0, expected all 3"),
    ],
)
def test_a_network_that_cannot_be_is_refused(kinds: list[str], links: Links, message: str) -> None:
    with pytest.raises(UnderlayError, match=message) as caught:
        routed("net", kinds, links)

    assert isinstance(caught.value, SensorGridError)
    assert isinstance(caught.value, ValueError)


def test_systems_are_one_for_each_router() -> None:
    with pytest.raises(UnderlayError, match="net: found 1 systems, expected one for each of 2 routers"):
        routed("net", ["core"] * 2, [(0, 1, 1.0)], [0])


@pytest.mark.parametrize(("a", "b", "found"), [(-1, 0, -1), (0, 2, 2)])
def test_a_router_that_does_not_exist_has_no_routes(a: int, b: int, found: int) -> None:
    net = routed("pair", ["core", "core"], [(0, 1, 0.3)])

    with pytest.raises(UnderlayError, match=f"router: found {found}, expected 0 to 1"):
        net.path(a, b)


# A changed link


def test_a_slower_link_is_slower_both_ways_and_routes_avoid_it() -> None:
    net = routed("ring", ["node"] * 3, [(0, 1, 0.001), (1, 2, 0.001), (0, 2, 0.0015)])
    (arc,) = net.path(2, 0)
    before = digest(net)

    slow = net.changed(int(arc), 4)

    assert slow.arc_delay_s.tolist() == [0.001, 0.006, 0.001, 0.001, 0.006, 0.001]
    assert routers_on(slow, 2, 0) == (2, 1, 0)
    assert routers_on(slow, 0, 2) == (0, 1, 2)
    assert slow.delay_s[0, 2] == 0.002
    assert (slow.name, slow.kinds) == (net.name, net.kinds)
    assert digest(net) == before
    assert digest(slow.changed(int(arc), 1 / 4)) == before


def test_a_changed_network_is_the_one_drawn_so() -> None:
    links = random_links(Random(5), 10, 8, (1, 2, 3))
    net = routed("random", ["node"] * 10, links)
    a, b = net.arcs[7].tolist()
    delay_s = float(net.arc_delay_s[7])

    changed = net.changed(7, 0.5)

    assert digest(changed) == digest(routed("random", ["node"] * 10, [*links, (a, b, delay_s * 0.5)]))


@pytest.mark.parametrize(
    ("arc", "factor", "message"),
    [
        (2, 1.0, "arc: found 2, expected 0 to 1"),
        (-1, 1.0, "arc: found -1, expected 0 to 1"),
        (0, 0.0, "factor: found 0.0, expected a number above 0"),
        (0, float("inf"), "factor: found inf, expected a number above 0"),
        (0, float("nan"), "factor: found nan, expected a number above 0"),
    ],
)
def test_a_change_that_cannot_be_is_refused(arc: int, factor: float, message: str) -> None:
    net = routed("pair", ["core", "core"], [(0, 1, 0.3)])

    with pytest.raises(UnderlayError, match=message):
        net.changed(arc, factor)


# The paper's internet


@pytest.mark.parametrize("seed", range(20))
def test_an_internet_has_the_papers_shape(seed: int) -> None:
    """GSGM, section 5: seven systems, up to three cores fully connected, up to three gateways per core."""
    net = internet(seed)
    linked = [{int(b) for a, b in net.arcs if a == router} for router in range(len(net.kinds))]

    assert sorted(set(net.systems)) == list(range(7))
    for system in range(7):
        routers = [router for router, its in enumerate(net.systems) if its == system]
        by_kind = {kind: [r for r in routers if net.kinds[r] == kind] for kind in ("core", "gateway", "edge")}
        cores, gateways = by_kind["core"], by_kind["gateway"]
        assert sum(map(len, by_kind.values())) == len(routers)
        assert len(cores) == 3 if system < 2 else 1 <= len(cores) <= 3
        assert len(cores) <= len(gateways) <= 3 * len(cores)
        for core in cores:
            assert linked[core] >= {other for other in cores if other != core}
            assert {net.kinds[other] for other in linked[core]} <= {"core", "gateway"}
        for gateway in gateways:
            kinds = Counter(net.kinds[other] for other in linked[gateway])
            assert 1 <= kinds["core"] <= 2
            assert 1 <= kinds["edge"] <= 4
            assert kinds["gateway"] == 0
            assert linked[gateway] <= set(routers)
        for edge in by_kind["edge"]:
            assert len(linked[edge]) == 1
            assert linked[edge] <= set(gateways)


@pytest.mark.parametrize("seed", range(20))
def test_systems_meet_at_cores_transit_ones_and_stubs_with_one_or_two_of_them(seed: int) -> None:
    net = internet(seed)
    between = [(a, b) for a, b in net.arcs.tolist() if net.systems[a] != net.systems[b]]

    met = {system: {net.systems[b] for a, b in between if net.systems[a] == system} for system in range(7)}

    assert {net.kinds[a] for a, _ in between} == {"core"}
    assert 1 in met[0]
    for stub in range(2, 7):
        assert met[stub] <= {0, 1}
        assert len(met[stub]) >= 1


def test_internets_differ_in_what_the_paper_leaves_open() -> None:
    nets = [internet(seed) for seed in range(20)]
    homes = Counter(
        len({net.systems[b] for a, b in net.arcs.tolist() if net.systems[a] == stub} - {stub})
        for net in nets
        for stub in range(2, 7)
    )
    uplinks = Counter(
        sum(net.kinds[b] == "core" for a, b in net.arcs.tolist() if a == router)
        for net in nets
        for router, kind in enumerate(net.kinds)
        if kind == "gateway"
    )
    central = [net.kinds.count("core") + net.kinds.count("gateway") for net in nets]

    assert len({digest(net) for net in nets}) == 20
    assert min(homes[1], homes[2]) > 30
    assert 0.1 < uplinks[2] / (uplinks[1] + uplinks[2]) < 0.3
    assert 44 < np.mean(central) < 52


def test_links_are_fast_within_a_system_and_slow_between() -> None:
    nets = [internet(seed) for seed in range(10)]

    delays: dict[bool, list[float]] = {True: [], False: []}
    for net in nets:
        for (a, b), delay_s in zip(net.arcs.tolist(), net.arc_delay_s.tolist(), strict=True):
            delays[net.systems[a] == net.systems[b]].append(delay_s)

    assert min(delays[True]) > 0.0001
    assert max(delays[False]) < 2**0.5 * SIDE_KM / 200e3 + 0.0001 + 1e-9
    assert float(np.median(delays[False])) > 10 * float(np.median(delays[True]))


@pytest.mark.parametrize(("systems", "transit"), [(1, 1), (3, 3), (12, 4), (4, 1)])
def test_an_internet_may_have_other_numbers_of_systems(systems: int, transit: int) -> None:
    net = internet(1, systems, transit)

    met = {(net.systems[a], net.systems[b]) for a, b in net.arcs.tolist()}
    assert set(net.systems) == set(range(systems))
    assert {(a, b) for a in range(transit) for b in range(transit)} <= met
    assert not {(a, b) for a in range(transit, systems) for b in range(transit, systems) if a != b} & met


@pytest.mark.parametrize(("systems", "transit"), [(7, 0), (7, 8), (0, 0)])
def test_an_internet_needs_a_transit_system(systems: int, transit: int) -> None:
    with pytest.raises(UnderlayError, match=f"transit: found {transit}, expected 1 to {systems}"):
        internet(1, systems, transit)


def test_the_same_seed_gives_the_same_network_whatever_the_hash_seed() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_underlay as t;"
        "print(t.digest(t.internet(1)), t.digest(t.real(t.small())))"
    )

    said = [
        subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]

    assert said[0] == said[1] == [digest(internet(1)), digest(real(small()))]


# Placements


@pytest.mark.parametrize(
    ("placement", "kinds"),
    [("core", {"core", "gateway"}), ("edge", {"edge"}), ("full", {"core", "gateway", "edge"})],
)
def test_brokers_stand_on_different_routers_of_their_placement(placement: str, kinds: set[str]) -> None:
    net = internet(2)  # 57 core and gateway routers

    brokers = place_brokers(net, 48, placement, 1)

    assert len({broker.router for broker in brokers}) == len(brokers) == 48
    assert {net.kinds[broker.router] for broker in brokers} == kinds
    assert {(b.delay_s, b.down_bps, b.up_bps) for b in brokers} == {(0.0001, 1e9, 1e9)}
    assert place_brokers(net, 48, placement, 1) == brokers
    assert place_brokers(net, 48, placement, 2) != brokers


def test_brokers_share_routers_evenly_where_there_are_too_few() -> None:
    net = routed("line", ["core", "gateway", "edge"], [(0, 1, 0.1), (1, 2, 0.1)])

    brokers = place_brokers(net, 5, "core", 1, rate_bps=1e8)

    load = Counter(broker.router for broker in brokers)
    assert set(load) == {0, 1}
    assert sorted(load.values()) == [2, 3]
    assert {broker.up_bps for broker in brokers} == {1e8}


def test_clients_hang_on_all_edge_routers_by_asymmetric_lines() -> None:
    net = internet(2)

    clients = place_clients(net)

    load = Counter(client.router for client in clients)
    lines = Counter((client.down_bps, client.up_bps) for client in clients)
    assert len(clients) == 577
    assert set(load) == {router for router, kind in enumerate(net.kinds) if kind == "edge"}
    assert max(load.values()) - min(load.values()) <= 1
    assert set(lines) == set(LINES_BPS)
    assert min(lines.values()) > 577 / 3 * 0.7
    assert all(0.005 <= client.delay_s <= 0.020 for client in clients)
    assert max(client.delay_s for client in clients) > 0.018
    assert place_clients(net, 577, 1) != clients


def test_in_real_topologies_every_placement_is_any_node() -> None:
    net = real(small())

    for placement in ("core", "edge", "full"):
        assert {broker.router for broker in place_brokers(net, 4, placement, 1)} == {0, 1, 2, 3}
    assert {client.router for client in place_clients(net, 4)} == {0, 1, 2, 3}


def test_placements_that_cannot_be_are_refused() -> None:
    net = routed("pair", ["core", "core"], [(0, 1, 0.3)])

    with pytest.raises(UnderlayError, match="placement: found 'cloud', expected one of core, edge, full"):
        place_brokers(real(small()), 4, "cloud", 1)
    with pytest.raises(UnderlayError, match="count: found -1, expected 0 or more"):
        place_clients(real(small()), -1)
    with pytest.raises(UnderlayError, match="pair: found no router of the kinds edge, node, expected one"):
        place_clients(net, 1)
    assert place_brokers(net, 0, "core", 1) == ()


# Topologies


def small() -> Topology:
    """A ring of four towns on the equator, 200 km apart, with a self loop and a link named twice."""
    return Topology(
        "small",
        "topozoo",
        tuple(Place(name, lon, 0.0) for name, lon in (("a", 0.0), ("b", 1.8), ("c", 3.6), ("d", 5.4))),
        ((0, 1, 200.0), (1, 2, 200.0), (2, 3, 0.0), (3, 0, 600.0), (1, 1, 0.0), (2, 1, 200.0)),
    )


def arc_delays(net: Underlay) -> dict[tuple[int, int], float]:
    return {(a, b): s for (a, b), s in zip(net.arcs.tolist(), net.arc_delay_s.tolist(), strict=True) if a < b}


def latency(rtt_ms: dict[tuple[int, int], float]) -> Latency:
    """Measured near a (twice), b and c of the small topology."""
    cities = tuple(Place(f"city at {lon}", lon, 0.0) for lon in (0.1, 0.6, 1.8, 3.6, 50.0))
    rtt_s = np.full((5, 5), np.nan)
    for (a, b), ms in rtt_ms.items():
        rtt_s[a, b] = rtt_s[b, a] = ms / 1000
    return Latency(cities, rtt_s)


def test_links_of_real_topologies_take_as_long_as_they_are_and_all_count() -> None:
    net = real(small())

    assert net.name == "small"
    assert set(net.kinds) == {"node"}
    assert arc_delays(net) == {(0, 1): 0.00105, (1, 2): 0.00105, (2, 3): 0.00005, (0, 3): 0.00305}
    assert net.arc_counted.all()
    assert np.array_equal(net.counted, net.hops)


@pytest.mark.parametrize("name", sorted(ABSTRACT))
def test_links_of_abstract_topologies_are_all_alike(name: str) -> None:
    nodes = tuple(Place(node.name, 300.0 * node.lon, 500.0) for node in small().nodes)

    net = real(Topology(name, "sndlib", nodes, small().links), latency({(0, 2): 50.0}))

    assert set(net.arc_delay_s.tolist()) == {0.001}
    assert real(Topology(name, "topozoo", small().nodes, small().links)).arc_delay_s.max() == 0.00305


def test_of_a_topology_in_parts_the_largest_stays_and_the_name_says_so() -> None:
    nodes = tuple(Place(str(i), float(i), 0.0) for i in range(6))
    links = ((0, 1, 100.0), (2, 4, 100.0), (4, 5, 300.0))

    net = real(Topology("torn", "topozoo", nodes, links))

    assert net.name == "torn (largest of 3 parts, 3 of 6 nodes)"
    assert arc_delays(net) == {(0, 1): 0.00055, (1, 2): 0.00155}


def test_measured_latencies_replace_lengths_between_cities_that_differ_and_are_near() -> None:
    measured = latency({(0, 2): 8.0, (1, 2): 30.0, (0, 3): 70.0, (2, 3): 6.0, (3, 4): 80.0, (0, 4): 90.0})

    delays = arc_delays(real(small(), measured))

    # d is 200 km from the nearest city, so its links keep their lengths; a takes the nearer of its two cities.
    assert delays == {(0, 1): 0.004, (1, 2): 0.003, (2, 3): 0.00005, (0, 3): 0.00305}


def test_links_without_a_measurement_keep_their_lengths() -> None:
    in_one_city = Topology("town", "topozoo", (Place("a", 0.0, 0.0), Place("b", 0.1, 0.0)), ((0, 1, 11.0),))

    assert arc_delays(real(small(), latency({(1, 2): 30.0}))) == arc_delays(real(small()))
    assert arc_delays(real(in_one_city, latency({(0, 0): 7.0}))) == {(0, 1): 0.000105}
    assert arc_delays(real(in_one_city, Latency((), np.zeros((0, 0))))) == {(0, 1): 0.000105}


# Files


def network(**other: Any) -> dict[str, Any]:
    nodes = [{"id": str(i), "name": f"town {i}", "lon": i, "lat": 0.5} for i in range(3)]
    edges = [{"s": "0", "t": "1", "km": 111.0}, {"s": "2", "t": "1", "km": 0}]
    return {"name": "net", "kind": "topozoo", "nodes": nodes, "edges": edges, **other}


def write_gz(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()))
    return path


def test_a_file_of_topologies_is_read_in_its_order(tmp_path: Path) -> None:
    path = write_gz(tmp_path / "some.json.gz", json.dumps([network(name="z"), network(name="a")]))

    found = read_topologies(path)

    assert list(found) == ["z", "a"]
    assert found["z"].nodes[2] == Place("town 2", 2.0, 0.5)
    assert found["z"].links == ((0, 1, 111.0), (2, 1, 0.0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "some.json.gz: found .*truncated.*, expected a list of networks with name, kind, nodes"),
        ({}, r"some.json.gz: found Expected `array`, got `object`, expected"),
        ([{"name": "net"}], r"missing required field `kind` - at `\$\[0\]`"),
        ([network(name=7)], r"Expected `str`, got `int` - at `\$\[0\].name`"),
        ([network(nodes=[])], "some.json.gz, network 'net': found no nodes, expected one or more"),
        ([network(), network()], "some.json.gz: found the network 'net' twice, expected once"),
        ([network(nodes=[*network()["nodes"], network()["nodes"][0]])], "'net': found a node's id twice"),
        ([network(edges=[{"s": "0", "t": "9", "km": 1}])], "found an edge of '9', expected the id of a node"),
        ([network(edges=[{"s": "0", "t": "1", "km": -1}])], "edge 0-1: found -1.0 km, expected 0 or more"),
        ([network(edges=[{"s": "0", "t": "1", "km": None}])], "Expected `float`, got `null`"),
        ([network(nodes=[{"id": "0", "name": "x", "lon": 0, "lat": 91}], edges=[])], "'x' at lon 0.0, lat 91.0"),
        ([network(nodes=[{"id": "0", "name": "x", "lon": 283, "lat": 9}], edges=[])], "lon 283.0, lat 9.0, exp"),
    ],
)  # fmt: skip
def test_a_malformed_file_of_topologies_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    path = write_gz(tmp_path / "some.json.gz", text)

    with pytest.raises(UnderlayError, match=message):
        read_topologies(path)


def test_a_file_that_is_no_gzip_or_ends_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.json.gz"
    whole = gzip.compress(json.dumps([network()]).encode())

    for content in (b"no json", whole[:-20], whole[:15] + b"\xff" * 30, gzip.compress(b'[{"name": "\xff"}]')):
        path.write_bytes(content)
        with pytest.raises(UnderlayError, match=r"some.json.gz: found .*, expected a list of networks"):
            read_topologies(path)


def test_a_file_may_be_gzipped_or_not_and_must_be_there(tmp_path: Path) -> None:
    plain, zipped = tmp_path / "plain.json", tmp_path / "zipped.json.gz"
    plain.write_text(json.dumps([network()]))
    zipped.write_bytes(gzip.compress(plain.read_bytes()))

    assert read_topologies(plain) == read_topologies(zipped)
    with pytest.raises(UnderlayError, match="found No such file or directory, expected a file of networks"):
        read_topologies(tmp_path / "none.json")


SERVERS = "id,name,country,continent,lat,lon\n7,A,X,1,0,0\n3,B,X,1,0,10\n5,C,X,1,0,20\n"  # 1112 km apart
RTT = "source,destination,min,avg,max,mdev\n"


def write_latency(folder: Path, servers: str, rtt: str) -> Path:
    (folder / "servers.csv").write_text(servers)
    write_gz(folder / "rtt_ms.csv.gz", rtt)
    return folder


def test_the_least_round_trip_that_light_can_make_counts(tmp_path: Path) -> None:
    # Light takes 7.4 ms to B and back, 14.8 ms to C.
    rows = "7,7,0,1,1,0\n7,3,20,21,22,0\n3,7,18,19,40,0\n7,5,14,30,31,0\n5,7,33,34,35,0\n5,3,7,30,31,0\n5,99,1,1,1,1\n"

    measured = read_latency(write_latency(tmp_path, SERVERS, RTT + rows))

    assert [city.name for city in measured.cities] == ["A", "B", "C"]
    expected = [[0.0, 0.018, 0.033], [0.018, np.nan, np.nan], [0.033, np.nan, np.nan]]
    assert np.array_equal(measured.rtt_s, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("servers", "rtt", "message"),
    [
        ("id,name\n1,A\n", RTT, "servers.csv, line 2: found .*'A'.*, expected id, name, lat, lon"),
        ("id,name,lat,lon\n1,A,x,0\n", RTT, "servers.csv, line 2: found .*, expected id, name, lat, lon"),
        ("id,name,lat,lon\n1,A\n", RTT, "servers.csv, line 2: found .*, expected id, name, lat, lon"),
        ("id,name,lat,lon\n1,A,95,0\n", RTT, "servers.csv, line 2: found 'A' at lon 0.0, lat 95.0, expected"),
        (SERVERS + "7,D,X,1,0,0\n", RTT, "servers.csv, line 5: found the id 7 twice, expected once"),
        (SERVERS, "source,min\n7,1\n", "rtt_ms.csv.gz, line 2: found .*, expected source, destination, min"),
        (SERVERS, RTT + "7,3,20\n7,3,fast\n", "rtt_ms.csv.gz, line 3: found .*, expected source, destination"),
        (SERVERS, RTT + "7,3,-1\n", "rtt_ms.csv.gz, line 2: found a round trip of -1 ms, expected 0 or more"),
        (SERVERS, RTT + "7,3,nan\n", "rtt_ms.csv.gz, line 2: found a round trip of nan ms, expected 0 or more"),
    ],
)  # fmt: skip
def test_malformed_latencies_are_refused(tmp_path: Path, servers: str, rtt: str, message: str) -> None:
    folder = write_latency(tmp_path, servers, rtt)

    with pytest.raises(UnderlayError, match=message):
        read_latency(folder)


def test_latencies_that_are_no_gzip_or_no_text_are_refused(tmp_path: Path) -> None:
    folder = write_latency(tmp_path, SERVERS, RTT)

    (folder / "rtt_ms.csv.gz").write_bytes(b"source,destination\n")
    with pytest.raises(UnderlayError, match=r"rtt_ms.csv.gz: found Not a gzipped file .*, expected a table"):
        read_latency(folder)
    (folder / "servers.csv").write_bytes(b"id,name,lat,lon\n1,\xff,0,0\n")
    with pytest.raises(UnderlayError, match=r"servers.csv: found 'utf-8' codec .*, expected a table of text"):
        read_latency(folder)


# The data at hand, of which others may have another part


@needs_topologies
@pytest.mark.parametrize("family", ["caida", "sndlib", "topozoo"])
def test_all_topologies_of_a_family_become_networks(family: str) -> None:
    topologies = read_topologies(TOPOLOGIES / f"{family}.json.gz")

    assert len(topologies) >= 10
    for name, topology in topologies.items():
        net = real(topology)
        assert topology.kind == family
        assert net.name == name  # all are in one part
        assert len(net.kinds) == len(topology.nodes)
        assert len(net.arcs) == 2 * len({frozenset(link[:2]) for link in topology.links})
        assert np.array_equal(net.counted, net.hops)
        assert 0 < net.delay_s.max() < 0.5
        assert (len(set(net.arc_delay_s.tolist())) == 1) == topology.abstract


@needs_topologies
def test_abstract_topologies_are_those_whose_places_are_none() -> None:
    topologies = read_topologies(TOPOLOGIES / "sndlib.json.gz")

    for topology in topologies.values():
        off_earth = any(abs(node.lat) > 90 or abs(node.lon) > 180 for node in topology.nodes)
        assert topology.abstract or not off_earth
    assert any(topology.abstract for topology in topologies.values())


@needs_topologies
@needs_latency
def test_measured_latencies_reach_many_links_and_slow_most_of_them() -> None:
    measured = read_latency(LATENCY)
    topologies = read_topologies(TOPOLOGIES / "topozoo.json.gz")
    ratios: list[float] = []
    for topology in topologies.values():
        plain, slower = real(topology), real(topology, measured)
        moved = plain.arc_delay_s != slower.arc_delay_s
        ratios += (slower.arc_delay_s[moved] / plain.arc_delay_s[moved]).tolist()

    assert np.array_equal(measured.rtt_s, measured.rtt_s.T, equal_nan=True)
    assert len(ratios) > 500
    assert np.mean(np.array(ratios) > 1) > 0.9


@needs_topologies
def test_routes_on_a_real_network_are_those_of_brute_force() -> None:
    topologies = read_topologies(TOPOLOGIES / "sndlib.json.gz")
    smallest = sorted(topologies.values(), key=lambda topology: (len(topology.nodes), topology.name))[:6]

    for topology in smallest:
        net = real(topology)
        for (a, b), (delay_ns, hops, way) in brute_force(net).items():
            assert net.delay_s[a, b] == delay_ns / 1e9
            assert net.hops[a, b] == hops
            assert routers_on(net, a, b) == way
