"""`sensorgrid explain`: what a query will cost, before it runs, and what of it flows already."""

import asyncio
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sensorgrid.client.live import Survey, judge, survey
from sensorgrid.index.decompose import Fragments, decompose
from sensorgrid.index.layout import layout_of
from sensorgrid.links.link import ANSWER_S, LinkError
from sensorgrid.model.box import Box
from sensorgrid.model.grid import Grid
from sensorgrid.model.query import Query
from sensorgrid.model.resolution import count_points, strides_of

MAP_COLUMNS, MAP_ROWS = 72, 18
SHADES = " ░▒▓█"
SLICES_SHOWN = 8
LIVE_SHOWN = 12


def explanation(query: Query, grid: Grid, depth: int) -> dict[str, Any]:
    """Everything that the command prints, as plain values."""
    size = query.size(grid)
    depth = min(depth, layout_of(grid).digits)
    fragments = decompose(query, grid, depth)
    facts = {
        "points_per_tick": size.points_per_tick,
        "bytes_per_tick": size.bytes_per_tick,
        "bytes_per_second": size.bytes_per_second,
        "effective_resolution": list(query.effective_resolution(grid)),
        "fragments": _by_depth(fragments),
        "padding": fragments.padding,
        "slices": _slices(query, grid),
        "depth": depth,
        "box": asdict(query.box(grid)),
        "query": {"attributes": query.attributes, "bbox": query.bbox, "resolution": query.resolution},
        "grid": asdict(grid),
        "tradeoff": [
            {"depth": d, "fragments": len(cut), "padding": cut.padding}
            for d in _depths(grid, depth)
            for cut in [decompose(query, grid, d)]
        ],
    }
    if query.start is not None and query.duration is not None:
        first, stop = query.ticks(grid, query.start)
        assert stop is not None
        delivered = count_points(first, stop, query.limits(grid)[2], grid.resolution_bits[2])
        facts |= {"ticks": delivered, "bytes": delivered * size.bytes_per_tick}
    return facts


def seen_at(url: str) -> Survey:
    """What the brokers of a network that runs say of themselves."""
    try:
        return asyncio.run(survey(url))
    except TimeoutError:
        raise LinkError(f"{url}: found no answer within {ANSWER_S:g} s, expected what it carries") from None


def beside_others(query: Query, seen: Survey) -> dict[str, Any]:
    """What of the query flows already, as plain values."""
    return asdict(judge(query, seen))


def _by_depth(fragments: Fragments) -> list[dict[str, int]]:
    """Fragments by the number of digits of their cells."""
    rows = []
    for length in np.unique(fragments.lengths):
        chosen = fragments.lengths == length
        rows.append(
            {
                "depth": int(length),
                "count": int(chosen.sum()),
                "points": int(fragments.points[chosen].sum()),
                "padded_points": int(fragments.padded[chosen].sum()),
            }
        )
    return rows


def _slices(query: Query, grid: Grid) -> list[dict[str, list[int]]]:
    """The query as strided slices of the whole grid: ``values[y, x]`` on some of the ticks."""
    (kx, ky, kt), (limit_x, limit_y, limit_t) = grid.resolution_bits, query.limits(grid)
    rows = []
    for part in grid.plain_boxes(query.box(grid)):
        for sx in strides_of(0, limit_x, kx):
            for sy in strides_of(0, limit_y, ky):
                if not (sx.count(part.x0, part.x1) and sy.count(part.y0, part.y1)):
                    continue
                x, y = sx.slice(part.x0, part.x1), sy.slice(part.y0, part.y1)
                rows += [
                    {
                        "y": [y.start, y.stop, y.step],
                        "x": [x.start, x.stop, x.step],
                        "tick": [st.offset, st.stride],
                    }
                    for st in strides_of(0, limit_t, kt)
                ]
    return rows


def _depths(grid: Grid, depth: int) -> list[int]:
    digits = layout_of(grid).digits
    return sorted({*range(4, min(digits, 20) + 1, 4), min(depth, digits)})


def show(console: Console, query: Query, grid: Grid, facts: dict[str, Any]) -> None:
    """Print it for people."""
    console.print(_query_panel(query, grid))
    if "live" in facts:
        console.print(_live_table(facts["live"], grid))
    console.print(_cost_table(query, grid, facts))
    console.print(_slice_table(facts["slices"]))
    console.print(_cell_tables(facts, 1 << grid.resolution_bits[2]))
    width = min(MAP_COLUMNS, console.width - 4, grid.shape[0])
    console.print(Panel(_map(query, grid, width), title=_legend(query, grid), expand=False))
    console.print(f"north up; {SHADES[1:]} a quarter, half, three quarters or all of a spot", style="dim")


def _query_panel(query: Query, grid: Grid) -> Panel:
    dx, dy = grid.spacing
    unit = "°" if grid.coordinates == "lonlat" else ""
    bbox = ", ".join(f"{v:g}" for v in query.bbox or grid.extent)
    when = "from now on" if query.start is None else f"from {query.start.isoformat()}"
    if query.duration is not None:
        when += f" for {query.duration}"
    lines = Text.assemble(
        ("query  ", "dim"), ", ".join(query.attributes), f"  in ({bbox})  {when}\n",
        ("grid   ", "dim"),
        f"{grid.shape[0]} × {grid.shape[1]} points, {dx:.4g}{unit} × {dy:.4g}{unit} apart,"
        f" a tick every {_span(grid.tick)}",
    )  # fmt: skip
    return Panel(lines, expand=False)


def _cost_table(query: Query, grid: Grid, facts: dict[str, Any]) -> Table:
    table = Table(title="what it gives, what it costs", title_justify="left", show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column()
    effective = facts["effective_resolution"]
    for axis, asked, got, step in zip(
        "xyt", query.resolution, effective, (*grid.spacing, grid.tick), strict=True
    ):
        # Uneven resolutions have gaps of two sizes; the mean is what a reader wants.
        unit = "°" if grid.coordinates == "lonlat" else ""
        mean = f"{_span(step / got)}" if axis == "t" else f"{step / got:.4g}{unit}"
        note = (
            f"a value every {mean} on average" if got != 1 else "every point" if axis != "t" else "every tick"
        )
        rounded = "" if asked == got else f" (asked {asked:.4g}, rounded up)"
        table.add_row(f"resolution {axis}", f"{got:g}", note + rounded)
    attributes = len(query.attributes)
    share = f"{facts['points_per_tick'] // attributes:,} of each attribute" if attributes > 1 else ""
    table.add_row("points per tick", f"{facts['points_per_tick']:,}", share or "in each delivered tick")
    table.add_row("bytes per tick", f"{facts['bytes_per_tick']:,}", _bytes(facts["bytes_per_tick"]))
    rate = facts["bytes_per_second"]
    table.add_row(
        "bytes per second", f"{rate:,.1f}" if rate >= 10 else f"{rate:.3g}", f"{_bytes(rate * 86400)} a day"
    )
    if "ticks" in facts:
        table.add_row("delivered ticks", f"{facts['ticks']:,}", f"{_bytes(facts['bytes'])} in all")
    return table


def _live_table(live: dict[str, Any], grid: Grid) -> Group:
    from_owners = ", ".join(f"{share:.1%} from broker {n}" for n, share in live["from_owners"].items())
    lines = Text.assemble(
        f"broker {live['broker']}, roster {live['roster']}: has {live['here']:.1%} of the query already",
        f", would take {from_owners}" if from_owners else "",
        f"\n{live['running']:,} boxes of clients run, {len(live['overlapping']):,} overlap the query",
        f" ({live['left_off']:,} more were not told)" if live["left_off"] else "",
    )
    table = Table(title="live queries that overlap it", title_justify="left")
    for name in ("client", "attribute", "from brokers", "its box", "values per tick", "shared"):
        table.add_column(name, justify="left" if name in ("attribute", "its box") else "right")
    for one in live["overlapping"][:LIVE_SHOWN]:
        share = one["shared_per_tick"] / live["points_per_tick"]
        table.add_row(
            str(one["client"]), one["attribute"], ", ".join(map(str, one["brokers"])),
            _corners(Box(**one["box"]), grid), f"{one['points_per_tick']:,.6g}", f"{share:.1%} of the query",
        )  # fmt: skip
    if len(live["overlapping"]) > LIVE_SHOWN:
        table.add_row("…", f"{len(live['overlapping']) - LIVE_SHOWN} more", *["…"] * 4)
    silent = [Text(f"{url} does not answer: {why}", style="yellow") for url, why in live["silent"].items()]
    return Group(lines, *([table] if live["overlapping"] else []), *silent)


def _corners(box: Box, grid: Grid) -> str:
    west, south, _, _ = grid.extent
    dx, dy = grid.spacing
    edges = (west + box.x0 * dx, south + box.y0 * dy, west + box.x1 * dx, south + box.y1 * dy)
    return ", ".join(f"{edge:g}" for edge in edges)


def _slice_table(slices: list[dict[str, list[int]]]) -> Table:
    table = Table(
        title="slices of the array values\\[y, x]",
        title_justify="left",
    )
    for name in ("rows (y)", "columns (x)", "ticks"):
        table.add_column(name, justify="right")
    for row in slices[:SLICES_SHOWN]:
        offset, stride = row["tick"]
        ticks = "all" if stride == 1 else f"t ≡ {offset} (mod {stride})"
        table.add_row(":".join(map(str, row["y"])), ":".join(map(str, row["x"])), ticks)
    if len(slices) > SLICES_SHOWN:
        table.add_row("…", f"{len(slices) - SLICES_SHOWN} more", "…")
    return table


def _cell_tables(facts: dict[str, Any], period: int) -> Group:
    total = sum(row["count"] for row in facts["fragments"])
    cells = Table(
        title=f"{total:,} cells at depth {facts['depth']}, padding {facts['padding']:.1%}",
        title_justify="left",
    )
    for name in ("digits", "cells", f"wanted in {period} ticks", f"carried in {period} ticks", "padding"):
        cells.add_column(name, justify="right")
    for row in facts["fragments"]:
        padding = 1 - row["points"] / row["padded_points"]
        cells.add_row(
            str(row["depth"]),
            f"{row['count']:,}",
            f"{row['points']:,}",
            f"{row['padded_points']:,}",
            f"{padding:.1%}",
        )
    trade = Table(title="depth against padding", title_justify="left")
    for name in ("depth", "cells", "padding"):
        trade.add_column(name, justify="right")
    trade.add_column("")
    for row in facts["tradeoff"]:
        bar = "█" * round(30 * row["padding"])
        style = "bold" if row["depth"] == facts["depth"] else ""
        trade.add_row(str(row["depth"]), f"{row['fragments']:,}", f"{row['padding']:.1%}", bar, style=style)
    return Group(cells, trade)


def _map(query: Query, grid: Grid, columns: int) -> Text:
    """The grid as characters, north up, shaded by the share of each spot that lies in the box."""
    box, (nx, ny) = query.box(grid), grid.shape
    rows = min(MAP_ROWS, ny)
    share_x = sum(_shares(part.x0, part.x1, nx, columns) for part in grid.plain_boxes(box))
    share_y = _shares(box.y0, box.y1, ny, rows)
    share = np.outer(share_y, share_x)[::-1]
    level = np.ceil(share * (len(SHADES) - 1)).astype(int)
    text = Text()
    for number, row in enumerate(level):
        for shade in row:
            text.append(SHADES[shade] if shade else "·", style="cyan" if shade else "dim")
        text.append("\n" if number + 1 < len(level) else "")
    return text


def _shares(start: int, stop: int, points: int, parts: int) -> np.ndarray[Any, Any]:
    """Of each of `parts` equal parts of an axis, the share that [start, stop) covers."""
    edges = np.linspace(0, points, parts + 1)
    covered = np.minimum(edges[1:], stop) - np.maximum(edges[:-1], start)
    return np.clip(covered / np.diff(edges), 0, 1)


def _legend(query: Query, grid: Grid) -> str:
    box: Box = query.box(grid)
    west, south, east, north = grid.extent
    share = 100 * box.points / (grid.shape[0] * grid.shape[1])
    return f"{share:.2g} % of ({west:g}, {south:g}) to ({east:g}, {north:g})"


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            return f"{number:.3g} {unit}"
        number /= 1000
    raise AssertionError


def _span(seconds: float) -> str:
    for unit, length in (("day", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.4g} {unit}"
    return f"{seconds:.4g} s"
