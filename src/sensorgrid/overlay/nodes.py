"""The derived streams of a broker, what they rest on, and who gets them."""

from dataclasses import dataclass, field

from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.derived import Formula, StreamName


@dataclass(slots=True)
class DerivedTick:
    """A tick of a derived stream, as far as it is known."""

    weight: int
    numbers: bytes


@dataclass(slots=True)
class TakenStream:
    """One stream that a node takes."""

    formula: Formula
    name: StreamName
    provider: PeerId
    ticks: dict[int, DerivedTick] = field(default_factory=dict)
    first: int = 0
    """the first tick that was asked for"""
    attempts: int = 0
    due: Instant | None = None
    """when it is asked for again"""


@dataclass(slots=True)
class StreamReceiver:
    """Somebody who gets a stream."""

    first: int
    """the first tick that it wants"""
    next: int
    """the first tick that it has not got yet"""
    held: dict[int, int]
    """weight of the ticks that it had before it asked"""


class StreamNode:
    """A derived stream at one broker."""

    __slots__ = (
        "blocks", "cells", "dirty", "first", "formula", "head", "inputs", "name", "newest", "patience_s", "receivers",
        "region", "since_s", "ticks",
    )  # fmt: skip

    def __init__(self, name: StreamName, formula: Formula, first: int) -> None:
        self.name = name
        self.formula = formula
        self.receivers: dict[PeerId, StreamReceiver] = {}
        self.inputs: dict[StreamName, TakenStream] = {}
        self.region: tuple[int, ...] | None = None
        """of an edge: the attributes of the region that it reads; None: it has inputs"""
        self.blocks = 0
        """that a tick would rest on if none were missing"""
        self.cells: frozenset[tuple[int, int]] | None = None
        """the regions of the roster that the numbers above and below are of"""
        self.patience_s = 0.0
        """how long a tick waits for its last input, once the first has come"""
        self.newest: int | None = None
        """the newest tick that an input has brought"""
        self.ticks: dict[int, DerivedTick] = {}
        self.first = first
        """the first tick that somebody wants"""
        self.head = first
        """the first tick that was not sent yet"""
        self.dirty: dict[int, None] = {}
        """ticks of which something new is known"""
        self.since_s: dict[int, Instant] = {}
        """since when a tick waits that was not sent yet: since its first input came, or it was asked for"""


class StreamNodes(dict[StreamName, StreamNode]):
    """All of them, by name. Written by calculation."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: dict[tuple[int, int], dict[StreamName, None]] = {}
        """edges by the attribute and cell of their region"""
        self.taking: dict[StreamName, dict[StreamName, None]] = {}
        """nodes by the streams that they take"""
        self.ties: dict[PeerId, int] = {}
        """streams that come from a peer, or go to it"""
        self.characters = 0
        """of all formulas"""

    def add(self, node: StreamNode) -> StreamNode:
        """One more."""
        self.characters += len(node.formula.text)
        self[node.name] = node
        return node

    def drop(self, node: StreamNode) -> None:
        """One less."""
        self.characters -= len(node.formula.text)
        del self[node.name]

    def uses(self, peer: PeerId) -> bool:
        """Whether a stream comes from a peer, or goes to it."""
        return peer in self.ties

    # -- receivers

    def serve(self, node: StreamNode, peer: PeerId, receiver: StreamReceiver) -> None:
        """A peer gets a stream."""
        if peer not in node.receivers:
            self._tie(peer, 1)
        node.receivers[peer] = receiver

    def dismiss(self, node: StreamNode, peer: PeerId) -> bool:
        """It gets it no longer; whether it was the last one."""
        if node.receivers.pop(peer, None) is None:
            return False
        self._tie(peer, -1)
        return not node.receivers

    # -- inputs

    def take(self, node: StreamNode, name: StreamName, formula: Formula, provider: PeerId) -> TakenStream:
        """A node takes a stream from a peer."""
        taken = node.inputs[name] = TakenStream(formula, name, provider)
        self.taking.setdefault(name, {})[node.name] = None
        self._tie(provider, 1)
        return taken

    def turn(self, taken: TakenStream, provider: PeerId) -> None:
        """It takes it from another one."""
        self._tie(taken.provider, -1)
        self._tie(provider, 1)
        taken.provider = provider

    def release(self, node: StreamNode, name: StreamName) -> TakenStream:
        """It takes it no longer."""
        taken = node.inputs.pop(name)
        self._tie(taken.provider, -1)
        of = self.taking[name]
        del of[node.name]
        if not of:
            del self.taking[name]
        return taken

    def read(self, node: StreamNode, region: tuple[int, ...] | None) -> None:
        """An edge reads these attributes of its region; None: it is no edge here."""
        for attribute in node.region or ():
            of = self.reading[attribute, node.name.cell]
            del of[node.name]
            if not of:
                del self.reading[attribute, node.name.cell]
        node.region = region
        for attribute in region or ():
            self.reading.setdefault((attribute, node.name.cell), {})[node.name] = None

    def _tie(self, peer: PeerId, by: int) -> None:
        count = self.ties.get(peer, 0) + by
        if count:
            self.ties[peer] = count
        else:
            del self.ties[peer]
