"""The demo as people start it: from the command line, to its verdict or to Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FIELDS = (
    "ticks", "clients", "points_delivered", "missing", "duplicated", "wrong", "bytes_between_brokers",
    "bytes_without_sharing", "saving", "delay_p50_s", "delay_p99_s", "killed", "recovered_s", "joined", "serves_s",
    "operator_ticks", "operator_wrong", "operator_saving",
)  # fmt: skip


def demo(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    temporary = folder / "temporary"
    temporary.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "sensorgrid", "demo", *arguments],
        cwd=folder, env=os.environ | {"TMPDIR": str(temporary)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def processes_of(folder: Path) -> list[str]:
    """Command lines that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


@pytest.mark.long
def test_the_demo_ends_with_a_verdict_a_report_and_nothing_left(tmp_path: Path) -> None:
    process = demo(tmp_path, "--seconds", "5", "--json", "demo.json", "--report", "demo.html")
    out, err = process.communicate(timeout=900)

    assert process.returncode == 0, out + err
    result = json.loads((tmp_path / "demo.json").read_text())
    assert tuple(result) == FIELDS
    assert (result["missing"], result["duplicated"], result["wrong"], result["clients"]) == (0, 0, 0, 24)
    assert result["ticks"] >= 3
    assert result["points_delivered"] > 100_000
    assert result["recovered_s"] > 0
    assert result["operator_ticks"] >= 3
    assert result["operator_wrong"] == 0
    assert result["bytes_between_brokers"] < result["bytes_without_sharing"]
    assert "All checks hold" in (tmp_path / "demo.html").read_text()
    assert "exactly once" in out
    assert not list((tmp_path / "temporary").glob("sensorgrid-demo-*"))
    assert processes_of(tmp_path) == []


def test_control_c_leaves_nothing_behind(tmp_path: Path) -> None:
    process = demo(tmp_path)
    deadline = time.monotonic() + 120
    assert process.stderr is not None
    while "brokers are up" not in process.stderr.readline():
        assert time.monotonic() < deadline
        assert process.poll() is None

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == 130
    assert not list((tmp_path / "temporary").glob("sensorgrid-demo-*"))
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--report", "nowhere/demo.html"), "found no folder nowhere"),
        (("--folder", "full"), "expected an empty or new folder"),
    ],
)
def test_mistakes_are_told_before_the_work(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()

    process = demo(tmp_path, *arguments)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 2
    assert words in err.replace("\n", " ")
