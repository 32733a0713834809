"""Small worlds for operators: grids, fields, areas, random expressions, and a plain oracle."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.operators.areas import area_from_bbox, area_from_geojson
from sensorgrid.operators.plan import OperatorPlan

GRID = Grid(
    extent=(-20, 30, 44, 62), shape=(32, 16), resolution_bits=2, region_digits=3, tick=600,
    attributes=("air_temperature", "precipitation_amount", "eastward_wind", "northward_wind"),
)  # fmt: skip
AREAS = {
    "A": area_from_bbox((-10, 35, 20.5, 50.3)),
    "B": area_from_geojson({"type": "Polygon", "coordinates": [[[0, 31], [40, 33], [21, 58], [0, 31]]]}),
    "dot": area_from_bbox((3.1, 41.1, 3.2, 42.0)),
}
REGIONS = tuple(Box(x, x + 8, y, y + 8) for x in range(0, 32, 8) for y in range(0, 16, 8))
TICKS = range(100, 108)

Fields = dict[int, dict[str, tuple[Any, Any, Any]]]
"""tick → attribute → values, errors, observed"""


def fields(seed: int, holes: float = 0.0, grid: Grid = GRID, ticks: Any = TICKS) -> Fields:
    """Random fields; a part of the points is missing."""
    rng = np.random.default_rng(seed)
    size = (grid.shape[1], grid.shape[0])
    usual = {
        "air_temperature": (285, 8),
        "precipitation_amount": (3, 2),
        "eastward_wind": (1, 5),
        "northward_wind": (0, 5),
    }
    found: Fields = {}
    for tick in ticks:
        found[tick] = {}
        for name in grid.attributes:
            mean, spread = usual[name]
            values = rng.normal(mean, spread, size).astype(np.float32)
            values[rng.random(size) < holes] = np.nan
            errors = rng.uniform(0.1, 2, size).astype(np.float32)
            found[tick][name] = (values, errors, True)
    return found


def merged_by(
    plan: OperatorPlan, world: Fields, regions: Any, order: Any = None
) -> dict[int, dict[str, Any]]:
    """The history that brokers would have: partials of regions, merged in an order."""
    history: dict[int, dict[str, Any]] = {}
    for tick, attributes in world.items():
        history[tick] = {}
        for term in plan.terms:
            values, errors, observed = attributes[term.attribute]
            partials = []
            for box in regions:
                weights = term.weights(box)
                part = np.s_[box.y0 : box.y1, box.x0 : box.x1]
                if weights is not None:
                    partials.append(term.partial(weights, values[part], errors[part], observed))
            if order is not None:
                order.shuffle(partials)
            while len(partials) > 2 and order is not None:  # any tree
                partials.append(term.merge([partials.pop(), partials.pop(0)]))
            history[tick][term.digest] = term.merge(partials)
    return history


_places = st.sampled_from(
    ["", ", 'A'", ", 'B'", ", BBOX(-5, 36, 11.3, 49)", ", POLYGON((0 31, 30 40, 9 60, 0 31))"]
)
_windows = st.sampled_from(["", "", ", '10min'", ", '30min'"])
_names = st.sampled_from(["air_temperature", "precipitation_amount", "eastward_wind"])


@st.composite
def _aggregates(draw: Any) -> str:
    function = draw(st.sampled_from(["mean", "sum", "count", "min", "max", "std", "percentile", "direction"]))
    place, window = draw(_places), draw(_windows)
    if function == "percentile":
        return f"percentile({draw(_names)}, {draw(st.sampled_from(['0', '0.1', '0.5', '0.9', '1']))}{place}{window})"
    if function == "direction":
        return f"mean(wind_from_direction{place}{window})"
    return f"{function}({draw(_names)}{place}{window})"


_numbers = st.one_of(st.integers(-300, 300).map(str), st.floats(-300, 300).map(lambda v: f"{v:.4f}"))


def _arithmetic(inner: Any) -> Any:
    return st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda p: f"(({p[0]}) ^ 1 {p[1]} ({p[2]}) ^ 1)"),
        inner.map(lambda text: f"-({text})"),
        inner.map(lambda text: f"difference(({text}) ^ 1, '20min')"),
        inner.map(lambda text: f"rate(({text}) ^ 1, '10min')"),
    )


numbers = st.recursive(st.one_of(_aggregates(), _aggregates(), _numbers), _arithmetic, max_leaves=4)
"""expressions that are numbers; a power of 1 takes away units, so that any two go together"""


def _logic(inner: Any) -> Any:
    return st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda text: f"NOT ({text})"),
        st.tuples(inner, st.integers(1, 3)).map(lambda p: f"hold({p[0]}, {p[1]})"),
    )


conditions = st.recursive(
    st.one_of(
        st.tuples(_aggregates(), st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), _numbers).map(" ".join),
        st.tuples(_aggregates(), _numbers, _numbers).map(lambda p: f"{p[0]} BETWEEN {p[1]} AND {p[2]}"),
        st.tuples(_aggregates(), _numbers, _numbers).map(lambda p: f"{p[0]} IN ({p[1]}, {p[2]})"),
    ),
    _logic,
    max_leaves=3,
)
"""expressions that hold or do not"""
