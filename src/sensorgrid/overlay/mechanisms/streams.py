"""Interest up, data down: entries are admitted, fed, moved and forgotten here.

Who is let in is judged in `admission.py`, ticks go out through `feeding.py`; here is what follows from both.

State: `outlets` (what receivers have from this broker) and `intake` (what it takes from others). A supply taken from
elsewhere exists exactly as long as an entry needs it, so a cancelled query, a dead client and an unused relay all end
the same way: the interest is gone, and with it the stream, all the way up.

A region changes owner by make before break. Its heir takes it as a relay. When the roster makes the heir the owner, it
goes on with its ring, and reads the tail of the lake beside. The old owner takes the region from the new one from then
on, goes on feeding its receivers, and sends them there.
"""

from sensorgrid.index.codes import beside, contains
from sensorgrid.model.block import Progression, Slab, Values
from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay import feeding
from sensorgrid.overlay.admission import Admission, too_old
from sensorgrid.overlay.answers import Answers
from sensorgrid.overlay.boards import Lookup, Provided, Requests, WaitingRequest
from sensorgrid.overlay.departures import Departures
from sensorgrid.overlay.events import (
    Outdated,
    PeerDown,
    Published,
    Recall,
    Recalled,
    RosterChanged,
    Stopping,
    Unused,
    Woke,
)
from sensorgrid.overlay.faces import HearsayFace, RosterFace
from sensorgrid.overlay.geography import box_of, points_of
from sensorgrid.overlay.intake import Intake, Piece
from sensorgrid.overlay.kernel import BrokerKernel, Inbox
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import (
    ANOTHER_OWNER,
    CUT,
    MOVED,
    NO_ROOM,
    SENSELESS,
    SEVERAL_OWNERS,
    STOPS,
    TOO_OLD,
    Feed,
    Grant,
    Leave,
    Path,
    Reason,
    Redirect,
    Refuse,
    Want,
    Why,
)
from sensorgrid.overlay.outlets import Entry, Outlets, Reservation, Supply
from sensorgrid.overlay.roster import Region, Roster
from sensorgrid.overlay.service import Service

EARLY_MAX = 10_000
"""blocks that may be published while the lake is being read"""


class Streams(Mechanism):
    """The mechanism."""

    in_a_row = True

    def __init__(
        self,
        kernel: BrokerKernel,
        outlets: Outlets,
        requests: Requests,
        hearsay: HearsayFace,
        held: RosterFace,
        lookups: Inbox[Lookup],
        located: Inbox[Provided],
    ) -> None:
        self.kernel = kernel
        self.outlets = outlets
        self.requests = requests
        self.held = held
        self.lookups = lookups
        """for routing"""
        self.located = located
        """from routing"""
        self.me = kernel.me
        self.roams = True
        self.intake = Intake(self, kernel.settings)
        self.service = Service(kernel, outlets, requests, self.intake)
        """for other mechanisms"""
        self.admission = Admission(kernel, outlets, hearsay)
        self.answers = Answers(kernel)
        self.departures: Departures[None] = Departures(kernel, self.service, lambda why, stayed: None)
        """of receivers of regions that have another owner now"""
        self.listens = {
            PeerDown: self.peer_down,
            Unused: self.peer_down,
            Published: self.published,
            Recalled: self.recalled,
            RosterChanged: self.changed,
            Stopping: self.stop,
            Woke: self.woke,
        }
        self.handlers = {
            Want: self.wanted,
            Leave: self.left,
            Grant: self.intake.granted,
            Refuse: self.intake.refused,
            Redirect: self.intake.redirected,
            Feed: self.intake.received,
        }
        self._places: dict[int, tuple[Progression, Progression]] = {}
        """rows and columns of regions, worked out once"""
        self._generations: dict[PeerId, int] = {}
        """the latest of each receiver, on its present connection"""
        self._stops = False
        self._bare: list[Supply] = []
        """parts of supplies that no receiver here wants"""

    # -- receivers speak

    def wanted(self, peer: PeerId, want: Want) -> None:
        """A receiver states what it wants."""
        kernel = self.kernel
        if self._stops:
            for cell, _, _ in want.items:
                self.answers.refuse(peer, want.generation, cell, STOPS)
            return
        last = self._generations.get(peer, 0)
        self._generations[peer] = max(last, want.generation)
        if not self.admission.sensible(peer, want, again=want.generation <= last):
            for cell, _, _ in want.items:
                self.answers.refuse(peer, want.generation, cell, SENSELESS)
            return
        for (cell, claimed, start), size in zip(want.items, self.admission.sizes(want), strict=True):
            if size == 0 or size != claimed:
                miscounted = Reason(Why.SENSELESS, f"{claimed} points claimed, {size} counted")
                self.answers.refuse(peer, want.generation, cell, miscounted)
                continue
            known = self.outlets.entries.get(peer, {}).get((want.generation, cell))
            if known is not None:  # the same generation again is a no-op (rule 2)
                if known.granted and known.supply is not None:
                    self.answers.grant(known, known.supply.path)
                continue
            if (peer, want.generation, cell) not in self.requests:
                self._admit(
                    WaitingRequest(peer, want, cell, size, start, kernel.now + kernel.settings.wait_s)
                )

    def left(self, peer: PeerId, message: Leave) -> None:
        """A receiver gives up entries."""
        for cell in message.cells:
            self.requests.pop((peer, message.generation, cell), None)
            for entry in self.outlets.of(peer, message.generation, cell):
                self._remove(entry)

    def peer_down(self, event: PeerDown | Unused) -> None:
        """A connection is gone: what was wanted on it is wanted no longer."""
        peer = event.peer
        self._generations.pop(peer, None)
        for key in [key for key in self.requests if key[0] == peer]:
            del self.requests[key]
        for entry in list(self.outlets.entries.get(peer, {}).values()):
            self._remove(entry)
        self.intake.peer_down(peer)
        self.departures.peer_down(peer)

    def stop(self, event: Stopping) -> None:
        """Send all receivers to the providers of this broker's streams; accept no new ones."""
        self._stops = True
        for key, request in list(self.requests.items()):
            del self.requests[key]
            self.answers.refuse(request.peer, request.want.generation, request.cell, STOPS)
        for entries in list(self.outlets.entries.values()):
            for entry in list(entries.values()):
                path = entry.supply.path if entry.supply is not None else None
                elsewhere = () if path is None else path[-2::-1]
                self.answers.refuse(entry.peer, entry.generation, entry.cell, STOPS, elsewhere)
                self._remove(entry)

    def _admit(self, request: WaitingRequest) -> None:
        """Accept a request, let it wait for room, or refuse it."""
        kernel, want, peer = self.kernel, request.want, request.peer
        outlets, attribute = self.outlets, want.attribute
        key = (peer, want.generation, request.cell)
        supply = outlets.supply_for(attribute, request.cell)
        reservation = self.admission.reservation_for(want, request.cell)
        if (
            supply is None
            and (reservation is None or self.admission.owns_below(attribute, reservation.cell))
            and outlets.has_below(attribute, request.cell)
        ):
            here, missing = outlets.available(attribute, request.cell)
            self.answers.refuse(peer, want.generation, request.cell, CUT, (), tuple(sorted(here + missing)))
            return
        if supply is not None and too_old(supply, request.start):
            self._begin_earlier(supply, request.start)
        if supply is not None and too_old(supply, request.start):
            if want.stays and supply.head is not None and self._reach_back(supply, request.start):
                self.requests[key] = request
            else:
                self.answers.refuse(peer, want.generation, request.cell, TOO_OLD)
            return
        room = self.admission.room_for(request, reservation)
        if room is None:
            if want.clip is None or len(self.requests) >= kernel.settings.waiting_max:
                elsewhere = self.admission.elsewhere(request)
                self.answers.refuse(peer, want.generation, request.cell, NO_ROOM, elsewhere)
            else:
                self.requests[key] = request
            return
        for victim in room.yields:
            kernel.counters.evictions += 1
            self.answers.refuse(victim.peer, victim.generation, victim.cell, MOVED, room.to)
            self._remove(victim, keep=True)
        self._accept(request, supply, reservation)

    def _accept(
        self, request: WaitingRequest, supply: Supply | None, reservation: Reservation | None
    ) -> None:
        """There is room: add the entry, and feed it if there is a supply to feed it from."""
        outlets, want = self.outlets, request.want
        if supply is None:
            supply = self._take(want.attribute, request, want.via, reservation)
        if reservation is not None:
            promise = (reservation.peer, reservation.number)
            outlets.release(promise, min(reservation.left, request.size))
            if not reservation.left:
                outlets.void(promise)
        entry = Entry(
            request.peer, want.generation, want.attribute, request.cell, request.size, request.start, want.clip,
            want.until,
        )  # fmt: skip
        entry.stays = want.stays
        if want.held:
            entry.held = {tick: revision for cell, tick, revision in want.held if cell == request.cell}
        outlets.add(entry, supply)
        if supply.path is not None:
            self._start(entry, supply)

    # -- supplies

    def _take(
        self, attribute: int, request: WaitingRequest, via: PeerId | None, reservation: Reservation | None
    ) -> Supply:
        """Take a cell from another broker: the whole delegated one where this is a delegation."""
        kernel = self.kernel
        cell = request.cell
        if reservation is not None and not self.admission.owns_below(attribute, reservation.cell):
            cell = reservation.cell
        absorbed = self._absorb(attribute, cell)
        supply = Supply(attribute, cell, kernel.now)
        first = min((entry.next for entry in absorbed), default=request.start)
        start = max(0, min(first, request.start) - kernel.settings.slack_ticks)
        size = points_of(kernel.grid, cell)
        supply.piece = Piece(supply, attribute, cell, size, start)
        supply.start = supply.head = start
        self.outlets.add_supply(supply)
        if reservation is not None and reservation.provider not in (None, self.me):
            self.intake.ask([supply.piece], reservation.provider, via=via)
        elif (
            via is not None and via != self.me and is_broker(via) and (reservation or is_broker(request.peer))
        ):
            self.intake.ask([supply.piece], via)  # a client's word alone makes nobody a provider
        else:
            self.intake.seek([supply.piece])
        for entry in absorbed:
            entry.granted = False
            self.outlets.add(entry, supply)
            self.answers.grant(entry, None)
        return supply

    def _absorb(self, attribute: int, cell: int) -> list[Entry]:
        """Give up what this broker takes of a cell part by part; the entries of the parts."""
        outlets = self.outlets
        parts = [s for s in outlets.supplies.get(attribute, {}).values() if contains(cell, s.cell)]
        entries = []
        for part in parts:
            for entry in list(part.entries.values()):
                if entry.granted:
                    entry.held = part.revisions()
                outlets.remove(entry)
                entries.append(entry)
        for part in parts:
            if part.piece is not None:
                self.intake.drop([part.piece])
            self._forget_past(part)
            outlets.drop_supply(part)
        return entries

    def _begin_earlier(self, supply: Supply, start: int) -> None:
        """Nothing has come yet, because the first receiver asked for a future tick: begin where this receiver wants
        to."""
        piece = supply.piece
        if piece is not None and piece.next == piece.begin and not supply.ring and piece.feed is not None:
            provider = piece.feed.peer
            self.intake.drop([piece])  # its feed would send what comes later first
            piece.next = piece.begin = max(0, start - self.kernel.settings.slack_ticks)
            supply.start = supply.head = piece.next
            self.intake.ask([piece], provider)
            self.moved(piece)

    def _reach_back(self, supply: Supply, start: int) -> bool:
        """Fetch older ticks for a receiver that cannot ask the owner itself; the shared stream goes on."""
        assert supply.head is not None
        assert supply.start is not None
        if start < supply.head - self.kernel.settings.ring_ticks:
            return False
        if supply.past is None:
            size = points_of(self.kernel.grid, supply.cell)
            supply.past = Piece(supply, supply.attribute, supply.cell, size, start, None, supply.start)
            self.intake.seek([supply.past], owner=True)
        return supply.past.begin <= start

    def _forget_past(self, supply: Supply) -> None:
        if supply.past is not None:
            self.intake.drop([supply.past])
            supply.past = None

    def _remove(self, entry: Entry, keep: bool = False) -> None:
        supply = self.outlets.remove(entry)
        if not supply.entries and supply.piece is not None and not keep and not supply.standing:
            self._end(supply)

    def _end(self, supply: Supply) -> None:
        """Stop taking it."""
        if supply.piece is not None:
            self.intake.drop([supply.piece])
        self._forget_past(supply)
        self.outlets.drop_supply(supply)

    def _start(self, entry: Entry, supply: Supply) -> None:
        """Say that an entry is fed, and send what it missed (rules 6 and 7)."""
        if supply.reading and supply.start is not None and entry.next < supply.start:
            return  # the lake may have what it asks for
        if too_old(supply, entry.next):  # the ring went on while it waited for a path
            self.answers.refuse(entry.peer, entry.generation, entry.cell, TOO_OLD)
            self._remove(entry)
            return
        self.outlets.grant(entry)
        self.answers.grant(entry, supply.path)
        if supply.head is not None and entry.next < supply.head:
            self.answers.flush()  # first that it is fed, then with what
        feeding.catch_up(self.kernel, entry, supply)

    # -- data come by

    def fed(self, piece: Piece, tick: int, revision: int, slabs: tuple[Slab, ...] | None) -> None:
        """A tick from a provider: on to the receivers."""
        supply = piece.purpose
        assert isinstance(supply, Supply)
        if piece is not supply.past:
            feeding.forward(self.kernel, supply, tick, revision, slabs)
            return
        supply.ring.setdefault(tick, (revision, slabs))
        self._reached_back(supply, piece)

    def _reached_back(self, supply: Supply, piece: Piece) -> None:
        if piece.until is not None and piece.next >= piece.until:
            assert supply.start is not None
            supply.start = min(supply.start, piece.begin)
            self._forget_past(supply)
            self.outlets.freed = True

    def skipped(self, piece: Piece, first: int, until: int) -> None:
        """A gap from a provider."""
        supply = piece.purpose
        assert isinstance(supply, Supply)
        if piece is not supply.past:
            feeding.skip(self.kernel, supply, until)
            return
        for tick in range(max(first, until - self.kernel.settings.ring_ticks), until):
            supply.ring.setdefault(tick, feeding.GAP)
        self._reached_back(supply, piece)

    def published(self, event: Published) -> None:
        """A tick from the pipeline, for a region of this broker; each (tick, revision) counts once."""
        supply = self.outlets.supplies.get(event.attribute, {}).get(event.cell)
        if supply is None or not supply.owned:
            return
        if event.epoch > supply.epoch:
            # There may be a newer owner. Only a roster can say so: a publisher's word makes nobody step down.
            self.kernel.happened.put(Outdated())
        if event.epoch != supply.epoch:
            return
        if supply.reading and (supply.head is None or event.tick > supply.head):
            # The lake is being read, and may have been read before this was written.
            if len(supply.early) < EARLY_MAX:
                supply.early.append(event)
            return
        self._issue(supply, event.tick, event.revision, self._slabs(event.cell, event.values))

    def _issue(self, supply: Supply, tick: int, revision: int, slabs: tuple[Slab, ...] | None) -> None:
        """The owner gives out a tick, if it is the next one or better than what there is."""
        held = supply.ring.get(tick)
        if held is not None and held[0] >= revision:
            return
        if supply.head is not None and tick < supply.head and held is None:
            return  # older than the ring
        if supply.head is None or tick > supply.head:
            feeding.skip(self.kernel, supply, tick)
        feeding.forward(self.kernel, supply, tick, revision, slabs)

    def _slabs(self, cell: int, values: Values | None) -> tuple[Slab, ...] | None:
        if values is None:
            return None
        where = self._places.get(cell)
        if where is None:
            box = box_of(self.kernel.grid, cell)
            where = self._places[cell] = ((box.y0, box.y1, 1), (box.x0, box.x1, 1))
        return (Slab(*where, values),)

    # -- providers change

    @property
    def now(self) -> Instant:
        """For the intake."""
        return self.kernel.now

    def send(self, peer: PeerId, message: Want | Leave) -> None:
        """The intake speaks."""
        self.kernel.send(peer, message)

    def locate(self, pieces: list[Piece], owner: bool) -> None:
        """Ask routing."""
        self.lookups.put((pieces, owner))

    def moved(self, piece: Piece) -> None:
        """A supply has another path: tell its receivers, and start feeding those that waited for it."""
        supply = piece.purpose
        assert isinstance(supply, Supply)
        if piece is supply.past:
            return
        epoch = supply.epoch if piece.feed is None else piece.feed.epoch
        self._repath(supply, None if piece.path is None else (*piece.path, self.me), epoch)
        if supply.moves is not None and supply.path == (supply.moves, self.me):
            to, supply.moves = supply.moves, None
            chosen = [(e, e.cell) for e in supply.entries.values() if e.sits and e.peer != to]
            if chosen:
                self.answers.flush()  # first where it comes from now
                self.departures.send(chosen, to, None)

    def _repath(self, supply: Supply, path: Path | None, epoch: int) -> None:
        if path == supply.path and epoch == supply.epoch:
            return
        supply.path, supply.epoch = path, epoch
        self.outlets.reroute(supply)
        for entry in list(supply.entries.values()):
            if entry.granted:
                self.answers.grant(entry, path)
            elif path is not None:
                self._start(entry, supply)

    def lost(self, piece: Piece, reason: Reason) -> None:
        """A supply has no provider any more: its receivers have to search for one themselves."""
        supply = piece.purpose
        assert isinstance(supply, Supply)
        if piece is supply.past:
            self._forget_past(supply)
            for key, request in list(self.requests.items()):
                here = request.want.attribute == supply.attribute and contains(supply.cell, request.cell)
                if here and too_old(supply, request.start):
                    del self.requests[key]
                    why = NO_ROOM if reason.why is Why.NO_ROOM else TOO_OLD
                    self.answers.refuse(request.peer, request.want.generation, request.cell, why)
            return
        said = NO_ROOM if reason.why is Why.NO_ROOM else Reason(reason.why, f"no provider: {reason.text}")
        supply.standing = False
        for entry in list(supply.entries.values()):
            self.answers.refuse(entry.peer, entry.generation, entry.cell, said)
            self._remove(entry)
        if self._has(supply):  # it was taken for nobody
            self._end(supply)

    def cut(self, piece: Piece, parts: list[int]) -> list[Piece] | None:
        """A provider sends part of a supply elsewhere: one supply for each part, and so on down to the clients.

        Receivers of more than one part are told in the same way, by a redirect, but to this broker itself: that only
        cuts their entries.
        """
        supply = piece.purpose
        assert isinstance(supply, Supply)
        if piece is supply.past or (piece.feed is None and piece.trial is None):
            return None  # it has no provider: its receivers ask for the parts themselves
        if max(parts).bit_length() - 1 > self.kernel.digits:
            return None  # a part smaller than a point
        outlets = self.outlets
        self._forget_past(supply)
        entries = list(supply.entries.values())
        for entry in entries:
            outlets.remove(entry)
        outlets.drop_supply(supply)
        supplies = [self._part_of(supply, piece, cell) for cell in parts]
        for entry in entries:
            within = [s for s in supplies if contains(s.cell, entry.cell)]
            if within:
                outlets.add(entry, within[0])
                continue
            if entry.of_broker and entry.until is not None:
                # The past is never cut: look for it.
                self.answers.refuse(entry.peer, entry.generation, entry.cell, CUT)
                continue
            for new in outlets.parts(entry, parts[0]):
                outlets.add(new, next(s for s in supplies if contains(s.cell, new.cell)))
            self.answers.flush()  # what was granted under the old name comes first
            items = ((entry.cell, parts[0]),)
            self.kernel.send(entry.peer, Redirect(entry.generation, items, self.me))
        self._bare += [s for s in supplies if not s.entries]
        return [s.piece for s in supplies if s.piece is not None]

    def _part_of(self, supply: Supply, piece: Piece, cell: int) -> Supply:
        part = Supply(supply.attribute, cell, supply.since)
        part.epoch = supply.epoch
        part.path, part.ring = supply.path, dict(supply.ring)
        part.start, part.head = supply.start, supply.head
        size = points_of(self.kernel.grid, cell)
        part.piece = Piece(part, supply.attribute, cell, size, piece.next)
        part.piece.begin, part.piece.revisions = piece.begin, dict(piece.revisions)
        part.piece.tried, part.piece.hints = piece.tried, piece.hints
        self.intake.watch(part.piece, piece.due)
        self.outlets.add_supply(part)
        return part

    # -- regions change

    def changed(self, event: RosterChanged) -> None:
        """Own what the roster says; what another broker owns now is taken from there as long as it is needed here."""
        outlets, roster = self.outlets, event.roster
        mine = {(r.attribute, r.cell): r for r in roster.by_owner.get(self.me, ())}
        heirlooms = {(r.attribute, r.cell): r for r in roster.by_heir.get(self.me, ())}
        for attribute in list(outlets.supplies):
            for supply in list(outlets.supplies[attribute].values()):
                key = (attribute, supply.cell)
                if supply.owned and key not in mine:
                    self._hand_over(supply, roster)
                elif supply.standing and key not in mine and key not in heirlooms:
                    supply.standing = False
                    if not supply.entries:
                        self._end(supply)
        for region in mine.values():
            self._own(region)
        for region in heirlooms.values():
            self._prepare(region)
        self.intake.succeeded(roster)

    def _hand_over(self, supply: Supply, roster: Roster) -> None:
        """From now on, take a region from its new owner, for the receivers that still have it from here, until they
        leave."""
        region = roster.region(supply.attribute, supply.cell)
        if region is None or region.owner == self.me or supply.path is None or supply.head is None:
            heirs = () if region is None else (region.owner,)
            for entry in list(supply.entries.values()):
                self.answers.refuse(entry.peer, entry.generation, entry.cell, ANOTHER_OWNER, heirs)
                self._remove(entry)
        if not supply.entries:
            self.outlets.drop_supply(supply)
            return
        assert region is not None
        assert supply.head is not None
        points = points_of(self.kernel.grid, supply.cell)
        piece = Piece(supply, supply.attribute, supply.cell, points, supply.head)
        piece.begin = supply.head if supply.start is None else supply.start
        piece.revisions = dict(supply.revisions())
        supply.early, supply.reading, supply.moves = [], False, region.owner
        self.outlets.turn(supply, piece)
        self._repath(supply, None, supply.epoch)
        self.intake.ask([piece], region.owner)

    def _own(self, region: Region) -> None:
        outlets = self.outlets
        supply = outlets.supplies.get(region.attribute, {}).get(region.cell)
        if supply is not None and supply.owned and supply.epoch == region.epoch:
            return
        if supply is not None and (supply.owned or supply.ring):
            # It goes on with what it has: its own ring, or that of the relay that it was.
            if supply.piece is not None:
                self.intake.drop([supply.piece])
                self._forget_past(supply)
                supply.standing, supply.moves = False, None
                outlets.turn(supply, None)
                supply.reading = True
                self._repath(supply, (self.me,), region.epoch)
            else:
                supply.reading = True
                self._repath(supply, supply.path, region.epoch)
        else:
            above = outlets.supply_for(region.attribute, region.cell)
            if above is not None and above.cell != region.cell:
                self._cut_at(above, region.cell)
            entries = self._absorb(region.attribute, region.cell)
            supply = Supply(region.attribute, region.cell, self.kernel.now)
            supply.epoch, supply.reading = region.epoch, True
            outlets.add_supply(supply)
            for entry in entries:
                # Without a ring of all the region there is nothing to go on with but the lake (rule 8).
                entry.granted = False
                outlets.add(entry, supply)
                self.answers.grant(entry, None)
        self.kernel.effects.append(Recall(region.attribute, region.cell, region.epoch))

    def _prepare(self, region: Region) -> None:
        """Take a region that this broker is to own, before any receiver wants it: first from the lake, then from its
        owner."""
        outlets, attribute, cell = self.outlets, region.attribute, region.cell
        supply = outlets.supply_for(attribute, cell)
        if supply is not None:
            supply.standing |= supply.cell == cell and not supply.owned
        elif not outlets.has_below(attribute, cell):  # else it takes parts of it, and will read the lake
            supply = Supply(attribute, cell, self.kernel.now)
            supply.piece = Piece(supply, attribute, cell, points_of(self.kernel.grid, cell), 0)
            supply.standing = supply.reading = True
            supply.epoch = region.epoch
            outlets.add_supply(supply)
            self.kernel.effects.append(Recall(attribute, cell, region.epoch))

    def recalled(self, event: Recalled) -> None:
        """The tail of the lake: it tells an owner what was published before it became the owner."""
        supply = self.outlets.supplies.get(event.attribute, {}).get(event.cell)
        if supply is None or supply.epoch != event.epoch or not supply.reading:
            return
        supply.reading = False
        tail = [(tick, revision, self._slabs(event.cell, values)) for tick, revision, values in event.ticks]
        if supply.path is not None and supply.head is not None:
            self._merge(supply, tail)
            for entry in [e for e in supply.entries.values() if not e.granted]:
                self._start(entry, supply)
        else:
            for tick, revision, slabs in tail:
                supply.keep(tick, revision, slabs, self.kernel.settings.ring_ticks)
        if supply.piece is not None:
            self._follow(supply, supply.piece)
            return
        self._repath(supply, (self.me,), supply.epoch)
        early, supply.early = supply.early, []
        for late in early:  # taken and acknowledged, in whatever epoch that was
            self._issue(supply, late.tick, late.revision, self._slabs(late.cell, late.values))

    def _merge(self, supply: Supply, tail: list[tuple[int, int, tuple[Slab, ...] | None]]) -> None:
        """Put the lake's ticks and the ring together: receivers get what is new to them, in order."""
        assert supply.head is not None
        horizon, start = supply.head - self.kernel.settings.ring_ticks, supply.start
        for tick, revision, slabs in tail:
            if start is not None and horizon <= tick < start:
                supply.ring.setdefault(tick, (revision, slabs))
            else:
                self._issue(supply, tick, revision, slabs)
        while supply.start is not None and supply.start - 1 in supply.ring:
            supply.start -= 1

    def _follow(self, supply: Supply, piece: Piece) -> None:
        """Take a region from its owner, from where the lake ends."""
        if supply.head is None:
            supply.start = supply.head = 0
        piece.next = supply.head
        piece.begin = supply.head if supply.start is None else supply.start
        piece.revisions = dict(supply.revisions())
        roster = self.held.current
        region = None if roster is None else roster.region(supply.attribute, supply.cell)
        if region is not None and region.owner != self.me:
            self.intake.ask([piece], region.owner)

    # -- work left by others, and answers that go out together

    def settle(self) -> bool:
        """Ask located providers, let waiting requests in where room was freed."""
        busy = False
        for bare in self._bare:
            if not bare.entries and bare.piece is not None and self._has(bare):
                self.intake.drop([bare.piece])
                self.outlets.drop_supply(bare)
        self._bare.clear()
        while self.located:
            attribute, cell, provider = self.located.take()
            supply = self.outlets.supply_for(attribute, cell)
            busy = True
            if supply is None or supply.piece is None:
                continue
            wanted = [p for p in (supply.piece, supply.past) if p is not None]
            for piece in [p for p in wanted if p.feed is None and p.trial is None]:
                if supply.cell != cell:
                    self._cut_at(supply, cell)
                    break
                if provider is None or provider == self.me:
                    self.intake.unlocated(piece)
                else:
                    self.intake.ask([piece], provider)
        if self.outlets.freed:
            self.outlets.freed = False
            for key, request in list(self.requests.items()):
                fits = request.size <= self.outlets.free
                if fits or self.admission.reservation_for(request.want, request.cell):
                    del self.requests[key]
                    self._admit(request)
                    busy = True
        return busy

    def _has(self, supply: Supply) -> bool:
        return self.outlets.supplies.get(supply.attribute, {}).get(supply.cell) is supply

    def _cut_at(self, supply: Supply, part: int) -> None:
        """A region border runs through a cell that this broker wanted whole: its receivers have to ask for the parts.

        Receivers of a smaller cell, through which no border runs, keep their entries, with a supply of that cell. If
        they were refused, a query that is just being posed would fail without cause.
        """
        whole: list[Entry] = []
        for entry in list(supply.entries.values()):
            if entry.cell == part or not contains(entry.cell, part):
                whole.append(entry)
            elif entry.of_broker:
                self.answers.refuse(entry.peer, entry.generation, entry.cell, SEVERAL_OWNERS)
            else:
                parts = (part, *beside(entry.cell, part))
                self.answers.refuse(entry.peer, entry.generation, entry.cell, CUT, (), parts)
            self._remove(entry)
        for entry in whole:
            self._admit_again(entry, supply)

    def _admit_again(self, entry: Entry, before: Supply) -> None:
        kernel, items = self.kernel, ((entry.cell, entry.size, entry.next),)
        has = before.revisions() if entry.granted else entry.held
        held = tuple((entry.cell, tick, revision) for tick, revision in has.items())
        want = Want(
            entry.generation, entry.attribute, items, entry.clip, entry.until, None, entry.stays, held
        )
        due = kernel.now + kernel.settings.wait_s
        self._admit(WaitingRequest(entry.peer, want, entry.cell, entry.size, entry.next, due))
        if entry.granted:
            for new in self.outlets.of(entry.peer, entry.generation, entry.cell):
                if not new.granted:
                    self.answers.grant(new, None)

    def finish(self) -> None:
        """Send grants and refusals."""
        self.answers.flush()

    # -- time

    def next_wakeup(self) -> Instant | None:
        """When a piece or a waiting request must have heard something."""
        due, leave = self.intake.next_wakeup(), self.departures.next_wakeup()
        if not self.requests and leave is None:
            return due
        times = [w.due for w in self.requests.values()]
        times += [moment for moment in (due, leave) if moment is not None]
        return min(times, default=None)

    def woke(self, event: Woke) -> None:
        """Refuse requests that waited too long."""
        self.intake.woke()
        self.departures.woke()
        for key, request in list(self.requests.items()):
            if request.due <= self.kernel.now:
                del self.requests[key]
                elsewhere = self.admission.elsewhere(request)
                self.answers.refuse(request.peer, request.want.generation, request.cell, NO_ROOM, elsewhere)
