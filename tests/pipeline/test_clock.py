"""The clock of the stream: beats when ticks fall due, and half a tick later; the same again for a batch tried again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorgrid.pipeline.sources import clock
from sensorgrid.pipeline.sources.clock import Beats, ClockReader

TICK_US, SETTLE_US = 5_000_000, 1_000_000
BEATS = Beats(TICK_US, SETTLE_US)


def reader_at(monkeypatch: pytest.MonkeyPatch, now_us: int) -> ClockReader:
    monkeypatch.setattr(clock, "_now_us", lambda: now_us)
    return ClockReader(BEATS)


def test_a_beat_falls_due_exactly_settle_after_the_end_of_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    start = reader_at(monkeypatch, 99 * TICK_US + 3_000_000).initialOffset()
    rows, before = reader_at(monkeypatch, 100 * TICK_US + SETTLE_US - 1).read(start)
    assert [fresh for _, fresh in rows] == [False], "half a tick after the one before"

    rows, after = reader_at(monkeypatch, 100 * TICK_US + SETTLE_US).read(before)

    assert list(rows) == [(100 * TICK_US + SETTLE_US, True)]
    assert reader_at(monkeypatch, 100 * TICK_US + SETTLE_US + 1).read(after)[1] == after


def test_half_a_tick_later_comes_the_beat_that_revises(monkeypatch: pytest.MonkeyPatch) -> None:
    start = reader_at(monkeypatch, 100 * TICK_US + SETTLE_US).initialOffset()

    rows, _ = reader_at(monkeypatch, 100 * TICK_US + SETTLE_US + TICK_US // 2).read(start)

    assert list(rows) == [(100 * TICK_US + SETTLE_US + TICK_US // 2, False)]


def test_after_an_outage_two_beats_say_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    start = reader_at(monkeypatch, 0).initialOffset()

    rows, end = reader_at(monkeypatch, 200 * TICK_US + SETTLE_US).read(start)

    assert list(rows) == [
        (199 * TICK_US + SETTLE_US + TICK_US // 2, False),
        (200 * TICK_US + SETTLE_US, True),
    ]
    assert end == {"beat": 400}


def test_after_a_long_outage_the_clock_catches_up_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    offset = reader_at(monkeypatch, 0).initialOffset()
    late, steps = reader_at(monkeypatch, 10_000 * TICK_US + SETTLE_US), 0

    while (end := late.read(offset)[1]) != offset:
        assert 0 < end["beat"] - offset["beat"] <= 2 * clock.CATCH_UP_TICKS
        offset, steps = end, steps + 1

    assert offset == {"beat": 20_000}
    assert steps == -(-20_001 // (2 * clock.CATCH_UP_TICKS))


def test_a_clock_that_is_set_back_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    start = reader_at(monkeypatch, 100 * TICK_US).initialOffset()

    rows, end = reader_at(monkeypatch, 50 * TICK_US).read(start)

    assert (list(rows), end) == ([], start)


@given(st.integers(0, 10**9), st.integers(0, 50))
def test_a_batch_that_is_tried_again_sees_the_same_beats(after: int, more: int) -> None:
    reader = ClockReader(BEATS)

    again = list(reader.readBetweenOffsets({"beat": after}, {"beat": after + more}))

    assert again == BEATS.rows(after, after + more)
    assert len(again) == min(more, 2)
    assert [fresh for _, fresh in again] == [
        n % 2 == 0 for n in range(after + max(1, more - 1), after + more + 1)
    ]
