"""What the commands promise to write with `--json`: their docs and docstrings, as sets of names."""

from dataclasses import dataclass, field
from typing import Any

Result = dict[str, Any]
TOP = frozenset({"command", "version", "args", "rows"})


@dataclass(frozen=True)
class Contract:
    """One command, by its name in `sensorgrid bench all`."""

    name: str
    words: tuple[str, ...]
    rows: frozenset[str]
    """fields of every row"""
    top: frozenset[str] = TOP
    """fields beside the rows"""
    covers: dict[str, set[Any]] = field(default_factory=dict)
    """values of a field that a quick run still has"""
    lists: dict[str, frozenset[str]] = field(default_factory=dict)
    """other lists, and the fields of their entries"""


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PIPELINE = names(
    "mode measurements regions ticks seconds per_second cpu_seconds peak_rss_bytes load reference_seconds"
    " used flagged duplicate blocks balanced"
)
OVERLAY = names("operation workload brokers queries per_second")
SENSORS = names("operation sensors brokers seed")
OPERATORS = names(
    "function system operators points cpu_seconds_per_tick ticks_per_second compile_seconds seed"
)
FAULTS = names("seed problems levels faults served suspended refused circles")
MOVING = names(
    "track policy seed storm hours queries refused refused_share wait_mean_s wait_p95_s wait_p99_s replication"
    " connections_per_broker delegations"
)
FANOUT = names("server clients block_bytes tls boxes cpu_seconds_per_gb mb_per_second p50_s p99_s")
SUMMED = names("schedules failed faults two_levels_share served circles_left suspended refused")

VERIFY = names(
    "attribute kernel stations readings rmse mae bias ratio_to_idw within_one within_by_level refused_by_level"
    " negative_share within_by_distance"
)
"""of `sensorgrid pipeline verify` too"""

CONTRACTS = (
    Contract(
        "index",
        ("bench", "index"),
        names("impl operation stored distribution per_second bytes_per_query"),
        TOP | {"machine"},
        {
            "distribution": {"uniform", "hotspot"},
            "operation": {"insert", "lookup", "remove", "decompose", "slices"},
        },
    ),
    Contract(
        "pipeline",
        ("bench", "pipeline"),
        PIPELINE,
        TOP | {"machine", "empty"},
        {"mode": {"reference", "batch", "stream"}},
    ),
    Contract(
        "gridding",
        ("bench", "gridding"),
        names(
            "truth stations kernel rmse mae within_one_error within_low within_mid within_high seconds_per_tile seed"
        ),
        TOP | {"machine", "summary"},
        {"kernel": {"nearest", "inverse_distance", "kriging"}},
        {"summary": names("figure found expected holds")},
    ),
    Contract(
        "reality",
        ("bench", "reality"),
        VERIFY | names("set kind elevation chosen ticks seed"),
        TOP | {"machine", "summary", "checks", "left_out"},
        {
            "kernel": {"nearest", "inverse_distance", "kriging"},
            "kind": {"set", "three sensors", "twelve sensors", "one sensor"},
        },
        {
            "summary": names("figure found expected holds where"),
            "checks": names(
                "set attribute kind check seed faults caught recall good refused_good rate extremes extremes_used"
                " recall_at_our_rate threshold"
            ),
        },
    ),
    Contract(
        "overlay",
        ("bench", "overlay"),
        OVERLAY,
        TOP | {"machine"},
        {"operation": {"live", "subscribe+cancel"}, "workload": {"everywhere", "hot spot"}},
    ),
    Contract(
        "operators",
        ("bench", "operators"),
        OPERATORS,
        TOP | {"machine", "summary"},
        covers={
            "system": {"sensorgrid", "numpy", "xarray"},
            "function": {"mean", "max", "std", "percentile"},
        },
    ),
    Contract(
        "sensors",
        ("bench", "sensors"),
        SENSORS,
        TOP | {"machine"},
        {"operation": {"hold", "lookup"}},
    ),
    Contract(
        "fanout",
        ("bench", "fanout"),
        FANOUT,
        TOP | {"machine", "summary", "left_out"},
        {"server": {"sensorgrid", "c-epoll"}, "boxes": {"same", "own"}},
        {"summary": names("clients block_bytes tls boxes other ratio limit holds")},
    ),
    Contract(
        "flood",
        ("bench", "fanout", "--flood"),
        FANOUT | names("stalled ticks interval_s memory_bytes_before memory_bytes"),
        TOP | {"machine"},
    ),
    Contract(
        "multires",
        ("experiment", "multires"),
        names(
            "hotspot dims depth policy seed load load_bound replication_share replication_at_15 replication_at_20"
            " replication_bound_at_20 connections_per_broker messages queries"
        ),
        covers={"dims": {2, 4}, "depth": {8, 10}, "policy": {"paper", "literal", "ours-local", "ours"}},
    ),
    Contract(
        "relays",
        ("experiment", "relays"),
        names(
            "topology placement strategy k delta seed traffic_counted traffic_all reduction bound_ratio stretch"
            " similarity delay_mean_s delay_p95_s tree_changes_per_event messages fragments"
        ),
        TOP | {"ramp"},
        {
            "placement": {"core", "edge", "full"},
            "strategy": {"OFF", "DIRECT", "CTD", "CTS", "FFS", "CTP", "TREE"},
        },
        {"ramp": names("strategy time_s delay_mean_s queries")},
    ),
    Contract("faults", ("experiment", "faults"), FAULTS, TOP | {"summary"}),
    Contract("faults-relays", ("experiment", "faults", "--relays"), FAULTS, TOP | {"summary"}),
    Contract("faults-open", ("experiment", "faults", "--open"), FAULTS, TOP | {"summary"}),
    Contract(
        "membership",
        ("experiment", "membership"),
        names(
            "kind brokers placement churn_s seed hops_mean hops_max links_max messages_per_change late_ticks suspended"
            " bytes_moved_share takeover_s roster_versions rest_bytes_per_s restart_versions"
        ),
        covers={
            "kind": {"lookup", "churn", "rest"},
            "brokers": {50, 500, 5000},
            "placement": {"ids", "grid"},
            "churn_s": {None, 10.0, 60.0},
        },
    ),
    Contract(
        "placing",
        ("experiment", "operators"),
        names(
            "system areas nodes pub_rate filter balanced seed peak over_threshold mean p95 orders lookups_mean_hops"
            " lookups_max_hops"
        ),
        covers={
            "system": {"paper", "ours", "dsm", "dsm-calc"},
            "areas": {"disjoint", "overlapping"},
            "nodes": {"id-space", "geographic"},
            "pub_rate": {1, 3, 4},
            "balanced": {False, True},
        },
    ),
    Contract("moving", ("experiment", "moving"), MOVING, covers={"policy": {"ours", "anticipate"}}),
)
DEMO = names(
    "ticks clients points_delivered missing duplicated wrong bytes_between_brokers bytes_without_sharing saving"
    " delay_p50_s delay_p99_s killed recovered_s joined serves_s operator_ticks operator_wrong operator_saving"
)


def breaches(contract: Contract, result: Result) -> list[str]:
    """What a result lacks of what was promised."""
    found = [f"no {name}" for name in sorted(contract.top - set(result))]
    for key, wanted in {"rows": contract.rows, **contract.lists}.items():
        entries = result.get(key)
        if not entries:
            found.append(f"no entry in {key}")
            continue
        for number, entry in enumerate(entries):
            if lacking := sorted(wanted - set(entry)):
                found.append(f"{key}[{number}] lacks {', '.join(lacking)}")
    for key, values in contract.covers.items():
        there = {row.get(key) for row in result.get("rows", ())}
        if not values <= there:
            found.append(f"{key}: found {sorted(map(str, there))}, expected {sorted(map(str, values))}")
    return found
