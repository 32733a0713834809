"""A shared tree for each cell, kept by the cell's owner (our relay strategy).

Every broker that takes a cell from another tells the owner which one. The owner knows the distances between brokers
(`neighbourhood.py`), works out where each receiver hangs best (`policies/trees.py`) and steers it there. A receiver
obeys as it obeys a redirect: it asks the new provider, switches when the new provider feeds it, and otherwise stays.
Joins are steered soon; a tree as a whole is reconsidered at most once in `optimise_s`.

What the owner knows is a copy and may be wrong at any time: receivers report again every period, a receiver that is
silent for some periods is forgotten, and one that did not go where it was steered counts as being where it last said.
Only the cost of the streams depends on this copy: the streams' own paths exclude circles.
"""

from typing import Any

import numpy as np

from sensorgrid.index.codes import prefixes
from sensorgrid.model.ids import Instant, PeerId, is_broker
from sensorgrid.overlay.boards import Boards, ToldDistance
from sensorgrid.overlay.declined import Declined
from sensorgrid.overlay.events import Woke
from sensorgrid.overlay.intake import Piece
from sensorgrid.overlay.kernel import BrokerKernel, Notebook
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.messages import Joined, Shifted, Steer
from sensorgrid.overlay.policies.relays import Relays
from sensorgrid.overlay.policies.trees import Hang, Way, hang
from sensorgrid.overlay.service import Service

PERIODS = 2.5
"""measurement periods after which a member that is not heard of is forgotten"""
PASSES = 3
"""times that all nodes of a tree are looked at when it is optimised"""
MEMBERS_MAX = 1_000_000
"""(cell, broker) that an owner remembers"""

Key = tuple[int, int]
"""attribute and cell"""


class TreeMember:
    """One broker in a tree."""

    __slots__ = ("expected", "heard", "parent", "takes_from")

    def __init__(self, parent: PeerId, heard: Instant) -> None:
        self.takes_from: PeerId | None = None
        """as it said; None: nothing yet"""
        self.parent = parent
        """as it was told"""
        self.expected: Instant | None = None
        """when it should have said that it went there"""
        self.heard = heard


class Tree:
    """Which brokers take a cell, and from which provider each."""

    __slots__ = ("changed", "fresh", "members", "moved", "optimised")

    def __init__(self, now: Instant) -> None:
        self.members: dict[PeerId, TreeMember] = {}
        self.fresh: dict[PeerId, None] = {}
        """joined, or with a way that has changed, and not looked at yet"""
        self.changed = False
        """since it was optimised"""
        self.moved = False
        """whether distances have, since it was optimised"""
        self.optimised = now


class Trees(Mechanism):
    """The mechanism, of owners and of receivers."""

    def __init__(
        self,
        kernel: BrokerKernel,
        boards: Boards,
        service: Service,
        rerouted: Notebook[Key],
        shifts: Notebook[tuple[PeerId, PeerId]],
        relays: Relays,
    ) -> None:
        self.kernel = kernel
        self.outlets = boards.outlets
        self.distances = boards.distances
        self.service = service
        self.relays = relays
        self.listens = {Woke: self.woke}
        self.handlers = {Joined: self.joined, Steer: self.steered}
        self.trees: dict[Key, Tree] = {}
        self._members = 0
        self._pending: dict[tuple[int, int, PeerId], None] = {}
        """members that were steered and have not said that they went"""
        self._declined: Declined[tuple[int, int, PeerId]] = Declined()
        """by (attribute, cell, receiver): providers that it did not go to"""
        self._rerouted = rerouted
        """what came, went, or comes another way"""
        self._shifts = shifts
        """pairs of brokers whose distance has changed"""
        self.told: dict[Key, tuple[PeerId, PeerId]] = {}
        """what owners were told: owner and provider"""
        self._fresh: dict[Key, None] = {}
        """trees that have changed and were not looked at since"""
        self._steers: dict[PeerId, list[tuple[int, int, PeerId, PeerId]]] = {}
        """to be sent when all that came together has been looked at"""
        self._memo: dict[tuple[Any, ...], Hang | None] = {}
        self._due: Instant | None = None
        self._refresh_at: Instant | None = None
        self._way: tuple[int, int, Way] | None = None
        self._sights = 0

    # -- a receiver

    def settle(self) -> bool:
        """Tell owners what changed; plan to look at what others told."""
        kernel, distances = self.kernel, self.distances
        self._memo.clear()
        if self._rerouted:
            self._tell(self._rerouted.take())
        for peer, items in self._steers.items():
            kernel.send(peer, Steer(tuple(items)))
        self._steers.clear()
        if not self.trees:
            self._sights = distances.sights
        news = self._fresh or self._pending or self._shifts or self._sights != distances.sights
        if news and (self._due is None or self._due > kernel.now + self.relays.review_s):
            self._due = kernel.now + self.relays.review_s
        if self._refresh_at is None and (self.told or self.trees or self._declined):
            self._refresh_at = kernel.now + self.relays.measure_s
        return False

    def _tell(self, keys: dict[Key, None]) -> None:
        news: dict[PeerId, list[tuple[int, int, PeerId | None]]] = {}
        for key in keys:
            attribute, cell = key
            supply = self.outlets.supplies.get(attribute, {}).get(cell)
            before = self.told.get(key)
            if supply is not None and not supply.owned and supply.path is None and supply.piece is not None:
                continue  # it has no way at present; it will
            if supply is None or supply.owned or supply.path is None:
                if before is not None:
                    del self.told[key]
                    news.setdefault(before[0], []).append((*key, None))
                continue
            after = (supply.path[0], supply.path[-2])
            if after != before:
                if before is not None and before[0] != after[0]:
                    news.setdefault(before[0], []).append((*key, None))
                self.told[key] = after
                news.setdefault(after[0], []).append((*key, after[1]))
        for owner, items in news.items():
            self.kernel.send(owner, Joined(tuple(items)))

    def _shift(self) -> None:
        """Distances have changed: owners are told now, not when they next ask, and look at the members fed over
        them."""
        kernel, distances, shifts = self.kernel, self.distances, self._shifts.take()
        for key, tree in self.trees.items():
            for peer, member in tree.members.items():
                if (peer, member.parent) in shifts or (member.parent, peer) in shifts:
                    tree.fresh[peer] = None
                    self._fresh[key] = None
        mine = [b for a, b in shifts if a == kernel.me]
        if not mine:
            return
        items = tuple(
            (p, distances.delays[p].delay_s if p in distances.delays else None, distances.hops.get(p))
            for p in mine
        )
        for owner in dict.fromkeys(owner for owner, _ in self.told.values()):
            kernel.send(owner, Shifted(items))

    def steered(self, peer: PeerId, message: Steer) -> None:
        """The owner of cells knows a better provider: ask it (rule 5, from the owner instead of the provider)."""
        asks: dict[tuple[PeerId, PeerId], list[Piece]] = {}
        for attribute, cell, to, via in message.items:
            supply = self.outlets.supplies.get(attribute, {}).get(cell)
            piece = None if supply is None else supply.piece
            if supply is None or piece is None or piece.feed is None or piece.trial is not None:
                continue
            if supply.path is None or supply.path[0] != peer or not is_broker(to) or not is_broker(via):
                continue
            if to not in (self.kernel.me, piece.feed.peer):
                asks.setdefault((to, via), []).append(piece)
        for (to, via), pieces in asks.items():
            self.service.ask(pieces, to, via)

    # -- an owner

    def joined(self, peer: PeerId, message: Joined) -> None:
        """A broker takes cells of this broker's regions, takes them from another provider, or no longer takes them."""
        for attribute, cell, provider in message.items:
            key = (attribute, cell)
            tree = self.trees.get(key)
            if provider is None:
                if tree is not None:
                    self._forget(key, tree, peer)
                continue
            supply = self.outlets.supply_for(attribute, cell)
            if supply is None or not supply.owned or self._members >= MEMBERS_MAX:
                continue
            if cell.bit_length() - 1 > self.kernel.digits or not is_broker(provider):
                continue
            if tree is None:
                tree = self.trees[key] = Tree(self.kernel.now)
            self._heard(key, tree, peer, provider)

    def _heard(self, key: Key, tree: Tree, peer: PeerId, provider: PeerId) -> None:
        member = tree.members.get(peer)
        if member is None:
            member = self._add(tree, peer, provider)
        elif member.takes_from == provider:
            member.heard = self.kernel.now
            return
        member.takes_from, member.heard = provider, self.kernel.now
        if member.expected is None:
            member.parent = provider
        elif provider == member.parent:
            member.expected = None
            self._pending.pop((*key, peer), None)
        tree.changed = True
        self._fresh[key] = None
        if member.expected is None and member.parent == self.kernel.me:
            tree.fresh[peer] = None

    def _add(self, tree: Tree, peer: PeerId, parent: PeerId) -> TreeMember:
        member = tree.members[peer] = TreeMember(parent, self.kernel.now)
        self._members += 1
        return member

    def place(self, asker: PeerId, attribute: int, cell: int) -> PeerId:
        """The provider for a broker that does not take the cell yet: the best place in the cell's tree."""
        key, me = (attribute, cell), self.kernel.me
        way = self._ways()
        x = way.at.get(asker)
        if asker == me or not is_broker(asker) or x is None or self._members >= MEMBERS_MAX:
            return me
        tree = self.trees.get(key)
        if tree is not None and asker in tree.members:
            return me if tree.members[asker].parent == asker else tree.members[asker].parent
        if tree is None:
            tree = self.trees[key] = Tree(self.kernel.now)
        self._expect(key, self._add(tree, asker, me), asker, me)
        steers: dict[PeerId, list[tuple[int, int, PeerId, PeerId]]] = {}
        self._improve(key, tree, [asker], steers, self._memo)
        for peer, items in steers.items():
            if peer != asker:  # the asker gets it as the answer
                self._steers.setdefault(peer, []).extend(items)
        tree.changed = True
        return tree.members[asker].parent

    def _expect(self, key: Key, member: TreeMember, peer: PeerId, parent: PeerId) -> None:
        """A member was told where to take a cell from: it should say soon that it does."""
        member.parent, member.expected = parent, self.kernel.now + self.kernel.settings.reservation_s
        self._pending[(*key, peer)] = None

    def saves(self, provider: PeerId, receiver: PeerId) -> bool:
        """Whether the route through here is longer: a relay on the shortest route costs nothing, and others may meet
        there."""
        way = self._ways()
        a, b, me = way.at.get(provider), way.at.get(receiver), way.at[self.kernel.me]
        if a is None or b is None:
            return True
        cost = way.cost
        return bool(cost[a, me] + cost[me, b] > cost[a, b] * (1 + self.relays.hysteresis) + 1e-9)

    def _forget(self, key: Key, tree: Tree, peer: PeerId) -> None:
        if tree.members.pop(peer, None) is not None:
            self._members -= 1
            tree.changed = True
        tree.fresh.pop(peer, None)
        self._pending.pop((*key, peer), None)
        if tree.members:
            self._fresh[key] = None
        else:
            del self.trees[key]
            self._fresh.pop(key, None)

    def _review(self) -> None:
        """Steer new members and members whose distance has changed; optimise trees that are due."""
        kernel, distances, now = self.kernel, self.distances, self.kernel.now
        self._give_up()
        if self._shifts:
            self._shift()
        if self._sights != distances.sights:
            self._sights = distances.sights
            for each in self.trees.values():
                each.changed = each.moved = True
        steers: dict[PeerId, list[tuple[int, int, PeerId, PeerId]]] = {}
        memo: dict[tuple[Any, ...], Hang | None] = {}
        fresh, self._fresh = self._fresh, {}
        for key in fresh:
            tree = self.trees.get(key)
            if tree is not None and tree.fresh:
                nodes, tree.fresh = list(tree.fresh), {}
                self._improve(key, tree, nodes, steers, memo)
        for key, tree in self.trees.items():
            if tree.changed and self._time_of(tree) <= now:
                tree.changed, tree.moved, tree.optimised = False, False, now
                for _ in range(PASSES):
                    if not self._improve(key, tree, sorted(tree.members), steers, memo):
                        break
        for peer, items in steers.items():
            kernel.send(peer, Steer(tuple(items)))
        self._plan_ahead()

    def _time_of(self, tree: Tree) -> Instant:
        """When a tree that has changed may be optimised: sooner if distances have."""
        wait_s = self.relays.optimise_s
        return tree.optimised + (min(wait_s, self.relays.measure_s) if tree.moved else wait_s)

    def _plan_ahead(self) -> None:
        now, relays = self.kernel.now, self.relays
        self._due = now + relays.review_s if self._fresh or self._pending else None
        for tree in self.trees.values():
            if tree.changed:
                due = max(self._time_of(tree), now + relays.review_s)
                if self._due is None or due < self._due:
                    self._due = due

    def _give_up(self) -> None:
        """A member that did not go where it was told is where it last said, or nowhere."""
        now = self.kernel.now
        self._forget_declined()
        for attribute, cell, peer in list(self._pending):
            tree = self.trees[attribute, cell]
            member = tree.members[peer]
            if member.expected is None or member.expected > now:
                continue
            del self._pending[attribute, cell, peer]
            self._declined.note((attribute, cell, peer), member.parent, now)
            if member.takes_from is None:
                self._forget((attribute, cell), tree, peer)
            else:
                member.parent, member.expected = member.takes_from, None

    def _forget_declined(self) -> None:
        """Forget old refusals: the receiver may be sent to that provider again."""
        for (attribute, cell, peer), _ in self._declined.forgive(self.kernel.now):
            tree = self.trees.get((attribute, cell))
            if tree is not None and peer in tree.members:
                tree.fresh[peer] = None
                self._fresh[attribute, cell] = None

    def _improve(
        self,
        key: Key,
        tree: Tree,
        nodes: list[PeerId],
        steers: dict[PeerId, list[tuple[int, int, PeerId, PeerId]]],
        memo: dict[tuple[Any, ...], Hang | None],
    ) -> bool:
        """Hang nodes where they cost least; whether anything changed."""
        way = self._ways()
        holds, parent, edges = self._shape(key, tree, way)
        moved = False
        for peer in nodes:
            member = tree.members.get(peer)
            x = way.at.get(peer)
            busy = member is None or (member.expected is not None and member.takes_from is not None)
            if busy or x is None or parent[x] < 0:
                continue
            barred = self._barred(key, peer, way)
            name = (x, holds.tobytes(), parent.tobytes(), edges.tobytes(), barred.tobytes())
            if name not in memo:
                added_s = np.inf if self.relays.added_s is None else self.relays.added_s
                memo[name] = hang(way, holds, parent, edges, x, added_s, self.relays.hysteresis, barred)
            place = memo[name]
            if place is None:
                continue
            moved = True
            self._hang(key, tree, way, peer, place, steers)
            holds, parent, edges = self._shape(key, tree, way)
        return moved

    def _hang(
        self,
        key: Key,
        tree: Tree,
        way: Way,
        peer: PeerId,
        place: Hang,
        steers: dict[PeerId, list[tuple[int, int, PeerId, PeerId]]],
    ) -> None:
        parent = PeerId(way.names[place.parent])
        going = [(peer, parent)]
        if place.between >= 0:
            between, child = PeerId(way.names[place.between]), PeerId(way.names[place.child])
            going = [(peer, parent if between == peer else between), (child, between)]
            if between != peer:
                self._expect(key, self._add(tree, between, parent), between, parent)
        for receiver, to in going:
            member = tree.members[receiver]
            if member.parent != to:
                self._expect(key, member, receiver, to)
                steers.setdefault(receiver, []).append((*key, to, parent))

    def _barred(self, key: Key, peer: PeerId, way: Way) -> Any:
        barred = np.zeros(len(way.names), dtype=np.bool_)
        for provider in self._declined.brokers((*key, peer)):
            if provider in way.at:
                barred[way.at[provider]] = True
        return barred

    def _shape(self, key: Key, tree: Tree, way: Way) -> tuple[Any, Any, Any]:
        """The tree as arrays. Members of a larger cell's tree can feed it as well."""
        count = len(way.names)
        holds = np.zeros(count, dtype=np.bool_)
        edges = np.zeros(count, dtype=np.bool_)
        parent = np.full(count, -1, dtype=np.int64)
        attribute, cell = key
        holds[way.at[self.kernel.me]] = True
        for code in prefixes(cell):
            other = tree if code == cell else self.trees.get((attribute, code))
            if other is None:
                continue
            for peer, member in other.members.items():
                i = way.at.get(peer)
                if i is not None and (code == cell or not holds[i]):
                    holds[i] = True
                    parent[i] = way.at.get(member.parent, i)  # on somebody unknown: as good as in a circle
                    edges[i] = code == cell and member.expected is None
        return holds, parent, edges

    def _ways(self) -> Way:
        """Between all brokers that are known, by hops where these are; of two that measured each other, the newer."""
        kernel, distances = self.kernel, self.distances
        version = (distances.sights, len(distances.delays))
        if self._way is not None and self._way[:2] == version:
            return self._way[2]
        names = tuple(sorted({kernel.me, *distances.delays}))
        at = {name: i for i, name in enumerate(names)}
        delay = np.full((len(names), len(names)), np.inf)
        hops = np.full((len(names), len(names)), np.inf)
        when = np.full((len(names), len(names)), -np.inf)
        views = {
            **distances.views,
            kernel.me: {
                p: ToldDistance(m.delay_s, distances.hops.get(p), m.at) for p, m in distances.delays.items()
            },
        }
        for one, seen in views.items():
            i = at.get(one)
            if i is None:
                continue
            for other, (delay_s, links, moment) in seen.items():
                j = at.get(other)
                if j is not None:
                    delay[i, j], when[i, j] = delay_s, moment
                    if links is not None:
                        hops[i, j] = links
        newer = when < when.T
        delay[newer] = delay.T[newer]
        told = np.isinf(hops) | (newer & np.isfinite(hops.T))
        hops[told] = hops.T[told]
        for matrix in (delay, hops):
            np.fill_diagonal(matrix, 0.0)
        cost = delay
        if distances.hops:  # of a pair of which they are not known, as many as its delay is usually worth
            known = np.isfinite(hops) & np.isfinite(delay) & (delay > 0)
            worth = float(np.median(hops[known] / delay[known])) if known.any() else 1.0
            cost = np.where(np.isfinite(hops), hops, delay * worth)
        way = Way(names, cost, delay)
        self._way = (*version, way)
        return way

    # -- time

    def next_wakeup(self) -> Instant | None:
        """When to look again, or to tell again."""
        times = [t for t in (self._due, self._refresh_at) if t is not None]
        return min(times, default=None)

    def woke(self, event: Woke) -> None:
        """Look at the trees, or report again and forget members that no longer report."""
        now = self.kernel.now
        if self._due is not None and self._due <= now:
            self._due = None
            self._review()
        if self._refresh_at is not None and self._refresh_at <= now:
            self._refresh_at = None
            self._refresh()

    def _refresh(self) -> None:
        news: dict[PeerId, list[tuple[int, int, PeerId | None]]] = {}
        for key, (owner, provider) in self.told.items():
            news.setdefault(owner, []).append((*key, provider))
        for owner, items in news.items():
            self.kernel.send(owner, Joined(tuple(items)))
        self._forget_declined()
        too_old = self.kernel.now - PERIODS * self.relays.measure_s
        for key, tree in list(self.trees.items()):
            supply = self.outlets.supply_for(*key)
            lost = supply is None or not supply.owned
            for peer in [p for p, m in tree.members.items() if lost or m.heard < too_old]:
                self._forget(key, tree, peer)

    def leftovers(self) -> dict[str, object]:
        """Which broker takes which cell of this owner, and what other owners were told."""
        return {"trees": {**self.trees, **self.told}}
