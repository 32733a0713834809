"""A term: one function of one attribute over one area, which regions compute in part and others merge."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.operators.areas import Area, area_from_polygons
from sensorgrid.operators.correlation import damping
from sensorgrid.operators.errors import ExpressionError
from sensorgrid.operators.layer import Layer, Meeting
from sensorgrid.operators.numbers import Floats, Number, Numbers
from sensorgrid.operators.partials.directions import Direction
from sensorgrid.operators.partials.extremes import Extreme
from sensorgrid.operators.partials.interface import Family, Terrain
from sensorgrid.operators.partials.percentiles import BINS, SMALL, BinnedPercentile, ExactPercentile
from sensorgrid.operators.partials.spread import Deviation
from sensorgrid.operators.partials.totals import Count, Total
from sensorgrid.operators.weights import Weights, clip

_SIMPLE: dict[str, Family] = {
    "mean": Total("mean"), "sum": Total("sum"), "count": Count(), "min": Extreme(True), "max": Extreme(False),
    "std": Deviation(), "direction": Direction(),
}  # fmt: skip


@dataclass(frozen=True)
class Term:
    """One function of one attribute over one area of a grid.

    Brokers compute partials of their regions, merge them in any order, and finish what has been merged. A partial is
    an array of `width` float64s; merging any partials of one term, in any tree, gives the same bits.

    >>> term = Term("mean", "air_temperature", None, (), Grid(shape=(8, 4), resolution_bits=1))
    >>> weights = term.weights(Box(0, 8, 0, 2))
    >>> south = term.partial(weights, np.full((2, 8), 280.0), np.ones((2, 8)))
    >>> term.finish(term.merge([south])).value, term.finish(south).coverage
    (280.0, 0.5)
    """

    function: str
    """mean, sum, count, min, max, std, percentile, direction"""
    attribute: str
    area: Area | None
    """None: the whole grid"""
    parameters: tuple[float | str, ...]
    """of a percentile its share, and "bins" or "exact" """
    grid: Grid
    length_m: float | None = field(default=None, compare=False)
    """over which errors are alike; changes the error of a mean and nothing else"""

    @cached_property
    def digest(self) -> str:
        """A name for what it means on its grid."""
        return _digest(
            self.function, self.attribute, self.parameters, "" if self.area is None else self.area.digest
        )

    @cached_property
    def family(self) -> Family:
        """How it is computed."""
        if self.function != "percentile":
            return _SIMPLE[self.function]
        share = float(self.parameters[0])
        if self.parameters[1] == "bins":
            return BinnedPercentile(share, *BINS[self.attribute])
        return ExactPercentile(share, self.whole, self.grid.shape[0])

    @cached_property
    def whole(self) -> Weights:
        """Its weights on the whole grid."""
        found = clip(self.area, self.grid)
        assert found is not None, "compiled: it meets a point"
        return found

    @property
    def width(self) -> int:
        """float64s of a partial."""
        return self.family.width

    def weights(self, box: Box) -> Weights | None:
        """What the area has of a box of points, such as a region; None if nothing."""
        return self.whole.within(box)

    def met(self, boxes: Iterable[Box]) -> list[int]:
        """Which of several boxes the area meets."""
        return [number for number, box in enumerate(boxes) if self.weights(box) is not None]

    def leaf(self, weights: Weights) -> str:
        """A name for its partial of a region: the same for all areas that share these weights."""
        if self.function == "percentile" and self.parameters[1] == "exact":
            return self.digest  # places in the partial are those of the area
        function = "total" if self.function in ("mean", "sum") else self.function
        parameters = () if function == "percentile" else self.parameters
        return _digest(function, self.attribute, parameters, weights.digest)

    def partial(
        self,
        weights: Weights,
        values: npt.ArrayLike,
        errors: npt.ArrayLike | None = None,
        observed: npt.ArrayLike | None = None,
    ) -> Floats:
        """The partial of a region, of arrays [y, x] that cover the box of the weights; see `Layer`."""
        return np.asarray(self.family.partials(Meeting([weights]), Layer(values, errors, observed))[0])

    def merge(self, partials: Sequence[Floats]) -> Floats:
        """Several partials as one; at least one."""
        return np.asarray(self.family.merge(np.stack(partials)[:, None, :])[0])

    def finish(self, partial: Floats, ticks: int = 1) -> Number:
        """The number that a merged partial stands for, of a window of so many ticks."""
        return self.finished(partial[None, :], ticks).at(0)

    def finished(self, merged: Floats, ticks: int = 1) -> Numbers:
        """The same, for evaluation."""
        return self.family.finish(
            merged, Terrain(np.array([self.whole.total * ticks]), np.array([self.damping]))
        )

    @cached_property
    def damping(self) -> float:
        """See `correlation.damping`."""
        return damping(self.whole, self.grid, self.length_m)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for the wire; `term_from` reads it."""
        return {
            "function": self.function, "attribute": self.attribute, "parameters": list(self.parameters),
            "area": None if self.area is None else self.area.polygons, "length_m": self.length_m,
        }  # fmt: skip


def term_from(found: dict[str, Any], grid: Grid) -> Term:
    """What `Term.to_dict` told, on a grid; refuses what no expression means."""
    function, attribute, length_m = found["function"], found["attribute"], found["length_m"]
    parameters = tuple(found["parameters"])
    grid.check_attributes((attribute,))
    if function == "percentile":
        share, way = parameters
        if not 0 <= float(share) <= 1 or (way != "exact" and (way != "bins" or attribute not in BINS)):
            raise ExpressionError(f"term: found percentile {parameters}, expected a share, and exact or bins")
    elif function not in _SIMPLE or parameters:
        raise ExpressionError(
            f"term: found {function!r} with {parameters}, expected one of {', '.join(_SIMPLE)}"
        )
    area = None if found["area"] is None else area_from_polygons(found["area"])
    met = clip(area, grid)
    if met is None or (parameters[1:] == ("exact",) and met.points > SMALL):
        raise ExpressionError("term: found an area with too few points or too many, expected another one")
    return Term(function, attribute, area, parameters, grid, None if length_m is None else float(length_m))


def _digest(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
