"""What mechanisms see of each other: boards without their mutators, and two interfaces for requests.

A board's face has properties and mappings only, so writing through it is a type error. Entries, supplies and pieces
are handed out as they are; a mechanism that wants one changed asks streams (`service.py`).
"""

# ruff: noqa: D102  (what a name means stands at the board itself)

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from sensorgrid.model.box import Box
from sensorgrid.model.ids import PeerId

if TYPE_CHECKING:
    from sensorgrid.overlay.boards import Carried, Cells, Measured, ToldDistance, WaitingRequest
    from sensorgrid.overlay.intake import Piece
    from sensorgrid.overlay.loads import Sums
    from sensorgrid.overlay.outlets import Entry, Reservation, Supply
    from sensorgrid.overlay.roster import Roster


class RosterFace(Protocol):
    """See `boards.HeldRoster`."""

    @property
    def current(self) -> "Roster | None": ...


class RegionsFace(Protocol):
    """See `boards.RegionsBoard`."""

    @property
    def neighbours(self) -> Mapping[int, tuple[PeerId, ...]]: ...
    @property
    def boxes(self) -> Mapping[int, Mapping[PeerId, Sequence[Box]]]: ...
    @property
    def peers(self) -> tuple[PeerId, ...]: ...


class DistancesFace(Protocol):
    """See `boards.Distances`."""

    @property
    def delays(self) -> "Mapping[PeerId, Measured]": ...
    @property
    def near(self) -> tuple[PeerId, ...]: ...
    @property
    def awaited(self) -> Collection[PeerId]: ...
    @property
    def views(self) -> "Mapping[PeerId, Mapping[PeerId, ToldDistance]]": ...
    @property
    def hops(self) -> Mapping[PeerId, int]: ...
    @property
    def sights(self) -> int: ...
    def delay_between(self, a: PeerId, b: PeerId) -> float: ...


class HearsayFace(Protocol):
    """See `boards.Hearsay`."""

    @property
    def free_of(self) -> Mapping[PeerId, tuple[int, int]]: ...
    @property
    def carried(self) -> "Mapping[PeerId, Cells]": ...
    def carriers_of(self, attribute: int, cell: int) -> tuple[PeerId, ...]: ...
    def carried_cells(self, attribute: int) -> "Carried": ...


class LoadsFace(Protocol):
    """See `loads.Loads`."""

    def whole(self) -> "Sums": ...
    def parts(self) -> "Sums": ...
    def share(self, entry: "Entry", cell: int) -> int: ...


class OutletsFace(Protocol):
    """See `outlets.Outlets`."""

    @property
    def budget(self) -> int: ...
    @property
    def used(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def free(self) -> int: ...
    @property
    def leaving(self) -> int: ...
    @property
    def loads(self) -> LoadsFace: ...
    @property
    def reservations(self) -> "Mapping[tuple[PeerId, int], Reservation]": ...
    @property
    def entries(self) -> "Mapping[PeerId, Mapping[tuple[int, int], Entry]]": ...
    @property
    def supplies(self) -> "Mapping[int, Mapping[int, Supply]]": ...
    @property
    def below(self) -> Mapping[int, Mapping[int, int]]: ...
    @property
    def at(self) -> "Mapping[int, Mapping[int, Mapping[tuple[PeerId, int, int], Entry]]]": ...
    @property
    def fed(self) -> Mapping[int, Mapping[int, Mapping[PeerId, int]]]: ...
    @property
    def fed_version(self) -> int: ...
    def supply_for(self, attribute: int, cell: int) -> "Supply | None": ...
    def has_below(self, attribute: int, cell: int) -> bool: ...
    def available(self, attribute: int, cell: int) -> tuple[list[int], list[int]]: ...
    def taken(self) -> tuple[tuple[int, int], ...]: ...
    def of(self, peer: PeerId, generation: int, cell: int) -> "list[Entry]": ...
    def streams_to(self, peer: PeerId, attribute: int, cell: int) -> "list[Entry]": ...
    def inside(self, attribute: int, cell: int) -> "Iterator[Entry]": ...


RequestsFace: TypeAlias = "Mapping[tuple[PeerId, int, int], WaitingRequest]"
"""see `boards.Requests`"""


class IntakeFace(Protocol):
    """See `intake.Intake`."""

    @property
    def feeds(self) -> "Mapping[PeerId, Mapping[tuple[int, int], Piece]]": ...
    @property
    def circles(self) -> int: ...
    @property
    def switches(self) -> int: ...
    @property
    def points_moved(self) -> int: ...
    def uses(self, peer: PeerId) -> bool: ...


class StreamNodesFace(Protocol):
    """See `nodes.StreamNodes`."""

    def uses(self, peer: PeerId) -> bool: ...


# -- what one mechanism asks of another


class Placement(Protocol):
    """Plans the trees of this owner's cells."""

    def place(self, asker: PeerId, attribute: int, cell: int) -> PeerId:
        """The broker that should feed a cell of this owner to a broker that asks for it for the first time."""

    def saves(self, provider: PeerId, receiver: PeerId) -> bool:
        """Whether it would save links if a provider fed a receiver without this relay."""


class BudgetListener(Protocol):
    """Keeps what other brokers say of their budgets."""

    def corrected(self, peer: PeerId, free: int) -> None:
        """A broker has said, in answer to an offer, what it has free."""
