"""One block to many links: what the loop of machine code sends is what a plan says, whatever the receivers do."""

import asyncio
import ssl

import numpy as np
import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from nets import until
from sensorgrid.links.driver import Driver, Peer
from sensorgrid.links.fan import NEVER, SLOTS, Fan, Slots, fits
from sensorgrid.links.link import dial, listen
from sensorgrid.links.wire import Hello
from sensorgrid.model.block import Progression, Slab, Wanted
from sensorgrid.model.ids import BROKERS_MAX, Instant, PeerId
from sensorgrid.overlay.codec import decode, encode
from sensorgrid.overlay.events import Effect, Event, PeerUp, Spread
from sensorgrid.overlay.forwarding import ReceiverGroup, SendPlan
from sensorgrid.overlay.messages import Feed
from servers import PATIENCE_S

ROWS: Progression = (64, 192, 2)
COLUMNS: Progression = (32, 160, 1)


def block(seed: int = 1) -> Slab:
    shape = (len(range(*ROWS)), len(range(*COLUMNS)))
    return Slab(ROWS, COLUMNS, np.random.default_rng(seed).random(shape, np.float32))


def share(number: int, *peers: int, y: Progression = ROWS, x: Progression = COLUMNS) -> ReceiverGroup:
    return ReceiverGroup(5, number, Wanted(y, x, 0, 1), tuple(PeerId(peer) for peer in peers), 3)


@st.composite
def parts(draw: st.DrawFn, whole: Progression) -> Progression:
    """A progression inside another one."""
    step = whole[2] << draw(st.integers(0, 3))
    first = draw(st.integers(0, len(range(*whole)) - 1))
    count = draw(st.integers(1, 40))
    start = whole[0] + first * whole[2]
    inside = range(start, whole[1], step)[:count]
    return (start, inside[-1] + 1, step)


@given(y=parts(ROWS), x=parts(COLUMNS), tick=st.integers(0, 1 << 40), generation=st.integers(0, 1 << 40))
@settings(deadline=None, max_examples=60)
def test_a_frame_made_by_the_loop_or_by_a_cut_is_what_the_codec_would_say(
    y: Progression, x: Progression, tick: int, generation: int
) -> None:
    slab = block()
    wanted = share(generation, 1, y=y, x=x)
    plan = SendPlan(slab.y, slab.x, (wanted,))
    free = SLOTS.take()  # never ready: the loop makes the frame and hands it over
    try:
        made = Fan(plan, {PeerId(1): free}).send(tick, slab.values).step()
    finally:
        SLOTS.give(free)
    ((cut, peers),) = Fan(plan, {PeerId(1): None}).others

    assert made is not None
    assert (made[0], peers) == (1, (1,))
    assert bytes(made[1]) == cut.frame(tick, slab.values)
    found = decode(_payload(bytes(made[1])))
    assert isinstance(found, Feed)
    assert encode(found) == encode(wanted.feed(tick, slab))


def test_slots_grow_and_are_used_again() -> None:
    slots = Slots()
    taken = [slots.take() for _ in range(200)]
    slots.ready[taken[3]] = 17
    before = slots.epoch
    slots.give(taken[3])

    assert len(set(taken)) == 200
    assert slots.ready[taken[3]] == NEVER
    assert slots.epoch > before
    assert slots.take() == taken[3]


@pytest.mark.parametrize(
    "values", [np.zeros((64, 128)), np.zeros((128, 64), np.float32).T], ids=["f8", "columns"]
)
def test_values_that_lie_otherwise_in_memory_are_not_for_the_loop(values: np.ndarray) -> None:
    assert fits(block())
    assert not fits(Slab(ROWS, COLUMNS, values))


# -- over real links


class Teller:
    """An actor that does what it is told when anybody comes."""

    def __init__(self) -> None:
        self.up: list[PeerId] = []
        self.effects: list[Effect] = []

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        if isinstance(event, PeerUp):
            self.up.append(event.peer)
        effects, self.effects = self.effects, []
        return effects

    def next_wakeup(self) -> Instant | None:
        return None


class Client:
    """A receiver that decodes what it hears; it may stop reading for a while."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int, bytes]] = []
        self.ended = ""

    def opened(self, link: object) -> None:
        self.link = link

    def received(self, message: bytes) -> None:
        feed = decode(message)
        assert isinstance(feed, Feed)
        assert feed.slabs is not None
        self.heard.append((feed.generation, feed.tick, feed.slabs[0].values.tobytes()))

    def closed(self, reason: str) -> None:
        self.ended = reason


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_every_receiver_gets_its_part_of_every_block_in_order_also_the_slow_one(tls: bool) -> None:
    blocks = 400
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    part: Progression = (40, 104, 1)

    async def story() -> None:
        actor = Teller()
        driver = Driver(
            actor, hello=lambda: Hello((1,), "broker"), address_of=lambda peer: None, on_effect=lambda effect: None,
            waiting_bytes_max=1 << 30,
        )  # fmt: skip
        entered: list[Peer] = []

        def enter() -> Peer:
            entered.append(Peer())
            return entered[-1]

        listener = await listen("127.0.0.1", 0, enter, tls=server if tls else None)
        clients = []
        for number in range(6):
            clients.append(Client())
            url = f"{'wss' if tls else 'ws'}://127.0.0.1:{listener.port}"
            await dial(url, clients[-1], tls=client if tls else None)
            await until(lambda n=number: len(entered) == n + 1 and entered[n].link, "the other side")
            driver.adopt(PeerId(BROKERS_MAX + number), entered[number])
        slow = clients[1].link._under  # type: ignore[attr-defined]
        quick = [clients[0], *clients[2:]]
        peers = actor.up
        shares = (share(1, *peers[:3]), share(2, peers[3], x=part), share(3, *peers[4:], y=(64, 128, 4)))
        plan = SendPlan(ROWS, COLUMNS, shares)
        slow.pause_reading()
        for tick in range(blocks):
            actor.effects = [Spread(plan, tick, block(tick))]
            driver.feed(PeerUp(peers[0]))
            if tick == blocks // 2:
                await until(lambda n=tick: all(len(c.heard) == n + 1 for c in quick), "half of them")
        assert entered[1].link is not None
        assert entered[1].link.waiting > 0
        slow.resume_reading()
        await until(lambda: all(len(c.heard) == blocks for c in clients), "all blocks")

        for part_of in shares:
            expected = [
                (part_of.generation, tick, slabs[0].values.tobytes())
                for tick in range(blocks)
                if (slabs := part_of.feed(tick, block(tick)).slabs)
            ]
            for peer in part_of.peers:
                assert clients[peer - BROKERS_MAX].heard == expected
        listener.close()
        await listener.wait_closed()

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


def _payload(frame: bytes) -> bytes:
    short = frame[1]
    return frame[2 if short < 126 else 4 if short == 126 else 10 :]
