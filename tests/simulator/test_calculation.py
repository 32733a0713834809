"""Derived streams: what is calculated in the network is what one process would calculate."""

from collections.abc import Iterator

import numpy as np
import pytest

from formulas import Sum, read
from hands import settings, values
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.overlay.derived import Derived, StreamName, blocks_of, home_of
from sensorgrid.overlay.events import Calculated
from sensorgrid.overlay.mechanisms.calculation import PATIENCE_S
from sensorgrid.overlay.policies.interface import Never
from sensorgrid.simulator.checkers import brokers_of, leftovers
from worlds import SmallWorld

OWNERS = {"000": 0, "001": 0, "010": 1, "011": 1, "100": 2, "101": 2, "110": 3, "111": 3}
MINE = QueryId(1)


class Calculating(SmallWorld):
    """A network that calculates, and clients that note what they get."""

    def __init__(self, **changes: object) -> None:
        self.got: dict[PeerId, list[Calculated]] = {}
        super().__init__(OWNERS, formulas=read, **changes)  # type: ignore[arg-type]
        self.on_calculated = lambda me, event: self.got.setdefault(me, []).append(event)

    def ask(self, formula: Sum, at: int = 0, first: int | None = None) -> PeerId:
        """A client watches a stream."""
        others = tuple(p for p in brokers_of(self) if p != at)
        me = self.add_client(settings(**self.chosen), (PeerId(at), *others))
        self.got[me] = []
        self.watch(me, MINE, formula, first=self.ticks if first is None else first)
        return me

    def truth(self, formula: Sum, tick: int) -> tuple[int, list[float]]:
        """Revision and numbers of a tick, from the lake."""
        weight, total, points = 0, 0.0, 0.0
        for at in range(tick - formula.window + 1, tick + 1):
            for attribute, code in self.regions:
                revision, held = self.lake.get((attribute, code), {}).get(at, (0, None))
                if attribute == formula.attribute and held is not None:
                    weight += revision + 1
                    total += float(held.astype(float).sum())
                    points += held.size
        assert self.roster is not None
        return weight - blocks_of(formula, 1, self.roster), [total, points] if weight else []

    def problems(self, me: PeerId, formula: Sum, first: int) -> Iterator[str]:
        """What a client has not got as it should."""
        newest: dict[int, Calculated] = {}
        ticks: list[int] = []
        for event in self.got[me]:
            known = newest.get(event.tick)
            if known is None:
                ticks.append(event.tick)
            elif event.revision <= known.revision:
                yield f"tick {event.tick}: revision {event.revision} after {known.revision}"
            newest[event.tick] = event
        if ticks != list(range(first, self.ticks)):
            yield f"found ticks {ticks}, expected {first} to {self.ticks - 1}"
        for tick in ticks:
            revision, numbers = self.truth(formula, tick)
            found = newest[tick]
            if found.revision != revision or not np.allclose(np.frombuffer(found.numbers), numbers):
                yield f"tick {tick}: found {found}, expected {revision} {numbers}"


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("at", range(4))
def test_a_sum_over_all_regions_is_that_of_one_process(at: int, window: int) -> None:
    world = Calculating()
    world.tick(4)

    me = world.ask(Sum(window=window), at=at)
    world.tick(6)

    assert list(world.problems(me, Sum(window=window), 4)) == []
    assert world.replies[me, MINE][0].status == "admitted"


def test_nothing_is_left_when_nobody_wants_it() -> None:
    world = Calculating(alive_s=0.5, idle_s=2.0)
    clients = [world.ask(Sum(window=window), at=at) for at in range(4) for window in (1, 2)]
    world.tick(3)

    for me in clients:
        world.cancel(me, MINE)
    world.pass_(20.0)

    assert list(leftovers(world)) == []


def test_a_stream_is_calculated_once_however_many_want_it() -> None:
    world = Calculating()
    sent: dict[tuple[PeerId, PeerId, StreamName, int], int] = {}

    def count(me: PeerId, peer: PeerId, message: object) -> None:
        if isinstance(message, Derived):
            key = (me, peer, message.name, message.tick)
            sent[key] = sent.get(key, 0) + 1

    world.on_send = count
    clients = [world.ask(Sum(), at=n % 4) for n in range(12)]
    world.pass_(1.0)
    world.tick(5)

    assert all(list(world.problems(me, Sum(), 0)) == [] for me in clients)
    assert set(sent.values()) == {1}


def test_a_late_block_revises_the_result() -> None:
    world = Calculating()
    me = world.ask(Sum(window=2))
    world.tick(4)

    attribute, code = next(iter(world.regions))
    world.publish(attribute, code, 2, 1, values(code, 2, 1, attribute))
    world.pass_(2.0)

    assert list(world.problems(me, Sum(window=2), 0)) == []
    assert [e.revision for e in world.got[me] if e.tick == 3] == [0, 1]


def test_without_one_region_the_result_says_that_it_is_incomplete_and_is_completed_later() -> None:
    world = Calculating()
    me = world.ask(Sum())
    world.tick(2)
    missing = (0, next(code for attribute, code in world.regions if attribute == 0))

    for attribute, code in world.regions:
        if (attribute, code) != missing:
            world.publish(attribute, code, 2, 0, values(code, 2, 0, attribute))
    world.ticks += 1
    world.pass_(2 * PATIENCE_S)
    assert [e.revision for e in world.got[me] if e.tick == 2] == [-1]
    world.publish(*missing, 2, 0, values(missing[1], 2, 0, 0))
    world.pass_(2.0)

    assert list(world.problems(me, Sum(), 0)) == []


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("victim", range(4))
def test_whoever_dies_and_comes_back_every_tick_is_there_once_per_revision(victim: int, heard: bool) -> None:
    world = Calculating(alive_s=0.5, backoff_max_s=2.0, ring_ticks=64)
    clients = [world.ask(Sum(window=w), at=at) for at in range(4) for w in (1, 3)]
    world.tick(3)

    world.crash(PeerId(victim), heard=heard)
    world.tick(6)
    world.restart(PeerId(victim))
    world.tick(20)

    for number, me in enumerate(clients):
        assert list(world.problems(me, Sum(window=(1, 3)[number % 2]), 0)) == []


def test_a_newcomer_takes_a_stream_over_and_nobody_notices() -> None:
    world = Calculating(beat_s=1.0, alive_s=1.0, backoff_max_s=2.0, ring_ticks=64)
    clients = [world.ask(Sum(window=w), at=at) for at in range(4) for w in (1, 3)]
    world.tick(4)
    before = world.roster
    assert before is not None

    me = PeerId(4)
    world.add_broker(me, settings(**(world.chosen | {"budget": 10_000})), Never)
    world.join(me, 64)
    world.tick(20)

    assert world.roster is not None
    assert me in {r.owner for r in world.roster.regions}
    for number, client in enumerate(clients):
        assert list(world.problems(client, Sum(window=(1, 3)[number % 2]), 0)) == []


def test_a_senseless_formula_is_refused_with_the_reason() -> None:
    world = Calculating()
    me = world.add_client(settings(), (PeerId(1),))

    class Odd(Sum):
        text = "product 1 1"

    world.watch(me, MINE, Odd())
    world.pass_(2.0)

    reply = world.replies[me, MINE][-1]
    assert (reply.status, reply.reason) == ("refused", "formula: found 'product', expected 'sum'")


def test_homes_are_spread_over_brokers() -> None:
    world = Calculating(beat_s=1.0)
    assert world.roster is not None

    homes = {home_of(StreamName(Sum(n).digest, 1), world.roster) for n in range(64)}

    assert homes == set(map(PeerId, range(4)))
