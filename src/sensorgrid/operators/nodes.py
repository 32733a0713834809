"""The normal form of an expression: what it means, whatever its spelling, as a tree of frozen nodes.

Units are resolved, areas are polygons, `a > b` is `b < a`, BETWEEN and IN are comparisons, what commutes is sorted.
Each node has a text of its own; its digest names the meaning.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sensorgrid.model.grid import Grid
from sensorgrid.operators import exact
from sensorgrid.operators.errors import ExpressionError
from sensorgrid.operators.term import Term, term_from


@dataclass(frozen=True)
class Fixed:
    """A number that is known beforehand; truths are 1 and 0."""

    value: float

    @cached_property
    def text(self) -> str:
        """Canonical."""
        return float(self.value).hex()

    window = 1
    parts: "tuple[Node, ...]" = ()


@dataclass(frozen=True)
class TermSample:
    """A term over the last ticks."""

    term: Term
    ticks: int = 1

    @cached_property
    def text(self) -> str:
        """Canonical."""
        return f"{self.term.digest}@{self.ticks}"

    @property
    def window(self) -> int:
        """Ticks that it looks at, this one included."""
        return self.ticks

    parts: "tuple[Node, ...]" = ()


@dataclass(frozen=True)
class Lag:
    """What a node was some ticks ago."""

    part: "Node"
    ticks: int

    @cached_property
    def text(self) -> str:
        """Canonical."""
        return f"(lag {self.part.text} {self.ticks})"

    @property
    def window(self) -> int:
        """Ticks that it looks at, this one included."""
        return self.part.window + self.ticks

    @property
    def parts(self) -> "tuple[Node, ...]":
        """What it is made of."""
        return (self.part,)


@dataclass(frozen=True)
class Held:
    """Whether a condition held at each of the last ticks."""

    part: "Node"
    ticks: int

    @cached_property
    def text(self) -> str:
        """Canonical."""
        return f"(held {self.part.text} {self.ticks})"

    @property
    def window(self) -> int:
        """Ticks that it looks at, this one included."""
        return self.part.window + self.ticks - 1

    @property
    def parts(self) -> "tuple[Node, ...]":
        """What it is made of."""
        return (self.part,)


@dataclass(frozen=True)
class Computed:
    """An operation on other nodes."""

    operation: str
    """+ - * / ^ = <> < <= and or not, or direction (of two components)"""
    parts: "tuple[Node, ...]"

    @cached_property
    def text(self) -> str:
        """Canonical."""
        return f"({self.operation} {' '.join(part.text for part in self.parts)})"

    @cached_property
    def window(self) -> int:
        """Ticks that it looks at, this one included."""
        return max(part.window for part in self.parts)


Node = Fixed | TermSample | Lag | Held | Computed

OPERATIONS = {
    "+": 2, "-": 2, "*": 2, "/": 2, "^": 2, "=": 2, "<>": 2, "<": 2, "<=": 2, "and": 0, "or": 0, "not": 1,
    "direction": 2,
}  # fmt: skip
"""of each operation: how many parts it has; 0: any number"""
_PARTS_MAX, _TICKS_MAX = 1000, 1 << 16
_COMMUTES = {"+", "*", "=", "<>"}


def computed(operation: str, *parts: Node) -> Node:
    """An operation in normal form."""
    if operation in (">", ">="):
        return computed({">": "<", ">=": "<="}[operation], *reversed(parts))
    if operation == "negative":
        return computed("*", Fixed(-1.0), *parts)
    if operation in ("and", "or"):
        flat = [
            p
            for part in parts
            for p in (part.parts if isinstance(part, Computed) and part.operation == operation else (part,))
        ]
        once = {part.text: part for part in flat}
        ordered = tuple(once[text] for text in sorted(once))
        return ordered[0] if len(ordered) == 1 else Computed(operation, ordered)
    if operation == "not" and isinstance(parts[0], Computed) and parts[0].operation == "not":
        return parts[0].parts[0]
    if operation in _COMMUTES:
        parts = tuple(sorted(parts, key=lambda part: part.text))
    return Computed(operation, parts)


def terms_of(node: Node) -> Iterator[Term]:
    """Every term of a tree, as often as it stands there."""
    if isinstance(node, TermSample):
        yield node.term
    for part in node.parts:
        yield from terms_of(part)


def digest_of(text: str) -> str:
    """A short name for a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def to_list(node: Node) -> list[Any]:
    """As plain values, for the wire; `node_from` reads it."""
    if isinstance(node, Fixed):
        return ["fixed", node.value]
    if isinstance(node, TermSample):
        return ["sample", node.term.to_dict(), node.ticks]
    if isinstance(node, Lag):
        return ["lag", to_list(node.part), node.ticks]
    if isinstance(node, Held):
        return ["held", to_list(node.part), node.ticks]
    return ["computed", node.operation, [to_list(part) for part in node.parts]]


def node_from(found: list[Any], grid: Grid) -> Node:
    """What `to_list` told, on a grid."""
    kind, first, *rest = found
    if kind == "fixed":
        return Fixed(float(first))
    if kind == "computed":
        if first not in OPERATIONS or not 1 <= len(rest[0]) <= _PARTS_MAX:
            raise ExpressionError(f"plan: found operation {first!r}, expected one of {', '.join(OPERATIONS)}")
        if OPERATIONS[first] not in (0, len(rest[0])):
            raise ExpressionError(
                f"plan: found {len(rest[0])} parts of {first!r}, expected {OPERATIONS[first]}"
            )
        return Computed(first, tuple(node_from(part, grid) for part in rest[0]))
    ticks = rest[0]
    if type(ticks) is not int or not 1 <= ticks <= _TICKS_MAX or kind not in ("sample", "lag", "held"):
        raise ExpressionError(f"plan: found {kind!r} of {ticks!r} ticks, expected 1 to {_TICKS_MAX}")
    if kind == "sample":
        term = term_from(first, grid)
        if term.whole.points * ticks > exact.ADDENDS_MAX or (ticks > 1 and "exact" in term.parameters):
            raise ExpressionError(
                f"plan: found {ticks} ticks of {term.whole.points:,} points, expected fewer"
            )
        return TermSample(term, ticks)
    part = node_from(first, grid)
    return Lag(part, ticks) if kind == "lag" else Held(part, ticks)
