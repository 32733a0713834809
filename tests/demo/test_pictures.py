"""Pictures and pages: they are what they say, need nothing from elsewhere, and fit every screen."""

import re
import struct
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from sensorgrid.demo import pictures, view
from sensorgrid.demo.checks import Check, Outage, Result
from sensorgrid.demo.report import BrokerFacts, GuestFacts, Map, Story, render
from sensorgrid.demo.view import BrokerLine, GuestLine, Scene
from sensorgrid.model.ids import PeerId

FIELD = np.linspace(-30, 40, 64)[:, None] + np.zeros((64, 128))


def result(holds: bool = True) -> Result:
    return Result(
        12, 24, 1_000_000, 0 if holds else 3, 0, 0, 500, 1000, 0.5, 2.1, 4.5, 3, 6.2, 8, 4.0, 12, 0, 40.0,
        (Check("exactly once", holds, "3 <missing>"), Check("quick", False, "slow", counts=False)),
    )  # fmt: skip


def story(holds: bool = True) -> Story:
    return Story(
        result=result(holds), version="1", began=datetime(2026, 3, 1, tzinfo=UTC), tick_s=4, stations=2,
        moment=datetime(2026, 3, 1, tzinfo=UTC),
        maps=[Map("air temperature", "°C", FIELD, FIELD + 1, np.ones_like(FIELD), pictures.HEAT)],
        land=np.zeros((320, 640)), stations_at=[(0.5, 0.5)],
        brokers=[BrokerFacts(n, 2, 3, 1, 1, 9, 1000 * n, 2000, 0) for n in range(8)],
        guests=[GuestFacts("<b>client</b>", 1, "all", 12, 100, 2.0, True)], flows={(0, 1): 500, (1, 0): 20},
        traffic=[(float(t), 100.0, 200.0) for t in range(10)], delays=[(4.0, 2.0, False), (8.0, 6.0, True)],
        outage=Outage(PeerId(3), 20.0, (0,)), killed_after_s=20.0, books={"raw": 10, "used": 9, "late": 1},
        events=[(1.0, "a <thing> happened")],
    )  # fmt: skip


def test_a_png_can_be_read_again() -> None:
    indices = np.arange(12, dtype=np.uint8).reshape(3, 4)

    data = pictures.png(indices, pictures.HEAT)

    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (4, 3)
    body = data[data.index(b"IDAT") + 4 : data.index(b"IEND") - 8]
    rows = np.frombuffer(zlib.decompress(body), np.uint8).reshape(3, 5)
    assert np.array_equal(rows[:, 1:], indices)
    assert not rows[:, 0].any()


def test_a_map_has_the_north_on_top_and_meets_itself_at_the_date_line() -> None:
    field = np.zeros((4, 8))
    field[-1] = 1.0
    fine = pictures._enlarged(field, 3)

    assert fine.shape == (12, 24)
    assert fine[-1].min() == 1.0
    assert np.allclose(
        pictures._enlarged(np.eye(8)[:4], 2)[:, 0], pictures._enlarged(np.roll(np.eye(8)[:4], 4, 1), 2)[:, 8]
    )


class _Tags(HTMLParser):
    void = ("meta", "img", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("holds", [True, False])
def test_the_report_is_whole_and_asks_nobody_for_anything(holds: bool) -> None:
    page = render(story(holds))

    tags = _Tags()
    tags.feed(page)
    assert tags.open == []
    assert ("All checks hold" in page) == holds
    assert not re.search(r"(src|href)=(?!['\"]?data:)|url\(|@import|https?://", page)
    assert "prefers-color-scheme:dark" in page
    assert "width=device-width" in page
    assert "<b>client</b>" not in page
    assert "&lt;b&gt;client" in page


def test_a_report_without_a_kill_or_a_tick_is_written_too() -> None:
    empty = replace(
        result(False), saving=None, delay_p50_s=None, delay_p99_s=None, killed=None, recovered_s=None
    )
    bare = story(False)
    bare.result, bare.outage, bare.killed_after_s = empty, None, None
    bare.maps, bare.delays, bare.traffic, bare.flows = [], [], [], {}

    assert "Not all checks hold" in render(bare)


def scene() -> Scene:
    found = Scene(
        stage="streaming", clock_s=40, elapsed_s=20, shown=FIELD.astype(np.float32), limits=(-30, 40)
    )
    found.brokers = [BrokerLine(n, "killed" if n == 3 else "up") for n in range(8)]
    found.guests = [GuestLine(f"client {n}", n % 8, "admitted", n, 2.0) for n in range(24)]
    found.traffic = [(1.0, 2.0)] * 30
    found.happened(3.0, "broker 3 is killed", "red")
    return found


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (100, 30), (160, 50)])
def test_the_view_fits_the_terminal(width: int, height: int) -> None:
    console = Console(width=width, height=height, record=True, force_terminal=True, color_system="truecolor")
    with console.capture() as capture:
        console.print(view.draw(scene(), width, height), height=height)

    lines = Console(width=width).render_str(capture.get()).plain.rstrip("\n").split("\n")
    assert len(lines) <= height
    assert "streaming" in capture.get()


def test_the_view_names_the_broker_that_was_killed() -> None:
    console = Console(width=120, height=40, force_terminal=True)
    with console.capture() as capture:
        console.print(view.draw(scene(), 120, 40), height=40)

    assert "killed" in capture.get()
    assert "client 23" in capture.get()


def test_half_blocks_show_the_north_above() -> None:
    text = view.half_blocks(FIELD, -30, 40, pictures.HEAT, 4, 2)

    hottest = "#{:02x}{:02x}{:02x}".format(*pictures.HEAT[int((FIELD[56, 0] + 30) / 70 * 255)].tolist())
    assert text.plain == "▀▀▀▀\n▀▀▀▀"
    assert str(text.spans[0].style).startswith(hottest)
