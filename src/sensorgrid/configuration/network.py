"""The brokers of a grid: who they are, where they listen, what they own (``[network]`` of the configuration).

The file says as little as possible: ``brokers = 8`` makes eight on this machine, with a share of the regions
each. On several machines each broker has a table of its own. What the file says of brokers and regions is a roster
(`sensorgrid.overlay.roster`), with the version that the file gives it. A broker that reads a file with a larger version
replaces the roster of the whole network.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict

from sensorgrid.configuration.base import (
    Duration,
    FileSettings,
    GridSettings,
    SettingsError,
    Strict,
    absolute,
    faults_of,
    read_toml,
)
from sensorgrid.index.cell import Cell
from sensorgrid.index.layout import layout_of
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import BROKERS_MAX, PeerId
from sensorgrid.model.names import ERROR
from sensorgrid.overlay.geography import first_of
from sensorgrid.overlay.placement import responsible
from sensorgrid.overlay.roster import Member, Region, Roster, Terms
from sensorgrid.overlay.settings import Settings

NOWHERE = ("0.0.0.0", "::", "[::]")
"""addresses to listen on that cannot be dialled"""
CELLS_MAX = 128
"""of a query: each is a message per tick; finer cells would save brokers some padding between them"""
BEAT_S = 1.0
"""of open networks: a broker that dies is replaced after ten of them"""
OPEN_BACKOFF_MAX_S = 2.0
"""the same as below, where brokers change: the new owner is there before the old one is back"""
BACKOFF_MAX_S = 5.0
"""between tries to resume a query: people notice longer ones, and a try costs a broker little"""


class BrokerSettings(Strict):
    """``[[network.brokers]]``: one broker."""

    id: Annotated[int, Field(ge=0, lt=BROKERS_MAX)]
    """its number, different for each"""
    url: str
    """where others dial it, such as ws://10.0.0.5:7400"""
    listen: str | None = None
    """HOST:PORT to bind, if it is not what the url says"""
    regions: tuple[str, ...] | None = None
    """cells of space such as 0110; an equal share of the rest if left out; [] makes a pure relay"""
    inherits: tuple[str, ...] = ()
    """regions of others that it is to own in a later version: it takes them as a relay already"""


class TlsSettings(Strict):
    """``[network.tls]``."""

    cert_file: str
    """the brokers' certificate (PEM)"""
    key_file: str
    """and its key"""
    ca_file: str | None = None
    """certificate authority of brokers that are dialled; the system's if left out"""


class NetworkSettings(Strict):
    """``[network]``."""

    version: Annotated[int, Field(ge=1)] = 1
    """of what this table says of brokers and regions: a larger one replaces a smaller one while the network runs"""
    brokers: Annotated[int, Field(ge=1, le=1000)] | tuple[BrokerSettings, ...] = 1
    """how many on this machine, or a table for each"""
    host: str = "127.0.0.1"
    """of brokers that were only counted"""
    port: Annotated[int, Field(ge=1, le=65535)] = 7400
    """of the first of them; the others follow"""
    budget: Annotated[float, Field(gt=0)] = 100e6
    """bytes of values per second that a broker may send"""
    policy: Literal["ours", "ours-local", "paper", "never"] = "ours"
    """how load is spread"""
    relays: Literal["none", "direct", "ctd", "cts", "ffs", "ctp", "tree"] = "none"
    """how streams between brokers are brought together; see docs/relays.md"""
    compress: Literal["none", "lz4"] = "none"
    """values on connections whose other side offers it too"""
    waiting_bytes: Annotated[int, Field(ge=1 << 16)] = 16 << 20
    """bytes that may wait for a slow receiver; beyond that it is disconnected and may resume"""
    ring_ticks: Annotated[int, Field(ge=2)] = 64
    """recent ticks that a broker keeps for receivers that resume"""
    alive: Duration = 5.0
    """how often a silent connection says that it works; three times this without a word breaks it"""
    open: bool = False
    """brokers may join and leave while it runs, and others take over from those that die; the lake holds the roster"""
    tls: TlsSettings | None = None


class _NetworkFile(FileSettings):
    """The parts of a configuration that brokers need."""

    model_config = SettingsConfigDict(
        env_prefix="SENSORGRID_", env_nested_delimiter="__", extra="ignore", frozen=True
    )

    lake: str = "lake"
    grid: GridSettings = GridSettings()
    network: NetworkSettings = NetworkSettings()
    timing: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is."""

    url: str
    """that others dial"""
    host: str
    """to bind"""
    port: int


@dataclass(frozen=True, slots=True)
class Network:
    """The brokers of a grid, ready to be used."""

    grid: Grid
    """with a standard error for every attribute"""
    lake: str
    """where the history lies"""
    roster: Roster
    """who is there and who owns what, as the file has it; while a network runs, its brokers may know a newer one"""
    listens: dict[PeerId, tuple[str, int]]
    """host and port that each broker binds"""
    settings: Settings
    """of every broker"""
    options: NetworkSettings

    @property
    def addresses(self) -> dict[PeerId, Address]:
        """Where the brokers are."""
        return {
            m.id: Address(m.url, *self.listens[m.id]) for m in self.roster.members if m.id in self.listens
        }

    @property
    def regions(self) -> tuple[Region, ...]:
        """Who owns what."""
        return self.roster.regions


def with_errors(grid: Grid) -> Grid:
    """The grid that brokers carry: beside each attribute its standard error."""
    names = grid.attributes
    return replace(grid, attributes=(*names, *(name + ERROR for name in names)))


def read_network(path: str | Path) -> Network:
    """The brokers of a configuration."""
    content, folder = read_toml(path), Path(path).parent
    return network_of(content, str(path), folder)


def network_of(content: dict[str, Any], subject: str, folder: Path) -> Network:
    """The brokers of a configuration that has been read; paths in it are relative to `folder`."""
    try:
        found = _NetworkFile(**content)
        return build(found.grid.grid(), absolute(found.lake, folder), found.network, subject, folder)
    except ValidationError as error:
        raise SettingsError(f"{subject}: {faults_of(error, _NetworkFile)}") from None
    except SettingsError:
        raise
    except SensorGridError as error:
        raise SettingsError(f"{subject}: {error}") from None


def build(grid: Grid, lake: str, options: NetworkSettings, subject: str, folder: Path) -> Network:
    """Addresses, regions and settings from what the file says."""
    if isinstance(options.brokers, int):
        if options.host in NOWHERE:
            raise SettingsError(
                f"{subject}: network.host: found {options.host}, which nobody can dial, expected an address of this"
                " machine; or write a [[network.brokers]] table for each broker, with its url and what it listens on"
            )
        scheme = "wss" if options.tls else "ws"
        brokers = tuple(
            BrokerSettings(id=n, url=f"{scheme}://{options.host}:{options.port + n}")
            for n in range(options.brokers)
        )
    else:
        brokers = options.brokers
    if not brokers:
        raise SettingsError(f"{subject}: network.brokers: found none, expected one or more")
    if options.tls is not None:
        files: dict[str, Any] = {
            k: v if v is None else absolute(v, folder) for k, v in options.tls.model_dump().items()
        }
        options = options.model_copy(update={"tls": TlsSettings(**files)})
    listens: dict[PeerId, tuple[str, int]] = {}
    for broker in brokers:
        if broker.id in listens:
            raise SettingsError(f"{subject}: network.brokers: found id {broker.id} twice, expected each once")
        listens[PeerId(broker.id)] = _listens(broker, subject)
    carried = with_errors(grid)
    budget = options.budget / grid.value_bytes * grid.tick * (1 << grid.resolution_bits[2])
    lateness = min(options.ring_ticks // 2, 8)
    settings = Settings(
        budget=max(1, round(budget)),
        depth=min(20, layout_of(grid).digits),
        cells_max=CELLS_MAX,
        ring_ticks=options.ring_ticks,
        lateness_ticks=lateness,
        slack_ticks=min(4, options.ring_ticks - lateness - 1),
        alive_s=options.alive,
        backoff_max_s=OPEN_BACKOFF_MAX_S if options.open else BACKOFF_MAX_S,
        beat_s=BEAT_S if options.open else None,
    )
    if options.open:
        roster = _founded(carried, brokers, settings, options.version, subject)
        return Network(carried, lake, roster, listens, settings, options)
    regions = _regions(carried, brokers, options.version, subject)
    first: dict[PeerId, int] = {}
    for region in regions:
        place = first_of(region.cell, settings.depth)
        first[region.owner] = min(place, first.get(region.owner, place))
    members = tuple(Member(PeerId(b.id), b.url, first.get(PeerId(b.id), 0), settings.budget) for b in brokers)
    roster = Roster(options.version, Terms.of(carried, settings), members, regions)
    return Network(carried, lake, roster, listens, settings, options)


def _founded(
    grid: Grid, brokers: tuple[BrokerSettings, ...], settings: Settings, version: int, subject: str
) -> Roster:
    """The first roster of an open network: places at equal distances, and whatever lies behind them."""
    for broker in brokers:
        if broker.regions or broker.inherits:
            raise SettingsError(
                f"{subject}: network.brokers: found regions of broker {broker.id} and open = true, expected one of"
                " them: in an open network regions follow from the places of brokers"
            )
    if version != 1:
        raise SettingsError(
            f"{subject}: network.version: found {version} and open = true, expected one of them: the lake of an open"
            " network holds its versions"
        )
    owners = [broker for broker in brokers if broker.regions is None]
    if not owners:
        raise SettingsError(f"{subject}: network.brokers: found relays only, expected an owner of regions")
    places = {b.id: n * (1 << settings.depth) // len(owners) for n, b in enumerate(owners)}
    members = tuple(
        Member(PeerId(b.id), b.url, places.get(b.id, 0), settings.budget, relay=b.id not in places)
        for b in brokers
    )
    count, first = 1 << grid.region_digits, PeerId(owners[0].id)
    regions = tuple(
        Region(attribute, cell, first, 1)
        for attribute in range(len(grid.attributes))
        for cell in range(count, 2 * count)
    )
    roster = Roster(1, Terms.of(grid, settings), members, regions)
    owner = responsible(roster)
    return replace(
        roster, regions=tuple(Region(r.attribute, r.cell, owner[r.attribute, r.cell], 1) for r in regions)
    )


def newcomer(
    grid: Grid,
    roster: Roster,
    told: dict[str, Any],
    me: Member,
    listen: tuple[str, int],
    tls: TlsSettings | None,
) -> Network:
    """What a broker that joins an open network needs, from what another one told it."""
    options = NetworkSettings(**told["options"], tls=tls)
    budget = me.capacity or max((m.capacity for m in roster.members), default=1)
    settings = replace(roster.terms.settings(budget), beat_s=BEAT_S)
    joined = Member(me.id, me.url, me.place, budget, relay=me.relay)
    members = tuple(m for m in roster.members if m.id != me.id)
    return Network(
        grid, told["lake"], replace(roster, members=(*members, joined)), {me.id: listen}, settings, options
    )


def _listens(broker: BrokerSettings, subject: str) -> tuple[str, int]:
    where = f"{subject}: network.brokers: url of broker {broker.id}"
    parts = urlsplit(broker.url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("ws", "wss") or not parts.hostname or port is None or port < 1:
        raise SettingsError(f"{where}: found {broker.url!r}, expected one such as ws://10.0.0.5:7400")
    if parts.hostname in NOWHERE:
        raise SettingsError(
            f"{where}: found {broker.url!r}, which nobody can dial, expected an address of its machine;"
            " listen says what it binds"
        )
    if broker.listen is None:
        return parts.hostname, port
    host, _, own = broker.listen.rpartition(":")
    if not host or not own.isdigit():
        raise SettingsError(f"{where}: listen: found {broker.listen!r}, expected HOST:PORT")
    return host, int(own)


def _regions(
    grid: Grid, brokers: tuple[BrokerSettings, ...], version: int, subject: str
) -> tuple[Region, ...]:
    """Every region of every attribute with its owner; regions that no broker claims are shared out in order.

    The file does not say who owned a region before. So all epochs rise with its version.
    """
    count = 1 << grid.region_digits
    owner: dict[int, int] = {}
    heir: dict[int, PeerId] = {}
    for broker in brokers:
        for name in broker.inherits:
            code = _region(name, grid, subject)
            if code in heir:
                raise SettingsError(
                    f"{subject}: network.brokers: found two heirs of region {name}, expected one"
                )
            heir[code] = PeerId(broker.id)
        for name in broker.regions or ():
            code = _region(name, grid, subject)
            if code in owner:
                raise SettingsError(
                    f"{subject}: network.brokers: found region {name} twice, expected one owner"
                )
            owner[code] = broker.id
    rest = [code for code in range(count, 2 * count) if code not in owner]
    sharing = [broker.id for broker in brokers if broker.regions is None]
    if rest and not sharing:
        raise SettingsError(
            f"{subject}: network.brokers: found no owner for region {Cell(rest[0])!s}"
            f" and {len(rest) - 1} more, expected one for each, or a broker without 'regions'"
        )
    for place, code in enumerate(rest):
        owner[code] = sharing[place * len(sharing) // len(rest)]
    return tuple(
        Region(attribute, code, PeerId(owner[code]), version, heir.get(code))
        for attribute in range(len(grid.attributes))
        for code in sorted(owner)
    )


def _region(name: str, grid: Grid, subject: str) -> int:
    digits = grid.region_digits
    if len(name) != digits or set(name) - {"0", "1"}:
        raise SettingsError(
            f"{subject}: network.brokers.regions: found {name!r}, expected {digits} binary digits (region_digits)"
        )
    return 1 << digits | int(name or "0", 2)
