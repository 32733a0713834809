import math
from functools import cache
from itertools import combinations, islice, product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from oracles import boxes_on, leaf_digits, limits_on, query_mask, small_grids
from sensorgrid import Grid, Query
from sensorgrid.experiments.bounds import (
    LeafDemand,
    LeafLoad,
    flow_bound,
    integer_bound,
    knapsack,
    load_bound,
    replication_bound,
)
from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import decompose, restrict
from sensorgrid.index.layout import layout_of
from sensorgrid.model.errors import CellError, QueryError
from sensorgrid.simulator.workloads import HOT_SPOTS, paper_grid, queries

T = "air_temperature"


def some(count: int, name: str = "small", seed: int = 1) -> list[Query]:
    return list(islice(queries(HOT_SPOTS[name], paper_grid(4), Random(seed)), count))


# The truth, by trying everything.


@cache
def spreadings(owner: int, brokers: int) -> list[tuple[frozenset[int], tuple[int, ...]]]:
    """All ways to spread a leaf: who holds it, and how many copies each broker sends; fewest copies first."""
    found = []
    others = [b for b in range(brokers) if b != owner]
    for size in range(brokers):
        for takers in combinations(others, size):
            for senders in product([owner, *others], repeat=size):
                if spreads(owner, dict(zip(takers, senders, strict=True))):
                    sent = tuple(senders.count(b) for b in range(brokers))
                    found.append((frozenset((owner, *takers)), sent))
    return found


def spreads(owner: int, sender_of: dict[int, int]) -> bool:
    """Whether every taker's chain of senders leads back to the owner."""
    for taker in sender_of:
        seen = set()
        while taker != owner:
            if taker in seen or taker not in sender_of:
                return False
            seen.add(taker)
            taker = sender_of[taker]
    return True


def fewest_copies(load: LeafLoad) -> float:
    """The fewest copies with which brokers can serve all clients, over all replicas and all ways to send them.

    Who serves whom is a transportation problem. By Hall's theorem it has a solution if no set of brokers is
    left alone with more than it can send.
    """
    brokers = len(load.demand)
    wanted = [(b, d) for b, row in enumerate(load.demand) for d in row if d > 0]
    sets = [frozenset(c) for n in range(1, brokers + 1) for c in combinations(range(brokers), n)]
    best = math.inf
    for choice in product(*(spreadings(b, brokers) for b, _ in wanted)):
        copies = sum(len(holders) - 1 for holders, _ in choice)
        if copies >= best:
            continue
        left = [load.budget_points - load.leaf_points * sum(s[b] for _, s in choice) for b in range(brokers)]
        if min(left) >= 0 and all(
            sum(d for (_, d), (holders, _) in zip(wanted, choice, strict=True) if holders <= together)
            <= sum(left[b] for b in together)
            for together in sets
        ):
            best = copies
    return best


@st.composite
def small_loads(draw: st.DrawFn) -> LeafLoad:
    """Three brokers, up to four leaves that somebody wants: small enough to try everything."""
    demand = np.zeros((3, 2))
    for place in draw(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)):
        demand[place // 2, place % 2] = draw(st.integers(1, 40))
    return LeafLoad(demand, leaf_points=draw(st.integers(1, 6)), budget_points=draw(st.integers(5, 30)))


@settings(max_examples=150)
@given(small_loads())
def test_no_bound_is_above_what_trying_everything_finds(load: LeafLoad) -> None:
    bounds = [bound(load) * load.demand.size for bound in (knapsack, flow_bound, integer_bound)]

    assert bounds == sorted(bounds)
    assert bounds[-1] <= fewest_copies(load)


def test_who_sends_the_second_copy_is_left_open() -> None:
    """Two copies would do, but whoever holds one is full; only a broker without a copy has room to send."""
    load = LeafLoad(np.array([[60.0], [9.0], [2.0], [0.0]]), leaf_points=3, budget_points=22)

    assert [bound(load) * 4 for bound in (knapsack, flow_bound, integer_bound)] == [2, 2, 2]
    assert fewest_copies(load) == 3


def test_a_bound_is_reached_where_one_copy_will_do() -> None:
    load = LeafLoad(np.array([[20.0, 10.0], [0.0, 0.0], [5.0, 5.0]]), leaf_points=2, budget_points=25)

    assert knapsack(load) == integer_bound(load) == 1 / 6
    assert fewest_copies(load) == 1


@settings(max_examples=200)
@given(st.lists(st.integers(1, 90), min_size=1, max_size=5), st.integers(1, 30), st.integers(40, 60))
def test_the_knapsack_is_the_linear_program_of_one_giver(wanted: list[int], leaf: int, budget: int) -> None:
    """Many brokers without demand: one room is as large as the next, and there is enough of it."""
    demand = np.zeros((200, len(wanted)))
    demand[0] = wanted
    load = LeafLoad(demand, leaf_points=leaf, budget_points=budget)

    found = knapsack(load) * demand.size

    d = demand[0]
    result = linprog(
        1 / np.minimum(d, budget),
        A_ub=[-(1 - leaf / d)],
        b_ub=[-max(d.sum() - budget, 0)],
        bounds=[(0, most) for most in d],
    )
    assert found == pytest.approx(math.ceil(result.fun - 1e-6) if result.success else math.inf)


def test_small_takers_need_more_copies_than_the_knapsack_sees() -> None:
    load = LeafLoad(np.array([[60.0], [10.0], [25.0], [25.0], [25.0]]), leaf_points=1, budget_points=30)

    assert knapsack(load) * 5 == 2
    assert flow_bound(load) * 5 == integer_bound(load) * 5 == 4


def test_whole_copies_can_be_more_than_fractions_of_them() -> None:
    """The large taker has room for all but a little of what two givers have over."""
    load = LeafLoad(np.array([[30.0], [30.0], [0.0], [16.0]]), leaf_points=1, budget_points=20)

    assert flow_bound(load) * 4 == 2
    assert integer_bound(load) * 4 == 3 == fewest_copies(load)


def test_a_program_that_would_be_too_large_falls_back_to_the_knapsack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = LeafLoad(np.array([[60.0], [10.0], [25.0], [25.0], [25.0]]), leaf_points=1, budget_points=30)
    monkeypatch.setattr("sensorgrid.experiments.bounds.VARIABLES_MAX", 3)

    assert flow_bound(load) == integer_bound(load) == knapsack(load)


def test_a_bound_that_time_ran_out_for_still_holds() -> None:
    asked = some(900, "large")
    demand = demand_of(paper_grid(4), asked, 8)

    load = demand.load(len(demand))

    assert flow_bound(load) <= integer_bound(load, seconds=0.01) < 0.2


def test_nobody_gives_where_all_are_within_their_budget() -> None:
    load = LeafLoad(np.full((4, 4), 3.0), leaf_points=1, budget_points=12)

    assert knapsack(load) == flow_bound(load) == integer_bound(load) == 0


@pytest.mark.parametrize(
    ("demand", "reason"),
    [
        ([[30.0], [30.0]], "all budgets are spent"),
        ([[24.0, 0.0], [15.9, 0.0]], "the clients fit, but not with the copy"),
        ([[1.5] * 16, [0.0] * 16], "each copy would cost more than it relieves"),
    ],
)
def test_a_load_that_nobody_can_serve_has_no_replication(demand: list[list[float]], reason: str) -> None:
    leaf = 2 if len(demand[0]) > 2 else 1
    load = LeafLoad(np.array(demand), leaf_points=leaf, budget_points=20)

    assert knapsack(load) == flow_bound(load) == integer_bound(load) == math.inf, reason


# LeafDemand


def demand_of(grid: Grid, asked: list[Query], depth: int) -> LeafDemand:
    demand = LeafDemand(grid, depth)
    for query in asked:
        demand.add(query)
    return demand


@settings(max_examples=60)
@given(st.data())
def test_demand_is_what_counting_every_point_gives(data: st.DataObject) -> None:
    grid = data.draw(small_grids())
    asked = []
    for _ in range(data.draw(st.integers(1, 3))):
        box, limits = data.draw(boxes_on(grid)), data.draw(limits_on(grid))
        part = tuple(n / 2**b for n, b in zip(limits, grid.resolution_bits, strict=True))
        query = Query(T, grid.bbox_of(box), part)  # type: ignore[arg-type]
        if query_mask(grid, grid.box_of(grid.bbox_of(box)), limits).any():
            asked.append((query, limits))
    demand = demand_of(grid, [q for q, _ in asked], data.draw(st.integers(0, 9)))

    expected = np.zeros(1 << demand.depth, dtype=int)
    for query, limits in asked:
        mask = query_mask(grid, query.box(grid), limits)
        for tick, iy, ix in np.argwhere(mask):
            expected[int("0" + leaf_digits(grid, ix, iy, tick)[: demand.depth], 2)] += 1
    assert demand.leaves().tolist() == expected.tolist()
    assert sum(demand.sizes) == expected.sum()


@pytest.mark.parametrize("dims", [2, 3, 4, 5])
@pytest.mark.parametrize("depth", [4, 7, 10])
def test_demand_is_what_the_index_gives(dims: int, depth: int) -> None:
    grid, asked = paper_grid(dims), some(10)
    leaves = [Cell(1 << depth | i) for i in range(1 << depth)]

    demand = demand_of(grid, asked, depth)

    expected = np.zeros(1 << depth, dtype=int)
    digits = layout_of(grid).digits
    for query in asked:
        parts = restrict(decompose(query, grid, depth), leaves)
        expected[parts.starts >> (digits - depth)] += parts.points
    assert demand.leaves().tolist() == expected.tolist()


def test_the_demand_of_a_prefix_is_that_of_its_queries() -> None:
    grid, asked = paper_grid(4), some(30)

    whole = demand_of(grid, asked, 8)

    for count in (0, 1, 17, 30):
        assert whole.leaves(count).tolist() == demand_of(grid, asked[:count], 8).leaves().tolist()


def test_leaves_are_no_shorter_than_a_region_and_no_longer_than_the_grids() -> None:
    assert LeafDemand(paper_grid(4), 2).depth == 4
    assert LeafDemand(paper_grid(2), 14).depth == 12
    with pytest.raises(CellError, match=r"depth: found 30, expected a whole number in \[0, 16\]"):
        LeafDemand(paper_grid(4), 30)


def test_demand_is_counted_for_one_attribute_at_a_time() -> None:
    with pytest.raises(QueryError, match="found air_temperature, wind_speed, expected one"):
        LeafDemand(Grid(), 8).add(Query(["air_temperature", "wind_speed"]))


# Sequences


def test_sixteen_brokers_serve_what_each_can_where_nothing_has_to_move() -> None:
    whole_world = Query(T)

    assert load_bound([whole_world] * 40, paper_grid(4), 8) == 25
    assert replication_bound([whole_world] * 40, paper_grid(4), 8, load=20) == 0


def test_what_one_client_alone_wants_cannot_be_shared() -> None:
    region = Query(T, bbox=(256, 256, 512, 512))

    assert load_bound([region] * 9, paper_grid(4), 8, budget=0.5) == 0
    assert load_bound([region] * 9, paper_grid(4), 8, budget=1) >= 2 / 16


@pytest.mark.parametrize("method", ["knapsack", "flow"])
def test_the_prefix_is_possible_and_one_query_more_is_not(method: str) -> None:
    grid, asked = paper_grid(4), some(400, "large")
    budget = 2.0

    load = load_bound(asked, grid, 6, budget, method)  # type: ignore[arg-type]

    demand = demand_of(grid, asked, 6)
    sizes = np.cumsum(demand.sizes) / grid.points_per_period
    count = int(np.searchsorted(sizes, load)) + 1
    bound = {"knapsack": knapsack, "flow": flow_bound}[method]
    assert sizes[count - 1] == load <= budget
    assert bound(demand.load(count, budget)) < math.inf
    assert bound(demand.load(count + 1, budget)) == math.inf


@pytest.mark.parametrize("name", HOT_SPOTS)
def test_the_bounds_of_the_papers_experiment_are_ordered(name: str) -> None:
    grid, asked = paper_grid(4), some(8000, name)

    replication = [
        replication_bound(asked, grid, depth, load=15, method=method)  # type: ignore[arg-type]
        for depth, method in [(8, "knapsack"), (8, "flow")]
    ]

    assert 0 < replication[0] <= replication[1] < 0.2
    assert replication_bound(asked, grid, 4, load=15) > replication[0]
    assert 24 < load_bound(asked, grid, 8, method="flow") <= load_bound(asked, grid, 8) <= 25


def test_a_deeper_index_needs_no_more() -> None:
    """Leaves of 9 digits are halves of those of 8: whatever a coarse index can do, a finer one can too."""
    asked = some(1500)

    for dims in (2, 4):
        needed = [replication_bound(asked, paper_grid(dims), depth, load=10) for depth in (4, 6, 8, 10)]
        assert needed == sorted(needed, reverse=True)
