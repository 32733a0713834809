"""The sensors behind the grids: where they stand, what they report, who is silent, who is often wrong.

Each broker holds the sensors of its own regions (`sensorgrid.runtime.registry`). So a question for a box goes to all
owners of regions that the box touches, and the answers are put together here. If the roster changes meanwhile, the
question is asked again.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any, overload

from sensorgrid.client.errors import ClientError, NotConnected
from sensorgrid.client.times import moment_of
from sensorgrid.links import wire
from sensorgrid.links.observer import Observer
from sensorgrid.model.area import check_bbox, points_around
from sensorgrid.model.box import Box
from sensorgrid.model.errors import QueryError, SensorGridError
from sensorgrid.model.grid import Bbox, Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import length_of_time
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.roster import Roster

if TYPE_CHECKING:
    import pandas as pd

LIMIT = 10_000
"""sensors that are brought unless more are asked for"""
TIMEOUT_S = 60.0
"""for each broker: the first question after its start has it read the lake"""
PAGE = 5_000
"""sensors asked for at once"""
ROUNDS = 4
PAUSE_S = 0.5
"""between rounds, while brokers hold different rosters"""
ATTRIBUTE = 0
"""of the grid: the owner of its region has the sensors there"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SensorsError(ClientError, RuntimeError):
    """Nobody could tell of any sensor."""


@dataclass(frozen=True, slots=True)
class SensorSeries:
    """What a sensor reports of one attribute."""

    attribute: str
    reports: int
    """in the last three days that the lake knows"""
    flagged: int
    """of these, found bad"""
    last: datetime | None
    """of the last report; None: not known"""

    @property
    def share(self) -> float:
        """Of the reports, how many were found bad: 0 to 1."""
        return min(1.0, max(0, self.flagged) / max(1, self.reports))


@dataclass(frozen=True, slots=True)
class Sensor:
    """One sensor."""

    id: str
    """its name"""
    number: int
    """64 bits of a hash of the name, as in the lake"""
    longitude: float
    """or x"""
    latitude: float
    """or y"""
    elevation: float | None
    """metres above the sea; None: not known"""
    series: tuple[SensorSeries, ...]
    """one for each attribute that it measures"""
    silent: bool
    """as far as was asked"""
    flagged: bool
    """likewise"""
    broker: int
    """that holds it"""

    @property
    def attributes(self) -> tuple[str, ...]:
        """What it measures."""
        return tuple(one.attribute for one in self.series)

    @property
    def last(self) -> datetime | None:
        """Its last report."""
        return max((one.last for one in self.series if one.last is not None), default=None)

    @property
    def reports(self) -> int:
        """Of all attributes."""
        return sum(one.reports for one in self.series)

    @property
    def share(self) -> float:
        """Of its worst attribute, the share of reports that were found bad."""
        return max((one.share for one in self.series), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.id,
            "number": f"{self.number:016x}",
            "longitude": self.longitude,
            "latitude": self.latitude,
            "elevation": self.elevation,
            "last": _text(self.last),
            "reports": self.reports,
            "flagged_share": round(self.share, 6),
            "silent": self.silent,
            "flagged": self.flagged,
            "broker": self.broker,
            "attributes": {
                one.attribute: {"reports": one.reports, "flagged": one.flagged, "last": _text(one.last)}
                for one in self.series
            },
        }


@dataclass(frozen=True, slots=True)
class SensorList(Sequence[Sensor]):
    """Sensors that were found, by ascending number, and what is known of the search."""

    sensors: tuple[Sensor, ...]
    matched: int
    """how many fit"""
    held: int
    """how many all brokers that were asked know"""
    newest: datetime | None
    """when any of these was last heard"""
    attributes: tuple[str, ...]
    """that they measure"""
    roster: int
    """version by which brokers were asked"""
    missing: Mapping[str, str] = field(default_factory=dict)
    """brokers that did not answer, by URL, and why: their sensors are not here"""

    @property
    def left_off(self) -> int:
        """How many more fit than were brought."""
        return self.matched - len(self.sensors)

    @overload
    def __getitem__(self, index: int) -> Sensor: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Sensor, ...]: ...

    def __getitem__(self, index: int | slice) -> Sensor | tuple[Sensor, ...]:
        return self.sensors[index]

    def __len__(self) -> int:
        return len(self.sensors)

    def __iter__(self) -> Iterator[Sensor]:
        return iter(self.sensors)

    def to_geojson(self) -> dict[str, Any]:
        """A FeatureCollection of points, for maps."""
        features = []
        for sensor in self.sensors:
            facts = sensor.to_dict()
            place = [facts.pop("longitude"), facts.pop("latitude")]
            if sensor.elevation is not None:
                place.append(sensor.elevation)
            geometry = {"type": "Point", "coordinates": place}
            features.append(
                {"type": "Feature", "id": facts["number"], "geometry": geometry, "properties": facts}
            )
        return {"type": "FeatureCollection", "features": features}

    def to_pandas(self) -> "pd.DataFrame":
        """A table with a row for each sensor and attribute."""
        import pandas as pd

        rows = [
            {
                "id": s.id, "longitude": s.longitude, "latitude": s.latitude, "elevation": s.elevation,
                "attribute": one.attribute, "last": one.last, "reports": one.reports, "flagged": one.flagged,
                "share": one.share, "is_silent": s.silent, "is_flagged": s.flagged, "broker": s.broker,
            }
            for s in self.sensors
            for one in s.series
        ]  # fmt: skip
        return pd.DataFrame(rows)


def question(
    bbox: Bbox | None = None,
    *,
    attribute: str | None = None,
    silent: timedelta | float | str | None = None,
    flagged: float | None = None,
    at: Any = None,
) -> wire.AskSensors:
    """What people ask for, checked."""
    box = None if bbox is None else _box(bbox)
    if flagged is not None and not 0 <= flagged <= 1:
        raise QueryError(f"flagged: found {flagged}, expected a share from 0 to 1")
    quiet = None if silent is None else length_of_time(silent, "silent").total_seconds()
    moment = None if at is None else (moment_of(at, "at") - _EPOCH) // timedelta(microseconds=1)
    return wire.AskSensors(box, attribute, quiet, flagged, moment)


def _box(bbox: Any) -> Bbox:
    """Four numbers that may be a box on some grid; `check_bbox` says whether they are one on this grid."""
    expected = "expected four finite numbers west, south, east, north"
    try:
        west, south, east, north = map(float, bbox)
    except (TypeError, ValueError, OverflowError):
        raise QueryError(f"bbox: found {bbox!r}, {expected}") from None
    box = west, south, east, north
    if not all(map(isfinite, box)):
        raise QueryError(f"bbox: found {box}, {expected}")
    if south > north:
        raise QueryError(f"bbox: found south {south:g} > north {north:g}, expected south <= north")
    return box


async def find_sensors(
    urls: Sequence[str],
    asked: wire.AskSensors,
    *,
    limit: int = LIMIT,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
) -> SensorList:
    """Ask the first broker that answers who else is there, and then all whose regions matter.

    Raises
    ------
    NotConnected
        If nobody answers.
    SensorsError
        If no broker could tell of its sensors.
    """
    if limit < 1:
        raise QueryError(f"limit: found {limit}, expected one sensor or more")
    faults = []
    for url in urls:
        observer = Observer(url, tls=tls, timeout_s=timeout_s)
        try:
            status = await observer.ask()
        except TimeoutError:
            faults.append(f"{url}: found no answer within {timeout_s:g} s")
            continue
        except (SensorGridError, OSError, ValueError) as error:
            faults.append(f"{url}: {error}")
            continue
        finally:
            await observer.closed()
        assert observer.welcome is not None
        grid, roster = wire.grid_from(observer.welcome.grid), wire.roster_of(observer.welcome)
        return await ask_owners(
            asked, grid, roster, {PeerId(status.id): url}, limit=limit, tls=tls, timeout_s=timeout_s
        )
    raise NotConnected(f"network: found no broker that answers, expected one at {'; '.join(faults)}")


async def ask_owners(
    asked: wire.AskSensors,
    grid: Grid,
    roster: Roster,
    reached: Mapping[PeerId, str],
    *,
    limit: int = LIMIT,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
) -> SensorList:
    """Ask all brokers that own a part of the box; `reached` says how some of them were reached from here."""
    if asked.bbox is not None:
        check_bbox(grid, asked.bbox)
    for turn in range(ROUNDS):
        owners = owners_of(asked.bbox, grid, roster)
        urls = {owner: reached.get(owner) or roster.url_of(owner) or "" for owner in owners}
        newer: list[Roster] = []
        work = (_all_of(urls[owner], asked, limit, tls, timeout_s, newer.append) for owner in owners)
        answers = dict(zip(owners, await asyncio.gather(*work), strict=True))
        told = [one for one in answers.values() if not isinstance(one, str)]
        versions = {page.roster for pages in told for page in pages}
        latest = max(newer, key=lambda one: one.version, default=roster)
        if turn == ROUNDS - 1 or (versions <= {roster.version} and latest.version <= roster.version):
            break
        roster = latest if latest.newer_than(roster) else roster
        await asyncio.sleep(PAUSE_S)
    missing = {urls[o]: reason for o, reason in answers.items() if isinstance(reason, str)}
    if missing and not told:
        raise SensorsError(
            f"sensors: found no answer, expected one of {'; '.join(f'{u}: {r}' for u, r in missing.items())}"
        )
    return _merged(told, roster.version, missing, limit)


def owners_of(bbox: Bbox | None, grid: Grid, roster: Roster) -> list[PeerId]:
    """Brokers that hold sensors in a box."""
    around = None if bbox is None else points_around(grid, bbox)
    if bbox is not None and around is None:
        return []
    parts = None if around is None else grid.plain_boxes(around)
    return sorted(
        {
            region.owner
            for region in roster.regions
            if region.attribute == ATTRIBUTE
            and (parts is None or any(_meet(part, box_of(grid, region.cell)) for part in parts))
        }
    )


def _meet(a: Box, b: Box) -> bool:
    return a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1


async def _all_of(
    url: str,
    asked: wire.AskSensors,
    limit: int,
    tls: ssl.SSLContext | None,
    timeout_s: float,
    on_roster: Callable[[Roster], None],
) -> list[wire.Sensors] | str:
    """A broker's sensors, page by page; as a text, why there are none."""
    observer, pages, wanted, after = Observer(url, tls=tls, timeout_s=timeout_s), [], limit, None
    try:
        while True:
            fields = {"limit": min(wanted, PAGE), "after": after}
            page = await observer.sensors(wire.AskSensors(**{**_plain(asked), **fields}))
            pages.append(page)
            wanted -= len(page.sensors)
            if not page.left_off or not page.sensors or wanted <= 0:
                break
            after = page.sensors[-1].number
        assert observer.welcome is not None
        on_roster(wire.roster_of(observer.welcome))
        return pages
    except TimeoutError:
        return f"found no answer within {timeout_s:g} s, expected its sensors"
    except (SensorGridError, OSError, ValueError) as error:
        return str(error)
    finally:
        await observer.closed()


def _plain(asked: wire.AskSensors) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in asked.__struct_fields__}


def _merged(
    told: Sequence[Sequence[wire.Sensors]], version: int, missing: Mapping[str, str], limit: int
) -> SensorList:
    """Each sensor once, though two may tell of it while a region changes hands."""
    found: dict[int, Sensor] = {}
    twice = 0
    for pages in told:
        for page in pages:
            for row in page.sensors:
                sensor = _sensor(row, page.id)
                known = found.get(row.number)
                twice += known is not None
                if known is None or known.reports < sensor.reports:
                    found[row.number] = sensor
    first = [pages[0] for pages in told]
    newest = max((page.newest_us for page in first if page.newest_us is not None), default=None)
    return SensorList(
        tuple(found[number] for number in sorted(found)[:limit]),
        sum(page.matched for page in first) - twice,
        sum(page.held for page in first),
        None if newest is None else _moment(newest),
        tuple(sorted({name for page in first for name in page.attributes})),
        version,
        missing,
    )


def _sensor(row: wire.SensorRow, broker: int) -> Sensor:
    series = tuple(
        SensorSeries(s.attribute, s.reports, s.flagged, None if s.last_us is None else _moment(s.last_us))
        for s in row.series
    )
    return Sensor(row.name, row.number, row.x, row.y, row.elevation, series, row.silent, row.flagged, broker)


def _moment(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_us)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
