"""A mechanism: a part of what a broker does, which declares what it listens to.

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
    """Base of all mechanisms; a mechanism overrides only what concerns it."""

    handlers: Handlers = MappingProxyType({})
    """its handlers of messages; no two mechanisms handle the same kind"""
    listens: Listeners = MappingProxyType({})
    """its handlers of local events (`events.py`): every mechanism that listens hears of an event, in turn"""
    in_a_row = False
    """whether its messages, where several came together, are handled without settling between them"""

    def settle(self) -> bool:
        """Do the work that others left; returns whether others may have work now."""
        return False

    def finish(self) -> None:
        """Send what it held back until all mechanisms had settled."""

    def next_wakeup(self) -> Instant | None:
        """When it wants to be woken."""
        return None

    def leftovers(self) -> Mapping[str, object]:
        """What must be empty once no receiver wants anything, for tests and simulations."""
        return {}
