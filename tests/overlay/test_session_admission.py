"""A client alone, its brokers played by hand: from a question to an admitted query, or a refused one."""

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
    wanted,
)
from sensorgrid.index.codes import beside
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import Query
from sensorgrid.overlay.messages import Ask, Leave, Located, Redirect, Refuse, Want

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

    assert me.given() == points_asked(TWO, range(2))


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
    assert me.leftovers() == []


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
    assert me.given() == points_asked(TWO, range(1))


def test_a_query_that_finds_no_room_twice_is_refused_for_it() -> None:
    me = LoneClient()
    effects = me.submit(ONE)
    for _ in range(6):
        if me.statuses():
            break
        me.locate(effects, {"000": 1})
        effects = me.refuse(1, NO_ROOM)

    assert me.replies() == [("refused", NO_ROOM)]
    assert me.leftovers() == []


def test_a_query_that_the_grid_cannot_answer_is_refused_at_once() -> None:
    me = LoneClient()

    me.submit(box_query(0, 0, 99, 99))
    me.submit(Query("salt"), query=2)

    assert me.statuses() == ["refused", "refused"]
    assert me.leftovers() == []


def test_a_query_that_nobody_answers_is_refused_in_time() -> None:
    me = LoneClient(alive_s=5.0)
    me.submit(ONE)
    me.up(0)

    me.wait(60)

    assert me.statuses() == ["refused"]
    assert me.leftovers() == []


def test_if_the_known_broker_cannot_be_reached_the_next_one_is_asked() -> None:
    me = LoneClient(brokers=(0, 7))
    me.submit(ONE)

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
    assert me.given() == points_asked(ask, range(2))


def test_queries_of_one_client_do_not_mix() -> None:
    me = LoneClient()
    me.locate(me.submit(ONE, query=1), {"000": 1})
    me.locate(me.submit(ONE, start=2, query=2), {"000": 1})
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
    me.submit(ONE)
    me.up(0)

    me.say(0, Located(1, 0, ((cell("0000"), PeerId(1)),)))
    me.say(0, Located(1, 0, ((cell("0001"), PeerId(2)),)))
    me.grant(1)
    me.grant(2)
    me.tick(1, 0)
    me.tick(2, 0)

    assert me.statuses() == ["admitted"]
    assert me.given() == points_asked(ONE, range(1))


def test_a_redirect_of_a_part_splits_a_piece_and_each_point_comes_once() -> None:
    """Rules 1, 4 and 5."""
    me = running(ONE, {"000": 1})
    me.tick(1, 0, 1)
    ((generation, code),) = me.feeds[PeerId(1)]

    effects = me.say(1, Redirect(generation, ((code, cell("00010")),), PeerId(4)))
    me.tick(1, 2)
    me.grant(4, (1, 4))
    me.tick(4, 2, 3)
    me.tick(1, 3)

    assert dialled(effects) == [4]
    assert sorted(c for _, c in me.feeds[PeerId(1)]) == sorted(beside(code, cell("00010")))
    assert me.given() == points_asked(ONE, range(4))


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
    assert me.given() == points_asked(TWO, range(1))


def test_a_client_that_stays_asks_in_parts_where_its_broker_says_so() -> None:
    me = LoneClient(roams=False)
    me.submit(TWO)
    me.up(0)

    effects = me.say(0, Refuse(1, (cell("00"),), "cut", (), (cell("000"), cell("001"))))
    me.grant(0, (1, 0))
    me.tick(0, 0)

    assert wanted(effects) == [cell("000"), cell("001")]
    assert me.given() == points_asked(TWO, range(1))


def test_a_client_that_stays_and_finds_no_room_is_refused() -> None:
    me = LoneClient(roams=False)
    me.submit(TWO)
    me.up(0)

    me.refuse(0, NO_ROOM, 3, 4)
    me.refuse(0, NO_ROOM, 3, 4)

    assert me.replies() == [("refused", NO_ROOM)]
    assert dialled(me.log) == [0]
    me.wait(3000)
    assert me.leftovers() == []
