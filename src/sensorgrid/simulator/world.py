"""A deterministic world for the overlay: one queue of events, one clock, one source of randomness.

The world drives the same `Broker` and `Session` that the runtime drives: it feeds one event, applies the effects
in order, and re-arms one timer. Same seed, same trace, whatever PYTHONHASHSEED; with `trace=True` a digest of all
that happened says so.
"""

import hashlib
from collections.abc import Callable, Collection
from heapq import heappop, heappush
from random import Random

from msgspec import Struct

from sensorgrid.model.block import Values
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import BROKERS_MAX, Instant, PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay.assembly import Plug
from sensorgrid.overlay.broker import Broker
from sensorgrid.overlay.codec import as_of, encode
from sensorgrid.overlay.derived import Formula, StreamName
from sensorgrid.overlay.events import (
    Actor,
    Batch,
    Calculated,
    Cancelled,
    Connect,
    Deliver,
    Disconnect,
    Effect,
    Event,
    Inquire,
    Joining,
    Learned,
    Leaving,
    Left,
    Moved,
    PeerDown,
    PeerUp,
    Propose,
    Published,
    Recall,
    Recalled,
    Received,
    Refined,
    Reply,
    Routed,
    Ruled,
    Send,
    Spread,
    Submitted,
    Watched,
    Woke,
)
from sensorgrid.overlay.geography import box_of, first_of
from sensorgrid.overlay.messages import VERSION, Message
from sensorgrid.overlay.policies.interface import Policy
from sensorgrid.overlay.policies.relays import Relays
from sensorgrid.overlay.roster import Member, Region, Roster, Terms
from sensorgrid.overlay.session import Session
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator.network import Connection


class WorldError(SensorGridError, RuntimeError):
    """A simulation that cannot go on."""


STORE_S = 0.05
"""how long a question takes to the store of rosters, and its answer back"""


class Node:
    """Where an actor lives."""

    __slots__ = ("actor", "backlog", "incarnation", "paused", "unheard", "version", "wake")

    def __init__(self, actor: Actor, version: int = VERSION) -> None:
        self.actor: Actor | None = actor
        """None: crashed"""
        self.version = version
        """of the wire, the newest that it speaks"""
        self.paused = False
        self.backlog: list[Event] = []
        """what came while it was paused"""
        self.unheard: dict[PeerId, int] = {}
        """connections opened to it meanwhile: until it learns of them, it sends on the old ones"""
        self.wake: Instant | None = None
        """when its timer is set"""
        self.incarnation = 0


class _Arrival(Struct, gc=False):
    """Messages on their way; by far the most frequent thing in the queue."""

    connection: Connection
    sender: PeerId
    to: PeerId
    when: Instant
    messages: list[Message]


class World:
    """Brokers, clients, connections, the pipeline and its lake.

    Examples
    --------
    Two brokers own a half of the grid each; a client of the second gets a tick of the first's region.

    >>> import numpy as np
    >>> from sensorgrid.overlay.policies.ours import Ours
    >>> grid = Grid(shape=(64, 32), resolution_bits=(2, 2, 2), region_digits=1, tick=60)
    >>> settings = Settings(budget=4 * grid.points_per_period, depth=8)
    >>> world = World(grid, seed=1)
    >>> world.add_brokers(2, settings, lambda: Ours(True))
    >>> client = world.add_client(settings, brokers=(PeerId(1),))
    >>> got = []
    >>> world.on_deliver = lambda who, block: got.append((block.tick, sum(s.points for s in block.slabs)))
    >>> world.run(until=1.0)
    >>> world.submit(client, QueryId(1), Query(grid.attributes[0], bbox=(-90, 0, -45, 45)))
    >>> world.run(until=2.0)
    >>> world.status(client, QueryId(1))
    'admitted'
    >>> world.publish(0, 0b10, tick=0, revision=0, values=np.zeros((32, 32)))
    >>> world.run(until=3.0)
    >>> sum(points for tick, points in got)
    64
    """

    def __init__(
        self,
        grid: Grid,
        seed: int,
        delay_s: Callable[[PeerId, PeerId], float] = lambda a, b: 0.01,
        rate: float | None = None,
        trace: bool = False,
    ) -> None:
        self.grid = grid
        self.seed = seed
        self.rng = Random(seed)
        self.now: Instant = 0.0
        self.delay_s = delay_s
        self.rate = rate
        self.hops: Callable[[PeerId, PeerId], int] | None = None
        """links of routers between two brokers, if they can know"""
        self.nodes: dict[PeerId, Node] = {}
        self.roster: Roster | None = None
        """the newest that there is"""
        self.connections: dict[tuple[PeerId, PeerId], Connection] = {}
        self.cut: set[tuple[PeerId, PeerId]] = set()
        """pairs that cannot reach each other"""
        self.store: dict[int, Roster] = {}
        """rosters by version, each of which was written once"""
        self.storeless: set[PeerId] = set()
        """those who cannot reach the store"""
        self.left: set[PeerId] = set()
        """brokers that have left in good order"""
        self.lake: dict[tuple[int, int], dict[int, tuple[int, Values | None]]] = {}
        """by attribute and region: tick, revision and values, as the pipeline wrote them"""
        self.replies: dict[tuple[PeerId, QueryId], list[Reply]] = {}
        self.replied: dict[tuple[PeerId, QueryId], Instant] = {}
        """when a client last heard of its query"""
        self.admitted: dict[tuple[PeerId, QueryId], Instant] = {}
        """when a query was admitted"""
        self.on_deliver: Callable[[PeerId, Deliver], None] | None = None
        self.on_calculated: Callable[[PeerId, Calculated], None] | None = None
        self.formulas: Callable[[str], Formula] | None = None
        """makes formulas from their texts; None: nothing is calculated"""
        self.on_send: Callable[[PeerId, PeerId, Message], None] | None = None
        self.events = 0
        self._queue: list[tuple[Instant, int, Callable[[], None] | _Arrival]] = []
        self._serial = 0
        self._numbers = 0
        self._digest = hashlib.sha256() if trace else None
        self._make: dict[PeerId, Callable[[], Broker]] = {}
        self._settings: dict[PeerId, Settings] = {}
        self._clients = 0

    # -- building

    def add_broker(
        self,
        me: PeerId,
        settings: Settings,
        policy: Callable[[], Policy],
        relays: Relays | None = None,
        others: tuple[Plug, ...] = (),
        version: int = VERSION,
    ) -> Broker:
        """A broker that is there from the start; `policy` and `others` are called again after a crash."""
        count = [0]

        def make() -> Broker:
            count[0] += 1
            rng = Random(f"{self.seed} {me} {count[0]}")
            return Broker(me, self.grid, settings, policy(), rng, relays, others, count[0], self.formulas)

        self._make[me] = make
        self._settings[me] = settings
        broker = make()
        self.nodes[me] = Node(broker, version)
        return broker

    def add_brokers(self, count: int, settings: Settings, policy: Callable[[], Policy]) -> None:
        """So many brokers, a power of two, that own an equal part of the first attribute each."""
        for number in range(count):
            self.add_broker(PeerId(number), settings, policy)
        self.assign([Region(0, count + number, PeerId(number), 1) for number in range(count)])

    def add_client(
        self, settings: Settings, brokers: tuple[PeerId, ...], roams: bool = True, version: int = VERSION
    ) -> PeerId:
        """A client that knows some brokers."""
        me = PeerId(BROKERS_MAX + self._clients)
        self._clients += 1
        session = Session(me, self.grid, settings, brokers, Random(f"{self.seed} {me}"), roams)
        self.nodes[me] = Node(session, version)
        return me

    @property
    def regions(self) -> dict[tuple[int, int], Region]:
        """Who owns what, by attribute and cell."""
        return {} if self.roster is None else self.roster.by_cell

    def assign(
        self, regions: list[Region], spread_s: float = 0.0, told: Collection[PeerId] | None = None
    ) -> None:
        """Tell brokers a roster with these regions, each within `spread_s`; those not `told` hear it from others."""
        version = 1 if self.roster is None else self.roster.version + 1
        members = tuple(self._member(peer, regions) for peer in self._settings)
        terms = Terms.of(self.grid, next(iter(self._settings.values())))
        self.roster = self.store[version] = Roster(version, terms, members, tuple(regions))
        for peer in list(self.nodes):
            if peer in self._make and (told is None or peer in told):
                self.after(self.rng.uniform(0, spread_s) if spread_s else 0.0, self._tell(peer))

    def _member(self, peer: PeerId, regions: list[Region]) -> Member:
        settings = self._settings[peer]
        owned = [first_of(r.cell, settings.depth) for r in regions if r.owner == peer]
        if (
            settings.beat_s is None or not owned
        ):  # where rosters do not change by themselves, places mean nothing
            return Member(peer, "", 0, settings.budget, relay=settings.beat_s is not None)
        return Member(peer, "", min(owned), settings.budget)

    def join(self, peer: PeerId, place: int = 0, relay: bool = False) -> None:
        """A broker that was added wants to be a member of an open network."""
        if self.roster is not None:
            self.feed(peer, Learned(self.roster))
        self.feed(peer, Joining(Member(peer, "", place, self._settings[peer].budget, relay=relay)))

    def leave(self, peer: PeerId) -> None:
        """A broker wants to go, in good order."""
        self.feed(peer, Leaving())

    def _tell(self, peer: PeerId) -> Callable[[], None]:
        def tell() -> None:
            assert self.roster is not None
            self.feed(peer, Learned(self.roster))

        return tell

    # -- what users do

    def submit(
        self,
        client: PeerId,
        query: QueryId,
        ask: Query,
        start: int = 0,
        until: int | None = None,
        cells: tuple[int, ...] | None = None,
    ) -> None:
        """Pose a query now, from tick `start` to before tick `until`.

        A query's own start and duration are moments; `query.ticks(grid, now)` gives the ticks.
        """
        self.feed(client, Submitted(query, ask, start, until, cells))

    def watch(self, client: PeerId, query: QueryId, formula: Formula, cell: int = 1, first: int = 0) -> None:
        """Want a derived stream, from a tick on."""
        self.feed(client, Watched(query, StreamName(formula.digest, cell), formula.text, first))

    def refine(self, client: PeerId, query: QueryId, ask: Query) -> None:
        """Change a running query now."""
        self.feed(client, Refined(query, ask))

    def move(self, client: PeerId, brokers: tuple[PeerId, ...]) -> None:
        """A client is near other brokers now."""
        self.feed(client, Moved(brokers))

    def cancel(self, client: PeerId, query: QueryId) -> None:
        """Cancel a query now."""
        self.feed(client, Cancelled(query))

    def status(self, client: PeerId, query: QueryId) -> str:
        """What a client heard last of its query."""
        heard = self.replies.get((client, query))
        return heard[-1].status if heard else "pending"

    # -- the pipeline: lake first, then the gateway

    def publish(self, attribute: int, cell: int, tick: int, revision: int, values: Values | None) -> None:
        """One tick of a region. A gateway that is down finds it in the lake when it is back."""
        box = box_of(self.grid, cell)
        shape = (box.y1 - box.y0, box.x1 - box.x0)
        if values is not None and values.shape != shape:
            raise WorldError(
                f"values of region {cell:b}: found shape {values.shape}, expected [row, column] {shape}"
            )
        lake = self.lake.setdefault((attribute, cell), {})
        lake[tick] = (revision, values)
        region = self.regions[attribute, cell]
        event = Published(attribute, cell, tick, revision, region.epoch, values)
        self.after(0.001, lambda: self.feed(region.owner, event))

    # -- faults

    def crash(self, peer: PeerId, heard: bool = True) -> None:
        """A node loses its memory; its peers hear of it at once, or only by silence."""
        node = self.nodes[peer]
        node.actor, node.wake, node.backlog, node.paused = None, None, [], False
        node.unheard.clear()
        node.incarnation += 1
        for connection in [c for c in self.connections.values() if peer in (c.a, c.b)]:
            if heard:
                self._break(connection, connection.other(peer))
            self._kill(connection)

    def restart(self, peer: PeerId) -> None:
        """A crashed broker starts anew."""
        node = self.nodes[peer]
        if node.actor is None:
            node.actor = self._make[peer]()
            if self.roster is not None:
                self._tell(peer)()

    def pause(self, peer: PeerId) -> None:
        """A node stops doing anything, as in a long pause of its process."""
        self.nodes[peer].paused = True

    def resume(self, peer: PeerId) -> None:
        """It goes on, with all that came meanwhile."""
        node = self.nodes[peer]
        node.paused = False
        backlog, node.backlog = node.backlog, []
        for event in backlog:
            if type(event) is PeerUp:
                node.unheard[event.peer] -= 1
                if not node.unheard[event.peer]:
                    del node.unheard[event.peer]
            self.feed(peer, event)
        self._arm(peer, node)

    def break_link(self, a: PeerId, b: PeerId, hears: tuple[PeerId, ...] = ()) -> None:
        """A connection stops working; only those in `hears` are told."""
        connection = self.connections.get(_pair(a, b))
        if connection is not None and not connection.dead:
            for peer in hears:
                self._break(connection, peer)
            self._kill(connection)

    def partition(self, side: set[PeerId]) -> None:
        """Nothing passes between these nodes and the others."""
        rest = [peer for peer in self.nodes if peer not in side]
        for a in sorted(side):
            for b in rest:
                self.cut.add(_pair(a, b))
                self.break_link(a, b)

    def heal(self) -> None:
        """All can reach each other again."""
        self.cut.clear()

    def rerouted(self) -> None:
        """Delays and routes have changed: open connections follow, in order as before."""
        for (a, b), connection in self.connections.items():
            connection.delay_s = self.delay_s(a, b)
            self._route(a, b)
            self._route(b, a)

    # -- time

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something later."""
        self._serial += 1
        heappush(self._queue, (self.now + delay_s, self._serial, action))

    def run(
        self, until: Instant, events_max: int = 100_000_000, stop: Callable[[], bool] | None = None
    ) -> None:
        """Let time pass, until `stop` says that it is enough."""
        queue, limit = self._queue, self.events + events_max
        while queue and queue[0][0] <= until:
            if stop is not None and stop():
                return
            self.now, _, action = heappop(queue)
            if type(action) is _Arrival:
                self._arrive(action)
            else:
                action()  # type: ignore[operator]
            self.events += 1
            if self.events > limit:
                raise WorldError(
                    f"world of seed {self.seed}: found {events_max} events by {self.now:.1f} s, expected rest"
                )
        self.now = max(self.now, until)

    def feed(self, peer: PeerId, event: Event) -> None:
        """One event for one node, now."""
        node = self.nodes.get(peer)
        if node is None or node.actor is None:
            return
        if node.paused:
            node.backlog.append(event)
            if type(event) is PeerUp:
                node.unheard[event.peer] = node.unheard.get(event.peer, 0) + 1
            return
        if self._digest is not None:
            self._record(peer, event)
        for effect in node.actor.handle(event, self.now):
            self._apply(peer, effect)
        self._arm(peer, node)

    @property
    def digest(self) -> str:
        """Of all events so far, in order."""
        assert self._digest is not None, "the world keeps no trace"
        return self._digest.hexdigest()

    def _record(self, peer: PeerId, event: Event) -> None:
        assert self._digest is not None
        if isinstance(event, Received | Batch):
            for message in event.messages if isinstance(event, Batch) else (event.message,):
                text = f"{self.now!r} {peer} < {event.peer} {type(message).__name__} "
                self._digest.update(text.encode() + encode(message))
        else:
            self._digest.update(f"{self.now!r} {peer} {type(event).__name__}".encode())

    def _arm(self, peer: PeerId, node: Node) -> None:
        if node.actor is None or node.paused:
            return
        wake = node.actor.next_wakeup()
        if wake is None or (node.wake is not None and node.wake <= wake):
            return
        node.wake = wake
        incarnation = node.incarnation

        def ring() -> None:
            if node.incarnation != incarnation or node.wake != wake:
                return
            node.wake = None
            if node.actor is None:
                return
            due = node.actor.next_wakeup()
            if due is not None and due <= self.now:
                self.feed(peer, Woke())
            else:
                self._arm(peer, node)

        self.after(max(0.0, wake - self.now), ring)

    # -- effects

    def _apply(self, me: PeerId, effect: Effect) -> None:
        if type(effect) is Send:  # by far the most frequent
            self._send(me, effect.peer, effect.message)
            return
        match effect:
            case Spread(plan, tick, slab):
                for peer, message in plan.sends(tick, slab):
                    self._send(me, peer, message)
            case Connect(peer):
                self._dial(me, peer)
            case Disconnect(peer):
                self._close(me, peer)
            case Deliver():
                if self.on_deliver is not None:
                    self.on_deliver(me, effect)
            case Calculated():
                if self.on_calculated is not None:
                    self.on_calculated(me, effect)
            case Reply(query):
                self.replies.setdefault((me, query), []).append(effect)
                self.replied[me, query] = self.now
                if effect.status == "admitted":
                    self.admitted[me, query] = self.now
            case Recall(attribute, cell, epoch):
                self._recall(me, attribute, cell, epoch)
            case Propose(roster):
                self._ask_store(me, roster)
            case Inquire():
                self._ask_store(me, None)
            case Left():
                self.left.add(me)

    def _send(self, me: PeerId, peer: PeerId, message: Message) -> None:
        connection = self.connections.get(_pair(me, peer))
        if connection is None or not connection.up.get(me) or connection.dead:
            return
        if peer in self.nodes[me].unheard:
            return
        if connection.version < VERSION:
            assert message.since <= connection.version, f"{message} on a connection of {connection.version}"
            message = as_of(message, connection.version)
        if self.on_send is not None:
            self.on_send(me, peer, message)
        size = 0 if connection.rate is None else len(encode(message))
        when = connection.arrival(peer, self.now, size)
        latest = connection.latest.get(peer)
        if latest is not None and latest.when == when:
            latest.messages.append(message)  # they come together
            return
        self._serial += 1
        arrival = connection.latest[peer] = _Arrival(connection, me, peer, when, [message])
        heappush(self._queue, (when, self._serial, arrival))

    def _arrive(self, arrival: "_Arrival") -> None:
        connection = arrival.connection
        if connection.latest.get(arrival.to) is arrival:
            del connection.latest[arrival.to]
        if not connection.dead and connection.up.get(arrival.to):
            sender, several = arrival.sender, arrival.messages
            self.feed(
                arrival.to,
                Received(sender, several[0]) if len(several) == 1 else Batch(sender, tuple(several)),
            )

    def _dial(self, me: PeerId, peer: PeerId) -> None:
        pair, incarnation = _pair(me, peer), self.nodes[me].incarnation
        delay = self.delay_s(me, peer)

        def reached() -> None:
            node, mine = self.nodes.get(peer), self.nodes[me]
            if mine.actor is None or mine.incarnation != incarnation:
                return
            old = self.connections.get(pair)
            if old is not None and not old.dead and old.up.get(peer):
                if not old.up.get(me):  # this side had given it up: a new connection replaces it
                    self._kill(old)
                else:
                    return
            if node is None or node.actor is None or pair in self.cut:
                self.after(delay + (1.0 if pair in self.cut else 0.0), failed)
                return
            self._numbers += 1
            version = min(mine.version, node.version)
            connection = Connection(self._numbers, *pair, delay, self.rate, version)
            self.connections[pair] = connection
            connection.up = {me: True, peer: True}
            connection.arrived = {me: self.now + delay}
            # First in the queue: the side that dialled learns that it is open before it hears anything on it.
            self.after(delay, lambda: opened(connection))
            self.feed(peer, PeerUp(me, version))
            self._route(peer, me)

        def opened(connection: Connection) -> None:
            if not connection.dead and connection.up.get(me):
                self.feed(me, PeerUp(peer, connection.version))
                self._route(me, peer)
            else:
                failed()

        def failed() -> None:
            if self.nodes[me].incarnation == incarnation:
                self.feed(me, PeerDown(peer))

        self.after(delay, reached)

    def _route(self, me: PeerId, peer: PeerId) -> None:
        if self.hops is not None and me in self._make and peer in self._make:
            self.feed(me, Routed(peer, self.hops(me, peer)))

    def _close(self, me: PeerId, peer: PeerId) -> None:
        connection = self.connections.get(_pair(me, peer))
        if connection is None or not connection.up.get(me) or peer in self.nodes[me].unheard:
            return
        connection.up[me] = False
        if connection.dead:
            return
        when = connection.arrival(peer, self.now, 0)

        def ended() -> None:
            if not connection.dead:
                told = connection.up.get(peer)
                self._kill(connection)
                if told:
                    self.feed(peer, PeerDown(me))

        self._serial += 1
        heappush(self._queue, (when, self._serial, ended))

    def _break(self, connection: Connection, peer: PeerId) -> None:
        """Let one side hear, some time, that a connection is gone."""
        if not connection.up.get(peer):
            return
        connection.up[peer] = False
        other = connection.other(peer)

        def hear() -> None:
            current = self.connections.get(_pair(peer, other))
            if current is None or current is connection:
                self.feed(peer, PeerDown(other))

        self.after(self.rng.uniform(0.0, 0.5), hear)

    def _kill(self, connection: Connection) -> None:
        connection.dead = True
        pair = _pair(connection.a, connection.b)
        if self.connections.get(pair) is connection:
            del self.connections[pair]

    def _ask_store(self, me: PeerId, proposed: Roster | None) -> None:
        """Write a version if it is not there, and read the newest: both take some time, and either may get lost."""

        def written() -> None:
            if me in self.storeless:
                self.after(1.0, lambda: self.feed(me, Ruled(False)))
                return
            if proposed is not None and proposed.version not in self.store:
                self.store[proposed.version] = self.roster = proposed
            newest = self.roster
            self.after(STORE_S, lambda: answered(newest))

        def answered(newest: Roster | None) -> None:
            if me in self.storeless:
                self.feed(me, Ruled(False))
                return
            if newest is not None:
                self.feed(me, Learned(newest))
            self.feed(me, Ruled(True))

        self.after(STORE_S, written)

    def _recall(self, me: PeerId, attribute: int, cell: int, epoch: int) -> None:
        # As it is when it is read, not when the answer comes: what is written meanwhile is published as well.
        lake = self.lake.get((attribute, cell), {})
        event = Recalled(attribute, cell, epoch, tuple((tick, *lake[tick]) for tick in sorted(lake)))
        self.after(0.05, lambda: self.feed(me, event))


def _pair(a: PeerId, b: PeerId) -> tuple[PeerId, PeerId]:
    return (a, b) if a < b else (b, a)
