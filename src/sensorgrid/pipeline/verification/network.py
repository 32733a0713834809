"""A network of stations as the verification sees it: who reported what, moment by moment.

Measurements come as the grids get them: checked against their own past, the last good value of each sensor, not
older than the configuration allows. Only a value that was read during the tick itself is *fresh*, and only fresh
values are compared with estimates; older ones help to estimate.

Sensors that stand at one place are one station here. The same mast often reports under two names, and leaving one
of them out would leave nothing out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.groups import Group
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, metres
from sensorgrid.pipeline.gridding.measurements import Measurements, deduplicate
from sensorgrid.pipeline.gridding.series import Past, SeriesLimits, check_series
from sensorgrid.pipeline.gridding.tile import last_vectors
from sensorgrid.pipeline.ingest.attributes import KNOWN

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SAME_PLACE_M = 50.0
"""sensors closer than this are one station, unless the whole network is that small"""
SAME_PLACE = 0.01
"""of the usual distance between neighbours: the bound in a small network"""


class VerificationError(SensorGridError, ValueError):
    """Data from which nothing can be verified."""


@dataclass(frozen=True, slots=True)
class Moment:
    """All that is known at the end of one tick."""

    tick: int
    end_us: int
    """the end of the tick, microseconds since 1970"""
    station: Ints
    """(n,) index into the network's stations"""
    fresh: Bools
    """(n,) whether the value was read during the tick"""
    outputs: tuple[Observations, ...]
    """for each attribute of the network"""

    def of(self, chosen: Bools) -> "Moment":
        """Some stations only; `chosen` has an entry per station of the network."""
        keep = chosen[self.station]
        return replace(
            self,
            station=self.station[keep],
            fresh=self.fresh[keep],
            outputs=tuple(output.without(~keep) for output in self.outputs),
        )


@dataclass(frozen=True, slots=True)
class StationNetwork:
    """Stations and what they reported; attributes that are gridded together (wind) come together."""

    name: str
    attributes: tuple[str, ...]
    moments: tuple[Moment, ...]
    longitude: Floats
    """(s,) of each station; x on a plane"""
    latitude: Floats
    """(s,) or y"""
    coordinates: str
    tick_s: float
    elevation: Floats | None = None
    """(s,) metres, NaN where unknown; None: nobody knows"""

    def __len__(self) -> int:
        return len(self.longitude)

    @property
    def positions(self) -> Floats:
        """(s, d) of the stations, in metres."""
        return metres(self.longitude, self.latitude, self.coordinates)

    def of(self, chosen: Bools) -> "StationNetwork":
        """Some of the stations, numbered as before."""
        return replace(self, moments=tuple(moment.of(chosen) for moment in self.moments))

    def only(self, chosen: Ints, name: str, moments: Sequence[Moment] | None = None) -> "StationNetwork":
        """A network of these stations alone, numbered anew."""
        number = np.full(len(self), -1)
        number[chosen] = np.arange(len(chosen))
        kept = [m.of(number >= 0) for m in (self.moments if moments is None else moments)]
        return replace(
            self,
            name=name,
            moments=tuple(replace(m, station=number[m.station]) for m in kept if len(m.station)),
            longitude=self.longitude[chosen],
            latitude=self.latitude[chosen],
            elevation=None if self.elevation is None else self.elevation[chosen],
        )


def physical_range(attribute: str) -> tuple[float, float]:
    """Between which values the truth must lie, whatever instruments read.

    Examples
    --------
    >>> physical_range("relative_humidity")
    (0.0, 1.0)
    >>> physical_range("eastward_wind")
    (-120.0, 120.0)
    """
    known = KNOWN.get(attribute)
    low, high = (None, None) if known is None else known.physical
    return -np.inf if low is None else float(low), np.inf if high is None else float(high)


def network_of(
    name: str,
    rows: Measurements,
    group: Group,
    grid: Grid,
    limits: tuple[SeriesLimits, ...],
    max_age_s: float,
    ticks: Sequence[int],
    elevation: Mapping[int, float] | None = None,
) -> StationNetwork:
    """The network behind measurements of one group at some ticks; `elevation` is by number of the sensor."""
    rows, _ = deduplicate([rows])
    checked = check_series(rows, limits, max_age_s, Past.nothing())
    sensors, first = np.unique(rows.sensor, return_index=True)
    longitude, latitude = rows.x[first], rows.y[first]
    station = places(metres(longitude, latitude, grid.coordinates))
    heads = np.unique(station, return_index=True)[1]
    tick_us = round(grid.tick * 1e6)
    moments = []
    for tick in ticks:
        end_us = (tick + 1) * tick_us
        near = (rows.time_us < end_us) & (rows.time_us >= end_us - round(max_age_s * 1e6))
        found = last_vectors(rows, np.flatnonzero(near & ~checked.bad_at(end_us)), group)
        if not len(found.at):
            continue
        who = np.searchsorted(sensors, rows.sensor[found.at])
        height = None
        if elevation is not None:
            height = np.array([elevation.get(int(number), np.nan) for number in sensors])[who]
        outputs = [replace(one, covariate=height) for one in found.observations(rows, grid, end_us)]
        fresh = rows.time_us[found.at] >= end_us - tick_us
        moments.append(Moment(int(tick), end_us, station[who], fresh, tuple(outputs)))
    heights = None
    if elevation is not None:
        heights = np.array([elevation.get(int(number), np.nan) for number in sensors[heads]])
    return StationNetwork(
        name, group.outputs, tuple(moments), longitude[heads], latitude[heads], grid.coordinates,
        float(grid.tick), heights,
    )  # fmt: skip


def places(positions: Floats) -> Ints:
    """(n,) the number of each position's place: those that are practically one share it.

    Examples
    --------
    >>> places(np.array([[0.0, 0.0], [9000.0, 0.0], [9001.0, 0.0], [0.0, 9000.0]]))
    array([0, 1, 1, 2])
    """
    count = len(positions)
    if count < 2:
        return np.zeros(count, np.int64)
    tree = cKDTree(positions)
    apart = tree.query(positions, k=[2])[0][:, 0]
    apart = apart[apart > 0]
    within = min(SAME_PLACE_M, SAME_PLACE * float(np.median(apart))) if len(apart) else SAME_PLACE_M
    pairs = tree.query_pairs(within, output_type="ndarray")
    links = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    found: Ints = connected_components(links, directed=False)[1].astype(np.int64)
    return found


def evenly(found: Sequence[Any], count: int) -> list[Any]:
    """At most so many, at even steps, the first and the last among them."""
    if len(found) <= count:
        return list(found)
    return [found[i] for i in np.unique(np.linspace(0, len(found) - 1, count).round().astype(int))]


def ticks_needed(stations: int) -> int:
    """How many ticks a fit should see: many where a tick has few readings."""
    return max(12, ceil(900 / max(stations, 1)))
