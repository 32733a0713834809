"""What of a query flows already in a network that runs: which live queries overlap it, and what they share.

Brokers tell an observer what they carry and for whom. The GBD-tree answers the two questions: which boxes
overlap this one, among thousands, and which parts of it a broker has.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import decompose_box, points_in, restrict, whole_cells
from sensorgrid.index.gbd_tree import PagedTree
from sensorgrid.links import wire
from sensorgrid.links.link import ANSWER_S
from sensorgrid.links.observer import Observer
from sensorgrid.model.box import Box
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query
from sensorgrid.overlay.roster import Roster

Limits = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LiveQuery:
    """A box that a client has from the network now."""

    client: int
    attribute: str
    brokers: tuple[int, ...]
    """that feed it"""
    box: Box
    points_per_tick: float
    """values that it gets, the mean over all ticks"""
    shared_per_tick: float
    """of them, those that the query wants too"""


@dataclass(frozen=True, slots=True)
class Live:
    """A query beside those that run."""

    broker: int
    """that was asked, and that the query would begin at"""
    roster: int
    """version that it holds"""
    points_per_tick: float
    """values that the query wants, the mean over all ticks"""
    here: float
    """share of them that this broker has already, for others or as an owner"""
    from_owners: Mapping[int, float]
    """share of them that it would have to take from each owner"""
    running: int
    """boxes of clients at all brokers that answered, of any attribute"""
    overlapping: tuple[LiveQuery, ...]
    """those of them that share points with the query, most first"""
    silent: Mapping[str, str] = field(default_factory=dict)
    """brokers that did not answer, by URL, and why"""
    left_off: int = 0
    """boxes that brokers did not tell, as they are too many"""


@dataclass(frozen=True, slots=True)
class Survey:
    """What the brokers of a network said of themselves."""

    grid: Grid
    roster: Roster
    asked: wire.Status
    """of the broker that was asked first"""
    told: tuple[wire.Receivers, ...]
    """of all that answered"""
    silent: Mapping[str, str] = field(default_factory=dict)
    """those that did not, by URL, and why"""


async def survey(url: str, *, tls: ssl.SSLContext | None = None, timeout_s: float = ANSWER_S) -> Survey:
    """Ask the broker at `url`, and all in its roster, what they carry and for whom.

    Raises
    ------
    LinkError, TimeoutError
        If that broker is not there, or says nothing in time; others that do not answer are named in the result.
    """
    first = Observer(url, tls=tls, timeout_s=timeout_s)
    try:
        status, receivers = await first.ask(), await first.receivers()
    finally:
        await first.closed()
    assert first.welcome is not None
    grid, roster = wire.grid_from(first.welcome.grid), wire.roster_of(first.welcome)
    others = [member.url for member in roster.members if member.id != status.id and member.url]
    answers = await asyncio.gather(*(_receivers(other, tls, timeout_s) for other in others))
    told = (receivers, *(one for one in answers if isinstance(one, wire.Receivers)))
    silent = {u: one for u, one in zip(others, answers, strict=True) if isinstance(one, str)}
    return Survey(grid, roster, status, told, silent)


async def _receivers(url: str, tls: ssl.SSLContext | None, timeout_s: float) -> wire.Receivers | str:
    observer = Observer(url, tls=tls, timeout_s=timeout_s)
    try:
        return await observer.receivers()
    except TimeoutError:
        return f"found no answer within {timeout_s:g} s, expected its receivers"
    except SensorGridError as error:
        return str(error)
    finally:
        await observer.closed()


def judge(query: Query, seen: Survey) -> Live:
    """A query beside what runs.

    Raises
    ------
    QueryError
        If it does not fit the network's grid.
    """
    grid, roster, status = seen.grid, seen.roster, seen.asked
    box, limits = query.box(grid), query.limits(grid)
    period = 1 << grid.resolution_bits[2]
    numbers = [grid.attributes.index(name) for name in query.attributes]
    wanted = points_in(box, limits, [1], grid)[0]
    missing: dict[int, int] = {}
    for number in numbers:
        for owner, points in _missing(number, box, limits, grid, roster, status).items():
            missing[owner] = missing.get(owner, 0) + points
    total = wanted * len(numbers)
    live = _merged(seen.told)
    shared = [
        LiveQuery(
            client, grid.attributes[attribute], tuple(sorted(brokers)), Box(*theirs), points / period, common / period
        )
        for (client, attribute, theirs, _), (brokers, points), common in _overlapping(live, numbers, box, limits, grid)
    ]  # fmt: skip
    return Live(
        status.id, roster.version, total / period,
        1.0 - sum(missing.values()) / total if total else 1.0,
        {owner: points / total for owner, points in sorted(missing.items())},
        len(live),
        tuple(sorted(shared, key=lambda one: (-one.shared_per_tick, one.client, one.attribute))),
        seen.silent, sum(one.left_off for one in seen.told),
    )  # fmt: skip


Key = tuple[int, int, tuple[int, int, int, int], Limits]
"""client, attribute, box, limits"""


def _merged(told: Iterable[wire.Receivers]) -> dict[Key, tuple[set[int], int]]:
    """Each box once, though several brokers may feed parts of it: who they are, and all its values per period."""
    found: dict[Key, tuple[set[int], int]] = {}
    for one in told:
        for r in one.receivers:
            brokers, points = found.get((r.client, r.attribute, r.box, r.limits), (set(), 0))
            found[r.client, r.attribute, r.box, r.limits] = brokers | {one.id}, points + r.points
    return found


def _overlapping(
    live: dict[Key, tuple[set[int], int]], numbers: list[int], box: Box, limits: Limits, grid: Grid
) -> Iterable[tuple[Key, tuple[set[int], int], int]]:
    """Those that share points with a query, and how many per period."""
    for number in numbers:
        rows = [key for key in live if key[1] == number]
        if not rows:
            continue
        tree = PagedTree(grid)
        tree.insert_boxes(
            np.array([key[2] for key in rows], np.int64),
            np.arange(len(rows), dtype=np.int64),
            np.array([key[3] for key in rows], np.int64),
        )
        for row in tree.overlaps(box, limits).tolist():
            _, _, theirs, depths = rows[row]
            least = (min(limits[0], depths[0]), min(limits[1], depths[1]), min(limits[2], depths[2]))
            common = sum(
                points_in(meet, least, [1], grid)[0]
                for mine in grid.plain_boxes(box)
                for other in grid.plain_boxes(Box(*theirs))
                for meet in [_meet(mine, other)]
                if meet is not None
            )
            if common:
                yield rows[row], live[rows[row]], common


def _meet(a: Box, b: Box) -> Box | None:
    x0, x1, y0, y1 = max(a.x0, b.x0), min(a.x1, b.x1), max(a.y0, b.y0), min(a.y1, b.y1)
    return Box(x0, x1, y0, y1) if x0 < x1 and y0 < y1 else None


def _missing(
    number: int, box: Box, limits: Limits, grid: Grid, roster: Roster, status: wire.Status
) -> dict[int, int]:
    """Values per period of one attribute that a broker would have to take, by owner of their region."""
    tree = PagedTree(grid)
    tree.insert(whole_cells([Cell(s.cell) for s in status.streams if s.attribute == number], grid), 0)
    query = decompose_box(box, limits, grid, 0)
    found: dict[int, int] = {}
    for region in roster.regions:
        if region.attribute != number or region.owner == status.id:
            continue
        part = restrict(query, [Cell(region.cell)])
        if len(part):
            _, lacking = tree.serve(part)
            points = sum(fragment.points for fragment in lacking)
            if points:
                found[region.owner] = found.get(region.owner, 0) + points
    return found
