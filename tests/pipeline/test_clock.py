"""The clock of a stream: a beat when a tick falls due, the same one when a batch is tried again."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sensorgrid.pipeline import clock
from sensorgrid.pipeline.clock import ClockReader

TICK_US, SETTLE_US = 4_000_000, 400_000


@pytest.fixture
def reader() -> ClockReader:
    return ClockReader(TICK_US, SETTLE_US)


def at(monkeypatch: pytest.MonkeyPatch, now_us: int) -> None:
    monkeypatch.setattr(clock, "_now_us", lambda: now_us)


@pytest.mark.parametrize(("now_us", "due"), [(4_400_000, 0), (4_399_999, -1), (8_399_999, 0), (8_400_000, 1)])
def test_a_tick_is_due_when_it_has_ended_and_settled(reader: ClockReader, now_us: int, due: int) -> None:
    assert reader.due(now_us) == due


def test_there_is_one_beat_for_all_that_has_fallen_due(
    reader: ClockReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(monkeypatch, 4_400_000)
    start = reader.initialOffset()
    at(monkeypatch, 21_000_000)
    end = reader.latestOffset(start, ReadAllAvailable())

    (beat,) = reader.partitions(start, end)

    assert list(reader.read(beat)) == [(20_400_000,)]
    assert reader.due(beat.now_us) == end["due"] == 4


def test_nothing_comes_while_nothing_is_due(reader: ClockReader, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 4_500_000)
    start = reader.initialOffset()
    at(monkeypatch, 8_300_000)

    assert reader.partitions(start, reader.latestOffset(start, ReadAllAvailable())) == []


def test_a_clock_that_is_set_back_waits(reader: ClockReader, monkeypatch: pytest.MonkeyPatch) -> None:
    start = {"due": 7}
    at(monkeypatch, 4_400_000)

    assert reader.latestOffset(start, ReadAllAvailable()) == start
