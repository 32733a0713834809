"""Clients that come and go around one hot spot, as in section 5 of the relays paper.

Each client poses a query every 30 to 300 s, and each lasts 60 to 250 s, as printed. The paper says that regions lie
around a single point with exponentially decreasing probability of larger distance, and that the size of a query is
limited by the client's link; it says neither how large they are nor at which resolutions. Ours are boxes of one to
four tiles along each axis on a lattice of 16 × 16, at full resolution, at half of it along both axes, or at that and
every other tick.

The lattice is the grid's: its spatial digits come first, so that a tile is a cell and what a resolution needs of it
is a cell in it. The `atoms` of a query are the smallest cells that any query can tell apart.
"""

from dataclasses import dataclass
from math import cos, pi, sin
from random import Random

from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query
from sensorgrid.overlay.geography import points_of
from sensorgrid.simulator.underlay import Access

TILES = 16
"""of the lattice, along each axis"""
INTERVAL_S, DURATION_S = (30.0, 300.0), (60.0, 250.0)
SPREAD = 1.25
"""mean distance of a query from the hot spot, in tiles"""
SIDE_MAX = 4
"""of a query, in tiles"""
WORLD_BPS = 512e6
"""bandwidth of the whole grid at full resolution; a query of 4 × 4 tiles is 32 Mbit/s"""
RESOLUTIONS = ((1.0, 1.0, 1.0), (0.5, 0.5, 1.0), (0.5, 0.5, 0.5))
_ATOMS = (("1", "01", "001", "000"), ("001", "000"), ("000",))
"""of a tile, by resolution: digits of res_x, res_y, res_t"""


@dataclass(frozen=True, slots=True)
class Visit:
    """One query of one client."""

    client: int
    """its place in the list of clients"""
    at_s: float
    until_s: float
    ask: Query
    cells: tuple[int, ...]
    """its atoms"""
    points: int
    """per period"""


def lattice() -> Grid:
    """The grid of the experiment: 16 × 16 tiles of 2 × 2 points, a tick each second."""
    side = 2 * TILES
    return Grid(
        extent=(0, 0, side, side),
        coordinates="planar",
        shape=(side, side),
        tick=1.0,
        resolution_bits=(1, 1, 1),
        region_digits=8,
    )


def bits_per_point(grid: Grid) -> float:
    """Of one point of one period, so that the grid has `WORLD_BPS`."""
    period_s = (1 << grid.resolution_bits[2]) * 1.0
    return WORLD_BPS * period_s / grid.points_per_period


def visits(grid: Grid, clients: tuple[Access, ...], until_s: float, seed: int) -> list[Visit]:
    """All queries of a run, in the order in which they are posed."""
    rng = Random(f"audience {seed}")
    hot = (rng.uniform(0.25, 0.75) * TILES, rng.uniform(0.25, 0.75) * TILES)
    found = []
    for number, access in enumerate(clients):
        own = Random(f"audience {seed} {number}")
        at = own.uniform(0.0, INTERVAL_S[1])
        while at < until_s:
            found.append(_visit(grid, number, access, at, hot, own))
            at += own.uniform(*INTERVAL_S)
    return sorted(found, key=lambda visit: (visit.at_s, visit.client))


def ramp(
    grid: Grid, clients: tuple[Access, ...], over_s: float, until_s: float, seed: int, count: int
) -> list[Visit]:
    """Queries that come one after another and stay (section 5, figure 5)."""
    rng = Random(f"ramp {seed}")
    hot = (rng.uniform(0.25, 0.75) * TILES, rng.uniform(0.25, 0.75) * TILES)
    order = list(range(len(clients)))
    rng.shuffle(order)
    found = []
    for number in range(count):
        client = order[number % len(order)]
        visit = _visit(grid, client, clients[client], over_s * number / count, hot, rng)
        found.append(Visit(visit.client, visit.at_s, until_s, visit.ask, visit.cells, visit.points))
    return found


def _visit(
    grid: Grid, client: int, access: Access, at: float, hot: tuple[float, float], rng: Random
) -> Visit:
    until = at + rng.uniform(*DURATION_S)
    kind = rng.randrange(len(RESOLUTIONS))
    wide, high = rng.randint(1, SIDE_MAX), rng.randint(1, SIDE_MAX)
    points_bps = bits_per_point(grid) / (1 << grid.resolution_bits[2])
    per_tile = sum(grid.points_per_period >> (8 + len(atom)) for atom in _ATOMS[kind])
    while wide * high * per_tile * points_bps > access.down_bps and wide * high > 1:
        wide, high = (wide - 1, high) if wide >= high else (wide, high - 1)  # the client's link is the limit
    while True:
        far, angle = rng.expovariate(1 / SPREAD), rng.uniform(0, 2 * pi)
        x, y = hot[0] + far * cos(angle) - wide / 2, hot[1] + far * sin(angle) - high / 2
        x0, y0 = round(x), round(y)
        if 0 <= x0 <= TILES - wide and 0 <= y0 <= TILES - high:
            break
    ask = Query(
        grid.attributes[0],
        bbox=(2 * x0, 2 * y0, 2 * (x0 + wide), 2 * (y0 + high)),
        resolution=RESOLUTIONS[kind],
    )
    tiles = [_tile(x, y) for y in range(y0, y0 + high) for x in range(x0, x0 + wide)]
    cells = tuple(int(f"1{tile}{atom}", 2) for tile in tiles for atom in _ATOMS[kind])
    points = sum(points_of(grid, cell) for cell in cells)
    return Visit(client, at, until, ask, cells, points)


def _tile(x: int, y: int) -> str:
    """The digits of a tile: x and y in turn, the larger halves first."""
    return "".join(f"{x >> bit & 1}{y >> bit & 1}" for bit in (3, 2, 1, 0))
