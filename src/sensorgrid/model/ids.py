"""Identifiers."""

from typing import NewType

PeerId = NewType("PeerId", int)
"""a broker or a client; what dials it knows where it lives"""
QueryId = NewType("QueryId", int)
"""a query of one client, counted by that client"""
Instant = float
"""seconds on the clock of the world that drives a broker"""

BROKERS_MAX = 1 << 20
"""brokers are numbered below this, clients from here on"""


def is_broker(peer: PeerId) -> bool:
    """Whether a peer is a broker: by its number, so that nobody has to ask."""
    return peer < BROKERS_MAX
