"""A client alone whose user changes his mind: exact on both sides of the turn."""

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hands import (
    NO_ROOM,
    ONE,
    OWNERS,
    TWO,
    LoneClient,
    box_query,
    cell,
    points_asked,
    running,
    sent,
    wanted,
)
from sensorgrid.index.codes import contains
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import Query
from sensorgrid.overlay.messages import Leave, Want


def test_refining_starts_only_the_missing_cells() -> None:
    """A running query can be refined: only the missing pieces start."""
    me = running(ONE, {"000": 1})
    me.tick(1, 0)

    effects = me.refine(TWO)
    effects += me.locate(effects, OWNERS)
    effects += me.up(2)

    assert wanted(effects) == [cell("001")]
    assert sent(effects, Leave) == []


def test_a_coarse_query_grows_into_a_fine_one_by_its_other_halves() -> None:
    """Resolutions nest: what a coarser query has is part of what a finer one wants."""
    coarse, fine = box_query(0, 0, 4, 8, resolution=(0.5, 1, 1)), ONE
    me = running(coarse, {"000": 1})
    had = sorted(code for _, code in me.feeds[PeerId(1)])
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
    assert me.given() == points_asked(coarse, range(turn)) + points_asked(fine, range(turn, 8))


def test_a_finer_query_holds_from_one_tick_on_for_all_its_pieces() -> None:
    me = running(ONE, {"000": 1})
    me.tick(1, 0, 1, 2)

    effects = me.refine(TWO)
    effects += me.locate(effects, OWNERS)
    me.grant(2)
    me.tick(2, *range(5, 8))
    me.tick(1, *range(3, 8))

    assert [w.items[0][2] for w in sent(effects + me.log, Want)][-1] == 5, (
        "the furthest next tick, and some slack"
    )
    assert me.given() == points_asked(ONE, range(5)) + points_asked(TWO, range(5, 8))


def test_shrinking_ends_pieces_from_the_turn_on() -> None:
    me = running()
    me.tick(1, 0)
    me.tick(2, 0)

    me.refine(ONE)
    for tick in range(1, 6):
        me.tick(1, tick)
        me.tick(2, tick)

    assert me.statuses() == ["admitted", "refined"]
    assert [m.cells for m in sent(me.log, Leave)] == [(cell("001"),)]
    assert me.given() == points_asked(TWO, range(3)) + points_asked(ONE, range(3, 6))


def test_moving_a_query_exchanges_pieces_without_gap_or_repeat() -> None:
    me = running(ONE, {"000": 1})
    me.tick(1, 0)
    other = box_query(4, 0, 8, 8)

    me.locate(me.refine(other), {"001": 2})
    me.grant(2)
    for tick in range(1, 6):
        me.tick(2, tick)
        me.tick(1, tick)

    assert me.statuses() == ["admitted", "refined"]
    assert me.given() == points_asked(ONE, range(3)) + points_asked(other, range(3, 6))
    assert list(me.feeds) == [2]


def test_a_refused_refinement_leaves_the_query_as_it_was() -> None:
    """Also what its retired pieces brought after the turn is delivered then."""
    me = running(ONE, {"000": 1})
    me.tick(1, 0)
    me.locate(me.refine(box_query(4, 0, 8, 8)), {"001": 2})
    me.tick(1, 1, 2, 3, 4)

    effects = me.refuse(2, NO_ROOM)
    me.locate(effects, {"001": 2})
    me.refuse(2, NO_ROOM)
    me.tick(1, 5)

    assert me.replies()[-1] == ("not refined", NO_ROOM)
    assert list(me.feeds) == [1]
    assert me.given() == points_asked(ONE, range(6))
    assert me.actor.queries[1].ask == ONE  # type: ignore[index]


def test_a_query_that_is_being_refined_is_not_refined_again() -> None:
    me = running()
    me.tick(1, 0)
    me.refine(ONE)

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
    assert me.given() == points_asked(wide, range(3)) + points_asked(box_query(0, 0, 4, 8), range(3, 8))


def test_refining_to_what_cannot_be_is_said_and_changes_nothing() -> None:
    me = running(ONE, {"000": 1})

    me.refine(box_query(0, 0, 99, 99))
    me.refine(TWO, query=9)

    assert me.statuses() == ["admitted", "not refined", "not refined"]
    assert list(me.feeds) == [1]


def test_a_query_that_is_suspended_while_it_is_refined_comes_back_as_it_was() -> None:
    me = running(ONE, {"000": 1})
    me.tick(1, 0)
    me.locate(me.refine(TWO), {"001": 2})

    me.locate(me.refuse(1, NO_ROOM), {"000": 1})
    me.refuse(1, NO_ROOM)
    effects = me.wait(1.6)
    me.locate(effects, {"000": 1})
    me.grant(1)
    me.tick(1, *range(1, 6))

    assert me.statuses() == ["admitted", "not refined", "suspended", "resumed"]
    assert me.given() == points_asked(ONE, range(6))


def test_refining_changes_a_value_range_by_new_pieces() -> None:
    me = running(ONE, {"000": 1})
    me.tick(1, 0)

    effects = me.refine(box_query(0, 0, 4, 8, where={"air_temperature": (0.0, 9.0)}))
    effects += me.locate(effects, {"000": 1})
    me.grant(1)
    me.tick(1, *range(1, 6))

    assert wanted(effects) == [cell("000")]
    assert me.statuses() == ["admitted", "refined"]
    assert me.given() == points_asked(ONE, range(6))


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
    assert me.given() == points_asked(old, range(turn)) + points_asked(new, range(turn, turn + 4))
