"""Trees of cells: how an owner gets receivers to where they hang best (ours). An owner alone, or a receiver alone."""

from typing import Any

import pytest

from distances import Surveyor
from hands import ANNA, LoneBroker, cell, sent
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.declined import DECLINED_S
from sensorgrid.overlay.events import Effect, Routed
from sensorgrid.overlay.mechanisms.trees import PERIODS, Trees
from sensorgrid.overlay.messages import Find, Found, Grant, Joined, Leave, Redirect, Shifted, Steer, Want
from sensorgrid.overlay.policies.relays import Relays

# -- an owner

STAR = {(0, 1): 4, (0, 2): 4, (0, 3): 2, (1, 2): 4, (1, 3): 2, (2, 3): 2}
"""links of routers: 3 lies in the middle of 0, 1 and 2"""
CELL = cell("000")


def both_ways(links: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """The same from both ends."""
    return links | {(b, a): n for (a, b), n in links.items()}


def owner(links: dict[tuple[int, int], int] = STAR, **more: Any) -> Surveyor:
    """Broker 0 owns 000 and knows how far all are from each other, by links or by delays; a link takes 1 ms."""
    known = both_ways(links)
    views = {
        a: {b: 0.001 * n for (one, b), n in known.items() if one == a} for a in {a for a, _ in known} if a
    }
    far = {b: 0.001 * n for (a, b), n in known.items() if a == 0}
    changes = {"hysteresis": 0.0, "measure_s": 30.0, "review_s": 1.0, "optimise_s": 60.0}
    relays = {key: more.pop(key, value) for key, value in (changes | {"added_s": None}).items()}
    told = known if more.pop("hops", True) else None
    broker = Surveyor(far, Relays("TREE", **relays), views, told, **more)
    broker.wait(0.5)
    return broker


def trees(broker: LoneBroker) -> Trees:
    """The mechanism."""
    (found,) = [m for m in broker.actor.mechanisms if isinstance(m, Trees)]
    return found


def ask(broker: LoneBroker, peer: int, code: int = CELL) -> tuple[int | None, list[Effect]]:
    """A broker asks who feeds a cell; the answer, and all effects."""
    effects = broker.say(peer, Find(PeerId(peer), 0, 0, (code,), False, (PeerId(peer),)))
    (found,) = sent(effects, Found, peer)
    ((_, provider),) = found.items
    return provider, effects


def join(broker: LoneBroker, peer: int, provider: int | None, code: int = CELL) -> list[Effect]:
    """A broker tells from whom it takes a cell."""
    return broker.say(peer, Joined(((0, code, None if provider is None else PeerId(provider)),)))


def shape_of(broker: LoneBroker, code: int = CELL) -> dict[int, int]:
    """Whom the owner has told to hang on whom."""
    tree = trees(broker).trees.get((0, code))
    return {} if tree is None else {peer: member.parent for peer, member in tree.members.items()}


def test_the_first_takes_a_cell_from_its_owner() -> None:
    broker = owner()

    provider, effects = ask(broker, 1)

    assert provider == 0
    assert sent(effects, Steer) == []
    assert shape_of(broker) == {1: 0}


def test_who_asks_later_is_sent_to_the_nearest_in_the_tree() -> None:
    broker = owner({(0, 1): 3, (0, 2): 4, (1, 2): 1})
    ask(broker, 1)
    join(broker, 1, 0)

    provider, effects = ask(broker, 2)

    assert provider == 1
    assert sent(effects, Steer) == [], "he hears it as an answer"
    assert shape_of(broker) == {1: 0, 2: 1}


def test_a_broker_in_the_middle_is_put_on_the_edge_and_the_child_is_steered() -> None:
    broker = owner()
    ask(broker, 1)
    join(broker, 1, 0)

    provider, effects = ask(broker, 2)

    assert provider == 3
    assert sent(effects, Steer, 1) == [Steer(((0, CELL, PeerId(3), PeerId(0)),))]
    assert len(sent(effects, Steer)) == 1
    assert shape_of(broker) == {1: 3, 2: 3, 3: 0}


def test_the_one_in_the_middle_is_fed_by_who_stood_above() -> None:
    """It asks as soon as the others ask it, and has its place already."""
    broker = owner()
    ask(broker, 1)
    join(broker, 1, 0)
    ask(broker, 2)

    provider, effects = ask(broker, 3)

    assert provider == 0
    assert sent(effects, Steer) == []
    assert shape_of(broker) == {1: 3, 2: 3, 3: 0}


def test_an_edge_whose_child_is_on_its_way_is_not_cut() -> None:
    """One that has not said that it went may not be there."""
    broker = owner()
    ask(broker, 1)

    provider, _ = ask(broker, 2)

    assert provider == 0


def test_only_the_owner_is_named_if_only_the_owner_will_do() -> None:
    broker = owner({(0, 1): 3, (0, 2): 4, (1, 2): 1})
    join(broker, 1, 0)

    effects = broker.say(2, Find(PeerId(2), 0, 0, (CELL,), True, (PeerId(2),)))

    assert [f.items for f in sent(effects, Found, 2)] == [((CELL, 0),)]
    assert 2 not in shape_of(broker)


def test_who_is_not_measured_takes_it_from_the_owner() -> None:
    broker = owner()
    broker.up(8)

    provider, _ = ask(broker, 8)

    assert provider == 0
    assert shape_of(broker) == {}


def test_members_of_a_larger_cells_tree_feed_its_parts() -> None:
    broker = owner({(0, 1): 3, (0, 2): 4, (1, 2): 1})
    join(broker, 1, 0)

    provider, _ = ask(broker, 2, cell("0001"))

    assert provider == 1


def test_who_says_that_it_went_is_there() -> None:
    broker = owner()
    ask(broker, 1)
    before = broker.actor.next_wakeup()

    join(broker, 1, 0)
    broker.wait(20)

    assert before is not None
    assert shape_of(broker) == {1: 0}
    assert trees(broker)._pending == {}


def test_who_never_says_that_it_came_is_forgotten() -> None:
    broker = owner(reservation_s=5)
    ask(broker, 1)

    broker.wait(7)

    assert trees(broker).trees == {}
    assert (trees(broker)._members, trees(broker)._pending) == (0, {})


def test_who_did_not_go_where_it_was_steered_is_where_it_said_and_is_not_steered_there_again() -> None:
    """Rule 11: it backs off after a declined redirect."""
    broker = owner(reservation_s=5, optimise_s=10)
    join(broker, 1, 0)
    join(broker, 2, 0)
    steered = broker.wait(2)
    told = shape_of(broker)

    effects = broker.wait(20)
    stayed = shape_of(broker)
    join(broker, 2, 1)
    join(broker, 2, 0)
    effects += broker.wait(4)

    assert [s.items[0][2] for s in sent(steered, Steer)] == [3, 3]
    assert told == {1: 3, 2: 3, 3: 0}
    assert stayed == {1: 0, 2: 0}
    assert sent(effects, Steer) == []


def test_after_a_while_it_is_steered_there_again() -> None:
    """Though nothing else happens meanwhile."""
    broker = owner(reservation_s=5, optimise_s=10)
    join(broker, 1, 0)
    join(broker, 2, 0)
    first = broker.wait(10)

    later = []
    for _ in range(4):
        for peer in (1, 2):  # still there
            join(broker, peer, 0)
        later.append(broker.wait(DECLINED_S / 2))

    assert {s.items[0][2] for s in sent(first, Steer)} == {3}
    assert sent(later[0], Steer) == []
    assert {s.items[0][2] for s in sent(later[2] + later[3], Steer)} == {3}


def test_who_takes_it_from_somebody_unknown_is_steered_to_somebody_known() -> None:
    """The owner has lost its measurement of the provider."""
    links = {(0, 1): 1, (0, 2): 2, (1, 2): 1, (0, 4): 9, (1, 4): 9, (2, 4): 9}
    broker = owner(links, optimise_s=20.0)
    join(broker, 1, 0)
    join(broker, 2, 4)
    del broker.far[4]
    broker.period()
    broker.down(4)
    broker.down(4)
    effects = []

    for _ in range(3):
        join(broker, 1, 0)
        effects += join(broker, 2, 4) + broker.wait(20)

    assert PeerId(4) not in broker.boards.distances.delays
    assert sent(effects, Steer, 2)[0].items == ((0, CELL, PeerId(1), PeerId(1)),)


def test_of_two_hop_counts_the_newer_counts() -> None:
    broker = owner({(0, 1): 1, (0, 2): 2, (1, 2): 1}, optimise_s=600.0)
    join(broker, 1, 0)
    join(broker, 2, 1)
    broker.wait(40)

    broker.say(2, Shifted(((PeerId(1), 0.009, 9),)))
    effects = broker.wait(2)

    assert sent(effects, Steer, 2)[0].items == ((0, CELL, PeerId(0), PeerId(0)),)


def test_cells_that_cannot_be_and_clients_as_providers_are_not_remembered() -> None:
    broker = owner()

    broker.say(1, Joined(tuple((0, (CELL << 40) + n, PeerId(0)) for n in range(1000))))
    broker.say(1, Joined(((0, CELL, ANNA),)))

    assert trees(broker).trees == {}


def test_who_went_elsewhere_is_where_it_says() -> None:
    broker = owner(reservation_s=5)
    ask(broker, 1)

    join(broker, 1, 2)
    broker.wait(7)

    assert shape_of(broker) == {1: 2}


def test_those_who_leave_leave_nothing() -> None:
    """Rule 9."""
    broker = owner()
    for peer in (1, 2, 3):
        ask(broker, peer)
        ask(broker, peer, cell("0001"))
        join(broker, peer, 0)

    for peer in (1, 2, 3):
        join(broker, peer, None)
        join(broker, peer, None, cell("0001"))

    mechanism = trees(broker)
    assert mechanism.trees == {}
    assert (mechanism._members, mechanism._pending, mechanism._fresh) == (0, {}, {})


def test_a_member_whose_provider_is_gone_is_counted_once_whatever_comes() -> None:
    """Its provider is measured no longer, so it has no place in the tree; it is a member all the same."""
    broker = owner(links=STAR | {(0, 4): 1, (1, 4): 9, (2, 4): 9, (3, 4): 9})
    join(broker, 3, 4)
    ask(broker, 1)
    join(broker, 1, 0)
    del broker.far[4]
    broker.period()
    broker.down(4)

    provider, _ = ask(broker, 2)

    members = trees(broker).trees[0, CELL].members
    assert provider in (0, 1)
    assert members[PeerId(3)].takes_from == 4
    assert trees(broker)._members == len(members) == 3


def test_members_that_are_not_heard_of_are_forgotten() -> None:
    broker = owner(measure_s=10.0)
    join(broker, 1, 0)
    join(broker, 2, 0, cell("0001"))

    for _ in range(4):
        broker.wait(10)
        join(broker, 1, 0)

    assert shape_of(broker) == {1: 0}
    assert shape_of(broker, cell("0001")) == {}
    assert trees(broker)._members == 1
    assert PERIODS * 10 < 40


def test_trees_of_a_region_that_another_owns_now_are_forgotten() -> None:
    broker = owner(measure_s=10.0)
    join(broker, 1, 0)

    broker.assign({"000": 1}, epoch=2)
    broker.wait(25)

    assert (trees(broker).trees, trees(broker)._members) == ({}, 0)


def test_what_is_not_of_this_owner_is_not_remembered() -> None:
    broker = owner(others={"001": 1})

    join(broker, 1, 2, cell("001"))
    broker.say(1, Joined(((7, CELL, PeerId(0)), (-1, CELL, PeerId(0)), (0, 1, PeerId(0)))))

    assert (trees(broker).trees, trees(broker)._members) == ({}, 0)


def test_clients_are_in_no_tree() -> None:
    broker = owner()
    broker.up(ANNA)

    effects = broker.say(ANNA, Joined(((0, CELL, PeerId(0)),)))
    effects += broker.say(ANNA, Steer(((0, CELL, PeerId(1), PeerId(0)),)))

    assert (effects, trees(broker).trees) == ([], {})


def test_who_came_by_itself_is_steered_soon_to_where_it_hangs_best() -> None:
    broker = owner({(0, 1): 3, (0, 2): 4, (1, 2): 1}, review_s=1.0)
    join(broker, 1, 0)
    broker.wait(2)
    join(broker, 2, 0)

    early = broker.wait(0.9)
    effects = broker.wait(0.2)

    assert sent(early, Steer) == []
    assert sent(effects, Steer) == sent(effects, Steer, 2) == [Steer(((0, CELL, PeerId(1), PeerId(1)),))]


def test_a_tree_that_has_changed_is_improved_as_a_whole_when_its_time_has_come() -> None:
    """1 hangs on 2 by its own choice, which no join reconsiders."""
    broker = owner({(0, 1): 1, (0, 2): 4, (1, 2): 4}, optimise_s=20.0, measure_s=100.0)
    join(broker, 2, 0)
    join(broker, 1, 2)

    before = broker.wait(19)
    after = broker.wait(5)

    assert sent(before, Steer) == []
    assert [s.items for s in sent(after, Steer, 1)] == [((0, CELL, PeerId(0), PeerId(0)),)]


def test_a_tree_that_changes_when_all_is_quiet_is_improved_in_its_time_as_well() -> None:
    """Nobody joins any more, and nothing else makes the owner look."""
    broker = owner({(0, 1): 1, (0, 2): 4, (1, 2): 4}, optimise_s=20.0, measure_s=100.0)
    join(broker, 2, 0)
    broker.wait(60)

    join(broker, 1, 2)
    effects = broker.wait(25)

    assert [s.items for s in sent(effects, Steer, 1)] == [((0, CELL, PeerId(0), PeerId(0)),)]


def test_a_tree_that_lost_a_member_when_all_is_quiet_is_looked_at_in_its_time_as_well() -> None:
    broker = owner(optimise_s=20.0, measure_s=100.0)
    join(broker, 1, 0)
    join(broker, 2, 1)
    broker.wait(60)

    join(broker, 1, None)
    broker.wait(25)

    assert trees(broker).trees[0, CELL].changed is False


def test_a_tree_is_looked_at_soon_when_distances_have_changed() -> None:
    """Not after `optimise_s`, nor after another measurement period."""
    broker = owner({(0, 1): 1, (0, 2): 2, (1, 2): 1}, optimise_s=600.0, measure_s=30.0, hops=False)
    join(broker, 1, 0)
    join(broker, 2, 1)
    broker.wait(40)

    broker.say(2, Shifted(((PeerId(1), 9.0, None),)))
    broker.say(1, Shifted(((PeerId(2), 9.0, None),)))
    effects = broker.wait(1.1)

    assert [s.items for s in sent(effects, Steer, 2)] == [((0, CELL, PeerId(0), PeerId(0)),)]


@pytest.mark.parametrize(("says", "of"), [(2, 1), (1, 2)])
def test_who_is_fed_over_a_way_that_becomes_longer_is_steered_soon_whenever_the_tree_was_looked_at(
    says: int, of: int
) -> None:
    links = {(0, 1): 1, (0, 2): 2, (1, 2): 1, (0, 3): 3, (1, 3): 3, (2, 3): 3}
    broker = owner(links, optimise_s=600.0, measure_s=30.0, hops=False)
    join(broker, 1, 0)
    join(broker, 2, 1)
    broker.wait(40)
    broker.say(2, Shifted(((PeerId(3), 9.0, None),)))
    broker.wait(2)
    looked = trees(broker).trees[0, CELL].optimised

    broker.say(says, Shifted(((PeerId(of), 9.0, None),)))
    effects = broker.wait(1.1)

    assert looked > 40
    assert trees(broker).trees[0, CELL].optimised == looked
    assert [s.items for s in sent(effects, Steer, 2)] == [((0, CELL, PeerId(0), PeerId(0)),)]


def test_a_tree_is_looked_at_once_in_a_measurement_period_however_often_distances_change() -> None:
    links = {(0, 1): 1, (0, 2): 2, (1, 2): 1, (0, 3): 3, (1, 3): 3, (2, 3): 3}
    broker = owner(links, optimise_s=600.0, measure_s=30.0, hops=False)
    join(broker, 1, 0)
    join(broker, 2, 1)
    broker.wait(40)
    looked = []

    for n in range(60):
        join(broker, 1, 0)
        broker.say(2, Shifted(((PeerId(3), 9.0 if n % 2 else 1.0, None),)))
        broker.wait(1.0)
        looked.append(trees(broker).trees[0, CELL].optimised)

    assert 2 <= len(set(looked)) <= 3


def test_distances_that_go_on_changing_do_not_put_off_the_look() -> None:
    broker = owner({(0, 1): 1, (0, 2): 2, (1, 2): 1}, optimise_s=600.0, measure_s=30.0, hops=False)
    join(broker, 1, 0)
    join(broker, 2, 1)
    broker.wait(40)
    effects = []

    for n in range(6):
        broker.say(2, Shifted(((PeerId(1), 9.0 * 2**n, None),)))
        effects += broker.wait(0.4)

    assert len(sent(effects, Steer, 2)) == 1


def test_after_that_look_a_tree_has_its_time_again() -> None:
    broker = owner({(0, 1): 1, (0, 2): 2, (1, 2): 1}, optimise_s=600.0, measure_s=30.0, hops=False)
    join(broker, 2, 0)
    broker.wait(40)
    broker.say(2, Shifted(((PeerId(0), 9.0, None),)))
    broker.wait(2)
    looked = trees(broker).trees[0, CELL].optimised

    join(broker, 1, 2)
    broker.views[2][0] = 9.0
    broker.wait(40)

    assert looked > 40
    assert trees(broker).trees[0, CELL].optimised == looked


# -- a receiver


def receiver(**more: Any) -> tuple[LoneBroker, int]:
    """Broker 0 relays 001 of broker 1 to a client; and the generation of its stream."""
    broker = LoneBroker(others={"001": 1}, relays=Relays("TREE", measure_s=30.0), brokers=(1, 2, 3), **more)
    broker.up(1, 2, 3)
    return broker, broker.relays("001", provider=1, receiver=ANNA)


def test_an_owner_is_told_from_whom_its_cell_is_taken() -> None:
    broker, generation = receiver()

    moved = broker.say(1, Grant(generation, (cell("001"),), (PeerId(2), PeerId(1))))

    assert sent(broker.log, Joined, 1)[0] == Joined(((0, cell("001"), PeerId(1)),))
    assert sent(moved, Joined, 1) == [Joined(((0, cell("001"), None),))]
    assert sent(moved, Joined, 2) == [Joined(((0, cell("001"), PeerId(1)),))]


def test_an_owner_is_told_again_every_period_and_when_it_ends() -> None:
    broker, _ = receiver()

    again = broker.wait(31)
    ended = broker.leave(ANNA, "001")

    assert sent(again, Joined, 1) == [Joined(((0, cell("001"), PeerId(1)),))]
    assert sent(ended, Joined, 1) == [Joined(((0, cell("001"), None),))]
    assert trees(broker).told == {}
    assert sent(broker.wait(100), Joined) == []


def test_while_a_stream_has_no_way_nothing_is_told() -> None:
    broker, generation = receiver()

    effects = broker.say(1, Grant(generation, (cell("001"),), None))

    assert sent(effects, Joined) == []


def test_a_path_without_a_broker_is_no_path() -> None:
    """Whatever a provider says."""
    broker, generation = receiver()

    broker.say(1, Grant(generation, (cell("001"),), ()))

    assert broker.boards.outlets.supplies[0][cell("001")].path == (1, 0)


def test_an_owner_hears_of_a_changed_delay_at_once() -> None:
    broker = Surveyor({1: 0.010, 2: 0.020}, Relays("TREE", measure_s=30.0), others={"001": 1})
    broker.wait(1)
    broker.relays("001", provider=1, receiver=ANNA)
    broker.far[2] = 0.080

    effects = broker.period() + broker.wait(2)
    later = broker.period() + broker.wait(2)

    assert [(m.items[0][0], m.items[0][2]) for m in sent(effects, Shifted)] == [(2, None)]
    assert sent(effects, Shifted, 1)[0].items[0][1] == pytest.approx(0.080)
    assert sent(later, Shifted) == []


def test_an_owner_hears_of_another_route() -> None:
    links = {(0, 1): 3, (0, 2): 4}
    broker = Surveyor({1: 0.010, 2: 0.020}, Relays("TREE", measure_s=30.0), links=links, others={"001": 1})
    broker.wait(1)
    broker.relays("001", provider=1, receiver=ANNA)

    effects = broker.feed(Routed(PeerId(1), 30)) + broker.feed(Routed(PeerId(2), 31)) + broker.wait(2)

    (shifted,) = sent(effects, Shifted)
    assert sent(effects, Shifted, 1) == [shifted]
    assert [(peer, hops) for peer, _, hops in shifted.items] == [(1, 30), (2, 31)], "together"


def test_an_owner_hears_of_who_does_not_answer() -> None:
    broker = Surveyor({1: 0.010, 2: 0.020}, Relays("TREE", measure_s=30.0), others={"001": 1})
    broker.wait(1)
    broker.relays("001", provider=1, receiver=ANNA)
    del broker.far[2]

    effects = broker.period() + broker.period() + broker.wait(2)

    assert sent(effects, Shifted, 1) == [Shifted(((PeerId(2), None, None),))]


def steer(broker: LoneBroker, peer: int, to: int, via: int = 1, digits: str = "001") -> list[Effect]:
    """A broker says where to take a cell from."""
    return broker.say(peer, Steer(((0, cell(digits), PeerId(to), PeerId(via)),)))


def test_the_owners_word_is_obeyed_make_before_break() -> None:
    """Rule 4."""
    broker, generation = receiver()

    asked = steer(broker, 1, to=2)
    (want,) = sent(asked, Want, 2)
    switched = broker.say(2, Grant(want.generation, (cell("001"),), (PeerId(1), PeerId(2))))

    assert (want.items, want.via) == (((cell("001"), 64, 0),), 1)
    assert sent(asked, Leave) == []
    assert sent(switched, Leave, 1) == [Leave(generation, (cell("001"),))]
    assert sent(switched, Joined, 1) == [Joined(((0, cell("001"), PeerId(2)),))]


def test_only_the_owners_word_is() -> None:
    broker, _ = receiver()

    effects = [*steer(broker, 2, to=3), *steer(broker, 3, to=3, via=3)]

    assert sent(effects, Want) == []


def test_a_provider_that_is_not_the_owner_does_not_steer() -> None:
    broker, generation = receiver()
    broker.say(1, Grant(generation, (cell("001"),), (PeerId(2), PeerId(1))))

    provider = steer(broker, 1, to=3)
    own = steer(broker, 2, to=3)

    assert sent(provider, Want) == []
    assert len(sent(own, Want, 3)) == 1


def test_while_another_provider_is_tried_it_is_not_obeyed() -> None:
    """Rule 5: with no switch pending."""
    broker, generation = receiver()
    broker.say(1, Redirect(generation, ((cell("001"), cell("001")),), PeerId(2)))

    effects = steer(broker, 1, to=3)

    assert sent(effects, Want) == []


@pytest.mark.parametrize(
    ("to", "via", "digits"),
    [(0, 1, "001"), (1, 1, "001"), (ANNA, 1, "001"), (2, ANNA, "001"), (2, 1, "0010"), (2, 1, "000")],
)
def test_what_makes_no_sense_is_not_obeyed(to: int, via: int, digits: str) -> None:
    """To itself, to where it is, to a client, over a client; for a cell that it has not, or owns."""
    broker, _ = receiver()

    assert steer(broker, 1, to, via, digits) == []


# -- who is asked


def test_with_relays_parts_that_are_here_do_not_cut_what_is_looked_for() -> None:
    with_relays = LoneBroker(others={"001": 1}, relays=Relays("DIRECT"))
    without = LoneBroker(others={"001": 1})
    for broker in (with_relays, without):
        broker.relays("0010", provider=1, receiver=ANNA)

    assert [f.cells for f in sent(find(with_relays, 7), Find, 1)] == [(cell("001"),)]
    assert [f.cells for f in sent(find(without, 7), Find, 1)] == [(cell("0011"),)]


def find(broker: LoneBroker, peer: int) -> list[Effect]:
    """A broker looks for 001."""
    broker.up(peer)
    return broker.say(peer, Find(PeerId(peer), 0, 0, (cell("001"),), False, (PeerId(peer),)))


def test_with_relays_it_is_left_to_the_owner_to_say_who_feeds() -> None:
    with_relays = LoneBroker(others={"001": 1}, relays=Relays("DIRECT"))
    without = LoneBroker(others={"001": 1})
    for broker in (with_relays, without):
        broker.relays("001", provider=1, receiver=ANNA)

    assert sent(find(with_relays, 7), Found) == []
    assert [f.cells for f in sent(find(with_relays, 8), Find, 1)] == [(cell("001"),)]
    assert [f.items for f in sent(find(without, 7), Found, 7)] == [((cell("001"), 0),)]
