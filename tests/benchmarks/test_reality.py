"""`bench reality` on networks that are made up: what it injects, what it calls an extreme, what it sums up."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts import CONTRACTS
from pipeline_networks import made
from sensorgrid.benchmarks import reality, reality_checks, reality_sets
from sensorgrid.benchmarks.reality_peers import PyKrige, peers
from sensorgrid.benchmarks.truth import TruthError
from sensorgrid.claims.catalogue import COMMANDS
from sensorgrid.pipeline.verification.engine import estimate, learn, listen
from sensorgrid.pipeline.verification.network import StationNetwork
from sensorgrid.pipeline.verification.verify import verify

(CONTRACT,) = (c for c in CONTRACTS if c.name == "reality")


def quiet(text: str) -> None:
    pass


def set_row(**facts: Any) -> dict[str, Any]:
    row = {
        "set": "a", "attribute": "air_temperature", "kind": "set", "kernel": "kriging", "seed": 1, "elevation": False,
        "rmse": 1.0, "ratio_to_idw": 0.9, "within_one": 0.68, "readings": 1000, "negative_share": 0.0,
        "within_by_level": [0.7] * 5, "within_by_distance": [0.7] * 3,
    }  # fmt: skip
    return row | facts


def figures_of(rows: list[dict[str, Any]], checks: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {figure["figure"]: figure for figure in reality.summary(rows, checks or [])}


def test_injected_faults_are_six_stated_errors_off_and_two_percent() -> None:
    network = made(200, ticks=4)
    clean = learn([m.outputs[0] for m in network.moments], "air_temperature")

    spoilt = reality_checks.spoil(network, clean, seed=1)

    for before, after, faulty in zip(network.moments, spoilt.network.moments, spoilt.faulty, strict=True):
        old, new = before.outputs[0], after.outputs[0]
        assert faulty.sum() == 4
        assert (old.values[~faulty] == new.values[~faulty]).all()
        heard = listen([old.without(faulty)], [clean])[1][0]
        said = estimate(clean.kernel, heard, old.without(~faulty), clean)
        error = (said.upper - said.lower) / 2
        assert (np.abs(new.values[faulty] - said.values) >= 5.99 * error).all()


def test_a_check_is_scored_by_what_it_caught_and_what_it_took_along() -> None:
    (row,) = reality_checks.set_rows(made(200, ticks=4), "made", 1, titan=False)

    assert set(row) >= CONTRACT.lists["checks"]
    assert row["faults"] == 16
    assert row["recall"] == row["caught"] / 16 >= 0.9
    assert row["good"] == 800 - 16
    assert row["rate"] == row["refused_good"] / row["good"] <= 0.02


@pytest.mark.skipif(not find_spec("titanlib"), reason="titanlib is not installed")
def test_titanlib_hears_the_same_readings_and_is_compared_at_our_rate() -> None:
    rows = reality_checks.set_rows(made(200, ticks=2), "made", 1, titan=True)

    assert [row["check"] for row in rows] == [
        "sensorgrid", "titanlib sct", "titanlib buddy", "titanlib isolation",
    ]  # fmt: skip
    assert {(row["faults"], row["good"]) for row in rows} == {(8, 392)}
    consistency = rows[1]
    assert consistency["recall_at_our_rate"] > 0.3
    assert len(consistency["curve"]) == len(reality_checks.SCT)
    rates = [rate for _, rate, _ in consistency["curve"]]
    assert rates == sorted(rates, reverse=True)


def extreme(network: StationNetwork, *stations: int) -> StationNetwork:
    moments = []
    for moment in network.moments:
        output = moment.outputs[0]
        values = output.values.copy()
        values[list(stations)] = 320.0 + np.arange(len(stations))
        moments.append(replace(moment, outputs=(replace(output, values=values),)))
    return replace(network, moments=tuple(moments))


def test_an_extreme_counts_if_another_station_nearby_backs_it() -> None:
    network = made(300, ticks=1)
    places = network.positions
    apart = np.linalg.norm(places - places[0], axis=1)
    nearest, farthest = int(np.argsort(apart)[1]), int(np.argmax(apart))

    (pair,) = reality_checks.corroborated(extreme(network, 0, nearest))
    (alone,) = reality_checks.corroborated(extreme(network, 0, farthest))

    assert pair[[0, nearest]].all()
    assert not alone[[0, farthest]].any()


@pytest.mark.skipif(not find_spec("pykrige"), reason="PyKrige is not installed")
def test_pykrige_is_a_fair_peer_also_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    network = made(120, ticks=1)

    (whole,) = verify(network, 4, methods=[PyKrige()])
    monkeypatch.setattr("sensorgrid.benchmarks.reality_peers.STATIONS_MAX", 60)
    (pieces,) = verify(network, 4, methods=[PyKrige()])

    assert whole.rows[0]["rmse"] < 1.5
    assert pieces.rows[0]["rmse"] < 1.3 * whole.rows[0]["rmse"]


def test_a_package_that_is_missing_is_left_out_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensorgrid.benchmarks.reality_peers.find_spec", lambda name: None)
    peers.cache_clear()

    methods, reasons = peers()
    peers.cache_clear()

    assert [m.name for m in methods] == ["kriging", "nearest", "inverse_distance"]
    assert [reason.split(":")[0] for reason in reasons] == ["optimal", "pykrige"]


def test_absent_data_are_named_with_the_place_where_they_were_looked_for(tmp_path: Path) -> None:
    with pytest.raises(TruthError, match=f"{tmp_path}: found no folder airnow-nw-megafires-2015"):
        reality.run(True, 1, quiet, tmp_path)
    (tmp_path / "airnow-nw-megafires-2015").mkdir()
    with pytest.raises(TruthError, match="found no folder metar"):
        reality_sets.table_of(reality_sets.FEEDS[1], tmp_path)


def test_the_worst_set_and_the_best_peer_are_found() -> None:
    rows = [
        set_row(),
        set_row(kernel="nearest", rmse=1.2),
        set_row(kernel="pykrige", rmse=0.8),
        set_row(set="b", ratio_to_idw=1.1, elevation=True),
        set_row(set="b", kernel="nearest", rmse=2.0),
    ]

    found = figures_of(rows)

    assert found["worst RMSE against the best peer"]["found"] == pytest.approx(1.25)
    assert found["worst RMSE against the best peer"]["where"] == "a air_temperature"
    assert found["worst RMSE against inverse distance"]["where"] == "b air_temperature"
    assert found["mean RMSE against inverse distance"]["found"] == pytest.approx((0.9 * 1.1) ** 0.5)
    assert found["mean RMSE against inverse distance, with elevation"]["found"] == pytest.approx(1.1)
    assert not found["worst RMSE against inverse distance"]["holds"]


def test_honesty_is_pooled_by_readings_and_judged_by_set_and_bin() -> None:
    rows = [
        set_row(within_one=0.70, readings=3000),
        set_row(kernel="nearest"),
        set_row(set="b", within_one=0.50, within_by_level=[0.2, 0.7, 0.7, 0.7, 0.9]),
        set_row(set="b", kernel="nearest"),
        set_row(set="c", readings=100, within_by_level=[0.0] * 5),  # too few to judge bins
        set_row(set="c", kernel="nearest"),
    ]

    found = figures_of(rows)

    assert found["pooled within_one"]["found"] == pytest.approx((0.7 * 3000 + 0.5 * 1000 + 0.68 * 100) / 4100)
    assert found["sets with honest errors"]["found"] == pytest.approx(2 / 3)
    assert found["honest bins by levels"]["found"] == pytest.approx(8 / 10)


def test_checks_are_pooled_over_sets() -> None:
    one = {
        "kind": "injected",
        "check": "sensorgrid",
        "faults": 10,
        "caught": 9,
        "good": 1000,
        "refused_good": 4,
    }
    one |= {"extremes": 10, "extremes_used": 10, "recall_at_our_rate": 0.9}
    two = one | {"faults": 30, "caught": 30, "refused_good": 0, "extremes": 0, "extremes_used": 0}
    rival = one | {"check": "titanlib sct", "recall_at_our_rate": 0.5}

    found = figures_of([set_row(), set_row(kernel="nearest")], [one, two, rival])

    assert found["injected faults caught"]["found"] == pytest.approx(39 / 40)
    assert found["good readings refused"]["found"] == pytest.approx(4 / 2000)
    assert found["corroborated extremes used"]["found"] == 1.0
    assert found["recall less titanlib's at the same rate of refusals"]["found"] == pytest.approx(
        39 / 40 - 0.5
    )


def test_every_figure_is_claimed_and_every_claim_has_a_figure() -> None:
    (command,) = (c for c in COMMANDS if c.name == "reality")
    rows = [set_row(), set_row(kernel="nearest")]
    rows += [set_row(kind=kind) for kind in ("three sensors", "twelve sensors", "one sensor")]
    check = {
        "kind": "injected",
        "check": "sensorgrid",
        "faults": 10,
        "caught": 9,
        "good": 10,
        "refused_good": 4,
    }
    check |= {"extremes": 10, "extremes_used": 10, "recall_at_our_rate": 0.9}
    result = {"summary": reality.summary(rows, [check, check | {"check": "titanlib sct"}]), "took_s": 1.0}

    measured = [claim for claim in command.claims if claim.measure(result) is not None]

    assert len(measured) == len(command.claims) == len(result["summary"]) + 1  # and the minute of --quick
