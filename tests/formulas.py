"""A toy formula for tests of the network: sums of what regions hold, over trees of cells, perhaps with a look-back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from sensorgrid.index.codes import contains
from sensorgrid.model.block import Slab
from sensorgrid.model.errors import SensorGridError
from sensorgrid.overlay.derived import Floats
from sensorgrid.overlay.roster import Roster


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of an attribute over a cell, and how many points it is of."""

    attribute: int = 0
    window: int = 1

    @property
    def text(self) -> str:
        return f"sum {self.attribute} {self.window}"

    @property
    def digest(self) -> int:
        return int.from_bytes(blake2b(self.text.encode(), digest_size=8).digest()) >> 1

    def inputs(self, cell: int, roster: Roster) -> Sequence[tuple["Sum", int]]:
        if self.window > 1:
            return [(Sum(self.attribute), cell)]
        regions = [c for a, c in roster.by_cell if a == self.attribute and contains(cell, c)]
        if regions == [cell]:
            return []
        if len(regions) <= 2:
            return [(self, region) for region in regions]
        return [(self, cell << 1), (self, cell << 1 | 1)]

    def reads(self, cell: int) -> tuple[int, ...]:
        return (self.attribute,)

    def part(self, cell: int, blocks: Sequence[tuple[Slab, ...]]) -> Floats:
        values = [slab.values for slab in blocks[0]]
        return np.array([sum(float(v.sum()) for v in values), float(sum(v.size for v in values))])

    def merged(self, tick: int, history: Mapping[int, Sequence[Floats | None]]) -> Floats:
        found = [part for row in history.values() for part in row if part is not None]
        return np.sum(found, axis=0) if found else np.zeros(2)


def read(text: str) -> Sum:
    """A formula from its text."""
    word, _, rest = text.partition(" ")
    if word != "sum":
        raise SensorGridError(f"formula: found {word!r}, expected 'sum'")
    attribute, window = map(int, rest.split())
    return Sum(attribute, window)
