"""Raw METAR and SPECI reports as records: bulletins of the weather services, cycle files, or one report a line.

A bulletin is a text for teleprinters: control characters, a number, a heading (``SAUS70 KWBC 011200 RRA``), then
reports that end with ``=`` and may go on over several lines. Each report becomes a JSON object, which a mapping of
format "metar" reads like any other (`mappings/metar_raw.toml`); what is neither a report nor part of a bulletin's
frame is a dead letter. The library `metar` takes the reports apart (``pip install 'sensorgrid[metar]'``).

A report says day, hour and minute only. Month and year come from the file's name (``metar_20190701_1200.txt``), or
from lines such as ``2019/07/01 12:00`` between the reports (cycle files): the day closest to that is meant. Positions
and elevations are those of the library's list of stations, where it knows the station.
"""

import json
import re
import warnings
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any

from sensorgrid.model.errors import SensorGridError

_START = re.compile(r"(?:(?:METAR|SPECI)\s+)?(?:COR\s+)?[A-Z][A-Z0-9]{3}\s+(?:COR\s+)?\d{6}Z?(?=\s|$)")
_FRAME = re.compile(
    r"\d{3,5}|[A-Z]{4}\d{0,2} [A-Z]{4} \d{6}(?: [A-Z]{3})?|(?:METAR|SPECI)(?: COR)?(?: \d{4,6}Z?)?|MTR[A-Z0-9]{2,3}"
)
_CYCLE = re.compile(r"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d)")
_STAMP = re.compile(r"(?<!\d)((?:19|20)\d\d)-?([01]\d)-?([0-3]\d)(?:[_T-]?([0-2]\d):?([0-5]\d)?)?")
_MOMENT = re.compile(r"\b(\d\d)(\d\d)(\d\d)Z?(?=\s|$)")
_NIL = "report is NIL: the station has nothing to tell"
_OTHER = "record is not a METAR or SPECI report"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class BulletinError(SensorGridError, ValueError):
    """A report that cannot be read; only ever seen as the reason of a dead letter."""


def reports_of(
    lines: Iterable[str], about: datetime | None
) -> Iterator[tuple[str, datetime | None, str | None]]:
    """Reports of a text, each with the time that tells its month and year, and what is no report, with a reason."""
    pending: list[str] = []
    for line in lines:
        framed = "\x01" in line or "\x03" in line
        text = _CONTROL.sub(" ", line).strip()
        cycle = _CYCLE.fullmatch(text)
        starts = _START.match(text) is not None
        # A group of remarks may look like a bulletin's number: only after a report's end it is one.
        frame = _FRAME.fullmatch(text) is not None and (framed or not pending or not text.isdigit())
        if pending and (framed or cycle or starts or frame):
            yield " ".join(" ".join(pending).split()), about, None
            pending = []
        if cycle:
            about = datetime(*map(int, cycle.groups()), tzinfo=UTC)  # type: ignore[misc, arg-type]
            continue
        if not text or frame:
            continue
        *whole, rest = text.split("=")
        for part in whole:
            pending.append(part)
            report = " ".join(" ".join(pending).split())
            pending = []
            if _START.match(report):
                yield report, about, None
            elif report:
                yield report, about, _NIL if report.endswith(" NIL") else _OTHER
        if rest.strip() and (pending or _START.match(rest.strip())):
            pending.append(rest)
        elif rest.strip():
            yield rest.strip(), about, _OTHER
    if pending:
        yield " ".join(" ".join(pending).split()), about, None


def about_of(path: str) -> datetime | None:
    """The time that a file's name tells, to the day at least.

    Examples
    --------
    >>> about_of("file:/in/metar_20190701_1200.txt.gz")
    datetime.datetime(2019, 7, 1, 12, 0, tzinfo=datetime.timezone.utc)
    """
    found = _STAMP.search(path.rsplit("/", 1)[-1])
    if found is None:
        return None
    year, month, day, hour, minute = (int(part or 0) for part in found.groups())
    try:
        return datetime(year, month, day, hour, minute, tzinfo=UTC)
    except ValueError:
        return None


def record_of(report: str, about: datetime | None) -> str:
    """A report as the JSON object that mappings of format "metar" speak of.

    Raises
    ------
    BulletinError
        If the report says no time, or nobody says its month and year, or the library cannot read it.
    """
    metar = _library()
    moment = _moment(report, about)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of groups that it does not know
            found = metar.Metar(report, month=moment.month, year=moment.year, strict=False)
    except Exception as fault:  # of the library, by whatever the report holds
        said = str(fault).splitlines()[0][:200] if str(fault) else type(fault).__name__
        raise BulletinError(f"report cannot be read: {said}") from None

    def number(name: str, unit: str) -> float | None:
        value = getattr(found, name)
        return None if value is None else float(value.value(unit))

    direction = found.wind_dir
    place = places().get(found.station_id, (None, None, None))
    return json.dumps(
        {
            "station": found.station_id,
            "time": moment.isoformat(),
            "longitude": place[0],
            "latitude": place[1],
            "elevation_m": place[2],
            "kind": found.type,
            "temperature_degC": number("temp", "C"),
            "dew_point_degC": number("dewpt", "C"),
            "wind_from_direction_degree": None if direction is None else float(direction.value()),
            "wind_speed_m_s": number("wind_speed", "MPS"),
            "wind_gust_m_s": number("wind_gust", "MPS"),
            "visibility_m": number("vis", "M"),
            "sea_level_pressure_hPa": number("press_sea_level", "HPA"),
            "altimeter_hPa": number("press", "HPA"),
            "report": report,
        }
    )


def _moment(report: str, about: datetime | None) -> datetime:
    """When a report was made: of the days with its number, the one closest to `about`."""
    found = _MOMENT.search(report)
    if found is None:
        raise BulletinError("time: found none in the report, expected day, hour and minute (011200Z)")
    day, hour, minute = map(int, found.groups())
    if about is None:
        raise BulletinError(
            "time: found day, hour and minute only, expected year, month and day in the file's name"
            " (metar_20190701.txt) or in lines such as 2019/07/01 12:00"
        )
    possible = []
    for month in (about.replace(day=1) - timedelta(days=1), about, about.replace(day=28) + timedelta(days=5)):
        try:
            possible.append(month.replace(day=day, hour=hour, minute=minute, second=0, microsecond=0))
        except ValueError:
            continue  # a month without that day, or no such time at all
    if not possible:
        raise BulletinError(f"time: found {found.group()}, expected day, hour and minute (011200Z)")
    return min(possible, key=lambda moment: abs(moment - about))


@cache
def _library() -> Any:
    try:
        from metar import Metar
    except ImportError:
        raise BulletinError(
            "format metar: found no library, expected it: pip install 'sensorgrid[metar]'"
        ) from None
    return Metar


@cache
def places() -> dict[str, tuple[float, float, float | None]]:
    """Longitude, latitude and elevation of the stations that the library lists."""
    found = {}
    text = resources.files("metar").joinpath("nsd_cccc.txt").read_text("latin-1")
    for line in text.splitlines():
        fields = line.split(";")
        try:
            x, y = _degrees(fields[8]), _degrees(fields[7])
            found[fields[0]] = (x, y, float(fields[11]) if fields[11].strip() else None)
        except (ValueError, IndexError):
            continue  # a station without a position
    return found


def _degrees(text: str) -> float:
    """``52-18-30N`` as a number."""
    parts = [int(part) for part in text[:-1].split("-")]
    size = float(sum(part / 60**place for place, part in enumerate(parts)))
    return round(-size if text[-1] in "SW" else size, 5)
