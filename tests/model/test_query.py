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


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"spacing": 0}, "spacing: found 0, expected one or two numbers"),
        ({"spacing": (1, 2, 3)}, "spacing: found"),
        ({"spacing": "1"}, "spacing: found '1'"),
        ({"spacing": INF}, "spacing: found inf"),
        ({"spacing": 1, "resolution": 0.5}, "spacing: found it beside resolution"),
        ({"every": "1h", "resolution": (1, 1, 0.5)}, "every: found it beside resolution"),
        ({"every": "often"}, "every: found 'often', expected a length of time"),
        ({"every": ""}, "every: found ''"),
        ({"every": 0}, "every: found 0, expected a timedelta"),
        ({"every": timedelta(-1)}, "every: found"),
    ],
)
def test_a_spacing_that_cannot_be_right_says_why(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint):
        Query(T, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10min", 600),
        ("1h", 3600),
        ("s", 1),
        ("6 hours", 21600),
        ("100ms", 0.1),
        ("1.5h", 5400),
        ("2days", 172800),
    ],
)
def test_a_length_of_time_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert Query(T, every=text).every == timedelta(seconds=seconds)


@given(st.floats(0.01, 500), st.floats(0.01, 500), st.integers(1, 100_000))
def test_spacing_takes_the_coarsest_resolution_that_is_close_enough(x: float, y: float, every: int) -> None:
    grid = Grid(shape=(512, 256), resolution_bits=(4, 3, 2), tick=60)
    limits = Query(T, spacing=(x, y), every=every).limits(grid)

    for limit, bits, wide, step in zip(limits, (4, 3, 2), (x, y, every), (*grid.spacing, 60), strict=True):
        gap = (1 << bits) // limit * step
        assert gap <= wide * 1.001 or limit == 1 << bits
        assert limit == 1 or 2 * gap > wide


def test_a_query_like_a_model_covers_its_areas_at_its_spacing() -> None:
    xarray = pytest.importorskip("xarray")
    lon, lat = np.arange(0.125, 10, 0.25), np.arange(50.125, 55, 0.25)
    field = xarray.DataArray(
        np.zeros((20, 40)), coords={"lat": lat, "lon": lon}, dims=("lat", "lon"), name="t2m",
        attrs={"standard_name": "air_temperature"},
    )  # fmt: skip

    query = Query.like(field)

    assert query.attributes == ("air_temperature",)
    assert query.bbox == pytest.approx((0, 50, 10, 55))
    assert query.spacing == pytest.approx((0.25, 0.25))


def test_a_query_like_a_curvilinear_model_and_one_around_the_earth() -> None:
    xarray = pytest.importorskip("xarray")
    lon, lat = np.meshgrid(np.arange(0.0, 360, 1.5), np.arange(-90, 91, 1.5))
    data = xarray.Dataset(coords={"XLONG": (("j", "i"), lon, {"units": "degrees_east"}),
                                  "XLAT": (("j", "i"), lat, {"units": "degrees_north"})})  # fmt: skip

    query = Query.like(data, "wind_speed")

    assert query.bbox == (-0.75, -90, 359.25, 90)
    assert query.spacing == (1.5, 1.5)
    with pytest.raises(QueryError, match="attribute: found no name"):
        Query.like(data)
    with pytest.raises(QueryError, match="found coordinates none, expected one along x"):
        Query.like(xarray.Dataset(), "wind_speed")
