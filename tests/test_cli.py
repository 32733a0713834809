import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sensorgrid import Grid, Query, __version__
from sensorgrid.benchmarks import index as index_benchmark
from sensorgrid.cli.bench import show_index
from sensorgrid.cli.main import app, console

runner = CliRunner()


def sensorgrid(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own."""
    command = [sys.executable, "-c", "from sensorgrid.cli.main import run; run()", *arguments]
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


def test_an_option_that_commands_share_says_the_same_in_each() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]

    for name, where in (
        ("--connect", ("query", "sensors")), ("--bbox", ("query", "sensors", "explain")),
        ("--ca", ("query", "sensors")), ("--json", ("sensors", "status")),
    ):  # fmt: skip
        found = [next(p for p in commands[one].params if name in p.opts) for one in where]
        assert len({(p.help, p.metavar, p.envvar) for p in found}) == 1, name


def test_explain_takes_the_grid_of_a_file_and_says_so_if_it_has_none(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text('lake = "lake"\n[grid]\nshape = [64, 32]\ntick = "30s"\n')

    mine = runner.invoke(app, ["explain", "--grid", str(tmp_path / "grid.toml"), "--bbox", "0,0,90,45"])
    none = runner.invoke(app, ["explain", "--bbox", "0,0,90,45"])

    assert "64 × 32 points" in mine.output
    assert "a tick every 30 s" in mine.output
    assert "--grid FILE" not in mine.output
    assert "--grid FILE or --connect URL takes yours" in none.output


def test_explain_prints_and_writes_what_a_query_costs(tmp_path: Path) -> None:
    target = tmp_path / "explain.json"

    result = sensorgrid(
        "explain", "--bbox", "-10,35,30,60", "--resolution", "1/4,1/4,1/2", "--json", str(target)
    )

    assert result.returncode == 0, result.stderr
    assert "8,094" in result.stdout
    assert "t ≡ 0 (mod 2)" in result.stdout
    facts = json.loads(target.read_text())
    size = Query("air_temperature", (-10, 35, 30, 60), (1 / 4, 1 / 4, 1 / 2)).size(Grid())
    assert facts["points_per_tick"] == size.points_per_tick == 8094
    assert facts["bytes_per_tick"] == size.bytes_per_tick
    assert facts["bytes_per_second"] == size.bytes_per_second
    assert facts["effective_resolution"] == [0.25, 0.25, 0.5]
    assert facts["slices"] == [{"y": [1424, 1707, 4], "x": [1936, 2389, 4], "tick": [0, 2]}]
    assert 0 <= facts["padding"] < 1
    wanted = sum(row["points"] for row in facts["fragments"])
    carried = sum(row["padded_points"] for row in facts["fragments"])
    assert wanted == size.points_per_tick * 16 / 2
    assert facts["padding"] == pytest.approx(1 - wanted / carried)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--bbox", "1,2,3"], "--bbox: found 3 numbers in '1,2,3', expected four numbers W,S,E,N"),
        (["--bbox", "a,b,c,d"], "--bbox: found 'a,b,c,d', expected four numbers"),
        (["--bbox", "0,60,10,50"], "bbox: found south 60 > north 50, expected south <= north"),
        (["--bbox", "0,0,nan,1"], "expected finite numbers"),
        (["--bbox", "0,0,10,95"], "expected a box inside the grid's extent"),
        (["--bbox", "0,0,0.001,1"], "found no grid point along x"),
        (["--resolution", "0"], "resolution x: found 0.0, expected a number in (0, 1]"),
        (["--resolution", "1/0"], "--resolution: found '1/0'"),
        (["--resolution", "1,1"], "--resolution: found 2 numbers"),
        (["--attribute", "warmth"], "attribute: found 'warmth', expected one of air_temperature"),
        (["--shape", "100x100"], "shape: found (100, 100), expected two powers of two"),
        (["--shape", "wide"], "--shape: found 'wide'"),
        (["--dimensions", "7"], "--dimensions: found '7', expected one of 2, 3, 4, 5"),
        (["--resolution-bits", "1.5"], "--resolution-bits: found '1.5', expected whole numbers"),
        (["--until", "2026-01-01T00:00Z"], "--until: found no --from"),
        (["--from", "2026-01-02T00:00Z", "--until", "2026-01-01T00:00Z"], "expected a moment after --from"),
        (["--from", "2026-01-02"], "--from: found '2026-01-02', expected ISO 8601 with a time zone"),
        (["--from", "2026-01-01T00:01Z", "--until", "2026-01-01T00:02Z"], "found no tick in 0:01:00"),
        (["--bbox", ""], "--bbox: found '', expected four numbers"),
        (["--from", ""], "--from: found ''"),
        (["--extent", "0,0,12800,6400"], "other coordinates need coordinates='planar'"),
        (["--coordinates", "planar"], "--coordinates planar: found no --extent"),
        (["--json", "/nowhere/at/all.json"], "--json: found '/nowhere/at/all.json'"),
    ],
)
def test_a_mistake_is_one_line_and_a_code_never_a_traceback(arguments: list[str], complaint: str) -> None:
    result = runner.invoke(app, ["explain", *arguments])

    assert result.exit_code != 0
    assert complaint in str(result.exception)


def test_a_reader_who_has_seen_enough_loses_no_result(tmp_path: Path) -> None:
    target = tmp_path / "explain.json"
    command = (
        f"{sys.executable} -c 'from sensorgrid.cli.main import run; run()' explain --json {target} | head -1"
    )

    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)

    assert "Traceback" not in result.stderr
    assert json.loads(target.read_text())["command"] == "explain"


def test_json_to_standard_output_comes_alone() -> None:
    result = sensorgrid(
        "explain", "--from", "2026-01-01T00:00Z", "--until", "2026-01-02T00:00Z", "--json", "-"
    )

    facts = json.loads(result.stdout)
    assert facts["ticks"] == 144
    assert facts["bytes"] == 144 * facts["bytes_per_tick"]


@pytest.mark.parametrize(
    "variables", [{"PYTHONIOENCODING": "ascii"}, {"HOME": "/dev/null"}, {"COLUMNS": "40"}]
)
def test_odd_surroundings_do_not_matter(variables: dict[str, str]) -> None:
    result = sensorgrid("explain", "--bbox", "0,0,9,9", "--depth", "4", environment=variables)

    assert result.returncode == 0, result.stderr
    assert "points per" in result.stdout


def test_a_mistake_ends_the_real_command_with_code_2() -> None:
    result = sensorgrid("explain", "--bbox", "0,60,10,50")

    assert result.returncode == 2
    assert result.stderr.strip() == "error: bbox: found south 60 > north 50, expected south <= north"
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bbox", "170,-20,-170,20", "--resolution", "0.3"],
        ["--bbox", "13.4,52.5,13.4,52.5"],
        ["--attribute", "air_temperature,relative_humidity", "--region-digits", "3"],
        ["--from", "2026-01-01T00:00Z", "--until", "2026-01-02T00:00Z"],
        ["--extent", "0,0,12800,6400", "--coordinates", "planar", "--bbox", "100,100,900,800"],
        ["--dimensions", "2", "--bbox", "0,0,45,45"],
        ["--shape", "32x32", "--resolution-bits", "1,2,3", "--depth", "3", "--region-digits", "0"],
    ],
)  # fmt: skip
def test_explain_copes_with_all_kinds_of_queries(arguments: list[str]) -> None:
    result = runner.invoke(app, ["explain", *arguments], catch_exceptions=False)

    assert result.exit_code == 0
    assert "points per tick" in result.stdout


@pytest.mark.parametrize("command", [[], ["explain"], ["bench"], ["bench", "index"]])
def test_every_command_has_help(command: list[str]) -> None:
    result = runner.invoke(app, [*command, "--help"])

    assert result.exit_code == 0
    assert command[-1:] == ["bench"] or not command or "Example: sensorgrid" in result.stdout


@pytest.mark.parametrize("seeds", ["", "x", "5-1", "1-", "-1"])
def test_seeds_that_cannot_be_are_refused(seeds: str) -> None:
    result = runner.invoke(app, ["bench", "index", "--seeds", seeds])

    assert "--seeds: found" in str(result.exception)


def test_the_version_is_printed() -> None:
    assert runner.invoke(app, ["--version"]).stdout.strip() == f"sensorgrid {__version__}"


def test_the_index_benchmark_compares_the_same_hits() -> None:
    plan = index_benchmark.IndexSizes(sizes=(500,), grown_max=500, rounds_max=1)
    gc.freeze()  # it collects garbage before every round: not that of all the tests before this one

    rows = list(index_benchmark.run(plan, progress=lambda text: None))

    gc.unfreeze()

    wanted = {"impl", "operation", "stored", "distribution", "per_second", "bytes_per_query"}
    assert all(wanted <= set(row) for row in rows)
    by_name = {(r["impl"], r["operation"], r["distribution"]) for r in rows}
    for impl in ("sensorgrid-batch", "sensorgrid-single", "rtree-batch", "rtree-single"):
        for operation in ("insert", "lookup", "remove"):
            for distribution in ("uniform", "hotspot"):
                assert (impl, operation, distribution) in by_name
    for extra in ("shuffled", "sparse", "second"):
        assert (f"sensorgrid-batch-{extra}", "insert", "uniform") in by_name
    with console.capture() as printed:
        show_index(console, rows)
    assert "times as fast as rtree" in printed.get()
