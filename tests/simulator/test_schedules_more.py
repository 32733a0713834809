"""The other half of the schedules of faults, see `test_schedules.py`."""

import pytest

from faults import chunks, failures, play_all


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("seeds", chunks(metafunc.config, 1, 2))


def test_every_query_gets_its_points_and_nothing_is_left_behind(seeds: range) -> None:
    outcomes = play_all(seeds)

    assert not failures(outcomes), failures(outcomes)
