"""`sensorgrid network`: what it shows of an open network that runs, and what it changes."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from command import call
from runtime.test_open import CONFIG, open_network
from sensorgrid.model.ids import PeerId
from servers import free_port, wait_for


def test_it_shows_who_is_there_and_lets_one_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, config = partial(call, monkeypatch, capsys, "network"), tmp_path / "grid.toml"
    with open_network(tmp_path, 3) as net:
        wait_for(lambda: net.store.newest() is not None, "the first roster")

        shown = command("show", net.url(0)).stdout

        def everybody_answers() -> Any:
            told = json.loads(command("show", config, "--json", "-").stdout)
            return told if all(row["answers"] for row in told["rows"]) else None

        told = wait_for(everybody_answers, "an answer of every broker")
        left = command("leave", config, 1)
        net.processes[1].wait(90)
        dry = command("rebalance", config, "--dry-run")

        assert "roster 1" in shown
        assert all(net.url(number) in shown for number in (0, 2))
        assert [row["id"] for row in told["rows"]] == [0, 1, 2]
        assert sum(row["regions"] for row in told["rows"]) == 1 << net.network.grid.region_digits
        assert "broker 1 leaves (roster 2)" in left.stdout
        assert PeerId(1) not in net.roster.by_id
        assert net.processes[1].returncode == 0
        assert (dry.returncode, dry.stderr) == (0, "")
        version = net.roster.version
        again = command("rebalance", config)
        assert (net.roster.version > version) == ("change hands" in again.stdout)


def test_mistakes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, config = partial(call, monkeypatch, capsys), tmp_path / "grid.toml"
    config.write_text(CONFIG + f'[[network.brokers]]\nid = 0\nurl = "ws://127.0.0.1:{free_port()}"\n')
    closed, nobody = tmp_path / "closed.toml", f"ws://127.0.0.1:{free_port()}"
    closed.write_text("[network]\nbrokers = 2\n")

    for words, message in (
        (("network", "leave", config, 1), "found no roster, expected one: has a broker of"),
        (("network", "leave", closed, 1), "expected open = true in [network]"),
        (("network", "show", nobody), "found nobody who listens there"),
        (("broker", "--join", nobody), "found nobody who listens there"),
        (("broker",), "found neither, expected either FILE or --join URL"),
        (("broker", closed, "--relay"), "--relay: found it beside a file, expected --join URL with it"),
    ):
        done = command(*words)
        assert done.returncode == 2
        assert message in done.stderr
