"""The demo's report: one HTML file without anything from elsewhere, for light and dark, large and small screens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from math import isfinite

import numpy as np
import numpy.typing as npt

from sensorgrid.demo import pictures
from sensorgrid.demo.checks import DELAY_MAX_S, Outage, Result
from sensorgrid.demo.style import STYLE

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Map:
    """One attribute at one tick."""

    title: str
    unit: str
    truth: Floats
    """[row, column], as shown (degrees Celsius, hPa)"""
    grid: Floats
    stated: Floats
    """the error that the grid states, one standard deviation"""
    colours: pictures.Colours


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """One broker, at the end."""

    number: int
    regions: int
    clients: int
    streams_out: int
    """that it gave to other brokers"""
    streams_in: int
    """that it took from other brokers"""
    published: int
    sent: int
    """bytes of values to other brokers"""
    to_clients: int
    """bytes of values to clients"""
    restarts: int


@dataclass(frozen=True, slots=True)
class GuestFacts:
    """One client, at the end."""

    name: str
    broker: int
    wants: str
    ticks: int
    points: int
    delay_p50_s: float | None
    hit: bool


@dataclass(slots=True)
class Story:
    """All that the report tells."""

    result: Result
    version: str
    began: datetime
    tick_s: float
    stations: int
    moment: datetime
    """of the maps"""
    maps: list[Map]
    land: Floats
    """of the maps, enlarged"""
    stations_at: list[tuple[float, float]]
    """as parts of the map's width and height, from its north-west corner"""
    brokers: list[BrokerFacts]
    guests: list[GuestFacts]
    flows: dict[tuple[int, int], int]
    """bytes of values from broker to broker"""
    traffic: list[tuple[float, float, float]]
    """(seconds since the start, bytes a second between brokers, the same without sharing)"""
    delays: list[tuple[float, float, bool]]
    """(seconds since the start at which the tick ended, delay, whether its client was hit by the kill)"""
    outage: Outage | None
    killed_after_s: float | None
    books: Mapping[str, int] = field(default_factory=dict)
    """what became of the raw measurements"""
    events: Sequence[tuple[float, str]] = ()
    """seconds since the start, what happened"""


def render(story: Story) -> str:
    """The page."""
    result = story.result
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>Sensorgrid demo, {story.began:%Y-%m-%d %H:%M} UTC</title><style>{STYLE}</style></head><body><main>",
        _head(story),
        _numbers(result),
        _verdict(result),
        _maps(story),
        _network(story),
        _traffic(story),
        _delays(story),
        _clients(story),
        _method(story),
        f"<footer>sensorgrid {escape(story.version)} · this page needs nothing from the network</footer>",
        "</main></body></html>",
    ]
    return "\n".join(parts)


def size_of(count: float) -> str:
    """Bytes for people.

    >>> size_of(950), size_of(12_345), size_of(3_400_000)
    ('950 B', '12.3 kB', '3.4 MB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}" if count < 100 * factor else f"{count / factor:.0f} {unit}"
    return f"{count:.0f} B"


def _head(story: Story) -> str:
    word = "All checks hold" if story.result.holds else "Not all checks hold"
    kind = "good" if story.result.holds else "bad"
    return (
        f"<header><p class=kicker>Sensorgrid · demo of {story.began:%d %B %Y, %H:%M} UTC</p>"
        f"<h1>{word} <span class='badge {kind}'>{'✓' if story.result.holds else '✗'}</span></h1>"
        f"<p class=lead>{story.stations:,} faulty stations on a synthetic earth → gap-free grids on Spark, one every"
        f" {story.tick_s:g} s → {len(story.brokers)} brokers, of which one came later and one was killed →"
        f" {len(story.guests)} clients with overlapping areas and resolutions.</p></header>"
    )


def _numbers(result: Result) -> str:
    def seconds(value: float | None) -> str:
        return "–" if value is None or not isfinite(value) else f"{value:.2f} s"

    tiles = (
        (
            f"{result.points_delivered:,}",
            "points delivered",
            f"{result.ticks} ticks at {result.clients} clients",
        ),
        (
            f"{result.missing:,} · {result.duplicated:,} · {result.wrong:,}",
            "missing · doubled · wrong",
            "bit for bit against a batch",
        ),
        (
            "–" if result.saving is None else f"{result.saving:.0%}",
            "saved between brokers",
            f"{size_of(result.bytes_between_brokers)} of {size_of(result.bytes_without_sharing)}",
        ),
        (seconds(result.delay_p50_s), "median delay", f"99 of 100 within {seconds(result.delay_p99_s)}"),
        (
            seconds(result.recovered_s),
            "until all had the tick",
            "no broker was killed" if result.killed is None else f"after broker {result.killed} was killed",
        ),
    )
    return (
        "<section class=tiles>"
        + "".join(
            f"<div><b>{escape(a)}</b><span>{escape(b)}</span><small>{escape(c)}</small></div>"
            for a, b, c in tiles
        )
        + "</section>"
    )


def _verdict(result: Result) -> str:
    rows = []
    for check in result.checks:
        kind = "good" if check.holds else "bad" if check.counts else "note"
        apart = "" if check.holds or check.counts else "; this depends on the machine, and does not count"
        rows.append(f"<li class={kind}><b>{escape(check.name)}</b> {escape(check.found + apart)}</li>")
    return f"<section><h2>What was checked</h2><ul class=checks>{''.join(rows)}</ul></section>"


def _maps(story: Story) -> str:
    figures = "".join(_attribute(story, one) for one in story.maps)
    return (
        f"<section><h2>Truth, grid, error</h2><p>The tick that ended at {story.moment:%H:%M:%S} UTC, the last that was"
        " checked. The truth is known because the earth is synthetic; the pipeline sees only what its stations report,"
        f" with noise, gaps and faults. Dots are stations.</p>{figures}</section>"
    )


def _attribute(story: Story, one: Map) -> str:
    low, high = (float(v) for v in np.nanpercentile(one.truth, [0.5, 99.5]))
    off = one.grid - one.truth
    most = float(np.nanpercentile(np.abs(off), 99)) or 1.0
    dots = "".join(f"M{100 * x:.2f} {50 * y:.2f}h0" for x, y in story.stations_at)
    stations = (
        "<svg class=stations viewBox='0 0 100 50' preserveAspectRatio=none aria-hidden=true>"
        f"<path d='{dots}'/></svg>"
    )
    rms, stated = (float(np.sqrt(np.nanmean(np.square(f)))) for f in (off, one.stated))
    worst = float(np.nanpercentile(one.stated, 99)) or 1.0
    pages = (
        ("Truth", one.truth, low, high, one.colours, "", "what nobody knows"),
        ("Grid", one.grid, low, high, one.colours, stations, "as delivered, without a gap"),
        (
            "Grid minus truth", off, -most, most, pictures.CONTRAST, "",
            f"{rms:.2g} {one.unit} root mean square, over all points alike",
        ),
        (
            "Error that the grid states", one.stated, 0.0, worst, pictures.DOUBT, "",
            f"{stated:.2g} {one.unit} root mean square; it knows where stations are few",
        ),
    )  # fmt: skip
    figures = []
    for title, values, bottom, top, colours, above, note in pages:
        picture = pictures.data_uri(pictures.map_png(values, bottom, top, colours, story.land))
        figures.append(
            f"<figure><div class=map><img alt='{escape(title)} of {escape(one.title)}' src='{picture}'>{above}</div>"
            f"<div class=scale style='background:{pictures.stripe(colours)}'></div>"
            f"<div class=ends><span>{bottom:.4g}</span><span>{top:.4g}</span></div>"
            f"<figcaption><b>{escape(title)}</b> {escape(note)}</figcaption></figure>"
        )
    unit = f"<span class=unit>{escape(one.unit)}</span>"
    return f"<h3>{escape(one.title)} {unit}</h3><div class=maps>{''.join(figures)}</div>"


def _network(story: Story) -> str:
    killed = None if story.outage is None else int(story.outage.broker)
    numbers = [b.number for b in story.brokers]
    clients = {b.number: b.clients for b in story.brokers}
    drawing = pictures.network_svg(numbers, clients, story.flows, killed, size_of)
    rows = []
    for b in story.brokers:
        mark, kind = ("†", " class=hit") if b.number == killed else ("", "")
        cells = (b.regions, b.clients, b.streams_in, b.streams_out, size_of(b.sent), size_of(b.to_clients))
        columns = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f"<tr{kind}><th>{b.number} {mark}</th>{columns}</tr>")
    names = ("broker", "regions", "clients", "streams in", "out", "to brokers", "to clients")
    heads = "".join(f"<th>{name}</th>" for name in names)
    note = (
        "" if killed is None else f" Broker {killed} (†) was killed with SIGKILL for good; others took over."
    )
    return (
        "<section><h2>Brokers and their streams</h2><p>Arcs are values that went from broker to broker, as thick as"
        f" they are many; dots are clients at the broker that they dialled.{note}</p><div class=two>{drawing}"
        f"<div class=scroll><table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></div>"
        "</section>"
    )


def _traffic(story: Story) -> str:
    result = story.result
    top = max([1.0, *(max(b, c) for _, b, c in story.traffic)])
    end = max([1.0, *(t for t, _, _ in story.traffic)])
    title = "bytes of values a second between brokers"
    chart = pictures.Chart((0, end), (0, top * 1.08), "seconds", size_of, title)
    chart.line([(t, c) for t, _, c in story.traffic], "alone")
    chart.area([(t, b) for t, b, _ in story.traffic], "main")
    _mark_kill(story, chart)
    share = min(100, 100 * result.bytes_between_brokers / max(1, result.bytes_without_sharing))
    between, alone = size_of(result.bytes_between_brokers), size_of(result.bytes_without_sharing)
    return (
        "<section><h2>Traffic</h2><p>A value crosses a link between two brokers once, however many clients behind it"
        " want it, at whatever resolution.</p><div class=bars>"
        f"<div><span class=main style='width:{share:.1f}%'></span><b>{between}</b> between brokers, as they"
        " counted</div>"
        f"<div><span class=alone style='width:100%'></span><b>{alone}</b> if each client's stream went by itself from"
        f" each gateway to its target broker</div></div>{chart.svg()}<p class=legend><i class=main></i> between brokers"
        " <i class=alone></i> without sharing; bytes of values a second, means over two ticks</p></section>"
    )


def _mark_kill(story: Story, chart: pictures.Chart) -> None:
    if story.killed_after_s is not None and story.outage is not None:
        chart.mark_x(story.killed_after_s, f"broker {story.outage.broker} killed", "hit")


def _delays(story: Story) -> str:
    if not story.delays:
        return ""
    top = max(DELAY_MAX_S * 1.2, *(d for _, d, _ in story.delays))
    end = max(t for t, _, _ in story.delays)
    title = "delay of every tick at every client"
    chart = pictures.Chart((0, end), (0, top * 1.05), "seconds", lambda v: f"{v:g} s", title)
    chart.mark_y(DELAY_MAX_S, f"{DELAY_MAX_S:g} s", "limit")
    chart.dots([(t, d) for t, d, hit in story.delays if not hit], "main")
    chart.dots([(t, d) for t, d, hit in story.delays if hit], "hit")
    _mark_kill(story, chart)
    return (
        "<section><h2>Delays</h2><p>One dot for each tick and client: from the tick's last measurement until the client"
        f" has all its points of it. The outage is included.</p>{chart.svg()}<p class=legend><i class=main></i> a tick"
        " at a client <i class=hit></i> while the client waited for what the killed broker had carried</p></section>"
    )


def _clients(story: Story) -> str:
    rows = []
    for g in story.guests:
        delay = "–" if g.delay_p50_s is None else f"{g.delay_p50_s:.2f} s"
        kind = " class=hit" if g.hit else ""
        rows.append(
            f"<tr{kind}><th>{escape(g.name)}</th><td>{g.broker}</td><td class=left>{escape(g.wants)}</td>"
            f"<td>{g.ticks}</td><td>{g.points:,}</td><td>{delay}</td></tr>"
        )
    return (
        "<section><h2>Clients</h2><p>Part of the points along x and y, and of the ticks, that each asked for. Red: its"
        " streams came through the killed broker.</p><div class=scroll><table><thead><tr><th>client</th><th>broker</th>"
        "<th class=left>wants</th><th>ticks</th><th>points</th><th>median delay</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


_METHOD = """
<li><b>Exactly once</b> A tally beside each client counts every point of every delivery as it comes from the network:
each point of each tick that was asked for must come, none twice in the same revision.</li>
<li><b>Bit for bit</b> After the run a second Spark process grids the same raw records as one batch into a lake of its
own; every value and stated error that a client holds is compared with it, bit by bit. Records that the stream refused
because they came after their tick was closed are left out there, too.</li>
<li><b>Bytes</b> are bytes of values, without heads and frames, on both sides. The brokers count what they send to each
other; the other side is what each client received from every gateway other than its target broker itself. The broker
that was killed was asked right before.</li>
<li><b>Delay</b> runs from the time of the tick's last measurement, at the end of the tick, until a client is complete:
reports on their way, Spark, lake, brokers and the outage are in it. It counts from the tick on that ran when Spark had
caught up after its start: when a tick had reached a client before the next one had ended.</li>
<li><b>Recovered</b> runs from the kill until every client whose stream came through that broker, or which had dialled
it, has the tick that ran at that moment, if it wants that tick; the others miss nothing, either.</li>
"""


def _method(story: Story) -> str:
    books = ""
    if story.books.get("raw"):
        named = ("used", "flagged", "ignored", "duplicate", "late", "dead_letter")
        shares = " + ".join(f"{story.books.get(n, 0):,} {n.replace('_', ' ')}" for n in named)
        books = f"<li><b>Raw measurements</b> {story.books['raw']:,} = {shares}.</li>"
    events = "".join(f"<li><b>{at:5.1f} s</b> {escape(text)}</li>" for at, text in story.events)
    return (
        f"<section><h2>How it was measured</h2><ul class=plain>{_METHOD}{books}</ul>"
        f"<details><summary>What happened when</summary><ul class=plain>{events}</ul></details></section>"
    )


def utc(time_s: float) -> datetime:
    """A moment from seconds since 1970."""
    return datetime.fromtimestamp(time_s, UTC)
