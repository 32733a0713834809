"""An open network changes its roster by itself: brokers come, leave, die, and others take over (operators, III-A).

Every version is decided by a store that lets each version be written once. This mechanism only proposes (`Propose`),
and learns what was decided (`Learned`). What it wants changed it works out anew from the newest roster each time.

- *Beats.* Once a beat each broker says something to the two on either side of it in the order of places, and notes
  whether it heard them. It counts its own beats, no clock: a process that was stopped wakes up with a short memory.
- *Accuse, wait, remove.* Whoever misses a broker for `SUSPECT` beats accuses it, in a version. The accused, or anyone
  who hears it, acquits it, in a version. If nobody has within `WINDOW` beats it is removed, and whoever is responsible
  now owns its regions. After an acquittal everybody waits twice as long, which is the lease.
- *Inheritance.* Whoever is responsible for a region of another broker becomes its heir, and owns it once it has it.
- *Balance.* Whoever has much more load than the broker beside it moves the border between them (`overlay/balance.py`).
- *Leaving.* A leaver is marked, so that others become responsible. When it owns nothing it removes itself.

Whoever cannot reach the store changes nothing, and goes on as it is.
"""

from math import inf

from sensorgrid.model.ids import Instant, PeerId
from sensorgrid.overlay.balance import Balance
from sensorgrid.overlay.boards import Boards
from sensorgrid.overlay.events import (
    Inquire,
    Joining,
    Leaving,
    Left,
    PeerDown,
    PeerUp,
    Propose,
    Published,
    RosterChanged,
    Ruled,
    Unused,
    Woke,
)
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import Alive
from sensorgrid.overlay.placement import Draft, Key, ring
from sensorgrid.overlay.roster import Member, Roster

BESIDE = 2
"""brokers on either side that are watched"""
SUSPECT = 5
"""beats without a word after which a broker is accused"""
STARTING = 15
"""the same for one that has not been heard at all: when everything is started at once, some take long"""
WINDOW = 3
"""beats that an accused broker has to be heard by somebody"""
LEASE = SUSPECT + WINDOW + 2
"""beats within which a broker that dies is removed"""
OFTEN, RARELY = 5, 30
"""beats between two looks at the store: of the two first that are alive, of others"""
HEIR = 2
"""beats that an heir waits for a region of which it has nothing, or parts"""
_NEVER: Instant = -inf


class Succession(Mechanism):
    """The mechanism; a broker whose roster is a file has none."""

    def __init__(self, kernel: BrokerKernel, boards: Boards, beat_s: float) -> None:
        self.kernel = kernel
        self.boards = boards
        self.beat_s = beat_s
        self.listens = {
            RosterChanged: self.changed,
            Joining: self.joining,
            Leaving: self.leaving,
            Ruled: self.ruled,
            Published: self.published,
            PeerUp: self.peer_up,
            PeerDown: self.peer_down,
            Unused: self.peer_down,
            Woke: self.woke,
        }
        self.missed: dict[PeerId, int] = {}
        """own beats since a watched broker was heard"""
        self.accused: dict[PeerId, int] = {}
        """own beats since an accusation was heard of"""
        self.acquitted: set[PeerId] = set()
        """brokers that were accused in vain: they are waited for longer"""
        self._member: Member | None = None
        """what this broker shall be"""
        self._leaves = False
        self._returns = False
        """whether it has just come: a mark in the roster that it leaves is then of an earlier life"""
        self._left = False
        self._asked = False
        """whether the store has not answered yet"""
        self._proposed = 0
        """the version that was proposed last, to a store that answered; 0: none"""
        self._failures = 0
        """times in a row that the store could not be reached, or holds a roster that nobody can take"""
        self._pause = 0
        """beats until it is asked again"""
        self._look = 0
        """beats until the store is looked at for news"""
        self._fed: Instant | None = None
        """when the pipeline was last heard"""
        self._last: Instant = 0.0
        """the last beat"""
        self._waits: dict[Key, int] = {}
        """beats since this broker became the heir of a region"""
        self._opened: dict[PeerId, Instant] = {}
        """when connections were opened"""
        self._known: set[PeerId] = set()
        """watched brokers that have been heard"""
        self._settled = 0
        """the version for which this broker is the heir of all that it should be"""
        self._balance = Balance(kernel, boards)
        self._due: Instant | None = None
        self._stirred = False
        """whether there may be something to propose before the next beat"""

    # -- what happens

    def joining(self, event: Joining) -> None:
        """From now on it belongs to the network."""
        self._member, self._leaves, self._left = event.member, False, False
        self._returns = self._stirred = True

    def leaving(self, event: Leaving) -> None:
        """From now on it does not."""
        self._leaves, self._returns, self._stirred = True, False, True

    def published(self, event: Published) -> None:
        """The pipeline hears this broker, which is as good as a witness."""
        self._fed = self.kernel.now

    def ruled(self, event: Ruled) -> None:
        """The store has answered, or not."""
        self._asked = False
        held = self.boards.roster.current
        if not event.reached:
            self._proposed = 0  # nobody knows whether it arrived
        # Whatever became of a proposal, the store has its version now. If that was not taken, asking on is in vain.
        well = event.reached and (held is None or held.version >= self._proposed)
        self._failures = 0 if well else min(self._failures + 1, LEASE)
        self._pause = 0 if well else min(1 << self._failures, LEASE)
        self._stirred = well

    def changed(self, event: RosterChanged) -> None:
        """Whoever is accused anew has some beats left; who is acquitted will be waited for longer."""
        before = {} if event.before is None else event.before.by_id
        for member in event.roster.members:
            if member.accused:
                self.accused.setdefault(member.id, 0)
            elif member.id in self.accused:
                del self.accused[member.id]
                self.acquitted.add(member.id)
                self.missed.pop(member.id, None)
        for gone in before.keys() - event.roster.by_id.keys():
            self.missed.pop(gone, None)
            self.accused.pop(gone, None)
            self.acquitted.discard(gone)
        self._look = self._patience(event.roster)
        self._balance.changed()
        self._stirred = True

    # -- beats

    def settle(self) -> bool:
        """Keep the beat going; say what is wanted of the roster."""
        if self._due is None:
            self._due = self.kernel.now + self.beat_s * self.kernel.rng.uniform(0.9, 1.1)
        if self._stirred:
            self._stirred = False
            self._propose()
        return False

    def next_wakeup(self) -> Instant | None:
        """The next beat."""
        return self._due

    def woke(self, event: Woke) -> None:
        """One beat."""
        kernel, roster = self.kernel, self.boards.roster.current
        if self._due is None or self._due > kernel.now:
            return
        self._due = None
        if roster is not None:
            watched = self.watched(roster)
            self.missed = {p: 0 if self._heard(p) else self.missed.get(p, 0) + 1 for p in watched}
            self._known = {p for p in watched if p in self._known or not self.missed[p]}
            for peer in watched:
                if peer in kernel.links.up or kernel.me < peer or self.missed[peer] > 1:
                    kernel.send(peer, Alive(True))
            for peer in self.accused:
                self.accused[peer] += 1
            self._waits = {key: beats + 1 for key, beats in self._waits.items()}
            self._balance.beat(roster)
        self._last = kernel.now
        self._pause = max(self._pause - 1, 0)
        self._look -= 1
        if self._look <= 0 and roster is not None:
            self._look = self._patience(roster)
            self._ask(Inquire())
        self._stirred = True

    def watched(self, roster: Roster) -> list[PeerId]:
        """Those beside this broker: on either side as far as two that are heard."""
        order = ring(roster)
        others = [peer for peer in order if peer != self.kernel.me]
        if self.kernel.me in roster.by_id:
            at = order.index(self.kernel.me)
            others = order[at + 1 :] + order[:at]
        found: dict[PeerId, None] = {}
        for side in (others, others[::-1]):
            heard = 0
            for peer in side:
                found[peer] = None
                heard += self.missed.get(peer, 0) < SUSPECT
                if heard == BESIDE:
                    break
        return list(found)

    def peer_up(self, event: PeerUp) -> None:
        """Somebody took a connection; that alone is no word: a stopped process does that."""
        self._opened[event.peer] = self.kernel.now

    def peer_down(self, event: PeerDown | Unused) -> None:
        """Forget when it was opened."""
        self._opened.pop(event.peer, None)

    def _heard(self, peer: PeerId) -> bool:
        """Whether it has said something since the last beat."""
        return self._said(peer) >= self._last

    def _said(self, peer: PeerId) -> Instant:
        """When it last said something."""
        last = self.kernel.links.up.get(peer, _NEVER)
        return _NEVER if last == self._opened.get(peer) else last

    def _patience(self, roster: Roster) -> int:
        """Beats until the next look at the store."""
        if all(self.missed.get(peer) for peer in self.watched(roster)):
            return 2  # alone: only the store can tell
        first = sorted(p for p in roster.by_id if p == self.kernel.me or p in self.kernel.links.up)[:2]
        return OFTEN if self.kernel.me in first else RARELY

    # -- proposals

    def _propose(self) -> None:
        roster = self.boards.roster.current
        if roster is None or self._asked or self._pause or self._left:
            return
        draft = Draft(roster)
        me = roster.by_id.get(self.kernel.me)
        if me is not None:
            self._notice(me, draft)
        if me is None:
            if self._leaves:
                self._left = True
                self.kernel.have(Left())
                return
            if self._member is not None:
                draft.join(self._member)
                draft.inherit(self.kernel.me)
        elif me.accused:
            if self._has_company(roster):
                draft.acquit([me.id])
        else:
            self._judge(roster, draft)
            if self._leaves and not me.leaving and len(roster.members) > 1:
                draft.leave(me.id)
            elif (
                self._leaves
                and me.leaving
                and not roster.by_owner.get(me.id)
                and not roster.by_heir.get(me.id)
            ):
                draft.remove({me.id})
            if self._settled != roster.version:
                before = dict(draft.regions)
                draft.inherit(me.id)
                if draft.regions == before:
                    self._settled = roster.version
            draft.promote(me.id, self._ready(roster))
            if not self._leaves:
                draft.move(self._balance.moves(roster))
        wanted = draft.done()
        if wanted is not None:
            self._ask(Propose(wanted))

    def _notice(self, me: Member, draft: Draft) -> None:
        """What the roster says of this broker: that it leaves, as an operator wrote, and where it is dialled."""
        if me.leaving and self._returns:
            draft.stay(me.id)
        elif me.leaving:
            self._leaves = True
        else:
            self._returns = False
        if self._member is not None and me.url != self._member.url:
            draft.dialled_at(me.id, self._member.url)

    def _judge(self, roster: Roster, draft: Draft) -> None:
        """Accuse whom this broker misses, acquit whom it hears, remove whom nobody has heard."""
        heard = [p for p in self.accused if self._recently(p)]
        draft.acquit(heard)
        draft.accuse([p for p, beats in self.missed.items() if beats >= self._patience_with(p)])
        gone = {
            p
            for p, beats in self.accused.items()
            if beats >= WINDOW and self.missed.get(p, 0) >= SUSPECT and p in roster.by_id
        }
        draft.remove(gone)

    def _patience_with(self, peer: PeerId) -> int:
        """Beats without a word after which this broker accuses another one."""
        if peer not in self._known:
            return STARTING
        return LEASE if peer in self.acquitted else SUSPECT

    def _recently(self, peer: PeerId) -> bool:
        return self._said(peer) >= self.kernel.now - 2 * self.beat_s

    def _has_company(self, roster: Roster) -> bool:
        """Whether somebody hears this broker, as far as it can know: it may object then."""
        fed = self._fed is not None and self._fed >= self.kernel.now - SUSPECT * self.beat_s
        return fed or any(self._recently(p) for p in roster.by_id if p != self.kernel.me)

    def _ready(self, roster: Roster) -> list[Key]:
        """Regions that this broker inherits and has as a relay, or waits for in vain: those it reads from the lake."""
        supplies, found = self.boards.outlets.supplies, []
        waits: dict[Key, int] = {}
        for region in roster.by_heir.get(self.kernel.me, ()):
            key = (region.attribute, region.cell)
            waits[key] = self._waits.get(key, 0)
            supply = supplies.get(region.attribute, {}).get(region.cell)
            # With parts of it only, for receivers of its own, it cannot take the whole before it owns it.
            patience = HEIR if supply is None else LEASE
            if (supply is not None and supply.path is not None) or waits[key] >= patience:
                found.append(key)
        self._waits = waits
        return found

    def _ask(self, question: Propose | Inquire) -> None:
        if not self._asked:
            self._asked = True
            if isinstance(question, Propose):
                self._proposed = question.roster.version
            self.kernel.have(question)
