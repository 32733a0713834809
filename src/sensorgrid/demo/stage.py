"""What the demo shows: the world, its sensors, its brokers, and what its clients ask for.

All of it goes through a configuration file like any other; `sensorgrid up` would run it, too.
"""

import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import Query
from sensorgrid.pipeline import planning
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.plan import Plan
from sensorgrid.pipeline.settings import PipelineSettings
from sensorgrid.pipeline.sources.synthetic import SyntheticSettings
from sensorgrid.pipeline.sources.synthetic_earth import Earth
from sensorgrid.pipeline.sources.synthetic_weather import PRESSURE, TEMPERATURE

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DemoStage:
    """The sizes of a demo; the defaults fit two cores."""

    shape: tuple[int, int] = (128, 64)
    tick_s: float = 4.0
    settle_s: float = 0.4
    """a tick is published so long after its end"""
    lateness_s: float = 8.0
    """and may change for so long after that"""
    stations: int = 1200
    brokers: int = 8
    seed: int = 7
    late: float = 0.05
    """a factor on the rate of reports that come late"""
    copies: float = 1.0
    """a factor on the rate of reports that come twice, perhaps late and with another value"""
    delay_s: float = 0.3
    """the longest way of a prompt report"""
    pace: float = 240.0
    """seconds of weather in a second: four hours in a minute"""
    attributes: tuple[str, ...] = (TEMPERATURE, PRESSURE)

    def options(self) -> dict[str, str | int | float]:
        """Of the synthetic source."""
        return {
            "seed": self.seed,
            "stations": self.stations,
            "tick": self.tick_s,
            "lateness": self.lateness_s,
            "delay": self.delay_s,
            "late": self.late,
            "copies": self.copies,
            "spread": 1,
            "pace": self.pace,
            "attributes": ",".join(self.attributes),
        }

    def configuration(self, ports: list[int]) -> str:
        """The demo as a configuration file."""
        brokers = "\n".join(
            f'[[network.brokers]]\nid = {n}\nurl = "ws://127.0.0.1:{port}"' for n, port in enumerate(ports)
        )
        options = "\n".join(
            f"{k} = {v}" if not isinstance(v, str) else f'{k} = "{v}"' for k, v in self.options().items()
        )
        return f"""# What `sensorgrid demo` runs: a synthetic earth, live, on a few brokers of this machine.
lake = "lake"

[grid]
shape = [{self.shape[0]}, {self.shape[1]}]
tick = "{self.tick_s:g}s"
region_digits = 4
resolution_bits = [3, 3, 2]
attributes = ["{'", "'.join(self.attributes)}"]

[timing]
settle = "{self.settle_s:g}s"
lateness = "{self.lateness_s:g}s"
max_age = "{3 * self.tick_s:g}s"

[gridding]
halo = 3e6   # metres: this earth has enough stations, and its ticks are short

[quality.attributes.{TEMPERATURE}]   # {self.pace:g} seconds of weather pass in a second
rate = {10 * self.pace:g}
[quality.attributes.{PRESSURE}]
rate = {1000 * self.pace:g}

[[sources]]
kind = "synthetic"
[sources.options]
{options}

[spark]
master = "local[2]"
trigger = "0.5s"
driver_memory = "1g"

[sink]
patience = "0.5s"   # a broker that is down gets its grids from the courier, and nobody waits for it

[network]
alive = "2s"

{brokers}
"""

    def plan(self, settings: PipelineSettings, now_s: float) -> Plan:
        """Parameters fitted to what the sensors said shortly before `now_s`."""
        earth, grid = self.earth(), settings.grid.grid()
        heard = earth.reports(now_s - planning.TICKS * self.tick_s, now_s)
        time_us = pc.cast(heard["event_time"], pa.int64())
        rows = heard.select(["sensor", "attribute", "longitude", "latitude", "value"])
        rows = rows.append_column("time_us", time_us)
        rows = rows.append_column("tick", pa.array(time_us.to_numpy() // round(self.tick_s * 1e6)))
        good = pc.scalar(False)
        for name in self.attributes:
            low, high = KNOWN[name].usual
            value = pc.field("value")
            good |= (pc.field("attribute") == name) & (value >= low) & (value <= high)
        known = (pc.abs(pc.field("longitude")) <= 180) & (pc.abs(pc.field("latitude")) <= 90)
        early = pc.field("time_us") <= round(now_s * 1e6)  # some clocks are in 2099
        _, x, y = earth.stations()
        positions = planning.for_all_groups(grid, x, y)
        return planning.first_plan(grid, settings.gridding, 0, positions, rows.filter(good & known & early))

    def earth(self) -> Earth:
        """The world that the sensors measure."""
        return SyntheticSettings.of({k: str(v) for k, v in self.options().items()}).earth


@dataclass(frozen=True, slots=True)
class Guest:
    """A client of the demo: who it is, what it wants, where it dials."""

    name: str
    query: Query
    broker: PeerId
    """its target broker; it dials no other"""


def _guest(
    name: str,
    broker: int,
    bbox: tuple[float, float, float, float] | None,
    resolution: float | tuple[float, float, float] = 1.0,
    *attributes: str,
) -> Guest:
    return Guest(name, Query(attributes or (TEMPERATURE,), bbox, resolution), PeerId(broker))


_ERROR = f"{TEMPERATURE} standard_error"


def audience() -> tuple[Guest, ...]:
    """Two dozen clients whose areas, resolutions and attributes overlap; they meet at four brokers, as people do."""
    centre, west, europe, east = 0, 6, 1, 3
    both = (TEMPERATURE, PRESSURE)
    return (
        _guest("world model", centre, None, 1.0, *both),
        _guest("world, second model", centre, None, 1.0, TEMPERATURE),
        _guest("world, coarse", centre, None, (1 / 2, 1 / 2, 1 / 2), *both),
        _guest("world, dashboard", centre, None, (1 / 4, 1 / 4, 1)),
        _guest("world, archive", centre, None, (1 / 2, 1 / 2, 1 / 4), *both, _ERROR),
        _guest("northern hemisphere", centre, (-180, 0, 180, 90), 1.0, *both),
        _guest("tropics", centre, (-180, -23, 180, 23), 1.0, PRESSURE),
        _guest("Atlantic", west, (-100, 0, 0, 65), 1.0, *both),
        _guest("Atlantic routes", west, (-80, 20, 0, 62), (1 / 2, 1 / 2, 1), PRESSURE),
        _guest("hurricane, outer", west, (-100, 0, -20, 60), (1 / 2, 1 / 2, 1), *both),
        _guest("hurricane, middle", west, (-100, 8, -45, 46), 1.0, PRESSURE),
        _guest("hurricane, core", west, (-90, 12, -65, 36), 1.0, *both),
        _guest("North America", west, (-135, 12, -50, 68), 1.0),
        _guest("Europe", europe, (-22, 34, 45, 67), 1.0, *both),
        _guest("Europe, second model", europe, (-15, 34, 40, 66), 1.0, *both),
        _guest("Europe, airline", europe, (-22, 34, 45, 67), (1 / 2, 1 / 2, 1), PRESSURE),
        _guest("Europe, energy", europe, (-10, 36, 30, 60), 1.0, TEMPERATURE, _ERROR),
        _guest("Mediterranean", europe, (-10, 28, 40, 46), 1.0, *both),
        _guest("Asia", east, (60, -10, 150, 60), 1.0, *both),
        _guest("Asia, second model", east, (67, -10, 145, 56), 1.0, *both),
        _guest("Asia, coarse", east, (45, -15, 180, 75), (1 / 4, 1 / 4, 1), *both),
        _guest("India", east, (66, 5, 92, 36), 1.0, *both),
        _guest("monsoon", east, (60, -10, 125, 32), (1 / 2, 1 / 2, 1 / 2), PRESSURE),
        _guest("date line", east, (135, -45, -158, 45), 1.0, PRESSURE),
    )


def axes_of(grid: Grid, scale: int = 1) -> tuple[Floats, Floats]:
    """Longitudes and latitudes of the points, or of a map `scale` times as fine."""
    west, south, east, north = grid.extent
    nx, ny = (n * scale for n in grid.shape)
    lon = west + (np.arange(nx) + 0.5) * (east - west) / nx
    lat = south + (np.arange(ny) + 0.5) * (north - south) / ny
    return lon, lat


def free_ports(count: int) -> list[int]:
    """Ports of loopback on which nobody listens."""
    with ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def write_configuration(stage: DemoStage, folder: Path) -> Path:
    """Put the configuration of a demo into a folder."""
    target = folder / "grid.toml"
    target.write_text(stage.configuration(free_ports(stage.brokers)))
    return target
