"""The demo's operator: the mean over the earth, as the brokers calculate it and as one process does."""

from collections.abc import Callable
from itertools import pairwise
from random import Random

import numpy as np

from sensorgrid.configuration.network import Network
from sensorgrid.demo.checks import Fields
from sensorgrid.links import wire
from sensorgrid.links.driver import Driver
from sensorgrid.model.ids import BROKERS_MAX, PeerId, QueryId
from sensorgrid.model.names import ERROR
from sensorgrid.operators.numbers import Number
from sensorgrid.operators.plan import Operator, OperatorPlan, compile
from sensorgrid.overlay.derived import StreamName
from sensorgrid.overlay.events import Calculated, Effect, Watched
from sensorgrid.overlay.forecast import Forecast, forecast
from sensorgrid.overlay.formulas import ResultFormula, number_of
from sensorgrid.overlay.roster import Roster
from sensorgrid.overlay.session import Session

NAME = "mean over the earth"
_QUERY = QueryId(1)


class DemoWatcher:
    """A client that watches one operator."""

    def __init__(self, network: Network, attribute: str, on_result: Callable[[int, Number], None]) -> None:
        self.plan: OperatorPlan = compile(Operator(f"mean({attribute})", name=NAME), network.grid)
        self.results: dict[int, list[Calculated]] = {}
        """by tick, in the order in which they came"""
        self._on_result = on_result
        self._formula = ResultFormula(self.plan)
        hello = wire.Hello(wire.VERSIONS, wire.CLIENT, grid=network.roster.terms.grid)
        settings = network.roster.terms.settings()
        session = Session(
            PeerId(BROKERS_MAX), network.grid, settings, tuple(network.addresses), Random("watcher")
        )
        self.driver = Driver(
            session,
            hello=lambda: hello,
            address_of=lambda peer: (session.roster or network.roster).url_of(peer),
            on_effect=self._effect,
        )

    def watch(self, first: int) -> None:
        """Begin, from a tick on."""
        self.driver.feed(Watched(_QUERY, StreamName(self._formula.digest, 1), self._formula.text, first))

    def forecast(self, roster: Roster) -> Forecast:
        """Where it is calculated, and what it sends."""
        return forecast(self._formula, roster)

    async def stop(self) -> None:
        """Hang up."""
        await self.driver.stop()

    def _effect(self, effect: Effect) -> None:
        if isinstance(effect, Calculated):
            self.results.setdefault(effect.tick, []).append(effect)
            result = number_of(effect.numbers)
            if result is not None and not result.reason:
                self._on_result(effect.tick, result)

    def missing(self, first: int, last: int) -> int:
        """Ticks of which no complete result came."""
        return sum(
            not any(r.revision >= 0 for r in self.results.get(tick, ())) for tick in range(first, last + 1)
        )

    def doubled(self) -> int:
        """Results that came again without being better."""
        return sum(
            later.revision <= earlier.revision
            for several in self.results.values()
            for earlier, later in pairwise(several)
        )

    def wrong(self, truth: Fields, first: int, last: int) -> int:
        """Results whose value or error is not, bit for bit, what one process makes of the batch's grids."""
        return sum(
            not self._is_true(truth, tick) for tick in range(first, last + 1) if self.results.get(tick)
        )

    def _is_true(self, truth: Fields, tick: int) -> bool:
        (term,) = self.plan.terms
        values, stated = truth.get((tick, term.attribute)), truth.get((tick, term.attribute + ERROR))
        if values is None or stated is None:
            return False
        expected = self.plan.result(tick, {tick: {term.digest: term.partial(term.whole, values, stated)}})
        found = number_of(self.results[tick][-1].numbers)
        return found is not None and np.array_equal(found[:3], expected[:3], equal_nan=True)
