"""One attribute on a region at a tick, and many areas on it at once.

What all functions need of a field is made once and kept: sums over rectangles from the corner (of exact slices, so
that the sum over any rectangle is exact too, by four look-ups), and largest values over runs of 1, 2, 4, … points.
So an area costs what its border costs, however many points it holds.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from sensorgrid.operators import exact
from sensorgrid.operators.weights import Floats, Ints, Weights

Table = tuple[list[int], list[Floats], Floats]
"""places of slices in use; of each the sums over all points below and left, one row and column more than the field;
and [point, place]: the slices themselves"""
Keys = npt.NDArray[np.uint64]


class Layer:
    """Values of a region, with what is known of them.

    Parameters
    ----------
    values
        [y, x]; what is not finite is missing.
    errors
        Standard errors of the values; None if nobody says them.
    observed
        Whether the region, or each point, rests on observations; None if nobody says it, which counts as yes.
    """

    def __init__(
        self, values: npt.ArrayLike, errors: npt.ArrayLike | None = None, observed: Any = None
    ) -> None:
        found = np.asarray(values, np.float32).astype(np.float64)
        there = np.isfinite(found) & (np.abs(found) < exact.LARGEST)
        self.is_full = bool(there.all())
        self.there = there
        self.values = found if self.is_full else np.where(there, found, 0.0)
        self.errors: Floats | None = None
        if errors is not None:
            stated = np.asarray(errors, np.float32).astype(np.float64)
            known = np.isfinite(stated) & (np.abs(stated) < exact.LARGEST)
            if bool((known | ~there).all()):
                self.errors = stated if self.is_full else np.where(there, stated, 0.0)
        seen = np.broadcast_to(np.asarray(True if observed is None else observed, bool), found.shape)
        self.observed = there & seen
        self.is_observed = self.is_full and bool(seen.all())
        self._tables: dict[Any, Any] = {}

    def table(self, name: str, rows: Floats, numbers: Callable[[], Floats]) -> Table:
        """Sums from the corner of numbers times the weights of their rows; `name` says which numbers."""
        if name not in self._tables:
            found = list(exact.slices(numbers() * rows[:, None]))
            cuts = [cut for _, cut in found]
            points = (
                np.stack([cut.ravel() for cut in cuts], axis=1) if cuts else np.empty((self.values.size, 0))
            )
            self._tables[name] = [place for place, _ in found], [_corner_sums(cut) for cut in cuts], points
        table: Table = self._tables[name]
        return table

    def counts(self, name: str, numbers: Callable[[], Floats]) -> Floats:
        """Sums from the corner of small whole numbers, or of weights."""
        if name not in self._tables:
            self._tables[name] = _corner_sums(numbers())
        found: Floats = self._tables[name]
        return found

    def highest(self, lowest: bool) -> list[Keys]:
        """Keys that order values: of each point, and the largest of 2, 4, … points to the right."""
        name = ("highest", lowest)
        if name not in self._tables:
            levels = [self.keys(lowest)]
            step = 1
            while 2 * step <= self.values.shape[1]:
                below = levels[-1]
                levels.append(np.maximum(below[:, :-step], below[:, step:]))
                step *= 2
            self._tables[name] = levels
        found: list[Keys] = self._tables[name]
        return found

    def keys(self, lowest: bool) -> Keys:
        """Of each point: value and error as one number, larger for a higher (or lower) value; 0 where missing."""
        bits = order_of(-self.values if lowest else self.values)
        stated = np.full(self.values.shape, np.nan) if self.errors is None else self.errors
        keys = (bits << np.uint64(32)) | np.abs(stated).astype(np.float32).view(np.uint32)
        return np.where(self.there, keys, np.uint64(0))


def order_of(values: Floats) -> Keys:
    """Values of 32 bits as whole numbers in the same order, all above 0; -0 is 0."""
    bits = (values + 0.0).astype(np.float32).view(np.uint32).astype(np.uint64)
    sign = np.uint64(1 << 31)
    return np.where(bits & sign, ~bits & np.uint64(0xFFFFFFFF), bits | sign)


def value_of(order: Keys) -> Floats:
    """The values again."""
    sign = np.uint64(1 << 31)
    bits = np.where(order & sign, order & ~sign, ~order & np.uint64(0xFFFFFFFF))
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def _corner_sums(numbers: Floats) -> Floats:
    height, width = numbers.shape
    sums = np.zeros((height + 1, width + 1))
    np.cumsum(numbers, axis=0, out=sums[1:, 1:])
    np.cumsum(sums[1:, 1:], axis=1, out=sums[1:, 1:])
    return sums


class Meeting:
    """Many areas on one region."""

    def __init__(self, weights: Sequence[Weights]) -> None:
        first = weights[0]
        self.weights = tuple(weights)
        self.rows = first.rows
        self.height, self.width = first.box.y1 - first.box.y0, first.box.x1 - first.box.x0
        self.points = np.array([w.points for w in weights], np.float64)
        self.total = np.array([w.total for w in weights])

    def __len__(self) -> int:
        return len(self.weights)

    @cached_property
    def _corners(self) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Of each rectangle: its area, and its four places in a table."""
        lengths = [len(w.whole) for w in self.weights]
        x0, x1, y0, y1 = np.concatenate([w.whole for w in self.weights]).T
        wide = self.width + 1
        which = np.repeat(np.arange(len(self)), lengths)
        return which, y1 * wide + x1, y0 * wide + x1, y1 * wide + x0, y0 * wide + x0

    @cached_property
    def border(self) -> Any:
        """[area, point]: the share of each point at a border, as a sparse matrix."""
        lengths = [len(w.border) for w in self.weights]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        points = np.concatenate([w.border for w in self.weights])
        share = np.concatenate([w.share for w in self.weights])
        return csr_array((share, points, starts), shape=(len(self), self.height * self.width))

    @cached_property
    def inside(self) -> tuple[Ints, Ints, Floats]:
        """Of each point of each area: the area, the point's place in the region, its weight."""
        parts = [w.indices() for w in self.weights]
        which = np.repeat(np.arange(len(self)), [len(p[0]) for p in parts])
        return which, np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def rectangles(self, sums: Floats) -> Floats:
        """The sum over the rectangles of each area."""
        which, a, b, c, d = self._corners
        flat = sums.ravel()
        found = flat[a] - flat[b]
        found -= flat[c]
        found += flat[d]
        return np.asarray(np.bincount(which, found, len(self)), np.float64)

    def exact_sums(self, layer: Layer, name: str, numbers: Callable[[], Floats]) -> Floats:
        """[area, slice]: the sum of weights times numbers."""
        found = np.zeros((len(self), exact.SLICES))
        places, sums, points = layer.table(name, self.rows, numbers)
        at_border = self.border @ points if self.border.nnz else np.zeros((len(self), len(places)))
        for number, place in enumerate(places):
            found[:, place] = self.rectangles(sums[number]) + at_border[:, number]
        return found

    def _weighed(self, layer: Layer, name: str, numbers: Callable[[], Floats]) -> Floats:
        """The same for numbers that are small and few, such as weights themselves."""
        found = self.rectangles(layer.counts(name, numbers))
        return found + self.border @ numbers().ravel() if self.border.nnz else found

    def head(self, layer: Layer) -> Floats:
        """[area, 3]: points that have a value, their weight, and that of points that rest on observations."""
        found = np.stack([self.points, self.total, self.total], axis=1)
        if not layer.is_full:
            there = layer.there
            found[:, 0] = self.rectangles(layer.counts("points", lambda: there.astype(np.float64)))
            found[:, 0] += (self.border > 0) @ there.ravel().astype(np.float64)
            found[:, 1] = self._weighed(layer, "weight", lambda: there * self.rows[:, None])
        if not layer.is_observed:
            seen = layer.observed
            found[:, 2] = self._weighed(layer, "observed", lambda: seen * self.rows[:, None])
        return found

    @cached_property
    def _runs(self) -> tuple[Ints, tuple[tuple[int, Ints, Ints, Ints], ...]]:
        """Runs by length: level of the table, which run, where it begins, where its last stretch begins."""
        lengths = [len(w.runs) for w in self.weights]
        which = np.repeat(np.arange(len(self)), lengths)
        row, begin, end = np.concatenate([w.runs for w in self.weights]).T
        level = np.frexp((end - begin).astype(np.float64))[1] - 1
        found = []
        for one in np.unique(level).tolist():
            mine = np.flatnonzero(level == one)
            wide = self.width - (1 << one) + 1
            first = row[mine] * wide + begin[mine]
            found.append((one, mine, first, first + (end - begin)[mine] - (1 << one)))
        return which, tuple(found)

    def highest(self, layer: Layer, lowest: bool) -> Keys:
        """The largest key of each area; 0 if it has none."""
        levels = layer.highest(lowest)
        which, groups = self._runs
        keys = np.zeros(len(which), np.uint64)
        for level, mine, first, last in groups:
            flat = levels[level].ravel()
            keys[mine] = np.maximum(flat[first], flat[last])
        found = np.zeros(len(self), np.uint64)
        _largest(found, which, keys)
        edge = np.repeat(np.arange(len(self)), np.diff(self.border.indptr))
        _largest(found, edge, levels[0].ravel()[self.border.indices])
        return found


def _largest(found: Keys, which: Ints, keys: Keys) -> None:
    """Raise what was found to the largest of each area; areas come in order."""
    if not len(which):
        return
    starts = np.flatnonzero(np.r_[True, which[1:] != which[:-1]])
    areas = which[starts]
    found[areas] = np.maximum(found[areas], np.maximum.reduceat(keys, starts))
