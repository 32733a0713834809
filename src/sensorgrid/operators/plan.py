"""Operators, and what they mean on a grid.

`compile` gives a plan: the terms whose partials it needs, how far it looks back, and `result`, a pure function of the
merged partials of those ticks. Hysteresis and `hold` look back a bounded number of ticks instead of keeping a state,
so whoever computes a tick, and whenever, gets the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from math import isclose
from typing import Any

import numpy as np
import numpy.typing as npt

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import length_of_time
from sensorgrid.operators.areas import Area
from sensorgrid.operators.errors import ExpressionError
from sensorgrid.operators.evaluation import Program, program_of, run
from sensorgrid.operators.meaning import WINDOW_MAX, Compiler, attributes_of
from sensorgrid.operators.nodes import Node, TermSample, digest_of, node_from, terms_of, to_list
from sensorgrid.operators.numbers import (
    FINE,
    INACTIVE,
    NO_DATA,
    NOT_DUE,
    Floats,
    Number,
    Numbers,
    missing,
)
from sensorgrid.operators.reading import parse
from sensorgrid.operators.term import Term

HYSTERESIS = 24
"""ticks that `until` looks back for the last tick at which `when` or `until` held; `when` is forgotten after them"""

__all__ = ["History", "Number", "Operator", "OperatorPlan", "Term", "compile", "parse", "plan_from"]

History = Mapping[int, Mapping[str, Floats]]
"""tick → digest of a term → its merged partial; what is missing is not there"""


@dataclass(frozen=True, slots=True)
class Operator:
    """A value that is calculated inside the network, tick by tick.

    Parameters
    ----------
    value
        What to calculate, in CQL2: ``mean(air_temperature, 'A') - mean(air_temperature, 'B')``.
    when
        A condition: at ticks at which it does not hold there is no value.
    until
        A second condition: once `when` has held, values go on until this one holds.
    every
        How far apart ticks are, as seconds, a timedelta or text such as "1h"; every tick if left out.
    name
        For people.

    Examples
    --------
    >>> Operator("mean(air_temperature)", when="max(precipitation_amount) > 20").name
    'mean(air_temperature)'
    """

    value: str
    when: str | None = None
    until: str | None = None
    every: timedelta | float | str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for part in ("value", "when", "until", "name"):
            said = getattr(self, part)
            if said is not None and not isinstance(said, str):
                raise ExpressionError(f"operator: found {part} = {said!r}, expected text")
        if self.until is not None and self.when is None:
            raise ExpressionError("operator: found until without when, expected both, or when alone")
        if self.every is not None:
            object.__setattr__(self, "every", length_of_time(self.every))
        if self.name is None:
            object.__setattr__(self, "name", self.value)


@dataclass(frozen=True)
class OperatorPlan:
    """What an operator means on a grid."""

    name: str = field(compare=False)
    grid: Grid
    value: Node
    when: Node | None
    until: Node | None
    every: int
    """ticks from one result to the next"""
    unit: str = field(default="", compare=False)
    """of the value; empty if it is not known"""

    @cached_property
    def digest(self) -> str:
        """A name for what it means, whatever its spelling."""
        parts = (self.value, self.when, self.until)
        return digest_of("|".join(["" if p is None else p.text for p in parts] + [str(self.every)]))

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Each distinct term once, by digest."""
        nodes = (node for node in (self.value, self.when, self.until) if node is not None)
        found = {term.digest: term for node in nodes for term in terms_of(node)}
        return tuple(found[digest] for digest in sorted(found))

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """What of the grid it needs."""
        return tuple(sorted({term.attribute for term in self.terms}))

    @cached_property
    def window(self) -> int:
        """Ticks that a result looks at, its own included."""
        found = self.value.window
        if self.when is not None:
            found = max(found, self.when.window)
        if self.when is not None and self.until is not None:
            found = max(found, max(self.when.window, self.until.window) + HYSTERESIS - 1)
        return found

    def is_due(self, tick: int) -> bool:
        """Whether there is a result at a tick at all."""
        return tick % self.every == 0

    def result(self, tick: int, history: History) -> Number:
        """The result at a tick, of the merged partials at the ticks from ``tick - window + 1`` on.

        At a tick that is not due, or at which `when` does not hold, there is none, for that reason.
        """
        if not self.is_due(tick):
            return missing(1, NOT_DUE).at(0)
        if self.when is not None:
            until = None if self.until is None else lambda at: self._run(2, at, history)
            reason = activity(lambda at: self._run(1, at, history), until, tick)
            if reason[0] != FINE:
                return missing(1, int(reason[0])).at(0)
        return self._run(0, tick, history).at(0)

    @cached_property
    def _programs(self) -> tuple[tuple[Program, list[list[TermSample]]] | None, ...]:
        found: list[tuple[Program, list[list[TermSample]]] | None] = []
        for node in (self.value, self.when, self.until):
            samples: list[list[TermSample]] = []
            found.append(None if node is None else (program_of([node], samples), samples))
        return tuple(found)

    def _run(self, which: int, tick: int, history: History) -> Numbers:
        chosen = self._programs[which]
        assert chosen is not None, "asked for what there is"
        program, samples = chosen
        return run(program, tick, lambda group, at: sampled(samples[group][0], at, history))

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for the wire; `plan_from` reads it."""
        nodes = {"value": self.value, "when": self.when, "until": self.until}
        plain = {key: None if node is None else to_list(node) for key, node in nodes.items()}
        return {"name": self.name, "every": self.every, "unit": self.unit, **plain}


def activity(
    when: Callable[[int], Numbers], until: Callable[[int], Numbers] | None, tick: int
) -> npt.NDArray[np.int8]:
    """FINE while `when` holds, or since it held and `until` has not; else the reason. Each gives numbers of a tick."""
    now = when(tick)
    reason = np.where(now.reason == FINE, np.int8(INACTIVE), now.reason)
    open_still = np.ones(len(now), bool)
    for back in range(1 if until is None else HYSTERESIS):
        starts = now if not back else when(tick - back)
        if until is not None:
            ends = until(tick - back)
            over = open_still & (ends.reason == FINE) & (ends.value == 1)
            reason[over] = INACTIVE
            open_still &= ~over
        begun = open_still & (starts.reason == FINE) & (starts.value == 1)
        reason[begun] = FINE
        open_still &= ~begun
        if not open_still.any():
            break
    return reason


def sampled(sample: TermSample, tick: int, history: History) -> Numbers:
    """A term over the ticks of its window; what is missing of them lowers the coverage."""
    digest, term = sample.term.digest, sample.term
    ticks = range(tick - sample.ticks + 1, tick + 1)
    found = [history[t][digest] for t in ticks if t in history and digest in history[t]]
    if not found:
        return missing(1, NO_DATA)
    merged = found[0] if len(found) == 1 else term.merge(found)
    return term.finished(merged[None, :], sample.ticks)


def compile(
    operator: Operator | str,
    grid: Grid,
    areas: Mapping[str, Area] | None = None,
    lengths_m: Mapping[str, float] | None = None,
    window_max: int = WINDOW_MAX,
) -> OperatorPlan:
    """What an operator means on a grid.

    Parameters
    ----------
    operator
        The operator, or its value alone.
    grid
        The grid.
    areas
        Areas that it may name.
    lengths_m
        Over which errors of each attribute are alike (`correlation.length_of`); usual ones if left out.
    window_max
        Ticks that it may look back.

    >>> plan = compile("mean(air_temperature, '1h') > q(20, 'degC')", Grid(shape=(512, 256), tick=600))
    >>> plan.window, [term.function for term in plan.terms]
    (6, ['mean'])
    """
    operator = Operator(operator) if isinstance(operator, str) else operator
    areas = {} if areas is None else areas
    known, compiler = attributes_of(grid), Compiler(grid, areas, lengths_m, window_max)

    def node(text: str | None, subject: str) -> Node | None:
        if text is None:
            return None
        read = parse(text, known, areas, subject)
        found: Node = _named(subject, lambda: compiler.condition(read))
        return found

    read = parse(operator.value, known, areas, "value")
    meant = _named("value", lambda: compiler.number_or_condition(read))
    every = _every(operator.every, grid)
    when, until = node(operator.when, "when"), node(operator.until, "until")
    unit = "" if meant.unit.name in (None, "condition") else str(meant.unit.name)
    return OperatorPlan(str(operator.name), grid, meant.node, when, until, every, unit)


def plan_from(found: dict[str, Any], grid: Grid) -> OperatorPlan:
    """What `OperatorPlan.to_dict` told, on a grid; believes nothing that could not have been compiled there."""
    try:
        return _plan_from(found, grid)
    except SensorGridError:
        raise
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ExpressionError(f"plan: found none ({type(error).__name__}: {error}), expected one") from None


def _plan_from(found: dict[str, Any], grid: Grid) -> OperatorPlan:
    value, when, until = (
        None if found[key] is None else node_from(found[key], grid) for key in ("value", "when", "until")
    )
    every = found["every"]
    if value is None or (until is not None and when is None):
        raise ExpressionError("plan: found no value, or until without when, expected both")
    if type(every) is not int or every < 1:
        raise ExpressionError(f"plan: found every = {every!r}, expected a whole number of ticks, 1 or more")
    plan = OperatorPlan(str(found["name"]), grid, value, when, until, every, str(found["unit"]))
    longest = max(node.window for node in (value, when, until) if node is not None)
    if not plan.terms or longest > WINDOW_MAX:
        raise ExpressionError(f"plan: found a window of {longest} ticks, expected 1 to {WINDOW_MAX}")
    return plan


def _named(subject: str, make: Any) -> Any:
    """Errors that name the part of the operator."""
    try:
        return make()
    except ExpressionError as error:
        raise ExpressionError(str(error).replace("expression:", f"{subject}:", 1)) from None


def _every(every: Any, grid: Grid) -> int:
    if every is None:
        return 1
    seconds: float = every.total_seconds()
    ticks = round(seconds / grid.tick)
    if ticks < 1 or not isclose(ticks * grid.tick, seconds, rel_tol=1e-9):
        raise ExpressionError(
            f"every: found {seconds:g} s, expected a multiple of the tick of {grid.tick:g} s"
        )
    return ticks
