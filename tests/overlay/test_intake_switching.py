"""A receiver alone that changes its provider: make before break, redirects (rules 4 and 5)."""

from hands import cell, points
from receiver import Receiver
from sensorgrid.index.codes import beside
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.messages import Want

# -- rule 4: make before break


def test_a_trial_takes_over_only_when_its_path_is_known() -> None:
    """Rule 4."""
    me = Receiver()
    piece = me.switching(1, to=2)

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
    piece = me.switching(1, to=2)
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
    piece = me.switching(1, to=2)
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
    piece = me.switching(1, to=2)
    me.grant(2, None)

    me.wait(1.1)

    assert (piece.trial, me.left()) == (None, [(2, 2)])
    assert piece.feed is not None
    me.check()


def test_a_trial_is_dropped_in_time_whatever_the_feed_says_meanwhile() -> None:
    """Rule 4: otherwise the piece waits for ever, and nobody looks for it when the feed dies."""
    me = Receiver()
    piece = me.switching(1, to=2)
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
    piece = me.switching(1, to=2)

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
    piece = me.switching(1, to=2)

    me.redirect(2, 3, ("000", "000"), generation=2)

    assert me.asked() == [1, 2]
    assert piece.trial is not None
    assert piece.trial.peer == 2
    me.check()


def test_a_redirect_is_not_obeyed_while_a_switch_is_pending() -> None:
    """Rule 5."""
    me = Receiver()
    me.switching(1, to=2)

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
    assert me.intake.feeds == {}


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
    assert me.intake.feeds[PeerId(1)].keys() == {(1, p.cell) for p in me.pieces}
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
    piece = me.switching(1, to=2)

    me.redirect(2, 3, ("000", "0001"), generation=2)

    assert (piece.trial, me.left()) == (None, [(2, 2)])
    assert piece.feed is not None
    me.check()
