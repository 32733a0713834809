"""`sensorgrid up`: a whole grid on this machine, pipeline and brokers, as processes that are kept running."""

import asyncio
import errno
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from sensorgrid.cli import arguments

errors = Console(stderr=True)

COLOURS = ("cyan", "green", "magenta", "blue", "yellow")
PIPELINE_GRACE_S = 60.0
"""a micro-batch may be under way, and Java has to end"""
BROKER_GRACE_S = 20.0
"""receivers are sent elsewhere first"""
PORT_PATIENCE_S = 5.0


def up(
    config: Annotated[
        Path, typer.Argument(metavar="GRID.TOML", help="The configuration; see docs/runtime.md.")
    ],
    brokers: Annotated[
        str | None,
        typer.Option(metavar="N[,N]", help="Only these brokers of the file; 'none' for the pipeline alone."),
    ] = None,
    pipeline: Annotated[
        bool, typer.Option("--pipeline/--no-pipeline", help="Whether the pipeline runs here.")
    ] = True,
    status: Annotated[
        Path | None, typer.Option("--status", metavar="FILE", help="Keep what runs, as JSON, in this file.")
    ] = None,
) -> None:
    """Run a grid: its brokers and its pipeline as processes; what dies is started again, until Ctrl-C or SIGTERM.

    Example: sensorgrid up grid.toml
    """
    from sensorgrid.configuration.network import read_network
    from sensorgrid.pipeline.ingest.inlet import check_sources
    from sensorgrid.pipeline.settings import read_settings
    from sensorgrid.runtime.supervisor import SupervisedPart, Supervisor

    if status is not None and not status.absolute().parent.is_dir():
        raise arguments.ArgumentError(
            f"--status: found {str(status)!r}, expected a file in a folder that exists"
        )
    network = read_network(config)
    chosen = _chosen(brokers, sorted(network.addresses))
    if pipeline:
        check_sources(
            read_settings(config)
        )  # mistakes are told once, here, and not again and again by children
    for number in chosen:
        _check_port(number, network.addresses[number])
    command = (sys.executable, "-m", "sensorgrid")
    changes = network.settings.beat_s is not None
    parts = [
        SupervisedPart(
            f"broker {n}",
            (*command, "broker", str(config), "--id", str(n)),
            0,
            BROKER_GRACE_S,
            reads_again=True,
            # In an open network SIGTERM would make it leave; one that has left is gone.
            asks_with=signal.SIGINT if changes else signal.SIGTERM,
            may_end=changes,
        )
        for n in chosen
    ]
    if pipeline:
        run = (*command, "pipeline", "run", str(config))
        parts.append(SupervisedPart("pipeline", run, 1, PIPELINE_GRACE_S))
    if not parts:
        raise arguments.ArgumentError("--brokers and --no-pipeline: found nothing to run, expected something")
    width = max(len(part.name) for part in parts)
    names = [part.name for part in parts]

    def say(name: str, line: str) -> None:
        text = Text(f"{name:<{width}} │ ", style=COLOURS[names.index(name) % len(COLOURS)])
        errors.print(text + Text.from_ansi(line, style="default"), highlight=False, soft_wrap=True)

    asyncio.run(_run(Supervisor(parts, say, status), network, chosen))


def _check_port(number: int, address: Any) -> None:
    """Told once, here: a broker that cannot listen would be started again and again.

    The brokers of an `up` that was just killed may take a moment to end.
    """
    deadline = time.monotonic() + PORT_PATIENCE_S
    try:
        while True:
            try:
                with socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind((address.host, address.port))
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror}"
        raise arguments.ArgumentError(
            f"broker {number}: found that {address.host}:{address.port} {why}, expected a free port (does this grid run"
            " already? another one? `sensorgrid doctor` looks)"
        ) from None


def _chosen(text: str | None, known: list[Any]) -> list[Any]:
    if text is None:
        return known
    if text == "none":
        return []
    chosen = [part.strip() for part in text.split(",")]
    unknown = [part for part in chosen if not part.isdigit() or int(part) not in known]
    if unknown:
        expected = ", ".join(map(str, known))
        raise arguments.ArgumentError(f"--brokers: found {', '.join(unknown)}, expected some of {expected}")
    return list(dict.fromkeys(int(part) for part in chosen))


async def _run(supervisor: Any, network: Any, chosen: list[Any]) -> None:
    greeting = asyncio.create_task(_greet(network, chosen))
    try:
        await supervisor.run()
    finally:
        greeting.cancel()
        await asyncio.gather(greeting, return_exceptions=True)
    errors.print("stopped", style="yellow")


async def _greet(network: Any, chosen: list[Any]) -> None:
    """Say where to connect, once the brokers of this machine listen."""
    for broker in chosen:
        address = network.addresses[broker]
        host = "127.0.0.1" if address.host in ("0.0.0.0", "::", "") else address.host
        while True:
            try:
                _, writer = await asyncio.open_connection(host, address.port)
            except OSError:
                await asyncio.sleep(0.2)
                continue
            writer.close()
            break
    errors.print(Text("\n".join(welcome(network, chosen)), style="bold"), soft_wrap=True)


def welcome(network: Any, chosen: list[Any]) -> list[str]:
    """Where to connect, and a query to try."""
    grid = network.grid
    url = network.addresses[chosen[0] if chosen else min(network.addresses)].url
    attribute = grid.attributes[0]
    west, south, east, north = grid.extent
    box = ",".join(f"{v:g}" for v in (west, south, (west + east) / 2, (south + north) / 2))
    return [
        f"connect: {', '.join(network.addresses[b].url for b in chosen) or url}",
        f"   query: sensorgrid query --connect {url} --attribute {attribute} --bbox={box} --resolution 1/2",
    ]
