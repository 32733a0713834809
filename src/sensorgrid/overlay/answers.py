"""Grants and refusals that go out together: many cells in a message."""

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.messages import Grant, Path, Reason, Refuse
from sensorgrid.overlay.outlets import Entry


class Answers:
    """What streams have decided and not yet said."""

    def __init__(self, kernel: BrokerKernel) -> None:
        self.kernel = kernel
        self._grants: dict[tuple[PeerId, int, int], tuple[Path | None, int]] = {}
        self._refusals: dict[tuple[PeerId, int, Reason, tuple[PeerId, ...]], list[int]] = {}

    def grant(self, entry: Entry, path: Path | None) -> None:
        """An entry is fed, or its path has changed."""
        epoch = 0 if entry.supply is None or path is None else entry.supply.epoch
        self._grants[entry.peer, entry.generation, entry.cell] = (path, epoch)

    def refuse(
        self,
        peer: PeerId,
        generation: int,
        cell: int,
        reason: Reason,
        elsewhere: tuple[PeerId, ...] = (),
        parts: tuple[int, ...] = (),
    ) -> None:
        """A cell is refused, or is no longer fed; a refusal with `parts` is sent at once."""
        if parts:
            self.kernel.send(
                peer, Refuse(generation, (cell,), reason.text, elsewhere, parts, reason.why.value)
            )
        else:
            self._refusals.setdefault((peer, generation, reason, elsewhere), []).append(cell)

    def flush(self) -> None:
        """Say it."""
        if not self._grants and not self._refusals:
            return
        grants: dict[tuple[PeerId, int, Path | None, int], list[int]] = {}
        for (peer, generation, cell), (path, epoch) in self._grants.items():
            grants.setdefault((peer, generation, path, epoch), []).append(cell)
        self._grants.clear()
        for (peer, generation, path, epoch), cells in grants.items():
            self.kernel.send(peer, Grant(generation, tuple(cells), path, epoch))
        for (peer, generation, reason, elsewhere), cells in self._refusals.items():
            self.kernel.send(
                peer, Refuse(generation, tuple(cells), reason.text, elsewhere, (), reason.why.value)
            )
        self._refusals.clear()
