"""Replicas ahead of a hot spot that moves (the multires paper's future work, section 6).

A storm wanders, and the interest of its watchers wanders with it. The policy watches where load arrives at its broker:
every so often the middle of what came since the last time, per attribute. Through these middles it lays a straight
line. If the line moves, and the broker is filling up, cells near where the hot spot will be are given to brokers with
room while they are still cheap to move; requests for them then go there from the start (`forwards`), and no request
waits while thousands of receivers are moved. Otherwise it is our reactive policy.
"""

from collections import deque
from dataclasses import dataclass
from math import hypot

from sensorgrid.model.grid import Grid
from sensorgrid.overlay.geography import box_of, middle_of
from sensorgrid.overlay.policies.interface import Proposal, View
from sensorgrid.overlay.policies.ours import Ours

WATCHES_FROM = 0.5
"""share of its budget above which a broker watches where load arrives"""
ACTS_FROM = 0.8
"""share of its budget above which it acts on it"""
ROOMY = 0.5
"""share of a budget that a broker must have free to be given cells before there is need: when bandwidth is scarce,
copies that may never pay are the last thing to spend it on"""
MIDDLES = 12
"""so many middles make a line"""
MIDDLES_MIN = 4
"""fewer say nothing"""


@dataclass(frozen=True, slots=True)
class Middle:
    """Where load arrived, on average."""

    at: float
    """seconds"""
    x: float
    """points; runs on past the date line"""
    y: float


class Anticipate(Ours):
    """Our policy, with an eye on where load comes from."""

    foresees: float | None = WATCHES_FROM

    def __init__(self, gossips: bool = True) -> None:
        super().__init__(gossips)
        self.name = "anticipate"
        self._seen: dict[int, dict[int, int]] = {}
        """by attribute and cell: points at the last look"""
        self._middles: dict[int, deque[Middle]] = {}
        """by attribute, the latest last"""

    def foresee(self, view: View) -> Proposal | None:
        """Watch; give away a cell ahead of the hot spot; else level with others, as the reactive policy does."""
        self._watch(view)
        if view.room < (1 - ACTS_FROM) * view.budget:
            for attribute in view.parts:
                ahead = self._ahead(view, attribute)
                if ahead is not None:
                    return ahead
        return super().foresee(view)

    def expected(self, grid: Grid, attribute: int) -> tuple[float, float, float] | None:
        """Where the hot spot will be after as long again as it was watched, and how far that is; None: unknown."""
        middles = list(self._middles.get(attribute, ()))
        if len(middles) < MIDDLES_MIN:
            return None
        times = [m.at for m in middles]
        span = times[-1] - times[0]
        if span <= 0:
            return None
        dx = _slope(times, [m.x for m in middles]) * span
        dy = _slope(times, [m.y for m in middles]) * span
        x = middles[-1].x + dx
        return (x % grid.shape[0] if grid.wraps else x), middles[-1].y + dy, hypot(dx, dy)

    def _watch(self, view: View) -> None:
        """Note the middle of what has come since the last look."""
        for attribute, parts in view.parts.items():
            before = self._seen.get(attribute)
            now = {cell: load.points for cell, load in parts.items()}
            self._seen[attribute] = now
            if before is None:
                continue
            came = {cell: points - before.get(cell, 0) for cell, points in now.items()}
            self._note(view, attribute, {cell: points for cell, points in came.items() if points > 0})

    def _note(self, view: View, attribute: int, came: dict[int, int]) -> None:
        total = sum(came.values())
        if not total:
            return
        middles = self._middles.setdefault(attribute, deque(maxlen=MIDDLES))
        around = view.grid.shape[0] if view.grid.wraps else 0
        x = y = 0.0
        places = [(*middle_of(box_of(view.grid, cell)), points) for cell, points in came.items()]
        near = middles[-1].x if middles else places[0][0]
        for px, py, points in places:
            if around:  # the short way round
                px = near + (px - near + around / 2) % around - around / 2
            x += px * points / total
            y += py * points / total
        middles.append(Middle(view.now, x, y))

    def _ahead(self, view: View, attribute: int) -> Proposal | None:
        """The cell nearest to where the hot spot will be, to the broker with most room."""
        expected = self.expected(view.grid, attribute)
        if expected is None:
            return None
        x, y, way = expected
        last = self._middles[attribute][-1]
        best: tuple[tuple[float, int], int] | None = None
        for cell, load in view.parts[attribute].items():
            box = box_of(view.grid, cell)
            if way < min(box.x1 - box.x0, box.y1 - box.y0) / 2:
                return None  # it stands: what is dense now will be dense
            if load.receivers < 2 or view.has(attribute, cell):
                continue
            cx, cy = middle_of(box)
            if hypot(cx - x, cy - y) > min(way, hypot(cx - last.x, cy - last.y)):
                continue  # nearer to where it is now, or not on its way
            score = (hypot(cx - x, cy - y), -load.points)
            if best is None or score < best[0]:
                best = score, cell
        if best is None:
            return None
        cell = best[1]
        room = {
            peer: free
            for peer, free in self._targets(view, attribute)
            if free > max(view.room, ROOMY * view.budget) + view.parts[attribute][cell].points
            and (attribute, cell, peer) not in view.declined
        }
        target = max(room, key=lambda peer: (room[peer], -peer), default=None)
        return None if target is None else Proposal(attribute, cell, target, cuts=True, ahead=True)


def _slope(times: list[float], values: list[float]) -> float:
    """Of the straight line through the points, by least squares."""
    middle_t, middle_v = sum(times) / len(times), sum(values) / len(values)
    spread = sum((t - middle_t) ** 2 for t in times)
    return sum((t - middle_t) * (v - middle_v) for t, v in zip(times, values, strict=True)) / spread
