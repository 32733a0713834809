"""`sensorgrid bench pipeline` as a table."""

from typing import Any

from rich.console import Console
from rich.table import Table

from sensorgrid.benchmarks.pipeline_empty import ratio


def show_pipeline(console: Console, rows: list[dict[str, Any]]) -> None:
    """Times, and how they compare with one process."""
    table = Table(title="Spark on two cores against one process (pandas + NumPy)", title_justify="left")
    table.add_column("mode")
    for name in ("million", "s", "a second", "× ref", "CPU s", "GiB", "micro-batch"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        micro = (
            f"{row['micro_batch']:,}: {row['micro_batch_seconds_p50']:.2f} s" if "micro_batch" in row else ""
        )
        table.add_row(
            row["mode"],
            f"{row['measurements'] / 1e6:g}",
            f"{row['seconds']:.1f}",
            f"{row['per_second']:,}",
            f"{row['reference_seconds'] / row['seconds']:.2f}",
            f"{row['cpu_seconds']:.0f}",
            f"{row['peak_rss_bytes'] / 2**30:.2f}",
            micro,
        )
    console.print(table)
    console.print(
        "× ref: times as fast as the reference, which is frozen. Same measurements and kernel (inverse distance).",
        style="dim",
    )


def show_empty(console: Console, rows: list[dict[str, Any]]) -> None:
    """What an empty micro-batch costs, here and in another checkout."""
    table = Table(title="A micro-batch without measurements", title_justify="left")
    table.add_column("checkout")
    for name in ("round", "median s", "CPU s", "load"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        seconds, cpu_s = f"{row['seconds_p50']:.3f}", f"{row['cpu_seconds']:.3f}"
        table.add_row(row["code"], str(row["round"] + 1), seconds, cpu_s, f"{row['load']:g}")
    console.print(table)
    found = ratio(rows)
    if found is not None:
        console.print(
            f"this checkout takes {found:.2f} times as long as the other one (median of the rounds)"
        )
