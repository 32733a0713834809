"""The configuration of a pipeline: one TOML file, overridden by the environment, checked once, at the start.

``SENSORGRID_SPARK__MASTER=spark://host:7077`` overrides ``master`` of ``[spark]``; two underscores go one level
down. Secrets stand in the environment only: the file names the variable. Relative paths are relative to the file.
"""

import math
from pathlib import Path
from re import fullmatch
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import SettingsConfigDict

from sensorgrid.configuration.areas import AreaBook, AreaSettings, check_names
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
from sensorgrid.configuration.network import NetworkSettings, build, with_errors
from sensorgrid.links.wire import fingerprint
from sensorgrid.model.errors import GridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.delivery.gateway import Entrance, GatewaySink
from sensorgrid.pipeline.delivery.publish import LoopbackSink, NoSink, Sink
from sensorgrid.pipeline.gridding.book import Timing
from sensorgrid.pipeline.gridding.coverage import Gaps
from sensorgrid.pipeline.gridding.groups import groups_of
from sensorgrid.pipeline.gridding.kernels import DEFAULT, KERNELS
from sensorgrid.pipeline.gridding.series import SeriesLimits
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.ingest.quality import Limits

TRIGGER_MS = (500, 2000)
"""shortest and longest time between micro-batches that is chosen by itself"""


class TimingSettings(Strict):
    """``[timing]``: when a tick is published and how long it may change."""

    settle: Duration | None = None
    """after the end of a tick; a tenth of a tick, at least a second, if left out"""
    lateness: Duration | None = None
    """two ticks if left out"""
    max_age: Duration | None = None
    """twelve ticks if left out"""


class OwnGridding(Strict):
    """``[gridding.NAME]``: what is known of an attribute better than from the data; in its canonical unit."""

    transform: Literal["identity", "log", "bounded"] | None = None
    """what values go through before anything is computed; chosen by hold-outs if left out"""
    mean: float | None = None
    """the value to expect where nothing is known"""
    spread: Annotated[float, Field(gt=0)] | None = None
    """and its error"""
    length: Annotated[float, Field(gt=0)] | None = None
    """distance over which values are alike, in metres"""
    noise: Annotated[float, Field(ge=0)] | None = None
    """error of one observation"""
    gaps: Literal["prior", "nan", "hold"] | None = None
    """instead of that of ``[gridding]``"""


class GriddingSettings(Strict):
    """``[gridding]``: how grids are made."""

    kernel: str = DEFAULT
    """how values between sensors are found; see docs/gridding.md"""
    halo: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
    """metres around each region, or as wide as the density of sensors asks for"""
    calibrate: bool = True
    """whether parameters are fitted to the data; otherwise priors are used"""
    calibrate_every: Duration = 6 * 3600.0
    """how often a stream looks at halos and parameters again"""
    ready_within: Annotated[float, Field(gt=0)] = 0.8
    """part of a tick that gridding may take before the cheaper kernel is chosen"""
    elevation: str | None = None
    """a file of heights of the ground (NetCDF, Zarr, GeoTIFF), for values that follow the elevation of sensors"""
    covariates: dict[str, str] = Field(default_factory=dict)
    """files of what else values may follow, by a name of your own, such as distance to the coast; also for sensors"""
    gaps: Literal["prior", "nan", "hold"] = "prior"
    """what stands where no observation is within reach: what is known beforehand, nothing, or the last grid that had
    one, with a growing error"""
    hold: Duration | None = None
    """for how long, with ``gaps = "hold"``; twice `max_age` of ``[timing]`` if left out"""
    attributes: dict[str, OwnGridding] = Field(default_factory=dict)
    """by attribute; ``[gridding.NAME]`` in the file"""

    def gaps_of(self, attribute: str) -> Gaps:
        """What stands in the gaps of an attribute."""
        own = self.attributes.get(attribute)
        return self.gaps if own is None or own.gaps is None else own.gaps

    @model_validator(mode="before")
    @classmethod
    def _tables(cls, found: Any) -> Any:
        """Tables of attributes stand beside the other keys in the file."""
        if not isinstance(found, dict):
            return found
        own = {k: v for k, v in found.items() if isinstance(v, dict) and k not in cls.model_fields}
        rest = {k: v for k, v in found.items() if k not in own}
        return rest | {"attributes": {**rest.get("attributes", {}), **own}} if own else rest

    @model_validator(mode="after")
    def _check_covariates(self) -> "GriddingSettings":
        for name in self.covariates:
            if not fullmatch(r"[A-Za-z0-9_-]+", name):
                raise ValueError(f"covariates: found {name!r}, expected a name of letters, digits, _ and -")
        return self

    @model_validator(mode="after")
    def _check_transforms(self) -> "GriddingSettings":
        for name, own in self.attributes.items():
            known = KNOWN.get(name)
            lowest, highest = (None, None) if known is None else known.physical
            if own.transform == "bounded" and (lowest is None or highest is None):
                raise ValueError(
                    f"{name}.transform: found 'bounded', expected 'identity' or 'log': it has no limits on both sides"
                )
            if own.transform == "log" and known is not None and lowest is None:
                raise ValueError(
                    f"{name}.transform: found 'log', expected 'identity': values below zero have no logarithm"
                )
        return self


class AttributeSettings(Strict):
    """``[quality.attributes.NAME]``: limits instead of the usual ones, in canonical units."""

    gross: tuple[float, float] | None = None
    """values outside fail"""
    usual: tuple[float, float] | None = None
    """values outside are suspect"""
    step: float | None = None
    """larger jumps between two consecutive reports are suspect"""
    rate: float | None = None
    """faster changes are suspect, per hour"""
    spike: float | None = None
    """a value that leaves both neighbours in time by more is suspect"""
    flat: Duration | None = None
    """an unchanged value for longer is suspect; 0 switches the check off"""
    noise: float | None = None
    """usual error of one report, one standard deviation"""


class QualitySettings(Strict):
    """``[quality]``."""

    future: Duration = 600.0
    """clocks of sensors may be ahead by so much"""
    attributes: dict[str, AttributeSettings] = Field(default_factory=dict)
    """limits by attribute: see below"""


class FileSource(Strict):
    """Files that lie in a folder or arrive there."""

    kind: Literal["files"]
    name: str = ""
    """in letters and messages; the kind if left out"""
    path: str
    """a folder, a file or a pattern"""
    mapping: str = ""
    """a shipped one by name, or a file; the one of the format if left out"""
    format: Literal["metar", "bufr"] | None = None
    """raw METAR reports or BUFR messages, with the mapping that is shipped for them"""
    stations: str | None = None
    """a station table, instead of the mapping's"""
    learn_stations: bool = False
    """take positions and aliases from the feed itself (backfill and replay)"""
    max_files: Annotated[int, Field(ge=1)] = 100_000
    """files of one micro-batch; what waits beyond that after an outage comes when its tick may be closed"""

    @model_validator(mode="after")
    def _find_mapping(self) -> "FileSource":
        if not self.mapping and self.format is None:
            raise ValueError("mapping: found none, expected a shipped one by name, a file, or format")
        if self.mapping and self.format is not None:
            raise ValueError(
                "mapping and format: found both, expected one: the mapping's file says the format"
            )
        if self.format is not None:
            object.__setattr__(self, "mapping", {"metar": "metar_raw", "bufr": "bufr"}[self.format])
        return self


class MqttSource(Strict):
    """A topic of an MQTT server, by way of the landing daemon."""

    kind: Literal["mqtt"]
    name: str = ""
    """in letters and messages; the kind if left out"""
    host: str = "localhost"
    """of the server"""
    port: int = 1883
    """of the server; with TLS usually 8883"""
    topics: tuple[str, ...]
    """filters such as sensors/+/temperature"""
    mapping: str = "plain_json"
    """a shipped one by name, or a file"""
    stations: str | None = None
    """a station table, instead of the mapping's"""
    landing: str | None = None
    """folder for what has been received and not yet read; "landing-" and the source's name if left out"""
    client_id: str | None = None
    """under which the server keeps the session; "sensorgrid-" and the source's name if left out"""
    username_env: str | None = None
    """name of the environment variable that holds it"""
    password_env: str | None = None
    """likewise"""
    ca_file: str | None = None
    """certificates to trust; the system's if left out"""
    cert_file: str | None = None
    """our own certificate, where the server wants one"""
    key_file: str | None = None
    """and its key"""
    tls: bool = False
    """encrypt; implied by any of the files"""
    daemon: bool = True
    """whether `pipeline run` starts the landing daemon; otherwise `pipeline land` runs elsewhere"""
    max_files: Annotated[int, Field(ge=1)] = 100_000
    """landed files of one micro-batch"""


class NatsSource(Strict):
    """A NATS JetStream stream."""

    kind: Literal["nats"]
    name: str = ""
    """in letters and messages; the kind if left out"""
    servers: str = "nats://localhost:4222"
    """URLs with commas between them"""
    stream: str
    """its name; it must exist, with retention by limits"""
    subject: str | None = None
    """filter such as sensors.*.temperature; everything if left out"""
    mapping: str = "plain_json"
    """a shipped one by name, or a file"""
    stations: str | None = None
    """a station table, instead of the mapping's"""
    options: dict[str, str] = Field(default_factory=dict)
    """further options of the source: limits, names of environment variables for credentials and TLS"""


class KafkaSource(Strict):
    """A Kafka topic, through Spark's own connector."""

    kind: Literal["kafka"]
    name: str = ""
    """in letters and messages; the kind if left out"""
    servers: str
    """HOST:PORT with commas between them"""
    topics: str
    """names with commas between them"""
    mapping: str = "plain_json"
    """a shipped one by name, or a file"""
    stations: str | None = None
    """a station table, instead of the mapping's"""
    options: dict[str, str | int] = Field(default_factory=dict)
    """further options of the source"""


class SyntheticSource(Strict):
    """The synthetic earth."""

    kind: Literal["synthetic"]
    name: str = ""
    """in letters and messages; the kind if left out"""
    options: dict[str, str | int | float] = Field(default_factory=dict)
    """seed, stations, attributes, start, until and others: `sensorgrid.pipeline.sources.synthetic` lists them"""


AnySource = Annotated[
    FileSource | MqttSource | NatsSource | KafkaSource | SyntheticSource, Field(discriminator="kind")
]


class SinkSettings(Strict):
    """``[sink]``: where grids go beside the lake."""

    kind: Literal["none", "loopback", "gateway"] | None = None
    """left out: gateway if the file has ``[network]``, otherwise none"""
    folder: str = "published"
    """of loopback"""
    urls: tuple[str, ...] = ()
    """of brokers, one of which tells who owns what; those of ``[network]`` if left out"""
    ca_file: str | None = None
    """of their certificates; that of ``[network.tls]`` if left out"""
    patience: Duration = 2.0
    """how long a micro-batch waits for gateways; what they have not acknowledged then goes to the courier"""


class SparkSettings(Strict):
    """``[spark]``."""

    master: str = "local[*]"
    """local[N], spark://host:port, or sc://host:port for Connect"""
    driver_memory: str = "1500m"
    """of Java"""
    trigger: Duration | None = None
    """between two micro-batches; like `settle`, but 2 s at most, if left out"""
    conf: dict[str, str] = Field(default_factory=dict)
    """any other setting of Spark"""


class RetentionSettings(Strict):
    """``[retention]``: how long things are kept; nothing is removed where nothing is said."""

    tiles: Duration | None = None
    """grids; for ever if left out"""
    letters: Duration | None = None
    """what was refused; for ever if left out"""
    landing: Duration | None = 7 * 86400.0
    """MQTT messages that have been read; files that have not been read stay"""
    compact_every: Duration = 3600.0
    """how often a stream joins small files"""


class PipelineSettings(FileSettings):
    """The whole file."""

    model_config = SettingsConfigDict(
        env_prefix="SENSORGRID_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    lake: str = "lake"
    """a folder or URI for the history of the grids"""
    checkpoint: str | None = None
    """beside the lake if left out"""
    grid: GridSettings = GridSettings()
    timing: TimingSettings = TimingSettings()
    gridding: GriddingSettings = GriddingSettings()
    quality: QualitySettings = QualitySettings()
    areas: dict[str, AreaSettings] = Field(default_factory=dict)
    """parts of the grid that expressions of operators can name"""
    sources: tuple[AnySource, ...] = ()
    sink: SinkSettings = SinkSettings()
    network: NetworkSettings | None = None
    """brokers that the grids go to; see docs/runtime.md"""
    spark: SparkSettings = SparkSettings()
    retention: RetentionSettings = RetentionSettings()

    def areas_of(self) -> AreaBook:
        """Areas by name."""
        return AreaBook(self.areas)

    def timing_of(self, grid: Grid) -> Timing:
        """Times, with defaults that depend on the tick."""
        given, gridding = self.timing, self.gridding
        max_age_s = 12 * grid.tick if given.max_age is None else given.max_age
        hold_s = 2 * max_age_s if gridding.hold is None else gridding.hold
        held = any(gridding.gaps_of(name) == "hold" for name in grid.attributes)
        return Timing(
            settle_s=max(1.0, grid.tick / 10) if given.settle is None else given.settle,
            lateness_s=2 * grid.tick if given.lateness is None else given.lateness,
            max_age_s=max_age_s,
            hold_s=hold_s if held else 0.0,
        )

    def trigger_of(self, grid: Grid) -> float:
        """Seconds between two micro-batches. Spark counts them from 1970 on, as ticks are: with a whole part of both
        `settle` and the tick, one begins just when a tick falls due. The longest such part is taken, or any if all
        of them are too short."""
        if self.spark.trigger is not None:
            return self.spark.trigger
        settle_s = self.timing_of(grid).settle_s or 1.0
        whole = math.gcd(
            round(settle_s * 1e3), round(grid.tick * 1e3)
        )  # Spark knows no less than milliseconds
        parts = (ms for ms in range(min(TRIGGER_MS[1], whole), TRIGGER_MS[0] - 1, -1) if whole % ms == 0)
        return next(parts, min(TRIGGER_MS[1], 1e3 * settle_s)) / 1e3

    def limits(self) -> Limits:
        """Limits for single measurements."""
        given = self.quality.attributes
        return Limits(
            gross={n: a.gross for n, a in given.items() if a.gross is not None},
            usual={n: a.usual for n, a in given.items() if a.usual is not None},
            future_s=self.quality.future,
        )

    def series_limits(self, grid: Grid) -> dict[str, SeriesLimits]:
        """Limits for series of measurements, by attribute."""
        names = {name for group in groups_of(grid.attributes) for name in group.inputs}
        return {name: _series(name, self.quality.attributes.get(name)) for name in sorted(names)}

    def sink_of(self) -> Sink:
        """The sink."""
        if self.sink.kind == "loopback":
            return LoopbackSink(self.sink.folder)
        entrance = self.entrance_of()
        return NoSink() if entrance is None else GatewaySink(entrance)

    def entrance_of(self) -> Entrance | None:
        """The way to the brokers, if grids go there."""
        kind = self.sink.kind or ("none" if self.network is None else "gateway")
        if kind != "gateway":
            return None
        grid, urls, ca_file = self.grid.grid(), self.sink.urls, self.sink.ca_file
        if self.network is not None:
            network = build(grid, self.lake, self.network, "network", Path())
            urls = urls or tuple(address.url for address in network.addresses.values())
            ca_file = ca_file or (self.network.tls.ca_file if self.network.tls else None)
        if not urls:
            raise SettingsError("sink.urls: found none, expected urls of brokers, or [network] in the file")
        return Entrance(urls, ca_file, self.sink.patience, fingerprint(with_errors(grid)))

    def checkpoint_of(self) -> str:
        """Where Spark keeps what it must not forget."""
        return self.checkpoint or self.lake.rstrip("/") + ".checkpoint"

    def waiting_of(self) -> str:
        """Where the list of grids is that gateways have not taken yet: the lake's, as their values are there."""
        return self.lake.rstrip("/") + ".waiting"


def _series(name: str, given: AttributeSettings | None) -> SeriesLimits:
    """Limits of one attribute; of an unknown one nothing is asked but what the file says."""
    known = KNOWN.get(name)
    usual = (known.step, known.rate, known.spike, known.flat_s, known.noise) if known else _NO_LIMITS
    own = (given.step, given.rate, given.spike, given.flat, given.noise) if given else (None,) * 5
    return SeriesLimits(*(u if o is None else o for o, u in zip(own, usual, strict=True)))


_NO_LIMITS = (1e300, 1e300, 1e300, 0.0, 0.0)


def read_settings(path: str | Path) -> PipelineSettings:
    """Read and check a configuration."""
    return settings_of(read_toml(path), str(path), Path(path).parent)


def settings_of(content: dict[str, Any], subject: str, folder: Path) -> PipelineSettings:
    """Check a configuration that has been read; paths in it are relative to `folder`."""
    content = _resolved(content, folder)
    try:
        found = PipelineSettings(**content)
        grid = found.grid.grid()
    except ValidationError as error:
        raise SettingsError(f"{subject}: {faults_of(error, PipelineSettings)}") from None
    except GridError as error:
        raise SettingsError(f"{subject}: grid.{error}") from None
    for name in found.quality.attributes:
        if name not in found.series_limits(grid):
            raise SettingsError(
                f"{subject}: quality.attributes.{name}: found no such attribute in the grid,"
                f" expected one of {', '.join(found.series_limits(grid))}"
            )
    for name in found.gridding.attributes:
        if name not in grid.attributes:
            raise SettingsError(
                f"{subject}: gridding.{name}: found no such attribute in the grid, expected one of"
                f" {', '.join(grid.attributes)}, or a key of [gridding]"
            )
    check_names(found.areas, subject)
    wind = {"eastward_wind", "northward_wind"} & set(grid.attributes)
    if len(wind) == 1 or {"wind_speed", "wind_from_direction"} & set(grid.attributes):
        raise SettingsError(
            f"{subject}: grid.attributes: found {', '.join(grid.attributes)}, expected wind as eastward_wind and"
            " northward_wind; speed and direction of measurements become these"
        )
    if found.gridding.kernel not in KERNELS:
        raise SettingsError(
            f"{subject}: gridding.kernel: found {found.gridding.kernel!r}, expected one of {', '.join(KERNELS)}"
        )
    try:
        found.entrance_of()
    except SettingsError as error:
        raise SettingsError(f"{subject}: {error}") from None
    timing = found.timing_of(grid)
    if not timing.max_age_s >= grid.tick:
        raise SettingsError(
            f"{subject}: timing.max_age: found {timing.max_age_s:g} s, expected a tick or more"
        )
    if round(grid.tick * 1e6) != grid.tick * 1e6:
        raise SettingsError(f"{subject}: grid.tick: found {grid.tick}, expected whole microseconds")
    return found


def _resolved(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Relative paths made absolute; URIs and names of shipped mappings stay as they are."""

    def path(text: str) -> str:
        return absolute(text, folder)

    fixed = {"lake": "lake"} | content
    for key in ("lake", "checkpoint"):
        if isinstance(fixed.get(key), str):
            fixed[key] = path(fixed[key])
    if isinstance(fixed.get("sink"), dict):
        fixed["sink"] = fixed["sink"] | {"folder": path(fixed["sink"].get("folder", "published"))}
        if isinstance(fixed["sink"].get("ca_file"), str):
            fixed["sink"]["ca_file"] = path(fixed["sink"]["ca_file"])
    gridding = fixed.get("gridding")
    if isinstance(gridding, dict) and isinstance(gridding.get("elevation"), str):
        fixed["gridding"] = gridding | {"elevation": path(gridding["elevation"])}
    gridding = fixed.get("gridding")
    if isinstance(gridding, dict) and isinstance(gridding.get("covariates"), dict):
        files = {k: path(v) if isinstance(v, str) else v for k, v in gridding["covariates"].items()}
        fixed["gridding"] = gridding | {"covariates": files}
    areas = fixed.get("areas")
    if isinstance(areas, dict):
        fixed["areas"] = {
            name: own | {"file": path(own["file"])}
            if isinstance(own, dict) and isinstance(own.get("file"), str)
            else own
            for name, own in areas.items()
        }
    network = fixed.get("network")
    if isinstance(network, dict) and isinstance(network.get("tls"), dict):
        files = {k: path(v) if isinstance(v, str) else v for k, v in network["tls"].items()}
        fixed["network"] = network | {"tls": files}
    sources = []
    for source in fixed.get("sources", ()):
        if isinstance(source, dict):
            if source.get("kind") == "mqtt":
                name = source.get("name") or "mqtt"
                source = {"landing": f"landing-{name}", "client_id": f"sensorgrid-{name}"} | source
            local = {k: path(v) for k, v in source.items() if k in _PATHS and isinstance(v, str)}
            if isinstance(source.get("mapping"), str) and source["mapping"].endswith(".toml"):
                local["mapping"] = path(source["mapping"])
            source = source | local
        sources.append(source)
    return fixed | {"sources": sources}


_PATHS = {"path", "stations", "landing", "ca_file", "cert_file", "key_file"}
