"""A published grid as one value: its identity, its numbers, and how it travels and lies in the lake.

The identity (attribute, tick, region, revision) is what makes every sink idempotent: whoever has seen it once
may drop it the second time.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.book import Issue
from sensorgrid.pipeline.gridding.groups import Group
from sensorgrid.pipeline.gridding.measurements import Measurements, decode, empty
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.gridding.series import TESTS

OBSERVATION = pa.struct(
    [
        ("sensor", pa.uint64()),
        ("attribute", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("longitude", pa.float64()),
        ("latitude", pa.float64()),
        ("value", pa.float64()),
        ("flag", pa.int8()),
        ("test", pa.string()),
    ]
)
TILE = pa.schema(
    [
        ("attribute", pa.string()),
        ("day", pa.date32()),
        ("tick", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("region", pa.string()),
        ("revision", pa.int32()),
        ("x0", pa.int32()),
        ("y0", pa.int32()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("values", pa.list_(pa.float32())),
        ("error", pa.list_(pa.float32())),
        ("sensors", pa.int32()),
        ("used", pa.int32()),
        ("flagged", pa.int32()),
        ("kernel", pa.string()),
        ("observations", pa.list_(OBSERVATION)),
    ]
)
"""What a row of the lake holds; `observations` are the measurements of this tick and region, with flags."""


class Identity(NamedTuple):
    """What tells a published grid from all others."""

    attribute: str
    tick: int
    region: str
    revision: int


@dataclass(frozen=True, slots=True)
class Block:
    """One attribute, region, tick and revision: what is written to the lake and handed to gateways."""

    identity: Identity
    values: npt.NDArray[np.float32]
    """row by row as in an array ``[y, x]``"""
    error: npt.NDArray[np.float32]
    """standard error of the field: half of the interval that holds the truth in 68 of 100 cases"""
    sensors: int
    """that contributed, halo included"""
    kernel: str
    observations: Measurements
    """of this tick and region"""
    test: npt.NDArray[np.uint8]
    """for each of them the test that it failed"""
    inputs: tuple[str, ...]
    """attributes that the observations' codes count"""

    def encode(self) -> bytes:
        """As bytes, for Spark to carry."""
        rows = self.observations.encode()
        head = json.dumps(
            [*self.identity, self.sensors, self.kernel, len(self.values), len(rows), self.inputs]
        )
        parts = (head.encode(), self.values.tobytes(), self.error.tobytes(), rows, self.test.tobytes())
        return len(parts[0]).to_bytes(4, "little") + b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> "Block":
        """Read what `encode` wrote."""
        at = 4 + int.from_bytes(data[:4], "little")
        *identity, sensors, kernel, points, size, inputs = json.loads(data[4:at])
        values = np.frombuffer(data, "<f4", points, at)
        error = np.frombuffer(data, "<f4", points, at + 4 * points)
        at += 8 * points
        rows, test = decode(data[at : at + size]), np.frombuffer(data, "u1", -1, at + size)
        return cls(Identity(*identity), values, error, sensors, kernel, rows, test, tuple(inputs))


def blocks_of(issue: Issue, group: Group, regions: Regions, region: int) -> Iterator[Block]:
    """The blocks of an issue; the observations go with the first, so that each is written once."""
    rows, test = issue.grid.rows, issue.grid.test
    for tile, revision in zip(issue.grid.tiles, issue.revisions, strict=True):
        if revision is None:
            continue
        identity = Identity(tile.attribute, issue.tick, regions.name(region), revision)
        yield Block(identity, tile.values, tile.error, tile.sensors, tile.kernel, rows, test, group.inputs)
        rows, test = empty(), np.empty(0, np.uint8)


def table_of(blocks: Iterable[Block], grid: Grid) -> pa.Table:
    """Blocks as rows of the lake."""
    regions = Regions(grid)
    width, height = regions.region_shape
    blocks = list(blocks)
    columns: dict[str, list[Any]] = {name: [] for name in TILE.names}
    for block in blocks:
        name, tick, region, revision = block.identity
        time = grid.time_of(tick)
        box = regions.boxes[regions.number(region)]
        flagged = int(np.count_nonzero(block.test))
        row = (
            name, time.date(), tick, time, region, revision, box.x0, box.y0, width, height, None, None,
            block.sensors, len(block.test) - flagged, flagged, block.kernel, None,
        )  # fmt: skip
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    arrays = {n: pa.array(c, TILE.field(n).type) for n, c in columns.items() if n not in _NESTED}
    arrays["values"] = _lists([b.values for b in blocks], pa.float32())
    arrays["error"] = _lists([b.error for b in blocks], pa.float32())
    arrays["observations"] = _observations(blocks)
    return pa.table([arrays[name] for name in TILE.names], schema=TILE)


_NESTED = {"values", "error", "observations"}


def _lists(parts: list[npt.NDArray[np.float32]], kind: pa.DataType) -> pa.Array:
    offsets = np.cumsum([0, *(len(p) for p in parts)]).astype(np.int32)
    flat = np.concatenate(parts) if parts else np.empty(0, np.float32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, kind))


def _observations(blocks: list[Block]) -> pa.Array:
    """Nested columns, made whole instead of row by row."""
    rows = [b.observations for b in blocks]
    offsets = pa.array(np.cumsum([0, *map(len, rows)]).astype(np.int32))

    def column(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(r, name) for r in rows] or [np.empty(0)])

    test = np.concatenate([b.test for b in blocks] or [np.empty(0, np.uint8)]).astype(np.int32)
    names = [n for b in blocks for n in b.inputs]
    shift = np.repeat(np.cumsum([0, *(len(b.inputs) for b in blocks)])[:-1], [len(r) for r in rows])
    attribute = pa.DictionaryArray.from_arrays(pa.array((column("code") + shift).astype(np.int32)), names)
    nested = pa.StructArray.from_arrays(
        [
            pa.array(column("sensor").astype(np.uint64)),
            attribute.cast(pa.string()) if names else pa.array([], pa.string()),
            pa.array(column("time_us").astype(np.int64)).cast(pa.timestamp("us", tz="UTC")),
            pa.array(column("x").astype(np.float64)),
            pa.array(column("y").astype(np.float64)),
            pa.array(column("value").astype(np.float64)),
            pa.array(np.where(test > 0, 3, 1).astype(np.int8)),
            pa.DictionaryArray.from_arrays(pa.array(test), [t or None for t in TESTS]).cast(pa.string()),
        ],
        fields=list(OBSERVATION),
    )
    return pa.ListArray.from_arrays(offsets, nested)
