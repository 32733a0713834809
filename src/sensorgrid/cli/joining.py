"""What a newcomer to an open network asks, and where it goes: `sensorgrid broker --join URL`."""

import asyncio
import socket
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from sensorgrid.cli import arguments
from sensorgrid.configuration.base import SettingsError
from sensorgrid.configuration.network import Network, newcomer
from sensorgrid.index.cell import Cell
from sensorgrid.links import wire
from sensorgrid.links.driver import greet
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import BROKERS_MAX, PeerId
from sensorgrid.model.query import Query
from sensorgrid.overlay.geography import first_of
from sensorgrid.overlay.placement import free_place, place_between
from sensorgrid.overlay.roster import Member, Roster

USUAL_PORT = 7400


def asked_to_join(
    join: str,
    number: int | None,
    url: str | None,
    listen: str | None,
    at: str | None,
    relay: bool,
    lake: str | None,
) -> tuple[Network, PeerId]:
    """The network of the broker at `join`, with this process as another broker of it."""
    welcome = asyncio.run(_asked(join))
    grid, roster = wire.grid_from(welcome.grid), wire.roster_of(welcome)
    told = dict(welcome.network) | ({"lake": lake} if lake else {})
    me = PeerId(max(roster.by_id, default=-1) + 1) if number is None else PeerId(number)
    if not 0 <= me < BROKERS_MAX or me in roster.by_id:
        known = ", ".join(map(str, sorted(roster.by_id)))
        raise SettingsError(f"--id: found {me}, expected one that is free: the network has {known}")
    mine, bound = _addresses(join, url, listen)
    place = place_between(roster) if at is None else free_place(roster, _place(grid, roster, at))
    return newcomer(grid, roster, told, Member(me, mine, place, relay=relay), bound, None), me


async def _asked(url: str) -> wire.Welcome:
    welcome, peer = await greet(url, wire.Hello(wire.VERSIONS, wire.NEWCOMER))
    peer.close()
    await peer.ended.wait()
    return welcome


def _place(grid: Grid, roster: Roster, at: str) -> int:
    """The place of the region in which a point lies."""
    lon, lat = arguments.numbers("--at", at, "two numbers LON,LAT such as 8.5,47.4", (2,))
    dx, dy = grid.spacing
    spot = Query(grid.attributes[0], bbox=(lon - dx, lat - dy, lon + dx, lat + dy)).box(grid)
    cell = Cell.of_point(grid, spot.x0 % grid.shape[0], spot.y0)
    region = cell.code >> (cell.length - grid.region_digits)
    return first_of(region, roster.terms.depth)


def _addresses(join: str, url: str | None, listen: str | None) -> tuple[str, tuple[str, int]]:
    """Where others dial this broker, and what it binds."""
    if url is None:
        there = urlsplit(join)
        with closing(
            socket.create_connection((there.hostname or "", there.port or USUAL_PORT), timeout=5)
        ) as line:
            host = line.getsockname()[0]
        port = _free_port(host) if listen is None else int(listen.rpartition(":")[2])
        url = f"{there.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss") or not parts.hostname or parts.port is None:
        raise SettingsError(f"--url: found {url!r}, expected one such as ws://10.0.0.5:7400")
    if listen is None:
        return url, (parts.hostname, parts.port)
    host, _, own = listen.rpartition(":")
    if not host or not own.isdigit():
        raise SettingsError(f"--listen: found {listen!r}, expected HOST:PORT")
    return url, (host, int(own))


def _free_port(host: str) -> int:
    """The usual one, unless others of this machine may have it; or any that is free."""
    alone = not host.startswith("127.") and host != "::1"
    for port in (USUAL_PORT, 0) if alone else (0,):
        with closing(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) as trial:
            try:
                trial.bind((host, port))
            except OSError:
                continue
            found: Any = trial.getsockname()[1]
            return int(found)
    raise SettingsError(f"--url: found no free port at {host}, expected one")
