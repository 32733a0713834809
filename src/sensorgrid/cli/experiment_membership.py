"""The tables of `sensorgrid experiment membership`."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

Row = dict[str, Any]

LOOKUP = {
    "brokers": "brokers", "placement": "placement", "seed": "seed", "hops_mean": "hops", "hops_max": "most",
    "links_mean": "links", "links_max": "most", "messages_per_change": "links changed",
}  # fmt: skip
CHURN = {
    "churn_s": "every", "deaths": "die", "seed": "seed", "ticks": "ticks", "late_ticks": "late",
    "missing_ticks": "lost", "suspended": "susp", "bytes_moved_share": "moved", "roster_versions": "vers.",
    "takeover_s": "dead", "takeover_silent_s": "dark", "messages_per_change": "words",
}  # fmt: skip
REST = {
    "brokers": "brokers", "way": "owners found", "seed": "seed", "rest_bytes_per_s": "bytes/s", "hops_mean": "hops",
    "lookup_s": "lookup s", "connections_max": "connections", "back_s": "back within s", "restart_versions": "rosters",
}  # fmt: skip
TABLES = {
    "lookup": ("Links by prefix: hops from anybody to anybody", LOOKUP),
    "churn": ("Streams while brokers come and go", CHURN),
    "rest": ("Networks at rest, and started again at once", REST),
}
NOTES = (
    "links changed: that open or close when a broker comes or goes; every: seconds between changes; moved:"
    " share of the regions that change owner, per change; dead, dark: seconds from the death of a process, or the"
    " silence of a machine, to the first tick from its heir at the last client; words: about rosters, per change;"
    " bytes/s: per broker, headers included"
)


def show(console: Console, rows: list[Row]) -> None:
    """A table per kind of run."""
    for kind, (title, columns) in TABLES.items():
        some = [row for row in rows if row["kind"] == kind]
        if not some:
            continue
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True)
        for name in columns.values():
            table.add_column(name, justify="right", no_wrap=len(columns) > 8)
        for row in some:
            table.add_row(*(_shown(row[field]) for field in columns))
        console.print(table)
    console.print(NOTES, style="dim")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
