"""Which sensors' measurements of a tick turned out bad since the tick was last issued, or turned out good after all.

A tick is issued again when late data change it, and a verdict may change with it. So that counts by sensor add up over
all issues, each issue states the difference from the one before. The book remembers the bad ones of its open ticks for
that: nine bytes each, and they are few.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sensorgrid.pipeline.gridding.measurements import Measurements
from sensorgrid.pipeline.gridding.series import refused

_BYTES = 9
"""of a bad measurement: the sensor's number and the code of its attribute"""


@dataclass(frozen=True, slots=True)
class Moves:
    """So many measurements of each sensor and attribute moved from good to bad; negative: back."""

    sensor: npt.NDArray[np.uint64]
    code: npt.NDArray[np.uint8]
    change: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sensor)


NO_MOVES = Moves(np.empty(0, np.uint64), np.empty(0, np.uint8), np.empty(0, np.int64))


def bad_rows(rows: Measurements, test: npt.NDArray[np.uint8]) -> bytes:
    """Who measured the bad ones, as bytes; equal for equal sets."""
    bad = np.flatnonzero(refused(test))
    sensor, code = rows.sensor[bad].astype("<u8"), rows.code[bad].astype(np.uint8)
    order = np.lexsort((code, sensor))
    return sensor[order].tobytes() + code[order].tobytes()


def moves(before: bytes, now: bytes) -> Moves:
    """The difference between two issues of a tick, as `bad_rows` tells them.

    Examples
    --------
    >>> moves(b"", b"") is NO_MOVES
    True
    """
    if before == now:
        return NO_MOVES
    (old_sensor, old_code), (new_sensor, new_code) = _read(before), _read(now)
    sensor, code = np.concatenate([old_sensor, new_sensor]), np.concatenate([old_code, new_code])
    change = np.repeat(np.array([-1, 1]), [len(old_sensor), len(new_sensor)])
    order = np.lexsort((code, sensor))
    sensor, code = sensor[order], code[order]
    starts = np.flatnonzero(np.r_[True, (sensor[1:] != sensor[:-1]) | (code[1:] != code[:-1])])
    sums = np.add.reduceat(change[order], starts)
    kept = sums != 0
    return Moves(sensor[starts][kept], code[starts][kept], sums[kept])


def _read(bad: bytes) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
    count = len(bad) // _BYTES
    return np.frombuffer(bad, "<u8", count), np.frombuffer(bad, "u1", count, 8 * count)
