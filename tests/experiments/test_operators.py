"""The experiment on operators: its world, its rows, its pictures."""

from pathlib import Path

import pytest

from sensorgrid.experiments import operator_figures
from sensorgrid.experiments.operators import (
    DIGITS,
    FULL,
    QUICK,
    SUBSCRIBERS,
    OperatorsCase,
    OperatorsPlan,
    demands,
    sorted_rows,
)

FIELDS = {
    "system", "areas", "nodes", "pub_rate", "filter", "balanced", "seed", "peak", "over_threshold", "mean", "p95",
    "orders", "lookups_mean_hops", "lookups_max_hops",
}  # fmt: skip


def ids_of(area: tuple[tuple[int, int], ...]) -> set[int]:
    """In units of the smallest cell that areas are made of."""
    unit = 1 << DIGITS - 8
    assert all(start % unit == stop % unit == 0 for start, stop in area)
    return {n for start, stop in area for n in range(start // unit, stop // unit)}


def test_disjoint_areas_are_disjoint_and_overlapping_ones_differ_and_overlap() -> None:
    apart = [ids_of(d.terms[0].area) for d in demands("disjoint", 1, seed=3)]
    over = [ids_of(d.terms[0].area) for d in demands("overlapping", 1, seed=3)]

    assert len(apart) == len(over) == SUBSCRIBERS
    assert len(set.union(*apart)) == sum(map(len, apart)) == SUBSCRIBERS * 8
    assert len(set(map(frozenset, over))) == SUBSCRIBERS
    assert len(set.union(*over)) < sum(map(len, over))


def test_the_same_seed_asks_the_same_of_all_systems_and_another_something_else() -> None:
    assert demands("overlapping", 1, 1) == demands("overlapping", 1, 1)
    assert demands("overlapping", 1, 1) != demands("overlapping", 1, 2)
    assert [d.terms[0].expression for d in demands("disjoint", 3, 1)][:4] == [
        "mean 0",
        "mean 1",
        "mean 2",
        "mean 0",
    ]


def test_a_plan_has_each_case_once() -> None:
    cases = FULL.cases((1, 2))

    assert len(set(cases)) == len(cases) == 2 * 192
    assert len(QUICK.cases((1,))) == 96


def test_a_row_has_what_is_promised_and_no_node_is_without_its_readings() -> None:
    row = OperatorsCase("ours", "disjoint", "geographic", 1, 0.25, True, 7).play()

    assert set(row) >= FIELDS
    assert max(row["curve"]) == pytest.approx(row["peak"], abs=0.05)
    assert row["peak"] >= row["p95"] >= row["mean"] >= 40  # 20,000 readings at 500 nodes
    assert len(row["curve"]) == 101


def test_the_page_is_about_todays_code() -> None:
    """Whatever is renamed, joints stay at the homes with which the page was measured."""
    row = OperatorsCase("ours", "overlapping", "id-space", 4, 0.5, False, 1).play()

    assert (row["peak"], row["mean"]) == pytest.approx((286.4, 180.6368))


def test_a_merge_that_keeps_all_messages_and_expressions_that_differ_cost_more() -> None:
    def mean(**other: int | str) -> float:
        return float(
            OperatorsCase("ours", "overlapping", "id-space", 4, 0.5, True, 1, **other).play()["mean"]
        )  # type: ignore[arg-type]

    usual = mean()

    assert usual < mean(expressions=20)
    assert usual < mean(merge="keep")


def test_pictures_are_drawn_from_the_table_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    row = OperatorsCase("ours", "disjoint", "id-space", 3, 0.5, True, 1).play()
    plan = OperatorsPlan(systems=("paper", "ours"), areas=("disjoint",), nodes=("id-space",), rates=(3,))
    rows = [
        row | {name: getattr(case, name) for name in ("system", "pub_rate", "filter", "balanced", "seed")}
        for case in plan.cases((1,))
    ]

    made = operator_figures.draw(sorted_rows(rows), tmp_path)

    assert [path.name for path in made] == ["operators-distributions.png", "operators-peaks.png"]
    assert all(path.stat().st_size > 10_000 for path in made)
