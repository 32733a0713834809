"""Hands that play the providers of a receiver which only writes down what its intake does."""

from typing import Any

from hands import cell, points, settings
from sensorgrid.index.codes import contains
from sensorgrid.model.block import Slab
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay import messages
from sensorgrid.overlay.intake import Intake, Piece
from sensorgrid.overlay.messages import Clip, Feed, Grant, Leave, Reason, Refuse, Want


class Receiver:
    """A host that only writes down what its intake does."""

    def __init__(self, me: int = 9, roams: bool = True, cuts: bool = True, **changes: Any) -> None:
        self.me = PeerId(me)
        self.roams = roams
        self.cuts = cuts
        self.now = 0.0
        self.intake = Intake(self, settings(**changes))
        self.sent: list[tuple[PeerId, Want | Leave]] = []
        self.sought: list[tuple[Piece, bool]] = []
        self.ticks: list[tuple[int, int, int]] = []
        """(cell, tick, revision) as handed to the host"""
        self.moves: list[Piece] = []
        self.gone: list[tuple[Piece, str]] = []
        self.pieces: list[Piece] = []
        """wanted at present"""

    # -- what the intake calls

    def send(self, peer: PeerId, message: Want | Leave) -> None:
        self.sent.append((peer, message))

    def locate(self, pieces: list[Piece], owner: bool) -> None:
        self.sought += [(piece, owner) for piece in pieces]

    def fed(self, piece: Piece, tick: int, revision: int, slabs: tuple[Slab, ...] | None) -> None:
        self.ticks.append((piece.cell, tick, revision))

    def skipped(self, piece: Piece, first: int, until: int) -> None:
        self.ticks += [
            (piece.cell, tick, -1) for tick in range(first, until)
        ]  # data of any revision replace it

    def moved(self, piece: Piece) -> None:
        self.moves.append(piece)

    def lost(self, piece: Piece, reason: Reason) -> None:
        self.gone.append((piece, reason.text))

    def cut(self, piece: Piece, parts: list[int]) -> list[Piece] | None:
        if not self.cuts:
            return None
        self.pieces.remove(piece)
        new = []
        for code in parts:
            part = Piece(None, 0, code, points(code), piece.next, piece.clip, piece.until)
            part.first, part.begin, part.revisions = piece.first, piece.begin, dict(piece.revisions)
            part.tried, part.hints = piece.tried, piece.hints
            self.intake.watch(part, piece.due)
            new.append(part)
        self.pieces += new
        piece.due = None
        return new

    # -- what tests do

    def want(self, digits: str, start: int = 0, clip: Clip | None = None) -> Piece:
        """Want a cell, without asking anybody yet."""
        piece = Piece(None, 0, cell(digits), points(cell(digits)), start, clip)
        self.pieces.append(piece)
        return piece

    def fed_by(self, peer: int, digits: str, start: int = 0, path: tuple[int, ...] | None = None) -> Piece:
        """Want a cell, and get it from a provider."""
        piece = self.want(digits, start)
        self.intake.ask([piece], PeerId(peer))
        self.grant(peer, path or (0, peer))
        assert piece.feed is not None
        return piece

    def switching(self, peer: int, to: int, digits: str = "000") -> Piece:
        """Want a cell, get it from a provider, and be redirected by it to another: its trial."""
        piece = self.fed_by(peer, digits)
        self.redirect(peer, to, (digits, digits))
        return piece

    @property
    def generation(self) -> int:
        """Of what was asked for last."""
        return max(m.generation for _, m in self.sent if isinstance(m, Want))

    @property
    def last(self) -> tuple[PeerId, Want | Leave]:
        """What was said last, to whom."""
        return self.sent[-1]

    def asked(self) -> list[PeerId]:
        """Who was asked, in order."""
        return [peer for peer, message in self.sent if isinstance(message, Want)]

    def left(self) -> list[tuple[PeerId, int]]:
        """Whom it has left, under which generation."""
        return [(peer, message.generation) for peer, message in self.sent if isinstance(message, Leave)]

    def grant(
        self, peer: int, path: tuple[int, ...] | None, generation: int | None = None, digits: str = ""
    ) -> None:
        """A provider says how its stream comes to it."""
        number = self.generation if generation is None else generation
        cells = [c for g, c in self.intake.feeds.get(PeerId(peer), {}) if g == number]
        chosen = (cell(digits),) if digits else tuple(cells)
        self.intake.granted(
            PeerId(peer), Grant(number, chosen, None if path is None else tuple(map(PeerId, path)))
        )

    def refuse(
        self, peer: int, reason: str, *elsewhere: int, digits: str, generation: int | None = None
    ) -> None:
        """A provider does not feed a cell."""
        number = self.generation if generation is None else generation
        named = tuple(PeerId(p) for p in elsewhere)
        self.intake.refused(PeerId(peer), Refuse(number, (cell(digits),), reason, named))

    def redirect(self, peer: int, to: int, *items: tuple[str, str], generation: int | None = None) -> None:
        """A provider sends parts of cells elsewhere."""
        number = self.generation if generation is None else generation
        codes = tuple((cell(whole), cell(part)) for whole, part in items)
        self.intake.redirected(PeerId(peer), messages.Redirect(number, codes, PeerId(to)))

    def feed(
        self, peer: int, digits: str, tick: int, revision: int = 0, generation: int | None = None
    ) -> None:
        """A provider sends a tick."""
        number = self.generation if generation is None else generation
        self.intake.received(PeerId(peer), Feed(number, cell(digits), tick, revision, ()))

    def wait(self, seconds: float) -> None:
        """Time passes, and whatever is due happens when it is due."""
        until, rings = self.now + seconds, 0
        while (due := self.intake.next_wakeup()) is not None and due <= until:
            rings += 1
            assert rings < 10_000, f"the timer rings for ever, at {due}"
            self.now = max(self.now, due)
            self.intake.woke()
        self.now = until

    def check(self) -> None:
        """What must hold of an intake whatever came: every source leads to its piece, and the other way round."""
        listed = [
            (peer, generation, code, piece)
            for peer, known in self.intake.feeds.items()
            for (generation, code), piece in known.items()
        ]
        held = [
            (s.peer, s.generation, s.cell, piece)
            for piece in self.pieces
            for s in (piece.feed, piece.trial)
            if s is not None
        ]
        assert sorted(map(_named, listed)) == sorted(map(_named, held))
        assert all(self.intake.feeds.values()), "a provider is listed without a piece"
        cells = [piece.cell for piece in self.pieces]
        assert not any(contains(a, b) for i, a in enumerate(cells) for j, b in enumerate(cells) if i != j)
        for piece in self.pieces:
            assert piece.feed is None or piece.feed.path is None or self.me not in piece.feed.path
            waits = piece.trial is not None or piece.feed is None or piece.feed.path is None
            lost = any(piece is p for p, _ in self.gone) and piece.feed is None and piece.trial is None
            assert not waits or piece.due is not None or lost, f"{piece} waits for nothing"


def _named(item: tuple[PeerId, int, int, Piece]) -> tuple[int, int, int, int]:
    return (*item[:3], id(item[3]))
