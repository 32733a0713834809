"""`sensorgrid status`: what brokers say of themselves, for people and programs."""

import json
import subprocess
import sys
from pathlib import Path

from net_thread import NetThread
from servers import PATIENCE_S


def status(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "sensorgrid", "status", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_every_broker_that_is_asked_has_a_row(tmp_path: Path) -> None:
    with NetThread(tmp_path) as net:
        net.publish(2)
        urls = [net.net.url(0), net.net.url(1)]

        shown, written = status(*urls), status(*urls, "--json", "-")

    assert shown.returncode == written.returncode == 0
    assert "to brokers" in shown.stdout
    rows = json.loads(written.stdout)["rows"]
    assert [row["id"] for row in rows] == [0, 1]
    assert all(row["published"] > 0 and row["clients"] == 0 for row in rows)


def test_a_grids_file_stands_for_all_its_brokers(tmp_path: Path) -> None:
    config = tmp_path / "grid.toml"
    with NetThread(tmp_path) as net:
        brokers = [f'[[network.brokers]]\nid = {n}\nurl = "{net.net.url(n)}"\n' for n in (0, 1)]
        config.write_text('lake = "lake"\n[grid]\nshape = [64, 32]\n' + "".join(brokers))

        written = status(str(config), "--json", "-")

    found = json.loads(written.stdout)
    assert [row["id"] for row in found["rows"]] == [0, 1]
    assert found["parameters"] == [f"lake {tmp_path / 'lake'}: found no plan, so nothing was gridded yet"]


def test_a_broker_that_is_not_there_is_told_beside_those_that_are(tmp_path: Path) -> None:
    nowhere = "ws://127.0.0.1:9"
    with NetThread(tmp_path) as net:
        urls = [net.net.url(0), nowhere, net.net.url(1)]

        shown, written = status(*urls), status(*urls, "--json", "-")

    assert shown.returncode == written.returncode == 1
    assert "to brokers" in shown.stdout
    assert f"{nowhere} does not answer" in shown.stdout
    result = json.loads(written.stdout)
    assert [row["id"] for row in result["rows"]] == [0, 1]
    assert [one["url"] for one in result["silent"]] == [nowhere]
    assert "Traceback" not in shown.stderr + written.stderr


def test_a_file_that_is_not_there_is_no_broker() -> None:
    result = status("nofile.toml")

    assert result.returncode == 2
    assert result.stderr.startswith("error: nofile.toml: found no such file")
