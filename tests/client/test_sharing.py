"""Several queries on one connection, in the simulator: each gets its own points, the link carries each once."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hands import settings as broker_settings
from sensorgrid.client.assembly import Assembly, Tick
from sensorgrid.client.sharing import Demand, Sharing
from sensorgrid.model.errors import QueryError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId, QueryId, is_broker
from sensorgrid.model.query import Query
from sensorgrid.overlay import messages
from sensorgrid.overlay.events import Deliver, Effect, Reply, Submitted
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.policies.interface import Never
from sensorgrid.overlay.roster import Region
from sensorgrid.simulator.checkers import truth_of
from sensorgrid.simulator.world import World

EARTH = Grid(
    shape=(32, 16), tick=1, resolution_bits=(2, 2, 2), region_digits=2, value_bytes=8,
    attributes=("air_temperature", "wind_speed"),
)  # fmt: skip
A, B = EARTH.attributes


class ClientWorld(World):
    """Two brokers, one client with its sharing, and a pipeline that publishes on request."""

    def __init__(self, budget: int = 100_000, depth: int = 11) -> None:
        super().__init__(EARTH, seed=1)
        chosen = broker_settings(budget=budget, depth=depth, ring_ticks=16)
        for number in (0, 1):
            self.add_broker(PeerId(number), chosen, Never)
        self.assign([Region(a, 4 + n, PeerId(n % 2), 1) for a in (0, 1) for n in range(4)])
        self.client = self.add_client(chosen, (PeerId(0), PeerId(1)))
        self.sharing = Sharing(EARTH, depth, 1 << 20)
        self.got: dict[Demand, list[Tick]] = {}
        self.crossed: Counter[tuple[int, int, int, int]] = Counter()
        """how often a point (attribute, tick, row, column) reached the client"""
        self.names: dict[tuple[int, int, int], int] = {}
        self.on_send = self.sent
        self.ticks = 0
        self.shallow = depth < 11
        self.pass_(0.5)

    def _apply(self, me: PeerId, effect: Effect) -> None:
        if me == self.client and isinstance(effect, Deliver | Reply):
            self.sharing.now = self.now
            self.sharing.handle(effect)
            self.after(0.0, self.pump)
        else:
            super()._apply(me, effect)

    def sent(self, sender: PeerId, to: PeerId, message: messages.Message) -> None:
        if isinstance(message, messages.Want) and not is_broker(sender):
            self.names[sender, to, message.generation] = message.attribute
        if isinstance(message, messages.Feed) and to == self.client:
            attribute = self.names[to, sender, message.generation]
            for slab in message.slabs or ():
                for y in range(*slab.y):
                    self.crossed.update((attribute, message.tick, y, x) for x in range(*slab.x))

    def pump(self) -> None:
        events, self.sharing.events = self.sharing.events, []
        for event in events:
            self.feed(self.client, event)
        for demand in list(self.sharing.touched):
            while (tick := demand.assembly.take()) is not None:
                self.got[demand].append(tick)
            if demand.assembly.ended:
                self.sharing.end(demand)
            elif demand.assembly.full:
                self.sharing.overrun(demand)
        self.sharing.touched.clear()

    def open(
        self,
        query: Query,
        start: int | None = None,
        until: int | None = None,
        ahead_max: int = 64,
        revisions: bool = False,
    ) -> Demand:
        first = self.ticks if start is None else start
        demand = Demand(query, Assembly(EARTH, query, first, until, revisions, ahead_max=ahead_max))
        self.got[demand] = []
        self.sharing.pose(demand)
        self.pump()
        return demand

    def close(self, demand: Demand) -> None:
        self.sharing.end(demand)
        self.pump()

    def pass_(self, seconds: float) -> None:
        end = self.now + seconds
        while (
            due := self.sharing.next_wakeup() if hasattr(self, "sharing") else None
        ) is not None and due <= end:
            self.run(due)
            self.sharing.woke(self.now)
            self.pump()
        self.run(end)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.ticks += 1
            self.revise(self.ticks - 1, 0)

    def revise(self, tick: int, revision: int) -> None:
        for attribute, code in self.regions:
            box = box_of(EARTH, code)
            truth = truth_of(attribute, tick, revision, EARTH)[box.y0 : box.y1, box.x0 : box.x1]
            self.publish(attribute, code, tick, revision, truth)
        self.pass_(0.3)

    def check_revised(self, demand: Demand, revisions: dict[int, int]) -> None:
        """These ticks are given again, with exactly their values, and no others."""
        assembly = demand.assembly
        at = np.ix_(assembly.y.indices, assembly.x.indices % EARTH.shape[0])
        found: dict[int, int] = {}
        while (tick := assembly.take_revised()) is not None:
            found[tick.tick] = tick.revision
            for place, name in enumerate(demand.query.attributes):
                truth = truth_of(EARTH.attributes.index(name), tick.tick, tick.revision, EARTH)
                assert np.array_equal(tick.values[place], truth[at])
        assert found == revisions
        assert assembly.doubled == 0

    def check(self, demand: Demand, first: int, until: int | None = None) -> None:
        """All ticks in order, with exactly their values, nothing twice."""
        assembly = demand.assembly
        wanted = [t for t in range(first, self.ticks if until is None else until) if assembly.at(t)]
        assert [t.tick for t in self.got[demand]] == wanted
        for tick in self.got[demand]:
            for place, name in enumerate(demand.query.attributes):
                truth = truth_of(EARTH.attributes.index(name), tick.tick, 0, EARTH)
                at = np.ix_(assembly.y.indices, assembly.x.indices % EARTH.shape[0])
                assert np.array_equal(tick.values[place], truth[at])
            assert tick.missing == 0
        assert assembly.doubled == 0
        assert assembly.repeated == 0 or self.shallow

    def check_ticks(self, demand: Demand, ticks: range) -> None:
        assert [t.tick for t in self.got[demand]] == list(ticks)
        assert demand.assembly.doubled == 0

    def most(self) -> int:
        return max(self.crossed.values(), default=0)


EUROPE = Query(A, (-20, 20, 60, 80))
CASES = {
    "the same twice": (EUROPE, EUROPE),
    "one inside the other": (EUROPE, Query(A, (0, 30, 40, 60))),
    "one around the other": (Query(A, (0, 30, 40, 60)), EUROPE),
    "side by side with an overlap": (EUROPE, Query(A, (20, -40, 100, 60))),
    "coarse, then fine": (Query(A, (-20, 20, 60, 80), 0.25), EUROPE),
    "fine, then coarse": (EUROPE, Query(A, (-100, -80, 100, 85), (0.25, 0.5, 0.25))),
    "uneven": (Query(A, (-20, 20, 60, 80), 0.75), Query(A, (-40, 0, 40, 60), (0.5, 1, 0.75))),
    "across the date line": (Query(A, (120, -30, -120, 60)), Query(A, (160, 0, -90, 80), (0.5, 1, 1))),
    "one attribute in common": (EUROPE, Query((B, A), (0, 30, 80, 60))),
    "three": (EUROPE, Query((A, B), (0, 30, 80, 60), 0.5), Query((B, A), (-60, 0, 40, 89))),
}


@pytest.mark.parametrize("asked", CASES.values(), ids=CASES.keys())
def test_what_queries_have_in_common_crosses_the_link_once(asked: tuple[Query, ...]) -> None:
    world = ClientWorld()
    demands = [world.open(query) for query in asked]
    world.pass_(1.0)
    assert [d.status for d in demands] == ["running"] * len(asked)

    world.tick(5)

    for demand in demands:
        world.check(demand, 0)
    assert world.most() == 1
    wanted = {
        (EARTH.attributes.index(name), int(t), int(y), int(x) % 32)
        for d in demands for name in d.query.attributes for t in range(5) if d.assembly.at(t)
        for y in d.assembly.y.indices for x in d.assembly.x.indices
    }  # fmt: skip
    assert set(world.crossed) == wanted  # and nothing else does


@pytest.mark.parametrize("asked", CASES.values(), ids=CASES.keys())
def test_cells_that_cannot_be_cut_fine_enough_only_cost_some_bytes(asked: tuple[Query, ...]) -> None:
    world = ClientWorld(depth=4)
    demands = [world.open(query) for query in asked]

    world.tick(5)

    for demand in demands:
        world.check(demand, 0)
    assert world.most() <= len(asked)


def test_a_query_that_begins_in_the_past_catches_up_and_then_shares() -> None:
    world = ClientWorld()
    first = world.open(EUROPE)
    world.tick(6)

    second = world.open(Query(A, (0, 30, 80, 60)), start=1)
    world.pass_(1.0)
    world.tick(4)

    world.check(first, 0)
    world.check(second, 1)
    live = [count for (_, tick, _, _), count in world.crossed.items() if tick >= 6]
    assert max(live) == 1
    assert world.most() == 2


def test_a_tick_that_is_half_here_when_the_second_one_comes_is_not_taken_twice() -> None:
    world = ClientWorld()
    first = world.open(Query(A))
    world.tick(2)
    world.pause(PeerId(1))
    world.tick(1)
    assert [t.tick for t in world.got[first]] == [0, 1]

    second = world.open(Query(A, (-170, -80, 170, 80)), start=2)
    world.pass_(0.3)
    world.resume(PeerId(1))
    world.pass_(2.0)
    world.tick(2)

    world.check(first, 0)
    world.check(second, 2)


def test_a_query_that_ran_is_not_given_up_when_there_is_no_room_for_it_any_more() -> None:
    world = ClientWorld(budget=1000)
    first = world.open(Query(A, (-20, 0, 60, 80)))
    world.tick(2)
    world.sharing.pause(first)
    world.pump()
    taker = world.open(Query(B, (-180, 0, 180, 80)))
    world.tick(1)
    assert taker.status == "running"

    world.sharing.pose(first)
    world.pump()
    world.pass_(15.0)
    assert (first.status, first.reason) != ("running", "")
    assert first in world.sharing.demands
    world.close(taker)
    world.pass_(30.0)
    world.tick(1)

    assert first.status == "running"
    world.check(first, 0)


def test_a_part_of_a_query_that_has_no_points_is_left_out_and_none_at_all_is_refused() -> None:
    world = ClientWorld()
    one, other = 0b1011, 0b1000  # one holds points of Europe, the other one none
    wanted: list[messages.Want] = []
    world.on_send = lambda sender, to, message: (
        wanted.append(message) if isinstance(message, messages.Want) else None
    )

    world.feed(world.client, Submitted(QueryId(901), EUROPE, 0, None, (one, other)))
    world.feed(world.client, Submitted(QueryId(902), EUROPE, 0, None, (other,)))
    world.pass_(1.0)

    assert [cell for want in wanted for cell, _, _ in want.items] == [one]
    assert set(world.nodes[world.client].actor.queries) == {901}  # type: ignore[union-attr]


def test_when_the_first_one_ends_the_other_goes_on_without_a_gap_or_a_repeat() -> None:
    world = ClientWorld()
    first, second = world.open(EUROPE), world.open(Query(A, (0, 30, 80, 60)))
    third = world.open(Query(A, (10, 20, 50, 60), 0.5))
    world.tick(3)

    world.close(first)
    world.tick(3)
    world.close(second)
    world.tick(3)

    world.check(first, 0, 3)
    world.check(second, 0, 6)
    world.check(third, 0)
    world.close(third)
    world.pass_(1.0)
    assert world.sharing.channels == {}
    assert world.nodes[world.client].actor.queries == {}  # type: ignore[union-attr]


def test_a_paused_query_goes_on_from_its_next_tick() -> None:
    world = ClientWorld()
    first, second = world.open(EUROPE), world.open(Query(A, (0, 30, 80, 60)))
    world.tick(3)
    world.sharing.pause(first)
    world.pump()
    world.tick(5)
    assert [t.tick for t in world.got[first]] == [0, 1, 2]

    world.sharing.pose(first)
    world.pump()
    world.pass_(1.0)
    world.tick(2)

    world.check(first, 0)
    world.check(second, 0)


def test_ticks_that_are_revised_during_a_pause_are_given_again() -> None:
    world = ClientWorld()
    demand = world.open(EUROPE, revisions=True)
    world.tick(4)
    world.revise(1, 1)
    world.check_revised(demand, {1: 1})
    world.sharing.pause(demand)
    world.pump()
    world.revise(2, 1)
    world.tick(2)

    world.sharing.pose(demand)
    world.pump()
    world.pass_(1.0)
    world.check_revised(demand, {2: 1})
    world.revise(3, 2)

    world.check_revised(demand, {3: 2})
    world.check_ticks(demand, range(6))


def test_ticks_that_are_revised_during_a_pause_are_given_again_to_one_who_shares() -> None:
    world = ClientWorld()
    first, second = world.open(EUROPE), world.open(Query(A, (0, 30, 80, 60)), revisions=True)
    world.tick(4)
    world.sharing.pause(second)
    world.pump()
    world.revise(2, 1)

    world.sharing.pose(second)
    world.pump()
    world.pass_(1.0)
    world.check_revised(second, {2: 1})
    world.revise(3, 1)  # comes with what is shared, which begins later
    world.tick(1)

    world.check_revised(second, {3: 1})
    world.check_ticks(second, range(5))
    world.check_ticks(first, range(5))


def test_ticks_before_what_is_shared_began_are_given_again_when_they_are_revised() -> None:
    world = ClientWorld()
    world.tick(4)
    first = world.open(EUROPE)
    world.tick(1)
    second = world.open(Query(A, (0, 30, 80, 60)), start=0, revisions=True)
    world.pass_(1.0)
    world.tick(1)

    world.revise(3, 1)
    world.check_revised(second, {3: 1})
    world.tick(8)
    world.revise(10, 1)

    world.check_revised(second, {10: 1})
    world.check_ticks(second, range(14))
    world.check_ticks(first, range(4, 14))
    assert second.borrowed


def test_ticks_that_are_revised_after_what_was_shared_has_ended_are_given_again() -> None:
    world = ClientWorld()
    first, second = world.open(EUROPE), world.open(Query(A, (0, 30, 80, 60)), revisions=True)
    world.tick(4)
    world.close(first)
    world.pass_(1.0)

    world.revise(2, 1)
    world.tick(1)

    world.check_revised(second, {2: 1})
    world.check_ticks(second, range(5))


def test_a_query_with_an_end_gives_its_ticks_and_leaves_those_who_share_alone() -> None:
    world = ClientWorld()
    short = world.open(EUROPE, until=4)
    long = world.open(Query(A, (0, 30, 80, 60)))
    world.tick(7)

    world.check(short, 0, 4)
    world.check(long, 0)
    assert short.status == "ended"


def test_a_query_without_room_is_refused_with_the_reason_and_the_others_stay() -> None:
    world = ClientWorld(budget=1100)
    first = world.open(EUROPE)
    world.tick(2)

    second = world.open(Query((A, B)))
    world.pass_(20.0)
    world.tick(2)

    assert second.status == "refused"
    assert second.reason == messages.NO_ROOM.text
    world.check(first, 0)
    assert second not in world.sharing.demands


def test_a_dead_broker_suspends_and_its_return_resumes_without_a_loss() -> None:
    world = ClientWorld()
    first, second = world.open(EUROPE), world.open(Query(A, (0, 30, 80, 60)))
    world.tick(3)
    for broker in (0, 1):
        world.crash(PeerId(broker))
    world.pass_(10.0)
    assert (first.status, second.status) == ("suspended", "suspended")

    for broker in (0, 1):
        world.restart(PeerId(broker))
    world.pass_(30.0)
    world.tick(3)

    assert (first.status, second.status) == ("running", "running")
    world.check(first, 0)
    world.check(second, 0)


def test_a_query_of_which_a_part_lags_too_far_starts_again_and_nothing_is_lost() -> None:
    world = ClientWorld()
    demand = world.open(Query(A), ahead_max=2)
    world.tick(2)
    world.pause(PeerId(1))
    world.tick(5)
    assert demand.status in ("suspended", "pending")  # it tries again and again
    assert len(demand.assembly._partial) <= 3

    world.resume(PeerId(1))
    world.pass_(20.0)
    world.tick(2)

    world.check(demand, 0)


LONGITUDES, LATITUDES = (
    st.integers(-17, 16).map(lambda n: n * 11.25),
    st.integers(-8, 8).map(lambda n: n * 11.25),
)
PARTS = st.integers(1, 4).map(lambda n: n / 4)


@st.composite
def asks(draw: st.DrawFn) -> Query:
    south, north = sorted((draw(LATITUDES), draw(LATITUDES)))
    names = draw(st.sampled_from([(A,), (B,), (A, B)]))
    return Query(
        names, (draw(LONGITUDES), south, draw(LONGITUDES), north), (draw(PARTS), draw(PARTS), draw(PARTS))
    )


@settings(max_examples=60)
@given(st.lists(asks(), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_any_queries_that_come_and_go_get_their_points_exactly(
    asked: list[Query], rng: random.Random
) -> None:
    world = ClientWorld()
    opened: list[tuple[Demand, int]] = []
    closed: list[tuple[Demand, int, int]] = []
    for query in asked:
        try:
            query.box(EARTH)
        except QueryError:
            continue
        start = max(0, world.ticks - rng.randrange(4))
        opened.append((world.open(query, start), start))
        world.tick(rng.randrange(3))
        if rng.random() < 0.3:
            demand, first = opened.pop(rng.randrange(len(opened)))
            world.pass_(1.0)
            world.close(demand)
            closed.append((demand, first, world.ticks))
    world.pass_(1.0)
    before = Counter(world.crossed)
    world.tick(4)

    for demand, first in opened:
        world.check(demand, first)
    for demand, first, until in closed:
        world.check(demand, first, until)
    live = world.crossed - before
    assert max(live.values(), default=1) == 1
