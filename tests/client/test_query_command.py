"""`sensorgrid query` as a program of its own, against real brokers."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from rich.console import Console

import sensorgrid
from command import call
from net_thread import NetThread
from sensorgrid.cli import query as query_command
from sensorgrid.cli.query_view import FieldPicture, LiveView, Snapshot, line, row, snapshot, sparkline
from servers import PATIENCE_S

GRID = {"attributes": ["air_temperature", "wind_speed"]}
COMMAND = [sys.executable, "-c", "from sensorgrid.cli.main import run; run()", "query"]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(sensorgrid.__file__).parents[1])}


def query(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
        check=False,
        env=ENVIRONMENT,
    )


def test_lines_json_and_files_of_a_stream(tmp_path: Path) -> None:
    past = ("--from", "1970-01-01T00:00Z", "--until", "1970-01-01T00:00:04Z")
    with NetThread(tmp_path, grid=GRID) as net:
        net.publish(4)
        lines = query("--connect", net.url(), *past, "--resolution", "1,1,1/2")
        many = query(
            "--connect", net.url(), *past, "--attribute", "air_temperature,wind_speed", "--json", "-"
        )
        file = query(
            "--connect", net.url(), *past, "--bbox", "-45,-45,45,45", "--out", str(tmp_path / "out.nc")
        )
        again = query("--connect", net.url(), *past, "--bbox", "0,0,45,45", "--out", str(tmp_path / "out.nc"))

    assert lines.returncode == 0, lines.stderr
    assert [re.findall(r"tick (\d+)", text) for text in lines.stdout.splitlines()] == [["0"], ["2"]]
    assert "2,048 points" in lines.stdout
    assert lines.stderr.startswith(f"connected to {net.url()}; the query has a tick every 2 s, waiting")
    assert lines.stderr.strip().endswith("2 ticks")
    result = json.loads(many.stdout)
    assert result["command"] == "query"
    assert [r["tick"] for r in result["rows"]] == [0, 1, 2, 3]
    assert set(result["rows"][0]["attributes"]) == {"air_temperature", "wind_speed"}
    assert file.returncode == 0, file.stderr
    assert "out.nc is whole" in file.stderr
    with xr.open_dataset(tmp_path / "out.nc") as data:
        assert data.tick.values.tolist() == [0, 1, 2, 3]
    assert again.returncode == 2
    assert "found a file of another query (other bbox)" in again.stderr
    assert "Traceback" not in again.stderr


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--connect", "ws://127.0.0.1:1"), "found no broker that answers"),
        (("--connect", "there"), "url: found 'there'"),
        (("--bbox", "1,2,3"), "--bbox: found 3 numbers"),
        (("--out", "a.csv"), "expected one of .nc"),
        (("--out", "no/folder/a.nc"), "found no folder no/folder"),
        (("--out", "/proc/a.nc"), "in /proc, expected a folder to write to"),
        (("--out", "a.nc", "--resume", "b"), "--resume: found it beside --out"),
        (("--resolution", "1/2", "--every", "1h"), "--resolution: found it beside"),
        (("--every", "often"), "every: found 'often'"),
        (("--spacing", "a"), "--spacing: found 'a'"),
        (("--json", "no/folder/a.json"), "--json: found"),
    ],
)
def test_mistakes_are_a_line_and_exit_non_zero(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)

    result = call(monkeypatch, capsys, "query", *options)

    assert result.returncode == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_finishes_the_file(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    with NetThread(tmp_path, grid=GRID) as net:
        net.publish(2)
        child = subprocess.Popen(
            [*COMMAND, "--connect", net.url(), "--from", "1970-01-01T00:00Z", "--out", str(out)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )  # fmt: skip
        assert child.stdout is not None
        assert "tick 0" in child.stdout.readline()
        assert "tick 1" in child.stdout.readline()
        assert not out.exists()
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=PATIENCE_S)

    assert child.returncode == 130
    assert "stopped after 2 ticks" in said
    assert "Traceback" not in said
    assert out.exists()
    assert not (tmp_path / "out.parquet.part").exists()


def test_a_terminal_shows_a_map_and_keeps_its_last_picture(tmp_path: Path) -> None:
    with NetThread(tmp_path, grid=GRID) as net:
        net.publish(2)
        ours, theirs = pty.openpty()
        child = subprocess.Popen(
            [*COMMAND, "--connect", net.url(), "--from", "1970-01-01T00:00Z", "--ticks", "2"],
            stdout=theirs, stderr=subprocess.PIPE, env={**ENVIRONMENT, "TERM": "xterm-256color", "COLUMNS": "90"},
        )  # fmt: skip
        os.close(theirs)
        seen = b""
        while True:
            assert select.select([ours], [], [], PATIENCE_S)[0], f"waited {PATIENCE_S} s for its output"
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            seen += piece
        child.communicate(timeout=PATIENCE_S)
        os.close(ours)

    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert child.returncode == 0
    assert "air temperature" in text
    assert "▀" in text
    assert "course" in text
    assert "ended" in text.splitlines()[-1]


def a_field(values: np.ndarray) -> xr.DataArray:
    ny, nx = values.shape
    return xr.DataArray(
        values, coords={"latitude": np.linspace(-10, 10, ny), "longitude": np.linspace(0, 40, nx), "tick": 7},
        dims=("latitude", "longitude"), name="air_temperature", attrs={"units": "K", "missing_points": 3},
    )  # fmt: skip


def shot_of(field: xr.DataArray) -> Snapshot:
    return snapshot(field, 3.0, datetime(2026, 3, 1, 12, tzinfo=UTC))


def drawn(renderable: object, width: int = 60) -> list[str]:
    console = Console(width=width, height=30, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get().splitlines()


def test_a_picture_has_north_up_and_leaves_out_what_is_not_known() -> None:
    values = np.arange(16.0).reshape(4, 4)
    values[3, 0] = np.nan  # north west
    values[:2, 3] = np.nan  # south east

    lines = drawn(FieldPicture(values, (4.0, 4.0), 0.0, 15.0, 4, 2))

    assert lines == ["▄▀▀▀", "▀▀▀·"]


def test_a_picture_takes_means_of_many_points_and_keeps_its_shape() -> None:
    wide = drawn(FieldPicture(np.zeros((500, 1000)), (40.0, 20.0), 0.0, 1.0, 50, 20))

    assert len(wide) == 12
    assert len(wide[0]) == 50


def test_a_view_of_nothing_of_blanks_and_of_one_value_can_be_drawn() -> None:
    view = LiveView(60, 30)
    assert "waiting" in "\n".join(drawn(view))

    for values in (np.full((4, 8), np.nan), np.full((4, 8), 280.0)):
        field = a_field(values)
        view.show(field, shot_of(field))
        text = "\n".join(drawn(view))
        assert "air temperature" in text
        assert "3 missing" in text


def test_temperatures_are_shown_in_degrees_and_written_in_kelvin() -> None:
    shot = shot_of(a_field(np.full((2, 2), 283.15)))

    assert "air_temperature 10 °C" in line(shot)
    assert row(shot)["attributes"]["air_temperature"]["mean"] == 283.15
    assert row(shot)["missing_points"] == 3


def test_sparklines_show_the_last_values() -> None:
    assert sparkline([], 5) == ""
    assert sparkline([2.0, 2.0], 5) == "▄▄"
    assert sparkline([float(n) for n in range(100)], 8) == "▁▂▃▄▅▆▇█"


def test_a_long_silence_is_said_and_said_again_when_it_has_lasted_twice_as_long(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    show = query_command._Lines(clock=lambda: now[0])
    show.waits("ws://x", 60.0)
    capsys.readouterr()

    def said_at(moment: float, status: str = "flowing") -> str:
        now[0] = moment
        show.state(status, "", "")
        return capsys.readouterr().err

    assert said_at(119) == ""
    assert said_at(121).startswith("no tick for 2.02 min; does the pipeline run?")
    assert said_at(130) == ""
    assert said_at(239) == ""
    assert said_at(241).startswith("no tick for 4.02 min")
    assert "no tick" not in said_at(2000, "suspended")  # which says so itself


def test_a_tick_ends_the_silence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from sensorgrid.cli import query_view

    monkeypatch.setattr(query_view, "line", lambda shot: "a tick")
    now = [0.0]
    show = query_command._Lines(clock=lambda: now[0])
    show.waits("ws://x", 1.0)
    now[0] = 25.0
    show.field(None, None)  # type: ignore[arg-type]
    now[0] = 50.0
    show.state("flowing", "", "")

    assert "no tick" not in capsys.readouterr().err
    now[0] = 56.0
    show.state("flowing", "", "")
    assert capsys.readouterr().err.startswith("no tick for 31 s")
