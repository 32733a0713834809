"""Hands that play the other side: a broker or a client alone, fed with hand-made messages.

The grid is 16 × 16 points with one digit of resolution per axis. Its eight regions are the cells of three digits,
000 to 111; each has 32 points, which are 64 per period of two ticks.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeVar

import numpy as np

from sensorgrid.index.codes import contains
from sensorgrid.index.decompose import points_in
from sensorgrid.model.block import Slab, Values
from sensorgrid.model.box import Box
from sensorgrid.model.grid import ORDER_5D, Grid
from sensorgrid.model.ids import BROKERS_MAX, PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay import messages
from sensorgrid.overlay.broker import Broker
from sensorgrid.overlay.derived import Formula
from sensorgrid.overlay.events import (
    Cancelled,
    Connect,
    Deliver,
    Disconnect,
    Effect,
    Event,
    Learned,
    PeerDown,
    PeerUp,
    Published,
    Recall,
    Recalled,
    Received,
    Refined,
    Reply,
    Send,
    Submitted,
    Woke,
)
from sensorgrid.overlay.forwarding import wanted_of
from sensorgrid.overlay.intake import Piece
from sensorgrid.overlay.invariants import broken
from sensorgrid.overlay.messages import Clip, Feed, Grant, Leave, Message, Offer, Reason, Refuse, Want
from sensorgrid.overlay.policies.interface import Never, Policy, Proposal, Reactive, View
from sensorgrid.overlay.policies.relays import Relays
from sensorgrid.overlay.roster import Member, Region, Roster, Terms
from sensorgrid.overlay.session import Session
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator.checkers import truth_of

GRID = Grid(
    extent=(0, 0, 16, 16),
    coordinates="planar",
    shape=(16, 16),
    tick=1,
    resolution_bits=(1, 1, 1),
    order=ORDER_5D,
    region_digits=3,
    attributes=("air_temperature", "wind_speed"),
)
REGION = GRID.points_per_period >> 3
"""points per period of a region"""
EVERYTHING = Clip((0, 16, 0, 16), (2, 2, 2))
NO_ROOM = messages.NO_ROOM.text
Kind = TypeVar("Kind")
M = TypeVar("M", bound=Message)


def cell(digits: str) -> int:
    """The code of a cell."""
    return int("1" + digits, 2)


def client(number: int) -> PeerId:
    """The n-th client."""
    return PeerId(BROKERS_MAX + number)


ANNA, BEN, CARL, DORA = (client(n) for n in range(4))


def points(code: int, clip: Clip | None = None) -> int:
    """Points per period that a clip wants of a cell."""
    if clip is None:
        return GRID.points_per_period >> (code.bit_length() - 1)
    return points_in(Box(*clip.box), clip.limits, [code], GRID)[0]


def values(code: int, tick: int, revision: int = 0, attribute: int = 0) -> Values:
    """What the lake has of a region."""
    box = wanted_of(GRID, code, None)[0]
    return truth_of(attribute, tick, revision, GRID)[slice(*box.y), slice(*box.x)]


def settings(**changes: Any) -> Settings:
    """Settings with short names of time: an answer may take 1 s, a path 3 s."""
    chosen: dict[str, Any] = {
        "budget": 10 * REGION, "depth": 9, "ring_ticks": 12, "lateness_ticks": 4, "slack_ticks": 2, "patience_s": 1.0,
        "path_patience_s": 3.0, "wait_s": 0.5, "reservation_s": 5.0, "age_min_s": 10.0, "backoff_s": 1.0,
        "backoff_max_s": 8.0, "alive_s": None, "news_s": 1.0, "idle_s": 1000.0,
    }  # fmt: skip
    return Settings(**(chosen | changes))


class Hands:
    """An actor alone in the world; after every event its rules are checked."""

    def __init__(self, actor: Broker | Session) -> None:
        self.actor = actor
        self.now = 0.0
        self.log: list[Effect] = []
        """all effects so far"""

    def feed(self, event: Event) -> list[Effect]:
        """One event; what follows from it."""
        effects = self.actor.handle(event, self.now)
        self.log += effects
        if isinstance(self.actor, Broker):
            assert broken(self.actor.boards) == []
        return effects

    def up(self, *peers: int) -> list[Effect]:
        """Connections open."""
        return [effect for peer in peers for effect in self.feed(PeerUp(PeerId(peer)))]

    def down(self, peer: int) -> list[Effect]:
        """A connection breaks."""
        return self.feed(PeerDown(PeerId(peer)))

    def say(self, peer: int, message: messages.Message) -> list[Effect]:
        """A peer says something."""
        return self.feed(Received(PeerId(peer), message))

    def wait(self, seconds: float) -> list[Effect]:
        """Time passes; the timer rings when it is set to."""
        until, found, rings = self.now + seconds, [], 0
        while (due := self.actor.next_wakeup()) is not None and due <= until:
            rings += 1
            assert rings < 10_000, f"the timer rings for ever, at {due}"
            self.now = max(self.now, due)
            found += self.feed(Woke())
        self.now = until
        return found


def sent(effects: Iterable[Effect], kind: type[M], to: int | None = None) -> list[M]:
    """Messages of a kind among effects."""
    return [
        e.message
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, kind) and (to is None or e.peer == to)
    ]


def dialled(effects: Iterable[Effect]) -> list[PeerId]:
    """Whom somebody wants a connection with."""
    return [e.peer for e in effects if isinstance(e, Connect)]


def closed(effects: Iterable[Effect]) -> list[PeerId]:
    """Connections that somebody closes."""
    return [e.peer for e in effects if isinstance(e, Disconnect)]


def ticks(feeds: Iterable[Feed]) -> list[int]:
    """Of blocks, in the order in which they came."""
    return [f.tick for f in feeds]


class Once(Reactive):
    """A policy that makes the proposals it was given, each once."""

    name = "once"
    gossips = False
    forwards = False

    def __init__(self, *proposals: Proposal) -> None:
        self.left = list(proposals)

    def propose(self, view: View) -> Proposal | None:
        return self.left.pop(0) if self.left else None


class LoneBroker(Hands):
    """A broker whose peers are hands; by default it is broker 0, owns region 000 and has read an empty lake."""

    actor: Broker

    def __init__(
        self,
        owns: tuple[str, ...] = ("000",),
        others: dict[str, int] | None = None,
        policy: Policy | None = None,
        relays: Relays | None = None,
        brokers: tuple[int, ...] = (),
        formulas: Callable[[str], Formula] | None = None,
        **changes: Any,
    ) -> None:
        chosen = settings(**changes)
        made = Broker(PeerId(0), GRID, chosen, policy or Never(), Random(1), relays, formulas=formulas)
        super().__init__(made)
        self._offers = 0
        self.brokers = tuple(PeerId(b) for b in brokers)
        """candidates for relays"""
        self.assign(dict.fromkeys(owns, 0) | (others or {}))

    @property
    def boards(self) -> Any:
        """Of the broker."""
        return self.actor.boards

    @property
    def kernel(self) -> Any:
        """Of the broker."""
        return self.actor.kernel

    def mechanism(self, kind: type[Kind]) -> Kind:
        """Of the broker, which has one of this kind."""
        found = self.actor.mechanism(kind)
        assert found is not None
        return found

    def assign(self, owners: dict[str, int], epoch: int = 1, recall: bool = True) -> list[Effect]:
        """Who owns what; the lake is read at once, and is empty, unless a test does it."""
        regions = tuple(Region(0, cell(digits), PeerId(owner), epoch) for digits, owner in owners.items())
        known = dict.fromkeys((*self.brokers, *(PeerId(owner) for owner in owners.values())))
        held = self.boards.roster.current
        roster = Roster(
            1 if held is None else held.version + 1,
            Terms.of(GRID, self.kernel.settings),
            tuple(Member(peer) for peer in known),
            regions,
        )
        effects = self.feed(Learned(roster))
        if recall:
            for effect in [e for e in effects if isinstance(e, Recall)]:
                effects = effects + self.feed(Recalled(effect.attribute, effect.cell, effect.epoch, ()))
        return effects

    def publish(self, tick: int, revision: int = 0, digits: str = "000", epoch: int = 1) -> list[Effect]:
        """A tick comes from the pipeline."""
        code = cell(digits)
        return self.feed(Published(0, code, tick, revision, epoch, values(code, tick, revision)))

    def want(
        self,
        peer: int,
        digits: str,
        start: int = 0,
        generation: int = 1,
        clip: Clip | None = None,
        until: int | None = None,
        via: int | None = None,
        stays: bool = False,
        claim: int | None = None,
    ) -> list[Effect]:
        """A peer wants a cell: a client everything in it, a broker the whole cell."""
        if clip is None and peer >= BROKERS_MAX:
            clip = EVERYTHING
        code = cell(digits)
        size = points(code, clip) if claim is None else claim
        via_id = None if via is None else PeerId(via)
        if PeerId(peer) not in self.kernel.links.up:
            self.up(peer)
        if (
            via is not None and peer >= BROKERS_MAX
        ):  # a client is sent by a broker that has made an offer before
            if PeerId(via) not in self.kernel.links.up:
                self.up(via)
            self._offers += 1
            self.say(via, Offer(10_000 + self._offers, 0, code, size))
        return self.say(peer, Want(generation, 0, ((code, size, start),), clip, until, via_id, stays))

    def leave(self, peer: int, digits: str, generation: int = 1) -> list[Effect]:
        """A peer has enough."""
        return self.say(peer, Leave(generation, (cell(digits),)))

    def supply(
        self, peer: int, digits: str, ticks: Iterable[int], generation: int, revision: int = 0
    ) -> list[Effect]:
        """A provider sends whole ticks of a cell."""
        code, found = cell(digits), []
        for tick in ticks:
            slabs = tuple(
                Slab(w.y, w.x, truth_of(0, tick, revision, GRID)[slice(*w.y), slice(*w.x)])
                for w in wanted_of(GRID, code, None)
                if w.at(tick)
            )
            found += self.say(peer, Feed(generation, code, tick, revision, slabs))
        return found

    def relays(self, digits: str, provider: int, receiver: int, start: int = 0) -> int:
        """It relays a cell of `provider` to a client; returns the generation of its stream."""
        effects = self.want(receiver, digits, start, via=provider)
        (want,) = sent(effects, Want, provider)
        self.say(provider, Grant(want.generation, (cell(digits),), (PeerId(provider),)))
        return want.generation


class LoneClient(Hands):
    """A client whose brokers are hands: 0 is the broker that it knows."""

    actor: Session

    def __init__(self, roams: bool = True, brokers: tuple[int, ...] = (0, 1), **changes: Any) -> None:
        known = tuple(PeerId(b) for b in brokers)
        super().__init__(Session(client(0), GRID, settings(**changes), known, Random(1), roams))

    @property
    def feeds(self) -> dict[PeerId, dict[tuple[int, int], Piece]]:
        """What it has from whom."""
        return self.actor.intake.feeds

    def submit(self, ask: Query, start: int = 0, until: int | None = None, query: int = 1) -> list[Effect]:
        """A user poses a query."""
        return self.feed(Submitted(QueryId(query), ask, start, until))

    def refine(self, ask: Query, query: int = 1) -> list[Effect]:
        """A user wants it otherwise."""
        return self.feed(Refined(QueryId(query), ask))

    def cancel(self, query: int = 1) -> list[Effect]:
        """A user has enough."""
        return self.feed(Cancelled(QueryId(query)))

    def locate(self, effects: list[Effect], owners: dict[str, int]) -> list[Effect]:
        """Answer its questions by the regions given, after dialling; returns what follows."""
        found: list[Effect] = []
        for peer in dialled(effects):
            effects = effects + self.up(peer)
        for ask in sent(effects, messages.Ask):
            items = tuple(
                (part, PeerId(owner))
                for code in ask.cells
                for digits, owner in owners.items()
                for part in [max(code, cell(digits))]
                if contains(code, cell(digits)) or contains(cell(digits), code)
            )
            found += self.say(self.actor.brokers[0], messages.Located(ask.request, ask.attribute, items))
        return found

    def grant(self, peer: int, path: tuple[int, ...] | None = None) -> list[Effect]:
        """A broker feeds all that was asked of it."""
        found: list[Effect] = []
        if PeerId(peer) not in self.actor.links.up:
            found += self.up(peer)
        for generation, cells in self._by_generation(peer).items():
            way = tuple(PeerId(p) for p in path or (peer,))
            found += self.say(peer, Grant(generation, cells, way))
        return found

    def refuse(self, peer: int, reason: str, *elsewhere: int) -> list[Effect]:
        """A broker feeds nothing of it."""
        found: list[Effect] = []
        if PeerId(peer) not in self.actor.links.up:
            found += self.up(peer)
        named = tuple(PeerId(p) for p in elsewhere)
        for generation, cells in self._by_generation(peer).items():
            found += self.say(peer, Refuse(generation, cells, reason, named, (), code_of(reason)))
        return found

    def tick(self, peer: int, *ticks: int) -> list[Effect]:
        """A broker sends ticks of all that it feeds, as the lake has them."""
        found: list[Effect] = []
        for number in ticks:
            for (generation, code), piece in list(self.feeds.get(PeerId(peer), {}).items()):
                slabs = tuple(
                    Slab(w.y, w.x, truth_of(piece.attribute, number, 0, GRID)[slice(*w.y), slice(*w.x)])
                    for w in wanted_of(GRID, code, piece.clip)
                    if w.at(number)
                )
                found += self.say(peer, Feed(generation, code, number, 0, slabs))
        return found

    def _by_generation(self, peer: int) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        for generation, code in self.feeds.get(PeerId(peer), {}):
            found[generation] = (*found.get(generation, ()), code)
        return found

    def replies(self) -> list[tuple[str, str]]:
        """All that a user heard of queries: status and reason."""
        return [(e.status, e.reason) for e in self.log if isinstance(e, Reply)]

    def statuses(self) -> list[str]:
        """The same without reasons."""
        return [status for status, _ in self.replies()]

    def given(self) -> list[tuple[int, int, int, int]]:
        """Every value that a user was given, by tick and place: what came twice is there twice."""
        return sorted(points_given(delivered(self.log)))

    def leftovers(self) -> list[str]:
        """Where there is still a trace of a query."""
        session = self.actor
        held: dict[str, Any] = {"queries": session.queries, "sleeping": session.sleeping}
        held |= {"feeds": session.intake.feeds}
        if session.settings.alive_s is not None:  # else it takes long until unused connections are closed
            held |= {"connections": session.links.up, "lookups": session.lookups}
        return [where for where, what in held.items() if what]


def code_of(text: str) -> str:
    """Of a reason in words."""
    said = [r for r in vars(messages).values() if isinstance(r, Reason) and r.text == text]
    return said[0].why.value if said else "other"


def delivered(effects: Iterable[Effect]) -> list[Deliver]:
    """What a user was given."""
    return [e for e in effects if isinstance(e, Deliver)]


def points_given(blocks: Iterable[Deliver]) -> list[tuple[int, int, int, int]]:
    """(tick, attribute, row, column) of every value, in the order in which they came."""
    return [
        (block.tick, block.attribute, y, x)
        for block in blocks
        for slab in block.slabs or ()
        for y in range(*slab.y)
        for x in range(*slab.x)
    ]


def points_asked(ask: Query, ticks: Iterable[int]) -> list[tuple[int, int, int, int]]:
    """The same for what a query wants, sorted."""
    box, limits = ask.box(GRID), ask.limits(GRID)
    wanted = wanted_of(GRID, 1, Clip((box.x0, box.x1, box.y0, box.y1), limits))
    return sorted(
        (tick, GRID.attributes.index(name), y, x)
        for tick in ticks
        for name in ask.attributes
        for want in wanted
        if want.at(tick)
        for y in range(*want.y)
        for x in range(*want.x)
    )


def box_query(
    x0: int, y0: int, x1: int, y1: int, resolution: Any = 1.0, names: Any = "air_temperature", **more: Any
) -> Query:
    """A query by index."""
    return Query(names, (x0, y0, x1, y1), resolution, **more)


def nan_share(block: Feed | Deliver) -> float:
    """The share of blanks in a block."""
    held = [slab.values.ravel() for slab in block.slabs or ()]
    return float(np.isnan(np.concatenate(held)).mean()) if held else 0.0


ONE = box_query(0, 0, 4, 8)
"""all of region 000"""
TWO = box_query(0, 0, 8, 8)
"""regions 000 and 001, which is cell 00"""
OWNERS = {"000": 1, "001": 2}


def running(
    ask: Query = TWO, owners: dict[str, int] = OWNERS, start: int = 0, until: int | None = None
) -> LoneClient:
    """A client with an admitted query."""
    me = LoneClient()
    me.locate(me.submit(ask, start, until), owners)
    for peer in dict.fromkeys(owners.values()):
        me.grant(peer)
    assert me.statuses() == ["admitted"]
    return me


def wanted(effects: list[Effect]) -> list[int]:
    """All cells that were asked for."""
    return sorted(item[0] for want in sent(effects, Want) for item in want.items)
