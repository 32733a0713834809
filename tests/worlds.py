"""Small worlds for tests: a few brokers on the grid of `hands`, clients, and a pipeline that publishes on request."""

from collections.abc import Callable
from typing import Any

from hands import GRID, cell, settings, values
from sensorgrid.model.ids import PeerId, QueryId
from sensorgrid.model.query import Query
from sensorgrid.overlay.assembly import Plug
from sensorgrid.overlay.derived import Formula
from sensorgrid.overlay.events import Advised
from sensorgrid.overlay.policies.interface import Never, Policy
from sensorgrid.overlay.policies.relays import Relays
from sensorgrid.overlay.roster import Region
from sensorgrid.simulator.checkers import Deliveries, brokers_of, rules
from sensorgrid.simulator.world import World


class SmallWorld(World):
    """Brokers own regions by their digits; whatever clients get is checked against the lake."""

    def __init__(
        self,
        owners: dict[str, int],
        brokers: int | None = None,
        policy: Callable[[], Policy] = Never,
        delay_s: Callable[[PeerId, PeerId], float] = lambda a, b: 0.01,
        rate: float | None = None,
        seed: int = 1,
        budgets: dict[int, int] | None = None,
        attributes: int = 1,
        trace: bool = False,
        relays: Relays | None = None,
        others: tuple[Plug, ...] = (),
        formulas: Callable[[str], Formula] | None = None,
        **changes: Any,
    ) -> None:
        super().__init__(GRID, seed, delay_s, rate, trace)
        self.formulas = formulas
        self.chosen = changes
        self.deliveries = Deliveries(self)
        for number in range(max(owners.values()) + 1 if brokers is None else brokers):
            budget = (budgets or {}).get(number, changes.get("budget", 10_000))
            self.add_broker(
                PeerId(number), settings(**(changes | {"budget": budget})), policy, relays, others
            )
        self.owners = owners
        self.assign([Region(a, cell(d), PeerId(o), 1) for a in range(attributes) for d, o in owners.items()])
        self.ticks = 0
        self.pass_(0.5)

    def pass_(self, seconds: float) -> None:
        """Let time pass; the rules hold afterwards."""
        self.run(self.now + seconds)
        assert list(rules(self)) == []
        assert self.deliveries.wrong == []

    def pose(
        self, ask: Query, at: int = 0, start: int | None = None, until: int | None = None, roams: bool = True
    ) -> PeerId:
        """A new client poses a query at a broker."""
        others = tuple(p for p in brokers_of(self) if p != at)
        me = self.add_client(settings(**self.chosen), (PeerId(at), *others), roams)
        first = self.ticks if start is None else start
        self.deliveries.expect(me, QueryId(1), ask, first)
        self.submit(me, QueryId(1), ask, first, until)
        return me

    def tick(self, count: int = 1, pause_s: float = 0.5) -> None:
        """The pipeline publishes the next ticks of all regions."""
        for _ in range(count):
            for attribute, code in self.regions:
                self.publish(attribute, code, self.ticks, 0, values(code, self.ticks, 0, attribute))
            self.ticks += 1
            self.pass_(pause_s)

    def advise(self, broker: int, digits: str, target: int) -> None:
        """An operator moves receivers of a cell from one broker to another."""
        self.feed(PeerId(broker), Advised(0, cell(digits), PeerId(target)))

    def heard(self, client: PeerId) -> list[str]:
        """What a client heard of its query."""
        return [reply.status for reply in self.replies.get((client, QueryId(1)), [])]

    def got_all(self, client: PeerId, ask: Query) -> bool:
        """Whether a client has had all ticks so far."""
        return list(self.deliveries.missing(client, QueryId(1), ask, self.ticks)) == []

    def path(self, broker: int, digits: str) -> tuple[PeerId, ...] | None:
        """How a cell comes to a broker."""
        supply = brokers_of(self)[PeerId(broker)].boards.outlets.supply_for(0, cell(digits))
        return None if supply is None else supply.path
