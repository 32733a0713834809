"""Several queries on one connection; points that they share cross the link once.

A *demand* is what one stream wants. It is served by *channels*, the queries that the session really poses. If another
demand of this connection already gets some of its points, a demand takes them from the other's channels and poses only
the rest. Each demand's assembly keeps what it needs. So:

* What two demands have in common is asked for by the one that came first. The rest of the second is, per
  attribute, its box without the first one's box, and where the boxes overlap its finer ranks: cells of its own
  query, cut until each is wanted or not. Cells end at the network's depth; what is mixed there is asked for, and
  its common points come twice.
* A demand that begins before the ticks that a channel will bring next first catches up by itself, up to the tick
  from which it shares.
* When a demand ends, its channels end. Demands that shared them ask for themselves, each from the tick that it needs
  next; brokers keep recent ticks for that.

A demand is admitted when all channels that serve it are; nothing is given before, as no tick is whole. If it is
paused (its consumer is slow), interrupted, or one of its parts lags behind too far, it starts again from its next
tick, so that nothing is lost that the network still has. If it wants revisions, it starts with the ticks that it was
given last, as they may have been revised meanwhile: a session leaves out what lies before the start of a query.

There is no I/O here: events for the session come out of `events`, effects of the session go into `handle`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sensorgrid.client.assembly import Assembly
from sensorgrid.index.decompose import decompose_box_within, points_in
from sensorgrid.index.layout import layout_of
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import Instant, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay.events import Cancelled, Deliver, Effect, Event, Reply, Submitted
from sensorgrid.overlay.messages import Why

CELLS_MAX = 256
"""of a rest"""
RETRY_S, RETRY_MAX_S = 0.5, 10.0
"""pauses before an interrupted demand is posed again; doubling"""
NEW_ATTEMPTS = 5
"""tries of a demand that never ran, some fifteen seconds, until it is refused"""

Limits = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class QueryPart:
    """Points of a query: those inside a box, in some cells."""

    box: Box
    """not across the date line"""
    cells: tuple[int, ...]


@dataclass(eq=False, slots=True)
class Channel:
    """A query of the session, and who takes from it."""

    id: QueryId
    demand: "Demand"
    box: Box
    limits: Limits
    attributes: tuple[str, ...]
    begin: int
    front: int
    """no tick from here on has come yet"""
    until: int | None
    status: str = "pending"
    """pending, admitted, suspended"""
    reason: str = ""
    takers: "dict[Demand, int]" = field(default_factory=dict)
    """each from which tick on"""


@dataclass(eq=False, slots=True)
class Demand:
    """What one stream wants, and where it gets it."""

    query: Query
    assembly: Assembly
    status: str = "pending"
    """pending, running, suspended, paused, refused, ended"""
    reason: str = ""
    """of being suspended or refused"""
    ran: bool = False
    """it was admitted once: from then on it is never given up"""
    channels: dict[QueryId, Channel] = field(default_factory=dict)
    """its own"""
    borrowed: dict[QueryId, Channel] = field(default_factory=dict)
    """others' that it takes from"""
    attempts: int = 0
    due: Instant | None = None
    """when an interrupted demand is posed again"""


class Sharing:
    """The demands of one connection."""

    def __init__(self, grid: Grid, depth: int, cells_max: int) -> None:
        self.grid = grid
        self.depth = min(depth, layout_of(grid).digits)
        self.cells_max = cells_max
        self.now: Instant = 0.0
        self.demands: dict[Demand, None] = {}
        self.channels: dict[QueryId, Channel] = {}
        self.events: list[Event] = []
        """for the session, in order"""
        self.touched: dict[Demand, None] = {}
        """demands that may have ticks or news; cleared by the reader"""
        self._last = 0

    # -- what streams do

    def pose(self, demand: Demand) -> None:
        """Get a demand served, from its next tick on."""
        self.demands[demand] = None
        demand.status, demand.due = "pending", None
        self.touched[demand] = None
        assembly = demand.assembly
        start, until = assembly.since, assembly.until
        rests, borrowed = self._plan(demand)
        turn = max([assembly.next, *(channel.front for channel in borrowed)])
        for channel in borrowed:  # which bring no revisions of ticks before their own begin
            if start < channel.begin:
                turn = max(turn, channel.begin + assembly.lateness)
        if not borrowed or (until is not None and turn >= until):
            self._submit(demand, demand.query, start, until)
            return
        assembly.expects_repeats = True
        if turn > start:
            self._submit(demand, demand.query, start, turn)
        for channel in borrowed:
            channel.takers[demand] = turn
            demand.borrowed[channel.id] = channel
        limits = demand.query.effective_resolution(self.grid)
        for part, names in rests.items():
            where = {name: (low, high) for name, low, high in demand.query.where if name in names}
            query = Query(names, self.grid.bbox_of(part.box), limits, where=where)
            self._submit(demand, query, max(start, turn - assembly.lateness), until, part.cells)
        self._settle(demand)

    def pause(self, demand: Demand) -> None:
        """Want nothing for the time being."""
        if demand.status not in ("paused", "refused", "ended"):
            self._withdraw(demand)
            demand.status = "paused"

    def end(self, demand: Demand, status: str = "ended", reason: str = "") -> None:
        """Want nothing any more."""
        if demand in self.demands:
            del self.demands[demand]
            demand.status, demand.reason = status, reason
            self.touched[demand] = None
            self._withdraw(demand)

    def shared(self, query: Query) -> int:
        """Points per tick of a query that would not cross the link again."""
        parts = self._cover(query)
        total = query.size(self.grid).points_per_tick
        fresh = 0
        for name in query.attributes:
            rest = parts
            for other in self._others(None, name, query, None):
                rest = self._without(rest, query.limits(self.grid), other)
            fresh += sum(self._points(query, part) for part in rest)
        return max(0, total - fresh)

    # -- what the session says

    def handle(self, effect: Effect) -> None:
        """A `Deliver` or a `Reply`."""
        if isinstance(effect, Deliver):
            channel = self.channels.get(effect.query)
            if channel is not None:
                self._delivered(channel, effect)
        elif isinstance(effect, Reply):
            channel = self.channels.get(effect.query)
            if channel is not None:
                self._replied(channel, effect)

    def next_wakeup(self) -> Instant | None:
        """When an interrupted demand is due."""
        return min((d.due for d in self.demands if d.due is not None), default=None)

    def woke(self, now: Instant) -> None:
        """Pose again what is due, and interrupt what has run too far ahead of a part that lags."""
        self.now = now
        for demand in list(self.demands):
            if demand.due is not None and demand.due <= now:
                self.pose(demand)

    def overrun(self, demand: Demand) -> None:
        """More ticks are under way than memory is meant for: start again from the next one, later."""
        self._interrupt(demand, "a part of it lags behind")

    # -- inside

    def _submit(
        self,
        demand: Demand,
        query: Query,
        start: int,
        until: int | None,
        cells: tuple[int, ...] | None = None,
    ) -> None:
        self._last += 1
        number = QueryId(self._last)
        box, limits = query.box(self.grid), query.limits(self.grid)
        channel = Channel(number, demand, box, limits, query.attributes, start, start, until)
        channel.takers[demand] = start
        self.channels[number] = demand.channels[number] = channel
        self.events.append(Submitted(number, query, start, until, cells))

    def _delivered(self, channel: Channel, block: Deliver) -> None:
        tick = block.tick
        stop = tick + 1 if block.slabs is not None else max(block.until, tick + 1)
        channel.front = max(channel.front, stop)
        for demand, first in channel.takers.items():
            if block.slabs is not None:
                if tick < first and not (block.revision > 0 or demand.assembly.keeps(tick)):
                    continue
                demand.assembly.add(block.attribute, tick, block.revision, block.slabs)
            elif stop > first:
                demand.assembly.add_gap(
                    block.attribute, channel.box, channel.limits, block.cell, max(tick, first), stop
                )
            self.touched[demand] = None

    def _replied(self, channel: Channel, reply: Reply) -> None:
        match reply.status:
            case "admitted" | "resumed":
                channel.status, channel.reason = "admitted", ""
            case "suspended":
                channel.status, channel.reason = "suspended", reply.reason
            case "finished":
                self._drop(channel)
            case "refused":
                self._refused(channel, reply)
                return
            case _:
                return
        for demand in list(channel.takers):
            self._settle(demand)

    def _refused(self, channel: Channel, reply: Reply) -> None:
        mine = channel.demand
        others = [demand for demand in channel.takers if demand is not mine]
        self._drop(channel)
        # Lack of bandwidth is an answer; that nobody answers may change in a moment, as a broker starts again.
        if mine.ran or (reply.why is not Why.NO_ROOM and mine.attempts < NEW_ATTEMPTS):
            self._interrupt(mine, reply.reason)
        else:
            self.end(mine, "refused", reply.reason)
        for demand in others:  # they may have better luck by themselves
            if demand in self.demands and demand.status != "paused" and demand.due is None:
                self._again(demand)

    def _settle(self, demand: Demand) -> None:
        """Where a demand stands, from where its channels stand."""
        if demand.status in ("paused", "refused", "ended") or demand.due is not None:
            return
        before = demand.status, demand.reason
        serving = [*demand.channels.values(), *demand.borrowed.values()]
        halted = [channel for channel in serving if channel.status == "suspended"]
        if halted:
            demand.status, demand.reason = "suspended", halted[0].reason
        elif all(channel.status == "admitted" for channel in serving):
            demand.status, demand.reason, demand.ran, demand.attempts = "running", "", True, 0
        if (demand.status, demand.reason) != before:
            self.touched[demand] = None

    def _interrupt(self, demand: Demand, reason: str) -> None:
        self._withdraw(demand)
        demand.status, demand.reason = "suspended", reason
        demand.due = self.now + min(RETRY_S * 2**demand.attempts, RETRY_MAX_S)
        demand.attempts = min(demand.attempts + 1, 30)
        self.touched[demand] = None

    def _again(self, demand: Demand) -> None:
        self._withdraw(demand)
        self.pose(demand)

    def _withdraw(self, demand: Demand) -> None:
        """End all that serves a demand; demands that shared its channels ask for themselves."""
        demand.due = None
        demand.assembly.reset()
        for channel in demand.borrowed.values():
            channel.takers.pop(demand, None)
        demand.borrowed = {}
        orphans: dict[Demand, None] = {}
        for channel in list(demand.channels.values()):
            orphans.update(dict.fromkeys(other for other in channel.takers if other is not demand))
            self._drop(channel)
            self.events.append(Cancelled(channel.id))
        for other in orphans:
            if other in self.demands and other.due is None and other.status != "paused":
                self._again(other)

    def _drop(self, channel: Channel) -> None:
        self.channels.pop(channel.id, None)
        channel.demand.channels.pop(channel.id, None)
        for demand in channel.takers:
            demand.borrowed.pop(channel.id, None)

    # -- what overlaps

    def _plan(self, demand: Demand) -> tuple[dict[QueryPart, tuple[str, ...]], list[Channel]]:
        """What a demand must ask for itself (by attribute), and the channels of others that bring the rest."""
        query, limits = demand.query, demand.query.limits(self.grid)
        cover: list[QueryPart] | None = None
        rests: dict[QueryPart, tuple[str, ...]] = {}
        borrowed: dict[QueryId, Channel] = {}
        for name in query.attributes:
            others = list(self._others(demand, name, query, demand.assembly.until))
            if not others:
                rest = cover = self._cover(query) if cover is None else cover
            else:
                rest = cover = self._cover(query) if cover is None else cover
                for other in others:
                    left = self._without(rest, limits, other)
                    if left != rest:
                        serving = [*other.channels.values(), *other.borrowed.values()]
                        borrowed.update({c.id: c for c in serving if name in c.attributes})
                    rest = left
            for part in rest:
                rests[part] = (*rests.get(part, ()), name)
        return rests, list(borrowed.values())

    def _others(
        self, demand: Demand | None, name: str, query: Query, until: int | None
    ) -> "Iterator[Demand]":
        """Demands that have something of an attribute for as long as it is wanted, with all its values."""
        mine = [item for item in query.where if item[0] == name]
        for other in self.demands:
            if other is demand or name not in other.query.attributes or other.due is not None:
                continue
            if other.status not in ("pending", "running") or not other.channels:
                continue
            ends = other.assembly.until
            if ends is not None and (until is None or until > ends):
                continue
            if [item for item in other.query.where if item[0] == name] in ([], mine):
                yield other

    def _cover(self, query: Query) -> list[QueryPart]:
        limits = query.limits(self.grid)
        return [
            QueryPart(
                box, tuple(decompose_box_within(box, limits, self.grid, self.depth, self.cells_max).codes)
            )
            for box in self.grid.plain_boxes(query.box(self.grid))
            if any(points_in(box, limits, (1,), self.grid))
        ]

    def _points(self, query: Query, part: QueryPart) -> int:
        """Points per tick; as a mean over the ticks that the query has."""
        limits = query.limits(self.grid)
        return sum(points_in(part.box, limits, part.cells, self.grid)) // limits[2]

    def _without(self, parts: list[QueryPart], limits: Limits, other: Demand) -> list[QueryPart]:
        """What is left of some parts when another demand's points are taken away."""
        theirs = other.query.limits(self.grid)
        for hole in self.grid.plain_boxes(other.query.box(self.grid)):
            left: list[QueryPart] = []
            for part in parts:
                inner = _meet(part.box, hole)
                if inner is None:
                    left.append(part)
                    continue
                for outer in _around(part.box, inner):
                    left += self._part(outer, self._some(outer, limits, part.cells))
                left += self._part(inner, self._finer(inner, limits, theirs, part.cells))
            parts = left
        return parts

    def _part(self, box: Box, cells: list[int]) -> list[QueryPart]:
        return [QueryPart(box, tuple(cells))] if cells else []

    def _some(self, box: Box, limits: Limits, cells: tuple[int, ...]) -> list[int]:
        points = points_in(box, limits, cells, self.grid)
        return [cell for cell, count in zip(cells, points, strict=True) if count]

    def _finer(self, box: Box, limits: Limits, theirs: Limits, cells: tuple[int, ...]) -> list[int]:
        """Cells with points of a box that the other one's limits do not have."""
        both: Limits = (min(limits[0], theirs[0]), min(limits[1], theirs[1]), min(limits[2], theirs[2]))
        if both == limits:
            return []
        kept: list[int] = []
        mixed = list(cells)
        while mixed:
            wanted = points_in(box, limits, mixed, self.grid)
            had = points_in(box, both, mixed, self.grid)
            cut: list[int] = []
            for cell, mine, known in zip(mixed, wanted, had, strict=True):
                if mine and not known:
                    kept.append(cell)
                elif mine > known:
                    deepest = cell.bit_length() > self.depth or len(kept) + len(cut) >= CELLS_MAX
                    if deepest:
                        kept.append(cell)
                    else:
                        cut += [cell << 1, cell << 1 | 1]
            mixed = cut
        return kept


def _meet(a: Box, b: Box) -> Box | None:
    x0, x1, y0, y1 = max(a.x0, b.x0), min(a.x1, b.x1), max(a.y0, b.y0), min(a.y1, b.y1)
    return Box(x0, x1, y0, y1) if x0 < x1 and y0 < y1 else None


def _around(whole: Box, hole: Box) -> Iterator[Box]:
    """A box without a box inside it, as up to four boxes."""
    for x0, x1, y0, y1 in (
        (whole.x0, whole.x1, whole.y0, hole.y0),
        (whole.x0, whole.x1, hole.y1, whole.y1),
        (whole.x0, hole.x0, hole.y0, hole.y1),
        (hole.x1, whole.x1, hole.y0, hole.y1),
    ):
        if x0 < x1 and y0 < y1:
            yield Box(x0, x1, y0, y1)
