"""Operators in a schedule: clients who watch results while faults strike, and what they must have in the end.

Each watcher must have every tick from its first on, in order, each better than the one before, and the last one must
be, bit for bit, what one process makes of all that the pipeline wrote.
"""

from collections.abc import Iterator
from random import Random
from typing import Protocol

from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.operators.numbers import Floats
from sensorgrid.operators.plan import OperatorPlan, compile
from sensorgrid.overlay.derived import blocks_of
from sensorgrid.overlay.events import Calculated
from sensorgrid.overlay.formulas import FormulaReader, ResultFormula, numbers_of
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator.world import World

WATCHED = QueryId(1)
FUNCTIONS = ("mean", "sum", "count", "min", "max", "std")
FROM_S, UNTIL_S = 1.0, 28.0


class CalculatingSchedule(Protocol):
    """The schedule, as far as it matters here."""

    seed: int
    world: World
    grid: Grid
    brokers: list[PeerId]
    ticks: int

    def _settings(self, budget: int) -> Settings: ...


class Calculations:
    """Watchers of one schedule."""

    def __init__(self, schedule: CalculatingSchedule) -> None:
        self.schedule = schedule
        self.rng = Random(f"operators {schedule.seed}")
        self.plans: dict[PeerId, tuple[OperatorPlan, int]] = {}
        """of each watcher, and the first tick that it wants"""
        self.got: dict[PeerId, list[Calculated]] = {}
        world = schedule.world
        world.formulas = FormulaReader(schedule.grid)
        world.on_calculated = lambda me, result: self.got[me].append(result)
        for _ in range(self.rng.randint(2, 5)):
            world.after(self.rng.uniform(FROM_S, UNTIL_S), self._come)

    def _come(self) -> None:
        rng, schedule = self.rng, self.schedule
        order = list(schedule.brokers)
        rng.shuffle(order)
        me = schedule.world.add_client(schedule._settings(1), tuple(order))
        plan = compile(self._expression(), schedule.grid)
        first = max(0, schedule.ticks - rng.choice((0, 0, 2)))
        self.plans[me], self.got[me] = (plan, first), []
        schedule.world.watch(me, WATCHED, ResultFormula(plan), first=first)

    def _expression(self) -> str:
        one = self._term()
        return self.rng.choice((one, one, f"{one} - {self._term(one)}", f"hold({one} > 3, 2)"))

    def _term(self, like: str = "") -> str:
        rng, grid = self.rng, self.schedule.grid
        name = next((n for n in grid.attributes if n in like), None) or rng.choice(grid.attributes)
        area = ""
        if rng.random() < 0.6:
            (west, south, east, north), spot = grid.extent, rng.uniform
            x0, y0 = spot(west, (west + east) / 2), spot(south, (south + north) / 2)
            area = f", BBOX({x0}, {y0}, {spot(x0 + 1, east)}, {spot(y0 + 1, north)})"
        window = rng.choice(("", "", f", '{2 * grid.tick:g}s'", f", '{3 * grid.tick:g}s'"))
        function = rng.choice(FUNCTIONS) if not like else like.partition("(")[0]
        return f"{function}({name}{area}{window})"

    def leave(self) -> None:
        """Nobody watches any more."""
        for me in self.plans:
            self.schedule.world.cancel(me, WATCHED)

    def problems(self) -> Iterator[str]:
        """What watchers do not have as they should."""
        for me, (plan, first) in self.plans.items():
            newest: dict[int, Calculated] = {}
            for result in self.got[me]:
                known = newest.get(result.tick)
                if known is not None and result.revision <= known.revision:
                    yield (
                        f"watcher {me}: tick {result.tick} in revision {result.revision} after {known.revision}"
                    )
                newest[result.tick] = result
            if list(newest) != list(range(first, self.schedule.ticks)):
                yield (
                    f"watcher {me}: found ticks {list(newest)}, expected {first} to {self.schedule.ticks - 1} in order"
                )
            for tick, found in newest.items():
                expected = self._truth(plan, tick)
                if (found.revision, found.numbers) != expected:
                    yield (
                        f"watcher {me}, {plan.name}, tick {tick}: found revision {found.revision}, expected"
                        f" {expected[0]}; the numbers {'differ' if found.numbers != expected[1] else 'are equal'}"
                    )

    def _truth(self, plan: OperatorPlan, tick: int) -> tuple[int, bytes]:
        """Revision and numbers of a tick, as one process makes them of the lake."""
        world, grid = self.schedule.world, self.schedule.grid
        assert world.roster is not None
        weight = 0
        history: dict[int, dict[str, Floats]] = {}
        for at in range(tick - plan.window + 1, tick + 1):
            history[at] = {}
            for term in plan.terms:
                parts = []
                for attribute, cell in world.regions:
                    revision, values = world.lake.get((attribute, cell), {}).get(at, (0, None))
                    weights = term.weights(box_of(grid, cell))
                    if (
                        grid.attributes[attribute] == term.attribute
                        and values is not None
                        and weights is not None
                    ):
                        weight += revision + 1
                        parts.append(term.partial(weights, values))
                if parts:
                    history[at][term.digest] = term.merge(parts)
        numbers = numbers_of(plan.result(tick, history)).tobytes() if weight else b""
        return weight - blocks_of(ResultFormula(plan), 1, world.roster), numbers
