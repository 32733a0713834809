"""Moving load to other brokers: offers, reservations, redirects, and handing back (multires, section 4.4).

When a request finds no room, the policy names a cell and a broker. That broker reserves budget, a promise that expires
and starts no stream. Then receivers are redirected there, and it takes the cell when the first of them asks. One move
is under way at a time. A relay that is left with one receiver hands it back to its own provider (section 4.4.3), after
a minimum age.
"""

from dataclasses import dataclass

from sensorgrid.index.codes import prefixes
from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.boards import Boards
from sensorgrid.overlay.declined import Declined
from sensorgrid.overlay.departures import Departures
from sensorgrid.overlay.events import Advised, PeerDown, Woke
from sensorgrid.overlay.faces import BudgetListener, Placement
from sensorgrid.overlay.geography import points_of
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import Answer, Moving, Offer
from sensorgrid.overlay.outlets import Entry, Reservation, Supply
from sensorgrid.overlay.policies.interface import Holding, Policy, Proposal, View
from sensorgrid.overlay.service import Service

RETRY_S = 0.2
"""how often a patient policy is asked again while requests wait"""
FORESEE_S = 1.0
"""how often a policy is asked what it foresees"""


@dataclass(slots=True)
class Move:
    """An offer that has no answer yet."""

    number: int
    proposal: Proposal
    load: int
    """points per period that would move"""
    due: Instant
    advised: bool = False
    """an operator's wish: it need not pay, and brokers' streams move too"""


class Replication(Mechanism):
    """The mechanism."""

    def __init__(
        self,
        kernel: BrokerKernel,
        boards: Boards,
        service: Service,
        listener: BudgetListener,
        placement: Placement | None,
        policy: Policy,
    ) -> None:
        self.kernel = kernel
        self.boards = boards
        self.outlets = boards.outlets
        self.hearsay = boards.hearsay
        self.service = service
        self.listener = listener
        self.placement = placement
        """decides whether this broker is worth keeping as a relay; None: it never is for one receiver"""
        self.policy = policy
        self.listens = {PeerDown: self.peer_down, Advised: self.advised, Woke: self.woke}
        self.handlers = {
            Offer: self.offered,
            Answer: self.answered,
            Moving: self.moving,
        }
        self.move: Move | None = None
        self._number = 0
        self._departures: Departures[Proposal] = Departures(
            kernel, service, lambda why, _: self._decline(why)
        )
        self._declined: Declined[tuple[int, int]] = Declined()
        """by (attribute, cell): brokers that did not take it, with the news of them that led to it"""
        self._review_at: Instant | None = None
        self._foresee_at: Instant | None = None
        self._tight = 0.0 if policy.foresees is None else (1 - policy.foresees) * kernel.settings.budget
        """with less room than this the policy looks ahead"""
        self._retry_at: Instant | None = None
        self._back_off: dict[tuple[int, int], tuple[Instant, float]] = {}
        """by attribute and cell of a relay: the time before which it is not handed back, and the pause"""

    # -- this broker has too much

    def settle(self) -> bool:
        """Offer a move where requests wait; refuse them where none is left to make."""
        kernel = self.kernel
        if self._review_at is None and self.outlets.taken():
            self._review_at = kernel.now + kernel.settings.age_min_s
        if self._foresee_at is None and self._looks_ahead():
            self._foresee_at = kernel.now + FORESEE_S
        if self.move is not None or not self.boards.requests or (self._retry_at or 0.0) > kernel.now:
            return False
        self._retry_at = None
        need = self._need()
        if need <= 0:
            return False  # those who were redirected will make room
        proposal = self.policy.propose(self._view(need))
        if proposal is not None:
            self._begin(proposal)
        elif self.policy.patient:
            self._retry_at = kernel.now + RETRY_S  # others may be making room just now
        elif not self.outlets.leaving:
            # Nothing helps: say so now, not when the time is up.
            self.service.wait_no_longer()
        return False

    def advised(self, event: Advised) -> None:
        """Do what an operator wants, if nothing else is under way."""
        if self.move is None and event.target != self.kernel.me:
            self._begin(Proposal(event.attribute, event.cell, event.target), advised=True)

    def _looks_ahead(self) -> bool:
        """Whether the broker is so full that its policy wants to act before requests have to wait."""
        outlets = self.outlets
        return outlets.budget - outlets.used - outlets.reserved + outlets.leaving < self._tight

    def _foresee(self) -> None:
        self._foresee_at = None
        if self._looks_ahead() and self.move is None and not self.boards.requests:
            proposal = self.policy.foresee(self._view(0))
            if proposal is not None:
                self._begin(proposal)

    def _need(self) -> int:
        outlets = self.outlets
        return sum(w.size for w in self.boards.requests.values()) - outlets.free - outlets.leaving

    def _begin(self, proposal: Proposal, advised: bool = False) -> None:
        kernel = self.kernel
        self._number += 1
        provider = None
        if proposal.passes:
            supply = self.outlets.supplies[proposal.attribute][proposal.cell]
            assert supply.piece is not None, f"{proposal} of an owned region"
            provider = None if supply.piece.feed is None else supply.piece.feed.peer
        load = sum(points for _, points in self._movable(proposal, advised))
        if proposal.points is not None:
            load = min(load, proposal.points)
        if not load:
            return
        self.move = Move(self._number, proposal, load, kernel.now + kernel.settings.patience_s, advised)
        kernel.send(proposal.target, Offer(self._number, proposal.attribute, proposal.cell, load, provider))

    def answered(self, peer: PeerId, message: Answer) -> None:
        """The target has reserved something, or not."""
        move, kernel = self.move, self.kernel
        if move is None or move.number != message.number or move.proposal.target != peer:
            kernel.send(peer, Moving(message.number, 0))
            return
        self.move = None
        proposal = move.proposal
        if message.load < move.load:
            # That is all it has: better than what was last heard of it.
            self.listener.corrected(peer, message.load)
        chosen = self._choose(move, message.load)
        kernel.send(peer, Moving(message.number, sum(points for _, points in chosen)))
        if not chosen:
            self._decline(proposal)
            return
        kernel.counters.delegations += 1
        self._redirect(proposal, [entry for entry, _ in chosen])

    def _redirect(self, proposal: Proposal, chosen: list[Entry]) -> None:
        down = proposal.cell.bit_length()
        parts = [(e, proposal.cell if e.cell.bit_length() < down else e.cell) for e in chosen]
        going = self._departures.send(parts, proposal.target, proposal)
        if proposal.passes and (supply := going[0].supply) is not None:
            self.service.pass_on(supply)

    def _movable(self, proposal: Proposal, brokers: bool = False) -> list[tuple[Entry, int]]:
        """Entries that the proposal is about and that sit still, with their points in its cell."""
        outlets, cell = self.outlets, proposal.cell
        at = outlets.at.get(proposal.attribute, {})
        if proposal.passes:
            supply = outlets.supplies.get(proposal.attribute, {}).get(cell)
            entries = [] if supply is None else list(supply.entries.values())
            ready = all(e.sits for e in entries)
            return [(e, e.size) for e in entries] if ready else []
        found = [
            (e, e.size)
            for e in outlets.inside(proposal.attribute, cell)
            if e.sits and (brokers or not e.of_broker) and e.peer != proposal.target
        ]
        if proposal.cuts:
            larger = [e for code in prefixes(cell >> 1) for e in at.get(code, {}).values() if e.movable]
            shares = ((e, outlets.loads.share(e, cell)) for e in larger)
            found += [(e, points) for e, points in shares if points]
        return found

    def _choose(self, move: Move, room: int) -> list[tuple[Entry, int]]:
        """The largest first, as many as wanted and as fit; for a new replica at least two, and more than it
        costs (rule 11)."""
        proposal = move.proposal
        movable = self._movable(proposal, move.advised)
        everything = sum(points for _, points in movable)
        if (proposal.whole or proposal.passes) and everything > room:
            return []
        enough = everything if proposal.points is None else proposal.points
        chosen: list[tuple[Entry, int]] = []
        total = 0
        # Whole entries before those that have to be cut, if not all go.
        down = proposal.cell.bit_length()
        for entry, points in sorted(
            movable,
            key=lambda m: (m[0].cell.bit_length() < down, -m[1], m[0].peer, m[0].generation, m[0].cell),
        ):
            if total >= enough:
                break
            if total + points <= room:
                chosen.append((entry, points))
                total += points
        if proposal.passes or proposal.target in self.hearsay.carriers_of(proposal.attribute, proposal.cell):
            return chosen
        size = points_of(self.kernel.grid, proposal.cell)
        return chosen if len(chosen) >= 2 and (move.advised or proposal.ahead or total > size) else []

    def _decline(self, proposal: Proposal) -> None:
        """Not again soon, unless the target's budget changes."""
        version = self.hearsay.free_of.get(proposal.target, (0, 0))[0]
        self._declined.note((proposal.attribute, proposal.cell), proposal.target, self.kernel.now, version)

    def _view(self, need: int) -> View:
        kernel = self.kernel
        outlets = self.outlets
        self._declined.forgive(kernel.now)
        for cell, peer in list(self._declined):
            if self.hearsay.free_of.get(peer, (0, 0))[0] != self._declined.brokers(cell)[peer]:
                self._declined.strike(cell, peer)
        return View(
            me=kernel.me,
            now=kernel.now,
            grid=kernel.grid,
            depth=kernel.settings.depth,
            need=need,
            budget=outlets.budget,
            room=outlets.free + outlets.leaving,
            whole=outlets.loads.whole(),
            parts=outlets.loads.parts(),
            holdings={
                attribute: {cell: Holding(s.path, s.owed, s.owned) for cell, s in supplies.items()}
                for attribute, supplies in outlets.supplies.items()
            },
            carriers={attribute: self._carriers(attribute) for attribute in outlets.supplies},
            neighbours=self.boards.regions.neighbours,
            boxes=self.boards.regions.boxes,
            free={peer: free for peer, (_, free) in self.hearsay.free_of.items()},
            declined=frozenset((attribute, cell, peer) for (attribute, cell), peer in self._declined),
        )

    def _carriers(self, attribute: int) -> dict[int, tuple[PeerId, ...]]:
        """Which brokers have which cells: from news, from those that this broker feeds, and from the paths of its
        streams."""
        known = self.hearsay.carried_cells(attribute).carriers
        found = {cell: dict.fromkeys(peers) for cell, peers in known.items()}
        for cell, supply in self.outlets.supplies.get(attribute, {}).items():
            if not supply.owned and supply.path is not None:
                found.setdefault(cell, {}).update(dict.fromkeys(supply.path[:-1]))
        return {cell: tuple(peers) for cell, peers in found.items()}

    # -- another broker has too much

    def offered(self, peer: PeerId, message: Offer) -> None:
        """Reserve what is free; the same number again replaces what was reserved under it."""
        kernel = self.kernel
        key = (peer, message.number)
        if key in self.outlets.reservations:
            self.service.void(key)
        load = min(message.load, self.outlets.free)
        promised = load
        if message.provider == kernel.me and load < message.load:
            # Handed back: what the relay takes now will be free.
            spare = sum(e.size for e in self.outlets.streams_to(peer, message.attribute, message.cell))
            promised = message.load if load + spare >= message.load else 0
        if promised <= 0:
            kernel.send(peer, Answer(message.number, 0))
            return
        due = kernel.now + kernel.settings.reservation_s
        self.service.reserve(
            Reservation(peer, message.number, message.attribute, message.cell, load, due, message.provider)
        )
        kernel.send(peer, Answer(message.number, promised))

    def moving(self, peer: PeerId, message: Moving) -> None:
        """Only so much will come."""
        key = (peer, message.number)
        reservation = self.outlets.reservations.get(key)
        if reservation is not None:
            self.service.release(key, max(0, reservation.left - message.load))
            if not reservation.left and reservation.provider != self.kernel.me:
                self.service.void(key)

    # -- a relay that is hardly needed

    def _relays(self) -> list[Supply]:
        return [s for by in self.outlets.supplies.values() for s in by.values() if s.piece is not None]

    def _review(self) -> None:
        """Hand a relay's only receiver back to the relay's own provider: one at a time, if it agrees."""
        kernel = self.kernel
        relays = self._relays()
        known = {(s.attribute, s.cell) for s in relays}
        self._back_off = {key: pause for key, pause in self._back_off.items() if key in known}
        self._review_at = kernel.now + kernel.settings.age_min_s if relays else None
        for supply in relays:
            key = (supply.attribute, supply.cell)
            not_before, pause = self._back_off.get(key, (0.0, kernel.settings.age_min_s))
            if not self._hardly_needed(supply) or kernel.now < not_before:
                continue
            self._review_at = kernel.now + RETRY_S  # there may be more of them
            if self.move is None and supply.piece is not None and supply.piece.feed is not None:
                self._back_off[key] = (kernel.now + pause, min(2 * pause, kernel.settings.backoff_max_s * 10))
                self._begin(Proposal(*key, supply.piece.feed.peer, passes=True))
            break

    def _hardly_needed(self, supply: Supply) -> bool:
        old = self.kernel.now - supply.since >= self.kernel.settings.age_min_s
        if not old or len(supply.entries) != 1 or supply.piece is None or supply.path is None:
            return False
        if supply.piece.feed is None or not all(e.sits for e in supply.entries.values()):
            return False
        (entry,) = supply.entries.values()
        return self.placement is None or self.placement.saves(supply.piece.feed.peer, entry.peer)

    # -- time

    def peer_down(self, event: PeerDown) -> None:
        """Promises to a peer that is gone are void, and so is a move to it."""
        peer = event.peer
        for key in [key for key in self.outlets.reservations if key[0] == peer]:
            self.service.void(key)
        if self.move is not None and self.move.proposal.target == peer:
            self._decline(self.move.proposal)
            self.move = None
        self._departures.peer_down(peer)

    def next_wakeup(self) -> Instant | None:
        """When a reservation, a move or a relay's youth ends."""
        due = self._review_at
        for at in (
            self._foresee_at,
            self._retry_at,
            None if self.move is None else self.move.due,
            self._departures.next_wakeup(),
        ):
            if at is not None and (due is None or at < due):
                due = at
        for reservation in self.outlets.reservations.values():
            if due is None or reservation.due < due:
                due = reservation.due
        return due

    def woke(self, event: Woke) -> None:
        """End what has lasted too long."""
        now = self.kernel.now
        for key in [key for key, r in self.outlets.reservations.items() if r.due <= now]:
            self.service.void(key)
        if self.move is not None and self.move.due <= now:
            self._decline(self.move.proposal)
            self.move = None
        self._departures.woke()
        if self._review_at is not None and self._review_at <= now:
            self._review()
        if self._foresee_at is not None and self._foresee_at <= now:
            self._foresee()
        if self._retry_at is not None and self._retry_at <= now:
            self._retry_at = None

    def leftovers(self) -> dict[str, object]:
        """An offer under way."""
        return {"moves": self.move}
