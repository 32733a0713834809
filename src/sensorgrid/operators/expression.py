"""An expression as it was read: frozen values that know where in the text they stood."""

from dataclasses import dataclass, field
from typing import Literal

from sensorgrid.operators.areas import Area

Kind = Literal["number", "text", "truth", "attribute", "area", "list", "call", "operation"]


@dataclass(frozen=True, slots=True)
class Expression:
    """A part of an expression, with the parts that it is made of.

    >>> from sensorgrid.operators.reading import parse
    >>> parse("mean(air_temperature) > 300", {"air_temperature": "K"}, {}).value
    '>'
    """

    kind: Kind
    value: float | str | bool | Area | None = None
    """number, text, truth or area itself; name of an attribute, function or operation"""
    parts: "tuple[Expression, ...]" = ()
    place: int = field(default=0, compare=False)
    """where it begins in the text; two expressions that differ in this only are equal"""
    text: str = field(default="", compare=False, repr=False)
    """the whole text, for messages"""
