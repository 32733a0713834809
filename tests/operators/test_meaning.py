"""One meaning: whatever the tree of partials, and however many plans are evaluated together, the bits are the same."""

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from operator_worlds import AREAS, GRID, REGIONS, TICKS, conditions, fields, merged_by, numbers
from sensorgrid.model.box import Box
from sensorgrid.model.errors import SensorGridError
from sensorgrid.operators.batch import PlanBatch
from sensorgrid.operators.errors import ExpressionError
from sensorgrid.operators.plan import Operator, OperatorPlan, compile, plan_from
from sensorgrid.operators.weights import clip

WHOLE = (Box(0, 32, 0, 16),)


def compiled(value: str, when: str | None = None, until: str | None = None) -> OperatorPlan:
    """A plan, unless random numbers made nonsense, such as a division by 0 or no attribute at all."""
    try:
        return compile(Operator(value, when, until if when else None), GRID, AREAS)
    except ExpressionError as error:
        assume("no attribute" not in str(error) and "division by 0" not in str(error))
        raise


def bits(number: Any) -> tuple[Any, ...]:
    return tuple(np.float64(v).tobytes() if isinstance(v, float) else v for v in number)


@given(
    value=st.one_of(numbers, conditions),
    when=st.none() | conditions,
    until=st.none() | conditions,
    seed=st.integers(0, 99),
    holes=st.sampled_from([0.0, 0.3, 0.97]),
)
@settings(max_examples=40, phases=(Phase.explicit, Phase.generate))
def test_trees_of_partials_one_process_and_many_plans_give_the_same_bits(
    value: str, when: str | None, until: str | None, seed: int, holes: float
) -> None:
    plan, world = compiled(value, when, until), fields(seed, holes)
    other = compile("mean(air_temperature, 'A')", GRID, AREAS)
    trees = merged_by(plan, world, REGIONS, random.Random(seed))
    alone = merged_by(plan, world, WHOLE)
    together = PlanBatch([other, plan, plan], REGIONS)
    for tick, attributes in world.items():
        for box in REGIONS:
            part = np.s_[box.y0 : box.y1, box.x0 : box.x1]
            cut = {name: (v[part], e[part], o) for name, (v, e, o) in attributes.items()}
            together.take(tick, box, cut)

    for tick in (TICKS[0], TICKS[3], TICKS[-1]):
        expected = bits(plan.result(tick, alone))
        assert bits(plan.result(tick, trees)) == expected
        assert bits(together.results(tick).at(1)) == expected
        assert bits(together.results(tick).at(2)) == expected
    assert plan_from(plan.to_dict(), GRID).digest == plan.digest
    assert bits(plan_from(plan.to_dict(), GRID).result(TICKS[-1], alone)) == bits(
        plan.result(TICKS[-1], alone)
    )


def plain(function: str, area: str | None, values: Any, share: float = 0.5) -> float:
    """A function in plain NumPy, with weights by brute force."""
    weights = clip(AREAS[area] if area else None, GRID)
    assert weights is not None
    points, weight = weights.indices()
    found = values.ravel().astype(np.float64)[points]
    weight, found = weight[~np.isnan(found)], found[~np.isnan(found)]
    mean = (weight * found).sum() / weight.sum()
    if function == "percentile":
        order = np.argsort(found, kind="stable")
        return float(found[order][np.searchsorted(np.cumsum(weight[order]), share * weight.sum())])
    return float(
        {
            "mean": lambda: mean, "sum": lambda: (weight * found).sum(), "count": lambda: len(found),
            "min": found.min, "max": found.max,
            "std": lambda: np.sqrt((weight * (found - mean) ** 2).sum() / weight.sum()),
        }[function]()
    )  # fmt: skip


@pytest.mark.parametrize("function", ["mean", "sum", "count", "min", "max", "std", "percentile"])
@pytest.mark.parametrize("area", [None, "A", "B", "dot"])
@pytest.mark.parametrize("holes", [0.0, 0.5])
def test_functions_are_what_numpy_gives(function: str, area: str | None, holes: float) -> None:
    world = fields(3, holes)
    if area == "dot":
        world = fields(3)
    arguments = (
        ["air_temperature"] + (["0.7"] if function == "percentile" else []) + ([f"'{area}'"] if area else [])
    )
    plan = compile(f"{function}({', '.join(arguments)})", GRID, AREAS)

    found = plan.result(100, merged_by(plan, world, REGIONS))

    expected = plain(function, area, world[100]["air_temperature"][0], 0.7)
    assert found.value == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert found.points == plain("count", area, world[100]["air_temperature"][0])


def test_a_large_area_has_percentiles_to_the_width_of_a_bin() -> None:
    from dataclasses import replace

    grid = replace(GRID, shape=(64, 32))
    values = fields(1, grid=grid)[100]["air_temperature"]
    plan = compile("percentile(air_temperature, 0.9)", grid)
    (term,) = plan.terms

    found = term.finish(term.partial(term.whole, *values))

    weight = term.whole.indices()[1]
    order = np.argsort(values[0].ravel())
    at = np.searchsorted(np.cumsum(weight[order]), 0.9 * weight.sum())
    assert term.parameters == (0.9, "bins")
    assert found.value == pytest.approx(float(values[0].ravel()[order][at]), abs=0.126)


def test_coverage_counts_what_reported_and_rests_on_observations() -> None:
    plan = compile("mean(air_temperature)", GRID)
    (term,) = plan.terms
    values, errors = np.full((8, 8), 280.0), np.ones((8, 8))
    heard, silent, empty, *_ = (term.weights(box) for box in REGIONS)
    assert None not in (heard, silent, empty)
    partials = [
        term.partial(heard, values, errors, True),
        term.partial(silent, values + 20, errors, False),
        term.partial(empty, values * np.nan, errors, True),
    ]

    found = term.finish(term.merge(partials))

    assert found.coverage == heard.total / term.whole.total
    assert found.points == 128
    assert 280 < found.value < 300


def test_a_field_that_is_the_same_everywhere_has_no_spread_at_all() -> None:
    plan = compile("std(air_temperature, 'B')", GRID, AREAS)
    world = {100: {"air_temperature": (np.full((16, 32), 287.3, np.float32), np.ones((16, 32)), None)}}

    assert plan.result(100, merged_by(plan, world, REGIONS)).value == 0.0


def test_directions_are_averaged_as_vectors() -> None:
    from dataclasses import replace

    grid = replace(GRID, attributes=("wind_from_direction",))
    plan = compile("mean(wind_from_direction)", grid)
    values = np.where(np.arange(32) % 2, 350.0, 10.0) * np.ones((16, 1))
    world = {100: {"wind_from_direction": (values, np.ones((16, 32)), None)}}
    blowing = compile("mean(wind_from_direction)", GRID)
    ones = np.ones((16, 32))
    west = {100: {"eastward_wind": (3 * ones, ones, None), "northward_wind": (0 * ones, ones, None)}}
    calm = {100: {"eastward_wind": (0 * ones, ones, None), "northward_wind": (0 * ones, ones, None)}}

    assert plan.result(100, merged_by(plan, world, REGIONS)).value == pytest.approx(0, abs=1e-6)
    assert blowing.result(100, merged_by(blowing, west, REGIONS)).value == 270.0
    assert blowing.result(100, merged_by(blowing, calm, REGIONS)).reason.startswith("no direction")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mean(air_temperature,'A')>300", "300 < mean( air_temperature , 'A' )"),
        ("mean(air_temperature, 'A')", "mean(air_temperature, BBOX(-10,35,20.5,50.3))"),
        ("mean(air_temperature) > q(20, 'degC')", "mean(air_temperature) > 293.15"),
        ("mean(air_temperature, '1h')", "MEAN(air_temperature, '60min')"),
        ("a AND b", "b AND a AND b"),
        ("mean(air_temperature) BETWEEN 1 AND 2", "mean(air_temperature) >= 1 AND mean(air_temperature) <= 2"),
        ("max(air_temperature) + min(air_temperature)", "min(air_temperature) + max(air_temperature)"),
        ("difference(air_temperature, 'A', '1h')", "difference(mean(air_temperature, 'A'), '1h')"),
        ("difference(air_temperature, '1h') > q(2, 'degC')", "difference(air_temperature, '1h') > 2"),
        ("rate(air_temperature, '1h') > q(2, 'degC')", "rate(air_temperature, '1h') > 2"),
        ("mean(air_temperature) + q(2, 'degC') > 290", "mean(air_temperature) + 2 > 290"),
        ("2 * mean(air_temperature) > q(600, 'K')", "mean(air_temperature) * 2 > 600"),
        ("2 * difference(air_temperature, '1h') > q(2, 'degC')", "2 * difference(air_temperature, '1h') > 2"),
        ("mean(air_temperature) - mean(air_temperature,'A') > q(9, 'degF')",
         "mean(air_temperature) - mean(air_temperature,'A') > 5"),
    ],
)  # fmt: skip
def test_the_same_meaning_has_the_same_name(one: str, other: str) -> None:
    letters = {"a": "mean(air_temperature) > 1", "b": "max(air_temperature) > 2"}
    texts = [" ".join(letters.get(word, word) for word in text.split()) for text in (one, other)]

    first, second = (compile(text, GRID, AREAS) for text in texts)

    assert first.digest == second.digest
    assert first.digest != compile("mean(air_temperature, 'B') > 1", GRID, AREAS).digest


def test_regions_that_are_covered_whole_share_their_partials_whatever_the_area() -> None:
    plans = [
        compile(f"{f}(air_temperature, BBOX({w}, 30, 44, 62))", GRID) for f, w in (("mean", -20), ("sum", -6))
    ]
    east, edge = Box(24, 32, 8, 16), Box(0, 8, 0, 8)
    first, second = (plan.terms[0] for plan in plans)

    names = [[term.leaf(term.weights(box)) for box in (east, edge)] for term in (first, second)]  # type: ignore[arg-type]

    assert first.digest != second.digest
    assert names[0][0] == names[1][0]
    assert names[0][1] != names[1][1]


def active(rain: list[float | None], when: str, until: str | None) -> list[bool]:
    """Whether an operator gives values, tick by tick."""
    plan = compile(Operator("mean(air_temperature)", when, until), GRID)
    world = fields(1, ticks=range(len(rain)))
    for tick, level in enumerate(rain):
        ones = np.ones((16, 32))
        world[tick]["precipitation_amount"] = (ones * (np.nan if level is None else level), ones, None)
    history = merged_by(plan, world, REGIONS)
    return [not plan.result(tick, history).reason for tick in range(len(rain))]


def test_until_keeps_an_operator_active_after_when_has_ended() -> None:
    rain = [0, 25, 18, 25, None, 16, 12, 16, 25]
    when, until = "mean(precipitation_amount) > 20", "mean(precipitation_amount) < 15"

    assert active(rain, when, until) == [False, True, True, True, True, True, False, False, True]
    assert active(rain, when, None) == [False, True, False, True, False, False, False, False, True]


def test_hold_wants_a_condition_at_every_tick() -> None:
    rain = [25, 25, 0, 25, 25, 25]

    found = active(rain, "hold(mean(precipitation_amount) > 20, 2)", None)

    assert found == [False, True, False, False, True, True]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            "mean(air_temperature) / (mean(precipitation_amount) - mean(precipitation_amount))",
            "division by zero",
        ),
        ("mean(air_temperature) ^ 1000", "not a number"),
        ("(0 - mean(air_temperature)) ^ 0.5", "not a number"),
        ("rate(air_temperature, '1h')", "no data"),
    ],
)
def test_without_a_value_there_is_a_reason(value: str, reason: str) -> None:
    plan = compile(value, GRID, AREAS)

    found = plan.result(100, merged_by(plan, {100: fields(1)[100]}, REGIONS))

    assert np.isnan(found.value)
    assert found.reason == reason


def test_an_area_without_a_value_and_a_tick_without_data_say_so() -> None:
    plan, count = compile("mean(air_temperature, 'A')", GRID, AREAS), compile("count(air_temperature)", GRID)
    world = fields(1, holes=1.0)

    assert plan.result(100, merged_by(plan, world, REGIONS)).reason == "no value in the area"
    assert plan.result(99, merged_by(plan, world, REGIONS)).reason == "no data"
    assert count.result(100, merged_by(count, world, REGIONS)).value == 0


def test_results_come_as_often_as_they_are_asked_for() -> None:
    plan = compile(Operator("mean(air_temperature)", every="30min"), GRID)
    history = merged_by(plan, fields(1), REGIONS)

    assert [t for t in TICKS if not plan.result(t, history).reason] == [102, 105]


def test_a_region_that_comes_late_changes_every_result_that_looks_at_its_tick() -> None:
    plan, world = (
        compile("mean(air_temperature, '30min') - rate(max(air_temperature), '10min') ^ 1", GRID),
        fields(1),
    )
    batch, late = PlanBatch([plan], REGIONS), []
    for tick, attributes in world.items():
        for number, box in enumerate(REGIONS):
            part = np.s_[box.y0 : box.y1, box.x0 : box.x1]
            cut = {name: (v[part], e[part], o) for name, (v, e, o) in attributes.items()}
            if (tick, number) == (104, 3):
                late.append((tick, box, cut))
            else:
                batch.take(tick, box, cut)
        batch.results(tick)
    before = [bits(batch.results(tick).at(0)) for tick in TICKS]

    batch.take(*late[0])

    after = [bits(batch.results(tick).at(0)) for tick in TICKS]
    history = merged_by(plan, world, REGIONS)
    assert after == [bits(plan.result(tick, history)) for tick in TICKS]
    assert [tick for tick, a, b in zip(TICKS, before, after, strict=True) if a != b] == [104, 105, 106]


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(data=st.data(), junk=_json)
@settings(max_examples=200, phases=(Phase.explicit, Phase.generate))
def test_a_plan_from_outside_is_refused_or_works(data: st.DataObject, junk: Any) -> None:
    """One part of a good plan becomes anything."""
    plan = compile(
        Operator("hold(mean(air_temperature, 'B') > 3, 2) AND percentile(air_temperature, 0.5, 'A') < 2"),
        GRID,
        AREAS,
    )
    found = json.loads(json.dumps(plan.to_dict()))
    place: Any = found
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = junk

    try:
        other = plan_from(found, GRID)
    except SensorGridError:
        return
    other.result(101, merged_by(other, {t: fields(1)[t] for t in (100, 101)}, REGIONS))
