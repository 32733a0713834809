"""Stations are left out whole, once each, and nothing of them reaches what is fitted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_networks import made
from sensorgrid.pipeline.gridding.kernels.interface import Observations
from sensorgrid.pipeline.verification import trial
from sensorgrid.pipeline.verification.engine import Estimate, Learnt
from sensorgrid.pipeline.verification.folds import fold_of, folds_for, split
from sensorgrid.pipeline.verification.network import StationNetwork, VerificationError, places
from sensorgrid.pipeline.verification.trial import KernelMethod, OurMethod, run_fold
from sensorgrid.pipeline.verification.verify import verify


@given(st.integers(2, 300), st.integers(2, 20), st.integers(0, 99))
def test_every_station_is_left_out_once_in_folds_of_equal_size(stations: int, folds: int, seed: int) -> None:
    fold = fold_of(stations, folds, seed)

    sizes = np.bincount(fold)
    assert len(fold) == stations
    assert len(sizes) == min(folds, stations)
    assert sizes.max() - sizes.min() <= 1
    assert sizes.min() >= 1


def test_other_seeds_leave_out_others_and_the_same_seed_the_same() -> None:
    assert (fold_of(50, 5, 1) == fold_of(50, 5, 1)).all()
    assert (fold_of(50, 5, 1) != fold_of(50, 5, 2)).any()


@pytest.mark.parametrize("share", [0.0, -0.1, 0.6, 1.0])
def test_a_share_that_leaves_nothing_to_compare_is_refused(share: float) -> None:
    with pytest.raises(VerificationError, match="--leave-out"):
        folds_for(share)


def test_one_station_cannot_be_left_out() -> None:
    with pytest.raises(VerificationError, match="found 1, expected at least 2"):
        fold_of(1, 10, 1)


def test_no_station_is_in_its_own_training_set() -> None:
    network = made(40, ticks=5)
    fold = fold_of(len(network), 4, 1)

    for number in range(4):
        training, testing = split(network, fold == number)
        for known, wanted, whole in zip(training.moments, testing.moments, network.moments, strict=True):
            assert not set(known.station) & set(wanted.station)
            assert len(known.station) + len(wanted.station) == len(whole.station)
            assert set(fold[wanted.station]) <= {number}
            near = np.linalg.norm(
                known.outputs[0].positions[:, None] - wanted.outputs[0].positions[None], axis=-1
            )
            assert near.min() > 0


def spoilt(
    network: StationNetwork, stations: "np.ndarray[tuple[int], np.dtype[np.bool_]]", by: float
) -> StationNetwork:
    """The same network, with what some stations read moved far away."""
    moments = []
    for moment in network.moments:
        output = moment.outputs[0]
        values = np.where(stations[moment.station], output.values + by, output.values)
        moments.append(replace(moment, outputs=(replace(output, values=values),)))
    return replace(network, moments=tuple(moments))


def test_what_left_out_stations_read_changes_no_estimate_and_no_parameter() -> None:
    network = made(60, ticks=4)
    left_out = fold_of(len(network), 5, 1) == 2

    (clean,) = run_fold(network, left_out, [OurMethod(), KernelMethod("inverse_distance")])
    (other,) = run_fold(
        spoilt(network, left_out, 1000.0), left_out, [OurMethod(), KernelMethod("inverse_distance")]
    )

    assert clean.learnt == other.learnt
    assert (clean.heard.refused == other.heard.refused).all()
    for name, told in clean.told.items():
        assert (told.values == other.told[name].values).all()
        assert (told.lower == other.told[name].lower).all()
        assert other.told[name].reading == pytest.approx(told.reading + 1000.0)


def test_the_test_of_leakage_bites(monkeypatch: pytest.MonkeyPatch) -> None:
    network = made(60, ticks=4)
    left_out = fold_of(len(network), 5, 1) == 2
    monkeypatch.setattr(trial, "split", lambda whole, chosen: (whole, whole.of(chosen)))

    (clean,) = run_fold(network, left_out, [OurMethod()])
    (other,) = run_fold(spoilt(network, left_out, 30.0), left_out, [OurMethod()])

    assert (clean.told["kriging"].values != other.told["kriging"].values).any()


class Nosy:
    """A method that tries to see the readings."""

    name = "kriging"

    def __init__(self) -> None:
        self.seen: list[float] = []

    def __call__(self, heard: Observations, there: Observations, learnt: Learnt) -> Estimate:
        self.seen += there.values.tolist()
        return Estimate(np.zeros(len(there)), np.zeros(len(there)), np.zeros(len(there)))


def test_a_method_never_sees_a_reading_that_it_has_to_estimate() -> None:
    nosy = Nosy()

    verify(made(20, ticks=3), 4, methods=[nosy])

    assert len(nosy.seen) >= 60
    assert np.isnan(nosy.seen).all()


def test_only_values_of_the_tick_itself_are_scored() -> None:
    network = made(20, ticks=2)
    old = tuple(replace(m, fresh=m.station % 2 == 0) for m in network.moments)

    (found,) = verify(replace(network, moments=old), 4)

    assert set(found.told["kriging"].station) == set(range(0, 20, 2))
    assert len(found.told["kriging"].reading) == 20


def test_fewer_folds_score_fewer_stations_but_hear_all_others() -> None:
    (found,) = verify(made(40, ticks=2), 4, folds_run=1)

    assert found.folds == 1
    assert len(set(found.told["kriging"].station)) == 10
    assert len(set(found.heard.station)) == 30


def test_sensors_of_one_mast_are_one_station() -> None:
    mast = np.array([[0.0, 0.0], [20_000.0, 0.0], [20_000.0, 10.0], [0.0, 30_000.0], [50_000.0, 0.0]])
    bench = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 3.0]])

    assert len(set(places(mast))) == 4
    assert places(mast)[1] == places(mast)[2]
    assert len(set(places(bench))) == 4
    assert places(np.zeros((3, 2))).tolist() == [0, 0, 0]
