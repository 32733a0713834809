"""An expression that cannot be right, with a caret under the place."""

from sensorgrid.model.errors import SensorGridError

_SHOWN = 100
"""characters of a line that are shown, around the place"""


class ExpressionError(SensorGridError, ValueError):
    """An expression that cannot be right; the message shows the place."""


def at(text: str, place: int, message: str, subject: str = "expression") -> ExpressionError:
    """An error at a place of a text.

    >>> print(at("mean(rian) > 20", 5, "found 'rian', expected rain, perhaps"))
    expression: found 'rian', expected rain, perhaps
      mean(rian) > 20
           ^
    """
    place = min(max(place, 0), len(text))
    first = text.rfind("\n", 0, place) + 1
    last = text.find("\n", place)
    line = text[first : len(text) if last < 0 else last].replace("\t", " ")
    column = place - first
    begin = max(0, column - _SHOWN // 2) if len(line) > _SHOWN else 0
    shown, dots = line[begin : begin + _SHOWN], "…" if begin else ""
    tail = "…" if begin + _SHOWN < len(line) else ""
    caret = " " * (column - begin + len(dots))
    return ExpressionError(f"{subject}: {message}\n  {dots}{shown}{tail}\n  {caret}^")
