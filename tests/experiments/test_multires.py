"""The evaluation of multires as a command: what its table holds, and what is read off it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sensorgrid.experiments import claims
from sensorgrid.experiments.figures import draw
from sensorgrid.experiments.multires import ExperimentError, MultiresCase, MultiresSweep, joined, policy_of
from servers import PATIENCE_S, wait_for

FIELDS = {
    "hotspot", "dims", "depth", "policy", "seed", "load", "load_bound", "replication_share", "replication_at_15",
    "replication_at_20", "replication_bound_at_20", "connections_per_broker", "messages", "queries",
}  # fmt: skip


@pytest.fixture(scope="module")
def table() -> list[dict[str, object]]:
    plan = MultiresSweep(("large",), (2, 4), (6,), ("paper", "ours"))
    return joined(case.play() for case in plan.cases([3]))


def test_the_table_has_the_fields_that_others_rely_on(table: list[dict[str, object]]) -> None:
    assert [set(row) >= FIELDS for row in table] == [True] * 4
    assert json.loads(json.dumps(table)) == table


def test_nobody_serves_more_than_the_bound_or_replicates_less_than_it(table: list[dict[str, object]]) -> None:
    for row in table:
        load, bound = float(str(row["load"])), float(str(row["load_bound"]))
        assert 0 < load <= bound + 1e-9 <= 25
        if row["replication_at_20"] is not None:
            assert float(str(row["replication_at_20"])) >= float(str(row["replication_bound_at_20"])) - 1e-9


def test_ours_serves_nearly_all_that_can_be_served(table: list[dict[str, object]]) -> None:
    for row in table:
        if row["policy"] == "ours":
            assert float(str(row["load"])) >= 0.97 * float(str(row["load_bound"]))


def test_a_run_is_a_function_of_its_case() -> None:
    case = MultiresCase("large", 2, 4, "literal", 1)

    assert case.play() == case.play()


@pytest.mark.parametrize(
    "wrong", [{"hotspots": ("huge",)}, {"dims": (6,)}, {"depths": (99,)}, {"policies": ("x",)}]
)
def test_a_sweep_that_cannot_be_is_refused(wrong: dict[str, tuple[object, ...]]) -> None:
    with pytest.raises(ExperimentError, match=r"found .*, expected some of"):
        MultiresSweep(**wrong)  # type: ignore[arg-type]


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ExperimentError, match="policy: found 'best', expected one of paper"):
        policy_of("best")


def _row(
    dims: int, seed: int, at_15: float | None, at_20: float | None, streams: float = 1.0
) -> dict[str, object]:
    marks = {
        "replication_at_5": 0.0,
        "replication_at_10": 0.1,
        "replication_at_15": at_15,
        "replication_at_20": at_20,
    }
    where = {"hotspot": "large", "depth": 10, "policy": "paper", "dims": dims, "seed": seed}
    return where | marks | {"connections_at_15": streams}


def test_savings_compare_runs_at_the_highest_load_that_both_reach() -> None:
    rows = [_row(2, 1, 0.4, 0.5), _row(4, 1, 0.1, None), _row(2, 2, 0.4, 0.8), _row(4, 2, 0.3, 0.2)]

    (found,) = claims.savings(rows)

    assert found["saving"] == pytest.approx((0.75 + 0.75) / 2)
    assert (found["seeds"], found["half"]) == (2, pytest.approx(0.0))


def test_a_confidence_interval_is_students() -> None:
    found = claims.interval([1.0, 2.0, 3.0])

    assert found is not None
    assert (found.mean, found.half) == (2.0, pytest.approx(4.303 / 3**0.5, rel=1e-3))


def test_at_equal_connections_only_indexes_with_no_more_of_them_count() -> None:
    rows = [_row(2, 1, 0.4, 0.5, streams=2.0), _row(4, 1, 0.1, 0.1, streams=3.0)]
    rows.append(_row(4, 1, 0.2, 0.2, streams=2.0) | {"depth": 8})

    (found,) = claims.equal_connections(rows)

    assert (found["best_depth"], found["saving"]) == (8, pytest.approx(0.5))


def test_figures_are_drawn_from_the_table(table: list[dict[str, object]], tmp_path: Path) -> None:
    made = draw(table, tmp_path)

    assert [path.name for path in made] == [
        "multires-connections-per-broker.png", "multires-messages.png", "multires-replication-share.png",
        "multires-load.png",
    ]  # fmt: skip
    assert all(path.stat().st_size > 10_000 for path in made)


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from sensorgrid.cli.main import run; run()", "experiment", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False)


@pytest.mark.long
def test_spark_gives_the_same_rows_as_the_cores_of_this_machine() -> None:
    case = (
        "multires",
        "--hotspot",
        "large",
        "--dims",
        "2",
        "--depth",
        "4",
        "--policy",
        "literal",
        "--json",
        "-",
    )

    here, there = _command(*case), _command(*case, "--spark", "local[1]")

    assert json.loads(there.stdout)["rows"] == json.loads(here.stdout)["rows"]
    assert set(json.loads(here.stdout)["rows"][0]) >= FIELDS


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_a_sweep_that_is_ended_leaves_no_process_behind(number: signal.Signals, code: int) -> None:
    """Ctrl-C goes to all of its processes; a supervisor or the kernel may end the first one alone."""
    command = [sys.executable, "-c", "from sensorgrid.cli.main import run; run()", "experiment", "faults"]
    process = subprocess.Popen(
        [*command, "--seeds", "1-4000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    wait_for(lambda: len(_group(process.pid)) >= 3, "the workers")

    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    wait_for(lambda: not _group(process.pid), "the last worker to end")

    assert process.returncode == code
    if number != signal.SIGKILL:
        assert re.search(rb"stopped after \d+ of 200 runs; nothing was written", said)
        assert b"leaked" not in said


def _group(leader: int) -> list[int]:
    """Living processes of a group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("multires", "--hotspot", "huge"), "hot spot: found 'huge', expected some of large, small, single"),
        (("multires", "--depth", "x"), "--depth: found 'x', expected whole numbers with commas"),
        (("multires", "--spark", "nonsense"), "--spark: found 'nonsense', expected local[N]"),
        (("multires", "--figures", "/dev/null/x"), "figures: found '/dev/null/x', expected a folder"),
        (("faults", "--seeds", "5-1"), "--seeds: found '5-1', expected A <= B"),
        (("moving", "--data", "/nowhere"), "data folder /nowhere: found no folder storm-tracks"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments: tuple[str, ...], said: str) -> None:
    done = _command(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_one_schedule_can_be_played_again_by_its_seed() -> None:
    done = _command("faults", "--seeds", "7", "--json", "-")

    result = json.loads(done.stdout)

    assert done.returncode == 0
    assert [row["seed"] for row in result["rows"]] == [7]
    assert result["summary"]["failed"] == []
