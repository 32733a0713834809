"""What no policy can beat: how much load brokers can serve at best, and how much replication it takes.

The setting is that of multires, sections 3.3 and 5. Each broker owns one spatial region and may send so much
(`budget`, in multiples of its region at full resolution) per period. Clients receive exactly their points,
each piece from one broker; between brokers travel whole cells of at most `depth` digits. A bound holds for
every protocol in this setting, even one that knows all queries beforehand and may place each piece anew.

**Why it is a bound.** Cut the world into *leaves*, the cells of exactly `depth` digits: all of one size s. A
longer stream carries a union of leaves and costs their sum, so only the copies of leaves count. Let the
clients want d(c) points of leaf c.

1. A broker t other than the owner serves points of c only if it receives c, from the owner or, on whatever
   level, from another replica. So each broker that holds a *copy* costs some sender s, the first copy of a
   leaf costs its owner s, and replication is s times the number of copies. With m(c, t) for what t serves of
   c, and a for the budget, the brokers' constraints are, leaving open who sends the further copies,

       sum of t's own demand, less what others serve of it, plus what t serves of others
       plus s for each own leaf that has a copy  <=  a              (and all loads + replication <= all a)

2. No broker need both give and take. If it does, chain up what it takes (c at b) with what it gives (c' at t),
   amount by amount: t serves c, and b serves c'. Every broker serves as much as before. Chaining p amounts
   with q makes at most p + q - 1 pairs plus one rest, so there are no more copies than before (here it
   matters that leaves are of one size), and no leaf has a first copy that had none. Likewise a broker within
   its budget need not give at all: taking everything back saves copies and frees others.
   So exactly the brokers with more own demand than a give, and the others take no more than f = a - own
   demand: a copy of c at t moves at most min(d(c), f(t)).
3. A leaf with d(c) <= s is never worth a copy: its owner would save at most d(c) and spend s.

Let copies be fractions, m / min(d, f), and the first copy be the fraction "moved / d", and what is left is a
linear program, a transportation problem: `flow_bound`. Let in addition all takers be as large as the largest,
and together without limit, and it falls apart into one fractional knapsack per giver: `knapsack`. Keep the
copies whole, and it is a mixed integer program, of which any proven lower bound counts: `integer_bound`. So
knapsack <= flow <= integer <= every protocol. A number of copies is whole, per giver and in total, so all
three round up. What they all leave open, who forwards a further copy, matters only where a copy takes up a
good part of a budget.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, SupportsIndex

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array, csr_array, diags_array, eye_array, hstack, vstack

from sensorgrid.index.layout import RT, RX, RY, X, Y, layout_of
from sensorgrid.model.errors import CellError, QueryError
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query
from sensorgrid.model.resolution import count_points, reverse_bits

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Method = Literal["knapsack", "flow", "integer"]

BUDGET = 25.0
"""Times its own region at full resolution that a broker can send (multires, section 5)."""
LEAF_DIGITS_MAX = 16
"""Leaves are kept as an array: some ten thousand of them."""
VARIABLES_MAX = 20_000
"""Of a linear program; above it, `flow_bound` falls back to the knapsack."""
SECONDS_MAX = 5.0
"""For one mixed integer program."""

_EXACT = 1 << 53
_INFEASIBLE = 2


@dataclass(frozen=True, slots=True, eq=False)
class LeafLoad:
    """What clients want of each leaf, and what brokers can send."""

    demand: Floats
    """[broker, leaf]: wanted points of each leaf of each broker's region, in one period"""
    leaf_points: int
    """points of one leaf, s above: what one copy costs"""
    budget_points: float
    """what a broker can send in one period, a above"""

    @property
    def own(self) -> Floats:
        """Each broker's own demand."""
        return np.asarray(self.demand.sum(axis=1))

    @property
    def excess(self) -> Floats:
        """What each broker has to give away: 0 for those within their budget."""
        return np.maximum(self.own - self.budget_points, 0)

    @property
    def free(self) -> Floats:
        """What each broker can take over."""
        return np.maximum(self.budget_points - self.own, 0)

    @property
    def copies_max(self) -> float:
        """So many copies fit into what the clients leave of all budgets."""
        return float(self.budget_points * len(self.demand) - self.demand.sum()) / self.leaf_points


def knapsack(load: LeafLoad) -> float:
    """Replication that no protocol can avoid, as a fraction of the world; infinite if none can serve the load.

    Per giver: the fewest copies whose relief makes up for the excess. The weakest of the bounds, and the
    fastest by far.
    """
    return _replication(load, float(_giver_copies(load).sum()))


def flow_bound(load: LeafLoad) -> float:
    """The same, by the linear program in which takers fill up; never below `knapsack`."""
    return _replication(load, _flow_copies(load))


def integer_bound(load: LeafLoad, seconds: float = SECONDS_MAX) -> float:
    """The same with whole copies, as far as it is proven in the time given; never below `flow_bound`."""
    at_least = _flow_copies(load)
    pairs = _Pairs(load)
    if not 0 < at_least < math.inf or 2 * pairs.count > VARIABLES_MAX:
        return _replication(load, at_least)
    return _replication(load, max(at_least, _integer_copies(pairs, seconds)))


def load_bound(
    queries: Iterable[Query],
    grid: Grid,
    depth: int,
    budget: float = BUDGET,
    method: Method = "knapsack",
) -> float:
    """The most that any protocol can serve of a sequence before it must reject a query, in worlds.

    It is the size of the longest prefix that the bound does not rule out, found by bisection: the prefix one
    query longer is impossible, and so is everything that contains it.
    """
    demand = LeafDemand(grid, depth)
    demand.add_until(queries, budget)
    sizes = [0, *accumulate(demand.sizes)]
    bound = _METHODS[method]
    possible, impossible = 0, len(sizes)
    while impossible - possible > 1:
        middle = (possible + impossible) // 2
        if bound(demand.load(middle, budget)) < math.inf:
            possible = middle
        else:
            impossible = middle
    return sizes[possible] / grid.points_per_period


def replication_bound(
    queries: Iterable[Query],
    grid: Grid,
    depth: int,
    load: float,
    budget: float = BUDGET,
    method: Method = "knapsack",
) -> float:
    """The least replication, in worlds, with which queries that first reach a load (in worlds) are served."""
    demand = LeafDemand(grid, depth)
    demand.add_until(queries, load)
    return _METHODS[method](demand.load(len(demand), budget))


class LeafDemand:
    """How many points of each leaf a growing sequence of queries wants, exactly.

    A query is a product of three sets, along x, y and t, and so is a leaf. So a query's points in all leaves
    are the products of three short rows, and the demand of any prefix is a product of matrices.

    >>> demand = LeafDemand(Grid(shape=(64, 32), resolution_bits=2, region_digits=2), depth=2)
    >>> demand.add(Query("air_temperature", bbox=(-180, -90, 0, 45), resolution=(1, 1, 1/2)))
    >>> demand.leaves().tolist()
    [1024, 512, 0, 0]
    """

    def __init__(self, grid: Grid, depth: int) -> None:
        layout = layout_of(grid)
        if not isinstance(depth, SupportsIndex) or not 0 <= depth <= LEAF_DIGITS_MAX:
            raise CellError(f"depth: found {depth}, expected a whole number in [0, {LEAF_DIGITS_MAX}]")
        self.grid = grid
        self.region_digits = min(grid.region_digits, layout.digits)
        """of a broker's region"""
        # A stream longer than a region is one of several whole regions.
        self.depth = min(max(depth, self.region_digits), layout.digits)
        """digits of a leaf"""
        self.sizes: list[int] = []
        """points of each query in one period"""
        self._asked: list[tuple[int, ...]] = []
        self._digits = tuple(int(n) for n in layout.counts[self.depth])
        self._nodes = _nodes(layout.axes[: self.depth], self._digits)
        self._rows: tuple[Floats, Floats, Floats] | None = None

    def __len__(self) -> int:
        return len(self._asked)

    def add(self, query: Query) -> None:
        """One query more."""
        if len(query.attributes) != 1:
            raise QueryError(
                f"attributes: found {', '.join(query.attributes)}, expected one: regions are divided per attribute"
            )
        grid = self.grid
        box, (x, y, t) = query.box(grid), query.limits(grid)
        columns = sum(count_points(b.x0, b.x1, x, grid.resolution_bits[0]) for b in grid.plain_boxes(box))
        self.sizes.append(columns * count_points(box.y0, box.y1, y, grid.resolution_bits[1]) * t)
        self._asked.append((box.x0, box.x1, box.y0, box.y1, x, y, t))
        self._rows = None

    def add_until(self, queries: Iterable[Query], load: float) -> None:
        """Add queries until all together first reach a load (in worlds), or there are no more."""
        left = load * self.grid.points_per_period - sum(self.sizes)
        source = iter(queries)
        while left > 0 and (query := next(source, None)) is not None:
            self.add(query)
            left -= self.sizes[-1]

    def leaves(self, count: int | None = None) -> Ints:
        """Wanted points per leaf, by leaf ID; of the first `count` queries only, if given."""
        if self._rows is None:
            self._rows = self._factors()
        x, y, t = (rows[:count] for rows in self._rows)
        total = np.zeros((x.shape[1], y.shape[1] * t.shape[1]), dtype=np.int64)
        step = min(_EXACT // self.grid.points_per_period, 4096)  # so many that floats add up exactly
        for first in range(0, len(x), step):
            part = slice(first, first + step)
            times = (y[part, :, None] * t[part, None, :]).reshape(len(y[part]), total.shape[1])
            total += (x[part].T @ times).astype(np.int64)
        nodes_x, nodes_y, nodes_t = self._nodes
        return np.asarray(total[nodes_x, nodes_y * t.shape[1] + nodes_t])

    def load(self, count: int, budget: float = BUDGET) -> LeafLoad:
        """The first `count` queries, against brokers who can send `budget` times their region."""
        brokers = 1 << self.region_digits
        points = self.grid.points_per_period
        demand = self.leaves(count).astype(np.float64).reshape(brokers, -1)
        return LeafLoad(demand, points >> self.depth, budget * points / brokers)

    def _factors(self) -> tuple[Floats, Floats, Floats]:
        """[query, node] for each axis: points of the query along it in each of the parts that leaves make."""
        grid, digits = self.grid, self._digits
        (nx, ny), (kx, ky, kt) = grid.shape, grid.resolution_bits
        x0, x1, y0, y1, limit_x, limit_y, limit_t = np.array(self._asked, dtype=np.int64).reshape(-1, 7).T
        x = _axis_rows(x0, np.minimum(x1, nx), limit_x, nx, kx, digits[X], digits[RX])
        if (x1 > nx).any():  # beyond the date line
            x += _axis_rows(np.zeros_like(x0), np.maximum(x1 - nx, 0), limit_x, nx, kx, digits[X], digits[RX])
        y = _axis_rows(y0, y1, limit_y, ny, ky, digits[Y], digits[RY])
        ranks = np.arange((1 << digits[RT]) + 1) << (kt - digits[RT])
        t = np.diff(np.minimum(ranks, limit_t[:, None])).astype(np.float64)
        return x, y, t


def _axis_rows(
    start: Ints, stop: Ints, limit: Ints, points: int, bits: int, block_digits: int, rank_digits: int
) -> Floats:
    """[query, part of the axis]: indices in [start, stop) of rank below the limit."""
    block = 1 << bits
    rank = np.array([reverse_bits(offset, bits) for offset in range(block)])
    below = np.zeros((block + 1, block + 1), dtype=np.int64)  # [offset, limit]
    below[1:, :] = np.cumsum(rank[:, None] < np.arange(block + 1), axis=0)
    borders = np.arange((1 << block_digits) + 1) * (points >> block_digits)
    places = np.clip(borders, start[:, None], stop[:, None])[:, :, None]
    ranks = np.arange((1 << rank_digits) + 1) << (bits - rank_digits)
    limits = np.minimum(ranks, limit[:, None])[:, None, :]
    # All indices below a place and of rank below a limit; differences both ways leave those of one part.
    counts = (places >> bits) * limits + below[places & block - 1, limits]
    parts = np.diff(np.diff(counts, axis=1), axis=2)
    return np.asarray(parts.reshape(len(start), 1 << block_digits + rank_digits), dtype=np.float64)


def _nodes(axes: tuple[int, ...], digits: tuple[int, ...]) -> tuple[Ints, Ints, Ints]:
    """For each leaf, its part along x, y and t: blocks in front, ranks behind."""
    ids = np.arange(1 << len(axes), dtype=np.int64)
    values = [np.zeros_like(ids) for _ in digits]
    for place, axis in enumerate(axes):
        values[axis] = values[axis] << 1 | ids >> (len(axes) - 1 - place) & 1
    return values[X] << digits[RX] | values[RX], values[Y] << digits[RY] | values[RY], values[RT]


def _replication(load: LeafLoad, copies: float) -> float:
    """Copies as a fraction of the world; infinite if they do not fit any more."""
    return copies / load.demand.size if copies <= load.copies_max else math.inf


def _whole(copies: float) -> float:
    """Rounded up, unless the solver's tolerance explains what is over."""
    return float(math.ceil(copies * (1 - 1e-7) - 1e-4)) if copies < math.inf else math.inf


def _giver_copies(load: LeafLoad) -> Floats:
    """[broker]: the fewest copies of its leaves with which each broker gets rid of its excess."""
    excess, s = load.excess, load.leaf_points
    largest = load.free.max()
    copies = np.zeros(len(excess))
    for broker in np.flatnonzero(excess):
        demand = load.demand[broker]
        demand = demand[demand > s]
        if largest == 0 or (demand - s).sum() < excess[broker]:
            copies[broker] = np.inf
            continue
        # A copy takes min(d, f) away and puts its share of the first copy's s on the giver: best ones first.
        moved = np.minimum(demand, largest)
        relief = moved * (1 - s / demand)
        order = np.argsort(-relief)
        cost, gain = np.cumsum((demand / moved)[order]), np.cumsum((demand - s)[order])
        last = min(int(np.searchsorted(gain, excess[broker])), len(gain) - 1)
        copies[broker] = _whole(cost[last] - (gain[last] - excess[broker]) / relief[order[last]])
    return copies


class _Pairs:
    """Leaves worth a copy × brokers that can take one, as the columns of a program; sizes in leaves."""

    def __init__(self, load: LeafLoad) -> None:
        s = load.leaf_points
        givers, takers = np.flatnonzero(load.excess), np.flatnonzero(load.free)
        worth = load.demand[givers] > s
        self.giver = np.nonzero(worth)[0]
        self.demand = load.demand[givers][worth] / s
        # A hair less to give than exact, so that rounding rules out nothing that is possible.
        self.excess = load.excess[givers] / s * (1 - 1e-9)
        self.free = load.free[takers] / s
        self.moved_max = np.minimum(self.demand[:, None], self.free[None, :]).ravel()
        self.giver_copies = _giver_copies(load)[givers]
        self.count = len(self.moved_max)

    def sums(self, by: Literal["leaf", "taker", "giver"]) -> csr_array:
        """The matrix that adds up the pairs of each leaf, taker or giver."""
        leaf, taker = np.divmod(np.arange(self.count), len(self.free))
        row = {"leaf": leaf, "taker": taker, "giver": self.giver[leaf]}[by]
        rows = {"leaf": len(self.demand), "taker": len(self.free), "giver": len(self.excess)}[by]
        return coo_array((np.ones(self.count), (row, np.arange(self.count))), (rows, self.count)).tocsr()


def _flow_copies(load: LeafLoad) -> float:
    """Copies by the linear program: columns are what each pair moves, and the copies of each giver."""
    at_least = _giver_copies(load)
    pairs = _Pairs(load)
    if not 0 < at_least.sum() < math.inf or pairs.count > VARIABLES_MAX:
        return float(at_least.sum())
    givers = len(pairs.excess)
    by_giver = pairs.sums("giver")
    relief = np.repeat(1 - 1 / pairs.demand, len(pairs.free))
    no_copies = csr_array((len(pairs.demand) + len(pairs.free), givers))
    rows = vstack(
        [
            hstack([vstack([pairs.sums("leaf"), pairs.sums("taker")]), no_copies]),
            hstack([by_giver * -relief, csr_array((givers, givers))]),
            hstack([by_giver * (1 / pairs.moved_max), -eye_array(givers)]),
        ]
    )
    upper = np.concatenate([pairs.demand, pairs.free, -pairs.excess, np.zeros(givers)])
    cost = np.concatenate([np.zeros(pairs.count), np.ones(givers)])
    lowest = np.concatenate([np.zeros(pairs.count), pairs.giver_copies])
    limits = np.stack([lowest, np.full(len(lowest), np.inf)], axis=1)
    result = linprog(cost, A_ub=rows, b_ub=upper, bounds=limits, method="highs")
    if result.status == _INFEASIBLE:
        return math.inf
    return _whole(result.fun) if result.success else float(at_least.sum())


def _integer_copies(pairs: _Pairs, seconds: float) -> float:
    """What is proven of the mixed integer program: columns are moved amounts, copies, replicated leaves."""
    n, leaves = pairs.count, len(pairs.demand)
    one = eye_array(n, format="csr")
    by_leaf, by_taker, by_giver = pairs.sums("leaf"), pairs.sums("taker"), pairs.sums("giver")
    owned = coo_array((np.ones(leaves), (pairs.giver, np.arange(leaves))), (len(pairs.excess), leaves))
    blocks: list[tuple[list[csr_array | None], float | Floats, float | Floats]] = [
        ([one, one * -pairs.moved_max, None], -np.inf, 0),
        ([None, one, -by_leaf.T], -np.inf, 0),
        ([by_leaf, None, diags_array(-pairs.demand)], -np.inf, 0),
        ([by_taker, None, None], -np.inf, pairs.free),
        ([by_giver, None, -owned], pairs.excess, np.inf),
        ([None, by_giver, None], pairs.giver_copies, np.inf),
    ]
    widths = (n, n, leaves)
    constraints = []
    for parts, low, high in blocks:
        height = next(part.shape[0] for part in parts if part is not None)
        filled = [csr_array((height, w)) if p is None else p for p, w in zip(parts, widths, strict=True)]
        constraints.append(LinearConstraint(hstack(filled).tocsr(), low, high))
    result = milp(
        np.concatenate([np.zeros(n), np.ones(n), np.zeros(leaves)]),
        integrality=np.concatenate([np.zeros(n), np.ones(n + leaves)]),
        bounds=Bounds(0, np.concatenate([pairs.moved_max, np.ones(n + leaves)])),
        constraints=constraints,
        options={"time_limit": seconds},
    )
    if result.status == _INFEASIBLE:
        return math.inf
    proven = result.mip_dual_bound
    return _whole(proven) if proven is not None and math.isfinite(proven) else 0.0


_METHODS: dict[Method, Callable[[LeafLoad], float]] = {
    "knapsack": knapsack,
    "flow": flow_bound,
    "integer": integer_bound,
}
