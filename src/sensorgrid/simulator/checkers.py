"""What must be true of a whole world, one checker per property.

`Deliveries` watches what clients get: exactly the asked points, once, in order, with the lake's values. The others
look at a world that has come to rest. Each yields sentences about what is wrong; none means that the property holds.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sensorgrid.index.codes import contains
from sensorgrid.model.block import Values, Wanted
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay.broker import Broker
from sensorgrid.overlay.events import Deliver
from sensorgrid.overlay.forwarding import wanted_of
from sensorgrid.overlay.invariants import broken
from sensorgrid.overlay.mechanisms.liveness import Liveness
from sensorgrid.overlay.mechanisms.neighbourhood import Neighbourhood
from sensorgrid.overlay.mechanisms.succession import Succession
from sensorgrid.overlay.messages import Clip, Why
from sensorgrid.overlay.session import Session
from sensorgrid.simulator.world import World


class QueryLedger:
    """What one query was given."""

    def __init__(self, grid: Grid, ask: Query, start: int) -> None:
        self.grid = grid
        self.start = start
        shape = (len(ask.attributes), grid.shape[1], grid.shape[0])
        self.period = 1 << grid.resolution_bits[2]
        self.revisions: dict[int, npt.NDArray[np.int16]] = {}
        self.last = np.full((self.period, *shape), -1, dtype=np.int64)
        """by tick modulo period: cells of different ticks of one point go their own ways"""
        self.places = {grid.attributes.index(name): i for i, name in enumerate(ask.attributes)}
        self.gaps = 0


class Deliveries:
    """Exactly the asked points, once, in order, with the right values."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledgers: dict[tuple[PeerId, QueryId], QueryLedger] = {}
        self.wrong: list[str] = []
        world.on_deliver = self.delivered

    def expect(self, client: PeerId, query: QueryId, ask: Query, start: int) -> None:
        """A query is posed."""
        self.ledgers[client, query] = QueryLedger(self.world.grid, ask, start)

    def delivered(self, client: PeerId, block: Deliver) -> None:
        """A block reaches a user."""
        ledger = self.ledgers[client, block.query]
        name = f"client {client}, query {block.query}, tick {block.tick}, cell {block.cell:b}"
        if block.slabs is None:
            ledger.gaps += 1
            self.wrong.append(f"{name}: a gap that the lake does not have")
            return
        place = ledger.places[block.attribute]
        known = ledger.revisions.get(block.tick)
        if known is None:
            known = ledger.revisions[block.tick] = np.full(ledger.last.shape[1:], -1, dtype=np.int16)
        last = ledger.last[block.tick % ledger.period]
        for slab in block.slabs:
            at = (place, slice(*slab.y), slice(*slab.x))
            before = known[at]
            if (before >= block.revision).any():
                self.wrong.append(f"{name}: revision {block.revision} after {before.max()}")
            new = before < 0
            if (last[at][new] >= block.tick).any():
                self.wrong.append(f"{name}: after tick {last[at][new].max()}")
            last[at] = np.maximum(last[at], block.tick)
            known[at] = block.revision
            truth = truth_of(block.attribute, block.tick, block.revision, self.world.grid)[
                slice(*slab.y), slice(*slab.x)
            ]
            if not np.array_equal(slab.values, truth):
                self.wrong.append(f"{name}: values are not the lake's")

    def missing(self, client: PeerId, query: QueryId, ask: Query, until: int) -> Iterator[str]:
        """Points that should have come by now, and revisions."""
        ledger = self.ledgers[client, query]
        wanted = _wanted(self.world.grid, ask)
        for tick in range(ledger.start, until):
            expected = np.zeros(self.world.grid.shape[::-1], dtype=bool)
            for want in wanted:
                if want.at(tick):
                    expected[slice(*want.y), slice(*want.x)] = True
            known = ledger.revisions.get(tick)
            for attribute, place in ledger.places.items():
                got = np.zeros_like(expected) if known is None else known[place] >= 0
                if (got != expected).any():
                    more, less = int((got & ~expected).sum()), int((expected & ~got).sum())
                    yield f"client {client}, query {query}, tick {tick}: {less} points missing, {more} not asked for"
                elif known is not None:
                    yield from self._stale(
                        client, query, attribute, tick, np.where(expected, known[place], -1)
                    )

    def _stale(
        self, client: PeerId, query: QueryId, attribute: int, tick: int, got: npt.NDArray[np.int16]
    ) -> Iterator[str]:
        for (a, cell), lake in self.world.lake.items():
            if a == attribute and tick in lake:
                box = wanted_of(self.world.grid, cell, None)[0]
                part = got[slice(*box.y), slice(*box.x)]
                if ((part >= 0) & (part < lake[tick][0])).any():
                    yield f"client {client}, query {query}, tick {tick}: revision {lake[tick][0]} never came"


def truth_of(attribute: int, tick: int, revision: int, grid: Grid) -> Values:
    """Values that tell where and when they are from."""
    nx, ny = grid.shape
    points = np.arange(nx * ny, dtype=np.float64).reshape(ny, nx)
    return points + nx * ny * (attribute + 4 * revision + 64 * tick)


def _wanted(grid: Grid, ask: Query) -> tuple[Wanted, ...]:
    box, limits = ask.box(grid), ask.limits(grid)
    return wanted_of(grid, 1, Clip((box.x0, box.x1, box.y0, box.y1), limits))


def brokers_of(world: World) -> dict[PeerId, Broker]:
    """All brokers that live."""
    return {p: n.actor for p, n in world.nodes.items() if isinstance(n.actor, Broker)}


def sessions_of(world: World) -> dict[PeerId, Session]:
    """All clients that live."""
    return {p: n.actor for p, n in world.nodes.items() if isinstance(n.actor, Session)}


def rules(world: World) -> Iterator[str]:
    """Budgets, bookkeeping, interest: each broker by itself."""
    for peer, broker in brokers_of(world).items():
        yield from (f"broker {peer}: {what}" for what in broken(broker.boards))


def rosters(world: World) -> Iterator[str]:
    """Every broker and client holds the newest roster, and brokers own what it says."""
    newest = world.roster
    for peer, broker in brokers_of(world).items():
        held = broker.boards.roster.current
        if held != newest:
            found = None if held is None else held.version
            yield f"broker {peer}: holds roster {found}, expected {newest and newest.version}"
            continue
        mine = set() if held is None else {(r.attribute, r.cell) for r in held.by_owner.get(peer, ())}
        owned = {
            (attribute, cell)
            for attribute, by in broker.boards.outlets.supplies.items()
            for cell, supply in by.items()
            if supply.owned
        }
        if owned != mine:
            yield f"broker {peer}: owns {sorted(owned)}, expected {sorted(mine)}"


def circles(world: World) -> Iterator[str]:
    """No stream feeds itself, and every stream starts at its owner."""
    brokers = brokers_of(world)
    for peer, broker in brokers.items():
        for by in broker.boards.outlets.supplies.values():
            for supply in by.values():
                at, way = peer, [peer]
                current = supply
                while current.piece is not None and current.piece.feed is not None:
                    at = current.piece.feed.peer
                    if at in way:
                        yield f"broker {peer}: {supply.attribute}:{supply.cell:b} comes in a circle {way}"
                        break
                    way.append(at)
                    upper = (
                        brokers[at].boards.outlets.supply_for(supply.attribute, current.cell)
                        if at in brokers
                        else None
                    )
                    if upper is None:
                        yield f"broker {peer}: {supply.attribute}:{supply.cell:b} comes from {at}, which has it not"
                        break
                    current = upper


def conservation(world: World) -> Iterator[str]:
    """At rest, each receiver and its provider agree on what is fed.

    A client with a suspended query is never at rest: it may just be trying again.
    """
    restless = {p for p, s in sessions_of(world).items() if any(q.suspended for q in s.queries.values())}
    taken: set[tuple[PeerId, PeerId, int, int]] = set()
    for peer, node in world.nodes.items():
        actor = node.actor
        if actor is None or peer in restless:
            continue
        intake = actor.boards.intake if isinstance(actor, Broker) else actor.intake  # type: ignore[attr-defined]
        for provider, known in intake.feeds.items():
            taken |= {(provider, peer, generation, cell) for generation, cell in known}
    fed = {
        (peer, receiver, generation, cell)
        for peer, broker in brokers_of(world).items()
        for receiver, by in broker.boards.outlets.entries.items()
        if receiver not in restless
        for generation, cell in by
    }
    waiting = {(peer, *key) for peer, broker in brokers_of(world).items() for key in broker.boards.requests}
    for provider, receiver, generation, cell in sorted(taken - fed - waiting):
        yield f"{receiver} believes to have {cell:b} (generation {generation}) from {provider}, which does not feed it"
    for provider, receiver, generation, cell in sorted(fed - taken):
        yield f"{provider} feeds {cell:b} (generation {generation}) to {receiver}, which does not take it"


def leftovers(world: World) -> Iterator[str]:
    """After all clients have left, brokers are as at the start (multires, section 4.4.3)."""
    for peer, broker in brokers_of(world).items():
        outlets, peers, links = broker.boards.outlets, broker.boards.regions.peers, broker.kernel.links
        relays = [s for by in outlets.supplies.values() for s in by.values() if s.piece is not None]
        liveness, neighbourhood = broker.mechanism(Liveness), broker.mechanism(Neighbourhood)
        kept = () if liveness is None else tuple(liveness.kept)
        measured = () if neighbourhood is None else tuple(neighbourhood.known)
        succession = broker.mechanism(Succession)
        watched = () if succession is None else tuple(succession.missed)
        rest: dict[str, object] = {
            "entries": outlets.entries,
            "relayed supplies": relays,
            "sources": broker.boards.intake.feeds,
            "waiting requests": broker.boards.requests,
            "reservations": outlets.reservations,
            "used budget": outlets.used,
            "reserved budget": outlets.reserved,
            "entries by cell": {c for at in outlets.at.values() for c in at},
            "redirected": outlets.leaving,
            "streams to brokers": [c for by in outlets.fed.values() for c in by],
            "loads": [c for by in outlets.loads.whole().values() for c in by],
            "connections": [p for p in links.up if p not in {*peers, *kept, *measured, *watched}],
            "dialled": [p for p in links.dialling if p not in {*peers, *measured, *watched}],
        }
        for mechanism in broker.mechanisms:
            rest |= mechanism.leftovers()
        yield from (f"broker {peer}: {what} left: {found}" for what, found in rest.items() if found)
    for peer, session in sessions_of(world).items():
        rest = {
            "queries": session.queries,
            "sources": session.intake.feeds,
            "connections": session.links.up,
            "lookups": session.lookups,
            "sleeping": session.sleeping,
        }
        yield from (f"client {peer}: {what} left: {found}" for what, found in rest.items() if found)


def unserved(world: World, client: PeerId, query: QueryId, faults_s: float, healed_s: float) -> Iterator[str]:
    """A query is served, or it lacks budget: then no broker that owns a part of it has room for that part.

    One that was posed while faults lasted, or while connections that they broke had not been found by their silence,
    may also have been refused because no broker answered.
    """
    status = world.status(client, query)
    if status in ("admitted", "resumed", "refined", "not refined"):
        return
    last = world.replies[client, query][-1] if (client, query) in world.replies else None
    reason = "" if last is None else last.reason
    if status == "refused" and faults_s <= world.replied[client, query] < healed_s:
        return
    if status not in ("refused", "suspended") or last is None or last.why is not Why.NO_ROOM:
        yield f"client {client}, query {query}: {status} ({reason})"
        return
    if status != "suspended":
        return
    session = sessions_of(world)[client]
    if not session.roams:
        return  # it depends on its one broker
    room = {}
    need: dict[PeerId, int] = {}
    for peer, broker in brokers_of(world).items():
        room[peer] = broker.boards.outlets.free
    for piece in session.queries[query].pieces:
        for region in world.regions.values():
            if region.attribute == piece.attribute and contains(region.cell, piece.cell):
                need[region.owner] = need.get(region.owner, 0) + piece.points
    if all(points <= room.get(peer, 0) for peer, points in need.items()):
        yield f"client {client}, query {query}: suspended for lack of budget, but there is room for it"


def levels(world: World) -> int:
    """The longest live delegation: 2 is owner, relay, relay of the relay."""
    longest = 0
    for broker in brokers_of(world).values():
        for by in broker.boards.outlets.supplies.values():
            for supply in by.values():
                if supply.piece is not None and supply.path is not None:
                    longest = max(longest, len(supply.path) - 1)
    return longest
