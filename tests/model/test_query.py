from datetime import UTC, datetime, timedelta
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oracles import query_mask
from sensorgrid import Grid, Query, SensorGridError
from sensorgrid.model.errors import QueryError, UnknownAttributeError

NAN, INF = float("nan"), float("inf")
T = "air_temperature"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"bbox": (0, 0, NAN, 1)}, "bbox: found .* expected finite numbers"),
        ({"bbox": (0, 0, 1)}, "expected four numbers"),
        ({"bbox": "here"}, "expected four numbers"),
        ({"bbox": (0, 10, 10, 0)}, "south 10 > north 0"),
        ({"resolution": 0}, "resolution x: found 0.0, expected a number in"),
        ({"resolution": (1, 0, 1)}, "resolution y"),
        ({"resolution": (1, 1, 1.5)}, "resolution t: found 1.5"),
        ({"resolution": NAN}, "resolution x: found nan"),
        ({"resolution": (1, 1)}, "expected a number or three"),
        ({"resolution": "fine"}, "expected a number or three"),
        ({"start": "yesterday"}, "expected ISO 8601"),
        ({"start": "2026-03-01T12:00:00"}, "without a time zone"),
        ({"start": 7}, "expected a datetime"),
        ({"duration": -5}, "expected a timedelta or seconds, more than 0"),
        ({"duration": 0}, "expected a timedelta or seconds, more than 0"),
        ({"duration": timedelta(-1)}, "expected a timedelta or seconds, more than 0"),
        ({"duration": NAN}, "expected a timedelta or seconds, more than 0"),
        ({"duration": "1h"}, "found '1h', expected a timedelta or seconds"),
        ({"duration": 1e30}, "expected less than a billion days"),
        ({"resolution": None}, "expected a number or three"),
        ({"where": {"rain": (0, 1)}}, "one of the query's own"),
        ({"where": {T: (5, 1)}}, "low <= high"),
        ({"where": {T: (NAN, 1)}}, "low <= high"),
        ({"where": {T: 5}}, "expected \\(low, high\\)"),
    ],
)
def test_a_query_that_cannot_be_right_says_why(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint) as caught:
        Query(T, **options)  # type: ignore[arg-type]

    assert isinstance(caught.value, SensorGridError)


@pytest.mark.parametrize("attribute", ["", (), (T, T), (T, 5), None])
def test_attributes_are_names_each_once(attribute: object) -> None:
    with pytest.raises(QueryError, match="attribute: found"):
        Query(attribute)  # type: ignore[arg-type]


def test_an_unknown_attribute_is_refused_with_those_that_exist() -> None:
    with pytest.raises(
        UnknownAttributeError, match="found 'warmth', expected one of air_temperature"
    ) as caught:
        Query("warmth").box(Grid())

    assert isinstance(caught.value, KeyError)
    assert str(caught.value).startswith("attribute:")


def test_the_effective_resolution_is_at_least_the_one_asked_for() -> None:
    grid = Grid(resolution_bits=4)

    assert Query(T, resolution=0.3).effective_resolution(grid) == (5 / 16, 5 / 16, 5 / 16)
    assert Query(T, resolution=(1, 0.5, 1 / 16)).effective_resolution(grid) == (1, 0.5, 1 / 16)
    assert Query(T, resolution=0.001).effective_resolution(grid) == (1 / 16,) * 3
    assert Query(T, resolution=Fraction(1, 4)).effective_resolution(grid) == (0.25,) * 3


@given(st.data())
def test_the_size_of_a_query_is_the_number_of_its_points(data: st.DataObject) -> None:
    grid = Grid(shape=(32, 16), resolution_bits=(2, 1, 3), tick=7.5, attributes=(T, "relative_humidity"))
    west, east = data.draw(st.floats(-180, 180)), data.draw(st.floats(-180, 180))
    south, north = sorted((data.draw(st.floats(-90, 90)), data.draw(st.floats(-90, 90))))
    resolution = tuple(data.draw(st.floats(0.01, 1)) for _ in "xyt")
    query = Query((T, "relative_humidity"), (west, south, east, north), resolution)  # type: ignore[arg-type]
    try:
        size = query.size(grid)
    except QueryError:
        assume(False)

    mask = query_mask(grid, query.box(grid), query.limits(grid))

    assert size.points_per_tick == 2 * mask[0].sum()
    assert size.bytes_per_tick == 4 * size.points_per_tick
    assert size.bytes_per_second == pytest.approx(4 * 2 * mask.sum() / (8 * 7.5), rel=1e-12)


def test_a_box_between_the_points_of_a_coarse_resolution_is_refused() -> None:
    grid = Grid(shape=(64, 32), resolution_bits=4)
    query = Query(T, bbox=(-170, -90, -120, 90), resolution=1 / 16)

    with pytest.raises(QueryError, match=r"no point along x at resolution 0\.0625.* at least 16 points wide"):
        query.size(grid)


@pytest.mark.parametrize("resolution", [1, 0.5, 0.3, 1 / 16])
def test_the_whole_world_at_any_resolution(resolution: float) -> None:
    grid = Grid(shape=(64, 32), resolution_bits=4)
    share = Query(T, resolution=resolution).effective_resolution(grid)[0]

    assert Query(T, resolution=resolution).size(grid).points_per_tick == 64 * 32 * share * share


def test_start_and_duration_become_ticks() -> None:
    grid, now = Grid(tick=600), datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
    noon = grid.tick_at(datetime(2026, 3, 1, 12, tzinfo=UTC))

    assert Query(T).ticks(grid, now) == (noon + 1, None)
    assert Query(T, duration=1200).ticks(grid, now) == (noon + 1, noon + 3)
    assert Query(T, start="2026-03-01T12:00Z", duration=1200).ticks(grid, now) == (noon, noon + 2)


def test_a_query_that_ends_before_its_first_tick_is_refused() -> None:
    query = Query(T, start="2026-03-01T12:01Z", duration=60)

    with pytest.raises(QueryError, match=r"found no tick in 0:01:00 .* the next is at 2026-03-01T12:10:00"):
        query.ticks(Grid(tick=600), datetime(2026, 3, 1, tzinfo=UTC))


def test_numpy_numbers_are_numbers() -> None:
    assert (
        Query(T, resolution=np.float32(0.5))
        == Query(T, resolution=np.array([0.5, 0.5, 0.5]))
        == Query(T, resolution=0.5)
    )  # type: ignore[arg-type]


def test_value_ranges_are_kept_in_order_with_open_sides() -> None:
    query = Query((T, "relative_humidity"), where={"relative_humidity": (None, 0.2), T: (300, None)})

    assert query.where == ((T, 300, INF), ("relative_humidity", -INF, 0.2))


def test_queries_are_values() -> None:
    assert Query(T, (0, 0, 1, 1)) == Query([T], (0.0, 0, 1, 1))
    assert len({Query(T), Query(T), Query(T, resolution=0.5)}) == 2
