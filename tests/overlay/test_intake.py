"""A receiver alone, fed by hand: one test per rule of DESIGN, "Interest flows up, data flows down"."""

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hands import EVERYTHING, Receiver, cell, points
from sensorgrid.index.codes import beside, contains
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.intake import SEARCHES_MAX, Piece
from sensorgrid.overlay.messages import NO_ROOM, Feed, Grant, Leave, Redirect, Refuse, Want

# -- rule 1: pieces


def test_a_block_is_clipped_to_what_is_missing() -> None:
    """Rule 1: the next tick passes, once; earlier and later ones do not."""
    me = Receiver()
    me.fed_by(1, "000", start=5)

    for tick in (4, 5, 5, 7, 6, 6, 7):
        me.feed(1, "000", tick)

    assert me.ticks == [(cell("000"), tick, 0) for tick in (5, 6, 7)]
    me.check()


def test_ticks_of_feed_and_trial_are_both_welcome_and_count_once() -> None:
    """Rule 1: two providers overlap while a piece changes from one to the other."""
    me = Receiver()
    me.fed_by(1, "000", start=5)
    me.redirect(1, 2, ("000", "000"))
    old, new = me.generation - 1, me.generation

    for peer, tick, generation in (
        (1, 5, old),
        (2, 5, new),
        (2, 6, new),
        (1, 6, old),
        (2, 7, new),
        (1, 7, old),
    ):
        me.feed(peer, "000", tick, generation=generation)

    assert [tick for _, tick, _ in me.ticks] == [5, 6, 7]
    me.check()


def test_a_gap_is_taken_tick_by_tick_from_what_is_missing_on() -> None:
    """Rules 1 and 6: a long gap is one message; of it, too, only what is missing passes."""
    me = Receiver()
    piece = me.fed_by(1, "000", start=5)

    me.intake.received(PeerId(1), Feed(me.generation, cell("000"), 3, 0, None, until=8))

    assert [tick for _, tick, _ in me.ticks] == [5, 6, 7]
    assert piece.next == 8
    me.check()


def test_each_piece_has_its_own_next_tick() -> None:
    """Rule 1: one next tick per piece."""
    me = Receiver()
    first, second = me.want("000"), me.want("001", start=9)
    me.intake.ask([first, second], PeerId(1))
    me.grant(1, (1,))

    for tick in range(3):
        me.feed(1, "000", tick)

    assert (first.next, second.next) == (3, 9)
    assert me.sent[0][1] == Want(1, 0, ((cell("000"), 64, 0), (cell("001"), 64, 9)))


# -- rule 2: entries


def test_asking_again_is_a_new_generation_and_the_old_one_is_left() -> None:
    """Rule 2: what is asked for anew has a new name, also at the same provider."""
    me = Receiver()
    piece = me.want("000")

    me.intake.ask([piece], PeerId(1))
    me.intake.ask([piece], PeerId(1))

    assert [m.generation for _, m in me.sent] == [1, 1, 2]
    assert isinstance(me.sent[1][1], Leave)
    me.check()


def test_what_carries_a_stale_generation_is_dropped() -> None:
    """Rule 2: grants, refusals, redirects and blocks of an earlier generation mean nothing."""
    me = Receiver()
    piece = me.want("000")
    me.intake.ask([piece], PeerId(1))
    me.intake.ask([piece], PeerId(1))
    said = len(me.sent)

    me.grant(1, (1,), generation=1, digits="000")
    me.feed(1, "000", 0, generation=1)
    me.refuse(1, "no", 5, digits="000", generation=1)
    me.redirect(1, 3, ("000", "000"), generation=1)

    assert (piece.feed, me.ticks, me.gone, len(me.sent)) == (None, [], [], said)
    me.grant(1, (1,))
    assert piece.feed is not None
    me.check()


def test_a_generation_means_nothing_on_another_connection() -> None:
    """Rule 2: entries are scoped to one connection."""
    me = Receiver()
    piece = me.fed_by(1, "000")

    me.intake.received(PeerId(2), Feed(me.generation, cell("000"), 0, 0, ()))
    me.intake.refused(PeerId(2), Refuse(me.generation, (cell("000"),), "no"))
    me.intake.granted(PeerId(2), Grant(me.generation, (cell("000"),), (PeerId(9),)))

    assert me.ticks == []
    assert piece.feed is not None
    me.check()


def test_it_states_its_own_next_tick() -> None:
    """Rule 2: `from` is always a number, the receiver's own next tick."""
    me = Receiver()
    me.fed_by(1, "000", start=5)
    for tick in (5, 6, 7):
        me.feed(1, "000", tick)

    me.redirect(1, 2, ("000", "000"))

    assert me.last == (2, Want(2, 0, ((cell("000"), 64, 8),), via=PeerId(1)))


# -- rule 3: paths


def test_whoever_finds_itself_in_the_path_of_its_feed_leaves_for_the_owner() -> None:
    """Rule 3: two crossed redirects form a circle; the path shows it, no block ever would."""
    me = Receiver(me=9)
    piece = me.fed_by(1, "000", path=(0, 1))

    me.grant(1, (0, 9, 1), generation=1)

    assert piece.feed is None
    assert me.left() == [(1, 1)]
    assert me.sought == [(piece, True)]
    assert me.moves[-1] is piece, "its own receivers have to hear that the path is unknown"
    me.check()


def test_a_trial_whose_path_leads_through_me_is_dropped_and_the_feed_goes_on() -> None:
    """Rules 3 and 4."""
    me = Receiver(me=9)
    piece = me.fed_by(1, "000", path=(0, 1))
    me.redirect(1, 2, ("000", "000"))

    me.grant(2, (0, 1, 9, 2))

    assert piece.feed is not None
    assert (piece.feed.peer, piece.trial) == (1, None)
    assert (me.left(), me.sought) == ([(2, 2)], [])
    me.check()


def test_a_feed_without_a_path_is_still_watched_after_a_trial_led_through_me() -> None:
    """Rule 4: path unknown for too long: fall back to the owner."""
    me = Receiver(me=9)
    piece = me.fed_by(1, "000")
    me.grant(1, None, generation=1)
    me.redirect(1, 2, ("000", "000"))
    me.grant(2, (0, 9, 2))

    me.wait(3.1)

    assert piece.feed is None
    assert me.sought == [(piece, True)]
    me.check()


def test_a_change_of_path_is_passed_on() -> None:
    """Rule 3: paths are said on acceptance and on every change, "unknown" included."""
    me = Receiver()
    piece = me.fed_by(1, "000", path=(0, 1))
    me.moves.clear()

    me.grant(1, None, generation=1)
    unknown = piece.path
    me.grant(1, (0, 3, 1), generation=1)

    assert unknown is None
    assert piece.path == (0, 3, 1)
    assert me.moves == [piece, piece]


# -- rule 4: make before break


def test_a_trial_takes_over_only_when_its_path_is_known() -> None:
    """Rule 4."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "000"))

    me.feed(2, "000", 0)
    me.grant(2, None)
    before = piece.feed
    me.grant(2, (0, 2))

    assert before is not None
    assert before.peer == 1
    assert piece.feed is not None
    assert (piece.feed.peer, piece.trial) == (2, None)
    assert me.left() == [(1, 1)], "the old provider is left after the new one has taken over"
    me.check()


def test_a_trial_takes_over_only_when_its_blocks_have_reached_the_next_tick() -> None:
    """Rule 4: the feed has run ahead; a trial that is behind would have to be waited for."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "000"))
    for tick in range(3):
        me.feed(1, "000", tick, generation=1)
    me.grant(2, (0, 2))

    providers = []
    for tick in range(3):
        assert piece.feed is not None
        providers.append(piece.feed.peer)
        me.feed(2, "000", tick, generation=2)

    assert providers == [1, 1, 1]
    assert piece.feed is not None
    assert piece.feed.peer == 2
    me.check()


def test_a_block_ahead_of_its_turn_does_not_count_as_progress_of_a_trial() -> None:
    """Rule 4: a revision of a later tick is not the tick itself."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "000"))
    for tick in range(3):
        me.feed(1, "000", tick, generation=1)
    me.grant(2, (0, 2))

    me.feed(2, "000", 2, generation=2)
    me.feed(2, "000", 1, revision=1, generation=2)

    assert piece.feed is not None
    assert piece.feed.peer == 1


def test_a_trial_without_a_path_is_dropped_after_a_while() -> None:
    """Rule 4: path unknown for too long: drop the candidate."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "000"))
    me.grant(2, None)

    me.wait(1.1)

    assert (piece.trial, me.left()) == (None, [(2, 2)])
    assert piece.feed is not None
    me.check()


def test_a_trial_is_dropped_in_time_whatever_the_feed_says_meanwhile() -> None:
    """Rule 4: otherwise the piece waits for ever, and nobody looks for it when the feed dies."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "000"))
    me.grant(1, (0, 3, 1), generation=1)

    me.wait(1.1)

    assert (piece.trial, me.left()) == (None, [(2, 2)])
    me.check()


def test_a_feed_without_a_path_is_left_for_the_owner_after_a_while_and_not_before() -> None:
    """Rule 4: path unknown for too long: fall back to the owner."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.grant(1, None)

    me.wait(2.9)
    before = piece.feed
    me.wait(0.2)

    assert before is not None
    assert piece.feed is None
    assert me.sought == [(piece, True)]
    me.check()


def test_a_path_that_comes_back_in_time_ends_the_wait() -> None:
    """Rule 4."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.grant(1, None)
    me.wait(2)

    me.grant(1, (0, 1))
    me.wait(10)

    assert piece.feed is not None
    assert me.intake.next_wakeup() is None


def test_if_the_feed_dies_the_trial_is_all_there_is() -> None:
    """Rule 4: no second search while a candidate may still answer."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "000"))

    me.intake.peer_down(PeerId(1))
    me.grant(2, (0, 2))

    assert piece.feed is not None
    assert piece.feed.peer == 2
    assert me.sought == []
    me.check()


# -- rule 5: redirects


def test_a_redirect_is_obeyed_from_the_current_provider_only() -> None:
    """Rule 5: a trial is not the provider yet."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "000"))

    me.redirect(2, 3, ("000", "000"), generation=2)

    assert me.asked() == [1, 2]
    assert piece.trial is not None
    assert piece.trial.peer == 2
    me.check()


def test_a_redirect_is_not_obeyed_while_a_switch_is_pending() -> None:
    """Rule 5."""
    me = Receiver()
    me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "000"))

    me.redirect(1, 3, ("000", "000"), generation=1)

    assert me.asked() == [1, 2]


def test_a_redirect_to_myself_is_not_obeyed() -> None:
    """Rule 5: a relay does not feed itself."""
    me = Receiver(me=9)
    me.fed_by(1, "000")

    me.redirect(1, 9, ("000", "000"))

    assert me.asked() == [1]


def test_a_receiver_that_cannot_dial_elsewhere_does_not_obey() -> None:
    """Rule 5, and "a client that cannot dial elsewhere stays"."""
    me = Receiver(roams=False)
    me.fed_by(1, "000")

    me.redirect(1, 2, ("000", "000"))

    assert me.asked() == [1]
    want = me.sent[0][1]
    assert isinstance(want, Want)
    assert want.stays


def test_the_statement_to_the_new_provider_says_who_sent_me() -> None:
    """Rule 5: it carries `via`, also for many entries in one message."""
    me = Receiver()
    pieces = [me.want("000"), me.want("001")]
    me.intake.ask(pieces, PeerId(1))
    me.grant(1, (1,))

    me.redirect(1, 2, ("000", "000"), ("001", "001"))

    _, want = me.last
    assert isinstance(want, Want)
    assert want.via == 1
    assert [item[0] for item in want.items] == [cell("000"), cell("001")]


def test_a_redirect_of_something_no_longer_wanted_means_nothing() -> None:
    """Rule 5: for pieces still wanted."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.intake.drop([piece])
    me.pieces.clear()

    me.redirect(1, 2, ("000", "000"))

    assert me.asked() == [1]
    assert me.intake.sources == {}


def test_a_partial_redirect_splits_the_piece_and_each_part_keeps_the_generation() -> None:
    """Rules 1 and 5: both sides name the parts alike, without another word."""
    me = Receiver()
    me.fed_by(1, "000", start=5)
    me.feed(1, "000", 5)
    me.redirect(1, 2, ("000", "00001"))

    stays = sorted(p.cell for p in me.pieces if p.trial is None)
    (moves,) = (p for p in me.pieces if p.trial is not None)

    assert stays == sorted(beside(cell("000"), cell("00001")))
    assert moves.cell == cell("00001")
    assert me.intake.sources[PeerId(1)].keys() == {(1, p.cell) for p in me.pieces}
    assert me.last == (2, Want(2, 0, ((cell("00001"), points(cell("00001")), 6),), via=PeerId(1)))
    for digits in ("00000", "0001", "00001"):
        me.feed(1, digits, 6, generation=1)
    assert [c for c, tick, _ in me.ticks if tick == 6] == [cell("00000"), cell("0001"), cell("00001")]
    me.check()


def test_after_a_partial_redirect_blocks_of_the_whole_are_dropped() -> None:
    """Rule 1: blocks named 01 and 010 can carry the same points."""
    me = Receiver()
    me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "0000"))

    me.feed(1, "000", 0, generation=1)

    assert me.ticks == []


def test_a_refusal_of_the_whole_reaches_all_parts() -> None:
    """Rule 2: an entry by name, or the parts that it was cut into."""
    me = Receiver()
    me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "0000"))

    me.refuse(1, "another owner", digits="000", generation=1)

    kept, other = sorted(me.pieces, key=lambda p: p.trial is None)
    assert (kept.feed, other.feed) == (None, None)
    assert kept.trial is not None
    assert me.sought == [(other, True)]
    me.check()


def test_a_partial_redirect_that_a_relay_cannot_follow_changes_nothing() -> None:
    """A relay takes cells whole: its receivers' entries hang on them."""
    me = Receiver(cuts=False)
    piece = me.fed_by(1, "000")

    me.redirect(1, 2, ("000", "0000"))
    me.feed(1, "000", 0)

    assert me.asked() == [1]
    assert piece.feed is not None
    assert len(me.ticks) == 1
    me.check()


def test_a_redirect_of_a_part_that_is_none_means_nothing() -> None:
    """Decoding trusts nothing, and neither does a receiver."""
    me = Receiver()
    piece = me.fed_by(1, "000")

    me.redirect(1, 2, ("000", "001"))
    me.redirect(1, 2, ("000", "00"))

    assert me.asked() == [1]
    assert piece.feed is not None
    me.check()


def test_a_trial_that_redirects_a_part_is_left() -> None:
    """Rule 5: it is not the provider yet, and has cut what this receiver has not."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "000"))

    me.redirect(2, 3, ("000", "0001"), generation=2)

    assert (piece.trial, me.left()) == (None, [(2, 2)])
    assert piece.feed is not None
    me.check()


# -- rule 7: revisions


def test_only_higher_revisions_pass() -> None:
    """Rule 7."""
    me = Receiver()
    me.fed_by(1, "000")
    for tick in range(5):
        me.feed(1, "000", tick)
    me.ticks.clear()

    for tick, revision in ((3, 0), (3, 1), (3, 1), (2, 2), (3, 2), (2, 1), (4, 0)):
        me.feed(1, "000", tick, revision)

    assert me.ticks == [(cell("000"), tick, revision) for tick, revision in ((3, 1), (2, 2), (3, 2))]


def test_a_tick_that_comes_revised_at_once_counts_as_that_revision() -> None:
    """Rule 7."""
    me = Receiver()
    me.fed_by(1, "000")

    for tick, revision in ((0, 2), (0, 1), (0, 2), (0, 3), (1, 0)):
        me.feed(1, "000", tick, revision)

    assert me.ticks == [(cell("000"), 0, 2), (cell("000"), 0, 3), (cell("000"), 1, 0)]


def test_parts_of_a_piece_know_its_revisions() -> None:
    """Rules 1 and 7: the new provider's replay must not pass a second time."""
    me = Receiver()
    me.fed_by(1, "000")
    me.feed(1, "000", 0, revision=1)
    me.redirect(1, 2, ("000", "0000"))
    me.ticks.clear()

    me.feed(2, "0000", 0, revision=1)
    me.feed(1, "0001", 0, revision=1, generation=1)

    assert me.ticks == []


def test_a_client_has_no_use_for_revisions_from_before_its_start() -> None:
    """Rule 7: a relay's receivers may have."""
    me = Receiver()
    for digits, clip in (("000", EVERYTHING), ("001", None)):
        piece = me.want(digits, start=5, clip=clip)
        me.intake.ask([piece], PeerId(1))
        me.grant(1, (1,))
        me.feed(1, digits, 4, revision=1)

    assert me.ticks == [(cell("001"), 4, 1)]


def test_revisions_that_no_ring_holds_any_more_are_forgotten_and_never_pass_again() -> None:
    """Rule 7: memory is bounded; what is older than the ring does not pass at all."""
    me = Receiver(ring_ticks=12)
    piece = me.fed_by(1, "000")
    for tick in range(100):
        me.feed(1, "000", tick, revision=1)
    me.ticks.clear()

    for tick in range(100):
        me.feed(1, "000", tick, revision=1)

    assert me.ticks == []
    assert len(piece.revisions) <= 13


# -- rule 9: nothing stays


def test_what_is_dropped_leaves_nothing() -> None:
    """Rule 9: all per-piece state goes with the last interest."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.redirect(1, 2, ("000", "000"))
    piece.hints, piece.why = (PeerId(5),), NO_ROOM

    me.intake.drop([piece])

    assert me.intake.sources == {}
    assert me.left() == [(1, 1), (2, 2)]
    assert (piece.feed, piece.trial, piece.due, piece.tried, piece.hints, piece.why) == (None,) * 3 + (
        (),
        (),
        "",
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

    assert (piece.tried, piece.hints, piece.why, piece.due) == ((), (), "", None)


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


# -- whatever comes, in whatever order


class Adversary(RuleBasedStateMachine):
    """A receiver whose providers say anything at any time.

    Whatever comes, every leaf of what it wants is handed each tick once and in order, revisions only upwards, and
    the intake's books balance.
    """

    def __init__(self) -> None:
        super().__init__()
        self.me = Receiver(me=9)
        self.handed: dict[int, list[tuple[int, int]]] = {}
        """by leaf: (tick, revision) as handed to the host"""
        self.entries: list[tuple[PeerId, int, int]] = []
        """all that was ever asked for: (peer, generation, cell), and parts"""
        self.seen = 0
        self.asks = 0

    cells = st.sampled_from(["000", "001", "01"])
    parts = st.sampled_from(["", "", "0", "1", "01", "10", "11"])
    peers = st.integers(0, 4).map(PeerId)
    paths = st.none() | st.lists(st.sampled_from([0, 1, 2, 3, 9]), min_size=1, max_size=3, unique=True)

    def _after(self) -> None:
        """Note what was said and handed over; drop what is lost, as a host has to."""
        for peer, message in self.me.sent[self.seen :]:
            if isinstance(message, Want):
                self.entries += [(peer, message.generation, item[0]) for item in message.items]
        self.seen = len(self.me.sent)
        for code, tick, revision in self.me.ticks:
            self._hand(code, tick, revision)
        self.me.ticks.clear()
        lost = [piece for piece, _ in self.me.gone if piece in self.me.pieces]
        self.me.gone.clear()
        self._drop(lost)

    def _hand(self, code: int, tick: int, revision: int) -> None:
        (piece,) = (p for p in self.me.pieces if p.cell == code)
        for leaf in _leaves(code):
            given = self.handed.setdefault(leaf, [])
            before = [r for t, r in given if t == tick]
            if before:
                assert revision > max(before), f"tick {tick}, revision {revision} again"
            elif tick >= piece.begin:
                expected = max((t for t, _ in given if t >= piece.begin), default=piece.begin - 1) + 1
                assert tick == expected, f"tick {tick} instead of {expected}"
            else:
                assert revision > 0, f"tick {tick} from before the start"
            given.append((tick, revision))

    def _drop(self, pieces: list[Piece]) -> None:
        self.me.intake.drop(pieces)
        for piece in pieces:
            self.me.pieces.remove(piece)
            for leaf in _leaves(piece.cell):
                self.handed.pop(leaf, None)

    def _entry(self, data: st.DataObject) -> tuple[PeerId, int, int]:
        live = [(p, g, c) for p, known in self.me.intake.sources.items() for g, c in known]
        return data.draw(st.sampled_from(live * 3 + self.entries[-6:]))

    @rule(digits=cells, start=st.integers(0, 3), peer=st.none() | peers)
    def want(self, digits: str, start: int, peer: PeerId | None) -> None:
        code = cell(digits)
        if any(contains(code, p.cell) or contains(p.cell, code) for p in self.me.pieces):
            return
        piece = self.me.want(digits, start + 20)
        if peer is None:
            self.me.intake.seek([piece])
        else:
            self.me.intake.ask([piece], peer)
        self._after()

    @precondition(lambda self: any(p.feed is None and p.trial is None for p in self.me.pieces))
    @rule(data=st.data(), peer=st.none() | peers)
    def locate(self, data: st.DataObject, peer: PeerId | None) -> None:
        idle = [p for p in self.me.pieces if p.feed is None and p.trial is None]
        piece = data.draw(st.sampled_from(idle))
        if peer is None:
            self.me.intake.unlocated(piece)
        else:
            self.me.intake.ask([piece], peer)
        self._after()

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), path=paths)
    def grant(self, data: st.DataObject, path: list[int] | None) -> None:
        peer, generation, code = self._entry(data)
        way = None if path is None else tuple(PeerId(p) for p in path)
        self.me.intake.granted(peer, Grant(generation, (code,), way))
        self._after()

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), reason=st.sampled_from([NO_ROOM, "too old"]), named=st.lists(peers, max_size=2))
    def refuse(self, data: st.DataObject, reason: str, named: list[PeerId]) -> None:
        peer, generation, code = self._entry(data)
        parts = data.draw(
            st.sampled_from([(), (), (code << 1, code << 1 | 1), (code,), (code << 1,), (1, 2)])
        )
        if code.bit_length() > 8:
            parts = ()
        self.me.intake.refused(peer, Refuse(generation, (code,), reason, tuple(named), parts))
        self._after()

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), part=parts, to=st.sampled_from([0, 1, 2, 3, 4, 9]))
    def redirect(self, data: st.DataObject, part: str, to: int) -> None:
        peer, generation, code = self._entry(data)
        inner = int(bin(code) + part, 2) if code.bit_length() + len(part) <= 8 else code
        if data.draw(st.integers(0, 9)) == 0:
            inner = data.draw(st.sampled_from([1, 9, 15, code >> 1 or 1]))
        self.me.intake.redirected(peer, Redirect(generation, ((code, inner),), PeerId(to)))
        self._after()

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), ahead=st.integers(-20, 4), revision=st.integers(0, 2), gap=st.integers(0, 8))
    def feed(self, data: st.DataObject, ahead: int, revision: int, gap: int) -> None:
        peer, generation, code = self._entry(data)
        piece = self.me.intake.sources.get(peer, {}).get((generation, code))
        tick = (20 if piece is None else piece.next) + ahead
        if gap > 5:
            self.me.intake.received(peer, Feed(generation, code, tick, 0, None, until=tick + gap))
        else:
            self.me.intake.received(peer, Feed(generation, code, tick, revision, ()))
        self._after()

    @precondition(lambda self: self.me.intake.sources)
    @rule(data=st.data(), count=st.integers(1, 4))
    def go_on(self, data: st.DataObject, count: int) -> None:
        """An honest provider: the ticks that are due."""
        peer, generation, code = self._entry(data)
        for _ in range(count):
            piece = self.me.intake.sources.get(peer, {}).get((generation, code))
            if piece is None:
                break
            source = next(
                s for s in (piece.feed, piece.trial) if s is not None and s.generation == generation
            )
            self.me.intake.received(peer, Feed(generation, code, source.at, 0, ()))
            self._after()

    @rule(peer=peers)
    def hang_up(self, peer: PeerId) -> None:
        self.me.intake.peer_down(peer)
        self._after()

    @rule(seconds=st.sampled_from([0.3, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.me.wait(seconds)
        self._after()

    @precondition(lambda self: self.me.pieces)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self._drop([data.draw(st.sampled_from(self.me.pieces))])
        self._after()

    @invariant()
    def books_balance(self) -> None:
        self.me.check()

    @invariant()
    def whoever_is_left_alone_comes_to_rest(self) -> None:
        """Between two events nobody asks for ever."""
        assert len(self.me.sent) < 2000

    def teardown(self) -> None:
        self._drop(list(self.me.pieces))
        assert self.me.intake.sources == {}
        assert self.me.intake.next_wakeup() is None


def _leaves(code: int, digits: int = 8) -> range:
    down = digits - (code.bit_length() - 1)
    return range(code << down, code + 1 << down)


TestAdversary = Adversary.TestCase
TestAdversary.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
