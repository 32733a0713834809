"""Where an operator would be calculated, and what that sends from broker to broker, before it runs.

It follows from the roster alone, as the inputs of every node do (`mechanisms/calculation.py`).
"""

from dataclasses import dataclass

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.codec import encode
from sensorgrid.overlay.derived import Derived, Formula, StreamName, blocks_of, home_of
from sensorgrid.overlay.formulas import ResultFormula, TermFormula
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.roster import Roster

RESULT_NUMBERS = 5
"""value, standard error, points, coverage, reason"""
VALUE_BYTES = 4


@dataclass(frozen=True, slots=True)
class PlannedStream:
    """One derived stream, and where it will be calculated."""

    kind: str
    """result, joint or edge"""
    name: StreamName
    what: str
    """for people"""
    broker: PeerId
    to: tuple[PeerId, ...]
    """other brokers that it is sent to"""
    bytes: int
    """of one tick of it, as a message"""


@dataclass(frozen=True, slots=True)
class Forecast:
    """All that is calculated for an operator."""

    streams: tuple[PlannedStream, ...]
    raw_bytes: int
    """per tick, between brokers, if values and standard errors went to the root instead"""

    @property
    def bytes(self) -> int:
        """Per tick, between brokers."""
        return sum(stream.bytes * len(stream.to) for stream in self.streams)

    @property
    def saving(self) -> float:
        """How many times fewer bytes than raw values."""
        return self.raw_bytes / self.bytes if self.bytes else float("inf")


def forecast(formula: ResultFormula, roster: Roster, entry: PeerId | None = None, tick: int = 0) -> Forecast:
    """What will be calculated where, for a client of broker `entry`; None: of the broker that has the result."""
    root = _place(formula, 1, roster)
    takers: dict[StreamName, dict[PeerId, None]] = {}
    streams: dict[StreamName, tuple[Formula, PeerId]] = {}
    edges: dict[tuple[int, int], TermFormula] = {}

    def visit(one: Formula, cell: int, taker: PeerId) -> None:
        name = StreamName(one.digest, cell)
        place = _place(one, cell, roster)
        takers.setdefault(name, {})
        if taker != place:
            takers[name][taker] = None
        if name in streams:
            return
        streams[name] = (one, place)
        inputs = one.inputs(cell, roster)
        if not inputs and isinstance(one, TermFormula):
            edges[one.reads(cell)[0], cell] = one
        for part, code in inputs:
            visit(part, code, place)

    visit(formula, 1, root if entry is None else entry)
    planned = tuple(
        _planned(name, one, place, tuple(takers[name]), roster, tick)
        for name, (one, place) in streams.items()
    )
    return Forecast(planned, sum(_raw(one, cell, roster, root) for (_, cell), one in edges.items()))


def _planned(
    name: StreamName, one: Formula, place: PeerId, to: tuple[PeerId, ...], roster: Roster, tick: int
) -> PlannedStream:
    blocks = blocks_of(one, name.cell, roster)
    if isinstance(one, ResultFormula):
        kind, what, numbers = "result", one.plan.name, RESULT_NUMBERS
    else:
        assert isinstance(one, TermFormula)
        kind = "joint" if one.inputs(name.cell, roster) else "edge"
        what, numbers = f"{one.term.function} of {one.term.attribute}", one.term.width
    message = Derived(name, tick, blocks, blocks, bytes(8 * numbers))
    return PlannedStream(kind, name, what, place, to, len(encode(message)))


def _place(one: Formula, cell: int, roster: Roster) -> PeerId:
    if not one.inputs(cell, roster):
        region = roster.by_cell.get((one.reads(cell)[0], cell))
        if region is not None:
            return region.owner
    home = home_of(StreamName(one.digest, cell), roster)
    assert home is not None, "a roster with members"
    return home


def _raw(one: TermFormula, cell: int, roster: Roster, root: PeerId) -> int:
    """Bytes of a region's values in the area, if they went to the root."""
    if _place(one, cell, roster) == root:
        return 0
    weights = one.term.weights(box_of(one.term.grid, cell))
    return 0 if weights is None else weights.points * VALUE_BYTES * len(one.reads(cell))
