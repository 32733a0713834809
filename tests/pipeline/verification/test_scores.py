"""Scores, counted again in plain Python."""

from math import sqrt
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import VERIFY
from pipeline_networks import made
from sensorgrid.pipeline.gridding.kernels.interface import Observations
from sensorgrid.pipeline.verification import scores
from sensorgrid.pipeline.verification.engine import Estimate, Learnt
from sensorgrid.pipeline.verification.trial import FoldEstimates, Heard
from sensorgrid.pipeline.verification.verify import verify

NUMBERS = st.floats(-50, 50, allow_nan=False).map(lambda x: round(x, 3))
TOLD = st.lists(st.tuples(NUMBERS, NUMBERS, st.floats(0, 20), st.floats(0, 1e5)), min_size=15, max_size=60)


def told_of(rows: list[tuple[float, float, float, float]]) -> FoldEstimates:
    reading, values, error, distance = (np.array(column) for column in zip(*rows, strict=True))
    numbers = np.arange(len(rows))
    return FoldEstimates(
        reading, values, values - error, values + error, distance, numbers, (numbers + 1) * 3_600_000_000
    )


@given(TOLD)
def test_errors_and_honesty_are_what_plain_python_counts(
    rows: list[tuple[float, float, float, float]],
) -> None:
    told = told_of(rows)

    inside = [v - e <= r <= v + e for r, v, e, _ in rows]
    assert scores.rmse(told) == pytest.approx(sqrt(fmean((v - r) ** 2 for r, v, _, _ in rows)))
    assert scores.within(told).tolist() == inside


@given(TOLD, st.integers(2, 5))
def test_bins_are_equal_in_number_and_in_the_order_of_what_they_follow(
    rows: list[tuple[float, float, float, float]], parts: int
) -> None:
    told = told_of(rows)

    found = scores.by_rank(scores.within(told), told.values, parts)

    order = sorted(range(len(rows)), key=lambda i: (told.values[i], i))
    inside = scores.within(told).tolist()
    sizes = [len(rows) // parts + (n < len(rows) % parts) for n in range(parts)]
    expected, at = [], 0
    for size in sizes:
        expected.append(fmean(inside[i] for i in order[at : at + size]))
        at += size
    assert found == pytest.approx(expected)


def test_what_was_refused_is_told_by_level_of_the_reading() -> None:
    reading = np.arange(1000.0)
    refused = reading >= 990
    refused[10] = True
    numbers = np.zeros(1000, np.int64)

    found = scores.refused_by_level(Heard(reading, refused, numbers, numbers))

    assert found == pytest.approx([1 / 500, 0, 0, 0, 1.0])


def test_hours_are_those_in_which_the_tick_lies() -> None:
    end_us = np.array([1, 1, 24, 25]) * 3_600_000_000  # ends at 01:00, 00:00 and 01:00 of the next day
    told = FoldEstimates(*(np.zeros(4) for _ in range(5)), np.zeros(4, np.int64), end_us)

    assert [(h["hour"], h["readings"]) for h in scores.by_hour(told)] == [(0, 3), (23, 1)]


def test_rows_have_the_fields_that_readers_rely_on_and_agree_with_what_was_compared() -> None:
    (found,) = verify(made(60, ticks=3), 5)

    assert [row["kernel"] for row in found.rows] == ["kriging", "nearest", "inverse_distance"]
    for row in found.rows:
        told = found.told[row["kernel"]]
        assert set(row) >= VERIFY
        assert row["stations"] == 60
        assert row["readings"] == len(told.reading) == 180
        assert row["bias"] == pytest.approx(float(np.mean(told.values - told.reading)))
        assert row["mae"] == pytest.approx(float(np.mean(np.abs(told.values - told.reading))))
        assert len(row["within_by_level"]) == len(row["refused_by_level"]) == 5
        inside = scores.within(told)
        assert row["within_one"] == pytest.approx(inside.mean())
        for name, by, parts in (("level", told.values, 5), ("distance", told.distance, 3)):
            assert row[f"within_by_{name}"] == pytest.approx(scores.by_rank(inside, by, parts))
    rmse = {row["kernel"]: row["rmse"] for row in found.rows}
    assert found.rows[0]["ratio_to_idw"] == pytest.approx(rmse["kriging"] / rmse["inverse_distance"])
    assert found.rows[2]["ratio_to_idw"] == 1.0


def test_distances_are_to_the_nearest_station_that_was_used() -> None:
    network = made(30, ticks=1)

    (found,) = verify(network, 30)

    told = found.told["kriging"]
    for station, distance in zip(told.station, told.distance, strict=True):
        others = np.delete(network.positions, station, axis=0)
        assert distance >= np.linalg.norm(others - network.positions[station], axis=1).min() - 1e-6


class Below:
    """A method that says less than nothing at every third place."""

    name = "kriging"

    def __call__(self, heard: Observations, there: Observations, learnt: Learnt) -> Estimate:
        values = np.where(np.arange(len(there)) % 3 == 0, -1.0, 1e-8)
        return Estimate(values, values, values)


def test_impossible_values_are_counted_at_stations_and_on_a_lattice() -> None:
    dust = "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air"

    (found,) = verify(made(60, ticks=1, attribute=dust), 2, methods=[Below()])

    (row,) = found.rows
    assert row["negative_share"] == pytest.approx((2 * 10 + 134) / (60 + 400))  # 134 of 400 on the lattice
    (usual,) = verify(made(40, ticks=2), 4)
    assert [row["negative_share"] for row in usual.rows] == [0.0, 0.0, 0.0]
