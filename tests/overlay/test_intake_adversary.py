"""A receiver whose providers say anything at any time: each tick once, in order, and the books balance."""

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hands import NO_ROOM, cell
from receiver import Receiver
from sensorgrid.index.codes import contains
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.intake import Piece
from sensorgrid.overlay.messages import Feed, Grant, Redirect, Refuse, Want


class Adversary(RuleBasedStateMachine):
    """A receiver whose providers say anything at any time.

    Whatever comes, every leaf of what it wants is handed each tick once and in order, revisions only upwards, and
    the intake's books balance.
    """

    def __init__(self) -> None:
        super().__init__()
        self.me = Receiver(me=9)
        self.handed: dict[int, list[tuple[int, int]]] = {}
        """by leaf: (tick, revision) as handed to the host"""
        self.entries: list[tuple[PeerId, int, int]] = []
        """all that was ever asked for: (peer, generation, cell), and parts"""
        self.seen = 0
        self.asks = 0

    cells = st.sampled_from(["000", "001", "01"])
    parts = st.sampled_from(["", "", "0", "1", "01", "10", "11"])
    peers = st.integers(0, 4).map(PeerId)
    paths = st.none() | st.lists(st.sampled_from([0, 1, 2, 3, 9]), min_size=1, max_size=3, unique=True)

    def _after(self) -> None:
        """Note what was said and handed over; drop what is lost, as a host has to."""
        for peer, message in self.me.sent[self.seen :]:
            if isinstance(message, Want):
                self.entries += [(peer, message.generation, item[0]) for item in message.items]
        self.seen = len(self.me.sent)
        for code, tick, revision in self.me.ticks:
            self._hand(code, tick, revision)
        self.me.ticks.clear()
        lost = [piece for piece, _ in self.me.gone if piece in self.me.pieces]
        self.me.gone.clear()
        self._drop(lost)

    def _hand(self, code: int, tick: int, revision: int) -> None:
        (piece,) = (p for p in self.me.pieces if p.cell == code)
        for leaf in _leaves(code):
            given = self.handed.setdefault(leaf, [])
            before = [r for t, r in given if t == tick]
            if before:
                assert revision > max(before), f"tick {tick}, revision {revision} again"
            elif tick >= piece.begin:
                expected = max((t for t, _ in given if t >= piece.begin), default=piece.begin - 1) + 1
                assert tick == expected, f"tick {tick} instead of {expected}"
            else:
                assert revision > 0, f"tick {tick} from before the start"
            given.append((tick, revision))

    def _drop(self, pieces: list[Piece]) -> None:
        self.me.intake.drop(pieces)
        for piece in pieces:
            self.me.pieces.remove(piece)
            for leaf in _leaves(piece.cell):
                self.handed.pop(leaf, None)

    def _entry(self, data: st.DataObject) -> tuple[PeerId, int, int]:
        live = [(p, g, c) for p, known in self.me.intake.feeds.items() for g, c in known]
        return data.draw(st.sampled_from(live * 3 + self.entries[-6:]))

    @rule(digits=cells, start=st.integers(0, 3), peer=st.none() | peers)
    def want(self, digits: str, start: int, peer: PeerId | None) -> None:
        code = cell(digits)
        if any(contains(code, p.cell) or contains(p.cell, code) for p in self.me.pieces):
            return
        piece = self.me.want(digits, start + 20)
        if peer is None:
            self.me.intake.seek([piece])
        else:
            self.me.intake.ask([piece], peer)
        self._after()

    @precondition(lambda self: any(p.feed is None and p.trial is None for p in self.me.pieces))
    @rule(data=st.data(), peer=st.none() | peers)
    def locate(self, data: st.DataObject, peer: PeerId | None) -> None:
        idle = [p for p in self.me.pieces if p.feed is None and p.trial is None]
        piece = data.draw(st.sampled_from(idle))
        if peer is None:
            self.me.intake.unlocated(piece)
        else:
            self.me.intake.ask([piece], peer)
        self._after()

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), path=paths)
    def grant(self, data: st.DataObject, path: list[int] | None) -> None:
        peer, generation, code = self._entry(data)
        way = None if path is None else tuple(PeerId(p) for p in path)
        self.me.intake.granted(peer, Grant(generation, (code,), way))
        self._after()

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), reason=st.sampled_from([NO_ROOM, "too old"]), named=st.lists(peers, max_size=2))
    def refuse(self, data: st.DataObject, reason: str, named: list[PeerId]) -> None:
        peer, generation, code = self._entry(data)
        parts = data.draw(
            st.sampled_from([(), (), (code << 1, code << 1 | 1), (code,), (code << 1,), (1, 2)])
        )
        if code.bit_length() > 8:
            parts = ()
        self.me.intake.refused(peer, Refuse(generation, (code,), reason, tuple(named), parts))
        self._after()

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), part=parts, to=st.sampled_from([0, 1, 2, 3, 4, 9]))
    def redirect(self, data: st.DataObject, part: str, to: int) -> None:
        peer, generation, code = self._entry(data)
        inner = int(bin(code) + part, 2) if code.bit_length() + len(part) <= 8 else code
        if data.draw(st.integers(0, 9)) == 0:
            inner = data.draw(st.sampled_from([1, 9, 15, code >> 1 or 1]))
        self.me.intake.redirected(peer, Redirect(generation, ((code, inner),), PeerId(to)))
        self._after()

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), ahead=st.integers(-20, 4), revision=st.integers(0, 2), gap=st.integers(0, 8))
    def feed(self, data: st.DataObject, ahead: int, revision: int, gap: int) -> None:
        peer, generation, code = self._entry(data)
        piece = self.me.intake.feeds.get(peer, {}).get((generation, code))
        tick = (20 if piece is None else piece.next) + ahead
        if gap > 5:
            self.me.intake.received(peer, Feed(generation, code, tick, 0, None, until=tick + gap))
        else:
            self.me.intake.received(peer, Feed(generation, code, tick, revision, ()))
        self._after()

    @precondition(lambda self: self.me.intake.feeds)
    @rule(data=st.data(), count=st.integers(1, 4))
    def go_on(self, data: st.DataObject, count: int) -> None:
        """An honest provider: the ticks that are due."""
        peer, generation, code = self._entry(data)
        for _ in range(count):
            piece = self.me.intake.feeds.get(peer, {}).get((generation, code))
            if piece is None:
                break
            source = next(
                s for s in (piece.feed, piece.trial) if s is not None and s.generation == generation
            )
            self.me.intake.received(peer, Feed(generation, code, source.at, 0, ()))
            self._after()

    @rule(peer=peers)
    def hang_up(self, peer: PeerId) -> None:
        self.me.intake.peer_down(peer)
        self._after()

    @rule(seconds=st.sampled_from([0.3, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.me.wait(seconds)
        self._after()

    @precondition(lambda self: self.me.pieces)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self._drop([data.draw(st.sampled_from(self.me.pieces))])
        self._after()

    @invariant()
    def books_balance(self) -> None:
        self.me.check()

    @invariant()
    def whoever_is_left_alone_comes_to_rest(self) -> None:
        """Between two events nobody asks for ever."""
        assert len(self.me.sent) < 2000

    def teardown(self) -> None:
        self._drop(list(self.me.pieces))
        assert self.me.intake.feeds == {}
        assert self.me.intake.next_wakeup() is None


def _leaves(code: int, digits: int = 8) -> range:
    down = digits - (code.bit_length() - 1)
    return range(code << down, code + 1 << down)


TestAdversary = Adversary.TestCase
TestAdversary.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
