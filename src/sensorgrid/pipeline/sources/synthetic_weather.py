"""Weather that never was, as a formula: what every sensor of the synthetic earth would read without error.

A method that fills gaps can only be judged where the truth is known everywhere, and real measurements do not
offer that. So the truth here is a smooth function of position and time that can be asked anywhere: climate by
latitude and season, the day's course, a polar front with sharp waves that travel east, the lows and highs
that belong to it, tropical cyclones in gradient-wind balance, and noise of several sizes. Winds follow from
the pressure (geostrophy, weakened near the equator, with friction), dew point from temperature and humidity,
so the attributes agree with each other as they do in nature.

Everything is evaluated on unit vectors or fades out towards the poles: the fields are continuous across the
date line and have one value at each pole. The continents are ellipses; they are not meant for navigation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sensorgrid.model.errors import UnknownAttributeError

Floats = npt.NDArray[np.float64]

TEMPERATURE = "air_temperature"
DEW_POINT = "dew_point_temperature"
PRESSURE = "air_pressure_at_mean_sea_level"
EASTWARD = "eastward_wind"
NORTHWARD = "northward_wind"
SPEED = "wind_speed"
DIRECTION = "wind_from_direction"
HUMIDITY = "relative_humidity"
PM25 = "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air"

ATTRIBUTES = (TEMPERATURE, DEW_POINT, PRESSURE, EASTWARD, NORTHWARD, SPEED, DIRECTION, HUMIDITY, PM25)
"""The attributes whose truth is known, by CF standard name, in canonical units."""

EARTH_RADIUS_M = 6_371_000.0
DAY_S = 86_400.0
_YEAR_S = 365.2425 * DAY_S
_AIR_DENSITY = 1.2
_ROTATION = 7.2921e-5
_WAVE = 5  # lows around each hemisphere

_LAND = np.array(
    [  # longitude, latitude of the middle; half axes in degrees of arc; turned by so many degrees
        (-110, 58, 20, 11, 0), (-98, 40, 19, 10, 0), (-101, 22, 9, 4, -40), (-72, 53, 9, 8, 0),
        (-152, 65, 7, 5, 0), (-42, 73, 6, 10, 0), (-61, -6, 16, 12, -15), (-63, -25, 9, 14, 20),
        (-70, -45, 3.5, 10, 0), (15, 50, 14, 7, 10), (18, 63, 5, 8, -40), (-4, 40, 4.5, 3.5, 0),
        (-2, 54, 2.5, 4.5, 0), (55, 57, 24, 12, 0), (100, 60, 24, 13, 0), (145, 65, 16, 7, 0),
        (100, 38, 18, 11, 0), (112, 30, 9, 8, 0), (79, 21, 7, 10, 0), (102, 16, 5, 8, 0), (46, 24, 8, 8, 0),
        (58, 34, 14, 7, 0), (138, 37, 2.5, 7, -40), (8, 19, 25, 14, 0), (40, 8, 9, 7, 0),
        (25, -12, 12, 21, 0), (47, -19, 2, 6, -10), (134, -25, 18, 11, 0), (113, 0, 5, 5, 0),
        (102, 0, 2.5, 7, 40), (141, -5, 8, 3, -20), (172, -42, 2, 6, -40),
    ],
    dtype=np.float64,
)  # fmt: skip

_HAZE = np.array(
    [
        (78, 28, 9, 1.7),
        (115, 35, 9, 1.3),
        (5, 19, 16, 1.3),
        (46, 26, 9, 1.0),
        (19, 50, 5, 0.7),
        (-99, 19, 4, 1.0),
    ]
)
"""Where the air is dusty or dirty: longitude, latitude, radius in degrees, logarithm of the factor."""

_BASINS = np.array([(150.0, 1.0), (-40.0, 1.0), (-100.0, 1.0), (85.0, -1.0), (170.0, -1.0), (135.0, 1.0)])
"""Where tropical cyclones are born: longitude, and 1 north or -1 south of the equator."""
_BIRTH_EVERY_S = 6 * DAY_S
_LIFE_S = 11 * DAY_S


@dataclass(frozen=True, slots=True)
class Weather:
    """The truth of one seed. A value: cheap to make, to compare and to pickle; no state."""

    seed: int
    """another seed, another weather; the climate and the continents stay"""

    def truth(
        self,
        attributes: Iterable[str],
        longitude: npt.ArrayLike,
        latitude: npt.ArrayLike,
        time_s: npt.ArrayLike,
        land: npt.ArrayLike | None = None,
    ) -> dict[str, Floats]:
        """Values of several attributes at the same places and times; what they share is computed once.

        Positions are degrees, times seconds since 1970-01-01T00:00Z; the three broadcast against each other.
        Who asks again and again for the same places can bring along what `land` says of them.
        """
        wanted = tuple(attributes)
        for name in wanted:
            if name not in ATTRIBUTES:
                raise UnknownAttributeError(
                    f"attribute: found {name!r}, expected one of {', '.join(ATTRIBUTES)}"
                )
        lon, lat, t = np.broadcast_arrays(
            *(np.asarray(a, dtype=np.float64) for a in (longitude, latitude, time_s))
        )
        here = (
            self.land(lon, lat) if land is None else np.broadcast_to(np.asarray(land, np.float64), lon.shape)
        )
        place = _Place.at(lon.ravel(), lat.ravel(), t.ravel(), here.ravel(), self.seed)
        known: dict[str, Floats] = {}
        if {TEMPERATURE, DEW_POINT, HUMIDITY} & set(wanted):
            known[TEMPERATURE] = place.temperature()
        if {DEW_POINT, HUMIDITY} & set(wanted):
            known[HUMIDITY] = place.humidity(known[TEMPERATURE])
            known[DEW_POINT] = dew_point(known[TEMPERATURE], known[HUMIDITY])
        if PRESSURE in wanted:
            known[PRESSURE] = place.pressure(place.vector) + place.storm_pressure
        if {EASTWARD, NORTHWARD, SPEED, DIRECTION} & set(wanted):
            east, north = place.wind()
            known |= {EASTWARD: east, NORTHWARD: north, SPEED: np.hypot(east, north)}
            known[DIRECTION] = np.mod(np.degrees(np.arctan2(-east, -north)), 360.0)
        if PM25 in wanted:
            known[PM25] = place.pm25()
        return {name: known[name].reshape(lon.shape) for name in wanted}

    def land(self, longitude: npt.ArrayLike, latitude: npt.ArrayLike) -> Floats:
        """1 on land, 0 at sea, in between along the coast."""
        lon, lat = np.broadcast_arrays(
            np.asarray(longitude, dtype=np.float64), np.asarray(latitude, dtype=np.float64)
        )
        return _land(_vector(lon.ravel(), lat.ravel())).reshape(lon.shape)

    def cyclones(self, time_s: float) -> list[tuple[float, float, float]]:
        """Longitude, latitude and depth in Pa of the tropical cyclones alive at a time."""
        found = []
        for number in range(_births(time_s) - 2, _births(time_s) + 1):
            centre, depth, _ = _cyclone(np.array([time_s]), np.array([number]), self.seed)
            lon, lat = _degrees(centre)
            if depth[0] > 1:
                found.append((float(lon[0]), float(lat[0]), float(depth[0])))
        return found


def dew_point(temperature: Floats, humidity: Floats) -> Floats:
    """Dew point in K of air at a temperature in K and a relative humidity as a fraction (Magnus' formula)."""
    celsius = temperature - 273.15
    gamma = np.log(humidity) + 17.625 * celsius / (243.04 + celsius)
    return np.asarray(243.04 * gamma / (17.625 - gamma) + 273.15, dtype=np.float64)


def uniform(seed: int, salt: int, *keys: npt.ArrayLike) -> Floats:
    """Random numbers in [0, 1) that depend on nothing but their keys: the same in any slice and process."""
    return np.asarray(_hash(seed, salt, *keys) >> np.uint64(11), dtype=np.float64) * 2.0**-53


def bell(seed: int, salt: int, *keys: npt.ArrayLike) -> Floats:
    """Like `uniform`, but of a bell curve with mean 0 and variance 1 that ends at ±3.46.

    The sum of four uniform numbers is close enough to a normal one and needs no logarithm.
    """
    bits = _hash(seed, salt, *keys)
    total = sum((bits >> np.uint64(16 * part)) & np.uint64(0xFFFF) for part in range(4))
    return np.asarray((np.asarray(total, dtype=np.float64) / 65_535 - 2.0) * np.sqrt(3.0))


def _hash(seed: int, salt: int, *keys: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """SplitMix64's finalizer, once per key; NumPy's generators would have to be wound to each key."""
    state = np.asarray(_mix(np.uint64((seed * 1_000_003 + salt) & 0xFFFFFFFFFFFFFFFF)))
    with np.errstate(over="ignore"):
        for key in keys:
            state = _mix(state ^ (np.asarray(key).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)))
    return state


def _mix(x: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        z = np.asarray(x, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


@dataclass(frozen=True, slots=True)
class _Place:
    """Everything that the attributes of the same places and times have in common."""

    lon: Floats
    lat: Floats
    t: Floats
    seed: int
    vector: Floats
    east: Floats
    north: Floats
    land: Floats
    front: Floats
    """degrees of latitude by which a place lies on the polar side of the polar front of its hemisphere"""
    storm_pressure: Floats
    storm_wind: tuple[Floats, Floats]

    @classmethod
    def at(cls, lon: Floats, lat: Floats, t: Floats, land: Floats, seed: int) -> "_Place":
        vector = _vector(lon, lat)
        lam, phi = np.radians(lon), np.radians(lat)
        zero = np.zeros_like(lam)
        east = np.stack([-np.sin(lam), np.cos(lam), zero])
        north = np.stack([-np.sin(phi) * np.cos(lam), -np.sin(phi) * np.sin(lam), np.cos(phi)])
        theta = _wave_phase(lam, phi, t, seed)
        crest = 47 + 8 * np.sin(theta + 0.5 * np.sin(theta)) + 3 * np.sin(2 * lam + 0.3 * t / DAY_S + seed)
        pressure, wind = _storms(vector, east, north, t, seed)
        return cls(lon, lat, t, seed, vector, east, north, land, np.abs(lat) - crest, pressure, wind)

    def temperature(self) -> Floats:
        """In K."""
        phi = np.radians(self.lat)
        season = np.cos(2 * np.pi * (self.t / _YEAR_S - 0.55))
        sunward = np.cos(2 * np.pi * (self.t / DAY_S + self.lon / 360 - 15 / 24))
        ice = 1 / (1 + np.exp((self.lat + 72) / 4))
        return np.asarray(
            292.5 - 30 * np.sin(phi) ** 2 + 3.0 * _bump(np.abs(self.lat), 22, 14) * self.land - 22 * ice
            + (3 + 12 * self.land) * np.sin(phi) * season
            + (0.6 + 5.5 * self.land * (1 - 0.4 * _bump(self.lat, 0, 9))) * np.cos(phi) * sunward
            - 5.5 * np.tanh(self.front / 1.2) - 0.12 * np.clip(self.front, -25, 25)
            + 1.6 * _noise(self.vector, self.t, self.seed, 1, 1800, 5.0)
            + 0.7 * _noise(self.vector, self.t, self.seed, 2, 500, 5.0)
        )  # fmt: skip

    def humidity(self, temperature: Floats) -> Floats:
        """As a fraction, always inside (0.08, 0.99); very hot air is never damp."""
        sunward = np.cos(2 * np.pi * (self.t / DAY_S + self.lon / 360 - 15 / 24))
        logit = (
            1.3 + 0.7 * _bump(self.lat, 4, 9) - 2.0 * self.land * _bump(np.abs(self.lat), 24, 9)
            - 0.5 * self.land + 1.6 * _bump(self.front, -0.8, 1.6)
            - 0.7 * self.land * np.cos(np.radians(self.lat)) * sunward
            + 2.0 * (1 - np.exp(self.storm_pressure / 800)) - 0.25 * np.logaddexp(0, temperature - 302)
            + 0.8 * _noise(self.vector, self.t, self.seed, 3, 2000, 6.0)
            + 0.4 * _noise(self.vector, self.t, self.seed, 4, 500, 6.0)
        )  # fmt: skip
        return np.asarray(0.08 + 0.91 / (1 + np.exp(-logit)))

    def pressure(self, vector: Floats) -> Floats:
        """In Pa, without the tropical cyclones; of any vectors: the wind needs the pressure next door."""
        lon, lat = _degrees(vector)
        lam, phi = np.radians(lon), np.radians(lat)
        theta = _wave_phase(lam, phi, self.t, self.seed)
        away, north = _away(lat), 0.5 * (1 + np.tanh(lat / 10))
        belt = np.cos(phi) ** 2 * _bump(away, 50, 15) / 0.42
        deep = (1000 + 1100 * (1 - north)) / 0.18
        uneven = 1 + 0.45 * np.sin(lam * 2 - 0.15 * self.t / DAY_S + 1.7 * self.seed)
        return np.asarray(
            101_150 + 750 * _bump(away, 32, 12) - deep * np.cos(phi) ** 2 * _bump(away, 67, 12)
            - 1250 * belt * uneven * np.cos(theta)
            + 450 * belt * np.sin(3 * lam - 0.08 * self.t / DAY_S + 0.9 * self.seed)
            + 260 * (0.4 + np.abs(np.sin(phi))) * _noise(vector, self.t, self.seed, 5, 3500, 6.0)
        )  # fmt: skip

    def wind(self) -> tuple[Floats, Floats]:
        """Towards the east and towards the north, in m/s."""
        step = 3e-3  # of the earth's radius: 19 km, well below the size of any low of the background
        here = self.pressure(self.vector)
        slope_e = (self.pressure(_unit(self.vector + step * self.east)) - here) / (step * EARTH_RADIUS_M)
        slope_n = (self.pressure(_unit(self.vector + step * self.north)) - here) / (step * EARTH_RADIUS_M)
        phi = np.radians(self.lat)
        coriolis = 2 * _ROTATION * np.sin(phi)
        # 1/f without its pole at the equator, where no wind is geostrophic.
        inverse = coriolis / (coriolis**2 + 4e-5**2)
        u, v = -slope_n * inverse / _AIR_DENSITY, slope_e * inverse / _AIR_DENSITY
        turn = np.radians(22) * np.tanh(self.lat / 5)  # friction turns the wind towards the low
        drag = 0.8 - 0.25 * self.land
        trades = _bump(_away(self.lat), 13, 8)
        gusts = [_noise(self.vector, self.t, self.seed, salt, 600, 4.0) * np.cos(phi) for salt in (6, 7)]
        east = drag * (u * np.cos(turn) - v * np.sin(turn)) - 5.0 * trades + 0.9 * gusts[0]
        north = (
            drag * (u * np.sin(turn) + v * np.cos(turn))
            - 2.4 * trades * np.tanh(self.lat / 6)
            + 0.9 * gusts[1]
        )
        return east + self.storm_wind[0], north + self.storm_wind[1]

    def pm25(self) -> Floats:
        """In kg per cubic metre."""
        sunward = np.cos(2 * np.pi * (self.t / DAY_S + self.lon / 360 - 15 / 24))
        log = 1.5 + 0.7 * self.land + 0.55 * _noise(self.vector, self.t, self.seed, 8, 900, 4.0)
        log -= 0.25 * self.land * sunward * np.cos(np.radians(self.lat))
        log += 0.25 * _noise(self.vector, self.t, self.seed, 9, 250, 3.0)
        for lon, lat, radius, strength in _HAZE:
            x, y, z = _vector(np.array([lon]), np.array([lat]))
            # No matrix product: BLAS adds up in an order that depends on how many places there are.
            near = x * self.vector[0] + y * self.vector[1] + z * self.vector[2]
            log = log + strength * np.exp((near - 1) / np.radians(radius) ** 2)
        return np.asarray(1e-9 * np.exp(log) * np.exp(self.storm_pressure / 2000))


def _bump(x: Floats, middle: float, width: float) -> Floats:
    return np.asarray(np.exp(-0.5 * ((x - middle) / width) ** 2))


def _away(lat: Floats) -> Floats:
    """Degrees from the equator, without the kink there that an absolute value would put into every slope."""
    return np.asarray(np.sqrt(lat**2 + 9))


def _wave_phase(lam: Floats, phi: Floats, t: Floats, seed: int) -> Floats:
    """Where in a wave of the polar front a place is: 0 in a low, π in a high; lows lean and travel east.

    The two hemispheres pass into each other at the equator, where the waves have no amplitude.
    """
    days = t / DAY_S
    side = np.tanh(phi * 6)
    uneven = 1.3 * np.sin(lam + 0.11 * days + 2.1 * seed) + 0.9 * np.sin(2 * lam - 0.07 * days + 0.7 * seed)
    lean = 1.4 * (np.abs(phi) - np.radians(50)) / np.radians(20)
    return np.asarray(_WAVE * lam - 0.85 * days + uneven + 1.9 * side + 0.5 * lean + seed * 0.37)


@lru_cache(maxsize=64)
def _waves(seed: int, salt: int, length_km: int) -> tuple[Floats, Floats, Floats]:
    """Wave vectors, phases and frequencies of a noise field whose values are alike over `length_km`."""
    random = np.random.default_rng([seed & 0x7FFFFFFF, salt])
    count = 24
    direction = random.normal(size=(count, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    size = 2 * np.pi * EARTH_RADIUS_M / 1000 / (2 * length_km * random.uniform(0.6, 1.6, count))
    return (
        direction * size[:, None],
        random.uniform(0, 2 * np.pi, count),
        random.normal(0, 1.2, count) / DAY_S,
    )


def _noise(vector: Floats, t: Floats, seed: int, salt: int, length_km: int, drift: float) -> Floats:
    """Smooth noise of variance 1 on the sphere that drifts east by so many degrees a day, and changes."""
    waves, phases, frequencies = _waves(seed, salt, length_km)
    turn = np.radians(drift) * t / DAY_S
    c, s = np.cos(turn), np.sin(turn)
    x, y, z = vector[0] * c + vector[1] * s, vector[1] * c - vector[0] * s, vector[2]
    total = np.zeros_like(x)
    for (kx, ky, kz), phase, frequency in zip(waves, phases, frequencies, strict=True):
        total += np.cos(kx * x + ky * y + kz * z + phase + frequency * t)
    return np.asarray(total * np.sqrt(2 / len(waves)))


def _land(vector: Floats) -> Floats:
    lon, lat = _degrees(vector)
    coast = 0.12 * _noise(vector, np.zeros_like(lon), 0, 10, 500, 0.0)
    sea = 1 - 1 / (1 + np.exp((lat + 71 + 10 * coast) / 1.5))  # the Antarctic
    for x0, y0, a, b, tilt in _LAND:
        x, y = (np.mod(lon - x0 + 180, 360) - 180) * np.cos(np.radians(y0)), lat - y0
        c, s = np.cos(np.radians(tilt)), np.sin(np.radians(tilt))
        distance = np.hypot((x * c + y * s) / a, (y * c - x * s) / b)
        sea *= 1 - 1 / (1 + np.exp(np.minimum((distance - 1 + coast) / 0.06, 60)))
    return np.asarray(1 - sea)


def _births(time_s: float) -> int:
    return int(np.floor(time_s / _BIRTH_EVERY_S))


def _cyclone(t: Floats, number: npt.NDArray[np.int64], seed: int) -> tuple[Floats, Floats, Floats]:
    """Centre (unit vector), depth in Pa and side of the equator of the cyclones of these numbers."""
    random = [uniform(seed, salt, number) for salt in (101, 102, 103, 104)]
    birth = (number + random[0] * 0.5) * _BIRTH_EVERY_S
    age = np.clip((t - birth) / _LIFE_S, 0.0, 1.0)
    lon0, side = _BASINS[(random[1] * len(_BASINS)).astype(np.int64)].T
    lat = side * (8 + 6 * random[2] + 24 * age**1.6)
    lon = lon0 - 34 * age + 45 * age**3
    depth = (3500 + 4500 * random[3]) * np.sin(np.pi * age) ** 2
    return _vector(lon, lat), depth, side


def _storms(
    vector: Floats, east: Floats, north: Floats, t: Floats, seed: int
) -> tuple[Floats, tuple[Floats, Floats]]:
    """Pressure and wind of the tropical cyclones: Holland's profile, faded out with distance, in balance.

    The wind solves V²/r + fV = (dp/dr)/ρ for the very pressure that is returned, so the two agree exactly; a
    part of it blows inward, as friction makes it.
    """
    pressure, u, v = np.zeros_like(t), np.zeros_like(t), np.zeros_like(t)
    core, shape, reach, inflow = 55e3, 1.4, 650e3, np.radians(18)
    for back in (0, 1, 2):
        number = np.floor(t / _BIRTH_EVERY_S).astype(np.int64) - back
        centre, depth, side = _cyclone(t, number, seed)
        chord = np.sqrt(((vector - centre) ** 2).sum(axis=0))
        r = np.maximum(2 * EARTH_RADIUS_M * np.arcsin(np.minimum(chord / 2, 1)), 1.0)
        near = (r < 6 * reach) & (depth > 0)
        if not near.any():
            continue
        r, depth, side = r[near], depth[near], side[near]
        ratio = (core / r) ** shape
        profile, fade = 1 - np.exp(-ratio), np.exp(-((r / reach) ** 2))
        pressure[near] -= depth * profile * fade
        slope = depth * fade * (np.exp(-ratio) * shape * ratio / r + profile * 2 * r / reach**2)
        lat = np.arcsin(np.clip(centre[2][near], -1, 1))
        half = np.abs(_ROTATION * np.sin(lat)) * r
        speed = np.sqrt(half**2 + r * slope / _AIR_DENSITY) - half
        toward_e = (centre[:, near] * east[:, near]).sum(axis=0)
        toward_n = (centre[:, near] * north[:, near]).sum(axis=0)
        length = np.maximum(np.hypot(toward_e, toward_n), 1e-12)
        toward_e, toward_n = toward_e / length, toward_n / length
        u[near] += speed * (np.cos(inflow) * side * toward_n + np.sin(inflow) * toward_e)
        v[near] += speed * (-np.cos(inflow) * side * toward_e + np.sin(inflow) * toward_n)
    return pressure, (u, v)


def _vector(lon: Floats, lat: Floats) -> Floats:
    lam, phi = np.radians(lon), np.radians(lat)
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)])


def _unit(vector: Floats) -> Floats:
    return np.asarray(vector / np.sqrt((vector**2).sum(axis=0)))


def _degrees(vector: Floats) -> tuple[Floats, Floats]:
    return (
        np.degrees(np.arctan2(vector[1], vector[0])),
        np.degrees(np.arcsin(np.clip(vector[2], -1.0, 1.0))),
    )
