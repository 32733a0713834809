"""Why measurements were refused, in words: for every letter, and summed up for people.

A record that cannot be read has its reason from the start (`parsing`). A row that a check refuses has a flag and
the name of the test; what it means in this case is written here, when the row becomes a letter. Reasons name the
values that were found, so each is different; `kind_of` takes these out again, and equal kinds are counted together.
"""

import re
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

HINTS = {
    "time": "no time, or one before 1900: look at [time] of the mapping",
    "future": "later than the clock of this machine allows: look at zone in [time], or raise [quality] future",
    "missing": "the value is blank or stands for missing",
    "attribute": "not among the [grid] attributes",
    "position": "no position, or an impossible one: [position] of the mapping, or a station table",
    "outside": "off the grid: look at [grid] extent",
    "range": "outside its limits: look at the unit in the mapping, or set [quality.attributes.NAME]",
}
"""What to do about it, by test."""
TOP = 5
"""so many kinds of reasons are shown"""
_FOUND = (
    (re.compile(r"'[^']*'"), "'…'"),
    (re.compile(r"\([^()]*\)"), "(…)"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|[+-][\d:]+)?"), "…"),
    (re.compile(r"(?<![\w.\-])-?\d([\d,]*\d)?(\.\d+)?(e[+-]?\d+)?(?![\w.])", re.I), "…"),
)


def kind_of(reason: str) -> str:
    """A reason without what was found in this very case.

    Examples
    --------
    >>> kind_of("value 'abc' of t is not a number")
    "value '…' of t is not a number"
    >>> kind_of("position: found (12.5, 91), expected a place on the earth")
    'position: found (…), expected a place on the earth'
    """
    for pattern, instead in _FOUND:
        reason = pattern.sub(instead, reason)
    return reason


def top_kinds(reasons: Iterable[tuple[str, int]], number: int = TOP) -> list[tuple[str, int]]:
    """The most frequent kinds among reasons that were counted, the most frequent first; each with a case of it.

    Examples
    --------
    >>> top_kinds([("value 'a' of t is not a number", 2), ("value 'b' of t is not a number", 1), ("no time", 1)])
    [("value '…' of t is not a number (as in: value 'a' of t is not a number)", 3), ('no time', 1)]
    """
    kinds: dict[str, Counter[str]] = {}
    for reason, count in reasons:
        kinds.setdefault(kind_of(reason), Counter())[reason] += count
    shown = []
    for kind, cases in kinds.items():
        case = min(cases, key=lambda reason: (-cases[reason], reason))
        shown.append((case if len(cases) == 1 else f"{kind} (as in: {case})", cases.total()))
    return sorted(shown, key=lambda item: (-item[1], item[0]))[:number]


def explained(letters: pa.Table) -> pa.Table:
    """Letters of which each has a reason: from its test, where the record itself was readable."""
    place = _joined("(", _text(letters, "longitude"), ", ", _text(letters, "latitude"), ")")
    placed = pc.and_(pc.is_valid(letters["longitude"]), pc.is_valid(letters["latitude"]))
    nowhere = "position: found none, expected one in the record or in a station table"
    nowhere_near = _joined("position: found ", place, ", expected a place on the earth")
    when = _joined("time: found ", _text(letters, "event_time"), ", expected ")
    which = pc.if_else(pc.equal(letters["flag"], 3), "usual", "gross")
    measured = _joined("value: found ", _text(letters, "value"), " ", _text(letters, "unit", ""))
    said = {
        "time": _joined(when, "one since 1900"),
        "future": _joined(when, "one that is not later than its arrival"),
        "position": pc.if_else(placed, nowhere_near, nowhere),
        "outside": _joined("position: found ", place, ", expected one on the grid"),
        "range": _joined(measured, ", expected one within the ", which, " limits of ", letters["attribute"]),
    }
    test = pc.fill_null(letters["test"], "")
    reason = letters["reason"]
    for name, text in said.items():
        reason = pc.if_else(pc.and_(pc.is_null(reason), pc.equal(test, name)), text, reason)
    # A test that has no words here yet.
    reason = pc.coalesce(reason, _joined("refused by the test ", test))
    return letters.set_column(letters.schema.get_field_index("reason"), "reason", reason)


def _text(letters: pa.Table, name: str, none: str = "none") -> pa.ChunkedArray:
    return pc.fill_null(pc.cast(letters[name], pa.string()), none)


def _joined(*parts: object) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="?")
