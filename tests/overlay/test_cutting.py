"""A relay's supply is cut where its provider sends part of it elsewhere, and so on down to the clients (rules 1 and 5).

First a broker alone, then worlds with data, in which every client gets exactly its points once.
"""

from collections import defaultdict
from math import dist
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hands import (
    ANNA,
    BEN,
    CARL,
    EVERYTHING,
    GRID,
    NO_ROOM,
    ONE,
    LoneBroker,
    LoneClient,
    box_query,
    cell,
    points,
    sent,
)
from sensorgrid.index.codes import contains
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay.events import Batch, Effect, Woke
from sensorgrid.overlay.mechanisms.replication import Replication
from sensorgrid.overlay.mechanisms.trees import Trees
from sensorgrid.overlay.messages import (
    Clip,
    Feed,
    Find,
    Grant,
    Joined,
    Leave,
    Offer,
    Redirect,
    Refuse,
    Want,
)
from sensorgrid.overlay.outlets import Entry, Outlets, Supply
from sensorgrid.overlay.policies.interface import Proposal
from sensorgrid.overlay.policies.relays import NAMES, Relays
from sensorgrid.simulator.checkers import brokers_of, circles, conservation, leftovers
from worlds import SmallWorld

WHOLE, LOW, HIGH = "001", "0010", "0011"


def relay(**more: object) -> tuple[LoneBroker, int]:
    """Broker 0 relays 001 of broker 1 to Anna, who has had two ticks; the generation of its stream."""
    broker = LoneBroker(others={WHOLE: 1}, **more)  # type: ignore[arg-type]
    broker.up(1, 5)
    generation = broker.relays(WHOLE, provider=1, receiver=ANNA)
    broker.supply(1, WHOLE, (0, 1), generation)
    return broker, generation


def redirect(
    broker: LoneBroker, generation: int, part: str = LOW, to: int = 5, peer: int = 1
) -> list[Effect]:
    """The provider sends part of the stream elsewhere."""
    return broker.say(peer, Redirect(generation, ((cell(WHOLE), cell(part)),), PeerId(to)))


def fed(effects: list[Effect], peer: int) -> dict[str, list[int]]:
    """Ticks that a receiver gets, by cell."""
    found = defaultdict(list)
    for feed in sent(effects, Feed, peer):
        found[bin(feed.cell)[3:]].append(feed.tick)
    return dict(found)


# -- a broker alone


def test_a_supply_is_cut_and_its_receivers_are_told_as_the_broker_was_but_to_itself() -> None:
    broker, generation = relay()

    effects = redirect(broker, generation)

    assert broker.boards.outlets.supplies[0].keys() == {cell("000"), cell(LOW), cell(HIGH)}
    assert sent(effects, Redirect, ANNA) == [Redirect(1, ((cell(WHOLE), cell(LOW)),), PeerId(0))]
    assert set(broker.boards.outlets.entries[ANNA]) == {(1, cell(LOW)), (1, cell(HIGH))}
    assert broker.boards.outlets.used == points(cell(WHOLE), EVERYTHING)


def test_only_the_part_that_was_named_is_taken_from_elsewhere() -> None:
    broker, generation = relay()

    asked = redirect(broker, generation)
    (want,) = sent(asked, Want)
    switched = broker.say(5, Grant(want.generation, (cell(LOW),), (PeerId(1), PeerId(5))))

    assert sent(asked, Want, 5) == [want]
    assert (want.items, want.via) == (((cell(LOW), 32, 2),), 1)
    assert sent(asked, Leave) == []
    assert sent(switched, Leave) == sent(switched, Leave, 1) == [Leave(generation, (cell(LOW),))]
    assert sent(switched, Grant, ANNA) == [Grant(1, (cell(LOW),), (PeerId(1), PeerId(5), PeerId(0)))]


def test_if_the_part_is_refused_elsewhere_all_stays_where_it_was() -> None:
    """The parts keep the path of the whole: nobody is left for want of one."""
    broker, generation = relay(path_patience_s=3.0)
    (want,) = sent(redirect(broker, generation), Want, 5)

    effects = broker.say(5, Refuse(want.generation, (cell(LOW),), NO_ROOM)) + broker.wait(9)
    broker.supply(1, LOW, (2,), generation)

    assert sent(effects, Leave) == []
    assert sent(effects, Grant, ANNA) == []
    assert fed(broker.log, ANNA) == {WHOLE: [0, 1], LOW: [2]}


def test_ticks_before_during_and_after_a_cut_come_once() -> None:
    broker, generation = relay()
    (want,) = sent(redirect(broker, generation), Want, 5)

    broker.supply(1, LOW, (2,), generation)
    broker.supply(1, HIGH, (2, 3), generation)
    broker.say(5, Grant(want.generation, (cell(LOW),), (PeerId(1), PeerId(5))))
    broker.supply(5, LOW, (2, 3, 4), want.generation)
    broker.supply(1, LOW, (3, 4), generation)  # was on its way when the broker left
    broker.supply(1, HIGH, (4,), generation)

    assert fed(broker.log, ANNA) == {WHOLE: [0, 1], LOW: [2, 3, 4], HIGH: [2, 3, 4]}


def test_receivers_inside_one_part_hear_nothing_and_go_on() -> None:
    broker, generation = relay()
    broker.want(BEN, LOW, start=0)
    broker.want(CARL, HIGH + "0", start=1)

    effects = redirect(broker, generation)
    broker.supply(1, LOW, (2,), generation)
    broker.supply(1, HIGH, (2,), generation)

    assert sent(effects, Redirect, BEN) == sent(effects, Redirect, CARL) == []
    assert fed(broker.log, BEN) == {LOW: [0, 1, 2]}
    assert fed(broker.log, CARL) == {HIGH + "0": [1, 2]}


def test_receivers_that_are_brokers_are_cut_in_turn() -> None:
    broker, generation = relay()
    broker.want(7, WHOLE, start=2)

    effects = redirect(broker, generation)
    broker.supply(1, LOW, (2,), generation)
    broker.supply(1, HIGH, (2,), generation)

    assert sent(effects, Redirect, 7) == [Redirect(1, ((cell(WHOLE), cell(LOW)),), PeerId(0))]
    assert fed(broker.log, 7) == {LOW: [2], HIGH: [2]}


def test_a_part_deep_inside_leaves_one_supply_for_each_of_the_rest() -> None:
    broker, generation = relay()

    redirect(broker, generation, part=LOW + "01")

    assert set(broker.boards.outlets.entries[ANNA]) == {
        (1, cell(digits)) for digits in (LOW + "01", LOW + "00", LOW + "1", HIGH)
    }


def test_a_part_that_nobody_wants_is_left() -> None:
    """Interest upstream is a function of interest downstream."""
    broker, generation = relay()
    broker.want(BEN, LOW, start=2)
    broker.leave(ANNA, WHOLE)

    effects = redirect(broker, generation)

    assert sent(effects, Leave, 1) == [Leave(generation, (cell(HIGH),))]
    assert broker.boards.outlets.supplies[0].keys() == {cell("000"), cell(LOW)}


def test_a_redirected_part_that_nobody_wants_is_left_at_both() -> None:
    broker, generation = relay()
    broker.want(BEN, HIGH, start=2)
    broker.leave(ANNA, WHOLE)

    effects = redirect(broker, generation)
    broker.supply(1, HIGH, (2,), generation)

    assert sent(effects, Leave, 1) == [Leave(generation, (cell(LOW),))]
    assert len(sent(effects, Leave, 5)) == len(sent(effects, Want, 5))
    assert broker.boards.intake.feeds.keys() == {1}
    assert fed(broker.log, BEN) == {HIGH: [2]}


def test_a_client_without_a_point_in_a_part_is_not_fed_from_it() -> None:
    """The client leaves the part out as well."""
    broker = LoneBroker(others={WHOLE: 1})
    broker.up(1, 5)
    right = Clip((6, 8, 0, 8), (2, 2, 2))
    (want,) = sent(broker.want(ANNA, WHOLE, clip=right, via=1), Want, 1)
    broker.say(1, Grant(want.generation, (cell(WHOLE),), (PeerId(1),)))

    effects = redirect(broker, want.generation)

    assert set(broker.boards.outlets.entries[ANNA]) == {(1, cell(HIGH))}
    assert broker.boards.outlets.supplies[0].keys() == {cell("000"), cell(HIGH)}
    assert len(sent(effects, Redirect, ANNA)) == 1


def test_what_was_granted_under_the_old_name_is_said_before_it_is_cut() -> None:
    broker = LoneBroker(others={WHOLE: 1})
    broker.up(1, 5)
    (want,) = sent(broker.want(ANNA, WHOLE, via=1), Want, 1)
    granted = Grant(want.generation, (cell(WHOLE),), (PeerId(1),))
    part = Redirect(want.generation, ((cell(WHOLE), cell(LOW)),), PeerId(5))

    effects = broker.feed(Batch(PeerId(1), (granted, part)))

    told = [e.message for e in effects if getattr(e, "peer", None) == ANNA]  # type: ignore[union-attr]
    assert told == [
        Grant(1, (cell(WHOLE),), (PeerId(1), PeerId(0))),
        Redirect(1, ((cell(WHOLE), cell(LOW)),), PeerId(0)),
    ]


def test_the_ring_is_cut_with_the_supply() -> None:
    """Rule 7: who resumes later finds what the relay had."""
    broker, generation = relay()
    redirect(broker, generation)
    broker.supply(1, HIGH, (2,), generation)

    broker.want(BEN, HIGH, start=0)
    broker.want(CARL, LOW, start=1)

    assert fed(broker.log, BEN) == {HIGH: [0, 1, 2]}
    assert fed(broker.log, CARL) == {LOW: [1]}


def test_revisions_pass_after_a_cut_and_only_higher_ones() -> None:
    """Rule 7."""
    broker, generation = relay()
    broker.supply(1, WHOLE, (1,), generation, revision=1)
    redirect(broker, generation)

    broker.supply(1, LOW, (1,), generation, revision=1)
    broker.supply(1, LOW, (1,), generation, revision=2)
    broker.supply(1, HIGH, (0,), generation, revision=1)

    told = [(bin(f.cell)[3:], f.tick, f.revision) for f in sent(broker.log, Feed, ANNA)]
    assert told == [(WHOLE, 0, 0), (WHOLE, 1, 0), (WHOLE, 1, 1), (LOW, 1, 2), (HIGH, 0, 1)]


def test_while_another_provider_is_tried_a_cut_ends_the_trial_and_nothing_else() -> None:
    broker, generation = relay()
    broker.say(1, Redirect(generation, ((cell(WHOLE), cell(WHOLE)),), PeerId(5)))
    (trial,) = sent(broker.log, Want, 5)

    effects = redirect(broker, generation, to=1)
    broker.supply(1, LOW, (2,), generation)
    broker.supply(1, HIGH, (2,), generation)

    assert sent(effects, Leave, 5) == [Leave(trial.generation, (cell(WHOLE),))]
    assert fed(broker.log, ANNA) == {WHOLE: [0, 1], LOW: [2], HIGH: [2]}


def test_a_redirect_to_the_provider_itself_only_cuts() -> None:
    broker, generation = relay()

    effects = redirect(broker, generation, to=1)

    assert sent(effects, Want) == sent(effects, Leave) == []
    assert len(sent(effects, Redirect, ANNA)) == 1


def test_the_provider_who_cut_and_ends_it_all_is_replaced_for_every_part() -> None:
    """A connection breaks: both parts are looked for again, and go on where they were."""
    broker, generation = relay()
    redirect(broker, generation, to=1)

    effects = broker.down(1)

    assert [g.path for g in sent(effects, Grant, ANNA)] == [None]
    assert broker.boards.intake.feeds == {}
    assert {c for _, c in broker.boards.outlets.entries[ANNA]} == {cell(LOW), cell(HIGH)}


def test_what_a_relay_was_handed_back_for_waits_no_longer_than_before() -> None:
    """The parts keep their supply's age, so that a relay with one receiver still hands it back."""
    broker, generation = relay(age_min_s=10.0)
    broker.wait(9)
    redirect(broker, generation, to=1)

    effects = broker.wait(3)

    assert len(sent(effects, Offer, 1)) >= 1


def test_owners_of_trees_are_told_of_the_parts() -> None:
    broker, generation = relay(relays=Relays("TREE"))

    effects = redirect(broker, generation, to=1)

    (joined,) = sent(effects, Joined, 1)
    assert set(joined.items) == {(0, cell(WHOLE), None), (0, cell(LOW), 1), (0, cell(HIGH), 1)}


def test_a_stream_that_was_only_tried_is_left_when_it_is_cut() -> None:
    """Only that provider has cut it: it is left under its old name, and the feed goes on."""
    broker, generation = relay()
    broker.say(1, Redirect(generation, ((cell(WHOLE), cell(WHOLE)),), PeerId(5)))
    (trial,) = sent(broker.log, Want, 5)

    effects = redirect(broker, trial.generation, to=6, peer=5)
    broker.supply(1, WHOLE, (2,), generation)

    assert sent(effects, Leave, 5) == [Leave(trial.generation, (cell(WHOLE),))]
    assert sent(effects, Redirect) == []
    assert fed(broker.log, ANNA) == {WHOLE: [0, 1, 2]}


def test_a_cut_that_is_none_changes_nothing() -> None:
    """A part of another cell, another generation, not the provider."""
    broker, generation = relay()

    effects = redirect(broker, generation, part="0100")
    effects += redirect(broker, generation + 7)
    effects += redirect(broker, generation, peer=5)

    assert effects == []
    assert set(broker.boards.outlets.entries[ANNA]) == {(1, cell(WHOLE))}


# -- those who were not granted yet


def test_who_waits_for_a_path_can_leave_under_the_old_name_and_ask_for_the_parts() -> None:
    broker, generation = relay()
    broker.say(1, Grant(generation, (cell(WHOLE),), None))
    waiting = broker.want(BEN, WHOLE, start=2)
    cut = redirect(broker, generation, to=1)

    broker.leave(BEN, WHOLE)
    (refused,) = sent(broker.want(BEN, WHOLE, start=2, generation=2), Refuse, BEN)
    for number, part in enumerate((LOW, HIGH), start=3):
        broker.want(BEN, part, start=2, generation=number)
    back = broker.say(1, Grant(generation, (cell(LOW), cell(HIGH)), (PeerId(1),)))
    broker.supply(1, LOW, (2,), generation)
    broker.supply(1, HIGH, (2,), generation)

    assert sent(waiting, Grant) == []
    assert len(sent(cut, Redirect, BEN)) == 1
    assert (refused.reason, refused.parts) == ("cut", (cell(LOW), cell(HIGH)))
    assert {c for g in sent(back, Grant, BEN) for c in g.cells} == {cell(LOW), cell(HIGH)}
    assert fed(broker.log, BEN) == {LOW: [2], HIGH: [2]}
    assert fed(broker.log, ANNA) == {WHOLE: [0, 1], LOW: [2], HIGH: [2]}


def test_a_client_that_was_cut_before_it_was_granted_leaves_and_asks_again() -> None:
    me = LoneClient(roams=False)
    (want,) = sent(me.submit(ONE) + me.up(0), Want, 0)

    effects = me.say(0, Redirect(want.generation, ((cell("000"), cell("0000")),), PeerId(0)))

    assert sent(effects, Leave, 0) == [Leave(want.generation, (cell("000"),))]
    assert [w.items for w in sent(effects, Want, 0)] == [want.items]
    assert me.statuses() == []


def test_a_broker_whose_wish_is_refused_for_its_parts_looks_for_the_owner_at_once() -> None:
    """Nobody feeds it, so it is not cut: it does not wait until its patience ends either."""
    broker = LoneBroker(others={WHOLE: 1})
    broker.up(1)
    (want,) = sent(broker.want(ANNA, WHOLE, via=3), Want, 3)

    effects = broker.say(3, Refuse(want.generation, (cell(WHOLE),), "cut", (), (cell(LOW), cell(HIGH))))

    assert [f.owner for f in sent(effects, Find, 1)] == [True]


# -- parts of entries


@given(
    st.integers(0, 15), st.integers(1, 16), st.integers(0, 15), st.integers(1, 16),
    st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2)), st.integers(1, 5).flatmap(
        lambda n: st.integers(0, (1 << n) - 1).map(lambda digits: (1 << n) | digits)),
)  # fmt: skip
def test_the_parts_of_an_entry_are_its_points(
    x0: int, wide: int, y0: int, high: int, limits: tuple[int, int, int], inner: int
) -> None:
    clip = Clip((x0, min(16, x0 + wide), y0, min(16, y0 + high)), limits)
    code = cell("00")
    part = (code << (inner.bit_length() - 1)) | (inner ^ (1 << (inner.bit_length() - 1)))
    outlets = Outlets(10_000, GRID, 9)
    entry = Entry(ANNA, 1, 0, code, points(code, clip), 3, clip, 9)
    entry.granted = entry.stays = True

    parts = outlets.parts(entry, part)

    assert sum(e.size for e in parts) == entry.size
    assert all(e.size == points(e.cell, clip) > 0 for e in parts)
    assert not any(contains(a.cell, b.cell) for a in parts for b in parts if a is not b)
    assert (part in {e.cell for e in parts}) == (points(part, clip) > 0)
    assert {(e.peer, e.generation, e.next, e.until, e.granted, e.stays) for e in parts} <= {
        (ANNA, 1, 3, 9, True, True)
    }


def test_cutting_an_entry_keeps_what_is_owed() -> None:
    outlets = Outlets(10_000, GRID, 9)
    supply = Supply(0, cell(WHOLE), 0.0)
    outlets.add_supply(supply)
    entry = Entry(ANNA, 1, 0, cell(WHOLE), points(cell(WHOLE), EVERYTHING), 3, EVERYTHING, None)
    outlets.add(entry, supply)
    outlets.grant(entry)

    part = outlets.cut(entry, cell(LOW))

    assert part.cell == cell(LOW)
    assert (outlets.used, supply.owed) == (entry.size, entry.size)
    assert {e.cell for e in outlets.of(ANNA, 1, cell(WHOLE))} == {cell(LOW), cell(HIGH)}
    assert sum(load.points for load in outlets.loads.whole()[0].values()) == entry.size
    assert entry.supply is None


# -- worlds with data


def cut_at(world: SmallWorld, broker: int, receiver: int, digits: str, part: str, to: int) -> bool:
    """A broker sends part of what a broker takes from it elsewhere, as a relay strategy would; whether it has it."""
    me = brokers_of(world)[PeerId(broker)]
    known = me.boards.outlets.entries.get(PeerId(receiver), {}).values()
    found = [e for e in known if e.cell == cell(digits) and e.of_broker and e.sits]
    if not found:
        return False
    why = Proposal(0, cell(part), PeerId(to))
    replication = me.mechanism(Replication)
    assert replication is not None
    replication._departures.send([(found[0], cell(part))], PeerId(to), why)
    world.feed(PeerId(broker), Woke())
    return True


def at_rest(world: SmallWorld) -> None:
    """All that must be true of a world."""
    assert list(circles(world)) == []
    assert list(conservation(world)) == []


HALF = box_query(0, 0, 2, 8)
"""cell 0000"""


def test_two_streams_that_share_a_part_meet_at_a_relay_and_a_client_behind_one_notices_nothing() -> None:
    """Algorithm 2 splits x's stream: its low half goes over the relay r, where it meets y's; the rest stays."""
    owner, r, x, y = range(4)
    places = [0.0, 0.010, 0.020, 0.021]
    relays = Relays("CTP", k=1, review_s=0.5, measure_s=30.0)
    world = SmallWorld(
        {"000": owner},
        4,
        delay_s=lambda a, b: abs(place(places, a) - place(places, b)) + 0.001,
        relays=relays,
    )
    told: list[tuple[int, int, Redirect]] = []
    world.on_send = lambda a, b, m: told.append((a, b, m)) if isinstance(m, Redirect) else None
    asks: dict[PeerId, Query] = {}
    for at, ask in ((x, ONE), (y, HALF)):
        asks[world.pose(ask, at, roams=False)] = ask

    world.tick(12)

    assert world.path(x, "0000") == (owner, r, x)
    assert world.path(x, "0001") == (owner, x)
    assert world.path(y, "0000") == (owner, r, y)
    assert (x, next(iter(asks)), Redirect(1, ((cell("000"), cell("0000")),), PeerId(x))) in told
    assert all(world.got_all(client, ask) for client, ask in asks.items())
    at_rest(world)
    for client in asks:
        world.cancel(client, QueryId(1))
    world.pass_(20)
    assert [left for left in leftovers(world) if "connections" not in left] == []


def place(places: list[float], peer: PeerId) -> float:
    """Clients sit at their brokers."""
    return places[peer] if peer < len(places) else 0.0


def chain(seed: int = 1) -> tuple[SmallWorld, dict[PeerId, Query]]:
    """The owner 0 feeds 1, which feeds 2 and 3, which feed clients that can dial nobody else; 4 and 5 are idle."""
    rng = Random(seed)
    delays = {(a, b): rng.uniform(0.001, 0.06) for a in range(6) for b in range(a)}
    world = SmallWorld(
        {"000": 0},
        6,
        delay_s=lambda a, b: delays.get((max(a, b), min(a, b)), 0.01),
        seed=seed,
        age_min_s=1000.0,
    )
    asks = {world.pose(ask, at, roams=False): ask for at, ask in ((2, ONE), (3, ONE), (2, HALF), (1, ONE))}
    world.tick(2)
    world.advise(0, "000", 1)
    world.tick(4)
    assert (world.path(2, "000"), world.path(3, "000")) == ((0, 1, 2), (0, 1, 3))
    return world, asks


def test_a_cut_goes_down_a_chain_of_relays_to_the_clients() -> None:
    world, asks = chain()

    assert cut_at(world, 0, 1, "000", "0000", to=4)
    world.tick(6)

    assert world.path(2, "0000") == (0, 4, 1, 2)
    assert world.path(2, "0001") == (0, 1, 2)
    assert all(world.got_all(client, ask) for client, ask in asks.items())
    at_rest(world)


@pytest.mark.parametrize("seed", range(25))
def test_whatever_is_cut_whenever_every_client_gets_its_points_once(seed: int) -> None:
    """Random parts of random streams go to random brokers while ticks flow; `Deliveries` looks at every block."""
    world, asks = chain(seed)
    rng = Random(seed)
    cuts = 0

    for _ in range(15):
        brokers = brokers_of(world)
        streams = [
            (peer, e.peer, bin(e.cell)[3:])
            for peer, broker in brokers.items()
            for by in broker.boards.outlets.entries.values()
            for e in by.values()
            if e.of_broker and e.sits and e.cell.bit_length() < 8
        ]
        provider, receiver, digits = rng.choice(sorted(streams))
        part = digits + "".join(rng.choices("01", k=rng.randint(1, 2)))
        to = rng.choice([b for b in range(6) if b not in (provider, receiver)])
        cuts += cut_at(world, provider, receiver, digits, part, to)
        world.tick(1, pause_s=rng.choice([0.01, 0.1, 0.5]))
    world.pass_(20)
    world.tick(3, pause_s=2.0)

    assert cuts >= 10
    assert all(world.got_all(client, ask) for client, ask in asks.items()), f"seed {seed}"
    at_rest(world)
    for client in asks:
        world.cancel(client, QueryId(1))
    world.pass_(30)
    assert [left for left in leftovers(world) if "connections" not in left] == []


def test_a_client_that_comes_while_its_brokers_stream_is_cut_gets_all() -> None:
    world, asks = chain()
    late = []
    for pause in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4):
        late.append(world.pose(ONE, 2, roams=False))
        world.pass_(pause)
        if len(late) == 2:
            assert cut_at(world, 0, 1, "000", "0001", to=4)

    world.tick(8)

    assert all(world.got_all(client, ask) for client, ask in asks.items())
    assert all(world.got_all(client, ONE) for client in late)
    at_rest(world)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", NAMES)
def test_with_every_strategy_every_client_gets_its_points_once(name: str, seed: int) -> None:
    """Clients that can dial nobody else come and go; brokers are redirected, steered and cut meanwhile."""
    rng = Random(f"{name} {seed}")
    town = [(rng.uniform(0, 0.03), rng.uniform(0, 0.03)) for _ in range(8)]
    relays = Relays(name, k=4, review_s=0.5, measure_s=5.0, optimise_s=3.0)
    world = SmallWorld(
        {"000": 0, "001": 1, "010": 2},
        8,
        delay_s=lambda a, b: 0.001 + dist(spot(town, a), spot(town, b)),
        seed=seed,
        relays=relays,
        age_min_s=4.0,
    )
    world.pass_(1)
    living: dict[PeerId, Query] = {}

    for step in range(24):
        x0, y0 = rng.choice([0, 1, 2, 4]), rng.choice([0, 4, 5])
        ask = box_query(x0, y0, rng.randint(x0 + 2, 8), 8, rng.choice([1.0, 0.5]))
        living[world.pose(ask, rng.randrange(8), roams=False)] = ask
        if step % 3 == 2:
            gone = rng.choice(sorted(living))
            assert world.got_all(gone, living.pop(gone))
            world.cancel(gone, QueryId(1))
        world.tick(1, pause_s=0.5)
    world.pass_(15)
    world.tick(2, pause_s=2.0)

    assert all(world.got_all(client, ask) for client, ask in living.items())
    assert list(circles(world)) == []
    for client in living:
        world.cancel(client, QueryId(1))
    world.pass_(40)
    assert [left for left in leftovers(world) if "connections" not in left] == []
    assert trees_left(world) == []


def spot(town: list[tuple[float, float]], peer: PeerId) -> tuple[float, float]:
    """Where a broker lives; clients are near the first."""
    return town[peer] if peer < len(town) else town[0]


def trees_left(world: SmallWorld) -> list[str]:
    """What brokers remember of trees."""
    found = []
    for peer, broker in brokers_of(world).items():
        for trees in [m for m in broker.mechanisms if isinstance(m, Trees)]:
            rest = (trees.trees, trees.told, trees._members, trees._pending)
            found += [f"broker {peer}: {what}" for what in rest if what]
    return found
