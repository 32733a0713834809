"""Random schedules of faults, many of them: does every query end as it should?

Each schedule is one seed of `sensorgrid.simulator.schedules`, or of `sensorgrid.simulator.churn` for open networks.
The table says what struck, how deep streams ran when it did, and what was wrong in the end; a problem comes with the
command that plays it again.
"""

import os
from dataclasses import asdict, dataclass
from typing import Any

from sensorgrid.simulator import churn
from sensorgrid.simulator.schedules import play

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FaultsCase:
    """Some seeds in a row: one schedule alone is too little work for a task."""

    first: int
    last: int
    relayed: bool = False
    is_open: bool = False
    """whether brokers come and go"""
    calculates: bool = False
    """whether clients watch results of operators"""

    def play(self) -> Row:
        """All of them."""
        found = []
        for seed in range(self.first, self.last + 1):
            try:
                if self.is_open:
                    outcome = churn.play(seed, calculates=self.calculates)
                else:
                    outcome = play(seed, relayed=self.relayed, calculates=self.calculates)
                found.append(asdict(outcome))
            except Exception as error:  # an assertion of ours is a finding as well
                found.append(
                    {
                        "seed": seed,
                        "problems": [f"{type(error).__name__}: {error}"],
                        "levels": [],
                        "faults": [],
                    }
                )
        return {"first": self.first, "last": self.last, "schedules": found}


def cases(
    first: int, last: int, relayed: bool = False, is_open: bool = False, calculates: bool = False
) -> list[FaultsCase]:
    """Seeds in portions: small enough that all cores have work and progress shows."""
    together = max(1, min(20, (last - first + 1) // (8 * (os.cpu_count() or 1))))
    return [
        FaultsCase(a, min(a + together - 1, last), relayed, is_open, calculates)
        for a in range(first, last + 1, together)
    ]


def rows_of(found: list[Row]) -> list[Row]:
    """One row per schedule, by seed."""
    return sorted((row for portion in found for row in portion["schedules"]), key=lambda row: row["seed"])


def summary(rows: list[Row]) -> dict[str, Any]:
    """Counts over all schedules."""
    levels = [level for row in rows for level in row["levels"]]
    kinds: dict[str, int] = {}
    for row in rows:
        for fault in row["faults"]:
            kinds[fault] = kinds.get(fault, 0) + 1
    return {
        "schedules": len(rows),
        "failed": [row["seed"] for row in rows if row["problems"]],
        "faults": dict(sorted(kinds.items())),
        "two_levels_share": sum(level >= 2 for level in levels) / max(1, len(levels)),
        "schedules_with_two_levels": sum(max(row["levels"], default=0) >= 2 for row in rows)
        / max(1, len(rows)),
        "served": sum(row.get("served", 0) for row in rows),
        "circles_left": sum(row.get("circles", 0) for row in rows),
        "suspended": sum(row.get("suspended", 0) for row in rows),
        "refused": sum(row.get("refused", 0) for row in rows),
    }
