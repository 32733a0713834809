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
    starts: int


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
    seconds: float
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
        f"<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width,"
        f"initial-scale=1'><title>Sensorgrid demo, {story.began:%Y-%m-%d %H:%M} UTC</title><style>{_STYLE}</style></head>"
        "<body><main>",
        _head(story),
        _numbers(result),
        _verdict(result),
        _maps(story),
        _network(story),
        _traffic(story),
        _delays(story),
        _clients(story),
        _method(story),
        f"<footer>sensorgrid {escape(story.version)} · sensorgrid demo · this page needs nothing from the network</footer>",
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
        f" {story.tick_s:g} s → {len(story.brokers)} brokers, one of them killed on the way →"
        f" {len(story.guests)} clients with overlapping areas and resolutions, for {story.seconds:.0f} s.</p></header>"
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
            "until all had the next tick",
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
    rows = "".join(
        f"<li class={'good' if c.holds else 'bad' if c.counts else 'note'}><b>{escape(c.name)}</b> {escape(c.found)}</li>"
        for c in result.checks
    )
    return f"<section><h2>What was checked</h2><ul class=checks>{rows}</ul></section>"


def _maps(story: Story) -> str:
    figures = []
    for one in story.maps:
        low, high = (float(v) for v in np.nanpercentile(one.truth, [0.5, 99.5]))
        off = one.grid - one.truth
        most = float(np.nanpercentile(np.abs(off), 99)) or 1.0
        dots = "".join(f"M{100 * x:.2f} {50 * y:.2f}h0" for x, y in story.stations_at)
        overlay = f'<svg class=stations viewBox="0 0 100 50" preserveAspectRatio="none" aria-hidden="true"><path d="{dots}"/></svg>'
        rms, stated = (float(np.sqrt(np.nanmean(np.square(f)))) for f in (off, one.stated))
        pages = (
            ("Truth", one.truth, low, high, one.colours, overlay, f"dots: {len(story.stations_at):,} stations"),
            ("Grid", one.grid, low, high, one.colours, "", "as delivered, no gap"),
            (
                "Grid minus truth", off, -most, most, pictures.CONTRAST, "",
                f"{rms:.2g} {one.unit} root mean square; the grid itself states {stated:.2g} {one.unit}",
            ),
        )  # fmt: skip
        figures.append(
            f"<h3>{escape(one.title)} <span class=unit>{escape(one.unit)}</span></h3><div class=maps>"
        )
        for title, values, bottom, top, colours, above, note in pages:
            picture = pictures.data_uri(pictures.map_png(values, bottom, top, colours, story.land))
            figures.append(
                f"<figure><div class=map><img alt='{escape(title)} of {escape(one.title)}' src='{picture}'>{above}</div>"
                f"<div class=scale style='background:{pictures.stripe(colours)}'></div>"
                f"<div class=ends><span>{bottom:.4g}</span><span>{top:.4g}</span></div>"
                f"<figcaption><b>{escape(title)}</b> {escape(note)}</figcaption></figure>"
            )
        figures.append("</div>")
    return (
        f"<section><h2>Truth, grid, error</h2><p>The tick of {story.moment:%H:%M:%S} UTC, the last that was checked. The"
        " truth is known because the earth is synthetic; the pipeline sees only what its stations report, with noise,"
        f" gaps and faults.</p>{''.join(figures)}</section>"
    )


def _network(story: Story) -> str:
    killed = None if story.outage is None else int(story.outage.broker)
    drawing = pictures.network_svg(
        [b.number for b in story.brokers],
        {b.number: b.clients for b in story.brokers},
        story.flows,
        killed,
        size_of,
    )
    rows = "".join(
        f"<tr{' class=hit' if b.number == killed else ''}><th>{b.number}{' †' if b.number == killed else ''}</th>"
        f"<td>{b.regions}</td><td>{b.clients}</td><td>{b.streams_in}</td><td>{b.streams_out}</td>"
        f"<td>{size_of(b.sent)}</td><td>{size_of(b.to_clients)}</td></tr>"
        for b in story.brokers
    )
    note = "" if killed is None else f" Broker {killed} (†) was killed with SIGKILL and started again."
    return (
        "<section><h2>Brokers and their streams</h2><p>Arcs are values that went from broker to broker, as thick as they"
        f" are many; dots are clients at the broker that they dialled.{note}</p><div class=two>{drawing}"
        "<div class=scroll><table><thead><tr><th>broker</th><th>regions</th><th>clients</th><th>streams in</th>"
        "<th>out</th><th>to brokers</th><th>to clients</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></div></section>"
    )


def _traffic(story: Story) -> str:
    result = story.result
    top = max([1.0, *(max(b, c) for _, b, c in story.traffic)])
    end = max([1.0, *(t for t, _, _ in story.traffic)])
    chart = pictures.Chart(
        (0, end), (0, top * 1.08), "seconds", size_of, "bytes of values a second between brokers"
    )
    chart.line([(t, c) for t, _, c in story.traffic], "alone")
    chart.area([(t, b) for t, b, _ in story.traffic], "main")
    if story.killed_after_s is not None and story.outage is not None:
        chart.mark_x(story.killed_after_s, f"broker {story.outage.broker} killed", "hit")
    share = 100 * result.bytes_between_brokers / max(1, result.bytes_without_sharing)
    bars = (
        f"<div class=bars><div><span style='width:{min(100, share):.1f}%' class=main></span><b>{size_of(result.bytes_between_brokers)}</b>"
        " between brokers, as counted by the brokers</div>"
        f"<div><span style='width:100%' class=alone></span><b>{size_of(result.bytes_without_sharing)}</b>"
        " if each client's stream went by itself from each gateway to its target broker</div></div>"
    )
    return (
        "<section><h2>Traffic</h2><p>A value crosses a link between two brokers once, however many clients behind it want"
        f" it, at whatever resolution.</p>{bars}{chart.svg()}<p class=legend><i class=main></i> between brokers"
        " <i class=alone></i> without sharing; bytes of values a second, mean of the last tick</p></section>"
    )


def _delays(story: Story) -> str:
    if not story.delays:
        return ""
    top = max(DELAY_MAX_S * 1.2, *(d for _, d, _ in story.delays))
    end = max(t for t, _, _ in story.delays)
    chart = pictures.Chart(
        (0, end), (0, top * 1.05), "seconds", lambda v: f"{v:g} s", "delay of every tick at every client"
    )
    chart.mark_y(DELAY_MAX_S, f"{DELAY_MAX_S:g} s", "limit")
    chart.dots([(t, d) for t, d, hit in story.delays if not hit], "main")
    chart.dots([(t, d) for t, d, hit in story.delays if hit], "hit")
    if story.killed_after_s is not None and story.outage is not None:
        chart.mark_x(story.killed_after_s, f"broker {story.outage.broker} killed", "hit")
    return (
        "<section><h2>Delays</h2><p>One dot for each tick and client: from the tick's last measurement until the client"
        f" has all its points of it. The outage is included.</p>{chart.svg()}<p class=legend><i class=main></i> clients"
        " <i class=hit></i> clients whose streams came through the killed broker</p></section>"
    )


def _clients(story: Story) -> str:
    rows = "".join(
        f"<tr{' class=hit' if g.hit else ''}><th>{escape(g.name)}</th><td>{g.broker}</td><td class=left>{escape(g.wants)}</td>"
        f"<td>{g.ticks}</td><td>{g.points:,}</td><td>{'–' if g.delay_p50_s is None else f'{g.delay_p50_s:.2f} s'}</td></tr>"
        for g in story.guests
    )
    return (
        "<section><h2>Clients</h2><div class=scroll><table><thead><tr><th>client</th><th>broker</th><th class=left>wants</th>"
        f"<th>ticks</th><th>points</th><th>median delay</th></tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _method(story: Story) -> str:
    books = ""
    if story.books.get("raw"):
        raw = story.books["raw"]
        named = ("used", "flagged", "duplicate", "late", "dead_letter")
        shares = ", ".join(f"{story.books.get(n, 0):,} {n.replace('_', ' ')}" for n in named)
        books = f"<li><b>Raw measurements</b> {raw:,} = {shares}.</li>"
    events = "".join(f"<li><b>{at:5.1f} s</b> {escape(text)}</li>" for at, text in story.events)
    return f"""<section><h2>How it was measured</h2><ul class=plain>
<li><b>Exactly once</b> A tally beside each client counts every point of every delivery as it comes from the network: each
point of each tick that was asked for must come, none twice in the same revision.</li>
<li><b>Bit for bit</b> After the run a second Spark process grids the same raw records as one batch into a lake of its own;
every value and stated error that a client holds is compared with it, bit by bit. Records that the stream refused because they
came after their tick was closed are left out there, too.</li>
<li><b>Bytes</b> are bytes of values, without heads and frames, on both sides. The brokers count what they send to each other;
the other side is what each client received, from every gateway other than its target broker itself. A killed broker is asked
right before.</li>
<li><b>Delay</b> runs from the time of the tick's last measurement, which lies at the end of the tick, until a client is complete.
Waiting for reports on their way, Spark, lake, brokers and outage are in it.</li>
<li><b>Recovered</b> runs from the kill until every client whose stream came through that broker, or which had dialled it, has
the first tick that ended after the kill.</li>{books}</ul>
<details><summary>What happened when</summary><ul class=plain>{events}</ul></details></section>"""


def utc(time_s: float) -> datetime:
    """A moment from seconds since 1970."""
    return datetime.fromtimestamp(time_s, UTC)


_STYLE = """
:root{--paper:#fbfbf9;--ink:#1c2330;--soft:#667085;--rule:#e3e5ea;--card:#fff;--main:#1f6f8b;--alone:#c98a2b;--hit:#c23b4b;
--good:#2c7a4b;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--paper:#12161d;--ink:#e8ebf0;--soft:#98a2b3;--rule:#2a313d;--card:#1a202a;
--main:#5cc1dd;--alone:#e5b567;--hit:#ff7b86;--good:#6fcf97;--bad:#ff8a80}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:2.2rem 1.1rem 3rem}header{margin-bottom:1.6rem}
.kicker{color:var(--soft);margin:0;font-size:.9rem}h1{font-size:2.1rem;line-height:1.2;margin:.2rem 0 .6rem;letter-spacing:-.01em}
h2{font-size:1.3rem;margin:2.6rem 0 .5rem}h3{font-size:1rem;margin:1.4rem 0 .5rem}.unit{color:var(--soft);font-weight:400}
p{max-width:46rem;margin:.3rem 0 .9rem}.lead{font-size:1.08rem}
.badge{display:inline-block;width:2.1rem;height:2.1rem;line-height:2.1rem;text-align:center;border-radius:50%;color:#fff;font-size:1.2rem;vertical-align:.2rem}
.badge.good{background:#2c7a4b}.badge.bad{background:#b3261e}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:.7rem}
.tiles div{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:.8rem .9rem;display:flex;flex-direction:column}
.tiles b{font-size:1.45rem;font-weight:650;letter-spacing:-.01em;font-variant-numeric:tabular-nums;white-space:nowrap}.tiles small{color:var(--soft)}
ul.checks,ul.plain{list-style:none;padding:0;margin:0}ul.checks li{padding:.35rem 0 .35rem 1.8rem;position:relative;border-bottom:1px solid var(--rule)}
ul.checks li:before{position:absolute;left:.2rem;font-weight:700}li.good:before{content:"✓";color:var(--good)}
li.bad:before,li.note:before{content:"✗";color:var(--bad)}li.note:before{content:"!"}ul.plain li{margin:.5rem 0;max-width:52rem}
.maps{display:grid;grid-template-columns:repeat(3,1fr);gap:.9rem}figure{margin:0;min-width:0}.map{position:relative;line-height:0}
.map img{width:100%;border-radius:6px}.stations{position:absolute;inset:0;width:100%;height:100%}
.stations path{stroke:#111;stroke-opacity:.55;stroke-width:2;stroke-linecap:round;vector-effect:non-scaling-stroke;fill:none}
.scale{height:7px;border-radius:4px;margin-top:.45rem}.ends{display:flex;justify-content:space-between;font-size:.78rem;color:var(--soft);font-variant-numeric:tabular-nums}
figcaption{font-size:.88rem;color:var(--soft)}figcaption b{color:var(--ink)}
svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font:500 15px system-ui,sans-serif}svg .small{font-size:12px;fill:var(--soft)}
svg .end{text-anchor:end}svg .mid{text-anchor:middle}.rule{stroke:var(--rule);stroke-width:1}.line{fill:none;stroke-width:2;stroke-linejoin:round}
.line.main{stroke:var(--main)}.line.alone{stroke:var(--alone);stroke-dasharray:5 4}.area{fill:var(--main);fill-opacity:.18}
.dots{fill:none;stroke-linecap:round;stroke-width:6;stroke-opacity:.55}.dots.main{stroke:var(--main)}.dots.hit{stroke:var(--hit)}
.mark{stroke-width:1.5;stroke-dasharray:4 3}.mark.hit{stroke:var(--hit)}.mark.limit{stroke:var(--soft)}svg .small.hit{fill:var(--hit)}
.network{max-width:520px;margin:0 auto}.flow{fill:none;stroke:var(--main);stroke-opacity:.5;stroke-linecap:round}.flow.hit{stroke:var(--hit)}
.head{fill:var(--main)}.head.hit{fill:var(--hit)}.broker{fill:var(--card);stroke:var(--main);stroke-width:2.5}.broker.hit{stroke:var(--hit)}
.client{fill:var(--alone)}.leash{stroke:var(--rule);stroke-width:1.5}.two{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:1.5rem;align-items:center}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.34rem .5rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}th:first-child,.left{text-align:left}
thead th{color:var(--soft);font-weight:500}tbody th{font-weight:550}tr.hit th:first-child{color:var(--hit)}
.bars{margin:.6rem 0 1.2rem;max-width:46rem}.bars div{margin:.5rem 0;font-size:.92rem}.bars span{display:block;height:16px;border-radius:4px;margin-bottom:.15rem}
.bars .main{background:var(--main)}.bars .alone{background:var(--alone)}
.legend{font-size:.85rem;color:var(--soft)}.legend i{display:inline-block;width:11px;height:11px;border-radius:50%;margin:0 .25rem 0 .7rem;background:var(--main)}
.legend i:first-child{margin-left:0}.legend i.alone{background:var(--alone)}.legend i.hit{background:var(--hit)}
details{margin-top:1rem}summary{cursor:pointer;color:var(--soft)}footer{margin-top:3rem;color:var(--soft);font-size:.85rem}
@media (max-width:760px){.maps,.two{grid-template-columns:1fr}h1{font-size:1.6rem}.tiles{grid-template-columns:1fr 1fr}.tiles b{font-size:1.15rem;white-space:normal}}
"""
