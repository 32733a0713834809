"""What `sensorgrid operator explain` says before anything is calculated."""

import json
import subprocess
import sys
from pathlib import Path

from sensorgrid.cli.operator import facts_of
from sensorgrid.model.grid import Grid
from sensorgrid.operators.plan import compile

CONFIG = """
[grid]
shape = [512, 256]
region_digits = 4
[areas.quarter]
bbox = [-90, -45, 90, 45]
"""


def test_a_mean_over_a_quarter_of_a_grid_saves_more_than_fifty_times() -> None:
    grid = Grid(shape=(512, 256), region_digits=4)

    facts = facts_of(compile("mean(air_temperature, BBOX(-90, -45, 90, 45))", grid))

    assert facts["terms"][0]["points"] == 512 * 256 // 4
    assert facts["raw_bytes_per_tick"] == 512 * 256 // 4 * 8
    (term,) = facts["terms"]
    assert facts["bytes_per_tick"] == term["partial_bytes"] * len(term["regions"])
    assert facts["raw_bytes_per_tick"] / 2 / facts["bytes_per_tick"] > 50, "values alone"


def test_the_command_knows_areas_and_points_at_mistakes(tmp_path: Path) -> None:
    config = tmp_path / "grid.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "sensorgrid", "operator", "explain", str(config)]

    good = subprocess.run(
        [*command, "mean(air_temperature, 'quarter')", "--json", "-"], capture_output=True, text=True
    )
    bad = subprocess.run([*command, "mean(air_temperature, 'quater')"], capture_output=True, text=True)

    assert json.loads(good.stdout)["terms"][0]["points"] == 32768
    assert bad.returncode == 2
    assert bad.stderr.splitlines()[0] == "error: value: found area 'quater', expected quarter, perhaps"
    assert bad.stderr.splitlines()[2].index("^") == bad.stderr.splitlines()[1].index("'quater'")
