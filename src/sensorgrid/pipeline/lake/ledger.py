"""The ledger: every raw measurement ends somewhere, and the counts add up.

    raw = used + flagged + ignored + duplicate + late + dead letter

A measurement is counted in the micro-batch in which it arrives. If a later look at its tick finds it bad (the
neighbour check, a spike that only the next value shows), it moves from used to flagged, in the batch that found
it; `moved` says how many, and the sum still holds.

Grids that were handed out add up as well, where they go to gateways:

    blocks = acknowledged + refused + handed

`handed` ones were given to the courier, whose own counts are in `sensorgrid.pipeline.delivery.waiting`.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

ENDS = ("used", "flagged", "ignored", "duplicate", "late", "dead_letter")
"""where a measurement may end"""
NONE = -(1 << 62)
"""a tick before all others"""


@dataclass(slots=True)
class Ledger:
    """Counts of one batch, or of many."""

    raw: int = 0
    """rows that arrived: one per value, one per record that could not be read"""
    used: int = 0
    flagged: int = 0
    ignored: int = 0
    """of attributes that the grid does not carry, with a value or without"""
    duplicate: int = 0
    late: int = 0
    dead_letter: int = 0
    moved: int = 0
    """measurements of earlier batches, or this one, that turned out bad: contained in used and flagged"""
    suspect: int = 0
    """measurements that their neighbours doubt: contained in used, with a larger error"""
    blocks: int = 0
    """grids of one attribute, region and tick that were published"""
    unobserved: int = 0
    """of these, without an observation within reach of any point"""
    acknowledged: int = 0
    """of these, by their gateway, at once"""
    refused: int = 0
    """of these, by their gateway, for ever"""
    handed: int = 0
    """of these, to the courier: their gateway did not answer at once"""
    newest: int = NONE
    """the newest tick among them"""
    tests: Counter[str] = field(default_factory=Counter)
    """flagged, by the test that failed"""

    def add(self, **counts: int) -> None:
        """Count something."""
        for name, value in counts.items():
            setattr(self, name, getattr(self, name) + value)

    def move(self, tests: dict[str, int], number: int) -> None:
        """So many used ones turned out bad (fewer, if negative: better knowledge cleared them)."""
        self.used -= number
        self.flagged += number
        self.moved += number
        self.tests.update(tests)

    def merge(self, other: "Ledger") -> None:
        """Add the counts of another one."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.newest = max(self.newest, other.newest)
        self.tests.update(other.tests)

    @property
    def balanced(self) -> bool:
        """Whether nothing was lost and nothing counted twice."""
        return bool(self.raw == sum(getattr(self, name) for name in ENDS))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self)
        found["tests"] = {k: v for k, v in sorted(self.tests.items()) if v and k}
        return found | {"balanced": self.balanced}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> "Ledger":
        """Read what `to_dict` wrote."""
        known = {k: v for k, v in found.items() if k in cls.__dataclass_fields__}
        return cls(**known | {"tests": Counter(known.get("tests", {}))})


_COUNTS = (
    "raw", *ENDS, "moved", "suspect", "blocks", "unobserved", "acknowledged", "refused", "handed",
)  # fmt: skip
