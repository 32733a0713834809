"""One broker that calculates, alone with peers who say whatever they like."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from formulas import Sum, read
from hands import ANNA, BEN, LoneBroker, sent
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.codec import CodecError, decode, encode
from sensorgrid.overlay.derived import Derive, Derived, Relinquish, StreamName, Underived
from sensorgrid.overlay.mechanisms import calculation
from sensorgrid.overlay.messages import Message, Why
from sensorgrid.overlay.nodes import StreamNodes

PEERS = [1, 2, 3, ANNA, BEN]
LARGEST = (1 << 63) - 1
formulas = st.builds(Sum, st.just(0), st.integers(1, 3))
cells = st.sampled_from([1, 2, 3, 4, 8, 9, 15])
names = st.builds(lambda formula, cell: StreamName(formula.digest, cell), formulas, cells)
ticks = st.one_of(st.integers(-3, 30), st.sampled_from([-LARGEST, LARGEST, 1 << 40]))
held = st.lists(st.tuples(ticks, st.integers(-2, 9)), max_size=5).map(tuple)
things: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        lambda f, cell, first, held: Derive(StreamName(f.digest, cell), f.text, first, held),
        formulas, cells, ticks, held,
    ),
    st.builds(Derive, names, st.text(max_size=9), ticks, held),
    st.builds(Relinquish, names),
    st.builds(Derived, names, ticks, st.integers(0, 9), st.integers(0, 9), st.binary(max_size=24)),
    st.builds(Underived, names, st.text(max_size=9), st.sampled_from([*Why, "odd"])),
)  # fmt: skip


def calculating() -> LoneBroker:
    return LoneBroker(
        owns=("000", "001"), others={"010": 1, "011": 2}, brokers=(1, 2, 3), formulas=read, budget=10_000
    )


@hypothesis_settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(PEERS), things), max_size=14))
@example([(1, Derive(StreamName(Sum().digest, 8), Sum().text, -LARGEST))])
@example(
    [
        (1, Derive(StreamName(Sum().digest, 1), Sum().text, 0)),
        (2, Derived(StreamName(Sum().digest, 11), LARGEST, 1, 1, b"")),
    ]
)
def test_whatever_peers_say_of_derived_streams_nothing_fails_and_nothing_is_left(
    talk: list[tuple[int, Message]],
) -> None:
    broker = calculating()
    broker.up(*PEERS)

    for number, (peer, message) in enumerate(talk):
        try:
            broker.say(peer, decode(encode(message)))
        except CodecError:
            continue
        broker.publish(number)
        if number % 3 == 2:
            broker.wait(3.0)
    for peer in PEERS:
        broker.down(peer)
    broker.wait(60)

    nodes: StreamNodes = broker.boards.nodes
    assert (dict(nodes), nodes.reading, nodes.taking, nodes.ties) == ({}, {}, {}, {})


def test_an_edge_calculates_a_tick_when_it_is_published_and_again_when_it_is_revised() -> None:
    broker = calculating()
    broker.up(1)
    name = StreamName(Sum().digest, 8)

    broker.say(1, Derive(name, Sum().text, 0))
    broker.publish(0)
    broker.publish(0, revision=2)

    found = sent(broker.log, Derived, to=1)
    assert [(m.name, m.tick, m.weight, m.blocks) for m in found] == [(name, 0, 1, 1), (name, 0, 3, 1)]
    assert np.frombuffer(found[0].numbers)[1] == 32


def test_somebody_who_wants_all_of_the_past_gets_what_the_ring_has() -> None:
    broker = calculating()
    broker.up(1, 2)
    for tick in range(40):
        broker.publish(tick)

    broker.say(1, Derive(StreamName(Sum().digest, 8), Sum().text, -LARGEST))
    broker.say(2, Derive(StreamName(Sum().digest, 8), Sum().text, 39))

    ticks = [m.tick for m in sent(broker.log, Derived, to=1)]
    assert ticks == list(range(28, 40))
    assert [m.tick for m in sent(broker.log, Derived, to=2)] == [39]


def test_a_broker_that_no_longer_owns_a_region_passes_its_stream_on() -> None:
    broker = calculating()
    broker.up(1, 2, 3)
    name = StreamName(Sum().digest, 8)
    broker.say(1, Derive(name, Sum().text, 0))
    broker.publish(0)

    broker.assign({"000": 3, "001": 0, "010": 1, "011": 2}, epoch=2)
    (asked,) = sent(broker.log, Derive, to=3)
    broker.say(3, Derived(name, 0, 1, 1, b"12345678"))
    broker.say(3, Derived(name, 1, 1, 1, b"12345678"))

    assert (asked.name, asked.first) == (name, 0)
    assert [m.tick for m in sent(broker.log, Derived, to=1)] == [0, 1]
    assert PeerId(3) in broker.boards.nodes.ties


def test_a_client_can_have_so_many_streams_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calculation, "WATCHED_MAX", 2)
    broker = calculating()
    broker.up(ANNA, 1)

    for peer in (ANNA, 1):
        for window in (1, 2, 3):
            formula = Sum(window=window)
            broker.say(peer, Derive(StreamName(formula.digest, 8), formula.text, 0))

    (refused,) = sent(broker.log, Underived)
    assert (refused.name.digest, refused.code) == (Sum(window=3).digest, Why.NO_ROOM)
    assert "found 2 streams" in refused.reason or "found 3 streams" in refused.reason


def test_formulas_of_a_broker_take_so_much_room_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calculation, "TEXTS_MAX", 3 * len(Sum().text))
    broker = calculating()
    broker.up(1)
    for window in (1, 2, 3, 4, 5):
        formula = Sum(window=window)
        broker.say(1, Derive(StreamName(formula.digest, 8), formula.text, 0))
    assert sent(broker.log, Underived)
    broker.down(1)

    assert broker.boards.nodes.characters == 0
