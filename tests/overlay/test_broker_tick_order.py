"""One broker alone: ticks in order, gaps by name, revisions behind them."""

from hands import ANNA, BEN, CARL, LoneBroker, cell, sent, ticks
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.messages import Feed, Find, Found, Grant, Leave, Refuse, Want

# -- in tick order (rule 6)


def test_a_tick_that_the_pipeline_left_out_is_a_gap_by_its_owner() -> None:
    """Rule 6: a gap is a block without values."""
    broker = LoneBroker()
    broker.want(ANNA, "000")

    broker.publish(0)
    effects = broker.publish(3)

    assert [(f.tick, f.until, f.slabs is None) for f in sent(effects, Feed)] == [(1, 3, True), (3, 0, False)]


def test_an_owner_names_what_it_lacks_as_one_gap() -> None:
    """Rules 6 and 7: only the owner may make a gap."""
    broker = LoneBroker()
    broker.publish(20)
    broker.publish(21)

    effects = broker.want(ANNA, "000", start=5)

    found = [(f.tick, f.until, f.slabs is None) for f in sent(effects, Feed)]
    assert found == [(5, 20, True), (20, 0, False), (21, 0, False)]


def test_an_owner_with_an_empty_lake_names_all_before_its_first_tick_as_a_gap() -> None:
    """Rule 6: whoever asked from an earlier tick on would otherwise wait for it for ever."""
    broker = LoneBroker()
    broker.want(ANNA, "000", start=3)
    broker.want(BEN, "000", start=9)
    broker.want(CARL, "000", start=0, until=4)

    effects = broker.publish(7) + broker.publish(8)

    assert [(f.tick, f.until) for f in sent(effects, Feed, ANNA)] == [(3, 7), (7, 0), (8, 0)]
    assert sent(effects, Feed, BEN) == []
    assert [(f.tick, f.until) for f in sent(effects, Feed, CARL)] == [(0, 4)]


def test_a_relay_makes_no_gap() -> None:
    """Rule 6: it waits for the tick that is missing."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA, start=2)
    broker.supply(1, "001", (0, 1, 2), generation)

    effects = broker.supply(1, "001", (4, 5), generation)

    assert effects == []
    assert ticks(sent(broker.supply(1, "001", (3,), generation), Feed, ANNA)) == [3]


def test_a_query_for_the_future_is_fed_when_its_time_comes() -> None:
    broker = LoneBroker()
    broker.want(ANNA, "000", start=2)

    for tick in range(4):
        broker.publish(tick)

    assert ticks(sent(broker.log, Feed)) == [2, 3]


# -- revisions (rule 7)


def test_a_new_entry_first_gets_the_revised_ticks_just_before_its_own() -> None:
    """Rule 7: [from - lateness, from), only those that were revised."""
    broker = LoneBroker(lateness_ticks=4)
    for tick in range(10):
        broker.publish(tick)
    for tick in (2, 5, 7, 9):
        broker.publish(tick, revision=1)

    effects = broker.want(ANNA, "000", start=8)

    assert [(f.tick, f.revision) for f in sent(effects, Feed)] == [(5, 1), (7, 1), (8, 0), (9, 1)]


def test_a_revision_goes_to_those_who_had_the_tick_and_counts_once() -> None:
    """Rule 7; publishing is at least once. Whoever starts later gets revisions too: a relay's receivers may lag."""
    broker = LoneBroker()
    broker.want(ANNA, "000")
    broker.want(BEN, "000", start=5)
    broker.publish(0)

    for revision in (1, 1, 0, 2, 1):
        broker.publish(0, revision)

    assert [(f.tick, f.revision) for f in sent(broker.log, Feed, ANNA)] == [(0, 0), (0, 1), (0, 2)]
    assert [(f.tick, f.revision) for f in sent(broker.log, Feed, BEN)] == [(0, 1), (0, 2)]


def test_a_relay_asked_for_older_ticks_than_it_has_refuses() -> None:
    """Rule 7: it never rewinds a shared stream; the receiver asks the owner."""
    broker = LoneBroker(others={"001": 1}, slack_ticks=2)
    generation = broker.relays("001", provider=1, receiver=ANNA, start=10)
    broker.supply(1, "001", (8,), generation)

    early = broker.want(BEN, "001", start=7)
    slack = broker.want(CARL, "001", start=8)

    assert [r.reason for r in sent(early, Refuse)] == ["too old"]
    assert sent(early, Want) == []
    assert len(sent(slack, Grant)) == 1


def test_an_entry_that_waited_until_its_ticks_had_left_the_ring_is_refused() -> None:
    """Rules 6 and 7: a relay cannot name a gap; without a word the receiver would wait for ever."""
    broker = LoneBroker(others={"001": 1}, ring_ticks=12)
    generation = broker.relays("001", provider=1, receiver=ANNA)
    broker.say(1, Grant(generation, (cell("001"),), None))
    broker.want(BEN, "001", start=0)
    broker.supply(1, "001", range(20), generation)

    effects = broker.say(1, Grant(generation, (cell("001"),), (PeerId(1),)))

    assert [r.reason for r in sent(effects, Refuse, BEN)] == ["too old"]
    assert sent(effects, Grant, BEN) == []
    assert len(sent(effects, Grant, ANNA)) == 1


def test_a_relay_starts_a_little_earlier_for_receivers_that_lag() -> None:
    """Rule 7: slack."""
    broker = LoneBroker(others={"001": 1}, slack_ticks=2)
    broker.up(1)

    (want,) = sent(broker.want(ANNA, "001", start=10, via=1), Want)

    assert want.items == ((cell("001"), 64, 8),)
    assert want.clip is None, "brokers take whole cells"


def test_for_a_client_that_stays_a_relay_fetches_older_ticks_from_the_owner() -> None:
    """Rule 7: such a client cannot ask the owner itself; the shared stream goes on."""
    broker = LoneBroker(others={"001": 1}, slack_ticks=2)
    generation = broker.relays("001", provider=1, receiver=ANNA, start=10)
    broker.supply(1, "001", range(8, 12), generation)

    asked = broker.want(BEN, "001", start=5, stays=True)
    (found,) = sent(asked, Find)
    asked += broker.say(1, Found(PeerId(0), 0, 0, ((cell("001"), PeerId(1)),), ()))
    (want,) = sent(asked, Want)
    broker.say(1, Grant(want.generation, (cell("001"),), (PeerId(1),)))
    effects = broker.supply(1, "001", range(5, 8), want.generation)

    assert (found.cells, found.owner) == ((cell("001"),), True)
    assert want.items == ((cell("001"), 64, 5),)
    assert want.until == 8
    assert ticks(sent(effects, Feed, BEN)) == list(range(5, 12))
    assert sent(effects, Leave, 1) == [Leave(want.generation, (cell("001"),))]
    assert ticks(sent(broker.log, Feed, ANNA)) == [10, 11]


def test_the_ring_is_bounded() -> None:
    """Rule 7: longer than the lateness, and no longer than set."""
    broker = LoneBroker(ring_ticks=12)
    for tick in range(100):
        broker.publish(tick)

    supply = broker.boards.outlets.supplies[0][cell("000")]
    assert sorted(supply.ring) == list(range(88, 100))
    effects = broker.want(ANNA, "000", start=50)
    assert [(f.tick, f.until) for f in sent(effects, Feed)][:2] == [(50, 88), (88, 0)]


def test_a_revision_of_a_tick_that_the_ring_no_longer_holds_is_dropped() -> None:
    """Rule 7."""
    broker = LoneBroker(ring_ticks=12)
    broker.want(ANNA, "000")
    for tick in range(30):
        broker.publish(tick)

    assert broker.publish(5, revision=1) == []
