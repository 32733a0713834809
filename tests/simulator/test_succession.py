"""Open networks: brokers come, leave, die, are wrongly suspected, and the streams go on."""

import msgspec
import pytest

from hands import GRID, box_query, cell, settings
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.balance import STEADY
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.mechanisms.succession import LEASE, OFTEN, RARELY, WINDOW
from sensorgrid.overlay.placement import Draft
from sensorgrid.overlay.policies.interface import Never
from sensorgrid.overlay.policies.ours import Ours
from sensorgrid.overlay.roster import Roster
from sensorgrid.simulator.checkers import brokers_of, circles, conservation, rosters
from worlds import SmallWorld

OWNERS = {"000": 0, "001": 0, "010": 1, "011": 1, "100": 2, "101": 2, "110": 3, "111": 3}
ASK = box_query(0, 0, 16, 8)
"""the whole grid"""
BEAT_S = 1.0


class Open(SmallWorld):
    """A network of four whose roster changes by itself."""

    def __init__(self, **changes: object) -> None:
        chosen = {"beat_s": BEAT_S, "alive_s": 1.0, "backoff_max_s": 2.0, "ring_ticks": 64} | changes
        super().__init__(OWNERS, **chosen)  # type: ignore[arg-type]
        self.suspended: set[PeerId] = set()
        self.looks = 0
        """questions to the store"""

    def _ask_store(self, me: PeerId, proposed: Roster | None) -> None:
        self.looks += 1
        super()._ask_store(me, proposed)

    def come(self, number: int, place: int = 0, relay: bool = False) -> PeerId:
        """Another broker."""
        me = PeerId(number)
        self.add_broker(me, settings(**(self.chosen | {"budget": 10_000})), Never)
        self.join(me, place, relay)
        return me

    def owning(self) -> dict[str, int]:
        """Who owns what, as the newest roster says."""
        return {bin(code)[3:]: region.owner for (_, code), region in self.regions.items()}

    def at_rest(self) -> list[str]:
        """What is wrong when nothing happens any more."""
        return [*rosters(self), *circles(self), *conservation(self)]


def middle(digits: str) -> int:
    """The place of a region."""
    from sensorgrid.overlay.geography import first_of

    return first_of(cell(digits), settings().depth)


def test_a_newcomer_takes_its_regions_over_and_no_tick_is_missing() -> None:
    world = Open()
    clients = [world.pose(ASK, at=number) for number in range(4)]
    world.tick(3)

    world.come(4, middle("001"))
    world.tick(10)

    assert world.owning() == {d: 4 if d == "001" else o for d, o in OWNERS.items()}
    assert [world.heard(client) for client in clients] == [["admitted"]] * 4
    assert all(world.got_all(client, ASK) for client in clients)
    assert world.at_rest() == []


def test_a_leaver_hands_over_first_and_then_goes() -> None:
    world = Open()
    clients = [world.pose(ASK, at=number) for number in range(4)]
    world.tick(3)

    world.leave(PeerId(2))
    world.tick(12)

    assert world.left == {PeerId(2)}
    assert world.owning() == {d: 1 if o == 2 else o for d, o in OWNERS.items()}  # its predecessor on the line
    assert PeerId(2) not in (world.roster and world.roster.by_id)
    assert [world.heard(client) for client in clients] == [["admitted"]] * 4
    assert all(world.got_all(client, ASK) for client in clients)


@pytest.mark.parametrize("heard", [True, False], ids=["crash", "silent crash"])
@pytest.mark.parametrize("victim", range(4))
def test_a_broker_that_dies_for_good_is_replaced_within_the_lease(victim: int, heard: bool) -> None:
    world = Open()
    clients = [world.pose(ASK, at=number) for number in range(4) if number != victim]
    world.tick(3)
    died = world.now

    world.crash(PeerId(victim), heard=heard)
    while PeerId(victim) in world.roster.by_id and world.now < died + 60:
        world.tick(1)

    assert world.now - died <= (LEASE + 1) * BEAT_S
    world.tick(12)
    assert victim not in world.owning().values()
    assert set(world.owning().values()) <= set(range(4)) - {victim}
    assert all(world.heard(client)[-1] in ("admitted", "resumed") for client in clients)
    assert all(world.got_all(client, ASK) for client in clients)
    assert world.at_rest() == []


def test_one_that_was_only_slow_objects_or_comes_back() -> None:
    world = Open()
    clients = [world.pose(ASK, at=number) for number in (0, 1, 3)]
    world.tick(3)

    world.pause(PeerId(2))
    world.tick(60)
    assert PeerId(2) not in world.roster.by_id
    world.resume(PeerId(2))
    world.join(PeerId(2), middle("100"))
    world.tick(30)

    assert world.owning() == OWNERS
    assert all(world.got_all(client, ASK) for client in clients)
    assert world.at_rest() == []


def test_without_the_store_nobody_takes_anything_over_and_streams_go_on() -> None:
    world = Open()
    client = world.pose(box_query(0, 0, 4, 8), at=0)
    world.tick(3)
    world.storeless.update(brokers_of(world))

    world.crash(PeerId(2))
    world.tick(40)

    assert world.roster.version == 1
    assert world.got_all(client, box_query(0, 0, 4, 8))
    world.storeless.clear()
    world.tick(40)
    assert 2 not in world.owning().values()
    assert world.at_rest() == []


def test_one_that_was_stopped_while_it_left_and_is_started_again_stays() -> None:
    world = Open()
    world.tick(3)
    marked = Draft(world.roster)
    marked.leave(PeerId(1))
    world.crash(PeerId(1))
    world.roster = world.store[2] = marked.done()

    world.restart(PeerId(1))
    world.join(PeerId(1), world.roster.by_id[PeerId(1)].place)
    world.tick(3 * LEASE)

    assert world.left == set()
    assert not world.roster.by_id[PeerId(1)].leaving
    assert world.owning() == OWNERS
    assert world.at_rest() == []


def test_one_that_is_marked_while_it_runs_goes() -> None:
    world = Open()
    world.join(PeerId(1), world.roster.by_id[PeerId(1)].place)
    world.tick(3)

    marked = Draft(world.roster)
    marked.leave(PeerId(1))
    world.roster = world.store[marked.done().version] = marked.done()
    world.tick(2 * RARELY)

    assert world.left == {PeerId(1)}


@pytest.mark.parametrize("before", range(3, 9))
def test_one_that_says_that_it_leaves_while_the_store_is_away_leaves_later(before: int) -> None:
    world = Open()
    world.tick(before)
    world.storeless = {PeerId(0)}

    world.leave(PeerId(0))
    world.tick(2 * LEASE)
    assert world.left == set()
    world.storeless = set()
    world.tick(3 * LEASE)

    assert world.left == {PeerId(0)}
    assert PeerId(0) not in world.owning().values()


def test_two_that_join_at_one_place_get_two_places() -> None:
    world = Open()
    world.tick(1)

    world.come(4, middle("001"))
    world.come(5, middle("001"))
    world.tick(20)

    places = [member.place for member in world.roster.members]
    assert len(set(places)) == len(places) == 6
    assert world.owning()["001"] in (4, 5)
    assert world.at_rest() == []


def test_at_rest_nothing_changes_and_little_is_said() -> None:
    world = Open()
    world.pass_(30)
    version = world.roster.version
    said: list[int] = []
    world.on_send = lambda me, peer, message: said.append(1)
    looked = world.looks

    world.pass_(60)

    assert world.roster.version == version == 1
    assert (
        2 * 60 / OFTEN <= world.looks - looked + 2 <= 2 * 60 / OFTEN + 2 * 60 / RARELY + 4
    )  # two of four look often
    assert len(said) / 60 / 4 < 12  # messages of a broker in a second


def test_one_that_was_accused_in_vain_and_then_dies_is_replaced_all_the_same() -> None:
    world = Open()
    world.tick(3)
    for _ in range(4):  # slow again and again, never for long enough
        world.pause(PeerId(2))
        while not world.roster.by_id[PeerId(2)].accused:
            world.pass_(0.5)
        world.resume(PeerId(2))
        world.pass_(20)
        assert PeerId(2) in world.roster.by_id
    died = world.now

    world.crash(PeerId(2))
    while PeerId(2) in world.roster.by_id and world.now < died + 120:
        world.pass_(0.5)

    assert world.now - died <= (LEASE + WINDOW + 3) * BEAT_S


def test_a_roster_that_nobody_can_take_is_not_asked_about_without_a_pause() -> None:
    world = Open()
    world.tick(1)
    first, *others = world.roster.regions
    broken = world.roster.next(
        regions=(msgspec.structs.replace(first, epoch=0), *others)
    )  # epochs never fall
    assert broken.fault(GRID, world.roster)
    world.store[broken.version] = world.roster = broken
    asked: list[float] = []
    ask_store = world._ask_store

    def counted(me: PeerId, proposed: Roster | None) -> None:
        asked.append(world.now)
        ask_store(me, proposed)

    world._ask_store = counted  # type: ignore[method-assign]
    world.crash(PeerId(2))
    world.pass_(60)

    assert len(asked) < 3 * 60  # three brokers, at most one question in a beat


def test_the_grid_is_that_of_the_others() -> None:
    assert GRID.region_digits == 3


def crowd(world: Open, digits: str, clients: int) -> list[PeerId]:
    """Clients that all want a region, each from its owner."""
    box = box_of(GRID, cell(digits))
    ask = box_query(box.x0, box.y0, box.x1, box.y1)
    return [world.pose(ask, at=world.owning()[digits]) for _ in range(clients)]


def test_one_with_much_more_load_than_the_one_beside_it_gives_a_region_away_and_no_more() -> None:
    world = Open(policy=lambda: Ours(True))
    clients = [*crowd(world, "010", 8), *crowd(world, "011", 8)]
    world.tick(8)
    assert world.roster.version == 1, "it does not wait"
    before = world.owning()

    world.tick(2 * STEADY, pause_s=1.0)

    after = world.owning()
    moved = {digits for digits in before if after[digits] != before[digits]}
    assert moved in ({"010"}, {"011"})
    assert after[moved.pop()] in (0, 2)
    version = world.roster.version
    world.tick(2 * STEADY, pause_s=1.0)
    assert world.roster.version == version, "it goes back and forth"
    assert [world.heard(client) for client in clients] == [["admitted"]] * 16
    assert world.at_rest() == []


@pytest.mark.parametrize(
    "crowds",
    [
        pytest.param({"010": 1, "011": 1}, id="too little to be worth it"),
        pytest.param({"010": 16}, id="it would only be another one that has it all"),
        pytest.param({"000": 7, "001": 3, "010": 8, "011": 8, "100": 5, "101": 5}, id="not twice as much"),
    ],
)
def test_a_load_that_a_hand_over_would_not_even_out_stays_where_it_is(crowds: dict[str, int]) -> None:
    world = Open(policy=lambda: Ours(True))
    for digits, clients in crowds.items():
        crowd(world, digits, clients)

    world.tick(2 * STEADY, pause_s=1.0)

    assert world.roster.version == 1
