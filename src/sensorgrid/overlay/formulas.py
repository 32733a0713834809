"""Formulas of operators: what the derived streams of a network mean (`overlay/derived.py`, `sensorgrid.operators`).

A *result* has the terms of its operator as inputs, each over the whole grid. A *term* over a cell has the regions that
it meets as inputs, or, if those are more than `EDGES_MAX`, the four quarters of the cell. Over a region it is an edge.
A cell that lies wholly inside the area of a term is the same stream as for every other area; so is the sum of a mean.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from sensorgrid.index.codes import contains
from sensorgrid.model.block import Slab
from sensorgrid.model.box import Box
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.names import ERROR
from sensorgrid.operators.layer import Layer, Meeting
from sensorgrid.operators.meaning import WINDOW_MAX
from sensorgrid.operators.numbers import REASONS, Number
from sensorgrid.operators.plan import OperatorPlan, Term, plan_from
from sensorgrid.operators.term import term_from
from sensorgrid.overlay.derived import NUMBERS_MAX, TEXT_MAX, Floats, Formula
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.roster import Roster

EDGES_MAX = 8
"""regions that one joint merges; of more, it merges quarters"""
TERMS_MAX = 64
"""of one operator"""
READ_MAX = 4_096
"""formulas that are kept as they were read"""
LAYERS_MAX = 64
"""regions that are kept prepared, for the next formula that reads the same block"""


class FormulaError(SensorGridError, ValueError):
    """A text that is no formula."""


class ResultFormula:
    """An operator's result: value, standard error, points, coverage, and the place of its reason."""

    def __init__(self, plan: OperatorPlan) -> None:
        self.plan = plan
        self.digest = _number(plan.digest)
        self.window = plan.window

    @cached_property
    def text(self) -> str:
        """From which `FormulaReader` makes it again."""
        return json.dumps({"plan": self.plan.to_dict()}, separators=(",", ":"))

    def inputs(self, cell: int, roster: Roster) -> Sequence[tuple[Formula, int]]:
        """Its terms, over the whole grid."""
        return [(term, cell) for term in self._terms]

    @cached_property
    def _terms(self) -> list["TermFormula"]:
        return [TermFormula(term) for term in self.plan.terms]

    def reads(self, cell: int) -> tuple[int, ...]:
        """It reads no region."""
        raise AssertionError("a result has inputs")

    def part(self, cell: int, blocks: Sequence[tuple[Slab, ...]]) -> Floats:
        """It reads no region."""
        raise AssertionError("a result has inputs")

    def merged(self, tick: int, history: Mapping[int, Sequence[Floats | None]]) -> Floats:
        """The result at a tick."""
        names = [term.digest for term in self.plan.terms]
        merged = {
            at: {name: part for name, part in zip(names, row, strict=True) if part is not None}
            for at, row in history.items()
        }
        return numbers_of(self.plan.result(tick, merged))


class TermFormula:
    """One term of an operator over a cell."""

    window = 1

    def __init__(self, term: Term, layers: "Layers | None" = None) -> None:
        self.term = term
        self.digest = _number(term.digest)
        self.layers = Layers() if layers is None else layers
        index = term.grid.attributes.index
        error = term.attribute + ERROR
        mine = (index(term.attribute),)
        self._reads = (*mine, index(error)) if error in term.grid.attributes else mine
        self._meetings: dict[int, Meeting | None] = {}
        self._inputs: dict[int, tuple[frozenset[tuple[int, int]], list[tuple[Formula, int]]]] = {}
        """by cell: the regions of the roster that it was worked out for, and what was"""

    @cached_property
    def text(self) -> str:
        """From which `FormulaReader` makes it again."""
        return json.dumps({"term": self.term.to_dict()}, separators=(",", ":"))

    def inputs(self, cell: int, roster: Roster) -> Sequence[tuple[Formula, int]]:
        """Regions, or quarters of the cell; none if it is a region."""
        known = self._inputs.get(cell)
        if known is None or known[0] != roster.cells:
            known = self._inputs[cell] = (roster.cells, self._found(cell, roster))
        return known[1]

    def _found(self, cell: int, roster: Roster) -> list[tuple[Formula, int]]:
        attribute = self._reads[0]
        if (attribute, cell) in roster.by_cell:
            return []
        regions = [
            code
            for at, code in roster.by_cell
            if at == attribute and contains(cell, code) and self._meeting(code) is not None
        ]
        if len(regions) > EDGES_MAX:
            regions = [
                cell << 2 | quarter
                for quarter in range(4)
                if any(contains(cell << 2 | quarter, code) for code in regions)
            ]
        return [(self._over(code), code) for code in regions]

    def reads(self, cell: int) -> tuple[int, ...]:
        """Its attribute, and its standard error where the grid has one."""
        return self._reads

    def part(self, cell: int, blocks: Sequence[tuple[Slab, ...]]) -> Floats:
        """The partial of a region."""
        meeting = self._meeting(cell)
        if meeting is None:
            return np.empty(0)
        layer = self.layers.of(box_of(self.term.grid, cell), blocks)
        found: Floats = self.term.family.partials(meeting, layer)[0]
        return found

    def merged(self, tick: int, history: Mapping[int, Sequence[Floats | None]]) -> Floats:
        """The partial of a cell."""
        found = [part for part in history[tick] if part is not None and len(part)]
        return self.term.merge(found) if found else np.empty(0)

    def _meeting(self, code: int) -> Meeting | None:
        """Its area on a cell; None if they do not meet."""
        if code not in self._meetings:
            weights = self.term.weights(box_of(self.term.grid, code))
            self._meetings[code] = None if weights is None else Meeting([weights])
        return self._meetings[code]

    def _over(self, code: int) -> "TermFormula":
        """This term over a smaller cell: the one that others have too, if the cell lies wholly inside its area."""
        return TermFormula(shared_term(self.term, box_of(self.term.grid, code)), self.layers)


def shared_term(term: Term, box: Box) -> Term:
    """The plainest term that has the same partial over a box."""
    if term.function == "percentile" and term.parameters[1] == "exact":
        return term  # places in the partial are those of the area
    weights = term.weights(box)
    area = None if weights is not None and weights.is_whole else term.area
    function = "sum" if term.function == "mean" else term.function
    parameters = (0.5, *term.parameters[1:]) if term.function == "percentile" else term.parameters
    return Term(function, term.attribute, area, parameters, term.grid)


class Layers:
    """Blocks that were read last, prepared for formulas."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, ...], tuple[Sequence[tuple[Slab, ...]], Layer]] = OrderedDict()

    def of(self, box: Box, blocks: Sequence[tuple[Slab, ...]]) -> Layer:
        """Values of a box, with their errors."""
        key = tuple(id(slabs) for slabs in blocks)  # kept below, so nothing else can have it meanwhile
        known = self._kept.get(key)
        if known is None:
            values = _array(box, blocks[0])
            errors = _array(box, blocks[1]) if len(blocks) > 1 else None
            observed = all(slab.silent_s is None for slab in blocks[0])
            known = self._kept[key] = (blocks, Layer(values, errors, observed))
            if len(self._kept) > LAYERS_MAX:
                self._kept.popitem(last=False)
        return known[1]


class FormulaReader:
    """Makes formulas of their texts, which come from anybody."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.layers = Layers()
        self._read = lru_cache(maxsize=READ_MAX)(self._made)

    def __call__(self, text: str) -> Formula:
        """The formula of a text; `FormulaError` if it is none."""
        return self._read(text)

    def _made(self, text: str) -> Formula:
        if len(text) > TEXT_MAX:
            raise FormulaError(f"formula: found {len(text):,} characters, expected at most {TEXT_MAX:,}")
        try:
            found = json.loads(text)
            if "term" in found:
                return self._term(term_from(found["term"], self.grid))
            plan = plan_from(found["plan"], self.grid)
            if len(plan.terms) > TERMS_MAX or not 1 <= plan.window <= WINDOW_MAX or plan.every < 1:
                raise FormulaError(
                    f"formula: found {len(plan.terms)} terms over {plan.window} ticks, expected at most"
                    f" {TERMS_MAX} over {WINDOW_MAX}"
                )
            for term in plan.terms:
                self._term(term)
            return ResultFormula(plan)
        except FormulaError:
            raise
        except (
            AssertionError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError,
            SensorGridError,
        ) as error:  # fmt: skip
            what = str(error) if isinstance(error, SensorGridError) else "something else"
            raise FormulaError(
                f"formula: found {what}, expected what a client of this version says"
            ) from None

    def _term(self, term: Term) -> "TermFormula":
        if term.attribute not in self.grid.attributes:
            raise FormulaError(
                f"formula: found the attribute {term.attribute!r}, expected one that is known here"
            )
        if term.width > NUMBERS_MAX:
            raise FormulaError(
                f"formula: found {term.width:,} numbers in a partial, expected at most {NUMBERS_MAX:,}"
            )
        return TermFormula(term, self.layers)


def numbers_of(result: Number) -> Floats:
    """A result as it travels."""
    return np.array([*result[:4], REASONS.index(result.reason)], np.float64)


def number_of(packed: bytes) -> Number | None:
    """A result again; None if there is nothing at all."""
    if not packed:
        return None
    value, error, points, coverage, reason = np.frombuffer(packed, "<f8").tolist()
    return Number(value, error, int(points), coverage, REASONS[int(reason)])


def _array(box: Box, slabs: tuple[Slab, ...]) -> Any:
    """Values of a box [y, x]; not a number where no slab has one."""
    found = np.full((box.y1 - box.y0, box.x1 - box.x0), np.nan, np.float32)
    for slab in slabs:
        (y0, y1, dy), (x0, x1, dx) = slab.y, slab.x
        found[y0 - box.y0 : y1 - box.y0 : dy, x0 - box.x0 : x1 - box.x0 : dx] = slab.values
    return found


def _number(digest: str) -> int:
    return int(digest[:16], 16) >> 1
