"""The broker passes on what happens in a fixed order, to whoever listens, and lets all settle."""

from random import Random
from typing import Any

import pytest

from hands import ANNA, GRID, LoneBroker, settings
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.overlay.assembly import Plug
from sensorgrid.overlay.boards import Boards
from sensorgrid.overlay.broker import Broker
from sensorgrid.overlay.events import (
    Batch,
    Broken,
    Cancelled,
    Disconnect,
    Event,
    PeerDown,
    PeerUp,
    Received,
    Stopping,
    Unused,
)
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.mechanisms.streams import Streams
from sensorgrid.overlay.messages import ANYONE, Message
from sensorgrid.overlay.policies.interface import Never


class Noise(Message, frozen=True):
    """Means nothing."""

    said_by = ANYONE
    dials = False

    number: int


class Ear(Mechanism):
    """Writes down what it hears, and when it settles."""

    def __init__(self, kernel: BrokerKernel, boards: Boards) -> None:
        self.kernel = kernel
        self.log: list[Any] = []
        self.handlers = {Noise: lambda peer, noise: self.log.append(noise.number)}
        self.listens = dict.fromkeys((PeerUp, PeerDown, Unused, Stopping), self.log.append)
        self.work = 0

    def settle(self) -> bool:
        """Once more for each piece of work."""
        self.log.append("settles")
        self.work -= 1
        return self.work >= 0

    def finish(self) -> None:
        """When all have settled."""
        self.log.append("finishes")


class Glutton(Ear):
    """Does not mind several messages in a row."""

    in_a_row = True


def listening(kind: Plug = Ear) -> tuple[Broker, Ear]:
    """A broker with an ear, connected to a client."""
    broker = Broker(PeerId(0), GRID, settings(), Never(), Random(1), others=(kind,))
    broker.handle(PeerUp(ANNA), 0.0)
    ear = broker.mechanism(Ear)
    assert ear is not None
    ear.log.clear()
    return broker, ear


def heard(broker: Broker, ear: Ear, event: Event) -> list[Any]:
    """What becomes of an event."""
    broker.handle(event, 1.0)
    log, ear.log[:] = list(ear.log), []
    return log


def test_all_settle_until_nobody_has_work_and_then_finish_once() -> None:
    broker, ear = listening()
    ear.work = 2

    assert heard(broker, ear, Received(ANNA, Noise(1))) == [1, "settles", "settles", "settles", "finishes"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [(Ear, ["settles", "finishes", 1, "settles", "finishes", 2]), (Glutton, [1, 2])],
    ids=["one by one", "in a row"],
)
def test_a_mechanism_says_whether_its_messages_may_follow_each_other(kind: Plug, said: list[Any]) -> None:
    broker, ear = listening(kind)

    assert heard(broker, ear, Batch(ANNA, (Noise(1), Noise(2)))) == [*said, "settles", "finishes"]


def test_a_connection_that_is_reported_as_broken_is_closed_and_down_for_all() -> None:
    broker, ear = listening()
    broker.kernel.happened.put(Broken(ANNA))

    effects = broker.handle(Received(ANNA, Noise(1)), 1.0)

    assert effects == [Disconnect(ANNA)]
    assert ear.log == [1, PeerDown(ANNA), "settles", "finishes"]
    assert ANNA not in broker.kernel.links.up


def test_a_connection_that_is_reported_as_unused_is_closed_and_its_peer_is_well() -> None:
    broker, ear = listening()
    broker.kernel.happened.put(Unused(ANNA))

    effects = broker.handle(Received(ANNA, Noise(1)), 1.0)

    assert effects == [Disconnect(ANNA)]
    assert ear.log == [1, Unused(ANNA), "settles", "finishes"]
    assert ANNA not in broker.kernel.links.up


def test_what_was_said_on_a_connection_is_forgotten_when_it_is_unused() -> None:
    broker = LoneBroker()
    broker.want(ANNA, "000", generation=7)
    broker.leave(ANNA, "000", generation=7)
    before = dict(broker.mechanism(Streams)._generations)

    broker.kernel.happened.put(Unused(ANNA))
    broker.wait(1)
    broker.publish(0)

    assert (before, broker.mechanism(Streams)._generations) == ({ANNA: 7}, {})


def test_a_peer_that_is_up_again_was_down_before() -> None:
    broker, ear = listening()

    assert heard(broker, ear, PeerUp(ANNA))[:2] == [PeerDown(ANNA), PeerUp(ANNA)]


def test_two_mechanisms_cannot_handle_the_same_message() -> None:
    with pytest.raises(AssertionError, match="as another mechanism does"):
        Broker(PeerId(0), GRID, settings(), Never(), Random(1), others=(Ear, Glutton))


def test_what_happens_to_clients_only_is_no_event_of_a_broker() -> None:
    broker, _ = listening()

    with pytest.raises(TypeError, match="found Cancelled, expected a broker's event"):
        broker.handle(Cancelled(QueryId(1)), 1.0)
