"""The live view in a terminal: the newest grid as a small map, brokers with their streams, clients, events."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from rich import box
from rich.align import Align
from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sensorgrid.demo.pictures import HEAT, Colours
from sensorgrid.demo.report import size_of

EVENTS_MAX = 200
TRAFFIC_MAX = 30
BARS = "▁▂▃▄▅▆▇█"
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@dataclass(slots=True)
class BrokerLine:
    """What the view knows of a broker."""

    number: int
    state: str = "starts"
    """up, killed, starts"""
    clients: int = 0
    streams_in: int = 0
    streams_out: int = 0
    rate: float = 0.0
    """bytes of values a second to other brokers"""
    sent: int = 0


@dataclass(slots=True)
class GuestLine:
    """What the view knows of a client."""

    name: str
    broker: int
    state: str = "waits"
    ticks: int = 0
    delay_s: float | None = None
    hit: bool = False


@dataclass(slots=True)
class Scene:
    """All that is shown; the demo writes it, the view draws it."""

    stage: str = ""
    """what is being done"""
    clock_s: float = 0.0
    """since the demo was started"""
    elapsed_s: float = 0.0
    """since the first tick was asked for"""
    seconds: float = 60.0
    """how long it will be"""
    tick_text: str = ""
    title: str = ""
    """of the map"""
    shown: npt.NDArray[np.float32] | None = None
    limits: tuple[float, float] = (0.0, 1.0)
    unit: str = ""
    brokers: list[BrokerLine] = field(default_factory=list)
    guests: list[GuestLine] = field(default_factory=list)
    points: int = 0
    between: int = 0
    alone: int = 0
    traffic: list[tuple[float, float]] = field(default_factory=list)
    """bytes a second between brokers, and without sharing: the last ones"""
    delay_p50_s: float | None = None
    doubled: int = 0
    result_text: str = ""
    """the newest result of the operator"""
    events: list[tuple[float, str, str]] = field(default_factory=list)
    """seconds since the start, text, style"""

    def happened(self, at_s: float, text: str, style: str = "") -> None:
        """Note an event."""
        self.events.append((at_s, text, style))
        del self.events[:-EVENTS_MAX]


def half_blocks(
    values: npt.NDArray[np.floating], low: float, high: float, colours: Colours, columns: int, lines: int
) -> Text:
    """A field [row, column], row 0 in the south, as characters: each shows two pixels, one above the other."""
    height, width = values.shape
    rows = ((np.arange(2 * lines) + 0.5) * height / (2 * lines)).astype(int)[::-1]
    picked = values[np.ix_(rows, ((np.arange(columns) + 0.5) * width / columns).astype(int))]
    share = np.clip(np.nan_to_num((picked - low) / max(high - low, 1e-9)), 0, 1)
    rgb = colours[(share * 255).astype(np.uint8)]
    text = Text(no_wrap=True, end="")
    for line in range(lines):
        for column in range(columns):
            top, bottom = rgb[2 * line, column], rgb[2 * line + 1, column]
            text.append("▀", style=f"{_hex(top)} on {_hex(bottom)}")
        if line < lines - 1:
            text.append("\n")
    return text


def _hex(colour: npt.NDArray[np.uint8]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour.tolist())


def draw(scene: Scene, width: int, height: int) -> RenderableType:
    """The whole view, for a terminal of this size; small ones get less."""
    if width < 90 or height < 24:
        return _small(scene, width, height)
    lines = max(10, min((height - 5) // 2 - 2, (width - 60) // 4))
    layout = Layout()
    layout.split_column(
        Layout(_head(scene, width), size=5), Layout(name="upper", size=lines + 2), Layout(name="lower")
    )
    layout["upper"].split_row(Layout(_map(scene, lines), size=4 * lines + 2), Layout(_brokers(scene)))
    layout["lower"].split_row(
        Layout(_guests(scene, height - lines - 10), size=max(56, 2 * width // 3)),
        Layout(_events(scene, height)),
    )
    return layout


def _small(scene: Scene, width: int, height: int) -> RenderableType:
    lines = max(4, min(height - 9, (width - 4) // 4))
    parts: list[RenderableType] = [_head(scene, width)]
    if height >= 14 and width >= 24:
        parts.append(_map(scene, lines))
    parts += [
        Text(text, style=style, overflow="ellipsis", no_wrap=True) for _, text, style in scene.events[-2:]
    ]
    return Group(*parts)


def _head(scene: Scene, width: int) -> RenderableType:
    first = Text.assemble(
        ("sensorgrid demo  ", "bold"),
        (f"{SPINNER[int(scene.clock_s * 8) % len(SPINNER)]} {scene.stage}", "cyan"),
    )
    if scene.elapsed_s:
        bar_width = max(8, min(50, width - len(first) - 20))
        done = int(min(1.0, scene.elapsed_s / max(scene.seconds, 1e-9)) * bar_width)
        first.append("  " + "━" * done, style="cyan")
        first.append("━" * (bar_width - done), style="bright_black")
        first.append(
            f" {min(scene.elapsed_s, scene.seconds):.0f} of {scene.seconds:.0f} s", style="bright_black"
        )
    else:
        first.append(f"  {scene.clock_s:.0f} s", style="bright_black")
    second = Text(no_wrap=True, overflow="ellipsis")
    delay = "–" if scene.delay_p50_s is None else f"{scene.delay_p50_s:.2f} s"
    saving = "–" if not scene.alone else f"{1 - scene.between / scene.alone:.0%}"
    for name, value in (
        ("points", f"{scene.points:,}"),
        ("doubled", f"{scene.doubled:,}"),
        ("median delay", delay),
        ("saved by sharing", saving),
        ("between brokers", f"{size_of(scene.between)} of {size_of(scene.alone)}"),
    ):
        second.append(f"{name} ", style="bright_black")
        second.append(f"{value}   ", style="bold")
    third = Text(no_wrap=True, overflow="ellipsis")
    third.append("calculated on the way: mean over the earth ", style="bright_black")
    third.append(scene.result_text or "–", style="bold")
    return Panel(Group(first, second, third), box=box.SIMPLE_HEAD, padding=(0, 1))


def _map(scene: Scene, lines: int) -> RenderableType:
    columns = 4 * lines
    if scene.shown is None:
        body: RenderableType = Align.center(
            Text(scene.stage, style="bright_black"), vertical="middle", height=lines
        )
    else:
        body = half_blocks(scene.shown, *scene.limits, HEAT, columns, lines)
    low, high = scene.limits
    subtitle = f"{low:.0f} to {high:.0f} {scene.unit}  {scene.tick_text}" if scene.shown is not None else None
    return Panel(
        body,
        title=scene.title or "the newest grid",
        subtitle=subtitle,
        border_style="bright_black",
        padding=0,
    )


def _brokers(scene: Scene) -> RenderableType:
    table = Table(box=None, expand=True, padding=(0, 1), header_style="bright_black")
    table.add_column("broker", no_wrap=True)
    for name in ("clients", "in", "out", "a second", "sent"):
        table.add_column(name, justify="right", no_wrap=True)
    for b in scene.brokers:
        mark, style = {"up": ("●", ""), "killed": ("✗ killed", "bold red")}.get(
            b.state, ("… starts", "yellow")
        )
        who = Text.assemble(f"{b.number} ", (mark, style or "green"))
        numbers = (str(b.clients), str(b.streams_in), str(b.streams_out), size_of(b.rate), size_of(b.sent))
        table.add_row(who, *numbers, style=style)
    lines = Table.grid(padding=(0, 1))
    lines.add_column(style="bright_black", no_wrap=True)
    lines.add_column(no_wrap=True)
    top = max([1.0, *(max(pair) for pair in scene.traffic)])
    for place, name, style in ((0, " between brokers", "cyan"), (1, " without sharing", "yellow")):
        lines.add_row(name, Text(spark([pair[place] for pair in scene.traffic], top), style=style))
    return Panel(
        Group(table, Text(), lines), title="brokers and their streams", border_style="bright_black", padding=0
    )


def spark(values: Sequence[float], top: float) -> str:
    """Numbers as a line of bars.

    >>> spark([0, 1, 4, 8], 8)
    '▁▁▄█'
    """
    return "".join(BARS[min(len(BARS) - 1, max(0, int(len(BARS) * v / top - 0.5)))] for v in values)


def _guests(scene: Scene, lines: int) -> RenderableType:
    """As many columns of clients as are needed; those who do not fit are counted."""
    columns = 1 if len(scene.guests) <= lines else 2
    shown = scene.guests[: columns * max(1, lines)]
    cut = -(-len(shown) // columns)
    grid = Table.grid(expand=True)
    for _ in range(columns):
        grid.add_column(ratio=1)
    grid.add_row(*(_guest_table(shown[i * cut : (i + 1) * cut]) for i in range(columns)))
    more = len(scene.guests) - len(shown)
    return Panel(
        grid,
        title="clients",
        subtitle=f"and {more} more" if more else None,
        border_style="bright_black",
        padding=0,
    )


def _guest_table(guests: Sequence[GuestLine]) -> Table:
    table = Table(box=None, expand=True, padding=(0, 1), header_style="bright_black")
    table.add_column("client", no_wrap=True, overflow="ellipsis", ratio=1)
    for name in ("at", "ticks", "delay"):
        table.add_column(name, justify="right", no_wrap=True)
    for g in guests:
        style = "red" if g.hit else "" if g.state == "admitted" or g.state == "resumed" else "yellow"
        delay = "–" if g.delay_s is None else f"{g.delay_s:.1f} s"
        table.add_row(g.name, str(g.broker), str(g.ticks), delay, style=style)
    return table


def _events(scene: Scene, height: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="bright_black", no_wrap=True)
    table.add_column(overflow="fold")
    for at, text, style in scene.events[-max(3, height // 3) :]:
        table.add_row(f"{at:.1f}", Text(text, style=style))
    return Panel(table, title="events", border_style="bright_black", padding=(0, 1))
