"""From text (OGC CQL2-Text) to an expression.

The package `cql2` reads the language. It recurses, tries again and takes what it gets: a text with many brackets
overflows its stack, one with twenty open brackets keeps it busy for seconds, and 1e400 becomes infinity. So a scan of
our own looks at the text first and refuses what is too long, too deep, unbalanced or not finite. The same scan knows
where each name and number stands, which `cql2` does not tell: the parts of its tree stand in the order of the text.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import cql2

from sensorgrid.model.spelling import nearest
from sensorgrid.operators.areas import Area, AreaError, area_from_bbox, area_from_geojson
from sensorgrid.operators.errors import ExpressionError, at
from sensorgrid.operators.expression import Expression

LENGTH_MAX = 20_000
"""characters"""
DEPTH_MAX = 12
"""brackets inside each other: `cql2` takes twice as long for each, if the text is wrong"""
PARTS_MAX = 1_000
"""names, numbers, texts and signs outside of coordinates"""
PREFIXES_MAX = 8
"""NOT or minus before each other"""
NESTING_MAX = 100
"""parts inside each other, brackets or not: a < b < c is three"""

FUNCTIONS = (
    "mean", "sum", "count", "min", "max", "std", "percentile", "difference", "rate", "hold", "q",
)  # fmt: skip
"""what can be called"""
OPERATIONS = {
    "+", "-", "*", "/", "^", "=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "between", "in",
}  # fmt: skip

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<geometry>(?:MULTI)?(?:POINT|LINESTRING|POLYGON)|GEOMETRYCOLLECTION|BBOX|ENVELOPE)(?=\s*Z?\s*\()
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_.:]*)
    |(?P<quoted>"[^"]*")
    |(?P<text>'(?:[^'\\]|''|\\')*')
    |(?P<sign><>|<=|>=|!=|[-+*/^%=<>(),])""",
    re.VERBOSE | re.IGNORECASE,
)
_WORDS = {"and", "or", "not", "between", "in", "is", "null", "true", "false", "like", "div"}


class Token(NamedTuple):
    """A name, number, text or sign of the text."""

    kind: str
    text: str
    place: int


def parse(
    text: str, attributes: Mapping[str, str], areas: Mapping[str, Area], subject: str = "expression"
) -> Expression:
    """Read an expression.

    Parameters
    ----------
    text
        CQL2-Text, such as ``mean(precipitation_amount, 'A') > 20``.
    attributes
        What the grid carries, with units.
    areas
        Areas that the expression may name.
    subject
        What messages call it.
    """
    if not isinstance(text, str) or not text.strip():
        raise ExpressionError(
            f"{subject}: found {text!r}, expected an expression such as mean(air_temperature)"
        )
    if len(text) > LENGTH_MAX:
        raise at(
            text, LENGTH_MAX, f"found {len(text):,} characters, expected at most {LENGTH_MAX:,}", subject
        )
    try:
        pieces = _scan(text)
        tree = _tree(text)
        return _Reader(text, attributes, areas, pieces).read(tree, 0)
    except ExpressionError as error:
        raise ExpressionError(str(error).replace("expression:", f"{subject}:", 1)) from None


def _scan(text: str) -> list[Token]:
    """The names, numbers and texts in order; refuses what `cql2` must not see."""
    pieces, open_at, place, counted, prefixes = [], list[int](), 0, 0, 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            what = "a text without an end" if text[place] in "'\"" else f"{text[place]!r}"
            raise at(text, place, f"found {what}, expected a name, a number, a text or a sign")
        kind, said = str(found.lastgroup), found[0]
        if kind == "geometry":
            end = _end_of_geometry(text, found.end())
            pieces.append(Token("geometry", text[place:end], place))
            place, counted, prefixes = end, counted + 1, 0
            continue
        if kind == "number" and not math.isfinite(float(said)):
            raise at(text, place, f"found {said}, which is no finite number, expected one")
        if said == "(":
            open_at.append(place)
        elif said == ")" and not open_at:
            raise at(text, place, "found ) without (, expected one for each")
        elif said == ")":
            open_at.pop()
        if len(open_at) > DEPTH_MAX:
            raise at(text, place, f"found more than {DEPTH_MAX} brackets inside each other, expected fewer")
        if kind != "space":
            counted += 1
            prefixes = prefixes + 1 if said.lower() in ("not", "-") else 0
        if counted > PARTS_MAX:
            raise at(text, place, f"found more than {PARTS_MAX:,} names, numbers and signs, expected fewer")
        if prefixes > PREFIXES_MAX:
            raise at(
                text, place, f"found more than {PREFIXES_MAX} of {said} before each other, expected fewer"
            )
        if kind in ("number", "text", "quoted") or (kind == "name" and said.lower() not in _WORDS):
            pieces.append(Token("name" if kind == "quoted" else kind, said, place))
        place = found.end()
    if open_at:
        raise at(text, open_at[-1], "found ( without ), expected one for each")
    return pieces


def _end_of_geometry(text: str, place: int) -> int:
    """The character after the last bracket of coordinates."""
    depth = 0
    for at_place in range(place, len(text)):
        character = text[at_place]
        if character == "(":
            depth += 1
            if depth > 4:
                break
        elif character == ")":
            depth -= 1
            if depth == 0:
                return at_place + 1
        elif character not in " \t\n,.+-0123456789eEzZ":
            raise at(text, at_place, f"found {character!r} among coordinates, expected numbers")
    raise at(text, place, "found coordinates without an end, expected a bracket that closes them")


def _tree(text: str) -> Any:
    try:
        return cql2.parse_text(text).to_json()
    except cql2.ParseError as error:
        found = re.search(r"--> (\d+):(\d+)", str(error))
        line, column = (int(found[1]), int(found[2])) if found else (1, 1)
        place = sum(len(part) + 1 for part in text.split("\n")[: line - 1]) + column - 1
        said = "the end" if place >= len(text) else repr(text[place : place + 10].split()[0][:10])
        raise at(text, place, f"found {said}, expected an expression in CQL2") from None
    except (RecursionError, ValueError, cql2.ValidationError) as error:
        raise at(text, 0, f"found no CQL2 ({str(error)[:80]}), expected an expression") from None


class _Reader:
    """Walks the tree of `cql2` beside the pieces of the text."""

    def __init__(
        self, text: str, attributes: Mapping[str, str], areas: Mapping[str, Area], pieces: list[Token]
    ) -> None:
        self.text, self.attributes, self.areas = text, attributes, areas
        self.pieces, self.next = pieces, 0
        self.place = 0

    def read(self, tree: Any, depth: int) -> Expression:
        """A part of the tree."""
        if depth > NESTING_MAX:
            raise self._at(f"found more than {NESTING_MAX} parts inside each other, expected fewer")
        if isinstance(tree, bool):
            return self._made("truth", tree)
        if isinstance(tree, int | float):
            self._next("number", None)
            if not math.isfinite(tree):
                raise self._at("found a number that is not finite, expected one that is")
            return self._made("number", float(tree))
        if isinstance(tree, str):
            self._next("text", None)
            return self._made("text", tree)
        if isinstance(tree, list):
            place = self.place
            parts = tuple(self.read(part, depth + 1) for part in tree)
            return self._made("list", None, parts, place)
        if isinstance(tree, dict):
            return self._object(tree, depth)
        raise self._at(f"found {tree!r}, expected a number, a name or a function")

    def _object(self, tree: dict[str, Any], depth: int) -> Expression:
        if "property" in tree:
            return self._attribute(str(tree["property"]))
        if "type" in tree or "bbox" in tree:
            self._next("geometry", None)
            try:
                area = area_from_bbox(tree["bbox"]) if "bbox" in tree else area_from_geojson(tree)
            except AreaError as error:
                raise self._at(str(error)) from None
            return self._made("area", area)
        name, parts = str(tree.get("op", "")), tree.get("args", [])
        if name.lower() in OPERATIONS:
            if name == "*" and len(parts) == 2 and parts[0] == -1.0 and not self._is_minus_one():
                inner = self.read(parts[1], depth + 1)  # cql2 makes -1 * a of -a
                return self._made("operation", "negative", (inner,), inner.place)
            made = tuple(self.read(part, depth + 1) for part in parts)
            return self._made("operation", name.lower(), made, made[0].place if made else self.place)
        return self._call(name, parts, depth)

    def _attribute(self, name: str) -> Expression:
        self._next("name", name)
        if name not in self.attributes:
            if name.lower() in FUNCTIONS:
                raise self._at(f"found {name!r} without brackets, expected {name.lower()}(attribute, …)")
            raise self._at(f"found attribute {name!r}, expected {nearest(name, self.attributes)}")
        return self._made("attribute", name)

    def _call(self, name: str, parts: list[Any], depth: int) -> Expression:
        self._next("name", name)
        place = self.place
        if name.lower() not in FUNCTIONS:
            raise self._at(f"found function {name!r}, expected {nearest(name.lower(), FUNCTIONS)}")
        made = tuple(self.read(part, depth + 1) for part in parts)
        return self._made("call", name.lower(), made, place)

    def _next(self, kind: str, name: str | None) -> None:
        """Go to the piece of the text that a part of the tree was made of."""
        for number in range(self.next, len(self.pieces)):
            piece = self.pieces[number]
            if piece.kind == kind and (name is None or piece.text.strip('"').lower() == name.lower()):
                self.place, self.next = piece.place, number + 1
                return

    def _is_minus_one(self) -> bool:
        """Whether the text says -1 itself, and not only a sign."""
        piece = self.pieces[self.next] if self.next < len(self.pieces) else None
        return piece is not None and piece.kind == "number" and float(piece.text) == 1.0

    def _made(self, kind: Any, value: Any, parts: Any = (), place: int | None = None) -> Expression:
        return Expression(kind, value, parts, self.place if place is None else place, self.text)

    def _at(self, message: str) -> ExpressionError:
        return at(self.text, self.place, message)
