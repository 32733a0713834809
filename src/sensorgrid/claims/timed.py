"""Claims about speed and memory, which depend on the machine: index, brokers, fan-out, gridding, pipeline, demo.

Ratios are of two things measured in turns in one run, so they depend on the machine less than times do.
"""

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import sensorgrid
from sensorgrid.benchmarks import pipeline_empty
from sensorgrid.benchmarks.truth import TruthError, data_folder
from sensorgrid.claims.claim import Claim, Command, FoundFigure, Result, When, least, most

GIB = 1 << 30
MILLION = 1_000_000
EARLIER = "2533b99"
"""the commit that an empty micro-batch is compared with"""


# the index


def _times(result: Result, mode: str, operation: str) -> Iterator[FoundFigure]:
    from sensorgrid.benchmarks.index import ratios

    for row in ratios(result["rows"]):
        if (row["mode"], row["operation"]) == (mode, operation):
            yield FoundFigure(row["ratio"], f"worst: {row['stored']:,} {row['distribution']} boxes")


def _harder(result: Result) -> Iterator[FoundFigure]:
    for mode, what in (
        ("shuffled", "owners shuffled"),
        ("sparse", "owners up to 2^62"),
        ("second", "second half into a tree with the first"),
    ):
        for found in _times(result, f"batch-{mode}", "insert"):
            yield FoundFigure(found.value, f"{what}; {found.where}")


def _growth_per_hit(result: Result) -> Iterator[FoundFigure]:
    seconds = {
        (row["distribution"], row["stored"]): row["seconds_per_hit"]
        for row in result["rows"]
        if row["impl"] == "sensorgrid-batch" and row["operation"] == "lookup"
    }
    for distribution in ("uniform", "hotspot"):
        yield FoundFigure(
            seconds[distribution, MILLION] / seconds[distribution, 10_000], f"worst: {distribution} boxes"
        )


def _bytes_per_query(result: Result) -> Iterator[FoundFigure]:
    for row in result["rows"]:
        if row["impl"] == "sensorgrid-batch" and row["operation"] == "lookup":
            yield FoundFigure(row["bytes_per_query"])


def _under_a_millisecond(result: Result) -> Iterator[FoundFigure]:
    for row in result["rows"]:
        if row["operation"] == "decompose":
            yield FoundFigure(row["share_under_1_ms"])


def _prefixes(result: Result) -> Iterator[FoundFigure]:
    found = {row["impl"]: row["per_second"] for row in result["rows"] if row["operation"] == "carrier"}
    if found:
        yield FoundFigure(found["prefixes-single"] / found["sensorgrid-single"])


INDEX = Command(
    "index",
    "The index",
    ("bench", "index"),
    (
        Claim(
            "the index looks up boxes, many per call, at least 4 times as fast as an R-tree",
            lambda r: least(_times(r, "batch", "lookup")),
            at_least=4.0,
            unit="×",
        ),
        Claim(
            "the index looks up boxes, one per call, at least 4 times as fast as an R-tree",
            lambda r: least(_times(r, "single", "lookup")),
            at_least=4.0,
            unit="×",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "the index is built at least 8 times as fast as an R-tree is loaded in bulk",
            lambda r: least(_times(r, "batch", "insert")),
            at_least=8.0,
            unit="×",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "the index is built so fast whatever the owners, and when it is half full already",
            lambda r: least(_harder(r)),
            at_least=8.0,
            unit="×",
            when=When.FULL_BUT_SHOWN,
            because="owners without order take more passes of the sort, and a merge touches what is stored",
            at_worst=2.0,
        ),
        Claim(
            "a broker's table finds the carrier of a cell by prefixes faster than the tree does",
            lambda r: least(_prefixes(r)),
            at_least=1.0,
            unit="×",
        ),
        Claim(
            "the index inserts boxes, one per call, at least as fast as an R-tree",
            lambda r: least(_times(r, "single", "insert")),
            at_least=1.0,
            unit="×",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "the index removes boxes, many per call, at least 8 times as fast as an R-tree",
            lambda r: least(_times(r, "batch", "remove")),
            at_least=8.0,
            unit="×",
        ),
        Claim(
            "the index removes boxes, one per call, at least 8 times as fast as an R-tree",
            lambda r: least(_times(r, "single", "remove")),
            at_least=8.0,
            unit="×",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "the index takes at most 200 bytes for a stored query",
            lambda r: most(_bytes_per_query(r)),
            at_most=200.0,
            unit="bytes",
        ),
        Claim(
            "a lookup costs at most twice as much per hit with a million boxes as with 10,000",
            lambda r: most(_growth_per_hit(r)),
            at_most=2.0,
            unit="×",
            when=When.FULL,
        ),
        Claim(
            "95 % of the hot spot's queries are cut into cells (depth 20) in under 1 ms",
            lambda r: least(_under_a_millisecond(r)),
            at_least=0.95,
            unit="%",
            when=When.FULL_BUT_SHOWN,
        ),
    ),
    timed=True,
)


# brokers


def _live_gib(result: Result) -> Iterator[FoundFigure]:
    for row in result["rows"]:
        if row["operation"] == "live":
            yield FoundFigure(row["peak_bytes"] / GIB, f"{row['queries']:,} queries, clients included")


def _turn_over(result: Result, workload: str) -> Iterator[FoundFigure]:
    for row in result["rows"]:
        if row["operation"] == "subscribe+cancel" and row["workload"] == workload:
            yield FoundFigure(row["per_second"], f"{row['brokers']} brokers, processor time")


OVERLAY = Command(
    "overlay",
    "Brokers",
    ("bench", "overlay"),
    (
        Claim(
            "100,000 live queries on 64 brokers fit into 2 GiB",
            lambda r: most(_live_gib(r)),
            at_most=2.0,
            unit="GiB",
            when=When.FULL,
        ),
        Claim(
            "queries anywhere: 2,000 are posed, admitted and cancelled per second and core",
            lambda r: least(_turn_over(r, "everywhere")),
            at_least=2000.0,
            unit="per second",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "queries at a hot spot: 2,000 are posed, admitted and cancelled per second and core",
            lambda r: least(_turn_over(r, "hot spot")),
            at_least=2000.0,
            unit="per second",
            when=When.FULL_BUT_SHOWN,
        ),
    ),
    timed=True,
)


# one block to many clients

FEW = 16
"""clients with whom what a block costs before the first is served shows"""
_BEFORE_THE_FIRST = "with so few, what a block costs before the first client is served outweighs the rest"


def _cost(result: Result, other: str, boxes: str, few: bool) -> FoundFigure | None:
    return most(
        FoundFigure(
            row["ratio"],
            f"worst: {row['clients']:,} clients, {row['block_bytes'] >> 10} KB{', TLS' if row['tls'] else ''}",
        )
        for row in result["summary"]
        if (row["other"], row["boxes"]) == (other, boxes) and (row["clients"] <= FEW) == few
    )


def _fanout_claims() -> Iterator[Claim]:
    for says, other, boxes, limit, because in (
        ("the same box: a block costs at most 1.5 times the processor time of a loop in C", "c-epoll", "same",
         1.5, _BEFORE_THE_FIRST),
        ("a box for each: a block costs at most 2.5 times the processor time of a loop in C", "c-epoll", "own",
         2.5, _BEFORE_THE_FIRST),
        ("a block costs at most the processor time of mosquitto", "mosquitto", "same", 1.0, _BEFORE_THE_FIRST),
        ("a block costs at most the processor time of nats-server", "nats-server", "same", 1.0, ""),
    ):  # fmt: skip
        for few in (False, True):
            yield Claim(
                f"{says}, with {'16' if few else '128 clients and more'}{' clients' if few else ''}",
                lambda r, other=other, boxes=boxes, few=few: _cost(r, other, boxes, few),  # type: ignore[misc]
                at_most=limit,
                unit="×",
                when=When.FULL_BUT_SHOWN,
                because=because if few else "",
                at_worst=2 * limit if few and because else None,
            )


def _compiler() -> str:
    return "" if shutil.which("cc") else "no C compiler (cc)"


FANOUT = Command(
    "fanout",
    "One block to many clients",
    ("bench", "fanout"),
    tuple(_fanout_claims()),
    timed=True,
    lacks=_compiler,
)

FLOOD = Command(
    "flood",
    "One block to many clients",
    ("bench", "fanout", "--flood"),
    (
        Claim(
            "2,000 clients, a block of 16 KB a second: 99 % within 100 ms, though one of them does not read",
            lambda r: most(FoundFigure(row["p99_s"] * 1e3) for row in r["rows"]),
            at_most=100.0,
            unit="ms",
            when=When.FULL,
        ),
        Claim(
            "the memory of a broker with a client that does not read stays flat",
            lambda r: most(
                FoundFigure(row["memory_bytes"] / row["memory_bytes_before"]) for row in r["rows"]
            ),
            at_most=1.25,
            unit="×",
        ),
    ),
    timed=True,
    lacks=_compiler,
)


# gridding


def data(holds: str) -> str:
    """Why data that is not part of the project cannot be used; empty if it can."""
    try:
        data_folder(None, holds)
    except TruthError:
        return f"needs the data folder ({holds})"
    return ""


def _figure(result: Result, name: str) -> float:
    found = {row["figure"]: row["found"] for row in result["summary"]}
    return float(found[name])


GRIDDING = Command(
    "gridding",
    "Grids",
    ("bench", "gridding"),
    (
        Claim(
            "the grids of at least ten real fields are scored",
            lambda r: _figure(r, "fields"),
            at_least=10.0,
        ),
        Claim(
            "these are at least 20 sets of a field and a network of stations",
            lambda r: _figure(r, "sets"),
            at_least=20.0,
        ),
        Claim(
            "kriging beats nearest and inverse distance in RMSE on most sets",
            lambda r: _figure(r, "sets where kriging beats both"),
            at_least=0.85,
            unit="%",
        ),
        Claim(
            "kriging never loses to the better of the two by more than 5 %",
            lambda r: _figure(r, "worst RMSE against the better peer"),
            at_most=1.05,
            unit="×",
        ),
        Claim(
            "the RMSE of kriging is at least 10 % below that of inverse distance (geometric mean)",
            lambda r: _figure(r, "mean RMSE against inverse distance"),
            at_most=0.90,
            unit="×",
        ),
        Claim(
            "60 to 76 % of the errors lie within one stated error",
            lambda r: _figure(r, "pooled within_one_error"),
            at_least=0.60,
            at_most=0.76,
            unit="%",
        ),
        *(
            Claim(
                f"60 to 76 % of the errors lie within one stated error, where that is {what}",
                lambda r, name=name: _figure(r, f"pooled within_{name}"),  # type: ignore[misc]
                at_least=0.60,
                at_most=0.76,
                unit="%",
            )
            for name, what in (("low", "low"), ("mid", "in the middle"), ("high", "high"))
        ),
        Claim(
            "85 % of the sets have 55 to 80 % of their errors within one stated error",
            lambda r: _figure(r, "sets with honest errors"),
            at_least=0.85,
            unit="%",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "a tile by kriging costs at most 20 times one by inverse distance",
            lambda r: _figure(r, "cost of a tile against inverse distance"),
            at_most=20.0,
            unit="×",
        ),
    ),
    full=("--seeds", "1-2"),
    timed=True,
    lacks=lambda: data("truth-grids"),
)


# the pipeline

LARGE = 2_500_000
"""measurements from which on Spark shall be as fast as one process"""


def _speed(result: Result, mode: str, micro_batch: int | None = None) -> Iterator[FoundFigure]:
    """Times as fast as the reference."""
    for row in result["rows"]:
        if row["mode"] == mode and micro_batch in (None, row.get("micro_batch")):
            where = f"worst: {row['measurements'] / 1e6:g} million"
            if "micro_batch" in row:
                where += f", {row['micro_batch']:,} at a time"
            yield FoundFigure(row["reference_seconds"] / row["seconds"], where)


def _batch(result: Result) -> Iterator[FoundFigure]:
    yield from _speed({"rows": _large(result)}, "batch")


def _stream(result: Result, micro_batch: int) -> Iterator[FoundFigure]:
    yield from _speed({"rows": [r for r in _large(result) if r.get("micro_batch") == micro_batch]}, "stream")


def _large(result: Result) -> list[dict[str, Any]]:
    """Sizes at which the start of a query, some seconds, is a small part."""
    return [row for row in result["rows"] if row["measurements"] >= LARGE]


def _empty(result: Result) -> FoundFigure | None:
    """What an empty micro-batch costs against the other checkout, which bench all makes of the commit."""
    found = pipeline_empty.ratio(result["empty"])
    return (
        None
        if found is None
        else FoundFigure(found, f"against commit {EARLIER}: --against FOLDER, with a checkout of it")
    )


def _earlier(folder: str) -> tuple[str, ...]:
    """The commit that is compared with as a checkout in the folder, if this is a checkout that knows it."""
    place = Path(folder) / EARLIER
    if not place.exists():
        root = Path(sensorgrid.__file__).parents[2]
        try:
            told = subprocess.run(
                ["git", "-C", str(root), "archive", EARLIER, "src"], capture_output=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return ()
        with tarfile.open(fileobj=BytesIO(told.stdout)) as archive:
            archive.extractall(place, filter="data")
    return ("--against", str(place))


def _rises(result: Result) -> Iterator[FoundFigure]:
    """How much faster a stream of the same measurements is with each size of micro-batch than with the one before."""
    by_size: dict[int, dict[int, float]] = {}
    for row in result["rows"]:
        if row["mode"] == "stream":
            by_size.setdefault(row["measurements"], {})[row["micro_batch"]] = row["per_second"]
    for size, speeds in by_size.items():
        for first, second in pairwise(sorted(speeds)):
            yield FoundFigure(
                speeds[second] / speeds[first],
                f"worst: {size / 1e6:g} million, {second:,} at a time against {first:,}",
            )


def _micro_batch_s(result: Result) -> Iterator[FoundFigure]:
    for row in result["rows"]:
        if row.get("micro_batch") == 40_000:
            yield FoundFigure(row["micro_batch_seconds_p50"], f"worst: {row['measurements'] / 1e6:g} million")


def _memory(result: Result) -> Iterator[FoundFigure]:
    for row in result["rows"]:
        what = f"worst: {row['mode']} with {row['measurements'] / 1e6:g} million"
        yield FoundFigure(row["peak_rss_bytes"] / GIB, what)


def _flat(result: Result) -> FoundFigure | None:
    """Peak memory of the stream with most ticks against the same with fewer."""
    peaks = {
        row["ticks"]: row["peak_rss_bytes"] for row in result["rows"] if row.get("micro_batch") == 250_000
    }
    if len(peaks) < 2:
        return None
    return FoundFigure(peaks[max(peaks)] / peaks[min(peaks)], f"{max(peaks):,} ticks against {min(peaks):,}")


def _repeats_unlike(result: Result) -> float:
    """Rows of Spark that find other repeats than the reference, or whose counts do not add up."""
    wanted = {row["measurements"]: row["duplicate"] for row in result["rows"] if row["mode"] == "reference"}
    other = (r["duplicate"] != wanted[r["measurements"]] or not r["balanced"] for r in result["rows"])
    return float(sum(map(bool, other)))


def _used_unlike(result: Result) -> Iterator[FoundFigure]:
    """How much of the measurements Spark uses more or less than the reference, whose checks are older."""
    wanted = {row["measurements"]: row["used"] for row in result["rows"] if row["mode"] == "reference"}
    for row in result["rows"]:
        share = abs(row["used"] - wanted[row["measurements"]]) / row["measurements"]
        yield FoundFigure(share, f"worst: {row['mode']} with {row['measurements'] / 1e6:g} million")


def _modes_unlike(result: Result) -> float:
    """Sizes at which a stream uses or flags other measurements than the batch."""
    names = ("used", "flagged", "duplicate")  # blocks are more in a stream whose ticks come in parts
    counts: dict[int, set[tuple[int, ...]]] = {}
    for row in result["rows"]:
        if row["mode"] != "reference":
            counts.setdefault(row["measurements"], set()).add(tuple(row[n] for n in names))
    return sum(len(found) > 1 for found in counts.values())


_NO_FASTER = (
    "gridding takes as long as the reference's: searches are remembered for equal sets of stations only"
)

PIPELINE = Command(
    "pipeline",
    "The pipeline",
    ("bench", "pipeline"),
    (
        Claim(
            "Spark finds the very repeats that one process does, and its counts add up (modes that do not)",
            _repeats_unlike,
            at_most=0.0,
        ),
        Claim(
            "Spark uses the measurements that one process with the checks of commit 2533b99 does (share that differs)",
            lambda r: most(_used_unlike(r)),
            at_most=0.001,
            unit="%",
        ),
        Claim(
            "streams use and flag the very measurements that the batch does (sizes at which they do not)",
            _modes_unlike,
            at_most=0.0,
        ),
        Claim(
            "Spark as a batch is at least 3 times as fast as one process from 2.5 million measurements on",
            lambda r: least(_batch(r)),
            at_least=3.0,
            unit="×",
            when=When.FULL,
            because=_NO_FASTER,
            at_worst=0.8,
        ),
        Claim(
            "a stream of 2.5 million and more is at least 1.5 times as fast as one process, 250,000 at a time",
            lambda r: least(_stream(r, 250_000)),
            at_least=1.5,
            unit="×",
            when=When.FULL,
            because=_NO_FASTER,
            at_worst=0.4,
        ),
        Claim(
            "a stream of 2.5 million and more is at least as fast as one process, 40,000 at a time",
            lambda r: least(_stream(r, 40_000)),
            at_least=1.0,
            unit="×",
            when=When.FULL,
            because=f"{_NO_FASTER}; a micro-batch has fixed costs of about half a second",
            at_worst=0.02,
        ),
        Claim(
            "an empty micro-batch takes at most half as long as at commit 2533b99",
            _empty,
            at_most=0.5,
            unit="×",
            when=When.FULL,
            because="a micro-batch still plans a query and runs two stages with four Python tasks",
            at_worst=0.75,
        ),
        Claim(
            "a stream is faster with larger micro-batches",
            lambda r: least(_rises(r)),
            at_least=1.0,
            unit="×",
            when=When.FULL,
        ),
        Claim(
            "a micro-batch of 40,000 measurements takes less than 2 s (median)",
            lambda r: most(_micro_batch_s(r)),
            at_most=2.0,
            unit="s",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "all processes together stay below 5 GiB",
            lambda r: most(_memory(r)),
            at_most=5.0,
            unit="GiB",
        ),
        Claim(
            "memory is flat in the number of ticks (stream, 250,000 at a time)",
            _flat,
            at_most=1.25,
            unit="×",
            when=When.FULL,
        ),
    ),
    timed=True,
    limit_s=7200.0,
    paths=_earlier,
)


# the registry of sensors


def _scans(result: Result, box: str) -> Iterator[FoundFigure]:
    for row in result["rows"]:
        if row["operation"] == "lookup" and row["box"] == box:
            yield FoundFigure(row["ratio"], f"boxes of {row['degrees']:g}°")


def _bytes_per_sensor(result: Result) -> Iterator[FoundFigure]:
    for row in result["rows"]:
        if row["operation"] == "hold":
            yield FoundFigure(row["bytes_per_sensor"])


SENSORS = Command(
    "sensors",
    "The registry of sensors",
    ("bench", "sensors"),
    (
        Claim(
            "16 brokers find the sensors of a town at least 20 times as fast as a scan of all sensors",
            lambda r: least(_scans(r, "town")),
            at_least=20.0,
            unit="×",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "a broker holds a sensor in at most 256 bytes",
            lambda r: most(_bytes_per_sensor(r)),
            at_most=256.0,
            unit="bytes",
        ),
    ),
    timed=True,
)


# operators


def _against(result: Result, key: str) -> Iterator[FoundFigure]:
    from sensorgrid.benchmarks.operators import ratios

    for row in ratios(result["rows"]):
        if key in row:
            yield FoundFigure(row[key], f"worst: {row['operators']:,} × {row['function']}")


OPERATORS = Command(
    "operators",
    "Operators",
    ("bench", "operators"),
    (
        Claim(
            "10,000 operators over one grid are at least 100 times as fast as a loop of xarray expressions",
            lambda r: least(_against(r, "times_xarray")),
            at_least=100.0,
            unit="×",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "10,000 operators over one grid cost at most 3 times what one NumPy program per function does",
            lambda r: most(_against(r, "of_numpy")),
            at_most=3.0,
            unit="×",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "100 operators with equal sub-expressions cost at most 1.2 times what one does",
            lambda r: most(_against(r, "of_one")),
            at_most=1.2,
            unit="×",
        ),
    ),
    timed=True,
)


# the demo

DEMO = Command(
    "demo",
    "The demo",
    ("demo",),
    (
        Claim("no point that a client of the demo wanted is missing", lambda r: r["missing"], at_most=0.0),
        Claim("no point reaches a client of the demo twice", lambda r: r["duplicated"], at_most=0.0),
        Claim("no point differs from a batch over the same records", lambda r: r["wrong"], at_most=0.0),
        Claim(
            "no number that the brokers calculate differs from what one process makes of the batch",
            lambda r: r["operator_wrong"],
            at_most=0.0,
        ),
        Claim(
            "brokers that calculate a mean send at least 10 times fewer bytes to each other than its values have",
            lambda r: r["operator_saving"],
            at_least=10.0,
            unit="×",
        ),
        Claim("all clients of the demo are served", lambda r: r["clients"], at_least=24.0),
        Claim(
            "sharing saves at least a third of the bytes between brokers",
            lambda r: r["saving"],
            at_least=1 / 3,
            unit="%",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "half of the ticks reach the client within 3 s of their last measurement",
            lambda r: r["delay_p50_s"],
            at_most=3.0,
            unit="s",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "clients of a broker that is killed for good have the tick of that moment within 15 s",
            lambda r: r["recovered_s"],
            at_most=15.0,
            unit="s",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "a broker that joins owns a region within 10 s of the start of its process",
            lambda r: r["serves_s"],
            at_most=10.0,
            unit="s",
            when=When.FULL_BUT_SHOWN,
        ),
        Claim(
            "the demo streams for a minute and takes at most three in all",
            lambda r: r["took_s"],
            at_most=180.0,
            unit="s",
            when=When.FULL,
        ),
    ),
    full=("--seconds", "60"),
    quick=("--seconds", "15"),
    timed=True,
    paths=lambda folder: ("--report", f"{folder}/demo.html"),
)


TIMED = (INDEX, OVERLAY, SENSORS, OPERATORS, FANOUT, FLOOD, GRIDDING, PIPELINE, DEMO)
