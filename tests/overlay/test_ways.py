"""Who is asked next: over the map, by prefix, and straight where brokers are few."""

import pytest

from hands import box_query, cell, settings
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay import ways
from sensorgrid.overlay.geography import first_of
from sensorgrid.overlay.messages import Find, Message
from sensorgrid.simulator.world import World
from worlds import SmallWorld

OWNERS = {f"{number:03b}": number for number in range(8)}


class Lined(SmallWorld):
    """Eight brokers with a region each, whose places are where their regions begin."""

    def __init__(self, by_prefix: bool) -> None:
        super().__init__(OWNERS, beat_s=1.0, by_prefix=by_prefix)
        self.asked: list[tuple[int, int]] = []
        self.on_send = self._said
        self.pass_(5)

    def _said(self, me: PeerId, peer: PeerId, message: Message) -> None:
        if type(message) is Find:
            self.asked.append((me, peer))

    def ask_for(self, digits: str, at: int) -> list[tuple[int, int]]:
        """A client of a broker asks for points of a region: who asks whom."""
        self.asked.clear()
        client = self.pose(REGIONS[digits], at)
        self.tick(2)
        assert self.got_all(client, REGIONS[digits])
        return list(self.asked)


def _regions() -> dict[str, tuple[int, int, int, int]]:
    from hands import GRID
    from sensorgrid.overlay.geography import box_of

    boxes = {digits: box_of(GRID, cell(digits)) for digits in OWNERS}
    return {digits: (box.x0, box.y0, box.x1, box.y1) for digits, box in boxes.items()}


REGIONS = {digits: box_query(*box) for digits, box in _regions().items()}


def test_few_brokers_ask_the_owner_at_once() -> None:
    world = Lined(by_prefix=True)

    assert world.ask_for("110", at=0) == [(0, 6)]
    assert world.ask_for("011", at=5) == [(5, 3)]


def test_more_brokers_ask_along_their_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "LINKS_MAX", 3)
    world = Lined(by_prefix=True)
    from sensorgrid.overlay.prefixes import PrefixLinks

    assert world.roster is not None
    links = PrefixLinks.of_roster(world.roster)
    for at, digits in ((0, "110"), (5, "011"), (3, "111"), (0, "100")):
        to = PeerId(int(digits, 2))
        expected = list(zip([at, *links.way(PeerId(at), to)], links.way(PeerId(at), to), strict=False))
        assert world.ask_for(digits, at) == expected
    for peer in links.of(PeerId(0)):
        assert (PeerId(0), peer) in world.connections  # kept open


def test_a_question_for_more_than_a_region_is_cut_where_owners_change() -> None:
    world = Lined(by_prefix=True)
    world.asked.clear()
    client = world.pose(box_query(0, 0, 16, 16), at=0)

    world.tick(2)

    assert world.got_all(client, box_query(0, 0, 16, 16))
    assert sorted(world.asked) == [(0, other) for other in range(1, 8)]


def test_places_are_where_regions_begin() -> None:
    world: World = Lined(by_prefix=True)

    assert world.roster is not None
    depth = settings().depth
    assert [m.place for m in world.roster.members] == [first_of(cell(digits), depth) for digits in OWNERS]
