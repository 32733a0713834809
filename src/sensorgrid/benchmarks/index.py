"""The index against an R-tree, in one run, on the same boxes, with the same answers.

The peer is `rtree` (libspatialindex). Each side is called in the way that suits it best: batch against batch
(`rtree` bulk-loads from arrays and answers `intersection_v`; it has no batch removal), single against single.
Every figure is the median of several rounds in which both sides take turns, after one round to warm up: so
neither pays for memory that the process touches for the first time.
"""

import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sensorgrid.benchmarks import BenchmarkError
from sensorgrid.benchmarks.workloads import Distribution, boxes, limits
from sensorgrid.index.cell import Cell
from sensorgrid.index.decompose import decompose_box, whole_cells
from sensorgrid.index.enclosing import Boxes
from sensorgrid.index.gbd_tree import PagedTree
from sensorgrid.model.box import Box
from sensorgrid.model.grid import ORDER_2D, Grid
from sensorgrid.model.ids import Instant
from sensorgrid.overlay.outlets import Outlets, Supply

DISTRIBUTIONS: tuple[Distribution, ...] = ("uniform", "hotspot")
ROUNDS = 5
SINGLE_ROUNDS = 3
HITS_PER_ROUND = 4_000_000
INSERTS_PER_ROUND = 200_000
CARRIED, CARRIED_DIGITS = 10_000, 16
"""cells that a busy broker carries, and their length"""
SINGLES = 200
REMOVALS = 50
DECOMPOSE_DEPTH = 20
DECOMPOSE_QUERIES = 2_000

MINE, PEER = "sensorgrid", "rtree"

Ints = npt.NDArray[np.int64]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class IndexSizes:
    """How much to measure."""

    sizes: tuple[int, ...]
    """stored queries"""
    grown_max: int
    """up to this size the R-tree is also built insertion by insertion, in case its lookups gain by it"""
    rounds_max: int
    """rounds that count"""


FULL = IndexSizes(sizes=(10_000, 100_000, 1_000_000), grown_max=100_000, rounds_max=100)
QUICK = IndexSizes(sizes=(10_000,), grown_max=10_000, rounds_max=3)


@dataclass(frozen=True, slots=True)
class IndexCase:
    """One size and distribution, with everything both sides need."""

    distribution: Distribution
    """how the boxes lie"""
    grid: Grid
    """on which they lie"""
    stored: Boxes
    """what is stored"""
    asked: Boxes
    """what is looked up"""
    owners: Ints
    """of what is stored"""


def run(
    plan: IndexSizes = FULL, seed: int = 1, rounds: int = ROUNDS, progress: Callable[[str], None] = print
) -> Iterator[Row]:
    """All rows of one seed, size by size; `progress` hears what is being measured."""
    rtree = _rtree_module()
    rounds = min(rounds, plan.rounds_max)
    grid = Grid(order=ORDER_2D)  # an R-tree knows boxes, not resolutions
    for distribution in DISTRIBUTIONS:
        for size in plan.sizes:
            rng = np.random.default_rng([seed, size])
            lookups = _lookups(distribution, size)
            stored, asked = (boxes(distribution, number, grid, rng) for number in (size, lookups))
            case = IndexCase(distribution, grid, stored, asked, np.arange(size))
            progress(f"{distribution}, {size:,} stored: batch")
            rows = list(_batch_rows(case, rounds, rtree, seed))
            yield from rows
            yield from _owner_rows(case, rounds, rng, rows[0]["bytes_per_query"])
            progress(f"{distribution}, {size:,} stored: single")
            sizes_in_bytes = {row["impl"].removesuffix("-batch"): row["bytes_per_query"] for row in rows}
            yield from _single_rows(case, min(rounds, SINGLE_ROUNDS), rtree, sizes_in_bytes)
            if size <= plan.grown_max:
                progress(f"{distribution}, {size:,} stored: an R-tree built insertion by insertion")
                yield _grown_row(case, rounds, rtree, sizes_in_bytes[PEER])
    progress(f"decompose, depth {DECOMPOSE_DEPTH}")
    yield from _cell_rows(seed)
    progress(f"the carrier of a cell, among {CARRIED:,}")
    yield from _carrier_rows(seed, min(rounds, SINGLE_ROUNDS))


def ratios(rows: Iterable[Row]) -> Iterator[Row]:
    """How many times as fast as the better R-tree we are: by distribution, size, mode (batch, single) and operation.

    Insertion where it is harder has modes of its own (`batch-shuffled`, …) and the R-tree's bulk load as its peer.
    """
    cases: dict[tuple[str, int, str], dict[str, float]] = {}
    for row in rows:
        if row["stored"]:
            case = (row["distribution"], row["stored"], row["operation"])
            cases.setdefault(case, {})[row["impl"]] = row["per_second"]
    for (distribution, stored, operation), found in cases.items():
        for impl, per_second in found.items():
            if impl.startswith(MINE):
                mode = impl.removeprefix(f"{MINE}-")
                kind = mode.partition("-")[0]
                peers = [found[name] for name in (f"{PEER}-{kind}", f"{PEER}-{kind}-grown") if name in found]
                yield {
                    "distribution": distribution,
                    "stored": stored,
                    "operation": operation,
                    "mode": mode,
                    "ratio": per_second / max(peers),
                }


def _rtree_module() -> Any:
    try:
        import rtree
    except ImportError:
        raise BenchmarkError(
            "rtree: found no such package, expected `pip install sensorgrid[bench]`"
        ) from None
    return rtree


def _lookups(distribution: Distribution, size: int) -> int:
    """How many lookups a round makes: so that a round finds some millions of hits at most."""
    share = 0.0012 if distribution == "uniform" else 0.45
    return int(np.clip(HITS_PER_ROUND / (share * size), 10, 2000))


class _Stopwatch:
    """Seconds by implementation and operation, over the rounds of a case."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], list[float]] = {}

    def time(self, impl: str, operation: str, action: Callable[..., Any], *args: Any) -> Any:
        gc.collect()
        began = time.perf_counter()
        result = action(*args)
        self._seconds.setdefault((impl, operation), []).append(time.perf_counter() - began)
        return result

    def median(self, impl: str, operation: str) -> float:
        """Without the first round, which warms up."""
        return float(np.median(self._seconds[impl, operation][1:]))


def _batch_rows(case: IndexCase, rounds: int, rtree: Any, seed: int) -> Iterator[Row]:
    """Many per call. `rtree` has no batch removal: it removes one by one, and only some."""
    watch, count = _Stopwatch(), len(case.stored)
    stored, asked = _corners(case.stored), _corners(case.asked)
    gone = max(count // 10, 1)
    some_bounds = list(enumerate(_bounds(case.stored[: min(gone, REMOVALS)])))
    repeats = max(1, INSERTS_PER_ROUND // count)  # a small index is built in less than a millisecond
    for turn in range(rounds + 1):
        tree = watch.time(MINE, "insert", _repeat, repeats, _build, case)
        peer = watch.time(PEER, "insert", _repeat, repeats, rtree.index.Index, (case.owners, *stored))
        size_bytes = tree.nbytes
        found = watch.time(MINE, "lookup", tree.overlaps_many, case.asked)
        hits, counts = watch.time(PEER, "lookup", peer.intersection_v, *asked)
        if turn == 0:
            _verify(found, hits, counts)
        watch.time(MINE, "remove", tree.remove_boxes, case.stored[:gone], case.owners[:gone])
        watch.time(PEER, "remove", _each, peer.delete, some_bounds)
    done = {"insert": count * repeats, "lookup": len(case.asked), "remove": gone}
    hits_per_lookup = len(found.owners) / len(case.asked)
    for impl, size in ((MINE, size_bytes / count), (PEER, _peer_bytes(case.distribution, count, seed))):
        for operation, number in done.items():
            if (impl, operation) == (PEER, "remove"):
                number = min(gone, REMOVALS)
            row = _row(f"{impl}-batch", operation, case, number / watch.median(impl, operation), size)
            if operation == "lookup":
                row["same_hits"] = True  # or `_verify` had raised
                row["hits_per_lookup"] = hits_per_lookup
                row["seconds_per_hit"] = 1 / (row["per_second"] * hits_per_lookup)
            yield row


def _owner_rows(case: IndexCase, rounds: int, rng: np.random.Generator, size: float) -> Iterator[Row]:
    """Insertion where it is harder for us: owners in random order, huge owners, a tree that is not empty."""
    half = len(case.stored) // 2
    watch, repeats = _Stopwatch(), max(1, INSERTS_PER_ROUND // len(case.stored))
    shuffled = replace(case, owners=rng.permutation(case.owners))
    sparse = replace(case, owners=rng.integers(0, 2**62, len(case.stored)))
    for _ in range(rounds + 1):
        watch.time("shuffled", "insert", _repeat, repeats, _build, shuffled)
        watch.time("sparse", "insert", _repeat, repeats, _build, sparse)
        trees = [PagedTree(case.grid) for _ in range(repeats)]
        for tree in trees:
            tree.insert_boxes(case.stored[:half], case.owners[:half])
        second = [(tree, case.stored[half:], case.owners[half:]) for tree in trees]
        watch.time("second", "insert", _each, PagedTree.insert_boxes, second)
    for name, number in (("shuffled", 2 * half), ("sparse", 2 * half), ("second", half)):
        rate = number * repeats / watch.median(name, "insert")
        yield _row(f"{MINE}-batch-{name}", "insert", case, rate, size)


def _single_rows(case: IndexCase, rounds: int, rtree: Any, sizes: dict[str, float]) -> Iterator[Row]:
    """One per call, through the Python interface of each side, on an index that is full already."""
    watch, number = _Stopwatch(), min(SINGLES, len(case.stored) // 10)
    tree, peer = _build(case), rtree.index.Index((case.owners, *_corners(case.stored)))
    asked = [Box(*row) for row in case.asked[:number].tolist()]
    asked_bounds, bounds = _bounds(case.asked[:number]), _bounds(case.stored[:number])
    rows = [(case.stored[i : i + 1], case.owners[i : i + 1]) for i in range(number)]
    mine: dict[str, Callable[[], object]] = {
        "remove": lambda: _each(tree.remove_boxes, rows),
        "insert": lambda: _each(tree.insert_boxes, rows),
        "lookup": lambda: _each(tree.overlaps, [(box,) for box in asked]),
    }
    theirs: dict[str, Callable[[], object]] = {
        "remove": lambda: _each(peer.delete, list(enumerate(bounds))),
        "insert": lambda: _each(peer.insert, list(enumerate(bounds))),
        "lookup": lambda: [list(peer.intersection(bound)) for bound in asked_bounds],
    }
    for box, bound in zip(asked, asked_bounds, strict=True):
        _verify([tree.overlaps(box)], np.array(list(peer.intersection(bound))), np.array([0]))
    for _ in range(rounds + 1):
        for operation in mine:
            watch.time(MINE, operation, mine[operation])
            watch.time(PEER, operation, theirs[operation])
    for impl in (MINE, PEER):
        for operation in mine:
            done = len(asked) if operation == "lookup" else number
            rate = done / watch.median(impl, operation)
            yield _row(f"{impl}-single", operation, case, rate, sizes[impl])


def _grown_row(case: IndexCase, rounds: int, rtree: Any, size: float) -> Row:
    """Lookups in an R-tree that was built one by one instead of in bulk."""
    watch, grown = _Stopwatch(), rtree.index.Index()
    _each(grown.insert, list(enumerate(_bounds(case.stored))))
    for _ in range(rounds + 1):
        watch.time("grown", "lookup", grown.intersection_v, *_corners(case.asked))
    return _row(
        f"{PEER}-batch-grown", "lookup", case, len(case.asked) / watch.median("grown", "lookup"), size
    )


def _build(case: IndexCase) -> PagedTree:
    tree = PagedTree(case.grid)
    tree.insert_boxes(case.stored, case.owners)
    return tree


def _repeat(times: int, action: Callable[..., Any], *args: Any) -> Any:
    for _ in range(times):
        result = action(*args)
    return result


def _each(action: Callable[..., object], arguments: Sequence[tuple[Any, ...]]) -> None:
    for some in arguments:
        action(*some)


def _cell_rows(seed: int) -> Iterator[Row]:
    """How long the hot spot's queries take to become cells, and a cell to become slices."""
    grid = Grid()
    rng = np.random.default_rng([seed, DECOMPOSE_DEPTH])
    wanted = limits(DECOMPOSE_QUERIES, grid, rng).tolist()
    drawn = [Box(*row) for row in boxes("hotspot", DECOMPOSE_QUERIES, grid, rng).tolist()]
    decompose_box(drawn[0], (1, 1, 1), grid, DECOMPOSE_DEPTH)
    seconds, fragments, cells = [], [], []
    for box, (x, y, t) in zip(drawn, wanted, strict=True):
        began = time.perf_counter()
        found = decompose_box(box, (x, y, t), grid, DECOMPOSE_DEPTH)
        seconds.append(time.perf_counter() - began)
        fragments.append(len(found))
        cells += found.cells[:5]
    began = time.perf_counter()
    for cell in cells:
        cell.slices(grid)
    slices_per_second = len(cells) / (time.perf_counter() - began)
    row: Row = {
        "impl": f"{MINE}-single",
        "operation": "decompose",
        "stored": 0,
        "distribution": "hotspot",
        "per_second": len(seconds) / sum(seconds),
        "bytes_per_query": None,
    }
    yield row | {"operation": "slices", "per_second": slices_per_second}
    yield row | {
        "depth": DECOMPOSE_DEPTH,
        "seconds_p50": float(np.percentile(seconds, 50)),
        "seconds_p95": float(np.percentile(seconds, 95)),
        "share_under_1_ms": float(np.mean(np.array(seconds) < 1e-3)),
        "fragments_p50": float(np.percentile(fragments, 50)),
        "fragments_p95": float(np.percentile(fragments, 95)),
    }


def _carrier_rows(seed: int, rounds: int) -> Iterator[Row]:
    """Which carried cell contains this one: by prefixes in a table, as brokers do, and by the tree."""
    grid, watch = Grid(), _Stopwatch()
    rng = np.random.default_rng([seed, CARRIED])
    leaves = rng.choice(1 << CARRIED_DIGITS, CARRIED, replace=False)
    cells = [Cell(1 << CARRIED_DIGITS | int(leaf)) for leaf in leaves]
    below = rng.integers(0, 1 << 8, CARRIED)
    asked = [Cell(cell.code << 8 | int(tail)) for cell, tail in zip(cells[::2], below, strict=False)]
    asked += [
        Cell(1 << CARRIED_DIGITS + 8 | int(leaf) << 8)
        for leaf in rng.integers(0, 1 << CARRIED_DIGITS, CARRIED // 2)
    ]
    outlets = Outlets(0, grid, CARRIED_DIGITS)
    tree = PagedTree(grid)
    tree.insert(whole_cells(cells, grid), 0)
    for cell in cells:
        outlets.add_supply(Supply(0, cell.code, Instant(0)))
    for cell in asked:
        found, carried = tree.covering(cell), outlets.supply_for(0, cell.code)
        if (None if found is None else found.code) != (None if carried is None else carried.cell):
            raise BenchmarkError(f"cell {cell}: found two carriers, expected the same one from both")
    for _ in range(rounds + 1):
        watch.time(MINE, "carrier", _each, tree.covering, [(cell,) for cell in asked])
        watch.time("prefixes", "carrier", _each, outlets.supply_for, [(0, cell.code) for cell in asked])
    for impl in (MINE, "prefixes"):
        yield {
            "impl": f"{impl}-single", "operation": "carrier", "stored": 0, "cells": CARRIED, "distribution": "uniform",
            "per_second": len(asked) / watch.median(impl, "carrier"), "bytes_per_query": None,
        }  # fmt: skip


def _row(impl: str, operation: str, case: IndexCase, per_second: float, size: float) -> Row:
    return {
        "impl": impl,
        "operation": operation,
        "stored": len(case.stored),
        "distribution": case.distribution,
        "per_second": per_second,
        "bytes_per_query": size,
    }


def _corners(rows: Boxes) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Boxes as `rtree` wants many of them: closed, in floating point."""
    return rows[:, [0, 2]].astype(np.float64), rows[:, [1, 3]].astype(np.float64) - 1


def _bounds(rows: Boxes) -> list[tuple[int, int, int, int]]:
    """Boxes as `rtree` wants one of them."""
    return [(x0, y0, x1 - 1, y1 - 1) for x0, x1, y0, y1 in rows.tolist()]


def _peer_bytes(distribution: Distribution, count: int, seed: int) -> float:
    """What the R-tree adds to the memory of a fresh process: it does not say itself."""
    code = (
        "import sys; from sensorgrid.benchmarks.index import grow_peer;"
        f"sys.stdout.write(str(grow_peer({distribution!r}, {count}, {seed})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def grow_peer(distribution: Distribution, count: int, seed: int) -> float:
    """Bytes per box by which this process grows when it loads an R-tree; to be called in a fresh one."""
    rtree = _rtree_module()
    grid = Grid(order=ORDER_2D)
    stored = boxes(distribution, count, grid, np.random.default_rng([seed, count]))
    owners, corners = np.arange(count), _corners(stored)
    rtree.index.Index((owners[:100], corners[0][:100], corners[1][:100]))
    before = _resident_bytes()
    peer = rtree.index.Index((owners, *corners))
    after = _resident_bytes()
    del peer
    return (after - before) / count


def _resident_bytes() -> int:
    """Resident memory of this process, where the system tells."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def _verify(found: Any, peer_hits: Ints, peer_counts: Ints) -> None:
    """Both sides must have found the same sets."""
    ends = np.cumsum(peer_counts)[:-1]
    for i, (mine, theirs) in enumerate(zip(found, np.split(peer_hits, ends), strict=True)):
        if not np.array_equal(mine, np.sort(theirs)):
            raise BenchmarkError(f"lookup {i}: found {len(mine)} hits, expected {len(theirs)} as rtree finds")
