"""The client without I/O: queries in, admitted whole or not at all, values out.

A session receives like a broker does (`sensorgrid.overlay.intake`); on top of that it knows queries. A query is
admitted when all its pieces are accepted, before the first delivery; if one is refused, all are withdrawn. Once
admitted, a query that can no longer be held is suspended whole, with the reason, and tried again later: half a query
would take bandwidth from others and still not give the user what was asked for.
"""

from random import Random

from sensorgrid.index.codes import beside, contains
from sensorgrid.index.decompose import decompose_box_within, points_in
from sensorgrid.model.block import Slab
from sensorgrid.model.box import Box
from sensorgrid.model.errors import QueryError, SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import Instant, PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay import messages
from sensorgrid.overlay.derived import Derived, Underived
from sensorgrid.overlay.events import (
    Batch,
    Cancelled,
    Deliver,
    Effect,
    Event,
    Learned,
    Moved,
    PeerDown,
    PeerUp,
    Received,
    Refined,
    Reply,
    Submitted,
    Watched,
    Woke,
)
from sensorgrid.overlay.forwarding import wanted_of
from sensorgrid.overlay.intake import Intake, Piece
from sensorgrid.overlay.kernel import Links
from sensorgrid.overlay.messages import (
    Ask,
    Clip,
    Holds,
    Leave,
    Located,
    Message,
    Reason,
    Told,
    Want,
    Why,
)
from sensorgrid.overlay.roster import Roster
from sensorgrid.overlay.settings import SILENCES, Settings
from sensorgrid.overlay.watching import Watching

HELD_MAX = 65_536
"""blocks that may wait for a query's admission"""


class Standing:
    """A query and where it stands."""

    __slots__ = (
        "admitted", "ask", "attempts", "due", "extra", "held", "id", "limbo", "pieces", "posed", "retired",
        "suspended", "turn", "until", "wish",
    )  # fmt: skip

    def __init__(self, query: QueryId, ask: Query, until: int | None, posed: Instant) -> None:
        self.id = query
        self.posed = posed
        self.ask = ask
        self.wish = ask
        """what it is being refined to"""
        self.until = until
        self.pieces: dict[Piece, None] = {}
        self.admitted = False
        self.suspended: Reason | None = None
        """the reason; None: it is not suspended"""
        self.attempts = 0
        """failed attempts since it was last fed whole"""
        self.due: Instant | None = None
        """when a suspended query is tried again"""
        self.held: list[Deliver] = []
        """what came before all pieces were accepted"""
        self.extra: dict[Piece, None] = {}
        """pieces that a refinement adds; not accepted yet"""
        self.retired: dict[Piece, None] = {}
        """pieces that it will end"""
        self.limbo: list[Deliver] = []
        """what retired pieces brought after the turn"""
        self.turn = 0
        """the tick from which the refinement holds"""


class Session:
    """One client and its queries."""

    def __init__(
        self,
        me: PeerId,
        grid: Grid,
        settings: Settings,
        brokers: tuple[PeerId, ...],
        rng: Random,
        roams: bool = True,
        roster: Roster | None = None,
    ) -> None:
        self.me = me
        self.grid = grid
        self.settings = settings
        self.brokers = brokers
        """brokers to ask, the nearest first"""
        self.roster = roster
        """the newest that a broker told"""
        self.rng = rng
        self.roams = roams
        """whether it can dial any broker; one that cannot takes all from its first"""
        self.now: Instant = 0.0
        self.effects: list[Effect] = []
        self.links = Links(self.effects)
        self.intake = Intake(self, settings)
        self.watching = Watching(self)
        self.queries: dict[QueryId, Standing] = {}
        self._request = 0
        self.lookups: dict[int, list[Piece]] = {}
        self._touched: dict[Standing, None] = {}
        self._failed: dict[Standing, Reason] = {}
        self.sleeping: dict[Standing, None] = {}
        """suspended queries"""
        self._quiet: dict[PeerId, None] = {}
        """connections that were without use at the last beat"""
        self._beat: Instant | None = None

    # -- the world

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """One event, and all that follows from it here."""
        self.now = now
        match event:
            case Received(peer, message):  # what comes after the connection was given up is not for us
                if peer in self.links.up:
                    self.links.up[peer] = now
                    self._received(peer, message)
            case Batch(peer, several):
                if peer in self.links.up:
                    self.links.up[peer] = now
                    for message in several:
                        self._received(peer, message)
            case Submitted():
                self._submit(event)
            case Watched():
                self.watching.watch(event)
            case Refined(query, ask):
                self._refine(query, ask)
            case Moved(brokers):
                self._move(brokers)
            case Cancelled(query):
                if self.watching.end(query):
                    self.effects.append(Reply(query, "cancelled"))
                else:
                    self._end(query, "cancelled")
            case PeerUp(peer, version):
                if peer in self.links.up:
                    self.intake.peer_down(peer)
                    self.watching.peer_down(peer)
                self.links.opened(peer, now, version)
            case Learned(roster):
                self._learn(roster)
            case PeerDown(peer):
                self.links.closed(peer)
                self._down(peer)
            case Woke():
                self._woke()
            case _:
                raise TypeError(f"client {self.me}: found {type(event).__name__}, expected a client's event")
        self._settle()
        effects = self.effects[:]
        self.effects.clear()
        return effects

    def next_wakeup(self) -> Instant | None:
        """When `Woke` is due, if nothing else happens."""
        times = [q.due for q in self.sleeping if q.due is not None]
        wakeups = (self.intake.next_wakeup(), self.watching.next_wakeup(), self._beat)
        times += [due for due in wakeups if due is not None]
        return min(times, default=None)

    def _received(self, peer: PeerId, message: Message) -> None:
        match message:
            case messages.Feed():
                self.intake.received(peer, message)
            case messages.Grant():
                self.intake.granted(peer, message)
            case messages.Refuse():
                self.intake.refused(peer, message)
            case messages.Redirect():
                self.intake.redirected(peer, message)
            case Derived():
                self.watching.came(peer, message)
            case Underived():
                self.watching.refused(peer, message)
            case Located():
                self._located(message)
            case Told():
                if message.version > 0:
                    self._learn(message.roster())
            case Holds(version):
                if self.roster is None or version > self.roster.version:
                    self.links.send(peer, self._holds())
            case _:
                pass

    def _woke(self) -> None:
        self.intake.woke()
        self.watching.woke()
        for standing in list(self.sleeping):
            if standing.due is not None and standing.due <= self.now:
                standing.due = None
                del self.sleeping[standing]
                # Every other time at the owners, see `_fail`: nearest carriers alone need not ever settle.
                self._seek(list(standing.pieces), owner=standing.attempts % 2 == 1)
        for request, pieces in list(self.lookups.items()):
            if not any(p.feed is None and p.trial is None and p.due is not None for p in pieces):
                del self.lookups[request]
        if self._beat is not None and self._beat <= self.now:
            self._beat = None
            alive_s = self.settings.alive_s
            for peer, heard in list(self.links.up.items()):
                if alive_s is not None and self.now - heard > SILENCES * alive_s:
                    self.links.close(peer)
                    self._down(peer)
                elif not self._uses(peer):
                    # Unused at two beats in a row: people who come back at once find it open.
                    if peer in self._quiet:
                        self.links.close(peer)
                    else:
                        self._quiet[peer] = None
                        continue
                elif alive_s is not None:
                    self.links.send(peer, messages.Alive())
                self._quiet.pop(peer, None)

    def _uses(self, peer: PeerId) -> bool:
        """Whether a connection is needed."""
        asked = bool(self.lookups) and peer == self.brokers[0]
        return asked or self.intake.uses(peer) or self.watching.uses(peer)

    def _settle(self) -> None:
        while self._failed:
            standing, reason = self._failed.popitem()
            self._fail(standing, reason)
        for standing in list(self._touched):
            if standing.id in self.queries:
                self._progress(standing)
        self._touched.clear()
        if self.links.up and self._beat is None:
            self._beat = self.now + (self.settings.alive_s or self.settings.idle_s)

    # -- the roster

    def _holds(self) -> Holds:
        return Holds(0, "") if self.roster is None else Holds(self.roster.version, self.roster.digest)

    def _learn(self, roster: Roster) -> None:
        """A newer roster: ask brokers that are there, and follow regions to their owners."""
        before = self.roster
        if before is not None and (not roster.newer_than(before) or roster.terms != before.terms):
            return
        if roster.fault(self.grid, before):
            return
        self.roster = roster
        if self.roams:
            there = tuple(peer for peer in self.brokers if peer in roster.by_id)
            more = tuple(peer for peer in roster.by_id if peer not in there)
            self.brokers = (*there, *more) or self.brokers
        self.intake.succeeded(roster)
        self.watching.succeeded(roster)

    # -- queries

    def _submit(self, event: Submitted) -> None:
        query, until = event.query, event.until
        standing = Standing(query, event.ask, until, self.now)
        try:
            if query in self.queries:
                raise QueryError(f"query {query}: found it running, expected a number that is not in use")
            for attribute, clip, cells in self._wanted_cells(event.ask, event.cells):
                for cell, points in cells:
                    piece = Piece(standing, attribute, cell, points, event.start, clip, until)
                    standing.pieces[piece] = None
            if not standing.pieces:
                raise QueryError(f"query {query}: found no point of it in its cells, expected one or more")
        except SensorGridError as error:
            self.effects.append(Reply(query, "refused", str(error)))
            return
        self.queries[query] = standing
        self._seek(list(standing.pieces))

    def _wanted_cells(
        self, ask: Query, chosen: tuple[int, ...] | None = None
    ) -> list[tuple[int, Clip, list[tuple[int, int]]]]:
        """Per attribute what is wanted, as cells with their points."""
        box, limits = ask.box(self.grid), ask.limits(self.grid)
        if chosen is None:
            settings = self.settings
            fragments = decompose_box_within(box, limits, self.grid, settings.depth, settings.cells_max)
            cells = list(zip(fragments.codes, fragments.points.tolist(), strict=True))
        else:
            points = points_in(box, limits, chosen, self.grid)
            cells = [(cell, count) for cell, count in zip(chosen, points, strict=True) if count]
        ranges = {name: (low, high) for name, low, high in ask.where}
        found = []
        for name in ask.attributes:
            low, high = ranges.get(name, (float("-inf"), float("inf")))
            clip = Clip(
                (box.x0, box.x1, box.y0, box.y1),
                limits,
                None if low == float("-inf") else low,
                None if high == float("inf") else high,
            )
            found.append((self.grid.attributes.index(name), clip, cells))
        return found

    def _seek(self, pieces: list[Piece], owner: bool = False) -> None:
        if self.roams:
            self.intake.seek(pieces, owner)
        else:
            self.intake.ask(pieces, self.brokers[0])

    def _refine(self, query: QueryId, ask: Query) -> None:
        """Only what is missing starts; what is no longer wanted ends; what both want goes on untouched."""
        standing = self.queries.get(query)
        if (
            standing is None
            or not standing.admitted
            or standing.suspended
            or standing.extra
            or standing.retired
        ):
            self.effects.append(Reply(query, "not refined", "the query does not run, or is being refined"))
            return
        try:
            wanted = self._wanted_cells(ask)
        except SensorGridError as error:
            self.effects.append(Reply(query, "not refined", str(error)))
            return
        turn = standing.turn = max(p.next for p in standing.pieces) + self.settings.slack_ticks
        kept: dict[Piece, None] = {}
        for attribute, clip, cells in wanted:
            mine = {p.cell: p for p in standing.pieces if p.attribute == attribute}
            stack = [cell for cell, _ in cells]
            fresh = []
            while stack:
                cell = stack.pop()
                piece = mine.get(cell)
                if piece is not None and self._same(cell, piece.clip, clip):
                    kept[piece] = None
                elif any(code != cell and contains(cell, code) for code in mine):
                    stack += [cell << 1, cell << 1 | 1]
                else:
                    fresh.append(cell)
            points = points_in(Box(*clip.box), clip.limits, fresh, self.grid) if fresh else []
            for cell, count in zip(fresh, points, strict=True):
                if count:
                    standing.extra[Piece(standing, attribute, cell, count, turn, clip, standing.until)] = None
        standing.retired = {p: None for p in standing.pieces if p not in kept}
        standing.wish = ask
        if standing.extra:
            self._seek(list(standing.extra))
        elif standing.retired:
            self._touched[standing] = None
        else:
            self._finish_refinement(standing)

    def _move(self, brokers: tuple[PeerId, ...]) -> None:
        """Ask the broker that is nearest now; a client that roams keeps its providers.

        Streams switch as always, when the new provider feeds them: nothing is lost on the way.
        """
        self.brokers = brokers
        if self.roams:
            return
        pieces = [
            piece
            for standing in self.queries.values()
            if standing.due is None
            for piece in (*standing.pieces, *standing.extra)
            if piece.feed is None or piece.feed.peer != brokers[0]
        ]
        self.intake.ask(pieces, brokers[0])

    def _same(self, cell: int, a: Clip | None, b: Clip) -> bool:
        """Whether two clips want the same of a cell."""
        assert a is not None
        return (a.low, a.high) == (b.low, b.high) and wanted_of(self.grid, cell, a) == wanted_of(
            self.grid, cell, b
        )

    def _end(self, query: QueryId, status: str, reason: Reason | None = None) -> None:
        standing = self.queries.pop(query, None)
        if standing is not None:
            self.intake.drop([*standing.pieces, *standing.extra])
            self._touched.pop(standing, None)
            self._failed.pop(standing, None)
            self.sleeping.pop(standing, None)
            self._reply(query, status, reason)

    def _reply(self, query: QueryId, status: str, reason: Reason | None = None) -> None:
        said = Reply(query, status) if reason is None else Reply(query, status, reason.text, reason.why)
        self.effects.append(said)

    def _fail(self, standing: Standing, reason: Reason) -> None:
        """No provider was found for a piece."""
        if standing.id not in self.queries:
            return
        if standing.extra and all(p.feed is not None for p in standing.pieces):
            self._undo_refinement(standing, reason)
        elif not standing.admitted and reason.why is Why.UNHEARD and self.now < self._verdict(standing):
            self._begin_anew(standing)
        elif not standing.admitted and (standing.attempts or reason.why is not Why.NO_ROOM or not self.roams):
            self._end(standing.id, "refused", reason)
        elif not standing.admitted:
            # At a relay its pieces may take the very room that others of its pieces need there, where only
            # the owner can feed them. So the second try goes to the owners.
            standing.attempts = 1
            self._begin_anew(standing)
        else:
            if standing.extra:
                self._undo_refinement(standing, reason)
            self.intake.drop(list(standing.pieces))
            pause = min(self.settings.backoff_s * 2**standing.attempts, self.settings.backoff_max_s)
            standing.attempts = min(standing.attempts + 1, 30)
            standing.due = self.now + pause * (0.5 + self.rng.random())
            self.sleeping[standing] = None
            if standing.suspended != reason:  # said again when the reason is another one
                standing.suspended = reason
                self._reply(standing.id, "suspended", reason)

    def _begin_anew(self, standing: Standing) -> None:
        """Pose a query again, to the owners."""
        self.intake.drop(list(standing.pieces))
        for piece in standing.pieces:
            piece.next, piece.revisions = piece.begin, {}
        standing.held = []
        self._seek(list(standing.pieces), owner=True)

    def _verdict(self, standing: Standing) -> Instant:
        """When silence counts as an answer: a broken connection on the way would have been found by then."""
        return standing.posed + SILENCES * (self.settings.alive_s or 0.0) + self.settings.patience_s

    def _undo_refinement(self, standing: Standing, reason: Reason) -> None:
        self.intake.drop(list(standing.extra))
        self.effects += standing.limbo
        standing.extra, standing.retired = {}, {}
        standing.limbo, standing.held = [], []
        self._reply(standing.id, "not refined", reason)

    def _progress(self, standing: Standing) -> None:
        """Admit a query, resume it, finish a refinement or the query itself."""
        pieces = standing.pieces
        fed = all(p.feed is not None for p in pieces)
        if fed and not standing.admitted:
            standing.admitted = True
            self.effects.append(Reply(standing.id, "admitted"))
            self._release(standing)
        elif fed and standing.suspended:
            standing.suspended = None
            self.effects.append(Reply(standing.id, "resumed"))
        if fed:
            standing.attempts = 0
        if standing.admitted and standing.until is not None and all(p.next >= standing.until for p in pieces):
            self._end(standing.id, "finished")
        elif (standing.extra or standing.retired) and fed and all(p.feed is not None for p in standing.extra):
            self._finish_refinement(standing)

    def _finish_refinement(self, standing: Standing) -> None:
        if any(p.next < standing.turn for p in standing.retired):
            return  # they still have to bring what lies before the turn
        self.intake.drop(list(standing.retired))
        for piece in standing.retired:
            del standing.pieces[piece]
        standing.pieces.update(standing.extra)
        standing.ask = standing.wish
        standing.extra, standing.retired, standing.limbo = {}, {}, []
        self.effects.append(Reply(standing.id, "refined"))
        self._release(standing)

    def _release(self, standing: Standing) -> None:
        self.effects += standing.held
        standing.held = []

    # -- what the intake needs

    def send(self, peer: PeerId, message: Want | Leave) -> None:
        """The intake speaks; there is nothing to leave where there is no connection."""
        if isinstance(message, Want) or peer in self.links.up or peer in self.links.dialling:
            self.links.send(peer, message)

    def locate(self, pieces: list[Piece], owner: bool) -> None:
        """Ask the broker that this client knows."""
        if not self.roams:
            self.intake.ask(pieces, self.brokers[0])
            return
        by_attribute: dict[int, list[Piece]] = {}
        for piece in pieces:
            by_attribute.setdefault(piece.attribute, []).append(piece)
        for attribute, group in by_attribute.items():
            self._request += 1
            self.lookups[self._request] = group
            cells = tuple(piece.cell for piece in group)
            self.links.send(self.brokers[0], Ask(self._request, attribute, cells, owner))

    def _located(self, message: Located) -> None:
        pieces = self.lookups.get(message.request)
        if pieces is None:
            return
        by_cell = {p.cell: p for p in pieces if p.feed is None and p.trial is None and self._wanted(p)}
        asked: dict[PeerId, list[Piece]] = {}
        for cell, provider in message.items:
            code = cell
            while code and code not in by_cell:
                code >>= 1
            piece = by_cell.get(code)
            if piece is None:
                continue
            if provider is None:
                self.intake.unlocated(piece)
                continue
            if code != cell:
                del by_cell[code]
                parts = self.cut(piece, [cell, *beside(code, cell)])
                assert parts is not None
                by_cell.update({part.cell: part for part in parts})
                pieces += parts
                if cell not in by_cell:
                    continue
                piece = by_cell[cell]
            asked.setdefault(provider, []).append(piece)
        for provider, group in asked.items():
            self.intake.ask(group, provider)
        if all(p.trial is not None or p.feed is not None or not self._wanted(p) for p in pieces):
            del self.lookups[message.request]

    def _wanted(self, piece: Piece) -> bool:
        standing = piece.purpose
        assert isinstance(standing, Standing)
        if standing.id not in self.queries or standing.due is not None:
            return (
                False  # a suspended query wants nothing until it is tried again: half of it would help nobody
            )
        return piece in standing.pieces or piece in standing.extra

    def fed(self, piece: Piece, tick: int, revision: int, slabs: tuple[Slab, ...] | None) -> None:
        """A tick of a piece."""
        standing = piece.purpose
        assert isinstance(standing, Standing)
        if standing.until is not None:
            if piece.next >= standing.until:
                self._touched[standing] = None
            if tick >= standing.until:
                return
        self._hand_over(
            standing, piece, Deliver(standing.id, piece.attribute, piece.cell, tick, revision, slabs)
        )

    def skipped(self, piece: Piece, first: int, until: int) -> None:
        """The owner has nothing for these ticks."""
        standing = piece.purpose
        assert isinstance(standing, Standing)
        if standing.until is not None:
            self._touched[standing] = None
            until = min(until, standing.until)
        turn = standing.turn if piece in standing.retired else first
        for start, stop in ((first, min(until, turn)), (max(first, turn), until)):
            if start < stop:
                block = Deliver(standing.id, piece.attribute, piece.cell, start, 0, None, stop)
                self._hand_over(standing, piece, block)

    def _hand_over(self, standing: Standing, piece: Piece, block: Deliver) -> None:
        """To the user, or kept until the query is admitted."""
        if piece in standing.retired:
            self._touched[standing] = None
            if block.tick >= standing.turn:
                standing.limbo.append(block)
                return
        if standing.admitted and piece not in standing.extra:
            self.effects.append(block)
        elif len(standing.held) < HELD_MAX:
            standing.held.append(block)
        else:
            flooded = f"{HELD_MAX} blocks came before the query was accepted"
            self._failed[standing] = Reason(Why.OTHER, flooded)

    def moved(self, piece: Piece) -> None:
        """A piece is fed, or has another path."""
        standing = piece.purpose
        assert isinstance(standing, Standing)
        self._touched[standing] = None

    def lost(self, piece: Piece, reason: Reason) -> None:
        """A piece cannot be had: the query fails, once."""
        standing = piece.purpose
        assert isinstance(standing, Standing)
        if standing.due is None:
            self._failed.setdefault(standing, reason)

    def cut(self, piece: Piece, parts: list[int]) -> list[Piece] | None:
        """Replace a piece by its parts; those without a point are left out."""
        standing, clip = piece.purpose, piece.clip
        assert isinstance(standing, Standing)
        assert clip is not None
        points = points_in(Box(*clip.box), clip.limits, parts, self.grid)
        group = standing.extra if piece in standing.extra else standing.pieces
        new = []
        for cell, count in zip(parts, points, strict=True):
            if count:
                part = Piece(standing, piece.attribute, cell, count, piece.next, clip, piece.until)
                part.first, part.begin, part.revisions = piece.first, piece.begin, dict(piece.revisions)
                part.tried, part.hints = piece.tried, piece.hints
                self.intake.watch(part, piece.due)
                new.append(part)
                group[part] = None
        group.pop(piece, None)
        piece.due = None
        if standing.retired.pop(piece, 0) is None:
            standing.retired.update(dict.fromkeys(new))
        return new

    def _down(self, peer: PeerId) -> None:
        if peer == self.brokers[0] and self.roams:
            self.brokers = (*self.brokers[1:], peer)
            for request in list(self.lookups):
                del self.lookups[request]
        self._quiet.pop(peer, None)
        self.intake.peer_down(peer)
        self.watching.peer_down(peer)
