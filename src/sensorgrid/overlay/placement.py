"""Who is responsible for which region, and what a roster becomes when brokers come and go.

A broker has a place on the line of IDs (Z-order, `sensorgrid.index.zorder`) and is responsible for the regions whose
first ID lies between its place and the next larger one; the last one wraps around (operators paper, III-A). The owner
of a region follows: whoever is responsible for it becomes its heir, takes it as a relay, and owns it when it has it.

A `Draft` collects all that one broker wants changed at a moment, and gives the next version of the roster. It is made
anew from the newest roster whenever another version came first: no proposal is ever repeated as it was.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from sensorgrid.index.zorder import Owners
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.geography import first_of
from sensorgrid.overlay.roster import Member, Region, Roster

Key = tuple[int, int]
"""attribute and cell of a region"""


def responsible(roster: Roster, members: Iterable[Member] | None = None) -> dict[Key, PeerId]:
    """Whose range each region lies in: of those who stay and want regions, if there are any."""
    given = list(roster.members if members is None else members)
    chosen = [m for m in given if not m.leaving and not m.relay] or [m for m in given if not m.relay] or given
    if not chosen:
        return {}
    by_place = {member.place: member.id for member in sorted(chosen, key=lambda m: -m.id)}
    owners = Owners(by_place, roster.terms.depth)
    return {
        (r.attribute, r.cell): by_place[owners.of(first_of(r.cell, roster.terms.depth))]
        for r in roster.regions
    }


def ring(roster: Roster) -> list[PeerId]:
    """All brokers in the order of their places."""
    return [member.id for member in sorted(roster.members, key=lambda m: (m.place, m.id))]


def place_between(roster: Roster) -> int:
    """Where a newcomer helps most: in the middle of the regions of the broker that owns most of them."""
    digits = roster.terms.depth
    taken = {member.place for member in roster.members}
    owned: dict[PeerId, list[int]] = {}
    for key, owner in responsible(roster).items():
        owned.setdefault(owner, []).append(first_of(key[1], digits))
    for _, owner in sorted((-len(set(firsts)), owner) for owner, firsts in owned.items()):
        firsts = sorted(
            set(owned[owner]), key=lambda first: (first - roster.by_id[owner].place) % (1 << digits)
        )
        for first in firsts[(len(firsts) + 1) // 2 :]:
            if first not in taken:
                return first
    return free_place(roster, 0)


def free_place(roster: Roster, place: int) -> int:
    """The first place from this one on, around the end, that nobody has."""
    taken, size = {member.place for member in roster.members}, 1 << roster.terms.depth
    return next(
        (p % size for p in range(place, place + len(taken) + 1) if p % size not in taken), place % size
    )


class Draft:
    """The next version of a roster, as one broker wants it.

    Examples
    --------
    >>> from sensorgrid.model.grid import Grid
    >>> from sensorgrid.overlay.roster import Terms
    >>> from sensorgrid.overlay.settings import Settings
    >>> terms = Terms.of(Grid(), Settings(budget=1, depth=2))
    >>> regions = tuple(Region(0, 0b100 + n, PeerId(0), 1) for n in range(4))
    >>> draft = Draft(Roster(1, terms, (Member(PeerId(0)),), regions))
    >>> draft.join(Member(PeerId(1), place=2))
    >>> draft.inherit(PeerId(1))
    >>> [region.heir for region in draft.done().regions]
    [None, None, 1, 1]
    """

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.members = dict(roster.by_id)
        self.regions = dict(roster.by_cell)

    def done(self) -> Roster | None:
        """The next version; None if nothing is changed."""
        members, regions = tuple(self.members.values()), tuple(self.regions.values())
        if (members, regions) == (self.roster.members, self.roster.regions):
            return None
        return self.roster.next(members=members, regions=regions)

    def join(self, member: Member) -> None:
        """A broker comes; it gets another place if its own is taken."""
        if member.id not in self.members:
            place = member.place if member.relay else free_place(self.roster, member.place)
            self.members[member.id] = replace(member, place=place)

    def leave(self, broker: PeerId) -> None:
        """A broker is about to go: others become responsible for what is its own."""
        if broker in self.members:
            self.members[broker] = replace(self.members[broker], leaving=True)

    def stay(self, broker: PeerId) -> None:
        """A broker that was about to go is back."""
        if broker in self.members:
            self.members[broker] = replace(self.members[broker], leaving=False)

    def dialled_at(self, broker: PeerId, url: str) -> None:
        """A broker is reached elsewhere now."""
        if broker in self.members:
            self.members[broker] = replace(self.members[broker], url=url)

    def move(self, places: Mapping[PeerId, int]) -> None:
        """Brokers get other places, and heirs follow."""
        for broker, place in places.items():
            if broker in self.members:
                self.members[broker] = replace(self.members[broker], place=place)

    def accuse(self, brokers: Iterable[PeerId]) -> None:
        """Somebody does not hear them any more."""
        for broker in brokers:
            if broker in self.members and not self.members[broker].accused:
                self.members[broker] = replace(self.members[broker], accused=True)

    def acquit(self, brokers: Iterable[PeerId]) -> None:
        """Somebody does hear them."""
        for broker in brokers:
            if broker in self.members and self.members[broker].accused:
                self.members[broker] = replace(self.members[broker], accused=False)

    def remove(self, brokers: Collection[PeerId]) -> None:
        """They are gone: whoever is responsible now owns what was theirs, at once."""
        left = {broker: m for broker, m in self.members.items() if broker not in brokers}
        if not left or len(left) == len(self.members):
            return
        self.members = left
        heirs = responsible(self.roster, left.values())
        for key, region in self.regions.items():
            if region.owner in brokers:
                self.regions[key] = Region(*key, heirs[key], region.epoch + 1)
            elif region.heir in brokers:
                self.regions[key] = replace(region, heir=None)

    def inherit(self, me: PeerId) -> None:
        """I become the heir of what I am responsible for, and of nothing else."""
        for key, owner in responsible(self.roster, self.members.values()).items():
            region = self.regions[key]
            if owner == me and region.owner != me and region.heir != me:
                self.regions[key] = replace(region, heir=me)
            elif owner != me and region.heir == me:
                self.regions[key] = replace(region, heir=None)

    def promote(self, me: PeerId, ready: Collection[Key]) -> None:
        """I own what I am the heir of, and have."""
        for key in ready:
            region = self.regions.get(key)
            if region is not None and region.heir == me and region.owner != me:
                self.regions[key] = Region(*key, me, region.epoch + 1)


def balanced(roster: Roster, load: dict[Key, float], slack: float = 1.25) -> dict[PeerId, int]:
    """New places that even out load, of those brokers that have to move; none if no broker has `slack` times the mean.

    Brokers keep their order, so that only the borders between their ranges move, each to the beginning of a region.
    """
    digits = roster.terms.depth
    owners = [roster.by_id[peer] for peer in ring(roster) if _owns(roster.by_id[peer])]
    firsts: dict[int, float] = {}
    for attribute, cell in roster.by_cell:
        first = first_of(cell, digits)
        firsts[first] = firsts.get(first, 0.0) + load.get((attribute, cell), 0.0)
    if len(owners) < 2 or len(roster.members) > 1 << digits or not sum(firsts.values()):
        return {}
    held: dict[PeerId, float] = dict.fromkeys((m.id for m in owners), 0.0)
    for key, owner in responsible(roster).items():
        held[owner] += load.get(key, 0.0)
    mean = sum(held.values()) / len(owners)
    if max(held.values()) <= slack * mean:
        return {}
    line = sorted(firsts)
    starts = _parted([firsts[first] for first in line], len(owners))
    places: dict[PeerId, int] = {}
    used: set[int] = {m.place for m in roster.members if not _owns(m)}
    for member, start in zip(owners, starts, strict=True):
        # Without a run of its own it stands behind the one before it, where no region begins.
        place = line[start] if start < len(line) else (max(places.values()) + 1) % (1 << digits)
        while place in used:
            place = (place + 1) % (1 << digits)
        places[member.id] = place
        used.add(place)
    moved = {peer: place for peer, place in places.items() if place != roster.by_id[peer].place}
    after: dict[PeerId, float] = {}
    changed = [replace(m, place=places.get(m.id, m.place)) for m in roster.members]
    for key, owner in responsible(roster, changed).items():
        after[owner] = after.get(owner, 0.0) + load.get(key, 0.0)
    return moved if max(after.values()) < max(held.values()) else {}


def _owns(member: Member) -> bool:
    return not member.relay and not member.leaving


def _parted(loads: list[float], parts: int) -> list[int]:
    """Where each of so many runs of loads begins, so that the heaviest is as light as can be."""

    def runs(most: float) -> list[int]:
        starts, held = [0], 0.0
        for at, load in enumerate(loads):
            if held and held + load > most and len(starts) < parts:
                starts.append(at)
                held = 0.0
            held += load
        return starts

    def heaviest(starts: list[int]) -> float:
        ends = [*starts[1:], len(loads)]
        return max(sum(loads[a:b]) for a, b in zip(starts, ends, strict=True))

    low, high = max(loads), sum(loads)
    for _ in range(50):
        middle = (low + high) / 2
        if heaviest(runs(middle)) <= middle:
            high = middle
        else:
            low = middle
    starts = runs(high)
    return starts + [len(loads)] * (parts - len(starts))
