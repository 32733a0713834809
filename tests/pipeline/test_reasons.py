"""Every letter has a reason, and equal kinds of reasons are counted together."""

import pyarrow as pa
import pytest

from sensorgrid.pipeline.ingest import quality
from sensorgrid.pipeline.ingest.reasons import HINTS, explained, kind_of, top_kinds
from sensorgrid.pipeline.spark.packing import LETTER


def reasons_of(*rows: dict[str, object]) -> list[str]:
    found: list[str] = explained(pa.Table.from_pylist(list(rows), schema=LETTER))["reason"].to_pylist()
    return found


def test_each_test_is_put_into_words_with_what_was_found() -> None:
    found = reasons_of(
        {"test": "position", "flag": 4},
        {"test": "position", "flag": 4, "longitude": 500.5, "latitude": 3.0},
        {"test": "position", "flag": 4, "longitude": 500.5},
        {"test": "outside", "flag": 4, "longitude": 5.0, "latitude": 3.0},
        {"test": "range", "flag": 4, "value": 12.5, "unit": "K", "attribute": "air_temperature"},
        {"test": "range", "flag": 3, "value": 12.5, "unit": "K", "attribute": "air_temperature"},
        {"test": "time", "flag": 4},
    )

    assert found == [
        "position: found none, expected one in the record or in a station table",
        "position: found (500.5, 3), expected a place on the earth",
        "position: found none, expected one in the record or in a station table",
        "position: found (5, 3), expected one on the grid",
        "value: found 12.5 K, expected one within the gross limits of air_temperature",
        "value: found 12.5 K, expected one within the usual limits of air_temperature",
        "time: found none, expected one since 1900",
    ]


def test_a_reason_that_is_there_stays_and_a_test_without_words_is_named() -> None:
    rows = (
        {"test": "dead_letter", "flag": 4, "reason": "record is empty"},
        {"test": "range", "flag": 4, "reason": "said before"},
        {"test": "new", "flag": 4},
    )

    assert reasons_of(*rows) == ["record is empty", "said before", "refused by the test new"]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("value 'a,1' of t2 is not a number", "value '…' of t2 is not a number"),
        ("record of 2000000 bytes, expected at most 1048576", "record of … bytes, expected at most …"),
        ("time: found 2099-01-01T00:00:00Z, expected", "time: found …, expected"),
        ("file breaks off: EOFError (file:/a/b.csv)", "file breaks off: EOFError (…)"),
        ("value: found -1.5e-09 kg m-3, expected", "value: found … kg m-3, expected"),
    ],
)
def test_what_was_found_is_no_part_of_the_kind(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind


def test_kinds_are_summed_and_the_most_frequent_stands_first() -> None:
    reasons = [("value '1' of t", 2), ("record is empty", 4), ("value '2' of t", 3), ("other", 1)]

    assert top_kinds(reasons, 2) == [("value '…' of t (as in: value '2' of t)", 5), ("record is empty", 4)]


def test_every_test_of_single_rows_has_a_hint() -> None:
    lines = (quality.__doc__ or "").split("\n")
    named = [line.split()[0] for line in lines if len(line) > 13 and line[13].isdigit() and line[12] == " "]

    assert len(named) >= 8
    assert set(named) - {"dead_letter"} <= set(HINTS)
