"""Regions change hands under load: no receiver is suspended, and no tick is late by more than one."""

import pytest

from hands import REGION, box_query, cell, values
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.overlay.events import Deliver
from sensorgrid.overlay.messages import VERSION, Holds, Message, Told
from sensorgrid.overlay.roster import Region
from sensorgrid.simulator.checkers import brokers_of, circles, conservation, rosters, sessions_of
from worlds import SmallWorld

TICK_S = 1.0
OWNERS = {"000": 0, "001": 1, "010": 2, "011": 3, "100": 0, "101": 1, "110": 2, "111": 3}
ASK = box_query(0, 0, 6, 8)
"""all of region 000, half of 001"""


class Watched(SmallWorld):
    """A world that knows when each tick reached each client whole."""

    def __init__(self, **changes: object) -> None:
        self.late: dict[PeerId, float] = {}
        self.published_at: dict[int, float] = {}
        super().__init__(OWNERS, **changes)  # type: ignore[arg-type]
        checked = self.on_deliver
        assert checked is not None

        def noted(client: PeerId, block: Deliver) -> None:
            checked(client, block)
            waited = self.now - self.published_at[block.tick]
            self.late[client] = max(self.late.get(client, 0.0), waited)

        self.on_deliver = noted

    def go(self, ticks: int) -> None:
        """Ticks, one a second."""
        for _ in range(ticks):
            self.published_at[self.ticks] = self.now
            self.tick(1, pause_s=TICK_S)

    def change(self, digits: str, owner: int, heir: int | None = None, told: tuple[int, ...] = (3,)) -> None:
        """Another roster, of which some brokers are told."""
        key = (0, cell(digits))
        before = self.regions[key]
        epoch = before.epoch + (owner != before.owner)
        region = Region(*key, PeerId(owner), epoch, None if heir is None else PeerId(heir))
        regions = [region if at == key else other for at, other in self.regions.items()]
        self.assign(regions, told=[PeerId(number) for number in told])


@pytest.mark.parametrize("prepared", [True, False], ids=["with an heir", "at once"])
@pytest.mark.parametrize("roams", [True, False], ids=["roaming", "staying"])
def test_a_region_that_is_handed_over_under_load_is_never_late_by_more_than_a_tick(
    prepared: bool, roams: bool
) -> None:
    world = Watched()
    clients = [world.pose(ASK, at=number % 4, roams=roams) for number in range(8)]
    world.go(4)

    for heir in (2, 3, 1):
        if prepared:
            world.change("000", world.regions[0, cell("000")].owner, heir)
            world.go(2)
        world.change("000", heir)
        world.go(3)

    assert [world.heard(client) for client in clients] == [["admitted"]] * 8
    assert all(world.got_all(client, ASK) for client in clients)
    assert max(world.late.values()) < TICK_S
    assert list(rosters(world)) + list(circles(world)) + list(conservation(world)) == []


def test_the_old_owner_feeds_its_receivers_until_the_new_one_has_room_for_them() -> None:
    """A receiver that finds no room at the new owner stays where it is."""
    world = Watched(budgets={2: REGION})
    clients = [world.pose(ASK, at=0) for _ in range(3)]
    world.go(2)

    world.change("000", 2)
    world.go(6)

    assert world.path(0, "000") == (2, 0)
    assert [world.heard(client) for client in clients] == [["admitted"]] * 3
    assert all(world.got_all(client, ASK) for client in clients)


def test_an_old_owner_without_receivers_has_no_use_for_the_region() -> None:
    world = Watched()
    world.go(1)

    world.change("000", 2)
    world.go(1)

    assert world.path(0, "000") is None
    assert world.path(2, "000") == (2,)


def test_a_roster_told_to_one_reaches_all_brokers_and_their_clients() -> None:
    world = Watched()
    client = world.pose(ASK, at=0)
    world.go(1)

    world.change("110", 1, told=(3,))
    world.go(1)

    assert list(rosters(world)) == []
    held = sessions_of(world)[client].roster
    assert held is not None
    assert held.version == 2


def test_a_broker_that_was_away_hears_of_the_roster_when_it_is_back() -> None:
    world = Watched(alive_s=0.5)
    world.partition({PeerId(0)})
    world.change("110", 1, told=(3,))
    world.pass_(3)
    assert list(rosters(world)) == ["broker 0: holds roster 1, expected 2"]

    world.heal()
    world.pass_(5)

    assert list(rosters(world)) == []


def test_nothing_is_said_about_the_first_roster() -> None:
    said: list[Message] = []
    world = Watched()
    world.on_send = lambda me, peer, message: said.append(message)
    world.pose(ASK, at=3)

    world.go(2)

    assert [m for m in said if isinstance(m, Holds | Told)] == []


def test_two_versions_of_the_wire_side_by_side_say_only_what_both_know() -> None:
    """The older peers hear neither of rosters nor of epochs, and are served like everybody."""
    said: list[tuple[PeerId, PeerId, Message]] = []
    world = Watched()
    for number in (1, 2):
        world.nodes[PeerId(number)].version = 1
        world.crash(PeerId(number))
        world.restart(PeerId(number))
    world.pass_(2)
    world.on_send = lambda me, peer, message: said.append((me, peer, message))
    clients = [world.pose(ASK, at=at) for at in range(4)]
    world.nodes[clients[3]].version = 1
    world.go(2)

    world.change("000", 3, told=(0, 1, 2, 3))
    world.go(4)

    old = {PeerId(1), PeerId(2), clients[3]}
    to_old = [message for me, peer, message in said if {me, peer} & old]
    assert to_old
    assert all(message.since == 1 for message in to_old)
    assert all(getattr(m, name) in (0, "", ()) for m in to_old for name in m.added)
    assert any(isinstance(m, Told) for me, peer, m in said if not {me, peer} & old)
    assert [world.heard(client) for client in clients] == [["admitted"]] * 4
    assert all(world.got_all(client, ASK) for client in clients)


def test_a_receiver_that_holds_a_gap_gets_the_data_when_it_changes_provider() -> None:
    """Rule 7: what is revision 0 to others is news to it; the owner has it from the pipeline, late."""
    world = SmallWorld({"000": 0, "001": 1})
    relayed = world.pose(box_query(0, 0, 4, 8), at=1, roams=False)
    world.deliveries.wrong = []
    gaps = world.deliveries.ledgers[relayed, QueryId(1)]
    world.pass_(0.5)
    code = cell("000")
    for tick in (0, 2):  # tick 1 is not published in time
        world.publish(0, code, tick, 0, values(code, tick, 0))
    world.run(world.now + 0.5)
    assert gaps.gaps == 1
    world.deliveries.wrong.clear()

    world.break_link(PeerId(0), PeerId(1), (PeerId(0), PeerId(1)))
    world.publish(0, code, 1, 0, values(code, 1, 0))  # while it is away
    world.pass_(3)
    world.publish(0, code, 3, 0, values(code, 3, 0))
    world.pass_(1)

    world.ticks = 4
    assert world.got_all(relayed, box_query(0, 0, 4, 8))


def test_a_world_of_one_version_keeps_no_account_of_versions() -> None:
    world = Watched()
    world.go(1)

    assert all(broker.kernel.links.versions == {} for broker in brokers_of(world).values())
    assert world.nodes[PeerId(0)].version == VERSION
