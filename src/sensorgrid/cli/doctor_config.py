"""What a configuration needs to run: valid, sources and brokers within reach, ports free, a lake, certificates."""

import asyncio
import difflib
import glob
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from sensorgrid import __version__
from sensorgrid.cli.doctor_machine import Finding, Status
from sensorgrid.configuration.base import read_toml
from sensorgrid.configuration.network import Network, read_network
from sensorgrid.links import wire
from sensorgrid.model.errors import SensorGridError

PATIENCE_S = 2.0
DISK_BYTES = (500 << 20, 5 << 30)
"""below the first nothing should be started; below the second an operator should look"""
EXPIRY_DAYS = 30
_PARTIAL_CHAIN = 0x80000
"""OpenSSL: a certificate that is trusted by itself needs no root"""


def check(path: Path, records: int = 0) -> Iterator[Finding]:
    """Look at everything that a configuration names, and parse so many records of each source."""
    from sensorgrid.pipeline.settings import read_settings

    try:
        content = read_toml(path)
        settings = read_settings(path)
    except SensorGridError as error:
        yield Finding("fail", "configuration", str(error), "one as in docs/pipeline.md and docs/runtime.md")
        return
    yield Finding("ok", "configuration", str(path))
    yield from _attributes(settings)
    yield from _areas(settings)
    usable = True
    for finding in _sources(settings):
        usable = usable and (finding.subject != "mappings" or finding.status != "fail")
        yield finding
    if records and settings.sources and usable:
        from sensorgrid.cli.doctor_records import check_records

        yield from check_records(settings, records)
    yield from _lake(settings)
    yield _disk(settings)
    if "network" not in content:
        yield Finding("ok", "network", "no [network]: grids go to the lake only")
        return
    try:
        network = read_network(path)
    except SensorGridError as error:
        yield Finding("fail", "network", str(error), "brokers as in docs/runtime.md")
        return
    yield from _spread(network)
    if network.options.tls is not None:
        yield from _tls(network)
    for number, address in network.addresses.items():
        yield _broker(network, int(number), address)


def _spread(network: Network) -> Iterator[Finding]:
    """Whether there are regions enough for all brokers, and the roster of an open network."""
    from sensorgrid.runtime.rosters import RosterStore, StoreError

    count = 1 << network.grid.region_digits
    roster = network.roster
    if network.options.open:
        try:
            roster = RosterStore(network.lake).newest() or roster
            yield Finding("ok", "roster", f"version {roster.version}, {len(roster.members)} brokers")
        except StoreError as error:
            yield Finding("fail", "roster", str(error))
            return
    owners = (
        sum(not member.relay for member in roster.members) if network.options.open else len(roster.by_owner)
    )
    if count < owners or (network.options.open and count < 2 * owners):
        yield Finding(
            "warn", "regions", f"{count} for {owners} brokers",
            "twice as many or more, so that load can be spread: a larger region_digits in [grid] of a new lake",
        )  # fmt: skip


# sources


def _attributes(settings: Any) -> Iterator[Finding]:
    """Names that are not in the table: allowed, and more often a slip."""
    from sensorgrid.pipeline.ingest.attributes import KNOWN

    for name in settings.grid.attributes:
        close = difflib.get_close_matches(name, KNOWN, n=1)
        if name not in KNOWN:
            hint = f"{close[0]}, if that is meant; else" if close else "no limits or unit to be checked;"
            yield Finding(
                "warn", "attributes", f"{name}, which is not in the table (docs/reference.md)",
                f"{hint} everything about it is learnt from data",
            )  # fmt: skip


def _areas(settings: Any) -> Iterator[Finding]:
    """Areas that operators name: whether each can be read, and meets the grid."""
    from sensorgrid.operators.weights import clip

    book, grid = settings.areas_of(), settings.grid.grid()
    for name in book:
        try:
            met = clip(book[name], grid)
        except SensorGridError as error:
            yield Finding("fail", f"area {name}", str(error), "a box, a polygon or GeoJSON")
            continue
        if met is None:
            yield Finding("fail", f"area {name}", "no point of the grid in it", f"one within {grid.extent}")
        else:
            share = met.total / float(clip(None, grid).total)  # type: ignore[union-attr]
            yield Finding("ok", f"area {name}", f"{met.points:,} points, {share:.2%} of the grid")


def _sources(settings: Any) -> Iterator[Finding]:
    from sensorgrid.pipeline.ingest.inlet import check_sources, name_of

    if not settings.sources:
        yield Finding("warn", "sources", "none", "one [[sources]] or more")
    try:
        check_sources(settings)
        yield Finding("ok", "mappings", f"of {len(settings.sources)} sources are valid")
    except (SensorGridError, OSError) as error:
        yield Finding("fail", "mappings", str(error), "mappings that can be used")
    for source in settings.sources:
        subject = f"source {name_of(source)}"
        if source.kind == "files":
            yield _folder(subject, source.path)
        for host, port in _hosts(source):
            fault = _unreachable(host, port)
            status: Status = "fail" if fault else "ok"
            yield Finding(status, subject, f"{host}:{port} {fault or 'answers'}", f"{source.kind} there")


def _folder(subject: str, path: str) -> Finding:
    if "://" in path or glob.glob(path, recursive=True):
        return Finding("ok", subject, path)
    return Finding("warn", subject, f"nothing at {path}", "a file or a folder, at the latest when it runs")


def _hosts(source: Any) -> list[tuple[str, int]]:
    """Servers of a source."""
    if source.kind == "mqtt":
        return [(source.host, source.port)]
    if source.kind not in ("nats", "kafka"):
        return []
    usual, found = (4222 if source.kind == "nats" else 9092), []
    for text in source.servers.split(","):
        parts = urlsplit(text.strip() if "://" in text else f"//{text.strip()}")
        try:
            port = parts.port or usual
        except ValueError:
            port = 0  # nobody answers there
        found.append((parts.hostname or "localhost", port))
    return found


def _unreachable(host: str, port: int) -> str:
    """Why no broker answers; empty if one does."""
    try:
        socket.create_connection((host, port), PATIENCE_S).close()
    except OSError as error:
        return f"does not answer ({error})"
    return ""


# the lake


def _lake(settings: Any) -> Iterator[Finding]:
    from sensorgrid.pipeline.delivery.waiting import WaitingFolder
    from sensorgrid.pipeline.lake.folder import Lake

    lake, grid, subject = Lake(settings.lake), settings.grid.grid(), "lake"
    if "://" not in settings.lake and not Path(settings.lake).exists():
        parent = next(p for p in Path(settings.lake).parents if p.exists())
        yield _writable(subject, str(parent), f"none yet at {settings.lake}")
        return
    try:
        if lake.is_vacant():
            yield _writable(subject, settings.lake, f"none yet at {settings.lake}")
            return
        lake.check()
        newest = lake.newest_tick()
        plan = lake.plan()
    except (SensorGridError, OSError, ValueError) as error:
        yield Finding("fail", subject, str(error), "a lake of ours, or nothing")
        return
    yield _writable(subject, settings.lake, settings.lake)
    if plan is not None and plan.grid != grid:
        yield Finding("warn", "plan", "for another grid", "the grid of the configuration, or more attributes")
    if lake.has_tiles():
        age_s = time.time() - grid.time_of(newest + 1).timestamp()
        when = f"{grid.time_of(newest):%Y-%m-%d %H:%M:%S}"
        ahead = age_s < -grid.tick
        found = f"{when}, {'ahead of this clock by' if ahead else 'ended'} {abs(age_s):,.0f} s{'' if ahead else ' ago'}"
        yield Finding("warn" if ahead else "ok", "newest tick", found, "the past, by this machine's clock")
    counts = WaitingFolder(settings.waiting_of(), "stream").counts()
    if counts.waiting:
        regions = ", ".join(sorted(counts.regions))
        yield Finding(
            "warn", "waiting", f"{counts.waiting:,} grids of regions {regions}", "none: see gateways"
        )


def _writable(subject: str, folder: str, found: str) -> Finding:
    if "://" in folder:
        return Finding("ok", subject, f"{found} (writing was not tried)")
    probe = Path(folder, f".doctor-{uuid4().hex}")
    try:
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        return Finding(
            "fail", subject, f"{folder} cannot be written: {error}", "a folder that can be written"
        )
    return Finding("ok", subject, f"{found}, can be written")


def _disk(settings: Any) -> Finding:
    if "://" in settings.lake:
        return Finding("ok", "disk", "not checked for a URI")
    place = next(p for p in (Path(settings.lake), *Path(settings.lake).parents) if p.exists())
    free, grid = shutil.disk_usage(place).free, settings.grid.grid()
    day = grid.shape[0] * grid.shape[1] * 8 * len(grid.attributes) * 86400 / grid.tick
    least = max(DISK_BYTES[1], 7 * day)
    status: Status = "fail" if free < DISK_BYTES[0] else "warn" if free < least else "ok"
    return Finding(
        status,
        "disk",
        f"{free / 1e9:.1f} GB free",
        f"{least / 1e9:.1f} GB: a day is {day / 1e9:.2f} GB at most",
    )


# brokers


def _broker(network: Network, number: int, address: Any) -> Finding:
    """Free, or one of ours that runs already."""
    subject = f"broker {number}"
    host = "127.0.0.1" if address.host in ("0.0.0.0", "::") else address.host
    fault = _unreachable(host, address.port)
    if fault:
        try:
            with socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address.host, address.port))
        except OSError as error:
            expected = "a broker there, or a free port here"
            return Finding("fail", subject, f"{address.host}:{address.port} {fault}; {error}", expected)
        return Finding("ok", subject, f"{address.host}:{address.port} is free")
    return _running(network, number, address)


def _running(network: Network, number: int, address: Any) -> Finding:
    from sensorgrid.pipeline.delivery.gateway import Entrance, greet

    subject, tls = f"broker {number}", network.options.tls
    entrance = Entrance((address.url,), tls.ca_file if tls else None, PATIENCE_S)
    expected = f"broker {number} of this grid, or a free port"
    try:
        welcome = asyncio.run(greet(entrance, address.url))
    except (SensorGridError, OSError) as error:
        return Finding("fail", subject, f"something else listens: {error}", expected)
    if welcome.id != number:
        return Finding("fail", subject, f"broker {welcome.id} at {address.url}", expected)
    if wire.fingerprint(wire.grid_from(welcome.grid)) != wire.fingerprint(network.grid):
        return Finding("fail", subject, f"a broker of another grid at {address.url}", expected)
    if welcome.software and __version__ not in welcome.software:
        return Finding("warn", subject, f"runs {welcome.software}", f"sensorgrid {__version__}, as here")
    return Finding("ok", subject, f"runs at {address.url} ({welcome.software or 'no version told'})")


# certificates


def _tls(network: Network) -> Iterator[Finding]:
    tls = network.options.tls
    assert tls is not None
    for name, path in (("cert_file", tls.cert_file), ("key_file", tls.key_file), ("ca_file", tls.ca_file)):
        if path is not None and not Path(path).is_file():
            yield Finding("fail", f"tls {name}", f"nothing at {path}", "a file")
            return
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(tls.cert_file, tls.key_file)
    except (ssl.SSLError, OSError) as error:
        yield Finding("fail", "tls", f"certificate and key: {error}", "a certificate and its own key (PEM)")
        return
    yield Finding("ok", "tls", "certificate and key belong together")
    by_itself = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    by_itself.check_hostname = False
    by_itself.verify_flags |= ssl.VerifyFlags(_PARTIAL_CHAIN)
    by_itself.load_verify_locations(tls.cert_file)
    try:
        yield _expiry(_certificate(server, by_itself))
    except ssl.SSLError as error:
        yield Finding("fail", "tls certificate", _reason(error), "a valid one")
        return
    for host in sorted({urlsplit(a.url).hostname or "" for a in network.addresses.values()}):
        try:
            _certificate(server, ssl.create_default_context(cafile=tls.ca_file), host)
            yield Finding("ok", "tls trust", f"the certificate is good for {host}")
        except ssl.SSLError as error:
            expected = "signed by ca_file, or by one that the system trusts, for this name"
            yield Finding("fail", "tls trust", f"{host}: {_reason(error)}", expected)


def _reason(error: ssl.SSLError) -> str:
    return str(getattr(error, "verify_message", "") or error)


def _expiry(certificate: dict[str, Any]) -> Finding:
    end = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
    days = (end - datetime.now(UTC)).days
    status: Status = "ok" if days >= EXPIRY_DAYS else "warn"
    return Finding(
        status, "tls certificate", f"ends in {days} days ({end:%Y-%m-%d})", f"{EXPIRY_DAYS} or more"
    )


def _certificate(server: ssl.SSLContext, client: ssl.SSLContext, host: str | None = None) -> dict[str, Any]:
    """What a client sees of a server, by a handshake in memory.

    Raises
    ------
    ssl.SSLError
        If the client does not trust it.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=host),
        server.wrap_bio(there, back, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    return dict(ends[0].getpeercert() or {})
