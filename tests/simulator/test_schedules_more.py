"""The other half of the schedules of faults, see `test_schedules.py`."""

import pytest

from faults import chunks, failures, play_all


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    found = chunks(metafunc.config, 1, 2)
    metafunc.parametrize("seeds", found, ids=[f"{s[0]}-{s[-1]}" for s in found])


def test_every_query_gets_its_points_and_nothing_is_left_behind(seeds: range) -> None:
    outcomes = play_all(seeds)

    assert not failures(outcomes), failures(outcomes)
