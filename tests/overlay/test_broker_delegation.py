"""A broker that moves load, and one that load is moved to: offers, reservations, redirects, handing back
(rules 5 and 11).
"""

from hands import ANNA, BEN, CARL, DORA, NO_ROOM, REGION, LoneBroker, Once, cell, sent, ticks
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.events import Advised
from sensorgrid.overlay.messages import (
    Answer,
    Feed,
    Grant,
    Leave,
    Moving,
    Offer,
    Redirect,
    Refuse,
    Want,
)
from sensorgrid.overlay.policies.interface import Proposal, Reactive, View


def test_an_offer_reserves_what_is_free_and_no_more() -> None:
    """Rule 5: agreement is a reservation of budget, never an interest."""
    broker = LoneBroker(others={"001": 1}, budget=3 * REGION)
    broker.up(1)
    broker.want(ANNA, "000")

    (answer,) = sent(broker.say(1, Offer(7, 0, cell("001"), 5 * REGION)), Answer)

    assert answer == Answer(7, 2 * REGION)
    assert broker.boards.outlets.free == 0
    assert broker.boards.outlets.supplies[0].keys() == {cell("000")}
    assert broker.boards.intake.feeds == {}


def test_an_offer_that_comes_twice_reserves_once() -> None:
    """Rule 10."""
    broker = LoneBroker(others={"001": 1}, budget=3 * REGION)
    broker.up(1)

    broker.say(1, Offer(7, 0, cell("001"), 2 * REGION))
    broker.say(1, Offer(7, 0, cell("001"), REGION))

    assert broker.boards.outlets.reserved == REGION
    broker.wait(6)
    assert broker.boards.outlets.reserved == 0


def test_a_reservation_is_for_those_who_come_from_the_one_who_asked() -> None:
    """Rule 5."""
    broker = LoneBroker(others={"001": 1}, budget=REGION)
    broker.up(1, ANNA, BEN)
    broker.say(1, Offer(7, 0, cell("001"), REGION))

    stranger = broker.want(ANNA, "001")
    welcome = broker.want(BEN, "0010", via=1)

    assert [r.reason for r in sent(stranger + broker.wait(0.6), Refuse, ANNA)] == [NO_ROOM]
    assert [w.items for w in sent(welcome, Want, 1)] == [((cell("001"), 64, 0),)], (
        "the delegated cell is taken whole"
    )
    assert (broker.boards.outlets.reserved, broker.boards.outlets.used) == (REGION // 2, REGION // 2)


def test_a_delegated_cell_takes_the_place_of_its_parts() -> None:
    """Supplies are disjoint: who had a part goes on from the whole, where it was."""
    broker = LoneBroker(others={"001": 1}, budget=4 * REGION)
    old = broker.relays("0010", provider=1, receiver=ANNA)
    broker.supply(1, "0010", (0, 1), old)
    broker.say(1, Offer(7, 0, cell("001"), 2 * REGION))

    effects = broker.want(BEN, "0011", start=2, via=1)
    (want,) = sent(effects, Want, 1)
    granted = broker.say(1, Grant(want.generation, (cell("001"),), (PeerId(1),)))
    broker.supply(1, "001", range(4), want.generation)

    assert want.items == ((cell("001"), 64, 0),)
    assert sent(effects, Leave, 1) == [Leave(old, (cell("0010"),))]
    assert [g.path for g in sent(effects, Grant, ANNA)] == [None]
    assert [g.path for g in sent(granted, Grant, ANNA)] == [(1, 0)]
    assert ticks(sent(broker.log, Feed, ANNA)) == [0, 1, 2, 3]
    assert ticks(sent(broker.log, Feed, BEN)) == [2, 3]


def test_a_reservation_expires() -> None:
    """Rule 5."""
    broker = LoneBroker(others={"001": 1}, budget=REGION, reservation_s=5)
    broker.up(1)
    broker.say(1, Offer(7, 0, cell("001"), REGION))

    broker.wait(4.9)
    before = broker.boards.outlets.free
    broker.wait(0.2)

    assert (before, broker.boards.outlets.free) == (0, REGION)
    assert broker.boards.outlets.reservations == {}


def test_a_reservation_ends_with_its_connection_and_with_what_moves() -> None:
    """Rule 9."""
    broker = LoneBroker(others={"001": 1}, budget=4 * REGION)
    broker.up(1, 2)
    broker.say(1, Offer(7, 0, cell("001"), 2 * REGION))
    broker.say(2, Offer(7, 0, cell("001"), 2 * REGION))

    broker.say(1, Moving(7, REGION))
    broker.down(2)
    smaller = broker.boards.outlets.reserved
    broker.say(1, Moving(7, 0))

    assert (smaller, broker.boards.outlets.reserved) == (REGION, 0)
    assert broker.boards.outlets.reservations == {}


def test_a_delegation_offers_then_redirects_those_who_fit() -> None:
    """Rule 11: at least two receivers per decision."""
    broker = LoneBroker(budget=3 * REGION)
    broker.up(5)
    for peer in (ANNA, BEN, CARL):
        broker.want(peer, "000")

    (offer,) = sent(broker.feed(Advised(0, cell("000"), PeerId(5))), Offer, 5)
    effects = broker.say(5, Answer(offer.number, 2 * REGION))

    assert offer.load == 3 * REGION
    assert sent(effects, Moving) == [Moving(offer.number, 2 * REGION)]
    assert [(r.items, r.to) for r in sent(effects, Redirect)] == [(((cell("000"), cell("000")),), 5)] * 2


def test_a_delegation_that_would_move_only_one_is_not_made() -> None:
    """Rule 11: otherwise they play ping-pong."""
    broker = LoneBroker(budget=3 * REGION)
    broker.up(5)
    for peer in (ANNA, BEN, CARL):
        broker.want(peer, "000")

    (offer,) = sent(broker.feed(Advised(0, cell("000"), PeerId(5))), Offer, 5)
    effects = broker.say(5, Answer(offer.number, 2 * REGION - 1))

    assert sent(effects, Redirect) == []
    assert sent(effects, Moving) == [Moving(offer.number, 0)]


def full_and_about_to_cut(part: int) -> LoneBroker:
    """Anna and Ben have all that there is; whoever comes next makes it offer a part of their cell to broker 5."""
    policy = Once(Proposal(0, part, PeerId(5), cuts=True))
    broker = LoneBroker(budget=2 * REGION, others={"001": 5}, policy=policy)
    broker.up(5)
    for peer in (ANNA, BEN):
        broker.want(peer, "000")
    return broker


def test_a_delegation_of_a_part_cuts_the_entry_where_the_receiver_cuts_its_piece() -> None:
    """Rules 1 and 5: the parts keep the generation and the next tick; one of them goes."""
    part = cell("0001")
    broker = full_and_about_to_cut(part)
    broker.publish(0)

    (offer,) = sent(broker.want(CARL, "0000"), Offer)
    effects = broker.say(5, Answer(offer.number, REGION))
    feeds = sent(broker.publish(1), Feed, ANNA)

    assert (offer.cell, offer.load) == (part, REGION)
    assert [(r.generation, r.items, r.to) for r in sent(effects, Redirect, ANNA)] == [
        (1, ((cell("000"), part),), 5)
    ]
    assert sorted((f.generation, f.cell, f.tick) for f in feeds) == [(1, cell("0000"), 1), (1, part, 1)]
    assert sum(e.size for e in broker.boards.outlets.entries[ANNA].values()) == REGION
    broker.leave(ANNA, "0001")
    broker.leave(BEN, "0001")
    assert [g.cells for g in sent(broker.log, Grant, CARL)] == [(cell("0000"),)], "there is room now"


def test_those_who_leave_by_the_old_name_leave_all_parts() -> None:
    """Rule 2: an entry by name, or the parts that it was cut into."""
    broker = full_and_about_to_cut(cell("0001"))
    (offer,) = sent(broker.want(CARL, "0000"), Offer)
    broker.say(5, Answer(offer.number, REGION))

    broker.leave(ANNA, "000")

    assert ANNA not in broker.boards.outlets.entries


def test_a_declined_redirect_is_not_proposed_again_soon() -> None:
    """Rule 11: back off."""
    policy = Seeing()
    broker = LoneBroker(budget=2 * REGION, others={"001": 5}, policy=policy, wait_s=2)
    broker.up(5)
    broker.want(ANNA, "000")
    broker.want(BEN, "000")

    (offer,) = sent(broker.want(CARL, "000"), Offer)
    broker.say(5, Answer(offer.number, 0))

    assert policy.declined[-1] == frozenset({(0, cell("000"), 5)})
    assert len(sent(broker.log, Offer)) == 1
    broker.wait(40)
    broker.want(DORA, "000")
    assert frozenset() in policy.declined[2:]


class Seeing(Reactive):
    """A policy that writes down what was declined, and respects it."""

    name = "seeing"
    gossips = False
    forwards = False

    def __init__(self) -> None:
        self.declined: list[frozenset[tuple[int, int, PeerId]]] = []

    def propose(self, view: View) -> Proposal | None:
        self.declined.append(view.declined)
        return None if view.declined else Proposal(0, cell("000"), PeerId(5))


def test_a_relay_hands_its_only_receiver_back_after_a_minimum_age() -> None:
    """Rule 11."""
    broker = LoneBroker(others={"001": 1}, age_min_s=10)
    broker.relays("001", provider=1, receiver=ANNA)
    broker.want(BEN, "001")

    young = broker.wait(9)
    broker.leave(BEN, "001")
    (offer,) = sent(broker.wait(1.2), Offer, 1)
    old = broker.say(1, Answer(offer.number, offer.load))

    assert sent(young, Offer) == sent(young, Redirect) == []
    assert [(r.items, r.to) for r in sent(old, Redirect, ANNA)] == [(((cell("001"), cell("001")),), 1)]


def test_every_relay_has_an_age_of_its_own() -> None:
    """Rule 11: that another one is old does not make it old."""
    broker = LoneBroker(others={"001": 1, "010": 2}, age_min_s=10)
    broker.relays("001", provider=1, receiver=ANNA)
    broker.wait(9)
    broker.relays("010", provider=2, receiver=BEN)

    first = broker.wait(9)
    later = broker.wait(12)

    assert (len(sent(first, Offer, 1)), len(sent(first, Offer, 2))) == (1, 0)
    assert len(sent(later, Offer, 2)) >= 1


def test_a_receiver_that_does_not_go_is_handed_back_less_and_less_often() -> None:
    """Rule 11: back off."""
    broker = LoneBroker(others={"001": 1}, age_min_s=10)
    broker.relays("001", provider=1, receiver=ANNA)

    counts = [len(sent(broker.wait(100), Offer)) for _ in range(3)]

    assert counts[0] > counts[-1]
    assert sum(counts) < 10


def test_an_answer_that_nobody_waits_for_gives_the_reservation_back() -> None:
    """Rule 9."""
    broker = LoneBroker()
    broker.up(5)

    assert sent(broker.say(5, Answer(3, 100)), Moving) == [Moving(3, 0)]


def test_those_who_did_not_go_count_again_after_a_while() -> None:
    """Rule 9: nothing of a delegation stays."""
    broker = LoneBroker(budget=3 * REGION, reservation_s=5)
    broker.up(5)
    broker.want(ANNA, "000")
    broker.want(BEN, "000")
    (offer,) = sent(broker.feed(Advised(0, cell("000"), PeerId(5))), Offer)
    broker.say(5, Answer(offer.number, 2 * REGION))
    leaving = broker.boards.outlets.leaving

    broker.wait(5.1)

    assert (leaving, broker.boards.outlets.leaving) == (2 * REGION, 0)
