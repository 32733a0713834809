"""A receiver alone that has lost its provider, or its interest (rules 9 and 10)."""

from hands import NO_ROOM, cell
from receiver import Receiver
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.intake import SEARCHES_MAX
from sensorgrid.overlay.messages import Leave, Refuse, Want

# -- rule 9: nothing stays


def test_what_is_dropped_leaves_nothing() -> None:
    """Rule 9: all per-piece state goes with the last interest."""
    me = Receiver()
    piece = me.switching(1, to=2)
    piece.hints, piece.why = (PeerId(5),), NO_ROOM

    me.intake.drop([piece])

    assert me.intake.feeds == {}
    assert me.left() == [(1, 1), (2, 2)]
    assert (piece.feed, piece.trial, piece.due, piece.tried, piece.hints, piece.why) == (None,) * 3 + (
        (),
        (),
        None,
    )
    assert me.intake.next_wakeup() is None


def test_what_is_dropped_together_is_left_together() -> None:
    """Rule 9: one message per provider and generation."""
    me = Receiver()
    pieces = [me.want("000"), me.want("001")]
    me.intake.ask(pieces, PeerId(1))
    me.grant(1, (1,))

    me.intake.drop(pieces)

    assert me.sent[1:] == [(1, Leave(1, (cell("000"), cell("001"))))]


def test_being_fed_again_forgets_all_that_was_tried() -> None:
    """Rule 9: the back-off goes too, so that the next search has all its tries."""
    me = Receiver()
    piece = me.want("000")
    me.intake.ask([piece], PeerId(1))
    me.refuse(1, NO_ROOM, 2, 3, digits="000")

    me.grant(2, (0, 2))

    assert (piece.tried, piece.hints, piece.why, piece.due) == ((), (), None, None)


# -- rule 10: nobody wanders


def test_after_a_refusal_come_those_it_named_then_the_owner_then_it_is_lost() -> None:
    """Rule 10."""
    me = Receiver()
    piece = me.want("000")
    me.intake.ask([piece], PeerId(1))

    me.refuse(1, NO_ROOM, 2, 3, digits="000")
    me.refuse(2, "too old", digits="000")
    sought = list(me.sought)
    me.refuse(3, "too old", digits="000")
    me.intake.ask([piece], PeerId(0))
    gone = list(me.gone)
    me.refuse(0, "too old", digits="000")

    assert me.asked() == [1, 2, 3, 0]
    assert (sought, me.sought) == ([], [(piece, True)])
    assert (gone, me.gone) == ([], [(piece, NO_ROOM)])
    me.check()


def test_nobody_wanders_between_full_brokers_that_name_each_other() -> None:
    """Rule 10: orphans of a dead relay must not wander; every refusal names fresh brokers."""
    me = Receiver()
    piece = me.want("000")
    me.intake.ask([piece], PeerId(10))

    for _ in range(100):
        if me.gone:
            break
        if piece.trial is None:
            me.intake.ask([piece], PeerId(0))
        assert piece.trial is not None
        peer = piece.trial.peer
        me.refuse(peer, NO_ROOM, peer + 11, peer + 12, peer + 13, digits="000")

    assert [p for p, _ in me.gone] == [piece]
    assert len(me.asked()) <= SEARCHES_MAX + 1


def test_providers_that_never_answer_end_the_search_too() -> None:
    """Rule 10, with silence instead of refusals."""
    me = Receiver()
    piece = me.want("000")
    piece.hints = (PeerId(2), PeerId(3))
    me.intake.ask([piece], PeerId(1))

    me.wait(60)

    assert me.asked() == [1, 2, 3]
    assert me.sought == [(piece, True)]
    assert [p for p, _ in me.gone] == [piece]
    assert me.intake.next_wakeup() is None


def test_a_broken_connection_is_searched_for_like_a_refusal() -> None:
    """Rule 10."""
    me = Receiver()
    piece = me.fed_by(1, "000")

    me.intake.peer_down(PeerId(1))

    assert me.moves[-1] is piece
    assert me.sought == [(piece, True)]
    assert me.left() == [], "there is nothing to leave where there is no connection"
    me.check()


def test_a_receiver_that_stays_follows_no_hints() -> None:
    """Rule 10 for those who cannot dial elsewhere."""
    me = Receiver(roams=False)
    piece = me.want("000")
    me.intake.ask([piece], PeerId(1))

    me.refuse(1, NO_ROOM, 2, 3, digits="000")

    assert me.asked() == [1]
    assert me.sought == [(piece, True)]


def test_a_piece_whose_receivers_are_about_to_leave_is_searched_for_only_if_they_do_not() -> None:
    """Rule 9: when a replica is passed on, its own stream ends with its last receiver."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    piece.passing = True

    me.refuse(1, "moved", 2, digits="000")
    soon = list(me.asked()), list(me.sought)
    me.wait(1.1)

    assert soon == ([1], [])
    assert me.asked() == [1, 2]
    me.check()


def test_lack_of_room_is_the_reason_that_counts() -> None:
    """Rule 10: suspended with the reason; with more room the others would not have been tried."""
    me = Receiver()
    piece = me.want("000")
    me.intake.ask([piece], PeerId(1))
    me.refuse(1, NO_ROOM, digits="000")

    me.intake.ask([piece], PeerId(0))
    me.refuse(0, "too old", digits="000")

    assert me.gone == [(piece, NO_ROOM)]


def test_a_cell_that_a_provider_has_in_parts_is_asked_for_in_parts() -> None:
    """Rule 1: a refusal may say how it could be had."""
    me = Receiver()
    piece = me.want("00")
    me.intake.ask([piece], PeerId(1))

    me.intake.refused(PeerId(1), Refuse(1, (cell("00"),), "cut", (), (cell("000"), cell("001"))))

    assert me.last == (1, Want(2, 0, ((cell("000"), 64, 0), (cell("001"), 64, 0))))
    assert piece not in me.pieces
    me.check()


def test_parts_that_do_not_make_up_the_cell_are_not_asked_for() -> None:
    """Rule 1: disjoint pieces of what it wants, whatever a provider says."""
    for parts in (
        ("00",),
        ("000",),
        ("000", "000"),
        ("000", "011"),
        ("0", "1"),
        ("000", "001", "0010"),
        ("001", "00"),
    ):
        me = Receiver()
        piece = me.want("00")
        me.intake.ask([piece], PeerId(1))

        me.intake.refused(PeerId(1), Refuse(1, (cell("00"),), "cut", (), tuple(map(cell, parts))))

        assert me.asked() == [1], parts
        assert (me.pieces, me.sought) == ([piece], [(piece, True)])
        me.check()


def test_a_fed_piece_is_not_cut_by_a_candidate() -> None:
    """Rule 5: the current provider feeds it whole."""
    me = Receiver()
    piece = me.fed_by(1, "00")
    me.redirect(1, 2, ("00", "00"))

    me.intake.refused(PeerId(2), Refuse(2, (cell("00"),), "cut", (), (cell("000"), cell("001"))))

    assert me.pieces == [piece]
    assert piece.feed is not None
    assert piece.trial is None
    me.check()
