"""From what a demo has done to what its report tells."""

from sensorgrid import __version__
from sensorgrid.demo import checks, pictures
from sensorgrid.demo.checks import Fields, Result
from sensorgrid.demo.listening import DemoClient
from sensorgrid.demo.report import BrokerFacts, GuestFacts, Map, Story, utc
from sensorgrid.demo.show import Show
from sensorgrid.demo.stage import axes_of
from sensorgrid.model.ids import PeerId
from sensorgrid.model.names import ERROR
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.sources.synthetic_weather import PRESSURE, Weather


def story_of(show: Show, result: Result, truth: Fields) -> Story:
    """What the report tells."""
    stage, grid, weather = show.stage, show.network.grid, Weather(show.stage.seed)
    end_s = (show.last + 1) * stage.tick_s
    fine_lon, fine_lat = axes_of(grid, 5)
    _, x, y = show.earth.stations()
    hit = set() if show.outage is None else set(show.outage.hit)
    measured = show.measured_s()
    delays = [
        (
            measured[tick] - show.start_s,
            at_s - measured[tick],
            li.place in hit and _in_outage(show, tick, at_s),
        )
        for li in show.listeners
        for tick, at_s in sorted(li.tally.complete_s.items())
        if tick in measured
    ]
    return Story(
        result=result, version=__version__, began=utc(show.began_s), tick_s=stage.tick_s,
        stations=stage.stations, moment=utc(end_s),
        maps=_maps(show, truth, end_s),
        land=weather.land(fine_lon[None, :], fine_lat[:, None]),
        stations_at=[(float(a + 180) / 360, float(90 - b) / 180) for a, b in zip(x, y, strict=True)],
        brokers=[_broker_facts(show, n) for n in show.network.addresses],
        guests=[_guest_facts(show, li, measured, li.place in hit) for li in show.listeners],
        flows=_flows(show), traffic=_rates(show), delays=delays, outage=show.outage,
        killed_after_s=None if show.outage is None else show.outage.at_s - show.start_s,
        books=_books(show),
        events=[(at - (show.start_s - show.began_s), text) for at, text, _ in show.scene.events],
    )  # fmt: skip


def _maps(show: Show, truth: Fields, end_s: float) -> list[Map]:
    """Truth, grid and stated error of each attribute at the last tick, in the units that people use."""
    lon, lat = axes_of(show.network.grid)
    maps = []
    world = show.listeners[0].tally  # has every point of every attribute
    for name in show.stage.attributes:
        received = world.received.get((show.last, show.network.grid.attributes.index(name)))
        stated = truth.get((show.last, name + ERROR))
        if received is None or stated is None:
            continue
        true = show.earth.truth(name, lon[None, :], lat[:, None], end_s)
        factor, shift, unit = (0.01, 0.0, "hPa") if name == PRESSURE else (1.0, -273.15, "°C")
        colours = pictures.DEPTH if name == PRESSURE else pictures.HEAT
        title = name.removesuffix("_at_mean_sea_level").replace("_", " ")
        grid = received.values * factor + shift
        maps.append(Map(title, unit, true * factor + shift, grid, stated * factor, colours))
    return maps


def _in_outage(show: Show, tick: int, at_s: float) -> bool:
    """Whether a client that was hit may have waited for a tick because of it."""
    outage = show.outage
    if outage is None or at_s < outage.at_s:
        return False
    return (tick + 1) * show.stage.tick_s < (outage.back_s or outage.at_s) + show.stage.tick_s


def _broker_facts(show: Show, number: PeerId) -> BrokerFacts:
    lives, line = show.lives(number), show.line(number)
    return BrokerFacts(
        number=number,
        regions=len({r.cell for r in show.network.regions if r.owner == number}),
        clients=sum(1 for g in show.guests if g.broker == number),
        streams_out=line.streams_out,
        streams_in=line.streams_in,
        published=sum(s.published for s in lives),
        sent=show.sent(number),
        to_clients=sum(s.clients_bytes for s in lives),
        restarts=show.restarts(number),
    )


def _guest_facts(show: Show, listener: DemoClient, measured: dict[int, float], hit: bool) -> GuestFacts:
    query, tally = listener.guest.query, listener.tally
    mine = checks.delays_of([tally], measured, show.first, show.last)
    names = ", ".join(
        "its error" if n.endswith("standard_error") else n.split("_at_")[0].replace("_", " ")
        for n in query.attributes
    )
    where = "the earth" if query.bbox is None else "{:g}, {:g}, {:g}, {:g}".format(*query.bbox)
    parts = [f"1/{round(1 / r)}" if r < 1 else "1" for r in query.resolution]
    return GuestFacts(
        listener.guest.name, listener.guest.broker, f"{names} · {where} · {' × '.join(parts)}",
        sum(1 for t in tally.complete_s if show.begin <= t <= show.last), tally.delivered,
        checks.percentile(mine, 0.5), hit,
    )  # fmt: skip


def _flows(show: Show) -> dict[tuple[int, int], int]:
    flows: dict[tuple[int, int], int] = {}
    for number in show.network.addresses:
        for status in show.lives(number):
            for peer, count in status.values_bytes.items():
                flows[number, int(peer)] = flows.get((number, int(peer)), 0) + count
    return flows


def _rates(show: Show) -> list[tuple[float, float, float]]:
    """Bytes a second, as means over a tick."""
    rates, back = [], 0
    for at, (now, between, alone) in enumerate(show.traffic):
        while back < at and now - show.traffic[back][0] > 2 * show.stage.tick_s:
            back += 1
        before = show.traffic[max(0, back - 1)]
        span = now - before[0]
        if span > 0.5 * show.stage.tick_s and now >= show.start_s:
            rates.append((now - show.start_s, (between - before[1]) / span, (alone - before[2]) / span))
    return rates


def _books(show: Show) -> dict[str, int]:
    total = Lake(str(show.folder / "lake")).totals().to_dict()
    return {name: count for name, count in total.items() if isinstance(count, int)}
