"""What flows where: points per period on every connection, read off the forwarding tables.

At rest a broker sends each of its receivers exactly the rectangles that its table names, so bandwidth need not be
measured block by block: experiments over millions of points account for it with this.
"""

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.forwarding import Row, wanted_of
from sensorgrid.simulator.checkers import brokers_of
from sensorgrid.simulator.world import World


def flows(world: World) -> dict[tuple[PeerId, PeerId], int]:
    """Points per period (2^t-bits ticks) by (from, to), for all entries that are fed."""
    found: dict[tuple[PeerId, PeerId], int] = {}
    for peer, broker in brokers_of(world).items():
        for supplies in broker.boards.outlets.supplies.values():
            for supply in supplies.values():
                for row in supply.table.rows.values():
                    points = _points(world, row)
                    for entry in row.entries:
                        if entry.granted and (entry.until is None or entry.next < entry.until):
                            found[peer, entry.peer] = found.get((peer, entry.peer), 0) + points
    return found


def _points(world: World, row: Row) -> int:
    """Of one receiver of a row, in one period."""
    period = 1 << world.grid.resolution_bits[2]
    return sum(w.points * (period // w.stride) for w in wanted_of(world.grid, row.cell, row.clip))
