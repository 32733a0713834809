"""Golden conversations: what brokers and clients say to each other, to be read and reviewed as prose.

``pytest tests/overlay/test_conversations.py --golden`` writes them anew.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hands import REGION, box_query, cell
from sensorgrid.model.ids import BROKERS_MAX, PeerId, QueryId, is_broker
from sensorgrid.model.query import Query
from sensorgrid.overlay import messages
from sensorgrid.overlay.events import Effect, Reply
from sensorgrid.overlay.roster import Region
from sensorgrid.simulator.checkers import brokers_of, circles, conservation
from worlds import SmallWorld

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("Anna", "Ben", "Carl", "Dora")
ALL = box_query(0, 0, 4, 8)
"""region 000"""


class Recorded(SmallWorld):
    """A world that writes down what is said; the brokers' small talk is left out."""

    def __init__(self, owners: dict[str, int], **changes: Any) -> None:
        self.lines: list[str] = []
        super().__init__(owners, **changes)
        self.lines.clear()
        self.on_send = self.said

    def narrate(self, text: str) -> None:
        """What happens, between what is said."""
        self.lines.append(f"\n{self.now:7.3f}  -- {text}")

    def said(self, me: PeerId, peer: PeerId, message: messages.Message) -> None:
        if not isinstance(message, messages.Alive | messages.News):
            self.lines.append(f"{self.now:7.3f}  {who(me)} -> {who(peer)}: {words(message)}")

    def _apply(self, me: PeerId, effect: Effect) -> None:
        if isinstance(effect, Reply):
            reason = f" ({effect.reason})" if effect.reason else ""
            self.lines.append(f"{self.now:7.3f}  {who(me)}'s query is {effect.status}{reason}")
        super()._apply(me, effect)

    def ask(self, ask: Query, at: int, **more: Any) -> PeerId:
        """A client comes."""
        client = self.pose(ask, at, **more)
        x0, y0, x1, y1 = (int(v) for v in ask.bbox or ())
        stays = "" if more.get("roams", True) else ", and can dial nobody else"
        coarse = "" if ask.resolution == (1.0, 1.0, 1.0) else f" at resolution {ask.resolution}"
        self.narrate(
            f"{who(client)} asks broker {at} for columns {x0} to {x1}, rows {y0} to {y1}{coarse}{stays}"
        )
        return client

    def change(self, digits: str, owner: int, heir: int | None, told: int) -> None:
        """Another roster, of which one broker is told."""
        key = (0, cell(digits))
        before = self.regions[key]
        epoch = before.epoch + (owner != before.owner)
        region = Region(*key, PeerId(owner), epoch, None if heir is None else PeerId(heir))
        self.assign([region if at == key else r for at, r in self.regions.items()], told=[PeerId(told)])

    def publish_ticks(self, count: int = 1) -> None:
        """The pipeline speaks."""
        for _ in range(count):
            self.narrate(f"the pipeline publishes tick {self.ticks}")
            self.tick()


def who(peer: PeerId) -> str:
    return f"broker {peer}" if is_broker(peer) else NAMES[peer - BROKERS_MAX]


def digits(code: int) -> str:
    return bin(code)[3:] or "the whole grid"


def several(codes: tuple[int, ...]) -> str:
    return ", ".join(map(digits, codes))


def words(message: messages.Message) -> str:
    match message:
        case messages.Want(generation, _, items, clip, until, via, _):
            starts = dict.fromkeys(start for _, _, start in items)
            cells = "; ".join(
                f"{several(tuple(code for code, _, tick in items if tick == start))} from tick {start} on"
                for start in starts
            )
            whole = "" if clip is not None else ", whole"
            sender = "" if via is None else f"; {who(via)} sent me"
            end = "" if until is None else f"; until tick {until}"
            return f"#{generation} I want {cells}{whole}{end}{sender}"
        case messages.Leave(generation, cells):
            return f"#{generation} I leave {several(cells)}"
        case messages.Grant(generation, cells, path):
            way = "a way unknown at present" if path is None else " > ".join(map(str, path))
            return f"#{generation} I feed you {several(cells)}, which comes by {way}"
        case messages.Refuse(generation, cells, reason, elsewhere, parts):
            hint = f"; ask {' or '.join(map(who, elsewhere))}" if elsewhere else ""
            cut = f"; ask for {several(parts)}" if parts else ""
            return f"#{generation} I do not feed you {several(cells)}: {reason}{hint}{cut}"
        case messages.Redirect(generation, items, to):
            return f"#{generation} take {several(tuple(part for _, part in items))} from {who(to)}"
        case messages.Feed(generation, code, tick, revision, slabs, until):
            points = sum(slab.points for slab in slabs or ())
            again = f", revision {revision}" if revision else ""
            held = f"{points} points" if slabs is not None else "a gap" + (f" until {until}" if until else "")
            return f"#{generation} tick {tick} of {digits(code)}{again}: {held}"
        case messages.Ask(_, _, cells, owner):
            return f"who {'owns' if owner else 'can feed me'} {several(cells)}?"
        case messages.Find(asker, _, _, cells, owner, _):
            return f"{who(asker)} asks who {'owns' if owner else 'can feed'} {several(cells)}"
        case messages.Found(asker, _, _, items, _):
            return f"tell {who(asker)}: {_places(items)}"
        case messages.Located(_, _, items):
            return _places(items)
        case messages.Offer(_, _, code, load):
            return f"will you take {digits(code)} from me, and feed {load} points of my load?"
        case messages.Answer(_, load):
            return f"I reserve {load} points for you" if load else "no"
        case messages.Moving(_, load):
            return f"{load} points will come"
        case messages.Holds(version):
            return f"I hold roster {version}"
        case messages.Told(version):
            return f"this is roster {version}"
    raise AssertionError(f"no words for {message}")


def _places(items: tuple[tuple[int, PeerId | None], ...]) -> str:
    return ", ".join(f"{digits(code)} {'nowhere' if p is None else 'at ' + who(p)}" for code, p in items)


# -- the conversations


def a_query_over_two_owners() -> Recorded:
    """A query is located by way of any broker, admitted whole, then fed by two owners."""
    world = Recorded({"000": 0, "001": 1, "010": 2})
    ask = box_query(0, 0, 8, 8)
    client = world.ask(ask, at=2)
    world.pass_(1)
    world.publish_ticks(2)
    world.narrate("Anna has enough")
    world.cancel(client, QueryId(1))
    world.pass_(1)

    assert world.heard(client) == ["admitted", "cancelled"]
    assert world.got_all(client, ask)
    return world


def a_delegation() -> Recorded:
    """Two receivers move to a relay: make before break, and each tick comes once."""
    world = Recorded({"000": 0, "001": 1})
    clients = [world.ask(ALL, at=0), world.ask(ALL, at=0)]
    world.pass_(1)
    world.publish_ticks()
    world.narrate("an operator wants broker 1 to feed the receivers of 000")
    world.advise(0, "000", 1)
    world.pass_(1)
    world.publish_ticks()

    assert world.path(1, "000") == (0, 1)
    assert all(world.got_all(client, ALL) for client in clients)
    return world


def crossed_redirects() -> Recorded:
    """Two relays are sent to each other: a circle, which the paths show, and which both leave for the owner."""
    slow = {PeerId(1), PeerId(2)}
    world = Recorded({"000": 0, "001": 1, "010": 2}, delay_s=lambda a, b: 0.05 if {a, b} == slow else 0.01)
    clients = [world.ask(ALL, at=1, roams=False), world.ask(ALL, at=2, roams=False)]
    world.pass_(1)
    world.publish_ticks()
    world.narrate("operators want broker 1 to take 000 from broker 2, and broker 2 to take it from broker 1")
    world.advise(0, "000", 2)
    world.after(0.021, lambda: world.advise(0, "000", 1))
    world.pass_(1)
    world.publish_ticks()

    assert sum(broker.boards.intake.circles for broker in brokers_of(world).values()) == 2
    assert list(circles(world)) == []
    assert all(world.got_all(client, ALL) for client in clients)
    return world


def a_relay_dies() -> Recorded:
    """Its receivers look for the owner and go on where they were."""
    world = Recorded({"000": 0, "001": 1})
    clients = [world.pose(ALL), world.pose(ALL)]
    world.pass_(1)
    world.tick()
    world.advise(0, "000", 1)
    world.pass_(1)
    world.lines.clear()
    world.publish_ticks()
    world.narrate("broker 1 crashes")
    world.crash(PeerId(1))
    world.publish_ticks()
    world.pass_(2)

    assert all(world.heard(client) == ["admitted"] for client in clients)
    assert all(world.got_all(client, ALL) for client in clients)
    return world


def a_refinement() -> Recorded:
    """From every second column to all: only the other half starts, from a tick on that both can reach."""
    world = Recorded({"000": 0, "001": 1}, slack_ticks=1)
    client = world.ask(box_query(0, 0, 4, 8, resolution=(0.5, 1.0, 1.0)), at=0)
    world.pass_(1)
    world.publish_ticks()
    world.narrate("Anna wants all columns")
    world.deliveries.expect(client, QueryId(1), ALL, 0)
    world.refine(client, QueryId(1), ALL)
    world.pass_(1)
    world.publish_ticks(2)

    assert world.heard(client) == ["admitted", "refined"]
    return world


def an_eviction() -> Recorded:
    """Broker 0 can feed two. A broker's request takes the slot of one client, which moves to that broker."""
    world = Recorded({"000": 0, "001": 1}, budgets={0: 2 * REGION})
    clients = [world.ask(ALL, at=0), world.ask(ALL, at=0)]
    world.pass_(1)
    world.publish_ticks()
    clients.append(world.ask(ALL, at=1, roams=False))
    world.pass_(1)
    world.publish_ticks()

    assert brokers_of(world)[PeerId(0)].kernel.counters.evictions == 1
    assert [world.heard(client) for client in clients] == [["admitted"]] * 3
    assert all(world.got_all(client, ALL) for client in clients[:2])
    return world


def a_hand_over() -> Recorded:
    """A region changes hands: the heir takes it first, then owns it, and the old owner feeds until all have left."""
    world = Recorded({"000": 0, "001": 1, "010": 2})
    client = world.ask(ALL, at=0)
    world.pass_(1)
    world.publish_ticks()
    world.narrate("a roster makes broker 1 the heir of 000, and only broker 2 is told of it")
    world.change("000", owner=0, heir=1, told=2)
    world.pass_(1)
    world.publish_ticks()
    world.narrate("a roster makes broker 1 the owner of 000; broker 2 is told again")
    world.change("000", owner=1, heir=None, told=2)
    world.pass_(1)
    world.publish_ticks(2)

    assert world.heard(client) == ["admitted"]
    assert world.got_all(client, ALL)
    assert world.path(1, "000") == (1,)
    assert world.path(0, "000") is None
    return world


CONVERSATIONS: tuple[Callable[[], Recorded], ...] = (
    a_query_over_two_owners,
    a_delegation,
    crossed_redirects,
    a_relay_dies,
    a_refinement,
    an_eviction,
    a_hand_over,
)


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda c: c.__name__)
def test_they_talk_as_they_always_did(
    conversation: Callable[[], Recorded], request: pytest.FixtureRequest
) -> None:
    world = conversation()
    assert list(conservation(world)) == []

    title = conversation.__doc__ or ""
    text = "\n".join([f"# {title}", *world.lines]) + "\n"

    path = GOLDEN / f"{conversation.__name__}.txt"
    if request.config.getoption("--golden"):
        path.write_text(text)
    assert text == path.read_text(), "if this is what it should be: --golden, and read the difference"


def test_every_golden_conversation_is_played() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {c.__name__ for c in CONVERSATIONS}
