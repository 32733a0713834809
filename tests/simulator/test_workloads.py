import gzip
import os
import subprocess
import sys
from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import query_mask
from sensorgrid import Grid, Query
from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import decompose
from sensorgrid.model.errors import GridError, QueryError
from sensorgrid.simulator.workloads import (
    HOT_SPOTS,
    Track,
    TrackError,
    alternate,
    flood,
    moving,
    paper_grid,
    queries,
    storm_tracks,
)

DATA = Path(os.environ.get("SENSORGRID_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRACKS = DATA / "storm-tracks" / "ibtracs_wmo.csv.gz"
EARTH = Grid(shape=(512, 256))

needs_tracks = pytest.mark.skipif(
    not TRACKS.exists(), reason=f"no storm tracks at {TRACKS}; set SENSORGRID_DATA"
)


def draw(name: str, count: int, seed: int = 1) -> list[Query]:
    return list(islice(queries(HOT_SPOTS[name], paper_grid(4), Random(seed)), count))


def eastward() -> Track:
    """From 170 degrees east over the date line, a degree an hour."""
    return Track(
        "E",
        "WP",
        datetime(2020, 1, 1, tzinfo=UTC),
        (0.0, 6.0, 20.0),
        (170.0, 176.0, 190.0),
        (10.0, 10.0, 24.0),
    )


@pytest.mark.parametrize("dims", [2, 3, 4, 5])
def test_the_papers_brokers_own_the_sixteen_cells_of_four_digits(dims: int) -> None:
    grid = paper_grid(dims)

    boxes = {Cell(16 + i).box(grid) for i in range(16)}

    assert len(grid.order) == dims
    assert len(boxes) == 16
    assert {(b.x1 - b.x0, b.y1 - b.y0) for b in boxes} == {(256, 256)}


def test_a_number_of_dimensions_that_no_figure_has_is_refused() -> None:
    with pytest.raises(GridError, match="dims: found 6, expected one of 2, 3, 4, 5"):
        paper_grid(6)


@pytest.mark.parametrize("name", HOT_SPOTS)
def test_every_query_holds_the_centre_and_can_be_answered(name: str) -> None:
    grid = paper_grid(4)
    x, y = (round(part * 1024) for part in HOT_SPOTS[name].centre)

    for query in draw(name, 300):
        box = query.box(grid)
        assert box.x0 <= x < box.x1
        assert box.y0 <= y < box.y1


def test_distances_of_bounds_follow_zipfs_law() -> None:
    """One of 32 blocks, with a probability proportional to d^-1.5, and any point of the block as likely."""
    grid = paper_grid(4)

    distances = [
        d
        for q in draw("small", 4000)
        for b in [q.box(grid)]
        for d in (512 - b.x0, b.x1 - 512, 512 - b.y0, b.y1 - 512)
    ]

    weights = [d**-1.5 for d in range(1, 33)]
    for d in (1, 2, 3, 10):
        expected = len(distances) * weights[d - 1] / sum(weights)
        found = sum(1 for distance in distances if (distance + 15) // 16 == d)
        assert abs(found - expected) < 5 * expected**0.5
    assert {d % 16 for d in distances} == set(range(16))
    assert min(distances) >= 1
    assert max(distances) <= 512


def test_a_larger_exponent_makes_a_smaller_hot_spot() -> None:
    grid = paper_grid(4)

    large, small = (sum(q.box(grid).points for q in draw(name, 500)) for name in ("large", "small"))

    assert large > 2 * small


def test_bounds_are_clipped_at_the_border_of_the_world() -> None:
    grid = paper_grid(4)

    boxes = [q.box(grid) for q in draw("single", 3000)]

    assert sum(1 for b in boxes if b.x0 == 0) > sum(1 for b in boxes if b.x0 == 1)
    assert all(b.x1 <= 384 + 512 for b in boxes)


@given(st.integers(1, 256), st.integers(1, 256))
def test_resolutions_nest_and_have_the_size_asked_for(a: int, b: int) -> None:
    (ax, ay), (bx, by) = alternate(a / 256), alternate(b / 256)

    assert Fraction(ax) * Fraction(ay) == Fraction(a, 256)
    assert a > b or (ax <= bx and ay <= by)


def test_each_halving_of_the_resolution_is_one_digit_of_a_cell() -> None:
    """Three digits of `res_xy` stand before the last of x and y: a block is 8 cells, at 1/8 or less only one."""
    grid = paper_grid(3)

    for halvings in range(9):
        query = Query("air_temperature", (0, 0, 16, 16), (*alternate(2.0**-halvings), 1))
        fragments = decompose(query, grid)
        assert len(fragments) == max(8 >> halvings, 1)
        assert fragments.padding == 0
        assert fragments.points.sum() == 16 * 16 * 16 >> halvings


@pytest.mark.parametrize("resolution", [0, -1, 1.5, float("nan")])
def test_a_resolution_that_is_no_part_is_refused(resolution: float) -> None:
    with pytest.raises(QueryError, match=r"expected a number in \(0, 1\]"):
        alternate(resolution)


def test_one_seed_is_one_sequence_whatever_the_hash_seed() -> None:
    code = (
        "from itertools import islice; from random import Random;"
        "from sensorgrid.simulator.workloads import *;"
        "print([list(islice(queries(s, paper_grid(4), Random(7)), 50)) for s in HOT_SPOTS.values()])"
    )

    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }

    assert len(texts) == 1
    assert draw("small", 5) == draw("small", 5) != draw("small", 5, seed=2)


def test_a_flood_asks_for_one_box_over_and_over() -> None:
    grid = paper_grid(4)

    clients = list(islice(flood(grid, Random(1), box_fraction=1 / 32), 50))

    assert {q.box(grid) for q in clients} == {clients[0].box(grid)}
    assert clients[0].bbox == (368, 368, 400, 400)
    assert len({q.resolution for q in clients}) == 50
    (same,) = set(islice(flood(grid, Random(1), resolution=(1, 1, 1)), 5))
    assert same.resolution == (1, 1, 1)


def test_a_flood_needs_a_part_of_the_world() -> None:
    with pytest.raises(QueryError, match="box_fraction: found 0, expected"):
        next(flood(paper_grid(4), Random(1), box_fraction=0))


def test_a_track_is_a_straight_line_between_reports() -> None:
    track = eastward()

    assert track.at(0) == (170, 10)
    assert track.at(3) == (173, 10)
    assert track.at(13) == (183, 17)
    assert track.at(20) == (190, 24)
    with pytest.raises(TrackError, match="track E: found hour 21, expected within 0 and 20"):
        track.at(21)


def test_a_moving_hot_spot_follows_its_track_over_the_date_line() -> None:
    steps = list(moving(eastward(), EARTH, Random(1), per_step=4))

    assert [h for h, _ in steps] == [float(h) for h in range(21) for _ in range(4)]
    for hours, query in steps:
        lon, lat = eastward().at(hours)
        ix, iy = EARTH.index_of(lon, lat)
        assert query_mask(EARTH, query.box(EARTH), (16, 16, 1))[0, iy, ix]
        assert query.size(EARTH).points_per_tick > 0


def test_while_a_storm_is_off_the_grid_nobody_asks() -> None:
    region = Grid(extent=(160, 0, 180, 20), shape=(64, 64))

    hours = {h for h, _ in moving(eastward(), region, Random(1))}

    assert hours == set(range(10))


def test_a_storm_needs_the_earth() -> None:
    with pytest.raises(GridError, match="found 'planar', expected 'lonlat'"):
        next(moving(eastward(), paper_grid(4), Random(1)))


def test_a_track_written_on_both_sides_of_180_does_not_jump(tmp_path: Path) -> None:
    path = tmp_path / "tracks.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("track_id,basin,time,lon,lat\nA,NA,2020-01-01 06:00:00,-179,5\n")
        file.write("A,NA,2020-01-01 00:00:00,179,5\n")

    (track,) = storm_tracks(path)

    assert (track.basin, track.hours, track.lon) == ("NA", (0, 6), (179, 181))


def test_a_line_that_is_no_report_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tracks.csv"
    path.write_text("track_id,basin,time,lon,lat\nA,NA,2020-01-01 06:00:00,,5\n")

    with pytest.raises(TrackError, match=r"tracks.csv, line 2: found .* expected track_id"):
        storm_tracks(path)


@needs_tracks
def test_the_real_tracks_are_all_there_and_can_be_followed() -> None:
    tracks = storm_tracks(TRACKS)

    assert len(tracks) == 666
    assert sum(len(t.hours) for t in tracks) == 20174
    assert sum(1 for t in tracks if t.basin == "NA") > 50
    for track in tracks[::50]:
        assert all(q.box(EARTH).points for _, q in moving(track, EARTH, Random(1), per_step=1, step_h=6))
