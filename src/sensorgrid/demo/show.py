"""The demo from beginning to end: build the stage, let it play, kill a broker, stop, look again, judge."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from sensorgrid import __version__
from sensorgrid.configuration.network import Network, read_network
from sensorgrid.demo import checks, pictures
from sensorgrid.demo.checks import Fields, Outage, Result
from sensorgrid.demo.listening import Listener
from sensorgrid.demo.processes import CLI, Crew, run_once
from sensorgrid.demo.report import BrokerFacts, GuestFacts, Map, Story, utc
from sensorgrid.demo.stage import Guest, Stage, audience, write_configuration
from sensorgrid.demo.view import TRAFFIC_MAX, BrokerLine, GuestLine, Scene
from sensorgrid.links import wire
from sensorgrid.links.observer import Observer
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.pipeline.lake import Lake
from sensorgrid.pipeline.settings import read_settings
from sensorgrid.pipeline.sources.synthetic_weather import PRESSURE, Weather
from sensorgrid.runtime.supervisor import Part

Floats = npt.NDArray[np.float64]

PIPELINE = "pipeline"
BROKERS_S = 90.0
"""how long the brokers may take to come up"""
FIRST_GRID_S = 240.0
"""how long Spark may take to the first grid"""
ADMISSION_S = 3.0
"""how long a client may take to be served before the next one comes"""
LAST_TICKS_S = 60.0
"""how long the last ticks may take after their time"""
POLL_S = 0.5
SECONDS_MIN = 12.0


class DemoError(SensorGridError, RuntimeError):
    """A demo that cannot go on."""


class Show:
    """One demo. `scene` is what can be seen of it at any time."""

    def __init__(self, stage: Stage, folder: Path, seconds: float) -> None:
        self.stage, self.folder = stage, folder
        self.seconds = max(seconds, SECONDS_MIN)
        self.scene = Scene(seconds=self.seconds)
        self.guests: tuple[Guest, ...] = audience()
        self.listeners: list[Listener] = []
        self.outage: Outage | None = None
        self.config = write_configuration(stage, folder)
        self.network: Network = read_network(self.config)
        self.began_s = time.time()
        self.start_s = 0.0
        """when the first tick begins whose delay counts"""
        self.start = self.begin = 0
        """first tick that is asked for, and that there is"""
        self.first = self.last = 0
        """first and last tick whose delays count"""
        self.traffic: list[tuple[float, int, int]] = []
        """(time, bytes between brokers, without sharing)"""
        self.statuses: dict[PeerId, wire.Status] = {}
        """the last of each broker"""
        self._past: dict[PeerId, list[wire.Status]] = {}
        """the last words of lives that ended"""
        self._delays: list[float] = []
        self._owners = checks.owners_of(self.network.grid, self.network.regions)
        self._earth = stage.earth()
        logs = folder / "logs"
        logs.mkdir(exist_ok=True)
        self._spark = Crew([Part(PIPELINE, (*CLI, "pipeline", "run", str(self.config)), grace_s=20.0)], logs)
        commands = {n: (*CLI, "broker", str(self.config), "--id", str(n)) for n in self.network.addresses}
        self._brokers = Crew([Part(_name(n), command) for n, command in commands.items()], logs)
        self._observers = {n: Observer(a.url, timeout_s=2.0) for n, a in self.network.addresses.items()}

    # -- the play

    async def play(self) -> None:
        """Everything up to the last tick; processes are stopped whatever happens."""
        try:
            self._stage("starting Spark and the brokers")
            self.scene.brokers = [BrokerLine(n) for n in self.network.addresses]
            self.scene.guests = [GuestLine(g.name, g.broker) for g in self.guests]
            await self._calibrated()
            self._spark.start()
            await self._brokers_up()
            await self._guests_in()
            await self._first_grid()
            await self._perform()
        finally:
            self._stage("stopping")
            await asyncio.gather(*(listener.stop() for listener in self.listeners))
            for observer in self._observers.values():
                observer.close()
            await self._spark.stop()  # before the brokers: it would wait for them
            await self._brokers.stop()

    def _stage(self, text: str) -> None:
        self.scene.stage = text

    def _say(self, text: str, style: str = "") -> None:
        self.scene.happened(time.time() - self.began_s, text, style)

    async def _calibrated(self) -> None:
        """Fit parameters to the minute before, as a pipeline that runs for longer has done by itself."""
        settings = read_settings(self.config)
        lake = Lake(settings.lake).create()
        lake.save_plan(await asyncio.to_thread(self.stage.plan, settings, time.time()))

    async def _brokers_up(self) -> None:
        # What has to be compiled, once, is compiled once: the brokers then find it.
        await run_once(["sensorgrid.demo.compiling"], self.folder / "logs" / "compiling.log")
        self._brokers.start()
        deadline, waiting = time.monotonic() + BROKERS_S, set(self.network.addresses)
        while waiting:
            for number in sorted(waiting):
                if await self._observers[number].status() is not None:
                    waiting.discard(number)
                    self._line(number).state = "up"
            if time.monotonic() > deadline:
                name = _name(min(waiting))
                raise DemoError(
                    f"{name}: found no answer, expected one within {BROKERS_S:g} s; its last words:\n"
                    + self._brokers.last_words(name)
                )
            self._spark.check(PIPELINE)
            await asyncio.sleep(0.2)
        self._say(f"{len(self.network.addresses)} brokers are up", "green")

    def _line(self, number: PeerId) -> BrokerLine:
        return next(line for line in self.scene.brokers if line.number == number)

    async def _guests_in(self) -> None:
        """Clients come one after the other, those who want most first: who comes later finds what is there."""
        self._stage("clients come in")
        self.start = int(time.time() // self.stage.tick_s)
        listeners = [
            Listener(guest, place, self.network, self._ticked, self._replied)
            for place, guest in enumerate(self.guests)
        ]
        self.listeners = listeners
        for listener in sorted(listeners, key=lambda li: -li.tally.points):
            listener.listen(self.start)
            deadline = time.monotonic() + ADMISSION_S
            while listener.state != "admitted" and time.monotonic() < deadline:
                self._spark.check(PIPELINE)
                await asyncio.sleep(0.01)
        self._say(
            f"{sum(li.state == 'admitted' for li in listeners)} clients have posed their queries", "green"
        )

    async def _first_grid(self) -> None:
        self._stage("Spark makes its first grid")
        deadline = time.monotonic() + FIRST_GRID_S
        while not any(listener.tally.complete_s for listener in self.listeners):
            if time.monotonic() > deadline:
                raise DemoError(
                    f"pipeline: found no grid, expected one within {FIRST_GRID_S:g} s; its last words:\n"
                    + self._spark.last_words(PIPELINE)
                )
            await self._poll()
            self._spark.check(PIPELINE)
            await asyncio.sleep(POLL_S)
        plan = Lake(str(self.folder / "lake")).plan()
        assert plan is not None, "the pipeline has made one before its first grid"
        self.begin = max(self.start, plan.start_tick)

    async def _perform(self) -> None:
        tick_s = self.stage.tick_s
        # Ticks that end from now on: what Spark makes up for after its start is not what it is like.
        self.first = int(time.time() // tick_s)
        self.start_s = self.first * tick_s
        self._stage("streaming")
        kill_at = self.start_s + max(2 * tick_s, self.seconds / 3)
        end = self.start_s + self.seconds
        self.last = int((end - 2 * tick_s) // tick_s)
        while True:
            now = time.time()
            self._spark.check(PIPELINE)
            await self._poll()
            self.scene.elapsed_s = now - self.start_s
            if self.outage is None and now >= kill_at:
                await self._kill()
            if now >= end:
                self._stage("waiting until nothing can change any more")
                closed = (self.last + 1) * tick_s + self.stage.settle_s + self.stage.lateness_s
                if (now >= closed + 2 * tick_s and self._complete()) or now >= end + LAST_TICKS_S:
                    break
            await asyncio.sleep(POLL_S)
        await self._poll()

    def _complete(self) -> bool:
        """Whether every client has every tick that counts, and the lake has closed them."""
        return all(checks.missing_points(li.tally, self.begin, self.last) == 0 for li in self.listeners)

    def _ticked(self, listener: Listener, tick: int) -> None:
        """A client has a tick."""
        delay_s = time.time() - (tick + 1) * self.stage.tick_s
        line = self.scene.guests[listener.place]
        line.ticks += 1
        line.delay_s = delay_s
        line.hit = False
        if self.first and tick >= self.first:
            self._delays.append(delay_s)
        if listener.place == 0:
            self._show_map(listener, tick)

    def _show_map(self, listener: Listener, tick: int) -> None:
        attribute = self.network.grid.attributes.index(self.stage.attributes[0])
        values = listener.tally.received[tick, attribute].values - 273.15
        scene = self.scene
        if scene.shown is None:
            low, high = np.nanpercentile(values, [1, 99])
            scene.limits = (float(np.floor(low)), float(np.ceil(high)))
            self._say("the first tick has reached a client", "green")
        scene.shown, scene.unit = values, "°C"
        scene.title = "air temperature at 'world model'"
        scene.tick_text = f"{utc((tick + 1) * self.stage.tick_s):%H:%M:%S} UTC"

    def _replied(self, listener: Listener, status: str, reason: str) -> None:
        self.scene.guests[listener.place].state = status
        if status not in ("admitted",):
            self._say(f"{listener.guest.name}: {status}{f', {reason}' if reason else ''}", "yellow")

    # -- what brokers say

    async def _poll(self) -> None:
        found = await asyncio.gather(*(o.status() for o in self._observers.values()))
        now = time.time()
        for number, status in zip(self._observers, found, strict=True):
            line = self._line(number)
            if status is None:
                if line.state == "up":
                    line.state = "starts"
                continue
            if line.state != "up":
                line.state = "up"
                if self.outage is not None and self.outage.broker == number and self.outage.back_s is None:
                    self.outage = replace(self.outage, back_s=now)
                    self._say(f"broker {number} is back after {now - self.outage.at_s:.1f} s", "green")
            self._note(number, status)
        scene = self.scene
        scene.between, scene.alone = self.between(), self._alone()
        self.traffic.append((now, scene.between, scene.alone))
        if len(self.traffic) % 2 == 0 and self.first:
            before = self.traffic[max(0, len(self.traffic) - 1 - round(self.stage.tick_s / POLL_S))]
            span = max(now - before[0], POLL_S)
            scene.traffic.append(((scene.between - before[1]) / span, (scene.alone - before[2]) / span))
            del scene.traffic[:-TRAFFIC_MAX]
        scene.points = sum(li.tally.delivered for li in self.listeners)
        scene.doubled = sum(li.tally.doubled for li in self.listeners)
        scene.delay_p50_s = checks.percentile(self._delays, 0.5)
        for number in self.network.addresses:
            line = self._line(number)
            sent = self._sent(number)
            line.rate = 0.7 * line.rate + 0.3 * (sent - line.sent) / POLL_S
            line.sent = sent

    def _note(self, number: PeerId, status: wire.Status) -> None:
        before = self.statuses.get(number)
        if before is not None and status.up_s < before.up_s:
            self._past.setdefault(number, []).append(before)
        self.statuses[number] = status
        line = self._line(number)
        line.clients = status.clients
        line.streams_in = sum(1 for s in status.streams if s.path is None or len(s.path) > 1)
        line.streams_out = sum(len(s.brokers) for s in status.streams)

    def lives(self, number: PeerId) -> list[wire.Status]:
        """The last words of every life of a broker."""
        now = self.statuses.get(number)
        return [*self._past.get(number, ()), *([] if now is None else [now])]

    def _sent(self, number: PeerId) -> int:
        return sum(sum(s.values_bytes.values()) for s in self.lives(number))

    def between(self) -> int:
        """Bytes of values that brokers have sent to brokers."""
        return sum(self._sent(number) for number in self.network.addresses)

    def _alone(self) -> int:
        return sum(checks.bytes_alone(li.tally, self._owners, li.guest.broker) for li in self.listeners)

    # -- the kill

    async def _kill(self) -> None:
        """SIGKILL for the broker through which most goes, right after it was asked what it has done."""
        victim = self._victim()
        status = await self._observers[victim].status()
        if status is not None:
            self._note(victim, status)
        at_s = time.time()
        self._brokers.kill(_name(victim))
        self._line(victim).state = "killed"
        hit = self._hit_by(victim)
        self.outage = Outage(victim, at_s, hit)
        for place in hit:
            self.scene.guests[place].hit = True
        self._say(f"broker {victim} is killed; the streams of {len(hit)} clients come through it", "bold red")

    def _victim(self) -> PeerId:
        """An owner that also passes on what it takes from others, if there is one; else the busiest."""

        def weight(number: PeerId) -> tuple[bool, int]:
            status = self.statuses.get(number)
            streams = () if status is None else status.streams
            relays = any(s.brokers for s in streams if s.path is not None and len(s.path) > 1)
            owns = any(r.owner == number for r in self.network.regions)
            return (relays and owns, self._sent(number))

        return max(self.network.addresses, key=weight)

    def _hit_by(self, victim: PeerId) -> tuple[int, ...]:
        """Clients that had dialled a broker, or whose streams come through it."""
        hit = []
        for listener in self.listeners:
            status = self.statuses.get(listener.guest.broker)
            wanted, grid = listener.tally.mask, self.network.grid
            through = listener.guest.broker == victim or (
                status is not None
                and any(
                    s.path is not None
                    and victim in s.path
                    and grid.attributes[s.attribute] in listener.guest.query.attributes
                    and bool((checks.points_of_cell(grid, s.cell) & wanted).any())
                    for s in status.streams
                )
            )
            if through:
                hit.append(listener.place)
        return tuple(hit)

    # -- the verdict

    async def look_again(self) -> Fields:
        """The same records as one batch, in a process of its own; what it made."""
        self._stage("gridding the same raw records again, as one batch")
        target = self.folder / "again"
        arguments = [
            "sensorgrid.demo.again",
            str(self.config),
            str(target),
            str(self.begin),
            str(self.last),
        ]
        await run_once(arguments, self.folder / "logs" / "batch.log")
        return await asyncio.to_thread(
            checks.fields_of, Lake(str(target)), self.network.grid, self.begin, self.last
        )

    def measured_s(self) -> dict[int, float]:
        """When the last measurement of each tick was made."""
        tick_s = self.stage.tick_s
        table = self._earth.reports(
            self.start_s, (self.last + 2) * tick_s
        )  # not those of ticks before `first`
        times_s = pc.cast(table["event_time"], "int64").to_numpy() / 1e6
        ticks = np.floor(times_s / tick_s).astype(np.int64)
        return {
            tick: float(times_s[ticks == tick].max())
            for tick in range(self.first, self.last + 1)
            if (ticks == tick).any()
        }

    def judge(self, truth: Fields) -> Result:
        """All checks."""
        return checks.judge(
            [li.tally for li in self.listeners], [li.guest.broker for li in self.listeners], truth, self.measured_s(),
            self._owners, self.between(), self.outage, self.begin, self.last, len(self.guests),
        )  # fmt: skip

    def story(self, result: Result, truth: Fields) -> Story:
        """What the report tells."""
        stage, grid, weather = self.stage, self.network.grid, Weather(self.stage.seed)
        end_s = (self.last + 1) * stage.tick_s
        lon, lat = _axes(grid)
        maps = []
        for name in stage.attributes:
            field = truth.get((self.last, name))
            if field is None:
                continue
            stated = truth[self.last, f"{name} standard_error"]
            true = self._earth.truth(name, lon[None, :], lat[:, None], end_s)
            factor, shift, unit = (0.01, 0.0, "hPa") if name == PRESSURE else (1.0, -273.15, "°C")
            maps.append(
                Map(
                    name.removesuffix("_at_mean_sea_level").replace("_", " "), unit, true * factor + shift,
                    field * factor + shift, stated * factor, pictures.DEPTH if name == PRESSURE else pictures.HEAT,
                )
            )  # fmt: skip
        fine_lon, fine_lat = _axes(grid, 5)
        _, x, y = self._earth.stations()
        hit = set() if self.outage is None else set(self.outage.hit)
        measured = self.measured_s()
        delays = [
            (
                measured[tick] - self.start_s,
                at_s - measured[tick],
                li.place in hit and self._in_outage(tick, at_s),
            )
            for li in self.listeners
            for tick, at_s in sorted(li.tally.complete_s.items())
            if tick in measured
        ]
        return Story(
            result=result, version=__version__, began=utc(self.began_s), tick_s=stage.tick_s,
            seconds=(self.last + 1 - self.first) * stage.tick_s, stations=stage.stations, moment=utc(end_s), maps=maps,
            land=weather.land(fine_lon[None, :], fine_lat[:, None]),
            stations_at=[(float(a + 180) / 360, float(90 - b) / 180) for a, b in zip(x, y, strict=True)],
            brokers=[self._broker_facts(n) for n in self.network.addresses],
            guests=[self._guest_facts(li, measured, li.place in hit) for li in self.listeners],
            flows=self._flows(), traffic=self._rates(), delays=delays, outage=self.outage,
            killed_after_s=None if self.outage is None else self.outage.at_s - self.start_s,
            books=self._books(),
            events=[(at - (self.start_s - self.began_s), text) for at, text, _ in self.scene.events],
        )  # fmt: skip

    def _in_outage(self, tick: int, at_s: float) -> bool:
        """Whether a client that was hit may have waited for a tick because of it."""
        outage = self.outage
        if outage is None or at_s < outage.at_s:
            return False
        return (tick + 1) * self.stage.tick_s < (outage.back_s or outage.at_s) + self.stage.tick_s

    def _broker_facts(self, number: PeerId) -> BrokerFacts:
        lives, line = self.lives(number), self._line(number)
        return BrokerFacts(
            number=number,
            regions=len({r.cell for r in self.network.regions if r.owner == number}),
            clients=sum(1 for g in self.guests if g.broker == number),
            streams_out=line.streams_out,
            streams_in=line.streams_in,
            published=sum(s.published for s in lives),
            sent=self._sent(number),
            to_clients=sum(s.clients_bytes for s in lives),
            restarts=self._brokers.restarts(_name(number)),
        )

    def _guest_facts(self, listener: Listener, measured: dict[int, float], hit: bool) -> GuestFacts:
        query, tally = listener.guest.query, listener.tally
        mine = checks.delays_of([tally], measured, self.first, self.last)
        names = ", ".join(
            "its error" if n.endswith("standard_error") else n.split("_at_")[0].replace("_", " ")
            for n in query.attributes
        )
        where = "the earth" if query.bbox is None else "{:g}, {:g}, {:g}, {:g}".format(*query.bbox)
        parts = [f"1/{round(1 / r)}" if r < 1 else "1" for r in query.resolution]
        return GuestFacts(
            listener.guest.name, listener.guest.broker, f"{names} · {where} · {' × '.join(parts)}",
            sum(1 for t in tally.complete_s if self.begin <= t <= self.last), tally.delivered,
            checks.percentile(mine, 0.5), hit,
        )  # fmt: skip

    def _flows(self) -> dict[tuple[int, int], int]:
        flows: dict[tuple[int, int], int] = {}
        for number in self.network.addresses:
            for status in self.lives(number):
                for peer, count in status.values_bytes.items():
                    flows[number, int(peer)] = flows.get((number, int(peer)), 0) + count
        return flows

    def _rates(self) -> list[tuple[float, float, float]]:
        """Bytes a second, as means over a tick."""
        rates, back = [], 0
        for at, (now, between, alone) in enumerate(self.traffic):
            while back < at and now - self.traffic[back][0] > 2 * self.stage.tick_s:
                back += 1
            before = self.traffic[max(0, back - 1)]
            span = now - before[0]
            if span > 0.5 * self.stage.tick_s and now >= self.start_s:
                rates.append((now - self.start_s, (between - before[1]) / span, (alone - before[2]) / span))
        return rates

    def _books(self) -> dict[str, int]:
        total = Lake(str(self.folder / "lake")).totals().to_dict()
        return {name: count for name, count in total.items() if isinstance(count, int)}


def _name(broker: PeerId) -> str:
    return f"broker {broker}"


def _axes(grid: Grid, scale: int = 1) -> tuple[Floats, Floats]:
    """Longitudes and latitudes of the points, or of a map `scale` times as fine."""
    west, south, east, north = grid.extent
    nx, ny = (n * scale for n in grid.shape)
    lon = west + (np.arange(nx) + 0.5) * (east - west) / nx
    lat = south + (np.arange(ny) + 0.5) * (north - south) / ny
    return lon, lat
