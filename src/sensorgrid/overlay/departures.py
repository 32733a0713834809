"""Receivers that were sent to another broker, until they leave or turn out to stay.

Replication and relays move receivers in the same way: each is redirected, keeps being fed, and leaves when its new
provider feeds it (make before break). A receiver that is still here when the time is up stays. The mechanism that sent
it off is told, and does not try the same again soon (rule 11).
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.messages import Redirect
from sensorgrid.overlay.outlets import Entry
from sensorgrid.overlay.service import Service

Reason = TypeVar("Reason")


@dataclass(slots=True)
class _Group(Generic[Reason]):
    due: Instant
    to: PeerId
    why: Reason
    entries: list[Entry]


class Departures(Generic[Reason]):
    """The departures of one mechanism. `Reason` is what the mechanism is reminded of when receivers stay."""

    def __init__(
        self, kernel: BrokerKernel, service: Service, failed: Callable[[Reason, list[Entry]], None]
    ) -> None:
        self.kernel = kernel
        self.service = service
        self.failed = failed
        self._groups: deque[_Group[Reason]] = deque()

    def send(self, chosen: Iterable[tuple[Entry, int]], to: PeerId, why: Reason) -> list[Entry]:
        """Redirect receivers: of each entry the part that is named, which may be all of it."""
        kernel, service = self.kernel, self.service
        items: dict[tuple[PeerId, int], list[tuple[int, int]]] = {}
        going = []
        for entry, part in chosen:
            cell = entry.cell
            if part != cell:
                entry = service.cut(entry, part)
            service.send_off(entry, to)
            going.append(entry)
            items.setdefault((entry.peer, entry.generation), []).append((cell, part))
        for (receiver, generation), cells in items.items():
            kernel.send(receiver, Redirect(generation, tuple(cells), to))
        self._groups.append(_Group(kernel.now + kernel.settings.reservation_s, to, why, going))
        return going

    def peer_down(self, peer: PeerId) -> None:
        """No receiver can go there now."""
        ended = [group for group in self._groups if group.to == peer]
        if ended:
            self._groups = deque(group for group in self._groups if group.to != peer)
        for group in ended:
            self.failed(group.why, self._stay(group))

    def next_wakeup(self) -> Instant | None:
        """When the first of them should have left."""
        return self._groups[0].due if self._groups else None

    def woke(self) -> None:
        """Receivers that are still here stay."""
        while self._groups and self._groups[0].due <= self.kernel.now:
            group = self._groups.popleft()
            stayed = self._stay(group)
            if stayed:
                self.failed(group.why, stayed)

    def _stay(self, group: _Group[Reason]) -> list[Entry]:
        """Receivers that are still here, without those that have been sent elsewhere since."""
        here = [entry for entry in group.entries if entry.going == group.to]
        for entry in here:
            self.service.stay(entry)
        return [entry for entry in here if entry.supply is not None]
