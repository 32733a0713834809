"""The neighbour check finds what is wrong and leaves alone what stands beside it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorgrid.pipeline.gridding.kernels.interface import Observations, Parameters
from sensorgrid.pipeline.gridding.neighbours import OBSERVATIONS_MIN, judge, reject_outliers

PARAMETERS = Parameters(mean=280.0, spread=8.0, length=3e5, noise=0.5, drift=1.0, shape="matern", sill=5.0)


def network(count: int, seed: int) -> Observations:
    rng = np.random.default_rng(seed)
    positions = rng.uniform(0, 1e6, (count, 2))
    values = 280 + 5 * np.sin(positions[:, 0] / 2e5) * np.cos(positions[:, 1] / 3e5)
    return Observations(positions, values + rng.normal(0, 0.5, count), np.zeros(count))


def test_a_clean_network_loses_nothing() -> None:
    for seed in range(5):
        assert not reject_outliers(network(300, seed), PARAMETERS).any()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(15, 500), st.sampled_from([-1, 1]))
def test_one_bad_sensor_goes_and_takes_nobody_along(seed: int, off: float, sign: int) -> None:
    observations = network(120, seed)
    observations.values[7] += sign * off

    rejected = reject_outliers(observations, PARAMETERS)

    assert np.flatnonzero(rejected).tolist() == [7]


def test_of_two_sensors_at_one_place_only_the_bad_one_goes() -> None:
    observations = network(120, 3)
    observations.positions[8] = observations.positions[7]
    observations.values[8] = observations.values[7]
    observations.values[7] += 40

    assert np.flatnonzero(reject_outliers(observations, PARAMETERS)).tolist() == [7]


def test_two_bad_neighbours_are_both_found() -> None:
    observations = network(150, 4)
    nearest = np.argsort(np.linalg.norm(observations.positions - observations.positions[0], axis=1))[1]
    observations.values[0] += 60
    observations.values[nearest] -= 45

    assert np.flatnonzero(reject_outliers(observations, PARAMETERS)).tolist() == [0, nearest]


@pytest.mark.parametrize("seed", range(3))
def test_two_percent_of_gross_faults_are_found_and_almost_nothing_else(seed: int) -> None:
    observations = network(1000, seed)
    bad = np.random.default_rng(seed).choice(1000, 20, replace=False)
    observations.values[bad] += np.where(np.arange(20) % 2, 30.0, -25.0)

    rejected = reject_outliers(observations, PARAMETERS)

    assert rejected[bad].sum() >= 19
    assert rejected.sum() - rejected[bad].sum() <= 1


def test_no_good_sensor_is_lost_among_many_bad_ones() -> None:
    lost = found = doubted = 0
    for seed in range(40):
        observations = network(400, seed)
        rng = np.random.default_rng(seed)
        bad = rng.choice(400, 20, replace=False)
        observations.values[bad] += rng.choice([-1, 1], 20) * rng.uniform(12, 60, 20)
        verdicts = judge(observations, PARAMETERS)
        found += int(verdicts.bad[bad].sum())
        doubted += int(verdicts.suspect[bad].sum())  # two that are bad by the same amount, side by side
        lost += int(verdicts.bad.sum() - verdicts.bad[bad].sum())

    assert found >= 780
    assert found + doubted >= 796
    assert lost == 0


def test_an_extreme_that_a_neighbour_shares_is_suspect_and_used_with_a_larger_error() -> None:
    observations = network(150, 4)
    nearest = np.argsort(np.linalg.norm(observations.positions - observations.positions[0], axis=1))[1]
    observations.values[nearest] = observations.values[0]
    observations.values[[0, nearest]] += 7  # some seven errors

    verdicts = judge(observations, PARAMETERS)
    used = verdicts.used(observations)

    assert verdicts.suspect[[0, nearest]].any()
    assert not verdicts.bad[[0, nearest]].any()
    assert not (verdicts.suspect & verdicts.bad).any()
    assert used.doubt is not None
    assert (used.doubt > 1).sum() == verdicts.suspect.sum()
    assert len(used) == 150 - verdicts.bad.sum()
    observations.values[[0, nearest]] += 100  # nobody believes that, whoever says it
    assert judge(observations, PARAMETERS).bad[[0, nearest]].all()


def test_a_plume_is_kept_where_its_logarithm_is_smooth_and_a_fault_in_it_is_not() -> None:
    observations = network(300, 5)
    hill = np.exp(-((np.linalg.norm(observations.positions - 5e5, axis=1) / 2e5) ** 2))
    noise = np.random.default_rng(0).normal(0, 0.1, 300)
    values = 10 * np.exp(4.5 * hill + noise)  # 10 far away, 900 in the middle
    plume = Observations(observations.positions, values, np.zeros(300))
    plain = Parameters(50, 150, 3e5, 10, 0, sill=40)
    log = Parameters(3, 1.5, 3e5, 0.1, 0, sill=1.0, transform="log", offset=4.0, lowest=0.0)
    top = values > np.quantile(values, 0.95)

    assert reject_outliers(plume, plain)[top].any()
    assert not reject_outliers(plume, log).any()
    faulty = np.argmax(values)
    values[faulty] = 3.0
    assert np.flatnonzero(reject_outliers(plume, log)).tolist() == [faulty]


def test_few_observations_are_never_rejected() -> None:
    values = np.array([280.0, 280.0, 1e6, 280.0])
    few = Observations(np.random.default_rng(0).uniform(0, 1e5, (4, 2)), values, np.zeros(4))

    assert len(few) < OBSERVATIONS_MIN
    assert not reject_outliers(few, PARAMETERS).any()


def test_an_old_observation_is_allowed_to_differ_more() -> None:
    observations = network(200, 6)
    observations.values[3] += 10
    old = Observations(observations.positions, observations.values, np.zeros(200))
    old.age_s[3] = 24 * 3600.0

    assert reject_outliers(observations, PARAMETERS)[3]
    assert not reject_outliers(old, PARAMETERS)[3]


def test_many_sensors_at_one_place_and_equal_values_work() -> None:
    heap = Observations(np.zeros((50, 2)), np.full(50, 280.0), np.zeros(50))

    assert not reject_outliers(heap, PARAMETERS).any()

    heap.values[11] = 500.0
    assert np.flatnonzero(reject_outliers(heap, PARAMETERS)).tolist() == [11]


def test_far_observations_do_not_matter_so_a_region_comes_to_the_verdict_of_the_whole() -> None:
    observations = network(3000, 8)
    rng = np.random.default_rng(8)
    observations.values[rng.choice(3000, 150, replace=False)] += rng.uniform(-60, 60, 150)
    inside = (np.abs(observations.positions - 5e5) < 2e5).all(axis=1)
    halo = np.flatnonzero((np.abs(observations.positions - 5e5) < 4e5).all(axis=1))
    region = Observations(observations.positions[halo], observations.values[halo], observations.age_s[halo])

    whole, part = reject_outliers(observations, PARAMETERS), reject_outliers(region, PARAMETERS)

    assert whole[inside].sum() > 10
    np.testing.assert_array_equal(whole[halo][inside[halo]], part[inside[halo]])
