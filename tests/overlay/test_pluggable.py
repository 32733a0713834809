"""A new mechanism is one module and the line that lists it: this is such a module, and the lines are in the tests.

The toy counts what becomes of the ticks of every supply and tells the broker's neighbours. It has a message of its own,
taps supplies, reads a board, and is known to nothing else in the code.
"""

from random import Random
from typing import Any

import pytest

from hands import ANNA, GRID, REGION, box_query, cell, settings, values
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.overlay.boards import Boards
from sensorgrid.overlay.broker import Broker
from sensorgrid.overlay.codec import CodecError, decode, encode
from sensorgrid.overlay.events import (
    Broken,
    Cancelled,
    Connect,
    Effect,
    Learned,
    PeerUp,
    Published,
    Recalled,
    Received,
    Send,
    TickComplete,
    TickRevised,
    TicksMissing,
)
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import BROKERS, Code, Message
from sensorgrid.overlay.policies.interface import Never
from sensorgrid.overlay.roster import Member, Region, Roster, Terms
from sensorgrid.simulator.checkers import brokers_of
from worlds import SmallWorld


class Tally(Message, frozen=True):
    """So much has become of the ticks of a supply of mine."""

    said_by = BROKERS
    dials = True

    cell: Code
    counts: tuple[int, int, int]
    """ticks that were complete, revised, missing"""


class Tallies(Mechanism):
    """The mechanism."""

    def __init__(self, kernel: BrokerKernel, boards: Boards) -> None:
        self.kernel = kernel
        self.regions = boards.regions
        self.handlers = {Tally: self.told}
        self.listens = {
            TickComplete: lambda event: self.count(event.cell, 0),
            TickRevised: lambda event: self.count(event.cell, 1),
            TicksMissing: lambda event: self.count(event.cell, 2, event.until - event.first),
        }
        self.mine: dict[int, list[int]] = {}
        self.theirs: dict[tuple[PeerId, int], tuple[int, ...]] = {}
        self._untold: dict[int, None] = {}

    def count(self, code: int, what: int, ticks: int = 1) -> None:
        """Something became of ticks of a supply."""
        self.mine.setdefault(code, [0, 0, 0])[what] += ticks
        self._untold[code] = None

    def told(self, peer: PeerId, message: Tally) -> None:
        """A neighbour has counted."""
        self.theirs[peer, message.cell] = message.counts

    def settle(self) -> bool:
        """Tell the neighbours."""
        for code in self._untold:
            complete, revised, missing = self.mine[code]
            for peer in self.regions.peers:
                self.kernel.send(peer, Tally(code, (complete, revised, missing)))
        self._untold.clear()
        return False


def tallies(broker: Broker) -> Tallies:
    """Of a broker that has them."""
    found = broker.mechanism(Tallies)
    assert found is not None
    return found


def test_brokers_with_a_new_mechanism_talk_it() -> None:
    world = SmallWorld({"000": 0, "001": 1}, others=(Tallies,))
    one, other = brokers_of(world).values()

    world.tick(3)
    world.publish(0, cell("000"), 1, 1, values(cell("000"), 1, 1))
    world.publish(0, cell("001"), 5, 0, values(cell("001"), 5, 0))
    world.pass_(1)

    assert tallies(one).mine == {cell("000"): [3, 1, 0]}
    assert tallies(other).mine == {cell("001"): [4, 0, 2]}
    assert tallies(other).theirs == {(0, cell("000")): (3, 1, 0)}
    assert tallies(one).theirs == {(1, cell("001")): (4, 0, 2)}
    assert one.kernel.counters.messages["Tally"] == 4


def test_what_a_broker_relays_can_be_tapped_as_what_it_owns() -> None:
    world = SmallWorld({"000": 0, "001": 1}, others=(Tallies,))
    relay = brokers_of(world)[PeerId(1)]
    ask = box_query(0, 0, 4, 4)
    anna = world.pose(ask, at=1, roams=False)
    world.pass_(1)

    world.tick(3)

    supplies = relay.boards.outlets.supplies[0]
    assert len(supplies) > 1
    assert tallies(relay).mine == {code: [3, 0, 0] for code in supplies}
    assert world.got_all(anna, ask)


def alone(others: bool = True) -> Broker:
    """A broker that owns a region and has read the lake; broker 1 is its neighbour, and not connected."""
    plugs = (Tallies,) if others else ()
    broker = Broker(PeerId(0), GRID, settings(), Never(), Random(1), others=plugs)
    broker.handle(PeerUp(ANNA), 0.0)
    owners = (Region(0, cell("000"), PeerId(0), 1), Region(0, cell("001"), PeerId(9), 1))
    members = (Member(PeerId(0)), Member(PeerId(9)))
    broker.handle(Learned(Roster(1, Terms.of(GRID, settings()), members, owners)), 0.0)
    broker.handle(Recalled(0, cell("000"), 1, ()), 0.0)
    return broker


def published(broker: Broker, tick: int) -> list[Effect]:
    """A tick from the pipeline."""
    code = cell("000")
    return broker.handle(Published(0, code, tick, 0, 1, values(code, tick, 0)), 1.0)


@pytest.mark.parametrize("event", [object(), Cancelled(QueryId(1)), Broken(PeerId(1))])
def test_what_is_no_event_of_a_broker_is_refused(event: Any) -> None:
    with pytest.raises(TypeError, match=f"broker 0: found {type(event).__name__}, expected a broker's event"):
        alone().handle(event, 1.0)


def test_a_tick_that_is_first_heard_of_as_a_revision_is_tapped_as_complete() -> None:
    broker, code = alone(), cell("000")
    published(broker, 0)

    broker.handle(Published(0, code, 1, 1, 1, values(code, 1, 1)), 1.0)
    first = tuple(tallies(broker).mine[code])
    broker.handle(Published(0, code, 1, 2, 1, values(code, 1, 2)), 1.0)

    assert first == (2, 0, 0)
    assert tallies(broker).mine == {code: [2, 1, 0]}


def test_a_missing_tick_that_comes_late_is_tapped_as_revised() -> None:
    broker, code = alone(), cell("000")
    published(broker, 0)
    published(broker, 2)

    published(broker, 1)

    assert tallies(broker).mine == {code: [2, 1, 1]}


def test_a_client_that_says_its_message_is_ignored() -> None:
    broker = alone()
    broker.handle(PeerUp(PeerId(1)), 0.0)

    effects = broker.handle(Received(ANNA, Tally(cell("000"), (9, 9, 9))), 1.0)
    by_client = dict(tallies(broker).theirs)
    broker.handle(Received(PeerId(1), Tally(cell("000"), (1, 2, 3))), 1.0)

    assert (effects, by_client) == ([], {})
    assert tallies(broker).theirs == {(1, cell("000")): (1, 2, 3)}


def test_a_broker_without_the_mechanism_ignores_its_message() -> None:
    broker = alone(others=False)
    broker.handle(PeerUp(PeerId(1)), 0.0)

    assert broker.handle(Received(PeerId(1), Tally(cell("000"), (1, 2, 3))), 1.0) == []
    assert published(broker, 0) == []
    assert not broker.kernel.tapped


def test_its_message_opens_a_connection_as_its_class_says() -> None:
    broker = alone()
    broker.kernel.links.dialling.clear()

    effects = published(broker, 0)
    sent = broker.handle(PeerUp(PeerId(9)), 2.0)

    assert effects == [Connect(PeerId(9))]
    assert Send(PeerId(9), Tally(cell("000"), (1, 0, 0))) in sent


def test_the_codec_carries_its_message() -> None:
    message = Tally(cell("000"), (REGION, 2, 3))

    assert decode(encode(message)) == message
    with pytest.raises(CodecError):
        decode(encode(Tally(0, (1, 2, 3))))
