"""What a broker takes from others: shared, searched for, told about, gone with its last receiver."""

from hands import ANNA, BEN, CARL, LoneBroker, cell, dialled, sent, ticks
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.messages import Feed, Find, Found, Grant, Leave, Redirect, Refuse, Want


def test_a_supply_goes_with_its_last_entry() -> None:
    """Interest flows up: a relay that nobody needs ends its own stream."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA)
    broker.want(BEN, "001")

    first = broker.leave(ANNA, "001")
    last = broker.down(BEN)

    assert sent(first, Leave) == []
    assert sent(last, Leave, 1) == [Leave(generation, (cell("001"),))]
    assert broker.boards.outlets.supplies[0].keys() == {cell("000")}
    assert broker.boards.intake.feeds == {}


def test_receivers_of_a_relay_share_one_stream() -> None:
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA)

    effects = broker.want(BEN, "0010", start=0)
    effects += broker.supply(1, "001", (0,), generation)

    assert sent(effects, Want) == []
    assert [f.cell for f in sent(effects, Feed)] == [cell("001"), cell("0010")]
    assert sent(effects, Grant) == [Grant(1, (cell("0010"),), (PeerId(1), PeerId(0)))]


def test_via_is_used_only_if_there_is_no_provider_yet() -> None:
    """Rule 5."""
    broker = LoneBroker(others={"001": 1})
    broker.relays("001", provider=1, receiver=ANNA)

    effects = broker.want(BEN, "001", via=3)

    assert (sent(effects, Want), dialled(effects)) == ([], [])


def test_without_via_a_provider_is_looked_for() -> None:
    broker = LoneBroker(others={"001": 1})
    broker.up(1)

    effects = broker.want(ANNA, "001")
    (question,) = sent(effects, Find, 1)
    effects = broker.say(1, Found(PeerId(0), 0, 0, ((cell("001"), PeerId(1)),), ()))

    assert question.cells == (cell("001"),)
    assert [w.items for w in sent(effects, Want, 1)] == [((cell("001"), 64, 0),)]


def test_an_entry_waits_for_the_path_of_its_supply() -> None:
    """Rule 3: it is accepted when the stream is known to come."""
    broker = LoneBroker(others={"001": 1})
    broker.up(1)

    effects = broker.want(ANNA, "001", via=1)
    (want,) = sent(effects, Want)
    granted = broker.say(1, Grant(want.generation, (cell("001"),), (PeerId(1),)))

    assert sent(effects, Grant) == []
    assert sent(granted, Grant) == [Grant(1, (cell("001"),), (PeerId(1), PeerId(0)))]


def test_a_new_path_is_told_to_all_receivers_unknown_included() -> None:
    """Rule 3."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA)

    unknown = broker.say(1, Grant(generation, (cell("001"),), None))
    known = broker.say(1, Grant(generation, (cell("001"),), (PeerId(2), PeerId(1))))

    assert [g.path for g in sent(unknown, Grant)] == [None]
    assert [g.path for g in sent(known, Grant)] == [(2, 1, 0)]


def test_a_broker_in_its_own_path_leaves_and_says_that_the_path_is_unknown() -> None:
    """Rule 3: at once, and for the owner."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=3, receiver=ANNA)

    effects = broker.say(3, Grant(generation, (cell("001"),), (PeerId(1), PeerId(0), PeerId(3))))

    assert sent(effects, Leave, 3) == [Leave(generation, (cell("001"),))]
    assert [g.path for g in sent(effects, Grant, ANNA)] == [None]
    assert [q.owner for q in sent(effects + broker.up(1), Find, 1)] == [True]


def test_if_nobody_feeds_a_supply_its_receivers_are_refused_with_the_reason() -> None:
    broker = LoneBroker(others={"001": 1})
    broker.up(1)
    broker.want(ANNA, "001")

    effects = broker.say(1, Found(PeerId(0), 0, 0, ((cell("001"), None),), ()))

    assert [r.reason for r in sent(effects, Refuse, ANNA)] == ["no provider: nobody within reach has it"]
    assert broker.boards.outlets.supplies[0].keys() == {cell("000")}


def test_a_cell_that_is_here_in_parts_is_refused_with_the_parts() -> None:
    """Rule 1: entries hang on one supply."""
    broker = LoneBroker(owns=("000",))

    (refusal,) = sent(broker.want(ANNA, "0"), Refuse)

    assert refusal.reason == "cut"
    assert sorted(refusal.parts) == sorted([cell("000"), cell("001"), cell("01")])


def test_a_cell_with_a_border_through_it_is_cut_where_the_owners_meet() -> None:
    """A relay asked for more than one owner has lets its receivers ask for the parts."""
    broker = LoneBroker(owns=(), others={"010": 1, "011": 2})
    broker.up(1)
    broker.want(ANNA, "01", via=1)
    broker.want(3, "01", via=1)
    (want,) = sent(broker.log, Want)
    refused = broker.say(1, Refuse(want.generation, (cell("01"),), "cut", (), (cell("010"), cell("011"))))
    refused += broker.up(2) if PeerId(2) in dialled(refused) else []

    effects = broker.say(1, Found(PeerId(0), 0, 0, ((cell("010"), PeerId(1)),), ()))

    assert [(r.reason, r.parts) for r in sent(effects, Refuse, ANNA)] == [("cut", (cell("010"), cell("011")))]
    assert [(r.reason, r.parts) for r in sent(effects, Refuse, 3)] == [("several owners", ())]
    assert broker.boards.outlets.supplies.get(0, {}) == {}


def test_receivers_beside_the_border_keep_their_places() -> None:
    """A query that is being posed would be refused for no reason of its own."""
    broker = LoneBroker(owns=(), others={"010": 1, "011": 2})
    broker.up(1)
    broker.want(ANNA, "01", via=1)
    broker.want(BEN, "011", via=1)
    broker.want(CARL, "010", via=1)
    (want,) = sent(broker.log, Want)
    broker.say(1, Refuse(want.generation, (cell("01"),), "cut", (), (cell("010"), cell("011"))))

    effects = broker.say(1, Found(PeerId(0), 0, 0, ((cell("010"), PeerId(1)),), ()))

    assert [r.reason for r in sent(effects, Refuse, ANNA)] == ["cut"]
    assert sent(effects, Refuse, BEN) == sent(effects, Refuse, CARL) == []
    assert broker.boards.outlets.supplies[0].keys() == {cell("010"), cell("011")}


def test_a_relay_follows_a_redirect_with_make_before_break() -> None:
    """Rules 4 and 5: its receivers notice only the path."""
    broker = LoneBroker(others={"001": 1})
    generation = broker.relays("001", provider=1, receiver=ANNA)
    broker.supply(1, "001", (0, 1), generation)
    broker.up(2)

    (want,) = sent(broker.say(1, Redirect(generation, ((cell("001"), cell("001")),), PeerId(2))), Want, 2)
    broker.supply(1, "001", (2,), generation)
    switch = broker.say(2, Grant(want.generation, (cell("001"),), (PeerId(1), PeerId(2))))
    switch += broker.supply(2, "001", (2,), want.generation)
    after = broker.supply(2, "001", (3,), want.generation)

    assert (want.via, want.items[0][2]) == (1, 2)
    assert sent(switch, Leave, 1) == [Leave(generation, (cell("001"),))]
    assert [g.path for g in sent(switch, Grant, ANNA)] == [(1, 2, 0)]
    assert ticks(sent(broker.log, Feed, ANNA)) == [0, 1, 2, 3]
    assert ticks(sent(after, Feed, ANNA)) == [3]
