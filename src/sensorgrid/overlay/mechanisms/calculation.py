"""Calculates inside the network: joints and roots of transfer trees (operators, III-B).

A broker has a *node* for each derived stream that somebody wants of it. A node takes its inputs as a receiver and sends
its ticks as a provider; which inputs it has is a function of the stream's name and the roster, nothing else. So a
change of the roster moves a stream from one broker to another without a word: the old home finds that its one input is
the same stream at the new home, and passes it on until its receivers have turned there. Nothing is handed over, because
ticks and their weights are functions of the blocks that they rest on (`overlay/derived.py`).

A node sends its ticks in order. It sends a tick when all inputs have theirs, or some time after the first one came:
`PATIENCE_S`, and `STEP_S` more for each stream below it, so that it does not give up before they do. What comes later
makes a heavier version of the tick.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush

import numpy as np

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.boards import Boards
from sensorgrid.overlay.derived import (
    HELD_MAX,
    NUMBERS_MAX,
    Derive,
    Derived,
    Floats,
    Formula,
    Relinquish,
    StreamName,
    Underived,
    blocks_of,
    height_of,
    home_of,
)
from sensorgrid.overlay.events import (
    PeerDown,
    RosterChanged,
    TickComplete,
    TickRevised,
    TicksMissing,
    Unused,
)
from sensorgrid.overlay.kernel import BrokerKernel, Inbox
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import Message, Why
from sensorgrid.overlay.nodes import DerivedTick, StreamNode, StreamNodes, StreamReceiver, TakenStream

PATIENCE_S = 2.0
"""how long a tick waits for its last input, once the first has come"""
STEP_S = 0.5
"""how much longer for each stream that lies below"""
NODES_MAX = 65_536
"""derived streams of one broker"""
WATCHED_MAX = 16_384
"""derived streams of one client"""
TEXTS_MAX = 1 << 26
"""characters of all formulas"""
NOTHING = b""


class Calculation(Mechanism):
    """The mechanism."""

    def __init__(
        self, kernel: BrokerKernel, boards: Boards, nodes: StreamNodes, read: Callable[[str], Formula]
    ) -> None:
        self.kernel = kernel
        self.boards = boards
        self.nodes = nodes
        self.read = read
        """makes a formula from its text"""
        self.handlers = {
            Derive: self.wanted,
            Relinquish: self.relinquished,
            Derived: self.came,
            Underived: self.refused,
        }
        self.listens = {
            RosterChanged: lambda event: self._rewire_all(),
            PeerDown: lambda event: self.peer_down(event.peer),
            Unused: lambda event: self.peer_down(event.peer),
            TickComplete: lambda event: self.tapped(event.attribute, event.cell, event.tick, event.tick + 1),
            TickRevised: lambda event: self.tapped(event.attribute, event.cell, event.tick, event.tick + 1),
            TicksMissing: lambda event: self.tapped(event.attribute, event.cell, event.first, event.until),
        }
        self._busy: dict[StreamName, None] = {}
        """nodes of which something new is known"""
        self._here: Inbox[Message] = Inbox()
        """what this broker says to itself"""
        self._alarms: list[tuple[Instant, StreamName]] = []
        """a heap: when to look at a node again; some come too early, which does no harm"""

    # -- what others say

    def wanted(self, peer: PeerId, message: Derive) -> None:
        """Somebody wants a stream, or more of it."""
        node = self.nodes.get(message.name)
        if node is None:
            node = self._made(peer, message)
            if node is None:
                return
        elif message.first < node.first:
            self._extend(node, message.first)
        oldest = max(message.first, node.head - self.kernel.settings.ring_ticks)
        receiver = StreamReceiver(message.first, oldest, dict(message.held))
        before = node.receivers.get(peer)
        if before is not None:  # two nodes of that broker take it
            receiver.first = min(receiver.first, before.first)
        self.nodes.serve(node, peer, receiver)
        self._flush(node, peer, receiver)

    def _made(self, peer: PeerId, message: Derive) -> StreamNode | None:
        """A new node; None if there can be none, which the peer is told."""
        nodes, mine = self.nodes, self.nodes.ties.get(peer, 0)
        full = len(nodes) >= NODES_MAX or nodes.characters + len(message.text) > TEXTS_MAX
        if full or (mine >= WATCHED_MAX and not is_broker(peer)):
            self._refuse(
                peer, message.name, Why.NO_ROOM,
                f"found {len(nodes):,} streams that are calculated here, {mine:,} of them for you, expected fewer",
            )  # fmt: skip
            return None
        try:
            formula = self.read(message.text)
            if formula.digest != message.name.digest:
                raise SensorGridError("formula: found another one than its name says")
        except SensorGridError as error:
            self._refuse(peer, message.name, Why.SENSELESS, str(error))
            return None
        node = nodes.add(StreamNode(message.name, formula, message.first))
        self._rewire(node)
        return node

    def _extend(self, node: StreamNode, first: int) -> None:
        """Somebody wants earlier ticks: those that can still be had are calculated, and nobody else waits for them."""
        before, node.first = node.first, first
        if not node.ticks:
            node.head = first
        self._rewire(node, again=True)
        now = self.kernel.now
        for tick in range(max(first, node.head - self.kernel.settings.ring_ticks), min(before, node.head)):
            if tick not in node.ticks:
                node.since_s.setdefault(tick, now)
        heappush(self._alarms, (now + node.patience_s, node.name))
        self._look(node, first, before)
        self._busy[node.name] = None

    def relinquished(self, peer: PeerId, message: Relinquish) -> None:
        """Somebody wants a stream no longer."""
        node = self.nodes.get(message.name)
        if node is not None and self.nodes.dismiss(node, peer):
            self._drop(node)

    def came(self, peer: PeerId, message: Derived) -> None:
        """A tick of an input."""
        for name in self.nodes.taking.get(message.name, ()):
            node = self.nodes[name]
            taken = node.inputs[message.name]
            if taken.provider != peer:
                continue
            taken.attempts = 0
            if len(message.numbers) % 8:
                continue  # nonsense
            if message.tick < node.head - self.kernel.settings.ring_ticks - node.formula.window:
                continue  # it has been forgotten
            self._keep(node, taken, message.tick, DerivedTick(message.weight, message.numbers))

    def _keep(self, node: StreamNode, taken: TakenStream, tick: int, came: DerivedTick) -> None:
        """A node has a tick of an input, if it is better than the one that it had."""
        known = taken.ticks.get(tick)
        if known is None or came.weight > known.weight:
            taken.ticks[tick] = came
            node.newest = max(tick, node.newest or tick)
            for at in range(tick, min(tick + node.formula.window, node.newest + 1)):
                self._note(node, at)

    def refused(self, peer: PeerId, message: Underived) -> None:
        """A provider does not give a stream: those whose fault it is not are asked again."""
        for name in list(self.nodes.taking.get(message.name, ())):
            node = self.nodes[name]
            taken = node.inputs[message.name]
            if taken.provider == peer:
                if message.code == Why.SENSELESS:
                    for receiver in list(node.receivers):
                        self._refuse(receiver, name, Why.SENSELESS, message.reason)
                    self._drop(node)
                else:
                    self._later(node, taken)

    # -- what happens

    def peer_down(self, peer: PeerId) -> None:
        """All that was said on a connection is gone with it."""
        for node in list(self.nodes.values()):
            if self.nodes.dismiss(node, peer):
                self._drop(node)
                continue
            for taken in node.inputs.values():
                if taken.provider == peer and taken.due is None:
                    self._later(node, taken)

    def tapped(self, attribute: int, cell: int, first: int, until: int) -> None:
        """Something became of ticks of a region."""
        for name in self.nodes.reading.get((attribute, cell), ()):
            self._look(self.nodes[name], first, until)

    def next_wakeup(self) -> Instant | None:
        """When an input is asked for again, or a tick goes out without its last inputs."""
        return self._alarms[0][0] if self._alarms else None

    def settle(self) -> bool:
        """Calculate what can be calculated, and send it."""
        now = self.kernel.now
        while self._alarms and self._alarms[0][0] <= now:
            _, name = heappop(self._alarms)
            node = self.nodes.get(name)
            if node is None:
                continue
            for taken in list(node.inputs.values()):
                if taken.due is not None and taken.due <= now:
                    taken.due = None
                    self._ask(taken)
            self._busy[name] = None
        while self._busy or self._here:
            while self._here:
                self._hear(self._here.take())
            while self._busy:
                name = next(iter(self._busy))
                del self._busy[name]
                node = self.nodes.get(name)
                if node is not None:
                    self._advance(node)
        return False

    def leftovers(self) -> Mapping[str, object]:
        """Nothing stays when nobody wants anything."""
        return {
            "derived streams": self.nodes,
            "edges that read": self.nodes.reading,
            "streams that are taken": self.nodes.taking,
            "peers of derived streams": self.nodes.ties,
        }

    # -- nodes and their inputs

    def _rewire_all(self) -> None:
        for node in list(self.nodes.values()):
            self._rewire(node)

    def _rewire(self, node: StreamNode, again: bool = False) -> None:
        """Give a node the inputs that it should have; `again`: it needs earlier ticks of them."""
        wanted, region = self._inputs_of(node)
        if region != node.region:
            self.nodes.read(node, region)
            if region is not None:
                self._look(node, node.first, None)
        for name in node.inputs.keys() - wanted.keys():
            self._forget(node, name)
        first = node.first - (node.formula.window - 1 if len(wanted) and node.name not in wanted else 0)
        for name, (formula, provider) in wanted.items():
            taken = node.inputs.get(name)
            if taken is None:
                taken = self.nodes.take(node, name, formula, provider)
                self._copy(node, taken)
            elif taken.provider == provider and not again:
                continue
            elif taken.provider != provider:
                before = taken.provider
                self.nodes.turn(taken, provider)
                self._leave(before, name)
                taken.attempts = 0
            taken.first, taken.due = first, None
            self._ask(taken)
        for tick in node.ticks:
            node.dirty[tick] = None
        self._busy[node.name] = None

    def _copy(self, node: StreamNode, taken: TakenStream) -> None:
        """Whatever another node here has of a stream need not come again."""
        for name in self.nodes.taking[taken.name]:
            for tick, known in self.nodes[name].inputs[taken.name].ticks.items():
                self._keep(node, taken, tick, known)

    def _inputs_of(
        self, node: StreamNode
    ) -> tuple[dict[StreamName, tuple[Formula, PeerId]], tuple[int, ...] | None]:
        """Streams that a node takes, and from whom; or the attributes of the region that it reads."""
        roster, me, formula, cell = self.boards.roster.current, self.kernel.me, node.formula, node.name.cell
        if roster is None:
            return {}, None
        if node.cells != roster.cells:
            node.cells = roster.cells
            node.blocks = blocks_of(formula, cell, roster)
            node.patience_s = PATIENCE_S + STEP_S * height_of(formula, cell, roster)
        inputs = formula.inputs(cell, roster)
        if not inputs:
            attributes = formula.reads(cell)
            region = roster.by_cell.get((attributes[0], cell))
            if region is None or region.owner == me:
                return {}, attributes
            return {node.name: (formula, region.owner)}, None
        home = home_of(node.name, roster)
        if home is not None and home != me:
            return {node.name: (formula, home)}, None
        found: dict[StreamName, tuple[Formula, PeerId]] = {}
        for part, code in inputs:
            name = StreamName(part.digest, code)
            if part.inputs(code, roster):
                provider = home_of(name, roster)
            else:
                region = roster.by_cell.get((part.reads(code)[0], code))
                provider = None if region is None else region.owner
            found[name] = (part, me if provider is None else provider)
        return found, None

    def _ask(self, taken: TakenStream) -> None:
        """Ask for what all nodes here want of a stream: a provider knows of one receiver only."""
        takers = [self.nodes[name].inputs[taken.name] for name in self.nodes.taking[taken.name]]
        same = [other for other in takers if other.provider == taken.provider]
        first = min(other.first for other in same)
        held = {tick: known.weight for tick, known in taken.ticks.items()}
        for other in same:
            held = {t: min(w, other.ticks[t].weight) for t, w in held.items() if t in other.ticks}
        told = tuple(sorted(held.items()))[-HELD_MAX:]
        self._say(taken.provider, Derive(taken.name, taken.formula.text, first, told))

    def _later(self, node: StreamNode, taken: TakenStream) -> None:
        """Ask again, after a while."""
        settings = self.kernel.settings
        wait = min(settings.backoff_s * 2**taken.attempts, settings.backoff_max_s)
        taken.attempts = min(taken.attempts + 1, 30)
        taken.due = self.kernel.now + wait * self.kernel.rng.uniform(0.8, 1.2)
        heappush(self._alarms, (taken.due, node.name))

    def _forget(self, node: StreamNode, name: StreamName) -> None:
        self._leave(self.nodes.release(node, name).provider, name)

    def _leave(self, provider: PeerId, name: StreamName) -> None:
        """A node no longer takes a stream from a peer: say so if no other node here does."""
        others = (self.nodes[other].inputs[name] for other in self.nodes.taking.get(name, ()))
        if all(taken.provider != provider for taken in others):
            self._say(provider, Relinquish(name))

    def _drop(self, node: StreamNode) -> None:
        """Nobody wants it."""
        self.nodes.read(node, None)
        for name in list(node.inputs):
            self._forget(node, name)
        self.nodes.drop(node)

    # -- ticks

    def _look(self, node: StreamNode, first: int, until: int | None) -> None:
        """Something may be known of ticks of an edge's region."""
        if node.region is None:
            return
        supply = self.boards.outlets.supplies.get(node.region[0], {}).get(node.name.cell)
        if supply is None:
            return
        end = supply.head if supply.head is not None else 0
        for tick in range(
            max(first, node.first, end - self.kernel.settings.ring_ticks), min(until or end, end)
        ):
            self._note(node, tick)

    def _note(self, node: StreamNode, tick: int) -> None:
        if tick >= node.first:
            node.dirty[tick] = None
            if tick >= node.head and tick not in node.since_s:
                node.since_s[tick] = self.kernel.now
                heappush(self._alarms, (self.kernel.now + node.patience_s, node.name))
            self._busy[node.name] = None

    def _advance(self, node: StreamNode) -> None:
        """Send the ticks that are due, in order, and better versions of earlier ones."""
        horizon = max((*node.dirty, *node.since_s), default=node.head - 1)
        self._skip(node, horizon + 1 - self.kernel.settings.ring_ticks)
        while node.head <= horizon:
            tick = node.head
            complete, done = self._computed(node, tick)
            # A tick of which nothing came waits as long as the first one after it.
            since = min((at for t, at in node.since_s.items() if t >= tick), default=None)
            if not complete and (since is None or self.kernel.now < since + node.patience_s):
                break
            node.head += 1
            self._done(node, tick, done)
        late = {*node.dirty, *node.since_s}
        for tick in sorted(tick for tick in late if tick < node.head):
            complete, done = self._computed(node, tick)
            known = node.ticks.get(tick)
            if known is None and not complete:
                since = node.since_s.get(tick)
                node.dirty.pop(tick, None)
                if since is None or self.kernel.now < since + node.patience_s:
                    continue
            self._done(node, tick, done)
        self._evict(node)

    def _skip(self, node: StreamNode, oldest: int) -> None:
        """Ticks before this one cannot be had any more."""
        if oldest > node.head:
            node.head = oldest
            for tick in [t for t in node.since_s if t < oldest]:
                del node.since_s[tick]
            for receiver in node.receivers.values():
                receiver.next = max(receiver.next, oldest)

    def _done(self, node: StreamNode, tick: int, done: DerivedTick) -> None:
        """A tick is calculated, perhaps again: send it to those who have not got it so."""
        node.since_s.pop(tick, None)
        node.dirty.pop(tick, None)
        known = node.ticks.get(tick)
        if known is not None and done.weight <= known.weight:
            return
        node.ticks[tick] = done
        for peer, receiver in list(node.receivers.items()):
            if receiver.first <= tick < receiver.next:
                self._tell(node, peer, receiver, tick, done)
            elif tick == receiver.next:
                self._flush(node, peer, receiver)

    def _flush(self, node: StreamNode, peer: PeerId, receiver: StreamReceiver) -> None:
        """Send the ticks that are next, in order."""
        while (done := node.ticks.get(receiver.next)) is not None:
            self._tell(node, peer, receiver, receiver.next, done)
            receiver.next += 1

    def _tell(
        self, node: StreamNode, peer: PeerId, receiver: StreamReceiver, tick: int, done: DerivedTick
    ) -> None:
        if done.weight > receiver.held.get(tick, -1):
            self._say(peer, Derived(node.name, tick, done.weight, node.blocks, done.numbers))

    def _computed(self, node: StreamNode, tick: int) -> tuple[bool, DerivedTick]:
        """A tick as far as it can be calculated, and whether nothing is still to come."""
        if node.region is not None:
            return self._read(node, tick)
        inputs = list(node.inputs.values())
        if node.name in node.inputs:
            known = node.inputs[node.name].ticks.get(tick)
            return known is not None, known or DerivedTick(0, NOTHING)
        history: dict[int, Sequence[Floats | None]] = {}
        weight, complete = 0, True
        for at in range(tick - node.formula.window + 1, tick + 1):
            row: list[Floats | None] = []
            for taken in inputs:
                part = taken.ticks.get(at)
                complete &= part is not None
                weight += part.weight if part is not None else 0
                row.append(np.frombuffer(part.numbers) if part is not None and part.numbers else None)
            history[at] = row
        if not weight:
            return complete, DerivedTick(0, NOTHING)
        try:
            merged = node.formula.merged(tick, history)
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):  # a provider sent nonsense
            return complete, DerivedTick(0, NOTHING)
        return complete, DerivedTick(weight, _packed(merged))

    def _read(self, node: StreamNode, tick: int) -> tuple[bool, DerivedTick]:
        """A tick of an edge, from the blocks of its region."""
        assert node.region is not None
        weight, blocks, complete = 0, [], True
        for attribute in node.region:
            supply = self.boards.outlets.supplies.get(attribute, {}).get(node.name.cell)
            known = None if supply is None else supply.ring.get(tick)
            if known is None:
                old = supply is not None and supply.head is not None and tick < supply.head
                complete &= old
                continue
            revision, slabs = known
            if slabs is not None:
                weight += revision + 1
                blocks.append(slabs)
        if len(blocks) < len(node.region):
            return complete, DerivedTick(0, NOTHING)
        return complete, DerivedTick(weight, _packed(node.formula.part(node.name.cell, blocks)))

    def _evict(self, node: StreamNode) -> None:
        """Forget what is older than the ring."""
        horizon = node.head - self.kernel.settings.ring_ticks
        for known in (node.ticks, node.since_s, node.dirty):
            for tick in [t for t in known if t < horizon]:
                del known[tick]
        for receiver in node.receivers.values():
            receiver.next = max(receiver.next, horizon)
        for taken in node.inputs.values():
            for tick in [t for t in taken.ticks if t < horizon - node.formula.window]:
                del taken.ticks[tick]

    # -- saying

    def _refuse(self, peer: PeerId, name: StreamName, why: Why, reason: str) -> None:
        self._say(peer, Underived(name, reason, why))

    def _say(self, peer: PeerId, message: Message) -> None:
        if peer == self.kernel.me:
            self._here.put(message)
        else:
            self.kernel.send(peer, message)

    def _hear(self, message: Message) -> None:
        self.handlers[type(message)](self.kernel.me, message)


def _packed(numbers: Floats) -> bytes:
    packed: bytes = np.ascontiguousarray(numbers, "<f8").tobytes()
    assert len(packed) <= 8 * NUMBERS_MAX, f"{len(numbers)} numbers, expected at most {NUMBERS_MAX}"
    return packed
