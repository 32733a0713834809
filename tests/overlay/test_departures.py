"""Receivers that were sent to another broker: who leaves, who stays, and who hears of it (rules 4, 5 and 11).

Replication moves clients, relays move brokers, in the same way; `Departures` alone comes first.
"""

from typing import Any

from distances import Surveyor
from hands import ANNA, BEN, REGION, LoneBroker, cell, points, sent
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.declined import DECLINED_S
from sensorgrid.overlay.departures import Departures
from sensorgrid.overlay.events import Effect, Woke
from sensorgrid.overlay.mechanisms.relaying import Relaying
from sensorgrid.overlay.mechanisms.streams import Streams
from sensorgrid.overlay.messages import Feed, Grant, Leave, Redirect, Want
from sensorgrid.overlay.outlets import Entry
from sensorgrid.overlay.policies.relays import Relays

WHOLE, LOW, HIGH = "000", "0000", "0001"


class Sender(LoneBroker):
    """A broker that a test sends receivers off from, and what it heard of those who stayed."""

    def __init__(self, *receivers: int, **more: Any) -> None:
        super().__init__(**more)
        self.up(5, 6)
        for receiver in receivers:
            self.want(receiver, WHOLE)
        self.failed: list[str] = []
        self.departures: Departures[str] = Departures(
            self.kernel, self.mechanism(Streams).service, lambda why, _: self.failed.append(why)
        )

    def entry(self, peer: int, digits: str = WHOLE) -> Entry:
        """What a receiver has."""
        found: Entry = self.boards.outlets.entries[peer][1, cell(digits)]
        return found

    def send(self, *chosen: tuple[int, str], to: int = 5, why: str = "because") -> list[Effect]:
        """Parts of receivers' streams go elsewhere."""
        self.departures.send([(self.entry(peer), cell(part)) for peer, part in chosen], PeerId(to), why)
        return self.feed(Woke())  # the next event carries it out

    def pass_(self, seconds: float) -> None:
        """Time passes, for those on their way too."""
        self.wait(seconds)
        self.kernel.now = self.now
        self.departures.woke()


# -- alone


def test_receivers_are_redirected_and_fed_until_they_leave() -> None:
    """Rule 4: make before break."""
    broker = Sender(ANNA, BEN)

    effects = broker.send((ANNA, WHOLE), (BEN, WHOLE))
    broker.publish(0)
    broker.leave(ANNA, WHOLE)
    broker.publish(1)

    assert sent(effects, Redirect, ANNA) == [Redirect(1, ((cell(WHOLE), cell(WHOLE)),), PeerId(5))]
    assert sent(effects, Redirect, BEN) == [Redirect(1, ((cell(WHOLE), cell(WHOLE)),), PeerId(5))]
    assert [f.tick for f in sent(broker.log, Feed, ANNA)] == [0]
    assert [f.tick for f in sent(broker.log, Feed, BEN)] == [0, 1]


def test_while_they_are_on_their_way_they_count_as_leaving() -> None:
    broker = Sender(ANNA, BEN)

    broker.send((ANNA, WHOLE))

    assert broker.boards.outlets.leaving == REGION
    assert (broker.entry(ANNA).going, broker.entry(BEN).going) == (5, None)
    assert not broker.entry(ANNA).sits


def test_who_does_not_leave_in_time_stays_and_whoever_sent_it_is_told_once() -> None:
    broker = Sender(ANNA, BEN, reservation_s=5)
    broker.send((ANNA, WHOLE), (BEN, WHOLE))
    broker.leave(BEN, WHOLE)

    broker.pass_(4.9)
    early = list(broker.failed)
    due = broker.departures.next_wakeup()
    broker.pass_(0.1)
    broker.pass_(100)

    assert (early, due) == ([], 5.0)
    assert broker.failed == ["because"]
    assert broker.entry(ANNA).sits
    assert broker.boards.outlets.leaving == 0
    assert broker.departures.next_wakeup() is None


def test_if_all_leave_nobody_is_told() -> None:
    broker = Sender(ANNA, BEN, reservation_s=5)
    broker.send((ANNA, WHOLE), (BEN, WHOLE))
    broker.leave(ANNA, WHOLE)
    broker.down(BEN)

    broker.pass_(6)

    assert broker.failed == []


def test_groups_end_in_the_order_in_which_they_were_sent() -> None:
    broker = Sender(ANNA, BEN, reservation_s=5)
    broker.send((ANNA, WHOLE), why="first")
    broker.pass_(2)
    broker.send((BEN, WHOLE), to=6, why="second")

    broker.pass_(3)
    one = list(broker.failed)
    broker.pass_(2)

    assert (one, broker.failed) == (["first"], ["first", "second"])


def test_if_the_target_goes_down_they_stay_at_once() -> None:
    broker = Sender(ANNA, BEN)
    broker.send((ANNA, WHOLE), to=5, why="five")
    broker.send((BEN, WHOLE), to=6, why="six")

    broker.departures.peer_down(PeerId(5))

    assert broker.failed == ["five"]
    assert broker.entry(ANNA).sits
    assert broker.entry(BEN).going == 6


def test_a_target_that_goes_down_twice_is_told_of_once() -> None:
    broker = Sender(ANNA, reservation_s=5)
    broker.send((ANNA, WHOLE))

    broker.departures.peer_down(PeerId(5))
    broker.departures.peer_down(PeerId(5))
    broker.pass_(6)

    assert broker.failed == ["because"]


def test_who_was_sent_elsewhere_meanwhile_is_not_held_back_by_the_first_time() -> None:
    """Its first target went down; when its time would have been up, the receiver is on its way to the second."""
    broker = Sender(ANNA, reservation_s=5)
    broker.send((ANNA, WHOLE), to=5, why="first")
    broker.departures.peer_down(PeerId(5))
    broker.pass_(3)
    broker.send((ANNA, WHOLE), to=6, why="second")

    broker.pass_(3)
    halfway = (broker.entry(ANNA).going, list(broker.failed))
    broker.pass_(3)

    assert halfway == (6, ["first"])
    assert broker.failed == ["first", "second"]


def test_a_part_is_cut_out_and_only_it_goes() -> None:
    broker = Sender(ANNA, BEN)

    effects = broker.send((ANNA, LOW), (BEN, WHOLE))

    assert sent(effects, Redirect, ANNA) == [Redirect(1, ((cell(WHOLE), cell(LOW)),), PeerId(5))]
    assert (broker.entry(ANNA, LOW).going, broker.entry(ANNA, HIGH).going) == (5, None)
    assert broker.boards.outlets.leaving == REGION + points(cell(LOW))


def test_the_rest_of_a_cut_stream_goes_on_under_its_own_name() -> None:
    broker = Sender(ANNA)
    broker.publish(0)
    broker.send((ANNA, LOW))

    broker.publish(1)
    broker.leave(ANNA, LOW)
    broker.publish(2)

    told = [(bin(f.cell)[3:], f.tick) for f in sent(broker.log, Feed, ANNA)]
    assert sorted(told) == sorted([(WHOLE, 0), (LOW, 1), (HIGH, 1), (HIGH, 2)])


def test_a_part_that_stays_is_a_stream_like_any_other() -> None:
    broker = Sender(ANNA, reservation_s=5)
    broker.send((ANNA, LOW))

    broker.pass_(6)

    assert broker.failed == ["because"]
    assert broker.entry(ANNA, LOW).sits
    assert broker.boards.outlets.leaving == 0


# -- relays: brokers that are sent over another one

NEAR = {3: 0.010, 1: 0.020, 2: 0.021}
VIEWS = {3: {1: 0.010, 2: 0.011}}
"""3 lies on the way to 1 and 2"""


def feeder(delta: int = 0, strategy: str = "CTP", **more: Any) -> Surveyor:
    """Broker 0 owns 000, knows its distances, and would send 1 and 2 over 3."""
    relays = Relays(strategy, k=1, delta=delta, review_s=1.0, measure_s=30.0)
    broker = Surveyor(NEAR, relays, VIEWS, **more)
    broker.wait(0.5)
    assert broker.boards.distances.near == (3,)
    return broker


def redirects(effects: list[Effect]) -> dict[int, tuple[str, str, int]]:
    """Who is sent where, with which part."""
    found = {}
    for peer in (1, 2, 3, 4, ANNA):
        for message in sent(effects, Redirect, peer):
            ((whole, part),) = message.items
            found[peer] = (bin(whole)[3:], bin(part)[3:], int(message.to))
    return found


def test_streams_of_the_same_cell_over_the_same_relay_become_one() -> None:
    broker = feeder()
    broker.want(1, WHOLE)
    broker.want(2, WHOLE)

    early = broker.wait(0.9)
    effects = broker.wait(0.2)

    assert redirects(early) == {}
    assert redirects(effects) == {1: (WHOLE, WHOLE, 3), 2: (WHOLE, WHOLE, 3)}
    assert broker.kernel.counters.delegations == 1


def test_a_stream_that_meets_nobody_is_not_relayed() -> None:
    broker = feeder()
    broker.want(1, LOW)
    broker.want(2, HIGH)

    assert redirects(broker.wait(5)) == {}


def test_a_larger_stream_is_split_for_a_smaller_one() -> None:
    """Algorithm 2."""
    broker = feeder()
    broker.want(1, WHOLE)
    broker.want(2, LOW)

    assert redirects(broker.wait(2)) == {1: (WHOLE, LOW, 3), 2: (LOW, LOW, 3)}


def test_delta_keeps_it_whole() -> None:
    broker = feeder(delta=points(cell(LOW)))
    broker.want(1, WHOLE)
    broker.want(2, LOW)

    assert redirects(broker.wait(2)) == {}


def test_who_follows_to_a_relay_that_has_the_data_goes_alone() -> None:
    broker = feeder()
    broker.want(3, WHOLE)
    broker.want(2, LOW)

    assert redirects(broker.wait(2)) == {2: (LOW, LOW, 3)}


def test_who_follows_takes_nothing_more_so_delta_is_no_matter() -> None:
    broker = feeder(delta=1000)
    broker.want(3, WHOLE)
    broker.want(2, LOW)

    assert redirects(broker.wait(2)) == {2: (LOW, LOW, 3)}


def test_clients_and_the_relay_itself_are_not_sent() -> None:
    broker = feeder()
    broker.want(3, WHOLE)
    broker.want(ANNA, WHOLE)

    assert redirects(broker.wait(5)) == {}


def test_a_broker_on_the_streams_own_path_is_no_candidate() -> None:
    """ "Brokers on the stored path" are excluded to prevent circular relaying."""
    broker = feeder(others={"001": 4})
    (want,) = sent(broker.want(1, "001", via=3), Want, 3)
    broker.say(3, Grant(want.generation, (cell("001"),), (PeerId(4), PeerId(3))))
    broker.want(2, "001")

    assert redirects(broker.wait(5)) == {}


def test_who_did_not_go_is_not_sent_to_the_same_relay_soon_but_later() -> None:
    """Rule 11."""
    broker = feeder(reservation_s=5)
    broker.want(1, WHOLE)
    broker.want(2, WHOLE)
    broker.wait(2)

    broker.wait(5)
    soon = broker.leave(2, WHOLE) + broker.want(2, WHOLE, generation=2) + broker.wait(2)
    later = broker.wait(DECLINED_S)  # though nothing else happens

    assert redirects(soon) == {}
    assert redirects(later) == {1: (WHOLE, WHOLE, 3), 2: (WHOLE, WHOLE, 3)}


def test_if_the_relay_goes_down_its_receivers_stay_and_go_on() -> None:
    broker = feeder()
    broker.want(1, WHOLE)
    broker.want(2, WHOLE)
    broker.wait(2)

    broker.down(3)
    broker.publish(0)

    (relaying,) = [m for m in broker.actor.mechanisms if isinstance(m, Relaying)]
    assert broker.boards.outlets.leaving == 0
    assert {(subject[2], relay) for subject, relay in relaying._declined} == {(1, 3), (2, 3)}
    assert len(sent(broker.log, Feed, 1)) == len(sent(broker.log, Feed, 2)) == 1


def test_only_who_stayed_has_declined() -> None:
    broker = feeder(reservation_s=5)
    broker.want(1, WHOLE)
    broker.want(2, WHOLE)
    broker.wait(2)
    broker.want(3, WHOLE)

    broker.say(1, Leave(1, (cell(WHOLE),)))
    broker.wait(5)

    (relaying,) = [m for m in broker.actor.mechanisms if isinstance(m, Relaying)]
    assert list(relaying._declined) == [((0, cell(WHOLE), 2), 3)]


def test_who_has_left_is_forgotten() -> None:
    broker = feeder(reservation_s=5)
    broker.want(1, WHOLE)
    broker.want(2, WHOLE)
    broker.wait(2)
    broker.want(3, WHOLE)
    for peer in (1, 2):
        broker.say(peer, Leave(1, (cell(WHOLE),)))

    broker.wait(10)

    (relaying,) = [m for m in broker.actor.mechanisms if isinstance(m, Relaying)]
    assert not relaying._declined
    assert broker.boards.outlets.leaving == 0


def test_a_network_that_has_changed_is_looked_at_again() -> None:
    """3 was too far; then it lies on the way."""
    broker = Surveyor(NEAR, Relays("CTP", k=1, review_s=1.0, measure_s=10.0), {3: {1: 0.1, 2: 0.1}})
    broker.wait(0.5)
    broker.want(1, WHOLE)
    broker.want(2, WHOLE)
    before = broker.wait(9)
    broker.views[3] = VIEWS[3]

    after = broker.wait(12)

    assert redirects(before) == {}
    assert redirects(after) == {1: (WHOLE, WHOLE, 3), 2: (WHOLE, WHOLE, 3)}
