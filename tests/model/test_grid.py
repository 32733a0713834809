from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorgrid import Box, Grid, SensorGridError
from sensorgrid.model.errors import GridError, QueryError

NAN = float("nan")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"shape": (100, 64)}, "powers of two"),
        ({"shape": (64, 0)}, "powers of two"),
        ({"shape": (64,)}, "powers of two"),
        ({"extent": (0, 0, NAN, 1)}, "four finite numbers"),
        ({"extent": (10, 0, 5, 1)}, "west < east"),
        ({"extent": (0, 10, 10, 5)}, "south < north"),
        ({"extent": (0, 0, 1000, 500)}, "coordinates='planar'"),
        ({"coordinates": "polar"}, "'lonlat' or 'planar'"),
        ({"tick": 0}, "positive number of seconds"),
        ({"tick": NAN}, "positive number of seconds"),
        ({"resolution_bits": -1}, "whole numbers"),
        ({"resolution_bits": (4, 4)}, "whole numbers"),
        ({"shape": (8, 64)}, "at least one block"),
        ({"shape": (16, 64)}, "expected two or more"),
        ({"shape": (2**23, 64)}, "each up to 4194304"),
        ({"shape": (2**22, 2**22)}, "at most 42 digits"),
        ({"extent": (350, 0, 370, 10)}, "longitudes in"),
        ({"attributes": ("a", "a")}, "each once"),
        ({"shape": 4096}, "expected two powers of two"),
        ({"shape": (64.0, 32.0)}, "expected two powers of two"),
        ({"extent": "abcd"}, "expected four finite numbers"),
        ({"tick": None}, "expected a positive number of seconds"),
        ({"tick": True}, "expected a positive number of seconds"),
        ({"resolution_bits": 4.5}, "expected one or three whole numbers"),
        ({"order": ("x",)}, "expected x and y"),
        ({"order": ("x", "y", "res_xy", "res_x")}, "expected x and y"),
        ({"region_digits": -1}, "whole number >= 0"),
        ({"attributes": ()}, "one or more names"),
        ({"value_bytes": 0}, "whole number > 0"),
    ],
)
def test_a_grid_that_cannot_exist_says_why(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(GridError, match=complaint) as caught:
        Grid(**options)  # type: ignore[arg-type]

    assert isinstance(caught.value, SensorGridError)
    assert isinstance(caught.value, ValueError)
    assert "found" in str(caught.value)
    assert "expected" in str(caught.value)


@given(st.integers(0, 63), st.integers(0, 31))
def test_a_point_leads_to_its_index_and_back(ix: int, iy: int) -> None:
    grid = Grid(shape=(64, 32), resolution_bits=2)

    assert grid.index_of(*grid.point_at(ix, iy)) == (ix, iy)


def test_every_border_belongs_to_exactly_one_point() -> None:
    grid = Grid(shape=(8, 4), resolution_bits=1)

    assert grid.index_of(-180, -90) == (0, 0)
    assert grid.index_of(180, 0) == grid.index_of(-180, 0) == (0, 2)
    assert grid.index_of(0, 90) == (4, 3)
    assert grid.index_of(45, 45) == (5, 3)
    assert grid.index_of(225, 0) == grid.index_of(-135, 0)


def test_the_upper_border_of_a_plane_belongs_to_its_last_points() -> None:
    grid = Grid(extent=(0, 0, 800, 400), shape=(8, 4), resolution_bits=1, coordinates="planar")

    assert grid.index_of(800, 400) == (7, 3)
    with pytest.raises(GridError, match="expected within"):
        grid.index_of(800.1, 0)


@pytest.mark.parametrize(("x", "y"), [(0, 90.1), (NAN, 0), (0, NAN)])
def test_a_position_off_the_grid_is_refused(x: float, y: float) -> None:
    with pytest.raises(GridError, match="position"):
        Grid().index_of(x, y)


def test_an_index_off_the_grid_is_refused() -> None:
    with pytest.raises(GridError, match="expected within"):
        Grid().point_at(4096, 0)


@given(st.floats(-180, 180), st.floats(-90, 90), st.floats(-180, 180), st.floats(-90, 90))
def test_a_box_holds_exactly_the_points_inside(west: float, south: float, east: float, north: float) -> None:
    grid = Grid(shape=(16, 8), resolution_bits=1)
    south, north = min(south, north), max(south, north)
    x, y = (
        np.array([grid.point_at(i, 0)[0] for i in range(16)]),
        np.array([grid.point_at(0, i)[1] for i in range(8)]),
    )
    inside_x = (x >= west) & (x < east) if west <= east else (x >= west) | (x < east)
    inside_y = (y >= south) & (y < north)

    try:
        box = grid.box_of((west, south, east, north))
    except QueryError:
        assert not inside_x.any() or not inside_y.any()
        return

    if west != east:
        assert sorted(i % 16 for i in range(box.x0, box.x1)) == np.flatnonzero(inside_x).tolist()
    if south != north:
        assert list(range(box.y0, box.y1)) == np.flatnonzero(inside_y).tolist()


@given(st.integers(0, 31), st.integers(1, 31), st.integers(0, 14), st.integers(1, 15))
def test_a_box_owns_the_points_on_its_west_and_south_border_only(
    x: int, width: int, y: int, height: int
) -> None:
    grid = Grid(shape=(32, 16), resolution_bits=1)
    height = min(height, 15 - y)
    west, south = grid.point_at(x, y)
    east, north = grid.point_at((x + width) % 32, y + height)

    assert grid.box_of((west, south, east, north)) == Box(x, x + width, y, y + height)


@given(st.lists(st.floats(-180, 180), min_size=2, max_size=6, unique=True))
def test_boxes_that_share_their_borders_share_no_point_and_lose_none(borders: list[float]) -> None:
    grid = Grid(shape=(32, 8), resolution_bits=1)
    borders.sort()
    found: list[int] = []

    for west, east in zip(borders, [*borders[1:], borders[0]], strict=True):
        try:
            box = grid.box_of((west, -90, east, 90))
        except QueryError:
            continue
        found += [i % 32 for i in range(box.x0, box.x1)]

    if {borders[0], borders[-1]} != {-180.0, 180.0}:
        assert sorted(found) == list(range(32))


def test_a_box_across_the_date_line_is_cut_in_two() -> None:
    grid = Grid(shape=(64, 32), resolution_bits=2)

    box = grid.box_of((170, 0, -170, 10))

    assert [grid.point_at(b.x0, 0)[0] for b in grid.plain_boxes(box)] == [
        grid.point_at(62, 0)[0],
        grid.point_at(0, 0)[0],
    ]
    assert sum(b.points for b in grid.plain_boxes(box)) == box.points
    assert box == grid.box_of((170, 0, 190, 10)) == grid.box_of((-190, 0, -170, 10))


def test_the_whole_world_is_all_points_however_it_is_said() -> None:
    grid = Grid(shape=(64, 32), resolution_bits=2)

    for bbox in ((-180, -90, 180, 90), (0, -90, 360, 90), (-360, -90, 0, 90)):
        assert grid.box_of(bbox).points == 64 * 32


def test_a_box_without_width_is_the_point_that_holds_it() -> None:
    grid = Grid(shape=(64, 32), resolution_bits=2)

    box = grid.box_of((13.4, 52.5, 13.4, 52.5))

    assert (box.x0, box.y0) == grid.index_of(13.4, 52.5)
    assert box.points == 1
    assert grid.box_of((180, 90, 180, 90)) == Box(0, 1, 31, 32)


@pytest.mark.parametrize(
    ("bbox", "complaint"),
    [
        ((0.1, 0, 0.2, 10), "no grid point along x"),
        ((0, 0.1, 10, 0.2), "no grid point along y"),
        ((0, -91, 10, 10), "inside the grid's extent"),
        ((0, 0, 10, 91), "inside the grid's extent"),
        ((-400, 0, 10, 10), "longitudes in"),
        ((-200, 0, 200, 10), "at most 360 degrees"),
    ],
)
def test_a_box_that_holds_no_point_or_leaves_the_grid_is_refused(
    bbox: tuple[float, ...], complaint: str
) -> None:
    with pytest.raises(QueryError, match=complaint):
        Grid(shape=(64, 32), resolution_bits=2).box_of(bbox)  # type: ignore[arg-type]


def test_a_regional_grid_takes_longitudes_in_either_convention() -> None:
    grid = Grid(extent=(170, -50, 190, -30), shape=(16, 16), resolution_bits=2)

    assert not grid.wraps
    assert grid.box_of((-180, -50, -170, -30)) == grid.box_of((180, -50, 190, -30)) == Box(8, 16, 0, 16)
    assert grid.index_of(-175, -40) == grid.index_of(185, -40)
    with pytest.raises(QueryError, match="inside the grid's extent"):
        grid.box_of((160, -50, 180, -30))
    with pytest.raises(QueryError, match="inside the grid's extent"):
        grid.box_of((0, -50, 10, -30))


def test_a_plane_has_no_date_line() -> None:
    grid = Grid(extent=(0, 0, 12800, 6400), shape=(128, 64), coordinates="planar")

    assert grid.box_of((100, 100, 300, 200)) == Box(1, 3, 1, 2)
    with pytest.raises(QueryError, match="west <= east on a plane"):
        grid.box_of((300, 100, 100, 200))
    with pytest.raises(QueryError, match="inside the grid's extent"):
        grid.box_of((-100, 100, 100, 200))


@given(st.data())
def test_the_bounding_box_of_a_box_gives_the_box_back(data: st.DataObject) -> None:
    grid = Grid(shape=(64, 32), resolution_bits=2)
    x0, y0 = data.draw(st.integers(0, 63)), data.draw(st.integers(0, 31))
    box = Box(x0, data.draw(st.integers(x0 + 1, x0 + 63)), y0, data.draw(st.integers(y0 + 1, 32)))

    assert grid.box_of(grid.bbox_of(box)) == box


def test_ticks_and_times_lead_to_each_other() -> None:
    grid = Grid(tick=0.1)
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)

    tick = grid.tick_at(noon)

    assert grid.time_of(tick) == noon
    assert grid.tick_from(noon) == tick
    assert grid.tick_at(noon + timedelta(milliseconds=99)) == tick
    assert grid.tick_from(noon + timedelta(milliseconds=1)) == tick + 1
    assert grid.tick_at(datetime(1969, 12, 31, 23, 59, 59, 950_000, tzinfo=UTC)) == -1


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(GridError, match="without a time zone"):
        Grid().tick_at(datetime(2026, 3, 1))


def test_numpy_numbers_make_the_same_grid() -> None:
    assert Grid(shape=np.array([4096, 2048]), resolution_bits=np.int64(4)) == Grid()  # type: ignore[arg-type]


def test_positions_broadcast() -> None:
    ix, iy = Grid(shape=(8, 4), resolution_bits=1).indices_of([-180, 0, 179], 0)

    assert ix.tolist() == [0, 4, 7]
    assert iy.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "sides", [(5, 1, 0, 1), (5, 5, 0, 1), (-1, 1, 0, 1), (0.5, 1, 0, 1), ("a", "b", "c", "d")]
)
def test_a_box_that_cannot_be_is_refused(sides: tuple[int, int, int, int]) -> None:
    with pytest.raises(GridError, match="box: found"):
        Box(*sides)


def test_a_tick_may_be_given_as_a_timedelta() -> None:
    assert Grid(tick=timedelta(minutes=10)) == Grid(tick=600)  # type: ignore[arg-type]


@pytest.mark.parametrize("west", [-180.0, -179.9, 0.0, -0.1, 10.3])
@given(data=st.data())
def test_two_boxes_around_the_earth_share_every_point_between_them(west: float, data: st.DataObject) -> None:
    """Borders within a rounding error of a point, of the extent, of each other."""
    grid = Grid(extent=(west, -90, west + 360, 90), shape=(64, 32), resolution_bits=2)
    borders = []
    for _ in range(2):
        border = west + data.draw(st.integers(0, 128)) * 360 / 128 - 360 * data.draw(st.booleans())
        for _ in range(data.draw(st.integers(0, 2))):
            border = float(np.nextafter(border, data.draw(st.sampled_from([-1e3, 1e3]))))
        borders.append(border)
    a, b = borders
    found: list[int] = []

    for box in ((a, -90, b, 90), (b, -90, a, 90)):
        try:
            found += [i % 64 for part in [grid.box_of(box)] for i in range(part.x0, part.x1)]
        except QueryError as error:
            assert "no grid point" in str(error) or abs(a - b) > 360  # noqa: PT017
            if "no grid point" not in str(error):
                return

    if a != b and abs(a - b) % 360 > 1e-9:
        assert sorted(found) == list(range(64))


def test_a_grid_may_start_anywhere_and_still_close() -> None:
    assert Grid(extent=(152.05, -90, 512.05, 90)).wraps
    assert Grid(extent=(-207.95, -90, 152.05, 90)).wraps
    with pytest.raises(GridError, match="at most 360 degrees"):
        Grid(extent=(0, -90, 361, 90))
