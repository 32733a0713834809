"""The receiving end of streams: pieces, who feeds them, and how they change provider.

A receiver keeps one next tick and one provider per *piece*: a cell, or for a client the part of a cell that its query
wants. Clients and relaying brokers receive in exactly the same way; their `IntakeHost` decides what becomes of the
data.

A piece has at most one `feed`, whose blocks it lives on, and one `trial`, a feed that would replace it. The
trial takes over only when its path is known, does not lead through this receiver, and it stands at the piece's
next tick: it was asked to begin there and has been granted, or its blocks have caught up with what the feed
brought meanwhile. Make before break. Blocks of both are welcome; each is clipped to what is missing.

Data of an owner with a higher epoch are preferred. A feed is never given up for a trial of a lower epoch. If the
roster names a newer owner than the one at the head of the feed's path, the receiver tries the new owner after a while.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Protocol

from sensorgrid.index.codes import beside, contains
from sensorgrid.model.block import Slab
from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.messages import (
    BROKEN,
    CUT,
    NO_ANSWER,
    NO_ROOM,
    NOBODY,
    NOBODY_ANSWERS,
    Clip,
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
from sensorgrid.overlay.roster import Roster
from sensorgrid.overlay.settings import Settings

SEARCHES_MAX = 6
"""providers that are tried for a piece before it counts as lost"""


class PieceFeed:
    """One provider's stream of a piece: an entry there, seen from the receiver."""

    __slots__ = ("at", "cell", "epoch", "generation", "path", "peer")

    def __init__(self, peer: PeerId, generation: int, cell: int, at: int) -> None:
        self.peer = peer
        self.generation = generation
        self.cell = cell
        self.at = at
        """the tick that it will send next"""
        self.path: Path | None = None
        """None: not granted yet, or unknown at present"""
        self.epoch = 0
        """of the owner at its beginning; 0: not known"""


class Piece:
    """A disjoint part of what a receiver wants."""

    __slots__ = (
        "attribute", "begin", "cell", "clip", "due", "feed", "first", "heir", "hints", "next", "passing",
        "points", "purpose", "revisions", "trial", "tried", "until", "why",
    )  # fmt: skip

    def __init__(
        self,
        purpose: object,
        attribute: int,
        cell: int,
        points: int,
        start: int,
        clip: Clip | None = None,
        until: int | None = None,
    ) -> None:
        self.purpose = purpose
        """what it is for: a client's query, a broker's supply"""
        self.attribute = attribute
        self.cell = cell
        self.points = points
        """per period"""
        self.next = start
        """the tick that is missing next"""
        self.first = start if clip is not None else 0
        """a client has no use for revisions of ticks before its start; a relay's receivers may have"""
        self.begin = start
        """where it began"""
        self.clip = clip
        self.until = until
        self.feed: PieceFeed | None = None
        self.trial: PieceFeed | None = None
        self.revisions: dict[int, int] = {}
        """of recent ticks that were revised"""
        self.tried: tuple[PeerId, ...] = ()
        """providers that were asked without success since it was last fed"""
        self.hints: tuple[PeerId, ...] = ()
        """providers worth asking"""
        self.why: Reason | None = None
        """the refusal that weighs most since it was last fed"""
        self.heir: tuple[int, PeerId] | None = None
        """(epoch, owner) by the roster, if the feed still comes from an earlier owner"""
        self.due: Instant | None = None
        """when something must have happened"""
        self.passing = False
        """another broker has taken it over and its receivers are on their way there: it is not searched for at once"""

    def __repr__(self) -> str:
        return f"<Piece {self.attribute}:{bin(self.cell)[3:]} next {self.next}>"

    @property
    def path(self) -> Path | None:
        """From the owner to its provider."""
        return None if self.feed is None else self.feed.path


class IntakeHost(Protocol):
    """The client or broker around an intake."""

    me: PeerId

    @property
    def now(self) -> Instant:
        """The time."""

    roams: bool
    """whether it can dial any broker; one that cannot takes all from its first"""

    def send(self, peer: PeerId, message: Want | Leave) -> None:
        """Send, dialling first if need be."""

    def locate(self, pieces: list[Piece], owner: bool) -> None:
        """Find providers; `Intake.ask` follows, or `Intake.unlocated`."""

    def fed(self, piece: Piece, tick: int, revision: int, slabs: tuple[Slab, ...] | None) -> None:
        """A tick of a piece: the next one, or a higher revision of an earlier one."""

    def skipped(self, piece: Piece, first: int, until: int) -> None:
        """The owner has nothing for these ticks of a piece."""

    def moved(self, piece: Piece) -> None:
        """A piece has another path, or none at present."""

    def lost(self, piece: Piece, reason: Reason) -> None:
        """No broker feeds a piece; the host has to drop it."""

    def cut(self, piece: Piece, parts: list[int]) -> list[Piece] | None:
        """Replace a piece by its parts, if this host can; the first keeps nothing of the piece's state."""


class Intake:
    """All pieces of one receiver. In a broker, written by streams."""

    def __init__(self, host: IntakeHost, settings: Settings) -> None:
        self.host = host
        self.settings = settings
        self.feeds: dict[PeerId, dict[tuple[int, int], Piece]] = {}
        """by provider, generation and cell"""
        self.circles = 0
        """how often this receiver found itself in a path"""
        self.switches = 0
        """how often this receiver went from one provider to another, with however many pieces at once"""
        self.points_moved = 0
        """points per period of those pieces"""
        self._switched: tuple[Instant, PeerId, PeerId] | None = None
        self._generation = 0
        self._due: list[tuple[Instant, int, Piece]] = []
        self._serial = 0

    # -- what the host does

    def ask(self, pieces: Iterable[Piece], peer: PeerId, via: PeerId | None = None) -> None:
        """Ask a provider for pieces, each from its own next tick on."""
        groups: dict[tuple[int, Clip | None, int | None], list[Piece]] = {}
        for piece in pieces:
            if piece.trial is not None:
                self._leave(piece, piece.trial)
            groups.setdefault((piece.attribute, piece.clip, piece.until), []).append(piece)
        for (attribute, clip, until), group in groups.items():
            self._generation += 1
            generation = self._generation
            known = self.feeds.setdefault(peer, {})
            for piece in group:
                piece.trial = PieceFeed(peer, generation, piece.cell, piece.next)
                known[generation, piece.cell] = piece
                if peer not in piece.tried:
                    piece.tried = (*piece.tried, peer)
                self._arm(piece, self.settings.patience_s)
            items = tuple((piece.cell, piece.points, piece.next) for piece in group)
            held = tuple(
                (piece.cell, tick, revision)
                for piece in group
                for tick, revision in piece.revisions.items()
                if tick >= piece.next - self.settings.lateness_ticks
            )
            self.host.send(
                peer, Want(generation, attribute, items, clip, until, via, not self.host.roams, held)
            )

    def seek(self, pieces: list[Piece], owner: bool = False) -> None:
        """Look for providers."""
        for piece in pieces:
            self._arm(piece, self.settings.patience_s)
        self.host.locate(pieces, owner)

    def unlocated(self, piece: Piece) -> None:
        """No provider can be found for a piece at present."""
        if piece.feed is None and piece.trial is None:
            piece.due = None
            self.host.lost(piece, NOBODY)

    def drop(self, pieces: Iterable[Piece]) -> None:
        """Stop wanting pieces; no trace of them stays (rule 9)."""
        leaving: dict[tuple[PeerId, int], list[int]] = {}
        for piece in pieces:
            for feed in (piece.feed, piece.trial):
                if feed is not None and self._forget(feed) is not None:
                    leaving.setdefault((feed.peer, feed.generation), []).append(feed.cell)
            piece.feed = piece.trial = piece.due = None
            piece.tried, piece.hints, piece.why, piece.heir = (), (), None, None
        for (peer, generation), cells in leaving.items():
            self.host.send(peer, Leave(generation, tuple(cells)))

    def watch(self, piece: Piece, due: Instant | None) -> None:
        """Set the deadline by which something must have happened to a piece; None: no deadline."""
        piece.due = due
        if due is not None:
            self._serial += 1
            heappush(self._due, (due, self._serial, piece))

    def uses(self, peer: PeerId) -> bool:
        """Whether anything comes, or is awaited, from a peer."""
        return bool(self.feeds.get(peer))

    def succeeded(self, roster: Roster) -> None:
        """Regions may have new owners: streams from the old owners should soon come from the new ones.

        Old owners redirect their receivers. A piece that an old owner still feeds after a while goes to the new owner
        by itself.
        """
        if not self.host.roams:
            return
        for piece in list(dict.fromkeys(p for known in self.feeds.values() for p in known.values())):
            feed, region = piece.feed, roster.region(piece.attribute, piece.cell)
            if feed is None or region is None or not 0 < feed.epoch < region.epoch:
                continue
            piece.heir = (region.epoch, region.owner)
            if piece.due is None:
                self._arm(piece, self.settings.path_patience_s)

    # -- what providers say

    def granted(self, peer: PeerId, message: Grant) -> None:
        """A provider accepts entries, or their path has changed (rule 3)."""
        for cell in message.cells:
            piece, feed = self._entry(peer, message.generation, cell)
            if piece is None or feed is None:
                continue
            if message.path is not None and not (message.path and all(map(is_broker, message.path))):
                continue  # streams pass brokers only, and one at least
            feed.path = message.path
            if message.path is not None:
                feed.epoch = message.epoch
            if message.path is not None and self.host.me in message.path:
                # A receiver that finds itself in a path leaves at once, for the owner: two crossed redirects form a
                # circle in which no block will ever show.
                self.circles += 1
                self._abandon(piece, feed)
                if piece.feed is None and piece.trial is None:
                    self.seek([piece], owner=True)
                self.host.moved(piece)
            elif feed is piece.trial:
                self._consider(piece)
            else:
                if piece.trial is None:  # else its own time runs, and must
                    self._arm_fed(piece)
                self.host.moved(piece)

    def refused(self, peer: PeerId, message: Refuse) -> None:
        """A provider refuses entries, or stops feeding them."""
        for cell in message.cells:
            for piece, feed in self._entries(peer, message.generation, cell):
                self._forget(feed)
                if feed is piece.trial and piece.feed is None and _divide(message.parts, piece.cell):
                    piece.trial = None
                    parts = self.host.cut(piece, list(message.parts))
                    if parts is not None:
                        self.ask(parts, peer)
                        continue
                    piece.trial = feed
                piece.hints = tuple(dict.fromkeys((*message.elsewhere, *piece.hints)))
                if message.said.why is Why.NO_ROOM:
                    piece.why = NO_ROOM  # whatever else fails: with more room it would not have been tried
                self._unfed(piece, feed, message.said)

    def redirected(self, peer: PeerId, message: Redirect) -> None:
        """A provider wants entries to be taken from elsewhere (rule 5)."""
        obeyed = []
        for cell, part in message.items:
            piece, feed = self._entry(peer, message.generation, cell)
            if piece is None or feed is None or not contains(cell, part):
                continue
            if part != cell and feed is piece.trial:
                # Only this provider has cut its entry: leave it there under its old name.
                self._forget(feed)
                self.host.send(peer, Leave(message.generation, (cell,)))
                self._unfed(piece, feed, CUT)
                continue
            if part != cell:
                piece = self._split(piece, feed, part)
                feed = None if piece is None else piece.feed
            if (
                piece is not None
                and feed is not None
                and feed is piece.feed
                and piece.trial is None
                and message.to not in (self.host.me, peer)  # to the provider itself: it was only cut
                and self.host.roams
            ):
                obeyed.append(piece)
        obeyed = [piece for piece in obeyed if piece.feed is not None]  # else it was split once more
        if obeyed:
            self.ask(obeyed, message.to, via=peer)

    def received(self, peer: PeerId, message: Feed) -> None:
        """A tick of an entry."""
        piece, feed = self._entry(peer, message.generation, message.cell)
        if piece is None or feed is None:
            return
        if message.epoch > feed.epoch:
            feed.epoch = message.epoch
        if message.slabs is None:
            self._skip(piece, feed, message.tick, max(message.until, message.tick + 1))
        else:
            if message.tick == feed.at:
                feed.at += 1
            self._take(piece, message.tick, message.revision, message.slabs)
        if feed is piece.trial:
            self._consider(piece)

    def peer_down(self, peer: PeerId) -> None:
        """A connection is gone, with all entries on it."""
        for (generation, cell), piece in self.feeds.pop(peer, {}).items():
            for feed in (piece.feed, piece.trial):
                if feed is not None and (feed.peer, feed.generation, feed.cell) == (
                    peer,
                    generation,
                    cell,
                ):
                    self._unfed(piece, feed, BROKEN)

    # -- time

    def next_wakeup(self) -> Instant | None:
        """When a piece must have heard something."""
        while self._due and self._due[0][2].due != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def woke(self) -> None:
        """Give up on what took too long (rule 4)."""
        while (due := self.next_wakeup()) is not None and due <= self.host.now:
            piece = heappop(self._due)[2]
            piece.due = None
            if piece.trial is not None:
                feed = piece.trial
                self._leave(piece, feed)
                if piece.feed is None:
                    self._search(piece, NO_ANSWER)
                else:
                    self._arm_fed(piece)
            elif piece.feed is None:
                self._search(piece, NOBODY_ANSWERS)
            elif piece.feed.path is None:
                self._leave(piece, piece.feed)
                self.seek([piece], owner=True)
                self.host.moved(piece)
            elif piece.heir is not None:
                epoch, owner = piece.heir
                piece.heir = None
                if piece.feed.epoch < epoch and owner not in (self.host.me, piece.feed.peer):
                    self.ask([piece], owner)

    # -- inside

    def _take(self, piece: Piece, tick: int, revision: int, slabs: tuple[Slab, ...] | None) -> None:
        """Clip to what is missing: the next tick, or a higher revision (rules 1 and 7)."""
        horizon = piece.next - self.settings.ring_ticks
        if tick == piece.next:
            piece.next = tick + 1
        elif not max(piece.first, horizon) <= tick < piece.next or revision <= piece.revisions.get(tick, 0):
            return
        if revision or tick in piece.revisions:
            piece.revisions[tick] = revision
            for old in [t for t in piece.revisions if t < horizon]:
                del piece.revisions[old]
        self.host.fed(piece, tick, revision, slabs)

    def _skip(self, piece: Piece, feed: PieceFeed, tick: int, until: int) -> None:
        """A gap, however long, is one step. Its ticks may still come, because data replace a gap."""
        first = piece.next
        old = feed is not piece.feed and piece.feed is not None and 0 < feed.epoch < piece.feed.epoch
        if tick <= first < until and not old:  # an owner that was replaced no longer knows what there is
            piece.next = until
            for missed in range(max(first, until - self.settings.ring_ticks), until):
                piece.revisions[missed] = -1
            self.host.skipped(piece, first, until)
        if tick <= feed.at:
            feed.at = max(feed.at, until)

    def _consider(self, piece: Piece) -> None:
        """Switch to the trial if it is as good as the feed: make before break (rule 4)."""
        trial, feed = piece.trial, piece.feed
        if trial is None or trial.path is None or trial.at < piece.next:
            return
        if feed is not None and feed.path is not None and 0 < trial.epoch < feed.epoch:
            self._leave(piece, trial)  # of an owner that was replaced
            self._arm_fed(piece)
            return
        piece.feed, piece.trial = trial, None
        piece.tried, piece.hints, piece.why = (), (), None
        self._arm_fed(piece)
        if feed is not None and self._forget(feed) is not None:
            switched = (self.host.now, feed.peer, trial.peer)
            self.switches += switched != self._switched
            self._switched = switched
            self.points_moved += piece.points
            self.host.send(feed.peer, Leave(feed.generation, (feed.cell,)))
        self.host.moved(piece)

    def _unfed(self, piece: Piece, feed: PieceFeed, reason: Reason) -> None:
        """One of a piece's feeds is gone."""
        if feed is piece.trial:
            piece.trial = None
            if piece.feed is None:
                self._search(piece, reason)
            else:
                piece.tried, piece.hints, piece.why = (), (), None
                self._arm_fed(piece)
        elif feed is piece.feed:
            piece.feed = None
            self.host.moved(piece)
            if piece.trial is None:
                self._search(piece, reason)

    def _search(self, piece: Piece, reason: Reason) -> None:
        """Try the next provider that was named, then the owner, then give up: no receiver searches for ever (rule
        10)."""
        if piece.passing:
            piece.passing = False
            self._arm(piece, self.settings.patience_s)
            return
        tried = piece.tried
        if len(tried) < SEARCHES_MAX:
            for hint in piece.hints if self.host.roams else ():
                if hint not in tried and hint != self.host.me:
                    self.ask([piece], hint)
                    return
            if self.host.me not in tried:  # stands for "has looked for the owner"
                piece.tried = (*tried, self.host.me)
                self.seek([piece], owner=True)
                return
        piece.due = None
        self.host.lost(piece, piece.why or reason)

    def _split(self, piece: Piece, feed: PieceFeed, part: int) -> Piece | None:
        """Cut a piece along a partial redirect; all parts stay where they are, under their own names."""
        parts = self.host.cut(piece, [part, *beside(piece.cell, part)])
        if parts is None:
            return None
        if piece.trial is not None and piece.trial is not feed:
            self._leave(piece, piece.trial)
        known = self.feeds[feed.peer]
        del known[feed.generation, feed.cell]
        for new in parts:
            mine = PieceFeed(feed.peer, feed.generation, new.cell, feed.at)
            mine.path, mine.epoch = feed.path, feed.epoch
            if feed is piece.feed:
                new.feed = mine
            else:
                new.trial = mine
                self._arm(new, self.settings.patience_s)
            known[feed.generation, new.cell] = new
        piece.feed = piece.trial = piece.due = None
        return next((new for new in parts if new.cell == part), None)

    def _abandon(self, piece: Piece, feed: PieceFeed) -> None:
        self._leave(piece, feed)
        if piece.trial is None:
            self._arm_fed(piece)

    def _leave(self, piece: Piece, feed: PieceFeed) -> None:
        if self._forget(feed) is not None:
            self.host.send(feed.peer, Leave(feed.generation, (feed.cell,)))
        if feed is piece.trial:
            piece.trial = None
        if feed is piece.feed:
            piece.feed = None

    def _forget(self, feed: PieceFeed) -> Piece | None:
        known = self.feeds.get(feed.peer)
        if known is None:
            return None
        piece = known.pop((feed.generation, feed.cell), None)
        if not known:
            del self.feeds[feed.peer]
        return piece

    def _entry(self, peer: PeerId, generation: int, cell: int) -> tuple[Piece | None, PieceFeed | None]:
        piece = self.feeds.get(peer, _NOTHING).get((generation, cell))
        if piece is None:
            return None, None
        feed = piece.feed
        if feed is not None and feed.generation == generation and feed.peer == peer:
            return piece, feed
        return piece, piece.trial

    def _entries(self, peer: PeerId, generation: int, cell: int) -> list[tuple[Piece, PieceFeed]]:
        """An entry, or the parts that it was cut into."""
        piece, feed = self._entry(peer, generation, cell)
        if piece is not None and feed is not None:
            return [(piece, feed)]
        known = self.feeds.get(peer, _NOTHING)
        found = []
        for g, c in [key for key in known if key[0] == generation and contains(cell, key[1])]:
            piece, feed = self._entry(peer, g, c)
            if piece is not None and feed is not None:
                found.append((piece, feed))
        return found

    def _arm_fed(self, piece: Piece) -> None:
        """What a piece without a trial waits for, if for anything: a path, or that its feed follows the roster."""
        feed = piece.feed
        if piece.heir is not None and feed is not None and feed.epoch >= piece.heir[0]:
            piece.heir = None
        waits = feed is not None and (feed.path is None or piece.heir is not None)
        self._arm(piece, self.settings.path_patience_s if waits else None)

    def _arm(self, piece: Piece, after_s: float | None) -> None:
        self.watch(piece, None if after_s is None else self.host.now + after_s)


def _divide(parts: tuple[int, ...], cell: int) -> bool:
    """Whether there are several parts and they make up a cell exactly: the peer that named them may be wrong."""
    finest = max((part.bit_length() for part in parts), default=0)
    leaves = sorted(
        (part << (finest - part.bit_length()), 1 << (finest - part.bit_length())) for part in parts
    )
    at = cell << max(0, finest - cell.bit_length())
    for start, width in leaves:
        if start != at:
            return False
        at += width
    return len(parts) > 1 and at == cell + 1 << max(0, finest - cell.bit_length())


_NOTHING: dict[tuple[int, int], Piece] = {}
