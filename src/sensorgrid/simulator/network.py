"""Connections of the simulated world: in order within one, in any order across them.

A connection has a delay and a rate each way. It can end in four ways: closed by one side, broken (both sides hear
of it, sooner or later), half-open (one side or both never hear of it, and what is said is lost), or lost with a
node that crashed.
"""

from dataclasses import dataclass, field
from typing import Any

from sensorgrid.model.ids import Instant, PeerId


@dataclass(slots=True)
class Connection:
    """One connection between two nodes."""

    number: int
    a: PeerId
    b: PeerId
    delay_s: float
    rate: float | None
    """bytes per second each way; None: as fast as you like"""
    version: int
    """of the wire, that both ends speak"""
    up: dict[PeerId, bool] = field(default_factory=dict)
    """which side believes that it is open"""
    dead: bool = False
    """nothing arrives any more"""
    arrived: dict[PeerId, Instant] = field(default_factory=dict)
    """by receiver: when the last message arrives"""
    latest: dict[PeerId, Any] = field(default_factory=dict)
    """by receiver: the last messages on their way, which others may join"""

    def other(self, peer: PeerId) -> PeerId:
        """The peer at the other end."""
        return self.b if peer == self.a else self.a

    def arrival(self, to: PeerId, now: Instant, size: int) -> Instant:
        """When a message sent now arrives: after its delay, and after those before it."""
        before = self.arrived.get(to, 0.0)
        if self.rate is None:
            when = max(now + self.delay_s, before)
        else:
            when = max(now, before - self.delay_s) + size / self.rate + self.delay_s
        self.arrived[to] = when
        return when
