"""The verdict on a demo: pure functions of what was delivered, what was counted, and what a batch makes of it.

All bytes here are bytes of values, without heads and frames, on both sides of every comparison.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sensorgrid.demo.tally import Mask, Tally
from sensorgrid.index.cell import Cell
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.model.names import ERROR
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.roster import Region
from sensorgrid.pipeline.lake.folder import Lake

TICKS_MIN = 3
"""fewer complete ticks than this prove nothing"""
DELAY_MAX_S = 3.0
"""of the median, from the last measurement of a tick to the client"""

Field = npt.NDArray[np.float32]
Fields = dict[tuple[int, str], Field]
"""[row, column] by tick and attribute, errors included"""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold."""

    name: str
    holds: bool
    found: str
    """for people"""
    counts: bool = True
    """whether the exit code depends on it; how fast a machine is does not decide what is right"""


@dataclass(frozen=True, slots=True)
class Outage:
    """A broker that was killed."""

    broker: PeerId
    at_s: float
    """seconds since 1970"""
    hit: tuple[int, ...]
    """clients, by their place in the audience, whose streams came through it"""
    back_s: float | None = None
    """when it answered again"""


@dataclass(frozen=True, slots=True)
class JoinedBroker:
    """A broker that came while the demo ran."""

    broker: PeerId
    at_s: float
    """when its process was started, in seconds since 1970"""
    serves_s: float | None = None
    """when it owned regions"""
    regions: int = 0


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """What became of the operator that the brokers calculated."""

    name: str
    ticks: int
    """that were asked for"""
    missing: int
    doubled: int
    wrong: int
    """results that are not what one process makes of the batch"""
    bytes: int
    """per tick, between brokers"""
    raw_bytes: int
    """the same, if the values themselves were sent"""

    @property
    def saving(self) -> float:
        """How many times fewer bytes."""
        return self.raw_bytes / self.bytes if self.bytes else 0.0


@dataclass(frozen=True, slots=True)
class Result:
    """What `--json` writes, and a little more."""

    ticks: int
    clients: int
    points_delivered: int
    missing: int
    duplicated: int
    wrong: int
    bytes_between_brokers: int
    bytes_without_sharing: int
    saving: float | None
    delay_p50_s: float | None
    delay_p99_s: float | None
    killed: int | None
    recovered_s: float | None
    joined: int | None
    serves_s: float | None
    operator_ticks: int | None
    operator_wrong: int | None
    operator_saving: float | None
    """how many times fewer bytes go between brokers than if they sent the values"""
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether all checks hold."""
        return all(check.holds for check in self.checks if check.counts)

    def to_dict(self) -> dict[str, object]:
        """The object of `--json`."""
        names = [name for name in self.__dataclass_fields__ if name != "checks"]
        return {name: _rounded(getattr(self, name)) for name in names}


def _rounded(value: object) -> object:
    return round(value, 4) if isinstance(value, float) else value


# -- exactly once


def missing_points(tally: Tally, first: int, last: int) -> int:
    """Points of the ticks [first, last] that never came."""
    wanted = [tick for tick in range(first, last + 1) if tally.wants(tick)]
    return sum(tally.points - tally.filled.get(tick, 0) for tick in wanted)


def complete_ticks(tallies: Sequence[Tally], first: int, last: int) -> int:
    """How many of the ticks [first, last] every client has that wants them."""
    return sum(
        all(tick in t.complete_s for t in tallies if t.wants(tick)) and any(t.wants(tick) for t in tallies)
        for tick in range(first, last + 1)
    )


# -- bit for bit


def wrong_points(tally: Tally, truth: Fields, first: int, last: int) -> int:
    """Points of the ticks [first, last] whose last value is not, bit for bit, the one of the batch."""
    wrong = tally.uninvited
    for (tick, attribute), received in tally.received.items():
        if not first <= tick <= last:
            continue
        come = received.revision >= 0
        expected = truth.get((tick, tally.grid.attributes[attribute]))
        if expected is None:
            wrong += int(come.sum())
            continue
        differs = received.values.view(np.uint32) != np.ascontiguousarray(expected).view(np.uint32)
        wrong += int((come & differs).sum())
    return wrong


def fields_of(lake: Lake, grid: Grid, first: int, last: int) -> Fields:
    """What a lake holds of the ticks [first, last], put together: values and errors, newest revisions."""
    fields: Fields = {}
    columns = ["tick", "attribute", "region", "revision", "x0", "y0", "width", "height", "values", "error"]
    for row in lake.tiles(ticks=(first, last), columns=columns).to_pylist():
        where = np.s_[row["y0"] : row["y0"] + row["height"], row["x0"] : row["x0"] + row["width"]]
        for column, name in (("values", row["attribute"]), ("error", row["attribute"] + ERROR)):
            field = fields.setdefault((row["tick"], name), np.full(grid.shape[::-1], np.nan, np.float32))
            field[where] = np.reshape(row[column], (row["height"], row["width"]))
    return fields


# -- traffic


def owners_of(grid: Grid, regions: Iterable[Region]) -> npt.NDArray[np.int32]:
    """Who owns each point, [row, column]; the same for all attributes."""
    owners = np.full(grid.shape[::-1], -1, np.int32)
    for region in regions:
        if region.attribute == 0:
            box = box_of(grid, region.cell)
            owners[box.y0 : box.y1, box.x0 : box.x1] = region.owner
    return owners


def bytes_alone(tally: Tally) -> int:
    """What would have crossed links if this stream came by itself from each gateway to its target broker.

    Nothing for the target's own regions; every revision that was delivered counts, as it does between brokers.
    """
    return tally.delivered_away * tally.grid.value_bytes


# -- delays


def delays_of(
    tallies: Iterable[Tally], measured_s: Mapping[int, float], first: int, last: int
) -> list[float]:
    """Seconds from the last measurement of a tick to its complete delivery, for each tick and client."""
    return [
        at_s - measured_s[tick]
        for tally in tallies
        for tick, at_s in tally.complete_s.items()
        if first <= tick <= last and tick in measured_s
    ]


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that is not exceeded by a share of them."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, int(np.ceil(share * len(ordered))) - 1)]


def recovered_s(tallies: Sequence[Tally], outage: Outage, last: int) -> float | None:
    """From the kill until every client that was hit has the tick that ran at that moment; None: never.

    Clients that do not want that tick have nothing to wait for; that they miss nothing later is another check.
    """
    longest = 0.0
    for tally in (tallies[place] for place in outage.hit):
        tick = int(outage.at_s // tally.grid.tick)
        if tick <= last and tally.wants(tick):
            at_s = tally.complete_s.get(tick)
            if at_s is None:
                return None
            longest = max(longest, at_s - outage.at_s)
    return longest


def points_of_cell(grid: Grid, cell: int) -> Mask:
    """The points that a cell holds at some tick, [row, column]."""
    found = np.zeros(grid.shape[::-1], np.bool_)
    part = Cell(cell).slices(grid)
    found[part.y, part.x] = True
    return found


# -- the verdict


def _told_of(joined: JoinedBroker | None) -> str:
    if joined is None:
        return "no broker joined"
    if joined.serves_s is None:
        return f"broker {joined.broker} owns no region"
    after_s = joined.serves_s - joined.at_s
    return f"broker {joined.broker} owned {joined.regions} regions {after_s:.1f} s after its start"


def _judged(operator: OperatorFacts | None) -> tuple[bool, str]:
    if operator is None:
        return True, "no operator was watched"
    return not (operator.missing or operator.doubled or operator.wrong), (
        f"{operator.name}: {operator.ticks} results, {operator.missing} missing, {operator.doubled} doubled,"
        f" {operator.wrong} other than in one process; {operator.bytes:,} bytes a tick between brokers instead of"
        f" {operator.raw_bytes:,}"
    )


def judge(
    tallies: Sequence[Tally],
    truth: Fields,
    measured_s: Mapping[int, float],
    between: int,
    outage: Outage | None,
    first: int,
    last: int,
    asked: int,
    joined: JoinedBroker | None = None,
    operator: OperatorFacts | None = None,
) -> Result:
    """All checks on the ticks [first, last]; `asked` clients were sent out."""
    ticks = complete_ticks(tallies, first, last)
    missing = sum(missing_points(t, first, last) for t in tallies)
    doubled = sum(t.doubled for t in tallies)
    wrong = sum(wrong_points(t, truth, first, last) for t in tallies)
    alone = sum(bytes_alone(t) for t in tallies)
    delays = delays_of(tallies, measured_s, first, last)
    p50, p99 = percentile(delays, 0.5), percentile(delays, 0.99)
    recovered = None if outage is None else recovered_s(tallies, outage, last)
    clients = sum(1 for t in tallies if t.complete_s)
    points = sum(t.delivered for t in tallies)
    checks = (
        Check(
            "enough to judge",
            ticks >= TICKS_MIN and clients == asked,
            f"{ticks} ticks at {clients} of {asked} clients"
            + ("" if ticks >= TICKS_MIN else f"; expected {TICKS_MIN} ticks or more: try a larger --seconds"),
        ),
        Check(
            "exactly once",
            missing == 0 and doubled == 0,
            f"{points:,} points delivered, {missing:,} missing, {doubled:,} doubled",
        ),
        Check(
            "bit for bit",
            wrong == 0 and bool(truth) and points > 0,
            f"{wrong:,} values differ from an independent batch gridding of the same raw records",
        ),
        Check(
            "shared",
            between < alone,
            f"{between:,} bytes of values between brokers against {alone:,} without sharing",
        ),
        Check(
            "one broker killed, nothing lost",
            outage is not None and bool(outage.hit) and recovered is not None and missing == 0,
            "no broker was killed"
            if outage is None
            else f"broker {outage.broker} killed; {len(outage.hit)} clients were hit, "
            + (
                "not all came back"
                if recovered is None
                else f"all had the tick that ran then after {recovered:.1f} s"
            ),
        ),
        Check("one broker joined", joined is None or joined.serves_s is not None, _told_of(joined)),
        Check("calculated on the way", *_judged(operator)),
        Check(
            f"median delay below {DELAY_MAX_S:g} s",
            p50 is not None and p50 < DELAY_MAX_S,
            "no tick arrived" if p50 is None else f"{p50:.2f} s at the median, {p99:.2f} s for 99 of 100",
            counts=False,
        ),
    )
    return Result(
        ticks=ticks, clients=clients, points_delivered=points, missing=missing, duplicated=doubled, wrong=wrong,
        bytes_between_brokers=between, bytes_without_sharing=alone,
        saving=1 - between / alone if alone else None, delay_p50_s=p50, delay_p99_s=p99,
        killed=None if outage is None else int(outage.broker), recovered_s=recovered,
        joined=None if joined is None else int(joined.broker),
        serves_s=None if joined is None or joined.serves_s is None else joined.serves_s - joined.at_s,
        operator_ticks=None if operator is None else operator.ticks - operator.missing,
        operator_wrong=None if operator is None else operator.wrong,
        operator_saving=None if operator is None else operator.saving, checks=checks,
    )  # fmt: skip
