"""What is easily overlooked: peers that lie, ticks that come late or early, promises that lapse."""

from hands import ANNA, BEN, CARL, EVERYTHING, REGION, LoneBroker, cell, points, sent
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.invariants import broken
from sensorgrid.overlay.mechanisms.routing import Routing
from sensorgrid.overlay.messages import Answer, Feed, Find, Grant, Moving, Offer, Refuse, Want
from sensorgrid.overlay.policies.ours import Ours


def test_ticks_that_are_published_out_of_order_replace_the_gap_they_left() -> None:
    broker = LoneBroker()
    broker.want(ANNA, "000")

    broker.publish(0)
    broker.publish(2)
    late = broker.publish(1)

    assert [(f.tick, f.slabs is None) for f in sent(broker.log, Feed)][:3] == [
        (0, False),
        (1, True),
        (2, False),
    ]
    assert [(f.tick, f.slabs is None) for f in sent(late, Feed)] == [(1, False)]
    assert sent(broker.publish(1), Feed) == [], "once"


def test_a_gap_of_a_billion_ticks_is_one_message_and_the_stream_goes_on() -> None:
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA)

    gap = broker.say(1, Feed(generation, cell("001"), 0, 0, None, 10**9))
    after = broker.supply(1, "001", (10**9, 10**9 + 1), generation)

    assert [(f.tick, f.until) for f in sent(gap, Feed, ANNA)] == [(0, 10**9)]
    assert [f.tick for f in sent(after, Feed, ANNA)] == [10**9, 10**9 + 1]
    assert broken(broker.boards) == []


def test_cells_of_one_generation_that_overlap_are_refused() -> None:
    broker = LoneBroker()
    broker.up(ANNA)
    inner, outer = cell("00000"), cell("000")
    items = ((outer, points(outer, EVERYTHING), 0), (inner, points(inner, EVERYTHING), 0))

    at_once = broker.say(ANNA, Want(1, 0, items, EVERYTHING))
    broker.say(ANNA, Want(2, 0, items[:1], EVERYTHING))
    later = broker.say(ANNA, Want(2, 0, items[1:], EVERYTHING))

    assert [r.cells for r in sent(at_once, Refuse)] == [(outer, inner)]
    assert [r.cells for r in sent(later, Refuse)] == [(inner,)]


def test_an_attribute_that_the_grid_has_not_leaves_no_trace() -> None:
    broker = LoneBroker()
    broker.up(ANNA)
    before = len(broker.boards.outlets.supplies)

    for attribute in range(5, 50):
        broker.say(ANNA, Want(attribute, attribute, ((cell("000"), REGION, 0),), EVERYTHING))

    assert (
        len(broker.boards.outlets.supplies),
        broker.boards.requests,
        len(broker.mechanism(Routing).lookups),
    ) == (
        before,
        {},
        0,
    )


def test_a_clients_word_makes_nobody_a_provider() -> None:
    broker = LoneBroker(others={"001": 1})
    broker.up(ANNA)
    broker.up(1)
    broker.up(7)
    code = cell("001")

    for via in (ANNA, PeerId(7)):
        effects = broker.say(
            ANNA, Want(via, 0, ((code, points(code, EVERYTHING), 0),), EVERYTHING, None, via)
        )
        assert sent(effects, Want, via) == []
    assert sent(broker.log, Find), "the owner is asked for instead"


def test_clients_cannot_reserve_budget() -> None:
    broker = LoneBroker()
    broker.up(ANNA)
    free = broker.boards.outlets.free

    effects = broker.say(ANNA, Offer(1, 0, cell("001"), 10**9))

    assert (effects, broker.boards.outlets.free) == ([], free)


def test_room_that_a_promise_gives_back_goes_to_those_who_wait() -> None:
    broker = LoneBroker(budget=100, others={"001": 1})
    broker.up(1)
    (answer,) = sent(broker.say(1, Offer(1, 0, cell("001"), 90)), Answer)
    waiting = broker.want(ANNA, "000")

    freed = broker.say(1, Moving(1, 0))

    assert (answer.load, sent(waiting, Grant)) == (90, [])
    assert len(sent(freed, Grant, ANNA)) == 1


def test_a_query_for_the_future_does_not_shut_out_those_who_want_the_present() -> None:
    broker = LoneBroker(others={"001": 1}, slack_ticks=2)
    broker.relays("001", provider=1, receiver=ANNA, start=200)

    now = broker.want(BEN, "001", start=10, stays=True)
    (want,) = sent(now, Want, 1)
    granted = broker.say(1, Grant(want.generation, (cell("001"),), (PeerId(1),)))
    fed = broker.supply(1, "001", range(8, 12), want.generation)

    assert want.items == ((cell("001"), REGION, 8),)
    assert sent(now, Refuse) == []
    assert [f.tick for f in sent(now + granted + fed, Feed, BEN)] == [10, 11]


def test_a_wish_for_ticks_that_nobody_can_bring_is_refused_and_not_turned_over_for_ever() -> None:
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA, start=10)
    broker.supply(1, "001", range(8, 12), generation)
    broker.assign({"000": 0})  # nobody next door has the region any more

    effects = broker.want(CARL, "001", start=2, stays=True)

    assert [r.reason for r in sent(effects, Refuse, CARL)] == ["too old"]


def test_brokers_that_want_the_same_do_not_push_each_other_out() -> None:
    """Rule 10: the slot of a client, not of a broker, unless that one is on its way or sent the asker here."""
    broker = LoneBroker(budget=REGION)
    first = broker.want(5, "000")

    second = broker.want(6, "000")
    third = broker.want(7, "000", via=5)

    assert len(sent(first, Grant, 5)) == 1
    assert [r.reason for r in sent(second, Refuse, 6)] == ["no bandwidth left"]
    assert sent(second, Refuse, 5) == []
    assert len(sent(third, Grant, 7)) == 1, "a relay's receiver takes its place"


def test_a_connection_on_which_a_request_waits_is_not_closed_as_idle() -> None:
    broker = LoneBroker(budget=REGION, idle_s=1.0, wait_s=60.0, alive_s=None, policy=Ours(True))
    broker.want(5, "000")
    broker.want(ANNA, "000")

    broker.wait(20)

    assert ANNA in broker.kernel.links.up
    assert [key[0] for key in broker.boards.requests] == [ANNA]
