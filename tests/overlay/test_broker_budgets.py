"""A broker at its budget: who waits, who is refused, who yields to whom (rule 10)."""

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hands import ANNA, BEN, CARL, DORA, NO_ROOM, REGION, LoneBroker, Once, cell, client, sent, ticks
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.events import Advised
from sensorgrid.overlay.messages import Feed, Grant, Leave, Offer, Redirect, Refuse, Want
from sensorgrid.overlay.policies.interface import Proposal, Reactive, View


def test_the_budget_is_never_exceeded_and_what_does_not_fit_waits_then_is_refused() -> None:
    """Rule 10: the refusal names brokers that carry the cell."""
    broker = LoneBroker(budget=2 * REGION, wait_s=0.5, policy=Once())
    broker.want(3, "000")
    broker.want(ANNA, "000")

    waiting = broker.want(BEN, "000")
    refused = broker.wait(0.6)

    assert sent(waiting, Grant) == []
    assert [(r.reason, r.elsewhere) for r in sent(refused, Refuse, BEN)] == [(NO_ROOM, (3,))]
    assert broker.boards.outlets.used == 2 * REGION
    assert broker.boards.requests == {}


def test_a_refusal_by_a_relay_names_where_its_own_stream_comes_from() -> None:
    """Rule 10: a full relay in front of an owner with room must not shut its receivers out."""
    broker = LoneBroker(owns=("000",), others={"001": 1}, budget=REGION)
    broker.relays("001", provider=1, receiver=ANNA)

    broker.want(BEN, "001")
    effects = broker.wait(0.6)

    assert [(r.reason, r.elsewhere) for r in sent(broker.log + effects, Refuse, BEN)][:1] == [(NO_ROOM, (1,))]


class Holding(Reactive):
    """A policy that has always something better to do, so that requests wait."""

    name = "holding"
    gossips = False
    forwards = False

    def propose(self, view: View) -> Proposal | None:
        return Proposal(0, cell("000"), PeerId(7))


def test_a_request_that_waits_is_let_in_when_room_is_freed() -> None:
    """Rule 10."""
    broker = LoneBroker(budget=REGION, policy=Holding(), others={"001": 7})
    broker.up(7)
    broker.want(ANNA, "000")
    waiting = broker.want(BEN, "000")

    effects = broker.leave(ANNA, "000")

    assert sent(waiting, Refuse) + sent(waiting, Grant) == []
    assert [g.generation for g in sent(effects, Grant, BEN)] == [1]
    assert broker.boards.requests == {}


def test_a_request_that_is_withdrawn_while_it_waits_is_forgotten() -> None:
    """Rule 9."""
    for withdraw in ("leave", "hang up"):
        broker = LoneBroker(budget=REGION, policy=Holding(), others={"001": 7})
        broker.up(7)
        broker.want(ANNA, "000")
        broker.want(BEN, "000")

        if withdraw == "leave":
            broker.leave(BEN, "000")
        else:
            broker.down(BEN)
        effects = broker.leave(ANNA, "000")

        assert (broker.boards.requests, sent(effects, Grant)) == ({}, [])
        assert broker.boards.outlets.entries == {}


def test_waiting_requests_are_bounded() -> None:
    """Limits on everything."""
    broker = LoneBroker(budget=REGION, policy=Holding(), others={"001": 7}, waiting_max=2)
    broker.up(7)
    broker.want(ANNA, "000")

    refusals = [len(sent(broker.want(client(n), "000"), Refuse)) for n in range(1, 5)]

    assert refusals == [0, 0, 1, 1]


def test_a_brokers_request_takes_the_slot_of_a_client_which_moves_to_it() -> None:
    """Rule 10: at its budget, and only then."""
    broker = LoneBroker(budget=2 * REGION)
    broker.want(ANNA, "000")

    roomy = broker.want(3, "000")
    tight = broker.want(4, "000")

    assert sent(roomy, Refuse) == []
    assert [(r.cells, r.reason, r.elsewhere) for r in sent(tight, Refuse)] == [
        ((cell("000"),), "moved", (4,))
    ]
    assert len(sent(tight, Grant, 4)) == 1
    assert broker.kernel.counters.evictions == 1
    assert broker.boards.outlets.used == 2 * REGION


def test_a_client_never_evicts_anybody() -> None:
    """Rule 10: a *broker's* request."""
    broker = LoneBroker(budget=REGION)
    broker.want(ANNA, "000")

    effects = broker.want(BEN, "000")

    assert sent(effects, Refuse, ANNA) == []
    assert broker.kernel.counters.evictions == 0


def test_nobody_is_evicted_who_could_not_move_to_the_asking_broker() -> None:
    """Rule 10: one client *of that cell*."""
    broker = LoneBroker(owns=("000", "001"), budget=2 * REGION)
    broker.want(ANNA, "001")
    broker.want(BEN, "001")

    effects = broker.want(3, "000")

    assert [(r.reason) for r in sent(effects, Refuse, 3)] == [NO_ROOM]
    assert sent(effects, Refuse, ANNA) + sent(effects, Refuse, BEN) == []


def test_as_few_as_possible_are_evicted_and_none_if_it_does_not_help() -> None:
    """Rule 10: eviction makes room or does not happen."""
    broker = LoneBroker(owns=("000", "001"), budget=2 * REGION)
    broker.want(BEN, "001")
    broker.want(ANNA, "0000")
    broker.want(CARL, "00010")

    effects = broker.want(3, "000")

    assert broker.kernel.counters.evictions == 2
    assert {e.peer for by in broker.boards.outlets.entries.values() for e in by.values()} == {3, BEN}
    assert sent(effects, Refuse, BEN) == []
    again = broker.want(4, "000")
    assert sent(again, Refuse, 3) == [], "a broker keeps its slot"
    assert [(r.reason, r.elsewhere) for r in sent(again, Refuse, 4)] == [(NO_ROOM, (3,))]


def test_nobody_is_evicted_if_that_would_not_make_enough_room() -> None:
    """Rule 10: a refusal, and nobody loses anything."""
    broker = LoneBroker(owns=("000", "001"), budget=REGION + REGION // 2 + REGION // 4)
    broker.want(BEN, "001")
    broker.want(ANNA, "0000")

    effects = broker.want(3, "000")

    assert [r.reason for r in sent(effects, Refuse, 3)] == [NO_ROOM]
    assert sent(effects, Refuse, ANNA) == []
    assert broker.kernel.counters.evictions == 0


def test_a_relay_whose_only_receiver_is_evicted_goes_on_for_the_broker_that_came() -> None:
    """Rule 10: the stream is the same, so it must not end in between."""
    broker = LoneBroker(owns=(), others={"001": 1}, budget=REGION)
    generation = broker.relays("001", provider=1, receiver=ANNA)

    effects = broker.want(3, "001")
    feeds = broker.supply(1, "001", (0,), generation)

    assert [(r.reason, r.elsewhere) for r in sent(effects, Refuse, ANNA)] == [("moved", (3,))]
    assert sent(effects, Leave, 1) + sent(effects, Want, 1) == []
    assert ticks(sent(feeds, Feed, 3)) == [0]


def test_a_client_that_stays_is_never_evicted() -> None:
    """It has nowhere to go."""
    broker = LoneBroker(budget=REGION)
    broker.want(ANNA, "000", stays=True)

    effects = broker.want(3, "000")

    assert sent(effects, Refuse, ANNA) == []
    assert [r.reason for r in sent(effects, Refuse, 3)] == [NO_ROOM]


def test_a_client_that_stays_is_never_redirected() -> None:
    """Neither on advice, nor to make room, nor handed back."""
    broker = LoneBroker(owns=("000",), others={"001": 1}, age_min_s=10)
    broker.up(5)
    for peer in (ANNA, BEN, CARL):
        broker.want(peer, "000", stays=True)
    generation = broker.relays("001", provider=1, receiver=DORA)
    broker.leave(DORA, "001")
    effects = broker.want(DORA, "001", generation=2, via=1, stays=True)
    (want,) = sent(effects, Want, 1)
    broker.say(1, Grant(want.generation, (cell("001"),), (PeerId(1),)))

    broker.feed(Advised(0, cell("000"), PeerId(5)))
    broker.wait(60)

    assert generation < want.generation
    assert sent(broker.log, Offer) == []
    assert sent(broker.log, Redirect) == []


@hypothesis_settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from(["000", "0000", "00010", "001"]), st.integers(0, 5)),
        max_size=40,
    )
)
def test_whatever_is_wanted_and_left_the_budget_holds(steps: list[tuple[int, str, int]]) -> None:
    """Rule 10, checked by the invariants after every event."""
    broker = LoneBroker(owns=("000", "001"), budget=3 * REGION)
    for number, (who, digits, what) in enumerate(steps):
        peer = who + 1 if who < 4 else client(who)
        if what == 0 and PeerId(peer) in broker.kernel.links.up:
            broker.down(peer)
        elif what == 1:
            broker.up(peer)
        elif what == 2:
            broker.wait(0.3)
        else:
            broker.want(peer, digits, generation=number, stays=what == 3)
        assert broker.boards.outlets.used <= 3 * REGION
