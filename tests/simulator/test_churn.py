"""Schedules of open networks: brokers join, leave, die for good, flap, are cut off, also from the store."""

import pytest

from faults import failures, parameters
from sensorgrid.overlay import ways
from sensorgrid.simulator import churn

QUICK, ALL, CHUNK = 24, 160, 4


@pytest.mark.parametrize("seeds", parameters(range(ALL), QUICK, CHUNK))
def test_every_query_gets_its_points_whoever_comes_and_goes(seeds: range) -> None:
    outcomes = [churn.play(seed) for seed in seeds]

    assert not (found := failures(outcomes, "sensorgrid experiment faults --open --seeds")), found


@pytest.mark.parametrize("seeds", parameters(range(200, 224), CHUNK, CHUNK))
def test_so_it_does_where_owners_are_found_along_links(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "LINKS_MAX", 3)  # so that these few brokers do not ask the owner at once

    outcomes = [churn.play(seed) for seed in seeds]

    assert not (found := failures(outcomes, "churn along links, seed")), found
