"""What `forecast` says an operator will send is what it then sends."""

import pytest

from sensorgrid.model.grid import ORDER_5D, Grid
from sensorgrid.model.ids import PeerId, QueryId, is_broker
from sensorgrid.model.names import ERROR
from sensorgrid.operators.plan import compile
from sensorgrid.overlay.codec import encode
from sensorgrid.overlay.derived import Derived
from sensorgrid.overlay.forecast import forecast
from sensorgrid.overlay.formulas import FormulaReader, ResultFormula
from sensorgrid.overlay.forwarding import wanted_of
from sensorgrid.overlay.messages import Message
from sensorgrid.overlay.policies.interface import Never
from sensorgrid.overlay.roster import Region
from sensorgrid.overlay.settings import Settings
from sensorgrid.simulator.checkers import truth_of
from sensorgrid.simulator.world import World

T = "air_temperature"
GRID = Grid(
    shape=(512, 256), resolution_bits=2, order=ORDER_5D, region_digits=6, tick=1, attributes=(T, T + ERROR)
)
SETTINGS = Settings(budget=1 << 40, beat_s=1.0)
TICKS = 4


@pytest.mark.parametrize(
    "expression",
    [
        f"mean({T}, BBOX(-180, -90, 0, 0))",
        f"mean({T}) - min({T}, BBOX(3, 4, 95, 66))",
        f"percentile({T}, 0.9, BBOX(-60, -30, 60, 30))",
        f"max({T}, '3s')",
    ],
)
def test_bytes_between_brokers_are_as_predicted(expression: str) -> None:
    world = World(GRID, seed=1)
    world.formulas = FormulaReader(GRID)
    for number in range(16):
        world.add_broker(PeerId(number), SETTINGS, Never)
    world.assign([Region(a, cell, PeerId((cell - 64) // 4), 1) for a in (0, 1) for cell in range(64, 128)])
    world.run(2.0)
    formula = ResultFormula(compile(expression, GRID))
    client = world.add_client(SETTINGS, (PeerId(5),))
    world.watch(client, QueryId(1), formula, first=0)
    world.run(4.0)
    sent: dict[int, int] = {}

    def count(me: PeerId, peer: PeerId, message: Message) -> None:
        if isinstance(message, Derived) and is_broker(peer):
            sent[message.tick] = sent.get(message.tick, 0) + len(encode(message))

    world.on_send = count
    for tick in range(TICKS):
        for attribute, cell in world.regions:
            box = wanted_of(GRID, cell, None)[0]
            values = truth_of(attribute, tick, 0, GRID)[slice(*box.y), slice(*box.x)]
            world.publish(attribute, cell, tick, 0, values)
        world.run(world.now + 3.0)

    assert world.roster is not None
    predicted = forecast(formula, world.roster, PeerId(5), TICKS - 1)
    measured = sent[TICKS - 1]
    assert measured == pytest.approx(predicted.bytes, rel=0.05)
    assert {s.kind for s in predicted.streams} == {"result", "joint", "edge"}
    if expression.startswith("mean") and "-" not in expression.partition(")")[2]:
        assert predicted.raw_bytes / measured >= 50
