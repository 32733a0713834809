"""Connections of brokers and clients: silent ones are given up, idle ones closed, new ones begin anew."""

from hands import ANNA, BEN, EVERYTHING, ONE, LoneBroker, LoneClient, cell, closed, running, sent
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.messages import Alive, Ask, Find, Want

# -- of a broker


def test_a_half_open_connection_is_found_by_silence() -> None:
    """Half-open links are found by keepalives."""
    broker = LoneBroker(alive_s=5.0)
    broker.want(ANNA, "000")
    broker.want(BEN, "000")

    for _ in range(5):
        broker.wait(4)
        broker.say(BEN, Alive())

    assert closed(broker.log) == [ANNA]
    assert {e.peer for by in broker.boards.outlets.entries.values() for e in by.values()} == {BEN}
    assert len(sent(broker.log, Alive, BEN)) >= 3, "it says itself that it lives"


def test_a_provider_that_falls_silent_is_given_up_and_looked_for_elsewhere() -> None:
    broker = LoneBroker(others={"001": 1}, alive_s=5.0)
    broker.up(1)
    broker.relays("001", provider=3, receiver=ANNA)
    for _ in range(5):
        broker.wait(4)
        broker.say(ANNA, Alive())
        broker.say(1, Alive())

    assert 3 in closed(broker.log)
    assert [q.owner for q in sent(broker.log, Find)][:1] == [True]


def test_an_idle_connection_is_closed_and_one_in_use_is_not() -> None:
    broker = LoneBroker(idle_s=30, alive_s=5)
    broker.want(ANNA, "000")
    broker.up(BEN)

    for _ in range(12):
        broker.wait(4)
        broker.say(ANNA, Alive())
        if PeerId(BEN) in broker.kernel.links.up:
            broker.say(BEN, Alive())

    assert closed(broker.log) == [BEN]


def test_a_word_on_a_connection_that_is_not_there_is_not_heard() -> None:
    broker = LoneBroker()

    assert broker.say(ANNA, Want(1, 0, ((cell("000"), 64, 0),), EVERYTHING)) == []
    assert broker.boards.outlets.entries == {}


# -- of a client


def test_a_client_finds_a_half_open_connection_by_silence() -> None:
    me = LoneClient(alive_s=5.0)
    me.locate(me.submit(ONE), {"000": 1})
    me.grant(1)

    for _ in range(5):
        me.wait(4)
        me.say(0, Alive())

    me.up(0)
    assert 1 in closed(me.log)
    assert [a.owner for a in sent(me.log, Ask)] == [False, True]
    assert sent(me.log, Alive, 1)


def test_a_client_closes_a_connection_that_it_does_not_use() -> None:
    me = LoneClient(alive_s=5.0)
    me.locate(me.submit(ONE), {"000": 1})
    me.grant(1)

    for _ in range(5):
        me.wait(4)
        for peer in list(me.actor.links.up):
            me.say(peer, Alive())

    assert list(me.actor.links.up) == [1]


def test_a_new_connection_means_that_the_old_one_is_gone_with_all_that_was_said_on_it() -> None:
    me = running(ONE, {"000": 1})
    me.tick(1, 0)

    effects = me.up(1)

    assert [a.owner for a in sent(effects, Ask)] == [True]
