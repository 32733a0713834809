"""Hot spots that move along real storm tracks: does it pay to act before requests have to wait?

The paper leaves moving hot spots to the future (section 6). Here clients gather around a storm; each watches for some
hours and leaves, new ones come where the storm is now. The reactive policy moves load when a request finds no room; the
anticipating one looks where requests come from and acts while there still is. Scored by how long a query waits to be
admitted, how many are refused, and what the moves cost.
"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from sensorgrid.experiments.multires import ExperimentError, connections, replication
from sensorgrid.model.grid import ORDER_4D, Grid
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.overlay.policies.anticipate import Anticipate
from sensorgrid.overlay.policies.interface import Policy
from sensorgrid.overlay.policies.ours import Ours
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator.checkers import brokers_of
from sensorgrid.simulator.workloads import Track, moving, storm_tracks
from sensorgrid.simulator.world import World

Row = dict[str, Any]

POLICIES = ("ours", "anticipate")
BROKERS, DIGITS, DEPTH = 64, 6, 10
STEP_S = 5.0
"""simulated seconds per hour of the storm"""
STAY_STEPS = 12
"""hours that a client watches"""
PER_STEP = 20
"""clients that come in an hour"""
HOURS_MAX = 120.0
"""longer storms are left out: they tell the same for longer"""
FOLD = 3.0
"""bandwidth of a broker, in regions: the storm's clients need several brokers' worth"""


@dataclass(frozen=True, slots=True)
class StormCase:
    """One storm, one policy."""

    track: int
    """the how many-th of the longest tracks"""
    policy: str
    seed: int
    path: str
    """the table of tracks"""

    def play(self) -> Row:
        """The case as a row."""
        tracks = [track for track in storm_tracks(Path(self.path)) if track.hours[-1] <= HOURS_MAX]
        tracks.sort(key=lambda t: (-t.hours[-1], t.name))
        return {k: v for k, v in asdict(self).items() if k != "path"} | _run(tracks[self.track], self)


def cases(tracks: int, seeds: range, path: Path) -> list[StormCase]:
    """The longest tracks, each with both policies."""
    there = sum(track.hours[-1] <= HOURS_MAX for track in storm_tracks(path))
    if tracks > there:
        raise ExperimentError(f"storms: found {tracks}, expected at most the {there} of the table")
    return [
        StormCase(t, policy, seed, str(path)) for seed in seeds for t in range(tracks) for policy in POLICIES
    ]


def policy_of(name: str) -> Policy:
    """The policy that a table calls so."""
    return Anticipate() if name == "anticipate" else Ours(True)


def grid_of() -> Grid:
    """The earth at a third of a degree."""
    return Grid(
        shape=(1024, 512),
        resolution_bits=(4, 4, 4),
        order=ORDER_4D,
        region_digits=DIGITS,
        attributes=("air_temperature",),
    )


def _run(track: Track, case: StormCase) -> Row:
    grid = grid_of()
    world = World(grid, case.seed)
    settings = Settings(
        budget=int(FOLD * grid.points_per_period) // BROKERS,
        depth=DEPTH,
        alive_s=None,
        idle_s=1e9,
        news_s=5.0,
    )
    world.add_brokers(BROKERS, settings, lambda: policy_of(case.policy))
    world.run(3.0)
    clients = [world.add_client(settings, (PeerId(number),)) for number in range(BROKERS)]
    rng = Random(f"{case.track} {case.seed}")
    posed: dict[tuple[PeerId, QueryId], float] = {}
    replicated, streams, samples = 0.0, 0.0, 0
    began, last = world.now, -1.0
    for number, (hour, ask) in enumerate(moving(track, grid, rng, per_step=PER_STEP)):
        due = began + STEP_S * hour + rng.uniform(0, STEP_S)
        client, query = rng.choice(clients), QueryId(number)
        posed[client, query] = due
        world.after(max(0.0, due - world.now), partial(world.submit, client, query, ask))
        world.after(max(0.0, due - world.now) + STAY_STEPS * STEP_S, partial(world.cancel, client, query))
        if hour > last:
            world.run(began + STEP_S * hour)
            replicated += replication(world) / grid.points_per_period
            streams += connections(world) / BROKERS
            samples, last = samples + 1, hour
    world.run(world.now + STEP_S * 2)
    waits, refused = [], 0
    for key, due in posed.items():
        heard = world.replies.get(key, [])
        if any(reply.status == "admitted" for reply in heard):
            waits.append(world.admitted[key] - due)
        else:
            refused += 1
    waits.sort()
    return {
        "storm": track.name,
        "hours": track.hours[-1],
        "queries": len(posed),
        "refused": refused,
        "refused_share": refused / len(posed),
        "wait_mean_s": mean(waits) if waits else None,
        "wait_p95_s": waits[int(0.95 * len(waits))] if waits else None,
        "wait_p99_s": waits[int(0.99 * len(waits))] if waits else None,
        "replication": replicated / samples,
        "connections_per_broker": streams / samples,
        "delegations": sum(b.kernel.counters.delegations for b in brokers_of(world).values()),
    }
