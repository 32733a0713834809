"""The nearest observations of each point, chosen and ordered so that the result does not hang on the tree.

Neighbours come in the order of the observations, not of their distance: sums then run in the same order for
every point that shares them, in every region that holds them. Where several observations are equally far
(sensors on a lattice, grid points in the middle), the earlier one wins.

Stations do not move: the same search is asked for tick after tick. `neighbours_of` remembers the last searches of
the process by the bytes of all positions, so a remembered answer is the one that a search would give.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from sensorgrid.pipeline.gridding.kernels.interface import Floats

Indices = npt.NDArray[np.int32]

_TIES = 8
_SAME = 1e-9

CHUNK = 4096
"""points that are worked on at once: bounds the memory, whatever the size of the grid"""
REMEMBERED_BYTES = 48 << 20
"""of searches that a process remembers"""


def chunks(count: int, size: int = CHUNK) -> Iterator[slice]:
    """All of `count` things, in slices of at most `size`.

    Examples
    --------
    >>> [list(range(5))[some] for some in chunks(5, 2)]
    [[0, 1], [2, 3], [4]]
    """
    for start in range(0, count, size):
        yield slice(start, start + size)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest observations of some points."""

    index: Indices
    """(m, k) ascending within a row; -1 for none"""
    reach: Floats
    """(m,) distance of the nearest that is not among them; infinite if there is none"""


def neighbours_of(positions: Floats, points: Floats, count: int) -> Neighbours:
    """The `count` nearest observations of each point; fewer if there are fewer."""
    return _remembered(("points", count), positions, points)


def others_of(positions: Floats, count: int) -> Neighbours:
    """(n, count) the nearest others of each observation, nearest first; `reach` has no meaning."""
    return _remembered(("others", count), positions, positions)


def separation(a: Floats, b: Floats) -> Floats:
    """Distances between positions, over the last axis."""
    square = np.zeros(np.broadcast_shapes(a.shape, b.shape)[:-1])
    for axis in range(a.shape[-1]):  # in place, axis by axis: a third of the memory traffic
        difference = a[..., axis] - b[..., axis]
        difference *= difference
        square += difference
    return np.sqrt(square, out=square)


def forget() -> None:
    """Forget all searches."""
    global _held_bytes, _last
    with _lock:
        _known.clear()
        _held_bytes, _last = 0, None


_known: "OrderedDict[bytes, Neighbours]" = OrderedDict()
_held_bytes = 0
"""the size of all that is known: added up anew for each search, it would cost more the more is known"""
_lock = Lock()
_last: "tuple[tuple[str, int], Floats, Floats, Neighbours] | None" = None
"""the search for points before: who asks for the very same arrays again pays for no digest"""


def _remembered(kind: tuple[str, int], positions: Floats, points: Floats) -> Neighbours:
    global _last
    before = _last
    if before is not None and before[0] == kind and before[1] is positions and before[2] is points:
        return before[3]
    found = _looked_up(kind, positions, points)
    if kind[0] == "points":
        _last = (kind, positions, points, found)
    return found


def _looked_up(kind: tuple[str, int], positions: Floats, points: Floats) -> Neighbours:
    global _held_bytes
    digest = blake2b(repr((kind, positions.shape, points.shape)).encode(), digest_size=16)
    for array in (positions, points):
        digest.update(np.ascontiguousarray(array, np.float64).tobytes())
    key = digest.digest()
    with _lock:
        found = _known.get(key)
        if found is not None:
            _known.move_to_end(key)
            return found
    found = _searched(kind, positions, points)
    with _lock:
        if key not in _known:  # another thread may have searched for the same
            _known[key] = found
            _held_bytes += _size(found)
        while _held_bytes > REMEMBERED_BYTES and len(_known) > 1:
            _held_bytes -= _size(_known.popitem(last=False)[1])
    return found


def _size(found: Neighbours) -> int:
    return found.index.nbytes + found.reach.nbytes


def _searched(kind: tuple[str, int], positions: Floats, points: Floats) -> Neighbours:
    name, count = kind
    if not len(positions):
        return Neighbours(np.full((len(points), 1), -1, np.int32), np.full(len(points), np.inf))
    tree = cKDTree(positions)
    if name == "others":
        return _others(tree, count)
    parts = [_search(tree, points[some], count) for some in chunks(len(points))]
    if not parts:
        return Neighbours(np.empty((0, min(count, tree.n)), np.int32), np.empty(0))
    return Neighbours(np.concatenate([p.index for p in parts]), np.concatenate([p.reach for p in parts]))


def _search(tree: cKDTree, points: Floats, count: int) -> Neighbours:
    count = min(count, tree.n)
    asked = min(count + 1, tree.n)
    distance, index = tree.query(points, k=np.arange(1, asked + 1))
    reach = np.full(len(points), np.inf)
    if asked > count:
        reach = distance[:, count].copy()
        tied = np.flatnonzero(distance[:, count] - distance[:, count - 1] <= _SAME * distance[:, count])
        index = index[:, :count]
        if len(tied):
            index[tied] = _earliest(tree, points[tied], count)
    return Neighbours(np.sort(index, axis=1).astype(np.int32), reach)


def _others(tree: cKDTree, count: int) -> Neighbours:
    count = min(count, tree.n - 1)
    if count < 1:
        return Neighbours(np.full((tree.n, 1), -1, np.int32), np.full(tree.n, np.inf))
    index = tree.query(tree.data, k=np.arange(1, count + 2))[1]
    # Where several stand at one place, an observation need not be its own first neighbour, or be found at all.
    order = np.argsort(index == np.arange(tree.n)[:, None], axis=1, kind="stable")[:, :count]
    return Neighbours(np.take_along_axis(index, order, axis=1).astype(np.int32), np.full(tree.n, np.inf))


def _earliest(tree: cKDTree, points: Floats, count: int) -> npt.NDArray[np.int64]:
    """Among observations that are equally far, those that come first."""
    asked = min(count + _TIES, tree.n)
    distance, index = tree.query(points, k=np.arange(1, asked + 1))
    edge = distance[:, count - 1 : count]
    rank = np.where(distance < edge * (1 - _SAME), 0, np.where(distance <= edge * (1 + _SAME), 1, 2))
    order = np.lexsort((index, rank), axis=1)[:, :count]
    return np.asarray(np.take_along_axis(index, order, axis=1), np.int64)
