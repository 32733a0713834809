"""A receiver alone, fed by hand: which ticks it takes, and from whom (rules 1, 2, 3 and 7 of docs/overlay.md)."""

from hands import EVERYTHING, cell
from receiver import Receiver
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.messages import Feed, Grant, Leave, Refuse, Want

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
