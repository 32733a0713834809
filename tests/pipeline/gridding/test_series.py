"""A sensor against its own past: an oracle that looks at one row after the other."""

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorgrid.pipeline.gridding.measurements import Measurements, concatenate, decode, deduplicate
from sensorgrid.pipeline.gridding.series import (
    ALWAYS,
    NEVER,
    TESTS,
    Past,
    SeriesLimits,
    Surroundings,
    check_series,
    fold,
)

LIMITS = (
    SeriesLimits(step=5, rate=30, spike=4, flat_s=1800, tolerance=0.5),
    SeriesLimits(step=50, rate=1e9, spike=40, flat_s=0, tolerance=0),
)
GAP_S = 3600.0
MINUTE = 60_000_000


def rows_of(entries: list[tuple[int, int, int, float]]) -> Measurements:
    sensor, code, minute, value = zip(*entries, strict=True) if entries else ((), (), (), ())
    n = len(sensor)
    return Measurements(
        np.array(sensor, np.uint64), np.array(minute, np.int64) * MINUTE, np.zeros(n), np.zeros(n),
        np.array(value, np.float64), np.array(code, np.uint8), np.ones(n, np.uint8),
    )  # fmt: skip


entries = st.lists(
    st.tuples(
        st.integers(1, 3), st.integers(0, 1), st.integers(0, 200),
        st.sampled_from([0.0, 0.3, 1.0, 2.0, 6.0, 7.0, 12.0, 60.0]),
    ),
    max_size=40,
)  # fmt: skip


def oracle(rows: Measurements, limits: tuple[SeriesLimits, ...], gap_s: float) -> list[tuple[int, str]]:
    """(moment from which it is bad, test) of each row, by looking around in lists."""
    verdict: list[tuple[int, str]] = [(NEVER, "")] * len(rows)
    series: dict[tuple[int, int], dict[int, list[int]]] = {}
    for i in range(len(rows)):
        moments = series.setdefault((int(rows.sensor[i]), int(rows.code[i])), {})
        moments.setdefault(int(rows.time_us[i]), []).append(i)
    for (_, code), moments in series.items():
        limit, kept = limits[code], []
        for moment in sorted(moments):
            same = sorted(moments[moment], key=lambda i: rows.value[i])
            winner = same[0] if len(same) == 1 else None
            if len(same) > 1 and rows.value[same[-1]] - rows.value[same[0]] <= limit.tolerance:
                winner = same[(len(same) - 1) // 2]
            for i in same:
                if i != winner:
                    verdict[i] = (ALWAYS, "conflict")
            if winner is not None:
                kept.append(winner)
        t = [int(rows.time_us[i]) for i in kept]
        v = [float(rows.value[i]) for i in kept]
        close = [False] + [b - a <= gap_s * 1e6 for a, b in itertools.pairwise(t)]
        since = list(t)
        for k, i in enumerate(kept):
            if k and close[k] and v[k] == v[k - 1]:
                since[k] = since[k - 1]
            before = [v[k - 1]] if k and close[k] else []
            if k > 1 and close[k] and close[k - 1]:
                before.append(v[k - 2])
            hours = (t[k] - t[k - 1]) / 3.6e9 if before else 0
            if before and all(abs(v[k] - b) > limit.rate * hours + 6 * limit.tolerance for b in before):
                verdict[i] = (ALWAYS, "rate")
            if before and all(abs(v[k] - b) > limit.step for b in before):
                verdict[i] = (ALWAYS, "step")
            if limit.flat_s and t[k] - since[k] >= limit.flat_s * 1e6:
                verdict[i] = (ALWAYS, "flat_line")
            followed = before and k + 1 < len(kept) and close[k + 1]
            if followed and verdict[i][0] == NEVER:
                middle = (v[k - 1] + v[k + 1]) / 2
                if abs(v[k] - middle) > limit.spike and abs(v[k - 1] - v[k + 1]) <= limit.spike:
                    verdict[i] = (t[k + 1], "spike")
    return verdict


@given(entries)
@settings(max_examples=400)
def test_every_flag_is_what_a_plain_look_at_the_series_gives(
    found: list[tuple[int, int, int, float]],
) -> None:
    rows, _ = deduplicate([rows_of(found)])

    checked = check_series(rows, LIMITS, GAP_S, Past.nothing())

    expected = oracle(rows, LIMITS, GAP_S)
    got = [(int(m), TESTS[t]) for m, t in zip(checked.bad_from_us, checked.test, strict=True)]
    assert got == expected


@given(entries, st.lists(st.integers(0, 201), max_size=4))
@settings(max_examples=400)
def test_what_was_forgotten_does_not_change_a_flag(
    found: list[tuple[int, int, int, float]], cuts: list[int]
) -> None:
    rows, _ = deduplicate([rows_of(found)])
    whole = check_series(rows, LIMITS, GAP_S, Past.nothing())

    past, low = Past.nothing(), 0
    for cut in [*sorted(cuts), 10_000]:
        part = (rows.time_us >= low * MINUTE) & (rows.time_us < cut * MINUTE)
        later = rows.time_us >= low * MINUTE
        checked = check_series(rows.take(later), LIMITS, GAP_S, past)
        assert checked.bad_from_us.tolist() == whole.bad_from_us[later].tolist()
        assert checked.test.tolist() == whole.test[later].tolist()
        past, low = Past.decode(fold(rows.take(part), LIMITS, GAP_S, past).encode()), cut


@given(st.lists(entries, max_size=4))
def test_repeats_are_dropped_whatever_the_order_and_grouping(
    parts: list[list[tuple[int, int, int, float]]],
) -> None:
    together = [entry for part in parts for entry in part]

    rows, repeats = deduplicate([rows_of(part) for part in parts])

    assert len(rows) == len(set(together))
    assert repeats == len(together) - len(set(together))
    again, none = deduplicate([rows_of(together[::-1])])
    assert again.encode() == rows.encode()
    assert none == repeats


@given(entries)
def test_a_pack_comes_back_as_it_went(found: list[tuple[int, int, int, float]]) -> None:
    rows = rows_of(found)

    back = decode(rows.encode())

    assert back.encode() == rows.encode()
    assert len(concatenate([back, back])) == 2 * len(rows)


def test_the_first_good_value_after_a_fault_is_not_called_a_step() -> None:
    rows = rows_of([(1, 0, 0, 10.0), (1, 0, 10, 90.0), (1, 0, 20, 10.0), (1, 0, 30, 10.5)])

    checked = check_series(rows, LIMITS, GAP_S, Past.nothing())

    assert [TESTS[t] for t in checked.test] == ["", "step", "", ""]


def test_a_spike_is_known_only_when_the_next_value_has_come() -> None:
    limits = (SeriesLimits(step=100, rate=1e6, spike=4, flat_s=0, tolerance=0),)
    rows = rows_of([(1, 0, 0, 10.0), (1, 0, 10, 20.0), (1, 0, 20, 10.0)])

    checked = check_series(rows, limits, GAP_S, Past.nothing())

    assert not checked.bad_at(20 * MINUTE)[1]
    assert checked.bad_at(20 * MINUTE + 1)[1]


def test_which_of_two_positions_stays_does_not_depend_on_the_order_of_arrival() -> None:
    one, other = rows_of([(1, 0, 5, 10.0)]), replace(rows_of([(1, 0, 5, 10.0)]), x=np.array([7.0]))

    assert deduplicate([one, other])[0].encode() == deduplicate([other, one])[0].encode()


AROUND = Surroundings("planar", 600.0)
TICK_MINUTES = 10


def spread_out(rows: Measurements) -> Measurements:
    """Sensor n stands at (n, n²): no two pairs are equally far."""
    place = rows.sensor.astype(np.float64)
    return replace(rows, x=place, y=place**2)


def front(sensors: dict[int, float]) -> Measurements:
    """All read 10 for an hour, then each what is said, half a minute after one another."""
    quiet = [(n, 0, minute, 10.0 + 0.01 * minute) for n in range(1, 8) for minute in range(0, 60, 10)]
    return spread_out(deduplicate([rows_of(quiet + [(n, 0, 60 + n % 2, v) for n, v in sensors.items()])])[0])


def flagged(rows: Measurements, around: Surroundings | None = AROUND) -> list[int]:
    return sorted(rows.sensor[check_series(rows, LIMITS, GAP_S, Past.nothing(), around).test > 0].tolist())


def test_a_fast_change_that_several_sensors_share_is_an_event() -> None:
    gust = front({n: 22.0 + 0.1 * n for n in range(1, 8)})

    assert flagged(gust) == []
    assert flagged(gust, None) == [1, 2, 3, 4, 5, 6, 7]


def test_one_or_two_sensors_are_no_event_and_neither_is_a_change_the_other_way_or_a_small_one() -> None:
    still = dict.fromkeys(range(1, 8), 10.7)

    assert flagged(front(still | {3: 22.0})) == [3]
    assert flagged(front(still | {3: 22.0, 4: 22.0})) == [3, 4]
    assert flagged(front(still | {3: 22.0, 4: 22.0, 5: 22.0})) == []
    assert flagged(front(still | {3: 22.0, 4: -2.0, 5: -2.0})) == [3, 4, 5]
    assert flagged(front(still | {3: 22.0, 4: -2.0, 5: 22.0, 6: 22.0})) == [4]
    assert flagged(front(still | {3: 40.0, 4: 15.0, 5: 15.0})) == [3]


def test_a_change_elsewhere_or_long_ago_bears_no_witness() -> None:
    far = front(dict.fromkeys(range(1, 8), 10.7) | {1: 22.0})
    hot = rows_of([(n, 0, minute, v) for n in (50, 51, 52) for minute, v in ((50, 10.0), (60, 22.0))])
    early = rows_of(
        [(n, 0, minute, v) for n in (8, 9) for minute, v in ((20, 10.0), (30, 22.0), (50, 22.2), (60, 22.1))]
    )

    with_far, with_early = (deduplicate([far, spread_out(rows)])[0] for rows in (hot, early))

    assert 1 in flagged(with_far)
    assert 1 in flagged(with_early)


# Six sensors report once in each of six ticks, so that events are frequent.
shared = st.lists(st.sampled_from([10.0, 10.5, 20.0, 30.0]), min_size=36, max_size=36).map(
    lambda values: [(n % 6 + 1, 0, TICK_MINUTES * (n // 6) + n % 6, v) for n, v in enumerate(values)]
)


@settings(max_examples=150)
@given(shared, st.integers(1, 4))
def test_witnesses_are_the_same_whatever_was_forgotten_and_whatever_comes_later(
    found: list[tuple[int, int, int, float]], tick: int
) -> None:
    rows, _ = deduplicate([spread_out(rows_of(found))])
    begin, end = (n * TICK_MINUTES * MINUTE for n in (tick - 1, tick + 1))
    old = rows.time_us < begin
    past = fold(rows.take(old), LIMITS, GAP_S, Past.nothing())

    whole = check_series(rows, LIMITS, GAP_S, Past.nothing(), AROUND)
    young = check_series(rows.take(~old), LIMITS, GAP_S, past, AROUND)
    cut = check_series(rows.take(rows.time_us < end), LIMITS, GAP_S, Past.nothing(), AROUND)

    now = (rows.time_us >= begin + TICK_MINUTES * MINUTE) & (rows.time_us < end)
    assert young.bad_at(end)[now[~old]].tolist() == whole.bad_at(end)[now].tolist()
    assert cut.bad_at(end)[now[rows.time_us < end]].tolist() == whole.bad_at(end)[now].tolist()
