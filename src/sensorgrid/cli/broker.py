"""`sensorgrid broker`: one broker as a process."""

import asyncio
import os
import random
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from sensorgrid import __version__

CONFIG = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="Configuration with \\[grid] and \\[network]; none with --join."),
]

TAKEN = 2
"""exit code of a newcomer whose number another one has"""
JOINS_MAX = 20
"""numbers that a newcomer tries, if none is asked for"""


def broker(
    config: CONFIG = None,
    number: Annotated[
        int | None,
        typer.Option(
            "--id", help="Which of the brokers in the file, 0 if left out; with --join, one that is free."
        ),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            "--join",
            metavar="URL",
            help="Be another broker of the open network of this one; several with commas.",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="With --join: where others dial this broker; found out if left out."
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help="With --join: what to bind, if not that."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="LON,LAT", help="With --join: begin with the region here, not where most are."
        ),
    ] = None,
    relay: Annotated[bool, typer.Option("--relay", help="With --join: own no regions, only relay.")] = False,
    lake: Annotated[
        str | None,
        typer.Option("--lake", help="With --join: the lake's folder or URI as this machine sees it."),
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option("--cert", metavar="FILE", help="With --join wss://: this broker's certificate."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="With --join wss://: and its key.")
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", metavar="FILE", help="With --join wss://: certificate authority, if not the system's."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say only what goes wrong.")] = False,
) -> None:
    """Run one broker until it is told to stop (Ctrl-C or SIGTERM): receivers are sent elsewhere first.

    In an open network SIGTERM makes it leave: others own its regions before it ends. Ctrl-C ends it as it is.
    SIGHUP reads the file again: if its network.version is larger, all brokers, clients and publishers follow.

    Example: sensorgrid broker grid.toml --id 3

    Example: sensorgrid broker --join ws://localhost:7400
    """
    from sensorgrid.configuration.base import SettingsError
    from sensorgrid.configuration.network import read_network
    from sensorgrid.model.ids import PeerId

    early: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, frame: early.append(number))
    if (config is None) == (join is None):
        found = "both" if join else "neither"
        raise SettingsError(f"broker: found {found}, expected either FILE or --join URL")
    if join is not None:
        from sensorgrid.cli.joining import Wish, asked_to_join

        wish = Wish(join, number, url, listen, at, relay, lake, cert, key, ca)
        for again in reversed(range(JOINS_MAX)):
            network, me = asked_to_join(wish)
            code = _run(_serve(network, me, quiet, config, early, joins=True))
            if code != TAKEN or number is not None or not again:
                break  # else another newcomer had the same idea at the same time: take the next number
            time.sleep(random.uniform(0.0, 0.5))
    else:
        assert config is not None
        network, me = read_network(config), PeerId(number or 0)
        given = {
            "--url": url, "--listen": listen, "--at": at, "--relay": relay, "--lake": lake, "--cert": cert,
            "--key": key, "--ca": ca,
        }  # fmt: skip
        if wrong := [name for name, value in given.items() if value]:
            raise SettingsError(f"{wrong[0]}: found it beside a file, expected --join URL with it")
        if me not in network.addresses:
            known = ", ".join(map(str, sorted(network.addresses)))
            raise SettingsError(f"--id: found {me}, expected one of the brokers in {config}: {known}")
        code = _run(_serve(network, me, quiet, config, early))
    if code:
        raise typer.Exit(code)


def _run(work: Any) -> int:
    try:
        import uvloop

        return int(uvloop.run(work))
    except ImportError:
        return int(asyncio.run(work))


async def _serve(
    network: Any, number: Any, quiet: bool, config: Path | None, early: list[int], joins: bool = False
) -> int:
    """Until it is told to stop; `early` are the signals to read the file again that came before it could."""
    from sensorgrid.configuration.network import read_network
    from sensorgrid.model.errors import SensorGridError
    from sensorgrid.runtime.host import Host, NameTakenError

    def log(event: str, **fields: Any) -> None:
        if quiet and event not in ("refused", "lake not read", "roster not taken", "failed"):
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        said = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
        print(f"{now} {event} {said}".rstrip(), file=sys.stderr, flush=True)

    def again() -> None:
        if config is None or network.settings.beat_s is not None:
            log("roster not taken", reason="the roster of an open network is beside its lake, not in a file")
            return
        try:
            host.learn(read_network(config).roster)
        except SensorGridError as error:
            log("roster not taken", reason=str(error))

    host = Host(network, number, software=f"sensorgrid {__version__}", log=log, joins=joins)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    goes: list[int] = []

    def told_to_stop(which: int) -> None:
        goes.append(which)
        stop.set()

    for which in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(which, told_to_stop, which)
    loop.add_signal_handler(signal.SIGHUP, early.append, signal.SIGHUP)
    try:
        await host.start()
    except NameTakenError as taken:
        if not joins:
            raise
        log("failed", broker=number, reason=str(taken))
        return TAKEN
    except OSError as fault:
        where = network.addresses[number]
        raise OSError(
            f"broker {number}: found {fault.strerror or fault}, expected to listen at {where.host}:{where.port}"
        ) from None
    loop.add_signal_handler(signal.SIGHUP, again)
    if early:
        again()
    told: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    gone: asyncio.Future[Any] = asyncio.ensure_future(host.left.wait())
    both: set[asyncio.Future[Any]] = {told, gone, host.driver.failed}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if goes == [signal.SIGTERM] and not host.driver.failed.done():
        stop.clear()
        leaving, enough = asyncio.ensure_future(host.leave()), asyncio.ensure_future(stop.wait())
        await asyncio.wait({leaving, enough}, return_when=asyncio.FIRST_COMPLETED)
        for task in (leaving, enough):  # told again: it ends as it is
            task.cancel()
        await asyncio.wait({leaving, enough})
    gone.cancel()
    if host.driver.failed.done():  # a bug of ours: its state cannot be trusted; the supervisor starts it anew
        import traceback

        error = host.driver.failed.exception()
        if isinstance(error, SensorGridError):
            log("failed", broker=number, reason=str(error))
        else:
            traceback.print_exception(error)
            log("failed", broker=number, pid=os.getpid())
        told.cancel()
        return TAKEN if isinstance(error, NameTakenError) else 1
    told.cancel()
    await host.stop()
    return 0


def _shown(value: Any) -> str:
    text = str(value)
    return repr(text) if " " in text or not text else text
