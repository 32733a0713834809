"""Many plans over one grid, tick by tick, side by side.

Equal terms are computed once, whichever plans they come from. Terms of one function and attribute are computed
together, finished together, and plans of one shape are evaluated together, so that a plan costs a few microseconds a
tick. The numbers are those of `OperatorPlan.result`, bit for bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sensorgrid.model.box import Box
from sensorgrid.operators.evaluation import Program, program_of, run, shape_of
from sensorgrid.operators.layer import Layer, Meeting
from sensorgrid.operators.nodes import Node, TermSample
from sensorgrid.operators.numbers import (
    FINE,
    INACTIVE,
    NO_DATA,
    NOT_DUE,
    Floats,
    Numbers,
    chosen,
    columns_of,
    missing,
)
from sensorgrid.operators.partials.interface import Terrain
from sensorgrid.operators.plan import OperatorPlan, activity
from sensorgrid.operators.term import Term
from sensorgrid.operators.weights import Ints, Weights


class TermGroup:
    """Terms of one function, attribute and parameters, over many areas."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = tuple(terms)
        self.family = terms[0].family
        self.attribute = terms[0].attribute
        self._meetings: dict[Box, tuple[Ints, Meeting] | None] = {}

    @cached_property
    def _totals(self) -> Floats:
        return np.array([term.whole.total for term in self.terms])

    @cached_property
    def _damping(self) -> Floats:
        return np.array([term.damping for term in self.terms])

    def meeting(self, box: Box) -> tuple[Ints, Meeting] | None:
        """Which terms meet a box, and their weights there; None if none does."""
        if box not in self._meetings:
            found: list[tuple[int, Weights]] = []
            for number, term in enumerate(self.terms):
                weights = term.weights(box)
                if weights is not None:
                    found.append((number, weights))
            which = np.array([number for number, _ in found], np.int64)
            self._meetings[box] = (which, Meeting([w for _, w in found])) if found else None
        return self._meetings[box]

    def partials(self, box: Box, layer: Layer) -> tuple[Ints, Floats] | None:
        """Which terms meet a box, and their partials of it."""
        found = self.meeting(box)
        return None if found is None else (found[0], self.family.partials(found[1], layer))

    def merge(self, into: Floats, there: Any, which: Ints, partials: Floats) -> None:
        """Merge partials of some terms into those of all; `there` says which have any."""
        known = there[which]
        if known.any():
            both = np.stack([into[which[known]], partials[known]])
            into[which[known]] = self.family.merge(both)
        into[which[~known]] = partials[~known]
        there[which] = True

    def finish(self, merged: Floats, there: Any, ticks: int) -> Numbers:
        """The numbers of all terms."""
        if not there.any():
            return missing(len(self.terms), NO_DATA)
        told = self.family.finish(merged, Terrain(self._totals * ticks, self._damping))
        if there.all():
            return told
        return chosen(there, told, missing(len(self.terms), NO_DATA))


Merged = dict[int, tuple[Floats, Any]]
"""number of a group → partials of all its terms, and which of them have any"""
FieldParts = tuple[Any, Any, Any]
"""values, errors, observed; see `Layer`"""


@dataclass(frozen=True, slots=True)
class _Shape:
    """Plans of one shape."""

    which: Ints
    """their numbers"""
    programs: tuple[Program | None, ...]
    """of value, when, until"""
    samples: tuple[tuple[int, Ints], ...]
    """groups of samples: ticks, and places among all terms"""
    every: int


class PlanBatch:
    """Plans of one grid that are evaluated together.

    Parameters
    ----------
    plans
        What to evaluate.
    boxes
        The regions that fields come in; the whole grid if left out.
    """

    def __init__(self, plans: Sequence[OperatorPlan], boxes: Sequence[Box] | None = None) -> None:
        self.plans = tuple(plans)
        nx, ny = plans[0].grid.shape
        self.boxes = (Box(0, nx, 0, ny),) if boxes is None else tuple(boxes)
        once = {term.digest: term for plan in plans for term in plan.terms}
        by_key: dict[Any, list[Term]] = {}
        for digest in sorted(once):
            term = once[digest]
            alone = digest if term.parameters[1:] == ("exact",) else ""
            by_key.setdefault((term.function, term.attribute, term.parameters, alone), []).append(term)
        self.groups = [TermGroup(terms) for terms in by_key.values()]
        self._place: dict[str, int] = {}
        for group in self.groups:
            for term in group.terms:
                self._place[term.digest] = len(self._place)
        self.window = max(plan.window for plan in plans)
        self.attributes = tuple(sorted({group.attribute for group in self.groups}))
        self._shapes = [self._shape(which) for which in self._alike()]
        self._history: dict[int, Merged] = {}
        self._numbers: dict[tuple[int, int], Numbers] = {}

    def _alike(self) -> Iterator[list[int]]:
        """Numbers of plans of one shape."""
        first: dict[str, int] = {}
        by_shape: dict[Any, list[int]] = {}
        self._same = np.zeros(len(self.plans), np.int64)
        for number, plan in enumerate(self.plans):
            same = first.setdefault(plan.digest, number)
            self._same[number] = same
            if same == number:  # equal plans are evaluated once
                nodes = (plan.value, plan.when, plan.until)
                key = (*("" if node is None else shape_of(node) for node in nodes), plan.every)
                by_shape.setdefault(key, []).append(number)
        yield from by_shape.values()

    def _shape(self, which: list[int]) -> _Shape:
        plans = [self.plans[n] for n in which]
        samples: list[list[TermSample]] = []

        def program(nodes: list[Node | None]) -> Program | None:
            there = [node for node in nodes if node is not None]
            return program_of(there, samples) if there else None

        programs = tuple(
            program([getattr(plan, part) for plan in plans]) for part in ("value", "when", "until")
        )
        places = tuple(
            (group[0].ticks, np.array([self._place[s.term.digest] for s in group], np.int64))
            for group in samples
        )
        return _Shape(np.array(which, np.int64), programs, places, plans[0].every)

    def partials(self, box: Box, fields: Mapping[str, FieldParts]) -> Iterator[tuple[int, Ints, Floats]]:
        """Number of each group, which of its terms meet a region, and their partials of it."""
        layers = {name: Layer(*fields[name]) for name in self.attributes if name in fields}
        for number, group in enumerate(self.groups):
            if group.attribute in layers:
                found = group.partials(box, layers[group.attribute])
                if found is not None:
                    yield number, *found

    def take(self, tick: int, box: Box, fields: Mapping[str, FieldParts]) -> None:
        """Take in the fields of a region at a tick; each region once."""
        self.add(tick, self.partials(box, fields))

    def add(self, tick: int, partials: Iterator[tuple[int, Ints, Floats]]) -> None:
        """Take in partials of a region at a tick."""
        merged = self._history.setdefault(tick, {})
        for number, which, found in partials:
            group = self.groups[number]
            if number not in merged:
                merged[number] = (
                    np.zeros((len(group.terms), group.family.width)),
                    np.zeros(len(group.terms), bool),
                )
            group.merge(*merged[number], which, found)
        for key in [(t, ticks) for t, ticks in self._numbers if t - ticks < tick <= t]:
            del self._numbers[key]  # their windows hold this tick

    def forget(self, before: int) -> None:
        """Drop ticks that no later result looks at."""
        for tick in [t for t in self._history if t < before]:
            del self._history[tick]
        for key in [k for k in self._numbers if k[0] < before]:
            del self._numbers[key]

    def results(self, tick: int) -> Numbers:
        """The results of all plans at a tick, in order."""
        count = len(self.plans)
        columns = [np.array(column) for column in columns_of(missing(count, NOT_DUE))]
        for shape in self._shapes:
            if tick % shape.every == 0:
                for column, found in zip(columns, columns_of(self._run(shape, tick)), strict=True):
                    column[shape.which] = found
        return Numbers(*(column[self._same] for column in columns))

    def _run(self, shape: _Shape, tick: int) -> Numbers:
        def runner(program: Program) -> Callable[[int], Numbers]:
            return lambda at: run(program, at, lambda group, moment: self._sampled(shape, group, moment))

        value, when, until = shape.programs
        assert value is not None, "every plan has one"
        found = runner(value)(tick)
        if when is None:
            return found
        reason = activity(runner(when), None if until is None else runner(until), tick)
        none = replace(missing(len(found), INACTIVE), reason=reason)
        return chosen(reason == FINE, found, none)

    def _sampled(self, shape: _Shape, group: int, tick: int) -> Numbers:
        ticks, places = shape.samples[group]
        return self._all(tick, ticks).take(places)

    def _all(self, tick: int, ticks: int) -> Numbers:
        """The numbers of all terms over a window."""
        if (tick, ticks) not in self._numbers:
            found = [self._finished(number, tick, ticks) for number in range(len(self.groups))]
            columns = [np.concatenate(parts) for parts in zip(*map(columns_of, found), strict=True)]
            self._numbers[tick, ticks] = Numbers(*columns)
        return self._numbers[tick, ticks]

    def _finished(self, number: int, tick: int, ticks: int) -> Numbers:
        group = self.groups[number]
        if ticks > 1 and group.terms[0].parameters[1:] == ("exact",):
            return missing(len(group.terms), NO_DATA)  # never asked for: windows are counted in bins
        merged, there = None, np.zeros(len(group.terms), bool)
        for at in range(tick - ticks + 1, tick + 1):
            found = self._history.get(at, {}).get(number)
            if found is None:
                continue
            if merged is None:
                merged, there = found if ticks == 1 else (found[0].copy(), found[1].copy())
            else:
                which = np.flatnonzero(found[1])
                group.merge(merged, there, which, found[0][which])
        return missing(len(group.terms), NO_DATA) if merged is None else group.finish(merged, there, ticks)
