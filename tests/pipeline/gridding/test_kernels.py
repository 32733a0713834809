"""Kernels against textbook loops, and what must hold of any of them."""

import sys
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.gridding.kernels import CHEAP, DEFAULT, KERNELS, kernel_by_name, neighbourhood
from sensorgrid.pipeline.gridding.kernels.covariance import correlation
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, Parameters, metres
from sensorgrid.pipeline.gridding.kernels.inverse_distance import InverseDistance
from sensorgrid.pipeline.gridding.kernels.kriging import Kriging, estimate
from sensorgrid.pipeline.gridding.kernels.neighbourhood import CHUNK, forget, neighbours_of
from sensorgrid.pipeline.gridding.kernels.transforms import backward, forward, published

PARAMETERS = Parameters(mean=280.0, spread=8.0, length=2e5, noise=0.5, drift=1.0, shape="matern", sill=5.0)
OURS = ("nearest", "inverse_distance", "kriging")


def scattered(count: int, seed: int = 0, extent: float = 1e6) -> Observations:
    rng = np.random.default_rng(seed)
    positions = rng.uniform(0, extent, (count, 2))
    values = 280 + 5 * np.sin(positions[:, 0] / 2e5) + rng.normal(0, 0.5, count)
    return Observations(positions, values, rng.uniform(0, 7200, count))


def points(count: int, seed: int = 1, extent: float = 1e6) -> Floats:
    return np.random.default_rng(seed).uniform(0, extent, (count, 2))


def textbook_kriging(
    observations: Observations, point: Floats, p: Parameters, added: Floats | float = 0.0
) -> tuple[float, float]:
    """Dense: the ordinary kriging system with its Lagrange multiplier, over all observations."""
    n = len(observations)
    place = observations.positions
    apart = np.linalg.norm(place[:, None] - place[None, :], axis=2)
    system = np.ones((n + 1, n + 1))
    system[:n, :n] = p.sill**2 * correlation(apart, p.length, p.shape)
    system[:n, :n] += np.diag(p.noise**2 + p.drift**2 * observations.age_s / 3600)
    system[np.arange(n), np.arange(n)] += added
    system[n, n] = 0.0
    right = np.ones(n + 1)
    right[:n] = p.sill**2 * correlation(np.linalg.norm(place - point, axis=1), p.length, p.shape)
    solved = np.linalg.solve(system, right)
    return float(solved[:n] @ observations.values), float(np.sqrt(p.sill**2 - solved @ right))


@pytest.mark.parametrize("shape", ["exponential", "matern"])
def test_kriging_with_all_observations_as_neighbours_is_the_textbook_s(shape: str) -> None:
    observations, wanted = scattered(30), points(20)
    flat = replace(PARAMETERS, spread=1e5, shape=shape)  # a mean that is not known at all: ordinary kriging

    field = Kriging(neighbours=30)(observations, wanted, flat)

    expected = np.array([textbook_kriging(observations, point, flat) for point in wanted])
    np.testing.assert_allclose(field.values, expected[:, 0], rtol=1e-6)
    np.testing.assert_allclose(field.error, expected[:, 1], rtol=1e-5)


def test_kriging_with_few_neighbours_uses_the_nearest_only_and_the_outermost_hardly() -> None:
    observations, wanted = scattered(200), points(20)
    flat = replace(PARAMETERS, spread=1e5)

    field = Kriging(neighbours=6)(observations, wanted, flat)

    for i, point in enumerate(wanted):
        distance = np.linalg.norm(observations.positions - point, axis=1)
        near = np.argsort(distance)[:6]
        edge = np.sort(distance)[6]
        start = max(0.85 * edge, (edge + distance.min()) / 2)
        excess = np.maximum(distance[near] - start, 0.0) / (edge - distance[near])
        noise = flat.noise**2 + flat.drift**2 * observations.age_s[near] / 3600
        noise += flat.sill**2 * (1 - correlation(np.array([edge]), flat.length, flat.shape)[0])
        value, error = textbook_kriging(observations.take(near), point, flat, excess**2 * noise)
        assert field.values[i] == pytest.approx(value, rel=1e-6)
        assert field.error[i] == pytest.approx(error, rel=1e-5)


def test_kriging_s_known_mean_is_a_covariance_that_all_share() -> None:
    observations, wanted = scattered(15), points(10)
    apart = np.linalg.norm(observations.positions[:, None] - observations.positions[None, :], axis=2)
    p = PARAMETERS
    noise = p.noise**2 + p.drift**2 * observations.age_s / 3600
    system = p.sill**2 * correlation(apart, p.length, p.shape) + p.spread**2 + np.diag(noise)
    towards = np.linalg.norm(observations.positions[None] - wanted[:, None], axis=2)
    right = p.sill**2 * correlation(towards, p.length, p.shape) + p.spread**2

    field = Kriging(neighbours=15)(observations, wanted, p)

    weights = np.linalg.solve(system, right.T).T
    variance = p.sill**2 + p.spread**2 - (weights * right).sum(axis=1)
    np.testing.assert_allclose(field.values, p.mean + weights @ (observations.values - p.mean), rtol=1e-9)
    np.testing.assert_allclose(field.error, np.minimum(np.sqrt(variance), p.spread), rtol=1e-8)


def test_a_covariate_is_a_second_drift_with_a_prior_centred_on_the_neighbours() -> None:
    plain, wanted = scattered(15), points(10)
    rng = np.random.default_rng(3)
    heights, at = rng.uniform(0, 2000, 15), rng.uniform(0, 2000, 10)
    observations = replace(plain, values=plain.values - 0.0065 * heights, covariate=heights)
    p = replace(PARAMETERS, slope=-0.005, slope_spread=0.002)
    tilt, high = heights - heights.mean(), at - heights.mean()
    apart = np.linalg.norm(plain.positions[:, None] - plain.positions[None, :], axis=2)
    noise = p.noise**2 + p.drift**2 * plain.age_s / 3600
    system = p.sill**2 * correlation(apart, p.length, p.shape) + p.spread**2 + np.diag(noise)
    system += p.slope_spread**2 * tilt[:, None] * tilt[None, :]
    towards = np.linalg.norm(plain.positions[None] - wanted[:, None], axis=2)
    right = p.sill**2 * correlation(towards, p.length, p.shape) + p.spread**2
    right += p.slope_spread**2 * high[:, None] * tilt[None, :]

    field = Kriging(neighbours=15)(observations, wanted, p, at)

    weights = np.linalg.solve(system, right.T).T
    rest = observations.values - p.mean - p.slope * tilt
    variance = p.sill**2 + p.spread**2 + (p.slope_spread * high) ** 2 - (weights * right).sum(axis=1)
    np.testing.assert_allclose(field.values, p.mean + p.slope * high + weights @ rest, rtol=1e-9)
    np.testing.assert_allclose(field.error, np.minimum(np.sqrt(variance), p.spread), rtol=1e-8)


def test_where_the_covariate_is_not_known_it_is_that_of_the_neighbours() -> None:
    observations, wanted = scattered(40), points(30)
    p = replace(PARAMETERS, slope=-0.0065, slope_spread=0.002)
    unknown = replace(observations, covariate=np.full(40, np.nan))

    without = Kriging()(observations, wanted, p)
    field = Kriging()(unknown, wanted, p, np.full(30, np.nan))

    np.testing.assert_allclose(field.values, without.values, rtol=1e-12)
    assert (np.isfinite(field.values) & (field.error > 0)).all()


def test_value_and_error_are_continuous_in_space() -> None:
    observations = scattered(300)
    line = np.stack([np.linspace(-4e5, 1.4e6, 18001), np.full(18001, 4.3e5)], axis=-1)  # steps of 100 m

    field = Kriging()(observations, line, replace(PARAMETERS, spread=100.0))

    assert np.abs(np.diff(field.values)).max() < 0.05
    assert np.abs(np.diff(field.error)).max() < 0.05
    assert np.ptp(field.values) > 5


def test_the_error_follows_the_unrest_of_the_neighbours_as_far_as_it_is_told_to() -> None:
    calm = scattered(40)
    restless = replace_values(calm, 280 + 10 * (calm.values - 280))
    wanted = points(30)
    wide = replace(PARAMETERS, spread=100.0)
    follows = replace(wide, errors=(0.0, 0.5, 0.0, 0.0, 0.0))

    steady = [Kriging()(o, wanted, wide).error for o in (calm, restless)]
    following = [Kriging()(o, wanted, follows).error for o in (calm, restless)]

    np.testing.assert_array_equal(*steady)
    assert (following[1] > 1.3 * following[0]).all()


def test_the_error_of_a_reading_has_its_noise_on_top() -> None:
    observations, wanted = scattered(40), points(10)

    field = Kriging()(observations, wanted, replace(PARAMETERS, spread=100.0))

    np.testing.assert_allclose(field.reading_error**2, field.error**2 + PARAMETERS.noise**2, rtol=1e-9)
    np.testing.assert_allclose(field.upper - field.lower, 2 * field.error)


def test_a_suspect_observation_weighs_less() -> None:
    observations, wanted = scattered(40), points(1)
    near = np.argmin(np.linalg.norm(observations.positions - wanted[0], axis=1))
    values = observations.values.copy()
    values[near] += 10
    odd = replace(observations, values=values)
    doubt = np.ones(40)
    doubt[near] = 30.0

    plain, believed, doubted = (
        Kriging()(o, wanted, PARAMETERS).values[0] for o in (observations, odd, replace(odd, doubt=doubt))
    )

    assert abs(doubted - plain) < 0.1 * abs(believed - plain)


@pytest.mark.parametrize("kind", ["log", "bounded"])
def test_the_published_value_is_the_mean_of_what_readings_would_be_and_the_interval_that_of_the_estimate(
    kind: Literal["log", "bounded"],
) -> None:
    highest = 1.0 if kind == "bounded" else None
    p = Parameters(0, 1, 1, 0.1, 0, transform=kind, offset=0.2, lowest=0.0, highest=highest)
    mu, error, reading = np.array([-1.0, 0.3, 1.2]), np.full(3, 0.4), np.full(3, 0.7)
    drawn = mu + np.random.default_rng(0).normal(0, 1, (200_000, 1)) * reading

    field = published(mu, error, reading, p)

    np.testing.assert_allclose(field.values, backward(drawn, p).mean(axis=0), rtol=0.02)
    np.testing.assert_allclose(field.lower, backward(mu - error, p))
    np.testing.assert_allclose(field.reading_upper, backward(mu + reading, p))
    np.testing.assert_allclose(forward(backward(mu, p), p)[1:], mu[1:])


@pytest.mark.parametrize("name", OURS)
def test_a_field_never_leaves_the_physical_range_and_its_interval_is_lopsided(name: str) -> None:
    rng = np.random.default_rng(4)
    observations = replace_values(scattered(60), np.exp(rng.normal(0, 2.5, 60)) - 0.01)
    p = Parameters(0.5, 2.0, 2e5, 0.2, 0.0, sill=2.0, transform="log", offset=1.0, lowest=0.0)

    field = kernel_by_name(name)(observations, points(500), p)

    assert min(field.values.min(), field.lower.min(), field.reading_lower.min()) >= 0.0
    assert ((field.lower <= field.values) & (field.values <= field.upper)).all()
    assert np.mean(field.upper - field.values > field.values - field.lower) > 0.65
    np.testing.assert_allclose(field.error, (field.upper - field.lower) / 2)


def replace_values(observations: Observations, values: Floats) -> Observations:
    return Observations(observations.positions, values, observations.age_s)


def test_the_constant_of_the_errors_multiplies_kriging_s_error() -> None:
    observations, wanted = scattered(40), points(10)
    wide = replace(PARAMETERS, spread=100.0)

    once = Kriging()(observations, wanted, wide)
    twice = Kriging()(observations, wanted, replace(wide, errors=(2 * np.log(2.0), 0.0, 0.0, 0.0, 0.0)))

    np.testing.assert_allclose(twice.error, 2 * once.error)
    np.testing.assert_array_equal(twice.values, once.values)


def test_a_remembered_search_gives_the_bits_of_a_new_one_and_memory_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observations, wanted = scattered(300), points(400)
    forget()
    first = Kriging()(observations, wanted, PARAMETERS)

    again = Kriging()(replace_values(observations, observations.values + 0.0), wanted, PARAMETERS)
    moved = Kriging()(replace(observations, positions=observations.positions + 1.0), wanted, PARAMETERS)

    assert again.values.tobytes() == first.values.tobytes()
    assert again.error.tobytes() == first.error.tobytes()
    assert moved.values.tobytes() != first.values.tobytes()
    monkeypatch.setattr(neighbourhood, "REMEMBERED_BYTES", 100_000)
    for seed in range(10):
        Kriging()(observations, points(400, seed), PARAMETERS)
    assert len(neighbourhood._known) == 2
    assert neighbourhood._held_bytes == sum(map(neighbourhood._size, neighbourhood._known.values()))


def test_inverse_distance_is_the_loop_s() -> None:
    observations, wanted = scattered(50), points(20)

    field = InverseDistance()(observations, wanted, PARAMETERS)

    for i, point in enumerate(wanted):
        distance = np.linalg.norm(observations.positions - point, axis=1)
        near = np.argsort(distance)[:8]
        weights = 1 / distance[near] ** 2
        assert field.values[i] == pytest.approx((weights @ observations.values[near]) / weights.sum())


@pytest.mark.parametrize("shape", ["exponential", "matern"])
def test_a_neighbour_that_is_missing_counts_for_nothing(shape: str) -> None:
    observations, wanted = scattered(5), points(3)
    p = replace(PARAMETERS, shape=shape)
    five = np.tile(np.arange(5, dtype=np.int32), (3, 1))
    padded = np.concatenate([five, np.full((3, 3), -1, np.int32)], axis=1)

    values, variance = InverseDistance().mixture(observations, padded, wanted, p)

    plain, plain_variance = InverseDistance().mixture(observations, five, wanted, p)
    assert values == pytest.approx(plain)
    assert variance == pytest.approx(plain_variance)
    assert correlation(np.array([np.inf]), 1e5, shape) == 0.0


def test_nearest_is_the_loop_s() -> None:
    observations, wanted = scattered(50), points(20)

    field = kernel_by_name("nearest")(observations, wanted, PARAMETERS)

    for i, point in enumerate(wanted):
        near = np.argmin(np.linalg.norm(observations.positions - point, axis=1))
        assert field.values[i] == observations.values[near]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("d", [2, 3])
def test_any_kernel_finds_a_smooth_field_and_says_how_well(name: str, d: int) -> None:
    rng = np.random.default_rng(5)
    degrees, wanted = rng.uniform(0, 9, (400, 2)), rng.uniform(1, 8, (500, 2))
    kind = "planar" if d == 2 else "geographic"
    scale = 1e5 if d == 2 else 1.0
    places, at = (metres(*(p * scale).T, kind) for p in (degrees, wanted))
    truth = [280 + 5 * np.sin(p[:, 0] / 2) * np.cos(p[:, 1] / 2) for p in (degrees, wanted)]
    observations = Observations(places, truth[0] + rng.normal(0, 0.3, 400), np.zeros(400))
    p = replace(PARAMETERS, noise=0.3, sill=4.0, length=3e5)

    field = kernel_by_name(name)(observations, at, p)

    miss = np.abs(field.values - truth[1])
    assert np.sqrt(np.mean(miss**2)) < 1.0
    assert np.mean(miss < field.error) > 0.6
    assert np.mean(field.error) < 2.5


@pytest.mark.parametrize("name", KERNELS)
def test_without_observations_the_mean_and_the_spread_are_all_there_is(name: str) -> None:
    nothing = Observations(np.empty((0, 2)), np.empty(0), np.empty(0))

    field = kernel_by_name(name)(nothing, points(5), PARAMETERS)

    assert field.values.tolist() == [280.0] * 5
    assert field.error.tolist() == [8.0] * 5


@pytest.mark.parametrize("name", OURS)
@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 3), st.floats(250, 310), st.sampled_from([0.0, 600.0, 9e4])
        ),
        max_size=25,
    ),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from(["exponential", "matern"]),
)
def test_no_kernel_ever_gives_nan_or_an_error_outside_0_to_spread(
    name: str, rows: list[tuple[int, int, float, float]], noise: float, shape: str
) -> None:
    table = np.array(rows, np.float64).reshape(-1, 4)  # few places: many coincide, and lie under a point
    observations = Observations(table[:, :2] * 1e5, table[:, 2], table[:, 3])
    lattice = np.stack(np.meshgrid(np.arange(5), np.arange(5)), axis=-1).reshape(-1, 2) * 1e5
    p = replace(PARAMETERS, noise=noise, shape=shape)

    field = kernel_by_name(name)(observations, lattice, p)

    assert np.isfinite(field.values).all()
    assert (field.error > 0).all()
    assert (field.error <= p.spread).all()
    if len(observations):
        reach = np.ptp(np.append(observations.values, p.mean)) + 1e-6
        assert (np.abs(field.values - observations.values.mean()) <= 5 * reach).all()


@pytest.mark.parametrize("name", OURS)
@settings(max_examples=25)
@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_the_order_of_observations_does_not_matter(name: str, count: int, seed: int) -> None:
    observations, wanted = scattered(count, seed), points(30, seed)
    order = np.random.default_rng(seed).permutation(count)
    shuffled = Observations(
        observations.positions[order], observations.values[order], observations.age_s[order]
    )

    one, other = (kernel_by_name(name)(o, wanted, PARAMETERS) for o in (observations, shuffled))

    np.testing.assert_allclose(one.values, other.values, rtol=1e-7)
    np.testing.assert_allclose(one.error, other.error, rtol=1e-5)


@pytest.mark.parametrize("name", OURS)
@settings(max_examples=25)
@given(st.integers(1, 40), st.floats(-500, 500))
def test_values_and_mean_that_are_shifted_shift_the_estimate(name: str, count: int, shift: float) -> None:
    observations, wanted = scattered(count), points(20)
    moved = replace_values(observations, observations.values + shift)

    before = kernel_by_name(name)(observations, wanted, PARAMETERS)
    after = kernel_by_name(name)(moved, wanted, replace(PARAMETERS, mean=PARAMETERS.mean + shift))

    np.testing.assert_allclose(after.values, before.values + shift, atol=1e-6)
    np.testing.assert_allclose(after.error, before.error, rtol=1e-6)


@pytest.mark.parametrize("name", OURS)
def test_old_observations_make_larger_errors(name: str) -> None:
    observations, wanted = scattered(60), points(20)
    fresh = Observations(observations.positions, observations.values, np.zeros(60))
    old = Observations(observations.positions, observations.values, np.full(60, 6 * 3600.0))

    errors = [kernel_by_name(name)(o, wanted, PARAMETERS).error for o in (fresh, old)]

    assert (errors[1] > errors[0]).all()


def test_kriging_believes_the_newer_of_two_at_one_place() -> None:
    twins = Observations(np.zeros((2, 2)), np.array([270.0, 290.0]), np.array([0.0, 12 * 3600.0]))

    field = Kriging()(twins, np.zeros((1, 2)), PARAMETERS)

    assert abs(field.values[0] - 270) < 2


def test_equal_values_are_kept() -> None:
    observations = replace_values(scattered(50), np.full(50, 271.0))

    for name in OURS:
        field = kernel_by_name(name)(observations, points(30), replace(PARAMETERS, mean=271.0))
        np.testing.assert_allclose(field.values, 271.0, rtol=1e-12)


def test_a_point_s_bits_do_not_depend_on_the_chunk_it_is_in() -> None:
    observations, wanted = scattered(300), points(CHUNK + 500)
    for name in OURS:
        kernel = kernel_by_name(name)

        whole = kernel(observations, wanted, PARAMETERS)
        parts = [kernel(observations, wanted[a : a + 777], PARAMETERS) for a in range(0, len(wanted), 777)]

        assert np.concatenate([p.values for p in parts]).tobytes() == whole.values.tobytes()
        assert np.concatenate([p.error for p in parts]).tobytes() == whole.error.tobytes()


def test_far_observations_do_not_change_a_bit_so_a_region_agrees_with_the_whole() -> None:
    lattice = np.stack(np.meshgrid(np.arange(30.0), np.arange(30.0)), axis=-1).reshape(-1, 2)
    rng = np.random.default_rng(3)
    observations = Observations(lattice * 1e4, rng.normal(280, 5, 900), np.zeros(900))
    middle = (rng.integers(12, 17, (200, 2)) + 0.5) * 1e4  # equally far from several: ties
    near = np.flatnonzero((np.abs(lattice - 14.5) < 9).all(axis=1))
    region = Observations(observations.positions[near], observations.values[near], observations.age_s[near])

    for name in OURS:
        whole, part = (kernel_by_name(name)(o, middle, PARAMETERS) for o in (observations, region))
        assert whole.values.tobytes() == part.values.tobytes()
        assert whole.error.tobytes() == part.error.tobytes()


def test_kernels_are_known_by_name() -> None:
    assert DEFAULT == "kriging"
    assert CHEAP == "inverse_distance"
    assert all(kernel_by_name(name).name == name for name in KERNELS)
    with pytest.raises(SensorGridError, match="kernel: found 'magic', expected one of"):
        kernel_by_name("magic")


def test_optimal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gridpp", None)

    with pytest.raises(SensorGridError, match="found no package gridpp, expected"):
        kernel_by_name("optimal")(scattered(5), points(5), PARAMETERS)


@pytest.mark.parametrize("error", [0.01, 0.3])
def test_an_interval_holds_its_value_however_skewed_the_estimate_is(error: float) -> None:
    p = Parameters(mean=0, spread=1, length=1e5, noise=0.1, drift=0, transform="log", offset=1.0, lowest=0.0)
    mu = np.linspace(0.0, 4.0, 9)

    field = published(mu, np.full(9, error), np.full(9, 1.0), p)

    assert (field.lower <= field.values).all()
    assert (field.values <= field.upper).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 4), st.integers(2, 20))
def test_slopes_with_any_number_of_covariates_are_part_of_the_covariance(
    seed: int, columns: int, count: int
) -> None:
    """A mean and slopes that are drawn from priors are a Gaussian process like any other: one dense system says all."""
    rng = np.random.default_rng(seed)
    places, point = rng.uniform(0, 1e5, (count, 2)), rng.uniform(0, 1e5, (1, 2))
    heights, high = rng.normal(0, 100, (count, columns)), rng.normal(0, 100, (1, columns))
    slopes, spreads = rng.normal(0, 0.02, columns), rng.uniform(0.001, 0.05, columns)
    values = rng.normal(10, 3, count)
    p = Parameters(
        mean=9.0, spread=4.0, length=6e4, noise=0.3, drift=0.0, sill=2.0,
        slope=float(slopes[0]) if columns else 0.0, slope_spread=float(spreads[0]) if columns else 0.0,
        slopes=tuple(slopes[1:].tolist()), slope_spreads=tuple(spreads[1:].tolist()),
    )  # fmt: skip
    observations = Observations(places, values, np.zeros(count), heights if columns else None)

    mu, variance, _ = estimate(
        observations, neighbours_of(places, point, 24), point, p, high if columns else None
    )

    tilt, there = heights - heights.mean(axis=0), high - heights.mean(axis=0)
    everywhere = np.vstack([places, point])
    apart = np.linalg.norm(everywhere[:, None] - everywhere[None, :], axis=2)
    drift = np.vstack([tilt, there]) * spreads
    covariance = p.sill**2 * correlation(apart, p.length, p.shape) + p.spread**2 + drift @ drift.T
    system, towards = covariance[:-1, :-1] + p.noise**2 * np.eye(count), covariance[:-1, -1]
    weights = np.linalg.solve(system, towards)
    assert mu[0] == pytest.approx(p.mean + there[0] @ slopes + weights @ (values - p.mean - tilt @ slopes))
    assert variance[0] == pytest.approx(covariance[-1, -1] - weights @ towards, rel=1e-6, abs=1e-9)
