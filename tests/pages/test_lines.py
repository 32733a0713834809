"""Every command line on a page runs: those that ask a grid, and those of brokers; see the others in this folder."""

import contextlib
import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from net_thread import NetThread
from pages import checking, playing
from pages.playing import Typed, Workshop, lines_of
from pages.reading import pages
from sensorgrid.cli.main import app
from sensorgrid.model.errors import SensorGridError
from servers import listens, running, wait_for

HANDLED = {
    "test_lines.py": [
        (),
        ("explain",),
        ("doctor",),
        ("status",),
        ("query",),
        ("broker",),
        ("network", "show"),
        ("network", "leave"),
        ("network", "rebalance"),
        ("mosquitto",),
        ("reference",),
        ("sensors",),
        *[("operator", name) for name in ("watch", "add", "list", "remove")],
    ],
    "test_lines_up.py": [("up",)],
    "test_lines_pipeline.py": [
        ("pipeline", name)
        for name in ("run", "backfill", "replay", "land", "status", "map", "export", "tidy", "verify")
    ]
    + [("operator", "explain"), ("operator", "backfill")],
}
"""which file runs the lines of which command"""

BROKERS = """
[grid]
shape = [64, 32]
tick = "10min"
region_digits = 2
[[sources]]
kind = "synthetic"
[network]
brokers = 4
"""
HOUR_S = 3600
GRID = {
    "shape": [64, 32],
    "tick": HOUR_S,
    "attributes": ["air_temperature", "eastward_wind", "northward_wind"],
}
MARCH = 1772323200 // HOUR_S
"""the tick of 2026-03-01T00:00Z, whose day the page asks for"""


def test_no_line_is_forgotten() -> None:
    handled = [names for each in HANDLED.values() for names in each]
    for line in playing.all_lines():
        elsewhere = [pattern for pattern in playing.ELSEWHERE if re.match(pattern, line.text)]
        assert elsewhere or line.names in handled, f"{line.places[0]}: {line}: found nobody who runs it"


def test_no_substitution_is_left_from_another_time() -> None:
    lines = [line.text for line in playing.all_lines()]
    files = "".join(path.read_text() for path in playing.EXAMPLES.glob("*.toml"))
    for pattern in playing.ELSEWHERE:
        assert any(re.match(pattern, text) for text in lines), f"found no line for {pattern}"
    for usual in playing.SMALLER:
        assert usual in files, f"found no example with {usual}"
    for usual in playing.REPLACED:
        assert any(usual in text for text in lines), f"found no line with {usual}"


# Benchmarks and experiments: up to the work itself, which runs elsewhere with --quick


class Reached(BaseException):
    """The work would begin."""


def sweeps() -> Iterator[tuple[str, list[str]]]:
    """Lines of benchmarks and experiments, and options of them that stand alone."""
    for page in [*pages(), checking.helps()]:
        lines = checking.named_on(page)
        for line in lines:
            for words in checking.parts_of(line.text):
                if words[0] == "sensorgrid" and words[1] in ("bench", "experiment") and words[2:3]:
                    yield str(line.place), words[1:]
        for span in page.spans:
            if span.text.startswith("--"):
                before = [line for line in lines if line.place.number <= span.place.number]
                words = checking.with_options(span.text.split(), [*reversed(before), *lines])
                if words[0] == "sensorgrid" and words[1] in ("bench", "experiment"):
                    yield str(span.place), list(words[1:])


@pytest.mark.parametrize(
    "words", [list(words) for words in sorted({tuple(w) for _, w in sweeps()})], ids=" ".join
)
def test_what_a_page_asks_of_a_benchmark_or_an_experiment_is_taken(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    (tmp_path / "networks.json").write_text(topology())
    (tmp_path / "docs").mkdir()
    checkout = tmp_path / "here" / "src" / "sensorgrid" / "pipeline"
    checkout.mkdir(parents=True)
    (checkout / "jobs.py").touch()
    monkeypatch.chdir(tmp_path)

    def reached(*_: Any, **__: Any) -> Any:
        raise Reached

    if words[1] == "all":
        monkeypatch.setattr("sensorgrid.claims.running.run", reached)
    elif words[0] == "bench":
        module = importlib.import_module(f"sensorgrid.benchmarks.{words[1]}")
        for name in {"run", "flood"} & set(dir(module)):
            monkeypatch.setattr(module, name, reached)
    else:
        monkeypatch.setattr("sensorgrid.experiments.sweep.sweep", reached)
        monkeypatch.setattr(
            "sensorgrid.benchmarks.truth.data_folder", lambda given, *_: Path(given or tmp_path)
        )
        monkeypatch.setattr("sensorgrid.experiments.moving.cases", reached)
    for place, word in enumerate(words):
        if words[place - 1] == "--topology":  # any file of networks: the page's own, under a name for any
            words[place] = word.replace("grid.toml", "networks.json")
            if word.startswith("$SENSORGRID_DATA/"):
                words[place] = "networks.json:one"
    try:
        app(words, standalone_mode=False)
    except Reached:
        return
    except SensorGridError as error:
        pytest.fail(f"{' '.join(words)}: {error}")
    pytest.fail(f"{' '.join(words)}: ended without any work")


def topology() -> str:
    """The network that a page shows, under the name that stands for any."""
    (block,) = [
        b
        for page in pages()
        if page.name == "docs/relays-results.md"
        for b in page.blocks
        if b.language == "json"
    ]
    return json.dumps([one | {"name": "one"} for one in json.loads(block.text)])


# Lines that ask


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("shop"), BROKERS)


def told(lines: list[Typed]) -> list[Any]:
    return [pytest.param(line, id=str(line)) for line in lines]


@pytest.mark.long
@pytest.mark.parametrize("line", told(lines_of()))
def test_the_command_alone_tells_of_itself(line: Typed, shop: Workshop) -> None:
    said = shop.run(line)

    assert all(names[0] in said for names in checking.commands())


@pytest.mark.long
@pytest.mark.parametrize("line", told(lines_of("explain")))
def test_explain_says_what_a_query_costs(line: Typed, shop: Workshop, tmp_path: Path) -> None:
    with contextlib.ExitStack() as nets:
        if "--connect" in line.text:
            shop.url = nets.enter_context(NetThread(tmp_path, grid=GRID)).url()
        said = shop.run(line)
    assert "points per tick" in said
    assert ("of the query already" in said) == ("--connect" in line.text)


@pytest.mark.long
@pytest.mark.parametrize("line", told(lines_of("doctor")))
def test_the_doctor_finds_nothing_wrong(line: Typed, shop: Workshop) -> None:
    said = shop.run(line)

    assert re.search(r"^ok +Java", said, re.M)
    assert ("broker 0" in said) == (".toml" in line.text)


@pytest.mark.parametrize("line", told(lines_of("reference")))
def test_the_reference_is_written_where_it_shall_be(line: Typed, shop: Workshop) -> None:
    (page,) = re.findall(r"--page (\S+)", line.text)
    (shop.folder / page).parent.mkdir(exist_ok=True)

    shop.run(line)

    assert "## Units" in (shop.folder / page).read_text()


@pytest.mark.long
@pytest.mark.parametrize("line", told(lines_of("mosquitto")))
def test_mosquitto_is_started_as_the_page_says(line: Typed, shop: Workshop) -> None:
    if missing := playing.needed_programs(line.text):
        pytest.skip(f"not installed: {missing}")
    with shop.started(line, r"running"):
        pass


@pytest.mark.long
@pytest.mark.parametrize("line", told(lines_of("broker")))
def test_a_broker_runs_until_it_is_told_to_stop(line: Typed, shop: Workshop, opened: Workshop) -> None:
    if "--join" in line.text:
        with opened.started(line, r"listening broker=", r"roster version=", stop=signal.SIGTERM) as log:
            pass
        assert re.search(r" left broker=\d+", log.read_text())
        return
    (number,) = re.findall(r"--id (\d+)", shop.typed(line))
    with shop.started(line, rf"listening broker={number}", stop=signal.SIGTERM) as log:
        pass
    assert f"stopped broker={number}" in log.read_text()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """An open network of four brokers that run elsewhere."""
    from sensorgrid.configuration.network import read_network

    shop = Workshop(tmp_path_factory.mktemp("open"), BROKERS + "open = true\n")
    network = read_network(shop.folder / "grid.toml")
    shop.url = network.addresses[min(network.addresses)].url
    home = tmp_path_factory.mktemp("brokers")
    with contextlib.ExitStack() as stack:
        for number, address in network.addresses.items():
            config = str(shop.folder / "grid.toml")
            command = (sys.executable, "-m", "sensorgrid", "broker", config, "--id", str(number))
            stack.enter_context(running(*command, log=home / f"{number}.log", cwd=home))
            wait_for(lambda port=address.port: listens(port), f"broker {number} to listen")
        yield shop


@pytest.mark.long
@pytest.mark.parametrize(
    "line", told([line for name in ("show", "rebalance", "leave") for line in lines_of("network", name)])
)
def test_an_open_network_is_shown_and_changed(line: Typed, opened: Workshop) -> None:
    said = opened.run(line)

    expected = {
        "show": "who owns what",
        "rebalance": r"even|change hands",
        "leave": r"broker 3 (leaves|is leaving)",
    }
    assert re.search(expected[line.names[1]], said)


@pytest.mark.long
@pytest.mark.parametrize("line", told(lines_of("status")))
def test_status_tells_of_the_brokers_of_a_file(line: Typed, shop: Workshop) -> None:
    import tomllib

    from sensorgrid.configuration.network import network_of

    file = next(word for word in shop.typed(line).split() if word.endswith(".toml"))
    content = tomllib.loads((shop.folder / file).read_text())
    with contextlib.ExitStack() as nets:
        net = nets.enter_context(Served(shop.folder, network_of(content, file, shop.folder)))
        said = shop.run(line)
    assert len(re.findall(r"^\s*\d+ ", said, re.M)) == len(net.net.network.addresses), said


@pytest.mark.long
@pytest.mark.parametrize("line", told(lines_of("sensors")))
def test_sensors_are_asked_for(line: Typed, shop: Workshop, tmp_path: Path) -> None:
    with NetThread(tmp_path, grid=GRID) as net:
        shop.url = net.url()
        said = shop.run(line)
    assert "0 of 0 sensors" in said
    for out in re.findall(r"--geojson (\S+)", line.text):
        assert (shop.folder / out).exists()


class Served(NetThread):
    """The brokers of a configuration, in a thread."""

    def __init__(self, folder: Path, network: Any) -> None:
        from nets import Net

        super().__init__(folder, 1)
        self.net = Net(network)


@pytest.mark.long
@pytest.mark.parametrize("line", told(lines_of("query")))
def test_a_query_streams_and_ends_in_good_order(line: Typed, shop: Workshop, tmp_path: Path) -> None:
    if missing := playing.needed_programs(line.text):
        pytest.skip(f"not installed: {missing}")
    with NetThread(tmp_path, grid=GRID) as net:
        shop.url = net.url()
        past, ends = "--from" in line.text, re.search("--ticks|--until", line.text)
        net.net.tick = MARCH if past else int(time.time()) // HOUR_S
        if past:
            net.publish(24)
        else:
            net.publish_soon(0.2, 2000)
        if ends:
            said = shop.run(line)
            assert past or "24 ticks" in said
            assert not past or len(re.findall('"time"', said)) == 24, said
        else:
            with shop.started(line, r"connected to", r"(?m)^\d{4}-.* points", ends=130) as log:
                pass
            assert "stopped after" in log.read_text()
        for out in re.findall(r"--out (\S+)", line.text):
            assert (shop.folder / out).exists()


@pytest.mark.long
def test_operators_are_named_watched_and_forgotten(shop: Workshop) -> None:
    from sensorgrid.configuration.network import read_network

    network = read_network(shop.folder / "grid.toml")
    with Served(shop.folder, network) as net:
        shop.url = net.url()
        net.net.tick = int(time.time() // network.grid.tick)
        net.publish_soon(0.2, 2000)
        for line in lines_of("operator", "add"):
            assert "is known" in shop.run(line)
        for line in lines_of("operator", "list"):
            assert "mean(air_temperature)" in shop.run(line)
        for line in lines_of("operator", "watch"):
            with shop.started(line, r"watching at", r"(?m)^\d{4}-.* covered", ends=130) as log:
                pass
            assert "stopped after" in log.read_text()
        for line in lines_of("operator", "remove"):
            assert "is forgotten" in shop.run(line)
