"""The providing end of streams: entries, what they cost, and what feeds them.

A *supply* is what a broker has of an attribute: a region that it owns, or a cell that it takes from another
broker. It keeps a ring of recent ticks and feeds its entries in tick order. A supply that is taken from elsewhere
lives exactly as long as it has entries: interest upstream is a function of interest downstream.

`Outlets` holds all entries and the budget. What they ask for in total never exceeds it, reservations included.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sensorgrid.index.codes import beside, contains, prefixes
from sensorgrid.index.decompose import points_in
from sensorgrid.model.block import Slab
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.events import Published
from sensorgrid.overlay.forwarding import Table
from sensorgrid.overlay.geography import points_of
from sensorgrid.overlay.intake import Piece
from sensorgrid.overlay.kernel import Notebook
from sensorgrid.overlay.loads import Loads
from sensorgrid.overlay.messages import Clip, Path

NOTHING: Mapping[int, int] = MappingProxyType({})


class Entry:
    """What one receiver has from this broker under one name."""

    __slots__ = (
        "attribute", "cell", "clip", "generation", "going", "granted", "held", "in_step", "next", "peer", "size",
        "spread", "stays", "supply", "until",
    )  # fmt: skip

    def __init__(
        self,
        peer: PeerId,
        generation: int,
        attribute: int,
        cell: int,
        size: int,
        start: int,
        clip: Clip | None,
        until: int | None,
    ) -> None:
        self.peer = peer
        self.generation = generation
        self.attribute = attribute
        self.cell = cell
        self.size = size
        """points per period"""
        self.next = start
        """the tick that is sent next"""
        self.clip = clip
        self.until = until
        self.supply: Supply | None = None
        self.granted = False
        self.in_step = False
        """whether it is in its supply's plan; see `sensorgrid.overlay.forwarding`"""
        self.stays = False
        """its receiver can dial no other broker"""
        self.going: PeerId | None = None
        """where its receiver was redirected to"""
        self.spread: dict[int, int] | None = None
        """its points in each of the finest cells, computed on demand"""
        self.held = NOTHING
        """recent ticks before its first that its receiver has in another revision than 0, until it is fed"""

    def __repr__(self) -> str:
        return f"<Entry of {self.peer}: {self.attribute}:{bin(self.cell)[3:]}, {self.size} points>"

    @property
    def of_broker(self) -> bool:
        """Whether its receiver is a broker that takes the whole cell."""
        return self.clip is None

    @property
    def sits(self) -> bool:
        """Whether it is fed, could be fed by another broker, and is not on its way there."""
        return self.granted and self.going is None and not self.stays

    @property
    def movable(self) -> bool:
        """The same of a client's entry: those are what loads count and what a policy moves."""
        return self.clip is not None and self.sits


Tick = tuple[int, tuple[Slab, ...] | None]
"""revision and values; None: a gap"""


class Supply:
    """What a broker has of one cell, and who is fed from it."""

    __slots__ = (
        "attribute", "cell", "early", "entries", "epoch", "head", "moves", "owed", "past", "path", "piece",
        "reading", "ring", "since", "standing", "start", "table",
    )  # fmt: skip

    def __init__(self, attribute: int, cell: int, since: Instant) -> None:
        self.attribute = attribute
        self.cell = cell
        self.since = since
        self.entries: dict[tuple[PeerId, int, int], Entry] = {}
        self.owed = 0
        """points per period of its entries"""
        self.path: Path | None = None
        """from the owner to this broker, itself included; None: unknown"""
        self.piece: Piece | None = None
        """what it is taken through; None: a region of this broker"""
        self.early: list[Published] = []
        """what was published while the lake was being read, and does not follow on what is here"""
        self.past: Piece | None = None
        """brings ticks from before the ring's start"""
        self.epoch = 0
        """of the owner, this broker or the one that its path begins with"""
        self.reading = False
        """whether its owner, this broker, still waits for the tail of the lake"""
        self.standing = False
        """whether it is taken without receivers, because this broker is to own it"""
        self.moves: PeerId | None = None
        """the new owner, to which receivers are sent as soon as it feeds this broker"""
        self.ring: dict[int, Tick] = {}
        self.start: int | None = None
        """first tick from which on the ring has no holes"""
        self.head: int | None = None
        """the tick that is expected next; None: nothing known yet"""
        self.table = Table()
        """how a tick is cut for its entries"""

    @property
    def owned(self) -> bool:
        """Whether this broker is the owner."""
        return self.piece is None

    def revisions(self) -> dict[int, int]:
        """Recent ticks that are here, and so with its receivers, in another revision than 0; -1: as a gap."""
        return {tick: revision for tick, (revision, _) in self.ring.items() if revision}

    def keep(self, tick: int, revision: int, slabs: tuple[Slab, ...] | None, ring_ticks: int) -> None:
        """Remember a tick, forget the oldest."""
        self.ring[tick] = (revision, slabs)
        if self.head is None or tick >= self.head:
            if self.head is None or tick > self.head or self.start is None:
                self.start = tick
            self.head = tick + 1
        horizon = self.head - ring_ticks
        if self.start is not None and self.start < horizon:
            self.start = horizon
        if len(self.ring) > ring_ticks:
            for old in [t for t in self.ring if t < horizon]:
                del self.ring[old]


@dataclass(slots=True)
class Reservation:
    """Budget that is promised to receivers on their way here."""

    peer: PeerId
    number: int
    attribute: int
    cell: int
    left: int
    due: Instant
    provider: PeerId | None = None
    """the provider of the cell, if it is not the broker that asked"""


class Outlets:
    """All entries of a broker, its supplies, its budget and what is promised of it. Written by streams."""

    def __init__(
        self,
        budget: int,
        grid: Grid,
        depth: int,
        changed: Notebook[Supply] | None = None,
        rerouted: Notebook[tuple[int, int]] | None = None,
    ) -> None:
        self.budget = budget
        self.grid = grid
        self.loads = Loads(grid, depth)
        """of clients that could be fed by another broker"""
        self.used = 0
        """points per period of all entries"""
        self.reservations: dict[tuple[PeerId, int], Reservation] = {}
        """by the broker that asked and its number"""
        self.reserved = 0
        """points per period that are promised to receivers on their way here"""
        self.freed = False
        """whether waiting requests may find room now"""
        self.entries: dict[PeerId, dict[tuple[int, int], Entry]] = {}
        """by receiver, generation and cell"""
        self.supplies: dict[int, dict[int, Supply]] = {}
        """by attribute and cell; cells of an attribute are disjoint"""
        self.below: dict[int, dict[int, int]] = {}
        """by attribute and cell: supplies at and below it"""
        self.at: dict[int, dict[int, dict[tuple[PeerId, int, int], Entry]]] = {}
        """entries by attribute and exact cell"""
        self._taken: tuple[tuple[int, int], ...] | None = None
        self.fed: dict[int, dict[int, dict[PeerId, int]]] = {}
        """by attribute and cell: brokers that take it from here, and how often"""
        self.fed_version = 0
        """grows with every change of `fed`"""
        self._changed = changed
        """supplies whose receiving brokers have changed, for a mechanism that listens; None: none does"""
        self._rerouted = rerouted
        """(attribute, cell) that came, went, or come by another path; None: no mechanism listens"""
        self.leaving = 0
        """points per period of entries whose receivers were redirected and have not left yet"""

    @property
    def free(self) -> int:
        """What may still be promised."""
        return self.budget - self.used - self.reserved

    # -- promises

    def reserve(self, reservation: Reservation) -> None:
        """Promise budget."""
        self.reservations[reservation.peer, reservation.number] = reservation
        self.reserved += reservation.left

    def release(self, key: tuple[PeerId, int], points: int) -> None:
        """So much of a promise is kept, or not needed."""
        self.reservations[key].left -= points
        self.reserved -= points
        self.freed = True

    def void(self, key: tuple[PeerId, int]) -> None:
        """A promise is over."""
        self.release(key, self.reservations[key].left)
        del self.reservations[key]

    # -- supplies

    def supply_for(self, attribute: int, cell: int) -> Supply | None:
        """What feeds a cell here (Algorithm 1, one cell): supplies are disjoint, so there is at most one."""
        supplies = self.supplies.get(attribute)
        if supplies:
            while cell:
                if cell in supplies:
                    return supplies[cell]
                cell >>= 1
        return None

    def has_below(self, attribute: int, cell: int) -> bool:
        """Whether part of a cell is fed here."""
        return cell in self.below.get(attribute, ())

    def available(self, attribute: int, cell: int) -> tuple[list[int], list[int]]:
        """The parts of a cell that are fed here, and those that are not (Algorithm 1).

        Differs from line 14 of the print, which tests `lowChild` before it descends into `upChild`.
        """
        if self.supply_for(attribute, cell) is not None:
            return [cell], []
        here: list[int] = []
        missing: list[int] = []
        below, supplies = self.below.get(attribute, {}), self.supplies.get(attribute, {})
        stack = [cell]
        while stack:
            code = stack.pop()
            if code in supplies:
                here.append(code)
            elif code in below:
                stack += [code << 1 | 1, code << 1]
            else:
                missing.append(code)
        return here, missing

    def add_supply(self, supply: Supply) -> None:
        """Have a cell."""
        self._taken = None
        self.reroute(supply)
        self.supplies.setdefault(supply.attribute, {})[supply.cell] = supply
        below = self.below.setdefault(supply.attribute, {})
        for code in prefixes(supply.cell):
            below[code] = below.get(code, 0) + 1

    def drop_supply(self, supply: Supply) -> None:
        """Remove a supply."""
        self._taken = None
        self.reroute(supply)
        if self._changed is not None:
            self._changed.strike(supply)
        del self.supplies[supply.attribute][supply.cell]
        below = self.below[supply.attribute]
        for code in prefixes(supply.cell):
            below[code] -= 1
            if not below[code]:
                del below[code]

    def turn(self, supply: Supply, piece: Piece | None) -> None:
        """An owner begins to take its region from another broker, or a relay begins to own it (None)."""
        supply.piece = piece
        self._taken = None
        self.reroute(supply)

    def reroute(self, supply: Supply) -> None:
        """A supply comes by another path, or no longer."""
        if self._rerouted is not None:
            self._rerouted.note((supply.attribute, supply.cell))

    def taken(self) -> tuple[tuple[int, int], ...]:
        """(attribute, cell) of all supplies that come from other brokers."""
        if self._taken is None:
            self._taken = tuple(
                sorted(
                    (attribute, cell)
                    for attribute, supplies in self.supplies.items()
                    for cell, supply in supplies.items()
                    if not supply.owned
                )
            )
        return self._taken

    # -- entries

    def add(self, entry: Entry, supply: Supply) -> None:
        """Add an entry, which uses budget from now on."""
        key = (entry.peer, entry.generation, entry.cell)
        assert key not in supply.entries, f"{entry} twice"
        self.used += entry.size
        assert self.used + self.reserved <= self.budget, f"budget exceeded by {entry}"
        entry.supply = supply
        supply.entries[key] = entry
        supply.owed += entry.size
        supply.table.add(entry)
        self.entries.setdefault(entry.peer, {})[entry.generation, entry.cell] = entry
        self.at.setdefault(entry.attribute, {}).setdefault(entry.cell, {})[key] = entry
        if is_broker(entry.peer):
            fed = self.fed.setdefault(entry.attribute, {}).setdefault(entry.cell, {})
            fed[entry.peer] = fed.get(entry.peer, 0) + 1
            self.fed_version += 1
            if self._changed is not None:
                self._changed.note(supply)
        if entry.movable:
            self.loads.add(entry)

    def remove(self, entry: Entry) -> Supply:
        """Remove an entry."""
        supply = entry.supply
        assert supply is not None, f"{entry} is not here"
        key = (entry.peer, entry.generation, entry.cell)
        if entry.movable:
            self.loads.remove(entry)
        self.used -= entry.size
        self.freed = True
        del supply.entries[key]
        supply.owed -= entry.size
        supply.table.remove(entry)
        entry.supply = entry.spread = None
        if entry.going is not None:
            entry.going = None
            self.leaving -= entry.size
        mine = self.entries[entry.peer]
        del mine[entry.generation, entry.cell]
        if not mine:
            del self.entries[entry.peer]
        at = self.at[entry.attribute]
        del at[entry.cell][key]
        if not at[entry.cell]:
            del at[entry.cell]
        if is_broker(entry.peer):
            fed = self.fed[entry.attribute]
            self.fed_version += 1
            if self._changed is not None:
                self._changed.note(supply)
            fed[entry.cell][entry.peer] -= 1
            if not fed[entry.cell][entry.peer]:
                del fed[entry.cell][entry.peer]
            if not fed[entry.cell]:
                del fed[entry.cell]
        return supply

    def grant(self, entry: Entry) -> None:
        """An entry is fed from now on."""
        if not entry.granted:
            entry.granted = True
            if self._changed is not None and entry.of_broker and entry.supply is not None:
                self._changed.note(entry.supply)
            if entry.movable:
                self.loads.add(entry)

    def send_off(self, entry: Entry, to: PeerId) -> None:
        """Its receiver is redirected."""
        if entry.movable:
            self.loads.remove(entry)
        if entry.going is None:
            self.leaving += entry.size
        entry.going = to

    def stay(self, entry: Entry) -> None:
        """Its receiver did not go."""
        if entry.supply is not None and entry.going is not None:
            entry.going = None
            self.leaving -= entry.size
            if entry.movable:
                self.loads.add(entry)

    def cut(self, entry: Entry, part: int) -> Entry:
        """Put the parts of an entry in its place, as its receiver does when it is told of one of them."""
        parts = self.parts(entry, part)
        supply = self.remove(entry)
        for new in parts:
            self.add(new, supply)
        assert parts[0].cell == part, f"{entry} has nothing in {bin(part)}"
        return parts[0]

    def parts(self, entry: Entry, part: int) -> list[Entry]:
        """A part of an entry and what else there is of it, without those in which it has no point."""
        cells, clip = [part, *beside(entry.cell, part)], entry.clip
        if clip is None:
            points = [points_of(self.grid, cell) for cell in cells]
        else:
            points = points_in(Box(*clip.box), clip.limits, cells, self.grid)
        found = [
            Entry(entry.peer, entry.generation, entry.attribute, cell, size, entry.next, clip, entry.until)
            for cell, size in zip(cells, points, strict=True)
            if size
        ]
        for new in found:
            new.granted, new.stays, new.held = entry.granted, entry.stays, entry.held
        return found

    def of(self, peer: PeerId, generation: int, cell: int) -> list[Entry]:
        """An entry by name, or the parts that it was cut into."""
        mine = self.entries.get(peer)
        if not mine:
            return []
        entry = mine.get((generation, cell))
        if entry is not None:
            return [entry]
        return [e for (g, c), e in mine.items() if g == generation and contains(cell, c)]

    def streams_to(self, peer: PeerId, attribute: int, cell: int) -> list[Entry]:
        """What a broker takes of a cell from here."""
        mine = self.entries.get(peer, {}).values()
        return [e for e in mine if e.of_broker and e.attribute == attribute and contains(cell, e.cell)]

    def inside(self, attribute: int, cell: int) -> Iterator[Entry]:
        """All entries of a cell and of cells in it."""
        for code, entries in self.at.get(attribute, {}).items():
            if contains(cell, code):
                yield from entries.values()
