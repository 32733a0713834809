"""``sensorgrid sensors``: what people may get wrong, and where the answer is written."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import call
from net_thread import NetThread


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NetThread(tmp_path_factory.mktemp("net")) as net:
        yield net.url()


@pytest.mark.parametrize(
    ("bbox", "text"),
    [
        ("0,nan,10,nan", "found (0.0, nan, 10.0, nan), expected four finite numbers"),
        ("nan,0,nan,10", "found (nan, 0.0, nan, 10.0), expected four finite numbers"),
        ("inf,0,-inf,10", "found (inf, 0.0, -inf, 10.0), expected four finite numbers"),
        ("0,60,10,40", "found south 60 > north 40, expected south <= north"),
        ("1e308,0,-1e308,10", "found longitudes 1e+308 and -1e+308, expected them in [-720, 720]"),
    ],
)
def test_a_box_that_is_none_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bbox: str, text: str, url: str
) -> None:
    done = call(monkeypatch, capsys, "sensors", "--connect", url, f"--bbox={bbox}")

    assert done.returncode != 0
    assert f"bbox: {text}" in " ".join(done.stderr.split())


def test_geojson_on_standard_output_stands_alone_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    done = call(monkeypatch, capsys, "sensors", "--connect", url, "--geojson", "-", "--json", "all.json")

    assert done.returncode == 0
    assert json.loads(done.stdout) == {"type": "FeatureCollection", "features": []}
    assert "0 of 0 sensors" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["all.json"]


def test_geojson_goes_to_a_file_beside_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str, tmp_path: Path
) -> None:
    done = call(monkeypatch, capsys, "sensors", "--connect", url, "--geojson", tmp_path / "map.json")

    assert json.loads((tmp_path / "map.json").read_text())["features"] == []
    assert "0 of 0 sensors" in done.stdout


def test_two_files_on_standard_output_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    done = call(monkeypatch, capsys, "sensors", "--connect", url, "--geojson", "-", "--json", "-")

    assert done.returncode != 0
    assert "--geojson: found - beside --json -, expected one of them" in " ".join(done.stderr.split())


@pytest.mark.parametrize("command", ["sensors", "query"])
def test_a_certificate_authority_that_is_none_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    (tmp_path / "grid.toml").write_text("[grid]")
    for name, found in (
        ("none.pem", "no such file"), ("grid.toml", "a file without a certificate"), ("", "")
    ):  # fmt: skip
        path = tmp_path / name

        done = call(monkeypatch, capsys, command, "--connect", "wss://127.0.0.1:1", "--ca", path)

        assert done.returncode != 0
        said = " ".join(done.stderr.split())
        assert f"certificate authority '{path}': found {found}" in said
        assert "expected a file with its certificate (PEM)" in said
