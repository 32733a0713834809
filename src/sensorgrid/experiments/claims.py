"""What the paper says about its evaluation, and what the table says: claim by claim, with confidence intervals.

A claim is compared run by run: the same hot spot, seed, depth and policy, once with and once without what the claim
is about. The interval is Student's, 95 %, over the seeds.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev
from typing import Any

from scipy.stats import t

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and how far it may be off."""

    mean: float
    half: float | None
    """None: one value only"""
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.3g}" if self.half is None else f"{self.mean:.3g} ± {self.half:.2g}"


def interval(values: Iterable[float]) -> Interval | None:
    """Mean and 95 % confidence; None for no value at all."""
    found = list(values)
    if not found:
        return None
    if len(found) == 1:
        return Interval(found[0], None, 1)
    quantile = float(t.ppf(0.975, len(found) - 1))
    return Interval(mean(found), quantile * stdev(found) / sqrt(len(found)), len(found))


def pairs(
    rows: Iterable[Row], by: str, one: Any, other: Any, value: Callable[[Row, Row], float | None]
) -> dict[tuple[Any, ...], list[float]]:
    """Values of pairs of rows that differ in one column only, by (hot spot, dims, depth, policy) without it."""
    keys = ("hotspot", "dims", "depth", "policy", "seed")
    found: dict[tuple[Any, ...], dict[Any, Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[k] for k in keys if k != by), {})[row[by]] = row
    result: dict[tuple[Any, ...], list[float]] = {}
    for key, both in found.items():
        if one in both and other in both and (number := value(both[one], both[other])) is not None:
            result.setdefault(key[:-1], []).append(number)
    return result


def common_mark(a: Row, b: Row) -> int | None:
    """The highest load at which the replication of both runs was noted."""
    for mark in (20, 15, 10, 5):
        if a.get(f"replication_at_{mark}") is not None and b.get(f"replication_at_{mark}") is not None:
            return mark
    return None


def saving(with_resolution: Row, without: Row) -> float | None:
    """By how much replication is lower at equal load: 0.4 is forty per cent."""
    mark = common_mark(with_resolution, without)
    if mark is None or not without[f"replication_at_{mark}"]:
        return None
    return 1 - float(with_resolution[f"replication_at_{mark}"] / without[f"replication_at_{mark}"])


def savings(rows: list[Row], dims: int = 4, against: int = 2) -> list[Row]:
    """Per hot spot, depth and policy: replication saved at equal load by indexing resolutions (section 5.2)."""
    table = []
    for (hotspot, depth, policy), values in pairs(rows, "dims", dims, against, saving).items():
        found = interval(values)
        assert found is not None
        table.append(
            {
                "hotspot": hotspot, "depth": depth, "policy": policy, "saving": found.mean, "half": found.half,
                "seeds": found.count,
            }
        )  # fmt: skip
    return table


def equal_connections(rows: list[Row], mark: int = 15, dims: int = 4, against: int = 2) -> list[Row]:
    """Section 4.5.2: with no more connections than the spatial index has at some depth, the least replication.

    For each depth of the spatial index: among all depths of the other, those with at most as many connections at
    the same load, and of these the one with least replication.
    """
    table = []
    key = f"replication_at_{mark}", f"connections_at_{mark}"
    groups: dict[tuple[Any, ...], dict[int, list[Row]]] = {}
    for row in rows:
        if row.get(key[0]) is not None:
            groups.setdefault((row["hotspot"], row["policy"], row["seed"]), {}).setdefault(
                row["dims"], []
            ).append(row)
    for (hotspot, policy, seed), by in groups.items():
        for base in by.get(against, ()):
            fitting = [r for r in by.get(dims, ()) if r[key[1]] <= base[key[1]]]
            if fitting and base[key[0]]:
                best = min(fitting, key=lambda r: float(r[key[0]]))
                table.append(
                    {
                        "hotspot": hotspot, "policy": policy, "seed": seed, "depth": base["depth"],
                        "connections": base[key[1]], "replication": base[key[0]], "best_depth": best["depth"],
                        "best_replication": best[key[0]], "saving": 1 - best[key[0]] / base[key[0]],
                    }
                )  # fmt: skip
    return table


def against_bounds(rows: list[Row]) -> list[Row]:
    """Per hot spot, dims, depth and policy: load and replication as multiples of what is possible."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["hotspot"], row["dims"], row["depth"], row["policy"]), []).append(row)
    table = []
    for (hotspot, dims, depth, policy), found in groups.items():
        at_20 = [
            r["replication_at_20"] / r["replication_bound_at_20"]
            for r in found
            if r["replication_at_20"] is not None and r["replication_bound_at_20"]
        ]
        table.append(
            {
                "hotspot": hotspot, "dims": dims, "depth": depth, "policy": policy, "seeds": len(found),
                "load": mean(r["load"] for r in found),
                "load_ratio": mean(r["load"] / r["load_bound"] for r in found),
                "load_ratio_least": min(r["load"] / r["load_bound"] for r in found),
                "replication_ratio": mean(at_20) if at_20 else None,
                "replication_ratio_most": max(at_20) if at_20 else None,
                "replication_share": mean(r["replication_share"] for r in found),
                "connections": mean(r["connections_per_broker"] for r in found),
                "messages": mean(r["messages"] for r in found),
            }
        )  # fmt: skip
    return table
