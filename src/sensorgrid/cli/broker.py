"""`sensorgrid broker`: one broker as a process."""

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from sensorgrid import __version__

CONFIG = Annotated[Path, typer.Argument(metavar="FILE", help="Configuration with \\[grid] and \\[network].")]


def broker(
    config: CONFIG,
    number: Annotated[int, typer.Option("--id", help="Which of the brokers in the file.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say only what goes wrong.")] = False,
) -> None:
    """Run one broker until it is told to stop (Ctrl-C or SIGTERM): receivers are sent elsewhere first.

    SIGHUP reads the file again: if its network.version is larger, all brokers, clients and publishers follow.

    Example: sensorgrid broker grid.toml --id 3
    """
    from sensorgrid.configuration.base import SettingsError
    from sensorgrid.configuration.network import read_network
    from sensorgrid.model.ids import PeerId

    early: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, frame: early.append(number))
    network = read_network(config)
    if PeerId(number) not in network.addresses:
        known = ", ".join(map(str, sorted(network.addresses)))
        raise SettingsError(f"--id: found {number}, expected one of the brokers in {config}: {known}")
    try:
        import uvloop

        run: Any = uvloop.run
    except ImportError:
        run = asyncio.run
    code = run(_serve(network, PeerId(number), quiet, config, early))
    if code:
        raise typer.Exit(code)


async def _serve(network: Any, number: Any, quiet: bool, config: Path, early: list[int]) -> int:
    """Until it is told to stop; `early` are the signals to read the file again that came before it could."""
    from sensorgrid.configuration.network import read_network
    from sensorgrid.model.errors import SensorGridError
    from sensorgrid.runtime.host import Host

    def log(event: str, **fields: Any) -> None:
        if quiet and event not in ("refused", "lake not read", "roster not taken", "failed"):
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        said = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
        print(f"{now} {event} {said}".rstrip(), file=sys.stderr, flush=True)

    def again() -> None:
        try:
            host.learn(read_network(config).roster)
        except SensorGridError as error:
            log("roster not taken", reason=str(error))

    host = Host(network, number, software=f"sensorgrid {__version__}", log=log)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for which in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(which, stop.set)
    loop.add_signal_handler(signal.SIGHUP, early.append, signal.SIGHUP)
    await host.start()
    loop.add_signal_handler(signal.SIGHUP, again)
    if early:
        again()
    told: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    both: set[asyncio.Future[Any]] = {told, host.driver.failed}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if host.driver.failed.done():  # a bug of ours: its state cannot be trusted; the supervisor starts it anew
        import traceback

        traceback.print_exception(host.driver.failed.exception())
        log("failed", broker=number, pid=os.getpid())
        told.cancel()
        return 1
    await host.stop()
    return 0


def _shown(value: Any) -> str:
    text = str(value)
    return repr(text) if " " in text or not text else text
