"""``sensorgrid sensors``: what people may get wrong, and where the answer is written."""

from collections.abc import Iterator

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
