"""What a mechanism is: a part of what a broker does, behind one small interface."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sensorgrid.model.ids import Instant, PeerId


class Mechanism(Protocol):
    """A part of what a broker does."""

    @property
    def handlers(self) -> Mapping[type, Callable[[PeerId, Any], None]]:
        """Its messages."""

    def settle(self) -> bool:
        """Do what others left for it; whether others may have something to do now."""

    def peer_down(self, peer: PeerId) -> None:
        """A connection is gone."""

    def next_wakeup(self) -> Instant | None:
        """When it has to be woken."""

    def woke(self) -> None:
        """Time has passed."""
