"""Parameters are found again from fields that were made with them."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from sensorgrid.pipeline.gridding import calibration
from sensorgrid.pipeline.gridding.calibration import (
    _voices_error,
    _worse,
    calibrate,
    fit,
    overridden,
    prior,
    smooth,
)
from sensorgrid.pipeline.gridding.kernels import CHEAP, DEFAULT, kernel_by_name
from sensorgrid.pipeline.gridding.kernels.covariance import correlation
from sensorgrid.pipeline.gridding.kernels.interface import Observations, Parameters
from sensorgrid.pipeline.gridding.kernels.kriging import Kriging
from sensorgrid.pipeline.gridding.kernels.transforms import backward, forward, unit_at, without_wall
from sensorgrid.pipeline.gridding.neighbours import judge
from sensorgrid.pipeline.ingest.attributes import KNOWN

MADE = Parameters(mean=10.0, spread=4.0, length=2e5, noise=0.4, drift=0.0, shape="matern", sill=4.0)


def gaussian_field(p: Parameters, places: np.ndarray, seed: int) -> np.ndarray:
    """The truth at the places, drawn with covariance `p`."""
    apart = np.linalg.norm(places[:, None] - places[None, :], axis=2)
    covariance = p.sill**2 * correlation(apart, p.length, p.shape) + 1e-8 * np.eye(len(places))
    drawn = np.random.default_rng(seed).normal(size=len(places))
    return np.asarray(p.mean + np.linalg.cholesky(covariance) @ drawn)


@pytest.fixture(scope="module", params=["exponential", "matern"])
def made(request: pytest.FixtureRequest) -> tuple[Parameters, list[Observations], np.ndarray, np.ndarray]:
    p = replace(MADE, shape=request.param)
    rng = np.random.default_rng(2)
    places = rng.uniform(0, 1.2e6, (900, 2))
    ticks = []
    for seed in (1, 2):
        truth = gaussian_field(p, places, seed)
        values = truth[:500] + rng.normal(0, p.noise, 500)
        values[rng.choice(500, 10, replace=False)] += rng.choice([-1, 1], 10) * rng.uniform(20, 60, 10)
        ticks.append(Observations(places[:500], values, np.zeros(500)))
    return p, ticks, places[500:], truth[500:]


@pytest.fixture(scope="module")
def fitted(made: tuple[Parameters, list[Observations], np.ndarray, np.ndarray]) -> Parameters:
    return fit(made[1], prior(""))


def test_the_covariance_is_found_again_despite_faults(made, fitted) -> None:  # type: ignore[no-untyped-def]
    p = made[0]
    # Length and sill trade off; what interpolation rests on is the likeness over some distance, and the noise.
    for distance in (3e4, 1e5):
        true = p.sill**2 * (1 - correlation(np.array([distance]), p.length, p.shape)[0])
        found = fitted.sill**2 * (1 - correlation(np.array([distance]), fitted.length, fitted.shape)[0])
        assert 0.5 < found / true < 2.0
    assert 0.4 < fitted.noise / p.noise < 2.0
    assert fitted.mean == pytest.approx(p.mean, abs=3)
    assert 2.0 < fitted.spread < 8.0


def test_errors_are_honest_at_places_that_nobody_observed(made, fitted) -> None:  # type: ignore[no-untyped-def]
    from sensorgrid.pipeline.gridding.neighbours import reject_outliers

    _, ticks, places, truth = made
    keep = ~reject_outliers(ticks[-1], fitted)
    kept = Observations(ticks[-1].positions[keep], ticks[-1].values[keep], ticks[-1].age_s[keep])

    field = Kriging()(kept, places, fitted)

    within = np.abs(field.values - truth) <= field.error
    assert 0.58 < within.mean() < 0.82
    assert (~keep).sum() >= 9


def test_readings_that_are_off_by_millions_do_not_spoil_the_fit(made, fitted) -> None:  # type: ignore[no-untyped-def]
    spoilt = [Observations(t.positions, t.values.copy(), t.age_s) for t in made[1]]
    for tick in spoilt:
        tick.values[::70] = 1e7

    found = fit(spoilt, prior(""))

    assert 0.5 < found.spread / fitted.spread < 2.0
    assert 0.5 < found.noise / fitted.noise < 2.0


def test_the_noise_of_observations_is_not_taken_for_an_error_of_the_grid() -> None:
    rng = np.random.default_rng(4)
    p = replace(MADE, noise=2.0)
    places = rng.uniform(0, 1.2e6, (700, 2))
    truth = gaussian_field(p, places, 1)
    tick = Observations(places[:400], truth[:400] + rng.normal(0, p.noise, 400), np.zeros(400))

    found = fit([tick], prior(""))

    assert found.noise == pytest.approx(p.noise, rel=0.3)
    field = Kriging()(tick, places[400:], found)
    assert 0.5 < np.mean(np.abs(field.values - truth[400:]) <= field.error) < 0.85


def test_fitting_is_deterministic(made, fitted) -> None:  # type: ignore[no-untyped-def]
    assert fit(made[1], prior("")) == fitted


def test_units_do_not_matter(made, fitted) -> None:  # type: ignore[no-untyped-def]
    scaled = [Observations(t.positions, t.values * 1024, t.age_s) for t in made[1]]

    found = fit(scaled, replace(prior(""), drift=prior("").drift * 1024))

    assert found.length == pytest.approx(fitted.length)
    assert found.sill == pytest.approx(fitted.sill * 1024)
    assert found.errors == pytest.approx(fitted.errors, abs=1e-3)


def test_no_observation_leaves_the_start_and_says_so() -> None:
    nothing = Observations(np.empty((0, 2)), np.empty(0), np.empty(0))

    found = calibrate([nothing, nothing], MADE)

    assert found.parameters == MADE
    assert found.why == "priors: no measurement in the ticks that were looked at"


@pytest.mark.parametrize("stations", [1, 2, 3, 7, 12])
def test_few_stations_are_pooled_over_ticks_and_have_honest_errors(stations: int) -> None:
    rng = np.random.default_rng(stations)
    places = np.concatenate([rng.uniform(0, 3e5, (stations, 2)), rng.uniform(5e4, 2.5e5, (40, 2))])
    p = replace(MADE, sill=2.0, spread=2.0)
    ticks, truths = [], []
    for seed in range(72):
        truth = gaussian_field(p, places, seed) + 3 * np.sin(seed / 4)
        values = truth[:stations] + rng.normal(0, p.noise, stations)
        ticks.append(Observations(places[:stations], values, np.zeros(stations)))
        truths.append(truth[stations:])

    found = calibrate(ticks, prior("number_of_frogs"))

    assert found.kernel == ("kriging" if stations >= 12 else "inverse_distance")
    assert f"of {stations} stations in 72 ticks" in found.why
    assert found.parameters.mean == pytest.approx(10, abs=2)
    assert 1.0 < found.parameters.spread < 6
    fields = [kernel_by_name(found.kernel)(t, places[stations:], found.parameters) for t in ticks]
    within = np.mean([np.abs(f.values - t) <= f.error for f, t in zip(fields, truths, strict=True)])
    if stations >= 2:  # one cannot know how values change with the distance
        assert (
            0.5 < within < 0.9
        )  # rather too wide: points lie among stations, held-out stations at their edge


def test_one_sensor_alone_knows_how_far_its_next_reading_may_be_off() -> None:
    rng = np.random.default_rng(6)
    series = 285 + np.cumsum(rng.normal(0, 0.8, 400)) + rng.normal(0, 0.3, 400)
    here = np.zeros((1, 2))
    ticks = [Observations(here, series[i : i + 1], np.zeros(1)) for i in range(100)]

    found = calibrate(ticks, prior("air_temperature"), tick_s=1800.0)

    within = []
    for i in range(100, 399):
        old = Observations(here, series[i : i + 1], np.full(1, 1800.0))
        field = kernel_by_name(found.kernel)(old, here, replace(found.parameters, spread=50.0))
        within.append(field.reading_lower[0] <= series[i + 1] <= field.reading_upper[0])
    assert 0.55 < np.mean(within) < 0.8


def test_a_skewed_attribute_is_fitted_in_its_logarithm_and_a_symmetric_one_as_it_is(made) -> None:  # type: ignore[no-untyped-def]
    _, ticks, *_ = made
    rng = np.random.default_rng(1)
    skewed = [replace(t, values=8e-9 * np.exp(np.clip((t.values - 10) / 3, -4, 4))) for t in ticks]
    noisy = [replace(t, values=t.values * np.exp(rng.normal(0, 0.1, 500))) for t in skewed]

    found = calibrate(noisy, prior("number_of_frogs"))
    shown = calibrate(ticks, prior("number_of_frogs"))
    forced = calibrate(noisy, prior("number_of_frogs"), transform="identity")

    assert found.parameters.transform == "log"
    assert found.parameters.lowest == 0.0
    assert found.why.startswith("log(value + ")
    assert shown.parameters.transform == forced.parameters.transform == "identity"
    assert shown.why.startswith("values as they are, fitted to 1,000 values of 500 stations in 2 ticks")


def test_a_covariate_that_values_follow_is_used_and_one_that_says_nothing_is_not(made) -> None:  # type: ignore[no-untyped-def]
    _, ticks, *_ = made
    heights = np.random.default_rng(3).uniform(0, 2000, 500)
    followed = [replace(t, values=t.values - 0.0065 * heights, covariate=heights) for t in ticks]

    found = fit(followed, prior(""))
    none = fit([replace(t, covariate=heights) for t in ticks], prior(""))

    assert found.slope == pytest.approx(-0.0065, rel=0.15)
    assert found.slope_spread > 0
    assert none.slope_spread == 0


def test_further_covariates_are_used_each_if_it_helps(made) -> None:  # type: ignore[no-untyped-def]
    _, ticks, *_ = made
    rng = np.random.default_rng(4)
    coast, nonsense = rng.uniform(0, 300, 500), rng.uniform(0, 1, 500)
    both = np.column_stack([np.full(500, np.nan), coast, nonsense])
    start = replace(prior(""), covariates=("coast", "nonsense"))

    found = calibrate([replace(t, values=t.values + 0.03 * coast, covariate=both) for t in ticks], start)

    p = found.parameters
    assert p.slope_spread == 0
    assert p.slopes == (0.0, 0.0)
    assert p.slope_spreads[0] > 0.003
    assert p.slope_spreads[1] == 0
    assert "following coast by 0 ±" in found.why
    assert "nonsense" not in found.why
    assert smooth(p, replace(p, slope_spreads=(1.0, 0.0)), 0.5).slope_spreads[0] > p.slope_spreads[0]
    assert smooth(p, prior(""), 0.9).covariates == ()


@pytest.mark.parametrize(
    ("worse", "at_worst", "kernel"), [(1.0, 1.03, CHEAP), (0.95, 0.99, DEFAULT), (1.03, 1.03, CHEAP)]
)
def test_kriging_must_be_certain_not_to_be_worse(
    monkeypatch: pytest.MonkeyPatch, worse: float, at_worst: float, kernel: str
) -> None:
    places = np.random.default_rng(5).uniform(0, 1.2e6, (40, 2))
    tick = Observations(places, gaussian_field(MADE, places, 1), np.zeros(40))
    monkeypatch.setattr(calibration, "_worse", lambda *_: (worse, at_worst))

    found = calibrate([tick], prior(""))

    assert found.kernel == kernel
    assert ("times its errors at hold-outs" in found.why) == (kernel == CHEAP)


def test_how_much_worse_a_kernel_may_be_is_less_certain_with_fewer_stations_and_not_with_one_odd_one() -> (
    None
):
    rng = np.random.default_rng(3)
    miss, other = 0.9 * rng.normal(0, 1, 400) ** 2, rng.normal(0, 1, 400) ** 2
    station, even = np.arange(400.0)[:, None], np.ones(400)

    many, few = (_worse(miss[:n], other[:n], even[:n], station[:n]) for n in (400, 40))
    miss[0] = other[0] = 1e4
    odd = _worse(miss, other, even, station)

    assert many[0] == pytest.approx(np.sqrt(miss[1:].sum() / other[1:].sum()), rel=0.02)
    assert 0.02 < many[1] - many[0] < 0.2 < few[1] - few[0] < 0.6
    assert odd[0] == pytest.approx(1.0, abs=0.01)
    assert odd[1] < many[1] + 0.05


def test_a_station_that_says_the_same_in_every_tick_is_one_voice() -> None:
    rng = np.random.default_rng(1)
    station, weight = np.arange(50.0)[:, None], np.full(50, 1 / 50)
    gain = rng.normal(0, 1, 50)

    once = _voices_error(weight * gain, station)
    often = _voices_error(np.tile(weight * gain / 8, 8), np.tile(station, (8, 1)))
    others = _voices_error(np.tile(weight * gain / 8, 8), np.arange(400.0)[:, None])

    assert often == pytest.approx(once)
    assert others == pytest.approx(once / np.sqrt(8))


def test_what_an_operator_knows_better_is_given_in_the_attribute_s_own_unit() -> None:
    start = prior("mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air")

    found = overridden(start, mean=3e-8, spread=2e-8, length=5e4, noise=1e-9)

    assert backward(np.array([found.mean]), found)[0] == pytest.approx(3e-8)
    assert found.length == 5e4
    unit = unit_at(3e-8, found)
    assert (found.spread, found.noise) == pytest.approx((unit * 2e-8, unit * 1e-9))
    assert overridden(start) == start


@pytest.mark.parametrize("kind", ["equal", "one place", "mostly zero", "few places"])
def test_degenerate_networks_give_usable_parameters(kind: str) -> None:
    rng = np.random.default_rng(0)
    places, values = rng.uniform(0, 1e6, (60, 2)), rng.normal(5, 1, 60)
    if kind == "equal":
        values[:] = 5.0
    if kind == "one place":
        places[:] = 0.0
    if kind == "mostly zero":
        values[:50] = 0.0
    if kind == "few places":
        places = np.round(places / 5e5) * 5e5
    tick = Observations(places, values, np.zeros(60))

    found = fit([tick], prior("air_temperature"))

    scales = (found.spread, found.length, found.noise, found.sill)
    assert np.isfinite([*scales, found.mean]).all()
    assert min(scales) > 0
    field = Kriging()(tick, rng.uniform(0, 1e6, (50, 2)), found)
    assert np.isfinite(field.values).all()
    assert (field.error > 0).all()


def test_priors_come_from_what_is_known_and_are_json() -> None:
    for name, known in KNOWN.items():
        found = prior(name)
        assert backward(np.array([found.mean]), found)[0] == pytest.approx(known.mean)
        assert found.length == known.length
        assert (found.lowest, found.highest) == known.physical
        read = json.loads(json.dumps(asdict(found)))
        assert Parameters(**{k: tuple(v) if isinstance(v, list) else v for k, v in read.items()}) == found
    assert prior("number_of_frogs").spread == 1.0


def test_smoothing_goes_from_old_to_new() -> None:
    new = replace(MADE, length=8e5, mean=20.0, shape="exponential", drift=1.0)

    assert smooth(MADE, new, 0.0) == MADE
    assert smooth(MADE, new, 1.0) == new
    halfway = smooth(MADE, new, 0.5)
    assert halfway.length == pytest.approx(4e5)
    assert halfway.mean == pytest.approx(15.0)
    assert halfway.shape == "exponential"
    assert smooth(MADE, new, 0.4).shape == "matern"
    log = replace(new, transform="log", offset=1.0)
    assert smooth(MADE, log, 0.5) == log
    assert smooth(MADE, log, 0.4) == MADE


@pytest.mark.parametrize("stations", [1, 2, 12, 40])
@pytest.mark.parametrize(("attribute", "value"), [("air_temperature", 288.15), ("wind_speed", 3.1)])
def test_equal_readings_say_nothing_about_the_scatter(attribute: str, value: float, stations: int) -> None:
    rng = np.random.default_rng(1)
    positions = rng.uniform(0, 5e5, (stations, 2))
    ticks = [Observations(positions, np.full(stations, value), np.zeros(stations)) for _ in range(12)]

    made = calibrate(ticks, prior(attribute), "kriging").parameters

    assert made.spread > 1e-3 * prior(attribute).spread
    later = Observations(positions, value + rng.normal(0, 0.01 * value**0.5, stations), np.zeros(stations))
    assert not judge(later, made).bad.any()


def test_an_unknown_attribute_that_falls_below_zero_for_the_first_time_is_gridded_as_it_is() -> None:
    rng = np.random.default_rng(2)
    positions = rng.uniform(0, 5e5, (60, 2))
    ticks = [
        Observations(positions, np.abs(rng.normal(0, 6, 60)) * rng.gamma(1, 1, 60), np.zeros(60))
        for _ in range(12)
    ]
    made = calibrate(ticks, prior("soil_temperature_c"), "kriging").parameters
    frost = Observations(positions, -6 + rng.normal(0, 0.3, 60), np.zeros(60))

    field = Kriging()(frost, positions[:20] + 1e3, without_wall(made, frost.values))

    assert np.abs(field.values + 6).max() < 1.5


def test_a_logarithm_that_is_asked_for_does_not_clip_what_is_below_zero() -> None:
    rng = np.random.default_rng(2)
    positions = rng.uniform(0, 5e5, (60, 2))
    ticks = [Observations(positions, rng.normal(3, 4, 60), np.zeros(60)) for _ in range(12)]
    made = calibrate(ticks, prior("glow"), "kriging", "log").parameters
    frost = Observations(positions, -6 + rng.normal(0, 0.3, 60), np.zeros(60))

    field = Kriging()(frost, positions[:20] + 1e3, without_wall(made, frost.values))

    assert made.transform == "log"
    values = np.array([-6.0, -1.0, 0.0, 5.0])
    np.testing.assert_allclose(backward(forward(values, made), made), values, atol=1e-9)
    assert np.abs(field.values + 6).max() < 1.5
