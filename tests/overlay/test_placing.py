"""Placement of operators: the order of search, loads, and policies on small random worlds, with oracles."""

from collections import Counter
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorgrid.index.zorder import Range
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.placing.demand import (
    Costs,
    DemandTerm,
    Merge,
    OperatorDemand,
    PlacementPolicy,
    PlacingOrder,
    SensorPlaces,
    middle_of,
)
from sensorgrid.overlay.placing.dsm import DomainSpacePlacement, LeafName
from sensorgrid.overlay.placing.line import IdLine, Ranges, joined, roundest, within, without
from sensorgrid.overlay.placing.ours import (
    FAN_IN,
    ROOM,
    JointName,
    OurPlacement,
    PartName,
    least_loaded,
    quarters,
)
from sensorgrid.overlay.placing.paper import FilterName, PaperPlacement
from sensorgrid.overlay.placing.transfers import Name, Step, Transfers

DIGITS = 8
SIZE = 1 << DIGITS
HALF, TENTH = Fraction(1, 2), Fraction(1, 10)

places = st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=24, unique=True)
range_of = st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)).map(lambda p: (min(p), max(p) + 1))
areas = st.lists(range_of, min_size=1, max_size=4).map(
    lambda found: area_of({n for a, b in found for n in range(a, b)})
)


def area_of(ids: set[int]) -> Ranges:
    """An area of single IDs."""
    return joined((n, n + 1) for n in ids)


def ids_of(area: Ranges) -> list[int]:
    return [n for start, stop in area for n in range(start, stop)]


def line_of(found: list[int]) -> IdLine:
    return IdLine({PeerId(n): place for n, place in enumerate(found)}, DIGITS)


# the line


@given(places, st.data())
@settings(max_examples=50)
def test_the_order_of_search_is_larger_smaller_then_one_bit_shorter(
    found: list[int], data: st.DataObject
) -> None:
    me = data.draw(st.integers(0, len(found) - 1))
    expected: list[int] = []
    for length in range(DIGITS, -1, -1):  # bits that are shared
        alike = [p for p in found if f"{p:08b}"[:length] == f"{found[me]:08b}"[:length] and p not in expected]
        expected += sorted(p for p in alike if p > found[me])
        expected += sorted((p for p in alike if p < found[me]), reverse=True)

    assert [found[node] for node in line_of(found).search(PeerId(me))] == expected


@given(places, areas)
@settings(max_examples=50)
def test_pieces_give_each_id_of_an_area_to_its_owner_once(found: list[int], area: Ranges) -> None:
    line = line_of(found)
    owner = {n: max((p for p in found if p <= n), default=max(found)) for n in range(SIZE)}

    pieces = line.pieces(area)

    assert sorted(n for _, part in pieces for n in range(*part)) == ids_of(area)
    assert all(found[node] == owner[n] for node, part in pieces for n in range(*part))
    assert all(found[line.owner(n)] == owner[n] for n in ids_of(area))
    regions = [n for node in line.nodes for n in ids_of(line.region(node))]
    assert sorted(regions) == list(range(SIZE))


@given(places, st.integers(0, SIZE - 1))
def test_nodes_from_an_id_on_go_upwards_and_around(found: list[int], leaf: int) -> None:
    expected = sorted(p for p in found if p >= leaf) + sorted(p for p in found if p < leaf)

    assert [found[node] for node in line_of(found).from_id(leaf)] == expected


@given(areas, range_of)
@settings(max_examples=50)
def test_an_area_is_its_parts_within_and_without_a_range(area: Ranges, cut: Range) -> None:
    inside, outside = within(area, *cut), without(area, *cut)

    assert set(ids_of(inside)) == set(ids_of(area)) & set(range(*cut))
    assert set(ids_of(outside)) == set(ids_of(area)) - set(range(*cut))
    assert joined((*inside, *outside)) == area


@given(st.integers(0, SIZE), st.integers(1, SIZE))
def test_the_roundest_id_has_most_zeros_at_its_end(start: int, length: int) -> None:
    def zeros(number: int) -> int:
        return len(bin(number)) - len(bin(number).rstrip("0")) if number else 99

    found = roundest(start, start + length)

    assert start <= found < start + length
    assert zeros(found) == max(zeros(n) for n in range(start, start + length))


@given(areas, st.sampled_from([DIGITS, DIGITS + 1]))
@settings(max_examples=50)
def test_quarters_are_parts_of_squares_and_lose_nothing(area: Ranges, digits: int) -> None:
    if len(ids_of(area)) == 1:
        return

    found = quarters(area, digits)

    assert 2 <= len(found) <= 4
    assert joined(part for quarter in found for part in quarter) == area
    for quarter in found:
        lengths = [
            n for n in range(0, digits + 1) if quarter[0][0] >> digits - n == quarter[-1][1] - 1 >> digits - n
        ]
        assert max(lengths) >= 2 - (digits & 1)


def test_a_half_of_the_map_is_merged_of_quarters_that_others_know_too() -> None:
    assert quarters(((0, 128),), DIGITS) == [((0, 64),), ((64, 128),)]
    assert quarters(((0, 32),), DIGITS) == [((0, 16),), ((16, 32),)]


@given(st.lists(st.integers(0, SIZE - 1), max_size=30).map(lambda found: tuple(sorted(found))), areas)
@settings(max_examples=50)
def test_a_region_is_cut_with_sensors_on_both_sides(found: tuple[int, ...], area: Ranges) -> None:
    sensors = SensorPlaces(found)
    ids = set(ids_of(area))
    inside = [place for place in found if place in ids]

    middle = middle_of(sensors, area)

    if middle is None:
        assert len(set(inside)) < 2
    else:
        assert inside[0] < middle <= inside[-1]
    assert sensors.count(area) == len(inside)


# load by message


def by_messages(transfers: Transfers) -> dict[PeerId, int]:
    """Loads from nothing but the messages."""
    found = dict.fromkeys(transfers.load, 0)
    for sender, receiver, messages in transfers.flows():
        for node in (sender, receiver):
            if node is not None:
                found[node] += messages
    return found


def histories() -> st.SearchStrategy[Transfers]:
    """Steps that came, moved, changed and went in any order; few nodes, so that much is shared."""
    return st.integers(0, 1 << 32).map(lambda seed: history_of(Random(seed)))


def history_of(rng: Random) -> Transfers:
    transfers = Transfers(PeerId(n) for n in range(4))
    for number in range(rng.randrange(40)):
        names = list(transfers.steps)
        host, rate = PeerId(rng.randrange(4)), rng.randrange(1, 10)
        what = rng.choice(
            ["put", "put", "put", "move", "move", "rerate", "deliver", "rewire", "drop", "sense"]
        )
        if what == "sense":
            transfers.sense(host, rate)
        elif what == "put" or not names:
            inputs = tuple(rng.sample(names, rng.randint(0, min(4, len(names)))))
            transfers.put(number, Step(host, rate, inputs, rng.choice([0, 0, 1, 2])))
        else:
            name = rng.choice(names)
            older = [other for other in names if isinstance(other, int) and other < name]
            if what == "move":
                transfers.move(name, host)
            elif what == "rerate":
                transfers.rerate(name, rate)
            elif what == "deliver":
                transfers.deliver(name, 1)
            elif what == "rewire":
                transfers.rewire(name, tuple(rng.sample(older, rng.randint(0, min(4, len(older))))))
            elif what == "drop" and not transfers.users(name):
                transfers.drop(name)
    return transfers


@given(histories())
@settings(deadline=None, max_examples=50)
def test_loads_after_any_history_are_those_of_a_fresh_build(transfers: Transfers) -> None:
    fresh = Transfers(transfers.load)
    for _, receiver, messages in (flow for flow in transfers.flows() if flow[0] is None):
        assert receiver is not None
        fresh.sense(receiver, messages)
    for name in sorted(transfers.steps, key=lambda n: n if isinstance(n, int) else 0):
        fresh.put(name, transfers.steps[name])

    assert transfers.load == by_messages(transfers) == fresh.load


@given(histories())
@settings(deadline=None, max_examples=50)
def test_the_sum_over_nodes_is_the_sum_over_messages(transfers: Transfers) -> None:
    ends = sum(messages * ((a is not None) + (b is not None)) for a, b, messages in transfers.flows())

    assert sum(transfers.load.values()) == ends
    assert all(a != b for a, b, _ in transfers.flows())


@given(histories(), st.data())
@settings(deadline=None, max_examples=50)
def test_a_load_that_is_foretold_is_the_load_after_the_move(
    transfers: Transfers, data: st.DataObject
) -> None:
    if not transfers.steps:
        return
    name, host = data.draw(st.sampled_from(list(transfers.steps))), PeerId(data.draw(st.integers(0, 3)))
    before = transfers.steps[name].host
    foretold, left = transfers.load_if(name, host), transfers.load_left(name)

    transfers.move(name, host)
    assert transfers.load[host] == foretold
    transfers.enter(PeerId(9))
    transfers.move(name, before)
    transfers.move(name, PeerId(9))
    assert transfers.load[before] == left


# policies

SYSTEMS = ("paper", "ours", "dsm", "dsm-calc")


def policy_of(
    system: str, line: IdLine, sensors: SensorPlaces, costs: Costs, balanced: bool = True
) -> PlacementPolicy:
    if system == "paper":
        return PaperPlacement(line, sensors, costs, balanced)
    if system == "ours":
        return OurPlacement(line, sensors, costs, balanced)
    return DomainSpacePlacement(line, sensors, costs, balanced, system == "dsm-calc")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[IdLine, SensorPlaces, Costs]:
    line = line_of(draw(places))
    sensors = SensorPlaces(tuple(sorted(draw(st.lists(st.integers(0, SIZE - 1), max_size=200)))))
    merge = draw(st.sampled_from(Merge))
    return line, sensors, Costs(draw(st.integers(50, 20_000)), 100, HALF, TENTH, merge)


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[bool, OperatorDemand]]:
    """Subscriptions that begin (True) and end."""
    found: list[tuple[bool, OperatorDemand]] = []
    running: list[OperatorDemand] = []
    for number in range(draw(st.integers(1, 8))):
        if running and draw(st.integers(0, 3)) == 0:
            found.append((False, running.pop(draw(st.integers(0, len(running) - 1)))))
        else:
            terms = tuple(
                DemandTerm(draw(st.sampled_from(["rain", "level"])), area)
                for area in draw(st.lists(areas, min_size=1, max_size=2))
            )
            running.append(OperatorDemand(f"d{number}", draw(st.integers(0, SIZE - 1)), terms))
            found.append((True, running[-1]))
    return found


def leaves_of(transfers: Transfers, name: Name) -> list[Name]:
    """What a step rests on."""
    inputs = transfers.steps[name].inputs
    return [leaf for source in inputs for leaf in leaves_of(transfers, source)] if inputs else [name]


def counted(policy: PlacementPolicy, demand: OperatorDemand) -> Counter[tuple[str, int]]:
    """How often each ID counts for a subscription, by expression."""
    transfers, found = policy.transfers, Counter[tuple[str, int]]()
    roots = [name for name in transfers.steps if transfers.steps[name].delivered and wanted_by(name, demand)]
    assert len(roots) == 1
    for leaf in leaves_of(transfers, roots[0]):
        if isinstance(leaf, FilterName):
            found.update((demand.terms[leaf.term].expression, n) for n in range(*leaf.part))
        elif isinstance(leaf, LeafName):
            found.update((demand.terms[leaf.term].expression, n) for n in ids_of(leaf.area))
        else:
            assert isinstance(leaf, JointName | PartName)
            found.update((leaf.expression, n) for n in ids_of(leaf.area))
    return found


def wanted_by(name: Name, demand: OperatorDemand) -> bool:
    if isinstance(name, JointName):
        different = set(demand.terms)
        return len(different) == 1 and (name.expression, name.area) == (
            demand.terms[0].expression,
            demand.terms[0].area,
        )
    return name == demand.name or getattr(name, "demand", None) == demand.name


def check_history(
    system: str, world: tuple[IdLine, SensorPlaces, Costs], history: list[tuple[bool, OperatorDemand]]
) -> None:
    """Whatever begins and ends: every reading counts once, every message is counted, and balancing comes to an end."""
    line, sensors, costs = world
    policy = policy_of(system, line, sensors, costs)
    transfers, running = policy.transfers, dict[str, OperatorDemand]()
    empty = dict(transfers.load)
    for begins, demand in history:
        if begins:
            policy.add(demand)
            running[demand.name] = demand
        else:
            policy.remove(demand)
            del running[demand.name]
        orders = policy.balance()

        assert transfers.load == by_messages(transfers)
        assert sum(m for a, _, m in transfers.flows() if a is None) == len(sensors.places) * costs.publish
        assert all(step.delivered or transfers.users(name) for name, step in transfers.steps.items())
        assert policy.balance() == []  # nothing is left to be done, and nothing goes back and forth
        assert all(order.source != order.target for order in orders if order.kind != "halve")
        for one in running.values():
            expected = Counter((t.expression, n) for t in _different(system, one) for n in ids_of(t.area))
            assert counted(policy, one) == expected

    for demand in running.values():
        policy.remove(demand)
    assert not transfers.steps
    if system == "paper":  # in the others, sensors may have moved
        assert transfers.load == empty


@pytest.mark.parametrize("system", SYSTEMS)
@given(worlds(), turns())
@settings(deadline=None, max_examples=20)
def test_every_reading_counts_once_and_every_message_is_counted(
    system: str, world: tuple[IdLine, SensorPlaces, Costs], history: list[tuple[bool, OperatorDemand]]
) -> None:
    check_history(system, world, history)


@pytest.mark.long
@pytest.mark.parametrize("system", SYSTEMS)
@given(worlds(), turns())
@settings(deadline=None, max_examples=500)
def test_so_it_is_in_many_worlds(
    system: str, world: tuple[IdLine, SensorPlaces, Costs], history: list[tuple[bool, OperatorDemand]]
) -> None:
    check_history(system, world, history)


def _different(system: str, demand: OperatorDemand) -> tuple[DemandTerm, ...]:
    """Terms that count: ours takes equal ones once."""
    return tuple(dict.fromkeys(demand.terms)) if system == "ours" else demand.terms


@pytest.mark.parametrize("system", ["paper", "ours"])
@given(worlds(), turns())
@settings(deadline=None, max_examples=25)
def test_an_order_takes_no_node_above_its_limit(
    system: str, world: tuple[IdLine, SensorPlaces, Costs], history: list[tuple[bool, OperatorDemand]]
) -> None:
    line, sensors, costs = world
    policy = policy_of(system, line, sensors, costs)
    room = costs.limit if system == "paper" else int(costs.limit * ROOM)
    for begins, demand in history:
        (policy.add if begins else policy.remove)(demand)
        over = {node for node, load in policy.transfers.load.items() if load > costs.limit}
        orders = policy.balance()

        roots = {line.owner(d.place) for _, d in history}
        taken = {order.target for order in orders if order.kind != "halve"} - roots
        assert all(policy.transfers.load[node] <= room for node in taken - over)


def uniform(nodes: int, sensors: int, costs: Costs, system: str = "ours") -> PlacementPolicy:
    step = SIZE // nodes
    line = line_of([n * step for n in range(nodes)])
    return policy_of(system, line, SensorPlaces(tuple(n * SIZE // sensors for n in range(sensors))), costs)


CHEAP = Costs(10**9, 1000, HALF, TENTH)


def test_the_least_loaded_of_those_with_room_takes_a_step() -> None:
    """Of the inputs' nodes and the first 16; if none of them has room, of the first 64; then of all."""
    nodes = [PeerId(n) for n in range(100)]

    def chosen(loads: dict[int, int], room: int = 90) -> tuple[int, int]:
        found, asked = least_loaded(nodes[:2], iter(nodes[2:]), lambda node: loads.get(node, 99), room)
        return found, len(asked)

    assert chosen({1: 80, 5: 70, 17: 60, 18: 10}) == (17, 18)
    assert chosen({18: 80, 65: 10, 66: 5}) == (65, 66)
    assert chosen({66: 90, 99: 20}) == (99, 100)
    assert chosen({7: 95, 70: 91}) == (70, 100)  # no room anywhere


def test_a_joint_leaves_a_tenth_of_a_node_free() -> None:
    """All nodes but one that is far away would have between 0.9 and 1 of the limit with it."""
    policy = uniform(32, 64, Costs(100_000, 1000, HALF, TENTH))
    for node in range(31):
        policy.transfers.sense(PeerId(node), 90_000 - policy.transfers.load[PeerId(node)])

    policy.add(OperatorDemand("a", 3, (DemandTerm("rain", ((0, 64),)),)))

    assert policy.transfers.steps[JointName("rain", ((0, 64),))].host == 31


def test_ours_begins_nothing_twice() -> None:
    policy = uniform(16, 64, CHEAP)
    policy.add(OperatorDemand("a", 3, (DemandTerm("rain", ((0, 256),)),)))
    steps, load = dict(policy.transfers.steps), sum(policy.transfers.load.values())

    policy.add(OperatorDemand("b", 200, (DemandTerm("rain", ((0, 256),)),)))
    policy.add(OperatorDemand("c", 90, (DemandTerm("rain", ((64, 128),)),)))

    assert set(policy.transfers.steps) == set(steps)
    rates = [policy.transfers.steps[JointName("rain", area)].rate for area in (((0, 256),), ((64, 128),))]
    assert sum(policy.transfers.load.values()) == load + sum(rates)
    policy.remove(OperatorDemand("a", 3, (DemandTerm("rain", ((0, 256),)),)))
    assert set(policy.transfers.steps) == set(steps)


def test_ours_ends_a_stream_once_that_is_wanted_by_itself_and_as_a_part() -> None:
    policy = uniform(16, 64, CHEAP)
    demand = OperatorDemand("a", 3, (DemandTerm("rain", ((0, 256),)), DemandTerm("rain", ((0, 64),))))
    policy.add(demand)

    policy.remove(demand)

    assert not policy.transfers.steps


def test_ours_merges_quarters_above_eight_edges() -> None:
    policy = uniform(32, 64, CHEAP)
    policy.add(OperatorDemand("a", 3, (DemandTerm("rain", ((0, 256),)),)))

    steps = policy.transfers.steps
    whole = steps[JointName("rain", ((0, 256),))]
    assert whole.inputs == tuple(JointName("rain", ((n, n + 64),)) for n in range(0, 256, 64))
    assert all(len(steps[quarter].inputs) == FAN_IN for quarter in whole.inputs)


def test_a_merge_gives_a_message_a_tick_or_all_that_it_gets() -> None:
    assert (Merge.TICK.rate([3, 8, 5]), Merge.KEEP.rate([3, 8, 5]), Merge.TICK.rate([])) == (8, 16, 0)


def test_ours_relieves_an_edge_of_sensors_and_nothing_is_lost() -> None:
    """One node has all sensors: more than it can read."""
    line = line_of([0, 128, 160, 192])
    sensors = SensorPlaces(tuple(range(0, 100)))
    policy = OurPlacement(line, sensors, Costs(40_000, 1000, HALF, TENTH))
    policy.add(OperatorDemand("a", 3, (DemandTerm("rain", ((0, 256),)),)))
    assert policy.transfers.load[PeerId(0)] > 100_000

    orders = policy.balance()

    assert {order.kind for order in orders} == {"region"}
    assert len(orders) > 1
    assert max(policy.transfers.load.values()) <= 40_000
    steps = policy.transfers.steps
    assert all(step.delivered or policy.transfers.users(name) for name, step in steps.items())
    given = [n for order in orders for n in ids_of(_area(order))]
    assert len(given) == len(set(given))
    demand = OperatorDemand("b", 3, (DemandTerm("rain", ((5, 90),)),))
    policy.add(demand)  # begins after the sensors have moved
    assert counted(policy, demand) == Counter(("rain", n) for n in range(5, 90))


def _area(order: PlacingOrder) -> Ranges:
    assert isinstance(order.name, tuple)
    return order.name


def test_ours_moves_a_joint_away_from_a_node_that_is_overloaded_later() -> None:
    policy = uniform(8, 64, Costs(30_000, 1000, HALF, TENTH))
    policy.add(OperatorDemand("a", 3, (DemandTerm("rain", ((0, 256),)),)))
    joint = JointName("rain", ((0, 256),))
    host = policy.transfers.steps[joint].host
    policy.transfers.sense(host, 19_000)

    (order,) = policy.balance()

    assert (order.kind, order.name, order.source) == ("move", joint, host)
    assert policy.transfers.load[host] <= 30_000
    assert policy.transfers.steps[joint].host == order.target


def test_dsm_adds_a_node_for_half_of_an_overloaded_leaf_and_leaves_roots_alone() -> None:
    policy = uniform(8, 64, Costs(20_000, 1000, HALF, TENTH), "dsm")
    root = PeerId(0)
    policy.add(OperatorDemand("a", 0, (DemandTerm("rain", ((0, 256),)),)))
    before = policy.transfers.load[root]

    orders = policy.balance()

    assert [order.target for order in orders] == [8, 9, 10][: len(orders)]
    assert policy.transfers.load[root] == before > 20_000
    assert isinstance(policy, DomainSpacePlacement)
    assert policy.added == len(orders) == 3
