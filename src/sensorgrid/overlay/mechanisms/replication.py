"""Moving load to other brokers: offers, reservations, redirects, and handing back (multires, section 4.4).

When a request finds no room, the policy names a cell and a broker. That broker reserves budget, which is a promise
with an end and no interest; then receivers are redirected there, and the stream of the cell follows the first of
them. One move is under way at a time. A relay that is left with one receiver hands it back to its own provider
(section 4.4.3), after a minimum age.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sensorgrid.index.codes import prefixes
from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.events import Advised
from sensorgrid.overlay.messages import Answer, Moving, Offer, Redirect
from sensorgrid.overlay.outlets import Entry, Supply
from sensorgrid.overlay.policies.interface import Load, Policy, Proposal, View
from sensorgrid.overlay.state import Reservation, State

DECLINED_S = 30.0
"""how long a failed pair is not proposed again"""


@dataclass(slots=True)
class Move:
    """A delegation under way."""

    number: int
    proposal: Proposal
    due: Instant
    entries: list[Entry]
    """redirected receivers; empty until the target has answered"""
    answered: bool = False
    advised: bool = False
    """an operator's wish: it need not pay, and brokers' streams move too"""


class Replication:
    """The mechanism."""

    def __init__(self, state: State, policy: Policy) -> None:
        self.state = state
        self.policy = policy
        self.handlers: dict[type, Callable[[PeerId, Any], None]] = {
            Offer: self.offered,
            Answer: self.answered,
            Moving: self.moving,
        }
        self.move: Move | None = None
        self._number = 0
        self._declined: dict[tuple[int, int, PeerId], Instant] = {}
        self._review_at: Instant | None = None
        self._back_off: dict[tuple[int, int], tuple[Instant, float]] = {}
        """by attribute and cell of a relay: not handed back before, pause"""

    # -- this broker has too much

    def settle(self) -> bool:
        """Start a move where requests wait; refuse them where none is left to make."""
        state = self.state
        if self.move is not None and self.move.answered and state.outlets.going == 0:
            self.move = None
        if self._review_at is None and any(s.piece for s in self._relays()):
            self._review_at = state.now + state.settings.age_min_s
        if self.move is not None or not state.waiting:
            return False
        proposal = self.policy.propose(self._view())
        if proposal is None:
            # Nothing helps: say so now, not when the time is up.
            for request in state.waiting.values():
                request.due = state.now
            return False
        self._begin(proposal)
        return False

    def advised(self, event: Advised) -> None:
        """Do what an operator wants, if nothing else is under way."""
        if self.move is None and event.target != self.state.me:
            self._begin(Proposal(event.attribute, event.cell, event.target), advised=True)

    def _begin(self, proposal: Proposal, advised: bool = False) -> None:
        state = self.state
        self._number += 1
        load = sum(e.size for e in self._movable(proposal, advised))
        if not load:
            return
        due = state.now + state.settings.reservation_s
        self.move = Move(self._number, proposal, due, [], advised=advised)
        offer = Offer(self._number, proposal.attribute, proposal.cell, load)
        state.send(proposal.target, offer)

    def answered(self, peer: PeerId, message: Answer) -> None:
        """The target has reserved something, or not."""
        move, state = self.move, self.state
        if move is None or move.number != message.number or move.proposal.target != peer or move.answered:
            state.send(peer, Moving(message.number, 0))
            return
        chosen = self._choose(move, message.load)
        state.send(peer, Moving(message.number, sum(e.size for e in chosen)))
        if not chosen:
            self._decline(move.proposal)
            self.move = None
            return
        move.answered = True
        move.entries = chosen
        state.counters.delegations += 1
        items: dict[tuple[PeerId, int], list[tuple[int, int]]] = {}
        for entry in chosen:
            entry.going = peer
            items.setdefault((entry.peer, entry.generation), []).append((entry.cell, entry.cell))
        state.outlets.going += len(chosen)
        for (receiver, generation), cells in items.items():
            state.send(receiver, Redirect(generation, tuple(cells), peer))

    def _movable(self, proposal: Proposal, brokers: bool = False) -> list[Entry]:
        """Entries in the cell that sit still; brokers' streams are moved only on advice."""
        return [
            entry
            for entry in self.state.outlets.inside(proposal.attribute, proposal.cell)
            if entry.granted
            and (brokers or not entry.of_broker)
            and entry.going is None
            and not entry.stays
            and entry.peer != proposal.target
        ]

    def _choose(self, move: Move, room: int) -> list[Entry]:
        """The largest entries first, as many as fit; at least two, and more than the replica costs (rule 11)."""
        chosen, total, proposal = [], 0, move.proposal
        movable = self._movable(proposal, move.advised)
        for entry in sorted(movable, key=lambda e: (-e.size, e.peer, e.generation, e.cell)):
            if total + entry.size <= room:
                chosen.append(entry)
                total += entry.size
        if self._carries(proposal):
            return chosen
        size = self.state.grid.points_per_period >> (proposal.cell.bit_length() - 1)
        pays = move.advised or total > size
        return chosen if len(chosen) >= 2 and pays else []

    def _carries(self, proposal: Proposal) -> bool:
        return proposal.target in self.state.outlets.carriers(proposal.attribute, proposal.cell)

    def _decline(self, proposal: Proposal) -> None:
        key = (proposal.attribute, proposal.cell, proposal.target)
        self._declined[key] = self.state.now + DECLINED_S

    def _view(self) -> View:
        state = self.state
        outlets = state.outlets
        for key in [key for key, until in self._declined.items() if until <= state.now]:
            del self._declined[key]
        loads: dict[int, dict[int, Load]] = {}
        exact: dict[int, dict[int, int]] = {}
        for attribute, at in outlets.at.items():
            sums = loads[attribute] = {}
            points = exact[attribute] = {}
            shortest = min((s.bit_length() for s in outlets.supplies[attribute]), default=1) - 1
            for cell, entries in at.items():
                moving = [
                    e.size
                    for e in entries.values()
                    if e.clip is not None and e.granted and e.going is None and not e.stays
                ]
                if not moving:
                    continue
                total = points[cell] = sum(moving)
                for code in prefixes(cell, shortest):
                    load = sums.get(code)
                    if load is None:
                        load = sums[code] = Load()
                    load.points += total
                    load.receivers += len(moving)
        carriers: dict[int, dict[PeerId, tuple[int, ...]]] = {}
        for peer, owed in outlets.entries.items():
            if is_broker(peer):
                for entry in owed.values():
                    cells = carriers.setdefault(entry.attribute, {})
                    cells[peer] = (*cells.get(peer, ()), entry.cell)
        need = sum(w.size for w in state.waiting.values()) - outlets.free
        return View(
            me=state.me,
            now=state.now,
            grid=state.grid,
            depth=state.settings.depth,
            need=need,
            loads=loads,
            exact=exact,
            paths={a: {c: s.path for c, s in by.items()} for a, by in outlets.supplies.items()},
            carriers=carriers,
            neighbours=state.neighbours,
            boxes=state.boxes,
            free={peer: free for peer, (_, free) in state.free_of.items()},
            declined=frozenset(self._declined),
            middles={cell: state.middle(cell) for sums in loads.values() for cell in sums},
        )

    # -- another broker has too much

    def offered(self, peer: PeerId, message: Offer) -> None:
        """Reserve what is free, unless the cell comes from here."""
        state = self.state
        supply = state.outlets.supply_for(message.attribute, message.cell)
        feeds = any(
            e.peer == peer for code in prefixes(message.cell)
            for e in state.outlets.at.get(message.attribute, {}).get(code, {}).values()
        )  # fmt: skip
        load = min(message.load, state.outlets.free)
        if feeds or load <= 0 or (supply is not None and supply.owned):
            state.send(peer, Answer(message.number, 0))
            return
        due = state.now + state.settings.reservation_s
        key = (peer, message.number)
        state.reservations[key] = Reservation(
            peer, message.number, message.attribute, message.cell, load, due
        )
        state.outlets.reserved += load
        state.send(peer, Answer(message.number, load))

    def moving(self, peer: PeerId, message: Moving) -> None:
        """Only so much will come."""
        reservation = self.state.reservations.get((peer, message.number))
        if reservation is not None:
            surplus = max(0, reservation.left - message.load)
            reservation.left -= surplus
            self.state.outlets.reserved -= surplus
            self._prune((peer, message.number))

    def _prune(self, key: tuple[PeerId, int]) -> None:
        if not self.state.reservations[key].left:
            del self.state.reservations[key]

    # -- a relay that is hardly needed

    def _relays(self) -> list[Supply]:
        return [s for by in self.state.outlets.supplies.values() for s in by.values() if s.piece is not None]

    def _review(self) -> None:
        """Hand a relay's only receiver back to the relay's own provider."""
        state = self.state
        relays = self._relays()
        known = {(s.attribute, s.cell) for s in relays}
        self._back_off = {key: pause for key, pause in self._back_off.items() if key in known}
        for supply in relays:
            entries = list(supply.entries.values())
            if len(entries) != 1 or supply.piece is None or supply.piece.feed is None or supply.path is None:
                continue
            entry, key = entries[0], (supply.attribute, supply.cell)
            not_before, pause = self._back_off.get(key, (0.0, state.settings.age_min_s))
            old = state.now - supply.since >= state.settings.age_min_s
            if not old or state.now < not_before or not entry.granted or entry.going is not None:
                continue
            self._back_off[key] = (state.now + pause, min(2 * pause, state.settings.backoff_max_s * 10))
            items = ((entry.cell, entry.cell),)
            state.send(entry.peer, Redirect(entry.generation, items, supply.piece.feed.peer))
        self._review_at = state.now + state.settings.age_min_s if relays else None

    # -- time

    def peer_down(self, peer: PeerId) -> None:
        """Promises to a peer that is gone are void, and so is a move to it."""
        for key in [key for key in self.state.reservations if key[0] == peer]:
            self.state.outlets.reserved -= self.state.reservations.pop(key).left
        if self.move is not None and self.move.proposal.target == peer:
            self._end_move()

    def _end_move(self) -> None:
        assert self.move is not None
        self._decline(self.move.proposal)
        for entry in self.move.entries:
            if entry.supply is not None and entry.going is not None:
                entry.going = None
                self.state.outlets.going -= 1
        self.move = None

    def next_wakeup(self) -> Instant | None:
        """When a reservation, a move or a relay's youth ends."""
        times = [r.due for r in self.state.reservations.values()]
        if self.move is not None:
            times.append(self.move.due)
        if self._review_at is not None:
            times.append(self._review_at)
        return min(times, default=None)

    def woke(self) -> None:
        """End what has lasted too long."""
        now = self.state.now
        for key in [key for key, r in self.state.reservations.items() if r.due <= now]:
            self.state.outlets.reserved -= self.state.reservations.pop(key).left
        if self.move is not None and self.move.due <= now:
            self._end_move()
        if self._review_at is not None and self._review_at <= now:
            self._review()
