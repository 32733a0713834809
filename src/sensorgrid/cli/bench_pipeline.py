"""`sensorgrid bench pipeline` as a table."""

from typing import Any

from rich.console import Console
from rich.table import Table


def show_pipeline(console: Console, rows: list[dict[str, Any]]) -> None:
    """Times, and how they compare with one process."""
    table = Table(title="Spark on two cores against one process (pandas + NumPy)", title_justify="left")
    for name in (
        "mode",
        "measurements",
        "seconds",
        "per second",
        "times reference",
        "CPU s",
        "peak memory",
        "micro-batch",
    ):
        table.add_column(name, justify="left" if name == "mode" else "right")
    for row in rows:
        micro = (
            f"{row['micro_batch']:,} in {row['micro_batch_seconds_p50']:.2f} s"
            if "micro_batch" in row
            else ""
        )
        table.add_row(
            row["mode"],
            f"{row['measurements']:,}",
            f"{row['seconds']:.1f}",
            f"{row['per_second']:,}",
            f"{row['reference_seconds'] / row['seconds']:.2f}",
            f"{row['cpu_seconds']:.0f}",
            f"{row['peak_rss_bytes'] / 2**30:.2f} GiB",
            micro,
        )
    console.print(table)
    console.print("Same measurements, checks, kernel (inverse distance) and files written.", style="dim")
