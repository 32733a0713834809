"""The examples: every script against fields that are known, at once; and, long, for real.

For real means `sensorgrid up` with the example's own file, its sensors, Spark and brokers as processes, with ticks
of a few seconds instead of minutes.
"""

import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from net_thread import NetThread
from sensorgrid.model.grid import Grid
from sensorgrid.model.names import ERROR
from sensorgrid.pipeline.sources.synthetic_weather import Weather
from servers import free_port, mosquitto, needs_mosquitto, running, wait_for

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
DATA = Path(os.environ.get("SENSORGRID_DATA", ROOT.parent / "shared" / "data"))
ASOS = DATA / "asos-us-1993-03-12" / "obs.csv.gz"
Axes = list[np.ndarray]
COMMAND = (sys.executable, "-m", "sensorgrid")
DEADLINE_S = 400
"""for anything: only a broken example reaches it"""
TICK_S = 6
PACE = 300
"""seconds of weather in a second: half an hour in a tick, and the storm lasts for fourteen minutes of tests"""

PLACE = r"([\d.]+)°([NS]) +([\d.]+)°([EW])"


def free_ports(count: int) -> int:
    """The first of some ports in a row on which nobody listens."""
    for _ in range(100):
        first = free_port()
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return first
    raise AssertionError("found no ports in a row")


def environment(example: str, folder: Path, first_port: int, **settings: Any) -> dict[str, str]:
    """The example's own file with other settings: those of `[[sources]]` by name, any other as the file spells it."""
    content = tomllib.loads((EXAMPLES / example).read_text())
    (source,) = content["sources"]
    sources = [source | settings.pop("source", {})]
    values = {"lake": str(folder / "lake"), "sources": sources, "network__port": first_port} | settings
    values |= {"spark__master": "local[2]", "spark__driver_memory": "1g"}
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    return os.environ | {f"SENSORGRID_{key.upper()}": text for key, text in texts.items()}


@contextmanager
def grid_up(example: str, folder: Path, env: dict[str, str], *arguments: str) -> Iterator[str]:
    """`sensorgrid up` of an example; the url of its first broker. Nothing of it may be left in the end."""
    log, status = folder / "up.log", folder / "status.json"
    command = (*COMMAND, "up", str(EXAMPLES / example), "--status", str(status), *arguments)
    with log.open("wb") as out:
        up = subprocess.Popen(command, stdout=out, stderr=out, env=env)
    try:

        def url() -> str | None:
            assert up.poll() is None, log.read_text()[-4000:]
            found = re.search(r"connect: (ws://[\d.:]+)", log.read_text())
            return found and found[1]

        yield wait_for(url, f"brokers that listen, see {log}", DEADLINE_S)
        members = [part["pid"] for part in json.loads(status.read_text())["parts"]]
    finally:
        up.send_signal(signal.SIGTERM)
        try:
            up.wait(150)
        except subprocess.TimeoutExpired:
            up.kill()
            raise
    assert up.returncode == 0, log.read_text()[-4000:]
    assert members
    wait_for(lambda: not any(map(lives, members)), f"the end of {members}")


def lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


def python(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, str(EXAMPLES / name), *arguments)


def lines_of(name: str, *arguments: str) -> list[str]:
    """What a script prints; it must end well."""
    done = subprocess.run(python(name, *arguments), capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def place_of(line: str) -> tuple[float, float]:
    """Longitude and latitude that a line names first."""
    found = re.search(PLACE, line)
    assert found is not None, line
    return (1 if found[4] == "E" else -1) * float(found[3]), (1 if found[2] == "N" else -1) * float(found[1])


def seconds_of(line: str) -> float:
    return datetime.fromisoformat(line.split("  ")[0]).timestamp()


def test_the_river_rises_after_the_rain_has_begun() -> None:
    lines = lines_of("river.py", "--hours", "24")

    active = [number for number, line in enumerate(lines) if " m " in line]
    assert len(lines) == 24
    assert active == list(range(active[0], active[-1] + 1))
    assert 5 < active[0] < 10 < 16 < active[-1] < 22
    levels = [float(lines[number].split()[1]) for number in active]
    assert max(levels) > levels[0] + 0.02
    assert "inactive: when does not hold" in lines[0]


@pytest.mark.long
def test_the_air_is_calculated_alike_in_one_process_and_by_spark(tmp_path: Path) -> None:
    text = (EXAMPLES / "air.toml").read_text().replace("[256, 128]", "[64, 32]").replace("1500", "200")
    text = text.replace("region_digits = 4", "region_digits = 2")
    config = tmp_path / "air.toml"
    config.write_text(text.replace("../lakes", "lakes").replace("T06", "T02"))
    dust = "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air"
    operator = f"percentile({dust}, 0.9, 'plain')"

    subprocess.run(
        [*COMMAND, "pipeline", "backfill", str(config)], check=True, timeout=DEADLINE_S, capture_output=True
    )
    lines = lines_of("air.py", "--config", str(config))
    spark = subprocess.run(
        [*COMMAND, "operator", "backfill", str(config), operator, "--json", "-"],
        check=True, timeout=DEADLINE_S, capture_output=True, text=True,
    )  # fmt: skip

    rows = json.loads(spark.stdout)["rows"]
    assert len(lines) == len(rows) >= 4
    for line, row in zip(lines, rows, strict=True):
        assert f"plain {1e9 * row['value']:.0f} µg/m³" in line
        assert line.startswith(row["time"][:16])


@pytest.mark.parametrize("name", ["hurricane", "forecast", "urban", "storm"])
def test_without_a_grid_an_example_says_so_in_a_line(name: str, tmp_path: Path) -> None:
    nowhere = f"ws://127.0.0.1:{free_port()}"

    done = subprocess.run(
        python(f"{name}.py", "--url", nowhere), capture_output=True, text=True, timeout=120, cwd=tmp_path
    )

    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name}: network: found no broker that answers, expected one at {nowhere}")


# What the lines of an example must say, whatever grid it has met


def check_plume(lines: list[str], tick_s: float) -> None:
    """Eight ticks of smoke, from the fire of urban_sensors.py, and away with the wind."""
    print(*lines, sep="\n")
    smoke = [line for line in lines if "no smoke" not in line]
    pattern = r"at (\d+) m, (\d+) m  wind (\S+) (\S+) m/s .* around (\d+) m, (\d+) m"
    said = np.array([re.search(pattern, line).groups() for line in smoke], float)  # type: ignore[union-attr]
    assert len(said) == 8
    source, wind, plume = said[:, :2], said[:, 2:4], said[:, 4:]
    assert np.hypot(*(source - (3800, 2600)).T).max() < 1500, "the fire of urban_sensors.py"
    drift, towards = (plume - source.cumsum(axis=0) / np.arange(1, 9)[:, None])[-1], wind.mean(axis=0)
    downwind = drift @ towards / np.hypot(*towards)
    assert 2 < np.hypot(*towards) < 5
    assert downwind > 0.9 * np.hypot(*drift), (towards, drift)
    # Released evenly over seven ticks: on average they have been under way for half of them.
    assert downwind == pytest.approx(np.hypot(*towards) * tick_s * 7 / 2, rel=0.4)


def check_track(url: str, shift: int, tick_s: int, folder: Path) -> None:
    """The storm is found, and followed for six ticks, where it really is."""
    lines = lines_of("hurricane.py", "--url", url, "--ticks", "6", "--plot", str(folder / "storm.png"))

    print(*lines, sep="\n")
    found, *track = [line for line in lines if "no storm" not in line]
    assert "found among" in found
    assert len(track) == 6
    assert [seconds_of(b) - seconds_of(a) for a, b in pairwise(track)] == [tick_s] * 5
    assert seconds_of(track[0]) == seconds_of(found)
    for line in track:
        storms = Weather(SEED).cyclones((seconds_of(line) + tick_s - shift) * PACE)
        true = max((depth, x, y) for x, y, depth in storms)[1:]
        assert np.hypot(*np.subtract(place_of(line), true)) < 5, f"{line}, expected {true}"
        hectopascals, speed = (float(re.search(rf"([\d.]+) {unit}", line)[1]) for unit in ("hPa", "m/s"))  # type: ignore[index]
        assert 930 < hectopascals < 1025  # as gridded from stations: a storm between them looks weaker
        assert 12 < speed < 70
    moves = [np.hypot(*np.subtract(place_of(b), place_of(a))) for a, b in pairwise(track[1:])]
    assert max(moves) < 4, track  # a point of the fine grid (2.8°) and what the storm goes in a tick
    assert track[0].endswith("new box")
    assert (folder / "storm.png").stat().st_size > 10_000


def check_forecast(url: str, start_s: float, folder: Path) -> None:
    """Three ticks and three more are six: to the last bit."""
    start = datetime.fromtimestamp(start_s).astimezone().isoformat()
    parts, whole = folder / "parts.npz", folder / "whole.npz"

    first = lines_of("forecast.py", "--url", url, "--ticks", "3", "--state", str(parts), "--start", start)
    second = lines_of("forecast.py", "--url", url, "--ticks", "3", "--state", str(parts))
    at_once = lines_of("forecast.py", "--url", url, "--ticks", "6", "--state", str(whole), "--start", start)

    ticks = [int(line.split("tick ")[1].split()[0]) for line in at_once]
    assert [int(line.split("tick ")[1].split()[0]) for line in first + second] == ticks
    assert ticks == list(range(ticks[0], ticks[0] + 6))
    with np.load(parts) as a, np.load(whole) as b:
        assert sorted(a) == sorted(b)
        for name in a:
            assert np.array_equal(a[name], b[name], equal_nan=True), (
                f"{name}: {np.argwhere(a[name] != b[name])}"
            )
        assert a["local_value"].shape[0] > a["world_value"].shape[0] // 2
        assert a["world_value"].shape == (8, 16), "the coarsest that is at most ten times as wide"
        assert 200 < a["world_value"].min() < a["world_value"].max() < 330  # a polar night has 228
    errors = [float(text) for line in at_once[1:] for text in re.findall(r"off by ([\d.]+) K", line)]
    assert 0 < max(errors) < 5


# A city, fed by mosquitto


@pytest.mark.long
@needs_mosquitto
def test_smoke_leaves_where_the_air_is_worst_and_goes_with_the_wind(tmp_path: Path) -> None:
    port = free_port()
    source = {
        "port": port,
        "mapping": str(EXAMPLES / "urban_mapping.toml"),
        "landing": str(tmp_path / "landing"),
        "client_id": "sensorgrid-urban",
    }
    env = environment(
        "urban.toml",
        tmp_path,
        free_ports(2),
        source=source,
        grid__tick="4s",
        timing__settle="1s",
        timing__max_age="20s",
        spark__trigger="0.5s",
    )
    sensors = python("urban_sensors.py", "--port", str(port), "--every", "2")
    with (
        mosquitto(tmp_path, port),
        running(*sensors, log=tmp_path / "sensors.log"),
        grid_up("urban.toml", tmp_path, env) as url,
    ):
        lines = lines_of("urban.py", "--url", url, "--ticks", "8")

    check_plume(lines, 4)


# A storm, fed by a file


@pytest.mark.long
@pytest.mark.skipif(not ASOS.exists(), reason=f"no data at {ASOS}; set SENSORGRID_DATA")
def test_the_storm_of_the_century_begins_over_the_rio_grande(tmp_path: Path) -> None:
    env = environment("storm.toml", tmp_path, free_ports(2), source={"path": str(ASOS)})
    replay = (*COMMAND, "pipeline", "replay", str(EXAMPLES / "storm.toml"), "--speed", "inf")
    with grid_up("storm.toml", tmp_path, env, "--no-pipeline") as url:
        waiting = subprocess.Popen(python("storm.py", "--url", url), stdout=subprocess.PIPE, text=True)
        try:
            done = subprocess.run(replay, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
            lines = waiting.communicate(timeout=60)[0].splitlines()
        finally:
            waiting.kill()
        again = lines_of("storm.py", "--url", url)

    print(*lines, sep="\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert waiting.returncode == 0
    assert again == lines, "brokers keep what was sent"
    assert [line[:17] for line in lines] == [f"1993-03-12T{hour:02}:00Z" for hour in range(6, 17)]
    pressure = {hour: float(line.split()[1]) for hour, line in zip(range(6, 17), lines, strict=True)}
    deepest = min(pressure, key=pressure.__getitem__)
    assert 9 <= deepest <= 13
    assert 1000 < pressure[deepest] < 1006, "Brownsville and McAllen reported 1002 at ten"
    for hour in range(7, 14):
        longitude, latitude = place_of(lines[hour - 6])
        assert -100 < longitude < -95, lines[hour - 6]
        assert 25 < latitude < 29, lines[hour - 6]


# A synthetic earth: the hurricane and the forecast


SEED = 549
STORM_BEGINS_S = 1_784_145_600
"""of the weather's own clock: from here on, for 70 hours, this world has one tropical storm, by far the strongest"""


@pytest.fixture(scope="module")
def weather(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """The url of a running world, and by how much it is later than its own clock: the same world at any time."""
    folder, shift = tmp_path_factory.mktemp("weather"), int(time.time()) // TICK_S * TICK_S
    shift -= STORM_BEGINS_S // PACE
    options = tomllib.loads((EXAMPLES / "weather.toml").read_text())["sources"][0]["options"]
    options |= {"seed": SEED, "tick": TICK_S, "pace": PACE, "shift": shift, "delay": 0.3, "lateness": 0}
    options |= {"late": 0, "copies": 0}  # nothing is revised: who asks later gets the same
    env = environment(
        "weather.toml",
        folder,
        free_ports(4),
        source={"options": options},
        grid__shape=[128, 64],
        grid__tick=f"{TICK_S}s",
        timing__settle="0.5s",
        timing__lateness="0s",
        timing__max_age=f"{3 * TICK_S}s",
        spark__trigger="0.5s",
    )
    with grid_up("weather.toml", folder, env) as url:
        yield url, shift


@pytest.mark.long
def test_the_hurricane_is_found_in_the_coarse_world_and_followed_by_the_fine_box(
    weather: tuple[str, int], tmp_path: Path
) -> None:
    url, shift = weather

    check_track(url, shift, TICK_S, tmp_path)


@pytest.mark.long
def test_a_forecast_goes_on_exactly_where_it_was(weather: tuple[str, int], tmp_path: Path) -> None:
    url, _ = weather

    check_forecast(url, time.time() - 20, tmp_path)


# The same scripts on grids without Spark: fields as the weather is, published at once


@contextmanager
def published(folder: Path, grid: dict[str, Any], field: Callable[[Axes, str, float], Any]) -> Iterator[str]:
    """The url of two brokers whose fields are known; one tick in ten comes before anybody asks."""

    @cache  # the regions of a tick ask one after the other
    def truth(grid: Grid, attribute: int, tick: int) -> np.ndarray:
        name = grid.attributes[attribute]
        west, south, east, north = grid.extent
        x = west + (np.arange(grid.shape[0]) + 0.5) * (east - west) / grid.shape[0]
        y = south + (np.arange(grid.shape[1]) + 0.5) * (north - south) / grid.shape[1]
        shape = (len(y), len(x))
        if name.endswith(ERROR):
            return np.full(shape, 0.5, np.float32)
        values = field(np.meshgrid(x, y), name, (tick + 1) * grid.tick)
        return np.broadcast_to(np.asarray(values, np.float32), shape)

    with NetThread(folder, grid=grid, truth=truth) as net:
        net.net.tick = int(time.time() / grid["tick"]) - 10
        net.publish(10)
        net.publish_soon(0.1, 300)
        yield net.url()


@pytest.fixture
def calm_weather(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """The url and the shift of the same world as above, seen without stations."""
    shift = int(time.time()) - STORM_BEGINS_S // PACE - 20

    def field(axes: Axes, name: str, now_s: float) -> Any:
        return Weather(SEED).truth((name,), *axes, np.float64((now_s - shift) * PACE))[name]

    attributes = ["air_temperature", "air_pressure_at_mean_sea_level", "eastward_wind", "northward_wind"]
    grid = {"shape": [128, 64], "tick": 1.0, "resolution_bits": 4, "attributes": attributes}
    with published(tmp_path, grid, field) as url:
        yield url, shift


def test_the_hurricane_example_follows_a_known_storm(calm_weather: tuple[str, int], tmp_path: Path) -> None:
    url, shift = calm_weather

    check_track(url, shift, 1, tmp_path)


def test_the_forecast_example_goes_on_exactly_where_it_was(
    calm_weather: tuple[str, int], tmp_path: Path
) -> None:
    url, _ = calm_weather

    check_forecast(url, time.time() - 5, tmp_path)


def test_the_urban_example_carries_smoke_with_the_wind(tmp_path: Path) -> None:
    city = runpy.run_path(str(EXAMPLES / "urban_sensors.py"))
    noon = 1_784_030_400  # the wind of this example veers with the time of day

    def field(axes: Axes, name: str, now_s: float) -> Any:
        if "wind" in name:
            return city["wind"](*axes, noon)[name == "northward_wind"]
        return city["dust"](*axes, noon) * 1e-9

    content = tomllib.loads((EXAMPLES / "urban.toml").read_text())["grid"]
    grid = content | {"tick": 1.0, "resolution_bits": 2}
    with published(tmp_path, grid, field) as url:
        lines = lines_of("urban.py", "--url", url, "--ticks", "8")

    check_plume(lines, 1)


def test_the_storm_example_names_the_deepest_low_of_every_hour(tmp_path: Path) -> None:
    begin = datetime.fromisoformat("1993-03-12T06:00Z").timestamp()

    def truth(grid: Grid, attribute: int, tick: int) -> np.ndarray:
        y, x = np.indices((grid.shape[1], grid.shape[0]))
        hour = tick - int(begin / 3600)
        low = np.exp(-((x - 40 - hour) ** 2 + (y - 20) ** 2) / 20)
        base = 101_500 - 1_000 * low if "pressure" in grid.attributes[attribute] else 5 * low
        return np.asarray(base, np.float32)

    content = tomllib.loads((EXAMPLES / "storm.toml").read_text())["grid"]
    grid = content | {"shape": [64, 32], "tick": 3600.0, "resolution_bits": 2, "region_digits": 2}
    with NetThread(tmp_path, grid=grid, truth=truth) as net:
        net.net.tick = int(begin / 3600)
        net.publish(12)
        lines = lines_of("storm.py", "--url", net.url())

    assert [line[:17] for line in lines] == [f"1993-03-12T{hour:02}:00Z" for hour in range(6, 17)]
    assert {line.split()[1] for line in lines} == {"1005.0"}
    longitudes = [place_of(line)[0] for line in lines]
    step = (content["extent"][2] - content["extent"][0]) / 64
    assert np.diff(longitudes) == pytest.approx([step] * 10, abs=0.02)  # a point further east every hour
