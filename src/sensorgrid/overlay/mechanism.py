"""What a mechanism is: a part of what a broker does, which says itself what it listens to.

The broker knows none of them by name. It passes on messages and events, lets mechanisms settle until none has work
left for another, and asks when they want to be woken.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.messages import Message

Handlers: TypeAlias = Mapping[type[Message], Callable[[PeerId, Any], None]]
Listeners: TypeAlias = Mapping[type, Callable[[Any], None]]


class Mechanism:
    """Base of all mechanisms; whatever it does not say or do, it does not care about."""

    handlers: Handlers = MappingProxyType({})
    """what it does about messages; no two mechanisms handle the same kind"""
    listens: Listeners = MappingProxyType({})
    """what it does about events of this broker (`events.py`): all mechanisms that listen hear of one, in turn"""
    in_a_row = False
    """whether its messages, where several came together, are handled without settling between them"""

    def settle(self) -> bool:
        """Do what others left for it; whether others may have something to do now."""
        return False

    def finish(self) -> None:
        """Say what it held back until all have settled."""

    def next_wakeup(self) -> Instant | None:
        """When it wants to be woken."""
        return None

    def leftovers(self) -> Mapping[str, object]:
        """What must be empty when nobody wants anything any more, for tests and simulations."""
        return {}
