"""What no policy can beat: how many links the data of one cell must travel to reach all who want it.

The owner of a cell sends it to other brokers, these to further ones, and each client gets a stream of its own
from some broker that has the cell: only brokers duplicate. What this costs is the number of links under every
stream, so the cheapest way is a Steiner arborescence: the root is the owner, the inner nodes are brokers, and
the terminals are the routers where clients are, as leaves. All clients at one router are best served by one
broker, so w of them make a leaf with w times the cost. The cheapest tree is hard to find (it contains set
cover), but it can be caught between two numbers.

**From below, dual ascent** (Wong 1984). A *cut* is a set of nodes with a terminal and without the root, and
some arc of the tree must enter it. Give cuts prices, so that no arc pays more for all the cuts it enters than
it costs: then the tree costs at least the sum of all prices. The ascent raises one price after the other:
take a terminal, and all nodes from which it is reached by arcs that are used up; raise the price of this cut
until one more arc is used up; until the root is among those nodes. Any order is right. A good one begins with
the cuts that the fewest arcs enter, for such a price is paid by the fewest.

**From above, a tree** (Takahashi and Matsuyama 1980): connect the nearest terminal, then the next one, first
with all arcs, then with those alone that an ascent used up; then put brokers in and out as long as it helps.
The cheapest arborescence over given brokers is no secret (Edmonds 1967; here Fulkerson 1974, which is dual
ascent again).

**Both together.** If a tree as cheap as the sum of the prices exists, it enters each cut with a price exactly
once. So a second ascent prefers cuts that the best known tree enters once (Pajor, Uchoa and Werneck 2018).
What an arc still has to spare, plus what lies between the root and it, and between it and the next terminal,
comes on top of the bound if a tree uses the arc: arcs by which no better tree can go are left out of the next
ascent. Its sum bounds all better trees, so the lesser of it and the tree's cost bounds all.

All arcs that some path replaces at no more cost are left out from the start. Costs may be asymmetric, zero, or
infinite where there is no way. With whole costs all sums are exact, otherwise as exact as floats are.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sensorgrid.index.jit import jit

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

ROUNDS = 6
"""Ascents at most; fewer if bound and tree meet, as they mostly do after the first."""
NOBODY = -1
"""The parent of a broker that is not in the tree."""

_SLIGHT = 1e-9  # relative: so much cheaper may be rounding, not a better tree


def dual_ascent(
    cost: npt.ArrayLike, root: int, legs: npt.ArrayLike, wanting: npt.ArrayLike, rounds: int = ROUNDS
) -> float:
    """Links that no way to distribute a cell can do without; infinite if some client cannot be reached.

    Parameters
    ----------
    cost
        [broker, broker]: links of one stream from one broker to another; the diagonal does not matter
    root
        the broker that owns the cell
    legs
        [broker, router]: links of one stream from a broker to a client at a router
    wanting
        [router]: how many clients there want the cell
    rounds
        how many ascents at most. With 1 it is Wong's bound: never above the linear program of all cuts

    Examples
    --------
    Two clients at the far end of a line of three brokers, one link from the last; then two more in the middle.

    >>> line = [[0, 5, 10], [5, 0, 5], [10, 5, 0]]
    >>> legs = [[6, 11], [1, 6], [6, 1]]
    >>> dual_ascent(line, 0, legs, [0, 2]), dual_ascent(line, 0, legs, [2, 2])
    (12.0, 14.0)
    """
    return float(enclose(cost, [root], legs, np.asarray(wanting)[None], rounds)[0][0])


def dual_ascents(
    cost: npt.ArrayLike,
    roots: npt.ArrayLike,
    legs: npt.ArrayLike,
    wanting: npt.ArrayLike,
    rounds: int = ROUNDS,
) -> Floats:
    """The bound for many cells at once: of cell i, the owner is roots[i], and wanting[i] are the clients."""
    return enclose(cost, roots, legs, wanting, rounds)[0]


def heuristic(
    cost: npt.ArrayLike, root: int, legs: npt.ArrayLike, wanting: npt.ArrayLike, rounds: int = ROUNDS
) -> tuple[float, Ints]:
    """What a good tree costs, and from whom each broker gets the cell in it.

    The root gets it from itself, and a broker outside the tree from NOBODY. Each client is served by the
    nearest broker in the tree. If some client cannot be reached, the cost is infinite and the tree is the root.
    """
    _, upper, parents = enclose(cost, [root], legs, np.asarray(wanting)[None], rounds)
    return float(upper[0]), parents[0]


def tree_cost(
    cost: npt.ArrayLike, parents: npt.ArrayLike, legs: npt.ArrayLike, wanting: npt.ArrayLike
) -> float:
    """What a given tree costs: the arcs between brokers, and the nearest broker's legs to all clients."""
    feeders, wanted = np.asarray(parents), np.asarray(wanting, np.float64)
    inside = np.flatnonzero(feeders != NOBODY)
    fed = inside[feeders[inside] != inside]
    nearest = np.asarray(legs, np.float64)[inside].min(axis=0)
    return float(np.asarray(cost)[feeders[fed], fed].sum() + wanted[wanted > 0] @ nearest[wanted > 0])


def enclose(
    cost: npt.ArrayLike,
    roots: npt.ArrayLike,
    legs: npt.ArrayLike,
    wanting: npt.ArrayLike,
    rounds: int = ROUNDS,
) -> tuple[Floats, Floats, Ints]:
    """For many cells at once: bounds from below, what the best known trees cost, and their parents."""
    between, ends = np.array(cost, np.float64, order="C"), np.array(legs, np.float64, order="C")
    owners, wanted = np.array(roots, np.int64), np.array(wanting, np.float64, order="C")
    assert between.shape == (len(between), len(between))
    assert ends.shape == (len(between), wanted.shape[1])
    assert owners.shape == (len(wanted),)
    assert ((owners >= 0) & (owners < len(between))).all()
    assert (between >= 0).all()
    assert (ends >= 0).all()
    assert (wanted >= 0).all()
    assert rounds > 0
    np.fill_diagonal(between, 0.0)
    return _enclose_all(between, owners, ends, wanted, rounds)


class _Graph(NamedTuple):
    """Arcs by target: brokers first, then terminals, which nothing leaves."""

    brokers: int
    root: int
    first: Ints
    """[node]: its first incoming arc; those of the next node follow"""
    tail: Ints
    """[arc]: the broker it leaves"""
    price: Floats
    """[arc]: what it costs"""


@jit
def _enclose_all(
    cost: Floats, roots: Ints, legs: Floats, wanting: Floats, rounds: int
) -> tuple[Floats, Floats, Ints]:
    n, cells = len(cost), len(roots)
    lower, upper = np.zeros(cells), np.zeros(cells)
    parents = np.full((cells, n), NOBODY, np.int64)
    ways, via = _shortest(cost)
    first, tail = _needed_arcs(cost)
    for cell in range(cells):
        root = roots[cell]
        ends = _ends(legs, wanting[cell])
        graph = _graph(cost, ways, first, tail, root, ends)
        inside = _connect(ways, via, root, ends)
        upper[cell] = _improve(cost, root, ends, inside)
        lower[cell], upper[cell], inside = _close_in(cost, ends, graph, inside, upper[cell], rounds)
        parents[cell, root] = root
        if upper[cell] < np.inf:
            _, parents[cell] = _span(cost, root, inside)
    return lower, upper, parents


@jit
def _close_in(
    cost: Floats, ends: Floats, graph: _Graph, inside: Flags, upper: float, rounds: int
) -> tuple[float, float, Flags]:
    """Ascents and trees in turn, until they meet: the bound, the best tree's cost and its brokers."""
    lower = 0.0
    liked = np.zeros(len(graph.tail), np.bool_)  # no guide at first: the tree may be a poor one
    for number in range(rounds):
        spare = graph.price.copy()
        bound = _ascend(graph, spare, liked)
        # The first bounds all trees; the others, with fewer arcs, only those that are better than the best known.
        lower = bound if number == 0 else max(lower, min(bound, upper))
        if lower >= upper:
            break
        other = _connect_used_up(graph, spare)
        value = _improve(cost, graph.root, ends, other)
        if value < upper:
            upper, inside = value, other
        if lower >= upper:
            break
        graph = _promising(graph, spare, upper - bound)
        liked = _arcs_of(graph, cost, ends, inside)
    return lower, upper, inside


# The graph, without arcs that are never needed.


@jit
def _shortest(cost: Floats) -> tuple[Floats, Ints]:
    """Lengths of the shortest ways between brokers, and the first broker on each."""
    n = len(cost)
    ways, via = cost.copy(), np.empty((n, n), np.int64)
    for b in range(n):
        ways[b, b] = 0.0
        for c in range(n):
            via[b, c] = c
    for k in range(n):
        for b in range(n):
            if ways[b, k] < np.inf:
                for c in range(n):
                    if ways[b, k] + ways[k, c] < ways[b, c]:
                        ways[b, c] = ways[b, k] + ways[k, c]
                        via[b, c] = via[b, k]
    return ways, via


@jit
def _needed_arcs(cost: Floats) -> tuple[Ints, Ints]:
    """Arcs between brokers that no two others replace, by target: where each one's begin, and their tails."""
    n = len(cost)
    left = cost.copy()
    for b in range(n):
        left[b, b] = np.inf
    # One at a time, and by what is left only: on a circle of zeros each arc can replace others.
    for b in range(n):
        for c in range(n):
            for k in range(n):
                if left[b, c] == np.inf:
                    break
                if k != b and k != c and left[b, k] + left[k, c] <= left[b, c]:
                    left[b, c] = np.inf
    first, tail, size = np.zeros(n + 1, np.int64), np.empty(n * n, np.int64), 0
    for c in range(n):
        for b in range(n):
            if left[b, c] < np.inf:
                tail[size] = b
                size += 1
        first[c + 1] = size
    return first, tail[:size]


@jit
def _ends(legs: Floats, wanting: Floats) -> Floats:
    """[terminal, broker]: what all streams from a broker to a terminal's clients cost."""
    ends = np.empty((np.count_nonzero(wanting), len(legs)))
    t = 0
    for e in range(len(wanting)):
        if wanting[e] > 0:
            for b in range(len(legs)):
                ends[t, b] = wanting[e] * legs[b, e]
            t += 1
    return ends


@jit
def _graph(cost: Floats, ways: Floats, first: Ints, tail: Ints, root: int, ends: Floats) -> _Graph:
    """The needed arcs between brokers, and the legs that no way over another broker replaces."""
    n, terminals = len(cost), len(ends)
    firsts = np.empty(n + terminals + 1, np.int64)
    tails, prices = np.empty(len(tail) + ends.size, np.int64), np.empty(len(tail) + ends.size)
    for c in range(n):
        firsts[c] = first[c]
        for arc in range(first[c], first[c + 1]):
            tails[arc], prices[arc] = tail[arc], cost[tail[arc], c]
    size = len(tail)
    for t in range(terminals):
        firsts[n + t] = size
        left = ends[t].copy()
        for b in range(n):
            for c in range(n):
                if left[b] == np.inf:
                    break
                if c != b and ways[b, c] + left[c] <= left[b]:
                    left[b] = np.inf
            if left[b] < np.inf:
                tails[size], prices[size] = b, left[b]
                size += 1
    firsts[n + terminals] = size
    return _Graph(n, root, firsts, tails[:size], prices[:size])


@jit
def _promising(graph: _Graph, spare: Floats, room: float) -> _Graph:
    """Without the arcs that lift every tree which uses them by `room` or more over the bound."""
    n, first, tail = graph.brokers, graph.first, graph.tail
    down, up = np.full(n, np.inf), np.full(n, np.inf)  # from the root, to the nearest terminal
    down[graph.root] = 0.0
    for arc in range(first[n], len(tail)):
        up[tail[arc]] = min(up[tail[arc]], spare[arc])
    changed = True
    while changed:
        changed = False
        for c in range(n):
            for arc in range(first[c], first[c + 1]):
                b = tail[arc]
                if down[b] + spare[arc] < down[c]:
                    down[c], changed = down[b] + spare[arc], True
                if up[c] + spare[arc] < up[b]:
                    up[b], changed = up[c] + spare[arc], True
    firsts, tails, prices, size = np.zeros_like(first), np.empty_like(tail), np.empty_like(spare), 0
    for node in range(len(first) - 1):
        for arc in range(first[node], first[node + 1]):
            if down[tail[arc]] + spare[arc] + (up[node] if node < n else 0.0) < room:
                tails[size], prices[size] = tail[arc], graph.price[arc]
                size += 1
        firsts[node + 1] = size
    return _Graph(n, graph.root, firsts, tails[:size], prices[:size])


# From below.


@jit
def _ascend(graph: _Graph, spare: Floats, liked: Flags) -> float:
    """The sum of all prices; leaves in `spare` what arcs have left. Infinite if a terminal has no way."""
    n, first, tail = graph.brokers, graph.first, graph.tail
    terminals = len(first) - 1 - n
    joined = np.zeros((terminals, n), np.bool_)
    nodes, sizes = np.empty((terminals, n + 1), np.int64), np.ones(terminals, np.int64)
    nodes[:, 0] = np.arange(n, n + terminals)
    rank = np.zeros(terminals)  # as of the last look; infinite when the root has joined
    bound, left = 0.0, terminals
    while left:
        t, second = _lowest(rank)
        sizes[t] = _join(graph, spare, nodes[t], sizes[t], joined[t])
        if joined[t, graph.root]:
            rank[t] = np.inf
            left -= 1
            continue
        entering, good, step = 0, 0, np.inf
        for node in nodes[t, : sizes[t]]:
            for arc in range(first[node], first[node + 1]):
                if not joined[t, tail[arc]]:
                    entering += 1
                    good += liked[arc]
                    step = min(step, spare[arc])
        rank[t] = entering + len(tail) * max(good - 1, 0)
        if rank[t] > second:  # others have used up arcs meanwhile
            continue
        if step == np.inf:
            return np.inf
        bound += step
        for node in nodes[t, : sizes[t]]:
            for arc in range(first[node], first[node + 1]):
                if not joined[t, tail[arc]]:
                    spare[arc] -= step
    return bound


@jit
def _lowest(rank: Floats) -> tuple[int, float]:
    """Which terminal has the lowest rank, and the lowest rank of the others."""
    lowest, second = 0, np.inf
    for t in range(1, len(rank)):
        if rank[t] < rank[lowest]:
            lowest, second = t, rank[lowest]
        elif rank[t] < second:
            second = rank[t]
    return lowest, second


@jit
def _join(graph: _Graph, spare: Floats, nodes: Ints, size: int, joined: Flags) -> int:
    """Add to a cut the brokers from which used-up arcs lead to it; its size then."""
    at = 0
    while at < size:
        node = nodes[at]
        at += 1
        for arc in range(graph.first[node], graph.first[node + 1]):
            if spare[arc] == 0 and not joined[graph.tail[arc]]:
                joined[graph.tail[arc]] = True
                nodes[size] = graph.tail[arc]
                size += 1
    return size


# From above.


@jit
def _connect(ways: Floats, via: Ints, root: int, ends: Floats) -> Flags:
    """Which brokers are in a tree made by connecting the nearest terminal again and again."""
    n, terminals = len(ways), len(ends)
    inside, served = np.zeros(n, np.bool_), np.zeros(terminals, np.bool_)
    inside[root] = True
    away, entry = ways[root].copy(), np.full(n, root)
    for _ in range(terminals):
        least, nearest, last = np.inf, -1, -1
        for t in range(terminals):
            if not served[t]:
                for b in range(n):
                    if away[b] + ends[t, b] < least:
                        least, nearest, last = away[b] + ends[t, b], t, b
        if nearest < 0:
            break
        served[nearest] = True
        k = entry[last]
        while k != last:
            k = via[k, last]
            inside[k] = True
            for c in range(n):
                if ways[k, c] < away[c]:
                    away[c], entry[c] = ways[k, c], k
    return inside


@jit
def _connect_used_up(graph: _Graph, spare: Floats) -> Flags:
    """The same, by the arcs alone that an ascent used up."""
    n, first, tail = graph.brokers, graph.first, graph.tail
    cost, ends = np.full((n, n), np.inf), np.full((len(first) - 1 - n, n), np.inf)
    for node in range(len(first) - 1):
        for arc in range(first[node], first[node + 1]):
            if spare[arc] == 0:
                if node < n:
                    cost[tail[arc], node] = graph.price[arc]
                else:
                    ends[node - n, tail[arc]] = graph.price[arc]
    ways, via = _shortest(cost)
    return _connect(ways, via, graph.root, ends)


@jit
def _improve(cost: Floats, root: int, ends: Floats, inside: Flags) -> float:
    """Put brokers in and out while the tree gets cheaper; what it costs then."""
    n = len(cost)
    best = _cost_over(cost, root, ends, inside)
    tried, b = 0, 0
    while tried < n:
        if b != root:
            inside[b] = not inside[b]
            value = _cost_over(cost, root, ends, inside)
            if value < best * (1 - _SLIGHT):
                best, tried = value, 0
            else:
                inside[b] = not inside[b]
        tried += 1
        b = (b + 1) % n
    return best


@jit
def _cost_over(cost: Floats, root: int, ends: Floats, inside: Flags) -> float:
    """What the cheapest tree over given brokers costs."""
    brokers = np.flatnonzero(inside)
    total = 0.0
    for t in range(len(ends)):
        least = np.inf
        for b in brokers:
            least = min(least, ends[t, b])
        total += least
    return total + _span(cost, root, inside)[0]


@jit
def _arcs_of(graph: _Graph, cost: Floats, ends: Floats, inside: Flags) -> Flags:
    """[arc]: whether the cheapest tree over given brokers has it."""
    n, first = graph.brokers, graph.first
    liked = np.zeros(len(graph.tail), np.bool_)
    _, parents = _span(cost, graph.root, inside)
    for node in range(len(first) - 1):
        tail = parents[node] if node < n else np.argmin(np.where(inside, ends[node - n], np.inf))
        for arc in range(first[node], first[node + 1]):
            liked[arc] = graph.tail[arc] == tail
    return liked


@jit
def _span(cost: Floats, root: int, inside: Flags) -> tuple[float, Ints]:
    """The cheapest arborescence over exactly the brokers inside: its cost and the parents.

    Groups of brokers that used-up arcs connect in a circle are contracted, at most as many as there are
    brokers. Each group, from the single broker on, buys its cheapest entry. In the end, go from the root by
    what was bought, earliest first: so every group is entered once.
    """
    ids = np.flatnonzero(inside)
    n, top = len(ids), np.arange(len(ids))  # broker -> its group
    start = int(np.searchsorted(ids, root))
    price, target = np.full((2 * n, n), np.inf), np.empty((2 * n, n), np.int64)  # [group, outside]
    for i in range(n):
        target[i] = i
        for j in range(n):
            if i != j:
                price[i, j] = cost[ids[j], ids[i]]
    bought, purchases, total = np.empty((2 * n, 2), np.int64), 0, 0.0
    path, on_path, reached = np.empty(2 * n, np.int64), np.zeros(2 * n, np.bool_), np.zeros(2 * n, np.bool_)
    reached[start] = True
    groups = n
    for begin in range(n):
        group, depth = top[begin], 0
        while not reached[group]:
            path[depth], on_path[group] = group, True
            depth += 1
            entry = -1
            for j in range(n):
                if top[j] != group and (entry < 0 or price[group, j] < price[group, entry]):
                    entry = j
            least = price[group, entry]
            if least == np.inf:
                return np.inf, np.full(len(cost), NOBODY, np.int64)
            bought[purchases, 0], bought[purchases, 1] = entry, target[group, entry]
            purchases, total = purchases + 1, total + least
            price[group] -= least
            group = top[entry]
            if on_path[group] and not reached[group]:
                depth = _contract(price, target, top, path, depth, group, groups)
                group, groups = groups, groups + 1
        reached[group] = True
        for i in range(depth):
            reached[path[i]] = True
    return total, _follow(bought[:purchases], ids, start, len(cost))


@jit
def _contract(price: Floats, target: Ints, top: Ints, path: Ints, depth: int, until: int, group: int) -> int:
    """Make one group of the last ones on the path; how many are left on it."""
    while True:
        depth -= 1
        part = path[depth]
        for j in range(len(top)):
            if price[part, j] < price[group, j]:
                price[group, j], target[group, j] = price[part, j], target[part, j]
            if top[j] == part:
                top[j] = group
        if part == until:
            return depth


@jit
def _follow(bought: Ints, ids: Ints, start: int, brokers: int) -> Ints:
    """Parents, by the arcs bought, earliest first."""
    parents = np.full(brokers, NOBODY, np.int64)
    parents[ids[start]] = ids[start]
    arc = 0
    while arc < len(bought):
        tail, head = ids[bought[arc, 0]], ids[bought[arc, 1]]
        if parents[tail] != NOBODY and parents[head] == NOBODY:
            parents[head] = tail
            arc = 0
        else:
            arc += 1
    return parents
