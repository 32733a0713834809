"""Offers that were declined, so that they are not repeated soon (rule 11).

Replication, relaying and trees each keep such a book: of brokers that did not take a cell, and of receivers that did
not go where they were sent.
"""

from collections.abc import Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from sensorgrid.model.ids import Instant, PeerId

DECLINED_S = 30.0
"""how long it is held against a broker"""

Subject = TypeVar("Subject", bound=Hashable)
_NOBODY: Mapping[PeerId, int] = MappingProxyType({})


class Declined(Generic[Subject]):
    """By what it was about: brokers that it failed with, each for a while."""

    def __init__(self) -> None:
        self._until: dict[tuple[Subject, PeerId], Instant] = {}
        """the oldest first"""
        self._brokers: dict[Subject, dict[PeerId, int]] = {}

    def note(self, subject: Subject, broker: PeerId, now: Instant, news: int = 0) -> None:
        """The offer failed; `news` is the version of the broker's news known at the time."""
        self._until.pop((subject, broker), None)
        self._until[subject, broker] = now + DECLINED_S
        self._brokers.setdefault(subject, {})[broker] = news

    def strike(self, subject: Subject, broker: PeerId) -> None:
        """It is held against the broker no longer."""
        del self._until[subject, broker]
        brokers = self._brokers[subject]
        del brokers[broker]
        if not brokers:
            del self._brokers[subject]

    def forgive(self, now: Instant) -> list[tuple[Subject, PeerId]]:
        """What is long enough ago to be tried again, the oldest first."""
        found = []
        for key, until in self._until.items():
            if until > now:
                break
            found.append(key)
        for key in found:
            self.strike(*key)
        return found

    def brokers(self, subject: Subject) -> Mapping[PeerId, int]:
        """Those that it failed with, and what news of them were known then."""
        return self._brokers.get(subject, _NOBODY)

    def next_wakeup(self) -> Instant | None:
        """When the oldest expires."""
        return next(iter(self._until.values()), None)

    def __contains__(self, key: tuple[Subject, PeerId]) -> bool:
        return key in self._until

    def __iter__(self) -> Iterator[tuple[Subject, PeerId]]:
        return iter(self._until)

    def __len__(self) -> int:
        return len(self._until)
