"""Every `sensorgrid up` on a page runs: until its brokers listen and its pipeline works, then it is told to stop."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pages import checking, playing
from pages.playing import Typed, Workshop, lines_of
from servers import listens, mosquitto, wait_for

pytestmark = pytest.mark.long

GRID = """
[grid]
shape = [64, 32]
tick = "10s"
region_digits = 2
[gridding]
kernel = "inverse_distance"
[[sources]]
kind = "synthetic"
[sources.options]
stations = 100
tick = 10
attributes = "air_temperature"
[network]
brokers = 4
"""
WORKS = r"pipeline │ \w+: (kriging|inverse_distance) as configured"


@pytest.mark.parametrize("line", [pytest.param(line, id=str(line)) for line in lines_of("up")])
def test_a_grid_runs_and_stops_in_good_order(line: Typed, tmp_path: Path) -> None:
    shop = Workshop(tmp_path, GRID)
    file = next(word for word in line.text.split() if word.endswith(".toml"))
    content = (tmp_path / file).read_text()
    chosen = re.findall(r"--brokers (\S+)", line.text)
    ports = {int(n): int(port) for n, port in re.findall(r"id = (\d+), url = \"ws://[\d.]+:(\d+)", content)}
    wanted = [n for n in ports if not chosen or str(n) in chosen[0].split(",")]
    signs = [rf"broker {n} │ .* listening" for n in wanted] + ["connect: ws://"]
    signs += [] if "--no-pipeline" in line.text else [WORKS]
    if 'kind = "mqtt"' in content:
        if playing.needed_programs("mosquitto"):
            pytest.skip("mosquitto is not installed")
        with mosquitto(tmp_path, shop.mqtt):
            sensors = [
                sys.executable,
                str(tmp_path / "examples" / "urban_sensors.py"),
                "--port",
                str(shop.mqtt),
            ]
            with subprocess.Popen(sensors, stdout=subprocess.DEVNULL) as speaking:
                try:
                    log = lives(shop, line, signs, wanted, ports)
                finally:
                    speaking.terminate()
    else:
        log = lives(shop, line, signs, wanted, ports)

    assert "stopped" in log.read_text()
    assert not any(map(listens, ports.values()))


def lives(shop: Workshop, line: Typed, signs: list[str], wanted: list[int], ports: dict[int, int]) -> Path:
    with shop.started(line, *signs) as log:
        assert [n for n, port in ports.items() if listens(port)] == wanted
        for advice in re.findall(r"query: (sensorgrid .*)", log.read_text()):
            words = checking.parts_of(advice)[0]
            assert checking.about_command(words[1:], True) is None, f"{line} advises {advice}"
        if "--status up.json" in line.text:
            parts = wait_for(lambda: json.loads((shop.folder / "up.json").read_text())["parts"], "the status")
            assert {part["name"] for part in parts} == {*(f"broker {n}" for n in wanted), "pipeline"}
    return log
