"""The nearest observations of each point, chosen and ordered so that the result does not hang on the tree.

Neighbours come in the order of the observations, not of their distance: sums then run in the same order for
every point that shares them, in every region that holds them. Where several observations are equally far
(sensors on a lattice, grid points in the middle), the earlier one wins.
"""

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from sensorgrid.pipeline.gridding.kernels.interface import Floats

Indices = npt.NDArray[np.int64]

_TIES = 8
_SAME = 1e-9

CHUNK = 4096
"""points that are worked on at once: bounds the memory, whatever the size of the grid"""


def nearest_indices(tree: cKDTree, points: Floats, count: int) -> Indices:
    """(m, count) indices of the nearest observations of each point, ascending; `count` is cut to what there is."""
    count = min(count, tree.n)
    asked = min(count + 1, tree.n)
    distance, index = tree.query(points, k=np.arange(1, asked + 1))
    if asked > count:
        tied = np.flatnonzero(distance[:, count] - distance[:, count - 1] <= _SAME * distance[:, count])
        index = index[:, :count]
        if len(tied):
            index[tied] = _earliest(tree, points[tied], count)
    return np.sort(index, axis=1).astype(np.int64)


def separation(a: Floats, b: Floats) -> Floats:
    """Distances between positions, over the last axis."""
    square = np.zeros(np.broadcast_shapes(a.shape, b.shape)[:-1])
    for axis in range(a.shape[-1]):  # in place, axis by axis: a third of the memory traffic
        difference = a[..., axis] - b[..., axis]
        difference *= difference
        square += difference
    return np.sqrt(square, out=square)


def _earliest(tree: cKDTree, points: Floats, count: int) -> Indices:
    """Among observations that are equally far, those that come first."""
    asked = min(count + _TIES, tree.n)
    distance, index = tree.query(points, k=np.arange(1, asked + 1))
    edge = distance[:, count - 1 : count]
    rank = np.where(distance < edge * (1 - _SAME), 0, np.where(distance <= edge * (1 + _SAME), 1, 2))
    order = np.lexsort((index, rank), axis=1)[:, :count]
    return np.take_along_axis(index, order, axis=1)
