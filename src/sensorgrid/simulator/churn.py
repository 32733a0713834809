"""Random schedules of an open network: brokers come, leave, die for good, flap, are cut off, also from the store.

As in `schedules.py`, a schedule is its seed, and in the end every query must have got exactly its points. Besides, at
any time a region and epoch have one owner, no region is without a living owner for long, and in the end exactly those
who live are members, each owning what it is responsible for.
"""

from functools import partial

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.geography import first_of
from sensorgrid.overlay.mechanisms.succession import LEASE
from sensorgrid.overlay.placement import responsible
from sensorgrid.overlay.policies.ours import Ours
from sensorgrid.overlay.roster import Region
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator import checkers
from sensorgrid.simulator.schedules import Schedule, ScheduleOutcome

BEAT_S = 0.5
LOOK_S = 0.5
OWNERLESS_MAX_S = LEASE * BEAT_S + 10.0
BUDGET = 40.0
"""of a broker, in regions: what is lost here is lost by membership, not for lack of room"""
FAULTS = (
    "join", "join", "two at one place", "leave", "leave", "kill", "kill", "silent kill", "flap", "pause", "partition",
    "no store", "no store for some", "die in a hand-over", "break", "half-open", "client",
)  # fmt: skip


class Churn(Schedule):
    """One seed, played."""

    end_s, gone_s = 90.0, 120.0
    by_hand = False
    roaming = 1.0

    def __init__(self, seed: int, watch: bool = False, trace: bool = False, calculates: bool = False) -> None:
        super().__init__(seed, watch, trace, calculates=calculates)
        self.mixed = False
        self.faults_known = FAULTS
        self.alive: set[PeerId] = set(self.brokers)
        """brokers whose processes run, or will again"""
        self._epochs: dict[tuple[int, int, int], PeerId] = {}
        self._since: dict[tuple[int, int], float] = {}
        """when a region was first seen without a living owner"""
        self.ownerless_s = 0.0
        """the longest time that one was"""
        self._outage = 0
        """times that the store is away for somebody"""

    # -- the world

    def _settings(self, budget: int) -> Settings:
        usual = super()._settings(budget)
        return Settings(
            **{f: getattr(usual, f) for f in usual.__slots__} | {"beat_s": BEAT_S, "by_prefix": True}
        )

    def _build(self) -> None:
        world, rng = self.world, self.rng
        for peer in self.brokers:
            self._add(peer)
        cells = sorted(rng.sample(range(9, 16), len(self.brokers) - 1))
        firsts = dict(zip((8, *cells), self.brokers, strict=True))
        regions: list[Region] = []
        for attribute in range(len(self.grid.attributes)):
            for cell in range(8, 16):
                owner = firsts[max(first for first in firsts if first <= cell)]
                regions.append(Region(attribute, cell, owner, 1))
        world.assign(regions)
        for peer in self.brokers:
            world.after(0.1, partial(self._belong, peer))
        world.after(0.5, self._tick)
        world.after(LOOK_S, self._watch_owners)
        self.served = self.suspended = 0

    def _add(self, peer: PeerId) -> None:
        budget = int((self.grid.points_per_period >> 3) * BUDGET)
        self.world.add_broker(peer, self._settings(budget), lambda: Ours(True))

    def _belong(self, peer: PeerId) -> None:
        """It is or becomes a member, at its place."""
        roster = self.world.roster
        assert roster is not None
        member = roster.by_id.get(peer)
        place = self.rng.randrange(1 << self._digits) if member is None else member.place
        self.world.join(peer, place)

    @property
    def _digits(self) -> int:
        return self._settings(1).depth

    # -- faults

    def _strike(self) -> None:
        rng, world = self.rng, self.world
        kind = rng.choice(self.faults_known)
        self.levels.append(checkers.levels(world))
        self.faults.append(kind)
        victim = rng.choice(sorted(self.alive))
        if kind == "join":
            self._come(rng.randrange(1 << self._digits))
        elif kind == "two at one place":
            place = rng.randrange(1 << self._digits)
            self._come(place)
            self._come(place)
        elif kind == "leave":
            self._go(victim)
        elif kind in ("kill", "silent kill"):
            self._kill(victim, heard=kind == "kill")
        elif kind == "flap":
            for _ in range(rng.randint(1, 4)):
                world.after(rng.uniform(0.0, 8.0), partial(self._flap, victim))
        elif kind == "pause":
            world.pause(victim)
            world.after(rng.uniform(0.5, 15.0), lambda: world.resume(victim))
        elif kind == "partition":
            world.partition({victim, *rng.sample(sorted(self.alive), 1)})
            if rng.random() < 0.3:
                self._lose_store({victim}, 10.0)
            world.after(rng.uniform(0.5, 12.0), world.heal)
        elif kind.startswith("no store"):
            everybody = set(self.alive)
            some = set(rng.sample(sorted(everybody), rng.randint(1, len(everybody))))
            self._lose_store(everybody if kind == "no store" else some, rng.uniform(2.0, 12.0))
        elif kind == "die in a hand-over":
            place = first_of(rng.randrange(8, 16), self._digits)
            came = self._come(place)
            if came is not None:
                dies = came if rng.random() < 0.5 else victim
                world.after(rng.uniform(0.05, 1.5), partial(self._kill, dies, True))
        elif kind in ("break", "half-open"):
            pairs = sorted(world.connections)
            if pairs:
                a, b = rng.choice(pairs)
                world.break_link(a, b, (a, b) if kind == "break" else ())
        elif kind == "client" and self.clients:
            client = rng.choice(sorted(self.clients))
            self.gone.add(client)
            world.crash(client, heard=rng.random() < 0.5)

    def _come(self, place: int) -> PeerId | None:
        if len(self.brokers) >= 14:
            return None
        peer = PeerId(len(self.brokers))
        self.brokers.append(peer)
        self.alive.add(peer)
        self._add(peer)
        self.world.join(peer, place)
        return peer

    def _go(self, peer: PeerId) -> None:
        if len(self.alive) > 2:
            self.alive.discard(peer)
            self.world.leave(peer)

    def _kill(self, peer: PeerId, heard: bool) -> None:
        if peer in self.alive and len(self.alive) > 2:
            self.alive.discard(peer)
            self.world.crash(peer, heard=heard)

    def _flap(self, peer: PeerId) -> None:
        if peer in self.alive:
            self.world.crash(peer, heard=self.rng.random() < 0.5)
            self.world.after(self.rng.uniform(0.1, 3.0), partial(self._restart, peer))

    def _restart(self, peer: PeerId) -> None:
        if peer in self.alive and self.world.nodes[peer].actor is None:
            self.world.restart(peer)
            self._belong(peer)

    def _lose_store(self, some: set[PeerId], seconds: float) -> None:
        self._outage += 1
        self.world.storeless |= some

        def back() -> None:
            self._outage -= 1
            if not self._outage:
                self.world.storeless.clear()

        self.world.after(seconds, back)

    def _heal(self) -> None:
        world = self.world
        world.heal()
        for peer in self.brokers:
            if world.nodes[peer].paused:
                world.resume(peer)
            self._restart(peer)

    # -- what must hold

    def _watch_owners(self) -> None:
        """One owner per region and epoch; no region without a living owner for long."""
        world, now = self.world, self.world.now
        for peer in world.left:
            if world.nodes[peer].actor is not None:
                world.crash(peer)  # its process ends
        for peer, broker in checkers.brokers_of(world).items():
            for attribute, supplies in broker.boards.outlets.supplies.items():
                for cell, supply in supplies.items():
                    if supply.owned:
                        first = self._epochs.setdefault((attribute, cell, supply.epoch), peer)
                        if first != peer:
                            self.problems.append(
                                f"region {cell:b}: epoch {supply.epoch} has owners {first} and {peer}"
                            )
        for key, region in world.regions.items():
            if world.nodes[region.owner].actor is not None and not self._outage:
                self._since.pop(key, None)
            elif not self._outage:
                gone = now - self._since.setdefault(key, now)
                self.ownerless_s = max(self.ownerless_s, gone)
                if gone > OWNERLESS_MAX_S:
                    self.problems.append(f"region {key[1]:b}: {gone:.1f} s without a living owner")
            else:
                self._since[key] = now
        if now < self.end_s:
            world.after(LOOK_S, self._watch_owners)

    def _look(self) -> None:
        super()._look()
        roster = self.world.roster
        assert roster is not None
        if set(roster.by_id) != self.alive:
            self.problems.append(f"members: found {sorted(roster.by_id)}, expected {sorted(self.alive)}")
        for key, owner in responsible(roster).items():
            if roster.by_cell[key].owner != owner:
                self.problems.append(
                    f"region {key[1]:b}: found owner {roster.by_cell[key].owner}, expected {owner}"
                )
        if any(member.accused or member.leaving for member in roster.members):
            self.problems.append(f"roster {roster.version}: found members accused or leaving, expected none")


def play(seed: int, watch: bool = False, trace: bool = False, calculates: bool = False) -> ScheduleOutcome:
    """Play one schedule."""
    return Churn(seed, watch, trace, calculates).play()
