"""A synthetic earth: known weather, stations that measure it, and everything that goes wrong on the way.

Quality control and gridding can only be scored where the answer is known. `Earth` knows it twice: the truth
everywhere (`truth`), and for each report what was done to it (`labels`).

A report is one station at one tick, with a value per attribute. All that happens to it (noise, faults, delay,
copies) is drawn from a hash of the seed and its own numbers (station, tick, attribute), never from a
generator that has been running: whatever way time and stations are cut into slices, their union is the same
rows. Time is cut by *arrival*, the only time that a record has for sure (one of the faults is a date in
2099), and in whole milliseconds, so that borders are exact.
"""

from dataclasses import dataclass, field, fields
from functools import lru_cache
from math import isfinite

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sensorgrid.model.errors import SensorGridError, UnknownAttributeError
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.schema import MEASUREMENT_ARROW
from sensorgrid.pipeline.sources.synthetic_weather import (
    ATTRIBUTES,
    DEW_POINT,
    DIRECTION,
    HUMIDITY,
    PM25,
    PRESSURE,
    SPEED,
    TEMPERATURE,
    Floats,
    Weather,
    bell,
    uniform,
)

Ints = npt.NDArray[np.int64]

SOURCE = "synthetic"
LABELS = pa.schema(
    [
        ("station", pa.int64()),
        ("tick", pa.int64()),
        ("arrival_ms", pa.int64()),
        ("truth", pa.float64()),
        ("fault", pa.string()),
        ("copy", pa.string()),
        ("delivery", pa.string()),
    ]
)
FAULTS = ("", "stuck", "spike", "unit", "sentinel", "position", "future")
"""What `fault` can say; an empty text is a good value. At most one each, the later ones win."""
COPIES = ("original", "duplicate", "conflict")
"""What `copy` can say: the first delivery, an exact copy, a copy with another value."""
DELIVERIES = ("prompt", "late", "too late")
"""What `delivery` can say: late is within the allowed lateness, too late is not."""

FUTURE_MS = 4_070_908_800_000
"""2099-01-01T00:00Z, the date of a clock that has gone wrong."""
SENTINEL = 9999.0
_COPY_DELAY_MS = 90_000
_TOO_LATE = 3  # times the allowed lateness, at most
_NOISE = {
    TEMPERATURE: 0.4, DEW_POINT: 0.6, PRESSURE: 40.0, HUMIDITY: 0.02, SPEED: 0.5, DIRECTION: 6.0, PM25: 1e-9,
}  # fmt: skip
_NOISE_ELSE = 0.5


class EarthError(SensorGridError, ValueError):
    """A synthetic earth, or a slice of its reports, that cannot be."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How often things go wrong, as shares in [0, 0.5]: of values, of reports, or of a station's time."""

    stuck: float = 0.004
    """values that repeat an old one, for a stretch of `Earth.stretch_s`"""
    spike: float = 0.004
    """single values far off"""
    unit: float = 0.002
    """values ten times too large, or in Fahrenheit, for a stretch"""
    sentinel: float = 0.003
    """9999 in place of a value"""
    position: float = 0.002
    """reports from a place that does not exist"""
    future: float = 0.0005
    """reports dated 2099"""
    duplicate: float = 0.005
    """reports delivered twice"""
    conflict: float = 0.002
    """reports delivered twice, with different values"""
    late: float = 0.01
    """reports that come late, but within the allowed lateness"""
    too_late: float = 0.002
    """reports that come later than that"""
    gap: float = 0.02
    """reports that never come"""
    silent: float = 0.03
    """time that a station is silent, for stretches"""
    slow: float = 0.15
    """stations that report at every third tick only"""

    def __post_init__(self) -> None:
        for rate in fields(self):
            found = getattr(self, rate.name)
            if not 0 <= found <= 0.5:
                raise EarthError(f"rate {rate.name}: found {found}, expected a number in [0, 0.5]")

    @classmethod
    def none(cls) -> "Rates":
        """A world in which nothing goes wrong; measurements still have noise."""
        return cls(**{rate.name: 0.0 for rate in fields(cls)})


@dataclass(frozen=True, slots=True)
class Earth:
    """The settings of a synthetic earth, and all that follows from them.

    A value that pickles in a few hundred bytes: each process that needs reports makes them itself.

    Examples
    --------
    >>> earth = Earth(seed=7, station_count=100)
    >>> whole = earth.reports(1_700_000_000, 1_700_003_600)
    >>> first, second = (earth.reports(1_700_000_000 + s, 1_700_000_000 + s + 1800) for s in (0, 1800))
    >>> pa.concat_tables([first, second]).equals(whole)
    True
    """

    seed: int = 1
    """another seed, another weather, other stations, other faults"""
    station_count: int = 1000
    """how many stations there are"""
    attributes: tuple[str, ...] = ATTRIBUTES
    """what each of them measures"""
    tick_s: float = 600.0
    """seconds between two reports of a station; ticks count from 1970"""
    lateness_s: float = 3600.0
    """the lateness that the pipeline allows: late reports keep to it, those that come too late do not"""
    delay_s: float = 20.0
    """the longest way of a prompt report"""
    spread: float | None = None
    """part of a tick over which the stations' reports lie, each at its own moment; None: a fifth, in whole seconds"""
    pace: float = 1.0
    """seconds of weather in a second: a day can pass in minutes"""
    shift_s: float = 0.0
    """whole ticks by which all of it is later: at a time t happens what otherwise happens at t - shift"""
    stretch_s: float = 172_800.0
    """how long a station is silent, stuck, or wrong about its unit"""
    noise: float = 1.0
    """a factor on the errors of measurement"""
    sea: float = 0.1
    """part of the stations that are ships and buoys"""
    rates: Rates = field(default_factory=Rates)
    """how often things go wrong"""

    def __post_init__(self) -> None:
        if not 1 <= self.station_count <= 10_000_000:
            raise EarthError(f"station_count: found {self.station_count}, expected 1 to 10000000")
        if not self.attributes or len(set(self.attributes)) < len(self.attributes):
            raise EarthError(f"attributes: found {self.attributes}, expected one or more names, each once")
        for name in self.attributes:
            if name not in ATTRIBUTES:
                raise UnknownAttributeError(
                    f"attribute: found {name!r}, expected one of {', '.join(ATTRIBUTES)}"
                )
        for name, low in (
            ("tick_s", 1e-3),
            ("lateness_s", 0),
            ("delay_s", 0),
            ("stretch_s", 1),
            ("noise", 0),
            ("spread", 0),
            ("pace", 0),
            ("sea", 0),
        ):
            if getattr(self, name) is None:
                continue
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= low):
                raise EarthError(f"{name}: found {getattr(self, name)}, expected a number >= {low}")
        if not isfinite(self.shift_s) or self.shift_s % self.tick_s:
            raise EarthError(f"shift_s: found {self.shift_s}, expected whole ticks of {self.tick_s:g} s")
        if self.sea > 1:
            raise EarthError(f"sea: found {self.sea}, expected a part of the stations, 0 to 1")

    def truth(
        self, attribute: str, longitude: npt.ArrayLike, latitude: npt.ArrayLike, time_s: npt.ArrayLike
    ) -> Floats:
        """The true value anywhere at any time, in canonical units; arguments broadcast."""
        weather_s = (np.asarray(time_s, np.float64) - self.shift_s) * self.pace
        return Weather(self.seed).truth((attribute,), longitude, latitude, weather_s)[attribute]

    def stations(self) -> tuple[npt.NDArray[np.str_], Floats, Floats]:
        """Names, longitudes and latitudes: crowded in parts of the land, sparse elsewhere, few at sea."""
        lon, lat, _ = _positions(self.seed, self.station_count, self.sea)
        return np.array(_names(self.station_count).to_pylist()), lon, lat

    def reports(self, start_s: float, end_s: float, stations: tuple[int, int] | None = None) -> pa.Table:
        """What arrives in [start, end), in the order of arrival, as `MEASUREMENT`.

        `stations` keeps those numbered in [first, last): for a reader that is one of several.
        """
        rows = self._rows(start_s, end_s, stations)
        lon, lat, _ = _positions(self.seed, self.station_count, self.sea)
        station, attribute = rows["station"], rows["attribute"].astype(np.int32)
        x, y, impossible = _misplace(self.seed, rows, lon[station], lat[station])
        event_ms = rows["event_ms"] + round(self.shift_s * 1000)
        time_us = np.where(rows["fault"] == FAULTS.index("future"), FUTURE_MS, event_ms) * 1000
        units = [KNOWN[name].unit for name in self.attributes]
        count = len(station)
        columns = [
            _names(self.station_count).take(pa.array(station)),
            pa.array(self.attributes).take(pa.array(attribute)),
            pa.array(x, mask=impossible),
            pa.array(y, mask=impossible),
            pa.nulls(count, pa.float64()),
            pa.array(time_us, type=pa.int64()).cast(MEASUREMENT_ARROW.field("event_time").type),
            pa.array(rows["value"]),
            pa.array(units).take(pa.array(attribute)),
            pa.repeat(SOURCE, count),
            pa.nulls(count, pa.string()),
            pa.nulls(count, pa.string()),
        ]
        return pa.Table.from_arrays(columns, schema=MEASUREMENT_ARROW)

    def labels(self, start_s: float, end_s: float, stations: tuple[int, int] | None = None) -> pa.Table:
        """What is known about each row of `reports` with the same arguments, as `LABELS`, row by row."""
        rows = self._rows(start_s, end_s, stations)
        rows["tick"] = rows["tick"] + round(self.shift_s / self.tick_s)
        rows["arrival_ms"] = rows["arrival_ms"] + round(self.shift_s * 1000)
        columns = [pa.array(rows[name]) for name in ("station", "tick", "arrival_ms", "truth")]
        for name, words in (("fault", FAULTS), ("copy", COPIES), ("delivery", DELIVERIES)):
            columns.append(pa.array(words).take(pa.array(rows[name].astype(np.int32))))
        return pa.Table.from_arrays(columns, schema=LABELS)

    @property
    def rows_per_second(self) -> float:
        """About so many rows arrive in a second; for those who cut batches by time."""
        full = self.station_count * len(self.attributes) / self.tick_s
        return full * (1 - self.rates.slow * 2 / 3) * (1 + self.rates.duplicate + self.rates.conflict)

    def _rows(
        self, start_s: float, end_s: float, stations: tuple[int, int] | None
    ) -> dict[str, Ints | Floats]:
        """What arrives in a slice of time, on the earth's own clock (without the shift)."""
        if not (isfinite(start_s) and isfinite(end_s) and start_s <= end_s):
            raise EarthError(f"slice: found [{start_s}, {end_s}), expected two finite times in order")
        first, last = stations or (0, self.station_count)
        if not 0 <= first <= last <= self.station_count:
            raise EarthError(f"stations: found {first} to {last}, expected within 0 to {self.station_count}")
        shift_ms = round(self.shift_s * 1000)
        start_ms, end_ms = round(start_s * 1000) - shift_ms, round(end_s * 1000) - shift_ms
        return self._measured(self._sent(start_ms, end_ms, first, last))

    def _sent(self, start_ms: int, end_ms: int, first: int, last: int) -> dict[str, Ints]:
        """The reports (station, tick, copy) that arrive in a slice of time, in the order of arrival."""
        tick_ms, rates = self.tick_s * 1000, self.rates
        longest_ms = max(self.delay_s, _TOO_LATE * self.lateness_s) * 1000 + _COPY_DELAY_MS + tick_ms
        ticks = np.arange(np.floor((start_ms - longest_ms) / tick_ms), np.floor(end_ms / tick_ms) + 1)
        tick, station = (a.ravel() for a in np.meshgrid(ticks, np.arange(first, last), indexing="ij"))
        tick = tick.astype(np.int64)
        # Prompt reports of past ticks are the most by far: leave before anything is computed for them.
        share, within = self._draw(1, station, tick), self._draw(2, station, tick)
        delivery = (share < rates.late + rates.too_late).astype(np.int64) + (share < rates.too_late)
        least = np.array([0.0, min(self.delay_s, self.lateness_s), self.lateness_s])[delivery]
        most = np.array([self.delay_s, self.lateness_s, _TOO_LATE * self.lateness_s])[delivery]
        # From the far end: what is late within the allowance may use all of it, what is too late exceeds it.
        delay_ms = np.ceil(1000 * (most - within * (most - least))).astype(np.int64)
        event_ms = np.floor((tick + 0.2 * self._draw(3, station)) * tick_ms / 1000).astype(np.int64) * 1000
        if self.spread is not None:
            event_ms = np.floor((tick + self.spread * self._draw(3, station)) * tick_ms).astype(np.int64)
        elif self.tick_s < 10:
            event_ms = np.floor(tick * tick_ms).astype(np.int64)
        arrival_ms = event_ms + delay_ms
        near = (arrival_ms < end_ms) & (arrival_ms >= start_ms - _COPY_DELAY_MS)
        near[near] = self._speaks(station[near], tick[near])
        tick, station, delivery = tick[near], station[near], delivery[near]
        event_ms, arrival_ms = event_ms[near], arrival_ms[near]
        share = self._draw(4, station, tick)
        copy = (share < rates.duplicate + rates.conflict).astype(np.int64) + (share < rates.conflict)
        again = np.flatnonzero(copy)
        after_ms = 1 + (self._draw(5, station[again], tick[again]) * (_COPY_DELAY_MS - 1)).astype(np.int64)
        sent = {
            "station": np.concatenate([station, station[again]]),
            "tick": np.concatenate([tick, tick[again]]),
            "event_ms": np.concatenate([event_ms, event_ms[again]]),
            "arrival_ms": np.concatenate([arrival_ms, arrival_ms[again] + after_ms]),
            "delivery": np.concatenate([delivery, delivery[again]]),
            "copy": np.concatenate([np.zeros_like(copy), copy[again]]),
        }
        inside = (sent["arrival_ms"] >= start_ms) & (sent["arrival_ms"] < end_ms)
        order = np.lexsort([sent[name][inside] for name in ("copy", "tick", "station", "arrival_ms")])
        return {name: column[inside][order] for name, column in sent.items()}

    def _speaks(self, station: Ints, tick: Ints) -> npt.NDArray[np.bool_]:
        """Whether a report comes at all: slow stations skip ticks, some are silent, some reports get lost."""
        slow = self._draw(6, station) < self.rates.slow
        off = slow & ((tick + station) % 3 != 0)
        silent = self._draw(7, station, self._stretch(station, tick, 0)) < self.rates.silent
        return np.asarray(~(off | silent | (self._draw(8, station, tick) < self.rates.gap)))

    def _measured(self, sent: dict[str, Ints]) -> dict[str, Ints | Floats]:
        """One row per attribute of each report: truth, noise, faults."""
        many = len(self.attributes)
        rows: dict[str, Ints | Floats] = {name: np.repeat(column, many) for name, column in sent.items()}
        station, tick = np.repeat(sent["station"], many), np.repeat(sent["tick"], many)
        kind = np.tile(np.arange(many), len(sent["station"]))
        known = self._known(sent["station"], sent["event_ms"] / 1000)
        truth = np.stack([known[name] for name in self.attributes], axis=1).ravel()
        value = self._noisy(truth, station, tick, kind)
        fault = np.zeros(len(kind), dtype=np.int64)
        self._break(value, fault, station, tick, kind)
        other = np.repeat(sent["copy"], many) == COPIES.index("conflict")
        spread = np.array([KNOWN[name].spike for name in self.attributes])
        value[other] += spread[kind[other]] * (0.3 + self._draw(9, station[other], tick[other], kind[other]))
        for name, salt in (("position", 10), ("future", 11)):
            hit = self._draw(salt, sent["station"], sent["tick"]) < getattr(self.rates, name)
            fault[np.repeat(hit, many)] = FAULTS.index(name)
        return rows | {"attribute": kind, "truth": truth, "value": value, "fault": fault}

    def _known(self, station: Ints, time_s: Floats) -> dict[str, Floats]:
        lon, lat, land = (column[station] for column in _positions(self.seed, self.station_count, self.sea))
        return Weather(self.seed).truth(self.attributes, lon, lat, time_s * self.pace, land)

    def _noisy(self, truth: Floats, station: Ints, tick: Ints, kind: Ints) -> Floats:
        """What a healthy sensor reads: the truth with an error, inside the range that the sensor can show."""
        sigma = np.array([_NOISE.get(name, _NOISE_ELSE) for name in self.attributes]) * self.noise
        value = np.asarray(truth + sigma[kind] * bell(self.seed, 1012, station, tick, kind))
        for index, name in enumerate(self.attributes):
            mine = kind == index
            if name == DIRECTION:
                value[mine] = np.mod(value[mine], 360.0)
            elif name in (HUMIDITY, SPEED, PM25):
                value[mine] = np.clip(value[mine], 0.0, 1.0 if name == HUMIDITY else None)
        return value

    def _break(self, value: Floats, fault: Ints, station: Ints, tick: Ints, kind: Ints) -> None:
        """Put faults of single values in place."""
        spikes = np.array([KNOWN[name].spike for name in self.attributes])
        stretch = self._stretch(station, tick, 1)
        # Stretches are as long as they are, so a share of them is a share of the values.
        stuck = np.flatnonzero(self._draw(16, station, stretch, kind) < self.rates.stuck)
        if len(stuck):
            s, k = station[stuck], kind[stuck]
            began = self._first_tick(s, stretch[stuck], 1)
            known = self._known(s, np.asarray(began * self.tick_s, dtype=np.float64))
            old = np.stack([known[name] for name in self.attributes])[k, np.arange(len(s))]
            value[stuck] = self._noisy(old, s, began, k)
            fault[stuck] = FAULTS.index("stuck")
        single = self._draw(17, station, tick, kind)
        spike = np.flatnonzero(single < self.rates.spike)
        sign = np.where(self._draw(18, station[spike], tick[spike], kind[spike]) < 0.5, -1.0, 1.0)
        size = 1.5 + 3 * self._draw(19, station[spike], tick[spike], kind[spike])
        value[spike] += sign * size * spikes[kind[spike]]
        fault[spike] = FAULTS.index("spike")
        wrong = self._draw(20, station, stretch, kind) < self.rates.unit
        warm = np.isin(kind, [i for i, n in enumerate(self.attributes) if n in (TEMPERATURE, DEW_POINT)])
        value[wrong] = np.where(warm[wrong], value[wrong] * 1.8 - 459.67, value[wrong] * 10)
        fault[wrong] = FAULTS.index("unit")
        empty = (single >= self.rates.spike) & (single < self.rates.spike + self.rates.sentinel)
        value[empty] = SENTINEL
        fault[empty] = FAULTS.index("sentinel")

    def _stretch(self, station: Ints, tick: Ints, salt: int) -> Ints:
        """Number of the stretch of time that a tick lies in; each station's begin at their own times."""
        length = max(1.0, round(self.stretch_s / self.tick_s))
        return np.asarray(
            (tick + np.floor(self._draw(30 + salt, station) * length)) // length, dtype=np.int64
        )

    def _first_tick(self, station: Ints, stretch: Ints, salt: int) -> Ints:
        length = max(1.0, round(self.stretch_s / self.tick_s))
        return np.asarray(
            stretch * length - np.floor(self._draw(30 + salt, station) * length), dtype=np.int64
        )

    def _draw(self, salt: int, *keys: npt.ArrayLike) -> Floats:
        return uniform(self.seed, 1000 + salt, *keys)


def _misplace(
    seed: int, rows: dict[str, Ints | Floats], lon: Floats, lat: Floats
) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Positions as reported, and where there is none at all: of the impossible ones, each kind a quarter."""
    hit = np.flatnonzero(rows["fault"] == FAULTS.index("position"))
    which = (4 * uniform(seed, 1040, rows["station"][hit], rows["tick"][hit])).astype(np.int64)
    lat[hit[which == 0]] = 90 + np.abs(lat[hit[which == 0]]) + 1
    lon[hit[which == 1]] = 400 + np.abs(lon[hit[which == 1]])
    lon[hit[which == 2]] = lat[hit[which == 2]] = -999.9
    nowhere = np.zeros(len(lon), dtype=np.bool_)
    nowhere[hit[which == 3]] = True
    return lon, lat, nowhere


@lru_cache(maxsize=8)
def _names(count: int) -> pa.Array:
    return pa.array([f"SYN{number:05d}" for number in range(count)])


@lru_cache(maxsize=8)
def _positions(seed: int, count: int, sea: float) -> tuple[Floats, Floats, Floats]:
    """Where the stations are, and how much that is land.

    Of those on land, seven of nine stand around a town, two anywhere.
    """
    random, weather = np.random.default_rng([seed & 0x7FFFFFFF, 77]), Weather(seed)

    def somewhere(many: int, wet: bool) -> tuple[Floats, Floats]:
        lon, lat = np.empty(0), np.empty(0)
        while len(lon) < many:
            x = random.uniform(-180, 180, 4 * many + 64)
            y = np.degrees(np.arcsin(random.uniform(-1, 1, len(x))))
            # Few people, and few buoys, live close to the poles.
            welcome = np.exp(-((np.abs(y) / 62) ** 4)) > random.uniform(0, 1, len(x))
            keep = welcome & ((weather.land(x, y) > 0.5) != wet)
            lon, lat = np.append(lon, x[keep]), np.append(lat, y[keep])
        return lon[:many], lat[:many]

    towns = 24 + count // 100
    town_lon, town_lat = somewhere(towns, wet=False)
    urban, buoys = round(7 * (1 - sea) / 9 * count), round(sea * count)
    weight = 1 / np.arange(1, towns + 1) ** 0.7  # Zipf's law, somewhat milder
    home = random.choice(towns, urban, p=weight / weight.sum())
    lat = np.clip(town_lat[home] + random.normal(0, 2.5, urban), -89, 89)
    lon = town_lon[home] + random.normal(0, 2.5, urban) / np.cos(np.radians(lat))
    rural_lon, rural_lat = somewhere(count - urban - buoys, wet=False)
    buoy_lon, buoy_lat = somewhere(buoys, wet=True)
    lon, lat = np.concatenate([lon, rural_lon, buoy_lon]), np.concatenate([lat, rural_lat, buoy_lat])
    mixed = random.permutation(count)
    # As a person would write them down: four digits are eleven metres.
    lon, lat = np.round(np.mod(lon[mixed] + 180, 360) - 180, 4), np.round(lat[mixed], 4)
    lon[lon == 180] = -180.0
    land = weather.land(lon, lat)
    for column in (lon, lat, land):
        column.setflags(write=False)
    return lon, lat, land
