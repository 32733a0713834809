"""The roster: what it says, where two contradict each other, and how a broker, a client and a receiver follow it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import msgspec
import pytest

from hands import ANNA, GRID, LoneBroker, LoneClient, cell, closed, sent, settings
from receiver import Receiver
from sensorgrid.index.codes import prefixes
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.codec import CodecError, decode_all, encode
from sensorgrid.overlay.events import Learned, PeerUp
from sensorgrid.overlay.messages import Grant, Holds, Told, Want
from sensorgrid.overlay.roster import Differs, Member, Region, Roster, RosterError, Terms

TERMS = Terms.of(GRID, settings())


def roster(version: int = 1, **owners: int) -> Roster:
    """Regions by digits, as in ``_000=1``."""
    regions = tuple(Region(0, cell(digits[1:]), PeerId(owner), version) for digits, owner in owners.items())
    return Roster(version, TERMS, tuple(Member(PeerId(n), f"ws://{n}") for n in range(4)), regions)


# -- the value


def test_a_cell_lies_in_the_region_that_contains_it() -> None:
    held = roster(_000=1, _001=2)

    assert held.region(0, cell("0010")) == Region(0, cell("001"), PeerId(2), 1)
    assert held.region(0, cell("00")) is None, "it lies in two"
    assert held.region(1, cell("000")) is None, "of another attribute"


@pytest.mark.parametrize("code", [0, -1, -5])
def test_what_is_no_cell_lies_nowhere(code: int) -> None:
    assert list(islice(prefixes(code), 3)) == []


def test_a_region_that_is_handed_over_has_a_higher_epoch_and_no_heir() -> None:
    promised = roster(_000=1).promised(0, cell("000"), PeerId(2))

    later = promised.handed_over(0, cell("000"), PeerId(2))

    assert promised.by_heir == {2: (Region(0, cell("000"), PeerId(1), 1, PeerId(2)),)}
    assert (later.version, later.by_heir) == (3, {})
    assert later.regions == (Region(0, cell("000"), PeerId(2), 2),)


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"terms": Terms.of(replace(GRID, tick=2), settings())}, Differs.GRID, "grid: found"),
        (
            {"terms": Terms.of(GRID, settings(ring_ticks=9))},
            Differs.SETTINGS,
            "ring_ticks: found 9, expected 12",
        ),
        ({"members": (Member(PeerId(9)),)}, Differs.BROKERS, "brokers of roster 1"),
        ({"regions": ()}, Differs.REGIONS, "regions of roster 1"),
    ],
)
def test_a_contradiction_is_named(change: dict[str, object], code: Differs, text: str) -> None:
    mine, theirs = roster(_000=1), replace(roster(_000=1), **change)  # type: ignore[arg-type]

    found = mine.summary.difference(theirs.summary)

    assert found is not None
    assert found.code == code
    assert found.text.startswith(text)


def test_versions_may_differ_and_addresses_too() -> None:
    mine = roster(_000=1)
    elsewhere = tuple(Member(m.id, f"{m.url}:99") for m in mine.members)

    assert mine.summary.difference(mine.handed_over(0, cell("000"), PeerId(2)).summary) is None
    assert mine.summary.difference(replace(mine, members=elsewhere).summary) is None


def test_a_roster_has_a_version() -> None:
    with pytest.raises(RosterError, match="found version 0, expected 1 or more"):
        roster(0)


# -- a broker


def test_a_broker_tells_a_newer_roster_and_keeps_quiet_about_an_older_one() -> None:
    broker = LoneBroker(others={"001": 1}, brokers=(2,))
    broker.up(1, 2, ANNA)
    old = broker.boards.roster.current

    told = broker.say(1, Told.of(old.handed_over(0, cell("001"), PeerId(2))))
    again = broker.say(1, Told.of(old))

    assert [peer for peer in (1, 2, ANNA) if sent(told, Told, peer)] == [1, 2, ANNA]
    assert sent(again, Told) == []
    assert broker.boards.roster.current.version == 2


def test_the_one_that_is_ahead_tells_and_the_one_that_is_behind_asks() -> None:
    broker = LoneBroker(others={"001": 1}, brokers=(2,))
    broker.feed(Learned(broker.boards.roster.current.handed_over(0, cell("001"), PeerId(2))))
    held = broker.boards.roster.current

    first = broker.up(1)
    behind = broker.say(1, Holds(1, "whatever"))
    ahead = broker.say(1, Holds(7, "whatever"))

    assert sent(first, Holds, 1) == [Holds(2, held.digest)]
    assert [m.version for m in sent(behind, Told, 1)] == [2]
    assert sent(ahead, Holds, 1) == [Holds(2, held.digest)]


def test_a_broker_does_not_talk_to_one_with_another_roster_of_the_same_version() -> None:
    broker = LoneBroker(others={"001": 1})
    broker.up(1)

    assert closed(broker.say(1, Holds(1, broker.boards.roster.current.digest))) == []
    assert closed(broker.say(1, Holds(1, "another"))) == [1]


def test_a_roster_with_other_terms_is_not_taken() -> None:
    broker = LoneBroker()
    held = broker.boards.roster.current

    broker.feed(Learned(replace(held, version=2, terms=Terms.of(GRID, settings(depth=5)))))

    assert broker.boards.roster.current is held


def _with(held: Roster, **changes: object) -> Roster:
    """A newer one, in which the first region is another."""
    first = msgspec.structs.replace(held.regions[0], **changes)
    return replace(held, version=2, regions=(first, *held.regions[1:]))


FAULTS: dict[str, Callable[[Roster], Roster]] = {
    "expected a cell of at most": lambda r: _with(r, cell=1 << 40),
    "region -101": lambda r: _with(r, cell=-5),
    "region 0 of": lambda r: _with(r, cell=0),
    "expected an attribute below": lambda r: _with(r, attribute=99),
    "found broker 77": lambda r: _with(r, owner=PeerId(77), epoch=2),
    "found broker 78": lambda r: _with(r, heir=PeerId(78)),
    "expected regions that do not overlap": lambda r: _with(r, cell=r.regions[1].cell >> 1),
    "found a region twice": lambda r: _with(r, cell=r.regions[1].cell),
    "found a broker twice": lambda r: replace(r, version=2, members=r.members * 2),
    "found epoch 0, expected 1": lambda r: _with(r, epoch=0),
    "found epoch 1, expected 2": lambda r: _with(r, owner=PeerId(1)),
    "found epoch 1099511627775": lambda r: _with(r, epoch=(1 << 40) - 1),
    "expected a version up to": lambda r: replace(r, version=1 << 39),
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_broker_that_tells_a_roster_with_a_fault_is_left_and_nothing_taken(text: str) -> None:
    broker = LoneBroker(others={"001": 1})
    broker.up(1)
    held = broker.boards.roster.current
    bad = FAULTS[text](held)

    effects = broker.say(1, Told.of(bad))

    assert text in bad.fault(GRID, held)
    assert closed(effects) == [1]
    assert broker.boards.roster.current is held
    assert sent(effects, Told) == []


def test_no_region_of_a_whole_roster_is_lost() -> None:
    count = 1 << GRID.region_digits
    whole = Roster(
        1,
        TERMS,
        (Member(PeerId(0)),),
        tuple(
            Region(a, cell, PeerId(0), 1)
            for a in range(len(GRID.attributes))
            for cell in range(count, 2 * count)
        ),
    )

    assert whole.fault(GRID, whole) == ""
    assert "expected all as in roster 1" in replace(whole, regions=whole.regions[1:]).fault(GRID, whole)
    assert replace(whole, regions=whole.regions[1:]).fault(GRID) == ""


@pytest.mark.parametrize(
    "change", [{"cell": -5}, {"cell": 0}, {"epoch": -1}, {"owner": 1 << 20}, {"heir": -1}]
)
def test_what_is_no_region_is_not_even_read(change: dict[str, int]) -> None:
    with pytest.raises(CodecError):
        decode_all(encode(Told.of(_with(roster(_000=1), **change))))


def test_nothing_new_is_said_to_a_peer_of_an_older_version() -> None:
    broker = LoneBroker(others={"001": 1}, brokers=(2,))
    broker.feed(PeerUp(PeerId(1), 1))
    broker.up(2)

    effects = broker.feed(Learned(broker.boards.roster.current.handed_over(0, cell("001"), PeerId(2))))

    assert sent(effects, Told, 1) == []
    assert len(sent(effects, Told, 2)) == 1
    assert "Told" in broker.kernel.counters.messages
    assert broker.kernel.counters.messages["Told"] == 1, "what is not said is not counted"


# -- a client


def test_a_client_asks_brokers_that_are_there() -> None:
    me = LoneClient(brokers=(0, 1))
    me.up(0)

    me.say(0, Told.of(replace(roster(2, _000=3), members=tuple(Member(PeerId(n)) for n in (1, 3)))))

    assert me.actor.brokers == (1, 3)


def test_a_client_that_is_behind_says_so() -> None:
    me = LoneClient()
    me.up(0)

    assert sent(me.say(0, Holds(3, "")), Holds) == [Holds(0, "")]
    me.say(0, Told.of(roster(3, _000=1)))
    assert sent(me.say(0, Holds(3, "")), Holds) == []


# -- a receiver


def test_a_feed_is_not_left_for_one_of_an_older_epoch() -> None:
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.intake.granted(PeerId(1), Grant(1, (cell("000"),), (PeerId(0), PeerId(1)), 3))
    me.redirect(1, 2, ("000", "000"))

    me.intake.granted(PeerId(2), Grant(2, (cell("000"),), (PeerId(2),), 2))

    assert piece.feed is not None
    assert piece.feed.peer == 1
    assert piece.trial is None
    assert me.left() == [(2, 2)]


def test_a_newer_epoch_is_taken_when_it_reaches_the_next_tick() -> None:
    me = Receiver()
    piece = me.fed_by(1, "000")
    me.intake.granted(PeerId(1), Grant(1, (cell("000"),), (PeerId(0), PeerId(1)), 2))
    me.redirect(1, 2, ("000", "000"))
    me.feed(1, "000", 0, generation=1)

    me.intake.granted(PeerId(2), Grant(2, (cell("000"),), (PeerId(2),), 3))
    early = piece.feed
    me.feed(2, "000", 0, generation=2)

    assert early is not None
    assert early.peer == 1
    assert piece.feed is not None
    assert (piece.feed.peer, piece.feed.epoch) == (2, 3)


def test_what_still_comes_from_an_old_owner_after_a_while_is_asked_of_the_new_one() -> None:
    """Old owners see to it themselves, unless they are cut off from everybody but this receiver."""
    me = Receiver()
    piece = me.fed_by(1, "000", path=(1,))
    me.intake.granted(PeerId(1), Grant(1, (cell("000"),), (PeerId(1),), 1))

    me.intake.succeeded(roster(2, _000=5))
    before = len(me.asked())
    me.now = 3.0
    me.intake.woke()

    assert me.asked()[before:] == [5]
    assert piece.feed is not None, "make before break"
    assert piece.feed.peer == 1


def test_what_follows_the_roster_in_time_is_left_where_it_is() -> None:
    me = Receiver()
    me.fed_by(1, "000", path=(1,))
    me.intake.granted(PeerId(1), Grant(1, (cell("000"),), (PeerId(1),), 1))
    me.intake.succeeded(roster(2, _000=5))

    me.intake.granted(PeerId(1), Grant(1, (cell("000"),), (PeerId(5), PeerId(1)), 2))
    me.now = 9.0
    me.intake.woke()

    assert me.asked() == [1]
    assert me.intake.next_wakeup() is None


def test_a_receiver_says_which_revisions_it_has() -> None:
    """Rule 7: of recent ticks only, gaps as -1."""
    me = Receiver()
    piece = me.fed_by(1, "000")
    for tick in range(8):
        me.feed(1, "000", tick, generation=1)
    me.feed(1, "000", 1, revision=2, generation=1)
    me.feed(1, "000", 6, revision=1, generation=1)
    piece.revisions[5] = -1

    me.intake.ask([piece], PeerId(2))

    want = me.last[1]
    assert isinstance(want, Want)
    assert sorted(want.held) == [(cell("000"), 5, -1), (cell("000"), 6, 1)]


def test_the_parts_of_a_stream_come_from_the_owner_that_the_whole_came_from() -> None:
    me = Receiver()
    piece = me.fed_by(1, "00")
    me.intake.granted(PeerId(1), Grant(1, (cell("00"),), (PeerId(0), PeerId(1)), 4))

    me.redirect(1, 2, ("00", "000"))

    assert piece not in me.pieces
    assert [part.feed.epoch for part in me.pieces if part.feed is not None] == [4, 4]
