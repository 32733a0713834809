"""Interest up, data down: entries are admitted, fed, moved and forgotten here.

State: `outlets` (what receivers have from this broker) and `intake` (what it takes from others). A supply taken
from elsewhere exists exactly as long as an entry needs it, so a cancelled query, a dead client and a relay that
nobody needs all end the same way: the interest is gone, and with it the stream, all the way up.
"""

from collections.abc import Callable
from typing import Any

from sensorgrid.index.codes import beside, contains, prefixes
from sensorgrid.index.decompose import points_in
from sensorgrid.model.block import Progression, Slab
from sensorgrid.model.box import Box
from sensorgrid.model.errors import GridError
from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.events import Assigned, Published, Recall, Recalled, Region, Spread
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.intake import Intake, Piece
from sensorgrid.overlay.messages import NO_ROOM, Feed, Grant, Leave, Path, Redirect, Refuse, Want
from sensorgrid.overlay.outlets import Entry, Supply, Tick
from sensorgrid.overlay.state import Reservation, State, Waiting

GAP: Tick = (-1, None)
"""what a ring holds for a tick that the owner lacks: data of any revision replace it"""
EARLY_MAX = 10_000
"""blocks that may be published while the lake is being read"""
STOPS = "the broker stops"
ELSEWHERE_MAX = 4
"""carriers that a refusal names"""


class Streams:
    """The mechanism."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.me = state.me
        self.roams = True
        state.intake = self.intake = Intake(self, state.settings)
        self.handlers: dict[type, Callable[[PeerId, Any], None]] = {
            Want: self.wanted,
            Leave: self.left,
            Grant: self.intake.granted,
            Refuse: self.intake.refused,
            Redirect: self.intake.redirected,
            Feed: self.intake.received,
        }
        self._grants: dict[tuple[PeerId, int, int], Path | None] = {}
        self._refusals: dict[tuple[PeerId, int, str, tuple[PeerId, ...]], list[int]] = {}
        self._places: dict[int, tuple[Progression, Progression]] = {}
        """rows and columns of regions, worked out once"""
        self._generations: dict[PeerId, int] = {}
        """the latest of each receiver, on its present connection"""
        self._stops = False

    # -- receivers speak

    def wanted(self, peer: PeerId, want: Want) -> None:
        """A receiver states what it wants."""
        state = self.state
        if self._stops:
            for cell, _, _ in want.items:
                self._refuse(peer, want.generation, cell, STOPS)
            return
        if not self._sensible(peer, want):
            for cell, _, _ in want.items:
                self._refuse(peer, want.generation, cell, "not a wish that can be met")
            return
        for (cell, claimed, start), size in zip(want.items, self._sizes(want), strict=True):
            if size == 0 or size != claimed:
                self._refuse(peer, want.generation, cell, f"{claimed} points claimed, {size} counted")
                continue
            known = state.outlets.entries.get(peer, {}).get((want.generation, cell))
            if known is not None:  # the same generation again is a no-op (rule 2)
                if known.granted and known.supply is not None:
                    self._grant(known, known.supply.path)
                continue
            if (peer, want.generation, cell) not in state.waiting:
                self._admit(Waiting(peer, want, cell, size, start, state.now + state.settings.wait_s))

    def _sensible(self, peer: PeerId, want: Want) -> bool:
        """A known attribute, and cells that overlap neither each other nor others of their generation."""
        if not 0 <= want.attribute < len(self.state.grid.attributes):
            return False
        last = self._generations.get(peer, 0)
        cells = {cell for cell, _, _ in want.items}
        self._generations[peer] = max(last, want.generation)
        if len(cells) != len(want.items) or min(cells, default=1) < 1:
            return False
        known = set(cells)
        if want.generation <= last:
            known |= {cell for g, cell in self.state.outlets.entries.get(peer, ()) if g == want.generation}
        if len(known) == 1:
            return True
        return not any(above in known for cell in sorted(known) for above in prefixes(cell >> 1))

    def left(self, peer: PeerId, message: Leave) -> None:
        """A receiver has enough."""
        for cell in message.cells:
            self.state.waiting.pop((peer, message.generation, cell), None)
            for entry in self.state.outlets.of(peer, message.generation, cell):
                self._remove(entry)

    def peer_down(self, peer: PeerId) -> None:
        """A connection is gone: what was wanted on it is wanted no longer."""
        self._generations.pop(peer, None)
        for key in [key for key in self.state.waiting if key[0] == peer]:
            del self.state.waiting[key]
        for entry in list(self.state.outlets.entries.get(peer, {}).values()):
            self._remove(entry)
        self.intake.peer_down(peer)

    def stop(self) -> None:
        """Send all receivers to where this broker has its streams from; take no new ones."""
        self._stops = True
        for key, request in list(self.state.waiting.items()):
            del self.state.waiting[key]
            self._refuse(request.peer, request.want.generation, request.cell, STOPS)
        for entries in list(self.state.outlets.entries.values()):
            for entry in list(entries.values()):
                path = entry.supply.path if entry.supply is not None else None
                self._refuse(
                    entry.peer, entry.generation, entry.cell, STOPS, () if path is None else path[-2::-1]
                )
                self._remove(entry)

    def _sizes(self, want: Want) -> list[int]:
        """Points of the entries, counted here: a budget cannot rest on what others claim."""
        grid, digits = self.state.grid, self.state.digits
        cells = [item[0] for item in want.items]
        if any(not 0 < cell.bit_length() <= digits + 1 for cell in cells):
            return [0] * len(cells)
        if want.clip is None:
            return [grid.points_per_period >> (cell.bit_length() - 1) for cell in cells]
        try:
            return points_in(Box(*want.clip.box), want.clip.limits, cells, grid)
        except GridError:  # a box that the grid has not
            return [0] * len(cells)

    def _admit(self, request: Waiting) -> None:
        """Accept a request, let it wait for room, or refuse it."""
        state, want, peer = self.state, request.want, request.peer
        outlets, attribute = state.outlets, want.attribute
        key = (peer, want.generation, request.cell)
        supply = outlets.supply_for(attribute, request.cell)
        reservation = self._reservation(want, request.cell)
        if (
            supply is None
            and (reservation is None or self._owns_below(attribute, reservation.cell))
            and outlets.has_below(attribute, request.cell)
        ):
            here, missing = outlets.available(attribute, request.cell)
            self._refuse(peer, want.generation, request.cell, "cut", (), tuple(sorted(here + missing)))
            return
        if supply is not None and self._too_old(supply, request.start):
            self._begin_earlier(supply, request.start)
        if supply is not None and self._too_old(supply, request.start):
            if want.stays and supply.head is not None and self._reach_back(supply, request.start):
                state.waiting[key] = request
            else:
                self._refuse(peer, want.generation, request.cell, "too old")
            return
        if not self._make_room(request, reservation):
            if want.clip is None or len(state.waiting) >= state.settings.waiting_max:
                self._refuse(peer, want.generation, request.cell, NO_ROOM, self._elsewhere(request))
            else:
                state.waiting[key] = request
            return
        if supply is None:
            supply = self._take(attribute, request, want.via, reservation)
        if reservation is not None:
            took = min(reservation.left, request.size)
            reservation.left -= took
            outlets.release(took)
            if not reservation.left:
                del state.reservations[reservation.peer, reservation.number]
        entry = Entry(
            peer, want.generation, attribute, request.cell, request.size, request.start, want.clip, want.until
        )
        entry.stays = want.stays
        outlets.add(entry, supply)
        if supply.path is not None:
            self._start(entry, supply)

    def _too_old(self, supply: Supply, start: int) -> bool:
        """A relay never rewinds a shared stream (rule 7); an owner names what it lacks as a gap."""
        return not supply.owned and supply.start is not None and start < supply.start

    def _reservation(self, want: Want, cell: int) -> Reservation | None:
        if want.via is None:
            return None
        matching = [
            reservation
            for reservation in self.state.reservations.values()
            if reservation.peer == want.via
            and reservation.attribute == want.attribute
            and contains(reservation.cell, cell)
        ]
        return max(matching, key=lambda r: r.left, default=None)

    def _make_room(self, request: Waiting, reservation: Reservation | None) -> bool:
        """Whether the request fits; a broker's may take the slots of receivers that move to it (rule 10)."""
        outlets = self.state.outlets
        room = outlets.free + (0 if reservation is None else min(reservation.left, request.size))
        missing = request.size - room
        if missing <= 0:
            return True
        elsewhere: tuple[PeerId, ...] = (request.peer,)
        if reservation is not None and reservation.source == self.me:
            # A relay hands its receivers back, and its own stream of the cell is no longer needed.
            victims = outlets.streams_to(reservation.peer, reservation.attribute, reservation.cell)
            elsewhere = ()
            if sum(entry.size for entry in victims) < missing:
                return False
        elif is_broker(request.peer):
            victims = self._victims(request, missing)
        else:
            return False
        for entry in victims:
            self.state.counters.evictions += 1
            self._refuse(entry.peer, entry.generation, entry.cell, "moved", elsewhere)
            self._remove(entry, keep=True)
        return bool(victims)

    def _victims(self, request: Waiting, missing: int) -> list[Entry]:
        """Receivers of the cell who can take it from the asking broker instead: those already on their way
        there, then the relay that sent it here, then the largest clients.

        Other brokers keep their slots: two that want the same would push each other out for ever.
        """
        attribute, peer, via = request.want.attribute, request.peer, request.want.via
        inside = [
            e
            for e in self.state.outlets.inside(attribute, request.cell)
            if e.peer != peer and not e.stays and (not e.of_broker or e.going == peer or e.peer == via)
        ]
        inside.sort(key=lambda e: (e.going != peer, e.peer != via, -e.size, e.peer, e.generation, e.cell))
        chosen, freed = [], 0
        for entry in inside:
            if freed >= missing:
                break
            chosen.append(entry)
            freed += entry.size
        return chosen if freed >= missing else []

    def _elsewhere(self, request: Waiting) -> tuple[PeerId, ...]:
        """Brokers that carry the cell: those it is passed on to, most room first, then those it comes from.

        Without the second kind a full relay in front of an owner with room would shut its receivers out.
        """
        outlets, free, attribute = self.state.outlets, self.state.free_of, request.want.attribute
        carriers = sorted(
            self.state.carriers_of(attribute, request.cell),
            key=lambda peer: (-free.get(peer, (0, 0))[1], peer),
        )
        supply = outlets.supply_for(attribute, request.cell)
        path = () if supply is None or supply.path is None else supply.path[-2::-1]
        named = dict.fromkeys((*carriers[:ELSEWHERE_MAX], *path))
        return tuple(peer for peer in named if peer != request.peer)

    # -- supplies

    def _take(
        self, attribute: int, request: Waiting, via: PeerId | None, reservation: Reservation | None
    ) -> Supply:
        """Take a cell from another broker: the whole delegated one where this is a delegation."""
        state = self.state
        cell = request.cell
        if reservation is not None and not self._owns_below(attribute, reservation.cell):
            cell = reservation.cell
        absorbed = self._absorb(attribute, cell)
        supply = Supply(attribute, cell, state.now)
        first = min((entry.next for entry in absorbed), default=request.start)
        start = max(0, min(first, request.start) - state.settings.slack_ticks)
        size = state.grid.points_per_period >> (cell.bit_length() - 1)
        supply.piece = Piece(supply, attribute, cell, size, start)
        supply.start = supply.head = start
        state.outlets.add_supply(supply)
        if reservation is not None and reservation.source not in (None, self.me):
            self.intake.ask([supply.piece], reservation.source, via=via)
        elif (
            via is not None and via != self.me and is_broker(via) and (reservation or is_broker(request.peer))
        ):
            self.intake.ask([supply.piece], via)  # a client's word alone makes nobody a provider
        else:
            self.intake.seek([supply.piece])
        for entry in absorbed:
            entry.granted = False
            state.outlets.add(entry, supply)
            self._grant(entry, None)
        return supply

    def _owns_below(self, attribute: int, cell: int) -> bool:
        return any(
            s.owned and contains(cell, s.cell)
            for s in self.state.outlets.supplies.get(attribute, {}).values()
        )

    def _absorb(self, attribute: int, cell: int) -> list[Entry]:
        """Give up what this broker takes of a cell part by part; the entries of the parts."""
        outlets = self.state.outlets
        parts = [s for s in outlets.supplies.get(attribute, {}).values() if contains(cell, s.cell)]
        entries = [entry for s in parts for entry in s.entries.values()]
        for entry in entries:
            outlets.remove(entry)
        for part in parts:
            if part.piece is not None:
                self.intake.drop([part.piece])
            self._forget_past(part)
            outlets.drop_supply(part)
        return entries

    def _begin_earlier(self, supply: Supply, start: int) -> None:
        """Nothing has come yet, as its first receiver waits for the future: begin where this one wants to."""
        piece = supply.piece
        if piece is not None and piece.next == piece.begin and not supply.ring and piece.feed is not None:
            provider = piece.feed.peer
            self.intake.drop([piece])  # its feed would send what comes later first
            piece.next = piece.begin = max(0, start - self.state.settings.slack_ticks)
            supply.start = supply.head = piece.next
            self.intake.ask([piece], provider)
            self.moved(piece)

    def _reach_back(self, supply: Supply, start: int) -> bool:
        """Fetch older ticks for a receiver that cannot ask the owner itself; the shared stream goes on."""
        assert supply.head is not None
        assert supply.start is not None
        if start < supply.head - self.state.settings.ring_ticks:
            return False
        if supply.past is None:
            size = self.state.grid.points_per_period >> (supply.cell.bit_length() - 1)
            supply.past = Piece(supply, supply.attribute, supply.cell, size, start, None, supply.start)
            self.intake.seek([supply.past], owner=True)
        return supply.past.begin <= start

    def _forget_past(self, supply: Supply) -> None:
        if supply.past is not None:
            self.intake.drop([supply.past])
            supply.past = None

    def _remove(self, entry: Entry, keep: bool = False) -> None:
        supply = self.state.outlets.remove(entry)
        if not supply.entries and supply.piece is not None and not keep:
            self.intake.drop([supply.piece])
            self._forget_past(supply)
            self.state.outlets.drop_supply(supply)

    def _start(self, entry: Entry, supply: Supply) -> None:
        """Say that an entry is fed, and send what it missed (rules 6 and 7)."""
        if self._too_old(supply, entry.next):  # the ring went on while it waited for a path
            self._refuse(entry.peer, entry.generation, entry.cell, "too old")
            self._remove(entry)
            return
        self.state.outlets.grant(entry)
        self._grant(entry, supply.path)
        if supply.head is None:
            return
        if entry.next < supply.head:
            self.flush()  # first that it is fed, then with what
        first = entry.next
        end = supply.head if entry.until is None else min(supply.head, entry.until)
        if supply.owned and supply.start is not None:
            self._gap(entry, supply.start)
            first = entry.next
        late = self.state.settings.lateness_ticks
        for tick in range(first - late, end):
            held = supply.ring.get(tick)
            if held is not None and (tick == entry.next or (tick < first and held[0] > 0)):
                self._send(entry, tick, max(held[0], 0), self._part(entry, held[1], tick))
                if tick == entry.next:
                    entry.next += 1

    def _gap(self, entry: Entry, until: int) -> None:
        """Name what an owner lacks of the ticks before `until`."""
        until = until if entry.until is None else min(until, entry.until)
        if entry.next < until:
            self._send(entry, entry.next, 0, None, until)
            entry.next = until

    def _part(self, entry: Entry, slabs: tuple[Slab, ...] | None, tick: int) -> tuple[Slab, ...] | None:
        assert entry.supply is not None
        part, hidden = entry.supply.table.rows[entry.cell, entry.clip].part(self.state.grid, slabs, tick)
        self.state.counters.masked_points += hidden
        return part

    # -- data come by

    def fed(self, piece: Piece, tick: int, revision: int, slabs: tuple[Slab, ...] | None) -> None:
        """A tick from a provider: on to the receivers."""
        supply = piece.owner
        assert isinstance(supply, Supply)
        if piece is not supply.past:
            self._forward(supply, tick, revision, slabs)
            return
        supply.ring.setdefault(tick, (revision, slabs))
        self._reached_back(supply, piece)

    def _reached_back(self, supply: Supply, piece: Piece) -> None:
        if piece.until is not None and piece.next >= piece.until:
            assert supply.start is not None
            supply.start = min(supply.start, piece.begin)
            self._forget_past(supply)
            self.state.outlets.freed = True

    def skipped(self, piece: Piece, first: int, until: int) -> None:
        """A gap from a provider."""
        supply = piece.owner
        assert isinstance(supply, Supply)
        if piece is not supply.past:
            self._skip(supply, until)
            return
        for tick in range(max(first, until - self.state.settings.ring_ticks), until):
            supply.ring.setdefault(tick, GAP)
        self._reached_back(supply, piece)

    def _skip(self, supply: Supply, until: int) -> None:
        """Name a gap to all receivers, in one message each."""
        first = until if supply.head is None else supply.head
        ring_ticks = self.state.settings.ring_ticks
        for tick in range(max(first, until - ring_ticks), until):
            supply.keep(tick, *GAP, ring_ticks)
        for entry in [e for e in supply.entries.values() if e.granted]:
            self._gap(entry, until)

    def published(self, event: Published) -> None:
        """A tick from the pipeline, for a region of this broker; each (tick, revision) counts once."""
        supply = self.state.outlets.supplies.get(event.attribute, {}).get(event.cell)
        if supply is None or not supply.owned or event.epoch < supply.epoch:
            return
        if supply.path is None:  # the lake is being read, and may have been read before this was written
            if len(supply.early) < EARLY_MAX:
                supply.early.append(event)
            return
        held = supply.ring.get(event.tick)
        if held is not None and held[0] >= event.revision:
            return
        if supply.head is not None and event.tick < supply.head and held is None:
            return  # older than the ring
        if supply.head is None or event.tick > supply.head:
            self._skip(supply, event.tick)
        self._forward(supply, event.tick, event.revision, self._slabs(event.cell, event))

    def _slabs(self, cell: int, event: Published) -> tuple[Slab, ...] | None:
        if event.values is None:
            return None
        where = self._places.get(cell)
        if where is None:
            box = box_of(self.state.grid, cell)
            where = self._places[cell] = ((box.y0, box.y1, 1), (box.x0, box.x1, 1))
        return (Slab(*where, event.values),)

    def _forward(self, supply: Supply, tick: int, revision: int, slabs: tuple[Slab, ...] | None) -> None:
        """Look a block up once, cut each row once, send the same slabs to all entries of a row."""
        before = supply.ring.get(tick)
        replaces = revision > 0 or (before is not None and before[0] < 0)
        supply.keep(tick, revision, slabs, self.state.settings.ring_ticks)
        if revision == 0 and slabs is not None and self._spread(supply, tick, slabs):
            return
        for row in supply.table.rows.values():
            part, hidden = row.part(self.state.grid, slabs, tick)
            for entry in row.entries:
                if not entry.granted or (entry.until is not None and tick >= entry.until):
                    continue
                if entry.next == tick:
                    entry.next += 1
                elif entry.next < tick or not replaces:
                    continue
                self.state.counters.masked_points += hidden
                self._send(entry, tick, revision, part)

    def _spread(self, supply: Supply, tick: int, slabs: tuple[Slab, ...]) -> bool:
        """Send a block to all entries at once, if all go in step; whether they do."""
        plan = supply.table.plan(self.state.grid, slabs)
        if plan is None:
            return False
        entries = supply.entries.values()
        for entry in entries:
            if entry.next != tick or not entry.granted or (entry.until is not None and tick >= entry.until):
                return False
        for entry in entries:
            entry.next = tick + 1
        counters = self.state.counters
        counters.sent_points += plan.points
        counters.messages["Feed"] = counters.messages.get("Feed", 0) + plan.receivers
        self.state.effects.append(Spread(plan, tick, slabs[0]))
        return True

    def _send(
        self, entry: Entry, tick: int, revision: int, slabs: tuple[Slab, ...] | None, until: int = 0
    ) -> None:
        if slabs is not None:
            self.state.counters.sent_points += sum(slab.points for slab in slabs)
        self.state.send(entry.peer, Feed(entry.generation, entry.cell, tick, revision, slabs, until))

    # -- providers change

    def send(self, peer: PeerId, message: Want | Leave) -> None:
        """The intake speaks."""
        self.state.send(peer, message)

    def locate(self, pieces: list[Piece], owner: bool) -> None:
        """Ask routing."""
        self.state.lookups.append((pieces, owner))

    def moved(self, piece: Piece) -> None:
        """A supply has another path: tell its receivers, and start those who waited for it."""
        supply = piece.owner
        assert isinstance(supply, Supply)
        if piece is not supply.past:
            self._repath(supply, None if piece.path is None else (*piece.path, self.me))

    def _repath(self, supply: Supply, path: Path | None) -> None:
        if path == supply.path:
            return
        supply.path = path
        for entry in list(supply.entries.values()):
            if entry.granted:
                self._grant(entry, path)
            elif path is not None:
                self._start(entry, supply)

    def lost(self, piece: Piece, reason: str) -> None:
        """Nobody feeds a supply: its receivers have to look for themselves."""
        supply = piece.owner
        assert isinstance(supply, Supply)
        if piece is supply.past:
            self._forget_past(supply)
            for key, request in list(self.state.waiting.items()):
                here = request.want.attribute == supply.attribute and contains(supply.cell, request.cell)
                if here and self._too_old(supply, request.start):
                    del self.state.waiting[key]
                    why = NO_ROOM if reason == NO_ROOM else "too old"
                    self._refuse(request.peer, request.want.generation, request.cell, why)
            return
        said = reason if reason == NO_ROOM else f"no provider: {reason}"
        for entry in list(supply.entries.values()):
            self._refuse(entry.peer, entry.generation, entry.cell, said)
            self._remove(entry)

    def cut(self, piece: Piece, parts: list[int]) -> list[Piece] | None:
        """A relay's cell feeds entries as a whole: it is never cut."""
        return None

    # -- regions change

    def assigned(self, event: Assigned) -> None:
        """Own what is assigned: a lost region's receivers are sent to its new owner, a gained one's stay."""
        outlets = self.state.outlets
        mine = {(r.attribute, r.cell): r for r in event.regions if r.owner == self.me}
        for attribute in list(outlets.supplies):
            for supply in [s for s in outlets.supplies[attribute].values() if s.owned]:
                if (attribute, supply.cell) not in mine:
                    self._give_up(supply, event)
        for region in mine.values():
            self._own(region)

    def _give_up(self, supply: Supply, event: Assigned) -> None:
        heirs = tuple(
            r.owner
            for r in event.regions
            if r.attribute == supply.attribute and contains(r.cell, supply.cell)
        )
        for entry in list(supply.entries.values()):
            self._refuse(entry.peer, entry.generation, entry.cell, "another owner", heirs)
            self._remove(entry)
        self.state.outlets.drop_supply(supply)

    def _own(self, region: Region) -> None:
        outlets = self.state.outlets
        supply = outlets.supplies.get(region.attribute, {}).get(region.cell)
        if supply is not None and supply.owned and supply.epoch == region.epoch:
            return
        above = outlets.supply_for(region.attribute, region.cell)
        if above is not None and above.cell != region.cell:
            self._cut_at(above, region.cell)
        entries = self._absorb(region.attribute, region.cell)
        supply = Supply(region.attribute, region.cell, self.state.now)
        supply.epoch = region.epoch
        outlets.add_supply(supply)
        for entry in entries:
            entry.granted = (
                False  # a relay's ring is not the truth: it goes on when the lake was read (rule 8)
            )
            outlets.add(entry, supply)
            self._grant(entry, None)
        self.state.effects.append(Recall(region.attribute, region.cell, region.epoch))

    def recalled(self, event: Recalled) -> None:
        """The tail of the lake: the owner is ready."""
        supply = self.state.outlets.supplies.get(event.attribute, {}).get(event.cell)
        if supply is None or supply.epoch != event.epoch or supply.path is not None:
            return
        for tick, revision, values in event.ticks:
            block = Published(event.attribute, event.cell, tick, revision, event.epoch, values)
            supply.keep(tick, revision, self._slabs(event.cell, block), self.state.settings.ring_ticks)
        self._repath(supply, (self.me,))
        early, supply.early = supply.early, []
        for late in early:
            self.published(late)

    # -- work left by others, and answers that go out together

    def settle(self) -> bool:
        """Ask located providers, let waiting requests in where room was freed."""
        state, busy = self.state, False
        while state.located:
            attribute, cell, provider = state.located.pop(0)
            supply = state.outlets.supply_for(attribute, cell)
            busy = True
            if supply is None or supply.piece is None:
                continue
            for piece in [
                p for p in (supply.piece, supply.past) if p is not None and p.feed is None and p.trial is None
            ]:
                if supply.cell != cell:
                    self._cut_at(supply, cell)
                    break
                if provider is None or provider == self.me:
                    self.intake.unlocated(piece)
                else:
                    self.intake.ask([piece], provider)
        if state.outlets.freed:
            state.outlets.freed = False
            for key, request in list(state.waiting.items()):
                if request.size <= state.outlets.free or self._reservation(request.want, request.cell):
                    del state.waiting[key]
                    self._admit(request)
                    busy = True
        return busy

    def _cut_at(self, supply: Supply, part: int) -> None:
        """A border runs through a cell that this broker wanted whole: its receivers shall ask for the parts."""
        for entry in list(supply.entries.values()):
            if contains(entry.cell, part) and not entry.of_broker:
                parts = (part, *beside(entry.cell, part))
                self._refuse(entry.peer, entry.generation, entry.cell, "cut", (), parts)
            else:
                self._refuse(entry.peer, entry.generation, entry.cell, "several owners")
            self._remove(entry)

    def flush(self) -> None:
        """Send grants and refusals, many cells in a message."""
        if not self._grants and not self._refusals:
            return
        grants: dict[tuple[PeerId, int, Path | None], list[int]] = {}
        for (peer, generation, cell), path in self._grants.items():
            grants.setdefault((peer, generation, path), []).append(cell)
        self._grants.clear()
        for (peer, generation, path), cells in grants.items():
            self.state.send(peer, Grant(generation, tuple(cells), path))
        for (peer, generation, reason, elsewhere), cells in self._refusals.items():
            self.state.send(peer, Refuse(generation, tuple(cells), reason, elsewhere))
        self._refusals.clear()

    def _grant(self, entry: Entry, path: Path | None) -> None:
        self._grants[entry.peer, entry.generation, entry.cell] = path

    def _refuse(
        self,
        peer: PeerId,
        generation: int,
        cell: int,
        reason: str,
        elsewhere: tuple[PeerId, ...] = (),
        parts: tuple[int, ...] = (),
    ) -> None:
        if parts:
            self.state.send(peer, Refuse(generation, (cell,), reason, elsewhere, parts))
        else:
            self._refusals.setdefault((peer, generation, reason, elsewhere), []).append(cell)

    # -- time

    def next_wakeup(self) -> Instant | None:
        """When a piece or a waiting request must have heard something."""
        if not self.state.waiting:
            return self.intake.next_wakeup()
        times = [w.due for w in self.state.waiting.values()]
        if (due := self.intake.next_wakeup()) is not None:
            times.append(due)
        return min(times, default=None)

    def woke(self) -> None:
        """Refuse requests that waited too long."""
        self.intake.woke()
        for key, request in list(self.state.waiting.items()):
            if request.due <= self.state.now:
                del self.state.waiting[key]
                self._refuse(
                    request.peer, request.want.generation, request.cell, NO_ROOM, self._elsewhere(request)
                )
