"""A claim as a value: a sentence, a limit, and where the figure stands in the result of a command.

A claim belongs to one command, whose `--json` holds its figure. Nothing here measures anything: the command does, and
whoever doubts a row runs the command by hand.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

Result = dict[str, Any]
"""what a command writes with `--json`, and `took_s`: how many seconds it took"""


class FoundFigure(NamedTuple):
    """A figure, and where it was found if it is one of several."""

    value: float
    where: str = ""


class When(Enum):
    """Which runs a claim is judged in."""

    ALWAYS = "always"
    FULL_BUT_SHOWN = "full, but shown"
    """a quick run shows it, but is too small to judge it: a miss there breaks nothing"""
    FULL = "full only"
    """a quick run has nothing to show"""
    QUICK = "quick only"
    """about quick runs themselves; a miss there depends on what else the machine does, and breaks nothing"""


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that we say."""

    says: str
    measure: Callable[[Result], FoundFigure | float | None]
    """None: this result does not have it, as something is not installed"""
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""
    """stands behind the figure; "%" is for shares, which are fractions in JSON"""
    when: When = When.ALWAYS
    because: str = ""
    """why it is known not to hold; a claim with a reason breaks nothing, unless it misses its floor, too"""
    at_worst: float | None = None
    """the floor of a known miss: what is worse than this is worse than what is known"""
    strict: bool = False
    """whether the limit itself is a miss: "less than", not "at most\""""

    @property
    def asked(self) -> str:
        """The limit, for people."""
        least, most = (None if x is None else shown(x, self.unit) for x in (self.at_least, self.at_most))
        if least is not None and most is not None:
            return f"{least} to {most}"
        if least is not None:
            return f"more than {least}" if self.strict else f"at least {least}"
        return f"less than {most}" if self.strict else f"at most {most}"

    @property
    def limit(self) -> float | list[float] | None:
        """The limit, for programs; two numbers are a span."""
        both = [x for x in (self.at_least, self.at_most) if x is not None]
        return both if len(both) > 1 else both[0] if both else None

    def holds(self, value: float) -> bool:
        """Whether a figure is within the limit; NaN never is."""
        low = -float("inf") if self.at_least is None else self.at_least
        high = float("inf") if self.at_most is None else self.at_most
        return low < value < high if self.strict else low <= value <= high

    def as_known(self, value: float) -> bool:
        """Whether a miss is one that is known, and no worse than that; NaN never is."""
        if not self.because:
            return False
        if self.at_worst is None:
            return value == value
        return value <= self.at_worst if self.at_least is None else value >= self.at_worst


@dataclass(frozen=True, slots=True)
class Command:
    """One command, and all that its result is evidence for."""

    name: str
    """for `--only`"""
    theme: str
    """heading on the page"""
    words: tuple[str, ...]
    """what follows `sensorgrid`"""
    claims: tuple[Claim, ...]
    full: tuple[str, ...] = ()
    """further arguments of a full run"""
    quick: tuple[str, ...] | None = ("--quick",)
    """further arguments of a quick run; None: it has none"""
    timed: bool = False
    """whether its figures depend on the machine; otherwise the same seeds give the same figures anywhere"""
    limit_s: float = 3600.0
    """it hangs if it takes longer, even on a busy machine"""
    lacks: Callable[[], str] = lambda: ""
    """why it cannot be run here; empty if it can"""
    paths: Callable[[str], tuple[str, ...]] = lambda folder: ()
    """arguments that are paths, given the folder of the run"""
    shows: str = ""
    """what people read in place of the paths"""
    rooms: tuple[str, ...] = ()
    """folders and files of the package that can make a difference to its figures; none: all of them"""

    def arguments(self, quick: bool) -> tuple[str, ...] | None:
        """What follows `sensorgrid`, or None if there is nothing to run."""
        more = self.quick if quick else self.full
        return None if more is None else (*self.words, *more)

    def line(self, quick: bool) -> str:
        """The command as people type it; the full one where a quick run has none."""
        words = ("sensorgrid", *(self.arguments(quick) or self.arguments(False) or ()), self.shows)
        return " ".join(word for word in words if word)


def least(found: Iterable[FoundFigure]) -> FoundFigure | None:
    """The smallest figure; None if there is none."""
    return min(found, key=lambda one: one.value, default=None)


def most(found: Iterable[FoundFigure]) -> FoundFigure | None:
    """The largest figure; None if there is none."""
    return max(found, key=lambda one: one.value, default=None)


def shown(value: float, unit: str) -> str:
    """A figure as people read it."""
    if unit == "%":
        return f"{100 * value:.4g} %"
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{number} {unit}".rstrip()
