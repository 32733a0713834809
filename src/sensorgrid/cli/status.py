"""`sensorgrid status`: what brokers do, by their own account."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from sensorgrid.cli import arguments

console = Console()


def status(
    brokers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL|FILE]...",
            help="Of brokers, such as ws://localhost:7400, which is the default; or a grid's file, for all of its.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write it here; - writes only that.")
    ] = None,
) -> None:
    """Ask brokers what they do: clients, streams, bytes sent to each other. They notice nothing of it.

    Example: sensorgrid status examples/weather.toml
    """
    from sensorgrid.cli.output import result_of, write

    target = arguments.read_target(json_file)
    found = asyncio.run(_ask(_urls(brokers or ["ws://localhost:7400"])))
    if write(target, result_of("status", rows=[msgspec.to_builtins(one) for one in found])):
        console.print(_table(found))


def _urls(brokers: list[str]) -> list[str]:
    from sensorgrid.configuration.network import read_network

    found = []
    for one in brokers:
        if Path(one).is_file():
            found += [address.url for address in read_network(one).addresses.values()]
        else:
            found.append(one)
    return found


async def _ask(urls: list[str]) -> list[Any]:
    from sensorgrid.links.link import LinkError
    from sensorgrid.links.observer import Observer

    async def ask(url: str) -> Any:
        observer = Observer(url)
        try:
            return await observer.ask()
        except TimeoutError:
            raise LinkError(f"{url}: found no answer, expected a status") from None
        finally:
            observer.close()

    return list(await asyncio.gather(*(ask(url) for url in urls)))


def _table(found: list[Any]) -> Table:
    table = Table(
        caption="streams: own, taken from and given to other brokers; bytes of values since each broker started",
        box=SIMPLE_HEAD,
        padding=(0, 1),
    )
    for name in ("broker", "up", "clients", "own", "taken", "given", "blocks", "to brokers", "to clients"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        taken = sum(1 for stream in one.streams if stream.path is None or len(stream.path) > 1)
        given = sum(len(stream.brokers) for stream in one.streams)
        counts = (one.clients, len(one.streams) - taken, taken, given, one.published)
        sizes = (sum(one.values_bytes.values()), one.clients_bytes)
        table.add_row(
            str(one.id), f"{one.up_s:,.0f} s", *(f"{c:,}" for c in counts), *(decimal(size) for size in sizes)
        )
    return table
