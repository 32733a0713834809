"""What a newcomer to an open network asks, and where it goes: `sensorgrid broker --join URL`."""

import asyncio
import socket
import ssl
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sensorgrid.cli import arguments
from sensorgrid.configuration.base import SettingsError
from sensorgrid.configuration.network import NOWHERE, Network, TlsSettings, newcomer
from sensorgrid.index.cell import Cell
from sensorgrid.links import wire
from sensorgrid.links.driver import greet
from sensorgrid.links.link import LinkError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import BROKERS_MAX, PeerId
from sensorgrid.model.query import Query
from sensorgrid.overlay.geography import first_of
from sensorgrid.overlay.placement import free_place, place_between
from sensorgrid.overlay.roster import Member, Roster
from sensorgrid.runtime.host import client_tls, server_tls

USUAL_PORT = 7400


@dataclass(frozen=True, slots=True)
class Wish:
    """What a newcomer is told on the command line."""

    join: str
    """of brokers of the network, one URL or several with commas"""
    number: int | None
    url: str | None
    listen: str | None
    at: str | None
    relay: bool
    lake: str | None
    cert: Path | None
    key: Path | None
    ca: Path | None


def asked_to_join(wish: Wish) -> tuple[Network, PeerId]:
    """The network of a broker that answers, with this process as another broker of it."""
    urls = [one.strip() for one in wish.join.split(",")]
    for one in urls:
        parse_url("--join", one)
    tls = _tls(wish, any(one.startswith("wss://") for one in urls))
    context = None if tls is None else client_tls(tls.ca_file)
    join, welcome = asyncio.run(_first_of(urls, context))
    grid, roster = wire.grid_from(welcome.grid), wire.roster_of(welcome)
    told = dict(welcome.network) | ({"lake": wish.lake} if wish.lake else {})
    number, at = wish.number, wish.at
    me = PeerId(max(roster.by_id, default=-1) + 1) if number is None else PeerId(number)
    if not 0 <= me < BROKERS_MAX or me in roster.by_id:
        known = ", ".join(map(str, sorted(roster.by_id)))
        raise SettingsError(f"--id: found {me}, expected one that is free: the network has {known}")
    mine, bound = _addresses(join, wish.url, wish.listen)
    place = place_between(roster) if at is None else free_place(roster, _place(grid, roster, at))
    return newcomer(grid, roster, told, Member(me, mine, place, relay=wish.relay), bound, tls), me


def _tls(wish: Wish, is_wss: bool) -> TlsSettings | None:
    """The files of a network that speaks TLS, all of which a broker of it needs."""
    given = {"--cert": wish.cert, "--key": wish.key, "--ca": wish.ca}
    for option, path in given.items():
        if path is not None and not is_wss:
            raise SettingsError(f"{option}: found it with {wish.join}, expected a wss:// URL with it")
        if path is not None and not path.is_file():
            raise SettingsError(f"{option}: found no file {path}, expected one in PEM")
    if not is_wss:
        return None
    if wish.cert is None or wish.key is None:
        raise SettingsError(
            f"--join: found {wish.join} without a certificate, expected --cert and --key: others dial this broker"
            " by wss:// too"
        )
    ca = None if wish.ca is None else str(wish.ca)
    tls = TlsSettings(cert_file=str(wish.cert), key_file=str(wish.key), ca_file=ca)
    try:
        server_tls(tls.cert_file, tls.key_file)
        client_tls(tls.ca_file)
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(
            f"--cert, --key, --ca: found {error}, expected a certificate, its key and an authority in PEM"
        ) from None
    return tls


async def _first_of(urls: list[str], tls: ssl.SSLContext | None) -> tuple[str, wire.Welcome]:
    """Whoever answers first, in order."""
    faults = []
    for url in urls:
        try:
            return url, await _asked(url, tls)
        except (LinkError, TimeoutError) as error:
            faults.append(str(error))
    raise LinkError("; ".join(faults))


async def _asked(url: str, tls: ssl.SSLContext | None) -> wire.Welcome:
    welcome, peer = await greet(url, wire.Hello(wire.VERSIONS, wire.NEWCOMER), tls=tls)
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
    bound = None if listen is None else _bound(listen)
    if url is None:
        scheme, there, port = parse_url("--join", join)
        try:
            with closing(socket.create_connection((there, port or USUAL_PORT), timeout=5)) as line:
                host = line.getsockname()[0]
        except OSError as error:
            raise SettingsError(
                f"--join: found {error.strerror or error} at {join}, expected it to answer"
            ) from None
        own = _free_port(host) if bound is None else bound[1]
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{own}"
    scheme, host, number = parse_url("--url", url)
    if number is None or host in NOWHERE:
        raise SettingsError(
            f"--url: found {url!r}, expected one that others can dial, such as ws://10.0.0.5:7400"
        )
    if (scheme == "wss") != join.startswith("wss://"):
        raise SettingsError(
            f"--url: found {url!r}, expected {urlsplit(join).scheme}://, as the network has it"
        )
    return url, bound or (host, number)


def parse_url(option: str, url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of a URL that somebody typed."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("ws", "wss") or not parts.hostname or port == -1:
        raise SettingsError(f"{option}: found {url!r}, expected one such as ws://10.0.0.5:7400")
    return parts.scheme, parts.hostname, port


def _bound(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise SettingsError(f"--listen: found {listen!r}, expected HOST:PORT such as 0.0.0.0:7400")
    return host.strip("[]"), int(port)


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
