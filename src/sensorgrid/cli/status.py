"""`sensorgrid status`: what brokers do, by their own account."""

import asyncio
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from sensorgrid.cli import arguments
from sensorgrid.cli.options import JsonAlone
from sensorgrid.model.errors import SensorGridError

console = Console()


def status(
    brokers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL|FILE]...",
            help="Of brokers, such as ws://localhost:7400, which is the default; or a grid's file, for all of its.",
        ),
    ] = None,
    json_file: JsonAlone = None,
) -> None:
    """Ask brokers what they do: clients, streams, bytes sent to each other. They notice nothing of it.

    A broker that does not answer has a row that says why, and the exit code is 1.

    Example: sensorgrid status examples/weather.toml
    """
    from sensorgrid.cli.output import result_of, write

    target = arguments.read_target(json_file)
    urls = _urls(brokers or ["ws://localhost:7400"])
    answers = dict(zip(urls, asyncio.run(_ask(urls)), strict=True))
    found = [one for one in answers.values() if not isinstance(one, str)]
    silent = {url: reason for url, reason in answers.items() if isinstance(reason, str)}
    rows, missing = (
        [msgspec.to_builtins(one) for one in found],
        [{"url": u, "reason": r} for u, r in silent.items()],
    )
    notes = _notes(brokers or [])
    if write(target, result_of("status", rows=rows, silent=missing, parameters=notes)):
        if found:
            console.print(_table(found))
        for note in notes:
            console.print(note, style="dim", highlight=False, soft_wrap=True, markup=False)
        for url, reason in silent.items():
            console.print(
                f"{url} does not answer: {reason}", style="red", highlight=False, soft_wrap=True, markup=False
            )
    if silent:
        raise typer.Exit(1)


def _urls(brokers: list[str]) -> list[str]:
    from sensorgrid.cli.network import roster_of_file

    found = []
    for one in brokers:
        if "://" in one:
            found.append(one)
        else:
            found += [member.url for member in roster_of_file(one)[1].members]
    return list(dict.fromkeys(found))


def _notes(brokers: list[str]) -> list[str]:
    """What the grids of files are made with, and what that was chosen from: as the plans of their lakes say it."""
    from sensorgrid.configuration.network import read_network
    from sensorgrid.pipeline.lake.folder import Lake

    notes: list[str] = []
    for lake in dict.fromkeys(read_network(one).lake for one in brokers if "://" not in one):
        try:
            plan = Lake(lake).plan()
        except (SensorGridError, OSError) as error:
            notes.append(f"lake {lake}: {error}")
        else:
            notes += (
                [f"lake {lake}: found no plan, so nothing was gridded yet"] if plan is None else plan.notes()
            )
    return notes


async def _ask(urls: list[str]) -> list[Any]:
    """What each broker says of itself, or, as a text, why it says nothing."""
    from sensorgrid.links.observer import Observer

    async def ask(url: str) -> Any:
        observer = Observer(url)
        try:
            return await observer.ask()
        except TimeoutError:
            return "found no answer in time, expected a status"
        except SensorGridError as error:
            return str(error)
        finally:
            await observer.closed()

    return list(await asyncio.gather(*(ask(url) for url in urls)))


def _table(found: list[Any]) -> Table:
    table = Table(
        caption="streams: own, taken from and given to other brokers; bytes of values since each broker started",
        box=SIMPLE_HEAD,
        padding=(0, 0),
        collapse_padding=True,
    )
    for name in (
        "id",
        "up",
        "roster",
        "clients",
        "own",
        "taken",
        "given",
        "blocks",
        "to brokers",
        "to clients",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        taken = sum(1 for stream in one.streams if stream.path is None or len(stream.path) > 1)
        given = sum(len(stream.brokers) for stream in one.streams)
        counts = (one.clients, len(one.streams) - taken, taken, given, one.published)
        sizes = (sum(one.values_bytes.values()), one.clients_bytes)
        table.add_row(
            str(one.id),
            f"{one.up_s:,.0f} s",
            str(one.roster or "?"),
            *(f"{c:,}" for c in counts),
            *(decimal(size) for size in sizes),
        )
    return table
