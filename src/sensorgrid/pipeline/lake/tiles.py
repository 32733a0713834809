"""A published grid as one value: its identity, its numbers, and how it travels and lies in the lake.

The identity (attribute, tick, region, revision) is what makes every sink idempotent: whoever has seen it once
may drop it the second time.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
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
from sensorgrid.pipeline.gridding.series import FLAGS, TESTS, refused

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
        ("lower", pa.list_(pa.float32())),
        ("upper", pa.list_(pa.float32())),
        ("number_of_observations", pa.list_(pa.uint8())),
        ("age", pa.list_(pa.float32())),
        ("observed_points", pa.int32()),
        ("newest_age", pa.float32()),
        ("gaps", pa.string()),
        ("noise", pa.float32()),
        ("transform", pa.string()),
    ]
)
"""What a row of the lake holds; `observations` are the measurements of this tick and region, with flags.

From `lower` on, columns are null in files of earlier releases. `lower` and `upper` are null where they say no more
than values and error do. `number_of_observations` and `age` (of the newest, in seconds) are those within reach of
each point; `observed_points` is how many points have any, `newest_age` the least age of all, `gaps` what stands at the
others. `noise` is the error of one observation after the `transform`, which is empty if there is none.
"""


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
    basis: "Basis | None" = None
    """what its points rest on; None: nobody has said it"""

    @property
    def silent_s(self) -> float | None:
        """See `Basis.silent_s`."""
        return None if self.basis is None else self.basis.silent_s

    def encode(self) -> bytes:
        """As bytes, for Spark to carry."""
        rows, basis = self.observations.encode(), self.basis
        points = 0 if basis is None else len(basis.observations)
        bounds = 0 if basis is None or basis.lower is None else len(basis.lower)
        head = [*self.identity, self.sensors, self.kernel, len(self.values), len(rows), self.inputs]
        said = None if basis is None else (basis.gaps, basis.noise, basis.transform)
        text = json.dumps([*head, points, bounds, said]).encode()
        parts = [text, self.values.tobytes(), self.error.tobytes(), rows]
        if basis is not None:
            parts += [basis.age_s.tobytes(), basis.observations.tobytes()]
            if basis.lower is not None and basis.upper is not None:
                parts += [basis.lower.tobytes(), basis.upper.tobytes()]
        return len(text).to_bytes(4, "little") + b"".join([*parts, self.test.tobytes()])

    @classmethod
    def decode(cls, data: bytes) -> "Block":
        """Read what `encode` wrote."""
        at = 4 + int.from_bytes(data[:4], "little")
        head = json.loads(data[4:at])
        head += [0, 0, None][len(head) - _HEAD :]  # of before 0.8: nobody said what it rests on
        *identity, sensors, kernel, size, packed, inputs, points, bounds, said = head

        def array(kind: str, count: int) -> npt.NDArray[Any]:
            nonlocal at
            found = np.frombuffer(data, kind, count, at)
            at += found.nbytes
            return found

        values, error = array("<f4", size), array("<f4", size)
        rows = decode(data[at : at + packed])
        at += packed
        basis = None
        if said is not None:
            age_s, observations = array("<f4", points), array("u1", points)
            lower, upper = (array("<f4", bounds), array("<f4", bounds)) if bounds else (None, None)
            basis = Basis(observations, age_s, lower, upper, *said)
        test = array("u1", -1)
        return cls(Identity(*identity), values, error, sensors, kernel, rows, test, tuple(inputs), basis)


@dataclass(frozen=True, slots=True)
class Basis:
    """What the points of a block rest on."""

    observations: npt.NDArray[np.uint8]
    """of each point: how many are within its reach"""
    age_s: npt.NDArray[np.float32]
    """of each point: age of the newest that it rests on; NaN if there is none"""
    lower: npt.NDArray[np.float32] | None
    """ends of the interval that the error is half of; None where they are values - error, values + error"""
    upper: npt.NDArray[np.float32] | None
    gaps: str
    """what stands where nothing is within reach"""
    noise: float = 0.0
    """error of one observation, after the transform"""
    transform: str = ""
    """what values went through, for people; empty: nothing"""

    @property
    def observed(self) -> int:
        """How many points have an observation within reach."""
        return int(np.count_nonzero(self.observations))

    @property
    def newest_s(self) -> float | None:
        """Age of the newest observation that any point rests on; None if there is none."""
        found = self.age_s[~np.isnan(self.age_s)]
        return float(found.min()) if len(found) else None

    @property
    def columns(self) -> tuple[int, float | None, str, float, str]:
        """The last columns of a row of the lake."""
        return self.observed, self.newest_s, self.gaps, self.noise, self.transform

    @property
    def silent_s(self) -> float | None:
        """None if an observation is within reach of any point. Otherwise how old the newest is that it rests on:
        infinitely, if it is only what was known beforehand."""
        if self.observed:
            return None
        newest = self.newest_s
        return float("inf") if newest is None else newest


def blocks_of(issue: Issue, group: Group, regions: Regions, region: int) -> Iterator[Block]:
    """The blocks of an issue; the observations go with the first, so that each is written once."""
    rows, test = issue.grid.rows, issue.grid.test
    for tile, revision in zip(issue.grid.tiles, issue.revisions, strict=True):
        if revision is None:
            continue
        identity = Identity(tile.attribute, issue.tick, regions.name(region), revision)
        lower, upper = (tile.lower, tile.upper) if tile.transform else (None, None)
        basis = Basis(tile.observations, tile.age_s, lower, upper, tile.gaps, tile.noise, tile.transform)
        yield Block(
            identity, tile.values, tile.error, tile.sensors, tile.kernel, rows, test, group.inputs, basis
        )
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
        flagged, basis = int(np.count_nonzero(refused(block.test))), block.basis
        row = (
            name, time.date(), tick, time, region, revision, box.x0, box.y0, width, height, None, None,
            block.sensors, len(block.test) - flagged, flagged, block.kernel, None, None, None, None, None,
            *(_NOTHING_SAID if basis is None else basis.columns),
        )  # fmt: skip
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    arrays = {n: pa.array(c, TILE.field(n).type) for n, c in columns.items() if n not in _NESTED}
    arrays["values"] = _lists([b.values for b in blocks], pa.float32())
    arrays["error"] = _lists([b.error for b in blocks], pa.float32())
    arrays["observations"] = _observations(blocks)
    bases = [b.basis for b in blocks]
    arrays["lower"] = _lists([None if b is None else b.lower for b in bases], pa.float32())
    arrays["upper"] = _lists([None if b is None else b.upper for b in bases], pa.float32())
    arrays["number_of_observations"] = _lists(
        [None if b is None else b.observations for b in bases], pa.uint8()
    )
    arrays["age"] = _lists([None if b is None else b.age_s for b in bases], pa.float32(), nulls=True)
    return pa.table([arrays[name] for name in TILE.names], schema=TILE)


_HEAD = 9
"""parts of a block's head before 0.8"""
_NOTHING_SAID = (None,) * 5
_NESTED = {"values", "error", "observations", "lower", "upper", "number_of_observations", "age"}


def _lists(parts: Sequence[npt.NDArray[Any] | None], kind: pa.DataType, nulls: bool = False) -> pa.Array:
    """A list per block, null where there is none; with `nulls` NaN becomes null."""
    there = [p for p in parts if p is not None]
    offsets = np.cumsum([0, *(0 if p is None else len(p) for p in parts)]).astype(np.int32)
    flat = np.concatenate(there) if there else np.empty(0)
    mask = None if len(there) == len(parts) else pa.array([p is None for p in parts])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, kind, from_pandas=nulls), mask=mask)


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
            pa.array(np.asarray(FLAGS, np.int8)[test]),
            pa.DictionaryArray.from_arrays(pa.array(test), [t or None for t in TESTS]).cast(pa.string()),
        ],
        fields=list(OBSERVATION),
    )
    return pa.ListArray.from_arrays(offsets, nested)
