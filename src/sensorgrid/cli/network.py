"""`sensorgrid network`: who is there, who owns what, and how to change it."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sensorgrid.cli import arguments
from sensorgrid.model.errors import SensorGridError

app = typer.Typer(help="Who is in a network, who owns what, and how to change it.", no_args_is_help=True)
console = Console()
COLOURS = (
    "cyan",
    "yellow",
    "green",
    "magenta",
    "blue",
    "red",
    "white",
    "bright_cyan",
    "bright_yellow",
    "bright_green",
)
MAP_COLUMNS, MAP_ROWS = 64, 16

Where = Annotated[
    str,
    typer.Argument(
        metavar="[URL|FILE]", help="A broker that runs, or the file of an open network, whose lake is read."
    ),
]
OpenFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The file of an open network, whose lake is written.")
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Also write it here; - writes only that.")
]


class NetworkError(SensorGridError, RuntimeError):
    """A network that cannot be changed so."""


@app.command("show")
def show(
    where: Where = "ws://localhost:7400",
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificate authority of a wss:// network, if not the file's.",
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Show brokers, places, regions, load and suspicion, and a map of who owns what.

    Example: sensorgrid network show ws://localhost:7400
    """
    from sensorgrid.cli.output import result_of, write

    target = arguments.read_target(json_file)
    tls = _tls_of(where, ca)
    grid, roster = _roster(where, tls)
    loads = asyncio.run(_statuses(roster, tls))
    rows = [_row(member, roster, loads.get(member.id)) for member in roster.members]
    if write(target, result_of("network show", roster=roster.version, rows=rows)):
        console.print(_table(rows, roster.version))
        console.print("values: per period, sent to all receivers; --json also tells places", style="dim")
        console.print(_map(grid, roster))
        if few := _too_few(roster):
            console.print(few, style="yellow", highlight=False)


@app.command("leave")
def leave(
    config: OpenFile,
    number: Annotated[int, typer.Argument(metavar="ID", help="Of the broker that shall go.")],
) -> None:
    """Let a broker of an open network hand over its regions, and end.

    Example: sensorgrid network leave grid.toml 3
    """
    from sensorgrid.model.ids import PeerId
    from sensorgrid.overlay.placement import Draft

    def wanted(roster: Any) -> Any:
        if PeerId(number) not in roster.by_id:
            known = ", ".join(map(str, sorted(roster.by_id)))
            raise NetworkError(
                f"broker {number}: found none in roster {roster.version}, expected one of {known}"
            )
        relay = roster.by_id[PeerId(number)].relay
        if not relay and all(m.leaving or m.relay for m in roster.members if m.id != number):
            raise NetworkError(
                f"broker {number}: found nobody else who stays and owns regions, expected an heir"
            )
        draft = Draft(roster)
        draft.leave(PeerId(number))
        return draft.done()

    written = _changed(config, wanted)
    text = f"broker {number} leaves (roster {written})" if written else f"broker {number} is leaving already"
    console.print(text, highlight=False)


@app.command("rebalance")
def rebalance(
    config: OpenFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would move.")] = False,
) -> None:
    """Move the borders between brokers' ranges, so that load is even; brokers must run.

    Nothing moves as long as no broker has more than 1.25 times the mean.

    Example: sensorgrid network rebalance grid.toml --dry-run
    """
    from sensorgrid.overlay.placement import Draft, balanced, responsible

    _, roster = _roster(str(config))
    statuses = asyncio.run(_statuses(roster, _tls_of(str(config), None)))
    if silent := [m.id for m in roster.members if m.id not in statuses and not m.relay]:
        raise NetworkError(
            f"broker {', '.join(map(str, silent))}: found no answer, expected its load: nobody can say what is even"
        )
    load = _load_of(roster, statuses)
    moves = balanced(roster, load)
    if not moves:
        console.print("load is even: nothing moves", highlight=False)
        return
    draft = Draft(roster)
    draft.move(moves)
    after = responsible(roster, draft.members.values())
    changed = sum(after[key] != region.owner for key, region in roster.by_cell.items())
    for broker, place in moves.items():
        console.print(f"broker {broker}: place {roster.by_id[broker].place} → {place}", highlight=False)
    console.print(f"{changed} of {len(roster.regions)} regions change hands", highlight=False)
    if not dry_run:

        def wanted(newest: Any) -> Any:
            again = Draft(newest)
            again.move(moves)
            return again.done()

        console.print(f"roster {_changed(config, wanted)}", highlight=False)


def roster_of_file(path: str | Path) -> tuple[Any, Any]:
    """The grid of a file, and its newest roster: in an open network, that beside its lake."""
    from sensorgrid.configuration.network import read_network
    from sensorgrid.runtime.rosters import RosterStore

    network = read_network(path)
    found = None if network.settings.beat_s is None else RosterStore(network.lake).newest()
    return network.grid, found or network.roster


def _tls_of(where: str, ca: Path | None) -> Any:
    """How brokers that speak TLS are dialled: by an authority that is named, or the file's, or the system's."""
    import ssl

    from sensorgrid.configuration.network import read_network

    if ca is None and "://" not in where:
        tls = read_network(where).options.tls
        ca = None if tls is None or tls.ca_file is None else Path(tls.ca_file)
    if ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (ssl.SSLError, OSError) as error:
        raise NetworkError(f"--ca: found {error} in {ca}, expected a certificate authority in PEM") from None


def _roster(where: str, tls: Any = None) -> tuple[Any, Any]:
    """The grid and the newest roster, as a broker or the lake tells them."""
    from sensorgrid.links import wire
    from sensorgrid.links.link import LinkError
    from sensorgrid.links.observer import Observer

    if "://" not in where:
        return roster_of_file(where)

    async def asked() -> Any:
        observer = Observer(where, tls=tls)
        try:
            await observer.ask()
        except TimeoutError:
            raise LinkError(f"{where}: found no answer in time, expected a roster") from None
        finally:
            await observer.closed()
        return observer.welcome

    welcome = asyncio.run(asked())
    return wire.grid_from(welcome.grid), wire.roster_of(welcome)


def _changed(config: Path, wanted: Any) -> int:
    """Write the next version of an open network's roster; 0 if nothing has to be changed."""
    from sensorgrid.configuration.network import read_network
    from sensorgrid.runtime.rosters import RosterStore

    network = read_network(config)
    if network.settings.beat_s is None:
        raise NetworkError(
            f"{config}: found a network whose roster is this file, expected open = true in [network]"
        )
    store = RosterStore(network.lake)
    while True:
        newest = store.newest()
        if newest is None:
            raise NetworkError(
                f"{store.place}: found no roster, expected one: has a broker of {config} ever run?"
            )
        draft = wanted(newest)
        if draft is None:
            return 0
        if store.write(draft):
            return int(draft.version)


async def _statuses(roster: Any, tls: Any = None) -> dict[int, Any]:
    """What each broker says of itself; those that do not answer are left out."""
    from sensorgrid.links.observer import Observer

    async def ask(member: Any) -> Any:
        observer = Observer(member.url, tls=tls, timeout_s=2.0)
        try:
            return await observer.status()
        finally:
            await observer.closed()

    found = await asyncio.gather(*(ask(member) for member in roster.members if member.url))
    asked = [member.id for member in roster.members if member.url]
    return {number: status for number, status in zip(asked, found, strict=True) if status is not None}


def _load_of(roster: Any, statuses: dict[int, Any]) -> dict[tuple[int, int], float]:
    """Values per period that are sent for each region."""
    from sensorgrid.index.codes import contains

    load: dict[tuple[int, int], float] = dict.fromkeys(roster.by_cell, 1.0)
    for status in statuses.values():
        for stream in status.streams:
            region = roster.region(stream.attribute, stream.cell)
            if region is not None:
                load[region.attribute, region.cell] += stream.points
            else:
                within = [k for k in load if k[0] == stream.attribute and contains(stream.cell, k[1])]
                for key in within:
                    load[key] += stream.points / len(within)
    return load


def _row(member: Any, roster: Any, status: Any) -> dict[str, Any]:
    marks = [name for name in ("relay", "leaving", "accused") if getattr(member, name)]
    return {
        "id": member.id,
        "url": member.url,
        "place": member.place,
        "regions": len({region.cell for region in roster.by_owner.get(member.id, ())}),
        "inherits": len({region.cell for region in roster.by_heir.get(member.id, ())}),
        "state": ", ".join(marks) or "member",
        "answers": status is not None,
        "clients": None if status is None else status.clients,
        "points": None if status is None else sum(stream.points for stream in status.streams),
        "software": "" if status is None else status.software,
    }


def _table(rows: list[dict[str, Any]], version: int) -> Table:
    table = Table(
        title=f"roster {version}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        collapse_padding=True,
    )
    for name in ("id", "url", "regions", "heir of", "clients", "values", "state"):
        table.add_column(
            name, justify="left" if name in ("url", "state") else "right", no_wrap=name != "state"
        )
    for row in rows:
        state = row["state"] if row["answers"] else f"{row['state']}, does not answer"
        table.add_row(
            Text(str(row["id"]), style=_colour(row["id"])), row["url"], str(row["regions"]),
            str(row["inherits"] or ""), "?" if row["clients"] is None else f"{row['clients']:,}",
            "?" if row["points"] is None else f"{row['points']:,}",
            Text(state, style="red" if not row["answers"] or "accused" in state else ""),
        )  # fmt: skip
    return table


def _map(grid: Any, roster: Any) -> Text:
    """Who owns what of the first attribute, north up."""
    from sensorgrid.index.cell import Cell

    columns, rows = min(MAP_COLUMNS, grid.shape[0]), min(MAP_ROWS, grid.shape[1])
    text = Text("who owns what, north up\n", style="dim")
    for row in reversed(range(rows)):
        for column in range(columns):
            cell = Cell.of_point(grid, column * grid.shape[0] // columns, row * grid.shape[1] // rows)
            region = roster.region(0, cell.code)
            owner = "?" if region is None else str(region.owner)
            text.append(owner[-1], style=_colour(0 if region is None else region.owner))
        text.append("\n")
    return text


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _too_few(roster: Any) -> str:
    """Says so if regions do not suffice to spread them."""
    owners = [m for m in roster.members if not m.relay]
    regions = len({r.cell for r in roster.regions})
    if len(owners) > regions:
        return (
            f"found {len(owners)} brokers that want regions and {regions} regions, expected more regions than brokers:"
            " a larger region_digits in [grid] of a new lake"
        )
    return ""
