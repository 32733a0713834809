"""Where a receiver hangs best in the tree of a cell: ours, beside the paper's relay strategies.

The tree is a Steiner tree of brokers: the owner is its root, the brokers that take the cell are its nodes, and a
broker that is not in it may be put on an edge if that brings two ways together. The measure is the number of links (or
the delay, where links are not known) that a block crosses in all.

A receiver that joins hangs where it adds least: on a node, on an edge itself, or on a broker put on an edge (Takahashi
and Matsuyama, one receiver at a time). A tree that has changed is improved in the same way, node by node with all
below it, until nothing saves enough.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sensorgrid.index.jit import jit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Hang:
    """Take it from `parent`, or from `between`, which is put on the edge from `parent` to `child`; that may be the node
    itself."""

    parent: int
    between: int = NOBODY
    child: int = NOBODY


class Way:
    """Distances between brokers, by their places in `names`."""

    def __init__(self, names: tuple[int, ...], cost: Floats, delay_s: Floats) -> None:
        self.names = names
        self.at = {name: i for i, name in enumerate(names)}
        self.cost = cost
        """what a stream between two of them costs"""
        self.delay_s = delay_s


def hang(
    way: Way,
    holds: Flags,
    parent: Ints,
    edges: Flags,
    x: int,
    added_s: float,
    hysteresis: float,
    barred: Flags,
) -> Hang | None:
    """The best place for node `x` with all below it; None: where it is.

    Parameters
    ----------
    way
        Distances.
    holds
        Who has the cell.
    parent
        The provider of each; -1 for the root and for brokers that do not have the cell.
    edges
        Nodes whose edge from their parent may be cut.
    x
        The node.
    added_s
        How much later than by the shortest way a receiver may get the data.
    hysteresis
        Share of the present cost that must be saved.
    barred
        Brokers that cannot feed it.
    """
    p, s, y = _best(way.cost, way.delay_s, holds, parent, edges, x, added_s, hysteresis, barred)
    return None if p < 0 else Hang(int(p), int(s), int(y))


@jit
def _best(
    cost: Floats,
    delay: Floats,
    holds: Flags,
    parent: Ints,
    edges: Flags,
    x: int,
    added_s: float,
    hysteresis: float,
    barred: Flags,
) -> tuple[int, int, int]:
    n = len(parent)
    depth = np.zeros(n)
    below = np.zeros(n, dtype=np.bool_)
    root = -1
    for i in range(n):
        if holds[i] and parent[i] < 0:
            root = i
    for i in range(n):
        if not holds[i]:
            continue
        at, steps, far = i, 0, 0.0
        while parent[at] >= 0 and steps <= n:
            if at == x:
                below[i] = True
            far += delay[parent[at], at]
            at = parent[at]
            steps += 1
        depth[i] = far
        if steps > n or at != root:
            below[i] = True  # in a circle, or cut off: nothing to hang on
    slack = np.full(n, np.inf)
    for i in range(n):
        if not holds[i]:
            continue
        mine = max(0.0, delay[root, i] + added_s - depth[i])
        at, steps = i, 0
        while at >= 0 and steps <= n:
            slack[at] = min(slack[at], mine)
            if at == x:
                break  # what is below it goes with it, wherever it hangs now
            at = parent[at]
            steps += 1
    best = np.inf  # on somebody unknown: anything is better
    if parent[x] != x:
        best = cost[parent[x], x] * (1.0 - hysteresis) - 1e-9
    bp, bs, by = -1, -1, -1
    room = depth[x] + slack[x]
    for p in range(n):
        if holds[p] and not below[p] and not barred[p] and p != parent[x]:
            c = cost[p, x]
            if c < best and depth[p] + delay[p, x] <= room:
                best, bp, bs, by = c, p, -1, -1
    for y in range(n):
        if not edges[y] or below[y] or y == x or parent[y] < 0:
            continue
        p = parent[y]
        if below[p]:
            continue
        base = cost[p, y]
        if base == np.inf:
            continue
        c = cost[p, x] + cost[x, y] - base
        if c < best and not barred[p]:
            there = depth[p] + delay[p, x]
            if there <= room and there + delay[x, y] <= depth[y] + slack[y]:
                best, bp, bs, by = c, p, x, y
        for s in range(n):
            if holds[s] or barred[s]:
                continue
            c = cost[p, s] + cost[s, y] - base + cost[s, x]
            if c < best:
                there = depth[p] + delay[p, s]
                if there + delay[s, x] <= room and there + delay[s, y] <= depth[y] + slack[y]:
                    best, bp, bs, by = c, p, s, y
    return bp, bs, by
