"""`sensorgrid bench fanout`: what a block to many clients costs, as tables."""

from typing import Any

from rich.console import Console
from rich.table import Table

from sensorgrid.benchmarks.fanout import ratios

Row = dict[str, Any]


def show_fanout(console: Console, rows: list[Row], notes: list[str]) -> None:
    """One line per server and case, then what is asked and whether it holds."""
    table = Table(
        title="One server to many clients; processor time of the server alone", title_justify="left"
    )
    for name in ("clients", "block", "TLS", "server", "boxes"):
        table.add_column(name, justify="right" if name in ("clients", "block") else "left")
    for name in ("CPU s a GB", "µs a block", "MB/s", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right")
    before: tuple[Any, ...] = ()
    for row in rows:
        case = (row["clients"], row["block_bytes"], row["tls"])
        if before and case != before:
            table.add_section()
        before = case
        table.add_row(
            f"{row['clients']:,}",
            f"{row['block_bytes'] >> 10} KB",
            "yes" if row["tls"] else "no",
            row["server"],
            row["boxes"],
            f"{row['cpu_seconds_per_gb']:.3f}",
            f"{row['cpu_seconds_per_gb'] * row['block_bytes'] / 1e3:.1f}",
            f"{row['mb_per_second']:,.0f}",
            f"{row['p50_s'] * 1e3:.2f}",
            f"{row['p99_s'] * 1e3:.2f}",
        )
    console.print(table)
    verdict = Table(title="sensorgrid's processor time as a multiple of another's", title_justify="left")
    for name in ("clients", "block", "TLS", "boxes", "against"):
        verdict.add_column(name, justify="right" if name in ("clients", "block") else "left")
    for name in ("ratio", "at most", "holds"):
        verdict.add_column(name, justify="right")
    for found in ratios(rows):
        verdict.add_row(
            f"{found['clients']:,}",
            f"{found['block_bytes'] >> 10} KB",
            "yes" if found["tls"] else "no",
            found["boxes"],
            found["other"],
            f"{found['ratio']:.2f}",
            f"{found['limit']:.1f}",
            "yes" if found["holds"] else "[bold]no[/bold]",
        )
    console.print(verdict)
    for note in notes:
        console.print(note, style="yellow")


def show_flood(console: Console, rows: list[Row]) -> None:
    """Delays and memory under a flood."""
    for row in rows:
        console.print(
            f"{row['clients']:,} clients, of which {row['stalled']} reads nothing; {row['ticks']} blocks of"
            f" {row['block_bytes'] >> 10} KB, one every {row['interval_s']:g} s: half within"
            f" {row['p50_s'] * 1e3:.1f} ms, 99 % within {row['p99_s'] * 1e3:.1f} ms;"
            f" memory {row['memory_bytes_before'] / 2**20:,.0f} MiB before,"
            f" {row['memory_bytes'] / 2**20:,.0f} MiB after;"
            f" {row['cpu_seconds_per_gb']:.3f} CPU s a GB"
        )
