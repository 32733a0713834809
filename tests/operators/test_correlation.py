"""The error of an area's mean, against the exact one of a field whose covariance is known."""

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

from sensorgrid.model.grid import Grid
from sensorgrid.operators.areas import area_from_bbox
from sensorgrid.operators.correlation import LENGTHS_M, damping, length_of
from sensorgrid.operators.partials.percentiles import BINS
from sensorgrid.operators.plan import compile
from sensorgrid.operators.weights import clip
from sensorgrid.pipeline.ingest.attributes import KNOWN

PLANE = Grid(extent=(0, 0, 32e4, 32e4), shape=(32, 32), resolution_bits=2, coordinates="planar")


@pytest.mark.parametrize("sensors", [20, 80])
@pytest.mark.parametrize("reach", [4e4, 16e4])
@pytest.mark.parametrize("side", [6, 14, 30])
def test_the_stated_error_of_a_mean_is_near_the_exact_one(sensors: int, reach: float, side: int) -> None:
    rng = np.random.default_rng(sensors + side)
    stations = rng.uniform(0, 32e4, (sensors, 2))
    axis = (np.arange(32) + 0.5) * 1e4
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

    def alike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-np.linalg.norm(a[:, None] - b[None, :], axis=-1) / reach)

    gain = cho_factor(alike(stations, stations) + 0.05 * np.eye(sensors))
    across = alike(points, stations)
    left = alike(points, points) - across @ cho_solve(gain, across.T)  # errors of simple kriging
    area = area_from_bbox((1e4, 1e4, (1 + side) * 1e4, (1 + side) * 1e4))
    weights = clip(area, PLANE)
    assert weights is not None
    inside, weight = weights.indices()
    part = weight / weight.sum()
    exact = np.sqrt(part @ left[np.ix_(inside, inside)] @ part)
    stated = (part * np.sqrt(np.diag(left))[inside]).sum()

    found = stated * damping(weights, PLANE, length_of(reach, np.sqrt(32e4**2 / sensors)))

    independent = np.sqrt((part**2 * np.diag(left)[inside]).sum())
    assert 0.6 < found / exact < 1.7
    assert abs(np.log(found / exact)) < abs(np.log(independent / exact))


def test_areas_that_are_far_wider_than_errors_reach_have_small_errors_and_points_have_their_own() -> None:
    grid = Grid(shape=(256, 128), resolution_bits=2)
    whole, dot = clip(None, grid), clip(area_from_bbox((10, 10, 10.2, 10.2)), grid)
    assert whole is not None
    assert dot is not None

    assert damping(whole, grid, 300e3) < 0.06
    assert damping(dot, grid, 300e3) > 0.95
    assert damping(whole, grid, None) == 1.0


def test_the_error_of_a_mean_shrinks_with_the_length_that_is_given() -> None:
    grid = Grid(shape=(64, 32), resolution_bits=2)
    values, errors = np.full((32, 64), 280.0), np.full((32, 64), 2.0)
    found = []
    for length in (None, 1e6, 1e5):
        (term,) = compile(
            "mean(air_temperature)", grid, lengths_m={} if length is None else {"air_temperature": length}
        ).terms
        found.append(term.finish(term.partial(term.whole, values, errors)).error)

    assert found[0] == 2.0
    assert found[0] > 3 * found[1] > 9 * found[2]


def test_tables_agree_with_what_the_pipeline_knows() -> None:
    assert {name: known.length for name, known in KNOWN.items()} == LENGTHS_M
    for name, (low, step, bins) in BINS.items():
        assert low <= KNOWN[name].usual[0]
        assert low + step * bins >= KNOWN[name].usual[1]
