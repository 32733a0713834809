"""Claims of the multires paper (Benzing et al., COMSWARE 2011), sections 3.3, 4.3 to 4.5, one test each.

The worlds are the paper's, 4 × 4 brokers and queries around a hot spot, with budgets so small that a few hundred
queries fill them.
"""

from collections.abc import Callable
from random import Random

import pytest

from sensorgrid.index.codes import prefixes
from sensorgrid.index.decompose import decompose
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay.broker import Broker
from sensorgrid.overlay.events import Received, Send
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.mechanisms.replication import Move, Replication
from sensorgrid.overlay.messages import Answer, Find, Found, Moving, Redirect, Want
from sensorgrid.overlay.policies.interface import Never, Policy, Proposal, View
from sensorgrid.overlay.policies.ours import Ours
from sensorgrid.overlay.policies.paper import Paper
from sensorgrid.overlay.session import Session
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator.checkers import brokers_of, leftovers, rules
from sensorgrid.simulator.workloads import HOT_SPOTS, paper_grid, queries
from sensorgrid.simulator.world import World

GRID = paper_grid(4)
WORLD = GRID.points_per_period


class Watched(Paper):
    """The paper's policy, with all that it was asked and said."""

    def __init__(self, seen: list[tuple[View, Proposal]]) -> None:
        super().__init__()
        self.seen = seen

    def propose(self, view: View) -> Proposal | None:
        proposal = super().propose(view)
        if proposal is not None:
            load = view.loads(proposal.attribute)[proposal.cell].points
            assert load > view.size(proposal.cell)
            self.seen.append((view, proposal))
        return proposal


class Paperworld(World):
    """Sixteen brokers, one client at each."""

    def __init__(self, policy: Callable[[], Policy], budget: float, depth: int = 8) -> None:
        super().__init__(GRID, seed=1)
        chosen = Settings(budget=int(budget * WORLD / 16), depth=depth, alive_s=None, news_change=0.01)
        self.add_brokers(16, chosen, policy)
        self.run(2.0)
        self.clients = [self.add_client(chosen, (PeerId(b),)) for b in range(16)]
        self.posed: list[tuple[PeerId, QueryId]] = []

    def pose(self, ask: Query, at: int) -> str:
        """Pose a query at a broker and wait for what becomes of it; the rules hold at any time."""
        client, query = self.clients[at], QueryId(len(self.posed))
        self.submit(client, query, ask)
        self.run(self.now + 20, stop=lambda: self.status(client, query) != "pending")
        self.posed.append((client, query))
        assert list(rules(self)) == []
        return self.status(client, query)

    def fill(self, asked: int, spot: str = "single") -> int:
        """Pose queries around a hot spot until one is refused, or so many; how many were admitted."""
        rng, source = Random(1), queries(HOT_SPOTS[spot], GRID, Random(1))
        for count in range(asked):
            if self.pose(next(source), rng.randrange(16)) != "admitted":
                return count
        return asked

    @property
    def brokers(self) -> dict[PeerId, Broker]:
        return brokers_of(self)

    def replicas(self) -> list[tuple[PeerId, int, tuple[PeerId, ...]]]:
        """(broker, cell, path) of all that brokers take from others."""
        return [
            (peer, cell, supply.path or ())
            for peer, broker in self.brokers.items()
            for cell, supply in broker.boards.outlets.supplies.get(0, {}).items()
            if not supply.owned
        ]

    def providers(self, client: PeerId, query: QueryId) -> set[PeerId]:
        """Who feeds a query."""
        session = self.nodes[client].actor
        assert isinstance(session, Session)
        return {p.feed.peer for p in session.queries[query].pieces if p.feed is not None}

    def fed_and_owed(self) -> tuple[dict[PeerId, int], dict[PeerId, int]]:
        """By broker: points per period that clients have from it, and that it counts for clients."""
        fed: dict[PeerId, int] = dict.fromkeys(self.brokers, 0)
        for client in self.clients:
            session = self.nodes[client].actor
            assert isinstance(session, Session)
            for standing in session.queries.values():
                for piece in standing.pieces:
                    if piece.feed is not None:
                        fed[piece.feed.peer] += piece.points
        owed = {
            peer: sum(e.size for by in broker.boards.outlets.entries.values() for e in by.values() if e.clip)
            for peer, broker in self.brokers.items()
        }
        return fed, owed

    def suspended(self) -> int:
        return sum(reply.status == "suspended" for replies in self.replies.values() for reply in replies)


def test_3_3_replication_serves_more_clients_than_a_broker_alone() -> None:
    """The load has to be distributed among brokers to provide as many clients as possible with data."""
    alone = Paperworld(Never, budget=4).fill(900)
    together = Paperworld(Paper, budget=4).fill(900)

    assert together > 2 * alone


@pytest.mark.parametrize("policy", [Paper, lambda: Ours(True), lambda: Ours(False)])
def test_3_3_no_broker_exceeds_its_bandwidth_and_nobody_who_was_admitted_loses_his_stream(
    policy: Callable[[], Policy],
) -> None:
    """Streams to brokers and to clients together stay within a_b, up to the last query that fits."""
    world = Paperworld(policy, budget=4)

    admitted = world.fill(900, "large")

    assert admitted < 900
    for broker in world.brokers.values():
        entries = [e for by in broker.boards.outlets.entries.values() for e in by.values()]
        assert sum(e.size for e in entries) <= broker.boards.outlets.budget
    assert world.suspended() == 0
    world.run(world.now + 1)
    fed, owed = world.fed_and_owed()
    assert fed == owed


def test_4_4_a_hot_region_is_replicated_on_neighbours() -> None:
    """If a broker runs out of resources, a replica of a highly loaded region is made on a neighbouring broker."""
    world = Paperworld(Paper, budget=4)
    hot = PeerId(3)

    world.fill(400)
    first = [(peer, cell) for peer, cell, path in world.replicas() if path[:-1] == (hot,)]

    assert first
    assert all(cell >> (cell.bit_length() - 5) == 16 + hot for _, cell in first)
    assert {peer for peer, _ in first} <= set(world.brokers[hot].boards.regions.neighbours[0])


def test_4_4_1_every_replicated_region_was_overloaded_and_the_query_was_then_served() -> None:
    """load(r) > 1 for each replicated region; the query which triggered the replication is finally processed."""
    seen: list[tuple[View, Proposal]] = []
    world = Paperworld(lambda: Watched(seen), budget=4)

    admitted = world.fill(400)

    assert admitted == 400
    assert len(seen) >= 3  # each was checked when it was made


def test_4_4_1_replicas_are_replicated_on_a_second_and_a_third_level() -> None:
    """The replicated region need not originate from a broker but can also be a replication itself."""
    world = Paperworld(Paper, budget=4)

    world.fill(900)
    levels = [len(path) - 1 for _, _, path in world.replicas()]

    assert {1, 2, 3} <= set(levels)


def test_4_4_2_replicas_lie_away_from_the_origin_and_never_with_who_feeds_the_region() -> None:
    """Only neighbours with a larger distance to the original region, none that provides it, most bandwidth first."""
    seen: list[tuple[View, Proposal]] = []
    world = Paperworld(lambda: Watched(seen), budget=4)

    world.fill(900, "large")

    assert {view.me for view, _ in seen} - {3, 6, 9, 12}  # replicas were replicated, too
    for view, proposal in seen:
        here, there = (view.distance(0, peer, proposal.cell) for peer in (view.me, proposal.target))
        assert there > here
        assert proposal.target in view.neighbours[0]
        assert proposal.target not in view.path(0, proposal.cell)


def test_4_3_a_replica_answers_a_query_before_it_reaches_the_origin() -> None:
    """During query processing, queries are answered by a replica before they are forwarded to the source."""
    world = Paperworld(Paper, budget=4)
    world.fill(400)
    replica, tiny = next(
        (peer, ask)
        for peer, cell, path in world.replicas()
        for ask in [coarse(cell)]
        if len(path) == 2
        and world.brokers[peer].boards.outlets.free > WORLD >> 12
        and all(cell in prefixes(part.code) for part in decompose(ask, GRID, 8).cells)
    )

    assert world.pose(tiny, at=replica) == "admitted"

    assert world.providers(*world.posed[-1]) == {replica}


def coarse(cell: int) -> Query:
    """A query for the area of a cell at the lowest resolution."""
    return Query(GRID.attributes[0], GRID.bbox_of(box_of(GRID, cell)), (1 / 16, 1 / 16, 1 / 16))


@pytest.mark.parametrize("policy", [Paper, lambda: Ours(True), lambda: Ours(False)])
def test_4_4_3_the_removal_of_everything_in_any_order_leaves_the_initial_state(
    policy: Callable[[], Policy],
) -> None:
    """All brokers that provide parts of the no longer required area are informed about the removal."""
    world = Paperworld(policy, budget=4)
    world.fill(400)
    assert world.replicas()
    order = list(world.posed)
    Random(5).shuffle(order)

    for client, query in order:
        world.cancel(client, query)
        world.run(world.now + 0.05)
    world.run(world.now + 120)  # connections without streams are closed after a while

    assert world.replicas() == []
    assert list(leftovers(world)) == []
    for broker in world.brokers.values():
        assert broker.boards.outlets.free == broker.boards.outlets.budget
        assert list(broker.boards.outlets.supplies[0]) == [16 + broker.me]


def test_4_4_3_a_relay_with_a_single_query_left_is_dissolved_even_if_its_provider_is_full() -> None:
    """The query takes the relay's place: its provider has nothing else to give."""
    world = Paperworld(Paper, budget=4)
    world.fill(400)
    relay, cell, path = next(r for r in world.replicas() if len(r[2]) == 2)
    origin = world.brokers[path[0]].boards.outlets
    mine = world.brokers[relay].boards.outlets.supplies[0][cell]
    last = max(mine.entries.values(), key=lambda entry: entry.size)
    stay = {(last.peer, query) for query in sessions_with(world, last.peer, relay, last.generation)}
    for peer, query in world.posed:
        if relay in world.providers(peer, query) and (peer, query) not in stay:
            world.cancel(peer, query)
    world.run(world.now + 1)
    assert len(mine.entries) == 1
    origin.budget = origin.used + origin.reserved  # not a point is left
    asked: list[Find | Want] = []

    def overhear(sender: PeerId, to: PeerId, message: object) -> None:
        if isinstance(message, Find) and message.asker == relay and cell in message.cells:
            asked.append(message)
        if isinstance(message, Want) and sender == relay and cell in [code for code, _, _ in message.items]:
            asked.append(message)

    world.on_send = overhear

    world.run(world.now + 40)

    assert relay not in {peer for peer, code, _ in world.replicas() if code == cell}
    assert all(world.status(*asked) == "admitted" for asked in stay)
    assert all(path[0] in world.providers(*asked) for asked in stay)
    assert asked == []  # the relay looks for no other provider: nobody needs it
    assert list(rules(world)) == []
    assert world.suspended() == 0


def sessions_with(world: Paperworld, client: PeerId, provider: PeerId, generation: int) -> list[QueryId]:
    """Queries of a client that have something from a provider under a generation."""
    session = world.nodes[client].actor
    assert isinstance(session, Session)
    return [
        query
        for query, standing in session.queries.items()
        for piece in standing.pieces
        if piece.feed is not None and (piece.feed.peer, piece.feed.generation) == (provider, generation)
    ]


def test_4_5_a_very_small_hot_spot_is_spread_over_all_brokers() -> None:
    """Replicas over multiple levels distribute even a very small hot spot over a large number of brokers."""
    world = Paperworld(Paper, budget=4)

    world.fill(900)

    busy = [b for b in world.brokers.values() if b.boards.outlets.used > b.boards.outlets.budget / 2]
    assert len(busy) >= 12


def test_ours_makes_few_copies_and_only_of_whole_cells_while_there_is_room() -> None:
    """Not the paper's: at most a quarter more replication than the bound, and far less than the paper's."""
    streams = {}
    for policy in (Paper, lambda: Ours(True), lambda: Ours(False)):
        world = Paperworld(policy, budget=4)
        world.fill(300, "large")
        name = replication_of(world.brokers[PeerId(0)]).policy.name
        streams[name] = sum(WORLD >> (cell.bit_length() - 1) for _, cell, _ in world.replicas())

    assert streams["ours"] > 0
    assert 2 * streams["ours"] < streams["paper"]
    assert 2 * streams["ours-local"] < streams["paper"]


def replication_of(broker: Broker) -> Replication:
    """The mechanism."""
    found = broker.mechanism(Replication)
    assert found is not None
    return found


def overloaded(policy: Callable[[], Policy]) -> tuple[Paperworld, Broker, Proposal]:
    """A world with a hot broker, and a move that its policy would make."""
    world = Paperworld(policy, budget=4)
    world.fill(150)
    hot = world.brokers[PeerId(3)]
    proposal = replication_of(hot).policy.propose(replication_of(hot)._view(WORLD >> 12))
    assert proposal is not None
    return world, hot, proposal


def answer(broker: Broker, proposal: Proposal, offered: int, reserved: int) -> list[type]:
    """Let the target of a move answer; what the broker says then."""
    replication_of(broker).move = Move(77, proposal, offered, due=1e9)
    broker.kernel.links.up.setdefault(proposal.target, 0.0)
    effects = broker.handle(Received(proposal.target, Answer(77, reserved)), now=1e3)
    return [
        type(e.message) for e in effects if isinstance(e, Send) and isinstance(e.message, Redirect | Moving)
    ]


def test_4_4_2_a_target_that_cannot_serve_the_whole_region_gets_nothing_of_it() -> None:
    """It shall serve the replica without running into an overload situation."""
    _, hot, proposal = overloaded(Paper)
    load = replication_of(hot)._view(1).loads(0)[proposal.cell].points

    assert proposal.whole
    assert answer(hot, proposal, load, load - 1) == [Moving]
    assert Redirect in answer(hot, proposal, load, load)


def test_what_a_target_answers_is_what_it_has_free() -> None:
    """News may be stale: a broker that promised less than was asked for has no more."""
    _, hot, proposal = overloaded(lambda: Ours(True))

    answer(hot, proposal, offered=1000, reserved=10)

    assert hot.boards.hearsay.free_of[proposal.target][1] == 10


def test_a_replicas_own_question_is_answered_by_who_feeds_it_a_clients_by_the_replica() -> None:
    """Otherwise a replica that looks for a provider would be sent to itself."""
    world = Paperworld(lambda: Ours(True), budget=4)
    world.fill(400)
    replica, cell, path = next(
        (p, c, path) for p, c, path in world.replicas()
        if len(path) == 2 and world.brokers[p].boards.outlets.free > world.brokers[p].boards.outlets.budget / 2
    )  # fmt: skip
    owner, neighbour = world.brokers[path[0]], world.brokers[path[0]].boards.regions.peers[0]

    def found(asker: PeerId) -> list[tuple[int, PeerId | None]]:
        question = Find(asker, 1, 0, (cell,), owner=False, trail=(neighbour,))
        effects = owner.handle(Received(neighbour, question), world.now)
        return [
            item
            for e in effects
            if isinstance(e, Send) and isinstance(e.message, Found)
            for item in e.message.items
        ]

    assert found(replica) == [(cell, owner.me)]
    assert [peer for _, peer in found(world.clients[0])] != [owner.me]
