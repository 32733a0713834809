"""Many measurements as columns of numbers, and as the bytes that Spark's shuffle and state carry.

A *pack* is a group of measurements in one binary value. Spark then moves and stores one row per group instead
of one per measurement, which is what makes the pipeline faster than a single process. The order of rows is
canonical (series, time, value), and so is everything computed from them: the stream meets measurements in the
order of their arrival, the backfill in the order of its files, and both must give the same grid, bit for bit.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

_HEAD = struct.Struct("<BII")
_VERSION = 2
_WITHOUT_ELEVATION = 1
"""the version that packs had before they carried elevations; checkpoints may hold some"""
_COLUMNS: tuple[tuple[str, str], ...] = (
    ("sensor", "<u8"), ("time_us", "<i8"), ("x", "<f8"), ("y", "<f8"), ("value", "<f8"), ("code", "u1"),
    ("home", "u1"), ("elevation", "<f4"),
)  # fmt: skip
_NOBODY_SAYS = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measurements of one group of attributes, as columns of equal length."""

    sensor: npt.NDArray[np.uint64]
    """identity of the sensor, a hash of its name (see `sensor_number`)"""
    time_us: npt.NDArray[np.int64]
    """event time, microseconds since 1970"""
    x: npt.NDArray[np.float64]
    """longitude, or x on a plane"""
    y: npt.NDArray[np.float64]
    """latitude, or y"""
    value: npt.NDArray[np.float64]
    """in canonical units"""
    code: npt.NDArray[np.uint8]
    """which attribute of the group (see `groups`)"""
    home: npt.NDArray[np.uint8]
    """1 where the sensor lies in the region itself, 0 in its halo: each measurement has one home"""
    elevation: npt.NDArray[np.float32] = field(default_factory=lambda: _NOBODY_SAYS)
    """of the sensor, metres above the sea; NaN where nobody says it, everywhere if it is left out"""

    def __post_init__(self) -> None:
        if self.elevation is _NOBODY_SAYS:
            object.__setattr__(self, "elevation", np.full(len(self.sensor), np.nan, np.float32))

    def __len__(self) -> int:
        return len(self.sensor)

    def take(self, which: npt.NDArray[np.integer] | npt.NDArray[np.bool_] | slice) -> "Measurements":
        """Some of the rows."""
        return Measurements(*(getattr(self, f.name)[which] for f in fields(self)))

    def with_home(self, home: npt.NDArray[np.uint8]) -> "Measurements":
        """The same rows, at home or not."""
        return replace(self, home=home)

    def encode(self) -> bytes:
        """As bytes; `decode` reads them without copying."""
        parts = [np.ascontiguousarray(getattr(self, name), kind).tobytes() for name, kind in _COLUMNS]
        return b"".join([_HEAD.pack(_VERSION, len(self), 0), *parts])

    def canonical(self) -> "Measurements":
        """In canonical order: series (sensor and code), time, value; those at home first, then by position.

        Of repeats the one with the lowest elevation comes first, and one without any last.
        """
        keys = (
            self.elevation,
            self.y,
            self.x,
            1 - self.home,
            self.value,
            self.time_us,
            self.code,
            self.sensor,
        )
        return self.take(np.lexsort(keys))

    def exact_repeats(self) -> npt.NDArray[np.bool_]:
        """Of rows in canonical order, those that repeat the row before: same series, time and value."""
        repeats = np.zeros(len(self), bool)
        if len(self) > 1:
            repeats[1:] = (
                (self.sensor[1:] == self.sensor[:-1])
                & (self.code[1:] == self.code[:-1])
                & (self.time_us[1:] == self.time_us[:-1])
                & (self.value[1:] == self.value[:-1])
            )
        return repeats


def empty() -> Measurements:
    """No measurement at all."""
    return Measurements(*(np.empty(0, kind) for _, kind in _COLUMNS))


def decode(data: bytes) -> Measurements:
    """The measurements in a pack."""
    version, rows, _ = _HEAD.unpack_from(data)
    if version not in (_VERSION, _WITHOUT_ELEVATION):
        raise ValueError(f"pack: found format {version}, expected {_VERSION}")
    columns, at = [], _HEAD.size
    for _, kind in _COLUMNS[: 7 if version == _WITHOUT_ELEVATION else None]:
        columns.append(np.frombuffer(data, kind, rows, at))
        at += columns[-1].nbytes
    return Measurements(*columns)


def concatenate(parts: Sequence[Measurements]) -> Measurements:
    """All rows of several."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return empty()
    return Measurements(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Measurements)))


def sensor_number(name: str) -> int:
    """A sensor's number: 64 bits of a hash, the same in every process and on every machine.

    Among a million sensors two share a number with a probability of 3 in 10^8.
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def split_by(keys: npt.NDArray[np.int64], rows: Measurements) -> Iterator[tuple[int, Measurements]]:
    """The rows of each key, keys ascending, the order of rows kept."""
    if not len(rows):
        return
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sorted_rows = rows.take(order)
    for start, stop in zip(starts, [*starts[1:], len(ordered)], strict=True):
        yield int(ordered[start]), sorted_rows.take(slice(start, stop))


def deduplicate(parts: Iterable[Measurements]) -> tuple[Measurements, int]:
    """All rows in canonical order without exact repeats, and how many repeats were at home."""
    rows = concatenate([p for p in parts if len(p)]).canonical()
    repeats = rows.exact_repeats()
    return rows.take(~repeats), int(rows.home[repeats].sum())
