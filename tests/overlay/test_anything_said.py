"""Whatever peers say, in whatever order and however bundled: nobody fails and nothing is left behind."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hands import ANNA, BEN, GRID, OWNERS, REGION, TWO, LoneBroker, LoneClient, box_query, cell, delivered
from nonsense import anything
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay import messages
from sensorgrid.overlay.codec import CodecError, decode, encode
from sensorgrid.overlay.events import Batch, Deliver
from sensorgrid.overlay.messages import Feed, Grant
from sensorgrid.overlay.policies.relays import Relays

# -- to a broker


@pytest.mark.parametrize("strategy", [None, "CTP", "TREE"])
@hypothesis_settings(max_examples=100)
@given(said=st.lists(st.tuples(st.sampled_from([1, 2, 3, ANNA, BEN]), anything), max_size=12))
def test_whatever_peers_say_a_broker_neither_fails_nor_breaks_its_rules(
    strategy: str | None, said: list[tuple[int, messages.Message]]
) -> None:
    """Errors are split by blame: nonsense from a peer is the peer's, and must not take a broker down."""
    relays = None if strategy is None else Relays(strategy, k=2, measure_s=1.0, review_s=0.5, optimise_s=1.0)
    broker = LoneBroker(
        owns=("000", "001"), others={"010": 1, "011": 2}, budget=3 * REGION, relays=relays, brokers=(1, 2, 3)
    )
    broker.up(1, 2, 3, ANNA, BEN)
    broker.want(ANNA, "000")
    broker.relays("010", provider=1, receiver=BEN)
    for peer in (1, 2, 3):  # measured, if it measures at all
        broker.say(peer, messages.Pong(0.0, ()))
        broker.say(peer, messages.Pong(broker.now, ((PeerId(6 - peer), 0.1, 2, 0.0),)))

    for number, (peer, message) in enumerate(said):
        try:
            broker.say(peer, decode(encode(message)))
        except CodecError:
            continue
        if number % 3 == 2:
            broker.wait(1.0)
        broker.publish(number)

    for peer in (1, 2, 3, ANNA, BEN):
        broker.down(peer)
    broker.wait(60)
    assert broker.boards.outlets.used == broker.boards.outlets.reserved == 0
    assert (broker.boards.intake.feeds, broker.boards.requests) == ({}, {})
    assert GRID.points_per_period == 8 * REGION


# -- to a client


@hypothesis_settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), anything), max_size=12), st.booleans())
def test_whatever_brokers_say_a_client_does_not_fail_and_leaves_nothing(
    said: list[tuple[int, messages.Message]], roams: bool
) -> None:
    me = LoneClient(roams=roams, alive_s=5.0)
    me.locate(me.submit(TWO), OWNERS)
    me.up(0, 1, 2, 3)
    me.grant(1)
    me.submit(box_query(0, 0, 4, 16), query=2)

    for number, (peer, message) in enumerate(said):
        try:
            me.say(peer, decode(encode(message)))
        except CodecError:
            continue
        if number % 4 == 3:
            me.wait(1.0)

    blocks = [e for e in me.log if isinstance(e, Deliver)]
    ticks: dict[tuple[int, int], list[int]] = {}
    for block in blocks:
        ticks.setdefault((block.query, block.cell), []).append(block.tick)
    assert max(Counter((b.query, b.cell, b.tick, b.revision) for b in blocks).values(), default=1) == 1
    for query in (1, 2):
        me.cancel(query)
    me.wait(100)
    assert me.leftovers() == []


@hypothesis_settings(max_examples=50)
@given(st.data())
def test_what_comes_together_has_the_same_end_as_what_comes_one_by_one(data: st.DataObject) -> None:
    """A batch is a matter of speed."""

    def fresh() -> LoneClient:
        me = LoneClient()
        me.locate(me.submit(TWO, until=data_until), OWNERS)
        me.up(1, 2)
        return me

    data_until = data.draw(st.none() | st.integers(1, 4))
    path = st.sampled_from([None, (PeerId(1),)])
    said = data.draw(
        st.lists(
            st.one_of(
                st.builds(Grant, st.just(1), st.just((cell("000"),)), path),
                st.builds(
                    Feed, st.just(1), st.just(cell("000")), st.integers(0, 5), st.integers(0, 1), st.just(())
                ),
            ),
            max_size=8,
        )
    )
    one, all_at_once = fresh(), fresh()
    for me in (one, all_at_once):
        me.grant(2)
        me.tick(2, *range(6))

    for message in said:
        one.say(1, message)
    if said:
        all_at_once.feed(Batch(PeerId(1), tuple(said)))

    assert one.statuses() == all_at_once.statuses()
    # Revisions that come with the last tick may or may not be too late.
    facts = [
        Counter((b.cell, b.tick) for b in delivered(me.log) if not b.revision) for me in (one, all_at_once)
    ]
    assert facts[0] == facts[1]
