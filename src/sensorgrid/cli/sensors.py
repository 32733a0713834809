"""`sensorgrid sensors`: who measures, who is silent, who is often wrong."""

import asyncio
import contextlib
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from sensorgrid.cli import arguments
from sensorgrid.cli.options import Authority, BoxText, Connect, JsonAlone

if TYPE_CHECKING:
    from sensorgrid.client.sensors import Sensor, SensorList

SHOWN = 40
"""rows of the table; files hold all"""

console = Console()
errors = Console(stderr=True)


def sensors(
    connect: Connect = None,
    bbox: BoxText = None,
    attribute: Annotated[
        str | None, typer.Option(metavar="NAME", help="That they measure; without it, any.")
    ] = None,
    silent: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only those without a report for longer, such as 1h, or flagged."),
    ] = None,
    flagged: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Only those with at least this share of reports found bad, such as 0.2, or silent.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="When silence is judged, ISO 8601 with zone; else now."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Bring at most so many.")] = 10_000,
    json_file: JsonAlone = None,
    geojson: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write GeoJSON here, for maps; - writes only that."),
    ] = None,
    ca: Authority = None,
) -> None:
    """Find sensors by box and attribute, and those that are silent or often found bad.

    A broker that does not answer is named, its sensors are missing, and the exit code is 1.

    Example: sensorgrid sensors --bbox -10,35,30,60 --silent 1h --flagged 0.2 --connect ws://localhost:7400
    """
    from sensorgrid.cli.output import result_of, write
    from sensorgrid.client.connection import context_of, urls_of
    from sensorgrid.client.sensors import find_sensors, question

    target, plot = arguments.read_target(json_file), arguments.read_target(geojson, "--geojson")
    alone = str(plot) == "-"
    if alone and str(target) == "-":
        raise arguments.ArgumentError(
            "--geojson: found - beside --json -, expected one of them on standard output"
        )
    box = arguments.read_bbox(bbox)
    moment = None if at is None else arguments.moment("--at", at)
    asked = question(box, attribute=attribute, silent=silent, flagged=flagged, at=moment)
    found = asyncio.run(find_sensors(urls_of(connect), asked, limit=limit, tls=context_of(ca)))
    if plot is not None:
        with contextlib.nullcontext(sys.stdout) if alone else plot.open("w") as file:
            file.write(json.dumps(found.to_geojson()) + "\n")
    args = {
        "bbox": bbox, "attribute": attribute, "silent": silent, "flagged": flagged, "at": at, "limit": limit,
    }  # fmt: skip
    newest = None if found.newest is None else found.newest.isoformat()
    facts = {
        "matched": found.matched, "held": found.held, "left_off": found.left_off, "newest": newest,
        "roster": found.roster, "missing": [{"url": u, "reason": r} for u, r in found.missing.items()],
    }  # fmt: skip
    if write(target, result_of("sensors", args=args, **facts, rows=[s.to_dict() for s in found])):
        if alone:
            _notes(found, attribute, 0, errors)
        else:
            show(found, attribute, moment or datetime.now(UTC))
    if found.missing:
        raise typer.Exit(1)


def show(found: "SensorList", attribute: str | None, now: datetime) -> None:
    """The worst first."""
    ordered = sorted(found, key=lambda s: (not (s.silent or s.flagged), -s.share, _since(s, now), s.id))
    if ordered:
        console.print(_table(ordered[:SHOWN], now))
    _notes(found, attribute, len(ordered) - SHOWN, console)


def _notes(found: "SensorList", attribute: str | None, more: int, to: Console) -> None:
    """What there is to say beside the sensors; `more` of them are not shown."""
    silent, flagged = sum(s.silent for s in found), sum(s.flagged for s in found)
    parts = [f"{found.matched:,} of {found.held:,} sensors"]
    parts += [f"{silent:,} silent"] if silent else []
    parts += [f"{flagged:,} flagged"] if flagged else []
    parts += [f"{more:,} more are not shown; --json has them"] if more > 0 else []
    parts += [f"{found.left_off:,} were not brought; see --limit"] if found.left_off else []
    parts += [f"newest report {found.newest:%Y-%m-%d %H:%M:%S}Z"] if found.newest is not None else []
    to.print("; ".join(parts), style="dim", highlight=False, soft_wrap=True)
    if attribute is not None and found.attributes and attribute not in found.attributes:
        to.print(
            f"nobody measures {attribute}; there is {', '.join(found.attributes)}",
            style="yellow", highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip
    for url, reason in found.missing.items():
        text = f"{url} does not answer, its sensors are missing: {reason}"
        to.print(text, style="red", highlight=False, soft_wrap=True, markup=False)


def _since(sensor: "Sensor", now: datetime) -> float:
    """Ascending for longer silence."""
    return float("-inf") if sensor.last is None else -(now - sensor.last).total_seconds()


def _table(ordered: "list[Sensor]", now: datetime) -> Table:
    table = Table(
        caption="reports and the share found bad: of the last three days with data",
        box=SIMPLE_HEAD,
        padding=(0, 1),
    )
    table.add_column("sensor", no_wrap=True)
    for name in ("longitude", "latitude", "height"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("last report", no_wrap=True)
    for name in ("reports", "bad"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("is")
    table.add_column("attributes")
    for sensor in ordered:
        state = [word for word, told in (("silent", sensor.silent), ("flagged", sensor.flagged)) if told]
        table.add_row(
            sensor.id,
            f"{sensor.longitude:.4f}",
            f"{sensor.latitude:.4f}",
            "" if sensor.elevation is None else f"{sensor.elevation:,.0f} m",
            "not known" if sensor.last is None else _ago(now - sensor.last),
            f"{sensor.reports:,}",
            f"{sensor.share:.0%}",
            " ".join(state),
            _attributes(sensor),
            style="yellow" if state else None,
        )
    return table


def _ago(passed: timedelta) -> str:
    seconds = passed.total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit} ago"
    return f"{seconds:,.0f} s ago"


def _attributes(sensor: "Sensor") -> str:
    """Those with bad reports say so."""
    return ", ".join(
        f"{s.attribute} ({s.share:.0%} bad)" if s.flagged > 0 else s.attribute for s in sensor.series
    )
