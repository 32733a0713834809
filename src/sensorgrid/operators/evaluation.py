"""Evaluating trees of one shape side by side: one plan, or thousands that differ in areas and numbers only.

Conditions have three values: if a part is missing, the whole is missing unless the other parts decide it. Errors of
parts add up in quadrature, to first order. A result has the points and the coverage of its least part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sensorgrid.operators.nodes import Computed, Fixed, Held, Lag, Node, TermSample
from sensorgrid.operators.numbers import DIVISION, FINE, Numbers, checked
from sensorgrid.operators.partials.directions import direction_of

Leaf = Callable[[int, int], Numbers]
"""(number of a group of samples, tick) → the samples' numbers, side by side"""
_MANY = 2.0**62
"""points of a number that is known beforehand: more than any"""


@dataclass(frozen=True, slots=True)
class Program:
    """Trees of one shape."""

    kind: str
    """fixed, sample, lag, held, or an operation"""
    parts: "tuple[Program, ...]" = ()
    payload: Any = None
    """numbers of fixed; place among the groups of samples; ticks of lag and held"""


def shape_of(node: Node) -> str:
    """What trees must share to be evaluated side by side."""
    if isinstance(node, Fixed):
        return "#"
    if isinstance(node, TermSample):
        return f"${node.ticks}{node.term.function}"
    head = node.operation if isinstance(node, Computed) else f"{type(node).__name__}{node.ticks}"
    return f"({head} {' '.join(shape_of(part) for part in node.parts)})"


def program_of(nodes: Sequence[Node], samples: list[list[TermSample]]) -> Program:
    """Trees of one shape as a program; the samples that it needs are appended, group by group."""
    first = nodes[0]
    if isinstance(first, Fixed):
        return Program("fixed", payload=np.array([node.value for node in nodes if isinstance(node, Fixed)]))
    if isinstance(first, TermSample):
        samples.append([node for node in nodes if isinstance(node, TermSample)])
        return Program("sample", payload=len(samples) - 1)
    parts = tuple(program_of([node.parts[n] for node in nodes], samples) for n in range(len(first.parts)))
    if isinstance(first, Lag):
        return Program("lag", parts, first.ticks)
    if isinstance(first, Held):
        return Program("held", parts, first.ticks)
    return Program(first.operation, parts)


def run(program: Program, tick: int, leaf: Leaf) -> Numbers:
    """The numbers at a tick."""
    kind = program.kind
    if kind == "fixed":
        value = program.payload
        count = len(value)
        return Numbers(
            value, np.zeros(count), np.full(count, _MANY), np.ones(count), np.zeros(count, np.int8)
        )
    if kind == "sample":
        return leaf(program.payload, tick)
    if kind == "lag":
        return run(program.parts[0], tick - program.payload, leaf)
    if kind == "held":
        return _all_or_any(
            [run(program.parts[0], tick - back, leaf) for back in range(program.payload)], decides=0.0
        )
    parts = [run(part, tick, leaf) for part in program.parts]
    if kind in ("and", "or"):
        return _all_or_any(parts, decides=0.0 if kind == "and" else 1.0)
    if kind == "direction":
        east, north = parts  # of where the wind goes to; the direction is where it comes from
        return direction_of(-east.value, -north.value, _least(parts, east.value, east.error))
    with np.errstate(all="ignore"):
        return _OPERATIONS[kind](parts)


def fixed_result(node: Node) -> float:
    """The value of a tree without samples; not finite if it has none."""
    found = run(program_of([node], []), 0, lambda group, tick: _none(group, tick))
    return float(found.value[0])


def _none(group: int, tick: int) -> Numbers:
    raise AssertionError(f"a sample ({group}, {tick}) in a fixed tree")


def _least(parts: Sequence[Numbers], value: Any, error: Any, reason: Any = None) -> Numbers:
    """A result with the points and the coverage of its least part, and the latest of all reasons."""
    points, coverage, why = parts[0].points, parts[0].coverage, parts[0].reason
    for part in parts[1:]:
        points, coverage = np.minimum(points, part.points), np.minimum(coverage, part.coverage)
        why = np.maximum(why, part.reason)
    if reason is not None:
        why = np.where(why == FINE, reason, why)
    return checked(value, error, points, coverage, why)


def _all_or_any(parts: Sequence[Numbers], decides: float) -> Numbers:
    """And (decided by a false part) or or (by a true one)."""
    decided = np.zeros(len(parts[0]), bool)
    for part in parts:
        decided |= (part.reason == FINE) & (part.value == decides)
    told = _least(parts, np.full(len(parts[0]), 1.0 - decides), np.full(len(parts[0]), np.nan))
    value = np.where(decided, decides, told.value)
    return Numbers(
        value, told.error, told.points, told.coverage, np.where(decided, np.int8(FINE), told.reason)
    )


def _plus(parts: list[Numbers]) -> Numbers:
    a, b = parts
    return _least(parts, a.value + b.value, np.hypot(a.error, b.error))


def _minus(parts: list[Numbers]) -> Numbers:
    a, b = parts
    return _least(parts, a.value - b.value, np.hypot(a.error, b.error))


def _times(parts: list[Numbers]) -> Numbers:
    a, b = parts
    return _least(parts, a.value * b.value, np.hypot(a.error * b.value, b.error * a.value))


def _by(parts: list[Numbers]) -> Numbers:
    a, b = parts
    value = a.value / b.value
    error = np.hypot(a.error / b.value, b.error * value / b.value)
    reason = np.where(b.value == 0, np.int8(DIVISION), np.int8(FINE))
    return _least(parts, value, error, reason)


def _power(parts: list[Numbers]) -> Numbers:
    a, b = parts
    value = np.power(a.value, b.value)
    by_base = np.where(a.error == 0, 0.0, a.error * b.value * np.power(a.value, b.value - 1))
    by_exponent = np.where(b.error == 0, 0.0, b.error * np.log(np.abs(a.value)) * value)
    reason = np.where((a.value == 0) & (b.value < 0), np.int8(DIVISION), np.int8(FINE))
    return _least(parts, value, np.hypot(by_base, by_exponent), reason)


def _not(parts: list[Numbers]) -> Numbers:
    return _least(parts, 1.0 - parts[0].value, parts[0].error)


def _comparison(compare: Any) -> Callable[[list[Numbers]], Numbers]:
    def compared(parts: list[Numbers]) -> Numbers:
        a, b = parts
        return _least(parts, compare(a.value, b.value).astype(np.float64), np.full(len(a), np.nan))

    return compared


_OPERATIONS: dict[str, Callable[[list[Numbers]], Numbers]] = {
    "+": _plus,
    "-": _minus,
    "*": _times,
    "/": _by,
    "^": _power,
    "not": _not,
    "=": _comparison(np.equal),
    "<>": _comparison(np.not_equal),
    "<": _comparison(np.less),
    "<=": _comparison(np.less_equal),
}
