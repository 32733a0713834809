"""What streams do for other mechanisms when asked.

Other mechanisms change what receivers have, what is promised, what waits and who feeds a supply only through this.
"""

from collections.abc import Iterable

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.boards import Requests
from sensorgrid.overlay.intake import Intake, Piece
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.outlets import Entry, Outlets, Reservation, Supply


class Service:
    """Of one broker; made by streams, whose boards it writes."""

    def __init__(self, kernel: BrokerKernel, outlets: Outlets, requests: Requests, intake: Intake) -> None:
        self._kernel = kernel
        self._outlets = outlets
        self._requests = requests
        self._intake = intake

    # -- receivers move

    def cut(self, entry: Entry, part: int) -> Entry:
        """Put the parts of an entry in its place; returns the one that is named."""
        return self._outlets.cut(entry, part)

    def send_off(self, entry: Entry, to: PeerId) -> None:
        """Its receiver is redirected."""
        self._outlets.send_off(entry, to)

    def stay(self, entry: Entry) -> None:
        """Its receiver did not go."""
        self._outlets.stay(entry)

    def pass_on(self, supply: Supply) -> None:
        """All receivers of a supply are on their way to another broker, which takes it over."""
        if supply.piece is not None:
            supply.piece.passing = True

    # -- promises

    def reserve(self, reservation: Reservation) -> None:
        """Promise budget."""
        self._outlets.reserve(reservation)

    def release(self, key: tuple[PeerId, int], points: int) -> None:
        """So much of a promise is not needed."""
        self._outlets.release(key, points)

    def void(self, key: tuple[PeerId, int]) -> None:
        """A promise is over."""
        self._outlets.void(key)

    # -- requests and providers

    def wait_no_longer(self) -> None:
        """No room will be made for waiting requests: their time is up."""
        for request in self._requests.values():
            request.due = self._kernel.now

    def ask(self, pieces: Iterable[Piece], provider: PeerId, via: PeerId) -> None:
        """Try to take pieces from another provider."""
        self._intake.ask(pieces, provider, via=via)
