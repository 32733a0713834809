"""A client alone: a query that is suspended whole and resumed, and how it ends without a trace."""

from itertools import pairwise

import pytest

from hands import (
    NO_ROOM,
    ONE,
    OWNERS,
    TWO,
    LoneClient,
    box_query,
    cell,
    delivered,
    dialled,
    points_asked,
    running,
    sent,
)
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.events import Batch
from sensorgrid.overlay.messages import Alive, Ask, Feed, Leave, Located, Want

# -- suspended and resumed


def test_an_admitted_query_that_cannot_be_held_is_suspended_with_the_reason_and_resumed() -> None:
    """Rule 10: never dropped; exactly once across the pause."""
    me = running(ONE, {"000": 1})
    me.tick(1, 0, 1)

    effects = me.refuse(1, NO_ROOM)
    me.locate(effects, {"000": 1})
    me.refuse(1, NO_ROOM)
    asleep = me.wait(1.6)
    me.locate(asleep, {"000": 1})
    me.grant(1)
    me.tick(1, 2, 3)

    assert me.replies() == [("admitted", ""), ("suspended", NO_ROOM), ("resumed", "")]
    assert sent(asleep, Ask)
    assert [w.items[0][2] for w in sent(me.log, Want)] == [0, 2, 2], "it goes on where it was"
    assert me.given() == points_asked(ONE, range(4))


def test_a_suspended_query_is_suspended_whole() -> None:
    """Half a query would keep bandwidth from others and give nobody what he asked for."""
    me = running()
    effects = me.refuse(2, NO_ROOM)
    me.locate(effects, {"001": 2})

    effects = me.refuse(2, NO_ROOM)

    assert [m.cells for m in sent(effects, Leave, 1)] == [(cell("000"),)]
    assert me.feeds == {}


def test_a_suspended_query_ignores_answers_to_what_it_asked_before() -> None:
    """Its pieces would take bandwidth that others could use, and carry what was tried over to the next try."""
    me = running()
    first, second = me.refuse(1, "no"), me.refuse(2, NO_ROOM)
    me.locate(second, {"001": 2})
    me.refuse(2, NO_ROOM)
    assert me.statuses() == ["admitted", "suspended"]

    effects = me.locate(first, {"000": 1})

    assert sent(effects, Want) == []
    assert me.feeds == {}


def test_pauses_grow_and_are_bounded_and_the_reason_is_not_said_again() -> None:
    """Rule 10: retried with back-off."""
    me = running(ONE, {"000": 1})
    effects = me.refuse(1, NO_ROOM)
    times: list[float] = []
    for _ in range(200):
        if sent(effects, Ask):
            times.append(me.now)
            me.locate(effects, {"000": 1})
            effects = me.refuse(1, NO_ROOM)
        else:
            effects = me.wait(0.25)

    pauses = [b - a for a, b in pairwise(times) if b - a > 0]
    assert me.statuses() == ["admitted", "suspended"]
    assert pauses[0] < 2
    assert max(pauses) >= 4
    assert all(pause <= 8 * 1.5 + 0.5 for pause in pauses)


def test_every_other_try_goes_to_the_owners() -> None:
    """Rule 10: nearest carriers alone need not ever settle."""
    me = running(ONE, {"000": 1})
    me.locate(me.refuse(1, "too old"), {"000": 1})
    me.refuse(1, "too old")

    owners = []
    for _ in range(4):
        effects = me.wait(0.1)
        while not sent(effects, Ask):
            effects = me.wait(0.1)
        owners.append(sent(effects, Ask)[0].owner)
        me.locate(effects, {"000": 1})
        effects = me.refuse(1, "too old")
        if sent(effects, Ask):
            me.locate(effects, {"000": 1})
            me.refuse(1, "too old")

    assert owners == [True, False, True, False]


def test_a_piece_that_finds_another_provider_in_time_suspends_nothing() -> None:
    me = running(ONE, {"000": 1})
    me.tick(1, 0)

    effects = me.refuse(1, "moved", 3)
    me.grant(3, (1, 3))
    me.tick(3, 1)

    assert dialled(effects) == [3]
    assert me.statuses() == ["admitted"]
    assert me.given() == points_asked(ONE, range(2))


def test_a_dead_provider_is_replaced_by_way_of_the_owner() -> None:
    me = running(ONE, {"000": 1})
    me.tick(1, 0)

    effects = me.down(1)
    me.locate(effects, {"000": 4})
    me.grant(4)
    me.tick(4, 1)

    assert [a.owner for a in sent(effects, Ask)] == [True]
    assert me.statuses() == ["admitted"]
    assert me.given() == points_asked(ONE, range(2))


# -- the end


@pytest.mark.parametrize(
    "state", ["posed", "asked", "located", "half granted", "live", "suspended", "refining"]
)
def test_cancelled_in_any_state_a_query_leaves_nothing(state: str) -> None:
    """Rule 9."""
    me = LoneClient(alive_s=5.0)
    effects = me.submit(TWO)
    if state != "posed":
        effects += me.up(0)
    if state not in ("posed", "asked"):
        me.say(0, Located(1, 0, ((cell("000"), PeerId(1)), (cell("001"), PeerId(2)))))
    if state in ("half granted", "live", "suspended", "refining"):
        me.grant(1)
    if state in ("live", "suspended", "refining"):
        me.grant(2)
        me.tick(1, 0)
    if state == "suspended":
        me.locate(me.refuse(2, NO_ROOM), {"001": 2})
        me.refuse(2, NO_ROOM)
        assert me.statuses()[-1] == "suspended"
    if state == "refining":
        me.locate(me.refine(box_query(0, 0, 8, 16)), {"010": 3, "011": 4})
        me.grant(3)

    me.cancel()
    late = me.tick(1, 1) + me.tick(2, 1) + me.up(2, 3, 4)
    for _ in range(8):
        late += me.wait(3)
        for peer in list(me.actor.links.up):
            late += me.say(peer, Alive())

    assert me.statuses()[-1] == "cancelled"
    assert delivered(late) == []
    assert sent(late, Ask) == [], "nobody asks for it any more"
    assert {w.generation for w in sent(late, Want)} <= {m.generation for m in sent(late, Leave)}
    assert me.leftovers() == []
    me.cancel()
    assert me.statuses().count("cancelled") == 1


def test_cancelling_leaves_the_providers_at_once() -> None:
    me = running()

    effects = me.cancel()

    assert [m.cells for m in sent(effects, Leave, 1)] == [(cell("000"),)]
    assert [m.cells for m in sent(effects, Leave, 2)] == [(cell("001"),)]


def test_an_answer_to_a_cancelled_query_starts_nothing() -> None:
    me = LoneClient()
    me.submit(ONE)
    me.up(0)
    me.cancel()

    effects = me.say(0, Located(1, 0, ((cell("000"), PeerId(1)),)))

    assert (sent(effects, Want), dialled(effects), me.feeds) == ([], [], {})


def test_a_query_for_the_future_is_admitted_now_and_fed_then() -> None:
    me = running(ONE, {"000": 1}, start=5)

    early = me.tick(1, 3, 4)
    due = me.tick(1, 5)

    assert delivered(early) == []
    assert [b.tick for b in delivered(due)] == [5]


def test_a_query_with_an_end_finishes_by_itself_and_leaves_nothing() -> None:
    me = running(until=3)

    me.tick(1, 0, 1, 2)
    before = me.statuses()
    effects = me.tick(2, 0, 1, 2)
    me.tick(1, 3)

    assert before == ["admitted"]
    assert me.statuses() == ["admitted", "finished"]
    assert len(sent(effects, Leave)) == 2
    assert me.feeds == {}
    assert me.given() == points_asked(TWO, range(3))


def test_two_queries_may_finish_with_one_message() -> None:
    me = LoneClient()
    for query in (1, 2):
        me.locate(me.submit(ONE, until=1, query=query), {"000": 1})
    me.grant(1)
    feeds = tuple(Feed(generation, code, 0, 0, ()) for generation, code in me.feeds[PeerId(1)])

    me.feed(Batch(PeerId(1), feeds))

    assert me.statuses() == ["admitted", "admitted", "finished", "finished"]
    assert me.feeds == {}


def test_nothing_is_delivered_past_the_end_whatever_comes_together() -> None:
    me = running(ONE, {"000": 1}, until=2)
    ((generation, code),) = me.feeds[PeerId(1)]

    me.feed(Batch(PeerId(1), tuple(Feed(generation, code, tick, 0, ()) for tick in range(5))))

    assert [b.tick for b in delivered(me.log)] == [0, 1]
    assert me.statuses() == ["admitted", "finished"]


def test_what_is_held_before_admission_does_not_reach_past_the_end_either() -> None:
    me = LoneClient()
    me.locate(me.submit(TWO, until=2), OWNERS)
    me.grant(1)
    me.tick(1, 0, 1, 2, 3)
    me.grant(2)

    me.tick(2, 0, 1)

    assert me.given() == points_asked(TWO, range(2))
    assert me.statuses() == ["admitted", "finished"]
