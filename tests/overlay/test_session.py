"""A client alone, its brokers played by hand: queries admitted whole, suspended with a reason, refined, ended."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hands import (
    LoneClient,
    box_query,
    cell,
    closed,
    delivered,
    dialled,
    points_asked,
    points_given,
    sent,
)
from nonsense import anything
from sensorgrid.index.codes import beside, contains
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import Query
from sensorgrid.overlay import messages
from sensorgrid.overlay.codec import CodecError, decode, encode
from sensorgrid.overlay.events import Batch, Deliver, Effect
from sensorgrid.overlay.messages import (
    NO_ROOM,
    Alive,
    Ask,
    Feed,
    Grant,
    Leave,
    Located,
    Redirect,
    Refuse,
    Want,
)

REGION = box_query(0, 0, 4, 8)
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


def given_once(me: LoneClient, expected: list[tuple[int, int, int, int]]) -> None:
    """Exactly these points, each once."""
    counts = Counter(points_given(delivered(me.log)))
    assert [p for p, n in counts.items() if n > 1] == []
    assert sorted(counts) == sorted(set(expected))


# -- from question to admission


def test_a_query_asks_the_broker_it_knows_and_then_those_who_were_named() -> None:
    me = LoneClient()

    effects = me.submit(TWO)
    asked = me.up(0)
    wants = me.say(0, Located(1, 0, ((cell("000"), PeerId(1)), (cell("001"), PeerId(2)))))
    wants += me.up(1, 2)

    assert dialled(effects) == [0]
    assert sent(asked, Ask) == [Ask(1, 0, (cell("00"),))]
    assert [(w.items, w.clip is not None) for w in sent(wants, Want, 1)] == [(((cell("000"), 64, 0),), True)]
    assert [w.items for w in sent(wants, Want, 2)] == [((cell("001"), 64, 0),)]


def test_a_query_is_admitted_when_all_its_pieces_are_accepted() -> None:
    """Rule 10: before the first delivery."""
    me = LoneClient()
    me.locate(me.submit(TWO), OWNERS)

    first = me.grant(1) + me.tick(1, 0, 1)
    second = me.grant(2)

    assert (me.statuses(), delivered(first)) == (["admitted"], [])
    assert [(b.tick, b.cell) for b in delivered(second)] == [(0, cell("000")), (1, cell("000"))]
    assert second.index(delivered(second)[0]) > [type(e).__name__ for e in second].index("Reply")


def test_what_came_before_admission_is_kept_and_delivered_once() -> None:
    me = LoneClient()
    me.locate(me.submit(TWO), OWNERS)
    me.up(2)
    me.tick(2, 0)
    me.grant(1)
    me.tick(1, 0)
    me.grant(2)

    me.tick(1, 1)
    me.tick(2, 1)

    given_once(me, points_asked(TWO, range(2)))


def test_if_one_piece_is_refused_all_are_withdrawn() -> None:
    """Rule 10: admitted whole or not at all."""
    me = LoneClient()
    me.locate(me.submit(TWO), OWNERS)
    me.grant(1)
    me.tick(1, 0)

    effects = me.refuse(2, "no such thing")
    (ask,) = sent(effects, Ask)
    assert ask.owner
    me.say(0, Located(ask.request, 0, ((cell("001"), PeerId(2)),)))
    effects = me.refuse(2, "no such thing")

    assert me.replies() == [("refused", "no such thing")]
    assert [m.cells for m in sent(effects, Leave, 1)] == [(cell("000"),)]
    assert delivered(me.log) == []
    me.nothing_is_left()


def test_a_query_without_room_is_tried_once_more_at_the_owners() -> None:
    """Rule 10: at a relay its own pieces may take the room that others of them need."""
    me = LoneClient()
    me.locate(me.submit(TWO), OWNERS)
    me.grant(1)
    me.tick(1, 0)
    me.refuse(2, NO_ROOM)
    me.say(0, Located(2, 0, ((cell("001"), PeerId(2)),)))

    effects = me.refuse(2, NO_ROOM)
    (ask,) = sent(effects, Ask)
    me.locate(effects, OWNERS)
    me.grant(1)
    me.grant(2)
    me.tick(1, 0)
    me.tick(2, 0)

    assert ask.owner
    assert me.statuses() == ["admitted"]
    given_once(me, points_asked(TWO, range(1)))


def test_a_query_that_finds_no_room_twice_is_refused_for_it() -> None:
    me = LoneClient()
    effects = me.submit(REGION)
    for _ in range(6):
        if me.statuses():
            break
        me.locate(effects, {"000": 1})
        effects = me.refuse(1, NO_ROOM)

    assert me.replies() == [("refused", NO_ROOM)]
    me.nothing_is_left()


def test_a_query_that_the_grid_cannot_answer_is_refused_at_once() -> None:
    me = LoneClient()

    me.submit(box_query(0, 0, 99, 99))
    me.submit(Query("salt"), query=2)

    assert me.statuses() == ["refused", "refused"]
    me.nothing_is_left()


def test_a_query_that_nobody_answers_is_refused_in_time() -> None:
    me = LoneClient(alive_s=5.0)
    me.submit(REGION)
    me.up(0)

    me.wait(60)

    assert me.statuses() == ["refused"]
    me.nothing_is_left()


def test_if_the_known_broker_cannot_be_reached_the_next_one_is_asked() -> None:
    me = LoneClient(entries=(0, 7))
    me.submit(REGION)

    me.down(0)
    effects = me.wait(1.5)

    assert dialled(effects) == [7]


def test_several_attributes_are_one_query() -> None:
    ask = box_query(0, 0, 4, 8, names=("air_temperature", "wind_speed"))
    me = LoneClient()
    asks = me.submit(ask)
    me.locate(asks, {"000": 1})

    me.grant(1)
    me.tick(1, 0, 1)

    assert [w.attribute for w in sent(me.log, Want)] == [0, 1]
    assert me.statuses() == ["admitted"]
    given_once(me, points_asked(ask, range(2)))


def test_queries_of_one_client_do_not_mix() -> None:
    me = LoneClient()
    me.locate(me.submit(REGION, query=1), {"000": 1})
    me.locate(me.submit(REGION, start=2, query=2), {"000": 1})
    me.grant(1)

    effects = me.tick(1, 0, 1, 2)
    me.cancel(1)
    effects += me.tick(1, 3)

    assert [(b.query, b.tick) for b in delivered(effects)] == [(1, 0), (1, 1), (1, 2), (2, 2), (2, 3)]


def test_a_value_range_travels_in_the_clip() -> None:
    me = LoneClient()
    me.locate(me.submit(box_query(0, 0, 4, 8, where={"air_temperature": (5.0, None)})), {"000": 1})
    me.up(1)

    (want,) = sent(me.log, Want)

    assert want.clip is not None
    assert (want.clip.low, want.clip.high) == (5.0, None)


def test_a_located_answer_in_parts_splits_the_pieces() -> None:
    """Rule 1."""
    me = LoneClient()
    me.submit(REGION)
    me.up(0)

    me.say(0, Located(1, 0, ((cell("0000"), PeerId(1)),)))
    me.say(0, Located(1, 0, ((cell("0001"), PeerId(2)),)))
    me.grant(1)
    me.grant(2)
    me.tick(1, 0)
    me.tick(2, 0)

    assert me.statuses() == ["admitted"]
    given_once(me, points_asked(REGION, range(1)))


def test_a_redirect_of_a_part_splits_a_piece_and_each_point_comes_once() -> None:
    """Rules 1, 4 and 5."""
    me = running(REGION, {"000": 1})
    me.tick(1, 0, 1)
    ((generation, code),) = me.sources[PeerId(1)]

    effects = me.say(1, Redirect(generation, ((code, cell("00010")),), PeerId(4)))
    me.tick(1, 2)
    me.grant(4, (1, 4))
    me.tick(4, 2, 3)
    me.tick(1, 3)

    assert dialled(effects) == [4]
    assert sorted(c for _, c in me.sources[PeerId(1)]) == sorted(beside(code, cell("00010")))
    given_once(me, points_asked(REGION, range(4)))


# -- suspended and resumed


def test_an_admitted_query_that_cannot_be_held_is_suspended_with_the_reason_and_resumed() -> None:
    """Rule 10: never dropped; exactly once across the pause."""
    me = running(REGION, {"000": 1})
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
    given_once(me, points_asked(REGION, range(4)))


def test_a_suspended_query_is_suspended_whole() -> None:
    """Half a query would keep bandwidth from others and give nobody what he asked for."""
    me = running()
    effects = me.refuse(2, NO_ROOM)
    me.locate(effects, {"001": 2})

    effects = me.refuse(2, NO_ROOM)

    assert [m.cells for m in sent(effects, Leave, 1)] == [(cell("000"),)]
    assert me.sources == {}


def test_pauses_grow_and_are_bounded_and_the_reason_is_not_said_again() -> None:
    """Rule 10: retried with back-off."""
    me = running(REGION, {"000": 1})
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
    me = running(REGION, {"000": 1})
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
    me = running(REGION, {"000": 1})
    me.tick(1, 0)

    effects = me.refuse(1, "moved", 3)
    me.grant(3, (1, 3))
    me.tick(3, 1)

    assert dialled(effects) == [3]
    assert me.statuses() == ["admitted"]
    given_once(me, points_asked(REGION, range(2)))


def test_a_dead_provider_is_replaced_by_way_of_the_owner() -> None:
    me = running(REGION, {"000": 1})
    me.tick(1, 0)

    effects = me.down(1)
    me.locate(effects, {"000": 4})
    me.grant(4)
    me.tick(4, 1)

    assert [a.owner for a in sent(effects, Ask)] == [True]
    assert me.statuses() == ["admitted"]
    given_once(me, points_asked(REGION, range(2)))


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
    me.nothing_is_left()
    me.cancel()
    assert me.statuses().count("cancelled") == 1


def test_cancelling_leaves_the_providers_at_once() -> None:
    me = running()

    effects = me.cancel()

    assert [m.cells for m in sent(effects, Leave, 1)] == [(cell("000"),)]
    assert [m.cells for m in sent(effects, Leave, 2)] == [(cell("001"),)]


def test_an_answer_to_a_cancelled_query_starts_nothing() -> None:
    me = LoneClient()
    me.submit(REGION)
    me.up(0)
    me.cancel()

    effects = me.say(0, Located(1, 0, ((cell("000"), PeerId(1)),)))

    assert (sent(effects, Want), dialled(effects), me.sources) == ([], [], {})


def test_a_query_for_the_future_is_admitted_now_and_fed_then() -> None:
    me = running(REGION, {"000": 1}, start=5)

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
    assert me.sources == {}
    given_once(me, points_asked(TWO, range(3)))


def test_two_queries_may_finish_with_one_message() -> None:
    me = LoneClient()
    for query in (1, 2):
        me.locate(me.submit(REGION, until=1, query=query), {"000": 1})
    me.grant(1)
    feeds = tuple(Feed(generation, code, 0, 0, ()) for generation, code in me.sources[PeerId(1)])

    me.feed(Batch(PeerId(1), feeds))

    assert me.statuses() == ["admitted", "admitted", "finished", "finished"]
    assert me.sources == {}


def test_nothing_is_delivered_past_the_end_whatever_comes_together() -> None:
    me = running(REGION, {"000": 1}, until=2)
    ((generation, code),) = me.sources[PeerId(1)]

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

    given_once(me, points_asked(TWO, range(2)))
    assert me.statuses() == ["admitted", "finished"]


# -- refining


def test_refining_starts_only_the_missing_cells() -> None:
    """A running query can be refined: only the missing pieces start."""
    me = running(REGION, {"000": 1})
    me.tick(1, 0)

    effects = me.refine(TWO)
    effects += me.locate(effects, OWNERS)
    effects += me.up(2)

    assert wanted(effects) == [cell("001")]
    assert sent(effects, Leave) == []


def test_a_coarse_query_grows_into_a_fine_one_by_its_other_halves() -> None:
    """Resolutions nest: what a coarser query has is part of what a finer one wants."""
    coarse, fine = box_query(0, 0, 4, 8, resolution=(0.5, 1, 1)), REGION
    me = running(coarse, {"000": 1})
    had = sorted(code for _, code in me.sources[PeerId(1)])
    me.tick(1, 0)

    effects = me.refine(fine)
    effects += me.locate(effects, {"000": 1})
    me.grant(1)
    me.tick(1, *range(1, 8))

    new = wanted(effects)
    assert all(not contains(a, b) and not contains(b, a) for a in had for b in new)
    assert sorted(had + [code ^ 1 for code in new]) == sorted(had * 2), "the siblings of what it has"
    assert me.statuses() == ["admitted", "refined"]
    turn = next(w.items[0][2] for w in sent(effects, Want))
    given_once(me, points_asked(coarse, range(turn)) + points_asked(fine, range(turn, 8)))


def test_a_finer_query_holds_from_one_tick_on_for_all_its_pieces() -> None:
    me = running(REGION, {"000": 1})
    me.tick(1, 0, 1, 2)

    effects = me.refine(TWO)
    effects += me.locate(effects, OWNERS)
    me.grant(2)
    me.tick(2, *range(5, 8))
    me.tick(1, *range(3, 8))

    assert [w.items[0][2] for w in sent(effects + me.log, Want)][-1] == 5, (
        "the furthest next tick, and some slack"
    )
    given_once(me, points_asked(REGION, range(5)) + points_asked(TWO, range(5, 8)))


def test_shrinking_ends_pieces_from_the_turn_on() -> None:
    me = running()
    me.tick(1, 0)
    me.tick(2, 0)

    me.refine(REGION)
    for tick in range(1, 6):
        me.tick(1, tick)
        me.tick(2, tick)

    assert me.statuses() == ["admitted", "refined"]
    assert [m.cells for m in sent(me.log, Leave)] == [(cell("001"),)]
    given_once(me, points_asked(TWO, range(3)) + points_asked(REGION, range(3, 6)))


def test_moving_a_query_exchanges_pieces_without_gap_or_repeat() -> None:
    me = running(REGION, {"000": 1})
    me.tick(1, 0)
    other = box_query(4, 0, 8, 8)

    me.locate(me.refine(other), {"001": 2})
    me.grant(2)
    for tick in range(1, 6):
        me.tick(2, tick)
        me.tick(1, tick)

    assert me.statuses() == ["admitted", "refined"]
    given_once(me, points_asked(REGION, range(3)) + points_asked(other, range(3, 6)))
    assert list(me.sources) == [2]


def test_a_refused_refinement_leaves_the_query_as_it_was() -> None:
    """Also what its retired pieces brought after the turn is delivered then."""
    me = running(REGION, {"000": 1})
    me.tick(1, 0)
    me.locate(me.refine(box_query(4, 0, 8, 8)), {"001": 2})
    me.tick(1, 1, 2, 3, 4)

    effects = me.refuse(2, NO_ROOM)
    me.locate(effects, {"001": 2})
    me.refuse(2, NO_ROOM)
    me.tick(1, 5)

    assert me.replies()[-1] == ("not refined", NO_ROOM)
    assert list(me.sources) == [1]
    given_once(me, points_asked(REGION, range(6)))
    assert me.actor.queries[1].ask == REGION  # type: ignore[index]


def test_a_query_that_is_being_refined_is_not_refined_again() -> None:
    me = running()
    me.tick(1, 0)
    me.refine(REGION)

    me.refine(box_query(0, 0, 4, 16))

    assert me.statuses()[-1] == "not refined"


def test_shrinking_and_growing_again_at_once_loses_nothing() -> None:
    """A piece that was to end, and is wanted again, must not miss what it brought in between."""
    wide = box_query(0, 0, 8, 16)
    me = running(wide, {"000": 1, "001": 2, "010": 3, "011": 4})
    for peer in (1, 2, 3, 4):
        me.tick(peer, 0)

    me.refine(box_query(0, 0, 4, 8))
    me.tick(2, 1, 2, 3, 4)
    me.refine(wide)
    for peer, start in ((1, 1), (3, 1), (4, 1), (2, 5)):
        me.tick(peer, *range(start, 8))

    assert me.statuses() == ["admitted", "not refined", "refined"]
    given_once(me, points_asked(wide, range(3)) + points_asked(box_query(0, 0, 4, 8), range(3, 8)))


def test_refining_to_what_cannot_be_is_said_and_changes_nothing() -> None:
    me = running(REGION, {"000": 1})

    me.refine(box_query(0, 0, 99, 99))
    me.refine(TWO, query=9)

    assert me.statuses() == ["admitted", "not refined", "not refined"]
    assert list(me.sources) == [1]


def test_a_query_that_is_suspended_while_it_is_refined_comes_back_as_it_was() -> None:
    me = running(REGION, {"000": 1})
    me.tick(1, 0)
    me.locate(me.refine(TWO), {"001": 2})

    me.locate(me.refuse(1, NO_ROOM), {"000": 1})
    me.refuse(1, NO_ROOM)
    effects = me.wait(1.6)
    me.locate(effects, {"000": 1})
    me.grant(1)
    me.tick(1, *range(1, 6))

    assert me.statuses() == ["admitted", "not refined", "suspended", "resumed"]
    given_once(me, points_asked(REGION, range(6)))


def test_refining_changes_a_value_range_by_new_pieces() -> None:
    me = running(REGION, {"000": 1})
    me.tick(1, 0)

    effects = me.refine(box_query(0, 0, 4, 8, where={"air_temperature": (0.0, 9.0)}))
    effects += me.locate(effects, {"000": 1})
    me.grant(1)
    me.tick(1, *range(1, 6))

    assert wanted(effects) == [cell("000")]
    assert me.statuses() == ["admitted", "refined"]
    given_once(me, points_asked(REGION, range(6)))


@hypothesis_settings(max_examples=50)
@given(st.data())
def test_any_refinement_is_exact_on_both_sides_of_the_turn(data: st.DataObject) -> None:
    """Before the turn the old query, from the turn on the new one, each point once."""

    def draw() -> Query:
        x0, y0 = data.draw(st.integers(0, 14)), data.draw(st.integers(0, 14))
        x1, y1 = data.draw(st.integers(x0 + 2, 16)), data.draw(st.integers(y0 + 2, 16))
        resolution = tuple(data.draw(st.sampled_from([0.5, 1.0])) for _ in range(3))
        return box_query(x0, y0, x1, y1, resolution=resolution)

    old, new = draw(), draw()
    owners = {format(i, "03b"): i + 1 for i in range(8)}
    me = LoneClient()
    me.locate(me.submit(old), owners)
    for peer in range(1, 9):
        me.grant(peer)
    lag = data.draw(st.integers(0, 2))
    for peer in range(1, 9):
        me.tick(peer, *range(lag if peer % 2 else 2))
    turn = max(p.next for p in me.actor.queries[1].pieces) + 2  # type: ignore[index]

    me.locate(me.refine(new), owners)
    for peer in range(1, 9):
        me.grant(peer)
    for tick in range(turn + 4):
        for peer in range(1, 9):
            me.tick(peer, tick)

    assert me.statuses() == ["admitted", "refined"]
    given_once(me, points_asked(old, range(turn)) + points_asked(new, range(turn, turn + 4)))


# -- clients that stay


def test_a_client_that_stays_asks_its_broker_for_everything() -> None:
    me = LoneClient(roams=False)

    me.submit(TWO)
    effects = me.up(0)
    me.grant(0, (1, 0))
    me.tick(0, 0)

    (want,) = sent(effects, Want)
    assert want.stays
    assert want.items == ((cell("00"), 128, 0),)
    assert me.statuses() == ["admitted"]
    given_once(me, points_asked(TWO, range(1)))


def test_a_client_that_stays_asks_in_parts_where_its_broker_says_so() -> None:
    me = LoneClient(roams=False)
    me.submit(TWO)
    me.up(0)

    effects = me.say(0, Refuse(1, (cell("00"),), "cut", (), (cell("000"), cell("001"))))
    me.grant(0, (1, 0))
    me.tick(0, 0)

    assert wanted(effects) == [cell("000"), cell("001")]
    given_once(me, points_asked(TWO, range(1)))


def test_a_client_that_stays_and_finds_no_room_is_refused() -> None:
    me = LoneClient(roams=False)
    me.submit(TWO)
    me.up(0)

    me.refuse(0, NO_ROOM, 3, 4)
    me.refuse(0, NO_ROOM, 3, 4)

    assert me.replies() == [("refused", NO_ROOM)]
    assert dialled(me.log) == [0]
    me.wait(3000)
    me.nothing_is_left()


# -- connections


def test_a_half_open_connection_is_found_by_silence() -> None:
    me = LoneClient(alive_s=5.0)
    me.locate(me.submit(REGION), {"000": 1})
    me.grant(1)

    for _ in range(5):
        me.wait(4)
        me.say(0, Alive())

    me.up(0)
    assert 1 in closed(me.log)
    assert [a.owner for a in sent(me.log, Ask)] == [False, True]
    assert sent(me.log, Alive, 1)


def test_an_unused_connection_is_closed() -> None:
    me = LoneClient(alive_s=5.0)
    me.locate(me.submit(REGION), {"000": 1})
    me.grant(1)

    for _ in range(5):
        me.wait(4)
        for peer in list(me.actor.links.up):
            me.say(peer, Alive())

    assert list(me.actor.links.up) == [1]


def test_a_new_connection_means_that_the_old_one_is_gone_with_all_that_was_said_on_it() -> None:
    me = running(REGION, {"000": 1})
    me.tick(1, 0)

    effects = me.up(1)

    assert [a.owner for a in sent(effects, Ask)] == [True]


# -- whatever is said


@hypothesis_settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), anything), max_size=12), st.booleans())
def test_whatever_brokers_say_a_client_does_not_fail_and_leaves_nothing(
    said: list[tuple[int, messages.Any]], roams: bool
) -> None:
    me = LoneClient(roams=roams, alive_s=5.0)
    me.locate(me.submit(TWO), OWNERS)
    me.up(0, 1, 2, 3)
    me.grant(1)
    me.submit(box_query(0, 0, 4, 16), query=2)

    for number, (peer, message) in enumerate(said):
        try:
            me.say(peer, decode(encode(message)))
        except CodecError:
            continue
        if number % 4 == 3:
            me.wait(1.0)

    blocks = [e for e in me.log if isinstance(e, Deliver)]
    ticks: dict[tuple[int, int], list[int]] = {}
    for block in blocks:
        ticks.setdefault((block.query, block.cell), []).append(block.tick)
    assert max(Counter((b.query, b.cell, b.tick, b.revision) for b in blocks).values(), default=1) == 1
    for query in (1, 2):
        me.cancel(query)
    me.wait(100)
    me.nothing_is_left()


@hypothesis_settings(max_examples=50)
@given(st.data())
def test_what_comes_together_has_the_same_end_as_what_comes_one_by_one(data: st.DataObject) -> None:
    """A batch is a matter of speed."""

    def fresh() -> LoneClient:
        me = LoneClient()
        me.locate(me.submit(TWO, until=data_until), OWNERS)
        me.up(1, 2)
        return me

    data_until = data.draw(st.none() | st.integers(1, 4))
    path = st.sampled_from([None, (PeerId(1),)])
    said = data.draw(
        st.lists(
            st.one_of(
                st.builds(Grant, st.just(1), st.just((cell("000"),)), path),
                st.builds(
                    Feed, st.just(1), st.just(cell("000")), st.integers(0, 5), st.integers(0, 1), st.just(())
                ),
            ),
            max_size=8,
        )
    )
    one, all_at_once = fresh(), fresh()
    for me in (one, all_at_once):
        me.grant(2)
        me.tick(2, *range(6))

    for message in said:
        one.say(1, message)
    if said:
        all_at_once.feed(Batch(PeerId(1), tuple(said)))

    assert one.statuses() == all_at_once.statuses()
    # Revisions that come with the last tick may or may not be too late.
    facts = [
        Counter((b.cell, b.tick) for b in delivered(me.log) if not b.revision) for me in (one, all_at_once)
    ]
    assert facts[0] == facts[1]
